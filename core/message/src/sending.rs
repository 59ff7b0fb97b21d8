//! Sends: eager, rendezvous; and their completion.

use crate::api::{MessageError, OpError, OpKind, SendMode, SendOp};
use crate::budget::{Refused, WAITING_BYTES};
use crate::keys::{NO_TOKEN, SendKey, key, token};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::sends::{Role, SendState};
use crate::source::{Source, copy_cost};
use weir_link::{LONG_TRIP_NS, SendError, Time};
use weir_match::envelope::{Envelope, Status};
use weir_match::stream_of;

/// Messages that may wait for credit or window towards one peer before sends are refused: deep
/// enough for windows of any benchmark. Where to wait does not help more may, and each of them
/// takes part of the budget of copies.
pub const QUEUE_MSGS: usize = 4096;

/// Largest message sent eagerly before the peer has answered: half of the least credit a peer may
/// give, the longest that fits into it.
const EARLY_BYTES: usize = 2048;
/// All of these together: no more than that credit. More could wait for ever, and hold up what the
/// peer asks for first.
const EARLY_TOTAL_BYTES: usize = 4096;

/// Longest message that goes without asking whatever window and receiver are like, unless the
/// settings say less: it fits the window of a path nothing is known of (32 packets), and at a
/// millisecond it takes half of the time if it does not ask.
const UNASKED_BYTES: u64 = 32 << 10;

/// Longest message that goes without asking to a peer with a bulk connection, at least: what takes
/// longer is the copying, and a round trip more is no part of it.
const BULK_EAGER_BYTES: u64 = 256 << 10;

/// What a receiver grants at once that nobody else sends to (`weir_session::Config::grant_share`),
/// or all of a shorter message.
const GRANTED_AT_ONCE_BYTES: u64 = 64 << 10;

/// What a send of so many bytes asks for, as far as waits for room are concerned: the same however
/// it goes, for a wait is over when one that asks for as much is accepted.
#[inline]
pub(crate) fn asks_for<M>(op: &SendOp<M>, len: usize) -> u64 {
    if op.must_copy() { copy_cost(len, false).max(1) } else { 0 }
}

/// Copies of large payloads that wait for a peer are memory the caller does not see: an injected
/// message may be this long at most.
pub const INJECT_BYTES: usize = 16 << 10;

/// Refuses a payload that is too long to be copied because the caller demands it.
pub(crate) fn check_copied(what: &'static str, len: usize, must_copy: bool) -> Result<(), MessageError> {
    if must_copy && len > INJECT_BYTES {
        return Err(MessageError::TooBig { what, given: len as u64, limit: INJECT_BYTES as u64 });
    }
    Ok(())
}

/// Shorter payload is copied before it is sent: that takes no time.
const LENT_BYTES: usize = 4 << 10;

/// So many bytes copied for a peer and not acknowledged yet are a stream.
const STREAM_COPIED_BYTES: u64 = 128 << 10;

/// What must be free of the window before a message longer than it leaves unasked over a long path:
/// a batch of segmentation offload.
const LONG_TRIP_FREE: u64 = 64 << 10;

/// Bytes that are sent unasked rather than wait for such a round trip: a quarter for each
/// nanosecond, all of them where it is long.
fn worth_of_a_trip(trip_ns: u64) -> u64 {
    if trip_ns < LONG_TRIP_NS { trip_ns / 4 } else { trip_ns }
}

/// What a send costs and how it goes.
struct Plan {
    /// With its payload, and not only announced.
    eager: bool,
    /// The payload is copied at once.
    copy: bool,
    /// What it takes of the budget of copies, bytes.
    charge: u64,
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Starts a send, and tells how many bytes of it go now: none if it is announced and waits for
    /// the receiver. With [`SendMode::Inject`] or `copy`, its memory is not used any more when this
    /// returns; nor is it if the send is complete already.
    ///
    /// # Errors
    /// As [`Messages::send_lent`].
    #[inline]
    pub fn send(&mut self, now: Time, op: SendOp<M>) -> Result<usize, MessageError> {
        let sent = self.send_lent(now, op);
        self.copy_lent();
        sent
    }

