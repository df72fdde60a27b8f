//! KIR to PTX.
//!
//! Regions become labels and branches, steps of synchronisation become their instructions, places become `.loc` lines.
//! Nothing is reordered: source order is PTX order.

use crate::compiled::{Compiled, ParamKind};
use crate::diag::{Diagnostic, Result};
use crate::kir::{Body, Node, Place, Region, Sync, Uniform};
use kda_core::Elem;
use kda_ptx::modifier::{Aligned, Order, Type, Uniform as UniformBranch};
use kda_ptx::module::{Bounds, SharedDecl};
use kda_ptx::operand::{Label, PredSrc, Src};
use kda_ptx::table::*;
use kda_ptx::{Entry, Inst, Module, Param, Statement};
use proc_macro2::Span;

/// Symbol of the dynamic shared memory.
pub const SHARED: &str = "smem";

/// Writes the PTX of a variant into `compiled`, and the versions that it needs. An error stands at `name`, the kernel's.
pub fn lower(compiled: &mut Compiled, body: &Body, max_registers: Option<u32>, name: Span) -> Result<()> {
    let mut writer = Writer { out: Vec::new(), labels: 0, place: Place::default() };
    writer.region(&body.region);
    if !matches!(writer.out.last(), Some(Statement::Inst { guard: None, inst: Inst::Ret(_) })) {
        writer.inst(None, Ret {}.into());
    }
    let mut entry = Entry {
        name: compiled.entry.clone(),
        params: compiled.params.iter().map(param).collect(),
        bounds: Bounds {
            max_threads: Some(compiled.block),
            min_blocks_per_sm: Some(compiled.min_blocks_per_sm),
            max_registers,
            cluster: (compiled.cluster > 1).then_some(compiled.cluster),
            ..Bounds::default()
        },
        registers: [0; 5],
        body: writer.out,
    };
    entry.registers = entry.count_registers();
    let (offsets, bytes) = entry.param_offsets();
    for (param, offset) in compiled.params.iter_mut().zip(offsets) {
        param.offset = offset;
    }
    compiled.param_bytes = bytes;
    let files = body.files.iter().enumerate().map(|(i, f)| (i as u32 + 1, f.clone())).collect();
    let shared = (compiled.shared_bytes > 0).then(|| SharedDecl { name: SHARED.into(), align: 1024 });
    let mut module = Module { isa: compiled.isa, arch: compiled.arch, files, shared, entries: vec![entry] };
    let mut gate = module.gate();
    if compiled.cluster > 1 {
        gate = gate.and(kda_ptx::Gate::new(7, 8, kda_core::Arch::SM_90));
    }
    if !compiled.arch.has(gate.arch) {
        let message =
            format!("`{}` uses instructions of {}; it is compiled for {}", compiled.kernel, gate.arch, compiled.arch);
        return Err(Diagnostic::new(1050, name, message).help(format!("write `arch = {}`", gate.arch)));
    }
    compiled.isa = compiled.arch.least_isa().max(gate.isa);
    module.isa = compiled.isa;
    compiled.ptx = module.to_string();
    Ok(())
}

fn param(param: &crate::compiled::Param) -> Param {
    if let ParamKind::Tensor { map: Some(_), .. } = param.kind {
        let (bytes, align) = (kda_core::tensor_map::MAP_BYTES, kda_core::tensor_map::MAP_ALIGN);
        return Param { name: param.name.clone(), ty: Type::B8, align: Some(align), array: Some(bytes) };
    }
    let ty = match param.kind {
        ParamKind::Tensor { .. } | ParamKind::Stride { .. } => Type::U64,
        ParamKind::Dim | ParamKind::Present { .. } => Type::U32,
        ParamKind::Scalar(elem) => match elem {
            Elem::Bool | Elem::U8 => Type::U8,
            Elem::U16 | Elem::F16 | Elem::BF16 => Type::U16,
            Elem::U32 => Type::U32,
            Elem::I32 => Type::S32,
            Elem::F32 => Type::F32,
            Elem::U64 => Type::U64,
            Elem::I64 => Type::S64,
            Elem::F64 => Type::F64,
        },
    };
    Param { name: param.name.clone(), ty, align: None, array: None }
}

struct Writer {
    out: Vec<Statement>,
    labels: u32,
    place: Place,
}

impl Writer {
    fn label(&mut self, name: &str) -> String {
        self.labels += 1;
        format!("$L{}_{name}", self.labels)
    }

