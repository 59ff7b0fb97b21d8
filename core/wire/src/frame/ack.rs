//! The ACK frame (spec 2.2, 4): which packets came, from the highest down, and how long they
//! waited.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{Frame, FrameError, head, types};
use crate::MAX_ACK_ENTRIES;
use crate::bytes::{le16, le32};
use crate::number::{expand, truncate};

/// Bytes of an ACK frame before the first entry.
pub const ACK_HEAD_LEN: usize = 20;
/// Bytes of each further entry.
pub const ACK_ENTRY_LEN: usize = 4;

/// What an ACK tells of the reading of its largest packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct AckTimes {
    /// From that reading to sending the frame, in nanoseconds.
    pub delay_ns: u32,
    /// How long before that reading the socket had last been looked at, in microseconds; 65535: or
    /// longer.
    pub receiver_delay_us: u16,
    /// When that was by the clock of the reader, in microseconds, modulo 2^32. Only differences
    /// mean anything.
    pub read_us: u32,
}

/// ACK.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// Low 32 bits of the largest packet number received.
    pub largest: u32,
    /// When the packet `largest` was read.
    pub times: AckTimes,
    /// Packets received without a gap, ending at `largest`; at least 1.
    pub first_len: u32,
    entries: &'a [u8],
}

impl<'a> Ack<'a> {
    /// The received ranges from the highest down, given the largest packet number sent so far plus
    /// one (`next_number`), which serves to expand `largest`. Neighbouring ranges may touch.
    ///
    /// `None` if the frame names a packet that was never sent or a number below 0: a protocol
    /// violation.
    #[must_use]
    pub fn ranges(&self, next_number: u64) -> Option<AckRanges<'a>> {
        let largest = expand(self.largest, next_number);
        if largest >= next_number {
            return None;
        }
        // `below`: one more than the highest number not yet accounted for.
        let mut below = largest + 1;
        below = below.checked_sub(u64::from(self.first_len))?;
        for entry in self.entries.chunks_exact(ACK_ENTRY_LEN) {
            below = below.checked_sub(u64::from(le16(entry, 0)) + u64::from(le16(entry, 2)))?;
        }
        Some(AckRanges { below: largest + 1, first_len: self.first_len, entries: self.entries })
    }
}

/// For people: the first range, and how many entries stand behind it.
impl core::fmt::Display for Ack<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ack {}-{}", self.largest.wrapping_sub(self.first_len).wrapping_add(1), self.largest)?;
        match self.entries.len() / ACK_ENTRY_LEN {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Iterator over the ranges of an [`Ack`], highest first; never empty, never below 0.
#[derive(Clone, Debug)]
pub struct AckRanges<'a> {
    below: u64,
    first_len: u32,
    entries: &'a [u8],
}

impl Iterator for AckRanges<'_> {
    type Item = RangeInclusive<u64>;

    #[inline]
    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        if self.first_len > 0 {
            let len = u64::from(core::mem::take(&mut self.first_len));
            return Some(self.descend(0, len));
        }
        while let Some((entry, rest)) = self.entries.split_first_chunk::<ACK_ENTRY_LEN>() {
            self.entries = rest;
            let (gap, len) = (u64::from(le16(entry, 0)), u64::from(le16(entry, 2)));
            if len > 0 {
                return Some(self.descend(gap, len));
            }
            self.below -= gap;
        }
        None
    }
}

impl AckRanges<'_> {
    /// Skips `gap` and takes `len` numbers; `Ack::ranges` has made sure that there are so many.
    fn descend(&mut self, gap: u64, len: u64) -> RangeInclusive<u64> {
        let end = self.below - gap;
        self.below = end - len;
        self.below..=end - 1
    }
}

pub(super) fn parse<'a>(d: &'a [u8], at: usize, to: &mut Frame<'a>) -> Result<usize, FrameError> {
    let bad = |field| Err(FrameError::Field(types::ACK, field));
    let h = head::<ACK_HEAD_LEN>(d, at)?;
    let count = usize::from(h[1]);
    if count > MAX_ACK_ENTRIES {
        return bad("count");
    }
    let first_len = le32(h, 16);
    if first_len == 0 {
        return bad("first_len");
    }
    let start = at + ACK_HEAD_LEN;
    let end = start + count * ACK_ENTRY_LEN;
    let entries = d.get(start..end).ok_or(FrameError::Truncated(types::ACK))?;
    if entries.chunks_exact(ACK_ENTRY_LEN).any(|e| e == [0; ACK_ENTRY_LEN]) {
        return bad("entry");
    }
    let times = AckTimes { delay_ns: le32(h, 8), receiver_delay_us: le16(h, 2), read_us: le32(h, 12) };
    let ack = Ack { largest: le32(h, 4), times, first_len, entries };
    *to = Frame::Ack(ack);
    Ok(end)
}

