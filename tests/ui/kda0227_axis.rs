//! An axis that is too long.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(n, 1 << 40)] x: Global<f32>) {} //~ KDA0227
}

fn main() {}
