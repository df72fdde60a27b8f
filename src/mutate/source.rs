//! Mutants of a kernel's source: one synchronisation statement deleted, moved past its neighbour or weakened.
//!
//! A statement synchronises if its outermost call is one of `METHODS` or `FUNCTIONS`, as a statement of its own or as the
//! value of a `let`. Edits are made in the text, so that every line but the changed one stays where it was.

use super::{Level, Mutant, Operator, Text};
use proc_macro2::{LineColumn, Span};
use quote::ToTokens;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Stmt};

/// Methods of pipelines, stages, named barriers and mbarriers that synchronise.
const METHODS: [&str; 8] = ["acquire", "commit", "wait", "release", "peek", "sync", "arrive", "arrive_expect"];
/// Functions that synchronise.
const FUNCTIONS: [&str; 12] = [
    "cta_sync",
    "warp_sync",
    "role_sync",
    "cluster_sync",
    "cluster_arrive",
    "cluster_wait",
    "pdl::wait",
    "bulk::commit",
    "bulk::wait",
    "bulk::wait_read",
    "wgmma::commit",
    "wgmma::wait",
];
/// Those that let others go on: too early is a fault, too late is slow.
const GIVE: [&str; 7] =
    ["commit", "release", "arrive", "cluster_arrive", "bulk::commit", "wgmma::commit", "arrive_expect"];
/// Those that wait and do nothing else: too late is a fault, too early is slow.
const WAIT: [&str; 8] =
    ["acquire", "wait", "peek", "cluster_wait", "pdl::wait", "bulk::wait", "bulk::wait_read", "wgmma::wait"];
/// Calls that touch no memory and order nothing.
const PURE: [&str; 12] = [
    "launch_dependents",
    "min",
    "max",
    "select",
    "from_fn",
    "smem",
    "tmem",
    "zero",
    "evict_first_if",
    "is_present",
    "is_live",
    "as_a",
];

/// Every mutant of the family in a text. An error is what the Rust parser says.
pub fn mutants(kernel: &'static str, text: &str) -> Result<Vec<Mutant>, String> {
    let file = syn::parse_file(text).map_err(|cause| cause.to_string())?;
    let mut finder = Finder { kernel, text, lines: starts(text), found: Vec::new() };
    finder.visit_file(&file);
    // Two neighbours that change places are one mutant, whichever of them moves.
    let mut found: Vec<Mutant> = Vec::new();
    for mutant in finder.found {
        if found.iter().all(|other| other.text != mutant.text) {
            found.push(mutant);
        }
    }
    Ok(found)
}

/// Where lines begin.
fn starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

