//! An index past the end of an axis.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        y.at([64]).store(0.0); //~ KDA0154
    }
}

fn main() {}
