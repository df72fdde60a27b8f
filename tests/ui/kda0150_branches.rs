//! Branches of two types.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let z = if tid < n { 1.5 } else { tid }; //~ KDA0150
    }
}

fn main() {}
