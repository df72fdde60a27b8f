//! Constants that need each other.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const A: u32 = B + 1; //~ KDA0211
    const B: u32 = A + 1;

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
