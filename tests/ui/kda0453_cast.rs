//! A cast of a part of a buffer.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let tile = smem::<f32, Shape<8, 8>>();
        let words = tile.at([1]).cast::<u32>(); //~ KDA0453
    }
}

fn main() {}
