//! What is in flight: branches, loops, whole warpgroups, columns of an accumulator.

use super::*;

/// Both sides of a runtime branch leave the same products in flight.
#[test]
fn branches_keep_what_is_in_flight() {
    let acc = format!("let mut acc = Acc::<f32, 64, 64>::zero(); {}", "acc.mma(slot.a, slot.b);");
    for (code, body) in [
        (903, format!("{acc} wgmma::commit(); if n > 1 {{ wgmma::wait::<0>(); }} {OUT}")),
        (904, format!("{acc} if n > 1 {{ wgmma::commit(); }} {DONE} {OUT}")),
        (903, format!("{acc} if n > 1 {{ acc.mma(slot.a, slot.b); }} {DONE} {OUT}")),
        (
            903,
            format!("{acc} wgmma::commit(); if n > 1 {{ wgmma::wait::<0>(); }} else {{ wgmma::wait::<1>(); }} {OUT}"),
        ),
        (903, format!("{acc} wgmma::commit(); if n > 1 && {{ wgmma::wait::<0>(); n > 2 }} {{ }} {OUT}")),
        (903, format!("{acc} wgmma::commit(); if n > 9 {{ return; }} wgmma::wait::<0>(); {OUT}")),
        (903, format!("{acc} wgmma::commit(); for i in 0..n {{ wgmma::wait::<0>(); }} {OUT}")),
        (903, format!("{acc} wgmma::commit(); for i in 0..n {{ }} wgmma::wait::<0>(); {OUT}")),
        (903, format!("{acc} {DONE} for i in 0..n {{ acc.mma(slot.a, slot.b); wgmma::commit(); }} {OUT}")),
        (655, format!("{acc} wgmma::commit();")),
        (903, format!("{acc} {DONE} acc.for_each(|row, column, pair| acc.mma(slot.a, slot.b)); {DONE}")),
        (904, format!("{acc} if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ {DONE} }} {OUT}")),
        (
            904,
            format!("{ZERO} if n > 1 {{ acc.mma(slot.a, slot.b); }} else {{ acc.mma(slot.a, slot.b); }} {DONE} {OUT}"),
        ),
        (905, format!("{acc} {DONE} #[elect_one] {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}")),
    ] {
        assert_eq!(error_of(&square(1, &body)), code, "{body}");
    }
    let (a, b, once) = square_inputs(1, 1);
    let twice: Vec<f32> = once.iter().map(|x| 2.0 * x).collect();
    for (expected, body) in [
        (
            &twice,
            format!(
                "{acc} wgmma::commit(); if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ wgmma::wait::<0>(); }} {OUT}"
            ),
        ),
        (
            &once,
            format!(
                "{acc} wgmma::commit(); if n > 5 {{ acc.mma(slot.a, slot.b); {DONE} }} else {{ wgmma::wait::<0>(); }} {OUT}"
            ),
        ),
        (
            &once,
            format!("{acc} wgmma::commit(); if n > 1 {{ wgmma::wait::<0>(); }} else {{ wgmma::wait::<0>(); }} {OUT}"),
        ),
        (&twice, format!("{acc} {DONE} for i in 2..n {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}")),
        // Only one side uses the accumulator; the other leaves it zero.
        (
            &once,
            format!("let mut acc = Acc::<f32, 64, 64>::zero(); if n > 1 {{ acc.mma(slot.a, slot.b); {DONE} }} {OUT}"),
        ),
        (
            &once,
            format!(
                "let mut acc = Acc::<f32, 64, 64>::zero();
                 for i in 0..n {{ acc = Acc::<f32, 64, 64>::zero(); acc.mma(slot.a, slot.b); {DONE} }} {OUT}"
            ),
        ),
        (&vec![0.0; 64 * 64], format!("{acc} {DONE} for i in 0..n {{ acc = Acc::<f32, 64, 64>::zero(); }} {OUT}")),
    ] {
        check(&square(1, &body), [&a, &b], SQUARE, expected);
    }
}

