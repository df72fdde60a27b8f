//! O = (Q · Kᵀ) · V with the product in the middle rounded to bf16: it never leaves the registers.

/// The sixth rung: an accumulator becomes the next product's operand.
#[kda_dsl::kernels(arch = sm_90a)]
pub mod chained_product {
    const ROWS: u32 = 128;
    const KEYS: u32 = 64;
    const DIM: u32 = 128;
    const STAGES: u32 = 3;

    /// `o[i, d] = sum_j bf16(sum_e q[i, e] k[j, e]) vt[d, j]`, accumulated in f32; keys in blocks of 64.
    #[kernel(block = 288, grid = rows / ROWS, min_blocks_per_sm = 1)]
    #[roles(math = 0..8, load = 8..9)]
    #[requires(rows % ROWS == 0, keys % KEYS == 0)]
    fn chained_product(
        #[dims(rows, DIM)] q: TensorMap<bf16, Shape<ROWS, DIM>, Swizzle<128>>,
        #[dims(keys, DIM)] k: TensorMap<bf16, Shape<KEYS, DIM>, Swizzle<128>>,
        #[dims(DIM, keys)] vt: TensorMap<bf16, Shape<DIM, KEYS>, Swizzle<128>>,
        #[dims(rows, DIM)] o: GlobalMut<f32>,
    ) {
        let queries = Pipeline::<load, math> { q: smem::<bf16, Shape<ROWS, DIM>, Swizzle<128>>() };
        let blocks = Pipeline::<load, math> {
            k: smem::<bf16, Shape<KEYS, DIM>, Swizzle<128>, STAGES>(),
            vt: smem::<bf16, Shape<DIM, KEYS>, Swizzle<128>, STAGES>(),
        };

        #[role(load)]
        #[elect_one]
        {
            let slot = queries.acquire();
            slot.q.tma_load(q, [ctaid.x * ROWS, 0]);
            slot.commit();
            for block in 0..keys / KEYS {
                let slot = blocks.acquire();
                slot.k.tma_load(k, [block * KEYS, 0]);
                slot.vt.tma_load(vt, [0, block * KEYS]);
                slot.commit();
            }
        }

        #[role(math)]
        {
            let mut sum = Acc::<f32, ROWS, DIM>::zero();
            let own = queries.wait();
            #[unroll(blocks)]
            for block in 0..keys / KEYS {
                let slot = blocks.wait();
                let mut scores = Acc::<f32, ROWS, KEYS>::zero();
                #[unroll]
                for i in 0..DIM / 16 {
                    scores.mma(own.q.k_slice(16 * i), slot.k.k_slice(16 * i));
                }
                wgmma::commit();
                wgmma::wait::<0>();
                let weights = scores.as_a::<bf16>();
                #[unroll]
                for i in 0..KEYS / 16 {
                    sum.mma(weights.k_slice(16 * i), slot.vt.k_slice(16 * i));
                }
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }
            own.release();
            sum.for_each(|row, column, pair| o.at([ctaid.x * ROWS + row, column]).store_v(pair));
        }
    }
}
