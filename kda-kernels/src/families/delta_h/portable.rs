//! The inter-chunk recurrence of chunked KDA over packed sequences, for every architecture from sm_80 on.

/// One launch walks the chunks of 64 rows R of whole sequences, and carries the state S `[K, V]` of a head.
///
/// Contract: that of `delta_h`, bit for bit in what is rounded where. In this order, S in f32,
/// ```text
/// h = bf16(S);   v_new[R] = bf16(u[R] - w[R] h);   S <- S * exp2(gk[last(R)]);   S <- S + kg[R]^T v_new[R]
/// ```
/// with f32 accumulation. With a scalar gate the second product takes `bf16(v_new * exp2(g[last] - g))`, before v_new is
/// rounded. Rows behind a sequence's end are neither read nor written; an empty sequence copies its state.
///
/// A warp holds S transposed, 16 columns of V of it, as accumulators of `mma.sync`: rounded, they are A operands as they
/// stand. Operands are copied by four warps, a stage ahead; results leave by the warps that multiply, in the shadow of
/// products. What there is to do comes from a schedule (`delta_h_schedule`) that splits nothing.
#[kda_dsl::kernels(arch = sm_80, uses = [crate::device::work, crate::device::states])]
pub mod delta_h_portable {
    const BT: u32 = 64; // rows of a chunk
    const K: u32 = 128;
    const V: u32 = 128;
    const STAGES: u32 = 2;
    const WARPS: u32 = 4; // that multiply

    /// Four accumulators as one of four times the width.
    #[device]
    fn side_by_side(
        a: Frag<f32, 16, 8>,
        b: Frag<f32, 16, 8>,
        c: Frag<f32, 16, 8>,
        d: Frag<f32, 16, 8>,
    ) -> Frag<f32, 16, 32> {
        let all = [a.pairs(), b.pairs(), c.pairs(), d.pairs()];
        Frag::<f32, 16, 32>::from_pairs(from_fn::<8>(|i| all[i % 4][i / 4]))
    }

