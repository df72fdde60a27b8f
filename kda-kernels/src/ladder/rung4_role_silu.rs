//! y = silu(x): one warp loads, four compute, one stores, and tiles go from hand to hand.

/// The fourth rung: each role runs its own program; pipelines join them.
#[kda_dsl::kernels(arch = sm_90)]
pub mod role_silu {
    const ROWS: u32 = 128;
    const COLUMNS: u32 = 32;
    const STAGES: u32 = 3;
    const LOG2_E: f32 = 1.442_695_04;

    /// `y[i, j] = x[i, j] / (1 + exp(-x[i, j]))`, 2^x and 1/x as the hardware approximates them.
    #[kernel(block = 192, grid = m / ROWS)]
    #[roles(math = 0..4, load = 4..5, store = 5..6)]
    #[requires(m % ROWS == 0, n % COLUMNS == 0)]
    fn role_silu(
        #[dims(m, n)] x: TensorMap<f32, Shape<ROWS, COLUMNS>, Swizzle<128>>,
        #[dims(m, n)] y: TensorMapMut<f32, Shape<ROWS, COLUMNS>, Swizzle<128>>,
    ) {
        let inputs = Pipeline::<load, math> { x: smem::<f32, Shape<ROWS, COLUMNS>, Swizzle<128>, STAGES>() };
        let outputs = Pipeline::<math, store> { y: smem::<f32, Shape<ROWS, COLUMNS>, Swizzle<128>, STAGES>() };

        #[role(load)]
        #[elect_one]
        for tile in 0..n / COLUMNS {
            let slot = inputs.acquire();
            slot.x.tma_load(x, [ctaid.x * ROWS, tile * COLUMNS]);
            slot.commit();
        }

        #[role(math)]
        for _ in 0..n / COLUMNS {
            let input = inputs.wait();
            let output = outputs.acquire();
            #[unroll]
            for i in 0..COLUMNS / 4 {
                let four = input.x.at([tid, 4 * i]).load_v::<4>();
                output.y.at([tid, 4 * i]).store_v(four.map(|e| e * rcp_approx(1.0 + ex2_approx(-LOG2_E * e))));
            }
            input.release();
            output.commit();
        }

        #[role(store)]
        #[elect_one]
        for tile in 0..n / COLUMNS {
            let slot = outputs.wait();
            tma::store(y, [ctaid.x * ROWS, tile * COLUMNS], slot.y);
            // Closes the group of copies, and gives the stage back when its tile has been read.
            slot.release();
        }
    }
}
