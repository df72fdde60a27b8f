//! What a verify of draft tokens takes behind its products, coefficients and the triangular solve; and what it writes.

/// Shared by the kernels of `tc_verify`. A warp has 32 rows of V: of each 64, 16 from 16 `warp` on. A lane has two neighbouring
/// ones, t = lane / 4, of tokens i = 2 (lane % 4) and i + 1.
#[kda_dsl::device_lib]
pub mod solve {
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

    /// What a lane needs for rows t = lane / 4 and columns i = 2 (lane % 4), i + 1 of blocks of 8 × 8 couplings: of each block
    /// the sums over the warps, C then D; the sums of squares of a row of the norms; beta of rows and of columns.
    fn gather<const T: u32>(
        parts: Shared<f32>,
        norms: Shared<f32>,
        beta: Shared<f32>,
    ) -> ([[f32; 4]; T / 4 - 1], [f32; 4], [f32; T / 8], [[f32; 2]; T / 8]) {
        let mut sums = from_fn::<{ T / 4 - 1 }>(|block| parts.at([0, lane, 4 * block]).load_v::<4>());
        #[unroll]
        for w in 1..4 {
            #[unroll]
            for block in 0..T / 4 - 1 {
                sums[block] = sums[block] + parts.at([w, lane, 4 * block]).load_v::<4>();
            }
        }
        let squares = norms.at([lane % (2 * T), 0]).load_v::<4>();
        let beta_t = from_fn::<{ T / 8 }>(|n| beta.at([8 * n + lane / 4]).load());
        (sums, squares, beta_t, from_fn::<{ T / 8 }>(|n| beta.at([8 * n + 2 * (lane % 4)]).load_v::<2>()))
    }

    /// Of token lane % 2 T rk, or rq of the token T below.
    fn norm_of<const T: u32>(squares: [f32; 4], scale: f32) -> f32 {
        rsqrt_approx((squares[0] + squares[1]) + (squares[2] + squares[3]) + 1e-6)
            * select(lane % (2 * T) < T, 1.0, scale)
    }

    /// -L, D with the norms of keys, and rk and rq of the columns.
    fn coefficients<const T: u32>(
        norm: f32,
        sums: [[f32; 4]; T / 4 - 1],
        beta_t: [f32; T / 8],
    ) -> (Frag<f32, T, T>, Frag<f32, T, T>, [[f32; 2]; T / 8], [[f32; 2]; T / 8]) {
        const ACROSS: u32 = T / 8;
        let (t, i) = (lane / 4, 2 * (lane % 4));
        let rk_t = from_fn::<ACROSS>(|n| shfl(norm, 8 * n + t));
        let rk_i = from_fn::<ACROSS>(|n| from_fn::<2>(|e| shfl(norm, 8 * n + i + e)));
        let rq_i = from_fn::<ACROSS>(|n| from_fn::<2>(|e| shfl(norm, T + 8 * n + i + e)));
        // Of blocks that are not all zero r + c is the number.
        let below = from_fn::<{ ACROSS * ACROSS }>(|n| {
            const R: u32 = n / ACROSS;
            const C: u32 = n % ACROSS;
            if const { C > R } {
                [0.0, 0.0]
            } else {
                from_fn::<2>(|e| {
                    let factor = -(beta_t[R] * rk_t[R]) * rk_i[C][e] * sums[R + C][e];
                    if const { C < R } { factor } else { select(i + e < t, factor, 0.0) }
                })
            }
        });
        let upto = from_fn::<{ ACROSS * ACROSS }>(|n| {
            const R: u32 = n / ACROSS;
            const C: u32 = n % ACROSS;
            if const { C > R } {
                [0.0, 0.0]
            } else {
                from_fn::<2>(|e| {
                    let factor = rk_i[C][e] * sums[R + C][2 + e];
                    if const { C < R } { factor } else { select(i + e <= t, factor, 0.0) }
                })
            }
        });
        (Frag::<f32, T, T>::from_pairs(below), Frag::<f32, T, T>::from_pairs(upto), rk_i, rq_i)
    }

    /// Columns from..to of the elimination that makes (I + L)^-1 of I.
    fn eliminate<const FROM: u32, const TO: u32>(inverse: &mut Frag<f32>, minus_l: Frag<f32>) {
        #[unroll]
        for c in FROM..TO {
            inverse = fma(minus_l.column(c), inverse.row(c), inverse);
        }
    }

    /// Neighbouring rows of V of two tokens of each 8, in both blocks of 16 rows, as words.
    fn values_of<const T: u32>(values: Shared<u32>) -> [[[u32; 2]; 2]; T / 8] {
        let (t, i) = (lane / 4, 2 * (lane % 4));
        from_fn::<{ T / 8 }>(|n| {
            from_fn::<2>(|block| from_fn::<2>(|e| values[[8 * n + i + e, 32 * block + 8 * warp + t]]))
        })
    }

