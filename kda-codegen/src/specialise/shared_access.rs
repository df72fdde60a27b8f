//! Loads and stores of shared memory, wherever the address comes from: rows of a buffer, or chunks of a tile.

use super::Specialiser;
use super::global::vector_width;
use super::params::{bits, memory_bits};
use super::site::Site;
use super::value::{Value, class};
use crate::consteval::Const;
use crate::diag::Result;
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::Reg;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, DstList, PredSrc, Src, SrcList};
use kda_ptx::table::*;

impl Specialiser<'_> {
    /// Loads `lanes` elements, which lie in one vector; 0 where the condition is false. `reach` gives the place, and is told
    /// the one register that always has what is there.
    pub(super) fn read_shared(
        &mut self,
        elem: Elem,
        lanes: u64,
        condition: Option<&Value>,
        uniform: Uniform,
        site: Site<'_>,
        reach: impl FnOnce(&mut Self, Option<Reg>) -> Result<(Option<Space>, Address)>,
    ) -> Result<Value> {
        let Some(guard) = self.guard_of(condition, site)? else {
            let zero = Value::Const(match elem.is_float() {
                true => Const::Float(0.0, Some(elem)),
                false => Const::Int(0, Some(elem)),
            });
            return Ok(if lanes == 1 { zero } else { Value::Array(vec![zero; lanes as usize]) });
        };
        let (count, unit) = Self::vector_registers(elem, lanes as usize);
        let regs: Vec<Reg> = (0..count).map(|_| self.builder.fresh(class(unit))).collect();
        if guard.is_some() {
            for reg in &regs {
                self.builder.inst(Mov { ty: bits(unit), dst: *reg, src: Src::Imm(0) });
            }
        }
        let always = match (regs.as_slice(), guard) {
            ([reg], None) => Some(*reg),
            _ => None,
        };
        let (space, address) = reach(self, always)?;
        self.builder.guarded(
            guard,
            Ld {
                strength: None,
                scope: None,
                space,
                cache: None,
                nc: NonCoherent(false),
                l1: None,
                hint: CacheHint(false),
                prefetch: None,
                vector: vector_width(count),
                ty: memory_bits(unit),
                dst: DstList(regs.iter().copied().map(Some).collect()),
                address,
                policy: None,
            },
        );
        let uniform = uniform.max(condition.map_or(Uniform::Cta, Value::uniform));
        let mut items = self.vector_elements(&regs, lanes as usize, elem, uniform);
        Ok(if lanes == 1 { items.remove(0) } else { Value::Array(items) })
    }

    /// Stores an element, or an array as one vector; nothing where the condition is false. `reach` gives the place, and notes
    /// that it is written.
    pub(super) fn write_shared(
        &mut self,
        elem: Elem,
        items: &[Value],
        condition: Option<&Value>,
        site: Site<'_>,
        reach: impl FnOnce(&mut Self) -> Result<(Option<Space>, Address)>,
    ) -> Result<()> {
        let Some(guard) = self.guard_of(condition, site)? else { return Ok(()) };
        let mut operands = Vec::with_capacity(items.len());
        for item in items {
            operands.push(self.operand(item, elem, site)?);
        }
        let (operands, unit) = self.vector_operands(operands, elem);
        let (space, address) = reach(self)?;
        self.builder.guarded(
            guard,
            St {
                strength: None,
                scope: None,
                space,
                cache: None,
                l1: None,
                hint: CacheHint(false),
                vector: vector_width(operands.len()),
                ty: memory_bits(unit),
                address,
                src: SrcList(operands),
                policy: None,
            },
        );
        Ok(())
    }

    /// The predicate of an access; `None` if it never runs.
    fn guard_of(&mut self, condition: Option<&Value>, site: Site<'_>) -> Result<Option<Option<PredSrc>>> {
        Ok(match condition {
            None | Some(Value::Const(Const::Bool(true))) => Some(None),
            Some(Value::Const(Const::Bool(false))) => None,
            Some(value) => Some(Some(when(self.scalar(value, Some(Elem::Bool), site)?.reg))),
        })
    }
}

/// The elements of a vector, or the one.
pub(super) fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        one => std::slice::from_ref(one),
    }
}
