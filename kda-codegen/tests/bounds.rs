//! Kernels that ask for too much work, or nest too deeply: an error, and soon. Broken kernels are fuzzed by `kda::fuzz`.

use kda_codegen::diag::Diagnostic;
use kda_codegen::{signature, specialise, syntax, variants};
use std::time::{Duration, Instant};

/// Compiles all variants; the first error if there is one.
fn compile(source: &str) -> Result<Vec<String>, Vec<Diagnostic>> {
    let family = syntax::parse_family(source)?;
    let mut texts = Vec::new();
    for kernel in &family.kernels {
        for variant in &variants::expand(&family, kernel)? {
            let resolved = signature::resolve(&family, kernel, variant)?;
            let compiled = specialise::compile_variant(&family, kernel, variant, &resolved).map_err(|e| vec![*e])?;
            texts.push(compiled.ptx);
        }
    }
    Ok(texts)
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

/// Numbers at the edges of their types, in every place that takes one: an error or a kernel.
#[test]
fn numbers_of_any_size_are_compiled_or_refused() {
    let bodies = [
        "let v = y.at([N]).load_v::<2>();",
        "let v = y.at([0]).load_v::<N>();",
        "y.at([N]).store(n);",
        "let z = n << N;",
        "let z = n + N;",
        "let z = shfl(n, N);",
        "let a = from_fn::<N>(|i| n);",
        "let a = [n; N];",
        "for i in 0..N { y.at([i]).store(n); }",
        "for i in (0..n).step_by(N) { y.at([i]).store(n); }",
        "#[unroll] for i in N..N { y.at([i]).store(n); }",
        "let t = smem::<f32, Shape<N>>(); t[[tid]] = 1.0;",
        "let t = smem::<f32, Shape<N, N>>(); t[[tid, N]] = 1.0;",
        "let t = smem::<f32, Shape<4, 4>, Swizzle<N>>();",
        "let f = frag::<bf16, N, N>();",
        "nanosleep(N);",
    ];
    let numbers = ["0", "1", "3", "255", "65536", "2147483647", "2147483648", "4294967295", "4294967296"];
    let large = ["9223372036854775807", "9223372036854775808", "18446744073709551615", "0x7fff_ffff_ffff_ffff_ffff"];
    let (mut compiled, mut refused) = (0, 0);
    for body in bodies {
        for number in numbers.into_iter().chain(large) {
            match compile(&kernel("", &body.replace('N', number))) {
                Ok(_) => compiled += 1,
                Err(errors) => refused += usize::from(!errors.is_empty()),
            }
            let attributes = format!(
                "#[kernels(arch = sm_90)] mod family {{ #[kernel(block = {number}, grid = {number})] \
                 fn k(#[dims({number})] y: GlobalMut<u32>, n: u32) {{ {} }} }}",
                body.replace('N', "4")
            );
            refused += usize::from(compile(&attributes).is_err());
        }
    }
    assert!(compiled > 20 && refused > 100, "{compiled} compile, {refused} are refused");
}

/// Matrices in registers of any number of rows and columns: those that no thread can hold are refused, and soon.
#[test]
fn matrices_of_any_size_are_compiled_or_refused() {
    let numbers = ["0", "8", "64", "256", "512", "4096", "65536", "2147483648", "4294967232", "18446744073709551552"];
    let (mut compiled, mut refused) = (0, 0);
    for kind in ["Acc::<f32, ROWS, COLUMNS>", "Frag::<f32, ROWS, COLUMNS>"] {
        for (rows, columns) in numbers.iter().flat_map(|rows| numbers.iter().map(move |columns| (rows, columns))) {
            for contents in ["zero()", "from_fn(|row, column| 1.0)"] {
                let matrix = kind.replace("ROWS", rows).replace("COLUMNS", columns);
                let source = format!(
                    "#[kernels(arch = sm_90a)] mod family {{ #[kernel(block = 128, grid = 1)]
                     fn k(#[dims(4096, 256)] y: GlobalMut<f32>) {{
                         let x = {matrix}::{contents};
                         x.for_each(|row, column, pair| y.at([row, column]).store_v(pair));
                     }} }}"
                );
                let start = Instant::now();
                match compile(&source) {
                    Ok(_) => compiled += 1,
                    Err(errors) => refused += usize::from(matches!(errors[0].code.0, 901 | 906)),
                }
                assert!(start.elapsed() < Duration::from_secs(10), "{matrix}: {:?}", start.elapsed());
            }
        }
    }
    assert!(compiled > 20 && refused > 200, "{compiled} compile, {refused} are refused");
}

/// Constants beside the trips of loops are numbers, however large: the proof gives up and says so.
#[test]
fn constants_of_trips_are_bounded() {
    let source = |load: &str, math: &str| {
        format!(
            "#[kernels(arch = sm_90a)] mod family {{
                #[kernel(block = 64, grid = 1)] #[roles(load = 0..1, math = 1..2)]
                fn k(#[dims(n, 32)] x: TensorMap<f32, Shape<1, 32>>, #[dims(n, 32)] y: GlobalMut<f32>) {{
                    let ring = Pipeline::<load, math> {{ x: smem::<f32, Shape<1, 32>, _, 4>() }};
                    #[role(load)] #[elect_one] {load} {{
                        let slot = ring.acquire(); slot.x.tma_load(x, [0, 0]); slot.commit();
                    }}
                    #[role(math)] {math} {{
                        let slot = ring.wait(); y.at([0, lane]).store(slot.x[[0, lane]]); slot.release();
                    }}
                }}
            }}"
        )
    };
    for number in ["100000", "2147483648", "4294967295"] {
        for head in [
            format!("for i in {number}..n"),
            format!("for i in 0..n + {number}"),
            format!("for i in 0..n - {number}"),
            format!("if n > {number}"),
        ] {
            let start = Instant::now();
            // Both sides take part equally often; one that does not is refused, or compiled without a proof.
            compile(&source(&head, &head)).unwrap_or_else(|errors| panic!("{head}: {}", errors[0]));
            let _ = compile(&source(&head, "for i in 0..n"));
            assert!(start.elapsed() < Duration::from_secs(10), "{head}: {:?}", start.elapsed());
        }
    }
}

/// An index of shared memory may wrap: its address has 32 bits, and what stands in the text fits them.
#[test]
fn offsets_in_shared_memory_fit_32_bits() {
    for index in ["n - 2147483648", "n + 4294967295", "n - 4294967295 - 4294967295", "2 * n + 3000000000"] {
        let body = format!(
            "let tile = smem::<u32, Shape<64>>(); tile[[{index}]] = n; cta_sync(); y.at([0]).store(tile[[{index}]]);"
        );
        let source = kernel("", &body);
        for text in compile(&source).unwrap_or_else(|errors| panic!("{index}: {}", errors[0])) {
            kda_sim::Program::load(&text).unwrap_or_else(|error| panic!("{index}: {error}"));
        }
    }
}
