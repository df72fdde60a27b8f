//! A condition on something that no launch has.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[requires(n % 8 == 0, rows >= 1)] //~ KDA0220
    fn k(#[dims(n)] x: Global<f32>) {}
}

fn main() {}
