//! The functions and methods of the language.

use super::Specialiser;
use super::params::arithmetic;
use super::value::{Hint, Scalar, Value};
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Uniform, when};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::*;
use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::{Expr, GenericArgument};

/// Names of the functions, for suggestions.
const FUNCTIONS: &[&str] = &[
    "from_fn",
    "fma",
    "min",
    "max",
    "abs",
    "select",
    "log2",
    "ex2_approx",
    "rcp_approx",
    "rsqrt_approx",
    "sqrt_approx",
    "lg2_approx",
    "tanh_approx",
    "shfl",
    "shfl_xor",
    "cta_sync",
    "warp_sync",
    "smem",
];

impl Specialiser<'_> {
    pub(super) fn builtin(
        &mut self,
        names: &[String],
        generics: &[GenericArgument],
        args: &[&Expr],
        span: Span,
    ) -> Result<Value> {
        let name = names.join("::");
        match name.as_str() {
            "from_fn" => return self.from_fn(generics, args, span),
            "smem" => return self.smem(generics, args, span),
            _ => {}
        }
        if let [ty, function] = names
            && ty == "Acc"
            && function == "zero"
        {
            let [] = self.arguments(&name, args, span)?;
            return self.accumulator(generics, span);
        }
        if let [ty, function] = names
            && let Some(elem) = self.elem_name(ty)
            && matches!(function.as_str(), "rn" | "from_bits")
        {
            let [value] = self.arguments(&name, args, span)?;
            self.place(span);
            return match function.as_str() {
                "rn" => self.round(value, elem, span),
                _ => self.reinterpret(value, elem, span),
            };
        }
        match name.as_str() {
            "fma" => {
                let [a, b, c] = self.arguments(&name, args, span)?;
                self.place(span);
                self.fma(a, b, c, span)
            }
            "min" | "max" => {
                let [a, b] = self.arguments(&name, args, span)?;
                self.place(span);
                self.extremum(name == "min", a, b, span)
            }
            "select" => {
                let [condition, a, b] = self.arguments(&name, args, span)?;
                self.place(span);
                self.select(condition, a, b, span)
            }
            "abs" => {
                let [a] = self.arguments(&name, args, span)?;
                self.place(span);
                self.abs(a, span)
            }
            "log2" => {
                let [a] = self.arguments(&name, args, span)?;
                match a.as_const() {
                    Some(c) => consteval::call("log2", &[c], span).map(Value::from_const),
                    None => {
                        Err(Diagnostic::new(155, span, "`log2` takes a constant").help("at run time: `lg2_approx`"))
                    }
                }
            }
            "ex2_approx" | "rcp_approx" | "rsqrt_approx" | "sqrt_approx" | "lg2_approx" | "tanh_approx" => {
                let [a] = self.arguments(&name, args, span)?;
                self.place(span);
                self.approximate(&name, a, span)
            }
            "shfl" | "shfl_xor" => {
                let [value, lane] = self.arguments(&name, args, span)?;
                self.place(span);
                self.shuffle(name == "shfl_xor", value, lane, span)
            }
            "l2::evict_first" | "l2::evict_last" | "l2::evict_normal" | "l2::evict_unchanged" => {
                let [] = self.arguments(&name, args, span)?;
                let reg = self.policy(policy(&name));
                Ok(Value::Hint(Hint { no_allocate: false, policy: Some(reg) }))
            }
            "l2::evict_first_if" => {
                let [condition] = self.arguments(&name, args, span)?;
                self.evict_first_if(condition, span)
            }
            _ => match self.synchronisation(&name, generics, args, span)? {
                Some(value) => Ok(value),
                None => {
                    let near = FUNCTIONS.iter().find(|f| f.starts_with(&name) || name.starts_with(**f));
                    let error = Diagnostic::new(167, span, format!("there is no function `{name}`"));
                    Err(match near {
                        Some(near) => error.help(format!("perhaps `{near}`")),
                        None => error.help("device functions carry `#[device]`, or come from a library in `uses`"),
                    })
                }
            },
        }
    }

    /// Exactly `N` arguments, evaluated.
    pub(super) fn arguments<const N: usize>(&mut self, name: &str, args: &[&Expr], span: Span) -> Result<[Value; N]> {
        if args.len() != N {
            return Err(Diagnostic::new(157, span, format!("`{name}` takes {N} arguments; {} are given", args.len())));
        }
        let mut values = Vec::with_capacity(N);
        for arg in args {
            values.push(self.expr(arg)?);
        }
        values.try_into().map_err(|_| Diagnostic::new(157, span, format!("`{name}` takes {N} arguments")))
    }

    /// `from_fn::<N>(|i| …)`: an array, element by element.
    fn from_fn(&mut self, generics: &[GenericArgument], args: &[&Expr], span: Span) -> Result<Value> {
        let [count] = generics else {
            return Err(Diagnostic::new(157, span, "`from_fn` needs its length: `from_fn::<N>(|i| …)`"));
        };
        let count = match self.generic_value(count)? {
            Const::Int(n, _) if (0..=4096).contains(&n) => n,
            _ => return Err(Diagnostic::new(154, span, "an array has 0 to 4096 elements")),
        };
        let [Expr::Closure(closure)] = args else {
            return Err(Diagnostic::new(168, span, "`from_fn` takes a closure: `from_fn::<N>(|i| …)`"));
        };
        (0..count).map(|i| self.apply(closure, Value::u32(i as u32))).collect::<Result<_>>().map(Value::Array)
    }

    /// A closure of one argument, evaluated here.
    fn apply(&mut self, closure: &syn::ExprClosure, value: Value) -> Result<Value> {
        let span = closure.span();
        let Some(pat) = closure.inputs.first().filter(|_| closure.inputs.len() == 1) else {
            return Err(Diagnostic::new(168, span, "the closure takes one argument"));
        };
        self.frame().scopes.push();
        self.bind(pat, value)?;
        let value = self.expr(&closure.body);
        self.frame().scopes.pop();
        value
    }

    /// `smem::<elem, (shape…)>()`
    fn smem(&mut self, generics: &[GenericArgument], args: &[&Expr], span: Span) -> Result<Value> {
        let form = || Diagnostic::new(157, span, "a shared buffer is written `smem::<f32, Shape<4, 128>>()`");
        let ([elem, shape, rest @ ..], []) = (generics, args) else { return Err(form()) };
        let elem = match elem {
            GenericArgument::Type(ty) => self.elem_type(ty)?,
            _ => return Err(form()),
        };
        let GenericArgument::Type(syn::Type::Path(path)) = shape else { return Err(form()) };
        let Some(segment) = path.path.segments.last().filter(|s| s.ident == "Shape") else { return Err(form()) };
        let syn::PathArguments::AngleBracketed(sizes) = &segment.arguments else { return Err(form()) };
        let mut shape = Vec::new();
        for size in &sizes.args {
            match self.generic_value(size)? {
                Const::Int(n, _) if (0..=u32::MAX.into()).contains(&n) => shape.push(n as u32),
                _ => return Err(Diagnostic::new(157, size.span(), "a size is a non-negative integer")),
            }
        }
        if self.control() > Uniform::Cta || self.frames.len() > 1 {
            return Err(Diagnostic::new(
                151,
                span,
                "a shared buffer is declared in the kernel, outside runtime branches",
            ));
        }
        let name = self.naming.take().unwrap_or_else(|| "shared".into());
        if rest.is_empty() {
            return self.shared_buffer(name, elem, shape, span);
        }
        let (swizzle, stages) = self.tile_form(rest).map_err(|_| form())?;
        self.staging = Some(stages);
        self.tile_buffer(name, elem, &shape, swizzle, stages, span)
    }

    /// `Swizzle<128>` and the number of stages, behind the shape of a buffer.
    fn tile_form(&mut self, rest: &[GenericArgument]) -> Result<(kda_core::Swizzle, u32)> {
        let span = rest.first().map_or_else(Span::call_site, |r| r.span());
        let wrong =
            || Diagnostic::new(802, span, "a swizzle is written `Swizzle<128>`, and the number of stages behind it");
        let Some(GenericArgument::Type(syn::Type::Path(path))) = rest.first() else { return Err(wrong()) };
        let Some(segment) = path.path.segments.last().filter(|s| s.ident == "Swizzle") else { return Err(wrong()) };
        let syn::PathArguments::AngleBracketed(args) = &segment.arguments else { return Err(wrong()) };
        let span_bytes = match args.args.first() {
            Some(argument) => self.generic_value(argument)?.as_int().unwrap_or(-1),
            None => -1,
        };
        let swizzle = u32::try_from(span_bytes).ok().and_then(kda_core::Swizzle::of_span).ok_or_else(wrong)?;
        let stages = match rest.get(1) {
            None => 1,
            Some(argument) => match self.generic_value(argument)?.as_int() {
                Some(n) if (1..=64).contains(&n) => n as u32,
                _ => return Err(wrong()),
            },
        };
        Ok((swizzle, stages))
    }

    fn fma(&mut self, a: Value, b: Value, c: Value, span: Span) -> Result<Value> {
        if let Some(n) =
            [&a, &b, &c].iter().find_map(|v| if let Value::Array(items) = v { Some(items.len()) } else { None })
        {
            let spread = |v: Value| match v {
                Value::Array(items) if items.len() == n => Ok(items),
                Value::Array(items) => Err(Diagnostic::new(
                    156,
                    span,
                    format!("arrays of {n} and {} elements do not go together", items.len()),
                )),
                one => Ok(vec![one; n]),
            };
            let (a, b, c) = (spread(a)?, spread(b)?, spread(c)?);
            let items = a.into_iter().zip(b).zip(c).map(|((a, b), c)| self.fma(a, b, c, span));
            return items.collect::<Result<_>>().map(Value::Array);
        }
        let elem = match self.common(&a, &b, span)? {
            Elem::U32 => self.common(&a, &c, span)?,
            elem => elem,
        };
        if !matches!(elem, Elem::F32 | Elem::F64) {
            return Err(Diagnostic::new(156, span, format!("`fma` takes f32 or f64, not {elem}")));
        }
        let uniform = a.uniform().max(b.uniform()).max(c.uniform());
        let (x, y, z) = (self.operand(&a, elem, span)?, self.operand(&b, elem, span)?, self.operand(&c, elem, span)?);
        let ty = arithmetic(elem);
        Ok(Value::Scalar(self.builder.scalar(elem, uniform, |dst| {
            let (ftz, sat) = (Default::default(), Default::default());
            Fma { round: Round::Rn, ftz, sat, ty, dst, a: x.clone(), b: y.clone(), c: z.clone() }.into()
        })))
    }

    fn extremum(&mut self, smaller: bool, a: Value, b: Value, span: Span) -> Result<Value> {
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            return consteval::call(if smaller { "min" } else { "max" }, &[x, y], span).map(Value::from_const);
        }
        let elem = self.common(&a, &b, span)?;
        if !matches!(elem, Elem::F32 | Elem::F64 | Elem::U32 | Elem::I32 | Elem::U64 | Elem::I64) {
            return Err(Diagnostic::new(156, span, format!("`min` and `max` do not take a {elem}")));
        }
        let uniform = a.uniform().max(b.uniform());
        let (x, y) = (self.operand(&a, elem, span)?, self.operand(&b, elem, span)?);
        let (ftz, nan, ty) = (Ftz(false), Nan(false), arithmetic(elem));
        Ok(Value::Scalar(self.builder.scalar(elem, uniform, |dst| match smaller {
            true => Min { ftz, nan, ty, dst, a: x.clone(), b: y.clone() }.into(),
            false => Max { ftz, nan, ty, dst, a: x.clone(), b: y.clone() }.into(),
        })))
    }

    /// `select(condition, a, b)`: both sides are computed, no branch.
    pub(super) fn select(&mut self, condition: Value, a: Value, b: Value, span: Span) -> Result<Value> {
        match (&condition, &a, &b) {
            (Value::Const(Const::Bool(c)), ..) => return Ok(if *c { a } else { b }),
            (_, Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
                let pairs: Vec<_> = x.iter().cloned().zip(y.iter().cloned()).collect();
                let items = pairs.into_iter().map(|(x, y)| self.select(condition.clone(), x, y, span));
                return items.collect::<Result<_>>().map(Value::Array);
            }
            _ => {}
        }
        if a == b {
            return Ok(a);
        }
        let elem = match (&a, &b) {
            (Value::Const(Const::Float(_, None)), Value::Const(Const::Float(_, None))) => Elem::F32,
            _ => self.common(&a, &b, span)?,
        };
        let condition = self.scalar(&condition, Some(Elem::Bool), span)?;
        let uniform = condition.uniform.max(a.uniform()).max(b.uniform());
        let (x, y) = (self.operand(&a, elem, span)?, self.operand(&b, elem, span)?);
        if elem == Elem::Bool {
            let pick = |this: &mut Self, p: kda_ptx::Reg, v: Src| {
                this.builder.pure(Class::Pred, |dst| And { ty: Type::Pred, dst, a: p.into(), b: v.clone() }.into())
            };
            let not = self.builder.pure(Class::Pred, |dst| Not { ty: Type::Pred, dst, a: condition.src() }.into());
            let (x, y) = (pick(self, condition.reg, x), pick(self, not, y));
            return Ok(Value::Scalar(
                self.builder.scalar(elem, uniform, |dst| Or { ty: Type::Pred, dst, a: x.into(), b: y.into() }.into()),
            ));
        }
        let ty = super::params::bits(elem);
        let pred = when(condition.reg);
        let mut scalar =
            self.builder.scalar(elem, uniform, |dst| Selp { ty, dst, a: x.clone(), b: y.clone(), pred }.into());
        if elem.is_integer() {
            let multiple = |v: &Value| match v {
                Value::Scalar(s) => s.multiple,
                other => other.as_int().map_or(1, |i| i.unsigned_abs() as u64),
            };
            scalar.multiple = super::value::gcd(multiple(&a), multiple(&b)).max(1);
        }
        Ok(Value::Scalar(scalar))
    }

    fn abs(&mut self, a: Value, span: Span) -> Result<Value> {
        match a {
            Value::Const(Const::Float(v, ty)) => Ok(Value::Const(Const::Float(v.abs(), ty))),
            Value::Const(Const::Int(v, ty)) => Ok(Value::Const(Const::Int(v.abs(), ty))),
            Value::Array(items) => {
                items.into_iter().map(|x| self.abs(x, span)).collect::<Result<_>>().map(Value::Array)
            }
            Value::Scalar(s) if matches!(s.elem, Elem::F32 | Elem::F64 | Elem::I32 | Elem::I64) => {
                let ty = arithmetic(s.elem);
                Ok(Value::Scalar(
                    self.builder.scalar(s.elem, s.uniform, |dst| Abs { ftz: Ftz(false), ty, dst, a: s.src() }.into()),
                ))
            }
            other => Err(Diagnostic::new(156, span, format!("`abs` does not take {}", other.describe()))),
        }
    }

    /// An approximation of the hardware on f32; subnormal inputs and results count as zero.
    fn approximate(&mut self, name: &str, a: Value, span: Span) -> Result<Value> {
        if let Value::Array(items) = a {
            return items.into_iter().map(|x| self.approximate(name, x, span)).collect::<Result<_>>().map(Value::Array);
        }
        let uniform = a.uniform();
        let a = self.operand(&a, Elem::F32, span)?;
        let (ftz, ty) = (Ftz(true), Type::F32);
        Ok(Value::Scalar(self.builder.scalar(Elem::F32, uniform, |dst| match name {
            "ex2_approx" => Ex2 { ftz, ty, dst, a: a.clone() }.into(),
            "rcp_approx" => Rcp { accuracy: Accuracy::Approx, ftz, ty, dst, a: a.clone() }.into(),
            "rsqrt_approx" => Rsqrt { ftz, ty, dst, a: a.clone() }.into(),
            "sqrt_approx" => Sqrt { accuracy: Accuracy::Approx, ftz, ty, dst, a: a.clone() }.into(),
            "lg2_approx" => Lg2 { ftz, ty, dst, a: a.clone() }.into(),
            _ => Tanh { ty, dst, a: a.clone() }.into(),
        })))
    }

    /// `shfl(value, lane)`, `shfl_xor(value, mask)` among the 32 lanes of the warp.
    fn shuffle(&mut self, xor: bool, value: Value, lane: Value, span: Span) -> Result<Value> {
        if self.control() > Uniform::Warp {
            return Err(Diagnostic::new(
                350,
                span,
                "a shuffle needs all lanes of the warp, but lanes may differ in the branch around it",
            )
            .help("compute the value in all lanes and use it under the condition"));
        }
        if let Value::Array(items) = value {
            return items
                .into_iter()
                .map(|x| self.shuffle(xor, x, lane.clone(), span))
                .collect::<Result<_>>()
                .map(Value::Array);
        }
        let source = self.scalar(&value, None, span)?;
        if source.elem.bytes() != 4 {
            return Err(Diagnostic::new(156, span, format!("a shuffle moves 32 bits, not a {}", source.elem)));
        }
        let mode = if xor { ShuffleMode::Bfly } else { ShuffleMode::Idx };
        let uniform = match (xor, lane.uniform()) {
            (false, Uniform::Cta | Uniform::Warp) => Uniform::Warp,
            _ => Uniform::Thread,
        };
        let lane = self.operand(&lane, Elem::U32, span)?;
        // Not shared with an equal shuffle: a shuffle is a meeting of lanes.
        let reg = self.builder.fresh(Class::B32);
        self.builder.inst(Shfl {
            mode,
            ty: Type::B32,
            dst: DstAndPred { dst: Some(reg), pred: None },
            a: source.src(),
            lane,
            clamp: Src::Imm(31),
            members: Src::Imm(-1),
        });
        Ok(Value::Scalar(Scalar { elem: source.elem, reg, uniform, multiple: 1 }))
    }

    fn policy(&mut self, policy: L2Policy) -> kda_ptx::Reg {
        self.builder.prologue(Class::B64, |dst| {
            CreatePolicy { policy, ty: Type::B64, dst, fraction: Some(Src::f32(1.0)) }.into()
        })
    }

    fn evict_first_if(&mut self, condition: Value, span: Span) -> Result<Value> {
        let (first, normal) = (self.policy(L2Policy::EvictFirst), self.policy(L2Policy::EvictNormal));
        let policy = match condition {
            Value::Const(Const::Bool(true)) => first,
            Value::Const(Const::Bool(false)) => normal,
            other => {
                let pred = when(self.scalar(&other, Some(Elem::Bool), span)?.reg);
                self.builder
                    .pure(Class::B64, |dst| Selp { ty: Type::B64, dst, a: first.into(), b: normal.into(), pred }.into())
            }
        };
        Ok(Value::Hint(Hint { no_allocate: false, policy: Some(policy) }))
    }
}

