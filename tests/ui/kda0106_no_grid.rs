//! A kernel names its grid.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128)] //~ KDA0106
    fn k() {}
}

fn main() {}
