//! Views of tensors at other base addresses: what they read and write, when they are there, what is refused.

use super::harness::{Run, error_of};

/// Rows are 12 elements apart, those of `x` by a launch parameter; `gone` and `held` are optional.
fn with(params: &str, body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 32, grid = 2)]
    #[requires(pitch % 4 == 0)]
    fn k(
        #[dims(4:pitch, 8; stable)] x: Global<u32>, #[dims(4:12, 8; stable)] held: Option<Global<u32>>,
        #[dims(4:12, 8)] y: GlobalMut<u32>, #[dims(4:12, 8)] kept: Option<GlobalMut<u32>>,
        #[dims(4)] counts: GlobalMut<u32>, {params}
        address: u64, other: u64, target: u64, early: bool, n: u32,
    ) {{ {body} }}
}}"
    )
}

fn kernel(body: &str) -> String {
    with("#[dims(8, 8)] map: TensorMap<f32, Shape<8, 8>>,", body)
}

/// Runs a body with three tensors behind the numbers `address`, `other` and `target`, each of 4 rows of 8, pitch 12.
fn run(body: &str, optional: bool) -> Run {
    let values = |first: u32| -> Vec<u32> { (0..48).map(|i| first + i).collect() };
    let params = "#[dims(48)] a: Global<u32>, #[dims(48)] b: Global<u32>, #[dims(48)] c: Global<u32>,";
    let source = with(params, &format!("pdl::wait(); {body}"));
    let mut run = Run::new(&source);
    run.tensor("x", &values(100)).tensor("y", &[7u32; 48]).tensor("counts", &[0u32; 4]);
    if optional {
        run.tensor("held", &values(200)).tensor("kept", &[8u32; 48]);
    }
    run.tensor("a", &values(1000)).tensor("b", &values(2000)).tensor("c", &[9u32; 48]);
    run.same("address", "a").same("other", "b").same("target", "c").set("pitch", 12u64).set("n", 1u32);
    run.launch_everywhere(2);
    run.assemble();
    run
}

/// What stands at row, column of a tensor that counts up from `first`.
fn at(first: u32, row: u32, column: u32) -> u32 {
    first + 12 * row + column
}

/// Elements, vectors, parts that were fixed ahead and behind; the strides are those of the parameter.
#[test]
fn reads_and_writes_go_to_the_address() {
    let run = run(
        "let far = x.based_at(select(ctaid.x == 0, address, other));
        let row = x.at([lane / 8]).based_at(address);
        let four = far.at([n, 4 * (lane % 2)..]).at([0]).load_v::<4>();
        let to = y.based_at_if(ctaid.x == 0, target);
        to.at([lane / 8, lane % 8]).store(far[[lane / 8, lane % 8]] + row[[lane % 8]] + four[0]);",
        false,
    );
    let (y, c) = (run.read::<u32>("y"), run.read::<u32>("c"));
    for (cta, written) in [&c, &y].into_iter().enumerate() {
        let first = 1000 * (cta as u32 + 1);
        for lane in 0..32u32 {
            let (row, column) = (lane / 8, lane % 8);
            let want = at(first, row, column) + at(1000, row, column) + at(first, 1, 4 * (lane % 2));
            assert_eq!(written[(12 * row + column) as usize], want, "{cta} {lane}");
        }
        // What lies between the rows stays.
        assert_eq!(written[8], [9, 7][cta]);
    }
    assert_eq!(run.read::<u32>("x")[0], 100);
}

