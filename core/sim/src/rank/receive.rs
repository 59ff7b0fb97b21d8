//! The receiving half of a rank.

use std::ops::Range;

use weir_match::envelope::{Envelope, Status};
use weir_match::{Arrival, Match, Posted, Source};
use weir_proto::{BodyKey, Event, Hole, PeerId, Time};

use super::{Core, Outcome, RecvId, RecvOp, Shared, class, slice};
use crate::check::delivery::Coverage;
use crate::check::{Program, payload};
use crate::world::Host;

/// A receive that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    op: RecvOp,
    /// The message it has taken.
    taken: Option<u64>,
}

/// How a message's payload travels.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Carriage {
    Eager {
        sync: Option<u64>,
    },
    /// The sender's operation.
    Request(u64),
}

/// A message that has begun to arrive and has not been delivered.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    peer: PeerId,
    from: Program,
    mseq: u64,
    /// The sender's number of it.
    message: u64,
    key: u64,
    tag: u64,
    len: u64,
    carriage: Carriage,
    coverage: Coverage,
    complete: bool,
    receive: Option<RecvId>,
}

/// An open body.
#[derive(Clone, Debug)]
pub(super) struct Body {
    incoming: u64,
    len: u64,
    coverage: Coverage,
}

/// Where bytes of a message or body go that come by a lane.
pub(super) struct Place<'a> {
    /// What the bytes must be.
    pub(super) content: u64,
    pub(super) len: u64,
    /// The sender's number of it.
    pub(super) message: u64,
    pub(super) coverage: &'a mut Coverage,
}

