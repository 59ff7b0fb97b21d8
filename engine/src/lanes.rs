//! The TCP connections of lanes: made, greeted, fed and read (spec/lanes.md). What goes by them and when is the protocol's affair.
//!
//! Nothing depends on a connection: what the peer has not told to have read is sent in packets once it is gone. So whatever is wrong with one, it is dropped.

use crate::core::State;
use crate::memory::{places_of, slices_of};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use slotmap::{Key, SlotMap};
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use weir_link::{GREETING_LEN, LANE_CONNECT_NS, LANE_GREETING_NS, LaneHealth, LaneNews, LaneUnit};
use weir_link::{PeerId, Time, UNIT_HEAD_LEN, UnitHead, UnitIn};
use weir_tcp::{Arrived, Connection, Tcp};

slotmap::new_key_type! {
    struct ConnKey;
}

/// Connections whose greeting has not come, at most; the oldest gives way.
const STRANGERS_MAX: usize = 64;
/// Connections in all, at most, and no more than this part of the descriptors that the process may have.
const CONNS_MAX: u64 = 1024;
const DESCRIPTORS_PART: u64 = 4;
/// When the system refuses to hand out a connection, it is asked again after this: what was lacking may be there then.
const DEAF_NS: u64 = 1_000_000_000;
/// How often new connections are looked for, and old ones that are over; and how many are taken at a time.
const ROUND_NS: u64 = 1_000_000;
const ACCEPTS_MAX: usize = 16;
/// Bytes read in one pass of progress, and written in one pass, by all connections together, before datagrams have their turn.
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

/// Why a connection is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Over {
    /// It failed, or the network or the peer is not up to it: the next one is a while off.
    Failed,
    /// It could not be made. None: nobody answered.
    NotMade(Option<io::ErrorKind>),
}

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Over {
        Over::Failed
    }
}

/// One connection.
struct Conn<C> {
    io: C,
    stage: Stage,
    since: Time,
    /// Whose it is, but for a stranger; and where that one is.
    peer: PeerId,
    to: SocketAddr,
    lane: u32,
    /// Bytes read and not yet looked at: a greeting, or heads.
    staged: Box<[u8; STAGE_BYTES]>,
    have: usize,
    /// A head was left there, to be looked at in the next pass.
    put_off: bool,
    /// The unit whose payload is being read, and how much of it is there.
    unit: Option<(UnitIn, u32)>,
    /// The head of the unit being written and how much of that went out; then its payload.
    head: Vec<u8>,
    head_done: usize,
    out: Option<(LaneUnit, u32)>,
    /// It had no room when last written to, and the set of descriptors knows.
    blocked: bool,
    health: LaneHealth,
}

impl<C: Tcp> Conn<C> {
    fn new(io: C, now: Time, news: Option<LaneNews>) -> Self {
        let to = news.map(|n| n.remote).or_else(|| io.remote());
        Conn {
            io,
            stage: if news.is_some() { Stage::Connecting } else { Stage::Stranger },
            since: now,
            peer: news.map_or(PeerId(u32::MAX), |n| n.peer),
            to: to.unwrap_or(SocketAddr::from(([0; 4], 0))),
            lane: 0,
            staged: Box::new([0; STAGE_BYTES]),
            have: 0,
            put_off: false,
            unit: None,
            head: Vec::new(),
            head_done: 0,
            out: None,
            blocked: false,
            health: LaneHealth::new(now),
        }
    }

    /// Forgets the first `n` staged bytes.
    fn unstage(&mut self, n: usize) {
        self.staged.copy_within(n..self.have, 0);
        self.have -= n;
    }
}

/// All of an endpoint. `C`: whose connections.
pub struct Lanes<C: Tcp = Connection> {
    /// None once the endpoint is closed.
    listener: Option<C::Listener>,
    /// It is not listened to until then.
    deaf_until: Option<Time>,
    epoll: Epoll,
    conns: SlotMap<ConnKey, Conn<C>>,
    conns_max: usize,
    scratch: Vec<u8>,
    round_at: Time,
    polls: usize,
    /// Passes in which one of several was to be read first.
    reads: usize,
    /// What may be written in one pass, and which connection, by its place, is the first to write in the next.
    turn_bytes: u64,
    first_writer: usize,
    /// That was used up, and something may be left.
    more: bool,
    /// Who may end connections: a child of fork(2) has copies of them.
    pid: u32,
}

