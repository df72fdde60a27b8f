//! A rounding is written.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let z = x.at([tid]).load() as bf16; //~ KDA0150
        y.at([tid]).store(z as f32);
    }
}

fn main() {}
