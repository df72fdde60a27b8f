//! What a loop says of itself: how it is unrolled, how often it runs, what its counter may be, what its body assigns.

use super::Specialiser;
use super::range::Range;
use super::value::{Scalar, Value};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Branch, Trips, Uniform};
use kda_core::Elem;
use kda_ptx::Inst;
use kda_ptx::modifier::Compare;
use kda_ptx::operand::Src;
use std::collections::BTreeSet;
use syn::Expr;
use syn::visit::Visit;

/// `#[unroll]`, `#[unroll(n)]`, `#[unroll(ring)]`, or nothing.
pub(super) enum Unroll {
    Unsaid,
    Whole,
    By(i128),
    Rings(Vec<usize>),
}

impl Specialiser<'_> {
    /// `#[unroll(…)]` of a loop.
    pub(super) fn unroll_attribute(&mut self, attrs: &[syn::Attribute]) -> Result<Unroll> {
        let Some(attr) = attrs.iter().find(|a| a.path().is_ident("unroll")) else { return Ok(Unroll::Unsaid) };
        if let syn::Meta::Path(_) = &attr.meta {
            return Ok(Unroll::Whole);
        }
        let list = attr
            .parse_args_with(syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated)
            .map_err(|_| Diagnostic::at(161, attr, "`#[unroll(…)]` takes a number or pipelines"))?;
        let mut rings = Vec::new();
        for expr in &list {
            match self.expr(expr)? {
                Value::Ring(ring) => rings.push(ring),
                value => match value.as_int().filter(|_| list.len() == 1) {
                    Some(n) if n > 0 => return Ok(Unroll::By(n)),
                    Some(n) => {
                        return Err(
                            Diagnostic::at(161, expr, format!("unrolling by {n}")).help("write a positive number")
                        );
                    }
                    None => return Err(Diagnostic::at(161, expr, "`#[unroll(…)]` takes a constant or pipelines")),
                },
            }
        }
        Ok(if rings.is_empty() { Unroll::Whole } else { Unroll::Rings(rings) })
    }

    /// How often a loop over `start..end` by `step` runs, as the checks see it. Its counter is told by the range from here on.
    pub(super) fn trips_of(&mut self, counter: Scalar, [start, end, step]: [&Value; 3], range: &Expr) -> Trips {
        let bounds = [start, end, step].map(|v| self.text_of(v));
        let mut key = format!("{}..{} by {}", bounds[0], bounds[1], bounds[2]);
        // Bounds that differ between warps differ between roles.
        let apart = start.uniform().max(end.uniform()).max(step.uniform()) > Uniform::Cta;
        let place = if apart { format!(" in roles {:?}", self.roles) } else { String::new() };
        key.push_str(&place);
        // Loops over one range inside each other are told apart by how deep they stand.
        let depth = self.control.len() - self.branches;
        self.counters.insert(counter.reg, format!("counter({key} at depth {depth})"));
        if let Some(n) = trip_count(start, end, step) {
            return Trips::Known(n as u64);
        }
        let text = crate::syntax::text::expr(range);
        let first = start.as_int().and_then(|start| i64::try_from(start).ok()).filter(|start| *start >= 0);
        match first.filter(|_| step.as_int() == Some(1)) {
            Some(first) => {
                let least = Range::of(end, counter.elem).least.max(0);
                // A number beside the value moves the start: `0..n + 1` runs once more than `0..n`.
                let (value, add) = match end {
                    Value::Scalar(s) if !s.elem.is_signed() => {
                        let (base, add) = self.split(*s);
                        (self.register_text(base, 0), i64::try_from(add).unwrap_or(0))
                    }
                    _ => (bounds[1].clone(), 0),
                };
                let (start, least) = (first - add, least.saturating_sub(add).max(0) as u64);
                Trips::Expression { key: format!("{value}{place}"), start, least, text }
            }
            None => Trips::Expression { key, start: 0, least: 0, text },
        }
    }

    /// Tells the branch that was emitted last as a comparison with a constant, if that is what its condition is.
    pub(super) fn mark_guard(&mut self, condition: Scalar, expr: &Expr) {
        let Some(Inst::Setp(setp)) = self.builder.definition(condition.reg).cloned() else { return };
        let (value, from) = match (setp.compare, setp.a, setp.b) {
            (Compare::Gt, Src::Reg(reg), Src::Imm(n)) | (Compare::Lt, Src::Imm(n), Src::Reg(reg)) => {
                (reg, n.saturating_add(1))
            }
            (Compare::Ge, Src::Reg(reg), Src::Imm(n)) | (Compare::Le, Src::Imm(n), Src::Reg(reg)) => (reg, n),
            (Compare::Ne, Src::Reg(reg), Src::Imm(0)) if setp.ty == kda_ptx::modifier::Type::U32 => (reg, 1),
            _ => return,
        };
        let Some(from) = u64::try_from(from).ok().filter(|from| *from > 0) else { return };
        let place =
            if condition.uniform > Uniform::Cta { format!(" in roles {:?}", self.roles) } else { String::new() };
        let key = format!("{}{place}", self.text_of(&Value::Scalar(Scalar::new(Elem::U32, value, Uniform::Cta))));
        let text = crate::syntax::text::expr(expr);
        self.builder.mark_branch(Branch::Guard(Trips::Guard { key, from, least: 0, text }));
    }
}

/// What the trips of a loop over a range have in common.
pub(super) struct Trip<'e> {
    pub expr: &'e syn::ExprForLoop,
    /// Local of the counter.
    pub id: usize,
    /// What the body sees of its value.
    pub inside: Range,
    pub end: &'e Value,
    pub step: &'e Value,
}

/// Names of variables that a body assigns.
#[derive(Default)]
pub(super) struct Assigned {
    pub(super) names: BTreeSet<String>,
}

impl Assigned {
    fn add(&mut self, place: &Expr) {
        match place {
            Expr::Path(path) => self.names.extend(path.path.get_ident().map(ToString::to_string)),
            Expr::Index(index) => self.add(&index.expr),
            Expr::Field(field) => self.add(&field.base),
            Expr::Paren(inner) => self.add(&inner.expr),
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|e| self.add(e)),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Assigned {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Assign(assign) => self.add(&assign.left),
            Expr::Binary(binary) if super::expr::is_compound(&binary.op) => self.add(&binary.left),
            Expr::Reference(reference) if reference.mutability.is_some() => self.add(&reference.expr),
            _ => {}
        }
        syn::visit::visit_expr(self, expr);
    }
}

/// What the body sees of a counter: it is below the end, and not below the start unless it wraps.
pub(super) fn counter_range(elem: Elem, start: Range, end: Range, step: Range, multiple: u64) -> Range {
    let full = Range::full(elem);
    if elem.bytes() > 4 {
        return full;
    }
    let most = (end.most - 1).max(full.least);
    // A counter of multiples of 8 is below the end by more than one.
    let most = most - i64::try_from(multiple).map_or(0, |multiple| most.rem_euclid(multiple));
    let least = if most + step.most <= full.most && step.least > 0 { start.least } else { full.least };
    Range { least: least.min(most), most }
}

/// Trips of a range, if they are known.
pub(super) fn trip_count(start: &Value, end: &Value, step: &Value) -> Option<i128> {
    let step = step.as_int().filter(|s| *s > 0)?;
    let length = match (start, end) {
        (Value::Scalar(_), _) | (_, Value::Scalar(_)) => return None,
        _ => end.as_int()?.checked_sub(start.as_int()?)?,
    };
    length.max(0).checked_add(step - 1).map(|n| n / step)
}
