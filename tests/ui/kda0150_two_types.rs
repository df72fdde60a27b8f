//! An index of one type and an offset of another.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let i = tid as i32 + n; //~ KDA0150
        y.at([i]).store(0.0);
    }
}

fn main() {}
