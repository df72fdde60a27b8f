#[kda_dsl::kernels(arch = sm_90)]
pub mod family {
    #[kernel(block = 64, grid = n, min_blocks_per_sm = 2)]
    fn k(#[dims(n, 64)] y: GlobalMut<u32>, m: u32) {
        let row = smem::<u32, Shape<64>>();
        row[[tid]] = m;
        cta_sync();
        y.at([ctaid.x, tid]).store(row.remote(1)[[tid]]);
    }
}

fn main() {}
