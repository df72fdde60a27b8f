//! Rings of stages between two roles.
//!
//! `Pipeline::<from, to> { name: smem… }` has a full and an empty mbarrier for each stage. The producing side acquires a
//! stage (waits until it is empty), fills it and commits it; the consuming side waits for it, uses it and releases it.
//! Stage index and phase are variables of each side that the source never sees. Counts follow from who commits and who
//! releases: a single thread that issues bulk copies is one arrival and announces the bytes of its copies; a role of
//! several warps arrives once a warp.

use super::Specialiser;
use super::site::Site;
use super::tile::TileView;
use super::value::{Scalar, Value};
use crate::compiled::SharedBuffer;
use crate::diag::{Diagnostic, Place as _, Result};
use crate::kir::{Branch, MbarrierRole, Node, Sync, Uniform, when};
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, DstAndPred, PredSrc, Sink, Src};
use kda_ptx::table::*;
use proc_macro2::Span;
use syn::BinOp;

/// A ring.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Name of its variable.
    pub name: String,
    /// Roles that produce and that consume; both empty for a ring within the CTA.
    pub sides: [Vec<usize>; 2],
    /// Number of stages.
    pub stages: u32,
    /// Buffers by name.
    pub buffers: Vec<(String, TileView)>,
    /// Buffer of the mbarriers: full ones, then empty ones.
    pub barriers: usize,
    /// Arrivals of a phase of the full and of the empty barriers, once known.
    pub counts: [Option<u32>; 2],
}

/// A stage that a role holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Index of the ring.
    pub ring: usize,
    /// 0 for the producing side, 1 for the consuming side.
    pub side: usize,
    /// Stage.
    pub stage: Value,
    /// Number of this holding, unique in the kernel.
    pub id: u32,
}

/// What is known about a holding while the kernel is compiled.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    /// Where it was taken.
    pub taken: Option<(Span, Span)>,
    /// Bytes that bulk copies bring.
    pub bytes: u64,
    /// Committed or released.
    pub done: bool,
    /// Side that holds it.
    pub side: usize,
}

const SIDES: [&str; 2] = ["producing", "consuming"];

