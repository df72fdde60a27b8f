//! Random programs as trees.

use crate::harness::Random;

/// Variables of type u32; one more is an array of three, one a word of shared memory.
pub const VARIABLES: usize = 4;

/// A u32.
#[derive(Clone, Debug)]
pub enum Number {
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

/// A bool.
#[derive(Clone, Debug)]
pub enum Truth {
    Compare(&'static str, Number, Number),
    Signed(&'static str, Number, Number),
    And(Box<Truth>, Box<Truth>),
    Or(Box<Truth>, Box<Truth>),
    Not(Box<Truth>),
    Flag,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Step {
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

/// Makes programs.
pub struct Maker<'a> {
    /// Source of choices.
    pub random: &'a mut Random,
    /// Loops around here.
    pub counters: usize,
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

    /// Some statements.
    pub fn steps(&mut self, depth: u32) -> Vec<Step> {
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
