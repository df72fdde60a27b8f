//! Which variants run a problem, and in how many launches.
//!
//! *Launches*: one that walks all sequences; or, where the schedule may cut some, one that computes the maps of inner segments,
//! one that walks whole sequences and first segments at the same time, and one that walks the later segments. The last two are
//! dependent launches: the second starts beside the first, the third waits for both.
//! *Eligibility*: a variant is written for a device, for one order of `h` and one form of gate, for whole sequences or
//! segments; those for Hopper take the steps that tensor maps can describe.
//! *Preference*: a kernel for Hopper where it runs, the portable one elsewhere. Of the first by a measured table, by N*HV
//! (`preference.rs`): the narrower the slices of V, the shorter the chain from chunk to chunk, and the more often w and kg are
//! read; of the portable one, narrow slices are for calls that one CTA a multiprocessor holds. Lengths are not known, and
//! results do not depend on it.

use super::batch::Batch;
use super::problem::{Gate, Problem};
use super::schedule::{counted, words};
use super::validate::{Layout, validate};
use super::variant::Variant;
use super::{NAME, preference as measured};
use crate::operators::limits::HEAD;
use crate::operators::{OpError, Plan};
use kda_core::{Elem, Executor, LaunchError, PreparedLaunch, TensorArg};
use kda_kernels::delta_h::DeltaHArgs;
use kda_kernels::delta_h_narrow::DeltaHNarrowArgs;
use kda_kernels::delta_h_portable::DeltaHPortableArgs;

/// How a call is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Run this variant; it is refused if the problem does not fit it. Where sequences may be cut it is the variant of the
    /// launches that walk.
    pub variant: Option<Variant>,
    /// Compute maps of segments with this variant, where there may be any; it changes no result.
    pub maps: Option<Variant>,
    /// Launch with programmatic dependent launch: the first kernel may start while its predecessor drains.
    pub pdl: bool,
}

/// Checks a call and chooses the variants that run it.
///
/// # Errors
/// [`OpError`] says what was given and what is needed; nothing has been written.
pub fn plan(problem: &Problem, executor: &dyn Executor, options: &Options) -> Result<Plan, OpError> {
    let checked = validate(problem)?;
    let layout = Layout { batch: checked.batch.on(executor), ..checked };
    let kind = Kind::of(problem, &layout);
    let capability = executor.compute_capability();
    let runs = |v: &Variant| v.desc().arch.runs_on(capability.0, capability.1);
    let main = match options.variant {
        Some(variant) => forced(variant, capability, |v| kind.refuses(v))?,
        None => {
            let fit = Variant::all().filter(|v| runs(v) && kind.refuses(*v).is_none());
            let multiprocessors = executor.multiprocessors();
            match fit.min_by_key(|v| (!v.boxes(), rank(*v, &layout.batch, options.pdl, multiprocessors))) {
                Some(variant) => variant,
                None => return Err(kind.without(capability)),
            }
        }
    };
    let args = arguments(problem, &layout)?;
    let (counts, words) = (layout.batch.work(), layout.batch.first_entries());
    let launch = |variant: Variant, list: usize, pdl: bool| {
        let ctas = ctas(variant, counts[list] * layout.batch.heads, executor.multiprocessors());
        let own = DeltaHNarrowArgs { first_entry: counted(words[list]), later: list == LATER, ctas, ..args.clone() };
        prepared(variant, own, problem, pdl)
    };
    let Some(cut) = layout.batch.cut().filter(|_| main.split()) else {
        return Ok(Plan::of(launch(main, FIRST, options.pdl)?));
    };
    let maps = match options.maps {
        Some(maps) => {
            forced(maps, capability, |v| (!v.maps()).then(|| "it does not compute the maps of segments".into()))?
        }
        None => match Variant::all().find(|v| v.maps() && u64::from(v.vs()) == cut.map_columns && runs(v)) {
            Some(maps) => maps,
            None => {
                let needed = main.desc().arch.to_string();
                return Err(OpError::NoVariant { op: NAME, given: capability, needed });
            }
        },
    };
    let first = launch(maps, MAPS, options.pdl)?;
    Ok(Plan::of(first).then(launch(main, FIRST, true)?).then(launch(main, LATER, true)?))
}

/// A variant that is asked for, if it runs on the device and nothing else speaks against it.
fn forced(
    variant: Variant,
    capability: (u8, u8),
    refuses: impl Fn(Variant) -> Option<String>,
) -> Result<Variant, OpError> {
    let (arch, (major, minor)) = (variant.desc().arch, capability);
    let why = match arch.runs_on(major, minor) {
        true => refuses(variant),
        false => Some(format!("it is written for {arch}, the device has compute capability {major}.{minor}")),
    };
    match why {
        Some(why) => Err(OpError::Forced { op: NAME, variant: variant.desc().entry.into(), why }),
        None => Ok(variant),
    }
}

