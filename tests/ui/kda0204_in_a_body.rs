//! A constant below zero.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        const FIRST: u32 = 3;
        let i = tid * (FIRST - 4); //~ KDA0204
    }
}

fn main() {}
