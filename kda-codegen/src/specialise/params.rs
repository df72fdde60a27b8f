//! Launch parameters and special registers as values.

use super::Specialiser;
use super::range::Range;
use super::value::{Scalar, Value, class};
use crate::compiled::ParamKind;
use crate::kir::Uniform;
use crate::signature::Fact;
use kda_core::Elem;
use kda_ptx::modifier::{Compare, Relu, ShuffleMode, Space, Type};
use kda_ptx::operand::{Address, Base, DstAndPred, DstList, Special, Src};
use kda_ptx::table::{Ld, Mov, Setp, Shfl, Shr};
use kda_ptx::{Class, Reg};

/// The untyped PTX type of that width in memory.
pub(super) fn memory_bits(elem: Elem) -> Type {
    match elem.bytes() {
        1 => Type::U8,
        _ => bits(elem),
    }
}

/// The untyped PTX type of the register that holds it.
pub(super) fn bits(elem: Elem) -> Type {
    match elem.bytes() {
        1 | 2 => Type::B16,
        4 => Type::B32,
        _ => Type::B64,
    }
}

/// The arithmetic PTX type.
pub(super) fn arithmetic(elem: Elem) -> Type {
    match elem {
        Elem::Bool => Type::Pred,
        Elem::U8 | Elem::U16 => Type::U16,
        Elem::U32 => Type::U32,
        Elem::U64 => Type::U64,
        Elem::I32 => Type::S32,
        Elem::I64 => Type::S64,
        Elem::F16 => Type::F16,
        Elem::BF16 => Type::Bf16,
        Elem::F32 => Type::F32,
        Elem::F64 => Type::F64,
    }
}

impl Specialiser<'_> {
    /// `ld.param` at the head of the kernel.
    pub(super) fn load_param(&mut self, index: usize) -> Reg {
        let param = &self.resolved.params[index];
        let elem = match param.kind {
            ParamKind::Tensor { .. } | ParamKind::Stride { .. } => Elem::U64,
            ParamKind::Dim | ParamKind::Present { .. } => Elem::U32,
            ParamKind::Scalar(Elem::Bool) => Elem::U8,
            ParamKind::Scalar(elem) => elem,
        };
        let address = Address { base: Base::Symbol(param.name.clone()), offset: 0 };
        self.builder.prologue(class(elem), |dst| {
            Ld {
                strength: None,
                scope: None,
                space: Some(Space::Param),
                cache: None,
                nc: Default::default(),
                l1: None,
                hint: Default::default(),
                prefetch: None,
                vector: None,
                ty: memory_bits(elem),
                dst: DstList(vec![Some(dst)]),
                address: address.clone(),
                policy: None,
            }
            .into()
        })
    }

    /// The value of a scalar, dimension or stride parameter.
    pub(super) fn param_value(&mut self, index: usize) -> Value {
        let param = &self.resolved.params[index];
        let elem = match param.kind {
            ParamKind::Scalar(elem) => elem,
            ParamKind::Stride { .. } => Elem::U64,
            _ => Elem::U32,
        };
        if elem.is_integer()
            && let Some(value) = self.known(&param.name)
        {
            return Value::Const(crate::consteval::Const::Int(value, Some(elem)));
        }
        let multiple = self.multiple_of(&param.name);
        let reg = self.load_param(index);
        let reg = if elem == Elem::Bool {
            self.builder.prologue(Class::Pred, |dst| {
                Setp {
                    compare: Compare::Ne,
                    ftz: Default::default(),
                    ty: Type::U16,
                    dst: DstAndPred { dst: Some(dst), pred: None },
                    a: reg.into(),
                    b: Src::Imm(0),
                }
                .into()
            })
        } else {
            reg
        };
        let mut scalar = Scalar { multiple, ..Scalar::new(elem, reg, Uniform::Cta) };
        for fact in &self.resolved.facts {
            match fact {
                Fact::AtLeast { name, value } if *name == param.name => {
                    scalar.range.least = scalar.range.least.max(i64::try_from(*value).unwrap_or(i64::MIN));
                }
                Fact::AtMost { name, value } if *name == param.name => {
                    scalar.range.most = scalar.range.most.min(i64::try_from(*value).unwrap_or(i64::MAX));
                }
                _ => {}
            }
        }
        // Conditions that contradict each other say nothing.
        if scalar.range.least > scalar.range.most {
            scalar.range = Range::full(elem);
        }
        Value::Scalar(scalar)
    }

    /// The value that `#[requires(name == constant)]` fixes.
    pub(super) fn known(&self, name: &str) -> Option<i128> {
        self.resolved.facts.iter().find_map(|fact| match fact {
            Fact::Equals { name: n, value } if n == name => Some(*value),
            _ => None,
        })
    }

    /// What `#[requires(name % constant == 0)]` says.
    pub(super) fn multiple_of(&self, name: &str) -> u64 {
        self.resolved.multiple_of(name)
    }

    /// A special register.
    pub(super) fn special(&mut self, special: Special, uniform: Uniform) -> Scalar {
        let reg =
            self.builder.prologue(Class::B32, |dst| Mov { ty: Type::U32, dst, src: Src::Special(special) }.into());
        let most = match special {
            Special::TidX => i64::from(self.resolved.block) - 1,
            Special::LaneId => 31,
            // Grids have at most 2^31 - 1 blocks along x, 65,535 along y and z.
            Special::CtaidX | Special::NctaidX => i32::MAX.into(),
            Special::CtaidY | Special::CtaidZ | Special::NctaidY | Special::NctaidZ => 65_535,
            Special::ClusterCtaRank => i64::from(self.resolved.cluster) - 1,
            _ => u32::MAX.into(),
        };
        Scalar { range: Range { least: 0, most }, ..Scalar::new(Elem::U32, reg, uniform) }
    }

    /// The warp's index in the CTA. Broadcast from lane 0, so that what depends on it stays in uniform registers.
    pub(super) fn warp(&mut self) -> Scalar {
        let tid = self.special(Special::TidX, Uniform::Thread);
        let shifted =
            self.builder.prologue(Class::B32, |dst| Shr { ty: Type::U32, dst, a: tid.src(), b: Src::Imm(5) }.into());
        let reg = self.builder.prologue(Class::B32, |dst| {
            Shfl {
                mode: ShuffleMode::Idx,
                ty: Type::B32,
                dst: DstAndPred { dst: Some(dst), pred: None },
                a: shifted.into(),
                lane: Src::Imm(0),
                clamp: Src::Imm(31),
                members: Src::Imm(-1),
            }
            .into()
        });
        self.warp_register = Some(reg);
        let range = Range { least: 0, most: i64::from(self.resolved.block / 32) - 1 };
        Scalar { range, ..Scalar::new(Elem::U32, reg, Uniform::Warp) }
    }

    /// Address of the dynamic shared memory.
    pub(super) fn shared_base(&mut self) -> Reg {
        self.builder.prologue(Class::B32, |dst| {
            Mov { ty: Type::U32, dst, src: Src::Symbol(crate::lower::SHARED.into()) }.into()
        })
    }
}

/// No clamping at zero: the default of the `.relu` flag.
pub(super) const NO_RELU: Relu = Relu(false);
