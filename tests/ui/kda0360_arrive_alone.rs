//! Half a cluster barrier.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = n, cluster = 2)]
    fn k(#[dims(n, 64)] y: GlobalMut<u32>, m: u32) {
        y.at([ctaid.x, tid]).store(m);
        cluster_arrive(); //~ KDA0360
    }
}

fn main() {}
