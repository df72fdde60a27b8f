//! A block of a matrix is no single run.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let tile = smem::<f32, Shape<8, 8>>();
        bulk::store(y.at([0..16]), tile.at([0..4, 0..4])); //~ KDA0453
    }
}

fn main() {}
