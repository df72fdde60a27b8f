//! KDA08xx: bulk tensor copies.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        801,
        "axes of a tile",
        "A tensor map copies a box with the axes of its tensor, of which there are 1 to 5.",
        "Give the tile as many sizes as the tensor has axes; write 1 where it does not extend.",
    ),
    entry(
        802,
        "span of a swizzle",
        "The copy engine permutes 16-byte chunks within 32, 64 or 128 bytes, or not at all.",
        "Write `Swizzle<32>`, `Swizzle<64>` or `Swizzle<128>`, or leave the swizzle out.",
    ),
    entry(
        803,
        "size of a tile",
        "A box has 1 to 256 elements along each axis.",
        "Copy a larger tile in several parts.",
    ),
    entry(
        804,
        "row of a tile",
        "A row of a box is a multiple of 16 bytes and at most as wide as the swizzle's span; wider rows are cut into parts.",
        "Choose the innermost size so that a row is a multiple of 16 bytes and of the span.",
    ),
    entry(
        805,
        "buffer and tensor map do not fit",
        "The box of the map is laid out in shared memory as the buffer must be: element type, tile and swizzle are the same.",
        "Declare the buffer with the tile and the swizzle of the map.",
    ),
    entry(
        806,
        "form of a tensor map",
        "A tensor map names its element type, its tile and perhaps its swizzle.",
        "Write `TensorMap<bf16, Shape<128, 64>, Swizzle<128>>`.",
    ),
    entry(
        807,
        "innermost coordinate of a copy",
        "A box begins at a multiple of 16 bytes of a row; the hardware takes any other coordinate for an illegal instruction.",
        "Write the coordinate as a multiple, or require it of the launch with `#[requires(…)]`.",
    ),
    entry(
        820,
        "multicast of a tile",
        "Each CTA of the cluster loads a part of the tile into all of them: the box of the map is this part, whole patterns of 8 rows.",
        "Give the map the buffer's columns and swizzle, and its rows divided by the CTAs of the cluster.",
    ),
];
