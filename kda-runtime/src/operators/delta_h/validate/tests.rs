//! Calls that must be refused, each a good one with one thing spoilt, and what the refusal says.

use super::*;
use crate::operators::delta_h::samples::{dense, matrices, problem, resized, restrided, strided};

#[track_caller]
fn refused(spoil: impl Fn(&mut Problem), words: &[&str]) {
    let mut good = problem(3, 4100, 4, true);
    assert!(good.maps.is_some() && validate(&good).is_ok(), "{:?}", validate(&good));
    spoil(&mut good);
    let said = validate(&good).expect_err("a refusal").to_string();
    for word in words {
        assert!(said.contains(word), "`{word}` is missing: {said}");
    }
    assert!(said.starts_with("delta_h: "), "{said}");
}

/// A tensor argument of a call by name.
fn each(p: &mut Problem) -> Vec<(&'static str, &mut TensorArg)> {
    let Gate::Cumulative(gk) = &mut p.gate else { panic!("another gate") };
    let given = [("kg", &mut p.kg), ("w", &mut p.w), ("u", &mut p.u), ("gk", gk), ("schedule", &mut p.schedule)];
    let optional = [
        ("initial_state", &mut p.initial_state),
        ("initial_slots", &mut p.initial_slots),
        ("has_initial", &mut p.has_initial),
        ("final_state", &mut p.final_state),
        ("final_slots", &mut p.final_slots),
        ("h", &mut p.h),
        ("v_new", &mut p.v_new),
        ("maps", &mut p.maps),
    ];
    given.into_iter().chain(optional.into_iter().filter_map(|(name, t)| Some((name, t.as_mut()?)))).collect()
}

#[track_caller]
fn refused_each(spoil: impl Fn(&str, &mut TensorArg) -> Option<&'static str>) {
    let names: Vec<&str> = each(&mut problem(3, 4100, 4, true)).iter().map(|(name, _)| *name).collect();
    for name in names {
        let mut good = problem(3, 4100, 4, true);
        let words = {
            let mut tensors = each(&mut good);
            let (_, tensor) = tensors.iter_mut().find(|(other, _)| *other == name).expect("the tensor");
            spoil(name, tensor)
        };
        let Some(words) = words else { continue };
        let said = validate(&good).expect_err(name).to_string();
        assert!(said.contains(&format!("`{name}`")) && said.contains(words), "{said}");
    }
}

#[test]
fn memory_that_is_not_there() {
    refused_each(|_, t| {
        t.ptr = 0;
        Some("is a null pointer")
    });
    refused_each(|_, t| {
        t.bytes -= 1;
        Some(" bytes; its shape")
    });
    refused_each(|name, t| {
        t.ptr += 1;
        (name != "has_initial").then_some("an address that is a multiple of")
    });
    refused_each(|name, t| {
        t.ptr += 8;
        let narrow = matches!(name, "initial_slots" | "final_slots" | "has_initial");
        (!narrow).then_some("a multiple of 16 is needed")
    });
}

#[test]
fn types_and_ranks() {
    refused_each(|_, t| {
        t.elem = Elem::F64;
        Some("holds f64")
    });
    refused_each(|_, t| {
        let (shape, strides) = ([t.shape(), &[1]].concat(), [t.strides(), &[1]].concat());
        (shape.len() <= kda_core::launch::MAX_RANK).then(|| {
            *t = strided(t.elem, &shape, &strides);
            "axes are needed: ["
        })
    });
    refused(|p| p.has_initial = Some(dense(Elem::I32, &[3])), &["`has_initial` holds i32; u8 or bool is needed"]);
    refused(|p| p.h = Some(matrices(Elem::F32, 100, 4, true)), &["`h` holds f32; bf16 is needed"]);
}

