//! Tiles that threads store and products read.

use super::*;

/// The sum of A Aᵀ over the matrices of 64 x 64 in `a`.
fn sum_of_squares(a: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0; 64 * 64];
    for a in a.chunks(64 * 64) {
        let square = product(a, &transposed(a, 64, 64), (64, 64, 64));
        sum.iter_mut().zip(square).for_each(|(sum, x)| *sum += x);
    }
    sum
}

/// The text has one proxy fence; without it a launch is a race.
#[track_caller]
fn its_one_fence_is_needed(run: &mut Run) {
    let fence = "fence.proxy.async.shared::cta;";
    assert_eq!(run.compiled.ptx.matches(fence).count(), 1);
    run.compiled.ptx = run.compiled.ptx.replace(fence, "");
    let report = run.try_launch(1, &Options::default()).expect_err("a race");
    assert!(report.to_string().contains("fence.proxy.async"), "{report}");
}

/// What threads store into a tile is fenced before products read it; without the fence, or the barrier, it is a race.
#[test]
fn stored_tiles_are_fenced_for_products() {
    let before = "let twice = smem::<bf16, Shape<64, 64>, Swizzle<128>>();";
    let fill = "#[unroll] for i in 0..32 {
            let column = tid % 2 * 32 + i;
            twice[[tid / 2, column]] = bf16::rn(2.0 * (slot.a[[tid / 2, column]] as f32));
        }";
    let one = format!("acc.mma(twice, slot.b); {DONE}");
    let (a, b, once) = square_inputs(1, 3);
    let twice: Vec<f32> = once.iter().map(|x| 2.0 * x).collect();
    let acc = "let mut acc = Acc::<f32, 64, 64>::zero();";
    for body in [
        format!("{acc} {fill} cta_sync(); {one} {OUT}"),
        // Written in one trip, read in the next.
        format!(
            "{acc} {fill} cta_sync(); for i in 0..2 {{ {one} acc = Acc::<f32, 64, 64>::zero(); cta_sync(); {fill} cta_sync(); }} {one} {OUT}"
        ),
        format!("{acc} if n > 1 {{ {fill} }} cta_sync(); {one} {OUT}"),
    ] {
        let source = kernel(1, 128, SQUARE, (64, 64), before, &body);
        let mut run = check(&source, [&a, &b], SQUARE, &twice);
        let right = run.compiled.ptx.clone();
        let fence = "fence.proxy.async.shared::cta;";
        for (at, _) in right.match_indices(fence) {
            run.compiled.ptx = format!("{}{}", &right[..at], &right[at + fence.len()..]);
            let report = run.try_launch(1, &Options::default()).expect_err("a race");
            assert!(report.to_string().contains("fence.proxy.async"), "{report}");
        }
        assert!(right.contains(fence), "{right}");
    }
    // The fence is there, the barrier is not.
    let source = kernel(1, 128, SQUARE, (64, 64), before, &format!("{acc} {fill} {one} {OUT}"));
    let mut run = Run::new(&source);
    assert!(run.compiled.ptx.contains("fence.proxy.async.shared::cta;"));
    run.map("a", &bits(&a), &[64, 64]).map("b", &bits(&b), &[64, 64]).tensor("c", &[0f32; 64 * 64]);
    run.set("n", 3u32).try_launch(1, &Options::default()).expect_err("a race");
}

