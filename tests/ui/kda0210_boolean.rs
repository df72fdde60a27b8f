//! A boolean where a number is needed.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = true, grid = 1)] //~ KDA0210
    fn k() {}
}

fn main() {}
