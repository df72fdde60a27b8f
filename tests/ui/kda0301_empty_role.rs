//! A role without warps.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[roles(load = 1..1)] //~ KDA0301
    fn k() {}
}

fn main() {}
