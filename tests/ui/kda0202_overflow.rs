//! Constants never wrap.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    const ROWS: u32 = 1 << 20;
    const BYTES: u32 = ROWS * 65_536; //~ KDA0202

    #[kernel(block = 128, grid = 1)]
    fn k() {}
}

fn main() {}
