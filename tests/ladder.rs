//! The ladder: short kernels, proved where there is something to prove. That every synchronisation in them is needed,
//! `tests/mutants.rs` shows.

use kda::checks::ladder::{RUNGS, Rung};
use kda::core::desc::Protocol;

/// Most lines of a rung.
const LINES: usize = 80;

#[test]
fn eight_short_rungs_with_a_verdict() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kda-kernels/src/ladder");
    for rung in 1..=8 {
        let files = std::fs::read_dir(&folder).expect("the ladder is readable").flatten();
        let named = files.filter(|f| f.file_name().to_string_lossy().starts_with(&format!("rung{rung}_")));
        let paths: Vec<_> = named.map(|f| f.path()).collect();
        let [path] = &paths[..] else { panic!("rung {rung}: {paths:?}") };
        let lines = std::fs::read_to_string(path).expect("a rung is text").lines().count();
        assert!(lines < LINES, "{}: {lines} lines", path.display());
    }
    assert_eq!(RUNGS.len(), 8);
    for desc in RUNGS.iter().flat_map(Rung::descs) {
        let rings = desc.shared.iter().any(|buffer| buffer.name.ends_with(".barriers"));
        let expected = if rings { Protocol::Proved } else { Protocol::Nothing };
        assert_eq!(desc.protocol, expected, "{}", desc.entry);
    }
}
