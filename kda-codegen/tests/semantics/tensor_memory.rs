//! Tensor memory: products of one thread, accumulators that go to a warpgroup through a pipeline, under every schedule.

use super::harness::{Random, Run, error_of};
use kda_sim::{Code, Options, Schedule};

/// C = A Bᵀ in tiles of 128 x N: a load warp, a warp of products, a warpgroup that writes. Each CTA makes `tiles` tiles.
fn product(n: u32, stages: u32, accumulators: u32) -> String {
    format!(
        "#[kernels(arch = sm_100f)]
mod family {{
    #[kernel(block = 192, grid = ctas, min_blocks_per_sm = 1)]
    #[roles(epilogue = 0..4, load = 4..5, math = 5..6)]
    #[requires(k % 64 == 0, pitch % 4 == 0)]
    fn product(
        #[dims(m, k)] a: TensorMap<bf16, Shape<128, 64>, Swizzle<128>>,
        #[dims({n}, k)] b: TensorMap<bf16, Shape<{n}, 64>, Swizzle<128>>,
        #[dims(m:pitch, {n})] c: GlobalMut<f32>,
        ctas: u32,
        tiles: u32,
    ) {{
        let ab = Pipeline::<load, math> {{
            a: smem::<bf16, Shape<128, 64>, Swizzle<128>, {stages}>(),
            b: smem::<bf16, Shape<{n}, 64>, Swizzle<128>, {stages}>(),
        }};
        let sums = Pipeline::<math, epilogue> {{ d: tmem::<f32, 128, {n}, {accumulators}>() }};

        #[role(load)]
        #[elect_one]
        for tile in 0..tiles {{
            for kb in 0..k / 64 {{
                let slot = ab.acquire();
                slot.a.tma_load(a, [(ctaid.x * tiles + tile) * 128, kb * 64]);
                slot.b.tma_load(b, [0, kb * 64]);
                slot.commit();
            }}
        }}

        #[role(math)]
        #[elect_one]
        for tile in 0..tiles {{
            let sum = sums.acquire();
            for kb in 0..k / 64 {{
                let slot = ab.wait();
                sum.d.mma(slot.a, slot.b);
                slot.release();
            }}
            sum.commit();
        }}

        #[role(epilogue)]
        for tile in 0..tiles {{
            let row = (ctaid.x * tiles + tile) * 128 + tid;
            let sum = sums.wait();
            #[unroll]
            for i in 0..{n} / 16 {{
                let values = sum.d.load_v::<16>(16 * i);
                #[unroll]
                for j in 0..4 {{
                    let four = [values[4 * j], values[4 * j + 1], values[4 * j + 2], values[4 * j + 3]];
                    c.at([row, 16 * i + 4 * j]).store_v(four);
                }}
            }}
            sum.release();
        }}
    }}
}}"
    )
}

/// Tiles of a CTA, and CTAs.
const TILES: u32 = 3;
const CTAS: u32 = 2;

/// The kernel with random operands, and what C must be.
fn run(n: u32, stages: u32, accumulators: u32) -> (Run, Vec<f32>) {
    let (m, n, k) = ((128 * TILES * CTAS) as usize, n as usize, 3 * 64usize);
    let mut random = Random::new(n as u64 + u64::from(stages));
    let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| random.below(9) as f32 - 4.0).collect() };
    let (a, b) = (values(m * k), values(n * k));
    let half = |values: &[f32]| -> Vec<u16> { values.iter().map(|v| (v.to_bits() >> 16) as u16).collect() };
    let mut run = Run::new(&product(n as u32, stages, accumulators));
    run.map("a", &half(&a), &[m as u64, k as u64]).map("b", &half(&b), &[n as u64, k as u64]);
    run.tensor("c", &vec![0f32; m * n]).set("m", m as u32).set("k", k as u32).set("pitch", n as u64);
    run.set("ctas", CTAS).set("tiles", TILES);
    let expected = (0..m * n).map(|i| (0..k).map(|l| a[i / n * k + l] * b[i % n * k + l]).sum()).collect();
    (run, expected)
}

#[test]
fn products_are_right_under_every_schedule() {
    for (n, stages, accumulators) in [(64, 2, 2), (16, 3, 1), (128, 1, 3)] {
        let (mut run, expected) = run(n, stages, accumulators);
        assert_eq!(run.launch_everywhere(CTAS).read::<f32>("c"), expected, "128 x {n}, {stages} stages");
    }
}

/// Loops unrolled by the stages of the tiles: descriptors are constants.
#[test]
fn loops_over_stages_are_unrolled() {
    let (mut plain, expected) = run(64, 2, 2);
    let unrolled =
        product(64, 2, 2).replace("            for kb in", "            #[unroll(ab)]\n            for kb in");
    plain.compiled = Run::new(&unrolled).compiled;
    assert!(plain.compiled.ptx.matches("tcgen05.mma").count() >= 8, "{}", plain.compiled.ptx);
    assert_eq!(plain.launch_everywhere(CTAS).read::<f32>("c"), expected);
}

