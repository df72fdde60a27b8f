//! The condition of `while` only computes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let mut i = n;
        while { i += 1; i < 9 } {} //~ KDA0151
    }
}

fn main() {}
