//! A role is a range of warps.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[roles(load = 0..2, math = 4)] //~ KDA0103
    fn k() {}
}

fn main() {}
