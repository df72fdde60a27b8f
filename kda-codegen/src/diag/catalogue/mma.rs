//! KDA09xx: matrix products.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        901,
        "shape of an accumulator",
        "A warpgroup computes 64 rows at once and 8 to 256 columns, a multiple of 8; a role of several warpgroups shares the rows.",
        "Use 64 rows for each warpgroup of the role, or a multiple of that.",
    ),
    entry(
        902,
        "operand of a product",
        "A product takes tiles of bf16 or f16 in shared memory, K contiguous, with a 128-byte swizzle; K advances by 16.",
        "Declare the buffer with `Swizzle<128>` and take slices of 16 along K: `tile.k_slice(16 * k)`.",
    ),
    entry(
        903,
        "accumulator in flight",
        "Products run until `wgmma::wait` has returned; until then their accumulators must not be touched.",
        "Write `wgmma::commit(); wgmma::wait::<0>();` before the accumulator is used.",
    ),
    entry(
        904,
        "products not committed",
        "`wgmma::wait` waits for committed groups; products that no commit has closed belong to none.",
        "Write `wgmma::commit();` behind the products.",
    ),
    entry(
        905,
        "products outside a warpgroup",
        "A product is executed by the four warps of an aligned warpgroup, together.",
        "Give the role whole warpgroups: warps 4, 8, 12 … at its ends, and no branch in which its threads differ.",
    ),
    entry(
        920,
        "accumulator in tensor memory",
        "An accumulator in tensor memory is a stage of a pipeline from the one thread that issues its products to the warpgroup that \
         reads it.",
        "Write `Pipeline::<mma, epilogue> { d: tmem::<f32, 128, N, STAGES>() }`; products and `commit` under `#[elect_one]`.",
    ),
    entry(
        921,
        "early return with tensor memory",
        "Tensor memory is freed at the end of the kernel; a CTA that leaves earlier would keep it from others for ever.",
        "Put the rest of the kernel under a condition instead of returning.",
    ),
];
