//! Memory that is handed to programs: `BMI_memalloc`, and the buffers of unexpected messages
//! (spec/bmi.md M7, M8).

use crate::tables::ByNumber;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

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

    /// With the bytes of a message; none when the system has no memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Block> {
        // (Less than its alignment would need a more costly call of the allocator.)
        let layout = Layout::from_size_align(bytes.len().max(ALIGN_MESSAGE), ALIGN_MESSAGE).ok()?;
        // SAFETY: the size is at least 1.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            return None;
        }
        // SAFETY: as many bytes as there are of `bytes`, just allocated.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, bytes.len()) };
        Some(Block { base, layout, len: bytes.len() })
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

/// Memory that a method made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Which method.
    pub method: usize,
    /// As asked for.
    pub size: i64,
    /// To send or to receive.
    pub direction: i32,
}

/// What memory was handed out as, and so how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A program's own: `BMI_memalloc` to `BMI_memfree`.
    Program,
    /// An unexpected message: to `BMI_unexpected_free`.
    Message,
}

/// What is handed out and not given back, by address.
#[derive(Debug, Default)]
pub struct Lent {
    blocks: ByNumber<usize, (Block, Use)>,
    made: BTreeMap<usize, Made>,
}

impl Lent {
    /// Memory for a program, zeroed; null when there is none.
    pub fn allocate(&mut self, len: usize) -> *mut u8 {
        Block::new(len, ALIGN).map_or(std::ptr::null_mut(), |block| self.lend(block, Use::Program))
    }

    /// Hands a message out.
    pub fn hand_out(&mut self, block: Block) -> *mut u8 {
        self.lend(block, Use::Message)
    }

    fn lend(&mut self, block: Block, to: Use) -> *mut u8 {
        let base = block.base;
        self.blocks.insert(base as usize, (block, to));
        base
    }

    /// Hands out what a method made; false if that is handed out already.
    pub fn lend_made(&mut self, base: *mut u8, made: Made) -> bool {
        let at = base as usize;
        !self.blocks.contains_key(&at) && *self.made.entry(at).or_insert(made) == made
    }

    /// Takes back what a method made.
    pub fn take_made(&mut self, base: *mut u8) -> Option<Made> {
        self.made.remove(&(base as usize))
    }

    /// All that methods made and nobody gave back.
    pub fn take_all_made(&mut self) -> impl Iterator<Item = (*mut u8, Made)> {
        std::mem::take(&mut self.made).into_iter().map(|(base, made)| (base as *mut u8, made))
    }

    /// Whether all of these bytes are of one piece that this method made.
    #[must_use]
    pub fn is_of(&self, method: usize, base: *mut u8, len: usize) -> bool {
        let at = base as usize;
        let Some((&begin, made)) = self.made.range(..=at).next_back() else { return false };
        made.method == method
            && (at - begin).checked_add(len).is_some_and(|end| end as u64 <= made.size.cast_unsigned())
    }

    /// Takes one back; false when it was never handed out, not as this, or is back already.
    pub fn give_back(&mut self, base: *mut u8, from: Use) -> bool {
        match self.blocks.entry(base as usize) {
            Entry::Occupied(block) if block.get().1 == from => {
                block.remove();
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U3.
    #[test]
    fn memory_that_a_method_made_is_known_by_all_of_its_bytes() {
        let mut lent = Lent::default();
        let at = |n: usize| n as *mut u8;
        let made = Made { method: 2, size: 100, direction: 1 };
        assert!(lent.lend_made(at(1000), made) && !lent.lend_made(at(1000), Made { size: 7, ..made }));
        assert!(lent.is_of(2, at(1000), 100) && lent.is_of(2, at(1099), 1) && lent.is_of(2, at(1100), 0));
        assert!(!lent.is_of(2, at(1000), 101) && !lent.is_of(2, at(999), 1) && !lent.is_of(1, at(1000), 1));
        assert!(!lent.is_of(2, at(1050), usize::MAX));
        assert_eq!((lent.take_made(at(1000)), lent.take_made(at(1000))), (Some(made), None));
    }

    #[test]
    fn memory_is_zeroed_aligned_and_given_back_once() {
        let mut lent = Lent::default();
        for len in [0, 1, 4096, 100_000] {
            let base = lent.allocate(len);
            assert!(!base.is_null() && (base as usize).is_multiple_of(ALIGN));
            // SAFETY: just allocated with this length.
            assert!(unsafe { std::slice::from_raw_parts(base, len) }.iter().all(|b| *b == 0));
            assert!(!lent.give_back(base, Use::Message));
            assert!(lent.give_back(base, Use::Program) && !lent.give_back(base, Use::Program));
        }
        let message = lent.hand_out(Block::for_message(5).expect("memory"));
        assert!(!lent.give_back(message, Use::Program) && lent.give_back(message, Use::Message));
        assert!(!lent.give_back(std::ptr::null_mut(), Use::Program));
        assert!(lent.allocate(usize::MAX).is_null());
    }
}
