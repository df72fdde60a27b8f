//! The reference of a kernel test: contract-mode values of every live row, and how far a kernel may be off. As for
//! `conv_verify`, a row has a budget of its own; that of the state knows the type of the pool.

use super::problem::{Outputs, Problem, Refusal, Tokens};
use super::{HEAD, run};
use crate::Mode;
use crate::budget::{Budget, Judgement, Stored};
use crate::floats::{FloatVec, Floats};

/// Reference and budgets of one live row.
#[derive(Clone, Debug)]
pub struct RowReference {
    /// The row.
    pub n: usize,
    /// `o` before rounding, `[HV*V]`.
    pub out: Vec<f64>,
    /// What a kernel's bf16 output may be off by.
    pub out_budget: Budget,
    /// The new state before rounding, in the order of the pool.
    pub state: Vec<f64>,
    /// What a kernel's state may be off by, as stored.
    pub state_budget: Budget,
    /// First element of the state in the pool.
    pub state_begin: usize,
}

/// Runs the three modes and derives a budget for each live row.
///
/// # Errors
/// As [`run`].
pub fn reference(problem: &Problem<'_>) -> Result<Checked, Refusal> {
    let versions = [Mode::Contract, Mode::ContractOtherTies, Mode::Emulate].map(|mode| values(problem, mode));
    let [contract, other_ties, emulated] = versions;
    let (contract, other_ties, emulated) = (contract?, other_ties?, emulated?);
    let stored = if matches!(problem.state, Floats::Bf16(_)) { Stored::Bf16 } else { Stored::F32 };
    let width = problem.dims.hv * HEAD;
    let live = (0..problem.dims.n).filter_map(|n| Some((n, problem.places(n)?)));
    let rows = live.map(|(n, places)| {
        let (out, begin) = (n * width..(n + 1) * width, problem.head(places.slot_out, 0));
        let state = begin..begin + problem.dims.state_len();
        let right = [&other_ties, &emulated];
        RowReference {
            n,
            out_budget: Budget::derive(&contract.0[out.clone()], &right.map(|v| &v.0[out.clone()]), Stored::Bf16),
            out: contract.0[out].to_vec(),
            state_budget: Budget::derive(&contract.1[state.clone()], &right.map(|v| &v.1[state.clone()]), stored),
            state: contract.1[state].to_vec(),
            state_begin: begin,
        }
    });
    Ok(Checked { rows: rows.collect(), width })
}

/// Outputs `[N, HV*V]`, and new states where the pool has them.
fn values(problem: &Problem<'_>, mode: Mode) -> Result<(Vec<f64>, Vec<f64>), Refusal> {
    let width = problem.dims.hv * HEAD;
    let (mut out, mut state) = (vec![0.0; problem.dims.n * width], vec![0.0; problem.state.len()]);
    let mut rolled = match &problem.tokens {
        Tokens::Convolved(c) => Some(FloatVec::filled(matches!(c.pool, Floats::Bf16(_)), c.pool.len(), 0.0)),
        Tokens::Given(_) => None,
    };
    let rolled = rolled.as_mut().map(FloatVec::view_mut);
    run(problem, &mut Outputs { out: &mut out, out_row_stride: width, state: &mut state, rolled }, mode)?;
    Ok((out, state))
}

/// References of all live rows of one call.
#[derive(Clone, Debug)]
pub struct Checked {
    /// One entry for every live row, in order.
    pub rows: Vec<RowReference>,
    /// Output elements a row.
    width: usize,
}

impl Checked {
    /// Judges a kernel's output, rows `row_stride` elements apart.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn judge_out(&self, out: &[half::bf16], row_stride: usize) -> Vec<Judgement> {
        let judge = |row: &RowReference| {
            let measured = Floats::Bf16(out).widened(row.n * row_stride, self.width);
            row.out_budget.judge(&row.out, &measured)
        };
        self.rows.iter().map(judge).collect()
    }

    /// Judges a kernel's pool of states.
    ///
    /// # Panics
    /// If `state` is shorter than the pool.
    pub fn judge_state(&self, state: Floats<'_>) -> Vec<Judgement> {
        let judge = |row: &RowReference| {
            let measured = state.widened(row.state_begin, row.state.len());
            row.state_budget.judge(&row.state, &measured)
        };
        self.rows.iter().map(judge).collect()
    }
}
