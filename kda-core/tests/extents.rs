//! How many bytes a tensor spans, for any sizes and strides.

use kda_core::{Elem, TensorArg};

fn extent(shape: &[u64], strides: &[u64]) -> u128 {
    TensorArg::strided(256, 0, Elem::F64, shape, strides).expect("a rank that is possible").extent_bytes()
}

#[test]
fn extents_count_to_the_end_of_the_last_element() {
    assert_eq!(extent(&[], &[]), 8);
    assert_eq!(extent(&[3, 4], &[10, 2]), 8 * (2 * 10 + 3 * 2 + 1));
    assert_eq!(extent(&[3, 0], &[u64::MAX, u64::MAX]), 0);
    assert_eq!(extent(&[2], &[u64::MAX]), 8 << 64);
}

/// Never a small number that wrapped: a tensor that no memory holds must not seem to fit.
#[test]
fn extents_past_128_bits_are_the_largest() {
    for axes in 1..=6 {
        for size in [1 << 62, u64::MAX] {
            for stride in [1 << 62, u64::MAX] {
                let extent = extent(&vec![size; axes], &vec![stride; axes]);
                assert!(extent > 1 << 123, "{axes} axes of {size}, {stride} apart: {extent}");
            }
        }
    }
    assert_eq!(extent(&[u64::MAX; 6], &[u64::MAX; 6]), u128::MAX);
}
