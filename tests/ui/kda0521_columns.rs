//! More columns than tensor memory has.

#[kda_dsl::kernels(arch = sm_100f)]
mod tensor_memory {
    #[kernel(block = 192, grid = [n / 64, m / 128], min_blocks_per_sm = 1)]
    #[roles(epilogue = 0..4, load = 4..5, math = 5..6)]
    #[requires(k % 64 == 0, n % 64 == 0, m % 128 == 0, pitch % 4 == 0)]
    fn product(
        #[dims(m, k)] a: TensorMap<bf16, Shape<128, 64>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>,
        #[dims(m:pitch, n)] c: GlobalMut<f32>,
    ) {
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<128, 64>, Swizzle<128>, 4>(),
            b: smem::<bf16, Shape<64, 64>, Swizzle<128>, 4>(),
        };
        let sums = Pipeline::<math, epilogue> { d: tmem::<f32, 128, 64, 16>() }; //~ KDA0521

        #[role(load)]
        #[elect_one]
        for kb in 0..k / 64 {
            let slot = ab.acquire();
            slot.a.tma_load(a, [ctaid.y * 128, kb * 64]);
            slot.b.tma_load(b, [ctaid.x * 64, kb * 64]);
            slot.commit();
        }

        #[role(math)]
        #[elect_one]
        {
            let sum = sums.acquire();
            for kb in 0..k / 64 {
                let slot = ab.wait();
                sum.d.mma(slot.a, slot.b);
                slot.release();
            }
            sum.commit();
        }

        #[role(epilogue)]
        {
            let sum = sums.wait();
            #[unroll]
            for i in 0..16 {
                let values = sum.d.load_v::<4>(4 * i);
                c.at([ctaid.y * 128 + tid, ctaid.x * 64 + 4 * i]).store_v(values);
            }
            sum.release();
        }
    }
}

fn main() {}
