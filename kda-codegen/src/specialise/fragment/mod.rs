//! Fragments: small matrices in the registers of a warp.
//!
//! A fragment of R rows and C columns is a grid of blocks of 8 x 8. Of each block lane l holds the elements of row l / 4 and
//! columns 2 (l mod 4) and the next one. This is the layout of accumulators of `mma.sync`, of its 16-bit operands, and of
//! what `ldmatrix` loads; so a result becomes an operand by rounding, without moving between lanes. For operands of 32 bits
//! (tf32) the instruction numbers K otherwise; both operands are numbered alike here, and a sum does not depend on the order
//! in which K is numbered. Accumulators of warpgroup products have it too: a warp holds 16 rows of each 64.
//!
//! | question | file |
//! | --- | --- |
//! | what a fragment is; construction, rounding, parts | here |
//! | memory: `ldmatrix`, `stmatrix`, pairs | `memory`, `place` |
//! | products | `product` |
//! | element by element, with coordinates | `visit` |
//! | arithmetic, rows and columns spread out | `arithmetic` |

mod arithmetic;
mod memory;
mod place;
mod product;
mod visit;

use super::Specialiser;
use super::site::Site;
use super::value::{Scalar, Value};
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::table::*;
use syn::{Expr, GenericArgument};

/// Type of a fragment's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two registers a block.
    F32,
    /// f32 rounded to tf32: two registers a block.
    Tf32,
    /// Two elements in one register a block.
    Half(Elem),
}

impl Kind {
    /// Name in the source.
    pub fn name(self) -> String {
        match self {
            Kind::F32 => "f32".into(),
            Kind::Tf32 => "tf32".into(),
            Kind::Half(elem) => elem.to_string(),
        }
    }
}

/// A matrix in the registers of a warp.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// Type of the elements.
    pub kind: Kind,
    /// Rows, a multiple of 8.
    pub rows: u32,
    /// Columns, a multiple of 8.
    pub columns: u32,
    /// Blocks, row by row: an array of two `f32`, or a `u32` that holds both elements.
    pub blocks: Vec<Value>,
}

/// Most rows and columns: past that the registers of a thread are spent.
const MOST: u32 = 256;

impl Fragment {
    /// Blocks of a row of blocks.
    pub fn width(&self) -> u32 {
        self.columns / 8
    }

    /// The block at these coordinates, in blocks.
    pub fn block(&self, i: u32, j: u32) -> &Value {
        &self.blocks[(i * self.width() + j) as usize]
    }

    /// The same matrix, other contents.
    pub fn with(&self, kind: Kind, blocks: Vec<Value>) -> Fragment {
        Fragment { kind, blocks, ..*self }
    }

    /// True if element by element two fragments go together.
    pub fn alike(&self, other: &Fragment) -> bool {
        (self.kind, self.rows, self.columns) == (other.kind, other.rows, other.columns)
    }
}

