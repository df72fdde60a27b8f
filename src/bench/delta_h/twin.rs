//! The hand-written `delta_h` (`benches/peers/delta_h/twin.cu`): its configurations, and how a call becomes its argument.
//!
//! It reads the schedule that ours reads. A call is one launch, or two where sequences may be cut.

use super::HEAD;
use crate::bench::Launch;
use crate::bench::shape::Shape;
use crate::bench::twin::{Kernel, Twin};
use kda_core::tensor_map::{MAP_BYTES, TensorMapParam};
use kda_core::{Elem, KernelDesc, PreparedLaunch, Swizzle, TensorArg, TensorMapArg};
use kda_runtime::operators::delta_h::{Gate, Problem};

/// Tensor maps, which the argument begins with: w, kg, u, h, v_new, M of maps.
const MAPS: u32 = 6;
/// Bytes of the argument: the maps, 7 pointers and 2 words.
const ARGUMENT: usize = (MAPS * MAP_BYTES) as usize + 7 * 8 + 2 * 4;
/// Multiprocessors of the device that it is written for.
const MULTIPROCESSORS: u64 = 132;

/// Kernels: name, columns of V a CTA, CTAs of a cluster.
const KERNELS: [(&str, u64, u32); 4] = [("v32", 32, 1), ("v64_pair", 64, 2), ("maps", 64, 1), ("fold", 64, 2)];
/// The kernel that walks segments; that of their maps runs ahead of it.
const FOLD: &str = "fold";

/// The twin.
pub struct HandWritten;

impl Twin for HandWritten {
    fn contracts(&self) -> &'static [&'static str] {
        &["kda", "serial"]
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

    fn ahead(&self, name: &str) -> Option<&'static str> {
        (name == FOLD).then_some("maps")
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

    /// Those of them that fit a call run it.
    fn configurations(&self, _shape: Shape) -> &'static [&'static str] {
        &["v32", "v64_pair", FOLD]
    }
}

/// Columns of V a CTA and CTAs of a cluster.
fn of(name: &str) -> (u64, u32) {
    let found = KERNELS.iter().find(|(known, ..)| *known == name);
    found.map_or((64, 1), |(_, columns, cluster)| (*columns, *cluster))
}

/// The launches of a call; `None` if the kernel walks segments where there are none, or the other way round.
pub fn launches(problem: &Problem, kernel: &Kernel, launch: Launch) -> Option<Vec<PreparedLaunch>> {
    let batch = problem.batch();
    let ([first, later, maps], [_, later_word, maps_word]) = (batch.entries(), batch.first_entries());
    let pdl = launch != Launch::Plain;
    match (batch.cut(), kernel.ahead) {
        (Some(_), Some(ahead)) => Some(vec![
            prepare(problem, ahead, first + maps, maps_word, pdl),
            // It starts beside the one ahead of it, as ours does.
            prepare(problem, kernel.desc, first + later, later_word, true),
        ]),
        (None, None) => Some(vec![prepare(problem, kernel.desc, first, later_word, pdl)]),
        _ => None,
    }
}

/// A launch over at most so many entries, of the first kind and of one that begins at a word of the schedule.
fn prepare(problem: &Problem, desc: &'static KernelDesc, entries: u64, more: u64, pdl: bool) -> PreparedLaunch {
    let (columns, _) = of(desc.entry);
    let heads = problem.batch().heads;
    let items = entries * heads * (HEAD / columns);
    let grid = [items.min(MULTIPROCESSORS) as u32, 1, 1];
    PreparedLaunch { desc, grid, params: params(problem, more), maps: maps(problem, desc.entry), pdl }
}

/// The argument, field by field as the twin's `Args` has them; the places of tensor maps are zero.
fn params(problem: &Problem, more: u64) -> Vec<u8> {
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
        address(problem.maps),
        address(problem.maps).wrapping_add(problem.batch().map_parts()[0]),
    ];
    let mut params = vec![0; (MAPS * MAP_BYTES) as usize];
    params.extend(pointers.iter().flat_map(|pointer| pointer.to_le_bytes()));
    params.extend([problem.batch().heads as u32, more as u32].iter().flat_map(|word| word.to_le_bytes()));
    params
}

