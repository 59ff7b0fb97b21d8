//! The operations that have ended and whose completions wait to be taken.

use crate::api::{Completion, OpKind};
use crate::counters::Totals;
use alloc::collections::VecDeque;

/// Both queues, oldest first, and what was counted of them.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    /// Sends, and remote writes and reads begun here.
    sent: VecDeque<Completion>,
    /// Receives, and notices of remote writes.
    received: VecDeque<Completion>,
    /// Notices of remote writes among these.
    notices: usize,
    totals: Totals,
}

impl Completions {
    /// Counts the end of an operation and queues its completion if somebody wants it.
    #[inline]
    pub(crate) fn push(&mut self, c: Completion) {
        self.totals.count(c.kind, c.result.is_ok());
        if !c.report && c.result.is_ok() && !c.multi_done {
            return;
        }
        match c.kind {
            OpKind::Send | OpKind::Write | OpKind::Read | OpKind::Atomic | OpKind::FetchAtomic => {
                self.sent.push_back(c)
            }
            OpKind::Recv | OpKind::MultiRecvReleased | OpKind::Peek => self.received.push_back(c),
            OpKind::RemoteWrite => {
                self.notices += 1;
                self.received.push_back(c);
            }
        }
    }

    /// The send whose success was the last that was pushed is refused after all: nobody may see its completion.
    pub(crate) fn take_back_send(&mut self, reported: bool) {
        self.totals.sends -= 1;
        if reported {
            self.sent.pop_back();
        }
    }

    /// The oldest of the first kind, at most `max`. Returns how many.
    #[inline]
    pub(crate) fn take_sent(&mut self, max: usize, each: impl FnMut(&Completion)) -> usize {
        take(&mut self.sent, max, each)
    }

    /// The same of the second. Who writes with immediate data waits for the notices among them to be taken: see [`Completions::has_notices`].
    #[inline]
    pub(crate) fn take_received(&mut self, max: usize, each: impl FnMut(&Completion)) -> usize {
        take(&mut self.received, max, each)
    }

    /// The oldest of the second.
    pub(crate) fn pop_received(&mut self) -> Option<Completion> {
        self.received.pop_front()
    }

    /// The oldest, of receives first.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.received.pop_front().or_else(|| self.sent.pop_front())
    }

    /// There are notices of remote writes that nobody has taken off the account.
    pub(crate) fn has_notices(&self) -> bool {
        self.notices > 0
    }

    /// How many.
    pub(crate) fn notices(&self) -> usize {
        self.notices
    }

    /// One was taken.
    pub(crate) fn notice_taken(&mut self) {
        self.notices = self.notices.saturating_sub(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.received.is_empty()
    }

    /// How many wait, of each kind.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.sent.len(), self.received.len())
    }

    /// The peers that those waiting to be taken name.
    pub(crate) fn sources(&self) -> impl Iterator<Item = u32> {
        self.received.iter().filter_map(|c| c.source)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }
}

/// Shows the oldest, at most `max`, where they lie, and drops them. Mostly there is one or none, for which a range of the queue costs too much.
#[inline]
fn take(from: &mut VecDeque<Completion>, max: usize, mut each: impl FnMut(&Completion)) -> usize {
    let mut n = 0;
    while n < max
        && let Some(c) = from.front()
    {
        each(c);
        from.pop_front();
        n += 1;
    }
    n
}
