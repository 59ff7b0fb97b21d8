//! The caller's memory: gathered sources and scattered destinations, as raw pointers.
//!
//! All raw-pointer work on user memory is here. A face promises (by calling the `unsafe` operations
//! of [`crate::Endpoint`]) that the memory stays valid until the operation's completion;
//! [`weir_message::Messages`], to which it is a name ([`Memory`]), promises not to use it
//! afterwards.

use crate::api::Iov;
use smallvec::SmallVec;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use weir_message::{Memory, Room, Source};

/// A list of pieces of the caller's memory, used as one run of bytes.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    pieces: SmallVec<[Iov; 1]>,
    len: u64,
}

impl Gather {
    /// # Safety
    /// Every piece stays valid (readable, or writable where [`Gather::write`] is used) as long as
    /// this value is used.
    #[inline]
    pub unsafe fn new(iov: &[Iov]) -> Gather {
        if let [piece] = iov
            && piece.len > 0
        {
            return Gather { pieces: SmallVec::from_buf([*piece]), len: piece.len as u64 };
        }
        let len = iov.iter().fold(0u64, |sum, p| sum.saturating_add(p.len as u64));
        Gather { pieces: iov.iter().copied().filter(|p| p.len > 0).collect(), len }
    }

    /// The address of `[0, len)` where that lies in one piece, as it mostly does.
    #[inline]
    fn whole(&self, len: usize) -> Option<*mut u8> {
        if let [piece] = &self.pieces[..] { (len <= piece.len).then_some(piece.base) } else { None }
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

    /// The pieces of `[offset, offset + len)`, to be copied by the transport.
    pub fn slices<'a>(&'a self, offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
        self.for_pieces(offset, len, |from, n, _| {
            // SAFETY: inside a piece the face declared valid until completion, which outlives the
            // batch the slice is put into.
            out.push(IoSlice::new(unsafe { std::slice::from_raw_parts(from, n) }));
        });
    }

    /// Where the pieces of `[offset, offset + len)` lie, for the system to write to; what lies past
    /// the end is left out. No references: pieces may overlap, and those of a region are the
    /// program's as well.
    pub fn places(&self, offset: u64, len: usize, out: &mut SmallVec<[libc::iovec; 4]>) {
        self.for_pieces(offset, len, |to, n, _| out.push(libc::iovec { iov_base: to.cast(), iov_len: n }));
    }

    /// As [`Gather::write`], from memory that may be our own destination (a message to self): no
    /// reference to it must exist.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    #[inline]
    unsafe fn write_raw(&self, offset: u64, src: *const u8, len: usize) -> usize {
        if offset == 0
            && let Some(to) = self.whole(len)
        {
            // SAFETY: a piece the face declared writable until completion; `src` has `len` bytes
            // (caller).
            unsafe { copy_bytes(src, to, len) };
            return len;
        }
        let mut written = 0;
        self.for_pieces(offset, len, |to, n, done| {
            // SAFETY: `to` lies inside a piece the face declared writable until completion;
            // `done + n <= len` (caller). `copy`, for the two may overlap.
            unsafe { std::ptr::copy(src.add(done), to, n) };
            written = done + n;
        });
        written
    }
}

impl Memory for Gather {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn read(&self, offset: u64, dst: &mut [u8]) {
        let target = dst.as_mut_ptr();
        if offset == 0
            && let Some(from) = self.whole(dst.len())
        {
            // SAFETY: a piece the face declared valid until completion.
            return unsafe { copy_bytes(from, target, dst.len()) };
        }
        self.for_pieces(offset, dst.len(), |from, n, done| {
            // SAFETY: `for_pieces` stays inside a piece the face declared valid, and
            // `done + n <= dst.len()`. Overlap: `copy` would be needed only if `dst` were user
            // memory; it is the engine's.
            unsafe { std::ptr::copy_nonoverlapping(from, target.add(done), n) };
        });
    }

    #[inline]
    fn write(&self, offset: u64, src: &[u8]) -> usize {
        // SAFETY: a live slice.
        unsafe { self.write_raw(offset, src.as_ptr(), src.len()) }
    }

