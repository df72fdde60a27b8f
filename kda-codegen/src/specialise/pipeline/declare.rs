//! The declaration of a ring: its sides, buffers and mbarriers.

use super::Ring;
use crate::compiled::SharedBuffer;
use crate::diag::{Diagnostic, Result};
use crate::kir::{MbarrierRole, Node, Sync, Uniform, when};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::{Arch, Elem};
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::*;
use syn::visit::Visit;

impl Specialiser<'_> {
    /// `Pipeline::<load, math> { a: smem…, b: smem… }`
    pub(in crate::specialise) fn pipeline(&mut self, expr: &syn::ExprStruct, site: Site<'_>) -> Result<Value> {
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
            sides.push(self.side_roles(arg)?);
        }
        if whole {
            // All threads of the CTA are both sides.
            sides = vec![Vec::new(), Vec::new()];
        } else if sides.len() < 2 {
            return Err(form("a pipeline has two sides"));
        }
        if !self.control.is_empty() || self.frames.len() > 1 || self.roles.is_some() {
            return Err(form("a pipeline is declared in the kernel, ahead of the roles and outside branches"));
        }
        let (mut buffers, mut stages) = (Vec::new(), None);
        for field in &expr.fields {
            let syn::Member::Named(member) = &field.member else { return Err(form("a buffer has a name")) };
            self.naming = Some(format!("{name}.{member}"));
            self.staging = None;
            let view = self.expr(&field.expr)?;
            let fresh = match &view {
                Value::Tile(_) | Value::Tmem(_) => true,
                Value::Shared(view) => view.runtime.is_none() && view.offset == 0,
                _ => false,
            };
            if !fresh {
                let message = "a buffer of a pipeline is declared in it";
                return Err(Diagnostic::new(652, Site::Expr(&field.expr), message)
                    .help("write `smem::<f32, Shape<128>, _, STAGES>()`, or a swizzle in place of `_`"));
            }
            let depth = self.staging.take().unwrap_or(1);
            if *stages.get_or_insert(depth) != depth {
                return Err(Diagnostic::new(
                    652,
                    Site::Expr(&field.expr),
                    "the buffers of a pipeline have different numbers of stages",
                ));
            }
            buffers.push((member.to_string(), view));
        }
        let Some(stages) = stages else { return Err(form("a pipeline has at least one buffer")) };
        self.add_ring(name, sides, stages, buffers, site).map(Value::Ring)
    }

    /// A ring with these sides and buffers; its mbarriers are initialised here.
    pub(in crate::specialise) fn add_ring(
        &mut self,
        name: String,
        sides: Vec<Vec<usize>>,
        stages: u32,
        buffers: Vec<(String, Value)>,
        site: Site<'_>,
    ) -> Result<usize> {
        let desc = SharedBuffer {
            name: format!("{name}.barriers"),
            offset: 0,
            bytes: 8 * stages * sides.len() as u32,
            align: 16,
            elem: Elem::U64,
            shape: vec![sides.len() as u32, stages],
        };
        let barriers = self.place_buffer(desc, site);
        self.buffers[barriers].used = true;
        let index = self.rings.len();
        let mut restarts = Restarts { ring: &name, found: false };
        restarts.visit_block(&self.kernel.body);
        let restarts = restarts.found;
        if restarts && stages > 32 {
            let message = "a pipeline that is restarted has at most 32 stages";
            return Err(Diagnostic::new(652, site, message));
        }
        self.rings.push(Ring {
            name: name.clone(),
            ways: vec![Default::default(); sides.len()],
            sides,
            stages,
            restarts,
            reused: restarts,
            buffers,
            barriers,
            filled: Default::default(),
            reads: Vec::new(),
            written: Default::default(),
            rewritten: Default::default(),
            copied: Default::default(),
            stored: Default::default(),
            storers: Default::default(),
        });
        self.initialise(index, site);
        self.allocate(index, site)?;
        self.declare_states(index);
        Ok(index)
    }

    /// The roles of a side: one, or a tuple of them.
    fn side_roles(&self, arg: &syn::GenericArgument) -> Result<Vec<usize>> {
        let types: Vec<&syn::Type> = match arg {
            syn::GenericArgument::Type(syn::Type::Tuple(tuple)) => tuple.elems.iter().collect(),
            syn::GenericArgument::Type(one) => vec![one],
            _ => Vec::new(),
        };
        let mut roles = Vec::new();
        for ty in &types {
            let name = match ty {
                syn::Type::Path(path) => path.path.get_ident(),
                _ => None,
            };
            match name.and_then(|name| self.resolved.roles.iter().position(|r| *name == r.name)) {
                Some(role) if roles.contains(&role) => {
                    return Err(Diagnostic::new(652, Site::Tokens(*ty), "the role is given twice"));
                }
                Some(role) => roles.push(role),
                None => return Err(Diagnostic::new(351, Site::Tokens(*ty), "a side of a pipeline is a role")),
            }
        }
        if roles.is_empty() {
            return Err(Diagnostic::new(351, Site::Tokens(arg), "a side of a pipeline is a role"));
        }
        Ok(roles)
    }

    /// Initialises the mbarriers in one thread; the counts are filled in when the roles have been compiled.
    pub(super) fn initialise(&mut self, ring: usize, site: Site<'_>) {
        self.place(site);
        let first = self.first_thread();
        let stages = self.rings[ring].stages;
        for side in 0..self.rings[ring].sides.len() {
            let role = self.barrier_of(ring, side);
            if role == MbarrierRole::Empty && self.filled_once.contains(&ring) {
                continue;
            }
            for stage in 0..stages {
                let address = self.barrier_address(ring, role, &Value::u32(stage));
                let inst = MbarrierInit { space: Some(Space::SharedCta), ty: Type::B64, address, count: Src::Imm(0) };
                self.builder.sync(Sync::MbarrierInit { ring, role, inst: inst.into(), guard: first });
            }
        }
        self.fresh_barriers = Some(first);
    }

    /// True in the first thread of the CTA.
    pub(in crate::specialise) fn first_thread(&mut self) -> kda_ptx::operand::PredSrc {
        let tid = self.special(kda_ptx::operand::Special::TidX, Uniform::Thread);
        when(self.builder.pure(Class::Pred, |dst| {
            let dst = DstAndPred { dst: Some(dst), pred: None };
            Setp { compare: Compare::Eq, ftz: Default::default(), ty: Type::U32, dst, a: tid.src(), b: Src::Imm(0) }
                .into()
        }))
    }

    /// Makes initialised mbarriers visible, if any are fresh: one fence and one barrier ahead of the roles.
    pub(in crate::specialise) fn publish_barriers(&mut self, site: Site<'_>) -> Result<()> {
        let Some(first) = self.fresh_barriers.take() else { return Ok(()) };
        if self.control() > Uniform::Cta || self.roles.is_some() {
            return Err(Diagnostic::new(652, site, "a pipeline is first used in a branch that not all threads take"));
        }
        // For the async proxy, which older targets have not.
        if self.variant.arch.has(Arch::SM_90) {
            self.builder.guarded(Some(first), FenceMbarrierInit {});
        }
        self.meet_publishing(site)?;
        self.read_addresses();
        Ok(())
    }
}

/// Writes the numbers of arrivals into the initialisations.
pub(in crate::specialise) fn fill_counts(region: &mut crate::kir::Region, rings: &[Ring]) {
    for node in region {
        match node {
            Node::Sync {
                sync: Sync::MbarrierInit { ring, role, inst: kda_ptx::Inst::MbarrierInit(init), .. }, ..
            } => {
                let ring = &rings[*ring];
                let side = match role {
                    MbarrierRole::Full => 0,
                    MbarrierRole::Middle(side) => *side,
                    MbarrierRole::Empty => ring.last(),
                };
                let count: u32 = ring.ways[side].values().filter_map(|way| way.arrivals).sum();
                init.count = Src::Imm(count.max(1).into());
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

/// Looks for `ring.restart()`.
struct Restarts<'n> {
    ring: &'n str,
    found: bool,
}

impl<'ast> Visit<'ast> for Restarts<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let of = |path: &syn::ExprPath| path.path.get_ident().is_some_and(|name| name == self.ring);
        self.found |= call.method == "restart" && matches!(call.receiver.as_ref(), syn::Expr::Path(path) if of(path));
        syn::visit::visit_expr_method_call(self, call);
    }
}
