//! Operands become register numbers: immediates, symbols and special registers get registers of their own.

use super::{Decoder, Hidden, LoadError, ZERO32, op};
use crate::alu::lanes::{FULL, LANES, Registers};
use crate::memory::{PARAM_WINDOW, SHARED_WINDOW};
use kda_ptx::modifier::{Space, Type};
use kda_ptx::operand::{Address, Base, Class, DstList, Reg, Special, Src, SrcList};
use op::{AddressRef, Elements, MemSpace, NONE};
use std::collections::HashMap;

type Result<T> = std::result::Result<T, LoadError>;

/// Register files while they grow by constants.
pub(crate) struct Operands {
    declared: [u32; 5],
    /// Of the declared registers those up to the last that is used: what a warp holds.
    used: [u32; 5],
    b32: Vec<Option<u32>>,
    b64: Vec<Option<u64>>,
    constants32: HashMap<u32, u16>,
    constants64: HashMap<u64, u16>,
    hidden: HashMap<Hidden, u16>,
}

/// Most registers of a file.
const MOST: u32 = 30_000;

impl Operands {
    pub fn new(declared: [u32; 5], counted: [u32; 5]) -> Operands {
        let used: [u32; 5] = std::array::from_fn(|class| counted[class].min(declared[class]).min(MOST));
        Operands {
            declared,
            used,
            b32: vec![None; (used[1] + used[2]) as usize],
            b64: vec![None; used[3] as usize],
            constants32: HashMap::new(),
            constants64: HashMap::new(),
            hidden: HashMap::new(),
        }
    }

    pub fn into_registers(self) -> (Registers, Vec<(Hidden, u16)>) {
        let predicates = self.used[0] as usize;
        let undefined = |defined: bool| if defined { 0 } else { FULL };
        let registers = Registers {
            undef32: self.b32.iter().map(|v| undefined(v.is_some())).collect(),
            undef64: self.b64.iter().map(|v| undefined(v.is_some())).collect(),
            b32: self.b32.iter().map(|v| v.map_or(ZERO32, |v| [v; LANES])).collect(),
            b64: self.b64.iter().map(|v| [v.unwrap_or(0); LANES]).collect(),
            pred: vec![0; predicates],
            undef_pred: vec![FULL; predicates],
        };
        (registers, self.hidden.into_iter().collect())
    }

    fn constant32(&mut self, value: u32) -> u16 {
        let b32 = &mut self.b32;
        *self.constants32.entry(value).or_insert_with(|| {
            b32.push(Some(value));
            (b32.len() - 1) as u16
        })
    }

    fn constant64(&mut self, value: u64) -> u16 {
        let b64 = &mut self.b64;
        *self.constants64.entry(value).or_insert_with(|| {
            b64.push(Some(value));
            (b64.len() - 1) as u16
        })
    }

    fn hidden(&mut self, what: Hidden) -> u16 {
        if let Some(index) = self.hidden.get(&what) {
            return *index;
        }
        let index = if what == Hidden::Shared64 {
            self.b64.push(Some(0));
            self.b64.len() - 1
        } else {
            self.b32.push(Some(0));
            self.b32.len() - 1
        };
        self.hidden.insert(what, index as u16);
        index as u16
    }
}

