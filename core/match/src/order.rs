//! The numbering of one peer's messages: which have arrived, and from where on there are gaps.

use crate::slab::{List, NIL};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// What is known of one peer's numbers, and its waiting messages.
#[derive(Debug)]
pub struct Peer {
    /// Where this numbering starts: the numbers of a peer that was removed and came back lie above
    /// its former ones.
    base: u64,
    /// All numbers below this have arrived.
    next: u64,
    /// Numbers above `next` that have arrived.
    ahead: BTreeSet<u64>,
    /// For each stream the number below which all have arrived, wrapping.
    stream_next: Vec<u32>,
    /// Numbers of streams that have arrived above that, each with its message (`NIL`: not a matched
    /// one).
    stream_ahead: BTreeMap<(u16, u32), u32>,
    /// Waiting messages by class, in the order of their numbers.
    pub waiting: [List; 2],
    /// In each of these lists the first one with a gap below it, or `NIL`.
    pub behind_gap: [u32; 2],
}

impl Peer {
    pub const fn new() -> Self {
        Peer {
            base: 0,
            next: 0,
            ahead: BTreeSet::new(),
            stream_next: Vec::new(),
            stream_ahead: BTreeMap::new(),
            waiting: [List::EMPTY; 2],
            behind_gap: [NIL; 2],
        }
    }

    /// The place of a number in the order of all that ever came from this peer index.
    #[inline]
    pub fn position(&self, mseq: u64) -> u64 {
        self.base.saturating_add(mseq)
    }

    /// Whether no gap lies below this position.
    #[inline]
    pub fn is_in_order(&self, position: u64) -> bool {
        position < self.next
    }

    /// Whether no gap lies below this number of the stream.
    #[inline]
    pub fn is_in_stream_order(&self, stream: u16, sseq: u32) -> bool {
        // Serial number arithmetic: half of the numbers lie before any given one.
        self.stream_next.get(usize::from(stream)).is_some_and(|next| (sseq.wrapping_sub(*next) as i32) < 0)
    }

    /// The usual case: the message is the next one, of the peer and of its stream, and nothing is
    /// ahead. Notes it and returns true; otherwise changes nothing.
    #[inline]
    pub fn note_next(&mut self, position: u64, stream: u16, sseq: u32) -> bool {
        let Some(stream_next) = self.stream_next.get_mut(usize::from(stream)) else {
            return false;
        };
        let usual = position == self.next
            && *stream_next == sseq
            && position != u64::MAX
            && self.ahead.is_empty()
            && self.stream_ahead.is_empty();
        if usual {
            self.next += 1;
            *stream_next = sseq.wrapping_add(1);
        }
        usual
    }

    /// Notes a number in any case. Appends to `released` the messages that are now in order within
    /// their stream (`message`, if it is, included).
    pub fn note(&mut self, position: u64, stream: u16, sseq: u32, message: u32, released: &mut Vec<u32>) {
        if position >= self.next {
            self.ahead.insert(position);
            while self.ahead.remove(&self.next) {
                self.next = self.next.saturating_add(1);
            }
        }
        let s = usize::from(stream);
        if s >= self.stream_next.len() {
            self.stream_next.resize(s + 1, 0);
        }
        if !self.is_in_stream_order(stream, sseq) {
            self.stream_ahead.insert((stream, sseq), message);
            while let Some(m) = self.stream_ahead.remove(&(stream, self.stream_next[s])) {
                self.stream_next[s] = self.stream_next[s].wrapping_add(1);
                if m != NIL {
                    released.push(m);
                }
            }
        }
        if self.ahead.is_empty() {
            // Without gaps in the peer's numbering there is none in a stream, unless the peer's
            // numbers are nonsense: then they are forgotten here rather than kept for ever. The
            // messages themselves are in order now.
            self.stream_ahead.clear();
        }
    }

    /// Numbers remembered because of gaps below them.
    #[cfg(test)]
    pub fn ahead(&self) -> usize {
        self.ahead.len() + self.stream_ahead.len()
    }

    /// Starts a new numbering above all positions that are in order.
    pub fn restart(&mut self) {
        self.base = self.next;
        self.ahead.clear();
        self.stream_ahead.clear();
        self.stream_next = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_close_and_release() {
        let mut p = Peer::new();
        let mut released = Vec::new();
        p.note(2, 1, 1, 12, &mut released);
        p.note(1, 2, 0, 11, &mut released);
        assert_eq!(released, [11]);
        assert!(!p.is_in_order(1) && p.is_in_stream_order(2, 0) && !p.is_in_stream_order(1, 1));
        p.note(0, 1, 0, 10, &mut released);
        assert_eq!(released, [11, 10, 12]);
        assert!(p.is_in_order(2) && !p.is_in_order(3) && p.ahead() == 0);
    }

    #[test]
    fn stream_numbers_wrap() {
        let mut p = Peer::new();
        let mut released = Vec::new();
        p.stream_next = alloc::vec![0, u32::MAX - 1];
        p.note(1, 1, u32::MAX, 2, &mut released);
        p.note(2, 1, 0, 3, &mut released);
        assert!(released.is_empty());
        p.note(0, 1, u32::MAX - 1, 1, &mut released);
        assert_eq!(released, [1, 2, 3]);
        assert!(p.note_next(3, 1, 1));
        assert!(p.is_in_stream_order(1, u32::MAX) && p.is_in_stream_order(1, 1) && !p.is_in_stream_order(1, 2));
    }

    #[test]
    fn nonsense_is_forgotten() {
        let mut p = Peer::new();
        let mut released = Vec::new();
        for n in 0..100 {
            p.note(n, 3, 1000 + n as u32, n as u32, &mut released);
            assert_eq!(p.ahead(), 0);
        }
        p.note(u64::MAX, 3, 7, NIL, &mut released);
        assert_eq!(p.ahead(), 2);
    }
}
