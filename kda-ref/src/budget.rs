//! Error measures, and bounds that come from data.
//!
//! ```text
//! limit = 1.02 * storage + factor * arithmetic + floor
//! storage    = error of the reference itself once rounded to the type that the kernel stores
//! arithmetic = error of the emulation before that rounding (and of the other side of rounding ties, if larger)
//! ```
//! The storage part cannot be avoided and is known, so it gets 2 % and not a factor: with bf16 outputs it is a hundred
//! times larger than the arithmetic, and a factor on it would let wrong kernels pass. The arithmetic of two right
//! kernels differs by the functions they approximate, so it gets a factor: [`FACTOR_RMS`] on the relative Frobenius error
//! and [`FACTOR_MAX`] on the largest single error, which is a noisier quantity. The floor is one unit in the last place
//! of fp32: inputs on which the emulation happens to be exact must not ask the same of a kernel.
//!
//! NaN never passes, neither in the measured values nor in the reference.

use crate::round::to_bf16;

/// Factor on the arithmetic part of the relative Frobenius error.
pub const FACTOR_RMS: f64 = 2.0;
/// Factor on the arithmetic part of the largest error.
pub const FACTOR_MAX: f64 = 4.0;
/// What the storage part may exceed the reference's own rounding error by.
pub const STORAGE_MARGIN: f64 = 1.02;
/// One unit in the last place of fp32, relative.
pub const FLOOR: f64 = 1.0 / (1u64 << 23) as f64;

/// Distance of measured values to a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorMeasure {
    /// Relative Frobenius error: `|measured - reference| / |reference|`.
    pub rms: f64,
    /// Largest absolute difference divided by the largest absolute reference value.
    pub max: f64,
}

impl ErrorMeasure {
    /// Measures two equally long sequences. Equal sequences give 0; a NaN anywhere, an infinite reference,
    /// different lengths, or any difference to an all-zero reference give a measure that is not finite.
    pub fn between(reference: &[f64], measured: &[f64]) -> Self {
        if reference.len() != measured.len() {
            return ErrorMeasure { rms: f64::INFINITY, max: f64::INFINITY };
        }
        let (mut norm, mut error) = (0.0, 0.0);
        let (mut largest, mut largest_error) = (0.0f64, 0.0f64);
        for (&r, &m) in reference.iter().zip(measured) {
            let difference = (r - m).abs();
            norm += r * r;
            error += difference * difference;
            // `max` drops NaN; the sums keep it.
            largest = largest.max(r.abs());
            largest_error = largest_error.max(difference);
        }
        if error.is_nan() || !norm.is_finite() {
            return ErrorMeasure { rms: f64::NAN, max: f64::NAN };
        }
        let ratio = |error: f64, norm: f64| if error == 0.0 { 0.0 } else { error / norm };
        ErrorMeasure { rms: ratio(error.sqrt(), norm.sqrt()), max: ratio(largest_error, largest) }
    }

    fn larger(self, other: Self) -> Self {
        ErrorMeasure { rms: nan_max(self.rms, other.rms), max: nan_max(self.max, other.max) }
    }
}

/// The larger of two numbers; NaN if either is NaN.
fn nan_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Relative Frobenius error of `measured` against `reference`; NaN if either holds a NaN.
pub fn relative_error(reference: &[f64], measured: &[f64]) -> f64 {
    ErrorMeasure::between(reference, measured).rms
}

/// Largest absolute difference; NaN if either holds a NaN, infinite for different lengths.
pub fn max_abs_error(reference: &[f64], measured: &[f64]) -> f64 {
    if reference.len() != measured.len() {
        return f64::INFINITY;
    }
    let difference = |(r, m): (&f64, &f64)| if r == m { 0.0 } else { (r - m).abs() };
    reference.iter().zip(measured).map(difference).fold(0.0, nan_max)
}

/// The type that a kernel stores a result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// fp32.
    F32,
    /// bf16.
    Bf16,
}

impl Stored {
    /// `x` rounded to this type, as float64.
    pub fn round(self, x: f64) -> f64 {
        match self {
            Stored::F32 => f64::from(x as f32),
            Stored::Bf16 => to_bf16(x),
        }
    }
}

/// A bound on a kernel's error against one float64 reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Error of the rounded reference: unavoidable.
    pub storage: ErrorMeasure,
    /// Error of a right kernel's arithmetic before the final rounding.
    pub arithmetic: ErrorMeasure,
}

/// The outcome of one comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// What was measured.
    pub error: ErrorMeasure,
    /// What was allowed.
    pub limit: ErrorMeasure,
    /// True when both measures are numbers within their limits.
    pub passes: bool,
}

