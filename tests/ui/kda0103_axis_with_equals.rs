//! An axis is written with `in`.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T = [1, 2])] //~ KDA0103
    fn k<const T: u32>() {}
}

fn main() {}
