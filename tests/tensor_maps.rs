//! What a launch refuses of tensors behind tensor maps: the copy engine would refuse them too, or write where it must not.

use kda::core::{Elem, LaunchError, PreparedLaunch, TensorArg};
use kda_kernels::gemm::{GemmWsArgs, GemmWsVariant};

/// Any address that is a multiple of 256.
const AT: u64 = 1 << 20;

fn matrix(elem: Elem, [rows, columns, pitch]: [u64; 3]) -> TensorArg {
    let bytes = u64::from(elem.bytes()) * (rows * pitch + columns);
    TensorArg::strided(AT, bytes, elem, &[rows, columns], &[pitch, 1]).expect("a matrix")
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
