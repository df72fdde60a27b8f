//! Rings that end in products of a warpgroup.

use crate::harness::{Random, Run};
use kda_sim::{Options, Schedule};

/// C[64, 8] = A B^T over `n` blocks of 64 columns, with this producing role.
fn source(stages: usize, params: &str, load: &str) -> String {
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    const S: u32 = {stages};
    #[kernel(block = 256, grid = 1)]
    #[roles(math = 0..4, load = 4..8)]
    fn k({params}, #[dims(64, 8)] y: GlobalMut<f32>, n: u32) {{
        let ab = Pipeline::<load, math> {{
            a: smem::<bf16, Shape<64, 64>, Swizzle<128>, S>(),
            b: smem::<bf16, Shape<8, 64>, Swizzle<128>, S>(),
        }};
        #[role(load)]
        {load}
        #[role(math)]
        {{
            let mut acc = Acc::<f32, 64, 8>::zero();
            for kb in 0..n {{
                let slot = ab.wait();
                #[unroll]
                for i in 0..4 {{
                    acc.mma(slot.a.k_slice(16 * i), slot.b.k_slice(16 * i));
                }}
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }}
            acc.for_each(|row, column, pair| y.at([row, column]).store_v(pair));
        }}
    }}
}}"
    )
}

const POINTERS: &str = "#[dims(64, 512)] a: Global<bf16>, #[dims(8, 512)] b: Global<bf16>";
const MAPS: &str = "#[dims(64, 512)] a: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>,
    #[dims(8, 512)] b: TensorMap<bf16, Shape<8, 64>, Swizzle<128>>";

const BY_THREADS: &str = "for kb in 0..n {
            let slot = ab.acquire();
            let t = tid - 128;
            for i in (t..64 * 64).step_by(128) {
                slot.a[[i / 64, i % 64]] = a.at([i / 64, kb * 64 + i % 64]).load();
            }
            for i in (t..8 * 64).step_by(128) {
                slot.b[[i / 64, i % 64]] = b.at([i / 64, kb * 64 + i % 64]).load();
            }
            slot.commit();
        }";

/// One operand by the copy engine, the other by all threads.
const BY_BOTH: &str = "for kb in 0..n {
            let slot = ab.acquire();
            #[elect_one]
            {
                slot.a.tma_load(a, [0, kb * 64]);
            }
            for i in (tid - 128..8 * 64).step_by(128) {
                slot.b[[i / 64, i % 64]] = b.at([i / 64, kb * 64 + i % 64]).load();
            }
            slot.commit();
        }";

const BY_MAP: &str = "#[elect_one]
        for kb in 0..n {
            let slot = ab.acquire();
            slot.a.tma_load(a, [0, kb * 64]);
            slot.b.tma_load(b, [0, kb * 64]);
            slot.commit();
        }";

fn bits(x: i32) -> u16 {
    ((x as f32).to_bits() >> 16) as u16
}

fn prepare(source: &str, trips: usize) -> (Run, Vec<f32>) {
    let mut random = Random::new(trips as u64);
    let a: Vec<i32> = (0..64 * 512).map(|_| random.below(9) as i32 - 4).collect();
    let b: Vec<i32> = (0..8 * 512).map(|_| random.below(9) as i32 - 4).collect();
    let mut run = Run::new(source);
    for (name, values, rows) in [("a", &a, 64), ("b", &b, 8)] {
        let values: Vec<u16> = values.iter().map(|x| bits(*x)).collect();
        if source.contains(&format!("{name}: TensorMap")) {
            run.map(name, &values, &[rows, 512]);
        } else {
            run.tensor(name, &values);
        }
    }
    run.tensor("y", &[0f32; 512]).set("n", trips as u32);
    let sum = |i: usize, j: usize| (0..trips * 64).map(|k| a[i * 512 + k] * b[j * 512 + k]).sum::<i32>() as f32;
    (run, (0..512).map(|at| sum(at / 8, at % 8)).collect())
}

/// Threads, the copy engine, or both fill the operands.
#[test]
fn operands_of_products() {
    let mixed = format!("{}, {}", MAPS.split(",\n").next().unwrap_or(""), "#[dims(8, 512)] b: Global<bf16>");
    for (params, load) in [(POINTERS, BY_THREADS), (MAPS, BY_MAP), (mixed.as_str(), BY_BOTH)] {
        for stages in 1..=3 {
            for trips in [0, 1, stages - 1, stages, stages + 1, 2 * stages + 1] {
                let (mut run, expected) = prepare(&source(stages, params, load), trips);
                assert_eq!(run.launch_everywhere(1).read::<f32>("y"), expected, "{stages} stages, {trips} trips");
            }
        }
    }
}

