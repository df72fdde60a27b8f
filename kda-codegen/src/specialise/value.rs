//! Values: known, or in registers.

use super::fragment::Fragment;
use super::pipeline::{Peek, Slot};
use super::products::{Accumulator, Operand};
use super::range::Range;
use super::tensor_memory::TmemView;
use super::tickets::Tickets;
use super::tile::TileView;
use super::tile_access::TileElement;
use crate::consteval::Const;
use crate::kir::Uniform;
use kda_core::Elem;
use kda_ptx::{Class, Reg, Src};

/// What an expression gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Unit,
    /// Known while compiling; never an array or a tuple.
    Const(Const),
    /// In a register.
    Scalar(Scalar),
    /// A register array.
    Array(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A part of a global tensor.
    Global(Box<GlobalView>),
    /// A part of a shared buffer.
    Shared(Box<SharedView>),
    /// A part of a swizzled tile in shared memory.
    Tile(Box<TileView>),
    /// An element of a tile.
    TileElement(Box<TileElement>),
    /// An accumulator in tensor memory.
    Tmem(Box<TmemView>),
    /// A ring of stages, by index.
    Ring(usize),
    /// A stage of a ring that this role holds.
    Slot(Box<Slot>),
    /// A look at the next stage of a ring.
    Peek(Box<Peek>),
    /// An accumulator of warpgroup products.
    Acc(Box<Accumulator>),
    /// An operand of warpgroup products in registers.
    Operand(Box<Operand>),
    /// A matrix in the registers of a warp.
    Frag(Box<Fragment>),
    /// A named barrier, by index.
    Barrier(usize),
    /// An mbarrier, by its buffer.
    Mbarrier(usize),
    /// How an access uses the caches.
    Hint(Hint),
    /// A range of integers: start, end, step.
    Range(Box<(Value, Value, Value)>),
    /// Items that a counter hands out.
    Tickets(Box<Tickets>),
}

/// A value in a register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar {
    /// Type.
    pub elem: Elem,
    /// Register.
    pub reg: Reg,
    /// Among whom it is the same.
    pub uniform: Uniform,
    /// An integer is known to be a multiple of this.
    pub multiple: u64,
    /// An integer is known to be in it.
    pub range: Range,
}

/// Cache behaviour of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hint {
    /// Do not allocate in L1.
    pub no_allocate: bool,
    /// L2 policy, a 64-bit register.
    pub policy: Option<Reg>,
    /// How much a load brings into L2.
    pub prefetch: Option<kda_ptx::modifier::L2Prefetch>,
}

/// An axis of a view that is still open.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAxis {
    /// Number of elements, where known while compiling.
    pub size: Option<u64>,
    /// Stride in elements.
    pub stride: Stride,
}

/// A stride in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stride {
    /// Known.
    Const(u64),
    /// In a 64-bit register, with a known divisor.
    Reg(Reg, u64),
}

impl Stride {
    /// The stride is known to be a multiple of this.
    pub fn multiple(self) -> u64 {
        match self {
            Stride::Const(value) => value,
            Stride::Reg(_, multiple) => multiple,
        }
    }
}

/// A part of a global tensor: indices that are fixed and axes that are open.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalView {
    /// Index of the parameter.
    pub param: usize,
    /// Element type.
    pub elem: Elem,
    /// Byte offsets of the fixed axes, in 64-bit registers, as written.
    pub terms: Vec<Reg>,
    /// Byte offsets that constant indices give along runtime strides; added last, so that unrolled steps share the rest.
    pub steps: Vec<Reg>,
    /// Constant part in elements.
    pub offset: i128,
    /// Stride of the innermost fixed axis.
    pub inner: Stride,
    /// The element offset is a multiple of this (constants excluded).
    pub multiple: u64,
    /// Open axes.
    pub axes: Vec<OpenAxis>,
    /// Cache behaviour.
    pub hint: Hint,
    /// Presence of an optional tensor.
    pub present: Option<Reg>,
    /// The register holds the address from which terms and offset count, not the parameter: it may be a part of a second
    /// parameter, or of a tensor at another address, which counts as this parameter.
    pub picked: Option<(usize, Reg)>,
    /// Among whom the address is the same.
    pub uniform: Uniform,
}

/// A part of a shared buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedView {
    /// Index of the buffer.
    pub buffer: usize,
    /// Element type.
    pub elem: Elem,
    /// Runtime part of the offset in elements, a 32-bit register.
    pub runtime: Option<Scalar>,
    /// Constant part in elements.
    pub offset: u64,
    /// Open axes: size, where known while compiling, and stride in elements.
    pub axes: Vec<(Option<u64>, u64)>,
    /// Rank of the CTA whose memory it is, if that is another one, and among whom the rank is the same.
    pub remote: Option<(Src, Uniform)>,
    /// The pipeline's slot that it belongs to.
    pub slot: Option<u32>,
}

/// The register class of a type.
pub fn class(elem: Elem) -> Class {
    match elem {
        Elem::Bool => Class::Pred,
        Elem::U8 | Elem::U16 | Elem::F16 | Elem::BF16 => Class::B16,
        Elem::U32 | Elem::I32 | Elem::F32 => Class::B32,
        Elem::U64 | Elem::I64 | Elem::F64 => Class::B64,
    }
}

