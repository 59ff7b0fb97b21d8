//! Lanes: large payload by a TCP connection while the network is at its best (spec/lanes.md).
//!
//! The driver owns the connection; this file says when to make one, what goes by it, and what becomes of it when it ends.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use weir_wire::frame::Credit;
use weir_wire::lane::{GREETING_LEN, Greeting, UNIT_HEAD_LEN, UnitHead, UnitKind};

use crate::association::{Association, Cx, Flow, State};
use crate::endpoint::{Endpoint, INDEX_BITS, with_association};
use crate::recovery::SentFrame;
use crate::{BodyKey, Config, Event, PeerId, Time};

/// Version of `spec/lanes.md` that is spoken here.
pub(crate) const LANES_VERSION: u8 = 1;
/// A lane asked for that has not come after this time never will.
const ASKED_FOR_NS: u64 = 3_000_000_000;

/// New limits of credit wait so long for a unit that takes them along.
const CREDIT_WAIT_NS: u64 = 50_000;

/// A connection is to be made to a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LaneNews {
    /// To whom.
    pub peer: PeerId,
    /// Where it listens.
    pub remote: SocketAddr,
    /// Our own address on that path, if it is known.
    pub local: Option<IpAddr>,
}

/// The payload of a unit, which follows its head on the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LaneUnit {
    /// The operation, as given in [`crate::Message::token`] or to `send_body`.
    pub token: u64,
    /// First byte of its payload.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

/// A unit whose payload is being read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitIn {
    /// What its bytes belong to.
    pub key: BodyKey,
    /// Place of the payload in it.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    total_len: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// There is none.
    None,
    /// One was asked for, of the driver or of the peer.
    Asked(Time),
    /// It carries units.
    Up(Time),
}

/// A unit handed to the connection and not acknowledged by TCP.
#[derive(Debug)]
struct OutUnit {
    flow: Flow,
    offset: u64,
    len: u32,
    /// Where it ends in the row of bytes that were handed out.
    end: u64,
}

/// The lane of an association.
#[derive(Debug)]
pub(crate) struct Lane {
    phase: Phase,
    /// Highest number greeted with.
    number: u32,
    /// What is to go by it.
    flows: VecDeque<Flow>,
    units: VecDeque<OutUnit>,
    /// Bytes handed to it, heads included.
    handed: u64,
    /// A LANE frame is to be sent.
    pub(crate) asks: bool,
    failures: u32,
    pause_until: Time,
    /// New limits of credit go in packets then, if no unit has taken them along.
    pub(crate) credit_at: Option<Time>,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            phase: Phase::None,
            number: 0,
            flows: VecDeque::new(),
            units: VecDeque::new(),
            handed: 0,
            asks: false,
            failures: 0,
            pause_until: Time::ZERO,
            credit_at: None,
        }
    }
}

impl Lane {
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(_))
    }

    fn begin(&mut self, now: Time) {
        self.phase = Phase::Up(now);
        self.handed = 0;
        self.asks = false;
    }

    /// It failed, or was not to be had.
    fn pause(&mut self, cfg: &Config, now: Time) {
        let (least, most) = (cfg.lane_pause.as_nanos() as u64, cfg.lane_pause_max.as_nanos() as u64);
        if matches!(self.phase, Phase::Up(since) if now.since_ns(since) >= most) {
            self.failures = 0;
        }
        self.pause_until = now.plus_ns((least << self.failures.min(16)).min(most));
        self.failures += 1;
    }
}

impl Association {
    /// A flow stands in line: for the lane if there is one and it is long enough, else for packets.
    pub(crate) fn push_flow(&mut self, cx: &mut Cx<'_>, flow: Flow, len: u64) {
        if self.peer.lanes && len >= u64::from(cx.cfg.lane_min_bytes) {
            if let Some(lane) = self.lane.as_mut().filter(|l| l.is_up()) {
                lane.flows.push_back(flow);
                return;
            }
            if self.lane_would_pay(cx.cfg) {
                self.want_lane(cx);
            }
        }
        self.flows.push_back(flow);
    }

