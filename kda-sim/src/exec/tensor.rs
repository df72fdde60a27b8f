//! Boxes of tensors: what a tensor map says, and how a box lies in shared memory.

use super::copies::Remote;
use super::fault::Fault;
use super::warp::{Flow, Step};
use super::{Machine, Outcome, SHARED_BASE};
use crate::alu::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::alu::float::{Direction, Modes, add32};
use crate::memory::PARAM_WINDOW;
use crate::program::details::TensorCopyKind;
use crate::program::op::{Kind, MemSpace};
use crate::report::Code;
use kda_core::Elem;
use kda_core::tensor_map::{DecodedMap, MAP_ALIGN, MAP_BYTES, Swizzle};
use kda_ptx::modifier::AtomicOp;
use std::rc::Rc;

/// A box of a tensor.
#[derive(Debug)]
pub struct TensorBox {
    pub map: DecodedMap,
    /// First element, innermost axis first; may lie outside.
    pub from: Vec<i64>,
}

impl TensorBox {
    /// Bytes of the box, whether they lie in the tensor or not.
    fn bytes(&self) -> u64 {
        self.map.tile[..self.map.rank].iter().map(|n| u64::from(*n)).product::<u64>() * u64::from(self.map.elem_bytes)
    }

    /// The rows of the box that lie in the tensor, clipped: address, offset in the box, bytes. A copy to the tensor writes the
    /// 16 bytes in which a row ends as a whole, as an H200 does.
    pub fn rows(&self, writes: bool) -> Vec<(u64, usize, usize)> {
        let (map, rank) = (&self.map, self.map.rank);
        let elem = i64::from(map.elem_bytes);
        let width = i64::from(map.tile[0]);
        let size = if writes { map.sizes[0].next_multiple_of(16 / elem as u64) } else { map.sizes[0] } as i64;
        let first = self.from[0].clamp(0, size);
        let last = (self.from[0] + width).clamp(0, size);
        let count: u64 = map.tile[1..rank].iter().map(|n| u64::from(*n)).product();
        let mut rows = Vec::new();
        for row in 0..count {
            let mut rest = row;
            let mut address = map.ptr.wrapping_add((first * elem) as u64);
            let mut inside = first < last;
            for axis in 1..rank {
                let index = self.from[axis] + (rest % u64::from(map.tile[axis])) as i64;
                rest /= u64::from(map.tile[axis]);
                inside &= (0..map.sizes[axis] as i64).contains(&index);
                address = address.wrapping_add((index as u64).wrapping_mul(map.strides[axis]));
            }
            if inside {
                let at = (row as i64 * width + first - self.from[0]) * elem;
                rows.push((address, at as usize, ((last - first) * elem) as usize));
            }
        }
        rows
    }

    /// Place in shared memory, relative to the start of the box, of each 16-byte chunk; the pattern is one of addresses.
    fn places(&self, offset: u32, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
        let base = offset + SHARED_BASE;
        let swizzle = self.map.swizzle;
        (0..bytes / 16).map(move |c| (c * 16, (swizzle.place(base + c as u32 * 16) - base) as usize))
    }

    /// The box as it lies in shared memory.
    pub fn swizzled(&self, offset: u32, data: &[u8], defined: &[bool]) -> (Vec<u8>, Vec<bool>) {
        if self.map.swizzle == Swizzle::None {
            return (data.to_vec(), defined.to_vec());
        }
        let (mut out, mut known) = (vec![0; data.len()], vec![true; data.len()]);
        for (plain, placed) in self.places(offset, data.len()) {
            out[placed..placed + 16].copy_from_slice(&data[plain..plain + 16]);
            known[placed..placed + 16].copy_from_slice(&defined[plain..plain + 16]);
        }
        (out, known)
    }

    /// The box in the order of its elements, from shared memory.
    pub fn unswizzled(&self, offset: u32, data: &[u8], defined: &[bool]) -> (Vec<u8>, Vec<bool>) {
        if self.map.swizzle == Swizzle::None {
            return (data.to_vec(), defined.to_vec());
        }
        let (mut out, mut known) = (vec![0; data.len()], vec![true; data.len()]);
        for (plain, placed) in self.places(offset, data.len()) {
            out[plain..plain + 16].copy_from_slice(&data[placed..placed + 16]);
            known[plain..plain + 16].copy_from_slice(&defined[placed..placed + 16]);
        }
        (out, known)
    }
}

