//! Broken kernels: the compiler never panics, never hangs, and every error has a code of the catalogue and a place in the
//! source.
//!
//! `KDA_FUZZ` sets the number of mutants, `KDA_SEED` the seed.

use kda_codegen::diag::{Diagnostic, catalogue};
use kda_codegen::{signature, specialise, syntax, variants};
use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};
use std::time::{Duration, Instant};

/// Kernels to start from; between them they use everything that bodies can hold.
const SOURCES: [&str; 9] = [
    include_str!("fuzz/products.rs.txt"),
    include_str!("fuzz/fragments.rs.txt"),
    include_str!("fuzz/clusters.rs.txt"),
    include_str!("fuzz/persistent.rs.txt"),
    include_str!("fuzz/tensor_memory.rs.txt"),
    include_str!("fuzz/elementwise.rs.txt"),
    include_str!("fuzz/roles.rs.txt"),
    include_str!("fuzz/arithmetic.rs.txt"),
    include_str!("fuzz/pipelines.rs.txt"),
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }
}

/// Compiles all variants; the first error if there is one.
fn compile(source: &str) -> Result<usize, Vec<Diagnostic>> {
    let family = syntax::parse_family(source)?;
    let mut bytes = 0;
    for kernel in &family.kernels {
        for variant in &variants::expand(&family, kernel)? {
            let resolved = signature::resolve(&family, kernel, variant)?;
            let compiled = specialise::compile_variant(&family, kernel, variant, &resolved).map_err(|e| vec![*e])?;
            bytes += compiled.ptx.len();
        }
    }
    Ok(bytes)
}

/// Number of tokens, those in groups included.
fn count(tokens: &TokenStream) -> usize {
    tokens.clone().into_iter().map(|t| 1 + if let TokenTree::Group(g) = &t { count(&g.stream()) } else { 0 }).sum()
}

/// What stands in place of a literal.
const LITERALS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "31",
    "32",
    "33",
    "64",
    "4096",
    "4294967295",
    "4294967296",
    "1.5",
    "0x7fff_ffff_ffff_ffff_ffff",
    "true",
];

/// What stands in place of a name.
const NAMES: [&str; 22] = [
    "tid", "lane", "warp", "role", "x", "y", "n", "tile", "i", "u32", "i32", "f32", "u8", "min", "select", "shfl",
    "from_fn", "at", "load", "store", "mut", "map",
];

/// Applies one mutation at token `at`, counted through groups.
fn mutate(tokens: TokenStream, at: &mut isize, random: &mut Random, donors: &[TokenTree]) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    let mut pending: Option<TokenTree> = None;
    for token in tokens {
        let here = *at == 0;
        *at -= 1;
        let token = match token {
            TokenTree::Group(group) if !here => {
                let inner = mutate(group.stream(), at, random, donors);
                TokenTree::Group(Group::new(group.delimiter(), inner))
            }
            other => other,
        };
        if here {
            // Mostly another token of the same kind: what else stands there seldom gets past the parser.
            match random.below(20) {
                8.. => {
                    let same = |t: &&TokenTree| std::mem::discriminant(*t) == std::mem::discriminant(&token);
                    let alike: Vec<&TokenTree> = donors.iter().filter(same).collect();
                    out.push(alike.get(random.below(alike.len())).map_or(token, |t| (*t).clone()));
                }
                0 => continue,
                1 => out.extend([token.clone(), token]),
                2 => {
                    pending = Some(token);
                    continue;
                }
                3 => out.push(donors[random.below(donors.len())].clone()),
                4 => out.extend([token, donors[random.below(donors.len())].clone()]),
                5 => out.push(TokenTree::Group(Group::new(Delimiter::Parenthesis, token.into()))),
                6 => match LITERALS[random.below(LITERALS.len())].parse::<TokenStream>() {
                    Ok(literal) => out.extend(literal),
                    Err(_) => out.push(TokenTree::Literal(Literal::u32_unsuffixed(7))),
                },
                7 => out.extend(NAMES[random.below(NAMES.len())].parse::<TokenStream>().into_iter().flatten()),
            }
            continue;
        }
        out.push(token);
        out.extend(pending.take());
    }
    out.extend(pending);
    out.into_iter().collect()
}

/// Tokens of a stream, through groups.
fn flatten(tokens: &TokenStream, found: &mut Vec<TokenTree>) {
    for token in tokens.clone() {
        if let TokenTree::Group(group) = &token {
            flatten(&group.stream(), found);
        }
        found.push(token);
    }
}

/// An error has a code of the catalogue, and its place is in the source, beginning before it ends.
fn check_error(error: &Diagnostic, source: &str) {
    assert!(catalogue::all().any(|entry| entry.code == error.code), "{error}");
    let lines: Vec<&str> = source.lines().collect();
    let (start, end) = error.place();
    let inside = |line: usize, column: usize| {
        line >= 1 && lines.get(line - 1).is_some_and(|text| column <= text.chars().count())
    };
    // Where something is missing there may be no token: the place is then that of the whole.
    let whole = (start.line, start.column) == (1, 0);
    assert!(whole || inside(start.line, start.column), "{error}: begins outside the source\n{source}");
    assert!(whole || inside(end.line, end.column), "{error}: ends outside the source\n{source}");
    assert!((start.line, start.column) <= (end.line, end.column), "{error}: ends before it begins");
    assert!(!error.message.is_empty());
}

