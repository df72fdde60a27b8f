//! C = act(A · Bᵀ + bias) on tensor cores: a persistent grid that walks over tiles in an order that shares operands in L2, one
//! warp that loads, two warpgroups that multiply, one warp that stores.

/// Matrix product of bf16 matrices with K contiguous: M and K of any size, N whole 16 bytes of a row of C.
#[kda_dsl::kernels(arch = sm_90a, uses = [crate::device::math])]
pub mod gemm {
    const BM: u32 = 128; // rows of a tile, a warpgroup 64
    const BK: u32 = 64; // a row of the 128-byte swizzle
    const EDGE: u32 = 2147483520; // most of a dimension: coordinates of copies, at the end of a tile too, are s32
    const TILES: u32 = 2147483648; // most tiles: their number, and that of a tile a grid ahead, fit 32 bits
    const GROUP: u32 = 16; // rows of tiles that are walked through together: as many elements as 132 CTAs have columns then

    /// Row and column of a tile: column by column within GROUP rows.
    #[device]
    fn place(item: u32, rows: u32, columns: u32) -> (u32, u32) {
        let first = item / (GROUP * columns) * GROUP;
        let height = min(rows - first, GROUP);
        let rest = item % (GROUP * columns);
        (first + rest % height, rest / height)
    }

    /// `c[i, j] = act(sum_k a[i, k] b[j, k] + bias[j])`, act being the identity or SiLU: bf16 operands, f32 accumulation, one
    /// rounding to OUT. What lies outside the matrices is loaded as zeros and not stored.
    #[kernel(block = 320, grid = ctas, cluster = CTAS, min_blocks_per_sm = 1)]
    #[roles(math = 0..8, load = 8..9, store = 9..10)]
    #[variants((BN, STAGES, CTAS) in [(128, 6, 1), (256, 4, 1), (256, 4, 2)], OUT in [bf16, f32], SILU in [false, true])]
    #[requires(m > 0, n > 0, ctas > 0)]
    #[requires(m <= EDGE, n <= EDGE, k <= EDGE)]
    #[requires((m + BM * CTAS - 1) / (BM * CTAS) * ((n + BN - 1) / BN) <= TILES)]
    fn gemm_ws<const BN: u32, const STAGES: u32, const CTAS: u32, OUT: Elem, const SILU: bool>(
        #[dims(m, k)] a: TensorMap<bf16, Shape<BM, BK>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<{ BN / CTAS }, BK>, Swizzle<128>>,
        #[dims(n)] bias: Option<Global<f32>>,
        #[dims(m, n)] c: TensorMapMut<OUT, Shape<BM, { 128 / size_of::<OUT>() }>, Swizzle<128>>,
        ctas: u32, // of a persistent grid
    ) {
        const PART: u32 = 128 / size_of::<OUT>(); // columns that are stored at a time
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<BM, BK>, Swizzle<128>, STAGES>(),
            b: smem::<bf16, Shape<BN, BK>, Swizzle<128>, STAGES>(),
        };
        let results = Pipeline::<math, store> { c: smem::<OUT, Shape<BM, PART>, Swizzle<128>, 2>() };

        // The CTAs of a cluster take tiles one below the other, and load their columns of B together.
        let rows = (m + BM * CTAS - 1) / (BM * CTAS);
        let columns = (n + BN - 1) / BN;
        let steps = (k + BK - 1) / BK;

        #[role(load)]
        #[elect_one]
        for item in (ctaid.x / CTAS..rows * columns).step_by(ctas / CTAS) {
            let (row, column) = place(item, rows, columns);
            for step in 0..steps {
                let slot = ab.acquire();
                slot.a.tma_load(a, [(row * CTAS + cluster_rank) * BM, step * BK]);
                slot.b.tma_multicast(b, [column * BN, step * BK]);
                slot.commit();
            }
        }

        #[role(math)]
        for item in (ctaid.x / CTAS..rows * columns).step_by(ctas / CTAS) {
            let mut acc = Acc::<f32, BM, BN>::zero();
            for step in 0..steps {
                let slot = ab.wait();
                acc.mma(slot.a, slot.b);
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }
            let (_, column) = place(item, rows, columns);
            #[unroll]
            for part in 0..BN / PART {
                let result = results.acquire();
                let first = column * BN + part * PART;
                acc.columns(part * PART..part * PART + PART).for_each(|i, j, pair| {
                    let sum = from_fn::<2>(|e| pair[e] + bias.at([first + j + e]).load_if(first + j + e < n));
                    let active = from_fn::<2>(|e| if const { SILU } { math::silu(sum[e]) } else { sum[e] });
                    result.c.at([i, j]).store_v(OUT::rn(active));
                });
                result.commit();
            }
        }

        #[role(store)]
        #[elect_one]
        for item in (ctaid.x / CTAS..rows * columns).step_by(ctas / CTAS) {
            let (row, column) = place(item, rows, columns);
            #[unroll]
            for part in 0..BN / PART {
                let result = results.wait();
                tma::store(c, [(row * CTAS + cluster_rank) * BM, column * BN + part * PART], result.c);
                result.release();
            }
        }
    }
}
