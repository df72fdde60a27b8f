//! Nothing is left.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in [1, 2], skip_if(T > 0))] //~ KDA0216
    fn k<const T: u32>() {}
}

fn main() {}
