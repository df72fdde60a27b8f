//! The table of the documentation: cases by kind of fault and by net.

use super::case::{Case, Net};
use std::collections::BTreeMap;

/// Rows in the order of their kinds; a kernel and its PTX are one fault, counted in both columns.
pub fn of(cases: &[Case]) -> String {
    let mut rows: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for case in cases {
        let row = rows.entry(&case.kind).or_default();
        row[match (case.net, case.is_ptx()) {
            (Net::Compiler, _) => 0,
            (Net::Simulator, false) => 1,
            (Net::Simulator, true) => 2,
        }] += 1;
    }
    let mut text =
        String::from("| fault | compiler | simulator, kernels | simulator, PTX |\n| --- | --- | --- | --- |\n");
    let mut all = [0; 3];
    for (kind, counts) in rows {
        text += &format!("| {kind} | {} | {} | {} |\n", counts[0], counts[1], counts[2]);
        (0..3).for_each(|at| all[at] += counts[at]);
    }
    let names: std::collections::BTreeSet<(bool, &str)> =
        cases.iter().map(|case| (case.net == Net::Compiler, case.stem())).collect();
    text + &format!(
        "| all | {} | {} | {} |\n\nA kernel for the simulator and its PTX are one fault: {} in all.\n",
        all[0],
        all[1],
        all[2],
        names.len()
    )
}
