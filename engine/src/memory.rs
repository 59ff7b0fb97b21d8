//! The caller's memory and the engine's own: gathered sources, scattered destinations, pooled buffers.
//!
//! All raw-pointer work on user memory is here. A face promises (by calling the `unsafe` operations of [`crate::Endpoint`]) that the memory stays valid until the operation's completion;
//! the engine promises not to touch it afterwards.

use crate::api::Iov;
use smallvec::SmallVec;
use std::io::IoSlice;

/// Bytes kept inside the operation itself, so that a small injected message needs no buffer.
pub const INLINE_BYTES: usize = 64;

/// Where the payload of a send comes from.
pub enum Source {
    /// Copied, small.
    Inline { bytes: [u8; INLINE_BYTES], len: u8 },
    /// Copied into a pooled buffer.
    Owned(Vec<u8>),
    /// The caller's memory.
    User(Gather),
}

impl Source {
    /// Copies `iov` (its sum is `len`) so that the caller's memory is free at once.
    ///
    /// # Safety
    /// Every piece of `iov` is readable.
    pub unsafe fn copied(iov: &[Iov], len: usize, pool: &mut Pool) -> Source {
        if len <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            // SAFETY: passed on from the caller.
            unsafe { gather_into(iov, &mut bytes[..len]) };
            return Source::Inline { bytes, len: len as u8 };
        }
        let mut buf = pool.take(len);
        // SAFETY: passed on from the caller.
        unsafe { gather_into(iov, &mut buf) };
        Source::Owned(buf)
    }

    /// Copies `dst.len()` bytes from `offset` on; missing bytes (a caller's error) stay as they are.
    pub fn read(&self, offset: u64, dst: &mut [u8]) {
        match self {
            Source::Inline { bytes, len } => copy_from(&bytes[..usize::from(*len)], offset, dst),
            Source::Owned(buf) => copy_from(buf, offset, dst),
            Source::User(gather) => gather.read(offset, dst),
        }
    }

    /// The pieces of `[offset, offset + len)`, to be copied by the transport.
    pub fn slices<'a>(&'a self, offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
        match self {
            Source::Inline { bytes, len: n } => push_slice(&bytes[..usize::from(*n)], offset, len, out),
            Source::Owned(buf) => push_slice(buf, offset, len, out),
            Source::User(gather) => gather.slices(offset, len, out),
        }
    }

    /// Gives a pooled buffer back.
    pub fn release(self, pool: &mut Pool) {
        if let Source::Owned(buf) = self {
            pool.give(buf);
        }
    }
}

fn copy_from(src: &[u8], offset: u64, dst: &mut [u8]) {
    if let Some(rest) = src.get(offset as usize..) {
        let n = rest.len().min(dst.len());
        dst[..n].copy_from_slice(&rest[..n]);
    }
}

fn push_slice<'a>(src: &'a [u8], offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
    let start = (offset as usize).min(src.len());
    let end = (start + len).min(src.len());
    if end > start {
        out.push(IoSlice::new(&src[start..end]));
    }
}

/// # Safety
/// Every piece of `iov` is readable.
unsafe fn gather_into(iov: &[Iov], dst: &mut [u8]) {
    let mut at = 0;
    for piece in iov {
        let n = piece.len.min(dst.len() - at);
        if n > 0 {
            // SAFETY: the piece is readable for `len` bytes (caller), `dst` has `n` bytes from `at` on, and our own buffer cannot overlap it.
            unsafe { std::ptr::copy_nonoverlapping(piece.base, dst.as_mut_ptr().add(at), n) };
            at += n;
        }
    }
}

/// A list of pieces of the caller's memory, used as one run of bytes.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    pieces: SmallVec<[Iov; 1]>,
    len: u64,
}

impl Gather {
    /// # Safety
    /// Every piece stays valid (readable, or writable where [`Gather::write`] is used) as long as this value is used.
    pub unsafe fn new(iov: &[Iov]) -> Gather {
        let len = iov.iter().fold(0u64, |sum, p| sum.saturating_add(p.len as u64));
        Gather { pieces: iov.iter().copied().filter(|p| p.len > 0).collect(), len }
    }

