//! A slice past the end of a buffer.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let tile = smem::<f32, Shape<8, 8>>();
        let part = tile.at([0, 4..12]); //~ KDA0154
    }
}

fn main() {}
