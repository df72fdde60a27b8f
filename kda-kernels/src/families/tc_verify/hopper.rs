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
#[kda_dsl::kernels(arch = sm_90a, uses = [crate::device::draft, crate::device::solve])]
pub mod tc_verify {
    const K: u32 = 128;
    const V: u32 = 128;
    const T: u32 = draft::TOKENS;
    const MOST_SLOTS: u32 = 2_147_483_647;

    /// Boxes of the raw inputs of an item, if it has any: its tokens behind three rows of the history, and its gates.
    #[device]
    fn fill<const CONV: bool>(
        rows: Shared<bf16>,
        gate_rows: Shared<bf16>,
        tokens: TensorMap<bf16, Shape<T, 3, 1, K>>,
        past: TensorMap<bf16, Shape<1, 3, 3, 1, K>>,
        gates: TensorMap<bf16, Shape<T, 1, K>>,
        item: (u32, u32, u32, u32, bool),
        head: u32,
    ) {
        let (slot, begin, _, hist, live) = item;
        rows.at([3..]).tma_load_if(live, tokens, [begin, 0, head, 0]);
        if const { CONV } {
            rows.at([0..3]).tma_load_if(live, past, [slot, hist, 0, head, 0]);
        }
        gate_rows.tma_load_if(live, gates, [begin, head, 0]);
    }

    /// Rolls the history of a line: rows 1.. of what has arrived are the new ones, to the last token.
    #[device]
    fn roll(
        rolled: TensorMapMut<bf16, Shape<1, { T + 2 }, 3, 1, K>>,
        rolled_row: TensorMapMut<bf16, Shape<1, 1, 3, 1, K>>,
        rows: Shared<bf16>,
        line: u32,
        head: u32,
        len: u32,
    ) {
        if len == T {
            tma::store(rolled, [line, 0, 0, head, 0], rows.at([1..]));
        } else {
            for row in 0..len + 2 {
                tma::store(rolled_row, [line, row, 0, head, 0], rows.at([row + 1]));
            }
        }
    }

