//! The table of peers: who is dialled, who is up, who is over, and the receiving rings in one row
//! so that looking at all of them is cheap.

use crate::handshake::Connector;
use crate::mapped::MappedRing;
use crate::pull::Probe;
use crate::ring::{Consumer, Producer};
use crate::sys::Mapping;
use crate::why::{NoPull, Why};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A peer. Leads nowhere after [`Shm::forget`](crate::Shm::forget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerIx {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl PeerIx {
    /// Its place in a table: below the number of peers there were at a time, and used again after
    /// [`Shm::forget`](crate::Shm::forget).
    #[must_use]
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Where an association stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The handshake is under way.
    Connecting,
    /// Records can be sent.
    Up,
    /// There is none, or none any more. Unless it is [`Why::Corrupt`], what the peer published can
    /// still be read.
    Over(Why),
}

/// A connection that we make and that is not up yet.
#[derive(Debug)]
pub struct Dial {
    /// None while the listener's queue is full.
    pub socket: Option<OwnedFd>,
    pub handshake: Connector,
    /// The memory, from PROOF on.
    pub memory: Option<(Arc<Mapping>, [MappedRing; 2])>,
}

/// What an association has beside its receiving ring.
#[derive(Debug)]
pub struct Link {
    pub socket: OwnedFd,
    pub pidfd: Option<OwnedFd>,
    pub pull: Result<Probe, NoPull>,
    pub tx: Producer<MappedRing>,
    pub mapping: Arc<Mapping>,
    /// Which of the two rings is ours to write: 0 for the connector.
    pub tx_ring: usize,
    /// Records sent at the last look, and whether the ring's pages were given back since.
    pub tx_records: u64,
    pub tx_seen: u64,
    pub trimmed: bool,
    /// The peer's ring is left to its socket.
    pub dormant: bool,
}

/// One peer.
#[derive(Debug)]
pub struct Peer {
    pub id: u64,
    pub state: State,
    pub dial: Option<Dial>,
    /// Until when the handshake must be done.
    pub deadline_ns: u64,
    pub link: Option<Box<Link>>,
    /// Its place among the receiving rings.
    pub live: Option<usize>,
}

/// A receiving ring and whose it is. One cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Live {
    pub rx: Consumer<MappedRing>,
    pub slot: u32,
    /// For so many looks nothing was read or sent, and how much had been then.
    pub quiet: u32,
    pub seen: (u64, u64),
    /// Nothing of it is taken for now ([`Shm::hold`](crate::Shm::hold)).
    pub held: bool,
}

impl Live {
    /// Something is to be taken.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.rx.has_record() && !self.held
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    peer: Option<Peer>,
}

/// All peers.
#[derive(Debug, Default)]
pub struct Peers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_id: HashMap<u64, u32>,
    /// Those that are awake first.
    pub live: Vec<Live>,
    /// How many of them are. The others are left to their sockets: `sleeping` is set, and nobody
    /// looks at them (spec/shm.md 5).
    pub awake: usize,
}

