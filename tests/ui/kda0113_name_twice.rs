//! A generic with the name of a constant.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const SCALE: u32 = 1;

    #[kernel(block = 128, grid = 1)]
    #[variants(SCALE in [1, 2])]
    fn k<const SCALE: u32>() {} //~ KDA0113
}

fn main() {}
