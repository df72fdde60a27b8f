//! The inner loop.

use super::warp::{Flow, Group, Step, Wait};
use super::{Machine, Outcome};
use crate::alu::lanes::Registers;
use crate::program::op::{GUARD_NEGATED, Kind, Logic, NO_GUARD, NONE};
use crate::report::Code;

impl Machine<'_> {
    /// Runs a warp for some instructions, or until it has to wait. Returns the number of instructions.
    pub(super) fn run_warp(&mut self, w: usize, budget: u32) -> Outcome<u32> {
        if self.program.watches {
            return self.run_warp_watched(w, budget);
        }
        #[cfg(target_arch = "x86_64")]
        if self.program.vector {
            #[target_feature(enable = "avx2,fma")]
            fn vector(machine: &mut Machine<'_>, w: usize, budget: u32) -> Outcome<u32> {
                machine.run_warp_body::<false>(w, budget)
            }
            // SAFETY: `vector` is set only where `has_vector` found AVX2 and FMA.
            return unsafe { vector(self, w, budget) };
        }
        self.run_warp_body::<false>(w, budget)
    }

    /// The same for kernels whose registers are watched.
    #[inline(never)]
    fn run_warp_watched(&mut self, w: usize, budget: u32) -> Outcome<u32> {
        #[cfg(target_arch = "x86_64")]
        if self.program.vector {
            #[target_feature(enable = "avx2,fma")]
            fn vector(machine: &mut Machine<'_>, w: usize, budget: u32) -> Outcome<u32> {
                machine.run_warp_body::<true>(w, budget)
            }
            // SAFETY: `vector` is set only where `has_vector` found AVX2 and FMA.
            return unsafe { vector(self, w, budget) };
        }
        self.run_warp_body::<true>(w, budget)
    }

    #[inline(always)]
    fn run_warp_body<const WATCH: bool>(&mut self, w: usize, budget: u32) -> Outcome<u32> {
        let mut steps = 0;
        let program = self.program;
        let ops = program.ops.as_slice();
        while steps < budget {
            let Some(at) = self.warps[w].choose() else { break };
            let Group { mut pc, mask: active, .. } = self.warps[w].groups[at];
            let alone = self.warps[w].groups.len() == 1;
            let limit = match alone {
                true => u32::MAX,
                false => self.warps[w].groups.iter().map(|g| g.pc).filter(|p| *p > pc).min().unwrap_or(u32::MAX),
            };
            let began = steps;
            let mut stopped = false;
            while steps < budget {
                let op = &ops[pc as usize];
                steps += 1;
                let mut act = active;
                if op.guard != NO_GUARD {
                    act = self.guard(w, op.guard, active, pc)?;
                    if act == 0 {
                        pc += 1;
                        if pc >= limit {
                            break;
                        }
                        continue;
                    }
                }
                if WATCH && !matches!(op.kind, Kind::Product { .. } | Kind::TensorAccess { .. }) {
                    self.watch_registers(w, pc, act)?;
                }
                let flow = match op.kind {
                    Kind::Alu { f, ref args } => {
                        f(&mut self.warps[w].registers, args, act);
                        Flow::Next
                    }
                    Kind::Bra { target, uniform } => {
                        if target <= pc && !(alone && self.warps[w].loops.is_empty()) {
                            self.warps[w].loops.branch_back(pc, target, act);
                        }
                        if act == active {
                            pc = target;
                            if alone {
                                continue;
                            }
                            break;
                        }
                        if uniform && self.warps[w].loops.in_step(pc, act, active & !act) {
                            return Err(self.uniform_diverges(w, pc, act, active));
                        }
                        let group = &mut self.warps[w].groups[at];
                        (group.pc, group.mask) = (target, act);
                        let rest = Group::ready(pc + 1, active & !act);
                        self.warps[w].groups.push(rest);
                        stopped = true;
                        break;
                    }
                    Kind::Load { address, elements, list, order, scope, constant } => {
                        if constant {
                            self.check_constant(w, pc, act, address, elements)?;
                        }
                        self.load(w, pc, act, address, elements, list, order, scope)?
                    }
                    Kind::Store { address, elements, list, order, scope } => {
                        self.store(w, pc, act, address, elements, list, order, scope)?
                    }
                    Kind::Permute { permutation, d, pred, a, members } => {
                        self.permute(w, pc, act, permutation, [d, pred, a, members])?
                    }
                    Kind::Compare { f, args, wide, combine, pred, negated } => {
                        let registers = &mut self.warps[w].registers;
                        let value = f(registers, &args);
                        compare(registers, value, args.d, args.c, [args.a, args.b], wide, combine, pred, negated, act);
                        Flow::Next
                    }
                    Kind::Select32 { d, a, b, pred, negated } => {
                        select32(&mut self.warps[w].registers, d, a, b, pred, negated, act);
                        Flow::Next
                    }
                    _ => self.other(w, pc, act, active)?,
                };
                match flow {
                    Flow::Next => {
                        pc += 1;
                        if pc >= limit {
                            break;
                        }
                    }
                    Flow::Yield => {
                        self.end_group(w, at, pc + 1, active, Wait::Ready);
                        self.warps[w].groups[at].turns += 16;
                        return Ok(steps);
                    }
                    Flow::Block(wait) => {
                        self.block_group(w, at, pc, act, active, wait);
                        stopped = true;
                        break;
                    }
                    Flow::Exited => {
                        self.exit_lanes(w, at, pc, act, active)?;
                        stopped = true;
                        break;
                    }
                }
            }
            if !stopped {
                self.end_group(w, at, pc, active, Wait::Ready);
                if steps >= budget && began == 0 && !alone {
                    self.warps[w].groups[at].turns += 1;
                }
            }
        }
        if self.warps[w].live != 0 && !self.warps[w].ready() {
            self.check_divergence(w)?;
        }
        Ok(steps)
    }

    /// Lanes whose guard holds.
    #[inline(always)]
    fn guard(&mut self, w: usize, guard: u16, active: u32, pc: u32) -> Outcome<u32> {
        let registers = &self.warps[w].registers;
        let index = (guard & !GUARD_NEGATED) as usize;
        let undefined = registers.undef_pred[index] & active;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "decides a branch or guard"));
        }
        let value = registers.pred[index];
        Ok(active & if guard & GUARD_NEGATED != 0 { !value } else { value })
    }

    fn end_group(&mut self, w: usize, at: usize, pc: u32, mask: u32, wait: Wait) {
        let group = &mut self.warps[w].groups[at];
        (group.pc, group.mask, group.wait) = (pc, mask, wait);
    }

    /// Lanes `act` wait at `pc`; the rest of the group goes on.
    fn block_group(&mut self, w: usize, at: usize, pc: u32, act: u32, active: u32, wait: Wait) {
        self.end_group(w, at, pc, act, wait);
        if active != act {
            let rest = Group::ready(pc + 1, active & !act);
            self.warps[w].groups.push(rest);
        }
    }

    fn exit_lanes(&mut self, w: usize, at: usize, pc: u32, act: u32, active: u32) -> Outcome<()> {
        self.check_exit(w, pc, act)?;
        self.check_product_exit(w, pc)?;
        if act == self.warps[w].live {
            self.check_warp_exit(w, pc)?;
        }
        let warp = &mut self.warps[w];
        warp.live &= !act;
        if active == act {
            warp.groups.swap_remove(at);
        } else {
            self.end_group(w, at, pc + 1, active & !act, Wait::Ready);
        }
        self.progress += 1;
        self.after_exit(w)
    }

    /// The last lanes of a warp leave; with the last warp the CTA ends.
    fn check_warp_exit(&mut self, w: usize, pc: u32) -> Outcome<()> {
        self.check_registers_exit(w, pc)?;
        let first = self.warps[w].cta * self.warps_per_cta;
        if (first..first + self.warps_per_cta).all(|other| other == w || self.warps[other].live == 0) {
            self.check_tensor_exit(w, pc)?;
            self.check_cta_exit(w, pc)?;
        }
        Ok(())
    }

    /// Every operation that is not in the inner loop.
    fn other(&mut self, w: usize, pc: u32, act: u32, active: u32) -> Step {
        match self.program.ops[pc as usize].kind {
            Kind::Alu { .. }
            | Kind::Bra { .. }
            | Kind::Load { .. }
            | Kind::Store { .. }
            | Kind::Permute { .. }
            | Kind::Compare { .. }
            | Kind::Select32 { .. }
            | Kind::Nop => Ok(Flow::Next),
            Kind::PredLogic { op, d, a, b } => {
                let registers = &mut self.warps[w].registers;
                let value = logic(op, registers.pred[a as usize], registers.pred[b as usize]);
                let undefined = registers.undef_pred[a as usize] | registers.undef_pred[b as usize];
                set_pred(registers, d, value, undefined, act);
                Ok(Flow::Next)
            }
            Kind::Select64 { d, a, b, pred, negated } => {
                let r = &mut self.warps[w].registers;
                let choice = r.pred[pred as usize] ^ if negated { u32::MAX } else { 0 };
                let (va, vb) = (r.b64[a as usize], r.b64[b as usize]);
                let out = &mut r.b64[d as usize];
                for lane in 0..32 {
                    let value = if choice >> lane & 1 != 0 { va[lane] } else { vb[lane] };
                    out[lane] = if act >> lane & 1 != 0 { value } else { out[lane] };
                }
                let undefined = selected(r.undef64[a as usize], r.undef64[b as usize], choice);
                let undefined = undefined | r.undef_pred[pred as usize];
                let u = &mut r.undef64[d as usize];
                *u = (*u & !act) | (undefined & act);
                Ok(Flow::Next)
            }
            Kind::Clock { d } => {
                let now = self.stats.warp_instructions.wrapping_mul(2);
                let registers = &mut self.warps[w].registers;
                for lane in 0..32 {
                    if act >> lane & 1 != 0 {
                        registers.b64[d as usize][lane] = now;
                    }
                }
                registers.undef64[d as usize] &= !act;
                Ok(Flow::Next)
            }
            Kind::Exit => Ok(Flow::Exited),
            Kind::Trap => Err(self.report_at(
                w,
                pc,
                act,
                Code::Trap,
                "the kernel executed `trap`".to_string(),
                "trap",
                "find the condition that leads here; a bounded wait traps when its barrier never completes",
            )),
            Kind::Yield => Ok(Flow::Yield),
            Kind::LoadParam { elements, list, offset } => {
                self.load_param(w, act, elements, list, offset);
                Ok(Flow::Next)
            }
            Kind::Atomic { .. } => self.atomic(w, pc, act),
            Kind::Shuffle { .. }
            | Kind::Vote { .. }
            | Kind::Redux { .. }
            | Kind::Elect { .. }
            | Kind::ActiveMask { .. }
            | Kind::BarWarp { .. } => self.collective(w, pc, act, active),
            Kind::BarSync { .. } | Kind::BarArrive { .. } => self.named_barrier(w, pc, act),
            Kind::ClusterArrive { .. } | Kind::ClusterWait => self.cluster_barrier(w, pc, act),
            Kind::Fence { scope } => {
                self.fence(w, act, scope);
                Ok(Flow::Next)
            }
            Kind::ProxyFence { shared, global } => {
                self.proxy_fence(w, act, shared, global);
                Ok(Flow::Next)
            }
            Kind::InitFence => {
                self.init_fence(w, act);
                Ok(Flow::Next)
            }
            Kind::Mbarrier { .. } => self.mbarrier(w, pc, act),
            Kind::BulkStore { .. } | Kind::BulkReduce { .. } => self.bulk_store(w, pc, act),
            Kind::TensorCopy { .. } => self.tensor_copy(w, pc, act),
            Kind::PrefetchMap { .. } => self.prefetch_map(w, pc, act),
            Kind::ProductFence | Kind::Product { .. } | Kind::ProductCommit | Kind::ProductWait { .. } => {
                self.product(w, pc, act)
            }
            Kind::ThreadCopy { .. } | Kind::ThreadCommit | Kind::ThreadWait { .. } | Kind::ThreadArrive { .. } => {
                self.thread_copies(w, pc, act)
            }
            Kind::LoadMatrix { .. } | Kind::StoreMatrix { .. } | Kind::MoveMatrix { .. } | Kind::WarpProduct { .. } => {
                self.matrices(w, pc, act)
            }
            Kind::TensorAlloc { .. }
            | Kind::TensorFree { .. }
            | Kind::TensorRelinquish
            | Kind::TensorAccess { .. }
            | Kind::TensorWait { .. }
            | Kind::TensorFence { .. } => self.tensor_memory(w, pc, act),
            Kind::TensorProduct { .. } | Kind::TensorCommit { .. } => self.tensor_product(w, pc, act),
            Kind::SetRegisters { .. } => self.set_registers(w, pc, act),
            Kind::BulkLoad { .. } => self.bulk_load(w, pc, act),
            Kind::BulkCommit => {
                self.bulk_commit(w, act);
                Ok(Flow::Next)
            }
            Kind::BulkWait { pending, read } => Ok(self.bulk_wait(w, act, pending, read)),
            Kind::LaunchDependents => {
                self.stats.launch_dependents = true;
                Ok(Flow::Next)
            }
            Kind::DependencyWait => {
                self.stats.dependency_wait = true;
                self.warps[w].dependency_wait = true;
                Ok(Flow::Next)
            }
        }
    }
}

