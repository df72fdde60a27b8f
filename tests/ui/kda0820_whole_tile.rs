//! The map of a multicast has the whole tile as its box.

#[kda_dsl::kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 64, grid = n, cluster = 2)]
    #[roles(load = 0..1, math = 1..2)]
    fn k(#[dims(n, 64)] a: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>) {
        let ring = Pipeline::<load, math> { tile: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>() };
        #[role(load)]
        #[elect_one]
        {
            let slot = ring.acquire();
            slot.tile.tma_multicast(a, [0, 0]); //~ KDA0820
            slot.commit();
        }
        #[role(math)]
        {
            let slot = ring.wait();
            slot.release();
        }
    }
}

fn main() {}
