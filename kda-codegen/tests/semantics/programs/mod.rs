//! Random programs: branches, loops, variables, arrays, calls and memory, interpreted here and run on the simulator.
//!
//! `KDA_PROGRAMS` sets their number.

mod interpret;
mod text;
mod tree;
mod warps;

use crate::harness::{Inputs, Random, Run, THREADS, source, try_compile};
use interpret::State;
use text::steps;
use tree::{Maker, Step};

/// Items of the module.
const ITEMS: &str = "
    #[device] fn mix(x: &mut u32, y: u32) -> u32 { x = x * 3 + y; if y > 10 { x += 1; } x ^ y }";

/// The program in full.
fn program(list: &[Step]) -> String {
    let mut body = String::from(
        "let mem = smem::<u32, Shape<64>>(); mem[[tid]] = a * 7;
         let mut v0 = a; let mut v1 = b; let mut v2: u32 = 5; let mut v3 = a ^ n; let mut s = [b, 1, n];
         let mut flag = a < b;\n",
    );
    steps(&mut body, list, 0);
    body += "let r = v0 + 3 * v1 + 5 * v2 + 7 * v3 + (s[0] ^ s[1] * 11 ^ s[2] * 13) + mem[[tid]] * 17 + flag as u32;";
    source(ITEMS, &body)
}

/// What a thread should compute.
fn expected(list: &[Step], inputs: &Inputs) -> u32 {
    let (a, b, n) = (inputs.a, inputs.b, inputs.n);
    let mut state = State {
        inputs,
        variables: [a, b, 5, a ^ n],
        array: [b, 1, n],
        memory: a.wrapping_mul(7),
        flag: a < b,
        counters: Vec::new(),
    };
    state.run(list);
    let [v0, v1, v2, v3] = state.variables;
    let [s0, s1, s2] = state.array;
    v0.wrapping_add(v1.wrapping_mul(3))
        .wrapping_add(v2.wrapping_mul(5))
        .wrapping_add(v3.wrapping_mul(7))
        .wrapping_add(s0 ^ s1.wrapping_mul(11) ^ s2.wrapping_mul(13))
        .wrapping_add(state.memory.wrapping_mul(17))
        .wrapping_add(u32::from(state.flag))
}

/// Inputs of all threads.
type Words = [u32; THREADS];

/// The first thread that computes something else than it should: its number, what it has and what it should have.
fn difference(list: &[Step], (table, a, b): &(Words, Words, Words), n: u32) -> Option<(usize, u32, u32)> {
    let source = program(list);
    try_compile(&source).ok()?;
    let mut kernel = Run::new(&source);
    kernel.tensor("table", table).tensor("a_in", a).tensor("b_in", b).tensor("out", &[0u32; THREADS]);
    let got = kernel.set("n", n).set("m", 0i32).launch(1).read::<u32>("out");
    (0..THREADS).find_map(|tid| {
        let inputs = Inputs { tid: tid as u32, a: a[tid], b: b[tid], n, m: 0, table: *table, all: *a };
        let want = expected(list, &inputs);
        (got[tid] != want).then_some((tid, got[tid], want))
    })
}

/// Programs with one step less, or one step opened.
fn smaller(list: &[Step]) -> Vec<Vec<Step>> {
    let mut found = Vec::new();
    for (at, step) in list.iter().enumerate() {
        let mut with = |new: Vec<Step>| {
            let mut copy = list.to_vec();
            copy.splice(at..=at, new);
            found.push(copy);
        };
        with(Vec::new());
        match step {
            Step::If(c, then, other) => {
                with(then.clone());
                with(other.clone());
                smaller(then).into_iter().for_each(|x| with(vec![Step::If(c.clone(), x, other.clone())]));
                smaller(other).into_iter().for_each(|x| with(vec![Step::If(c.clone(), then.clone(), x)]));
            }
            Step::For(start, end, by, body) => {
                for x in smaller(body) {
                    with(vec![Step::For(start.clone(), end.clone(), *by, x)]);
                }
            }
            Step::While(most, body) => smaller(body).into_iter().for_each(|x| with(vec![Step::While(*most, x)])),
            Step::Unrolled(n, body) => smaller(body).into_iter().for_each(|x| with(vec![Step::Unrolled(*n, x)])),
            Step::Block(body) => with(body.clone()),
            _ => {}
        }
    }
    found
}

#[test]
fn random_programs_compute_what_they_say() {
    let count: u64 = std::env::var("KDA_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(250);
    let mut compiled = 0;
    for index in 0..count {
        let mut random = Random::new(index);
        let mut list: Vec<Step> = {
            let mut maker = Maker { random: &mut random, counters: 0 };
            (0..3).flat_map(|_| maker.steps(3)).collect()
        };
        // Constants that meet never wrap: such a program does not compile.
        match try_compile(&program(&list)) {
            Ok(_) => compiled += 1,
            Err(errors) if matches!(errors[0].code.0, 164 | 202..=204) => continue,
            Err(errors) => panic!("{}\n{}", errors[0].text(), program(&list)),
        }
        for n in [random.below(5), 0] {
            let mut words = || -> Words { std::array::from_fn(|_| random.word()) };
            let inputs = (words(), words(), words());
            if difference(&list, &inputs, n).is_none() {
                continue;
            }
            while let Some(less) = smaller(&list).into_iter().find(|less| difference(less, &inputs, n).is_some()) {
                list = less;
            }
            let (tid, got, want) = difference(&list, &inputs, n).expect("the last one differed");
            let (source, ptx) = (program(&list), Run::new(&program(&list)).compiled.ptx);
            panic!("program {index}, thread {tid}, n {n}: {got} instead of {want}\n{source}\n{ptx}");
        }
    }
    println!("{compiled} of {count} programs compiled");
    assert!(compiled * 4 > count, "only {compiled} of {count} programs compile");
}
