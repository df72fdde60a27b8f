//! What the front end accepts, and the place and code of everything that it refuses.

use super::{GenericKind, ParamType, Stable, parse_family, text};
use crate::diag::Diagnostic;
use kda_core::Elem;

const WHOLE: &str = r#"
#[kda_dsl::device_lib]
mod math {
    const STEP: u32 = 4;
    /// Twice.
    fn twice(x: f32) -> f32 { x + x }
}
/// A family.
#[kda_dsl::kernels(arch = [sm_90, sm_100f], uses = [crate::device::math])]
#[allow(non_snake_case)]
pub mod conv_verify {
    //! More words.
    const K: u32 = 128;
    #[device]
    fn dot<const G: u32, T: Elem>(mut a: [f32; G], b: &mut f32) -> f32 { 0.0 }
    /// Verifies.
    #[kernel(block = 512, grid = [n * (K / BV), 1], min_blocks_per_sm = 1, max_registers = 128)]
    #[roles(q = 0..4, gate = 12..16 (regs = 40))]
    #[variants((BV, LANES) in [(8, 8), (16, 8)], T in 1..=8, FLAT in [true, false], OUT in [bf16, f32],
        skip_if(BV == 8 && T > 4))]
    #[requires(tokens >= 1, n % 8 == 0)]
    #[requires(d == 2 * K)]
    fn conv<const T: u32, const FLAT: bool, const BV: u32, const LANES: u32, OUT: Elem>(
        #[dims(n, tokens, d)] x: Global<bf16>,
        #[dims(slots:slot_pitch, K; stable)] state: Option<GlobalMut<OUT>>,
        #[dims(n; stable(FLAT))] slots_of: Global<i32>,
        null: i32,
        (scale, roll): (f32, bool),
    ) {
        let y = x;
    }
}
"#;

#[test]
fn a_whole_module() {
    let family = parse_family(WHOLE).unwrap_or_else(|e| panic!("{}", e[0]));
    assert_eq!(family.name, "conv_verify");
    assert_eq!(family.arch.iter().map(|(a, _)| a.to_string()).collect::<Vec<_>>(), ["sm_90", "sm_100f"]);
    assert_eq!(family.attrs.len(), 3); // two lines of documentation and the lint
    assert_eq!((family.consts.len(), family.libraries.len(), family.devices.len()), (1, 1, 2));
    let math = family.devices.iter().find(|d| d.name == "twice").expect("a library function");
    assert_eq!(math.library.as_ref().map(ToString::to_string).as_deref(), Some("math"));
    let dot = family.devices.iter().find(|d| d.name == "dot").expect("a device function");
    assert_eq!(dot.generics[0].kind, GenericKind::Int(Elem::U32));
    assert_eq!(dot.generics[1].kind, GenericKind::Elem);
    assert!(dot.params[0].mutable && !dot.params[0].by_reference && dot.params[1].by_reference);
    assert_eq!(text::tokens(quote::ToTokens::to_token_stream(&dot.params[1].ty)), "f32");

    let kernel = &family.kernels[0];
    assert_eq!(kernel.docs, [" Verifies."]);
    assert_eq!(kernel.grid.iter().map(text::expr).collect::<Vec<_>>(), ["n * (K / BV)", "1"]);
    assert!(kernel.min_blocks_per_sm.is_some() && kernel.max_registers.is_some());
    assert_eq!(kernel.roles.len(), 2);
    assert_eq!(kernel.roles[1].registers.as_ref().map(text::expr).as_deref(), Some("40"));
    assert_eq!(text::expr(&kernel.roles[1].end), "16");
    assert_eq!(kernel.variants.axes.len(), 4);
    assert_eq!(kernel.variants.axes[1].rows.len(), 8);
    assert_eq!(kernel.variants.skip_if.iter().map(text::expr).collect::<Vec<_>>(), ["BV == 8 && T > 4"]);
    assert_eq!(kernel.requires.iter().map(text::expr).collect::<Vec<_>>(), ["tokens >= 1", "n % 8 == 0", "d == 2 * K"]);
    let names: Vec<String> = kernel.params.iter().map(|p| p.name.to_string()).collect();
    assert_eq!(names, ["x", "state", "slots_of", "null", "scale", "roll"]);
    let ParamType::Tensor { elem, writes, optional, stable, dims } = &kernel.params[1].ty else { panic!("a tensor") };
    assert!(*writes && *optional && matches!(stable, Stable::Yes) && elem == "OUT");
    assert_eq!(dims[0].stride.as_ref().map(text::expr).as_deref(), Some("slot_pitch"));
    assert!(matches!(&kernel.params[2].ty, ParamType::Tensor { stable: Stable::If(_), .. }));
    assert!(matches!(kernel.params[5].ty, ParamType::Scalar(Elem::Bool)));
}

