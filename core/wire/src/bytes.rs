//! Reading little-endian integers off the front of a slice, without a panic at its end.

/// A cursor over bytes; every read returns `None` past the end.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The byte so far ahead.
    pub(crate) fn peek(&self, ahead: usize) -> Option<u8> {
        self.rest().get(ahead).copied()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// The `N` bytes at `at` of a fixed-size head. `at` is always a constant below the head's size, so
/// the check folds away.
#[inline(always)]
pub(crate) fn part<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&head[at..at + N]);
    out
}

#[inline(always)]
pub(crate) fn le16(head: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(part(head, at))
}

#[inline(always)]
pub(crate) fn le32(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(head, at))
}

#[inline(always)]
pub(crate) fn le64(head: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(head, at))
}
