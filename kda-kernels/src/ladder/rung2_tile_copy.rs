//! y = xᵀ, by tiles that the copy engine moves.

/// The second rung: one thread copies a tile in and a tile out; all threads turn it in between.
#[kda_dsl::kernels(arch = sm_90)]
pub mod tile_copy {
    const TILE: u32 = 32;

    /// `y[j, i] = x[i, j]`
    #[kernel(block = 256, grid = [(n + TILE - 1) / TILE, (m + TILE - 1) / TILE])]
    fn transpose(
        #[dims(m, n)] x: TensorMap<f32, Shape<TILE, TILE>, Swizzle<128>>,
        #[dims(n, m)] y: TensorMapMut<f32, Shape<TILE, TILE>, Swizzle<128>>,
    ) {
        // A ring of one stage: full when the copy has landed.
        let tiles = Pipeline::cta { x: smem::<f32, Shape<TILE, TILE>, Swizzle<128>>() };
        let turned = smem::<f32, Shape<TILE, TILE>, Swizzle<128>>();

        #[elect_one]
        {
            let slot = tiles.acquire();
            slot.x.tma_load(x, [ctaid.y * TILE, ctaid.x * TILE]);
            slot.commit();
        }
        let slot = tiles.wait();
        #[unroll]
        for i in 0..TILE / 8 {
            let row = 8 * i + warp;
            turned[[lane, row]] = slot.x[[row, lane]];
        }
        slot.release();

        // What lies outside the tensor is 0 on the way in and dropped on the way out.
        cta_sync();
        #[elect_one]
        {
            tma::store(y, [ctaid.x * TILE, ctaid.y * TILE], turned);
            bulk::commit();
            bulk::wait_read::<0>();
        }
    }
}
