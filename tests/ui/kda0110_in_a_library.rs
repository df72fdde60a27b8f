//! An error of a library is reported once, in the library.

mod device {
    #[kda_dsl::device_lib]
    pub mod math {
        fn half(x: &f32) -> f32 { //~ KDA0110
            x * 0.5
        }
    }
}

#[kda_dsl::kernels(arch = sm_90, uses = [crate::device::math])]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
