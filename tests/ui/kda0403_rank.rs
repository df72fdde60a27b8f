//! Seven axes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(#[dims(1, 2, 3, 4, 5, 6, 7)] x: Global<f32>) {} //~ KDA0403
}

fn main() {}
