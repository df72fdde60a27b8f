//! How a call is put, and what its layers hold.

use half::bf16;
use kda_kernels::tc_commit::TcCommitVariant;
use kda_sim::Schedule;

/// Channels of a head.
pub(super) const D: usize = 128;

/// splitmix64
pub(super) struct Random(pub u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Within -half .. half.
    pub(super) fn float(&mut self, half: f32) -> f32 {
        ((self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * half
    }

    pub(super) fn floats(&mut self, count: usize, half: f32) -> Vec<f32> {
        (0..count).map(|_| self.float(half)).collect()
    }

    pub(super) fn narrow(&mut self, count: usize, half: f32) -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f32(self.float(half))).collect()
    }
}

/// Order of the windows of raw inputs.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rows {
    Tokens,
    Channels,
}

/// How a call is put.
#[derive(Clone)]
pub(super) struct Case {
    pub heads: usize,
    pub window: usize,
    pub pool: usize,
    pub slots: Vec<i32>,
    pub destinations: Option<Vec<i32>>,
    pub counts: Vec<i32>,
    /// Tokens and slots.
    pub boundary: Option<(Vec<i32>, Vec<i32>)>,
    pub null: i32,
    pub bf16_state: bool,
    pub conv: Option<Rows>,
    /// Elements that slots of both pools lie further apart than they are long.
    pub padding: usize,
    pub softplus: bool,
    /// Some channels decay by hundreds.
    pub far: bool,
    pub a_log: bool,
    pub layers: usize,
    /// By the table of layers, also of one.
    pub table: bool,
    pub variant: Option<TcCommitVariant>,
    pub capability: (u8, u8),
    pub schedule: Schedule,
}

impl Case {
    /// In place, a request a count, each a slot of its own.
    pub(super) fn plain(window: usize, counts: &[i32]) -> Case {
        let n = counts.len() as i32;
        Case {
            heads: 2,
            window,
            pool: counts.len() + 2,
            slots: (0..n)
                .map(|b| (b * 3 + 1) % (n + 2))
                .scan(0u64, |seen, slot| Some(free(seen, slot, n + 2)))
                .collect(),
            destinations: None,
            counts: counts.to_vec(),
            boundary: None,
            null: -1,
            bf16_state: true,
            conv: None,
            padding: 0,
            softplus: false,
            far: false,
            a_log: true,
            layers: 1,
            table: false,
            variant: None,
            capability: (9, 0),
            schedule: Schedule::RoundRobin,
        }
    }

    pub(super) fn pitch(&self) -> usize {
        self.heads * D * D + self.padding
    }

    /// Where a head's state in a slot begins.
    pub(super) fn place(&self, slot: usize, head: usize) -> usize {
        slot * self.pitch() + head * D * D
    }

    pub(super) fn channels(&self) -> usize {
        3 * self.heads * D
    }

    pub(super) fn conv_pitch(&self) -> usize {
        self.channels() * (self.window + 2) + 2 * self.padding
    }
}

/// The next slot that is not taken.
fn free(seen: &mut u64, mut slot: i32, pool: i32) -> i32 {
    while *seen >> slot & 1 == 1 {
        slot = (slot + 1) % pool;
    }
    *seen |= 1 << slot;
    slot
}

/// What a layer holds.
#[derive(Clone)]
pub(super) struct Layer {
    pub state: Vec<f32>,
    pub corr: Vec<f32>,
    pub kg: Vec<bf16>,
    pub a_log: Vec<f32>,
    pub dt_bias: Vec<f32>,
    pub conv: Vec<bf16>,
}

pub(super) fn draw(case: &Case, random: &mut Random) -> Layer {
    let records = (case.counts.len() + 1) * case.heads * case.window;
    let mut kg = random.narrow(2 * records * D, 1.5);
    for record in 0..records {
        for k in 0..D {
            // Softplus of some 35 times e^(a_log) = 16: two tokens are past e^-500, whose exponential is 0.
            let far = case.far && k % 3 == 0;
            let gate = &mut kg[(2 * record + 1) * D + k];
            *gate = bf16::from_f32(if far { 35.0 + gate.to_f32() } else { 2.0 * gate.to_f32() - 3.0 });
        }
    }
    let mut state = random.floats(case.pool * case.pitch(), 2.0);
    if case.bf16_state {
        state.iter_mut().for_each(|s| *s = bf16::from_f32(*s).to_f32());
    }
    let rate = if case.far { 16f32.ln() } else { 0.0 };
    Layer {
        state,
        corr: random.floats(records * D, 1.0),
        kg,
        a_log: random.floats(case.heads, 0.5).iter().map(|a| a + rate).collect(),
        dt_bias: random.floats(case.heads * D, 1.0),
        conv: random.narrow(if case.conv.is_some() { case.pool * case.conv_pitch() } else { 0 }, 1.0),
    }
}
