//! The operations of a rank, from the program's call to the outcome.

use std::cell::RefCell;
use std::rc::Rc;

use weir_link::{PeerId, Time};
use weir_match::Class;
use weir_message::{Completion, INLINE_BYTES, Memory, MessageError, OpError, OpKind, PeekOp, SendMode, Superstep};

use super::{Core, Outcome, Pattern, RecvId, RecvOp, RemoteId, SendId, SendOp, Shared};
use crate::check::{Program, delivery, order, payload};
use crate::planted::{Defect, hits};
use crate::spec::{HostId, Ns};
use crate::world::Host;

/// A send that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    op: SendOp,
    peer: PeerId,
    mode: SendMode,
    /// It may be complete before it has arrived.
    may_copy: bool,
}

/// A receive that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    room: u64,
    /// What was written into its memory.
    bytes: Rc<RefCell<Vec<u8>>>,
    cancelled: bool,
    /// It looks before it receives.
    look: Option<Look>,
}

/// A look for a message.
#[derive(Clone, Debug)]
enum Look {
    /// Nothing was found yet.
    For(RecvOp, Option<Program>),
    /// This message of this program is claimed.
    Claimed(RecvOp, Program, u64),
}

pub(super) fn class(tagged: bool) -> Class {
    if tagged { Class::Tagged } else { Class::Untagged }
}

impl Core {
    pub(super) fn superstep(
        &mut self,
        host: &mut Host<'_, Shared>,
        plan: &weir_superstep::Plan,
        slots: Option<weir_superstep::Slots>,
        own_queue: weir_superstep::OwnQueue,
    ) {
        let me = self.program;
        let mut peers = |flows: &[weir_superstep::Flow]| -> Vec<(u32, u64)> {
            let of = |f: &weir_superstep::Flow| {
                let other = host.shared.directory.current(f.rank);
                (self.peer_of(host, other).0, f.bytes)
            };
            flows.iter().map(of).collect()
        };
        let (sends, receives) = (peers(&plan.out), peers(&plan.inn));
        for f in &plan.inn {
            let other = host.shared.directory.current(f.rank);
            host.shared.checks.memory.expected(other, me, f.bytes);
        }
        let step = Superstep { sends: &sends, receives: &receives, slots, own_queue };
        if let Err(e) = self.messages.superstep(Time(host.now), &step) {
            host.violation("superstep", format!("{me}: {e:?}"));
        }
        host.set_own_queue(self.messages.endpoint().own_queue_bytes(Time(host.now)));
    }

    pub(super) fn least_round_trip(&mut self, host: &mut Host<'_, Shared>, to: HostId) -> Ns {
        let other = host.shared.directory.current(to);
        let peer = self.peer_of(host, other);
        self.messages.endpoint().min_rtt_ns(peer)
    }

    pub(super) fn start_send(&mut self, host: &mut Host<'_, Shared>, op: SendOp, to: Program) -> SendId {
        let id = SendId(self.next_send);
        self.next_send += 1;
        let peer = self.peer_of(host, to);
        host.shared.checks.delivery.sent(self.program, id.0, delivery::Message::new(to, op.tag, op.len, host.now));
        // It matters who waits: with bulk connections a record of a message that nobody waits for
        // asks for nothing, and a short message may leave alone.
        let mode = match op.sync {
            true => SendMode::Match,
            false if self.bulk_connections.are_on() && id.0.is_multiple_of(4) => SendMode::Transmit,
            false if op.len <= INLINE_BYTES as u64 && id.0.is_multiple_of(2) => SendMode::Transmit,
            false => SendMode::Delivery,
        };
        self.sends.insert(id, Outgoing { op, peer, mode, may_copy: false });
        let program = self.program;
        host.note(20 ^ id.0 << 8, || {
            format!("send            {program} #{} to {to} tag {:#x} {} B", id.0, op.tag, op.len)
        });
        if self.parting.has_dropped(to) || self.peers.get(&peer).is_none_or(|p| p.down.is_some()) {
            self.end_send(host, id, false);
            return id;
        }
        host.shared.checks.order.sent(self.program, to, id.0, class(op.tagged), op.tag);
        let waits = self.peers.get(&peer).is_some_and(|p| !p.backlog.is_empty());
        if (waits || !self.submit(host, id))
            && let Some(p) = self.peers.get_mut(&peer)
        {
            match host.shared.has(Defect::WaitingOvertaken) {
                true => p.backlog.push_front(id),
                false => p.backlog.push_back(id),
            }
            self.has_backlog = true;
        }
        id
    }

