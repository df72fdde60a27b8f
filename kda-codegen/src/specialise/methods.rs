//! The methods of views, ranges, arrays, barriers and numbers.

use super::Specialiser;
use super::site::Site;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::modifier::{AtomicOp, Order};
use syn::{Expr, GenericArgument};

impl Specialiser<'_> {
    /// `receiver.name(arguments)`
    pub(super) fn method(&mut self, call: &syn::ExprMethodCall, site: Site<'_>) -> Result<Value> {
        let receiver = self.expr(&call.receiver)?;
        let name = call.method.to_string();
        let args: Vec<&Expr> = call.args.iter().collect();
        let lanes = match &call.turbofish {
            Some(generics) if name.starts_with("load") || name.starts_with("copy_async_v") => {
                match generics.args.first() {
                    Some(argument) => match self.generic_value(argument)? {
                        Const::Int(n, _) if n > 0 => n as u64,
                        _ => {
                            return Err(Diagnostic::at(451, generics, "the number of elements is a positive integer"));
                        }
                    },
                    None => 1,
                }
            }
            _ => 1,
        };
        match (receiver, name.as_str()) {
            (receiver, name) if Self::is_product_method(&receiver, name) => {
                self.product_method(receiver, call, &args, site)
            }
            (Value::Global(view), "at") => {
                let [list] = args.as_slice() else { return Err(one_list(site)) };
                let indices = self.indices(list)?;
                self.place(site);
                Ok(Value::Global(Box::new(self.global_at(*view, indices, site)?)))
            }
            (Value::Shared(view), "at") => {
                let [list] = args.as_slice() else { return Err(one_list(site)) };
                let indices = self.indices(list)?;
                self.place(site);
                Ok(Value::Shared(Box::new(self.shared_at(*view, indices, site)?)))
            }
            (Value::Tile(view), "at") => {
                let [list] = args.as_slice() else { return Err(one_list(site)) };
                let indices = self.indices(list)?;
                self.place(site);
                Ok(Value::TileElement(Box::new(self.tile_at(&view, indices, site)?)))
            }
            (Value::Shared(view), "remote") => self.remote(*view, &args, site),
            (Value::Global(view), "hint") => {
                let [hint] = self.arguments(&name, &args, site)?;
                let Value::Hint(hint) = hint else {
                    return Err(Diagnostic::new(156, site, format!("{} is no cache hint", hint.describe())));
                };
                let mut view = view;
                view.hint.no_allocate |= hint.no_allocate;
                view.hint.policy = hint.policy.or(view.hint.policy);
                view.hint.prefetch = hint.prefetch.or(view.hint.prefetch);
                Ok(Value::Global(view))
            }
            (Value::Global(view), "based_at" | "based_at_if") => {
                Ok(Value::Global(Box::new(self.based_at(*view, &name, &args, site)?)))
            }
            (Value::Global(view), "is_present") => {
                let [] = self.arguments(&name, &args, site)?;
                Ok(match self.present(&view) {
                    Some(reg) => Value::Scalar(Scalar::new(Elem::Bool, reg, Uniform::Cta)),
                    None => Value::Const(Const::Bool(true)),
                })
            }
            (receiver @ (Value::Global(_) | Value::Shared(_)), "inc_wrap") => {
                let [limit, order] = args.as_slice() else {
                    return Err(Diagnostic::new(
                        157,
                        site,
                        "`inc_wrap` takes a limit and an order: `inc_wrap(n - 1, ACQ_REL)`",
                    ));
                };
                let order = memory_order(order)?;
                let limit = self.expr(limit)?;
                self.place(site);
                self.atomic(&receiver, AtomicOp::Inc, order, &limit, site)
            }
            (receiver @ (Value::Global(_) | Value::Shared(_)), "fetch_add") => {
                let [value, order] = args.as_slice() else {
                    return Err(Diagnostic::new(
                        157,
                        site,
                        "`fetch_add` takes a value and an order: `fetch_add(1, ACQ_REL)`",
                    ));
                };
                let order = memory_order(order)?;
                let value = self.expr(value)?;
                self.place(site);
                self.atomic(&receiver, AtomicOp::Add, order, &value, site)
            }
            (Value::Global(view), "cast") => {
                let elem = match call.turbofish.as_ref().and_then(|g| g.args.first()) {
                    Some(GenericArgument::Type(ty)) => self.elem_type(ty)?,
                    _ => return Err(Diagnostic::new(157, site, "`cast` needs a type: `cast::<u32>()`")),
                };
                Ok(Value::Global(Box::new(self.global_cast(&view, elem, site)?)))
            }
            (Value::Shared(view), "cast") => {
                let elem = match call.turbofish.as_ref().and_then(|g| g.args.first()) {
                    Some(GenericArgument::Type(ty)) => self.elem_type(ty)?,
                    _ => return Err(Diagnostic::new(157, site, "`cast` needs a type: `cast::<bf16>()`")),
                };
                Ok(Value::Shared(Box::new(self.shared_cast(&view, elem, site)?)))
            }
            (
                receiver @ (Value::Global(_) | Value::Shared(_) | Value::TileElement(_)),
                "load" | "load_v" | "load_if" | "load_v_if",
            ) => {
                let condition = match name.ends_with("_if") {
                    true => Some(self.arguments::<1>(&name, &args, site)?[0].clone()),
                    false => {
                        let [] = self.arguments(&name, &args, site)?;
                        None
                    }
                };
                if lanes == 1 && name.starts_with("load_v") {
                    return Err(
                        Diagnostic::new(451, site, "the number of elements is missing").help("write `load_v::<4>()`")
                    );
                }
                self.place(site);
                match receiver {
                    Value::Global(view) => self.global_load(&view, lanes, condition.as_ref(), site),
                    Value::Shared(view) => self.shared_load(&view, lanes, condition.as_ref(), site),
                    Value::TileElement(element) => self.tile_load(&element, lanes, condition.as_ref(), site),
                    _ => Ok(Value::Unit),
                }
            }
            (
                receiver @ (Value::Global(_) | Value::Shared(_) | Value::TileElement(_)),
                "store" | "store_v" | "store_if" | "store_v_if",
            ) => {
                let (condition, value) = match name.ends_with("_if") {
                    true => {
                        let [condition, value] = self.arguments(&name, &args, site)?;
                        (Some(condition), value)
                    }
                    false => {
                        let [value] = self.arguments(&name, &args, site)?;
                        (None, value)
                    }
                };
                let fits = match &value {
                    Value::Array(items) => name.starts_with("store_v") && !items.is_empty(),
                    _ => !name.starts_with("store_v"),
                };
                if !fits {
                    let help = "`store` takes one element, `store_v` an array of 2, 4 or 8";
                    return Err(Diagnostic::new(451, site, format!("`{name}` of {}", value.describe())).help(help));
                }
                self.place(site);
                match receiver {
                    Value::Global(view) => self.global_store(&view, &value, condition.as_ref(), site)?,
                    Value::Shared(view) => self.shared_store(&view, &value, condition.as_ref(), site)?,
                    Value::TileElement(element) => self.tile_store(&element, &value, condition.as_ref(), site)?,
                    _ => {}
                }
                Ok(Value::Unit)
            }
            (Value::Ring(ring), "acquire" | "wait") => {
                let [] = self.arguments(&name, &args, site)?;
                self.take_stage(ring, name == "wait", site)
            }
            (Value::Ring(ring), "peek") => {
                let [] = self.arguments(&name, &args, site)?;
                self.peek_stage(ring, site)
            }
            (Value::Peek(peek), "acquire" | "wait") => {
                let [] = self.arguments(&name, &args, site)?;
                self.take_peeked(&peek, name == "wait", site)
            }
            (Value::Ring(ring), "restart") => {
                let [] = self.arguments(&name, &args, site)?;
                self.restart(ring, site)
            }
            (Value::Slot(slot), "commit" | "release") => {
                let [] = self.arguments(&name, &args, site)?;
                self.give_stage(&slot, &name, site)
            }
            (tile @ (Value::Tile(_) | Value::Shared(_)), "tma_load" | "tma_load_if" | "tma_load_on") => {
                self.tma_load(&tile, &name, &args, site)
            }
            (Value::Shared(view), "bulk_load") => self.bulk_load(&view, &args, site),
            (
                to @ (Value::Shared(_) | Value::TileElement(_)),
                "copy_async" | "copy_async_if" | "copy_async_v" | "copy_async_v_if",
            ) => self.copy_async(&to, &name, lanes, &args, site),
            (Value::Tile(view), "tma_multicast") => self.tma_multicast(&view, &args, site),
            (Value::Frag(frag), _) => self
                .fragment_method(&frag, call, &args, site)?
                .ok_or_else(|| Diagnostic::at(158, &call.method, format!("a fragment has no method `{name}`"))),
            (Value::Tmem(view), "load_v") => self.tmem_load(&view, lanes, &args, site),
            (Value::Tmem(view), "mma") => {
                let [a, b] = self.arguments(&name, &args, site)?;
                let (Value::Tile(a), Value::Tile(b)) = (&a, &b) else {
                    let message = format!("a product of {} and {}", a.describe(), b.describe());
                    return Err(Diagnostic::new(902, site, message).help("A and B are tiles in shared memory"));
                };
                self.tensor_mma(&view, a, b, site)?;
                Ok(Value::Unit)
            }
            (Value::Barrier(index), "sync" | "arrive") => {
                let [] = self.arguments(&name, &args, site)?;
                self.place(site);
                self.barrier(index, name == "sync", site)
            }
            (Value::Mbarrier(buffer), "arrive" | "arrive_expect" | "wait") => self.mbarrier(buffer, &name, &args, site),
            (Value::Range(range), "step_by") => {
                let [step] = self.arguments(&name, &args, site)?;
                Ok(Value::Range(Box::new((range.0, range.1, step))))
            }
            (Value::Range(range), "tickets") => {
                let ahead = call.turbofish.as_ref().and_then(|g| g.args.first());
                self.tickets(*range, ahead, &args, site)
            }
            (Value::Array(items), "map") => {
                let [Expr::Closure(closure)] = args.as_slice() else {
                    return Err(Diagnostic::new(168, site, "`map` takes a closure: `.map(|x| …)`"));
                };
                items.into_iter().map(|x| self.apply(closure, x)).collect::<Result<_>>().map(Value::Array)
            }
            (Value::Array(pair), "to_bits") => {
                let [] = self.arguments(&name, &args, site)?;
                self.place(site);
                self.bits_of_pair(&pair, site)
            }
            (value @ (Value::Scalar(_) | Value::Const(_)), "to_bits") => {
                let [] = self.arguments(&name, &args, site)?;
                let elem = match self.scalar(&value, None, site)?.elem {
                    Elem::F32 => Elem::U32,
                    Elem::F64 => Elem::U64,
                    Elem::BF16 | Elem::F16 => Elem::U16,
                    other => return Err(Diagnostic::new(156, site, format!("a {other} is already an integer"))),
                };
                self.reinterpret(value, elem, site)
            }
            (receiver, _) => {
                Err(Diagnostic::at(158, &call.method, format!("{} has no method `{name}`", receiver.describe())))
            }
        }
    }
}

impl Specialiser<'_> {
    fn atomic(&mut self, receiver: &Value, op: AtomicOp, order: Order, value: &Value, site: Site<'_>) -> Result<Value> {
        match receiver {
            Value::Global(view) => self.global_atomic(view, op, order, value, None, site),
            Value::Shared(view) => self.shared_atomic(view, op, order, value, site),
            _ => Ok(Value::Unit),
        }
    }
}

fn one_list(site: Site<'_>) -> Box<Diagnostic> {
    Diagnostic::new(157, site, "`at` takes a list of indices: `at([i, j])`")
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
        _ => Err(Diagnostic::at(156, expr, "an order is RELAXED, ACQUIRE, RELEASE or ACQ_REL")),
    }
}
