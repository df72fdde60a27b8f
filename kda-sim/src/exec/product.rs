//! Products of a warpgroup: the four warps issue them together, the scheduler executes them in order, and their registers
//! are locked until waited for.
//!
//! A product may rely on what all four warps know: each thread must have seen the operands itself.

use super::asynchronous::{Accessor, Async};
use super::tile::{Descriptor, value};
use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::alu::matrix::{multiply, rounded};
use crate::program::details::{AgentKind, Left, MatrixType, Product as Detail};
use crate::program::op::Kind;
use crate::report::{Code, Report};
use crate::shadow::clock::{Clocks, Entry};
use std::collections::VecDeque;
use std::rc::Rc;

/// A product that all four warps have issued.
#[derive(Debug)]
pub struct Product {
    pub cta: usize,
    pub warpgroup: usize,
    /// Number among the products of the warpgroup.
    number: u32,
    issue: Issue,
}

/// What the warps of a warpgroup have issued so far.
#[derive(Debug)]
struct Issue {
    pc: u32,
    a: u64,
    b: u64,
    accumulate: bool,
    warps: u32,
    clocks: Clocks,
}

/// State of a warpgroup.
#[derive(Debug, Default)]
pub struct Warpgroup {
    /// Products that some warps have issued.
    open: VecDeque<Issue>,
    /// Number of the first of them.
    first: u32,
    /// Number of products done.
    done: u32,
    /// `setmaxnreg` instructions executed.
    pub reallocations: Vec<u32>,
}

/// State of a warp as a part of its warpgroup.
#[derive(Debug, Default)]
pub struct Products {
    /// Products that the warp has issued.
    issued: u32,
    /// The number issued at each commit that has not been waited for.
    groups: VecDeque<u32>,
    /// Products whose registers are locked: number and detail.
    locked: VecDeque<(u32, u32)>,
}