    /// Sum of the pieces, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// First address, or null when empty.
    pub fn base(&self) -> *mut u8 {
        self.pieces.first().map_or(std::ptr::null_mut(), |p| p.base)
    }

    /// Calls `f(address, length, done)` for the pieces of `[offset, offset + len)`.
    fn for_pieces(&self, mut offset: u64, len: usize, mut f: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        for piece in &self.pieces {
            if done == len {
                return;
            }
            if offset >= piece.len as u64 {
                offset -= piece.len as u64;
                continue;
            }
            let n = (piece.len - offset as usize).min(len - done);
            f(piece.base.wrapping_add(offset as usize), n, done);
            done += n;
            offset = 0;
        }
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        let target = dst.as_mut_ptr();
        self.for_pieces(offset, dst.len(), |from, n, done| {
            // SAFETY: `for_pieces` stays inside a piece the face declared valid, and `done + n <= dst.len()`. Overlap: `copy` would be needed only if `dst` were user memory; it is a packet.
            unsafe { std::ptr::copy_nonoverlapping(from, target.add(done), n) };
        });
    }

    fn slices<'a>(&'a self, offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
        self.for_pieces(offset, len, |from, n, _| {
            // SAFETY: inside a piece the face declared valid until completion, which outlives the batch the slice is put into.
            out.push(IoSlice::new(unsafe { std::slice::from_raw_parts(from, n) }));
        });
    }

    /// Where the pieces of `[offset, offset + len)` lie, for the system to write to; what lies past the end is left out. No references: pieces may overlap, and those of a region are
    /// the program's as well.
    pub fn places(&self, offset: u64, len: usize, out: &mut SmallVec<[libc::iovec; 4]>) {
        self.for_pieces(offset, len, |to, n, _| out.push(libc::iovec { iov_base: to.cast(), iov_len: n }));
    }

    /// Writes `src` at `offset`; what lies past the end is dropped. Returns the bytes written.
    pub fn write(&self, offset: u64, src: &[u8]) -> usize {
        // SAFETY: a live slice.
        unsafe { self.write_raw(offset, src.as_ptr(), src.len()) }
    }

    /// As [`Gather::write`], from memory that may be our own destination (a message to self): no reference to it must exist.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    unsafe fn write_raw(&self, offset: u64, src: *const u8, len: usize) -> usize {
        let mut written = 0;
        self.for_pieces(offset, len, |to, n, done| {
            // SAFETY: `to` lies inside a piece the face declared writable until completion; `done + n <= len` (caller). `copy`, for the two may overlap.
            unsafe { std::ptr::copy(src.add(done), to, n) };
            written = done + n;
        });
        written
    }

    /// Copies from another gather list (a message to self).
    pub fn write_from(&self, offset: u64, src: &Gather, len: u64) {
        let mut at = offset;
        src.for_pieces(0, len as usize, |from, n, _| {
            // SAFETY: inside a piece the face declared readable until completion.
            unsafe { self.write_raw(at, from, n) };
            at += n as u64;
        });
    }

    /// The part `[offset, offset + len)` as a list of its own, cut to what there is.
    pub fn sub(&self, offset: u64, len: u64) -> Gather {
        let mut pieces = SmallVec::new();
        let mut total = 0;
        let len = len.min(self.len.saturating_sub(offset));
        self.for_pieces(offset, len as usize, |base, n, _| {
            pieces.push(Iov { base, len: n });
            total += n as u64;
        });
        Gather { pieces, len: total }
    }

    /// Reads into an engine buffer.
    pub fn copy_out(&self, offset: u64, dst: &mut [u8]) {
        self.read(offset, dst);
    }
}

/// Freed buffers kept for reuse, so that steady traffic allocates nothing.
#[derive(Default)]
pub struct Pool {
    classes: [Vec<Vec<u8>>; CLASS_BYTES.len()],
}

/// Buffer sizes that are kept. Larger buffers go back to the allocator.
const CLASS_BYTES: [usize; 5] = [256, 2048, 16 << 10, 64 << 10, 256 << 10];
/// At most this many bytes of free buffers are kept per class.
const CLASS_KEEP_BYTES: usize = 4 << 20;

