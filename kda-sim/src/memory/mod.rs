//! Device memory: a sparse 64-bit address space.
//!
//! | question | module |
//! | --- | --- |
//! | bytes, their definedness and their shadow cells | `block` |
//! | allocations and pages | here |
//!
//! Every allocation begins on a page of its own, and a page that belongs to none follows it, so that no offset past
//! an end reaches another allocation unnoticed. Pages are made when they are first written: a pool of many gigabytes costs
//! what is touched.

pub(crate) mod block;

use crate::shadow::history::History;
use block::Block;
use kda_core::exec::ExecError;

/// First address given out.
pub const GLOBAL_BASE: u64 = 0x7f00_0000_0000;
/// Start of shared memory in the generic address space.
pub const SHARED_WINDOW: u64 = 0x7e00_0000_0000;
/// Start of the parameters in the generic address space.
pub const PARAM_WINDOW: u64 = 0x7d00_0000_0000;

const PAGE_BITS: u32 = 16;
/// Bytes of a page.
pub const PAGE: u64 = 1 << PAGE_BITS;

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Address.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Still allocated.
    pub live: bool,
    /// A grid before the next launch may still be writing it.
    pub unsettled: bool,
    /// The last dependent launch accessed it ahead of its wait.
    pub early: bool,
}

#[derive(Debug, Default)]
struct Page {
    /// Number of the allocation, from 1; 0 for none.
    owner: u32,
    block: Option<Box<Block>>,
}

/// Device memory, with the shadow of past accesses.
#[derive(Debug, Default)]
pub struct Memory {
    pages: Vec<Page>,
    allocations: Vec<Allocation>,
    /// The next launch depends on a grid that may still run.
    pub(crate) dependent: bool,
    pub(crate) history: History,
}

