//! y = scale · x + mirror(x): the smallest kernel with an exchange through shared memory.

/// Each block of BLOCK elements adds its mirror image to itself, scaled.
#[kda_dsl::kernels(arch = sm_80)]
pub mod scale_add {
    /// `y[i] = scale * x[i] + x[j]`, where j is the mirror image of i in its block of BLOCK elements; elements past the
    /// end count as 0. One fma an element.
    #[kernel(block = BLOCK, grid = (n + BLOCK - 1) / BLOCK)]
    #[variants(BLOCK in [128, 256])]
    fn scale_add<const BLOCK: u32>(#[dims(n)] x: Global<f32>, #[dims(n)] y: GlobalMut<f32>, scale: f32) {
        let tile = smem::<f32, Shape<BLOCK>>();

        let i = ctaid.x * BLOCK + tid;
        let mine = x.at([i]).load_if(i < n);
        tile[[tid]] = mine;
        cta_sync();
        let mirror = tile[[BLOCK - 1 - tid]];
        y.at([i]).store_if(i < n, fma(scale, mine, mirror));
    }
}
