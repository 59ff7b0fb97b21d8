//! Bulk TCP connections as the link has them: its LANE frames say what their two ends have to say in packets, and it proves who greets. What goes by a connection, and what becomes of it, is the
//! affair of `weir_lane`; an association holds the state of its peer's, for it begins and ends with the association.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use weir_lane::{GREETING_LEN, Lane, LaneUnit, UnitIn, Wrong};
use weir_wire::frame;
use weir_wire::lane::Greeting;

use crate::association::{Association, Cx, State};
use crate::endpoint::{Endpoint, INDEX_BITS, with_association};
use crate::paths::PathState;
use crate::{BodyKey, Event, LaneNews, PeerId, Time};

/// What a step of a lane works with, from that of an association and the association's own.
macro_rules! of_lane {
    ($a:expr, $cx:expr) => {
        weir_lane::Cx {
            now: $cx.now,
            cfg: &$cx.cfg.lane,
            counters: &mut $cx.counters.lane,
            s: $cx.s,
            common: $cx.common,
            connects: $a.peer.connects,
        }
    };
}

impl Association {
    /// Something that would go by a lane stands in line: one is made, if it would pay.
    pub(crate) fn consider_lane(&mut self, cx: &mut Cx<'_>) {
        if cx.s.take_bulk_wanted()
            && let Some(p) = self.path()
            && p.rtt.sampled
            && cx.cfg.lane.pays(p.rtt.base(), p.loss_ppm, p.seen_rate())
        {
            let connect = self.lane.get_or_insert_with(Box::default).want(&mut of_lane!(self, cx));
            self.have_connected(cx, connect);
        }
    }

    fn have_connected(&self, cx: &mut Cx<'_>, connect: bool) {
        if let Some(path) = self.path().filter(|_| connect) {
            cx.lane_news.push_back(LaneNews { peer: self.id, remote: path.remote, local: path.local });
        }
    }

    /// A LANE frame.
    pub(crate) fn on_lane_frame(
        &mut self,
        cx: &mut Cx<'_>,
        f: frame::Lane,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        if self.peer.lanes && self.path().is_some() {
            let connect = self.lane.get_or_insert_with(Box::default).heard(&mut of_lane!(self, cx), f, events)?;
            self.have_connected(cx, connect);
        }
        Ok(())
    }

    /// When the lane has something to say in a packet.
    pub(crate) fn lane_due(&self) -> Option<Time> {
        self.lane.as_ref()?.due()
    }

    /// What a CLOSE says of the lane.
    pub(crate) fn last_lane_frame(&self) -> Option<frame::Lane> {
        self.lane.as_ref().map_or(self.closed_lane, |lane| lane.last_frame())
    }
}

impl Endpoint {
    /// A lane to be connected: make a TCP connection, send [`Endpoint::lane_greeting`] and hand the answer to
    /// [`Endpoint::lane_answered`]; if that cannot be done, call [`Endpoint::lane_over`].
    pub fn take_lane_news(&mut self) -> Option<LaneNews> {
        self.lane_news.pop_front()
    }

    /// Whether [`Endpoint::take_lane_news`] has any.
    #[must_use]
    pub fn has_lane_news(&self) -> bool {
        !self.lane_news.is_empty()
    }

    fn lane(&self, peer: PeerId) -> Option<&Lane> {
        self.assocs.get(peer.0 as usize)?.lane.as_deref()
    }

