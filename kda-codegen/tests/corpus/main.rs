//! The negative corpus: small wrong kernels, one fault each, and the net that finds each of them.
//!
//! A case is a file. `compiler/*.rs.txt` must not compile; `simulator/*.rs.txt` and `simulator/*.ptx` must be reported when they
//! run, a kernel of the language also as the PTX text of the same name. The code and every line that the net names are marked in
//! the file. So is the correction: with it the kernel must compile and run clean, with the same results, under every schedule,
//! which shows that it is wrong for this one reason. `known_gaps/` holds faults that no net finds yet, with the reason.
//!
//! | module | what |
//! | --- | --- |
//! | [`case`] | a file: header, marks, the text with the fault and without |
//! | [`launch`] | the header's `run:` line: memory, parameters, a launch |
//! | [`judge`] | does the net find what is marked, and nothing in the corrected text |
//! | [`draft`] | the PTX of a kernel's case, to begin with |
//! | [`broken`] | cases that the runner itself must refuse |
//! | [`table`] | how many cases of which kind, as the documentation says it |

mod broken;
mod case;
mod draft;
mod judge;
mod launch;
mod table;

use case::{Case, Net};
use std::path::{Path, PathBuf};

/// Cases below which the corpus is incomplete.
const FEWEST: usize = 60;
/// Most lines of a kernel's case.
const LONGEST: usize = 55;
/// Folders of cases.
const FOLDERS: [(&str, Net); 3] =
    [("compiler", Net::Compiler), ("simulator", Net::Simulator), ("known_gaps", Net::Simulator)];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name)
}

/// The cases of a folder, by name.
fn cases(name: &str, net: Net) -> Vec<Case> {
    let entries = std::fs::read_dir(folder(name)).unwrap_or_else(|e| panic!("{}: {e}", folder(name).display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let file = path.file_name().and_then(|f| f.to_str()).expect("a name");
            let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            Case::parse(&format!("{name}/{file}"), net, &text).unwrap_or_else(|e| panic!("{name}/{file}: {e}"))
        })
        .collect()
}

/// Why no case of any folder has this part in its name, if that is so.
fn unmatched(only: &str) -> Option<String> {
    let matches = |(name, net): &(&str, Net)| cases(name, *net).iter().any(|case| case.name.contains(only));
    (!FOLDERS.iter().any(matches)).then(|| format!("KDA_CASE: no case has `{only}` in its name"))
}

/// Runs a check over cases, on two threads; all failures are reported together. `KDA_CASE` chooses by a part of the name.
fn every(cases: &[Case], check: impl Fn(&Case) -> Result<(), String> + Sync) {
    let only = std::env::var("KDA_CASE").unwrap_or_default();
    assert_eq!(unmatched(&only), None);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    if case.name.contains(&only)
                        && let Err(failure) = check(case)
                    {
                        failures.lock().expect("no panic").push(format!("== {}: {failure}", case.name));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic");
    failures.sort();
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n\n"));
}

#[test]
fn the_compiler_finds_each_fault() {
    every(&cases("compiler", Net::Compiler), judge::case);
}

#[test]
fn the_simulator_finds_each_fault() {
    every(&cases("simulator", Net::Simulator), judge::case);
}

/// A gap that is closed becomes a case.
#[test]
fn known_gaps_are_still_gaps() {
    every(&cases("known_gaps", Net::Simulator), |case| match judge::case(case) {
        _ if case.gap.is_none() => Err("no `gap`: why is it not found?".into()),
        Ok(()) => Err("it is found: move it to its net".into()),
        // With the correction it must be clean all the same.
        Err(failure) if failure.starts_with(judge::NOT_FOUND) => judge::corrected(case),
        Err(failure) => Err(failure),
    });
}

/// Every fault of a kernel that only the simulator sees stands there as PTX too, with the same code.
#[test]
fn kernels_for_the_simulator_have_their_ptx() {
    let all = cases("simulator", Net::Simulator);
    assert!(all.iter().all(|case| case.gap.is_none()), "a case that is found is no gap");
    for case in all.iter().filter(|case| !case.is_ptx()) {
        let name = case.name.replace(".rs.txt", ".ptx");
        let twin = all.iter().find(|other| other.name == name);
        let twin = twin.unwrap_or_else(|| panic!("{}: no {name}", case.name));
        assert_eq!((twin.code, &twin.kind), (case.code, &case.kind), "{name}");
    }
    for case in all.iter().filter(|case| case.is_ptx()) {
        let twin = case.name.replace(".ptx", ".rs.txt");
        assert!(
            case.only_ptx.is_some() != all.iter().any(|other| other.name == twin),
            "{}: either a kernel of the same name, or `expressible: no` and why",
            case.name
        );
    }
}

/// The corrected texts are PTX to the assembler too, where `$PTXAS` names it.
#[test]
fn the_corrected_ptx_assembles() {
    let Some(ptxas) = std::env::var_os("PTXAS") else { return };
    every(&cases("simulator", Net::Simulator), |case| {
        if !case.is_ptx() {
            return Ok(());
        }
        let name = format!("{}-{}.ptx", case.stem(), std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, &case.right).map_err(|e| e.to_string())?;
        let target = case.right.lines().find_map(|line| line.strip_prefix(".target ")).unwrap_or_default();
        let mut command = std::process::Command::new(&ptxas);
        let output = command.arg(format!("-arch={target}")).args(["-o", "/dev/null"]).arg(&path).output();
        std::fs::remove_file(&path).map_err(|e| e.to_string())?;
        let output = output.map_err(|e| e.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    });
}

#[test]
fn the_corpus_is_as_large_as_documented() {
    let all: Vec<Case> = [cases("compiler", Net::Compiler), cases("simulator", Net::Simulator)].concat();
    let names: std::collections::BTreeSet<&str> = all.iter().map(Case::stem).collect();
    assert!(names.len() >= FEWEST, "{} faults", names.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/checking.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let table = table::of(&all);
    assert!(page.contains(&table), "{} should have\n\n{table}", path.display());
}

/// A filter that chooses nothing proves nothing, and neither does a folder that is not there.
#[test]
fn a_case_that_does_not_exist_is_an_error() {
    for (name, net) in FOLDERS {
        let first = &cases(name, net)[0];
        assert_eq!(unmatched(&first.name), None, "{name}");
    }
    assert_eq!(unmatched("nosuchcase").as_deref(), Some("KDA_CASE: no case has `nosuchcase` in its name"));
    assert!(std::panic::catch_unwind(|| cases("nosuchfolder", Net::Simulator)).is_err());
}

#[test]
fn kernels_are_as_short_as_documented() {
    for case in FOLDERS.iter().flat_map(|(name, net)| cases(name, *net)).filter(|case| !case.is_ptx()) {
        let lines = case.wrong.lines().count();
        assert!(lines <= LONGEST, "{}: {lines} lines, at most {LONGEST}", case.name);
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/checking.md"));
    let said = format!("most have fewer than 40 lines, none has more than {LONGEST}");
    assert!(page.expect("the page").contains(&said), "docs/checking.md should say: {said}");
}
