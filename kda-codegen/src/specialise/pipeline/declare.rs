//! The declaration of a ring: its sides, buffers and mbarriers.

use super::Ring;
use super::state::state_name;
use crate::compiled::SharedBuffer;
use crate::diag::{Diagnostic, Result};
use crate::kir::{MbarrierRole, Node, Sync, Uniform, when};
use crate::specialise::Specialiser;
use crate::specialise::site::Site;
use crate::specialise::value::Value;
use kda_core::Elem;
use kda_ptx::Class;
use kda_ptx::modifier::*;
use kda_ptx::operand::{DstAndPred, Src};
use kda_ptx::table::*;

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
        let (mut buffers, mut stages) = (Vec::new(), None);
        for field in &expr.fields {
            let syn::Member::Named(member) = &field.member else { return Err(form("a buffer has a name")) };
            self.naming = Some(format!("{name}.{member}"));
            self.staging = None;
            let value = self.expr(&field.expr)?;
            let Value::Tile(view) = value else {
                return Err(Diagnostic::new(
                    652,
                    Site::Expr(&field.expr),
                    "a buffer of a pipeline is a swizzled tile with stages",
                ));
            };
            let depth = self.staging.take().unwrap_or(1);
            if *stages.get_or_insert(depth) != depth {
                return Err(Diagnostic::new(
                    652,
                    Site::Expr(&field.expr),
                    "the buffers of a pipeline have different numbers of stages",
                ));
            }
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
        for side in 0..2 {
            for part in ["stage", "phase"] {
                self.frame().scopes.declare(state_name(index, side, part), Value::u32(0), true);
            }
        }
        Ok(Value::Ring(index))
    }

    /// Initialises the mbarriers in one thread; the counts are filled in when the roles have been compiled.
    pub(super) fn initialise(&mut self, ring: usize, site: Site<'_>) {
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
    pub(in crate::specialise) fn publish_barriers(&mut self, site: Site<'_>) -> Result<()> {
        let Some(first) = self.fresh_barriers.take() else { return Ok(()) };
        if self.control() > Uniform::Cta || self.roles.is_some() {
            return Err(Diagnostic::new(652, site, "a pipeline is first used in a branch that not all threads take"));
        }
        self.builder.guarded(Some(first), FenceMbarrierInit {});
        self.builder.sync(Sync::Cta);
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
