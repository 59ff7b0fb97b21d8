//! A growing table of numbers that is read without a lock.
//!
//! The hot path turns a libfabric address into the engine's peer index with it, and a completion's
//! peer back. Entries live in chunks that double in size and never move, so a reader needs two
//! loads and no lock even while another thread inserts.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The value of an entry nobody has set.
pub const NONE: u64 = u64::MAX;

/// Entries in the first chunk.
const FIRST: u64 = 64;
/// Chunks, enough for 2^30 entries.
const CHUNKS: usize = 24;

/// The table.
pub struct Table {
    chunks: [AtomicPtr<AtomicU64>; CHUNKS],
}

/// The chunk an index lies in, and its place there.
#[inline]
fn place(index: u64) -> (usize, usize) {
    let shifted = index.saturating_add(FIRST);
    let chunk = (63 - shifted.leading_zeros() as usize) - FIRST.trailing_zeros() as usize;
    (chunk, (shifted - (FIRST << chunk.min(CHUNKS))) as usize)
}

impl Table {
    /// An empty table; allocates nothing.
    pub const fn new() -> Table {
        Table { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS] }
    }

    /// The entry at `index`, or [`NONE`].
    #[inline]
    pub fn get(&self, index: u64) -> u64 {
        let (chunk, at) = place(index);
        let Some(first) = self.chunks.get(chunk).map(|c| c.load(Ordering::Acquire)).filter(|p| !p.is_null()) else {
            return NONE;
        };
        // SAFETY: a chunk that is set has `FIRST << chunk` entries and lives as long as the table;
        // `place` gives an index below that.
        unsafe { (*first.add(at)).load(Ordering::Relaxed) }
    }

    /// Sets the entry at `index`. False when the index is beyond the largest table.
    pub fn set(&self, index: u64, value: u64) -> bool {
        let (chunk, at) = place(index);
        let Some(slot) = self.chunks.get(chunk) else { return false };
        let mut first = slot.load(Ordering::Acquire);
        if first.is_null() {
            let entries: Box<[AtomicU64]> = (0..FIRST << chunk).map(|_| AtomicU64::new(NONE)).collect();
            let fresh = Box::into_raw(entries).cast::<AtomicU64>();
            first = match slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => fresh,
                Err(other) => {
                    // SAFETY: `fresh` came from a box of this length and was seen by nobody else.
                    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(fresh, (FIRST << chunk) as usize)) });
                    other
                }
            };
        }
        // SAFETY: as in `get`.
        unsafe { (*first.add(at)).store(value, Ordering::Relaxed) };
        true
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for (chunk, slot) in self.chunks.iter().enumerate() {
            let first = slot.load(Ordering::Acquire);
            if !first.is_null() {
                // SAFETY: chunks come from boxes of this length and nobody reads any more
                // (`&mut self`).
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, (FIRST << chunk) as usize)) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_values_across_chunks() {
        let t = Table::new();
        for i in 0..10_000u64 {
            assert_eq!(t.get(i), NONE);
            assert!(t.set(i, i * 3));
        }
        for i in 0..10_000u64 {
            assert_eq!(t.get(i), i * 3);
        }
    }

    #[test]
    fn absurd_indices_are_empty_and_cannot_be_set() {
        let t = Table::new();
        for i in [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 40] {
            assert_eq!(t.get(i), NONE);
            assert!(!t.set(i, 1));
        }
    }

    #[test]
    fn readers_and_writers_may_meet() {
        let t = std::sync::Arc::new(Table::new());
        let threads: Vec<_> = (0..4u64)
            .map(|k| {
                let t = t.clone();
                std::thread::spawn(move || (0..2000).for_each(|i| assert!(t.set(i * 4 + k, i))))
            })
            .collect();
        for thread in threads {
            thread.join().expect("thread");
        }
        assert!((0..8000).all(|i| t.get(i) == i / 4));
    }
}