impl Memory {
    /// Empty memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates; the contents are undefined. The address is a multiple of 256.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, ExecError> {
        let first = self.pages.len() as u64;
        let pages = bytes.div_ceil(PAGE).max(1);
        if first + pages > 1 << 26 {
            return Err(ExecError::Unsupported(format!("{bytes} bytes do not fit the 4 TiB of the simulator")));
        }
        let base = GLOBAL_BASE + (first << PAGE_BITS);
        self.allocations.push(Allocation { base, bytes, live: true, unsettled: false, early: false });
        let owner = self.allocations.len() as u32;
        self.pages.extend((0..pages).map(|_| Page { owner, block: None }));
        self.pages.push(Page::default());
        Ok(base)
    }

    /// Frees an allocation. Its addresses are not given out again.
    pub fn free(&mut self, ptr: u64) -> Result<(), ExecError> {
        let known = self.allocations.iter_mut().find(|a| a.base == ptr && a.live);
        let Some(allocation) = known else { return Err(ExecError::BadPointer { ptr, bytes: 0 }) };
        allocation.live = false;
        let first = ((ptr - GLOBAL_BASE) >> PAGE_BITS) as usize;
        let pages = allocation.bytes.div_ceil(PAGE).max(1) as usize;
        for page in &mut self.pages[first..first + pages] {
            page.block = None;
        }
        Ok(())
    }

    /// The allocation that a pointer belongs to, freed ones included.
    pub fn allocation_of(&self, ptr: u64) -> Option<Allocation> {
        let page = self.pages.get((ptr.checked_sub(GLOBAL_BASE)? >> PAGE_BITS) as usize)?;
        (page.owner > 0).then(|| self.allocations[page.owner as usize - 1])
    }

    /// The next launch depends on a grid that may still be writing the allocations of these pointers. Whoever accesses one of
    /// them before its warp knows of a `griddepcontrol.wait` is reported.
    pub fn depend(&mut self, unsettled: &[u64]) {
        self.dependent = true;
        for allocation in &mut self.allocations {
            allocation.early = false;
        }
        for pointer in unsettled {
            if let Some(allocation) = self.owner(*pointer) {
                allocation.unsettled = true;
            }
        }
    }

    /// A launch is over, and so is the grid before it.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.dependent) {
            for allocation in &mut self.allocations {
                allocation.unsettled = false;
            }
        }
    }

    /// Notes an access ahead of the wait; true if the grid before may still be writing there.
    pub(crate) fn access_early(&mut self, ptr: u64) -> bool {
        self.owner(ptr).is_some_and(|allocation| {
            allocation.early = true;
            allocation.unsettled
        })
    }

    fn owner(&mut self, ptr: u64) -> Option<&mut Allocation> {
        let page = self.pages.get((ptr.checked_sub(GLOBAL_BASE)? >> PAGE_BITS) as usize)?;
        self.allocations.get_mut((page.owner as usize).checked_sub(1)?)
    }

    /// The allocation that ends last before an address: what a pointer out of bounds has probably left.
    pub fn allocation_before(&self, ptr: u64) -> Option<Allocation> {
        self.allocations.iter().filter(|a| a.base <= ptr).max_by_key(|a| a.base).copied()
    }

    /// Number of bytes of pages that exist.
    pub fn committed_bytes(&self) -> u64 {
        self.pages.iter().filter(|p| p.block.is_some()).count() as u64 * PAGE
    }

    /// True if the bytes belong to one live allocation.
    #[inline(always)]
    pub(crate) fn contains(&self, ptr: u64, bytes: u64) -> bool {
        let Some(page) = self.pages.get((ptr.wrapping_sub(GLOBAL_BASE) >> PAGE_BITS) as usize) else { return false };
        let Some(allocation) = self.allocations.get((page.owner as usize).wrapping_sub(1)) else { return false };
        allocation.live && ptr >= allocation.base && ptr - allocation.base + bytes <= allocation.bytes
    }

    /// The page of an address inside an allocation; made if needed.
    #[inline(always)]
    pub(crate) fn block_mut(&mut self, ptr: u64) -> &mut Block {
        let page = &mut self.pages[((ptr - GLOBAL_BASE) >> PAGE_BITS) as usize];
        page.block.get_or_insert_with(|| Box::new(Block::new(PAGE as usize)))
    }

    /// Page and history at once.
    #[inline(always)]
    pub(crate) fn block_and_history(&mut self, ptr: u64) -> (&mut Block, &mut History) {
        let page = &mut self.pages[((ptr - GLOBAL_BASE) >> PAGE_BITS) as usize];
        (page.block.get_or_insert_with(|| Box::new(Block::new(PAGE as usize))), &mut self.history)
    }

    fn check(&self, ptr: u64, bytes: u64) -> Result<(), ExecError> {
        if bytes == 0 || self.contains(ptr, bytes) { Ok(()) } else { Err(ExecError::BadPointer { ptr, bytes }) }
    }

    /// Pieces of a range that lie in one page each: address, offset in the page, offset in the range, length.
    fn pieces(ptr: u64, bytes: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        let mut at = 0u64;
        std::iter::from_fn(move || {
            (at < bytes).then(|| {
                let address = ptr + at;
                let offset = address & (PAGE - 1);
                let length = (PAGE - offset).min(bytes - at);
                let piece = (address, offset as usize, at as usize, length as usize);
                at += length;
                piece
            })
        })
    }

    /// Copies host bytes into an allocation, and makes them defined.
    pub fn write(&mut self, ptr: u64, bytes: &[u8]) -> Result<(), ExecError> {
        self.check(ptr, bytes.len() as u64)?;
        for (address, offset, at, length) in Memory::pieces(ptr, bytes.len() as u64) {
            let block = self.block_mut(address);
            block.data[offset..offset + length].copy_from_slice(&bytes[at..at + length]);
            block.define(offset, length);
        }
        Ok(())
    }

    /// Copies bytes of an allocation to the host; undefined ones are whatever they are.
    pub fn read(&self, ptr: u64, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.check(ptr, bytes.len() as u64)?;
        for (address, offset, at, length) in Memory::pieces(ptr, bytes.len() as u64) {
            let page = &self.pages[((address - GLOBAL_BASE) >> PAGE_BITS) as usize];
            match &page.block {
                Some(block) => bytes[at..at + length].copy_from_slice(&block.data[offset..offset + length]),
                None => bytes[at..at + length].fill(0),
            }
        }
        Ok(())
    }

    /// True if every byte of a range has been written.
    pub fn is_defined(&self, ptr: u64, bytes: u64) -> Result<bool, ExecError> {
        self.check(ptr, bytes)?;
        Ok(Memory::pieces(ptr, bytes).all(|(address, offset, _, length)| {
            let page = &self.pages[((address - GLOBAL_BASE) >> PAGE_BITS) as usize];
            page.block.as_ref().is_some_and(|block| block.is_defined(offset, length))
        }))
    }

    /// Fills a range with a byte, and makes it defined.
    pub fn fill(&mut self, ptr: u64, byte: u8, bytes: u64) -> Result<(), ExecError> {
        self.check(ptr, bytes)?;
        for (address, offset, _, length) in Memory::pieces(ptr, bytes) {
            let block = self.block_mut(address);
            block.data[offset..offset + length].fill(byte);
            block.define(offset, length);
        }
        Ok(())
    }

    /// Prepares the shadow for a launch: everything before it is ordered before it.
    pub(crate) fn next_launch(&mut self) {
        if !self.history.next_launch() {
            for block in self.pages.iter_mut().filter_map(|p| p.block.as_mut()) {
                block.clear_shadow();
            }
        }
    }
}
