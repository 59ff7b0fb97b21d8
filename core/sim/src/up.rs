//! What hosts send by: a cable each, or one medium that they share.

use rand_pcg::Pcg32;
use weir_net::{Collisions, Medium, Pipe, Server};

use crate::queue::PacketIx;
use crate::spec::{HostId, Ns};

/// One direction of a cable.
pub(crate) type Link = Pipe<Pcg32>;

/// From all hosts of a network.
#[derive(Debug)]
pub(crate) enum Up {
    /// To a switch.
    Own(Vec<Link>),
    Shared(Bus),
}

/// A medium, and before each host's queue for it the host's interface. The interface knows the
/// medium's rate, not that others send too, as that of an emulated host does.
#[derive(Debug)]
pub(crate) struct Bus {
    pub(crate) medium: Medium<Pcg32, PacketIx>,
    interfaces: Vec<Server>,
    /// When an event is to take from the medium what it has sent, or dropped.
    asked: Option<Ns>,
}

impl Up {
    pub(crate) fn shared(links: Vec<Link>, collisions: Option<Collisions>) -> Self {
        let mut medium = collisions.map_or_else(Medium::default, Medium::with_collisions);
        let interfaces = links.into_iter().map(|link| _ = medium.add(link)).map(|()| Server::default()).collect();
        Up::Shared(Bus { medium, interfaces, asked: None })
    }

    pub(crate) fn hosts(&self) -> HostId {
        match self {
            Up::Own(links) => links.len() as HostId,
            Up::Shared(bus) => bus.interfaces.len() as HostId,
        }
    }

    pub(crate) fn link(&self, host: HostId) -> &Link {
        match self {
            Up::Own(links) => &links[host as usize],
            Up::Shared(bus) => bus.medium.pipe(host as usize),
        }
    }

    pub(crate) fn link_mut(&mut self, host: HostId) -> &mut Link {
        match self {
            Up::Own(links) => &mut links[host as usize],
            Up::Shared(bus) => bus.medium.pipe_mut(host as usize),
        }
    }

    /// When at most so many bytes wait in the host's interface.
    pub(crate) fn drained_ns(&self, host: HostId, to_bytes: u64) -> Ns {
        match self {
            Up::Own(links) => links[host as usize].drained_ns(to_bytes),
            Up::Shared(bus) => {
                let takes_ns = bus.medium.pipe(host as usize).spec().serialise_ns(to_bytes);
                bus.interfaces[host as usize].busy_until_ns().saturating_sub(takes_ns)
            }
        }
    }
}

impl Bus {
    /// When a packet that the host sends now comes to its queue for the medium.
    pub(crate) fn enters_ns(&mut self, now: Ns, host: HostId, bytes: u32) -> Ns {
        let takes_ns = self.medium.pipe(host as usize).spec().serialise_ns(u64::from(bytes));
        self.interfaces[host as usize].serve(now, takes_ns) - takes_ns
    }

    /// When something happens on the medium next, if nobody has asked for that time yet.
    pub(crate) fn ask(&mut self) -> Option<Ns> {
        let next = self.medium.next_ns();
        let is_new = next != self.asked;
        self.asked = next;
        next.filter(|_| is_new)
    }
}
