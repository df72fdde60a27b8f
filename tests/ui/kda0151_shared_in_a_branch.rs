//! Shared buffers are declared outside runtime branches.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        if tid < 5 {
            let tile = smem::<f32, Shape<64>>(); //~ KDA0151
        }
    }
}

fn main() {}
