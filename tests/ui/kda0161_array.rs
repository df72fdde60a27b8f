//! A loop over an array is unrolled.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        for z in [0.0, 1.0] { //~ KDA0161
            y.at([tid]).store(z);
        }
    }
}

fn main() {}