impl Machine<'_> {
    pub(super) fn warpgroup_of(&self, w: usize) -> usize {
        self.warps[w].cta * self.warps_per_cta.div_ceil(4) + self.warps[w].index as usize / 4
    }

    fn first_warp(&self, w: usize) -> usize {
        w - self.warps[w].index as usize % 4
    }

    fn product_error(&self, w: usize, pc: u32, message: String, help: &str) -> Box<Report> {
        self.report_at(w, pc, u32::MAX, Code::Product, message, "product of a warpgroup", help)
    }

    /// A warp comes to an instruction that its warpgroup executes together: all its lanes must be here.
    pub(super) fn whole_warp(&self, w: usize, pc: u32, act: u32) -> Outcome<Option<Flow>> {
        let live = self.warps[w].live;
        if live != u32::MAX {
            let message = format!("lanes {:#010x} have left a warp that executes an aligned instruction", !live);
            let help = "all 32 lanes must execute it";
            return Err(self.report_at(w, pc, act, Code::Divergent, message, "aligned instruction", help));
        }
        Ok((act != live).then_some(Flow::Block(Wait::Lanes { needed: live, live, aligned: true })))
    }

    pub(super) fn product(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Some(flow) = self.whole_warp(w, pc, act)? {
            return Ok(flow);
        }
        match self.program.ops[pc as usize].kind {
            Kind::ProductFence => {
                self.warps[w].watch.fence();
                Ok(Flow::Next)
            }
            Kind::Product { detail } => self.issue_product(w, pc, detail),
            Kind::ProductCommit => {
                let products = &mut self.warps[w].products;
                products.groups.push_back(products.issued);
                Ok(Flow::Next)
            }
            Kind::ProductWait { pending } => Ok(self.wait_products(w, pending as usize)),
            _ => Ok(Flow::Next),
        }
    }

    /// The value of a 64-bit register that must be the same in all lanes.
    fn warp_value(&self, w: usize, pc: u32, register: u16) -> Outcome<u64> {
        let registers = &self.warps[w].registers;
        let values = &registers.b64[register as usize];
        if registers.undef64[register as usize] != 0 && self.options.checks.undefined {
            let lanes = registers.undef64[register as usize];
            return Err(self.undefined(w, pc, lanes, "is the descriptor of a product"));
        }
        if values.iter().any(|v| *v != values[0]) {
            let message = "the lanes give different descriptors".to_string();
            return Err(self.product_error(
                w,
                pc,
                message,
                "compute it from values that are the same in the warpgroup",
            ));
        }
        Ok(values[0])
    }

    /// A predicate that must be the same in all lanes.
    pub(super) fn warp_predicate(&self, w: usize, pc: u32, (pred, negated): (u16, bool)) -> Outcome<bool> {
        let registers = &self.warps[w].registers;
        if registers.undef_pred[pred as usize] != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, registers.undef_pred[pred as usize], "scales a product"));
        }
        match registers.pred[pred as usize] {
            0 => Ok(negated),
            u32::MAX => Ok(!negated),
            _ => {
                let message = "the lanes give different predicates to a product".to_string();
                Err(self.product_error(w, pc, message, "compute it from values that are the same in the warpgroup"))
            }
        }
    }

    fn issue_product(&mut self, w: usize, pc: u32, number: u32) -> Step {
        let program = self.program;
        let detail = &program.details.products[number as usize];
        let first = self.first_warp(w);
        if self.warps[w].index as usize / 4 * 4 + 4 > self.warps_per_cta {
            let message = "a product in a warpgroup of fewer than four warps".to_string();
            return Err(self.product_error(w, pc, message, "give the CTA a multiple of 128 threads"));
        }
        let a = match &detail.a {
            Left::Descriptor(register) => self.warp_value(w, pc, *register)?,
            Left::Registers(list) => {
                let lanes = list.iter().fold(0, |u, r| u | self.warps[w].registers.undef32[*r as usize]);
                if lanes != 0 && self.options.checks.undefined {
                    return Err(self.undefined(w, pc, lanes, "is an operand of a product"));
                }
                0
            }
        };
        let b = self.warp_value(w, pc, detail.b)?;
        let accumulate = self.warp_predicate(w, pc, detail.scale_d)?;
        self.check_product_registers(w, pc, detail, accumulate)?;
        let group = self.warpgroup_of(w);
        let mut clocks = (*self.warps[w].knowledge[0].clocks).clone();
        for other in &self.warps[w].knowledge[1..] {
            clocks.meet(&other.clocks);
        }
        let (agent, clock) = (self.warps[w].agent, self.warps[w].clock);
        clocks.get_mut(agent).generic.join(Entry::all(clock));
        self.warps[w].join_own(&mut clocks, u32::MAX);
        let position = self.warps[w].index % 4;
        let products = &mut self.warps[w].products;
        products.issued += 1;
        products.locked.push_back((products.issued, number));
        let index = (products.issued - 1 - self.warpgroups[group].first) as usize;
        self.lock_product(w, pc, detail);
        let warpgroup = &mut self.warpgroups[group];
        match warpgroup.open.get_mut(index) {
            None => warpgroup.open.push_back(Issue { pc, a, b, accumulate, warps: 1 << position, clocks }),
            Some(issue) if (issue.pc, issue.a, issue.b, issue.accumulate) == (pc, a, b, accumulate) => {
                issue.warps |= 1 << position;
                issue.clocks.meet(&clocks);
            }
            Some(issue) => {
                let (other_pc, other) = (issue.pc, first + issue.warps.trailing_zeros() as usize);
                let message = if other_pc == pc {
                    "the warps of a warpgroup give different operands to one product".to_string()
                } else {
                    "the warps of a warpgroup execute different products".to_string()
                };
                let help = "all four warps execute the same products with the same descriptors";
                let mut report = self.report_at(w, pc, u32::MAX, Code::Divergent, message, "product", help);
                report.others.push(self.place_of(other_pc, other, "product of another warp"));
                return Err(report);
            }
        }
        while self.warpgroups[group].open.front().is_some_and(|i| i.warps == 15) {
            let warpgroup = &mut self.warpgroups[group];
            let Some(issue) = warpgroup.open.pop_front() else { break };
            warpgroup.first += 1;
            let number = warpgroup.first;
            let cta = self.warps[w].cta;
            self.asyncs.push(Async::Product(Product { cta, warpgroup: group, number, issue }));
        }
        // What the warp does from here on is after the product's issue.
        self.warps[w].advance(&mut self.memory.history);
        self.stats.products += u64::from(position == 3);
        Ok(Flow::Yield)
    }

    fn wait_products(&mut self, w: usize, pending: usize) -> Flow {
        let group = self.warpgroup_of(w);
        let first = self.warps[self.first_warp(w)].agent;
        let groups = &self.warps[w].products.groups;
        let Some(count) = groups.len().checked_sub(pending).filter(|c| *c > 0) else { return Flow::Next };
        let target = groups[count - 1];
        if self.warpgroups[group].done < target {
            return Flow::Block(Wait::Products);
        }
        let agent = first + self.kind_offset(AgentKind::Product);
        self.warps[w].learn_agent(u32::MAX, agent, Entry::all(target));
        self.warps[w].products.groups.drain(..count);
        self.unlock_products(w, target);
        Flow::Next
    }

    /// A product executes.
    pub(super) fn step_product(&mut self, product: Product) -> Outcome<()> {
        let Product { cta, warpgroup, number, issue } = product;
        let pc = issue.pc;
        let program = self.program;
        let Kind::Product { detail } = program.ops[pc as usize].kind else { return Ok(()) };
        let detail = &program.details.products[detail as usize];
        let per_cta = self.warps_per_cta.div_ceil(4);
        let first = cta * self.warps_per_cta + warpgroup % per_cta * 4;
        let agent = self.warps[first].agent + self.kind_offset(AgentKind::Product);
        let who = Accessor {
            warp: first,
            lane: crate::shadow::clock::MANY_LANES,
            pc,
            clocks: Rc::new(issue.clocks),
            segment: self.memory.history.segment(agent, number),
            generic: false,
            strong: false,
        };
        let (m, n, k) = (64, detail.n, detail.k);
        let describe =
            |machine: &Self, bits| Descriptor::hopper(bits).map_err(|what| machine.descriptor_error(first, pc, what));
        let a = match &detail.a {
            Left::Descriptor(_) => {
                let descriptor = describe(self, issue.a)?;
                let [transposed, _] = detail.transposed;
                self.read_matrix(&who, cta, descriptor, (m, k), detail.ty, transposed, detail.negate[0], false)?
            }
            Left::Registers(list) => self.fragments(first, list, detail),
        };
        let descriptor = describe(self, issue.b)?;
        let [_, transposed] = detail.transposed;
        let b = self.read_matrix(&who, cta, descriptor, (n, k), detail.ty, transposed, detail.negate[1], true)?;
        let mut out = vec![0f64; m * n];
        let place = |warp: usize, lane: usize, i: usize| {
            let row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
            row * n + i / 4 * 8 + lane % 4 * 2 + i % 2
        };
        if issue.accumulate {
            for warp in 0..4 {
                let registers = &self.warps[first + warp].registers;
                for (i, d) in detail.d.iter().enumerate() {
                    for (lane, bits) in registers.b32[*d as usize].iter().enumerate() {
                        out[place(warp, lane, i)] = f64::from(f32::from_bits(*bits));
                    }
                }
            }
        }
        multiply(program.vector, &a, &b, n, &mut out);
        for warp in 0..4 {
            let registers = &mut self.warps[first + warp].registers;
            for (i, d) in detail.d.iter().enumerate() {
                for (lane, bits) in registers.b32[*d as usize].iter_mut().enumerate() {
                    *bits = rounded(out[place(warp, lane, i)]);
                }
                registers.undef32[*d as usize] = 0;
            }
        }
        self.warpgroups[warpgroup].done = number;
        for w in first..first + 4 {
            self.wake(w, Wait::Products);
        }
        Ok(())
    }

    /// The A operand from the registers of four warps.
    fn fragments(&self, first: usize, list: &[u16], detail: &Detail) -> Vec<f32> {
        let k = detail.k;
        let mut out = vec![0f32; 64 * k];
        for warp in 0..4 {
            for (i, register) in list.iter().enumerate() {
                for (lane, bits) in self.warps[first + warp].registers.b32[*register as usize].iter().enumerate() {
                    let row = 16 * warp + lane / 4 + i % 2 * 8;
                    let mut set = |column: usize, value: f32| {
                        out[row * k + column] = if detail.negate[0] { -value } else { value };
                    };
                    if detail.ty == MatrixType::Tf32 {
                        set(lane % 4 + i / 2 * 4, value(detail.ty, *bits));
                    } else {
                        set(lane % 4 * 2 + i / 2 * 8, value(detail.ty, *bits));
                        set(lane % 4 * 2 + i / 2 * 8 + 1, value(detail.ty, bits >> 16));
                    }
                }
            }
        }
        out
    }

    /// A warp must not leave while its products use its registers, or leave its warpgroup behind.
    pub(super) fn check_product_exit(&mut self, w: usize, pc: u32) -> Outcome<()> {
        let products = &self.warps[w].products;
        if products.locked.is_empty() {
            return Ok(());
        }
        let message = "the warp exits while a product of its warpgroup is in flight".to_string();
        let help = "execute wgmma.commit_group and wgmma.wait_group 0 before the end";
        Err(self.product_error(w, pc, message, help))
    }

    fn unlock_products(&mut self, w: usize, target: u32) {
        let program = self.program;
        let registers_of = |number: u32| {
            let detail = &program.details.products[number as usize];
            let a: &[u16] = if let Left::Registers(list) = &detail.a { list } else { &[] };
            (detail.d.as_slice(), a)
        };
        let warp = &mut self.warps[w];
        while let Some((number, detail)) = warp.products.locked.front().copied() {
            if number > target {
                break;
            }
            warp.products.locked.pop_front();
            let (d, a) = registers_of(detail);
            warp.watch.unlock(d);
            warp.watch.unlock(a);
        }
        for (_, detail) in warp.products.locked.clone() {
            let (d, a) = registers_of(detail);
            let pc = program.details.product_pcs[detail as usize];
            warp.watch.lock(d, pc, true);
            warp.watch.lock(a, pc, false);
        }
    }

    fn lock_product(&mut self, w: usize, pc: u32, detail: &Detail) {
        let watch = &mut self.warps[w].watch;
        watch.lock(&detail.d, pc, true);
        if let Left::Registers(list) = &detail.a {
            watch.lock(list, pc, false);
        }
    }
}
