//! The launcher does not shift.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = n >> 7)] //~ KDA0221
    fn k(#[dims(n)] x: Global<f32>) {}
}

fn main() {}
