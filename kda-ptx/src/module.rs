//! A PTX module: header, entries, statements.

use crate::gate::Gate;
use crate::modifier::Type;
use crate::operand::{Class, PredSrc, Reg, Role};
use crate::table::Inst;
use kda_core::{Arch, IsaVersion};

/// A module.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version`.
    pub isa: IsaVersion,
    /// `.target`.
    pub arch: Arch,
    /// `.file` directives: number and path, as `.loc` refers to them.
    pub files: Vec<(u32, String)>,
    /// The dynamic shared memory, if any: `.extern .shared .align A .b8 name[];`.
    pub shared: Option<SharedDecl>,
    /// Kernels.
    pub entries: Vec<Entry>,
}

/// Declaration of the dynamic shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDecl {
    /// Symbol.
    pub name: String,
    /// Alignment in bytes.
    pub align: u32,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// Parameters in ABI order.
    pub params: Vec<Param>,
    /// Launch bounds.
    pub bounds: Bounds,
    /// Number of registers of each class, in the order of [`Class::ALL`].
    pub registers: [u32; 5],
    /// Body.
    pub body: Vec<Statement>,
}

/// Performance directives of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// `.maxntid x, 1, 1`.
    pub max_threads: Option<u32>,
    /// `.reqntid x, 1, 1`.
    pub exact_threads: Option<u32>,
    /// `.minnctapersm n`.
    pub min_blocks_per_sm: Option<u32>,
    /// `.maxnreg n`.
    pub max_registers: Option<u32>,
    /// `.reqnctapercluster x, 1, 1`.
    pub cluster: Option<u32>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Type; `.b8` for an array of bytes.
    pub ty: Type,
    /// Alignment, where it is not the type's.
    pub align: Option<u32>,
    /// Number of elements of an array.
    pub array: Option<u32>,
}

/// A line of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`
    Label(String),
    /// `.loc file line column`
    Loc {
        /// Number of the file.
        file: u32,
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
    },
    /// `// text`
    Comment(String),
    /// An instruction, perhaps predicated.
    Inst {
        /// `@%p1` or `@!%p1`.
        guard: Option<Guard>,
        /// The instruction.
        inst: Inst,
    },
}

/// Predicate of an instruction.
pub type Guard = PredSrc;

impl Statement {
    /// An instruction without a guard.
    pub fn inst(inst: impl Into<Inst>) -> Statement {
        Statement::Inst { guard: None, inst: inst.into() }
    }
}

impl Param {
    /// Size in bytes; what is past 32 bits is the largest number of 32 bits.
    pub fn bytes(&self) -> u32 {
        self.ty.bytes().saturating_mul(self.array.unwrap_or(1))
    }

    /// Alignment in bytes.
    pub fn alignment(&self) -> u32 {
        self.align.unwrap_or(self.ty.bytes())
    }
}

impl Entry {
    /// Byte offsets of the parameters and the size of the block. What is past 32 bits is the largest number of 32 bits: more
    /// than any launch has.
    pub fn param_offsets(&self) -> (Vec<u32>, u32) {
        let mut end = 0u32;
        let offsets = self
            .params
            .iter()
            .map(|p| {
                let start = end.checked_next_multiple_of(p.alignment().max(1)).unwrap_or(u32::MAX);
                end = start.saturating_add(p.bytes());
                start
            })
            .collect();
        (offsets, end)
    }

    /// Counts the registers that the body uses, by class.
    pub fn count_registers(&self) -> [u32; 5] {
        let mut counts = [0u32; 5];
        let mut note = |reg: Reg, _: Role| {
            let slot = &mut counts[Class::ALL.iter().position(|c| *c == reg.class).unwrap_or(0)];
            *slot = (*slot).max(reg.index.saturating_add(1));
        };
        for statement in &self.body {
            if let Statement::Inst { guard, inst } = statement {
                if let Some(guard) = guard {
                    note(guard.reg, Role::Read);
                }
                inst.registers(&mut note);
            }
        }
        counts
    }
}

impl Module {
    /// What the instructions need, whatever the header says.
    pub fn gate(&self) -> Gate {
        let instructions = self.entries.iter().flat_map(|e| &e.body).filter_map(|s| match s {
            Statement::Inst { inst, .. } => Some(inst.gate()),
            _ => None,
        });
        instructions.fold(Gate::NONE, Gate::and)
    }
}
