//! Accumulators in tensor memory: declaration, allocation, the way to registers.
//!
//! `Pipeline::<mma, epilogue> { d: tmem::<f32, 128, N, STAGES>() }` is a ring of accumulators of 128 rows and N columns: the
//! producing side is one thread that issues products, the consuming side the warpgroup that reads their sums. Warp 0
//! allocates the columns of a ring where it is declared, and frees them at the end of the kernel, behind a barrier of the
//! CTA; every path comes to that end. Lane i of tensor memory is row i; warp w of a warpgroup reaches rows 32 w to 32 w + 31.
//! Fences of tcgen05 stand behind every wait for a stage and ahead of every arrival that hands tensor memory over.

use super::Specialiser;
use super::pipeline::{Ring, Slot};
use super::site::Site;
use super::value::{Scalar, Value};
use crate::compiled::SharedBuffer;
use crate::consteval::Const;
use crate::diag::{Diagnostic, Result};
use crate::kir::{Sync, Uniform};
use kda_core::Elem;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstList, OutList, Src};
use kda_ptx::table::*;
use kda_ptx::{Class, Reg};
use syn::{BinOp, Expr, GenericArgument};

/// Columns of tensor memory of a multiprocessor.
const COLUMNS: u32 = 512;
/// Rows of an accumulator.
pub(super) const ROWS: u32 = 128;

/// An accumulator in tensor memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TmemView {
    /// Index of the allocation, once it is part of a pipeline.
    pub memory: Option<usize>,
    /// Columns.
    pub n: u32,
    /// Number of stages.
    pub stages: u32,
    /// Stage of the ring, a constant or a u32.
    pub stage: Value,
    /// The pipeline's slot that it belongs to.
    pub slot: Option<u32>,
}

/// Columns that the kernel allocates.
#[derive(Clone, Debug)]
pub struct Allocation {
    ring: usize,
    name: String,
    view: TmemView,
    columns: u32,
    /// Buffer that the address is written to, and its register.
    address: usize,
    pub base: Reg,
    /// The accumulator of the present stage holds a product: a predicate that is written in place.
    pub started: Reg,
    /// The address is in its register.
    known: bool,
}

/// Tensor memory of a kernel.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub allocations: Vec<Allocation>,
    /// Slots that products read and that are not released.
    pub read: Vec<u32>,
}

impl Allocation {
    /// True if it holds the stages of that ring.
    pub fn is_of(&self, ring: usize) -> bool {
        self.ring == ring
    }
}

