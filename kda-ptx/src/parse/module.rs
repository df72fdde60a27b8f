//! Directives, entries and statements.

use super::{Cursor, ParseError};
use crate::modifier::{Modifier as _, Suffixes, Type};
use crate::module::{Bounds, Entry, Module, Param, SharedDecl, Statement};
use crate::operand::{Class, Operand as _, PredSrc};
use crate::table::{Inst, ROWS};
use kda_core::{Arch, IsaVersion};

/// Reads a module. Gates are not checked here: see [`Module::gate`].
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let mut lines = Lines { lines: text.lines().enumerate(), line: 0 };
    let mut module =
        Module { isa: IsaVersion::new(0, 0), arch: Arch::SM_80, files: Vec::new(), shared: None, entries: Vec::new() };
    let (mut version, mut target) = (false, false);
    while let Some((line, text)) = lines.next() {
        let mut cursor = line_cursor(line, text);
        if cursor.at_end() || cursor.rest().starts_with("//") {
            continue;
        }
        let directive = cursor.word().unwrap_or_default();
        match directive {
            ".version" => {
                module.isa = isa_version(&mut cursor)?;
                version = true;
            }
            ".target" => {
                let name = cursor.word().unwrap_or_default();
                module.arch = Arch::from_name(name).ok_or_else(|| cursor.error(format!("`{name}` is not a target")))?;
                target = true;
            }
            ".address_size" => {
                if cursor.integer()? != 64 {
                    return Err(cursor.error("the address size must be 64"));
                }
            }
            ".file" => {
                let number = unsigned(&mut cursor)?;
                cursor.expect('"')?;
                let rest = cursor.rest();
                let Some(path) = rest.strip_suffix('"') else {
                    return Err(cursor.error("the path must end with a quotation mark"));
                };
                module.files.push((number, path.to_string()));
                continue;
            }
            ".extern" => {
                let decl = shared_decl(&mut cursor)?;
                if module.shared.replace(decl).is_some() {
                    return Err(cursor.error("dynamic shared memory is declared twice"));
                }
            }
            ".visible" => {
                let entry = entry(&mut cursor, &mut lines)?;
                module.entries.push(entry);
                continue;
            }
            _ => {
                let mut start = line_cursor(line, text);
                let found = start.found();
                return Err(start.error(format!(
                    "found {found}; .version, .target, .address_size, .extern, .file or .visible .entry is needed"
                )));
            }
        }
        end(&mut cursor)?;
    }
    let last = Cursor::new("", lines.line + 1, 1);
    match (version, target) {
        (true, true) => Ok(module),
        (false, _) => Err(last.error("the module has no .version")),
        (_, false) => Err(last.error("the module has no .target")),
    }
}

struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    line: u32,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<(u32, &'a str)> {
        let (index, text) = self.lines.next()?;
        self.line = index as u32 + 1;
        Some((self.line, text))
    }

    /// The next line that is neither empty nor a comment.
    fn next_full(&mut self) -> Result<Cursor<'a>, ParseError> {
        loop {
            let Some((line, text)) = self.next() else {
                return Err(Cursor::new("", self.line + 1, 1).error("the text ends inside an entry"));
            };
            let mut cursor = line_cursor(line, text);
            if !cursor.at_end() && !cursor.rest().starts_with("//") {
                return Ok(cursor);
            }
        }
    }
}

fn line_cursor(line: u32, text: &str) -> Cursor<'_> {
    Cursor::new(text, line, 1)
}

fn end(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    if cursor.at_end() || cursor.rest().starts_with("//") {
        return Ok(());
    }
    let found = cursor.found();
    Err(cursor.error(format!("found {found}; the line must end here")))
}

fn unsigned(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    let at = cursor.clone();
    let value = cursor.integer()?;
    u32::try_from(value).map_err(|_| at.error(format!("{value} is out of range; 0 to {} is possible", u32::MAX)))
}

fn isa_version(cursor: &mut Cursor<'_>) -> Result<IsaVersion, ParseError> {
    let word = cursor.word().unwrap_or_default();
    let parts = word.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match parts {
        Some((major, minor)) => Ok(IsaVersion::new(major, minor)),
        None => Err(cursor.error(format!("`{word}` is not a version such as 8.0"))),
    }
}

