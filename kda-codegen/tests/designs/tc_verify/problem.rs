//! A problem of the verify: random inputs in padded tensors, arguments of both kernels, and the comparison.

use super::super::harness::{Plain, Random, Run};
use super::reference::{rounded, wide};
use super::strided::Strided;
use kda_codegen::compiled::Compiled;
use kda_codegen::{signature, specialise, syntax, variants};

pub(super) const DRAFT: &str = include_str!("../../../../kda-kernels/src/device/draft.rs");
pub(super) const SOLVE: &str = include_str!("../../../../kda-kernels/src/device/solve.rs");
pub(super) const HOPPER: &str = include_str!("../../../../kda-kernels/src/families/tc_verify/hopper.rs");
pub(super) const PORTABLE: &str = include_str!("../../../../kda-kernels/src/families/tc_verify/portable.rs");

pub(super) const D: usize = 128;
pub(super) const SLOTS: usize = 10;
pub(super) const CANARY: u16 = 0xaaaa;
pub(super) const LOWER_BOUND: f32 = -5.0;
/// Bits of a bf16 that is no number.
const NAN: u16 = 0x7fff;

/// Where q, k and v come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Conv {
    /// They are given.
    None,
    /// A convolution with a history of [rows, 3, heads, K].
    TokenMajor,
    /// … of [3, heads, K, rows].
    ChannelMajor,
}

/// Which kernel runs, and on what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    /// The kernel for Hopper: heads that it knows (0: any), whether raw inputs come in boxes, whether it reads ahead of the wait,
    /// CTAs, and whether it draws.
    Hopper { known: u32, boxes: bool, early: bool, ctas: u32, counted: bool },
    /// The portable one: tokens of its tiles, and whether its states are f32.
    Portable { tokens: u32, wide: bool },
}

/// What a problem has, and how its tensors lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) kernel: Kernel,
    pub(super) heads: usize,
    /// Heads that share one of q and k.
    pub(super) per_key_head: usize,
    pub(super) window: usize,
    pub(super) conv: Conv,
    pub(super) f32_taps: bool,
    pub(super) softplus: bool,
    /// Gaps between rows of all tensors that may have them.
    pub(super) padded: bool,
    pub(super) null: i32,
}

pub(super) const HOPPER_PLAIN: Form = Form {
    kernel: Kernel::Hopper { known: 0, boxes: true, early: false, ctas: 4, counted: true },
    heads: 2,
    per_key_head: 1,
    window: 8,
    conv: Conv::TokenMajor,
    f32_taps: false,
    softplus: false,
    padded: true,
    null: 0,
};
/// Raw inputs loaded by threads.
pub(super) const THREADS: Form =
    Form { kernel: Kernel::Hopper { known: 0, boxes: false, early: false, ctas: 4, counted: true }, ..HOPPER_PLAIN };
pub(super) const PORTABLE_PLAIN: Form = Form { kernel: Kernel::Portable { tokens: 8, wide: false }, ..HOPPER_PLAIN };

/// The variant of a form, of the sources as `change` leaves them.
pub(super) fn variant_of(form: Form, change: impl Fn(&str) -> String) -> Compiled {
    let word = |name: &str, on: bool| format!("_{}{name}", if on { "" } else { "no" });
    let taps = if form.f32_taps { "_f32" } else { "_bf16" };
    let conv = word("conv", form.conv != Conv::None) + &word("channel_major", form.conv == Conv::ChannelMajor);
    let (text, name) = match form.kernel {
        Kernel::Hopper { known, boxes, early, .. } => {
            let how = word("boxes", boxes) + &word("early", early) + &word("softplus", form.softplus);
            (HOPPER, format!("__heads{known}{conv}{taps}{how}"))
        }
        Kernel::Portable { tokens, wide } => {
            let state = if wide { "_f32" } else { "_bf16" };
            (PORTABLE, format!("__tokens{tokens}{conv}{taps}{}{state}", word("softplus", form.softplus)))
        }
    };
    // In one text the contracts of files are comments.
    let source = [DRAFT, SOLVE, text].map(|text| change(text).replace("//!", "//")).concat();
    let family = syntax::parse_family(&source).unwrap_or_else(|errors| panic!("{}", errors[0].text()));
    let kernel = &family.kernels[0];
    let all = variants::expand(&family, kernel).unwrap_or_else(|errors| panic!("{}", errors[0].text()));
    let variant = all.iter().find(|v| v.entry.ends_with(&name)).unwrap_or_else(|| panic!("no variant {name}"));
    let resolved = signature::resolve(&family, kernel, variant).unwrap_or_else(|errors| panic!("{}", errors[0].text()));
    let compiled = specialise::compile_variant(&family, kernel, variant, &resolved);
    compiled.unwrap_or_else(|error| panic!("{}", error.text()))
}

