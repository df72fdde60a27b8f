//! Values, and the place and code of every error.

use super::{Const, Names, Scope, arch_number, cast, const_items, eval, float};
use crate::diag::Result;
use kda_core::{Arch, Elem};
use proc_macro2::Span;

fn scope() -> Scope<'static> {
    let mut scope = Scope::new();
    scope.define("BV", Const::Int(16, Some(Elem::U32)));
    scope.define("LANES", Const::Int(8, Some(Elem::U32)));
    scope.define("I", Const::Int(-3, Some(Elem::I32)));
    scope.define("WIDE", Const::Int(5, Some(Elem::U64)));
    scope.define("FLAT", Const::Bool(true));
    scope.define("OUT", Const::Elem(Elem::BF16));
    scope.define("math::STRIDES", Const::Array((0..4).map(|i| Const::Int(1 << i, Some(Elem::U32))).collect()));
    scope.explain("tokens", "a launch parameter");
    scope
}

fn value(text: &str) -> Result<Const> {
    eval(&syn::parse_str(text).expect("an expression"), &scope())
}

fn int(text: &str) -> i128 {
    value(text).unwrap_or_else(|e| panic!("{text}: {e}")).as_int().unwrap_or_else(|| panic!("{text} is no integer"))
}

fn boolean(text: &str) -> bool {
    value(text).unwrap_or_else(|e| panic!("{text}: {e}")).as_bool().unwrap_or_else(|| panic!("{text} is no boolean"))
}

/// Code, first and last column (from 0) of the error.
fn error(text: &str) -> (u16, usize, usize) {
    let error = value(text).expect_err(text);
    let (start, end) = error.place();
    (error.code.0, start.column, end.column)
}

#[test]
fn integers() {
    assert_eq!(int("2 + 3 * 4 - 1"), 13);
    assert_eq!(int("(BV / LANES) << 3"), 16);
    assert_eq!(int("if BV == 16 { 2 } else { 1 / 0 }"), 2);
    assert_eq!(int("if const { FLAT } { BV } else { 1 }"), 16);
    assert_eq!(int("min(BV, 16 * LANES) + max(1, 2)"), 18);
    assert_eq!(int("log2(LANES)"), 3);
    assert_eq!(int("math::STRIDES[log2(LANES)]"), 8);
    assert_eq!(int("[1, 2, 3][1] + (4, true).0 + [7; 3][2]"), 13);
    assert_eq!(int("-2147483648i32"), i128::from(i32::MIN));
    assert_eq!(int("I >> 1"), -2);
    assert_eq!(int("-7 / 2"), -3);
    assert_eq!(int("!0u32"), i128::from(u32::MAX));
    assert_eq!(int("!5"), -6);
    assert_eq!(int("(2.9 as i32) + (-2.9 as i32) + (true as i32)"), 1);
    assert_eq!(int("BV as u64 + WIDE"), 21);
    assert_eq!(int("size_of::<OUT>() + size_of::<f32>()"), 6);
    assert_eq!(int("{ 1 } + const { 2 }"), 3);
    assert_eq!(value("BV + 1").unwrap(), Const::Int(17, Some(Elem::U32)));
    assert_eq!(value("1 + 1").unwrap(), Const::Int(2, None));
}

#[test]
fn booleans_and_element_types() {
    assert!(boolean("BV == 16 && LANES != 4 || false"));
    assert!(boolean("true || 1 / 0 == 0"));
    assert!(!boolean("false && 1 / 0 == 0"));
    assert!(boolean("OUT == bf16 && OUT != f32"));
    assert!(boolean("FLAT ^ false"));
    assert!(boolean("!(1 > 2) & (2 >= 2)"));
    assert!(boolean("sm_100f >= sm_100 && sm_90a != sm_90 && sm_90a < sm_100"));
    assert_eq!(arch_number(Arch::SM_90A), 902);
}

#[test]
fn floats_round_where_their_type_is_written() {
    assert_eq!(value("0.1f32 + 0.2f32").unwrap(), Const::Float(f64::from(0.1f32 + 0.2f32), Some(Elem::F32)));
    assert_eq!(value("0.1 + 0.2").unwrap(), Const::Float(0.1 + 0.2, None));
    assert_eq!(value("1.0 / 15 as f32").unwrap(), Const::Float(f64::from(1.0f32 / 15.0), Some(Elem::F32)));
    assert_eq!(value("bf16::rn(1.005)").unwrap(), Const::Float(1.0078125, Some(Elem::BF16)));
    assert!(boolean("-1.5 < min(2.0, 1.0)"));
}

#[test]
fn rounding_agrees_with_the_hardware_formats() {
    assert_eq!(float::round(1.0 + 1.0 / 256.0, Elem::BF16), 1.0); // a tie goes to even
    assert_eq!(float::round(1.0 + 3.0 / 256.0, Elem::BF16), 1.015625);
    assert_eq!(float::round(65519.9, Elem::F16), 65504.0);
    assert_eq!(float::round(65520.0, Elem::F16), f64::INFINITY);
    assert_eq!(float::round(2f64.powi(-25), Elem::F16), 0.0); // half of the least subnormal, a tie
    assert_eq!(float::round(1.5 * 2f64.powi(-25), Elem::F16), 2f64.powi(-24));
    // bf16 by the usual integer trick, over many values.
    let mut bits = 0x3f80_0001u32;
    for _ in 0..10_000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = f32::from_bits(bits);
        if x.is_finite() {
            let nearest = f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000);
            assert_eq!(float::round(x.into(), Elem::BF16), f64::from(nearest), "{x:e}");
        }
    }
}

