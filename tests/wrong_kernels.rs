//! Kernels that compute something else: `kda check` must tell each of them from the right one, by an error beyond its
//! budget, by a bit that is prescribed, or by the simulator's report.
//!
//! A mutant is one instruction of the shipped text, changed. Those that rounding hides are named.

use kda::checks::conv_verify::call::{Call, Results};
use kda::checks::conv_verify::case::{Case, Plan};
use kda::checks::conv_verify::judge::{Expected, Tally};
use kda::checks::conv_verify::problems::{POOLS, four};
use kda::checks::{Device, Measured};
use kda::core::exec::{Executor, Stream};
use kda::core::{Elem, KernelDesc, PreparedLaunch};
use kda::reference::conv_verify::sample::Switches;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::operators::conv_verify::{Options, plan};
use kda_kernels::conv_verify::ConvVerifyVariant;

const SEED: u64 = 2;
const TOKENS: usize = 2;
/// The convolution pool: fp32, `[D, 3]`.
const POOL: (bool, bool) = POOLS[0];
/// 1/15, 1/13 and 1/11: terms of the series of log1p that add at most (1/3)^10 / 11 = 1.5e-6 of the whole, for raw gates next
/// to 0 alone. A kernel without one of them is within the budget or next to it.
const SERIES_TAIL: [&str; 3] = ["0f3D888889", "0f3D9D89D9", "0f3DBA2E8C"];

/// The problems of a quick check, and one with an index of every kind that is not live.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = four(TOKENS, POOL).iter().map(|plan| plan.draw(SEED)).collect();
    for map in 0..3 {
        let mut case = Plan::of(Switches { null: 0, roll: true, ..Switches::plain(4, TOKENS, 1, 1) }).draw(SEED);
        let s = &mut case.sample;
        let length = [s.conv_layout.lines, s.state_len, s.snapshot_len][map] as i32;
        let maps = [&mut s.conv_slots, &mut s.state_slots, &mut s.snapshot_rows];
        maps.into_iter().nth(map).expect("three maps")[..3].copy_from_slice(&[0, length, -1]);
        cases.push(case);
    }
    cases
}

/// Changed texts with what was changed.
fn mutants(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let with = |at: usize, line: String| {
        let mut changed = lines.clone();
        changed[at] = &line;
        (format!("line {}: `{}` -> `{}`", at + 1, lines[at].trim(), line.trim()), changed.join("\n") + "\n")
    };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let operands: Vec<&str> =
            line.trim().trim_end_matches(';').split([' ', ',']).filter(|o| !o.is_empty()).collect();
        match operands.as_slice() {
            // A sum loses what it is added to.
            ["fma.rn.f32", d, a, b, c] if *c != "0f00000000" && !SERIES_TAIL.contains(c) => {
                found.push(with(at, format!("    mul.rn.f32 {d}, {a}, {b};")));
            }
            // A limit of an index moves by one.
            ["setp.lt.s32", d, a, b] => found.push(with(at, format!("    setp.le.s32 {d}, {a}, {b};"))),
            // A rounding goes the wrong way.
            ["cvt.rn.bf16.f32", d, a] => found.push(with(at, format!("    cvt.rz.bf16.f32 {d}, {a};"))),
            ["rsqrt.approx.ftz.f32", d, a] => found.push(with(at, format!("    rcp.approx.ftz.f32 {d}, {a};"))),
            // The sign of an exponent.
            ["neg.f32", d, a] => found.push(with(at, format!("    mov.b32 {d}, {a};"))),
            _ => {}
        }
    }
    // The norm's epsilon ten times as large.
    found.push(("epsilon".into(), text.replace("0f358637BD", "0f3727C5AC")));
    found
}