#[test]
fn text_is_spaced_as_a_person_would() {
    for written in [
        "n * (K / BV)",
        "-a + !b",
        "min(a, -1) << 2",
        "if const { A } { b[i] } else { c.0 }",
        "0..=4",
        "x as u32 & 3",
        "[1, 2; 3]",
        "math::f::<T>(x)",
        "Option<Global<bf16>>",
        "a < b && T > c",
        "x.y(1, &z)?",
    ] {
        assert_eq!(text::tokens(written.parse().expect("tokens")), written);
    }
}

fn errors_in(source: &str) -> Vec<Diagnostic> {
    match parse_family(source) {
        Ok(_) => Vec::new(),
        Err(errors) => errors,
    }
}

/// Code and marked text of each error; a text over several lines ends with its first.
fn found(source: &str) -> Vec<(u16, String)> {
    let lines: Vec<&str> = source.lines().collect();
    errors_in(source)
        .iter()
        .map(|e| {
            let (start, end) = e.place();
            let line: Vec<char> = lines.get(start.line - 1).map(|l| l.chars().collect()).unwrap_or_default();
            let last = if end.line == start.line { end.column } else { line.len() };
            (e.code.0, line[start.column.min(last)..last].iter().collect())
        })
        .collect()
}

fn one(code: u16, text: &str) -> Vec<(u16, String)> {
    vec![(code, text.to_string())]
}

fn module(items: &str) -> String {
    format!("#[kernels(arch = sm_90)] mod m {{ {items} }}")
}

fn kernel(attrs: &str, rest: &str) -> Vec<(u16, String)> {
    found(&module(&format!("{attrs} fn k{rest}")))
}

const K: &str = "#[kernel(block = 32, grid = 1)]";

#[test]
fn modules() {
    let item = |text: &str| found(&module(&format!("{text} {K} fn k() {{}}")));
    assert_eq!(item("struct S;"), one(115, "struct S;"));
    assert_eq!(item("use a::b;"), one(115, "use a::b;"));
    assert_eq!(item("fn f() {}"), one(107, "f"));
    assert_eq!(item("#[device] #[kernel(block = 1, grid = 1)] fn f() {}"), one(107, "#[device]"));
    assert_eq!(item("#[device(x)] fn f() {}"), one(103, "#[device(x)]"));
    assert_eq!(item("#[cfg(test)] const A: u32 = 1;"), one(102, "#[cfg(test)]"));
    assert_eq!(item("#[inline] #[device] fn f() {}"), one(102, "#[inline]"));
    assert_eq!(item("pub const A: u32 = 1;"), one(108, "pub"));
    assert_eq!(item("const _: u32 = 1;"), one(109, "_"));
    assert_eq!(item("const A: u32 = 1; const A: u32 = 2;"), one(113, "A"));
    assert_eq!(item("const A: u32 = 1; #[device] fn A() {}"), one(113, "A"));
    assert_eq!(item("#[allow(unused)] /** words */ const A: u32 = 1;"), []);
    assert_eq!(found(&module("const A: u32 = 1;")), one(118, "m"));
    assert_eq!(found("#[kernels(arch = sm_90)] mod m;"), one(114, "mod m;"));
    assert_eq!(found("#[kernels(arch = sm_90)] fn m() {}"), one(114, "#[kernels(arch = sm_90)] fn m() {}"));
    assert_eq!(found("mod m {}"), one(114, "m"));
    assert_eq!(found("#[kernels(arch = sm_90)] mod m { fn }")[0].0, 101);
}

#[test]
fn arguments_of_the_module() {
    let args = |text: &str| found(&format!("#[kernels({text})] mod m {{ {K} fn k() {{}} }}"));
    assert_eq!(args("arch = sm_9x"), one(116, "sm_9x"));
    assert_eq!(args("arch = [sm_90, sm_90]"), one(116, "sm_90"));
    assert_eq!(args("arch = []"), one(116, "arch = []"));
    assert_eq!(args("")[0].0, 106);
    assert_eq!(args("arch = sm_90, use = [a]"), one(104, "use"));
    assert_eq!(args("arch = sm_90, arch = sm_80"), one(105, "arch = sm_80"));
    assert_eq!(args("arch = sm_90, uses = [1]"), one(117, "1"));
    assert_eq!(args("arch sm_90"), one(103, "sm_90"));
    assert_eq!(args("arch = sm_90, uses = [a::b]"), []);
}