impl Decoder<'_> {
    /// Number of a register in its file.
    pub(super) fn reg(&self, reg: Reg) -> Result<u16> {
        let class = Class::ALL.iter().position(|c| *c == reg.class).unwrap_or(0);
        let declared = self.operands.declared[class];
        if reg.index >= declared {
            let register = format!("{}{}", reg.class.prefix(), reg.index);
            return Err(LoadError::Register { line: self.line, register, declared });
        }
        let first = if reg.class == Class::B32 { self.operands.used[1] } else { 0 };
        // One file holds 16- and 32-bit registers, and constants after them.
        if reg.class == Class::B128 || first + reg.index >= MOST {
            return Err(self.unsupported(&format!("register {}{}", reg.class.prefix(), reg.index)));
        }
        Ok((first + reg.index) as u16)
    }

    fn of_class(&self, reg: Reg, class: Class) -> Result<u16> {
        if reg.class != class {
            let found = format!("{}{}", reg.class.prefix(), reg.index);
            return Err(self.operand_error(format!("found {found}; a {} register is needed here", class.prefix())));
        }
        self.reg(reg)
    }

    /// A predicate register.
    pub(super) fn pred(&self, reg: Reg) -> Result<u16> {
        self.of_class(reg, Class::Pred)
    }

    /// A destination of a width in bits.
    pub(super) fn dst(&self, reg: Reg, bits: u32) -> Result<u16> {
        self.of_class(reg, class_of(bits))
    }

    /// A source of a width in bits, whatever it is.
    pub(super) fn src(&mut self, src: &Src, bits: u32) -> Result<u16> {
        match src {
            Src::Reg(reg) => self.of_class(*reg, class_of(bits)),
            Src::Imm(value) => Ok(match bits {
                16 => self.operands.constant32(*value as u32 & 0xffff),
                32 => self.operands.constant32(*value as u32),
                _ => self.operands.constant64(*value as u64),
            }),
            Src::F32(value) if bits == 32 => Ok(self.operands.constant32(*value)),
            Src::F64(value) if bits == 64 => Ok(self.operands.constant64(*value)),
            Src::F32(_) | Src::F64(_) => {
                Err(self.operand_error(format!("a floating-point constant does not have {bits} bits")))
            }
            Src::Special(special) => self.special(*special, bits),
            Src::Symbol(name) => self.symbol(name, bits),
        }
    }

    fn special(&mut self, special: Special, bits: u32) -> Result<u16> {
        if bits != 32 || matches!(special, Special::Clock64 | Special::GlobalTimer) {
            return Err(self.operand_error(format!("{} cannot be an operand of {bits} bits here", special.text())));
        }
        Ok(self.operands.hidden(Hidden::Special(special)))
    }

    fn symbol(&mut self, name: &str, bits: u32) -> Result<u16> {
        if Some(name) == self.shared_symbol {
            let hidden = if bits == 64 { Hidden::Shared64 } else { Hidden::Shared };
            return Ok(self.operands.hidden(hidden));
        }
        let offset = self.param(name)?;
        Ok(if bits == 64 { self.operands.constant64(u64::from(offset)) } else { self.operands.constant32(offset) })
    }

    /// Offset of a parameter.
    pub(super) fn param(&self, name: &str) -> Result<u32> {
        let index = self.entry.params.iter().position(|p| p.name == name);
        index
            .map(|i| self.param_offsets[i])
            .ok_or_else(|| self.operand_error(format!("`{name}` is neither a parameter nor the dynamic shared memory")))
    }

    /// Start of a state space in the generic address space, as a 64-bit constant.
    pub(super) fn window(&mut self, space: Space) -> Result<u16> {
        Ok(match space {
            Space::Global => self.operands.constant64(0),
            Space::Shared | Space::SharedCta | Space::SharedCluster => self.operands.constant64(SHARED_WINDOW),
            Space::Param => self.operands.constant64(PARAM_WINDOW),
            Space::Const | Space::Local => return Err(self.unsupported("cvta of .const and .local")),
        })
    }

    /// A 64-bit constant register.
    pub(super) fn constant64(&mut self, value: u64) -> u16 {
        self.operands.constant64(value)
    }

    /// A 32-bit constant register.
    pub(super) fn constant(&mut self, value: u32) -> u16 {
        self.operands.constant32(value)
    }

    /// A memory operand outside the parameters.
    pub(super) fn address(&mut self, address: &Address, space: Option<Space>) -> Result<AddressRef> {
        let space = match space {
            Some(Space::Global) => MemSpace::Global,
            Some(Space::Shared | Space::SharedCta) => MemSpace::Shared,
            Some(Space::SharedCluster) => MemSpace::Cluster,
            None => MemSpace::Generic,
            Some(other) => return Err(self.unsupported(&format!("an access to {}", other_name(other)))),
        };
        let (base, wide) = match &address.base {
            Base::Reg(reg) if reg.class == Class::B64 => (self.reg(*reg)?, true),
            Base::Reg(reg) if reg.class == Class::B32 && space.is_shared() => (self.reg(*reg)?, false),
            Base::Reg(reg) => {
                let found = format!("{}{}", reg.class.prefix(), reg.index);
                let needed = if space.is_shared() { "%r or %rd" } else { "%rd" };
                return Err(self.operand_error(format!("found {found} as an address; {needed} is needed")));
            }
            Base::Symbol(name) if Some(name.as_str()) == self.shared_symbol && space.is_shared() => {
                (self.operands.hidden(Hidden::Shared), false)
            }
            Base::Symbol(name) => {
                return Err(self.operand_error(format!("`{name}` does not name memory of the instruction's space")));
            }
        };
        let offset = i32::try_from(address.offset)
            .map_err(|_| self.operand_error(format!("offset {} does not fit 32 bits", address.offset)))?;
        Ok(AddressRef { base, wide, space, offset })
    }

    fn elements(&self, ty: Type, count: usize, class: Class) -> Result<Elements> {
        if !matches!(count, 1 | 2 | 4 | 8) || ty == Type::B128 || ty == Type::Pred {
            return Err(self.unsupported(&format!("an access of {count} elements of {ty:?}")));
        }
        let register = match class {
            Class::B16 => 2,
            Class::B32 => 4,
            Class::B64 => 8,
            Class::Pred | Class::B128 => {
                return Err(self.operand_error("memory is accessed through 16-, 32- and 64-bit registers"));
            }
        };
        if ty.bytes() > register {
            return Err(self.operand_error(format!("{ty:?} does not fit a {} register", class.prefix())));
        }
        Ok(Elements {
            bytes: ty.bytes() as u8,
            count: count as u8,
            signed: ty.is_signed(),
            wide: class == Class::B64,
            half: class == Class::B16,
        })
    }

    fn one_class(&self, regs: impl Iterator<Item = Reg>, default: Class) -> Result<Class> {
        let mut class = None;
        for reg in regs {
            if *class.get_or_insert(reg.class) != reg.class {
                return Err(self.operand_error("the registers of a vector must be of one class"));
            }
        }
        Ok(class.unwrap_or(default))
    }

    fn check_width(&self, vector: Option<kda_ptx::modifier::VectorWidth>, found: usize) -> Result<()> {
        let needed = vector.map_or(1, |v| v.lanes());
        if needed == found {
            return Ok(());
        }
        Err(self.operand_error(format!("found {found} registers; the instruction moves {needed} elements")))
    }

    /// Destinations of a load.
    pub(super) fn load_list(
        &mut self,
        ty: Type,
        vector: Option<kda_ptx::modifier::VectorWidth>,
        dst: &DstList,
    ) -> Result<(Elements, u32)> {
        self.check_width(vector, dst.0.len())?;
        let class = self.one_class(dst.0.iter().flatten().copied(), class_of(ty.bytes() * 8))?;
        let elements = self.elements(ty, dst.0.len(), class)?;
        let list = self.lists.len() as u32;
        for reg in &dst.0 {
            let index = reg.map_or(Ok(NONE), |r| self.reg(r))?;
            self.lists.push(index);
        }
        Ok((elements, list))
    }

    /// Sources of a store.
    pub(super) fn store_list(
        &mut self,
        ty: Type,
        vector: Option<kda_ptx::modifier::VectorWidth>,
        src: &SrcList,
    ) -> Result<(Elements, u32)> {
        self.check_width(vector, src.0.len())?;
        let regs = src.0.iter().filter_map(|s| if let Src::Reg(reg) = s { Some(*reg) } else { None });
        let class = self.one_class(regs, class_of(ty.bytes() * 8))?;
        let elements = self.elements(ty, src.0.len(), class)?;
        let list = self.lists.len() as u32;
        for src in &src.0 {
            let index = self.src(src, bits_of(class))?;
            self.lists.push(index);
        }
        Ok((elements, list))
    }
}

/// Register class of a width; 8-bit values live in 16-bit registers.
pub(super) fn class_of(bits: u32) -> Class {
    match bits {
        0..=16 => Class::B16,
        17..=32 => Class::B32,
        33..=64 => Class::B64,
        _ => Class::B128,
    }
}

fn bits_of(class: Class) -> u32 {
    match class {
        Class::B16 => 16,
        Class::B64 => 64,
        _ => 32,
    }
}

fn other_name(space: Space) -> &'static str {
    space.text()
}
