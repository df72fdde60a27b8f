//! Functions say what they are.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    fn half(x: f32) -> f32 { //~ KDA0107
        x * 0.5
    }

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
