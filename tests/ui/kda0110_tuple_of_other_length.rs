//! As many names as types.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k((scale, roll): (f32, bool, u32)) {} //~ KDA0110
}

fn main() {}
