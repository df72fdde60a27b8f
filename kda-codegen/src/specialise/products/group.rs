//! The warpgroups that take part in a product, and their registers.

use super::Specialiser;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::specialise::site::Site;
use kda_ptx::modifier::*;
use kda_ptx::operand::Src;
use kda_ptx::table::*;

impl Specialiser<'_> {
    /// Warps, first warp and warpgroups of the role that is being compiled.
    pub(in crate::specialise) fn warpgroups(&self, site: Site<'_>) -> Result<(u32, u32)> {
        let (first, warps) = match self.roles.as_deref() {
            None => (0, self.resolved.block / 32),
            Some([role]) => (self.resolved.roles[*role].first_warp, self.resolved.roles[*role].warps),
            Some(_) => return Err(Diagnostic::new(905, site, "a block of several roles")),
        };
        if first % 4 != 0 || warps % 4 != 0 {
            let message = format!("a product needs whole warpgroups, not warps {first}..{}", first + warps);
            return Err(Diagnostic::new(905, site, message).help("begin and end the role at warps 0, 4, 8 …"));
        }
        if self.control() > Uniform::Warp || self.elected {
            return Err(Diagnostic::new(905, site, "a product in a branch in which the threads of a warp may differ")
                .help("make all threads of the warpgroup take part in the product"));
        }
        Ok((first, warps / 4))
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
