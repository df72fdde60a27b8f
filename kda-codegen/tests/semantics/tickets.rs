//! Work that a counter hands out: every item is done once, under every schedule, and the counter ends at zero.

use super::harness::{Random, Run, error_of, try_compile};
use kda_codegen::check::protocol::Verdict;
use kda_sim::Options;

/// A kernel of the whole CTA over `n` items of `heads` keys; `body` does item `item`.
fn cta(head: &str, body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 64, grid = heads)]
    fn k(
        #[dims(heads, n)] x: Global<u32>, #[dims(heads, n, 64)] y: GlobalMut<u32>,
        #[dims(heads, n)] done: GlobalMut<u32>, #[dims(heads)] counter: Option<GlobalMut<u32>>,
    ) {{
        let row = smem::<u32, Shape<64>>();
        let key = ctaid.x % heads;
        let (rank, ctas) = (ctaid.x / heads, nctaid.x / heads);
        {head} {{ {body} }}
    }}
}}"
    )
}

const WORK: &str = "for item in (rank..n).step_by(ctas).tickets(counter.at([key]))";
const ITEM: &str = "if tid == 0 { let before = done.at([key, item]).fetch_add(1, RELAXED); }";
const STORE: &str = "y.at([key, item, tid]).store(x.at([key, item]).load() + tid);";

/// Launches with grids smaller and larger than the work, twice on the same counters.
fn check(source: &str, salt: u64) {
    for (heads, n, ctas) in [(1, 0, 2), (1, 1, 3), (1, 7, 1), (2, 9, 2), (1, 12, 5), (3, 4, 6), (1, 3, 2), (1, 2, 2)] {
        for counted in [true, false] {
            let mut random = Random::new(salt);
            let x: Vec<u32> = (0..heads * n).map(|_| random.below(1000)).collect();
            let size = (heads * n) as usize;
            let mut run = Run::new(source);
            run.set("heads", heads).set("n", n).tensor("x", &x);
            run.tensor("y", &vec![0u32; 64 * size]).tensor("done", &vec![0u32; size]);
            run.set("x_stride0", u64::from(n)).set("y_stride0", u64::from(64 * n)).set("done_stride0", u64::from(n));
            if counted {
                run.tensor("counter", &vec![0u32; heads as usize]);
            }
            run.launch_everywhere(heads * ctas);
            let case = format!("{heads} keys, {n} items, {ctas} CTAs, counted: {counted}\n{source}");
            assert_eq!(run.read::<u32>("done"), vec![1; size], "{case}");
            run.launch(heads * ctas);
            assert_eq!(run.read::<u32>("done"), vec![2; size], "{case}");
            let expected: Vec<u32> = x.iter().flat_map(|x| (0..64).map(move |tid| x + tid)).collect();
            assert_eq!(run.read::<u32>("y"), expected, "{case}");
            if counted {
                assert_eq!(run.read::<u32>("counter"), vec![0; heads as usize], "{case}");
            }
        }
    }
}

/// Without a barrier in the trip, with one, with one on a side of a branch, with several.
#[test]
fn every_item_is_done_once() {
    let shared =
        "row[[63 - tid]] = x.at([key, item]).load() + 63 - tid; cta_sync(); y.at([key, item, tid]).store(row[[tid]]);";
    for (salt, body) in [
        format!("{ITEM} {STORE}"),
        format!("{ITEM} {shared} cta_sync();"),
        format!("{ITEM} if item % 3 == 0 {{ {shared} cta_sync(); }} else {{ {STORE} }}"),
        format!(
            "{ITEM} if item % 3 == 0 {{ if item % 2 == 0 {{ {shared} cta_sync(); }} {STORE} }} cta_sync(); {STORE}"
        ),
        format!("{ITEM} if tid < 40 {{ if const {{ ARCH < sm_90 }} {{ cta_sync(); }} }} {STORE}"),
        format!("{ITEM} for i in 0..item {{ cta_sync(); }} {STORE}"),
    ]
    .iter()
    .enumerate()
    {
        check(&cta(WORK, body), salt as u64);
    }
}

