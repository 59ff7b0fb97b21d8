//! Remote memory: each rank has a region that others read, one that they write, and one of counters
//! to which they add.

use std::cell::RefCell;
use std::rc::Rc;

use weir_link::{PeerId, Time};
use weir_message::{
    Access, AmoOp, Atomic, AtomicOp, AtomicType, Completion, INJECT_BYTES, MessageError, Messages, OpError, OpKind,
    RmaOp, SendMode,
};

use super::told::Steps;
use super::{Core, Outcome, Pattern, RemoteId, RemoteOp, Shared};
use crate::check::{Program, payload, remote};
use crate::planted::Defect;
use crate::world::Host;

/// Bytes of the region that is read.
pub const READABLE_BYTES: u64 = 1 << 20;
/// Bytes of the region that is written.
pub const WRITABLE_BYTES: u64 = 16 << 20;
/// Counters of a rank, of eight bytes each.
pub const COUNTERS: u64 = 64;
/// Their keys, and one of no region.
const READ_KEY: u64 = 1;
const WRITE_KEY: u64 = 2;
const WRONG_KEY: u64 = 3;
const COUNT_KEY: u64 = 4;
/// Told apart from messages in the keys of payloads.
const REGION: u64 = 1 << 62;
const WRITES: u64 = 1 << 61;

/// An operation that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    op: RemoteOp,
    to: Program,
    /// What was read.
    bytes: Rc<RefCell<Vec<u8>>>,
}

/// Gives others the regions of a rank.
pub(super) fn register(shared: &mut Shared, program: Program, id: u64, messages: &mut Messages<Pattern, Steps>) {
    let readable = Pattern::payload(payload::key(id, REGION), READABLE_BYTES);
    let (writable, bytes) = Pattern::room(WRITABLE_BYTES);
    shared.checks.remote.regions.insert(program, bytes);
    let (read, write) =
        (Access { remote_read: true, ..Access::default() }, Access { remote_write: true, ..Access::default() });
    let (counters, bytes) = Pattern::counters(8 * COUNTERS, shared.has(Defect::AddedTwice));
    shared.checks.counters.regions.insert(program, bytes);
    let both = Access { remote_read: true, remote_write: true };
    for (memory, access, key) in [(readable, read, READ_KEY), (writable, write, WRITE_KEY), (counters, both, COUNT_KEY)]
    {
        let registered = messages.register(memory, 0, access, Some(key));
        assert_eq!(registered, Ok(key), "the first regions of an endpoint");
    }
}

impl Core {
    pub(super) fn start_remote(&mut self, host: &mut Host<'_, Shared>, op: RemoteOp, to: Program) -> RemoteId {
        let id = RemoteId(self.next_remote);
        self.next_remote += 1;
        let me = self.program;
        host.note(60 ^ id.0 << 8, || format!("remote          {me} #{} {op:?}", id.0));
        self.remote.insert(id, Remote { op, to, bytes: Rc::default() });
        let checker = &mut host.shared.checks.remote;
        checker.wrong += u64::from(op.wrong);
        if op.add {
            if !op.wrong {
                host.shared.checks.counters.begun(to, op.at, op.len / 8);
            }
        } else if !op.read {
            let key = payload::key(self.endpoint_id, WRITES | id.0);
            let write = remote::Write { to, at: op.at, len: op.len, key, notice: op.notice, noticed: false };
            checker.writes.insert((me, id.0), write);
        }
        if self.parting.has_dropped(to) {
            self.end_remote(host, id, false);
        } else if !self.submit_remote(host, id) {
            self.remote_backlog.push_back(id);
        }
        id
    }

    /// Begins what there was no room for.
    pub(super) fn push_remote_backlog(&mut self, host: &mut Host<'_, Shared>) {
        for _ in 0..self.remote_backlog.len() {
            if let Some(id) = self.remote_backlog.pop_front()
                && !self.submit_remote(host, id)
            {
                self.remote_backlog.push_back(id);
            }
        }
    }