/// Two accumulators of one pipeline, slices along K, a second set of products ahead of the epilogue's read.
#[test]
fn slices_and_several_accumulators() {
    let source = product(32, 2, 1)
        .replace("d: tmem::<f32, 128, 32, 1>()", "d: tmem::<f32, 128, 32>(), e: tmem::<f32, 128, 32>()")
        .replace(
            "sum.d.mma(slot.a, slot.b);",
            "#[unroll]
                for i in 0..4 {
                    sum.d.mma(slot.a.k_slice(16 * i), slot.b.k_slice(16 * i));
                    sum.e.mma(slot.a.k_slice(16 * i), slot.b.k_slice(16 * (3 - i)));
                }",
        )
        .replace(
            "let values = sum.d.load_v::<16>(16 * i);",
            "let values = sum.d.load_v::<16>(16 * i) + sum.e.load_v::<16>(16 * i);",
        );
    let (m, n, k) = (128, 32, 64usize);
    let mut random = Random::new(7);
    let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| random.below(9) as f32 - 4.0).collect() };
    let (a, b) = (values(m * k), values(n * k));
    let half = |values: &[f32]| -> Vec<u16> { values.iter().map(|v| (v.to_bits() >> 16) as u16).collect() };
    let mut run = Run::new(&source);
    run.map("a", &half(&a), &[m as u64, k as u64]).map("b", &half(&b), &[n as u64, k as u64]);
    run.tensor("c", &vec![0f32; m * n]).set("m", m as u32).set("k", k as u32).set("pitch", n as u64);
    run.set("ctas", 1u32).set("tiles", 1u32);
    let term = |i: usize, l: usize| {
        let other = l % 16 + (3 - l / 16) * 16;
        a[i / n * k + l] * (b[i % n * k + l] + b[i % n * k + other])
    };
    let expected: Vec<f32> = (0..m * n).map(|i| (0..k).map(|l| term(i, l)).sum()).collect();
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), expected);
}

/// The codes that are reported under every schedule.
fn schedules(run: &mut Run) -> Vec<Code> {
    let one = |schedule: &Schedule| {
        let options = Options { schedule: *schedule, step_limit: 1_000_000, ..Options::default() };
        run.try_launch(CTAS, &options).err().map(|report| report.code)
    };
    Schedule::ALL.iter().filter_map(one).collect()
}

/// The codes that are reported for the kernel without the `which`th line that contains `piece`.
fn reports(run: &mut Run, piece: &str, which: usize) -> Vec<Code> {
    let text = run.compiled.ptx.clone();
    let found = text.lines().enumerate().filter(|(_, line)| line.contains(piece)).nth(which);
    let (at, _) = found.unwrap_or_else(|| panic!("`{piece}` {which}\n{text}"));
    run.compiled.ptx = text.lines().enumerate().filter(|(i, _)| *i != at).map(|(_, l)| format!("{l}\n")).collect();
    let codes = schedules(run);
    println!("without {piece} {which}: {codes:?}");
    run.compiled.ptx = text;
    codes
}

#[test]
fn what_tensor_memory_needs_is_not_missed() {
    let (mut run, _) = run(64, 2, 2);
    let count = |run: &Run, piece: &str| run.compiled.ptx.matches(piece).count();
    for (piece, times, code) in [
        // The stage of the tiles, and the accumulator.
        ("tcgen05.commit", 2, Code::Deadlock),
        ("mbarrier.arrive.shared", 1, Code::Deadlock),
        // Loads are waited for before their registers are read.
        ("tcgen05.wait::ld", 4, Code::Product),
        ("tcgen05.dealloc", 1, Code::TensorMemory),
        ("fence.mbarrier_init", 1, Code::Barrier),
    ] {
        assert_eq!(count(&run, piece), times, "{piece}\n{}", run.compiled.ptx);
        for which in 0..times {
            assert!(reports(&mut run, piece, which).contains(&code), "{piece} {which}\n{}", run.compiled.ptx);
        }
    }
    // Initialisations and addresses are published, and nothing is freed early.
    assert!(reports(&mut run, "bar.sync", 0).contains(&Code::Barrier));
    assert!(reports(&mut run, "bar.sync", 1).contains(&Code::Race));
    // Waits for tensor memory, and waits for its stages without waiting.
    assert_eq!(count(&run, "mbarrier.try_wait"), 4);
    let missed: Vec<usize> =
        (0..count(&run, "tcgen05.fence")).filter(|i| reports(&mut run, "tcgen05.fence", *i).is_empty()).collect();
    // Of the two ahead of products one is enough, and the epilogue has fenced its last reads before the end.
    assert_eq!(missed, [0, 1, 4], "{}", run.compiled.ptx);
    let text = run.compiled.ptx.clone();
    run.compiled.ptx = text.replacen("\ttcgen05.fence::after_thread_sync;\n", "", 1);
    assert!(reports(&mut run, "tcgen05.fence", 0).contains(&Code::Race));
    run.compiled.ptx = text;
    // A wait that goes on without its phase; with one accumulator, so that it is waited for.
    let (mut run, _) = self::run(64, 2, 1);
    for which in 0..4 {
        let text = run.compiled.ptx.clone();
        let wait = text.match_indices("mbarrier.try_wait").nth(which).expect("a wait").0;
        let branch = wait + text[wait..].find("bra.uni $L").expect("the loop");
        let end = branch + text[branch..].find(';').expect("its end");
        run.compiled.ptx = format!("{}mov.b32 %r0, %r0{}", &text[..branch], &text[end..]);
        let codes = schedules(&mut run);
        println!("without wait {which}: {codes:?}");
        assert!(!codes.is_empty(), "wait {which}");
        run.compiled.ptx = text;
    }
}