impl Pool {
    /// Memory that a buffer of `len` bytes takes.
    pub fn cost(len: usize) -> u64 {
        CLASS_BYTES.into_iter().find(|&c| len <= c).unwrap_or(len) as u64
    }

    /// A buffer of exactly `len` bytes, contents unspecified but initialised.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let Some(class) = CLASS_BYTES.iter().position(|&c| len <= c) else {
            return vec![0; len];
        };
        match self.classes[class].pop() {
            Some(mut buf) => {
                buf.resize(len, 0);
                buf
            }
            None => {
                let mut buf = Vec::with_capacity(CLASS_BYTES[class]);
                buf.resize(len, 0);
                buf
            }
        }
    }

    /// Keeps the buffer if it is of a kept size and there is room.
    pub fn give(&mut self, buf: Vec<u8>) {
        if let Some(class) = CLASS_BYTES.iter().position(|&c| buf.capacity() == c)
            && self.classes[class].len() * CLASS_BYTES[class] < CLASS_KEEP_BYTES
        {
            self.classes[class].push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iov(parts: &mut [Vec<u8>]) -> Vec<Iov> {
        parts.iter_mut().map(|p| Iov { base: p.as_mut_ptr(), len: p.len() }).collect()
    }

    #[test]
    fn gather_reads_and_writes_across_pieces() {
        let mut parts = vec![vec![1u8, 2, 3], vec![], vec![4, 5], vec![6]];
        // SAFETY: the vectors outlive the gather.
        let g = unsafe { Gather::new(&iov(&mut parts)) };
        assert_eq!(g.len(), 6);
        let mut out = [0; 4];
        g.read(1, &mut out);
        assert_eq!(out, [2, 3, 4, 5]);
        assert_eq!(g.write(2, &[9, 9, 9, 9, 9]), 4, "what lies past the end is dropped");
        assert_eq!(parts, vec![vec![1, 2, 9], vec![], vec![9, 9], vec![9]]);
    }

    #[test]
    fn memory_may_be_written_from_itself() {
        let mut buf: Vec<u8> = (0..100).collect();
        let base = buf.as_mut_ptr();
        // SAFETY: both lie in `buf`, which outlives them.
        let (from, to) = unsafe {
            (Gather::new(&[Iov { base, len: 50 }]), Gather::new(&[Iov { base: base.wrapping_add(10), len: 50 }]))
        };
        to.write_from(0, &from, 50);
        assert_eq!(buf[10..60], (0..50).collect::<Vec<u8>>());
    }

    #[test]
    fn absurd_lengths_do_not_wrap() {
        let base = std::ptr::NonNull::<u8>::dangling().as_ptr();
        // SAFETY: never used to reach memory.
        let g = unsafe { Gather::new(&[Iov { base, len: usize::MAX }, Iov { base, len: 2 }]) };
        assert_eq!(g.len(), u64::MAX);
    }

    #[test]
    fn sub_lists_are_cut_to_what_there_is() {
        let mut parts = vec![vec![0u8; 10], vec![0; 10]];
        // SAFETY: the vectors outlive the gather.
        let g = unsafe { Gather::new(&iov(&mut parts)) };
        assert_eq!(g.sub(5, 10).len(), 10);
        assert_eq!(g.sub(15, 10).len(), 5);
        assert_eq!(g.sub(25, 10).len(), 0);
    }

    #[test]
    fn copied_sources_give_back_their_bytes() {
        let mut pool = Pool::default();
        for len in [0, 1, INLINE_BYTES, INLINE_BYTES + 1, 5000, 300_000] {
            let mut data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            // SAFETY: `data` is readable.
            let src = unsafe { Source::copied(&[Iov { base: data.as_mut_ptr(), len }], len, &mut pool) };
            let mut back = vec![0; len];
            src.read(0, &mut back);
            assert_eq!(back, data);
            {
                let mut slices = SmallVec::new();
                src.slices(0, len, &mut slices);
                assert_eq!(slices.iter().map(|s| s.len()).sum::<usize>(), len);
            }
            src.release(&mut pool);
        }
        assert_eq!(pool.take(3000).len(), 3000);
    }
}
