//! What a verify of draft tokens takes behind its products: coefficients, the triangular solve and what it writes.

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

    /// What a lane needs for row t = lane / 4 and columns i = 2 (lane % 4), i + 1 of the couplings: their sums over the warps,
    /// C then D; the sums of squares of row lane % 16 of the norms; beta of the row and of the columns.
    fn gather(parts: Shared<f32>, norms: Shared<f32>, beta: Shared<f32>) -> ([f32; 4], [f32; 4], f32, [f32; 2]) {
        let mut sums = parts.at([0, lane, 0]).load_v::<4>();
        #[unroll]
        for w in 1..4 {
            sums = sums + parts.at([w, lane, 0]).load_v::<4>();
        }
        let squares = norms.at([lane % 16, 0]).load_v::<4>();
        (sums, squares, beta.at([lane / 4]).load(), beta.at([2 * (lane % 4)]).load_v::<2>())
    }

    /// Of token lane % 16 rk, or rq of the token TOKENS below.
    fn norm_of(squares: [f32; 4], scale: f32) -> f32 {
        rsqrt_approx((squares[0] + squares[1]) + (squares[2] + squares[3]) + 1e-6)
            * select(lane % 16 < draft::TOKENS, 1.0, scale)
    }

    /// -L, D with the norms of keys, and rk and rq of the columns.
    fn coefficients(norm: f32, sums: [f32; 4], beta_t: f32) -> (Frag<f32, 8, 8>, Frag<f32, 8, 8>, [f32; 2], [f32; 2]) {
        let (t, i) = (lane / 4, 2 * (lane % 4));
        let rk_t = shfl(norm, t);
        let rk_i = [shfl(norm, i), shfl(norm, i + 1)];
        let rq_i = [shfl(norm, draft::TOKENS + i), shfl(norm, draft::TOKENS + i + 1)];
        let below = from_fn::<2>(|e| select(i + e < t, -(beta_t * rk_t) * rk_i[e] * sums[e], 0.0));
        let upto = from_fn::<2>(|e| select(i + e <= t, rk_i[e] * sums[2 + e], 0.0));
        (Frag::<f32, 8, 8>::from_pairs([below]), Frag::<f32, 8, 8>::from_pairs([upto]), rk_i, rq_i)
    }

    /// Columns from..to of the elimination that makes (I + L)^-1 of I.
    fn eliminate<const FROM: u32, const TO: u32>(inverse: &mut Frag<f32, 8, 8>, minus_l: Frag<f32, 8, 8>) {
        #[unroll]
        for c in FROM..TO {
            inverse = fma(minus_l.column(c), inverse.row(c), inverse);
        }
    }

    /// U = X Tᵀ, O = R + U Dᵀ of a warp's 32 rows of V, from the products [P | R] with the probes and with what those lost; `v`
    /// has neighbouring rows of two tokens, in both blocks of 16 rows.
    fn solve(
        high: Frag<f32, 32, 16>,
        low: Frag<f32, 32, 16>,
        v: [[u32; 2]; 2],
        inverse: Frag<f32, 8, 8>,
        d: Frag<f32, 8, 8>,
        beta_i: [f32; 2],
        rk_i: [f32; 2],
    ) -> ([[f32; 2]; 4], [[f32; 2]; 4]) {
        let projected = (high.columns(0..8) + low.columns(0..8)).pairs();
        let x = from_fn::<4>(|n| {
            from_fn::<2>(|e| beta_i[e] * fma(-rk_i[e], projected[n][e], draft::both(v[n / 2][e])[n % 2]))
        });
        let mut u = Frag::<f32, 32, 8>::zero();
        three_terms(&mut u, Frag::<f32, 32, 8>::from_pairs(x), inverse);
        let mut o = high.columns(8..16) + low.columns(8..16);
        three_terms(&mut o, u, d);
        (u.pairs(), o.pairs())
    }

    /// Writes u and rq o of the tokens that there are. Rows g and g + 8 of a block of 16 are neighbours in memory.
    fn finish(
        corr: GlobalMut<f32>,
        out: GlobalMut<bf16>,
        req: u32,
        begin: u32,
        head: u32,
        len: u32,
        u: [[f32; 2]; 4],
        o: [[f32; 2]; 4],
        rq_i: [f32; 2],
    ) {
        let (i, row) = (2 * (lane % 4), 16 * warp + 2 * (lane / 4));
        #[unroll]
        for e in 0..2 {
            #[unroll]
            for block in 0..2 {
                let on = i + e < len;
                let (a, b) = (2 * block, 2 * block + 1);
                corr.at([req, head, i + e, 64 * block + row]).store_v_if(on, [u[a][e], u[b][e]]);
                let o = [o[a][e] * rq_i[e], o[b][e] * rq_i[e]];
                out.at([begin + i + e, head, 64 * block + row]).store_v_if(on, bf16::rn(o));
            }
        }
    }

    /// Writes zeros to the rows of a request without a slot.
    fn finish_dead(out: GlobalMut<bf16>, begin: u32, head: u32, len: u32) {
        for i in (tid..len * 64).step_by(128) {
            out.at([begin + i / 64, head]).cast::<u32>().at([i % 64]).store(0);
        }
    }
}
