//! The state recurrence of chunked delta attention, warp-specialised, as `delta_h.rs.txt` has it: without raw mbarriers and
//! without PTX. Inputs are random; results are compared with the recurrence in f64, and the error allowed is that of an
//! emulation which rounds where the kernel rounds.
//!
//! What the design needs, and how it is spelled:
//!
//! | need | spelling |
//! | --- | --- |
//! | S transposed, rounded, as A of both products, from registers | `Acc::<f32, VS, KD>`, `s.as_a::<bf16>()`, `-s.as_a::<bf16>()` |
//! | slices of 32 rows, half of M idle | `Acc::<f32, 32, KD>`: the other warps take no part in loads and stores |
//! | u as the initial accumulator, transposed | `x = Acc::load_t(slot.u)`, written in place |
//! | B along and across K | `slot.w`, `slot.kg.columns(a..b).t()` |
//! | one half of S in flight while the other is rounded | `s.columns(a..b)`, `wgmma::commit()`, `wgmma::wait::<1>()` |
//! | rounded S stored while a product reads it | `s.as_a::<bf16>().store_t(out.h)`: the same registers |
//! | a factor for each column | `s = s.map(\|_, k, e\| e * slot.decay[[k]])`: in place, two factors a load |
//! | rings of several sides; the gate row has a ring of its own, so that `gate` waits for nothing else | `Pipeline::<load, gate>`, `Pipeline::<(load, gate), math>` |
//! | stages as constants in the loop over chunks, from item to item | `ring.restart()`, `#[unroll(wu, keys, outs)]` |
//! | several stages held, given at different times, round the loop | `wu_slot = next.wait()`, `key_slot.release()` |
//! | early tries of a wait | `let next = wu.peek();` … `next.wait()` |
//! | slots that are partly filled | `tma_load_if(c + 1 < chunks, …)`, `if c < chunks { tma::store(…) }` |
//! | one slot more than there are chunks | `for c in 0..chunks + 1`: understood to run once more |
//! | the proxy fence in the storing role | derived, behind its wait |
//! | rows of a tail: zeroed in shared memory, masked, stored one by one | stores to a stage that is held, `role_sync()` in an `if`, `x.map`, `v_rows` |
//! | sequences longest first, made by each CTA | a list in shared memory, of which the trips of all roles are functions |
//! | w and kg loaded once by two CTAs | `cluster = 2`, `tma_multicast` |
//! | cache policy of results, prefetch of the state | `h.hint(l2::evict_first())`, `l2::prefetch` |
//!
//! What remains awkward:
//!
//! - `v_new` is two parameters of the same memory: tensor map and pointer. Nothing checks that they agree.
//! - Every role walks over the items and restarts its rings for itself; there is no word for a persistent loop.
//! - The list of sequences stands in the kernel: a device function has no shared memory of its own.
//! - The loop is rotated by hand, so each product stands there two or three times. Ahead of the loop S is decayed behind the
//!   wait, not in the shadow of the product: `ptxas` would put a wait there.
//! - S is multiplied in the same halves everywhere, also where nothing is gained by it: with parts of different widths `ptxas`
//!   runs products one after another. Nothing in the source says so.
//! - That `u` and the parts of `outs` are read where they were filled is the author's matter.

use super::harness::{Random, Run, try_compile};
use kda_codegen::check::protocol::Verdict;
use kda_codegen::compiled::Compiled;
use kda_sim::{Options, Schedule};

const KERNEL: &str = include_str!("delta_h.rs.txt");
pub(super) const BT: usize = 64;
pub(super) const D: usize = 128;

/// A problem: packed sequences, their tensors, and where nothing may be read or written.
struct Problem {
    lengths: Vec<usize>,
    heads: usize,
    /// Rows of all sequences.
    used: usize,
    /// Rows of the tensors: those behind the last sequence are NaN.
    rows: usize,
    w: Vec<f32>,
    kg: Vec<f32>,
    u: Vec<f32>,
    gk: Vec<f32>,
    h0: Option<Vec<f32>>,
}

/// What the kernel writes, in some precision.
struct Results {
    h: Vec<f64>,
    v_new: Vec<f64>,
    ht: Vec<f64>,
}

