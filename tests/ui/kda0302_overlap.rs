//! A warp has one role.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[roles(load = 0..2, math = 1..4)] //~ KDA0302
    fn k() {}
}

fn main() {}
