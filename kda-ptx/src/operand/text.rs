//! Operands as text: each kind prints and parses itself, and tells which registers it reads and writes.

use super::*;
use crate::parse::{Cursor, ParseError};
use std::fmt::Write as _;

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
            // A negative offset is `+-4`: ptxas knows no minus here.
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
            Some('-') => cursor.integer()?,
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

impl Operand for Trailing {
    fn print(&self, out: &mut String) {
        self.print_in_list(out, &mut true);
    }
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        Self::parse_in_list(cursor, &mut true)
    }
    fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
        self.0.iter().for_each(|src| src.registers(visit));
    }
    fn print_in_list(&self, out: &mut String, first: &mut bool) {
        self.0.iter().for_each(|src| src.print_in_list(out, first));
    }
    fn parse_in_list(cursor: &mut Cursor<'_>, first: &mut bool) -> Result<Self, ParseError> {
        let mut sources = Vec::new();
        while let Some(src) = Option::<Src>::parse_in_list(cursor, first)? {
            sources.push(src);
        }
        Ok(Trailing(sources))
    }
}

macro_rules! register_lists {
    ($( $Name:ident => [$($role:ident),*] );* $(;)?) => { $(
        impl Operand for $Name {
            fn print(&self, out: &mut String) {
                print_braces(&self.0, out, |reg, out| print_reg(*reg, out));
            }
            fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
                parse_braces(cursor, |cursor| cursor.register()).map($Name)
            }
            fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
                for reg in &self.0 {
                    $( visit(*reg, Role::$role); )*
                }
            }
        }
    )* };
}

register_lists! {
    Accumulators => [Read, Write];
    RegList => [Read];
    OutList => [Write];
}
