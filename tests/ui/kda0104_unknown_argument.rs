//! A misspelt argument is one error, not also a missing one.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(blok = 128, grid = 1)] //~ KDA0104
    fn k() {}
}

fn main() {}
