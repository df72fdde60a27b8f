//! A type that is not passed.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(scale: f16) {} //~ KDA0401
}

fn main() {}