#[test]
fn sizes_that_do_not_fit() {
    let why = "K = V = 128 is the only head size";
    refused(|p| p.w = resized(&p.w, 2, 64), &["axis K of `w`", "is 64; 128 is needed", why]);
    refused(|p| p.kg = resized(&p.kg, 2, 256), &["axis K of `kg`", why]);
    refused(|p| p.u = resized(&p.u, 2, 64), &["axis V of `u`", why]);
    refused(|p| p.v_new = p.v_new.map(|v| resized(&v, 2, 192)), &["axis V of `v_new`", why]);
    for (axis, name) in [(2, "K"), (3, "V")] {
        let named = format!("axis {name} of `h`");
        refused(|p| p.h = p.h.map(|h| resized(&h, axis, 64)), &[&named, why]);
        let named = format!("axis {name} of `initial_state`");
        refused(|p| p.initial_state = p.initial_state.map(|s| resized(&s, axis, 256)), &[&named, why]);
    }
    refused_each(|name, t| {
        let rows = matches!(name, "kg" | "u" | "gk" | "v_new");
        rows.then(|| *t = resized(t, 0, 4099))?;
        Some("4100 is needed (T as in `w`)")
    });
    refused_each(|name, t| {
        let heads = t.shape().len() > 2 && name != "w";
        heads.then(|| *t = resized(t, 1, 3))?;
        Some("4 is needed (HV as in `w`")
    });
    refused_each(|name, t| {
        let sequences = matches!(name, "initial_slots" | "final_slots" | "has_initial");
        sequences.then(|| *t = resized(t, 0, 4))?;
        Some("3 is needed (N, the number of sequences)")
    });
    refused(|p| p.w = resized(&p.w, 1, 0), &["HV = 0 value heads"]);
    refused(|p| p.gate = Gate::Cumulative(resized(p.gate.tensor().1, 2, 64)), &["axis K of `gk`", why]);
    let many = |p: &mut Problem| p.initial_state = p.initial_state.map(|s| resized(&s, 0, 1 << 31));
    refused(many, &["axis slots of `initial_state`", "at most 2147483647 is possible (slots are i32 indices)"]);
    let many = |p: &mut Problem| p.h = p.h.map(|h| resized(&h, 0, 1 << 31));
    refused(many, &["axis capacity of `h`", "at most 2147483647 is possible (chunk states are i32 coordinates)"]);
    let many = |p: &mut Problem| p.gate = Gate::Decay(resized(p.gate.tensor().1, 0, 1 << 32));
    refused(many, &["axis chunks of `decay`", "at most 4294967295 is possible"]);
    let states = |p: &mut Problem| (p.initial_slots, p.has_initial) = (None, None);
    let few = |p: &mut Problem| {
        states(p);
        p.initial_state = p.initial_state.map(|s| resized(&s, 0, 2));
    };
    refused(
        few,
        &["axis slots of `initial_state`", "at least 3 is needed (one a sequence, as there are no `initial_slots`"],
    );
    let mut without = problem(3, 4100, 4, true);
    states(&mut without);
    assert!(validate(&without).is_ok());
}

#[test]
fn room_for_any_lengths() {
    let (n, t) = (3, 4100);
    for every in [1, 2, 7] {
        let mut good = problem(n, t, 4, true);
        good.h_every = every;
        let needed = 3 + 4097 / (64 * u64::from(every));
        good.h = Some(matrices(Elem::BF16, needed, 4, false));
        assert!(validate(&good).is_ok());
        let short = |p: &mut Problem| {
            p.h_every = every;
            p.h = Some(matrices(Elem::BF16, needed - 1, 4, false));
        };
        let words = format!("at least {needed} is needed");
        refused(short, &["axis capacity of `h`", &words, "N = 3", "T = 4100", &format!("h_every = {every}")]);
    }
    refused(
        |p| p.gate = Gate::Decay(dense(Elem::F32, &[66, 4, 128])),
        &["axis chunks of `decay`", "at least 67 is needed"],
    );
    refused(
        |p| p.schedule = dense(Elem::U32, &[p.batch().schedule_words() - 1]),
        &["axis words of `schedule`", "for any lengths"],
    );
    refused(|p| p.schedule = dense(Elem::U8, &[p.batch().schedule_bytes() - 1]), &["axis bytes of `schedule`"]);
    refused(|p| p.maps = Some(dense(Elem::U8, &[p.batch().map_bytes() - 1])), &["axis bytes of `maps`"]);
    refused(|p| p.maps = None, &["`maps` is absent", "bytes are needed, as long sequences are cut"]);
    // Nothing is cut: nothing is needed.
    let mut whole = problem(3, 4100, 4, false);
    whole.maps = None;
    assert!(validate(&whole).is_ok());
}

