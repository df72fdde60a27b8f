//! A bulk copy from within 16 bytes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let tile = smem::<f32, Shape<64>>();
        bulk::store(y.at([0..8]), tile.at([1..9])); //~ KDA0450
    }
}

fn main() {}
