//! `setmaxnreg`: the registers of a CTA are a pool that its warps take from and give back to.

use super::warp::{Flow, Step, Wait};
use super::{Machine, Outcome};
use crate::program::op::Kind;
use crate::report::{Code, Report};

/// Registers of a multiprocessor.
const FILE: u32 = 65_536;
/// Most registers of a thread, as they are allocated.
const MOST: u32 = 256;

impl Machine<'_> {
    /// Registers that each thread has when the kernel starts.
    pub(super) fn launch_registers(&self) -> u32 {
        let fits = FILE / self.launch.block.next_multiple_of(32) / 8 * 8;
        fits.min(self.program.bounds.max_registers.unwrap_or(MOST)).min(MOST)
    }

    fn registers_error(&self, w: usize, pc: u32, message: String, help: &str) -> Box<Report> {
        self.report_at(w, pc, u32::MAX, Code::Registers, message, "setmaxnreg", help)
    }

    /// Registers that no warp of a CTA has, for one thread of each lane.
    pub(super) fn free_registers(&self, cta: usize) -> u32 {
        let warps = &self.warps[cta * self.warps_per_cta..(cta + 1) * self.warps_per_cta];
        let taken: u32 = warps.iter().map(|w| w.register_count).sum();
        (self.launch_registers() * self.warps_per_cta as u32).saturating_sub(taken)
    }

    pub(super) fn set_registers(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Some(flow) = self.whole_warp(w, pc, act)? {
            return Ok(flow);
        }
        let Kind::SetRegisters { count, increase } = self.program.ops[pc as usize].kind else { return Ok(Flow::Next) };
        let (count, had) = (u32::from(count), self.warps[w].register_count);
        if self.warps[w].index as usize / 4 * 4 + 4 > self.warps_per_cta {
            let message = "setmaxnreg in a warpgroup of fewer than four warps".to_string();
            return Err(self.registers_error(w, pc, message, "give the CTA a multiple of 128 threads"));
        }
        if increase && count < had || !increase && count > had {
            let message = format!("setmaxnreg from {had} to {count} registers");
            let help =
                ".inc goes up and .dec goes down; a kernel starts with what 65536 registers give each of its threads";
            return Err(self.registers_error(w, pc, message, help));
        }
        self.check_reallocation(w, pc)?;
        let free = self.free_registers(self.warps[w].cta);
        if increase && count - had > free {
            return Ok(Flow::Block(Wait::Registers));
        }
        let group = self.warpgroup_of(w);
        let number = self.warps[w].reallocations as usize;
        let log = &mut self.warpgroups[group].reallocations;
        if log.len() == number {
            log.push(pc);
        }
        let warp = &mut self.warps[w];
        warp.register_count = count;
        warp.reallocations += 1;
        let first = warp.cta * self.warps_per_cta;
        if !increase {
            for other in first..first + self.warps_per_cta {
                self.wake(other, Wait::Registers);
            }
        }
        self.progress += 1;
        Ok(Flow::Next)
    }

    /// The warps of a warpgroup reallocate at the same instructions.
    fn check_reallocation(&self, w: usize, pc: u32) -> Outcome<()> {
        let number = self.warps[w].reallocations as usize;
        let group = self.warpgroup_of(w);
        match self.warpgroups[group].reallocations.get(number).copied() {
            Some(other) if other != pc => {
                let message = "the warps of a warpgroup execute different setmaxnreg instructions".to_string();
                let help = "all four warps of a warpgroup execute the same one";
                let mut report = self.registers_error(w, pc, message, help);
                report.others.push(self.place_of(other, w, "setmaxnreg of another warp"));
                Err(report)
            }
            _ => {
                let first = self.warps[w].cta * self.warps_per_cta + self.warps[w].index as usize / 4 * 4;
                let gone = |warp: &super::warp::Warp| warp.live == 0 && warp.reallocations as usize <= number;
                if !self.warps[first..first + 4].iter().any(gone) {
                    return Ok(());
                }
                let message = "a warp of the warpgroup has exited without this setmaxnreg".to_string();
                Err(self.registers_error(w, pc, message, "all four warps of a warpgroup execute it"))
            }
        }
    }

    /// A warp must not leave out what the others of its warpgroup have executed.
    pub(super) fn check_registers_exit(&self, w: usize, pc: u32) -> Outcome<()> {
        let done = self.warps[w].reallocations as usize;
        match self.warpgroups[self.warpgroup_of(w)].reallocations.get(done) {
            None => Ok(()),
            Some(other) => {
                let message = "a warp exits without a setmaxnreg that its warpgroup has executed".to_string();
                let help = "all four warps of a warpgroup execute it";
                let mut report = self.registers_error(w, pc, message, help);
                report.others.push(self.place_of(*other, w, "setmaxnreg of another warp"));
                Err(report)
            }
        }
    }
}
