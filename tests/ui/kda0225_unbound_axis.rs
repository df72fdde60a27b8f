//! A name that nothing gives a value.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(#[dims(heads * 128)] x: Global<f32>) {} //~ KDA0225
}

fn main() {}
