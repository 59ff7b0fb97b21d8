//! Notices of remote writes with immediate data: each takes a place in this program's queue until
//! it is taken, and its writer is told so.

use crate::api::{Completion, OpKind};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use weir_link::Time;
use weir_match::Class;
use weir_match::envelope::Envelope;

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Takes up to `max` completions of receives, peeks and peers' remote writes, oldest first.
    /// Returns how many.
    #[inline]
    pub fn take_received(&mut self, now: Time, max: usize, each: impl FnMut(&Completion)) -> usize {
        if self.done.has_notices() {
            return self.take_with_notices(now, false, max, each);
        }
        let n = self.done.take_received(max, each);
        self.have_taken(now, n)
    }

    /// Takes up to `max` completions of either kind, oldest first: whoever asks and is answered
    /// hears that the question is done before the answer, if it was. Returns how many.
    #[inline]
    pub fn take_both(&mut self, now: Time, max: usize, each: impl FnMut(&Completion)) -> usize {
        if self.done.has_notices() {
            return self.take_with_notices(now, true, max, each);
        }
        let n = self.done.take_both(max, each);
        self.have_taken(now, n)
    }

    #[cold]
    fn take_with_notices(&mut self, now: Time, both: bool, max: usize, mut each: impl FnMut(&Completion)) -> usize {
        let mut n = 0;
        while n < max
            && let Some(mut c) = if both { self.done.pop() } else { self.done.pop_received() }
        {
            self.taken(now, &mut c);
            each(&c);
            n += 1;
        }
        self.have_taken(now, n)
    }

    /// Takes one completion, the oldest.
    pub fn poll(&mut self, now: Time) -> Option<Completion> {
        let mut c = self.done.pop()?;
        self.taken(now, &mut c);
        self.have_taken(now, 1);
        Some(c)
    }

    /// The program takes this completion: a notice comes off its writer's account.
    fn taken(&mut self, now: Time, c: &mut Completion) {
        if c.kind == OpKind::RemoteWrite {
            self.done.notice_taken();
            self.notice_done(now, core::mem::take(&mut c.user) as u32);
        }
    }

    /// A notice of this peer's is out of the way: told now and then, so that it may write with data
    /// again.
    pub(crate) fn notice_done(&mut self, now: Time, peer: u32) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        p.notices.done();
        if p.down.is_none()
            && let Some(count) = p.notices.tell()
        {
            self.answer(now, peer, &Envelope::Noticed { count });
        }
    }

    /// A write with immediate data has landed here.
    pub(crate) fn remote_write_done(&mut self, peer: u32, len: u64, data: Option<u64>) {
        if data.is_none() {
            return;
        }
        self.complete(Completion {
            context: 0,
            // Whose it is, until the program takes it.
            user: u64::from(peer),
            kind: OpKind::RemoteWrite,
            class: Class::Untagged,
            report: true,
            multi_done: false,
            len: len as usize,
            address: 0,
            tag: 0,
            data,
            source: self.peers.source(peer),
            result: Ok(()),
        });
        self.counters.notices_peak = self.counters.notices_peak.max(self.done.notices() as u64);
    }
}
