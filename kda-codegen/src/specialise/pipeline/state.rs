//! Where a side of a ring is: its stage and phase, and the mbarriers of a stage.

use crate::diag::Result;
use crate::kir::MbarrierRole;
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, Src};
use kda_ptx::table::*;
use syn::BinOp;

impl Specialiser<'_> {
    /// Address of the full or empty barrier of a stage.
    pub(in crate::specialise) fn barrier_address(&mut self, ring: usize, role: MbarrierRole, stage: &Value) -> Address {
        let (buffer, stages) = (self.rings[ring].barriers, self.rings[ring].stages);
        let first = match role {
            MbarrierRole::Full => 0,
            MbarrierRole::Empty => 8 * i64::from(stages),
        };
        let offset = i64::from(self.buffers[buffer].desc.offset) + first;
        match stage {
            Value::Scalar(s) => {
                let base = self.shared_base();
                let reg = self.builder.pure(Class::B32, |dst| {
                    Mad { half: Half::Lo, ty: Type::U32, dst, a: s.src(), b: Src::Imm(8), c: base.into() }.into()
                });
                Address { base: Base::Reg(reg), offset }
            }
            known => {
                let stage = known.as_int().unwrap_or(0) as i64;
                Address { base: Base::Symbol(crate::lower::SHARED.into()), offset: offset + 8 * stage }
            }
        }
    }

    pub(super) fn state(&mut self, ring: usize, side: usize, part: &str) -> (usize, Value) {
        let name = state_name(ring, side, part);
        let scopes = &self.frames[0].scopes;
        match scopes.find(&name) {
            Some(id) => (id, scopes.get(id).value.clone()),
            None => (0, Value::u32(0)),
        }
    }

    /// The next stage; the phase turns when the ring wraps.
    pub(super) fn advance_state(&mut self, ring: usize, side: usize, site: Site<'_>) -> Result<()> {
        let stages = self.rings[ring].stages;
        let (stage_id, stage) = self.state(ring, side, "stage");
        let (phase_id, phase) = self.state(ring, side, "phase");
        let next = self.binary(&BinOp::Add(Default::default()), stage, Value::u32(1), site)?;
        let wraps = self.binary(&BinOp::Eq(Default::default()), next.clone(), Value::u32(stages), site)?;
        let (stage, turned) = match &wraps {
            Value::Const(_) => {
                let wrapped = matches!(wraps, Value::Const(crate::consteval::Const::Bool(true)));
                (if wrapped { Value::u32(0) } else { next }, Value::u32(wrapped.into()))
            }
            _ => (self.select(wraps.clone(), Value::u32(0), next, site)?, self.cast(wraps, Elem::U32, site)?),
        };
        let phase = self.binary(&BinOp::BitXor(Default::default()), phase, turned, site)?;
        let scopes = &mut self.frames[0].scopes;
        scopes.get_mut(stage_id).value = stage;
        scopes.get_mut(phase_id).value = phase;
        Ok(())
    }
}

pub(super) fn state_name(ring: usize, side: usize, part: &str) -> String {
    format!("{part} of side {side} of ring {ring}")
}
