//! The memory of an operation, as far as messages need to know it.

use core::fmt;

/// A list of pieces of memory, used as one run of bytes from 0 to [`Memory::len`].
///
/// It is a name for the memory, not the memory: a clone and a part name the same bytes, and what
/// one writes the other reads. [`Messages`](crate::Messages) uses the memory of an operation from
/// the call to the completion, that of a region until it is withdrawn, and neither after it; so an
/// implementation may name memory that its owner takes back then.
///
/// Pieces may overlap each other, and those of another operation. No method panics, whatever range
/// it is given: what lies outside is left out.
pub trait Memory: Clone + Default + fmt::Debug {
    /// Bytes in all.
    fn len(&self) -> u64;

    /// Nothing to read or write.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `dst.len()` bytes from `offset` on into `dst`; where the memory ends, `dst` keeps
    /// what it has.
    fn read(&self, offset: u64, dst: &mut [u8]);

    /// Writes `src` at `offset`; what lies past the end is dropped. Returns the bytes written.
    fn write(&self, offset: u64, src: &[u8]) -> usize;

    /// The part `[offset, offset + len)`, cut to what there is.
    #[must_use]
    fn part(&self, offset: u64, len: u64) -> Self;

    /// Copies the first `len` bytes of `src` to `offset`. The two may share memory.
    fn copy_from(&self, offset: u64, src: &Self, len: u64);

    /// Replaces the number of `bytes` (1, 2, 4 or 8) bytes at `offset`, in the machine's order, by
    /// what `change` makes of it (nothing: it stays), as one step for whoever else changes these
    /// bytes so. Returns what it was; none where it does not lie in one piece, at an address that
    /// is a multiple of its size.
    ///
    /// `change` is called again where somebody else was faster.
    fn update(&self, offset: u64, bytes: usize, change: impl FnMut(u64) -> Option<u64>) -> Option<u64>;

    /// Continues the CRC32C `crc` over `len` bytes from `offset` on, without a copy if it can.
    #[must_use]
    fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32;

    /// What a completion says of where it begins
    /// ([`Completion::address`](crate::Completion::address)): means something to who made the
    /// memory only.
    fn address(&self) -> usize;
}
