//! Assignments that write the registers of an accumulator as they go, with no other accumulator between.

use super::visit::Each;
use super::{Accumulator, Specialiser};
use crate::diag::Result;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use syn::Expr;
use syn::visit::Visit;

impl Specialiser<'_> {
    /// `place = place.map(…)`, `place = place.map_pairs(…)`, `place = Acc::load(tile)`, `load_t` and `of`, for an accumulator or columns of one. `None` if the
    /// assignment is another, or if a closure looks at the place.
    pub(in crate::specialise) fn written_in_place(&mut self, left: &Expr, right: &Expr) -> Result<Option<Value>> {
        let root = match left {
            Expr::MethodCall(part) if part.method == "columns" => part.receiver.as_ref(),
            other => other,
        };
        let Expr::Path(root) = root else { return Ok(None) };
        let Some(name) = root.path.get_ident() else { return Ok(None) };
        let scopes = &self.frame().scopes;
        let held = scopes.find(&name.to_string()).map(|id| &scopes.get(id).value);
        if !matches!(held, Some(Value::Acc(_))) {
            return Ok(None);
        }
        let site = Site::Expr(right);
        let acc = match right {
            Expr::MethodCall(call) if call.method == "map" || call.method == "map_pairs" => {
                let text = crate::syntax::text::expr;
                let Some(Expr::Closure(closure)) = call.args.first() else { return Ok(None) };
                let mut looks = Mentions { name, found: false };
                looks.visit_expr(&closure.body);
                if text(&call.receiver) != text(left) || looks.found {
                    return Ok(None);
                }
                let Some(acc) = self.place_of(left, site)? else { return Ok(None) };
                let args: Vec<&Expr> = call.args.iter().collect();
                let each = Each::of(&call.method.to_string());
                self.mapped_into(acc.clone(), Some(&acc), each, &args, site)?
            }
            Expr::Call(call) => {
                let transposed = match crate::syntax::text::expr(&call.func).replace(' ', "").as_str() {
                    "Acc::load" => false,
                    "Acc::load_t" => true,
                    "Acc::of" => {
                        let args: Vec<&Expr> = call.args.iter().collect();
                        let [Value::Frag(fragment)] = self.arguments("Acc::of", &args, site)? else { return Ok(None) };
                        let Some(acc) = self.place_of(left, site)? else { return Ok(None) };
                        return Ok(Some(Value::Acc(Box::new(self.of_fragment(acc, &fragment, site)?))));
                    }
                    _ => return Ok(None),
                };
                let Some(Expr::Path(_) | Expr::Field(_)) = call.args.first() else { return Ok(None) };
                let args: Vec<&Expr> = call.args.iter().collect();
                let [tile] = self.arguments("Acc::load", &args, site)?;
                let Value::Tile(tile) = tile else { return Ok(None) };
                let (m, n) = tile.extent();
                let shape = if transposed { (n, m) } else { (m, n) };
                let Some(acc) = self.place_of(left, site)? else { return Ok(None) };
                if shape != (acc.m.into(), acc.n.into()) {
                    return Ok(None);
                }
                self.load_into(acc, &tile, transposed, true, site)?
            }
            _ => return Ok(None),
        };
        Ok(Some(Value::Acc(Box::new(acc))))
    }

    /// The accumulator that an assignment writes: nothing writes it any more, and all of its registers are defined.
    fn place_of(&mut self, left: &Expr, site: Site<'_>) -> Result<Option<Accumulator>> {
        let Value::Acc(mut acc) = self.expr(left)? else { return Ok(None) };
        self.landed(&acc, site)?;
        // Branches on the way settle what is in scope: it must know that these registers have been written.
        self.settle(&mut acc);
        self.assign_value(left, Value::Acc(acc.clone()))?;
        self.touch(&acc);
        Ok(Some(*acc))
    }
}

/// Looks for a variable.
struct Mentions<'n> {
    name: &'n syn::Ident,
    found: bool,
}

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_ident(&mut self, ident: &'ast syn::Ident) {
        self.found |= ident == self.name;
    }
}
