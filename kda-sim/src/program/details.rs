//! Operands of the large instructions: tensor copies and matrix products; and what a kernel uses.

use super::Decoder;
use super::op::{AddressRef, Kind, Op};
use kda_ptx::modifier::AtomicOp;
use kda_ptx::operand::{Class, Role};
use kda_ptx::table::Inst;

/// Operands that do not fit an operation.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub copies: Vec<TensorCopy>,
    pub warp_products: Vec<WarpProduct>,
    pub products: Vec<Product>,
    /// Number of the operation of each product.
    pub product_pcs: Vec<u32>,
    pub tensor_products: Vec<TensorProduct>,
}

/// What a tensor copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorCopyKind {
    Load,
    Store,
    Reduce(AtomicOp),
}

/// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`.
#[derive(Debug)]
pub(crate) struct TensorCopy {
    pub kind: TensorCopyKind,
    /// Generic address of the map, in a 64-bit register.
    pub map: u16,
    /// Coordinates, innermost first.
    pub coordinates: Vec<u16>,
    pub shared: AddressRef,
    /// The mbarrier of a load.
    pub barrier: Option<AddressRef>,
    /// The mask of CTAs of a multicast.
    pub multicast: Option<u16>,
}

/// Element type of a product's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixType {
    Bf16,
    F16,
    Tf32,
}

impl MatrixType {
    /// Bytes of an element in shared memory.
    pub fn bytes(self) -> u32 {
        if self == MatrixType::Tf32 { 4 } else { 2 }
    }
}

/// `mma.sync`, m16n8.
#[derive(Debug)]
pub(crate) struct WarpProduct {
    pub ty: MatrixType,
    pub k: usize,
    pub d: Vec<u16>,
    pub a: Vec<u16>,
    pub b: Vec<u16>,
    pub c: Vec<u16>,
}

/// Where the A operand of a warpgroup product is.
#[derive(Debug)]
pub(crate) enum Left {
    /// In shared memory: a 64-bit register with its descriptor.
    Descriptor(u16),
    /// In registers.
    Registers(Vec<u16>),
}

/// `wgmma.mma_async`, m64.
#[derive(Debug)]
pub(crate) struct Product {
    pub ty: MatrixType,
    pub n: usize,
    pub k: usize,
    pub d: Vec<u16>,
    pub a: Left,
    /// Descriptor of B.
    pub b: u16,
    /// Predicate: D is added to; and whether it is negated.
    pub scale_d: (u16, bool),
    pub negate: [bool; 2],
    /// A and B have their M or N elements next to each other.
    pub transposed: [bool; 2],
}

/// `tcgen05.mma`.
#[derive(Debug)]
pub(crate) struct TensorProduct {
    pub tf32: bool,
    pub d: u16,
    pub offset: i32,
    pub a: u16,
    pub b: u16,
    pub instruction: u16,
    pub accumulate: (u16, bool),
}

/// 32-bit registers that each operation reads or writes.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Register, and whether it is written.
    pub registers: Vec<(u16, bool)>,
    /// End of each operation's part.
    pub ends: Vec<u32>,
}

impl Uses {
    /// Those of an operation.
    pub fn of(&self, pc: u32) -> &[(u16, bool)] {
        let from = pc.checked_sub(1).map_or(0, |p| self.ends[p as usize]);
        &self.registers[from as usize..self.ends[pc as usize] as usize]
    }
}

impl Decoder<'_> {
    /// Notes the 32-bit registers of an instruction for all its operations.
    pub(super) fn record_uses(&mut self, inst: &Inst) {
        while self.uses.ends.len() < self.ops.len() {
            let mut found = Vec::new();
            inst.registers(&mut |reg, role| {
                if reg.class == Class::B32
                    && let Ok(index) = self.reg(reg)
                {
                    found.push((index, role == Role::Write));
                }
            });
            self.uses.registers.append(&mut found);
            self.uses.ends.push(self.uses.registers.len() as u32);
        }
    }
}

/// Agents beside the warps themselves: each kind has one a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentKind {
    /// The warp.
    Generic,
    /// `cp.async` of a warp: generic accesses too.
    ThreadCopy,
    /// Reads of bulk stores.
    BulkRead,
    /// Writes of bulk stores.
    BulkWrite,
    /// Products of a warpgroup, by its first warp.
    Product,
    /// `tcgen05` products of a warp.
    TensorProduct,
    /// `tcgen05.ld` of a warp.
    TensorLoad,
    /// `tcgen05.st` of a warp.
    TensorStore,
}

/// Which kinds of agents a kernel has, in the order of their numbers; mbarriers follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentLayout {
    kinds: [AgentKind; 8],
    /// Number of kinds in use.
    pub count: u32,
    /// Number of kinds, from the first, whose accesses are generic ones.
    pub generic: u32,
}

impl AgentLayout {
    /// The layout of a kernel.
    pub fn of(ops: &[Op]) -> AgentLayout {
        let has = |f: &dyn Fn(&Kind) -> bool| ops.iter().any(|o| f(&o.kind));
        let mut layout = AgentLayout { kinds: [AgentKind::Generic; 8], count: 1, generic: 1 };
        let mut add = |kind: AgentKind, used: bool| {
            if used {
                layout.kinds[layout.count as usize] = kind;
                layout.count += 1;
            }
        };
        let thread_copies = has(&|k| matches!(k, Kind::ThreadCopy { .. }));
        add(AgentKind::ThreadCopy, thread_copies);
        let bulk = has(&|k| matches!(k, Kind::BulkStore { .. } | Kind::BulkReduce { .. } | Kind::TensorCopy { .. }));
        add(AgentKind::BulkRead, bulk);
        add(AgentKind::BulkWrite, bulk);
        add(AgentKind::Product, has(&|k| matches!(k, Kind::Product { .. })));
        let tensor = has(&|k| matches!(k, Kind::TensorProduct { .. } | Kind::TensorAccess { .. }));
        add(AgentKind::TensorProduct, tensor);
        add(AgentKind::TensorLoad, tensor);
        add(AgentKind::TensorStore, tensor);
        layout.generic += u32::from(thread_copies);
        layout
    }

    /// Position of a kind; the kernel uses it.
    pub fn position(&self, kind: AgentKind) -> u32 {
        self.kinds[..self.count as usize].iter().position(|k| *k == kind).unwrap_or(0) as u32
    }

    /// The kind at a position; `None` for mbarriers.
    pub fn kind(&self, position: u32) -> Option<AgentKind> {
        self.kinds[..self.count as usize].get(position as usize).copied()
    }
}
