//! One chunk of one head in float64: the rows it reads, and what it does to the state.

/// A number that a chunk is computed in.
pub(crate) trait Real: Copy + Default + std::ops::Sub<Output = Self> {
    /// From float64: exact for the values that a kernel reads.
    fn narrow(x: f64) -> Self;
    /// To float64, exactly.
    fn wide(self) -> f64;
}

impl Real for f64 {
    fn narrow(x: f64) -> Self {
        x
    }
    fn wide(self) -> f64 {
        self
    }
}

impl Real for f32 {
    fn narrow(x: f64) -> Self {
        x as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

/// The inputs of one chunk and head, rows without gaps.
#[derive(Clone, Debug)]
pub(crate) struct Chunk<T> {
    /// `[rows, K]`.
    pub kg: Vec<T>,
    /// `[rows, K]`.
    pub w: Vec<T>,
    /// `[rows, V]`.
    pub u: Vec<T>,
    /// What the state is multiplied by, `[K]`.
    pub decay: Vec<T>,
    /// Scalar gate: what x is multiplied by ahead of the update, `[rows]`.
    pub gate: Option<Vec<T>>,
}

/// Takes the K-first state `[K, V]` over one chunk and returns x `[rows, V]` before its rounding.
///
/// `round` makes bf16 operands of S and x.
pub(crate) fn golden(state: &mut [f64], chunk: &Chunk<f64>, round: fn(f64) -> f64) -> Vec<f64> {
    let keys = chunk.decay.len();
    let values = state.len() / keys;
    let h: Vec<f64> = state.iter().map(|&s| round(s)).collect();
    let mut x = vec![0.0; chunk.u.len()];
    for (x, w) in x.chunks_exact_mut(values).zip(chunk.w.chunks_exact(keys)) {
        for (w, h) in w.iter().zip(h.chunks_exact(values)) {
            x.iter_mut().zip(h).for_each(|(dot, h)| *dot += w * h);
        }
    }
    x.iter_mut().zip(&chunk.u).for_each(|(x, u)| *x = u - *x);
    let mut operand = x.clone();
    for (row, x) in operand.chunks_exact_mut(values).enumerate() {
        let gate = chunk.gate.as_ref().map_or(1.0, |gate| gate[row]);
        x.iter_mut().for_each(|x| *x = round(*x * gate));
    }
    update(state, chunk, &operand);
    x
}

/// Decays the state and adds `kg^T operand`.
pub(crate) fn update(state: &mut [f64], chunk: &Chunk<f64>, operand: &[f64]) {
    let keys = chunk.decay.len();
    let values = state.len() / keys;
    for ((key, s), decay) in state.chunks_exact_mut(values).enumerate().zip(&chunk.decay) {
        s.iter_mut().for_each(|s| *s *= decay);
        for (kg, x) in chunk.kg.chunks_exact(keys).zip(operand.chunks_exact(values)) {
            s.iter_mut().zip(x).for_each(|(s, x)| *s += kg[key] * x);
        }
    }
}
