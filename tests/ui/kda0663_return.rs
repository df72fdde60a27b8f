//! A return ahead of the wait for the predecessor.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] y: GlobalMut<f32>, n: u32) {
        if n > 64 {
            return; //~ KDA0663
        }
        pdl::wait();
        y.at([tid]).store(1.0);
    }
}

fn main() {}
