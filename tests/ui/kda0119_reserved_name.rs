//! Two underscores separate the variant.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 128, grid = 1)]
    fn k__fast() {} //~ KDA0119
}

fn main() {}