#[test]
fn errors_lie_on_the_expression_at_fault() {
    assert_eq!(error("1 + BV * 1000000000"), (202, 4, 19));
    assert_eq!(error("2 * (BV / 0)"), (203, 5, 11));
    assert_eq!(error("1 + (LANES - BV)"), (204, 5, 15));
    assert_eq!(error("BV << 28"), (202, 0, 8));
    assert_eq!(error("1u32 << 32"), (202, 0, 10));
    assert_eq!(error("300u8"), (202, 0, 5));
    assert_eq!(error("-1i32 as u32"), (204, 0, 12));
    assert_eq!(error("1e30 as u32"), (202, 0, 11));
    assert_eq!(error("BV + WIDE"), (205, 0, 9));
    assert_eq!(error("1 + 2.0"), (205, 0, 7));
    assert_eq!(error("true + 1"), (205, 0, 8));
    assert_eq!(error("1 as bool"), (205, 0, 9));
    assert_eq!(error("1.5 as bf16"), (205, 0, 11));
    assert_eq!(error("1usize"), (205, 0, 6));
    assert_eq!(error("1 + nothing"), (201, 4, 11));
    assert_eq!(error("if BV { 1 } else { 2 }"), (210, 3, 5));
    assert_eq!(error("log2(BV + 1)"), (208, 0, 12));
    assert_eq!(error("min(1)"), (207, 0, 6));
    assert_eq!(error("sqrt(2.0)"), (207, 0, 9));
    assert_eq!(error("[1, 2][2]"), (209, 0, 9));
    assert_eq!(error("[0; 70000]"), (209, 4, 9));
    assert_eq!(error("\"text\""), (206, 0, 6));
    assert_eq!(error("1 + { let x = 1; x }"), (206, 4, 20));
    assert_eq!(error("170141183460469231731687303715884105727 + 1"), (202, 0, 43));
    assert!(value("tokens + 1").expect_err("runtime").message.contains("a launch parameter"));
}

#[test]
fn items_stand_in_any_order() {
    let items: Vec<syn::ItemConst> = [
        "const A: u32 = B * 2;",
        "const B: u32 = 1 << K;",
        "const S: [u32; N] = [8, 16];",
        "const N: u32 = 2;",
        "const EPS: f32 = 0.1;",
        "const P: (u32, bool) = (1, true);",
    ]
    .iter()
    .map(|text| syn::parse_str(text).expect("an item"))
    .collect();
    let mut outer = Scope::new();
    outer.define("K", Const::Int(4, None));
    let scope = const_items(&items, &outer).expect("constants");
    assert_eq!(scope.value("A"), Some(Const::Int(32, Some(Elem::U32))));
    assert_eq!(scope.value("S").unwrap().to_string(), "[8, 16]");
    assert_eq!(scope.value("EPS"), Some(Const::Float(f64::from(0.1f32), Some(Elem::F32))));
    assert_eq!(scope.value("P").unwrap().to_string(), "(1, true)");
    assert_eq!(scope.value("K"), Some(Const::Int(4, None)));
}

fn item_error(texts: &[&str]) -> u16 {
    let items: Vec<syn::ItemConst> = texts.iter().map(|t| syn::parse_str(t).expect("an item")).collect();
    const_items(&items, &Scope::new()).err().expect("an error").code.0
}

#[test]
fn items_are_of_their_declared_type() {
    assert_eq!(item_error(&["const A: u32 = B;", "const B: u32 = A;"]), 211);
    assert_eq!(item_error(&["const A: u32 = A;"]), 211);
    assert_eq!(item_error(&["const A: u32 = 1.0;"]), 212);
    assert_eq!(item_error(&["const A: u32 = 1u64;"]), 212);
    assert_eq!(item_error(&["const A: [u32; 3] = [1, 2];"]), 212);
    assert_eq!(item_error(&["const A: u32 = -1;"]), 204);
    assert_eq!(item_error(&["const A: u32 = 1 << 40;"]), 202);
    assert_eq!(item_error(&["const A: String = 1;"]), 205);
}

#[test]
fn casts_of_typed_values() {
    let at = Span::call_site();
    assert_eq!(
        cast(&Const::Int(1 << 40, None), Elem::F32, at).unwrap(),
        Const::Float(1.099511627776e12, Some(Elem::F32))
    );
    assert_eq!(cast(&Const::Int(256, None), Elem::U8, at).unwrap_err().code.0, 202);
    assert_eq!(cast(&Const::Float(f64::NAN, None), Elem::I32, at).unwrap_err().code.0, 202);
    assert_eq!(cast(&Const::Elem(Elem::F32), Elem::I32, at).unwrap_err().code.0, 205);
}
