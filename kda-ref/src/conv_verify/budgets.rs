//! The reference of a kernel test: contract-mode values of every live row, and how far a kernel may be off.
//!
//! ```text
//! reference = Contract;   right versions = Emulate, ContractOtherTies      (see crate::budget for the limit)
//! ```
//! Each row has its own budget, so a row of large values cannot hide an error in a row of small ones.
//! The contract's fixed acceptance bounds ([`OUT_BOUND`], [`STATE_BOUND`]) hold for typical inputs; budgets are tighter
//! there, and they stay right for inputs that are not typical.

use super::problem::{Outputs, Problem, SnapshotRule};
use super::validate::Refusal;
use super::{HEAD, run};
use crate::Mode;
use crate::budget::{Budget, Judgement, Stored};
use crate::round::widen;
use half::bf16;

/// Relative Frobenius error that the contract accepts for `out` of typical inputs.
pub const OUT_BOUND: f64 = 2e-3;
/// Relative Frobenius error that the contract accepts for the states of typical inputs.
pub const STATE_BOUND: f64 = 1e-4;

/// Reference and budgets of one live row.
#[derive(Clone, Debug)]
pub struct RowReference {
    /// The row.
    pub n: usize,
    /// `o` before rounding, `[T, HV*V]`.
    pub out: Vec<f64>,
    /// What a kernel's bf16 output may be off by.
    pub out_budget: Budget,
    /// States after each token `[T, HV, V, K]`; empty for a null snapshot row.
    pub states: Vec<f64>,
    /// What a kernel's fp32 states may be off by.
    pub state_budget: Budget,
    /// Where the states lie in the buffer `[rows, T_alloc, HV, V, K]`: its first element.
    pub states_begin: usize,
}

/// References of all live rows of one call.
#[derive(Clone, Debug)]
pub struct Checked {
    /// One entry for every live row, in order.
    pub rows: Vec<RowReference>,
    /// Tokens a row.
    tokens: usize,
    /// Output elements a token.
    width: usize,
}

/// One judged row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowJudgement {
    /// The row.
    pub n: usize,
    /// How it fared.
    pub judgement: Judgement,
}

/// Runs the three modes and derives a budget for each live row.
///
/// # Errors
/// As [`run`].
pub fn reference(problem: &Problem<'_>) -> Result<Checked, Refusal> {
    let [contract, other_ties, emulated] =
        [Mode::Contract, Mode::ContractOtherTies, Mode::Emulate].map(|mode| values(problem, mode));
    let (contract, other_ties, emulated) = (contract?, other_ties?, emulated?);
    let (d, width) = (problem.dims, problem.dims.hv * HEAD);
    let mut rows = Vec::new();
    for n in (0..d.n).filter(|&n| problem.live_row(n).is_some()) {
        let out = n * d.t * width..(n + 1) * d.t * width;
        let target = problem.snapshot_targets(n).map(|(row, _)| row);
        let states_begin = target.unwrap_or(0) * problem.t_alloc * d.state_len();
        let length = if target.is_some() { d.t * d.state_len() } else { 0 };
        let states = n * d.t * d.state_len()..n * d.t * d.state_len() + length;
        let versions = [&other_ties, &emulated];
        let out_versions = versions.map(|v| &v.out[out.clone()]);
        let state_versions = versions.map(|v| &v.states[states.clone()]);
        rows.push(RowReference {
            n,
            out_budget: Budget::derive(&contract.out[out.clone()], &out_versions, Stored::Bf16),
            out: contract.out[out].to_vec(),
            state_budget: Budget::derive(&contract.states[states.clone()], &state_versions, Stored::F32),
            states: contract.states[states].to_vec(),
            states_begin,
        });
    }
    Ok(Checked { rows, tokens: d.t, width })
}

struct Values {
    out: Vec<f64>,
    states: Vec<f64>,
}

/// Outputs `[N, T, HV*V]` and states `[N, T, HV, V, K]`. Windows and rolls are exact copies and left out.
fn values(problem: &Problem<'_>, mode: Mode) -> Result<Values, Refusal> {
    let (d, width) = (problem.dims, problem.dims.hv * HEAD);
    let problem =
        Problem { roll: false, snapshot_rule: SnapshotRule::ByBatch, t_alloc: problem.t_alloc.min(d.t), ..*problem };
    let mut out = vec![0.0; d.n * d.t * width];
    let mut out_bf16 = vec![bf16::ZERO; out.len()];
    let mut states = vec![0.0; d.n * d.t * d.state_len()];
    let mut outputs = Outputs {
        out: &mut out,
        out_bf16: &mut out_bf16,
        out_row_stride: width,
        states: Some(&mut states),
        windows: None,
        rolled: None,
    };
    run(&problem, &mut outputs, mode)?;
    Ok(Values { out, states })
}

impl Checked {
    /// Judges a kernel's output: rows `n*T + t`, `row_stride` elements apart.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn judge_out(&self, out: &[bf16], row_stride: usize) -> Vec<RowJudgement> {
        let judge = |row: &RowReference| {
            let tokens = (0..self.tokens).map(|t| (row.n * self.tokens + t) * row_stride);
            let measured: Vec<f64> =
                tokens.flat_map(|begin| &out[begin..begin + self.width]).map(|&x| f64::from(widen(x))).collect();
            RowJudgement { n: row.n, judgement: row.out_budget.judge(&row.out, &measured) }
        };
        self.rows.iter().map(judge).collect()
    }

    /// Judges a kernel's states `[rows, T_alloc, HV, V, K]`. Rows without snapshots are left out.
    ///
    /// # Panics
    /// If `states` is shorter than that.
    pub fn judge_states(&self, states: &[f32]) -> Vec<RowJudgement> {
        let judge = |row: &RowReference| {
            let block = &states[row.states_begin..row.states_begin + row.states.len()];
            let measured: Vec<f64> = block.iter().map(|&x| f64::from(x)).collect();
            RowJudgement { n: row.n, judgement: row.state_budget.judge(&row.states, &measured) }
        };
        self.rows.iter().filter(|row| !row.states.is_empty()).map(judge).collect()
    }
}