fn policy(name: &str) -> L2Policy {
    match name {
        "l2::evict_first" => L2Policy::EvictFirst,
        "l2::evict_last" => L2Policy::EvictLast,
        "l2::evict_unchanged" => L2Policy::EvictUnchanged,
        _ => L2Policy::EvictNormal,
    }
}

impl Specialiser<'_> {
    /// `receiver.name(arguments)`
    pub(super) fn method(&mut self, call: &syn::ExprMethodCall) -> Result<Value> {
        let span = call.span();
        let receiver = self.expr(&call.receiver)?;
        let name = call.method.to_string();
        let args: Vec<&Expr> = call.args.iter().collect();
        let lanes = match &call.turbofish {
            Some(generics) if name.starts_with("load") => match generics.args.first() {
                Some(argument) => match self.generic_value(argument)? {
                    Const::Int(n, _) if n > 0 => n as u64,
                    _ => {
                        return Err(Diagnostic::new(
                            451,
                            generics.span(),
                            "the number of elements is a positive integer",
                        ));
                    }
                },
                None => 1,
            },
            _ => 1,
        };
        match (receiver, name.as_str()) {
            (Value::Global(view), "at") => {
                let [list] = args.as_slice() else { return Err(one_list(span)) };
                let indices = self.indices(list)?;
                self.place(span);
                Ok(Value::Global(Box::new(self.global_at(*view, indices, span)?)))
            }
            (Value::Shared(view), "at") => {
                let [list] = args.as_slice() else { return Err(one_list(span)) };
                let indices = self.indices(list)?;
                self.place(span);
                Ok(Value::Shared(Box::new(self.shared_at(*view, indices, span)?)))
            }
            (Value::Global(view), "hint") => {
                let [hint] = self.arguments(&name, &args, span)?;
                let Value::Hint(hint) = hint else {
                    return Err(Diagnostic::new(156, span, format!("{} is no cache hint", hint.describe())));
                };
                let mut view = view;
                view.hint.no_allocate |= hint.no_allocate;
                view.hint.policy = hint.policy.or(view.hint.policy);
                Ok(Value::Global(view))
            }
            (Value::Global(view), "is_present") => {
                let [] = self.arguments(&name, &args, span)?;
                Ok(match view.present {
                    Some(reg) => Value::Scalar(Scalar { elem: Elem::Bool, reg, uniform: Uniform::Cta, multiple: 1 }),
                    None => Value::Const(Const::Bool(true)),
                })
            }
            (Value::Global(view), "inc_wrap") => {
                let [limit, order] = args.as_slice() else {
                    return Err(Diagnostic::new(
                        157,
                        span,
                        "`inc_wrap` takes a limit and an order: `inc_wrap(n - 1, ACQ_REL)`",
                    ));
                };
                let order = memory_order(order)?;
                let limit = self.expr(limit)?;
                self.place(span);
                self.global_atomic(&view, AtomicOp::Inc, order, &limit, span)
            }
            (Value::Global(view), "fetch_add") => {
                let [value, order] = args.as_slice() else {
                    return Err(Diagnostic::new(
                        157,
                        span,
                        "`fetch_add` takes a value and an order: `fetch_add(1, ACQ_REL)`",
                    ));
                };
                let order = memory_order(order)?;
                let value = self.expr(value)?;
                self.place(span);
                self.global_atomic(&view, AtomicOp::Add, order, &value, span)
            }
            (Value::Shared(view), "cast") => {
                let elem = match call.turbofish.as_ref().and_then(|g| g.args.first()) {
                    Some(GenericArgument::Type(ty)) => self.elem_type(ty)?,
                    _ => return Err(Diagnostic::new(157, span, "`cast` needs a type: `cast::<bf16>()`")),
                };
                Ok(Value::Shared(Box::new(self.shared_cast(&view, elem, span)?)))
            }
            (receiver @ (Value::Global(_) | Value::Shared(_)), "load" | "load_v" | "load_if" | "load_v_if") => {
                let condition = match name.ends_with("_if") {
                    true => Some(self.arguments::<1>(&name, &args, span)?[0].clone()),
                    false => {
                        let [] = self.arguments(&name, &args, span)?;
                        None
                    }
                };
                if lanes == 1 && name.starts_with("load_v") {
                    return Err(
                        Diagnostic::new(451, span, "the number of elements is missing").help("write `load_v::<4>()`")
                    );
                }
                self.place(span);
                match receiver {
                    Value::Global(view) => self.global_load(&view, lanes, condition.as_ref(), span),
                    Value::Shared(view) => self.shared_load(&view, lanes, condition.as_ref(), span),
                    _ => Ok(Value::Unit),
                }
            }
            (receiver @ (Value::Global(_) | Value::Shared(_)), "store" | "store_v" | "store_if" | "store_v_if") => {
                let (condition, value) = match name.ends_with("_if") {
                    true => {
                        let [condition, value] = self.arguments(&name, &args, span)?;
                        (Some(condition), value)
                    }
                    false => {
                        let [value] = self.arguments(&name, &args, span)?;
                        (None, value)
                    }
                };
                if name.starts_with("store_v") != matches!(value, Value::Array(_)) {
                    let help = "`store` takes one element, `store_v` an array of 2, 4 or 8";
                    return Err(Diagnostic::new(451, span, format!("`{name}` of {}", value.describe())).help(help));
                }
                self.place(span);
                match receiver {
                    Value::Global(view) => self.global_store(&view, &value, condition.as_ref(), span)?,
                    Value::Shared(view) => self.shared_store(&view, &value, condition.as_ref(), span)?,
                    _ => {}
                }
                Ok(Value::Unit)
            }
            (Value::Ring(ring), "acquire" | "wait") => {
                let [] = self.arguments(&name, &args, span)?;
                self.take_stage(ring, usize::from(name == "wait"), span)
            }
            (Value::Slot(slot), "commit" | "release") => {
                let [] = self.arguments(&name, &args, span)?;
                self.give_stage(&slot, usize::from(name == "release"), span)
            }
            (Value::Tile(view), "tma_load") => self.tma_load(&view, &args, span),
            (Value::Tile(view), "k_slice") => {
                let [column] = self.arguments(&name, &args, span)?;
                let Some(column) = column.as_int().filter(|c| *c >= 0 && *c + 16 <= i128::from(view.width)) else {
                    return Err(Diagnostic::new(154, span, format!("a slice of 16 columns of {}", view.width))
                        .help("the first column is a constant"));
                };
                let column = view.column + column as u64;
                Ok(Value::Tile(Box::new(super::tile::TileView { column, width: 16, ..*view })))
            }
            (Value::Acc(acc), "mma") => {
                let [a, b] = self.arguments(&name, &args, span)?;
                let mut acc = acc;
                match (a, b) {
                    (Value::Tile(a), Value::Tile(b)) => self.mma(&mut acc, &a, &b, span)?,
                    (Value::Operand(a), Value::Tile(b)) => self.mma_registers(&mut acc, &a, &b, span)?,
                    (a, b) => {
                        let message = format!("a product of {} and {}", a.describe(), b.describe());
                        return Err(Diagnostic::new(902, span, message)
                            .help("A is a tile in shared memory or an operand in registers, B a tile"));
                    }
                }
                self.assign_value(&call.receiver, Value::Acc(acc))?;
                Ok(Value::Unit)
            }
            (Value::Acc(acc), "as_a") => {
                let elem = match call.turbofish.as_ref().and_then(|g| g.args.first()) {
                    Some(GenericArgument::Type(ty)) => self.elem_type(ty)?,
                    _ => return Err(Diagnostic::new(157, span, "`as_a` needs a type: `as_a::<bf16>()`")),
                };
                self.as_operand(&acc, elem, span)
            }
            (Value::Operand(operand), "k_slice") => {
                let [column] = self.arguments(&name, &args, span)?;
                let Some(column) =
                    column.as_int().filter(|c| *c >= 0 && c % 16 == 0 && *c + 16 <= i128::from(operand.width))
                else {
                    return Err(Diagnostic::new(154, span, format!("a slice of 16 columns of {}", operand.width))
                        .help("the first column is a constant and a multiple of 16"));
                };
                let column = operand.column + column as u64;
                Ok(Value::Operand(Box::new(super::wgmma::Operand { column, width: 16, ..*operand })))
            }
            (Value::Acc(acc), "for_each") => self.for_each_pair(&acc, &args, span),
            (Value::Barrier(index), "sync" | "arrive") => {
                let [] = self.arguments(&name, &args, span)?;
                self.place(span);
                self.barrier(index, name == "sync", span)
            }
            (Value::Range(range), "step_by") => {
                let [step] = self.arguments(&name, &args, span)?;
                Ok(Value::Range(Box::new((range.0, range.1, step))))
            }
            (Value::Array(items), "map") => {
                let [Expr::Closure(closure)] = args.as_slice() else {
                    return Err(Diagnostic::new(168, span, "`map` takes a closure: `.map(|x| …)`"));
                };
                items.into_iter().map(|x| self.apply(closure, x)).collect::<Result<_>>().map(Value::Array)
            }
            (value @ (Value::Scalar(_) | Value::Const(_)), "to_bits") => {
                let [] = self.arguments(&name, &args, span)?;
                let elem = match self.scalar(&value, None, span)?.elem {
                    Elem::F32 => Elem::U32,
                    Elem::F64 => Elem::U64,
                    Elem::BF16 | Elem::F16 => Elem::U16,
                    other => return Err(Diagnostic::new(156, span, format!("a {other} is already an integer"))),
                };
                self.reinterpret(value, elem, span)
            }
            (receiver, _) => {
                Err(Diagnostic::new(158, call.method.span(), format!("{} has no method `{name}`", receiver.describe())))
            }
        }
    }
}

fn one_list(span: Span) -> Box<Diagnostic> {
    Diagnostic::new(157, span, "`at` takes a list of indices: `at([i, j])`")
}

/// `RELAXED`, `ACQUIRE`, `RELEASE`, `ACQ_REL`
fn memory_order(expr: &Expr) -> Result<Order> {
    let name = match expr {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    };
    match name.as_deref() {
        Some("RELAXED") => Ok(Order::Relaxed),
        Some("ACQUIRE") => Ok(Order::Acquire),
        Some("RELEASE") => Ok(Order::Release),
        Some("ACQ_REL") => Ok(Order::AcqRel),
        _ => Err(Diagnostic::new(156, expr.span(), "an order is RELAXED, ACQUIRE, RELEASE or ACQ_REL")),
    }
}
