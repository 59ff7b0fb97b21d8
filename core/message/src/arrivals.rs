//! The table of messages that have begun to arrive and are not delivered yet.

use crate::keys::{MsgKey, RecvKey};
use alloc::vec::Vec;
use slotmap::SlotMap;

/// Where the bytes of an arriving message go.
#[derive(Debug)]
pub(crate) enum Place<M> {
    /// Nowhere yet: nothing has arrived but the envelope.
    Nowhere,
    /// An engine buffer, waiting to be matched.
    Buffer(Vec<u8>),
    /// A receive's memory.
    Recv {
        /// The receive.
        recv: RecvKey,
        /// The part of its memory this message may use.
        dest: M,
    },
    /// Thrown away (the receive was cancelled or failed meanwhile).
    Discard,
}

/// What the sender did with the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carriage {
    /// The payload comes with the envelope.
    Eager,
    /// The sender waits to be asked for it (its operation's token).
    Rendezvous(u64),
}

/// A message that has begun to arrive and is not yet delivered.
#[derive(Debug)]
pub(crate) struct Arriving<M> {
    /// Sender.
    pub peer: u32,
    /// Tag.
    pub tag: u64,
    /// Immediate data.
    pub data: Option<u64>,
    /// Its stream.
    pub stream: u16,
    /// Length, bytes.
    pub len: u64,
    /// Eager payload is complete.
    pub complete: bool,
    /// All of it is in its multi-receive, and an earlier one of its peer is not.
    pub waits_in_line: bool,
    /// How its payload travels.
    pub carriage: Carriage,
    /// The sender wants to know of the match (its operation's token).
    pub sync: Option<u64>,
    /// Where its bytes go.
    pub place: Place<M>,
    /// It was not asked for when it had come, and takes part of the budget of unexpected messages.
    pub held: bool,
    /// Its number in the trace (0: none).
    pub number: u64,
}

impl<M> Arriving<M> {
    /// Its payload is not here, or not all of it.
    pub(crate) fn lacks_bytes(&self) -> bool {
        !self.complete || self.carriage != Carriage::Eager
    }

    /// Bytes of the peer's credit that come free with it.
    pub(crate) fn credit_bytes(&self) -> u64 {
        if self.carriage == Carriage::Eager { self.len } else { 0 }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Arrivals<M> {
    table: SlotMap<MsgKey, Arriving<M>>,
}

impl<M> Default for Arrivals<M> {
    fn default() -> Self {
        Arrivals { table: SlotMap::with_key() }
    }
}

impl<M> Arrivals<M> {
    pub(crate) fn insert(&mut self, m: Arriving<M>) -> MsgKey {
        self.table.insert(m)
    }

    pub(crate) fn get(&self, k: MsgKey) -> Option<&Arriving<M>> {
        self.table.get(k)
    }

    pub(crate) fn get_mut(&mut self, k: MsgKey) -> Option<&mut Arriving<M>> {
        self.table.get_mut(k)
    }

    pub(crate) fn remove(&mut self, k: MsgKey) -> Option<Arriving<M>> {
        self.table.remove(k)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Those of a peer, or of all, that lack bytes.
    pub(crate) fn unfinished(&self, of: Option<u32>) -> Vec<MsgKey> {
        let wanted = |m: &Arriving<M>| m.lacks_bytes() && of.is_none_or(|peer| m.peer == peer);
        self.table.iter().filter(|(_, m)| wanted(m)).map(|(k, _)| k).collect()
    }

    /// Whose they are, each as often as it has any.
    pub(crate) fn peers(&self) -> impl Iterator<Item = u32> {
        self.table.values().map(|m| m.peer)
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}
