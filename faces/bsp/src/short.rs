//! Short puts (1, 2, 4 or 8 bytes) to one process, as they are called: collected a block at a time,
//! and packed when it is full (`spec/bsp.md` 6.27). 10 000 of them in a superstep are what this
//! library is measured by (`docs/lab/2026-11-29-bsp-puts.md`): one more is a matter of a few looks.
#![forbid(unsafe_code)]

use crate::packing::{BLOCK, PACKED_MAX, Records, SHORT_AREA, start_of};

/// An area that short puts are made to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aim {
    /// What the program calls it by; 0: there is none.
    base: usize,
    /// Short puts end below this offset; 0: none is made.
    end: u64,
    /// What the first word of a record has of it.
    start: u64,
}

impl Aim {
    /// An area of so many bytes. No short put is made to one that no short record can name.
    #[must_use]
    pub fn of(base: usize, slot: u32, size: u64) -> Aim {
        start_of(slot, 0).map_or(Aim::default(), |start| Aim { base, end: size.min(SHORT_AREA), start })
    }

    /// What the first word of a record has of it and an offset in it.
    #[inline]
    #[must_use]
    pub fn start(&self, offset: usize) -> u64 {
        self.start + offset as u64
    }

    /// Whether so many bytes may be put to this offset of what the program calls so.
    #[inline]
    #[must_use]
    pub fn takes(&self, base: usize, offset: usize, len: usize) -> bool {
        let end = (offset as u64).checked_add(len as u64);
        self.base == base && end.is_some_and(|end| end <= self.end)
    }
}

/// So many of one length to one area, one after another, are put by themselves before a block
/// begins: often there are no others, or they go to several areas, or have several lengths, by
/// turns.
const ALONE: usize = 3;

/// What is to be done about a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It has room in the block.
    Block,
    /// So it has when a block has begun.
    Begin,
    /// It is put by itself, behind what is in the block.
    Alone,
}

/// A block of them. What is looked at for each comes first: a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Short {
    /// Of the last one; ...
    base: usize,
    /// ... eight bytes may be put to offsets below this without another question.
    eights: u64,
    start: u64,
    /// Where the next one goes: from the first place that the process may use to the block's end.
    next: usize,
    first: usize,
    /// Bytes of each.
    len: usize,
    /// To where the last one went that was put alone, its bytes, and how many like it did before
    /// it.
    alone: (usize, usize, usize),
    starts: [u64; BLOCK],
    values: [u64; BLOCK],
}

impl Default for Short {
    fn default() -> Self {
        let (starts, values) = ([0; BLOCK], [0; BLOCK]);
        Short { base: 0, eights: 0, start: 0, next: BLOCK, first: BLOCK, len: 0, alone: (0, 0, 0), starts, values }
    }
}

impl Short {
    /// Puts eight bytes where the last ones went, if there is room, and a value. False: nothing was
    /// done.
    #[inline]
    pub fn put_eight(&mut self, base: usize, offset: usize, value: impl FnOnce() -> Option<u64>) -> bool {
        if self.base != base || offset as u64 >= self.eights || self.next >= BLOCK {
            return false;
        }
        let Some(value) = value() else { return false };
        self.push(offset, value);
        true
    }

    #[inline]
    fn push(&mut self, offset: usize, value: u64) {
        let (starts, values) = (self.starts.get_mut(self.next), self.values.get_mut(self.next));
        if let (Some(start), Some(to)) = (starts, values) {
            (*start, *to) = (self.start + offset as u64, value);
            self.next += 1;
        }
    }

    /// Whether nothing is here.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// What is to be done about a put of so many bytes; `is_first`: nothing was put in this
    /// superstep before.
    #[inline]
    pub fn way(&mut self, aim: &Aim, len: usize, is_first: bool) -> Way {
        if self.base == aim.base && self.len == len {
            return if self.next < BLOCK { Way::Block } else { Way::Begin };
        }
        let (last, bytes, before) = self.alone;
        let alone = if (last, bytes) == (aim.base, len) && !is_first { before + 1 } else { 0 };
        self.alone = (aim.base, len, alone);
        if alone < ALONE { Way::Alone } else { Way::Begin }
    }

    /// Puts so many bytes, which have room and are within the area.
    #[inline]
    pub fn put(&mut self, aim: &Aim, offset: usize, value: u64) {
        let eights = if self.len == 8 { aim.end.saturating_sub(7) } else { 0 };
        (self.base, self.eights, self.start) = (aim.base, eights, aim.start);
        self.push(offset, value);
    }

    /// An empty block begins, of puts of so many bytes, where `free` bytes may be buffered: how
    /// many of them are its own from now on.
    pub fn begin(&mut self, len: usize, free: u64) -> u64 {
        let room = (free / PACKED_MAX as u64).min(BLOCK as u64) as usize;
        (self.len, self.first) = (len, BLOCK - room);
        self.next = self.first;
        self.reserved()
    }

    /// What it was given when it began.
    #[inline]
    #[must_use]
    pub fn reserved(&self) -> u64 {
        ((BLOCK - self.first) * PACKED_MAX) as u64
    }

    /// Packs what is here. Nothing has room until another block begins.
    pub fn pack(&mut self, to: &mut Records) {
        let (starts, values) = (&self.starts[self.first..self.next], &self.values[self.first..self.next]);
        match self.len {
            8 => to.pack::<8>(starts, values),
            4 => to.pack::<4>(starts, values),
            2 => to.pack::<2>(starts, values),
            _ => to.pack::<1>(starts, values),
        }
        (self.next, self.first, self.base, self.eights) = (BLOCK, BLOCK, 0, 0);
    }
}
