//! The connections of a rank's lanes, as the engine's driver has them (`engine/src/lanes.rs`), with the simulated network in place of sockets.

use std::collections::BTreeMap;

use weir_link::{GREETING_LEN, LANE_CONNECT_NS, LANE_GREETING_NS, LaneHealth, LaneNews, LaneUnit};
use weir_link::{PeerId, Time, UNIT_HEAD_LEN, UnitHead, UnitIn};
use weir_message::{Memory, Room};

use super::{Core, Shared, address, place};
use crate::planted::Defect;
use crate::rng::Rng;
use crate::spec::Ns;
use crate::tcp::{Arrived, Broken, Socket};
use crate::world::Host;

/// As the engine has it; less in a turn, so that turns end in the middle of units.
const STRANGERS_MAX: usize = 64;
const STAGE_BYTES: usize = 4096;
const TURN_BYTES: usize = 256 << 10;
/// Bytes moved by one call.
const CALL_BYTES: usize = 64 << 10;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Greeted,
    Stranger,
    Up,
    /// A greeting that was used is sent once more, as somebody on the way might.
    Replay,
}

/// A connection is to be dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Over;

impl From<Broken> for Over {
    fn from(_: Broken) -> Over {
        Over
    }
}

struct Conn {
    io: Socket,
    stage: Stage,
    since: Ns,
    /// Of a stranger: nobody.
    peer: PeerId,
    lane: u32,
    greeting: Option<[u8; GREETING_LEN]>,
    staged: Vec<u8>,
    put_off: bool,
    unit: Option<(UnitIn, u32)>,
    head: Vec<u8>,
    head_done: usize,
    out: Option<(LaneUnit, u32)>,
    health: LaneHealth,
}

/// All of a rank.
pub(super) struct Lanes {
    /// None are taken: nothing is listened to.
    on: bool,
    /// The system says what the network loses.
    sees_losses: bool,
    replays: u32,
    rng: Rng,
    /// By number, in the order they were made.
    conns: BTreeMap<u64, Conn>,
    made: u64,
    scratch: Vec<u8>,
    /// A turn ended before its work did; what may still be written in this one, and who writes first in the next.
    more: bool,
    turn_left: usize,
    first_writer: u64,
}

impl Lanes {
    pub(super) fn new(shared: &Shared, endpoint_id: u64) -> Lanes {
        let spec = shared.lanes.clone().unwrap_or_default();
        Lanes {
            on: shared.lanes.is_some(),
            sees_losses: spec.sees_losses,
            replays: spec.replays,
            rng: Rng::new(endpoint_id, u64::MAX - 3),
            conns: BTreeMap::new(),
            made: 0,
            scratch: Vec::new(),
            more: false,
            turn_left: 0,
            first_writer: 0,
        }
    }

    /// Some may be taken.
    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    /// When something of the connections is due.
    pub(super) fn next_wake(&self) -> Option<Ns> {
        if self.more {
            return Some(0);
        }
        let of = |c: &Conn| match c.stage {
            Stage::Connecting => Some(c.since + LANE_CONNECT_NS + 1),
            Stage::Greeted | Stage::Stranger | Stage::Replay => Some(c.since + LANE_GREETING_NS + 1),
            Stage::Up if c.put_off => Some(0),
            Stage::Up => c.health.next_look().map(|at| at.0),
        };
        self.conns.values().filter_map(of).min()
    }

    fn add(&mut self, c: Conn) {
        self.made += 1;
        self.conns.insert(self.made, c);
    }
}

impl Conn {
    fn new(io: Socket, stage: Stage, now: Ns, peer: PeerId) -> Conn {
        Conn {
            io,
            stage,
            since: now,
            peer,
            lane: 0,
            greeting: None,
            staged: Vec::new(),
            put_off: false,
            unit: None,
            head: Vec::new(),
            head_done: 0,
            out: None,
            health: LaneHealth::new(Time(now)),
        }
    }
}

impl Core {
    /// Connects, accepts and reads.
    pub(super) fn read_lanes(&mut self, host: &mut Host<'_, Shared>) {
        if !self.lanes.on {
            return;
        }
        self.lanes.more = false;
        self.connect_lanes(host);
        self.accept_lanes(host);
        for k in self.lanes.conns.keys().copied().collect::<Vec<_>>() {
            // Another may have taken its place.
            let Some(mut c) = self.lanes.conns.remove(&k) else { continue };
            let result = match c.stage {
                Stage::Connecting => self.greet(host, &mut c),
                Stage::Replay => self.replay(host, &mut c),
                Stage::Greeted | Stage::Stranger | Stage::Up => self.read_conn(host, &mut c),
            };
            match result {
                Ok(()) => _ = self.lanes.conns.insert(k, c),
                Err(Over) => self.drop_conn(host, c),
            }
        }
    }