impl<C: Tcp> Lanes<C> {
    /// Listens at the endpoint's port.
    ///
    /// # Errors
    /// The system's, the port being another's among them: then there are no lanes.
    pub fn open(addrs: &[SocketAddr]) -> io::Result<Self> {
        let listener = C::bind(addrs)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(CONNS_MAX, |(soft, _)| soft);
        Ok(Lanes {
            listener: Some(listener),
            deaf_until: None,
            epoll,
            conns: SlotMap::with_key(),
            conns_max: (descriptors / DESCRIPTORS_PART).min(CONNS_MAX) as usize,
            scratch: vec![0; SCRATCH_BYTES],
            round_at: Time(0),
            polls: 0,
            reads: 0,
            turn_bytes: TURN_BYTES,
            first_writer: 0,
            more: false,
            pid: std::process::id(),
        })
    }

    /// Readable when something is to be done here. Valid as long as this value.
    pub fn fd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// Drops all connections, and takes no more. The descriptor of [`Lanes::fd`] stays, for somebody may be asleep on it.
    pub fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = self.epoll.delete(&listener);
        }
        (self.deaf_until, self.more) = (None, false);
        let all: SmallVec<[ConnKey; 8]> = self.conns.keys().collect();
        for k in all {
            self.forget(k);
        }
    }

    /// How many connections there are, and how many bytes of heads at most one keeps that were not put off.
    #[cfg(feature = "bare")]
    pub fn kept(&self) -> (usize, usize) {
        let staged = self.conns.values().filter(|c| !c.put_off).map(|c| c.have).max();
        (self.conns.len(), staged.unwrap_or(0))
    }

    /// When to look although nothing wakes a sleeper.
    pub fn next_timeout(&self, now: Time) -> Option<Time> {
        let at = |c: &Conn<C>| match c.stage {
            Stage::Connecting => Some(c.since.plus_ns(LANE_CONNECT_NS)),
            Stage::Greeted | Stage::Stranger => Some(c.since.plus_ns(LANE_GREETING_NS)),
            Stage::Up if c.put_off => Some(now),
            Stage::Up => c.health.next_look(),
        };
        let more = self.more.then_some(now);
        self.conns.values().filter_map(at).chain(self.deaf_until).chain(more).min()
    }

    /// Connects, accepts, reads. `busy`: the socket had datagrams, which come first. Returns the bytes read.
    pub fn progress(&mut self, st: &mut State, now: Time, busy: bool) -> u64 {
        while let Some(news) = st.proto_mut().take_lane_news() {
            self.connect(st, now, news);
        }
        let round = now.since_ns(self.round_at) >= ROUND_NS;
        if round {
            self.round_at = now;
            self.accept(st, now);
        }
        self.polls = self.polls.wrapping_add(1);
        let mut read = 0;
        if !self.conns.is_empty() && (!busy || self.polls.is_multiple_of(8)) {
            for k in self.readable() {
                read += self.serve(st, now, k, TURN_BYTES - read);
                if read >= TURN_BYTES {
                    break;
                }
            }
        }
        if round {
            self.tidy(st, now);
        }
        read
    }

    /// Reads some `most` bytes of a connection, or greets once it is made. Returns how many came.
    fn serve(&mut self, st: &mut State, now: Time, k: ConnKey, most: u64) -> u64 {
        let Some(c) = self.conns.get_mut(k) else { return 0 };
        let before = c.stage;
        let result = if before == Stage::Connecting {
            greet(c, st, now).map(|()| 0)
        } else {
            read_conn(c, st, now, &mut self.scratch, most)
        };
        match &result {
            Ok(_) if before == Stage::Connecting && c.stage == Stage::Greeted => {
                let _ = self.epoll.modify(&c.io, &mut EpollEvent::new(EpollFlags::EPOLLIN, k.data().as_ffi()));
            }
            Ok(_) if before == Stage::Stranger && c.stage == Stage::Up => self.replace(k),
            Ok(_) => {}
            Err(over) => self.drop_conn(st, now, k, *over),
        }
        result.unwrap_or(0)
    }

    /// Connections that may have something, each time another first. With one only, that is the cheapest of questions.
    fn readable(&mut self) -> SmallVec<[ConnKey; 32]> {
        let mut only = self.conns.iter();
        if let (Some((k, c)), None) = (only.next(), only.next())
            && c.stage == Stage::Up
        {
            return SmallVec::from_slice(&[k]);
        }
        let mut events = [EpollEvent::empty(); 32];
        let n = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let ready = events[..n].iter().map(EpollEvent::data).filter(|d| *d != LISTENER);
        let mut keys: SmallVec<[ConnKey; 32]> = ready.map(|d| ConnKey::from(slotmap::KeyData::from_ffi(d))).collect();
        keys.extend(self.conns.iter().filter(|(_, c)| c.put_off).map(|(k, _)| k));
        keys.sort_unstable();
        keys.dedup();
        if !keys.is_empty() {
            // (Not of the polls: with traffic of other kinds each eighth reads, and the first of two would always be the same.)
            self.reads = self.reads.wrapping_add(1);
            let first = self.reads % keys.len();
            keys.rotate_left(first);
        }
        keys
    }

    fn connect(&mut self, st: &mut State, now: Time, news: LaneNews) {
        // When there are too many here, or it is closed, that says nothing of the network.
        let mut why = Over::Failed;
        if self.listener.is_some() && self.conns.len() < self.conns_max {
            match C::connect(news.remote, news.local) {
                Ok(io) => {
                    if self.insert(Conn::new(io, now, Some(news)), EpollFlags::EPOLLOUT).is_some() {
                        return;
                    }
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {}
                Err(e) => why = Over::NotMade(Some(e.kind())),
            }
        }
        give_up_asking(st, now, news.peer, now, news.remote, why);
    }

    fn insert(&mut self, conn: Conn<C>, flags: EpollFlags) -> Option<ConnKey> {
        let k = self.conns.insert(conn);
        if self.epoll.add(&self.conns[k].io, EpollEvent::new(flags, k.data().as_ffi())).is_err() {
            self.conns.remove(k);
            return None;
        }
        Some(k)
    }

    /// Whether connections are taken: not for a while after the system refused to hand one out.
    fn listens(&mut self, now: Time) -> bool {
        let (Some(listener), Some(until)) = (&self.listener, self.deaf_until) else { return true };
        if now < until {
            return false;
        }
        let added = self.epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
        self.deaf_until = added.is_err().then(|| now.plus_ns(DEAF_NS));
        added.is_ok()
    }

    fn accept(&mut self, st: &mut State, now: Time) {
        if !self.listens(now) {
            return;
        }
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = &self.listener else { return };
            match C::accept(listener) {
                Ok(None) => return,
                Ok(Some(io)) => {
                    let strangers = || self.conns.iter().filter(|(_, c)| c.stage == Stage::Stranger);
                    let full = self.conns.len() >= self.conns_max || strangers().count() >= STRANGERS_MAX;
                    let oldest = strangers().min_by_key(|(_, c)| c.since).map(|(k, _)| k);
                    match oldest {
                        Some(oldest) if full => _ = self.forget(oldest),
                        None if full => continue,
                        _ => {}
                    }
                    self.insert(Conn::new(io, now, None), EpollFlags::EPOLLIN);
                }
                Err(_) => {
                    // Out of descriptors, perhaps: until that has passed, what waits would wake every sleeper for ever.
                    let _ = self.epoll.delete(listener);
                    self.deaf_until = Some(now.plus_ns(DEAF_NS));
                    st.counters.lane_accepts_failed += 1;
                    return;
                }
            }
        }
    }

    /// Writes what is to go by lanes. Where the last turn ended the next one begins.
    pub fn transmit(&mut self, st: &mut State, now: Time) {
        if self.conns.is_empty() {
            self.more = false;
            return;
        }
        let mut over: SmallVec<[(ConnKey, Over); 4]> = SmallVec::new();
        let (first, mut left) = (self.first_writer, self.turn_bytes);
        self.more = false;
        for wrapped in [false, true] {
            let its_turn =
                |(i, (_, c)): &(usize, (ConnKey, &mut Conn<C>))| (*i < first) == wrapped && c.stage == Stage::Up;
            for (i, (k, c)) in self.conns.iter_mut().enumerate().filter(its_turn) {
                let was_blocked = c.blocked;
                let written = if self.more { Ok(0) } else { write_conn(c, st, now, left) };
                match written.and_then(|n| watch(c, st, now).map(|()| n)) {
                    Ok(n) => {
                        left = left.saturating_sub(n);
                        if left == 0 && !self.more {
                            (self.more, self.first_writer) = (true, i + 1);
                        }
                        if c.blocked != was_blocked {
                            let mut flags = EpollFlags::EPOLLIN;
                            flags.set(EpollFlags::EPOLLOUT, c.blocked);
                            let _ = self.epoll.modify(&c.io, &mut EpollEvent::new(flags, k.data().as_ffi()));
                        }
                    }
                    Err(why) => over.push((k, why)),
                }
            }
        }
        for (k, why) in over {
            self.drop_conn(st, now, k, why);
        }
    }

    /// Drops what took too long and what is over.
    fn tidy(&mut self, st: &mut State, now: Time) {
        let is_over = |st: &State, c: &Conn<C>| {
            let age = now.since_ns(c.since);
            match c.stage {
                Stage::Connecting => age > LANE_CONNECT_NS,
                Stage::Greeted | Stage::Stranger => age > LANE_GREETING_NS,
                Stage::Up => !st.proto().lane_is_up(c.peer, c.lane),
            }
        };
        let over: SmallVec<[ConnKey; 4]> = self.conns.iter().filter(|(_, c)| is_over(st, c)).map(|(k, _)| k).collect();
        for k in over {
            // Perhaps it was this process that took too long, and what is awaited has come.
            if self.conns.get(k).is_some_and(|c| c.stage != Stage::Up) {
                self.serve(st, now, k, 1);
            }
            let Some(c) = self.conns.get(k).filter(|c| is_over(st, c)) else { continue };
            let unanswered = c.stage == Stage::Connecting;
            self.drop_conn(st, now, k, if unanswered { Over::NotMade(None) } else { Over::Failed });
        }
    }

    /// A lane takes the place of the peer's former one.
    fn replace(&mut self, k: ConnKey) {
        let peer = self.conns[k].peer;
        let former = |(other, c): &(ConnKey, &Conn<C>)| *other != k && c.stage == Stage::Up && c.peer == peer;
        let former: SmallVec<[ConnKey; 2]> = self.conns.iter().filter(former).map(|(k, _)| k).collect();
        for k in former {
            self.forget(k);
        }
    }

    /// Closes a connection and has the protocol go on without it.
    fn drop_conn(&mut self, st: &mut State, now: Time, k: ConnKey, over: Over) {
        let Some(c) = self.forget(k) else { return };
        match c.stage {
            Stage::Stranger => {}
            Stage::Connecting => give_up_asking(st, now, c.peer, c.since, c.to, over),
            Stage::Greeted | Stage::Up => {
                st.messages.sink_mut().trace.lane(c.peer.0, "failed");
                st.proto_mut().lane_over(now, c.peer, c.lane);
            }
        }
    }

    fn forget(&mut self, k: ConnKey) -> Option<Conn<C>> {
        let c = self.conns.remove(k)?;
        // Closing would do, but for a child of fork(2) that holds a copy.
        let _ = self.epoll.delete(&c.io);
        if self.pid == std::process::id() {
            c.io.shutdown();
        }
        Some(c)
    }
}

