//! The table of posted receives.

use crate::keys::RecvKey;
use alloc::vec::Vec;
use slotmap::SlotMap;
use weir_match::Class;

/// A posted receive.
#[derive(Debug)]
pub(crate) struct RecvState<M> {
    /// Where the message goes.
    pub dest: M,
    /// For the completion.
    pub context: usize,
    /// For the completion.
    pub user: u64,
    /// For the completion.
    pub class: Class,
    /// Whether success is reported.
    pub report: bool,
    /// Set for a multi-receive.
    pub multi: Option<MultiState>,
    /// Its number in the trace (0: none).
    pub number: u64,
}

/// State of a multi-receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MultiState {
    /// Messages bound, not yet complete.
    pending: u32,
    /// The matcher will bind no more.
    closed: bool,
}

impl MultiState {
    /// A message is bound to it, the `last` one perhaps.
    pub(crate) fn bind(&mut self, last: bool) {
        self.pending += 1;
        self.closed |= last;
    }

    /// No more will be bound. True: none is under way either, and the buffer is the caller's.
    pub(crate) fn close(&mut self) -> bool {
        self.closed = true;
        self.pending == 0
    }

    /// A message bound to it is over, if `of_message`. True: it was the last, and the buffer is the
    /// caller's.
    fn over(&mut self, of_message: bool) -> bool {
        self.pending = self.pending.saturating_sub(u32::from(of_message));
        self.closed && self.pending == 0
    }
}

impl<M> RecvState<M> {
    /// A message of it is over, or (not `of_message`) the receive itself. Whether a multi-receive
    /// is done with that.
    pub(crate) fn over(&mut self, of_message: bool) -> bool {
        self.multi.as_mut().is_some_and(|m| m.over(of_message))
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Receives<M> {
    table: SlotMap<RecvKey, RecvState<M>>,
}

impl<M> Default for Receives<M> {
    fn default() -> Self {
        Receives { table: SlotMap::with_key() }
    }
}

impl<M> Receives<M> {
    pub(crate) fn insert(&mut self, r: RecvState<M>) -> RecvKey {
        self.table.insert(r)
    }

    pub(crate) fn get(&self, k: RecvKey) -> Option<&RecvState<M>> {
        self.table.get(k)
    }

    pub(crate) fn get_mut(&mut self, k: RecvKey) -> Option<&mut RecvState<M>> {
        self.table.get_mut(k)
    }

    pub(crate) fn remove(&mut self, k: RecvKey) -> Option<RecvState<M>> {
        self.table.remove(k)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Those with this context. Rare, so a scan: an index would cost every receive.
    pub(crate) fn with_context(&self, context: usize) -> Vec<RecvKey> {
        self.table.iter().filter(|(_, r)| r.context == context).map(|(k, _)| k).collect()
    }

    pub(crate) fn keys(&self) -> Vec<RecvKey> {
        self.table.keys().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}
