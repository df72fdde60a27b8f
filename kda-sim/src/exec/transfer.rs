//! Between memory blocks and registers.

use crate::alu::lanes::{LANES, Registers};
use crate::memory::block::Block;
use crate::program::op::{Elements, NONE};

/// Extends an element to its register.
#[inline(always)]
pub(super) fn extend(value: u64, elements: Elements) -> u64 {
    let bits = u32::from(elements.bytes) * 8;
    let value = if elements.signed { ((value << (64 - bits)) as i64 >> (64 - bits)) as u64 } else { value };
    if elements.half { value & 0xffff } else { value }
}

/// Writes one lane of a register of a load.
#[inline(always)]
pub(super) fn set_lane(r: &mut Registers, d: u16, elements: Elements, lane: usize, value: u64, undefined: bool) {
    if d == NONE {
        return;
    }
    let d = d as usize;
    let u = if elements.wide {
        r.b64[d][lane] = value;
        &mut r.undef64[d]
    } else {
        r.b32[d][lane] = value as u32;
        &mut r.undef32[d]
    };
    *u = *u & !(1 << lane) | u32::from(undefined) << lane;
}

/// Lanes with an undefined value among the registers of a store.
#[inline(always)]
pub(super) fn stored_undefined(registers: &Registers, elements: Elements, list: &[u16]) -> u32 {
    let file = if elements.wide { &registers.undef64 } else { &registers.undef32 };
    list.iter().fold(0, |u, r| u | file[*r as usize])
}

#[inline(always)]
fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// Every `N`th word, from the `k`th, into the lanes of a register.
#[inline(always)]
fn gather<const N: usize>(data: &[u8], k: usize, out: &mut [u32; LANES]) {
    let words = &data.as_chunks::<4>().0[..N * LANES];
    let (tuples, _) = words.as_chunks::<N>();
    for (out, tuple) in out.iter_mut().zip(tuples) {
        *out = u32::from_le_bytes(tuple[k & (N - 1)]);
    }
}

/// The lanes of a register into every `N`th word, from the `k`th.
#[inline(always)]
fn scatter<const N: usize>(data: &mut [u8], k: usize, values: &[u32; LANES]) {
    let words = &mut data.as_chunks_mut::<4>().0[..N * LANES];
    let (tuples, _) = words.as_chunks_mut::<N>();
    for (value, tuple) in values.iter().zip(tuples) {
        tuple[k & (N - 1)] = value.to_le_bytes();
    }
}

/// Consecutive elements into registers: lane `l` has the bytes from `l * bytes * count`.
#[inline(always)]
pub(super) fn load_run(block: &Block, offset: usize, elements: Elements, list: &[u16], registers: &mut Registers) {
    let (count, bytes) = (elements.count as usize, elements.bytes as usize);
    let words = bytes * count / 4 * LANES;
    let defined = &block.defined[offset / 4..offset / 4 + words];
    let all_defined = defined.iter().fold(15, |a, n| a & n) == 15;
    let data = &block.data[offset..offset + words * 4];
    if bytes == 4 && !elements.wide {
        for (k, d) in list.iter().enumerate() {
            if *d == NONE {
                continue;
            }
            let out = &mut registers.b32[*d as usize];
            match count {
                1 => gather::<1>(data, 0, out),
                2 => gather::<2>(data, k, out),
                4 => gather::<4>(data, k, out),
                _ => gather::<8>(data, k, out),
            }
            let mut undefined = 0;
            if !all_defined {
                for lane in 0..LANES {
                    undefined |= u32::from(defined[lane * count + k] != 15) << lane;
                }
            }
            registers.undef32[*d as usize] = undefined;
        }
        return;
    }
    for (k, d) in list.iter().enumerate() {
        for lane in 0..LANES {
            let at = (lane * count + k) * bytes;
            let (value, undefined) = element(block, offset + at, bytes);
            set_lane(registers, *d, elements, lane, extend(value, elements), undefined);
        }
    }
}

/// Consecutive elements into the active lanes, from the first of them.
#[inline(always)]
pub(super) fn load_some(
    block: &Block,
    offset: usize,
    elements: Elements,
    list: &[u16],
    registers: &mut Registers,
    act: u32,
) {
    let begin = act.trailing_zeros() as usize;
    for lane in begin..begin + act.count_ones() as usize {
        load_lane(block, offset + (lane - begin) * elements.size(), elements, list, registers, lane);
    }
}

/// The elements of one lane.
#[inline(always)]
pub(super) fn load_lane(
    block: &Block,
    offset: usize,
    elements: Elements,
    list: &[u16],
    registers: &mut Registers,
    lane: usize,
) {
    let bytes = elements.bytes as usize;
    for (k, d) in list.iter().enumerate() {
        let (value, undefined) = element(block, offset + k * bytes, bytes);
        set_lane(registers, *d, elements, lane, extend(value, elements), undefined);
    }
}

