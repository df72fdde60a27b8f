//! There is no arithmetic on bytes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let low = n as u8;
        let next = low + 1; //~ KDA0156
    }
}

fn main() {}
