//! The sessions of an endpoint, and what they share.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::Serialize;
use weir_superstep::{OwnQueue, SlotPacer, Slots};

use crate::{Carrier, Config, Credit, Event, Grants, Message, PeerId, RndvOpened, SendError, Session, Time};

/// What was counted of all sessions of an endpoint since its start. All only grow.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each name says it; groups are commented")]
pub struct Counters {
    // Messages and rendezvous data.
    pub messages_sent: u64,
    pub messages_received: u64,
    pub rndvs_sent: u64,
    pub rndvs_received: u64,
    pub duplicate_bytes: u64,
    // Credit and grants.
    pub grants_sent: u64,
    pub grants_received: u64,
    pub regrants_sent: u64,
    pub credits_sent: u64,
    /// Sends that had to wait for credit.
    pub stalls_credit: u64,
}

/// What the sessions of an endpoint share.
#[derive(Debug)]
pub struct Common {
    pub(crate) cfg: Config,
    /// Who may send rendezvous data, over all peers.
    pub grants: Grants,
    /// What was counted.
    pub counters: Counters,
    /// The latest time heard of, for calls that bring none.
    clock: Time,
    /// The slots of a superstep on a medium that all share.
    slots: Option<SlotPacer>,
    /// Credit given to peers because of their bulk connections or long paths, bytes.
    bulk_credit: u64,
    /// How many sessions have ended.
    pub(crate) ended: u64,
    /// To whom the last message of several pieces was let out.
    pub(crate) last_flow: Option<PeerId>,
}

impl Common {
    /// The constants.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.cfg
    }

    /// Takes so many bytes of the credit that peers may get for their bulk connections or long
    /// paths, all or none.
    pub(crate) fn take_bulk_credit(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.cfg.bulk_credit_max.saturating_sub(self.bulk_credit);
        self.bulk_credit += if fits { bytes } else { 0 };
        fits
    }

    /// Gives them back.
    pub(crate) fn give_back_bulk_credit(&mut self, bytes: u64) {
        self.bulk_credit -= bytes;
    }

    /// How many sessions have ended: who has something of each looks whose did when there are more.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The latest time heard of.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// When the next packet with data may go, over all peers, if data goes in slots.
    #[must_use]
    #[inline]
    pub fn slot(&self) -> Option<Time> {
        self.slots.as_ref().map(|s| Time(s.opens_ns()))
    }

    /// How long acknowledgements wait for more to acknowledge, nanoseconds, if data goes in slots;
    /// else 0 (`spec/superstep.md` 7.7).
    #[must_use]
    #[inline]
    pub fn slots_ack_ns(&self) -> u64 {
        self.slots.as_ref().map_or(0, |s| s.slots().ack_ns())
    }

    /// A packet with data went. `chance` is uniform, and asked for only if data goes in slots.
    #[inline]
    pub fn slot_used(&mut self, now: Time, chance: impl FnOnce() -> u32) {
        if let Some(s) = &mut self.slots {
            s.sent(now.0, chance());
        }
    }

    /// Data goes in these slots from now on, or as ever. What is going on goes on: a cycle is not
    /// begun anew.
    pub fn pace(&mut self, now: Time, slots: Option<Slots>, chance: u32) {
        match (&self.slots, slots) {
            (Some(s), Some(slots)) if s.slots() == slots => {}
            (_, slots) => self.slots = slots.map(|s| SlotPacer::new(s, now.0, chance)),
        }
    }

    /// It is `now`, or was later already.
    pub fn advance(&mut self, now: Time) {
        self.clock = self.clock.max(now);
    }
}

/// The sessions of an endpoint, by the index of the peer.
#[derive(Debug)]
pub struct Sessions {
    common: Common,
    #[expect(clippy::vec_box, reason = "a session is large and must not be moved when peers are added")]
    list: Vec<Box<Session>>,
    /// Those that changed since their carriers last looked, for each carrier.
    touched: [Vec<PeerId>; Carrier::COUNT],
}

impl Sessions {
    /// No peers yet.
    #[must_use]
    pub fn new(cfg: Config) -> Sessions {
        let grants = Grants::new(&cfg);
        let common = Common {
            cfg,
            grants,
            counters: Counters::default(),
            clock: Time::ZERO,
            slots: None,
            bulk_credit: 0,
            ended: 0,
            last_flow: None,
        };
        Sessions { common, list: Vec::new(), touched: Default::default() }
    }

    /// A session with a new peer, whose index is the next one.
    pub fn add(&mut self) -> PeerId {
        let peer = PeerId(self.list.len() as u32);
        self.list.push(Box::new(Session::new(&self.common.cfg, peer)));
        peer
    }

