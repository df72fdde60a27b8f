//! The inter-chunk recurrence of chunked KDA over packed sequences, warp-specialised for Hopper.

/// One launch walks the chunks of 64 rows R of whole sequences and carries the state S `[K, V]` of a head.
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
    const VS: u32 = 64; // columns of V a CTA
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

    #[kernel(block = 224, grid = ctas, cluster = 2, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..5, store = 5..6, decay = 6..7)]
    #[variants(V_FIRST in [false, true], SCALAR in [false, true])]
    #[requires(per_key_head > 0, SCALAR || gate_pitch % 4 == 0, v_pitch % 8 == 0)]
    fn delta_h<
        const V_FIRST: bool, // h is [V, K], not [K, V]
        const SCALAR: bool,  // one gate a head and token, not one a key channel
    >(
        #[dims(rows, heads, K; stable)] w: Option<TensorMap<bf16, Shape<{ BT / 2 }, 1, K>, Swizzle<128>>>,
        #[dims(rows, key_heads, K; stable)] kg: Option<TensorMap<bf16, Shape<{ BT / 2 }, 1, K>, Swizzle<128>>>,
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
        #[dims(words; stable)] schedule: Global<u32>,
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
        const OUT_STAGES: u32 = 2;

        // ---- Shared memory
        let first_u = Pipeline::<load, math> { u: smem::<bf16, Shape<BT, VS>, Swizzle<{ 2 * VS }>, 1>() };
        // SCALAR: the gates of rows. The role that reads them copies them: memory takes longer than a chunk.
        let gates = if const { SCALAR } {
            Pipeline::<decay, decay> { row: smem::<f32, Shape<BT>, _, { work::AHEAD + 1 }>() }
        } else {
            Pipeline::<load, decay> { row: smem::<f32, Shape<K>, _, STAGES>() }
        };
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

        pdl::wait();
        pdl::launch_dependents();
        let items = schedule[[work::ENTRIES]] * heads * SLICES;

        #[role(load)]
        #[elect_one]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            if const { !SCALAR } {
                gates.restart();
            }
            wu.restart();
            keys.restart();
            if chunks > 0 {
                let slot = first_u.acquire();
                slot.u.tma_load(u, [row0, head, v0]);
                slot.commit();
            }
            let (key_head, first_decay) = (head / per_key_head, schedule[[entry + work::CHUNK]]);
            for c in 0..chunks {
                let row = row0 + c * BT;
                if const { !SCALAR } {
                    let slot = gates.acquire();
                    let at = select(decays, first_decay + c, min(row + BT, end) - 1);
                    slot.row.bulk_load(gate.at([at, head]));
                    slot.commit();
                }
                let slot = wu.acquire();
                slot.w.tma_multicast(w, [row, head, 0]);
                slot.u.tma_load(u, [select(c + 1 < chunks, row + BT, row), head, v0]);
                slot.commit();
                let slot = keys.acquire();
                slot.kg.tma_multicast(kg, [row, key_head, 0]);
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
                        let factor = select(row + t < end, ex2_approx(last - mine[i]), 0.0);
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
            wu.restart();
            keys.restart();
            outs.restart();

            // ---- The state ahead of the first chunk
            let mut s = Acc::<f32, VS, K>::zero();
            let (slot, live) = states::wanted_slot(initial_slots, has_initial, n, slots_in, null);
            let (v_step, k_step) = states::steps(initial_k_first);
            let first = v0 * v_step;
            states::load::<VS, K>(&mut s, initial_f32, initial_bf16, slot, live, head, first, v_step, k_step);

            if chunks > 0 {
                let strip = 16 * warp; // rows of V of this warp
                // ---- First product of chunk 0. The loop is rotated: nothing is in flight where it goes round.
                let first = first_u.wait();
                let mut x = Acc::load_t(first.u);
                first.release();
                let mut wu_slot = wu.wait();
                x.mma(-s.as_a::<bf16>(), wu_slot.w);
                wgmma::commit();
                let out = outs.acquire();
                if const { V_FIRST } {
                    s.as_a::<bf16>().store(out.h);
                } else {
                    s.as_a::<bf16>().store_t(out.h);
                }
                out.commit();
                let mut key_slot = keys.wait();
                wgmma::wait::<0>();
                let mut next_u = Frag::<bf16, 16, BT>::load_t(wu_slot.u, [0, strip]);
                if const { SCALAR } {
                    let factor = wu_slot.factors[[0, DECAY]];
                    s = s.map(|_, _, e| e * factor);
                } else {
                    let factors = from_fn::<8>(|i| wu_slot.factors.at([lane % 4, 4 * i]).load_v::<4>());
                    scale(&mut s, factors);
                }

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
                    // A barrier takes long to answer: it is asked in the shadow of the products.
                    let next = wu.peek();
                    let out = outs.peek();
                    wu_slot.release();
                    wu_slot = next.wait();
                    let out = out.acquire();
                    v.store_t(out.v);
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
                    // Loads ahead of the stores of h: shared memory serves in order, and stores take long. The compiler would
                    // sink the multiplications to the next product of s, behind the waits, but for a branch.
                    if heads > 0 {
                        next_u = Frag::<bf16, 16, BT>::load_t(wu_slot.u, [0, strip]);
                        if const { SCALAR } {
                            let factor = wu_slot.factors[[0, DECAY]];
                            s = s.map(|_, _, e| e * factor);
                        } else {
                            let factors = from_fn::<8>(|i| wu_slot.factors.at([lane % 4, 4 * i]).load_v::<4>());
                            scale(&mut s, factors);
                        }
                    }
                    if const { V_FIRST } {
                        low.store(out.h.columns(0..64));
                        high.store(out.h.columns(64..128));
                    } else {
                        low.store_t(out.h.rows(0..64));
                        high.store_t(out.h.rows(64..128));
                    }
                    out.commit();
                    key_slot = next.wait();
                    wgmma::wait::<0>();
                }

                // ---- Second product of the last chunk. Rows of other sequences count as zero, whatever they are.
                let count = end - row0 - (chunks - 1) * BT;
                if count < BT {
                    work::clear_from(key_slot.kg, count);
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
                let out = outs.acquire();
                v.store_t(out.v);
                out.commit();
                wgmma::wait::<0>();
                wu_slot.release();
                key_slot.release();
            }

            // ---- The state behind the last chunk
            let (slot, live) = states::slot_of(final_slots, n, slots_out, null);
            let (v_step, k_step) = states::steps(final_k_first);
            states::store::<VS, K>(final_f32, final_bf16, slot, live, head, v0 * v_step, v_step, k_step, s);
        }

        #[role(store)]
        for trip in (ctaid.x..items).step_by(nctaid.x) {
            let item = work::item_of(trip, items);
            let [entry, head, v0, row0, end, chunks] = work::place::<VS>(schedule, first_entry, heads, item);
            let (h0, first_chunk) = (schedule[[entry + work::H0]], schedule[[entry + work::FIRST_CHUNK]]);
            outs.restart();
            if chunks > 0 {
                let policy = l2::evict_first();
                let h_out = h.hint(policy);
                let v_out = v_new.hint(policy);
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
}
