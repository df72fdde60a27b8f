//! What the operator takes and gives: slices, sizes and strides. All strides count elements.

use crate::floats::{Floats, FloatsMut};
use crate::gate::Gate;
use half::bf16;

use super::{HEAD, HISTORY};

/// Sizes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Rows (requests).
    pub n: usize,
    /// Tokens a row.
    pub t: usize,
    /// Query/key heads.
    pub h: usize,
    /// Value heads, a multiple of `h`.
    pub hv: usize,
}

impl Dims {
    /// Convolution channels, `2*H*K + HV*V`: q heads, then k heads, then v heads.
    pub fn channels(&self) -> usize {
        (2 * self.h + self.hv) * HEAD
    }

    /// Elements of the state of one row, `HV*V*K`.
    pub fn state_len(&self) -> usize {
        self.hv * HEAD * HEAD
    }

    /// Query/key head of a value head.
    pub fn key_head(&self, value_head: usize) -> usize {
        crate::layout::key_head(value_head, self.h, self.hv)
    }
}

/// Where the histories lie in the convolution pool: element (line, channel, tap) at the sum of index times stride.
///
/// Tap 0 is the oldest input, tap 2 the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvLayout {
    /// Number of lines in the pool: the length that liveness is tested against.
    pub lines: usize,
    /// Distance between lines.
    pub line: usize,
    /// Distance between channels.
    pub channel: usize,
    /// Distance between taps.
    pub tap: usize,
}

impl ConvLayout {
    /// `[lines, D, 3]` without gaps: the window is innermost.
    pub fn window_innermost(lines: usize, channels: usize) -> Self {
        ConvLayout { lines, line: channels * HISTORY, channel: HISTORY, tap: 1 }
    }

    /// `[lines, 3, D]` without gaps: the channels are innermost.
    pub fn channels_innermost(lines: usize, channels: usize) -> Self {
        ConvLayout { lines, line: channels * HISTORY, channel: 1, tap: channels }
    }

    /// Offset of one element.
    #[inline]
    pub fn offset(&self, line: usize, channel: usize, tap: usize) -> usize {
        line * self.line + channel * self.channel + tap * self.tap
    }
}

/// Where the windows lie: element (row, step, channel, tap) at the sum of index times stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLayout {
    /// Distance between snapshot rows.
    pub row: usize,
    /// Distance between tokens.
    pub step: usize,
    /// Distance between channels.
    pub channel: usize,
    /// Distance between taps.
    pub tap: usize,
}

impl WindowLayout {
    /// `[rows, T_alloc, D, 3]` without gaps.
    pub fn window_innermost(t_alloc: usize, channels: usize) -> Self {
        let step = channels * HISTORY;
        WindowLayout { row: t_alloc * step, step, channel: HISTORY, tap: 1 }
    }

    /// `[rows, T_alloc, 3, D]` without gaps.
    pub fn channels_innermost(t_alloc: usize, channels: usize) -> Self {
        let step = channels * HISTORY;
        WindowLayout { row: t_alloc * step, step, channel: 1, tap: channels }
    }

    /// Offset of one element.
    #[inline]
    pub fn offset(&self, row: usize, step: usize, channel: usize, tap: usize) -> usize {
        row * self.row + step * self.step + channel * self.channel + tap * self.tap
    }
}

/// Which index a row's state snapshots go to. Windows always go to `snapshot_rows[n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotRule {
    /// `states_out[snapshot_rows[n]]`.
    ByIndex,
    /// `states_out[n]`. A null `snapshot_rows[n]` still means that nothing is written.
    ByBatch,
}

