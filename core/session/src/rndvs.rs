//! Rendezvous transfers of one session: handles the receiver opened and what was sent to them (spec
//! 1, 5).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::Time;
use crate::ranges::RangeSet;

/// Grants that came before their rendezvous transfer: a control message can be overtaken. More than
/// this are forgotten (and repeated by the receiver).
const EARLY_GRANTS_MAX: usize = 64;
/// Ranges kept of all rendezvous transfers of an association in one direction. Each gap between two
/// is a packet that is lost or late, and sent again before anything new: an honest sender makes no
/// more than its window holds packets, 64 MiB / 1156.
pub(crate) const RANGES_MAX: usize = 1 << 16;

/// A rendezvous transfer being sent.
#[derive(Debug)]
pub struct OutRndv {
    /// The receiver's name of it.
    pub handle: u64,
    /// The operation.
    pub token: u64,
    /// Length, bytes.
    pub len: u64,
    pub(crate) granted: u64,
    /// Bytes handed to a carrier for the first time.
    pub(crate) sent: u64,
    acked: RangeSet,
    pub(crate) generation: u32,
    pub(crate) live: bool,
    /// It stands in the queue of flows.
    pub(crate) queued: bool,
}

/// Rendezvous transfers on their way out.
#[derive(Debug, Default)]
pub(crate) struct RndvsOut {
    /// Ranges acknowledged, of all rendezvous transfers.
    ranges: usize,
    slab: Vec<OutRndv>,
    free: Vec<u32>,
    by_handle: BTreeMap<u64, u32>,
    early: VecDeque<(u64, u64)>,
    generation: u32,
}

impl RndvsOut {
    pub(crate) fn open(&self) -> usize {
        self.by_handle.len()
    }

    /// A new rendezvous transfer; `None` if the handle is in use.
    pub(crate) fn add(&mut self, handle: u64, granted: u64, len: u64, token: u64) -> Option<u32> {
        if self.by_handle.contains_key(&handle) {
            return None;
        }
        let early = self.early.iter().position(|e| e.0 == handle).and_then(|i| self.early.remove(i)).map_or(0, |e| e.1);
        self.generation = self.generation.wrapping_add(1);
        let b = OutRndv {
            handle,
            token,
            len,
            granted: granted.max(early).min(len),
            sent: 0,
            acked: RangeSet::new(),
            generation: self.generation,
            live: true,
            queued: false,
        };
        let slot = if let Some(i) = self.free.pop() {
            self.slab[i as usize] = b;
            i
        } else {
            self.slab.push(b);
            self.slab.len() as u32 - 1
        };
        self.by_handle.insert(handle, slot);
        Some(slot)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&OutRndv> {
        self.slab.get(slot as usize).filter(|b| b.live)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut OutRndv> {
        self.slab.get_mut(slot as usize).filter(|b| b.live)
    }

    /// The rendezvous transfer in `slot` if it is still the one of that generation.
    pub(crate) fn current(&self, slot: u32, generation: u32) -> Option<&OutRndv> {
        self.get(slot).filter(|b| b.generation == generation)
    }

    pub(crate) fn slot_of(&self, handle: u64) -> Option<u32> {
        self.by_handle.get(&handle).copied()
    }

    /// A grant; returns the slot if the rendezvous transfer can send more now.
    pub(crate) fn on_grant(&mut self, handle: u64, limit: u64) -> Option<u32> {
        if let Some(slot) = self.slot_of(handle) {
            let b = &mut self.slab[slot as usize];
            b.granted = b.granted.max(limit.min(b.len));
            return (b.granted > b.sent).then_some(slot);
        }
        match self.early.iter_mut().find(|e| e.0 == handle) {
            Some(e) => e.1 = e.1.max(limit),
            None => {
                if self.early.len() >= EARLY_GRANTS_MAX {
                    self.early.pop_front();
                }
                self.early.push_back((handle, limit));
            }
        }
        None
    }

    /// Bytes were acknowledged; returns the token once all are.
    pub(crate) fn acked(&mut self, slot: u32, generation: u32, offset: u64, len: u64) -> Option<u64> {
        let b = self.slab.get_mut(slot as usize).filter(|b| b.live && b.generation == generation)?;
        let before = b.acked.len();
        b.acked.insert(offset, offset + len, |_, _| {});
        self.ranges = self.ranges + b.acked.len() - before;
        if b.acked.prefix() < b.len {
            return None;
        }
        Some(self.remove(slot))
    }

    /// The peer acknowledged in more pieces than an honest one would.
    pub(crate) fn is_shredded(&self) -> bool {
        self.ranges > RANGES_MAX
    }

    /// First part of `[offset, offset+len)` not yet acknowledged.
    pub(crate) fn missing(&self, slot: u32, generation: u32, offset: u64, len: u32) -> Option<(u64, u64)> {
        self.current(slot, generation)?.acked.first_gap(offset, offset + u64::from(len))
    }

    /// Forgets the rendezvous transfer; returns its token.
    pub(crate) fn remove(&mut self, slot: u32) -> u64 {
        let b = &mut self.slab[slot as usize];
        b.live = false;
        self.ranges -= b.acked.len();
        b.acked = RangeSet::new();
        let (handle, token) = (b.handle, b.token);
        self.by_handle.remove(&handle);
        self.free.push(slot);
        if self.by_handle.is_empty() && self.slab.capacity() > 16 {
            self.slab = Vec::new();
            self.free = Vec::new();
        }
        token
    }

    /// Takes every open token out.
    pub(crate) fn drain_tokens(&mut self, mut f: impl FnMut(u64)) {
        for b in self.slab.drain(..).filter(|b| b.live) {
            f(b.token);
        }
        *self = RndvsOut { generation: self.generation, ..RndvsOut::default() };
    }
}

/// A rendezvous transfer being received.
#[derive(Debug)]
pub(crate) struct InRndv {
    pub(crate) len: u64,
    pub(crate) granted: u64,
    pub(crate) received: u64,
    got: RangeSet,
    generation: u32,
    live: bool,
    /// A GRANT is to be sent.
    pub(crate) grant_dirty: bool,
    /// When bytes or a grant last came or went.
    pub(crate) touched: Time,
    /// Repetitions of the grant since then.
    pub(crate) repeats: u8,
}

/// Rendezvous transfers on their way in.
#[derive(Debug, Default)]
pub(crate) struct RndvsIn {
    /// Ranges received, of all rendezvous transfers.
    ranges: usize,
    slab: Vec<InRndv>,
    free: Vec<u32>,
    open: usize,
    /// Handles are `generation << 32 | slot`; the generation is never used twice in an association.
    generation: u32,
}

/// What a rendezvous transfer fragment brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RndvArrived {
    /// The handle is open (else: late, dropped silently).
    pub(crate) known: bool,
    pub(crate) complete: bool,
    pub(crate) fresh: u64,
}

impl RndvsIn {
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn add(&mut self, now: Time, len: u64, granted: u64) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let b = InRndv {
            len,
            granted,
            received: 0,
            got: RangeSet::new(),
            generation: self.generation,
            live: true,
            grant_dirty: false,
            touched: now,
            repeats: 0,
        };
        let slot = if let Some(i) = self.free.pop() {
            self.slab[i as usize] = b;
            i
        } else {
            self.slab.push(b);
            self.slab.len() as u32 - 1
        };
        self.open += 1;
        u64::from(self.generation) << 32 | u64::from(slot)
    }

