//! Short messages that need no place in the tables. A send goes straight into memory shared with
//! the peer: when it is in it is the peer's; or alone into a packet, and what may have to be sent
//! again is kept beside its number. A message that is all there when it comes, and meets a receive
//! that waits for it, goes straight into its memory; one that a caller looks for goes to that.

use crate::api::{Completion, OpKind, SendMode, SendOp};
use crate::asked::{Handed, Wanted};
use crate::budget::Refused;
use crate::keys::{NO_TOKEN, key};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Sink, Step};
use crate::receiving::Fragment;
use crate::sending::{INJECT_BYTES, asks_for};
use weir_link::{DataKey, Message, PacketBuf, PeerId, Time, Transmit};
use weir_match::envelope::{Envelope, MAX_BYTES};
use weir_match::{Arrival, Class, MsgToken, OpToken, stream_of};
use weir_session::{FragmentIn, KEPT_MAX, Numbers};

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
    /// Whether a send may go straight: its memory is free when the carrier has taken it, and
    /// nothing of it need be kept.
    #[inline]
    pub fn straight(&self, op: &SendOp<M>) -> Option<Straight> {
        let head = self.head_of(op)?;
        let session = self.endpoint().sessions().get(PeerId(op.peer))?;
        session.goes_straight(op.memory.len() as usize, head.envelope_len).then_some(head)
    }

    /// What goes before the payload of a send of which nobody waits for anything, and that is not
    /// to be asked for. What is traced goes the way on which each step is told.
    #[inline]
    fn head_of(&self, op: &SendOp<M>) -> Option<Straight> {
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
        let envelope_len = Envelope::encode_eager(op.class, op.tag, op.data, &mut envelope);
        let stream = stream_of(op.tag, op.class, self.cfg.streams, self.cfg.stream_bits);
        Some(Straight { envelope, envelope_len, stream })
    }

    /// The carrier takes it: its numbers, and its completion.
    #[inline]
    pub fn go_straight(&mut self, op: &SendOp<M>, stream: u16) -> Option<Numbers> {
        let (session, common) = self.endpoint_mut().sessions_mut().get_mut(PeerId(op.peer))?;
        let numbers = session.go_straight(common, stream, op.memory.len() as u32);
        self.went(op, stream);
        Some(numbers)
    }

    /// A short send of which nobody waits for anything, with whose peer nothing else is under way,
    /// leaves at once: `out` is its packet, to be sent now. What has to be kept of it is kept with
    /// its number, and it takes no other place. `None`: nothing was done, and it is to be sent as
    /// any other.
    ///
    /// Nothing may have been left unsaid before ([`Messages::poll_transmit`]).
    #[inline]
    pub fn send_alone(&mut self, now: Time, op: &SendOp<M>, out: &mut PacketBuf) -> Option<Transmit> {
        let len = op.memory.len() as usize;
        if len > KEPT_MAX || !self.keeping.is_empty() {
            return None;
        }
        let Straight { envelope, envelope_len, stream } = self.head_of(op)?;
        let mut payload = [0; KEPT_MAX];
        op.memory.read(0, &mut payload[..len]);
        let envelope = &envelope[..envelope_len];
        let message = Message { control: false, stream, envelope, len: len as u32, patient: true, token: NO_TOKEN };
        let to = PeerId(op.peer);
        let packet = self.endpoint_mut().send_alone(now, to, &message, &payload[..len], out)?;
        self.went(op, stream);
        Some(packet)
    }

    /// A send is the carrier's affair now, and its memory the caller's again.
    #[inline]
    fn went(&mut self, op: &SendOp<M>, stream: u16) {
        let len = op.memory.len();
        self.counters.eager_sends += 1;
        self.counters.payload_bytes += len;
        let peer = &mut self.peers[op.peer];
        peer.streams.sent(stream, len);
        if peer.refused.is_some() {
            Refused::accepted(&mut peer.refused, asks_for(op, len as usize));
        }
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
    }

    /// A message came whole, by a carrier that asks here first. True: a receive had waited for it
    /// and has it, or a caller who looks ([`Messages::look_for`]), and nothing else is to be done.
    /// False: nothing was done, and it goes the way of all fragments, by what the session makes of
    /// it.
    #[inline]
    pub fn whole(&mut self, peer: PeerId, f: &FragmentIn, envelope: &[u8], bytes: &[u8]) -> bool {
        let is_next = self.endpoint().sessions().get(peer).is_some_and(|s| s.is_next(f, bytes.len()));
        if !is_next || self.is_given_up(peer) {
            return false;
        }
        let FragmentIn { stream, mseq, sseq, total_len, offset } = *f;
        let f = &Fragment { peer: peer.0, stream, mseq, sseq, total_len, offset, first: true, complete: true };
        let Some(met) = self.meet(f, envelope, bytes) else { return false };
        if let Some((session, common)) = self.endpoint_mut().sessions_mut().get_mut(peer) {
            session.take_next(common, &FragmentIn { stream, mseq, sseq, total_len, offset });
        }
        self.give_straight(&met, f, bytes);
        true
    }

    /// A message that came in one piece, if a receive or a caller waits for it, nobody wants to
    /// hear of the match, and it is the next one. False: nothing was done.
    #[inline]
    pub(crate) fn receive_straight(&mut self, f: &Fragment, envelope: &[u8], bytes: &[u8]) -> bool {
        let met = self.meet(f, envelope, bytes);
        if let Some(met) = &met {
            self.give_straight(met, f, bytes);
        }
        met.is_some()
    }

    /// From here to [`Messages::take_asked`] short messages that come, and that no receive waits
    /// for, are kept for the caller, who is to take them.
    #[inline]
    pub fn look_for(&mut self, wanted: Wanted) {
        self.asked.begin(wanted);
    }

    /// Shows the caller what has come of what it looked for, oldest first. Of each peer they are
    /// the next ones; others of that tag may wait, for which to peek.
    #[inline]
    pub fn take_asked(&mut self, mut each: impl FnMut(&Handed<'_>)) {
        let peers = &self.peers;
        self.asked.end(|peer, data, bytes| each(&Handed { source: peers.source(peer), data, bytes }));
    }

    /// Who takes such a message; the receive is out of the matcher then.
    #[inline]
    fn meet(&mut self, f: &Fragment, envelope: &[u8], bytes: &[u8]) -> Option<Met> {
        if self.trace.on(1) || bytes.len() != f.total_len as usize {
            return None;
        }
        let (class, tag, data) = match Envelope::decode_eager(envelope) {
            Some((tag, data)) => (Class::Tagged, tag, data),
            None => match Envelope::decode(envelope) {
                Ok(Envelope::Eager { class, tag, data, sync: None }) => (class, tag, data),
                Ok(_) | Err(_) => return None,
            },
        };
        let (peer, mseq, stream, len) = (f.peer, f.mseq, f.stream, u64::from(f.total_len));
        let arrival = Arrival { peer, class, mseq, stream, sseq: f.sseq, tag, len, msg: NO_MESSAGE };
        let op = if self.recvs.len() == 0 { None } else { self.matcher.take_at_once(&arrival) };
        let is_asked_for = op.is_none() && class == Class::Tagged && self.asked.wants(tag);
        if op.is_none() && !(is_asked_for && self.matcher.pass(&arrival)) {
            return None;
        }
        Some(Met { op, class, tag, data })
    }

    /// Gives a message to the receive that it has met, the end of both, or to the caller who looks.
    #[inline]
    fn give_straight(&mut self, met: &Met, f: &Fragment, bytes: &[u8]) {
        let Met { op, class, tag, data } = *met;
        let (peer, mseq, stream, len) = (f.peer, f.mseq, f.stream, u64::from(f.total_len));
        self.peers.ensure(peer).streams.met_at_once(stream, len, op.is_some());
        *if op.is_some() { &mut self.counters.expected } else { &mut self.counters.unexpected } += 1;
        let recv = op.and_then(|op| self.recvs.remove(key(op)));
        let context = recv.as_ref().map_or(0, |recv| recv.context);
        self.step(Step::Seen { peer, mseq, class, tag, data, len, credit_bytes: len });
        self.step(Step::Taken { peer, data, context });
        let key = DataKey::Message(mseq);
        self.step(Step::Piece { peer, key, offset: 0, len, total: len, complete: true });
        self.step(Step::Whole { peer, data });
        self.give_credit(peer, 1, len);
        self.relieve();
        match recv {
            Some(recv) => self.give_to(&recv, (peer, tag, data), bytes),
            None => self.asked.push(peer, data, bytes),
        }
    }
}

