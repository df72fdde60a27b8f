//! An atomic that the element type does not have.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let old = y.at([0]).inc_wrap(3, RELAXED); //~ KDA0156
    }
}

fn main() {}
