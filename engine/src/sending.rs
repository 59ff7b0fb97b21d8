//! Sends: eager, rendezvous, to self; and their completion.

use crate::api::{Completion, EngineError, Iov, OpError, OpKind, SendMode, SendOp};
use crate::budget::{MORE_MAX, Refusal, Refused, WAITING_BYTES, has_stalled};
use crate::core::State;
use crate::memory::{Gather, Source};
use crate::state::{Carriage, NO_TOKEN, Place, Role, RxMsg, SendKey, SendState, copy_cost, key, token};
use std::io::Write;
use weir_match::envelope::{self, Envelope, Status};
use weir_match::{Arrival, stream_of};
use weir_proto::{Message, PeerId, SendError, Time};

/// Messages that may wait for credit or window towards one peer before sends are refused: deep enough for windows of any benchmark. Where to wait does not help more may, and each of
/// them takes part of the budget of copies.
pub const QUEUE_MSGS: usize = 4096;

/// Largest message sent eagerly before the peer has answered: half of the least credit a peer may give, the longest that fits into it.
const EARLY_BYTES: usize = 2048;
/// All of these together: no more than that credit. More could wait for ever, and hold up what the peer asks for first.
const EARLY_TOTAL_BYTES: usize = 4096;

/// The same to a peer with a lane, at least: what takes longer is the copying, and a round trip more is no part of it.
const LANE_EAGER_BYTES: u64 = 256 << 10;

/// What a send asks for that must copy so many bytes, as far as waits for room are concerned.
fn asks_for(len: usize) -> u64 {
    copy_cost(len, false).max(1)
}

/// Copies of large payloads that wait for a peer are memory the caller does not see: an injected message may be this long at most.
pub const INJECT_BYTES: usize = 16 << 10;

impl State {
    /// Starts a send.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::send`].
    pub unsafe fn send(&mut self, now: Time, op: &SendOp<'_>) -> Result<(), EngineError> {
        let len: usize = op.iov.iter().map(|p| p.len).sum();
        let wants_copy = op.copy || op.mode == SendMode::Inject;
        if wants_copy && len > INJECT_BYTES {
            return Err(EngineError::TooBig {
                what: "injected message",
                given: len as u64,
                limit: INJECT_BYTES as u64,
            });
        }
        self.check_socket()?;
        let peer = self.peers.get(op.peer as usize).ok_or(EngineError::Invalid("no such peer"))?;
        let (up, early_bytes) = (peer.up, peer.early_bytes);
        if let Some(reason) = peer.down {
            return Err(EngineError::PeerDown(reason));
        }
        if self.own_peer == Some(op.peer) {
            // SAFETY: passed on from the caller.
            return unsafe { self.send_to_self(now, op, len) };
        }
        let to = PeerId(op.peer);
        let crowded = self.proto.unsent(to) >= QUEUE_MSGS;
        if crowded && !self.queues_on {
            return Err(self.queue_full(now, op.peer));
        }
        // Before the handshake the peer's credit is not known, but any peer gives some: small messages need not wait for it to ask.
        let early = !up && len <= EARLY_BYTES && early_bytes + len <= EARLY_TOTAL_BYTES;
        let room = self.proto.credit(to).bytes >= len as u64 || early;
        let eager = room && len as u64 <= self.eager_limit(to);
        let may_copy = op.mode == SendMode::Transmit && len <= self.cfg.copy_bytes;
        let cost = copy_cost(len, !eager || crowded);
        let copy = (wants_copy || may_copy) && self.take_copy_room(op.peer, cost, wants_copy);
        let charge = if copy { cost } else { u64::from(crowded) * WAITING_BYTES };
        // What it asks for is the same however it would go now: a wait is over when one that asks for as much is accepted.
        let asks = if wants_copy { asks_for(len) } else { 0 };
        if !copy && (wants_copy || crowded && !self.take_copy_room(op.peer, charge, true)) {
            return Err(self.no_room(now, op.peer, asks));
        }
        self.counters.lent_sends += u64::from(may_copy && !copy);
        Refused::accepted(&mut self.peers[op.peer as usize].refused, asks);
        let at_once = op.mode == SendMode::Inject || (op.mode == SendMode::Transmit && copy);
        // SAFETY: passed on from the caller.
        let source = unsafe { self.source_of(op.iov, len, copy) };
        let mut s = SendState {
            peer: op.peer,
            source,
            len: len as u64,
            role: if eager { Role::Eager } else { Role::Requested },
            kind: OpKind::Send,
            class: op.class,
            tag: op.tag,
            context: op.context,
            user: op.user,
            report: op.report,
            announced: false,
            awaits: 1,
            answers: u32::from(eager && op.mode == SendMode::Match),
            refused: None,
            dest: Gather::default(),
            body: None,
            charge,
            number: 0,
        };
        if at_once {
            self.announce(&mut s, Ok(()));
        }
        let k = self.sends.insert(s);
        match self.submit(now, op, k, len as u64, eager) {
            Ok(()) => {
                if eager && !up {
                    self.peers[op.peer as usize].early_bytes += len;
                }
                Ok(())
            }
            Err(e) => {
                if let Some(s) = self.sends.remove(k) {
                    self.return_copy_room(&s);
                    // The completion of a refused send must not be seen.
                    if s.announced {
                        self.totals.sends -= 1;
                        if s.report {
                            self.tx_done.pop_back();
                        }
                    }
                    s.source.release(&mut self.pool);
                }
                Err(match e {
                    SendError::QueueFull => {
                        self.counters.refused_sends += 1;
                        EngineError::Again
                    }
                    SendError::Closed => EngineError::Closed,
                    SendError::TooLong => {
                        EngineError::TooBig { what: "message", given: len as u64, limit: u64::from(u32::MAX) }
                    }
                })
            }
        }
    }

