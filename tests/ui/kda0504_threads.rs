//! More threads than a multiprocessor has.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 1024, grid = 1, min_blocks_per_sm = 3)] //~ KDA0504
    fn k() {}
}

fn main() {}
