//! Operands: registers, immediates, addresses, vectors, predicates, labels.

use crate::parse::{Cursor, ParseError};
use std::fmt::Write as _;

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

/// Something behind the opcode.
pub trait Operand: Sized {
    /// Appends the operand.
    fn print(&self, out: &mut String);
    /// Reads the operand.
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError>;
    /// Calls `visit` with the registers.
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role));

    /// Appends the operand with the separator that its place asks for.
    fn print_in_list(&self, out: &mut String, first: &mut bool) {
        out.push_str(if *first { " " } else { ", " });
        *first = false;
        self.print(out);
    }

    /// Reads the operand with its separator.
    fn parse_in_list(cursor: &mut Cursor<'_>, first: &mut bool) -> Result<Self, ParseError> {
        if !*first {
            cursor.expect(',')?;
        }
        *first = false;
        Self::parse(cursor)
    }
}

/// An optional operand at the end of the list.
impl<O: Operand> Operand for Option<O> {
    fn print(&self, out: &mut String) {
        if let Some(operand) = self {
            operand.print(out);
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        O::parse(cursor).map(Some)
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        if let Some(operand) = self {
            operand.registers(visit);
        }
    }
    fn print_in_list(&self, out: &mut String, first: &mut bool) {
        if let Some(operand) = self {
            operand.print_in_list(out, first);
        }
    }
    fn parse_in_list(cursor: &mut Cursor<'_>, first: &mut bool) -> Result<Self, ParseError> {
        let present = if *first { !cursor.at_end() } else { cursor.peek() == Some(',') };
        if present { O::parse_in_list(cursor, first).map(Some) } else { Ok(None) }
    }
}

fn print_reg(reg: Reg, out: &mut String) {
    let _ = write!(out, "{}{}", reg.class.prefix(), reg.index);
}

impl Operand for Reg {
    fn print(&self, out: &mut String) {
        print_reg(*self, out);
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.register()
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        visit(*self, Role::Write);
    }
}

impl Operand for Src {
    fn print(&self, out: &mut String) {
        let _ = match self {
            Src::Reg(reg) => {
                print_reg(*reg, out);
                Ok(())
            }
            Src::Imm(value) => write!(out, "{value}"),
            Src::F32(bits) => write!(out, "0f{bits:08X}"),
            Src::F64(bits) => write!(out, "0d{bits:016X}"),
            Src::Special(special) => write!(out, "{}", special.text()),
            Src::Symbol(name) => write!(out, "{name}"),
        };
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.source()
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        if let Src::Reg(reg) = self {
            visit(*reg, Role::Read);
        }
    }
}

impl Operand for Base {
    fn print(&self, out: &mut String) {
        match self {
            Base::Reg(reg) => print_reg(*reg, out),
            Base::Symbol(name) => out.push_str(name),
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        if cursor.peek() == Some('%') { cursor.register().map(Base::Reg) } else { cursor.symbol().map(Base::Symbol) }
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        if let Base::Reg(reg) = self {
            visit(*reg, Role::Read);
        }
    }
}

impl Operand for Address {
    fn print(&self, out: &mut String) {
        out.push('[');
        self.base.print(out);
        if self.offset != 0 {
            // The assembler reads `+-4`, and not `-4`.
            let _ = write!(out, "+{}", self.offset);
        }
        out.push(']');
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.expect('[')?;
        let base = Base::parse(cursor)?;
        let offset = match cursor.peek() {
            Some('+') => {
                cursor.expect('+')?;
                cursor.integer()?
            }
            _ => 0,
        };
        cursor.expect(']')?;
        Ok(Address { base, offset })
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        self.base.registers(visit);
    }
}

fn print_braces<T>(items: &[T], out: &mut String, print: impl Fn(&T, &mut String)) {
    out.push('{');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        print(item, out);
    }
    out.push('}');
}

fn parse_braces<T>(
    cursor: &mut Cursor<'_>,
    parse: impl Fn(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    cursor.expect('{')?;
    let mut items = vec![parse(cursor)?];
    while cursor.peek() == Some(',') {
        cursor.expect(',')?;
        items.push(parse(cursor)?);
    }
    cursor.expect('}')?;
    Ok(items)
}

fn print_optional(reg: &Option<Reg>, out: &mut String) {
    match reg {
        Some(reg) => print_reg(*reg, out),
        None => out.push('_'),
    }
}

fn parse_optional(cursor: &mut Cursor<'_>) -> Result<Option<Reg>, ParseError> {
    if cursor.peek() == Some('_') {
        cursor.expect('_')?;
        return Ok(None);
    }
    cursor.register().map(Some)
}

impl Operand for TensorAddress {
    fn print(&self, out: &mut String) {
        out.push('[');
        self.map.print(out);
        out.push_str(", ");
        print_braces(&self.coordinates, out, Src::print);
        out.push(']');
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.expect('[')?;
        let map = Base::parse(cursor)?;
        cursor.expect(',')?;
        let coordinates = parse_braces(cursor, Src::parse)?;
        cursor.expect(']')?;
        Ok(TensorAddress { map, coordinates })
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        self.map.registers(visit);
        self.coordinates.iter().for_each(|c| c.registers(visit));
    }
}

impl Operand for DstList {
    fn print(&self, out: &mut String) {
        match self.0.as_slice() {
            [one] => print_optional(one, out),
            many => print_braces(many, out, print_optional),
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        if cursor.peek() == Some('{') {
            return parse_braces(cursor, parse_optional).map(DstList);
        }
        Ok(DstList(vec![parse_optional(cursor)?]))
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        self.0.iter().flatten().for_each(|reg| visit(*reg, Role::Write));
    }
}

impl Operand for SrcList {
    fn print(&self, out: &mut String) {
        match self.0.as_slice() {
            [one] => one.print(out),
            many => print_braces(many, out, Src::print),
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        if cursor.peek() == Some('{') {
            return parse_braces(cursor, Src::parse).map(SrcList);
        }
        Ok(SrcList(vec![Src::parse(cursor)?]))
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        self.0.iter().for_each(|src| src.registers(visit));
    }
}

impl Operand for DstAndPred {
    fn print(&self, out: &mut String) {
        print_optional(&self.dst, out);
        if let Some(pred) = self.pred {
            out.push('|');
            print_reg(pred, out);
        }
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let dst = parse_optional(cursor)?;
        let pred = if cursor.peek() == Some('|') {
            cursor.expect('|')?;
            Some(cursor.register()?)
        } else {
            None
        };
        Ok(DstAndPred { dst, pred })
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        self.dst.iter().chain(&self.pred).for_each(|reg| visit(*reg, Role::Write));
    }
}

impl Operand for PredSrc {
    fn print(&self, out: &mut String) {
        if self.negated {
            out.push('!');
        }
        print_reg(self.reg, out);
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let negated = cursor.peek() == Some('!');
        if negated {
            cursor.expect('!')?;
        }
        Ok(PredSrc { reg: cursor.register()?, negated })
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        visit(self.reg, Role::Read);
    }
}

impl Operand for Sink {
    fn print(&self, out: &mut String) {
        out.push('_');
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.expect('_')?;
        Ok(Sink)
    }
    fn registers(&self, _: &mut dyn FnMut(Reg, Role)) {}
}

impl Operand for Label {
    fn print(&self, out: &mut String) {
        out.push_str(&self.0);
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.symbol().map(Label)
    }
    fn registers(&self, _: &mut dyn FnMut(Reg, Role)) {}
}