    /// Longest message that is sent without asking. To ask costs a round trip, not to ask may cost a copy at the receiver (if nobody waits for the message): so the longer the
    /// round trip, the longer the message. A quarter of a byte for each nanosecond: an eighth or less of what can be copied in that time, for the copy is in the cache of
    /// the one who waits, and the credit is to last for a few messages.
    fn eager_limit(&self, to: PeerId) -> u64 {
        let limit = u64::from(self.cfg.eager_bytes);
        if limit == 0 {
            return 0;
        }
        let lane = if self.proto.has_lane(to) { LANE_EAGER_BYTES } else { 0 };
        (limit + self.proto.min_rtt_ns(to) / 4).max(lane).min(self.proto.max_matched_len(to))
    }

    /// New operations have no chance once the socket is unusable.
    pub fn check_socket(&self) -> Result<(), EngineError> {
        match self.broken {
            Some(errno) => Err(EngineError::Io {
                doing: "the endpoint's socket is unusable".into(),
                source: std::io::Error::from_raw_os_error(errno),
            }),
            None => Ok(()),
        }
    }

    fn submit(&mut self, now: Time, op: &SendOp<'_>, k: SendKey, len: u64, eager: bool) -> Result<(), SendError> {
        let stream = stream_of(op.tag, op.class, self.cfg.streams);
        let envelope = if eager {
            let sync = (op.mode == SendMode::Match).then(|| token(k));
            Envelope::Eager { class: op.class, tag: op.tag, data: op.data, sync }
        } else {
            Envelope::Rts { class: op.class, tag: op.tag, data: op.data, len, op: token(k) }
        };
        let (wire_len, t) = if eager { (len as u32, token(k)) } else { (0, NO_TOKEN) };
        self.post(now, op.peer, false, stream, &envelope, wire_len, t)?;
        self.peers[op.peer as usize].streams.sent(stream, len);
        if eager {
            self.counters.eager_sends += 1;
        } else {
            self.counters.rendezvous_sends += 1;
        }
        if self.trace.on(2) {
            let mseq = self.proto.last_message(PeerId(op.peer), false);
            self.trace_send(op, k, eager, mseq);
        }
        Ok(())
    }

    /// Hands a message to the protocol.
    #[expect(clippy::too_many_arguments, reason = "one call site a kind; a struct would only repeat `Message`")]
    pub fn post(
        &mut self,
        now: Time,
        peer: u32,
        control: bool,
        stream: u16,
        envelope: &Envelope,
        len: u32,
        t: u64,
    ) -> Result<(), SendError> {
        let mut buf = [0; envelope::MAX_BYTES];
        let n = envelope.encode(&mut buf);
        let patient = t != NO_TOKEN && self.sends.get(key::<SendKey>(t)).is_some_and(|s| s.announced && s.answers == 0);
        self.proto.send(now, PeerId(peer), Message { control, stream, envelope: &buf[..n], len, patient, token: t })
    }

