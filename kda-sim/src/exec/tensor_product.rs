//! `tcgen05.mma` and `tcgen05.commit`: a thread issues them, the scheduler executes them in the order of their issue.

use super::access::Target;
use super::asynchronous::{Accessor, Async};
use super::tensor_memory::COLUMNS;
use super::tile::Descriptor;
use super::warp::{Flow, Step};
use super::{Machine, Outcome};
use crate::alu::matrix::{multiply, rounded};
use crate::program::details::{AgentKind, MatrixType};
use crate::program::op::Kind;
use crate::report::Code;
use crate::shadow::clock::{Clocks, Entry, MANY_LANES};
use std::rc::Rc;

/// A product on its way.
#[derive(Debug)]
pub struct TensorProduct {
    pub warp: usize,
    pub cta: usize,
    pc: u32,
    number: u32,
    /// What it may rely on in shared memory, and in tensor memory.
    clocks: [Rc<Clocks>; 2],
    a: Descriptor,
    b: Descriptor,
    instruction: Instruction,
    column: u32,
    accumulate: bool,
}

/// An arrival that waits for the products before it.
#[derive(Debug)]
pub struct TensorCommit {
    pub warp: usize,
    pub cta: usize,
    pc: u32,
    lane: u32,
    place: (usize, u32),
    number: u32,
    /// What the products were behind.
    behind: Option<Rc<Clocks>>,
}

/// What an instruction descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    a: MatrixType,
    m: usize,
    n: usize,
    k: usize,
    negate: [bool; 2],
    transposed: [bool; 2],
}

impl Instruction {
    /// Reads a descriptor; an error says what is not modelled.
    fn decode(bits: u32, tf32: bool) -> Result<Instruction, String> {
        let field = |at: u32, width: u32| bits >> at & ((1 << width) - 1);
        let ty = |code: u32| match (tf32, code) {
            (false, 0) => Ok(MatrixType::F16),
            (false, 1) => Ok(MatrixType::Bf16),
            (true, 2) => Ok(MatrixType::Tf32),
            _ => Err(format!("operand type {code}")),
        };
        let (a, b) = (ty(field(7, 3))?, ty(field(10, 3))?);
        if a != b {
            return Err("operands of different types".to_string());
        }
        if field(4, 2) != 1 {
            return Err(format!("accumulator type {}, where only 1 (f32) is modelled", field(4, 2)));
        }
        let (m, n) = (field(24, 5) as usize * 16, field(17, 6) as usize * 8);
        let fits = match m {
            64 => (8..=256).contains(&n),
            128 => (16..=256).contains(&n) && n % 16 == 0,
            _ => false,
        };
        if !fits {
            return Err(format!("the shape {m} x {n}; M is 64 or 128, N a multiple of 8 or 16 up to 256"));
        }
        let flag = |at: u32| field(at, 1) != 0;
        Ok(Instruction {
            a,
            m,
            n,
            k: if tf32 { 8 } else { 16 },
            negate: [flag(13), flag(14)],
            transposed: [flag(15), flag(16)],
        })
    }

    /// Lane of tensor memory that holds a row of D.
    fn lane(&self, row: usize) -> usize {
        // Of 64 rows each warp's quarter holds 16.
        if self.m == 64 { row / 16 * 32 + row % 16 } else { row }
    }
}

