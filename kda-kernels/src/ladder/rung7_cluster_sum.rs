//! Sums of long rows: the CTAs of a cluster share a row, and add up in each other's shared memory.

/// The seventh rung: one sum of many CTAs, without global memory in between.
#[kda_dsl::kernels(arch = sm_90)]
pub mod cluster_sum {
    const THREADS: u32 = 256;
    const WARPS: u32 = THREADS / 32;

    /// `y[i] = sum over j of x[i, j]`; CTA r of a cluster takes the r-th part of the row, and CTA 0 adds the parts in order.
    #[kernel(block = THREADS, grid = [CTAS, rows], cluster = CTAS)]
    #[variants(CTAS in [2, 8])]
    #[requires(n % (4 * CTAS) == 0, pitch % 4 == 0)]
    fn cluster_sum<const CTAS: u32>(#[dims(rows:pitch, n)] x: Global<f32>, #[dims(rows)] y: GlobalMut<f32>) {
        let by_warp = smem::<f32, Shape<WARPS>>();
        let parts = smem::<f32, Shape<CTAS>>();

        let count = n / CTAS;
        let mine = x.at([ctaid.y, cluster_rank * count..]);
        let mut sum = 0.0;
        for i in (4 * tid..count).step_by(4 * THREADS) {
            let four = mine.at([i]).load_v::<4>();
            sum += (four[0] + four[1]) + (four[2] + four[3]);
        }
        #[unroll]
        for step in [16, 8, 4, 2, 1] {
            sum += shfl_xor(sum, step);
        }
        by_warp.at([warp]).store_if(lane == 0, sum);

        // All CTAs of the cluster run, and their warps have stored.
        cluster_sync();
        if tid == 0 {
            let mut part = 0.0;
            #[unroll]
            for i in 0..WARPS {
                part += by_warp[[i]];
            }
            parts.at([cluster_rank]).remote(0).store(part);
        }
        cluster_sync();
        if cluster_rank == 0 && tid == 0 {
            let mut total = 0.0;
            #[unroll]
            for i in 0..CTAS {
                total += parts[[i]];
            }
            y.at([ctaid.y]).store(total);
        }
    }
}