    /// Sends a control message that only matters to a live peer.
    pub fn post_control(&mut self, now: Time, peer: u32, envelope: &Envelope) {
        self.wants_transmit = true;
        // A dead or overrun peer does not get it: its own operations fail by its own verdict.
        let _ = self.post(now, peer, true, 0, envelope, 0, NO_TOKEN);
    }

    /// # Safety
    /// As for [`crate::Endpoint::send`].
    unsafe fn send_to_self(&mut self, now: Time, op: &SendOp<'_>, len: usize) -> Result<(), EngineError> {
        let wants_copy = op.copy || op.mode == SendMode::Inject;
        // What is not received at once and may be copied is, so that a small send is complete as MPI expects it. Not without bound: then only its receive completes it.
        let copy = !self.matcher.is_awaited(op.peer, op.class, op.tag)
            && (wants_copy || (len <= self.cfg.eager_bytes as usize && op.mode != SendMode::Match));
        let cost = copy_cost(len, true);
        let copied = copy && self.take_copy_room(op.peer, cost, wants_copy);
        if wants_copy && copy && !copied {
            return Err(self.no_room(now, op.peer, asks_for(len)));
        }
        Refused::accepted(&mut self.peers[op.peer as usize].refused, if copied { asks_for(len) } else { 0 });
        self.counters.lent_sends += u64::from(copy && !copied);
        self.counters.self_sends += 1;
        // SAFETY: passed on from the caller.
        let source = unsafe { self.source_of(op.iov, len, copied) };
        let mut s = SendState {
            peer: op.peer,
            source,
            len: len as u64,
            role: Role::ToSelf,
            kind: OpKind::Send,
            class: op.class,
            tag: op.tag,
            context: op.context,
            user: op.user,
            report: op.report,
            announced: false,
            awaits: 1,
            answers: 0,
            refused: None,
            dest: Gather::default(),
            body: None,
            charge: if copied { cost } else { 0 },
            number: 0,
        };
        if op.mode == SendMode::Inject || (copied && op.mode != SendMode::Match) {
            self.announce(&mut s, Ok(()));
        }
        let k = self.sends.insert(s);
        if self.trace.on(2) {
            self.trace_send(op, k, copied, Some(self.own_mseq));
        }
        let mseq = self.own_mseq;
        self.own_mseq += 1;
        let stream = stream_of(op.tag, op.class, self.cfg.streams);
        let sseq = &mut self.own_sseq[usize::from(stream)];
        let arrival_sseq = *sseq;
        *sseq = sseq.wrapping_add(1);
        let msg = self.msgs.insert(RxMsg {
            peer: op.peer,
            tag: op.tag,
            data: op.data,
            stream,
            len: len as u64,
            complete: true,
            waits_in_line: false,
            carriage: Carriage::Own(k),
            sync: None,
            place: Place::Nowhere,
            held: false,
            number: 0,
        });
        if self.trace.on(2) {
            self.trace_arrived(msg, (stream, mseq, arrival_sseq), true);
        }
        let arrival = Arrival {
            peer: op.peer,
            class: op.class,
            mseq,
            stream,
            sseq: arrival_sseq,
            tag: op.tag,
            len: len as u64,
            msg: token(msg),
        };
        self.arrive(now, arrival);
        if wants_copy
            && !copied
            && let Some(s) = self.sends.get_mut(k)
        {
            // A receive waited for it, and the matcher gave it to none: the memory is the caller's again all the same.
            let mut buf = self.pool.take(len);
            s.source.read(0, &mut buf);
            s.source = Source::Owned(buf);
        }
        Ok(())
    }

    /// All bytes of a message or body are acknowledged.
    pub fn sent(&mut self, t: u64) {
        if t == NO_TOKEN {
            return;
        }
        let k = key::<SendKey>(t);
        if let Some(s) = self.sends.get_mut(k) {
            s.awaits = s.awaits.saturating_sub(1);
            self.end_if_over(k);
        }
    }

