//! Which variant runs a problem, and on how many CTAs.
//!
//! *Eligibility*: a variant is written for a device, a convolution or none, its taps and the order of its history, a form of
//! gate, a type of state, and for what may be read ahead of the wait for a predecessor; its launch checks the kernel's own
//! conditions. *Preference*: the kernel for Hopper where it runs, the portable one elsewhere; of the first raw inputs in boxes
//! where their rows can be copied so, or the variant for the call's heads (`rank`); of the second the one for the fewest
//! tokens.

use super::NAME;
use super::problem::Problem;
use super::validate::{Layout, validate};
use super::variant::Variant;
use crate::operators::conv_verify::Gate;
use crate::operators::limits::HEAD;
use crate::operators::{OpError, Plan};
use kda_core::{Elem, Executor, LaunchError, TensorArg};
use kda_kernels::tc_verify::TcVerifyArgs;
use kda_kernels::tc_verify_portable::TcVerifyPortableArgs;

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it.
    pub variant: Option<Variant>,
    /// Launch with programmatic dependent launch: the kernel may start while its predecessor drains.
    pub pdl: bool,
    /// With `pdl`: `state`, `slots`, `query_start`, `accepted` and the weights are not written by a predecessor that may still
    /// run, so that they are read ahead of the wait. Rows that boxes cannot take have no variant that does so, but for 12 heads.
    pub stable_pools: bool,
}

/// Checks a call and chooses the variant that runs it.
///
/// # Errors
/// [`OpError`] says what was given and what is needed; nothing has been written.
pub fn plan(problem: &Problem, executor: &dyn Executor, options: &Options) -> Result<Plan, OpError> {
    let mut layout = validate(problem)?;
    let without = Problem { convolution: None, ..*problem };
    let problem = match problem.state.shape()[0] {
        // No request has a slot: outputs are zeros, whatever they would be made from.
        0 => {
            layout.channel_major = false;
            &without
        }
        _ => problem,
    };
    let kind = Kind::of(problem, &layout, options);
    let (major, minor) = executor.compute_capability();
    let runs = |variant: &Variant| variant.desc().arch.runs_on(major, minor);
    let args = arguments(problem, &layout)?;
    let prepare = |variant: Variant| {
        let ctas = ctas(&layout, variant, executor.multiprocessors(), problem.counters.is_some());
        match variant {
            Variant::Hopper(v) if v.boxes() => {
                let (tokens, gates, conv) = (Some(args.qkv), Some(args.raw_g), v.conv().then_some(args.conv));
                let maps = TcVerifyArgs { tokens, gates, past: conv, rolled: conv, rolled_row: conv, ..args.clone() };
                TcVerifyArgs { ctas, ..maps }.prepare(v, options.pdl)
            }
            Variant::Hopper(v) => TcVerifyArgs { ctas, ..args.clone() }.prepare(v, options.pdl),
            Variant::Portable(v) => portable(problem, &layout, &args).prepare(v, options.pdl),
        }
    };
    if let Some(variant) = options.variant {
        let refuse = |why: String| Err(OpError::Forced { op: NAME, variant: variant.desc().entry.into(), why });
        if !runs(&variant) {
            let arch = variant.desc().arch;
            return refuse(format!("it is written for {arch}, the device has compute capability {major}.{minor}"));
        }
        if let Some(why) = kind.refuses(variant) {
            return refuse(why);
        }
        return match prepare(variant) {
            // Their distances are the launch's to see.
            Err(LaunchError::Requirement { .. }) if variant.heads() > 0 => {
                let (its, given) = (variant.heads(), layout.heads);
                refuse(format!(
                    "it is for {its} heads and two rows or more, without gaps; the call has {given} heads, or rows that lie otherwise"
                ))
            }
            // So are the alignments and distances of what is cut into boxes.
            Err(error) if variant.boxes() && !matches!(error, LaunchError::TooLarge { .. }) => refuse(
                "it copies raw inputs in boxes: rows that begin at multiples of 16 bytes, less than 2^40 bytes apart, one at least"
                    .into(),
            ),
            prepared => Ok(Plan::of(prepared?)),
        };
    }
    let mut fit: Vec<Variant> = Variant::all().filter(|v| runs(v) && kind.refuses(*v).is_none()).collect();
    fit.sort_by_key(|v| (!v.hopper(), !v.early(), rank(*v, &layout, executor.multiprocessors()), v.most_tokens()));
    let mut refusal: Option<LaunchError> = None;
    for variant in fit {
        match prepare(variant) {
            Ok(prepared) => return Ok(Plan::of(prepared)),
            Err(error) => refusal = Some(error),
        }
    }
    match refusal {
        Some(error) => Err(error.into()),
        None => {
            let oldest = Variant::all().map(|v| v.desc().arch).min_by_key(|arch| (arch.major, arch.minor));
            let needed = oldest.map_or(String::new(), |arch| arch.to_string());
            Err(OpError::NoVariant { op: NAME, given: (major, minor), needed })
        }
    }
}

