//! One token of the gated delta rule for one head, in float64.
//!
//! ```text
//! S <- S * exp(g);   u = beta * (v - S k);   S <- S + u k^T;   o = S q
//! ```
//! Source: the naive recurrence of fla-core (MIT), `naive_recurrent_kda`. Here S is K-first, `[K, V]`.

/// Query, key, value, gate and write strength of one token and value head, ready for the recurrence.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Query `[K]`: L2-normalised and multiplied by the attention scale.
    pub q: &'a [f64],
    /// Key `[K]`: L2-normalised.
    pub k: &'a [f64],
    /// Value `[V]`.
    pub v: &'a [f64],
    /// Log decay `[K]`, natural log, <= 0.
    pub log_decay: &'a [f64],
    /// Write strength, 0..1.
    pub beta: f64,
}

/// Applies one token to `state` `[K, V]` and writes the correction `u` `[V]` and the output `o` `[V]`.
pub fn step(state: &mut [f64], token: Token<'_>, u: &mut [f64], o: &mut [f64]) {
    let values = token.v.len();
    u.fill(0.0);
    for ((row, g), &k) in state.chunks_exact_mut(values).zip(token.log_decay).zip(token.k) {
        let decay = g.exp();
        for (s, dot) in row.iter_mut().zip(u.iter_mut()) {
            *s *= decay;
            *dot += *s * k;
        }
    }
    for (u, v) in u.iter_mut().zip(token.v) {
        *u = token.beta * (v - *u);
    }
    o.fill(0.0);
    for ((row, &q), &k) in state.chunks_exact_mut(values).zip(token.q).zip(token.k) {
        for ((s, u), o) in row.iter_mut().zip(u.iter()).zip(o.iter_mut()) {
            *s += *u * k;
            *o += *s * q;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // K = 2, V = 1: S = [1, 2]; decay halves the first channel.
        let mut state = [1.0, 2.0];
        let token = Token { q: &[1.0, 1.0], k: &[1.0, 0.5], v: &[4.0], log_decay: &[0.5f64.ln(), 0.0], beta: 0.5 };
        let (mut u, mut o) = ([0.0], [0.0]);
        step(&mut state, token, &mut u, &mut o);
        // S k = 0.5 + 1 = 1.5, u = 0.5 * 2.5 = 1.25, S = [1.75, 2.625], o = 4.375
        assert_eq!((u, state, o), ([1.25], [1.75, 2.625], [4.375]));
    }

    #[test]
    fn beta_one_stores_the_value_exactly() {
        let mut state = [0.3, -0.7, 1.1, 0.2];
        let k = [0.6, 0.8];
        let token = Token { q: &k, k: &k, v: &[5.0, -2.0], log_decay: &[-0.1, -3.0], beta: 1.0 };
        let (mut u, mut o) = ([0.0; 2], [0.0; 2]);
        step(&mut state, token, &mut u, &mut o);
        assert!((o[0] - 5.0).abs() < 1e-14 && (o[1] + 2.0).abs() < 1e-14);
    }
}