/// A release hands over everything that the role has done, in all lanes, also where products alone read the stage.
#[test]
fn a_release_behind_products_hands_over_what_lanes_have_stored() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 160, grid = 1, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..5)]
    fn k(
        #[dims(256, 64)] a: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>, #[dims(64, 64)] c: GlobalMut<f32>,
        #[dims(3, 128)] z: GlobalMut<u32>,
    ) {
        let ring = Pipeline::<load, math> { a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 1>() };
        let note = smem::<u32, Shape<4, 128>>();
        #[role(load)]
        for i in 0..4 {
            let slot = ring.acquire();
            #[elect_one]
            { slot.a.tma_load(a, [i * 64, 0]); }
            if i > 0 { for j in 0..4 { z.at([i - 1, 32 * j + lane]).store(note[[i - 1, 32 * j + lane]]); } }
            slot.commit();
        }
        #[role(math)]
        {
            let mut acc = Acc::<f32, 64, 64>::zero();
            for i in 0..4 {
                AHEAD
                let slot = ring.wait();
                acc.mma(slot.a, slot.a);
                wgmma::commit();
                wgmma::wait::<0>();
                BEHIND
                slot.release();
            }
            acc.for_each(|row, column, pair| c.at([row, column]).store_v(pair));
        }
    }
}";
    let note = "note[[i, tid]] = 7 * i + tid;";
    for [ahead, behind] in [[note, ""], ["", note]] {
        let mut run = Run::new(&source.replace("AHEAD", ahead).replace("BEHIND", behind));
        run.map("a", &vec![bits(1); 256 * 64], &[256, 64]).tensor("c", &vec![0f32; 64 * 64]);
        let noted = run.tensor("z", &vec![0u32; 3 * 128]).launch_everywhere(1).read::<u32>("z");
        assert_eq!(noted, (0..3 * 128).map(|at| 7 * (at / 128) + at % 128).collect::<Vec<u32>>());
        run.compiled.ptx = run.compiled.ptx.replace("bar.warp.sync -1;", "");
        let fails = |schedule: Schedule| run.try_launch(1, &Options { schedule, ..Options::default() }).is_err();
        assert!(Schedule::ALL.map(fails).contains(&true));
    }
}

/// The fence between the stores of operands and the products stands in the storing threads, one a stage.
#[test]
fn stores_are_fenced_ahead_of_products() {
    let (mut run, _) = prepare(&source(2, POINTERS, BY_THREADS), 3);
    assert_eq!(run.compiled.ptx.matches("fence.proxy.async.shared::cta").count(), 1, "{}", run.compiled.ptx);
    run.compiled.ptx = run.compiled.ptx.replace("fence.proxy.async.shared::cta;", "");
    let found = Schedule::ALL
        .iter()
        .filter(|schedule| run.try_launch(1, &Options { schedule: **schedule, ..Options::default() }).is_err());
    assert!(found.count() > 0);
}

/// Results that a warpgroup stores to a ring of bulk stores: the fence stands in the storing role, behind its wait.
#[test]
fn results_are_fenced_where_they_are_stored() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 160, grid = 1)]
    #[roles(math = 0..4, store = 4..5)]
    fn k(#[dims(64, 512)] a: Global<f32>, #[dims(512, 64)] y: TensorMapMut<bf16, Shape<64, 64>, Swizzle<128>>, n: u32) {
        let outs = Pipeline::<math, store> { y: smem::<bf16, Shape<64, 64>, Swizzle<128>, 2>() };
        #[role(math)]
        for i in 0..n {
            let acc = Acc::<f32, 64, 64>::from_fn(|row, column| a.at([row, 64 * i + column]).load());
            let slot = outs.acquire();
            acc.store_t(slot.y);
            slot.commit();
        }
        #[role(store)]
        #[elect_one]
        for i in 0..n {
            let slot = outs.wait();
            tma::store(y, [64 * i, 0], slot.y);
            slot.release();
        }
    }
}";
    let prepare = || {
        let mut random = Random::new(70);
        let a: Vec<f32> = (0..64 * 512).map(|_| random.below(200) as f32).collect();
        let mut run = Run::new(source);
        run.tensor("a", &a).map("y", &[0u16; 64 * 512], &[512, 64]).set("n", 8u32);
        (run, a)
    };
    let (mut run, a) = prepare();
    let fence = "fence.proxy.async.shared::cta;";
    let (before, after) = run.compiled.ptx.split_once(fence).expect("a fence");
    assert!(!after.contains(fence) && before.contains("stmatrix") && after.contains("cp.async.bulk.tensor"));
    assert!(before.rfind("try_wait") > before.rfind("stmatrix"));
    let got = run.launch_everywhere(1).read::<u16>("y");
    for (at, got) in got.iter().enumerate() {
        assert_eq!(*got, bits(a[at % 64 * 512 + at / 64] as i32), "element {at}");
    }
    let (mut run, _) = prepare();
    run.compiled.ptx = run.compiled.ptx.replace(fence, "");
    assert!(run.try_launch(1, &Options::default()).is_err());
}
