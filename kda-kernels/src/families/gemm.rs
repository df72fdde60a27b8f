//! C = A · Bᵀ on tensor cores: one producer warpgroup, two consumer warpgroups, a ring of STAGES tiles.

/// Matrix product of bf16 matrices with K contiguous.
#[kda_dsl::kernels(arch = sm_90a)]
pub mod gemm {
    #[device]
    fn mma_stage<const BM: u32, const BN: u32, const BK: u32>(
        acc: &mut Acc<f32, BM, BN>,
        a: Tile<bf16>,
        b: Tile<bf16>,
    ) {
        #[unroll]
        for k in 0..BK / 16 {
            acc.mma(a.k_slice(16 * k), b.k_slice(16 * k));
        }
        wgmma::commit();
    }

    /// `c[i, j] = sum_k a[i, k] b[j, k]`, bf16 operands, f32 accumulation, one rounding to bf16.
    #[kernel(block = 384, grid = [n / BN, m / BM], min_blocks_per_sm = 1)]
    #[roles(math = 0..8 (regs = 232), load = 8..12 (regs = 40))]
    #[variants((BM, BN, BK, STAGES) in [(128, 128, 64, 4), (128, 256, 64, 3)])]
    #[requires(k % BK == 0, m % BM == 0, n % BN == 0, c_pitch % 2 == 0)]
    fn gemm_ws<const BM: u32, const BN: u32, const BK: u32, const STAGES: u32>(
        #[dims(m, k)] a: TensorMap<bf16, Shape<BM, BK>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<BN, BK>, Swizzle<128>>,
        #[dims(m:c_pitch, n)] c: GlobalMut<bf16>,
    ) {
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<BM, BK>, Swizzle<128>, STAGES>(),
            b: smem::<bf16, Shape<BN, BK>, Swizzle<128>, STAGES>(),
        };

        #[role(load)]
        #[elect_one]
        for kb in 0..k / BK {
            let slot = ab.acquire();
            slot.a.tma_load(a, [ctaid.y * BM, kb * BK]);
            slot.b.tma_load(b, [ctaid.x * BN, kb * BK]);
            slot.commit();
        }

        #[role(math)]
        {
            let mut acc = Acc::<f32, BM, BN>::zero();
            for kb in 0..k / BK {
                let slot = ab.wait();
                mma_stage::<BM, BN, BK>(&mut acc, slot.a, slot.b);
                wgmma::wait::<0>();
                slot.release();
            }
            acc.for_each(|row, column, pair| {
                let pair = [bf16::rn(pair[0]), bf16::rn(pair[1])];
                c.at([ctaid.y * BM + row, ctaid.x * BN + column]).store_v(pair);
            });
        }
    }
}
