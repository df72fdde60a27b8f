//! Draws a map of shared memory: one bar a buffer, at its place in the whole, gaps and overlaps included.

use crate::cli::table::{Align, Table};
use kda::core::desc::SharedBuffer;

/// Characters of a bar that spans all of shared memory.
const WIDTH: u64 = 32;

/// The map, heads first; empty if there are no buffers.
pub fn map(buffers: &[SharedBuffer], total: u32) -> Vec<String> {
    if buffers.is_empty() {
        return Vec::new();
    }
    let mut sorted: Vec<&SharedBuffer> = buffers.iter().collect();
    sorted.sort_by_key(|buffer| (buffer.offset, buffer.bytes));
    let mut table = Table::new(&[
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("align", Align::Right),
        ("name", Align::Left),
        ("holds", Align::Left),
        ("", Align::Left),
    ]);
    let mut end = 0u32;
    for buffer in sorted {
        if buffer.offset > end {
            gap(&mut table, end, buffer.offset, total);
        }
        let shape: Vec<String> = buffer.shape.iter().map(u32::to_string).collect();
        let overlaps = if buffer.offset < end { " overlaps" } else { "" };
        table.row([
            buffer.offset.to_string(),
            buffer.bytes.to_string(),
            buffer.align.to_string(),
            buffer.name.into(),
            format!("{} [{}]", buffer.elem, shape.join(", ")),
            format!("{}{overlaps}", bar(buffer.offset, buffer.offset.saturating_add(buffer.bytes), total, '#')),
        ]);
        end = end.max(buffer.offset.saturating_add(buffer.bytes));
    }
    if total > end {
        gap(&mut table, end, total, total);
    }
    table.lines()
}

fn gap(table: &mut Table, from: u32, to: u32, total: u32) {
    let free = "(free)".to_string();
    let bytes = (to - from).to_string();
    table.row([from.to_string(), bytes, String::new(), free, String::new(), bar(from, to, total, '.')]);
}

/// A bar over the bytes `from..to` of `total`; at least one mark for any byte.
fn bar(from: u32, to: u32, total: u32, mark: char) -> String {
    let total = u64::from(total.max(to).max(1));
    let first = (u64::from(from) * WIDTH / total).min(WIDTH - 1);
    let last = if to > from { (u64::from(to) * WIDTH).div_ceil(total).max(first + 1) } else { first };
    let drawn: String = (0..WIDTH).map(|column| if (first..last).contains(&column) { mark } else { ' ' }).collect();
    format!("|{drawn}|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::VERIFY;
    use kda::core::Elem;

    #[test]
    fn bars_stand_where_their_bytes_are() {
        assert_eq!(bar(0, 32, 32, '#'), format!("|{}|", "#".repeat(32)));
        assert_eq!(bar(16, 32, 32, '#'), format!("|{}{}|", " ".repeat(16), "#".repeat(16)));
        assert_eq!(bar(0, 1, 1 << 20, '#'), format!("|#{}|", " ".repeat(31)));
        assert_eq!(bar((1 << 20) - 1, 1 << 20, 1 << 20, '#'), format!("|{}#|", " ".repeat(31)));
        assert_eq!(bar(8, 8, 32, '#'), format!("|{}|", " ".repeat(32)));
        assert_eq!(bar(0, 0, 0, '#'), format!("|{}|", " ".repeat(32)));
        assert_eq!(bar(0, u32::MAX, u32::MAX, '#'), format!("|{}|", "#".repeat(32)));
    }

    #[test]
    fn gaps_are_shown() {
        let lines = map(VERIFY.shared, VERIFY.shared_bytes);
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert!(lines[1].contains("tile") && lines[1].contains("bf16 [2, 128, 128]"));
        let gap: Vec<&str> = lines[2].split_whitespace().take(3).collect();
        assert_eq!(gap, ["65536", "4096", "(free)"]);
        assert!(lines[4].contains("full") && !lines[4].contains("overlaps"));
        assert_eq!(map(&[], 0), Vec::<String>::new());
    }

    #[test]
    fn overlaps_and_a_free_end_are_shown() {
        let buffer = |name, offset| SharedBuffer { name, offset, bytes: 64, align: 16, elem: Elem::F32, shape: &[16] };
        let lines = map(&[buffer("a", 0), buffer("b", 32)], 128);
        assert!(lines[2].ends_with("overlaps") && !lines[1].contains("overlaps"), "{lines:#?}");
        assert!(lines[3].contains("(free)"), "{lines:#?}");
    }
}
