//! Decode of one token: causal conv1d + SiLU or given q, k, v; q/k norm, gate, gated delta rule; the state is updated in
//! place.

/// One call decodes one token of `n_req` requests and writes the state pool where it read it, or at slots of its own.
///
/// Contract: per request n and value head hv (q/k head h = hv / (vheads / heads)),
/// ```text
/// y = bf16(silu(bias + sum_j w[j] x[j - 3]))  with taps, and the history rolls;  y = the given q, k, v  without
/// q = y_q / |y_q| * scale   k = y_k / |y_k|   v = y_v
/// g = lower_bound sigmoid(exp(a_log)(a + dt_bias))   or  -exp(a_log) softplus(a + dt_bias)
/// S <- S exp(g);  u = sigmoid(b) (v - S k);  S <- S + u k^T;  out = bf16(S q)
/// ```
/// Rounding: y once to bf16, out once to bf16, a bf16 state once to bf16 behind out; everything else f32. Sums follow the
/// trees of `conv_verify`, so a verify of T tokens gives the bits of T decodes, and bits depend neither on the variant, nor
/// on the order of the state, nor on the batch.
#[kda_dsl::kernels(arch = sm_90, uses = [crate::device::math, crate::device::step])]
pub mod decode {
    const K: u32 = 128;
    const V: u32 = 128;
    const TAPS: u32 = 3; // history columns; the fourth tap is the token itself
    const WINDOW: u32 = TAPS * K; // elements of a window of one head
    const MOST_SLOTS: u32 = 2_147_483_647;
    const MOST_REQUESTS: u32 = 65_535; // grid.y
    const GATE: u32 = 3; // the part behind q, k and v

    /// The part of a sum over K that a lane of a row holds: G groups in pieces of P; strides 8 and 16 stay inside the lane,
    /// and stride 1 where a piece has two groups.
    #[device]
    fn within<const G: u32, const P: u32>(a: [[f32; 4]; G], b: [[f32; 4]; G]) -> f32 {
        let group = from_fn::<G>(|i| math::chain(0.0, a[i], b[i]));
        let part = from_fn::<P>(|i| {
            if const { G == P } { group[i] } else { (group[i] + group[i + P]) + (group[i + 2 * P] + group[i + 3 * P]) }
        });
        if const { P == 1 } { part[0] } else { part[0] + part[1] }
    }

    /// Writes the sums over a unit's groups of C columns.
    #[device]
    fn share<const C: u32, const G: u32, const UNITS: u32, const BV: u32>(
        partials: Shared<f32, Shape<32, BV>>,
        unit: u32,
        column: u32,
        s: [[[f32; C]; 4]; G],
        b: [[f32; 4]; G],
    ) {
        let sums = from_fn::<C>(|i| {
            let group = from_fn::<G>(|g| math::chain(0.0, from_fn::<4>(|e| s[g][e][i]), b[g]));
            if const { G == 1 } {
                group[0]
            } else if const { G == 2 } {
                group[0] + group[1]
            } else {
                (group[0] + group[1]) + (group[2] + group[3])
            }
        });
        #[unroll]
        for i in 0..C / 4 {
            partials.at([unit, column + 4 * i]).store_v(from_fn::<4>(|e| sums[4 * i + e]));
        }
    }

