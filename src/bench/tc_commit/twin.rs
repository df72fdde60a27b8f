//! The hand-written `tc_commit` (`benches/peers/tc_commit/twin.cu`): its configurations, and how a call becomes its argument.

use super::HEAD;
use crate::bench::Launch;
use crate::bench::shape::Shape;
use crate::bench::twin::{Kernel, Twin};
use kda_core::{Elem, PreparedLaunch};
use kda_runtime::operators::tc_commit::{Gate, Problem};

/// Bytes of the argument: 9 pointers and 4 words.
const ARGUMENT: usize = 9 * 8 + 4 * 4;
/// Most records that it is written for.
const MOST_TOKENS: u64 = 8;
/// Kernels: name, rows of V a CTA.
const KERNELS: [(&str, u64); 2] = [("rows32", 32), ("rows64", 64)];

/// The twin.
pub struct HandWritten;

impl Twin for HandWritten {
    fn contracts(&self) -> &'static [&'static str] {
        &["moved", "bf16", "kept"]
    }

    fn source(&self) -> &'static str {
        "benches/peers/tc_commit/twin.cu"
    }

    fn most_tokens(&self) -> u64 {
        1
    }

    /// It is the same for all windows.
    fn tokens(&self, _shape: Shape) -> u64 {
        1
    }

    fn check_key(&self, shape: Shape) -> [u64; 3] {
        [shape.t, shape.h, shape.n]
    }

    fn block(&self) -> u32 {
        128
    }

    fn argument_bytes(&self) -> u32 {
        ARGUMENT as u32
    }

    fn configurations(&self, _shape: Shape) -> &'static [&'static str] {
        &["rows32", "rows64"]
    }
}

/// The launch of a call; `None` if it is none that the twin is written for.
pub fn launch(problem: &Problem, shape: Shape, kernel: &Kernel, launch: Launch) -> Option<PreparedLaunch> {
    let (_, rows) = KERNELS.iter().find(|(name, _)| *name == kernel.name)?;
    let Gate::Bounded { lower_bound } = problem.gate else { return None };
    let fits = problem.state.elem == Elem::BF16
        && problem.layers.is_none()
        && problem.boundary.is_none()
        && shape.t <= MOST_TOKENS;
    if !fits {
        return None;
    }
    let pointers = [
        problem.state.ptr,
        problem.conv.map_or(0, |conv| conv.ptr),
        problem.corr.ptr,
        problem.kg.ptr,
        problem.a_log?.ptr,
        problem.dt_bias.ptr,
        problem.slots.ptr,
        problem.destinations.unwrap_or(problem.slots).ptr,
        problem.counts.ptr,
    ];
    let words = [shape.h as u32, shape.t as u32, problem.null as u32, lower_bound.to_bits()];
    let mut params = Vec::with_capacity(ARGUMENT);
    params.extend(pointers.iter().flat_map(|pointer| pointer.to_le_bytes()));
    params.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let grid = [(shape.pairs() * HEAD / rows) as u32, 1, 1];
    Some(PreparedLaunch { desc: kernel.desc, grid, params, maps: Vec::new(), pdl: launch != Launch::Plain })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Subject;
    use crate::bench::arena::Arena;
    use crate::bench::shape::List;
    use crate::bench::tc_commit::{TcCommit, problem};
    use crate::bench::twin::locate;

    /// Every configuration is a kernel of the source, and its name says the rows of V that divide the grid.
    #[test]
    fn configurations_are_kernels_of_the_source() {
        let source = std::fs::read_to_string(locate(HandWritten.source())).unwrap();
        for (name, rows) in KERNELS {
            assert!(source.contains(&format!("KERNEL({name}, {rows},")), "{name}");
        }
        assert!(source.contains(&format!("sizeof(Args) == {ARGUMENT}")));
    }

    #[test]
    fn a_call_takes_the_kernels_that_fit_it() {
        for contract in TcCommit.contracts().iter().filter(|contract| contract.name != "step") {
            for shape in TcCommit.shapes(List::Small) {
                let layers = if contract.name == "layers" { 2 } else { 1 };
                let problem = problem(&mut Arena::counting(), contract, shape, layers).unwrap();
                for (name, rows) in KERNELS {
                    let kernel = Kernel { name, tokens: 1, desc: TcCommit.kernels()[0], ahead: None };
                    let launch = launch(&problem, shape, &kernel, Launch::Plain);
                    assert_eq!(launch.is_some(), HandWritten.contracts().contains(&contract.name), "{}", contract.name);
                    let Some(launch) = launch else { continue };
                    assert_eq!(
                        (u64::from(launch.grid[0]) * rows, launch.params.len()),
                        (shape.pairs() * HEAD, ARGUMENT)
                    );
                }
            }
        }
    }
}
