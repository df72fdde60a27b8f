//! Unrolling needs a trip count.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        #[unroll]
        for i in 0..n { //~ KDA0161
            y.at([i]).store(0.0);
        }
    }
}

fn main() {}
