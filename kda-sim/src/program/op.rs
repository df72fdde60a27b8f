//! Pre-decoded operations: every operand is a register number, immediates included.

use crate::alu::lanes::{Args, CompareFn, LaneFn};
use kda_ptx::modifier::{AtomicOp, ReduxOp, ShuffleMode, Type, VoteMode};

/// No guard.
pub const NO_GUARD: u16 = u16::MAX;
/// The guard is `@!`.
pub const GUARD_NEGATED: u16 = 1 << 15;
/// No register.
pub const NONE: u16 = u16::MAX;
/// Most instructions of a kernel: the number of an instruction stands in 19 bits of a shadow cell.
pub const MAX_OPS: usize = 1 << 19;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Guard predicate, perhaps with [`GUARD_NEGATED`], or [`NO_GUARD`].
    pub guard: u16,
    /// What it does.
    pub kind: Kind,
}

/// A memory operand.
#[derive(Clone, Copy, Debug)]
pub struct AddressRef {
    /// Base register; in the 64-bit file if `wide`.
    pub base: u16,
    /// The base is a 64-bit register.
    pub wide: bool,
    /// Space.
    pub space: MemSpace,
    /// Bytes added.
    pub offset: i32,
}

/// State space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemSpace {
    /// Global memory.
    Global,
    /// Shared memory of the CTA: `.shared` and `.shared::cta`.
    Shared,
    /// Shared memory of the CTA or of its cluster: `.shared::cluster`.
    Cluster,
    /// Decided by each address.
    Generic,
}

impl MemSpace {
    /// True for shared memory, of whatever CTA.
    #[inline(always)]
    pub fn is_shared(self) -> bool {
        matches!(self, MemSpace::Shared | MemSpace::Cluster)
    }
}

/// Order of a memory operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemOrder {
    /// Ordinary.
    Weak,
    /// Strong, without order.
    Relaxed,
    /// Acquires.
    Acquire,
    /// Releases.
    Release,
    /// Both.
    AcqRel,
}

impl MemOrder {
    /// True if it acquires.
    pub fn acquires(self) -> bool {
        matches!(self, MemOrder::Acquire | MemOrder::AcqRel)
    }
    /// True if it releases.
    pub fn releases(self) -> bool {
        matches!(self, MemOrder::Release | MemOrder::AcqRel)
    }
    /// True for all but ordinary accesses.
    pub fn strong(self) -> bool {
        self != MemOrder::Weak
    }
}

/// Threads among which an order holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemScope {
    /// Those of the CTA.
    Cta,
    /// Those of the cluster.
    Cluster,
    /// All.
    Gpu,
}

/// Shape of a load or store.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Number of elements of a lane.
    pub count: u8,
    /// Sign-extend.
    pub signed: bool,
    /// Registers are 64 bits wide.
    pub wide: bool,
    /// Registers are 16 bits wide.
    pub half: bool,
}

impl Elements {
    /// Bytes of a lane.
    #[inline(always)]
    pub fn size(self) -> usize {
        self.bytes as usize * self.count as usize
    }
}

/// What a mbarrier operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierOp {
    /// `init`, with the count in `x`.
    Init,
    /// `inval`
    Inval,
    /// `arrive`, with the count in `x`.
    Arrive,
    /// `arrive.expect_tx`, with the bytes in `x`.
    ArriveExpectTx,
    /// `expect_tx`, with the bytes in `x`.
    ExpectTx,
    /// `try_wait.parity`, with the parity in `x`.
    TryWait,
    /// `test_wait.parity`, with the parity in `x`.
    TestWait,
}

