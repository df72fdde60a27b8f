//! What a verify of draft tokens takes on tensor cores: convolution, gates, probes and couplings of two channels a thread.

/// Shared by the kernels of `tc_verify`. Four warps of a CTA own 32 channels of K each. A lane owns a word, two neighbouring
/// channels, of half of a window of T tokens: lanes 0..16 of the first half. Logarithms are of base 2.
#[kda_dsl::device_lib]
pub mod draft {
    const LOG2_E: f32 = 1.442_695_04;
    const TOKENS: u32 = 8; // of a window, padded; one kernel has twice as many

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
                let product = if const { ARCH >= sm_90 } {
                    bf16::from_bits(window[i]) * bf16::from_bits(taps[i])
                } else {
                    bf16::rn(both(window[i]) * both(taps[i]))
                };
                let product = product as f32;
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

    /// Bounded gate: C in rows 0..T, D in rows T..2 T, from keys that grow as the probes decay. A lane keeps two elements of
    /// each for a block of 8 × 8 that is not all zero: (0, 0), (1, 0), (1, 1).
    fn couple<const T: u32>(parts: Shared<f32>, probes: Tile<bf16>) {
        let mut gram = Frag::<f32, { 2 * T }, T>::zero();
        #[unroll]
        for s in 0..2 {
            let column = 32 * warp + 16 * s;
            let high = Frag::<bf16, { 2 * T }, 16>::load(probes, [0, column]);
            let low = Frag::<bf16, { 2 * T }, 16>::load(probes, [2 * T, column]);
            let w = Frag::<bf16, { 2 * T }, 16>::load(probes, [4 * T, column]);
            gram.mma(high, w.rows(T..2 * T));
            gram.mma(low, w.rows(0..T));
            gram.mma(high, w.rows(0..T));
        }
        let held = gram.pairs();
        const ACROSS: u32 = T / 8;
        #[unroll]
        for block in 0..2 * ACROSS - 1 {
            const C: u32 = (block + 1) / 2 * ACROSS + block / 2;
            let (c, d) = (held[C], held[C + ACROSS * ACROSS]);
            parts.at([warp, lane, 4 * block]).store_v([c[0], c[1], d[0], d[1]]);
        }
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
            gram.mma(
                Frag::<bf16, 16, 16>::load(probes, [4 * TOKENS, column]),
                Frag::<bf16, 8, 16>::load(keys, [0, column]),
            );
        }
        // What rounding lost, of rows and of columns.
        let [sums] = (gram.rows(0..8) + gram.rows(8..16)).pairs();
        let sums = sums + shfl_xor(sums, 2);
        let (t, pair) = (lane / 4, lane % 4);
        parts.at([warp, 4 * (4 + t % 4) + pair, t / 4 * 2]).store_v_if(pair < 2, sums);
    }

    /// What a thread keeps of its head: taps of its channels, bias, rate and its logarithm, slope of the gate's input, bound of
    /// the gate.
    fn head_of<const CONV: bool, const SOFTPLUS: bool, const N: u32, TAP: Elem>(
        taps: Global<TAP>,
        dt_bias: Global<f32>,
        a_log: Global<f32>,
        heads: u32,
        head: u32,
        channel: u32,
        lower_bound: f32,
    ) -> ([[u32; N]; 3], [f32; 2], f32, f32, f32, f32) {
        let tap_words =
            from_fn::<3>(|x| if const { !CONV } { [0; N] } else { taps_of::<N, TAP>(taps, x * heads + head, channel) });
        let bias = dt_bias.at([head, channel]).load_v::<2>();
        let log_rate = LOG2_E * min(max(a_log.at([head]).load(), -87.0), 87.0);
        let rate = ex2_approx(log_rate);
        let slope = if const { SOFTPLUS } { LOG2_E } else { LOG2_E * rate };
        (tap_words, bias, rate, log_rate, slope, LOG2_E * lower_bound)
    }

    /// Raw inputs to probes, couplings by warp, norms, beta and v in shared memory. What the warps leave there is to be read
    /// behind a barrier. Gives q and k of the thread's channels behind the convolution.
    fn prepare<const CONV: bool, const SOFTPLUS: bool, const T: u32, const N: u32>(
        probes: Tile<bf16>,
        values: Shared<u32>,
        parts: Shared<f32>,
        keys: Shared<bf16>,
        norms: Shared<f32>,
        beta: Shared<f32>,
        inputs: ([[u32; 3]; 3], [[u32; 3]; T / 2], [u32; T / 2], bf16),
        of_head: ([[u32; N]; 3], [f32; 2], f32, f32, f32, f32),
        len: u32,
    ) -> ([u32; T / 2], [u32; T / 2]) {
        const MINE: u32 = T / 2;
        // Rows of the probe tile: p, r, then (LOST below) what rounding lost; w, then (T below) what that lost.
        const R: u32 = T;
        const LOST: u32 = 2 * T;
        const W: u32 = 4 * T;
        let (old, new, gate, raw_b) = inputs;
        let (tap_words, bias, rate, log_rate, slope, bound) = of_head;
        let (half, pair) = (lane / 16, lane % 16);
        let (first, ch) = (MINE * half, 32 * warp + 2 * pair);
        let word = 16 * warp + pair;
        let b = select(tid < len, sigmoid2(LOG2_E * (raw_b as f32)), 0.0);
        beta.at([tid]).store_if(tid < T, b);

        // ---- Convolution and norms. Past the end q = k = 0, and beta = 0 makes u = 0.
        let stream = from_fn::<{ MINE + 3 }>(|i| if const { i < 3 } { old[i] } else { new[i - 3] });
        let (mut q_words, mut k_words) = ([0; MINE], [0; MINE]);
        let mut squares = [0.0; T];
        #[unroll]
        for j in 0..MINE {
            let post = if const { !CONV } {
                new[j]
            } else {
                from_fn::<3>(|x| conv_silu(from_fn::<4>(|i| stream[i + j][x]), tap_words[x]))
            };
            values[[first + j, word]] = select(first + j < len, post[2], 0);
            (q_words[j], k_words[j]) = (post[0], post[1]);
            let (q, k) = (within(post[0], first + j < len), within(post[1], first + j < len));
            (squares[j], squares[MINE + j]) = (dot2(k, k), dot2(q, q));
        }
        let sum_of_squares = scatter(squares);
        let n = pair / (16 / T);
        norms.at([T * (n / MINE) + first + n % MINE, warp]).store_if(pair % (16 / T) == 0, sum_of_squares);

        // ---- Gate: log2 of the decay of each of my tokens, their running sum, and the sum ahead of my half
        let mut sum = [0.0, 0.0];
        let (mut cum, mut steps) = ([[0.0, 0.0]; MINE], [[0.0, 0.0]; MINE]);
        #[unroll]
        for j in 0..MINE {
            let x = (both(gate[j]) + bias) * slope;
            let y =
                x.map(|x| if const { SOFTPLUS } { -scaled_softplus2(rate, log_rate, x) } else { bound * sigmoid2(x) });
            steps[j] = select(first + j < len, y, [0.0, 0.0]);
            sum = sum + steps[j];
            cum[j] = sum;
        }
        let ahead = select(half == 1, shfl_up(cum[MINE - 1], 16), [0.0, 0.0]);

        // ---- Probes
        #[unroll]
        for j in 0..MINE {
            let (q, k) = (within(q_words[j], first + j < len), within(k_words[j], first + j < len));
            let log = cum[j] + ahead;
            let e = log.map(|x| ex2_approx(x));
            put_split(probes, first + j, ch, LOST, e * k);
            put_split(probes, R + first + j, ch, LOST, e * q);
            if const { !SOFTPLUS } {
                let w = log.map(|x| ex2_approx(-x)) * k;
                put_split(probes, W + first + j, ch, T, w);
            }
        }

        // ---- Couplings of this warp's channels
        if const { SOFTPLUS } {
            let mut rest = [[0.0, 0.0]; 4]; // not a difference of sums, which may be large
            #[unroll]
            for j in 1..4 {
                rest[3 - j] = rest[4 - j] + steps[4 - j];
            }
            // Across the halves: later tokens decay from the end of token 3, earlier keys up to it.
            #[unroll]
            for j in 0..MINE {
                let e = select(half == 1, cum[j], rest[j]).map(|x| ex2_approx(x));
                let (high, low) = halves(e * within(k_words[j], first + j < len));
                keys.at([j, ch]).store_v_if(half == 0, high);
                keys.at([4 + j, ch]).store_v_if(half == 0, low);
                probes.at([W + j, ch]).store_v_if(half == 1, high);
                probes.at([W + T + j, ch]).store_v_if(half == 1, low);
                let (high, low) = halves(e * within(q_words[j], first + j < len));
                probes.at([W + 4 + j, ch]).store_v_if(half == 1, high);
                probes.at([W + T + 4 + j, ch]).store_v_if(half == 1, low);
            }
            couple_halves(parts, q_words, k_words, steps, first, len, pair);
            warp_sync();
            couple_across(parts, probes, keys);
        } else {
            warp_sync();
            couple::<T>(parts, probes);
        }
        (q_words, k_words)
    }

    /// Raw inputs of a thread: the three tokens ahead of mine and my own, as words of two channels of q, k and v; my gates.
    fn fetch<const CONV: bool, const CHANNEL_MAJOR: bool, const SAME: bool, const T: u32>(
        qkv: Global<bf16>,
        raw_g: Global<bf16>,
        conv: Global<bf16>,
        head: u32,
        key_head: u32,
        word: u32,
        half: u32,
        item: (u32, u32, u32, u32, bool),
    ) -> ([[u32; 3]; 3], [[u32; 3]; T / 2], [u32; T / 2]) {
        const MINE: u32 = T / 2;
        let (slot, begin, len, hist, live) = item;
        let first = MINE * half;
        let wide = l2::prefetch_256();
        let rows = qkv.at([begin + first..]);
        let gates = raw_g.at([begin + first..]);
        let new = from_fn::<MINE>(|j| {
            from_fn::<3>(|x| {
                rows.at([j, x, if const { x < 2 } { key_head } else { head }])
                    .cast::<u32>()
                    .at([word])
                    .hint(wide)
                    .load_if(live & (first + j < len))
            })
        });
        let gate = from_fn::<MINE>(|j| {
            gates.at([j, head]).cast::<u32>().at([word]).hint(wide).load_if(live & (first + j < len))
        });
        let mut old = [[0, 0, 0]; 3];
        if const { CONV && !CHANNEL_MAJOR && SAME } {
            // Rows of both tensors lie the same way.
            let before = select(half == 0, conv.at([slot, hist..]), qkv.at([begin + (MINE - 3)..]));
            old = from_fn::<3>(|j| {
                let on = live & ((half == 0) | (MINE - 3 + j < len));
                from_fn::<3>(|x| before.at([j, x, head]).cast::<u32>().at([word]).hint(wide).load_if(on))
            });
        } else if const { CONV } {
            let on = live & (half == 0);
            old = from_fn::<3>(|j| {
                from_fn::<3>(|x| {
                    let past = if const { !CHANNEL_MAJOR } {
                        conv.at([slot, hist + j, x, head]).cast::<u32>().at([word]).hint(wide).load_if(on)
                    } else {
                        from_fn::<2>(|c| conv.at([slot, hist + j, x, head, 2 * word + c]).load_if(on)).to_bits()
                    };
                    let ahead = qkv.at([begin + (MINE - 3) + j, x, head]).cast::<u32>().at([word]).hint(wide);
                    past | ahead.load_if(live & (half == 1) & (MINE - 3 + j < len))
                })
            });
        }
        (old, new, gate)
    }

    /// Raw beta of token `tid`.
    fn fetch_beta(raw_beta: Global<bf16>, head: u32, item: (u32, u32, u32, u32, bool)) -> bf16 {
        let (_, begin, len, _, live) = item;
        raw_beta.at([begin + tid, head]).load_if(live & (tid < len))
    }

    /// The same as `fetch` from boxes in shared memory: rows of the history, then the tokens. Those behind the length are the
    /// neighbour's.
    fn unpack<const CONV: bool, const T: u32>(
        rows: Shared<bf16>,
        gates: Shared<bf16>,
        channel: u32,
        half: u32,
    ) -> ([[u32; 3]; 3], [[u32; 3]; T / 2], [u32; T / 2]) {
        const MINE: u32 = T / 2;
        let first = MINE * half;
        let old = from_fn::<3>(|j| {
            from_fn::<3>(|x| if const { CONV } { rows.at([first + j, x, channel]).load_v::<2>().to_bits() } else { 0 })
        });
        let new = from_fn::<MINE>(|j| from_fn::<3>(|x| rows.at([first + 3 + j, x, channel]).load_v::<2>().to_bits()));
        (old, new, from_fn::<MINE>(|j| gates.at([first + j, channel]).load_v::<2>().to_bits()))
    }
}
