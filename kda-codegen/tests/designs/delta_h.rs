//! delta_h
use super::harness::Run;
#[test]
fn compiles() {
    let run = Run::new(include_str!("delta_h.rs.txt"));
    println!("{:?} {}", run.compiled.protocol, run.compiled.shared_bytes);
    std::fs::write("/tmp/delta.ptx", &run.compiled.ptx).unwrap();
}
