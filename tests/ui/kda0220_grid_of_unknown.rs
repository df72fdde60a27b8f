//! A grid of something that no launch has.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = batch * 2)] //~ KDA0220
    fn k(#[dims(n)] x: Global<f32>) {}
}

fn main() {}
