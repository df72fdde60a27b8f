//! The instruction table.
//!
//! One row an instruction: `method: Struct = "mnemonic" [ modifiers in opcode order ] ( operands ) gate;`. Several rows may
//! share a mnemonic: the parser takes the first whose modifiers and operands fit. Source: PTX ISA 9.0.

use crate::gate::Gate;
use crate::modifier::*;
use crate::operand::*;
use crate::parse::{Cursor, ParseError};
use crate::sample::Sample;
use kda_core::Arch;

const ANY: Gate = Gate::NONE;
const HOPPER: Gate = Gate::new(8, 0, Arch::SM_90);
const HOPPER_A: Gate = Gate::new(8, 0, Arch::SM_90A);
const BLACKWELL: Gate = Gate::new(8, 6, Arch::SM_100F);
const MBARRIER: Gate = Gate::new(7, 0, Arch::SM_80);
/// mbarriers with an order and a shared window; `.relaxed`, and a count of arrivals, are of `sm_90`.
const MBARRIER_8: Gate = Gate::new(8, 0, Arch::SM_80);

instructions! {
    // ---- Moves and conversions
    /// `d = a`; a symbol gives its address.
    mov: Mov = "mov" [ty: Type] (dst: Dst, src: Src) ANY;
    /// Splits a wide register into the listed narrow ones, lowest first.
    unpack: Unpack = "mov" [ty: Type] (dst: DstList, src: Src) ANY;
    /// Joins the listed narrow registers into a wide one, lowest first.
    pack: Pack = "mov" [ty: Type] (dst: Dst, src: SrcList) ANY;
    /// Converts `a`; with `b`, packs both: `a` into the upper half, `b` into the lower.
    cvt: Cvt = "cvt" [round: Option<Round>, relu: Relu, ftz: Ftz, sat: Sat, to: Type, from: Type] (dst: Dst, a: Src, b: Option<Src>) ANY;
    /// Converts between generic addresses and those of a state space.
    cvta: Cvta = "cvta" [to: To, space: Space, ty: Type] (dst: Dst, src: Src) ANY;
    /// `d = p ? a : b`
    selp: Selp = "selp" [ty: Type] (dst: Dst, a: Src, b: Src, pred: PredSrc) ANY;
    /// Picks four bytes of `b:a` by the nibbles of `selector`.
    prmt: Prmt = "prmt.b32" [] (dst: Dst, a: Src, b: Src, selector: Src) ANY;

    // ---- Arithmetic
    /// `d = a + b`
    add: Add = "add" [round: Option<Round>, ftz: Ftz, sat: Sat, ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// `d = a - b`
    sub: Sub = "sub" [round: Option<Round>, ftz: Ftz, sat: Sat, ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// `d = a * b`, or a half of it, or all of it in twice the width.
    mul: Mul = "mul" [half: Option<Half>, round: Option<Round>, ftz: Ftz, sat: Sat, ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// `d = a * b + c` in integers.
    mad: Mad = "mad" [half: Half, ty: Type] (dst: Dst, a: Src, b: Src, c: Src) ANY;
    /// `d = a * b + c`, rounded once.
    fma: Fma = "fma" [round: Round, ftz: Ftz, sat: Sat, ty: Type] (dst: Dst, a: Src, b: Src, c: Src) ANY;
    /// `d = a / b`
    div: Div = "div" [accuracy: Option<Accuracy>, ftz: Ftz, ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// Integer remainder.
    rem: Rem = "rem" [ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// `d = -a`
    neg: Neg = "neg" [ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// `d = |a|`
    abs: Abs = "abs" [ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// The smaller; of a NaN and a number the number, unless `.NaN`.
    min: Min = "min" [ftz: Ftz, nan: Nan, ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// The larger; of a NaN and a number the number, unless `.NaN`.
    max: Max = "max" [ftz: Ftz, nan: Nan, ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// `d = 1 / a`
    rcp: Rcp = "rcp" [accuracy: Accuracy, ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// `d = sqrt a`
    sqrt: Sqrt = "sqrt" [accuracy: Accuracy, ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// `d = 1 / sqrt a`
    rsqrt: Rsqrt = "rsqrt.approx" [ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// `d = 2^a`
    ex2: Ex2 = "ex2.approx" [ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// `d = log2 a`
    lg2: Lg2 = "lg2.approx" [ftz: Ftz, ty: Type] (dst: Dst, a: Src) ANY;
    /// `d = tanh a`
    tanh: Tanh = "tanh.approx" [ty: Type] (dst: Dst, a: Src) ANY;

    // ---- Bits
    /// Bitwise and; of predicates the logical one.
    and: And = "and" [ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// Bitwise or; of predicates the logical one.
    or: Or = "or" [ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// Bitwise exclusive or; of predicates the logical one.
    xor: Xor = "xor" [ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// Bitwise not; of a predicate the logical one.
    not: Not = "not" [ty: Type] (dst: Dst, a: Src) ANY;
    /// Shift left; amounts past the width give 0.
    shl: Shl = "shl" [ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// Shift right, filling with the sign of signed types.
    shr: Shr = "shr" [ty: Type] (dst: Dst, a: Src, b: Src) ANY;
    /// Funnel shift of `b:a`.
    shf: Shf = "shf" [direction: FunnelShift, mode: FunnelMode, ty: Type] (dst: Dst, a: Src, b: Src, c: Src) ANY;
    /// Any function of three bits, given as its truth table.
    lop3: Lop3 = "lop3.b32" [] (dst: Dst, a: Src, b: Src, c: Src, table: Src) ANY;
    /// Extracts `length` bits from `start`.
    bfe: Bfe = "bfe" [ty: Type] (dst: Dst, a: Src, start: Src, length: Src) ANY;
    /// Inserts the low `length` bits of `a` into `b` at `start`.
    bfi: Bfi = "bfi" [ty: Type] (dst: Dst, a: Src, b: Src, start: Src, length: Src) ANY;
    /// Number of ones.
    popc: Popc = "popc" [ty: Type] (dst: Dst, a: Src) ANY;
    /// Number of leading zeros.
    clz: Clz = "clz" [ty: Type] (dst: Dst, a: Src) ANY;
    /// Bits in reverse order.
    brev: Brev = "brev" [ty: Type] (dst: Dst, a: Src) ANY;

    // ---- Comparison and control
    /// Compares `a` with `b`.
    setp: Setp = "setp" [compare: Compare, ftz: Ftz, ty: Type] (dst: DstAndPred, a: Src, b: Src) ANY;
    /// Compares `a` with `b` and combines the outcome with a predicate.
    setp_combine: SetpCombine = "setp" [compare: Compare, combine: Combine, ftz: Ftz, ty: Type] (dst: DstAndPred, a: Src, b: Src, c: PredSrc) ANY;
    /// Branches.
    bra: Bra = "bra" [uni: Uniform] (target: Label) ANY;
    /// Ends the thread.
    exit: Exit = "exit" [] () ANY;
    /// Returns from the kernel.
    ret: Ret = "ret" [] () ANY;
    /// Stops the kernel with an error.
    trap: Trap = "trap" [] () ANY;
    /// Suspends the thread for about so many nanoseconds.
    nanosleep: Nanosleep = "nanosleep.u32" [] (duration: Src) ANY;

    // ---- Memory
    /// Loads one element or a vector.
    ld: Ld = "ld" [strength: Option<Strength>, scope: Option<Scope>, space: Option<Space>, cache: Option<CacheOperator>, nc: NonCoherent,
        l1: Option<L1Priority>, hint: CacheHint, prefetch: Option<L2Prefetch>, vector: Option<VectorWidth>, ty: Type]
        (dst: DstList, address: Address, policy: Option<Src>) ANY;
    /// Stores one element or a vector.
    st: St = "st" [strength: Option<Strength>, scope: Option<Scope>, space: Option<Space>, cache: Option<CacheOperator>, l1: Option<L1Priority>,
        hint: CacheHint, vector: Option<VectorWidth>, ty: Type]
        (address: Address, src: SrcList, policy: Option<Src>) ANY;
    /// Reads, combines and writes one element; gives the old value.
    atom: Atom = "atom" [order: Option<Order>, scope: Option<Scope>, space: Option<Space>, op: AtomicOp, ty: Type]
        (dst: Dst, address: Address, b: Src, c: Option<Src>) ANY;
    /// Reads, combines and writes one element.
    red: Red = "red" [order: Option<Order>, scope: Option<Scope>, space: Option<Space>, op: AtomicOp, ty: Type] (address: Address, b: Src) ANY;
    /// Brings a line into a cache.
    prefetch: Prefetch = "prefetch" [space: Option<Space>, level: PrefetchLevel] (address: Address) ANY;
    /// Makes an L2 cache policy for a fraction of the accesses.
    createpolicy: CreatePolicy = "createpolicy.fractional" [policy: L2Policy, ty: Type] (dst: Dst, fraction: Option<Src>) Gate::new(7, 4, Arch::SM_80);

    // ---- Warp
    /// Exchanges a value between lanes; the predicate tells whether the source lane was in range.
    shfl: Shfl = "shfl.sync" [mode: ShuffleMode, ty: Type] (dst: DstAndPred, a: Src, lane: Src, clamp: Src, members: Src) ANY;
    /// Votes over a predicate.
    vote: Vote = "vote.sync" [mode: VoteMode, ty: Type] (dst: Dst, pred: PredSrc, members: Src) ANY;
    /// Reduces an integer over lanes.
    redux: Redux = "redux.sync" [op: ReduxOp, ty: Type] (dst: Dst, a: Src, members: Src) ANY;
    /// Elects one lane: its number, and the predicate in it alone.
    elect: Elect = "elect.sync" [] (dst: DstAndPred, members: Src) HOPPER;
    /// Mask of the active lanes.
    activemask: ActiveMask = "activemask" [ty: Type] (dst: Dst) ANY;
    /// Waits for the lanes of the mask and orders their memory accesses.
    bar_warp: BarWarp = "bar.warp.sync" [] (members: Src) ANY;

    // ---- CTA and cluster barriers, fences
    /// Arrives at a barrier and waits.
    bar_sync: BarSync = "bar.sync" [] (barrier: Src, threads: Option<Src>) ANY;
    /// Arrives at a barrier.
    bar_arrive: BarArrive = "bar.arrive" [] (barrier: Src, threads: Src) ANY;
    /// Arrives at the cluster barrier.
    cluster_arrive: ClusterArrive = "barrier.cluster.arrive" [order: Option<Order>, aligned: Option<Aligned>] () HOPPER;
    /// Waits for the cluster barrier.
    cluster_wait: ClusterWait = "barrier.cluster.wait" [order: Option<Order>, aligned: Option<Aligned>] () HOPPER;
    /// Orders the thread's memory accesses.
    fence: Fence = "fence" [order: FenceOrder, scope: Scope] () ANY;
    /// Joins the generic proxy with another.
    fence_proxy: FenceProxy = "fence.proxy" [proxy: Proxy] () HOPPER;
    /// Makes mbarrier initialisations visible to the cluster and to the async proxy.
    fence_mbarrier_init: FenceMbarrierInit = "fence.mbarrier_init.release.cluster" [] () HOPPER;

    // ---- mbarriers
    /// Initialises an mbarrier with its number of arrivals.
    mbarrier_init: MbarrierInit = "mbarrier.init" [space: Option<Space>, ty: Type] (address: Address, count: Src) MBARRIER;
    /// Invalidates an mbarrier, so that its memory may be used otherwise.
    mbarrier_inval: MbarrierInval = "mbarrier.inval" [space: Option<Space>, ty: Type] (address: Address) MBARRIER;
    /// Arrives at an mbarrier; the state token is not kept.
    mbarrier_arrive: MbarrierArrive = "mbarrier.arrive" [order: Option<Order>, scope: Option<Scope>, space: Option<Space>, ty: Type]
        (state: Sink, address: Address, count: Option<Src>) MBARRIER_8;
    /// Adds to the expected bytes, then arrives.
    mbarrier_arrive_expect_tx: MbarrierArriveExpectTx = "mbarrier.arrive.expect_tx" [order: Option<Order>, scope: Option<Scope>, space: Option<Space>, ty: Type]
        (state: Sink, address: Address, bytes: Src) HOPPER;
    /// Adds to the expected bytes.
    mbarrier_expect_tx: MbarrierExpectTx = "mbarrier.expect_tx" [order: Order, scope: Option<Scope>, space: Option<Space>, ty: Type] (address: Address, bytes: Src) HOPPER;
    /// Tests for some time whether the phase of that parity has completed.
    mbarrier_try_wait: MbarrierTryWait = "mbarrier.try_wait.parity" [order: Option<Order>, scope: Option<Scope>, space: Option<Space>, ty: Type]
        (done: Dst, address: Address, parity: Src) HOPPER;
    /// Tests whether the phase of that parity has completed.
    mbarrier_test_wait: MbarrierTestWait = "mbarrier.test_wait.parity" [order: Option<Order>, scope: Option<Scope>, space: Option<Space>, ty: Type]
        (done: Dst, address: Address, parity: Src) MBARRIER_8;

    // ---- Bulk copies
    /// Copies bytes from shared to global memory; completion through the bulk group.
    bulk_store: BulkStore = "cp.async.bulk.global.shared::cta.bulk_group" [hint: CacheHint]
        (dst: Address, src: Address, bytes: Src, policy: Option<Src>) HOPPER;
    /// Copies bytes from global to shared memory; completion through an mbarrier.
    bulk_load: BulkLoad = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" [hint: CacheHint]
        (dst: Address, src: Address, bytes: Src, barrier: Address, policy: Option<Src>) HOPPER;
    /// Closes the thread's bulk group.
    bulk_commit: BulkCommit = "cp.async.bulk.commit_group" [] () HOPPER;
    /// Waits until at most `pending` of the thread's bulk groups are not done, or not read.
    bulk_wait: BulkWait = "cp.async.bulk.wait_group" [read: ReadOnly] (pending: Src) HOPPER;

    /// Adds f32 from shared to global memory, element by element; completion through the bulk group.
    bulk_reduce: BulkReduce = "cp.reduce.async.bulk.global.shared::cta.bulk_group" [op: AtomicOp, ty: Type]
        (dst: Address, src: Address, bytes: Src) HOPPER;
    /// Loads a box of a tensor into shared memory; completion through an mbarrier. Behind it the mask of a multicast and the
    /// cache policy of a hint.
    tensor_load: TensorLoad = "cp.async.bulk.tensor" [rank: TensorRank, path: TensorLoadPath, multicast: Multicast, hint: CacheHint]
        (dst: Address, src: TensorAddress, barrier: Address, more: Trailing) HOPPER;
    /// Stores a box of shared memory into a tensor; completion through the bulk group.
    tensor_store: TensorStore = "cp.async.bulk.tensor" [rank: TensorRank, path: TensorStorePath, hint: CacheHint]
        (dst: TensorAddress, src: Address, policy: Option<Src>) HOPPER;
    /// Combines a box of shared memory with a tensor; completion through the bulk group.
    tensor_reduce: TensorReduce = "cp.reduce.async.bulk.tensor" [rank: TensorRank, from: TensorReduceFrom, op: AtomicOp, to: TensorReduceTo]
        (dst: TensorAddress, src: Address) HOPPER;
    /// Brings a tensor map into the descriptor cache.
    prefetch_tensormap: PrefetchTensorMap = "prefetch.tensormap" [] (map: Address) HOPPER;

    // ---- Asynchronous copies by threads
    /// Copies 4, 8 or 16 bytes from global to shared memory; the rest after `size` bytes is filled with zeros.
    cp_async: CpAsync = "cp.async" [cache: AsyncCache] (dst: Address, src: Address, bytes: Src, size: Option<Src>) ANY;
    /// Closes the thread's group of copies.
    cp_async_commit: CpAsyncCommit = "cp.async.commit_group" [] () ANY;
    /// Waits until at most `pending` of the thread's groups of copies are not done.
    cp_async_wait: CpAsyncWait = "cp.async.wait_group" [] (pending: Src) ANY;
    /// Arrives at an mbarrier once all earlier copies of the thread are done.
    cp_async_arrive: CpAsyncArrive = "cp.async.mbarrier.arrive.noinc.shared::cta.b64" [] (address: Address) MBARRIER;

    // ---- Clusters
    /// The address of the same shared variable in another CTA of the cluster.
    mapa: Mapa = "mapa" [space: Space, ty: Type] (dst: Dst, address: Src, rank: Src) HOPPER;

    // ---- Matrices of a warp
    /// Loads 8x8 matrices of 16-bit elements, a row address a lane.
    ldmatrix: LdMatrix = "ldmatrix.sync.aligned.m8n8" [count: MatrixCount, trans: Trans, space: Space, ty: Type] (dst: OutList, address: Address) ANY;
    /// Stores 8x8 matrices of 16-bit elements, a row address a lane.
    stmatrix: StMatrix = "stmatrix.sync.aligned.m8n8" [count: MatrixCount, trans: Trans, space: Space, ty: Type] (address: Address, src: RegList) Gate::new(7, 8, Arch::SM_90);
    /// Transposes an 8x8 matrix of 16-bit elements in registers.
    movmatrix: MovMatrix = "movmatrix.sync.aligned.m8n8.trans.b16" [] (dst: Dst, src: Src) Gate::new(7, 8, Arch::SM_80);
    /// D = A B + C on the tensor cores, a warp together.
    mma: Mma = "mma.sync.aligned" [kind: MmaKind] (d: OutList, a: RegList, b: RegList, c: RegList) ANY;

    // ---- Products of a warpgroup
    /// Orders the warpgroup's register accesses with the products that follow.
    wgmma_fence: WgmmaFence = "wgmma.fence.sync.aligned" [] () HOPPER_A;
    /// Closes the warpgroup's group of products.
    wgmma_commit: WgmmaCommit = "wgmma.commit_group.sync.aligned" [] () HOPPER_A;
    /// Waits until at most `pending` of the warpgroup's groups of products are not done.
    wgmma_wait: WgmmaWait = "wgmma.wait_group.sync.aligned" [] (pending: Src) HOPPER_A;
    /// D (+)= A B with A and B in shared memory. `scale_d` false overwrites D; negations are 1 or -1; transpositions of A and B, 0 or 1, for 16-bit
    /// operands.
    wgmma: Wgmma = "wgmma.mma_async.sync.aligned" [shape: WgmmaShape, ty: Type, inputs: WgmmaInputs]
        (d: Accumulators, a: Src, b: Src, scale_d: PredSrc, negate_a: Src, negate_b: Src, transpose: Trailing) HOPPER_A;
    /// D (+)= A B with A in registers and B in shared memory.
    wgmma_registers: WgmmaRegisters = "wgmma.mma_async.sync.aligned" [shape: WgmmaShape, ty: Type, inputs: WgmmaInputs]
        (d: Accumulators, a: RegList, b: Src, scale_d: PredSrc, negate_a: Src, negate_b: Src, transpose: Trailing) HOPPER_A;

    // ---- Tensor memory and products of one thread (Blackwell)
    /// Allocates columns of tensor memory; the address is written to shared memory. A whole warp executes it.
    tmem_alloc: TmemAlloc = "tcgen05.alloc" [group: CtaGroup, sync: SyncAligned, space: Space, ty: Type] (dst: Address, columns: Src) BLACKWELL;
    /// Frees columns of tensor memory. A whole warp executes it.
    tmem_dealloc: TmemDealloc = "tcgen05.dealloc" [group: CtaGroup, sync: SyncAligned, ty: Type] (address: Src, columns: Src) BLACKWELL;
    /// Gives up the right to allocate.
    tmem_relinquish: TmemRelinquish = "tcgen05.relinquish_alloc_permit" [group: CtaGroup, sync: SyncAligned] () BLACKWELL;
    /// D (+)= A B with D in tensor memory, A and B in shared memory.
    tcgen05_mma: Tcgen05Mma = "tcgen05.mma" [group: CtaGroup, kind: Tcgen05Kind] (d: TmemAddress, a: Src, b: Src, instruction: Src, accumulate: PredSrc) BLACKWELL;
    /// Makes an mbarrier track the completion of the thread's products so far.
    tcgen05_commit: Tcgen05Commit = "tcgen05.commit" [group: CtaGroup, arrive: CommitArrive, space: Option<Space>, ty: Type] (barrier: Address) BLACKWELL;
    /// Loads from tensor memory into registers; a warp reads its 32 lanes.
    tmem_load: TmemLoad = "tcgen05.ld" [sync: SyncAligned, shape: TmemShape, ty: Type] (dst: OutList, address: TmemAddress) BLACKWELL;
    /// Stores registers into tensor memory; a warp writes its 32 lanes.
    tmem_store: TmemStore = "tcgen05.st" [sync: SyncAligned, shape: TmemShape, ty: Type] (address: TmemAddress, src: RegList) BLACKWELL;
    /// Waits for the thread's tensor-memory accesses.
    tmem_wait: TmemWait = "tcgen05.wait" [access: TmemAccess, sync: SyncAligned] () BLACKWELL;
    /// Orders tcgen05 operations with a thread synchronisation.
    tcgen05_fence: Tcgen05Fence = "tcgen05.fence" [side: TmemFence] () BLACKWELL;

    // ---- Dependent launch and register reallocation
    /// Lets dependent grids start.
    launch_dependents: LaunchDependents = "griddepcontrol.launch_dependents" [] () Gate::new(7, 8, Arch::SM_90);
    /// Waits until the grids that this one depends on have completed and their writes are visible.
    dependency_wait: DependencyWait = "griddepcontrol.wait" [] () Gate::new(7, 8, Arch::SM_90);
    /// Changes the number of registers of a warpgroup's threads.
    setmaxnreg: SetMaxNReg = "setmaxnreg" [change: RegisterChange, sync: SyncAlignedU32] (count: Src) HOPPER_A;
}
