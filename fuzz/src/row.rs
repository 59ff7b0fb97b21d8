//! One direction of a connection: bytes under way, and where heads stand among them.

use std::collections::VecDeque;

use weir_link::BulkRecord;

use crate::upper::byte_of;

/// Records kept to be repeated, and the longest payload of one.
const PAST_MAX: usize = 32;
const PAST_BYTES: u32 = 64 << 10;

/// What TCP takes before the receiver reads.
const ROOM_BYTES: usize = 512 << 10;

/// A head, or a greeting.
struct Head {
    at: u64,
    len: u64,
    altered: bool,
}

/// Bytes on their way to one side.
#[derive(Default)]
pub(crate) struct Row {
    bytes: VecDeque<u8>,
    /// Bytes taken so far.
    taken: u64,
    heads: VecDeque<Head>,
    altered: Vec<u64>,
    /// The writer has closed.
    pub(crate) ended: bool,
}

impl Row {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// More may be written.
    pub(crate) fn has_room(&self) -> bool {
        !self.ended && self.bytes.len() < ROOM_BYTES
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(crate) fn extend(&mut self, bytes: impl Iterator<Item = u8>) {
        self.bytes.extend(bytes);
    }

    /// A head of so many bytes is to follow, behind so many others.
    pub(crate) fn note_record(&mut self, behind: usize, head_len: usize) {
        let at = self.taken + (self.bytes.len() + behind) as u64;
        self.heads.push_back(Head { at, len: head_len as u64, altered: false });
    }

    /// A record, or a greeting, in one piece.
    pub(crate) fn push_record(&mut self, bytes: &[u8], head_len: usize) {
        self.note_record(0, head_len);
        self.push(bytes);
    }

    /// The next `n` bytes arrive.
    pub(crate) fn take(&mut self, n: usize) -> impl Iterator<Item = u8> {
        self.taken += n as u64;
        while self.heads.front().is_some_and(|h| h.at + h.len <= self.taken) {
            self.heads.pop_front();
        }
        self.bytes.drain(..n)
    }

    /// All but the first `n` bytes are lost.
    pub(crate) fn cut(&mut self, n: usize) {
        self.bytes.truncate(n);
    }

    /// Changes byte `at` of one of the heads under way, once at most, and not if it has been read
    /// already.
    pub(crate) fn alter(&mut self, which: usize, at: usize, mask: u8) {
        let n = self.heads.len().max(1);
        let Some(h) = self.heads.get_mut(which % n).filter(|h| !h.altered) else { return };
        let at = h.at + at as u64 % h.len;
        let place = at.checked_sub(self.taken).and_then(|i| self.bytes.get_mut(i as usize));
        if let Some(b) = place {
            *b ^= mask;
            h.altered = true;
            self.altered.push(h.at);
        }
    }

    /// Whether the head that stands there was altered.
    pub(crate) fn is_altered(&self, at: u64) -> bool {
        self.altered.contains(&at)
    }
}

/// A record that was sent: its head, and what its payload is made of.
pub(crate) struct Past {
    head: Vec<u8>,
    record: BulkRecord,
}

impl Past {
    /// Keeps a record, if it is not too long and there are not too many.
    pub(crate) fn keep(all: &mut Vec<Past>, head: &[u8], record: &BulkRecord) {
        if all.len() < PAST_MAX && record.len <= PAST_BYTES {
            all.push(Past { head: head.to_vec(), record: *record });
        }
    }

    pub(crate) fn head_len(&self) -> usize {
        self.head.len()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let BulkRecord { token, offset, len, .. } = self.record;
        self.head.iter().copied().chain((0..u64::from(len)).map(|i| byte_of(token, offset + i))).collect()
    }
}
