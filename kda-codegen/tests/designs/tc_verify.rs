//! The verify of draft tokens, as `kda-kernels` has it for Hopper and for every architecture from sm_80 on, on the simulator:
//! against the recurrence in f64. What lies around rows, slots and records is no number in inputs and a pattern in results.

mod problem;
mod reference;
mod strided;

use super::harness::{Run, assemble};
use kda_codegen::check::protocol::Verdict;
use kda_codegen::compiled::Compiled;
use kda_sim::{Options, Schedule};
use problem::{
    Conv, DRAFT, Form, HOPPER_PLAIN, Kernel, PORTABLE, PORTABLE_PLAIN, Problem, SOLVE, THREADS, variant, variant_of,
};
use reference::rounded;

/// Offsets whose requests have 8, 3, no, 5, 1 and 8 tokens.
const STARTS: [i32; 7] = [0, 8, 11, 11, 16, 17, 25];
/// Slots of these requests; one is null.
const SLOTS_OF: [i32; 6] = [3, 1, 2, 0, 6, 5];

const CONVS: [(Conv, bool); 5] = [
    (Conv::None, false),
    (Conv::TokenMajor, false),
    (Conv::TokenMajor, true),
    (Conv::ChannelMajor, false),
    (Conv::ChannelMajor, true),
];

/// Every variant of both kernels, but those of Hopper's that know 12 heads.
fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for (conv, f32_taps) in CONVS {
        for softplus in [false, true] {
            let plain = Form { conv, f32_taps, softplus, ..PORTABLE_PLAIN };
            for (tokens, wide) in [(8, false), (8, true), (16, false), (16, true)] {
                if tokens == 8 || !softplus {
                    forms.push(Form { kernel: Kernel::Portable { tokens, wide }, ..plain });
                }
            }
            let hopper = |boxes, early| Kernel::Hopper { known: 0, boxes, early, ctas: 4, counted: true };
            let of_hopper = match conv {
                Conv::ChannelMajor => vec![hopper(false, false), hopper(false, true)],
                _ => vec![hopper(true, false), hopper(true, true), hopper(false, false)],
            };
            forms.extend(of_hopper.into_iter().map(|kernel| Form { kernel, ..plain }));
        }
    }
    forms
}

/// Runs and compares; prints the error of u.
fn check(problem: &Problem) {
    let mut run = run_of(problem);
    run.launch(problem.grid());
    println!("{:?}: {:.1e}", problem.form, problem.compare(&run));
}

fn run_of(problem: &Problem) -> Run {
    problem.arguments(variant(problem.form))
}

/// Every variant of the portable kernel assembles without a spill; two CTAs of 8 tokens with states of bf16 and the bounded
/// gate fit a multiprocessor of sm_86, which keeps 1 KiB of its 100 for each.
#[test]
fn assembles_within_the_budget() {
    for form in forms() {
        let compiled = variant(form);
        assert_eq!(compiled.protocol, Verdict::Proved, "{}", compiled.entry);
        if let Kernel::Portable { .. } = form.kernel {
            assert!(compiled.shared_bytes <= 101_376, "{}: {} bytes", compiled.entry, compiled.shared_bytes);
            println!("{}: {} bytes of shared memory", compiled.entry, compiled.shared_bytes);
            if compiled.entry.contains("tokens8") && compiled.entry.ends_with("nosoftplus_bf16") {
                assert!(2 * (compiled.shared_bytes + 1024) <= 102_400, "{} bytes", compiled.shared_bytes);
            }
            assemble(&compiled);
        }
    }
}

/// Lengths from 0 to 8, a null slot, histories of every age.
#[test]
fn computes_the_recurrence() {
    for (salt, form) in forms().into_iter().enumerate() {
        let problem = Problem::new(&STARTS, &SLOTS_OF, form, 600 + salt as u64);
        check(&problem);
    }
}

/// All windows, and in each all lengths.
#[test]
fn windows_of_every_size() {
    let wide = Form {
        kernel: Kernel::Portable { tokens: 8, wide: true },
        conv: Conv::ChannelMajor,
        softplus: true,
        ..PORTABLE_PLAIN
    };
    for window in 1..=8 {
        for form in [PORTABLE_PLAIN, wide, HOPPER_PLAIN, THREADS] {
            let lengths: Vec<i32> = (0..=window).collect();
            let starts: Vec<i32> = (0..=lengths.len()).map(|n| lengths[..n].iter().sum()).collect();
            let slots: Vec<i32> = (1..=lengths.len() as i32).collect();
            let form = Form { window: window as usize, heads: 1, ..form };
            check(&Problem::new(&starts, &slots, form, 650 + window as u64));
        }
    }
}

