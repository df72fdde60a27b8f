//! An axis that sets nothing.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in [1, 2], BK in [64])] //~ KDA0213
    fn k<const T: u32>() {}
}

fn main() {}
