//! Bits of a shadow cell.
//!
//! A *stamp* describes an access to a word: segment (or, for reads, the set of readers) in bits 32..64, operation in
//! 13..32, lane in 7..13, bytes in 3..7, then three flags.

use super::clock::MANY_LANES;

/// Low half by the lane of the stamp, high half by the next lane.
pub const PAIR: u64 = 1 << 2;
/// A strong access.
pub const STRONG: u64 = 1 << 1;
/// Further writes of the word stand in the history.
pub const EXTRA: u64 = 1;
/// All four bytes, in place.
pub const ALL_BYTES: u64 = 0xf << 3;

/// All but the segment.
#[inline(always)]
pub fn info(pc: u32, lane: u32, bytes: u32) -> u64 {
    u64::from(pc << 13 | lane << 7 | bytes << 3)
}

/// Segment or set.
#[inline(always)]
pub fn segment(stamp: u64) -> u32 {
    (stamp >> 32) as u32
}

/// Operation.
#[inline(always)]
pub fn pc(stamp: u64) -> u32 {
    stamp as u32 >> 13
}

/// Lane field.
#[inline(always)]
pub fn lane(stamp: u64) -> u32 {
    stamp as u32 >> 7 & 63
}

/// Bytes of the word.
#[inline(always)]
pub fn bytes(stamp: u64) -> u32 {
    stamp as u32 >> 3 & 15
}

/// The lane that accessed some of the bytes, or [`MANY_LANES`].
#[inline(always)]
pub fn lane_of(stamp: u64, bytes: u32) -> u32 {
    if stamp & PAIR == 0 {
        return lane(stamp);
    }
    match (bytes & 3 != 0, bytes & 12 != 0) {
        (true, true) => MANY_LANES,
        (true, false) => lane(stamp),
        _ => lane(stamp) + 1,
    }
}
