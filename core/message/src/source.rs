//! Where the payload of a send comes from, and the buffers that payloads are kept in.

use crate::memory::Memory;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes kept inside the operation itself, so that a small injected message needs no buffer.
pub const INLINE_BYTES: usize = 64;

/// Where the payload of a send comes from.
#[derive(Debug)]
pub enum Source<M> {
    /// Copied, small.
    Inline {
        /// The bytes.
        bytes: [u8; INLINE_BYTES],
        /// How many of them.
        len: u8,
    },
    /// Copied into a pooled buffer.
    Owned(Vec<u8>),
    /// The caller's memory.
    User(M),
}

impl<M: Memory> Source<M> {
    /// Nothing.
    pub(crate) fn empty() -> Self {
        Source::Owned(Vec::new())
    }

    /// Copies the first `len` bytes of `memory`, so that it is the caller's again at once.
    pub(crate) fn copied(memory: &M, len: usize, pool: &mut Pool) -> Self {
        if len <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            memory.read(0, &mut bytes[..len]);
            return Source::Inline { bytes, len: len as u8 };
        }
        let mut buf = pool.take(len);
        memory.read(0, &mut buf);
        Source::Owned(buf)
    }

    /// Copies `dst.len()` bytes from `offset` on; missing bytes (a caller's error) stay as they
    /// are.
    pub fn read(&self, offset: u64, dst: &mut [u8]) {
        match self {
            Source::User(memory) => memory.read(offset, dst),
            copied => copied.with_copy(|src| {
                if let Some(rest) = src.get(offset as usize..) {
                    let n = rest.len().min(dst.len());
                    dst[..n].copy_from_slice(&rest[..n]);
                }
            }),
        }
    }

    /// Continues a CRC32C over `len` bytes from `offset` on.
    #[must_use]
    pub fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32 {
        match self {
            Source::User(memory) => memory.crc32c(offset, len, crc),
            copied => copied.with_copy(|src| {
                let start = (offset as usize).min(src.len());
                let end = (start + len).min(src.len());
                weir_wire::crc32c_append(crc, &src[start..end])
            }),
        }
    }

    /// Copies `len` bytes from `offset` on to `at` in `dest`. The two may share memory.
    pub(crate) fn copy_to(&self, offset: u64, dest: &M, at: u64, len: u64) {
        match self {
            Source::User(memory) if offset == 0 => dest.copy_from(at, memory, len),
            Source::User(memory) => dest.copy_from(at, &memory.part(offset, len), len),
            copied => copied.with_copy(|src| {
                let start = (offset as usize).min(src.len());
                let end = start.saturating_add(len as usize).min(src.len());
                dest.write(at, &src[start..end]);
            }),
        }
    }

    /// The copied payload, if it is one.
    fn with_copy<T>(&self, act: impl FnOnce(&[u8]) -> T) -> T {
        act(match self {
            Source::Inline { bytes, len } => &bytes[..usize::from(*len)],
            Source::Owned(buf) => buf,
            Source::User(_) => &[],
        })
    }

    /// Gives a pooled buffer back.
    pub(crate) fn release(self, pool: &mut Pool) {
        if let Source::Owned(buf) = self {
            pool.give(buf);
        }
    }
}

/// Freed buffers kept for reuse, so that steady traffic allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    classes: [Vec<Vec<u8>>; CLASS_BYTES.len()],
}

/// Buffer sizes that are kept. Larger buffers go back to the allocator.
const CLASS_BYTES: [usize; 6] = [256, 2048, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// At most this many bytes of free buffers are kept per class.
const CLASS_KEEP_BYTES: usize = 4 << 20;

impl Pool {
    /// Memory that a buffer of `len` bytes takes.
    pub(crate) fn cost(len: usize) -> u64 {
        CLASS_BYTES.into_iter().find(|&c| len <= c).unwrap_or(len) as u64
    }

    /// A buffer of exactly `len` bytes, contents unspecified but initialised.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
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
    pub(crate) fn give(&mut self, buf: Vec<u8>) {
        if let Some(class) = CLASS_BYTES.iter().position(|&c| buf.capacity() == c)
            && self.classes[class].len() * CLASS_BYTES[class] < CLASS_KEEP_BYTES
        {
            self.classes[class].push(buf);
        }
    }
}

/// What the copy of a payload takes of the budget of copies, bytes, for a send that `waits` to be
/// asked for it.
pub(crate) fn copy_cost(len: usize, waits: bool) -> u64 {
    let payload = if len <= INLINE_BYTES { 0 } else { Pool::cost(len) };
    payload + if waits { crate::budget::WAITING_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bytes;

    #[test]
    fn copied_sources_give_back_their_bytes() {
        let mut pool = Pool::default();
        for len in [0, 1, INLINE_BYTES, INLINE_BYTES + 1, 5000, 300_000] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let src = Source::copied(&Bytes::new(&data), len, &mut pool);
            let mut back = vec![0; len];
            src.read(0, &mut back);
            assert_eq!(back, data);
            let half = len / 2;
            assert_eq!(src.crc32c(half as u64, len - half, 7), weir_wire::crc32c_append(7, &data[half..]));
            src.release(&mut pool);
        }
        assert_eq!(pool.take(3000).len(), 3000);
    }
}