pub(super) fn variant(form: Form) -> Compiled {
    variant_of(form, str::to_owned)
}

/// A launch: metadata and tensors. States are numbers of bf16 if the kernel's are.
#[derive(Clone)]
pub(super) struct Problem {
    pub(super) form: Form,
    pub(super) salt: u64,
    pub(super) starts: Vec<i32>,
    pub(super) slots: Vec<i32>,
    pub(super) accepted: Vec<i32>,
    pub(super) total: usize,
    pub(super) state: Strided<f32>,
    pub(super) qkv: Strided<u16>,
    pub(super) gate: Strided<u16>,
    pub(super) beta: Strided<u16>,
    pub(super) a_log: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) taps: Vec<f32>,
    pub(super) conv: Strided<u16>,
}

impl Problem {
    /// Requests of these offsets; each has a slot of its own as far as they go, and a history of any age.
    pub(super) fn new(starts: &[i32], slots: &[i32], form: Form, salt: u64) -> Problem {
        let mut random = Random::new(salt);
        let accepted = slots.iter().map(|_| 1 + random.below(form.window as u32) as i32).collect();
        let mut uniform = |scale: f64| ((random.bits() >> 40) as f64 / (1u64 << 23) as f64 - 1.0) * scale;
        let total = starts.iter().copied().filter(|end| *end < 1000).max().unwrap_or(0) as usize;
        // Rows of boxes lie at multiples of 16 bytes.
        let multiple = if matches!(form.kernel, Kernel::Hopper { boxes: true, .. }) { 8 } else { 1 };
        let (heads, pad) = (form.heads, |gap: usize| if form.padded { gap.next_multiple_of(multiple) } else { 0 });
        let mut tensor = |shape: &[usize], gaps: &[usize], scale: f64| {
            let mut tensor = Strided::new(shape, gaps, NAN);
            tensor.fill(|| rounded(uniform(scale)));
            tensor
        };
        let qkv = tensor(&[total, heads + 2 * heads / form.per_key_head, D], &[pad(6), 0, 0], 2.0);
        let gate = tensor(&[total, heads, D], &[pad(2), 0, 0], 3.0);
        let beta = tensor(&[total, heads], &[pad(1), 0], 2.0);
        let rows = form.window + 2;
        let conv = match form.conv {
            Conv::ChannelMajor => tensor(&[SLOTS, 3, heads, D, rows], &[pad(3), pad(5), pad(1), pad(1), 0], 2.0),
            _ => tensor(&[SLOTS, rows, 3, heads, D], &[pad(32), pad(8), pad(4), pad(2), 0], 2.0),
        };
        let wide_states = matches!(form.kernel, Kernel::Portable { wide: true, .. });
        let mut state = Strided::new(&[SLOTS, heads, D, D], &[pad(64), 0, 0, 0], f32::NAN);
        state.fill(|| if wide_states { uniform(1.0) as f32 } else { wide(rounded(uniform(1.0))) as f32 });
        // All that bf16 holds, and what it does not.
        let off = if form.f32_taps { 1.001 } else { 1.0 };
        let taps = (0..3 * heads * D * 4).map(|_| wide(rounded(uniform(0.8))) as f32 * off).collect();
        let a_log = (0..heads).map(|_| uniform(1.0) as f32).collect();
        let bias = (0..heads * D).map(|_| uniform(1.0) as f32).collect();
        let (starts, slots) = (starts.to_vec(), slots.to_vec());
        let mut problem =
            Problem { form, salt, starts, slots, accepted, total, state, qkv, gate, beta, a_log, bias, taps, conv };
        problem.settle();
        problem
    }

    /// Gives tokens other raw inputs until no q, k or v is nearly a tie of its rounding: an approximation may round those
    /// otherwise.
    pub(super) fn settle(&mut self) {
        let mut random = Random::new(self.salt);
        loop {
            let mut ties = Vec::new();
            for request in (0..self.slots.len()).filter(|request| self.is_live(*request)) {
                let (begin, length) = self.span(request);
                let all = (0..length).flat_map(|t| (0..3 * D * self.form.heads).map(move |i| (t, i)));
                let all = all.map(|(t, i)| [t, i / D / self.form.heads, i / D % self.form.heads, i % D]);
                ties.extend(
                    all.filter(|[t, x, head, c]| self.post(request, *t, *x, *head, *c).1)
                        .map(|[t, x, head, c]| [begin + t, self.head_of(x, head), c]),
                );
            }
            if ties.is_empty() {
                return;
            }
            for index in ties {
                *self.qkv.at_mut(&index) = rounded(f64::from(random.below(1 << 20)) / f64::from(1 << 18) - 2.0);
            }
        }
    }

