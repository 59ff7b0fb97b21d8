//! What methods share: operations, addresses, messages that wait to be handed out, memory
//! (spec/bmi.md 2 to 5).

use crate::addresses::{AddrKey, Addresses};
use crate::codes::Code;
use crate::inbox::{Entry, Inbox};
use crate::memory::Lent;
use crate::ops::{OpKey, Ops};
use std::collections::HashMap;
use weir_engine::Iov;

/// A table whose keys are numbers of ours or of the allocator, looked at for each message: no peer
/// can choose them, so that a quick hash will do.
pub type ByNumber<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// Something to send or receive.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// Its operation.
    pub key: OpKey,
    /// With whom.
    pub addr: AddrKey,
    /// Its tag.
    pub tag: i32,
    /// Its class, if it is an unexpected message.
    pub unexpected: Option<u8>,
    /// Its memory.
    pub pieces: &'a [Iov],
    /// As long as all of it.
    pub size: u64,
}

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is complete, with so many bytes.
    Done(u64),
    /// Its end will be told.
    Begun,
}

/// Counted since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Posted sends, and how many were complete at once.
    pub sends: [u64; 2],
    /// The same of receives.
    pub receives: [u64; 2],
    /// Of the sends, unexpected messages.
    pub unexpected_sent: u64,
    /// Handed out.
    pub unexpected_received: u64,
    /// Connections that were closed for what they sent.
    pub refused: u64,
}

/// What methods share.
#[derive(Default)]
pub struct Tables {
    /// Operations.
    pub ops: Ops,
    /// Addresses.
    pub addrs: Addresses,
    /// Unexpected messages.
    pub inbox: Inbox,
    /// Memory that programs have.
    pub lent: Lent,
    /// Addresses that may be of no use any more.
    pub spent: Vec<AddrKey>,
    /// What was counted.
    pub counters: Counters,
}

impl Tables {
    /// Operations end with an error.
    pub fn fail(&mut self, keys: impl IntoIterator<Item = OpKey>, code: Code) {
        for key in keys {
            self.ops.end(key, Err(code));
        }
    }

    /// A peer is gone: what it sent that nobody looks at is nobody's.
    #[must_use]
    pub fn forget_unlooked(&mut self, key: AddrKey) -> Vec<Entry> {
        let entries = self.inbox.forget_unlooked(key);
        if let Some(address) = self.addrs.get_mut(key) {
            address.waiting = address.waiting.saturating_sub(entries.len() as u32);
        }
        entries
    }

    /// An address cannot be reached again.
    pub fn is_gone(&mut self, key: AddrKey) {
        if let Some(address) = self.addrs.get_mut(key) {
            address.gone = true;
            self.spent.push(key);
        }
    }
}
