//! A grid has three axes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = [1, 2, 3, 4])] //~ KDA0120
    fn k() {}
}

fn main() {}
