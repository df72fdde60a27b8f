//! Drafts the PTX of a kernel's case: its compiled text with the fault, marked, and what the corrected kernel has instead.
//!
//! `KDA_DRAFT=simulator/NAME.rs.txt cargo test -p kda-codegen --test corpus draft -- --ignored`, then read what it wrote.

use super::case::{Case, Net};
use super::judge::{compile, schedules};
use super::launch::Bench;
use kda_sim::{Checks, Code, Options};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Lines of a text that matter, with their numbers.
fn lines(text: &str) -> Vec<(u32, &str)> {
    let all = (1..).zip(text.lines());
    all.filter(|(_, l)| !l.trim().is_empty() && ![".loc", ".file", "//"].iter().any(|s| l.trim().starts_with(s)))
        .collect()
}

/// Lines of `wrong` with what stands in `right` instead of them.
fn merge(wrong: &[(u32, &str)], right: &[(u32, &str)]) -> Vec<(u32, String)> {
    let (n, m) = (wrong.len(), right.len());
    let mut common = vec![vec![0u32; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            common[i][j] = match wrong[i].1 == right[j].1 {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::<(u32, String)>::new());
    while i < n || j < m {
        if i < n && j < m && wrong[i].1 == right[j].1 {
            out.push((wrong[i].0, wrong[i].1.to_string()));
            (i, j) = (i + 1, j + 1);
        } else if i < n && (j == m || common[i + 1][j] >= common[i][j + 1]) {
            out.push((wrong[i].0, format!("{} //~ fix-delete", wrong[i].1)));
            i += 1;
        } else {
            let last = out.last_mut().expect("a line before");
            let text = right[j].1.trim();
            match last.1.strip_suffix("//~ fix-delete").map(String::from) {
                Some(line) => last.1 = format!("{line}//~ fix: {text}"),
                None => write!(last.1, " //~ fix-insert: {text}").expect("memory"),
            }
            j += 1;
        }
    }
    out
}

fn draft(case: &Case) -> String {
    let [wrong, right] = [&case.wrong, &case.right].map(|text| compile(text).expect("it compiles"));
    let bench = Bench::of_kernel(&wrong, &case.run).expect("a launch");
    let mut named = BTreeSet::new();
    for options in schedules() {
        let checks = Checks { undefined: case.code != Code::Race as u16, ..options.checks };
        if let Err(report) = bench.run(&Options { checks, ..options }).expect("it runs") {
            for site in report.site.iter().chain(&report.others) {
                let source = site.at.source.as_ref().map_or(0, |s| s.line);
                named.insert((source != case.line, site.at.ptx_line, source));
            }
        }
    }
    let code = named.first().map_or(0, |(_, line, _)| *line);
    let header: String = case.header.iter().map(|line| format!("{line}\n")).collect();
    let mut text = header.replace(&case.run, &bench.described()) + "\n";
    for (number, mut line) in merge(&lines(&wrong.ptx), &lines(&right.ptx)) {
        if named.iter().any(|(_, n, _)| *n == number) {
            let source = named.iter().find(|(_, n, _)| *n == number).map_or(0, |(_, _, source)| *source);
            let mark = match case.or.iter().find(|(_, line)| *line == source) {
                _ if number == code => format!("KDA{}", case.code),
                Some((code, _)) => format!("or KDA{code}"),
                None => "also".into(),
            };
            let (code, rest) = line.split_once(" //~").map_or((line.as_str(), None), |(c, r)| (c, Some(r)));
            line = format!("{code} //~ {mark}{}", rest.map_or(String::new(), |r| format!(" //~{r}")));
        }
        writeln!(text, "{line}").expect("memory");
    }
    text
}

#[test]
#[ignore = "writes files"]
fn draft_the_ptx_of_a_case() {
    let only = std::env::var("KDA_DRAFT").expect("KDA_DRAFT names cases");
    for case in super::cases("simulator", Net::Simulator).iter().filter(|c| !c.is_ptx() && c.name.contains(&only)) {
        let path = super::folder(&case.name.replace(".rs.txt", ".ptx"));
        std::fs::write(path, draft(case)).expect("a file");
    }
}
