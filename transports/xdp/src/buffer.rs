//! A BPF ring buffer that a program in the kernel writes and this process reads (spec/xdp.md 2.8;
//! `BPF_MAP_TYPE_RINGBUF`).
//!
//! The kernel lets a process write its own position only: records and the kernel's position are
//! mapped for reading. So garbage written here harms whoever wrote it.

use crate::program::{RECORD_HEAD, RECORDS, RING_BYTES, Ring};
use crate::ring::Broken;
use crate::sys::Mapping;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bits of a record's length: being written; not to be read.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Before each record: its length, and a number of the kernel's own.
const HEAD_BYTES: usize = 8;

/// The reading end.
pub struct Buffer {
    /// Our position, and the kernel's with the records behind it, twice so that each lies in one
    /// piece.
    own: Mapping,
    theirs: Mapping,
    bell: Mapping,
    page: usize,
    position: u64,
    asleep: bool,
    /// A frame is read from here: its owner may change it, the ring's memory he may not.
    copy: Vec<u8>,
    ring: OwnedFd,
}

impl Buffer {
    /// Takes a ring into use.
    ///
    /// # Errors
    /// It is none, or the system has no memory.
    pub fn open(of: Ring) -> io::Result<Buffer> {
        // SAFETY: no pointer.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let Ring { ring, bell } = of;
        let own = Mapping::new(&ring, 0, page)?;
        let theirs = Mapping::to_read(&ring, page as libc::off_t, page + 2 * RING_BYTES as usize)?;
        let bell = Mapping::new(&bell, 0, page)?;
        let mut buffer = Buffer { own, theirs, bell, page, position: 0, asleep: false, copy: Vec::new(), ring };
        buffer.copy = vec![0; RECORDS[1] as usize];
        buffer.position = buffer.own_position().load(Ordering::Acquire);
        Ok(buffer)
    }

    /// The descriptor that is readable when something is in the ring.
    pub fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    fn own_position(&self) -> &AtomicU64 {
        // SAFETY: the first word of a mapped page, used as an atomic by both sides.
        unsafe { self.own.start().cast().as_ref() }
    }

    fn their_position(&self) -> u64 {
        // SAFETY: as above, of a page mapped for reading.
        unsafe { self.theirs.start().cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire)
    }

    fn bell(&self) -> &AtomicU32 {
        // SAFETY: the one number of the array, at the begin of its page, used as an atomic by both
        // sides.
        unsafe { self.bell.start().cast().as_ref() }
    }

    /// Whether anything is in the ring, be it still being written.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.their_position() != self.position
    }

    /// Where the records that are there now end.
    #[inline]
    pub fn end(&self) -> u64 {
        self.their_position()
    }

    /// How far it was read.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether what lies before `end` and was not read leaves so little room that frames may have
    /// passed to the socket meanwhile.
    #[inline]
    pub fn is_nearly_full(&self, end: u64) -> bool {
        end.saturating_sub(self.position) > u64::from(RING_BYTES) / 4 * 3
    }

    /// Somebody is about to sleep on the descriptor: the bell is hung. False: there is something to
    /// be read first.
    pub fn prepare_sleep(&mut self) -> bool {
        self.asleep = true;
        self.bell().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_any()
    }

    /// Nobody sleeps: what comes need wake nobody.
    #[inline]
    pub fn awake(&mut self) {
        if self.asleep {
            self.asleep = false;
            self.bell().store(0, Ordering::Relaxed);
        }
    }

    /// Ends its use, as [`crate::Xsk::end`].
    ///
    /// # Errors
    /// The same.
    pub fn end_use(self) -> io::Result<OwnedFd> {
        let Buffer { ring, .. } = self;
        crate::sys::rename(&crate::sys::silent()?, &ring)?;
        Ok(ring)
    }

    /// Reads the frames before `end`, of which [`Buffer::end`] told, at most `most`.
    ///
    /// # Errors
    /// What lies there is no record.
    #[inline]
    pub fn receive(&mut self, end: u64, most: u32, mut frame: impl FnMut(&mut [u8])) -> Result<(), Broken> {
        let mask = u64::from(RING_BYTES) - 1;
        for _ in 0..most {
            if self.position == end {
                break;
            }
            let at = self.page + (self.position & mask) as usize;
            // SAFETY: a record's first word: aligned to 8 bytes within the ring, which is mapped.
            let head = unsafe { self.theirs.start().add(at).cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let len = (head & !(BUSY | DISCARDED)) as usize;
            if len < RECORD_HEAD as usize || len > (RECORDS[1] + RECORD_HEAD) as usize {
                return Err(Broken);
            }
            if head & DISCARDED == 0 {
                // SAFETY: `len` bytes behind the head: a record is not longer than the ring, which
                // is mapped twice. The kernel writes there no more until our position has passed
                // it.
                let record =
                    unsafe { std::slice::from_raw_parts(self.theirs.start().as_ptr().add(at + HEAD_BYTES), len) };
                let (told, body) = record.split_at(RECORD_HEAD as usize);
                let bytes = u32::from_ne_bytes([told[0], told[1], told[2], told[3]]) as usize;
                let Some(body) = body.get(..bytes) else { return Err(Broken) };
                let copy = &mut self.copy[..bytes];
                copy.copy_from_slice(body);
                frame(copy);
            }
            self.position += (len + HEAD_BYTES).next_multiple_of(8) as u64;
            self.own_position().store(self.position, Ordering::Release);
        }
        Ok(())
    }
}
