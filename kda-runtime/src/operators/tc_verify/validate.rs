//! Whether the arguments of a call fit each other, said in the names of [`Problem`].

use super::NAME;
use super::problem::{Convolution, Problem};
use crate::operators::OpError;
use crate::operators::arguments::{Argument, no_overlap, whole};
use crate::operators::conv_verify::Gate;
use crate::operators::limits::*;
use kda_core::{Elem, TensorArg};

/// Most tokens of a request, with a bounded gate and with softplus.
const MOST_TOKENS: u64 = 16;
const MOST_TOKENS_SOFTPLUS: u64 = 8;
/// Least sum of the gates of a request: keys grow by e^80, and stay numbers.
const LEAST_SUM: f32 = -80.0;
/// Bytes that a step of a copy stays below.
const STEP_BYTES: u64 = 1 << 40;

const WHY_HEADS: &str = "HV as in `raw_beta`";
const WHY_TOKENS: &str = "T as in `raw_beta`";

/// What the arguments say of sizes and memory orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// B.
    pub requests: u64,
    /// T.
    pub total: u64,
    /// HV.
    pub heads: u64,
    /// Heads that share one of q and k.
    pub per_key_head: u64,
    /// Q.
    pub window: u64,
    /// The history is `[D, Q + 2]` in memory, not `[Q + 2, D]`.
    pub channel_major: bool,
    /// The slot stride of the state is longer than a tensor map describes.
    pub far: bool,
}

/// Checks a call.
pub(super) fn validate(p: &Problem) -> Result<Layout, OpError> {
    let beta = Argument::new(NAME, "raw_beta", &p.raw_beta, &["T", "HV"], &[Elem::BF16])?;
    let (total, heads) = (beta.size(0), beta.size(1));
    beta.at_most(0, MOST_SLOTS, "rows are i32 numbers")?;
    beta.at_most(1, MOST / (16 * HEAD), WHY_COUNT)?;
    beta.at_least(1, 1, "a call has a head")?;
    beta.stride(1, 1)?;
    beta.memory(align::BF16)?;
    if p.null < -1 {
        let needed = "-1 is needed, or 0 where slot 0 is the null slot (negative indices must not be live)";
        return Err(OpError::Scalar { op: NAME, param: "null", given: p.null.into(), needed });
    }
    let slots = Argument::new(NAME, "slots", &p.slots, &["B"], &[Elem::I32])?;
    let requests = slots.size(0);
    slots.at_most(0, MOST_SLOTS, "requests are counted in 31 bits")?;
    slots.stride(0, 1)?;
    slots.memory(align::SCALARS)?;
    let starts = Argument::new(NAME, "query_start", &p.query_start, &["B + 1"], &[Elem::I32])?;
    starts.exactly(0, requests + 1, "one more than `slots` has")?;
    starts.stride(0, 1)?;
    starts.memory(align::SCALARS)?;
    let rows = Rows { total, heads };
    let qkv = rows.check("qkv", &p.qkv, &["T", "D"])?;
    let per_key_head = key_heads(p, &qkv, heads)?;
    rows.heads("raw_g", &p.raw_g, &["T", "HV", "K"])?;
    rows.heads("out", &p.out, &["T", "HV", "V"])?.distinct()?;
    weights(p, heads)?;
    let far = state(p, heads)?;
    let window = records(p, requests, heads)?;
    bound(p, window)?;
    let channel_major = match &p.convolution {
        Some(c) => convolution(c, p, &Sizes { requests, heads, window })?,
        None => false,
    };
    if let Some(counters) = &p.counters {
        let counters = Argument::new(NAME, "counters", counters, &["HV"], &[Elem::U32])?;
        counters.exactly(0, heads, WHY_HEADS)?;
        counters.stride(0, 1)?;
        counters.memory(align::SCALARS)?;
    }
    alone(p)?;
    Ok(Layout { requests, total, heads, per_key_head, window, channel_major, far })
}

