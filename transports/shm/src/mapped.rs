//! A pair's memory: the control page and the two rings in it (spec/shm.md 2), and the page that
//! tells a forked child from its parent.

use crate::ring::{Control, LINE, Memory};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Mapping};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of one ring.
pub const RING_BYTES: usize = 256 << 10;
/// Bytes before the rings: the control words of both directions. One page wherever pages are small.
const CONTROL_BYTES: usize = 4096;
/// Bytes of a pair's memory.
pub const MEMORY_BYTES: usize = CONTROL_BYTES + 2 * RING_BYTES;

const _: () = assert!(size_of::<Control>() == 4 * LINE && 2 * size_of::<Control>() <= CONTROL_BYTES);

/// One of the two rings of a pair, in its mapping.
#[derive(Clone, Debug)]
pub struct MappedRing {
    control: NonNull<Control>,
    data: NonNull<AtomicU64>,
    /// Keeps the addresses valid.
    _mapping: Arc<Mapping>,
}

// SAFETY: both addresses are of atomics in memory that the mapping keeps; nothing is bound to a
// thread.
unsafe impl Send for MappedRing {}
// SAFETY: as above.
unsafe impl Sync for MappedRing {}

impl Memory for MappedRing {
    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: aligned, within the mapping that `_mapping` keeps, and of atomics (and padding
        // nobody reads), so that the peer may write there at any time.
        unsafe { self.control.as_ref() }
    }
    #[inline]
    fn data(&self) -> &[AtomicU64] {
        // SAFETY: as above; `pair` has put the address so that the whole ring lies in the mapping.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), RING_BYTES / 8) }
    }
}

/// Maps a pair's memory; the mapping, and the rings from the connector and to it.
///
/// # Errors
/// The system's.
pub fn map_pair(memory: &OwnedFd) -> io::Result<(Arc<Mapping>, [MappedRing; 2])> {
    let mapping = Arc::new(Mapping::shared(memory, MEMORY_BYTES)?);
    let ring = |i: usize| {
        // SAFETY: both lie within the MEMORY_BYTES of the mapping (see the constants), at multiples
        // of a line of a page's beginning.
        let (control, data) =
            unsafe { (mapping.at().add(i * size_of::<Control>()), mapping.at().add(CONTROL_BYTES + i * RING_BYTES)) };
        MappedRing { control: control.cast(), data: data.cast(), _mapping: Arc::clone(&mapping) }
    };
    let rings = [ring(0), ring(1)];
    Ok((mapping, rings))
}

/// Where ring `i` begins in the mapping.
pub fn ring_offset(i: usize) -> usize {
    CONTROL_BYTES + i * RING_BYTES
}

/// A page that a child made by fork finds empty: what says that an endpoint is still its maker's,
/// and the word that peers probe.
#[derive(Debug)]
pub struct OwnPage {
    page: Mapping,
}

impl OwnPage {
    /// Makes it, with the word that peers look for.
    ///
    /// # Errors
    /// The system's.
    pub fn new(probe: u64) -> io::Result<OwnPage> {
        let page = OwnPage { page: Mapping::wiped_on_fork(sys::page_bytes())? };
        // Zero is what a child sees.
        page.word().store(probe | 1, Ordering::Relaxed);
        Ok(page)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: a page of ours, aligned, kept by `page`.
        unsafe { self.page.at().cast::<AtomicU64>().as_ref() }
    }

    /// Whether this is the process that made it.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    /// Address and value of the word.
    pub fn probe(&self) -> (u64, u64) {
        (sys::address_of(&self.page), self.word().load(Ordering::Relaxed))
    }
}