/// A message and the receive that takes it; none: the caller who looks.
struct Met {
    op: Option<OpToken>,
    class: Class,
    tag: u64,
    data: Option<u64>,
}

/// The matcher's name for a message that is in no table: nobody asks for it.
const NO_MESSAGE: MsgToken = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::api::{OpError, RecvOp};
    use crate::testing::{Bytes, PEER, Pair, recv_op, send_op};
    use alloc::vec::Vec;
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
    fn a_send_that_was_refused_keeps_no_later_one_off_the_short_way() {
        let cfg = Config { copied_bytes: 1, ..Config::default() };
        let mut pair: Pair = Pair::connected(&cfg, &weir_link::Config::default());
        let now = pair.now;
        let op = |len: usize, mode| send_op(1, Bytes::new(&alloc::vec![7; len]), mode);
        // As many copies as there is room for, and one more.
        let copied = || SendOp { copy: true, ..op(INJECT_BYTES, SendMode::Delivery) };
        let sent = (0..100).take_while(|_| pair.sides[0].send(now, copied()).is_ok()).count();
        assert!(sent < 100 && pair.sides[0].peers[PEER].refused.is_some());
        for _ in 0..sent {
            pair.sides[1].recv(now, recv_op(1, Bytes::new(&[0; INJECT_BYTES]))).expect("posted");
        }
        pair.settle();
        assert_eq!((pair.ended(0).len(), pair.sides[0].owes()), (sent, false));
        assert!(pair.sides[0].send_alone(pair.now, &op(8, SendMode::Inject), &mut PacketBuf::new()).is_some());
        assert!(pair.sides[0].peers[PEER].refused.is_some(), "who asks for more may wait still");
        let sessions = pair.sides[0].endpoint_mut().sessions_mut();
        sessions.set_carrier(PeerId(PEER), Carrier::Shm);
        sessions.get_mut(PeerId(PEER)).expect("it is up").0.set_piece_max(2 * INJECT_BYTES);
        let long = op(INJECT_BYTES, SendMode::Inject);
        let head = pair.sides[0].straight(&long).expect("it may");
        assert!(pair.sides[0].go_straight(&long, head.stream).is_some());
        assert!(pair.sides[0].peers[PEER].refused.is_none(), "as much was accepted");
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
    fn what_leaves_alone_is_complete_at_once_and_sent_again_until_it_has_arrived() {
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        let mut out = PacketBuf::new();
        let op = |len: usize, mode| send_op(1, Bytes::new(&alloc::vec![7; len]), mode);
        let now = pair.now;
        for other in [op(8, SendMode::Acknowledged), op(8, SendMode::Match), op(KEPT_MAX + 1, SendMode::Inject)] {
            assert!(pair.sides[0].send_alone(now, &other, &mut out).is_none(), "{:?}", other.mode);
        }
        let dest = [Bytes::new(&[0; 8]), Bytes::new(&[0; KEPT_MAX])];
        for d in &dest {
            pair.sides[1].recv(now, recv_op(1, d.clone())).expect("posted");
        }
        // The first is lost, the second is under way before that is known.
        assert!(pair.sides[0].send_alone(now, &op(8, SendMode::Inject), &mut out).is_some());
        assert_eq!(pair.ended(0).len(), 1, "its memory is free");
        assert!(pair.sides[0].send_alone(now, &op(KEPT_MAX, SendMode::Transmit), &mut out).is_some());
        assert_eq!(pair.ended(0).len(), 1);
        pair.flying[1].push_back(out.head.clone());
        assert_eq!((pair.sides[0].held(), pair.sides[0].owes()), ([0; 4], true));
        pair.settle();
        // (The one that was complete before it could be matched ends first.)
        let mut ended: Vec<_> = pair.ended(1).iter().map(|c| (c.len, c.result)).collect();
        ended.sort_unstable_by_key(|(len, _)| *len);
        assert_eq!(ended, [(8, Ok(())), (KEPT_MAX, Ok(()))]);
        assert!(dest.iter().all(|d| d.to_vec().iter().all(|b| *b == 7)));
        assert!(!pair.sides[0].owes() && pair.ended(0).is_empty());
    }

    #[test]
    fn where_something_waits_nothing_leaves_alone() {
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        let (now, mut out) = (pair.now, PacketBuf::new());
        let op = send_op(1, Bytes::new(&[7; 8]), SendMode::Inject);
        pair.sides[0].send(now, send_op(1, Bytes::new(&[7; 8]), SendMode::Inject)).expect("accepted");
        assert!(pair.sides[0].send_alone(now, &op, &mut out).is_none(), "another is to go first");
        pair.transmit();
        assert!(pair.sides[0].send_alone(now, &op, &mut out).is_some());
    }

    #[test]
    fn what_a_carrier_hands_up_whole_goes_to_the_receive_that_waits_for_it_once() {
        let mut pair = pair(&Config::default());
        // (The first message of a stream goes the usual way: this is the second.)
        let op = send_op(0, Bytes::new(&[7; 8]), SendMode::Transmit);
        let head = pair.sides[0].straight(&op).expect("it may");
        let numbers = pair.sides[0].go_straight(&op, head.stream).expect("a session");
        let Numbers { mseq, sseq } = numbers;
        let f = FragmentIn { stream: head.stream, mseq, sseq, total_len: 8, offset: 0 };
        let (peer, envelope) = (PeerId(PEER), &head.envelope[..head.envelope_len]);
        let dest = Bytes::new(&[0; 8]);
        assert!(!pair.sides[1].whole(peer, &f, envelope, &[7; 8]), "nobody waits for it");
        pair.sides[1].recv(pair.now, recv_op(1, dest.clone())).expect("posted");
        assert!(!pair.sides[1].whole(peer, &f, envelope, &[7; 7]), "not all of it");
        assert!(!pair.sides[1].whole(peer, &f, &[0xff; 8], &[7; 8]), "no envelope");
        assert!(pair.ended(1).is_empty());
        assert!(pair.sides[1].whole(peer, &f, envelope, &[7; 8]));
        let ended = pair.ended(1);
        assert_eq!((ended.len(), ended[0].len, ended[0].result), (1, 8, Ok(())));
        assert_eq!(dest.to_vec(), [7; 8]);
        assert_eq!(pair.sides[1].held(), [0; 4]);
        pair.sides[1].recv(pair.now, recv_op(1, dest)).expect("posted");
        assert!(!pair.sides[1].whole(peer, &f, envelope, &[7; 8]), "it has been received");
    }

    /// A message of one byte, with this tag; what it says is in its immediate data too.
    fn say(pair: &mut Pair, tag: u64, what: u8) {
        let op = SendOp { data: Some(u64::from(what)), ..send_op(tag, Bytes::new(&[what]), SendMode::Inject) };
        pair.sides[0].send(pair.now, op).expect("accepted");
        pair.settle();
    }

    fn taken(pair: &mut Pair) -> Vec<u8> {
        let mut all = Vec::new();
        pair.sides[1].take_asked(|m| {
            assert_eq!((m.source, m.data), (Some(PEER), Some(u64::from(m.bytes[0]))));
            all.extend_from_slice(m.bytes);
        });
        all
    }

    fn claimed(pair: &mut Pair, tag: u64) -> Option<u64> {
        let op = crate::PeekOp {
            source: None,
            class: Class::Tagged,
            tag,
            ignore: 0,
            claim: false,
            discard: true,
            context: 0,
        };
        pair.sides[1].peek(pair.now, &op).expect("no claim").and_then(|c| c.data)
    }

    #[test]
    fn what_a_caller_looks_for_comes_to_it_in_order_and_takes_no_place() {
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        // (The first message of a stream goes the usual way.)
        say(&mut pair, 9, 0);
        assert_eq!(claimed(&mut pair, 9), Some(0));
        let unexpected = pair.sides[1].counters().unexpected;
        pair.sides[1].look_for(Wanted { tag: 9, most: 2 });
        for (tag, what) in [(9, 1), (8, 2), (9, 3), (9, 4)] {
            say(&mut pair, tag, what);
        }
        // One has another tag, and one is more than it takes.
        assert_eq!((pair.sides[1].held()[2], taken(&mut pair)), (2, alloc::vec![1, 3]));
        assert_eq!(pair.sides[1].counters().unexpected, unexpected + 2);
        // The next one is behind the one that waits, and nothing overtakes.
        pair.sides[1].look_for(Wanted { tag: 9, most: 2 });
        say(&mut pair, 9, 5);
        assert_eq!(taken(&mut pair), []);
        assert_eq!([9, 9, 9].map(|tag| claimed(&mut pair, tag)), [Some(4), Some(5), None]);
        // (The other one that waits is in nobody's way.)
        pair.sides[1].look_for(Wanted { tag: 9, most: 2 });
        say(&mut pair, 9, 6);
        assert_eq!(taken(&mut pair), [6]);
        say(&mut pair, 9, 7);
        assert_eq!(taken(&mut pair), [], "nobody looks");
        assert_eq!((claimed(&mut pair, 9), claimed(&mut pair, 8)), (Some(7), Some(2)));
        assert_eq!(pair.sides[1].held(), [0; 4]);
    }

    #[test]
    fn a_receive_comes_before_who_looks_and_credit_is_given_for_what_is_looked_for() {
        for alone in [true, false] {
            let mut proto = weir_link::Config::default();
            proto.session.initial_credit_msgs = 16;
            let mut pair: Pair =
                Pair::connected(&Config { credit_msgs: 16, unexpected_bytes: 0, ..Config::default() }, &proto);
            let dest = Bytes::new(&[0]);
            if !alone {
                pair.sides[1]
                    .recv(pair.now, RecvOp { tag: 7, ignore: 0, ..recv_op(7, Bytes::default()) })
                    .expect("posted");
            }
            pair.sides[1].recv(pair.now, RecvOp { tag: 9, ignore: 0, ..recv_op(1, dest.clone()) }).expect("posted");
            pair.sides[1].look_for(Wanted { tag: 9, most: 100 });
            for what in 1..=60 {
                say(&mut pair, 9, what);
            }
            assert_eq!((pair.ended(1).len(), dest.to_vec()), (1, alloc::vec![1]));
            assert_eq!(taken(&mut pair), (2..=60).collect::<Vec<u8>>());
        }
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