    /// Writes what is to go by lanes, and drops what takes too long and what is over.
    pub(super) fn write_lanes(&mut self, host: &mut Host<'_, Shared>) {
        if !self.lanes.on {
            return;
        }
        self.connect_lanes(host);
        self.lanes.turn_left = TURN_BYTES;
        let first = self.lanes.first_writer;
        let (wrapped, ahead): (Vec<u64>, Vec<u64>) = self.lanes.conns.keys().copied().partition(|k| *k < first);
        for k in ahead.into_iter().chain(wrapped) {
            let Some(mut c) = self.lanes.conns.remove(&k) else { continue };
            let had_turn = self.lanes.turn_left > 0;
            let written = self.write_and_watch(host, &mut c);
            if had_turn && self.lanes.turn_left == 0 {
                (self.lanes.more, self.lanes.first_writer) = (true, k + 1);
            }
            match written {
                Ok(()) => _ = self.lanes.conns.insert(k, c),
                Err(Over) => self.drop_conn(host, c),
            }
        }
    }

    fn write_and_watch(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        let age = host.now - c.since;
        let late = match c.stage {
            Stage::Connecting => age > LANE_CONNECT_NS,
            Stage::Greeted | Stage::Stranger | Stage::Replay => age > LANE_GREETING_NS,
            Stage::Up => !self.messages.endpoint().lane_is_up(c.peer, c.lane),
        };
        if late {
            return Err(Over);
        }
        if c.stage == Stage::Up {
            self.write_conn(host, c)?;
            self.watch(host, c)?;
        }
        Ok(())
    }

    fn connect_lanes(&mut self, host: &mut Host<'_, Shared>) {
        while let Some(LaneNews { peer, remote, .. }) = self.messages.endpoint_mut().take_lane_news() {
            match place(remote).filter(|(to, _)| host.shared.directory.exists(*to)) {
                Some((to, net)) => {
                    let io = host.connect(net, to);
                    self.lanes.add(Conn::new(io, Stage::Connecting, host.now, peer));
                }
                None => self.give_up_asking(host.now, peer),
            }
        }
    }

    /// A lane that was asked for is not to be had. It is numbered by its greeting.
    fn give_up_asking(&mut self, now: Ns, peer: PeerId) {
        if let Some((lane, _)) = self.messages.endpoint_mut().lane_greeting(peer) {
            self.messages.endpoint_mut().lane_over(Time(now), peer, lane);
        }
    }

    fn accept_lanes(&mut self, host: &mut Host<'_, Shared>) {
        while let Some(io) = host.accept() {
            let strangers = || self.lanes.conns.iter().filter(|(_, c)| c.stage == Stage::Stranger);
            let oldest = strangers().next().map(|(k, _)| *k).filter(|_| strangers().count() >= STRANGERS_MAX);
            if let Some(former) = oldest.and_then(|k| self.lanes.conns.remove(&k)) {
                host.tcp_close(former.io);
            }
            self.lanes.add(Conn::new(io, Stage::Stranger, host.now, PeerId(u32::MAX)));
        }
    }

    /// Closes a connection and has the protocol go on without it.
    fn drop_conn(&mut self, host: &mut Host<'_, Shared>, c: Conn) {
        host.tcp_close(c.io);
        if let (true, Some((unit, _))) = (host.shared.has(Defect::CutUnitCounted), c.unit) {
            let now = Time(host.now);
            self.messages.with_events(now, &[], |proto, events| proto.unit_ends(now, c.peer, c.lane, &unit, events));
            self.settle(host);
        }
        match c.stage {
            Stage::Stranger | Stage::Replay => {}
            Stage::Connecting => self.give_up_asking(host.now, c.peer),
            Stage::Greeted | Stage::Up => {
                let program = self.program;
                host.note(50 ^ u64::from(c.lane) << 8, || {
                    format!("lane over       {program} {:?} #{} {:?}", c.peer, c.lane, c.stage)
                });
                if !host.shared.has(Defect::LaneEndUntold) {
                    self.messages.endpoint_mut().lane_over(Time(host.now), c.peer, c.lane);
                }
            }
        }
        let to = self.peers.get(&c.peer).map(|p| p.program.host);
        if let (Some(greeting), Some(to), Stage::Up) = (c.greeting, to, c.stage)
            && self.lanes.rng.chance(self.lanes.replays)
        {
            let replay = Conn::new(host.connect(0, to), Stage::Replay, host.now, PeerId(u32::MAX));
            self.lanes.add(Conn { greeting: Some(greeting), ..replay });
        }
    }

