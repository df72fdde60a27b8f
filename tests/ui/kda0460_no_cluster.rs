//! Shared memory of another CTA, without a cluster.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = n)]
    fn k(#[dims(n, 64)] y: GlobalMut<u32>, m: u32) {
        let row = smem::<u32, Shape<64>>();
        row[[tid]] = m;
        cta_sync();
        y.at([ctaid.x, tid]).store(row.remote(1)[[tid]]); //~ KDA0460
    }
}

fn main() {}
