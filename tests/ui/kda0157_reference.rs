//! A device function that changes its argument.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[device]
    fn next(i: &mut u32) {
        i += 1;
    }

    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let mut i = n;
        next(i); //~ KDA0157
    }
}

fn main() {}
