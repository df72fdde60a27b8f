//! The ladder: eight small kernels, each one idea further. `docs/ladder.md` walks up.
//!
//! | rung | kernel | idea |
//! | --- | --- | --- |
//! | 1 | [`add`] | threads, bounds, guarded accesses |
//! | 2 | [`tile_copy`] | tiles by tensor map |
//! | 3 | [`ring_sum`] | a pipeline |
//! | 4 | [`role_silu`] | roles |
//! | 5 | [`product`] | products of warpgroups |
//! | 6 | [`chained_product`] | registers as operands |
//! | 7 | [`cluster_sum`] | a cluster |
//! | 8 | [`blackwell_product`] | tensor memory |

mod rung1_add;
mod rung2_tile_copy;
mod rung3_ring_sum;
mod rung4_role_silu;
mod rung5_product;
mod rung6_chained_product;
mod rung7_cluster_sum;
mod rung8_blackwell_product;

pub use rung1_add::add;
pub use rung2_tile_copy::tile_copy;
pub use rung3_ring_sum::ring_sum;
pub use rung4_role_silu::role_silu;
pub use rung5_product::product;
pub use rung6_chained_product::chained_product;
pub use rung7_cluster_sum::cluster_sum;
pub use rung8_blackwell_product::blackwell_product;

use kda_core::KernelDesc;

/// Every variant of every rung.
pub fn all() -> impl Iterator<Item = &'static KernelDesc> {
    [
        add::DESCS,
        tile_copy::DESCS,
        ring_sum::DESCS,
        role_silu::DESCS,
        product::DESCS,
        chained_product::DESCS,
        cluster_sum::DESCS,
        blackwell_product::DESCS,
    ]
    .into_iter()
    .flatten()
}