/// Lists of a schedule.
const FIRST: usize = 0;
const LATER: usize = 1;
const MAPS: usize = 2;

/// Place of a variant in the order of preference among those for Hopper, or among the portable ones, 0 first.
fn rank(variant: Variant, batch: &Batch, pdl: bool, multiprocessors: u32) -> usize {
    let pairs = batch.sequences.saturating_mul(batch.heads);
    match variant {
        Variant::Hopper(_) | Variant::Narrow(_) => {
            let table = if pdl { &measured::PDL } else { &measured::PLAIN };
            table.rank(measured_as(variant).desc().entry, batch.rows.max(1), pairs, multiprocessors)
        }
        Variant::Portable(variant) => {
            let narrow = pairs.saturating_mul(HEAD / 32) <= multiprocessors.into();
            usize::from((variant.vs() < 64) != narrow)
        }
    }
}

/// The variant with the same slices of V that was measured.
fn measured_as(variant: Variant) -> Variant {
    let plain = |v: &Variant| v.boxes() && !(v.maps() || v.split() || v.v_first() || v.scalar());
    Variant::all().find(|v| plain(v) && v.vs() == variant.vs()).unwrap_or(variant)
}

/// What variants differ in, of one call.
struct Kind {
    fold: bool,
    scalar: bool,
    /// `h` lies `[V, K]`.
    v_first: bool,
    /// A tensor whose steps no tensor map describes.
    far: Option<&'static str>,
}

impl Kind {
    fn of(problem: &Problem, layout: &Layout) -> Kind {
        Kind {
            fold: layout.batch.cut().is_some(),
            scalar: matches!(problem.gate, Gate::Scalar(_)),
            v_first: !layout.h_k_first,
            far: layout.far,
        }
    }

    /// Why a variant cannot be the one that walks the sequences.
    fn refuses(&self, variant: Variant) -> Option<String> {
        if variant.maps() {
            return Some("it computes the maps of segments alone".into());
        }
        if variant.split() != self.fold {
            let words = |fold: bool| if fold { "segments" } else { "whole sequences" };
            return Some(format!("it walks {}, the schedule holds {}", words(variant.split()), words(self.fold)));
        }
        if variant.scalar() != self.scalar {
            let words = |scalar: bool| if scalar { "a scalar gate" } else { "a gate a key channel" };
            return Some(format!("it is for {}, the call has {}", words(variant.scalar()), words(self.scalar)));
        }
        if variant.v_first() != self.v_first {
            let words = |v_first: bool| if v_first { "[V, K]" } else { "[K, V]" };
            return Some(format!("it writes `h` {}, the call's is {}", words(variant.v_first()), words(self.v_first)));
        }
        match self.far {
            Some(name) if variant.boxes() => {
                Some(format!("it needs outermost strides below 2^40 bytes, as `{name}` has not"))
            }
            _ => None,
        }
    }

    /// That there is no variant.
    fn without(&self, capability: (u8, u8)) -> OpError {
        let runs = |v: &Variant| v.desc().arch.runs_on(capability.0, capability.1);
        match self.far {
            Some(name) if Variant::all().any(|v| runs(&v)) => {
                let given = format!("an outermost stride of `{name}` of 2^40 bytes or more, and `split`");
                let needed = "`split` must be false, here and in the schedule: the kernel for such strides takes whole sequences";
                OpError::Together { op: NAME, given, needed: needed.into() }
            }
            _ => {
                let oldest = Variant::all().map(|v| v.desc().arch).min_by_key(|arch| (arch.major, arch.minor));
                OpError::NoVariant {
                    op: NAME,
                    given: capability,
                    needed: oldest.map_or(String::new(), |a| a.to_string()),
                }
            }
        }
    }
}

/// CTAs of a persistent grid: whole clusters, and no more than there may be work for.
fn ctas(variant: Variant, pairs: u64, multiprocessors: u32) -> u32 {
    let items = pairs * (HEAD / u64::from(variant.vs()));
    let most = (multiprocessors / variant.cluster()).max(1) * variant.cluster();
    counted(items.min(most.into()))
}

