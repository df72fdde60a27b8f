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
#[kda_dsl::kernels(arch = sm_90, uses = [crate::device::math])]
pub mod decode {
    const K: u32 = 128;
    const V: u32 = 128;
    const TAPS: u32 = 3; // history columns; the fourth tap is the token itself
    const WINDOW: u32 = TAPS * K; // elements of a window of one head
    const EPSILON: f32 = 1e-6;
    const MOST_SLOTS: u32 = 2_147_483_647;
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

    /// A CTA owns BV rows of V of one (request, value head). Phase 1 makes q, k, v and the decay, a channel a thread and a
    /// part, while the state is on its way. Then, behind one CTA barrier, the delta rule.
    ///
    /// State `[V, K]`: LANES lanes share the K of a row and sum by shuffles. State `[K, V]`: a thread holds columns of V and
    /// whole groups of four K; partial sums meet in shared memory, in the order of the same tree.
    #[kernel(block = THREADS, grid = n_req * vheads * (V / BV), min_blocks_per_sm = CTAS)]
    #[variants(
        (K_FIRST, STATE, THREADS, BV, LANES, CTAS) in [
            (false, f32, 128, 8, 32, 8),
            (false, f32, 128, 16, 8, 8),
            (false, f32, 128, 32, 8, 4),
            (false, f32, 128, 32, 32, 5),
            (false, f32, 256, 32, 8, 4),
            (false, f32, 256, 64, 8, 2),
            (false, f32, 256, 64, 32, 2),
            (false, f32, 512, 128, 32, 1),
            (false, f32, 512, 128, 32, 2),
            (false, f32, 256, 128, 32, 2),
            (false, bf16, 128, 32, 4, 5),
            (false, bf16, 256, 64, 4, 3),
            (false, bf16, 256, 128, 4, 2),
            (true, f32, 128, 16, 1, 6),
            (true, f32, 128, 32, 1, 5),
            (true, f32, 256, 64, 1, 3),
            (true, f32, 256, 128, 1, 2),
            (true, bf16, 128, 32, 1, 5),
            (true, bf16, 256, 64, 1, 3),
            (true, bf16, 256, 128, 1, 2),
        ]
    )]
    #[requires(vheads % heads == 0, d == 0 || d == 2 * heads * K + vheads * V)]
    #[requires(null >= -1)]
    #[requires(lines <= MOST_SLOTS, slots <= MOST_SLOTS)]
    #[requires(slot_pitch % (16 / size_of::<STATE>()) == 0)]
    #[requires(line_pitch_f32 % 4 == 0, line_pitch_bf16 % 8 == 0)]
    // The conv pool is [3, D] or [D, 3]; an absent tensor has strides 0.
    #[requires(!channels_inner || channel_pitch_f32 <= 1 && channel_pitch_bf16 <= 1)]
    #[requires(!channels_inner || tap_pitch_f32 % 4 == 0 && tap_pitch_bf16 % 8 == 0)]
    #[requires(channels_inner || tap_pitch_f32 <= 1 && tap_pitch_bf16 <= 1)]
    #[requires(channels_inner || channel_pitch_f32 % TAPS == 0 && channel_pitch_f32 <= TAPS && channel_pitch_bf16 % TAPS == 0 && channel_pitch_bf16 <= TAPS)]
    fn decode<
        const K_FIRST: bool, // the state is [K, V], not [V, K]
        STATE: Elem,         // of the state
        const THREADS: u32,  // of a CTA
        const BV: u32,       // rows of V a CTA
        const LANES: u32,    // lanes that share a row of [V, K]; 1 for [K, V]
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
        #[dims(lines:line_pitch_f32, d:channel_pitch_f32, TAPS:tap_pitch_f32; stable)] conv_f32: Option<GlobalMut<f32>>,
        #[dims(lines:line_pitch_bf16, d:channel_pitch_bf16, TAPS:tap_pitch_bf16; stable)] conv_bf16: Option<
            GlobalMut<bf16>,
        >,
        #[dims(slots:slot_pitch, vheads, K, V; stable)] state: GlobalMut<STATE>, // V = K: either order
        #[dims(n_req:out_pitch, vheads, V)] out: GlobalMut<bf16>,
        #[dims(n_req, heads)] arrivals: Option<GlobalMut<u32>>,
        null: i32,
        scale: f32,
        lower_bound: f32,
        bounded: bool,        // the gate: bounded or softplus
        channels_inner: bool, // the conv pool is [3, D], not [D, 3]
        early: bool,          // indices and pools are read ahead of the wait for the predecessor
        evict_first: bool,    // the new state leaves L2 first
    ) {
        const PIECE: u32 = 16 / size_of::<STATE>(); // elements of a 16-byte access
        const WARPS: u32 = THREADS / 32;
        const JOBS: u32 = 512 / THREADS; // parts a thread works on
        const SPAN: u32 = 4 / JOBS; // parts that are worked on at once
        const P: u32 = PIECE / 4; // groups of four K in a piece of [V, K]; fours of V in a piece of [K, V]
        const ROWS: u32 = if K_FIRST { 1 } else { 32 / LANES }; // rows of [V, K] a warp touches at once
        const R: u32 = if K_FIRST { 1 } else { BV / (WARPS * ROWS) }; // rows a thread
        const UNITS: u32 = if K_FIRST { THREADS * PIECE / BV } else { LANES }; // threads that share the groups of a row or column
        const G: u32 = 32 / UNITS; // groups a thread, which lie 8 and 16 apart
        const PIECES: u32 = G / P; // pieces a lane of a row of [V, K]

        // ---- Shared memory
        let qkv = smem::<f32, Shape<3, K>>();
        let decays = smem::<f32, Shape<K>>();
        let strength = smem::<f32, Shape<1>>();
        let squares = smem::<f32, Shape<2, 4>>(); // sums of y^2 of q and k, a warp each
        let windows = smem::<f32, Shape<2, WINDOW>>(); // new histories of q and k, in the order and the type of the pool
        let windows16 = windows.cast::<bf16>();
        let partials_z = smem::<f32, Shape<32, BV>>(); // sums over a unit's groups, a column each
        let partials_o = smem::<f32, Shape<32, BV>>();

        // ---- Who
        let tile = ctaid.x % (V / BV);
        let item = ctaid.x / (V / BV);
        let (n, hv) = (item / vheads, item % vheads);
        let per_head = vheads / heads;
        let (h, v0) = (hv / per_head, tile * BV);
        let sharers = per_head * (V / BV); // CTAs that read the history of q and k of this head
        let (q0, k0, c0) = (h * K, (heads + h) * K, (2 * heads + hv) * K + v0); // first channels
        let c = tid % K;
        let part = from_fn::<JOBS>(|i| if const { SPAN == 1 } { i } else { i * SPAN + warp / 4 });
        let on = from_fn::<JOBS>(|i| part[i] < 2 || part[i] == 2 && c < BV);
        let channel = from_fn::<JOBS>(|i| c + select(part[i] == 0, q0, select(part[i] == 1, k0, c0)));
        let fused = taps_f32.is_present() || taps_bf16.is_present();
        let narrow_pool = conv_bf16.is_present();

        let lk = lane % LANES;
        let first_row = warp * (R * ROWS) + lane / LANES; // the next ones lie ROWS apart
        let (unit, column) = (tid / (BV / PIECE), tid % (BV / PIECE) * PIECE);
        let first_k = 4 * (if const { G == 2 } { unit % 8 + unit / 8 * 16 } else { unit }); // the next groups lie 32 apart

        // ---- Loads, all in flight together; source order is issue order. What two types may hold is kept as bits: no
        // conversion waits for a load before the next one is issued.
        let narrow_taps = taps_bf16.is_present();
        let taps = from_fn::<JOBS>(|i| {
            if narrow_taps {
                let pairs = taps_bf16.at([channel[i]]).cast::<u32>().at([0]).load_v_if::<2>(on[i]);
                [pairs[0], pairs[1], 0, 0]
            } else {
                taps_f32.at([channel[i], 0]).load_v_if::<4>(on[i]).map(|tap| tap.to_bits())
            }
        });
        let bias = from_fn::<JOBS>(|i| {
            if part[i] == GATE { dt_bias.at([hv, c]).load() } else { conv_bias.at([channel[i]]).load_if(on[i]) }
        });
        let rate = a_log.at([hv]).load();
        let wide_gate = g_f32.is_present();
        if !early {
            pdl::wait();
        }
        let slot = state_slots[n];
        let line = conv_slots.at([n]).load();
        let other_slot = state_slots_out.at([n]).load();
        let other_line = conv_slots_out.at([n]).load();
        let to_slot = select(state_slots_out.is_present(), other_slot, slot);
        let to_line = select(conv_slots_out.is_present(), other_line, line);
        let has_state = null < slot && slot < slots as i32 && null < to_slot && to_slot < slots as i32;
        let has_line = null < line && line < lines as i32 && null < to_line && to_line < lines as i32;
        let real = has_state && (!fused || has_line);
        let past = from_fn::<JOBS>(|i| {
            if narrow_pool {
                from_fn::<TAPS>(|j| conv_bf16.at([line, channel[i], j]).load_if(real && on[i]).to_bits() as u32)
            } else {
                from_fn::<TAPS>(|j| conv_f32.at([line, channel[i], j]).load_if(real && on[i]).to_bits())
            }
        });
        let corner = if const { K_FIRST } { (first_k, v0 + column) } else { (v0 + first_row, PIECE * lk) };
        let from = state.at([slot, hv, corner.0.., corner.1..]).hint(NO_ALLOCATE);
        let old = if const { K_FIRST } {
            from_fn::<G>(|g| from_fn::<4>(|e| from.at([32 * g + e, 0]).load_v_if::<PIECE>(real)))
        } else {
            from_fn::<R>(|r| from_fn::<PIECES>(|j| from.at([ROWS * r, PIECE * LANES * j]).load_v_if::<PIECE>(real)))
        };
        pdl::wait();
        pdl::launch_dependents();
        let raw = from_fn::<JOBS>(|i| {
            if part[i] == 0 {
                q.at([n, h, c]).load().to_bits() as u32
            } else if part[i] == 1 {
                k.at([n, h, c]).load().to_bits() as u32
            } else if part[i] == 2 {
                v.at([n, hv, v0 + c]).load_if(on[i]).to_bits() as u32
            } else if wide_gate {
                g_f32.at([n, hv, c]).load().to_bits()
            } else {
                g_bf16.at([n, hv, c]).load().to_bits() as u32
            }
        });
        let logit = beta.at([n, hv]).load();
        if !real {
            for i in (tid..BV).step_by(THREADS) {
                out.at([n, hv, v0 + i]).store(bf16::ZERO);
            }
            return;
        }

        // ---- Phase 1: a channel a thread and a part
        #[unroll]
        for i in 0..JOBS {
            if part[i] == GATE {
                let z = select(wide_gate, f32::from_bits(raw[i]), f32::from_bits(raw[i] << 16)) + bias[i];
                let g = if bounded {
                    lower_bound * math::sigmoid(math::exp(rate) * z)
                } else {
                    -math::scaled_softplus(rate, z)
                };
                decays[[c]] = math::exp(g);
                if c == 0 {
                    strength[[0]] = math::sigmoid(logit as f32);
                }
            } else {
                let history = past[i].map(|bits| f32::from_bits(select(narrow_pool, bits << 16, bits)));
                let inputs = [history[0], history[1], history[2], f32::from_bits(raw[i] << 16)];
                let mut y = inputs[3];
                if fused {
                    let t = taps[i];
                    let sum = if narrow_taps {
                        let pairs = [t[0] << 16, t[0] & 0xFFFF_0000, t[1] << 16, t[1] & 0xFFFF_0000];
                        math::chain_rounded(bias[i], pairs.map(|bits| f32::from_bits(bits)), inputs)
                    } else {
                        math::chain(bias[i], t.map(|bits| f32::from_bits(bits)), inputs)
                    };
                    y = bf16::rn(math::silu(sum)) as f32;
                    // Raw inputs and histories are copied bit by bit, never rounded.
                    if part[i] == 2 {
                        // Nobody else reads the history of these v channels.
                        #[unroll]
                        for j in 0..TAPS {
                            let bits = inputs[j + 1].to_bits();
                            conv_f32.at([to_line, channel[i], j]).store_if(on[i], inputs[j + 1]);
                            conv_bf16
                                .at([to_line, channel[i], j])
                                .store_if(on[i], bf16::from_bits((bits >> 16) as u16));
                        }
                    } else {
                        let column = select(channels_inner, c, TAPS * c);
                        let tap = select(channels_inner, K, 1);
                        #[unroll]
                        for j in 0..TAPS {
                            if narrow_pool {
                                let bits = (inputs[j + 1].to_bits() >> 16) as u16;
                                windows16[[part[i] * WINDOW + column + tap * j]] = bf16::from_bits(bits);
                            } else {
                                windows[[part[i], column + tap * j]] = inputs[j + 1];
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
        cta_sync();

        // ---- The history of q and k is read by every CTA of the head. Each arrives once it has read (the CTA barrier lies
        // between); the last one to arrive acquires what the others released, and rolls. The counter wraps to zero, so that
        // the next launch finds it as this one did. A CTA that is alone needs no counter.
        let mut arrived: u32 = 0;
        if fused && sharers > 1 && warp == WARPS - 1 && lane == 0 {
            arrived = arrivals.at([n, h]).inc_wrap(sharers - 1, ACQ_REL);
        }

        // ---- Delta rule
        let kk = squares.at([1, 0]).load_v::<4>();
        let qq = squares.at([0, 0]).load_v::<4>();
        let key_norm = rsqrt_approx(((kk[0] + kk[1]) + kk[2]) + kk[3] + EPSILON);
        let query_norm = rsqrt_approx(((qq[0] + qq[1]) + qq[2]) + qq[3] + EPSILON) * scale;
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
        } else {
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
                    shfl(mine_u[0], math::holder::<STEPS, R, { r }>(strides))
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

        // ---- Roll of q and k
        if fused && warp == WARPS - 1 {
            warp_sync(); // what lane 0 has acquired holds for the lanes that copy
            if shfl(arrived, 0) == sharers - 1 || sharers == 1 {
                let j = lane / 2;
                if j < TAPS && (channels_inner || j == 0) {
                    let rolled = lane % 2; // q, then k
                    let first = (rolled * heads + h) * K;
                    let unit = select(channels_inner, 1, TAPS) * select(narrow_pool, 2, 4); // bytes a channel
                    bulk::store(conv_bf16.at([to_line, first, j]), windows16.at([rolled * WINDOW + j * K]), K * unit);
                    bulk::store(conv_f32.at([to_line, first, j]), windows.at([rolled, j * K]), K * unit);
                }
            }
            bulk::commit();
            bulk::wait_read::<0>();
        }
    }
}
