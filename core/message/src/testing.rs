//! Memory for tests of this crate: shared bytes.

use crate::memory::Memory;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Part of some bytes that others share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    all: Rc<RefCell<Vec<u8>>>,
    from: usize,
    len: usize,
}

impl Bytes {
    pub(crate) fn new(bytes: &[u8]) -> Bytes {
        Bytes { all: Rc::new(RefCell::new(bytes.to_vec())), from: 0, len: bytes.len() }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.all.borrow()[self.from..self.from + self.len].to_vec()
    }

    /// `[offset, offset + len)` of it, as far as there is, in the whole.
    fn range(&self, offset: u64, len: usize) -> core::ops::Range<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let end = start.saturating_add(len).min(self.len);
        self.from + start..self.from + end
    }
}

impl Memory for Bytes {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        let r = self.range(offset, dst.len());
        dst[..r.len()].copy_from_slice(&self.all.borrow()[r]);
    }

    fn write(&self, offset: u64, src: &[u8]) -> usize {
        let r = self.range(offset, src.len());
        let n = r.len();
        self.all.borrow_mut()[r].copy_from_slice(&src[..n]);
        n
    }

    fn part(&self, offset: u64, len: u64) -> Self {
        let r = self.range(offset, usize::try_from(len).unwrap_or(usize::MAX));
        Bytes { all: self.all.clone(), from: r.start, len: r.len() }
    }

    fn copy_from(&self, offset: u64, src: &Self, len: u64) {
        let bytes = src.part(0, len).to_vec();
        self.write(offset, &bytes);
    }

    fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32 {
        weir_wire::crc32c_append(crc, &self.all.borrow()[self.range(offset, len)])
    }

    fn address(&self) -> usize {
        self.from
    }
}