    /// CTAs walk over the requests of one head each, in a fixed order or by tickets. A thread owns two channels of four tokens
    /// while it makes the probes, and two neighbouring rows of V of two tokens behind the products.
    // Four CTAs an SM leave 128 registers, too few with taps of f32 and softplus; boxes of raw inputs take the memory of one.
    #[kernel(block = 128, grid = ctas, min_blocks_per_sm = if BOXES || SOFTPLUS && size_of::<TAP>() == 4 { 3 } else { 4 })]
    #[variants(
        // Raw inputs in boxes where their rows allow it. Known heads put rows at constant distances, 500 instructions less:
        // with them loads by threads overlap best with a predecessor.
        (HEADS, CONV, CHANNEL_MAJOR, TAP, BOXES, EARLY) in [
            (0, true, false, bf16, true, false), (0, true, false, f32, true, false), (0, false, false, bf16, true, false),
            (0, true, false, bf16, true, true), (0, true, false, f32, true, true), (0, false, false, bf16, true, true),
            (12, true, false, bf16, false, true), (12, true, false, f32, false, true),
            (0, true, false, bf16, false, false), (0, true, false, f32, false, false), (0, false, false, bf16, false, false),
            (0, true, true, bf16, false, false), (0, true, true, f32, false, false),
            (0, true, true, bf16, false, true), (0, true, true, f32, false, true)
        ],
        SOFTPLUS in [false, true]
    )]
    #[requires(HEADS == 0 || heads == HEADS, heads >= 1, ctas % heads == 0, blocks == 8 * heads)]
    #[requires(window >= 1, window <= T, rows >= n_req, slots <= MOST_SLOTS, total <= MOST_SLOTS)]
    #[requires(qkv_pitch % 2 == 0, qkv_part % K == 0, total == 0 || qkv_part == heads * K, g_pitch % 2 == 0, out_pitch % 2 == 0, null >= -1)]
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
        const BOXES: bool, // raw inputs are copied in boxes, and the history is rolled by copies
        const EARLY: bool, // the first state and the head's constants are read ahead of the wait for the predecessor
        const SOFTPLUS: bool,
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
        // BOXES: the same memory as `qkv`, `raw_g` and `conv`.
        #[dims(total, 3, heads, K)] tokens: Option<TensorMap<bf16, Shape<T, 3, 1, K>>>,
        #[dims(total, heads, K)] gates: Option<TensorMap<bf16, Shape<T, 1, K>>>,
        #[dims(lines, conv_rows, 3, heads, K)] past: Option<TensorMap<bf16, Shape<1, 3, 3, 1, K>>>,
        #[dims(lines, conv_rows, 3, heads, K)] rolled: Option<TensorMapMut<bf16, Shape<1, { T + 2 }, 3, 1, K>>>,
        #[dims(lines, conv_rows, 3, heads, K)] rolled_row: Option<TensorMapMut<bf16, Shape<1, 1, 3, 1, K>>>,
        lower_bound: f32,
        scale: f32,
        null: i32,
        ctas: u32,
    ) {
        const TAPS: u32 = if size_of::<TAP>() == 2 { 4 } else { 8 }; // words of the taps of two channels

        // ---- Shared memory
        let ring = Pipeline::cta { state: smem::<bf16, Shape<V, K>, Swizzle<128>>() };
        let probes = smem::<bf16, Shape<{ 6 * T }, K>, Swizzle<128>>();
        let values = smem::<u32, Shape<T, 68>>(); // v, two channels a word
        let parts = smem::<f32, Shape<4, 32, 4>>(); // couplings by warp, as lanes hold them
        let keys = smem::<bf16, Shape<T, 136>>(); // softplus: decayed keys of tokens 0..4, and what rounding lost
        let norms = smem::<f32, Shape<16, 4>>(); // sums of k² and q² of each token, by warp
        let beta = smem::<f32, Shape<T>>();
        // BOXES: three rows of the history, then the tokens, of q, k and v.
        let raws = Pipeline::cta { rows: smem::<bf16, Shape<{ T + 3 }, 3, K>>(), gates: smem::<bf16, Shape<T, K>>() };

        // ---- Who
        let (head, rank) = (ctaid.x % heads, ctaid.x / heads);
        let (half, pair) = (lane / 16, lane % 16);
        let (first, ch) = (4 * half, 32 * warp + 2 * pair);
        let word = 16 * warp + pair; // of my channels in a head
        let sizes = (n_req, total, window, slots);

        // ---- First item: metadata, state tile and raw inputs, the head's constants
        if const { !EARLY } {
            #[elect_one]
            {
                tma::prefetch(state);
                if const { BOXES } {
                    tma::prefetch(tokens);
                    tma::prefetch(gates);
                }
                if const { BOXES && CONV } {
                    tma::prefetch(past);
                }
            }
            pdl::wait();
        }
        let mut of_head = ([[0; TAPS]; 3], [0.0, 0.0], 0.0, 0.0, 0.0, 0.0);
        let mut item = draft::read_item::<CONV>(slot_of, query_start, accepted, rank, sizes, null);
        if const { EARLY } {
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.state.tma_load_if(item.4, state, [item.0, head * 8, 0, 0, 0]);
                slot.commit();
            }
            // 0.2 µs at one request of 12 heads, 0.5 at 32.
            of_head = draft::head_of::<CONV, SOFTPLUS, TAPS, TAP>(taps, dt_bias, a_log, heads, head, ch, lower_bound);
            pdl::wait();
        }
        pdl::launch_dependents();
        let mut raw_b = draft::fetch_beta(raw_beta, head, item);
        let (mut old, mut new, mut gate) = ([[0; 3]; 3], [[0; 3]; T / 2], [0; T / 2]);
        if const { !BOXES } {
            (old, new, gate) =
                draft::fetch::<CONV, CHANNEL_MAJOR, { HEADS != 0 }, T>(qkv, raw_g, conv, head, head, word, half, item);
        }
        if const { BOXES } {
            #[elect_one]
            {
                let slot = raws.acquire();
                fill::<CONV>(slot.rows, slot.gates, tokens, past, gates, item, head);
                slot.commit();
            }
        }
        if const { !EARLY && !BOXES } {
            // Raw inputs first: 2 µs at 128 requests of 12 heads.
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.state.tma_load_if(item.4, state, [item.0, head * 8, 0, 0, 0]);
                slot.commit();
            }
        }
        if const { !EARLY } {
            of_head = draft::head_of::<CONV, SOFTPLUS, TAPS, TAP>(taps, dt_bias, a_log, heads, head, ch, lower_bound);
        }
        if const { BOXES } {
            let raw = raws.wait();
            if item.4 {
                (old, new, gate) = draft::unpack::<CONV, T>(raw.rows, raw.gates, ch, half);
            }
            if const { CONV } {
                #[elect_one]
                {
                    if item.4 {
                        roll(rolled, rolled_row, raw.rows, item.0, head, item.2);
                    }
                    bulk::commit();
                }
            }
            raw.release();
        }
        if const { !EARLY && BOXES } {
            // When the raw inputs are there: 1.3 µs at 128 requests of 12 heads.
            #[elect_one]
            {
                let slot = ring.acquire();
                slot.state.tma_load_if(item.4, state, [item.0, head * 8, 0, 0, 0]);
                slot.commit();
            }
        }

        for [req, next] in (rank..n_req).step_by(nctaid.x / heads).tickets::<2>(counter.at([head])) {
            let coming = draft::read_item::<CONV>(slot_of, query_start, accepted, next, sizes, null);
            let (state_slot, begin, len, _, live) = item;
            if live {
                let (q_words, k_words) = draft::prepare::<CONV, SOFTPLUS, T, TAPS>(
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
                cta_sync();

                // ---- State tile times all probes; every warp makes the solve's coefficients between the issues
                let slot = ring.wait();
                let b = probes.rows(0..32);
                let mut acc = Acc::<f32, V, 32>::zero();
                acc.mma(slot.state.k_slice(0), b.k_slice(0));
                let (sums, squares, beta_t, beta_i) = solve::gather::<T>(parts, norms, beta);
                acc.mma(slot.state.k_slice(16), b.k_slice(16));
                let norm = solve::norm_of::<T>(squares, scale);
                acc.mma(slot.state.k_slice(32), b.k_slice(32));
                let (minus_l, d, rk_i, rq_i) = solve::coefficients::<T>(norm, sums, beta_t);
                let mut inverse = Frag::<f32, 8, 8>::from_fn(|row, column| select(row == column, 1.0, 0.0));
                #[unroll]
                for step in 3..8 {
                    acc.mma(slot.state.k_slice(16 * step), b.k_slice(16 * step));
                    solve::eliminate::<{ 2 * step - 6 }, { min(2 * step - 4, T - 1) }>(&mut inverse, minus_l);
                }
                wgmma::commit();

                // ---- Under the products: this item's stores, then the next item's loads into the same registers or boxes
                if const { CONV && !BOXES } {
                    solve::roll::<CHANNEL_MAJOR, { T / 2 }>(conv, state_slot, head, word, half, len, old, new);
                }
                solve::record::<{ T / 2 }>(kg, req, head, len, k_words, gate);
                raw_b = draft::fetch_beta(raw_beta, head, coming);
                if const { !BOXES } {
                    (old, new, gate) = draft::fetch::<CONV, CHANNEL_MAJOR, { HEADS != 0 }, T>(
                        qkv, raw_g, conv, head, head, word, half, coming,
                    );
                }
                if const { BOXES } {
                    #[elect_one]
                    {
                        bulk::wait_read::<0>();
                        let slot = raws.acquire();
                        fill::<CONV>(slot.rows, slot.gates, tokens, past, gates, coming, head);
                        slot.commit();
                    }
                }
                let v = solve::values_of::<T>(values);
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
                let (u, o) = solve::solve::<T>(f.columns(0..16), f.columns(16..32), v, inverse, d, beta_i, rk_i);
                solve::finish::<{ T / 2 }>(corr, out, req, begin, head, len, u, o, rq_i);
            } else {
                cta_sync();
                let slot = ring.wait();
                raw_b = draft::fetch_beta(raw_beta, head, coming);
                if const { !BOXES } {
                    (old, new, gate) = draft::fetch::<CONV, CHANNEL_MAJOR, { HEADS != 0 }, T>(
                        qkv, raw_g, conv, head, head, word, half, coming,
                    );
                }
                if const { BOXES } {
                    #[elect_one]
                    {
                        bulk::wait_read::<0>();
                        let slot = raws.acquire();
                        fill::<CONV>(slot.rows, slot.gates, tokens, past, gates, coming, head);
                        slot.commit();
                    }
                }
                slot.release();
                cta_sync();
                #[elect_one]
                {
                    let slot = ring.acquire();
                    slot.state.tma_load_if(coming.4, state, [coming.0, head * 8, 0, 0, 0]);
                    slot.commit();
                }
                solve::finish_dead(out, begin, head, len);
            }
            if const { BOXES } {
                let raw = raws.wait();
                if coming.4 {
                    (old, new, gate) = draft::unpack::<CONV, T>(raw.rows, raw.gates, ch, half);
                }
                if const { CONV } {
                    #[elect_one]
                    {
                        if coming.4 {
                            roll(rolled, rolled_row, raw.rows, coming.0, head, coming.2);
                        }
                        bulk::commit();
                    }
                }
                raw.release();
            }
            item = coming;
        }
        // The stage behind the last item is empty.
        let last = ring.wait();
        last.release();
    }
}
