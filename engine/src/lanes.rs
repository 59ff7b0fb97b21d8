//! The TCP connections of lanes: made, greeted, fed and read (spec/lanes.md). What goes by them and when is the protocol's affair.

use crate::core::{State, in_order};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use slotmap::{Key, SlotMap};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use weir_proto::{GREETING_LEN, LaneNews, LaneUnit, PeerId, Time, UNIT_HEAD_LEN, UnitHead, UnitIn};
use weir_tcp::{Arrived, Connection, Listener};

slotmap::new_key_type! {
    struct ConnKey;
}

/// Connections whose greeting has not come, at most; the oldest gives way.
const STRANGERS_MAX: usize = 64;
/// How long it may take to greet, and to connect.
const GREETING_NS: u64 = 2_000_000_000;
const CONNECT_NS: u64 = 1_000_000_000;
/// How often connections are looked for while nothing is under way.
const ACCEPT_EVERY_NS: u64 = 1_000_000;
/// How often a lane in use is asked whether the network loses something of it.
const WATCH_NS: u64 = 10_000_000;
/// What a look that finds losses adds to their count, which each other look lowers by one, and where the lane is given up.
const LOSS: u32 = 4;
const LOSSES_MAX: u32 = 10;
/// Bytes read, and written, for one connection before the others have their turn.
const TURN_BYTES: u64 = 4 << 20;
/// What is read besides a payload: the heads of what follows, and small payloads whole.
const STAGE_BYTES: usize = 4096;
/// Payload nobody wants is read into this much memory at a time.
const SCRATCH_BYTES: usize = 64 << 10;
/// In the set of descriptors: the listener. (No connection has this key.)
const LISTENER: u64 = u64::MAX;

/// Where a connection stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Ours, not connected yet.
    Connecting,
    /// Ours, greeted; the answer is awaited.
    Greeted,
    /// Somebody's; the greeting is awaited.
    Stranger,
    /// Units may come.
    Up,
}

/// One connection.
struct Conn {
    io: Connection,
    stage: Stage,
    since: Time,
    /// Whose it is, but for a stranger.
    peer: PeerId,
    lane: u32,
    /// Bytes read and not yet looked at: a greeting, or heads.
    staged: Box<[u8; STAGE_BYTES]>,
    have: usize,
    /// The unit whose payload is being read, and how much of it is there.
    unit: Option<(UnitIn, u32)>,
    /// The peer will send nothing more.
    ended: bool,
    /// We still write.
    writes: bool,

    /// The head of the unit being written and how much of that went out; then its payload.
    head: Vec<u8>,
    head_done: usize,
    out: Option<(LaneUnit, u32)>,
    /// When the network was last asked what it lost, and how much that was.
    watched_at: Time,
    lost: u32,
    /// How far the peer had read then, and how often something had been lost of late.
    read_there: u64,
    losses: u32,
    /// The peer has not read all that was written.
    waits: bool,
    /// It had no room when last written to, and the set of descriptors knows.
    blocked: bool,
}

impl Conn {
    fn new(io: Connection, stage: Stage, now: Time, peer: PeerId) -> Conn {
        Conn {
            io,
            stage,
            since: now,
            peer,
            lane: 0,
            staged: Box::new([0; STAGE_BYTES]),
            have: 0,
            unit: None,
            ended: false,
            writes: true,
            head: Vec::new(),
            head_done: 0,
            out: None,
            watched_at: now,
            lost: 0,
            read_there: 0,
            losses: 0,
            waits: false,
            blocked: false,
        }
    }

    /// Forgets the first `n` staged bytes.
    fn unstage(&mut self, n: usize) {
        self.staged.copy_within(n..self.have, 0);
        self.have -= n;
    }
}

/// What becomes of a connection.
#[derive(PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

/// All of an endpoint.
pub struct Lanes {
    listener: Listener,
    epoll: Epoll,
    conns: SlotMap<ConnKey, Conn>,
    scratch: Vec<u8>,
    accepted_at: Time,
    polls: u32,
}

