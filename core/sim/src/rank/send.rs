//! The sending half of a rank.

use weir_match::envelope::{self, Envelope};
use weir_match::stream_of;
use weir_proto::{DownReason, Message, PeerId, SendError, Time};

use super::{Core, Outcome, Part, RecvId, SendId, SendOp, Shared, class, token, token_message, token_part};
use crate::check::order::Pattern;
use crate::check::{Program, delivery};
use crate::world::Host;

/// How far a send is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The endpoint had no room for it.
    Backlog,
    /// All of it is with the endpoint.
    Eager,
    /// The request is out.
    Requested,
    /// The body is with the endpoint.
    Body,
    /// Waits only for the receiver's word that it was matched.
    Matching,
}

/// A send that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    op: SendOp,
    peer: PeerId,
    pub(super) stage: Stage,
    /// The receiver must still say that it matched.
    awaits_match: bool,
}

impl Core {
    pub(super) fn start_send(&mut self, host: &mut Host<'_, Shared>, op: SendOp, to: Program) -> SendId {
        let id = SendId(self.next_send);
        self.next_send += 1;
        let peer = self.peer_of(host, to);
        let message = delivery::Message {
            to,
            tag: op.tag,
            len: op.len,
            sent_ns: host.now,
            received_ns: None,
            send_ended: false,
            receive_ended: false,
            arrived: false,
        };
        host.shared.checks.delivery.sent(self.program, id.0, message);
        self.sends.insert(id, Outgoing { op, peer, stage: Stage::Backlog, awaits_match: false });
        let program = self.program;
        host.note(20 ^ id.0 << 8, || {
            format!("send            {program} #{} to {to} tag {:#x} {} B", id.0, op.tag, op.len)
        });
        if self.peers.get(&peer).is_none_or(|p| p.down.is_some()) {
            self.end_send(host, id, false);
            return id;
        }
        host.shared.checks.order.sent(self.program, to, id.0, class(op.tagged), op.tag);
        self.push(host, peer, id);
        id
    }

    /// Hands a send to the endpoint, or to the backlog if others wait there or there is no room.
    fn push(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, id: SendId) {
        let waits = self.peers.get(&peer).is_some_and(|p| !p.backlog.is_empty());
        if (waits || !self.submit(host, id))
            && let Some(p) = self.peers.get_mut(&peer)
        {
            p.backlog.push_back(id);
            self.has_backlog = true;
        }
    }