    /// Ends an operation for which nothing is awaited any more.
    fn end_if_over(&mut self, k: SendKey) {
        if self.sends.get(k).is_some_and(|s| s.awaits == 0 && s.answers == 0)
            && let Some(s) = self.sends.remove(k)
        {
            let result = s.refused.map_or(Ok(()), Err);
            self.finish_send(s, result);
        }
    }

    /// The receiver matched an eager message whose sender wanted to know.
    pub fn matched(&mut self, peer: u32, op: u64) {
        let k = key::<SendKey>(op);
        if let Some(s) = self.sends.get_mut(k).filter(|s| s.peer == peer && s.role == Role::Eager) {
            s.answers = 0;
            if self.trace.on(2) {
                self.trace_match_told(k);
            }
            self.end_if_over(k);
        }
    }

    /// The receiver asks for the body of a rendezvous or large write.
    pub fn clear_to_send(&mut self, now: Time, peer: u32, op: u64, handle: u64, len: u64, granted: u64) {
        let k = key::<SendKey>(op);
        let Some(s) = self.sends.get_mut(k).filter(|s| s.peer == peer && s.role == Role::Requested) else {
            // The send was given up meanwhile: tell the receiver, which waits for bytes.
            self.proto.abort_body(now, PeerId(peer), handle, 1);
            return;
        };
        s.role = Role::Body;
        s.body = Some(handle);
        let len = len.min(s.len);
        if self.trace.on(2) {
            self.trace_granted(peer, k, handle, len, granted);
        }
        // A refusal means the peer is down; its Down event fails the operation.
        let _ = self.proto.send_body(now, PeerId(peer), handle, granted, len, op);
    }