impl Lanes {
    /// Listens at the endpoint's port.
    ///
    /// # Errors
    /// The system's, the port being another's among them: then there are no lanes.
    pub fn open(addrs: &[SocketAddr]) -> io::Result<Lanes> {
        let listener = Listener::bind(addrs)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // Told once for each: out of descriptors they stay in the queue, and a sleeper must not be woken for ever.
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, LISTENER))?;
        Ok(Lanes {
            listener,
            epoll,
            conns: SlotMap::with_key(),
            scratch: vec![0; SCRATCH_BYTES],
            accepted_at: Time(0),
            polls: 0,
        })
    }

    /// Readable when something is to be done here.
    pub fn fd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// When to look although nothing wakes a sleeper.
    pub fn next_timeout(&self, now: Time) -> Option<Time> {
        let mut at: Option<Time> = None;
        for c in self.conns.values() {
            let t = match c.stage {
                Stage::Connecting => c.since.plus_ns(CONNECT_NS),
                Stage::Greeted | Stage::Stranger => c.since.plus_ns(GREETING_NS),
                // Put off, and nothing wakes anybody for it.
                Stage::Up if c.have > 0 && c.unit.is_none() => now,
                Stage::Up if c.writes && c.waits => c.watched_at.plus_ns(WATCH_NS),
                Stage::Up => continue,
            };
            at = Some(at.map_or(t, |a| a.min(t)));
        }
        at
    }

    /// Connects, accepts, reads. `busy`: the socket had datagrams, which come first. Returns the bytes read.
    pub fn progress(&mut self, st: &mut State, now: Time, busy: bool) -> u64 {
        while let Some(news) = st.proto.take_lane_news() {
            self.connect(st, now, news);
        }
        self.polls = self.polls.wrapping_add(1);
        let quiet = self.conns.values().all(|c| c.stage == Stage::Up);
        if now.since_ns(self.accepted_at) >= ACCEPT_EVERY_NS || !quiet {
            self.accepted_at = now;
            self.accept(now);
        }
        if self.conns.is_empty() || (busy && self.polls % 8 != 0) {
            return 0;
        }
        let mut read = 0;
        for k in self.readable() {
            let Some(c) = self.conns.get_mut(k) else { continue };
            let before = c.stage;
            let fate = match c.stage {
                Stage::Connecting => greet(c, st, now),
                _ => {
                    let (n, fate) = read_conn(c, st, now, &mut self.scratch);
                    read += n;
                    fate
                }
            };
            if before == Stage::Connecting && c.stage == Stage::Greeted {
                let _ = self.epoll.modify(&c.io, &mut EpollEvent::new(EpollFlags::EPOLLIN, k.data().as_ffi()));
            }
            if fate == Fate::Goes {
                self.drop_conn(st, now, k);
            }
        }
        self.tidy(st, now);
        read
    }

    /// Connections that may have something. With one only, that is the cheapest of questions.
    fn readable(&self) -> SmallVec<[ConnKey; 8]> {
        let mut only = self.conns.iter();
        if let (Some((k, c)), None) = (only.next(), only.next())
            && c.stage == Stage::Up
        {
            return SmallVec::from_slice(&[k]);
        }
        let mut events = [EpollEvent::empty(); 32];
        let n = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let keys = events[..n].iter().map(EpollEvent::data).filter(|d| *d != LISTENER);
        keys.map(|d| ConnKey::from(slotmap::KeyData::from_ffi(d))).collect()
    }

    fn connect(&mut self, st: &mut State, now: Time, news: LaneNews) {
        let lane_gone = |st: &mut State| {
            // It is numbered by its greeting; without one it bears the number of the last.
            if let Some((lane, _)) = st.proto.lane_greeting(news.peer) {
                st.proto.lane_over(now, news.peer, lane, true);
            }
        };
        match Connection::connect(news.remote, news.local) {
            Ok(io) => {
                let k = self.conns.insert(Conn::new(io, Stage::Connecting, now, news.peer));
                let event = EpollEvent::new(EpollFlags::EPOLLOUT, k.data().as_ffi());
                if self.epoll.add(&self.conns[k].io, event).is_err() {
                    self.conns.remove(k);
                    lane_gone(st);
                }
            }
            Err(_) => lane_gone(st),
        }
    }

    fn accept(&mut self, now: Time) {
        // Out of descriptors they wait, and lanes are a convenience.
        while let Ok(Some(io)) = self.listener.accept() {
            let strangers = || self.conns.iter().filter(|(_, c)| c.stage == Stage::Stranger);
            if strangers().count() >= STRANGERS_MAX
                && let Some(oldest) = strangers().min_by_key(|(_, c)| c.since).map(|(k, _)| k)
            {
                self.conns.remove(oldest);
            }
            let k = self.conns.insert(Conn::new(io, Stage::Stranger, now, PeerId(u32::MAX)));
            if self.epoll.add(&self.conns[k].io, EpollEvent::new(EpollFlags::EPOLLIN, k.data().as_ffi())).is_err() {
                self.conns.remove(k);
            }
        }
    }

    /// Writes what is to go by lanes.
    pub fn transmit(&mut self, st: &mut State, now: Time) {
        let mut gone: SmallVec<[ConnKey; 4]> = SmallVec::new();
        for (k, c) in self.conns.iter_mut().filter(|(_, c)| c.stage == Stage::Up && c.writes) {
            let was_blocked = c.blocked;
            if !st.proto.lane_is_up(c.peer, c.lane) {
                // Another has taken its place, or the peer is gone.
                end_writing(c);
                continue;
            }
            if write_conn(c, st).is_err() || watch(c, st, now).is_err() {
                st.proto.lane_over(now, c.peer, c.lane, true);
                gone.push(k);
                continue;
            }
            if c.blocked != was_blocked {
                let mut flags = EpollFlags::EPOLLIN;
                flags.set(EpollFlags::EPOLLOUT, c.blocked);
                let _ = self.epoll.modify(&c.io, &mut EpollEvent::new(flags, k.data().as_ffi()));
            }
        }
        for k in gone {
            // What had come before the error is still to be read.
            if let Some(c) = self.conns.get_mut(k) {
                end_writing(c);
            }
        }
    }

    /// Ends what took too long and what is over.
    fn tidy(&mut self, st: &mut State, now: Time) {
        let over: SmallVec<[ConnKey; 4]> = self
            .conns
            .iter()
            .filter(|(_, c)| {
                let age = now.since_ns(c.since);
                match c.stage {
                    Stage::Connecting => age > CONNECT_NS,
                    Stage::Greeted | Stage::Stranger => age > GREETING_NS,
                    Stage::Up => (c.ended && !c.writes) || st.proto.is_down(c.peer),
                }
            })
            .map(|(k, _)| k)
            .collect();
        for k in over {
            self.drop_conn(st, now, k);
        }
    }

    fn drop_conn(&mut self, st: &mut State, now: Time, k: ConnKey) {
        let Some(mut c) = self.conns.remove(k) else { return };
        if c.stage == Stage::Connecting
            && let Some((lane, _)) = st.proto.lane_greeting(c.peer)
        {
            c.lane = lane;
        }
        let failed = c.stage != Stage::Up || !c.ended;
        if c.stage != Stage::Stranger && c.writes {
            st.proto.lane_over(now, c.peer, c.lane, failed);
        }
    }
}