/// A role of threads fills the stages of a ring that products read: the hand-over has its fence.
#[test]
fn stages_filled_by_threads() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 192, grid = 1)]
    #[roles(math = 0..4, fill = 4..6)]
    fn k(#[dims(steps, 64, 64)] a: Global<f32>, #[dims(64, 64)] c: GlobalMut<f32>) {
        let ring = Pipeline::<fill, math> { a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>() };
        #[role(fill)]
        for step in 0..steps {
            let slot = ring.acquire();
            let tile = slot.a;
            #[unroll]
            for i in 0..64 {
                tile[[i, tid - 128]] = bf16::rn(a.at([step, i, tid - 128]).load());
            }
            slot.commit();
        }
        #[role(math)]
        {
            let mut acc = Acc::<f32, 64, 64>::zero();
            for step in 0..steps {
                let slot = ring.wait();
                acc.mma(slot.a, slot.a.t());
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }
            acc.for_each(|row, column, pair| c.at([row, column]).store_v(pair));
        }
    }
}";
    let mut random = Random::new(110);
    let steps = 5;
    let a = matrix(&mut random, steps * 64, 64);
    let expected = sum_of_squares(&a);
    let mut run = Run::new(source);
    run.assemble();
    run.tensor("a", &a).tensor("c", &vec![0f32; 64 * 64]).set("steps", steps as u32);
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), expected);
    its_one_fence_is_needed(&mut run);
}

/// A stage that its producers multiply before another role stores it by copies: the fence of the products, in the storing
/// threads, is that of the copies, too.
#[test]
fn stages_that_their_producers_multiply() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 160, grid = 1)]
    #[roles(math = 0..4, store = 4..5)]
    fn k(
        #[dims(steps, 64, 64)] a: Global<f32>,
        #[dims(rows, 64)] x: TensorMapMut<bf16, Shape<64, 64>, Swizzle<128>>,
        #[dims(64, 64)] c: GlobalMut<f32>,
    ) {
        let ring = Pipeline::<math, store> { x: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>() };
        #[role(math)]
        {
            let mut sum = Acc::<f32, 64, 64>::zero();
            for step in 0..steps {
                let slot = ring.acquire();
                let x = Acc::<f32, 64, 64>::from_fn(|i, j| a.at([step, i, j]).load());
                x.store(slot.x);
                role_sync();
                sum.mma(slot.x, slot.x.t());
                wgmma::commit();
                wgmma::wait::<0>();
                slot.commit();
            }
            sum.for_each(|row, column, pair| c.at([row, column]).store_v(pair));
        }
        #[role(store)]
        for step in 0..steps {
            let slot = ring.wait();
            #[elect_one]
            {
                tma::store(x, [step * 64, 0], slot.x);
            }
            slot.release();
        }
    }
}";
    let mut random = Random::new(111);
    let steps = 5;
    let a = matrix(&mut random, steps * 64, 64);
    let expected = sum_of_squares(&a);
    let mut run = Run::new(source);
    run.assemble();
    run.tensor("a", &a).tensor("c", &vec![0f32; 64 * 64]).set("steps", steps as u32);
    run.map("x", &vec![0u16; steps * 64 * 64], &[steps as u64 * 64, 64]);
    run.launch_everywhere(1);
    assert_eq!((run.read::<f32>("c"), run.read::<u16>("x")), (expected, bits(&a)));
    its_one_fence_is_needed(&mut run);
}

/// Lanes that meet on the way to a barrier of the CTA leave the fence to it; without one it stands at their meeting.
#[test]
fn one_fence_where_all_meet() {
    let own = "let own = smem::<bf16, Shape<64, 64>, Swizzle<128>>();";
    let (a, b, _) = square_inputs(1, 70);
    let body = format!(
        "#[unroll] for i in 0..32 {{
             own[[16 * warp + lane % 16, lane / 16 * 32 + i]] = slot.b[[16 * warp + lane % 16, lane / 16 * 32 + i]];
         }}
         warp_sync(); let f = Frag::<bf16, 16, 16>::load(own, [16 * (warp % 4), 0]).widen();
         if n == 1 {{ f.store(c, [16 * (warp % 4), 0]); }}
         SYNC
         {ZERO} acc.mma(slot.a, own); {DONE} {OUT}"
    );
    let source = |sync: &str| kernel(1, 128, SQUARE, (64, 64), own, &body.replace("SYNC", sync));
    let order = |run: &Run| -> Vec<&'static str> {
        let known = ["fence.proxy.async", "bar.warp.sync", "bar.sync", "wgmma.fence"];
        run.compiled.ptx.lines().filter_map(|line| known.into_iter().find(|k| line.contains(k))).collect()
    };
    // A runtime branch in between: the fence stays at the meeting of the lanes.
    let branched = check(&source("cta_sync();"), [&a, &b], SQUARE, &product(&a, &b, (64, 64, 64)));
    assert_eq!(order(&branched)[1..5], ["fence.proxy.async", "bar.warp.sync", "bar.sync", "wgmma.fence"]);
    let plain = source("cta_sync();")
        .replace("if n == 1 { f.store(c, [16 * (warp % 4), 0]); }", "f.store(c, [16 * (warp % 4), 0]);");
    let mut run = check(&plain, [&a, &b], SQUARE, &product(&a, &b, (64, 64, 64)));
    assert_eq!(order(&run)[1..5], ["bar.warp.sync", "fence.proxy.async", "bar.sync", "wgmma.fence"]);
    run.compiled.ptx = run.compiled.ptx.replacen("\tfence.proxy.async.shared::cta;\n", "", 1);
    assert!(run.try_launch(1, &Options::default()).is_err());
}

