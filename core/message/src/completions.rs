//! The operations that have ended and whose completions wait to be taken.

use crate::api::{Completion, OpKind};
use crate::counters::Totals;
use alloc::collections::VecDeque;

/// Both queues, oldest first, and what was counted of them.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    /// Sends, and remote writes and reads begun here; with each how many of the second kind had
    /// been queued before it.
    sent: VecDeque<(u64, Completion)>,
    /// Receives, and notices of remote writes.
    received: VecDeque<Completion>,
    /// Of the second kind: those taken so far.
    taken: u64,
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
                self.sent.push_back((self.taken + self.received.len() as u64, c));
            }
            OpKind::Recv | OpKind::MultiRecvReleased | OpKind::Peek => self.received.push_back(c),
            OpKind::RemoteWrite => {
                self.notices += 1;
                self.received.push_back(c);
            }
        }
    }

    /// The send whose success was the last that was pushed is refused after all: nobody may see its
    /// completion.
    pub(crate) fn take_back_send(&mut self, reported: bool) {
        self.totals.sends -= 1;
        if reported {
            self.sent.pop_back();
        }
    }

    /// The oldest of the first kind, at most `max`. Returns how many.
    #[inline]
    pub(crate) fn take_sent(&mut self, max: usize, each: impl FnMut(&Completion)) -> usize {
        self.take(|_| true, max, each)
    }

    /// The same of the second. Who writes with immediate data waits for the notices among them to
    /// be taken: see [`Completions::has_notices`].
    #[inline]
    pub(crate) fn take_received(&mut self, max: usize, each: impl FnMut(&Completion)) -> usize {
        self.take(|_| false, max, each)
    }

    /// The same of both, in the order in which they were queued.
    #[inline]
    pub(crate) fn take_both(&mut self, max: usize, each: impl FnMut(&Completion)) -> usize {
        self.take(Self::is_sents_turn, max, each)
    }

    /// Shows the oldest, at most `max`, where they lie, and drops them; `is_sents_turn`: the next
    /// is one of the first kind. Mostly there is one or none, for which a range of a queue costs
    /// too much.
    #[inline]
    fn take(&mut self, is_sents_turn: impl Fn(&Self) -> bool, max: usize, mut each: impl FnMut(&Completion)) -> usize {
        let mut n = 0;
        while n < max {
            if is_sents_turn(self) {
                let Some((_, c)) = self.sent.front() else { break };
                each(c);
                self.sent.pop_front();
            } else {
                let Some(c) = self.received.front() else { break };
                each(c);
                self.received.pop_front();
                self.taken += 1;
            }
            n += 1;
        }
        n
    }

    /// The oldest of all is of the first kind.
    #[inline]
    fn is_sents_turn(&self) -> bool {
        self.sent.front().is_some_and(|(before, _)| *before <= self.taken)
    }

    /// The oldest of the second.
    pub(crate) fn pop_received(&mut self) -> Option<Completion> {
        let c = self.received.pop_front()?;
        self.taken += 1;
        Some(c)
    }

    /// The oldest of all.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        if self.is_sents_turn() { self.sent.pop_front().map(|(_, c)| c) } else { self.pop_received() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PeekOp;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use weir_match::Class;

    fn completion(kind: OpKind, context: usize) -> Completion {
        let op =
            PeekOp { source: None, class: Class::Tagged, tag: 0, ignore: 0, claim: false, discard: false, context };
        Completion { kind, ..Completion::nothing_found(&op) }
    }

    proptest! {
        /// Whatever is taken of one kind alone meanwhile, of both the oldest comes first.
        #[test]
        fn both_come_in_the_order_in_which_they_ended(steps in prop::collection::vec((0u8..7, 0usize..4), 1..200)) {
            let mut all = Completions::default();
            let mut waiting: Vec<(bool, usize)> = Vec::new();
            for (at, (step, max)) in steps.into_iter().enumerate() {
                let mut got = Vec::new();
                let mut keep = |c: &Completion| got.push(c.context);
                let is_wanted: fn(bool) -> bool = match step {
                    0 | 1 => {
                        all.push(completion(OpKind::Send, at));
                        waiting.push((true, at));
                        continue;
                    }
                    2 | 3 => {
                        all.push(completion(OpKind::Recv, at));
                        waiting.push((false, at));
                        continue;
                    }
                    4 => {
                        all.take_sent(max, &mut keep);
                        |is_send| is_send
                    }
                    5 => {
                        all.take_received(max, &mut keep);
                        |is_send| !is_send
                    }
                    _ => {
                        if max == 1 {
                            got.extend(all.pop().map(|c| c.context));
                        } else {
                            all.take_both(max, &mut keep);
                        }
                        |_| true
                    }
                };
                let mut want = Vec::new();
                waiting.retain(|(is_send, context)| {
                    let take = want.len() < max && is_wanted(*is_send);
                    if take {
                        want.push(*context);
                    }
                    !take
                });
                prop_assert_eq!(got, want);
            }
        }
    }
}
