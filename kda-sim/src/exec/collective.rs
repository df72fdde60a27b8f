//! Collectives of a warp: they need their lanes together.

use super::step::set_pred;
use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::alu::lanes::Registers;
use crate::program::op::{Kind, NONE, Permutation};
use crate::report::Code;
use kda_ptx::modifier::{ReduxOp, ShuffleMode, VoteMode};

impl Machine<'_> {
    /// The lanes of a member mask, if all that live are here; else what the group does instead.
    #[inline(always)]
    fn members(&self, w: usize, pc: u32, act: u32, register: u16) -> Outcome<Result<u32, Flow>> {
        let warp = &self.warps[w];
        let masks = &warp.registers.b32[register as usize];
        let members = masks[act.trailing_zeros() as usize];
        let undefined = warp.registers.undef32[register as usize] & act;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is a member mask"));
        }
        if act & !members != 0 || (0..32).any(|l| act >> l & 1 != 0 && masks[l] != members) {
            return Err(self.report_at(
                w,
                pc,
                act,
                Code::Divergent,
                format!("lanes {act:#010x} execute a collective with member mask {members:#010x}"),
                "collective",
                "every executing lane must be in the mask, and all must give the same mask",
            ));
        }
        let needed = members & warp.live;
        if needed & !act != 0 {
            return Ok(Err(Flow::Block(Wait::Lanes { needed, live: warp.live, aligned: false })));
        }
        Ok(Ok(members))
    }

    pub(super) fn collective(&mut self, w: usize, pc: u32, act: u32, active: u32) -> Step {
        let _ = active;
        match self.program.ops[pc as usize].kind {
            Kind::Shuffle { mode, d, pred, a, lane, clamp, members } => {
                self.shuffle(w, pc, act, mode, [d, pred, a, lane, clamp, members])
            }
            Kind::Vote { mode, d, pred, negated, members } => {
                if let Err(flow) = self.members(w, pc, act, members)? {
                    return Ok(flow);
                }
                let r = &mut self.warps[w].registers;
                let value = (r.pred[pred as usize] ^ if negated { u32::MAX } else { 0 }) & act;
                let undefined = if r.undef_pred[pred as usize] & act != 0 { act } else { 0 };
                let answer = match mode {
                    VoteMode::All => value == act,
                    VoteMode::Any => value != 0,
                    VoteMode::Uni => value == act || value == 0,
                    VoteMode::Ballot => {
                        self.set_all(w, d, value, undefined != 0, act);
                        return Ok(Flow::Next);
                    }
                };
                set_pred(r, d, if answer { u32::MAX } else { 0 }, undefined, act);
                Ok(Flow::Next)
            }
            Kind::Redux { op, signed, d, a, members } => {
                if let Err(flow) = self.members(w, pc, act, members)? {
                    return Ok(flow);
                }
                let r = &self.warps[w].registers;
                let values = (0..32).filter(|l| act >> l & 1 != 0).map(|l| r.b32[a as usize][l]);
                let value = values.reduce(|x, y| match (op, signed) {
                    (ReduxOp::Add, _) => x.wrapping_add(y),
                    (ReduxOp::Min, true) => (x as i32).min(y as i32) as u32,
                    (ReduxOp::Max, true) => (x as i32).max(y as i32) as u32,
                    (ReduxOp::Min, false) => x.min(y),
                    (ReduxOp::Max, false) => x.max(y),
                    (ReduxOp::And, _) => x & y,
                    (ReduxOp::Or, _) => x | y,
                    (ReduxOp::Xor, _) => x ^ y,
                });
                let undefined = r.undef32[a as usize] & act != 0;
                self.set_all(w, d, value.unwrap_or(0), undefined, act);
                Ok(Flow::Next)
            }
            Kind::Elect { d, pred, members } => {
                if let Err(flow) = self.members(w, pc, act, members)? {
                    return Ok(flow);
                }
                let leader = act.trailing_zeros();
                if d != NONE {
                    self.set_all(w, d, leader, false, act);
                }
                if pred != NONE {
                    set_pred(&mut self.warps[w].registers, pred, 1 << leader, 0, act);
                }
                Ok(Flow::Next)
            }
            Kind::ActiveMask { d } => {
                self.set_all(w, d, act, false, act);
                Ok(Flow::Next)
            }
            Kind::BarWarp { members } => {
                match self.members(w, pc, act, members)? {
                    Err(flow) => return Ok(flow),
                    Ok(members) => {
                        let mask = members & self.warps[w].live;
                        self.warps[w].sync_lanes(mask, &mut self.memory.history);
                    }
                }
                Ok(Flow::Next)
            }
            _ => Ok(Flow::Next),
        }
    }

    fn set_all(&mut self, w: usize, d: u16, value: u32, undefined: bool, act: u32) {
        let r = &mut self.warps[w].registers;
        for lane in 0..32 {
            if act >> lane & 1 != 0 {
                r.b32[d as usize][lane] = value;
            }
        }
        let u = &mut r.undef32[d as usize];
        *u = (*u & !act) | if undefined { act } else { 0 };
    }

    /// `shfl.sync`: registers are the value, the predicate, the source, the lane, the clamp and the members.
    fn shuffle(&mut self, w: usize, pc: u32, act: u32, mode: ShuffleMode, regs: [u16; 6]) -> Step {
        let [d, pred, a, lane, clamp, members] = regs;
        if let Err(flow) = self.members(w, pc, act, members)? {
            return Ok(flow);
        }
        let r = &mut self.warps[w].registers;
        let (lanes, clamps) = (&r.b32[lane as usize], &r.b32[clamp as usize]);
        let permutation = Permutation::of(mode, lanes, clamps);
        let control = r.undef32[lane as usize] | r.undef32[clamp as usize];
        permute(r, &permutation, d, pred, a, act, control);
        Ok(Flow::Next)
    }

    /// A shuffle whose permutation is known.
    #[inline(always)]
    pub(super) fn permute(&mut self, w: usize, pc: u32, act: u32, which: u32, regs: [u16; 4]) -> Step {
        let [d, pred, a, members] = regs;
        let whole = act == u32::MAX && self.warps[w].registers.b32[members as usize] == [u32::MAX; 32];
        if !whole && let Err(flow) = self.members(w, pc, act, members)? {
            return Ok(flow);
        }
        permute(&mut self.warps[w].registers, &self.program.permutations[which as usize], d, pred, a, act, 0);
        Ok(Flow::Next)
    }
}

/// Moves values between lanes; of lanes that do not take part they are undefined.
#[inline(always)]
fn permute(r: &mut Registers, permutation: &Permutation, d: u16, pred: u16, a: u16, act: u32, control: u32) {
    if d != NONE {
        let source = r.b32[a as usize];
        let undef_source = r.undef32[a as usize] | !act;
        let moved: [u32; 32] = std::array::from_fn(|me| source[(permutation.from[me] & 31) as usize]);
        let out = &mut r.b32[d as usize];
        if act == u32::MAX {
            *out = moved;
        } else {
            for me in 0..32 {
                out[me] = if act >> me & 1 != 0 { moved[me] } else { out[me] };
            }
        }
        let mut undefined = 0;
        if undef_source != 0 {
            for (me, from) in permutation.from.iter().enumerate() {
                undefined |= (undef_source >> (from & 31) & 1) << me;
            }
        }
        let u = &mut r.undef32[d as usize];
        *u = (*u & !act) | ((undefined | control) & act);
    }
    if pred != NONE {
        set_pred(r, pred, permutation.inside, control, act);
    }
}