/// Combines elements into memory; floats are rounded to nearest.
pub fn combine(op: AtomicOp, elem: Elem, to: &mut [u8], from: &[u8]) {
    let size = elem.bytes() as usize;
    let read = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    for (to, from) in to.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        let (old, new) = (read(to), read(from));
        let value = combine_one(op, elem, old, new);
        to.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

fn combine_one(op: AtomicOp, elem: Elem, old: u64, new: u64) -> u64 {
    let float = |f: fn(u32) -> u32, back: fn(u32) -> u32| {
        let (x, y) = (f(old as u32), f(new as u32));
        let value = match op {
            AtomicOp::Min => f32::from_bits(x).min(f32::from_bits(y)).to_bits(),
            AtomicOp::Max => f32::from_bits(x).max(f32::from_bits(y)).to_bits(),
            _ => add32(x, y, Modes::unpack(0)),
        };
        u64::from(back(value))
    };
    match elem {
        Elem::F32 => return float(|x| x, |x| x),
        Elem::BF16 => return float(bf16_to_f32, f32_to_bf16),
        Elem::F16 => return float(f16_to_f32, |x| f32_to_f16(x, Direction::Nearest)),
        Elem::F64 => {
            let (x, y) = (f64::from_bits(old), f64::from_bits(new));
            return match op {
                AtomicOp::Min => x.min(y),
                AtomicOp::Max => x.max(y),
                _ => x + y,
            }
            .to_bits();
        }
        _ => {}
    }
    let signed = matches!(elem, Elem::I32 | Elem::I64);
    let key = |v: u64| match elem {
        Elem::I32 => i64::from(v as u32 as i32),
        _ => v as i64,
    };
    let less = if signed { key(old) < key(new) } else { old < new };
    match op {
        AtomicOp::Add => old.wrapping_add(new),
        AtomicOp::Min => {
            if less {
                old
            } else {
                new
            }
        }
        AtomicOp::Max => {
            if less {
                new
            } else {
                old
            }
        }
        AtomicOp::And => old & new,
        AtomicOp::Or => old | new,
        AtomicOp::Xor => old ^ new,
        AtomicOp::Inc => {
            if old >= new {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Dec => {
            if old == 0 || old > new {
                new
            } else {
                old - 1
            }
        }
        AtomicOp::Exch | AtomicOp::Cas => new,
    }
}

impl Machine<'_> {
    /// The tensor map at a generic address.
    fn tensor_map(&self, w: usize, pc: u32, lane: u32, register: u16) -> Outcome<DecodedMap> {
        let registers = &self.warps[w].registers;
        if registers.undef64[register as usize] >> lane & 1 != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, 1 << lane, "is the address of a tensor map"));
        }
        let address = registers.b64[register as usize][lane as usize];
        if !address.is_multiple_of(u64::from(MAP_ALIGN)) {
            let fault = Fault::Misaligned { address, needed: u64::from(MAP_ALIGN) };
            return Err(self.fault(w, pc, 1 << lane, fault));
        }
        let offset = address.wrapping_sub(PARAM_WINDOW) as usize;
        let bytes = self.launch.params.get(offset..offset.saturating_add(MAP_BYTES as usize));
        bytes.and_then(DecodedMap::decode).ok_or_else(|| {
            if bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
                let message = format!("the tensor map at byte {offset} of the parameters is absent");
                let help = "the launch gave no tensor for it: copy under `is_present()`, or give one";
                return self.report_at(w, pc, 1 << lane, Code::TensorMap, message, "tensor map", help);
            }
            let message = format!("there is no tensor map at {address:#x}");
            let help = "take the address of the parameter (mov.b64, then cvta.param.u64), and let the launch encode the map; maps \
                        in global memory are not modelled";
            self.report_at(w, pc, 1 << lane, Code::TensorMap, message, "tensor map", help)
        })
    }

    pub(super) fn prefetch_map(&mut self, w: usize, pc: u32, act: u32) -> Step {
        if let Kind::PrefetchMap { map } = self.program.ops[pc as usize].kind {
            self.tensor_map(w, pc, act.trailing_zeros(), map)?;
        }
        Ok(Flow::Next)
    }

    pub(super) fn tensor_copy(&mut self, w: usize, pc: u32, act: u32) -> Step {
        let Kind::TensorCopy { detail } = self.program.ops[pc as usize].kind else { return Ok(Flow::Next) };
        let program = self.program;
        let detail = &program.details.copies[detail as usize];
        for lane in (0..32u32).filter(|l| act >> l & 1 != 0) {
            let map = self.tensor_map(w, pc, lane, detail.map)?;
            let registers = &self.warps[w].registers;
            let undefined = detail
                .coordinates
                .iter()
                .fold(Self::undefined_addresses(registers, detail.shared), |u, c| u | registers.undef32[*c as usize]);
            if undefined >> lane & 1 != 0 && self.options.checks.undefined {
                return Err(self.undefined(w, pc, 1 << lane, "is an operand of a tensor copy"));
            }
            let coordinate = |c: &u16| i64::from(registers.b32[*c as usize][lane as usize] as i32);
            let from: Vec<i64> = detail.coordinates.iter().map(coordinate).collect();
            let address = self.shared_operand(w, lane as usize, detail.shared);
            let tensor = Rc::new(TensorBox { map, from });
            self.check_box(w, pc, lane, &tensor, detail.coordinates.len())?;
            self.check_coordinates(w, pc, lane, &tensor, !matches!(detail.kind, TensorCopyKind::Load))?;
            let needed = match map.swizzle.span() {
                None => 128,
                Some(span) => u64::from(span) * 8,
            };
            if !address.is_multiple_of(needed) {
                return Err(self.fault(w, pc, 1 << lane, Fault::Misaligned { address, needed }));
            }
            let bytes = tensor.bytes();
            let Some(shared) = self.shared_offset(self.warps[w].cta, address, bytes) else {
                let fault = Fault::Bounds { address, bytes, space: MemSpace::Shared };
                return Err(self.fault(w, pc, 1 << lane, fault));
            };
            let bytes = bytes as u32;
            let global = Remote::Box(Rc::clone(&tensor));
            match detail.kind {
                TensorCopyKind::Store => self.issue_store(w, pc, lane, global, shared, bytes, None)?,
                TensorCopyKind::Reduce(op) => {
                    self.issue_store(w, pc, lane, global, shared, bytes, Some((op, map.elem)))?;
                }
                TensorCopyKind::Load => {
                    let Some(barrier) = detail.barrier else { continue };
                    let place = self.mbarrier_place(w, pc, lane, barrier)?;
                    let Some(mask) = detail.multicast else {
                        self.issue_load(w, pc, lane, global, shared, bytes, place)?;
                        continue;
                    };
                    let mask = self.multicast_mask(w, pc, lane, mask)?;
                    let first = self.cluster_of(self.warps[w].cta) * self.launch.cluster as usize;
                    for rank in (0..self.launch.cluster as usize).filter(|r| mask >> r & 1 != 0) {
                        let cta = first + rank;
                        let (to, place) = ((cta, shared.1), (cta, place.1));
                        self.issue_load(w, pc, lane, global.clone(), to, bytes, place)?;
                    }
                }
            }
        }
        self.warps[w].advance(&mut self.memory.history);
        Ok(Flow::Yield)
    }

    fn multicast_mask(&self, w: usize, pc: u32, lane: u32, register: u16) -> Outcome<u32> {
        let registers = &self.warps[w].registers;
        if registers.undef32[register as usize] >> lane & 1 != 0 && self.options.checks.undefined {
            return Err(self.undefined(w, pc, 1 << lane, "is the mask of a multicast"));
        }
        let mask = registers.b32[register as usize][lane as usize] & 0xffff;
        if mask == 0 || mask >> self.launch.cluster != 0 {
            let message = format!("a multicast to the CTAs {mask:#06x} of a cluster of {}", self.launch.cluster);
            let help = "each bit of the mask is the rank of a CTA of the cluster; at least one is needed";
            return Err(self.report_at(w, pc, 1 << lane, Code::TensorMap, message, "multicast", help));
        }
        Ok(mask)
    }

    /// What the driver, or the hardware, would refuse.
    fn check_box(&self, w: usize, pc: u32, lane: u32, tensor: &TensorBox, axes: usize) -> Outcome<()> {
        let map = &tensor.map;
        let row = map.tile[0] * map.elem_bytes;
        let message = if map.rank != axes {
            format!("{axes} coordinates for a tensor map of rank {}", map.rank)
        } else if !row.is_multiple_of(16) {
            format!("a box whose rows have {row} bytes")
        } else if map.swizzle.span().is_some_and(|span| span != row) {
            format!("a box whose rows have {row} bytes, with a swizzle of {} bytes", map.swizzle.span().unwrap_or(0))
        } else if !map.ptr.is_multiple_of(16) || map.strides[1..map.rank].iter().any(|s| s % 16 != 0) {
            format!("a tensor at {:#x} with strides {:?}", map.ptr, &map.strides[1..map.rank])
        } else {
            return Ok(());
        };
        let help = "the rank must be that of the instruction; rows of a box have a multiple of 16 bytes, and as many as the swizzle \
                    spans; address and strides are multiples of 16";
        Err(self.report_at(w, pc, 1 << lane, Code::TensorMap, message, "tensor copy", help))
    }

    /// Coordinates that an H200 refuses as an illegal instruction: an innermost one within 16 bytes, and a negative one of a copy to
    /// the tensor.
    fn check_coordinates(&self, w: usize, pc: u32, lane: u32, tensor: &TensorBox, writes: bool) -> Outcome<()> {
        let inner = tensor.from[0] * i64::from(tensor.map.elem_bytes);
        let (message, help) = if inner % 16 != 0 {
            let message = format!("a box that begins at byte {inner} of a row");
            (message, "the innermost coordinate times the bytes of an element is a multiple of 16")
        } else if writes && tensor.from.iter().any(|c| *c < 0) {
            let message = format!("a copy to a tensor from the coordinates {:?}, innermost first", tensor.from);
            (message, "copies to a tensor begin inside it or beyond its end; only loads may begin ahead of it")
        } else {
            return Ok(());
        };
        Err(self.report_at(w, pc, 1 << lane, Code::TensorMap, message, "tensor copy", help))
    }
}