impl Core {
    pub(super) fn place_of_message(&mut self, peer: PeerId, mseq: u64) -> Option<Place<'_>> {
        let m = self.by_number.get(&(peer, mseq)).and_then(|ix| self.incoming.get_mut(ix))?;
        Some(Place { content: m.key, len: m.len, message: m.message, coverage: &mut m.coverage })
    }

    pub(super) fn place_of_body(&mut self, peer: PeerId, handle: u64) -> Option<Place<'_>> {
        let b = self.bodies.get_mut(&(peer, handle))?;
        let m = self.incoming.get(&b.incoming)?;
        Some(Place { content: m.key, len: b.len, message: m.message, coverage: &mut b.coverage })
    }

    pub(super) fn start_receive(&mut self, host: &mut Host<'_, Shared>, op: RecvOp, from: Option<Program>) -> RecvId {
        let id = RecvId(self.next_receive);
        self.next_receive += 1;
        let program = self.program;
        host.note(30 ^ id.0 << 8, || format!("receive         {program} #{} {op:?}", id.0));
        self.receives.insert(id, Receive { op, taken: None });
        host.shared.checks.order.posted(self.program, id.0, Self::pattern(from, &op));
        let mut source = Source::Any;
        let mut down = false;
        if let Some(from) = from {
            let peer = self.peer_of(host, from);
            source = Source::Peer(peer.0);
            down = self.peers.get(&peer).is_some_and(|p| p.down.is_some());
        }
        let posted = Posted { class: class(op.tagged), source, tag: op.tag, ignore: op.ignore, op: id.0, multi: None };
        let mut matches = std::mem::take(&mut self.matches);
        self.matcher.post(posted, &mut matches);
        self.bind_all(host, &mut matches);
        self.matches = matches;
        // What had arrived whole before the peer died is still received; nothing more will come.
        if down && self.receives.get(&id).is_some_and(|r| r.taken.is_none()) {
            self.cancel(host, id);
        }
        id
    }

    pub(super) fn cancel(&mut self, host: &mut Host<'_, Shared>, id: RecvId) -> bool {
        let mut matches = std::mem::take(&mut self.matches);
        let cancelled = self.matcher.cancel(id.0, &mut matches);
        if cancelled {
            self.fail_receive(host, id);
        }
        self.bind_all(host, &mut matches);
        self.matches = matches;
        cancelled
    }

    pub(super) fn fail_receive(&mut self, host: &mut Host<'_, Shared>, id: RecvId) {
        if self.receives.remove(&id).is_some() {
            host.shared.checks.order.withdrawn(self.program, id.0);
            let program = self.program;
            host.note(31 ^ id.0 << 8, || format!("receive fails   {program} #{}", id.0));
            self.outcomes.push_back(Outcome::RecvFailed(id));
        }
    }

    /// The protocol reports bytes of a message.
    pub(super) fn message_event(&mut self, host: &mut Host<'_, Shared>, event: &Event, datagram: &[u8]) {
        let Event::Message { peer, control, mseq, total_len, offset, envelope, payload, first, complete, .. } = event
        else {
            return;
        };
        let (peer, mseq) = (*peer, *mseq);
        self.peer_slot(host, peer);
        if *control {
            let envelope = slice(host, datagram, envelope);
            return self.control_event(host, peer, envelope);
        }
        let bytes = slice(host, datagram, payload);
        let known = self.by_number.get(&(peer, mseq)).copied();
        if *first != known.is_none() {
            return host.violation(
                "first",
                format!("{}: message number {mseq} of {peer:?}: first = {first}, known = {known:?}", self.program),
            );
        }
        let Some(ix) = known.or_else(|| self.first_bytes(host, event, datagram)) else {
            return;
        };
        let Some(m) = self.incoming.get_mut(&ix) else {
            // A request whose receive wants none of its bytes ends at once.
            return;
        };
        let start = u64::from(*offset);
        if start + bytes.len() as u64 > u64::from(*total_len) {
            host.violation(
                "range",
                format!("{}: bytes {start}+{} of a message of {total_len}", self.program, bytes.len()),
            );
        }
        if let Err(e) = m.coverage.add(start, start + bytes.len() as u64) {
            return host
                .violation("exactly-once", format!("{} from {}: message {}: {e}", self.program, m.from, m.message));
        }
        if let Some(at) = payload::first_wrong(m.key, start, bytes) {
            return host.violation(
                "payload",
                format!("{} from {}: message {}: byte {at} is wrong", self.program, m.from, m.message),
            );
        }
        self.maybe_complete(host, ix, u64::from(*total_len), *complete);
    }

    /// Compares the protocol's word on completeness with the bytes seen, and ends the message if it is all there.
    fn maybe_complete(&mut self, host: &mut Host<'_, Shared>, ix: u64, wire_len: u64, complete: bool) {
        let Some(m) = self.incoming.get_mut(&ix) else {
            return;
        };
        if complete != m.coverage.is_all(wire_len) {
            let detail = format!(
                "{} from {}: message {}: complete = {complete} with {} of {wire_len} bytes",
                self.program,
                m.from,
                m.message,
                m.coverage.bytes()
            );
            return host.violation("complete", detail);
        }
        if complete && matches!(m.carriage, Carriage::Eager { .. }) {
            m.complete = true;
            host.shared.checks.delivery.arrived(m.from, m.message);
            if m.receive.is_some() {
                self.deliver(host, ix);
            }
        }
    }

    /// First sight of a message: tell the matcher.
    fn first_bytes(&mut self, host: &mut Host<'_, Shared>, event: &Event, datagram: &[u8]) -> Option<u64> {
        let Event::Message { peer, stream, mseq, sseq, total_len, envelope, .. } = event else {
            return None;
        };
        let bytes = slice(host, datagram, envelope);
        let from = self.peers.get(peer)?.clone();
        let (class, tag, data, len, carriage) = match Envelope::decode(bytes) {
            Ok(Envelope::Eager { class, tag, data, sync }) => {
                (class, tag, data, u64::from(*total_len), Carriage::Eager { sync })
            }
            Ok(Envelope::Rts { class, tag, data, len, op }) => (class, tag, data, len, Carriage::Request(op)),
            other => {
                host.violation("envelope", format!("{}: message with envelope {other:?}", self.program));
                return None;
            }
        };
        let message = data.unwrap_or(u64::MAX);
        let sent = host.shared.checks.delivery.get(from.program, message).map(|m| (m.to, m.tag, m.len));
        let tag_sent = if class == weir_match::Class::Tagged { sent.map_or(0, |s| s.1) } else { 0 };
        if sent.map(|s| (s.0, s.2)) != Some((self.program, len)) || tag != tag_sent {
            host.violation(
                "envelope",
                format!(
                    "{}: message {message} of {} (tag {tag:#x}, {len} B) was sent as {sent:?}",
                    self.program, from.program
                ),
            );
            return None;
        }
        if let Err(e) = host.shared.checks.memory.arrived(from.program, self.program, u64::from(*total_len)) {
            host.violation("memory", e);
        }
        let ix = self.next_incoming;
        self.next_incoming += 1;
        self.by_number.insert((*peer, *mseq), ix);
        let m = Incoming {
            peer: *peer,
            from: from.program,
            mseq: *mseq,
            message,
            key: payload::key(from.endpoint_id, message),
            tag,
            len,
            carriage,
            coverage: Coverage::default(),
            complete: false,
            receive: None,
        };
        self.incoming.insert(ix, m);
        let arrival = Arrival { peer: peer.0, class, mseq: *mseq, stream: *stream, sseq: *sseq, tag, len, msg: ix };
        let mut matches = std::mem::take(&mut self.matches);
        self.matcher.arrive(arrival, &mut matches);
        self.bind_all(host, &mut matches);
        self.matches = matches;
        Some(ix)
    }

    fn bind_all(&mut self, host: &mut Host<'_, Shared>, matches: &mut Vec<Match>) {
        for m in matches.drain(..) {
            self.bind(host, m.msg, RecvId(m.op));
        }
    }

    /// A receive takes a message.
    fn bind(&mut self, host: &mut Host<'_, Shared>, ix: u64, receive: RecvId) {
        let (Some(m), Some(r)) = (self.incoming.get_mut(&ix), self.receives.get_mut(&receive)) else {
            return host.violation(
                "match",
                format!("{}: the matcher joins message {ix} and receive {receive:?}, not both open", self.program),
            );
        };
        r.taken = Some(ix);
        m.receive = Some(receive);
        if let Err(e) = host.shared.checks.order.taken(m.from, self.program, m.message, receive.0) {
            host.violation("order", e);
        }
        let (peer, complete, len, room) = (m.peer, m.complete, m.len.min(r.op.room), r.op.room);
        match m.carriage {
            Carriage::Eager { sync } => {
                if let Some(op) = sync {
                    self.control(host, peer, Envelope::SyncAck { op });
                }
                if complete {
                    self.deliver(host, ix);
                }
            }
            Carriage::Request(op) if room == 0 || len == 0 => {
                self.control(host, peer, Envelope::Done { op, read: false, status: Status::Ok });
                self.deliver(host, ix);
            }
            Carriage::Request(op) => match self.endpoint.open_body(Time(host.now), peer, len) {
                Ok(b) => {
                    let body = Body { incoming: ix, len, coverage: Coverage::default() };
                    if self.bodies.insert((peer, b.handle), body).is_some() {
                        host.violation("handle", format!("{}: handle {:#x} given twice", self.program, b.handle));
                    }
                    self.control(host, peer, Envelope::Cts { op, body: b.handle, len, granted: b.granted });
                }
                Err(e) => {
                    let closed = self.peers.get(&peer).is_some_and(|p| p.down.is_some());
                    if !closed {
                        host.violation("body", format!("{}: cannot open a body of {len} bytes: {e}", self.program));
                    }
                    self.fail_message(host, ix);
                }
            },
        }
    }

    /// The receive of a message ends well.
    fn deliver(&mut self, host: &mut Host<'_, Shared>, ix: u64) {
        let Some(m) = self.incoming.remove(&ix) else {
            return;
        };
        self.by_number.remove(&(m.peer, m.mseq));
        let wire_len = if matches!(m.carriage, Carriage::Eager { .. }) { m.len } else { 0 };
        if self.peers.get(&m.peer).is_some_and(|p| p.down.is_none()) {
            self.endpoint.consume(m.peer, 1, wire_len);
            host.shared.checks.memory.consumed(m.from, self.program, wire_len);
        }
        let Some(receive) = m.receive else { return };
        self.receives.remove(&receive);
        if let Err(e) = host.shared.checks.delivery.receive_ended(m.from, m.message, self.program, Some(host.now)) {
            host.violation("exactly-once", e);
        }
        let program = self.program;
        host.note(32 ^ m.message << 8, || {
            format!("received        {program} #{} from {} #{}", receive.0, m.from, m.message)
        });
        self.outcomes.push_back(Outcome::Received { receive, from: m.from.host, tag: m.tag, len: m.len });
    }

    /// A message that cannot be completed; its receive, if it has one, fails.
    fn fail_message(&mut self, host: &mut Host<'_, Shared>, ix: u64) {
        let Some(m) = self.incoming.remove(&ix) else {
            return;
        };
        if let Some(receive) = m.receive {
            self.fail_receive(host, receive);
        }
    }

    pub(super) fn forget_message(&mut self, ix: u64) {
        self.incoming.remove(&ix);
    }

    /// What had begun to arrive from a peer that is down and cannot be completed. Whole messages can still be received.
    pub(super) fn fail_incomplete(&mut self, host: &mut Host<'_, Shared>, peer: PeerId) {
        self.bodies.retain(|(p, _), _| *p != peer);
        self.by_number.retain(|(p, _), _| *p != peer);
        let broken: Vec<u64> =
            self.incoming.iter().filter(|(_, m)| m.peer == peer && !m.complete).map(|(ix, _)| *ix).collect();
        for ix in broken {
            let mut matches = std::mem::take(&mut self.matches);
            self.matcher.forget(ix, &mut matches);
            self.fail_message(host, ix);
            self.bind_all(host, &mut matches);
            self.matches = matches;
        }
    }

    fn control_event(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, envelope: &[u8]) {
        match Envelope::decode(envelope) {
            Ok(Envelope::Cts { op, body, len, granted }) => self.clear_to_send(host, peer, op, body, len, granted),
            Ok(Envelope::SyncAck { op }) | Ok(Envelope::Done { op, read: false, status: Status::Ok }) => {
                self.matched_there(host, peer, op)
            }
            other => host.violation("envelope", format!("{}: control message {other:?}", self.program)),
        }
    }

    /// The protocol reports bytes of a body.
    pub(super) fn body_bytes(
        &mut self,
        host: &mut Host<'_, Shared>,
        peer: PeerId,
        handle: u64,
        offset: u64,
        bytes: &[u8],
        complete: bool,
    ) {
        let Some(b) = self.bodies.get_mut(&(peer, handle)) else {
            return host.violation(
                "exactly-once",
                format!("{}: bytes for body {handle:#x} of {peer:?}, which is not open", self.program),
            );
        };
        let Some(m) = self.incoming.get(&b.incoming) else {
            return;
        };
        let end = offset + bytes.len() as u64;
        if let Err(e) = b.coverage.add(offset, end) {
            return host.violation(
                "exactly-once",
                format!("{} from {}: body of message {}: {e}", self.program, m.from, m.message),
            );
        }
        if end > b.len {
            return host.violation("range", format!("{}: body byte {end} of {}", self.program, b.len));
        }
        if let Some(at) = payload::first_wrong(m.key, offset, bytes) {
            return host.violation(
                "payload",
                format!("{} from {}: body of message {}: byte {at} is wrong", self.program, m.from, m.message),
            );
        }
        if complete != b.coverage.is_all(b.len) {
            let detail = format!(
                "{}: body of message {}: complete = {complete} with {} of {}",
                self.program,
                m.message,
                b.coverage.bytes(),
                b.len
            );
            return host.violation("complete", detail);
        }
        if complete {
            host.shared.checks.delivery.arrived(m.from, m.message);
            let ix = b.incoming;
            self.bodies.remove(&(peer, handle));
            self.deliver(host, ix);
        }
    }

    /// Restores a fragment from its parity; the fragments it needs are known because all payload is.
    pub(super) fn parity(&mut self, host: &mut Host<'_, Shared>, event: &Event, datagram: &[u8]) {
        let Event::Parity { peer, key, hole, payload } = event else {
            return;
        };
        let parity = slice(host, datagram, payload);
        let found = match key {
            BodyKey::Message(mseq) => self
                .by_number
                .get(&(*peer, *mseq))
                .and_then(|ix| self.incoming.get(ix))
                .map(|m| (m.key, m.len, &m.coverage)),
            BodyKey::Body(handle) => self
                .bodies
                .get(&(*peer, *handle))
                .and_then(|b| self.incoming.get(&b.incoming).map(|m| (m.key, b.len, &b.coverage))),
        };
        let Some((content, len, coverage)) = found else {
            return host.violation("parity", format!("{}: parity for {key:?}, which is not open", self.program));
        };
        match restore(hole, content, len, coverage, parity) {
            Err(e) => host.violation("parity", format!("{}: {key:?}: {e}", self.program)),
            Ok(range) => self.place_restored(host, *peer, *key, range),
        }
    }

    fn place_restored(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, key: BodyKey, hole: Range<u64>) {
        let coverage = match key {
            BodyKey::Message(mseq) => {
                self.by_number.get(&(peer, mseq)).and_then(|ix| self.incoming.get_mut(ix)).map(|m| &mut m.coverage)
            }
            BodyKey::Body(handle) => self.bodies.get_mut(&(peer, handle)).map(|b| &mut b.coverage),
        };
        if let Some(Err(e)) = coverage.map(|c| c.add(hole.start, hole.end)) {
            host.violation("parity", format!("{}: {key:?}: {e}", self.program));
        }
        let len = (hole.end - hole.start) as u32;
        // Completion, if this was the last hole, comes as an event of its own.
        self.endpoint.restored(Time(host.now), peer, key, hole.start, len, &mut self.events);
    }
}

/// Computes the hole as an engine would, from bytes that have arrived only, and checks it.
fn restore(hole: &Hole, content: u64, len: u64, coverage: &Coverage, parity: &[u8]) -> Result<Range<u64>, String> {
    let range = hole.offset..hole.offset + u64::from(hole.len);
    if parity.len() != usize::from(hole.frag) || range.is_empty() || range.end > len {
        return Err(format!("{hole:?} of {len} bytes with {} parity bytes", parity.len()));
    }
    let mut sum = parity.to_vec();
    let mut missing = None;
    let read = |at: u64, dst: &mut [u8]| {
        let end = at + dst.len() as u64;
        if !coverage.has(at, end) {
            missing = Some(at..end);
        }
        payload::fill(content, at, dst);
        true
    };
    let restored = hole.restore(len, &mut sum, read);
    match (restored, missing) {
        (_, Some(bytes)) => Err(format!("bytes {bytes:?} are missing too, besides {hole:?}")),
        (None, None) => Err(format!("{hole:?} cannot be restored")),
        (Some(bytes), None) => match payload::first_wrong(content, range.start, bytes) {
            Some(at) => Err(format!("restored byte {at} is wrong")),
            None => Ok(range),
        },
    }
}