/// A lane that was asked for is not to be had: no connection, tried since then, to there. It is numbered by its greeting.
fn give_up_asking(st: &mut State, now: Time, peer: PeerId, since: Time, to: SocketAddr, why: Over) {
    let Some((lane, _)) = st.proto_mut().lane_greeting(peer) else { return };
    st.proto_mut().lane_over(now, peer, lane);
    let Over::NotMade(why) = why else { return };
    // Whose packets do not come either is gone, or has other troubles. (A refusal comes at once; of the second before it anything will do.)
    let since = since.min(Time(now.0.saturating_sub(LANE_CONNECT_NS)));
    if st.proto().heard_since(peer, since) {
        no_tcp(st, peer.0, to, why);
    }
}

/// A peer that answers packets does not answer TCP: people can do something about that.
fn no_tcp(st: &mut State, peer: u32, to: SocketAddr, why: Option<io::ErrorKind>) {
    st.counters.lane_connects_failed += 1;
    let p = st.peer_of_tcp(peer);
    p.no_tcp_to = Some(to);
    if !std::mem::replace(&mut p.told_no_tcp, true) {
        st.messages.sink_mut().trace.no_tcp(peer, to, why);
    }
}

/// Greets once connected.
fn greet<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time) -> Result<(), Over> {
    if !c.io.is_connected().map_err(|e| Over::NotMade(Some(e.kind())))? {
        return Ok(());
    }
    st.peer(c.peer.0).no_tcp_to = None;
    let (lane, greeting) = st.proto_mut().lane_greeting(c.peer).ok_or(Over::Failed)?;
    (c.lane, c.stage, c.since) = (lane, Stage::Greeted, now);
    // The first bytes of a connection always find room.
    let n = c.io.write(&[IoSlice::new(&greeting)])?;
    if n == GREETING_LEN { Ok(()) } else { Err(Over::Failed) }
}

