//! Atomic operations on remote memory: begun here, executed here for peers, and answered
//! (spec/envelopes.md 6).
//!
//! An operation reads its operands when it is begun, and is one control message for each of its
//! elements. The target executes each when it comes, keeps nothing of it and answers; since a
//! control message is handed up once, whatever carries it and however often, so each is executed
//! once. The operation ends with its last answer, or with the peer.

use crate::api::{Access, AmoOp, MessageError, OpError, OpKind};
use crate::keys::{SendKey, key, token};
use crate::limits::ATOMICS_MAX;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::remote::is_range;
use crate::sends::{Role, SendState};
use crate::source::Source;
use alloc::string::ToString;
use weir_link::{SendError, Time};
use weir_match::atomic::{Atomic, AtomicOp};
use weir_match::envelope::{Envelope, Status};

/// Elements that one operation may have. Each is a message of its own: whoever has many of them
/// sends a message.
pub const AMO_COUNT_MAX: u32 = 64;

/// One element of a peer's operation.
pub(crate) struct Element {
    pub atomic: Atomic,
    pub key: u64,
    pub addr: u64,
    pub operand: u64,
    pub compare: u64,
    pub fetch: bool,
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Starts an atomic operation on memory of a peer. Its operands are not used any more when this
    /// returns; `result` is written before the completion, and not after it.
    ///
    /// # Errors
    /// [`MessageError::Again`] when a queue is full, [`MessageError::PeerDown`],
    /// [`MessageError::TooBig`], [`MessageError::Invalid`], [`MessageError::Socket`].
    pub fn atomic(&mut self, now: Time, op: AmoOp<M>) -> Result<(), MessageError> {
        self.check_peer(op.peer)?;
        check(&op)?;
        // All elements or none: what has begun cannot be taken back.
        if self.peers[op.peer].atomics + op.count > ATOMICS_MAX
            || self.sessions.control_room(op.peer) < op.count as usize
        {
            return Err(MessageError::Again);
        }
        self.counters.atomics += 1;
        let bytes = op.atomic.of().bytes() as u64;
        let kind = if op.result.is_empty() { OpKind::Atomic } else { OpKind::FetchAtomic };
        let several = op.count > 1;
        let (role, result) =
            if several { (Role::Atomics, M::default()) } else { (Role::Atomic(None), op.result.clone()) };
        let whole = SendState {
            tag: op.key,
            context: op.context,
            user: op.user,
            report: op.report,
            awaits: op.count,
            number: if self.trace.on(2) { self.trace_atomic(&op) } else { 0 },
            ..SendState::new(op.peer, Source::User(result), bytes, role, kind)
        };
        if !is_range(op.remote_addr, u64::from(op.count) * bytes) {
            // (No element of it was begun.)
            self.counters.access_errors += 1;
            self.finish_send(SendState { role: Role::Atomics, ..whole }, Err(OpError::Access));
            return Ok(());
        }
        let k = self.sends.insert(whole);
        for i in 0..op.count {
            let element = if several { self.element(&op, k, i) } else { k };
            if let Err(e) = self.ask_for_atomic(now, &op, element, i) {
                return Err(self.unbegin(&op, k, i, e));
            }
        }
        Ok(())
    }

    /// The entry of one element of several.
    fn element(&mut self, op: &AmoOp<M>, parent: SendKey, i: u32) -> SendKey {
        let bytes = op.atomic.of().bytes() as u64;
        let result = Source::User(op.result.part(u64::from(i) * bytes, bytes));
        self.sends.insert(SendState::new(op.peer, result, bytes, Role::Atomic(Some(parent)), OpKind::Atomic))
    }

    fn ask_for_atomic(&mut self, now: Time, op: &AmoOp<M>, element: SendKey, i: u32) -> Result<(), SendError> {
        let bytes = op.atomic.of().bytes();
        let at = u64::from(i) * bytes as u64;
        let kind = op.atomic.op();
        let envelope = Envelope::Atomic {
            atomic: op.atomic,
            key: op.key,
            addr: op.remote_addr.wrapping_add(at),
            op: token(element),
            operand: if kind.has_operand() { number(&op.operand, at, bytes) } else { 0 },
            compare: if kind.has_compare() { number(&op.compare, at, bytes) } else { 0 },
            fetch: !op.result.is_empty(),
        };
        self.sessions.tell(now, op.peer, &envelope)?;
        self.peers[op.peer].atomics += 1;
        if self.trace.on(2) {
            self.trace_control_of(op.peer, element);
        }
        Ok(())
    }

