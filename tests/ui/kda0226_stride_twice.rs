//! One stride name for two axes.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(n:pitch, 4)] x: Global<f32>, #[dims(n:pitch, 4)] y: GlobalMut<f32>) {} //~ KDA0226
}

fn main() {}
