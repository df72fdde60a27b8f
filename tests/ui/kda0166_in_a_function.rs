//! A `return` in a device function.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[device]
    fn next(i: u32) -> u32 {
        return i + 1; //~ KDA0166
    }

    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let i = next(n);
    }
}

fn main() {}