    fn at(&mut self, place: Place) {
        if place.file != 0 && (place.file, place.line) != (self.place.file, self.place.line) {
            self.out.push(Statement::Loc { file: place.file, line: place.line, column: place.column });
            self.place = place;
        }
    }

    fn inst(&mut self, guard: Option<PredSrc>, inst: Inst) {
        self.out.push(Statement::Inst { guard, inst });
    }

    fn branch(&mut self, guard: Option<PredSrc>, uniform: bool, target: &str) {
        self.inst(guard, Bra { uni: UniformBranch(uniform), target: Label(target.into()) }.into());
    }

    fn region(&mut self, region: &Region) {
        for node in region {
            self.node(node);
        }
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Inst { inst, guard, place } => {
                self.at(*place);
                self.inst(*guard, inst.clone());
            }
            Node::Comment(text) => self.out.push(Statement::Comment(text.clone())),
            Node::Return(place) => {
                self.at(*place);
                self.inst(None, Ret {}.into());
            }
            Node::Sync { sync, place } => {
                if !matches!(
                    sync,
                    Sync::SharedRead { .. }
                        | Sync::SharedWrite { .. }
                        | Sync::ProductRead { .. }
                        | Sync::BulkFill { .. }
                        | Sync::Take { .. }
                        | Sync::Give { .. }
                        | Sync::Restart { .. }
                ) {
                    self.at(*place);
                }
                self.sync(sync);
            }
            Node::If { condition, uniform, then, other, place, .. } => {
                self.at(*place);
                self.if_else(*condition, *uniform, then, other);
            }
            Node::Loop { head, condition, uniform, body, place, .. } => {
                let (start, end) = (self.label("loop"), self.label("done"));
                self.out.push(Statement::Label(start.clone()));
                self.at(*place);
                self.region(head);
                let uniform = *uniform <= Uniform::Warp;
                self.branch(Some(negate(*condition)), uniform, &end);
                self.region(body);
                self.branch(None, true, &start);
                self.out.push(Statement::Label(end));
            }
        }
    }

    fn if_else(&mut self, condition: PredSrc, uniform: Uniform, then: &Region, other: &Region) {
        let uniform = uniform <= Uniform::Warp;
        if then.is_empty() && other.is_empty() {
            return;
        }
        let end = self.label("end");
        if other.is_empty() {
            self.branch(Some(negate(condition)), uniform, &end);
            self.region(then);
        } else if then.is_empty() {
            self.branch(Some(condition), uniform, &end);
            self.region(other);
        } else {
            let side = self.label("else");
            self.branch(Some(negate(condition)), uniform, &side);
            self.region(then);
            if !matches!(then.last(), Some(Node::Return(_))) {
                self.branch(None, true, &end);
            }
            self.out.push(Statement::Label(side));
            self.region(other);
        }
        self.out.push(Statement::Label(end));
    }

    fn sync(&mut self, sync: &Sync) {
        let id = |id: u32| Src::Imm(id.into());
        match sync {
            Sync::Cta => self.inst(None, BarSync { barrier: Src::Imm(0), threads: None }.into()),
            Sync::Cluster { arrive, wait, .. } => {
                let aligned = Some(Aligned::Aligned);
                if *arrive {
                    self.inst(None, ClusterArrive { order: Some(Order::Release), aligned }.into());
                }
                if *wait {
                    self.inst(None, ClusterWait { order: Some(Order::Acquire), aligned }.into());
                }
            }
            Sync::NamedSync { id: barrier, threads, .. } => {
                self.inst(None, BarSync { barrier: id(*barrier), threads: Some(id(*threads)) }.into());
            }
            Sync::NamedArrive { id: barrier, threads, .. } => {
                self.inst(None, BarArrive { barrier: id(*barrier), threads: id(*threads) }.into());
            }
            Sync::Warp => self.inst(None, BarWarp { members: Src::Imm(-1) }.into()),
            Sync::MbarrierInit { inst, guard, .. } => self.inst(Some(*guard), inst.clone()),
            Sync::SharedRead { .. }
            | Sync::SharedWrite { .. }
            | Sync::ProductRead { .. }
            | Sync::BulkFill { .. }
            | Sync::Take { .. }
            | Sync::Give { .. }
            | Sync::Restart { .. }
            | Sync::MbarrierArrive => {}
            Sync::BulkStore { inst, guard, .. } => self.inst(*guard, inst.clone()),
        }
    }
}

fn negate(pred: PredSrc) -> PredSrc {
    PredSrc { negated: !pred.negated, ..pred }
}