#[test]
fn wrong_uses_of_tensor_memory_are_errors() {
    let plain = product(64, 2, 2);
    for (from, to, code) in [
        ("tmem::<f32, 128, 64, 2>", "tmem::<f32, 128, 64, 16>", 521),
        ("tmem::<f32, 128, 64, 2>", "tmem::<f32, 64, 64, 2>", 920),
        ("tmem::<f32, 128, 64, 2>", "tmem::<f32, 128, 40, 2>", 920),
        ("tmem::<f32, 128, 64, 2>", "tmem::<bf16, 128, 64, 2>", 920),
        ("{ d: tmem", "{ x: smem::<bf16, Shape<128, 64>, Swizzle<128>, 2>(), d: tmem", 920),
        ("let sum = sums.wait();", "let sum = sums.wait(); sum.release();", 654),
        ("sum.commit();", "", 654),
        ("#[role(math)]\n        #[elect_one]", "#[role(math)]", 920),
        ("sum.d.load_v::<16>(16 * i)", "sum.d.load_v::<16>(16 * i + 49)", 154),
        ("sum.d.load_v::<16>(16 * i)", "sum.d.load_v::<12>(16 * i)", 451),
        ("sum.d.load_v::<16>(16 * i)", "sum.d.load_v::<16>(lane)", 350),
        ("sum.d.mma(slot.a, slot.b);", "sum.d.mma(slot.b, slot.a);", 902),
        ("sum.d.mma(slot.a, slot.b);", "sum.d.mma(slot.a.k_slice(0), slot.b);", 902),
        ("epilogue = 0..4, load = 4..5, math = 5..6", "load = 0..1, epilogue = 1..5, math = 5..6", 905),
        ("let ab =", "if tiles == 0 { return; } let ab =", 921),
        ("arch = sm_100f", "arch = sm_90a", 1050),
    ] {
        assert!(plain.contains(from), "{from}");
        assert_eq!(error_of(&plain.replace(from, to)), code, "{to}");
    }
}

/// Threads store the tiles: fenced ahead of the products.
#[test]
fn operands_that_threads_store() {
    let source = product(64, 2, 2)
        .replace("(m, k)] a: TensorMap<bf16, Shape<128, 64>, Swizzle<128>>", "(m, 64)] a: Global<bf16>")
        .replace("(64, k)] b: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>", "(64, 64)] b: Global<bf16>")
        .replace("tiles: u32,", "tiles: u32, k: u32,")
        .replace("#[role(load)]\n        #[elect_one]", "#[role(load)]")
        .replace(
            "slot.a.tma_load(a, [(ctaid.x * tiles + tile) * 128, kb * 64]);",
            "for i in (lane..128 * 64).step_by(32) {
                    let row = (ctaid.x * tiles + tile) * 128 + i / 64;
                    slot.a[[i / 64, i % 64]] = a.at([row, kb * 64 + i % 64]).load();
                }",
        )
        .replace(
            "slot.b.tma_load(b, [0, kb * 64]);",
            "for i in (lane..64 * 64).step_by(32) {
                    slot.b[[i / 64, i % 64]] = b.at([i / 64, kb * 64 + i % 64]).load();
                }",
        );
    let (m, n, k) = ((128 * TILES * CTAS) as usize, 64, 64usize);
    let mut random = Random::new(11);
    let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| random.below(9) as f32 - 4.0).collect() };
    let (a, b) = (values(m * k), values(n * k));
    let half = |values: &[f32]| -> Vec<u16> { values.iter().map(|v| (v.to_bits() >> 16) as u16).collect() };
    let mut run = Run::new(&source);
    run.tensor("a", &half(&a)).tensor("b", &half(&b)).tensor("c", &vec![0f32; m * n]);
    run.set("m", m as u32).set("k", k as u32).set("pitch", n as u64).set("ctas", CTAS).set("tiles", TILES);
    let expected: Vec<f32> = (0..m * n).map(|i| (0..k).map(|l| a[i / n * k + l] * b[i % n * k + l]).sum()).collect();
    assert_eq!(run.launch_everywhere(CTAS).read::<f32>("c"), expected);
    assert!(!reports(&mut run, "fence.proxy.async", 0).is_empty(), "{}", run.compiled.ptx);
}
