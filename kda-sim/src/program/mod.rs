//! A kernel as the simulator runs it: pre-decoded operations.
//!
//! | question | module |
//! | --- | --- |
//! | from the text to operations, one method a row of the instruction table | `decode` |
//! | the closures behind the arithmetic rows | `arith`, `bits`, `compare`, `cvt` |
//! | tensor copies, matrices, products: their rows | `matrix`; their operands [`details`](self) |
//! | operands as register numbers | `operands` |
//! | the operations | `op` |
//! | where an operation stands in the text and in the source | [`source`] |

mod arith;
mod bits;
mod compare;
mod cvt;
mod decode;
pub(crate) mod details;
mod forms;
mod matrix;
pub(crate) mod op;
mod operands;
pub mod source;

use crate::alu::lanes::{LANES, Registers, has_vector};
use details::{AgentLayout, Details, Uses};
use kda_ptx::module::{Bounds, Entry, Module, Statement};
use op::{Op, Permutation};
use operands::Operands;
use source::SourceMap;
use std::collections::HashMap;

/// A decoded kernel.
#[derive(Debug)]
pub struct Program {
    /// Name of the entry.
    pub name: String,
    /// Size of the parameter block in bytes.
    pub param_bytes: u32,
    /// Launch bounds of the entry.
    pub bounds: Bounds,
    pub(crate) ops: Vec<Op>,
    /// Register lists of vector accesses.
    pub(crate) lists: Vec<u16>,
    pub(crate) permutations: Vec<Permutation>,
    pub(crate) details: Details,
    /// 32-bit registers that the operations use.
    pub(crate) uses: Uses,
    pub(crate) agents: AgentLayout,
    pub(crate) source: SourceMap,
    /// Register file of a warp before it starts: constants defined, all else undefined.
    pub(crate) registers: Registers,
    /// Registers that are filled when a warp starts.
    pub(crate) hidden: Vec<(Hidden, u16)>,
    /// Some instructions use registers after they have been issued.
    pub(crate) watches: bool,
    /// Copies write shared memory.
    pub(crate) loads: bool,
    /// Choose the build for AVX2 + FMA.
    pub(crate) vector: bool,
}

/// A value that is known when a warp starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hidden {
    /// A special register.
    Special(kda_ptx::operand::Special),
    /// Start of the dynamic shared memory, as a shared address in a 32-bit register.
    Shared,
    /// The same in a 64-bit register.
    Shared64,
}

/// Why a text cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is not in the dialect.
    #[error("PTX text: {0}")]
    Parse(#[from] kda_ptx::ParseError),
    /// The module does not have exactly one entry, or not the one asked for.
    #[error("the module has {found}; {needed} is needed")]
    Entry {
        /// Entries of the module.
        found: String,
        /// What was asked for.
        needed: String,
    },
    /// A branch to a label that does not exist, or one that exists twice.
    #[error("line {line}: label `{name}` is {problem}")]
    Label {
        /// Line of the text.
        line: u32,
        /// Label.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A register beyond the declared ones.
    #[error("line {line}: {register} is not declared; the entry declares {declared} registers of its class")]
    Register {
        /// Line of the text.
        line: u32,
        /// Register.
        register: String,
        /// Declared number.
        declared: u32,
    },
    /// An operand does not fit its instruction.
    #[error("line {line}: {message}")]
    Operand {
        /// Line of the text.
        line: u32,
        /// What was found and what is needed.
        message: String,
    },
    /// A form that the simulator does not model.
    #[error("line {line}: `{form}` is not modelled by the simulator")]
    Unsupported {
        /// Line of the text.
        line: u32,
        /// The form.
        form: String,
    },
}

impl Program {
    /// Parses and decodes a module of one entry.
    pub fn load(text: &str) -> Result<Program, LoadError> {
        Program::build(text, None, has_vector())
    }

    /// Parses a module and decodes one of its entries.
    pub fn load_entry(text: &str, entry: &str) -> Result<Program, LoadError> {
        Program::build(text, Some(entry), has_vector())
    }

    /// As [`Program::load`], without the AVX2 + FMA build; results are the same bits, later.
    pub fn load_portable(text: &str) -> Result<Program, LoadError> {
        Program::build(text, None, false)
    }

    fn build(text: &str, name: Option<&str>, vector: bool) -> Result<Program, LoadError> {
        let module = kda_ptx::parse(text)?;
        let entry = find_entry(&module, name)?;
        let lines = source::statement_lines(text, &entry.name);
        let mut decoder = Decoder::new(&module, entry, lines, vector);
        decoder.body(entry)?;
        let Decoder { ops, lists, permutations, details, uses, source, operands, .. } = decoder;
        let (registers, hidden) = operands.into_registers();
        Ok(Program {
            name: entry.name.clone(),
            param_bytes: entry.param_offsets().1,
            bounds: entry.bounds,
            watches: ops.iter().any(|o| matches!(o.kind, op::Kind::Product { .. } | op::Kind::TensorAccess { .. })),
            loads: ops.iter().any(|o| matches!(o.kind, op::Kind::TensorCopy { .. } | op::Kind::BulkLoad { .. })),
            agents: AgentLayout::of(&ops),
            ops,
            lists,
            permutations,
            details,
            uses,
            source,
            registers,
            hidden,
            vector,
        })
    }

    /// Number of instructions.
    pub fn instructions(&self) -> usize {
        self.ops.len()
    }
}

fn find_entry<'a>(module: &'a Module, name: Option<&str>) -> Result<&'a Entry, LoadError> {
    let found = || match module.entries.len() {
        0 => "no entry".to_string(),
        _ => module.entries.iter().map(|e| format!("`{}`", e.name)).collect::<Vec<_>>().join(", "),
    };
    match (name, module.entries.as_slice()) {
        (None, [entry]) => Ok(entry),
        (None, _) => Err(LoadError::Entry { found: found(), needed: "exactly one entry".to_string() }),
        (Some(name), entries) => entries
            .iter()
            .find(|e| e.name == name)
            .ok_or_else(|| LoadError::Entry { found: found(), needed: format!("an entry `{name}`") }),
    }
}