#[test]
fn kernels() {
    assert_eq!(kernel("#[kernel(block = 32)]", "() {}"), one(106, "#[kernel(block = 32)]"));
    assert_eq!(kernel("#[kernel]", "() {}"), one(103, "#[kernel]"));
    assert_eq!(kernel("#[kernel(blok = 32, grid = 1)]", "() {}"), one(104, "blok"));
    assert_eq!(kernel("#[kernel(block = 32, grid = [])]", "() {}"), one(120, "[]"));
    assert_eq!(kernel("#[kernel(block = 32, grid = [1, 2, 3, 4])]", "() {}"), one(120, "[1, 2, 3, 4]"));
    assert_eq!(kernel(&format!("{K} #[launch(x)]"), "() {}"), one(102, "#[launch(x)]"));
    assert_eq!(kernel(&format!("{K} #[roles(a = 0..1)] #[roles(b = 1..2)]"), "() {}"), one(105, "#[roles(b = 1..2)]"));
    assert_eq!(kernel(&format!("{K} #[requires]"), "() {}"), one(103, "#[requires]"));
    assert_eq!(kernel(&format!("{K} pub"), "() {}"), one(108, "pub"));
    assert_eq!(kernel(&format!("{K} async"), "() {}"), one(108, "async"));
    assert_eq!(kernel(&format!("{K} unsafe"), "() {}"), one(108, "unsafe"));
    assert_eq!(kernel(K, "() -> u32 { 1 }"), one(108, "u32"));
    assert_eq!(kernel(K, "<T>() where T: Elem {}"), [(108, "where T: Elem".into()), (109, "T".into())]);
    assert_eq!(kernel(K, "<'a>() {}"), one(109, "'a"));
    assert_eq!(kernel(K, "<const N: usize>() {}"), one(109, "const N: usize"));
    assert_eq!(kernel(K, "<T: Copy>() {}"), one(109, "T: Copy"));
    assert_eq!(found(&module(&format!("{K} fn a__b() {{}}"))), one(119, "a__b"));
    assert_eq!(found(&module(&format!("{K} fn k() {{}} {K} fn k() {{}}"))), one(113, "k"));
}

#[test]
fn roles_and_variants() {
    let roles = |text: &str| kernel(&format!("{K} #[roles({text})]"), "() {}");
    assert_eq!(roles("a = 0..4, b = 4"), one(103, "4"));
    assert_eq!(roles("a = 0..=4"), one(103, "0..=4"));
    assert_eq!(roles("a = ..4"), one(103, "..4"));
    assert_eq!(roles("a 0..4")[0].0, 103);
    assert_eq!(roles("")[0].0, 103);
    assert_eq!(roles("a = 0..2, a = 2..4"), one(113, "a"));
    assert_eq!(roles("a = 0..(N + 1) (regs = 40), b = 8..N"), []);
    let variants = |text: &str| kernel(&format!("{K} #[variants({text})]"), "<const A: u32, const B: u32>() {}");
    assert_eq!(variants("A in 1..=2, B in [3],"), []);
    assert_eq!(variants("(A, B) in [(1, 2), 3]"), one(217, "3"));
    assert_eq!(variants("(A, B) in [(1, 2, 3)]"), one(217, "(1, 2, 3)"));
    assert_eq!(variants("A in []"), one(216, "[]"));
    assert_eq!(variants("A in 4..4"), one(216, "4..4"));
    assert_eq!(variants("A in 0..B"), one(103, "0..B"));
    assert_eq!(variants("A in 0..5000"), one(219, "0..5000"));
    assert_eq!(variants("A in 3"), one(103, "3"));
    assert_eq!(variants("skip_if(A > 1)")[0].0, 216);
    assert_eq!(variants("A = [1]"), one(103, "="));
    assert_eq!(variants("A in [1], skip_if(A, B)")[0].0, 103);
}

