//! Who is known: peers named or come by themselves, those forgotten, and their places for others.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weir_session::{Carrier, Session};

use crate::association::{Association, State, carries};
use crate::crypt::Handshake;
use crate::endpoint::INDEX_BITS;
use crate::{DownReason, Endpoint, EndpointName, NameError, PeerId, Time};

impl Endpoint {
    /// Finds or makes the peer; opens nothing yet (the first send does).
    ///
    /// # Errors
    /// The name was made with another job key or protocol version, or holds no address.
    pub fn peer(&mut self, name: &EndpointName) -> Result<PeerId, NameError> {
        self.handshake.check_name(name)?;
        let (id, addrs) = crate::handshake::name_parts(name);
        // A name made from host and port: whoever is at that address.
        let known = if id == 0 { self.at_address(&addrs) } else { self.by_endpoint.get(&id).copied() };
        // One that left in good order, and was forgotten, may be there again.
        let in_order = |p: PeerId| {
            if self.cfg.dead_may_return {
                return true;
            }
            let reason = self.sessions.get(p).and_then(Session::down);
            matches!(reason, Some(DownReason::Closed | DownReason::LocalClose))
        };
        if let Some(p) = known.filter(|p| !(self.is_forgotten(*p) && in_order(*p))) {
            // The caller refers to it again, though it is dead.
            let a = &mut self.assocs[p.0 as usize];
            (a.vacant, a.forgetting) = (false, false);
            return Ok(p);
        }
        if addrs.is_empty() {
            return Err(NameError::NoAddress);
        }
        self.add_peer(id, &addrs, Time::ZERO).ok_or(NameError::TooMany)
    }

    /// The caller let go of it after it went down, and its place may be another's soon.
    pub(crate) fn is_forgotten(&self, peer: PeerId) -> bool {
        self.assocs.get(peer.0 as usize).is_some_and(|a| a.vacant || a.forgetting)
    }

    /// The peer that lives at these addresses: the one named by them, or whoever came from there.
    /// Of several, for one may be gone and not yet missed, the one heard last.
    fn at_address(&self, addrs: &[SocketAddr]) -> Option<PeerId> {
        let lives = |a: &Association| match a.state {
            State::Down(_) => false,
            State::Up => a.addrs[..] == *addrs || a.paths.iter().any(|p| addrs.contains(&p.remote)),
            State::Idle | State::Opening => a.addrs[..] == *addrs,
        };
        self.assocs.iter().filter(|a| lives(a)).max_by_key(|a| (a.state == State::Up, a.heard)).map(|a| a.id)
    }

    /// Whether anything genuine has come from the peer later than `then`: if so, it lives, and the
    /// way to it bears packets.
    #[must_use]
    pub fn heard_since(&self, peer: PeerId, then: Time) -> bool {
        self.assocs.get(peer.0 as usize).is_some_and(|a| a.state == State::Up && a.heard > then)
    }

    /// The place of a forgotten peer that may be used again.
    fn vacancy(&mut self) -> Option<PeerId> {
        while let Some(&p) = self.vacant.front() {
            if self.assocs[p.0 as usize].vacant {
                return Some(p);
            }
            self.vacant.pop_front(); // known again meanwhile
        }
        None
    }

    /// Whether a peer that was not named may come in.
    pub(crate) fn has_room(&mut self, now: Time) -> bool {
        self.forget_told(now);
        self.spent.len() < self.cfg.peers_max && (self.assocs.len() < self.cfg.peers_max || self.vacancy().is_some())
    }

    /// The caller refers to this peer no more: its memory is freed, and its index may name another
    /// peer from now on. Does nothing and returns false unless the peer is down. One that is still
    /// to be told is forgotten as soon as it has been; one that a carrier holds, when that has let
    /// go of it.
    pub fn forget(&mut self, now: Time, peer: PeerId) -> bool {
        self.forget_told(now);
        self.forget_one(now, peer)
    }

