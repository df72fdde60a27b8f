//! Text in aligned columns.

use std::io::{self, Write};

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells; every column is as wide as its widest cell.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            columns: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(head, _)| head.to_string()).collect()],
        }
    }

    /// Adds a row, one cell a column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.into());
    }

    /// The lines, heads first, two spaces between columns and none at the end of a line.
    pub fn lines(&self) -> Vec<String> {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let cell = |text: &String, at: usize| match self.columns[at] {
            Align::Left => format!("{text:<width$}", width = widths[at]),
            Align::Right => format!("{text:>width$}", width = widths[at]),
        };
        self.rows
            .iter()
            .map(|row| {
                let cells: Vec<String> = row.iter().enumerate().map(|(at, text)| cell(text, at)).collect();
                cells.join("  ").trim_end().to_string()
            })
            .collect()
    }

    /// Writes the lines.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.lines().iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("name", Align::Left), ("bytes", Align::Right), ("", Align::Left)]);
        table.row(["q".into(), "1024".into(), "x".into()]);
        table.row(["longer".into(), "123456".into(), String::new()]);
        assert_eq!(table.lines(), ["name     bytes", "q         1024  x", "longer  123456"]);
    }
}
