//! What an SCTP association with a peer needs of the association that it belongs to: its ports,
//! whose it is, and the way (spec/sctp.md). The driver has SCTP itself, and moves its packets.

use core::net::{IpAddr, SocketAddr};

use weir_wire::sctp;
pub use weir_wire::sctp::HELLO_LEN as SCTP_HELLO_LEN;

use crate::PeerId;
use crate::association::{Association, State};
use crate::endpoint::{Endpoint, INDEX_BITS};

impl Endpoint {
    fn of_sctp(&self, peer: PeerId) -> Option<&Association> {
        self.assocs.get(peer.0 as usize).map(|a| &**a).filter(|a| a.state == State::Up && a.peer.sctp)
    }

    /// Whether this endpoint takes SCTP with those that do.
    #[must_use]
    pub fn offers_sctp(&self) -> bool {
        self.cfg.sctp
    }

    /// The ids by which the two sides call the association with a peer, ours first, if it is up and
    /// both take SCTP; and the place that each names.
    #[must_use]
    pub fn sctp_ids(&self, peer: PeerId) -> Option<[(u64, u32); 2]> {
        let a = self.of_sctp(peer)?;
        let place = |id: u64| id as u32 & ((1 << INDEX_BITS) - 1);
        Some([a.local_id, a.remote_id].map(|id| (id, place(id))))
    }

    /// Whether an address is one of the peer's, on a path to it.
    #[must_use]
    pub fn is_path(&self, peer: PeerId, remote: SocketAddr) -> bool {
        self.of_sctp(peer).is_some_and(|a| a.paths.iter().any(|p| p.remote == remote))
    }

    /// The HELLO to be sent to a peer.
    #[must_use]
    pub fn sctp_hello(&self, peer: PeerId) -> Option<[u8; SCTP_HELLO_LEN]> {
        let a = self.of_sctp(peer)?;
        Some(sctp::hello(a.remote_id, &a.crypt.as_ref()?.keys.bulk))
    }

    /// Whether a HELLO is this peer's.
    #[must_use]
    pub fn is_sctp_hello(&self, peer: PeerId, bytes: &[u8]) -> bool {
        let keys = self.of_sctp(peer).and_then(|a| Some((a.local_id, &a.crypt.as_ref()?.keys.bulk)));
        keys.is_some_and(|(id, key)| sctp::is_hello(bytes, id, key))
    }

    /// The next peer whose association has come up since it was asked last, and takes SCTP. (It may
    /// have ended since.)
    #[inline]
    pub fn next_for_sctp(&mut self) -> Option<PeerId> {
        self.openings.for_sctp.pop_front()
    }

    /// Whether the association with a peer is to end when all has arrived.
    #[must_use]
    pub fn is_closing(&self, peer: PeerId) -> bool {
        self.assocs.get(peer.0 as usize).is_some_and(|a| a.state == State::Up && a.closing.is_some())
    }

    /// The way to a peer: where to, from which of our addresses, and how long a datagram may be.
    #[must_use]
    pub fn way(&self, peer: PeerId) -> Option<(SocketAddr, Option<IpAddr>, u16)> {
        let path = self.assocs.get(peer.0 as usize).filter(|a| a.state == State::Up)?.path()?;
        Some((path.remote, path.local, path.mtu.size()))
    }
}
