//! Pieces of an opcode: types, state spaces, rounding modes, scopes, cache hints.

use crate::gate::Gate;
use crate::sample::Sample;
use kda_core::Arch;

/// A piece of an opcode behind the mnemonic.
pub trait Modifier: Sized {
    /// Appends the piece, with its leading dot.
    fn print(&self, out: &mut String);
    /// Takes the piece from the front of what is left of the opcode; `None` if it is not there and must be.
    fn parse(suffixes: &mut Suffixes<'_>) -> Option<Self>;
    /// What the piece needs beyond its row.
    fn gate(&self) -> Gate;
}

impl<M: Modifier> Modifier for Option<M> {
    fn print(&self, out: &mut String) {
        if let Some(modifier) = self {
            modifier.print(out);
        }
    }
    fn parse(suffixes: &mut Suffixes<'_>) -> Option<Self> {
        Some(M::parse(suffixes))
    }
    fn gate(&self) -> Gate {
        self.as_ref().map_or(Gate::NONE, M::gate)
    }
}

/// The rest of an opcode while it is parsed: `.global.v4.f32`.
#[derive(Clone, Copy, Debug)]
pub struct Suffixes<'a>(pub &'a str);

impl<'a> Suffixes<'a> {
    /// True when all of the opcode has been understood.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the longest of the given pieces that ends at a dot or at the end.
    pub fn take_longest<T>(&mut self, pieces: impl IntoIterator<Item = (&'static str, T)>) -> Option<T> {
        let mut best: Option<(&'static str, T)> = None;
        for (text, value) in pieces {
            let Some(rest) = self.0.strip_prefix(text) else { continue };
            if (rest.is_empty() || rest.starts_with('.')) && best.as_ref().is_none_or(|(b, _)| text.len() > b.len()) {
                best = Some((text, value));
            }
        }
        let (text, value) = best?;
        self.0 = &self.0[text.len()..];
        Some(value)
    }
}

const ISA_7_4: Gate = Gate::new(7, 4, Arch::SM_80);
const SM_90: Gate = Gate::new(7, 8, Arch::SM_90);

modifiers! {
    /// Operand type.
    Type {
        Pred = ".pred",
        B8 = ".b8", B16 = ".b16", B32 = ".b32", B64 = ".b64", B128 = ".b128" @ Gate::new(8, 3, Arch::SM_80),
        U8 = ".u8", U16 = ".u16", U32 = ".u32", U64 = ".u64",
        S8 = ".s8", S16 = ".s16", S32 = ".s32", S64 = ".s64",
        F16 = ".f16", F16x2 = ".f16x2", Bf16 = ".bf16", Bf16x2 = ".bf16x2", Tf32 = ".tf32",
        F32 = ".f32", F64 = ".f64",
    }
    /// State space of a memory access.
    Space {
        Global = ".global", Shared = ".shared", SharedCta = ".shared::cta" @ Gate::new(7, 8, Arch::SM_80),
        SharedCluster = ".shared::cluster" @ SM_90, Param = ".param", Const = ".const", Local = ".local",
    }
    /// Number of elements of a vector access.
    VectorWidth { V2 = ".v2", V4 = ".v4", V8 = ".v8" @ Gate::new(8, 8, Arch::SM_100) }
    /// Strength of a memory access.
    Strength { Weak = ".weak", Relaxed = ".relaxed", Acquire = ".acquire", Release = ".release", AcqRel = ".acq_rel", Volatile = ".volatile" }
    /// Memory order of an atomic.
    Order { Relaxed = ".relaxed", Acquire = ".acquire", Release = ".release", AcqRel = ".acq_rel" }
    /// Order of a fence.
    FenceOrder { Sc = ".sc", AcqRel = ".acq_rel" }
    /// Threads among which an order holds.
    Scope { Cta = ".cta", Cluster = ".cluster" @ SM_90, Gpu = ".gpu", Sys = ".sys" }
    /// Cache operator.
    CacheOperator { Ca = ".ca", Cg = ".cg", Cs = ".cs", Cv = ".cv", Wb = ".wb", Wt = ".wt", Lu = ".lu" }
    /// L1 eviction priority.
    L1Priority {
        EvictNormal = ".L1::evict_normal" @ ISA_7_4, EvictUnchanged = ".L1::evict_unchanged" @ ISA_7_4,
        EvictFirst = ".L1::evict_first" @ ISA_7_4, EvictLast = ".L1::evict_last" @ ISA_7_4,
        NoAllocate = ".L1::no_allocate" @ ISA_7_4,
    }
    /// L2 prefetch size.
    L2Prefetch { B64 = ".L2::64B" @ ISA_7_4, B128 = ".L2::128B" @ ISA_7_4, B256 = ".L2::256B" @ ISA_7_4 }
    /// Rounding of a floating-point operation.
    Round { Rn = ".rn", Rz = ".rz", Rm = ".rm", Rp = ".rp", Rna = ".rna", Rni = ".rni", Rzi = ".rzi", Rmi = ".rmi", Rpi = ".rpi" }
    /// Accuracy of a transcendental or a division: an approximation, or a rounding.
    Accuracy { Approx = ".approx", Full = ".full", Rn = ".rn", Rz = ".rz", Rm = ".rm", Rp = ".rp" }
    /// Half of an integer product.
    Half { Lo = ".lo", Hi = ".hi", Wide = ".wide" }
    /// Comparison.
    Compare {
        Eq = ".eq", Ne = ".ne", Lt = ".lt", Le = ".le", Gt = ".gt", Ge = ".ge",
        Equ = ".equ", Neu = ".neu", Ltu = ".ltu", Leu = ".leu", Gtu = ".gtu", Geu = ".geu", Num = ".num", Nan = ".nan",
    }
    /// Combination of a comparison with a further predicate.
    Combine { And = ".and", Or = ".or", Xor = ".xor" }
    /// Source lane of a shuffle.
    ShuffleMode { Up = ".up", Down = ".down", Bfly = ".bfly", Idx = ".idx" }
    /// What a vote tells.
    VoteMode { All = ".all", Any = ".any", Uni = ".uni", Ballot = ".ballot" }
    /// Operation of a warp reduction.
    ReduxOp { Add = ".add", Min = ".min", Max = ".max", And = ".and", Or = ".or", Xor = ".xor" }
    /// Operation of an atomic.
    AtomicOp {
        Add = ".add", Inc = ".inc", Dec = ".dec", Min = ".min", Max = ".max", And = ".and", Or = ".or", Xor = ".xor",
        Exch = ".exch", Cas = ".cas",
    }
    /// Direction of a funnel shift.
    FunnelShift { Left = ".l", Right = ".r" }
    /// Treatment of funnel-shift amounts above 31.
    FunnelMode { Clamp = ".clamp", Wrap = ".wrap" }
    /// L2 policy of `createpolicy`.
    L2Policy {
        EvictFirst = ".L2::evict_first", EvictLast = ".L2::evict_last", EvictNormal = ".L2::evict_normal",
        EvictUnchanged = ".L2::evict_unchanged",
    }
    /// Cache level of a prefetch.
    PrefetchLevel { L1 = ".L1", L2 = ".L2" }
    /// Proxies joined by a proxy fence.
    Proxy {
        Async = ".async", AsyncGlobal = ".async.global", AsyncSharedCta = ".async.shared::cta",
        AsyncSharedCluster = ".async.shared::cluster", Alias = ".alias",
    }
    /// Direction of `setmaxnreg`.
    RegisterChange { Inc = ".inc", Dec = ".dec" }
    /// Alignment claim of a barrier: every thread of the warp executes it.
    Aligned { Aligned = ".aligned" }
    /// The fixed end of `setmaxnreg`.
    SyncAlignedU32 { SyncAlignedU32 = ".sync.aligned.u32" }
    /// Rank of a tensor copy.
    TensorRank { D1 = ".1d", D2 = ".2d", D3 = ".3d", D4 = ".4d", D5 = ".5d" }
    /// Direction and completion of a tensor load.
    TensorLoadPath { Tile = ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" }
    /// Direction and completion of a tensor store.
    TensorStorePath { Tile = ".global.shared::cta.tile.bulk_group" }
    /// Direction and completion of a tensor reduction: `.add` and the rest stand between them.
    TensorReduceFrom { SharedCta = ".global.shared::cta" }
    /// Completion of a tensor reduction.
    TensorReduceTo { Tile = ".tile.bulk_group" }
    /// Caches of a `cp.async`: all levels, or L2 alone.
    AsyncCache { Ca = ".ca.shared.global", Cg = ".cg.shared.global" }
    /// Number of 8x8 matrices.
    MatrixCount { X1 = ".x1", X2 = ".x2", X4 = ".x4" }
    /// Operand types of a warpgroup product, after the accumulator's.
    WgmmaInputs { Bf16 = ".bf16.bf16", F16 = ".f16.f16", Tf32 = ".tf32.tf32" }
    /// Shape and operand types of a warp product with f32 accumulators.
    MmaKind {
        Bf16K16 = ".m16n8k16.row.col.f32.bf16.bf16.f32", F16K16 = ".m16n8k16.row.col.f32.f16.f16.f32",
        Bf16K8 = ".m16n8k8.row.col.f32.bf16.bf16.f32", Tf32K8 = ".m16n8k8.row.col.f32.tf32.tf32.f32",
        Tf32K4 = ".m16n8k4.row.col.f32.tf32.tf32.f32",
    }
    /// CTAs that take part in a tcgen05 operation.
    CtaGroup { One = ".cta_group::1", Two = ".cta_group::2" }
    /// Every thread of the warp executes it.
    SyncAligned { SyncAligned = ".sync.aligned" }
    /// How a commit reaches its mbarrier.
    CommitArrive { One = ".mbarrier::arrive::one" }
    /// Operand types of a tcgen05 product.
    Tcgen05Kind { F16 = ".kind::f16", Tf32 = ".kind::tf32" }
    /// Lanes and bits of a tensor-memory access, and how often it repeats along the columns.
    TmemShape {
        B32x1 = ".32x32b.x1", B32x2 = ".32x32b.x2", B32x4 = ".32x32b.x4", B32x8 = ".32x32b.x8", B32x16 = ".32x32b.x16",
        B32x32 = ".32x32b.x32", B32x64 = ".32x32b.x64", B32x128 = ".32x32b.x128",
    }
    /// Which tensor-memory accesses a wait is for.
    TmemAccess { Load = "::ld", Store = "::st" }
    /// Side of a thread synchronisation that a tcgen05 fence stands on.
    TmemFence { Before = "::before_thread_sync", After = "::after_thread_sync" }
}

flags! {
    /// Subnormal results become zero.
    Ftz = ".ftz",
    /// The result is clamped to [0, 1], or to the type's range.
    Sat = ".sat",
    /// Read-only data path.
    NonCoherent = ".nc",
    /// The access carries an L2 cache policy as its last operand.
    CacheHint = ".L2::cache_hint" @ ISA_7_4,
    /// The branch is taken by all threads of the warp or by none.
    Uniform = ".uni",
    /// Wait only until the source of bulk copies has been read.
    ReadOnly = ".read",
    /// Conversion to a state space's addresses instead of from them.
    To = ".to",
    /// The NaN operand is returned instead of the number.
    Nan = ".NaN" @ Gate::new(7, 0, Arch::SM_80),
    /// Negative results become zero.
    Relu = ".relu",
    /// The load goes to the CTAs of a mask.
    Multicast = ".multicast::cluster",
    /// The matrices are transposed.
    Trans = ".trans",
}

impl Type {
    /// Size in bytes of one element in memory; 1 for a predicate.
    pub const fn bytes(self) -> u32 {
        match self {
            Type::Pred | Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 2,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
            Type::B128 => 16,
        }
    }

    /// True for signed integers.
    pub const fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// True for floating point.
    pub const fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::Tf32 | Type::F32 | Type::F64)
    }
}

impl VectorWidth {
    /// Number of elements.
    pub const fn lanes(self) -> usize {
        match self {
            VectorWidth::V2 => 2,
            VectorWidth::V4 => 4,
            VectorWidth::V8 => 8,
        }
    }
}

/// Shape of a warpgroup product: `.m64n128k16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WgmmaShape {
    /// Columns: a multiple of 8, up to 256.
    pub n: u16,
    /// Depth: 16 for 16-bit operands, 8 for tf32.
    pub k: u8,
}

