//! A ring that an AF_XDP socket shares with the kernel: one side writes entries, the other reads
//! them (linux/if_xdp.h).
//!
//! Both indices count entries and wrap at 2^32; an entry's place is its number modulo the ring's
//! length, a power of two. The kernel checks what it reads here, and this side what it reads: an
//! index that cannot be ends the use of the socket.

use crate::sys::Mapping;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel has to be told of what was written (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// A ring's memory, of entries `T`.
struct Shared<T> {
    /// Kept for what the pointers below lead to.
    _memory: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    len: u32,
    of: PhantomData<T>,
}

// SAFETY: the memory belongs to no thread, and the one end of the ring that is ours to the owner of
// this.
unsafe impl<T: Send> Send for Shared<T> {}

/// Entries may lie there: plain numbers of any value.
///
/// # Safety
/// Any bytes are a `T`.
pub unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: a structure of numbers.
unsafe impl Plain for libc::xdp_desc {}

impl<T: Plain> Shared<T> {
    fn new(fd: &OwnedFd, page: libc::off_t, at: &libc::xdp_ring_offset, len: u32) -> io::Result<Shared<T>> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's ring has an impossible layout");
        if !len.is_power_of_two() {
            return Err(wrong());
        }
        let entries_bytes = len as usize * size_of::<T>();
        let begin = usize::try_from(at.desc).map_err(|_| wrong())?;
        let bytes = begin.checked_add(entries_bytes).ok_or_else(wrong)?;
        let within = |offset: u64| offset.is_multiple_of(4) && offset.saturating_add(4) <= bytes as u64;
        if ![at.producer, at.consumer, at.flags].into_iter().all(within) || !begin.is_multiple_of(align_of::<T>()) {
            return Err(wrong());
        }
        let memory = Mapping::new(fd, page, bytes)?;
        // SAFETY: within the mapping, as was checked.
        let place = |offset: u64| unsafe { memory.start().add(offset as usize) };
        Ok(Shared {
            producer: place(at.producer).cast(),
            consumer: place(at.consumer).cast(),
            flags: place(at.flags).cast(),
            entries: place(at.desc).cast(),
            len,
            of: PhantomData,
            _memory: memory,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: within the mapping that lives beside it, aligned, and used as an atomic by both
        // sides.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }
    }

    #[inline]
    fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: less than `len` entries behind the first, within the mapping.
        unsafe { self.entries.add((number & (self.len - 1)) as usize) }
    }
}

/// A ring that is written here: of frames to be filled, or sent.
pub struct Writer<T> {
    ring: Shared<T>,
    next: u32,
    /// The consumer's index as of the last look.
    taken: u32,
}

impl<T: Plain> Writer<T> {
    /// Maps the ring at `page` of the socket's file.
    ///
    /// # Errors
    /// The system's.
    pub fn new(fd: &OwnedFd, page: libc::off_t, at: &libc::xdp_ring_offset, len: u32) -> io::Result<Writer<T>> {
        let ring = Shared::new(fd, page, at, len)?;
        let (next, taken) = (ring.producer().load(Ordering::Relaxed), ring.consumer().load(Ordering::Acquire));
        Ok(Writer { ring, next, taken })
    }

    /// Entries written and not yet taken by the kernel, as of now.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        self.taken = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.taken)
    }

    /// Whether there is room for one more. An index that cannot be looks as if there were none.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.next.wrapping_sub(self.taken) < self.ring.len || self.waiting() < self.ring.len
    }

    /// Writes an entry, which the kernel sees after [`Writer::publish`]. Only where
    /// [`Writer::has_room`].
    #[inline]
    pub fn write(&mut self, entry: T) {
        // SAFETY: a place in the ring that the kernel does not read yet; the entry is plain.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the kernel see what was written.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel wants to be told.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// A ring that is read here: of frames received, or sent and free again.
pub struct Reader<T> {
    ring: Shared<T>,
    next: u32,
}

/// An index that cannot be: somebody has written into the ring who must not.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

impl<T: Plain> Reader<T> {
    /// Maps the ring at `page` of the socket's file.
    ///
    /// # Errors
    /// The system's.
    pub fn new(fd: &OwnedFd, page: libc::off_t, at: &libc::xdp_ring_offset, len: u32) -> io::Result<Reader<T>> {
        let ring = Shared::new(fd, page, at, len)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        Ok(Reader { ring, next })
    }

    /// Entries that can be read.
    ///
    /// # Errors
    /// More than the ring has.
    #[inline]
    pub fn available(&self) -> Result<u32, Broken> {
        let n = self.ring.producer().load(Ordering::Acquire).wrapping_sub(self.next);
        if n <= self.ring.len { Ok(n) } else { Err(Broken) }
    }

    /// Reads the next of the [`Reader::available`] entries.
    #[inline]
    pub fn read(&mut self) -> T {
        // SAFETY: a place in the ring, of plain numbers; at worst the kernel writes there
        // meanwhile, which it does not before `release`.
        let entry = unsafe { self.ring.entry(self.next).read_volatile() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Gives the places of what was read back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use proptest::prelude::*;

    const LEN: u32 = 8;
    const AT: libc::xdp_ring_offset = libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 128, flags: 32 };

    /// Both ends of a ring that no kernel knows.
    fn both() -> (Writer<u64>, Reader<u64>) {
        let fd = sys::memory(4096).expect("memory");
        (Writer::new(&fd, 0, &AT, LEN).expect("mapped"), Reader::new(&fd, 0, &AT, LEN).expect("mapped"))
    }

    #[test]
    fn an_impossible_layout_is_refused() {
        let fd = sys::memory(4096).expect("memory");
        let at = |producer, desc| libc::xdp_ring_offset { producer, desc, ..AT };
        assert!(Writer::<u64>::new(&fd, 0, &at(1, 128), LEN).is_err(), "not aligned");
        assert!(Writer::<u64>::new(&fd, 0, &at(1 << 40, 128), LEN).is_err(), "outside");
        assert!(Writer::<u64>::new(&fd, 0, &at(0, u64::MAX), LEN).is_err(), "outside");
        assert!(Writer::<u64>::new(&fd, 0, &AT, 7).is_err(), "no power of two");
    }

    #[test]
    fn an_impossible_index_is_told() {
        let (w, r) = both();
        w.ring.producer().store(LEN + 1, Ordering::Release);
        assert_eq!(r.available(), Err(Broken));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_in_order_and_never_more_than_the_ring_holds(start: u32, steps in proptest::collection::vec(any::<bool>(), 0..200)) {
            let (mut w, mut r) = both();
            // As if the ring had been in use for long: indices wrap.
            (w.next, w.taken, r.next) = (start, start, start);
            w.publish();
            r.release();
            let (mut written, mut read) = (0u64, 0u64);
            for write in steps {
                if write {
                    prop_assert_eq!(w.has_room(), written - read < u64::from(LEN));
                    if w.has_room() {
                        w.write(written);
                        w.publish();
                        written += 1;
                    }
                } else {
                    prop_assert_eq!(r.available(), Ok((written - read) as u32));
                    if r.available() != Ok(0) {
                        prop_assert_eq!(r.read(), read);
                        r.release();
                        read += 1;
                    }
                }
            }
        }
    }
}
