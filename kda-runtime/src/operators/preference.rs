//! Tables of preferred variants by size: measured on one device, read on any.
//!
//! A variant is named by the constants of its entry ahead of the first element type, without the number of tokens: how it
//! works, not what it is given. One name stands for the same design at every length and on every pool:
//! `conv_verify__bv8_lanes8_ctas1_f32_noinner_t4_nolong` is `bv8_lanes8_ctas1`. A table says what to prefer, never what may
//! run: that follows from the kernels' own conditions.

use kda_core::Elem;

/// Prefer a variant for these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Tokens a request, first and last.
    pub tokens: (u64, u64),
    /// Most (request, value head) pairs, on a device with the table's number of multiprocessors.
    pub pairs: u64,
    /// Name of the variant.
    pub variant: &'static str,
}

/// Rows in order of tokens, then of pairs. For each range of tokens the last row has no bound on the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Multiprocessors of the device that the rows were measured on.
    pub multiprocessors: u32,
    /// The rows.
    pub rows: &'static [Row],
}

impl Table {
    /// The rows for this number of tokens.
    pub fn rows_for(&self, tokens: u64) -> &'static [Row] {
        let holds = |row: &Row| row.tokens.0 <= tokens && tokens <= row.tokens.1;
        let start = self.rows.iter().position(holds).unwrap_or(self.rows.len());
        let count = self.rows[start..].iter().take_while(|row| holds(row)).count();
        &self.rows[start..start + count]
    }

    /// Place of an entry in the order of preference, 0 first: the row of these sizes, then its neighbours, the larger
    /// one first, then what the rows do not name. On a device with more multiprocessors more pairs count as few.
    pub fn rank(&self, entry: &str, tokens: u64, pairs: u64, multiprocessors: u32) -> usize {
        let rows = self.rows_for(tokens);
        let scaled = u128::from(pairs) * u128::from(self.multiprocessors);
        let within = |row: &Row| scaled <= u128::from(row.pairs) * u128::from(multiprocessors.max(1));
        let here = rows.iter().position(within).unwrap_or(rows.len().saturating_sub(1));
        let places = rows.iter().enumerate().filter(|(_, row)| is_named(entry, row.variant));
        places
            .map(|(at, _)| if at >= here { (2 * (at - here)).saturating_sub(1) } else { 2 * (here - at) })
            .min()
            .unwrap_or(2 * rows.len())
    }
}

/// Name of the variant that an entry is.
pub fn variant_name(entry: &str) -> String {
    parts(entry).collect::<Vec<&str>>().join("_")
}

/// Whether an entry is of the variant of that name.
pub fn is_named(entry: &str, name: &str) -> bool {
    parts(entry).eq(name.split('_'))
}

/// Constants of an entry's suffix ahead of the first element type, but for the number of tokens.
fn parts(entry: &str) -> impl Iterator<Item = &str> {
    let suffix = entry.split_once("__").map_or(entry, |(_, suffix)| suffix);
    suffix.split('_').take_while(|part| !is_elem(part)).filter(|part| !is_tokens(part))
}

/// The name of an element type.
fn is_elem(part: &str) -> bool {
    Elem::ALL.iter().any(|elem| elem.name() == part)
}

/// `t4`, the constant T.
fn is_tokens(part: &str) -> bool {
    part.strip_prefix('t').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table {
        multiprocessors: 100,
        rows: &[
            Row { tokens: (1, 4), pairs: 10, variant: "bv8_lanes8" },
            Row { tokens: (1, 4), pairs: 40, variant: "bv16_lanes8" },
            Row { tokens: (1, 4), pairs: u64::MAX, variant: "bv64_lanes32" },
            Row { tokens: (5, u64::MAX), pairs: u64::MAX, variant: "bv16_lanes8" },
        ],
    };

    #[test]
    fn names_leave_the_tokens_out() {
        assert_eq!(variant_name("conv_verify__bv8_lanes8_ctas1_t4_nolong"), "bv8_lanes8_ctas1_nolong");
        assert_eq!(variant_name("conv_verify__bv8_lanes8_bf16_inner_t4_long"), "bv8_lanes8");
        assert_eq!(variant_name("verify__t16"), "");
        assert!(is_named("verify__t2_tile8", "tile8") && !is_named("verify__t2_tile8", "tile"));
        assert!(is_named("verify__tile_t8", "tile"));
        assert!(is_named("verify__tile_f32_t8", "tile") && !is_named("verify__wide_f32_tile", "tile"));
    }

    #[test]
    fn the_row_comes_first_then_its_neighbours() {
        let rank = |name: &str, tokens, pairs| TABLE.rank(&format!("op__{name}_t{tokens}"), tokens, pairs, 100);
        assert_eq!([rank("bv8_lanes8", 2, 10), rank("bv8_lanes8", 2, 11)], [0, 2]);
        assert_eq!([rank("bv16_lanes8", 2, 10), rank("bv16_lanes8", 2, 11), rank("bv16_lanes8", 2, 41)], [1, 0, 2]);
        assert_eq!(rank("bv64_lanes32", 2, u64::MAX), 0);
        assert_eq!(rank("bv64_lanes32", 5, 1), 2, "not named there");
        assert_eq!(rank("bv16_lanes8", 1000, 1), 0);
    }

    #[test]
    fn pairs_are_counted_for_each_multiprocessor() {
        let rank = |pairs, multiprocessors| TABLE.rank("op__bv8_lanes8_t1", 1, pairs, multiprocessors);
        assert_eq!([rank(20, 200), rank(21, 200)], [0, 2]);
        assert_eq!([rank(5, 50), rank(6, 50)], [0, 2]);
    }
}
