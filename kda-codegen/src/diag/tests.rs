//! The catalogue agrees with the sources, and texts are in the author's words.

use super::{Diagnostic, catalogue};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of the compiler's own that an author never sees.
const INTERNAL: [&str; 12] = [
    "syn::",
    "proc_macro",
    "TokenStream",
    "OwnedExpr",
    "Const::",
    "Elem::",
    "ParamKind",
    "Resolved",
    "Option<Ident>",
    "unwrap",
    "None)",
    "KIR",
];

/// Codes from 2000 on belong to the assembler and the simulator.
fn is_ours(code: &u16) -> bool {
    *code < 2000
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// What follows each `Diagnostic::new(` and `Diagnostic::at(` in the sources.
fn calls() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut found = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a source file is text");
        for needle in ["Diagnostic::new(", "Diagnostic::at("] {
            for (at, _) in text.match_indices(needle) {
                let rest: String = text[at + needle.len()..].chars().take(400).collect();
                // The two definitions and the forwarding call have no literal.
                if !rest.starts_with("code") {
                    found.push((path.clone(), rest));
                }
            }
        }
    }
    found
}

#[test]
fn every_code_in_use_has_an_entry_and_the_reverse() {
    let mut used = BTreeSet::new();
    for (path, rest) in calls() {
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        let code: u16 = digits.parse().unwrap_or_else(|_| panic!("{}: no literal code: {rest}", path.display()));
        used.insert(code);
    }
    let known: BTreeSet<u16> = catalogue::all().map(|e| e.code.0).filter(is_ours).collect();
    assert!(used.len() > 20, "the search finds the calls");
    assert_eq!(used.difference(&known).collect::<Vec<_>>(), Vec::<&u16>::new(), "codes without an entry");
    assert_eq!(known.difference(&used).collect::<Vec<_>>(), Vec::<&u16>::new(), "entries without a use");
}

#[test]
fn entries_are_in_order_and_in_the_authors_words() {
    let codes: Vec<u16> = catalogue::all().map(|e| e.code.0).collect();
    assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    for entry in catalogue::all() {
        for text in [entry.title, entry.explanation, entry.instead] {
            assert!(!text.is_empty(), "{}", entry.code);
            assert!(INTERNAL.iter().all(|name| !text.contains(name)), "{}: {text}", entry.code);
        }
        assert!(!entry.title.ends_with('.') && entry.explanation.ends_with('.'), "{}", entry.code);
    }
    for text in ["KDA0105", "kda0105", "0105", "105"] {
        assert_eq!(catalogue::find(text).map(|e| e.code.0), Some(105));
    }
    assert_eq!(catalogue::find("KDA9999"), None);
    for text in ["help", "", "KDA", "KDA+105", "+105", "-1", "KDAKDA105", "99999999999", "ключ"] {
        assert_eq!(catalogue::find(text), None, "{text}");
    }
}

#[test]
fn messages_in_the_sources_hold_no_internal_names() {
    for (path, rest) in calls() {
        for literal in rest.split(';').next().unwrap_or("").split('"').skip(1).step_by(2) {
            assert!(INTERNAL.iter().all(|name| !literal.contains(name)), "{}: {literal}", path.display());
        }
    }
}

#[test]
fn an_error_is_rendered_over_its_tokens_with_help_and_notes() {
    let expr: syn::Expr = syn::parse_str("a + b").expect("an expression");
    let mut error =
        Diagnostic::at(205, &expr, "they differ").help("convert").note(proc_macro2::Span::call_site(), "here");
    error.variant = Some("k__t4".into());
    assert_eq!(error.text(), "KDA0205: they differ\n  = variant: k__t4\n  = help: convert");
    let (start, end) = error.place();
    assert_eq!((start.column, end.column), (0, 5));
    let text = error.to_tokens().to_string();
    assert_eq!(text.matches("compile_error").count(), 2);
    assert!(text.contains("note: here"), "{text}");
}

/// Codes without a fixture, and why.
const WITHOUT_FIXTURE: [(u16, &str); 1] =
    [(101, "the compiler parses the module before the macro sees it, and reports the syntax error itself")];

#[test]
fn every_code_has_a_fixture_or_a_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ui");
    let fixtures: BTreeSet<u16> = fs::read_dir(folder)
        .expect("the fixtures are readable")
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().get(3..7)?.parse().ok())
        .collect();
    let excused: BTreeSet<u16> = WITHOUT_FIXTURE.iter().map(|(code, _)| *code).collect();
    let known: BTreeSet<u16> = catalogue::all().map(|e| e.code.0).filter(is_ours).collect();
    let without: Vec<_> = known.difference(&fixtures).filter(|code| !excused.contains(code)).collect();
    assert!(without.is_empty(), "no fixture in tests/ui: {without:?}");
    assert!(excused.is_disjoint(&fixtures) && excused.is_subset(&known), "{excused:?}");
}
