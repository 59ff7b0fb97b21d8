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

    /// Whether so many bytes may be put to this offset of what the program calls so.
    #[inline]
    #[must_use]
    pub fn takes(&self, base: usize, offset: usize, len: usize) -> bool {
        let end = (offset as u64).checked_add(len as u64);
        self.base == base && end.is_some_and(|end| end <= self.end)
    }
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
    count: usize,
    /// So many have room, in the block and in what the process may buffer.
    limit: usize,
    /// Bytes of each.
    len: usize,
    starts: [u64; BLOCK],
    values: [u64; BLOCK],
}

impl Default for Short {
    fn default() -> Self {
        Short { base: 0, eights: 0, start: 0, count: 0, limit: 0, len: 0, starts: [0; BLOCK], values: [0; BLOCK] }
    }
}

impl Short {
    /// Puts eight bytes where the last ones went, if there is room. False: nothing was done.
    #[inline]
    pub fn put_eight(&mut self, base: usize, offset: usize, value: impl FnOnce() -> u64) -> bool {
        if self.base != base || offset as u64 >= self.eights || self.count >= self.limit {
            return false;
        }
        self.push(offset, value());
        true
    }

    #[inline]
    fn push(&mut self, offset: usize, value: u64) {
        // (What is below the limit is below this.)
        let at = self.count % BLOCK;
        (self.starts[at], self.values[at]) = (self.start + offset as u64, value);
        self.count += 1;
    }

    /// Whether one of so many bytes has room.
    #[inline]
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.len == len && self.count < self.limit
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
        let limit = (free / PACKED_MAX as u64).min(BLOCK as u64);
        (self.len, self.limit) = (len, limit as usize);
        limit * PACKED_MAX as u64
    }

    /// What it was given when it began.
    #[inline]
    #[must_use]
    pub fn reserved(&self) -> u64 {
        (self.limit * PACKED_MAX) as u64
    }

    /// Packs what is here. Nothing has room until another block begins.
    pub fn pack(&mut self, to: &mut Records) {
        let (starts, values) = (&self.starts[..self.count], &self.values[..self.count]);
        match self.len {
            8 => to.pack::<8>(starts, values),
            4 => to.pack::<4>(starts, values),
            2 => to.pack::<2>(starts, values),
            _ => to.pack::<1>(starts, values),
        }
        (self.count, self.limit) = (0, 0);
    }
}
