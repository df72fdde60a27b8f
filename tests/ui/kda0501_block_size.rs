//! A block of whole warps.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 100, grid = 1)] //~ KDA0501
    fn k() {}
}

fn main() {}
