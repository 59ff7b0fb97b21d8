//! Lanes: large payload by a TCP connection while the network is at its best (spec/lanes.md).
//!
//! The driver owns the connection; this file says when to make one, what goes by it, and what becomes of it when it ends.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;
use weir_session::{Flow, Fragment, FragmentIn, Line};
use weir_wire::frame::{self, Credit};
use weir_wire::lane::{GREETING_LEN, Greeting, UNIT_HEAD_LEN, UnitError, UnitHead, UnitKind};

use crate::association::{Association, Cx, State};
use crate::endpoint::{Endpoint, INDEX_BITS, with_association};
use crate::{BodyKey, Config, Event, PeerId, Time};

/// Version of `spec/lanes.md` that is spoken here.
pub(crate) const LANES_VERSION: u8 = 2;
/// A lane asked for that has not come after this time never will.
const ASKED_FOR_NS: u64 = 3_000_000_000;

/// What was read waits so long for one: about as a program takes to answer, and no longer than a sender can be left waiting that does nothing else.
const TELL_WAIT_NS: u64 = 20_000;
/// So many bytes are told of at once.
const TELL_BYTES: u64 = 1 << 20;
/// After so many units in a row that were answered in time the next one's answer is waited for too. One that was not, and it is told at once again: the packet costs two
/// microseconds, and a program that leaves without an answer has the peer wait for the watchdog.
const ANSWERS_LEARNT: u8 = 4;

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
    /// Its bytes on the lane.
    size: u64,
    /// Its sender may wait to hear that it was read.
    tell: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// There is none.
    None,
    /// One was asked for then, of the driver or of the peer.
    Asked(Time),
    /// The driver has greeted with its number; asked for then.
    Greeted(Time),
    /// It carries units.
    Up(Time),
}

/// A unit handed to the connection that the peer has not told to have read.
#[derive(Debug)]
struct OutUnit {
    fragment: Fragment,
    len: u32,
    /// Where it ends in the row of bytes that were handed out.
    end: u64,
}

/// The lane of an association.
#[derive(Debug)]
pub(crate) struct Lane {
    phase: Phase,
    /// Highest number greeted with, or told by the peer to be over.
    number: u32,
    /// Highest number of one that is over here, as the peer is to know (0: none was).
    over: u32,
    /// The lane that is up, or the last that was: what stands below of bytes, units and telling is of it.
    last: u32,
    /// When it is over they go in packets, unless the peer still tells to have read them: so it does when it closes.
    units: VecDeque<OutUnit>,
    /// Bytes handed to it, heads included.
    handed: u64,
    /// Of these the peer has told to have read.
    read_there: u64,
    /// Bytes of complete units read of it here, how many of these the peer was told of, and when the rest is to be told in a packet if no unit has done so.
    read: u64,
    told: u64,
    tell_at: Option<Time>,
    /// Somebody waits to hear of a unit that was handed out, and no head has said so.
    wants_tell: bool,
    /// When a unit was complete that the peer wants told and nothing has been sent since; and how many of these in a row were answered in time.
    unanswered: Option<Time>,
    answers: u8,
    /// A LANE frame that asks for a lane is to be sent.
    pub(crate) asks: bool,
    failures: u32,
    pause_until: Time,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            phase: Phase::None,
            number: 0,
            over: 0,
            last: 0,
            units: VecDeque::new(),
            handed: 0,
            read_there: 0,
            read: 0,
            told: 0,
            tell_at: None,
            wants_tell: false,
            unanswered: None,
            answers: 0,
            asks: false,
            failures: 0,
            pause_until: Time::ZERO,
        }
    }
}

