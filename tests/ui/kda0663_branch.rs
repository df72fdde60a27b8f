//! A wait for the predecessor in one branch.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] y: GlobalMut<f32>, n: u32) {
        if n > 0 {
            pdl::wait(); //~ KDA0663
            y.at([tid]).store(1.0);
        }
    }
}

fn main() {}
