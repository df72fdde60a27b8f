//! More than a thousand variants.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in 0..40, BK in 0..40)] //~ KDA0219
    fn k<const T: u32, const BK: u32>() {}
}

fn main() {}