/// A greeting, or the answer to ours, may be there.
fn greeted<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time) -> Result<(), Over> {
    let Some(bytes) = c.staged[..c.have].first_chunk::<GREETING_LEN>().copied() else { return Ok(()) };
    if c.stage == Stage::Greeted {
        if !st.proto_mut().lane_answered(now, c.peer, c.lane, &bytes) {
            return Err(Over::Failed);
        }
        c.stage = Stage::Up;
    } else {
        let (peer, lane, answer) = st.proto_mut().lane_greeted(now, &bytes).ok_or(Over::Failed)?;
        (c.peer, c.lane, c.stage) = (peer, lane, Stage::Up);
        if c.io.write(&[IoSlice::new(&answer)])? != GREETING_LEN {
            return Err(Over::Failed);
        }
    }
    st.messages.sink_mut().trace.lane(c.peer.0, "up");
    c.health = LaneHealth::new(now);
    c.unstage(GREETING_LEN);
    Ok(())
}

/// Reads some `most` bytes. Returns how many came.
fn read_conn<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time, scratch: &mut [u8], most: u64) -> Result<u64, Over> {
    let mut total = 0;
    if c.stage == Stage::Up && !st.proto().lane_is_up(c.peer, c.lane) {
        // The peer has said so by packets, and sends by them what may lie here unread.
        return Err(Over::Failed);
    }
    if std::mem::take(&mut c.put_off) {
        take_staged(c, st, now)?;
    }
    while total < most && !c.put_off {
        let n = match read_some(c, st, scratch)? {
            Arrived::Bytes(n) => n,
            Arrived::End => return Err(Over::Failed),
        };
        if n == 0 {
            break;
        }
        total += n as u64;
        take_staged(c, st, now)?;
    }
    Ok(total)
}

