//! The table of memory that peers may reach.

use crate::api::{Access, MessageError};
use crate::memory::Memory;
use alloc::collections::BTreeMap;
use weir_match::envelope::Status;

/// Regions one endpoint may hold.
const REGIONS_MAX: usize = 1 << 20;

/// Memory that peers may reach.
#[derive(Debug)]
struct Region<M> {
    memory: M,
    /// Address that peers call its first byte (0, or its virtual address).
    base: u64,
    /// What they may do.
    access: Access,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Regions<M> {
    table: BTreeMap<u64, Region<M>>,
    /// Keys of our choice go up from here, each given but once, so that who still knows the key of
    /// a region withdrawn does not reach the next one.
    next: u64,
}

/// What a peer's read needs.
pub(crate) const TO_READ: Access = Access { remote_read: true, remote_write: false };
/// What its write needs.
pub(crate) const TO_WRITE: Access = Access { remote_read: false, remote_write: true };

impl<M> Default for Regions<M> {
    fn default() -> Self {
        Regions { table: BTreeMap::new(), next: 1 }
    }
}

impl<M: Memory> Regions<M> {
    /// Lets peers reach `memory` under the key `wanted`, or one of our choice, which is returned.
    pub(crate) fn register(
        &mut self,
        memory: M,
        base: u64,
        access: Access,
        wanted: Option<u64>,
    ) -> Result<u64, MessageError> {
        if self.table.len() >= REGIONS_MAX {
            let (given, limit) = (self.table.len() as u64, REGIONS_MAX as u64);
            return Err(MessageError::TooBig { what: "number of memory regions", given, limit });
        }
        let k = match wanted {
            Some(k) if self.table.contains_key(&k) => return Err(MessageError::Invalid("this memory key is in use")),
            Some(k) => k,
            None => self.next_key(),
        };
        self.table.insert(k, Region { memory, base, access });
        Ok(k)
    }

    fn next_key(&mut self) -> u64 {
        while self.table.contains_key(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        self.next - 1
    }

    /// The memory a peer named, if it may use it so.
    pub(crate) fn find(&self, k: u64, addr: u64, len: u64, need: Access) -> Result<M, Status> {
        let r = self.table.get(&k).ok_or(Status::BadKey)?;
        if need.remote_read && !r.access.remote_read || need.remote_write && !r.access.remote_write {
            return Err(Status::Access);
        }
        let offset = addr.checked_sub(r.base).ok_or(Status::Range)?;
        let end = offset.checked_add(len).ok_or(Status::Range)?;
        if end > r.memory.len() { Err(Status::Range) } else { Ok(r.memory.part(offset, len)) }
    }

    /// Withdraws a region; false when there is none of this key.
    pub(crate) fn remove(&mut self, k: u64) -> bool {
        self.table.remove(&k).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}