    /// Tries to begin an operation; false if there is no room now.
    fn submit_remote(&mut self, host: &mut Host<'_, Shared>, id: RemoteId) -> bool {
        let Some(Remote { op, to, .. }) = self.remote.get(&id).cloned() else { return true };
        if self.parting.has_dropped(to) {
            self.end_remote(host, id, false);
            return true;
        }
        let peer = self.peer_of(host, to).0;
        if op.add {
            return self.submit_add(host, id, op, to, peer);
        }
        let memory = if op.read {
            let (room, bytes) = Pattern::room(op.len);
            self.remote.insert(id, Remote { op, to, bytes });
            room
        } else {
            Pattern::payload(payload::key(self.endpoint_id, WRITES | id.0), op.len)
        };
        let mode = match id.0 % 4 {
            0 => SendMode::Transmit,
            1 => SendMode::Acknowledged,
            2 if op.len <= INJECT_BYTES as u64 => SendMode::Inject,
            _ => SendMode::Delivery,
        };
        let key = if op.wrong {
            WRONG_KEY
        } else if op.read {
            READ_KEY
        } else {
            WRITE_KEY
        };
        let shifted = if op.read { Defect::ReadShifted } else { Defect::WriteShifted };
        let shift = u64::from(host.shared.has(shifted) && !op.wrong && op.at > 0);
        let rma = RmaOp {
            peer,
            memory,
            remote_addr: op.at - shift,
            key,
            data: (op.notice && !op.read).then_some(id.0),
            mode,
            copy: false,
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        let now = Time(host.now);
        match if op.read { self.messages.read(now, rma) } else { self.messages.write(now, rma) } {
            Ok(()) => {}
            Err(MessageError::Again) => return false,
            Err(MessageError::PeerDown(_)) => self.end_remote(host, id, false),
            Err(e) => host.violation("remote", format!("{}: {op:?} cannot begin: {e}", self.program)),
        }
        self.settle(host);
        true
    }

    /// The same of additions.
    fn submit_add(&mut self, host: &mut Host<'_, Shared>, id: RemoteId, op: RemoteOp, to: Program, peer: u32) -> bool {
        let (operand, ones) = Pattern::room(op.len);
        ones.borrow_mut().extend((0..op.len / 8).flat_map(|_| 1u64.to_le_bytes()));
        let (room, bytes) = Pattern::room(op.len);
        self.remote.insert(id, Remote { op, to, bytes });
        let Some(atomic) = Atomic::new(AtomicOp::Sum, AtomicType::U64) else { return true };
        let amo = AmoOp {
            peer,
            atomic,
            count: (op.len / 8) as u32,
            operand,
            compare: Pattern::default(),
            result: if op.read { room } else { Pattern::default() },
            remote_addr: op.at,
            key: if op.wrong { WRONG_KEY } else { COUNT_KEY },
            report: true,
            context: id.0 as usize,
            user: 0,
        };
        match self.messages.atomic(Time(host.now), amo) {
            Ok(()) => {}
            Err(MessageError::Again) => return false,
            Err(MessageError::PeerDown(_)) => self.end_remote(host, id, false),
            Err(e) => host.violation("remote", format!("{}: {op:?} cannot begin: {e}", self.program)),
        }
        self.settle(host);
        true
    }

    /// A write, read or addition has ended.
    pub(super) fn remote_ended(&mut self, host: &mut Host<'_, Shared>, id: RemoteId, c: &Completion) {
        let me = self.program;
        let Some(Remote { op, to, bytes }) = self.remote.get(&id).cloned() else {
            return host.violation("exactly-once", format!("{me}: remote {} ends twice, or never began", id.0));
        };
        let peer = self.by_program.get(&to).and_then(|p| self.peers.get(p));
        if op.add && host.shared.has(Defect::AnswerDropped) && id.0 % 20 == 7 {
            return;
        }
        let kept = match c.result {
            Err(OpError::PeerDown(_)) if peer.is_none_or(|p| p.down.is_some()) => {
                return self.end_remote(host, id, false);
            }
            Err(OpError::Access) if op.wrong => Ok(()),
            // Of what nobody has answered a refusal may be missed.
            Ok(()) if op.wrong && !op.read && c.kind == OpKind::Write && id.0 % 4 != 3 => Ok(()),
            // What is empty ends as it begins.
            Ok(()) if op.wrong && op.read && op.len == 0 => Ok(()),
            Ok(()) if op.wrong => Err("was not refused".into()),
            Ok(()) if op.add => {
                let bytes = bytes.borrow();
                let held = op.read.then_some(&bytes[..]);
                host.shared.checks.counters.ended(to, op.at, op.len / 8, held)
            }
            Ok(()) if op.read => {
                let key = payload::key(peer.map_or(0, |p| p.endpoint_id), REGION);
                let bytes = bytes.borrow();
                match payload::first_wrong(key, op.at, &bytes) {
                    None if bytes.len() as u64 == op.len => Ok(()),
                    wrong => Err(format!("read {} bytes, of which {wrong:?} is wrong", bytes.len())),
                }
            }
            Ok(()) => host.shared.checks.remote.done(me, id.0),
            Err(e) => Err(format!("failed although its peer is up: {e}")),
        };
        match kept {
            Ok(()) => self.end_remote(host, id, true),
            Err(e) if op.add => host.violation("exactly-once", format!("{me}: {op:?}: {e}")),
            Err(e) => host.violation("remote", format!("{me}: {op:?}: {e}")),
        }
    }

    /// A peer has written here and says so.
    pub(super) fn noticed(&mut self, host: &mut Host<'_, Shared>, c: &Completion) {
        let me = self.program;
        let from = c.source.and_then(|p| self.peers.get(&PeerId(p))).map(|p| p.program);
        let (Some(from), Some(number)) = (from, c.data) else {
            return host.violation("remote", format!("{me}: a notice without writer or number"));
        };
        let times = match host.shared.planted {
            Some(Defect::NoticeLost) => 0,
            Some(Defect::NoticeTwice) => 2,
            _ => 1,
        };
        for _ in 0..times {
            if let Err(e) = host.shared.checks.remote.noticed(from, number, me, c.len as u64) {
                host.violation("remote", e);
            }
        }
    }

    fn end_remote(&mut self, host: &mut Host<'_, Shared>, id: RemoteId, well: bool) {
        self.remote.remove(&id);
        let me = self.program;
        host.note(61 ^ id.0 << 8, || format!("remote ends     {me} #{} {}", id.0, if well { "ok" } else { "failed" }));
        self.outcomes.push_back(Outcome::Remote(id));
    }
}
