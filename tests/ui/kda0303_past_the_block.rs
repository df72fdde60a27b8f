//! More warps than the block has.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[roles(load = 0..2, math = 2..6)] //~ KDA0303
    fn k() {}
}

fn main() {}