    /// The network is one where TCP is at its best (spec/lanes.md 6).
    fn lane_would_pay(&self, cfg: &Config) -> bool {
        self.path().is_some_and(|p| {
            p.rtt.sampled
                && u128::from(p.rtt.base()) <= cfg.lane_rtt_max.as_nanos()
                && p.loss_ppm <= cfg.lane_loss_max_ppm
                && p.cc.rate() >= cfg.lane_min_rate
        })
    }

    /// New limits are to be told: by the next unit, if there is a lane, or soon.
    pub(crate) fn tell_credit(&mut self, now: Time) {
        match self.lane.as_mut().filter(|l| l.is_up()) {
            Some(lane) => _ = lane.credit_at.get_or_insert(now.plus_ns(CREDIT_WAIT_NS)),
            None => self.credit_dirty = true,
        }
    }

    /// Has a lane connected, by the driver or by the peer.
    fn want_lane(&mut self, cx: &mut Cx<'_>) {
        let Some(path) = self.path() else { return };
        let news = LaneNews { peer: self.id, remote: path.remote, local: path.local };
        let lane = self.lane.get_or_insert_with(Box::default);
        match lane.phase {
            Phase::Asked(at) if cx.now.since_ns(at) > ASKED_FOR_NS => {
                lane.pause(cx.cfg, cx.now);
                lane.phase = Phase::None;
            }
            Phase::None if lane.pause_until <= cx.now => {
                lane.phase = Phase::Asked(cx.now);
                if self.peer.connects {
                    cx.lane_news.push_back(news);
                } else {
                    lane.asks = true;
                }
            }
            Phase::None | Phase::Asked(_) | Phase::Up(_) => {}
        }
    }

    /// The peer, for which it is not to connect, wants a lane.
    pub(crate) fn on_lane_wanted(&mut self, cx: &mut Cx<'_>) {
        if self.peer.lanes && self.peer.connects {
            self.want_lane(cx);
        }
    }

    /// The LANE frame was lost.
    pub(crate) fn ask_for_lane(&mut self) {
        if let Some(lane) = self.lane.as_mut().filter(|l| matches!(l.phase, Phase::Asked(_))) {
            lane.asks = true;
        }
    }

    /// The next unit: its head is appended to `head`.
    fn next_unit(&mut self, cfg: &Config, head: &mut Vec<u8>) -> Option<LaneUnit> {
        let lane = self.lane.as_mut().filter(|l| l.is_up())?;
        let keys = &self.crypt.as_ref()?.keys;
        let most = u64::from(cfg.lane_unit_bytes.clamp(1, weir_wire::lane::UNIT_MAX));
        loop {
            let flow = lane.flows.pop_front()?;
            let (kind, envelope, token, from, end): (_, &[u8], _, _, _) = match flow {
                Flow::Message(mseq) => {
                    let Some(m) = self.out.matched.get(mseq) else { continue };
                    let (stream, sseq, total_len) = (m.stream, m.sseq, u64::from(m.len));
                    let kind = UnitKind::Message { stream, sseq, mseq, total_len };
                    (kind, m.envelope(), m.token, u64::from(m.sent), total_len)
                }
                Flow::Body(slot, generation) => {
                    let Some(b) = self.bodies_out.current(slot, generation) else { continue };
                    (UnitKind::Body(b.handle), &[], b.token, b.sent, b.granted)
                }
            };
            let to = end.min(from.saturating_add(most));
            let len = to.saturating_sub(from) as u32;
            let start = head.len();
            if len > 0 {
                let (msgs, bytes_limit) = self.inn.advertise();
                let credit = Credit { msgs_limit: msgs as u32, bytes_limit };
                (lane.credit_at, self.credit_dirty) = (None, false);
                UnitHead { kind, offset: from, len, credit }.write(envelope, |a, b| keys.send.unit_crc(a, b), head);
            }
            match flow {
                Flow::Message(mseq) => self.out.matched.advance(mseq, to as u32),
                Flow::Body(slot, _) => {
                    if let Some(b) = self.bodies_out.get_mut(slot) {
                        b.sent = to;
                        b.queued = to < end;
                    }
                }
            }
            if len == 0 {
                continue;
            }
            if to < end {
                // The others of this lane have their turn in between.
                lane.flows.push_back(flow);
            }
            lane.handed += (head.len() - start) as u64 + u64::from(len);
            lane.units.push_back(OutUnit { flow, offset: from, len, end: lane.handed });
            return Some(LaneUnit { token, offset: from, len });
        }
    }

