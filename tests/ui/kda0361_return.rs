//! A CTA leaves its cluster.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = n, cluster = 2)]
    fn k(#[dims(n, 64)] y: GlobalMut<u32>, m: u32) {
        let row = smem::<u32, Shape<64>>();
        row[[tid]] = m;
        cluster_sync();
        if m == 0 {
            return; //~ KDA0361
        }
        y.at([ctaid.x, tid]).store(row.remote(1)[[tid]]);
    }
}

fn main() {}
