//! A vector of three.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let z = x.at([0]).load_v::<3>(); //~ KDA0451
    }
}

fn main() {}