/// Place of a variant among those that fit, the first one best. Loads by threads at known distances overlap best with a
/// predecessor, 3.4 µs for one request of 12 heads and 3.7 with boxes, but not where boxes fill the device as often, and more
/// than once: 15.0 and 14.3 for 64. Without known heads boxes are faster: 4.8 and 5.8 for one.
fn rank(variant: Variant, layout: &Layout, multiprocessors: u32) -> u32 {
    let rounds = |variant: Variant| rounds(layout, variant, multiprocessors).0;
    match (variant.heads() > 0, variant.boxes()) {
        (true, _) => {
            let filled = rounds(variant);
            let as_often = |boxes: Variant| boxes.boxes() && rounds(boxes) == filled;
            2 * u32::from(filled > 1 && Variant::all().any(as_often))
        }
        (false, true) => 1,
        (false, false) => 3,
    }
}

/// What variants differ in, of one call.
struct Kind {
    /// Type of the taps.
    convolution: Option<Elem>,
    channel_major: bool,
    softplus: bool,
    state: Elem,
    window: u64,
    shares: bool,
    /// The pool of states has no slot.
    empty: bool,
    far: bool,
    early: bool,
}

impl Kind {
    fn of(problem: &Problem, layout: &Layout, options: &Options) -> Kind {
        Kind {
            convolution: problem.convolution.map(|c| c.weight.elem),
            channel_major: layout.channel_major,
            softplus: problem.gate == Gate::Softplus,
            state: problem.state.elem,
            window: layout.window,
            shares: layout.per_key_head > 1,
            empty: problem.state.shape()[0] == 0,
            far: layout.far,
            early: options.pdl && options.stable_pools,
        }
    }

    /// Why a variant cannot run this call.
    fn refuses(&self, variant: Variant) -> Option<String> {
        let differ = |its: String, given: String| Some(format!("it is for {its}, the call has {given}"));
        let (taps, channel_major) = (variant.taps(), variant.channel_major());
        if (taps, channel_major) != (self.convolution, self.channel_major) {
            return differ(convolution(taps, channel_major), convolution(self.convolution, self.channel_major));
        }
        if variant.softplus() != self.softplus {
            let gate = |softplus: bool| if softplus { "a softplus gate" } else { "a bounded gate" };
            return differ(gate(variant.softplus()).into(), gate(self.softplus).into());
        }
        if variant.state() != self.state {
            return differ(format!("a state of {}", variant.state()), format!("one of {}", self.state));
        }
        if u64::from(variant.most_tokens()) < self.window {
            return differ(format!("up to {} tokens", variant.most_tokens()), format!("Q = {}", self.window));
        }
        if self.shares && !variant.shares() {
            return Some("it is for as many heads of q and k as of v, the call has fewer".into());
        }
        if self.empty && variant.hopper() {
            return Some("it needs a pool of states with a slot, the call's has none".into());
        }
        if self.far && variant.hopper() {
            return Some("it needs a slot stride of the state below 2^40 bytes, as the call has not".into());
        }
        if variant.early() && !self.early {
            return Some("it reads the state ahead of the wait for a predecessor, which may write it".into());
        }
        None
    }
}

fn convolution(taps: Option<Elem>, channel_major: bool) -> String {
    match taps {
        None => "no convolution".into(),
        Some(taps) => {
            let order = if channel_major { "[D, Q + 2]" } else { "[Q + 2, D]" };
            format!("a convolution with taps of {taps} and a history in the order {order}")
        }
    }
}

