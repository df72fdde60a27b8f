//! A seeded generator of test inputs: xoshiro256++ seeded by splitmix64.
//!
//! Both algorithms are by Blackman and Vigna and in the public domain (prng.di.unimi.it). Equal seeds give equal numbers
//! on every machine but for the last bit of the logarithm in [`Rng::normal`].

use half::bf16;

/// The generator. Print its seed in every check that draws from it.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    state: [u64; 4],
    /// The second variate of the last pair of normal variates.
    spare: Option<f64>,
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut splitmix = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Rng { seed, state: std::array::from_fn(|_| splitmix()), spare: None }
    }

    /// The seed this generator started from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform integer in `0 .. end`; `end` must not be 0. The bias is below `end / 2^64`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next_u64()) * end as u128) >> 64) as usize
    }

    /// One of the given choices, all equally likely. `choices` must not be empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True or false, equally likely.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// Standard normal (Marsaglia's polar method).
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// `len` normal variates times `sigma`.
    pub fn normals(&mut self, len: usize, sigma: f64) -> Vec<f64> {
        (0..len).map(|_| self.normal() * sigma).collect()
    }

    /// `len` normal variates times `sigma`, in fp32.
    pub fn normals_f32(&mut self, len: usize, sigma: f64) -> Vec<f32> {
        (0..len).map(|_| (self.normal() * sigma) as f32).collect()
    }

    /// `len` normal variates times `sigma`, rounded to bf16.
    pub fn normals_bf16(&mut self, len: usize, sigma: f64) -> Vec<bf16> {
        (0..len).map(|_| crate::round::bf16_from_f64(self.normal() * sigma)).collect()
    }

    /// Puts `items` in a random order, all orders equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sequence() {
        // xoshiro256++ with the state 1, 2, 3, 4: the first outputs of the authors' code.
        let mut rng = Rng { seed: 0, state: [1, 2, 3, 4], spare: None };
        assert_eq!([rng.next_u64(), rng.next_u64(), rng.next_u64()], [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn moments_and_ranges() {
        let mut rng = Rng::new(1);
        let x = rng.normals(100_000, 2.0);
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 4.0).abs() < 0.08, "seed 1: mean {mean}, variance {variance}");
        assert!((0..1000).all(|_| rng.below(7) < 7));
        let mut order: Vec<usize> = (0..50).collect();
        rng.shuffle(&mut order);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }
}
