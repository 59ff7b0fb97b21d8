//! Telling a peer: what this endpoint has to say to its operations.

use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use weir_match::envelope::{Envelope, Status};
use weir_proto::Time;

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Answers an operation of a peer, if it lives.
    pub(crate) fn answer(&mut self, now: Time, peer: u32, envelope: &Envelope) {
        self.wants_transmit = true;
        // A dead peer does not get it: its own operations fail by its own verdict.
        let _ = self.sessions.tell(now, peer, envelope);
    }

    /// Tells a peer that its operation is refused.
    pub(crate) fn refuse(&mut self, now: Time, peer: u32, op: u64, read: bool, status: Status) {
        self.counters.access_errors += 1;
        if self.trace.on(1) {
            self.trace.line(format_args!("remote operation of peer={peer} refused ({status:?})"));
        }
        self.answer(now, peer, &Envelope::Done { op, read, status });
    }
}