impl Peers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The handle of a slot in use.
    pub fn handle(&self, slot: u32) -> Option<PeerIx> {
        let at = self.slots.get(slot as usize)?;
        at.peer.as_ref().map(|_| PeerIx { slot, generation: at.generation })
    }

    /// The handle of an endpoint.
    pub fn find(&self, id: u64) -> Option<PeerIx> {
        self.by_id.get(&id).and_then(|slot| self.handle(*slot))
    }

    /// All handles.
    pub fn handles(&self) -> Vec<PeerIx> {
        (0..self.slots.len() as u32).filter_map(|slot| self.handle(slot)).collect()
    }

    #[inline]
    pub fn get(&self, ix: PeerIx) -> Option<&Peer> {
        let slot = self.slots.get(ix.slot as usize)?;
        slot.peer.as_ref().filter(|_| slot.generation == ix.generation)
    }

    #[inline]
    pub fn get_mut(&mut self, ix: PeerIx) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(ix.slot as usize)?;
        slot.peer.as_mut().filter(|_| slot.generation == ix.generation)
    }

    /// A new peer, not connected.
    pub fn add(&mut self, id: u64, deadline_ns: u64) -> PeerIx {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, peer: None });
            self.slots.len() as u32 - 1
        });
        let at = &mut self.slots[slot as usize];
        at.peer = Some(Peer { id, state: State::Connecting, dial: None, deadline_ns, link: None, live: None });
        self.by_id.insert(id, slot);
        PeerIx { slot, generation: at.generation }
    }

    /// Takes a peer out; its handle leads nowhere from now on.
    pub fn remove(&mut self, ix: PeerIx) -> Option<Peer> {
        self.unlive(ix);
        let slot = self.slots.get_mut(ix.slot as usize).filter(|slot| slot.generation == ix.generation)?;
        let peer = slot.peer.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(ix.slot);
        self.by_id.remove(&peer.id);
        Some(peer)
    }

    /// Adds a peer's receiving ring to the row.
    pub fn set_live(&mut self, ix: PeerIx, rx: Consumer<MappedRing>) {
        let at = self.live.len();
        if let Some(peer) = self.get_mut(ix) {
            peer.live = Some(at);
            self.live.push(Live { rx, slot: ix.slot, quiet: 0, seen: (0, 0), held: false });
            self.exchange(at, self.awake);
            self.awake += 1;
        }
    }

    /// Two rings in the row change places.
    fn exchange(&mut self, a: usize, b: usize) {
        self.live.swap(a, b);
        for at in [a, b] {
            let slot = self.live[at].slot as usize;
            if let Some(peer) = self.slots[slot].peer.as_mut() {
                peer.live = Some(at);
            }
        }
    }

    /// The ring at `at`, which is awake, is left to its socket from now on.
    fn set_dormant(&mut self, at: usize) {
        self.awake -= 1;
        self.exchange(at, self.awake);
        self.note_dormant(self.awake, true);
    }

    fn note_dormant(&mut self, at: usize, dormant: bool) {
        let slot = self.live[at].slot as usize;
        if let Some(link) = self.slots[slot].peer.as_mut().and_then(|peer| peer.link.as_mut()) {
            link.dormant = dormant;
        }
    }

    /// This peer's ring is looked at again, if it was not.
    #[cold]
    pub fn rouse(&mut self, ix: PeerIx) {
        if let Some(at) = self.get(ix).and_then(|peer| peer.live).filter(|at| *at >= self.awake) {
            self.rouse_at(at);
        }
    }

    fn rouse_at(&mut self, at: usize) {
        self.live[at].rx.cancel_sleep();
        self.live[at].quiet = 0;
        self.exchange(at, self.awake);
        self.note_dormant(self.awake, false);
        self.awake += 1;
    }

    /// Leaves those of the rings that are awake to their sockets by which nothing went for `looks`
    /// looks, of which this is one, as long as more than `least` are awake, and more than one.
    pub fn doze(&mut self, least: usize, looks: u32) {
        for at in (0..self.awake).rev() {
            let live = &mut self.live[at];
            let Some(Peer { state: State::Up, link: Some(link), .. }) = &self.slots[live.slot as usize].peer else {
                continue;
            };
            let seen = (live.rx.position(), link.tx_records);
            live.quiet = if live.seen == seen { live.quiet.saturating_add(1) } else { 0 };
            live.seen = seen;
            let may = live.quiet >= looks && link.tx.is_idle() && !live.rx.has_news();
            if may && self.awake > least.max(1) && live.rx.prepare_sleep() {
                self.set_dormant(at);
            }
        }
    }

    /// Looks at some of the rings that are left to their sockets, the next ones each time: sooner
    /// than the sockets, and a peer may have cleared what says that it is to wake us. One that has
    /// something is looked at again from now on; its place.
    #[inline(never)]
    pub fn look_at_dormant(&mut self, from: &mut usize, most: usize) -> Option<usize> {
        let dormant = self.live.len() - self.awake;
        for _ in 0..most.min(dormant) {
            *from = if *from + 1 < dormant { *from + 1 } else { 0 };
            let at = self.awake + *from;
            if self.live[at].is_ready() {
                self.rouse_at(at);
                return Some(self.awake - 1);
            }
        }
        None
    }

    /// Takes a peer's receiving ring out of the row; nothing more is read of it.
    pub fn unlive(&mut self, ix: PeerIx) {
        let Some(mut at) = self.get_mut(ix).and_then(|peer| peer.live) else { return };
        if at < self.awake {
            self.awake -= 1;
            self.exchange(at, self.awake);
            at = self.awake;
        }
        if let Some(peer) = self.get_mut(ix) {
            peer.live = None;
        }
        self.live.swap_remove(at);
        let moved = self.live.get(at).map(|live| live.slot as usize);
        if let Some(peer) = moved.and_then(|slot| self.slots[slot].peer.as_mut()) {
            peer.live = Some(at);
        }
    }
}
