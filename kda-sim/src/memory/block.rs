//! A piece of memory: bytes, which of them are defined, and shadow cells.

use crate::shadow::check::Cells;

/// Bytes of a power-of-two size, with one definedness nibble and two shadow cells a word.
#[derive(Debug)]
pub struct Block {
    /// Bytes.
    pub data: Vec<u8>,
    /// A word's defined bytes, in the low four bits.
    pub defined: Vec<u8>,
    /// Last write of each word; empty until the first access that is checked.
    pub writes: Vec<u64>,
    /// Reads of each word since.
    pub reads: Vec<u64>,
}

impl Block {
    /// An undefined block.
    pub fn new(bytes: usize) -> Block {
        let words = bytes.div_ceil(4);
        Block { data: vec![0; words * 4], defined: vec![0; words], writes: Vec::new(), reads: Vec::new() }
    }

    /// Makes the shadow cells exist.
    #[inline(always)]
    pub fn shadow(&mut self) {
        if self.writes.is_empty() {
            self.writes = vec![0; self.defined.len()];
            self.reads = vec![0; self.defined.len()];
        }
    }

    /// Forgets all accesses.
    pub fn clear_shadow(&mut self) {
        self.writes.fill(0);
        self.reads.fill(0);
    }

    /// Shadow cells of some words; [`Block::shadow`] comes first.
    #[inline(always)]
    pub fn cells(&mut self, word: usize, words: usize, key: u64) -> Cells<'_> {
        let range = word..word + words;
        Cells { writes: &mut self.writes[range.clone()], reads: &mut self.reads[range], key: key + word as u64 }
    }

    /// Marks bytes as defined.
    pub fn define(&mut self, offset: usize, length: usize) {
        self.set_defined(offset, length, true);
    }

    /// Marks bytes as defined or not.
    pub fn set_defined(&mut self, offset: usize, length: usize, defined: bool) {
        if offset.is_multiple_of(4) && length.is_multiple_of(4) {
            self.defined[offset / 4..(offset + length) / 4].fill(if defined { 15 } else { 0 });
            return;
        }
        for byte in offset..offset + length {
            let bit = 1 << (byte % 4);
            let nibble = &mut self.defined[byte / 4];
            *nibble = if defined { *nibble | bit } else { *nibble & !bit };
        }
    }

    /// True if all the bytes are defined.
    #[inline(always)]
    pub fn is_defined(&self, offset: usize, length: usize) -> bool {
        if offset.is_multiple_of(4) && length.is_multiple_of(4) {
            return self.defined[offset / 4..(offset + length) / 4].iter().all(|n| *n == 15);
        }
        (offset..offset + length).all(|byte| self.defined[byte / 4] >> (byte % 4) & 1 != 0)
    }
}
