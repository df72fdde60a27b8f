//! Registers of instructions in flight: who has touched them since the last `wgmma.fence`, and who must not.

use super::{Machine, Outcome};
use crate::program::details::{Left, Product};
use crate::program::op::Kind;
use crate::report::Code;

/// What is known of one register of a warp.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The instruction in flight that uses it; 0 for none, else its number plus one.
    locked: u32,
    /// It is an accumulator, or the destination of a load.
    output: bool,
    /// Number of the fence after which it was last accessed, or written.
    touched: u32,
    written: u32,
    /// Instruction that did so.
    pc: u32,
}

/// The 32-bit registers of a warp.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    cells: Vec<Cell>,
    /// Number of fences executed, plus one.
    epoch: u32,
}

impl Watch {
    /// Forgets everything; `registers` is the size of the file.
    pub fn reset(&mut self, registers: usize) {
        self.cells.clear();
        self.cells.resize(registers, Cell::default());
        self.epoch = 1;
    }

    /// `wgmma.fence`
    pub fn fence(&mut self) {
        self.epoch += 1;
    }

    /// An instruction in flight uses the registers.
    pub fn lock(&mut self, registers: &[u16], pc: u32, output: bool) {
        for r in registers {
            let cell = &mut self.cells[*r as usize];
            (cell.locked, cell.output) = (pc + 1, output);
        }
    }

    /// It is done with them.
    pub fn unlock(&mut self, registers: &[u16]) {
        for r in registers {
            self.cells[*r as usize].locked = 0;
        }
    }

    /// An instruction accesses registers; the one that is in its way.
    #[inline(always)]
    fn access(&mut self, uses: &[(u16, bool)], pc: u32) -> Option<u32> {
        for (register, write) in uses {
            let cell = &mut self.cells[*register as usize];
            // What an instruction in flight only reads, others may read too.
            if cell.locked != 0 && (cell.output || *write) {
                return Some(cell.locked - 1);
            }
            (cell.touched, cell.pc) = (self.epoch, pc);
            if *write {
                cell.written = self.epoch;
            }
        }
        None
    }
}

impl Machine<'_> {
    /// An ordinary instruction is about to access its registers.
    #[inline(always)]
    pub(super) fn watch_registers(&mut self, w: usize, pc: u32, act: u32) -> Outcome<()> {
        let uses = self.program.uses.of(pc);
        match self.warps[w].watch.access(uses, pc) {
            None => Ok(()),
            Some(by) => self.locked_registers(w, pc, act, by),
        }
    }

    /// The same for one that locks registers itself.
    pub(super) fn watch_access(&mut self, w: usize, pc: u32) -> Outcome<()> {
        self.watch_registers(w, pc, u32::MAX)
    }

    #[cold]
    fn locked_registers(&self, w: usize, pc: u32, act: u32, by: u32) -> Outcome<()> {
        let product = matches!(self.program.ops[by as usize].kind, Kind::Product { .. });
        let (what, help) = if product {
            (
                "a product that has not been waited for uses a register that is accessed",
                "wgmma.commit_group, then wgmma.wait_group, before any access of the accumulators or change of A",
            )
        } else {
            (
                "a register that tcgen05.ld or tcgen05.st uses is accessed before it has been waited for",
                "execute tcgen05.wait::ld (or ::st) before the access",
            )
        };
        let mut report = self.report_at(w, pc, act, Code::Product, what.to_string(), "access of the register", help);
        report.others.push(self.place_of(by, w, "instruction in flight"));
        Err(report)
    }

    /// The registers of a product: nothing in flight may be in its way, and `wgmma.fence` must stand between their last
    /// access and it.
    pub(super) fn check_product_registers(&self, w: usize, pc: u32, detail: &Product, accumulate: bool) -> Outcome<()> {
        let watch = &self.warps[w].watch;
        let unfenced = |at: Option<u32>| {
            let message = match at {
                None => "a product without wgmma.fence before it".to_string(),
                Some(_) => {
                    "no wgmma.fence stands between an access of a product's register and the product".to_string()
                }
            };
            let help = "execute wgmma.fence.sync.aligned after the last access of the accumulators (or the last write of A), before \
                        the product";
            let mut report = self.report_at(w, pc, u32::MAX, Code::Product, message, "product", help);
            report.others.extend(at.map(|p| self.place_of(p, w, "access of the register")));
            Err(report)
        };
        if watch.epoch == 1 {
            return unfenced(None);
        }
        let mut undefined = 0;
        for d in &detail.d {
            let cell = watch.cells[*d as usize];
            undefined |= self.warps[w].registers.undef32[*d as usize];
            if cell.locked != 0 {
                let same = match self.program.ops[cell.locked as usize - 1].kind {
                    Kind::Product { detail: other } => self.program.details.products[other as usize].d == detail.d,
                    _ => false,
                };
                if !(cell.output && same) {
                    return self.locked_registers(w, pc, u32::MAX, cell.locked - 1);
                }
            } else if cell.touched == watch.epoch {
                return unfenced(Some(cell.pc));
            }
        }
        let in_flight = detail.d.first().is_some_and(|d| watch.cells[*d as usize].locked != 0);
        if accumulate && !in_flight && undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is accumulated by a product"));
        }
        if let Left::Registers(list) = &detail.a {
            for a in list {
                let cell = watch.cells[*a as usize];
                if cell.locked != 0 && cell.output {
                    return self.locked_registers(w, pc, u32::MAX, cell.locked - 1);
                }
                if cell.locked == 0 && cell.written == watch.epoch {
                    return unfenced(Some(cell.pc));
                }
            }
        }
        Ok(())
    }
}
