//! A function that calls itself.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[device]
    fn count(i: u32) -> u32 {
        count(i) + 1 //~ KDA0165
    }

    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let i = count(n);
    }
}

fn main() {}