    /// The peer says how an operation ended there.
    ///
    /// A write in pieces that nobody wants confirmed counts as complete when all are acknowledged: the target has them in its memory then, or has refused them. Its refusal is in the packet
    /// with the acknowledgement and is looked at first. Only when that packet was lost can the acknowledgement come first, alone; the refusal that follows is counted here. To have each write
    /// answered costs a message; who asks for delivery gets it.
    pub fn done(&mut self, now: Time, peer: u32, op: u64, status: Status) {
        let error = match status {
            Status::Ok => None,
            Status::Cancelled => Some(OpError::Cancelled),
            Status::BadKey | Status::Access | Status::Range | Status::NoMemory => Some(OpError::Access),
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
                    && let Some(p) = self.peers.get_mut(peer as usize)
                {
                    s.answers -= 1;
                    p.answers = p.answers.saturating_sub(1);
                }
                s.refused = s.refused.or(error);
            }
            (Role::Body, OpKind::Write) => {
                s.answers = 0;
                s.refused = error;
                // The target has closed its body: no byte of it is wanted any more.
                if error.is_some()
                    && s.awaits > 0
                    && let Some(handle) = s.body
                {
                    s.awaits = 0;
                    self.proto.abort_body(now, PeerId(peer), handle, 1);
                }
            }
            _ => return,
        }
        self.end_if_over(k);
    }

    /// Queues the completion of `s` and frees what it holds.
    pub fn finish_send(&mut self, mut s: SendState, result: Result<(), OpError>) {
        if let Role::Piece(parent) = s.role {
            s.source.release(&mut self.pool);
            if let Some(p) = self.sends.get_mut(parent) {
                p.awaits = p.awaits.saturating_sub(1);
                p.refused = p.refused.or(result.err());
                self.end_if_over(parent);
            }
            return;
        }
        if let Some(p) = self.peers.get_mut(s.peer as usize) {
            match s.role {
                Role::Requested | Role::Body if s.kind == OpKind::Write => p.requests = p.requests.saturating_sub(1),
                Role::ReadReply => p.replies = p.replies.saturating_sub(1),
                Role::Write => p.answers = p.answers.saturating_sub(s.answers),
                _ => {}
            }
        }
        // Reads from oneself and empty ones end as they begin and hold no body.
        if s.role == Role::Read
            && s.len > 0
            && let Some(p) = self.peers.get_mut(s.peer as usize)
        {
            p.reads = p.reads.saturating_sub(1);
        }
        let told = s.announced;
        self.announce(&mut s, result);
        if self.trace.on(1) {
            self.trace_send_over(&s, told, result);
        }
        self.return_copy_room(&s);
        s.source.release(&mut self.pool);
    }

    /// Takes room for a copy for a peer from the budget, a copy that `must` be made or one that could be done without; false when there is none.
    pub fn take_copy_room(&mut self, peer: u32, bytes: u64, must: bool) -> bool {
        let taken = self.copies.take(&mut self.peers[peer as usize].copied_bytes, bytes, must);
        if taken {
            self.counters.copied_bytes = self.copies.bytes;
            self.counters.copied_bytes_peak = self.counters.copied_bytes_peak.max(self.copies.bytes);
        }
        taken
    }

    /// As many messages as are usual wait for this peer: the caller tries again, unless that has not helped for long.
    #[cold]
    fn queue_full(&mut self, now: Time, peer: u32) -> EngineError {
        self.counters.refused_sends += 1;
        let refused = &mut self.peers[peer as usize].refused;
        if has_stalled(Refused::again(refused, now, 0)) {
            *refused = None;
            self.queues_on = true;
        }
        EngineError::Again
    }

    /// There is no room for so many bytes of a send: its caller tries again. That there is more room after a while, or will be none, is said once: to wait inside a send looks like a hang.
    #[cold]
    pub fn no_room(&mut self, now: Time, peer: u32, bytes: u64) -> EngineError {
        self.counters.refused_sends += 1;
        let unexpected = self.matcher.unexpected_count();
        let refused = &mut self.peers[peer as usize].refused;
        let waited_ns = Refused::again(refused, now, bytes);
        let budget = self.cfg.copied_bytes;
        let most = budget.saturating_mul(MORE_MAX);
        // Not `eprintln`, which panics when nobody reads standard error any more.
        match self.copies.refused(waited_ns, unexpected > 0) {
            Refusal::Wait => {}
            Refusal::More => {
                *refused = None;
                self.counters.copied_bytes_raised += 1;
                if !std::mem::replace(&mut self.told_no_room, true) {
                    let _ = writeln!(
                        std::io::stderr(),
                        "weir: sends that their receivers do not take have filled their {budget} bytes and waited for half a second: they get more, up to {most} bytes; to spare a program the waiting give them more with WEIR_COPIED_BYTES"
                    );
                }
            }
            Refusal::Never => {
                if !std::mem::replace(&mut self.told_no_end, true) {
                    let _ = writeln!(
                        std::io::stderr(),
                        "weir: sends have found no room in {most} bytes for {} s, while {unexpected} messages wait here that nobody receives: the program sends more before it receives than memory is set aside for; give it more with WEIR_COPIED_BYTES",
                        waited_ns / 1_000_000_000
                    );
                }
                return EngineError::NoMemory { limit: most };
            }
        }
        EngineError::Again
    }

    /// And gives it back, when the operation is over.
    pub fn return_copy_room(&mut self, s: &SendState) {
        if s.charge > 0 {
            self.copies.give_back(&mut self.peers[s.peer as usize].copied_bytes, s.charge);
            self.counters.copied_bytes = self.copies.bytes;
        }
    }

    fn announce(&mut self, s: &mut SendState, result: Result<(), OpError>) {
        if std::mem::replace(&mut s.announced, true) {
            return;
        }
        self.complete(Completion {
            context: s.context,
            user: s.user,
            kind: s.kind,
            class: s.class,
            report: s.report,
            multi_done: false,
            len: s.len as usize,
            buf: std::ptr::null_mut(),
            tag: s.tag,
            data: None,
            source: None,
            result,
        });
    }

    /// Copies a message to self to where it belongs, if its send is still there.
    pub fn copy_own_payload(&self, k: SendKey, dest: &Gather, len: u64) {
        match self.sends.get(k).map(|s| &s.source) {
            Some(Source::User(g)) => dest.write_from(0, g, len),
            Some(Source::Owned(buf)) => {
                dest.write(0, buf);
            }
            Some(Source::Inline { bytes, len }) => {
                dest.write(0, &bytes[..usize::from(*len)]);
            }
            None => {}
        }
    }
}

/// Sum of the pieces' lengths, bytes.
#[must_use]
pub fn iov_len(iov: &[Iov]) -> usize {
    iov.iter().map(|p| p.len).sum()
}
