//! A long stream of one head, token by token, whose state goes through a pool of a given type after each.

use super::problem::{Problem, Refusal};
use super::run;
use super::sample::{Sample, Switches};
use crate::Mode;
use crate::floats::{FloatVec, Floats};
use crate::rng::Rng;
use crate::round::to_bf16;

/// Tokens at which a drift is read.
pub const MARKS: [usize; 5] = [16, 64, 256, 1024, 4096];

/// A stream and its state. Two streams of a seed have the same tokens.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: Rng,
    next: Sample,
    /// Float64 values; those of a pool of f32 or bf16 are values of that type.
    state: Vec<f64>,
    /// `None`: the state is kept in float64; else whether the pool is bf16.
    pool: Option<bool>,
}

impl Stream {
    /// A stream from a random state, which is one of bf16 values whatever the pool. Gates decay by a few thousandths a token:
    /// the delta rule forgets first, and errors are carried on for hundreds of tokens.
    pub fn new(seed: u64, pool: Option<bool>) -> Stream {
        let mut rng = Rng::new(seed);
        let next = Self::draw(&mut rng, pool);
        let state = rng.normals(next.state.view().len(), 0.5).into_iter().map(to_bf16).collect();
        Stream { rng, next, state, pool }
    }

    fn draw(rng: &mut Rng, pool: Option<bool>) -> Sample {
        let bf16_state = pool == Some(true);
        let switches = Switches { fused: false, ..Switches::plain(1, 1, 1) };
        let mut sample = Sample::random(rng, switches);
        // One slot: what lies in others would cost time.
        let length = switches.dims.state_len();
        (sample.state, sample.state_len) = (FloatVec::filled(bf16_state, length, 0.0), 1);
        (sample.slots, sample.switches.bf16_state) = (vec![0], bf16_state);
        (sample.a_log, sample.dt_bias) = (Some(vec![0.0]), Some(vec![-8.0; crate::decode::HEAD]));
        sample
    }

    /// The next token with the state as the pool has it.
    pub fn sample(&self) -> Sample {
        Sample { state: self.pool(), ..self.next.clone() }
    }

    /// The state as the pool has it, `[V, K]`; f32 where it is kept in float64.
    pub fn pool(&self) -> FloatVec {
        let mut pool = FloatVec::filled(self.pool == Some(true), self.state.len(), 0.0);
        let mut view = pool.view_mut();
        for (i, value) in self.state.iter().enumerate() {
            view.put_exact(i, *value as f32);
        }
        pool
    }

    /// The state `[V, K]`.
    pub fn state(&self) -> &[f64] {
        &self.state
    }

    /// Takes one token.
    ///
    /// # Errors
    /// As [`run`].
    pub fn step(&mut self, mode: Mode) -> Result<(), Refusal> {
        let mut buffers = self.next.buffers();
        let problem = Problem { state: Floats::F64(&self.state), ..self.next.problem() };
        run(&problem, &mut buffers.outputs(), mode)?;
        let stored = |s: f64| match self.pool {
            None => s,
            Some(false) => f64::from(s as f32),
            Some(true) => to_bf16(s),
        };
        self.state = buffers.state.into_iter().map(stored).collect();
        self.next = Self::draw(&mut self.rng, self.pool);
        Ok(())
    }
}
