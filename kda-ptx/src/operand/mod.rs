//! Operands: registers, immediates, addresses, vectors, predicates, labels.

mod text;

pub use text::Operand;

/// Register file of a register: its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// `%p`: predicate.
    Pred,
    /// `%h`: 16 bits.
    B16,
    /// `%r`: 32 bits.
    B32,
    /// `%rd`: 64 bits.
    B64,
    /// `%rq`: 128 bits.
    B128,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 5] = [Class::Pred, Class::B16, Class::B32, Class::B64, Class::B128];

    /// Prefix of the register's name.
    pub const fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "%p",
            Class::B16 => "%h",
            Class::B32 => "%r",
            Class::B64 => "%rd",
            Class::B128 => "%rq",
        }
    }

    /// Type of the declaration.
    pub const fn declaration(self) -> &'static str {
        match self {
            Class::Pred => ".pred",
            Class::B16 => ".b16",
            Class::B32 => ".b32",
            Class::B64 => ".b64",
            Class::B128 => ".b128",
        }
    }
}

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    /// Register file.
    pub class: Class,
    /// Number within the file.
    pub index: u32,
}

impl Reg {
    /// Register `index` of `class`.
    pub const fn new(class: Class, index: u32) -> Reg {
        Reg { class, index }
    }

    /// Reads a name such as `%rd12`.
    pub fn from_name(name: &str) -> Option<Reg> {
        let digits = name.find(|c: char| c.is_ascii_digit())?;
        let class = Class::ALL.into_iter().find(|c| c.prefix() == &name[..digits])?;
        let number = &name[digits..];
        if !number.bytes().all(|b| b.is_ascii_digit()) || (number.len() > 1 && number.starts_with('0')) {
            return None;
        }
        Some(Reg { class, index: number.parse().ok()? })
    }
}

/// How an instruction uses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The instruction reads it.
    Read,
    /// The instruction writes it.
    Write,
}

special_registers! {
    TidX = "%tid.x", TidY = "%tid.y", TidZ = "%tid.z",
    NtidX = "%ntid.x", NtidY = "%ntid.y", NtidZ = "%ntid.z",
    CtaidX = "%ctaid.x", CtaidY = "%ctaid.y", CtaidZ = "%ctaid.z",
    NctaidX = "%nctaid.x", NctaidY = "%nctaid.y", NctaidZ = "%nctaid.z",
    LaneId = "%laneid", WarpId = "%warpid", SmId = "%smid",
    ClusterCtaRank = "%cluster_ctarank", ClusterNctaRank = "%cluster_nctarank", ClusterIdX = "%clusterid.x",
    Clock64 = "%clock64", GlobalTimer = "%globaltimer",
    LaneMaskLt = "%lanemask_lt", DynamicSharedSize = "%dynamic_smem_size",
}

/// A source operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Src {
    /// A register.
    Reg(Reg),
    /// An integer; 64-bit unsigned values are given as their two's complement.
    Imm(i64),
    /// The bits of an `f32`: `0f3F800000`.
    F32(u32),
    /// The bits of an `f64`: `0d3FF0000000000000`.
    F64(u64),
    /// A special register.
    Special(Special),
    /// The address of a symbol, for `mov`.
    Symbol(String),
}

impl From<Reg> for Src {
    fn from(reg: Reg) -> Src {
        Src::Reg(reg)
    }
}

impl Src {
    /// An `f32` constant.
    pub fn f32(value: f32) -> Src {
        Src::F32(value.to_bits())
    }
}

/// A destination register, or `_` where the value is not wanted.
pub type Dst = Reg;

/// Base of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A 32- or 64-bit register.
    Reg(Reg),
    /// A parameter or a shared variable.
    Symbol(String),
}

/// A memory operand: `[%rd1+16]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Base.
    pub base: Base,
    /// Bytes added to the base.
    pub offset: i64,
}

/// A tensor coordinate operand: `[%rd0, {%r1, %r2}]`, the map and the coordinates, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorAddress {
    /// Generic address of the tensor map.
    pub map: Base,
    /// Coordinates in elements, innermost first.
    pub coordinates: Vec<Src>,
}

/// Destination of a load: one register, or several in braces. `None` is `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DstList(pub Vec<Option<Reg>>);

/// Source of a store: one operand, or several in braces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SrcList(pub Vec<Src>);

/// A destination with an optional predicate beside it: `%r1|%p1`, `_|%p1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DstAndPred {
    /// Value; `None` is `_`.
    pub dst: Option<Reg>,
    /// Predicate.
    pub pred: Option<Reg>,
}

/// A predicate source, perhaps negated: `!%p1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PredSrc {
    /// Predicate register.
    pub reg: Reg,
    /// True for `!`.
    pub negated: bool,
}

/// The unused result of an instruction, always `_`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sink;

/// A branch target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub String);

/// Accumulator registers in braces: read and written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accumulators(pub Vec<Reg>);

/// Registers in braces that are read, also where there is only one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegList(pub Vec<Reg>);

/// Registers in braces that are written, also where there is only one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutList(pub Vec<Reg>);

/// Sources at the end of the list: as many as there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trailing(pub Vec<Src>);

/// An address in brackets without an offset that is tensor memory: `[%r1]`.
pub type TmemAddress = Address;
