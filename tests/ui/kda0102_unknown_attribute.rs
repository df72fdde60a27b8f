//! An attribute that the language does not have.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[inline] //~ KDA0102
    #[device]
    fn half(x: f32) -> f32 {
        x * 0.5
    }

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
