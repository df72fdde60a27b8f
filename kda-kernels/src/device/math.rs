//! Gates that neither overflow nor lose small values, and the fixed reduction trees.

/// Exponentials, gates and sums. Every function keeps a NaN of its argument.
#[kda_dsl::device_lib]
pub mod math {
    const LOG2_E: f32 = 1.442_695_04;
    /// Sums over K: four consecutive channels are a group; the 32 groups meet in this order.
    const GROUP_STRIDES: [u32; 5] = [8, 16, 1, 2, 4];
    /// Sums of squares: one channel a lane.
    const NORM_STRIDES: [u32; 5] = [16, 8, 4, 2, 1];

    /// e^x, at most e^88: never infinite, so that 0 * exp(x) is 0.
    fn exp(x: f32) -> f32 {
        ex2_approx(LOG2_E * select(x > 88.0, 88.0, x))
    }

    fn sigmoid(x: f32) -> f32 {
        rcp_approx(1.0 + exp(-x))
    }

    fn silu(x: f32) -> f32 {
        x * sigmoid(x)
    }

    /// max(x, 0) + log1p(e) with e = exp(-|x|); log1p(e) = 2 atanh(e / (2 + e)) loses nothing for small e.
    fn softplus(x: f32) -> f32 {
        let e = exp(-abs(x));
        let s = e * rcp_approx(2.0 + e);
        let square = s * s;
        let mut series = 0.0;
        #[unroll]
        for inverse in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
            series = fma(series, square, const { 1.0 / inverse });
        }
        select(x > 0.0, x, 0.0) + 2.0 * s * series
    }

    /// exp(a_log), at least e^-87: never 0, so that its product with an infinity is no NaN.
    fn rate(a_log: f32) -> f32 {
        exp(select(a_log < -87.0, -87.0, a_log))
    }

    /// exp(a_log) * softplus(z). Far below zero the exponents are added first: no infinity meets a zero.
    fn scaled_softplus(a_log: f32, z: f32) -> f32 {
        select(z <= -17.0, exp(a_log + z), rate(a_log) * softplus(z))
    }

    /// z + a · b, by fma in order.
    fn chain(z: f32, a: [f32; 4], b: [f32; 4]) -> f32 {
        fma(a[3], b[3], fma(a[2], b[2], fma(a[1], b[1], fma(a[0], b[0], z))))
    }

    /// z + a · b where engines keep bf16 taps: each product is rounded to bf16, then added in f32.
    fn chain_rounded(z: f32, a: [f32; 4], b: [f32; 4]) -> f32 {
        let mut sum = z;
        #[unroll]
        for i in 0..4 {
            sum += bf16::rn(a[i] * b[i]) as f32;
        }
        sum
    }

    /// The part of a sum over K that one lane holds: G groups, 32 / G lanes a row.
    fn dot<const G: u32>(a: [[f32; 4]; G], b: [[f32; 4]; G]) -> f32 {
        let group = from_fn::<G>(|i| chain(0.0, a[i], b[i]));
        // Groups of a lane are eight apart: strides 8 and 16 of the tree stay inside it, with two groups stride 8 alone.
        if const { G == 1 } {
            group[0]
        } else if const { G == 2 } {
            group[0] + group[1]
        } else {
            (group[0] + group[1]) + (group[2] + group[3])
        }
    }

    /// Sums N values over the lanes that `strides` connect. While more than KEEP are left, a step keeps one half and sends
    /// the other, so that each lane ends with KEEP of the sums: those that `position` names.
    fn sums<const STEPS: u32, const N: u32, const KEEP: u32>(values: [f32; N], strides: [u32; STEPS]) -> [f32; KEEP] {
        let mut x = values;
        #[unroll]
        for step in 0..STEPS {
            const LEFT: u32 = max(N >> (step + 1), KEEP);
            const EXCHANGE: bool = N >> step > KEEP;
            let upper = lane & strides[step] != 0;
            #[unroll]
            for i in 0..LEFT {
                if const { EXCHANGE } {
                    let (low, high) = (x[i], x[i + LEFT]);
                    x[i] = select(upper, high, low) + shfl_xor(select(upper, low, high), strides[step]);
                } else {
                    x[i] += shfl_xor(x[i], strides[step]);
                }
            }
        }
        from_fn::<KEEP>(|i| x[i])
    }

    /// Which of the N sums comes first in this lane, and whether it is the first lane that has it.
    fn position<const STEPS: u32, const N: u32, const KEEP: u32>(strides: [u32; STEPS]) -> (u32, bool) {
        let mut place: u32 = 0;
        let mut spare: u32 = 0;
        #[unroll]
        for step in 0..STEPS {
            let bit = lane & strides[step];
            if const { N >> step > KEEP } {
                place = 2 * place + (bit != 0) as u32;
            } else {
                spare |= bit;
            }
        }
        (place * KEEP, spare == 0)
    }

    /// The first lane that has sum I of `sums::<STEPS, N, 1>`.
    fn holder<const STEPS: u32, const N: u32, const I: u32>(strides: [u32; STEPS]) -> u32 {
        let mut holder: u32 = 0;
        #[unroll]
        for step in 0..STEPS {
            if const { I & (N >> (step + 1)) != 0 } {
                holder += strides[step];
            }
        }
        holder
    }
}
