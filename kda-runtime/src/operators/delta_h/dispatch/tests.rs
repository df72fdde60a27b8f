//! Plans over memory that does not exist.

use super::*;
use crate::operators::capability::{Capability, HOPPER};
use crate::operators::delta_h::samples::{dense, matrices, problem, restrided, strided};
use kda_core::PreparedLaunch;

fn scalar(launch: &PreparedLaunch, name: &str) -> u32 {
    let param = launch.desc.param(name).expect("the parameter exists");
    let at = param.offset as usize;
    let bytes = &launch.params[at..at + param.bytes as usize];
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn variant(launch: &PreparedLaunch) -> Variant {
    Variant::of(launch.desc).expect("a variant")
}

fn planned(problem: &Problem) -> Plan {
    plan(problem, &HOPPER, &Options::default()).expect("a plan")
}

#[test]
fn whole_sequences_take_one_launch() {
    for heads in [1, 2, 8, 16, 17, 32, 33, 40, 64] {
        for (sequences, rows) in [(1, 100), (6, 8192), (300, 8192), (3, 0)] {
            let p = problem(sequences, rows, heads, false);
            let plan = planned(&p);
            let [launch] = plan.launches() else { panic!("{} launches", plan.launches().len()) };
            let v = variant(launch);
            assert!(!v.maps() && !v.split() && !v.v_first() && !v.scalar());
            // The fewer there are, the narrower the slices.
            match sequences * heads {
                ..=16 => assert_eq!((v.vs(), v.cluster()), (16, 1)),
                17..=33 | 46..=56 | 72..=119 | 156..=246 => assert_eq!((v.vs(), v.cluster()), (32, 1)),
                _ => assert_eq!((v.vs(), v.cluster()), (64, 2)),
            }
            let items = sequences * heads * u64::from(128 / v.vs());
            assert_eq!(u64::from(launch.grid[0]), items.min(132), "N = {sequences}, HV = {heads}");
            assert_eq!((scalar(launch, "first_entry"), scalar(launch, "w_present")), (16, u32::from(rows > 0)));
            assert!(!launch.pdl && plan.prepared() == launch);
        }
    }
}

#[test]
fn segments_take_three_launches() {
    for heads in [1, 3, 4, 6, 7, 8] {
        let p = problem(2, 16384, heads, true);
        let segments = p.batch().segments();
        assert!(segments > 0);
        for pdl in [false, true] {
            let plan = plan(&p, &HOPPER, &Options { pdl, ..Options::default() }).expect("a plan");
            let [maps, first, later] = plan.launches() else { panic!("{} launches", plan.launches().len()) };
            assert!(variant(maps).maps() && variant(first).split() && std::ptr::eq(first.desc, later.desc));
            assert_eq!(variant(maps).vs(), if heads > 6 { 64 } else { 32 });
            assert_eq!([maps.pdl, first.pdl, later.pdl], [pdl, true, true]);
            let words = [maps, first, later].map(|launch| u64::from(scalar(launch, "first_entry")));
            assert_eq!(words, [16 + 8 * (2 + segments), 16, 16 + 8 * 2]);
            assert_eq!([first, later].map(|launch| scalar(launch, "later")), [0, 1]);
            assert_eq!(scalar(later, "map_slots"), segments as u32);
            for (launch, entries) in [(maps, 2 * segments - 4), (first, 2), (later, segments - 1)] {
                let items = entries * heads * u64::from(128 / variant(launch).vs());
                assert_eq!(u64::from(launch.grid[0]), items.min(132));
            }
            assert!(std::ptr::eq(plan.desc(), later.desc));
            // Where no sequence can be long enough there is one launch.
            let short = Problem { longest: Some(20 * 64), ..p };
            let plan = self::plan(&short, &HOPPER, &Options { pdl, ..Options::default() }).expect("a plan");
            assert_eq!(plan.launches().len(), 1, "{heads} heads");
            assert!(!variant(plan.prepared()).split() && !variant(plan.prepared()).maps());
            let without = Problem { maps: None, ..short };
            assert_eq!(self::plan(&without, &HOPPER, &Options::default()).map(|plan| plan.launches().len()), Ok(1));
        }
    }
}

#[test]
fn no_sequences_are_no_launch() {
    for split in [false, true] {
        let plan = planned(&problem(0, 100, 4, split));
        assert!(plan.launches().iter().all(PreparedLaunch::is_empty));
        // The executor must not be asked.
        // SAFETY: nothing is launched.
        assert_eq!(unsafe { plan.launch(&HOPPER, Default::default()) }, Ok(()));
    }
}

#[test]
fn absent_tensors_are_absent_for_the_kernel() {
    let mut p = problem(3, 0, 2, false);
    let empty = planned(&p);
    let present = |plan: &Plan, names: &[&str]| names.iter().map(|n| scalar(plan.prepared(), n)).collect::<Vec<_>>();
    let flags = ["w_present", "kg_present", "u_present", "h_present", "v_new_present", "affine_m_present"];
    assert_eq!(present(&empty, &flags), [0; 6]);
    assert!(!empty.prepared().is_empty(), "states are handed on");
    p = problem(3, 1000, 2, false);
    assert_eq!(present(&planned(&p), &flags), [1, 1, 1, 1, 1, 0]);
    (p.h, p.v_new) = (None, None);
    assert_eq!(present(&planned(&p), &flags), [1, 1, 1, 0, 0, 0]);
    assert_eq!(scalar(planned(&p).prepared(), "v_rows"), 0);
    assert_eq!(present(&planned(&problem(2, 16384, 2, true)), &flags), [1; 6]);
}

#[test]
fn arguments_reach_the_kernel() {
    let mut p = problem(3, 1000, 8, false);
    p.null = 0;
    p.h_every = 3;
    p.initial_state = Some(matrices(Elem::BF16, 5, 8, false));
    let launch = planned(&p).prepared().clone();
    let names = ["every", "null", "decays", "initial_k_first", "final_k_first", "later", "per_key_head", "seqs"];
    assert_eq!(names.map(|n| scalar(&launch, n)), [3, 0, 0, 0, 1, 0, 1, 3]);
    assert_eq!([scalar(&launch, "initial_f32"), scalar(&launch, "slots_in"), scalar(&launch, "slots_out")], [0, 5, 4]);
    assert!(scalar(&launch, "initial_bf16") > 0 && scalar(&launch, "final_f32") > 0);
    p.final_state = p.initial_state;
    (p.initial_slots, p.final_slots) = (None, None);
    assert_eq!(["initial_slots", "final_slots", "null"].map(|n| scalar(planned(&p).prepared(), n)), [0, 0, 0]);
    p.gate = Gate::Decay(strided(Elem::F32, &[p.batch().chunks(), 8, 128], &[1028, 128, 1]));
    let launch = planned(&p).prepared().clone();
    assert_eq!((scalar(&launch, "decays"), scalar(&launch, "gate_pitch")), (1, 1028));
    p.gate = Gate::Scalar(strided(Elem::F32, &[1000, 8], &[11, 1]));
    p.kg = dense(Elem::BF16, &[1000, 2, 128]);
    let launch = planned(&p).prepared().clone();
    assert!(variant(&launch).scalar());
    assert_eq!(["decays", "gate_pitch", "per_key_head"].map(|n| scalar(&launch, n)), [0, 11, 4]);
}

#[test]
fn orders_of_h_have_variants() {
    for (split, heads) in [(false, 2), (false, 64), (true, 2)] {
        let mut p = problem(2, 16384, heads, split);
        for k_first in [true, false] {
            p.h = Some(matrices(Elem::BF16, p.batch().h_states(), heads, k_first));
            assert_eq!(variant(planned(&p).prepared()).v_first(), !k_first);
        }
    }
}

#[test]
fn forced_variants() {
    let forced = |p: &Problem, variant: Variant| {
        plan(p, &HOPPER, &Options { variant: Some(variant), ..Options::default() }).map(|plan| plan.desc().entry)
    };
    let (whole, cut) = (problem(2, 16384, 6, false), problem(2, 16384, 6, true));
    let (mut ran, mut said) = (Vec::new(), String::new());
    for v in Variant::all() {
        for (p, fold) in [(&whole, false), (&cut, true)] {
            match forced(p, v) {
                Ok(entry) => {
                    assert_eq!(entry, v.desc().entry);
                    assert!(!v.maps() && v.split() == fold && !v.scalar() && !v.v_first());
                    ran.push(entry);
                }
                Err(error) => said += &format!("{error}\n"),
            }
        }
    }
    assert_eq!(ran.len(), 6, "{ran:?}");
    for words in [
        "it computes the maps of segments alone",
        "it walks segments, the schedule holds whole sequences",
        "it walks whole sequences, the schedule holds segments",
        "it is for a scalar gate, the call has a gate a key channel",
        "it writes `h` [V, K], the call's is [K, V]",
    ] {
        assert!(said.contains(words), "`{words}` is missing: {said}");
    }
    // Maps are computed by variants for them.
    for maps in Variant::all() {
        let options = Options { maps: Some(maps), ..Options::default() };
        match plan(&cut, &HOPPER, &options) {
            Ok(plan) => assert!(maps.maps() && variant(&plan.launches()[0]) == maps),
            Err(error) => {
                assert!(
                    !maps.maps() && error.to_string().contains("it does not compute the maps of segments"),
                    "{error}"
                )
            }
        }
        assert!(plan(&whole, &HOPPER, &options).is_ok(), "nothing is cut");
    }
    let other = plan(&whole, &Capability(8, 0, 108), &Options { variant: Variant::all().next(), ..Options::default() });
    assert!(other.unwrap_err().to_string().contains("the device has compute capability 8.0"));
}

#[test]
fn small_devices_get_whole_clusters() {
    let p = problem(8, 8192, 64, false);
    for (multiprocessors, ctas) in [(1, 2), (2, 2), (3, 2), (131, 130)] {
        let plan = plan(&p, &Capability(9, 0, multiprocessors), &Options::default()).expect("a plan");
        assert_eq!(plan.prepared().grid[0], ctas);
    }
}

#[test]
fn devices_without_the_kernel_for_hopper_take_the_portable_one() {
    for (device, heads, vs) in [
        (Capability(8, 0, 108), 4, 32),
        (Capability(8, 0, 108), 9, 32),
        (Capability(8, 6, 84), 9, 64),
        (Capability(10, 0, 148), 64, 64),
    ] {
        for k_first in [true, false] {
            for scalar_gate in [false, true] {
                let mut p = problem(3, 16384, heads, !scalar_gate);
                assert_eq!(p.batch().cut().is_some(), heads == 4 && !scalar_gate, "as for Hopper");
                p.h = Some(matrices(Elem::BF16, p.batch().h_states(), heads, k_first));
                if scalar_gate {
                    p.gate = Gate::Scalar(dense(Elem::F32, &[16384, heads]));
                }
                let plan = plan(&p, &device, &Options { pdl: true, ..Options::default() }).expect("a plan");
                let [launch] = plan.launches() else { panic!("{} launches", plan.launches().len()) };
                let v = variant(launch);
                // It waits for nothing by itself, and so begins when its predecessor has ended.
                assert!(matches!(v, Variant::Portable(_)) && !launch.pdl);
                assert_eq!((v.vs(), v.v_first(), v.scalar()), (vs, !k_first, scalar_gate));
                let items = 3 * heads * u64::from(128 / vs);
                assert_eq!(u64::from(launch.grid[0]), items.min(device.2.into()));
                // Nothing is cut there, so entries begin behind the head alone.
                assert_eq!(scalar(launch, "first_entry"), 16);
            }
        }
    }
    let old = plan(&problem(3, 100, 2, false), &Capability(7, 5, 68), &Options::default()).unwrap_err().to_string();
    assert!(old.contains("no variant runs on compute capability 7.5; sm_80 is needed"), "{old}");
}

#[test]
fn steps_without_a_tensor_map_take_the_portable_kernel() {
    for at in 0..5 {
        let far = |split| {
            let mut p = problem(2, 16384, 4, split);
            let tensor =
                [&mut p.kg, &mut p.w, &mut p.u, p.v_new.as_mut().unwrap(), p.h.as_mut().unwrap()].into_iter().nth(at);
            let tensor = tensor.unwrap();
            *tensor = restrided(tensor, 0, 1 << 39);
            p
        };
        let p = far(false);
        assert!(matches!(variant(planned(&p).prepared()), Variant::Portable(_)));
        let name = ["kg", "w", "u", "v_new", "h"][at];
        let options = Options {
            variant: Variant::all().find(|v| !v.split() && !v.scalar() && !v.v_first()),
            ..Options::default()
        };
        let said = plan(&p, &HOPPER, &options).unwrap_err().to_string();
        assert!(said.contains(&format!("it needs outermost strides below 2^40 bytes, as `{name}` has not")), "{said}");
        let said = plan(&far(true), &HOPPER, &Options::default()).unwrap_err().to_string();
        assert!(
            said.contains(&format!("stride of `{name}` of 2^40 bytes")) && said.contains("`split` must be false"),
            "{said}"
        );
    }
}
