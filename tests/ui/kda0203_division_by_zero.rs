//! One variant divides by zero; the error names it.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 128 / (T - 1))] //~ KDA0203
    #[variants(T in 1..=4)]
    fn k<const T: u32>() {}
}

fn main() {}