/// How many heads share one of q and k: D = (2 H + HV) 128, with a convolution H = HV.
fn key_heads(p: &Problem, qkv: &Argument, heads: u64) -> Result<u64, OpError> {
    if p.convolution.is_some() {
        qkv.exactly(
            1,
            3 * heads * HEAD,
            "D = (2 H + HV) 128, with H = HV ahead of a convolution, HV as in `raw_beta`",
        )?;
        return Ok(1);
    }
    let both = (qkv.size(1) / HEAD).saturating_sub(heads);
    let key_heads = both / 2;
    if !qkv.size(1).is_multiple_of(HEAD) || !both.is_multiple_of(2) || key_heads == 0 {
        let why = "D = (2 H + HV) 128, with HV as in `raw_beta` and H heads of q and of k";
        qkv.exactly(1, 3 * heads * HEAD, why)?;
    }
    match heads.is_multiple_of(key_heads) {
        true => Ok(heads / key_heads),
        false => Err(OpError::Heads { op: NAME, heads: key_heads, value_heads: heads }),
    }
}

/// A bounded gate leaves keys, which grow by it over the tokens of a request, numbers.
fn bound(p: &Problem, window: u64) -> Result<(), OpError> {
    match p.gate {
        Gate::Softplus if window > MOST_TOKENS_SOFTPLUS => {
            let given = format!("a softplus gate over Q = {window} tokens");
            let needed =
                format!("Q up to {MOST_TOKENS_SOFTPLUS} is possible with it, to {MOST_TOKENS} with a bounded gate");
            Err(OpError::Together { op: NAME, given, needed })
        }
        Gate::Bounded { lower_bound } if !(LEAST_SUM..=0.0).contains(&(lower_bound * window as f32)) => {
            let given = format!("a gate bounded by {lower_bound} over Q = {window} tokens");
            let needed = "a bound from -80 / Q to 0 is needed, as keys grow by it from token to token".to_string();
            Err(OpError::Together { op: NAME, given, needed })
        }
        _ => Ok(()),
    }
}

/// Sizes of what has a row a token.
struct Rows {
    total: u64,
    heads: u64,
}

impl Rows {
    fn check<'a>(
        &self,
        name: &'static str,
        tensor: &'a TensorArg,
        axes: &'static [&'static str],
    ) -> Result<Argument<'a>, OpError> {
        let rows = Argument::new(NAME, name, tensor, axes, &[Elem::BF16])?;
        rows.exactly(0, self.total, WHY_TOKENS)?;
        rows.stride(axes.len() - 1, 1)?;
        rows.stride_multiple(0, 2)?;
        rows.memory(align::SCALARS)?;
        Ok(rows)
    }

    fn heads<'a>(
        &self,
        name: &'static str,
        tensor: &'a TensorArg,
        axes: &'static [&'static str],
    ) -> Result<Argument<'a>, OpError> {
        let rows = self.check(name, tensor, axes)?;
        rows.exactly(1, self.heads, WHY_HEADS)?;
        rows.exactly(2, HEAD, WHY_HEAD)?;
        rows.stride(1, HEAD)?;
        Ok(rows)
    }
}

fn weights(p: &Problem, heads: u64) -> Result<(), OpError> {
    if let Some(a_log) = &p.a_log {
        let a_log = Argument::new(NAME, "a_log", a_log, &["HV"], &[Elem::F32])?;
        a_log.exactly(0, heads, WHY_HEADS)?;
        a_log.stride(0, 1)?;
        a_log.memory(align::SCALARS)?;
    }
    let dt_bias = Argument::new(NAME, "dt_bias", &p.dt_bias, &["HV", "K"], &[Elem::F32])?;
    dt_bias.exactly(0, heads, WHY_HEADS)?;
    dt_bias.exactly(1, HEAD, WHY_HEAD)?;
    dt_bias.stride(1, 1)?;
    dt_bias.stride(0, HEAD)?;
    dt_bias.memory(align::PAIRS)
}

/// Checks the pool of states; true if its slot stride is longer than a tensor map describes.
fn state(p: &Problem, heads: u64) -> Result<bool, OpError> {
    let state = Argument::new(NAME, "state", &p.state, &["slots", "HV", "V", "K"], &[Elem::BF16, Elem::F32])?;
    state.at_most(0, MOST_SLOTS, "slots are i32 indices")?;
    state.exactly(1, heads, WHY_HEADS)?;
    state.exactly(2, HEAD, WHY_HEAD)?;
    state.exactly(3, HEAD, WHY_HEAD)?;
    state.stride(3, 1)?;
    state.stride(2, HEAD)?;
    state.stride(1, HEAD * HEAD)?;
    state.stride_multiple(0, whole(p.state.elem))?;
    state.memory(align::WIDE)?;
    let bytes = p.state.strides()[0].saturating_mul(p.state.elem.bytes().into());
    Ok(p.state.shape()[0] > 1 && bytes >= STEP_BYTES)
}

