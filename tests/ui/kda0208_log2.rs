//! `log2` is exact.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const LANES: u32 = 24;
    const STEPS: u32 = log2(LANES); //~ KDA0208

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
