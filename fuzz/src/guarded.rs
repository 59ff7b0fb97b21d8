//! Memory that is watched: each operation's in pages of its own that end with it and cannot be
//! touched any more once the operation has completed. Whatever reads or writes past the end, or
//! after the end of the operation, is a fault at that very place.
#![allow(unsafe_code, reason = "pages are given and taken back by system calls")]

use std::rc::Rc;
use weir_message::Memory;

/// What lies before the memory on its first page.
const GUARD: u8 = 0xEE;

/// Pages of one operation or region.
#[derive(Debug)]
pub struct Pages {
    base: *mut u8,
    mapped: usize,
    len: usize,
}

impl Pages {
    /// `bytes`, followed by a page that cannot be touched.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Pages {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let data = bytes.len().next_multiple_of(page);
        let mapped = data + page;
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, rights, kind, -1, 0) }.cast::<u8>();
        assert!(!base.is_null() && base.cast() != libc::MAP_FAILED, "no memory");
        // SAFETY: the first `data` bytes of the new mapping, which nobody else knows; then its last
        // page.
        unsafe {
            std::ptr::write_bytes(base, GUARD, data - bytes.len());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(data - bytes.len()), bytes.len());
            assert_eq!(libc::mprotect(base.add(data).cast(), page, libc::PROT_NONE), 0);
        }
        Pages { base, mapped, len: bytes.len() }
    }

    fn data_at(&self) -> usize {
        self.len.next_multiple_of(self.page()) - self.len
    }

    fn page(&self) -> usize {
        // SAFETY: asks for a number.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
    }

    /// As one piece, or as three (an empty one among them) where several may be seen: first byte
    /// and length of each.
    #[must_use]
    pub fn pieces(&self, split: bool) -> Vec<(*mut u8, usize)> {
        let base = self.base.wrapping_add(self.data_at());
        if !split {
            return vec![(base, self.len)];
        }
        let part = self.len / 3;
        vec![(base, part), (base, 0), (base.wrapping_add(part), self.len - part)]
    }

    /// What is there now.
    ///
    /// # Panics
    /// If bytes before it were written.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: the mapping is readable up to its last page as long as this value has not been
        // `spent`, and nobody writes meanwhile: all is one thread.
        let all = unsafe { std::slice::from_raw_parts(self.base, self.data_at() + self.len) };
        let (guard, data) = all.split_at(self.data_at());
        assert!(guard.iter().all(|b| *b == GUARD), "bytes before the memory of an operation were written");
        data.to_vec()
    }

    /// From now on nobody may touch it. Returns what was there.
    ///
    /// # Panics
    /// As [`Pages::bytes`].
    pub fn spend(&self) -> Vec<u8> {
        let bytes = self.bytes();
        // SAFETY: the whole mapping of this value.
        assert_eq!(unsafe { libc::mprotect(self.base.cast(), self.mapped, libc::PROT_NONE) }, 0);
        bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of this value, which goes away after all that could use it
        // (`Driver::spent`, and the names, which count).
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

/// A name for such memory: pieces of it, in order.
#[derive(Clone, Debug, Default)]
pub struct Guarded {
    pages: Option<Rc<Pages>>,
    pieces: Vec<(*mut u8, usize)>,
}

impl Guarded {
    /// All of it, in one piece or several.
    #[must_use]
    pub fn new(pages: &Rc<Pages>, split: bool) -> Guarded {
        Guarded { pieces: pages.pieces(split), pages: Some(pages.clone()) }
    }

    /// Calls `f(first byte, length, done)` for what there is of `[offset, offset + len)`.
    fn each(&self, offset: u64, len: usize, mut f: impl FnMut(*mut u8, usize, usize)) {
        let (mut skip, mut done) = (usize::try_from(offset).unwrap_or(usize::MAX), 0);
        for &(base, piece) in &self.pieces {
            let from = skip.min(piece);
            let n = (piece - from).min(len - done);
            if n > 0 {
                f(base.wrapping_add(from), n, done);
            }
            (skip, done) = (skip - from, done + n);
        }
    }
}

impl Memory for Guarded {
    fn len(&self) -> u64 {
        self.pieces.iter().map(|p| p.1 as u64).sum()
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        self.each(offset, dst.len(), |from, n, done| {
            // SAFETY: inside the pages, which live as long as this name, and in `dst`; where they
            // may not be touched any more, this is the fault that is looked for.
            unsafe { std::ptr::copy(from, dst[done..].as_mut_ptr(), n) };
        });
    }

    fn write(&self, offset: u64, src: &[u8]) -> usize {
        let mut written = 0;
        self.each(offset, src.len(), |to, n, done| {
            // SAFETY: as above.
            unsafe { std::ptr::copy(src[done..].as_ptr(), to, n) };
            written = done + n;
        });
        written
    }

    fn part(&self, offset: u64, len: u64) -> Self {
        let mut pieces = Vec::new();
        let len = usize::try_from(len.min(self.len().saturating_sub(offset))).unwrap_or(0);
        self.each(offset, len, |base, n, _| pieces.push((base, n)));
        Guarded { pages: self.pages.clone(), pieces }
    }

    fn copy_from(&self, offset: u64, src: &Self, len: u64) {
        let mut bytes = vec![0; usize::try_from(len.min(src.len())).unwrap_or(0)];
        src.read(0, &mut bytes);
        self.write(offset, &bytes);
    }

    /// Byte by byte, for nobody else uses it.
    fn update(&self, offset: u64, bytes: usize, mut change: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let part = self.part(offset, bytes as u64);
        let [(base, len)] = part.pieces[..] else { return None };
        if len != bytes || !(base as usize).is_multiple_of(bytes) {
            return None;
        }
        let mut word = [0; 8];
        part.read(0, &mut word[..bytes]);
        let old = u64::from_le_bytes(word);
        if let Some(new) = change(old) {
            part.write(0, &new.to_le_bytes()[..bytes]);
        }
        Some(old)
    }

    fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32 {
        let mut bytes = vec![0; usize::try_from(self.len().saturating_sub(offset)).unwrap_or(0).min(len)];
        self.read(offset, &mut bytes);
        weir_wire::crc32c_append(crc, &bytes)
    }

    fn address(&self) -> usize {
        self.pieces.first().map_or(0, |p| p.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_whole() {
        for len in [0, 1, 100, 4096, 5000] {
            let content: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let pages = Pages::new(&content);
            assert_eq!(pages.pieces(true).iter().map(|p| p.1).sum::<usize>(), len);
            assert_eq!((pages.base as usize + pages.data_at() + len) % 4096, 0);
            assert_eq!(pages.spend(), content);
        }
    }

    #[test]
    fn a_name_reads_and_writes_what_it_names_and_no_more() {
        let pages = Rc::new(Pages::new(&[1, 2, 3, 4, 5, 6]));
        let memory = Guarded::new(&pages, true);
        let middle = memory.part(1, 4);
        let mut back = [9; 6];
        middle.read(1, &mut back);
        assert_eq!((middle.len(), back), (4, [3, 4, 5, 9, 9, 9]));
        assert_eq!(middle.write(2, &[7; 9]), 2);
        memory.copy_from(1, &memory, 3);
        assert_eq!(pages.bytes(), [1, 1, 2, 3, 7, 6]);
        assert_eq!(memory.crc32c(1, 4, 0), weir_wire::crc32c_append(0, &[1, 2, 3, 7]));
    }
}