/// Items that are known ahead: what the next one needs is loaded a trip early.
#[test]
fn items_known_ahead() {
    for ahead in [2, 3] {
        let names = if ahead == 2 { "[item, next]" } else { "[item, next, later]" };
        let head = format!(
            "let mut early = x.at([key, rank]).load_if(rank < n);
             for {names} in (rank..n).step_by(ctas).tickets::<{ahead}>(counter.at([key]))"
        );
        let body = format!(
            "{ITEM} y.at([key, item, tid]).store(early + tid); early = x.at([key, next]).load_if(next < n); cta_sync();"
        );
        check(&cta(&head, &body), 10 + ahead);
    }
}

/// The barrier that hands an item over is needed.
#[test]
fn the_barrier_is_needed() {
    let mut run = Run::new(&cta(WORK, &format!("{ITEM} {STORE}")));
    run.set("heads", 1).set("n", 8).tensor("x", &[1u32; 8]).tensor("y", &[0u32; 512]).tensor("done", &[0u32; 8]);
    run.tensor("counter", &[0u32]);
    let text = run.compiled.ptx.clone();
    assert_eq!(text.matches("bar.sync").count(), 1, "{text}");
    run.compiled.ptx = text.lines().filter(|line| !line.contains("bar.sync")).collect::<Vec<_>>().join("\n");
    let report = run.try_launch(2, &Options::default()).expect_err("a race");
    assert!(matches!(report.code, kda_sim::Code::Race | kda_sim::Code::Uninitialised), "{report}");
}

/// Roles: one draws, all get the items, through rings of their own between them.
fn roles(load: &str, math: &str) -> String {
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 128, grid = 1)]
    #[roles(load = 0..1, math = 1..3, other = 3..4)]
    fn k(
        #[dims(total, 32)] x: TensorMap<u32, Shape<1, 32>>, #[dims(ends)] first: Global<u32>,
        #[dims(total, 64)] y: GlobalMut<u32>, #[dims(n)] done: GlobalMut<u32>, #[dims(1)] counter: GlobalMut<u32>, n: u32,
    ) {{
        let ring = Pipeline::<load, math> {{ x: smem::<u32, Shape<1, 32>, _, 2>() }};
        let work = (ctaid.x..n).step_by(nctaid.x).tickets(counter.at([0]));
        #[role(load)]
        {load}
        #[role(math)]
        {math}
        #[role(other)]
        for item in work {{
            if lane == 0 {{ let before = done.at([item]).fetch_add(1, RELAXED); }}
        }}
    }}
}}"
    )
}

const LOAD: &str = "#[elect_one]
        for item in work {
            for i in first.at([item]).load()..first.at([item + 1]).load() {
                let slot = ring.acquire();
                slot.x.tma_load(x, [i, 0]);
                slot.commit();
            }
        }";
const MATH: &str = "for item in work {
            for i in first.at([item]).load()..first.at([item + 1]).load() {
                let slot = ring.wait();
                y.at([i, tid - 32]).store(slot.x[[0, lane]] + item);
                slot.release();
            }
        }";