    /// As [`Messages::send`], but what is to be copied, so that the send is complete at once or for
    /// it is injected, may not be yet: the caller sends what it can, and then calls
    /// [`Messages::copy_lent`], before the memory is its program's again. The receiver copies
    /// meanwhile.
    ///
    /// # Errors
    /// [`MessageError::Again`] when a queue is full, [`MessageError::NoMemory`],
    /// [`MessageError::PeerDown`], [`MessageError::TooBig`], [`MessageError::Invalid`],
    /// [`MessageError::Socket`].
    #[inline]
    pub fn send_lent(&mut self, now: Time, mut op: SendOp<M>) -> Result<usize, MessageError> {
        debug_assert!(self.lent.is_none(), "the last one's memory is its program's already");
        let len = op.memory.len() as usize;
        check_copied("injected message", len, op.must_copy())?;
        self.check_socket()?;
        let peer = self.peers.get(op.peer).ok_or(MessageError::Invalid("no such peer"))?;
        let up = peer.up;
        if let Some(reason) = peer.down {
            return Err(MessageError::PeerDown(reason));
        }
        let Plan { eager, copy, charge } = self.plan(now, &op, len)?;
        let lent = copy && len >= LENT_BYTES;
        let source = self.source_of(&mut op.memory, len, copy && !lent);
        let role = if eager { Role::Eager } else { Role::Requested };
        let mut s = SendState {
            class: op.class,
            tag: op.tag,
            context: op.context,
            user: op.user,
            report: op.report,
            answers: u32::from(eager && op.mode == SendMode::Match),
            charge,
            ..SendState::new(op.peer, source, len as u64, role, OpKind::Send)
        };
        if op.mode == SendMode::Inject || (op.mode == SendMode::Transmit && copy) {
            self.announce(&mut s, Ok(()));
        }
        let patient = s.is_patient();
        let k = self.sends.insert(s);
        self.lent = lent.then_some(k);
        if let Err(e) = self.submit(now, &op, k, len as u64, eager, patient) {
            return Err(self.unsend(k, e));
        }
        if eager && !up {
            self.peers[op.peer].early_bytes += len;
        }
        Ok(if eager { len } else { 0 })
    }

    /// Copies what [`Messages::send_lent`] has not, if it is needed still.
    #[inline]
    pub fn copy_lent(&mut self) {
        if let Some(s) = self.lent.take().and_then(|k| self.sends.get_mut(k))
            && let Source::User(memory) = &s.source
        {
            s.source = Source::copied(memory, s.len as usize, &mut self.pool);
        }
    }

    /// How a send goes; takes the room for its copy.
    #[inline]
    fn plan(&mut self, now: Time, op: &SendOp<M>, len: usize) -> Result<Plan, MessageError> {
        let crowded = self.sessions.unsent(op.peer) >= QUEUE_MSGS;
        if crowded && !self.queues_on {
            return Err(self.queue_full(now, op.peer));
        }
        let peer = &self.peers[op.peer];
        // Before the handshake the peer's credit is not known, but any peer gives some: small
        // messages need not wait for it to ask.
        let early = !peer.up && len <= EARLY_BYTES && peer.early_bytes + len <= EARLY_TOTAL_BYTES;
        let room = self.sessions.credit_bytes(op.peer) >= len as u64 || early;
        let eager = room && self.goes_unasked(op.peer, len as u64);
        let must_copy = op.must_copy();
        // (In a stream of long ones each copy would go through memory that no cache has.)
        let streams = len > INJECT_BYTES && self.peers[op.peer].copied_bytes >= STREAM_COPIED_BYTES;
        let may_copy = op.mode == SendMode::Transmit
            && (len <= self.cfg.copy_bytes && !streams || eager && self.copies_all(op.peer))
            && (len as u64) < self.sessions.lent_from(op.peer);
        let cost = copy_cost(len, !eager || crowded);
        let copy = (must_copy || may_copy) && self.take_copy_room(op.peer, cost, must_copy);
        let charge = if copy { cost } else { u64::from(crowded) * WAITING_BYTES };
        let asks = asks_for(op, len);
        if !copy && (must_copy || crowded && !self.take_copy_room(op.peer, charge, true)) {
            return Err(self.no_room(now, op.peer, asks));
        }
        self.counters.lent_sends += u64::from(may_copy && !copy);
        Refused::accepted(&mut self.peers[op.peer].refused, asks);
        Ok(Plan { eager, copy, charge })
    }

