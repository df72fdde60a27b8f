//! What stands after the `;` of `#[dims]`.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k(#[dims(n; zeroed)] x: Global<f32>) {} //~ KDA0104
}

fn main() {}
