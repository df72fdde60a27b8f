//! The commit written out, and what it says of pools behind a call.

use super::case::{Case, D, Layer, Rows};
use half::bf16;

/// How much larger than the error of f32, token after token, the kernel's may be: beside a state's largest magnitude, the largest
/// of the call, since the error of one state is too small a sample (right kernels come to 3.15 times it).
const FACTOR: f64 = 3.0;

/// Number type of a written-out commit.
trait Number: Copy {
    fn of(x: f32) -> Self;
    fn wide(self) -> f64;
    fn decay(case: &Case, a_log: f32, z: Self) -> Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn inverse_root(self) -> Self;
}

macro_rules! number {
    ($($ty:ty),*) => {$(impl Number for $ty {
        fn of(x: f32) -> $ty { x.into() }
        fn wide(self) -> f64 { self.into() }
        fn decay(case: &Case, a_log: f32, z: $ty) -> $ty {
            let rate = <$ty>::from(a_log).exp();
            match case.softplus {
                true => (-rate * (z.max(0.0) + (-z.abs()).exp().ln_1p())).exp(),
                false => (-5.0 / (1.0 + (-rate * z).exp())).exp(),
            }
        }
        fn sum(self, other: $ty) -> $ty { self + other }
        fn product(self, other: $ty) -> $ty { self * other }
        fn inverse_root(self) -> $ty { 1.0 / self.sqrt() }
    })*};
}
number!(f32, f64);

/// The state `[V, K]` of a head after `n` records.
fn committed<T: Number>(case: &Case, x: &Layer, b: usize, head: usize, state: &[f32], n: usize) -> Vec<f64> {
    let mut s: Vec<T> = state.iter().map(|s| T::of(*s)).collect();
    for i in 0..n {
        let record = (b * case.heads + head) * case.window + i;
        let (key, gate) = x.kg[2 * record * D..][..2 * D].split_at(D);
        let key: Vec<T> = key.iter().map(|k| T::of(k.to_f32())).collect();
        let squares = key.iter().fold(T::of(1e-6), |sum, k| sum.sum(k.product(*k)));
        let norm = squares.inverse_root();
        let a_log = if case.a_log { x.a_log[head] } else { 0.0 };
        for k in 0..D {
            let z = T::of(gate[k].to_f32()).sum(T::of(x.dt_bias[head * D + k]));
            let decay = T::decay(case, a_log, z);
            for v in 0..D {
                let u = T::of(x.corr[record * D + v]);
                let at = v * D + k;
                s[at] = s[at].product(decay).sum(u.product(key[k].product(norm)));
            }
        }
    }
    s.into_iter().map(Number::wide).collect()
}

/// What a request does: source, and each slot that is written with the records of its state, the destination last.
fn request(case: &Case, b: usize) -> Option<(usize, Vec<(usize, usize)>)> {
    let live = |slot: i32| (slot > case.null && (slot as i64) < case.pool as i64).then_some(slot as usize);
    let n = usize::try_from(case.counts[b]).ok().filter(|n| *n > 0)?.min(case.window);
    let source = live(case.slots[b])?;
    let to = live(case.destinations.as_ref().map_or(case.slots[b], |slots| slots[b]))?;
    let mark = case.boundary.as_ref().and_then(|(tokens, slots)| {
        let m = usize::try_from(tokens[b]).ok().filter(|m| (1..=n).contains(m))?;
        Some((live(slots[b])?, m))
    });
    Some((source, mark.into_iter().chain([(to, n)]).collect()))
}

/// Largest of the magnitudes.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.map(f64::abs).fold(0.0, f64::max)
}

/// A state as it is and its place in the pool's slots, for each slot that a request writes and each head.
struct Want {
    request: usize,
    records: usize,
    head: usize,
    slot: usize,
    exact: Vec<f64>,
    size: f64,
}

/// What a call writes, and the largest error of f32 beside a state's largest magnitude.
fn wanted(case: &Case, x: &Layer) -> (Vec<Want>, f64) {
    let (mut wants, mut error) = (Vec::new(), f64::from(f32::EPSILON) / 2.0);
    for request in 0..case.counts.len() {
        let Some((source, writes)) = self::request(case, request) else { continue };
        for ((slot, records), head) in
            writes.into_iter().flat_map(|write| (0..case.heads).map(move |head| (write, head)))
        {
            let old = &x.state[case.place(source, head)..][..D * D];
            let exact = committed::<f64>(case, x, request, head, old, records);
            let plain = committed::<f32>(case, x, request, head, old, records);
            let size = largest(exact.iter().copied());
            let off = largest(exact.iter().zip(&plain).map(|(exact, plain)| exact - plain));
            error = error.max(off / size.max(f64::from(f32::MIN_POSITIVE)));
            wants.push(Want { request, records, head, slot, exact, size });
        }
    }
    (wants, error)
}

/// Checks what a layer holds behind a call: states within their bound, windows bit by bit, and all else as it was.
pub(super) fn judge(what: &str, case: &Case, x: &Layer, state: &[f32], conv: &[bf16]) {
    let mut touched = vec![false; state.len()];
    let mut windows = x.conv.clone();
    let (wants, error) = wanted(case, x);
    for Want { request, records, head, slot, exact, size } in &wants {
        let bound = FACTOR * error * size;
        for (i, exact) in exact.iter().enumerate() {
            let at = case.place(*slot, *head) + i;
            let half = if case.bf16_state { half_unit(exact.abs() + bound) } else { 0.0 };
            let off = (f64::from(state[at]) - exact).abs();
            assert!(
                off <= bound + half,
                "{what}: request {request}, head {head}, {records} records at slot {slot}, element {i}: {} is not {exact}; \
                 {off:e} is above {bound:e} + {half:e}",
                state[at]
            );
            touched[at] = true;
        }
    }
    for b in 0..case.counts.len() {
        let (Some((source, writes)), Some(rows)) = (request(case, b), case.conv) else { continue };
        for (slot, n) in &writes {
            for channel in 0..case.channels() {
                for row in 0..3 {
                    let at = |slot: usize, row: usize| match rows {
                        Rows::Tokens => slot * case.conv_pitch() + row * case.channels() + channel,
                        Rows::Channels => slot * case.conv_pitch() + channel * (case.window + 2) + row,
                    };
                    windows[at(*slot, row)] = x.conv[at(source, n - 1 + row)];
                }
            }
        }
    }
    for (at, old) in x.state.iter().enumerate() {
        assert!(touched[at] || old.to_bits() == state[at].to_bits(), "{what}: element {at} of the pool was written");
    }
    let differ = windows.iter().zip(conv).position(|(want, got)| want.to_bits() != got.to_bits());
    assert_eq!(differ, None, "{what}: a window differs");
}

/// Half a unit in the last place of a bf16 of this size.
fn half_unit(size: f64) -> f64 {
    (size.log2().floor() - 8.0).exp2().max(f64::from(f32::MIN_POSITIVE))
}
