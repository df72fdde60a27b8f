//! Random programs of a warp: shuffles, votes, fragments and tile elements, in branches and loops that all lanes take.
//!
//! `KDA_PROGRAMS` sets their number.

use crate::harness::{Random, Run, try_compile};
use std::fmt::Write as _;

const LANES: usize = 32;
/// Rows and columns of fragments.
const SIDE: usize = 16;
/// Numbers of lanes, and fragments.
const NUMBERS: u32 = 3;
const FRAGMENTS: u32 = 2;

type Lanes = [u32; LANES];
type Square = [[f32; SIDE]; SIDE];

#[derive(Clone, Debug)]
enum Condition {
    /// The parameter is above this.
    Parameter(u32),
    /// Any lane, or all, have a number above this.
    Vote(bool, usize, u32),
}

#[derive(Clone, Debug)]
enum Step {
    Binary(usize, usize, &'static str, usize),
    Literal(usize, u32),
    Shuffle(usize, &'static str, usize, u32),
    /// From the lane that a number tells.
    Gather(usize, usize, usize),
    Ballot(usize, usize),
    /// Lanes by themselves: if the first is below the second, the third gets the fourth.
    Apart(usize, usize, usize, usize),
    If(Condition, Vec<Step>, Vec<Step>),
    For(Option<u32>, Vec<Step>),
    /// Through a row of a tile each: stored at a column, read at another row and column.
    Tile(usize, usize, usize),
    /// Four neighbours of a row.
    Vector(usize, usize),
    Combine(usize, usize, &'static str, usize),
    Scale(usize, u32),
    Line(usize, bool, u32),
    Turn(usize, bool),
    Product(usize, usize, usize),
    Passed(usize, usize),
    Swap,
    Sum(usize, usize),
}

fn number(random: &mut Random) -> usize {
    random.below(NUMBERS) as usize
}

fn steps(random: &mut Random, depth: u32) -> Vec<Step> {
    (0..2 + random.below(4)).map(|_| step(random, depth)).collect()
}

fn step(random: &mut Random, depth: u32) -> Step {
    let (x, y, z) = (number(random), number(random), number(random));
    let (f, g) = (random.below(FRAGMENTS) as usize, random.below(FRAGMENTS) as usize);
    let which = random.below(if depth == 0 { 20 } else { 26 });
    match which {
        0 | 1 => Step::Binary(x, y, ["+", "-", "*", "^"][random.below(4) as usize], z),
        2 => Step::Literal(x, random.below(100)),
        3 | 4 => {
            let name = ["shfl_xor", "shfl_up", "shfl_down", "shfl"][random.below(4) as usize];
            Step::Shuffle(x, name, y, 1 + random.below(31))
        }
        5 => Step::Gather(x, y, z),
        6 => Step::Ballot(x, y),
        7 => Step::Apart(x, y, z, number(random)),
        8..=10 => Step::Tile(x, y, z),
        11 => Step::Vector(x, y),
        12 => Step::Combine(f, g, ["+", "-", "*"][random.below(3) as usize], random.below(FRAGMENTS) as usize),
        13 => Step::Scale(f, random.below(4)),
        14 => Step::Line(f, random.below(2) == 0, random.below(SIDE as u32)),
        15 => Step::Turn(f, random.below(2) == 0),
        16 => Step::Product(f, g, random.below(FRAGMENTS) as usize),
        17 => Step::Passed(f, g),
        18 => Step::Swap,
        19 => Step::Sum(x, f),
        20..=22 => {
            let condition = match random.below(3) {
                0 => Condition::Parameter(random.below(5)),
                _ => Condition::Vote(random.below(2) == 0, x, random.word()),
            };
            let other = if random.below(2) == 0 { Vec::new() } else { steps(random, depth - 1) };
            Step::If(condition, steps(random, depth - 1), other)
        }
        _ => Step::For([None, Some(3), Some(2)][random.below(3) as usize], steps(random, depth - 1)),
    }
}

/// Keeps elements small enough to be exact in bf16.
const KEEP: &str = ".map(|_, _, x| select(abs(x) > 100.0, 1.0, x))";

fn keep(x: f32) -> f32 {
    if x.abs() > 100.0 { 1.0 } else { x }
}

fn text(out: &mut String, list: &[Step], depth: usize) {
    for step in list {
        match step {
            Step::Binary(x, y, op, z) => writeln!(out, "v{x} = v{y} {op} v{z};"),
            Step::Literal(x, n) => writeln!(out, "v{x} = {n}u32;"),
            Step::Shuffle(x, name, y, n) => writeln!(out, "v{x} = {name}(v{y}, {n});"),
            Step::Gather(x, y, z) => writeln!(out, "v{x} = shfl(v{y}, v{z} % 32);"),
            Step::Ballot(x, y) => writeln!(out, "v{x} = ballot(v{y} % 3 == 1);"),
            Step::Apart(a, b, x, y) => writeln!(out, "if v{a} < v{b} {{ v{x} = v{y}; }}"),
            Step::If(condition, then, other) => {
                let condition = match condition {
                    Condition::Parameter(n) => format!("n > {n}"),
                    Condition::Vote(any, x, n) => format!("{}(v{x} > {n}u32)", if *any { "any" } else { "all" }),
                };
                writeln!(out, "if {condition} {{").expect("a string");
                text(out, then, depth + 1);
                out.push_str("} else {\n");
                text(out, other, depth + 1);
                writeln!(out, "}}")
            }
            Step::For(trips, body) => {
                let trips = trips.map_or("n".to_string(), |n| n.to_string());
                writeln!(out, "for i{depth} in 0..{trips} {{ v0 += i{depth};").expect("a string");
                text(out, body, depth + 1);
                writeln!(out, "}}")
            }
            Step::Tile(x, y, z) => writeln!(
                out,
                "tile[[lane, v{y} % 16]] = v{x}; warp_sync(); v{x} = tile[[v{z} % 32, v{y} % 16]]; warp_sync();"
            ),
            Step::Vector(x, y) => writeln!(
                out,
                "{{ let at = 4 * (v{y} % 4); tile.at([lane, at]).store_v([v{x}, v{y}, v{x} + 1, 7u32]); warp_sync();
                let four = tile.at([lane ^ 1, at]).load_v::<4>(); v{x} = four[0] + 3 * four[1] + 5 * four[2] + four[3]; warp_sync(); }}"
            ),
            Step::Combine(f, g, op, h) => writeln!(out, "f{f} = (f{g} {op} f{h}){KEEP};"),
            Step::Scale(f, n) => writeln!(out, "f{f} = fma(f{f}, f{f}, f{f} * {n}.0){KEEP};"),
            Step::Line(f, true, n) => writeln!(out, "f{f} = (f{f} + f{f}.row({n})){KEEP};"),
            Step::Line(f, false, n) => writeln!(out, "f{f} = (f{f} - f{f}.column({n})){KEEP};"),
            Step::Turn(f, true) => writeln!(out, "f{f} = f{f}.round::<bf16>().t().widen();"),
            Step::Turn(f, false) => writeln!(
                out,
                "f{f}.store(square); warp_sync(); f{f} = Frag::<f32, 16, 16>::load_t(square); warp_sync();"
            ),
            Step::Product(f, g, h) => {
                writeln!(out, "f{f}.mma(f{g}.round::<bf16>(), f{h}.round::<bf16>()); f{f} = f{f}{KEEP};")
            }
            Step::Passed(f, g) => writeln!(out, "twice(&mut f{f}, f{g}); f{f} = f{f}{KEEP};"),
            Step::Swap => writeln!(out, "(f0, f1) = (f1, f0);"),
            Step::Sum(x, f) => writeln!(
                out,
                "f{f}.for_each(|row, column, pair| {{ v{x} += (pair[0] as i32 as u32) * (row + 1) + (pair[1] as i32 as u32) * (column + 2); }});"
            ),
        }
        .expect("a string");
    }
}

fn program(list: &[Step], layout: &str) -> String {
    let mut body = String::new();
    text(&mut body, list, 0);
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[device]
    fn twice(f: &mut Frag<f32, 16, 16>, by: Frag<f32, 16, 16>) {{
        let old = f;
        f = f + by;
        f = f + old;
    }}

    #[kernel(block = 32, grid = 1)]
    fn k(#[dims(32)] a: Global<u32>, #[dims(32)] out: GlobalMut<u32>, n: u32) {{
        let tile = smem::<u32, Shape<32, 16>, {layout}>();
        let square = smem::<f32, Shape<16, 16>, {layout}>();
        let mut v0 = a.at([lane]).load();
        let mut v1 = lane;
        let mut v2 = v0 * 7 + n;
        let mut f0 = Frag::<f32, 16, 16>::from_fn(|row, column| (row * 3 + column) as i32 as f32 - 20.0);
        let mut f1 = Frag::<f32, 16, 16>::from_fn(|row, column| ((row + n) % 5 * column % 7) as f32);
        for i in 0..16 {{ tile[[lane, i]] = i; }}
        warp_sync();
        {body}
        f0.for_each(|row, column, pair| {{ v0 += (pair[0] as i32 as u32) * (row + 1) + (pair[1] as i32 as u32) * (column + 1); }});
        f1.for_each(|row, column, pair| {{ v1 += (pair[0] as i32 as u32) * (row + 1) + (pair[1] as i32 as u32) * (column + 1); }});
        out.at([lane]).store(v0 + 3 * v1 + 5 * v2);
    }}
}}"
    )
}

