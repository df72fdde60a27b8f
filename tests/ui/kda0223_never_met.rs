//! A variant that no launch can have; the error names it.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(BK in [64, 96])]
    #[requires(128 % BK == 0, n >= 1)] //~ KDA0223
    fn k<const BK: u32>(#[dims(n)] x: Global<f32>) {}
}

fn main() {}