/// All four warps of a warpgroup take part, and it is seen which conditions say so.
#[test]
fn products_are_of_whole_warpgroups() {
    let acc = "let mut acc = Acc::<f32, 128, 64>::zero();";
    let one = format!("acc.mma(slot.a, slot.b); {DONE}");
    for condition in [
        "warp == 1",
        "warp % 4 < 2",
        "warp > 0",
        "warp < 6",
        "warp >= 2",
        "lane < 4",
        "tid < 128",
        "warp & 6 == 2",
        "(warp + 1) / 4 == 1",
    ] {
        for body in [
            format!("{acc} if {condition} {{ {one} }} {OUT}"),
            format!("{acc} {one} if {condition} {{ wgmma::wait::<0>(); }} {OUT}"),
            format!("{acc} {one} if {condition} {{ wgmma::commit(); }} {OUT}"),
        ] {
            assert_eq!(error_of(&square(2, &body)), 905, "{body}");
        }
    }
    assert_eq!(error_of(&square(2, &format!("{acc} for i in 0..warp {{ {one} }} {OUT}"))), 905);
    // An accumulator of all warpgroups is none of a role's.
    let other = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 256, grid = 1)]
    #[roles(load = 0..4, math = 4..8)]
    fn k(#[dims(128, 64)] c: GlobalMut<f32>) {
        let acc = Acc::<f32, 128, 64>::zero();
        #[role(math)]
        {
            acc.for_each(|row, column, pair| c.at([row, column]).store_v(pair));
        }
    }
}";
    assert_eq!(error_of(other), 905);
    let (a, b, full) = square_inputs(2, 2);
    for (condition, rows) in [
        ("warp < 4", 0..64),
        ("warp / 4 == 1", 64..128),
        ("warp >> 2 == 0", 0..64),
        ("warp > 3", 64..128),
        ("(warp - 4) / 4 == 0", 64..128),
        ("warp + 8 < 12", 0..64),
        ("warp <= 3 && n > 1", 0..64),
        ("ctaid.x == 0 && n == 3", 0..128),
    ] {
        let expected: Vec<f32> =
            full.iter().enumerate().map(|(i, x)| if rows.contains(&(i / 64)) { *x } else { 0.0 }).collect();
        let source = square(2, &format!("{acc} if {condition} {{ {one} }} {OUT}"));
        check(&source, [&a, &b], [(128, 64), (64, 64)], &expected);
    }
    // What a warp holds, it may use by itself.
    let alone = format!("{acc} {one} if warp == 5 {{ {OUT} }}");
    let expected: Vec<f32> =
        full.iter().enumerate().map(|(i, x)| if (80..96).contains(&(i / 64)) { *x } else { -1.0 }).collect();
    check(&square(2, &alone), [&a, &b], [(128, 64), (64, 64)], &expected);
}

/// Halves of N are in flight, and are waited for, by themselves.
#[test]
fn columns_of_an_accumulator() {
    let halves = "acc.columns(0..32).mma(slot.a, slot.b.rows(0..32));
        wgmma::commit();
        acc.columns(32..64).mma(slot.a, slot.b.rows(32..64));
        wgmma::commit();";
    let left = "acc.columns(0..32).for_each(|row, column, pair| c.at([row, column]).store_v(pair));";
    let right = "acc.columns(32..64).for_each(|row, column, pair| c.at([row, 32 + column]).store_v(pair));";
    check_bodies(
        10,
        &[
            &format!("{ZERO} {halves} wgmma::wait::<1>(); {left} wgmma::wait::<0>(); {right}"),
            &format!("{ZERO} {halves} wgmma::wait::<0>(); {OUT}"),
            // B across K has its halves along the rows of the tile, and K in halves.
            &format!(
                "{ZERO} acc.mma(slot.a.columns(0..32), slot.b.columns(0..32));
                 acc.mma(slot.a.columns(32..64), slot.b.columns(32..64)); {DONE} {OUT}"
            ),
            // The other half stays zero, and is written as such.
            &format!(
                "{ZERO} acc.columns(32..64).mma(slot.a, slot.b.rows(32..64)); {DONE}
                 let half = acc; acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); {DONE}
                 acc.columns(32..64) = half.columns(32..64); {OUT}"
            ),
            &format!(
                "{ZERO} let mut half = Acc::<f32, 64, 32>::zero(); half.mma(slot.a, slot.b.rows(32..64)); {DONE}
                acc.columns(32..64) = half; acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); {DONE} {OUT}"
            ),
        ],
        |_, _, product| product.to_vec(),
    );
    // The whole goes on from halves.
    let twice = format!(
        "{ZERO} acc.columns(0..32).mma(slot.a, slot.b.rows(0..32)); {DONE} acc.mma(slot.a, slot.b); {DONE} {OUT}"
    );
    check_bodies(11, &[&twice], |_, _, product| {
        product.iter().enumerate().map(|(i, x)| if i % 64 < 32 { 2.0 * x } else { *x }).collect()
    });
    for body in [
        format!("{ZERO} {halves} wgmma::wait::<1>(); {right} wgmma::wait::<0>();"),
        format!("{ZERO} {halves} wgmma::wait::<1>(); {OUT} wgmma::wait::<0>();"),
        format!("{ZERO} {halves} acc.mma(slot.a, slot.b); {DONE}"),
    ] {
        assert_eq!(error_of(&square(1, &body)), 903, "{body}");
    }
    for body in [
        format!("{ZERO} acc.columns(0..36).mma(slot.a, slot.b.rows(0..32)); {DONE}"),
        format!("{ZERO} acc.columns(32..96).mma(slot.a, slot.b); {DONE}"),
        format!("{ZERO} acc.columns(n..64).mma(slot.a, slot.b); {DONE}"),
    ] {
        assert_eq!(error_of(&square(1, &body)), 154, "{body}");
    }
    let body = format!("{ZERO} acc.columns(0..32).mma(slot.a, slot.b.rows(0..64)); {DONE}");
    assert_eq!(error_of(&square(1, &body)), 902, "{body}");
}