    /// What is left of the tree: the sums of 8, 16 or 32 units, by the strides that units lie apart.
    #[device]
    fn tree<const UNITS: u32, const N: u32>(parts: [[f32; N]; UNITS]) -> [f32; N] {
        let eight = from_fn::<8>(|i| {
            if const { UNITS == 8 } {
                parts[i]
            } else if const { UNITS == 16 } {
                parts[i] + parts[i + 8]
            } else {
                (parts[i] + parts[i + 8]) + (parts[i + 16] + parts[i + 24])
            }
        });
        ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]))
    }

    /// A CTA owns BV rows of V of one (request, value head). The role `delta` makes q, k, v and the decay, a channel a thread and
    /// a part, while the state is on its way; then, behind its barrier, it applies the delta rule. The mover rolls histories
    /// meanwhile.
    ///
    /// State `[V, K]`: LANES lanes share the K of a row and sum by shuffles. State `[K, V]`: a thread holds columns of V and
    /// whole groups of four K; partial sums meet in shared memory, in the order of the same tree.
    #[kernel(block = THREADS + 32 * EXTRA, grid = [vheads * (V / BV), n_req], min_blocks_per_sm = CTAS)]
    #[variants(
        (BV, LANES, THREADS, EXTRA, CTAS, STATE, K_FIRST) in [
            (8, 32, 128, 1, 4, f32, false),
            (16, 8, 128, 1, 4, f32, false),
            (32, 8, 128, 1, 4, f32, false),
            (64, 8, 128, 1, 2, f32, false),
            (32, 8, 256, 1, 3, f32, false),
            (64, 8, 256, 1, 2, f32, false),
            (64, 32, 256, 0, 3, f32, false),
            (128, 8, 512, 0, 1, f32, false),
            (128, 32, 512, 0, 1, f32, false),
            (128, 32, 512, 0, 2, f32, false),
            (128, 32, 256, 0, 2, f32, false),
            (32, 4, 128, 1, 4, bf16, false),
            (64, 4, 256, 0, 2, bf16, false),
            (128, 4, 256, 0, 2, bf16, false),
            (16, 1, 128, 0, 5, f32, true),
            (32, 1, 128, 0, 4, f32, true),
            (64, 1, 256, 0, 2, f32, true),
            (128, 1, 256, 0, 2, f32, true),
            (32, 1, 128, 0, 4, bf16, true),
            (64, 1, 256, 0, 2, bf16, true),
            (128, 1, 256, 0, 2, bf16, true),
        ]
    )]
    #[requires(vheads == heads * per_head, d == 0 || d == 2 * heads * K + vheads * V)]
    #[requires(n_req <= MOST_REQUESTS, null >= -1)]
    #[requires(lines <= MOST_SLOTS, slots <= MOST_SLOTS)]
    #[requires(slot_pitch % (16 / size_of::<STATE>()) == 0)]
    #[requires(line_pitch_f32 % 4 == 0, line_pitch_bf16 % 8 == 0)]
    // Histories are [D, 3], or [3, D].
    #[requires(channel_step == TAPS && tap_step == 1 || channel_step == 1 && tap_step % 8 == 0)]
    fn decode<
        const K_FIRST: bool, // the state is [K, V], not [V, K]
        STATE: Elem,         // of the state
        const THREADS: u32,  // that hold the state
        const BV: u32,       // rows of V a CTA
        const LANES: u32,    // lanes that share a row of [V, K]; 1 for [K, V]
        const EXTRA: u32,    // warps that do nothing but roll: 1, or 0 where the last one of the others rolls
        const CTAS: u32,     // CTAs an SM
    >(
        #[dims(n_req:q_pitch, heads, K)] q: Global<bf16>,
        #[dims(n_req:k_pitch, heads, K)] k: Global<bf16>,
        #[dims(n_req:v_pitch, vheads, V)] v: Global<bf16>,
        #[dims(n_req:gate_pitch_bf16, vheads, K)] g_bf16: Option<Global<bf16>>,
        #[dims(n_req:gate_pitch_f32, vheads, K)] g_f32: Option<Global<f32>>,
        #[dims(n_req:beta_pitch, vheads)] beta: Global<bf16>,
        #[dims(d, TAPS + 1; stable)] taps_f32: Option<Global<f32>>,
        #[dims(d, TAPS + 1; stable)] taps_bf16: Option<Global<bf16>>,
        #[dims(d; stable)] conv_bias: Option<Global<f32>>,
        #[dims(vheads; stable)] a_log: Option<Global<f32>>,
        #[dims(vheads, K; stable)] dt_bias: Option<Global<f32>>,
        #[dims(n_req:conv_slot_pitch; stable)] conv_slots: Option<Global<i32>>,
        #[dims(n_req:conv_slot_out_pitch; stable)] conv_slots_out: Option<Global<i32>>,
        #[dims(n_req:state_slot_pitch; stable)] state_slots: Global<i32>,
        #[dims(n_req:state_slot_out_pitch; stable)] state_slots_out: Option<Global<i32>>,
        #[dims(lines:line_pitch_f32, histories; stable)] conv_f32: Option<GlobalMut<f32>>,
        #[dims(lines:line_pitch_bf16, histories; stable)] conv_bf16: Option<GlobalMut<bf16>>,
        #[dims(slots:slot_pitch, vheads, K, V; stable)] state: GlobalMut<STATE>, // V = K: either order
        #[dims(n_req:out_pitch, vheads, V)] out: GlobalMut<bf16>,
        #[dims(n_req, heads)] arrivals: Option<GlobalMut<u32>>,
        per_head: u32,
        channel_step: u32, // from a channel of a history to the next
        tap_step: u32,     // from an input of a history to the next newer one
        null: i32,
        scale: f32,
        lower_bound: f32,
        bounded: bool,     // the gate: bounded or softplus
        early: bool,       // indices and pools are read ahead of the wait for the predecessor
        evict_first: bool, // the new state leaves L2 first
    ) {
        const PIECE: u32 = 16 / size_of::<STATE>(); // elements of a 16-byte access
        const WARPS: u32 = THREADS / 32;
        const JOBS: u32 = 512 / THREADS; // parts a thread works on
        const SPAN: u32 = 4 / JOBS; // parts that are worked on at once
        const P: u32 = PIECE / 4; // groups of four K in a piece of [V, K]; fours of V in a piece of [K, V]
        const ROWS: u32 = if K_FIRST { 1 } else { 32 / LANES }; // rows of [V, K] a warp touches at once
        const R: u32 = if K_FIRST { 1 } else { BV / (WARPS * ROWS) }; // rows a thread
        const UNITS: u32 = if K_FIRST { THREADS * PIECE / BV } else { LANES }; // threads that share a row or a column
        const G: u32 = 32 / UNITS; // groups of four K a thread, which lie 8 and 16 apart
        const PIECES: u32 = G / P; // pieces a lane of a row of [V, K]

        // ---- Shared memory
        let qkv = smem::<f32, Shape<3, K>>();
        let decays = smem::<f32, Shape<K>>();
        let strength = smem::<f32, Shape<1>>();
        let squares = smem::<f32, Shape<2, 4>>(); // sums of y^2 of q and k, a warp each
        let windows = smem::<f32, Shape<3, WINDOW>>(); // new histories, in the order and the type of the pool
        let windows16 = windows.cast::<bf16>();
        let partials_z = smem::<f32, Shape<32, BV>>(); // sums over a unit's groups, a column each
        let partials_o = smem::<f32, Shape<32, BV>>();

        // ---- Who
        let n = ctaid.y;
        let (hv, v0) = (ctaid.x / (V / BV), ctaid.x % (V / BV) * BV);
        let h = if per_head == 1 { hv } else { hv / per_head };
        let sharers = per_head * (V / BV); // CTAs that read the history of q and k of this head
        let (q0, k0, c0) = (h * K, (heads + h) * K, (2 * heads + hv) * K + v0); // first channels
        let fused = taps_f32.is_present() || taps_bf16.is_present();
        let narrow_pool = conv_bf16.is_present();

        // ---- Indices: everything waits for them, so they come first
        if !early {
            pdl::wait();
        }
        let slot = state_slots[n];
        let line = conv_slots.at([n]).load();
        let other_slot = state_slots_out.at([n]).load();
        let other_line = conv_slots_out.at([n]).load();

        let works = if const { EXTRA == 0 } { true } else { warp < WARPS };
        let c = tid % K;
        let part = from_fn::<JOBS>(|i| if const { SPAN == 1 } { i } else { i * SPAN + warp / 4 });
        let on = from_fn::<JOBS>(|i| works && (part[i] < 2 || part[i] == 2 && c < BV));
        let channel = from_fn::<JOBS>(|i| c + select(part[i] == 0, q0, select(part[i] == 1, k0, c0)));
        let lk = lane % LANES;
        let first_row = warp * (R * ROWS) + lane / LANES; // the next ones lie ROWS apart
        let (unit, column) = (tid / (BV / PIECE), tid % (BV / PIECE) * PIECE);
        let first_k = 4 * (if const { G == 2 } { unit % 8 + unit / 8 * 16 } else { unit }); // the next groups lie 32 apart

        // ---- Loads, all in flight together: source order is issue order, and nothing is converted before all are issued
        let wide_taps = from_fn::<JOBS>(|i| taps_f32.at([channel[i], 0]).load_v_if::<4>(on[i]));
        let narrow_taps = from_fn::<JOBS>(|i| taps_bf16.at([channel[i], 0]).load_v_if::<4>(on[i]));
        let bias = from_fn::<JOBS>(|i| conv_bias.at([channel[i]]).load_if(on[i]));
        let rate = a_log.at([hv]).load();
        let gate_bias = dt_bias.at([hv, c]).load();
        let to_slot = select(state_slots_out.is_present(), other_slot, slot);
        let to_line = select(conv_slots_out.is_present(), other_line, line);
        let live_slots = step::is_live(slot, null, slots) && step::is_live(to_slot, null, slots);
        let live_lines = step::is_live(line, null, lines) && step::is_live(to_line, null, lines);
        let real = live_slots && (!fused || live_lines);
        let reads = real && works;
        let wide_past = from_fn::<JOBS>(|i| {
            from_fn::<TAPS>(|j| conv_f32.at([line, channel[i] * channel_step + j * tap_step]).load_if(real && on[i]))
        });
        let narrow_past = from_fn::<JOBS>(|i| {
            from_fn::<TAPS>(|j| conv_bf16.at([line, channel[i] * channel_step + j * tap_step]).load_if(real && on[i]))
        });
        let corner = if const { K_FIRST } { (first_k, v0 + column) } else { (v0 + first_row, PIECE * lk) };
        let from = state.at([slot, hv, corner.0.., corner.1..]).hint(NO_ALLOCATE);
        let old = if const { K_FIRST } {
            from_fn::<G>(|g| from_fn::<4>(|e| from.at([32 * g + e, 0]).load_v_if::<PIECE>(reads)))
        } else {
            from_fn::<R>(|r| from_fn::<PIECES>(|j| from.at([ROWS * r, PIECE * LANES * j]).load_v_if::<PIECE>(reads)))
        };
        pdl::wait();
        pdl::launch_dependents();
        let x = from_fn::<JOBS>(|i| {
            let of_q = q.at([n, h, c]).load_if(on[i] && part[i] == 0);
            let of_k = k.at([n, h, c]).load_if(on[i] && part[i] == 1);
            let of_v = v.at([n, hv, v0 + c]).load_if(on[i] && part[i] == 2);
            [of_q, of_k, of_v]
        });
        let narrow_gate = g_bf16.at([n, hv, c]).load();
        let wide_gate = g_f32.at([n, hv, c]).load();
        let logit = beta.at([n, hv]).load();

        if !real {
            for i in (tid..BV).step_by(THREADS + 32 * EXTRA) {
                out.at([n, hv, v0 + i]).store(bf16::ZERO);
            }
            return;
        }

        if works {
            // ---- Phase 1: a channel a thread and a part
            #[unroll]
            for i in 0..JOBS {
                if part[i] == GATE {
                    let z = select(g_f32.is_present(), wide_gate, narrow_gate as f32) + gate_bias;
                    decays[[c]] = step::decay(bounded, lower_bound, rate, z);
                    if c == 0 {
                        strength[[0]] = math::sigmoid(logit as f32);
                    }
                } else {
                    let new = select(part[i] == 0, x[i][0], select(part[i] == 1, x[i][1], x[i][2])) as f32;
                    let mut y = new;
                    if fused {
                        let history =
                            from_fn::<TAPS>(|j| select(narrow_pool, narrow_past[i][j] as f32, wide_past[i][j]));
                        let inputs = [history[0], history[1], history[2], new];
                        let sum = if taps_bf16.is_present() {
                            math::chain_rounded(bias[i], narrow_taps[i] as f32, inputs)
                        } else {
                            math::chain(bias[i], wide_taps[i], inputs)
                        };
                        y = bf16::rn(math::silu(sum)) as f32;
                        if on[i] {
                            // Copied bit by bit: raw inputs and histories are never rounded.
                            let width = select(part[i] == 2, BV, K);
                            let at = select(channel_step == 1, c, TAPS * c);
                            let apart = select(channel_step == 1, width, 1);
                            #[unroll]
                            for j in 0..TAPS {
                                if narrow_pool {
                                    windows16[[part[i] * WINDOW + at + apart * j]] =
                                        step::as_pool::<bf16>(inputs[j + 1]);
                                } else {
                                    windows[[part[i], at + apart * j]] = inputs[j + 1];
                                }
                            }
                        }
                    }
                    if on[i] {
                        qkv[[part[i], c]] = y;
                    }
                    if part[i] < 2 {
                        let sum = math::sums::<5, 1, 1>([y * y], math::NORM_STRIDES)[0];
                        if lane == 0 {
                            squares[[part[i], warp % 4]] = sum;
                        }
                    }
                }
            }
        }
        cta_sync();

        // ---- Roll. The history of q and k is read by every CTA of the head. Each arrives once it has read (a CTA barrier lies
        // between); the last one to arrive acquires what the others released, and rolls. The counter wraps to zero, so that
        // the next launch finds it as this one did. A CTA that is alone needs no counter.
        let rolls = fused && warp == WARPS - 1 + EXTRA;
        let mut arrived: u32 = 0;
        if rolls && sharers > 1 && lane == 0 {
            arrived = arrivals.at([n, h]).inc_wrap(sharers - 1, ACQ_REL);
        }

        // ---- Delta rule
        let key_norm = step::inverse_norm(squares.at([1, 0]).load_v::<4>());
        let query_norm = step::inverse_norm(squares.at([0, 0]).load_v::<4>()) * scale;
        let write = strength[[0]] * key_norm;
        let c2 = -write * key_norm;
        let to = state.at([to_slot, hv, corner.0.., corner.1..]).hint(l2::evict_first_if(evict_first));
        if const { K_FIRST } {
            let key = from_fn::<G>(|g| qkv.at([1, first_k + 32 * g]).load_v::<4>());
            let decay = from_fn::<G>(|g| decays.at([first_k + 32 * g]).load_v::<4>());
            let query = from_fn::<G>(|g| qkv.at([0, first_k + 32 * g]).load_v::<4>());
            let mut s = from_fn::<G>(|g| from_fn::<4>(|e| (old[g][e] as f32) * decay[g][e]));
            share::<PIECE, G, UNITS, BV>(partials_z, unit, column, s, key);
            cta_sync();
            let z = from_fn::<P>(|i| tree(from_fn::<UNITS>(|u| partials_z.at([u, column + 4 * i]).load_v::<4>())));
            let u = from_fn::<PIECE>(|i| fma(c2, z[i / 4][i % 4], write * qkv[[2, column + i]]));
            #[unroll]
            for g in 0..G {
                #[unroll]
                for e in 0..4 {
                    s[g][e] = fma(u, key[g][e], s[g][e]);
                    to.at([32 * g + e, 0]).store_v(STATE::rn(s[g][e]));
                }
            }
            share::<PIECE, G, UNITS, BV>(partials_o, unit, column, s, query);
            cta_sync();
            if tid < BV {
                let o = tree(from_fn::<UNITS>(|u| [partials_o[[u, tid]]]))[0];
                out.at([n, hv, v0 + tid]).store(bf16::rn(o * query_norm));
            }
        } else if works {
            const STEPS: u32 = log2(LANES);
            const KEEP: u32 = if R <= 2 { R } else { 1 }; // sums that every lane of a row gets
            let strides = from_fn::<STEPS>(|i| math::GROUP_STRIDES[5 - STEPS + i] / P);
            let (mine, leads) = math::position::<STEPS, R, KEEP>(strides);
            let at = from_fn::<G>(|g| PIECE * (lk + LANES * (g / P)) + 4 * (g % P));
            let key = from_fn::<G>(|g| qkv.at([1, at[g]]).load_v::<4>());
            let decay = from_fn::<G>(|g| decays.at([at[g]]).load_v::<4>());
            let mut s = from_fn::<R>(|r| {
                from_fn::<G>(|g| from_fn::<4>(|e| (old[r][g / P][4 * (g % P) + e] as f32) * decay[g][e]))
            });
            let z = math::sums::<STEPS, R, KEEP>(from_fn::<R>(|r| within::<G, P>(s[r], key)), strides);
            let my_rows = from_fn::<KEEP>(|i| first_row + ROWS * (mine + i));
            let mine_u = from_fn::<KEEP>(|i| fma(c2, z[i], write * qkv[[2, my_rows[i]]]));
            #[unroll]
            for r in 0..R {
                let u = if const { KEEP == R } {
                    mine_u[r]
                } else {
                    shfl(mine_u[0], lane - lk + math::holder::<STEPS, R, { r }>(strides))
                };
                s[r] = fma(u, key, s[r]);
                #[unroll]
                for j in 0..PIECES {
                    let piece = from_fn::<PIECE>(|e| s[r][j * P + e / 4][e % 4]);
                    to.at([ROWS * r, PIECE * LANES * j]).store_v(STATE::rn(piece));
                }
            }
            let query = from_fn::<G>(|g| qkv.at([0, at[g]]).load_v::<4>());
            let o = math::sums::<STEPS, R, KEEP>(from_fn::<R>(|r| within::<G, P>(s[r], query)), strides);
            #[unroll]
            for i in 0..KEEP {
                out.at([n, hv, v0 + my_rows[i]]).store_if(leads, bf16::rn(o[i] * query_norm));
            }
        }

        if rolls {
            // A lane a copy: an input of each channel where the channels are innermost, else all three at once.
            let (j, of) = (lane % 4, lane / 4); // of q, k or v
            let unit = select(channel_step == 1, 1, TAPS) * select(narrow_pool, 2, 4); // bytes a channel
            warp_sync(); // what lane 0 has acquired holds for the lanes that copy
            let last = shfl(arrived, 0) == sharers - 1;
            if j < TAPS && (channel_step == 1 || j == 0) {
                if of < 2 && last {
                    let place = select(of == 0, q0, k0) * channel_step + j * tap_step;
                    bulk::store(conv_bf16.at([to_line, place]), windows16.at([of * WINDOW + j * K]), K * unit);
                    bulk::store(conv_f32.at([to_line, place]), windows.at([of, j * K]), K * unit);
                }
                // Nobody else reads the history of these v channels.
                if of == 2 {
                    let place = c0 * channel_step + j * tap_step;
                    bulk::store(conv_bf16.at([to_line, place]), windows16.at([2 * WINDOW + j * BV]), BV * unit);
                    bulk::store(conv_f32.at([to_line, place]), windows.at([2, j * BV]), BV * unit);
                }
            }
            bulk::commit();
            bulk::wait_read::<0>();
        }
    }
}
