//! The launch of a variant, and the place of each error.

use super::{Fact, Resolved, resolve};
use crate::compiled::{OwnedExpr, ParamKind, Stride};
use crate::diag::Diagnostic;
use crate::syntax::parse_family;
use crate::variants::expand;
use kda_core::Elem;
use kda_core::expr::BinaryOp;

fn resolved(source: &str, at: usize) -> Result<Resolved, Vec<Diagnostic>> {
    let family = parse_family(source).unwrap_or_else(|e| panic!("{}", e[0]));
    let variants = expand(&family, &family.kernels[0]).unwrap_or_else(|e| panic!("{}", e[0]));
    resolve(&family, &family.kernels[0], &variants[at])
}

fn ok(source: &str, at: usize) -> Resolved {
    resolved(source, at).unwrap_or_else(|e| panic!("{}", e[0]))
}

const SOURCE: &str = "#[kernels(arch = sm_90)] mod family {
    const K: u32 = 128;
    #[kernel(block = 512, grid = [n_req * vheads * (K / BV), tokens], min_blocks_per_sm = CTAS, max_registers = 64)]
    #[roles(q = 0..4, gate = 12..16 (regs = 40))]
    #[variants((BV, CTAS) in [(8, 1), (16, 2)], LONG in [false, true], POOL in [f32, bf16], EARLY in [true])]
    #[requires(LONG || tokens == BV, tokens >= 1, vheads % heads == 0)]
    #[requires(d % 8 == 0 && 0 == x_pitch % 16, 4 < n_req, BV <= 16)]
    fn k<const BV: u32, const CTAS: u32, const LONG: bool, POOL: Elem, const EARLY: bool>(
        #[dims(n_req, tokens:x_pitch, d)] x: Global<bf16>,
        roll: bool,
        #[dims(vheads, K, BV; stable(!EARLY))] state: Option<GlobalMut<POOL>>,
        #[dims(n_req, 4:256, K:2; stable)] odd: Global<u8>,
        heads: u32,
        (scale, base): (f32, i64),
        #[dims(heads * K, d)] w: GlobalMut<f32>,
    ) {}
}";

#[test]
fn parameters_stand_in_abi_order() {
    let resolved = ok(SOURCE, 3);
    let rows: Vec<(&str, u32, u32)> = resolved.params.iter().map(|p| (p.name.as_str(), p.offset, p.bytes)).collect();
    assert_eq!(
        rows,
        [
            ("x", 0, 8),
            ("state", 8, 8),
            ("odd", 16, 8),
            ("w", 24, 8),
            ("roll", 32, 1),
            ("heads", 36, 4),
            ("scale", 40, 4),
            ("base", 48, 8),
            ("n_req", 56, 4),
            ("tokens", 60, 4),
            ("d", 64, 4),
            ("vheads", 68, 4),
            ("x_stride0", 72, 8),
            ("x_pitch", 80, 8),
            ("w_stride0", 88, 8),
        ]
    );
    assert_eq!(resolved.param_bytes, 96);
    assert_eq!(
        resolved.param("x_pitch").map(|(at, p)| (at, p.kind.clone())),
        Some((13, ParamKind::Stride { tensor: 0, axis: 1 }))
    );
    assert_eq!(
        resolved.param("w_stride0").map(|(_, p)| p.kind.clone()),
        Some(ParamKind::Stride { tensor: 3, axis: 0 })
    );
}