    /// Takes an operation back that the protocol refused. There was room, so the peer is just going
    /// down: what was asked for already is nobody's.
    #[cold]
    fn unbegin(&mut self, op: &AmoOp<M>, k: SendKey, asked: u32, e: SendError) -> MessageError {
        self.peers[op.peer].atomics -= asked;
        for element in self.sends.elements_of(k) {
            self.sends.remove(element);
        }
        if let Some(s) = self.sends.remove(k)
            && self.trace.on(2)
        {
            self.trace_refused(&s, &e.to_string());
        }
        match e {
            SendError::QueueFull => MessageError::Again,
            SendError::Closed | SendError::TooLong => MessageError::Closed,
        }
    }

    /// A peer's operation on one element of memory here.
    pub(crate) fn execute(&mut self, now: Time, peer: u32, op: u64, element: &Element) {
        match self.change(element) {
            Ok(old) => {
                self.counters.atomics_executed += 1;
                if self.trace.on(2) {
                    self.trace_target(peer, element.key, element.atomic.of().bytes(), "changed");
                }
                let value = element.fetch.then_some(old);
                self.answer(now, peer, &Envelope::AtomicDone { op, status: Status::Ok, value });
            }
            Err(status) => {
                self.note_refused(peer, status);
                self.answer(now, peer, &Envelope::AtomicDone { op, status, value: None });
            }
        }
    }

    /// Changes it, and returns what it held.
    fn change(&mut self, e: &Element) -> Result<u64, Status> {
        let bytes = e.atomic.of().bytes();
        let need = Access { remote_read: e.fetch, remote_write: e.atomic.op() != AtomicOp::Read };
        let memory = self.regions.find(e.key, e.addr, bytes as u64, need)?;
        let change = |old| {
            let new = e.atomic.apply(old, e.operand, e.compare);
            (new != old).then_some(new)
        };
        memory.update(0, bytes, change).ok_or(Status::Alignment)
    }

    /// The answer to one element of an operation begun here.
    pub(crate) fn atomic_done(&mut self, peer: u32, op: u64, status: Status, value: Option<u64>) {
        let k = key::<SendKey>(op);
        let ours = self.sends.get(k).is_some_and(|s| s.peer == peer && matches!(s.role, Role::Atomic(_)));
        if !ours {
            return;
        }
        let Some(s) = self.sends.remove(k) else { return };
        let result = match (status, &s.source, value) {
            (Status::Ok, Source::User(result), Some(value)) => {
                put_number(result, s.len as usize, value);
                Ok(())
            }
            // A peer that does not give what was asked for breaks the rules, and harms its own
            // operation only.
            (Status::Ok, Source::User(result), None) if !result.is_empty() => Err(OpError::Access),
            (Status::Ok, ..) => Ok(()),
            (Status::Cancelled, ..) => Err(OpError::Cancelled),
            (Status::Alignment, ..) => Err(OpError::Alignment),
            (Status::BadKey | Status::Access | Status::Range | Status::NoMemory, ..) => Err(OpError::Access),
        };
        self.counters.access_errors += u64::from(matches!(result, Err(OpError::Access | OpError::Alignment)));
        self.finish_send(s, result);
    }
}

/// Refuses an operation whose memory does not fit it.
fn check<M: Memory>(op: &AmoOp<M>) -> Result<(), MessageError> {
    let (kind, len) = (op.atomic.op(), u64::from(op.count) * op.atomic.of().bytes() as u64);
    if op.count > AMO_COUNT_MAX {
        let (given, limit) = (op.count.into(), AMO_COUNT_MAX.into());
        return Err(MessageError::TooBig { what: "number of elements", given, limit });
    }
    let fits = op.count > 0
        && (!kind.has_operand() || op.operand.len() == len)
        && (!kind.has_compare() || op.compare.len() == len)
        && (op.result.len() == len || op.result.is_empty() && kind != AtomicOp::Read);
    if fits { Ok(()) } else { Err(MessageError::Invalid("the memory of an atomic operation has another length")) }
}

/// The number of `bytes` bytes at `at`, in the machine's order.
fn number<M: Memory>(memory: &M, at: u64, bytes: usize) -> u64 {
    let mut word = [0; 8];
    let low = if cfg!(target_endian = "little") { 0..bytes } else { 8 - bytes..8 };
    memory.read(at, &mut word[low]);
    u64::from_ne_bytes(word)
}

/// And back. Where the memory is empty nobody wants it.
fn put_number<M: Memory>(memory: &M, bytes: usize, value: u64) {
    let word = value.to_ne_bytes();
    let low = if cfg!(target_endian = "little") { 0..bytes } else { 8 - bytes..8 };
    memory.write(0, &word[low]);
}

#[cfg(test)]
mod tests;
