//! The messages of an endpoint, and what the engine knows of its peers: all that carriers work on.

use crate::clock::now;
use crate::counters::OwnCounters;
use crate::memory::Gather;
use crate::telling::Telling;
use std::net::SocketAddr;
use weir_link::{Endpoint, PeerId, Time};
use weir_message::Messages;

/// Everything but the socket: split off so that a datagram can be handled while the socket lends
/// it.
pub struct State {
    pub messages: Messages<Gather, Telling>,
    pub counters: OwnCounters,
    /// By peer, as far as was needed.
    pub peers: Vec<PeerState>,
    /// When the socket was last looked at.
    pub last_look: Time,
    pub closed: bool,
}

/// What the engine itself knows of a peer.
#[derive(Default)]
pub struct PeerState {
    /// When something was last sent to it.
    pub last_send: Time,
    /// So many of a burst went to it in a row, the first not counted.
    pub in_row: u32,
    /// The endpoint of which the next two tell: a place may be given to another.
    pub endpoint: u64,
    /// Where it does not answer TCP, as of the last time that it was tried; and whether that was
    /// said.
    pub no_tcp_to: Option<SocketAddr>,
    pub told_no_tcp: bool,
}

impl State {
    pub fn new(messages: Messages<Gather, Telling>) -> State {
        State { messages, counters: OwnCounters::default(), peers: Vec::new(), last_look: now(), closed: false }
    }

    /// The associations, for who carries packets and connections.
    pub fn proto(&self) -> &Endpoint {
        self.messages.endpoint()
    }

    /// The same.
    pub fn proto_mut(&mut self) -> &mut Endpoint {
        self.messages.endpoint_mut()
    }

    /// What the engine knows of a peer.
    #[inline]
    pub fn peer(&mut self, peer: u32) -> &mut PeerState {
        if self.peers.len() <= peer as usize {
            self.peers.resize_with(peer as usize + 1, PeerState::default);
        }
        &mut self.peers[peer as usize]
    }

    /// Where peers do not answer TCP.
    pub fn no_tcp_to(&self) -> impl Iterator<Item = SocketAddr> {
        let has_place = |i: usize, p: &PeerState| self.proto().peer_endpoint_id(PeerId(i as u32)) == p.endpoint;
        self.peers.iter().enumerate().filter(move |(i, p)| has_place(*i, p)).filter_map(|(_, p)| p.no_tcp_to)
    }

    /// What the engine knows of a peer's TCP, of the endpoint that has the place now.
    pub fn peer_of_tcp(&mut self, peer: u32) -> &mut PeerState {
        let endpoint = self.proto().peer_endpoint_id(PeerId(peer));
        let p = self.peer(peer);
        if p.endpoint != endpoint {
            (p.endpoint, p.no_tcp_to, p.told_no_tcp) = (endpoint, None, false);
        }
        p
    }
}
