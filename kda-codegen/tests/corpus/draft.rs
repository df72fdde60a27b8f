//! Drafts the PTX of a kernel's case: its compiled text with the fault, marked, and what the corrected kernel has instead.
//!
//! `KDA_DRAFT=NAME cargo test -p kda-codegen --test corpus draft` writes it beside the kernel, to be read and made shorter.

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
    // Where reports stand, those at the kernel's own mark first, and the other lines that they name.
    let (mut said, mut others) = (BTreeSet::new(), BTreeSet::new());
    for options in schedules() {
        let checks = Checks { undefined: case.code != Code::Race as u16, ..options.checks };
        if let Err(report) = bench.run(&Options { checks, ..options }).expect("it runs") {
            if let Some(site) = &report.site {
                let (code, source) = (report.code as u16, site.at.source.as_ref().map_or(0, |s| s.line));
                said.insert(((code, source) != (case.code, case.line), site.at.ptx_line, code));
            }
            others.extend(report.others.iter().map(|site| site.at.ptx_line));
        }
    }
    let mut marks = said.iter().map(|(_, line, code)| (*line, format!("KDA{code}"))).collect::<Vec<_>>();
    marks.iter_mut().skip(1).for_each(|(_, mark)| *mark = format!("or {mark}"));
    others.retain(|other| marks.iter().all(|(line, _)| line != other));
    marks.extend(others.into_iter().map(|line| (line, "also".into())));
    let header: String = case.header.iter().map(|line| format!("{line}\n")).collect();
    let mut text = header.replace(&case.run, &bench.described()) + "\n";
    for (number, mut line) in merge(&lines(&wrong.ptx), &lines(&right.ptx)) {
        let mark: String = marks.iter().filter(|(n, _)| *n == number).map(|(_, mark)| format!(" //~ {mark}")).collect();
        if !mark.is_empty() {
            let (code, rest) = line.split_once(" //~").map_or((line.as_str(), None), |(c, r)| (c, Some(r)));
            line = format!("{code}{mark}{}", rest.map_or(String::new(), |r| format!(" //~{r}")));
        }
        writeln!(text, "{line}").expect("memory");
    }
    text
}

/// Each is a case that its net finds as it finds the kernel; `KDA_DRAFT` names the cases whose drafts are written.
#[test]
fn the_ptx_of_each_kernel_can_be_drafted() {
    let only = std::env::var("KDA_DRAFT").ok().filter(|only| !only.is_empty());
    let kernels: Vec<Case> =
        super::cases("simulator", Net::Simulator).into_iter().filter(|case| !case.is_ptx()).collect();
    let chosen = |case: &Case| only.as_ref().is_some_and(|only| case.name.contains(only));
    assert!(only.is_none() || kernels.iter().any(chosen), "KDA_DRAFT: no kernel has {only:?} in its name");
    super::every(&kernels, |case| {
        let (name, text) = (case.name.replace(".rs.txt", ".ptx"), draft(case));
        let drafted = Case::parse(&name, Net::Simulator, &text)?;
        if (drafted.code, &drafted.kind, drafted.always) != (case.code, &case.kind, case.always) {
            return Err(format!("the draft is of another fault:\n{text}"));
        }
        super::judge::case(&drafted).map_err(|e| format!("{e}\n{text}"))?;
        if chosen(case) {
            std::fs::write(super::folder(&name), text).map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    });
}
