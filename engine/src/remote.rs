//! Remote memory: regions, writes, reads, and the control messages of all operations.
//!
//! A write of up to [`PIECES_BYTES`] goes as packet-sized control messages that carry address and data, placed on arrival: one way, no buffer at the target. A larger one, or one of several
//! packets with immediate data, asks for a body like a rendezvous send. A read opens a body here and asks the target to fill it.

use crate::api::{Access, Completion, EngineError, OpError, OpKind, RmaOp, SendMode};
use crate::budget::Refused;
use crate::core::State;
use crate::memory::{Gather, Source};
use crate::sending::iov_len;
use crate::state::{BodyOwner, NO_TOKEN, Region, Role, SendKey, SendState, copy_cost, token};
use weir_match::Class;
use weir_match::envelope::{Envelope, Status};
use weir_proto::{PeerId, SendError, Time};

/// Writes up to this size go in pieces; above, the extra round trip of a body costs less than the control messages.
pub const PIECES_BYTES: usize = 32 << 10;
/// Larger writes towards one peer that may be under way: each holds a body open there.
pub const REQUESTS_MAX: u32 = 1024;
/// Larger writes of one peer that may be under way here: twice what one that behaves begins.
pub const WRITES_OPEN_MAX: u32 = 2 * REQUESTS_MAX;
/// Writes with immediate data towards one peer that its program may not have noticed yet (spec/envelopes.md): each takes a place in its queue.
pub const NOTICES_MAX: u32 = 4096;
/// Reads from one peer, and reads of one peer, that may be under way: each holds a body open here.
pub const READS_MAX: u32 = 2 * REQUESTS_MAX;
/// Pieces of writes towards one peer that may wait for its answer: well below the answers that it has room for.
const ANSWERS_MAX: u32 = 16 << 10;
/// Regions one endpoint may hold.
const REGIONS_MAX: usize = 1 << 20;

