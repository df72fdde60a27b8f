//! KIR: one variant of a kernel as structured regions of typed instructions.
//!
//! Every constant is folded, every call inlined, every register typed. Control flow is a tree ([`Region`], [`Node`]), so a
//! check sees loops and branches with their uniformity instead of labels; instructions are rows of the PTX table, so that
//! lowering adds nothing but labels and source lines. Registers are assigned once, except the variables of loops and
//! joins, which are written only at the end of a loop body or of a branch.

pub mod fences;
pub mod landing;

use kda_ptx::operand::PredSrc;
use kda_ptx::{Class, Inst, Reg};

/// A place in the author's source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the file in [`Body::files`], from 1; 0 where there is no source.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Among which threads a value or a branch is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uniform {
    /// All threads of the CTA.
    Cta,
    /// The threads of an aligned warpgroup.
    Warpgroup,
    /// The threads of a warp.
    Warp,
    /// Nobody.
    Thread,
}

/// The code of one variant.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Files of the places, in order of their numbers.
    pub files: Vec<String>,
    /// Code.
    pub region: Region,
}

/// Nodes in program order.
pub type Region = Vec<Node>;

/// A step of the program.
#[derive(Clone, Debug)]
pub enum Node {
    /// An instruction, perhaps predicated.
    Inst {
        /// The instruction.
        inst: Inst,
        /// Its predicate.
        guard: Option<PredSrc>,
        /// Whence it comes.
        place: Place,
    },
    /// A step that concerns more than one thread.
    Sync {
        /// What it does.
        sync: Sync,
        /// Whence it comes.
        place: Place,
    },
    /// A branch.
    If {
        /// Taken if true.
        condition: PredSrc,
        /// Among whom the condition is the same.
        uniform: Uniform,
        /// What the branch is for.
        branch: Branch,
        /// Then.
        then: Region,
        /// Else.
        other: Region,
        /// Whence it comes.
        place: Place,
    },
    /// `while condition { body }`; `head` computes the condition before each trip.
    Loop {
        /// Computes the condition.
        head: Region,
        /// Goes on while true.
        condition: PredSrc,
        /// Among whom the condition is the same.
        uniform: Uniform,
        /// Body.
        body: Region,
        /// How often it runs, where that is an expression.
        trips: Option<Trips>,
        /// Whence it comes.
        place: Place,
    },
    /// The thread is done.
    Return(Place),
    /// A remark for the reader of the PTX.
    Comment(String),
}

/// Synchronisation, as the checks see it.
#[derive(Clone, Debug, PartialEq)]
pub enum Sync {
    /// All threads of the CTA meet.
    Cta,
    /// All threads of the cluster meet, or do one half of it.
    Cluster {
        /// They arrive.
        arrive: bool,
        /// They wait for the others.
        wait: bool,
        /// Number of its place in the source.
        span: usize,
    },
    /// Threads of a named barrier arrive and wait.
    NamedSync {
        /// Hardware id.
        id: u32,
        /// Threads.
        threads: u32,
        /// Number of its place in the source.
        span: usize,
    },
    /// Threads of a named barrier arrive.
    NamedArrive {
        /// Hardware id.
        id: u32,
        /// Threads.
        threads: u32,
        /// Number of its place in the source.
        span: usize,
    },
    /// The lanes of the warp meet.
    Warp,
    /// A side of a ring has taken a stage: the wait is ahead of this step.
    Take {
        /// Index of the ring.
        ring: usize,
        /// Number of the side in the order of flow: 0 produces, the last one consumes.
        side: usize,
        /// Number of its place in the source.
        span: usize,
    },
    /// A side of a ring gives a stage: the arrival follows this step.
    Give {
        /// Index of the ring.
        ring: usize,
        /// Number of the side.
        side: usize,
        /// Number of its place in the source.
        span: usize,
    },
    /// A side of a ring goes on at the first stage.
    Restart {
        /// Index of the ring.
        ring: usize,
        /// Number of its place in the source.
        span: usize,
    },
    /// The thread is about to arrive at an mbarrier that belongs to no ring.
    MbarrierArrive,
    /// An mbarrier of a ring gets its number of arrivals.
    MbarrierInit {
        /// Index of the ring.
        ring: usize,
        /// Which of its barriers.
        role: MbarrierRole,
        /// The initialisation; its count is filled in when the roles are known.
        inst: Inst,
        /// The thread that does it.
        guard: PredSrc,
    },
    /// A generic store to a shared buffer; marks what a later hand-over must fence.
    SharedWrite {
        /// Index of the buffer.
        buffer: usize,
    },
    /// Loads from a stage of a ring follow this step.
    SharedRead {
        /// Index of the ring.
        ring: usize,
    },
    /// Products of a warpgroup read a shared buffer: they follow this step.
    ProductRead {
        /// Index of the buffer.
        buffer: usize,
    },
    /// A bulk copy writes a shared buffer: it follows this step.
    BulkFill {
        /// Index of the buffer.
        buffer: usize,
    },
    /// A bulk copy from a shared buffer to global memory.
    BulkStore {
        /// Index of the buffer.
        buffer: usize,
        /// Index of the parameter that is written.
        destination: usize,
        /// The copy.
        inst: Inst,
        /// Its predicate.
        guard: Option<PredSrc>,
    },
}

/// What a branch is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Branch {
    /// The author's condition.
    Plain,
    /// The author's condition, which compares a value with a constant.
    Guard(Trips),
    /// The code of roles.
    Roles(Vec<usize>),
    /// The code of one thread that acts for its role.
    Elected,
    /// A further trip of the loop around it, if there is one: a copy of what stands ahead of the branch.
    NextTrip,
}

/// How often a loop runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trips {
    /// So often.
    Known(u64),
    /// As often as a value is above `start`.
    Expression {
        /// The value: equal keys are equal values.
        key: String,
        /// Where the loop starts to count; negative if it runs more often than the value says.
        start: i64,
        /// The value is not smaller.
        least: u64,
        /// The range as the author wrote it.
        text: String,
    },
    /// Once if a value is not below `from`, or not at all: a branch.
    Guard {
        /// The value.
        key: String,
        /// The branch is taken from here on.
        from: u64,
        /// The value is not smaller.
        least: u64,
        /// The condition as the author wrote it.
        text: String,
    },
    /// It runs the first trips of the loop behind it.
    Part,
}

/// Which of the barriers of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierRole {
    /// Completes when the stage is filled.
    Full,
    /// Completes when the middle side of this number, from 1, has done its part.
    Middle(usize),
    /// Completes when the stage may be filled again.
    Empty,
}

/// Number of the class among the register files.
pub fn class_index(class: Class) -> usize {
    Class::ALL.iter().position(|c| *c == class).unwrap_or(0)
}

/// The predicate itself.
pub fn when(reg: Reg) -> PredSrc {
    PredSrc { reg, negated: false }
}