#[test]
fn tensors_have_axes_and_strides() {
    let resolved = ok(SOURCE, 3); // BV 8, LONG, bf16
    let tensor = |name: &str| match &resolved.param(name).expect("a tensor").1.kind {
        ParamKind::Tensor { elem, writes, optional, stable, align, dims, .. } => {
            let dims: Vec<(OwnedExpr, Stride)> = dims.iter().map(|d| (d.size.clone(), d.stride.clone())).collect();
            (*elem, *writes, *optional, *stable, *align, dims)
        }
        other => panic!("{other:?}"),
    };
    let name = |text: &str| OwnedExpr::Name(text.into());
    let param = |text: &str| Stride::Param(text.into());
    let (elem, writes, optional, stable, align, dims) = tensor("state");
    assert_eq!((elem, writes, optional, stable, align), (Elem::BF16, true, true, false, 2));
    let dense = [
        (name("vheads"), Stride::Const(1024)),
        (OwnedExpr::Int(128), Stride::Const(8)),
        (OwnedExpr::Int(8), Stride::Const(1)),
    ];
    assert_eq!(dims, dense);
    let (_, _, _, stable, _, dims) = tensor("odd");
    assert!(stable);
    assert_eq!(dims[0], (name("n_req"), Stride::Const(1024)));
    assert_eq!(dims[2].1, Stride::Const(2));
    let (_, _, _, _, _, dims) = tensor("x");
    assert_eq!(dims[0], (name("n_req"), param("x_stride0")));
    assert_eq!(dims[1], (name("tokens"), param("x_pitch")));
    let heads_k = OwnedExpr::Binary(BinaryOp::Mul, Box::new(name("heads")), Box::new(OwnedExpr::Int(128)));
    assert_eq!(tensor("w").5[0], (heads_k, param("w_stride0")));
}

#[test]
fn optional_maps_have_a_flag() {
    let source = |params: &str| {
        format!("#[kernels(arch = sm_90)] mod family {{ #[kernel(block = 32, grid = 1)] fn k({params}) {{}} }}")
    };
    let map = "#[dims(n:p, 32)] a: Option<TensorMap<f32, Shape<8, 32>>>";
    let resolved = ok(&source(&format!("{map}, #[dims(32)] b: Option<TensorMapMut<f32, Shape<32>>>, s: bool")), 0);
    let rows: Vec<(&str, u32, u32)> = resolved.params.iter().map(|p| (p.name.as_str(), p.offset, p.bytes)).collect();
    let flags = [("a_present", 272, 4), ("b_present", 276, 4)];
    assert_eq!(rows[..5], [("a", 0, 128), ("b", 128, 128), ("s", 256, 1), ("n", 260, 4), ("p", 264, 8)]);
    assert_eq!(rows[5..], flags);
    let kinds: Vec<ParamKind> = resolved.params[5..].iter().map(|p| p.kind.clone()).collect();
    assert_eq!(kinds, [ParamKind::Present { tensor: 0 }, ParamKind::Present { tensor: 1 }]);
    assert!(matches!(resolved.params[0].kind, ParamKind::Tensor { optional: true, map: Some(_), .. }));
    // A map that is always there has none, and what has the flag's name is refused.
    assert_eq!(ok(&source("#[dims(8, 32)] a: TensorMap<f32, Shape<8, 32>>"), 0).params.len(), 1);
    for taken in ["a_present: u32", "#[dims(a_present)] x: Global<f32>", "#[dims(n:a_present, m)] x: Global<f32>"] {
        let errors = resolved_err(&source(&format!("{map}, {taken}")));
        assert_eq!(errors[0].code.0, 226, "{taken}");
    }
    assert!(parse_family(&source("#[dims(8)] a: Option<Option<TensorMap<f32, Shape<8>>>>")).is_err());
}

fn resolved_err(source: &str) -> Vec<Diagnostic> {
    resolved(source, 0).expect_err("a refusal")
}