impl State {
    /// Lets peers reach `memory` under `key` (or one of our choice), calling its first byte `base`.
    pub fn register(
        &mut self,
        memory: Gather,
        base: u64,
        access: Access,
        wanted: Option<u64>,
    ) -> Result<u64, EngineError> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(EngineError::TooBig {
                what: "number of memory regions",
                given: self.regions.len() as u64,
                limit: REGIONS_MAX as u64,
            });
        }
        let k = match wanted {
            Some(k) if self.regions.contains_key(&k) => {
                return Err(EngineError::Invalid("this memory key is in use"));
            }
            Some(k) => k,
            // Each but once, so that who still knows the key of a region withdrawn does not reach the next one.
            None => {
                while self.regions.contains_key(&self.next_region) {
                    self.next_region += 1;
                }
                self.next_region += 1;
                self.next_region - 1
            }
        };
        self.regions.insert(k, Region { memory, base, access });
        Ok(k)
    }

    /// Withdraws a region: its memory is neither read nor written any more. Peers whose reads and large writes are under way learn that these have failed.
    pub fn unregister(&mut self, now: Time, k: u64) -> bool {
        let mut writes = Vec::new();
        self.bodies.retain(|&(peer, handle), b| match b.owner {
            BodyOwner::Write { region, data, op } if region == k => {
                writes.push((peer, handle, data, op));
                false
            }
            _ => true,
        });
        writes.sort_unstable();
        for (peer, handle, data, op) in writes {
            self.proto.close_body(PeerId(peer), handle);
            if self.trace.on(2) {
                self.trace.forget_body(peer, handle);
            }
            let open = &mut self.peers[peer as usize].writes_open;
            *open = open.saturating_sub(1);
            if data.is_some() {
                // The peer may write with data again, though nobody noticed this one.
                self.notice_done(now, peer);
            }
            self.refuse(now, peer, op, false, Status::BadKey);
        }
        let reads = self.sends.iter().filter(|(_, s)| s.role == Role::ReadReply && s.tag == k).map(|(k, _)| k);
        for reply in reads.collect::<Vec<_>>() {
            if let Some(s) = self.sends.remove(reply) {
                if let Some(handle) = s.body {
                    self.proto.abort_body(now, PeerId(s.peer), handle, 1);
                    self.wants_transmit = true;
                }
                self.finish_send(s, Err(OpError::Cancelled));
            }
        }
        self.regions.remove(&k).is_some()
    }

    /// The memory a peer named, if it may use it so.
    fn region(&self, k: u64, addr: u64, len: u64, write: bool) -> Result<Gather, Status> {
        let r = self.regions.get(&k).ok_or(Status::BadKey)?;
        if !(if write { r.access.remote_write } else { r.access.remote_read }) {
            return Err(Status::Access);
        }
        let offset = addr.checked_sub(r.base).ok_or(Status::Range)?;
        let end = offset.checked_add(len).ok_or(Status::Range)?;
        if end > r.memory.len() { Err(Status::Range) } else { Ok(r.memory.sub(offset, len)) }
    }

    /// Starts a remote write.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::send`].
    pub unsafe fn write(&mut self, now: Time, op: &RmaOp<'_>) -> Result<(), EngineError> {
        let len = iov_len(op.iov);
        self.check_rma(op)?;
        let copy = op.copy || op.mode == SendMode::Inject;
        if copy && len > crate::sending::INJECT_BYTES {
            return Err(EngineError::TooBig {
                what: "injected write",
                given: len as u64,
                limit: crate::sending::INJECT_BYTES as u64,
            });
        }
        let notices = &self.peers[op.peer as usize].notices;
        if op.data.is_some() && notices.begun.saturating_sub(notices.taken) >= u64::from(NOTICES_MAX) {
            return Err(EngineError::Again);
        }
        let charge = if copy { copy_cost(len, false) } else { 0 };
        if copy {
            if !self.take_copy_room(op.peer, charge, true) {
                return Err(self.no_room(now, op.peer, charge.max(1)));
            }
            Refused::accepted(&mut self.peers[op.peer as usize].refused, charge.max(1));
        }
        self.counters.writes += 1;
        // SAFETY: passed on from the caller.
        let source = unsafe { self.source_of(op.iov, len, copy) };
        if self.own_peer == Some(op.peer) {
            self.write_self(op, source, len as u64, charge);
            return Ok(());
        }
        let mut s = Self::rma_state(op, OpKind::Write, Role::Write, source, len as u64);
        s.charge = charge;
        if self.trace.on(2) {
            s.number = self.trace_rma(op, "write", len as u64);
        }
        let k = self.sends.insert(s);
        // The notice of immediate data must not come before the data, and pieces come in any order.
        let pieces_max = if op.data.is_some() { self.piece_room() } else { PIECES_BYTES };
        let sent =
            if len <= pieces_max { self.write_pieces(now, op, k, len) } else { self.write_request(now, op, k, len) };
        if sent.is_ok() && op.data.is_some() {
            self.peers[op.peer as usize].notices.begun += 1;
        }
        self.started(k, sent)
    }

    fn rma_state(op: &RmaOp<'_>, kind: OpKind, role: Role, source: Source, len: u64) -> SendState {
        SendState {
            peer: op.peer,
            source,
            len,
            role,
            kind,
            class: Class::Untagged,
            tag: op.key,
            context: op.context,
            user: op.user,
            report: op.report,
            announced: false,
            awaits: 1,
            answers: 0,
            refused: None,
            dest: Gather::default(),
            body: None,
            charge: 0,
            number: 0,
        }
    }

    fn check_rma(&mut self, op: &RmaOp<'_>) -> Result<(), EngineError> {
        self.check_socket()?;
        let peer = self.peers.get(op.peer as usize).ok_or(EngineError::Invalid("no such peer"))?;
        match peer.down {
            Some(reason) => Err(EngineError::PeerDown(reason)),
            None => Ok(()),
        }
    }

    fn started(&mut self, k: SendKey, result: Result<(), SendError>) -> Result<(), EngineError> {
        match result {
            Ok(()) => Ok(()),
            Err(e) => {
                if let Some(s) = self.sends.remove(k) {
                    if self.trace.on(2) {
                        self.trace_refused(&s, &e.to_string());
                    }
                    self.return_copy_room(&s);
                    s.source.release(&mut self.pool);
                }
                Err(match e {
                    SendError::QueueFull => EngineError::Again,
                    SendError::Closed => EngineError::Closed,
                    SendError::TooLong => EngineError::Invalid("remote operation too long"),
                })
            }
        }
    }

    fn write_pieces(&mut self, now: Time, op: &RmaOp<'_>, k: SendKey, len: usize) -> Result<(), SendError> {
        let room = self.piece_room();
        let count = len.div_ceil(room).max(1);
        // Who asks for delivery has each piece answered, whatever becomes of it.
        let sync = matches!(op.mode, SendMode::Delivery | SendMode::Match);
        let answers = if sync { count as u32 } else { 0 };
        if self.peers.get(op.peer as usize).is_some_and(|p| p.answers + answers > ANSWERS_MAX) {
            return Err(SendError::QueueFull);
        }
        // All or none: pieces of a write that was refused would read memory that is the caller's again.
        if self.proto.control_room(PeerId(op.peer)) < count {
            return Err(SendError::QueueFull);
        }
        if let Some(s) = self.sends.get_mut(k) {
            (s.awaits, s.answers) = (count as u32, answers);
        }
        for i in 0..count {
            let (at, n) = (i * room, room.min(len - i * room));
            let piece = match self.sends.get(k).map(|s| &s.source) {
                Some(Source::User(g)) => Source::User(g.sub(at as u64, n as u64)),
                Some(copied) => {
                    let mut buf = self.pool.take(n);
                    copied.read(at as u64, &mut buf);
                    Source::Owned(buf)
                }
                None => return Err(SendError::Closed),
            };
            let child = self.sends.insert(SendState {
                source: piece,
                report: false,
                ..Self::rma_state(op, OpKind::Write, Role::Piece(k), Source::Owned(Vec::new()), n as u64)
            });
            let addr = op.remote_addr.wrapping_add(at as u64);
            let envelope = Envelope::Write { key: op.key, addr, data: op.data, op: token(k), sync };
            if let Err(e) = self.post(now, op.peer, true, 0, &envelope, n as u32, token(child)) {
                // There was room, so the peer is down (and then the first piece fails) or the piece too long (it is not).
                self.sends.remove(child);
                return Err(e);
            }
            if self.trace.on(2) {
                self.trace_control_of(op.peer, k);
            }
        }
        if let Some(p) = self.peers.get_mut(op.peer as usize) {
            p.answers += answers;
        }
        Ok(())
    }

    /// Longest write that one piece carries.
    fn piece_room(&self) -> usize {
        self.proto.max_control_len().max(64)
    }

    fn write_request(&mut self, now: Time, op: &RmaOp<'_>, k: SendKey, len: usize) -> Result<(), SendError> {
        let under_way = self.peers.get(op.peer as usize).map_or(0, |p| p.requests);
        if under_way >= REQUESTS_MAX || self.proto.control_room(PeerId(op.peer)) == 0 {
            return Err(SendError::QueueFull);
        }
        let envelope =
            Envelope::WriteRts { key: op.key, addr: op.remote_addr, len: len as u64, data: op.data, op: token(k) };
        self.post(now, op.peer, true, 0, &envelope, 0, NO_TOKEN)?;
        if self.trace.on(2) {
            self.trace_control_of(op.peer, k);
        }
        if let Some(p) = self.peers.get_mut(op.peer as usize) {
            p.requests += 1;
        }
        if let Some(s) = self.sends.get_mut(k) {
            s.role = Role::Requested;
            s.answers = 1;
        }
        Ok(())
    }

    fn write_self(&mut self, op: &RmaOp<'_>, source: Source, len: u64, charge: u64) {
        let mut s = Self::rma_state(op, OpKind::Write, Role::Write, Source::Owned(Vec::new()), len);
        s.charge = charge;
        if self.trace.on(2) {
            s.number = self.trace_rma(op, "write", len);
        }
        let result = match self.region(op.key, op.remote_addr, len, true) {
            Ok(memory) => {
                match &source {
                    Source::User(g) => memory.write_from(0, g, len),
                    copied => {
                        let mut buf = vec![0; len as usize];
                        copied.read(0, &mut buf);
                        memory.write(0, &buf);
                    }
                }
                if op.data.is_some() {
                    let notices = &mut self.peers[op.peer as usize].notices;
                    notices.begun += 1;
                    notices.held += 1;
                }
                self.remote_write_done(op.peer, len, op.data);
                Ok(())
            }
            Err(_) => Err(OpError::Access),
        };
        s.source = source;
        self.finish_send(s, result);
    }

    /// Starts a remote read.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::recv`].
    pub unsafe fn read(&mut self, now: Time, op: &RmaOp<'_>) -> Result<(), EngineError> {
        self.check_rma(op)?;
        self.counters.reads += 1;
        // SAFETY: passed on from the caller.
        let dest = unsafe { Gather::new(op.iov) };
        let len = dest.len();
        let mut s = Self::rma_state(op, OpKind::Read, Role::Read, Source::Owned(Vec::new()), len);
        if self.own_peer == Some(op.peer) || len == 0 {
            if self.trace.on(2) {
                s.number = self.trace_rma(op, "read", len);
            }
            let result = self.read_self(op, &dest, len);
            self.finish_send(s, result);
            return Ok(());
        }
        // Each holds a body, and those that the peer's messages need must be left over: else their receives fail.
        let under_way = self.peers.get(op.peer as usize).map_or(0, |p| p.reads);
        if under_way >= READS_MAX || self.proto.control_room(PeerId(op.peer)) == 0 {
            return Err(EngineError::Again);
        }
        if self.trace.on(2) {
            s.number = self.trace_rma(op, "read", len);
        }
        s.dest = dest.clone();
        let k = self.sends.insert(s);
        let peer = PeerId(op.peer);
        let opened = match self.proto.open_body(now, peer, len) {
            Ok(opened) => opened,
            Err(e) => return self.started(k, Err(e)),
        };
        self.bodies.insert((op.peer, opened.handle), crate::state::BodyDest { dest, owner: BodyOwner::Read(k), len });
        let envelope =
            Envelope::Read { key: op.key, addr: op.remote_addr, len, body: opened.handle, granted: opened.granted };
        if let Err(e) = self.post(now, op.peer, true, 0, &envelope, 0, NO_TOKEN) {
            self.proto.close_body(peer, opened.handle);
            self.bodies.remove(&(op.peer, opened.handle));
            return self.started(k, Err(e));
        }
        if self.trace.on(2) {
            self.trace_asked(op.peer, opened, len, BodyOwner::Read(k));
        }
        if let Some(p) = self.peers.get_mut(op.peer as usize) {
            p.reads += 1;
        }
        Ok(())
    }

    fn read_self(&self, op: &RmaOp<'_>, dest: &Gather, len: u64) -> Result<(), OpError> {
        if self.own_peer != Some(op.peer) {
            return Ok(()); // nothing to read
        }
        let memory = self.region(op.key, op.remote_addr, len, false).map_err(|_| OpError::Access)?;
        dest.write_from(0, &memory, len);
        Ok(())
    }

    /// A control message.
    pub fn control(&mut self, now: Time, peer: u32, envelope: &[u8], bytes: &[u8]) {
        self.peer_slot(peer);
        match Envelope::decode(envelope) {
            Ok(Envelope::Cts { op, body, len, granted }) => self.clear_to_send(now, peer, op, body, len, granted),
            Ok(Envelope::SyncAck { op }) => self.matched(peer, op),
            Ok(Envelope::Done { op, read: false, status }) => self.done(now, peer, op, status),
            Ok(Envelope::Done { op, read: true, .. }) => self.read_refused(peer, op),
            Ok(Envelope::Noticed { count }) => {
                let notices = &mut self.peers[peer as usize].notices;
                notices.taken = notices.taken.max(count.min(notices.begun));
            }
            Ok(Envelope::Write { key, addr, data, op, sync }) => {
                match self.admit_write(now, peer, key, addr, bytes.len() as u64, data) {
                    Ok(memory) => {
                        memory.write(0, bytes);
                        if self.trace.on(2) {
                            self.trace_target(peer, key, bytes.len(), "written");
                        }
                        self.remote_write_done(peer, bytes.len() as u64, data);
                        if sync {
                            self.post_control(now, peer, &Envelope::Done { op, read: false, status: Status::Ok });
                        }
                    }
                    Err(status) => self.refuse(now, peer, op, false, status),
                }
            }
            Ok(Envelope::WriteRts { key, addr, len, data, op }) => {
                match self.admit_write(now, peer, key, addr, len, data) {
                    Ok(memory) => {
                        self.ask_for_body(now, peer, op, len, memory, BodyOwner::Write { data, region: key, op })
                    }
                    Err(status) => self.refuse(now, peer, op, false, status),
                }
            }
            Ok(Envelope::Read { key, addr, len, body, granted }) => match self.region(key, addr, len, false) {
                // Each is held until its reader lets it through.
                Ok(_) if self.peers[peer as usize].replies >= READS_MAX => {
                    self.refuse(now, peer, body, true, Status::NoMemory);
                }
                Ok(memory) => self.answer_read(now, peer, key, memory, body, granted),
                Err(status) => self.refuse(now, peer, body, true, status),
            },
            Ok(Envelope::Eager { .. } | Envelope::Rts { .. }) | Err(_) => {
                self.counters.malformed += 1;
            }
        }
    }

    /// The memory a peer may write to, and a place in the completion queue for the notice of it.
    fn admit_write(
        &mut self,
        now: Time,
        peer: u32,
        key: u64,
        addr: u64,
        len: u64,
        data: Option<u64>,
    ) -> Result<Gather, Status> {
        let memory = self.region(key, addr, len, true);
        if data.is_some() {
            let notices = &mut self.peers[peer as usize].notices;
            if notices.held >= NOTICES_MAX {
                return Err(Status::NoMemory);
            }
            notices.held += 1;
            if memory.is_err() {
                self.notice_done(now, peer);
            }
        }
        memory
    }

    /// A notice of this peer's is out of the way: told now and then, so that it may write with data again.
    pub fn notice_done(&mut self, now: Time, peer: u32) {
        let own = self.own_peer == Some(peer);
        let Some(p) = self.peers.get_mut(peer as usize) else { return };
        p.notices.held = p.notices.held.saturating_sub(1);
        p.notices.done += 1;
        if own {
            p.notices.taken = p.notices.done;
        } else if p.notices.done - p.notices.told >= u64::from(NOTICES_MAX / 4) && p.down.is_none() {
            p.notices.told = p.notices.done;
            let count = p.notices.done;
            self.post_control(now, peer, &Envelope::Noticed { count });
        }
    }

    /// The program takes these completions: the notices among them come off their writers' accounts.
    #[cold]
    pub fn notices_taken(&mut self, now: Time, taken: &mut [Completion]) {
        for c in taken.iter_mut().filter(|c| c.kind == OpKind::RemoteWrite) {
            self.notices = self.notices.saturating_sub(1);
            self.notice_done(now, std::mem::take(&mut c.user) as u32);
        }
    }

    /// Tells a peer that its operation is refused.
    pub fn refuse(&mut self, now: Time, peer: u32, op: u64, read: bool, status: Status) {
        self.counters.access_errors += 1;
        if self.trace.on(1) {
            self.trace.line(format_args!("remote operation of peer={peer} refused ({status:?})"));
        }
        self.post_control(now, peer, &Envelope::Done { op, read, status });
    }

    fn answer_read(&mut self, now: Time, peer: u32, region: u64, memory: Gather, handle: u64, granted: u64) {
        let len = memory.len();
        let k = self.sends.insert(SendState {
            peer,
            source: Source::User(memory),
            len,
            role: Role::ReadReply,
            kind: OpKind::Read,
            class: Class::Untagged,
            tag: region,
            context: 0,
            user: 0,
            report: false,
            announced: true,
            awaits: 1,
            answers: 0,
            refused: None,
            dest: Gather::default(),
            body: Some(handle),
            charge: 0,
            number: 0,
        });
        match self.proto.send_body(now, PeerId(peer), handle, granted, len, token(k)) {
            Ok(()) => {
                self.peers[peer as usize].replies += 1;
                if self.trace.on(2) {
                    self.trace_answer(k, handle, granted);
                }
            }
            // Its handle is in use already: no reader that behaves.
            Err(_) => {
                self.sends.remove(k);
            }
        }
    }

    /// A write with immediate data has landed here.
    pub fn remote_write_done(&mut self, peer: u32, len: u64, data: Option<u64>) {
        if data.is_none() {
            return;
        }
        self.notices += 1;
        self.counters.notices_peak = self.counters.notices_peak.max(self.notices as u64);
        self.complete(Completion {
            context: 0,
            // Whose it is, until the program takes it.
            user: u64::from(peer),
            kind: OpKind::RemoteWrite,
            class: Class::Untagged,
            report: true,
            multi_done: false,
            len: len as usize,
            buf: std::ptr::null_mut(),
            tag: 0,
            data,
            source: self.source(peer),
            result: Ok(()),
        });
    }

    /// Fails a read whose target refused it, and closes its body.
    pub fn read_refused(&mut self, peer: u32, handle: u64) {
        let Some(b) = self.bodies.get(&(peer, handle)) else {
            return;
        };
        let BodyOwner::Read(k) = b.owner else { return };
        self.bodies.remove(&(peer, handle));
        if self.trace.on(2) {
            self.trace.forget_body(peer, handle);
        }
        self.proto.close_body(PeerId(peer), handle);
        if let Some(s) = self.sends.remove(k) {
            self.counters.access_errors += 1;
            self.finish_send(s, Err(OpError::Access));
        }
    }
}