/// Windows of up to 16 tokens, and lengths around the blocks of 8.
#[test]
fn windows_of_sixteen() {
    let long = |wide: bool, form: Form| Form { kernel: Kernel::Portable { tokens: 16, wide }, ..form };
    let starts = [0, 16, 25, 25, 33, 48, 55, 56];
    let slots = [1, 2, 3, 4, 5, 6, 7];
    let forms = [
        long(false, PORTABLE_PLAIN),
        long(true, Form { f32_taps: true, ..PORTABLE_PLAIN }),
        long(true, Form { conv: Conv::None, ..PORTABLE_PLAIN }),
        long(false, Form { conv: Conv::ChannelMajor, padded: false, ..PORTABLE_PLAIN }),
    ];
    for (salt, form) in forms.into_iter().enumerate() {
        for window in [16, 11] {
            let mut problem = Problem::new(&starts, &slots, Form { window, ..form }, 660 + salt as u64);
            (problem.accepted[0], problem.accepted[1]) = (16, 11);
            problem.settle();
            let mut run = run_of(&problem);
            run.launch_everywhere(problem.grid());
            println!("{form:?}: {:.1e}", problem.compare(&run));
        }
    }
}

/// Several heads share one of q and k.
#[test]
fn shared_keys() {
    let shared = Form { conv: Conv::None, heads: 6, per_key_head: 3, ..PORTABLE_PLAIN };
    let wide = Kernel::Portable { tokens: 8, wide: true };
    let long = Kernel::Portable { tokens: 16, wide: false };
    let forms = [
        shared,
        Form { kernel: wide, softplus: true, heads: 4, per_key_head: 4, ..shared },
        Form { kernel: long, heads: 4, per_key_head: 2, padded: false, ..shared },
    ];
    for (salt, form) in forms.into_iter().enumerate() {
        check(&Problem::new(&STARTS, &SLOTS_OF, form, 680 + salt as u64));
    }
}

/// Any number of heads, dense tensors, a null that is no slot.
#[test]
fn heads_and_strides() {
    let hopper = |known: u32, heads: u32, ctas: u32, counted: bool| Form {
        kernel: Kernel::Hopper { known, boxes: known == 0, early: known != 0, ctas: ctas * heads, counted },
        heads: heads as usize,
        padded: false,
        null: -1,
        ..HOPPER_PLAIN
    };
    let portable = Form { heads: 3, padded: false, null: -1, ..PORTABLE_PLAIN };
    let forms = [
        portable,
        Form { kernel: Kernel::Portable { tokens: 8, wide: true }, conv: Conv::ChannelMajor, ..portable },
        Form { heads: 1, conv: Conv::None, ..portable },
        // The fixed order and drawn items, more and fewer CTAs than items.
        hopper(0, 3, 1, true),
        hopper(0, 1, 3, false),
        hopper(0, 2, 8, true),
        hopper(12, 12, 2, true),
        Form { softplus: true, f32_taps: true, ..hopper(12, 12, 3, false) },
    ];
    for (salt, form) in forms.into_iter().enumerate() {
        check(&Problem::new(&STARTS, &SLOTS_OF, form, 670 + salt as u64));
    }
}

/// Offsets that are none of the batch, more tokens than a window, slots that there are not, accepted counts out of range.
#[test]
fn metadata_of_any_kind() {
    let starts = [0, 8, -1, 11, 14, 9, 9, 2000, 16, 17, 27, 29, 31, 36];
    let slots = [3, 2, 4, 10, 7, 7, 8, 9, 5, 1, -3, 0, 6];
    let wide = Form { kernel: Kernel::Portable { tokens: 8, wide: true }, softplus: true, ..PORTABLE_PLAIN };
    let forms = [
        PORTABLE_PLAIN,
        Form { conv: Conv::None, null: -1, ..PORTABLE_PLAIN },
        Form { window: 5, conv: Conv::ChannelMajor, ..wide },
        HOPPER_PLAIN,
        THREADS,
        Form { window: 5, conv: Conv::ChannelMajor, null: -1, ..THREADS },
        Form { window: 5, null: -1, ..HOPPER_PLAIN },
        Form { conv: Conv::None, ..HOPPER_PLAIN },
    ];
    for (salt, form) in forms.into_iter().enumerate() {
        let mut problem = Problem::new(&starts, &slots, form, 690 + salt as u64);
        (problem.accepted[0], problem.accepted[8], problem.accepted[9], problem.accepted[12]) = (0, 100, i32::MIN, 9);
        problem.settle();
        check(&problem);
    }
}