#[test]
fn conditions_fold_and_give_facts() {
    let short = ok(SOURCE, 0);
    let texts: Vec<&str> = short.requires.iter().map(|r| r.text.as_str()).collect();
    let common = ["tokens >= 1", "vheads % heads == 0", "d % 8 == 0 && 0 == x_pitch % 16", "4 < n_req"];
    assert_eq!(texts[0], "LONG || tokens == BV");
    assert_eq!(texts[1..], common);
    let tokens = |value| Fact::Equals { name: "tokens".into(), value };
    assert_eq!(
        short.facts,
        [
            tokens(8),
            Fact::AtLeast { name: "tokens".into(), value: 1 },
            Fact::MultipleOf { name: "d".into(), of: 8 },
            Fact::MultipleOf { name: "x_pitch".into(), of: 16 },
            Fact::AtLeast { name: "n_req".into(), value: 5 },
        ]
    );
    assert_eq!((short.multiple_of("d"), short.multiple_of("tokens"), short.multiple_of("heads")), (8, 8, 1));
    let long = ok(SOURCE, 2);
    let texts: Vec<&str> = long.requires.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(texts, common);
    assert!(ok(SOURCE, 4).facts.contains(&tokens(16)));
}

#[test]
fn bounds_and_grid() {
    let resolved = ok(SOURCE, 4); // BV 16, CTAS 2
    assert_eq!((resolved.block, resolved.min_blocks_per_sm, resolved.max_registers), (512, 2, Some(64)));
    assert_eq!(resolved.roles[1].registers, Some(40));
    assert_eq!((resolved.roles[1].first_warp, resolved.roles[1].warps), (12, 4));
    assert_eq!(resolved.grid[1], OwnedExpr::Name("tokens".into()));
    assert_eq!(resolved.grid[2], OwnedExpr::Int(1));
    let OwnedExpr::Binary(BinaryOp::Mul, _, tiles) = &resolved.grid[0] else { panic!("{:?}", resolved.grid[0]) };
    assert_eq!(**tiles, OwnedExpr::Int(8));
}

/// Codes and marked texts of the errors in a kernel made of these parts.
fn errors(kernel: &str, attrs: &str, params: &str) -> Vec<(u16, String)> {
    let source = format!(
        "#[kernels(arch = sm_90)] mod family {{
            const K: u32 = 128;
            #[kernel({kernel})] {attrs} fn k({params}) {{}}
        }}"
    );
    let lines: Vec<&str> = source.lines().collect();
    resolved(&source, 0)
        .expect_err(params)
        .iter()
        .map(|e| {
            let (start, end) = e.place();
            let text: String =
                lines[start.line - 1].chars().skip(start.column).take(end.column - start.column).collect();
            (e.code.0, text)
        })
        .collect()
}

fn one(code: u16, text: &str) -> Vec<(u16, String)> {
    vec![(code, text.to_string())]
}

const LAUNCH: &str = "block = 32, grid = 1";
const X: &str = "#[dims(n, d)] x: Global<f32>, a: f32, on: bool, count: u32";

