//! A step of zero.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        for i in (0..n).step_by(0) { //~ KDA0161
            y.at([i]).store(0.0);
        }
    }
}

fn main() {}
