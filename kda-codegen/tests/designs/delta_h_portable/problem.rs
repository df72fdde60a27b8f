//! A problem of the recurrence: random inputs, its results in f64, arguments of the kernel, and the comparison.

use super::super::delta_h::{BT, CANARY, D, bf16, bits, close};
use super::super::harness::{Plain, Random, Run, try_compile};
use kda_codegen::compiled::Compiled;
use std::sync::LazyLock;

const WORK: &str = include_str!("../../../../kda-kernels/src/device/work.rs");
const STATES: &str = include_str!("../../../../kda-kernels/src/device/states.rs");

/// The shipped kernel behind its library.
pub(super) static KERNEL: LazyLock<String> =
    LazyLock::new(|| with_library(include_str!("../../../../kda-kernels/src/families/delta_h/portable.rs")));

/// A kernel of the list behind the library of the list. Documentation of a file is no part of a module.
pub(super) fn with_library(kernel: &str) -> String {
    [WORK, STATES, kernel].map(|text| text.replace("//!", "//")).concat()
}
pub(super) const LENGTHS: [usize; 8] = [0, 1, 63, 64, 65, 130, 200, 0];
/// What a whole sequence's entry says: the last segment, of one.
const WHOLE: u32 = 1 << 31 | 1 << 8;
const NULL: i32 = 0;
/// Columns between rows that belong to nothing.
const GAP: usize = 8;

/// The gate of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gate {
    /// Cumulative, of rows.
    Cumulative,
    /// Decays of chunks.
    Decays,
    /// Cumulative, one a head and row.
    Scalar,
}

/// What a problem has, and how its tensors lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) vs: u32,
    pub(super) v_first: bool,
    pub(super) gate: Gate,
    pub(super) heads: usize,
    /// Heads that share one of `kg`.
    pub(super) per_key_head: usize,
    pub(super) initial: bool,
    /// States of bf16.
    pub(super) narrow: bool,
    pub(super) initial_k_first: bool,
    pub(super) final_k_first: bool,
    /// States in slots of a pool, some of them dead, some without an initial state.
    pub(super) slots: bool,
    pub(super) every: usize,
    pub(super) h: bool,
    pub(super) v_new: bool,
    pub(super) ctas: u32,
}

pub(super) const PLAIN: Form = Form {
    vs: 64,
    v_first: false,
    gate: Gate::Cumulative,
    heads: 1,
    per_key_head: 1,
    initial: true,
    narrow: false,
    initial_k_first: true,
    final_k_first: true,
    slots: false,
    every: 1,
    h: true,
    v_new: true,
    ctas: 3,
};

/// A problem: packed sequences and their tensors, without gaps.
#[derive(Clone)]
pub(super) struct Problem {
    form: Form,
    pub(super) lengths: Vec<usize>,
    /// Rows of all sequences; those of the tensors are three more.
    pub(super) used: usize,
    pub(super) w: Vec<f32>,
    pub(super) kg: Vec<f32>,
    pub(super) u: Vec<f32>,
    pub(super) gate: Vec<f32>,
    /// `[slots, heads, K, V]`, and which slot a sequence reads and writes.
    pub(super) pool: Vec<f32>,
    reads: Vec<i32>,
    writes: Vec<i32>,
    has_initial: Vec<u8>,
}

/// What the kernel writes, in some precision: states `[K, V]`.
pub(super) struct Results {
    h: Vec<f64>,
    v_new: Vec<f64>,
    pub(super) last: Vec<Vec<f64>>,
}