fn keyword(cursor: &mut Cursor<'_>, wanted: &str) -> Result<(), ParseError> {
    let at = cursor.clone();
    let word = cursor.word().unwrap_or_default();
    if word == wanted { Ok(()) } else { Err(at.error(format!("found `{word}`; `{wanted}` is needed"))) }
}

fn shared_decl(cursor: &mut Cursor<'_>) -> Result<SharedDecl, ParseError> {
    keyword(cursor, ".shared")?;
    keyword(cursor, ".align")?;
    let align = unsigned(cursor)?;
    keyword(cursor, ".b8")?;
    let name = cursor.symbol()?;
    for c in ['[', ']', ';'] {
        cursor.expect(c)?;
    }
    Ok(SharedDecl { name, align })
}

fn param(cursor: &mut Cursor<'_>) -> Result<Param, ParseError> {
    keyword(cursor, ".param")?;
    let align = if cursor.rest().starts_with(".align") {
        keyword(cursor, ".align")?;
        let at = cursor.clone();
        let align = unsigned(cursor)?;
        if !align.is_power_of_two() || align > 1 << 16 {
            return Err(at.error(format!("an alignment must be a power of two, not {align}")));
        }
        Some(align)
    } else {
        None
    };
    let at = cursor.clone();
    let word = cursor.word().unwrap_or_default();
    let ty = Type::parse(&mut Suffixes(word)).ok_or_else(|| at.error(format!("`{word}` is not a type")))?;
    let name = cursor.symbol()?;
    let array = if cursor.peek() == Some('[') {
        cursor.expect('[')?;
        let at = cursor.clone();
        let count = unsigned(cursor)?;
        if count > 1 << 20 {
            return Err(at.error("a parameter array may have at most 1048576 elements"));
        }
        cursor.expect(']')?;
        Some(count)
    } else {
        None
    };
    Ok(Param { name, ty, align, array })
}

fn entry<'a>(cursor: &mut Cursor<'a>, lines: &mut Lines<'a>) -> Result<Entry, ParseError> {
    keyword(cursor, ".entry")?;
    let name = cursor.symbol()?;
    cursor.expect('(')?;
    let mut cursor = cursor.clone();
    let mut params = Vec::new();
    loop {
        if cursor.at_end() {
            cursor = lines.next_full()?;
        }
        match cursor.peek() {
            Some(')') => {
                cursor.expect(')')?;
                break;
            }
            Some(',') if !params.is_empty() => cursor.expect(',')?,
            _ => params.push(param(&mut cursor)?),
        }
    }
    end(&mut cursor)?;
    let bounds = bounds(lines, &mut cursor)?;
    cursor.expect('{')?;
    end(&mut cursor)?;
    let mut entry = Entry { name, params, bounds, registers: [0; 5], body: Vec::new() };
    loop {
        let Some((line, text)) = lines.next() else {
            return Err(Cursor::new("", lines.line + 1, 1).error("the text ends inside an entry"));
        };
        let mut cursor = line_cursor(line, text);
        if cursor.at_end() {
            continue;
        }
        if cursor.peek() == Some('}') {
            cursor.expect('}')?;
            end(&mut cursor)?;
            return Ok(entry);
        }
        if cursor.rest().starts_with(".reg") {
            register_decl(&mut cursor, &mut entry.registers)?;
        } else {
            entry.body.push(statement(&mut cursor)?);
        }
    }
}

/// Directives between the parameters and the body; leaves `cursor` at the opening brace.
fn bounds<'a>(lines: &mut Lines<'a>, cursor: &mut Cursor<'a>) -> Result<Bounds, ParseError> {
    let mut bounds = Bounds::default();
    loop {
        *cursor = lines.next_full()?;
        if cursor.peek() == Some('{') {
            return Ok(bounds);
        }
        let at = cursor.clone();
        let name = cursor.word().unwrap_or_default();
        let (slot, triple) = match name {
            ".maxntid" => (&mut bounds.max_threads, true),
            ".reqntid" => (&mut bounds.exact_threads, true),
            ".minnctapersm" => (&mut bounds.min_blocks_per_sm, false),
            ".maxnreg" => (&mut bounds.max_registers, false),
            ".reqnctapercluster" => (&mut bounds.cluster, true),
            _ => return Err(at.error(format!("found `{name}`; a launch bound or `{{` is needed"))),
        };
        *slot = Some(unsigned(cursor)?);
        if triple {
            for _ in 0..2 {
                cursor.expect(',')?;
                if unsigned(cursor)? != 1 {
                    return Err(at.error("only one-dimensional bounds are in the dialect"));
                }
            }
        }
        end(cursor)?;
    }
}

