//! More shared memory than a CTA has.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        let first = smem::<f32, Shape<40000>>();
        let second = smem::<f32, Shape<40000>>(); //~ KDA0550
        first[[tid]] = 1.0;
        second[[tid]] = 2.0;
    }
}

fn main() {}
