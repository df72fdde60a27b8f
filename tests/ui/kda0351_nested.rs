//! A role inside a role.

#[kda_dsl::kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[roles(load = 0..1, math = 1..2)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>, n: u32) {
        #[role(load)]
        {
            #[role(math)] //~ KDA0351
            {}
        }
    }
}

fn main() {}
