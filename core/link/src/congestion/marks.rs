//! Marks of switches (ECN): the part of what was sent that is marked, as DCTCP estimates it (RFC
//! 8257), and what it leaves of a window (spec 6.7).

use crate::Time;

/// What one round weighs in the estimate: RFC 8257, 3.3.
const GAIN: u64 = 16;
/// After so many rounds of the least window in which everything was marked and no queue showed it
/// is the path that marks everything ...
const ROUNDS_ALL: u32 = 32;
/// ... and for so long marks say nothing: as long as the least round trip of a path is believed.
const DEAF_NS: u64 = 10_000_000_000;

/// What one path knows.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    /// Part of the packets that are marked, in [`Marks::ONE`]ths.
    alpha: u64,
    /// Packets of this round.
    acked: u64,
    marked: u64,
    /// Rounds in a row that show that the path marks everything.
    all: u32,
    deaf_until: Time,
    /// Rounds with marks that were heeded.
    pub(super) cuts: u64,
}

impl Default for Marks {
    fn default() -> Self {
        // 1 at first: who knows nothing takes the first mark for the worst (RFC 8257, 3.3).
        Marks { alpha: Marks::ONE, acked: 0, marked: 0, all: 0, deaf_until: Time::ZERO, cuts: 0 }
    }
}

impl Marks {
    pub(super) const ONE: u64 = 1024;

    pub(super) fn on_ack(&mut self, packets: u32, marked: u32) {
        self.acked += u64::from(packets);
        self.marked += u64::from(marked);
    }

    /// A round ended; `no_queue`: the window is the least, and no delay shows. Returns what marks
    /// leave of the window, in [`Marks::ONE`]ths, if there were any.
    pub(super) fn end_round(&mut self, now: Time, no_queue: bool) -> Option<u64> {
        let (acked, marked) = (core::mem::take(&mut self.acked), core::mem::take(&mut self.marked));
        if acked == 0 {
            return None;
        }
        let part = marked.min(acked) * Self::ONE / acked;
        self.alpha = (self.alpha * (GAIN - 1) + part) / GAIN;
        if part == Self::ONE && no_queue {
            self.all += 1;
            if self.all >= ROUNDS_ALL {
                self.deaf_until = now.plus_ns(DEAF_NS);
            }
        } else {
            self.all = 0;
        }
        if marked == 0 || now < self.deaf_until {
            return None;
        }
        self.cuts += 1;
        Some(Self::ONE - self.alpha / 2)
    }

    /// The path came back: it may be another.
    pub(super) fn reset(&mut self) {
        *self = Marks { cuts: self.cuts, ..Marks::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of ten packets, so many of them marked; what the last leaves.
    fn rounds(m: &mut Marks, from: u64, count: u64, marked: u32, no_queue: bool) -> Option<u64> {
        let mut left = None;
        for i in 0..count {
            m.on_ack(10, marked);
            left = m.end_round(Time(from + i * 1_000_000), no_queue);
        }
        left
    }

    // spec: P-6.28
    #[test]
    fn the_first_mark_halves_and_the_part_that_is_marked_is_learnt() {
        let mut m = Marks::default();
        assert_eq!(rounds(&mut m, 0, 1, 10, false), Some(Marks::ONE / 2));
        // A tenth of the packets: a twentieth of the window.
        let left = rounds(&mut m, 0, 100, 1, false).unwrap();
        assert!((Marks::ONE * 19 / 20..Marks::ONE * 24 / 25).contains(&left), "{left}");
        assert_eq!(rounds(&mut m, 0, 200, 0, false), None);
        // Marks are rare now: one costs a thirty-second of what is marked.
        let left = rounds(&mut m, 0, 1, 10, false).unwrap();
        assert!(left > Marks::ONE * 15 / 16, "{left}");
        assert_eq!(m.cuts, 102);
    }

    // spec: P-6.28
    #[test]
    fn more_marks_than_packets_count_as_all() {
        let mut m = Marks::default();
        m.on_ack(1, u32::MAX);
        assert_eq!(m.end_round(Time(1), false), Some(Marks::ONE / 2));
        m.on_ack(0, 5);
        assert_eq!(m.end_round(Time(1), false), None);
    }

    // spec: P-6.29
    #[test]
    fn a_path_that_marks_everything_is_not_heeded_for_a_while() {
        let mut m = Marks::default();
        assert!(rounds(&mut m, 0, 31, 10, true).is_some());
        assert!(rounds(&mut m, 0, 1, 10, false).is_some());
        assert!(rounds(&mut m, 0, 31, 10, true).is_some(), "a queue showed in between");
        assert_eq!(rounds(&mut m, 0, 1, 10, true), None);
        assert_eq!(rounds(&mut m, 5_000_000_000, 5, 3, false), None);
        assert!(rounds(&mut m, 11_000_000_000, 1, 3, false).is_some(), "tried again");
    }
}