/// CTAs of the persistent grid: a multiple of the heads, no more than the device holds at once, and without tickets no more
/// than share the requests evenly.
fn ctas(layout: &Layout, variant: Variant, multiprocessors: u32, tickets: bool) -> u32 {
    let (rounds, most) = rounds(layout, variant, multiprocessors);
    let per_head = if tickets && rounds > 3 { most } else { layout.requests.div_ceil(rounds) };
    u32::try_from(per_head.min(layout.requests).saturating_mul(layout.heads)).unwrap_or(u32::MAX)
}

/// How often the device is filled, and the CTAs of a head that it holds at once.
fn rounds(layout: &Layout, variant: Variant, multiprocessors: u32) -> (u64, u64) {
    let resident = u64::from(multiprocessors) * u64::from(variant.desc().min_blocks_per_sm.max(1));
    let most = (resident / layout.heads.max(1)).max(1);
    (layout.requests.div_ceil(most).max(1), most)
}

/// What every variant is given; the grid is each one's own.
fn arguments(p: &Problem, layout: &Layout) -> Result<TcVerifyArgs, OpError> {
    let Layout { total, heads, window, channel_major, per_key_head, .. } = *layout;
    let view =
        |t: &TensorArg, shape: &[u64], strides: &[u64]| TensorArg::strided(t.ptr, t.bytes, t.elem, shape, strides);
    let part = heads / per_key_head * HEAD;
    let slots = p.state.shape()[0];
    let nothing = |elem, shape: &[u64]| TensorArg::dense(0, 0, elem, shape);
    let (taps, conv, accepted) = match &p.convolution {
        Some(c) => {
            let [slot, channel, row] = [0, 1, 2].map(|axis| c.state.strides()[axis]);
            let (row, channel) = if channel_major { (1, channel) } else { (row, 1) };
            let strides = [slot, row, part * channel, HEAD * channel, channel];
            (
                view(&c.weight, &[3 * heads, 4 * HEAD], &[4 * HEAD, 1])?,
                view(&c.state, &[slots, window + 2, 3, heads, HEAD], &strides)?,
                c.accepted,
            )
        }
        None => (
            nothing(Elem::BF16, &[0, 4 * HEAD])?,
            nothing(Elem::BF16, &[0, 0, 3, heads, HEAD])?,
            nothing(Elem::I32, &[0])?,
        ),
    };
    let lower_bound = match p.gate {
        Gate::Bounded { lower_bound } => lower_bound,
        Gate::Softplus => 0.0,
    };
    let [corr, kg] = [&p.corr, &p.kg].map(|records| [records.strides()[0], records.strides()[1]]);
    Ok(TcVerifyArgs {
        state: view(&p.state, &[slots, 8 * heads, 2, 8, HEAD], &[p.state.strides()[0], 16 * HEAD, HEAD, 2 * HEAD, 1])?,
        qkv: view(&p.qkv, &[total, 3, heads, HEAD], &[p.qkv.strides()[0], part, HEAD, 1])?,
        raw_g: p.raw_g,
        raw_beta: p.raw_beta,
        a_log: p.a_log,
        dt_bias: p.dt_bias,
        taps,
        conv,
        slot_of: p.slots,
        query_start: p.query_start,
        accepted,
        corr: view(&p.corr, p.corr.shape(), &[corr[0], corr[1], HEAD, 1])?,
        kg: view(&p.kg, &[p.kg.shape()[0], heads, window, 2, HEAD], &[kg[0], kg[1], 2 * HEAD, HEAD, 1])?,
        out: p.out,
        counter: p.counters,
        lower_bound,
        scale: p.scale,
        null: p.null,
        tokens: None,
        gates: None,
        past: None,
        rolled: None,
        rolled_row: None,
        ctas: 0,
    })
}

/// The same for the portable kernel, which takes the state as it is.
fn portable(p: &Problem, layout: &Layout, args: &TcVerifyArgs) -> TcVerifyPortableArgs {
    TcVerifyPortableArgs {
        state: p.state,
        qkv: args.qkv,
        raw_g: args.raw_g,
        raw_beta: args.raw_beta,
        a_log: args.a_log,
        dt_bias: args.dt_bias,
        taps: args.taps,
        conv: args.conv,
        slot_of: args.slot_of,
        query_start: args.query_start,
        accepted: args.accepted,
        corr: args.corr,
        kg: args.kg,
        out: args.out,
        lower_bound: args.lower_bound,
        scale: args.scale,
        null: args.null,
        per_key_head: u32::try_from(layout.per_key_head).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests;
