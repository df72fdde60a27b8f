//! Every code, with what it means and what to write instead.
//!
//! | codes | area | table |
//! | --- | --- | --- |
//! | KDA010x to KDA012x | language: attributes, items, signatures | [`language`] |
//! | KDA015x, KDA016x | language: bodies | [`bodies`] |
//! | KDA02xx | constants, variants, conditions of a launch | [`constants`] |
//! | KDA03xx | scopes and roles | [`roles`] |
//! | KDA04xx | layouts and types | [`types`] |
//! | KDA05xx | budgets | [`budgets`] |
//! | KDA06xx | protocol | [`protocol`] |
//! | KDA10xx | launch | [`launch`] |
//!
//! A test reads the crate's sources and refuses a code without an entry and an entry without a use.

pub mod bodies;
pub mod budgets;
pub mod constants;
pub mod language;
pub mod launch;
pub mod protocol;
pub mod roles;
pub mod types;

use super::Code;

/// One code of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// What is wrong, in one line.
    pub title: &'static str,
    /// Why it is an error.
    pub explanation: &'static str,
    /// What to write.
    pub instead: &'static str,
}

/// An entry of a table.
pub(super) const fn entry(code: u16, title: &'static str, explanation: &'static str, instead: &'static str) -> Entry {
    Entry { code: Code(code), title, explanation, instead }
}

/// The tables, by area.
pub const TABLES: &[&[Entry]] = &[
    language::ENTRIES,
    bodies::ENTRIES,
    constants::ENTRIES,
    roles::ENTRIES,
    types::ENTRIES,
    budgets::ENTRIES,
    protocol::ENTRIES,
    launch::ENTRIES,
];

/// Every entry, in the order of the codes.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// The entry of `KDA0105`, `0105` or `105`.
pub fn find(code: &str) -> Option<&'static Entry> {
    let digits =
        code.trim().trim_start_matches(['K', 'k']).trim_start_matches(['D', 'd']).trim_start_matches(['A', 'a']);
    let number: u16 = digits.parse().ok()?;
    all().find(|entry| entry.code.0 == number)
}
