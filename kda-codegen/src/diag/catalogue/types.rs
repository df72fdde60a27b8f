//! KDA04xx: layouts and types.

use super::{Entry, entry};

/// Entries in the order of their codes.
pub const ENTRIES: &[Entry] = &[
    entry(
        401,
        "type that a scalar parameter cannot have",
        "Scalars are passed as bool, u32, i32, u64, i64 or f32.",
        "Take one of these and convert in the kernel.",
    ),
    entry(
        402,
        "not an element type",
        "The element of a tensor is an integer or floating-point type, or a generic `OUT: Elem` that the variants set.",
        "Write the type, or declare the generic.",
    ),
    entry(
        403,
        "wrong number of axes",
        "A tensor has one to six axes.",
        "Join axes that are dense, or index them in the kernel.",
    ),
];
