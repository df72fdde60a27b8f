//! A module without kernels.

#[kda_dsl::kernels(arch = sm_90)]
mod family { //~ KDA0118
    #[device]
    fn half(x: f32) -> f32 {
        x * 0.5
    }
}

fn main() {}
