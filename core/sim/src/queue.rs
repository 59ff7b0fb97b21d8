//! The event queue: strictly by virtual time, ties in the order they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::spec::{HostId, NetId, Ns};

/// A packet's place in the packet store.
pub(crate) type PacketIx = u32;

/// What an event does.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum What {
    /// The packet reaches switch `switch` of its network.
    AtSwitch { packet: PacketIx, switch: u32 },
    /// The packet reaches its destination's interface.
    AtHost { packet: PacketIx },
    /// The host runs if it is due.
    Run { host: HostId },
    /// Number in the list of faults.
    Fault { index: u32 },
    /// Something of a TCP connection is due.
    Tcp { conn: u64 },
}

/// Future events.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(Ns, u64, What)>>,
    scheduled: u64,
}

impl Queue {
    /// Schedules `what`; among equal times the first scheduled comes first.
    pub(crate) fn push(&mut self, at: Ns, what: What) {
        self.scheduled += 1;
        self.heap.push(Reverse((at, self.scheduled, what)));
    }

    pub(crate) fn peek_time(&self) -> Option<Ns> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Ns, What)> {
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}

/// A datagram under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) net: NetId,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) data: Vec<u8>,
}

/// Packets under way; their buffers are used again.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    slots: Vec<Packet>,
    free: Vec<PacketIx>,
}

impl Packets {
    /// A packet with empty data.
    pub(crate) fn add(&mut self, net: NetId, from: HostId, to: HostId) -> PacketIx {
        let ix = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Packet::default());
            (self.slots.len() - 1) as PacketIx
        });
        let p = &mut self.slots[ix as usize];
        (p.net, p.from, p.to) = (net, from, to);
        p.data.clear();
        ix
    }

    pub(crate) fn get(&self, ix: PacketIx) -> &Packet {
        &self.slots[ix as usize]
    }

    pub(crate) fn get_mut(&mut self, ix: PacketIx) -> &mut Packet {
        &mut self.slots[ix as usize]
    }

    pub(crate) fn release(&mut self, ix: PacketIx) {
        // A jumbo buffer must not stay behind in every slot.
        self.slots[ix as usize].data.shrink_to(4096);
        self.free.push(ix);
    }

    /// A copy of the packet.
    pub(crate) fn copy(&mut self, ix: PacketIx) -> PacketIx {
        let (net, from, to) = {
            let p = self.get(ix);
            (p.net, p.from, p.to)
        };
        let new = self.add(net, from, to);
        let data = std::mem::take(&mut self.slots[ix as usize].data);
        self.slots[new as usize].data.extend_from_slice(&data);
        self.slots[ix as usize].data = data;
        new
    }

    /// Packets under way or in socket buffers.
    pub(crate) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_keep_their_order() {
        let mut q = Queue::default();
        for host in [5, 3, 9] {
            q.push(10, What::Run { host });
        }
        q.push(9, What::Run { host: 1 });
        let order: Vec<_> = std::iter::from_fn(|| q.pop()).map(|(_, w)| w).collect();
        assert_eq!(order, [1, 5, 3, 9].map(|host| What::Run { host }));
    }
}
