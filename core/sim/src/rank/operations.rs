//! The operations of a rank, from the program's call to the outcome.

use std::cell::RefCell;
use std::rc::Rc;

use weir_link::{PeerId, Time};
use weir_match::Class;
use weir_message::{Completion, MessageError, OpError, OpKind, SendMode};

use super::{Core, Outcome, Pattern, RecvId, RecvOp, RemoteId, SendId, SendOp, Shared};
use crate::check::{Program, delivery, order, payload};
use crate::world::Host;

/// A send that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    op: SendOp,
    peer: PeerId,
    mode: SendMode,
}

/// A receive that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    room: u64,
    /// What was written into its memory.
    bytes: Rc<RefCell<Vec<u8>>>,
    cancelled: bool,
}

fn class(tagged: bool) -> Class {
    if tagged { Class::Tagged } else { Class::Untagged }
}

impl Core {
    pub(super) fn start_send(&mut self, host: &mut Host<'_, Shared>, op: SendOp, to: Program) -> SendId {
        let id = SendId(self.next_send);
        self.next_send += 1;
        let peer = self.peer_of(host, to);
        host.shared.checks.delivery.sent(self.program, id.0, delivery::Message::new(to, op.tag, op.len, host.now));
        // With lanes it matters who waits: a unit of a message that nobody waits for asks for nothing.
        let mode = match op.sync {
            true => SendMode::Match,
            false if self.lanes.are_on() && id.0.is_multiple_of(4) => SendMode::Transmit,
            false => SendMode::Delivery,
        };
        self.sends.insert(id, Outgoing { op, peer, mode });
        let program = self.program;
        host.note(20 ^ id.0 << 8, || {
            format!("send            {program} #{} to {to} tag {:#x} {} B", id.0, op.tag, op.len)
        });
        if self.peers.get(&peer).is_none_or(|p| p.down.is_some()) {
            self.end_send(host, id, false);
            return id;
        }
        host.shared.checks.order.sent(self.program, to, id.0, class(op.tagged), op.tag);
        let waits = self.peers.get(&peer).is_some_and(|p| !p.backlog.is_empty());
        if (waits || !self.submit(host, id))
            && let Some(p) = self.peers.get_mut(&peer)
        {
            p.backlog.push_back(id);
            self.has_backlog = true;
        }
        id
    }

