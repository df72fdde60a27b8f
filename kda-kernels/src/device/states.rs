//! Where `delta_h` finds the states of sequences: slots of pools, states `[V, K]` or `[K, V]` in memory, f32 or bf16.

/// Pools are `[slots, heads, K V]`, K = V = 128; the pool of one of both types is there.
#[kda_dsl::device_lib]
pub mod states {
    const K: u32 = 128;
    const V: u32 = 128;

    /// Slot of a sequence in a pool of so many, and whether there is one for it; its own number without a table.
    fn slot_of(table: Global<i32>, n: u32, slots: u32, null: i32) -> (i32, bool) {
        let slot = select(table.is_present(), table.at([n]).load(), n as i32);
        (slot, (null < slot || !table.is_present()) && slot < slots as i32)
    }

    /// The same of a state that a sequence may begin without.
    fn wanted_slot(table: Global<i32>, has: Global<u8>, n: u32, slots: u32, null: i32) -> (i32, bool) {
        let (slot, live) = slot_of(table, n, slots, null);
        (slot, (!has.is_present() || has.at([n]).load() as u32 != 0) && live)
    }

    /// Distances of neighbours along V and along K.
    fn steps(k_first: bool) -> (u32, u32) {
        (select(k_first, 1, K), select(k_first, V, 1))
    }

    /// Sets an accumulator to a part of a state: its element (m, n) is the one `m_step m + n_step n` behind `first`. Zeros if
    /// there is no state.
    fn load<const M: u32, const N: u32>(
        s: &mut Acc<f32, M, N>,
        pool_f32: Global<f32>,
        pool_bf16: Global<bf16>,
        slot: i32,
        live: bool,
        head: u32,
        first: u32,
        m_step: u32,
        n_step: u32,
    ) {
        if pool_bf16.is_present() {
            let from = pool_bf16.at([slot, head]);
            s = Acc::<f32, M, N>::from_fn(|m, n| from.at([first + m * m_step + n * n_step]).load_if(live) as f32);
        } else {
            let from = pool_f32.at([slot, head]);
            s = Acc::<f32, M, N>::from_fn(|m, n| from.at([first + m * m_step + n * n_step]).load_if(live));
        }
    }

    /// The same of rows 0 to 63 and 64 to 127 of K, and VS columns from v0 on.
    fn load_halves<const VS: u32>(
        low: &mut Acc<f32, 64, VS>,
        high: &mut Acc<f32, 64, VS>,
        pools: (Global<f32>, Global<bf16>),
        slot: i32,
        live: bool,
        head: u32,
        v0: u32,
        k_first: bool,
    ) {
        let (v_step, k_step) = steps(k_first);
        let first = v0 * v_step;
        load::<64, VS>(&mut low, pools.0, pools.1, slot, live, head, first, k_step, v_step);
        let first = v0 * v_step + 64 * k_step;
        load::<64, VS>(&mut high, pools.0, pools.1, slot, live, head, first, k_step, v_step);
    }

    /// Writes what `load` reads, rounded once.
    fn store<const M: u32, const N: u32>(
        pool_f32: GlobalMut<f32>,
        pool_bf16: GlobalMut<bf16>,
        slot: i32,
        live: bool,
        head: u32,
        first: u32,
        m_step: u32,
        n_step: u32,
        s: Acc<f32, M, N>,
    ) {
        s.for_each(|m, n, pair| {
            let at = first + m * m_step + n * n_step;
            pool_f32.at([slot, head, at]).store_if(live, pair[0]);
            pool_f32.at([slot, head, at + n_step]).store_if(live, pair[1]);
            pool_bf16.at([slot, head, at]).store_if(live, bf16::rn(pair[0]));
            pool_bf16.at([slot, head, at + n_step]).store_if(live, bf16::rn(pair[1]));
        });
    }

    /// Writes what `load_halves` reads, rounded once.
    fn store_halves<const VS: u32>(
        pools: (GlobalMut<f32>, GlobalMut<bf16>),
        slot: i32,
        live: bool,
        head: u32,
        v0: u32,
        k_first: bool,
        low: Acc<f32, 64, VS>,
        high: Acc<f32, 64, VS>,
    ) {
        let (v_step, k_step) = steps(k_first);
        let first = v0 * v_step;
        store::<64, VS>(pools.0, pools.1, slot, live, head, first, k_step, v_step, low);
        let first = v0 * v_step + 64 * k_step;
        store::<64, VS>(pools.0, pools.1, slot, live, head, first, k_step, v_step, high);
    }
}