impl Problem {
    pub(super) fn new(lengths: &[usize], form: Form, salt: u64) -> Problem {
        let mut random = Random::new(salt);
        let mut uniform = |scale: f32| (random.bits() >> 40) as f32 / (1u64 << 23) as f32 * scale - scale;
        let (heads, used) = (form.heads, lengths.iter().sum());
        let rows = used + 3;
        let mut tensor = |scale: f32, heads: usize| -> Vec<f32> {
            let value = |i: usize| if i < used * heads * D { bf16(uniform(scale)) } else { f32::NAN };
            (0..rows * heads * D).map(value).collect()
        };
        let (w, kg, u) = (tensor(0.2, heads), tensor(0.2, heads / form.per_key_head), tensor(1.0, heads));
        let chunks: usize = lengths.iter().map(|n| n.div_ceil(BT)).sum();
        let gate = match form.gate {
            Gate::Decays => (0..chunks * heads * D).map(|_| (uniform(1.0) - 1.0).exp2()).collect(),
            Gate::Cumulative | Gate::Scalar => {
                let width = if form.gate == Gate::Scalar { 1 } else { D };
                let mut gate = vec![f32::NAN; rows * heads * width];
                let mut start = 0;
                for length in lengths {
                    for row in 0..*length {
                        // Of gates of channels only the last row of a chunk is read.
                        let read = width == 1 || row % BT == BT - 1 || row + 1 == *length;
                        let place = (start + row) * heads * width..(start + row + 1) * heads * width;
                        let sum = -0.03 * (row % BT) as f32;
                        gate[place].fill_with(|| if read { sum + uniform(0.5) - 0.5 } else { f32::NAN });
                    }
                    start += length;
                }
                gate
            }
        };
        let seqs = lengths.len();
        let slots = if form.slots { seqs + 3 } else { seqs };
        let pool = (0..slots * heads * D * D).map(|_| if form.narrow { bf16(uniform(1.0)) } else { uniform(1.0) });
        // Sequence n has slot n + 2 of those from 1 on; one reads none, another a slot that there is not.
        let mut reads: Vec<i32> = (0..seqs as i32).map(|n| if form.slots { n + 2 } else { n }).collect();
        let mut writes = reads.clone();
        let mut has_initial = vec![1; seqs];
        if form.slots && seqs > 4 {
            (reads[1], reads[2], writes[3], writes[4]) = (NULL, slots as i32, NULL, -7);
            has_initial[seqs - 1] = 0;
        }
        let pool = pool.collect();
        Problem { form, lengths: lengths.to_vec(), used, w, kg, u, gate, pool, reads, writes, has_initial }
    }

    /// Chunks of `h` ahead of each sequence, and of all.
    fn h_offsets(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for length in &self.lengths {
            offsets.push(offsets[offsets.len() - 1] + length.div_ceil(BT).div_ceil(self.form.every));
        }
        offsets
    }

    /// The initial state of a sequence, zeros if it has none.
    fn initial(&self, n: usize, head: usize) -> Vec<f64> {
        let slots = self.pool.len() / (self.form.heads * D * D);
        let least = if self.form.slots { NULL + 1 } else { 0 };
        let live = (least..slots as i32).contains(&self.reads[n]);
        if !self.form.initial || !live || self.form.slots && self.has_initial[n] == 0 {
            return vec![0.0; D * D];
        }
        let from = (self.reads[n] as usize * self.form.heads + head) * D * D;
        self.pool[from..from + D * D].iter().map(|x| f64::from(*x)).collect()
    }

    /// The recurrence as it is defined: `round` is what is kept of h and v_new, `work` what is kept of each other result.
    fn reference(&self, round: impl Fn(f64) -> f64, work: impl Fn(f64) -> f64) -> Results {
        let Form { heads, per_key_head, every, .. } = self.form;
        let at = |tensor: &[f32], heads: usize, row: usize, head: usize, i: usize| {
            f64::from(tensor[(row * heads + head) * D + i])
        };
        let h_offsets = self.h_offsets();
        let mut h = vec![0.0; h_offsets[self.lengths.len()] * heads * D * D];
        let mut v_new = vec![0.0; self.used * heads * D];
        let mut last = Vec::new();
        let (mut start, mut chunk0) = (0, 0);
        for (n, length) in self.lengths.iter().enumerate() {
            for head in 0..heads {
                let mut s = self.initial(n, head);
                for chunk in 0..length.div_ceil(BT) {
                    let rows = start + chunk * BT..start + (chunk * BT + BT).min(*length);
                    let rounded: Vec<f64> = s.iter().map(|x| round(*x)).collect();
                    if chunk % every == 0 {
                        let to = ((h_offsets[n] + chunk / every) * heads + head) * D * D;
                        h[to..to + D * D].copy_from_slice(&rounded);
                    }
                    let scalar = |row: usize| f64::from(self.gate[row * heads + head]);
                    let mut added = vec![0.0; rows.len() * D];
                    for (t, row) in rows.clone().enumerate() {
                        for v in 0..D {
                            let dot = (0..D)
                                .fold(0.0, |sum, k| work(sum + at(&self.w, heads, row, head, k) * rounded[k * D + v]));
                            let x = work(at(&self.u, heads, row, head, v) - dot);
                            v_new[(row * heads + head) * D + v] = round(x);
                            added[t * D + v] = match self.form.gate {
                                Gate::Scalar => {
                                    let gate = work(work(scalar(rows.end - 1) - scalar(row)).exp2());
                                    round(work(x * gate))
                                }
                                _ => round(x),
                            };
                        }
                    }
                    for k in 0..D {
                        let decay = match self.form.gate {
                            Gate::Cumulative => work(at(&self.gate, heads, rows.end - 1, head, k).exp2()),
                            Gate::Decays => at(&self.gate, heads, chunk0 + chunk, head, k),
                            Gate::Scalar => work(scalar(rows.end - 1).exp2()),
                        };
                        for v in 0..D {
                            let state = &mut s[k * D + v];
                            *state = rows.clone().enumerate().fold(work(*state * decay), |sum, (t, row)| {
                                let key = at(&self.kg, heads / per_key_head, row, head / per_key_head, k);
                                work(sum + key * added[t * D + v])
                            });
                        }
                    }
                }
                last.push(if self.form.narrow { s.iter().map(|x| round(*x)).collect() } else { s });
            }
            start += length;
            chunk0 += length.div_ceil(BT);
        }
        Results { h, v_new, last }
    }