struct State {
    n: u32,
    v: [Lanes; NUMBERS as usize],
    f: [Square; FRAGMENTS as usize],
    tile: [[u32; 16]; LANES],
}

fn lanes(of: impl Fn(usize) -> u32) -> Lanes {
    std::array::from_fn(of)
}

fn square(of: impl Fn(usize, usize) -> f32) -> Square {
    std::array::from_fn(|row| std::array::from_fn(|column| of(row, column)))
}

/// Sum over what a lane holds; the second factor is the column and something.
fn sum(f: &Square, lane: usize, more: usize) -> u32 {
    let mut sum = 0u32;
    for row in [lane / 4, lane / 4 + 8] {
        for column in [2 * (lane % 4), 2 * (lane % 4) + 8] {
            let (a, b) = (f[row][column] as i32 as u32, f[row][column + 1] as i32 as u32);
            let add = a.wrapping_mul(row as u32 + 1).wrapping_add(b.wrapping_mul((column + more) as u32));
            sum = sum.wrapping_add(add);
        }
    }
    sum
}

impl State {
    fn run(&mut self, list: &[Step]) {
        for step in list {
            let v = self.v;
            match step {
                Step::Binary(x, y, op, z) => {
                    self.v[*x] = lanes(|l| match *op {
                        "+" => v[*y][l].wrapping_add(v[*z][l]),
                        "-" => v[*y][l].wrapping_sub(v[*z][l]),
                        "*" => v[*y][l].wrapping_mul(v[*z][l]),
                        _ => v[*y][l] ^ v[*z][l],
                    });
                }
                Step::Literal(x, n) => self.v[*x] = [*n; LANES],
                Step::Shuffle(x, name, y, n) => {
                    let n = *n as usize;
                    self.v[*x] = lanes(|l| {
                        let from = match *name {
                            "shfl_xor" => l ^ n,
                            "shfl_up" => l.checked_sub(n).unwrap_or(l),
                            "shfl_down" => {
                                if l + n < LANES {
                                    l + n
                                } else {
                                    l
                                }
                            }
                            _ => n,
                        };
                        v[*y][from]
                    });
                }
                Step::Gather(x, y, z) => self.v[*x] = lanes(|l| v[*y][v[*z][l] as usize % 32]),
                Step::Ballot(x, y) => {
                    let all = (0..LANES).map(|l| u32::from(v[*y][l] % 3 == 1) << l).sum();
                    self.v[*x] = [all; LANES];
                }
                Step::Apart(a, b, x, y) => {
                    self.v[*x] = lanes(|l| if v[*a][l] < v[*b][l] { v[*y][l] } else { v[*x][l] });
                }
                Step::If(condition, then, other) => {
                    let holds = match condition {
                        Condition::Parameter(n) => self.n > *n,
                        Condition::Vote(true, x, n) => v[*x].iter().any(|v| v > n),
                        Condition::Vote(false, x, n) => v[*x].iter().all(|v| v > n),
                    };
                    self.run(if holds { then } else { other });
                }
                Step::For(trips, body) => {
                    for i in 0..trips.unwrap_or(self.n) {
                        self.v[0] = lanes(|l| self.v[0][l].wrapping_add(i));
                        self.run(body);
                    }
                }
                Step::Tile(x, y, z) => {
                    (0..LANES).for_each(|l| self.tile[l][v[*y][l] as usize % 16] = v[*x][l]);
                    self.v[*x] = lanes(|l| self.tile[v[*z][l] as usize % 32][v[*y][l] as usize % 16]);
                }
                Step::Vector(x, y) => {
                    let at = |l: usize| 4 * (v[*y][l] as usize % 4);
                    (0..LANES).for_each(|l| {
                        let four = [v[*x][l], v[*y][l], v[*x][l].wrapping_add(1), 7];
                        self.tile[l][at(l)..at(l) + 4].copy_from_slice(&four);
                    });
                    self.v[*x] = lanes(|l| {
                        let four = &self.tile[l ^ 1][at(l)..at(l) + 4];
                        let [a, b, c, d] = [four[0], four[1].wrapping_mul(3), four[2].wrapping_mul(5), four[3]];
                        a.wrapping_add(b).wrapping_add(c).wrapping_add(d)
                    });
                }
                Step::Combine(f, g, op, h) => {
                    let (a, b) = (self.f[*g], self.f[*h]);
                    self.f[*f] = square(|r, c| {
                        keep(match *op {
                            "+" => a[r][c] + b[r][c],
                            "-" => a[r][c] - b[r][c],
                            _ => a[r][c] * b[r][c],
                        })
                    });
                }
                Step::Scale(f, n) => {
                    let a = self.f[*f];
                    self.f[*f] = square(|r, c| keep(a[r][c] * a[r][c] + a[r][c] * *n as f32));
                }
                Step::Line(f, row, n) => {
                    let (a, n) = (self.f[*f], *n as usize);
                    self.f[*f] = square(|r, c| keep(if *row { a[r][c] + a[n][c] } else { a[r][c] - a[r][n] }));
                }
                Step::Turn(f, _) => {
                    let a = self.f[*f];
                    self.f[*f] = square(|r, c| a[c][r]);
                }
                Step::Product(f, g, h) => {
                    let (s, a, b) = (self.f[*f], self.f[*g], self.f[*h]);
                    self.f[*f] = square(|r, c| keep(s[r][c] + (0..SIDE).map(|k| a[r][k] * b[c][k]).sum::<f32>()));
                }
                Step::Passed(f, g) => {
                    let (a, b) = (self.f[*f], self.f[*g]);
                    self.f[*f] = square(|r, c| keep(a[r][c] + b[r][c] + a[r][c]));
                }
                Step::Swap => self.f.swap(0, 1),
                Step::Sum(x, f) => self.v[*x] = lanes(|l| v[*x][l].wrapping_add(sum(&self.f[*f], l, 2))),
            }
        }
    }
}

