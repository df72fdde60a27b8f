//! A register count that `setmaxnreg` cannot set.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 256, grid = 1)]
    #[roles(load = 0..4 (regs = 33), math = 4..8 (regs = 240))] //~ KDA0502
    fn k() {}
}

fn main() {}
