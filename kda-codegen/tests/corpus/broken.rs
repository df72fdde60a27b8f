//! Cases that are wrong as cases: the runner refuses each, and says why.

use super::case::{Case, Net};
use super::judge;

const RACE: &str = "// A fault.
// kind: barriers
// run: grid 1; x f32 [64] random; y f32 [64] poison
// schedules: all

#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(#[dims(64)] x: Global<f32>, #[dims(64)] y: GlobalMut<f32>) {
        let row = smem::<f32, Shape<64>>();
        row[[tid]] = x.at([tid]).load(); //~ KDA3001 //~ fix-insert: cta_sync();
        y.at([tid]).store(row[[63 - tid]]); //~ or KDA3001
    }
}
";

/// What the runner says of [`RACE`] with some text replaced.
fn verdict(net: Net, from: &str, to: &str) -> String {
    assert!(from.is_empty() || RACE.contains(from), "{from}");
    let text = if from.is_empty() { RACE.to_string() } else { RACE.replacen(from, to, 1) };
    match Case::parse("inline.rs.txt", net, &text).and_then(|case| judge::case(&case)) {
        Ok(()) => "ok".into(),
        Err(failure) => failure,
    }
}

#[test]
fn broken_cases_are_refused() {
    assert_eq!(verdict(Net::Simulator, "", ""), "ok");
    for (from, to, why) in [
        // Marks.
        (" //~ or KDA3001", "", "KDA3001 at line 12, but marked is KDA3001 at line 11"),
        ("//~ or KDA3001", "//~ also", "KDA3001 at line 12, but marked is KDA3001 at line 11"),
        ("    }\n}", "    } //~ also\n}", "line 13 is marked `also`, and not named"),
        (
            "let row = smem::<f32, Shape<64>>();",
            "let row = smem::<f32, Shape<64>>(); //~ KDA3001",
            "has a code already",
        ),
        ("//~ KDA3001", "//~ KDA3001 //~ also", "a line is marked once"),
        (" //~ KDA3001", "", "no line is marked with a code"),
        ("KDA3001", "KDA3002", "but marked is KDA3002 at line 11"),
        ("KDA3001", "KDA0661", "is not of this net"),
        ("//~ or KDA3001", "//~ or KDA3001 //~ or KDA3006", "KDA3006 is marked at line 12, and not reported"),
        ("//~ or KDA3001", "//~ aslo", "`aslo` is no mark"),
        // The correction.
        (" //~ fix-insert: cta_sync();", "", "no correction is marked"),
        ("fix-insert: cta_sync();", "fix-insert: warp_sync();", "the corrected kernel is not clean"),
        ("fix-insert: cta_sync();", "fix-insert: sync();", "corrected: it does not compile"),
        ("fix-insert: cta_sync();", "fix: row[[tid]] = 0.0; //~ fix-delete", "two corrections of a line"),
        // The fault.
        ("row[[63 - tid]]", "row[[tid]]", "not found under any schedule"),
        ("schedules: all", "schedules: some", "it is found under all schedules"),
        ("y.at([tid]).store(row[[63 - tid]])", "y.at([tid]).store(row[[63 - tid]], 1)", "it does not compile"),
        // The header.
        ("schedules: all", "schedules: most", "`schedules` is `all` or `some`"),
        ("// kind: barriers\n", "", "no `kind`"),
        ("// kind: barriers\n", "// kind: barriers\n// kind: copies\n", "`kind` twice"),
        ("// A fault.", "//", "the header says in a sentence what is wrong"),
        ("; x f32 [64] random", "", "run: nothing on `x`"),
        ("; x f32 [64] random", "; x f32 [64] random; z u32 1", "run: no parameter `z`"),
        ("; x f32 [64] random", "; x f32 [64] random; ahead z", "run: no tensor `z`"),
        ("; x f32 [64] random", "; x f32 [64] random; ahead x", "KDA3001 is marked at line 12, and not reported"),
        ("x f32 [64] random", "x f32 [64] noise", "run: `x f32 [64] noise`"),
        ("x f32 [64] random", "x f32 [64] below 0", "run: `x f32 [64] below 0`"),
        ("x f32 [64] random", "x f32 [64] below -1", "run: `x f32 [64] below -1`"),
        ("x f32 [64] random", "x f32 [99999999999] random", "more than 16777216 bytes"),
        ("x f32 [64] random", "x f32 [4194305] random", "run: `x f32 [4194305] random`: more than 16777216 bytes"),
        ("y f32 [64] poison", "y f32 [4194305] poison", "more than 16777216 bytes"),
        ("x f32 [64] random", "x f32 [99999999999, 99999999999] random", "more than 16777216 bytes"),
        ("x f32 [64] random", "x f32 [0, 99999999999, 99999999999] random", "more than 16777216 bytes"),
        ("x f32 [64] random", "x f32 [99999999999999999999] random", "run: `x f32 [99999999999999999999] random`"),
    ] {
        let said = verdict(Net::Simulator, from, to);
        assert!(said.contains(why), "`{from}` -> `{to}`: {said}");
    }
    // A mark on the wrong line.
    let moved = RACE.replace(" //~ KDA3001", "").replace("Shape<64>>();", "Shape<64>>(); //~ KDA3001");
    let case = Case::parse("inline.rs.txt", Net::Simulator, &moved).expect("a case");
    let said = judge::case(&case).expect_err("the wrong line");
    assert!(said.contains("but marked is KDA3001 at line 10"), "{said}");
}

