//! The table of a run.

use crate::cli::table::{Align, Table};
use kda::bench::report::{Report, Row, Who};
use kda::bench::session::Request;
use std::io::{self, Write};

/// Writes the table, the ratios over all shapes, and the notes.
pub fn write(out: &mut dyn Write, report: &Report, request: &Request) -> io::Result<()> {
    for contract in &request.contracts {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.contract == contract.name).collect();
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{}: {}; µs a call, * is dispatch's choice", contract.name, contract.text)?;
        table(&rows).write(out)?;
        for line in ratios(&rows) {
            writeln!(out, "{line}")?;
        }
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn table(rows: &[&Row]) -> Table {
    let mut table = Table::new(&[
        ("T", Align::Right),
        ("H", Align::Right),
        ("N", Align::Right),
        ("N*HV", Align::Right),
        ("launch", Align::Left),
        ("", Align::Left),
        ("kernel", Align::Left),
        ("us", Align::Right),
        ("p10..p90", Align::Right),
        ("L2 warm", Align::Right),
        ("ratio", Align::Right),
        ("floor", Align::Right),
        ("% of 4.3", Align::Right),
        ("% of copy", Align::Right),
        ("% of fill", Align::Right),
    ]);
    for row in rows.iter().filter(|row| is_shown(row, rows)) {
        let percent = |share: Option<f64>| share.map_or(String::new(), |share| format!("{share:.1}"));
        table.row([
            row.shape.t.to_string(),
            row.shape.h.to_string(),
            row.shape.n.to_string(),
            row.shape.pairs().to_string(),
            row.launch.into(),
            format!("{}{}", row.who.name(), if row.chosen { "*" } else { "" }),
            row.kernel.clone(),
            format!("{:.2}", row.us),
            format!("{:.2}..{:.2}", row.p10, row.p90),
            row.warm_us.map_or(String::new(), |us| format!("{us:.2}")),
            row.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
            format!("{:.2}", row.floor_us),
            percent(Some(row.of_floor)),
            percent(row.of_copy),
            percent(row.of_fill),
        ]);
    }
    table
}

/// Of a twin's configurations the fastest alone.
fn is_shown(row: &Row, rows: &[&Row]) -> bool {
    row.who != Who::Twin || fastest(rows, row, Who::Twin).is_some_and(|best| best.kernel == row.kernel)
}

/// The fastest of somebody's kernels at the place of a row.
fn fastest<'r>(rows: &[&'r Row], at: &Row, who: Who) -> Option<&'r Row> {
    let there = rows.iter().filter(|row| row.who == who && row.shape == at.shape && row.launch == at.launch);
    there.min_by(|a, b| a.us.total_cmp(&b.us)).copied()
}

/// How the fastest of others, and of our own variants, stand to dispatch's choice over all shapes.
fn ratios(rows: &[&Row]) -> Vec<String> {
    let mut launches: Vec<&str> = Vec::new();
    for row in rows {
        if !launches.contains(&row.launch) {
            launches.push(row.launch);
        }
    }
    let mut lines = Vec::new();
    for (who, what) in [(Who::Ours, "fastest variant"), (Who::Twin, "twin"), (Who::Peer, "fastest peer")] {
        for launch in &launches {
            let chosen = rows.iter().filter(|row| row.chosen && row.launch == *launch);
            let ratios: Vec<f64> =
                chosen.filter_map(|row| Some(fastest(rows, row, who)?.us / row.us)).filter(|r| *r > 0.0).collect();
            // Dispatch's choice alone is no comparison.
            if ratios.is_empty() || who == Who::Ours && ratios.iter().all(|ratio| *ratio == 1.0) {
                continue;
            }
            let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            lines.push(format!(
                "{launch}: {what} / dispatch's choice: {mean:.3} in the geometric mean of {} shapes, {least:.3} to {most:.3}",
                ratios.len()
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use kda::bench::shape::Shape;

    fn row(n: u64, who: Who, kernel: &str, chosen: bool, us: f64) -> Row {
        Row {
            op: "conv_verify",
            contract: "fp32",
            shape: Shape { t: 4, h: 8, n },
            launch: "plain",
            who,
            kernel: kernel.into(),
            chosen,
            us,
            p10: us - 0.1,
            p90: us + 0.1,
            warm_us: None,
            bytes: 2.9e6,
            floor_us: 0.7,
            of_floor: 70.0 / us,
            of_copy: Some(75.0 / us),
            of_fill: Some(60.0 / us),
            ratio: Some(1.0),
            samples: 15,
            calls: 146,
        }
    }

    #[test]
    fn the_table_has_the_best_twin_alone_and_all_else() {
        let rows = [
            row(1, Who::Ours, "conv_verify__bv8_t4", true, 5.0),
            row(1, Who::Ours, "conv_verify__bv16_t4", false, 4.0),
            row(1, Who::Twin, "slow", false, 6.0),
            row(1, Who::Twin, "quick", false, 5.5),
            row(1, Who::Peer, "fused", false, 8.0),
            row(2, Who::Ours, "conv_verify__bv8_t4", true, 5.0),
            row(2, Who::Twin, "slow", false, 5.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let lines = table(&rows).lines();
        assert_eq!(lines.len(), 7, "{lines:#?}");
        assert!(
            lines[1].contains("ours*") && lines[1].contains("4.90..5.10") && lines[1].contains("14.0"),
            "{}",
            lines[1]
        );
        assert!(lines[2].contains("ours ") && lines[3].contains("quick") && lines[4].contains("fused"));
        assert!(lines[6].contains("slow"));
        let ratios = ratios(&rows);
        assert_eq!(ratios.len(), 3);
        assert!(ratios[0].contains("fastest variant") && ratios[0].contains("0.800 to 1.000"), "{}", ratios[0]);
        assert!(ratios[1].contains("twin") && ratios[1].contains("1.049 in") && ratios[1].contains("2 shapes"));
        assert!(ratios[2].contains("fastest peer") && ratios[2].contains("1.600 in"));
    }
}