/// Nothing more is written; what was is still delivered.
fn end_writing(c: &mut Conn) {
    c.writes = false;
    c.out = None;
    c.io.end();
}

/// Greets once connected.
fn greet(c: &mut Conn, st: &mut State, now: Time) -> Fate {
    match c.io.is_connected() {
        Ok(false) => return Fate::Stays,
        Ok(true) => {}
        Err(_) => return Fate::Goes,
    }
    let Some((lane, greeting)) = st.proto.lane_greeting(c.peer) else { return Fate::Goes };
    (c.lane, c.stage, c.since) = (lane, Stage::Greeted, now);
    // The first bytes of a connection always find room.
    match c.io.write(&[IoSlice::new(&greeting)]) {
        Ok(GREETING_LEN) => Fate::Stays,
        _ => Fate::Goes,
    }
}

/// A greeting, or the answer to ours, is there.
fn greeted(c: &mut Conn, st: &mut State, now: Time) -> Fate {
    let Some(bytes) = c.staged[..c.have].first_chunk::<GREETING_LEN>().copied() else { return Fate::Stays };
    if c.stage == Stage::Greeted {
        if !st.proto.lane_answered(now, c.peer, c.lane, &bytes) {
            return Fate::Goes;
        }
    } else {
        let Some((peer, lane, answer)) = st.proto.lane_greeted(now, &bytes) else { return Fate::Goes };
        (c.peer, c.lane) = (peer, lane);
        if !matches!(c.io.write(&[IoSlice::new(&answer)]), Ok(GREETING_LEN)) {
            st.proto.lane_over(now, peer, lane, true);
            return Fate::Goes;
        }
    }
    c.stage = Stage::Up;
    c.unstage(GREETING_LEN);
    Fate::Stays
}