const BARRIERS: &str = "// A fault.
// kind: barriers
// run: grid 1

#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[roles(load = 0..1, math = 1..2)]
    fn k() {
        let full = NamedBarrier { between: (load, math) };
        #[role(load)]
        {
            full.sync(); //~ KDA0661
        }
        #[role(math)]
        {
            //~ fix: full.sync();
        }
    }
}
";

#[test]
fn broken_cases_of_the_compiler_are_refused() {
    let verdict =
        |text: &str| match Case::parse("inline.rs.txt", Net::Compiler, text).and_then(|case| judge::case(&case)) {
            Ok(()) => "ok".to_string(),
            Err(failure) => failure,
        };
    assert_eq!(verdict(BARRIERS), "ok");
    for (from, to, why) in [
        (" //~ KDA0661", "", "no line is marked with a code"),
        ("#[role(load)]", "#[role(load)] //~ also", "line 11 is marked `also`, and not named"),
        ("KDA0661", "KDA0660", "KDA0661 at line 13, but marked is KDA0660 at line 13"),
        ("//~ fix: full.sync();", "full.sync(); //~ fix-delete", "not found: it compiles"),
        ("// run: grid 1", "// run: grid 1\n// schedules: all", "`schedules` is for the simulator"),
    ] {
        let said = verdict(&BARRIERS.replacen(from, to, 1));
        assert!(said.contains(why), "`{from}` -> `{to}`: {said}");
    }
}

/// The code's mark and `also` of a case change places: the net names both lines, and reports at one of them.
#[test]
fn the_code_is_marked_where_the_net_reports() {
    for (net, name, text) in [
        (Net::Simulator, "fence_ahead_of_the_writes.ptx", include_str!("simulator/fence_ahead_of_the_writes.ptx")),
        (Net::Compiler, "stage_released_twice.rs.txt", include_str!("compiler/stage_released_twice.rs.txt")),
    ] {
        let right = Case::parse(name, net, text).expect("a case");
        assert_eq!(judge::case(&right), Ok(()), "{name}");
        let code = format!("//~ KDA{:04}", right.code);
        let swapped = text.replace("//~ also", "//~ swapped").replace(&code, "//~ also").replace("//~ swapped", &code);
        let case = Case::parse(name, net, &swapped).expect("a case");
        assert_eq!((case.line, case.also.as_slice()), (right.also[0], [right.line].as_slice()), "{name}");
        let said = judge::case(&case).expect_err(name);
        let why = format!("at line {}, but marked is KDA{:04} at line {}", right.line, right.code, case.line);
        assert!(said.contains(&why), "{name}: {said}");
        // Without `also`, a line that only the notes name.
        let case = Case::parse(name, net, &text.replace(" //~ also", "")).expect("a case");
        let said = judge::case(&case).expect_err(name);
        assert!(said.contains(&format!("line {} is named, and not marked", right.also[0])), "{name}: {said}");
    }
}