/// Runs a text on a case in the place of the variant's own.
fn run(variant: ConvVerifyVariant, desc: &'static KernelDesc, case: &Case) -> Result<Results, String> {
    let executor = SimExecutor::default();
    let call = Call::new(Device::simulator(&executor), case).map_err(|e| e.to_string())?;
    let options = Options { variant: Some(variant), ..Options::default() };
    let planned = plan(&call.problem, &executor, &options).map_err(|e| e.to_string())?;
    let launch = PreparedLaunch { desc, ..planned.prepared().clone() };
    // SAFETY: the simulator touches no host memory; the buffers of the call outlive the launch.
    unsafe { executor.launch(&launch, Stream::default()) }.map_err(|e| e.to_string())?;
    call.results().map_err(|e| e.to_string())
}

/// True if a check of these cases passes.
fn passes(variant: ConvVerifyVariant, desc: &'static KernelDesc, cases: &[(Case, Expected)]) -> bool {
    cases.iter().all(|(case, expected)| match run(variant, desc, case) {
        Err(report) => {
            assert!(report.contains("error[KDA3"), "not a report: {report}");
            false
        }
        Ok(results) => {
            let mut tally = Tally::default();
            tally.judge(&results, expected);
            tally.rows("").iter().all(Measured::passes)
        }
    })
}

#[test]
fn a_check_tells_wrong_kernels() {
    let own = |v: &&ConvVerifyVariant| v.bv() == 8 && v.t() as usize == TOKENS && v.pool() == Elem::F32 && !v.inner();
    let variant = *ConvVerifyVariant::ALL.iter().find(own).expect("a variant");
    let cases: Vec<(Case, Expected)> = cases()
        .into_iter()
        .map(|case| {
            let expected = Expected::of(&case).expect("the golden model runs");
            (case, expected)
        })
        .collect();
    assert!(passes(variant, variant.desc(), &cases), "the kernel itself");
    let (mut survivors, mut count) = (Vec::new(), 0);
    for (what, text) in mutants(variant.desc().ptx) {
        assert_ne!(text, variant.desc().ptx, "{what}");
        count += 1;
        if passes(variant, variant.desc().with_text(text), &cases) {
            survivors.push(what);
        }
    }
    assert!(count >= 80, "{count} mutants");
    assert!(survivors.is_empty(), "{} of {count} survive (seed {SEED}):\n{}", survivors.len(), survivors.join("\n"));
}

/// Walks over the tiles of a product that leave some out, or come to some twice: on more rows than are walked through together, each
/// is told from the right one.
#[test]
fn a_check_tells_wrong_walks() {
    use kda::checks::gemm::{GROUPS, Product};
    use kda::mutate::subject::compile;
    use kda_kernels::gemm::GemmWsVariant;
    let source = kda_kernels::SOURCES.into_iter().find(|source| source.family == "gemm").expect("the source of gemm");
    let variants =
        GemmWsVariant::ALL.into_iter().filter(|v| v.bn() == 256 && v.out() == kda::core::Elem::BF16 && !v.silu());
    for variant in variants {
        let fails = |from: &str, to: &str| {
            let text = source.text.replace(from, to);
            assert!(from.is_empty() || text != source.text, "{from}");
            let compiled = compile(variant.desc(), &source, &text).expect("it compiles");
            let executor = SimExecutor::default();
            let device = Device::simulator(&executor);
            let mut product = Product::new(device, variant, GROUPS, 2 * variant.ctas(), true, SEED).expect("a product");
            product.launch.desc = variant.desc().with_text(compiled.ptx);
            product.judge(device).map_or(true, |(error, limit)| error.is_nan() || error > limit)
        };
        assert!(!fails("", ""), "{}", variant.desc().entry);
        for (from, to) in [
            ("item / (GROUP * columns) * GROUP", "item / (GROUP * columns)"),
            ("item % (GROUP * columns)", "item"),
            ("min(rows - first, GROUP)", "GROUP"),
            ("rest % height, rest / height", "rest / height, rest % height"),
            ("step_by(ctas / CTAS)", "step_by(ctas)"),
            ("(ctaid.x / CTAS..rows", "(0..rows"),
        ] {
            // With one CTA in a cluster both steps are the same.
            if (from, variant.ctas()) == ("step_by(ctas / CTAS)", 1) {
                continue;
            }
            assert!(fails(from, to), "{}: `{from}` -> `{to}`", variant.desc().entry);
        }
    }
}