    fn part(&self, offset: u64, len: u64) -> Gather {
        let mut pieces = SmallVec::new();
        let mut total = 0;
        let len = len.min(self.len.saturating_sub(offset));
        self.for_pieces(offset, len as usize, |base, n, _| {
            pieces.push(Iov { base, len: n });
            total += n as u64;
        });
        Gather { pieces, len: total }
    }

    fn copy_from(&self, offset: u64, src: &Gather, len: u64) {
        let mut at = offset;
        src.for_pieces(0, len as usize, |from, n, _| {
            // SAFETY: inside a piece the face declared readable until completion.
            unsafe { self.write_raw(at, from, n) };
            at += n as u64;
        });
    }

    /// By the processor's atomic instructions: the program's own on the same memory see each step
    /// whole.
    fn update(&self, offset: u64, bytes: usize, mut change: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let mut place = None;
        self.for_pieces(offset, bytes, |base, n, _| {
            if n == bytes {
                place = Some(base);
            }
        });
        let place = place.filter(|p| p.addr().is_multiple_of(bytes))?;
        macro_rules! update {
            ($atomic:ty, $number:ty) => {{
                // SAFETY: inside a piece the face declared writable until it is withdrawn, aligned
                // (checked), and used by nobody here but in this way meanwhile (the engine's lock).
                // What the program does to it without atomic instructions is its own race, as with
                // any memory that it lets peers at.
                let word = unsafe { <$atomic>::from_ptr(place.cast()) };
                let mut load = word.load(Ordering::SeqCst);
                loop {
                    let Some(new) = change(load.into()) else { return Some(load.into()) };
                    match word.compare_exchange_weak(load, new as $number, Ordering::SeqCst, Ordering::SeqCst) {
                        Ok(old) => return Some(old.into()),
                        Err(other) => load = other,
                    }
                }
            }};
        }
        match bytes {
            1 => update!(AtomicU8, u8),
            2 => update!(AtomicU16, u16),
            4 => update!(AtomicU32, u32),
            8 => update!(AtomicU64, u64),
            _ => None,
        }
    }

    #[inline]
    fn crc32c(&self, offset: u64, len: usize, mut crc: u32) -> u32 {
        self.for_pieces(offset, len, |from, n, _| {
            // SAFETY: inside a piece the face declared readable until completion; the reference
            // ends with the call.
            crc = weir_wire::crc32c_append(crc, unsafe { std::slice::from_raw_parts(from, n) });
        });
        crc
    }

    /// The first address, as a number.
    fn address(&self) -> usize {
        self.pieces.first().map_or(0, |p| p.base.expose_provenance())
    }
}

/// Copies `n` bytes; the two may overlap. The shortest payloads without the call.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[inline]
unsafe fn copy_bytes(src: *const u8, dst: *mut u8, n: usize) {
    // SAFETY: of 8 to 16 bytes the first eight and the last eight are all (caller); both are read
    // before the first is written.
    unsafe {
        if (8..=16).contains(&n) {
            let (first, last) = (src.cast::<u64>().read_unaligned(), src.add(n - 8).cast::<u64>().read_unaligned());
            dst.cast::<u64>().write_unaligned(first);
            dst.add(n - 8).cast::<u64>().write_unaligned(last);
        } else {
            std::ptr::copy(src, dst, n);
        }
    }
}

/// The pieces of `[offset, offset + len)` of a payload, to be copied by the transport.
pub fn slices_of<'a>(source: &'a Source<Gather>, offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
    match source {
        Source::Inline { bytes, len: n } => push_slice(&bytes[..usize::from(*n)], offset, len, out),
        Source::Owned(buf) => push_slice(buf, offset, len, out),
        Source::User(gather) => gather.slices(offset, len, out),
    }
}

fn push_slice<'a>(src: &'a [u8], offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
    let start = (offset as usize).min(src.len());
    let end = (start + len).min(src.len());
    if end > start {
        out.push(IoSlice::new(&src[start..end]));
    }
}