/// The predicates of a `setp`, from the outcome of its comparison.
#[inline(always)]
fn compare(
    registers: &mut Registers,
    mut value: u32,
    d: u16,
    other: u16,
    sources: [u16; 2],
    wide: bool,
    combine: Logic,
    pred: u16,
    negated: bool,
    act: u32,
) {
    let mut complement = !value;
    let file = if wide { &registers.undef64 } else { &registers.undef32 };
    let mut undefined = file[sources[0] as usize] | file[sources[1] as usize];
    if combine != Logic::First {
        let third = registers.pred[pred as usize] ^ if negated { u32::MAX } else { 0 };
        undefined |= registers.undef_pred[pred as usize];
        value = logic(combine, value, third);
        complement = logic(combine, complement, third);
    }
    for (d, value) in [(d, value), (other, complement)] {
        if d != NONE {
            set_pred(registers, d, value, undefined, act);
        }
    }
}

#[inline(always)]
fn select32(r: &mut Registers, d: u16, a: u16, b: u16, pred: u16, negated: bool, act: u32) {
    let choice = r.pred[pred as usize] ^ if negated { u32::MAX } else { 0 };
    let (va, vb) = (r.b32[a as usize], r.b32[b as usize]);
    let out = &mut r.b32[d as usize];
    for lane in 0..32 {
        let value = if choice >> lane & 1 != 0 { va[lane] } else { vb[lane] };
        out[lane] = if act >> lane & 1 != 0 { value } else { out[lane] };
    }
    let undefined = selected(r.undef32[a as usize], r.undef32[b as usize], choice);
    let undefined = undefined | r.undef_pred[pred as usize];
    let u = &mut r.undef32[d as usize];
    *u = (*u & !act) | (undefined & act);
}

#[inline(always)]
fn selected(a: u32, b: u32, choice: u32) -> u32 {
    (a & choice) | (b & !choice)
}

#[inline(always)]
fn logic(op: Logic, a: u32, b: u32) -> u32 {
    match op {
        Logic::First => a,
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::Not => !a,
    }
}

#[inline(always)]
pub(super) fn set_pred(registers: &mut Registers, d: u16, value: u32, undefined: u32, act: u32) {
    let (p, u) = (&mut registers.pred[d as usize], &mut registers.undef_pred[d as usize]);
    *p = (*p & !act) | (value & act);
    *u = (*u & !act) | (undefined & act);
}