    /// Tries to begin a send; false if there is no room now.
    fn submit(&mut self, host: &mut Host<'_, Shared>, id: SendId) -> bool {
        let Some(&Outgoing { op, peer, mode, .. }) = self.sends.get(&id) else {
            return true;
        };
        let copies_all = self.messages.copies_all(peer.0);
        let shift = u64::from(host.shared.has(Defect::PayloadShifted) && hits(id.0));
        let memory = Pattern::payload(payload::key(self.endpoint_id, id.0), op.len + shift).part(shift, op.len);
        let unawaited = mode == SendMode::Match && host.shared.has(Defect::SyncNotAwaited);
        let send = weir_message::SendOp {
            peer: peer.0,
            class: class(op.tagged),
            tag: op.tag,
            data: Some(id.0),
            memory,
            mode: if unawaited { SendMode::Delivery } else { mode },
            copy: false,
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        let now = Time(host.now);
        let alone = host.can_send().then(|| self.messages.send_alone(now, &send, &mut self.buffer)).flatten();
        let sent = match alone {
            Some(t) => {
                self.put_on_wire(host, &t);
                Ok(false)
            }
            None => self.messages.send(now, send).map(|went| copies_all && went > 0),
        };
        if let (Ok(is_copied), Some(out)) = (&sent, self.sends.get_mut(&id)) {
            out.may_copy = mode == SendMode::Transmit && (op.len <= self.copy_bytes || *is_copied);
        }
        match sent {
            Ok(_) if host.shared.has(Defect::ToldEarly) && hits(id.0) => self.told_early(host, id, op),
            Ok(_) => {}
            Err(MessageError::Again) => return false,
            Err(MessageError::PeerDown(_)) => self.end_send(host, id, false),
            Err(e) => host.violation("send", format!("{} cannot send message {}: {e}", self.program, id.0)),
        }
        self.settle(host);
        true
    }

    /// Begins a send anew that was meant for another (`Defect::SentToHeir`).
    pub(super) fn send_to_heir(&mut self, host: &mut Host<'_, Shared>, id: SendId, op: SendOp, peer: PeerId) {
        self.sends.insert(id, Outgoing { op, peer, mode: SendMode::Delivery, may_copy: false });
        self.submit(host, id);
    }

    /// A send is said to be complete as soon as it has begun.
    fn told_early(&mut self, host: &mut Host<'_, Shared>, id: SendId, op: SendOp) {
        let c = Completion {
            context: id.0 as usize,
            user: 0,
            kind: OpKind::Send,
            class: class(op.tagged),
            report: true,
            multi_done: false,
            len: 0,
            address: 0,
            tag: op.tag,
            data: None,
            source: None,
            result: Ok(()),
        };
        self.completed(host, &c);
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
        let memory = self.room(host, id, op.room, None);
        if from.is_some_and(|from| self.parting.has_dropped(from)) {
            self.fail_receive(host, id);
            return id;
        }
        host.shared.checks.order.posted(program, id.0, pattern(op, from));
        let source = from.map(|from| self.peer_of(host, from).0).filter(|_| !host.shared.has(Defect::SourceIgnored));
        let receive = weir_message::RecvOp {
            source,
            class: class(op.tagged),
            tag: op.tag,
            ignore: op.ignore | u64::from(host.shared.has(Defect::TagBitIgnored)),
            memory,
            multi_min: None,
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        match self.messages.recv(Time(host.now), receive) {
            Ok(()) => {}
            // What had arrived whole before the peer died is still received; nothing more will
            // come.
            Err(MessageError::PeerDown(_)) => self.fail_receive(host, id),
            Err(e) => host.violation("receive", format!("{program} cannot post receive {}: {e}", id.0)),
        }
        self.settle(host);
        id
    }

    /// The memory of a receive, which is on record from now on.
    fn room(&mut self, host: &Host<'_, Shared>, id: RecvId, room: u64, look: Option<Look>) -> Pattern {
        let behind = u64::from(host.shared.has(Defect::WrittenBehind));
        let (memory, bytes) = Pattern::room(room.saturating_add(behind));
        self.receives.insert(id, Receive { room, bytes, cancelled: false, look });
        memory.spoilt(host.shared.has(Defect::ParitySpoilt))
    }

    /// Looks for a message until there is one, claims it, and receives it a little later.
    pub(super) fn start_look(&mut self, host: &mut Host<'_, Shared>, op: RecvOp, from: Option<Program>) -> RecvId {
        let id = RecvId(self.next_receive);
        self.next_receive += 1;
        let program = self.program;
        host.note(33 ^ id.0 << 8, || format!("look            {program} #{} {op:?}", id.0));
        let _ = self.room(host, id, op.room, Some(Look::For(op, from)));
        self.looks.insert(id);
        self.look(host, id, op, from);
        id
    }

    /// Looks anew for what was not there, and receives what was claimed before.
    pub(super) fn push_looks(&mut self, host: &mut Host<'_, Shared>) {
        for id in self.looks.iter().copied().collect::<Vec<_>>() {
            match self.receives.get(&id).and_then(|r| r.look.clone()) {
                Some(Look::For(op, from)) => self.look(host, id, op, from),
                Some(Look::Claimed(op, from, message)) => self.receive_claimed(host, id, op, (from, message)),
                None => _ = self.looks.remove(&id),
            }
        }
    }

    fn look(&mut self, host: &mut Host<'_, Shared>, id: RecvId, op: RecvOp, from: Option<Program>) {
        let me = self.program;
        if from.is_some_and(|from| self.parting.has_dropped(from)) {
            return self.fail_receive(host, id);
        }
        let source = from.map(|from| self.peer_of(host, from));
        let peek = PeekOp {
            source: source.map(|p| p.0),
            class: class(op.tagged),
            tag: op.tag,
            ignore: op.ignore,
            claim: !host.shared.has(Defect::ClaimNotKept),
            discard: false,
            context: id.0 as usize,
        };
        let found = match self.messages.peek(Time(host.now), &peek) {
            Ok(found) => found,
            Err(e) => return host.violation("look", format!("{me}: look {}: {e}", id.0)),
        };
        let Some(c) = found else {
            // What had arrived whole before the peer died would have been found; nothing more will
            // come.
            if source.is_some_and(|p| self.peers.get(&p).is_some_and(|p| p.down.is_some())) {
                self.fail_receive(host, id);
            }
            return;
        };
        let Some(sender) = c.source.and_then(|p| self.peers.get(&PeerId(p))).map(|p| p.program) else {
            return host.violation("identity", format!("{me}: look {} does not know its sender", id.0));
        };
        let message = c.data.unwrap_or(u64::MAX);
        let sent = host.shared.checks.delivery.get(sender, message);
        if sent.is_none_or(|m| m.len != c.len as u64 || op.tagged && m.tag != c.tag) {
            let why = format!("{me}: look {} is told {} B, tag {:#x}, of message {message}", id.0, c.len, c.tag);
            return host.violation("look", why);
        }
        host.note(34 ^ message << 8, || format!("claimed         {me} #{} from {sender} #{message}", id.0));
        // It is taken now: what is posted or looked for from now on takes what comes behind it.
        let order = &mut host.shared.checks.order;
        order.posted(me, id.0, pattern(op, from));
        if let Err(e) = order.taken(sender, me, message, id.0) {
            host.violation("order", e);
        }
        if let Some(r) = self.receives.get_mut(&id) {
            r.look = Some(Look::Claimed(op, sender, message));
        }
    }

    /// Whether this receive has claimed this message before.
    pub(super) fn has_claimed(&self, id: RecvId, from: Program, message: u64) -> bool {
        let look = self.receives.get(&id).and_then(|r| r.look.as_ref());
        matches!(look, Some(Look::Claimed(_, f, m)) if (*f, *m) == (from, message))
    }

    fn receive_claimed(&mut self, host: &mut Host<'_, Shared>, id: RecvId, op: RecvOp, what: (Program, u64)) {
        let (me, now, from) = (self.program, Time(host.now), what.0);
        let memory = self.room(host, id, op.room, Some(Look::Claimed(op, from, what.1)));
        let receive = weir_message::RecvOp {
            source: None,
            class: class(op.tagged),
            tag: op.tag,
            ignore: op.ignore,
            memory,
            multi_min: None,
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        self.looks.remove(&id);
        let begun = match host.shared.has(Defect::ClaimNotKept) {
            true => self.messages.recv(now, receive),
            false => self.messages.recv_claimed(now, receive, false),
        };
        let is_down = |p: &PeerId| self.peers.get(p).is_some_and(|p| p.down.is_some());
        match begun {
            Ok(()) => {}
            // It was not all there when its sender died.
            Err(_) if self.by_program.get(&from).is_some_and(is_down) => self.fail_receive(host, id),
            Err(e) => host.violation("look", format!("{me}: what look {} has claimed is not to be had: {e}", id.0)),
        }
        self.settle(host);
    }

    /// Something was claimed and is to be received.
    pub(super) fn has_claims(&self) -> bool {
        self.looks.iter().any(|id| self.receives.get(id).is_some_and(|r| matches!(r.look, Some(Look::Claimed(..)))))
    }

    pub(super) fn cancel(&mut self, host: &mut Host<'_, Shared>, id: RecvId) -> bool {
        if self.is_many(id) {
            return self.cancel_many(host, id);
        }
        if let Some(Look::For(..)) = self.receives.get(&id).and_then(|r| r.look.as_ref()) {
            self.fail_receive(host, id);
            return true;
        }
        let stays = host.shared.has(Defect::CancelledStays);
        let cancelled = stays || self.messages.cancel(Time(host.now), id.0 as usize);
        if let Some(r) = self.receives.get_mut(&id) {
            r.cancelled = cancelled;
        }
        self.settle(host);
        cancelled
    }

    /// An operation has ended.
    pub(super) fn completed(&mut self, host: &mut Host<'_, Shared>, c: &Completion) {
        match c.kind {
            OpKind::Recv if self.is_of_many(c) => self.part_ended(host, RecvId(c.context as u64), c),
            OpKind::MultiRecvReleased => self.released(host, RecvId(c.context as u64), c),
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
        let (sync, copied) = (s.op.sync, s.may_copy);
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
            Err(OpError::PeerDown(_)) if !is_up => {
                if host.shared.has(Defect::SentToHeir) {
                    let op = s.op;
                    self.parting.keep_for_heir(id, op);
                }
                self.end_send(host, id, false);
            }
            Err(e) => host.violation("failed", format!("{me}: message {} failed although its peer is up: {e}", id.0)),
        }
    }

    /// A send ends.
    pub(super) fn end_send(&mut self, host: &mut Host<'_, Shared>, id: SendId, well: bool) {
        self.sends.remove(&id);
        if let Err(e) = host.shared.checks.delivery.send_ended(self.program, id.0, well) {
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
            Err(OpError::Truncated { .. }) if host.shared.has(Defect::ExcessUntold) => 0,
            Err(OpError::Truncated { excess }) => excess as u64,
            Err(OpError::Cancelled) if r.cancelled => return self.fail_receive(host, id),
            // Who ends asks nobody for more.
            Err(OpError::PeerDown(_)) if self.closing || !c.source.is_some_and(is_up) => {
                return self.fail_receive(host, id);
            }
            Err(e) => return host.violation("abort", format!("{me}: receive {} fails: {e}", id.0)),
        };
        let Some(peer) = c.source.and_then(|p| self.peers.get(&PeerId(p))) else {
            return host.violation("identity", format!("{me}: receive {} does not know its sender", id.0));
        };
        let (from, message) = (peer.program, c.data.unwrap_or(u64::MAX));
        if r.cancelled || r.look.is_some() && !self.has_claimed(id, from, message) {
            let why = format!("{me}: receive {} was withdrawn or has claimed another: {message} of {from}", id.0);
            return host.violation("claim", why);
        }
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
        self.looks.remove(&id);
        host.shared.checks.order.withdrawn(self.program, id.0);
        let program = self.program;
        host.note(31 ^ id.0 << 8, || format!("receive fails   {program} #{}", id.0));
        self.outcomes.push_back(Outcome::RecvFailed(id));
    }
}

pub(super) fn pattern(op: RecvOp, from: Option<Program>) -> order::Pattern {
    order::Pattern { from, class: class(op.tagged), tag: op.tag, ignore: op.ignore }
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
