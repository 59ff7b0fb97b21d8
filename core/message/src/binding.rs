//! Messages and the receives that take them: binding, asking for rendezvous data, and what becomes
//! of a message that cannot be completed.

use crate::api::OpError;
use crate::arrivals::{Carriage, Place};
use crate::config::MultiOrder;
use crate::keys::{MsgKey, RecvKey, key, token};
use crate::limits::WRITES_OPEN_MAX;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Sink, Step};
use crate::rndvs::{RndvDest, RndvOwner};
use weir_link::{SendError, Time};
use weir_match::Match;
use weir_match::envelope::{Envelope, Status};

impl<M: Memory, S: Sink> Messages<M, S> {
    /// For the queue statistics of its stream.
    #[inline]
    pub(crate) fn note_met(&mut self, k: MsgKey, expected: bool) {
        if let Some(m) = self.msgs.get(k)
            && let Some(p) = self.peers.get_mut(m.peer)
        {
            p.streams.met(m.stream, m.len, expected);
        }
    }

    /// Connects a message with the receive that takes it.
    pub(crate) fn bind(&mut self, now: Time, m: &Match) {
        let (k, r) = (key::<MsgKey>(m.msg), key::<RecvKey>(m.op));
        let Some(recv) = self.recvs.get_mut(r) else {
            return;
        };
        let dest = match &mut recv.multi {
            Some(multi) => {
                multi.bind(m.multi_done);
                let offset = m.multi_offset.unwrap_or(0);
                let (peer, len) = self.msgs.get(k).map_or((u32::MAX, 0), |msg| (msg.peer, msg.len));
                if self.cfg.multi_order == MultiOrder::AsSent
                    && let Some(peer) = self.peers.get_mut(peer)
                {
                    peer.in_line.push_back(k);
                }
                recv.dest.part(offset, len)
            }
            None => recv.dest.clone(),
        };
        self.bind_to(now, k, r, dest);
    }

    /// Gives a message to a receive that was just made or was waiting for it.
    pub(crate) fn bind_to(&mut self, now: Time, k: MsgKey, r: RecvKey, dest: M) {
        let Some(msg) = self.msgs.get_mut(k) else {
            return;
        };
        let (peer, len) = (msg.peer, msg.len);
        let before = core::mem::replace(&mut msg.place, Place::Recv { recv: r, dest: dest.clone() });
        let (carriage, complete, sync, data) = (msg.carriage, msg.complete, msg.sync.take(), msg.data);
        if let Some(recv) = self.recvs.get(r) {
            let context = recv.context;
            self.step(Step::Taken { peer, data, context });
        }
        if self.trace.on(2) {
            self.trace_matched(k, r);
        }
        if let Some(op) = sync {
            self.answer(now, peer, &Envelope::SyncAck { op });
        }
        match carriage {
            Carriage::Eager => {
                if let Place::Buffer(buf) = before {
                    dest.write(0, &buf);
                    self.free_held(buf);
                }
                if complete {
                    self.deliver(k, r);
                }
            }
            Carriage::Rendezvous(op) => self.ask_for_rndv(now, peer, op, len, dest, RndvOwner::Msg(k)),
        }
    }

    /// Opens a rendezvous transfer and tells the sender to begin.
    pub(crate) fn ask_for_rndv(&mut self, now: Time, peer: u32, op: u64, len: u64, dest: M, owner: RndvOwner) {
        // A receive shorter than the message gets only what fits; the sender is told how much that
        // is.
        let len = len.min(dest.len());
        if len == 0 {
            if let RndvOwner::Msg(_) = owner {
                self.answer(now, peer, &Envelope::Done { op, read: false, status: Status::Ok });
            }
            self.rndv_complete(now, peer, &RndvDest { dest, owner, len });
            return;
        }
        let write = matches!(owner, RndvOwner::Write { .. });
        // A member of the job that begins writes and never ends them holds no more here than that.
        let opened = if write && self.peers[peer].writes_open >= WRITES_OPEN_MAX {
            Err(SendError::QueueFull)
        } else {
            self.sessions.open_rndv(now, peer, len)
        };
        match opened {
            Ok(opened) => {
                self.peers[peer].writes_open += u32::from(write);
                self.rndvs.insert(peer, opened.handle, RndvDest { dest, owner, len });
                if self.trace.on(2) {
                    self.trace_asked(peer, opened, len, owner);
                }
                self.answer(now, peer, &Envelope::Cts { op, rndv: opened.handle, len, granted: opened.granted });
            }
            // More than a peer that behaves asks for at a time; told, lest it wait for ever.
            Err(SendError::QueueFull) => {
                if let RndvOwner::Write { data: Some(_), .. } = owner {
                    self.notice_done(now, peer);
                }
                self.refuse(now, peer, op, false, Status::NoMemory);
                self.rndv_failed(now, owner, OpError::Cancelled);
            }
            Err(_) => self.rndv_failed(now, owner, OpError::PeerDown(self.peers.down_reason(peer))),
        }
    }

