//! The hand-written `tc_verify` (`benches/peers/tc_verify/twin.cu`): its configurations, and how a call becomes its argument.
//!
//! Raw inputs are loaded by threads, or copied as boxes; either for any number of heads, or for 12. The same for all windows.

use super::HEAD;
use crate::bench::Launch;
use crate::bench::shape::Shape;
use crate::bench::twin::{Kernel, Twin};
use kda_core::tensor_map::{MAP_BYTES, TensorMapParam};
use kda_core::{Elem, PreparedLaunch, Swizzle, TensorArg, TensorMapArg};
use kda_runtime::operators::tc_verify::{Convolution, Gate, Problem};

/// Tensor maps, which the argument begins with: state, tokens, gates, and three of the history.
const MAPS: u32 = 6;
/// Bytes of the argument: the maps, 14 pointers and 8 words, up to a multiple of 64.
const ARGUMENT: usize = 960;
/// Multiprocessors of the device that it is written for.
const MULTIPROCESSORS: u64 = 132;
/// Most tokens of a request that it is written for.
const MOST_TOKENS: u64 = 8;
/// Items up to which the first state is asked for behind the loads of the raw inputs, not when these have arrived.
const FEW: u64 = 192;

/// What a configuration is for.
struct Configuration {
    name: &'static str,
    /// 0: any.
    heads: u64,
    /// CTAs a multiprocessor.
    ctas: u64,
    taps: Elem,
    softplus: bool,
    boxes: bool,
}

const fn of(name: &'static str, heads: u64, ctas: u64, taps: Elem, softplus: bool, boxes: bool) -> Configuration {
    Configuration { name, heads, ctas, taps, softplus, boxes }
}

static CONFIGURATIONS: [Configuration; 10] = [
    of("threads", 0, 4, Elem::BF16, false, false),
    of("threads_h12", 12, 4, Elem::BF16, false, false),
    of("threads_f32", 0, 4, Elem::F32, false, false),
    of("threads_h12_f32", 12, 4, Elem::F32, false, false),
    of("threads_softplus", 0, 4, Elem::BF16, true, false),
    of("threads_h12_softplus", 12, 4, Elem::BF16, true, false),
    of("boxes", 0, 3, Elem::BF16, false, true),
    of("boxes_h12", 12, 3, Elem::BF16, false, true),
    of("boxes_f32", 0, 3, Elem::F32, false, true),
    of("boxes_h12_f32", 12, 3, Elem::F32, false, true),
];

/// Boxes of all rows that a call may write to a history, by its tokens.
static ROLLS: [[u32; 4]; MOST_TOKENS as usize + 1] = {
    let mut boxes = [[1, 2, 3, HEAD as u32]; MOST_TOKENS as usize + 1];
    let mut t = 1;
    while t <= MOST_TOKENS as usize {
        boxes[t][1] += t as u32;
        t += 1;
    }
    boxes
};

/// The twin.
pub struct HandWritten;

impl Twin for HandWritten {
    fn contracts(&self) -> &'static [&'static str] {
        &["conv", "conv-f32", "softplus", "fixed"]
    }

    fn source(&self) -> &'static str {
        "benches/peers/tc_verify/twin.cu"
    }

    fn most_tokens(&self) -> u64 {
        1
    }

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

    /// Those of them that fit a call run it.
    fn configurations(&self, shape: Shape) -> &'static [&'static str] {
        match shape.h {
            12 => &["threads_h12", "threads_h12_f32", "threads_h12_softplus", "boxes_h12", "boxes_h12_f32"],
            _ => &["threads", "threads_f32", "threads_softplus", "boxes", "boxes_f32"],
        }
    }
}

/// The launch of a call; `None` if the kernel is for other taps, another gate, other heads or fewer tokens.
pub fn launch(problem: &Problem, shape: Shape, kernel: &Kernel, launch: Launch) -> Option<PreparedLaunch> {
    let convolution = problem.convolution.as_ref()?;
    let configuration = CONFIGURATIONS.iter().find(|known| known.name == kernel.name)?;
    let fits = configuration.taps == convolution.weight.elem
        && configuration.softplus == (problem.gate == Gate::Softplus)
        && [0, shape.h].contains(&configuration.heads)
        && shape.t <= MOST_TOKENS;
    if !fits {
        return None;
    }
    // As many CTAs as there is room for, a multiple of the heads; in few rounds no more than share the requests evenly.
    let most = (MULTIPROCESSORS * configuration.ctas / shape.h).max(1);
    let rounds = shape.n.div_ceil(most);
    let per_head = if problem.counters.is_some() && rounds > 3 { most } else { shape.n.div_ceil(rounds) };
    let grid = [(per_head.min(shape.n) * shape.h) as u32, 1, 1];
    let late = match launch {
        Launch::PdlStable => 0,
        _ if shape.pairs() <= FEW => 1,
        _ => 2,
    };
    Some(PreparedLaunch {
        desc: kernel.desc,
        grid,
        params: params(problem, convolution, shape, launch, late),
        maps: maps(problem, convolution, shape, configuration.boxes),
        pdl: launch != Launch::Plain,
    })
}