    /// Tries to give a send to the endpoint; false if it has no room now.
    fn submit(&mut self, host: &mut Host<'_, Shared>, id: SendId) -> bool {
        let Some(Outgoing { op, peer, .. }) = self.sends.get(&id).cloned() else {
            return true;
        };
        let eager = op.len <= self.eager_max && self.endpoint.credit(peer).bytes >= op.len;
        let class = class(op.tagged);
        let stream = stream_of(op.tag, class, self.streams);
        let (tag, data) = (op.tag, Some(id.0));
        let (envelope, len, part) = if eager {
            (Envelope::Eager { class, tag, data, sync: op.sync.then_some(id.0) }, op.len as u32, Part::Eager)
        } else {
            (Envelope::Rts { class, tag, data, len: op.len, op: id.0 }, 0, Part::Request)
        };
        match self.post(host, peer, false, stream, &envelope, len, token(part, id.0)) {
            Ok(()) => {
                if let Some(s) = self.sends.get_mut(&id) {
                    s.stage = if eager { Stage::Eager } else { Stage::Requested };
                    s.awaits_match = eager && op.sync;
                }
                true
            }
            Err(SendError::QueueFull) => false,
            Err(e) => {
                // A peer that is down has said so before, or says so with the next event.
                if e == SendError::TooLong {
                    host.violation("send", format!("{} cannot send message {}: {e}", self.program, id.0));
                }
                self.end_send(host, id, false);
                true
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "these are the fields of `Message`")]
    fn post(
        &mut self,
        host: &mut Host<'_, Shared>,
        peer: PeerId,
        control: bool,
        stream: u16,
        envelope: &Envelope,
        len: u32,
        token: u64,
    ) -> Result<(), SendError> {
        let mut bytes = [0; envelope::MAX_BYTES];
        let n = envelope.encode(&mut bytes);
        // With lanes it matters who waits: a unit of a patient message asks for nothing.
        let patient = host.shared.lanes.is_some() && !control && token_message(token).is_multiple_of(4);
        let m = Message { control, stream, envelope: &bytes[..n], len, patient, token };
        self.endpoint.send(Time(host.now), peer, m)?;
        host.shared.checks.delivery.token_out(self.program, token);
        Ok(())
    }

    /// Sends a control message, now or when there is room.
    pub(super) fn control(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, envelope: Envelope) {
        let waits = self.peers.get(&peer).is_some_and(|p| !p.control_backlog.is_empty());
        if (waits || !self.submit_control(host, peer, &envelope))
            && let Some(p) = self.peers.get_mut(&peer)
        {
            p.control_backlog.push_back(envelope);
            self.has_backlog = true;
        }
    }

    fn submit_control(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, envelope: &Envelope) -> bool {
        let t = token(Part::Control, self.next_control);
        let result = self.post(host, peer, true, 0, envelope, 0, t);
        self.next_control += u64::from(result.is_ok());
        if result == Err(SendError::TooLong) {
            host.violation("send", format!("{} cannot send control message {envelope:?}", self.program));
        }
        result != Err(SendError::QueueFull)
    }

    /// Gives the endpoint what it had no room for.
    pub(super) fn push_backlog(&mut self, host: &mut Host<'_, Shared>) {
        if !self.has_backlog {
            return;
        }
        let waiting = |p: &super::Peer| !p.backlog.is_empty() || !p.control_backlog.is_empty();
        let peers: Vec<PeerId> = self.peers.iter().filter(|(_, p)| waiting(p)).map(|(id, _)| *id).collect();
        for peer in peers {
            while let Some(e) = self.peers.get(&peer).and_then(|p| p.control_backlog.front().copied()) {
                if !self.submit_control(host, peer, &e) {
                    break;
                }
                self.peers.get_mut(&peer).map(|p| p.control_backlog.pop_front());
            }
            while let Some(id) = self.peers.get(&peer).and_then(|p| p.backlog.front().copied()) {
                if !self.submit(host, id) {
                    break;
                }
                self.peers.get_mut(&peer).map(|p| p.backlog.pop_front());
            }
        }
        self.has_backlog = self.peers.values().any(waiting);
    }

    /// The receiver asks for the body.
    pub(super) fn clear_to_send(
        &mut self,
        host: &mut Host<'_, Shared>,
        peer: PeerId,
        id: u64,
        handle: u64,
        len: u64,
        granted: u64,
    ) {
        let Some(s) = self.sends.get_mut(&SendId(id)).filter(|s| s.peer == peer && s.stage == Stage::Requested) else {
            return host.violation(
                "rendezvous",
                format!("{} is asked for the body of message {id}, which it does not offer", self.program),
            );
        };
        s.stage = Stage::Body;
        let t = token(Part::Body, id);
        match self.endpoint.send_body(Time(host.now), peer, handle, granted, len, t) {
            Ok(()) => host.shared.checks.delivery.token_out(self.program, t),
            Err(SendError::Closed) => {}
            Err(e) => host.violation("send", format!("{} cannot send the body of message {id}: {e}", self.program)),
        }
    }

    /// The receiver has matched the message (synchronous or truncated to nothing).
    pub(super) fn matched_there(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, id: u64) {
        let Some(s) = self.sends.get_mut(&SendId(id)).filter(|s| s.peer == peer) else {
            return host.violation(
                "sync",
                format!("{} hears that message {id} was matched, which it does not await", self.program),
            );
        };
        s.awaits_match = false;
        if matches!(s.stage, Stage::Matching | Stage::Requested) {
            self.end_send(host, SendId(id), true);
        }
    }

    /// The endpoint reports the end of a token.
    pub(super) fn token_ended(
        &mut self,
        host: &mut Host<'_, Shared>,
        peer: PeerId,
        t: u64,
        failed: Option<DownReason>,
    ) {
        if let Err(e) = host.shared.checks.delivery.token_back(self.program, t) {
            return host.violation("token", e);
        }
        let id = SendId(token_message(t));
        let part = token_part(t);
        if part == Part::Control {
            return;
        }
        if failed.is_some() {
            if self.peers.get(&peer).is_some_and(|p| p.down.is_none()) {
                host.violation("failed", format!("{}: message {} failed although its peer is up", self.program, id.0));
            }
            return self.end_send(host, id, false);
        }
        let has_arrived = host.shared.checks.delivery.get(self.program, id.0).is_some_and(|m| m.arrived);
        if part != Part::Request && !has_arrived {
            let why = format!("{}: message {} is said to be complete, but not all of it is there", self.program, id.0);
            return host.violation("early", why);
        }
        let Some(s) = self.sends.get_mut(&id) else {
            // A request may be acknowledged after its message was truncated to nothing.
            return;
        };
        match part {
            Part::Eager if s.awaits_match => s.stage = Stage::Matching,
            Part::Eager | Part::Body => self.end_send(host, id, true),
            Part::Request | Part::Control => {}
        }
    }

    /// A send ends. It may have ended before, by the verdict on its peer.
    pub(super) fn end_send(&mut self, host: &mut Host<'_, Shared>, id: SendId, well: bool) {
        if self.sends.remove(&id).is_none() {
            return;
        }
        if let Err(e) = host.shared.checks.delivery.send_ended(self.program, id.0) {
            host.violation("exactly-once", e);
        }
        let program = self.program;
        host.note(21 ^ id.0 << 8, || {
            format!("sent            {program} #{} {}", id.0, if well { "ok" } else { "failed" })
        });
        self.outcomes.push_back(if well { Outcome::Sent(id) } else { Outcome::SendFailed(id) });
    }

    /// Everything that waits for a peer that is down fails, and nothing else.
    pub(super) fn fail_peer(&mut self, host: &mut Host<'_, Shared>, peer: PeerId) {
        if let Some(p) = self.peers.get_mut(&peer) {
            p.backlog.clear();
            p.control_backlog.clear();
        }
        let sends: Vec<SendId> = self.sends.iter().filter(|(_, s)| s.peer == peer).map(|(id, _)| *id).collect();
        for id in sends {
            self.end_send(host, id, false);
        }
        let (mut receives, mut messages) = (Vec::new(), Vec::new());
        self.matcher.remove_peer(peer.0, &mut receives, &mut messages);
        for r in receives {
            self.fail_receive(host, RecvId(r));
        }
        for m in messages {
            self.forget_message(m);
        }
        self.fail_incomplete(host, peer);
    }

    /// What the order checker knows a receive by.
    pub(super) fn pattern(from: Option<Program>, op: &super::RecvOp) -> Pattern {
        Pattern { from, class: class(op.tagged), tag: op.tag, ignore: op.ignore }
    }
}
