//! Views of global tensors at other base addresses.
//!
//! A table of addresses makes many tensors of one shape reachable by one parameter: it gives shape, strides and what is
//! promised of them, the address is a number. Accesses count as those of the parameter. Nothing checks the address: the
//! author answers for it.

use super::Specialiser;
use super::site::Site;
use super::value::{GlobalView, Value};
use crate::compiled::ParamKind;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::{Compare, Type};
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::{And, Selp, Setp};
use kda_ptx::{Class, Reg};
use syn::Expr;

impl Specialiser<'_> {
    /// `view.based_at(address)`, `view.based_at_if(condition, address)`: the same view of a tensor that begins at `address`;
    /// where the condition is false, the view itself. An optional one is there where its parameter is and the address is
    /// not 0.
    pub(super) fn based_at(
        &mut self,
        view: GlobalView,
        name: &str,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<GlobalView> {
        let (condition, address) = match name {
            "based_at_if" => {
                let [condition, address] = self.arguments(name, args, site)?;
                (condition, address)
            }
            _ => {
                let [address] = self.arguments(name, args, site)?;
                (Value::Const(Const::Bool(true)), address)
            }
        };
        let param = &self.resolved.params[view.param];
        if let ParamKind::Tensor { map: Some(_), .. } = param.kind {
            return Err(Diagnostic::new(156, site, format!("`{}` is a tensor map", param.name))
                .help("a map holds its address; a `Global<…>` can be seen at another one"));
        }
        if view.picked.is_some() {
            return Err(Diagnostic::new(156, site, "this view has another address already")
                .help("choose the address first, then write `x.based_at(address)`"));
        }
        self.place(site);
        let address = self.scalar(&address, Some(Elem::U64), site)?;
        let choice = match &condition {
            Value::Const(Const::Bool(false)) => return Ok(view),
            Value::Const(Const::Bool(true)) => None,
            other => Some(self.scalar(other, Some(Elem::Bool), site)?),
        };
        let uniform = address.uniform.max(choice.map_or(Uniform::Cta, |c| c.uniform));
        if view.present.is_some() && uniform > Uniform::Cta {
            let message = "an address of an optional tensor that may differ between threads of the CTA";
            return Err(Diagnostic::new(156, site, message)
                .help("whether a tensor is there is the same in all threads of the CTA"));
        }
        let base = match choice {
            None => address.reg,
            Some(choice) => {
                let own = self.load_param(view.param);
                self.builder.pure(Class::B64, |dst| {
                    let pred = when(choice.reg);
                    Selp { ty: Type::B64, dst, a: address.reg.into(), b: own.into(), pred }.into()
                })
            }
        };
        let present = view.present.map(|there| self.there_at(there, base));
        Ok(GlobalView { present, picked: Some((view.param, base)), uniform: view.uniform.max(uniform), ..view })
    }

    /// Whether an optional tensor is there that begins at this address.
    fn there_at(&mut self, there: Reg, base: Reg) -> Reg {
        let somewhere = self.builder.pure(Class::Pred, |dst| {
            let dst = DstAndPred { dst: Some(dst), pred: None };
            let (compare, ftz) = (Compare::Ne, Default::default());
            Setp { compare, ftz, ty: Type::U64, dst, a: base.into(), b: Src::Imm(0) }.into()
        });
        self.builder.pure(Class::Pred, |dst| And { ty: Type::Pred, dst, a: there.into(), b: somewhere.into() }.into())
    }
}
