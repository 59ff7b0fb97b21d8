//! The connections of a rank's lanes: the driver that ships (`core/bulk`), lent the simulated network and the rank's messages; and greetings sent once more, as somebody on the way might.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weir_bulk::{Broken, Head, Limits, NotMade, Read, Surroundings};
use weir_link::{Endpoint, GREETING_LEN, LANE_GREETING_NS, LaneNews, LaneUnit, PeerId, Time, UnitIn};
use weir_message::{Memory, Room};

use super::{Core, Shared, address, place};
use crate::planted::Defect;
use crate::rng::Rng;
use crate::spec::Ns;
use crate::tcp::{Arrived, Socket};
use crate::world::Host;

/// As the engine has it; less in a turn, so that turns end in the middle of units.
const LIMITS: Limits = Limits { conns: 1024, turn_bytes: 256 << 10 };
/// Bytes moved by one call.
const CALL_BYTES: usize = 64 << 10;

/// All of a rank.
pub(super) struct Lanes {
    /// Some may be taken; else nothing is listened to.
    on: bool,
    /// None if not, and while it works.
    driver: Option<weir_bulk::Lanes<Socket>>,
    /// When to look for connections, for some wait.
    accept_at: Option<Ns>,
    /// The system says what the network loses.
    sees_losses: bool,
    /// Chance that a used greeting is sent again, and those that are.
    replays: u32,
    rng: Rng,
    /// What this rank greeted with, and whether it was answered: else the peer may still take it.
    greetings: BTreeMap<(PeerId, u32), ([u8; GREETING_LEN], bool)>,
    replayed: Vec<Replay>,
    /// Units being read.
    units: BTreeMap<(PeerId, u32), UnitIn>,
    scratch: Vec<u8>,
}

/// A greeting that was used is sent once more.
struct Replay {
    io: Socket,
    since: Ns,
    greeting: [u8; GREETING_LEN],
    sent: bool,
}

/// What the driver is lent.
struct Lent<'a, 'h> {
    core: &'a mut Core,
    host: &'a mut Host<'h, Shared>,
}

