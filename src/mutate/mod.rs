//! Mutation of synchronisation: does any net notice when one step of it is missing or wrong?
//!
//! A mutant is a shipped kernel with one synchronisation changed: an instruction of its PTX ([`ptx`]), or a statement of its
//! source ([`source`]). It is killed if the compiler refuses it, or if under some schedule the simulator reports it or its
//! operator's sample problem gives other bytes than the kernel itself. One that lives must be in the table of
//! [`equivalent`], with a reason that a reader can check. Everything follows from the seed.
//!
//! | question | module |
//! | --- | --- |
//! | which mutants does a text have | [`ptx`], [`source`] |
//! | which kernels are changed, one variant a design | [`subject`] |
//! | what becomes of one mutant | [`run`](mod@run) |
//! | how it takes the place of the kernel | `stand` |
//! | why may a mutant live | [`equivalent`] |
//! | all of them, on all cores | [`work`] |
//! | rates and tables | [`report`] |

pub mod equivalent;
pub mod ptx;
pub mod report;
pub mod run;
pub mod source;
pub(crate) mod stand;
pub mod subject;
pub mod work;

use std::fmt;

/// Where a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In the emitted PTX.
    Ptx,
    /// In the kernel's source.
    Source,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Ptx => "PTX",
            Level::Source => "source",
        })
    }
}

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The instruction or statement is not there; its result is as if it had succeeded.
    Drop,
    /// One arrival more; of a named barrier a warp.
    CountUp,
    /// One arrival fewer.
    CountDown,
    /// 16 bytes more are announced.
    BytesUp,
    /// 16 bytes fewer are announced.
    BytesDown,
    /// The other parity is waited for.
    Phase,
    /// A weaker order, a narrower scope, one half of a fence, or a wait for less.
    Narrow,
    /// One more group may be pending.
    Pending,
    /// Every lane does what one lane should.
    EveryLane,
    /// A wait and the arrival behind it, or an arrival and the wait behind it, change places.
    Swap,
    /// A statement stands one statement too early.
    Earlier,
    /// A statement stands one statement too late.
    Later,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Operator; 12] = [
        Operator::Drop,
        Operator::CountUp,
        Operator::CountDown,
        Operator::BytesUp,
        Operator::BytesDown,
        Operator::Phase,
        Operator::Narrow,
        Operator::Pending,
        Operator::EveryLane,
        Operator::Swap,
        Operator::Earlier,
        Operator::Later,
    ];
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operator::Drop => "drop",
            Operator::CountUp => "count + 1",
            Operator::CountDown => "count - 1",
            Operator::BytesUp => "bytes + 16",
            Operator::BytesDown => "bytes - 16",
            Operator::Phase => "phase ^ 1",
            Operator::Narrow => "narrow",
            Operator::Pending => "pending + 1",
            Operator::EveryLane => "every lane",
            Operator::Swap => "swap",
            Operator::Earlier => "earlier",
            Operator::Later => "later",
        })
    }
}

/// The whole text of a changed kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// A PTX module.
    Ptx(String),
    /// The file of the family.
    Source(String),
}

/// A kernel with one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Entry of the kernel.
    pub kernel: &'static str,
    /// Where the change is.
    pub level: Level,
    /// What was done.
    pub operator: Operator,
    /// Line of the source, from 1.
    pub line: u32,
    /// The instruction or statement, as it was.
    pub what: String,
    /// The changed text.
    pub text: Text,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {} {} `{}`", self.kernel, self.line, self.level, self.operator, self.what)
    }
}

/// Who noticed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Net {
    /// The compiler refuses the source, with this code.
    Compiler(String),
    /// The compiler proved the protocol of the kernel, and cannot prove the mutant's.
    Protocol,
    /// The simulator reports, with this code.
    Simulator(String),
    /// Outputs differ.
    Result,
}

impl Net {
    /// Names of the nets, in the order of [`Net::column`].
    pub const COLUMNS: [&'static str; 4] = ["compiler", "protocol", "simulator", "result"];

    /// Which of them it is.
    pub fn column(&self) -> usize {
        match self {
            Net::Compiler(_) => 0,
            Net::Protocol => 1,
            Net::Simulator(_) => 2,
            Net::Result => 3,
        }
    }
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A net noticed.
    Killed(Net),
    /// None did, under any schedule.
    Survived,
    /// The statement is not in this variant: no mutant.
    Absent,
}
