//! Names, order and errors of variants.

use super::{Variant, constants, expand, library_constants};
use crate::consteval::{Const, Names};
use crate::diag::Diagnostic;
use crate::syntax::{Family, parse_family};
use kda_core::{Arch, Elem};
use std::collections::BTreeSet;

fn family(arch: &str, variants: &str, generics: &str) -> Family {
    let source = format!(
        "#[device_lib] mod math {{ const STEP: u32 = 4; const TWICE: u32 = 2 * STEP; }}
         #[kernels(arch = {arch})] mod family {{
             const K: u32 = 128;
             #[kernel(block = 32, grid = 1)] {variants}
             fn k{generics}(tokens: u32) {{}}
         }}"
    );
    parse_family(&source).unwrap_or_else(|e| panic!("{}", e[0]))
}

fn variants(family: &Family) -> Vec<Variant> {
    expand(family, &family.kernels[0]).unwrap_or_else(|e| panic!("{}", e[0]))
}

fn errors_of(variants: &str, generics: &str) -> Vec<Diagnostic> {
    let family = family("sm_90", variants, generics);
    expand(&family, &family.kernels[0]).expect_err("an error")
}

fn codes(variants: &str, generics: &str) -> Vec<u16> {
    errors_of(variants, generics).iter().map(|e| e.code.0).collect()
}

#[test]
fn names_are_readable_and_differ() {
    let family = family(
        "sm_90",
        "#[variants((BV, LANES) in [(8, 8), (K / 8, 8)], T in 1..=2, FLAT in [true, false], OUT in [bf16, f32],
                    SHIFT in [-1], skip_if(BV == 8 && T > 1))]",
        "<const T: u32, const FLAT: bool, OUT: Elem, const BV: u32, const LANES: u32, const SHIFT: i32>",
    );
    let variants = variants(&family);
    assert_eq!(variants.len(), 2 * 2 + 2 * 2 * 2);
    assert_eq!(variants[0].entry, "k__bv8_lanes8_t1_flat_bf16_shiftm1");
    assert_eq!(variants[3].entry, "k__bv8_lanes8_t1_noflat_f32_shiftm1");
    assert_eq!(variants[4].entry, "k__bv16_lanes8_t1_flat_bf16_shiftm1");
    let names: BTreeSet<&str> = variants.iter().map(|v| v.entry.as_str()).collect();
    assert_eq!(names.len(), variants.len());
    assert_eq!(variants[4].bindings[0], ("BV".to_string(), Const::Int(16, Some(Elem::U32))));
    assert_eq!(variants[4].bindings[4], ("OUT".to_string(), Const::Elem(Elem::BF16)));
    assert_eq!(variants[4].rows.len(), 5);
}

#[test]
fn without_variants_there_is_one_entry_an_architecture() {
    let one = family("sm_90", "", "");
    assert_eq!(variants(&one)[0].entry, "k");
    let two = family("[sm_90, sm_100f]", "", "");
    let entries: Vec<String> = variants(&two).into_iter().map(|v| v.entry).collect();
    assert_eq!(entries, ["k__sm_90", "k__sm_100f"]);
    let both =
        family("[sm_90, sm_100f]", "#[variants(T in [1, 2], skip_if(ARCH == sm_90 && T == 2))]", "<const T: u32>");
    let entries: Vec<String> = variants(&both).into_iter().map(|v| v.entry).collect();
    assert_eq!(entries, ["k__t1_sm_90", "k__t1_sm_100f", "k__t2_sm_100f"]);
}

#[test]
fn a_range_may_stand_in_a_row() {
    let family =
        family("sm_90", "#[variants((T, LONG) in [(1..=3, false), (3, true)])]", "<const T: u32, const LONG: bool>");
    let entries: Vec<String> = variants(&family).into_iter().map(|v| v.entry).collect();
    assert_eq!(entries, ["k__t1_nolong", "k__t2_nolong", "k__t3_nolong", "k__t3_long"]);
}

#[test]
fn constants_of_module_and_library() {
    let family = family("sm_90", "", "");
    let all = constants(&family, Arch::SM_90).expect("constants");
    assert_eq!(all.value("K").and_then(|v| v.as_int()), Some(128));
    assert_eq!(all.value("math::TWICE").and_then(|v| v.as_int()), Some(8));
    assert_eq!(all.value("TWICE"), None);
    assert_eq!(all.value("ARCH").and_then(|v| v.as_int()), Some(900));
    let inside = library_constants(&family, &family.libraries[0].name, Arch::SM_90).expect("constants");
    assert_eq!(inside.value("TWICE").and_then(|v| v.as_int()), Some(8));
    assert_eq!(inside.value("K"), None);
}

#[test]
fn errors() {
    assert_eq!(codes("#[variants(T in [1], U in [1])]", "<const T: u32>"), [213]);
    assert_eq!(codes("#[variants(T in [1])]", "<const T: u32, const U: u32>"), [214]);
    assert_eq!(codes("", "<const U: u32>"), [214]);
    assert_eq!(codes("#[variants(T in [1], T in [2])]", "<const T: u32>"), [218]);
    assert_eq!(codes("#[variants(T in [1, 2, 1])]", "<const T: u32>"), [215]);
    assert_eq!(codes("#[variants(T in [1], skip_if(T == 1))]", "<const T: u32>"), [216]);
    assert_eq!(codes("#[variants(T in [1], skip_if(T))]", "<const T: u32>"), [210]);
    assert_eq!(codes("#[variants(T in [1], skip_if(tokens > T))]", "<const T: u32>"), [201]);
    assert_eq!(codes("#[variants(T in [true, 2])]", "<const T: u32>"), [212]);
    assert_eq!(codes("#[variants(T in [bf16, 2])]", "<T: Elem>"), [212]);
    assert_eq!(codes("#[variants(T in [-1])]", "<const T: u32>"), [204]);
    assert_eq!(codes("#[variants(T in 0..40, U in 0..40)]", "<const T: u32, const U: u32>"), [219]);
    assert_eq!(codes("#[variants(T in 0..900, U in 0..900)]", "<const T: u32, const U: u32>"), [219]);
    let error = &errors_of("#[variants(T in [1], skip_if(tokens > T))]", "<const T: u32>")[0];
    assert!(error.message.contains("a launch parameter"), "{error}");
}