    /// The index names another peer from now on. What the list of touched sessions knows of it
    /// stays true.
    pub fn renew(&mut self, peer: PeerId) {
        if let Some(s) = self.list.get_mut(peer.0 as usize) {
            self.common.give_back_bulk_credit(s.bulk_credit());
            s.renew(&self.common.cfg);
        }
    }

    /// A ring or connection of a carrier names this place: it is not to be another's until
    /// [`Sessions::let_go`].
    pub fn hold(&mut self, peer: PeerId) {
        if let Some(s) = self.list.get_mut(peer.0 as usize) {
            s.holds = s.holds.saturating_add(1);
        }
    }

    /// It does so no more.
    pub fn let_go(&mut self, peer: PeerId) {
        if let Some(s) = self.list.get_mut(peer.0 as usize) {
            s.holds = s.holds.saturating_sub(1);
        }
    }

    /// Number of indices in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// There are no peers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What the sessions share.
    #[must_use]
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The same, to be changed.
    pub fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    /// The session with a peer.
    #[must_use]
    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&Session> {
        self.list.get(peer.0 as usize).map(|s| &**s)
    }

    /// The session with a peer and what it shares with others.
    #[inline]
    pub fn get_mut(&mut self, peer: PeerId) -> Option<(&mut Session, &mut Common)> {
        let Sessions { common, list, .. } = self;
        list.get_mut(peer.0 as usize).map(|s| (&mut **s, common))
    }

    /// The session changed: its carrier is to look at it.
    #[inline]
    pub fn touch(&mut self, peer: PeerId) {
        if let Some(carrier) = self.get(peer).map(Session::carrier) {
            self.touch_for(carrier, peer);
        }
    }

    /// Something concerns this carrier, whether or not it carries what the session sends.
    #[inline]
    pub fn touch_for(&mut self, carrier: Carrier, peer: PeerId) {
        if let Some(s) = self.list.get_mut(peer.0 as usize)
            && s.touched & carrier.flag() == 0
        {
            s.touched |= carrier.flag();
            self.touched[carrier.index()].push(peer);
        }
    }

    /// Whether some session changed for this carrier.
    #[must_use]
    #[inline]
    pub fn has_touched(&self, carrier: Carrier) -> bool {
        !self.touched[carrier.index()].is_empty()
    }

    /// One that changed. Ask until there is none.
    #[inline]
    pub fn next_touched(&mut self, carrier: Carrier) -> Option<PeerId> {
        let peer = self.touched[carrier.index()].pop()?;
        self.list[peer.0 as usize].touched &= !carrier.flag();
        Some(peer)
    }

    /// The carrier has just looked at this one, if it is the last that changed. Whether it was.
    #[inline]
    pub fn has_looked(&mut self, carrier: Carrier, peer: PeerId) -> bool {
        let is_last = self.touched[carrier.index()].last() == Some(&peer);
        is_last && self.next_touched(carrier).is_some()
    }

    /// From now on this carrier takes what the session sends. What another had taken and not
    /// delivered is told by [`Session::lost`].
    pub fn set_carrier(&mut self, peer: PeerId, carrier: Carrier) {
        if let Some(s) = self.list.get_mut(peer.0 as usize) {
            let held_back = |c| matches!(c, Carrier::Shm | Carrier::Sctp);
            if held_back(s.carrier()) && !held_back(carrier) {
                self.common.grants.bulk_over(peer);
            }
            s.set_carrier(carrier);
            self.touch(peer);
        }
    }

    /// Queues a message; the envelope is copied, the payload is read later through
    /// [`crate::Payloads`] until the token is reported.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    #[inline]
    pub fn send(&mut self, peer: PeerId, m: &Message<'_>) -> Result<(), SendError> {
        let (s, common) = self.get_mut(peer).ok_or(SendError::Closed)?;
        s.send(common, m)?;
        self.touch(peer);
        Ok(())
    }

    /// Credit left right now, after what is queued. Zero before the session is up.
    #[must_use]
    #[inline]
    pub fn credit(&self, peer: PeerId) -> Credit {
        self.get(peer).map_or(Credit::default(), Session::credit)
    }

    /// Control messages the peer's window has room for. Who can wait sends no more than that;
    /// answers a peer waits for may exceed it (up to `Config::control_queue`).
    #[must_use]
    pub fn control_room(&self, peer: PeerId) -> usize {
        self.get(peer).map_or(0, |s| s.control_room(&self.common))
    }

