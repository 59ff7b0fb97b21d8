//! Short messages that need no place in the tables. A send goes straight into memory shared with the peer: when it is in it is the peer's. A message that is all there when it comes, and
//! meets a receive that waits for it, goes straight into its memory.

use crate::api::{Completion, OpKind, SendMode, SendOp};
use crate::keys::key;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Sink, Step};
use crate::receiving::Fragment;
use crate::sending::INJECT_BYTES;
use weir_link::{BodyKey, PeerId};
use weir_match::envelope::{Envelope, MAX_BYTES};
use weir_match::{Arrival, MsgToken, stream_of};
use weir_session::Numbers;

/// What goes before the payload of a send that may go straight.
#[derive(Debug)]
pub struct Straight {
    /// The envelope, in the first [`Straight::envelope_len`] bytes.
    pub envelope: [u8; MAX_BYTES],
    /// Its length, bytes.
    pub envelope_len: usize,
    /// The stream.
    pub stream: u16,
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Whether a send may go straight: its memory is free when the carrier has taken it, and nothing of it need be kept.
    /// What is traced goes the way on which each step is told.
    #[inline]
    pub fn straight(&self, op: &SendOp<M>) -> Option<Straight> {
        let len = op.memory.len();
        let free_when_taken = matches!(op.mode, SendMode::Inject | SendMode::Transmit);
        if !free_when_taken || len > INJECT_BYTES as u64 || self.broken.is_some() || self.trace.on(1) {
            return None;
        }
        self.peers.get(op.peer).filter(|p| p.up && p.down.is_none())?;
        if len > u64::from(self.cfg.eager_bytes) {
            return None;
        }
        let mut envelope = [0; MAX_BYTES];
        let said = Envelope::Eager { class: op.class, tag: op.tag, data: op.data, sync: None };
        let envelope_len = said.encode(&mut envelope);
        let session = self.endpoint().sessions().get(PeerId(op.peer))?;
        let stream = stream_of(op.tag, op.class, self.cfg.streams, self.cfg.stream_bits);
        session.goes_straight(len as usize, envelope_len).then_some(Straight { envelope, envelope_len, stream })
    }

    /// The carrier takes it: its numbers, and its completion.
    #[inline]
    pub fn go_straight(&mut self, op: &SendOp<M>, stream: u16) -> Option<Numbers> {
        let len = op.memory.len();
        let (session, common) = self.endpoint_mut().sessions_mut().get_mut(PeerId(op.peer))?;
        let numbers = session.go_straight(common, stream, len as u32);
        self.counters.eager_sends += 1;
        self.peers[op.peer].streams.sent(stream, len);
        self.complete(Completion {
            context: op.context,
            user: op.user,
            kind: OpKind::Send,
            class: op.class,
            report: op.report,
            multi_done: false,
            len: len as usize,
            address: 0,
            tag: op.tag,
            data: None,
            source: None,
            result: Ok(()),
        });
        Some(numbers)
    }

    /// A message that came in one piece, if a receive waits for it, nobody wants to hear of the match, and it is the next one. False: nothing was done.
    #[inline]
    pub(crate) fn receive_straight(&mut self, f: &Fragment, envelope: &[u8], bytes: &[u8]) -> bool {
        if self.recvs.len() == 0 || self.trace.on(1) || bytes.len() != f.total_len as usize {
            return false;
        }
        let Ok(Envelope::Eager { class, tag, data, sync: None }) = Envelope::decode(envelope) else { return false };
        let (peer, mseq, stream, len) = (f.peer, f.mseq, f.stream, u64::from(f.total_len));
        let arrival = Arrival { peer, class, mseq, stream, sseq: f.sseq, tag, len, msg: NO_MESSAGE };
        let Some(op) = self.matcher.take_at_once(&arrival) else { return false };
        let p = self.peers.ensure(peer);
        p.streams.received(stream, len);
        p.streams.met(stream, len, true);
        self.counters.expected += 1;
        let recv = self.recvs.remove(key(op));
        let context = recv.as_ref().map_or(0, |recv| recv.context);
        self.step(Step::Seen { peer, mseq, class, tag, data, len, credit_bytes: len });
        self.step(Step::Taken { peer, data, context });
        let key = BodyKey::Message(mseq);
        self.step(Step::Piece { peer, key, offset: 0, len, total: len, complete: true });
        self.step(Step::Whole { peer, data });
        self.give_credit(peer, 1, len);
        self.relieve();
        if let Some(recv) = recv {
            self.give_to(&recv, (peer, tag, data), bytes);
        }
        true
    }
}

