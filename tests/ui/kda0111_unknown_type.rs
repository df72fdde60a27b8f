//! Parameters are tensors and scalars.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(x: &[f32]) {} //~ KDA0111
}

fn main() {}
