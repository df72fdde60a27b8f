//! Owned random problems: every switch of the contract, rows of a real delta rule, and NaN wherever nothing may be read.

use crate::floats::FloatVec;
use crate::layout::StateOrder;
use crate::rng::Rng;
use half::bf16;

/// How the decay is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateForm {
    /// Cumulative rows.
    Cumulative,
    /// Decay rows of chunks.
    Decay,
    /// One cumulative gate for all channels of a head.
    Scalar,
}

/// Log decays of a token, drawn for each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// No decay at all.
    None,
    /// Below 0.01 of a unit: states live for thousands of tokens.
    Weak,
    /// Up to a tenth of a unit: an order of magnitude in a chunk.
    Usual,
    /// Up to 40 units: most states are gone after a token.
    Strong,
    /// Any of the others, for each channel.
    Mixed,
}

/// How a pool of states is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolForm {
    /// There is none.
    Absent,
    /// A state for each sequence, in order.
    Dense,
    /// Slots in random order.
    Slots,
}

/// What is wrong with a call's boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A boundary is negative.
    Negative,
    /// A boundary lies below the one before it.
    Falling,
    /// A boundary lies past the rows.
    PastTheRows,
    /// h holds too few chunk states.
    Capacity,
}

/// The switches of a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// Key heads; others than `hv` with a scalar gate alone.
    pub h: usize,
    /// Value heads.
    pub hv: usize,
    /// How the decay is given.
    pub gate: GateForm,
    /// How strong it is.
    pub strength: Strength,
    /// Largest write strength, at most 1.
    pub beta: f64,
    /// bf16 states instead of fp32.
    pub bf16_state: bool,
    /// Order of states in the pools.
    pub order: StateOrder,
    /// Initial states.
    pub initial: PoolForm,
    /// Some sequences have no initial state.
    pub has_initial: bool,
    /// Final states.
    pub final_state: PoolForm,
    /// Final states go to the pool of initial states, where both have the same form.
    pub in_place: bool,
    /// The null index.
    pub null: i32,
    /// Whether slots may be dead.
    pub dead: bool,
    /// h is stored.
    pub h_out: bool,
    /// Every this many chunks the state is stored.
    pub h_every: usize,
    /// Order of h.
    pub h_order: StateOrder,
    /// v_new is stored.
    pub v_new: bool,
    /// Boundaries are given as i64 instead of i32.
    pub wide_boundaries: bool,
    /// Elements added to every stride, in units of the stride's granularity.
    pub padding: usize,
    /// Rows past the last boundary.
    pub spare_rows: usize,
    /// Chunk states that h holds beside those it needs.
    pub spare_chunks: usize,
    /// What is wrong with the boundaries.
    pub damage: Option<Damage>,
}

impl Switches {
    /// The plainest call: cumulative gate of usual strength, dense fp32 states `[K, V]`, every chunk state, no padding.
    pub fn plain(hv: usize) -> Self {
        Switches {
            h: hv,
            hv,
            gate: GateForm::Cumulative,
            strength: Strength::Usual,
            beta: 1.0,
            bf16_state: false,
            order: StateOrder::KFirst,
            initial: PoolForm::Dense,
            has_initial: false,
            final_state: PoolForm::Dense,
            in_place: false,
            null: -1,
            dead: false,
            h_out: true,
            h_every: 1,
            h_order: StateOrder::KFirst,
            v_new: true,
            wide_boundaries: false,
            padding: 0,
            spare_rows: 0,
            spare_chunks: 0,
            damage: None,
        }
    }

    /// Random switches for up to `max_hv` value heads; boundaries are wrong in one of six.
    ///
    /// # Panics
    /// If `max_hv` is 0.
    pub fn random(rng: &mut Rng, max_hv: usize) -> Self {
        let gate = rng.choose(&[GateForm::Cumulative, GateForm::Cumulative, GateForm::Decay, GateForm::Scalar]);
        let hv = 1 + rng.below(max_hv);
        let divisors: Vec<usize> = (1..=hv).filter(|h| hv.is_multiple_of(*h)).collect();
        let forms = [PoolForm::Absent, PoolForm::Dense, PoolForm::Slots, PoolForm::Slots];
        let order = |rng: &mut Rng| if rng.coin() { StateOrder::VFirst } else { StateOrder::KFirst };
        let initial = rng.choose(&forms);
        let in_place = initial != PoolForm::Absent && rng.coin();
        Switches {
            h: if gate == GateForm::Scalar { rng.choose(&divisors) } else { hv },
            hv,
            gate,
            strength: rng.choose(&[
                Strength::None,
                Strength::Weak,
                Strength::Usual,
                Strength::Strong,
                Strength::Mixed,
                Strength::Mixed,
            ]),
            beta: rng.choose(&[1.0, 1.0, 0.1]),
            bf16_state: rng.coin(),
            order: order(rng),
            initial,
            has_initial: rng.coin(),
            final_state: if in_place { initial } else { rng.choose(&forms) },
            in_place,
            null: rng.choose(&[-1, 0]),
            dead: rng.coin(),
            h_out: rng.below(6) > 0,
            h_every: rng.choose(&[1, 1, 2, 3]),
            h_order: order(rng),
            v_new: rng.below(6) > 0,
            wide_boundaries: rng.coin(),
            padding: rng.below(3),
            spare_rows: rng.choose(&[0, 1, 63, 70]),
            spare_chunks: rng.below(3),
            damage: (rng.below(6) == 0)
                .then(|| rng.choose(&[Damage::Negative, Damage::Falling, Damage::PastTheRows, Damage::Capacity])),
        }
    }
}

/// Random lengths of up to `max_n` sequences and about `max_rows` rows in all: next to multiples of 64, empty ones first,
/// in the middle, last or all.
pub fn random_lengths(rng: &mut Rng, max_n: usize, max_rows: usize) -> Vec<usize> {
    let mut left = max_rows;
    let mut lengths: Vec<usize> = Vec::new();
    for _ in 0..1 + rng.below(max_n.max(1)) {
        let near = rng.choose(&[0, 1, 2, 31, 63, 64, 65, 127, 128, 129, 191, 192, 200]);
        let length = if rng.below(4) == 0 { rng.below(left.min(260) + 1) } else { near.min(left) };
        left -= length;
        lengths.push(length);
    }
    match rng.below(8) {
        0 => lengths.insert(0, 0),
        1 => lengths.push(0),
        2 => lengths.insert(lengths.len() / 2, 0),
        3 if rng.below(4) == 0 => lengths.fill(0),
        _ => {}
    }
    lengths
}

/// The buffers of a problem. Inputs of rows that no processed sequence has, gate rows that are not a chunk's last, gaps of
/// strides and slots that nothing reads hold NaN.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are those of `Problem`, `Initial` and `Final`
pub struct Sample {
    pub switches: Switches,
    pub cu_seqlens: Vec<i64>,
    pub rows: usize,
    pub kg: Vec<bf16>,
    pub w: Vec<bf16>,
    pub u: Vec<bf16>,
    /// `gk`, the decay rows or `g`.
    pub gate: Vec<f32>,
    /// Row strides of kg, w, u, the gate and v_new.
    pub strides: [usize; 5],
    pub pool: FloatVec,
    pub initial_count: usize,
    pub initial_slots: Option<Vec<i32>>,
    pub has_initial: Option<Vec<u8>>,
    pub final_count: usize,
    pub final_slots: Option<Vec<i32>>,
    pub slot_stride: usize,
    pub capacity: usize,
    pub h_stride: usize,
}