#[test]
fn expressions_of_the_launch() {
    let requires = |text: &str| errors(LAUNCH, &format!("#[requires({text})]"), X);
    assert_eq!(requires("n > 0, rows > 1"), one(220, "rows"));
    assert_eq!(requires("n"), one(222, "n"));
    assert_eq!(requires("n && on"), one(222, "n"));
    assert_eq!(requires("on + 1 == 2"), one(222, "on"));
    assert_eq!(requires("(n >> 1) == 2"), one(221, "n >> 1"));
    assert_eq!(requires("n as u64 > 2"), one(221, "n as u64"));
    assert_eq!(requires("x == 2"), one(221, "x"));
    assert_eq!(requires("a > 1"), one(221, "a"));
    assert_eq!(requires("n % (K - 128) == 2"), one(203, "n % (K - 128)"));
    assert_eq!(requires("K == 64"), one(223, "K == 64"));
    assert_eq!(requires("n > 1 && K == 64"), one(223, "n > 1 && K == 64"));
    assert_eq!(requires("min(n) > 0"), one(207, "min(n)"));
    assert_eq!(requires("abs(n) > 0"), one(221, "abs(n)"));
    assert_eq!(requires("if on { n } else { 2 } > 0"), one(221, "if on { n } else { 2 }"));
    assert_eq!(requires("K - 200 > n"), one(204, "K - 200"));
    assert_eq!(errors("block = 32, grid = rows / 2", "", X), one(220, "rows"));
    assert_eq!(errors("block = 32, grid = on", "", X), one(222, "on"));
    // Decided by constants, so the rest is not looked at.
    let fine =
        "#[kernels(arch = sm_90)] mod f { const K: u32 = 1; #[kernel(block = 32, grid = if K == 1 { n } else { rows })]
        #[requires(K == 1 || rows > 1, on, !on || n == max(count, 1) - -n)]
        fn k(#[dims(n)] x: Global<f32>, on: bool, count: u32) {} }";
    assert_eq!(ok(fine, 0).requires.len(), 2);
}

#[test]
fn axes_and_strides() {
    let params = |text: &str| errors(LAUNCH, "", text);
    assert_eq!(params("#[dims(n * 2, d)] x: Global<f32>"), one(225, "n"));
    assert_eq!(params("#[dims(n:n, d)] x: Global<f32>"), one(224, "n"));
    assert_eq!(params("#[dims(n:pitch, d)] x: Global<f32>, pitch: u64"), one(224, "pitch"));
    assert_eq!(params("#[dims(n:2 * d, d)] x: Global<f32>"), one(224, "2 * d"));
    assert_eq!(params("#[dims(n:p, d)] x: Global<f32>, #[dims(n:p, d)] y: Global<f32>"), one(226, "p"));
    assert_eq!(params("#[dims(n:-1, d)] x: Global<f32>"), one(227, "-1"));
    assert_eq!(params("#[dims(n, 1 << 40)] x: Global<f32>"), one(227, "1 << 40"));
    assert_eq!(params("#[dims(n, a)] x: Global<f32>, a: f32"), one(221, "a"));
    assert_eq!(params("#[dims(n, a)] x: Global<f32>, a: bool"), one(222, "a"));
    assert_eq!(params("#[dims(x)] x: Global<f32>"), one(221, "x"));
    assert_eq!(params("#[dims(n; stable(n > 1))] x: Global<f32>"), one(201, "n"));
    let roles = errors(LAUNCH, "#[roles(n = 0..1)]", "#[dims(n)] x: Global<f32>");
    assert_eq!(roles, one(113, "n"));
    let many: Vec<String> = (0..600).map(|i| format!("p{i}: u64")).collect();
    assert_eq!(errors(LAUNCH, "", &many.join(", ")), one(1001, "k"));
}

#[test]
fn blocks_and_roles() {
    let block = |text: &str| errors(&format!("{text}, grid = 1"), "", "");
    assert_eq!(block("block = 48"), one(501, "48"));
    assert_eq!(block("block = 16 * K"), one(501, "16 * K"));
    assert_eq!(block("block = 0"), one(501, "0"));
    assert_eq!(block("block = true"), one(210, "true"));
    assert_eq!(block("block = 512, min_blocks_per_sm = 5"), one(504, "5"));
    assert_eq!(block("block = 512, min_blocks_per_sm = 0"), one(227, "0"));
    assert_eq!(block("block = 512, max_registers = 300"), one(503, "300"));
    assert_eq!(block("block = 1024, max_registers = 72"), one(505, "72"));
    let roles = |text: &str| errors("block = 384, grid = 1", &format!("#[roles({text})]"), "");
    assert_eq!(roles("a = 0..4, b = 4..4"), one(301, "4"));
    assert_eq!(roles("a = 0..4, b = 3..8"), one(302, "b"));
    assert_eq!(roles("a = 0..4, b = 4..K / 8"), one(303, "K / 8"));
    assert_eq!(roles("a = 0..4 (regs = 44)"), one(502, "44"));
    assert_eq!(roles("a = 0..2 (regs = 40)"), one(304, "40"));
    assert_eq!(roles("a = 0..4 (regs = 240), b = 4..12 (regs = 240)"), one(505, "b"));
}
