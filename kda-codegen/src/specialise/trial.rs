//! Evaluation that may be undone: the right side of `&&`, and the body of a loop until its changing values are known.

use super::Specialiser;
use super::value::Value;

/// The state that an evaluation may change and a second one must find as the first did.
pub(super) struct Mark {
    frames: usize,
    scopes: usize,
    locals: Vec<Value>,
    regions: usize,
    control: usize,
    branches: usize,
    calls: usize,
    buffers: usize,
    barriers: usize,
    declared: usize,
    shared_end: u32,
    roles: Option<Vec<usize>>,
    waited: bool,
    returned: bool,
    nesting: (usize, usize),
    rings: Vec<super::pipeline::Ring>,
    holdings: Vec<super::pipeline::Holding>,
    spans: usize,
    fresh_barriers: Option<kda_ptx::operand::PredSrc>,
    elected: bool,
    elected_takes: usize,
    cluster: super::cluster::State,
    tensor_memory: super::tensor_memory::State,
    writing: bool,
    raw_barriers: bool,
    flight: super::products::Flight,
    tickets: super::tickets::State,
}

impl Mark {
    /// Values of the locals then.
    pub(super) fn locals(&self) -> &Vec<Value> {
        &self.locals
    }

    /// Whether the kernel had waited for its predecessor.
    pub(super) fn waited(&self) -> bool {
        self.waited
    }
}

impl Specialiser<'_> {
    /// The state here.
    pub(super) fn mark(&mut self) -> Mark {
        let scopes = self.frame().scopes.depth();
        let locals = self.frame().scopes.snapshot();
        Mark {
            frames: self.frames.len(),
            scopes,
            locals,
            regions: self.builder.depth(),
            control: self.control.len(),
            branches: self.branches,
            calls: self.calls.len(),
            buffers: self.buffers.len(),
            barriers: self.barriers.len(),
            declared: self.declared,
            shared_end: self.shared_end,
            roles: self.roles.clone(),
            waited: self.waited,
            returned: self.returned,
            nesting: self.nesting(),
            rings: self.rings.clone(),
            holdings: self.holdings.clone(),
            spans: self.spans.len(),
            fresh_barriers: self.fresh_barriers,
            elected: self.elected,
            elected_takes: self.elected_takes.len(),
            cluster: self.cluster.clone(),
            tensor_memory: self.tensor_memory.clone(),
            writing: self.writing,
            raw_barriers: self.raw_barriers,
            flight: self.flight.clone(),
            tickets: self.tickets.clone(),
        }
    }

    /// Goes back to it; instructions since are forgotten.
    pub(super) fn rewind(&mut self, mark: &Mark) {
        self.frames.truncate(mark.frames);
        self.frame().scopes.unwind(mark.scopes);
        self.frame().scopes.restore(&mark.locals);
        self.builder.unwind(mark.regions);
        self.control.truncate(mark.control);
        self.branches = mark.branches;
        self.calls.truncate(mark.calls);
        self.buffers.truncate(mark.buffers);
        self.barriers.truncate(mark.barriers);
        (self.declared, self.shared_end) = (mark.declared, mark.shared_end);
        self.roles = mark.roles.clone();
        (self.waited, self.returned) = (mark.waited, mark.returned);
        self.unwind_nesting(mark.nesting);
        self.rings.clone_from(&mark.rings);
        self.holdings.clone_from(&mark.holdings);
        self.spans.truncate(mark.spans);
        (self.fresh_barriers, self.elected) = (mark.fresh_barriers, mark.elected);
        self.elected_takes.truncate(mark.elected_takes);
        self.cluster.clone_from(&mark.cluster);
        self.tensor_memory.clone_from(&mark.tensor_memory);
        (self.writing, self.raw_barriers) = (mark.writing, mark.raw_barriers);
        self.flight.clone_from(&mark.flight);
        self.tickets.clone_from(&mark.tickets);
        self.conversions.clear();
        self.naming = None;
    }
}