impl Value {
    /// A 32-bit unsigned constant.
    pub fn u32(value: u32) -> Value {
        Value::Const(Const::Int(value.into(), Some(Elem::U32)))
    }

    /// An untyped integer.
    pub fn int(value: i128) -> Value {
        Value::Const(Const::Int(value, None))
    }

    /// A constant, with arrays and tuples unfolded.
    pub fn from_const(value: Const) -> Value {
        match value {
            Const::Array(items) => Value::Array(items.into_iter().map(Value::from_const).collect()),
            Const::Tuple(items) => Value::Tuple(items.into_iter().map(Value::from_const).collect()),
            other => Value::Const(other),
        }
    }

    /// The constant, if all of the value is known.
    pub fn as_const(&self) -> Option<Const> {
        match self {
            Value::Const(value) => Some(value.clone()),
            Value::Array(items) => items.iter().map(Value::as_const).collect::<Option<_>>().map(Const::Array),
            Value::Tuple(items) => items.iter().map(Value::as_const).collect::<Option<_>>().map(Const::Tuple),
            _ => None,
        }
    }

    /// Numbers in it, known or not.
    pub fn leaves(&self) -> usize {
        match self {
            Value::Frag(frag) => frag.blocks.iter().map(Value::leaves).sum(),
            Value::Array(items) | Value::Tuple(items) => items.iter().map(Value::leaves).sum::<usize>().max(1),
            _ => 1,
        }
    }

    /// The integer, if it is a known one.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Const(Const::Int(value, _)) => Some(*value),
            _ => None,
        }
    }

    /// Among whom the value is the same.
    pub fn uniform(&self) -> Uniform {
        match self {
            Value::Scalar(scalar) => scalar.uniform,
            Value::Frag(_) => Uniform::Thread,
            Value::Array(items) | Value::Tuple(items) => items.iter().map(Value::uniform).max().unwrap_or(Uniform::Cta),
            _ => Uniform::Cta,
        }
    }

    /// What it is, in the author's words.
    pub fn describe(&self) -> String {
        match self {
            Value::Unit => "nothing".into(),
            Value::Const(Const::Int(value, None)) => format!("the integer {value}"),
            Value::Const(Const::Int(value, Some(elem))) => format!("the {elem} {value}"),
            Value::Const(Const::Float(value, _)) => format!("the number {value}"),
            Value::Const(Const::Bool(value)) => format!("`{value}`"),
            Value::Const(Const::Elem(elem)) => format!("the type {elem}"),
            Value::Const(_) => "a constant".into(),
            Value::Scalar(scalar) => format!("a {}", scalar.elem),
            Value::Array(items) => match items.first() {
                Some(first) => format!("an array of {} (each {})", items.len(), first.describe()),
                None => "an empty array".into(),
            },
            Value::Tuple(items) => format!("a tuple of {}", items.len()),
            Value::Global(view) if view.axes.is_empty() => format!("an element of a global {} tensor", view.elem),
            Value::Global(view) => {
                format!("a view of a global {} tensor with {} open axes", view.elem, view.axes.len())
            }
            Value::Shared(view) if view.axes.is_empty() => format!("an element of a shared {} buffer", view.elem),
            Value::Shared(view) => {
                format!("a view of a shared {} buffer with {} open axes", view.elem, view.axes.len())
            }
            Value::Tile(view) => {
                let (rows, columns) = view.extent();
                format!("a {} tile of {rows} rows and {columns} columns", view.elem)
            }
            Value::TileElement(element) => format!("an element of a {} tile", element.tile.elem),
            Value::Tmem(view) => format!("an accumulator of 128 rows and {} columns in tensor memory", view.n),
            Value::Ring(_) => "a pipeline".into(),
            Value::Slot(_) => "a stage of a pipeline".into(),
            Value::Peek(_) => "a look at a stage of a pipeline".into(),
            Value::Acc(acc) => format!("an accumulator of {} rows and {} columns", acc.m, acc.n),
            Value::Operand(operand) => format!("an operand of {} columns in registers", operand.width),
            Value::Frag(f) => format!("a fragment of {}, {} rows and {} columns", f.kind.name(), f.rows, f.columns),
            Value::Barrier(_) => "a named barrier".into(),
            Value::Mbarrier(_) => "an mbarrier".into(),
            Value::Hint(_) => "a cache hint".into(),
            Value::Range(_) => "a range".into(),
            Value::Tickets(_) => "a range of tickets".into(),
        }
    }
}

impl Scalar {
    /// A register about whose value nothing is known.
    pub fn new(elem: Elem, reg: Reg, uniform: Uniform) -> Scalar {
        Scalar { elem, reg, uniform, multiple: 1, range: Range::full(elem) }
    }

    /// As a source operand.
    pub fn src(self) -> Src {
        Src::Reg(self.reg)
    }
}

/// Greatest common divisor; 0 is a multiple of everything.
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
