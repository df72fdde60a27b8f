//! A closure of two parameters.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let z = from_fn::<4>(|i, j| i); //~ KDA0168
    }
}

fn main() {}