    /// TCP has acknowledged so many of the bytes that were handed out.
    fn lane_acked(&mut self, cx: &mut Cx<'_>, bytes: u64, events: &mut Vec<Event>) {
        while let Some(lane) = self.lane.as_mut()
            && lane.units.front().is_some_and(|u| u.end <= bytes)
            && let Some(u) = lane.units.pop_front()
        {
            let done = match u.flow {
                Flow::Message(mseq) => self.out.matched.acked(mseq, u.offset as u32, u.len),
                Flow::Body(slot, generation) => {
                    let t = self.bodies_out.acked(slot, generation, u.offset, u64::from(u.len));
                    cx.counters.bodies_sent += u64::from(t.is_some());
                    t
                }
            };
            cx.counters.lane_units_sent += 1;
            cx.counters.lane_bytes_sent += u64::from(u.len);
            if let Some(token) = done {
                events.push(Event::Sent { peer: self.id, token });
            }
        }
    }

    /// The lane is over: what it had and what it was to have goes in packets.
    fn end_lane(&mut self, cx: &mut Cx<'_>, failed: bool) {
        let Some(lane) = self.lane.as_mut() else { return };
        if failed {
            cx.counters.lanes_failed += 1;
            lane.pause(cx.cfg, cx.now);
        }
        lane.phase = Phase::None;
        lane.asks = false;
        // What the last heads said of credit may have gone with them.
        lane.credit_at = None;
        self.credit_dirty = true;
        for u in core::mem::take(&mut lane.units) {
            // A range to be sent again is at most as long as a packet can be.
            let mut at = u.offset;
            let end = u.offset + u64::from(u.len);
            while at < end {
                let len = (end - at).min(u64::from(u16::MAX)) as u16;
                self.lost.push_back(match u.flow {
                    Flow::Message(mseq) => SentFrame::Message { mseq, offset: at as u32, len },
                    Flow::Body(slot, generation) => SentFrame::Body { slot, generation, offset: at, len },
                });
                at += u64::from(len);
            }
        }
        self.flows.extend(core::mem::take(&mut lane.flows));
    }

    /// Closing waits for the lane alone.
    fn lane_may_close(&self) -> bool {
        self.closing.is_some() && !self.has_open()
    }

    /// The lane has not been read to its end by the peer.
    pub(crate) fn has_lane(&self) -> bool {
        self.lane.as_ref().is_some_and(|l| l.is_up())
    }

