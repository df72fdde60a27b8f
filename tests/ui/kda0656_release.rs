//! A stage that a role takes and one thread releases.

#[kda_dsl::kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 160, grid = m / 64)]
    #[roles(math = 0..4, load = 4..5)]
    #[requires(k % 64 == 0, m % 64 == 0)]
    fn product(
        #[dims(m, k)] a: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>,
        #[dims(64, k)] b: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>,
        #[dims(m, 64)] c: GlobalMut<f32>,
    ) {
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>(),
            b: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>(),
        };
        #[role(load)]
        #[elect_one]
        for kb in 0..k / 64 {
            let slot = ab.acquire();
            slot.a.tma_load(a, [ctaid.x * 64, 64 * kb]);
            slot.b.tma_load(b, [0, 64 * kb]);
            slot.commit();
        }
        #[role(math)]
        for kb in 0..k / 64 {
            let slot = ab.wait();
            #[elect_one]
            {
                slot.release(); //~ KDA0656
            }
        }
    }
}

fn main() {}
