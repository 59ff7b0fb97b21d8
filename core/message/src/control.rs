//! Control messages of peers: answers to operations begun here, and what they do to memory here.

use crate::api::{OpError, OpKind};
use crate::atomics::Element;
use crate::keys::token;
use crate::limits::READS_MAX;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::regions::{TO_READ, TO_WRITE};
use crate::rndvs::RndvOwner;
use crate::sends::{Role, SendState};
use crate::source::Source;
use weir_link::Time;
use weir_match::envelope::{Envelope, Status};

impl<M: Memory, S: Sink> Messages<M, S> {
    /// A control message.
    pub(crate) fn control(&mut self, now: Time, peer: u32, envelope: &[u8], bytes: &[u8]) {
        self.peers.ensure(peer);
        match Envelope::decode(envelope) {
            Ok(Envelope::Cts { op, rndv, len, granted }) => self.clear_to_send(now, peer, op, rndv, len, granted),
            Ok(Envelope::SyncAck { op }) => self.matched(peer, op),
            Ok(Envelope::Done { op, read: false, status }) => self.done(now, peer, op, status),
            Ok(Envelope::Done { op, read: true, .. }) => self.read_refused(peer, op),
            Ok(Envelope::Noticed { count }) => {
                self.peers[peer].notices.taken_there(count);
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
                            self.answer(now, peer, &Envelope::Done { op, read: false, status: Status::Ok });
                        }
                    }
                    Err(status) if sync => self.refuse(now, peer, op, false, status),
                    Err(status) => self.refuse_unasked(now, peer, op, status),
                }
            }
            Ok(Envelope::WriteRts { key, addr, len, data, op }) => {
                match self.admit_write(now, peer, key, addr, len, data) {
                    Ok(memory) => {
                        self.ask_for_rndv(now, peer, op, len, memory, RndvOwner::Write { data, region: key, op })
                    }
                    Err(status) => self.refuse(now, peer, op, false, status),
                }
            }
            Ok(Envelope::Read { key, addr, len, rndv, granted }) => match self.regions.find(key, addr, len, TO_READ) {
                // Each is held until its reader lets it through.
                Ok(_) if self.peers[peer].replies >= READS_MAX => {
                    self.refuse(now, peer, rndv, true, Status::NoMemory);
                }
                Ok(memory) => self.answer_read(now, peer, key, memory, rndv, granted),
                Err(status) => self.refuse(now, peer, rndv, true, status),
            },
            Ok(Envelope::Atomic { atomic, key, addr, op, operand, compare, fetch }) => {
                self.execute(now, peer, op, &Element { atomic, key, addr, operand, compare, fetch });
            }
            Ok(Envelope::AtomicDone { op, status, value }) => self.atomic_done(peer, op, status, value),
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
    ) -> Result<M, Status> {
        let memory = self.regions.find(key, addr, len, TO_WRITE);
        if data.is_some() {
            if !self.peers[peer].notices.admit() {
                return Err(Status::NoMemory);
            }
            if memory.is_err() {
                self.notice_done(now, peer);
            }
        }
        memory
    }

    fn answer_read(&mut self, now: Time, peer: u32, region: u64, memory: M, handle: u64, granted: u64) {
        let len = memory.len();
        let k = self.sends.insert(SendState {
            tag: region,
            announced: true,
            rndv: Some(handle),
            ..SendState::new(peer, Source::User(memory), len, Role::ReadReply, OpKind::Read)
        });
        match self.sessions.send_rndv(now, peer, handle, granted, len, token(k)) {
            Ok(()) => {
                self.peers[peer].replies += 1;
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

    /// Fails a read whose target refused it, and closes its rendezvous transfer.
    pub(crate) fn read_refused(&mut self, peer: u32, handle: u64) {
        let Some(b) = self.rndvs.get(peer, handle) else {
            return;
        };
        let RndvOwner::Read(k) = b.owner else { return };
        self.rndvs.remove(peer, handle);
        if self.trace.on(2) {
            self.trace.forget_rndv(peer, handle);
        }
        self.sessions.close_rndv(peer, handle);
        if let Some(s) = self.sends.remove(k) {
            self.counters.access_errors += 1;
            self.finish_send(s, Err(OpError::Access));
        }
    }
}
