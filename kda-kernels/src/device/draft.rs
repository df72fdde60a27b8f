//! What a verify of draft tokens takes on tensor cores: convolution, gates, probes and couplings of two channels a thread.

/// Shared by the kernels of `tc_verify`. Four warps of a CTA own 32 channels of K each. A lane owns a word, two neighbouring
/// channels, of four tokens: lanes 0..16 of tokens 0..4, lanes 16..32 of tokens 4..8. Logarithms are of base 2.
#[kda_dsl::device_lib]
pub mod draft {
    const LOG2_E: f32 = 1.442_695_04;
    const TOKENS: u32 = 8; // of a window, padded
    // Rows of the probe tile: p, r, then (LOST below) what rounding lost; w, then (TOKENS below) what that lost.
    const P: u32 = 0;
    const R: u32 = 8;
    const LOST: u32 = 16;
    const W: u32 = 32;
    const ROWS: u32 = 48;

    /// The two channels of a word.
    fn both(word: u32) -> [f32; 2] {
        [f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000)]
    }

    /// The same, zeros where there is no token.
    fn within(word: u32, on: bool) -> [f32; 2] {
        both(select(on, word, 0))
    }

    /// 1 / (1 + 2^-x)
    fn sigmoid2(x: f32) -> f32 {
        rcp_approx(1.0 + ex2_approx(-x))
    }

    /// rate · log2(1 + 2^x), of the rate's logarithm too: far below zero the exponents are added first, so that no rate meets
    /// a zero. Elsewhere log1p(e) = 2 atanh(e / (2 + e)) loses nothing for small e = 2^-|x|, which a rate would magnify.
    fn scaled_softplus2(rate: f32, log_rate: f32, x: f32) -> f32 {
        let e = ex2_approx(-abs(x));
        let s = e * rcp_approx(2.0 + e);
        let square = s * s;
        let mut series = 0.0;
        #[unroll]
        for inverse in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
            series = fma(series, square, const { 2.0 * LOG2_E / inverse });
        }
        let near = rate * fma(s, series, select(x > 0.0, x, 0.0));
        select(x < -24.0, LOG2_E * ex2_approx(x + log_rate), near)
    }

    fn dot2(a: [f32; 2], b: [f32; 2]) -> f32 {
        fma(a[0], b[0], a[1] * b[1])
    }

    /// Slot, first token, tokens and first row of the history of a request, and whether there is anything to verify. A request
    /// past the end has no tokens, one whose offsets are none of the batch neither; one of more than a window has a window.
    fn read_item<const CONV: bool>(
        slot_of: Global<i32>,
        query_start: Global<i32>,
        accepted: Global<i32>,
        req: u32,
        sizes: (u32, u32, u32, u32), // requests, rows, tokens of a window, slots
        null: i32,
    ) -> (u32, u32, u32, u32, bool) {
        let (n_req, total, window, slots) = sizes;
        let on = req < n_req;
        let slot = slot_of.at([req]).load_if(on);
        let (begin, end) = (query_start.at([req]).load_if(on), query_start.at([req + 1]).load_if(on));
        let hist =
            if const { CONV } { (min(max(accepted.at([req]).load_if(on), 1), window as i32) - 1) as u32 } else { 0 };
        let sound = (begin >= 0) & (begin <= end) & (end <= total as i32);
        let len = min(select(sound, end - begin, 0) as u32, window);
        (slot as u32, begin as u32, len, hist, (slot > null) & (slot < slots as i32) & (len > 0))
    }

    /// Taps of the lane's channels of q, k or v: of bf16 a word a tap, of f32 four of one channel and four of the other.
    fn taps_of<const N: u32, TAP: Elem>(taps: Global<TAP>, row: u32, channel: u32) -> [u32; N] {
        let words = taps.at([row]).cast::<u32>();
        if const { N == 4 } {
            // Two taps of a channel a word become two channels of a tap.
            let [a, b, c, d] = words.at([2 * channel]).load_v::<4>().map(|word| bf16::from_bits(word));
            [[a[0], c[0]].to_bits(), [a[1], c[1]].to_bits(), [b[0], d[0]].to_bits(), [b[1], d[1]].to_bits()]
        } else {
            let (a, b) = (words.at([4 * channel]).load_v::<4>(), words.at([4 * channel + 4]).load_v::<4>());
            [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
        }
    }

    /// One token of q, k or v behind convolution and SiLU. bf16 taps round every product to bf16; f32 taps are a chain of fma.
    fn conv_silu<const N: u32>(window: [u32; 4], taps: [u32; N]) -> u32 {
        let mut y = [0.0, 0.0];
        #[unroll]
        for i in 0..4 {
            if const { N == 4 } {
                let product = (bf16::from_bits(window[i]) * bf16::from_bits(taps[i])) as f32;
                y = if const { i == 0 } { product } else { y + product };
            } else {
                let (x, t) = (both(window[i]), [f32::from_bits(taps[i]), f32::from_bits(taps[4 + i])]);
                y = if const { i == 0 } { x * t } else { [fma(x[0], t[0], y[0]), fma(x[1], t[1], y[1])] };
            }
        }
        bf16::rn(y.map(|a| a * sigmoid2(LOG2_E * a))).to_bits()
    }

    /// x as bf16, and what that loses.
    fn halves(x: [f32; 2]) -> ([bf16; 2], [bf16; 2]) {
        let high = bf16::rn(x);
        (high, bf16::rn(x - high as f32))
    }

    /// x as bf16 in a row, and what that loses, again as bf16, `lost` rows below.
    fn put_split(tile: Tile<bf16>, row: u32, column: u32, lost: u32, x: [f32; 2]) {
        let (high, low) = halves(x);
        tile.at([row, column]).store_v(high);
        tile.at([row + lost, column]).store_v(low);
    }

    /// Sums over the 16 lanes of a half, N at once: the lane at place l of them gets sum l * N / 16.
    fn scatter<const N: u32>(values: [f32; N]) -> f32 {
        let mut x = values;
        #[unroll]
        for step in 0..4 {
            const STRIDE: u32 = 8 >> step;
            const LEFT: u32 = N >> (step + 1);
            let upper = lane & STRIDE != 0;
            if const { LEFT == 0 } {
                x[0] += shfl_xor(x[0], STRIDE);
            }
            #[unroll]
            for i in 0..LEFT {
                let (low, high) = (x[i], x[i + LEFT]);
                x[i] = select(upper, high, low) + shfl_xor(select(upper, low, high), STRIDE);
            }
        }
        x[0]
    }

    /// c += a · bᵀ in three terms of tf32.
    fn three_terms<const M: u32, const N: u32, const D: u32>(
        c: &mut Frag<f32, M, N>,
        a: Frag<f32, M, D>,
        b: Frag<f32, N, D>,
    ) {
        let (a_high, a_low) = a.split::<tf32>();
        let (b_high, b_low) = b.split::<tf32>();
        c.mma(a_low, b_high);
        c.mma(a_high, b_low);
        c.mma(a_high, b_high);
    }

    /// Bounded gate: C in rows 0..8, D in rows 8..16, from keys that grow as the probes decay.
    fn couple(parts: Shared<f32>, probes: Tile<bf16>) {
        let mut gram = Frag::<f32, 16, 8>::zero();
        #[unroll]
        for s in 0..2 {
            let column = 32 * warp + 16 * s;
            let high = Frag::<bf16, 16, 16>::load(probes, [P, column]);
            let low = Frag::<bf16, 16, 16>::load(probes, [LOST, column]);
            let w = Frag::<bf16, 16, 16>::load(probes, [W, column]);
            gram.mma(high, w.rows(8..16));
            gram.mma(low, w.rows(0..8));
            gram.mma(high, w.rows(0..8));
        }
        let held = gram.pairs();
        parts.at([warp, lane, 0]).store_v([held[0][0], held[0][1], held[1][0], held[1][1]]);
    }

    /// Softplus gate: the couplings within a half, 16 sums over its lanes; of token j, C_ji for i < j and D_ji for i <= j, from
    /// j² on. Keys are decayed to the token.
    fn couple_halves(parts: Shared<f32>, q: [u32; 4], k: [u32; 4], steps: [[f32; 2]; 4], first: u32, len: u32, n: u32) {
        let (mut w, mut dots) = ([[0.0, 0.0]; 4], [0.0; 16]);
        #[unroll]
        for j in 0..4 {
            let (q, k) = (within(q[j], first + j < len), within(k[j], first + j < len));
            let fall = steps[j].map(|x| ex2_approx(x));
            #[unroll]
            for i in 0..j {
                w[i] = w[i] * fall;
                (dots[j * j + i], dots[j * j + j + i]) = (dot2(k, w[i]), dot2(q, w[i]));
            }
            (w[j], dots[j * j + 2 * j]) = (k, dot2(q, k));
        }
        let sum = scatter(dots);
        let j = (n >= 1) as u32 + (n >= 4) as u32 + (n >= 9) as u32;
        let of_row = n - j * j;
        let is_d = of_row >= j;
        let i = first + of_row - select(is_d, j, 0);
        parts.at([warp, 4 * (first + j) + i / 2, i % 2 + select(is_d, 2, 0)]).store(sum);
    }

    /// Softplus gate: the couplings of tokens 4..8 with tokens 0..4; rows of C, then of D.
    fn couple_across(parts: Shared<f32>, probes: Tile<bf16>, keys: Shared<bf16>) {
        let mut gram = Frag::<f32, 16, 8>::zero();
        #[unroll]
        for s in 0..2 {
            let column = 32 * warp + 16 * s;
            gram.mma(Frag::<bf16, 16, 16>::load(probes, [W, column]), Frag::<bf16, 8, 16>::load(keys, [0, column]));
        }
        // What rounding lost, of rows and of columns.
        let [sums] = (gram.rows(0..8) + gram.rows(8..16)).pairs();
        let sums = sums + shfl_xor(sums, 2);
        let (t, pair) = (lane / 4, lane % 4);
        parts.at([warp, 4 * (4 + t % 4) + pair, t / 4 * 2]).store_v_if(pair < 2, sums);
    }
}