    pub(crate) fn get(&self, handle: u64) -> Option<&InRndv> {
        self.slab.get(handle as u32 as usize).filter(|b| b.live && b.generation == (handle >> 32) as u32)
    }

    pub(crate) fn get_mut(&mut self, handle: u64) -> Option<&mut InRndv> {
        self.slab.get_mut(handle as u32 as usize).filter(|b| b.live && b.generation == (handle >> 32) as u32)
    }

    /// A fragment; `f(offset, len, complete)` for each new part. `Err`: a violation.
    pub(crate) fn on_fragment(
        &mut self,
        now: Time,
        handle: u64,
        offset: u64,
        len: u64,
        mut f: impl FnMut(u64, u64, bool),
    ) -> Result<RndvArrived, &'static str> {
        let Some(b) = self.get_mut(handle) else { return Ok(RndvArrived::default()) };
        let end =
            offset.checked_add(len).filter(|e| *e <= b.len).ok_or("fragment outside of its rendezvous transfer")?;
        if end > b.granted {
            return Err("rendezvous transfer fragment beyond its grant");
        }
        if end < b.len && b.got.extend_prefix(offset, end) {
            // The usual case: the next fragment, not the last.
            b.received += len;
            b.touched = now;
            b.repeats = 0;
            f(offset, len, false);
            return Ok(RndvArrived { known: true, complete: false, fresh: len });
        }
        let mut parts: smallvec::SmallVec<[(u64, u64); 4]> = smallvec::SmallVec::new();
        let before = b.got.len();
        let fresh = b.got.insert(offset, end, |a, z| parts.push((a, z)));
        let after = b.got.len();
        b.received += fresh;
        if fresh > 0 {
            b.touched = now;
            b.repeats = 0;
        }
        let complete = b.received == b.len;
        self.ranges = self.ranges + after - before;
        if self.ranges > RANGES_MAX {
            return Err("rendezvous transfers in too many pieces");
        }
        let n = parts.len();
        for (k, (a, z)) in parts.into_iter().enumerate() {
            f(a, z - a, complete && k + 1 == n);
        }
        if complete {
            self.remove(handle);
        }
        Ok(RndvArrived { known: true, complete, fresh })
    }

    /// What of `[lo, hi)` has not arrived; `None` if the handle is not open or so much was not
    /// granted.
    pub(crate) fn holes(&self, handle: u64, lo: u64, hi: u64, f: impl FnMut(u64, u64) -> bool) -> Option<u64> {
        let b = self.get(handle).filter(|b| hi.min(b.len) <= b.granted)?;
        b.got.gaps(lo, hi.min(b.len), f);
        Some(b.len)
    }

    /// Closes a handle; returns the bytes granted and not received.
    pub(crate) fn remove(&mut self, handle: u64) -> Option<u64> {
        let b = self.get_mut(handle)?;
        b.live = false;
        let outstanding = b.granted - b.received;
        let ranges = core::mem::take(&mut b.got).len();
        self.ranges -= ranges;
        self.free.push(handle as u32);
        self.open -= 1;
        if self.open == 0 && self.slab.capacity() > 16 {
            self.slab = Vec::new();
            self.free = Vec::new();
        }
        Some(outstanding)
    }

    /// Every open handle, in order of slots.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (u64, &InRndv)> {
        self.slab.iter().enumerate().filter(|(_, b)| b.live).map(|(i, b)| (u64::from(b.generation) << 32 | i as u64, b))
    }
}
