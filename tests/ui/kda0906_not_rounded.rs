//! A product of operands that are not rounded.

#[kda_dsl::kernels(arch = sm_80)]
mod family {
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(16, 16)] a: Global<f32>, #[dims(16, 16)] c: GlobalMut<f32>) {
        let f = Frag::<f32, 16, 16>::load(a);
        let mut sum = Frag::<f32, 16, 16>::zero();
        sum.mma(f, f); //~ KDA0906
        sum.store(c);
    }
}

fn main() {}
