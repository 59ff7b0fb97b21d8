//! The end of an operation begun here: its completion, and the room that its copy took.

use crate::api::{Completion, MessageError, OpError, OpKind};
use crate::budget::{MORE_MAX, Refusal, Refused, has_stalled};
use crate::keys::{NO_TOKEN, SendKey, key};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Notice, Sink};
use crate::sends::{Role, SendState};
use weir_link::Time;

impl<M: Memory, S: Sink> Messages<M, S> {
    /// All bytes of a message or rendezvous data are acknowledged.
    pub(crate) fn sent(&mut self, t: u64) {
        if t == NO_TOKEN {
            return;
        }
        let k = key::<SendKey>(t);
        if let Some(s) = self.sends.get_mut(k) {
            s.awaits = s.awaits.saturating_sub(1);
            self.end_if_over(k);
        }
    }

    /// Ends an operation for which nothing is awaited any more.
    pub(crate) fn end_if_over(&mut self, k: SendKey) {
        if self.sends.get(k).is_some_and(SendState::is_over)
            && let Some(s) = self.sends.remove(k)
        {
            let result = s.refused.map_or(Ok(()), Err);
            self.finish_send(s, result);
        }
    }

    /// Queues the completion of `s` and frees what it holds.
    pub(crate) fn finish_send(&mut self, mut s: SendState<M>, result: Result<(), OpError>) {
        if matches!(s.role, Role::Atomic(_))
            && let Some(p) = self.peers.get_mut(s.peer)
        {
            p.atomics = p.atomics.saturating_sub(1);
        }
        if let Role::Piece(parent) | Role::Atomic(Some(parent)) = s.role {
            s.source.release(&mut self.pool);
            if let Some(p) = self.sends.get_mut(parent) {
                p.awaits = p.awaits.saturating_sub(1);
                p.refused = p.refused.or(result.err());
                self.end_if_over(parent);
            }
            return;
        }
        if let Some(p) = self.peers.get_mut(s.peer) {
            match s.role {
                Role::Requested | Role::Rndv if s.kind == OpKind::Write => p.requests = p.requests.saturating_sub(1),
                Role::ReadReply => p.replies = p.replies.saturating_sub(1),
                Role::Write => p.answers = p.answers.saturating_sub(s.answers),
                _ => {}
            }
        }
        // Empty ones end as they begin and hold no rendezvous transfer.
        if s.role == Role::Read
            && s.len > 0
            && let Some(p) = self.peers.get_mut(s.peer)
        {
            p.reads = p.reads.saturating_sub(1);
        }
        let told = s.announced;
        self.announce(&mut s, result);
        if self.trace.on(1) {
            self.trace_send_over(&s, told, result);
        }
        self.return_copy_room(&s);
        s.source.release(&mut self.pool);
    }

    /// Takes room for a copy for a peer from the budget, a copy that `must` be made or one that
    /// could be done without; false when there is none.
    pub(crate) fn take_copy_room(&mut self, peer: u32, bytes: u64, must: bool) -> bool {
        let taken = self.copies.take(&mut self.peers[peer].copied_bytes, bytes, must);
        if taken {
            self.counters.copied_bytes = self.copies.bytes();
            self.counters.copied_bytes_peak = self.counters.copied_bytes_peak.max(self.copies.bytes());
        }
        taken
    }

    /// As many messages as are usual wait for this peer: the caller tries again, unless that has
    /// not helped for long.
    #[cold]
    pub(crate) fn queue_full(&mut self, now: Time, peer: u32) -> MessageError {
        self.counters.refused_sends += 1;
        let refused = &mut self.peers[peer].refused;
        if has_stalled(Refused::again(refused, now, 0)) {
            *refused = None;
            self.queues_on = true;
        }
        MessageError::Again
    }

    /// There is no room for so many bytes of a send: its caller tries again. That there is more
    /// room after a while, or will be none, is said once: to wait inside a send looks like a hang.
    #[cold]
    pub(crate) fn no_room(&mut self, now: Time, peer: u32, bytes: u64) -> MessageError {
        self.counters.refused_sends += 1;
        let unexpected = self.matcher.unexpected_count();
        let refused = &mut self.peers[peer].refused;
        let waited_ns = Refused::again(refused, now, bytes);
        let budget = self.cfg.copied_bytes;
        let most = budget.saturating_mul(MORE_MAX);
        match self.copies.refused(waited_ns, unexpected > 0) {
            Refusal::Wait => {}
            Refusal::More => {
                *refused = None;
                self.counters.copied_bytes_raised += 1;
                if !core::mem::replace(&mut self.told.no_room, true) {
                    self.trace.sink_mut().notice(&Notice::MoreRoom { budget, most });
                }
            }
            Refusal::Never => {
                if !core::mem::replace(&mut self.told.no_end, true) {
                    self.trace.sink_mut().notice(&Notice::NoRoom { most, waited_ns, unexpected });
                }
                return MessageError::NoMemory { limit: most };
            }
        }
        MessageError::Again
    }

    /// And gives it back, when the operation is over.
    pub(crate) fn return_copy_room(&mut self, s: &SendState<M>) {
        if s.charge > 0 {
            self.copies.give_back(&mut self.peers[s.peer].copied_bytes, s.charge);
            self.counters.copied_bytes = self.copies.bytes();
        }
    }

    pub(crate) fn announce(&mut self, s: &mut SendState<M>, result: Result<(), OpError>) {
        if core::mem::replace(&mut s.announced, true) {
            return;
        }
        self.complete(Completion {
            context: s.context,
            user: s.user,
            kind: s.kind,
            class: s.class,
            report: s.report,
            multi_done: false,
            len: s.len as usize,
            address: 0,
            tag: s.tag,
            data: None,
            source: None,
            result,
        });
    }
}
