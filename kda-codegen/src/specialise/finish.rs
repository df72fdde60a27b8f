//! From a specialised body to a compiled variant: counts of barriers, the protocol check, fences, landing of loads, lowering.

use super::{Specialiser, cluster, lists, pipeline};
use crate::compiled::{Barrier, Compiled};
use crate::consteval::Const;
use crate::diag::Result;
use crate::kir::Body;

impl Specialiser<'_> {
    /// The compiled variant.
    pub(super) fn finish(mut self) -> Result<Compiled> {
        self.check_conditions()?;
        let builder = std::mem::take(&mut self.builder);
        let registers = builder.registers();
        let mut region = builder.finish();
        self.close_cluster(&mut region);
        lists::settle(&mut region);
        pipeline::fill_counts(&mut region, &self.rings);
        let protocol = self.check_protocol(&region)?;
        let generic: Vec<bool> = self.params.iter().map(|state| state.generic).collect();
        let products = self.buffers.iter().enumerate().filter(|(_, b)| b.multiplied).map(|(index, _)| index).collect();
        let handed_over = pipeline::hand_over(&mut region, &self.rings, &products);
        crate::kir::fences::derive(&mut region, &generic, products, &handed_over);
        if self.cluster.writes {
            cluster::widen_fences(&mut region, !self.cluster.multicast.is_empty());
        }
        let filled: Vec<bool> =
            self.rings.iter().map(|ring| ring.filled.iter().any(|buffers| !buffers.is_empty())).collect();
        crate::kir::landing::derive(&mut region, &filled, registers);
        let body = Body { files: self.files, region };
        let mut params = self.resolved.params.clone();
        for (param, state) in params.iter_mut().zip(&self.params) {
            if let crate::compiled::ParamKind::Tensor { align, .. } = &mut param.kind {
                *align = (*align).max(state.align);
            }
        }
        let span = self.kernel.name.span();
        let mut compiled = Compiled {
            entry: self.variant.entry.clone(),
            family: self.family.name.to_string(),
            kernel: self.kernel.name.to_string(),
            arch: self.variant.arch,
            isa: self.variant.arch.least_isa(),
            ptx: String::new(),
            block: self.resolved.block,
            cluster: self.resolved.cluster,
            grid: self.resolved.grid.clone(),
            min_blocks_per_sm: self.resolved.min_blocks_per_sm,
            shared_bytes: self.shared_end,
            shared: self.buffers.iter().filter(|b| b.used).map(|b| b.desc.clone()).collect(),
            roles: self.resolved.roles.clone(),
            barriers: self.barriers.iter().map(|(b, _)| b.clone()).collect(),
            protocol,
            params,
            param_bytes: self.resolved.param_bytes,
            consts: self.variant.bindings.iter().map(|(n, v)| (n.clone(), const_text(v))).collect(),
            requires: self.resolved.requires.clone(),
            pdl: self.dependent.is_some(),
            file: span.file(),
            line: span.start().line as u32,
        };
        crate::lower::lower(&mut compiled, &body, self.resolved.max_registers, span)?;
        Ok(compiled)
    }

    /// Checks rings and barriers over the whole kernel.
    fn check_protocol(&self, region: &crate::kir::Region) -> Result<crate::check::protocol::Verdict> {
        use crate::check::protocol::{BarrierModel, Model, RingModel, check};
        let ring = |(index, r): (usize, &pipeline::Ring)| RingModel {
            name: r.name.clone(),
            stages: r.stages.into(),
            sides: r.sides.clone(),
            shared: self.releasing(index) > 1,
        };
        let barrier = |(b, between): &(Barrier, Vec<usize>)| BarrierModel {
            name: b.name.clone(),
            id: b.id,
            between: between.clone(),
        };
        let model = Model {
            roles: self.resolved.roles.iter().map(|r| r.name.clone()).collect(),
            rings: self.rings.iter().enumerate().map(ring).collect(),
            barriers: self.barriers.iter().map(barrier).collect(),
            unseen: self.raw_barriers,
            spans: &self.spans,
        };
        let verdict = check(region, &model)?;
        let why = match (self.raw_barriers, self.cluster.conditional) {
            (true, _) => "it has mbarriers outside pipelines, which are not checked",
            (_, true) => "a cluster loads a tile together under a condition, which may differ between its CTAs",
            _ => return Ok(verdict),
        };
        Ok(crate::check::protocol::Verdict::NotProved { why: why.to_string() })
    }
}

/// A constant as written in source.
fn const_text(value: &Const) -> String {
    match value {
        Const::Int(value, _) => value.to_string(),
        Const::Float(value, _) => value.to_string(),
        Const::Bool(value) => value.to_string(),
        Const::Elem(elem) => elem.to_string(),
        Const::Array(items) | Const::Tuple(items) => items.iter().map(const_text).collect::<Vec<_>>().join(", "),
    }
}
