//! Verify of up to 8 draft tokens of each request on tensor cores, for every architecture from sm_80 on. The state [V, K], of
//! bf16 or f32, is read once and never written.

/// Contract: that of `tc_verify`, with states of f32 too. Those are multiplied as bf16 and what that loses, in three terms with
/// the probes' two: what is left out is 2^-16 of a product.
///
/// Windows of 9 to 16 tokens have the bounded gate, and a `lower_bound` of -5 or more, which the host sees to: keys grow by up to
/// e^80. Without a convolution `per_key_head` heads may share one of q and k; rows of `qkv` then are q and k of
/// `heads / per_key_head` heads each, and v of all, and a record has its k once a head.
#[kda_dsl::kernels(arch = sm_80, uses = [crate::device::draft, crate::device::solve])]
pub mod tc_verify_portable {
    const K: u32 = 128;
    const V: u32 = 128;
    const MOST_SLOTS: u32 = 2_147_483_647;

    /// Where a row of V lies in a state tile of bf16: rows g and g + 8 of 16, which a lane of a fragment has, are neighbours in
    /// memory.
    #[device]
    fn row_of(place: u32) -> u32 {
        place / 16 * 16 + place % 8 * 2 + place / 8 % 2
    }

    /// Rows of V `row`..`row` + 16 and 16 channels of a state of f32, as `row_of` orders rows.
    #[device]
    fn wide(state: Tile<f32>, row: u32, channel: u32) -> Frag<f32, 16, 16> {
        let (g, c) = (lane / 4, channel + 2 * (lane % 4));
        Frag::<f32, 16, 16>::from_pairs(from_fn::<4>(|n| state.at([row + 2 * g + n / 2, c + n % 2 * 8]).load_v::<2>()))
    }