impl Machine<'_> {
    pub(super) fn tensor_product(&mut self, w: usize, pc: u32, act: u32) -> Step {
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            match self.program.ops[pc as usize].kind {
                Kind::TensorProduct { detail } => self.issue_tensor_product(w, pc, lane, detail)?,
                Kind::TensorCommit { barrier } => {
                    let place = self.mbarrier_place(w, pc, lane, barrier)?;
                    self.check_async_mbarrier(w, pc, lane, place)?;
                    let warp = &self.warps[w];
                    let (cta, number, behind) = (warp.cta, warp.tensor.products, warp.tensor.behind.clone());
                    let commit = TensorCommit { warp: w, cta, pc, lane, place, number, behind };
                    self.asyncs.push(Async::TensorCommit(commit));
                }
                _ => {}
            }
        }
        self.warps[w].advance(&mut self.memory.history);
        Ok(Flow::Yield)
    }

    fn issue_tensor_product(&mut self, w: usize, pc: u32, lane: u32, number: u32) -> Outcome<()> {
        let program = self.program;
        let detail = &program.details.tensor_products[number as usize];
        let r = &self.warps[w].registers;
        let (pred, negated) = detail.accumulate;
        let undefined = r.undef64[detail.a as usize] | r.undef64[detail.b as usize] | r.undef_pred[pred as usize];
        if undefined >> lane & 1 != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, 1 << lane, "is an operand of a product"));
        }
        let [a, b] = [detail.a, detail.b].map(|d| r.b64[d as usize][lane as usize]);
        let accumulate = (r.pred[pred as usize] >> lane & 1 != 0) != negated;
        let d = self.tensor_operand(w, pc, 1 << lane, detail.d, "an address of tensor memory")?;
        let d = d.wrapping_add(detail.offset as u32);
        let bits = self.tensor_operand(w, pc, 1 << lane, detail.instruction, "an instruction descriptor")?;
        let instruction = Instruction::decode(bits, detail.tf32).map_err(|what| {
            let message = format!("the instruction descriptor {bits:#010x} has {what}");
            let help = "bits 4-5 are 1 (f32), 7-9 and 10-12 the operand types, 17-22 N/8, 24-28 M/16";
            self.report_at(w, pc, 1 << lane, Code::Product, message, "product", help)
        })?;
        if d >> 16 != 0 {
            let message = format!("the product's accumulator is at lane {}", d >> 16);
            return Err(self.tensor_error(w, pc, message, "the accumulator of a product begins at lane 0"));
        }
        let cta = self.warps[w].cta;
        self.check_columns(w, pc, cta, d, instruction.n as u32)?;
        let describe = |bits| Descriptor::blackwell(bits).map_err(|what| self.descriptor_error(w, pc, what));
        let (a, b) = (describe(a)?, describe(b)?);
        let agent = self.agent_of(w, AgentKind::TensorProduct);
        let mut tensor = self.tensor_clocks(w);
        let warp = &mut self.warps[w];
        warp.tensor.products += 1;
        let number = warp.tensor.products;
        // Products of a thread are executed in order.
        tensor.get_mut(agent).generic.join(Entry::all(number - 1));
        let clocks = [self.issue_clocks(w, lane), Rc::new(tensor)];
        self.warps[w].tensor.behind = Some(clocks[0].clone());
        let column = d;
        self.asyncs.push(Async::TensorProduct(TensorProduct {
            warp: w,
            cta,
            pc,
            number,
            clocks,
            a,
            b,
            instruction,
            column,
            accumulate,
        }));
        self.stats.products += 1;
        Ok(())
    }

    pub(super) fn step_tensor_product(&mut self, product: TensorProduct) -> Outcome<()> {
        let TensorProduct { warp: w, cta, pc, instruction, .. } = product;
        let Instruction { m, n, k, .. } = instruction;
        let agent = self.agent_of(w, AgentKind::TensorProduct);
        let segment = self.memory.history.segment(agent, product.number);
        let [clocks, tensor_clocks] = product.clocks;
        let who = Accessor { warp: w, lane: MANY_LANES, pc, clocks, segment, generic: false, strong: false };
        let ([ta, tb], [na, nb]) = (instruction.transposed, instruction.negate);
        let a = self.read_matrix(&who, cta, product.a, (m, k), instruction.a, ta, na, false)?;
        let b = self.read_matrix(&who, cta, product.b, (n, k), instruction.a, tb, nb, true)?;
        let who = Accessor { clocks: tensor_clocks, generic: true, ..who };
        let place = |row: usize| (instruction.lane(row) * COLUMNS + product.column as usize) * 4;
        let mut out = vec![0f64; m * n];
        for row in 0..m {
            // What the check of a write finds includes what that of a read would.
            self.async_access(&who, &Target::Tensor { cta }, 0, place(row), n * 4, true)?;
            let block = &self.ctas[cta].tensor.get_or_insert_default().block;
            if !product.accumulate {
                continue;
            }
            if !block.is_defined(place(row), n * 4) && self.options.checks.undefined {
                return Err(self.undefined(w, pc, 0, "in tensor memory is accumulated by a product"));
            }
            for column in 0..n {
                let (bits, _) = super::transfer::element(block, place(row) + column * 4, 4);
                out[row * n + column] = f64::from(f32::from_bits(bits as u32));
            }
        }
        multiply(self.program.vector, &a, &b, n, &mut out);
        let block = &mut self.ctas[cta].tensor.get_or_insert_default().block;
        for row in 0..m {
            for column in 0..n {
                let at = place(row) + column * 4;
                block.data[at..at + 4].copy_from_slice(&rounded(out[row * n + column]).to_le_bytes());
            }
            block.set_defined(place(row), n * 4, true);
        }
        Ok(())
    }

    pub(super) fn step_tensor_commit(&mut self, commit: TensorCommit) -> Outcome<()> {
        let agent = self.agent_of(commit.warp, AgentKind::TensorProduct);
        // What a product was behind is also before its completion: the copies that brought its operands, for one.
        let mut clocks = match commit.behind {
            Some(behind) => (*behind).clone(),
            None => Clocks::new(self.clusters[self.cluster_of(commit.cta)].id),
        };
        clocks.get_mut(agent).generic.join(Entry::all(commit.number));
        self.arrive(commit.warp, commit.pc, commit.lane, commit.place, 1, Some(&clocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_descriptors_have_the_fields_of_the_manual() {
        let i = Instruction::decode(0x0804_0490, false).unwrap();
        let plain = [false, false];
        let expected = Instruction { a: MatrixType::Bf16, m: 128, n: 16, k: 16, negate: plain, transposed: plain };
        assert_eq!(i, expected);
        assert!(Instruction::decode(0x0804_0480, false).is_err());
        assert_eq!(Instruction { m: 64, ..i }.lane(17), 33);
    }
}
