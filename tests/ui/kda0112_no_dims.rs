//! A tensor says its shape.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(x: Global<f32>) {} //~ KDA0112
}

fn main() {}
