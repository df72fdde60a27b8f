//! C = A · Bᵀ: one warp copies, two warpgroups multiply.

/// The fifth rung: products of warpgroups, from shared memory.
#[kda_dsl::kernels(arch = sm_90a)]
pub mod product {
    const M: u32 = 128;
    const N: u32 = 256;
    const K: u32 = 64;
    const STAGES: u32 = 4;

    /// `c[i, j] = sum_k a[i, k] b[j, k]`, accumulated in f32.
    #[kernel(block = 288, grid = [n / N, m / M], min_blocks_per_sm = 1)]
    #[roles(math = 0..8, load = 8..9)]
    #[requires(m % M == 0, n % N == 0, k % K == 0, pitch % 2 == 0)]
    fn product(
        #[dims(m, k)] a: TensorMap<bf16, Shape<M, K>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<N, K>, Swizzle<128>>,
        #[dims(m:pitch, n)] c: GlobalMut<f32>,
    ) {
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<M, K>, Swizzle<128>, STAGES>(),
            b: smem::<bf16, Shape<N, K>, Swizzle<128>, STAGES>(),
        };

        #[role(load)]
        #[elect_one]
        for kb in 0..k / K {
            let slot = ab.acquire();
            slot.a.tma_load(a, [ctaid.y * M, kb * K]);
            slot.b.tma_load(b, [ctaid.x * N, kb * K]);
            slot.commit();
        }

        #[role(math)]
        {
            let mut acc = Acc::<f32, M, N>::zero();
            for kb in 0..k / K {
                let slot = ab.wait();
                #[unroll]
                for i in 0..K / 16 {
                    acc.mma(slot.a.k_slice(16 * i), slot.b.k_slice(16 * i));
                }
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }
            acc.for_each(|row, column, pair| {
                c.at([ctaid.y * M + row, ctaid.x * N + column]).store_v(pair);
            });
        }
    }
}
