//! A generic type is an element type.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    #[variants(T in [f32])]
    fn k<T: Copy>() {} //~ KDA0109
}

fn main() {}
