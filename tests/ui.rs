//! Errors as a kernel author sees them: code, message, help and place of each fixture in `tests/ui`.
//!
//! The expected texts are those of the compiler named in `rust-version`. `TRYBUILD=overwrite cargo test --test ui` writes
//! them anew; read the difference before keeping it.

use std::fs;
use std::path::Path;

/// Fixtures: source and expected text.
fn fixtures() -> Vec<(String, String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the fixtures are readable").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "rs") {
            let text = |path: &Path| fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            found.push((name, text(&path), text(&path.with_extension("stderr"))));
        }
    }
    found
}

#[test]
fn fixtures_give_their_errors() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// Each fixture marks its place with `//~ CODE` on the line of the error: the code and the line must be those reported,
/// the error must be the only one, and no text may hold a name of the compiler's own.
#[test]
fn each_fixture_has_one_error_on_the_marked_line() {
    const INTERNAL: [&str; 9] =
        ["syn::", "proc_macro", "TokenStream", "kda_codegen", "OwnedExpr", "unwrap", "panicked", "Span", "Ident("];
    for (name, source, expected) in fixtures() {
        let marks: Vec<(usize, &str)> = source
            .lines()
            .enumerate()
            .filter_map(|(at, line)| line.split_once("//~ ").map(|(_, code)| (at + 1, code.trim())))
            .collect();
        assert!(!marks.is_empty(), "{name}: no mark");
        let errors: Vec<&str> = expected.lines().filter(|line| line.starts_with("error")).collect();
        let real: Vec<&&str> = errors.iter().filter(|line| !line.starts_with("error: note:")).collect();
        assert_eq!(real.len(), marks.len(), "{name}: {errors:#?}");
        for (line, code) in marks {
            assert!(name.starts_with(&code.to_lowercase()), "{name} is not named after {code}");
            assert!(real.iter().any(|error| error.starts_with(&format!("error: {code}: "))), "{name}: {real:?}");
            assert!(expected.contains(&format!("--> tests/ui/{name}.rs:{line}:")), "{name}: not at line {line}");
        }
        for word in INTERNAL {
            assert!(!expected.contains(word), "{name}: `{word}`");
        }
    }
}