    /// Tries to begin a send; false if there is no room now.
    fn submit(&mut self, host: &mut Host<'_, Shared>, id: SendId) -> bool {
        let Some(&Outgoing { op, peer, mode }) = self.sends.get(&id) else {
            return true;
        };
        let send = weir_message::SendOp {
            peer: peer.0,
            class: class(op.tagged),
            tag: op.tag,
            data: Some(id.0),
            memory: Pattern::payload(payload::key(self.endpoint_id, id.0), op.len),
            mode,
            copy: false,
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        match self.messages.send(Time(host.now), send) {
            Ok(()) => {}
            Err(MessageError::Again) => return false,
            Err(MessageError::PeerDown(_)) => self.end_send(host, id, false),
            Err(e) => host.violation("send", format!("{} cannot send message {}: {e}", self.program, id.0)),
        }
        self.settle(host);
        true
    }

    /// Begins what there was no room for.
    pub(super) fn push_backlog(&mut self, host: &mut Host<'_, Shared>) {
        if !self.has_backlog {
            return;
        }
        let peers: Vec<PeerId> = self.peers.iter().filter(|(_, p)| !p.backlog.is_empty()).map(|(id, _)| *id).collect();
        for peer in peers {
            while let Some(id) = self.peers.get_mut(&peer).and_then(|p| p.backlog.pop_front()) {
                if self.submit(host, id) {
                    continue;
                }
                if let Some(p) = self.peers.get_mut(&peer) {
                    p.backlog.push_front(id);
                }
                break;
            }
        }
        self.has_backlog = self.peers.values().any(|p| !p.backlog.is_empty());
    }

    pub(super) fn start_receive(&mut self, host: &mut Host<'_, Shared>, op: RecvOp, from: Option<Program>) -> RecvId {
        let id = RecvId(self.next_receive);
        self.next_receive += 1;
        let program = self.program;
        host.note(30 ^ id.0 << 8, || format!("receive         {program} #{} {op:?}", id.0));
        let (memory, bytes) = Pattern::room(op.room);
        self.receives.insert(id, Receive { room: op.room, bytes, cancelled: false });
        let class = class(op.tagged);
        host.shared.checks.order.posted(program, id.0, order::Pattern { from, class, tag: op.tag, ignore: op.ignore });
        let source = from.map(|from| self.peer_of(host, from).0);
        let (tag, ignore, context) = (op.tag, op.ignore, id.0 as usize);
        let receive = weir_message::RecvOp {
            source,
            class,
            tag,
            ignore,
            memory,
            multi_min: None,
            report: true,
            context,
            user: 0,
        };
        match self.messages.recv(Time(host.now), receive) {
            Ok(()) => {}
            // What had arrived whole before the peer died is still received; nothing more will come.
            Err(MessageError::PeerDown(_)) => self.fail_receive(host, id),
            Err(e) => host.violation("receive", format!("{program} cannot post receive {}: {e}", id.0)),
        }
        self.settle(host);
        id
    }

    pub(super) fn cancel(&mut self, host: &mut Host<'_, Shared>, id: RecvId) -> bool {
        let cancelled = self.messages.cancel(Time(host.now), id.0 as usize);
        if let Some(r) = self.receives.get_mut(&id) {
            r.cancelled = cancelled;
        }
        self.settle(host);
        cancelled
    }

    /// An operation has ended.
    pub(super) fn completed(&mut self, host: &mut Host<'_, Shared>, c: &Completion) {
        match c.kind {
            OpKind::Send => self.sent(host, SendId(c.context as u64), c),
            OpKind::Recv => self.received(host, RecvId(c.context as u64), c),
            OpKind::Write | OpKind::Read | OpKind::Atomic | OpKind::FetchAtomic => {
                self.remote_ended(host, RemoteId(c.context as u64), c)
            }
            OpKind::RemoteWrite => self.noticed(host, c),
            other => host.violation("completion", format!("{}: {other:?}, which nobody began", self.program)),
        }
    }

    fn sent(&mut self, host: &mut Host<'_, Shared>, id: SendId, c: &Completion) {
        let me = self.program;
        let Some(s) = self.sends.get(&id) else {
            return host.violation("exactly-once", format!("{me}: send {} ends twice, or never began", id.0));
        };
        let (sync, copied) = (s.op.sync, s.mode == SendMode::Transmit && s.op.len <= self.copy_bytes);
        let is_up = self.peers.get(&s.peer).is_some_and(|p| p.down.is_none());
        let (arrived, matched) =
            host.shared.checks.delivery.get(me, id.0).map_or((false, false), |m| (m.arrived, m.matched));
        match c.result {
            Ok(()) if !arrived && !copied => {
                let why = format!("{me}: message {} is said to be complete, but not all of it is there", id.0);
                host.violation("early", why);
            }
            Ok(()) if sync && !matched => {
                host.violation("sync", format!("{me}: message {} is said to be matched, and is not", id.0));
            }
            Ok(()) => self.end_send(host, id, true),
            Err(OpError::PeerDown(_)) if !is_up => self.end_send(host, id, false),
            Err(e) => host.violation("failed", format!("{me}: message {} failed although its peer is up: {e}", id.0)),
        }
    }

    /// A send ends.
    pub(super) fn end_send(&mut self, host: &mut Host<'_, Shared>, id: SendId, well: bool) {
        self.sends.remove(&id);
        if let Err(e) = host.shared.checks.delivery.send_ended(self.program, id.0) {
            host.violation("exactly-once", e);
        }
        let program = self.program;
        host.note(21 ^ id.0 << 8, || {
            format!("sent            {program} #{} {}", id.0, if well { "ok" } else { "failed" })
        });
        self.outcomes.push_back(if well { Outcome::Sent(id) } else { Outcome::SendFailed(id) });
    }

    fn received(&mut self, host: &mut Host<'_, Shared>, id: RecvId, c: &Completion) {
        let me = self.program;
        let Some(r) = self.receives.get(&id) else {
            return host.violation("exactly-once", format!("{me}: receive {} ends twice, or never began", id.0));
        };
        let is_up = |p: u32| self.peers.get(&PeerId(p)).is_some_and(|p| p.down.is_none());
        let excess = match c.result {
            Ok(()) => 0,
            Err(OpError::Truncated { excess }) => excess as u64,
            Err(OpError::Cancelled) if r.cancelled => return self.fail_receive(host, id),
            Err(OpError::PeerDown(_)) if !c.source.is_some_and(is_up) => return self.fail_receive(host, id),
            Err(e) => return host.violation("abort", format!("{me}: receive {} fails: {e}", id.0)),
        };
        let Some(peer) = c.source.and_then(|p| self.peers.get(&PeerId(p))) else {
            return host.violation("identity", format!("{me}: receive {} does not know its sender", id.0));
        };
        let (from, message) = (peer.program, c.data.unwrap_or(u64::MAX));
        let key = payload::key(peer.endpoint_id, message);
        if let Err((kind, why)) = judge(r, c, key, excess, host.shared.checks.delivery.get(from, message)) {
            return host.violation(kind, format!("{me} from {from}: message {message}: {why}"));
        }
        self.receives.remove(&id);
        if let Err(e) = host.shared.checks.delivery.receive_ended(from, message, me, Some(host.now)) {
            host.violation("exactly-once", e);
        }
        host.note(32 ^ message << 8, || format!("received        {me} #{} from {from} #{message}", id.0));
        let (tag, len) = (c.tag, c.len as u64 + excess);
        self.outcomes.push_back(Outcome::Received { receive: id, from: from.host, tag, len });
    }

    fn fail_receive(&mut self, host: &mut Host<'_, Shared>, id: RecvId) {
        self.receives.remove(&id);
        host.shared.checks.order.withdrawn(self.program, id.0);
        let program = self.program;
        host.note(31 ^ id.0 << 8, || format!("receive fails   {program} #{}", id.0));
        self.outcomes.push_back(Outcome::RecvFailed(id));
    }
}

/// Whether a receive has got what was sent, no less and no more.
fn judge(
    r: &Receive,
    c: &Completion,
    key: u64,
    excess: u64,
    sent: Option<&delivery::Message>,
) -> Result<(), (&'static str, String)> {
    let (len, bytes) = (c.len as u64, r.bytes.borrow());
    let sent_len = sent.map_or(0, |m| m.len);
    if len + excess != sent_len || len != sent_len.min(r.room) {
        return Err(("length", format!("{len} bytes and {excess} that did not fit into {}, of {sent_len}", r.room)));
    }
    if sent.is_none_or(|m| !m.arrived) {
        return Err(("complete", "received, and not all of it is there".into()));
    }
    if let Some(at) = payload::first_wrong(key, 0, &bytes) {
        return Err(("payload", format!("byte {at} is wrong")));
    }
    if bytes.len() as u64 != len {
        return Err(("payload", format!("{} bytes were written of {len}", bytes.len())));
    }
    Ok(())
}
