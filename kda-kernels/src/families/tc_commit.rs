//! Commit of compact records: the accepted tokens of a `tc_verify` become part of the states, in one pass over them.

/// One call applies `n` records of each request to its states, of every layer, and moves the windows of raw inputs along.
///
/// Contract: per layer, request b and head, with n = `counts[b]` records of key k_i, raw gate a_i and correction u_i,
/// ```text
/// kn_i = k_i / |k_i|   g_i = lower_bound sigmoid(exp(a_log)(a_i + dt_bias))   or  -exp(a_log) softplus(a_i + dt_bias)
/// S_n  = S diag(exp(g_0 + .. + g_(n-1))) + sum_i u_i (exp(g_(i+1) + .. + g_(n-1)) kn_i)^T     -> the destination
/// S_m  likewise, where 1 <= m <= n                                                         -> the boundary slot
/// ```
/// Decays are multiplied from the last token on, so every factor is at most 1 whatever the gates are. Everything is f32; a
/// state is rounded to its pool's type once, to nearest even. With a boundary S_n is computed from S_m before that is
/// rounded. Rows n-1 .. n+1 of the source's window become rows 0 .. 2 of the destination, rows m-1 .. m+1 those of the
/// boundary slot. A request of no records, or one of whose slots is nobody's, is left alone; more records than `window`
/// count as `window`.
#[kda_dsl::kernels(arch = [sm_80, sm_90], uses = [crate::device::math, crate::device::step])]
pub mod tc_commit {
    const K: u32 = 128;
    const V: u32 = 128;
    const HISTORY: u32 = 3; // rows of a window that are kept
    const THREADS: u32 = 128;
    const HALF: u32 = 80; // where the second four of eight columns lie: no two lanes of an access share a bank
    const MOST_SLOTS: u32 = 2_147_483_647;
    const MOST_ALONG: u32 = 65_535; // grid.y, grid.z
    // Columns of `layers`.
    const STATE_AT: u32 = 0;
    const CONV_AT: u32 = 1;
    const CORR_AT: u32 = 2;
    const KG_AT: u32 = 3;
    const A_LOG_AT: u32 = 4;
    const DT_BIAS_AT: u32 = 5;

    /// s += u_i w_i^T for the records first .. end: four rows of V, G groups of four columns of K.
    #[device]
    fn apply<const G: u32, const MOST: u32, const WIDE: u32, const ROWS: u32>(
        s: &mut [[[f32; 4]; G]; 4],
        keys: Shared<f32, Shape<MOST, WIDE>>,
        corrections: Shared<f32, Shape<MOST, ROWS>>,
        place: u32,
        row: u32,
        first: u32,
        end: u32,
    ) {
        for i in first..end {
            let u = corrections.at([i, row]).load_v::<4>();
            let w = from_fn::<G>(|g| keys.at([i, place + HALF * g]).load_v::<4>());
            #[unroll]
            for r in 0..4 {
                s[r] = fma(u[r], w, s[r]);
            }
        }
    }

    /// Four rows of a state, rounded to the type of its pool.
    #[device]
    fn put<STATE: Elem, const G: u32>(to: GlobalMut<STATE>, row: u32, column: u32, s: [[[f32; 4]; G]; 4]) {
        #[unroll]
        for r in 0..4 {
            to.at([row + r, column]).store_v(STATE::rn(from_fn::<{ 4 * G }>(|e| s[r][e / 4][e % 4])));
        }
    }

