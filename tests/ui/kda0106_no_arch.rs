//! Every kernel module names its architecture.

#[kda_dsl::kernels()] //~ KDA0106
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
