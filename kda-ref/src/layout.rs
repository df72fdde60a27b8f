//! Axis order of a state, the head map of grouped values, and packed boundaries.

/// Axis order of the state of one head. K = V = 128 hides a wrong order from every shape check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateOrder {
    /// `[K, V]`, V innermost.
    KFirst,
    /// `[V, K]`, K innermost.
    VFirst,
}

impl StateOrder {
    /// Offset of element (`key`, `value`) in a state of `keys` by `values` elements.
    #[inline]
    pub fn offset(self, key: usize, value: usize, keys: usize, values: usize) -> usize {
        match self {
            StateOrder::KFirst => key * values + value,
            StateOrder::VFirst => value * keys + key,
        }
    }

    /// Reads a state in this order through `get(offset)` into K-first order.
    pub fn load(self, keys: usize, values: usize, get: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut state = Vec::with_capacity(keys * values);
        for key in 0..keys {
            state.extend((0..values).map(|value| get(self.offset(key, value, keys, values))));
        }
        state
    }

    /// Writes a K-first state into `out` in this order.
    pub fn store(self, keys: usize, values: usize, k_first: &[f64], out: &mut [f64]) {
        match self {
            StateOrder::KFirst => out.copy_from_slice(k_first),
            StateOrder::VFirst => {
                for (value, row) in out.chunks_exact_mut(keys).enumerate() {
                    for (key, slot) in row.iter_mut().enumerate() {
                        *slot = k_first[key * values + value];
                    }
                }
            }
        }
    }
}

/// The query/key head that value head `value_head` uses: `value_head / (HV / H)`.
#[inline]
pub fn key_head(value_head: usize, key_heads: usize, value_heads: usize) -> usize {
    value_head / (value_heads / key_heads)
}

/// `(first row, end row)` of every sequence of packed boundaries `[N+1]`.
pub fn sequences(cu_seqlens: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    cu_seqlens.windows(2).map(|w| (w[0], w[1]))
}

/// `(first row, end row)` of the chunks of rows `begin .. end`; the last one may be shorter.
pub fn chunks(begin: usize, end: usize, chunk: usize) -> impl Iterator<Item = (usize, usize)> {
    (begin..end).step_by(chunk).map(move |first| (first, (first + chunk).min(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_transposes() {
        let k_first: Vec<f64> = (0..6).map(f64::from).collect();
        let mut v_first = vec![0.0; 6];
        StateOrder::VFirst.store(2, 3, &k_first, &mut v_first);
        assert_eq!(v_first, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(StateOrder::VFirst.load(2, 3, |i| v_first[i]), k_first);
        assert_eq!(StateOrder::KFirst.load(2, 3, |i| k_first[i]), k_first);
    }

    #[test]
    fn heads_and_chunks() {
        assert_eq!((0..6).map(|hv| key_head(hv, 2, 6)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
        assert_eq!(chunks(3, 135, 64).collect::<Vec<_>>(), [(3, 67), (67, 131), (131, 135)]);
        assert_eq!(chunks(3, 3, 64).count(), 0);
    }
}
