//! Where a role is on its side of a ring, stage and phase, and the mbarriers of a stage.

use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{MbarrierRole, Sync};
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
    /// Address of a barrier of a stage.
    pub(in crate::specialise) fn barrier_address(&mut self, ring: usize, role: MbarrierRole, stage: &Value) -> Address {
        let (buffer, stages) = (self.rings[ring].barriers, self.rings[ring].stages);
        let row = match role {
            MbarrierRole::Full => 0,
            MbarrierRole::Middle(side) => side,
            MbarrierRole::Empty => self.rings[ring].last(),
        };
        let offset = i64::from(self.buffers[buffer].desc.offset) + 8 * i64::from(stages) * row as i64;
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

    /// The barrier that a side completes.
    pub(super) fn barrier_of(&self, ring: usize, side: usize) -> MbarrierRole {
        match side {
            0 => MbarrierRole::Full,
            side if side == self.rings[ring].last() => MbarrierRole::Empty,
            side => MbarrierRole::Middle(side),
        }
    }

    /// Declares stage and phase of every role of every side. They last where the pipeline is declared in a block.
    pub(super) fn declare_states(&mut self, ring: usize) {
        let sides = self.rings[ring].sides.clone();
        for (side, roles) in sides.iter().enumerate() {
            let parties = if roles.is_empty() { vec![super::CTA] } else { roles.clone() };
            for party in parties {
                for part in ["stage", "phase"] {
                    self.frame().scopes.declare_lasting(state_name(ring, side, party, part), Value::u32(0));
                }
            }
        }
    }

    /// Stage and phase of the roles that act here; several act together only if they are equally far.
    pub(super) fn state(&self, ring: usize, side: usize, site: Site<'_>) -> Result<(Value, Value)> {
        let scopes = &self.frames[0].scopes;
        let of = |party: usize, part: &str| {
            let id = scopes.find(&state_name(ring, side, party, part));
            id.map_or(Value::u32(0), |id| scopes.get(id).value.clone())
        };
        let states: Vec<_> = self.parties().iter().map(|p| (of(*p, "stage"), of(*p, "phase"))).collect();
        match states.as_slice() {
            [first, rest @ ..] if rest.iter().all(|other| other == first) => Ok(first.clone()),
            _ => Err(Diagnostic::new(653, site, "the roles of this block have been in the pipeline alone before")
                .help("let them act on the pipeline always together, or each in its own `#[role(…)]`")),
        }
    }

    /// Parity of the phase of a stage for which a side waits next, counted from 0.
    pub(super) fn parity(&mut self, ring: usize, stage: &Value, phase: Value, site: Site<'_>) -> Result<Value> {
        if !self.rings[ring].restarts {
            return Ok(phase);
        }
        let bits = self.binary(&BinOp::Shr(Default::default()), phase, stage.clone(), site)?;
        self.binary(&BinOp::BitAnd(Default::default()), bits, Value::u32(1), site)
    }

    /// `ring.restart()`: the next stage is the first.
    pub(in crate::specialise) fn restart(&mut self, ring: usize, site: Site<'_>) -> Result<Value> {
        let parties = self.parties();
        let sides: Vec<usize> = (0..self.rings[ring].sides.len())
            .filter(|side| self.check_side(ring, *side, "restart", site).is_ok())
            .collect();
        if sides.is_empty() {
            return self.check_side(ring, 0, "restart", site).map(|()| Value::Unit);
        }
        // Phases of a ring that restarts are counted otherwise from its declaration on, which goes by its name.
        if !self.rings[ring].restarts {
            return Err(Diagnostic::new(654, site, "the pipeline restarts under another name than its own")
                .help(format!("write `{}.restart()`", self.rings[ring].name)));
        }
        self.warp_in_step("`restart()`", site)?;
        let held = self.holdings.iter().find(|h| h.ring == ring && !h.done && sides.contains(&h.side));
        if let Some(held) = held {
            return Err(Diagnostic::new(654, site, "the pipeline restarts while a stage is held")
                .note(held.taken.0, "it was taken here")
                .help("give it first"));
        }
        for side in sides {
            for party in &parties {
                let scopes = &mut self.frames[0].scopes;
                if let Some(id) = scopes.find(&state_name(ring, side, *party, "stage")) {
                    scopes.get_mut(id).value = Value::u32(0);
                }
            }
        }
        self.place(site);
        let span = self.note_span(site);
        self.builder.sync(Sync::Restart { ring, span });
        Ok(Value::Unit)
    }

    /// Locals that hold stages of these rings: of the roles that act here, and of slots in variables.
    pub(super) fn stage_locals(&self, rings: &[usize]) -> Vec<usize> {
        let scopes = &self.frames[0].scopes;
        let mut locals = Vec::new();
        for ring in rings {
            for side in 0..self.rings[*ring].sides.len() {
                for party in self.parties() {
                    locals.extend(scopes.find(&state_name(*ring, side, party, "stage")));
                }
            }
        }
        for (local, value) in scopes.snapshot().iter().enumerate() {
            if let Value::Slot(slot) = value
                && rings.contains(&slot.ring)
                && !self.holdings[slot.id as usize].done
            {
                locals.push(local);
            }
        }
        locals
    }

    /// Stage and phase of the roles that act here, as locals.
    fn state_locals(&self, ring: usize, side: usize) -> Vec<usize> {
        let names = self
            .parties()
            .into_iter()
            .flat_map(|party| ["stage", "phase"].map(|part| state_name(ring, side, party, part)));
        names.filter_map(|name| self.frames[0].scopes.find(&name)).collect()
    }

    /// Behind the code of one thread that began with the values `before` of all locals: the other threads count the stages
    /// that it has taken, so that stage and phase stay the same in all of them, and known where they were known. A thread
    /// that takes stages in a loop or a branch counts alone.
    pub(super) fn count_elected(&mut self, from: usize, depth: usize, before: &[Value], site: Site<'_>) -> Result<()> {
        let takes = self.elected_takes.split_off(from);
        let mut rings: Vec<(usize, usize)> = takes.iter().map(|take| (take.ring, take.side)).collect();
        rings.sort_unstable();
        rings.dedup();
        for (ring, side) in rings {
            let own = || takes.iter().filter(|take| (take.ring, take.side) == (ring, side));
            if own().any(|take| take.depth != depth) || self.rings[ring].restarts {
                continue;
            }
            for local in self.state_locals(ring, side) {
                if let Some(value) = before.get(local) {
                    self.frames[0].scopes.get_mut(local).value = value.clone();
                }
            }
            for _ in own() {
                self.advance_state(ring, side, site)?;
            }
        }
        Ok(())
    }

    /// The next stage; the phase turns when the ring wraps.
    pub(super) fn advance_state(&mut self, ring: usize, side: usize, site: Site<'_>) -> Result<()> {
        if self.elected {
            self.elected_takes.push(ElectedTake { ring, side, depth: self.control.len() });
        }
        let stages = self.rings[ring].stages;
        let (stage, phase) = self.state(ring, side, site)?;
        let bit = self.binary(&BinOp::Shl(Default::default()), Value::u32(1), stage.clone(), site)?;
        let next = self.binary(&BinOp::Add(Default::default()), stage, Value::u32(1), site)?;
        let wraps = self.binary(&BinOp::Eq(Default::default()), next.clone(), Value::u32(stages), site)?;
        let (stage, turned) = match &wraps {
            Value::Const(_) => {
                let wrapped = matches!(wraps, Value::Const(Const::Bool(true)));
                (if wrapped { Value::u32(0) } else { next }, Value::u32(wrapped.into()))
            }
            _ => (self.select(wraps.clone(), Value::u32(0), next, site)?, self.cast(wraps, Elem::U32, site)?),
        };
        let turned = match self.rings[ring].restarts {
            true => bit,
            false => turned,
        };
        let phase = self.binary(&BinOp::BitXor(Default::default()), phase, turned, site)?;
        for party in self.parties() {
            for (part, value) in [("stage", &stage), ("phase", &phase)] {
                let scopes = &mut self.frames[0].scopes;
                if let Some(id) = scopes.find(&state_name(ring, side, party, part)) {
                    scopes.get_mut(id).value = value.clone();
                }
            }
        }
        Ok(())
    }
}

/// A stage that one thread takes for its role.
#[derive(Clone, Copy, Debug)]
pub struct ElectedTake {
    ring: usize,
    side: usize,
    /// Open runtime branches and loops around it.
    depth: usize,
}

fn state_name(ring: usize, side: usize, party: usize, part: &str) -> String {
    format!("{part} of role {party} on side {side} of ring {ring}")
}