/// The head of an ACK whose largest range is `first_len` numbers up to `largest`; it has no entries
/// yet.
#[inline]
fn put_head(largest: u64, first_len: u64, times: AckTimes, out: &mut Vec<u8>) {
    let mut f = [0; ACK_HEAD_LEN];
    f[0] = types::ACK;
    f[2..4].copy_from_slice(&times.receiver_delay_us.to_le_bytes());
    f[4..8].copy_from_slice(&truncate(largest).to_le_bytes());
    f[8..12].copy_from_slice(&times.delay_ns.to_le_bytes());
    f[12..16].copy_from_slice(&times.read_us.to_le_bytes());
    f[16..20].copy_from_slice(&u32::try_from(first_len).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&f);
}

/// Writes what [`write_ack`] does of the one range `[lo, hi)`, which is not empty, if `max_len` is
/// enough for it. Whether it was.
#[inline]
pub fn write_ack_of_one((lo, hi): (u64, u64), times: AckTimes, max_len: usize, out: &mut Vec<u8>) -> bool {
    let fits = max_len >= ACK_HEAD_LEN;
    if fits {
        put_head(hi - 1, hi - lo, times, out);
    }
    fits
}

/// Writes an ACK of `ranges` (highest first, disjoint, not empty), as many of them as fit `max_len`
/// bytes and [`MAX_ACK_ENTRIES`]; returns the number of ranges written completely. Writes nothing
/// and returns 0 if there is no range or `max_len` is below [`ACK_HEAD_LEN`].
///
/// Gaps and ranges beyond 65535 are split over several entries with a zero in them.
pub fn write_ack(
    ranges: impl IntoIterator<Item = RangeInclusive<u64>>,
    times: AckTimes,
    max_len: usize,
    out: &mut Vec<u8>,
) -> usize {
    let mut ranges = ranges.into_iter();
    let Some(first) = ranges.next() else { return 0 };
    let Some(room) = max_len.checked_sub(ACK_HEAD_LEN) else {
        return 0;
    };
    let room = (room / ACK_ENTRY_LEN).min(MAX_ACK_ENTRIES);
    let (mut below, largest) = (*first.start(), *first.end());
    let first_len = (largest - below).saturating_add(1);
    let first_cut = first_len > u64::from(u32::MAX);
    let head_at = out.len();
    put_head(largest, first_len, times, out);
    if first_cut {
        return 1;
    }
    let (mut entries, mut written) = (0usize, 1usize);
    for range in ranges {
        let (start, end) = (*range.start(), *range.end());
        debug_assert!(start <= end && end < below);
        let (mut gap, mut len) = (below - end - 1, end - start + 1);
        below = start;
        while gap + len > 0 {
            if entries == room {
                // A range cut short is still true; a gap without a range behind it means nothing.
                out[head_at + 1] = entries_byte(entries);
                return written;
            }
            let gap_part = gap.min(0xffff);
            gap -= gap_part;
            let len_part = if gap == 0 { len.min(0xffff) } else { 0 };
            len -= len_part;
            push_entry(gap_part, len_part, out);
            entries += 1;
        }
        written += 1;
    }
    out[head_at + 1] = entries_byte(entries);
    written
}

#[expect(clippy::cast_possible_truncation, reason = "at most 32")]
fn entries_byte(entries: usize) -> u8 {
    entries as u8
}

#[expect(clippy::cast_possible_truncation, reason = "both are at most 65535")]
fn push_entry(gap: u64, len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(gap as u16).to_le_bytes());
    out.extend_from_slice(&(len as u16).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn of_one_range_both_ways_write_the_same(
            lo in 0u64..1 << 40, len in prop_oneof![1u64..100, 1u64..1 << 34], room in 0usize..40, delay_ns in any::<u32>(),
        ) {
            let hi = lo + len;
            let times = AckTimes { delay_ns, receiver_delay_us: 7, read_us: 9 };
            let (mut short, mut long) = (Vec::new(), Vec::new());
            let is_written = write_ack_of_one((lo, hi), times, room, &mut short);
            prop_assert_eq!((is_written, write_ack([lo..=hi - 1], times, room, &mut long) > 0), (room >= ACK_HEAD_LEN, is_written));
            prop_assert_eq!(&short, &long);
        }
    }
}
