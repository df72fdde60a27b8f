//! A function that constants do not have.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const N: u32 = pow(2, 3); //~ KDA0207

    #[kernel(block = 64, grid = 1)]
    fn k() {}
}

fn main() {}
