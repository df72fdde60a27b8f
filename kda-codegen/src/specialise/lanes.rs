//! What the lanes of a warp do together: shuffles and votes.

use super::Specialiser;
use super::site::Site;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::*;

impl Specialiser<'_> {
    /// `shfl(value, lane)`, `shfl_xor(value, mask)`, `shfl_up(value, n)`, `shfl_down(value, n)`; arrays element by element.
    pub(super) fn shuffle(&mut self, name: &str, value: Value, lane: Value, site: Site<'_>) -> Result<Value> {
        self.lanes_together("a shuffle", site)?;
        if let Value::Array(items) = value {
            let items = items.into_iter().map(|x| self.shuffle(name, x, lane.clone(), site));
            return items.collect::<Result<_>>().map(Value::Array);
        }
        let source = self.scalar(&value, None, site)?;
        if source.elem.bytes() != 4 {
            return Err(Diagnostic::new(156, site, format!("a shuffle moves 32 bits, not a {}", source.elem)));
        }
        let (mode, clamp) = match name {
            "shfl" => (ShuffleMode::Idx, 31),
            "shfl_up" => (ShuffleMode::Up, 0),
            "shfl_down" => (ShuffleMode::Down, 31),
            _ => (ShuffleMode::Bfly, 31),
        };
        // From one lane all get the same.
        let uniform = match name == "shfl" && lane.uniform() <= Uniform::Warp {
            true => Uniform::Warp,
            false => Uniform::Thread,
        };
        let lane = self.operand(&lane, Elem::U32, site)?;
        // Not shared with an equal shuffle: a shuffle is a meeting of lanes.
        let reg = self.builder.fresh(Class::B32);
        self.builder.inst(Shfl {
            mode,
            ty: Type::B32,
            dst: DstAndPred { dst: Some(reg), pred: None },
            a: source.src(),
            lane,
            clamp: Src::Imm(clamp),
            members: Src::Imm(-1),
        });
        Ok(Value::Scalar(Scalar { reg, uniform, ..source }))
    }

    /// `any(condition)`, `all(condition)`: a bool; `ballot(condition)`: a u32 with a bit a lane.
    pub(super) fn vote(&mut self, name: &str, condition: Value, site: Site<'_>) -> Result<Value> {
        self.lanes_together("a vote", site)?;
        if let (Value::Const(Const::Bool(c)), true) = (&condition, name != "ballot") {
            return Ok(Value::Const(Const::Bool(*c)));
        }
        let condition = self.scalar(&condition, Some(Elem::Bool), site)?;
        let (mode, ty, elem) = match name {
            "any" => (VoteMode::Any, Type::Pred, Elem::Bool),
            "all" => (VoteMode::All, Type::Pred, Elem::Bool),
            _ => (VoteMode::Ballot, Type::B32, Elem::U32),
        };
        let dst = self.builder.fresh(super::value::class(elem));
        self.builder.inst(Vote { mode, ty, dst, pred: when(condition.reg), members: Src::Imm(-1) });
        Ok(Value::Scalar(Scalar::new(elem, dst, Uniform::Warp)))
    }

    /// Refuses a meeting of lanes where they may differ.
    pub(super) fn lanes_together(&self, what: &str, site: Site<'_>) -> Result<()> {
        if self.control() <= Uniform::Warp && !self.elected {
            return Ok(());
        }
        let message = format!("{what} needs all lanes of the warp, but lanes may differ in the branch around it");
        Err(Diagnostic::new(350, site, message).help("compute the value in all lanes and use it under the condition"))
    }

    /// Refuses what a warp does in step, by all its lanes or by the elected one, where lanes may differ around it.
    pub(super) fn warp_in_step(&self, what: &str, site: Site<'_>) -> Result<()> {
        if self.control() <= Uniform::Warp || self.elected {
            return Ok(());
        }
        let message = format!("{what} is one step of the warp, but lanes may differ in the branch around it");
        Err(Diagnostic::new(350, site, message).help("take the condition from values all lanes share, or elect a lane"))
    }
}
