//! The carrier for peers of this host: what their sessions send goes as records through rings in
//! shared memory (spec/shm.md 10).
//!
//! A ring is in order and loses nothing: what the peer has read has arrived. So a fragment is
//! remembered by where its record ends in the ring, and its fate is known when the peer has read so
//! far. Long payload is not put into the ring: the record says where it lies, and the peer reads it
//! from there into its place, one copy in all.

use crate::records::kind;
use crate::state::State;
use records::{Given, HELLO_LEN, Taken};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use weir_link::{DownReason, PeerId, Time};
use weir_session::{Carrier, Handed, Session, Terms};
use weir_shm::{PeerIx, Shm, State as Association, Why};

mod hello;
mod records;

/// Records read in one pass before sends have their turn, and of one peer before the next.
const TURN_RECORDS: usize = 256;
const PEER_RECORDS: usize = 32;
/// Records that a ring holds at most: each begins a cache line.
const RING_RECORDS: usize = weir_shm::RING_BYTES / 64;
/// Fragments handed over whose fate nobody waits for are looked after when there are so many.
const SETTLE_AT: usize = 64;
/// While somebody sleeps who waits for a peer to read: it is looked after so often. (A peer wakes
/// nobody for having read.)
const SETTLE_NS: u64 = 50_000;
/// How often the timers of sessions are looked at, and what nobody waits for.
const TIMERS_NS: u64 = 1_000_000;
/// The latter while all sleep: what a peer has read is forgotten by it, and no more.
const FORGET_NS: u64 = 100_000_000;
/// Passes that find records may leave all else to a later one: so many in a row, and while timers
/// are not later than so. What comes is somebody's turn; the rest can wait until nothing has come.
/// A program that polls seldom and finds something each time is to hear of a death no later than
/// another.
const FOUND_PASSES_MAX: u32 = 16;
const FOUND_LATE_NS: u64 = 4_000_000;

/// A peer with which memory is shared, or is to be.
struct Peer {
    ix: PeerIx,
    /// Whose it is; none before it has said hello.
    peer: Option<PeerId>,
    up: bool,
    /// It can read our memory.
    pulls: bool,
    /// It has said that it closes.
    bye: bool,
    /// It has said hello, and who it was before is not forgotten yet: what it said, and since when
    /// it waits. Until then nothing else of it is read.
    hello: Option<Box<([u8; HELLO_LEN], Time)>>,
    /// Where records end that it has not been seen to have read, and what they carried.
    handed: Handed,
    /// The program waits for one of them.
    awaited: bool,
    /// Something went straight into the ring.
    straight: bool,
    /// It stands in the list of those that were handed something, and in that of those whose
    /// session has a timer.
    is_handed: bool,
    is_timed: bool,
}

/// Whether the session with this peer is up and goes by shared memory.
fn carries(st: &State, p: &Peer) -> bool {
    let session = p.peer.and_then(|peer| st.proto().sessions().get(peer));
    session.is_some_and(|s| s.is_up() && s.carrier() == Carrier::Shm)
}

/// Whether a peer has not read all that was put into its ring. Of one that is over nothing is
/// known, nor waited for.
fn is_unread(shm: &mut Shm, ix: PeerIx) -> bool {
    let end = shm.tail(ix);
    end.is_ok_and(|end| shm.read_there(ix).is_ok_and(|read| read < end))
}

/// All of an endpoint.
pub struct SharedMemory {
    shm: Shm,
    /// By the peer's place in the transport.
    table: Vec<Option<Peer>>,
    /// By the peer's index in the engine.
    by_peer: Vec<Option<PeerIx>>,
    /// How many there are in the table, and how many of them are up.
    known: usize,
    up: usize,
    /// Who was handed what is not known to have been read, and who may have a timer: what is looked
    /// after, however many peers there are.
    handed_to: Vec<PeerIx>,
    timed: Vec<PeerIx>,
    /// Whose hello waits.
    waiting: Vec<PeerIx>,
    /// Who closes waits for something to be read.
    unread: bool,
    /// How many sessions had ended when those that did were let go of.
    ended: u64,
    events: Vec<weir_shm::Event>,
    scratch: Vec<u8>,
    timers_at: Time,
    /// Passes in a row that found records and left all else to a later one.
    found_passes: u32,
    /// Why a peer is reached otherwise, by index, for people; and which endpoint that was, for an
    /// index may be given to another.
    why: Vec<Option<(u64, Why)>>,
    name: [u8; 48],
    terms: Terms,
    /// What must be the same on both sides (`spec/envelopes.md` 5).
    features: u16,
    /// Who is dead may come again ([`crate::EngineConfig::dead_may_return`]).
    dead_may_return: bool,
}

