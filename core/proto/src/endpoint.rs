//! The endpoint: all associations behind one socket.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::{
    BodyKey, BodyOpened, Config, Counters, Credit, Event, Message, PacketBuf, Payloads, PeerId, PeerStats, RxMeta, SendError, Time, Transmit,
};

/// One endpoint: every association behind one socket.
pub struct Endpoint {
    counters: Counters,
}

#[allow(unused_variables, clippy::needless_pass_by_value)]
impl Endpoint {
    /// Makes an endpoint. `endpoint_id` must be random and new; `seed` is the only source of randomness.
    pub fn new(config: Config, job_key: [u8; 32], endpoint_id: u64, local_addrs: &[SocketAddr], seed: [u8; 32]) -> Endpoint {
        Endpoint { counters: Counters::default() }
    }
    /// The random id of the peer's incarnation.
    pub fn peer_endpoint_id(&self, peer: PeerId) -> u64 {
        0
    }
    /// A datagram arrived.
    pub fn handle(&mut self, now: Time, meta: RxMeta, datagram: &mut [u8], events: &mut Vec<Event>) {}
    /// `next_timeout` has passed.
    pub fn handle_timeout(&mut self, now: Time, events: &mut Vec<Event>) {}
    /// When to call `handle_timeout` next.
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }
    /// The caller found nothing more to read: acknowledgements now due go out with the next poll_transmit.
    pub fn idle(&mut self, now: Time) {}
    /// Queues a message.
    pub fn send(&mut self, now: Time, peer: PeerId, m: Message<'_>) -> Result<(), SendError> {
        Err(SendError::Closed)
    }
    /// Credit left right now, after what is queued.
    pub fn credit(&self, peer: PeerId) -> Credit {
        Credit::default()
    }
    /// Messages accepted, not yet transmitted for the first time.
    pub fn queued(&self, peer: PeerId) -> usize {
        0
    }
    /// The upper layer freed that much of what the peer sent as matched messages.
    pub fn consume(&mut self, peer: PeerId, msgs: u32, bytes: u64) {}
    /// Opens a handle for `len` bytes from the peer.
    pub fn open_body(&mut self, now: Time, peer: PeerId, len: u64) -> Result<BodyOpened, SendError> {
        Err(SendError::Closed)
    }
    /// The receiver gives up.
    pub fn close_body(&mut self, peer: PeerId, handle: u64) {}
    /// Sends a body to a handle the peer opened.
    pub fn send_body(&mut self, now: Time, peer: PeerId, handle: u64, granted: u64, len: u64, token: u64) -> Result<(), SendError> {
        Err(SendError::Closed)
    }
    /// The sender gives up; returns the token, which is then not reported.
    pub fn abort_body(&mut self, now: Time, peer: PeerId, handle: u64, code: u16) -> Option<u64> {
        None
    }
    /// Writes the next packet into `out`.
    pub fn poll_transmit(&mut self, now: Time, payloads: &impl Payloads, out: &mut PacketBuf) -> Option<Transmit> {
        None
    }
    /// After [`Event::Parity`] was applied.
    pub fn restored(&mut self, now: Time, peer: PeerId, key: BodyKey, offset: u64, len: u32, events: &mut Vec<Event>) {}
    /// Closes: no new sends; what was accepted is still delivered, for `Config::linger` at most.
    pub fn close(&mut self, now: Time) {}
    /// Nothing unacknowledged is left after `close`.
    pub fn is_drained(&self) -> bool {
        true
    }
    /// Counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// What is known about a peer.
    pub fn peer_stats(&self, peer: PeerId) -> PeerStats {
        PeerStats::default()
    }
    /// All peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        core::iter::empty()
    }
}