    /// A CTA owns ROWS rows of V of one (layer, request, head). The state is on its way while the records are read, a channel
    /// a thread; keys, decays and corrections pass through shared memory. Then a thread holds 16 bytes of a few rows.
    #[kernel(
        block = THREADS,
        grid = [heads * (V / ROWS), n_req, layer_count],
        min_blocks_per_sm = if MOST == 16 { 4 } else if ROWS * size_of::<STATE>() == 64 {
            if BOUNDARY { 6 } else if size_of::<STATE>() == 4 { 7 } else { 8 }
        } else if BOUNDARY || size_of::<STATE>() == 4 { 5 } else { 6 }
    )]
    // Slices of 8 or 16 KB of the state.
    #[variants((ROWS, STATE) in [(32, bf16), (64, bf16), (16, f32), (32, f32)], MOST in [8, 16], BOUNDARY in [false, true])]
    #[requires(window >= 1, window <= MOST, n_req <= rows)]
    #[requires(table == 0 && layer_count == 1 || table == layer_count)]
    #[requires(n_req <= MOST_ALONG, layer_count <= MOST_ALONG, null >= -1, slots <= MOST_SLOTS)]
    #[requires(slot_pitch % (16 / size_of::<STATE>()) == 0)]
    #[requires(corr_pitch % 4 == 0, corr_head % 4 == 0)]
    #[requires(token_pitch % 8 == 0, token_row % 8 == 0, token_part % 8 == 0)]
    #[requires(conv_rows == 0 || conv_rows == window + HISTORY - 1)]
    fn tc_commit<
        const ROWS: u32,      // of V a CTA
        STATE: Elem,          // of the state
        const MOST: u32,      // records that a request may have
        const BOUNDARY: bool, // states and windows ahead of the last record may be asked for, too
    >(
        #[dims(slots:slot_pitch, heads, V, K)] state: GlobalMut<STATE>,
        #[dims(rows:corr_pitch, heads:corr_head, window, V)] corr: Global<f32>,
        #[dims(rows, heads, window, 2, K)] kg: Global<bf16>,
        #[dims(heads)] a_log: Option<Global<f32>>,
        #[dims(heads, K)] dt_bias: Global<f32>,
        // Windows: a row a token, or a row a channel.
        #[dims(slots:token_pitch, conv_rows:token_row, 3:token_part, heads, K)] conv_token: Option<GlobalMut<bf16>>,
        #[dims(slots:channel_pitch, 3, heads, K, conv_rows)] conv_channel: Option<GlobalMut<bf16>>,
        #[dims(n_req)] slot_of: Global<i32>,
        #[dims(n_req)] destinations: Option<Global<i32>>,
        #[dims(n_req)] counts: Global<i32>,
        #[dims(n_req)] boundary_tokens: Option<Global<i32>>,
        #[dims(n_req)] boundary_slots: Option<Global<i32>>,
        #[dims(table, 6)] layers: Option<Global<u64>>, // addresses: state, conv, corr, kg, a_log, dt_bias
        layer_count: u32,
        null: i32,
        lower_bound: f32,
        bounded: bool, // the gate: bounded or softplus
    ) {
        const PIECE: u32 = 16 / size_of::<STATE>(); // elements of a 16-byte access
        const G: u32 = PIECE / 4; // groups of four columns a thread
        const LANES: u32 = K / PIECE; // threads that share a row
        const R: u32 = ROWS * LANES / THREADS; // rows a thread, which follow each other
        const WIDE: u32 = if G == 2 { HALF + K / 2 } else { K };
        const PARTS: u32 = V / ROWS;
        const FOURS: u32 = ROWS / 4;
        const COPIES: u32 = max(MOST * FOURS / THREADS, 1); // fours of corrections a thread
        const PIECES: u32 = 3 * K / 8 / PARTS; // of 16 bytes of a row of a window, a CTA
        const CHANNELS: u32 = 3 * K / PARTS; // of a window, a CTA

        // ---- Shared memory
        let keys = smem::<f32, Shape<MOST, WIDE>>(); // decayed to the boundary or the end
        let decays = smem::<f32, Shape<2, WIDE>>(); // of the state up to the boundary or the end, and from there on
        let corrections = smem::<f32, Shape<MOST, ROWS>>();
        let squares = smem::<f32, Shape<MOST, 4>>(); // sums of k^2, a warp each

        // ---- Who
        if const { ARCH >= sm_90 } {
            pdl::wait();
            pdl::launch_dependents();
        }
        let (head, part) = (ctaid.x / PARTS, ctaid.x % PARTS);
        let (b, layer) = (ctaid.y, ctaid.z);
        let many = layers.is_present();
        let from_slot = slot_of[b];
        let other_slot = destinations.at([b]).load();
        let given = counts[b];
        let (mark, mark_slot) =
            if const { BOUNDARY } { (boundary_tokens.at([b]).load(), boundary_slots.at([b]).load()) } else { (0, 0) };
        let states = state.based_at_if(many, layers.at([layer, STATE_AT]).load());
        let tokens = conv_token.based_at_if(many, layers.at([layer, CONV_AT]).load());
        let channels = conv_channel.based_at_if(many, layers.at([layer, CONV_AT]).load());
        let all_corr = corr.based_at_if(many, layers.at([layer, CORR_AT]).load());
        let all_kg = kg.based_at_if(many, layers.at([layer, KG_AT]).load());
        let rates = a_log.based_at_if(many, layers.at([layer, A_LOG_AT]).load());
        let biases = dt_bias.based_at_if(many, layers.at([layer, DT_BIAS_AT]).load());

        let to_slot = select(destinations.is_present(), other_slot, from_slot);
        if given <= 0 || !step::is_live(from_slot, null, slots) || !step::is_live(to_slot, null, slots) {
            return;
        }
        let n = min(given as u32, window);
        let halts = const { BOUNDARY } && mark >= 1 && mark <= n as i32 && step::is_live(mark_slot, null, slots);
        let m = if const { BOUNDARY } { select(halts, mark as u32, 0) } else { 0 };

        // ---- Loads, all in flight together: source order is issue order
        let lk = tid % LANES;
        let row = tid / LANES * R; // first one, of the CTA's
        let (first_row, column) = (part * ROWS + row, PIECE * lk);
        let from = states.at([from_slot, head, first_row.., column..]).hint(NO_ALLOCATE);
        let old = from_fn::<R>(|r| from.at([r, 0]).load_v::<PIECE>());
        let records = all_kg.at([b, head]);
        let key = from_fn::<MOST>(|i| records.at([i, 0, tid]).load_if(i < n));
        let gate = from_fn::<MOST>(|i| records.at([i, 1, tid]).load_if(i < n));
        let u = from_fn::<COPIES>(|i| {
            let at = tid + THREADS * i;
            let here = all_corr.at([b, head, at / FOURS, part * ROWS + at % FOURS * 4]);
            here.load_v_if::<4>(at / FOURS < n)
        });
        let rate = rates.at([head]).load();
        let bias = biases.at([head, tid]).load();
        // Windows in rows of tokens: 16 bytes a thread. Nothing moves where row 0 of a window becomes row 0 of the same.
        let piece = part * PIECES + tid;
        let (of, channel) = (piece / (K / 8), piece % (K / 8) * 8);
        let moves = (n != 1 || from_slot != to_slot) && tid < PIECES;
        let kept = from_fn::<HISTORY>(|i| tokens.at([from_slot, n - 1 + i, of, head, channel]).load_v_if::<8>(moves));

        // ---- Windows: whoever reads a channel writes it, so that slots may be the same
        if const { BOUNDARY } {
            if halts && tid < PIECES {
                let early = from_fn::<HISTORY>(|i| tokens.at([from_slot, m - 1 + i, of, head, channel]).load_v::<8>());
                #[unroll]
                for i in 0..HISTORY {
                    tokens.at([mark_slot, i, of, head, channel]).store_v(early[i]);
                }
            }
        }
        #[unroll]
        for i in 0..HISTORY {
            tokens.at([to_slot, i, of, head, channel]).store_v_if(moves, kept[i]);
        }
        if channels.is_present() {
            for c in (tid..CHANNELS).step_by(THREADS) {
                let at = part * CHANNELS + c;
                let window_of = channels.at([from_slot, at / K, head, at % K]);
                let kept = from_fn::<HISTORY>(|i| window_of.at([n - 1 + i]).load());
                if const { BOUNDARY } {
                    let early = from_fn::<HISTORY>(|i| window_of.at([m - 1 + i]).load_if(halts));
                    #[unroll]
                    for i in 0..HISTORY {
                        channels.at([mark_slot, at / K, head, at % K, i]).store_if(halts, early[i]);
                    }
                }
                #[unroll]
                for i in 0..HISTORY {
                    channels.at([to_slot, at / K, head, at % K, i]).store(kept[i]);
                }
            }
        }

        // ---- Records: a channel a thread
        let z = from_fn::<MOST>(|i| gate[i] as f32 + bias);
        let decay = if bounded {
            from_fn::<MOST>(|i| step::decay(true, lower_bound, rate, z[i]))
        } else {
            from_fn::<MOST>(|i| step::decay(false, lower_bound, rate, z[i]))
        };
        let k = from_fn::<MOST>(|i| key[i] as f32);
        let sums = math::sums::<5, MOST, 1>(from_fn::<MOST>(|i| k[i] * k[i]), math::NORM_STRIDES);
        let (mine, leads) = math::position::<5, MOST, 1>(math::NORM_STRIDES);
        #[unroll]
        for i in 0..COPIES {
            let at = tid + THREADS * i;
            corrections.at([at / FOURS, at % FOURS * 4]).store_v_if(at < MOST * FOURS, u[i]);
        }
        squares.at([mine, warp]).store_if(leads, sums[0]);
        cta_sync();

        // ---- Running products, from the last record on; they begin anew ahead of the boundary
        let mine_at = if const { G == 2 } { tid / 4 % 2 * HALF + tid / 8 * 4 + tid % 4 } else { tid };
        let mut run = 1.0;
        let mut behind = 1.0;
        #[unroll]
        for back in 0..MOST {
            const I: u32 = MOST - 1 - back;
            if const { BOUNDARY } {
                let ends = I + 1 == m;
                behind = select(ends, run, behind);
                run = select(ends, 1.0, run);
            }
            keys[[I, mine_at]] = k[I] * step::inverse_norm(squares.at([I, 0]).load_v::<4>()) * run;
            run = select(I < n, run * decay[I], run);
        }
        decays[[0, mine_at]] = run;
        if const { BOUNDARY } {
            decays[[1, mine_at]] = behind;
        }
        cta_sync();

        // ---- States: four rows at a time
        let place = 4 * lk;
        let all = from_fn::<G>(|g| decays.at([0, place + HALF * g]).load_v::<4>());
        let to = states.at([to_slot, head]);
        let to_mark = states.at([mark_slot, head]);
        #[unroll]
        for block in 0..R / 4 {
            let mut s = from_fn::<4>(|r| {
                from_fn::<G>(|g| from_fn::<4>(|e| (old[4 * block + r][4 * g + e] as f32) * all[g][e]))
            });
            let mut done: u32 = 0;
            if const { BOUNDARY } {
                if halts {
                    apply::<G, MOST, WIDE, ROWS>(&mut s, keys, corrections, place, row + 4 * block, 0, m);
                    put::<STATE, G>(to_mark, first_row + 4 * block, column, s);
                    let rest = from_fn::<G>(|g| decays.at([1, place + HALF * g]).load_v::<4>());
                    #[unroll]
                    for r in 0..4 {
                        s[r] = s[r] * rest;
                    }
                    done = m;
                }
            }
            apply::<G, MOST, WIDE, ROWS>(&mut s, keys, corrections, place, row + 4 * block, done, n);
            put::<STATE, G>(to, first_row + 4 * block, column, s);
        }
    }
}
