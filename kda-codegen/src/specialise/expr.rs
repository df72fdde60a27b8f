//! Expressions and blocks.

use super::Specialiser;
use super::global::Index;
use super::value::{Scalar, Value};
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Node, Uniform};
use crate::syntax::{Family, ParamType};
use kda_core::Elem;
use kda_ptx::operand::Special;
use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::{Expr, Stmt};

impl Specialiser<'_> {
    /// `{ statements; value }`
    pub(super) fn block(&mut self, block: &syn::Block) -> Result<Value> {
        self.frame().scopes.push();
        let value = self.statements(&block.stmts);
        self.frame().scopes.pop();
        value
    }

    fn statements(&mut self, stmts: &[Stmt]) -> Result<Value> {
        let mut value = Value::Unit;
        for (i, stmt) in stmts.iter().enumerate() {
            if self.returned {
                return Err(Diagnostic::new(166, stmt.span(), "nothing may follow `return` in a block"));
            }
            self.place(stmt.span());
            value = match stmt {
                Stmt::Local(local) => {
                    self.local(local)?;
                    Value::Unit
                }
                Stmt::Item(syn::Item::Const(item)) => {
                    let elem = consteval_type(&item.ty);
                    let value = self.expr(&item.expr)?;
                    let Some(constant) = value.as_const() else {
                        let message = format!("`{}` is not known while compiling", item.ident);
                        return Err(Diagnostic::new(155, item.expr.span(), message));
                    };
                    let constant = match (constant, elem) {
                        (c @ (Const::Int(_, None) | Const::Float(_, None)), Some(elem)) => {
                            consteval::cast(&c, elem, item.expr.span())?
                        }
                        (c, _) => c,
                    };
                    self.frame().scopes.declare(item.ident.to_string(), Value::from_const(constant), false);
                    Value::Unit
                }
                Stmt::Item(item) => {
                    return Err(Diagnostic::new(151, item.span(), "only `const` items stand in a body"));
                }
                Stmt::Expr(expr, semicolon) => {
                    let value = self.expr(expr)?;
                    if semicolon.is_some() { Value::Unit } else { value }
                }
                Stmt::Macro(m) => return Err(Diagnostic::new(151, m.span(), "macros do not exist in kernels")),
            };
            if i + 1 < stmts.len() && value != Value::Unit {
                let message = format!("{} is computed and dropped", value.describe());
                return Err(
                    Diagnostic::new(151, stmt.span(), message).help("end the statement with `;`, or bind the value")
                );
            }
        }
        Ok(value)
    }

    /// Any expression.
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Value> {
        let span = expr.span();
        match expr {
            Expr::Lit(_) => consteval::eval(expr, &consteval::Scope::new()).map(Value::from_const),
            Expr::Paren(inner) => self.expr(&inner.expr),
            Expr::Group(inner) => self.expr(&inner.expr),
            Expr::Path(path) => self.path(path),
            Expr::Unary(unary) => {
                let value = self.expr(&unary.expr)?;
                self.unary(&unary.op, value, span)
            }
            Expr::Binary(binary) => self.binary_expr(binary),
            Expr::Assign(assign) => self.assign(&assign.left, &assign.right, None),
            Expr::Cast(cast) => {
                let value = self.expr(&cast.expr)?;
                let elem = self.elem_type(&cast.ty)?;
                self.place(span);
                self.cast(value, elem, span)
            }
            Expr::Array(array) => array.elems.iter().map(|e| self.expr(e)).collect::<Result<_>>().map(Value::Array),
            Expr::Tuple(tuple) if tuple.elems.is_empty() => Ok(Value::Unit),
            Expr::Tuple(tuple) => tuple.elems.iter().map(|e| self.expr(e)).collect::<Result<_>>().map(Value::Tuple),
            Expr::Repeat(repeat) => {
                let value = self.expr(&repeat.expr)?;
                let count = self.const_int(&repeat.len)?;
                let count = usize::try_from(count).ok().filter(|n| *n <= 4096);
                let Some(count) = count else {
                    return Err(Diagnostic::new(154, repeat.len.span(), "an array has 0 to 4096 elements"));
                };
                Ok(Value::Array(vec![value; count]))
            }
            Expr::Index(index) => self.index(index),
            Expr::Field(field) => self.field(field),
            Expr::Range(range) => self.range(range),
            Expr::Block(block) => self.block_expr(block),
            Expr::Const(block) => {
                let value = self.block(&block.block)?;
                match value.as_const() {
                    Some(_) => Ok(value),
                    None => Err(Diagnostic::new(155, span, "this is not known while compiling")),
                }
            }
            Expr::If(expr) => self.with_role(&expr.attrs, |this| this.if_else(expr)),
            Expr::ForLoop(expr) => self.with_role(&expr.attrs, |this| this.for_loop(expr)),
            Expr::While(expr) => self.while_loop(expr),
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method(call),
            Expr::Struct(expr) => self.named_barrier(expr),
            Expr::Return(expr) => self.return_(expr),
            Expr::Closure(_) => {
                Err(Diagnostic::new(168, span, "a closure stands only in `from_fn::<N>(|i| …)` and `.map(|x| …)`"))
            }
            Expr::Reference(r) if r.mutability.is_some() => {
                Err(Diagnostic::new(151, span, "`&mut` stands only before an argument of a device function"))
            }
            _ => Err(Diagnostic::new(151, span, "this expression does not exist in kernels")),
        }
    }

    /// An integer known while compiling.
    pub(super) fn const_int(&mut self, expr: &Expr) -> Result<i128> {
        let value = self.expr(expr)?;
        value.as_int().ok_or_else(|| {
            Diagnostic::new(
                155,
                expr.span(),
                format!("an integer known while compiling is needed, not {}", value.describe()),
            )
        })
    }

    fn binary_expr(&mut self, expr: &syn::ExprBinary) -> Result<Value> {
        let span = expr.span();
        if is_compound(&expr.op) {
            return self.assign(&expr.left, &expr.right, Some(&expr.op));
        }
        let a = self.expr(&expr.left)?;
        let lazy = match (&expr.op, &a) {
            (syn::BinOp::And(_), Value::Const(Const::Bool(false)))
            | (syn::BinOp::Or(_), Value::Const(Const::Bool(true))) => {
                return Ok(a);
            }
            (syn::BinOp::And(_) | syn::BinOp::Or(_), Value::Scalar(s)) if s.elem == Elem::Bool => Some(*s),
            _ => None,
        };
        if let Some(left) = lazy {
            return self.lazy(left, matches!(expr.op, syn::BinOp::And(_)), &expr.op, &expr.right, span);
        }
        let b = self.expr(&expr.right)?;
        self.place(span);
        self.binary(&expr.op, a, b, span)
    }

    /// `a && b`, `a || b`: the right side runs only where it matters, unless it is free of effects.
    fn lazy(&mut self, left: Scalar, and: bool, op: &syn::BinOp, right: &Expr, span: Span) -> Result<Value> {
        self.builder.open();
        let value = self.expr(right)?;
        let region = self.builder.close();
        let free = region.iter().all(|node| match node {
            Node::Inst { inst, .. } => !matches!(
                inst,
                kda_ptx::Inst::Ld(_) | kda_ptx::Inst::St(_) | kda_ptx::Inst::Atom(_) | kda_ptx::Inst::Red(_)
            ),
            _ => false,
        });
        if free {
            for node in region {
                self.builder.push(node);
            }
            self.place(span);
            return self.binary(op, Value::Scalar(left), value, span);
        }
        let fixed = Value::Const(Const::Bool(!and));
        if and {
            self.branch(left, span, |this| this.expr(right), |_| Ok(fixed))
        } else {
            self.branch(left, span, |_| Ok(fixed), |this| this.expr(right))
        }
    }

    fn path(&mut self, path: &syn::ExprPath) -> Result<Value> {
        let span = path.span();
        let Some(name) = path.path.get_ident() else { return self.long_path(&path.path, span) };
        let text = name.to_string();
        if let Some(id) = self.frame().scopes.find(&text) {
            return Ok(self.frame().scopes.get(id).value.clone());
        }
        if let Some(value) = self.frame().generics.get(&text) {
            return Ok(Value::from_const(value.clone()));
        }
        let library = self.frame().library.clone();
        if let Some(value) = self.const_item(library, &text)? {
            return Ok(value);
        }
        let in_kernel = self.frames.len() == 1;
        if in_kernel {
            if let Some(index) = self.resolved.params.iter().position(|p| p.name == text) {
                return Ok(match self.kernel.params.iter().find(|p| p.name == text).map(|p| &p.ty) {
                    Some(ParamType::Tensor { .. }) => self.tensor(index),
                    _ => self.param_value(index),
                });
            }
            if let Some(index) = self.resolved.roles.iter().position(|r| r.name == text) {
                return Ok(Value::u32(index as u32));
            }
        }
        match text.as_str() {
            "tid" => Ok(Value::Scalar(self.special(Special::TidX, Uniform::Thread))),
            "lane" => Ok(Value::Scalar(self.special(Special::LaneId, Uniform::Thread))),
            "warp" => Ok(Value::Scalar(self.warp())),
            "role" => self.role_value(span),
            "ctaid" | "nctaid" => Err(Diagnostic::new(152, span, format!("`{text}` has axes: `{text}.x`"))),
            "NO_ALLOCATE" => Ok(Value::Hint(super::value::Hint { no_allocate: true, policy: None })),
            _ => match Elem::from_name(&text) {
                Some(elem) => Ok(Value::Const(Const::Elem(elem))),
                None => Err(Diagnostic::new(152, span, format!("`{text}` is not known here"))),
            },
        }
    }

    /// `bf16::ZERO`, `f32::INFINITY`, `u32::MAX`.
    fn long_path(&mut self, path: &syn::Path, span: Span) -> Result<Value> {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let [library, name] = names.as_slice()
            && let Some(value) = self.const_item(Some(library.clone()), name)?
        {
            return Ok(value);
        }
        if let [ty, name] = names.as_slice()
            && let Some(elem) = self.elem_name(ty)
        {
            let value = match (name.as_str(), elem) {
                ("ZERO", e) if e.is_float() => Some(Const::Float(0.0, Some(e))),
                ("ZERO", e) if e.is_integer() => Some(Const::Int(0, Some(e))),
                ("INFINITY", Elem::F32) => Some(Const::Float(f64::INFINITY, Some(elem))),
                ("NEG_INFINITY", Elem::F32) => Some(Const::Float(f64::NEG_INFINITY, Some(elem))),
                ("MAX", Elem::U32) => Some(Const::Int(u32::MAX.into(), Some(elem))),
                ("MAX", Elem::I32) => Some(Const::Int(i32::MAX.into(), Some(elem))),
                ("MIN", Elem::I32) => Some(Const::Int(i32::MIN.into(), Some(elem))),
                _ => None,
            };
            if let Some(value) = value {
                return Ok(Value::Const(value));
            }
        }
        Err(Diagnostic::new(152, span, format!("`{}` is not known here", names.join("::"))))
    }

    /// An element type by name: built in, or a generic of this function.
    pub(super) fn elem_name(&mut self, name: &str) -> Option<Elem> {
        match self.frame().generics.get(name) {
            Some(Const::Elem(elem)) => Some(*elem),
            _ => Elem::from_name(name),
        }
    }

    /// A type that is an element type.
    pub(super) fn elem_type(&mut self, ty: &syn::Type) -> Result<Elem> {
        let name = match ty {
            syn::Type::Path(path) => path.path.get_ident().map(ToString::to_string),
            _ => None,
        };
        name.and_then(|name| self.elem_name(&name))
            .ok_or_else(|| Diagnostic::new(156, ty.span(), "an element type is needed: f32, bf16, u32, …"))
    }

    /// A `const` item of the library, or of the kernel module.
    fn const_item(&mut self, library: Option<String>, name: &str) -> Result<Option<Value>> {
        let Some(item) = constant(self.family, library.as_deref(), name).cloned() else { return Ok(None) };
        if self.calls.iter().any(|c| c == name) {
            return Err(Diagnostic::new(165, item.ident.span(), format!("`{name}` refers to itself")));
        }
        self.calls.push(name.to_string());
        // Constants see constants only, not the locals of whoever uses them.
        let frame = super::Frame { scopes: super::Scopes::new(), generics: Default::default(), library };
        self.frames.push(frame);
        let value = self.expr(&item.expr);
        self.frames.pop();
        self.calls.pop();
        let value = value?;
        let Some(constant) = value.as_const() else {
            return Err(Diagnostic::new(155, item.expr.span(), format!("`{name}` is not known while compiling")));
        };
        let constant = match (constant, consteval_type(&item.ty)) {
            (c @ (Const::Int(_, None) | Const::Float(_, None)), Some(elem)) => {
                consteval::cast(&c, elem, item.expr.span())?
            }
            (Const::Array(items), _) => typed_array(items, &item.ty, item.expr.span())?,
            (c, _) => c,
        };
        Ok(Some(Value::from_const(constant)))
    }

    fn index(&mut self, expr: &syn::ExprIndex) -> Result<Value> {
        let span = expr.span();
        let base = self.expr(&expr.expr)?;
        match base {
            Value::Array(items) => {
                let index = self.expr(&expr.index)?;
                let at = expr.index.span();
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
                let view = self.shared_at(*view, indices, span)?;
                self.place(span);
                self.shared_load(&view, 1, None, span)
            }
            Value::Global(view) => {
                let indices = self.indices(&expr.index)?;
                let view = self.global_at(*view, indices, span)?;
                self.place(span);
                self.global_load(&view, 1, None, span)
            }
            other => Err(Diagnostic::new(156, span, format!("{} has no elements", other.describe()))),
        }
    }

    /// The list in `[[i, j]]` and `.at([i, a..b, ..])`; a single index may stand alone.
    pub(super) fn indices(&mut self, expr: &Expr) -> Result<Vec<(Index, Span)>> {
        let items: Vec<&Expr> = match expr {
            Expr::Array(array) => array.elems.iter().collect(),
            one => vec![one],
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            let index = match item {
                Expr::Range(range) => {
                    let start = range.start.as_ref().map(|e| self.expr(e)).transpose()?;
                    let end = range.end.as_ref().map(|e| self.expr(e)).transpose()?;
                    Index::Open(start, end)
                }
                one => Index::At(self.expr(one)?),
            };
            out.push((index, item.span()));
        }
        Ok(out)
    }

    fn field(&mut self, expr: &syn::ExprField) -> Result<Value> {
        let span = expr.span();
        if let (Expr::Path(path), syn::Member::Named(name)) = (expr.base.as_ref(), &expr.member)
            && let Some(base) = path.path.get_ident()
        {
            let special = match (base.to_string().as_str(), name.to_string().as_str()) {
                ("ctaid", "x") => Some(Special::CtaidX),
                ("ctaid", "y") => Some(Special::CtaidY),
                ("ctaid", "z") => Some(Special::CtaidZ),
                ("nctaid", "x") => Some(Special::NctaidX),
                ("nctaid", "y") => Some(Special::NctaidY),
                ("nctaid", "z") => Some(Special::NctaidZ),
                _ => None,
            };
            if let Some(special) = special {
                return Ok(Value::Scalar(self.special(special, Uniform::Cta)));
            }
        }
        let base = self.expr(&expr.base)?;
        match (&base, &expr.member) {
            (Value::Tuple(items), syn::Member::Unnamed(index)) => match items.get(index.index as usize) {
                Some(item) => Ok(item.clone()),
                None => {
                    Err(Diagnostic::new(154, span, format!("element {} of a tuple of {}", index.index, items.len())))
                }
            },
            _ => Err(Diagnostic::new(158, span, format!("{} has no such field", base.describe()))),
        }
    }

    fn range(&mut self, range: &syn::ExprRange) -> Result<Value> {
        let span = range.span();
        let (Some(start), Some(end)) = (&range.start, &range.end) else {
            return Err(Diagnostic::new(151, span, "a range needs a start and an end here"));
        };
        let start = self.expr(start)?;
        let mut end = self.expr(end)?;
        if matches!(range.limits, syn::RangeLimits::Closed(_)) {
            end = self.binary(&syn::BinOp::Add(Default::default()), end, Value::int(1), span)?;
        }
        Ok(Value::Range(Box::new((start, end, Value::int(1)))))
    }

    fn block_expr(&mut self, block: &syn::ExprBlock) -> Result<Value> {
        if block.label.is_some() {
            return Err(Diagnostic::new(151, block.span(), "labels do not exist in kernels"));
        }
        self.with_role(&block.attrs, |this| this.block(&block.block))
    }

    fn return_(&mut self, expr: &syn::ExprReturn) -> Result<Value> {
        let span = expr.span();
        if self.frames.len() > 1 {
            return Err(Diagnostic::new(166, span, "`return` inside a device function")
                .help("a device function gives the value of its last expression"));
        }
        if expr.expr.is_some() {
            return Err(Diagnostic::new(166, span, "a kernel returns nothing"));
        }
        if self.control() > Uniform::Cta {
            return Err(Diagnostic::new(
                166,
                span,
                "an early `return` must be taken by the whole CTA or by no thread of it",
            ));
        }
        self.returned = true;
        self.place(span);
        let place = self.builder.place;
        self.builder.push(Node::Return(place));
        Ok(Value::Unit)
    }
}

/// A `const` item of the kernel module, or of a library.
fn constant<'a>(family: &'a Family, library: Option<&str>, name: &str) -> Option<&'a syn::ItemConst> {
    let items = match library {
        None => &family.consts,
        Some(library) => &family.libraries.iter().find(|l| l.name == library)?.consts,
    };
    items.iter().find(|item| item.ident == name)
}

/// The element type that a type names, if it names one.
pub(super) fn consteval_type(ty: &syn::Type) -> Option<Elem> {
    match ty {
        syn::Type::Path(path) => path.path.get_ident().and_then(|i| Elem::from_name(&i.to_string())),
        _ => None,
    }
}

fn typed_array(items: Vec<Const>, ty: &syn::Type, span: Span) -> Result<Const> {
    let elem = match ty {
        syn::Type::Array(array) => consteval_type(&array.elem),
        _ => None,
    };
    let Some(elem) = elem else { return Ok(Const::Array(items)) };
    let cast = |c: &Const| match c {
        Const::Int(_, None) | Const::Float(_, None) => consteval::cast(c, elem, span),
        other => Ok(other.clone()),
    };
    items.iter().map(cast).collect::<Result<_>>().map(Const::Array)
}

fn is_compound(op: &syn::BinOp) -> bool {
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