    /// The results as they lie before the launch: corr, kg and out.
    fn results(&self) -> (Strided<f32>, Strided<u16>, Strided<u16>) {
        let Form { heads, window, padded, .. } = self.form;
        let (n, pad) = (self.slots.len(), |gap: usize| if padded { gap } else { 0 });
        let corr = Strided::new(&[n, heads, window, D], &[pad(10), pad(2), 0, 0], -7.0);
        let kg = Strided::new(&[n, heads, window, 2, D], &[pad(6), pad(2), 0, 0, 0], CANARY);
        (corr, kg, Strided::new(&[self.total, heads, D], &[pad(2), 0, 0], CANARY))
    }

    /// Arguments of the kernel.
    pub(super) fn arguments(&self, compiled: Compiled) -> Run {
        let Form { heads, window, .. } = self.form;
        let mut run = Run::of(compiled);
        let n = self.slots.len();
        match self.form.kernel {
            Kernel::Hopper { ctas, counted, .. } => {
                let shape = [SLOTS, heads * 8, 2, 8, D].map(|x| x as u64);
                let strides = [self.state.strides[0] as u64, 2048, 128, 256, 1];
                run.map_strided("state", &high_halves(&self.state.memory), &shape, &strides);
                run.set("ctas", ctas);
                if counted {
                    run.tensor("counter", &vec![0u32; heads]);
                }
            }
            Kernel::Portable { wide: true, .. } => _ = run.tensor("state", &self.state.memory),
            Kernel::Portable { wide: false, .. } => _ = run.tensor("state", &high_halves(&self.state.memory)),
        }
        let (corr, kg, out) = self.results();
        run.tensor("qkv", &self.qkv.memory).tensor("raw_g", &self.gate.memory).tensor("raw_beta", &self.beta.memory);
        run.tensor("a_log", &self.a_log).tensor("dt_bias", &self.bias);
        run.tensor("slot_of", &self.slots).tensor("query_start", &self.starts);
        run.tensor("corr", &corr.memory).tensor("kg", &kg.memory).tensor("out", &out.memory);
        if self.form.conv != Conv::None {
            run.tensor("conv", &self.conv.memory).tensor("accepted", &self.accepted);
            match self.form.f32_taps {
                true => run.tensor("taps", &self.taps),
                false => run.tensor("taps", &high_halves(&self.taps)),
            };
        }
        if let Kernel::Hopper { boxes: true, .. } = self.form.kernel {
            self.boxes(&mut run);
        }
        run.set("lower_bound", LOWER_BOUND).set("scale", (D as f32).sqrt().recip()).set("null", self.form.null);
        for (name, size) in [("heads", heads), ("window", window), ("slots", SLOTS), ("n_req", n), ("rows", n)] {
            set(&mut run, name, size as u32);
        }
        for (name, size) in [("total", self.total), ("blocks", 8 * heads), ("lines", SLOTS), ("histories", n)] {
            set(&mut run, name, size as u32);
        }
        set(&mut run, "tap_rows", 3 * heads as u32);
        set(&mut run, "conv_rows", window as u32 + 2);
        set(&mut run, "per_key_head", self.form.per_key_head as u32);
        let conv = |axes: [usize; 5]| axes.map(|axis| self.conv.strides[axis]);
        let conv = if self.form.conv == Conv::ChannelMajor { conv([0, 4, 1, 2, 3]) } else { conv([0, 1, 2, 3, 4]) };
        let pitches = [
            ("state_pitch", self.state.strides[0]),
            ("qkv_pitch", self.qkv.strides[0]),
            ("qkv_part", heads / self.form.per_key_head * D),
            ("g_pitch", self.gate.strides[0]),
            ("beta_pitch", self.beta.strides[0]),
            ("out_pitch", out.strides[0]),
            ("corr_row", corr.strides[0]),
            ("corr_head", corr.strides[1]),
            ("kg_row", kg.strides[0]),
            ("kg_head", kg.strides[1]),
            ("conv_pitch", conv[0]),
            ("conv_row", conv[1]),
            ("conv_part", conv[2]),
            ("conv_head", conv[3]),
            ("conv_channel", conv[4]),
        ];
        for (name, pitch) in pitches {
            set(&mut run, name, pitch as u64);
        }
        run
    }