/// Reads for a turn. Returns the bytes read.
fn read_conn(c: &mut Conn, st: &mut State, now: Time, scratch: &mut [u8]) -> (u64, Fate) {
    let mut total = 0;
    // What was put off the last time.
    if c.have > 0 && take_staged(c, st, now) == Fate::Goes {
        return (0, Fate::Goes);
    }
    while total < TURN_BYTES && !c.ended {
        let arrived = read_some(c, st, scratch);
        let n = match arrived {
            Ok(Arrived::Bytes(n)) => n,
            Ok(Arrived::End) => {
                c.ended = true;
                if c.stage == Stage::Up && c.writes {
                    st.proto.lane_over(now, c.peer, c.lane, false);
                    end_writing(c);
                }
                return (total, Fate::Goes);
            }
            Err(_) => return (total, Fate::Goes),
        };
        if n == 0 {
            break;
        }
        total += n as u64;
        if take_staged(c, st, now) == Fate::Goes {
            return (total, Fate::Goes);
        }
    }
    (total, Fate::Stays)
}

/// One call to the system: into the place of the unit's payload and, behind it, the stage.
fn read_some(c: &mut Conn, st: &mut State, scratch: &mut [u8]) -> io::Result<Arrived> {
    let Some((unit, done)) = &mut c.unit else {
        let arrived = c.io.read(&mut [IoSliceMut::new(&mut c.staged[c.have..])])?;
        if let Arrived::Bytes(n) = arrived {
            c.have += n;
        }
        return Ok(arrived);
    };
    let rest = (unit.len - *done) as usize;
    let mut slices: SmallVec<[IoSliceMut<'_>; 4]> = SmallVec::new();
    st.unit_room(c.peer.0, unit, *done, &mut slices);
    let mut room: usize = slices.iter().map(|s| s.len()).sum();
    if room == 0 {
        // Nobody wants it (any more), or not this part.
        room = rest.min(scratch.len());
        slices.push(IoSliceMut::new(&mut scratch[..room]));
    }
    if room == rest {
        slices.push(IoSliceMut::new(&mut c.staged[..]));
    }
    let arrived = c.io.read(&mut slices)?;
    if let Arrived::Bytes(n) = arrived {
        *done += n.min(room) as u32;
        c.have = n.saturating_sub(room);
    }
    Ok(arrived)
}

/// Takes greetings, heads and payload out of the stage, and ends the unit that is complete.
fn take_staged(c: &mut Conn, st: &mut State, now: Time) -> Fate {
    if c.stage != Stage::Up {
        if greeted(c, st, now) == Fate::Goes {
            return Fate::Goes;
        }
        if c.stage != Stage::Up {
            return Fate::Stays;
        }
    }
    let mut at = 0;
    loop {
        if let Some((unit, done)) = &mut c.unit {
            let n = ((unit.len - *done) as usize).min(c.have - at);
            if n > 0 {
                st.put_unit(c.peer.0, unit, *done, &c.staged[at..at + n]);
                (*done, at) = (*done + n as u32, at + n);
            }
            if *done < unit.len {
                break;
            }
            let unit = *unit;
            c.unit = None;
            let (peer, lane) = (c.peer, c.lane);
            st.with_events(now, &[], |proto, events| proto.unit_ends(now, peer, lane, &unit, events));
        }
        let staged = &c.staged[at..c.have];
        let Some(len) = UnitHead::len_with_envelope(staged).filter(|n| *n <= staged.len() && *n >= UNIT_HEAD_LEN)
        else {
            break;
        };
        let head = &staged[..len];
        let (peer, lane, sends) = (c.peer, c.lane, st.tx_done.len());
        if !st.with_events(now, head, |proto, events| proto.unit_tells(now, peer, lane, head, events)) {
            return Fate::Goes;
        }
        if st.tx_done.len() > sends {
            // An answer. Who waited for the send may want to post the receive first, so that it need not be copied.
            break;
        }
        let Some(unit) = st.with_events(now, head, |proto, events| proto.unit_begins(now, peer, head, events)) else {
            return Fate::Goes;
        };
        c.unit = Some((unit, 0));
        at += len;
    }
    c.unstage(at);
    Fate::Stays
}

/// Writes units until there is no more, or no room.
fn write_conn(c: &mut Conn, st: &mut State) -> io::Result<()> {
    let mut turn = 0;
    c.blocked = false;
    while turn < TURN_BYTES {
        let (unit, done) = match c.out {
            Some(out) => out,
            None => {
                c.head.clear();
                c.head_done = 0;
                let Some(unit) = st.proto.lane_next(c.peer, c.lane, &mut c.head) else { break };
                (unit, 0)
            }
        };
        c.out = Some((unit, done));
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        if c.head_done < c.head.len() {
            slices.push(IoSlice::new(&c.head[c.head_done..]));
        }
        let rest = unit.len - done;
        let before = slices.len();
        st.payload(unit.token, unit.offset + u64::from(done), rest as usize, &mut slices);
        if slices[before..].iter().map(|s| s.len()).sum::<usize>() < rest as usize {
            // The send was given up, and its memory is the caller's again. A unit cut off counts for nothing.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let n = c.io.write(&slices)?;
        if n == 0 {
            c.blocked = true;
            break;
        }
        turn += n as u64;
        let of_head = n.min(c.head.len() - c.head_done);
        c.head_done += of_head;
        let done = done + (n - of_head) as u32;
        c.out = (done < unit.len).then_some((unit, done));
    }
    Ok(())
}

/// Looks now and then, while something is under way, whether the network loses anything of it: again and again, or so that the peer gets nothing meanwhile; then an error.
/// What TCP mends within a round trip does no harm.
fn watch(c: &mut Conn, st: &State, now: Time) -> io::Result<()> {
    let read = st.proto.lane_waits(c.peer, c.lane);
    c.waits = read.is_some();
    let Some(read) = read else { return Ok(()) };
    if now.since_ns(c.watched_at) < WATCH_NS {
        return Ok(());
    }
    c.watched_at = now;
    let lost = c.io.lost_segments()?;
    let moved = read != std::mem::replace(&mut c.read_there, read);
    c.losses = if lost > std::mem::replace(&mut c.lost, lost) { c.losses + LOSS } else { c.losses.saturating_sub(1) };
    let stuck = c.losses > 0 && !moved;
    if stuck || c.losses >= LOSSES_MAX { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

impl State {
    /// Calls the protocol and acts on the events, whose ranges index `bytes`.
    fn with_events<T>(
        &mut self,
        now: Time,
        bytes: &[u8],
        call: impl FnOnce(&mut weir_proto::Endpoint, &mut Vec<weir_proto::Event>) -> T,
    ) -> T {
        let mut events = std::mem::take(&mut self.events);
        let result = call(&mut self.proto, &mut events);
        in_order(&mut events, |event| self.event(now, event, bytes));
        self.events = events;
        result
    }

    /// The payload of a send; nothing if it is over.
    fn payload<'a>(&'a self, token: u64, offset: u64, len: usize, out: &mut SmallVec<[IoSlice<'a>; 4]>) {
        if let Some(s) = self.sends.get(crate::state::key(token)) {
            s.source.slices(offset, len, out);
        }
    }
}
