//! Every code that the workspace reports: what it means, and what to write instead.
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
//! | KDA08xx | bulk tensor copies | [`tma`] |
//! | KDA09xx | matrix products | [`mma`] |
//! | KDA10xx | launch | [`launch`] |
//! | KDA20xx | the assembler, `ptxas` | [`assembler`] |
//! | KDA30xx | the simulator | [`simulator`] |
//!
//! Tests of the crates that report them refuse a code without an entry and an entry without a use.

pub mod assembler;
pub mod bodies;
pub mod budgets;
pub mod constants;
pub mod language;
pub mod launch;
pub mod mma;
pub mod protocol;
pub mod roles;
pub mod simulator;
pub mod tma;
pub mod types;

/// A code of the catalogue: `KDA0105`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KDA{:04}", self.0)
    }
}

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
    tma::ENTRIES,
    mma::ENTRIES,
    launch::ENTRIES,
    assembler::ENTRIES,
    simulator::ENTRIES,
];

/// Every entry, in the order of the codes.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// The entry of `KDA0105`, `kda0105`, `0105` or `105`.
pub fn find(code: &str) -> Option<&'static Entry> {
    let code = code.trim();
    let digits = match code.get(..3) {
        Some(prefix) if prefix.eq_ignore_ascii_case("kda") => &code[3..],
        _ => code,
    };
    // `parse` takes a sign, a code has none.
    let number: u16 = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    all().find(|entry| entry.code.0 == number)
}
