//! A row that lacks a value.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants((T, BK) in [(1, 64), (2,)])] //~ KDA0217
    fn k<const T: u32, const BK: u32>() {}
}

fn main() {}
