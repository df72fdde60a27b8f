//! An index past the end of a constant array.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const STRIDES: [u32; 2] = [8, 16];
    const LAST: u32 = STRIDES[2]; //~ KDA0209

    #[kernel(block = 64, grid = 1)]
    fn k() {}
}

fn main() {}
