//! KDA09xx: matrix products.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        901,
        "shape of an accumulator",
        "A warpgroup computes 64 rows at once and 8 to 256 columns, a multiple of 8; a role of several warpgroups shares the rows. Each 64 rows take a register of a thread for every two columns, and a thread has 255.",
        "Use 64 rows for each warpgroup of the role, or a multiple of that; share more among more warpgroups.",
    ),
    entry(
        902,
        "operand of a product",
        "A product takes A `[M, K]` and B `[N, K]` of bf16, f16, or f32 rounded to tf32, in tiles with a swizzle of 128, 64 or 32 bytes; A also in registers. Tiles of 16-bit elements may lie the other way: `tile.t()`. K is a multiple of 16, of 8 for f32. A part of a tile begins where a descriptor can point: at a row that is a multiple of 8 and, along K, a column that is a multiple of 16; across K, at a multiple of the swizzle's span. Between registers and tiles move whole pieces of 16 x 16 elements of bf16 or f16.",
        "Declare the buffer with a swizzle, write `tile.t()` for a tile of `[K, N]`, and take parts of 16: `tile.k_slice(16 * k)`, `tile.rows(0..64)`, `tile.columns(0..64)`.",
    ),
    entry(
        903,
        "accumulator in flight",
        "Products run until `wgmma::wait` has returned; until then the columns that they write must not be touched. Both sides of a runtime branch leave the same products in flight, and none is in flight where a runtime loop begins or goes round, or where the role ends.",
        "Write `wgmma::commit(); wgmma::wait::<0>();` before the accumulator is used, and keep commits and waits out of runtime branches.",
    ),
    entry(
        904,
        "products not committed",
        "`wgmma::wait` waits for committed groups; products that no commit has closed belong to none. A group is opened and closed on the same side of a runtime branch.",
        "Write `wgmma::commit();` behind the products.",
    ),
    entry(
        905,
        "products outside a warpgroup",
        "A product, a commit and a wait are executed by the four warps of an aligned warpgroup, together.",
        "Give the role whole warpgroups: warps 4, 8, 12 … at its ends. Branches and loops around products depend on values that are the same in the warpgroup, such as `warp / 4`, `ctaid.x` and parameters, not on `warp`, `lane` or `tid`.",
    ),
    entry(
        906,
        "fragment that cannot be",
        "A fragment has multiples of 8 rows and columns, of f32, tf32, bf16 or f16. Products take operands of one rounded type \
         and add to f32; memory holds what the fragment holds.",
        "Round before products, `x.round::<bf16>()`; load and store the type of the view.",
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
