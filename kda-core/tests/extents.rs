//! How many bytes a tensor spans, and whether elements share addresses, for any sizes and strides.

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

/// Every element's address, in elements.
fn addresses(shape: &[u64], strides: &[u64]) -> Vec<u64> {
    shape.iter().zip(strides).fold(vec![0], |all, (size, stride)| {
        all.iter().flat_map(|at| (0..*size).map(move |step| at + step * stride)).collect()
    })
}

#[test]
fn elements_that_share_an_address_are_an_overlap() {
    let (mut apart, mut shared) = (0, 0);
    for number in 0u64..5 * 5 * 5 * 9 * 9 * 9 {
        let digit = |place: u64, base: u64| number / place % base;
        let shape = [digit(1, 5), digit(5, 5), digit(25, 5)];
        let strides = [digit(125, 9), digit(125 * 9, 9), digit(125 * 81, 9)];
        let tensor = TensorArg::strided(256, 0, Elem::F64, &shape, &strides).expect("three axes");
        let mut all = addresses(&shape, &strides);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        match tensor.overlap() {
            None => {
                assert_eq!(all.len(), count, "{tensor:?}");
                apart += 1;
            }
            Some((axis, span)) => {
                assert!(shape[axis] > 1 && u128::from(strides[axis]) < span, "{tensor:?}: axis {axis}, {span}");
                shared += usize::from(all.len() < count);
            }
        }
    }
    assert!(apart > 1000 && shared > 1000, "{apart} without, {shared} with");
}

/// Dense tensors with their axes in any order, and with gaps, have none; what an axis needs is what the others span.
#[test]
fn nested_axes_do_not_overlap() {
    let overlap = |shape: &[u64], strides: &[u64]| {
        TensorArg::strided(256, 0, Elem::F64, shape, strides).expect("a tensor").overlap()
    };
    assert_eq!(overlap(&[], &[]), None);
    assert_eq!(overlap(&[3, 4, 5], &[20, 5, 1]), None);
    assert_eq!(overlap(&[3, 4, 5], &[1, 3, 12]), None);
    assert_eq!(overlap(&[3, 1, 5], &[8, 0, 1]), None);
    assert_eq!(overlap(&[3, 5], &[4, 1]), Some((0, 5)));
    assert_eq!(overlap(&[3, 5], &[0, 1]), Some((0, 5)));
    assert_eq!(overlap(&[3, 5], &[1, 1]), Some((0, 5)));
    assert_eq!(overlap(&[0, 5], &[0, 0]), None);
    assert_eq!(
        overlap(&[u64::MAX; 3], &[1, u64::MAX, u64::MAX]),
        Some((1, u64::MAX as u128 * (u64::MAX as u128 - 1) + u64::MAX as u128))
    );
}
