//! Looking before receiving: peeks, claims, and what becomes of a message that was claimed.

use crate::api::{Completion, MessageError, OpError, OpKind, PeekOp, RecvOp};
use crate::arrivals::{Carriage, Place};
use crate::keys::{MsgKey, key};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::receives::RecvState;
use crate::rndvs::RndvOwner;
use weir_link::Time;
use weir_match::Source;
use weir_match::envelope::Envelope;

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Looks for a message that has arrived and that no receive has taken.
    ///
    /// # Errors
    /// [`MessageError::Invalid`] when the context already holds a claim.
    pub fn peek(&mut self, now: Time, op: &PeekOp) -> Result<Option<Completion>, MessageError> {
        if op.claim && self.claims.contains_key(&op.context) {
            return Err(MessageError::Invalid("this context already holds a claimed message"));
        }
        self.unasked = false;
        // (Asked again and again, mostly.)
        if self.matcher.unexpected_count() == 0 {
            return Ok(None);
        }
        let source = op.source.map_or(Source::Any, Source::Peer);
        let found = if op.claim || op.discard {
            self.matcher.claim(op.class, source, op.tag, op.ignore)
        } else {
            self.matcher.peek(op.class, source, op.tag, op.ignore)
        };
        let Some(k) = found.map(key::<MsgKey>) else {
            return Ok(None);
        };
        let Some(m) = self.msgs.get(k) else {
            return Ok(None);
        };
        let completion = Completion {
            len: m.len as usize,
            tag: m.tag,
            data: m.data,
            source: self.peers.source(m.peer),
            result: Ok(()),
            ..Completion::nothing_found(op)
        };
        if op.claim || op.discard {
            self.note_met(k, false);
        }
        if op.discard {
            self.discard(now, k);
        } else if op.claim {
            self.claims.insert(op.context, k);
            if self.trace.on(2) {
                self.trace_message(k, "claimed");
            }
        }
        Ok(Some(completion))
    }

    /// Throws away a claimed or peeked message.
    fn discard(&mut self, now: Time, k: MsgKey) {
        let Some(m) = self.msgs.get_mut(k) else {
            return;
        };
        let peer = m.peer;
        if let Some(op) = m.sync.take() {
            self.answer(now, peer, &Envelope::SyncAck { op });
        }
        let Some(m) = self.msgs.get_mut(k) else {
            return;
        };
        match m.carriage {
            Carriage::Eager if !m.complete => {
                if let Place::Buffer(buf) = core::mem::replace(&mut m.place, Place::Discard) {
                    self.free_held(buf);
                }
            }
            Carriage::Eager => self.drop_msg(k),
            Carriage::Rendezvous(op) => {
                // The sender is let through into nothing, so that its send completes.
                m.place = Place::Discard;
                let len = m.len;
                self.ask_for_rndv(now, peer, op, len, M::default(), RndvOwner::Msg(k));
            }
        }
    }

    /// Receives (or, with `discard`, throws away) the message claimed with the same context before.
    ///
    /// # Errors
    /// [`MessageError::Invalid`] when there is no such claim, or the message was lost with its
    /// peer.
    pub fn recv_claimed(&mut self, now: Time, mut op: RecvOp<M>, discard: bool) -> Result<(), MessageError> {
        let k =
            self.claims.remove(&op.context).ok_or(MessageError::Invalid("no message was claimed with this context"))?;
        let Some(m) = self.msgs.get(k) else {
            return Err(MessageError::Invalid("the claimed message was lost with its peer"));
        };
        let lost =
            self.broken.map(OpError::Socket).or(self.peers.get(m.peer).and_then(|p| p.down).map(OpError::PeerDown));
        let lost = lost.filter(|_| m.lacks_bytes() && !self.is_own(m.peer));
        if discard {
            let (tag, data, source) = (m.tag, m.data, self.peers.source(m.peer));
            match lost {
                // What it lacks never comes.
                Some(_) => self.drop_msg(k),
                None => self.discard(now, k),
            }
            self.complete(Completion {
                context: op.context,
                user: op.user,
                kind: OpKind::Recv,
                class: op.class,
                report: op.report,
                multi_done: false,
                len: 0,
                address: 0,
                tag,
                data,
                source,
                result: Ok(()),
            });
            return Ok(());
        }
        let dest = core::mem::take(&mut op.memory);
        let r = self.recvs.insert(RecvState {
            dest: dest.clone(),
            context: op.context,
            user: op.user,
            class: op.class,
            report: op.report,
            multi: None,
            number: 0,
        });
        if self.trace.on(2) {
            self.trace_posted(r, &op, Some(k));
        }
        match lost {
            // Its sender is gone, and the rest of it with him.
            Some(error) => {
                self.drop_msg(k);
                self.fail_recv(r, error);
            }
            None => self.bind_to(now, k, r, dest),
        }
        Ok(())
    }
}