/// What all launches of a call are given; entries and grid are each one's own.
fn arguments(p: &Problem, layout: &Layout) -> Result<DeltaHNarrowArgs, OpError> {
    let batch = &layout.batch;
    let filled = |tensor: TensorArg| (!tensor.shape().contains(&0)).then_some(tensor);
    let (initial_f32, initial_bf16) = by_type(p.initial_state.map(flat).transpose()?);
    let (final_f32, final_bf16) = by_type(p.final_state.map(flat).transpose()?);
    let gate = match p.gate {
        Gate::Cumulative(gate) | Gate::Decay(gate) => gate,
        Gate::Scalar(gate) => {
            let ([rows, heads], [row, head]) =
                ([gate.shape()[0], gate.shape()[1]], [gate.strides()[0], gate.strides()[1]]);
            TensorArg::strided(gate.ptr, gate.bytes, gate.elem, &[rows, heads, 1], &[row, head, 1])?
        }
    };
    let h = match p.h.and_then(filled) {
        Some(h) => {
            let strides = [h.strides()[0], h.strides()[1], HEAD, 1];
            Some(TensorArg::strided(h.ptr, h.bytes, h.elem, h.shape(), &strides)?)
        }
        None => None,
    };
    let v_new = p.v_new.and_then(filled);
    let flags = |t: TensorArg| TensorArg::strided(t.ptr, t.bytes, Elem::U8, t.shape(), t.strides());
    let (affine_b, affine_m) = maps(p, layout)?;
    Ok(DeltaHNarrowArgs {
        w: filled(p.w),
        kg: filled(p.kg),
        u: filled(p.u),
        gate,
        initial_f32,
        initial_bf16,
        initial_slots: p.initial_slots,
        has_initial: p.has_initial.map(flags).transpose()?,
        final_f32,
        final_bf16,
        final_slots: p.final_slots,
        h,
        v_new,
        v_rows: v_new,
        affine_b,
        affine_m,
        affine_in: affine_m,
        schedule: words(&p.schedule, batch)?,
        first_entry: 0,
        every: batch.h_every,
        decays: matches!(p.gate, Gate::Decay(_)),
        initial_k_first: layout.initial_k_first,
        final_k_first: layout.final_k_first,
        null: p.null,
        per_key_head: counted(batch.heads / layout.key_heads),
        later: false,
        ctas: 0,
    })
}

/// Arguments of a kernel, by name: those that all kernels have, from a block of them, and its own.
macro_rules! arguments_of {
    ($kernel:ident, $from:ident, $($own:ident: $value:expr),*) => {
        $kernel {
            $($own: $value,)*
            gate: $from.gate,
            initial_f32: $from.initial_f32,
            initial_bf16: $from.initial_bf16,
            initial_slots: $from.initial_slots,
            has_initial: $from.has_initial,
            final_f32: $from.final_f32,
            final_bf16: $from.final_bf16,
            final_slots: $from.final_slots,
            v_new: $from.v_new,
            schedule: $from.schedule,
            first_entry: $from.first_entry,
            every: $from.every,
            decays: $from.decays,
            initial_k_first: $from.initial_k_first,
            final_k_first: $from.final_k_first,
            null: $from.null,
            per_key_head: $from.per_key_head,
            ctas: $from.ctas,
        }
    };
}

/// One launch, of the arguments that all variants are given.
fn prepared(variant: Variant, args: DeltaHNarrowArgs, p: &Problem, pdl: bool) -> Result<PreparedLaunch, LaunchError> {
    match variant {
        Variant::Narrow(variant) => args.prepare(variant, pdl),
        Variant::Hopper(variant) => {
            let (w, kg, u, h, v_rows) = (args.w, args.kg, args.u, args.h, args.v_rows);
            arguments_of!(DeltaHArgs, args, w: w, kg: kg, u: u, h: h, v_rows: v_rows).prepare(variant, pdl)
        }
        Variant::Portable(variant) => {
            let h = args.h.map(flat).transpose()?;
            arguments_of!(DeltaHPortableArgs, args, w: p.w, kg: p.kg, u: p.u, h: h).prepare(variant, pdl)
        }
    }
}

/// States with the matrix of a head as one axis, in whichever order it lies.
fn flat(state: TensorArg) -> Result<TensorArg, LaunchError> {
    let ([slots, heads], strides) = ([state.shape()[0], state.shape()[1]], state.strides());
    let (shape, strides) = ([slots, heads, HEAD * HEAD], [strides[0], strides[1], 1]);
    TensorArg::strided(state.ptr, state.bytes, state.elem, &shape, &strides)
}

/// B and M of maps in the memory for them; nothing where nothing is cut.
fn maps(p: &Problem, layout: &Layout) -> Result<(Option<TensorArg>, Option<TensorArg>), OpError> {
    let (batch, Some(memory)) = (&layout.batch, p.maps) else { return Ok((None, None)) };
    let (places, heads) = (batch.segments(), batch.heads);
    if places == 0 {
        return Ok((None, None));
    }
    let [b_bytes, m_bytes] = batch.map_parts();
    let b = TensorArg::dense(memory.ptr, b_bytes, Elem::F32, &[places, heads, HEAD * HEAD])?;
    let m = TensorArg::dense(memory.ptr + b_bytes, m_bytes, Elem::BF16, &[places, heads, 2, HEAD, HEAD])?;
    Ok((Some(b), Some(m)))
}

/// A tensor of f32 or of bf16, each in its place.
fn by_type(tensor: Option<TensorArg>) -> (Option<TensorArg>, Option<TensorArg>) {
    match tensor {
        Some(t) if t.elem == Elem::BF16 => (None, Some(t)),
        other => (other, None),
    }
}

#[cfg(test)]
mod tests;
