//! The functions of the language: which there are, and their arguments.

use super::Specialiser;
use super::site::Site;
use super::value::{Hint, Value};
use crate::consteval::{self, Const};
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use proc_macro2::Span;
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
    "shfl_up",
    "shfl_down",
    "any",
    "all",
    "ballot",
    "cta_sync",
    "cluster_sync",
    "cluster_arrive",
    "cluster_wait",
    "warp_sync",
    "role_sync",
    "smem",
    "tmem",
    "size_of",
    "pdl::wait",
    "pdl::launch_dependents",
    "bulk::store",
    "bulk::commit",
    "bulk::wait",
    "bulk::wait_read",
    "Mbarrier::new",
    "tma::store",
    "tma::prefetch",
    "tma::reduce_add",
    "wgmma::commit",
    "wgmma::wait",
    "l2::evict_first",
    "l2::evict_first_if",
    "l2::evict_last",
    "l2::evict_normal",
    "l2::evict_unchanged",
    "l2::prefetch",
    "l2::prefetch_64",
    "l2::prefetch_128",
    "l2::prefetch_256",
];

impl Specialiser<'_> {
    pub(super) fn builtin(
        &mut self,
        names: &[String],
        generics: &[GenericArgument],
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let name = names.join("::");
        match name.as_str() {
            "from_fn" => return self.array_from_fn(generics, args, site),
            "smem" => return self.smem(generics, args, site),
            "tmem" => return self.tmem(generics, args, site),
            "size_of" => return self.size_of(generics, args, site),
            _ => {}
        }
        if let [ty, function] = names
            && ty == "Frag"
        {
            return self.fragment(function, generics, args, site);
        }
        if let [ty, function] = names
            && ty == "Acc"
            && let Some(value) = self.accumulator_function(function, generics, args, site)?
        {
            return Ok(value);
        }
        if name == "Mbarrier::new" {
            return self.mbarrier_new(args, site);
        }
        if let [ty, function] = names
            && let Some(elem) = self.elem_name(ty)
            && matches!(function.as_str(), "rn" | "from_bits")
        {
            let [value] = self.arguments(&name, args, site)?;
            self.place(site);
            return match function.as_str() {
                "rn" => self.round(value, elem, site),
                _ => self.reinterpret(value, elem, site),
            };
        }
        match name.as_str() {
            "fma" => {
                let [a, b, c] = self.arguments(&name, args, site)?;
                self.place(site);
                self.fma(a, b, c, site)
            }
            "min" | "max" => {
                let [a, b] = self.arguments(&name, args, site)?;
                self.place(site);
                self.extremum(name == "min", a, b, site)
            }
            "select" => {
                let [condition, a, b] = self.arguments(&name, args, site)?;
                self.place(site);
                self.select(condition, a, b, site)
            }
            "abs" => {
                let [a] = self.arguments(&name, args, site)?;
                self.place(site);
                self.abs(a, site)
            }
            "log2" => {
                let [a] = self.arguments(&name, args, site)?;
                match a.as_const() {
                    Some(c) => {
                        let value = consteval::call("log2", &[c], Span::call_site());
                        value.map(Value::from_const).map_err(|error| error.placed(site))
                    }
                    None => {
                        Err(Diagnostic::new(155, site, "`log2` takes a constant").help("at run time: `lg2_approx`"))
                    }
                }
            }
            "ex2_approx" | "rcp_approx" | "rsqrt_approx" | "sqrt_approx" | "lg2_approx" | "tanh_approx" => {
                let [a] = self.arguments(&name, args, site)?;
                self.place(site);
                self.approximate(&name, a, site)
            }
            "shfl" | "shfl_xor" | "shfl_up" | "shfl_down" => {
                let [value, lane] = self.arguments(&name, args, site)?;
                self.place(site);
                self.shuffle(&name, value, lane, site)
            }
            "any" | "all" | "ballot" => {
                let [condition] = self.arguments(&name, args, site)?;
                self.place(site);
                self.vote(&name, condition, site)
            }
            "l2::evict_first" | "l2::evict_last" | "l2::evict_normal" | "l2::evict_unchanged" => {
                let [] = self.arguments(&name, args, site)?;
                let reg = self.policy(super::math::policy(&name));
                Ok(Value::Hint(Hint { policy: Some(reg), ..Hint::default() }))
            }
            "l2::prefetch_64" | "l2::prefetch_128" | "l2::prefetch_256" => {
                let [] = self.arguments(&name, args, site)?;
                Ok(Value::Hint(Hint { prefetch: super::math::prefetch(&name), ..Hint::default() }))
            }
            "l2::evict_first_if" => {
                let [condition] = self.arguments(&name, args, site)?;
                self.evict_first_if(condition, site)
            }
            _ => match self.synchronisation(&name, generics, args, site)? {
                Some(value) => Ok(value),
                None => {
                    let near = FUNCTIONS.iter().find(|f| f.starts_with(&name) || name.starts_with(**f));
                    let error = Diagnostic::new(167, site, format!("there is no function `{name}`"));
                    Err(match near {
                        Some(near) => error.help(format!("perhaps `{near}`")),
                        None => error.help("device functions carry `#[device]`, or come from a library in `uses`"),
                    })
                }
            },
        }
    }

    /// Exactly `N` arguments, evaluated.
    pub(super) fn arguments<const N: usize>(
        &mut self,
        name: &str,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<[Value; N]> {
        if args.len() != N {
            return Err(Diagnostic::new(157, site, format!("`{name}` takes {N} arguments; {} are given", args.len())));
        }
        let mut values = Vec::with_capacity(N);
        for arg in args {
            values.push(self.expr(arg)?);
        }
        values.try_into().map_err(|_| Diagnostic::new(157, site, format!("`{name}` takes {N} arguments")))
    }

    /// `from_fn::<N>(|i| …)`: an array, element by element.
    fn array_from_fn(&mut self, generics: &[GenericArgument], args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let [count] = generics else {
            return Err(Diagnostic::new(157, site, "`from_fn` needs its length: `from_fn::<N>(|i| …)`"));
        };
        let count = match self.generic_value(count)? {
            Const::Int(n, _) if (0..=4096).contains(&n) => n,
            _ => return Err(Diagnostic::new(154, site, "an array has 0 to 4096 elements")),
        };
        let [Expr::Closure(closure)] = args else {
            return Err(Diagnostic::new(168, site, "`from_fn` takes a closure: `from_fn::<N>(|i| …)`"));
        };
        let mut items = Vec::with_capacity(count as usize);
        for i in 0..count {
            let item = self.apply(closure, Value::u32(i as u32))?;
            self.spend(item.leaves(), site)?;
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    /// `size_of::<T>()`
    fn size_of(&mut self, generics: &[GenericArgument], args: &[&Expr], site: Site<'_>) -> Result<Value> {
        match (generics, args) {
            ([GenericArgument::Type(ty)], []) => Ok(Value::u32(self.elem_type(ty)?.bytes())),
            _ => Err(Diagnostic::new(157, site, "the size of a type is written `size_of::<bf16>()`")),
        }
    }

    /// `Swizzle<128>`, or `_` for rows in order, and the number of stages, behind the shape of a buffer.
    fn tile_form(&mut self, rest: &[GenericArgument], site: Site<'_>) -> Result<(Option<kda_core::Swizzle>, u32)> {
        let wrong = || {
            Diagnostic::new(802, site, "a layout is written `Swizzle<128>` or `_`, and the number of stages behind it")
        };
        let swizzle = match rest.first() {
            Some(GenericArgument::Type(syn::Type::Infer(_))) => None,
            Some(GenericArgument::Type(syn::Type::Path(path))) => {
                let segment = path.path.segments.last().filter(|s| s.ident == "Swizzle").ok_or_else(wrong)?;
                let syn::PathArguments::AngleBracketed(args) = &segment.arguments else { return Err(wrong()) };
                let span_bytes = match args.args.first() {
                    Some(argument) => self.generic_value(argument)?.as_int().unwrap_or(-1),
                    None => -1,
                };
                Some(u32::try_from(span_bytes).ok().and_then(kda_core::Swizzle::of_span).ok_or_else(wrong)?)
            }
            _ => return Err(wrong()),
        };
        let stages = match rest.get(1) {
            None => 1,
            Some(argument) => match self.generic_value(argument)?.as_int() {
                Some(n) if (1..=64).contains(&n) => n as u32,
                _ => return Err(wrong()),
            },
        };
        Ok((swizzle, stages))
    }

    /// A closure of one argument, evaluated here.
    pub(super) fn apply(&mut self, closure: &syn::ExprClosure, value: Value) -> Result<Value> {
        let site = Site::Tokens(closure);
        let Some(pat) = closure.inputs.first().filter(|_| closure.inputs.len() == 1) else {
            return Err(Diagnostic::new(168, site, "the closure takes one argument"));
        };
        self.frame().scopes.push();
        self.bind(pat, value)?;
        let value = self.expr(&closure.body)?;
        self.frame().scopes.pop();
        Ok(value)
    }

    /// `smem::<elem, (shape…)>()`
    fn smem(&mut self, generics: &[GenericArgument], args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let form = || Diagnostic::new(157, site, "a shared buffer is written `smem::<f32, Shape<4, 128>>()`");
        let ([elem, shape, rest @ ..], []) = (generics, args) else { return Err(form()) };
        let elem = match elem {
            GenericArgument::Type(ty) => match self.elem_type(ty)? {
                Elem::Bool => {
                    return Err(Diagnostic::at(402, ty, "a shared buffer holds numbers, not bool").help("write `u8`"));
                }
                elem => elem,
            },
            _ => return Err(form()),
        };
        let GenericArgument::Type(syn::Type::Path(path)) = shape else { return Err(form()) };
        let Some(segment) = path.path.segments.last().filter(|s| s.ident == "Shape") else { return Err(form()) };
        let syn::PathArguments::AngleBracketed(sizes) = &segment.arguments else { return Err(form()) };
        let mut shape = Vec::new();
        for size in &sizes.args {
            match self.generic_value(size)? {
                Const::Int(n, _) if (0..=u32::MAX.into()).contains(&n) => shape.push(n as u32),
                _ => return Err(Diagnostic::at(157, size, "a size is a non-negative integer")),
            }
        }
        if self.control() > Uniform::Cta || self.frames.len() > 1 {
            return Err(Diagnostic::new(
                151,
                site,
                "a shared buffer is declared in the kernel, outside runtime branches",
            ));
        }
        let name = self.naming.take().unwrap_or_else(|| "shared".into());
        if rest.is_empty() {
            return self.shared_buffer(name, elem, shape, site);
        }
        let (swizzle, stages) = self.tile_form(rest, site)?;
        self.staging = Some(stages);
        match swizzle {
            Some(swizzle) => self.tile_buffer(name, elem, &shape, swizzle, stages, site),
            None => {
                if stages > 1 {
                    shape.insert(0, stages);
                }
                self.shared_buffer(name, elem, shape, site)
            }
        }
    }
}