#[test]
fn layouts_that_do_not_fit() {
    refused_each(|name, t| {
        let rows = matches!(name, "kg" | "w" | "u" | "v_new");
        rows.then(|| *t = restrided(t, 0, 1028))?;
        Some("a stride along T that is a multiple of 8 elements is needed")
    });
    refused(
        |p| p.gate = Gate::Cumulative(restrided(p.gate.tensor().1, 0, 1026)),
        &["`gk`", "a multiple of 4 elements"],
    );
    refused_each(|name, t| {
        let inner = t.shape().len() == 3;
        inner.then(|| *t = restrided(t, 2, 2))?;
        Some(if matches!(name, "u" | "v_new") {
            "a stride of 1 elements along V"
        } else {
            "a stride of 1 elements along K"
        })
    });
    refused_each(|_, t| {
        (t.shape().len() == 3).then(|| *t = restrided(t, 1, 256))?;
        Some("a stride of 128 elements along HV")
    });
    refused_each(|_, t| {
        (t.shape().len() == 4).then(|| *t = restrided(t, 1, 32768))?;
        Some("a stride of 16384 elements along HV")
    });
    refused_each(|_, t| {
        (t.shape().len() == 4).then(|| *t = restrided(t, 2, 136))?;
        Some("[K, V] (strides 128 and 1) or [V, K] (strides 1 and 128)")
    });
    refused_each(|name, t| {
        (t.shape().len() == 4).then(|| *t = restrided(t, 0, 4 * 16384 + 2))?;
        Some(if name == "h" {
            "a stride along capacity that is a multiple of 8"
        } else {
            "a stride along slots that is a multiple of 4"
        })
    });
    // Written twice.
    refused_each(|name, t| {
        let written = matches!(name, "h" | "v_new" | "final_state");
        written.then(|| *t = restrided(t, 0, t.strides()[0] / 2))?;
        Some("elements with addresses of their own")
    });
    // Steps that no tensor map describes.
    assert_eq!(validate(&problem(3, 4100, 4, false)).map(|layout| layout.far), Ok(None));
    for at in 0..each(&mut problem(3, 4100, 4, false)).len() {
        let mut p = problem(3, 4100, 4, false);
        let (name, tensor) = each(&mut p).swap_remove(at);
        if tensor.shape().len() > 1 {
            *tensor = restrided(tensor, 0, 1 << 39);
            let far = ["kg", "w", "u", "v_new", "h"].contains(&name).then_some(name);
            assert_eq!(validate(&p).map(|layout| layout.far), Ok(far), "{name}");
        }
    }
    refused_each(|_, t| {
        (t.shape().len() == 1).then(|| *t = restrided(t, 0, 2))?;
        Some("a stride of 1 elements along")
    });
}

#[test]
fn scalars() {
    refused(|p| p.null = -2, &["`null` is -2", "-1 is needed, or 0"]);
    refused(|p| p.h_every = 0, &["`h_every` is 0; at least 1"]);
    refused(|p| p.sequences = MOST_SEQUENCES + 1, &["`sequences` is 134217729; at most 134217728"]);
    // Without slots sequence 0 has state 0, whatever the null index.
    for (initial, last) in [(false, true), (true, false), (false, false)] {
        let mut good = problem(3, 4100, 4, true);
        good.null = 0;
        good.initial_slots = good.initial_slots.filter(|_| initial);
        good.final_slots = good.final_slots.filter(|_| last);
        assert!(validate(&good).is_ok(), "{:?}", validate(&good));
    }
    let crowd = |p: &mut Problem| *p = problem(1 << 20, 64, 1024, false);
    refused(crowd, &["N = 1048576 sequences with HV = 1024 heads", "at most 268435455 (sequence, head) pairs"]);
    let long = |p: &mut Problem| {
        for (_, t) in each(p).into_iter().filter(|(_, t)| t.shape()[0] == 4100) {
            *t = TensorArg::strided(t.ptr, u64::MAX, t.elem, &[MOST_ROWS + 1, 4, 128], t.strides()).unwrap();
        }
    };
    refused(long, &["axis T of `w`", "at most 2147483583 is possible (rows are i32 coordinates)"]);
}

#[test]
fn what_needs_what() {
    let none = |p: &mut Problem| p.initial_state = None;
    refused(none, &["`initial_state` is absent; `initial_slots` are slots of it"]);
    let flags = |p: &mut Problem| (p.initial_state, p.initial_slots) = (None, None);
    refused(flags, &["`initial_state` is absent; `has_initial` says which"]);
    refused(|p| p.final_state = None, &["`final_state` is absent; `final_slots` are slots of it"]);
    let nothing = |p: &mut Problem| (p.h, p.v_new, p.final_state, p.final_slots) = (None, None, None, None);
    refused(nothing, &["one of `h`, `v_new` and `final_state` is needed"]);
}

