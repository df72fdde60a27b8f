//! An architecture that PTX does not have.

#[kda_dsl::kernels(arch = [sm_90, hopper])] //~ KDA0116
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