/// State while an entry is decoded.
pub(crate) struct Decoder<'a> {
    entry: &'a Entry,
    param_offsets: Vec<u32>,
    shared_symbol: Option<&'a str>,
    labels: HashMap<&'a str, u32>,
    /// Branches to resolve: operation, label, line of the text.
    branches: Vec<(usize, String, u32)>,
    lines: Vec<u32>,
    /// Line of the text that is being decoded.
    line: u32,
    guard: u16,
    ops: Vec<Op>,
    lists: Vec<u16>,
    permutations: Vec<Permutation>,
    details: Details,
    uses: Uses,
    source: SourceMap,
    operands: Operands,
    vector: bool,
}

impl<'a> Decoder<'a> {
    fn new(module: &'a Module, entry: &'a Entry, lines: Vec<u32>, vector: bool) -> Decoder<'a> {
        Decoder {
            entry,
            param_offsets: entry.param_offsets().0,
            shared_symbol: module.shared.as_ref().map(|s| s.name.as_str()),
            labels: HashMap::new(),
            branches: Vec::new(),
            lines,
            line: 0,
            guard: op::NO_GUARD,
            ops: Vec::new(),
            lists: Vec::new(),
            permutations: Vec::new(),
            details: Details::default(),
            uses: Uses::default(),
            source: SourceMap::new(&module.files),
            operands: Operands::new(entry.registers, entry.count_registers()),
            vector,
        }
    }

    fn body(&mut self, entry: &'a Entry) -> Result<(), LoadError> {
        let mut location = None;
        for (statement, line) in entry.body.iter().zip(self.lines.clone()) {
            self.line = line;
            match statement {
                Statement::Label(name) => {
                    if self.labels.insert(name, self.ops.len() as u32).is_some() {
                        return Err(LoadError::Label { line, name: name.clone(), problem: "defined twice" });
                    }
                }
                Statement::Loc { file, line, column } => location = Some((*file, *line, *column)),
                Statement::Inst { guard, inst } => {
                    self.guard = match guard {
                        Some(guard) => {
                            let index = self.pred(guard.reg)?;
                            index | if guard.negated { op::GUARD_NEGATED } else { 0 }
                        }
                        None => op::NO_GUARD,
                    };
                    let mut text = String::new();
                    inst.print(&mut text);
                    inst.dispatch(self)?;
                    self.record_uses(inst);
                    while self.source.len() < self.ops.len() {
                        self.source.push(line, location, text.clone());
                    }
                }
                Statement::Comment(_) => {}
            }
        }
        // Running off the end is a return.
        self.guard = op::NO_GUARD;
        self.push(op::Kind::Exit);
        self.uses.ends.push(self.uses.registers.len() as u32);
        self.source.push(self.line, location, "(end of the kernel)".to_string());
        for (at, name, line) in std::mem::take(&mut self.branches) {
            let Some(target) = self.labels.get(name.as_str()) else {
                return Err(LoadError::Label { line, name, problem: "not defined" });
            };
            if let op::Kind::Bra { target: to, .. } = &mut self.ops[at].kind {
                *to = *target;
            }
        }
        if self.ops.len() > op::MAX_OPS {
            return Err(self.unsupported(&format!("a kernel of more than {} instructions", op::MAX_OPS)));
        }
        Ok(())
    }

    fn push(&mut self, kind: op::Kind) {
        self.ops.push(Op { guard: self.guard, kind });
    }

    fn unsupported(&self, form: &str) -> LoadError {
        LoadError::Unsupported { line: self.line, form: form.to_string() }
    }

    fn operand_error(&self, message: impl Into<String>) -> LoadError {
        LoadError::Operand { line: self.line, message: message.into() }
    }
}

/// An empty register of 32 lanes.
pub(crate) const ZERO32: [u32; LANES] = [0; LANES];
