//! What is to happen, strictly by virtual time, ties in the order they were scheduled; and the
//! packets under way.

use crate::spec::{HostId, NetId};

/// ECN bits: not capable, capable (ECT(0)), and marked (CE).
pub(crate) const NOT_ECT: u8 = 0;
pub(crate) const ECT_0: u8 = 2;
pub(crate) const CE: u8 = 3;

/// A packet's place in the packet store.
pub(crate) type PacketIx = u32;

/// What an event does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// The packet comes to its host's queue for the medium that all share.
    AtMedium { packet: PacketIx },
    /// The medium of a network has sent a packet.
    Medium { net: NetId },
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
pub(crate) type Queue = weir_net::Events<What>;

/// A link of a packet's network, and the number of its cuts when the packet entered it.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Transit {
    /// From a switch: its number and that of its port; otherwise from the sender.
    pub(crate) port: Option<(u32, u32)>,
    pub(crate) epoch: u32,
}

/// A datagram under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) net: NetId,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    /// The link it is on.
    pub(crate) on: Transit,
    /// ECN bits (RFC 3168).
    pub(crate) ecn: u8,
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
        (p.net, p.from, p.to, p.ecn) = (net, from, to, NOT_ECT);
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
        let Packet { net, from, to, on, ecn, .. } = self.slots[ix as usize];
        let new = self.add(net, from, to);
        (self.slots[new as usize].on, self.slots[new as usize].ecn) = (on, ecn);
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