#[test]
fn gates() {
    let scalar = |p: &mut Problem| p.gate = Gate::Scalar(dense(Elem::F32, &[4100, 4]));
    refused(scalar, &["`split` with a scalar gate", "`split` must be false"]);
    let grouped = |p: &mut Problem, heads: u64| {
        *p = problem(3, 4100, 4, false);
        p.gate = Gate::Scalar(dense(Elem::F32, &[4100, 4]));
        p.kg = dense(Elem::BF16, &[4100, heads, 128]);
    };
    for heads in [0, 3, 8] {
        refused(|p| grouped(p, heads), &[&format!("HV = 4 value heads over H = {heads}")]);
    }
    for heads in [1, 2, 4] {
        let mut good = problem(3, 4100, 4, false);
        grouped(&mut good, heads);
        assert_eq!(validate(&good).map(|layout| layout.key_heads), Ok(heads));
        good.gate = Gate::Scalar(strided(Elem::F32, &[4100, 4], &[13, 1]));
        assert!(validate(&good).is_ok(), "rows of a scalar gate lie anywhere");
    }
    // A gate a key channel is in the keys.
    refused(|p| p.kg = dense(Elem::BF16, &[4100, 2, 128]), &["axis HV of `kg`", "4 is needed (HV as in `w`"]);
    let columns = |p: &mut Problem| {
        grouped(p, 4);
        p.gate = Gate::Scalar(restrided(&dense(Elem::F32, &[4100, 4]), 1, 2));
    };
    refused(columns, &["`g`", "a stride of 1 elements along HV"]);
}

#[test]
fn memory_that_is_shared() {
    let written = ["h", "v_new", "final_state", "maps"];
    let names: Vec<&str> = each(&mut problem(3, 4100, 4, true)).iter().map(|(name, _)| *name).collect();
    for output in written {
        for other in names.iter().copied().filter(|other| *other != output) {
            let share = |p: &mut Problem| {
                let ptr = each(p).iter().find(|(name, _)| *name == other).expect("the tensor").1.ptr;
                // Its last 16 bytes are the other one's first.
                let (_, tensor) = each(p).into_iter().find(|(name, _)| *name == output).expect("the tensor");
                tensor.ptr = ptr + 16 - tensor.bytes.next_multiple_of(16);
            };
            let mut call = problem(3, 4100, 4, true);
            share(&mut call);
            let said = validate(&call).expect_err("a refusal").to_string();
            let words = format!("`{output}` at");
            assert!(said.contains("shares memory with") && said.contains(&words), "{output}, {other}: {said}");
        }
    }
    // The very same pool is replaced in place; one that reaches into it is not.
    let mut same = problem(3, 4100, 4, true);
    (same.final_state, same.final_slots) = (same.initial_state, same.initial_slots);
    assert!(validate(&same).is_ok());
    let moved = |p: &mut Problem| {
        p.final_state = p.initial_state.map(|s| resized(&s, 0, 4)).map(|mut s| {
            s.ptr = p.initial_state.as_ref().expect("a state").ptr;
            s
        })
    };
    refused(moved, &["`final_state` at", "shares memory with `initial_state`", "or the very same tensor"]);
    // Columns of one tensor are apart.
    let mut good = problem(3, 4100, 4, true);
    let packed = strided(Elem::BF16, &[4100, 16, 128], &[2048, 128, 1]);
    let part = |at: u64| {
        let (ptr, bytes) = (packed.ptr + 1024 * at, packed.bytes - 1024 * at);
        TensorArg::strided(ptr, bytes, Elem::BF16, &[4100, 4, 128], &[2048, 128, 1]).unwrap()
    };
    (good.kg, good.w, good.u, good.v_new) = (part(0), part(1), part(2), Some(part(3)));
    assert!(validate(&good).is_ok(), "{:?}", validate(&good));
    good.v_new = Some(part(2));
    assert!(validate(&good).is_err());
}

#[test]
fn empty_batches_are_good() {
    for (sequences, rows) in [(0, 0), (0, 100), (3, 0), (1, 1), (1 << 20, 5)] {
        let good = problem(sequences, rows, 2, true);
        assert!(validate(&good).is_ok(), "N = {sequences}, T = {rows}: {:?}", validate(&good));
    }
}

#[test]
fn orders_are_told_by_strides() {
    for (first, last, h) in [(true, false, true), (false, true, false), (true, true, false)] {
        let mut p = problem(3, 400, 8, false);
        p.initial_state = Some(matrices(Elem::BF16, 5, 8, first));
        p.final_state = Some(matrices(Elem::F32, 4, 8, last));
        p.h = Some(matrices(Elem::BF16, 100, 8, h));
        let layout = validate(&p).expect("a good call");
        assert_eq!((layout.initial_k_first, layout.final_k_first, layout.h_k_first), (first, last, h));
    }
}
