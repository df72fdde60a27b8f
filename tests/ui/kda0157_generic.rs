//! A generic that follows from no argument.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[device]
    fn times<const N: u32>(i: u32) -> u32 {
        N * i
    }

    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let i = times(n); //~ KDA0157
    }
}

fn main() {}