impl Specialiser<'_> {
    /// `tmem::<f32, 128, N, STAGES>()`
    pub(super) fn tmem(&mut self, generics: &[GenericArgument], args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let form = |what: &str| {
            Diagnostic::new(920, site, what.to_string())
                .help("write `tmem::<f32, 128, N, STAGES>()` in a pipeline, N a multiple of 16 up to 256")
        };
        let ([elem, rows, columns, rest @ ..], []) = (generics, args) else {
            return Err(form("an accumulator in tensor memory has an element type, rows and columns"));
        };
        if self.generic_value(elem)? != Const::Elem(Elem::F32) {
            return Err(form("accumulators in tensor memory are f32"));
        }
        let mut sizes = Vec::new();
        for size in [Some(rows), Some(columns), rest.first()].into_iter().flatten() {
            sizes.push(self.generic_value(size)?.as_int().unwrap_or(-1));
        }
        let (n, stages) = (sizes[1], sizes.get(2).copied().unwrap_or(1));
        if sizes[0] != i128::from(ROWS) || n % 16 != 0 || !(16..=256).contains(&n) || !(1..=32).contains(&stages) {
            return Err(form(&format!("an accumulator of {} rows and {n} columns, {stages} stages", sizes[0])));
        }
        self.staging = Some(stages as u32);
        let view = TmemView { memory: None, n: n as u32, stages: stages as u32, stage: Value::u32(0), slot: None };
        Ok(Value::Tmem(Box::new(view)))
    }

    /// Allocates the accumulators of a ring in warp 0.
    pub(super) fn allocate(&mut self, ring: usize, site: Site<'_>) -> Result<()> {
        let Ring { buffers, sides, .. } = self.rings[ring].clone();
        let accumulators: Vec<(String, TmemView)> = buffers
            .iter()
            .filter_map(|(name, buffer)| match buffer {
                Value::Tmem(view) => Some((name.clone(), (**view).clone())),
                _ => None,
            })
            .collect();
        if accumulators.is_empty() {
            return Ok(());
        }
        if accumulators.len() < buffers.len() || sides.len() != 2 || sides[0].is_empty() {
            let message = "accumulators in tensor memory share no pipeline with tiles, and stand between two sides";
            return Err(Diagnostic::new(920, site, message)
                .help("write `Pipeline::<mma, epilogue> { d: tmem::<f32, 128, N, STAGES>() }`"));
        }
        for (name, view) in accumulators {
            let columns = (view.n * view.stages).next_power_of_two().max(32);
            let taken: u32 = self.tensor_memory.allocations.iter().map(|a| a.columns).sum();
            if taken + columns > COLUMNS {
                let message = format!("{} columns of tensor memory; a multiprocessor has {COLUMNS}", taken + columns);
                return Err(Diagnostic::new(521, site, message)
                    .help("columns times stages are rounded up to a power of two; use fewer stages or columns"));
            }
            let desc = SharedBuffer {
                name: format!("{}.{name}.address", self.rings[ring].name),
                offset: 0,
                bytes: 16,
                align: 16,
                elem: Elem::U32,
                shape: vec![4],
            };
            let address = self.place_buffer(desc, site);
            self.buffers[address].used = true;
            let dst = self.address_place(address);
            self.in_first_warp(site, |this| {
                this.builder.inst(TmemAlloc {
                    group: CtaGroup::One,
                    sync: SyncAligned::SyncAligned,
                    space: Space::SharedCta,
                    ty: Type::B32,
                    dst: dst.clone(),
                    columns: Src::Imm(columns.into()),
                });
            })?;
            let (base, started) = (self.builder.fresh(Class::B32), self.builder.fresh(Class::Pred));
            self.tensor_memory.allocations.push(Allocation {
                ring,
                name,
                view,
                columns,
                address,
                base,
                started,
                known: false,
            });
        }
        Ok(())
    }

    fn address_place(&self, buffer: usize) -> Address {
        let offset = self.buffers[buffer].desc.offset.into();
        Address { base: Base::Symbol(crate::lower::SHARED.into()), offset }
    }

    fn in_first_warp(&mut self, site: Site<'_>, emit: impl FnOnce(&mut Self)) -> Result<()> {
        let warp = Value::Scalar(self.warp());
        let first = self.binary(&BinOp::Eq(Default::default()), warp, Value::u32(0), site)?;
        let first = self.scalar(&first, Some(Elem::Bool), site)?;
        let then = |this: &mut Self| {
            this.place(site);
            emit(this);
            Ok(Value::Unit)
        };
        self.branch(first, site, then, |_| Ok(Value::Unit)).map(|_| ())
    }

    /// Reads the addresses that allocations have written: behind the barrier that publishes the mbarriers of their rings.
    pub(super) fn read_addresses(&mut self) {
        for index in 0..self.tensor_memory.allocations.len() {
            let allocation = &mut self.tensor_memory.allocations[index];
            if std::mem::replace(&mut allocation.known, true) {
                continue;
            }
            let (base, buffer) = (allocation.base, allocation.address);
            let address = self.address_place(buffer);
            self.builder.inst(Ld {
                strength: None,
                scope: None,
                space: Some(Space::Shared),
                cache: None,
                nc: NonCoherent(false),
                l1: None,
                hint: CacheHint(false),
                prefetch: None,
                vector: None,
                ty: Type::B32,
                dst: DstList(vec![Some(base)]),
                address,
                policy: None,
            });
        }
    }

    /// The end of the kernel: frees all columns.
    pub(super) fn free_tensor_memory(&mut self) -> Result<()> {
        if self.tensor_memory.allocations.is_empty() {
            return Ok(());
        }
        if let Some(place) = self.cluster.returned {
            return Err(Diagnostic::new(921, place, "a CTA leaves without freeing its tensor memory")
                .help("put the rest of the kernel under a condition, so that every CTA comes to its end"));
        }
        let kernel = self.kernel;
        let site = Site::Tokens(&kernel.name);
        self.publish_barriers(site)?;
        self.tensor_fence(TmemFence::Before);
        self.builder.sync(Sync::Cta);
        let freed: Vec<(Reg, u32)> = self.tensor_memory.allocations.iter().map(|a| (a.base, a.columns)).collect();
        self.in_first_warp(site, |this| {
            let (group, sync) = (CtaGroup::One, SyncAligned::SyncAligned);
            this.tensor_fence(TmemFence::After);
            this.builder.inst(TmemRelinquish { group, sync });
            for (base, columns) in freed {
                let (address, columns) = (base.into(), Src::Imm(columns.into()));
                this.builder.inst(TmemDealloc { group, sync, ty: Type::B32, address, columns });
            }
        })
    }

    pub(super) fn tensor_fence(&mut self, side: TmemFence) {
        self.builder.inst(Tcgen05Fence { side });
    }

    /// True if the stages of a ring are accumulators.
    pub(super) fn is_tensor_memory(&self, ring: usize) -> bool {
        self.tensor_memory.allocations.iter().any(|a| a.is_of(ring))
    }

    /// An accumulator of a slot.
    pub(super) fn slot_accumulator(&self, slot: &Slot, name: &str) -> Value {
        let Some(found) = self.tensor_memory.allocations.iter().position(|a| a.ring == slot.ring && a.name == name)
        else {
            return Value::Unit;
        };
        let view = &self.tensor_memory.allocations[found].view;
        let view = TmemView { memory: Some(found), stage: slot.stage.clone(), slot: Some(slot.id), ..view.clone() };
        Value::Tmem(Box::new(view))
    }

    /// The allocation of an accumulator whose stage is held by a side of its ring.
    pub(super) fn held(&self, view: &TmemView, side: usize, site: Site<'_>) -> Result<Allocation> {
        let (Some(memory), Some(slot)) = (view.memory, view.slot) else {
            return Err(Diagnostic::new(920, site, "this accumulator is no stage of a pipeline").help(
                "write `Pipeline::<mma, epilogue> { d: tmem::<f32, 128, N, STAGES>() }` and take a stage of it",
            ));
        };
        let holding = &self.holdings[slot as usize];
        if holding.side != side || holding.done {
            let what = [
                "products are added to an accumulator between `acquire` and `commit`",
                "an accumulator is read between `wait` and `release`",
            ];
            return Err(Diagnostic::new(920, site, what[side]));
        }
        Ok(self.tensor_memory.allocations[memory].clone())
    }

    /// Address of the stage of an accumulator.
    pub(super) fn accumulator_address(&mut self, base: Reg, view: &TmemView, site: Site<'_>) -> Result<Reg> {
        let columns = Src::Imm(view.n.into());
        match view.stage.as_int() {
            Some(0) => Ok(base),
            _ => {
                let stage = self.scalar(&view.stage, Some(Elem::U32), site)?;
                Ok(self.builder.pure(Class::B32, |dst| {
                    let b = columns.clone();
                    Mad { half: Half::Lo, ty: Type::U32, dst, a: stage.src(), b, c: base.into() }.into()
                }))
            }
        }
    }

    /// `slot.d.load_v::<N>(column)`: N columns of row `32 * (warp % 4) + lane`.
    pub(super) fn tmem_load(&mut self, view: &TmemView, lanes: u64, args: &[&Expr], site: Site<'_>) -> Result<Value> {
        let allocation = self.held(view, 1, site)?;
        self.four_warps(site)?;
        let [column] = self.arguments("load_v", args, site)?;
        let shapes = [
            TmemShape::B32x1,
            TmemShape::B32x2,
            TmemShape::B32x4,
            TmemShape::B32x8,
            TmemShape::B32x16,
            TmemShape::B32x32,
            TmemShape::B32x64,
            TmemShape::B32x128,
        ];
        let Some(shape) = shapes.into_iter().find(|shape| shape.registers() as u64 == lanes) else {
            return Err(Diagnostic::new(451, site, format!("{lanes} columns of tensor memory"))
                .help("1, 2, 4 … 128 columns can be read at once: `load_v::<32>(column)`"));
        };
        if let Some(first) = column.as_int()
            && (first < 0 || first + i128::from(lanes) > i128::from(view.n))
        {
            return Err(Diagnostic::new(
                154,
                site,
                format!("columns {first} to {} of {}", first + i128::from(lanes), view.n),
            ));
        }
        if column.uniform() > Uniform::Warp {
            return Err(Diagnostic::new(350, site, "the column is the same in all lanes of a warp"));
        }
        self.place(site);
        let start = self.accumulator_address(allocation.base, view, site)?;
        let warp = Value::Scalar(self.warp());
        let quarter = self.binary(&BinOp::Rem(Default::default()), warp, Value::u32(4), site)?;
        // A row is a lane, in the upper half of the address.
        let rows = self.binary(&BinOp::Mul(Default::default()), quarter, Value::u32(32 << 16), site)?;
        let offset = self.binary(&BinOp::Add(Default::default()), rows, column, site)?;
        let start = Value::Scalar(Scalar::new(Elem::U32, start, Uniform::Cta));
        let address = self.binary(&BinOp::Add(Default::default()), start, offset, site)?;
        let address = self.scalar(&address, Some(Elem::U32), site)?;
        let registers: Vec<Reg> = (0..lanes).map(|_| self.builder.fresh(Class::B32)).collect();
        let sync = SyncAligned::SyncAligned;
        self.builder.inst(TmemLoad {
            sync,
            shape,
            ty: Type::B32,
            dst: OutList(registers.clone()),
            address: Address { base: Base::Reg(address.reg), offset: 0 },
        });
        self.builder.inst(TmemWait { access: TmemAccess::Load, sync });
        let value = |reg| Value::Scalar(Scalar::new(Elem::F32, reg, Uniform::Thread));
        Ok(Value::Array(registers.into_iter().map(value).collect()))
    }

    /// Whole warpgroups run here, warp by warp.
    fn four_warps(&self, site: Site<'_>) -> Result<()> {
        let (first, warps) = match self.roles.as_deref() {
            Some([role]) => (self.resolved.roles[*role].first_warp, self.resolved.roles[*role].warps),
            _ => (0, self.resolved.block / 32),
        };
        if first % 4 != 0 || warps % 4 != 0 || self.elected || self.control() > Uniform::Warp {
            return Err(Diagnostic::new(905, site, "tensor memory is read by whole warpgroups, each warp its 32 rows")
                .help("begin and end the role at warps 0, 4, 8 …, and let all lanes of a warp take part"));
        }
        Ok(())
    }
}
