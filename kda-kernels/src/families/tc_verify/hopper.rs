//! Verify of up to 8 draft tokens of each request on tensor cores, for Hopper. The bf16 state [V, K] is read once and never
//! written.

/// Contract: per request and head, with S the state, cum the running log2 of the decay, k and q behind convolution and SiLU and
/// not normalised, norms rk and rq,
/// ```text
/// p, r = 2^cum k, 2^cum q            P, R = S p, S r              probes as bf16 and what that loses, N = 32 in one pass
/// C_ti = <p_t, w_i> (i < t)          D_ti = <r_t, w_i> (i <= t)   w = 2^-cum k; with softplus from factors of at most 1
/// u = (I + L)^-1 beta (v - rk P)     o = rq (R + sum D_ti rk_i u_i)        L_ti = beta_t rk_t rk_i C_ti
/// ```
/// Writes out = bf16(o), the records corr = u (f32) and kg = [k | raw gate], and rolls the history of the convolution in place.
/// Rounding: k, q and v once to bf16, out once to bf16, everything else f32 or two terms of bf16 or tf32. Tokens behind the
/// length write nothing and change nothing; of a request without a live slot the rows of out are zeros, and nothing else is
/// written. Bits depend neither on the variant's heads nor on the batch.
#[kda_dsl::kernels(arch = sm_90a, uses = [crate::device::draft])]
pub mod tc_verify {
    const K: u32 = 128;
    const V: u32 = 128;
    const MOST_SLOTS: u32 = 2_147_483_647;

