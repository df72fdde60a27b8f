//! The hand-written `delta_h` (`benches/peers/delta_h/twin.cu`): its configurations, and how a call becomes its argument.

use super::HEAD;
use crate::bench::Launch;
use crate::bench::shape::Shape;
use crate::bench::twin::{Kernel, Twin};
use kda_core::tensor_map::{MAP_BYTES, TensorMapParam};
use kda_core::{Elem, PreparedLaunch, Swizzle, TensorArg, TensorMapArg};
use kda_runtime::operators::delta_h::{Gate, Problem};

/// Tensor maps, which the argument begins with: w, kg, u, h, v_new.
const MAPS: u32 = 5;
/// Bytes of the argument: the maps, 5 pointers, 2 words, and what fills the last 64 bytes.
const ARGUMENT: usize = (MAPS * MAP_BYTES) as usize + 64;
/// Multiprocessors of the device that it is written for.
const MULTIPROCESSORS: u64 = 132;

/// A configuration: name, columns of V a CTA, CTAs of a cluster.
const CONFIGURATIONS: [(&str, u64, u32); 2] = [("v32", 32, 1), ("v64_pair", 64, 2)];

/// The twin.
pub struct HandWritten;

impl Twin for HandWritten {
    fn contract(&self) -> &'static str {
        "serial"
    }

    fn source(&self) -> &'static str {
        "benches/peers/delta_h/twin.cu"
    }

    fn most_tokens(&self) -> u64 {
        1
    }

    /// It is the same for all lengths.
    fn tokens(&self, _shape: Shape) -> u64 {
        1
    }

    fn check_key(&self, shape: Shape) -> [u64; 3] {
        [shape.t, shape.h, shape.n]
    }

    fn cluster(&self, name: &str) -> u32 {
        of(name).1
    }

    fn block(&self) -> u32 {
        224
    }

    fn argument_bytes(&self) -> u32 {
        ARGUMENT as u32
    }

    fn configurations(&self, _shape: Shape) -> &'static [&'static str] {
        &["v32", "v64_pair"]
    }
}

/// Columns of V a CTA and CTAs of a cluster.
fn of(name: &str) -> (u64, u32) {
    let found = CONFIGURATIONS.iter().find(|(known, ..)| *known == name);
    found.map_or((64, 1), |(_, columns, cluster)| (*columns, *cluster))
}

/// The launch of a call, field by field as the twin's `Args` has them.
pub fn launch(problem: &Problem, shape: Shape, kernel: &Kernel, launch: Launch) -> PreparedLaunch {
    let (columns, cluster) = of(kernel.name);
    let Shape { t, h, n } = shape;
    // Rows of 64 columns, heads cut in two: boxes of 128 bytes a row.
    let halves = |tensor: TensorArg| TensorArg::dense(tensor.ptr, tensor.bytes, Elem::BF16, &[t, 2 * h, HEAD / 2]).ok();
    // Matrices and rows of all heads, one below the other.
    let h_rows = problem.h.and_then(|states| {
        let rows = states.shape()[0] * h * HEAD;
        TensorArg::dense(states.ptr, states.bytes, Elem::BF16, &[rows, HEAD]).ok()
    });
    let v_rows = problem.v_new.and_then(|v| TensorArg::dense(v.ptr, v.bytes, Elem::BF16, &[t, h * HEAD]).ok());
    // [rows, heads, columns] of a box; two CTAs of a cluster load half of w and kg each.
    let shared: &'static [u32] = if cluster == 2 { &[64, 1, 64] } else { &[64, 2, 64] };
    let (values, out_h, out_v, narrow): (&'static [u32], &'static [u32], &'static [u32], Swizzle) = match columns {
        32 => (&[64, 1, 32], &[128, 32], &[64, 32], Swizzle::B64),
        _ => (&[64, 1, 64], &[128, 64], &[64, 64], Swizzle::B128),
    };
    let maps = [
        (halves(problem.w), shared, Swizzle::B128, false),
        (halves(problem.kg), shared, Swizzle::B128, false),
        (halves(problem.u), values, narrow, false),
        (h_rows, out_h, narrow, true),
        (v_rows, out_v, narrow, true),
    ];
    let maps = maps.into_iter().zip((0..).step_by(MAP_BYTES as usize)).filter_map(
        |((tensor, tile, swizzle, writes), offset)| {
            let param =
                TensorMapParam { elem: Elem::BF16, writes, optional: false, stable: true, dims: &[], tile, swizzle };
            tensor.map(|tensor| TensorMapArg { param, tensor, offset })
        },
    );
    let address = |tensor: Option<TensorArg>| tensor.map_or(0, |tensor| tensor.ptr);
    let gate = match problem.gate {
        Gate::Cumulative(gate) | Gate::Decay(gate) | Gate::Scalar(gate) => gate.ptr,
    };
    let pointers = [
        gate,
        address(problem.initial_state),
        address(problem.final_state),
        address(problem.v_new),
        problem.schedule.ptr,
    ];
    let mut params = vec![0; (MAPS * MAP_BYTES) as usize];
    params.extend(pointers.iter().flat_map(|pointer| pointer.to_le_bytes()));
    params.extend([h as u32, t as u32].iter().flat_map(|word| word.to_le_bytes()));
    params.resize(ARGUMENT, 0);
    let items = n * h * (HEAD / columns);
    let grid = [items.min(MULTIPROCESSORS) as u32, 1, 1];
    PreparedLaunch { desc: kernel.desc, grid, params, maps: maps.collect(), pdl: launch != Launch::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::twin::locate;

    /// Every configuration is a kernel of the source, with the columns and the cluster that its launch has.
    #[test]
    fn configurations_are_kernels_of_the_source() {
        let source = std::fs::read_to_string(locate(HandWritten.source())).unwrap();
        for name in HandWritten.configurations(Shape { t: 8192, h: 8, n: 1 }) {
            let (columns, cluster) = of(name);
            assert!(CONFIGURATIONS.iter().any(|(known, ..)| known == name));
            assert!(source.contains(&format!("KERNEL({name}, {columns}, {cluster},")), "{name}");
        }
    }
}
