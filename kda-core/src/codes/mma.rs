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
        906,
        "fragment that cannot be",
        "A fragment has multiples of 8 rows and columns, of f32, tf32, bf16 or f16. Products take operands of one rounded type \
         and add to f32; memory holds what the fragment holds.",
        "Round before products, `x.round::<bf16>()`; load and store the type of the view.",
    ),
];
