//! A library is named by the path of its module.

#[kda_dsl::kernels(arch = sm_90, uses = ["device/math.rs"])] //~ KDA0117
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
