//! What of a bulk connection was read here, and when the peer is told: with the heads of records
//! that go the other way, or, where there are none, in a BULK frame.

use weir_session::Time;

/// What somebody waits to hear was read waits so long for one, where they come: longer than a
/// program takes to answer on a busy machine, and not so long that a sender who gets none would
/// notice it among the rest.
const ANSWER_WAIT_NS: u64 = 100_000;
/// What nobody waits for waits so long: each packet that only tells costs both sides more than a
/// record does, and all that the sender keeps for it is memory, of `TELL_BYTES` at most.
const TELL_WAIT_NS: u64 = 1_000_000;
/// So many bytes that nobody waits for are told of at once.
const TELL_BYTES: u64 = 1 << 20;
/// After so many records in a row that were answered in time the next one's answer is waited for
/// too. One that was not, and it is told at once again: the packet costs two microseconds, and a
/// program that leaves without an answer has the peer wait for the watchdog.
const ANSWERS_LEARNT: u8 = 4;

/// Of the bulk connection that is up, or the last that was.
#[derive(Debug, Default)]
pub(crate) struct AppAcks {
    /// Bytes of complete records read of it here, how many of these the peer was told of, and when
    /// the rest is to be told in a packet if no record has done so.
    pub read: u64,
    pub told: u64,
    pub at: Option<Time>,
    /// When a record was complete that the peer wants told and nothing has been sent since; and how
    /// many of these in a row were answered in time.
    unanswered: Option<Time>,
    answers: u8,
}

impl AppAcks {
    /// A record was read. `wanted`: somebody waits to hear of it, and its sender has no more in
    /// line.
    pub fn has_read(&mut self, now: Time, size: u64, wanted: bool) {
        self.read += size;
        if wanted && self.unanswered.replace(now).is_some() {
            self.answers = 0;
        }
        let at_once = if wanted { self.answers < ANSWERS_LEARNT } else { self.read - self.told >= TELL_BYTES };
        let wait = if wanted { ANSWER_WAIT_NS } else { TELL_WAIT_NS };
        let at = now.plus_ns(if at_once { 0 } else { wait });
        self.at = Some(self.at.map_or(at, |t| t.min(at)));
    }

    /// A record goes, whose head tells.
    pub fn is_told(&mut self) {
        self.told = self.read;
        self.at = None;
    }

    /// Something of the program's goes to the peer: that answers what was read.
    #[inline]
    pub fn answers(&mut self, now: Time) {
        if let Some(since) = self.unanswered.take() {
            let in_time = now.since_ns(since) <= ANSWER_WAIT_NS;
            self.answers = if in_time { (self.answers + 1).min(ANSWERS_LEARNT) } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: u64 = 16 << 10;

    /// Somebody waits for a record read at `now`: the wait until it is told in a packet, and the
    /// program answers after `answer_ns`, with a record.
    fn wanted(a: &mut AppAcks, now: &mut Time, answer_ns: u64) -> u64 {
        a.has_read(*now, RECORD, true);
        let wait = a.at.expect("owed").since_ns(*now);
        *now = now.plus_ns(answer_ns);
        a.answers(*now);
        a.is_told();
        wait
    }

    // spec: L-4.6
    #[test]
    fn what_nobody_waits_for_is_told_with_a_record_or_after_a_millisecond_or_a_megabyte() {
        let (mut a, now) = (AppAcks::default(), Time(5_000_000));
        a.has_read(now, RECORD, false);
        assert_eq!(a.at, Some(now.plus_ns(1_000_000)));
        a.has_read(now.plus_ns(900_000), RECORD, false);
        assert_eq!(a.at, Some(now.plus_ns(1_000_000)), "the first one's time counts");
        a.is_told();
        assert_eq!((a.told, a.at), (2 * RECORD, None), "a record's head told it");
        (0..63).for_each(|_| a.has_read(now, RECORD, false));
        assert_ne!(a.at, Some(now));
        a.has_read(now, RECORD, false);
        assert_eq!(a.at, Some(now), "a megabyte");
    }

    // spec: L-4.6, L-4.7
    #[test]
    fn who_waits_is_told_at_once_until_answers_are_found_to_tell_it() {
        let (mut a, mut now) = (AppAcks::default(), Time(5_000_000));
        for _ in 0..4 {
            assert_eq!(wanted(&mut a, &mut now, 60_000), 0);
        }
        // So long does a program take on a busy machine.
        assert_eq!(wanted(&mut a, &mut now, 99_000), 100_000);
        assert_eq!(wanted(&mut a, &mut now, 101_000), 100_000);
        for _ in 0..4 {
            assert_eq!(wanted(&mut a, &mut now, 60_000), 0);
        }
        a.has_read(now, TELL_BYTES, true);
        assert_eq!(a.at, Some(now.plus_ns(100_000)), "a megabyte too");
        now = now.plus_ns(101_000);
        a.answers(now);
        a.is_told();
        assert_eq!(wanted(&mut a, &mut now, 10_000), 0, "one that came too late ends the exception");
    }
}
