//! More registers than a multiprocessor has.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 384, grid = 1)]
    #[roles(load = 0..4 (regs = 128), math = 4..12 (regs = 240))] //~ KDA0505
    fn k() {}
}

fn main() {}
