//! A named stride is no scalar.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(#[dims(n:pitch, d)] x: Global<f32>, pitch: u64) {} //~ KDA0224
}

fn main() {}