impl Lanes {
    pub(super) fn new(shared: &Shared, endpoint_id: u64) -> Lanes {
        let spec = shared.lanes.clone().unwrap_or_default();
        Lanes {
            on: shared.lanes.is_some(),
            driver: shared.lanes.is_some().then(|| weir_bulk::Lanes::new(LIMITS)),
            accept_at: None,
            sees_losses: spec.sees_losses,
            replays: spec.replays,
            rng: Rng::new(endpoint_id, u64::MAX - 3),
            greetings: BTreeMap::new(),
            replayed: Vec::new(),
            units: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Some may be taken.
    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    /// When something of the connections is due.
    pub(super) fn next_wake(&self, endpoint: &Endpoint) -> Option<Ns> {
        let driver = self.driver.as_ref().and_then(|d| d.next_timeout(endpoint, Time(0))).map(|at| at.0);
        let replays = self.replayed.iter().map(|r| r.since + LANE_GREETING_NS + 1);
        driver.into_iter().chain(self.accept_at).chain(replays).min()
    }
}

impl Core {
    /// Connects, accepts and reads.
    pub(super) fn read_lanes(&mut self, host: &mut Host<'_, Shared>) {
        let Some(mut driver) = self.lanes.driver.take() else { return };
        let now = Time(host.now);
        driver.progress(&mut Lent { core: self, host }, now, false);
        self.lanes.driver = Some(driver);
        self.lanes.accept_at = host.is_waited_for().then(|| host.now + weir_bulk::ROUND_NS);
        let replayed = std::mem::take(&mut self.lanes.replayed);
        self.lanes.replayed = replayed.into_iter().filter_map(|r| self.replay(host, r)).collect();
    }

    /// Writes what is to go by lanes.
    pub(super) fn write_lanes(&mut self, host: &mut Host<'_, Shared>) {
        let Some(mut driver) = self.lanes.driver.take() else { return };
        let now = Time(host.now);
        driver.transmit(&mut Lent { core: self, host }, now);
        self.lanes.driver = Some(driver);
    }

    /// One greeting sent again, until nobody answers it.
    fn replay(&mut self, host: &mut Host<'_, Shared>, mut r: Replay) -> Option<Replay> {
        let lives = (|| {
            if !r.sent && host.is_connected(r.io)? {
                r.sent = host.tcp_write(r.io, &r.greeting)? > 0;
            }
            match host.tcp_read(r.io, &mut [0; GREETING_LEN])? {
                Arrived::Bytes(0) if host.now - r.since <= LANE_GREETING_NS => Ok(()),
                Arrived::Bytes(0) | Arrived::End => Err(Broken),
                Arrived::Bytes(_) => {
                    host.violation("lane-greeting", format!("{}: a greeting sent again was answered", self.program));
                    Err(Broken)
                }
            }
        })();
        if lives.is_err() {
            host.tcp_close(r.io);
        }
        lives.is_ok().then_some(r)
    }
}

impl Surroundings for Lent<'_, '_> {
    type Stream = Socket;
    type Why = ();

    fn accept(&mut self, _: Time) -> Option<Socket> {
        self.host.accept()
    }

    fn connect(&mut self, news: &LaneNews) -> Result<Socket, NotMade<()>> {
        let there = place(news.remote).filter(|(to, _)| self.host.shared.directory.exists(*to));
        let (to, net) = there.ok_or(NotMade::Lacking)?;
        Ok(self.host.connect(net, to))
    }

    fn is_connected(&mut self, io: &mut Socket) -> Result<bool, ()> {
        self.host.is_connected(*io).map_err(|Broken| ())
    }

    fn close(&mut self, io: Socket) {
        self.host.tcp_close(io);
    }

    fn remote(&self, io: &Socket) -> Option<SocketAddr> {
        self.host.tcp_remote(*io).map(|(to, net)| address(to, net))
    }

    fn lost_segments(&self, io: &Socket) -> Result<u32, Broken> {
        Ok(if self.core.lanes.sees_losses { self.host.tcp_lost(*io) } else { 0 })
    }

    fn write(&mut self, io: &mut Socket, head: &[u8], payload: Option<(&LaneUnit, u32)>) -> Result<usize, Broken> {
        let room = self.host.tcp_room(*io)?.min(CALL_BYTES);
        let bytes = &mut self.core.lanes.scratch;
        bytes.clear();
        bytes.extend_from_slice(&head[..head.len().min(room)]);
        if let Some((unit, done)) = payload {
            // If the send was given up, its memory is the caller's again.
            let source = self.core.messages.payload(unit.token).ok_or(Broken)?;
            let of_head = bytes.len();
            bytes.resize(of_head + (room - of_head).min((unit.len - done) as usize), 0);
            source.read(unit.offset + u64::from(done), &mut bytes[of_head..]);
        }
        self.host.tcp_write(*io, bytes)
    }

    fn read(
        &mut self,
        io: &mut Socket,
        payload: Option<(PeerId, &UnitIn, u32)>,
        stage: &mut [u8],
    ) -> Result<Read, Broken> {
        let rest = payload.map_or(0, |(_, unit, done)| (unit.len - done) as usize);
        let Core { lanes, messages, .. } = &mut *self.core;
        lanes.scratch.resize((rest + stage.len()).min(CALL_BYTES), 0);
        let Arrived::Bytes(n) = self.host.tcp_read(*io, &mut lanes.scratch)? else { return Ok(Read::End) };
        let (there, behind) = lanes.scratch[..n].split_at(n.min(rest));
        if let Some((peer, unit, done)) = payload {
            match messages.unit_room(peer.0, unit, done) {
                Room::Memory(memory, at) => _ = memory.write(at, there),
                Room::Buffer(buffer) => buffer[..there.len()].copy_from_slice(there),
                // Nobody wants it (any more).
                Room::None => {}
            }
        }
        stage[..behind.len()].copy_from_slice(behind);
        Ok(Read::Bytes { payload: there.len(), staged: behind.len() })
    }

    fn endpoint(&self) -> &Endpoint {
        self.core.messages.endpoint()
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint {
        self.core.messages.endpoint_mut()
    }

    fn takes(&mut self, begins: bool) {
        self.core.messages.set_by_lane(begins);
    }

    fn unit_tells(&mut self, now: Time, peer: PeerId, lane: u32, head: &[u8]) -> Head {
        let messages = &mut self.core.messages;
        let good = messages.with_events(now, head, |proto, events| proto.unit_tells(now, peer, lane, head, events));
        let answers = messages.completions().0 > 0;
        self.core.settle(self.host);
        match (good, answers) {
            (false, _) => Head::Wrong,
            (true, true) => Head::Answers,
            (true, false) => Head::Good,
        }
    }

    fn unit_begins(&mut self, now: Time, peer: PeerId, lane: u32, head: &[u8]) -> Option<UnitIn> {
        let messages = &mut self.core.messages;
        let unit = messages.with_events(now, head, |proto, events| proto.unit_begins(now, peer, head, events));
        self.core.settle(self.host);
        let unit = unit?;
        self.core.messages.unit_begins(peer.0, &unit);
        self.core.lanes.units.insert((peer, lane), unit);
        Some(unit)
    }

    fn put(&mut self, peer: PeerId, unit: &UnitIn, done: u32, bytes: &[u8]) {
        self.core.messages.put_unit(peer.0, unit, done, bytes);
    }

    /// All bytes of a unit are there; some of them may have been before.
    fn unit_ends(&mut self, now: Time, peer: PeerId, lane: u32, unit: &UnitIn) {
        self.core.lanes.units.remove(&(peer, lane));
        if !matches!(self.core.messages.unit_room(peer.0, unit, 0), Room::None) {
            let there = self.core.pieces.entry((peer, unit.key)).or_default();
            there.merge(unit.offset, unit.offset + u64::from(unit.len));
        }
        self.end_unit(now, peer, lane, unit);
    }

    fn next_unit(&mut self, now: Time, peer: PeerId, lane: u32, head: &mut Vec<u8>) -> Option<LaneUnit> {
        let unit = self.core.messages.endpoint_mut().lane_next(now, peer, lane, head)?;
        self.core.messages.unit_leaves(&unit);
        Some(unit)
    }

    fn greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        let (lane, greeting) = self.core.messages.endpoint_mut().lane_greeting(peer)?;
        self.core.lanes.greetings.insert((peer, lane), (greeting, false));
        Some((lane, greeting))
    }

    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let (peer, lane, answer) = self.core.messages.endpoint_mut().lane_greeted(now, bytes)?;
        let highest = &mut self.core.peer_slot(self.host, peer).lane;
        if lane <= std::mem::replace(highest, lane.max(*highest)) {
            let why = format!("{}: lane {lane} of {peer:?} was greeted before", self.core.program);
            self.host.violation("lane-greeting", why);
        }
        Some((peer, lane, answer))
    }

    fn is_up(&mut self, peer: PeerId, lane: u32) {
        let program = self.core.program;
        self.host.note(51 ^ u64::from(lane) << 8, || format!("lane up         {program} {peer:?} #{lane}"));
        self.core.lanes.units.retain(|of, _| of.0 != peer);
        self.core.lanes.greetings.retain(|of, _| of.0 != peer || of.1 == lane);
        if let Some((_, answered)) = self.core.lanes.greetings.get_mut(&(peer, lane)) {
            *answered = true;
        }
    }

    fn is_over(&mut self, now: Time, peer: PeerId, lane: u32) {
        let program = self.core.program;
        self.host.note(50 ^ u64::from(lane) << 8, || format!("lane over       {program} {peer:?} #{lane}"));
        if let (true, Some(unit)) =
            (self.host.shared.has(Defect::CutUnitCounted), self.core.lanes.units.remove(&(peer, lane)))
        {
            self.end_unit(now, peer, lane, &unit);
        }
        let greeting = self.core.lanes.greetings.remove(&(peer, lane));
        if !self.host.shared.has(Defect::LaneEndUntold) {
            self.core.messages.endpoint_mut().lane_over(now, peer, lane);
        }
        let to = self.core.peers.get(&peer).map(|p| p.program.host);
        if let (Some((greeting, true)), Some(to)) = (greeting, to)
            && self.core.lanes.rng.chance(self.core.lanes.replays)
        {
            let io = self.host.connect(0, to);
            self.core.lanes.replayed.push(Replay { io, since: self.host.now, greeting, sent: false });
        }
    }
}

impl Lent<'_, '_> {
    fn end_unit(&mut self, now: Time, peer: PeerId, lane: u32, unit: &UnitIn) {
        let messages = &mut self.core.messages;
        messages.with_events(now, &[], |proto, events| proto.unit_ends(now, peer, lane, unit, events));
        self.core.settle(self.host);
    }
}
