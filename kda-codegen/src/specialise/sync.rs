//! Roles, barriers, bulk copies, dependent launch.

use super::Specialiser;
use super::value::Value;
use crate::compiled::Barrier;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Sync, Uniform, when};
use kda_core::Elem;
use kda_ptx::modifier::{CacheHint, ReadOnly, Type};
use kda_ptx::operand::Src;
use kda_ptx::table::*;
use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::{BinOp, Expr};

impl Specialiser<'_> {
    /// Runs `body` as the code of the roles that `#[role(…)]` names, or plainly if there is no such attribute.
    pub(super) fn with_role(
        &mut self,
        attrs: &[syn::Attribute],
        body: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let Some(attr) = attrs.iter().find(|a| a.path().is_ident("role")) else { return body(self) };
        let span = attr.span();
        let names = attr
            .parse_args_with(syn::punctuated::Punctuated::<syn::Ident, syn::Token![,]>::parse_terminated)
            .map_err(|e| Diagnostic::new(351, e.span(), "`#[role(…)]` takes names of roles"))?;
        let mut roles = Vec::new();
        for name in &names {
            match self.resolved.roles.iter().position(|r| *name == r.name) {
                Some(index) => roles.push(index),
                None => {
                    let known: Vec<_> = self.resolved.roles.iter().map(|r| r.name.clone()).collect();
                    return Err(Diagnostic::new(351, name.span(), format!("there is no role `{name}`"))
                        .help(format!("the roles of this kernel are: {}", known.join(", "))));
                }
            }
        }
        if self.roles.is_some() {
            return Err(Diagnostic::new(351, span, "a role inside a role"));
        }
        self.publish_barriers(span)?;
        let condition = self.role_condition(&roles, span)?;
        self.roles = Some(roles);
        let held = self.holdings.len();
        let body = |this: &mut Self| {
            this.set_registers(span);
            let value = body(this)?;
            this.check_holdings(held)?;
            Ok(value)
        };
        let held_roles = self.roles.clone().unwrap_or_default();
        let result = match condition {
            Value::Scalar(s) => {
                let result = self.branch(s, span, body, |_| Ok(Value::Unit));
                self.builder.mark_branch(Branch::Roles(held_roles));
                result
            }
            _ => body(self),
        };
        self.roles = None;
        result
    }

    /// True in the warps of the roles. Neighbouring roles share one comparison.
    fn role_condition(&mut self, roles: &[usize], span: Span) -> Result<Value> {
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
                part = self.binary(&BinOp::Ge(Default::default()), warp.clone(), Value::u32(at as u32), span)?;
            }
            if end < members.len() {
                let below = self.binary(&BinOp::Lt(Default::default()), warp.clone(), Value::u32(end as u32), span)?;
                part = self.binary(&BinOp::BitAnd(Default::default()), part, below, span)?;
            }
            condition = Some(match condition {
                None => part,
                Some(before) => self.binary(&BinOp::BitOr(Default::default()), before, part, span)?,
            });
            at = end;
        }
        Ok(condition.unwrap_or(Value::Const(Const::Bool(false))))
    }

    /// `role`: the index of the role of this warp; a constant inside a block of one role.
    pub(super) fn role_value(&mut self, span: Span) -> Result<Value> {
        if let Some([one]) = self.roles.as_deref() {
            return Ok(Value::u32(*one as u32));
        }
        let roles = self.resolved.roles.clone();
        let Some(first) = roles.first() else {
            return Err(Diagnostic::new(351, span, "this kernel has no roles")
                .help("declare them: `#[roles(load = 0..4, math = 4..12)]`"));
        };
        let warp = Value::Scalar(self.warp());
        let even =
            roles.iter().enumerate().all(|(i, r)| r.warps == first.warps && r.first_warp == i as u32 * first.warps);
        if even {
            return self.binary(&BinOp::Div(Default::default()), warp, Value::u32(first.warps), span);
        }
        let mut value = Value::u32(roles.len() as u32);
        for (index, _) in roles.iter().enumerate().rev() {
            let inside = self.role_condition(&[index], span)?;
            value = match inside {
                Value::Const(Const::Bool(true)) => Value::u32(index as u32),
                Value::Const(_) => value,
                inside => {
                    let pred = self.scalar(&inside, Some(Elem::Bool), span)?;
                    let other = self.operand(&value, Elem::U32, span)?;
                    Value::Scalar(self.builder.scalar(Elem::U32, Uniform::Warp, |dst| {
                        Selp { ty: Type::B32, dst, a: Src::Imm(index as i64), b: other.clone(), pred: when(pred.reg) }
                            .into()
                    }))
                }
            };
        }
        Ok(value)
    }

    /// `NamedBarrier { between: (q, k) }`
    pub(super) fn named_barrier(&mut self, expr: &syn::ExprStruct) -> Result<Value> {
        if expr.path.segments.first().is_some_and(|s| s.ident == "Pipeline") {
            return self.pipeline(expr);
        }
        let span = expr.span();
        let form = || Diagnostic::new(352, span, "a named barrier is written `NamedBarrier { between: (load, math) }`");
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
                Some(index) => roles.push(index),
                None => return Err(Diagnostic::new(351, name.span(), "a named barrier stands between roles")),
            }
        }
        let id = self.barriers.len() as u32 + 1;
        if id > 15 {
            return Err(Diagnostic::new(650, span, "more than 15 named barriers")
                .help("the hardware has 16; barrier 0 is `cta_sync()`"));
        }
        let threads = roles.iter().map(|r| self.resolved.roles[*r].warps * 32).sum();
        let name = self.naming.take().unwrap_or_else(|| format!("barrier{id}"));
        self.barriers.push((Barrier { name, id, threads }, roles));
        Ok(Value::Barrier(self.barriers.len() - 1))
    }

    /// `barrier.sync()`, `barrier.arrive()`
    pub(super) fn barrier(&mut self, index: usize, wait: bool, span: Span) -> Result<Value> {
        let (barrier, between) = self.barriers[index].clone();
        let inside = self.roles.as_ref().is_some_and(|roles| roles.iter().all(|r| between.contains(r)));
        if !inside {
            let names: Vec<_> = between.iter().map(|r| self.resolved.roles[*r].name.clone()).collect();
            return Err(Diagnostic::new(352, span, format!("`{}` is used outside its roles", barrier.name))
                .help(format!("only the roles {} take part; declare others in `between`", names.join(", "))));
        }
        if self.control() > Uniform::Warp {
            return Err(Diagnostic::new(
                350,
                span,
                "a barrier needs all lanes of the warp, but lanes may differ in the branch around it",
            ));
        }
        let (id, threads) = (barrier.id, barrier.threads);
        let place_number = self.note_span(span);
        self.builder.sync(if wait {
            Sync::NamedSync { id, threads, span: place_number }
        } else {
            Sync::NamedArrive { id, threads }
        });
        Ok(Value::Unit)
    }

    /// Functions that concern more than one thread; `None` if `name` is not one.
    pub(super) fn synchronisation(
        &mut self,
        name: &str,
        generics: &[syn::GenericArgument],
        args: &[&Expr],
        span: Span,
    ) -> Result<Option<Value>> {
        match name {
            "cta_sync" => {
                let [] = self.arguments(name, args, span)?;
                if self.roles.is_some() {
                    return Err(Diagnostic::new(353, span, "`cta_sync()` inside a role: the other roles never arrive")
                        .help("move it out of the role, or use a `NamedBarrier` between the roles that meet"));
                }
                if self.control() > Uniform::Cta {
                    return Err(Diagnostic::new(
                        350,
                        span,
                        "`cta_sync()` needs all threads of the CTA, but they may differ in the branch around it",
                    ));
                }
                self.place(span);
                match self.fresh_barriers {
                    Some(_) => self.publish_barriers(span)?,
                    None => self.builder.sync(Sync::Cta),
                }
            }
            "warp_sync" => {
                let [] = self.arguments(name, args, span)?;
                if self.control() > Uniform::Warp {
                    return Err(Diagnostic::new(
                        350,
                        span,
                        "`warp_sync()` needs all lanes of the warp, but they may differ in the branch around it",
                    ));
                }
                self.place(span);
                self.builder.sync(Sync::Warp);
            }
            "pdl::wait" => {
                let [] = self.arguments(name, args, span)?;
                if self.roles.is_some() || self.control() > Uniform::Cta {
                    return Err(Diagnostic::new(350, span, "`pdl::wait()` is for all threads of the CTA"));
                }
                self.place(span);
                self.builder.inst(DependencyWait {});
                self.waited = true;
                self.dependent = true;
            }
            "pdl::launch_dependents" => {
                let [] = self.arguments(name, args, span)?;
                self.place(span);
                self.builder.inst(LaunchDependents {});
            }
            "bulk::commit" => {
                let [] = self.arguments(name, args, span)?;
                self.place(span);
                self.builder.inst(BulkCommit {});
            }
            "bulk::wait" | "bulk::wait_read" => {
                let [] = self.arguments(name, args, span)?;
                let pending = match generics {
                    [pending] => self.generic_value(pending)?.as_int().filter(|n| (0..8).contains(n)),
                    _ => None,
                };
                let Some(pending) = pending else {
                    let message = format!("`{name}` needs the number of groups that may be pending, 0 to 7");
                    return Err(Diagnostic::new(155, span, message).help(format!("write `{name}::<0>()`")));
                };
                self.place(span);
                self.builder
                    .inst(BulkWait { read: ReadOnly(name == "bulk::wait_read"), pending: Src::Imm(pending as i64) });
            }
            "bulk::store" => self.bulk_store(args, span)?,
            "tma::store" => self.tma_store(args, span)?,
            "wgmma::commit" => {
                let [] = self.arguments(name, args, span)?;
                self.wgmma_commit(span)?;
            }
            "wgmma::wait" => {
                let [] = self.arguments(name, args, span)?;
                let pending = match generics {
                    [pending] => self.generic_value(pending)?.as_int().filter(|n| (0..8).contains(n)),
                    _ => None,
                };
                let Some(pending) = pending else {
                    return Err(Diagnostic::new(
                        155,
                        span,
                        "`wgmma::wait` needs the number of groups that may be pending, 0 to 7",
                    )
                    .help("write `wgmma::wait::<0>()`"));
                };
                self.wgmma_wait(pending as usize, span)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Value::Unit))
    }

    /// `bulk::store(to, from)`: as many bytes as both views hold; `bulk::store(to, from, bytes)` copies that many.
    fn bulk_store(&mut self, args: &[&Expr], span: Span) -> Result<()> {
        let ([to, from], bytes) = match args {
            [to, from] => ([*to, *from], None),
            [to, from, bytes] => ([*to, *from], Some(*bytes)),
            _ => {
                return Err(Diagnostic::new(
                    157,
                    span,
                    "`bulk::store` takes a global view, a shared view and perhaps the bytes",
                ));
            }
        };
        let (Value::Global(to), Value::Shared(from)) = (self.expr(to)?, self.expr(from)?) else {
            return Err(Diagnostic::new(156, span, "`bulk::store` copies from a shared view to a global view"));
        };
        let bytes = match bytes {
            Some(bytes) => self.expr(bytes)?,
            None => {
                let elements: u64 = from.axes.iter().map(|(n, _)| n).product();
                let target: Option<u64> = to.axes.iter().map(|a| a.size).product();
                if target.is_some_and(|n| n != elements) || to.elem != from.elem {
                    let message =
                        format!("{} elements of {} go to {:?} elements of {}", elements, from.elem, target, to.elem);
                    return Err(Diagnostic::new(453, span, message).help("both views must hold the same elements"));
                }
                Value::u32((elements * u64::from(from.elem.bytes())) as u32)
            }
        };
        if let Some(n) = bytes.as_int()
            && (n <= 0 || n % 16 != 0)
        {
            return Err(Diagnostic::new(453, span, format!("a bulk copy of {n} bytes"))
                .help("bulk copies move a positive multiple of 16 bytes"));
        }
        let param = self.resolved.params[to.param].clone();
        if !matches!(param.kind, crate::compiled::ParamKind::Tensor { writes: true, .. }) {
            return Err(
                Diagnostic::new(454, span, format!("`{}` is read-only", param.name)).help("declare it `GlobalMut<…>`")
            );
        }
        let state = &mut self.params[to.param];
        state.align = state.align.max(16);
        if !self.waited && state.early.is_none() {
            state.early = Some(span);
        }
        let generic_destination = state.generic;
        let bytes = self.operand(&bytes, Elem::U32, span)?;
        self.place(span);
        let dst = self.global_address(&to);
        let src = self.shared_address(&from);
        let guard = to.present.map(when);
        let inst = BulkStore {
            hint: CacheHint(to.hint.policy.is_some()),
            dst,
            src,
            bytes,
            policy: to.hint.policy.map(Src::Reg),
        };
        self.builder.sync(Sync::BulkStore { buffer: from.buffer, inst: inst.into(), guard, generic_destination });
        Ok(())
    }
}
