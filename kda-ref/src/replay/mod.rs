//! Replays golden cases made by third-party references through the golden model, in exact mode.
//!
//! A case is a set of named tensors (`in.*` and `out.*`, see the README of the case files) and a few fields. Whoever
//! reads the files decodes them into [`Case`]; nothing here knows a file format.
//!
//! ```text
//! tolerance of an element x:  1e-10                    stored as float64
//!                             1e-10 + 2^-24 |x|        stored as fp32 (one rounding of a float64 result)
//!                             2e-6                     delta_h_3chunks, whose inputs are themselves fp32 roundings
//! ```

mod cases;
mod delta_h;
mod tc_verify;
mod tensors;

pub use delta_h::{DeltaHCase, delta_h_call};
pub use tc_verify::{tc_verify_call, tc_verify_replay};
pub use tensors::{Case, ReplayError, StoredType, Tensor, Values};

/// Absolute difference that float64 arithmetic in another order may make.
pub const TOLERANCE: f64 = 1e-10;
/// Tolerance where the inputs of the case are roundings of what the expected values were computed from.
pub const ROUNDED_INPUTS: f64 = 2e-6;

/// One output of a case, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the expected tensor.
    pub output: String,
    /// Elements compared.
    pub elements: usize,
    /// Largest absolute difference.
    pub max_abs_error: f64,
    /// Difference and tolerance of the element that comes nearest to its tolerance, or exceeds it most.
    pub worst: (f64, f64),
    /// True when every element is a number within its tolerance.
    pub passes: bool,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Every expected output was compared.
    Compared(Vec<Comparison>),
    /// The golden model does not cover the case.
    Skipped {
        /// Why.
        reason: &'static str,
    },
}

impl Outcome {
    /// True when the case was compared, holds at least one output, and every output passes.
    pub fn passes(&self) -> bool {
        match self {
            Outcome::Compared(outputs) => !outputs.is_empty() && outputs.iter().all(|output| output.passes),
            Outcome::Skipped { .. } => false,
        }
    }
}

/// Replays one case.
///
/// # Errors
/// [`ReplayError`] when a tensor is missing or has another shape or kind than the case needs.
pub fn replay(case: &Case) -> Result<Outcome, ReplayError> {
    let skipped = "a whole language model; the golden model has the layer's recurrence but no model around it";
    if case.name == "tiny_kda_lm" || case.tensors.contains_key("in.prompt") {
        return Ok(Outcome::Skipped { reason: skipped });
    }
    let has = |name: &str| case.tensors.contains_key(name);
    let outputs = if has("out.g_cumsum") {
        cases::delta_h(case)?
    } else if has("in.conv_state") {
        cases::conv(case)?
    } else if has("in.slots") {
        cases::pool(case)?
    } else {
        cases::layer(case)?
    };
    Ok(Outcome::Compared(outputs))
}

/// Compares computed values with the expected tensor `name`.
fn compare(case: &Case, name: &str, computed: &[f64], fixed: Option<f64>) -> Result<Comparison, ReplayError> {
    let (stored, expected) = case.floats_stored(name)?;
    if expected.len() != computed.len() {
        return Err(ReplayError::Shape {
            name: name.into(),
            given: case.shape(name)?.to_vec(),
            needed: vec![computed.len()],
        });
    }
    let relative = if stored == StoredType::F64 { 0.0 } else { 1.0 / (1u64 << 24) as f64 };
    let (mut max_abs_error, mut worst, mut passes) = (0.0f64, (0.0, TOLERANCE), true);
    for (&e, &c) in expected.iter().zip(computed) {
        let (error, tolerance) = ((e - c).abs(), fixed.unwrap_or(TOLERANCE + relative * e.abs()));
        let within = error <= tolerance;
        passes &= within;
        // A NaN counts as the largest error.
        if error > max_abs_error || error.is_nan() {
            max_abs_error = error;
        }
        if error * worst.1 > worst.0 * tolerance || error.is_nan() {
            worst = (error, tolerance);
        }
        if max_abs_error.is_nan() {
            break;
        }
    }
    Ok(Comparison { output: name.into(), elements: expected.len(), max_abs_error, worst, passes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn case(values: Vec<f64>, stored: StoredType) -> Case {
        let tensor = Tensor { stored, shape: vec![values.len()], values: Values::Float(values) };
        let tensors = BTreeMap::from([("out.o".to_string(), tensor)]);
        Case { name: "by hand".into(), heads: 1, value_heads: 1, lower_bound: None, tensors }
    }

    #[test]
    fn tolerances_follow_the_stored_type() {
        let off = 1000.0 + 2e-5;
        assert!(compare(&case(vec![1000.0], StoredType::F32), "out.o", &[off], None).unwrap().passes);
        assert!(!compare(&case(vec![1000.0], StoredType::F64), "out.o", &[off], None).unwrap().passes);
        assert!(!compare(&case(vec![1000.0], StoredType::F32), "out.o", &[1000.0 + 1e-4], None).unwrap().passes);
    }

    #[test]
    fn nan_and_wrong_lengths_never_pass() {
        let expected = case(vec![1.0, 2.0, 3.0], StoredType::F64);
        let nan = compare(&expected, "out.o", &[1.0, f64::NAN, 3.0], None).unwrap();
        assert!(!nan.passes && nan.max_abs_error.is_nan());
        assert!(!compare(&case(vec![f64::NAN], StoredType::F64), "out.o", &[f64::NAN], None).unwrap().passes);
        assert!(matches!(compare(&expected, "out.o", &[1.0], None), Err(ReplayError::Shape { .. })));
        assert!(matches!(replay(&expected), Err(ReplayError::Missing { .. })));
    }

    #[test]
    fn the_language_model_is_skipped_with_a_reason() {
        let mut lm = case(vec![], StoredType::F64);
        lm.name = "tiny_kda_lm".into();
        assert!(matches!(replay(&lm), Ok(Outcome::Skipped { .. })));
        assert!(!replay(&lm).unwrap().passes());
    }
}