/// The matcher's name for a message that is in no table: nobody asks for it.
const NO_MESSAGE: MsgToken = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::api::OpError;
    use crate::testing::{Bytes, PEER, Pair, recv_op, send_op};
    use weir_session::Carrier;

    /// Two sides that have met; the first is told that memory carries what it sends.
    fn pair(cfg: &Config) -> Pair {
        let mut pair = Pair::connected(cfg, &weir_link::Config::default());
        let sessions = pair.sides[0].endpoint_mut().sessions_mut();
        sessions.set_carrier(PeerId(PEER), Carrier::Shm);
        sessions.get_mut(PeerId(PEER)).expect("it is up").0.set_piece_max(4096);
        pair
    }

    fn goes(pair: &Pair, len: usize, mode: SendMode) -> bool {
        pair.sides[0].straight(&send_op(1, Bytes::new(&alloc::vec![7; len]), mode)).is_some()
    }

    #[test]
    fn what_is_free_when_taken_goes_straight_and_completes() {
        let mut pair = pair(&Config::default());
        let (sends, eager) = (pair.sides[0].totals().sends, pair.sides[0].counters().eager_sends);
        for (mode, n) in [(SendMode::Inject, 1), (SendMode::Transmit, 2)] {
            let op = send_op(1, Bytes::new(&[7; 8]), mode);
            let head = pair.sides[0].straight(&op).expect("it may");
            assert!(pair.sides[0].go_straight(&op, head.stream).is_some());
            assert_eq!(pair.sides[0].totals().sends, sends + n);
            assert_eq!(pair.ended(0).len(), usize::from(op.report));
        }
        assert_eq!(pair.sides[0].held(), [0; 4], "nothing is kept");
        assert_eq!(pair.sides[0].counters().eager_sends, eager + 2);
    }

    #[test]
    fn what_somebody_waits_for_does_not() {
        let pair = pair(&Config::default());
        assert!([SendMode::Acknowledged, SendMode::Delivery, SendMode::Match].iter().all(|m| !goes(&pair, 8, *m)));
        assert!(goes(&pair, 8, SendMode::Transmit) && !goes(&pair, INJECT_BYTES + 1, SendMode::Transmit));
    }

    #[test]
    fn where_all_is_to_be_asked_for_nothing_goes_straight() {
        let pair = pair(&Config { eager_bytes: 0, ..Config::default() });
        assert!(!goes(&pair, 8, SendMode::Inject) && goes(&pair, 0, SendMode::Inject));
    }

    #[test]
    fn a_peer_that_is_gone_gets_nothing_straight() {
        let mut pair = pair(&Config::default());
        let now = pair.now;
        pair.sides[0].with_events(now, &[], |proto, events| {
            proto.sessions_mut().end(PeerId(PEER), weir_link::DownReason::Unreachable, events);
        });
        assert!(!goes(&pair, 8, SendMode::Inject));
    }

    #[test]
    fn a_whole_message_that_is_waited_for_takes_no_place() {
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        let expected = pair.sides[1].counters().expected;
        for (room, len, result) in
            [(8, 8, Ok(())), (8, 0, Ok(())), (4, 8, Err(OpError::Truncated { excess: 4 })), (600, 500, Ok(()))]
        {
            let dest = Bytes::new(&alloc::vec![0; room]);
            pair.sides[1].recv(pair.now, recv_op(1, dest.clone())).expect("posted");
            let op = send_op(1, Bytes::new(&alloc::vec![7; len]), SendMode::Transmit);
            pair.sides[0].send(pair.now, op).expect("accepted");
            pair.settle();
            let ended = pair.ended(1);
            assert_eq!((ended.len(), ended[0].len, ended[0].result), (1, room.min(len), result));
            assert!(dest.to_vec().iter().take(len).all(|b| *b == 7));
        }
        assert_eq!(pair.sides[1].counters().expected, expected + 4);
        assert_eq!(pair.sides[1].counters().truncated, 1);
        assert_eq!(pair.sides[1].held(), [0; 4]);
    }
}
