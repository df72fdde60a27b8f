//! A number is no condition.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[requires(n)] //~ KDA0222
    fn k(#[dims(n)] x: Global<f32>) {}
}

fn main() {}