/// The inputs of one call.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Sizes.
    pub dims: Dims,
    /// Projections before the convolution; token t of row n is row `n*T + t`, D channels.
    pub x: &'a [bf16],
    /// Distance between rows of `x`.
    pub x_row_stride: usize,
    /// Taps `[D, 4]`, fp32 or bf16; tap 3 multiplies the newest token. The type decides the rounding of the sum.
    pub conv_weight: Floats<'a>,
    /// Bias `[D]`, or absent.
    pub conv_bias: Option<&'a [f32]>,
    /// Pool of histories, fp32 or bf16. An fp32 pool may hold values that bf16 cannot.
    pub conv_state: Floats<'a>,
    /// Layout of `conv_state`.
    pub conv_layout: ConvLayout,
    /// Line of each row in `conv_state`, `[N]`.
    pub conv_slots: &'a [i32],
    /// Pool of states; a slot is `[HV, V, K]` without gaps, K innermost. The operator's pool is fp32; float64 is taken so
    /// that exact runs can be chained.
    pub state: Floats<'a>,
    /// Number of slots: the length that liveness is tested against.
    pub state_len: usize,
    /// Distance between slots.
    pub state_slot_stride: usize,
    /// Slot of each row in `state`, `[N]`.
    pub state_slots: &'a [i32],
    /// Snapshot row of each row, `[N]`.
    pub snapshot_rows: &'a [i32],
    /// Number of snapshot rows: the length that liveness is tested against.
    pub snapshot_len: usize,
    /// Steps between the snapshots of two rows, at least T.
    pub t_alloc: usize,
    /// Where state snapshots go.
    pub snapshot_rule: SnapshotRule,
    /// Raw gate `[N, T, HV, K]`.
    pub a: &'a [bf16],
    /// Raw write strength `[N, T, HV]`.
    pub b: &'a [bf16],
    /// `[HV]`; absent = 0.
    pub a_log: Option<&'a [f32]>,
    /// `[HV, K]`.
    pub dt_bias: &'a [f32],
    /// Multiplies the normalised query. A kernel takes fp32: give its value, widened, as the reference of a kernel.
    pub scale: f64,
    /// Present: bounded gate. Absent: softplus gate. As for `scale`.
    pub lower_bound: Option<f64>,
    /// An index i is live when `null < i < length`.
    pub null: i32,
    /// Write the newest three inputs back to the history after all reads.
    pub roll: bool,
}

/// What a call writes. The caller fills the buffers first, with NaN or whatever must survive: only what the contract
/// names is touched.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// `o` before rounding to bf16: rows `n*T + t`, `HV*V` values, rows `out_row_stride` apart.
    pub out: &'a mut [f64],
    /// `o` rounded to bf16, in the same layout.
    pub out_bf16: &'a mut [bf16],
    /// Distance between rows of both.
    pub out_row_stride: usize,
    /// State after each token `[rows, T_alloc, HV, V, K]`, or absent.
    pub states: Option<&'a mut [f64]>,
    /// Windows of raw inputs and where they lie, or absent. Element type as `conv_state`.
    pub windows: Option<(FloatsMut<'a>, WindowLayout)>,
    /// A copy of the pool `conv_state` into which `roll` writes; needed with `roll`, otherwise ignored.
    pub rolled: Option<FloatsMut<'a>>,
}

impl Problem<'_> {
    /// `Some(i)` when the index is live in a pool of `len` entries.
    pub fn live(&self, index: i32, len: usize) -> Option<usize> {
        let within = index > self.null && usize::try_from(index).is_ok_and(|i| i < len);
        within.then_some(index as usize)
    }

    /// Line and slot of row `n`; `None` for a padding row.
    pub fn live_row(&self, n: usize) -> Option<(usize, usize)> {
        let line = self.live(self.conv_slots[n], self.conv_layout.lines)?;
        Some((line, self.live(self.state_slots[n], self.state_len)?))
    }

    /// Rows of `states` and of `windows` that row `n` writes; `None` for a null snapshot row.
    pub fn snapshot_targets(&self, n: usize) -> Option<(usize, usize)> {
        let row = self.live(self.snapshot_rows[n], self.snapshot_len)?;
        match self.snapshot_rule {
            SnapshotRule::ByIndex => Some((row, row)),
            SnapshotRule::ByBatch => Some((n, row)),
        }
    }

    /// The gate of this call.
    pub fn gate(&self) -> Gate {
        Gate::from_lower_bound(self.lower_bound)
    }

    /// `A_log` of a value head, 0 when absent.
    pub fn a_log(&self, value_head: usize) -> f32 {
        self.a_log.map_or(0.0, |a_log| a_log[value_head])
    }

    /// Raw input of a row at `step - 3 ..`: steps 0, 1, 2 are the history, 3 + t is token t.
    #[inline]
    pub(super) fn raw(&self, n: usize, line: usize, step: usize, channel: usize) -> f32 {
        if step < HISTORY {
            self.conv_state.get_f32(self.conv_layout.offset(line, channel, step))
        } else {
            let token = n * self.dims.t + step - HISTORY;
            crate::round::widen(self.x[token * self.x_row_stride + channel])
        }
    }
}
