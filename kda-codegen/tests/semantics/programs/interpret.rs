//! What programs should compute.

use super::tree::{Number, Step, Truth, VARIABLES};
use crate::harness::Inputs;

/// Variables of a thread.
pub struct State<'a> {
    pub inputs: &'a Inputs,
    pub variables: [u32; VARIABLES],
    pub array: [u32; 3],
    pub memory: u32,
    pub flag: bool,
    pub counters: Vec<u32>,
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

    /// Runs statements.
    pub fn run(&mut self, list: &[Step]) {
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