    /// An acknowledgement by this peer takes longer than any copy of what the credit lets out: what
    /// goes unasked is copied, whatever its length, so that the send is complete at once.
    #[must_use]
    pub fn copies_all(&self, peer: u32) -> bool {
        self.cfg.copy_bytes > 0 && self.sessions.asking_ns(peer) >= LONG_TRIP_NS
    }

    /// A payload: copied, or the caller's memory.
    #[inline]
    pub(crate) fn source_of(&mut self, memory: &mut M, len: usize, copy: bool) -> Source<M> {
        if copy { Source::copied(memory, len, &mut self.pool) } else { Source::User(core::mem::take(memory)) }
    }

    /// Takes a send back that the protocol refused.
    #[cold]
    fn unsend(&mut self, k: SendKey, e: SendError) -> MessageError {
        let mut len = 0;
        self.lent = None;
        if let Some(s) = self.sends.remove(k) {
            self.return_copy_room(&s);
            len = s.len;
            if s.announced {
                self.done.take_back_send(s.report);
            }
            s.source.release(&mut self.pool);
        }
        match e {
            SendError::QueueFull => {
                self.counters.refused_sends += 1;
                MessageError::Again
            }
            SendError::Closed => MessageError::Closed,
            SendError::TooLong => MessageError::TooBig { what: "message", given: len, limit: u64::from(u32::MAX) },
        }
    }

    /// Whether a message goes without asking (spec 5, "Unasked").
    #[inline]
    fn goes_unasked(&self, to: u32, len: u64) -> bool {
        let least = u64::from(self.cfg.eager_bytes).min(UNASKED_BYTES);
        if len > self.sessions.max_matched_len(to) && len > self.sessions.credit_ahead(to) {
            return false;
        }
        len <= least || len <= self.eager_limit(to)
    }

    /// Longest message that is sent without asking, if that is more than [`UNASKED_BYTES`]. To ask
    /// costs a round trip, not to ask may cost a copy at the receiver (if nobody waits for the
    /// message): so the longer the round trip, the longer the message. A quarter of a byte for each
    /// nanosecond: an eighth or less of what can be copied in that time, for the copy is in the
    /// cache of the one who waits, and the credit is to last for a few messages.
    ///
    /// What a round trip is made of is not known, and where many send to one it is the queue in
    /// front of that one: the longer the queue, the more would go into it unasked. So no more goes
    /// than the window lets out at once, for else it waits here as long as the answer takes; and
    /// none to a receiver that could not grant all of what it was asked for last
    /// (`docs/lab/2026-11-23-eager.md`).
    fn eager_limit(&self, to: u32) -> u64 {
        let limit = u64::from(self.cfg.eager_bytes);
        if limit == 0 {
            return 0;
        }
        // What the receiver said beforehand that it expects (`spec/superstep.md` 5) is worth it in
        // any case: it has a place for it.
        let trip_ns = self.sessions.asking_ns(to);
        let of_a_trip = limit + worth_of_a_trip(trip_ns);
        let worth = of_a_trip.max(self.sessions.credit_ahead(to));
        if self.sessions.has_bulk(to) {
            return worth.max(BULK_EAGER_BYTES);
        }
        match self.sessions.free_window(to) {
            None => worth,
            Some(_) if self.peers[to].is_crowded => 0,
            // What is free leaves in the long round trip that the answer would take, and the rest
            // as it is acknowledged.
            Some(free) if free >= LONG_TRIP_FREE && trip_ns >= LONG_TRIP_NS => of_a_trip.max(worth.min(free)),
            Some(free) => worth.min(free),
        }
    }

