//! Matrices of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma.sync`.
//!
//! The lane that gives the address of a row counts as the one that accesses it.

use super::access::observer;
use super::fault::{Fault, Place};
use super::tile::value;
use super::warp::{Flow, Step};
use super::{Machine, Outcome};
use crate::alu::matrix::{multiply, rounded};
use crate::program::details::{MatrixType, WarpProduct};
use crate::program::op::{AddressRef, Kind};
use crate::shadow::span::Spread;

impl Machine<'_> {
    pub(super) fn matrices(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Some(flow) = self.whole_warp(w, pc, act)? {
            return Ok(flow);
        }
        let program = self.program;
        match program.ops[pc as usize].kind {
            Kind::LoadMatrix { address, list, count, transposed } => {
                let list = &program.lists[list as usize..list as usize + count as usize];
                self.load_matrix(w, pc, address, list, transposed)
            }
            Kind::StoreMatrix { address, list, count, transposed } => {
                let list = &program.lists[list as usize..list as usize + count as usize];
                self.store_matrix(w, pc, address, list, transposed)
            }
            Kind::MoveMatrix { d, a } => {
                let r = &mut self.warps[w].registers;
                let (source, unknown) = (r.b32[a as usize], r.undef32[a as usize]);
                let half = |row: usize, column: usize| source[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
                let mut undefined = 0;
                for lane in 0..32 {
                    let (row, column) = (lane / 4, lane % 4 * 2);
                    r.b32[d as usize][lane] = half(column, row) | half(column + 1, row) << 16;
                    let from = 1 << (column * 4 + row / 2) | 1 << ((column + 1) * 4 + row / 2);
                    undefined |= u32::from(unknown & from != 0) << lane;
                }
                r.undef32[d as usize] = undefined;
                Ok(Flow::Next)
            }
            Kind::WarpProduct { detail } => self.warp_product(w, pc, &program.details.warp_products[detail as usize]),
            _ => Ok(Flow::Next),
        }
    }

    /// Checks and records the accesses of the rows; gives the CTA and the offset of each.
    fn matrix_rows(
        &mut self,
        w: usize,
        pc: u32,
        address: AddressRef,
        rows: usize,
        write: bool,
    ) -> Outcome<Vec<(usize, usize)>> {
        let lanes = u32::MAX >> (32 - rows);
        let registers = &self.warps[w].registers;
        let undefined = Self::undefined_addresses(registers, address) & lanes;
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is the address of a row of a matrix"));
        }
        let addresses = Self::addresses(registers, address);
        let mut places = Vec::with_capacity(rows);
        for lane in 0..rows as u32 {
            let (target, offset) = self.locate_lane(w, pc, lane, address.space, addresses[lane as usize], 16)?;
            let super::access::Target::Shared { cta } = target else {
                let (address, space) = (addresses[lane as usize], address.space);
                return Err(self.fault(w, pc, 1 << lane, Fault::Bounds { address, bytes: 16, space }));
            };
            self.check_remote(w, pc, 1 << lane, cta)?;
            places.push((cta, offset));
        }
        if !self.options.checks.races {
            return Ok(places);
        }
        let warps = self.generic_agents();
        for (lane, (cta, offset)) in places.iter().enumerate() {
            let target = super::access::Target::Shared { cta: *cta };
            let (block, history, key, bases) = Self::parts(self.memory, &mut self.ctas, &target, 0, *offset);
            block.shadow();
            let warp = &mut self.warps[w];
            let know = warp.knowledge_of(lane as u32);
            let mut observer = observer(warp, know, history, pc, bases, warps, false);
            let mut cells = block.cells(offset / 4, 4, key);
            let spread = Spread::one(lane as u32);
            let done =
                if write { observer.write_span(&mut cells, spread) } else { observer.read_span(&mut cells, spread) };
            if let Err(conflict) = done {
                let place = Place::of(&target, addresses[lane]).at_word(conflict.word + offset / 4, *offset);
                let fault = Fault::Race { conflict, write, place, issued: None };
                return Err(self.fault(w, pc, 1 << lane, fault));
            }
        }
        Ok(places)
    }

    fn load_matrix(&mut self, w: usize, pc: u32, address: AddressRef, list: &[u16], transposed: bool) -> Step {
        let places = self.matrix_rows(w, pc, address, list.len() * 8, false)?;
        for (matrix, d) in list.iter().enumerate() {
            let mut undefined = 0u32;
            let mut values = [0u32; 32];
            for (lane, out) in values.iter_mut().enumerate() {
                for half in 0..2 {
                    let (row, column) = element(lane, half, transposed);
                    let (cta, offset) = places[matrix * 8 + row];
                    let block = &self.ctas[cta].shared;
                    let at = offset + column * 2;
                    *out |= u32::from(u16::from_le_bytes([block.data[at], block.data[at + 1]])) << (16 * half);
                    undefined |= u32::from(!block.is_defined(at, 2)) << lane;
                }
            }
            let r = &mut self.warps[w].registers;
            (r.b32[*d as usize], r.undef32[*d as usize]) = (values, undefined);
        }
        Ok(Flow::Next)
    }

    fn store_matrix(&mut self, w: usize, pc: u32, address: AddressRef, list: &[u16], transposed: bool) -> Step {
        let places = self.matrix_rows(w, pc, address, list.len() * 8, true)?;
        for (matrix, a) in list.iter().enumerate() {
            let r = &self.warps[w].registers;
            let (values, undefined) = (r.b32[*a as usize], r.undef32[*a as usize]);
            for (lane, value) in values.iter().enumerate() {
                for half in 0..2 {
                    let (row, column) = element(lane, half, transposed);
                    let (cta, offset) = places[matrix * 8 + row];
                    let block = &mut self.ctas[cta].shared;
                    let at = offset + column * 2;
                    block.data[at..at + 2].copy_from_slice(&((value >> (16 * half)) as u16).to_le_bytes());
                    block.set_defined(at, 2, undefined >> lane & 1 == 0);
                }
            }
        }
        self.progress += 1;
        Ok(Flow::Next)
    }

    fn warp_product(&mut self, w: usize, pc: u32, detail: &WarpProduct) -> Step {
        let r = &self.warps[w].registers;
        let sources = detail.a.iter().chain(&detail.b).chain(&detail.c);
        let undefined = sources.fold(0, |u, r2| u | r.undef32[*r2 as usize]);
        if undefined != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, undefined, "is an operand of a product"));
        }
        let (k, ty) = (detail.k, detail.ty);
        let wide = ty == MatrixType::Tf32;
        let (mut a, mut b) = (vec![0f32; 16 * k], vec![0f32; k * 8]);
        for lane in 0..32 {
            let (group, inner) = (lane / 4, lane % 4);
            for (i, register) in detail.a.iter().enumerate() {
                let bits = r.b32[*register as usize][lane];
                let row = group + i % 2 * 8;
                if wide {
                    a[row * k + inner + i / 2 * 4] = value(ty, bits);
                } else {
                    let column = inner * 2 + i / 2 * 8;
                    a[row * k + column] = value(ty, bits);
                    a[row * k + column + 1] = value(ty, bits >> 16);
                }
            }
            for (i, register) in detail.b.iter().enumerate() {
                let bits = r.b32[*register as usize][lane];
                if wide {
                    b[(inner + i * 4) * 8 + group] = value(ty, bits);
                } else {
                    let depth = inner * 2 + i * 8;
                    b[depth * 8 + group] = value(ty, bits);
                    b[(depth + 1) * 8 + group] = value(ty, bits >> 16);
                }
            }
        }
        let place = |lane: usize, i: usize| (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2;
        let mut out = vec![0f64; 16 * 8];
        for (i, c) in detail.c.iter().enumerate() {
            for lane in 0..32 {
                out[place(lane, i)] = f64::from(f32::from_bits(r.b32[*c as usize][lane]));
            }
        }
        multiply(self.program.vector, &a, &b, 8, &mut out);
        let r = &mut self.warps[w].registers;
        for (i, d) in detail.d.iter().enumerate() {
            for lane in 0..32 {
                r.b32[*d as usize][lane] = rounded(out[place(lane, i)]);
            }
            r.undef32[*d as usize] = 0;
        }
        Ok(Flow::Next)
    }
}

/// Row and column of a half of a lane's register.
fn element(lane: usize, half: usize, transposed: bool) -> (usize, usize) {
    let (outer, inner) = (lane / 4, lane % 4 * 2 + half);
    if transposed { (inner, outer) } else { (outer, inner) }
}
