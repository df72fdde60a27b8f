//! The inter-chunk recurrence of chunked KDA over packed sequences where there are few heads, for Hopper.

/// One launch walks the chunks of 64 rows R of sequences, or of segments of them, and carries VS columns of V of the state S
/// `[K, V]` of a head.
///
/// Contract: that of `delta_h`, with its bits. There S stands transposed in accumulators, and both products take it from
/// registers; but a product has 64 rows, so that a CTA cannot have fewer than 64 columns of V without idling. Here S stands as
/// it is: w and kg^T are A operands in shared memory, h and v_new, which are stored anyway, the B operands. Products shrink
/// with VS, and so does the chain from chunk to chunk, though it passes through shared memory twice: 395 ns a chunk with 16
/// columns and 460 with 32, where S transposed takes 685 with 64.
#[kda_dsl::kernels(arch = sm_90a, uses = [crate::device::work, crate::device::states, crate::device::halves])]
pub mod delta_h_narrow {
    const BT: u32 = 64; // rows of a chunk
    const K: u32 = 128;
    const V: u32 = 128;
    const DECAY: u32 = 64; // SCALAR: place of the decay behind the factors of rows

    #[kernel(block = 224, grid = ctas, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..5, store = 5..6, decay = 6..7)]
    #[variants(
        (MAPS, SPLIT, VS) in [
            (false, false, 16), (false, false, 32), (true, false, 32), (true, false, 64), (false, true, 32),
        ],
        V_FIRST in [false, true],
        SCALAR in [false, true],
        skip_if((MAPS || SPLIT) && SCALAR || MAPS && V_FIRST)
    )]
    #[requires(per_key_head > 0, map_pitch % 2 == 0)]
    #[requires(SCALAR || gate_pitch % 4 == 0, v_pitch % 8 == 0)]
    fn delta_h_narrow<
        const MAPS: bool,    // what segments do to a state S is computed: it becomes M S + B
        const SPLIT: bool,   // entries may be segments: what is behind a first one is kept for those that follow
        const VS: u32,       // columns of V a CTA
        const V_FIRST: bool, // h is [V, K], not [K, V]
        const SCALAR: bool,  // one gate a head and token, not one a key channel
    >(
        #[dims(rows, heads, K; stable)] w: Option<TensorMap<bf16, Shape<BT, 1, K>, Swizzle<128>>>,
        #[dims(rows, key_heads, K; stable)] kg: Option<TensorMap<bf16, Shape<BT, 1, K>, Swizzle<128>>>,
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
        // The state behind a first segment, B of a map: images of S in slices of 32 columns.
        #[dims(map_slots:map_pitch, heads, { V * K })] affine_b: Option<GlobalMut<f32>>,
        // M of a map: what is rounded to bf16, and what that leaves over, rounded.
        #[dims(map_slots, heads, 2, K, K)] affine_m: Option<
            TensorMapMut<bf16, Shape<1, 1, 1, K, VS>, Swizzle<{ 2 * VS }>>,
        >,
        #[dims(map_slots, heads, 2, K, K)] affine_in: Option<TensorMap<bf16, Shape<1, 1, 1, 64, K>, Swizzle<128>>>,
        #[dims(words; stable)] schedule: Global<u32>,
        first_entry: u32, // word of the first entry of this kind of work
        every: u32,       // h of every so many chunks is written
        decays: bool,     // `gate` holds decays of chunks
        // An initial and a final state lie [K, V] in memory, not [V, K].
        (initial_k_first, final_k_first): (bool, bool),
        null: i32,
        per_key_head: u32,
        later: bool, // SPLIT: entries are segments behind the first one of their sequence
        ctas: u32,
    ) {
        const SLICES: u32 = V / VS;
        // As many as there is room for; their least common multiple is how often the loop over chunks is unrolled. With two
        // slots of outputs a chunk waits for the stores of the last but one: 32 columns take 650 ns.
        const STAGES: u32 = if VS == 16 { 5 } else { 4 };
        const OUT_STAGES: u32 = STAGES;

        // ---- Shared memory
        // SCALAR: the gates of rows. The role that reads them copies them: memory takes longer than a chunk.
        let gates = if const { SCALAR } {
            Pipeline::<decay, decay> { row: smem::<f32, Shape<BT>, _, { work::AHEAD + 1 }>() }
        } else {
            Pipeline::<load, decay> { row: smem::<f32, Shape<K>, _, STAGES>() }
        };
        let wu = Pipeline::<(load, decay), math> {
            w: smem::<bf16, Shape<BT, K>, Swizzle<128>, STAGES>(),
            u: smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>, STAGES>(),
            factors: smem::<f32, Shape<K>, _, STAGES>(),
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
        // MAPS, SPLIT: M or S, rounded, and what that leaves over. The first of them is also h of maps.
        let rounded = smem::<bf16, Shape<K, VS>, Swizzle<{ 2 * VS }>>();
        let left_over = smem::<bf16, Shape<K, VS>, Swizzle<{ 2 * VS }>>();
        let map_v = smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>>(); // MAPS: v_new
        let gated = smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>>(); // SCALAR: v_new by the factors of rows

        if const { !SPLIT } {
            pdl::wait();
        }
        // Slices of a head go side by side, so that L2 gives what one of them has read to all. A successor that waits on free
        // multiprocessors starts elsewhere than the rest of it: 16 heads take 73 µs in a chain of dependent launches, not 61.
        // Maps and first segments run side by side, and so may what waits for them.
        if const { MAPS } {
            pdl::launch_dependents();
        } else if const { SPLIT } {
            if !later {
                pdl::launch_dependents();
            }
        }
        let list = if const { MAPS } {
            work::MAPS
        } else if const { SPLIT } {
            select(later, work::LATER, work::ENTRIES)
        } else {
            work::ENTRIES
        };
        // Lists of a schedule for another batch lie elsewhere: nothing of it is done.
        let mine = if const { MAPS || SPLIT } { schedule[[work::PLACES]] == map_slots } else { true };
        let items = select(mine, schedule[[list]] * heads * SLICES, 0);

        // Maps leave in L2 what later segments read once more.
        let (w_in, kg_in, u_in) = if const { MAPS } {
            let policy = l2::evict_last();
            (w.hint(policy), kg.hint(policy), u.hint(policy))
        } else {
            (w, kg, u)
        };

        #[role(load)]
        #[elect_one]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            let (key_head, first_decay) = (head / per_key_head, schedule[[entry + work::CHUNK]]);
            if const { !SCALAR } {
                gates.restart();
            }
            wu.restart();
            if const { SPLIT } {
                // The stages of a fold are those that come: constants there would cost the chain its own.
                let folds = work::folds_of(schedule[[entry + work::KIND]]);
                let map0 = schedule[[entry + work::MAP0]];
                for i in 0..folds {
                    pdl::wait();
                    #[unroll]
                    for part in 0..4 {
                        let slot = keys.acquire();
                        slot.kg.tma_load(affine_in, [map0 + 1 + i, head, part / 2, part % 2 * 64, 0]);
                        slot.commit();
                    }
                }
            }
            keys.restart();
            for c in 0..chunks {
                let row = row0 + c * BT;
                if const { !SCALAR } {
                    let slot = gates.acquire();
                    let at = select(decays, first_decay + c, min(row + BT, end) - 1);
                    slot.row.bulk_load(gate.at([at, head]));
                    slot.commit();
                }
                let slot = wu.acquire();
                slot.w.tma_load(w_in, [row, head, 0]);
                slot.u.tma_load(u_in, [row, head, v0]);
                slot.commit();
                let slot = keys.acquire();
                slot.kg.tma_load(kg_in, [row, key_head, 0]);
                slot.commit();
            }
        }

        #[role(decay)]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            gates.restart();
            wu.restart();
            if const { SCALAR } {
                #[unroll]
                for c in 0..work::AHEAD {
                    let slot = gates.acquire();
                    work::copy_gates(slot.row, gate, row0 + c * BT, end, head);
                    slot.commit();
                }
            }
            for c in 0..chunks {
                if const { SCALAR } {
                    let row = row0 + c * BT;
                    let slot = gates.acquire();
                    work::copy_gates(slot.row, gate, row + work::AHEAD * BT, end, head);
                    slot.commit();
                    let from = gates.wait();
                    let last = from.row[[min(end - row, BT) - 1]];
                    let mine = [from.row[[lane]], from.row[[lane + 32]]];
                    from.release();
                    let to = wu.acquire();
                    #[unroll]
                    for i in 0..2 {
                        let t = lane + 32 * i;
                        to.factors[[t]] = select(row + t < end, ex2_approx(last - mine[i]), 0.0);
                    }
                    if lane == 0 {
                        to.factors[[DECAY]] = ex2_approx(last);
                    }
                    to.commit();
                } else {
                    let from = gates.wait();
                    let row = from.row.at([4 * lane]).load_v::<4>();
                    from.release();
                    let to = wu.acquire();
                    to.factors.at([4 * lane]).store_v(select(decays, row, ex2_approx(row)));
                    to.commit();
                }
            }
            if const { SCALAR } {
                for _ in 0..work::AHEAD {
                    gates.wait().release();
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
            if const { !SPLIT } {
                keys.restart();
            }
            if const { !MAPS } {
                outs.restart();
            }

            // ---- The state ahead of the first chunk: rows 0 to 63 and 64 to 127 of K
            let identity = kind & work::IDENTITY != 0;
            let mut low = Acc::<f32, 64, VS>::zero();
            let mut high = Acc::<f32, 64, VS>::zero();
            if const { MAPS } {
                if identity {
                    low = Acc::<f32, 64, VS>::from_fn(|k, v| select(v0 + v == k, 1.0, 0.0));
                    high = Acc::<f32, 64, VS>::from_fn(|k, v| select(v0 + v == 64 + k, 1.0, 0.0));
                }
            } else if const { SPLIT } {
                if segment > 0 {
                    pdl::wait();
                    low = Acc::of(halves::load_image::<VS>(affine_b.at([map0, head, v0 * K..])));
                    high = Acc::of(halves::load_image::<VS>(affine_b.at([map0, head, v0 * K + 64 * VS..])));
                }
            }
            if const { !MAPS } {
                if segment == 0 {
                    let (slot, live) = states::wanted_slot(initial_slots, has_initial, n, slots_in, null);
                    let pools = (initial_f32, initial_bf16);
                    states::load_halves::<VS>(&mut low, &mut high, pools, slot, live, head, v0, initial_k_first);
                }
            }

            if const { SPLIT } {
                let folds = work::folds_of(kind);
                for i in 0..folds {
                    // S <- M S + B, both factors in two parts: the product of what both leave over stays below the rounding of f32.
                    pdl::wait();
                    let b_low = halves::load_image::<VS>(affine_b.at([map0 + 1 + i, head, v0 * K..]));
                    let b_high = halves::load_image::<VS>(affine_b.at([map0 + 1 + i, head, v0 * K + 64 * VS..]));
                    halves::split_to(low, rounded.rows(0..64), left_over.rows(0..64));
                    halves::split_to(high, rounded.rows(64..128), left_over.rows(64..128));
                    role_sync();
                    low = Acc::<f32, 64, VS>::zero();
                    high = Acc::<f32, 64, VS>::zero();
                    // Rows 0 to 63 of M, rows 64 to 127, then the same of what is left over of M. A stage is held while the next
                    // one is multiplied.
                    let mut held = keys.wait();
                    low.mma(held.kg, rounded.t());
                    low.mma(held.kg, left_over.t());
                    wgmma::commit();
                    #[unroll]
                    for part in 1..4 {
                        let slot = keys.wait();
                        if const { part == 2 } {
                            low.mma(slot.kg, rounded.t());
                        } else {
                            high.mma(slot.kg, rounded.t());
                        }
                        if const { part == 1 } {
                            high.mma(slot.kg, left_over.t());
                        }
                        wgmma::commit();
                        wgmma::wait::<1>();
                        held.release();
                        held = slot;
                    }
                    wgmma::wait::<0>();
                    held.release();
                    low = Acc::of(low.fragment() + b_low);
                    high = Acc::of(high.fragment() + b_high);
                    role_sync();
                }
                keys.restart();
            }

            if chunks > 0 {
                let strip = 16 * warp; // rows of u of this warp
                let row = strip + lane / 4;
                // Factors of this lane's rows: of K, or of the chunk, and the decay.
                let places =
                    if const { SCALAR } { [row, row + 8, DECAY, DECAY] } else { [row, row + 8, row + 64, row + 72] };
                // ---- First product of chunk 0. The loop is rotated: nothing is in flight where it goes round.
                let mut wu_slot = wu.wait();
                let mut x = Acc::<f32, BT, VS>::of(Frag::<bf16, 16, VS>::load(wu_slot.u, [strip, 0]));
                let mut factors = from_fn::<4>(|i| wu_slot.factors[[places[i]]]);
                // Columns of the identity have no values.
                if const { MAPS } {
                    x = x.map(|_, _, e| select(identity, 0.0, e));
                }
                let mut out = if const { !MAPS } { outs.acquire() } else { 0 };
                let state = if const { MAPS } { rounded } else { out.h };
                halves::round_to::<V_FIRST, 0, VS>(low, state);
                halves::round_to::<V_FIRST, 64, VS>(high, state);
                role_sync();
                x.mma(-wu_slot.w, if const { V_FIRST } { state } else { state.t() });
                wgmma::commit();
                wgmma::wait::<0>();
                if const { !MAPS } {
                    out.commit();
                }
                let decay = [factors[2], factors[3]];
                halves::scale(&mut low, if const { SCALAR } { decay } else { [factors[0], factors[1]] });
                halves::scale(&mut high, decay);
                if const { !MAPS } {
                    out = outs.acquire();
                }
                let mut key_slot = keys.wait();

                // ---- Here x is v_new of chunk c - 1 before rounding, s is decayed, and the slots are those of chunk c - 1.
                #[unroll(wu, keys, outs)]
                for c in 1..chunks {
                    wu_slot.release();
                    let v = if const { MAPS } { map_v } else { out.v };
                    x.store(v);
                    let values = if const { SCALAR } { gated } else { v };
                    if const { SCALAR } {
                        halves::scale(&mut x, [factors[0], factors[1]]);
                        x.store(gated);
                    }
                    // A barrier takes long to answer: it is asked in the shadow of others.
                    let next = wu.peek();
                    role_sync();
                    low.mma(key_slot.kg.columns(0..64).t(), values.t());
                    wgmma::commit();
                    high.mma(key_slot.kg.columns(64..128).t(), values.t());
                    wgmma::commit();
                    wu_slot = next.wait();
                    factors = from_fn::<4>(|i| wu_slot.factors[[places[i]]]);
                    let u = Frag::<bf16, 16, VS>::load(wu_slot.u, [strip, 0]);
                    let decay = [factors[2], factors[3]];
                    let state = if const { MAPS } { rounded } else { out.h };
                    // One half of s is rounded while the other is in flight.
                    wgmma::wait::<1>();
                    halves::round_to::<V_FIRST, 0, VS>(low, state);
                    // The compiler would sink what stands here to the next products, behind all waits, but for a branch.
                    if heads > 0 {
                        x = Acc::of(u);
                        if const { MAPS } {
                            x = x.map(|_, _, e| select(identity, 0.0, e));
                        }
                        halves::scale(&mut low, if const { SCALAR } { decay } else { [factors[0], factors[1]] });
                    }
                    wgmma::wait::<0>();
                    halves::round_to::<V_FIRST, 64, VS>(high, state);
                    key_slot.release();
                    role_sync();
                    x.mma(-wu_slot.w, if const { V_FIRST } { state } else { state.t() });
                    wgmma::commit();
                    let next = keys.peek();
                    let room = if const { !MAPS } { outs.peek() } else { 0 };
                    if const { !MAPS } {
                        out.commit();
                    }
                    if heads > 0 {
                        halves::scale(&mut high, decay);
                    }
                    if const { !MAPS } {
                        out = room.acquire();
                    }
                    key_slot = next.wait();
                    wgmma::wait::<0>();
                }

                // ---- Second product of the last chunk. Rows of other sequences count as zero, whatever they are.
                let count = end - row0 - (chunks - 1) * BT;
                if count < BT {
                    work::clear_from(key_slot.kg, count);
                    x = x.map(|t, _, e| select(t < count, e, 0.0));
                }
                wu_slot.release();
                let v = if const { MAPS } { map_v } else { out.v };
                x.store(v);
                let values = if const { SCALAR } { gated } else { v };
                if const { SCALAR } {
                    halves::scale(&mut x, [factors[0], factors[1]]);
                    x.store(gated);
                }
                role_sync();
                low.mma(key_slot.kg.columns(0..64).t(), values.t());
                high.mma(key_slot.kg.columns(64..128).t(), values.t());
                wgmma::commit();
                if const { !MAPS } {
                    out.commit();
                }
                wgmma::wait::<0>();
                key_slot.release();
            }

            // ---- The state behind the last chunk
            if const { MAPS } {
                if identity {
                    halves::split_to(low, rounded.rows(0..64), left_over.rows(0..64));
                    halves::split_to(high, rounded.rows(64..128), left_over.rows(64..128));
                    role_sync();
                    #[elect_one]
                    {
                        tma::store(affine_m, [map0 + segment, head, 0, 0, v0], rounded);
                        tma::store(affine_m, [map0 + segment, head, 1, 0, v0], left_over);
                        bulk::commit();
                        bulk::wait_read::<0>();
                    }
                    role_sync();
                } else {
                    // Those who read it have slices of 32 columns.
                    #[unroll]
                    for v in (0..VS).step_by(32) {
                        let image = affine_b.at([map0 + segment, head, (v0 + v) * K..]);
                        halves::store_image(image, low.columns(v..v + 32));
                        halves::store_image(image.at([64 * 32..]), high.columns(v..v + 32));
                    }
                }
            } else if kind & work::LAST != 0 {
                let (slot, live) = states::slot_of(final_slots, n, slots_out, null);
                let pools = (final_f32, final_bf16);
                states::store_halves::<VS>(pools, slot, live, head, v0, final_k_first, low, high);
            } else if const { SPLIT } {
                if segment == 0 {
                    pdl::wait();
                    halves::store_image(affine_b.at([map0, head, v0 * K..]), low);
                    halves::store_image(affine_b.at([map0, head, v0 * K + 64 * VS..]), high);
                }
            }
        }

        #[role(store)]
        if const { !MAPS } {
            for trip in (ctaid.x..items).step_by(nctaid.x) {
                let item = work::item_of(trip, items);
                let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
                let (h0, first_chunk) = (schedule[[entry + work::H0]], schedule[[entry + work::FIRST_CHUNK]]);
                let (h_row, h_column) = if const { V_FIRST } { (v0, 0) } else { (0, v0) };
                outs.restart();
                if chunks > 0 {
                    // Which h is kept, and where, is known ahead of the wait. A slot is held while the next one is stored.
                    let (mut skipped, mut at) = (first_chunk % every, h0 + first_chunk / every);
                    let mut held = outs.wait();
                    #[elect_one]
                    {
                        if h.is_present() && skipped == 0 {
                            tma::store(h, [at, head, h_row, h_column], held.h);
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
                                tma::store(h, [at, head, h_row, h_column], slot.h);
                            }
                            if stores {
                                tma::store(v_new, [row, head, v0], slot.v);
                            }
                            bulk::commit();
                            bulk::wait_read::<1>();
                        }
                        if cut {
                            work::store_rows::<VS>(v_rows, slot.v, end - row, row, head, v0);
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
