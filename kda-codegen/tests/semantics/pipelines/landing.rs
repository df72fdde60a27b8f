//! Loads from a stage that bulk copies fill land before the stage is given back: the arrival depends on them.

use super::{Case, LOAD, X, X_MAP, Y};
use std::collections::{BTreeMap, BTreeSet};

fn case(math: &str) -> Case {
    let body = format!("{LOAD}\n        #[role(math)]\n        {math}");
    Case { roles: "load = 0..1, math = 1..2", params: [X_MAP, Y], body: body.leak() }
}

/// For each arrival without bytes, in program order, the loads from shared memory that its predicate depends on.
fn loads_behind(ptx: &str) -> Vec<usize> {
    let register = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%').to_string();
    let lines: Vec<&str> = ptx.lines().map(|line| line.trim().trim_end_matches(';')).collect();
    let mut definitions: BTreeMap<String, Vec<(usize, Vec<String>)>> = BTreeMap::new();
    let mut arrivals = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let names: Vec<String> = line.split_whitespace().map(register).filter(|word| word.starts_with('%')).collect();
        if line.contains("mbarrier.arrive.shared") {
            arrivals.push(names[0].clone());
        } else if let [first, ..] = names.as_slice() {
            // Every register of a list of results; a predicate ahead of an instruction is one of its sources.
            let results = match line.contains('{') && line.contains("ld") {
                true => line.split('}').next().unwrap_or("").split(['{', ',']).map(register).collect(),
                false if line.starts_with('@') => names.get(1).cloned().into_iter().collect(),
                false => vec![first.clone()],
            };
            for result in results.into_iter().filter(|name| name.starts_with('%')) {
                definitions.entry(result).or_default().push((at, names.clone()));
            }
        }
    }
    let loads = |arrival: String| {
        let (mut seen, mut open, mut loads) = (BTreeSet::new(), vec![arrival], BTreeSet::new());
        while let Some(name) = open.pop() {
            for (at, sources) in definitions.get(&name).into_iter().flatten() {
                if lines[*at].contains("ld.shared") || lines[*at].contains("ldmatrix") {
                    loads.insert(*at);
                } else if seen.insert((*at, name.clone())) {
                    open.extend(sources.clone());
                }
            }
        }
        loads.len()
    };
    arrivals.into_iter().map(loads).collect()
}

/// Arrivals of the math role: the only ones without bytes.
fn behind(case: &Case) -> Vec<usize> {
    loads_behind(&case.run(2, 1).0.compiled.ptx)
}

#[test]
fn a_release_waits_for_what_was_loaded() {
    for (load, give) in [
        ("let v = from_fn::<8>(|r| slot.v[[r, lane]]);", "v[r] + 1.0"),
        // Arithmetic may be done behind the arrival.
        ("let v = from_fn::<8>(|r| slot.v[[r, lane]] + 1.0);", "v[r]"),
        ("let mut v = [0.0; 8]; if n > 0 { v = from_fn::<8>(|r| slot.v[[r, lane]] + 1.0); }", "v[r]"),
    ] {
        let case = case(&format!(
            "for i in 0..n {{
            let slot = ring.wait();
            {load}
            slot.release();
            #[unroll]
            for r in 0..8 {{
                y.at([8 * i + r, lane]).store({give});
            }}
        }}"
        ));
        case.check(|_, x| x + 1.0);
        assert_eq!(behind(&case), [8], "{load}");
    }
}

#[test]
fn matrices_are_waited_for() {
    let case = Case {
        roles: "load = 0..1, math = 1..2",
        params: [
            "#[dims(64, 64)] x: TensorMap<bf16, Shape<16, 64>, Swizzle<128>>",
            "#[dims(64, 64)] y: GlobalMut<f32>",
        ],
        body: "let ring = Pipeline::<load, math> { v: smem::<bf16, Shape<16, 64>, Swizzle<128>, S>() };
        #[role(load)]
        #[elect_one]
        for i in 0..n {
            let slot = ring.acquire();
            slot.v.tma_load(x, [16 * i, 0]);
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            let v = Frag::<bf16, 16, 64>::load(slot.v, [0, 0]);
            slot.release();
            v.widen().store(y, [16 * i, 0]);
        }",
    };
    let run = super::Run::new(&case.source(2));
    assert_eq!(run.compiled.ptx.matches("ldmatrix").count(), 4);
    assert_eq!(loads_behind(&run.compiled.ptx), [4], "{}", run.compiled.ptx);
}

/// What is loaded in one trip, and given in the next.
#[test]
fn a_stage_that_is_held_over_a_trip() {
    let case = case(
        "if n > 0 {
            let mut held = ring.wait();
            let mut v = from_fn::<8>(|r| held.v[[r, lane]]);
            for i in 1..n {
                let slot = ring.wait();
                held.release();
                #[unroll]
                for r in 0..8 {
                    y.at([8 * i - 8 + r, lane]).store(v[r] + 1.0);
                }
                v = from_fn::<8>(|r| slot.v[[r, lane]]);
                held = slot;
            }
            held.release();
            #[unroll]
            for r in 0..8 {
                y.at([8 * n - 8 + r, lane]).store(v[r] + 1.0);
            }
        }",
    );
    // Two stages are held at a time.
    for trips in [1, 2, 5] {
        let (mut run, x) = case.run(2, trips);
        let got = run.launch_everywhere(1).read::<f32>("y");
        assert!(got[..256 * trips].iter().zip(&x).all(|(got, x)| *got == x + 1.0), "{trips} trips");
    }
    // The loads ahead of the loop, or those of the trip before.
    assert_eq!(behind(&case), [16, 16]);
}

#[test]
fn nothing_is_waited_for_that_has_landed() {
    // A store takes what was loaded.
    let stored = case(
        "for i in 0..n {
            let slot = ring.wait();
            #[unroll]
            for r in 0..8 {
                y.at([8 * i + r, lane]).store(slot.v[[r, lane]] + 1.0);
            }
            slot.release();
        }",
    );
    stored.check(|_, x| x + 1.0);
    assert_eq!(behind(&stored), [0]);
    // Threads fill the stages: their stores and these loads are of one proxy.
    let threads = Case {
        roles: "load = 0..1, math = 1..2",
        params: [X, Y],
        body: "let ring = Pipeline::<load, math> { v: smem::<f32, Shape<8, 32>, _, S>() };
        #[role(load)]
        for i in 0..n {
            let slot = ring.acquire();
            for r in 0..8 {
                slot.v[[r, lane]] = x.at([8 * i + r, lane]).load();
            }
            slot.commit();
        }
        #[role(math)]
        for i in 0..n {
            let slot = ring.wait();
            let v = from_fn::<8>(|r| slot.v[[r, lane]]);
            slot.release();
            #[unroll]
            for r in 0..8 {
                y.at([8 * i + r, lane]).store(v[r] + 1.0);
            }
        }",
    };
    threads.check(|_, x| x + 1.0);
    assert!(behind(&threads).iter().all(|loads| *loads == 0), "{:?}", behind(&threads));
}