    #[inline]
    fn submit(
        &mut self,
        now: Time,
        op: &SendOp<M>,
        k: SendKey,
        len: u64,
        eager: bool,
        patient: bool,
    ) -> Result<(), SendError> {
        let stream = stream_of(op.tag, op.class, self.cfg.streams, self.cfg.stream_bits);
        if eager {
            let sync = (op.mode == SendMode::Match).then(|| token(k));
            let envelope = Envelope::Eager { class: op.class, tag: op.tag, data: op.data, sync };
            self.sessions.send(now, op.peer, stream, &envelope, len as u32, token(k), patient)?;
            self.counters.eager_sends += 1;
        } else {
            let envelope = Envelope::Rts { class: op.class, tag: op.tag, data: op.data, len, op: token(k) };
            self.sessions.send(now, op.peer, stream, &envelope, 0, NO_TOKEN, false)?;
            self.counters.rendezvous_sends += 1;
        }
        self.counters.payload_bytes += len;
        self.peers[op.peer].streams.sent(stream, len);
        if self.trace.on(2) {
            let mseq = self.sessions.last_message(op.peer, false);
            self.trace_send(op, k, eager, mseq);
        }
        Ok(())
    }

    /// Gives up sends of this context that their receivers have not asked for yet; their
    /// completions say so, and their memory is the caller's again. A receiver that takes such a
    /// message later is told that it was given up. False when there is none: what is on its way, or
    /// was copied, goes on to its end.
    pub fn cancel_send(&mut self, context: usize) -> bool {
        let own = self.loopback.peer;
        let waiting = self.sends.waiting(context, own);
        for &k in &waiting {
            if let Some(s) = self.sends.remove(k) {
                self.finish_send(s, Err(OpError::Cancelled));
            }
        }
        !waiting.is_empty()
    }

    /// The receiver matched an eager message whose sender wanted to know.
    pub(crate) fn matched(&mut self, peer: u32, op: u64) {
        let k = key::<SendKey>(op);
        if let Some(s) = self.sends.get_mut(k).filter(|s| s.peer == peer && s.role == Role::Eager) {
            s.answers = 0;
            if self.trace.on(2) {
                self.trace_match_told(k);
            }
            self.end_if_over(k);
        }
    }

    /// The receiver asks for the rendezvous transfer of a rendezvous or large write.
    pub(crate) fn clear_to_send(&mut self, now: Time, peer: u32, op: u64, handle: u64, len: u64, granted: u64) {
        let k = key::<SendKey>(op);
        let Some(s) = self.sends.get_mut(k).filter(|s| s.peer == peer && s.role == Role::Requested) else {
            // The send was given up meanwhile: tell the receiver, which waits for bytes.
            self.sessions.abort_rndv(now, peer, handle);
            return;
        };
        s.role = Role::Rndv;
        if let Some(p) = self.peers.get_mut(peer) {
            p.is_crowded = granted < len.min(s.len).min(GRANTED_AT_ONCE_BYTES);
        }
        s.rndv = Some(handle);
        let len = len.min(s.len);
        if self.trace.on(2) {
            self.trace_granted(peer, k, handle, len, granted);
        }
        // A refusal means the peer is down; its Down event fails the operation.
        let _ = self.sessions.send_rndv(now, peer, handle, granted, len, op);
    }