    /// A CTA for each head of a request. A thread owns two channels of four tokens while it makes the probes, and two
    /// neighbouring rows of V of two tokens behind the products.
    #[kernel(block = 128, grid = heads * n_req, min_blocks_per_sm = if size_of::<STATE>() == 4 || TOKENS == 16 { 2 } else { 3 })]
    #[variants(
        TOKENS in [8, 16],
        (CONV, CHANNEL_MAJOR, TAP) in
            [(false, false, bf16), (true, false, bf16), (true, false, f32), (true, true, bf16), (true, true, f32)],
        SOFTPLUS in [false, true],
        STATE in [bf16, f32],
        // Couplings of softplus take factors of at most 1, and are made for 8 tokens.
        skip_if(TOKENS == 16 && SOFTPLUS)
    )]
    #[requires(heads >= 1, window >= 1, window <= TOKENS, rows >= n_req, slots <= MOST_SLOTS, total <= MOST_SLOTS)]
    #[requires(state_pitch % (16 / size_of::<STATE>()) == 0, qkv_pitch % 2 == 0, g_pitch % 2 == 0)]
    #[requires(qkv_part % K == 0, total == 0 || per_key_head * qkv_part == heads * K)]
    #[requires(out_pitch % 2 == 0, corr_row % 2 == 0, corr_head % 2 == 0, kg_row % 2 == 0, kg_head % 2 == 0, null >= -1)]
    #[requires(per_key_head >= 1, !CONV || per_key_head == 1)]
    #[requires(!CONV || tap_rows == 3 * heads && histories == n_req && conv_rows == window + 2 && lines == slots)]
    #[requires(!CONV || CHANNEL_MAJOR || conv_channel == 1, !CONV || CHANNEL_MAJOR || conv_pitch % 2 == 0, !CONV || CHANNEL_MAJOR || conv_row % 2 == 0)]
    #[requires(!CONV || CHANNEL_MAJOR || conv_part % 2 == 0, !CONV || CHANNEL_MAJOR || conv_head % 2 == 0)]
    fn tc_verify_portable<
        const TOKENS: u32,         // of a window, padded
        const CONV: bool,          // the inputs go through the convolution first
        const CHANNEL_MAJOR: bool, // its history is [3, heads, K, rows], not [rows, 3, heads, K]
        TAP: Elem,
        const SOFTPLUS: bool,
        STATE: Elem,
    >(
        #[dims(slots:state_pitch, heads, V, K)] state: Global<STATE>,
        #[dims(total:qkv_pitch, 3:qkv_part, heads, K)] qkv: Global<bf16>,
        #[dims(total:g_pitch, heads, K)] raw_g: Global<bf16>,
        #[dims(total:beta_pitch, heads)] raw_beta: Global<bf16>,
        #[dims(heads)] a_log: Option<Global<f32>>,
        #[dims(heads, K)] dt_bias: Global<f32>,
        #[dims(tap_rows, 4 * K)] taps: Global<TAP>,
        #[dims(lines:conv_pitch, conv_rows:conv_row, 3:conv_part, heads:conv_head, K:conv_channel)] conv: GlobalMut<
            bf16,
        >,
        #[dims(n_req)] slot_of: Global<i32>,
        #[dims(n_req + 1)] query_start: Global<i32>,
        #[dims(histories)] accepted: Global<i32>,
        #[dims(rows:corr_row, heads:corr_head, window, V)] corr: GlobalMut<f32>,
        #[dims(rows:kg_row, heads:kg_head, window, 2, K)] kg: GlobalMut<bf16>,
        #[dims(total:out_pitch, heads, V)] out: GlobalMut<bf16>,
        lower_bound: f32,
        scale: f32,
        null: i32,
        per_key_head: u32, // heads that share one of q and k; their parts of `qkv` are the smaller ones
    ) {
        const TAPS: u32 = if size_of::<TAP>() == 2 { 4 } else { 8 }; // words of the taps of two channels
        const PIECE: u32 = 16 / size_of::<STATE>(); // elements of a copy
        const ACROSS: u32 = K / PIECE;

        // ---- Shared memory
        let ring = Pipeline::cta { state: smem::<STATE, Shape<V, K>, Swizzle<128>>() };
        // What needs no alignment comes first: two CTAs with states of bf16 fill the 100 KiB of a multiprocessor of sm_86.
        let norms = smem::<f32, Shape<{ 2 * TOKENS }, 4>>(); // sums of k² and q² of each token, by warp
        let beta = smem::<f32, Shape<TOKENS>>();
        let values = smem::<u32, Shape<TOKENS, 68>>(); // v, two channels a word
        let parts = smem::<f32, Shape<4, 32, { TOKENS - 4 }>>(); // couplings by warp, as lanes hold them
        let keys = smem::<bf16, Shape<TOKENS, 136>>(); // softplus: decayed keys of tokens 0..4, and what rounding lost
        let probes = smem::<bf16, Shape<{ 6 * TOKENS }, K>, Swizzle<128>>();

        // ---- Who
        let (head, req) = (ctaid.x % heads, ctaid.x / heads);
        let key_head = if const { CONV } { head } else { head / per_key_head };
        let (half, pair) = (lane / 16, lane % 16);
        let (ch, word) = (32 * warp + 2 * pair, 16 * warp + pair);
        let item = draft::read_item::<CONV>(slot_of, query_start, accepted, req, (n_req, total, window, slots), null);
        let (state_slot, begin, len, _, live) = item;
        if !live {
            solve::finish_dead(out, begin, head, len);
            return;
        }

        // ---- State tile and raw inputs
        let filling = ring.acquire();
        #[unroll]
        for i in 0..V * ACROSS / 128 {
            let (place, k) = ((128 * i + tid) / ACROSS, tid % ACROSS * PIECE);
            let row = if const { size_of::<STATE>() == 2 } { row_of(place) } else { place };
            filling.state.at([place, k]).copy_async_v::<PIECE>(state.at([state_slot, head, row, k]));
        }
        filling.commit();
        let raw_b = draft::fetch_beta(raw_beta, head, item);
        let (old, new, gate) =
            draft::fetch::<CONV, CHANNEL_MAJOR, false, TOKENS>(qkv, raw_g, conv, head, key_head, word, half, item);
        let of_head = draft::head_of::<CONV, SOFTPLUS, TAPS, TAP>(taps, dt_bias, a_log, heads, head, ch, lower_bound);

        // ---- Probes and couplings, records and history
        let (q_words, k_words) = draft::prepare::<CONV, SOFTPLUS, TOKENS, TAPS>(
            probes,
            values,
            parts,
            keys,
            norms,
            beta,
            (old, new, gate, raw_b),
            of_head,
            len,
        );
        if const { CONV } {
            solve::roll::<CHANNEL_MAJOR, { TOKENS / 2 }>(conv, state_slot, head, word, half, len, old, new);
        }
        solve::record::<{ TOKENS / 2 }>(kg, req, head, len, k_words, gate);
        cta_sync();

        // ---- Coefficients of the solve
        let (sums, squares, beta_t, beta_i) = solve::gather::<TOKENS>(parts, norms, beta);
        let norm = solve::norm_of::<TOKENS>(squares, scale);
        let (minus_l, d, rk_i, rq_i) = solve::coefficients::<TOKENS>(norm, sums, beta_t);
        let mut inverse = Frag::<f32, TOKENS, TOKENS>::from_fn(|row, column| select(row == column, 1.0, 0.0));
        solve::eliminate::<0, { TOKENS - 1 }>(&mut inverse, minus_l);
        let v = solve::values_of::<TOKENS>(values);

        // ---- State tile times the probes, and times what those lost
        let slot = ring.wait();
        let mut high = from_fn::<2>(|_| Frag::<f32, 16, { 2 * TOKENS }>::zero());
        let mut low = from_fn::<2>(|_| Frag::<f32, 16, { 2 * TOKENS }>::zero());
        #[unroll]
        for step in 0..K / 16 {
            let k = 16 * step;
            let p = Frag::<bf16, { 2 * TOKENS }, 16>::load(probes, [0, k]);
            let lost = Frag::<bf16, { 2 * TOKENS }, 16>::load(probes, [2 * TOKENS, k]);
            #[unroll]
            for block in 0..2 {
                let row = 64 * block + 16 * warp;
                if const { size_of::<STATE>() == 2 } {
                    let s = Frag::<bf16, 16, 16>::load(slot.state, [row, k]);
                    high[block].mma(s, p);
                    low[block].mma(s, lost);
                } else {
                    let (s, rest) = wide(slot.state, row, k).split::<bf16>();
                    high[block].mma(s, p);
                    low[block].mma(s, lost);
                    low[block].mma(rest, p);
                }
            }
        }
        slot.release();

        // ---- Solve and epilogue
        let [high, low] = [high, low].map(|two| {
            const PAIRS: u32 = TOKENS / 2;
            let (a, b) = (two[0].pairs(), two[1].pairs());
            let both = from_fn::<{ 2 * PAIRS }>(|n| if const { n < PAIRS } { a[n] } else { b[n - PAIRS] });
            Frag::<f32, 32, { 2 * TOKENS }>::from_pairs(both)
        });
        let (u, o) = solve::solve::<TOKENS>(high, low, v, inverse, d, beta_i, rk_i);
        solve::finish::<{ TOKENS / 2 }>(corr, out, req, begin, head, len, u, o, rq_i);
    }
}