/// The same bits under every schedule.
#[test]
fn under_every_schedule() {
    let wide = Form { kernel: Kernel::Portable { tokens: 8, wide: true }, ..PORTABLE_PLAIN };
    let hopper = |boxes| Kernel::Hopper { known: 0, boxes, early: true, ctas: 2, counted: true };
    let forms = [
        PORTABLE_PLAIN,
        Form { softplus: true, conv: Conv::ChannelMajor, f32_taps: true, ..wide },
        Form { conv: Conv::None, ..wide },
        Form { kernel: hopper(true), ..HOPPER_PLAIN },
        Form { kernel: hopper(true), softplus: true, conv: Conv::None, ..HOPPER_PLAIN },
        Form { kernel: hopper(false), softplus: true, conv: Conv::ChannelMajor, f32_taps: true, ..HOPPER_PLAIN },
    ];
    for (salt, form) in forms.into_iter().enumerate() {
        let problem = Problem::new(&STARTS, &SLOTS_OF, form, 700 + salt as u64);
        let mut run = run_of(&problem);
        run.launch_everywhere(problem.grid());
        problem.compare(&run);
    }
}

/// Gates from where nothing decays to where nothing is left, and rates from 0 to infinity.
#[test]
fn gates_of_any_size() {
    let gates = [-1e30f64, -90.0, -60.0, -30.0, -17.0, -14.0, -10.5, -6.0, -2.0, 0.0, 1.0, 19.0, 21.0, 87.0, 1e30];
    let long = Form { kernel: Kernel::Portable { tokens: 16, wide: false }, window: 16, ..PORTABLE_PLAIN };
    for form in [PORTABLE_PLAIN, HOPPER_PLAIN, long] {
        for softplus in [false, true].into_iter().filter(|softplus| !softplus || form.window == 8) {
            for (salt, a_log) in [-1000.0, -90.0, -3.0, 2.7, 6.0, 13.1, 40.0, 87.0].into_iter().enumerate() {
                let form = Form { heads: 1, softplus, ..form };
                let mut problem = Problem::new(&[0, 8, 8 + form.window as i32], &[1, 2], form, 710 + salt as u64);
                problem.a_log = vec![a_log];
                // A third of the channels have any gates, the others those that only high rates feel.
                let mut n = 0;
                problem.gate.fill(|| {
                    let (token, channel) = (n / 128, n % 128);
                    n += 1;
                    rounded(gates[(token + 7 * channel) % [gates.len(), 8, 7][channel % 3]])
                });
                check(&problem);
            }
        }
    }
}

/// Without rates they are 1.
#[test]
fn rates_may_be_absent() {
    for form in [PORTABLE_PLAIN, HOPPER_PLAIN] {
        let mut problem = Problem::new(&[0, 4], &[1], Form { softplus: true, ..form }, 730);
        problem.a_log.fill(0.0);
        let mut run = run_of(&problem);
        run.set("a_log", 0u64).launch(problem.grid());
        problem.compare(&run);
    }
}

/// The tokens of a neighbour: NaN in them changes no bit of a request.
#[test]
fn neighbours_do_not_matter() {
    for form in [PORTABLE_PLAIN, HOPPER_PLAIN, THREADS] {
        for softplus in [false, true] {
            let form = Form { softplus, padded: false, ..form };
            let results = [false, true].map(|poisoned| {
                let mut problem = Problem::new(&[0, 3, 8, 11], &[1, 2, 3], form, 740);
                if poisoned {
                    let row = problem.qkv.strides[0];
                    problem.qkv.memory[3 * row..8 * row].fill(0x7fff);
                    let row = problem.gate.strides[0];
                    problem.gate.memory[3 * row..8 * row].fill(0x7fff);
                }
                let mut run = run_of(&problem);
                run.launch(problem.grid());
                let (u, out) = (run.read::<f32>("corr"), run.read::<u16>("out"));
                let (record, row) = (u.len() / 3, out.len() / 11);
                let u: Vec<u32> = u[..record].iter().chain(&u[2 * record..]).map(|u| u.to_bits()).collect();
                (u, [&out[..3 * row], &out[8 * row..]].concat())
            });
            assert!(results[0] == results[1], "{form:?}");
        }
    }
}

