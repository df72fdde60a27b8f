//! Bulk copies on an older architecture.

#[kda_dsl::kernels(arch = sm_80)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) { //~ KDA1050
        let tile = smem::<f32, Shape<64>>();
        bulk::store(y, tile);
    }
}

fn main() {}
