//! Emission into regions, with common subexpressions found once.
//!
//! A register is assigned once, so an instruction without side effects and with the same operands gives the same value as
//! long as the earlier one dominates. Open regions form a stack; what an open region has computed is available in the
//! regions inside it.

use super::value::{Scalar, class};
use crate::kir::{Branch, Node, Place, Region, Sync, Uniform, class_index};
use kda_core::Elem;
use kda_ptx::modifier::{CacheHint, NonCoherent, Space, Type};
use kda_ptx::operand::{Address, DstList, PredSrc};
use kda_ptx::table::Ld;
use kda_ptx::{Class, Inst, Reg};
use std::collections::HashMap;

/// Where instructions go.
pub struct Builder {
    next: [u32; 5],
    /// Parameter loads and special registers, at the head of the kernel.
    prologue: Region,
    prologue_known: HashMap<Inst, Reg>,
    open: Vec<(Region, HashMap<Inst, Reg>)>,
    definitions: HashMap<Reg, Inst>,
    /// Source of what is emitted next.
    pub place: Place,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// An empty kernel.
    pub fn new() -> Builder {
        Builder {
            next: [0; 5],
            prologue: Region::new(),
            prologue_known: HashMap::new(),
            open: vec![(Region::new(), HashMap::new())],
            definitions: HashMap::new(),
            place: Place::default(),
        }
    }

    /// A fresh register.
    pub fn fresh(&mut self, class: Class) -> Reg {
        let slot = &mut self.next[class_index(class)];
        *slot += 1;
        Reg::new(class, *slot - 1)
    }

    /// Emits an instruction.
    pub fn inst(&mut self, inst: impl Into<Inst>) {
        self.guarded(None, inst);
    }

    /// Emits an instruction that runs under a predicate.
    pub fn guarded(&mut self, guard: Option<PredSrc>, inst: impl Into<Inst>) {
        let node = Node::Inst { inst: inst.into(), guard, place: self.place };
        self.push(node);
    }

    /// Emits a step of synchronisation.
    pub fn sync(&mut self, sync: Sync) {
        let node = Node::Sync { sync, place: self.place };
        self.push(node);
    }

    /// Emits a node.
    pub fn push(&mut self, node: Node) {
        if let Some((region, _)) = self.open.last_mut() {
            region.push(node);
        }
    }

    /// Emits an instruction without side effects, or finds the register that already holds its result.
    pub fn pure(&mut self, class: Class, make: impl Fn(Reg) -> Inst) -> Reg {
        let key = make(Reg::new(class, u32::MAX));
        let known = self.prologue_known.get(&key).or_else(|| self.open.iter().rev().find_map(|(_, k)| k.get(&key)));
        if let Some(reg) = known {
            return *reg;
        }
        let reg = self.fresh(class);
        self.inst(make(reg));
        self.definitions.insert(reg, key.clone());
        if let Some((_, known)) = self.open.last_mut() {
            known.insert(key, reg);
        }
        reg
    }

    /// Emits a pure instruction at the head of the kernel.
    pub fn prologue(&mut self, class: Class, make: impl Fn(Reg) -> Inst) -> Reg {
        let key = make(Reg::new(class, u32::MAX));
        if let Some(reg) = self.prologue_known.get(&key) {
            return *reg;
        }
        let reg = self.fresh(class);
        self.prologue.push(Node::Inst { inst: make(reg), guard: None, place: self.place });
        self.definitions.insert(reg, key.clone());
        self.prologue_known.insert(key, reg);
        reg
    }

    /// A pure result as a scalar.
    pub fn scalar(&mut self, elem: Elem, uniform: Uniform, make: impl Fn(Reg) -> Inst) -> Scalar {
        let reg = self.pure(class(elem), make);
        Scalar::new(elem, reg, uniform)
    }

    /// Keeps what an unconditional load of memory that nothing writes gives.
    pub fn note_load(&mut self, reg: Reg, space: Space, ty: Type, address: Address) {
        let key = Ld {
            strength: None,
            scope: None,
            space: Some(space),
            cache: None,
            nc: NonCoherent(false),
            l1: None,
            hint: CacheHint(false),
            prefetch: None,
            vector: None,
            ty,
            dst: DstList(vec![Some(reg)]),
            address,
            policy: None,
        };
        self.definitions.insert(reg, key.into());
    }

    /// The instruction that computes a register without side effects, if that is how it is computed.
    pub fn definition(&self, reg: Reg) -> Option<&Inst> {
        self.definitions.get(&reg)
    }

    /// Says what the branch that was emitted last is for.
    pub fn mark_branch(&mut self, kind: Branch) {
        if let Some((region, _)) = self.open.last_mut()
            && let Some(Node::If { branch, .. }) = region.last_mut()
        {
            *branch = kind;
        }
    }

    /// Opens a region.
    pub fn open(&mut self) {
        self.open.push((Region::new(), HashMap::new()));
    }

    /// Closes the innermost region and gives it.
    pub fn close(&mut self) -> Region {
        self.open.pop().map(|(region, _)| region).unwrap_or_default()
    }

    /// Number of open regions.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Closes regions, and forgets them, until `depth` are open.
    pub fn unwind(&mut self, depth: usize) {
        self.open.truncate(depth);
    }

    /// First free register of each class.
    pub fn registers(&self) -> [u32; 5] {
        self.next
    }

    /// All of the kernel.
    pub fn finish(mut self) -> Region {
        let mut region = std::mem::take(&mut self.prologue);
        region.extend(self.close());
        region
    }
}