/// An optional tensor is there where its parameter is and the address is not 0.
#[test]
fn presence_is_that_of_parameter_and_address() {
    for optional in [false, true] {
        let run = run(
            "let (row, column) = (lane / 8, lane % 8);
            let here = held.based_at(address);
            let none = held.based_at(other * 0);
            let own = held.based_at_if(n == 2, other * 0);
            let late = held.based_at_if(n == 1, other);
            let v = here[[row, column]] + none[[row, column]] + own[[row, column]] + late[[row, column]];
            let w = here.is_present() as u32 + 2 * (none.is_present() as u32) + 4 * (own.is_present() as u32);
            y.at([row, column]).store_if(ctaid.x == 0, v);
            counts.at([lane]).store_if(ctaid.x == 0 && lane == 0, w + 8 * (late.is_present() as u32));
            kept.based_at(target * 0).at([row, column]).store(5);
            kept.based_at(target).at([row, column]).store_if(ctaid.x == 1, v);",
            optional,
        );
        let (y, c) = (run.read::<u32>("y"), run.read::<u32>("c"));
        for lane in 0..32u32 {
            let (row, column) = (lane / 8, lane % 8);
            let sum = at(1000, row, column) + at(200, row, column) + at(2000, row, column);
            let place = (12 * row + column) as usize;
            assert_eq!([y[place], c[place]], if optional { [sum, sum] } else { [0, 9] }, "{optional} {lane}");
        }
        assert_eq!(run.read::<u32>("counts")[0], if optional { 13 } else { 0 });
        if optional {
            assert_eq!(run.read::<u32>("kept"), [8; 48]);
        }
    }
}

/// Views at addresses of one tensor each can be chosen between; so can an atomic's element.
#[test]
fn views_at_addresses_are_views() {
    let run = run(
        "let from = select(ctaid.x == 0, x.based_at(other), x);
        y.at([lane / 8, lane % 8]).store_if(ctaid.x == n, from[[lane / 8, lane % 8]]);
        y.based_at(target).at([3, 7]).fetch_add(1, RELAXED);
        y.based_at(target).at([2, lane % 8]).store_if(ctaid.x == 0 && lane < 8, from[[lane / 8, lane % 8]]);",
        false,
    );
    let (y, c) = (run.read::<u32>("y"), run.read::<u32>("c"));
    assert_eq!([y[0], y[13], y[43]], [at(100, 0, 0), at(100, 1, 1), at(100, 3, 7)]);
    assert_eq!([c[43], c[24], c[31], c[32]], [9 + 64, 2000, 2007, 9]);
}

#[test]
fn wrong_bases() {
    for (body, code) in [
        ("let s = x.based_at();", 157),
        ("let s = x.based_at(address, other);", 157),
        ("let s = x.based_at_if(address);", 157),
        ("let s = x.based_at(n);", 150),
        ("let s = x.based_at(y);", 156),
        ("let s = x.based_at_if(n, address);", 150),
        ("let s = map.based_at(address);", 156),
        ("let s = x.based_at(address).based_at(other);", 156),
        ("let s = select(n == 0, x, y).based_at(other);", 156),
        // Whether it is there is the same in the CTA.
        ("let s = held.based_at(address + lane as u64);", 156),
        ("let s = held.based_at_if(lane == 0, address);", 156),
        ("let s = smem::<u32, Shape<4>>(); let t = s.based_at(address);", 158),
        ("x.based_at(address).at([0, 0]).store(1);", 454),
        ("let s = x.based_at(address).at([n]).load();", 455),
        ("let s = x.based_at(address).at([n, lane]).load_v::<4>();", 450),
    ] {
        assert_eq!(error_of(&kernel(body)), code, "{body}");
    }
}

/// An access through another address is one of the parameter: ahead of the wait only what its mark allows.
#[test]
fn accesses_ahead_of_the_wait() {
    let behind = "pdl::wait(); y.at([0, 0]).store(1);";
    for (ahead, fine) in [
        ("let v = x.based_at(address).at([0, 0]).load();", true),
        ("let v = held.based_at(address).at([0, 0]).load();", true),
        ("let v = y.based_at(address).at([0, 0]).load();", false),
        ("y.based_at(address).at([0, 0]).store(2);", false),
        ("kept.based_at_if(early, address).at([0, 0]).store(2);", false),
        ("let v = counts.based_at(address).at([0]).fetch_add(1, RELAXED);", false),
    ] {
        let source = kernel(&format!("{ahead} {behind}"));
        match fine {
            true => assert!(super::harness::try_compile(&source).is_ok(), "{ahead}"),
            false => assert_eq!(error_of(&source), 651, "{ahead}"),
        }
    }
}