struct Finder<'t> {
    kernel: &'static str,
    text: &'t str,
    lines: Vec<usize>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    /// Place of a column, which counts characters.
    fn at(&self, place: LineColumn) -> usize {
        let start = self.lines[place.line - 1];
        let ahead = self.text[start..].char_indices().nth(place.column);
        ahead.map_or(self.text.len(), |(bytes, _)| start + bytes)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.at(span.start())..self.at(span.end())
    }

    /// Adds the text with a range replaced.
    fn add(&mut self, operator: Operator, at: Span, what: Span, range: Range<usize>, instead: &str) {
        let mut text = self.text.to_string();
        text.replace_range(range, instead);
        let what = self.text[self.range(what)].split_whitespace().collect::<Vec<_>>().join(" ");
        let (kernel, line) = (self.kernel, at.start().line as u32);
        self.found.push(Mutant { kernel, level: Level::Source, operator, line, what, text: Text::Source(text) });
    }

    /// Two statements, one behind the other, change places.
    fn swap(&mut self, operator: Operator, what: Span, first: Span, second: Span) {
        let (a, b) = (self.range(first), self.range(second));
        let (left, between, right) = (&self.text[a.clone()], &self.text[a.end..b.start], &self.text[b.clone()]);
        let instead = format!("{right}{between}{left}");
        self.add(operator, what, what, a.start..b.end, &instead);
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_block(&mut self, block: &'a Block) {
        for (at, stmt) in block.stmts.iter().enumerate() {
            let Some(name) = synchronises(stmt) else { continue };
            let span = stmt.span();
            self.add(Operator::Drop, span, span, self.range(span), "");
            let gives = GIVE.contains(&name.as_str());
            if let Some(before) = at.checked_sub(1).map(|at| &block.stmts[at])
                && matters(before)
                && !commute(&name, before)
                && (!WAIT.contains(&name.as_str()) || synchronises(before).is_some())
            {
                self.swap(Operator::Earlier, span, before.span(), span);
            }
            if let Some(after) = block.stmts.get(at + 1)
                && !gives
                && matters(after)
                && !commute(&name, after)
            {
                self.swap(Operator::Later, span, span, after.span());
            }
        }
        visit::visit_block(self, block);
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if attribute.path().is_ident("elect_one") {
            let span = attribute.span();
            self.add(Operator::EveryLane, span, span, self.range(span), "");
        }
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        // `wait::<N>()`: how many groups may be pending.
        if let Expr::Path(path) = &*call.func
            && path.path.segments.last().is_some_and(|s| s.ident == "wait" || s.ident == "wait_read")
            && let Some(syn::PathArguments::AngleBracketed(generics)) = path.path.segments.last().map(|s| &s.arguments)
            && let Some(syn::GenericArgument::Const(Expr::Lit(literal))) = generics.args.first()
            && let syn::Lit::Int(pending) = &literal.lit
            && let Ok(pending) = pending.base10_parse::<u32>()
        {
            let instead = (pending + 1).to_string();
            self.add(Operator::Pending, call.span(), call.span(), self.range(literal.span()), &instead);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        // The order of an atomic.
        if ["ACQ_REL", "ACQUIRE", "RELEASE"].iter().any(|order| path.path.is_ident(order)) {
            let span = path.span();
            self.add(Operator::Narrow, span, span, self.range(span), "RELAXED");
        }
    }
}

/// The name of the call by which a statement synchronises.
fn synchronises(stmt: &Stmt) -> Option<String> {
    let expr = match stmt {
        Stmt::Expr(expr, _) => expr,
        Stmt::Local(local) => &local.init.as_ref()?.expr,
        _ => return None,
    };
    match expr {
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            METHODS.contains(&name.as_str()).then_some(name)
        }
        Expr::Call(call) => {
            let name = called(&call.func)?;
            FUNCTIONS.contains(&name.as_str()).then_some(name)
        }
        _ => None,
    }
}

/// True if a statement and its neighbour both take stages, or both give stages: the order of two pipelines says nothing.
fn commute(name: &str, neighbour: &Stmt) -> bool {
    let both = |names: [&str; 2]| {
        names.contains(&name) && synchronises(neighbour).is_some_and(|n| names.contains(&n.as_str()))
    };
    both(["acquire", "wait"]) || both(["commit", "release"])
}

/// The path of a called function, without generics.
fn called(func: &Expr) -> Option<String> {
    let Expr::Path(path) = func else { return None };
    Some(path.path.segments.iter().map(|s| s.ident.to_string()).collect::<Vec<_>>().join("::"))
}

/// True for a statement that touches memory or synchronises: to change places with it is a fault.
fn matters(stmt: &Stmt) -> bool {
    struct Touch(bool);
    impl<'a> Visit<'a> for Touch {
        fn visit_expr_index(&mut self, index: &'a syn::ExprIndex) {
            // `tile[[i, j]]` is an access to shared memory, `values[i]` is not.
            self.0 |= matches!(&*index.index, Expr::Array(_));
            visit::visit_expr_index(self, index);
        }
        fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
            self.0 |= !PURE.contains(&call.method.to_string().as_str());
            visit::visit_expr_method_call(self, call);
        }
        fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
            let name = call.func.to_token_stream().to_string().replace(' ', "");
            let last = called(&call.func).and_then(|path| path.rsplit("::").next().map(str::to_string));
            self.0 |= !last.is_some_and(|last| PURE.contains(&last.as_str())) && !name.starts_with("Pipeline");
            visit::visit_expr_call(self, call);
        }
    }
    let mut touch = Touch(false);
    touch.visit_stmt(stmt);
    touch.0
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