/// The argument, field by field as the twin's `Args` has them; the places of tensor maps are zero.
fn params(problem: &Problem, convolution: &Convolution, shape: Shape, launch: Launch, late: u32) -> Vec<u8> {
    let address = |tensor: Option<TensorArg>| tensor.map_or(0, |tensor| tensor.ptr);
    let pointers = [
        problem.qkv.ptr,
        problem.raw_g.ptr,
        problem.raw_beta.ptr,
        address(problem.a_log),
        problem.dt_bias.ptr,
        convolution.weight.ptr,
        convolution.state.ptr,
        problem.slots.ptr,
        problem.query_start.ptr,
        convolution.accepted.ptr,
        problem.corr.ptr,
        problem.kg.ptr,
        problem.out.ptr,
        address(problem.counters),
    ];
    let lower_bound = match problem.gate {
        Gate::Bounded { lower_bound } => lower_bound,
        Gate::Softplus => 0.0,
    };
    let overlap = match launch {
        Launch::Plain => 0,
        Launch::Pdl => 1,
        Launch::PdlStable => 2,
    };
    let words = [
        shape.n as u32,
        shape.h as u32,
        shape.t as u32,
        problem.null as u32,
        lower_bound.to_bits(),
        problem.scale.to_bits(),
        overlap,
        late,
    ];
    let mut params = vec![0; (MAPS * MAP_BYTES) as usize];
    params.extend(pointers.iter().flat_map(|pointer| pointer.to_le_bytes()));
    params.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    params.resize(ARGUMENT, 0);
    params
}

/// The tensor maps of a kernel: that of the state alone where threads load the raw inputs.
fn maps(problem: &Problem, convolution: &Convolution, shape: Shape, boxes: bool) -> Vec<TensorMapArg> {
    let Shape { t, h, .. } = shape;
    let (total, slots, width) = (problem.qkv.shape()[0], problem.state.shape()[0], h * HEAD);
    let view = |tensor: &TensorArg, shape: &[u64], strides: &[u64]| {
        TensorArg::strided(tensor.ptr, tensor.bytes, tensor.elem, shape, strides).ok()
    };
    let dense = |tensor: &TensorArg, shape: &[u64]| TensorArg::dense(tensor.ptr, tensor.bytes, tensor.elem, shape).ok();
    let states = [h * HEAD * HEAD, 16 * HEAD, HEAD, 2 * HEAD, 1];
    let state = view(&problem.state, &[slots, 8 * h, 2, 8, HEAD], &states);
    let history = dense(&convolution.state, &[slots, t + 2, 3, width]);
    let roll: &'static [u32] = &ROLLS[t.min(MOST_TOKENS) as usize];
    let maps: [(Option<TensorArg>, &'static [u32], Swizzle, bool); MAPS as usize] = [
        (state, &[1, 8, 2, 8, 64], Swizzle::B128, false),
        (dense(&problem.qkv, &[total, 3, width]), &[8, 3, 128], Swizzle::None, false),
        (dense(&problem.raw_g, &[total, width]), &[8, 128], Swizzle::None, false),
        (history, &[1, 3, 3, 128], Swizzle::None, false),
        (history, roll, Swizzle::None, true),
        (history, &[1, 1, 3, 128], Swizzle::None, true),
    ];
    let mut args = Vec::new();
    for (at, (tensor, tile, swizzle, writes)) in (0..).zip(maps).take(if boxes { MAPS as usize } else { 1 }) {
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
    use crate::bench::tc_verify::{TcVerify, problem};
    use crate::bench::twin::locate;

    /// Every configuration is a kernel of the source, with the heads, CTAs, taps, gate and loads that its launch has.
    #[test]
    fn configurations_are_kernels_of_the_source() {
        let source = std::fs::read_to_string(locate(HandWritten.source())).unwrap();
        for Configuration { name, heads, ctas, taps, softplus, boxes } in &CONFIGURATIONS {
            let f32 = *taps == Elem::F32;
            let line = format!("KERNEL({name}, {heads}, {ctas}, {f32}, {softplus}, {boxes})");
            assert!(source.contains(&line), "{line}");
        }
        for h in [12, 96] {
            for name in HandWritten.configurations(Shape { t: 8, h, n: 1 }) {
                let known = CONFIGURATIONS.iter().find(|known| known.name == *name).unwrap();
                assert!([0, h].contains(&known.heads));
            }
        }
        assert!(source.contains(&format!("sizeof(Args) == {ARGUMENT}")));
        assert!(
            HandWritten.contracts().iter().all(|name| TcVerify.contracts().iter().any(|known| known.name == *name))
        );
    }

    /// Each contract has its kernels; grids are whole numbers of CTAs a head and fit the device.
    #[test]
    fn a_call_takes_the_kernels_that_fit_it() {
        for contract in TcVerify.contracts().iter().filter(|c| HandWritten.contracts().contains(&c.name)) {
            for shape in TcVerify.shapes(crate::bench::shape::List::All) {
                let problem = problem(&mut Arena::counting(), contract, shape).unwrap();
                let mut count = 0;
                for configuration in CONFIGURATIONS.iter().filter(|known| [0, shape.h].contains(&known.heads)) {
                    let desc = TcVerify.kernels()[0];
                    let kernel = Kernel { name: configuration.name, tokens: 1, desc, ahead: None };
                    let Some(launch) = launch(&problem, shape, &kernel, Launch::Pdl) else { continue };
                    count += 1;
                    let [ctas, 1, 1] = launch.grid else { panic!("{:?}", launch.grid) };
                    let ctas = u64::from(ctas);
                    assert!(ctas.is_multiple_of(shape.h) && ctas <= shape.pairs(), "{shape}: {ctas}");
                    assert!(ctas <= MULTIPROCESSORS * configuration.ctas, "{shape}: {ctas}");
                    let maps = if configuration.boxes { MAPS as usize } else { 1 };
                    assert_eq!((launch.maps.len(), launch.params.len()), (maps, ARGUMENT));
                    assert!(launch.maps.iter().all(|map| map.tensor.extent_bytes() <= u128::from(map.tensor.bytes)));
                }
                let forms = if contract.name == "softplus" { 1 } else { 2 };
                assert_eq!(count, if shape.h == 12 { 2 * forms } else { forms }, "{} {shape}", contract.name);
            }
        }
    }
}
