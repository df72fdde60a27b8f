//! Verify of T draft tokens: causal conv1d + SiLU, q/k norm, gate, gated delta rule, with snapshots to roll back to.

/// One call verifies `tokens` tokens of `n_req` requests. The state pool is read only.
///
/// Contract: per request n, value head hv (q/k head h = hv / (vheads / heads)) and token t,
/// ```text
/// y = bf16(silu(bias + sum_j w[j] x[t-3+j]))         q = y_q / |y_q| * scale   k = y_k / |y_k|   v = y_v
/// g = lower_bound sigmoid(exp(a_log)(a + dt_bias))   or  -exp(a_log) softplus(a + dt_bias)
/// S <- S exp(g);  u = sigmoid(b) (v - S k);  S <- S + u k^T;  out = bf16(S q)
/// ```
/// Rounding: y once to bf16, out once to bf16, everything else f32. Sums over K and sums of squares follow one tree in
/// every variant, so bits depend neither on the variant nor on the batch.
#[kda_dsl::kernels(arch = sm_90, uses = [crate::device::math, crate::device::step])]
pub mod conv_verify {
    const K: u32 = 128;
    const V: u32 = 128;
    const TAPS: u32 = 3; // history columns; the fourth tap is the token itself
    const WINDOW: u32 = TAPS * K; // elements of a window of one head
    const MOST_SLOTS: u32 = 2_147_483_647;
    const MOST_REQUESTS: u32 = 65_535; // grid.y

