//! Calls on the simulator against the commit written out in float64: every way in which a call can be put.
//!
//! Of an f32 pool the largest error of a state is at most a small factor of that of the same formula in f32, token after
//! token; of a bf16 pool each element is at most half a unit of its last place further away. Everything else keeps its bits.

use super::{Boundary, Gate, Options, Problem, plan};
use crate::executor::sim::SimExecutor;
use crate::{DeviceBuffer, Guarding};
use half::bf16;
use kda_core::exec::Stream;
use kda_core::{Elem, TensorArg};
use kda_kernels::tc_commit::TcCommitVariant;
use kda_sim::{CtaOrder, Schedule};

const D: usize = 128;
/// How much larger than the error of f32, token after token, the kernel's may be.
const FACTOR: f64 = 3.0;

/// splitmix64
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Within -half .. half.
    fn float(&mut self, half: f32) -> f32 {
        ((self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * half
    }

    fn floats(&mut self, count: usize, half: f32) -> Vec<f32> {
        (0..count).map(|_| self.float(half)).collect()
    }

    fn narrow(&mut self, count: usize, half: f32) -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f32(self.float(half))).collect()
    }
}

/// Order of the windows of raw inputs.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Tokens,
    Channels,
}

/// How a call is put.
#[derive(Clone)]
struct Case {
    heads: usize,
    window: usize,
    pool: usize,
    slots: Vec<i32>,
    destinations: Option<Vec<i32>>,
    counts: Vec<i32>,
    /// Tokens and slots.
    boundary: Option<(Vec<i32>, Vec<i32>)>,
    null: i32,
    bf16_state: bool,
    conv: Option<Rows>,
    /// Elements that slots of both pools lie further apart than they are long.
    padding: usize,
    softplus: bool,
    /// Some channels decay by hundreds.
    far: bool,
    a_log: bool,
    layers: usize,
    /// By the table of layers, also of one.
    table: bool,
    variant: Option<TcCommitVariant>,
    capability: (u8, u8),
    schedule: Schedule,
}

impl Case {
    /// In place, a request a count, each a slot of its own.
    fn plain(window: usize, counts: &[i32]) -> Case {
        let n = counts.len() as i32;
        Case {
            heads: 2,
            window,
            pool: counts.len() + 2,
            slots: (0..n)
                .map(|b| (b * 3 + 1) % (n + 2))
                .scan(0u64, |seen, slot| Some(free(seen, slot, n + 2)))
                .collect(),
            destinations: None,
            counts: counts.to_vec(),
            boundary: None,
            null: -1,
            bf16_state: true,
            conv: None,
            padding: 0,
            softplus: false,
            far: false,
            a_log: true,
            layers: 1,
            table: false,
            variant: None,
            capability: (9, 0),
            schedule: Schedule::RoundRobin,
        }
    }

    fn pitch(&self) -> usize {
        self.heads * D * D + self.padding
    }

    fn channels(&self) -> usize {
        3 * self.heads * D
    }

    fn conv_pitch(&self) -> usize {
        self.channels() * (self.window + 2) + 2 * self.padding
    }
}

/// The next slot that is not taken.
fn free(seen: &mut u64, mut slot: i32, pool: i32) -> i32 {
    while *seen >> slot & 1 == 1 {
        slot = (slot + 1) % pool;
    }
    *seen |= 1 << slot;
    slot
}

/// What a layer holds.
#[derive(Clone)]
struct Layer {
    state: Vec<f32>,
    corr: Vec<f32>,
    kg: Vec<bf16>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    conv: Vec<bf16>,
}

fn draw(case: &Case, random: &mut Random) -> Layer {
    let records = (case.counts.len() + 1) * case.heads * case.window;
    let mut kg = random.narrow(2 * records * D, 1.5);
    for record in 0..records {
        for k in 0..D {
            // Softplus of some 35 times e^(a_log) = 16: two tokens are past e^-500, whose exponential is 0.
            let far = case.far && k % 3 == 0;
            let gate = &mut kg[(2 * record + 1) * D + k];
            *gate = bf16::from_f32(if far { 35.0 + gate.to_f32() } else { 2.0 * gate.to_f32() - 3.0 });
        }
    }
    let mut state = random.floats(case.pool * case.pitch(), 2.0);
    if case.bf16_state {
        state.iter_mut().for_each(|s| *s = bf16::from_f32(*s).to_f32());
    }
    let rate = if case.far { 16f32.ln() } else { 0.0 };
    Layer {
        state,
        corr: random.floats(records * D, 1.0),
        kg,
        a_log: random.floats(case.heads, 0.5).iter().map(|a| a + rate).collect(),
        dt_bias: random.floats(case.heads * D, 1.0),
        conv: random.narrow(if case.conv.is_some() { case.pool * case.conv_pitch() } else { 0 }, 1.0),
    }
}

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

