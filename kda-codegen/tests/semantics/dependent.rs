//! Waits for the launch ahead: where they may stand, and what may be accessed ahead of them.

use super::harness::{Run, error_of};

/// A block of two roles of one warp; `x` is any input, `fixed` a stable one, `own` a result that nobody else touches.
fn kernel(body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 64, grid = 1)]
    #[roles(first = 0..1, second = 1..2)]
    fn k(
        #[dims(64; stable)] fixed: Global<u32>, #[dims(64)] x: Global<u32>, #[dims(64; unshared)] own: GlobalMut<u32>,
        #[dims(64)] y: GlobalMut<u32>, n: u32, early: bool,
    ) {{ {body} }}
}}"
    )
}

/// Runs a body that gives `y = x + 1` in all threads.
fn gives(body: &str, early: bool, n: u32) {
    let x: Vec<u32> = (0..64).map(|i| 3 * i + 7).collect();
    let mut run = Run::new(&kernel(body));
    run.tensor("fixed", &[5u32; 64]).tensor("x", &x).tensor("own", &[0u32; 64]).tensor("y", &[0u32; 64]);
    run.set("n", n).set("early", u8::from(early));
    let y = run.launch_everywhere(1).read::<u32>("y");
    for (tid, (y, x)) in y.iter().zip(&x).enumerate() {
        assert_eq!(*y, x + 1, "thread {tid}, {body}");
    }
}

const USE: &str = "y.at([tid]).store(x.at([tid]).load() + 1);";

#[test]
fn roles_wait_by_themselves() {
    for body in [
        // Roles wait where they need to, and all of the block behind them.
        format!("#[role(first)] {{ pdl::wait(); {USE} }} #[role(second)] {{ pdl::wait(); {USE} }} pdl::wait();"),
        format!("#[role(first)] {{ if early {{ pdl::wait(); }} }} pdl::wait(); {USE}"),
        // Again and again.
        format!("pdl::wait(); {USE} pdl::wait();"),
        format!("#[role(first)] for i in 0..n {{ pdl::wait(); }} pdl::wait(); {USE}"),
        format!("#[role(first)] for i in 0..n {{ if i == 1 {{ pdl::wait(); }} }} pdl::wait(); {USE}"),
        // Of some threads, ahead of a wait of all.
        format!("if lane < 3 {{ pdl::wait(); }} pdl::wait(); {USE}"),
        format!("if early {{ pdl::wait(); {USE} }} else {{ pdl::wait(); {USE} }}"),
        // What a predecessor neither writes nor, if it is written, reads.
        "let mut sum = 0;
             #[role(first)] { sum = fixed.at([tid]).load(); own.at([tid]).store(sum); pdl::wait(); }
             #[role(second)] { own.at([tid]).store(1); if early { pdl::wait(); } sum = fixed.at([lane]).load(); }
             pdl::wait();
             y.at([tid]).store(x.at([tid]).load() + select(sum == 5, 1, 9));"
            .to_owned(),
    ] {
        for (early, n) in [(false, 0), (true, 3)] {
            gives(&body, early, n);
        }
    }
}

/// A wait of one role is none of another: what each accesses ahead of its own is found.
#[test]
fn accesses_ahead_of_the_wait_of_their_own_role() {
    let code = |body: &str| error_of(&kernel(body));
    let others = "pdl::wait();";
    for (ahead, behind) in [
        ("let v = x.at([tid]).load();", "y.at([tid]).store(v);"),
        ("y.at([tid]).store(3);", ""),
        // A result that is read, and an input that is written, are not what the mark allows.
        ("own.at([tid]).store(x.at([tid]).load());", ""),
        ("if early { y.at([tid]).store(fixed.at([tid]).load()); }", ""),
    ] {
        for body in [
            format!("{ahead} {others} {behind}"),
            format!("#[role(first)] {{ {ahead} {others} {behind} }} #[role(second)] {{ {others} }}"),
            format!("#[role(first)] {{ {others} }} #[role(second)] {{ {ahead} {others} {behind} }}"),
            format!("#[role(first)] {{ {others} }} #[role(second)] {{ {ahead} }} {others}"),
            format!("if early {{ {others} }} {ahead} {others}"),
            format!("if lane < 3 {{ {others} }} {ahead} {others}"),
            format!("for i in 0..n {{ {ahead} {others} }} {others}"),
        ] {
            assert_eq!(code(&body), 651, "{body}");
        }
    }
}

#[test]
fn every_thread_waits() {
    for body in [
        "if warp == 0 { pdl::wait(); }",
        "if lane == 0 { pdl::wait(); }",
        "if early { pdl::wait(); }",
        "#[role(first)] { pdl::wait(); }",
        // Roles are not added up.
        "#[role(first)] { pdl::wait(); } #[role(second)] { pdl::wait(); }",
        "#[role(first)] { pdl::wait(); } #[role(second)] { if early { pdl::wait(); } }",
        "for i in 0..n { pdl::wait(); }",
        "if n == 0 { return; } pdl::wait();",
    ] {
        assert_eq!(error_of(&kernel(body)), 663, "{body}");
    }
}

/// Lanes that were not elected wait for the one that was: a wait for the grid ahead holds their whole warp.
#[test]
fn lanes_meet_ahead_of_the_wait() {
    let ahead = |body: &str| {
        let ptx = Run::new(&kernel(body)).compiled.ptx;
        let lines: Vec<&str> = ptx.lines().map(str::trim).filter(|line| !line.starts_with(".loc")).collect();
        let waits: Vec<usize> = (0..lines.len()).filter(|at| lines[*at] == "griddepcontrol.wait;").collect();
        waits.into_iter().map(|at| lines[at - 1] == "bar.warp.sync -1;").collect::<Vec<_>>()
    };
    let elected = "#[role(first)] #[elect_one] for i in 0..n { fixed.at([i]).load(); }";
    assert_eq!(ahead(&format!("{elected} pdl::wait(); {USE}")), [true]);
    assert_eq!(ahead(&format!("pdl::wait(); {elected} {USE} pdl::wait();")), [false, true]);
    // One thread waits by itself.
    let inside = "#[role(first)] #[elect_one] for i in 0..n { pdl::wait(); }";
    assert_eq!(ahead(&format!("{inside} pdl::wait(); {USE}")), [false, true]);
    assert_eq!(ahead(&format!("pdl::wait(); {USE}")), [false]);
}
