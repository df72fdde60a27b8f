//! A macro sees items before they are configured.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[cfg(debug_assertions)] //~ KDA0102
    const K: u32 = 1;

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
