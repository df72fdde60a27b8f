//! Tokens of one statement.

use super::ParseError;
use crate::operand::{Reg, Special, Src};

/// A position in a statement.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    first_column: u32,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `text`, which stands at `line` and `first_column`.
    pub fn new(text: &'a str, line: u32, first_column: u32) -> Cursor<'a> {
        Cursor { text, at: 0, line, first_column }
    }

    fn skip_space(&mut self) {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
    }

    /// The text from here, without leading spaces.
    pub fn rest(&mut self) -> &'a str {
        self.skip_space();
        &self.text[self.at..]
    }

    /// An error at this position.
    pub fn error(&self, message: impl Into<String>) -> ParseError {
        let column = self.first_column + self.text[..self.at].chars().count() as u32;
        ParseError { line: self.line, column, message: message.into() }
    }

    /// The next character that is not a space.
    pub fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    /// True at the end of the statement.
    pub fn at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// What stands here, for an error message.
    pub fn found(&mut self) -> String {
        let token = self.token();
        match token.chars().next().or_else(|| self.peek()) {
            None => "the end of the statement".to_string(),
            Some(c) if token.is_empty() => format!("`{c}`"),
            Some(_) => format!("`{token}`"),
        }
    }

    fn token(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_$.%:".contains(c))).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Takes a character.
    pub fn expect(&mut self, wanted: char) -> Result<(), ParseError> {
        if self.peek() == Some(wanted) {
            self.at += wanted.len_utf8();
            return Ok(());
        }
        let found = self.found();
        Err(self.error(format!("found {found}; `{wanted}` is needed")))
    }

    /// Takes a word: letters, digits, `_ $ . % :`.
    pub fn word(&mut self) -> Option<&'a str> {
        let token = self.token();
        self.at += token.len();
        (!token.is_empty()).then_some(token)
    }

    /// Takes a register.
    pub fn register(&mut self) -> Result<Reg, ParseError> {
        let token = self.token();
        match Reg::from_name(token) {
            Some(reg) => {
                self.at += token.len();
                Ok(reg)
            }
            None => {
                let found = self.found();
                Err(self.error(format!("found {found}; a register such as %r0 or %p0 is needed")))
            }
        }
    }

    /// Takes a symbol: a parameter, a variable or a label.
    pub fn symbol(&mut self) -> Result<String, ParseError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c))).unwrap_or(rest.len());
        let name = &rest[..end];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            let found = self.found();
            return Err(self.error(format!("found {found}; a name is needed")));
        }
        self.at += end;
        Ok(name.to_string())
    }

    /// Takes an integer: decimal or hexadecimal, with a sign, up to 64 bits.
    pub fn integer(&mut self) -> Result<i64, ParseError> {
        let rest = self.rest();
        let (negative, digits) = match rest.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, rest),
        };
        let end = digits.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
        let body = digits[..end].trim_end_matches('U');
        let magnitude = match body.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => body.parse::<u64>().ok(),
        };
        let value = magnitude.and_then(|m| match negative {
            true => 0i64.checked_sub_unsigned(m),
            false => Some(m as i64),
        });
        match value {
            Some(value) => {
                self.at += end + usize::from(negative);
                Ok(value)
            }
            None => {
                let found = self.found();
                Err(self.error(format!("found {found}; an integer of at most 64 bits is needed")))
            }
        }
    }

    /// Takes a source operand.
    pub fn source(&mut self) -> Result<Src, ParseError> {
        let token = self.token();
        if token.starts_with('%') {
            if let Some(reg) = Reg::from_name(token) {
                self.at += token.len();
                return Ok(Src::Reg(reg));
            }
            if let Some(special) = Special::ALL.iter().find(|s| s.text() == token) {
                self.at += token.len();
                return Ok(Src::Special(*special));
            }
            return Err(self.error(format!("`{token}` is neither a register nor a special register")));
        }
        for (prefix, digits) in [("0f", 8), ("0F", 8), ("0d", 16), ("0D", 16)] {
            let Some(hex) = token.strip_prefix(prefix) else { continue };
            let bits = u64::from_str_radix(hex, 16).ok().filter(|_| hex.len() == digits);
            let Some(bits) = bits else {
                return Err(self.error(format!("`{token}` is not {prefix} and {digits} hexadecimal digits")));
            };
            self.at += token.len();
            return Ok(if digits == 8 { Src::F32(bits as u32) } else { Src::F64(bits) });
        }
        match self.peek() {
            Some(c) if c == '-' || c.is_ascii_digit() => self.integer().map(Src::Imm),
            _ => self.symbol().map(Src::Symbol),
        }
    }
}