impl Specialiser<'_> {
    /// `Frag::<T, ROWS, COLUMNS>::name(arguments)`
    pub(super) fn fragment(
        &mut self,
        name: &str,
        generics: &[GenericArgument],
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Value> {
        let form = || {
            Diagnostic::new(906, site, "a fragment is written `Frag::<bf16, ROWS, COLUMNS>::load(view)`")
                .help("types: f32, tf32, bf16, f16; rows and columns: multiples of 8 up to 256")
        };
        let [kind, rows, columns] = generics else { return Err(form()) };
        let kind = self.fragment_kind(kind).ok_or_else(form)?;
        let mut size = |argument: &GenericArgument| -> Result<u32> {
            let size = self.generic_value(argument)?.as_int().and_then(|v| u32::try_from(v).ok());
            size.filter(|n| n.is_multiple_of(8) && (8..=MOST).contains(n)).ok_or_else(form)
        };
        let (rows, columns) = (size(rows)?, size(columns)?);
        self.spend((rows * columns / 64) as usize, site)?;
        self.place(site);
        match name {
            "zero" => {
                let [] = self.arguments("zero", args, site)?;
                let zero = match kind {
                    Kind::Half(_) => Value::u32(0),
                    _ => Value::Array(vec![Value::Const(Const::Float(0.0, Some(Elem::F32))); 2]),
                };
                let blocks = vec![zero; (rows * columns / 64) as usize];
                Ok(Value::Frag(Box::new(Fragment { kind, rows, columns, blocks })))
            }
            "from_fn" => self.fragment_from_fn(kind, rows, columns, args, site),
            "from_pairs" => {
                let [pairs] = self.arguments(name, args, site)?;
                self.place(site);
                self.fragment_from_pairs(kind, rows, columns, pairs, site)
            }
            "load" | "load_t" => {
                let (view, origin) = self.placed_view(name, args, site)?;
                self.place(site);
                self.fragment_load(kind, rows, columns, view, origin, None, name == "load_t", site)
            }
            "load_if" | "load_t_if" => {
                let Some((condition, args)) = args.split_first() else {
                    let message = format!("`Frag::{name}` takes a condition, and what `load` takes");
                    return Err(Diagnostic::new(157, site, message));
                };
                let condition = self.expr(condition)?;
                if condition.uniform() > Uniform::Warp {
                    let message = "a condition that may differ between the lanes of a warp";
                    return Err(Diagnostic::new(350, site, message).help("a warp loads a fragment together"));
                }
                let holds = self.scalar(&condition, Some(Elem::Bool), site)?.reg;
                let (view, origin) = self.placed_view(name, args, site)?;
                self.place(site);
                self.fragment_load(kind, rows, columns, view, origin, Some(holds), name == "load_t_if", site)
            }
            _ => Err(Diagnostic::new(167, site, format!("there is no function `Frag::{name}`"))
                .help("there are zero, from_fn, from_pairs, load, load_t, load_if and load_t_if")),
        }
    }

    fn fragment_kind(&mut self, argument: &GenericArgument) -> Option<Kind> {
        let GenericArgument::Type(syn::Type::Path(path)) = argument else { return None };
        if path.path.is_ident("tf32") {
            return Some(Kind::Tf32);
        }
        match self.generic_value(argument).ok()? {
            Const::Elem(Elem::F32) => Some(Kind::F32),
            Const::Elem(elem @ (Elem::BF16 | Elem::F16)) => Some(Kind::Half(elem)),
            _ => None,
        }
    }

    /// `fragment.name::<generics>(arguments)`; `None` if there is no such method.
    pub(super) fn fragment_method(
        &mut self,
        frag: &Fragment,
        call: &syn::ExprMethodCall,
        args: &[&Expr],
        site: Site<'_>,
    ) -> Result<Option<Value>> {
        let name = call.method.to_string();
        self.place(site);
        Ok(Some(match name.as_str() {
            "mma" => {
                let [a, b] = self.arguments(&name, args, site)?;
                self.place(site);
                let sum = self.fragment_product(frag, &a, &b, site)?;
                self.assign_value(&call.receiver, Value::Frag(Box::new(sum)))?;
                Value::Unit
            }
            "round" | "split" => {
                let [] = self.arguments(&name, args, site)?;
                let argument = call.turbofish.as_ref().and_then(|g| g.args.first());
                let Some(kind) = argument.and_then(|a| self.fragment_kind(a)).filter(|k| *k != Kind::F32) else {
                    let message = format!("`{name}` needs a type: `{name}::<bf16>()`");
                    return Err(Diagnostic::new(157, site, message).help("bf16, f16 or tf32"));
                };
                if frag.kind != Kind::F32 {
                    let message = format!("`{name}` of a fragment of {}", frag.kind.name());
                    return Err(Diagnostic::new(906, site, message).help("only f32 is rounded"));
                }
                // Two terms make up for what the first leaves: it need not be the nearest, and tf32 takes an instruction then
                // where rounding takes four.
                let part = match (name.as_str(), kind) {
                    ("split", Kind::Tf32) => Self::fragment_cut,
                    _ => Self::fragment_rounded,
                };
                let high = part(self, frag, kind, site)?;
                if name == "round" {
                    Value::Frag(Box::new(high))
                } else {
                    let back = Value::Frag(Box::new(self.widened(&high, site)?));
                    let whole = Value::Frag(Box::new(frag.clone()));
                    let rest = self.fragment_binary(&syn::BinOp::Sub(Default::default()), whole, back, site)?;
                    let low = part(self, &rest, kind, site)?;
                    Value::Tuple(vec![Value::Frag(Box::new(high)), Value::Frag(Box::new(low))])
                }
            }
            "widen" => {
                let [] = self.arguments(&name, args, site)?;
                Value::Frag(Box::new(self.widened(frag, site)?))
            }
            "t" => {
                let [] = self.arguments(&name, args, site)?;
                self.transposed(frag, site)?
            }
            "row" | "column" => {
                let [index] = self.arguments(&name, args, site)?;
                self.fragment_line(frag, name == "row", &index, site)?
            }
            "rows" | "columns" => {
                let [range] = self.arguments(&name, args, site)?;
                self.fragment_part(frag, name == "rows", &range, site)?
            }
            "store" | "store_t" => {
                let (view, origin) = self.placed_view(&name, args, site)?;
                self.place(site);
                self.fragment_store(frag, view, origin, name == "store_t", site)?;
                Value::Unit
            }
            "pairs" => {
                let [] = self.arguments(&name, args, site)?;
                let mut pairs = Vec::with_capacity(frag.blocks.len());
                for block in &frag.blocks {
                    pairs.push(match frag.kind {
                        Kind::Half(elem) => Value::Array(self.halves(block, elem, site)?),
                        _ => block.clone(),
                    });
                }
                Value::Array(pairs)
            }
            "map" | "for_each" => self.fragment_visit(frag, name == "map", args, site)?,
            _ => return Ok(None),
        }))
    }

    /// Rounded to nearest: even for 16 bits, away from zero at ties for tf32, as the instructions do.
    fn fragment_rounded(&mut self, frag: &Fragment, kind: Kind, site: Site<'_>) -> Result<Fragment> {
        let mut blocks = Vec::with_capacity(frag.blocks.len());
        for block in &frag.blocks {
            let Value::Array(pair) = block else { continue };
            let mut sources = Vec::with_capacity(2);
            for x in pair {
                sources.push(self.scalar(x, Some(Elem::F32), site)?);
            }
            let (ftz, sat, relu, from) = (Default::default(), Default::default(), Default::default(), Type::F32);
            blocks.push(match kind {
                Kind::Half(elem) => {
                    let to = if elem == Elem::BF16 { Type::Bf16x2 } else { Type::F16x2 };
                    let (a, b, round) = (sources[1].src(), Some(sources[0].src()), Some(Round::Rn));
                    Value::Scalar(self.builder.scalar(Elem::U32, Uniform::Thread, |dst| {
                        Cvt { round, relu, ftz, sat, to, from, dst, a: a.clone(), b: b.clone() }.into()
                    }))
                }
                _ => {
                    let round = |this: &mut Self, x: Scalar| {
                        let (to, round, b) = (Type::Tf32, Some(Round::Rna), None);
                        Value::Scalar(this.builder.scalar(Elem::F32, Uniform::Thread, |dst| {
                            Cvt { round, relu, ftz, sat, to, from, dst, a: x.src(), b: b.clone() }.into()
                        }))
                    };
                    Value::Array(vec![round(self, sources[0]), round(self, sources[1])])
                }
            });
        }
        Ok(frag.with(kind, blocks))
    }

    /// tf32 without the bits that it has no place for.
    fn fragment_cut(&mut self, frag: &Fragment, kind: Kind, site: Site<'_>) -> Result<Fragment> {
        let mut blocks = Vec::with_capacity(frag.blocks.len());
        for block in &frag.blocks {
            let Value::Array(pair) = block else { continue };
            let mut cut = Vec::with_capacity(2);
            for x in pair {
                let a = self.scalar(x, Some(Elem::F32), site)?.src();
                cut.push(Value::Scalar(self.builder.scalar(Elem::F32, Uniform::Thread, |dst| {
                    And { ty: Type::B32, dst, a: a.clone(), b: kda_ptx::operand::Src::Imm(0xffff_e000) }.into()
                })));
            }
            blocks.push(Value::Array(cut));
        }
        Ok(frag.with(kind, blocks))
    }

    /// The same numbers as f32.
    pub(super) fn widened(&mut self, frag: &Fragment, site: Site<'_>) -> Result<Fragment> {
        let Kind::Half(elem) = frag.kind else { return Ok(frag.with(Kind::F32, frag.blocks.clone())) };
        let mut blocks = Vec::with_capacity(frag.blocks.len());
        for block in &frag.blocks {
            let halves = self.halves(block, elem, site)?;
            let wide: Result<Vec<Value>> = halves.into_iter().map(|x| self.cast(x, Elem::F32, site)).collect();
            blocks.push(Value::Array(wide?));
        }
        Ok(frag.with(Kind::F32, blocks))
    }

    /// The two elements of a register.
    fn halves(&mut self, block: &Value, elem: Elem, site: Site<'_>) -> Result<Vec<Value>> {
        let packed = self.scalar(block, Some(Elem::U32), site)?;
        Ok(self.halves_of(packed, elem).to_vec())
    }

    /// Two elements in a register.
    fn paired(&mut self, pair: &[Value], elem: Elem, site: Site<'_>) -> Result<Value> {
        let (low, high) = (self.operand(&pair[0], elem, site)?, self.operand(&pair[1], elem, site)?);
        Ok(Value::Scalar(Scalar::new(Elem::U32, self.pack_halves(low, high), Uniform::Thread)))
    }

    /// `fragment.t()`: rows become columns.
    fn transposed(&mut self, frag: &Fragment, site: Site<'_>) -> Result<Value> {
        if !matches!(frag.kind, Kind::Half(_)) {
            let message = format!("`t()` of a fragment of {}", frag.kind.name());
            return Err(Diagnostic::new(906, site, message).help("round it to bf16 or f16 first, or store and load it"));
        }
        self.lanes_together("`t()`", site)?;
        let mut blocks = Vec::with_capacity(frag.blocks.len());
        for j in 0..frag.width() {
            for i in 0..frag.rows / 8 {
                let src = self.scalar(frag.block(i, j), Some(Elem::U32), site)?;
                let dst = self.builder.fresh(Class::B32);
                self.builder.inst(MovMatrix { dst, src: src.src() });
                blocks.push(Value::Scalar(Scalar::new(Elem::U32, dst, Uniform::Thread)));
            }
        }
        Ok(Value::Frag(Box::new(Fragment { rows: frag.columns, columns: frag.rows, blocks, ..*frag })))
    }

    /// `fragment.rows(a..b)`, `fragment.columns(a..b)`
    fn fragment_part(&mut self, frag: &Fragment, rows: bool, range: &Value, site: Site<'_>) -> Result<Value> {
        let size = if rows { frag.rows } else { frag.columns };
        let bounds = match range {
            Value::Range(range) => range.0.as_int().zip(range.1.as_int()),
            _ => None,
        };
        let fits = |n: i128| (0..=i128::from(size)).contains(&n) && n % 8 == 0;
        let Some((first, end)) = bounds.filter(|(a, b)| a < b && fits(*a) && fits(*b)) else {
            let message = format!("a part of {size} {}", if rows { "rows" } else { "columns" });
            return Err(Diagnostic::new(154, site, message).help("both ends are constants and multiples of 8: `0..8`"));
        };
        let (first, end) = (first as u32 / 8, end as u32 / 8);
        let (is, js) = if rows { (first..end, 0..frag.width()) } else { (0..frag.rows / 8, first..end) };
        let blocks =
            is.clone().flat_map(|i| js.clone().map(move |j| (i, j))).map(|(i, j)| frag.block(i, j).clone()).collect();
        let (rows, columns) = (8 * is.len() as u32, 8 * js.len() as u32);
        Ok(Value::Frag(Box::new(Fragment { kind: frag.kind, rows, columns, blocks })))
    }
}
