//! z = x + y. Threads, bounds, guarded accesses.

/// The first rung: one element a thread.
#[kda_dsl::kernels(arch = sm_80)]
pub mod add {
    /// `z[i] = x[i] + y[i]`
    #[kernel(block = 256, grid = (n + 255) / 256)]
    fn add(#[dims(n)] x: Global<f32>, #[dims(n)] y: Global<f32>, #[dims(n)] z: GlobalMut<f32>) {
        let i = ctaid.x * 256 + tid;
        // The last CTA has threads past the end.
        let sum = x.at([i]).load_if(i < n) + y.at([i]).load_if(i < n);
        z.at([i]).store_if(i < n, sum);
    }
}