/// What an operation does, with its operands.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Register to register.
    Alu { f: LaneFn, args: Args },
    /// `setp`: `args.d` and `args.c` are the predicate and its complement, or [`NONE`]; `wide` for 64-bit sources.
    Compare { f: CompareFn, args: Args, wide: bool, combine: Logic, pred: u16, negated: bool },
    /// Logic of predicates.
    PredLogic { op: Logic, d: u16, a: u16, b: u16 },
    /// `selp` of 16 or 32 bits.
    Select32 { d: u16, a: u16, b: u16, pred: u16, negated: bool },
    /// `selp` of 64 bits.
    Select64 { d: u16, a: u16, b: u16, pred: u16, negated: bool },
    /// A clock into a 64-bit register; in nanoseconds or cycles.
    Clock { d: u16 },
    /// Branch; `uniform` if it is marked `.uni`.
    Bra { target: u32, uniform: bool },
    /// End of the thread.
    Exit,
    /// Error.
    Trap,
    /// Nothing.
    Nop,
    /// `nanosleep`: lets others run.
    Yield,
    /// `ld.param`
    LoadParam { elements: Elements, list: u32, offset: u32 },
    /// `ld`; `constant` if it is marked `.nc`.
    Load { address: AddressRef, elements: Elements, list: u32, order: MemOrder, scope: MemScope, constant: bool },
    /// `st`
    Store { address: AddressRef, elements: Elements, list: u32, order: MemOrder, scope: MemScope },
    /// `atom`, or `red` where `d` is [`NONE`].
    Atomic { address: AddressRef, op: AtomicOp, ty: Type, d: u16, b: u16, c: u16, order: MemOrder, scope: MemScope },
    /// `shfl.sync`
    Shuffle { mode: ShuffleMode, d: u16, pred: u16, a: u16, lane: u16, clamp: u16, members: u16 },
    /// `shfl.sync` of the whole warp whose sources are constants: number of the permutation.
    Permute { permutation: u32, d: u16, pred: u16, a: u16, members: u16 },
    /// `vote.sync`
    Vote { mode: VoteMode, d: u16, pred: u16, negated: bool, members: u16 },
    /// `redux.sync`
    Redux { op: ReduxOp, signed: bool, d: u16, a: u16, members: u16 },
    /// `elect.sync`
    Elect { d: u16, pred: u16, members: u16 },
    /// `activemask`
    ActiveMask { d: u16 },
    /// `bar.warp.sync`
    BarWarp { members: u16 },
    /// `bar.sync`; threads may be [`NONE`].
    BarSync { barrier: u16, threads: u16 },
    /// `bar.arrive`
    BarArrive { barrier: u16, threads: u16 },
    /// `barrier.cluster.arrive`
    ClusterArrive { release: bool },
    /// `barrier.cluster.wait`
    ClusterWait,
    /// `fence.acq_rel` and `fence.sc`
    Fence { scope: MemScope },
    /// `fence.proxy.async`, for the spaces named.
    ProxyFence { shared: bool, global: bool },
    /// `fence.mbarrier_init`
    InitFence,
    /// An mbarrier operation.
    Mbarrier { op: MbarrierOp, address: AddressRef, x: u16, d: u16, order: MemOrder },
    /// `cp.async.bulk` from shared to global memory.
    BulkStore { dst: AddressRef, src: AddressRef, bytes: u16 },
    /// `cp.async.bulk` from global to shared memory.
    BulkLoad { dst: AddressRef, src: AddressRef, bytes: u16, barrier: AddressRef },
    /// `cp.async.bulk.commit_group`
    BulkCommit,
    /// `cp.async.bulk.wait_group`
    BulkWait { pending: u32, read: bool },
    /// A tensor copy: number in [`super::details::Details`].
    TensorCopy { detail: u32 },
    /// `cp.reduce.async.bulk` from shared to global memory.
    BulkReduce { dst: AddressRef, src: AddressRef, bytes: u16, op: AtomicOp },
    /// `prefetch.tensormap`
    PrefetchMap { map: u16 },
    /// `cp.async`; the number of bytes read, or [`NONE`] for all.
    ThreadCopy { dst: AddressRef, src: AddressRef, bytes: u8, size: u16 },
    /// `cp.async.commit_group`
    ThreadCommit,
    /// `cp.async.wait_group`
    ThreadWait { pending: u32 },
    /// `cp.async.mbarrier.arrive.noinc`
    ThreadArrive { address: AddressRef },
    /// `ldmatrix`
    LoadMatrix { address: AddressRef, list: u32, count: u8, transposed: bool },
    /// `stmatrix`
    StoreMatrix { address: AddressRef, list: u32, count: u8, transposed: bool },
    /// `movmatrix`
    MoveMatrix { d: u16, a: u16 },
    /// `mma.sync`: number of the detail.
    WarpProduct { detail: u32 },
    /// `wgmma.fence`
    ProductFence,
    /// `wgmma.mma_async`: number of the detail.
    Product { detail: u32 },
    /// `wgmma.commit_group`
    ProductCommit,
    /// `wgmma.wait_group`
    ProductWait { pending: u32 },
    /// `tcgen05.alloc`
    TensorAlloc { address: AddressRef, columns: u16 },
    /// `tcgen05.dealloc`
    TensorFree { address: u16, columns: u16 },
    /// `tcgen05.relinquish_alloc_permit`
    TensorRelinquish,
    /// `tcgen05.mma`: number of the detail.
    TensorProduct { detail: u32 },
    /// `tcgen05.commit`
    TensorCommit { barrier: AddressRef },
    /// `tcgen05.ld`, or `tcgen05.st` where `store`.
    TensorAccess { address: u16, offset: i32, list: u32, count: u8, store: bool },
    /// `tcgen05.wait::ld` or `::st`.
    TensorWait { store: bool },
    /// `tcgen05.fence::after_thread_sync`, or `::before_thread_sync`.
    TensorFence { after: bool },
    /// `setmaxnreg`
    SetRegisters { count: u16, increase: bool },
    /// `griddepcontrol.launch_dependents`
    LaunchDependents,
    /// `griddepcontrol.wait`
    DependencyWait,
}

/// Source lanes of a shuffle, and the lanes whose source is in range.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    /// Source lane of each lane.
    pub from: [u8; 32],
    /// Lanes whose source is in range; the others keep their own value.
    pub inside: u32,
}

impl Permutation {
    /// The permutation of a shuffle, from the lane and clamp operands of each lane.
    #[inline(always)]
    pub fn of(mode: ShuffleMode, lanes: &[u32; 32], clamps: &[u32; 32]) -> Permutation {
        let mut from = [0u8; 32];
        let mut inside = 0u32;
        for me in 0..32u32 {
            let (b, c) = (lanes[me as usize] & 31, clamps[me as usize]);
            let (limit, segment) = (c & 31, c >> 8 & 31);
            let last = (me & segment) | (limit & !segment);
            let first = me & segment;
            let (j, ok) = match mode {
                ShuffleMode::Up => (me.wrapping_sub(b), me as i32 - b as i32 >= last as i32),
                ShuffleMode::Down => (me + b, me + b <= last),
                ShuffleMode::Bfly => (me ^ b, (me ^ b) <= last),
                ShuffleMode::Idx => (first | (b & !segment), (first | (b & !segment)) <= last),
            };
            from[me as usize] = if ok { j & 31 } else { me } as u8;
            inside |= u32::from(ok) << me;
        }
        Permutation { from, inside }
    }
}

/// Logic of predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    /// The first operand alone.
    First,
    /// Both.
    And,
    /// Either.
    Or,
    /// One of the two.
    Xor,
    /// The first operand negated.
    Not,
}
