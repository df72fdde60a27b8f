//! The portable recurrence of chunked delta attention, as `kda-kernels` has it, on the simulator. Inputs are random; results
//! are compared with the recurrence in f64, and the error allowed is twice that of an emulation which rounds where the
//! contract rounds. What lies in memory around the rows, states and chunks of a sequence is NaN.

mod problem;

use super::delta_h::D;
use super::harness::{Run, assemble, try_compile};
use kda_codegen::check::protocol::Verdict;
use problem::{Form, Gate, KERNEL, LENGTHS, PLAIN, Problem, turned, used, variant, variant_of, with_library};

const SCHEDULE: &str = include_str!("../../../kda-kernels/src/families/delta_h/schedule.rs");

#[test]
fn assembles_within_the_budget() {
    for compiled in try_compile(&KERNEL).unwrap_or_else(|errors| panic!("{}", errors[0].text())) {
        assert_eq!(compiled.protocol, Verdict::Proved, "{}", compiled.entry);
        assert!(compiled.shared_bytes <= 101_376, "{}: {} bytes", compiled.entry, compiled.shared_bytes);
        println!("{}: {} bytes of shared memory", compiled.entry, compiled.shared_bytes);
        assemble(&compiled);
    }
}

/// Lengths around the chunk, none, and several chunks; more items than CTAs, and fewer.
#[test]
fn computes_the_recurrence() {
    let forms = [
        PLAIN,
        Form { v_first: true, heads: 2, ctas: 5, initial_k_first: false, ..PLAIN },
        Form { gate: Gate::Decays, narrow: true, slots: true, final_k_first: false, every: 2, ctas: 20, ..PLAIN },
        Form { gate: Gate::Scalar, heads: 2, per_key_head: 2, initial: false, ..PLAIN },
        Form { gate: Gate::Scalar, v_first: true, slots: true, every: 3, ctas: 40, ..PLAIN },
        Form { vs: 32, heads: 2, slots: true, ctas: 7, ..PLAIN },
        Form { vs: 32, v_first: true, gate: Gate::Decays, narrow: true, initial_k_first: false, ..PLAIN },
        Form { vs: 32, gate: Gate::Scalar, h: false, final_k_first: false, ..PLAIN },
        Form { vs: 32, gate: Gate::Scalar, v_first: true, v_new: false, per_key_head: 2, heads: 2, ..PLAIN },
        Form { v_new: false, h: false, initial: false, ..PLAIN },
    ];
    for (salt, form) in forms.into_iter().enumerate() {
        println!("{form:?}");
        let problem = Problem::new(&LENGTHS, form, 500 + salt as u64);
        let mut run = problem.arguments(variant(form));
        run.launch(form.ctas);
        problem.compare(&run);
    }
}

/// The same bits under every schedule.
#[test]
fn under_every_schedule() {
    for vs in [64, 32] {
        for (gate, v_first) in [(Gate::Cumulative, false), (Gate::Scalar, true)] {
            let form = Form { vs, gate, v_first, ctas: 2, ..PLAIN };
            let problem = Problem::new(&[65, 0, 130, 1], form, 510);
            let mut run = problem.arguments(variant(form));
            run.launch_everywhere(2);
            problem.compare(&run);
        }
    }
}

/// Orders in memory, of states and of `h`, change no bit of a number.
#[test]
fn orders_change_no_bit() {
    for vs in [64, 32] {
        let results = [true, false].map(|k_first| {
            let form = Form { vs, v_first: !k_first, initial_k_first: k_first, final_k_first: k_first, ..PLAIN };
            let problem = Problem::new(&[65, 130], form, 520);
            let mut run = problem.arguments(variant(form));
            run.launch(form.ctas);
            let (h, _) = used(&run.read::<u16>("h"), D * D, 5 * D * D);
            let (last, _) = used(&run.read::<f32>("final_f32"), D * D, 2 * D * D);
            let h: Vec<u16> = h.chunks(D * D).flat_map(|s| turned(s, k_first)).collect();
            let last: Vec<u32> = last.chunks(D * D).flat_map(|s| turned(s, k_first)).map(f32::to_bits).collect();
            (h, last, run.read::<u16>("v_new"))
        });
        assert!(results[0] == results[1], "slices of {vs}");
    }
}

