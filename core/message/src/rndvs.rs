//! The table of rendezvous data that is being received, by peer and handle.

use crate::keys::{MsgKey, SendKey};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Who gets the news when a rendezvous transfer is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RndvOwner {
    /// A rendezvous message.
    Msg(MsgKey),
    /// A remote read of ours.
    Read(SendKey),
    /// A peer's large remote write into our memory.
    Write {
        /// Immediate data for our receive queue.
        data: Option<u64>,
        /// Key of the region, so that it is not closed meanwhile unseen.
        region: u64,
        /// The writer's operation, which waits to hear how it ended.
        op: u64,
    },
}

/// A rendezvous transfer being received.
#[derive(Debug)]
pub(crate) struct RndvDest<M> {
    /// Where its bytes go.
    pub dest: M,
    /// Who is told.
    pub owner: RndvOwner,
    /// Length, bytes.
    pub len: u64,
}

/// A peer's large write that was cut off by the withdrawal of its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CutOff {
    pub peer: u32,
    pub handle: u64,
    pub data: Option<u64>,
    pub op: u64,
}

/// The table. What lists several does so in order of peer and handle, for runs must repeat bit by
/// bit.
#[derive(Debug)]
pub(crate) struct Rndvs<M> {
    table: HashMap<(u32, u64), RndvDest<M>, foldhash::fast::FixedState>,
}

impl<M> Default for Rndvs<M> {
    fn default() -> Self {
        Rndvs { table: HashMap::with_hasher(foldhash::fast::FixedState::default()) }
    }
}

impl<M> Rndvs<M> {
    pub(crate) fn insert(&mut self, peer: u32, handle: u64, b: RndvDest<M>) {
        self.table.insert((peer, handle), b);
    }

    pub(crate) fn get(&self, peer: u32, handle: u64) -> Option<&RndvDest<M>> {
        self.table.get(&(peer, handle))
    }

    pub(crate) fn remove(&mut self, peer: u32, handle: u64) -> Option<RndvDest<M>> {
        self.table.remove(&(peer, handle))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Those of a peer, or of all.
    pub(crate) fn keys(&self, of: Option<u32>) -> Vec<(u32, u64)> {
        let mut keys: Vec<_> = self.table.keys().copied().filter(|k| of.is_none_or(|peer| k.0 == peer)).collect();
        keys.sort_unstable();
        keys
    }

    /// Takes out the large writes of peers into a region.
    pub(crate) fn take_writes_to(&mut self, withdrawn: u64) -> Vec<CutOff> {
        let mut writes = Vec::new();
        self.table.retain(|&(peer, handle), b| match b.owner {
            RndvOwner::Write { region, data, op } if region == withdrawn => {
                writes.push(CutOff { peer, handle, data, op });
                false
            }
            _ => true,
        });
        writes.sort_unstable();
        writes
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}
