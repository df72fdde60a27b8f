//! Verify of draft tokens on tensor cores, against the recurrence in f64.

use super::harness::{Random, Run};
use kda_codegen::check::protocol::Verdict;
use kda_sim::{Options, Schedule};

const KERNEL: &str = include_str!("tc_verify.rs.txt");
const D: usize = 128;
const HEADS: usize = 2;
const WINDOW: usize = 8;
const SLOTS: usize = 7;
const STATE_PITCH: usize = HEADS * D * D + 64;
const CONV_ROW: usize = 3 * HEADS * D;
const CONV_PITCH: usize = (WINDOW + 2) * CONV_ROW + 32;

/// Rounded to bf16, ties to even.
fn rounded(x: f64) -> u16 {
    let bits = (x as f32).to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn wide(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}

/// A launch: lengths and slots of requests, and the tensors.
struct Problem {
    softplus: bool,
    f32_taps: bool,
    lengths: Vec<usize>,
    slots: Vec<i32>,
    accepted: Vec<u32>,
    state: Vec<u16>,
    qkv: Vec<u16>,
    gate: Vec<u16>,
    beta: Vec<u16>,
    a_log: Vec<f32>,
    bias: Vec<f32>,
    taps: Vec<f32>,
    conv: Vec<u16>,
}

const LOWER_BOUND: f32 = -5.0;

impl Problem {
    fn new(lengths: &[usize], slots: &[i32], softplus: bool, f32_taps: bool, salt: u64) -> Problem {
        let mut random = Random::new(salt);
        let accepted = lengths.iter().map(|_| 1 + random.below(8)).collect();
        let mut uniform = |scale: f64| ((random.bits() >> 40) as f64 / (1u64 << 23) as f64 - 1.0) * scale;
        let total: usize = lengths.iter().sum();
        let mut tensor =
            |count: usize, scale: f64| -> Vec<u16> { (0..count).map(|_| rounded(uniform(scale))).collect() };
        let (state, qkv) = (tensor(SLOTS * STATE_PITCH, 1.0), tensor(total * CONV_ROW, 2.0));
        let (gate, beta) = (tensor(total * HEADS * D, 3.0), tensor(total * HEADS, 2.0));
        let (conv, taps) = (tensor(SLOTS * CONV_PITCH, 2.0), tensor(CONV_ROW * 4, 0.8));
        // All that bf16 holds, and what it does not.
        let taps = taps.iter().map(|x| wide(*x) as f32 * if f32_taps { 1.001 } else { 1.0 }).collect();
        Problem {
            softplus,
            f32_taps,
            lengths: lengths.to_vec(),
            slots: slots.to_vec(),
            accepted,
            state,
            qkv,
            gate,
            beta,
            a_log: (0..HEADS).map(|_| uniform(1.0) as f32).collect(),
            bias: (0..HEADS * D).map(|_| uniform(1.0) as f32).collect(),
            taps,
            conv,
        }
    }

    fn first(&self, request: usize) -> usize {
        self.lengths[..request].iter().sum()
    }

    /// Raw input of the conv: `row` counts from the first row of the history.
    fn raw(&self, request: usize, row: usize, at: usize) -> u16 {
        match row.checked_sub(3) {
            Some(t) => self.qkv[(self.first(request) + t) * CONV_ROW + at],
            None => {
                let row = row + self.accepted[request] as usize - 1;
                self.conv[self.slots[request] as usize * CONV_PITCH + row * CONV_ROW + at]
            }
        }
    }

    /// A channel of q, k or v behind conv and SiLU, and whether its rounding is nearly a tie.
    fn post(&self, request: usize, t: usize, at: usize) -> (u16, bool) {
        let mut sum = 0.0f32;
        for i in 0..4 {
            let (x, tap) = (wide(self.raw(request, t + i, at)) as f32, self.taps[4 * at + i]);
            sum = match (self.f32_taps, i) {
                (true, 0) => x * tap,
                (true, _) => x.mul_add(tap, sum),
                (false, _) => sum + wide(rounded((x * tap).into())) as f32,
            };
        }
        let y = f64::from(sum) / (1.0 + (-f64::from(sum)).exp());
        (rounded(y), rounded(y * (1.0 + 1e-6)) != rounded(y * (1.0 - 1e-6)))
    }

    fn run(&self, source: &str) -> Run {
        let mut run = Run::new(source);
        let (total, n) = (self.lengths.iter().sum::<usize>(), self.lengths.len());
        let shape = [SLOTS, HEADS * 8, 2, 8, D].map(|x| x as u64);
        run.map_strided("state", &self.state, &shape, &[STATE_PITCH as u64, 2048, 128, 256, 1]);
        run.tensor("qkv", &self.qkv).tensor("raw_g", &self.gate).tensor("raw_beta", &self.beta);
        run.tensor("a_log", &self.a_log).tensor("dt_bias", &self.bias).tensor("conv", &self.conv);
        match self.f32_taps {
            true => run.tensor("taps", &self.taps),
            false => run.tensor("taps", &self.taps.iter().map(|x| (x.to_bits() >> 16) as u16).collect::<Vec<_>>()),
        };
        let ends: Vec<u32> = (0..=n).map(|i| self.first(i) as u32).collect();
        run.tensor("slot_of", &self.slots).tensor("query_start", &ends).tensor("accepted", &self.accepted);
        run.tensor("corr", &vec![-7.0f32; n * HEADS * WINDOW * D])
            .tensor("kg", &vec![0xaaaau16; n * HEADS * WINDOW * 2 * D]);
        run.tensor("out", &vec![0xaaaau16; total * HEADS * D]);
        run.set("lower_bound", LOWER_BOUND).set("scale", (D as f32).sqrt().recip()).set("null_slot", 0i32);
        run.set("slots", SLOTS as u32).set("total", total as u32).set("n_req", n as u32).set("window", WINDOW as u32);
        run.set("state_pitch", STATE_PITCH as u64).set("conv_pitch", CONV_PITCH as u64);
        run
    }

    /// u and o of an item by the recurrence, token by token; and whether some rounding of its inputs is nearly a tie.
    fn recurrence(&self, request: usize, head: usize) -> (Vec<[f64; D]>, Vec<[f64; D]>, bool) {
        let at = self.slots[request] as usize * STATE_PITCH + head * D * D;
        let mut state: Vec<f64> = self.state[at..at + D * D].iter().map(|x| wide(*x)).collect();
        let (mut us, mut os, mut close) = (Vec::new(), Vec::new(), false);
        let rate = f64::from(self.a_log[head]).exp();
        for t in 0..self.lengths[request] {
            let token = self.first(request) + t;
            let mut part = |x: usize| -> Vec<f64> {
                let each = (0..D).map(|c| self.post(request, t, x * HEADS * D + head * D + c));
                each.map(|(y, tie)| (wide(y), close |= tie).0).collect()
            };
            let (mut q, mut k, v) = (part(0), part(1), part(2));
            for (x, scale) in [(&mut q, (D as f64).sqrt().recip()), (&mut k, 1.0)] {
                let norm = scale / (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.iter_mut().for_each(|x| *x *= norm);
            }
            let beta = 1.0 / (1.0 + (-wide(self.beta[token * HEADS + head])).exp());
            for c in 0..D {
                let z = wide(self.gate[(token * HEADS + head) * D + c]) + f64::from(self.bias[head * D + c]);
                let log = match self.softplus {
                    true => -rate * z.exp().ln_1p(),
                    false => f64::from(LOWER_BOUND) / (1.0 + (-rate * z).exp()),
                };
                (0..D).for_each(|row| state[row * D + c] *= log.exp());
            }
            let (mut u, mut o) = ([0.0; D], [0.0; D]);
            for row in 0..D {
                let line = &mut state[row * D..(row + 1) * D];
                u[row] = beta * (v[row] - line.iter().zip(&k).map(|(s, k)| s * k).sum::<f64>());
                line.iter_mut().zip(&k).for_each(|(s, k)| *s += u[row] * k);
                o[row] = line.iter().zip(&q).map(|(s, q)| s * q).sum();
            }
            us.push(u);
            os.push(o);
        }
        (us, os, close)
    }

    fn check(&self, run: &Run) {
        let (corr, kg) = (run.read::<f32>("corr"), run.read::<u16>("kg"));
        let (out, conv) = (run.read::<u16>("out"), run.read::<u16>("conv"));
        assert_eq!(run.read::<u16>("state"), self.state);
        let mut rolled = self.conv.clone();
        for (request, (length, slot)) in self.lengths.iter().zip(&self.slots).enumerate() {
            let live = *slot > 0;
            for row in (0..length + 2).filter(|_| live && *length > 0) {
                let to = *slot as usize * CONV_PITCH + row * CONV_ROW;
                (0..CONV_ROW).for_each(|at| rolled[to + at] = self.raw(request, row + 1, at));
            }
            for head in 0..HEADS {
                let (us, os, close) = if live { self.recurrence(request, head) } else { Default::default() };
                let largest = |rows: &[[f64; D]]| rows.iter().flatten().fold(0.0f64, |a, b| a.max(b.abs()));
                let loose = if close { 2e-2 } else { 2e-5 };
                let (u_most, o_most) = (loose * largest(&us), loose * largest(&os));
                for t in 0..WINDOW {
                    let record = (request * HEADS + head) * WINDOW + t;
                    let token = (self.first(request) + t) * HEADS + head;
                    for c in 0..D {
                        let place = format!("request {request}, head {head}, token {t}, channel {c}");
                        let (u, k, g) = (corr[record * D + c], kg[record * 2 * D + c], kg[(record * 2 + 1) * D + c]);
                        if t >= *length || !live {
                            assert_eq!((u, k, g), (-7.0, 0xaaaa, 0xaaaa), "{place}");
                            if t < *length {
                                assert_eq!(out[token * D + c], 0, "{place}");
                            }
                            continue;
                        }
                        assert_eq!(g, self.gate[token * D + c], "{place}");
                        let (wanted, tie) = self.post(request, t, HEADS * D + head * D + c);
                        assert!(k == wanted || tie && k.abs_diff(wanted) == 1, "{place}: k {k:x} {wanted:x}");
                        let error = (f64::from(u) - us[t][c]).abs();
                        assert!(error <= u_most, "{place}: u {u}, {} expected, at most {u_most} off", us[t][c]);
                        // A bf16 and half of what the next one is away.
                        let (o, wanted) = (wide(out[token * D + c]), os[t][c]);
                        let most = o_most + wanted.abs() / 256.0;
                        assert!((o - wanted).abs() <= most, "{place}: o {o}, {wanted} expected, at most {most} off");
                    }
                }
            }
        }
        assert_eq!(conv, rolled);
    }
}

/// The kernel with only the variant of this gate and these taps.
fn variant(softplus: bool, f32_taps: bool, pdl: bool) -> String {
    let all = "[(false, bf16, 4), (true, bf16, 4), (false, f32, 4), (true, f32, 3)]";
    let ctas = if softplus && f32_taps { 3 } else { 4 };
    let one = format!("[({softplus}, {}, {ctas})]", if f32_taps { "f32" } else { "bf16" });
    assert!(KERNEL.contains(all));
    KERNEL.replace(all, &one).replace("PDL in [false, true]", &format!("PDL in [{pdl}]"))
}

/// Lengths from 0 to 8, a null slot, histories of every age; drawn items and the fixed order, more and fewer CTAs than items.
fn check(softplus: bool, f32_taps: bool, pdl: bool) {
    let source = variant(softplus, f32_taps, pdl);
    let problem = Problem::new(&[8, 3, 0, 5, 1, 8], &[3, 1, 2, 0, 6, 5], softplus, f32_taps, 1);
    for (ctas, counted) in [(2, true), (6, false), (16, true)] {
        let mut run = problem.run(&source);
        run.assemble();
        assert_eq!(run.compiled.protocol, Verdict::Proved);
        run.set("ctas", ctas);
        if counted {
            run.tensor("counter", &[0u32; HEADS]);
        }
        match ctas {
            2 => run.launch_everywhere(ctas),
            _ => run.launch(ctas),
        };
        problem.check(&run);
        if counted {
            assert_eq!(run.read::<u32>("counter"), [0; HEADS]);
        }
    }
}

/// What the source writes between two products stands between them.
#[test]
fn the_solve_is_under_the_products() {
    let run = Run::new(&variant(false, false, false));
    let pieces: Vec<&str> = run.compiled.ptx.split("wgmma.mma_async").collect();
    assert_eq!(pieces.len(), 17, "8 steps of two blocks of 64 rows");
    let between = |what: &str| pieces[1..16].iter().map(|piece| piece.matches(what).count()).collect::<Vec<_>>();
    // Loads behind the first step, norms behind the third, two columns of the inverse behind each of the next.
    assert_eq!(between("ld.shared"), [0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(between("shfl.sync"), [0, 0, 0, 0, 0, 5, 0, 6, 0, 6, 0, 6, 0, 3, 0]);
    assert_eq!(run.compiled.ptx.matches("wgmma.fence").count(), 1);
}

/// The derived fence and every barrier of an item are needed.
#[test]
fn nothing_is_fenced_in_vain() {
    let problem = Problem::new(&[8, 3], &[3, 1], false, false, 2);
    let lines = |run: &Run, what: &str| -> Vec<usize> {
        run.compiled.ptx.lines().enumerate().filter(|(_, line)| line.contains(what)).map(|(at, _)| at).collect()
    };
    let mut removed = 0;
    for (what, which) in [("fence.proxy.async", 0), ("bar.sync", 1), ("bar.sync", 2), ("bar.warp.sync", 0)] {
        let mut run = problem.run(&variant(false, false, false));
        let at = lines(&run, what)[which];
        let kept: Vec<&str> =
            run.compiled.ptx.lines().enumerate().filter(|(i, _)| *i != at).map(|(_, line)| line).collect();
        run.compiled.ptx = kept.join("\n");
        run.set("ctas", 2u32).tensor("counter", &[0u32; HEADS]);
        let caught = Schedule::ALL
            .iter()
            .any(|schedule| run.try_launch(2, &Options { schedule: *schedule, ..Options::default() }).is_err());
        assert!(caught, "{what} {which}");
        removed += 1;
    }
    assert_eq!(removed, 4);
}

#[test]
fn bounded_gate() {
    check(false, false, false);
    check(false, false, true);
}

#[test]
fn softplus_gate() {
    check(true, false, false);
    check(true, true, true);
}

#[test]
fn taps_of_f32() {
    check(false, true, false);
}
