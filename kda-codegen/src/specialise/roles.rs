//! Roles, and barriers between them.

use super::Specialiser;
use super::range::Range;
use super::site::Site;
use super::value::{Scalar, Value};
use crate::compiled::Barrier;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Sync, Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::Type;
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// Runs `body` as the code of the roles that `#[role(…)]` names, or plainly if there is no such attribute.
    pub(super) fn with_role(
        &mut self,
        attrs: &[syn::Attribute],
        body: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let Some(attr) = attrs.iter().find(|a| a.path().is_ident("role")) else { return body(self) };
        let site = Site::Tokens(attr);
        let names = attr
            .parse_args_with(syn::punctuated::Punctuated::<syn::Ident, syn::Token![,]>::parse_terminated)
            .map_err(|_| Diagnostic::at(351, attr, "`#[role(…)]` takes names of roles"))?;
        if names.is_empty() {
            return Err(Diagnostic::at(351, attr, "`#[role(…)]` names no role").help("write `#[role(load)]`"));
        }
        let mut roles = Vec::new();
        for name in &names {
            match self.resolved.roles.iter().position(|r| *name == r.name) {
                Some(index) => roles.push(index),
                None => {
                    let known: Vec<_> = self.resolved.roles.iter().map(|r| r.name.clone()).collect();
                    return Err(Diagnostic::at(351, name, format!("there is no role `{name}`"))
                        .help(format!("the roles of this kernel are: {}", known.join(", "))));
                }
            }
        }
        if self.roles.is_some() {
            return Err(Diagnostic::new(351, site, "a role inside a role"));
        }
        self.publish_barriers(site)?;
        let condition = self.role_condition(&roles, site)?;
        self.roles = Some(roles.clone());
        let held = self.holdings.len();
        let body = |this: &mut Self| {
            this.role_branches = this.branches;
            this.set_registers(site);
            let value = body(this)?;
            this.check_holdings(held)?;
            this.check_landed_by("the role")?;
            this.finish_writes(site)?;
            Ok(value)
        };
        let result = match condition {
            Value::Scalar(s) => {
                let result = self.branch(s, site, body, |_| Ok(Value::Unit));
                self.builder.mark_branch(Branch::Roles(roles));
                result
            }
            Value::Const(Const::Bool(false)) => Ok(Value::Unit),
            _ => body(self),
        };
        self.roles = None;
        self.role_branches = 0;
        result
    }

    /// True in the warps of the roles. Neighbouring roles share one comparison.
    fn role_condition(&mut self, roles: &[usize], site: Site<'_>) -> Result<Value> {
        let warps = self.resolved.block / 32;
        let mut members = vec![false; warps as usize];
        for role in roles {
            let role = &self.resolved.roles[*role];
            for warp in role.first_warp..role.first_warp + role.warps {
                if let Some(member) = members.get_mut(warp as usize) {
                    *member = true;
                }
            }
        }
        let warp = Value::Scalar(self.warp());
        let mut condition: Option<Value> = None;
        let mut at = 0;
        while at < members.len() {
            if !members[at] {
                at += 1;
                continue;
            }
            let end = (at..members.len()).find(|i| !members[*i]).unwrap_or(members.len());
            let mut part = Value::Const(Const::Bool(true));
            if at > 0 {
                part = self.binary(&BinOp::Ge(Default::default()), warp.clone(), Value::u32(at as u32), site)?;
            }
            if end < members.len() {
                let below = self.binary(&BinOp::Lt(Default::default()), warp.clone(), Value::u32(end as u32), site)?;
                part = self.binary(&BinOp::BitAnd(Default::default()), part, below, site)?;
            }
            condition = Some(match condition {
                None => part,
                Some(before) => self.binary(&BinOp::BitOr(Default::default()), before, part, site)?,
            });
            at = end;
        }
        Ok(condition.unwrap_or(Value::Const(Const::Bool(false))))
    }

    /// `role`: the index of the role of this warp, and the number of roles where it has none; a constant inside a block of
    /// one role.
    pub(super) fn role_value(&mut self, site: Site<'_>) -> Result<Value> {
        if let Some([one]) = self.roles.as_deref() {
            return Ok(Value::u32(*one as u32));
        }
        let roles = self.resolved.roles.clone();
        let Some(first) = roles.first() else {
            return Err(Diagnostic::new(351, site, "this kernel has no roles")
                .help("declare them: `#[roles(load = 0..4, math = 4..12)]`"));
        };
        let warp = Value::Scalar(self.warp());
        let even =
            roles.iter().enumerate().all(|(i, r)| r.warps == first.warps && r.first_warp == i as u32 * first.warps)
                && roles.len() as u32 * first.warps * 32 == self.resolved.block;
        if even {
            return self.binary(&BinOp::Div(Default::default()), warp, Value::u32(first.warps), site);
        }
        let mut value = Value::u32(roles.len() as u32);
        for (index, _) in roles.iter().enumerate().rev() {
            let inside = self.role_condition(&[index], site)?;
            value = match inside {
                Value::Const(Const::Bool(true)) => Value::u32(index as u32),
                Value::Const(_) => value,
                inside => {
                    let pred = self.scalar(&inside, Some(Elem::Bool), site)?;
                    let other = self.operand(&value, Elem::U32, site)?;
                    let uniform = pred.uniform.max(value.uniform());
                    let picked = self.builder.scalar(Elem::U32, uniform, |dst| {
                        Selp { ty: Type::B32, dst, a: Src::Imm(index as i64), b: other.clone(), pred: when(pred.reg) }
                            .into()
                    });
                    let range = Range { least: 0, most: roles.len() as i64 };
                    Value::Scalar(Scalar { range, ..picked })
                }
            };
        }
        Ok(value)
    }

    /// `NamedBarrier { between: (q, k) }`
    pub(super) fn named_barrier(&mut self, expr: &syn::ExprStruct, site: Site<'_>) -> Result<Value> {
        if expr.path.segments.first().is_some_and(|s| s.ident == "Pipeline") {
            return self.pipeline(expr, site);
        }
        let form = || Diagnostic::new(352, site, "a named barrier is written `NamedBarrier { between: (load, math) }`");
        if !expr.path.is_ident("NamedBarrier") || expr.fields.len() != 1 {
            return Err(form());
        }
        let Some(field) = expr.fields.first() else { return Err(form()) };
        if !matches!(&field.member, syn::Member::Named(name) if name == "between") {
            return Err(form());
        }
        let names: Vec<&Expr> = match &field.expr {
            Expr::Tuple(tuple) => tuple.elems.iter().collect(),
            one => vec![one],
        };
        let mut roles = Vec::new();
        for name in names {
            let ident = match name {
                Expr::Path(path) => path.path.get_ident(),
                _ => None,
            };
            let index = ident.and_then(|i| self.resolved.roles.iter().position(|r| *i == r.name));
            match index {
                Some(index) if roles.contains(&index) => {
                    return Err(Diagnostic::at(352, name, "the role is given twice"));
                }
                Some(index) => roles.push(index),
                None => return Err(Diagnostic::at(351, name, "a named barrier stands between roles")),
            }
        }
        if roles.is_empty() {
            return Err(form());
        }
        let name = self.naming.take().unwrap_or_else(|| format!("barrier{}", self.barriers.len() + 1));
        Ok(Value::Barrier(self.declare_barrier(name, roles, site)?))
    }

    /// `barrier.sync()`, `barrier.arrive()`
    pub(super) fn barrier(&mut self, index: usize, wait: bool, site: Site<'_>) -> Result<Value> {
        let (barrier, between) = self.barriers[index].clone();
        let inside = self.roles.as_ref().is_some_and(|roles| roles.iter().all(|r| between.contains(r)));
        if !inside {
            let names: Vec<_> = between.iter().map(|r| self.resolved.roles[*r].name.clone()).collect();
            return Err(Diagnostic::new(352, site, format!("`{}` is used outside its roles", barrier.name))
                .help(format!("only the roles {} take part; declare others in `between`", names.join(", "))));
        }
        if self.control() > Uniform::Warp {
            return Err(Diagnostic::new(
                350,
                site,
                "a barrier needs all lanes of the warp, but lanes may differ in the branch around it",
            ));
        }
        let (id, threads) = (barrier.id, barrier.threads);
        let span = self.note_span(site);
        self.builder.sync(if wait {
            Sync::NamedSync { id, threads, span }
        } else {
            Sync::NamedArrive { id, threads, span }
        });
        Ok(Value::Unit)
    }

    /// `role_sync()`: the warps of the roles of this block meet, at a barrier of their own.
    pub(super) fn role_sync(&mut self, site: Site<'_>) -> Result<()> {
        let Some(roles) = self.roles.clone() else {
            return Err(Diagnostic::new(352, site, "`role_sync()` outside a role").help("write `cta_sync()`"));
        };
        if self.control() > Uniform::Warp {
            return Err(Diagnostic::new(
                350,
                site,
                "`role_sync()` needs all lanes of the warp, but lanes may differ in the branch around it",
            ));
        }
        let warps: u32 = roles.iter().map(|r| self.resolved.roles[*r].warps).sum();
        self.place(site);
        if warps == 1 {
            self.builder.sync(Sync::Warp);
            return Ok(());
        }
        let names: Vec<_> = roles.iter().map(|r| self.resolved.roles[*r].name.as_str()).collect();
        let name = format!("role_sync of {}", names.join(", "));
        let index = match self.barriers.iter().position(|(barrier, _)| barrier.name == name) {
            Some(index) => index,
            None => self.declare_barrier(name, roles, site)?,
        };
        self.barrier(index, true, site)?;
        Ok(())
    }

    /// A further named barrier between roles.
    fn declare_barrier(&mut self, name: String, roles: Vec<usize>, site: Site<'_>) -> Result<usize> {
        let id = self.barriers.len() as u32 + 1;
        if id > 15 {
            return Err(Diagnostic::new(650, site, "more than 15 named barriers")
                .help("the hardware has 16; barrier 0 is `cta_sync()`"));
        }
        let threads = roles.iter().map(|r| self.resolved.roles[*r].warps * 32).sum();
        self.barriers.push((Barrier { name, id, threads }, roles));
        Ok(self.barriers.len() - 1)
    }
}