    /// What rounding as the contract rounds gives, in f32.
    pub(super) fn emulation(&self) -> Results {
        self.reference(|x| f64::from(bf16(x as f32)), |x| f64::from(x as f32))
    }

    /// What the schedule kernel writes for these lengths: longest first.
    pub(super) fn schedule(&self) -> Vec<u32> {
        let h_offsets = self.h_offsets();
        let mut entries = Vec::new();
        let (mut row, mut chunk) = (0, 0);
        for (n, length) in self.lengths.iter().enumerate() {
            let words = [n, row, row + length, h_offsets[n], chunk, 0].map(|x| x as u32);
            entries.push((usize::MAX - length, [words.to_vec(), vec![WHOLE, 0]].concat()));
            row += length;
            chunk += length.div_ceil(BT);
        }
        entries.sort();
        let mut list = vec![0; 16];
        list[0] = entries.len() as u32;
        list.extend(entries.into_iter().flat_map(|(_, words)| words));
        list
    }

    /// Arguments of the kernel, results filled with a pattern.
    pub(super) fn arguments(&self, compiled: Compiled) -> Run {
        let form = self.form;
        let (heads, seqs) = (form.heads, self.lengths.len());
        let mut run = Run::of(compiled);
        for (name, values, heads) in
            [("w", &self.w, heads), ("kg", &self.kg, heads / form.per_key_head), ("u", &self.u, heads)]
        {
            let (values, pitch) = spaced(&bits(values), heads * D, bits(&[f32::NAN])[0]);
            run.tensor(name, &values);
            set(&mut run, &format!("{name}_pitch"), pitch);
        }
        let width = if form.gate == Gate::Scalar { 1 } else { D };
        let (gate, pitch) = spaced(&self.gate, heads * width, f32::NAN);
        run.tensor("gate", &gate);
        set(&mut run, "gate_pitch", pitch);

        let kind = if form.narrow { "bf16" } else { "f32" };
        let slots = self.pool.len() / (heads * D * D);
        if form.initial {
            let pool: Vec<f32> = self.pool.chunks(D * D).flat_map(|s| turned(s, form.initial_k_first)).collect();
            let (pool, pitch) = spaced(&pool, heads * D * D, f32::NAN);
            let name = format!("initial_{kind}");
            if form.narrow {
                run.tensor(&name, &bits(&pool))
            } else {
                run.tensor(&name, &pool)
            };
            set(&mut run, &format!("pitch_in_{kind}"), pitch);
        }
        let (pattern, pitch) = spaced(&vec![f32::NAN; slots * heads * D * D], heads * D * D, f32::NAN);
        let name = format!("final_{kind}");
        if form.narrow {
            run.tensor(&name, &vec![CANARY; pattern.len()])
        } else {
            run.tensor(&name, &pattern)
        };
        set(&mut run, &format!("pitch_out_{kind}"), pitch);
        if form.slots {
            run.tensor("initial_slots", &self.reads).tensor("final_slots", &self.writes);
            run.tensor("has_initial", &self.has_initial);
        }
        if form.h {
            let chunks = self.h_offsets()[seqs] + 1;
            let (pattern, pitch) = spaced(&vec![CANARY; chunks * heads * D * D], heads * D * D, CANARY);
            run.tensor("h", &pattern);
            set(&mut run, "h_pitch", pitch);
        }
        if form.v_new {
            let (pattern, pitch) = spaced(&vec![CANARY; (self.used + 3) * heads * D], heads * D, CANARY);
            run.tensor("v_new", &pattern);
            set(&mut run, "v_pitch", pitch);
        }
        run.tensor("schedule", &self.schedule()).set("first_entry", 16u32).set("ctas", form.ctas);
        run.set("heads", heads as u32).set("per_key_head", form.per_key_head as u32).set("every", form.every as u32);
        run.set("slots_in", slots as u32).set("slots_out", slots as u32);
        run.set("null", if form.slots { NULL } else { -1 });
        if form.gate != Gate::Scalar {
            flag(&mut run, "decays", form.gate == Gate::Decays);
        }
        flag(&mut run, "initial_k_first", form.initial_k_first);
        flag(&mut run, "final_k_first", form.final_k_first);
        run
    }