fn register_decl(cursor: &mut Cursor<'_>, counts: &mut [u32; 5]) -> Result<(), ParseError> {
    keyword(cursor, ".reg")?;
    let at = cursor.clone();
    let (declaration, prefix) = (cursor.word().unwrap_or_default(), cursor.word().unwrap_or_default());
    let class = Class::ALL.iter().position(|c| c.declaration() == declaration && c.prefix() == prefix);
    let Some(class) = class else {
        return Err(at.error(format!("`{declaration} {prefix}` is not a register class; .pred %p, .b16 %h, .b32 %r, .b64 %rd or .b128 %rq is needed")));
    };
    cursor.expect('<')?;
    let at = cursor.clone();
    let count = unsigned(cursor)?;
    if count > 1 << 20 {
        return Err(at.error("a class may have at most 1048576 registers"));
    }
    counts[class] = count;
    cursor.expect('>')?;
    cursor.expect(';')?;
    end(cursor)
}

fn statement(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if let Some(text) = cursor.rest().strip_prefix("//") {
        return Ok(Statement::Comment(text.trim().to_string()));
    }
    let mut label = cursor.clone();
    if let Ok(name) = label.symbol()
        && label.peek() == Some(':')
    {
        label.expect(':')?;
        end(&mut label)?;
        return Ok(Statement::Label(name));
    }
    if cursor.rest().starts_with(".loc") {
        keyword(cursor, ".loc")?;
        let (file, line, column) = (unsigned(cursor)?, unsigned(cursor)?, unsigned(cursor)?);
        end(cursor)?;
        return Ok(Statement::Loc { file, line, column });
    }
    let guard = if cursor.peek() == Some('@') {
        cursor.expect('@')?;
        Some(PredSrc::parse(cursor)?)
    } else {
        None
    };
    let inst = instruction(cursor)?;
    cursor.expect(';')?;
    end(cursor)?;
    Ok(Statement::Inst { guard, inst })
}

fn instruction(cursor: &mut Cursor<'_>) -> Result<Inst, ParseError> {
    let at = cursor.clone();
    let opcode = cursor.word().unwrap_or_default();
    let mut failure: Option<ParseError> = None;
    let mut known = false;
    // Longer mnemonics first: `bar.sync` before `bar`, and a row with more of the opcode fixed is the better guess.
    let mut rows: Vec<_> = ROWS
        .iter()
        .filter(|row| {
            opcode.strip_prefix(row.mnemonic).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.mnemonic.len()));
    for row in rows {
        known = true;
        let mut operands = cursor.clone();
        let mut suffixes = Suffixes(&opcode[row.mnemonic.len()..]);
        match (row.parse)(&mut suffixes, &mut operands) {
            Ok(Some(inst)) => {
                if operands.peek() == Some(';') {
                    *cursor = operands;
                    return Ok(inst);
                }
                let found = operands.found();
                let error = operands.error(format!("found {found}; `;` is needed"));
                failure = Some(further(failure, error));
            }
            Ok(None) => {}
            Err(error) => failure = Some(further(failure, error)),
        }
    }
    Err(failure.unwrap_or_else(|| match known {
        true => at.error(format!("`{opcode}` has modifiers that the instruction does not take")),
        false => at.error(format!("`{opcode}` is not in the instruction table")),
    }))
}

/// Of two failures the one that came further.
fn further(a: Option<ParseError>, b: ParseError) -> ParseError {
    match a {
        Some(a) if (a.line, a.column) >= (b.line, b.column) => a,
        _ => b,
    }
}
