//! The inter-chunk recurrence of chunked KDA over packed sequences, warp-specialised for Hopper.

/// One launch walks the chunks of 64 rows R of sequences, or of segments of them, and carries the state S `[K, V]` of a head.
///
/// Contract: in this order, S in f32,
/// ```text
/// h = bf16(S);   v_new[R] = bf16(u[R] - w[R] h);   S <- S * exp2(gk[last(R)]);   S <- S + kg[R]^T v_new[R]
/// ```
/// with f32 accumulation. With a scalar gate the second product takes `bf16(v_new * exp2(g[last] - g))`, before v_new is
/// rounded. Rows behind a sequence's end contribute nothing and are not written; an empty sequence copies its state.
///
/// S is held transposed in accumulators: rounded, they are A operands as they stand, so that nothing on the chain from chunk
/// to chunk passes through shared memory. What there is to do comes from a schedule (`delta_h_schedule`).
#[kda_dsl::kernels(arch = sm_90a, uses = [crate::device::work, crate::device::states])]
pub mod delta_h {
    const BT: u32 = 64; // rows of a chunk
    const K: u32 = 128;
    const V: u32 = 128;
    const STAGES: u32 = 4;
    const PITCH: u32 = 36; // of factors: keeps the four lanes that read side by side off each other's banks
    const DECAY: u32 = 32; // SCALAR: place of the decay behind the factors of rows
    const HALVES: [u32; 2] = [0, 64]; // of K: one half of S is rounded while the other is in flight

    /// Multiplies each column by its factor; a lane has those of its columns.
    #[device]
    fn scale<const M: u32, const N: u32, const QUADS: u32>(x: &mut Acc<f32, M, N>, factors: [[f32; 4]; QUADS]) {
        #[unroll]
        for j in 0..N / 8 {
            let pair = [factors[j / 2][j % 2 * 2], factors[j / 2][j % 2 * 2 + 1]];
            x.columns(8 * j..8 * j + 8) = x.columns(8 * j..8 * j + 8).map_pairs(|_, _, e| e * pair);
        }
    }

    /// x with a factor for each row of the chunk.
    #[device]
    fn gated_by<const M: u32>(x: Acc<f32, M, BT>, factors: Shared<f32, Shape<4, PITCH>>) -> Acc<f32, M, BT> {
        let factors = from_fn::<4>(|i| factors.at([lane % 4, 4 * i]).load_v::<4>());
        let mut gated = x;
        scale(&mut gated, factors);
        gated
    }