    /// The peer says how an operation ended there.
    ///
    /// A write in pieces that nobody wants confirmed counts as complete when all are acknowledged:
    /// the target has them in its memory then, or has refused them. Its refusal is in the packet
    /// with the acknowledgement and is looked at first. Only when that packet was lost can the
    /// acknowledgement come first, alone; the refusal that follows is counted here. To have each
    /// write answered costs a message; who asks for delivery gets it.
    pub(crate) fn done(&mut self, now: Time, peer: u32, op: u64, status: Status) {
        let error = match status {
            Status::Ok => None,
            Status::Cancelled => Some(OpError::Cancelled),
            Status::BadKey | Status::Access | Status::Range | Status::NoMemory | Status::Alignment => {
                Some(OpError::Access)
            }
        };
        let k = key::<SendKey>(op);
        self.counters.access_errors += u64::from(error == Some(OpError::Access));
        let Some(s) = self.sends.get_mut(k).filter(|s| s.peer == peer) else { return };
        match (s.role, s.kind) {
            // The receiver wants nothing of it.
            (Role::Requested, OpKind::Send) => {
                s.awaits = 0;
                s.refused = error;
            }
            (Role::Requested, _) if error.is_some() => {
                (s.awaits, s.answers) = (0, 0);
                s.refused = error;
            }
            // Its pieces are read until each is acknowledged, whatever became of them there.
            (Role::Write, _) => {
                if s.answers > 0
                    && let Some(p) = self.peers.get_mut(peer)
                {
                    s.answers -= 1;
                    p.answers = p.answers.saturating_sub(1);
                }
                s.refused = s.refused.or(error);
            }
            (Role::Rndv, OpKind::Write) => {
                s.answers = 0;
                s.refused = error;
                // The target has closed its rendezvous transfer: no byte of it is wanted any more.
                if error.is_some()
                    && s.awaits > 0
                    && let Some(handle) = s.rndv
                {
                    s.awaits = 0;
                    self.sessions.abort_rndv(now, peer, handle);
                }
            }
            _ => return,
        }
        self.end_if_over(k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::testing::{Bytes, PEER, Pair, recv_op, send_op};

    const LONG: usize = 100 << 10;

    /// Sends a message that its receiver waits for, and says whether it went unasked.
    fn goes_unasked(pair: &mut Pair, len: usize) -> bool {
        let before = pair.sides[0].counters().eager_sends;
        let (from, to) = (Bytes::new(&alloc::vec![7; len]), Bytes::new(&alloc::vec![0; len]));
        pair.sides[1].recv(pair.now, recv_op(1, to.clone())).expect("posted");
        pair.sides[0].send(pair.now, send_op(1, from.clone(), SendMode::Transmit)).expect("accepted");
        pair.settle();
        assert_eq!((pair.ended(0).len(), pair.ended(1).len()), (1, 1));
        assert_eq!(from.to_vec(), to.to_vec());
        pair.sides[0].counters().eager_sends > before
    }

    fn pair(proto: &weir_link::Config) -> Pair {
        Pair::connected(&Config { streams: 1, ..Config::default() }, proto)
    }

    // spec: P-5.11, P-5.12, P-5.13, P-5.27
    #[test]
    fn a_long_message_goes_unasked_once_the_window_lets_all_of_it_out() {
        let mut pair = pair(&weir_link::Config::default());
        assert!(goes_unasked(&mut pair, UNASKED_BYTES as usize));
        assert!(!goes_unasked(&mut pair, LONG), "the first window is 32 packets");
        // Each that is asked for makes the window grow.
        let unasked = (0..10).map(|_| goes_unasked(&mut pair, LONG)).collect::<alloc::vec::Vec<_>>();
        assert!(unasked.ends_with(&[true, true]), "{unasked:?}");
        assert!(goes_unasked(&mut pair, 1 << 20), "a round trip takes a millisecond here: the peer lets in more");
        assert!(!goes_unasked(&mut pair, 4 << 20), "more than that");
    }

    // spec: P-5.13
    #[test]
    fn a_second_message_is_announced_while_the_first_fills_the_window() {
        let mut pair = pair(&weir_link::Config::default());
        while !goes_unasked(&mut pair, LONG) {}
        let before = pair.sides[0].counters().eager_sends;
        for _ in 0..8 {
            let op = send_op(1, Bytes::new(&[7; LONG]), SendMode::Transmit);
            pair.sides[0].send(pair.now, op).expect("accepted");
        }
        assert_eq!(pair.sides[0].counters().eager_sends, before + 1);
    }

    // spec: P-5.14
    #[test]
    fn a_receiver_that_cannot_grant_at_once_is_asked() {
        let wide = weir_link::Config { initial_window_packets: 200, ..weir_link::Config::default() };
        assert!(goes_unasked(&mut pair(&wide), LONG));
        let session = weir_link::SessionConfig { grant_budget: GRANTED_AT_ONCE_BYTES / 2, ..wide.session.clone() };
        let crowded = weir_link::Config { session, ..wide };
        let mut pair = pair(&crowded);
        assert!(goes_unasked(&mut pair, LONG), "nothing is known of it yet");
        assert!(!goes_unasked(&mut pair, 1 << 20));
        assert!(pair.sides[0].sessions.free_window(PEER) > Some(LONG as u64), "the window would let it out");
        assert!(!goes_unasked(&mut pair, LONG));
        assert!(goes_unasked(&mut pair, LONG), "by now it knows what the wire holds besides, and granted all");
    }

    #[test]
    fn what_is_lent_until_it_was_sent_is_the_callers_after_that() {
        let modes = [(SendMode::Transmit, 20_000), (SendMode::Inject, INJECT_BYTES)];
        for (lost, (mode, len)) in modes.into_iter().flat_map(|m| [(true, m), (false, m)]) {
            let mut pair = pair(&weir_link::Config::default());
            let zero = alloc::vec![0; len];
            let (from, to) = (Bytes::new(&alloc::vec![7; len]), Bytes::new(&zero));
            pair.sides[1].recv(pair.now, recv_op(1, to.clone())).expect("posted");
            pair.sides[0].send_lent(pair.now, send_op(1, from.clone(), mode)).expect("accepted");
            assert_eq!(pair.ended(0).len(), 1, "complete at once");
            pair.transmit();
            assert!(pair.flying[1].len() > 10, "it goes before it is copied");
            if lost {
                pair.flying[1].clear();
            }
            pair.sides[0].copy_lent();
            from.write(0, &zero);
            pair.settle();
            assert_eq!((pair.ended(1).len(), to.to_vec()), (1, alloc::vec![7; len]), "lost: {lost}");
            assert_eq!(pair.sides[0].held(), [0; 4]);
        }
    }

    #[test]
    fn of_a_stream_of_long_messages_the_first_are_copied() {
        let mut pair = pair(&weir_link::Config::default());
        let long = Bytes::new(&[7; 40_000]);
        let ended = |pair: &mut Pair, memory: &Bytes, mode| {
            pair.sides[0].send(pair.now, send_op(1, memory.clone(), mode)).expect("accepted");
            pair.ended(0).len()
        };
        // (What a copy takes is a power of two.)
        assert_eq!([(); 4].map(|()| ended(&mut pair, &long, SendMode::Transmit)), [1, 1, 0, 0]);
        assert_eq!(ended(&mut pair, &Bytes::new(&[7; INJECT_BYTES]), SendMode::Transmit), 1, "a short one");
    }

    #[test]
    fn what_goes_far_unasked_is_complete_when_it_is_copied() {
        for (copy_bytes, at_once) in [(1024, true), (0, false)] {
            let cfg = Config { streams: 1, copy_bytes, ..Config::default() };
            let mut pair = Pair::connected(&cfg, &weir_link::Config::default());
            let (len, zero) = (1 << 20, alloc::vec![0; 1 << 20]);
            // A round trip takes a millisecond here, and the window has to grow.
            assert!((0..20).any(|_| goes_unasked(&mut pair, len)));
            let (from, to) = (Bytes::new(&alloc::vec![7; len]), Bytes::new(&zero));
            pair.sides[1].recv(pair.now, recv_op(1, to.clone())).expect("posted");
            pair.sides[0].send(pair.now, send_op(1, from.clone(), SendMode::Transmit)).expect("accepted");
            assert_eq!(pair.ended(0).len(), usize::from(at_once));
            if at_once {
                from.write(0, &zero);
            }
            pair.settle();
            assert_eq!((pair.ended(1).len(), to.to_vec()), (1, alloc::vec![7; len]));
            assert_eq!(pair.sides[0].held(), [0; 4]);
            // Who wants to know that it has arrived is told no earlier.
            pair.sides[0].send(pair.now, send_op(1, from.clone(), SendMode::Delivery)).expect("accepted");
            assert_eq!(pair.ended(0).len(), usize::from(!at_once), "that of before");
        }
    }

    // spec: P-5.12
    #[test]
    fn nothing_goes_unasked_where_the_settings_say_so() {
        let cfg = Config { streams: 1, eager_bytes: 0, ..Config::default() };
        let mut pair = Pair::connected(&cfg, &weir_link::Config::default());
        assert!(!goes_unasked(&mut pair, 1));
    }
}