    /// Takes a rendezvous transfer out of the table.
    pub(crate) fn take_rndv(&mut self, peer: u32, handle: u64) -> Option<RndvDest<M>> {
        let b = self.rndvs.remove(peer, handle)?;
        if self.trace.on(2) {
            self.trace.forget_rndv(peer, handle);
        }
        if let RndvOwner::Write { .. } = b.owner {
            let open = &mut self.peers[peer].writes_open;
            *open = open.saturating_sub(1);
        }
        Some(b)
    }

    pub(crate) fn rndv_complete(&mut self, now: Time, peer: u32, b: &RndvDest<M>) {
        match b.owner {
            RndvOwner::Msg(k) => {
                if let Some(data) = self.msgs.get(k).map(|m| m.data) {
                    self.step(Step::Whole { peer, data });
                }
                match self.msgs.get(k).map(|m| &m.place) {
                    Some(&Place::Recv { recv, .. }) => self.deliver(k, recv),
                    _ => self.drop_msg(k),
                }
            }
            RndvOwner::Read(k) => self.sent(token(k)),
            RndvOwner::Write { data, op, .. } => {
                self.remote_write_done(peer, b.len, data);
                self.answer(now, peer, &Envelope::Done { op, read: false, status: Status::Ok });
            }
        }
    }

    /// The owner of a rendezvous transfer that will not come learns it.
    pub(crate) fn rndv_failed(&mut self, now: Time, owner: RndvOwner, error: OpError) {
        match owner {
            RndvOwner::Msg(k) => self.break_msg(now, k, error),
            RndvOwner::Read(k) => {
                if let Some(s) = self.sends.remove(k) {
                    self.finish_send(s, Err(error));
                }
            }
            RndvOwner::Write { .. } => {}
        }
    }

    /// The sender gave a rendezvous transfer up.
    pub(crate) fn rndv_aborted(&mut self, now: Time, peer: u32, handle: u64) {
        if let Some(b) = self.take_rndv(peer, handle) {
            if let RndvOwner::Write { data: Some(_), .. } = b.owner {
                self.notice_done(now, peer);
            }
            self.rndv_failed(now, b.owner, OpError::Cancelled);
        }
    }

    /// A message that cannot be completed: its receive, if it has one, fails.
    pub(crate) fn break_msg(&mut self, now: Time, k: MsgKey, error: OpError) {
        let place = match self.msgs.get(k) {
            Some(m) => match &m.place {
                Place::Recv { recv, dest } => Some((*recv, dest.address())),
                _ => None,
            },
            None => return,
        };
        match place {
            Some((recv, buf)) => {
                if let Some(mut m) = self.msgs.remove(k) {
                    // Of a live peer that gave its rendezvous transfer up, the place in the credit
                    // comes free.
                    self.consumed(&m, 0);
                    m.len = 0;
                    self.finish_recv(recv, Some((&m, buf)), Err(error));
                    // Those behind it need not wait any more.
                    self.report_in_line(m.peer);
                }
            }
            None => {
                self.with_matches(
                    |matcher, matches| matcher.forget(token(k), matches),
                    |this, _, matches| {
                        this.drop_msg(k);
                        matches.drain(..).for_each(|m| this.bind(now, &m));
                    },
                );
            }
        }
    }
}
