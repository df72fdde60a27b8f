//! A long stream of one head, window by window: a verify of drafts, and a commit of as many as were accepted, after which the state
//! goes through a pool of a given type.

use super::sample as commit;
use crate::Mode;
use crate::budget::relative_error;
use crate::floats::{FloatVec, Floats};
use crate::rng::Rng;
use crate::round::{bf16_from_f64, to_bf16};
use crate::tc_verify::{self, HEAD, Refusal, sample};
use half::bf16;

/// Drafts of a step.
pub const WINDOW: usize = 8;
/// Steps after which a drift is read.
pub const MARKS: [usize; 5] = [16, 64, 256, 1024, 4096];

/// A stream and its state. Two streams of a seed have the same tokens and counts.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: Rng,
    next: sample::Sample,
    count: usize,
    /// Float64 values `[V, K]`; those of a pool of f32 or bf16 are values of that type.
    state: Vec<f64>,
    /// `None`: the state is kept in float64; else whether the pool is bf16.
    pool: Option<bool>,
}

impl Stream {
    /// A stream from a random state, which is one of bf16 values whatever the pool. Gates decay by a few thousandths a token: the
    /// delta rule forgets first, and errors are carried on for hundreds of tokens.
    pub fn new(seed: u64, pool: Option<bool>) -> Stream {
        let mut rng = Rng::new(seed);
        let switches = sample::Switches { bf16_state: pool == Some(true), ..sample::Switches::plain(1, 1, WINDOW) };
        let mut next = sample::Sample::random(&mut rng, switches);
        // One slot: copies of others would cost time.
        (next.slots, next.slot_of) = (1, vec![0]);
        (next.a_log, next.dt_bias) = (Some(vec![0.0]), vec![-8.0; HEAD]);
        let state: Vec<f64> = rng.normals(HEAD * HEAD, 0.5).into_iter().map(to_bf16).collect();
        let mut stream = Stream { rng, next, count: 0, state, pool };
        stream.draw();
        stream
    }

    /// The tokens of the next step, and how many of them will be accepted.
    fn draw(&mut self) {
        let rng = &mut self.rng;
        self.next.qkv = rng.normals_bf16(self.next.qkv.len(), 1.0);
        self.next.raw_g = rng.normals_bf16(self.next.raw_g.len(), 1.0);
        self.next.raw_beta = rng.normals_bf16(self.next.raw_beta.len(), 1.0);
        self.count = 1 + rng.below(WINDOW);
        self.next.state = self.pool();
    }

    /// The state as the pool has it, `[V, K]`; f32 where it is kept in float64.
    pub fn pool(&self) -> FloatVec {
        match self.pool {
            Some(true) => FloatVec::Bf16(self.state.iter().map(|s| bf16_from_f64(*s)).collect()),
            _ => FloatVec::F32(self.state.iter().map(|s| *s as f32).collect()),
        }
    }

    /// The state `[V, K]`.
    pub fn state(&self) -> &[f64] {
        &self.state
    }

    /// The verify of the next step, with the state as the pool has it.
    pub fn verify(&self) -> sample::Sample {
        self.next.clone()
    }

    /// The commit of the next step, of these records.
    pub fn commit(&self, corr: Vec<f32>, kg: Vec<bf16>) -> commit::Sample {
        let s = &self.next;
        commit::Sample {
            switches: commit::Switches {
                bf16_state: self.pool == Some(true),
                lower_bound: s.switches.lower_bound,
                ..commit::Switches::plain(1, 1, WINDOW)
            },
            slots: 1,
            state: self.pool(),
            state_pitch: s.state_pitch,
            rows: s.rows,
            corr,
            kg,
            a_log: s.a_log.clone(),
            dt_bias: s.dt_bias.clone(),
            conv: Vec::new(),
            conv_pitch: 3 * HEAD * (WINDOW + 2),
            slot_of: vec![0],
            destinations: None,
            counts: vec![self.count as i32],
            boundary_tokens: vec![0],
            boundary_slots: vec![-1],
        }
    }

    /// Verifies the next window and commits what is accepted of it.
    ///
    /// # Errors
    /// As [`super::run()`] and [`tc_verify::run()`].
    pub fn step(&mut self, mode: Mode) -> Result<(), Refusal> {
        let state = Floats::F64(&self.state);
        let mut verified = self.next.buffers();
        tc_verify::run(&tc_verify::Problem { state, ..self.next.problem() }, &mut verified.outputs(), mode)?;
        let sample = self.commit(Vec::new(), Vec::new());
        let (corr, kg) = (Floats::F64(&verified.corr), Floats::F64(&verified.kg));
        let mut committed = sample.buffers();
        let problem = super::Problem { state, corr, kg, ..sample.problem() };
        super::run(&problem, &mut committed.outputs(), mode)?;
        let stored = |s: f64| match self.pool {
            None => s,
            Some(false) => f64::from(s as f32),
            Some(true) => to_bf16(s),
        };
        self.state = committed.state.into_iter().map(stored).collect();
        self.draw();
        Ok(())
    }
}

/// Relative Frobenius error of the emulation's state after each of `marks` steps, ascending, against the float64 stream of the same
/// seed.
///
/// # Errors
/// As [`Stream::step`].
pub fn curve(seed: u64, bf16_pool: bool, marks: &[usize]) -> Result<Vec<f64>, Refusal> {
    let (mut exact, mut emulated) = (Stream::new(seed, None), Stream::new(seed, Some(bf16_pool)));
    let mut read = Vec::new();
    for step in 1..=marks.last().copied().unwrap_or(0) {
        exact.step(Mode::Exact)?;
        emulated.step(Mode::Emulate)?;
        if marks.contains(&step) {
            read.push(relative_error(exact.state(), emulated.state()));
        }
    }
    Ok(read)
}