/// One call to the system: into the place of the unit's payload and, behind it, the stage.
fn read_some<C: Tcp>(c: &mut Conn<C>, st: &mut State, scratch: &mut [u8]) -> io::Result<Arrived> {
    let piece = |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut pieces: SmallVec<[libc::iovec; 4]> = SmallVec::new();
    let Some((unit, done)) = &mut c.unit else {
        pieces.push(piece(&mut c.staged[c.have..]));
        // SAFETY: our own memory, of which nobody holds a reference.
        let arrived = unsafe { c.io.read(&mut pieces) }?;
        if let Arrived::Bytes(n) = arrived {
            c.have += n;
        }
        return Ok(arrived);
    };
    let rest = (unit.len - *done) as usize;
    places_of(st.messages.unit_room(c.peer.0, unit, *done), rest, &mut pieces);
    let mut room: usize = pieces.iter().map(|p| p.iov_len).sum();
    if room == 0 {
        // Nobody wants it (any more), or not this part.
        room = rest.min(scratch.len());
        pieces.push(piece(&mut scratch[..room]));
    }
    if room == rest {
        pieces.push(piece(&mut c.staged[..]));
    }
    // SAFETY: our own memory, and that of a receive or region, which its face declared writable until the completion, and this is before.
    let arrived = unsafe { c.io.read(&mut pieces) }?;
    if let Arrived::Bytes(n) = arrived {
        *done += n.min(room) as u32;
        c.have = n.saturating_sub(room);
    }
    Ok(arrived)
}

