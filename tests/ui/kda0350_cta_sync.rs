//! A barrier in a loop whose trips differ.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        for i in 0..tid {
            cta_sync(); //~ KDA0350
        }
    }
}

fn main() {}