/// Checks what a layer holds behind a call: states within their bound, windows bit by bit, and all else as it was.
fn judge(what: &str, case: &Case, x: &Layer, state: &[f32], conv: &[bf16]) {
    let mut touched = vec![false; state.len()];
    let mut windows = x.conv.clone();
    for b in 0..case.counts.len() {
        let Some((source, writes)) = request(case, b) else { continue };
        for (slot, n) in &writes {
            for head in 0..case.heads {
                let place = |slot: usize| slot * case.pitch() + head * D * D;
                let old = &x.state[place(source)..][..D * D];
                let exact = committed::<f64>(case, x, b, head, old, *n);
                let plain = committed::<f32>(case, x, b, head, old, *n);
                let largest = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
                let size = largest(&mut exact.iter().map(|e| e.abs()));
                let error = largest(&mut exact.iter().zip(&plain).map(|(e, p)| (e - p).abs()));
                let bound = FACTOR * error.max(size * f64::from(f32::EPSILON) / 2.0);
                for (i, exact) in exact.iter().enumerate() {
                    let at = place(*slot) + i;
                    let half = if case.bf16_state { half_unit(exact.abs() + bound) } else { 0.0 };
                    let off = (f64::from(state[at]) - exact).abs();
                    assert!(
                        off <= bound + half,
                        "{what}: request {b}, head {head}, {n} records at slot {slot}, element {i}: {} is not {exact}; \
                         {off:e} is above {bound:e} + {half:e}",
                        state[at]
                    );
                    touched[at] = true;
                }
            }
            let Some(rows) = case.conv else { continue };
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

/// The pools of each layer behind a launch of all of them.
fn run(case: &Case, layers: &[Layer]) -> Vec<(Vec<f32>, Vec<bf16>)> {
    let orders = [CtaOrder::Forward, CtaOrder::Reverse, CtaOrder::Random];
    let index = Schedule::ALL.iter().position(|s| *s == case.schedule).unwrap_or(0);
    let options = kda_sim::Options {
        schedule: case.schedule,
        cta_order: orders[index % 3],
        seed: index as u64,
        ..kda_sim::Options::default()
    };
    let executor = SimExecutor::with_capability(options, case.capability);
    let bands = Guarding::BANDS;
    let (n, heads, window) = (case.counts.len() as u64, case.heads as u64, case.window as u64);
    let elem = if case.bf16_state { Elem::BF16 } else { Elem::F32 };
    struct Held<'e> {
        state: DeviceBuffer<'e>,
        conv: DeviceBuffer<'e>,
        others: [DeviceBuffer<'e>; 4],
    }
    let held: Vec<Held> = layers
        .iter()
        .map(|x| {
            let narrow: Vec<bf16> = x.state.iter().map(|s| bf16::from_f32(*s)).collect();
            let state = match case.bf16_state {
                true => DeviceBuffer::of(&executor, "state", &narrow, bands),
                false => DeviceBuffer::of(&executor, "state", &x.state, bands),
            };
            Held {
                state: state.unwrap(),
                conv: DeviceBuffer::of(&executor, "conv", &x.conv, bands).unwrap(),
                others: [
                    DeviceBuffer::of(&executor, "corr", &x.corr, bands).unwrap(),
                    DeviceBuffer::of(&executor, "kg", &x.kg, bands).unwrap(),
                    DeviceBuffer::of(&executor, "a_log", &x.a_log, bands).unwrap(),
                    DeviceBuffer::of(&executor, "dt_bias", &x.dt_bias, bands).unwrap(),
                ],
            }
        })
        .collect();
    let integers = |name, values: &[i32]| DeviceBuffer::of(&executor, name, values, bands).unwrap();
    let slots = integers("slots", &case.slots);
    let counts = integers("counts", &case.counts);
    let destinations = case.destinations.as_ref().map(|slots| integers("destinations", slots));
    let boundary = case.boundary.as_ref().map(|(t, s)| (integers("boundary_tokens", t), integers("boundary_slots", s)));
    let addresses: Vec<u64> = held
        .iter()
        .flat_map(|layer| {
            let [corr, kg, a_log, dt_bias] = &layer.others;
            [&layer.state, &layer.conv, corr, kg, a_log, dt_bias].map(DeviceBuffer::ptr)
        })
        .collect();
    let table = DeviceBuffer::of(&executor, "layers", &addresses, bands).unwrap();
    let list = |buffer: &DeviceBuffer| buffer.dense(Elem::I32, &[n]).unwrap();
    let first = &held[0];
    let [corr, kg, a_log, dt_bias] = &first.others;
    let (pool, channels, pitch) = (case.pool as u64, case.channels() as u64, case.conv_pitch() as u64);
    let windows = |rows: Rows| -> TensorArg {
        let inner = if rows == Rows::Tokens { [1, channels] } else { [window + 2, 1] };
        first.conv.strided(Elem::BF16, &[pool, channels, window + 2], &[pitch, inner[0], inner[1]]).unwrap()
    };
    let strides = [case.pitch() as u64, (D * D) as u64, D as u64, 1];
    let problem = Problem {
        state: first.state.strided(elem, &[pool, heads, 128, 128], &strides).unwrap(),
        corr: corr.dense(Elem::F32, &[n + 1, heads, window, 128]).unwrap(),
        kg: kg.dense(Elem::BF16, &[n + 1, heads, window, 2, 128]).unwrap(),
        a_log: case.a_log.then(|| a_log.dense(Elem::F32, &[heads]).unwrap()),
        dt_bias: dt_bias.dense(Elem::F32, &[heads, 128]).unwrap(),
        conv: case.conv.map(windows),
        slots: list(&slots),
        destinations: destinations.as_ref().map(list),
        counts: list(&counts),
        boundary: boundary.as_ref().map(|(tokens, slots)| Boundary { tokens: list(tokens), slots: list(slots) }),
        layers: case.table.then(|| table.dense(Elem::U64, &[layers.len() as u64, 6]).unwrap()),
        gate: if case.softplus { Gate::Softplus } else { Gate::Bounded { lower_bound: -5.0 } },
        null: case.null,
    };
    let planned = plan(&problem, &executor, &Options { variant: case.variant, pdl: true }).expect("a plan");
    // SAFETY: the buffers outlive the launch, and nothing else uses them.
    unsafe { planned.launch(&executor, Stream::default()) }.expect("the call runs");
    for layer in &held {
        for buffer in [&layer.state, &layer.conv].into_iter().chain(&layer.others) {
            buffer.check_canaries().expect("nothing beside it");
        }
    }
    let wide = |buffer: &DeviceBuffer| -> Vec<f32> {
        match elem {
            Elem::BF16 => buffer.download::<bf16>().unwrap().into_iter().map(bf16::to_f32).collect(),
            _ => buffer.download::<f32>().unwrap(),
        }
    };
    held.iter().map(|layer| (wide(&layer.state), layer.conv.download::<bf16>().unwrap())).collect()
}

/// Inputs of this run; `KDA_SEED` repeats one.
fn random(what: &str) -> Random {
    let given = std::env::var("KDA_SEED").ok().and_then(|seed| seed.parse().ok());
    let fresh = || {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        time.map_or(0, |time| time.as_nanos() as u64)
    };
    let seed = given.unwrap_or_else(fresh);
    println!("KDA_SEED={seed} ({what})");
    Random(seed)
}

/// Runs a case and checks every layer; gives what the pools hold.
fn check(what: &str, case: &Case) -> Vec<(Vec<f32>, Vec<bf16>)> {
    let mut random = random(what);
    let layers: Vec<Layer> = (0..case.layers).map(|_| draw(case, &mut random)).collect();
    let got = run(case, &layers);
    for (x, (state, conv)) in layers.iter().zip(&got) {
        judge(what, case, x, state, conv);
    }
    got
}

/// Every variant, with every count from below 0 to past the window.
#[test]
fn every_count() {
    for variant in TcCommitVariant::ALL {
        let window = if variant.most() == 8 { 5 } else { 11 };
        let counts: Vec<i32> = [-1, i32::MIN, i32::MAX, window + 1].into_iter().chain(0..=window).collect();
        let capability = (variant.desc().arch.major, variant.desc().arch.minor);
        let bf16_state = variant.state() == Elem::BF16;
        let case =
            Case { heads: 1, variant: Some(variant), capability, bf16_state, ..Case::plain(window as usize, &counts) };
        check(variant.desc().entry, &case);
    }
}

/// Boundaries of every place, windows in both orders, slots in place and apart; the source keeps its bits unless it is named.
#[test]
fn boundaries_destinations_and_windows() {
    for (bf16_state, conv) in [(true, Some(Rows::Tokens)), (false, Some(Rows::Channels)), (true, None)] {
        let case = Case {
            pool: 24,
            slots: vec![1, 2, 3, 4, 5, 6, 7],
            // In place, apart, and one boundary that is the source.
            destinations: Some(vec![11, 2, 13, 14, 5, 16, 17]),
            boundary: Some((vec![1, 3, 4, 0, 2, 5, 2], vec![18, 19, 3, 20, 21, 22, 17])),
            bf16_state,
            conv,
            padding: 24,
            ..Case::plain(4, &[4, 3, 9, 2, 4, 4, 2])
        };
        check("apart", &case);
        check(
            "in place",
            &Case {
                destinations: None,
                boundary: Some((vec![1, 2, 3, 1, 1, 2, 2], vec![8, 9, 10, 11, 12, 13, 14])),
                ..case
            },
        );
    }
}

/// Slots that are nobody's: null, below, past the pool, as source, destination and boundary.
#[test]
fn slots_that_are_nobodys() {
    for null in [-1, 0] {
        let case = Case {
            pool: 9,
            slots: vec![null, -7, 9, i32::MAX, 1, 2, 3, 4],
            destinations: Some(vec![5, 5, 5, 5, null, i32::MIN, 1000, 6]),
            boundary: Some((vec![1; 8], vec![7, 7, 7, 7, 7, 7, 7, 9])),
            conv: Some(Rows::Tokens),
            null,
            ..Case::plain(3, &[2; 8])
        };
        check("nobody's", &case);
        check("their boundaries", &Case { counts: vec![0, 0, 0, 0, 0, 0, 0, 3], null, ..case });
    }
}

/// Windows in both orders at every count, in place.
#[test]
fn windows_at_every_count() {
    for conv in [Rows::Tokens, Rows::Channels] {
        for (window, bf16_state) in [(1, true), (8, true), (16, false)] {
            let counts: Vec<i32> = (0..=window).step_by(window as usize / 4 + 1).chain([1, window]).collect();
            check(
                "windows",
                &Case { heads: 1, conv: Some(conv), bf16_state, padding: 8, ..Case::plain(window as usize, &counts) },
            );
        }
    }
}

/// Both gates, with and without `a_log`, and decays that no f32 holds.
#[test]
fn gates() {
    for bf16_state in [true, false] {
        for (softplus, far, a_log) in
            [(false, false, false), (true, false, true), (true, false, false), (true, true, true), (false, true, true)]
        {
            let case = Case { softplus, far, a_log, bf16_state, ..Case::plain(8, &[8, 2, 1]) };
            check("gates", &case);
        }
    }
}

/// A launch of many layers gives the bits of a launch a layer; absent things are absent in all.
#[test]
fn layers_by_the_table() {
    for (bf16_state, conv, a_log) in
        [(true, Some(Rows::Tokens), true), (false, Some(Rows::Channels), false), (true, None, true)]
    {
        let case = Case {
            pool: 10,
            destinations: Some(vec![6, 1]),
            slots: vec![3, 1],
            boundary: Some((vec![2, 1], vec![8, 9])),
            layers: 3,
            table: true,
            bf16_state,
            conv,
            a_log,
            padding: 8,
            ..Case::plain(4, &[3, 4])
        };
        let mut random = random("layers");
        let layers: Vec<Layer> = (0..3).map(|_| draw(&case, &mut random)).collect();
        let together = run(&case, &layers);
        for (x, got) in layers.iter().zip(&together) {
            judge("layers", &case, x, &got.0, &got.1);
            let alone = run(&Case { layers: 1, table: false, ..case.clone() }, std::slice::from_ref(x)).remove(0);
            let bits = |state: &[f32]| state.iter().map(|s| s.to_bits()).collect::<Vec<u32>>();
            assert!(bits(&alone.0) == bits(&got.0) && alone.1 == got.1);
        }
    }
}

/// Slices, windows of other sizes around a request, and schedules do not change a bit.
#[test]
fn variants_and_schedules_agree() {
    for bf16_state in [true, false] {
        let case = Case {
            pool: 12,
            destinations: Some(vec![7, 2, 9]),
            slots: vec![1, 2, 3],
            boundary: Some((vec![2, 1, 7], vec![10, 11, 0])),
            conv: Some(Rows::Tokens),
            bf16_state,
            ..Case::plain(6, &[4, 6, 1])
        };
        let x = draw(&case, &mut random("agree"));
        let first = run(&case, std::slice::from_ref(&x));
        judge("agree", &case, &x, &first[0].0, &first[0].1);
        for schedule in Schedule::ALL {
            assert!(run(&Case { schedule, ..case.clone() }, std::slice::from_ref(&x)) == first, "{schedule:?}");
        }
        for variant in TcCommitVariant::ALL.into_iter().filter(|v| (v.state() == Elem::BF16) == bf16_state) {
            let capability = (variant.desc().arch.major, variant.desc().arch.minor);
            let other = Case { variant: Some(variant), capability, ..case.clone() };
            assert!(run(&other, std::slice::from_ref(&x)) == first, "{}", variant.desc().entry);
        }
    }
}