/// Rounded to bf16, ties to even.
pub(super) fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

pub(super) fn bits(values: &[f32]) -> Vec<u16> {
    values.iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

impl Problem {
    fn new(lengths: &[usize], heads: usize, with_h0: bool, salt: u64) -> Problem {
        let mut random = Random::new(salt);
        let mut uniform = |scale: f32| (random.bits() >> 40) as f32 / (1u64 << 23) as f32 * scale - scale;
        let used: usize = lengths.iter().sum();
        let rows = used + 3;
        let mut tensor = |scale: f32| -> Vec<f32> {
            let value = |i: usize| if i < used * heads * D { bf16(uniform(scale)) } else { f32::NAN };
            (0..rows * heads * D).map(value).collect()
        };
        let (w, kg, u) = (tensor(0.2), tensor(0.2), tensor(1.0));
        // Of the gate only the last row of a chunk is read.
        let mut gk = vec![f32::NAN; rows * heads * D];
        let mut start = 0;
        for length in lengths {
            for chunk in (0..*length).step_by(BT) {
                let row = start + (chunk + BT).min(*length) - 1;
                gk[row * heads * D..(row + 1) * heads * D].fill_with(|| uniform(1.0) - 1.0);
            }
            start += length;
        }
        let h0 = with_h0.then(|| (0..lengths.len() * heads * D * D).map(|_| uniform(1.0)).collect());
        Problem { lengths: lengths.to_vec(), heads, used, rows, w, kg, u, gk, h0 }
    }

    fn chunks(&self) -> usize {
        self.lengths.iter().map(|n| n.div_ceil(BT)).sum()
    }

    /// The recurrence as it is defined: `round` is what is kept of h and of v_new, `work` what is kept of each other result.
    fn reference(&self, round: impl Fn(f64) -> f64, work: impl Fn(f64) -> f64) -> Results {
        let (heads, w) = (self.heads, |tensor: &[f32], row: usize, head: usize, i: usize| {
            f64::from(tensor[(row * self.heads + head) * D + i])
        });
        let mut h = vec![0.0; self.chunks() * heads * D * D];
        let mut v_new = vec![0.0; self.used * heads * D];
        let mut ht = Vec::new();
        let (mut start, mut chunk0) = (0, 0);
        for (n, length) in self.lengths.iter().enumerate() {
            for head in 0..heads {
                let from = (n * heads + head) * D * D;
                let mut s: Vec<f64> = match &self.h0 {
                    Some(h0) => h0[from..from + D * D].iter().map(|x| f64::from(*x)).collect(),
                    None => vec![0.0; D * D],
                };
                for chunk in 0..length.div_ceil(BT) {
                    let rows = start + chunk * BT..start + (chunk * BT + BT).min(*length);
                    let rounded: Vec<f64> = s.iter().map(|x| round(*x)).collect();
                    let to = ((chunk0 + chunk) * heads + head) * D * D;
                    h[to..to + D * D].copy_from_slice(&rounded);
                    for row in rows.clone() {
                        for v in 0..D {
                            let dot =
                                (0..D).fold(0.0, |sum, k| work(sum + w(&self.w, row, head, k) * rounded[k * D + v]));
                            v_new[(row * heads + head) * D + v] = round(work(w(&self.u, row, head, v) - dot));
                        }
                    }
                    for k in 0..D {
                        let decay = work(w(&self.gk, rows.end - 1, head, k).exp2());
                        for v in 0..D {
                            let at = &mut s[k * D + v];
                            *at = rows.clone().fold(work(*at * decay), |sum, row| {
                                work(sum + w(&self.kg, row, head, k) * v_new[(row * heads + head) * D + v])
                            });
                        }
                    }
                }
                ht.extend(s);
            }
            start += length;
            chunk0 += length.div_ceil(BT);
        }
        Results { h, v_new, ht }
    }

    /// What rounding as the kernel rounds gives, in f32.
    fn emulation(&self) -> Results {
        self.reference(|x| f64::from(bf16(x as f32)), |x| f64::from(x as f32))
    }

    /// Arguments of the kernel, results filled with a pattern.
    fn arguments(&self, compiled: Compiled, ctas: u32, with_ht: bool) -> Run {
        let (rows, heads, seqs) = (self.rows as u64, self.heads as u64, self.lengths.len());
        let mut cu = vec![0u32];
        for length in &self.lengths {
            cu.push(cu[cu.len() - 1] + *length as u32);
        }
        let capacity = self.chunks() + 1;
        let mut run = Run::of(compiled);
        let shape = [rows, heads, D as u64];
        run.map("w", &bits(&self.w), &shape).map("kg", &bits(&self.kg), &shape).map("u", &bits(&self.u), &shape);
        run.map("v_new", &vec![CANARY; self.rows * self.heads * D], &shape).same("v_rows", "v_new");
        run.map("h", &vec![CANARY; capacity * self.heads * D * D], &[capacity as u64, heads, D as u64, D as u64]);
        run.tensor("gk", &self.gk).tensor("cu", &cu);
        if let Some(h0) = &self.h0 {
            run.tensor("h0", h0);
        }
        if with_ht {
            run.tensor("ht", &vec![f32::NAN; seqs * self.heads * D * D]);
        }
        let pitch = heads * D as u64;
        run.set("h0_stride0", pitch * D as u64).set("ht_stride0", pitch * D as u64);
        run.set("gk_pitch", pitch).set("v_pitch", pitch);
        run.set("heads", self.heads as u32).set("seqs", seqs as u32).set("ctas", ctas);
        run
    }

    /// Compares what the kernel wrote with the recurrence in f64. Its errors are not above `2x` those of the emulation.
    fn compare(&self, run: &Run, with_ht: bool) {
        let (exact, emulation) = (self.reference(|x| x, |x| x), self.emulation());
        let of_bits = |name: &str| -> Vec<f64> {
            run.read::<u16>(name).iter().map(|x| f64::from(f32::from_bits(u32::from(*x) << 16))).collect()
        };
        let (h, v_new) = (of_bits("h"), of_bits("v_new"));
        close("h", &h[..exact.h.len()], &emulation.h, &exact.h);
        close("v_new", &v_new[..exact.v_new.len()], &emulation.v_new, &exact.v_new);
        if with_ht {
            let ht: Vec<f64> = run.read::<f32>("ht").iter().map(|x| f64::from(*x)).collect();
            close("ht", &ht, &emulation.ht, &exact.ht);
        }
        for (name, used) in [("h", exact.h.len()), ("v_new", exact.v_new.len())] {
            assert!(run.read::<u16>(name)[used..].iter().all(|x| *x == CANARY), "`{name}` is written behind its end");
        }
    }
}

/// A number that the kernel does not write.
pub(super) const CANARY: u16 = 0x7fc1;

/// The error of `got` is at most twice that of the emulation, as a whole and at each element.
pub(super) fn close(name: &str, got: &[f64], emulation: &[f64], exact: &[f64]) {
    assert_eq!(got.len(), exact.len(), "{name}");
    let norm = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let most = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (error, allowed) = (norm(got, exact), 2.0 * norm(emulation, exact));
    println!("{name}: error {error:.3e}, of the emulation {:.3e}", allowed / 2.0);
    assert!(error <= allowed, "{name}: error {error:e}, allowed {allowed:e}");
    let (error, allowed) = (most(got, exact), 2.0 * most(emulation, exact));
    assert!(error <= allowed, "{name}: largest error {error:e}, allowed {allowed:e}");
}

/// The variant for slices of so many columns of V and clusters of so many CTAs.
fn variant(vs: u32, cluster: u32) -> Compiled {
    let found = try_compile(KERNEL).unwrap_or_else(|errors| panic!("{}", errors[0].text()));
    found.into_iter().find(|c| c.ptx.contains(&format!("serial__vs{vs}_cluster{cluster}"))).expect("the variant")
}

const VARIANTS: [(u32, u32); 3] = [(64, 1), (32, 1), (64, 2)];

#[test]
fn assembles_and_is_proved() {
    for (vs, cluster) in VARIANTS {
        let compiled = variant(vs, cluster);
        match (cluster, &compiled.protocol) {
            (1, protocol) => assert_eq!(*protocol, Verdict::Proved),
            // An even number of items, dealt out to an even number of CTAs: two neighbours get as many. That is the launcher's.
            (_, Verdict::NotProved { why }) => assert!(why.contains("between the CTAs of a cluster"), "{why}"),
            (_, other) => panic!("{other:?}"),
        }
        super::harness::assemble(&compiled);
    }
}

/// Lengths around the chunk, none, and several chunks; more items than CTAs, and fewer.
#[test]
fn computes_the_recurrence() {
    let lengths = [0, 1, 63, 64, 65, 130, 200, 0];
    let cases = [
        (64, 1, 2, 3, true, true),
        (64, 1, 1, 5, false, true),
        (32, 1, 1, 40, true, false),
        (64, 2, 2, 4, true, true),
        (64, 2, 1, 6, false, false),
    ];
    for (salt, (vs, cluster, heads, ctas, h0, ht)) in cases.into_iter().enumerate() {
        let problem = Problem::new(&lengths, heads, h0, 400 + salt as u64);
        let mut run = problem.arguments(variant(vs, cluster), ctas, ht);
        run.launch(ctas);
        problem.compare(&run, ht);
    }
}

/// Rows of a neighbour that no result may depend on: NaN in them changes no bit of a sequence before them.
#[test]
fn neighbours_do_not_matter() {
    for (vs, cluster) in VARIANTS {
        let results = [false, true].map(|poisoned| {
            let mut problem = Problem::new(&[65, 70], 1, true, 430);
            if poisoned {
                for tensor in [&mut problem.w, &mut problem.kg, &mut problem.u] {
                    tensor[65 * D..135 * D].fill(f32::NAN);
                }
            }
            let mut run = problem.arguments(variant(vs, cluster), 2, true);
            run.launch(2);
            let (h, v_new) = (run.read::<u16>("h"), run.read::<u16>("v_new"));
            let ht: Vec<u32> = run.read::<f32>("ht").iter().map(|x| x.to_bits()).collect();
            (h[..2 * D * D].to_vec(), v_new[..65 * D].to_vec(), ht[..D * D].to_vec())
        });
        assert!(results[0] == results[1], "slices of {vs}");
    }
}

/// What the compiler derives is needed: without any one of these lines the simulator finds fault.
#[test]
fn nothing_derived_is_superfluous() {
    let problem = Problem::new(&[130], 1, false, 420);
    let right = variant(64, 1);
    let lines: Vec<&str> = right.ptx.lines().collect();
    let is_derived = |line: &str| {
        ["fence.proxy.async", "bar.sync 1", "wgmma.fence", "cp.async.bulk.wait_group.read"]
            .iter()
            .any(|l| line.contains(l))
    };
    let derived: Vec<usize> = (0..lines.len()).filter(|at| is_derived(lines[*at])).collect();
    let kinds = |word: &str| derived.iter().filter(|at| lines[**at].contains(word)).count();
    // One fence behind the wait of `store`, one for the rows of a tail.
    assert_eq!((kinds("fence.proxy.async"), kinds("bar.sync 1"), kinds("wait_group.read")), (2, 1, 1));
    let mut found = 0;
    for at in &derived {
        let text: Vec<&str> = lines.iter().enumerate().filter(|(line, _)| line != at).map(|(_, text)| *text).collect();
        let mut run = problem.arguments(Compiled { ptx: text.join("\n"), ..right.clone() }, 2, false);
        let fails =
            |schedule: &Schedule| run.try_launch(2, &Options { schedule: *schedule, ..Options::default() }).is_err();
        let fails = Schedule::ALL.iter().any({
            let mut fails = fails;
            move |schedule| fails(schedule)
        });
        found += usize::from(fails);
        assert!(fails || lines[*at].contains("wgmma.fence"), "without `{}`, line {at}", lines[*at]);
    }
    println!("{found} of {} lines are missed", derived.len());
}

#[test]
fn under_every_schedule() {
    for (vs, cluster) in VARIANTS {
        let problem = Problem::new(&[65, 0, 130, 1], 1, true, 410);
        let mut run = problem.arguments(variant(vs, cluster), 2, true);
        run.launch_everywhere(2);
        problem.compare(&run, true);
    }
}