/// Rows of a neighbour, before or behind: NaN in them changes no bit of a sequence.
#[test]
fn neighbours_do_not_matter() {
    for (vs, gate) in [(64, Gate::Cumulative), (32, Gate::Scalar)] {
        for (own, other) in [(0, 65..135), (1, 0..65)] {
            let form = Form { vs, gate, v_first: true, ..PLAIN };
            let results = [false, true].map(|poisoned| {
                let mut problem = Problem::new(&[65, 70], form, 530);
                if poisoned {
                    for tensor in [&mut problem.w, &mut problem.kg, &mut problem.u] {
                        tensor[other.start * D..other.end * D].fill(f32::NAN);
                    }
                    let width = problem.gate.len() / (problem.used + 3);
                    problem.gate[other.start * width..other.end * width].fill(f32::NAN);
                }
                let mut run = problem.arguments(variant(form));
                run.launch(form.ctas);
                let (h, _) = used(&run.read::<u16>("h"), D * D, 4 * D * D);
                let (v_new, _) = used(&run.read::<u16>("v_new"), D, 135 * D);
                let (last, _) = used(&run.read::<f32>("final_f32"), D * D, 2 * D * D);
                let last: Vec<u32> = last.iter().map(|x| x.to_bits()).collect();
                let rows = if own == 0 { 0..65 } else { 65..135 };
                (
                    h[2 * own * D * D..2 * (own + 1) * D * D].to_vec(),
                    v_new[rows.start * D..rows.end * D].to_vec(),
                    last[own * D * D..(own + 1) * D * D].to_vec(),
                )
            });
            assert!(results[0] == results[1], "slices of {vs}, sequence {own}");
        }
    }
}

/// Final states in the memory of the initial ones.
#[test]
fn pools_are_updated_in_place() {
    let form = Form { slots: true, v_first: true, ..PLAIN };
    let problem = Problem::new(&[64, 0, 65, 1, 2, 130], form, 540);
    let mut apart = problem.arguments(variant(form));
    apart.launch(form.ctas);
    let mut shared = problem.arguments(variant(form));
    shared.same("final_f32", "initial_f32").launch(form.ctas);
    let (want, got) = (apart.read::<f32>("final_f32"), shared.read::<f32>("initial_f32"));
    let before = problem.arguments(variant(form)).read::<f32>("initial_f32");
    for ((want, got), before) in want.iter().zip(&got).zip(&before) {
        // What is not written stays.
        let want = if want.is_nan() { before } else { want };
        assert_eq!(want.to_bits(), got.to_bits());
    }
}

/// An infinite state gives what it gives in f32: rows behind the end, which are zero, make no NaN of it.
#[test]
fn infinities_stay_in_their_rows() {
    for vs in [64, 32] {
        let form = Form { vs, ..PLAIN };
        let mut problem = Problem::new(&[1], form, 550);
        problem.pool[5] = f32::INFINITY;
        let mut run = problem.arguments(variant(form));
        run.launch(form.ctas);
        let (got, _) = used(&run.read::<f32>("final_f32"), D * D, D * D);
        for (got, want) in got.iter().zip(&problem.emulation().last[0]) {
            assert_eq!((got.is_nan(), got.is_infinite()), (want.is_nan(), want.is_infinite()));
            assert!(got.is_nan() || got.is_sign_negative() == want.is_sign_negative() || got.abs() < 1e-3);
        }
    }
}