    /// CTAs walk over the requests of one head each, in a fixed order or by tickets. A thread owns two channels of four tokens
    /// while it makes the probes, and two neighbouring rows of V of two tokens behind the products.
    // Four CTAs an SM leave 128 registers, too few with taps of f32 and softplus.
    #[kernel(block = 128, grid = ctas, min_blocks_per_sm = if SOFTPLUS && size_of::<TAP>() == 4 { 3 } else { 4 })]
    #[variants(
        // Heads that are known put the rows of the inputs at constant distances: 150 instructions less.
        (HEADS, CONV, CHANNEL_MAJOR, TAP) in [
            (0, false, false, bf16), (0, true, false, bf16), (0, true, false, f32), (0, true, true, bf16), (0, true, true, f32),
            (12, true, false, bf16), (12, true, false, f32)
        ],
        SOFTPLUS in [false, true],
        EARLY in [false, true]
    )]
    #[requires(HEADS == 0 || heads == HEADS, heads >= 1, ctas % heads == 0, blocks == 8 * heads)]
    #[requires(window >= 1, window <= draft::TOKENS, rows >= n_req, slots <= MOST_SLOTS, total <= MOST_SLOTS)]
    #[requires(qkv_pitch % 2 == 0, qkv_part == heads * K, qkv_part % 2 == 0, g_pitch % 2 == 0, out_pitch % 2 == 0, null >= -1)]
    #[requires(corr_row % 2 == 0, corr_head % 2 == 0, kg_row % 2 == 0, kg_head % 2 == 0)]
    #[requires(HEADS == 0 || qkv_pitch == 3 * HEADS * K, HEADS == 0 || qkv_part == HEADS * K, HEADS == 0 || g_pitch == HEADS * K)]
    #[requires(!CONV || tap_rows == 3 * heads && histories == n_req && conv_rows == window + 2 && lines == slots)]
    #[requires(!CONV || CHANNEL_MAJOR || conv_channel == 1, !CONV || CHANNEL_MAJOR || conv_pitch % 2 == 0, !CONV || CHANNEL_MAJOR || conv_row % 2 == 0)]
    #[requires(!CONV || CHANNEL_MAJOR || conv_part % 2 == 0, !CONV || CHANNEL_MAJOR || conv_head % 2 == 0, HEADS == 0 || conv_part == HEADS * K, HEADS == 0 || conv_head == K)]
    #[requires(HEADS == 0 || conv_row == 3 * HEADS * K)]
    fn tc_verify<
        const HEADS: u32,          // 0: any
        const CONV: bool,          // the inputs go through the convolution first
        const CHANNEL_MAJOR: bool, // its history is [3, heads, K, rows], not [rows, 3, heads, K]
        TAP: Elem,
        const SOFTPLUS: bool,
        const EARLY: bool, // the first state is read ahead of the wait for the predecessor
    >(
        // Row 2 g + a + 16 w of V is row g + 8 a + 16 w of the tile: rows g and g + 8 of a fragment are neighbours in memory.
        #[dims(slots:state_pitch, blocks:2048, 2:128, 8:256, K; stable)] state: TensorMap<
            bf16,
            Shape<1, 8, 2, 8, K>,
            Swizzle<128>,
        >,
        #[dims(total:qkv_pitch, 3:qkv_part, heads, K)] qkv: Global<bf16>,
        #[dims(total:g_pitch, heads, K)] raw_g: Global<bf16>,
        #[dims(total:beta_pitch, heads)] raw_beta: Global<bf16>,
        #[dims(heads; stable)] a_log: Option<Global<f32>>,
        #[dims(heads, K; stable)] dt_bias: Global<f32>,
        #[dims(tap_rows, 4 * K; stable)] taps: Global<TAP>,
        #[dims(lines:conv_pitch, conv_rows:conv_row, 3:conv_part, heads:conv_head, K:conv_channel)] conv: GlobalMut<
            bf16,
        >,
        #[dims(n_req; stable)] slot_of: Global<i32>,
        #[dims(n_req + 1; stable)] query_start: Global<i32>,
        #[dims(histories; stable)] accepted: Global<i32>,
        #[dims(rows:corr_row, heads:corr_head, window, V)] corr: GlobalMut<f32>,
        #[dims(rows:kg_row, heads:kg_head, window, 2, K)] kg: GlobalMut<bf16>,
        #[dims(total:out_pitch, heads, V)] out: GlobalMut<bf16>,
        #[dims(heads)] counter: Option<GlobalMut<u32>>, // tickets; without them the order is fixed
        lower_bound: f32,
        scale: f32,
        null: i32,
        ctas: u32,
    ) {
        const TAPS: u32 = if size_of::<TAP>() == 2 { 4 } else { 8 }; // words of the taps of two channels

        // ---- Shared memory
        let ring = Pipeline::cta { state: smem::<bf16, Shape<V, K>, Swizzle<128>>() };
        let probes = smem::<bf16, Shape<{ draft::ROWS }, K>, Swizzle<128>>();
        let values = smem::<u32, Shape<{ draft::TOKENS }, 68>>(); // v, two channels a word
        let parts = smem::<f32, Shape<4, 32, 4>>(); // couplings by warp, as lanes hold them
        let keys = smem::<bf16, Shape<{ draft::TOKENS }, 136>>(); // softplus: decayed keys of tokens 0..4, and what rounding lost
        let norms = smem::<f32, Shape<16, 4>>(); // sums of k² and q² of each token, by warp
        let beta = smem::<f32, Shape<{ draft::TOKENS }>>();

        // ---- Who
        let (head, rank) = (ctaid.x % heads, ctaid.x / heads);
        let (half, pair) = (lane / 16, lane % 16);
        let (first, ch) = (4 * half, 32 * warp + 2 * pair);
        let word = 16 * warp + pair; // of my channels in a head
        let sizes = (n_req, total, window, slots);

        // ---- First item: metadata, state tile and raw inputs, then the head's constants
        if const { !EARLY } {
            pdl::wait();
        }
        let mut item = draft::read_item::<CONV>(slot_of, query_start, accepted, rank, sizes, null);
        if const { EARLY } {
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.state.tma_load_if(item.4, state, [item.0, head * 8, 0, 0, 0]);
                slot.commit();
            }
            pdl::wait();
        }
        pdl::launch_dependents();
        let (mut old, mut new, mut gate, mut raw_b) =
            fetch::<CONV, CHANNEL_MAJOR, { HEADS != 0 }>(qkv, raw_g, raw_beta, conv, head, word, half, item);
        if const { !EARLY } {
            // Raw inputs first: 2 µs at 128 requests of 12 heads.
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.state.tma_load_if(item.4, state, [item.0, head * 8, 0, 0, 0]);
                slot.commit();
            }
        }
        let tap_words = from_fn::<3>(|x| {
            if const { !CONV } { [0; TAPS] } else { draft::taps_of::<TAPS, TAP>(taps, x * heads + head, ch) }
        });
        let bias = dt_bias.at([head, ch]).load_v::<2>();
        let log_rate = draft::LOG2_E * min(max(a_log.at([head]).load(), -87.0), 87.0);
        let rate = ex2_approx(log_rate);
        let slope = if const { SOFTPLUS } { draft::LOG2_E } else { draft::LOG2_E * rate };
        let bound = draft::LOG2_E * lower_bound;

        for [req, next] in (rank..n_req).step_by(nctaid.x / heads).tickets::<2>(counter.at([head])) {
            let coming = draft::read_item::<CONV>(slot_of, query_start, accepted, next, sizes, null);
            let (state_slot, begin, len, _, live) = item;
            if live {
                let b = select(tid < len, draft::sigmoid2(draft::LOG2_E * (raw_b as f32)), 0.0);
                beta.at([tid]).store_if(tid < draft::TOKENS, b);

                // ---- Convolution and norms. Past the end q = k = 0, and beta = 0 makes u = 0.
                let stream = [old[0], old[1], old[2], new[0], new[1], new[2], new[3]];
                let (mut q_words, mut k_words) = ([0; 4], [0; 4]);
                let mut squares = [0.0; 8];
                #[unroll]
                for j in 0..4 {
                    let post = if const { !CONV } {
                        new[j]
                    } else {
                        from_fn::<3>(|x| draft::conv_silu(from_fn::<4>(|i| stream[i + j][x]), tap_words[x]))
                    };
                    values[[first + j, word]] = post[2];
                    (q_words[j], k_words[j]) = (post[0], post[1]);
                    let (q, k) = (draft::within(post[0], first + j < len), draft::within(post[1], first + j < len));
                    (squares[j], squares[4 + j]) = (draft::dot2(k, k), draft::dot2(q, q));
                }
                let sum_of_squares = draft::scatter(squares);
                let n = pair / 2;
                norms.at([draft::TOKENS * (n / 4) + first + n % 4, warp]).store_if(pair % 2 == 0, sum_of_squares);

                // ---- Gate: log2 of the decay of each of my tokens, their running sum, and the sum ahead of my half
                let mut sum = [0.0, 0.0];
                let (mut cum, mut steps) = ([[0.0, 0.0]; 4], [[0.0, 0.0]; 4]);
                #[unroll]
                for j in 0..4 {
                    let x = (draft::both(gate[j]) + bias) * slope;
                    let y = x.map(|x| {
                        if const { SOFTPLUS } {
                            -draft::scaled_softplus2(rate, log_rate, x)
                        } else {
                            bound * draft::sigmoid2(x)
                        }
                    });
                    steps[j] = select(first + j < len, y, [0.0, 0.0]);
                    sum = sum + steps[j];
                    cum[j] = sum;
                }
                let ahead = select(half == 1, shfl_up(cum[3], 16), [0.0, 0.0]);

                // ---- Probes
                #[unroll]
                for j in 0..4 {
                    let (q, k) =
                        (draft::within(q_words[j], first + j < len), draft::within(k_words[j], first + j < len));
                    let log = cum[j] + ahead;
                    let e = log.map(|x| ex2_approx(x));
                    draft::put_split(probes, draft::P + first + j, ch, draft::LOST, e * k);
                    draft::put_split(probes, draft::R + first + j, ch, draft::LOST, e * q);
                    if const { !SOFTPLUS } {
                        let w = log.map(|x| ex2_approx(-x)) * k;
                        draft::put_split(probes, draft::W + first + j, ch, draft::TOKENS, w);
                    }
                }

                // ---- Couplings of this warp's channels
                if const { SOFTPLUS } {
                    // Across the halves: later tokens decay from the end of token 3, earlier keys up to it.
                    #[unroll]
                    for j in 0..4 {
                        let e = select(half == 1, cum[j], cum[3] - cum[j]).map(|x| ex2_approx(x));
                        let (high, low) = draft::halves(e * draft::within(k_words[j], first + j < len));
                        keys.at([j, ch]).store_v_if(half == 0, high);
                        keys.at([4 + j, ch]).store_v_if(half == 0, low);
                        probes.at([draft::W + j, ch]).store_v_if(half == 1, high);
                        probes.at([draft::W + draft::TOKENS + j, ch]).store_v_if(half == 1, low);
                        let (high, low) = draft::halves(e * draft::within(q_words[j], first + j < len));
                        probes.at([draft::W + 4 + j, ch]).store_v_if(half == 1, high);
                        probes.at([draft::W + draft::TOKENS + 4 + j, ch]).store_v_if(half == 1, low);
                    }
                    draft::couple_halves(parts, q_words, k_words, steps, first, len, pair);
                    warp_sync();
                    draft::couple_across(parts, probes, keys);
                } else {
                    warp_sync();
                    draft::couple(parts, probes);
                }
                cta_sync();

                // ---- State tile times all probes; every warp makes the solve's coefficients between the issues
                let slot = ring.wait();
                let b = probes.rows(0..32);
                let mut acc = Acc::<f32, V, 32>::zero();
                acc.mma(slot.state.k_slice(0), b.k_slice(0));
                let (t, i) = (lane / 4, 2 * (lane % 4));
                let mut sums = parts.at([0, lane, 0]).load_v::<4>();
                #[unroll]
                for w in 1..4 {
                    sums = sums + parts.at([w, lane, 0]).load_v::<4>();
                }
                let square = norms.at([lane % 16, 0]).load_v::<4>();
                let (beta_t, beta_i) = (beta.at([t]).load(), beta.at([i]).load_v::<2>());
                acc.mma(slot.state.k_slice(16), b.k_slice(16));
                let norm = rsqrt_approx((square[0] + square[1]) + (square[2] + square[3]) + 1e-6)
                    * select(lane % 16 < draft::TOKENS, 1.0, scale);
                acc.mma(slot.state.k_slice(32), b.k_slice(32));
                let rk_t = shfl(norm, t);
                let rk_i = [shfl(norm, i), shfl(norm, i + 1)];
                let rq_i = [shfl(norm, draft::TOKENS + i), shfl(norm, draft::TOKENS + i + 1)];
                let below = from_fn::<2>(|e| select(i + e < t, -(beta_t * rk_t) * rk_i[e] * sums[e], 0.0));
                let upto = from_fn::<2>(|e| select(i + e <= t, rk_i[e] * sums[2 + e], 0.0));
                let minus_l = Frag::<f32, 8, 8>::from_pairs([below]);
                let d = Frag::<f32, 8, 8>::from_pairs([upto]);
                let mut inverse = Frag::<f32, 8, 8>::from_fn(|row, column| select(row == column, 1.0, 0.0));
                #[unroll]
                for step in 3..8 {
                    acc.mma(slot.state.k_slice(16 * step), b.k_slice(16 * step));
                    #[unroll]
                    for c in 2 * step - 6..min(2 * step - 4, draft::TOKENS - 1) {
                        inverse = fma(minus_l.column(c), inverse.row(c), inverse);
                    }
                }
                wgmma::commit();

                // ---- Under the products: this item's stores, then the next item's loads into the same registers
                if const { CONV } {
                    roll::<CHANNEL_MAJOR>(conv, state_slot, head, word, half, len, old, new);
                }
                let record = kg.at([req, head, first..]);
                #[unroll]
                for j in 0..4 {
                    record.at([j, 0]).cast::<u32>().at([word]).store_if(first + j < len, k_words[j]);
                    record.at([j, 1]).cast::<u32>().at([word]).store_if(first + j < len, gate[j]);
                }
                (old, new, gate, raw_b) =
                    fetch::<CONV, CHANNEL_MAJOR, { HEADS != 0 }>(qkv, raw_g, raw_beta, conv, head, word, half, coming);
                // Neighbouring rows of V of my two tokens, in both blocks of 64 rows.
                let v = from_fn::<2>(|block| from_fn::<2>(|e| values[[i + e, 32 * block + 8 * warp + t]]));
                wgmma::wait::<0>();
                slot.release();
                cta_sync();
                #[elect_one]
                {
                    let slot = ring.acquire();
                    slot.state.tma_load_if(coming.4, state, [coming.0, head * 8, 0, 0, 0]);
                    slot.commit();
                }

                // ---- Solve on the accumulator's registers: U = X Tᵀ, O = R + U Dᵀ
                let f = acc.fragment();
                let projected = (f.columns(0..8) + f.columns(16..24)).pairs();
                let x = from_fn::<4>(|n| {
                    from_fn::<2>(|e| beta_i[e] * fma(-rk_i[e], projected[n][e], draft::both(v[n / 2][e])[n % 2]))
                });
                let mut u = Frag::<f32, 32, 8>::zero();
                draft::three_terms(&mut u, Frag::<f32, 32, 8>::from_pairs(x), inverse);
                let mut o = f.columns(8..16) + f.columns(24..32);
                draft::three_terms(&mut o, u, d);

                // ---- Epilogue
                let (u, o) = (u.pairs(), o.pairs());
                let row = 16 * warp + 2 * t;
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
            } else {
                cta_sync();
                (old, new, gate, raw_b) =
                    fetch::<CONV, CHANNEL_MAJOR, { HEADS != 0 }>(qkv, raw_g, raw_beta, conv, head, word, half, coming);
                let slot = ring.wait();
                slot.release();
                cta_sync();
                #[elect_one]
                {
                    let slot = ring.acquire();
                    slot.state.tma_load_if(coming.4, state, [coming.0, head * 8, 0, 0, 0]);
                    slot.commit();
                }
                for i in (tid..len * 64).step_by(128) {
                    out.at([begin + i / 64, head]).cast::<u32>().at([i % 64]).store(0);
                }
            }
            item = coming;
        }
        // The stage behind the last item is empty.
        let last = ring.wait();
        last.release();
    }

    /// Raw inputs of a thread: the three tokens ahead of mine and my four, as words of two channels of q, k and v; my gates;
    /// beta of token `tid`.
    #[device]
    fn fetch<const CONV: bool, const CHANNEL_MAJOR: bool, const SAME: bool>(
        qkv: Global<bf16>,
        raw_g: Global<bf16>,
        raw_beta: Global<bf16>,
        conv: Global<bf16>,
        head: u32,
        word: u32,
        half: u32,
        item: (u32, u32, u32, u32, bool),
    ) -> ([[u32; 3]; 3], [[u32; 3]; 4], [u32; 4], bf16) {
        let (slot, begin, len, hist, live) = item;
        let first = 4 * half;
        let wide = l2::prefetch_256();
        let rows = qkv.at([begin + first..]);
        let gates = raw_g.at([begin + first..]);
        let new = from_fn::<4>(|j| {
            from_fn::<3>(|x| {
                rows.at([j, x, head]).cast::<u32>().at([word]).hint(wide).load_if(live & (first + j < len))
            })
        });
        let gate =
            from_fn::<4>(|j| gates.at([j, head]).cast::<u32>().at([word]).hint(wide).load_if(live & (first + j < len)));
        let mut old = [[0, 0, 0]; 3];
        if const { CONV && !CHANNEL_MAJOR && SAME } {
            // Rows of both tensors lie the same way.
            let before = select(half == 0, conv.at([slot, hist..]), qkv.at([begin + 1..]));
            old = from_fn::<3>(|j| {
                let on = live & ((half == 0) | (j + 1 < len));
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
                    let ahead = qkv.at([begin + 1 + j, x, head]).cast::<u32>().at([word]).hint(wide);
                    past | ahead.load_if(live & (half == 1) & (j + 1 < len))
                })
            });
        }
        let beta = raw_beta.at([begin + tid, head]).load_if(live & (tid < len));
        (old, new, gate, beta)
    }

    /// Replaces the history of a line by the last two rows of what it was and the tokens: rows 0..len + 2.
    #[device]
    fn roll<const CHANNEL_MAJOR: bool>(
        conv: GlobalMut<bf16>,
        line: u32,
        head: u32,
        word: u32,
        half: u32,
        len: u32,
        old: [[u32; 3]; 3],
        new: [[u32; 3]; 4],
    ) {
        let first = 4 * half;
        #[unroll]
        for x in 0..3 {
            #[unroll]
            for j in 0..6 {
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
}
