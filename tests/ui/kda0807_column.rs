//! A box that begins at any element of a row.

#[kda_dsl::kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn copy(
        #[dims(m, n)] a: TensorMap<bf16, Shape<8, 64>, Swizzle<128>>,
        #[dims(8, 64)] c: GlobalMut<f32>,
        first: u32,
    ) {
        let ring = Pipeline::cta { tile: smem::<bf16, Shape<8, 64>, Swizzle<128>>() };
        #[elect_one]
        {
            let slot = ring.acquire();
            slot.tile.tma_load(a, [0, 4 * first]); //~ KDA0807
            slot.commit();
        }
        let slot = ring.wait();
        c.at([0, tid]).store(slot.tile[[0, tid]] as f32);
        slot.release();
    }
}

fn main() {}
