//! Registers are set for four warps at once.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[roles(load = 0..2 (regs = 40), math = 2..4)] //~ KDA0304
    fn k() {}
}

fn main() {}