impl Lane {
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(_))
    }

    fn begin(&mut self, now: Time) {
        self.phase = Phase::Up(now);
        self.last = self.number;
        self.units = VecDeque::new();
        (self.handed, self.read_there, self.read, self.told, self.tell_at) = (0, 0, 0, 0, None);
        (self.wants_tell, self.unanswered, self.answers) = (false, None, 0);
        self.asks = false;
    }

    /// How far this lane, or the last one, was read.
    fn told_last(&self) -> Option<frame::Lane> {
        (self.read > 0).then_some(frame::Lane { lane: self.last, read: self.read, over: false })
    }

    /// A unit was read. `wanted`: somebody waits to hear of it, and its sender has no more in line.
    fn has_read(&mut self, now: Time, size: u64, wanted: bool) {
        self.read += size;
        if wanted && self.unanswered.replace(now).is_some() {
            self.answers = 0;
        }
        let at_once = self.read - self.told >= TELL_BYTES || (wanted && self.answers < ANSWERS_LEARNT);
        let at = now.plus_ns(if at_once { 0 } else { TELL_WAIT_NS });
        self.tell_at = Some(self.tell_at.map_or(at, |t| t.min(at)));
    }

    /// Something of the program's goes to the peer.
    fn answers(&mut self, now: Time) {
        if let Some(since) = self.unanswered.take() {
            let in_time = now.since_ns(since) <= TELL_WAIT_NS;
            self.answers = if in_time { (self.answers + 1).min(ANSWERS_LEARNT) } else { 0 };
        }
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

/// What is wrong with a unit.
enum Wrong {
    /// Its head is not what was sent: TCP's checksum is short, and lets a change through now and then.
    Damaged,
    /// The peer broke a rule.
    Rule(&'static str),
}

impl From<&'static str> for Wrong {
    fn from(why: &'static str) -> Wrong {
        Wrong::Rule(why)
    }
}

impl Association {
    /// Something that would go by a lane stands in line: one is made, if it would pay.
    pub(crate) fn consider_lane(&mut self, cx: &mut Cx<'_>) {
        if cx.s.take_bulk_wanted() && self.lane_would_pay(cx.cfg) {
            self.want_lane(cx);
        }
    }

    /// The network is one where TCP is at its best (spec/lanes.md 6).
    fn lane_would_pay(&self, cfg: &Config) -> bool {
        self.path().is_some_and(|p| {
            p.rtt.sampled
                && u128::from(p.rtt.base()) <= cfg.lane_rtt_max.as_nanos()
                && p.loss_ppm <= cfg.lane_loss_max_ppm
                && p.seen_rate() >= cfg.lane_min_rate
        })
    }

    /// Has a lane connected, by the driver or by the peer.
    fn want_lane(&mut self, cx: &mut Cx<'_>) {
        let Some(path) = self.path() else { return };
        let news = LaneNews { peer: self.id, remote: path.remote, local: path.local };
        let lane = self.lane.get_or_insert_with(Box::default);
        match lane.phase {
            Phase::Asked(at) | Phase::Greeted(at) if cx.now.since_ns(at) > ASKED_FOR_NS => {
                // The peer makes pauses of its own, of which it says nothing.
                let failed = self.peer.connects;
                self.end_lane(cx, failed);
            }
            Phase::None if lane.pause_until <= cx.now => {
                lane.phase = Phase::Asked(cx.now);
                if self.peer.connects {
                    cx.lane_news.push_back(news);
                } else {
                    lane.asks = true;
                }
            }
            Phase::None | Phase::Asked(_) | Phase::Greeted(_) | Phase::Up(_) => {}
        }
    }

    /// A LANE frame: the peer, for which it is not to connect, wants one, or says how far it has read, or that this was all.
    pub(crate) fn on_lane_frame(
        &mut self,
        cx: &mut Cx<'_>,
        f: frame::Lane,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        if f.lane != 0 {
            self.lane_told(cx, f.lane, f.read, events)?;
            return if f.over { self.lane_over_there(cx, f) } else { Ok(()) };
        }
        if self.peer.lanes && self.peer.connects {
            self.want_lane(cx);
        }
        Ok(())
    }

    /// The peer has given up this lane and all before it (spec/lanes.md 5).
    fn lane_over_there(&mut self, cx: &mut Cx<'_>, f: frame::Lane) -> Result<(), &'static str> {
        if !self.peer.lanes {
            return Ok(());
        }
        let connects = self.peer.connects;
        let lane = self.lane.get_or_insert_with(Box::default);
        if f.lane > lane.last && f.read > 0 {
            return Err("more read of a lane than was sent");
        }
        if f.lane > lane.number {
            if connects {
                return Err("over is a lane that never was");
            }
            // Its greeting, which this has overtaken, is not to be taken any more.
            lane.number = f.lane;
        } else if f.lane < lane.number || !matches!(lane.phase, Phase::Greeted(_) | Phase::Up(_)) {
            return Ok(());
        }
        if lane.phase != Phase::None {
            self.end_lane(cx, true);
        }
        Ok(())
    }

    /// A LANE frame was lost: what is true now is said again.
    pub(crate) fn repeat_lane_frame(&mut self, now: Time) {
        if let Some(lane) = self.lane.as_mut() {
            lane.asks = matches!(lane.phase, Phase::Asked(_)) && !self.peer.connects;
            lane.told = 0;
            if lane.is_up() || lane.over > 0 {
                lane.tell_at = Some(now);
            }
        }
    }

    /// What the lane has to say in the packet that is being written.
    pub(crate) fn lane_frame(&mut self) -> Option<frame::Lane> {
        let lane = self.lane.as_mut()?;
        if core::mem::take(&mut lane.asks) {
            return Some(frame::Lane::default());
        }
        lane.tell_at.take()?;
        lane.told = lane.read;
        if lane.is_up() {
            return Some(frame::Lane { lane: lane.last, read: lane.read, over: false });
        }
        let read = if lane.over == lane.last { lane.read } else { 0 };
        Some(frame::Lane { lane: lane.over, read, over: true })
    }

    /// What a CLOSE says of the lane: for the peer it is the last word, and what it does not know to have been read fails there.
    pub(crate) fn last_lane_frame(&self) -> Option<frame::Lane> {
        self.lane.as_ref().map_or(self.closed_lane, |lane| lane.told_last())
    }

    /// When the lane has something to say in a packet.
    pub(crate) fn lane_due(&self) -> Option<Time> {
        let lane = self.lane.as_ref()?;
        if lane.asks { Some(Time::ZERO) } else { lane.tell_at }
    }

    /// A packet with messages or bodies is written: that answers what was read of the lane.
    #[inline]
    pub(crate) fn lane_answers(&mut self, now: Time) {
        if let Some(lane) = self.lane.as_mut() {
            lane.answers(now);
        }
    }

    /// The next unit: its head is appended to `head`.
    fn next_unit(&mut self, cx: &mut Cx<'_>, head: &mut Vec<u8>) -> Option<LaneUnit> {
        let lane = self.lane.as_mut().filter(|l| l.is_up())?;
        let keys = &self.crypt.as_ref()?.keys;
        let most = u64::from(cx.cfg.lane_unit_bytes.clamp(1, weir_wire::lane::UNIT_MAX));
        let piece = cx.s.next_flow(Line::Bulk)?;
        let to = piece.to.min(piece.from.saturating_add(most));
        let fragment = Fragment::of(piece.flow, piece.from, to);
        // Taken first: what is behind it in the line decides whether it is to be told of.
        if !cx.s.took_flow(Line::Bulk, to) {
            // The others of this lane have their turn in between.
            cx.s.end_turn(Line::Bulk);
        }
        let last = cx.s.next_flow(Line::Bulk).is_none();
        let (kind, envelope, token, patient): (_, &[u8], _, _) = match piece.flow {
            Flow::Message(mseq) => {
                let m = cx.s.message(mseq)?;
                let (stream, sseq, total_len) = (m.stream, m.sseq, u64::from(m.len));
                (UnitKind::Message { stream, sseq, mseq, total_len }, m.envelope(), m.token, m.patient)
            }
            Flow::Body(slot, generation) => {
                let b = cx.s.body(slot, generation)?;
                (UnitKind::Body(b.handle), &[], b.token, false)
            }
        };
        let (len, start) = ((to - piece.from) as u32, head.len());
        lane.told = lane.read;
        lane.tell_at = None;
        lane.answers(cx.now);
        lane.wants_tell |= !patient && to == piece.to;
        let tell = lane.wants_tell && to == piece.to && last;
        lane.wants_tell &= !tell;
        let envelope: SmallVec<[u8; 48]> = SmallVec::from_slice(envelope);
        let (msgs, bytes_limit) = cx.s.credit_told();
        let credit = Credit { msgs_limit: msgs as u32, bytes_limit };
        UnitHead { kind, offset: piece.from, len, credit, read: lane.read, tell }.write(
            &envelope,
            |a, b| keys.send.unit_crc(a, b),
            head,
        );
        lane.handed += (head.len() - start) as u64 + u64::from(len);
        lane.units.push_back(OutUnit { fragment, len, end: lane.handed });
        Some(LaneUnit { token, offset: piece.from, len })
    }

    /// The peer has read so many of the bytes that were handed out.
    fn lane_told(
        &mut self,
        cx: &mut Cx<'_>,
        number: u32,
        read: u64,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        // Of the last one, too, if it is over: what is told now need not go in packets, or has arrived though its packets never will.
        let Some(lane) = self.lane.as_mut().filter(|l| l.last == number) else { return Ok(()) };
        if read > lane.handed {
            return Err("more read of a lane than was sent");
        }
        lane.read_there = lane.read_there.max(read);
        while lane.units.front().is_some_and(|u| u.end <= read)
            && let Some(u) = lane.units.pop_front()
        {
            let done = cx.s.arrived(cx.common, &u.fragment);
            cx.counters.lane_units_sent += 1;
            cx.counters.lane_bytes_sent += u64::from(u.len);
            if let Some(token) = done {
                events.push(Event::Sent { peer: self.id, token });
            }
        }
        lane.wants_tell &= !lane.units.is_empty();
        Ok(())
    }

    /// The lane is over: what it had and what it was to have goes in packets.
    fn end_lane(&mut self, cx: &mut Cx<'_>, failed: bool) {
        let Some(lane) = self.lane.as_mut() else { return };
        if failed {
            cx.counters.lanes_failed += 1;
            lane.pause(cx.cfg, cx.now);
        }
        lane.asks = false;
        match core::mem::replace(&mut lane.phase, Phase::None) {
            Phase::None | Phase::Asked(_) => return,
            // The peer may have it up.
            Phase::Greeted(_) => {
                (lane.over, lane.tell_at) = (lane.number, Some(cx.now));
                return;
            }
            // That of the connection may not get there: perhaps it is the network that ended it.
            Phase::Up(_) => (lane.over, lane.tell_at) = (lane.last, Some(cx.now)),
        }
        for u in &lane.units {
            cx.s.lost(u.fragment);
        }
        cx.s.bulk_ends(cx.common);
    }

    /// Nothing is open, so nothing that a former lane had is either.
    pub(crate) fn forget_lane_units(&mut self) {
        if let Some(lane) = self.lane.as_mut().filter(|l| !l.is_up()) {
            lane.units = VecDeque::new();
        }
    }

    /// There is a lane, and it carries units.
    pub(crate) fn has_lane(&self) -> bool {
        self.lane.as_ref().is_some_and(|l| l.is_up())
    }

    fn unit_head(&self, bytes: &[u8]) -> Result<UnitHead, Wrong> {
        let keys = &self.crypt.as_ref().ok_or("unit before keys")?.keys;
        UnitHead::read(bytes, |a, b| keys.recv.unit_crc(a, b)).map_err(|e| match e {
            UnitError::Damaged => Wrong::Damaged,
            UnitError::Malformed => Wrong::Rule("malformed unit on a lane"),
        })
    }

    /// What the head of a unit says of what we sent.
    fn unit_tells(&mut self, cx: &mut Cx<'_>, lane: u32, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Wrong> {
        let head = self.unit_head(bytes)?;
        self.lane_told(cx, lane, head.read, events)?;
        cx.s.on_credit(cx.common, head.credit.msgs_limit, head.credit.bytes_limit);
        Ok(())
    }

    /// A unit begins to come.
    fn unit_begins(&mut self, cx: &mut Cx<'_>, bytes: &[u8], events: &mut Vec<Event>) -> Result<UnitIn, Wrong> {
        let head = self.unit_head(bytes)?;
        let size = bytes.len() as u64 + u64::from(head.len);
        let mut unit =
            UnitIn { key: head.key(), offset: head.offset, len: head.len, total_len: 0, size, tell: head.tell };
        match head.kind {
            UnitKind::Message { stream, sseq, mseq, total_len } => {
                unit.total_len = u32::try_from(total_len).map_err(|_| "message too long")?;
                let offset = head.offset as u32;
                let fragment = FragmentIn { stream, mseq, sseq, total_len: unit.total_len, offset };
                cx.s.announce(cx.common, &fragment, UNIT_HEAD_LEN..bytes.len(), events)?;
            }
            UnitKind::Body(handle) => {
                if !cx.s.may_arrive(handle, head.offset + u64::from(head.len)) {
                    return Err(Wrong::Rule("body fragment beyond its grant"));
                }
            }
        }
        Ok(unit)
    }

    /// All bytes of a unit are in their place.
    fn unit_ends(&mut self, cx: &mut Cx<'_>, unit: &UnitIn, events: &mut Vec<Event>) -> Result<(), Wrong> {
        if let Some(lane) = self.lane.as_mut() {
            lane.has_read(cx.now, unit.size, unit.tell);
        }
        cx.counters.lane_units_received += 1;
        cx.counters.lane_bytes_received += u64::from(unit.len);
        let fresh = cx.s.placed(cx.common, cx.now, unit.key, unit.total_len, unit.offset, unit.len, events)?;
        cx.common.counters.duplicate_bytes += u64::from(unit.len) - fresh;
        if matches!(unit.key, BodyKey::Body(_)) {
            let base = self.path().map_or(0, |p| p.rtt.base());
            cx.common.grants.measure(cx.now, self.id, fresh, 0, base);
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
        let lane = a.lane.as_mut()?;
        let Phase::Asked(at) = lane.phase else { return None };
        lane.phase = Phase::Greeted(at);
        lane.number += 1;
        Some((lane.number, Greeting { lane: lane.number, association: a.remote_id }.write(key)))
    }

    /// A greeting came on a connection of a stranger. If it is good: whose it is, the lane's number and the answer; the lane is up,
    /// and one that was up before is over: its connection is dropped, read or not (spec/lanes.md 5).
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
        let used = a.lane.as_ref().is_some_and(|l| greeting.lane <= l.number || l.pause_until > now);
        if used || !Greeting::is_genuine(bytes, &key) {
            return None;
        }
        a.end_lane(&mut cx, false);
        let lane = a.lane.get_or_insert_with(Box::default);
        lane.number = greeting.lane;
        lane.begin(now);
        cx.s.bulk_begins();
        let answer = Greeting { lane: greeting.lane, association: a.remote_id }.write(&key);
        Some((peer, greeting.lane, answer))
    }

    /// The answer to our greeting came. False if it is not good: close the connection.
    pub fn lane_answered(&mut self, now: Time, peer: PeerId, lane: u32, bytes: &[u8; GREETING_LEN]) -> bool {
        let good = with_association!(self, peer, now).is_some_and(|(a, cx)| {
            let want = Greeting { lane, association: a.local_id };
            let genuine = a.crypt.as_ref().is_some_and(|c| Greeting::is_genuine(bytes, &c.keys.lane));
            let ours = |l: &&mut Box<Lane>| l.number == lane && matches!(l.phase, Phase::Greeted(_));
            if a.state != State::Up || Greeting::read(bytes) != Some(want) || !genuine {
                return false;
            }
            let begun = a.lane.as_mut().filter(ours).map(|l| l.begin(now)).is_some();
            if begun {
                cx.s.bulk_begins();
            }
            begun
        });
        if good {
            self.counters.lanes_opened += 1;
        } else {
            self.counters.lane_greetings_refused += 1;
        }
        good
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
    pub fn lane_next(&mut self, now: Time, peer: PeerId, lane: u32, head: &mut Vec<u8>) -> Option<LaneUnit> {
        let (a, mut cx) = with_association!(self, peer, now)?;
        if a.lane.as_ref()?.number != lane {
            return None;
        }
        a.next_unit(&mut cx, head)
    }

    /// Whether something was handed to this lane that the peer has not told to have read: then how far it has.
    #[must_use]
    pub fn lane_waits(&self, peer: PeerId, lane: u32) -> Option<u64> {
        let l = self.assocs.get(peer.0 as usize).and_then(|a| a.lane.as_ref());
        l.filter(|l| l.number == lane && l.is_up() && !l.units.is_empty()).map(|l| l.read_there)
    }

    /// Nothing more goes by this lane, which is up or was greeted with: what the peer has not told to have read is sent in packets, in which it hears of the end as well.
    /// It counts as a failure, after which the next one is a while off.
    pub fn lane_over(&mut self, now: Time, peer: PeerId, lane: u32) {
        if let Some((a, mut cx)) = with_association!(self, peer, now)
            && a.lane.as_ref().is_some_and(|l| l.number == lane && matches!(l.phase, Phase::Greeted(_) | Phase::Up(_)))
        {
            a.end_lane(&mut cx, true);
            self.touch(peer);
        }
    }

    /// A unit's head with its envelope came on this lane of the peer: acts on what it says of units that went the other way (the first of two steps, so that the
    /// driver can see first to what has ended, before [`Endpoint::unit_begins`]). False: the head is not what was sent, or the lane is over, and it is to be dropped; or the peer
    /// broke a rule and is down.
    pub fn unit_tells(&mut self, now: Time, peer: PeerId, lane: u32, bytes: &[u8], events: &mut Vec<Event>) -> bool {
        self.lane_is_up(peer, lane)
            && self.of_unit(now, peer, events, |a, cx, events| a.unit_tells(cx, lane, bytes, events)).is_some()
    }

    /// The unit begins. `None`: the peer broke a rule and is down. Otherwise the driver reads the payload into its place, as the events told it or tell it now, or
    /// nowhere if it knows of none, then calls [`Endpoint::unit_ends`]. Ranges of events index `bytes`.
    pub fn unit_begins(&mut self, now: Time, peer: PeerId, bytes: &[u8], events: &mut Vec<Event>) -> Option<UnitIn> {
        self.of_unit(now, peer, events, |a, cx, events| a.unit_begins(cx, bytes, events))
    }

    /// All of the unit's payload was read. An event whose operation is complete by it has an empty payload (and envelope). What was read of a lane that is over counts for nothing.
    pub fn unit_ends(&mut self, now: Time, peer: PeerId, lane: u32, unit: &UnitIn, events: &mut Vec<Event>) {
        if self.lane_is_up(peer, lane) {
            self.of_unit(now, peer, events, |a, cx, events| a.unit_ends(cx, unit, events));
        }
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
            Wrong::Damaged => cx.counters.lane_heads_damaged += 1,
            Wrong::Rule(why) => a.violated(&mut cx, why, events),
        });
        self.touch(peer);
        result.ok()
    }
}
