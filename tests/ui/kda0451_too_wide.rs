//! A vector of 32 bytes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let tile = smem::<f32, Shape<64>>();
        let z = tile.at([0]).load_v::<8>(); //~ KDA0451
    }
}

fn main() {}