/// The tensor maps of a kernel.
fn maps(problem: &Problem, name: &str) -> Vec<TensorMapArg> {
    let (columns, cluster) = of(name);
    let (batch, bytes) = (problem.batch(), |shape: [u64; 3]| 2 * shape.iter().product::<u64>());
    let (t, h) = (batch.rows, batch.heads);
    // Matrices of 128 columns, cut in two: boxes of 128 bytes a row.
    let halves = |ptr: u64, count: u64, rows: u64| {
        let shape = [count, rows, HEAD / 2];
        // Heads lie side by side in a row of tokens.
        let strides = [HEAD / 2, count * HEAD / 2, 1];
        TensorArg::strided(ptr, bytes(shape), Elem::BF16, &shape, &strides).ok()
    };
    let plane = |tensor: Option<TensorArg>, rows: u64, columns: u64| {
        tensor.and_then(|t| TensorArg::dense(t.ptr, t.bytes, Elem::BF16, &[rows, columns]).ok())
    };
    let states = problem.h.map_or(0, |h| h.shape()[0]);
    let transitions = problem
        .maps
        .filter(|_| batch.segments() > 0)
        .and_then(|memory| halves(memory.ptr + batch.map_parts()[0], 2, batch.segments() * h * 2 * HEAD));
    // Of two CTAs in a cluster each loads half.
    let shared: &'static [u32] = if cluster == 2 { &[1, 64, 64] } else { &[2, 64, 64] };
    let (values, out_h, out_v, narrow): (&'static [u32], &'static [u32], &'static [u32], Swizzle) = match columns {
        32 => (&[1, 64, 32], &[128, 32], &[64, 32], Swizzle::B64),
        _ => (&[1, 64, 64], &[128, 64], &[64, 64], Swizzle::B128),
    };
    let maps = [
        (halves(problem.w.ptr, 2 * h, t), shared, Swizzle::B128, false),
        (halves(problem.kg.ptr, 2 * h, t), shared, Swizzle::B128, false),
        (halves(problem.u.ptr, 2 * h, t), values, narrow, false),
        (plane(problem.h, states * h * HEAD, HEAD), out_h, narrow, true),
        (plane(problem.v_new, t, h * HEAD), out_v, narrow, true),
        (transitions, shared, Swizzle::B128, false),
    ];
    let mut args = Vec::new();
    for (at, (tensor, tile, swizzle, writes)) in (0..).zip(maps) {
        let elem = Elem::BF16;
        let param = TensorMapParam { elem, writes, optional: true, stable: true, dims: &[], tile, swizzle };
        args.extend(tensor.map(|tensor| TensorMapArg { param, tensor, offset: at * MAP_BYTES }));
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Subject;
    use crate::bench::arena::Arena;
    use crate::bench::delta_h::{DeltaH, KDA, Layer, SERIAL};
    use crate::bench::lengths::NAMED;
    use crate::bench::twin::locate;

    /// Every kernel is one of the source, with the columns and the cluster that its launch has.
    #[test]
    fn configurations_are_kernels_of_the_source() {
        let source = std::fs::read_to_string(locate(HandWritten.source())).unwrap();
        for (name, columns, cluster) in KERNELS {
            assert!(source.contains(&format!("KERNEL({name}, {columns}, {cluster},")), "{name}");
        }
        for name in HandWritten.configurations(Shape::packed(&NAMED[0], 8)) {
            assert!(KERNELS.iter().any(|(known, ..)| known == name));
        }
        assert!(source.contains(&format!("sizeof(Args) == {ARGUMENT}")));
        assert!(HandWritten.contracts().iter().all(|name| DeltaH.contracts().iter().any(|known| known.name == *name)));
    }

    #[test]
    fn a_call_takes_the_kernels_that_fit_it() {
        let desc = DeltaH.kernels()[0];
        let kernels = [None, Some(desc)].map(|ahead| Kernel { name: "a name", tokens: 1, desc, ahead });
        for (contract, h, expected) in [(KDA, 4, [0, 2]), (KDA, 32, [1, 0]), (SERIAL, 8, [1, 0])] {
            let layer = Layer::new(&mut Arena::counting(), &contract, Shape::packed(&NAMED[0], h)).unwrap();
            let counts =
                kernels.clone().map(|kernel| launches(&layer.problem, &kernel, Launch::Plain).map_or(0, |l| l.len()));
            assert_eq!(counts, expected, "{} {h}", contract.name);
            for launch in kernels.iter().filter_map(|kernel| launches(&layer.problem, kernel, Launch::Plain)).flatten()
            {
                let maps = if expected[1] == 2 { MAPS } else { MAPS - 1 };
                assert_eq!((launch.maps.len(), launch.params.len()), (maps as usize, ARGUMENT));
                // What is mapped lies where the tensor does.
                assert!(launch.maps.iter().all(|map| map.tensor.extent_bytes() <= u128::from(map.tensor.bytes)));
            }
        }
    }
}
