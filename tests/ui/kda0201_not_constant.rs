//! `skip_if` is decided while compiling.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in [1, 2], skip_if(tokens > T))] //~ KDA0201
    fn k<const T: u32>(tokens: u32) {}
}

fn main() {}
