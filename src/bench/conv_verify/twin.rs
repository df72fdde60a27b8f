//! The hand-written `conv_verify` (`benches/peers/conv_verify/twin.cu`): its configurations, and how a call becomes its
//! argument.

use crate::bench::Launch;
use crate::bench::shape::Shape;
use crate::bench::twin::{Kernel, Twin};
use kda_core::{PreparedLaunch, TensorArg};
use kda_runtime::operators::conv_verify::{Gate, Problem};

/// Snapshots of calls below this many bytes leave L2 first.
const EVICT_FIRST_BYTES: f64 = 150e6;
/// Bytes of the argument: 16 pointers and 10 words.
const ARGUMENT: usize = 16 * 8 + 10 * 4;

/// The twin.
pub struct HandWritten;

impl Twin for HandWritten {
    fn contracts(&self) -> &'static [&'static str] {
        &["fp32"]
    }

    fn source(&self) -> &'static str {
        "benches/peers/conv_verify/twin.cu"
    }

    fn most_tokens(&self) -> u64 {
        8
    }

    fn block(&self) -> u32 {
        512
    }

    fn argument_bytes(&self) -> u32 {
        ARGUMENT as u32
    }

    fn configurations(&self, shape: Shape) -> &'static [&'static str] {
        match shape.pairs() {
            0..=8 => &["v8_k8", "v8_k8_rolled", "v16_k8", "v16_k8_rolled"],
            9..=16 => &["v16_k8", "v16_k8_rolled", "v32_k8_rolled"],
            17..=32 => &["v32_k8", "v32_k8_rolled", "v32_k8_two", "v32_k32_two"],
            33..=64 => &["v32_k8_two", "v32_k32_two", "v64_k32_two"],
            65..=128 => &["v64_k32_two", "v128_k32", "v128_k32_two"],
            129..=512 => &["v128_k32", "v128_k32_two"],
            _ => &["v64_k32_two", "v128_k32", "v128_k32_two"],
        }
    }
}

/// Rows of V a CTA of a configuration.
fn rows(name: &str) -> u64 {
    name.strip_prefix('v').and_then(|rest| rest.split('_').next()).and_then(|rows| rows.parse().ok()).unwrap_or(128)
}

/// The launch of a call, field by field as the twin's `Args` has them.
pub fn launch(problem: &Problem, shape: Shape, bytes: f64, kernel: &Kernel, launch: Launch) -> PreparedLaunch {
    let address = |tensor: Option<TensorArg>| tensor.map_or(0, |tensor| tensor.ptr);
    let pointers = [
        problem.x.ptr,
        problem.conv_weight.ptr,
        address(problem.conv_bias),
        problem.conv_state.ptr,
        problem.conv_slots.ptr,
        problem.state_slots.ptr,
        problem.snapshot_rows.ptr,
        address(problem.windows_out),
        problem.a.ptr,
        problem.b.ptr,
        address(problem.a_log),
        problem.dt_bias.ptr,
        problem.state.ptr,
        address(problem.states_out),
        problem.out.ptr,
        problem.workspace.ptr,
    ];
    let (lower_bound, bounded) = match problem.gate {
        Gate::Bounded { lower_bound } => (lower_bound, 1),
        Gate::Softplus => (0.0, 0),
    };
    let overlap = match launch {
        Launch::Plain => 0,
        Launch::Pdl => 1,
        Launch::PdlStable => 2,
    };
    let words = [
        shape.n as u32,
        shape.h as u32,
        shape.h as u32,
        (3 * shape.h * 128) as u32,
        1,
        problem.scale.to_bits(),
        lower_bound.to_bits(),
        bounded,
        overlap,
        u32::from(bytes < EVICT_FIRST_BYTES),
    ];
    let mut params = Vec::with_capacity(ARGUMENT);
    params.extend(pointers.iter().flat_map(|pointer| pointer.to_le_bytes()));
    params.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let grid = [(shape.pairs() * 128 / rows(kernel.name)) as u32, 1, 1];
    PreparedLaunch { desc: kernel.desc, grid, params, maps: Vec::new(), pdl: launch != Launch::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::twin::locate;

    /// Every configuration is a kernel of the source, and its name says the rows of V that it divides the grid by.
    #[test]
    fn configurations_are_kernels_of_the_source() {
        let source = std::fs::read_to_string(locate(HandWritten.source())).unwrap();
        for pairs in [1, 8, 16, 32, 64, 128, 512, 4096] {
            for name in HandWritten.configurations(Shape::of_pairs(4, pairs)) {
                assert!(source.contains(&format!("KERNEL({name}, {},", rows(name))), "{name}");
            }
        }
    }
}
