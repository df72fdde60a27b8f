//! Code behind `return`.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        if n == 0 {
            return;
            y.at([0]).store(0.0); //~ KDA0166
        }
    }
}

fn main() {}
