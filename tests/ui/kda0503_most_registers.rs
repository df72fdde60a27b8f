//! More registers than a thread can have.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1, max_registers = 256)] //~ KDA0503
    fn k() {}
}

fn main() {}
