//! A kernel returns nothing.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(n: u32) -> u32 { //~ KDA0108
        n
    }
}

fn main() {}