    /// The layer above freed that much of what the peer sent as matched messages: the peer may send
    /// as much again.
    #[inline]
    pub fn consume(&mut self, peer: PeerId, msgs: u32, bytes: u64) {
        let Some((s, common)) = self.get_mut(peer) else { return };
        if s.consume(common, msgs, bytes) {
            self.touch(peer);
        }
    }

    /// A superstep begins, in which so many bytes come from these peers, in this order. Each peer's
    /// rendezvous data are granted in it; and as far as `Config::expect_ahead` goes for all of
    /// them, matched messages are let in ahead (`spec/superstep.md` 4 and 5). It holds until the
    /// next one. Peers that are not known are passed over.
    pub fn expect(&mut self, now: Time, expected: &[(PeerId, u64)], own_queue: OwnQueue) {
        self.common.advance(now);
        let known = self.list.len();
        let known = |peer: &PeerId| (peer.0 as usize) < known;
        self.common.grants.set_order(expected.iter().map(|e| e.0).filter(known), own_queue);
        let mut room = self.common.cfg.expect_ahead;
        for &(peer, bytes) in expected {
            let ahead = bytes.min(room);
            let Some((s, _)) = self.get_mut(peer).filter(|_| ahead > 0) else { continue };
            room -= ahead;
            if s.expect(ahead) {
                self.touch(peer);
            }
        }
    }

    /// Receiver: opens a handle for `len` bytes of the peer.
    ///
    /// # Errors
    /// `QueueFull` when `Config::rndvs_max` are open, `Closed` when the peer is down, `TooLong` for
    /// no bytes: nothing would ever end it.
    pub fn open_rndv(&mut self, now: Time, peer: PeerId, len: u64) -> Result<RndvOpened, SendError> {
        let (s, common) = self.get_mut(peer).ok_or(SendError::Closed)?;
        let opened = s.open_rndv(common, now, len)?;
        self.touch(peer);
        Ok(opened)
    }

    /// Receiver: gives up on a handle; late fragments are dropped silently.
    pub fn close_rndv(&mut self, peer: PeerId, handle: u64) {
        if let Some((s, common)) = self.get_mut(peer) {
            s.close_rndv(common, handle);
            self.touch(peer);
        }
    }

    /// Sender: sends `len` bytes to a handle the peer opened and told us, with what it granted.
    ///
    /// # Errors
    /// `QueueFull` when the handle is in use already, `Closed` when the peer is down, `TooLong` for
    /// no bytes.
    pub fn send_rndv(
        &mut self,
        peer: PeerId,
        handle: u64,
        granted: u64,
        len: u64,
        token: u64,
    ) -> Result<(), SendError> {
        let (s, _) = self.get_mut(peer).ok_or(SendError::Closed)?;
        s.send_rndv(handle, granted, len, token)?;
        self.touch(peer);
        Ok(())
    }

    /// Sender: gives up, or declines a handle it was told. Returns the token of what was under way,
    /// which is released at once and not reported.
    pub fn abort_rndv(&mut self, peer: PeerId, handle: u64, code: u16) -> Option<u64> {
        let token = self.get_mut(peer)?.0.abort_rndv(handle, code);
        self.touch(peer);
        token
    }

    /// Asks the grant scheduler what may be raised.
    pub fn run_grants(&mut self, now: Time) {
        self.common.grants.asked();
        while let Some((peer, handle, limit)) = self.common.grants.next(now) {
            let Some((s, common)) = self.get_mut(peer) else { break };
            s.raise_grant(common, now, handle, limit);
            self.touch(peer);
        }
    }