    #[kernel(block = 224, grid = ctas, cluster = CLUSTER, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..5, store = 5..6, decay = 6..7)]
    #[variants(
        // Few heads: slices of 32 columns of V, twice the CTAs. Many: the two slices of a head share w and kg, and what is
        // written leaves L2 first.
        (MAPS, SPLIT, VS, CLUSTER, STREAM) in [
            (false, false, 32, 1, false),
            (false, false, 64, 2, true),
            (true, false, 64, 1, false),
            (false, true, 64, 2, true),
        ],
        V_FIRST in [false, true],
        SCALAR in [false, true],
        skip_if((MAPS || SPLIT) && SCALAR || MAPS && V_FIRST)
    )]
    #[requires(per_key_head > 0, map_pitch % 2 == 0)]
    #[requires(SCALAR || gate_pitch % 4 == 0, v_pitch % 8 == 0)]
    fn delta_h<
        const MAPS: bool,    // what segments do to a state S is computed: it becomes M S + B
        const SPLIT: bool,   // entries may be segments, which begin with a state that was made for them
        const V_FIRST: bool, // h is [V, K], not [K, V]
        const SCALAR: bool,  // one gate a head and token, not one a key channel
        const VS: u32,       // columns of V a CTA
        const CLUSTER: u32,  // CTAs that share w and kg
        const STREAM: bool,
    >(
        #[dims(rows, heads, K; stable)] w: Option<TensorMap<bf16, Shape<{ BT / CLUSTER }, 1, K>, Swizzle<128>>>,
        #[dims(rows, key_heads, K; stable)] kg: Option<TensorMap<bf16, Shape<{ BT / CLUSTER }, 1, K>, Swizzle<128>>>,
        #[dims(rows, heads, V; stable)] u: Option<TensorMap<bf16, Shape<BT, 1, VS>, Swizzle<{ 2 * VS }>>>,
        // Cumulative gates of rows, of which the last one of a chunk is read; or decays of chunks.
        #[dims(gates:gate_pitch, heads, { if SCALAR { 1 } else { K } }; stable)] gate: Global<f32>,
        #[dims(slots_in:pitch_in_f32, heads, { K * V }; stable)] initial_f32: Option<Global<f32>>,
        #[dims(slots_in:pitch_in_bf16, heads, { K * V }; stable)] initial_bf16: Option<Global<bf16>>,
        #[dims(seqs; stable)] initial_slots: Option<Global<i32>>,
        #[dims(seqs; stable)] has_initial: Option<Global<u8>>,
        #[dims(slots_out:pitch_out_f32, heads, { K * V }; unshared)] final_f32: Option<GlobalMut<f32>>,
        #[dims(slots_out:pitch_out_bf16, heads, { K * V }; unshared)] final_bf16: Option<GlobalMut<bf16>>,
        #[dims(seqs; stable)] final_slots: Option<Global<i32>>,
        #[dims(capacity, heads, K, V; unshared)] h: Option<
            TensorMapMut<
                bf16,
                Shape<1, 1, { if V_FIRST { VS } else { K } }, { if V_FIRST { K } else { VS } }>,
                Swizzle<{ if V_FIRST { 128 } else { 2 * VS } }>,
            >,
        >,
        #[dims(rows, heads, V; unshared)] v_new: Option<TensorMapMut<bf16, Shape<BT, 1, VS>, Swizzle<{ 2 * VS }>>>,
        // The same memory as `v_new`, for the rows of a tail.
        #[dims(rows:v_pitch, heads, V; unshared)] v_rows: Option<GlobalMut<bf16>>,
        // B of a map: images of S.
        #[dims(map_slots:map_pitch, heads, V / 64, { 64 * K })] affine_b: Option<GlobalMut<f32>>,
        // M of a map, transposed: what is rounded to bf16, and what that leaves over, rounded.
        #[dims(map_slots, heads, 2, V, K)] affine_m: Option<TensorMapMut<bf16, Shape<1, 1, 1, 64, K>, Swizzle<128>>>,
        #[dims(map_slots, heads, 2, V, K)] affine_in: Option<
            TensorMap<bf16, Shape<1, 1, 1, { 64 / CLUSTER }, K>, Swizzle<128>>,
        >,
        #[dims(words; stable)] schedule: Global<u32>,
        first_entry: u32, // word of the first entry of this kind of work
        every: u32,       // h of every so many chunks is written
        decays: bool,     // `gate` holds decays of chunks
        // An initial and a final state lie [K, V] in memory, not [V, K].
        (initial_k_first, final_k_first): (bool, bool),
        null: i32,
        per_key_head: u32,
        in_place: bool, // final states may lie where initial ones do
        ctas: u32,
    ) {
        const SLICES: u32 = V / VS;
        // As many as there is room for: with two, a chunk waits for the stores of the last but one.
        const OUT_STAGES: u32 = if VS == 32 { 4 } else { 2 };

        // ---- Shared memory
        let first_u = Pipeline::<load, math> { u: smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>, 1>() };
        let gates = Pipeline::<load, decay> { row: smem::<f32, Shape<K>, _, STAGES>() };
        let wu = Pipeline::<(load, decay), math> {
            w: smem::<bf16, Shape<BT, K>, Swizzle<128>, STAGES>(),
            u: smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>, STAGES>(), // of the next chunk
            factors: smem::<f32, Shape<4, PITCH>, _, STAGES>(),
        };
        // Needed, and given back, later than w.
        let keys = Pipeline::<load, math> { kg: smem::<bf16, Shape<BT, K>, Swizzle<128>, STAGES>() };
        // A slot has h of a chunk and v_new of the chunk before it.
        let outs = Pipeline::<math, store> {
            h: smem::<
                bf16,
                Shape<{ if V_FIRST { VS } else { K } }, { if V_FIRST { K } else { VS } }>,
                Swizzle<{ if V_FIRST { 128 } else { 2 * VS } }>,
                OUT_STAGES,
            >(),
            v: smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>, OUT_STAGES>(),
        };
        // M of a map, rounded, and what that leaves over.
        let m_high = smem::<bf16, Shape<64, K>, Swizzle<128>>();
        let m_low = smem::<bf16, Shape<64, K>, Swizzle<128>>();

        if const { !SPLIT } {
            pdl::wait();
        }
        pdl::launch_dependents();
        let items = schedule[[if const { MAPS } { work::MAPS } else { work::ENTRIES }]] * heads * SLICES;

        // The second pass finds in L2 what the first one has read.
        let (w_in, kg_in, u_in) = if const { MAPS || SPLIT } {
            let policy = if const { MAPS } { l2::evict_last() } else { l2::evict_first() };
            (w.hint(policy), kg.hint(policy), u.hint(policy))
        } else {
            (w, kg, u)
        };

        #[role(load)]
        #[elect_one]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            gates.restart();
            wu.restart();
            // The stages of a fold are those that come: constants there would cost the chain its own.
            if const { !SPLIT } {
                keys.restart();
            }
            if chunks > 0 {
                let slot = first_u.acquire();
                slot.u.tma_load(u_in, [row0, head, v0]);
                slot.commit();
            }
            if const { SPLIT } {
                let folds = work::folds_of(schedule[[entry + work::KIND]]);
                let map0 = schedule[[entry + work::MAP0]];
                for i in 0..folds {
                    pdl::wait();
                    #[unroll]
                    for part in 0..4 {
                        let slot = keys.acquire();
                        slot.kg.tma_multicast(affine_in, [map0 + 1 + i, head, part / 2, part % 2 * 64, 0]);
                        slot.commit();
                    }
                }
                keys.restart();
            }
            for c in 0..chunks {
                let row = row0 + c * BT;
                if const { !SCALAR } {
                    let slot = gates.acquire();
                    let at = select(decays, schedule[[entry + work::CHUNK]] + c, min(row + BT, end) - 1);
                    slot.row.bulk_load(gate.at([at, head]));
                    slot.commit();
                }
                let slot = wu.acquire();
                slot.w.tma_multicast(w_in, [row, head, 0]);
                slot.u.tma_load(u_in, [select(c + 1 < chunks, row + BT, row), head, v0]);
                slot.commit();
                let slot = keys.acquire();
                slot.kg.tma_multicast(kg_in, [row, head / per_key_head, 0]);
                slot.commit();
            }
        }

        #[role(decay)]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            gates.restart();
            wu.restart();
            for c in 0..chunks {
                if const { SCALAR } {
                    let row = row0 + c * BT;
                    let last = gate.at([min(row + BT, end) - 1, head, 0]).load();
                    let to = wu.acquire();
                    #[unroll]
                    for i in 0..2 {
                        let t = lane + 32 * i;
                        let mine = gate.at([row + t, head, 0]).load_if(row + t < end);
                        let factor = select(row + t < end, ex2_approx(last - mine), 0.0);
                        to.factors[[t % 8 / 2, t / 8 * 2 + t % 2]] = factor;
                    }
                    if lane == 0 {
                        to.factors[[0, DECAY]] = ex2_approx(last);
                    }
                    to.commit();
                } else {
                    let from = gates.wait();
                    let row = from.row.at([4 * lane]).load_v::<4>();
                    from.release();
                    let to = wu.acquire();
                    let factor = select(decays, row, ex2_approx(row));
                    let at = to.factors.at([lane % 2 * 2.., lane / 2 * 2..]);
                    at.at([0, 0]).store_v([factor[0], factor[1]]);
                    at.at([1, 0]).store_v([factor[2], factor[3]]);
                    to.commit();
                }
            }
        }

        #[role(math)]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            let n = schedule[[entry + work::SEQUENCE]];
            let (kind, map0) = (schedule[[entry + work::KIND]], schedule[[entry + work::MAP0]]);
            let segment = work::segment_of(kind);
            wu.restart();
            // The stages of a fold are those that come: constants there would cost the chain its own.
            if const { !SPLIT } {
                keys.restart();
            }
            if const { !MAPS } {
                outs.restart();
            }

            // ---- The state ahead of the first chunk
            let identity = kind & work::IDENTITY != 0;
            let mut s = Acc::<f32, VS, K>::zero();
            if const { SPLIT } {
                if segment > 0 || in_place && kind & work::LAST == 0 {
                    let at = select(segment > 0, map0, map0 + work::segments_of(kind) - 1);
                    pdl::wait();
                    let image = work::load_image(affine_b.at([at, head, v0 / 64]));
                    s = Acc::<f32, VS, K>::of(Frag::<f32, 16, K>::from_pairs(image));
                }
            }
            if segment == 0 && (const { !SPLIT } || kind & work::LAST != 0 || !in_place) {
                let (slot, live) = states::wanted_slot(initial_slots, has_initial, n, slots_in, null);
                states::load::<VS>(&mut s, initial_f32, initial_bf16, slot, live, head, v0, initial_k_first);
            }
            if const { MAPS } {
                if identity {
                    s = Acc::<f32, VS, K>::from_fn(|v, k| select(v0 + v == k, 1.0, 0.0));
                } else if segment == 0 && in_place {
                    let to = affine_b.at([map0 + work::segments_of(kind) - 1, head, v0 / 64]);
                    work::store_image(to, s.fragment().pairs());
                }
            }

            if const { SPLIT } {
                let folds = work::folds_of(kind);
                for i in 0..folds {
                    // S <- M S + B, both factors in two parts: the product of what both leave over stays below the rounding of f32.
                    pdl::wait();
                    let b = work::load_image(affine_b.at([map0 + 1 + i, head, v0 / 64]));
                    let (high, low) = s.split_a::<bf16>();
                    s = Acc::<f32, VS, K>::zero();
                    #[unroll]
                    for part in 0..4 {
                        let slot = keys.wait();
                        let from = part % 2 * 64;
                        #[unroll]
                        for half in HALVES {
                            let rows = slot.kg.columns(half..half + 64).t();
                            s.columns(half..half + 64).mma(high.columns(from..from + 64), rows);
                            if const { part < 2 } {
                                s.columns(half..half + 64).mma(low.columns(from..from + 64), rows);
                            }
                        }
                        wgmma::commit();
                        wgmma::wait::<0>();
                        slot.release();
                    }
                    let product = s.fragment().pairs();
                    s = Acc::of(Frag::<f32, 16, K>::from_pairs(from_fn::<32>(|j| product[j] + b[j])));
                }
                keys.restart();
            }

            if chunks > 0 {
                // Rows of V of this warp, if it holds any: the others spare shared memory their loads.
                let holds = if const { VS == 64 } { true } else { warp < VS / 16 };
                let strip = 16 * (warp % (VS / 16));
                // ---- First product of chunk 0. The loop is rotated: nothing is in flight where it goes round.
                let first = first_u.wait();
                let mut x = Acc::load_t(first.u);
                first.release();
                if const { MAPS } {
                    x = x.map(|_, _, e| select(identity, 0.0, e));
                }
                let mut wu_slot = wu.wait();
                x.mma(-s.as_a::<bf16>(), wu_slot.w);
                wgmma::commit();
                if const { !MAPS } {
                    let out = outs.acquire();
                    if const { V_FIRST } {
                        s.as_a::<bf16>().store(out.h);
                    } else {
                        s.as_a::<bf16>().store_t(out.h);
                    }
                    out.commit();
                }
                let mut key_slot = keys.wait();
                wgmma::wait::<0>();
                let mut next_u = Frag::<bf16, 16, BT>::load_t_if(holds, wu_slot.u, [0, strip]);
                if const { SCALAR } {
                    let factor = wu_slot.factors[[0, DECAY]];
                    s = s.map(|_, _, e| e * factor);
                } else {
                    let factors = from_fn::<8>(|i| wu_slot.factors.at([lane % 4, 4 * i]).load_v_if::<4>(holds));
                    scale(&mut s, factors);
                }

                // A warp that holds no rows keeps what it has: zeros instead, of loads under a condition, cost 13 ns a chunk.
                let mut factors = [[0.0; 4]; 8];
                // ---- Here x is v_new^T of chunk c - 1 before rounding, s is decayed, and the slots are those of chunk c - 1.
                #[unroll(wu, keys, outs)]
                for c in 1..chunks {
                    let v = x.as_a::<bf16>();
                    let gated = if const { SCALAR } { gated_by(x, wu_slot.factors).as_a::<bf16>() } else { v };
                    #[unroll]
                    for half in HALVES {
                        s.columns(half..half + 64).mma(gated, key_slot.kg.columns(half..half + 64).t());
                        wgmma::commit();
                    }
                    x = Acc::of(next_u);
                    if const { MAPS } {
                        x = x.map(|_, _, e| select(identity, 0.0, e));
                    }
                    // A barrier takes long to answer: it is asked in the shadow of the products.
                    let next = wu.peek();
                    let out = if const { !MAPS } { outs.peek() } else { 0 };
                    wu_slot.release();
                    wu_slot = next.wait();
                    let out = if const { !MAPS } { out.acquire() } else { 0 };
                    if const { !MAPS } {
                        v.store_t(out.v);
                    }
                    // This half of s has landed.
                    wgmma::wait::<1>();
                    let low = s.columns(0..64).as_a::<bf16>();
                    x.mma(-low, wu_slot.w.columns(0..64));
                    wgmma::commit();
                    wgmma::wait::<1>();
                    let high = s.columns(64..128).as_a::<bf16>();
                    x.mma(-high, wu_slot.w.columns(64..128));
                    wgmma::commit();
                    let next = keys.peek();
                    key_slot.release();
                    // Loads ahead of the stores of h: shared memory serves in order, and stores take long.
                    if const { SCALAR } {
                        let factor = wu_slot.factors[[0, DECAY]];
                        if holds {
                            next_u = Frag::<bf16, 16, BT>::load_t(wu_slot.u, [0, strip]);
                        }
                        s = s.map(|_, _, e| e * factor);
                    } else {
                        if holds {
                            factors = from_fn::<8>(|i| wu_slot.factors.at([lane % 4, 4 * i]).load_v::<4>());
                        }
                        if holds {
                            next_u = Frag::<bf16, 16, BT>::load_t(wu_slot.u, [0, strip]);
                        }
                        scale(&mut s, factors);
                    }
                    if const { !MAPS } {
                        if const { V_FIRST } {
                            low.store(out.h.columns(0..64));
                            high.store(out.h.columns(64..128));
                        } else {
                            low.store_t(out.h.rows(0..64));
                            high.store_t(out.h.rows(64..128));
                        }
                        out.commit();
                    }
                    key_slot = next.wait();
                    wgmma::wait::<0>();
                }

                // ---- Second product of the last chunk. Rows of other sequences count as zero, whatever they are.
                let count = end - row0 - (chunks - 1) * BT;
                if count < BT {
                    for i in (16 * count + tid..16 * BT).step_by(128) {
                        key_slot.kg.at([i / 16, 8 * (i % 16)]).store_v([bf16::ZERO; 8]);
                    }
                    role_sync();
                    x = x.map(|_, t, e| select(t < count, e, 0.0));
                }
                let v = x.as_a::<bf16>();
                let gated = if const { SCALAR } { gated_by(x, wu_slot.factors).as_a::<bf16>() } else { v };
                #[unroll]
                for half in HALVES {
                    s.columns(half..half + 64).mma(gated, key_slot.kg.columns(half..half + 64).t());
                }
                wgmma::commit();
                if const { !MAPS } {
                    let out = outs.acquire();
                    v.store_t(out.v);
                    out.commit();
                }
                wgmma::wait::<0>();
                wu_slot.release();
                key_slot.release();
            }

            // ---- The state behind the last chunk
            if const { MAPS } {
                if identity {
                    pdl::wait();
                    let (high, low) = s.split_a::<bf16>();
                    high.store(m_high);
                    low.store(m_low);
                    role_sync();
                    #[elect_one]
                    {
                        tma::store(affine_m, [map0 + segment, head, 0, v0, 0], m_high);
                        tma::store(affine_m, [map0 + segment, head, 1, v0, 0], m_low);
                        bulk::commit();
                        bulk::wait_read::<0>();
                    }
                    role_sync();
                } else {
                    let to = affine_b.at([map0 + segment, head, v0 / 64]);
                    work::store_image(to, s.fragment().pairs());
                }
            } else if kind & work::LAST != 0 {
                let (slot, live) = states::slot_of(final_slots, n, slots_out, null);
                states::store::<VS>(final_f32, final_bf16, slot, live, head, v0, final_k_first, s);
            }
        }

        #[role(store)]
        if const { !MAPS } {
            for trip in (ctaid.x..items).step_by(nctaid.x) {
                let item = work::item_of(trip, items);
                let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
                let (h0, first_chunk) = (schedule[[entry + work::H0]], schedule[[entry + work::FIRST_CHUNK]]);
                outs.restart();
                if chunks > 0 {
                    let policy = l2::evict_first();
                    let h_out = if const { STREAM } { h.hint(policy) } else { h };
                    let v_out = if const { STREAM } { v_new.hint(policy) } else { v_new };
                    let (h_row, h_column) = if const { V_FIRST } { (v0, 0) } else { (0, v0) };
                    // Which h is kept, and where, is known ahead of the wait: a chunk waits for the stores of the last but
                    // one. A slot is held while the next one is stored: 804 -> 683 ns a chunk with 64 columns of V.
                    let (mut skipped, mut at) = (first_chunk % every, h0 + first_chunk / every);
                    let mut held = outs.wait();
                    #[elect_one]
                    {
                        if h.is_present() && skipped == 0 {
                            tma::store(h_out, [at, head, h_row, h_column], held.h);
                        }
                        bulk::commit();
                    }
                    for c in 0..chunks {
                        let round = skipped + 1 == every;
                        at += select(round, 1, 0);
                        skipped = select(round, 0, skipped + 1);
                        let row = row0 + c * BT;
                        let last = c + 1 == chunks;
                        let cut = last && end - row < BT;
                        let keeps = h.is_present() && !last && skipped == 0;
                        let stores = v_new.is_present() && !cut;
                        let slot = outs.wait();
                        #[elect_one]
                        {
                            if keeps {
                                tma::store(h_out, [at, head, h_row, h_column], slot.h);
                            }
                            if stores {
                                tma::store(v_out, [row, head, v0], slot.v);
                            }
                            bulk::commit();
                            bulk::wait_read::<1>();
                        }
                        if cut {
                            for i in (lane..(end - row) * (VS / 8)).step_by(32) {
                                let (t, at) = (i / (VS / 8), i % (VS / 8) * 8);
                                v_rows.at([row + t, head, v0 + at]).store_v(slot.v.at([t, at]).load_v::<8>());
                            }
                        }
                        held.release();
                        held = slot;
                    }
                    #[elect_one]
                    {
                        bulk::wait_read::<0>();
                    }
                    held.release();
                }
            }
        }

        // Its successor waits for this one, and through it for those before.
        pdl::wait();
    }
}
