//! Memory that is handed to programs: `BMI_memalloc`, and the buffers of unexpected messages (spec/bmi.md M7, M8).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

/// Pages: whoever maps or reads the memory from elsewhere does so by pages.
const ALIGN: usize = 4096;
/// Of a message.
const ALIGN_MESSAGE: usize = 16;
/// More than any message; keeps sizes far from overflow.
const BYTES_MAX: usize = 1 << 40;

/// A buffer, freed when it is dropped.
#[derive(Debug)]
pub struct Block {
    base: *mut u8,
    layout: Layout,
    /// As asked for.
    len: usize,
}

// SAFETY: the block is the only owner of its memory.
unsafe impl Send for Block {}

impl Block {
    fn new(len: usize, align: usize) -> Option<Block> {
        let layout = Layout::from_size_align(len.max(1), align).ok().filter(|_| len <= BYTES_MAX)?;
        // SAFETY: the size is at least 1.
        let base = unsafe { alloc_zeroed(layout) };
        (!base.is_null()).then_some(Block { base, layout, len })
    }

    /// For a message of this length; none when the system has no memory.
    #[must_use]
    pub fn for_message(len: usize) -> Option<Block> {
        Block::new(len, ALIGN_MESSAGE)
    }

    /// First byte.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A message of no bytes has a buffer too.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `base` on are initialised and this block's own.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed here only.
        unsafe { dealloc(self.base, self.layout) }
    }
}

/// What is handed out and not given back, by address.
#[derive(Debug, Default)]
pub struct Lent {
    blocks: HashMap<usize, Block>,
}

impl Lent {
    /// Memory for a program, zeroed; null when there is none.
    pub fn allocate(&mut self, len: usize) -> *mut u8 {
        Block::new(len, ALIGN).map_or(std::ptr::null_mut(), |block| self.lend(block))
    }

    /// Hands a block out.
    pub fn lend(&mut self, block: Block) -> *mut u8 {
        let base = block.base;
        self.blocks.insert(base as usize, block);
        base
    }

    /// Takes one back; false when it was never handed out, or is back already.
    pub fn give_back(&mut self, base: *mut u8) -> bool {
        self.blocks.remove(&(base as usize)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_given_back_once() {
        let mut lent = Lent::default();
        for len in [0, 1, 4096, 100_000] {
            let base = lent.allocate(len);
            assert!(!base.is_null() && (base as usize).is_multiple_of(ALIGN));
            // SAFETY: just allocated with this length.
            assert!(unsafe { std::slice::from_raw_parts(base, len) }.iter().all(|b| *b == 0));
            assert!(lent.give_back(base) && !lent.give_back(base));
        }
        assert!(!lent.give_back(std::ptr::null_mut()));
        assert!(lent.allocate(usize::MAX).is_null());
    }
}
