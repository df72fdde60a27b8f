//! Arbitrary instructions, for property tests of whatever reads the table.
//!
//! [`Row::sample`](crate::table::Row) builds an instruction of its row from a stream of choices: `choose(n)` gives a
//! number below `n`. All modifiers and operands of the row's types occur; combinations that PTX forbids occur too.

use crate::operand::*;

/// A value built from choices.
pub trait Sample: Sized {
    /// Builds a value; `choose(n)` gives a number below `n`.
    fn sample(choose: &mut dyn FnMut(usize) -> usize) -> Self;
}

type Choose<'a> = &'a mut dyn FnMut(usize) -> usize;

fn list<T>(choose: Choose<'_>, item: impl Fn(Choose<'_>) -> T) -> Vec<T> {
    (0..1 << choose(4)).map(|_| item(choose)).collect()
}

fn name(choose: Choose<'_>) -> String {
    ["smem", "x", "$L_loop", "_end", "a_long_name2"][choose(5)].to_string()
}

fn wide(choose: Choose<'_>) -> u64 {
    match choose(4) {
        0 => choose(64) as u64,
        1 => u64::MAX - choose(64) as u64,
        2 => (i64::MIN as u64).wrapping_add(choose(3) as u64).wrapping_sub(1),
        _ => (choose(1 << 16) as u64) << 48 | (choose(1 << 16) as u64) << 20 | choose(1 << 16) as u64,
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(choose: Choose<'_>) -> Option<T> {
        (choose(2) == 1).then(|| T::sample(choose))
    }
}

impl Sample for Reg {
    fn sample(choose: Choose<'_>) -> Reg {
        Reg::new(Class::ALL[choose(Class::ALL.len())], choose(1 << 20) as u32)
    }
}

impl Sample for Src {
    fn sample(choose: Choose<'_>) -> Src {
        match choose(6) {
            0 => Src::Imm(wide(choose) as i64),
            1 => Src::F32(wide(choose) as u32),
            2 => Src::F64(wide(choose)),
            3 => Src::Special(Special::ALL[choose(Special::ALL.len())]),
            4 => Src::Symbol(name(choose)),
            _ => Src::Reg(Reg::sample(choose)),
        }
    }
}

impl Sample for Base {
    fn sample(choose: Choose<'_>) -> Base {
        if choose(3) == 0 { Base::Symbol(name(choose)) } else { Base::Reg(Reg::sample(choose)) }
    }
}

impl Sample for Address {
    fn sample(choose: Choose<'_>) -> Address {
        Address { base: Base::sample(choose), offset: wide(choose) as i64 }
    }
}

impl Sample for TensorAddress {
    fn sample(choose: Choose<'_>) -> TensorAddress {
        TensorAddress { map: Base::sample(choose), coordinates: list(choose, |c| Src::sample(c)) }
    }
}

impl Sample for DstList {
    fn sample(choose: Choose<'_>) -> DstList {
        DstList(list(choose, |c| Option::sample(c)))
    }
}

impl Sample for SrcList {
    fn sample(choose: Choose<'_>) -> SrcList {
        SrcList(list(choose, |c| Src::sample(c)))
    }
}

impl Sample for DstAndPred {
    fn sample(choose: Choose<'_>) -> DstAndPred {
        DstAndPred { dst: Option::sample(choose), pred: Option::sample(choose) }
    }
}

impl Sample for PredSrc {
    fn sample(choose: Choose<'_>) -> PredSrc {
        PredSrc { reg: Reg::sample(choose), negated: choose(2) == 1 }
    }
}

impl Sample for Sink {
    fn sample(_: Choose<'_>) -> Sink {
        Sink
    }
}

impl Sample for Label {
    fn sample(choose: Choose<'_>) -> Label {
        Label(name(choose))
    }
}

impl Sample for Trailing {
    fn sample(choose: Choose<'_>) -> Trailing {
        Trailing((0..choose(3)).map(|_| Src::sample(choose)).collect())
    }
}

impl Sample for Accumulators {
    fn sample(choose: Choose<'_>) -> Accumulators {
        Accumulators(list(choose, |c| Reg::sample(c)))
    }
}

impl Sample for RegList {
    fn sample(choose: Choose<'_>) -> RegList {
        RegList(list(choose, |c| Reg::sample(c)))
    }
}

impl Sample for OutList {
    fn sample(choose: Choose<'_>) -> OutList {
        OutList(list(choose, |c| Reg::sample(c)))
    }
}

impl Sample for crate::modifier::WgmmaShape {
    fn sample(choose: Choose<'_>) -> Self {
        crate::modifier::WgmmaShape { n: 8 * (1 + choose(32)) as u16, k: [8, 16][choose(2)] }
    }
}