#[test]
fn the_sources_compile() {
    for source in SOURCES {
        match compile(source) {
            Ok(bytes) => assert!(bytes > 1000),
            Err(errors) => panic!("{}\n{source}", errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n")),
        }
    }
}

#[test]
fn mutants_give_errors_and_nothing_worse() {
    let count_of = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (mutants, seed) = (count_of("KDA_FUZZ", 1500), count_of("KDA_SEED", 1));
    println!("KDA_SEED={seed} KDA_FUZZ={mutants}");
    let (mut good, mut codes) = (0, std::collections::BTreeMap::new());
    for index in 0..mutants {
        let mut random = Random(seed.wrapping_mul(0x1234_5678_9abc_def1).wrapping_add(index << 20));
        let source = SOURCES[random.below(SOURCES.len())];
        let mut tokens: TokenStream = source.parse().expect("the source has tokens");
        let mut donors = Vec::new();
        flatten(&tokens, &mut donors);
        // Mostly one change: two rarely get past the parser.
        for _ in 0..1 + random.below(5) / 4 {
            let mut at = random.below(count(&tokens)) as isize;
            tokens = mutate(tokens, &mut at, &mut random, &donors);
        }
        let text = tokens.to_string();
        let start = Instant::now();
        let result = std::panic::catch_unwind(|| match compile(&text) {
            Ok(_) => None,
            Err(errors) => {
                assert!(!errors.is_empty());
                errors.iter().for_each(|error| check_error(error, &text));
                Some(errors[0].code)
            }
        });
        match result {
            Ok(None) => good += 1,
            Ok(Some(code)) => *codes.entry(code).or_insert(0) += 1,
            Err(_) => panic!("mutant {index} of seed {seed} panics:\n{text}"),
        }
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "mutant {index} of seed {seed} takes {took:?}:\n{text}");
    }
    println!("{good} compile; {codes:?}");
    assert!(codes.len() > 8, "{codes:?}");
}

/// A kernel with this body.
fn kernel(items: &str, body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)] mod family {{ {items} #[kernel(block = 32, grid = 1)] fn k(#[dims(32)] y: GlobalMut<u32>, n: u32) {{ {body} }} }}"
    )
}

fn code(source: &str) -> u16 {
    let start = Instant::now();
    let errors = compile(source).expect_err("too much to compile");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    errors[0].code.0
}

#[test]
fn work_is_bounded() {
    let nested = "#[unroll] for i in 0..4096 {".repeat(4) + &"}".repeat(4);
    assert_eq!(code(&kernel("", &nested)), 551);
    let doubling: String =
        (0..40).map(|i| format!("#[device] fn f{}(x: u32) -> u32 {{ f{i}(x) + f{i}(x) }}", i + 1)).collect();
    let items = format!("#[device] fn f0(x: u32) -> u32 {{ x * 3 }} {doubling}");
    assert_eq!(code(&kernel(&items, "let z = f40(n);")), 551);
    let arrays = "let a = [[[[1u32; 4096]; 4096]; 4096]; 4096];";
    assert_eq!(code(&kernel("", arrays)), 551);
    let grown = "let a = from_fn::<4096>(|i| from_fn::<4096>(|j| from_fn::<4096>(|k| n)));";
    assert_eq!(code(&kernel("", grown)), 551);
    let constants = "const A: [[u32; 60000]; 60000] = [[0; 60000]; 60000];";
    assert_eq!(code(&kernel(constants, "")), 209);
    let loops = "let mut z = n; ".to_string() + &"for i in 0..n { z += 1; ".repeat(24) + &"}".repeat(24);
    assert_eq!(code(&kernel("", &loops)), 551);
    let lazy = "let z = ".to_string() + &"n > 1 && (".repeat(40) + "y.at([0]).load() > 3" + &")".repeat(40) + ";";
    assert_eq!(code(&kernel("", &lazy)), 551);
}

#[test]
fn nesting_is_bounded() {
    for depth in [150, 400, 5000, 100_000] {
        let deep = |open: &str, inside: &str, close: &str| {
            let source = kernel("", &format!("let z = {}{inside}{};", open.repeat(depth), close.repeat(depth)));
            match compile(&source) {
                Ok(_) => assert!(depth <= 150, "{depth} of `{open}`"),
                Err(errors) => assert!(matches!(errors[0].code.0, 552 | 101 | 156), "{}", errors[0]),
            }
        };
        deep("(", "n", ")");
        deep("{", "n", "}");
        deep("!", "n", "");
        deep("min(1, ", "n", ")");
        deep("if n > 1 { 1 } else { ", "n", "}");
        if depth <= 5000 {
            deep("", "n", " + n");
            deep("", "n", " as u32");
            deep("", "y", ".hint(NO_ALLOCATE)");
        }
    }
}
