//! Where an operation stands: its line in the PTX text and, from `.loc`, in the kernel's source.

use std::collections::HashMap;
use std::fmt;

/// Position of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of the operation.
    pub pc: u32,
    /// Line of the PTX text, from 1.
    pub ptx_line: u32,
    /// The instruction as PTX.
    pub text: String,
    /// The kernel's source, where the text has a `.loc`.
    pub source: Option<SourcePosition>,
}

/// Position in the kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// Path as `.file` gives it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(SourcePosition { file, line, column }) = &self.source {
            write!(f, "{file}:{line}:{column}, ")?;
        }
        write!(f, "PTX line {}: `{}`", self.ptx_line, self.text)
    }
}

/// File, line and column of a `.loc`.
type Location = (u32, u32, u32);

/// Positions of all operations.
#[derive(Debug)]
pub(crate) struct SourceMap {
    files: HashMap<u32, String>,
    ops: Vec<(u32, Option<Location>, String)>,
}

impl SourceMap {
    pub fn new(files: &[(u32, String)]) -> SourceMap {
        SourceMap { files: files.iter().cloned().collect(), ops: Vec::new() }
    }

    pub fn push(&mut self, ptx_line: u32, location: Option<Location>, text: String) {
        self.ops.push((ptx_line, location, text));
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn position(&self, pc: u32) -> Position {
        let (ptx_line, location, text) = &self.ops[(pc as usize).min(self.ops.len() - 1)];
        let source = location.map(|(file, line, column)| SourcePosition {
            file: self.files.get(&file).cloned().unwrap_or_else(|| format!("(file {file})")),
            line,
            column,
        });
        Position { pc, ptx_line: *ptx_line, text: text.clone(), source }
    }
}

/// Lines of the statements of an entry, in the order of its body: one statement stands on a line.
pub(crate) fn statement_lines(text: &str, entry: &str) -> Vec<u32> {
    let mut lines = text.lines().enumerate().map(|(i, line)| (i as u32 + 1, line.trim()));
    let is_entry = |line: &str| {
        let rest = line.strip_prefix(".visible").map(str::trim_start).and_then(|l| l.strip_prefix(".entry"));
        rest.is_some_and(|r| r.trim_start().split('(').next().is_some_and(|name| name.trim() == entry))
    };
    lines.by_ref().find(|(_, line)| is_entry(line));
    lines.by_ref().find(|(_, line)| line.starts_with('{'));
    lines
        .take_while(|(_, line)| !line.starts_with('}'))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(".reg"))
        .map(|(number, _)| number)
        .collect()
}