/// Products behind a wait for a stage have a fence of their own while others run, or `ptxas` serialises them all.
#[test]
fn a_stage_is_waited_for_while_products_run() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 160, grid = 1, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..5)]
    fn sums(
        #[dims(rows, 64)] a: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>, #[dims(64, 64)] c: GlobalMut<f32>, pairs: u32,
    ) {
        let ring = Pipeline::<load, math> { a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 3>() };
        #[role(load)]
        #[elect_one]
        for pair in 0..pairs {
            #[unroll]
            for half in 0..2 {
                let slot = ring.acquire();
                slot.a.tma_load(a, [pair * 128 + half * 64, 0]);
                slot.commit();
            }
        }
        #[role(math)]
        {
            let mut acc = Acc::<f32, 64, 64>::zero();
            for pair in 0..pairs {
                let first = ring.wait();
                acc.mma(first.a, first.a);
                wgmma::commit();
                let second = ring.wait();
                acc.mma(second.a, second.a);
                wgmma::commit();
                wgmma::wait::<1>();
                first.release();
                wgmma::wait::<0>();
                second.release();
            }
            acc.for_each(|row, column, pair| c.at([row, column]).store_v(pair));
        }
    }
}";
    let mut random = Random::new(111);
    let pairs = 4;
    let a = matrix(&mut random, pairs * 128, 64);
    let mut expected = vec![0.0; 64 * 64];
    for a in a.chunks(64 * 64) {
        expected.iter_mut().zip(product(a, a, (64, 64, 64))).for_each(|(sum, x)| *sum += x);
    }
    let mut run = Run::new(source);
    run.assemble();
    assert_eq!(run.compiled.ptx.matches("wgmma.fence").count(), 2);
    run.tensor("c", &vec![0f32; 64 * 64]).map("a", &bits(&a), &[pairs as u64 * 128, 64]).set("pairs", pairs as u32);
    assert_eq!(run.launch_everywhere(1).read::<f32>("c"), expected);
}

/// One fence of registers serves products until registers of products are touched: a commit touches none.
#[test]
fn groups_share_a_fence() {
    let halves = "#[unroll] for half in [0, 32] {
         acc.columns(half..half + 32).mma(slot.a, slot.b.rows(half..half + 32)); wgmma::commit(); }";
    let again = format!("{ZERO} {halves} {halves} wgmma::wait::<0>(); {OUT}");
    let touched = format!(
        "{ZERO} {halves} wgmma::wait::<0>(); acc = acc.map(|row, column, x| x); {halves} wgmma::wait::<0>(); {OUT}"
    );
    let texts = check_bodies(63, &[&again, &touched], |_, _, product| product.iter().map(|x| 2.0 * x).collect());
    let fences = |text: &String| text.matches("wgmma.fence").count();
    assert_eq!(texts.iter().map(fences).collect::<Vec<_>>(), [1, 2]);
}
