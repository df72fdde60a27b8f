//! The attribute belongs on a module.

#[kda_dsl::kernels(arch = sm_90)]
fn k() {} //~ KDA0114

fn main() {}