    /// The peer is dead, whoever says so: everything of it fails, and its memory is given back.
    pub fn end(&mut self, peer: PeerId, reason: crate::DownReason, events: &mut Vec<Event>) {
        if let Some((s, common)) = self.get_mut(peer) {
            s.end(common, reason, events);
            self.touch(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_endpoint_sends_to_itself_takes_no_grants_from_its_peers() {
        let granted_beside = |own_bytes: Option<u64>| {
            let mut sessions = Sessions::new(Config::default());
            let (own, other) = (sessions.add(), sessions.add());
            sessions.set_carrier(own, Carrier::Loopback);
            if let Some(len) = own_bytes {
                let opened = sessions.open_rndv(Time(1), own, len).expect("opened");
                assert_eq!(opened.granted, len, "nothing lies between that could be filled");
                assert_eq!(sessions.get(own).and_then(Session::deadline), None, "or lose anything");
            }
            sessions.open_rndv(Time(1), other, 1 << 30).expect("opened").granted
        };
        assert_eq!(granted_beside(Some(1 << 40)), granted_beside(None));
    }

    // spec: L-6.8
    #[test]
    fn peers_with_bulk_connections_are_let_in_once_more_while_there_is_room() {
        let credit = Config::default().initial_credit_bytes;
        let mut all = Sessions::new(Config { bulk_credit_max: 2 * credit, ..Config::default() });
        let peers = [all.add(), all.add(), all.add()];
        let begins = |all: &mut Sessions, peer: PeerId| {
            let (s, common) = all.get_mut(peer).expect("added");
            s.bulk_begins(common);
            let told = s.take_credit(common).map(|told| told.1);
            (s.bulk_credit(), told)
        };
        assert_eq!(begins(&mut all, peers[0]), (credit, Some(2 * credit)));
        let (s, common) = all.get_mut(peers[0]).expect("added");
        s.bulk_ends(common);
        assert_eq!(s.take_credit(common).map(|told| told.1), Some(2 * credit), "it keeps it");
        assert_eq!(begins(&mut all, peers[0]), (credit, None), "once");
        assert_eq!(begins(&mut all, peers[1]), (credit, Some(2 * credit)));
        assert_eq!(begins(&mut all, peers[2]), (0, None), "nothing is left");
        all.end(peers[0], crate::DownReason::Closed, &mut Vec::new());
        assert_eq!(begins(&mut all, peers[2]), (credit, Some(2 * credit)), "what the dead had is free");
        all.end(peers[1], crate::DownReason::Closed, &mut Vec::new());
        all.renew(peers[1]);
        assert_eq!(begins(&mut all, peers[1]), (credit, Some(2 * credit)), "as of one who was never here");
        assert_eq!(begins(&mut all, peers[0]), (0, None), "the dead get none");
    }

    // spec: P-5.27
    #[test]
    fn peers_over_a_long_path_are_let_in_three_times_more_once_while_there_is_room() {
        let credit = Config::default().initial_credit_bytes;
        let mut all = Sessions::new(Config { bulk_credit_max: 5 * credit, ..Config::default() });
        let peers = [all.add(), all.add()];
        let mut is_long = |peer: PeerId| {
            let (s, common) = all.get_mut(peer).expect("added");
            s.path_is_long(common);
            (s.bulk_credit(), s.take_credit(common).map(|told| told.1))
        };
        assert_eq!(is_long(peers[0]), (3 * credit, Some(4 * credit)));
        assert_eq!(is_long(peers[0]), (3 * credit, None), "once");
        assert_eq!(is_long(peers[1]), (0, None), "2 are left");
        let (s, common) = all.get_mut(peers[0]).expect("added");
        s.bulk_begins(common);
        assert_eq!(s.bulk_credit(), 3 * credit, "the greater of both, with a bulk connection too");
        all.end(peers[0], crate::DownReason::Closed, &mut Vec::new());
        let (s, common) = all.get_mut(peers[1]).expect("added");
        s.path_is_long(common);
        assert_eq!(s.bulk_credit(), 3 * credit, "what the dead had is free");
    }

    // spec: L-6.8
    #[test]
    fn a_peer_with_little_credit_may_be_let_in_much_more_by_a_bulk_connection() {
        let cfg = Config { initial_credit_bytes: 1000, bulk_credit_bytes: Some(70_000), ..Config::default() };
        let mut all = Sessions::new(Config { bulk_credit_max: 100_000, ..cfg });
        let peers = [all.add(), all.add()];
        let mut begins = |peer: PeerId| {
            let (s, common) = all.get_mut(peer).expect("added");
            s.bulk_begins(common);
            (s.bulk_credit(), s.take_credit(common).map(|told| told.1))
        };
        assert_eq!(begins(peers[0]), (70_000, Some(71_000)));
        assert_eq!(begins(peers[1]), (0, None), "30 000 are left");
    }

    #[test]
    fn a_carrier_that_has_looked_is_told_of_no_change_until_the_next_one() {
        let mut sessions = Sessions::new(Config::default());
        let (a, b) = (sessions.add(), sessions.add());
        assert!(!sessions.has_looked(Carrier::Link, a), "nothing has changed");
        [a, b].iter().for_each(|peer| sessions.touch_for(Carrier::Link, *peer));
        assert!(!sessions.has_looked(Carrier::Link, a), "it has its turn");
        assert!(sessions.has_looked(Carrier::Link, b) && !sessions.has_looked(Carrier::Link, b));
        sessions.touch_for(Carrier::Link, b);
        let rest = core::iter::from_fn(|| sessions.next_touched(Carrier::Link)).collect::<Vec<_>>();
        assert_eq!(rest, [b, a]);
    }
}