    fn greet(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        if !host.is_connected(c.io)? {
            return Ok(());
        }
        let (lane, greeting) = self.messages.endpoint_mut().lane_greeting(c.peer).ok_or(Over)?;
        (c.lane, c.stage, c.since) = (lane, Stage::Greeted, host.now);
        let n = host.tcp_write(c.io, &greeting)?;
        c.greeting = Some(greeting);
        if n == GREETING_LEN { Ok(()) } else { Err(Over) }
    }

    fn replay(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        if let Some(greeting) = c.greeting.filter(|_| c.head_done == 0)
            && host.is_connected(c.io)?
        {
            c.head_done = host.tcp_write(c.io, &greeting)?;
        }
        match host.tcp_read(c.io, &mut [0; GREETING_LEN])? {
            Arrived::Bytes(0) => Ok(()),
            Arrived::Bytes(_) => {
                host.violation("lane-greeting", format!("{}: a greeting sent again was answered", self.program));
                Err(Over)
            }
            Arrived::End => Err(Over),
        }
    }

    /// A greeting, or the answer to ours, may be there.
    fn greeted(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        let Some(bytes) = c.staged.first_chunk::<GREETING_LEN>().copied() else { return Ok(()) };
        let now = Time(host.now);
        if c.stage == Stage::Greeted {
            if !self.messages.endpoint_mut().lane_answered(now, c.peer, c.lane, &bytes) {
                return Err(Over);
            }
        } else {
            let (peer, lane, answer) = self.messages.endpoint_mut().lane_greeted(now, &bytes).ok_or(Over)?;
            (c.peer, c.lane) = (peer, lane);
            let highest = &mut self.peer_slot(host, peer).lane;
            if lane <= std::mem::replace(highest, lane.max(*highest)) {
                let why = format!("{}: lane {lane} of {peer:?} was greeted before", self.program);
                host.violation("lane-greeting", why);
            }
            // It takes the place of the peer's former one.
            let is_former = |(_, o): &(&u64, &Conn)| o.stage == Stage::Up && o.peer == peer;
            let former = self.lanes.conns.iter().find(is_former).map(|(k, _)| *k);
            if let Some(former) = former.and_then(|k| self.lanes.conns.remove(&k)) {
                host.tcp_close(former.io);
            }
            if host.tcp_write(c.io, &answer)? != GREETING_LEN {
                c.stage = Stage::Up;
                return Err(Over);
            }
        }
        c.stage = Stage::Up;
        c.health = LaneHealth::new(now);
        let program = self.program;
        host.note(51 ^ u64::from(c.lane) << 8, || format!("lane up         {program} {:?} #{}", c.peer, c.lane));
        c.staged.drain(..GREETING_LEN);
        Ok(())
    }

    fn read_conn(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        if c.stage == Stage::Up && !self.messages.endpoint().lane_is_up(c.peer, c.lane) {
            return Err(Over);
        }
        if std::mem::take(&mut c.put_off) {
            self.take_staged(host, c)?;
        }
        let mut total = 0;
        while !c.put_off {
            if total >= TURN_BYTES {
                self.lanes.more = true;
                break;
            }
            match self.read_some(host, c)? {
                0 => break,
                n => total += n,
            }
            self.take_staged(host, c)?;
        }
        Ok(())
    }

