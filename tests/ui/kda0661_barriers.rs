//! Two roles meet at two barriers in opposite order.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[roles(load = 0..1, math = 1..2)]
    fn k(#[dims(64)] x: Global<f32>) {
        let full = NamedBarrier { between: (load, math) };
        let empty = NamedBarrier { between: (load, math) };
        #[role(load)]
        {
            full.sync(); //~ KDA0661
            empty.sync();
        }
        #[role(math)]
        {
            empty.sync();
            full.sync();
        }
    }
}

fn main() {}
