//! C = A · Bᵀ on Blackwell: one thread multiplies, the sums lie in tensor memory.

/// The eighth rung: tensor memory, for `sm_100f`.
#[kda_dsl::kernels(arch = sm_100f)]
pub mod blackwell_product {
    const M: u32 = 128;
    const N: u32 = 128;
    const K: u32 = 64;
    const STAGES: u32 = 4;

    /// `c[i, j] = sum_k a[i, k] b[j, k]`, accumulated in f32.
    #[kernel(block = 192, grid = [n / N, m / M], min_blocks_per_sm = 1)]
    #[roles(epilogue = 0..4, load = 4..5, math = 5..6)]
    #[requires(m % M == 0, n % N == 0, k % K == 0, k >= K, pitch % 4 == 0)]
    fn blackwell_product(
        #[dims(m, k)] a: TensorMap<bf16, Shape<M, K>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<N, K>, Swizzle<128>>,
        #[dims(m:pitch, n)] c: GlobalMut<f32>,
    ) {
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<M, K>, Swizzle<128>, STAGES>(),
            b: smem::<bf16, Shape<N, K>, Swizzle<128>, STAGES>(),
        };
        let sums = Pipeline::<math, epilogue> { c: tmem::<f32, M, N>() };

        #[role(load)]
        #[elect_one]
        for kb in 0..k / K {
            let slot = ab.acquire();
            slot.a.tma_load(a, [ctaid.y * M, kb * K]);
            slot.b.tma_load(b, [ctaid.x * N, kb * K]);
            slot.commit();
        }

        #[role(math)]
        #[elect_one]
        {
            let sum = sums.acquire();
            for kb in 0..k / K {
                let slot = ab.wait();
                sum.c.mma(slot.a, slot.b);
                // The stage is free when the products that read it are done.
                slot.release();
            }
            sum.commit();
        }

        #[role(epilogue)]
        {
            let sum = sums.wait();
            #[unroll]
            for i in 0..N / 4 {
                let four = sum.c.load_v::<4>(4 * i);
                c.at([ctaid.y * M + tid, ctaid.x * N + 4 * i]).store_v(four);
            }
            sum.release();
        }
    }
}