    /// One call to the system: into the place of the unit's payload and, behind it, the stage. Returns how many bytes came.
    fn read_some(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<usize, Over> {
        let payload = c.unit.map_or(0, |(unit, done)| (unit.len - done) as usize);
        let mut bytes = std::mem::take(&mut self.lanes.scratch);
        bytes.resize((payload + STAGE_BYTES).saturating_sub(c.staged.len()).min(CALL_BYTES), 0);
        let arrived = host.tcp_read(c.io, &mut bytes);
        let n = if let Ok(Arrived::Bytes(n)) = arrived { n } else { 0 };
        let (there, behind) = bytes[..n].split_at(n.min(payload));
        if let Some((unit, done)) = c.unit.as_mut().filter(|_| !there.is_empty()) {
            match self.messages.unit_room(c.peer.0, unit, *done) {
                Room::Memory(memory, at) => _ = memory.write(at, there),
                Room::Buffer(buffer) => buffer[..there.len()].copy_from_slice(there),
                // Nobody wants it (any more).
                Room::None => {}
            }
            *done += there.len() as u32;
        }
        c.staged.extend_from_slice(behind);
        self.lanes.scratch = bytes;
        if arrived? == Arrived::End { Err(Over) } else { Ok(n) }
    }

    /// Takes greetings, heads and payload out of the stage, and ends the unit that is complete.
    fn take_staged(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        if c.stage != Stage::Up {
            self.greeted(host, c)?;
            if c.stage != Stage::Up {
                return Ok(());
            }
        }
        let staged = std::mem::take(&mut c.staged);
        self.messages.set_by_lane(true);
        let taken = self.take_units(host, c, &staged);
        self.messages.set_by_lane(false);
        c.staged = staged;
        c.staged.drain(..taken?);
        Ok(())
    }

    fn take_units(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn, staged: &[u8]) -> Result<usize, Over> {
        let now = Time(host.now);
        let mut at = 0;
        loop {
            if let Some((unit, done)) = &mut c.unit {
                let n = ((unit.len - *done) as usize).min(staged.len() - at);
                if n > 0 {
                    self.messages.put_unit(c.peer.0, unit, *done, &staged[at..at + n]);
                    (*done, at) = (*done + n as u32, at + n);
                }
                if *done < unit.len {
                    return Ok(at);
                }
                let unit = *unit;
                c.unit = None;
                self.unit_is_read(c.peer, &unit);
                let (peer, lane) = (c.peer, c.lane);
                self.messages.with_events(now, &[], |proto, events| proto.unit_ends(now, peer, lane, &unit, events));
                self.settle(host);
            }
            let rest = &staged[at..];
            let whole = |n: &usize| (UNIT_HEAD_LEN..=rest.len()).contains(n);
            let Some(len) = UnitHead::len_with_envelope(rest).filter(whole) else { return Ok(at) };
            let (head, peer, lane) = (&rest[..len], c.peer, c.lane);
            let good =
                self.messages.with_events(now, head, |proto, events| proto.unit_tells(now, peer, lane, head, events));
            let ended = self.messages.completions().0 > 0;
            self.settle(host);
            if !good {
                return Err(Over);
            }
            if ended {
                c.put_off = true;
                return Ok(at);
            }
            let unit = self.messages.with_events(now, head, |proto, events| proto.unit_begins(now, peer, head, events));
            self.settle(host);
            let unit = unit.ok_or(Over)?;
            self.messages.unit_begins(peer.0, &unit);
            c.unit = Some((unit, 0));
            at += len;
        }
    }

    /// All bytes of a unit are there; some of them may have been before.
    fn unit_is_read(&mut self, peer: PeerId, unit: &UnitIn) {
        if !matches!(self.messages.unit_room(peer.0, unit, 0), Room::None) {
            let there = self.pieces.entry((peer, unit.key)).or_default();
            there.merge(unit.offset, unit.offset + u64::from(unit.len));
        }
    }

    /// Writes units until there is no more, or no room.
    fn write_conn(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        while self.lanes.turn_left > 0 {
            let (unit, done) = match c.out {
                Some(out) => out,
                None => {
                    c.head.clear();
                    c.head_done = 0;
                    let next = self.messages.endpoint_mut().lane_next(Time(host.now), c.peer, c.lane, &mut c.head);
                    let Some(unit) = next else { return Ok(()) };
                    self.messages.unit_leaves(&unit);
                    (unit, 0)
                }
            };
            c.out = Some((unit, done));
            // If the send was given up, its memory is the caller's again. A unit cut off counts for nothing.
            let source = self.messages.payload(unit.token).ok_or(Over)?;
            let room = host.tcp_room(c.io)?.min(CALL_BYTES);
            if room == 0 {
                return Ok(());
            }
            let of_head = (c.head.len() - c.head_done).min(room);
            let n = (room - of_head).min((unit.len - done) as usize);
            let bytes = &mut self.lanes.scratch;
            bytes.clear();
            bytes.extend_from_slice(&c.head[c.head_done..c.head_done + of_head]);
            bytes.resize(of_head + n, 0);
            source.read(unit.offset + u64::from(done), &mut bytes[of_head..]);
            let written = host.tcp_write(c.io, bytes)?;
            debug_assert_eq!(written, of_head + n, "there was room");
            self.lanes.turn_left = self.lanes.turn_left.saturating_sub(written);
            c.head_done += of_head;
            c.out = (done + (n as u32) < unit.len).then_some((unit, done + n as u32));
        }
        Ok(())
    }

    /// Looks now and then whether the lane is worth having.
    fn watch(&mut self, host: &mut Host<'_, Shared>, c: &mut Conn) -> Result<(), Over> {
        let read = self.messages.endpoint().lane_waits(c.peer, c.lane);
        let (now, sees) = (Time(host.now), self.lanes.sees_losses);
        let remote = host.tcp_remote(c.io).map(|(to, net)| address(to, net).ip());
        let lost = || match remote {
            Some(ip) if self.messages.endpoint().path_has_failed(c.peer, ip) => Err(Over),
            _ => Ok(if sees { host.tcp_lost(c.io) } else { 0 }),
        };
        if c.health.suffers(now, read, lost)? {
            return Err(Over);
        }
        if let Some(ip) = remote.filter(|_| c.health.is_to_ask(now)) {
            self.messages.endpoint_mut().ask_path(now, c.peer, ip);
        }
        Ok(())
    }
}