fn expected(list: &[Step], a: &Lanes, n: u32) -> Vec<u32> {
    let first = square(|r, c| (r * 3 + c) as f32 - 20.0);
    let second = square(|r, c| ((r + n as usize) % 5 * c % 7) as f32);
    let v = [*a, lanes(|l| l as u32), lanes(|l| a[l].wrapping_mul(7).wrapping_add(n))];
    let tile = std::array::from_fn(|_| std::array::from_fn(|i| i as u32));
    let mut state = State { n, v, f: [first, second], tile };
    state.run(list);
    (0..LANES)
        .map(|l| {
            let v0 = state.v[0][l].wrapping_add(sum(&state.f[0], l, 1));
            let v1 = state.v[1][l].wrapping_add(sum(&state.f[1], l, 1));
            v0.wrapping_add(v1.wrapping_mul(3)).wrapping_add(state.v[2][l].wrapping_mul(5))
        })
        .collect()
}

#[test]
fn random_programs_of_a_warp() {
    let count: u64 = std::env::var("KDA_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut compiled = 0;
    let layouts = ["_", "Swizzle<64>", "Swizzle<32>", "_"];
    for index in 0..count {
        let mut random = Random::new(1000 + index);
        let list: Vec<Step> = (0..2).flat_map(|_| steps(&mut random, 2)).collect();
        let source = program(&list, layouts[index as usize % layouts.len()]);
        // Constants that meet never wrap: such a program does not compile.
        if try_compile(&source).is_err_and(|errors| matches!(errors[0].code.0, 164 | 202..=204)) {
            continue;
        }
        compiled += 1;
        let a: Lanes = std::array::from_fn(|_| random.word());
        for n in [0, 1 + random.below(3)] {
            let mut run = Run::new(&source);
            run.tensor("a", &a).tensor("out", &[0u32; LANES]).set("n", n);
            let got = run.launch(1).read::<u32>("out");
            assert_eq!(got, expected(&list, &a, n), "program {index}, n {n}\n{source}\n{}", run.compiled.ptx);
        }
    }
    assert!(compiled * 4 > count * 3, "only {compiled} of {count} programs compile");
}