    /// U = X Tᵀ, O = R + U Dᵀ of a warp's 32 rows of V, from the products [P | R] with the probes and with what those lost.
    fn solve<const T: u32>(
        high: Frag<f32, 32, { 2 * T }>,
        low: Frag<f32, 32, { 2 * T }>,
        v: [[[u32; 2]; 2]; T / 8],
        inverse: Frag<f32, T, T>,
        d: Frag<f32, T, T>,
        beta_i: [[f32; 2]; T / 8],
        rk_i: [[f32; 2]; T / 8],
    ) -> ([[f32; 2]; T / 2], [[f32; 2]; T / 2]) {
        const ACROSS: u32 = T / 8;
        let projected = (high.columns(0..T) + low.columns(0..T)).pairs();
        let x = from_fn::<{ T / 2 }>(|n| {
            const R: u32 = n / ACROSS;
            const C: u32 = n % ACROSS;
            from_fn::<2>(|e| beta_i[C][e] * fma(-rk_i[C][e], projected[n][e], draft::both(v[C][R / 2][e])[R % 2]))
        });
        let mut u = Frag::<f32, 32, T>::zero();
        three_terms(&mut u, Frag::<f32, 32, T>::from_pairs(x), inverse);
        let mut o = high.columns(T..2 * T) + low.columns(T..2 * T);
        three_terms(&mut o, u, d);
        (u.pairs(), o.pairs())
    }

    /// Writes u and rq o of the tokens that there are. Rows g and g + 8 of a block of 16 are neighbours in memory.
    fn finish<const N: u32>(
        corr: GlobalMut<f32>,
        out: GlobalMut<bf16>,
        req: u32,
        begin: u32,
        head: u32,
        len: u32,
        u: [[f32; 2]; N],
        o: [[f32; 2]; N],
        rq_i: [[f32; 2]; N / 4],
    ) {
        const ACROSS: u32 = N / 4;
        let (i, row) = (2 * (lane % 4), 16 * warp + 2 * (lane / 4));
        #[unroll]
        for n in 0..ACROSS {
            #[unroll]
            for e in 0..2 {
                #[unroll]
                for block in 0..2 {
                    let token = 8 * n + i + e;
                    let (a, b) = (2 * block * ACROSS + n, (2 * block + 1) * ACROSS + n);
                    corr.at([req, head, token, 64 * block + row]).store_v_if(token < len, [u[a][e], u[b][e]]);
                    let o = [o[a][e] * rq_i[n][e], o[b][e] * rq_i[n][e]];
                    out.at([begin + token, head, 64 * block + row]).store_v_if(token < len, bf16::rn(o));
                }
            }
        }
    }

    /// Writes zeros to the rows of a request without a slot.
    fn finish_dead(out: GlobalMut<bf16>, begin: u32, head: u32, len: u32) {
        for i in (tid..len * 64).step_by(128) {
            out.at([begin + i / 64, head]).cast::<u32>().at([i % 64]).store(0);
        }
    }

    /// Replaces the history of a line by the last two rows of what it was and the tokens: rows 0..len + 2.
    fn roll<const CHANNEL_MAJOR: bool, const MINE: u32>(
        conv: GlobalMut<bf16>,
        line: u32,
        head: u32,
        word: u32,
        half: u32,
        len: u32,
        old: [[u32; 3]; 3],
        new: [[u32; 3]; MINE],
    ) {
        let first = MINE * half;
        #[unroll]
        for x in 0..3 {
            #[unroll]
            for j in 0..MINE + 2 {
                let (value, row) = if const { j < 2 } { (old[1 + j][x], j) } else { (new[j - 2][x], first + j) };
                let on = if const { j < 2 } { half == 0 } else { row < len + 2 };
                if const { CHANNEL_MAJOR } {
                    let pair = bf16::from_bits(value);
                    conv.at([line, row, x, head, 2 * word]).store_if(on, pair[0]);
                    conv.at([line, row, x, head, 2 * word + 1]).store_if(on, pair[1]);
                } else {
                    conv.at([line, row, x, head]).cast::<u32>().at([word]).store_if(on, value);
                }
            }
        }
    }

    /// Writes a record: k behind the convolution, and the raw gate.
    fn record<const MINE: u32>(
        kg: GlobalMut<bf16>,
        req: u32,
        head: u32,
        len: u32,
        k_words: [u32; MINE],
        gate: [u32; MINE],
    ) {
        let (first, word) = (MINE * (lane / 16), 16 * warp + lane % 16);
        let rows = kg.at([req, head, first..]);
        #[unroll]
        for j in 0..MINE {
            rows.at([j, 0]).cast::<u32>().at([word]).store_if(first + j < len, k_words[j]);
            rows.at([j, 1]).cast::<u32>().at([word]).store_if(first + j < len, gate[j]);
        }
    }
}
