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
    entry(
        450,
        "vector access that is not provably aligned",
        "A vector load or store needs an address that is a multiple of its size. It is proved from the shape, the strides \
         and the conditions of `#[requires]`, and not assumed.",
        "Name the stride in `#[dims]` and demand its divisibility: `#[requires(pitch % 8 == 0)]`.",
    ),
    entry(
        451,
        "impossible vector access",
        "A vector has 2, 4 or 8 elements of at most 16 bytes in all, and the value must have as many.",
        "Choose such a width: `load_v::<4>()`.",
    ),
    entry(
        452,
        "more indices than axes",
        "The list of indices is longer than the shape that it indexes.",
        "Give at most one index an axis.",
    ),
    entry(
        453,
        "copy or cast between different layouts",
        "A bulk copy moves whole multiples of 16 bytes between views of the same elements; a cast reads a whole buffer.",
        "Slice both views alike.",
    ),
    entry(
        454,
        "store through a read-only parameter",
        "The parameter is declared `Global`, which is only read.",
        "Declare it `GlobalMut<T>`.",
    ),
    entry(
        455,
        "open axes where one element is needed",
        "A load or store of elements needs an index for every axis.",
        "Complete the list of `.at([…])`.",
    ),
    entry(
        460,
        "shared memory of another CTA",
        "CTAs reach each other's shared memory within a cluster, with loads, stores and atomics of elements, and vectors.",
        "Declare the cluster: `#[kernel(…, cluster = 2)]`; copy by bulk in the CTA that owns the memory.",
    ),
];