    /// Compares what the kernel wrote with the recurrence in f64. Its errors are not above 2x those of the emulation, and
    /// whatever is not the result of a sequence is as it was.
    pub(super) fn compare(&self, run: &Run) {
        let form = self.form;
        let (exact, emulation) = (self.reference(|x| x, |x| x), self.emulation());
        if form.h {
            let (h, rest) = used(&run.read::<u16>("h"), form.heads * D * D, exact.h.len());
            let h: Vec<f64> = h.chunks(D * D).flat_map(|s| turned(s, !form.v_first)).map(wide).collect();
            close("h", &h, &emulation.h, &exact.h);
            assert!(rest.iter().all(|x| *x == CANARY), "`h` is written outside its chunks");
        }
        if form.v_new {
            let (v_new, rest) = used(&run.read::<u16>("v_new"), form.heads * D, exact.v_new.len());
            close("v_new", &v_new.into_iter().map(wide).collect::<Vec<_>>(), &emulation.v_new, &exact.v_new);
            assert!(rest.iter().all(|x| *x == CANARY), "`v_new` is written outside its rows");
        }
        let slots = self.pool.len() / (form.heads * D * D);
        let (got, rest) = if form.narrow {
            let (got, rest) = used(&run.read::<u16>("final_bf16"), form.heads * D * D, self.pool.len());
            (got.into_iter().map(wide).collect(), rest.into_iter().map(wide).collect::<Vec<f64>>())
        } else {
            let (got, rest) = used(&run.read::<f32>("final_f32"), form.heads * D * D, self.pool.len());
            (got.into_iter().map(f64::from).collect::<Vec<_>>(), rest.into_iter().map(f64::from).collect())
        };
        assert!(rest.iter().all(|x| x.is_nan()), "final states are written outside their slots");
        for slot in 0..slots {
            let of = |head: usize| &got[(slot * form.heads + head) * D * D..][..D * D];
            let Some(n) = self.writes.iter().position(|s| *s == slot as i32 && (!form.slots || *s > NULL)) else {
                assert!((0..form.heads).all(|head| of(head).iter().all(|x| x.is_nan())), "slot {slot} is written");
                continue;
            };
            for head in 0..form.heads {
                let got: Vec<f64> = turned(of(head), form.final_k_first);
                let i = n * form.heads + head;
                if self.lengths[n] == 0 {
                    assert_eq!(got, self.initial(n, head), "an empty sequence");
                } else {
                    close("final", &got, &emulation.last[i], &exact.last[i]);
                }
            }
        }
    }
}

/// Rows of `width` elements, each with a gap behind it; and their pitch.
fn spaced<T: Copy>(values: &[T], width: usize, gap: T) -> (Vec<T>, u64) {
    let rows = values.chunks(width).flat_map(|row| row.iter().copied().chain([gap; GAP]));
    (rows.collect(), (width + GAP) as u64)
}

/// The first `count` elements of such rows, and all others with the gaps.
pub(super) fn used<T: Copy>(values: &[T], width: usize, count: usize) -> (Vec<T>, Vec<T>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for row in values.chunks(width + GAP) {
        let part = if inside.len() < count { width } else { 0 };
        inside.extend_from_slice(&row[..part]);
        outside.extend_from_slice(&row[part..]);
    }
    (inside, outside)
}

/// A state `[K, V]` as it is, or transposed.
pub(super) fn turned<T: Copy>(state: &[T], as_it_is: bool) -> Vec<T> {
    let at = |i: usize| if as_it_is { i } else { i % D * D + i / D };
    (0..D * D).map(|i| state[at(i)]).collect()
}

fn wide(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// Sets a parameter, if the variant has it.
fn set<T: Plain>(run: &mut Run, name: &str, value: T) {
    if run.compiled.params.iter().any(|p| p.name == name) {
        run.set(name, value);
    }
}

fn flag(run: &mut Run, name: &str, value: bool) {
    set(run, name, u8::from(value));
}

pub(super) fn variant(form: Form) -> Compiled {
    variant_of(&KERNEL, form)
}

pub(super) fn variant_of(kernel: &str, form: Form) -> Compiled {
    let found = try_compile(kernel).unwrap_or_else(|errors| panic!("{}", errors[0].text()));
    let word = |name: &str, on: bool| format!("_{}{name}", if on { "" } else { "no" });
    let (order, scalar) = (word("v_first", form.v_first), word("scalar", form.gate == Gate::Scalar));
    let name = format!("__vs{}{order}{scalar}", form.vs);
    found.into_iter().find(|c| c.entry.ends_with(&name)).unwrap_or_else(|| panic!("no variant {name}"))
}