#[test]
fn parameters() {
    let params = |text: &str| kernel(K, &format!("({text}) {{}}"));
    assert_eq!(params("x: Global<f32>"), one(112, "x"));
    assert_eq!(params("#[dims(n)] x: f32"), one(112, "#[dims(n)]"));
    assert_eq!(params("#[dims(n)] x: Global<bool>"), one(402, "bool"));
    assert_eq!(params("#[dims(n)] x: Global<T>"), one(402, "T"));
    assert_eq!(params("x: f16"), one(401, "f16"));
    assert_eq!(params("x: &u32"), one(111, "&u32"));
    assert_eq!(params("x: Option<u32>"), one(111, "Option<u32>"));
    assert_eq!(params("mut x: u32"), one(110, "mut x"));
    assert_eq!(params("_: u32"), one(110, "_"));
    assert_eq!(params("(a, b): (u32, u32, u32)"), one(110, "(u32, u32, u32)"));
    assert_eq!(params("(a, b): u32"), one(110, "u32"));
    assert_eq!(params("a: u32, a: u32"), one(113, "a"));
    assert_eq!(params("#[dim(n)] x: Global<f32>"), [(102, "#[dim(n)]".into()), (112, "x".into())]);
    assert_eq!(params("#[dims()] x: Global<f32>"), one(403, "#[dims()]"));
    assert_eq!(params("#[dims(a, b, c, d, e, f, g)] x: Global<f32>")[0].0, 403);
    assert_eq!(params("#[dims(n; zeroed)] x: Global<f32>"), one(104, "zeroed"));
    assert_eq!(params("#[dims(n; stable(1, 2))] x: Global<f32>"), one(104, "stable(1, 2)"));
    assert_eq!(params("#[dims(n; stable, stable)] x: Global<f32>")[0].0, 103);
    assert_eq!(params("#[dims(n:)] x: Global<f32>")[0].0, 103);
    assert_eq!(params("r#type: u32"), one(119, "r#type"));
    let device = |text: &str| found(&module(&format!("#[device] fn f({text}) {{}} {K} fn k() {{}}")));
    assert_eq!(device("x: &f32"), one(110, "x: &f32"));
    assert_eq!(device("(a, b): (f32, f32)"), one(110, "(a, b): (f32, f32)"));
    assert_eq!(device("self"), one(110, "self"));
}

#[test]
fn several_errors_are_reported_at_once() {
    let all = found(&module(&format!("use a; fn f() {{}} {K} fn k(x: f16, y: &u32) {{}}")));
    assert_eq!(all.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [115, 107, 401, 111]);
}

/// Damaged token streams give errors or a family, and never a panic.
#[test]
fn nothing_panics_on_damaged_tokens() {
    use proc_macro2::{Group, TokenStream, TokenTree};
    fn damage(tokens: TokenStream, random: &mut impl FnMut(u64) -> u64) -> TokenStream {
        let mut list: Vec<TokenTree> = tokens.into_iter().collect();
        for token in &mut list {
            if let TokenTree::Group(group) = token {
                *token = TokenTree::Group(Group::new(group.delimiter(), damage(group.stream(), random)));
            }
        }
        if !list.is_empty() && random(150) == 0 {
            let at = random(list.len() as u64) as usize;
            match random(4) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, list[at].clone()),
                2 => list.swap(at, 0),
                _ => list.truncate(at),
            }
        }
        list.into_iter().collect()
    }
    const SEED: u64 = 0x5eed_0001;
    println!("seed {SEED:#x}");
    let mut state = SEED;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let file = syn::parse_file(WHOLE).expect("syntax");
    let module = |at: usize| match &file.items[at] {
        syn::Item::Mod(module) => {
            let mut module = module.clone();
            module.attrs.retain(|attr| attr.path().segments.len() == 1);
            quote::ToTokens::to_token_stream(&module)
        }
        _ => TokenStream::new(),
    };
    let args: TokenStream = "arch = [sm_90, sm_100f], uses = [crate::device::math]".parse().expect("tokens");
    let (mut refused, mut resolved) = (0, 0);
    for _ in 0..1000 {
        let args = damage(args.clone(), &mut random);
        let (library, kernels) = (damage(module(0), &mut random), damage(module(1), &mut random));
        let Ok(family) = super::module_args(args).and_then(|args| super::family(args, kernels, vec![library])) else {
            refused += 1;
            continue;
        };
        for kernel in &family.kernels {
            for variant in crate::variants::expand(&family, kernel).unwrap_or_default().iter().take(3) {
                resolved += usize::from(crate::signature::resolve(&family, kernel, variant).is_ok());
            }
        }
    }
    assert!(refused > 100 && resolved > 0, "{refused} refused, {resolved} resolved");
}
