//! What an endpoint does otherwise in a superstep that it was told of (`spec/superstep.md`): whom
//! it serves how long, what may wait in its host's interface, and in which slots it sends.

use rand_core::RngCore;
use weir_superstep::{OwnQueue, Slots};

use crate::paths::Path;
use crate::{Endpoint, PeerId, Time};

impl Endpoint {
    /// A superstep begins: so many bytes go to and come from these peers, in this order, and
    /// perhaps in slots (`spec/superstep.md`). It holds until the next call. Peers that are not
    /// known are passed over.
    pub fn superstep(
        &mut self,
        now: Time,
        sends: &[(PeerId, u64)],
        receives: &[(PeerId, u64)],
        slots: Option<Slots>,
        own_queue: OwnQueue,
    ) {
        for peer in core::mem::take(&mut self.granted) {
            self.bear_granted(peer, false);
        }
        for &(peer, _) in sends {
            self.bear_granted(peer, true);
            self.granted.push(peer);
        }
        let chance = self.rng.next_u32();
        self.own_queue = if sends.is_empty() { OwnQueue::System } else { own_queue };
        self.sessions.expect(now, receives, own_queue);
        self.sessions.common_mut().pace(now, slots, chance);
    }

    /// What may wait in this host's interface in a superstep, bytes (`spec/superstep.md` 6);
    /// `None`: as much as the system lets wait.
    pub(crate) fn told_queue_bytes(&self) -> Option<u64> {
        let path = |peer: &PeerId| self.assocs.get(peer.0 as usize)?.path();
        self.own_queue.bytes(self.granted.iter().filter_map(path).map(Path::seen_rate).max().unwrap_or(0))
    }

    fn bear_granted(&mut self, peer: PeerId, on: bool) {
        if let Some(a) = self.assocs.get_mut(peer.0 as usize) {
            a.paths.iter_mut().for_each(|p| p.cc.set_granted(on));
        }
    }
}