/// Takes greetings, heads and payload out of the stage, and ends the unit that is complete.
fn take_staged<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time) -> Result<(), Over> {
    st.messages.set_by_lane(true);
    let result = take_units(c, st, now);
    st.messages.set_by_lane(false);
    result
}

fn take_units<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time) -> Result<(), Over> {
    if c.stage != Stage::Up {
        greeted(c, st, now)?;
        if c.stage != Stage::Up {
            return Ok(());
        }
    }
    let (peer, lane) = (c.peer, c.lane);
    let mut at = 0;
    loop {
        if let Some((unit, done)) = &mut c.unit {
            let n = ((unit.len - *done) as usize).min(c.have - at);
            if n > 0 {
                st.messages.put_unit(peer.0, unit, *done, &c.staged[at..at + n]);
                (*done, at) = (*done + n as u32, at + n);
            }
            if *done < unit.len {
                break;
            }
            let unit = *unit;
            c.unit = None;
            st.messages.with_events(now, &[], |proto, events| proto.unit_ends(now, peer, lane, &unit, events));
        }
        let staged = &c.staged[at..c.have];
        let whole = |n: &usize| (UNIT_HEAD_LEN..=staged.len()).contains(n);
        let Some(len) = UnitHead::len_with_envelope(staged).filter(whole) else { break };
        let (head, sends) = (&staged[..len], st.messages.completions().0);
        if !st.messages.with_events(now, head, |proto, events| proto.unit_tells(now, peer, lane, head, events)) {
            return Err(Over::Failed);
        }
        if st.messages.completions().0 > sends {
            // An answer. Who waited for the send may want to post the receive first, so that it need not be copied.
            c.put_off = true;
            break;
        }
        let unit = st.messages.with_events(now, head, |proto, events| proto.unit_begins(now, peer, head, events));
        let unit = unit.ok_or(Over::Failed)?;
        st.messages.unit_begins(peer.0, &unit);
        c.unit = Some((unit, 0));
        at += len;
    }
    c.unstage(at);
    Ok(())
}

/// Writes units until there is no more, or no room, or some `most` bytes are written. Returns how many were.
fn write_conn<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time, most: u64) -> Result<u64, Over> {
    let mut turn = 0;
    c.blocked = false;
    while turn < most {
        let (unit, done) = match c.out {
            Some(out) => out,
            None => {
                c.head.clear();
                c.head_done = 0;
                let Some(unit) = st.proto_mut().lane_next(now, c.peer, c.lane, &mut c.head) else { break };
                st.messages.unit_leaves(&unit);
                (unit, 0)
            }
        };
        c.out = Some((unit, done));
        let rest = (unit.len - done) as usize;
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        if let Some(source) = st.messages.payload(unit.token) {
            slices_of(source, unit.offset + u64::from(done), rest, &mut slices);
        }
        if slices.iter().map(|s| s.len()).sum::<usize>() < rest {
            // The send was given up, and its memory is the caller's again. A unit cut off counts for nothing; to the peer the lane has failed, and so it has here.
            return Err(Over::Failed);
        }
        if c.head_done < c.head.len() {
            slices.insert(0, IoSlice::new(&c.head[c.head_done..]));
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
    Ok(turn)
}

/// Looks now and then whether the lane is worth having.
fn watch<C: Tcp>(c: &mut Conn<C>, st: &mut State, now: Time) -> Result<(), Over> {
    let read = st.proto().lane_waits(c.peer, c.lane);
    let lost = || {
        // TCP may not know yet, or never find out: what is sent by packets to the same address gets no answer.
        if st.proto().path_has_failed(c.peer, c.to.ip()) { Err(Over::Failed) } else { Ok(c.io.lost_segments()?) }
    };
    if c.health.suffers(now, read, lost)? {
        return Err(Over::Failed);
    }
    if c.health.is_to_ask(now) {
        st.proto_mut().ask_path(now, c.peer, c.to.ip());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
