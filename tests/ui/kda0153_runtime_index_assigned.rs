//! Nor when it is written.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let mut values = [0.0; 4];
        values[tid % 4] = 1.0; //~ KDA0153
    }
}

fn main() {}