    /// The greeting of a new lane to this peer, and the lane's number. `None`: it is not wanted any more.
    pub fn lane_greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        let a = self.assocs.get_mut(peer.0 as usize).filter(|a| a.state == State::Up && a.peer.connects)?;
        let key = &a.crypt.as_ref()?.keys.lane;
        let lane = a.lane.as_mut()?.greets()?;
        Some((lane, Greeting { lane, association: a.remote_id }.write(key)))
    }

    /// A greeting came on a connection of a stranger. If it is good: whose it is, the lane's number and the answer; the lane is up,
    /// and one that was up before is over: its connection is dropped, read or not (spec/lanes.md 5).
    pub fn lane_greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let answered = self.greeted(now, bytes);
        match &answered {
            Some((peer, ..)) => self.touch(*peer),
            None => self.counters.lane.greetings_refused += 1,
        }
        answered
    }

    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let greeting = Greeting::read(bytes)?;
        let peer = PeerId(greeting.association as u32 & ((1 << INDEX_BITS) - 1));
        let (a, cx) = with_association!(self, peer, now)?;
        let is_ours = a.state == State::Up && a.local_id == greeting.association;
        if !is_ours || !a.peer.lanes || a.peer.connects {
            return None;
        }
        let key = &a.crypt.as_ref()?.keys.lane;
        let may_be_good = a.lane.as_ref().is_none_or(|l| l.takes(now, greeting.lane));
        if !may_be_good || !Greeting::is_genuine(bytes, key) {
            return None;
        }
        let answer = Greeting { lane: greeting.lane, association: a.remote_id }.write(key);
        a.lane.get_or_insert_with(Box::default).is_greeted(&mut of_lane!(a, cx), greeting.lane);
        Some((peer, greeting.lane, answer))
    }

    /// The answer to our greeting came. False if it is not good: close the connection.
    pub fn lane_answered(&mut self, now: Time, peer: PeerId, lane: u32, bytes: &[u8; GREETING_LEN]) -> bool {
        let good = with_association!(self, peer, now).is_some_and(|(a, cx)| {
            let want = Greeting { lane, association: a.local_id };
            let genuine = a.crypt.as_ref().is_some_and(|c| Greeting::is_genuine(bytes, &c.keys.lane));
            a.state == State::Up
                && Greeting::read(bytes) == Some(want)
                && genuine
                && a.lane.as_mut().is_some_and(|l| l.is_answered(&mut of_lane!(a, cx), lane))
        });
        if !good {
            self.counters.lane.greetings_refused += 1;
        }
        good
    }

    /// Whether the peer has a lane that carries units.
    #[must_use]
    pub fn has_lane(&self, peer: PeerId) -> bool {
        self.lane(peer).is_some_and(Lane::is_up)
    }

    /// Whether this lane carries units.
    #[must_use]
    pub fn lane_is_up(&self, peer: PeerId, lane: u32) -> bool {
        self.lane(peer).is_some_and(|l| l.is_up_as(lane))
    }

    /// The next unit for the peer's lane: its head is appended to `head`, its payload is to follow. Call when the last one was written.
    pub fn lane_next(&mut self, now: Time, peer: PeerId, lane: u32, head: &mut Vec<u8>) -> Option<LaneUnit> {
        let (a, cx) = with_association!(self, peer, now)?;
        let keys = &a.crypt.as_ref()?.keys;
        let l = a.lane.as_mut().filter(|l| l.is_up_as(lane))?;
        l.next_unit(&mut of_lane!(a, cx), |head, envelope| keys.send.unit_crc(head, envelope), head)
    }

    /// Whether something was handed to this lane that the peer has not told to have read: then how far it has.
    #[must_use]
    pub fn lane_waits(&self, peer: PeerId, lane: u32) -> Option<u64> {
        self.lane(peer).filter(|l| l.is_up_as(lane))?.waits()
    }

    /// Nothing more goes by this lane, which is up or was greeted with: what the peer has not told to have read is sent in packets, in which it hears of the end as well.
    /// It counts as a failure, after which the next one is a while off.
    pub fn lane_over(&mut self, now: Time, peer: PeerId, lane: u32) {
        let failed = with_association!(self, peer, now)
            .is_some_and(|(a, cx)| a.lane.as_mut().is_some_and(|l| l.fails(&mut of_lane!(a, cx), lane)));
        if failed {
            self.touch(peer);
        }
    }

    /// A unit's head with its envelope came on this lane of the peer: acts on what it says of units that went the other way (the first of two steps, so that the
    /// driver can see first to what has ended, before [`Endpoint::unit_begins`]). False: the head is not what was sent, or the lane is over, and it is to be dropped; or the peer
    /// broke a rule and is down.
    pub fn unit_tells(&mut self, now: Time, peer: PeerId, lane: u32, bytes: &[u8], events: &mut Vec<Event>) -> bool {
        self.lane_is_up(peer, lane)
            && self
                .of_unit(now, peer, events, |a, cx, events| {
                    let (c, l) = a.crypt.as_ref().zip(a.lane.as_mut()).ok_or(NO_LANE)?;
                    let crc = |head: &[u8], envelope: &[u8]| c.keys.recv.unit_crc(head, envelope);
                    l.unit_tells(&mut of_lane!(a, cx), lane, bytes, crc, events)
                })
                .is_some()
    }

    /// The unit begins. `None`: the peer broke a rule and is down. Otherwise the driver reads the payload into its place, as the events told it or tell it now, or
    /// nowhere if it knows of none, then calls [`Endpoint::unit_ends`]. Ranges of events index `bytes`.
    pub fn unit_begins(&mut self, now: Time, peer: PeerId, bytes: &[u8], events: &mut Vec<Event>) -> Option<UnitIn> {
        self.of_unit(now, peer, events, |a, cx, events| {
            let c = a.crypt.as_ref().ok_or(NO_LANE)?;
            let crc = |head: &[u8], envelope: &[u8]| c.keys.recv.unit_crc(head, envelope);
            weir_lane::unit_begins(&mut of_lane!(a, cx), bytes, crc, events)
        })
    }

    /// All of the unit's payload was read. An event whose operation is complete by it has an empty payload (and envelope). What was read of a lane that is over counts for nothing.
    pub fn unit_ends(&mut self, now: Time, peer: PeerId, lane: u32, unit: &UnitIn, events: &mut Vec<Event>) {
        if !self.lane_is_up(peer, lane) {
            return;
        }
        self.of_unit(now, peer, events, |a, cx, events| {
            let fresh = a.lane.as_mut().ok_or(NO_LANE)?.unit_ends(&mut of_lane!(a, cx), unit, events)?;
            if matches!(unit.key, BodyKey::Body(_)) {
                let base = a.path().map_or(0, |p| p.rtt.base());
                cx.common.grants.measure(cx.now, a.id, (fresh, false), 0, base);
            }
            Ok(())
        });
    }

    fn of_unit<T>(
        &mut self,
        now: Time,
        peer: PeerId,
        events: &mut Vec<Event>,
        act: impl FnOnce(&mut Association, &mut Cx<'_>, &mut Vec<Event>) -> Result<T, Wrong>,
    ) -> Option<T> {
        self.sessions.common_mut().advance(now);
        let (a, mut cx) = with_association!(self, peer, now).filter(|(a, _)| a.state == State::Up)?;
        let result = act(a, &mut cx, events).map_err(|wrong| match wrong {
            Wrong::Damaged => cx.counters.lane.heads_damaged += 1,
            Wrong::Rule(why) => a.violated(&mut cx, why, events),
        });
        self.touch(peer);
        result.ok()
    }

    /// Asks whether the path to this address of the peer still carries packets; [`Endpoint::path_has_failed`] tells later that it does not. For a driver whose lane takes that way and
    /// hears nothing by it. Where there is no other path there is nothing to be gained by it, and nothing happens.
    pub fn ask_path(&mut self, now: Time, peer: PeerId, remote: IpAddr) {
        let Some(a) = self.assocs.get_mut(peer.0 as usize).filter(|a| a.state == State::Up && a.paths.len() > 1) else {
            return;
        };
        let primary = usize::from(a.primary);
        for (i, p) in a.paths.iter_mut().enumerate().filter(|(_, p)| p.is_to(remote)) {
            if i == primary {
                // What elicits an acknowledgement and gets none leads to a failover: it goes by this very path.
                p.asks = p.asks.max(1);
            } else if p.state == PathState::Valid {
                p.next_probe = p.next_probe.min(now);
            }
        }
        self.touch(peer);
    }

    /// Whether the path to this address of the peer fell silent while another one bore packets: what goes there by other means than packets is not to be waited for.
    #[must_use]
    pub fn path_has_failed(&self, peer: PeerId, remote: IpAddr) -> bool {
        let Some(a) = self.assocs.get(peer.0 as usize) else { return false };
        let mut there = a.paths.iter().filter(|p| p.is_to(remote)).peekable();
        there.peek().is_some() && there.all(|p| p.state == PathState::Suspect)
    }
}

/// Keys and the lane are there whenever an association is up that has one.
const NO_LANE: Wrong = Wrong::Rule("unit without a lane");