impl Modifier for WgmmaShape {
    fn print(&self, out: &mut String) {
        out.push_str(&format!(".m64n{}k{}", self.n, self.k));
    }
    fn parse(suffixes: &mut Suffixes<'_>) -> Option<Self> {
        let rest = suffixes.0.strip_prefix(".m64n")?;
        let end = rest.find('.').unwrap_or(rest.len());
        let (n, k) = rest[..end].split_once('k')?;
        let canonical = |digits: &str| !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        if !canonical(n) || !canonical(k) {
            return None;
        }
        let shape = WgmmaShape { n: n.parse().ok()?, k: k.parse().ok()? };
        if !shape.n.is_multiple_of(8) || !(8..=256).contains(&shape.n) || !matches!(shape.k, 8 | 16) {
            return None;
        }
        suffixes.0 = &rest[end..];
        Some(shape)
    }
    fn gate(&self) -> Gate {
        Gate::NONE
    }
}

impl TensorRank {
    /// Number of axes.
    pub const fn axes(self) -> usize {
        match self {
            TensorRank::D1 => 1,
            TensorRank::D2 => 2,
            TensorRank::D3 => 3,
            TensorRank::D4 => 4,
            TensorRank::D5 => 5,
        }
    }

    /// The rank of so many axes.
    pub const fn of(axes: usize) -> Option<TensorRank> {
        match axes {
            1 => Some(TensorRank::D1),
            2 => Some(TensorRank::D2),
            3 => Some(TensorRank::D3),
            4 => Some(TensorRank::D4),
            5 => Some(TensorRank::D5),
            _ => None,
        }
    }
}

impl MatrixCount {
    /// Number of registers that the matrices take.
    pub const fn registers(self) -> usize {
        match self {
            MatrixCount::X1 => 1,
            MatrixCount::X2 => 2,
            MatrixCount::X4 => 4,
        }
    }
}

impl TmemShape {
    /// Registers a thread.
    pub const fn registers(self) -> usize {
        match self {
            TmemShape::B32x1 => 1,
            TmemShape::B32x2 => 2,
            TmemShape::B32x4 => 4,
            TmemShape::B32x8 => 8,
            TmemShape::B32x16 => 16,
            TmemShape::B32x32 => 32,
            TmemShape::B32x64 => 64,
            TmemShape::B32x128 => 128,
        }
    }
}
