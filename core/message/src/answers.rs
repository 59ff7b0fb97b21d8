//! Telling a peer: what this endpoint has to say to its operations, and the credit it gets back.
//!
//! An answer that is lost is an operation that never ends at its peer. So one that finds the
//! protocol's control queue full is kept here, and handed over, in order, when there is room. While
//! answers to a peer are kept, the credit for its messages is kept too: it asks for no more than it
//! was let, and so what is kept is bounded by what a peer may have asked for at a time
//! (`Config::answers_max`). One that asks for more broke the rules of credit, and is given up.

use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Sink, Step};
use weir_link::{SendError, Time};
use weir_match::envelope::{Envelope, Status};

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Answers an operation of a peer, which waits for that.
    pub(crate) fn answer(&mut self, now: Time, peer: u32, envelope: &Envelope) {
        self.wants_transmit = true;
        if self.peers.get(peer).is_some_and(|p| !p.kept.is_empty()) {
            return self.keep_answer(peer, envelope);
        }
        match self.sessions.tell(now, peer, envelope) {
            Ok(()) => {}
            Err(SendError::QueueFull) => self.keep_answer(peer, envelope),
            // A dead peer does not get it: its own operations fail by its own verdict. (None is too
            // long.)
            Err(SendError::Closed | SendError::TooLong) => {}
        }
    }

    #[cold]
    fn keep_answer(&mut self, peer: u32, envelope: &Envelope) {
        let most = self.kept_max;
        let p = self.peers.ensure(peer);
        if p.down.is_some() || p.overran {
            return;
        }
        if p.kept.len() >= most {
            p.overran = true;
            return self.overran.push(peer);
        }
        self.counters.answers_kept += 1;
        if p.kept.is_empty() {
            self.keeping.push(peer);
        }
        p.kept.push_back(*envelope);
    }

    /// Tells a peer that its operation is refused.
    pub(crate) fn refuse(&mut self, now: Time, peer: u32, op: u64, read: bool, status: Status) {
        self.note_refused(peer, status);
        self.answer(now, peer, &Envelope::Done { op, read, status });
    }

    /// The same of a write that goes without: its writer waits for the acknowledgement only, and
    /// may miss this (spec/envelopes.md 2).
    pub(crate) fn refuse_unasked(&mut self, now: Time, peer: u32, op: u64, status: Status) {
        self.note_refused(peer, status);
        self.wants_transmit = true;
        let _ = self.sessions.tell(now, peer, &Envelope::Done { op, read: false, status });
    }

    pub(crate) fn note_refused(&mut self, peer: u32, status: Status) {
        self.counters.access_errors += 1;
        if self.trace.on(1) {
            self.trace.line(format_args!("remote operation of peer={peer} refused ({status:?})"));
        }
    }

    /// Messages of a peer are out of the way, or have room beside them: it may send as many more.
    /// Not before it has its answers.
    #[inline]
    pub(crate) fn give_credit(&mut self, peer: u32, msgs: u32, bytes: u64) {
        match self.peers.get_mut(peer).filter(|p| !p.kept.is_empty()) {
            None => {
                self.sessions.consume(peer, msgs, bytes);
                self.step(Step::Credit { peer, msgs, bytes });
            }
            Some(p) => {
                p.owed_msgs += msgs;
                p.owed_bytes += bytes;
            }
        }
    }

    /// Hands over what was kept, as far as there is room.
    #[cold]
    pub(crate) fn tell_kept(&mut self, now: Time) {
        let mut keeping = core::mem::take(&mut self.keeping);
        keeping.retain(|&peer| !self.tell_kept_to(now, peer));
        self.keeping = keeping;
    }

    /// True when nothing is kept any more.
    fn tell_kept_to(&mut self, now: Time, peer: u32) -> bool {
        let Some(p) = self.peers.get_mut(peer) else { return true };
        while let Some(envelope) = p.kept.front() {
            match self.sessions.tell(now, peer, envelope) {
                Ok(()) => _ = p.kept.pop_front(),
                Err(SendError::QueueFull) => return false,
                Err(SendError::Closed | SendError::TooLong) => p.kept.clear(),
            }
        }
        let (msgs, bytes) = (core::mem::take(&mut p.owed_msgs), core::mem::take(&mut p.owed_bytes));
        if msgs > 0 || bytes > 0 {
            self.give_credit(peer, msgs, bytes);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{OpError, OpKind, SendMode};
    use crate::config::Config;
    use crate::testing::{Bytes, PEER, Pair, recv_op, send_op};
    use alloc::vec::Vec;
    use weir_link::DownReason;

    /// The queue of control messages has room for so few.
    fn narrow() -> Pair {
        // The second kind is announced.
        let cfg = Config { eager_bytes: 100, credit_msgs: 16, unexpected_bytes: 0, ..Config::default() };
        let mut proto = weir_link::Config::default();
        (proto.session.control_queue, proto.session.initial_credit_msgs) = (4, 16);
        Pair::connected(&cfg, &proto)
    }

    #[test]
    fn an_answer_that_finds_no_room_is_told_when_there_is() {
        let mut pair = narrow();
        let count = 40;
        for tag in 0..count {
            // Half of them with their payload, half announced.
            let bytes = Bytes::new(&[tag as u8; 300][..if tag % 2 == 0 { 8 } else { 300 }]);
            pair.sides[0].send(pair.now, send_op(tag, bytes, SendMode::Match)).expect("accepted");
        }
        for context in 0..count as usize {
            pair.sides[1].recv(pair.now, recv_op(context, Bytes::new(&[0; 300]))).expect("posted");
        }
        pair.transmit();
        // They arrive, and what is said to them is lost for a while.
        for _ in 0..30 {
            pair.deliver(1);
            pair.flying[0].clear();
            pair.advance(3_000_000);
        }
        assert!(pair.sides[1].counters().answers_kept > 0, "the queue had room");
        pair.settle();
        let sends: Vec<_> = pair.ended(0).into_iter().filter(|c| c.kind == OpKind::Send).collect();
        assert!(sends.iter().all(|c| c.result.is_ok()), "{sends:?}");
        assert_eq!((sends.len(), pair.ended(1).len()), (count as usize, count as usize));
        assert_eq!((pair.sides[0].held(), pair.sides[1].held()), ([0; 4], [0; 4]));
        assert!(!pair.sides[1].owes());
    }

    #[test]
    fn a_peer_that_asks_for_more_than_it_may_is_given_up() {
        let mut pair = narrow();
        let most = pair.sides[1].cfg.answers_max() as u64 + 4;
        pair.sides[1]
            .recv(pair.now, crate::RecvOp { source: Some(PEER), ..recv_op(7, Bytes::default()) })
            .expect("posted");
        for op in 0..most {
            pair.sides[1].answer(pair.now, PEER, &Envelope::SyncAck { op });
        }
        pair.sides[1].timeouts(pair.now);
        assert_eq!(pair.sides[1].down(PEER), None);
        for op in 0..2 {
            pair.sides[1].answer(pair.now, PEER, &Envelope::SyncAck { op });
        }
        pair.sides[1].timeouts(pair.now);
        assert_eq!(pair.sides[1].down(PEER), Some(DownReason::Violation));
        assert_eq!(pair.ended(1)[0].result, Err(OpError::PeerDown(DownReason::Violation)));
        // What it has said meanwhile is nobody's, and it learns that it is over.
        pair.sides[0].send(pair.now, send_op(1, Bytes::new(&[1; 8]), SendMode::Match)).expect("accepted");
        pair.settle();
        assert_eq!(pair.sides[0].down(PEER), Some(DownReason::Closed));
        assert_eq!(pair.ended(0)[0].result, Err(OpError::PeerDown(DownReason::Closed)));
        assert!(pair.sides[1].sessions.is_down(PEER), "its place can be given to another");
        assert_eq!(pair.sides[1].sessions.endpoint().counters().violations, 1);
        assert_eq!((pair.sides[1].held(), pair.sides[1].counters().overruns), ([0; 4], 1));
    }
}