#[test]
fn roles_get_the_same_items() {
    let whole = LOAD
        .replace("#[elect_one]", "")
        .replacen("let slot", "#[elect_one] { let slot", 1)
        .replace("slot.commit();", "slot.commit(); }");
    for (salt, load) in [LOAD, &whole].into_iter().enumerate() {
        let source = roles(load, MATH);
        let compiled = try_compile(&source).expect("a kernel").remove(0);
        assert_eq!(compiled.protocol, Verdict::Proved, "{source}");
        for (n, grid) in [(0, 2), (1, 2), (6, 1), (11, 2), (3, 5)] {
            let mut random = Random::new(salt as u64);
            let mut first = vec![0u32];
            for _ in 0..n {
                first.push(first[first.len() - 1] + random.below(4));
            }
            let total = first[n] as usize;
            let x: Vec<u32> = (0..(total.max(1) * 32)).map(|_| random.below(1000)).collect();
            let mut run = Run::new(&source);
            run.map("x", &x, &[total.max(1) as u64, 32]).tensor("first", &first).tensor("y", &vec![0u32; total * 64]);
            run.set("total", total.max(1) as u32).set("ends", n as u32 + 1).set("n", n as u32);
            run.tensor("done", &vec![0u32; n]).tensor("counter", &[0u32]).launch_everywhere(grid);
            assert_eq!(run.read::<u32>("done"), vec![1; n], "{n} items, {grid} CTAs");
            assert_eq!(run.read::<u32>("counter"), [0]);
            let y = run.read::<u32>("y");
            for item in 0..n {
                for i in first[item] as usize..first[item + 1] as usize {
                    for t in 0..64 {
                        assert_eq!(y[64 * i + t], x[32 * i + t % 32] + item as u32, "item {item}, row {i}");
                    }
                }
            }
        }
    }
}

/// The fixed order in several roles, with loops inside that depend on the item.
#[test]
fn a_fixed_order_is_proved() {
    let fixed = |text: String| text.replace("in work", "in (ctaid.x..n).step_by(nctaid.x)");
    let compiled = try_compile(&fixed(roles(LOAD, MATH))).expect("a kernel").remove(0);
    assert_eq!(compiled.protocol, Verdict::Proved);
    let written = |text: &str| text.replace("first.at([item + 1])", "done.at([item])");
    let compiled = try_compile(&fixed(roles(&written(LOAD), &written(MATH)))).expect("a kernel").remove(0);
    let Verdict::NotProved { why } = &compiled.protocol else { panic!("{:?}", compiled.protocol) };
    assert!(why.contains("computed in a loop or read from memory"), "{why}");
}

/// Roles that do not agree on the stages of an item.
#[test]
fn roles_that_disagree() {
    let fewer = MATH.replace("first.at([item]).load()..", "first.at([item]).load() + 1..");
    assert!(matches!(error_of(&roles(LOAD, &fewer)), 660 | 661));
    // Trips that are read from what the kernel writes are not known to be equal.
    let written = |text: &str| text.replace("first.at([item + 1])", "done.at([item])");
    let compiled = try_compile(&roles(&written(LOAD), &written(MATH))).expect("a kernel").remove(0);
    assert!(matches!(compiled.protocol, Verdict::NotProved { .. }), "{:?}", compiled.protocol);
}

#[test]
fn what_tickets_are_not() {
    for (head, body, code) in [
        ("for i in 0..n", format!("{WORK} {{ {STORE} }}"), 161),
        ("#[unroll] for item in (rank..n).step_by(ctas).tickets(counter.at([key]))", STORE.into(), 161),
        ("for item in (tid..n).step_by(ctas).tickets(counter.at([key]))", STORE.into(), 161),
        ("for item in (rank..n).step_by(ctas).tickets(x.at([key, 0]))", STORE.into(), 454),
        ("for item in (rank..n).step_by(ctas).tickets(counter)", STORE.into(), 455),
        ("for item in (rank..n).step_by(ctas).tickets(3)", STORE.into(), 156),
        ("for item in (rank..n).step_by(ctas).tickets::<0>(counter.at([key]))", STORE.into(), 155),
        ("for item in (rank..n).step_by(ctas).tickets::<2>(counter.at([key]))", STORE.into(), 156),
        (
            "let work = (rank..n).step_by(ctas).tickets(counter.at([key])); for item in work { } for item in work",
            STORE.into(),
            161,
        ),
        ("if tid == 0", format!("{WORK} {{ {STORE} }}"), 161),
    ] {
        assert_eq!(error_of(&cta(head, &body)), code, "{head} {body}");
    }
    let inline = "for item in (ctaid.x..n).step_by(nctaid.x).tickets(counter.at([0])) { }";
    assert_eq!(error_of(&roles(inline, MATH)), 161);
}