/// The active lanes, which stand one behind the other, into consecutive elements.
#[inline(always)]
pub(super) fn store_some(
    block: &mut Block,
    offset: usize,
    elements: Elements,
    list: &[u16],
    registers: &Registers,
    act: u32,
) {
    let begin = act.trailing_zeros() as usize;
    for lane in begin..begin + act.count_ones() as usize {
        store_lane(block, offset + (lane - begin) * elements.size(), elements, list, registers, lane);
    }
}

/// The elements of one lane, as bytes of memory.
#[inline(always)]
pub(super) fn lane_bytes(elements: Elements, list: &[u16], registers: &Registers, lane: usize) -> [u8; 32] {
    let mut out = [0; 32];
    let size = elements.bytes as usize;
    for (k, s) in list.iter().enumerate() {
        let s = *s as usize;
        let value = if elements.wide { registers.b64[s][lane] } else { u64::from(registers.b32[s][lane]) };
        out[k * size..(k + 1) * size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    out
}

/// The elements of one lane into memory.
#[inline(always)]
pub(super) fn store_lane(
    block: &mut Block,
    offset: usize,
    elements: Elements,
    list: &[u16],
    registers: &Registers,
    lane: usize,
) {
    let size = elements.bytes as usize;
    let bytes = lane_bytes(elements, list, registers, lane);
    block.data[offset..offset + elements.size()].copy_from_slice(&bytes[..elements.size()]);
    let file = if elements.wide { &registers.undef64 } else { &registers.undef32 };
    for (k, s) in list.iter().enumerate() {
        block.set_defined(offset + k * size, size, file[*s as usize] >> lane & 1 == 0);
    }
}

/// One address into all active lanes.
#[inline(always)]
pub(super) fn load_broadcast(
    block: &Block,
    offset: usize,
    elements: Elements,
    list: &[u16],
    registers: &mut Registers,
    act: u32,
) {
    let bytes = elements.bytes as usize;
    for (k, d) in list.iter().enumerate() {
        if *d == NONE {
            continue;
        }
        let (value, undefined) = element(block, offset + k * bytes, bytes);
        let value = extend(value, elements);
        let d = *d as usize;
        let u = if elements.wide {
            for (lane, out) in registers.b64[d].iter_mut().enumerate() {
                *out = if act >> lane & 1 != 0 { value } else { *out };
            }
            &mut registers.undef64[d]
        } else {
            for (lane, out) in registers.b32[d].iter_mut().enumerate() {
                *out = if act >> lane & 1 != 0 { value as u32 } else { *out };
            }
            &mut registers.undef32[d]
        };
        *u = *u & !act | if undefined { act } else { 0 };
    }
}

/// An element, and whether a byte of it is undefined.
#[inline(always)]
pub(super) fn element(block: &Block, at: usize, bytes: usize) -> (u64, bool) {
    let data = &block.data[at..at + bytes];
    let value = match bytes {
        1 => u64::from(data[0]),
        2 => u64::from(u16::from_le_bytes([data[0], data[1]])),
        4 => u64::from(word(data, 0)),
        _ => u64::from(word(data, 0)) | u64::from(word(data, 4)) << 32,
    };
    // Elements are aligned, so a narrow one lies in one word.
    let defined = match bytes {
        8 => block.defined[at / 4] & block.defined[at / 4 + 1] == 15,
        4 => block.defined[at / 4] == 15,
        _ => {
            let mask = ((1u8 << bytes) - 1) << (at % 4);
            block.defined[at / 4] & mask == mask
        }
    };
    (value, !defined)
}

/// Registers into consecutive elements.
#[inline(always)]
pub(super) fn store_run(block: &mut Block, offset: usize, elements: Elements, list: &[u16], registers: &Registers) {
    let (count, bytes) = (elements.count as usize, elements.bytes as usize);
    let words = bytes * count / 4 * LANES;
    for (k, s) in list.iter().enumerate() {
        let s = *s as usize;
        if bytes == 4 && !elements.wide {
            let values = &registers.b32[s];
            let data = &mut block.data[offset..offset + words * 4];
            match count {
                1 => scatter::<1>(data, 0, values),
                2 => scatter::<2>(data, k, values),
                4 => scatter::<4>(data, k, values),
                _ => scatter::<8>(data, k, values),
            }
        } else {
            for lane in 0..LANES {
                let value = if elements.wide { registers.b64[s][lane] } else { u64::from(registers.b32[s][lane]) };
                let at = offset + (lane * count + k) * bytes;
                block.data[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
        }
    }
    let undefined = stored_undefined(registers, elements, list);
    let defined = &mut block.defined[offset / 4..offset / 4 + words];
    if undefined == 0 {
        defined.fill(15);
        return;
    }
    let file = if elements.wide { &registers.undef64 } else { &registers.undef32 };
    for (k, s) in list.iter().enumerate() {
        for lane in 0..LANES {
            let nibble = if file[*s as usize] >> lane & 1 != 0 { 0 } else { 15 };
            let at = (lane * count + k) * bytes;
            if bytes >= 4 {
                defined[at / 4..(at + bytes) / 4].fill(nibble);
            } else {
                let mask = ((1u8 << bytes) - 1) << (at % 4);
                defined[at / 4] = defined[at / 4] & !mask | nibble & mask;
            }
        }
    }
}