/// Hopper: what the source writes between two products stands between them.
#[test]
fn the_solve_is_under_the_products() {
    let compiled = variant(HOPPER_PLAIN);
    let pieces: Vec<&str> = compiled.ptx.split("wgmma.mma_async").collect();
    assert_eq!(pieces.len(), 17, "8 steps of two blocks of 64 rows");
    let between = |what: &str| pieces[1..16].iter().map(|piece| piece.matches(what).count()).collect::<Vec<_>>();
    // Loads behind the first step, norms behind the third, two columns of the inverse behind each of the next.
    assert_eq!(between("ld.shared"), [0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(between("shfl.sync"), [0, 0, 0, 0, 0, 5, 0, 6, 0, 6, 0, 6, 0, 3, 0]);
    assert_eq!(compiled.ptx.matches("wgmma.fence").count(), 1);
}

/// The derived fence and every barrier of an item are needed.
#[test]
fn nothing_is_fenced_in_vain() {
    let hopper = |boxes: bool| Form {
        kernel: Kernel::Hopper { known: 0, boxes, early: false, ctas: 2, counted: true },
        ..HOPPER_PLAIN
    };
    let softplus = Form { softplus: true, ..PORTABLE_PLAIN };
    let removals = [
        (hopper(false), "fence.proxy.async", 0),
        (hopper(false), "bar.sync", 1),
        (hopper(false), "bar.sync", 2),
        // The first is for time alone: lanes that are not elected meet the one that is ahead of the wait for the predecessor.
        (hopper(false), "bar.warp.sync", 1),
        (hopper(true), "fence.proxy.async", 0),
        (hopper(true), "bar.sync", 1),
        (hopper(true), "bar.sync", 2),
        (hopper(true), "wait_group.read", 0),
        (PORTABLE_PLAIN, "bar.sync", 0),
        (PORTABLE_PLAIN, "bar.sync", 1),
        // The first is at the hand-over of copies, which count by themselves.
        (PORTABLE_PLAIN, "bar.warp.sync", 1),
        (PORTABLE_PLAIN, "cp.async.mbarrier", 0),
        (softplus, "bar.warp.sync", 1),
    ];
    for (form, what, which) in removals {
        let problem = Problem::new(&[0, 8, 11], &[3, 1], form, 750);
        let mut run = run_of(&problem);
        let lines: Vec<&str> = run.compiled.ptx.lines().collect();
        let at = lines.iter().enumerate().filter(|(_, line)| line.contains(what)).nth(which);
        let (at, _) = at.unwrap_or_else(|| panic!("{form:?} has no {what} {which}"));
        run.compiled.ptx = [&lines[..at], &lines[at + 1..]].concat().join("\n");
        let caught = Schedule::ALL.iter().any(|schedule| {
            run.try_launch(problem.grid(), &Options { schedule: *schedule, ..Options::default() }).is_err()
        });
        assert!(caught, "{form:?}: {what} {which}");
    }
}

/// What the checks above are for: with any one of these faults they fail.
#[test]
fn faults_are_found() {
    let wide = Form { kernel: Kernel::Portable { tokens: 8, wide: true }, ..PORTABLE_PLAIN };
    let channel = Form { conv: Conv::ChannelMajor, ..PORTABLE_PLAIN };
    let f32_taps = Form { f32_taps: true, ..PORTABLE_PLAIN };
    let softplus = Form { softplus: true, ..PORTABLE_PLAIN };
    let shared = Form { conv: Conv::None, per_key_head: 2, heads: 2, ..PORTABLE_PLAIN };
    let long = Form { kernel: Kernel::Portable { tokens: 16, wide: false }, window: 16, ..PORTABLE_PLAIN };
    let faults = [
        (PORTABLE_PLAIN, "low[block].mma(s, lost)", "low[block].mma(s, p)"),
        (PORTABLE_PLAIN, "place % 8 * 2 + place / 8 % 2", "place % 16"),
        (PORTABLE_PLAIN, "if !live {", "if len == 0 {"),
        (PORTABLE_PLAIN, "        cta_sync();\n", ""),
        (wide, "low[block].mma(rest, p);", ""),
        (wide, "row + 2 * g + n / 2", "row + g + 8 * (n / 2)"),
        (PORTABLE_PLAIN, "(slot > null) & (slot < slots as i32) &", "(slot > null) &"),
        (PORTABLE_PLAIN, "(slot > null) & (slot < slots as i32) &", "(slot >= null) & (slot < slots as i32) &"),
        (
            PORTABLE_PLAIN,
            "(begin >= 0) & (begin <= end) & (end <= total as i32)",
            "(begin >= 0) & (end <= total as i32)",
        ),
        (PORTABLE_PLAIN, "(begin >= 0) & (begin <= end) & (end <= total as i32)", "(begin >= 0) & (begin <= end)"),
        (
            PORTABLE_PLAIN,
            "(begin >= 0) & (begin <= end) & (end <= total as i32)",
            "(begin <= end) & (end <= total as i32)",
        ),
        (PORTABLE_PLAIN, "0) as u32, window);", "0) as u32, 4);"),
        (
            PORTABLE_PLAIN,
            "min(max(accepted.at([req]).load_if(on), 1), window as i32)",
            "max(accepted.at([req]).load_if(on), 1)",
        ),
        (
            PORTABLE_PLAIN,
            "min(max(accepted.at([req]).load_if(on), 1), window as i32)",
            "min(accepted.at([req]).load_if(on), window as i32)",
        ),
        (PORTABLE_PLAIN, "select(sound, end - begin, 0) as u32, window)", "select(sound, end - begin, 0) as u32, 8)"),
        (PORTABLE_PLAIN, "bf16::rn(both(window[i]) * both(taps[i]))", "bf16::rn(both(window[i]) * both(taps[3 - i]))"),
        (f32_taps, "f32::from_bits(taps[4 + i])", "f32::from_bits(taps[i])"),
        (PORTABLE_PLAIN, "row < len + 2", "row < 10"),
        (channel, "(old[1 + j][x], j)", "(old[j][x], j)"),
        (PORTABLE_PLAIN, "-(beta_t[R] * rk_t[R])", "-beta_t[R]"),
        (PORTABLE_PLAIN, "select(i + e <= t, factor", "select(i + e < t, factor"),
        (PORTABLE_PLAIN, "token < len", "token < 8"),
        (shared, "head / per_key_head", "head"),
        (long, "(block + 1) / 2 * ACROSS + block / 2", "block"),
        (long, "sums[R + C][e]", "sums[R][e]"),
        (long, "8 * n + i + e, 32 * block", "i + e, 32 * block"),
        (long, "const C: u32 = n % ACROSS;\n            from_fn", "const C: u32 = 0;\n            from_fn"),
        (long, "begin + (MINE - 3) + j", "begin + 1 + j"),
        (softplus, "w[i] = w[i] * fall;", ""),
        (softplus, "sums + shfl_xor(sums, 2)", "sums"),
    ];
    let compare = |form: Form, compiled: Compiled| {
        let starts = [0, 5, 8, -1, 11, 14, 14, 2000, 16, 17, 27, 29, 31, 47];
        let slots = [3, 2, 4, 7, 10, 7, 8, 9, 5, 1, -3, 0, 6];
        let mut problem = Problem::new(&starts, &slots, form, 760);
        (problem.accepted[0], problem.accepted[8], problem.accepted[9]) = (0, 100, 5);
        problem.settle();
        let mut run = problem.arguments(compiled);
        run.launch_everywhere(problem.grid());
        problem.compare(&run);
    };
    for (form, from, to) in faults {
        assert!([DRAFT, SOLVE, PORTABLE].iter().any(|text| text.contains(from)), "{from}");
        let window = if form.window == 8 { 5 } else { 16 };
        let form = Form { window, heads: form.per_key_head, ..form };
        compare(form, variant(form));
        let changed = variant_of(form, |text| text.replace(from, to));
        let found = std::panic::catch_unwind(|| compare(form, changed));
        assert!(found.is_err(), "`{to}` instead of `{from}`");
    }
}