/// Checks the records; gives Q.
fn records(p: &Problem, requests: u64, heads: u64) -> Result<u64, OpError> {
    let corr = Argument::new(NAME, "corr", &p.corr, &["rows", "HV", "Q", "V"], &[Elem::F32])?;
    let kg = Argument::new(NAME, "kg", &p.kg, &["rows", "HV", "Q", "2 K"], &[Elem::BF16])?;
    let window = corr.size(2);
    corr.at_least(2, 1, "a request has a token")?;
    corr.at_most(2, MOST_TOKENS, "that many tokens are verified at once")?;
    kg.exactly(2, window, "Q as in `corr`")?;
    kg.exactly(0, corr.size(0), "rows as in `corr`")?;
    for (records, inner, align) in [(&corr, HEAD, align::PAIRS), (&kg, 2 * HEAD, align::SCALARS)] {
        records.at_least(0, requests, "a row a request, B as in `slots`")?;
        records.at_most(0, MOST_SLOTS, WHY_COUNT)?;
        records.exactly(1, heads, WHY_HEADS)?;
        records.exactly(3, inner, "K = V = 128")?;
        records.stride(3, 1)?;
        records.stride(2, inner)?;
        records.stride_multiple(1, 2)?;
        records.stride_multiple(0, 2)?;
        records.distinct()?;
        records.memory(align)?;
    }
    Ok(window)
}

struct Sizes {
    requests: u64,
    heads: u64,
    window: u64,
}

/// Checks what the convolution takes; true if its history is `[D, Q + 2]` in memory.
fn convolution(c: &Convolution, p: &Problem, sizes: &Sizes) -> Result<bool, OpError> {
    let channels = 3 * sizes.heads * HEAD;
    let why = "D = 3 HV 128, with HV as in `raw_beta`";
    let taps = Argument::new(NAME, "conv_weight", &c.weight, &["D", "4"], &[Elem::F32, Elem::BF16])?;
    taps.exactly(0, channels, why)?;
    taps.exactly(1, TAPS, "the convolution has 4 taps")?;
    taps.stride(1, 1)?;
    taps.stride(0, TAPS)?;
    taps.memory(align::WIDE)?;
    let accepted = Argument::new(NAME, "accepted", &c.accepted, &["B"], &[Elem::I32])?;
    accepted.exactly(0, sizes.requests, "B as in `slots`")?;
    accepted.stride(0, 1)?;
    accepted.memory(align::SCALARS)?;
    let history = Argument::new(NAME, "conv_state", &c.state, &["slots", "D", "Q + 2"], &[Elem::BF16])?;
    history.exactly(0, p.state.shape()[0], "slots as in `state`: one index is for both")?;
    history.exactly(1, channels, why)?;
    history.exactly(2, sizes.window + 2, "two inputs more than `corr` has tokens")?;
    let channel_major = match c.state.strides()[1..] {
        [1, _] => false,
        [_, 1] => true,
        _ => {
            let orders = "[Q + 2, D] (stride 1 along D) or [D, Q + 2] (stride 1 along Q + 2)";
            return Err(history.layout(format!("the last two axes in the memory order {orders} are needed")));
        }
    };
    if !channel_major {
        history.stride_multiple(0, 2)?;
        history.stride_multiple(2, 2)?;
    }
    history.distinct()?;
    history.memory(if channel_major { align::BF16 } else { align::SCALARS })?;
    Ok(channel_major)
}

/// Written tensors share no memory with others.
fn alone(p: &Problem) -> Result<(), OpError> {
    let mut written = vec![("out", &p.out), ("corr", &p.corr), ("kg", &p.kg)];
    let mut read = vec![
        ("qkv", &p.qkv),
        ("raw_g", &p.raw_g),
        ("raw_beta", &p.raw_beta),
        ("dt_bias", &p.dt_bias),
        ("state", &p.state),
        ("query_start", &p.query_start),
        ("slots", &p.slots),
    ];
    if let Some(c) = &p.convolution {
        written.push(("conv_state", &c.state));
        read.extend([("conv_weight", &c.weight), ("accepted", &c.accepted)]);
    }
    written.extend(p.counters.as_ref().map(|counters| ("counters", counters)));
    read.extend(p.a_log.as_ref().map(|a_log| ("a_log", a_log)));
    no_overlap(NAME, &written, &read, &[])
}
