//! Replays every golden case in the repository and checks that the comparison can fail.

use kda_ref::Mode;
use kda_ref::budget::relative_error;
use kda_ref::delta_h::run;
use kda_ref::replay::{Case, Outcome, StoredType, Tensor, Values, delta_h_call, replay, tc_verify_replay};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/oracle");

fn load(fields: &Value) -> Case {
    let text = |name: &str| fields[name].as_str().unwrap_or_else(|| panic!("cases.json has no {name}")).to_string();
    let bytes = fs::read(format!("{FOLDER}/{}", text("file"))).expect("the case's file");
    assert_eq!(bytes.len() as u64, fields["bytes"].as_u64().unwrap());
    let parsed = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let mut tensors = BTreeMap::new();
    for (name, view) in parsed.tensors() {
        let data = view.data();
        let (stored, values) = match view.dtype() {
            Dtype::BF16 => {
                let widen = |b: &[u8; 2]| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16));
                (StoredType::Bf16, Values::Float(data.as_chunks().0.iter().map(widen).collect()))
            }
            Dtype::F32 => {
                let widen = |b: &[u8; 4]| f64::from(f32::from_le_bytes(*b));
                (StoredType::F32, Values::Float(data.as_chunks().0.iter().map(widen).collect()))
            }
            Dtype::F64 => {
                (StoredType::F64, Values::Float(data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()))
            }
            Dtype::I32 => {
                (StoredType::I32, Values::Int(data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()))
            }
            other => panic!("unexpected dtype {other:?}"),
        };
        tensors.insert(name, Tensor { stored, shape: view.shape().to_vec(), values });
    }
    let count = |name: &str| fields[name].as_u64().unwrap_or(1) as usize;
    Case {
        name: text("case"),
        heads: count("H"),
        value_heads: count("HV"),
        lower_bound: fields["lower_bound"].as_f64(),
        tensors,
    }
}

fn cases() -> Vec<Case> {
    let json = fs::read_to_string(format!("{FOLDER}/cases.json")).expect("cases.json");
    let json: Value = serde_json::from_str(&json).expect("valid JSON");
    json["cases"].as_array().expect("a list of cases").iter().map(load).collect()
}

#[test]
fn exact_mode_agrees_with_every_case() {
    let (mut compared, mut skipped) = (0, Vec::new());
    for case in cases() {
        match replay(&case).unwrap_or_else(|error| panic!("{}: {error}", case.name)) {
            Outcome::Skipped { .. } => skipped.push(case.name),
            Outcome::Compared(outputs) => {
                compared += 1;
                assert!(outputs.len() >= 2, "{}", case.name);
                for output in outputs {
                    assert!(output.passes && output.elements > 0, "{}: {output:?}", case.name);
                }
            }
        }
    }
    assert_eq!((compared, skipped), (16, vec!["tiny_kda_lm".to_string()]));
}

/// Every input matters: a small change of any of them is seen in every case that has it.
#[test]
fn a_changed_input_is_seen() {
    for case in cases().into_iter().filter(|case| !case.tensors.contains_key("in.prompt")) {
        let names: Vec<String> = case.tensors.keys().filter(|name| name.starts_with("in.")).cloned().collect();
        for name in names {
            let mut changed = case.clone();
            let tensor = changed.tensors.get_mut(&name).unwrap();
            let Values::Float(values) = &mut tensor.values else { continue };
            // The sum shifts zeros and turns q and k, which are blind to their own scale.
            values.iter_mut().for_each(|x| *x = *x * 1.0625 + 0.03125);
            let Outcome::Compared(outputs) = replay(&changed).unwrap() else { panic!("{} was skipped", case.name) };
            assert!(outputs.iter().any(|output| !output.passes), "{}: a change of {name} is not seen", case.name);
        }
    }
}

/// Cases as calls of `delta_h`: on inputs rounded to bf16, exact results stay within that rounding of the expected ones, and a
/// changed input does not.
#[test]
fn delta_h_calls_agree_with_the_cases() {
    let mut names = Vec::new();
    for case in cases() {
        let Some(call) = delta_h_call(&case).unwrap_or_else(|error| panic!("{}: {error}", case.name)) else { continue };
        let errors = |sample: &kda_ref::delta_h::sample::Sample| {
            let got = run(&sample.problem(), Mode::Exact).expect("a valid call");
            let h = call.h.as_ref().map(|h| relative_error(h, &got.h.expect("h").values));
            (relative_error(&call.final_state, &got.final_state.expect("final states").values), h.unwrap_or(0.0))
        };
        // The three inputs are off by at most 2^-9 each: sqrt(3) 2^-9 together.
        let bound = 3f64.sqrt() * 2f64.powi(-9);
        let (state, h) = errors(&call.sample);
        println!("{}: final state {state:.1e}, h {h:.1e}", case.name);
        assert!(state < bound && h < bound, "{}: {state} {h}", case.name);
        let mut changed = call.sample.clone();
        changed.u.iter_mut().for_each(|u| *u = half::bf16::from_f32(u.to_f32() * 1.0625));
        assert!(errors(&changed).0 > bound, "{}: a change of u is not seen", case.name);
        names.push(case.name);
    }
    assert!(["delta_h_3chunks", "varlen_0_3_0"].iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
}

/// Cases as calls of `tc_verify`, whose records `tc_commit` applies: outputs, and the state after every number of tokens. A changed
/// input is seen.
#[test]
fn tc_verify_and_commit_agree_with_the_cases() {
    let mut names = Vec::new();
    for case in cases() {
        let replayed = |case: &Case| tc_verify_replay(case).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let Some(outputs) = replayed(&case) else { continue };
        assert!(outputs.len() == 2 && outputs.iter().all(|o| o.passes && o.elements > 0), "{}: {outputs:?}", case.name);
        for name in case.tensors.keys().filter(|name| name.starts_with("in.")) {
            let mut changed = case.clone();
            let Some(Values::Float(values)) = changed.tensors.get_mut(name).map(|t| &mut t.values) else { continue };
            values.iter_mut().for_each(|x| *x = *x * 1.0625 + 0.03125);
            let outputs = replayed(&changed).expect("still a call");
            assert!(outputs.iter().any(|o| !o.passes), "{}: a change of {name} is not seen", case.name);
        }
        names.push(case.name);
    }
    println!("{names:?}");
    assert!(["t4_verify_softplus", "conv_t4_verify"].iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
}
