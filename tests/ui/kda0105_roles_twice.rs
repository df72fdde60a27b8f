//! An attribute that stands twice.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[roles(a = 0..1)]
    #[roles(b = 1..2)] //~ KDA0105
    fn k() {}
}

fn main() {}
