//! ECN: marks that arrived on what the peer sent, told to it; and what the peer tells of ours (spec
//! 6.7).

use alloc::vec::Vec;

use weir_wire::frame::{self, MARKED_LEN, Marked};

use crate::config::PATHS_MAX;

/// ECN bits of a packet that a switch marked (RFC 3168, 5).
pub(crate) const CE: u8 = 3;

/// A mark is told in so many acknowledgements: all of them are lost once in a million where three
/// in a hundred are, and the next mark tells it too.
const TELLS: u8 = 4;

/// Packets of the peer that came marked, by its number of the path.
#[derive(Debug, Default)]
pub(crate) struct MarksIn {
    counts: [u32; PATHS_MAX],
    /// Acknowledgements that still are to tell the count.
    tells: [u8; PATHS_MAX],
}

impl MarksIn {
    /// A packet came marked.
    pub(crate) fn note(&mut self, path: u8) {
        let i = usize::from(path) % PATHS_MAX;
        self.counts[i] = self.counts[i].wrapping_add(1);
        self.tells[i] = TELLS;
    }

    /// Bytes that telling takes in the next acknowledgement.
    pub(crate) fn room(&self) -> usize {
        if self.tells == [0; PATHS_MAX] { 0 } else { self.tells.iter().filter(|t| **t > 0).count() * MARKED_LEN }
    }

    /// Writes what the acknowledgement that follows it is to tell.
    pub(crate) fn tell(&mut self, out: &mut Vec<u8>) {
        for (path, (tells, count)) in self.tells.iter_mut().zip(self.counts).enumerate().filter(|(_, t)| *t.0 > 0) {
            *tells -= 1;
            frame::write_marked(&Marked { path: path as u8, count }, out);
        }
    }
}

/// What the peer told of the packets that we sent on one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarksOut {
    count: u64,
    /// Of these, not yet told to the controller.
    fresh: u32,
    /// It claimed what cannot be: it is believed no more.
    is_false: bool,
}

impl MarksOut {
    /// The peer tells so many, modulo 2^32, of at most `sent`. Returns how many of these are news;
    /// `None` if that cannot be.
    pub(crate) fn told(&mut self, count: u32, sent: u64) -> Option<u32> {
        let news = count.wrapping_sub(self.count as u32);
        if self.is_false || news as i32 <= 0 {
            // Overtaken by a later one; one that decreases is taken for such.
            return Some(0);
        }
        if self.count + u64::from(news) > sent {
            (self.is_false, self.fresh) = (true, 0);
            return None;
        }
        self.count += u64::from(news);
        self.fresh = self.fresh.saturating_add(news);
        Some(news)
    }

    pub(crate) fn take_fresh(&mut self) -> u32 {
        core::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-6.25, P-6.26
    #[test]
    fn a_mark_is_told_some_times_and_then_no_more() {
        let mut m = MarksIn::default();
        let mut out = Vec::new();
        m.tell(&mut out);
        assert!(out.is_empty() && m.room() == 0);
        m.note(1);
        m.note(1);
        m.note(3);
        assert_eq!(m.room(), 2 * MARKED_LEN);
        m.tell(&mut out);
        let mut want = Vec::new();
        frame::write_marked(&Marked { path: 1, count: 2 }, &mut want);
        frame::write_marked(&Marked { path: 3, count: 1 }, &mut want);
        assert_eq!(out, want);
        (1..TELLS).for_each(|_| m.tell(&mut out));
        assert_eq!((out.len(), m.room()), (want.len() * usize::from(TELLS), 0));
    }

    // spec: P-6.27
    #[test]
    fn counts_that_go_back_say_nothing_and_impossible_ones_end_the_belief() {
        let mut m = MarksOut::default();
        assert_eq!((m.told(5, 10), m.told(3, 10), m.told(5, 10), m.told(7, 10)), (Some(5), Some(0), Some(0), Some(2)));
        assert_eq!((m.take_fresh(), m.take_fresh()), (7, 0));
        assert_eq!(m.told(11, 10), None);
        assert_eq!((m.told(8, 100), m.take_fresh()), (Some(0), 0));
    }

    // spec: P-6.27
    #[test]
    fn counts_go_on_beyond_32_bits() {
        let mut m = MarksOut { count: (1 << 32) - 2, ..MarksOut::default() };
        assert_eq!((m.told(1, 1 << 33), m.count), (Some(3), (1 << 32) + 1));
    }
}