/// What the checks above are for: with any one of these faults they fail.
#[test]
fn faults_are_found() {
    let cumulative = Form { ctas: 4, ..PLAIN };
    let scalar = Form { gate: Gate::Scalar, v_first: true, ctas: 4, ..PLAIN };
    let shared = Form { vs: 32, slots: true, every: 2, ctas: 4, ..PLAIN };
    let faults = [
        (cumulative, "from + 4 * i < end, w.at(", "true, w.at("),
        (cumulative, "from + 4 * i < end, source", "true, source"),
        (cumulative, "store_v_if(row + t < end, out)", "store_v_if(row + t < end + 1, out)"),
        (cumulative, "pair * two", "pair + two * 0.0"),
        (cumulative, "min(next + BT, end) - 1", "next + BT - 1"),
        (cumulative, "                warp_sync();\n\n", "\n"),
        (cumulative, "                        warp_sync();\n", ""),
        (
            cumulative,
            "            ins.restart();\n            let (thread, key_head)",
            "            let (thread, key_head)",
        ),
        (cumulative, "from.widen() - Frag", "from.widen() + Frag"),
        (scalar, "e * slot.factors[[t]]", "e"),
        (scalar, "s[j] * slot.factors[[BT]]", "s[j]"),
        (shared, "skipped + 1 == every", "skipped + 2 == every"),
        (shared, "warp ^ 1", "warp"),
        (shared, "role_sync();\n                    let other", "let other"),
        (shared, "let own = p;\n                    role_sync();", "let own = p;"),
        (shared, "states::wanted_slot(initial_slots, has_initial, n,", "states::slot_of(initial_slots, n,"),
        (
            shared,
            "states::slot_of(final_slots, n, slots_out, null)",
            "states::slot_of(final_slots, n, slots_out, null - 1)",
        ),
        (shared, "part == 0, all", "part == 1, all"),
    ];
    for (form, from, to) in faults {
        assert_eq!(KERNEL.matches(from).count().min(1), 1, "{from}");
        let problem = Problem::new(&LENGTHS, form, 560);
        let found = std::panic::catch_unwind(|| {
            let mut run = problem.arguments(variant_of(&KERNEL.replace(from, to), form));
            run.launch_everywhere(form.ctas);
            problem.compare(&run);
        });
        assert!(found.is_err(), "`{to}` instead of `{from}`");
    }
}

/// The list that the schedule kernel writes is understood, and is the one that the other tests make.
#[test]
fn the_schedule_kernel_makes_the_list() {
    let form = Form { every: 2, ctas: 3, ..PLAIN };
    let problem = Problem::new(&LENGTHS, form, 570);
    let seqs = LENGTHS.len() as u32;
    // In one text the contracts of files are comments.
    let source = with_library(SCHEDULE);
    let mut schedule = Run::of(try_compile(&source).unwrap_or_else(|errors| panic!("{}", errors[0].text())).remove(0));
    let cu: Vec<i32> = (0..=LENGTHS.len()).map(|n| LENGTHS[..n].iter().sum::<usize>() as i32).collect();
    let words = 16 + 8 * seqs;
    schedule.tensor("cu", &cu).tensor("work_list", &vec![0u32; words as usize]);
    schedule.set("boundaries", seqs + 1).set("words", words).set("seqs", seqs).set("rows", problem.used as u32);
    schedule.set("capacity", 1000u32).set("every", form.every as u32);
    schedule.set("longest", u32::MAX).set("most", 1u32).set("fewest", 2u32).set("least", 16u32);
    schedule.set("first_eighths", 8u32).set("most_segments", 0u32).launch(1);
    let list = schedule.read::<u32>("work_list");
    let entries = |list: &[u32]| {
        let mut entries: Vec<Vec<u32>> = list[16..].chunks(8).map(<[u32]>::to_vec).collect();
        entries.sort();
        entries
    };
    assert_eq!((list[0], list[3]), (seqs, 0));
    assert_eq!(entries(&list), entries(&problem.schedule()));
    let mut run = problem.arguments(variant(form));
    run.tensor("schedule", &list).launch(form.ctas);
    problem.compare(&run);
}

/// Only the last segment of a sequence writes its final state.
#[test]
fn an_entry_that_is_not_the_last_leaves_the_final_state() {
    let problem = Problem::new(&[65], PLAIN, 580);
    let mut list = problem.schedule();
    list[16 + 6] &= !(1 << 31);
    let mut run = problem.arguments(variant(PLAIN));
    run.tensor("schedule", &list).launch(PLAIN.ctas);
    assert!(run.read::<f32>("final_f32").iter().all(|x| x.is_nan()));
    assert!(used(&run.read::<u16>("v_new"), D, 65 * D).0.iter().all(|x| *x != super::delta_h::CANARY));
}
