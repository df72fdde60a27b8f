//! Expressions and blocks.

use super::site::Site;
use super::value::Value;
use super::views::Index;
use super::{Specialiser, attributes};
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Node, Uniform};
use kda_core::Elem;
use syn::{Expr, Stmt};

impl Specialiser<'_> {
    /// `{ statements; value }`
    pub(super) fn block(&mut self, block: &syn::Block) -> Result<Value> {
        self.frame().scopes.push();
        let value = self.statements(&block.stmts)?;
        self.frame().scopes.pop();
        Ok(value)
    }

    fn statements(&mut self, stmts: &[Stmt]) -> Result<Value> {
        let mut value = Value::Unit;
        for (i, stmt) in stmts.iter().enumerate() {
            if self.returned {
                return Err(Diagnostic::at(166, stmt, "nothing may follow `return` in a block"));
            }
            value = match stmt {
                Stmt::Local(local) => {
                    self.place(Site::Tokens(&local.let_token));
                    self.local(local)?;
                    Value::Unit
                }
                Stmt::Item(syn::Item::Const(item)) => {
                    self.local_constant(item)?;
                    Value::Unit
                }
                Stmt::Item(item) => {
                    return Err(Diagnostic::at(151, item, "only `const` items stand in a body"));
                }
                Stmt::Expr(expr, semicolon) => {
                    self.place(Site::Expr(expr));
                    let value = self.expr(expr)?;
                    if semicolon.is_some() { Value::Unit } else { value }
                }
                Stmt::Macro(m) => return Err(Diagnostic::at(151, m, "macros do not exist in kernels")),
            };
            if i + 1 < stmts.len() && value != Value::Unit {
                let message = format!("{} is computed and dropped", value.describe());
                return Err(Diagnostic::at(151, stmt, message).help("end the statement with `;`, or bind the value"));
            }
        }
        Ok(value)
    }

    /// `const NAME: type = value;` in a body.
    fn local_constant(&mut self, item: &syn::ItemConst) -> Result<()> {
        attributes::check(&item.attrs, "a constant", &[])?;
        let value = self.expr(&item.expr)?;
        if value.as_const().is_none() {
            let message = format!("`{}` is not known while compiling", item.ident);
            return Err(Diagnostic::at(155, &item.expr, message));
        }
        let value = self.typed(value, &item.ty).map_err(|error| match error.code.0 {
            150 | 164 | 202 | 204 => error.over(&item.expr),
            _ => error,
        })?;
        self.frame().scopes.declare(item.ident.to_string(), value, false);
        Ok(())
    }

    /// Any expression.
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Value> {
        self.enter(Site::Expr(expr))?;
        attributes::of_expr(expr)?;
        let value = self.any_expr(expr)?;
        self.leave();
        Ok(value)
    }

    fn any_expr(&mut self, expr: &Expr) -> Result<Value> {
        let site = Site::Expr(expr);
        match expr {
            Expr::Lit(_) => consteval::eval(expr, &consteval::Scope::new()).map(Value::from_const),
            Expr::Paren(inner) => self.expr(&inner.expr),
            Expr::Group(inner) => self.expr(&inner.expr),
            Expr::Path(path) => self.path(path, site),
            Expr::Unary(unary) => match (&unary.op, unary.expr.as_ref()) {
                // The sign belongs to the literal: -2147483648i32 is a value.
                (syn::UnOp::Neg(_), Expr::Lit(lit)) if matches!(lit.lit, syn::Lit::Int(_)) => {
                    consteval::eval(expr, &consteval::Scope::new()).map(Value::from_const)
                }
                (op, inner) => {
                    let value = self.expr(inner)?;
                    self.place(site);
                    self.unary(op, value, site)
                }
            },
            Expr::Binary(binary) => self.binary_expr(binary, site),
            Expr::Assign(assign) => self.assign(&assign.left, &assign.right, None, site),
            Expr::Cast(cast) => {
                let value = self.expr(&cast.expr)?;
                let elem = self.elem_type(&cast.ty)?;
                self.place(site);
                self.cast(value, elem, site)
            }
            Expr::Array(array) => array.elems.iter().map(|e| self.expr(e)).collect::<Result<_>>().map(Value::Array),
            Expr::Tuple(tuple) if tuple.elems.is_empty() => Ok(Value::Unit),
            Expr::Tuple(tuple) => tuple.elems.iter().map(|e| self.expr(e)).collect::<Result<_>>().map(Value::Tuple),
            Expr::Repeat(repeat) => {
                let value = self.expr(&repeat.expr)?;
                let count = self.const_int(&repeat.len)?;
                let count = usize::try_from(count).ok().filter(|n| *n <= 4096);
                let Some(count) = count else {
                    return Err(Diagnostic::at(154, &repeat.len, "an array has 0 to 4096 elements"));
                };
                self.spend(count.saturating_mul(value.leaves()), site)?;
                Ok(Value::Array(vec![value; count]))
            }
            Expr::Index(index) => self.index(index, site),
            Expr::Field(field) => self.field(field, site),
            Expr::Range(range) => self.range(range, site),
            Expr::Block(block) => self.block_expr(block, site),
            Expr::Const(block) => {
                let value = self.block(&block.block)?;
                match value.as_const() {
                    Some(_) => Ok(value),
                    None => Err(Diagnostic::new(155, site, "this is not known while compiling")),
                }
            }
            Expr::If(expr) => {
                self.with_role(&expr.attrs, |this| this.with_election(&expr.attrs, |this| this.if_else(expr)))
            }
            Expr::ForLoop(expr) => {
                self.with_role(&expr.attrs, |this| this.with_election(&expr.attrs, |this| this.for_loop(expr)))
            }
            Expr::While(expr) => self.while_loop(expr),
            Expr::Call(call) => self.call(call, site),
            Expr::MethodCall(call) => self.method(call, site),
            Expr::Struct(expr) => self.named_barrier(expr, site),
            Expr::Return(expr) => self.return_(expr, site),
            Expr::Closure(_) => {
                Err(Diagnostic::new(168, site, "a closure stands only in `from_fn::<N>(|i| …)` and `.map(|x| …)`"))
            }
            Expr::Reference(r) if r.mutability.is_some() => {
                Err(Diagnostic::new(151, site, "`&mut` stands only before an argument of a device function"))
            }
            _ => Err(Diagnostic::new(151, site, "this expression does not exist in kernels")),
        }
    }

    /// An integer known while compiling.
    pub(super) fn const_int(&mut self, expr: &Expr) -> Result<i128> {
        let value = self.expr(expr)?;
        value.as_int().ok_or_else(|| {
            let message = format!("an integer known while compiling is needed, not {}", value.describe());
            Diagnostic::at(155, expr, message)
        })
    }

    fn binary_expr(&mut self, expr: &syn::ExprBinary, site: Site<'_>) -> Result<Value> {
        if is_compound(&expr.op) {
            return self.assign(&expr.left, &expr.right, Some(&expr.op), site);
        }
        let a = self.expr(&expr.left)?;
        match (&expr.op, &a) {
            (syn::BinOp::And(_), Value::Const(Const::Bool(false)))
            | (syn::BinOp::Or(_), Value::Const(Const::Bool(true))) => return Ok(a),
            (syn::BinOp::And(_) | syn::BinOp::Or(_), Value::Scalar(s)) if s.elem == Elem::Bool => {
                return self.lazy(*s, expr, site);
            }
            _ => {}
        }
        let b = self.expr(&expr.right)?;
        self.place(site);
        self.binary(&expr.op, a, b, site)
    }

    fn index(&mut self, expr: &syn::ExprIndex, site: Site<'_>) -> Result<Value> {
        let base = self.expr(&expr.expr)?;
        match base {
            Value::Array(items) => {
                let index = self.expr(&expr.index)?;
                let at = Site::Expr(&expr.index);
                match index {
                    Value::Const(Const::Int(i, _)) => match usize::try_from(i).ok().and_then(|i| items.get(i)) {
                        Some(item) => Ok(item.clone()),
                        None => Err(Diagnostic::new(154, at, format!("index {i} of an array of {}", items.len()))),
                    },
                    Value::Scalar(_) => Err(Diagnostic::new(
                        153,
                        at,
                        "an array in registers takes constant indices only",
                    )
                    .help(
                        "unroll the loop with `#[unroll]`, choose with `select`, or keep the array in shared memory",
                    )),
                    other => Err(Diagnostic::new(156, at, format!("{} is no index", other.describe()))),
                }
            }
            Value::Shared(view) => {
                let indices = self.indices(&expr.index)?;
                let view = self.shared_at(*view, indices, site)?;
                self.place(site);
                self.shared_load(&view, 1, None, site)
            }
            Value::Tile(view) => {
                let indices = self.indices(&expr.index)?;
                self.place(site);
                let element = self.tile_at(&view, indices, site)?;
                self.tile_load(&element, 1, None, site)
            }
            Value::Global(view) => {
                let indices = self.indices(&expr.index)?;
                let view = self.global_at(*view, indices, site)?;
                self.place(site);
                self.global_load(&view, 1, None, site)
            }
            other => Err(Diagnostic::new(156, site, format!("{} has no elements", other.describe()))),
        }
    }

    /// The list in `[[i, j]]` and `.at([i, a..b, ..])`; a single index may stand alone.
    pub(super) fn indices<'e>(&mut self, expr: &'e Expr) -> Result<Vec<(Index, Site<'e>)>> {
        let items: Vec<&Expr> = match expr {
            Expr::Array(array) => array.elems.iter().collect(),
            one => vec![one],
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            let index = match item {
                Expr::Range(range) => {
                    let start = range.start.as_ref().map(|e| self.expr(e)).transpose()?;
                    let mut end = range.end.as_ref().map(|e| self.expr(e)).transpose()?;
                    if matches!(range.limits, syn::RangeLimits::Closed(_)) {
                        let Some(last) = end else {
                            return Err(Diagnostic::at(151, range, "a closed range needs an end"));
                        };
                        end = Some(self.binary(
                            &syn::BinOp::Add(Default::default()),
                            last,
                            Value::int(1),
                            Site::Expr(item),
                        )?);
                    }
                    Index::Open(start, end)
                }
                one => Index::At(self.expr(one)?),
            };
            out.push((index, Site::Expr(item)));
        }
        Ok(out)
    }

    fn range(&mut self, range: &syn::ExprRange, site: Site<'_>) -> Result<Value> {
        let (Some(start), Some(end)) = (&range.start, &range.end) else {
            return Err(Diagnostic::new(151, site, "a range needs a start and an end here"));
        };
        let start = self.expr(start)?;
        let mut end = self.expr(end)?;
        if matches!(range.limits, syn::RangeLimits::Closed(_)) {
            end = self.binary(&syn::BinOp::Add(Default::default()), end, Value::int(1), site)?;
        }
        Ok(Value::Range(Box::new((start, end, Value::int(1)))))
    }

    fn block_expr(&mut self, block: &syn::ExprBlock, site: Site<'_>) -> Result<Value> {
        if block.label.is_some() {
            return Err(Diagnostic::new(151, site, "labels do not exist in kernels"));
        }
        self.with_role(&block.attrs, |this| this.with_election(&block.attrs, |this| this.block(&block.block)))
    }

    fn return_(&mut self, expr: &syn::ExprReturn, site: Site<'_>) -> Result<Value> {
        if self.frames.len() > 1 {
            return Err(Diagnostic::new(166, site, "`return` inside a device function")
                .help("a device function gives the value of its last expression"));
        }
        if expr.expr.is_some() {
            return Err(Diagnostic::new(166, site, "a kernel returns nothing"));
        }
        if self.control() > Uniform::Cta {
            return Err(Diagnostic::new(
                166,
                site,
                "an early `return` must be taken by the whole CTA or by no thread of it",
            ));
        }
        self.check_idle("at this `return`", site)?;
        self.returned = true;
        if !self.waited {
            self.left_early = self.left_early.or(Some(site.ends()));
        }
        self.cluster.returned = self.cluster.returned.or(Some(site.ends()));
        self.place(site);
        let place = self.builder.place;
        self.builder.push(Node::Return(place));
        Ok(Value::Unit)
    }
}

/// `+=` and the like.
pub(super) fn is_compound(op: &syn::BinOp) -> bool {
    use syn::BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}
