//! Libraries are named in the attribute.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    use std::cmp::min; //~ KDA0115

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