/// Where `len` bytes of payload go that the system reads from a connection; none where nobody wants
/// them.
pub fn places_of(room: Room<'_, Gather>, len: usize, out: &mut SmallVec<[libc::iovec; 4]>) {
    match room {
        Room::None => {}
        Room::Memory(gather, offset) => gather.places(offset, len, out),
        Room::Buffer(b) => out.push(libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() }),
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
    fn payloads_of_any_length_are_copied_whole_and_no_byte_beside_them() {
        for len in 0..40usize {
            let (src, mut dst) = ((1..=len as u8).collect::<Vec<u8>>(), vec![0u8; len + 2]);
            let base = dst.as_mut_ptr().wrapping_add(1);
            // SAFETY: `dst` outlives it.
            let to = unsafe { Gather::new(&[Iov { base, len }]) };
            assert_eq!(to.write(0, &src), len);
            assert_eq!(to.write(0, &[&src[..], &[9]].concat()), len, "what lies past the end is dropped");
            let mut back = vec![0; len];
            to.read(0, &mut back);
            assert_eq!((&back, &dst[1..=len], dst[0], dst[len + 1]), (&src, &src[..], 0, 0));
        }
    }

    #[test]
    fn short_memory_may_be_written_from_itself() {
        for (len, shift) in [(8, 3), (12, 1), (16, 15), (16, 8)] {
            let mut buf: Vec<u8> = (0..40).collect();
            let base = buf.as_mut_ptr();
            // SAFETY: both lie in `buf`, which outlives them.
            let (from, to) = unsafe {
                (Gather::new(&[Iov { base, len }]), Gather::new(&[Iov { base: base.wrapping_add(shift), len }]))
            };
            to.copy_from(0, &from, len as u64);
            assert_eq!(buf[shift..shift + len], (0..len as u8).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn memory_may_be_written_from_itself() {
        let mut buf: Vec<u8> = (0..100).collect();
        let base = buf.as_mut_ptr();
        // SAFETY: both lie in `buf`, which outlives them.
        let (from, to) = unsafe {
            (Gather::new(&[Iov { base, len: 50 }]), Gather::new(&[Iov { base: base.wrapping_add(10), len: 50 }]))
        };
        to.copy_from(0, &from, 50);
        assert_eq!(buf[10..60], (0..50).collect::<Vec<u8>>());
    }

    #[test]
    fn an_element_is_changed_where_it_lies_in_one_piece_and_aligned() {
        let mut words = [1u64, 2, 3];
        let base = words.as_mut_ptr().cast::<u8>();
        // SAFETY: within `words`, which outlives it.
        let g = unsafe { Gather::new(&[Iov { base, len: 12 }, Iov { base: base.wrapping_add(12), len: 12 }]) };
        assert_eq!(g.update(0, 8, |old| Some(old + 41)), Some(1));
        assert_eq!(g.update(16, 8, |_| None), Some(3));
        assert_eq!(g.update(16, 2, |old| Some(old + 7)), Some(3));
        assert_eq!(g.update(8, 8, |_| Some(0)), None, "in two pieces");
        assert_eq!(g.update(1, 2, |_| Some(0)), None, "not aligned");
        assert_eq!(g.update(23, 2, |_| Some(0)), None, "past the end");
        assert_eq!(g.update(0, 3, |_| Some(0)), None, "no size");
        assert_eq!(words, [42, 2, 10]);
    }

    #[test]
    fn changes_of_several_threads_are_all_there() {
        let mut word = 0u64;
        let base = (&raw mut word).cast::<u8>();
        // SAFETY: it outlives the threads, and nobody else uses it meanwhile.
        let g = unsafe { Gather::new(&[Iov { base, len: 8 }]) };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let g = g.clone();
                scope.spawn(move || (0..10_000).for_each(|_| _ = g.update(0, 8, |old| Some(old + 1))));
            }
        });
        assert_eq!(g.update(0, 8, |_| None), Some(40_000));
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
        assert_eq!(g.part(5, 10).len(), 10);
        assert_eq!(g.part(15, 10).len(), 5);
        assert_eq!(g.part(25, 10).len(), 0);
    }
}