    /// A CTA owns BV rows of V of one (request, value head). Phase 1: four roles of four warps make q, k, v and the decay
    /// of every token, a channel a thread. Then, behind one CTA barrier, the recurrence: LANES lanes share the K of a row.
    /// q and k stay unnormalised in shared memory; the norms are scalars, folded into u and out.
    #[kernel(block = 512, grid = [vheads * (V / BV), n_req], min_blocks_per_sm = CTAS)]
    #[roles(q = 0..4, k = 4..8, v = 8..12, gate = 12..16)]
    #[variants(
        // 8 lanes a row where latency counts; 32 lanes where bandwidth does: 512 contiguous bytes a warp store.
        (BV, LANES, CTAS) in [
            (8, 8, 1), (16, 8, 2), (32, 8, 1), (32, 8, 2), (64, 32, 1), (64, 32, 2), (128, 32, 1), (128, 32, 2)
        ],
        // What engines run comes first: fp32 [D, 3] and bf16 [3, D].
        (POOL, INNER) in [(f32, false), (bf16, true), (f32, true), (bf16, false)],
        (T, LONG) in [(1, false), (2, false), (3, false), (4, false), (5, false), (6, false), (7, false), (8, false), (8, true)],
        skip_if(LONG && (CTAS == 2 || BV == 8 || BV == 64)),
        skip_if(INNER == (size_of::<POOL>() == 4) && !LONG && (BV != 64 || CTAS != 2 || T != 2 && T != 4 && T != 8))
    )]
    #[requires(LONG || tokens == T, tokens >= 1, vheads % heads == 0, d == 2 * heads * K + vheads * V)]
    #[requires(n_req <= MOST_REQUESTS)]
    #[requires(null >= -1)]
    #[requires(lines <= MOST_SLOTS, slots <= MOST_SLOTS, snapshot_len <= MOST_SLOTS)]
    #[requires(state_rows == 0 || (state_steps >= tokens && (by_batch && state_rows >= n_req || !by_batch && state_rows >= snapshot_len)))]
    #[requires(window_rows == 0 || (window_steps >= tokens && window_rows >= snapshot_len))]
    #[requires(slot_pitch % 4 == 0, state_row_pitch % 4 == 0, state_step_pitch % 4 == 0)]
    #[requires(out_row_pitch % 8 == 0, out_pitch % 8 == 0)]
    #[requires(line_pitch % (16 / size_of::<POOL>()) == 0, window_pitch % (16 / size_of::<POOL>()) == 0, window_step % (16 / size_of::<POOL>()) == 0)]
    // Conv pool and windows are [3, D] or [D, 3] in memory, both the same; an absent tensor has strides 0.
    #[requires(!INNER || channel_pitch <= 1 && window_channel <= 1 && tap_pitch % (16 / size_of::<POOL>()) == 0 && window_tap % (16 / size_of::<POOL>()) == 0)]
    #[requires(INNER || tap_pitch <= 1 && window_tap <= 1)]
    #[requires(INNER || channel_pitch % TAPS == 0 && channel_pitch <= TAPS && window_channel % TAPS == 0 && window_channel <= TAPS)]
    fn conv_verify<
        const T: u32,      // tokens of a pass
        const LONG: bool,  // several passes
        const BV: u32,     // rows of V a CTA
        const LANES: u32,  // lanes that share a row
        const CTAS: u32,   // CTAs an SM
        POOL: Elem,        // type of convolution pool and windows
        const INNER: bool, // these are [3, D], not [D, 3]
    >(
        #[dims(n_req, tokens, d)] x: Global<bf16>,
        #[dims(n_req, tokens, vheads, K)] a: Global<bf16>,
        #[dims(n_req, tokens, vheads)] b: Global<bf16>,
        #[dims(d, TAPS + 1; stable)] taps_f32: Option<Global<f32>>,
        #[dims(d, TAPS + 1; stable)] taps_bf16: Option<Global<bf16>>,
        #[dims(d; stable)] conv_bias: Option<Global<f32>>,
        #[dims(vheads; stable)] a_log: Option<Global<f32>>,
        #[dims(vheads, K; stable)] dt_bias: Global<f32>,
        #[dims(n_req:conv_slot_pitch; stable)] conv_slots: Global<i32>,
        #[dims(n_req:state_slot_pitch; stable)] state_slots: Global<i32>,
        #[dims(n_req:snapshot_row_pitch; stable)] snapshot_rows: Global<i32>,
        #[dims(lines:line_pitch, d:channel_pitch, TAPS:tap_pitch; stable)] conv: GlobalMut<POOL>,
        #[dims(slots:slot_pitch, vheads, V, K; stable)] state: Global<f32>,
        #[dims(state_rows:state_row_pitch, state_steps:state_step_pitch, vheads, V, K)] states_out: Option<
            GlobalMut<f32>,
        >,
        #[dims(window_rows:window_pitch, window_steps:window_step, d:window_channel, TAPS:window_tap)]
        windows_out: Option<GlobalMut<POOL>>,
        #[dims(n_req:out_row_pitch, tokens:out_pitch, vheads, V)] out: GlobalMut<bf16>,
        #[dims(n_req, heads)] arrivals: GlobalMut<u32>,
        snapshot_len: u32,
        null: i32,
        scale: f32,
        lower_bound: f32,
        bounded: bool,     // the gate: bounded or softplus
        roll: bool,        // the newest inputs replace the history
        by_batch: bool,    // states_out is indexed by the request, not by snapshot_rows
        early: bool,       // indices and pools are read ahead of the wait for the predecessor
        evict_first: bool, // snapshots leave L2 first
    ) {
        const G: u32 = 32 / LANES; // groups of four channels a lane holds, and rows a warp touches at once
        const STEP: u32 = min(BV, 16 * G); // rows the CTA touches at once
        const R: u32 = BV / STEP; // rows a thread: 1 (8 lanes), 4 or 8 (32 lanes)
        // One row a thread: S q of a token is reduced together with S k of the next, which shortens the chain. With more rows
        // it is reduced at once, which needs fewer registers.
        const MERGED: bool = R == 1;
        const N: u32 = if MERGED { 2 } else { R }; // sums in flight
        const KEEP: u32 = if MERGED { 2 } else { 1 }; // of these, known to every lane
        const STEPS: u32 = log2(LANES);
        // k and decay of the next token are loaded ahead where registers allow it.
        const AHEAD: bool = CTAS == 1 || BV == 64;
        // A CTA alone on its multiprocessor hides nothing behind another's stores: bring the tokens into L2 early.
        const FETCH: bool = CTAS == 1 && BV >= 64;
        // Loads of the tokens stand ahead of the roles' branch where bandwidth counts, as far as registers allow; in the roles
        // where fewer instructions count more.
        const HOIST: bool = !LONG && BV >= 64 && (CTAS == 1 || BV == 64 || T <= 4);
        const PADDED: u32 = if T == 1 {
            1
        } else if T == 2 {
            2
        } else if T <= 4 {
            4
        } else {
            8
        };
        const UNIT: u32 = size_of::<POOL>() * if INNER { 1 } else { TAPS }; // bytes a channel of a copy
        // Inputs of one head in shared memory. [3, D]: a row a token behind two of the history, so that the windows of
        // neighbours overlap. [D, 3]: a window a token.
        const STREAM: u32 = T + TAPS;
        const INPUTS: u32 = if INNER { (T + 2) * K } else { T * TAPS * K };

        // ---- Shared memory
        let qkv = smem::<f32, Shape<3, T, K>>(); // q, k, v after SiLU
        let decays = smem::<f32, Shape<T, K>>();
        let betas = smem::<f32, Shape<T>>();
        let squares = smem::<f32, Shape<2, T, 4>>(); // sums of y^2 of q and k, a warp each
        let inputs = smem::<POOL, Shape<3, INPUTS>>();
        let outs = smem::<bf16, Shape<T, BV>>();

        // ---- Who
        let tile = ctaid.x % (V / BV);
        let (n, hv) = (ctaid.y, ctaid.x / (V / BV));
        // Without groups no division delays the first loads.
        let (mut h, mut per_head, mut first_of_group) = (hv, 1, true);
        if vheads != heads {
            per_head = vheads / heads;
            (h, first_of_group) = (hv / per_head, hv % per_head == 0);
        }
        let v0 = tile * BV;
        let sharers = per_head * (V / BV); // CTAs that read the history of q and k of this head
        let owner = tile == 0 && first_of_group; // of these, the one that stores the windows of q and k
        let (q0, k0, c0) = (h * K, (heads + h) * K, (2 * heads + hv) * K + v0); // first channels
        let c = tid % K;
        let on = role != v || c < BV;
        let channel = c + select(role == q, q0, select(role == k, k0, c0));
        let (conv_role, gate_role) = (on && role != gate, role == gate);

        // ---- First loads. The longest chain of the kernel begins with the indices; nothing among these loads waits for another
        // one's value. What is read behind the wait for the predecessor is brought into L2 ahead of it.
        if !early {
            if const { FETCH && BV == 128 } {
                prefetch_tokens::<T>(x, a, b, n, tokens, hv, channel, c, gate_role, role != v || c - lane < BV);
            }
            pdl::wait();
        }
        let (line, slot) = (conv_slots[n], state_slots[n]);
        let (lk, r0) = (lane % LANES, warp * G + lane / LANES);
        // First channels of the groups of four that a lane holds: neighbours in the tree's first steps meet in one lane.
        let at = from_fn::<G>(|g| 4 * (lk % 8 + 8 * G * (lk / 8) + 8 * g));
        let narrow_taps = taps_bf16.is_present();
        let wide_taps = taps_f32.at([channel, 0]).load_v_if::<4>(conv_role);
        let packed_taps = taps_bf16.at([channel]).cast::<u32>().at([0]).load_v_if::<2>(conv_role);
        let bias = conv_bias.at([channel]).load_if(conv_role);
        let real = step::is_live(line, null, lines) && step::is_live(slot, null, slots);
        let past = real && conv_role;
        let loaded = from_fn::<TAPS>(|j| conv.at([line as u32, channel, j]).load_if(past));
        let active = warp < STEP / G;
        let head = state.at([slot as u32, hv]).hint(NO_ALLOCATE);
        let mut s =
            from_fn::<R>(|r| from_fn::<G>(|g| head.at([v0 + STEP * r + r0, at[g]]).load_v_if::<4>(real && active)));
        if const { FETCH } && early {
            prefetch_tokens::<T>(x, a, b, n, tokens, hv, channel, c, gate_role, role != v || c - lane < BV);
        }
        pdl::wait();
        pdl::launch_dependents();
        let (conv_now, gate_now) = (conv_role && HOIST, gate_role && HOIST);
        let hoisted_x = from_fn::<T>(|t| x.at([n, t, channel]).load_if(conv_now));
        let hoisted_a = from_fn::<T>(|t| a.at([n, t, hv, c]).load_if(gate_now));
        let hoisted_b = b.at([n, c, hv]).load_if(gate_now && c < T);
        let mut snap = snapshot_rows.at([n]).load_if(HOIST);
        if !real {
            for i in (tid..tokens * BV).step_by(512) {
                out.at([n, i / BV, hv, v0 + i % BV]).store(bf16::ZERO);
            }
            return;
        }
        let policy = l2::evict_first_if(evict_first);
        let mut history = from_fn::<TAPS>(|j| loaded[j] as f32);

        for base in (0..tokens).step_by(T) {
            let len = min(T, tokens - base); // T unless LONG
            let last = base + len == tokens;

            // ---- Phase 1: a channel a thread
            #[role(q, k, v)]
            {
                let part = role;
                let raw = if const { HOIST } {
                    hoisted_x
                } else {
                    from_fn::<T>(|t| x.at([n, base + t, channel]).load_if(on && t < len))
                };
                if const { !HOIST } {
                    snap = snapshot_rows[n]; // behind the tokens: its value is waited for at once
                }
                let mut total = from_fn::<PADDED>(|t| 0.0);
                let stream = from_fn::<STREAM>(|i| if const { i < TAPS } { history[i] } else { raw[i - TAPS] as f32 });
                // One branch for all tokens, so that their chains overlap.
                let sums = if narrow_taps {
                    let w = step::unpack(packed_taps);
                    from_fn::<T>(|t| {
                        math::chain_rounded(bias, w, [stream[t], stream[t + 1], stream[t + 2], stream[t + 3]])
                    })
                } else {
                    from_fn::<T>(|t| {
                        math::chain(bias, wide_taps, [stream[t], stream[t + 1], stream[t + 2], stream[t + 3]])
                    })
                };
                if on {
                    #[unroll]
                    for t in 0..T {
                        let y = bf16::rn(math::silu(sums[t])) as f32;
                        qkv[[part, t, c]] = y;
                        total[t] = select(t < len, y * y, 0.0);
                    }
                    if const { INNER } {
                        #[unroll]
                        for i in 0..STREAM - 1 {
                            inputs[[part, i * K + c]] = step::as_pool::<POOL>(stream[i + 1]);
                        }
                    } else {
                        #[unroll]
                        for t in 0..T {
                            if part == 2 || owner || t + 1 == len {
                                #[unroll]
                                for j in 0..TAPS {
                                    inputs[[part, t * WINDOW + TAPS * c + j]] =
                                        step::as_pool::<POOL>(stream[t + 1 + j]);
                                }
                            }
                        }
                    }
                }
                history = [stream[T], stream[T + 1], stream[T + 2]]; // for the next pass, which follows only a full one
                let sum = math::sums::<5, PADDED, 1>(total, math::NORM_STRIDES)[0];
                let (token, first) = math::position::<5, PADDED, 1>(math::NORM_STRIDES);
                if part < 2 && first && token < T {
                    squares[[part, token, warp % 4]] = sum;
                }
            }
            #[role(gate)]
            {
                let (rate, gate_bias) = (a_log.at([hv]).load(), dt_bias.at([hv, c]).load());
                let (raw, strength) = if const { HOIST } {
                    (hoisted_a, hoisted_b)
                } else {
                    let raw = from_fn::<T>(|t| a.at([n, base + t, hv, c]).load_if(t < len));
                    (raw, b.at([n, base + c, hv]).load_if(c < len))
                };
                if const { !HOIST } {
                    snap = snapshot_rows[n];
                }
                if bounded {
                    #[unroll]
                    for t in 0..T {
                        decays[[t, c]] = step::decay(true, lower_bound, rate, raw[t] as f32 + gate_bias);
                    }
                } else {
                    #[unroll]
                    for t in 0..T {
                        decays[[t, c]] = step::decay(false, lower_bound, rate, raw[t] as f32 + gate_bias);
                    }
                }
                if c < len {
                    betas[[c]] = math::sigmoid(strength as f32);
                }
            }
            let mut arrived: u32 = 0;
            cta_sync();

            // ---- Windows and roll of v: a lane a copy, three copies a token where the channels are innermost
            if warp == 15 {
                let (t, j) = if const { INNER } { (lane / 4, lane % 4) } else { (lane, 0) };
                let from = if const { INNER } { (t + j) * K } else { t * WINDOW };
                let piece = t < len && j < TAPS;
                if step::is_live(snap, null, snapshot_len) && piece {
                    let to = windows_out.at([snap, base + t]);
                    bulk::store(to.at([c0, j]), inputs.at([2, from]), BV * UNIT);
                    if owner {
                        bulk::store(to.at([q0, j]), inputs.at([0, from]), K * UNIT);
                        bulk::store(to.at([k0, j]), inputs.at([1, from]), K * UNIT);
                    }
                }
                // Nobody else reads the history of these v channels, and this CTA has.
                if roll && last && piece && t + 1 == len {
                    bulk::store(conv.at([line, c0, j]), inputs.at([2, from]), BV * UNIT);
                }
                // The history of q and k is read by every CTA of the head. Each arrives once it has read (the CTA barrier
                // lies between); the last one to arrive acquires what the others released, and rolls. The counter wraps
                // to zero, so that the next launch finds it as this one did.
                if roll && last && sharers > 1 && lane == 0 {
                    arrived = arrivals.at([n, h]).inc_wrap(sharers - 1, ACQ_REL);
                }
            }

            // ---- Recurrence
            if active {
                let strides = from_fn::<STEPS>(|i| min(math::GROUP_STRIDES[5 - STEPS + i], LANES / 2));
                let (snapshot, keep) = (select(by_batch, n as i32, snap), step::is_live(snap, null, snapshot_len));
                let (mine, leads) = math::position::<STEPS, N, KEEP>(strides);
                let my_row = r0 + STEP * (if const { MERGED } { 0 } else { mine });
                let mut parts = from_fn::<N>(|i| 0.0);
                let mut query_norm = 0.0;
                let mut key = from_fn::<G>(|g| qkv.at([1, 0, at[g]]).load_v::<4>());
                let mut decay = from_fn::<G>(|g| decays.at([0, at[g]]).load_v::<4>());
                #[unroll(if BV == 8 && T > 4 { T } else { 1 })]
                for t in 0..len {
                    let next = min(t + 1, len - 1);
                    let qq = squares.at([0, t, 0]).load_v::<4>();
                    let key_norm = step::inverse_norm(squares.at([1, t, 0]).load_v::<4>());
                    let strength = betas[[t]] * key_norm;
                    let c1 = strength * qkv[[2, t, my_row]];
                    let c2 = -strength * key_norm;
                    if const { !AHEAD } {
                        key = from_fn::<G>(|g| qkv.at([1, t, at[g]]).load_v::<4>());
                        decay = from_fn::<G>(|g| decays.at([t, at[g]]).load_v::<4>());
                    }
                    let key_now = key;
                    #[unroll]
                    for r in 0..R {
                        s[r] *= decay;
                        parts[r] = math::dot(s[r], key_now);
                    }
                    if const { AHEAD } {
                        key = from_fn::<G>(|g| qkv.at([1, next, at[g]]).load_v::<4>());
                        decay = from_fn::<G>(|g| decays.at([next, at[g]]).load_v::<4>());
                    }
                    let query = from_fn::<G>(|g| qkv.at([0, t, at[g]]).load_v::<4>());
                    let z = math::sums::<STEPS, N, KEEP>(parts, strides);
                    if const { MERGED } {
                        if t > 0 && leads {
                            out.at([n, base + t - 1, hv, v0 + my_row]).store(bf16::rn(z[1] * query_norm));
                        }
                    }
                    query_norm = step::inverse_norm(qq) * scale;
                    let u = fma(c2, z[0], c1);
                    let mut outputs = from_fn::<R>(|r| 0.0);
                    #[unroll]
                    for r in 0..R {
                        let from = math::holder::<STEPS, N, { r }>(strides)
                            + if const { LANES == 32 } { 0 } else { lane - lk };
                        let ur = if const { MERGED } { u } else { shfl(u, from) };
                        s[r] = fma(ur, key_now, s[r]);
                        #[unroll]
                        for g in 0..G {
                            let to = states_out.at([snapshot, base + t, hv, v0 + STEP * r + r0, at[g]]);
                            to.hint(policy).store_v_if(keep, s[r][g]); // the value the next token uses
                        }
                        outputs[r] = math::dot(s[r], query);
                    }
                    if const { MERGED } {
                        parts[1] = outputs[0];
                    } else {
                        let o = math::sums::<STEPS, N, KEEP>(outputs, strides)[0];
                        if leads {
                            outs[[t, my_row]] = bf16::rn(o * query_norm);
                        }
                    }
                }
                if const { MERGED } {
                    let z = math::sums::<STEPS, N, KEEP>(parts, strides);
                    if leads {
                        out.at([n, base + len - 1, hv, v0 + my_row]).store(bf16::rn(z[1] * query_norm));
                    }
                }
            }

            // ---- Epilogue
            if const { !MERGED } {
                cta_sync(); // out leaves in 16-byte pieces
                if tid < len * (BV / 8) {
                    let (t, e) = (tid / (BV / 8), tid % (BV / 8) * 8);
                    let low = outs.at([t, e]).load_v::<4>();
                    let high = outs.at([t, e + 4]).load_v::<4>();
                    let piece = from_fn::<8>(|i| if i < 4 { low[i] } else { high[i - 4] });
                    out.at([n, base + t, hv, v0 + e]).store_v(piece);
                }
            }
            if warp == 15 {
                warp_sync(); // what lane 0 has acquired holds for the lanes that copy
                if roll && last && shfl(arrived, 0) == sharers - 1 {
                    let (part, j) = (lane % 2, lane / 2); // q, then k
                    if j < if const { INNER } { TAPS } else { 1 } {
                        let from = if const { INNER } { (len - 1 + j) * K } else { (len - 1) * WINDOW };
                        bulk::store(conv.at([line, (part * heads + h) * K, j]), inputs.at([part, from]), K * UNIT);
                    }
                }
                bulk::commit();
                bulk::wait_read::<0>();
            }
            if const { LONG } {
                cta_sync(); // the next pass overwrites shared memory
            }
        }
    }

    /// Brings what the warp reads of the first T tokens into L2: a line a lane.
    #[device]
    fn prefetch_tokens<const T: u32>(
        x: Global<bf16>,
        a: Global<bf16>,
        b: Global<bf16>,
        n: u32,
        tokens: u32,
        hv: u32,
        channel: u32,
        c: u32,
        gate: bool,
        on: bool,
    ) {
        if lane < min(T, tokens) {
            if gate {
                l2::prefetch(a.at([n, lane, hv, c - lane]));
                l2::prefetch(b.at([n, lane, hv]));
            } else if on {
                l2::prefetch(x.at([n, lane, channel - lane]));
            }
        }
    }
}
