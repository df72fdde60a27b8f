//! A generic that nothing sets.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in [1, 2])]
    fn k<const T: u32, const BK: u32>() {} //~ KDA0214
}

fn main() {}
