//! A library constant without a value: one error for two kernels, at its place in the library.

mod device {
    #[kda_dsl::device_lib]
    pub mod math {
        const LANES: u32 = 32;
        const GROUPS: u32 = LANES / (LANES - 32); //~ KDA0203
    }
}

#[kda_dsl::kernels(arch = sm_90, uses = [crate::device::math])]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k() {}

    #[kernel(block = 128, grid = 1)]
    fn l() {}
}

fn main() {}