    /// A unit begins to come.
    fn unit_begins(&mut self, cx: &mut Cx<'_>, bytes: &[u8], events: &mut Vec<Event>) -> Result<UnitIn, &'static str> {
        let keys = &self.crypt.as_ref().ok_or("unit before keys")?.keys;
        let head = UnitHead::read(bytes, |a, b| keys.recv.unit_crc(a, b)).ok_or("malformed unit on a lane")?;
        self.out.raise_limits(head.credit.msgs_limit, head.credit.bytes_limit);
        self.admit(cx);
        let mut unit = UnitIn { key: head.key(), offset: head.offset, len: head.len, total_len: 0 };
        match head.kind {
            UnitKind::Message { stream, sseq, mseq, total_len } => {
                if stream >= crate::STREAMS_MAX {
                    return Err("stream number too high");
                }
                let total_len = u32::try_from(total_len).map_err(|_| "message too long")?;
                unit.total_len = total_len;
                if self.inn.announce(mseq, total_len)? == Some(true) {
                    cx.counters.messages_received += 1;
                    events.push(Event::Message {
                        peer: self.id,
                        control: false,
                        stream,
                        mseq,
                        sseq,
                        total_len,
                        offset: head.offset as u32,
                        envelope: UNIT_HEAD_LEN..bytes.len(),
                        payload: 0..0,
                        first: true,
                        complete: false,
                    });
                }
            }
            UnitKind::Body(handle) => {
                let end = head.offset + u64::from(head.len);
                if self.bodies_in.get(handle).is_some_and(|b| end > b.granted) {
                    return Err("body fragment beyond its grant");
                }
            }
        }
        Ok(unit)
    }

    /// All bytes of a unit are in their place.
    fn unit_ends(&mut self, cx: &mut Cx<'_>, unit: &UnitIn, events: &mut Vec<Event>) -> Result<(), &'static str> {
        cx.counters.lane_units_received += 1;
        cx.counters.lane_bytes_received += u64::from(unit.len);
        let fresh = self.placed(cx, unit.key, unit.total_len, unit.offset, unit.len, events)?;
        cx.counters.duplicate_bytes += u64::from(unit.len) - fresh;
        if matches!(unit.key, BodyKey::Body(_)) {
            let base = self.path().map_or(0, |p| p.rtt.base());
            cx.grants.measure(cx.now, fresh, 1, 0, base);
        }
        Ok(())
    }
}

impl Endpoint {
    /// A lane to be connected: make a TCP connection, send [`Endpoint::lane_greeting`] and hand the answer to
    /// [`Endpoint::lane_answered`]; if that cannot be done, call [`Endpoint::lane_over`].
    pub fn take_lane_news(&mut self) -> Option<LaneNews> {
        self.lane_news.pop_front()
    }

    /// The greeting of a new lane to this peer, and the lane's number. `None`: it is not wanted any more.
    pub fn lane_greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        let a = self.assocs.get_mut(peer.0 as usize).filter(|a| a.state == State::Up && a.peer.connects)?;
        let key = &a.crypt.as_ref()?.keys.lane;
        let lane = a.lane.as_mut().filter(|l| matches!(l.phase, Phase::Asked(_)))?;
        lane.number += 1;
        Some((lane.number, Greeting { lane: lane.number, association: a.remote_id }.write(key)))
    }

    /// A greeting came on a connection of a stranger. If it is good: whose it is, the lane's number and the answer; the lane is up,
    /// and one that was up before is over (its connection is still to be read to its end).
    pub fn lane_greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let answered = self.greeted(now, bytes);
        match &answered {
            Some((peer, ..)) => {
                self.counters.lanes_opened += 1;
                self.touch(*peer);
            }
            None => self.counters.lane_greetings_refused += 1,
        }
        answered
    }

    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let greeting = Greeting::read(bytes)?;
        let peer = PeerId(greeting.association as u32 & ((1 << INDEX_BITS) - 1));
        let (a, mut cx) = with_association!(self, peer, now)?;
        let is_ours = a.state == State::Up && a.local_id == greeting.association;
        if !is_ours || !a.peer.lanes || a.peer.connects {
            return None;
        }
        let key = a.crypt.as_ref()?.keys.lane.clone();
        let used = a.lane.as_ref().is_some_and(|l| greeting.lane <= l.number);
        if used || !Greeting::is_genuine(bytes, &key) {
            return None;
        }
        a.end_lane(&mut cx, false);
        let lane = a.lane.get_or_insert_with(Box::default);
        lane.number = greeting.lane;
        lane.begin(now);
        let answer = Greeting { lane: greeting.lane, association: a.remote_id }.write(&key);
        Some((peer, greeting.lane, answer))
    }

    /// The answer to our greeting came. False if it is not good: close the connection.
    pub fn lane_answered(&mut self, now: Time, peer: PeerId, lane: u32, bytes: &[u8; GREETING_LEN]) -> bool {
        let good = self.assocs.get_mut(peer.0 as usize).is_some_and(|a| {
            let want = Greeting { lane, association: a.local_id };
            let genuine = a.crypt.as_ref().is_some_and(|c| Greeting::is_genuine(bytes, &c.keys.lane));
            let ours = |l: &&mut Box<Lane>| l.number == lane && matches!(l.phase, Phase::Asked(_));
            if a.state != State::Up || Greeting::read(bytes) != Some(want) || !genuine {
                return false;
            }
            a.lane.as_mut().filter(ours).map(|l| l.begin(now)).is_some()
        });
        if good {
            self.counters.lanes_opened += 1;
        } else {
            self.counters.lane_greetings_refused += 1;
        }
        good
    }

    /// Whether so long a message or body to this peer may go by a lane, now or later.
    #[must_use]
    pub fn may_go_by_lane(&self, peer: PeerId, len: u64) -> bool {
        let takes = self.assocs.get(peer.0 as usize).is_some_and(|a| a.peer.lanes || (self.cfg.lanes && a.state != State::Up));
        takes && len >= u64::from(self.cfg.lane_min_bytes)
    }

    /// Whether the peer has a lane that carries units.
    #[must_use]
    pub fn has_lane(&self, peer: PeerId) -> bool {
        self.assocs.get(peer.0 as usize).is_some_and(|a| a.has_lane())
    }

    /// Whether this lane carries units.
    #[must_use]
    pub fn lane_is_up(&self, peer: PeerId, lane: u32) -> bool {
        let l = self.assocs.get(peer.0 as usize).and_then(|a| a.lane.as_ref());
        l.is_some_and(|l| l.number == lane && l.is_up())
    }

    /// The next unit for the peer's lane: its head is appended to `head`, its payload is to follow. Call when the last one was written.
    pub fn lane_next(&mut self, peer: PeerId, lane: u32, head: &mut Vec<u8>) -> Option<LaneUnit> {
        let a = self.assocs.get_mut(peer.0 as usize)?;
        if a.lane.as_ref()?.number != lane {
            return None;
        }
        a.next_unit(&self.cfg, head)
    }

    /// The peer's TCP has acknowledged the first `bytes` bytes of the units that [`Endpoint::lane_next`] gave out for this lane.
    pub fn lane_acked(&mut self, now: Time, peer: PeerId, lane: u32, bytes: u64, events: &mut Vec<Event>) {
        if let Some((a, mut cx)) = with_association!(self, peer, now)
            && a.lane.as_ref().is_some_and(|l| l.number == lane)
        {
            a.lane_acked(&mut cx, bytes, events);
            self.touch(peer);
        }
    }

    /// The endpoint closes and this lane has carried all it was given: end writing, and say [`Endpoint::lane_over`] when the peer has ended too. What TCP has
    /// acknowledged the peer may not have read, and our farewell must not overtake it.
    #[must_use]
    pub fn lane_closes(&self, peer: PeerId, lane: u32) -> bool {
        self.lane_is_up(peer, lane) && self.assocs[peer.0 as usize].lane_may_close()
    }

    /// Nothing more goes by this lane (its number; that of one that was never greeted is that of the one asked for): what TCP has
    /// not acknowledged is sent in packets. `failed`: the next one is a while off.
    pub fn lane_over(&mut self, now: Time, peer: PeerId, lane: u32, failed: bool) {
        if let Some((a, mut cx)) = with_association!(self, peer, now)
            && a.lane.as_ref().is_some_and(|l| l.number == lane && l.phase != Phase::None)
        {
            a.end_lane(&mut cx, failed);
            self.touch(peer);
        }
    }

    /// A unit's head with its envelope came on a lane of this peer. `None`: the peer broke a rule and is down. Otherwise the driver
    /// reads the payload into its place, as the events told it or tell it now, or nowhere if it knows of none, then calls
    /// [`Endpoint::unit_ends`]. Ranges of events index `bytes`.
    pub fn unit_begins(&mut self, now: Time, peer: PeerId, bytes: &[u8], events: &mut Vec<Event>) -> Option<UnitIn> {
        let (a, mut cx) = with_association!(self, peer, now)?;
        if a.state != State::Up {
            return None;
        }
        let unit = a.unit_begins(&mut cx, bytes, events).map_err(|why| a.violated(&mut cx, why, events)).ok();
        self.touch(peer);
        unit
    }

    /// All of the unit's payload was read. An event whose operation is complete by it has an empty payload (and envelope).
    pub fn unit_ends(&mut self, now: Time, peer: PeerId, unit: &UnitIn, events: &mut Vec<Event>) {
        let Some((a, mut cx)) = with_association!(self, peer, now) else { return };
        if a.state == State::Up
            && let Err(why) = a.unit_ends(&mut cx, unit, events)
        {
            a.violated(&mut cx, why, events);
        }
        self.touch(peer);
    }
}
