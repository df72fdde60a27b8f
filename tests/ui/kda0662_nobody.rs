//! A buffer that no role fills, and that is read.

#[kda_dsl::kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[roles(load = 0..1, math = 1..2)]
    fn sums(
        #[dims(rows, 32)] x: TensorMap<f32, Shape<1, 32>>,
        #[dims(rows, 32)] y: GlobalMut<f32>,
    ) {
        let ring = Pipeline::<load, math> {
            here: smem::<f32, Shape<1, 32>, _, 2>(),
            next: smem::<f32, Shape<1, 32>, _, 2>(),
        };
        #[role(load)]
        #[elect_one]
        for i in 0..rows {
            let slot = ring.acquire();
            slot.here.tma_load(x, [i, 0]);
            slot.commit();
        }
        #[role(math)]
        for i in 0..rows {
            let slot = ring.wait();
            y.at([i, lane]).store(slot.here[[0, lane]] + slot.next[[0, lane]]); //~ KDA0662
            slot.release();
        }
    }
}

fn main() {}
