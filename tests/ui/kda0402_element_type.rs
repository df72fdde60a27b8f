//! An element type that does not exist.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(#[dims(n)] x: Global<f31>) {} //~ KDA0402
}

fn main() {}