impl Budget {
    /// Derives the budget of results stored as `stored` from the reference and the right but inexact versions of it
    /// (emulations before the final rounding; the reference with ties rounded the other way). The worst one counts.
    pub fn derive(reference: &[f64], right_versions: &[&[f64]], stored: Stored) -> Self {
        let rounded: Vec<f64> = reference.iter().map(|&x| stored.round(x)).collect();
        let zero = ErrorMeasure { rms: 0.0, max: 0.0 };
        let measures = right_versions.iter().map(|version| ErrorMeasure::between(reference, version));
        Budget {
            storage: ErrorMeasure::between(reference, &rounded),
            arithmetic: measures.fold(zero, ErrorMeasure::larger),
        }
    }

    /// The budget of results that the right version gives as stored, so that no part before the rounding is known: twice
    /// its error (and four times its largest error). For operators whose rounding points feed back into the result.
    pub fn of_stored(reference: &[f64], right_version: &[f64]) -> Self {
        Budget {
            storage: ErrorMeasure { rms: 0.0, max: 0.0 },
            arithmetic: ErrorMeasure::between(reference, right_version),
        }
    }

    /// The largest errors that pass.
    pub fn limit(&self) -> ErrorMeasure {
        ErrorMeasure {
            rms: STORAGE_MARGIN * self.storage.rms + FACTOR_RMS * self.arithmetic.rms + FLOOR,
            max: STORAGE_MARGIN * self.storage.max + FACTOR_MAX * self.arithmetic.max + FLOOR,
        }
    }

    /// Compares a kernel's results with the reference that this budget was derived from.
    pub fn judge(&self, reference: &[f64], measured: &[f64]) -> Judgement {
        let (error, limit) = (ErrorMeasure::between(reference, measured), self.limit());
        Judgement { error, limit, passes: error.rms <= limit.rms && error.max <= limit.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures() {
        let m = ErrorMeasure::between(&[3.0, 4.0], &[3.0, 4.5]);
        assert_eq!((m.rms, m.max), (0.1, 0.125));
        assert_eq!(ErrorMeasure::between(&[0.0], &[0.0]).rms, 0.0);
        assert_eq!(ErrorMeasure::between(&[0.0], &[1e-30]).rms, f64::INFINITY);
        assert_eq!(max_abs_error(&[1.0, -2.0], &[1.0, -1.5]), 0.5);
        assert_eq!(max_abs_error(&[1.0], &[1.0, 2.0]), f64::INFINITY);
    }

    #[test]
    fn nan_never_passes() {
        let budget =
            Budget { storage: ErrorMeasure { rms: 1.0, max: 1.0 }, arithmetic: ErrorMeasure { rms: 1.0, max: 1.0 } };
        for (reference, measured) in [
            ([1.0, 2.0], [f64::NAN, 2.0]),
            ([1.0, 2.0], [1.0, f64::NAN]),
            ([f64::NAN, 2.0], [1.0, 2.0]),
            ([f64::NAN, 2.0], [f64::NAN, 2.0]),
            ([1.0, 2.0], [f64::INFINITY, 2.0]),
            ([f64::INFINITY, 2.0], [f64::INFINITY, 3.0]),
        ] {
            assert!(!budget.judge(&reference, &measured).passes);
        }
        for (reference, measured) in [([1.0, 2.0], [f64::NAN, 2.0]), ([f64::NAN, 2.0], [f64::NAN, 2.0])] {
            assert!(!max_abs_error(&reference, &measured).is_finite());
        }
        assert!(budget.judge(&[1.0, 2.0], &[1.0, 2.1]).passes);
        let poisoned = Budget::derive(&[1.0], &[&[f64::NAN]], Stored::F32);
        assert!(!poisoned.judge(&[1.0], &[1.0]).passes);
    }

    #[test]
    fn bf16_rounding_passes_and_little_more() {
        let reference: Vec<f64> = (1..2000).map(|i| (f64::from(i) * 0.731).sin()).collect();
        let budget = Budget::derive(&reference, &[&reference], Stored::Bf16);
        let rounded: Vec<f64> = reference.iter().map(|&x| to_bf16(x)).collect();
        assert!(budget.judge(&reference, &rounded).passes);
        let off: Vec<f64> = rounded.iter().map(|x| x * (1.0 + 1e-3)).collect();
        assert!(!budget.judge(&reference, &off).passes);
        let mut one_wrong = rounded;
        one_wrong[700] += 0.02;
        assert!(!budget.judge(&reference, &one_wrong).passes);
    }
}
