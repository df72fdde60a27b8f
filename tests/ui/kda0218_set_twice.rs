//! Two axes set one generic.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[variants(N in [1, 2], N in [3, 4])] //~ KDA0218
    fn k<const N: u32>() {}
}

fn main() {}
