//! Sums of rows: copies run ahead of the threads that read, as far as the ring is deep.

/// The third rung: the same threads fill a ring of stages and empty it.
#[kda_dsl::kernels(arch = sm_90)]
pub mod ring_sum {
    const ROWS: u32 = 128;
    const COLUMNS: u32 = 32;

    /// Adds what this thread's row of a tile holds, in order.
    #[device]
    fn add_row(sum: &mut f32, tile: Tile<f32>) {
        #[unroll]
        for chunk in 0..COLUMNS / 4 {
            let four = tile.at([tid, 4 * chunk]).load_v::<4>();
            #[unroll]
            for i in 0..4 {
                sum += four[i];
            }
        }
    }

    /// `y[i] = sum over j of x[i, j]`, one row a thread, columns in order.
    #[kernel(block = ROWS, grid = m / ROWS)]
    #[variants(STAGES in [4])]
    #[requires(m % ROWS == 0, n % COLUMNS == 0, n >= STAGES * COLUMNS)]
    fn ring_sum<const STAGES: u32>(
        #[dims(m, n)] x: TensorMap<f32, Shape<ROWS, COLUMNS>, Swizzle<128>>,
        #[dims(m)] y: GlobalMut<f32>,
    ) {
        let ring = Pipeline::cta { x: smem::<f32, Shape<ROWS, COLUMNS>, Swizzle<128>, STAGES>() };
        let mut sum = 0.0;

        #[unroll]
        for stage in 0..STAGES {
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.x.tma_load(x, [ctaid.x * ROWS, stage * COLUMNS]);
                slot.commit();
            }
        }
        #[unroll(ring)]
        for tile in 0..n / COLUMNS - STAGES {
            let slot = ring.wait();
            add_row(&mut sum, slot.x);
            slot.release();
            // The stage is free once every warp has released it.
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.x.tma_load(x, [ctaid.x * ROWS, (tile + STAGES) * COLUMNS]);
                slot.commit();
            }
        }
        for _ in 0..STAGES {
            let slot = ring.wait();
            add_row(&mut sum, slot.x);
            slot.release();
        }
        y.at([ctaid.x * ROWS + tid]).store(sum);
    }
}
