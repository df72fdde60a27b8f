//! Code of one thread.

use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Uniform};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::{Scalar, Value};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::*;
use syn::BinOp;

impl Specialiser<'_> {
    /// Runs `body` in one thread of the role, or of the CTA's first warp, if `#[elect_one]` asks for it.
    pub(in crate::specialise) fn with_election(
        &mut self,
        attrs: &[syn::Attribute],
        body: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let Some(attr) = attrs.iter().find(|a| a.path().is_ident("elect_one")) else { return body(self) };
        let site = Site::Tokens(attr);
        if self.roles.is_none() && self.control() == Uniform::Cta {
            self.publish_barriers(site)?;
        }
        if self.elected || self.control() > Uniform::Warp {
            return Err(Diagnostic::new(350, site, "`#[elect_one]` where lanes may already differ"));
        }
        self.elect(site, |this| {
            let value = body(this)?;
            this.finish_elected_stores(site);
            Ok(value)
        })
    }

    /// Runs `body` in one thread: always the same one of a role.
    pub(in crate::specialise) fn elect(
        &mut self,
        site: Site<'_>,
        body: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let first = match self.roles.as_deref() {
            None => 0,
            Some([role]) => self.resolved.roles[*role].first_warp,
            Some(_) => return Err(Diagnostic::new(350, site, "`#[elect_one]` in a block of several roles")),
        };
        let warps = match self.roles.as_deref() {
            Some([role]) => self.resolved.roles[*role].warps,
            _ => self.resolved.block / 32,
        };
        let before = self.frames[0].scopes.snapshot();
        let from = self.elected_takes.len();
        // The election, and the warp's own branch around it.
        let depth = self.control.len() + if warps == 1 { 1 } else { 2 };
        let elect = |this: &mut Self| {
            let reg = this.builder.fresh(Class::Pred);
            this.place(site);
            this.builder.inst(Elect { dst: DstAndPred { dst: None, pred: Some(reg) }, members: Src::Imm(-1) });
            let elected = Scalar::new(Elem::Bool, reg, Uniform::Thread);
            this.elected = true;
            this.elections = true;
            let result = this.branch(elected, site, body, |_| Ok(Value::Unit));
            this.builder.mark_branch(Branch::Elected);
            this.elected = false;
            result
        };
        let value = if warps == 1 {
            elect(self)?
        } else {
            let warp = Value::Scalar(self.warp());
            let condition = self.binary(&BinOp::Eq(Default::default()), warp, Value::u32(first), site)?;
            let condition = self.scalar(&condition, Some(Elem::Bool), site)?;
            let value = self.branch(condition, site, elect, |_| Ok(Value::Unit))?;
            self.builder.mark_branch(Branch::Elected);
            value
        };
        self.count_elected(from, depth, &before, site)?;
        Ok(value)
    }
}
