//! What of a bulk connection was read here, and when the peer is told: with the heads of records
//! that go the other way, or, where there are none, in a BULK frame.

use weir_session::Time;

/// What was read waits so long for one: about as a program takes to answer, and no longer than a
/// sender can be left waiting that does nothing else.
const TELL_WAIT_NS: u64 = 20_000;
/// So many bytes are told of at once.
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
        let at_once = self.read - self.told >= TELL_BYTES || (wanted && self.answers < ANSWERS_LEARNT);
        let at = now.plus_ns(if at_once { 0 } else { TELL_WAIT_NS });
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
            let in_time = now.since_ns(since) <= TELL_WAIT_NS;
            self.answers = if in_time { (self.answers + 1).min(ANSWERS_LEARNT) } else { 0 };
        }
    }
}