    /// The tensor maps of raw inputs and of the history, which are of the memory of these.
    fn boxes(&self, run: &mut Run) {
        let Form { heads, window, .. } = self.form;
        let wide = |axes: &[usize]| axes.iter().map(|axis| *axis as u64).collect::<Vec<u64>>();
        let qkv = [self.qkv.strides[0], heads * D, D, 1];
        run.map_of("tokens", "qkv", &wide(&[self.total, 3, heads, D]), &wide(&qkv));
        run.map_of("gates", "raw_g", &wide(&[self.total, heads, D]), &wide(&self.gate.strides));
        if self.form.conv != Conv::None {
            for name in ["past", "rolled", "rolled_row"] {
                run.map_of(name, "conv", &wide(&[SLOTS, window + 2, 3, heads, D]), &wide(&self.conv.strides));
            }
        }
    }

    /// CTAs of the launch.
    pub(super) fn grid(&self) -> u32 {
        match self.form.kernel {
            Kernel::Hopper { ctas, .. } => ctas,
            Kernel::Portable { .. } => (self.form.heads * self.slots.len()) as u32,
        }
    }

    /// Compares what the kernel wrote with the recurrence: u within 2e-5 of the largest of its item, out within a bf16 and that
    /// much, copies bit for bit. All other memory is as it was. Gives the largest error of u, as a part of the largest u.
    pub(super) fn compare(&self, run: &Run) -> f64 {
        let Form { heads, kernel, conv, .. } = self.form;
        let (mut corr, mut kg, mut out) = self.results();
        let mut rolled = self.conv.memory.clone();
        let (got_u, got_kg) = (run.read::<f32>("corr"), run.read::<u16>("kg"));
        let got_out = run.read::<u16>("out");
        let mut worst = 0.0f64;
        for request in 0..self.slots.len() {
            let ((begin, length), live) = (self.span(request), self.is_live(request));
            for head in 0..heads {
                if !live {
                    (0..length * D).for_each(|i| *out.at_mut(&[begin + i / D, head, i % D]) = 0);
                    continue;
                }
                let (us, os) = self.recurrence(request, head);
                let largest = |rows: &[[f64; D]]| rows.iter().flatten().fold(0.0f64, |a, b| a.max(b.abs()));
                let (u_largest, o_most) = (largest(&us), 2e-5 * largest(&os));
                for (t, c) in (0..length * D).map(|i| (i / D, i % D)) {
                    let place = format!("request {request}, head {head}, token {t}, channel {c}");
                    *kg.at_mut(&[request, head, t, 1, c]) = self.gate.at(&[begin + t, head, c]);
                    *kg.at_mut(&[request, head, t, 0, c]) = self.post(request, t, 1, head, c).0;
                    let at = corr.place(&[request, head, t, c]);
                    let (u, wanted) = (got_u[at], us[t][c]);
                    let error = (f64::from(u) - wanted).abs();
                    assert!(error <= 2e-5 * u_largest, "{place}: u {u}, {wanted} expected, of {u_largest} at most");
                    worst = worst.max(error / u_largest);
                    corr.memory[at] = u;
                    // A bf16 and half of what the next one is away.
                    let at = out.place(&[begin + t, head, c]);
                    let (o, wanted) = (wide(got_out[at]), os[t][c]);
                    let most = o_most + wanted.abs() / 256.0;
                    assert!((o - wanted).abs() <= most, "{place}: o {o}, {wanted} expected, at most {most} off");
                    out.memory[at] = got_out[at];
                }
                for (row, i) in
                    (0..if length > 0 { length + 2 } else { 0 }).flat_map(|row| (0..3 * D).map(move |i| (row, i)))
                {
                    let to = self.history(self.slots[request] as usize, row, i / D, head, i % D);
                    rolled[to] = self.raw(request, row + 1, i / D, head, i % D);
                }
            }
        }
        assert!(got_u == corr.memory, "`corr` is written where there is no token");
        assert!(got_kg == kg.memory, "`kg` is no copy of keys and gates, or is written where there is no token");
        assert!(got_out == out.memory, "`out` is not as defined where there is no token");
        if conv != Conv::None {
            assert!(run.read::<u16>("conv") == rolled, "the history is not rolled as it should be");
        }
        match kernel {
            Kernel::Portable { wide: true, .. } => {
                let bits = |state: &[f32]| -> Vec<u32> { state.iter().map(|x| x.to_bits()).collect() };
                assert!(bits(&run.read::<f32>("state")) == bits(&self.state.memory), "the state is written");
            }
            _ => assert!(run.read::<u16>("state") == high_halves(&self.state.memory), "the state is written"),
        }
        if let Kernel::Hopper { counted: true, .. } = kernel {
            assert_eq!(run.read::<u32>("counter"), vec![0; heads]);
        }
        worst
    }
}

fn high_halves(values: &[f32]) -> Vec<u16> {
    values.iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

/// Sets a parameter, if the variant has it.
fn set<T: Plain>(run: &mut Run, name: &str, value: T) {
    if run.compiled.params.iter().any(|p| p.name == name) {
        run.set(name, value);
    }
}
