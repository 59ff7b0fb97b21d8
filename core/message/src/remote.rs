//! Remote memory, begun here: regions, writes and reads. What peers do to it is in `control`.
//!
//! A write of up to [`PIECES_BYTES`] goes as packet-sized control messages that carry address and
//! data, placed on arrival: one way, no buffer at the target. A larger one, or one of several
//! packets with immediate data, asks for a rendezvous transfer like a rendezvous send. A read opens
//! a rendezvous transfer here and asks the target to fill it.

use crate::api::{Access, MessageError, OpError, OpKind, RmaOp, SendMode};
use crate::budget::Refused;
use crate::keys::{SendKey, token};
use crate::limits::{ANSWERS_MAX, READS_MAX, REQUESTS_MAX};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::rndvs::{CutOff, RndvDest, RndvOwner};
use crate::sending::check_copied;
use crate::sends::{Role, SendState};
use crate::source::{Source, copy_cost};
use alloc::string::ToString;
use weir_link::{SendError, Time};
use weir_match::envelope::{Envelope, Status};

/// Writes up to this size go in pieces; above, the extra round trip of a rendezvous transfer costs
/// less than the control messages.
pub const PIECES_BYTES: usize = 32 << 10;

/// Whether a range lies within the address space. Of one that does not, and that goes as several
/// messages, some would come in at its beginning: it is refused here (spec/envelopes.md 2).
pub(crate) fn is_range(addr: u64, len: u64) -> bool {
    addr.checked_add(len).is_some()
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Lets peers reach `memory` under `key` (or one of our choice), calling its first byte `base`.
    ///
    /// # Errors
    /// [`MessageError::Invalid`] when the key is in use, [`MessageError::TooBig`] when there are
    /// very many.
    pub fn register(&mut self, memory: M, base: u64, access: Access, wanted: Option<u64>) -> Result<u64, MessageError> {
        self.regions.register(memory, base, access, wanted)
    }

    /// Withdraws a region: its memory is neither read nor written any more. Peers whose reads and
    /// large writes are under way learn that these have failed. False when there is none of this
    /// key.
    pub fn unregister(&mut self, now: Time, k: u64) -> bool {
        for CutOff { peer, handle, data, op } in self.rndvs.take_writes_to(k) {
            self.sessions.close_rndv(peer, handle);
            if self.trace.on(2) {
                self.trace.forget_rndv(peer, handle);
            }
            let open = &mut self.peers[peer].writes_open;
            *open = open.saturating_sub(1);
            if data.is_some() {
                // The peer may write with data again, though nobody noticed this one.
                self.notice_done(now, peer);
            }
            self.refuse(now, peer, op, false, Status::BadKey);
        }
        for reply in self.sends.answers_from(k) {
            if let Some(s) = self.sends.remove(reply) {
                if let Some(handle) = s.rndv {
                    self.sessions.abort_rndv(now, s.peer, handle);
                    self.wants_transmit = true;
                }
                self.finish_send(s, Err(OpError::Cancelled));
            }
        }
        self.regions.remove(k)
    }

    /// Starts a remote write. Its memory is used as in [`Messages::send`].
    ///
    /// # Errors
    /// As [`Messages::send`].
    pub fn write(&mut self, now: Time, mut op: RmaOp<M>) -> Result<(), MessageError> {
        let len = op.memory.len() as usize;
        self.check_peer(op.peer)?;
        let copy = op.must_copy();
        check_copied("injected write", len, copy)?;
        if op.data.is_some() && !self.peers[op.peer].notices.may_begin() {
            return Err(MessageError::Again);
        }
        let charge = if copy { copy_cost(len, false) } else { 0 };
        if copy {
            if !self.take_copy_room(op.peer, charge, true) {
                return Err(self.no_room(now, op.peer, charge.max(1)));
            }
            Refused::accepted(&mut self.peers[op.peer].refused, charge.max(1));
        }
        self.counters.writes += 1;
        self.counters.payload_bytes += len as u64;
        let source = self.source_of(&mut op.memory, len, copy);
        let mut s = Self::rma_state(&op, OpKind::Write, Role::Write, source, len as u64);
        s.charge = charge;
        if self.trace.on(2) {
            s.number = self.trace_rma(&op, "write", len as u64);
        }
        if !is_range(op.remote_addr, len as u64) {
            self.counters.access_errors += 1;
            self.finish_send(s, Err(OpError::Access));
            return Ok(());
        }
        let k = self.sends.insert(s);
        // The notice of immediate data must not come before the data, and pieces come in any order.
        // To oneself a request costs no round trip, and what is copied in one piece may overlap.
        let whole = op.data.is_some() || self.is_own(op.peer);
        let pieces_max = if whole { self.piece_room() } else { PIECES_BYTES };
        let sent =
            if len <= pieces_max { self.write_pieces(now, &op, k, len) } else { self.write_request(now, &op, k, len) };
        if sent.is_ok() && op.data.is_some() {
            self.peers[op.peer].notices.begin();
        }
        self.started(k, sent)
    }

    fn rma_state(op: &RmaOp<M>, kind: OpKind, role: Role, source: Source<M>, len: u64) -> SendState<M> {
        let (context, user, report) = (op.context, op.user, op.report);
        SendState { tag: op.key, context, user, report, ..SendState::new(op.peer, source, len, role, kind) }
    }

    /// Nothing new is begun with a peer that is down.
    pub(crate) fn check_peer(&self, peer: u32) -> Result<(), MessageError> {
        self.check_socket()?;
        let peer = self.peers.get(peer).ok_or(MessageError::Invalid("no such peer"))?;
        match peer.down {
            Some(reason) => Err(MessageError::PeerDown(reason)),
            None => Ok(()),
        }
    }

    fn started(&mut self, k: SendKey, result: Result<(), SendError>) -> Result<(), MessageError> {
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
                    SendError::QueueFull => MessageError::Again,
                    SendError::Closed => MessageError::Closed,
                    SendError::TooLong => MessageError::Invalid("remote operation too long"),
                })
            }
        }
    }

    fn write_pieces(&mut self, now: Time, op: &RmaOp<M>, k: SendKey, len: usize) -> Result<(), SendError> {
        let room = self.piece_room();
        let count = len.div_ceil(room).max(1);
        // Who asks for delivery has each piece answered, whatever becomes of it; and so has
        // everybody where the carrier tells only that a piece was read, which is before it is
        // looked at.
        let tells_reading = self.sessions.tells_reading(op.peer);
        let sync = matches!(op.mode, SendMode::Delivery | SendMode::Match) || tells_reading;
        // (The answer in packets acknowledges what is answered. In a row of records it comes behind
        // the word that this was read, if somebody waits for that.)
        let patient = sync && !tells_reading;
        let answers = if sync { count as u32 } else { 0 };
        if self.peers.get(op.peer).is_some_and(|p| p.answers + answers > ANSWERS_MAX) {
            return Err(SendError::QueueFull);
        }
        // All or none: pieces of a write that was refused would read memory that is the caller's
        // again.
        if self.sessions.control_room(op.peer) < count {
            return Err(SendError::QueueFull);
        }
        if let Some(s) = self.sends.get_mut(k) {
            (s.awaits, s.answers) = (count as u32, answers);
        }
        for i in 0..count {
            let (at, n) = (i * room, room.min(len - i * room));
            let piece = match self.sends.get(k).map(|s| &s.source) {
                Some(Source::User(memory)) => Source::User(memory.part(at as u64, n as u64)),
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
                ..Self::rma_state(op, OpKind::Write, Role::Piece(k), Source::empty(), n as u64)
            });
            let addr = op.remote_addr.wrapping_add(at as u64);
            let envelope = Envelope::Write { key: op.key, addr, data: op.data, op: token(k), sync };
            if let Err(e) = self.sessions.send_control(now, op.peer, &envelope, n as u32, token(child), patient) {
                // There was room, so the peer is down (and then the first piece fails) or the piece
                // too long (it is not).
                self.sends.remove(child);
                return Err(e);
            }
            if self.trace.on(2) {
                self.trace_control_of(op.peer, k);
            }
        }
        if let Some(p) = self.peers.get_mut(op.peer) {
            p.answers += answers;
        }
        Ok(())
    }

    /// Longest write that one piece carries.
    fn piece_room(&self) -> usize {
        self.sessions.max_control_len().max(64)
    }

    fn write_request(&mut self, now: Time, op: &RmaOp<M>, k: SendKey, len: usize) -> Result<(), SendError> {
        let under_way = self.peers.get(op.peer).map_or(0, |p| p.requests);
        if under_way >= REQUESTS_MAX || self.sessions.control_room(op.peer) == 0 {
            return Err(SendError::QueueFull);
        }
        let envelope =
            Envelope::WriteRts { key: op.key, addr: op.remote_addr, len: len as u64, data: op.data, op: token(k) };
        self.sessions.tell(now, op.peer, &envelope)?;
        if self.trace.on(2) {
            self.trace_control_of(op.peer, k);
        }
        if let Some(p) = self.peers.get_mut(op.peer) {
            p.requests += 1;
        }
        if let Some(s) = self.sends.get_mut(k) {
            s.role = Role::Requested;
            s.answers = 1;
        }
        Ok(())
    }

    /// Starts a remote read.
    ///
    /// # Errors
    /// As [`Messages::send`].
    pub fn read(&mut self, now: Time, mut op: RmaOp<M>) -> Result<(), MessageError> {
        self.check_peer(op.peer)?;
        self.counters.reads += 1;
        let len = op.memory.len();
        // Each holds a rendezvous transfer, and those that the peer's messages need must be left
        // over: else their receives fail.
        if len > 0 && (self.peers[op.peer].reads >= READS_MAX || self.sessions.control_room(op.peer) == 0) {
            return Err(MessageError::Again);
        }
        let mut s = Self::rma_state(&op, OpKind::Read, Role::Read, Source::empty(), len);
        if self.trace.on(2) {
            s.number = self.trace_rma(&op, "read", len);
        }
        self.counters.payload_bytes += len;
        if len == 0 {
            self.finish_send(s, Ok(()));
            return Ok(());
        }
        let k = self.sends.insert(s);
        let dest = core::mem::take(&mut op.memory);
        let asked = self.read_request(now, &op, k, dest, len);
        self.started(k, asked)
    }

    /// Opens a rendezvous transfer and asks the target to fill it.
    fn read_request(&mut self, now: Time, op: &RmaOp<M>, k: SendKey, dest: M, len: u64) -> Result<(), SendError> {
        let opened = self.sessions.open_rndv(now, op.peer, len)?;
        self.rndvs.insert(op.peer, opened.handle, RndvDest { dest, owner: RndvOwner::Read(k), len });
        let (key, addr, rndv, granted) = (op.key, op.remote_addr, opened.handle, opened.granted);
        if let Err(e) = self.sessions.tell(now, op.peer, &Envelope::Read { key, addr, len, rndv, granted }) {
            self.sessions.close_rndv(op.peer, rndv);
            self.rndvs.remove(op.peer, rndv);
            return Err(e);
        }
        if self.trace.on(2) {
            self.trace_asked(op.peer, opened, len, RndvOwner::Read(k));
        }
        self.peers[op.peer].reads += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::testing::{Bytes, PEER, Pair};
    use alloc::vec::Vec;

    #[test]
    fn no_piece_of_a_write_beyond_the_address_space_comes_in_at_its_beginning() {
        const LEN: usize = 4096;
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        let region = Bytes::new(&[0; LEN]);
        let access = Access { remote_read: true, remote_write: true };
        pair.sides[1].register(region.clone(), 0, access, Some(1)).expect("registered");
        let piece = pair.sides[0].piece_room() as u64;
        for remote_addr in [u64::MAX, 0u64.wrapping_sub(piece), 0u64.wrapping_sub(2 * piece), u64::MAX - LEN as u64 + 1]
        {
            let op = || RmaOp {
                peer: PEER,
                memory: Bytes::new(&[7; LEN]),
                remote_addr,
                key: 1,
                data: None,
                mode: SendMode::Transmit,
                copy: false,
                report: true,
                context: 1,
                user: 0,
            };
            pair.sides[0].write(pair.now, op()).expect("accepted");
            pair.sides[0].read(pair.now, op()).expect("accepted");
            pair.settle();
            let ended: Vec<_> = pair.ended(0).iter().map(|c| c.result).collect();
            assert_eq!(ended, [Err(OpError::Access); 2], "{remote_addr:#x}");
        }
        assert_eq!(region.to_vec(), [0; LEN]);
    }
}
