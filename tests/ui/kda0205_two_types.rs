//! Conversions are written.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const A: u32 = 8;
    const B: u64 = 16;
    const SUM: u64 = A + B; //~ KDA0205

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
