//! The expansion as syntax, the gathering of libraries, and which errors of variants are reported.

use super::library::{Gathering, device_library};
use crate::compiled::Compiled;
use crate::diag::{Diagnostic, Result};
use crate::pipeline::{after_library, compile_family, kernels, signature_only};
use crate::signature::Resolved;
use crate::syntax::{Family, Kernel, parse_family};
use crate::variants::Variant;
use proc_macro2::TokenStream;

const SOURCE: &str = "#[kernels(arch = sm_90)] mod family {
    /// Scales.
    #[kernel(block = 128, grid = (n + 127) / 128)]
    #[variants(T in [1, 2], OUT in [f32, bf16])]
    #[requires(!on || n % T == 0)]
    fn scale<const T: u32, OUT: Elem>(#[dims(n, 2:3)] x: Option<GlobalMut<OUT>>, on: bool) {}
}";

fn family(source: &str) -> Family {
    parse_family(source).unwrap_or_else(|e| panic!("{}", e[0]))
}

#[test]
fn an_expansion_is_rust_and_refers_to_the_core_alone() {
    let tokens = compile_family(&family(SOURCE), signature_only).unwrap_or_else(|e| panic!("{}", e[0]));
    let file: syn::File = syn::parse2(tokens.clone()).expect("Rust");
    let syn::Item::Mod(module) = &file.items[0] else { panic!("a module") };
    let names: Vec<String> = module
        .content
        .iter()
        .flat_map(|(_, items)| items)
        .filter_map(|item| match item {
            syn::Item::Static(item) => Some(item.ident.to_string()),
            syn::Item::Enum(item) => Some(item.ident.to_string()),
            syn::Item::Struct(item) => Some(item.ident.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["DESCS", "SCALE_DESCS", "ScaleVariant", "ScaleArgs"]);
    let text = tokens.to_string();
    assert!(text.contains("`[n, 2:3]` of OUT, read and written; may be absent."), "{text}");
    assert_eq!(text.matches(":: kda_core").count(), text.matches("kda_core").count());
}

#[test]
fn libraries_are_gathered_one_by_one() {
    let parse = |text: &str| text.parse::<TokenStream>().expect("tokens");
    let callback = parse("::kda_dsl::__after_library");
    let attr = parse("arch = sm_90, uses = [crate::a, super::b]");
    let item = parse("pub mod m { #[kernel(block = 32, grid = 1)] fn k() {} }");
    let call = kernels(attr, item, &callback, signature_only);
    let call: syn::ItemMacro = syn::parse2(call).expect("a macro call");
    assert_eq!(crate::syntax::text::path(&call.mac.path), "crate::a");
    // What the library's macro would answer.
    let answer = |call: &syn::ItemMacro, source: &str| {
        let bundle = call.mac.tokens.clone().into_iter().nth(1).expect("the bundle");
        let source = parse(source);
        quote::quote!(#bundle { "other/crate" } { #source })
    };
    let call: syn::ItemMacro =
        syn::parse2(after_library(answer(&call, "mod a { fn f() {} }"), &callback, signature_only))
            .expect("a macro call");
    assert_eq!(crate::syntax::text::path(&call.mac.path), "super::b");
    let last = answer(&call, "mod b { const C: u32 = 1; }");
    let gathering = Gathering::answer(last.clone()).expect("an answer");
    assert_eq!((gathering.libraries.len(), gathering.rest.len(), gathering.broken), (2, 0, false));
    assert_eq!(gathering.foreign, [true, true]);
    let done = after_library(last, &callback, signature_only).to_string();
    assert!(done.contains("KernelDesc") && !done.contains("compile_error"), "{done}");
    // A library with errors answers without source: the family is empty and silent.
    let broken = after_library(answer(&call, ""), &callback, signature_only).to_string();
    assert!(
        !broken.contains("KernelDesc") && !broken.contains("compile_error") && broken.contains("mod m"),
        "{broken}"
    );
    assert!(after_library(parse("{ a } b"), &callback, signature_only).to_string().contains("KDA0117"));
}

#[test]
fn a_library_becomes_a_macro_and_a_name() {
    let parse = |text: &str| text.parse::<TokenStream>().expect("tokens");
    let library = |item: &str| device_library(TokenStream::new(), parse(item)).to_string();
    let exported = library("pub mod math { fn f() {} }");
    assert!(exported.contains("macro_export") && exported.contains("as math"), "{exported}");
    let inner = library("mod math { fn f() {} }");
    assert!(!inner.contains("macro_export") && inner.contains("pub (crate) use"), "{inner}");
    let errors = library("mod math { struct S; }");
    assert!(errors.contains("KDA0115") && errors.contains("macro_rules"), "{errors}");
    assert!(library("fn f() {}").contains("KDA0114"));
    assert!(device_library(parse("x"), parse("mod m {}")).to_string().contains("KDA0104"));
}

fn at_two(family: &Family, kernel: &Kernel, variant: &Variant, resolved: &Resolved) -> Result<Compiled> {
    match variant.bindings[0].1.as_int() {
        Some(2) => Err(Diagnostic::at(206, &kernel.name, format!("of {}", variant.entry))),
        _ => signature_only(family, kernel, variant, resolved),
    }
}

fn always(_: &Family, kernel: &Kernel, _: &Variant, _: &Resolved) -> Result<Compiled> {
    Err(Diagnostic::at(206, &kernel.name, "always"))
}

#[test]
fn one_cause_is_one_error() {
    let errors = compile_family(&family(SOURCE), at_two).expect_err("an error");
    let texts: Vec<String> = errors.iter().map(Diagnostic::text).collect();
    assert_eq!(texts, ["KDA0206: of scale__t2_f32\n  = variant: scale__t2_f32"]);
    let errors = compile_family(&family(SOURCE), always).expect_err("an error");
    assert_eq!(errors.iter().map(Diagnostic::text).collect::<Vec<_>>(), ["KDA0206: always"]);
    // A signature that is wrong hides the body.
    let wrong = SOURCE.replace("block = 128", "block = 100");
    let errors = compile_family(&family(&wrong), always).expect_err("an error");
    assert_eq!(errors.iter().map(|e| e.code.0).collect::<Vec<_>>(), [501]);
    // A constant that two kernels use is one cause; two kernels of one name in camel case cannot both be expanded.
    let two = "#[kernels(arch = sm_90)] mod f { const A: u32 = 1 / 0;
        #[kernel(block = 32, grid = 1)] fn a() {} #[kernel(block = 32, grid = 1)] fn b() {} }";
    let errors = compile_family(&family(two), signature_only).expect_err("an error");
    assert_eq!(errors.iter().map(|e| e.code.0).collect::<Vec<_>>(), [203]);
    let two = two.replace("1 / 0", "1").replace("fn a", "fn ab_c").replace("fn b", "fn abC");
    let errors = compile_family(&family(&two), signature_only).expect_err("an error");
    assert_eq!(errors.iter().map(|e| e.code.0).collect::<Vec<_>>(), [113], "both would be AbC");
}
