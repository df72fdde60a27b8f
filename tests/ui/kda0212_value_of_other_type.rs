//! A value that its generic cannot have.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in [1, bf16])] //~ KDA0212
    fn k<const T: u32>() {}
}

fn main() {}
