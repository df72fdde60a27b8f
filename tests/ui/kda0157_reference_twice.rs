//! One variable by reference twice.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[device]
    fn swap(a: &mut u32, b: &mut u32) {
        (a, b) = (b, a);
    }

    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let mut i = n;
        swap(&mut i, &mut i); //~ KDA0157
    }
}

fn main() {}
