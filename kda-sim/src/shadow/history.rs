//! Segments, and sets of readers.
//!
//! A set of readers is a chain of nodes, shared between all cells that the same segments have read; a cell holds the
//! number of the last node.

use super::cell;
use super::clock::Clocks;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for small integer keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        let x = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// A map with small integer keys.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A node of a set of readers.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The rest of the set; at most the history's base for none.
    pub rest: u32,
    /// Segment.
    pub segment: u32,
    /// Bytes of the word, and bit 4 for a strong access.
    pub kind: u8,
    /// Operation.
    pub pc: u32,
}

/// How far a set is searched for elements that a new one replaces.
const SEARCH: usize = 48;

/// Segments and reader sets of one launch. Numbers go on from launch to launch, so shadow cells of earlier launches are
/// recognised by their numbers alone.
#[derive(Debug, Default)]
pub struct History {
    segment_base: u32,
    segments: Vec<(u32, u32)>,
    set_base: u32,
    sets: Vec<Reader>,
    transitions: FastMap<(u64, u64), u32>,
    /// Further writes of words that more than one segment wrote in part: by key of the word.
    pub extra: FastMap<u64, Vec<u64>>,
}

impl History {
    /// Forgets a launch, and keeps counting. False if the numbers are used up and the shadow cells must be cleared.
    pub fn next_launch(&mut self) -> bool {
        self.segment_base = self.last_segment();
        self.set_base = self.last_set();
        self.segments.clear();
        self.sets.clear();
        self.transitions.clear();
        self.extra.clear();
        let fits = self.segment_base < 1 << 30 && self.set_base < 1 << 30;
        if !fits {
            (self.segment_base, self.set_base) = (0, 0);
        }
        fits
    }

    /// The last segment given out.
    pub fn last_segment(&self) -> u32 {
        self.segment_base + self.segments.len() as u32
    }

    /// The last set given out.
    pub fn last_set(&self) -> u32 {
        self.set_base + self.sets.len() as u32
    }

    /// The last numbers of the launch before.
    pub fn bases(&self) -> (u32, u32) {
        (self.segment_base, self.set_base)
    }

    /// A new segment.
    pub fn segment(&mut self, agent: u32, clock: u32) -> u32 {
        self.segments.push((agent, clock));
        self.last_segment()
    }

    /// Agent and clock of a segment of this launch.
    #[inline]
    pub fn of(&self, segment: u32) -> (u32, u32) {
        self.segments[(segment - self.segment_base - 1) as usize]
    }

    /// The node of a set of this launch.
    #[inline]
    pub fn node(&self, set: u32) -> Reader {
        self.sets[(set - self.set_base - 1) as usize]
    }

    /// Keeps a write that a later one of other bytes, or of another atomic, would hide. Of each lane of an agent the
    /// latest is kept, for each set of bytes.
    pub fn keep_write(&mut self, key: u64, stamp: u64) {
        let base = self.segment_base;
        let who = |s: u64, segments: &[(u32, u32)]| {
            (segments[(cell::segment(s) - base - 1) as usize].0, cell::lane(s), cell::bytes(s))
        };
        let kept = self.extra.entry(key).or_default();
        let segments = &self.segments;
        let recent = kept.iter().rev().take(8).position(|s| who(*s, segments) == who(stamp, segments));
        if let Some(back) = recent {
            let at = kept.len() - 1 - back;
            kept[at] = stamp;
            return;
        }
        kept.push(stamp);
        if kept.len() >= 16 && kept.len().is_power_of_two() {
            // Later segments have greater numbers.
            kept.sort_unstable_by_key(|s| (who(*s, segments), std::cmp::Reverse(*s >> 32)));
            kept.dedup_by_key(|s| who(*s, segments));
        }
    }

    /// The set with one more reader. Readers that the new one's clocks cover leave it: who is ordered after the new
    /// reader is ordered after them. The new reader is the last node, as the cell describes the lanes of that one.
    pub fn with_reader(&mut self, set: u32, segment: u32, kind: u8, pc: u32, clocks: &Clocks) -> u32 {
        let set = if set <= self.set_base { 0 } else { set };
        let key = (u64::from(set) << 32 | u64::from(segment), u64::from(pc) << 8 | u64::from(kind));
        if let Some(next) = self.transitions.get(&key) {
            return *next;
        }
        let (agent, _) = self.of(segment);
        let mut kept: Vec<Reader> = Vec::new();
        let mut dropped = false;
        let mut at = set;
        let mut contained = false;
        for _ in 0..SEARCH {
            if at <= self.set_base {
                break;
            }
            let node = self.node(at);
            if at == set && node.segment == segment && node.kind == kind {
                contained = true;
                break;
            }
            let (who, clock) = self.of(node.segment);
            if node.kind == kind && (who == agent || clock <= clocks.get(who).generic.all) {
                dropped = true;
            } else {
                kept.push(node);
            }
            at = node.rest;
        }
        let next = if contained {
            set
        } else {
            let rest = if dropped {
                let mut rest = at;
                for node in kept.into_iter().rev() {
                    rest = self.push(Reader { rest, ..node });
                }
                rest
            } else {
                set
            };
            self.push(Reader { rest, segment, kind, pc })
        };
        self.transitions.insert(key, next);
        next
    }

    fn push(&mut self, node: Reader) -> u32 {
        let key = (
            u64::from(node.rest) << 32 | u64::from(node.segment),
            u64::from(node.pc) << 8 | u64::from(node.kind) | 1 << 63,
        );
        if let Some(set) = self.transitions.get(&key) {
            return *set;
        }
        self.sets.push(node);
        let set = self.last_set();
        self.transitions.insert(key, set);
        set
    }
}
