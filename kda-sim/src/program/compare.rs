//! The comparisons of `setp`. An ordered one is false of a NaN, an unordered one true.

use super::arith::{H, sx16};
use super::{Decoder, LoadError};
use crate::alu::float::flush;
use crate::alu::lanes::{Build, CompareFn, compares};
use kda_ptx::modifier::{Compare, Type};

impl Decoder<'_> {
    /// The comparison of `setp`.
    pub(super) fn comparison(&self, compare: Compare, ftz: bool, ty: Type) -> Result<Build<CompareFn>, LoadError> {
        use Compare::*;
        macro_rules! integers {
            ($Reg:ty, |$v:ident| $value:expr) => {{
                macro_rules! build {
                    ($op:tt) => {
                        compares(|a: $Reg, b: $Reg, _| {
                            let $v = a;
                            let x = $value;
                            let $v = b;
                            x $op $value
                        })
                    };
                }
                match compare {
                    Eq => build!(==),
                    Ne => build!(!=),
                    Lt => build!(<),
                    Le => build!(<=),
                    Gt => build!(>),
                    Ge => build!(>=),
                    _ => return Err(self.unsupported(&format!("setp{}{}", compare.text(), ty.text()))),
                }
            }};
        }
        macro_rules! floats {
            ($Reg:ty, |$v:ident| $value:expr) => {{
                macro_rules! build {
                    (|$x:ident, $y:ident| $test:expr) => {
                        compares(|a: $Reg, b: $Reg, _| {
                            let $v = a;
                            let $x = $value;
                            let $v = b;
                            let $y = $value;
                            $test
                        })
                    };
                }
                match compare {
                    Eq => build!(|x, y| x == y),
                    Ne => build!(|x, y| x != y && !x.is_nan() && !y.is_nan()),
                    Lt => build!(|x, y| x < y),
                    Le => build!(|x, y| x <= y),
                    Gt => build!(|x, y| x > y),
                    Ge => build!(|x, y| x >= y),
                    Equ => build!(|x, y| x == y || x.is_nan() || y.is_nan()),
                    Neu => build!(|x, y| x != y),
                    Ltu => build!(|x, y| x < y || x.is_nan() || y.is_nan()),
                    Leu => build!(|x, y| x <= y || x.is_nan() || y.is_nan()),
                    Gtu => build!(|x, y| x > y || x.is_nan() || y.is_nan()),
                    Geu => build!(|x, y| x >= y || x.is_nan() || y.is_nan()),
                    Num => build!(|x, y| !x.is_nan() && !y.is_nan()),
                    Nan => build!(|x, y| x.is_nan() || y.is_nan()),
                }
            }};
        }
        use Type::*;
        Ok(match ty {
            U32 | B32 => integers!(u32, |v| v),
            S32 => integers!(u32, |v| v as i32),
            U64 | B64 => integers!(u64, |v| v),
            S64 => integers!(u64, |v| v as i64),
            U16 | B16 => integers!(u32, |v| v & H),
            S16 => integers!(u32, |v| sx16(v)),
            F32 if ftz => floats!(u32, |v| f32::from_bits(flush(v))),
            F32 => floats!(u32, |v| f32::from_bits(v)),
            F64 => floats!(u64, |v| f64::from_bits(v)),
            _ => return Err(self.bad_type("setp", ty)),
        })
    }
}
