//! An index past the end of an array.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let values = [1.0, 2.0];
        y.at([tid]).store(values[2]); //~ KDA0154
    }
}

fn main() {}
