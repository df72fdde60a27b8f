//! Not a constant expression.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const N: u32 = loop {}; //~ KDA0206

    #[kernel(block = 64, grid = 1)]
    fn k() {}
}

fn main() {}
