//! Random programs: branches, loops, variables, arrays, calls and memory, interpreted here and run on the simulator.
//!
//! `KDA_PROGRAMS` sets their number.

use super::harness::{Inputs, Random, Run, THREADS, source, try_compile};
use std::fmt::Write as _;

/// Variables of type u32; one more is an array of three, one a word of shared memory.
const VARIABLES: usize = 4;

/// Items of the module.
const ITEMS: &str = "
    #[device] fn mix(x: &mut u32, y: u32) -> u32 { x = x * 3 + y; if y > 10 { x += 1; } x ^ y }";

#[derive(Clone, Debug)]
enum Number {
    Literal(u32),
    Variable(usize),
    Element(usize),
    Memory,
    /// Counter of the loop of that depth.
    Counter(usize),
    Input(&'static str),
    Binary(&'static str, Box<Number>, Box<Number>),
    /// A signed operation, back to u32.
    Signed(&'static str, Box<Number>, Box<Number>),
    Extremum(bool, Box<Number>, Box<Number>),
    Select(Box<Truth>, Box<Number>, Box<Number>),
    If(Box<Truth>, Box<Number>, Box<Number>),
    Load(Box<Number>, u32),
    Narrow(Box<Number>),
}

#[derive(Clone, Debug)]
enum Truth {
    Compare(&'static str, Number, Number),
    Signed(&'static str, Number, Number),
    And(Box<Truth>, Box<Truth>),
    Or(Box<Truth>, Box<Truth>),
    Not(Box<Truth>),
    Flag,
}

#[derive(Clone, Debug)]
enum Step {
    Assign(usize, Option<&'static str>, Number),
    Element(usize, Number),
    Memory(Number),
    Flag(Truth),
    Swap(usize, usize),
    If(Truth, Vec<Step>, Vec<Step>),
    /// Start, end and step.
    For(Number, Number, u32, Vec<Step>),
    While(u32, Vec<Step>),
    Unrolled(u32, Vec<Step>),
    Call(usize, usize, Number),
    Block(Vec<Step>),
}

struct Maker<'a> {
    random: &'a mut Random,
    counters: usize,
}

impl Maker<'_> {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u32) as usize]
    }

    fn number(&mut self, depth: u32) -> Number {
        let pair = |this: &mut Self| (Box::new(this.number(depth - 1)), Box::new(this.number(depth - 1)));
        match if depth == 0 { self.random.below(10) } else { self.random.below(22) } {
            0 => Number::Literal(self.random.word()),
            1 | 2 => Number::Literal(self.random.below(12)),
            3..=5 => Number::Variable(self.random.below(VARIABLES as u32) as usize),
            6 => Number::Element(self.random.below(3) as usize),
            7 => Number::Memory,
            8 if self.counters > 0 => Number::Counter(self.random.below(self.counters as u32) as usize),
            8 | 9 => Number::Input(self.pick(&["a", "b", "n", "tid", "lane"])),
            10 | 11 => {
                let (x, y) = (self.number(depth - 1), Number::Literal(1 + self.random.below(9)));
                Number::Binary(self.pick(&["/", "%", "+", "-", "*"]), Box::new(x), Box::new(y))
            }
            12 => {
                let (x, y) = (self.number(depth - 1), Number::Literal(self.random.below(32)));
                Number::Binary(self.pick(&["<<", ">>"]), Box::new(x), Box::new(y))
            }
            13..=15 => {
                let (x, y) = pair(self);
                Number::Binary(self.pick(&["+", "-", "*", "&", "|", "^"]), x, y)
            }
            16 => {
                let (x, y) = pair(self);
                Number::Signed(self.pick(&["+", "-", "*"]), x, y)
            }
            17 => {
                let (x, y) = pair(self);
                Number::Extremum(self.random.below(2) == 0, x, y)
            }
            18 => {
                let (x, y) = pair(self);
                Number::Select(Box::new(self.truth(depth - 1)), x, y)
            }
            19 => {
                let (x, y) = pair(self);
                Number::If(Box::new(self.truth(depth - 1)), x, y)
            }
            20 => Number::Load(Box::new(self.number(depth - 1)), self.random.below(4)),
            _ => Number::Narrow(Box::new(self.number(depth - 1))),
        }
    }

    fn truth(&mut self, depth: u32) -> Truth {
        match if depth == 0 { self.random.below(4) } else { self.random.below(8) } {
            0 => Truth::Flag,
            1 => {
                let op = self.pick(&["<", ">=", "=="]);
                Truth::Signed(op, self.number(depth.min(1)), self.number(depth.min(1)))
            }
            2..=4 => {
                let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
                Truth::Compare(op, self.number(depth.min(2)), self.number(depth.min(2)))
            }
            5 => Truth::And(Box::new(self.truth(depth - 1)), Box::new(self.truth(depth - 1))),
            6 => Truth::Or(Box::new(self.truth(depth - 1)), Box::new(self.truth(depth - 1))),
            _ => Truth::Not(Box::new(self.truth(depth - 1))),
        }
    }

    fn steps(&mut self, depth: u32) -> Vec<Step> {
        (0..1 + self.random.below(4)).map(|_| self.step(depth)).collect()
    }

    fn inside(&mut self, depth: u32) -> Vec<Step> {
        self.counters += 1;
        let body = self.steps(depth - 1);
        self.counters -= 1;
        body
    }

    fn step(&mut self, depth: u32) -> Step {
        let variable = self.random.below(VARIABLES as u32) as usize;
        match if depth == 0 { self.random.below(8) } else { self.random.below(17) } {
            0..=2 => Step::Assign(variable, None, self.number(3)),
            3 => Step::Assign(variable, Some(self.pick(&["+", "-", "*", "^"])), self.number(2)),
            4 => Step::Element(self.random.below(3) as usize, self.number(2)),
            5 => Step::Memory(self.number(2)),
            6 => Step::Flag(self.truth(2)),
            7 => Step::Swap(variable, self.random.below(VARIABLES as u32) as usize),
            8..=10 => {
                let other = if self.random.below(2) == 0 { Vec::new() } else { self.steps(depth - 1) };
                Step::If(self.truth(2), self.steps(depth - 1), other)
            }
            11 | 12 => {
                let small = |this: &mut Self, most: u32| {
                    Number::Binary("%", Box::new(this.number(1)), Box::new(Number::Literal(most)))
                };
                let (start, end) = match self.random.below(3) {
                    0 => (Number::Literal(0), Number::Input("n")),
                    1 => (Number::Literal(self.random.below(3)), small(self, 5)),
                    _ => (small(self, 3), Number::Literal(self.random.below(5))),
                };
                let step = 1 + self.random.below(2) * self.random.below(3);
                Step::For(start, end, step, self.inside(depth))
            }
            13 => Step::While(self.random.below(4), self.inside(depth)),
            14 => Step::Unrolled(self.random.below(4), self.inside(depth)),
            15 => Step::Call(variable, self.random.below(VARIABLES as u32) as usize, self.number(1)),
            _ => Step::Block(self.steps(depth - 1)),
        }
    }
}

// ---- As text

fn number(out: &mut String, value: &Number) {
    let two = |out: &mut String, (before, x, middle, y, after): (&str, &Number, &str, &Number, &str)| {
        out.push_str(before);
        number(out, x);
        out.push_str(middle);
        number(out, y);
        out.push_str(after);
    };
    match value {
        // With its type: without, constants are exact beyond 32 bits.
        Number::Literal(v) => write!(out, "{v}u32").expect("a string"),
        Number::Variable(v) => write!(out, "v{v}").expect("a string"),
        Number::Element(v) => write!(out, "s[{v}]").expect("a string"),
        Number::Memory => out.push_str("mem[[tid]]"),
        Number::Counter(v) => write!(out, "i{v}").expect("a string"),
        Number::Input(v) => out.push_str(v),
        Number::Binary(op, x, y) => two(out, ("(", x, op, y, ")")),
        Number::Signed(op, x, y) => two(out, ("(((", x, &format!(" as i32) {op} ("), y, " as i32)) as u32)")),
        Number::Extremum(small, x, y) => two(out, (if *small { "min(" } else { "max(" }, x, ", ", y, ")")),
        Number::Select(c, x, y) => {
            out.push_str("select(");
            truth(out, c);
            two(out, (", ", x, ", ", y, ")"));
        }
        Number::If(c, x, y) => {
            out.push_str("(if ");
            truth(out, c);
            two(out, (" { ", x, " } else { ", y, " })"));
        }
        Number::Load(x, add) => {
            out.push_str("table.at([");
            number(out, x);
            write!(out, " % 60 + {add}]).load()").expect("a string");
        }
        Number::Narrow(x) => {
            out.push('(');
            number(out, x);
            out.push_str(" as u8 as u32)");
        }
    }
}

fn truth(out: &mut String, value: &Truth) {
    let mut two = |before: &str, x: &dyn Fn(&mut String), middle: &str, y: &dyn Fn(&mut String), after: &str| {
        out.push_str(before);
        x(out);
        out.push_str(middle);
        y(out);
        out.push_str(after);
    };
    match value {
        Truth::Compare(op, x, y) => {
            two("((", &|o| number(o, x), &format!(") {op} ("), &|o| number(o, y), "))");
        }
        Truth::Signed(op, x, y) => {
            two("((", &|o| number(o, x), &format!(" as i32) {op} ("), &|o| number(o, y), " as i32))");
        }
        Truth::And(x, y) => two("(", &|o| truth(o, x), " && ", &|o| truth(o, y), ")"),
        Truth::Or(x, y) => two("(", &|o| truth(o, x), " || ", &|o| truth(o, y), ")"),
        Truth::Not(x) => two("(!", &|o| truth(o, x), "", &|_| {}, ")"),
        Truth::Flag => out.push_str("flag"),
    }
}

fn steps(out: &mut String, list: &[Step], counters: usize) {
    let text = |value: &Number| {
        let mut text = String::new();
        number(&mut text, value);
        text
    };
    let condition = |value: &Truth| {
        let mut text = String::new();
        truth(&mut text, value);
        text
    };
    let block = |list: &[Step], counters: usize| {
        let mut text = String::from("{ ");
        steps(&mut text, list, counters);
        text + "}"
    };
    for step in list {
        let line = match step {
            Step::Assign(v, None, x) => format!("v{v} = {};", text(x)),
            Step::Assign(v, Some(op), x) => format!("v{v} {op}= {};", text(x)),
            Step::Element(v, x) => format!("s[{v}] = {};", text(x)),
            Step::Memory(x) => format!("mem[[tid]] = {};", text(x)),
            Step::Flag(c) => format!("flag = {};", condition(c)),
            Step::Swap(x, y) => format!("(v{x}, v{y}) = (v{y}, v{x});"),
            Step::If(c, then, other) if other.is_empty() => format!("if {} {}", condition(c), block(then, counters)),
            Step::If(c, then, other) => {
                format!("if {} {} else {}", condition(c), block(then, counters), block(other, counters))
            }
            Step::For(start, end, step, body) => {
                let range = format!("{}..{}", text(start), text(end));
                let range = if *step == 1 { range } else { format!("({range}).step_by({step})") };
                format!("for i{counters} in {range} {}", block(body, counters + 1))
            }
            Step::While(most, body) => {
                let i = format!("i{counters}");
                let body = block(body, counters + 1);
                format!("let mut {i} = n - n; while {i} < {most} {{ {body} {i} += 1; }}")
            }
            Step::Unrolled(trips, body) => {
                format!("#[unroll] for i{counters} in 0..{trips} {}", block(body, counters + 1))
            }
            Step::Call(x, y, by) => format!("v{y} = mix(&mut v{x}, {});", text(by)),
            Step::Block(body) => block(body, counters),
        };
        out.push_str(&line);
        out.push('\n');
    }
}

// ---- As it should run

struct State<'a> {
    inputs: &'a Inputs,
    variables: [u32; VARIABLES],
    array: [u32; 3],
    memory: u32,
    flag: bool,
    counters: Vec<u32>,
}

impl State<'_> {
    fn number(&self, value: &Number) -> u32 {
        let two = |x: &Number, y: &Number| (self.number(x), self.number(y));
        match value {
            Number::Literal(v) => *v,
            Number::Variable(v) => self.variables[*v],
            Number::Element(v) => self.array[*v],
            Number::Memory => self.memory,
            Number::Counter(v) => self.counters[*v],
            Number::Input("a") => self.inputs.a,
            Number::Input("b") => self.inputs.b,
            Number::Input("n") => self.inputs.n,
            Number::Input("tid") => self.inputs.tid,
            Number::Input(_) => self.inputs.tid % 32,
            Number::Binary(op, x, y) => {
                let (x, y) = two(x, y);
                match *op {
                    "+" => x.wrapping_add(y),
                    "-" => x.wrapping_sub(y),
                    "*" => x.wrapping_mul(y),
                    "/" => x / y,
                    "%" => x % y,
                    "&" => x & y,
                    "|" => x | y,
                    "^" => x ^ y,
                    "<<" => x << y,
                    _ => x >> y,
                }
            }
            Number::Signed(op, x, y) => {
                let (x, y) = two(x, y);
                match *op {
                    "+" => x.wrapping_add(y),
                    "-" => x.wrapping_sub(y),
                    _ => x.wrapping_mul(y),
                }
            }
            Number::Extremum(small, x, y) => {
                let (x, y) = two(x, y);
                if *small { x.min(y) } else { x.max(y) }
            }
            Number::Select(c, x, y) | Number::If(c, x, y) => self.number(if self.truth(c) { x } else { y }),
            Number::Load(x, add) => self.inputs.table[(self.number(x) % 60 + add) as usize],
            Number::Narrow(x) => self.number(x) & 0xff,
        }
    }

    fn truth(&self, value: &Truth) -> bool {
        match value {
            Truth::Compare(op, x, y) => {
                let (x, y) = (self.number(x), self.number(y));
                match *op {
                    "<" => x < y,
                    "<=" => x <= y,
                    ">" => x > y,
                    ">=" => x >= y,
                    "==" => x == y,
                    _ => x != y,
                }
            }
            Truth::Signed(op, x, y) => {
                let (x, y) = (self.number(x) as i32, self.number(y) as i32);
                match *op {
                    "<" => x < y,
                    ">=" => x >= y,
                    _ => x == y,
                }
            }
            Truth::And(x, y) => self.truth(x) && self.truth(y),
            Truth::Or(x, y) => self.truth(x) || self.truth(y),
            Truth::Not(x) => !self.truth(x),
            Truth::Flag => self.flag,
        }
    }

    fn counted(&mut self, counts: impl Iterator<Item = u32>, body: &[Step]) {
        for i in counts {
            self.counters.push(i);
            self.run(body);
            self.counters.pop();
        }
    }

    fn run(&mut self, list: &[Step]) {
        for step in list {
            match step {
                Step::Assign(v, op, x) => {
                    let (old, x) = (self.variables[*v], self.number(x));
                    self.variables[*v] = match op {
                        None => x,
                        Some("+") => old.wrapping_add(x),
                        Some("-") => old.wrapping_sub(x),
                        Some("*") => old.wrapping_mul(x),
                        Some(_) => old ^ x,
                    };
                }
                Step::Element(v, x) => self.array[*v] = self.number(x),
                Step::Memory(x) => self.memory = self.number(x),
                Step::Flag(c) => self.flag = self.truth(c),
                Step::Swap(x, y) => self.variables.swap(*x, *y),
                Step::If(c, then, other) => self.run(if self.truth(c) { then } else { other }),
                Step::For(start, end, step, body) => {
                    let range = self.number(start)..self.number(end);
                    self.counted(range.step_by(*step as usize), body);
                }
                Step::While(most, body) => self.counted(0..*most, body),
                Step::Unrolled(trips, body) => self.counted(0..*trips, body),
                Step::Call(x, y, by) => {
                    let by = self.number(by);
                    let mut changed = self.variables[*x].wrapping_mul(3).wrapping_add(by);
                    if by > 10 {
                        changed = changed.wrapping_add(1);
                    }
                    self.variables[*x] = changed;
                    self.variables[*y] = changed ^ by;
                }
                Step::Block(body) => self.run(body),
            }
        }
    }
}

// ---- Comparison

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
