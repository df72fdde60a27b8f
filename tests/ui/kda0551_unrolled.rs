//! Unrolled loops inside each other.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let mut z = n;
        #[unroll]
        for i in 0..1000 {
            #[unroll]
            for j in 0..4000 { //~ KDA0551
                z = z * 3 + j;
            }
        }
    }
}

fn main() {}