    /// Those that were to be forgotten once they had been told.
    fn forget_told(&mut self, now: Time) {
        if self.forgetting.is_empty() {
            return;
        }
        let Endpoint { forgetting, assocs, sessions, .. } = self;
        let is_held = |p: PeerId| sessions.get(p).is_some_and(Session::is_held);
        let is_told = |a: &Association| (a.close_pending.is_none() && !is_held(a.id)) || !a.forgetting;
        let told: Vec<PeerId> = forgetting.extract_if(.., |p| is_told(&assocs[p.0 as usize])).collect();
        for peer in told {
            if core::mem::take(&mut self.assocs[peer.0 as usize].forgetting) {
                self.forget_one(now, peer);
            }
        }
    }

    fn forget_one(&mut self, now: Time, peer: PeerId) -> bool {
        self.sessions.common_mut().advance(now);
        let Some(a) = self.assocs.get_mut(peer.0 as usize) else { return false };
        let session = self.sessions.get(peer);
        let reason = match a.state {
            State::Down(reason) => reason,
            // Another carrier had it, and packets never.
            State::Idle => match session.filter(|s| !carries(s)).and_then(Session::down) {
                Some(reason) => reason,
                None => return false,
            },
            _ => return false,
        };
        if a.vacant {
            return false;
        }
        if a.close_pending.is_some() || session.is_some_and(Session::is_held) {
            if !core::mem::replace(&mut a.forgetting, true) {
                self.forgetting.push(peer);
            }
            // (Of a session that ended by packets the other carrier need not know yet.)
            self.sessions.touch_for(Carrier::Shm, peer);
            return true;
        }
        if let Some(accepted) = &a.accepted {
            self.spent.add(Handshake::epoch(now), a.endpoint_id, &accepted.nonce);
        }
        a.renew(&self.cfg, a.endpoint_id, &[], now);
        self.sessions.renew(peer);
        self.sessions.end(peer, reason, &mut Vec::new());
        (a.state, a.vacant) = (State::Down(reason), true);
        self.bulk_news.retain(|news| news.peer != peer);
        self.vacant.push_back(peer);
        true
    }

    /// The association is over. A forgotten peer's index is down until it names another.
    #[must_use]
    pub fn is_down(&self, peer: PeerId) -> bool {
        self.assocs.get(peer.0 as usize).is_some_and(|a| matches!(a.state, State::Down(_)))
    }

    pub(crate) fn add_peer(&mut self, endpoint_id: u64, addrs: &[SocketAddr], now: Time) -> Option<PeerId> {
        let id = if let Some(id) = self.vacancy() {
            self.vacant.pop_front();
            let a = &mut self.assocs[id.0 as usize];
            let old = a.endpoint_id;
            a.renew(&self.cfg, endpoint_id, addrs, now);
            self.sessions.renew(id);
            if self.by_endpoint.get(&old) == Some(&id) {
                self.by_endpoint.remove(&old);
            }
            id
        } else if self.assocs.len() < (1 << INDEX_BITS) - 1 {
            let id = self.sessions.add();
            self.assocs.push(Box::new(Association::new(&self.cfg, id, endpoint_id, addrs, now)));
            id
        } else {
            return None;
        };
        if endpoint_id != 0 {
            self.by_endpoint.insert(endpoint_id, id);
        }
        Some(id)
    }

    /// Where the peer is: by the path that carries its data, else by its name.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<SocketAddr> {
        let a = self.assocs.get(peer.0 as usize)?;
        a.path().map(|path| path.remote).or_else(|| a.addrs.first().copied())
    }

    /// The random id of the peer's incarnation; 0 for an unknown peer.
    #[must_use]
    pub fn peer_endpoint_id(&self, peer: PeerId) -> u64 {
        self.assocs.get(peer.0 as usize).map_or(0, |a| a.endpoint_id)
    }

    /// All peers, but for those forgotten, in the order of their indices.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.assocs.iter().filter(|a| !a.vacant).map(|a| a.id)
    }
}
