//! Names: variables, constants, parameters, roles, thread coordinates, element types.

use super::Specialiser;
use super::site::Site;
use super::value::Value;
use crate::consteval::{self, Const, Names};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use crate::syntax::ParamType;
use crate::variants::{constants, library_constants};
use kda_core::{Arch, Elem};
use kda_ptx::operand::Special;
use syn::Expr;

impl Specialiser<'_> {
    pub(super) fn path(&mut self, path: &syn::ExprPath, site: Site<'_>) -> Result<Value> {
        let Some(name) = path.path.get_ident() else { return self.long_path(&path.path, site) };
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
        if let Some(value) = self.cluster_value(&text) {
            return Ok(value);
        }
        match text.as_str() {
            "tid" => Ok(Value::Scalar(self.special(Special::TidX, Uniform::Thread))),
            "lane" => Ok(Value::Scalar(self.special(Special::LaneId, Uniform::Thread))),
            "warp" => Ok(Value::Scalar(self.warp())),
            "role" => self.role_value(site),
            "ctaid" | "nctaid" => Err(Diagnostic::new(152, site, format!("`{text}` has axes: `{text}.x`"))),
            "NO_ALLOCATE" => Ok(Value::Hint(super::value::Hint { no_allocate: true, ..Default::default() })),
            _ => match (Elem::from_name(&text), Arch::from_name(&text)) {
                (Some(elem), _) => Ok(Value::Const(Const::Elem(elem))),
                (_, Some(arch)) => Ok(Value::int(consteval::arch_number(arch))),
                _ => Err(Diagnostic::new(152, site, format!("`{text}` is not known here"))),
            },
        }
    }

    /// `bf16::ZERO`, `f32::INFINITY`, `u32::MAX`.
    fn long_path(&mut self, path: &syn::Path, site: Site<'_>) -> Result<Value> {
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
        Err(Diagnostic::new(152, site, format!("`{}` is not known here", names.join("::"))))
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
            .ok_or_else(|| Diagnostic::at(156, ty, "an element type is needed: f32, bf16, u32, …"))
    }

    /// A `const` item of the library, or of the kernel module; `ARCH`.
    fn const_item(&mut self, library: Option<String>, name: &str) -> Result<Option<Value>> {
        if !self.constants.contains_key(&library) {
            let scope = match &library {
                None => constants(self.family, self.variant.arch)?,
                Some(library) => match self.family.libraries.iter().find(|l| l.name == library.as_str()) {
                    Some(found) => library_constants(self.family, &found.name, self.variant.arch)?,
                    None => return Ok(None),
                },
            };
            self.constants.insert(library.clone(), scope);
        }
        let value = self.constants.get(&library).and_then(|scope| scope.value(name));
        Ok(value.map(Value::from_const))
    }

    /// `base.field`: an axis of a coordinate, an element of a tuple.
    pub(super) fn field(&mut self, expr: &syn::ExprField, site: Site<'_>) -> Result<Value> {
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
            (Value::Slot(slot), syn::Member::Named(name)) => self.slot_buffer(slot, &name.to_string(), site),
            (Value::Tuple(items), syn::Member::Unnamed(index)) => match items.get(index.index as usize) {
                Some(item) => Ok(item.clone()),
                None => {
                    Err(Diagnostic::new(154, site, format!("element {} of a tuple of {}", index.index, items.len())))
                }
            },
            _ => Err(Diagnostic::new(158, site, format!("{} has no such field", base.describe()))),
        }
    }
}
