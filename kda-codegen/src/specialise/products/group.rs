//! The warpgroups that take part in a product, and their registers.

use super::Specialiser;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use syn::BinOp;

impl Specialiser<'_> {
    /// First warp and number of warpgroups of the role that is being compiled.
    pub(super) fn group_shape(&self, site: Site<'_>) -> Result<(u32, u32)> {
        let (first, warps) = match self.roles.as_deref() {
            None => (0, self.resolved.block / 32),
            Some([role]) => (self.resolved.roles[*role].first_warp, self.resolved.roles[*role].warps),
            Some(_) => return Err(Diagnostic::new(905, site, "a block of several roles")),
        };
        if first % 4 != 0 || warps % 4 != 0 {
            let message = format!("a product needs whole warpgroups, not warps {first}..{}", first + warps);
            return Err(Diagnostic::new(905, site, message).help("begin and end the role at warps 0, 4, 8 …"));
        }
        Ok((first, warps / 4))
    }

    /// The same where all threads of a warpgroup must be.
    pub(super) fn warpgroups(&self, site: Site<'_>) -> Result<(u32, u32)> {
        let shape = self.group_shape(site)?;
        if self.control() > Uniform::Warpgroup || self.elected {
            return Err(Diagnostic::new(
                905,
                site,
                "the whole warpgroup must be here, but its threads may differ in the branch or loop around this",
            )
            .help("make all warps of the warpgroup take part; `warp / 4` is the same in all of them, `warp` is not"));
        }
        Ok(shape)
    }

    /// Registers of so many rows in so many blocks must be those of the warpgroups here.
    pub(super) fn check_group(&self, m: u32, blocks: usize, site: Site<'_>) -> Result<()> {
        let (_, groups) = self.group_shape(site)?;
        if m.div_ceil(64) as usize == groups as usize * blocks {
            return Ok(());
        }
        let message = format!("the {m} rows belong to other warpgroups than the {groups} that are here");
        Err(Diagnostic::new(905, site, message).help("make the accumulator in the role that uses it"))
    }

    /// The place of this thread's warpgroup in the role, and of its warp in the warpgroup.
    pub(super) fn group_place(&mut self, site: Site<'_>) -> Result<(Value, Value)> {
        let (first, groups) = self.group_shape(site)?;
        let warp = Value::Scalar(self.warp());
        let place = self.binary(&BinOp::Rem(Default::default()), warp.clone(), Value::u32(4), site)?;
        if groups == 1 {
            return Ok((Value::u32(0), place));
        }
        let group = self.binary(&BinOp::Div(Default::default()), warp, Value::u32(4), site)?;
        Ok((self.binary(&BinOp::Sub(Default::default()), group, Value::u32(first / 4), site)?, place))
    }

    /// `body` in the warps that hold rows of an accumulator of `m` rows, `other` in those that hold none.
    pub(super) fn in_rows(
        &mut self,
        m: u32,
        site: Site<'_>,
        body: impl FnOnce(&mut Self) -> Result<()>,
        other: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if m.is_multiple_of(64) {
            return body(self);
        }
        let (_, warp) = self.group_place(site)?;
        let holds = self.binary(&BinOp::Lt(Default::default()), warp, Value::u32(m / 16), site)?;
        let holds = self.scalar(&holds, Some(Elem::Bool), site)?;
        let unit = |()| Value::Unit;
        self.branch(holds, site, |this| body(this).map(unit), |this| other(this).map(unit))?;
        Ok(())
    }

    /// `setmaxnreg` at the head of a role that names its registers.
    pub(in crate::specialise) fn set_registers(&mut self, site: Site<'_>) {
        let Some([role]) = self.roles.as_deref() else { return };
        let Some(registers) = self.resolved.roles[*role].registers else { return };
        let at_launch = (65_536 / self.resolved.block / 8 * 8).min(255);
        let change = if registers <= at_launch { RegisterChange::Dec } else { RegisterChange::Inc };
        self.place(site);
        self.builder.inst(SetMaxNReg {
            change,
            sync: SyncAlignedU32::SyncAlignedU32,
            count: Src::Imm(registers.into()),
        });
    }
}