impl Specialiser<'_> {
    /// `Pipeline::<load, math> { a: smem…, b: smem… }`
    pub(super) fn pipeline(&mut self, expr: &syn::ExprStruct, site: Site<'_>) -> Result<Value> {
        let form = |what: &str| {
            Diagnostic::new(652, site, what.to_string())
                .help("write `Pipeline::<load, math> { a: smem::<bf16, Shape<128, 64>, Swizzle<128>, STAGES>() }`")
        };
        let name = self.naming.take().unwrap_or_else(|| "pipeline".into());
        let whole = expr.path.segments.len() == 2 && expr.path.segments.last().is_some_and(|s| s.ident == "cta");
        let segment = expr.path.segments.first();
        let none = Default::default();
        let args = match segment.map(|s| &s.arguments) {
            Some(syn::PathArguments::AngleBracketed(args)) if !whole => &args.args,
            _ if whole => &none,
            _ => return Err(form("the sides of the pipeline are missing")),
        };
        let mut sides = Vec::new();
        for arg in args {
            let role = match arg {
                syn::GenericArgument::Type(syn::Type::Path(path)) => path.path.get_ident(),
                _ => None,
            };
            match role.and_then(|role| self.resolved.roles.iter().position(|r| *role == r.name)) {
                Some(role) => sides.push(vec![role]),
                None => return Err(Diagnostic::new(351, Site::Tokens(arg), "a side of a pipeline is a role")),
            }
        }
        let sides = match sides.as_slice() {
            [from, to] => [from.clone(), to.clone()],
            // All threads of the CTA are both sides.
            [] if whole => [Vec::new(), Vec::new()],
            _ => return Err(form("a pipeline has two sides")),
        };
        if self.control() > Uniform::Cta || self.frames.len() > 1 || self.roles.is_some() {
            return Err(form("a pipeline is declared in the kernel, ahead of the roles"));
        }
        let (mut buffers, mut stages, mut accumulators) = (Vec::new(), None, Vec::new());
        for field in &expr.fields {
            let syn::Member::Named(member) = &field.member else { return Err(form("a buffer has a name")) };
            self.naming = Some(format!("{name}.{member}"));
            self.staging = None;
            let value = self.expr(&field.expr)?;
            let accumulator = match &value {
                Value::Tmem(view) => Some((**view).clone()),
                _ => None,
            };
            self.staging = accumulator.as_ref().map(|view| view.stages).or(self.staging);
            let depth = self.staging.take().unwrap_or(1);
            if *stages.get_or_insert(depth) != depth {
                return Err(Diagnostic::new(
                    652,
                    Site::Expr(&field.expr),
                    "the buffers of a pipeline have different numbers of stages",
                ));
            }
            if let Some(view) = accumulator {
                accumulators.push((member.to_string(), view));
                continue;
            }
            let Value::Tile(view) = value else {
                return Err(Diagnostic::new(
                    652,
                    Site::Expr(&field.expr),
                    "a buffer of a pipeline is a swizzled tile with stages",
                ));
            };
            buffers.push((member.to_string(), *view));
        }
        let Some(stages) = stages else { return Err(form("a pipeline has at least one buffer")) };
        let desc = SharedBuffer {
            name: format!("{name}.barriers"),
            offset: 0,
            bytes: 16 * stages,
            align: 16,
            elem: Elem::U64,
            shape: vec![2, stages],
        };
        let barriers = self.place_buffer(desc, site);
        self.buffers[barriers].used = true;
        let index = self.rings.len();
        self.rings.push(Ring { name: name.clone(), sides, stages, buffers, barriers, counts: [None, None] });
        self.initialise(index, site);
        self.allocate(index, accumulators, site)?;
        for side in 0..2 {
            for part in ["stage", "phase"] {
                self.frame().scopes.declare(state_name(index, side, part), Value::u32(0), true);
            }
        }
        Ok(Value::Ring(index))
    }

    /// Initialises the mbarriers in one thread; the counts are filled in when the roles have been compiled.
    fn initialise(&mut self, ring: usize, site: Site<'_>) {
        self.place(site);
        let tid = self.special(kda_ptx::operand::Special::TidX, Uniform::Thread);
        let first = self.builder.pure(Class::Pred, |dst| {
            let dst = DstAndPred { dst: Some(dst), pred: None };
            Setp { compare: Compare::Eq, ftz: Default::default(), ty: Type::U32, dst, a: tid.src(), b: Src::Imm(0) }
                .into()
        });
        let stages = self.rings[ring].stages;
        for role in [MbarrierRole::Full, MbarrierRole::Empty] {
            for stage in 0..stages {
                let address = self.barrier_address(ring, role, &Value::u32(stage));
                let inst = MbarrierInit { space: Some(Space::SharedCta), ty: Type::B64, address, count: Src::Imm(0) };
                self.builder.sync(Sync::MbarrierInit { ring, role, inst: inst.into(), guard: when(first) });
            }
        }
        self.fresh_barriers = Some(when(first));
    }

    /// Makes initialised mbarriers visible, if any are fresh: one fence and one CTA barrier ahead of the roles.
    pub(super) fn publish_barriers(&mut self, site: Site<'_>) -> Result<()> {
        let Some(first) = self.fresh_barriers.take() else { return Ok(()) };
        if self.control() > Uniform::Cta || self.roles.is_some() {
            return Err(Diagnostic::new(652, site, "a pipeline is first used in a branch that not all threads take"));
        }
        self.builder.guarded(Some(first), FenceMbarrierInit {});
        self.meet_publishing(site)?;
        self.read_addresses();
        Ok(())
    }

    /// Address of the full or empty barrier of a stage.
    pub(super) fn barrier_address(&mut self, ring: usize, role: MbarrierRole, stage: &Value) -> Address {
        let (buffer, stages) = (self.rings[ring].barriers, self.rings[ring].stages);
        let first = match role {
            MbarrierRole::Full => 0,
            MbarrierRole::Empty => 8 * i64::from(stages),
        };
        let offset = i64::from(self.buffers[buffer].desc.offset) + first;
        match stage {
            Value::Scalar(s) => {
                let base = self.shared_base();
                let reg = self.builder.pure(Class::B32, |dst| {
                    Mad { half: Half::Lo, ty: Type::U32, dst, a: s.src(), b: Src::Imm(8), c: base.into() }.into()
                });
                Address { base: Base::Reg(reg), offset }
            }
            known => {
                let stage = known.as_int().unwrap_or(0) as i64;
                Address { base: Base::Symbol(crate::lower::SHARED.into()), offset: offset + 8 * stage }
            }
        }
    }

    fn state(&mut self, ring: usize, side: usize, part: &str) -> (usize, Value) {
        let name = state_name(ring, side, part);
        let scopes = &self.frames[0].scopes;
        match scopes.find(&name) {
            Some(id) => (id, scopes.get(id).value.clone()),
            None => (0, Value::u32(0)),
        }
    }

    /// Checks that this role may act on a side of a ring.
    fn take_side(&mut self, ring: usize, side: usize, operation: &str, site: Site<'_>) -> Result<()> {
        let fits = match &self.roles {
            None => self.rings[ring].sides[side].is_empty(),
            Some(_) if self.rings[ring].sides[side].is_empty() => {
                return Err(Diagnostic::new(
                    653,
                    site,
                    format!("`{operation}` of a pipeline of the whole CTA, inside a role"),
                ));
            }
            Some(roles) => roles.iter().all(|r| self.rings[ring].sides[side].contains(r)),
        };
        if !fits || self.frames.len() > 1 {
            let names: Vec<_> =
                self.rings[ring].sides[side].iter().map(|r| self.resolved.roles[*r].name.clone()).collect();
            let message = format!(
                "`{operation}` belongs to the {} side of `{}`: the role {}",
                SIDES[side],
                self.rings[ring].name,
                names.join(", ")
            );
            return Err(Diagnostic::new(653, site, message)
                .help("write it in a `#[role(…)]` block of that role, in the kernel itself"));
        }
        Ok(())
    }

    /// `ring.acquire()`, `ring.wait()`
    pub(super) fn take_stage(&mut self, ring: usize, side: usize, site: Site<'_>) -> Result<Value> {
        self.take_side(ring, side, if side == 0 { "acquire" } else { "wait" }, site)?;
        if self.rings[ring].sides[side].is_empty() && !self.elected {
            self.publish_barriers(site)?;
        }
        if side == 1 && self.elected && self.tensor_memory.allocations.is_empty() {
            return Err(Diagnostic::new(656, site, "`wait` in one thread; the whole role waits for a stage")
                .help("take it and `release` out of `#[elect_one]`"));
        }
        if self.control() > Uniform::Warp && !self.elected {
            return Err(Diagnostic::new(350, site, "lanes may differ in the branch around this"));
        }
        let (_, stage) = self.state(ring, side, "stage");
        let (_, phase) = self.state(ring, side, "phase");
        // A fresh barrier counts as if the phase before the first had completed: the producer finds every stage empty.
        let parity = match side {
            0 => self.binary(&BinOp::BitXor(Default::default()), phase, Value::u32(1), site)?,
            _ => phase,
        };
        let parity = self.operand(&parity, Elem::U32, site)?;
        let role = if side == 0 { MbarrierRole::Empty } else { MbarrierRole::Full };
        let address = self.barrier_address(ring, role, &stage);
        self.place(site);
        self.spin(ring, address, parity);
        let place_number = self.note_span(site);
        self.builder.sync(Sync::Take { ring, side, span: place_number });
        if !self.tensor_memory.allocations.is_empty() {
            self.after_take(ring, side);
        }
        let id = self.holdings.len() as u32;
        self.holdings.push(Holding { taken: Some(site.ends()), bytes: 0, done: false, side });
        Ok(Value::Slot(Box::new(Slot { ring, side, stage, id })))
    }

    /// Waits until the phase of that parity has completed.
    fn spin(&mut self, ring: usize, address: Address, parity: Src) {
        let (order, scope) = self.wait_order(ring);
        let done = self.builder.fresh(Class::Pred);
        self.builder.open();
        self.builder.inst(MbarrierTryWait {
            order,
            scope,
            space: Some(Space::SharedCta),
            ty: Type::B64,
            done,
            address,
            parity,
        });
        let head = self.builder.close();
        let condition = PredSrc { reg: done, negated: true };
        let place = self.builder.place;
        self.builder.push(Node::Loop {
            head,
            condition,
            uniform: Uniform::Thread,
            body: Vec::new(),
            trips: None,
            place,
        });
    }

    /// A buffer of a slot.
    pub(super) fn slot_buffer(&mut self, slot: &Slot, name: &str, site: Site<'_>) -> Result<Value> {
        if let Some(accumulator) = self.slot_accumulator(slot, name) {
            return if self.holdings[slot.id as usize].done { Err(self.gone(slot, site)) } else { Ok(accumulator) };
        }
        let found = self.rings[slot.ring].buffers.iter().find(|(buffer, _)| buffer == name);
        let Some((_, view)) = found else {
            let names: Vec<_> = self.rings[slot.ring].buffers.iter().map(|(n, _)| n.clone()).collect();
            return Err(Diagnostic::new(158, site, format!("the pipeline has no buffer `{name}`"))
                .help(format!("its buffers are {}", names.join(", "))));
        };
        if self.holdings[slot.id as usize].done {
            return Err(self.gone(slot, site));
        }
        let view = TileView { stage: slot.stage.clone(), slot: Some(slot.id), ..view.clone() };
        Ok(Value::Tile(Box::new(view)))
    }

    fn gone(&self, slot: &Slot, site: Site<'_>) -> Box<Diagnostic> {
        let word = if slot.side == 0 { "committed" } else { "released" };
        let error = Diagnostic::new(654, site, format!("this stage has been {word}"));
        match self.holdings[slot.id as usize].taken {
            Some(taken) => error.note(taken.0, "it was taken here"),
            None => error,
        }
    }

    /// `slot.commit()`, `slot.release()`
    pub(super) fn give_stage(&mut self, slot: &Slot, side: usize, site: Site<'_>) -> Result<Value> {
        let operation = if side == 0 { "commit" } else { "release" };
        if slot.side != side {
            let right = if slot.side == 0 { "commit" } else { "release" };
            return Err(Diagnostic::new(
                653,
                site,
                format!("`{operation}` of a stage of the {} side", SIDES[slot.side]),
            )
            .help(format!("write `{right}()`")));
        }
        self.take_side(slot.ring, side, operation, site)?;
        if self.holdings[slot.id as usize].done {
            return Err(self.gone(slot, site));
        }
        self.holdings[slot.id as usize].done = true;
        let bytes = self.holdings[slot.id as usize].bytes;
        let warps: u32 = match self.rings[slot.ring].sides[side].as_slice() {
            [] => self.resolved.block / 32,
            roles => roles.iter().map(|r| self.resolved.roles[*r].warps).sum(),
        };
        let by_products = self.given_by_products(slot, site)?;
        let (role, count) = match (side, bytes > 0 || self.elected) {
            (0, true) => (MbarrierRole::Full, 1),
            (0, false) => (MbarrierRole::Full, warps),
            _ if by_products => (MbarrierRole::Empty, 1),
            _ => (MbarrierRole::Empty, warps * self.releasing(slot.ring)),
        };
        if side == 1 {
            self.check_products(slot, site)?;
            if self.elected && !by_products {
                return Err(Diagnostic::new(
                    656,
                    site,
                    "`release` in one thread; every warp of the role releases a stage",
                ));
            }
        }
        let known = &mut self.rings[slot.ring].counts[side];
        if known.is_some_and(|known| known != count) {
            return Err(Diagnostic::new(
                656,
                site,
                "this stage is committed by one thread here and by the whole role elsewhere",
            ));
        }
        *known = Some(count);
        let address = self.barrier_address(slot.ring, role, &slot.stage);
        self.place(site);
        self.builder.sync(Sync::Give { ring: slot.ring, side });
        let (order, scope, space, ty) = (None, None, Some(Space::SharedCta), Type::B64);
        if by_products {
            self.arrive_after_products(address);
        } else if self.elected {
            if bytes > 0 {
                self.builder.inst(MbarrierArriveExpectTx {
                    order,
                    scope,
                    space,
                    ty,
                    state: Sink,
                    address,
                    bytes: Src::Imm(bytes as i64),
                });
            } else {
                self.builder.inst(MbarrierArrive { order, scope, space, ty, state: Sink, address, count: None });
            }
        } else {
            if self.control() > Uniform::Warp {
                return Err(Diagnostic::new(350, site, "lanes may differ in the branch around this"));
            }
            if self.is_tensor_memory(slot.ring) {
                self.tensor_fence(TmemFence::Before);
            }
            // The lanes of the warp have done their part before one of them arrives for all.
            self.builder.sync(Sync::Warp);
            if side == 1 && self.releasing(slot.ring) > 1 {
                self.arrive_everywhere(&address);
                return self.advance_state(slot.ring, side, site).map(|()| Value::Unit);
            }
            let lane = self.special(kda_ptx::operand::Special::LaneId, Uniform::Thread);
            let leader = self.builder.pure(Class::Pred, |dst| {
                let dst = DstAndPred { dst: Some(dst), pred: None };
                Setp {
                    compare: Compare::Eq,
                    ftz: Default::default(),
                    ty: Type::U32,
                    dst,
                    a: lane.src(),
                    b: Src::Imm(0),
                }
                .into()
            });
            let arrive = MbarrierArrive { order, scope, space, ty, state: Sink, address, count: None };
            self.builder.guarded(Some(when(leader)), arrive);
        }
        self.advance_state(slot.ring, side, site)?;
        Ok(Value::Unit)
    }

    /// The next stage; the phase turns when the ring wraps.
    fn advance_state(&mut self, ring: usize, side: usize, site: Site<'_>) -> Result<()> {
        let stages = self.rings[ring].stages;
        let (stage_id, stage) = self.state(ring, side, "stage");
        let (phase_id, phase) = self.state(ring, side, "phase");
        let next = self.binary(&BinOp::Add(Default::default()), stage, Value::u32(1), site)?;
        let wraps = self.binary(&BinOp::Eq(Default::default()), next.clone(), Value::u32(stages), site)?;
        let (stage, turned) = match &wraps {
            Value::Const(_) => {
                let wrapped = matches!(wraps, Value::Const(crate::consteval::Const::Bool(true)));
                (if wrapped { Value::u32(0) } else { next }, Value::u32(wrapped.into()))
            }
            _ => (self.select(wraps.clone(), Value::u32(0), next, site)?, self.cast(wraps, Elem::U32, site)?),
        };
        let phase = self.binary(&BinOp::BitXor(Default::default()), phase, turned, site)?;
        let scopes = &mut self.frames[0].scopes;
        scopes.get_mut(stage_id).value = stage;
        scopes.get_mut(phase_id).value = phase;
        Ok(())
    }

    /// Runs `body` in one thread of the role, or of the CTA's first warp, if `#[elect_one]` asks for it.
    pub(super) fn with_election(
        &mut self,
        attrs: &[syn::Attribute],
        body: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let Some(attr) = attrs.iter().find(|a| a.path().is_ident("elect_one")) else { return body(self) };
        let site = Site::Tokens(attr);
        if self.roles.is_none() && self.control() == Uniform::Cta {
            self.publish_barriers(site)?;
        }
        if self.elected || self.control() > Uniform::Warp {
            return Err(Diagnostic::new(350, site, "`#[elect_one]` where lanes may already differ"));
        }
        let first = match self.roles.as_deref() {
            None => 0,
            Some([role]) => self.resolved.roles[*role].first_warp,
            Some(_) => return Err(Diagnostic::new(350, site, "`#[elect_one]` in a block of several roles")),
        };
        let warps = match self.roles.as_deref() {
            Some([role]) => self.resolved.roles[*role].warps,
            _ => self.resolved.block / 32,
        };
        let elect = |this: &mut Self| {
            let reg = this.builder.fresh(Class::Pred);
            this.builder.inst(Elect { dst: DstAndPred { dst: None, pred: Some(reg) }, members: Src::Imm(-1) });
            let elected = Scalar::new(Elem::Bool, reg, Uniform::Thread);
            this.elected = true;
            let result = this.branch(elected, site, body, |_| Ok(Value::Unit));
            this.builder.mark_branch(Branch::Elected);
            this.elected = false;
            result
        };
        if warps == 1 {
            return elect(self);
        }
        let warp = Value::Scalar(self.warp());
        let condition = self.binary(&BinOp::Eq(Default::default()), warp, Value::u32(first), site)?;
        let condition = self.scalar(&condition, Some(Elem::Bool), site)?;
        let result = self.branch(condition, site, elect, |_| Ok(Value::Unit));
        self.builder.mark_branch(Branch::Elected);
        result
    }

    /// Keeps a place of the source for the checks.
    pub(super) fn note_span(&mut self, site: Site<'_>) -> usize {
        self.spans.push(site.start());
        self.spans.len() - 1
    }

    /// The value as a text over launch parameters: equal texts are equal values. Values that are no pure function of them
    /// have a text of their own.
    pub(super) fn text_of(&self, value: &Value) -> String {
        match value {
            Value::Scalar(s) => self.register_text(s.reg, 0),
            other => other.as_int().map_or_else(|| other.describe(), |v| v.to_string()),
        }
    }

    fn register_text(&self, reg: kda_ptx::Reg, depth: u32) -> String {
        let Some(inst) = self.builder.definition(reg).filter(|_| depth < 32) else {
            return format!("{}{}", reg.class.prefix(), reg.index);
        };
        let mut text = String::new();
        inst.print(&mut text);
        // Operands by their own texts; the destination and its register number do not matter.
        let mut sources = Vec::new();
        inst.registers(&mut |reg, role| {
            if role == kda_ptx::Role::Read {
                sources.push(reg);
            }
        });
        let (mnemonic, operands) = text.split_once(' ').unwrap_or((&text, ""));
        let mut operands = operands.split_once(", ").map_or("", |(_, rest)| rest).to_string();
        sources.sort_by_key(|reg| std::cmp::Reverse(reg.index));
        for source in sources {
            let name = format!("{}{}", source.class.prefix(), source.index);
            operands = operands.replace(&name, &format!("({})", self.register_text(source, depth + 1)));
        }
        format!("{mnemonic} {operands}")
    }

    /// Every stage that was taken since `from` has been given back.
    pub(super) fn check_holdings(&self, from: usize) -> Result<()> {
        for holding in &self.holdings[from..] {
            if let (false, Some(taken)) = (holding.done, holding.taken) {
                return Err(Diagnostic::new(654, taken, "this stage is neither committed nor released")
                    .help("the producing side ends with `slot.commit();`, the consuming side with `slot.release();`"));
            }
        }
        Ok(())
    }
}

fn state_name(ring: usize, side: usize, part: &str) -> String {
    format!("{part} of side {side} of ring {ring}")
}

/// Writes the numbers of arrivals into the initialisations.
pub(super) fn fill_counts(region: &mut crate::kir::Region, rings: &[Ring]) {
    for node in region {
        match node {
            Node::Sync {
                sync: Sync::MbarrierInit { ring, role, inst: kda_ptx::Inst::MbarrierInit(init), .. }, ..
            } => {
                let side = if *role == MbarrierRole::Full { 0 } else { 1 };
                init.count = Src::Imm(rings[*ring].counts[side].unwrap_or(1).into());
            }
            Node::If { then, other, .. } => {
                fill_counts(then, rings);
                fill_counts(other, rings);
            }
            Node::Loop { head, body, .. } => {
                fill_counts(head, rings);
                fill_counts(body, rings);
            }
            _ => {}
        }
    }
}
