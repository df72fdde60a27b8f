//! A negative size.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const A: u32 = 8;
    const B: u32 = 16;
    const REST: u32 = A - B; //~ KDA0204

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