impl SharedMemory {
    /// Listens for peers. `terms`: what peers are let send before anything is consumed.
    pub fn new(shm: Shm, name: [u8; 48], terms: Terms, features: u16, dead_may_return: bool) -> SharedMemory {
        SharedMemory {
            shm,
            table: Vec::new(),
            by_peer: Vec::new(),
            known: 0,
            up: 0,
            handed_to: Vec::new(),
            timed: Vec::new(),
            waiting: Vec::new(),
            unread: false,
            ended: 0,
            events: Vec::new(),
            scratch: Vec::new(),
            timers_at: Time::ZERO,
            found_passes: 0,
            why: Vec::new(),
            name,
            terms,
            features,
            dead_may_return,
        }
    }

    /// Readable when something is to be done here. Valid as long as this value.
    pub fn fd(&self) -> RawFd {
        self.shm.wait_fd().as_raw_fd()
    }

    /// Memory is shared with some peer.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.up > 0
    }

    /// Memory is shared with some peer, or about to be.
    pub fn has_peers(&self) -> bool {
        self.known > 0
    }

    /// What the rings carried.
    pub fn counters(&self) -> &weir_shm::ShmCounters {
        self.shm.counters()
    }

    /// Somebody is about to sleep: peers are to wake it. False: there is something to do first.
    pub fn prepare_sleep(&mut self) -> bool {
        // (What was found while a peer was looked for is not looked at before the next pass, and
        // wakes nobody any more.)
        self.events.is_empty() && self.shm.prepare_sleep()
    }

    /// Nobody sleeps any more.
    pub fn cancel_sleep(&mut self) {
        self.shm.cancel_sleep();
    }

    /// Something has ended a sleep and was not found: perhaps it is at the sockets.
    pub fn looks_soon(&mut self) {
        self.shm.looks_soon();
    }

    /// Why this peer is not reached by shared memory, if that was tried.
    pub fn why(&self, peer: u32, endpoint: u64) -> Option<Why> {
        let (of, why) = self.why.get(peer as usize).copied().flatten()?;
        (of == endpoint).then_some(why)
    }

    /// Whether this peer's memory is read directly, and if not why.
    pub fn pull(&self, peer: u32) -> Option<Result<(), weir_shm::NoPull>> {
        self.shm.can_pull(self.by_peer.get(peer as usize).copied().flatten()?)
    }

    /// Reads a peer's memory into these places; returns how many bytes.
    ///
    /// # Errors
    /// `NotFound` if no memory is shared with it, else as [`Shm::pull_into`].
    ///
    /// # Safety
    /// Every place may be written.
    pub unsafe fn read_memory(
        &mut self,
        peer: u32,
        remote: &[weir_shm::RemotePiece],
        places: &[libc::iovec],
    ) -> std::io::Result<usize> {
        let ix = self.by_peer.get(peer as usize).copied().flatten().ok_or(std::io::ErrorKind::NotFound)?;
        // SAFETY: passed on from the caller.
        unsafe { self.shm.pull_into(ix, remote, places) }
    }

    /// When to look although nothing wakes a sleeper.
    pub fn next_timeout(&self, st: &State, now: Time) -> Option<Time> {
        let sessions = st.proto().sessions();
        // Control messages wait for earlier ones to have been read, and so may answers that are
        // not control messages yet: where many are out.
        let awaits = |p: &Peer| p.peer.and_then(|peer| sessions.get(peer)).is_some_and(Session::awaits_control);
        let wait_ns = |p: &Peer| match p.awaited {
            true => SETTLE_NS,
            false if p.handed.len() >= SETTLE_AT || awaits(p) => TIMERS_NS,
            false => FORGET_NS,
        };
        let waits = self.handed_to.iter().filter_map(|ix| self.there(*ix)).filter(|p| !p.handed.is_empty());
        let settle = waits.map(wait_ns).chain(self.unread.then_some(SETTLE_NS)).min().map(|ns| now.plus_ns(ns));
        let of_session = |p: &Peer| sessions.get(p.peer?).filter(|s| s.carrier() == Carrier::Shm)?.deadline();
        // (They are looked at in rounds only: who did not sleep until the next would spin.)
        let timers = self.timed.iter().filter_map(|ix| self.there(*ix)).filter_map(of_session).min();
        let timers = timers.map(|t| t.max(self.timers_at));
        let waiting = (!self.waiting.is_empty()).then(|| now.plus_ns(TIMERS_NS));
        [settle, timers, waiting, self.shm.next_timeout_ns().map(Time)].into_iter().flatten().min()
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.table.iter().flatten()
    }

    fn there(&self, ix: PeerIx) -> Option<&Peer> {
        self.table.get(ix.slot()).and_then(Option::as_ref).filter(|p| p.ix == ix)
    }

    /// Nothing is left that a peer has not read.
    pub fn is_drained(&mut self, st: &State) -> bool {
        let sessions = st.proto().sessions();
        let mut drained = true;
        self.unread = false;
        for p in self.table.iter().flatten() {
            let Some(s) = p.peer.and_then(|peer| sessions.get(peer)).filter(|s| s.down().is_none()) else { continue };
            self.unread |= p.straight && is_unread(&mut self.shm, p.ix);
            drained &= !s.has_open();
        }
        drained && !self.unread
    }

    /// Says goodbye and lets go of all memory that is shared.
    pub fn close(&mut self) {
        let all: Vec<PeerIx> = self.peers().map(|p| p.ix).collect();
        for ix in all {
            let _ = self.shm.send(ix, kind::BYE, &[]);
            self.shm.forget(ix);
        }
        self.table.clear();
        self.by_peer.clear();
        self.handed_to.clear();
        self.timed.clear();
        self.waiting.clear();
        (self.known, self.up) = (0, 0);
    }

    // Peers.

    fn entry(&mut self, st: &mut State, ix: PeerIx) -> &mut Peer {
        let slot = ix.slot();
        if let Some(former) = self.table.get(slot).and_then(Option::as_ref).map(|p| p.ix).filter(|former| *former != ix)
        {
            self.unbind(st, former);
        }
        if self.table.len() <= slot {
            self.table.resize_with(slot + 1, || None);
        }
        self.known += usize::from(self.table[slot].is_none());
        self.table[slot].get_or_insert_with(|| Peer {
            ix,
            peer: None,
            up: false,
            pulls: false,
            bye: false,
            hello: None,
            handed: Handed::default(),
            awaited: false,
            straight: false,
            is_handed: false,
            is_timed: false,
        })
    }

    fn bind(&mut self, st: &mut State, ix: PeerIx, peer: PeerId) {
        let before = self.entry(st, ix).peer.replace(peer);
        let sessions = st.proto_mut().sessions_mut();
        sessions.hold(peer);
        if let Some(before) = before {
            sessions.let_go(before);
        }
        let i = peer.0 as usize;
        if self.by_peer.len() <= i {
            self.by_peer.resize(i + 1, None);
            self.why.resize(i + 1, None);
        }
        self.by_peer[i] = Some(ix);
    }

    /// Forgets a peer of the transport, and returns what was known of it.
    fn unbind(&mut self, st: &mut State, ix: PeerIx) -> Option<Peer> {
        let p = self.table.get_mut(ix.slot())?.take_if(|p| p.ix == ix)?;
        self.known -= 1;
        self.up -= usize::from(p.up);
        if let Some(peer) = p.peer {
            st.proto_mut().sessions_mut().let_go(peer);
            if let Some(there) = self.by_peer.get_mut(peer.0 as usize)
                && *there == Some(ix)
            {
                *there = None;
            }
        }
        self.shm.forget(ix);
        Some(p)
    }

    /// Ends what shared memory carries of a peer; false when that is nothing.
    pub fn drop_peer(&mut self, st: &mut State, now: Time, peer: PeerId) -> bool {
        let ix = self.by_peer.get(peer.0 as usize).copied().flatten();
        if st.proto().sessions().get(peer).is_none_or(|s| s.carrier() != Carrier::Shm) {
            // What it sends may come here all the same.
            if let Some(ix) = ix {
                let _ = self.shm.send(ix, kind::BYE, &[]);
                self.unbind(st, ix);
            }
            return false;
        }
        if let Some(ix) = ix {
            let _ = self.shm.send(ix, kind::BYE, &[]);
            self.end(st, now, ix, DownReason::LocalClose);
        } else {
            // It was not found yet.
            st.messages.with_events(now, &[], |proto, events| {
                proto.sessions_mut().end(peer, DownReason::LocalClose, events);
            });
        }
        true
    }

    /// Packets carry the session from now on, and what was handed over here and not read.
    fn fall_back(&mut self, st: &mut State, now: Time, ix: PeerIx, why: Why) {
        let Some(p) = self.unbind(st, ix) else { return };
        let Some(peer) = p.peer else { return };
        if let Some(there) = self.why.get_mut(peer.0 as usize) {
            *there = Some((st.proto().peer_endpoint_id(peer), why));
        }
        st.messages.with_events(now, &[], |proto, events| {
            if proto.sessions().get(peer).is_some_and(|s| s.carrier() == Carrier::Shm) {
                if let Some((s, _)) = proto.sessions_mut().get_mut(peer) {
                    p.handed.give_back(s);
                }
                proto.carry(now, peer, events);
            }
        });
    }

    /// The peer is dead, or not to be spoken to any more.
    fn end(&mut self, st: &mut State, now: Time, ix: PeerIx, reason: DownReason) {
        let Some(peer) = self.unbind(st, ix).and_then(|p| p.peer) else { return };
        st.messages.with_events(now, &[], |proto, events| {
            let carried = proto.sessions().get(peer).is_some_and(|s| s.carrier() == Carrier::Shm);
            // One that went by packets has a verdict of its own, but for the death of its process.
            if carried || reason == DownReason::Gone {
                proto.end(now, peer, reason, events);
            }
        });
    }

    fn happened(&mut self, st: &mut State, now: Time, event: weir_shm::Event) {
        match event {
            // An attempt of ours had failed, the peer's came up in the same look, and both went
            // with the first event.
            weir_shm::Event::Up { peer: ix, .. } if self.shm.state(ix).is_none() => {}
            weir_shm::Event::Up { peer: ix, id } => {
                self.up += 1;
                self.entry(st, ix).up = true;
                // One that was here before, and comes again, is another peer: its hello says who.
                let lives = |peer: &PeerId| st.proto().sessions().get(*peer).is_some_and(|s| s.down().is_none());
                if let Some(peer) = st.proto().peer_of(id).filter(lives) {
                    self.bind(st, ix, peer);
                }
                let pulls = self.shm.can_pull(ix) == Some(Ok(()));
                let mut hello = [0; HELLO_LEN];
                hello[..48].copy_from_slice(&self.name);
                hello[48..56].copy_from_slice(&self.terms.credit_msgs.to_le_bytes());
                hello[56..64].copy_from_slice(&self.terms.credit_bytes.to_le_bytes());
                hello[64] = u8::from(pulls);
                hello[66..68].copy_from_slice(&self.features.to_le_bytes());
                // A new ring has room.
                let _ = self.shm.send(ix, kind::HELLO, &[IoSlice::new(&hello)]);
            }
            weir_shm::Event::Over { peer: ix, why } => {
                // What it published before is still read, and no more than a ring holds: it may go
                // on writing.
                self.read(st, now, ix, RING_RECORDS);
                // And what it has read has arrived, though nobody looked since.
                self.settle(st, now, false, true);
                let Some(p) = self.table.get(ix.slot()).and_then(Option::as_ref).filter(|p| p.ix == ix) else {
                    return self.shm.forget(ix);
                };
                match why {
                    _ if p.bye => self.end(st, now, ix, DownReason::Closed),
                    Why::Died if p.up => self.end(st, now, ix, DownReason::Gone),
                    Why::Corrupt => self.end(st, now, ix, DownReason::Violation),
                    // Not by packets: what was put into the ring straight, and not read, cannot be
                    // sent again.
                    Why::Closed if carries(st, p) => self.end(st, now, ix, DownReason::Closed),
                    _ if carries(st, p) => self.end(st, now, ix, DownReason::Unreachable),
                    _ => self.fall_back(st, now, ix, why),
                }
            }
        }
    }

    // What arrives.

    /// Takes what has come; in a pass that finds nothing, and now and then, looks after peers,
    /// timers and what was handed over. Returns the records read.
    pub fn progress(&mut self, st: &mut State, now: Time) -> usize {
        let may_leave = self.found_passes < FOUND_PASSES_MAX && now < self.timers_at.plus_ns(FOUND_LATE_NS);
        // (An event comes before the records of its peer.)
        let has_read = may_leave && self.events.is_empty() && !self.shm.has_events();
        if has_read {
            let read = self.read_ready(st, now);
            if read > 0 {
                self.found_passes += 1;
                return read;
            }
        }
        self.found_passes = 0;
        self.look_after(st, now, has_read)
    }

    /// The last pass has found records and left all else to a later one.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.found_passes > 0
    }

    /// Takes what has come, a turn of it.
    #[inline]
    fn read_ready(&mut self, st: &mut State, now: Time) -> usize {
        let mut read = 0;
        while read < TURN_RECORDS
            && let Some(ix) = self.shm.next_ready()
        {
            let n = self.read(st, now, ix, PEER_RECORDS);
            read += n;
            // Of the only peer there is no more: it was looked for.
            if n == 0 || (n < PEER_RECORDS && self.up == 1) {
                break;
            }
        }
        read
    }

    /// All there is to do; `has_read`: what had come was nothing. Returns the records read.
    fn look_after(&mut self, st: &mut State, now: Time, has_read: bool) -> usize {
        let round = now >= self.timers_at;
        if round {
            self.leave_ended(st);
        }
        let looks = self.shm.is_due(now.0);
        self.shm.poll(now.0, &mut self.events);
        let has_news = looks || !self.events.is_empty();
        if !self.events.is_empty() {
            for event in std::mem::take(&mut self.events) {
                self.happened(st, now, event);
            }
        }
        let read = if has_read && !has_news { 0 } else { self.read_ready(st, now) };
        self.settle(st, now, read == 0, round);
        if round {
            self.timers_at = now.plus_ns(TIMERS_NS);
            self.timers(st, now);
            self.say_hello_again(st, now);
        }
        read
    }

    /// Lets go of those whose session has ended by the verdict of another carrier: a peer that
    /// sends by shared memory what it is sent in packets would never hear of it, and its place may
    /// be another's soon.
    fn leave_ended(&mut self, st: &mut State) {
        let sessions = st.proto().sessions();
        if std::mem::replace(&mut self.ended, sessions.common().ended()) == sessions.common().ended() {
            return;
        }
        let is_over = |p: &&Peer| p.peer.and_then(|peer| sessions.get(peer)).is_some_and(|s| s.down().is_some());
        let ended: SmallVec<[PeerIx; 4]> = self.peers().filter(is_over).map(|p| p.ix).collect();
        for ix in ended {
            self.unbind(st, ix);
        }
    }

    fn timers(&mut self, st: &mut State, now: Time) {
        let sessions = st.proto_mut().sessions_mut();
        let table = &mut self.table;
        self.timed.retain(|ix| {
            let Some(p) = table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == *ix) else {
                return false;
            };
            let session = p.peer.and_then(|peer| Some((peer, sessions.get_mut(peer)?)));
            let due = session.filter(|(_, (s, _))| s.carrier() == Carrier::Shm);
            p.is_timed = due.as_ref().is_some_and(|(_, (s, _))| s.deadline().is_some());
            if let Some((peer, (s, common))) = due
                && s.deadline().is_some_and(|t| t <= now)
            {
                s.on_timeout(common, now);
                sessions.touch(peer);
            }
            p.is_timed
        });
    }

    /// Reads up to `most` records of a peer. Returns how many.
    fn read(&mut self, st: &mut State, now: Time, ix: PeerIx, most: usize) -> usize {
        let mut n = 0;
        let waits = |shm: &Self| !shm.waiting.is_empty() && shm.there(ix).is_some_and(|p| p.hello.is_some());
        if waits(self) {
            return 0;
        }
        // An answer comes after its question was read: that is to end first, or a program hears of
        // them the wrong way round. (The look for more comes first, and what the peer did before it
        // wrote that is seen after it.)
        if self.there(ix).is_some_and(|p| p.awaited) && self.shm.has_more(ix) {
            self.settle_with(st, now, ix);
        }
        // (What was read is seen to by the look for more: who waits for room is woken. The first
        // look is taken by who calls, or the reading itself.)
        while n < most && (n == 0 || self.shm.has_more(ix)) {
            let result = match self.take(st, now, ix) {
                Taken::Nothing => break,
                Taken::Placed(result) => result,
                Taken::Copied(kind, len) => {
                    let scratch = std::mem::take(&mut self.scratch);
                    let result = self.record(st, now, ix, kind, &scratch[..len]);
                    self.scratch = scratch;
                    if kind::is_list(kind) {
                        drop(self.shm.try_recv(ix));
                    }
                    result
                }
            };
            n += 1;
            if result.is_err() {
                self.shm.close(ix);
                self.end(st, now, ix, DownReason::Violation);
                break;
            }
            if waits(self) {
                break;
            }
        }
        n
    }

    // What leaves.

    /// What peers have read has arrived.
    fn settle(&mut self, st: &mut State, now: Time, idle: bool, all: bool) {
        let mut next = 0;
        while let Some(&ix) = self.handed_to.get(next) {
            let p = self.table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == ix);
            let Some(p) = p.filter(|p| !p.handed.is_empty()) else {
                self.handed_to.swap_remove(next);
                if let Some(p) = self.table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == ix) {
                    p.is_handed = false;
                }
                continue;
            };
            next += 1;
            if all || (idle && p.awaited) || p.handed.len() >= SETTLE_AT {
                self.settle_with(st, now, ix);
            }
        }
    }

    /// What this peer has read has arrived.
    fn settle_with(&mut self, st: &mut State, now: Time, ix: PeerIx) {
        let p = self.table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == ix);
        let Some((peer, p)) = p.and_then(|p| Some((p.peer?, p))) else { return };
        let Ok(read) = self.shm.read_there(ix) else { return };
        if !p.handed.any_within(read) {
            return;
        }
        let handed = &mut p.handed;
        st.messages.with_events(now, &[], |proto, events| {
            let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return };
            handed.read(read, s, common, events, |_| ());
            // There may be room for more control messages now.
            if s.has_control() {
                proto.sessions_mut().touch(peer);
            }
        });
        p.awaited &= !p.handed.is_empty();
    }

    /// Hands over what sessions have to send, as far as there is room.
    #[inline]
    pub fn offer(&mut self, st: &mut State, now: Time) {
        if st.proto().sessions().common().grants.has_changed() {
            st.proto_mut().sessions_mut().run_grants(now);
        }
        let mut again: SmallVec<[PeerId; 4]> = SmallVec::new();
        while let Some(peer) = st.proto_mut().sessions_mut().next_touched(Carrier::Shm) {
            if self.offer_to(st, now, peer) {
                again.push(peer);
            }
        }
        for peer in again {
            st.proto_mut().sessions_mut().touch(peer);
        }
    }

    /// True if something is left that had no room.
    fn offer_to(&mut self, st: &mut State, now: Time, peer: PeerId) -> bool {
        let Some(s) = st.proto().sessions().get(peer) else { return false };
        // (Who was never sent anything, and sends in packets, is to be told of room for more all
        // the same.)
        let wants = s.carrier() == Carrier::Shm && (s.has_open() || s.has_notices());
        let down = s.down().is_some();
        let timed = s.deadline().is_some();
        let Some(ix) = self.by_peer.get(peer.0 as usize).copied().flatten() else {
            if wants && !down {
                self.connect(st, now, peer);
            }
            return false;
        };
        if down {
            self.unbind(st, ix);
            return false;
        }
        let up = s.is_up();
        let Some(p) = self.table.get_mut(ix.slot()).and_then(Option::as_mut) else { return false };
        if timed && !std::mem::replace(&mut p.is_timed, true) {
            self.timed.push(ix);
        }
        if !p.up || !up {
            return false;
        }
        let (mut left, mut given) = (false, false);
        loop {
            match self.give(st, ix, peer) {
                Given::Nothing => break,
                Given::Record => given = true,
                Given::NoRoom => {
                    left = true;
                    break;
                }
                Given::Over => break,
            }
        }
        if given {
            // Its end, if that is why it fails, comes as an event.
            let _ = self.shm.publish(ix);
        }
        left
    }

    fn connect(&mut self, st: &mut State, now: Time, peer: PeerId) {
        let id = st.proto().peer_endpoint_id(peer);
        match if id == 0 { Err(()) } else { self.shm.connect(id, now.0).map_err(|_| ()) } {
            Ok(ix) => {
                self.bind(st, ix, peer);
                // Most of what does not come up is known by now.
                self.shm.poll(now.0, &mut self.events);
                if let Some(Association::Over(why)) = self.shm.state(ix) {
                    self.events.retain(|e| !matches!(e, weir_shm::Event::Over { peer, .. } if *peer == ix));
                    self.fall_back(st, now, ix, why);
                }
            }
            Err(()) => {
                st.messages.with_events(now, &[], |proto, events| proto.carry(now, peer, events));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CarrierUse, Endpoint, EngineConfig};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use weir_link::EndpointName;
    use weir_shm::{Config, Event as Happened};

    const KEY: [u8; 32] = [7; 32];
    /// Nothing takes this long, however busy the machine, but what hangs.
    const LIMIT: Duration = Duration::from_secs(60);

    /// An endpoint that nobody but the test makes progress with, and one that shares memory with
    /// it.
    fn shared() -> (Arc<Endpoint>, Shm, PeerIx) {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, carrier: CarrierUse::Shm, watchdog_us: 0, ..EngineConfig::default() };
        let ep = Endpoint::open_with_key(cfg, KEY).expect("open");
        let (other, ix) = another(&ep, 1);
        (ep, other, ix)
    }

    /// One more.
    fn another(ep: &Endpoint, n: u64) -> (Shm, PeerIx) {
        let id = EndpointName::decode(&ep.name()).expect("a name").endpoint_id;
        let mut other = Shm::open(id ^ n, &KEY, Config::default()).expect("open");
        let ix = other.connect(id, 0).expect("another");
        let (start, before) = (Instant::now(), used(ep));
        while other.state(ix) != Some(Association::Up) || used(ep) == before {
            other.poll(start.elapsed().as_nanos() as u64, &mut Vec::new());
            ep.progress();
            assert!(start.elapsed() < LIMIT);
        }
        (other, ix)
    }

    fn used(ep: &Endpoint) -> usize {
        ep.shared.core.lock().shm.as_ref().expect("it shares memory").up
    }

    #[test]
    fn nobody_sleeps_on_what_has_happened_and_was_not_looked_at() {
        let (ep, _other, _) = shared();
        let mut core = ep.shared.core.lock();
        let shm = core.shm.as_mut().expect("it shares memory");
        let ix = shm.peers().next().expect("one").ix;
        shm.events.push(Happened::Over { peer: ix, why: Why::Died });
        assert!(!shm.prepare_sleep());
        shm.events.clear();
        assert!(shm.prepare_sleep());
    }

    #[test]
    fn what_comes_up_after_its_own_end_is_not_there() {
        let (ep, other, _) = shared();
        {
            let mut core = ep.shared.core.lock();
            let shm = core.shm.as_mut().expect("it shares memory");
            let ix = shm.peers().next().expect("one").ix;
            shm.events.push(Happened::Over { peer: ix, why: Why::NoDescriptors });
            shm.events.push(Happened::Up { peer: ix, id: 1 });
        }
        ep.progress();
        assert_eq!(used(&ep), 0);
        drop(other);
    }

    #[test]
    fn who_polls_seldom_and_finds_something_each_time_misses_nothing_else() {
        let (ep, mut talker, ix) = shared();
        let (leaving, _) = another(&ep, 2);
        drop(leaving);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_nanos(2 * FOUND_LATE_NS));
            talker.send(ix, kind::BYE, &[]).expect("room");
            let before = crate::clock::now();
            ep.progress();
            let core = ep.shared.core.lock();
            assert!(core.st.last_look >= before, "the sockets may have something too");
        }
        assert_eq!(used(&ep), 1, "one has gone");
    }
}
