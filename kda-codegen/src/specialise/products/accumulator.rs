//! Accumulators in registers.
//!
//! An accumulator of M rows belongs to a role of M / 64 / tiles warpgroups; each holds `tiles` blocks of 64 rows, one after
//! another. In a block, warp w and lane l of the warpgroup hold rows 16 w + l / 4 and that plus 8, and columns
//! 8 j + 2 (l mod 4) and the next one. Registers of an accumulator are written in place; what the source reads of them is
//! a copy.

use super::Specialiser;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::specialise::site::Site;
use crate::specialise::value::{Scalar, Value};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use syn::GenericArgument;

/// Registers of an accumulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulator {
    /// Rows of all warpgroups of the role.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Registers of each block of 64 rows.
    pub tiles: Vec<Vec<Reg>>,
    /// Still zero, and not yet written: the first product overwrites.
    pub zero: bool,
    /// Number of the accumulator in the kernel.
    pub id: usize,
}

impl Specialiser<'_> {
    /// `Acc::<f32, M, N>::zero()`
    pub(in crate::specialise) fn accumulator(&mut self, generics: &[GenericArgument], site: Site<'_>) -> Result<Value> {
        let form = || Diagnostic::new(901, site, "an accumulator is written `Acc::<f32, M, N>::zero()`");
        let [elem, m, n] = generics else { return Err(form()) };
        if self.generic_value(elem)? != Const::Elem(Elem::F32) {
            return Err(form());
        }
        let size = |value: Const| value.as_int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        let (m, n) = (size(self.generic_value(m)?), size(self.generic_value(n)?));
        let (_, groups) = self.warpgroups(site)?;
        if m == 0 || !m.is_multiple_of(64 * groups) || !n.is_multiple_of(8) || !(8..=256).contains(&n) {
            let message = format!("an accumulator of {m} rows and {n} columns in a role of {groups} warpgroups");
            return Err(Diagnostic::new(901, site, message)
                .help(format!("rows: a multiple of {}; columns: a multiple of 8 up to 256", 64 * groups)));
        }
        let tiles =
            (0..m / (64 * groups)).map(|_| (0..n / 2).map(|_| self.builder.fresh(Class::B32)).collect()).collect();
        self.accumulators += 1;
        Ok(Value::Acc(Box::new(Accumulator { m, n, tiles, zero: true, id: self.accumulators })))
    }

    /// Writes the zeros that a first product would have made unnecessary.
    pub(in crate::specialise) fn settle(&mut self, acc: &mut Accumulator) {
        if !std::mem::take(&mut acc.zero) {
            return;
        }
        for reg in acc.tiles.iter().flatten() {
            self.builder.inst(Mov { ty: Type::B32, dst: *reg, src: Src::Imm(0) });
        }
    }

    /// Settles every accumulator in scope: ahead of a runtime loop or branch.
    pub(in crate::specialise) fn settle_all(&mut self) {
        let count = self.frame().scopes.len();
        for id in 0..count {
            if let Value::Acc(acc) = &self.frame().scopes.get(id).value
                && acc.zero
            {
                let mut acc = acc.clone();
                self.settle(&mut acc);
                self.frame().scopes.get_mut(id).value = Value::Acc(acc);
            }
        }
    }

    /// The value of a register that is written in place, as it is now.
    pub(in crate::specialise) fn copy_of(&mut self, reg: Reg) -> Value {
        let copy = self.builder.fresh(Class::B32);
        self.builder.inst(Mov { ty: Type::B32, dst: copy, src: reg.into() });
        Value::Scalar(Scalar::new(Elem::F32, copy, Uniform::Thread))
    }
}
