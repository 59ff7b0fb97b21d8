//! Receives whose buffer takes several messages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_link::{PeerId, Time};
use weir_message::{Completion, MessageError, OpError};

use super::operations::{class, pattern};
use super::{Core, Outcome, Pattern, RecvId, RecvOp, Shared};
use crate::check::{Program, many::Buffer, payload};
use crate::planted::{Defect, hits};
use crate::world::Host;

/// A receive of several messages that has not been handed back.
#[derive(Clone, Debug)]
pub(super) struct Many {
    op: RecvOp,
    from: Option<Program>,
    /// What was written into its memory.
    bytes: Rc<RefCell<Vec<u8>>>,
    buffer: Buffer,
}

/// All of a rank.
#[derive(Debug, Default)]
pub(super) struct Manies {
    open: BTreeMap<RecvId, Many>,
    /// The last message of each sender that was told, of those that came into buffers for one tag.
    told: BTreeMap<(Program, u64), u64>,
    /// They are to be told as they were sent.
    in_order: bool,
}

impl Manies {
    pub(super) fn new(in_order: bool) -> Manies {
        Manies { in_order, ..Manies::default() }
    }
}

impl Core {
    /// Posts a buffer that takes message after message until less than `min` bytes are free.
    pub(super) fn start_many(
        &mut self,
        host: &mut Host<'_, Shared>,
        op: RecvOp,
        from: Option<Program>,
        min: u64,
    ) -> RecvId {
        let id = RecvId(self.next_receive);
        self.next_receive += 1;
        let me = self.program;
        host.note(35 ^ id.0 << 8, || format!("receive several {me} #{} {op:?}, {min} to be free", id.0));
        let (memory, bytes) = Pattern::room(op.room);
        self.manies.open.insert(id, Many { op, from, bytes, buffer: Buffer::new(op.room, min) });
        if from.is_some_and(|from| self.parting.has_dropped(from)) {
            self.many_back(host, id, true, true);
            return id;
        }
        host.shared.checks.order.posted(me, id.0, pattern(op, from));
        let source = from.map(|from| self.peer_of(host, from).0);
        let min = if host.shared.has(Defect::FreeSpaceIgnored) { 0 } else { min };
        let receive = weir_message::RecvOp {
            source,
            class: class(op.tagged),
            tag: op.tag,
            ignore: op.ignore,
            memory: memory.overlapping(host.shared.has(Defect::PartsOverlap)),
            multi_min: Some(min as usize),
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        match self.messages.recv(Time(host.now), receive) {
            Ok(()) => {}
            Err(MessageError::PeerDown(_)) => self.many_back(host, id, true, true),
            Err(e) => host.violation("receive", format!("{me} cannot post receive {}: {e}", id.0)),
        }
        self.settle(host);
        id
    }

    /// Whether this receive takes several messages.
    pub(super) fn is_many(&self, id: RecvId) -> bool {
        self.manies.open.contains_key(&id)
    }

    /// It takes a message.
    pub(super) fn taken_by_many(&mut self, host: &mut Host<'_, Shared>, id: RecvId, from: Program, message: u64) {
        let me = self.program;
        let len = host.shared.checks.delivery.get(from, message).map_or(0, |m| m.len);
        let Some(many) = self.manies.open.get_mut(&id) else { return };
        let last = match many.buffer.taken(from, message, len) {
            Ok(last) => last,
            Err(e) => return host.violation("multi-receive", format!("{me}: receive {}: {e}", id.0)),
        };
        if let Err(e) = host.shared.checks.order.taken_by_many(from, me, message, id.0, last) {
            host.violation("order", e);
        }
    }

    /// One of its messages is over, and perhaps it is itself.
    pub(super) fn part_ended(&mut self, host: &mut Host<'_, Shared>, id: RecvId, c: &Completion) {
        let me = self.program;
        let Some(peer) = c.source.and_then(|p| self.peers.get(&PeerId(p))) else {
            return host.violation("identity", format!("{me}: receive {} does not know its sender", id.0));
        };
        let (from, message, is_up) = (peer.program, c.data.unwrap_or(u64::MAX), peer.down.is_none());
        let key = payload::key(peer.endpoint_id, message);
        let excess = match c.result {
            Err(OpError::Truncated { .. }) if host.shared.has(Defect::ExcessUntold) => Some(0),
            Ok(()) => Some(0),
            Err(OpError::Truncated { excess }) => Some(excess as u64),
            // Who ends asks nobody for more.
            Err(OpError::PeerDown(_)) if self.closing || !is_up => None,
            Err(e) => return host.violation("abort", format!("{me}: receive {}, message {message}: {e}", id.0)),
        };
        let judged = self.judge_part(host, id, c, (from, message), key, excess);
        if let Err((kind, why)) = judged {
            return host.violation(kind, format!("{me}: receive {}: message {message} of {from}: {why}", id.0));
        }
        let at = excess.map(|_| host.now);
        if let Err(e) = host.shared.checks.delivery.receive_ended(from, message, me, at) {
            host.violation("exactly-once", e);
        }
        let tally = &mut host.shared.checks.tally;
        (tally.parts, tally.cut) = (tally.parts + 1, tally.cut + u64::from(excess.is_some_and(|n| n > 0)));
        host.note(36 ^ message << 8, || {
            format!("received        {me} #{} from {from} #{message}, one of several", id.0)
        });
        self.outcomes.push_back(Outcome::Part { receive: id, from: from.host });
        let done = match host.shared.planted {
            Some(Defect::BufferKept) if hits(id.0) => return,
            Some(Defect::BufferBackEarly) if hits(id.0) => true,
            _ => c.multi_done,
        };
        let is_over = self.manies.open.get(&id).is_some_and(|many| many.buffer.is_over());
        if done {
            // More of what had come before its sender died may wait for another.
            self.many_back(host, id, !is_up, false);
        } else if is_over {
            host.violation("multi-receive", format!("{me}: receive {} is over and not handed back", id.0));
        }
    }

    /// Whether a message that went into one of several has got what was sent, where it belongs, in
    /// its turn. With `excess` it has come, without it has failed.
    fn judge_part(
        &mut self,
        host: &Host<'_, Shared>,
        id: RecvId,
        c: &Completion,
        (from, message): (Program, u64),
        key: u64,
        excess: Option<u64>,
    ) -> Result<(), (&'static str, String)> {
        let gone = || ("exactly-once", "its buffer was handed back before".to_owned());
        let many = self.manies.open.get_mut(&id).ok_or_else(gone)?;
        let part = many.buffer.ended(from, message, excess.is_some()).map_err(|e| ("exactly-once", e))?;
        let Some(excess) = excess else { return Ok(()) };
        let place = (part.at, part.len, part.excess);
        if (c.address as u64, c.len as u64, excess) != place {
            return Err(("multi-receive", format!("place, length and excess {place:?} are told as {c:?}")));
        }
        if host.shared.checks.delivery.get(from, message).is_none_or(|m| !m.arrived) {
            return Err(("complete", "received, and not all of it is there".into()));
        }
        let bytes = many.bytes.borrow();
        let there = bytes.get(part.at as usize..(part.at + part.len) as usize);
        if part.len > 0 && there.is_none_or(|there| payload::first_wrong(key, 0, there).is_some()) {
            return Err(("payload", format!("{} bytes at {} are not what was sent", part.len, part.at)));
        }
        let former = self.manies.told.insert((from, many.op.tag), message);
        if self.manies.in_order && former.is_some_and(|former| former > message) {
            return Err(("multi-receive", format!("told behind message {former:?}, which was sent later")));
        }
        Ok(())
    }

    /// A buffer is handed back without a message.
    pub(super) fn released(&mut self, host: &mut Host<'_, Shared>, id: RecvId, c: &Completion) {
        let me = self.program;
        let of_dead = self.manies.open.get(&id).and_then(|many| many.from).is_some_and(|from| self.knows_dead(from));
        match c.result {
            Err(OpError::Cancelled) => self.many_back(host, id, false, false),
            Err(OpError::PeerDown(_)) if of_dead => self.many_back(host, id, true, true),
            result => host.violation("abort", format!("{me}: receive {} of several is over: {result:?}", id.0)),
        }
    }

    fn knows_dead(&self, program: Program) -> bool {
        self.by_program.get(&program).and_then(|p| self.peers.get(p)).is_some_and(|p| p.down.is_some())
    }

    /// A buffer is the program's again. With `of_dead` it may be for the death of the only one it
    /// takes from; `empty`: and nothing of that waits for another.
    fn many_back(&mut self, host: &mut Host<'_, Shared>, id: RecvId, of_dead: bool, empty: bool) {
        let me = self.program;
        let Some(mut many) = self.manies.open.remove(&id) else {
            return host.violation("exactly-once", format!("{me}: receive {} is handed back twice", id.0));
        };
        if of_dead && many.from.is_some() {
            many.buffer.close();
        }
        host.shared.checks.order.withdrawn(me, id.0);
        if let Err(e) = many.buffer.hand_back() {
            host.violation("multi-receive", format!("{me}: receive {} {e}", id.0));
        }
        let bytes = many.bytes.borrow();
        for part in many.buffer.whole() {
            let key = self.by_program.get(&part.from).and_then(|p| self.peers.get(p)).map(|p| p.endpoint_id);
            let there = bytes.get(part.at as usize..(part.at + part.len) as usize).unwrap_or(&[]);
            if let Some(id) = key
                && payload::first_wrong(payload::key(id, part.message), 0, there).is_some()
            {
                host.violation("payload", format!("{me}: message {} was overwritten in its buffer", part.message));
            }
        }
        if bytes.len() as u64 > many.buffer.used() {
            host.violation("payload", format!("{me}: {} bytes were written of {}", bytes.len(), many.buffer.used()));
        }
        host.shared.checks.tally.handed_back += 1;
        host.note(37 ^ id.0 << 8, || format!("handed back     {me} #{}", id.0));
        self.outcomes.push_back(Outcome::Back { receive: id, empty });
    }

    /// Withdraws one of several; false if it takes no more in any case.
    pub(super) fn cancel_many(&mut self, host: &mut Host<'_, Shared>, id: RecvId) -> bool {
        let cancelled = self.messages.cancel(Time(host.now), id.0 as usize);
        if cancelled && let Some(many) = self.manies.open.get_mut(&id) {
            many.buffer.close();
            host.shared.checks.order.withdrawn(self.program, id.0);
        }
        self.settle(host);
        cancelled
    }

    /// Whether the completion of a receive is of one of these.
    pub(super) fn is_of_many(&self, c: &Completion) -> bool {
        c.multi_done || self.is_many(RecvId(c.context as u64))
    }
}