    #[kernel(block = 256, grid = ctas, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..6, load_keys = 6..8)]
    #[variants(
        // Few heads: slices of 32 columns of V, twice the CTAs; two warps share a product.
        VS in [64, 32],
        V_FIRST in [false, true],
        SCALAR in [false, true],
    )]
    #[requires(per_key_head > 0, every > 0)]
    #[requires(SCALAR || gate_pitch % 4 == 0)]
    #[requires(w_pitch % 8 == 0, kg_pitch % 8 == 0, u_pitch % 8 == 0, h_pitch % 8 == 0, v_pitch % 8 == 0)]
    fn delta_h_portable<
        const VS: u32,       // columns of V a CTA
        const V_FIRST: bool, // h is [V, K], not [K, V]
        const SCALAR: bool,  // one gate a head and token, not one a key channel
    >(
        #[dims(rows:w_pitch, heads, K)] w: Global<bf16>,
        #[dims(rows:kg_pitch, key_heads, K)] kg: Global<bf16>,
        #[dims(rows:u_pitch, heads, V)] u: Global<bf16>,
        // Cumulative gates of rows, of which the last one of a chunk is read; or decays of chunks.
        #[dims(gates:gate_pitch, heads, { if SCALAR { 1 } else { K } })] gate: Global<f32>,
        #[dims(slots_in:pitch_in_f32, heads, { K * V })] initial_f32: Option<Global<f32>>,
        #[dims(slots_in:pitch_in_bf16, heads, { K * V })] initial_bf16: Option<Global<bf16>>,
        #[dims(seqs)] initial_slots: Option<Global<i32>>,
        #[dims(seqs)] has_initial: Option<Global<u8>>,
        #[dims(slots_out:pitch_out_f32, heads, { K * V })] final_f32: Option<GlobalMut<f32>>,
        #[dims(slots_out:pitch_out_bf16, heads, { K * V })] final_bf16: Option<GlobalMut<bf16>>,
        #[dims(seqs)] final_slots: Option<Global<i32>>,
        #[dims(capacity:h_pitch, heads, { K * V })] h: Option<GlobalMut<bf16>>,
        #[dims(rows:v_pitch, heads, V)] v_new: Option<GlobalMut<bf16>>,
        #[dims(words)] schedule: Global<u32>,
        first_entry: u32, // word of the first entry
        every: u32,       // h of every so many chunks is written
        decays: bool,     // `gate` holds decays of chunks
        // An initial and a final state lie [K, V] in memory, not [V, K].
        (initial_k_first, final_k_first): (bool, bool),
        null: i32,
        per_key_head: u32,
        ctas: u32,
    ) {
        const SLICES: u32 = V / VS;
        const PARTS: u32 = WARPS * 16 / VS; // warps that share 16 columns of V: each has as many channels of K
        const KC: u32 = K / PARTS;
        const TILES: u32 = KC / 8;

        // ---- Shared memory
        let ins = Pipeline::<(load, load_keys), math> {
            w: smem::<bf16, Shape<BT, K>, Swizzle<128>, STAGES>(),
            kg: smem::<bf16, Shape<BT, K>, Swizzle<128>, STAGES>(),
            u: smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>, STAGES>(), // v_new later
            factors: smem::<f32, Shape<K>, _, STAGES>(),                   // SCALAR: factors of 64 rows, and the decay
        };
        // On its way to memory; each warp has its own part.
        let h_tile = smem::<
            bf16,
            Shape<{ if V_FIRST { VS } else { K } }, { if V_FIRST { K } else { VS } }>,
            Swizzle<{ if V_FIRST { 128 } else { 2 * VS } }>,
        >();
        let halves = smem::<f32, Shape<WARPS, 8, 128>>(); // of first products, as lanes hold them

        let items = schedule[[work::ENTRIES]] * heads * SLICES;

        #[role(load)]
        for item in (ctaid.x..items).step_by(nctaid.x) {
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            ins.restart();
            let (first, thread) = (schedule[[entry + work::CHUNK]], tid - 128);
            // Gates are loaded a chunk ahead, two a thread; SCALAR: that of a row, and the last one.
            let mut ahead = [0.0; 2];
            if const { SCALAR } {
                let last = gate.at([min(row0 + BT, end) - 1, head, 0]).load_if(chunks > 0);
                ahead = [gate.at([row0 + thread, head, 0]).load_if(row0 + thread < end), last];
            } else {
                let at = select(decays, first, min(row0 + BT, end) - 1);
                ahead = gate.at([at, head, 2 * thread]).load_v_if::<2>(chunks > 0);
            }
            #[unroll(ins)]
            for c in 0..chunks {
                let row = row0 + c * BT;
                let slot = ins.acquire();
                let (t, k) = (thread / 16, thread % 16 * 8);
                let from = row + t;
                #[unroll]
                for i in 0..BT / 4 {
                    slot.w.at([t + 4 * i, k]).copy_async_v_if::<8>(from + 4 * i < end, w.at([from + 4 * i, head, k]));
                }
                const ACROSS: u32 = VS / 8;
                const STEP: u32 = 64 / ACROSS;
                let (t, v) = (thread / ACROSS, thread % ACROSS * 8);
                let from = row + t;
                #[unroll]
                for i in 0..BT / STEP {
                    let source = u.at([from + STEP * i, head, v0 + v]);
                    slot.u.at([t + STEP * i, v]).copy_async_v_if::<8>(from + STEP * i < end, source);
                }
                let next = row + BT;
                if const { SCALAR } {
                    let [mine, last] = ahead;
                    slot.factors[[thread]] = select(row + thread < end, ex2_approx(last - mine), 0.0);
                    slot.factors.at([BT]).store_if(thread == 0, ex2_approx(last));
                    let last = gate.at([min(next + BT, end) - 1, head, 0]).load_if(next < end);
                    ahead = [gate.at([next + thread, head, 0]).load_if(next + thread < end), last];
                } else {
                    slot.factors.at([2 * thread]).store_v(select(decays, ahead, ex2_approx(ahead)));
                    let at = select(decays, first + c + 1, min(next + BT, end) - 1);
                    ahead = gate.at([at, head, 2 * thread]).load_v_if::<2>(next < end);
                }
                slot.commit();
            }
        }

        #[role(load_keys)]
        for item in (ctaid.x..items).step_by(nctaid.x) {
            let [_, head, _, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            ins.restart();
            let (thread, key_head) = (tid - 192, head / per_key_head);
            let (t, k) = (thread / 16, thread % 16 * 8);
            #[unroll(ins)]
            for c in 0..chunks {
                let from = row0 + c * BT + t;
                let slot = ins.acquire();
                #[unroll]
                for i in 0..BT / 4 {
                    let source = kg.at([from + 4 * i, key_head, k]);
                    slot.kg.at([t + 4 * i, k]).copy_async_v_if::<8>(from + 4 * i < end, source);
                }
                slot.commit();
            }
        }

        #[role(math)]
        for item in (ctaid.x..items).step_by(nctaid.x) {
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            let n = schedule[[entry + work::SEQUENCE]];
            // This warp's columns of V in the slice, and its channels of K.
            let (part, v1) = (warp % PARTS, warp / PARTS * 16);
            let k1 = part * KC;
            // Where a lane has elements of h, and where eight that it writes.
            const ACROSS: u32 = if V_FIRST { KC / 8 } else { 2 };
            const OUT_STEP: u32 = 32 / ACROSS;
            let (h_row0, h_column0) = if const { V_FIRST } { (v1, k1) } else { (k1, v1) };
            let (h_row, h_column) = (h_row0 + lane / 4, h_column0 + lane % 4 * 2);
            let (out_row, out_column) = (h_row0 + lane / ACROSS, h_column0 + lane % ACROSS * 8);
            let h_at = if const { V_FIRST } { (v0 + out_row) * K + out_column } else { out_row * V + v0 + out_column };
            ins.restart();

            // ---- The state ahead of the first chunk
            let mut s = from_fn::<TILES>(|_| Frag::<f32, 16, 8>::zero());
            let (slot, live) = states::wanted_slot(initial_slots, has_initial, n, slots_in, null);
            let (v_step, k_step) = states::steps(initial_k_first);
            let origin = (v0 + v1) * v_step + k1 * k_step;
            if initial_bf16.is_present() {
                let from = initial_bf16.at([slot, head]);
                s = from_fn::<TILES>(|j| {
                    Frag::<f32, 16, 8>::from_fn(|v, k| {
                        from.at([origin + v * v_step + (8 * j + k) * k_step]).load_if(live) as f32
                    })
                });
            } else {
                let from = initial_f32.at([slot, head]);
                s = from_fn::<TILES>(|j| {
                    Frag::<f32, 16, 8>::from_fn(|v, k| {
                        from.at([origin + v * v_step + (8 * j + k) * k_step]).load_if(live)
                    })
                });
            }

            let mut kept = schedule[[entry + work::H0]]; // where h of the next chunk goes, if it is kept
            let mut skipped = 0; // chunks since the last one whose h was kept
            for c in 0..chunks {
                let row = row0 + c * BT;
                let keeps = skipped == 0;
                let to = h.at([kept, head]);
                kept += select(keeps, 1, 0);
                skipped = select(skipped + 1 == every, 0, skipped + 1);

                // ---- w h, transposed; h is staged as it is multiplied, S decays
                let slot = ins.wait();
                let mut sums = from_fn::<8>(|_| Frag::<f32, 16, 8>::zero());
                #[unroll]
                for i in 0..KC / 32 {
                    let a = side_by_side(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]).round::<bf16>();
                    #[unroll]
                    for j in 0..8 {
                        sums[j].mma(a, Frag::<bf16, 8, 32>::load(slot.w, [8 * j, k1 + 32 * i]));
                    }
                    #[unroll]
                    for j in 4 * i..4 * i + 4 {
                        if const { SCALAR } {
                            s[j] = s[j] * slot.factors[[BT]];
                        } else {
                            let two = slot.factors.at([k1 + 8 * j + 2 * (lane % 4)]).load_v::<2>();
                            s[j] = Frag::<f32, 16, 8>::from_pairs(s[j].pairs().map(|pair| pair * two));
                        }
                    }
                    let halves = if const { V_FIRST } { a.pairs() } else { a.t().pairs() };
                    #[unroll]
                    for e in 0..8 {
                        if const { V_FIRST } {
                            h_tile.at([h_row + e / 4 * 8, h_column + 32 * i + e % 4 * 8]).store_v(halves[e]);
                        } else {
                            h_tile.at([h_row + 32 * i + e / 2 * 8, h_column + e % 2 * 8]).store_v(halves[e]);
                        }
                    }
                }
                let mut p = from_fn::<16>(|i| sums[i % 8].pairs()[i / 8]);
                let from = Frag::<bf16, 16, BT>::load_t(slot.u, [0, v1]);
                if const { PARTS == 2 } {
                    // Each half is there before it is read, and has been read before it is written again.
                    let own = p;
                    role_sync();
                    #[unroll]
                    for i in 0..8 {
                        let [[a, b], [c, d]] = [own[2 * i], own[2 * i + 1]];
                        halves.at([warp, i, 4 * lane]).store_v([a, b, c, d]);
                    }
                    role_sync();
                    let other = from_fn::<8>(|i| halves.at([warp ^ 1, i, 4 * lane]).load_v::<4>());
                    p = from_fn::<16>(|i| from_fn::<2>(|e| own[i][e] + other[i / 2][i % 2 * 2 + e]));
                }

                // ---- v_new, transposed
                let mut x = from.widen() - Frag::<f32, 16, BT>::from_pairs(p);
                if end - row < BT {
                    // Rows behind the end are zero in shared memory; what infinities made of them is not.
                    x = x.map(|_, t, e| select(t < end - row, e, 0.0));
                }
                let v = x.round::<bf16>();
                let mut gated = v;
                if const { SCALAR } {
                    gated = x.map(|_, t, e| e * slot.factors[[t]]).round::<bf16>();
                }
                warp_sync();

                // ---- kg^T v_new, transposed; h and v_new leave. Warps with the same columns write half of the rows each.
                const ROWS: u32 = BT / PARTS;
                let mine = if const { PARTS == 2 } {
                    let all = v.pairs();
                    Frag::<bf16, 16, ROWS>::from_pairs(from_fn::<8>(|i| {
                        select(part == 0, all[i / 4 * 8 + i % 4], all[i / 4 * 8 + 4 + i % 4])
                    }))
                } else {
                    v
                };
                #[unroll]
                for i in 0..2 {
                    let a = gated.columns(32 * i..32 * i + 32);
                    #[unroll]
                    for j in 0..TILES {
                        s[j].mma(a, Frag::<bf16, 8, 32>::load_t(slot.kg, [32 * i, k1 + 8 * j]));
                    }
                    #[unroll]
                    for j in i * KC / 32..(i + 1) * KC / 32 {
                        let eight = h_tile.at([out_row + OUT_STEP * j, out_column]).load_v::<8>();
                        to.at([h_at + OUT_STEP * j * { if V_FIRST { K } else { V } }]).store_v_if(keeps, eight);
                    }
                    #[unroll]
                    for j in 0..ROWS / 16 {
                        let t = part * ROWS + 16 * j;
                        if const { i == 0 } {
                            mine.columns(16 * j..16 * j + 16).t().store(slot.u, [t, v1]);
                        } else {
                            let (t, at) = (t + lane % 16, v1 + lane / 16 * 8);
                            let out = slot.u.at([t, at]).load_v::<8>();
                            v_new.at([row + t, head, v0 + at]).store_v_if(row + t < end, out);
                        }
                    }
                    if const { i == 0 } {
                        warp_sync();
                    }
                }
                slot.release();
            }

            // ---- The state behind the last chunk
            if schedule[[entry + work::KIND]] & work::LAST != 0 {
                let n = schedule[[entry + work::SEQUENCE]];
                let (slot, live) = states::slot_of(final_slots, n, slots_out, null);
                let (v_step, k_step) = states::steps(final_k_first);
                let origin = (v0 + v1) * v_step + k1 * k_step;
                #[unroll]
                for j in 0..TILES {
                    s[j].for_each(|v, k, pair| {
                        let at = origin + v * v_step + (8 * j + k) * k_step;
                        final_f32.at([slot, head, at]).store_if(live, pair[0]);
                        final_f32.at([slot, head, at + k_step]).store_if(live, pair[1]);
                        final_bf16.at([slot, head, at]).store_if(live, bf16::rn(pair[0]));
                        final_bf16.at([slot, head, at + k_step]).store_if(live, bf16::rn(pair[1]));
                    });
                }
            }
        }
    }
}
