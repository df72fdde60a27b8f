//! What a launch refuses of tensors behind tensor maps: the copy engine would refuse them too, or write where it must not.

use kda::core::{Elem, LaunchError, PreparedLaunch, TensorArg};
use kda_kernels::gemm::{GemmWsArgs, GemmWsVariant};

/// Any address that is a multiple of 256.
const AT: u64 = 1 << 20;

fn matrix(elem: Elem, [rows, columns, pitch]: [u64; 3]) -> TensorArg {
    let bytes = u64::from(elem.bytes()) * (rows * pitch + columns);
    TensorArg::strided(AT, bytes, elem, &[rows, columns], &[pitch, 1]).expect("a matrix")
}

/// Matrices of the sizes M, N and K, and C of that pitch.
fn product(variant: GemmWsVariant, [m, n, k]: [u64; 3], pitch: u64, ctas: u32) -> Result<PreparedLaunch, LaunchError> {
    let operand = |rows| matrix(Elem::BF16, [rows, k, k.next_multiple_of(8)]);
    let c = matrix(variant.out(), [m, n, pitch]);
    GemmWsArgs { a: operand(m), b: operand(n), bias: None, c, ctas }.prepare(variant, false)
}

fn prepare(a: [u64; 3], b: [u64; 3], c: [u64; 3], elem: Elem) -> Result<PreparedLaunch, LaunchError> {
    let variant = GemmWsVariant::ALL.into_iter().find(|v| v.out() == elem && !v.silu()).expect("a variant");
    let (a, b, c) = (matrix(Elem::BF16, a), matrix(Elem::BF16, b), matrix(elem, c));
    GemmWsArgs { a, b, bias: None, c, ctas: 1 }.prepare(variant, false)
}

#[test]
fn rows_that_are_written_have_whole_16_bytes() {
    for (elem, unit) in [(Elem::BF16, 8), (Elem::F32, 4)] {
        for n in 1..=40 {
            let launch = prepare([3, 64, 64], [n, 64, 64], [3, n, 48], elem);
            match launch {
                Ok(_) => assert_eq!(n % unit, 0, "{n} columns of {elem}"),
                Err(LaunchError::MapRow { param: "c", axis: 1, given, .. }) => {
                    assert!(given == n && n % unit != 0, "{n} columns of {elem}");
                    let words = prepare([3, 64, 64], [n, 64, 64], [3, n, 48], elem).unwrap_err().to_string();
                    assert!(words.ends_with(&format!("so a multiple of {unit} is needed")), "{words}");
                }
                Err(other) => panic!("{n} columns of {elem}: {other}"),
            }
        }
    }
}

#[test]
fn rows_that_are_read_end_anywhere() {
    for k in 1..=40 {
        assert!(prepare([3, k, 48], [16, k, 48], [3, 16, 16], Elem::BF16).is_ok(), "K = {k}");
    }
}

#[test]
fn sizes_and_strides_are_those_of_the_copy_engine() {
    let refused = |a, b, c| prepare(a, b, c, Elem::BF16).expect_err("a refusal");
    let empty = refused([3, 0, 64], [16, 0, 64], [3, 16, 16]);
    assert!(matches!(empty, LaunchError::EmptyMap { param: "a", axis: 1, .. }), "{empty}");
    let stride = refused([3, 64, 68], [16, 64, 64], [3, 16, 16]);
    assert!(matches!(stride, LaunchError::MapStride { param: "a", axis: 0, given: 136, .. }), "{stride}");
    let long = refused([3, 64, 1 << 39], [16, 64, 64], [3, 16, 16]);
    assert!(matches!(long, LaunchError::MapStride { param: "a", axis: 0, .. }), "{long}");
}

/// Rows that overlap are written in no order. Rows that are read may overlap, and be the same.
#[test]
fn rows_that_are_written_do_not_overlap() {
    for variant in GemmWsVariant::ALL {
        let unit = 16 / u64::from(variant.out().bytes());
        for m in 1..=3 {
            for n in [1, 2, 3, 16, 17].map(|units| units * unit) {
                for pitch in (0..=40).map(|units| units * unit) {
                    match product(variant, [m, n, 64], pitch, 2) {
                        Ok(_) => assert!(m == 1 || pitch >= n, "{m} rows of {n} elements, {pitch} apart"),
                        Err(LaunchError::MapOverlap { param: "c", axis, given, needed, .. }) => {
                            let apart = (axis, given, needed);
                            assert!(m > 1 && pitch < n, "{m} rows of {n} elements, {pitch} apart: {apart:?}");
                            assert_eq!(apart, (0, pitch, n.into()));
                        }
                        Err(other) => panic!("{m} rows of {n} elements, {pitch} apart: {other}"),
                    }
                }
            }
        }
    }
    let words = product(GemmWsVariant::ALL[0], [2, 16, 64], 8, 1).expect_err("overlaps").to_string();
    assert!(words.contains("`c` has stride 8 elements") && words.ends_with("at least 16 is needed"), "{words}");
    assert!(prepare([3, 64, 8], [16, 64, 0], [3, 16, 16], Elem::BF16).is_ok(), "rows that are read");
}

/// Where 32 bits of a coordinate or of the number of a tile end, the launch does too.
#[test]
fn products_are_as_large_as_their_coordinates() {
    const EDGE: u64 = (1 << 31) - 128;
    let good = |variant, sizes| product(variant, sizes, sizes[1], 2);
    for variant in GemmWsVariant::ALL {
        for axis in 0..3 {
            let sized = |size| {
                let mut sizes = [64, 64, 64];
                sizes[axis] = size;
                good(variant, sizes)
            };
            assert!(sized(EDGE).is_ok(), "{:?}", sized(EDGE));
            for size in [EDGE + 8, (1 << 31) - 8, 1 << 31, (1 << 32) - 256, (1 << 32) - 128, (1 << 32) - 8] {
                let error = sized(size).expect_err("past the edge");
                assert!(matches!(error, LaunchError::Requirement { .. }), "{size} along axis {axis}: {error}");
            }
        }
        let rows = 128 * u64::from(variant.ctas());
        let columns = u64::from(variant.bn());
        let tiles = |across: u64, down: u64| good(variant, [down * rows, across * columns, 8]);
        let most = (1u64 << 31) / (1 << 16);
        assert!(tiles(1 << 16, most).is_ok(), "{:?}", tiles(1 << 16, most));
        for down in [most + 1, 2 * most, 2 * most + 1] {
            let error = tiles(1 << 16, down).expect_err("too many tiles");
            assert!(matches!(error, LaunchError::Requirement { .. }), "{down}: {error}");
        }
        let none = product(variant, [64, 64, 64], 64, 0).expect_err("no CTAs");
        assert!(matches!(none, LaunchError::Requirement { text: "ctas > 0", .. }), "{none}");
    }
}
