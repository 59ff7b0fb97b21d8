//! The carrier for peers of this host: what their sessions send goes as records through rings in shared memory (spec/shm.md 10).
//!
//! A ring is in order and loses nothing: what the peer has read has arrived. So a fragment is remembered by where its record ends in the ring, and its fate is known when the peer has read
//! so far. Long payload is not put into the ring: the record says where it lies, and the peer reads it from there into its place, one copy in all.

use crate::core::State;
use crate::memory::{places_of, slices_of};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use weir_link::{BodyKey, DownReason, EndpointName, Event, PeerId, Time};
use weir_session::{Carrier, Flow, Fragment, FragmentIn, Line, Terms};
use weir_shm::{PeerIx, RemotePiece, SendError, Shm, State as Association, Why};

/// Kinds of records (spec/shm.md 10).
mod kind {
    pub const HELLO: u16 = 1;
    pub const WHOLE: u16 = 2;
    pub const CONTROL: u16 = 3;
    pub const MESSAGE: u16 = 4;
    pub const BODY: u16 = 5;
    pub const MESSAGE_AT: u16 = 6;
    pub const BODY_AT: u16 = 7;
    pub const CREDIT: u16 = 8;
    pub const GRANT: u16 = 9;
    pub const ABORT: u16 = 10;
    pub const BYE: u16 = 11;

    /// Whether the record says where its payload lies.
    pub fn is_list(kind: u16) -> bool {
        matches!(kind, MESSAGE_AT | BODY_AT)
    }

    /// Whether the record bears payload itself, behind a head and perhaps an envelope.
    pub fn is_payload(kind: u16) -> bool {
        matches!(kind, WHOLE | MESSAGE | BODY)
    }
}

/// Messages with their envelope up to here go in one record; longer ones in several, or by where they lie. 4 KiB: two copies of that cost less than a system call.
const SMALL_MAX: usize = 4096;
/// Payload in one record at most, where it is copied: small enough that the peer copies one piece out while the next is copied in.
const PIECE_MAX: u64 = 8 << 10;
/// From here on the peer reads payload from where it lies. Below, two copies through a warm cache cost less than the system call.
const PULL_MIN: u64 = 32 << 10;
/// Payload that one record names at most: what the peer reads before others have their turn.
const PULL_MAX: u64 = 512 << 10;
/// Pieces of memory that one record names at most.
const PIECES_MAX: usize = 64;
/// Records read in one pass before sends have their turn, and of one peer before the next.
const TURN_RECORDS: usize = 256;
const PEER_RECORDS: usize = 32;
/// Records that a ring holds at most: each begins a cache line.
const RING_RECORDS: usize = weir_shm::RING_BYTES / 64;
/// Fragments handed over whose fate nobody waits for are looked after when there are so many.
const SETTLE_AT: usize = 64;
/// While somebody sleeps who waits for a peer to read: it is looked after so often. (A peer wakes nobody for having read.)
const SETTLE_NS: u64 = 50_000;
/// How often the timers of sessions are looked at, and what nobody waits for.
const TIMERS_NS: u64 = 1_000_000;
/// Payload from here on is copied from the ring to its place at once; less goes by a buffer of ours, which is cheaper than to ask for the place first.
const DIRECT_MIN: usize = 512;
/// The longest head with its envelope.
const HEAD_MAX: usize = MESSAGE_LEN + 48;
/// Bytes of the heads of records.
const HELLO_LEN: usize = 72;
const WHOLE_LEN: usize = 12;
const CONTROL_LEN: usize = 8;
const MESSAGE_LEN: usize = 32;
const BODY_LEN: usize = 24;

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
    /// Where records end that it has not been seen to have read, and what they carried.
    handed: VecDeque<(u64, Fragment)>,
    /// The program waits for one of them.
    awaited: bool,
}

/// All of an endpoint.
pub struct SharedMemory {
    shm: Shm,
    /// By the peer's place in the transport.
    table: Vec<Option<Peer>>,
    /// By the peer's index in the engine.
    by_peer: Vec<Option<PeerIx>>,
    /// How many of them are up.
    up: usize,
    events: Vec<weir_shm::Event>,
    scratch: Vec<u8>,
    timers_at: Time,
    /// Why a peer is reached otherwise, by index, for people.
    why: Vec<Option<Why>>,
    name: [u8; 48],
    terms: Terms,
    /// What must be the same on both sides (`spec/envelopes.md` 5).
    features: u16,
}

/// What a session gave to be carried, or nothing.
enum Given {
    Nothing,
    Record,
    NoRoom,
    Over,
}

/// What became of the next record.
enum Taken {
    /// There is none.
    Nothing,
    /// Its payload is where it belongs, or the peer broke a rule.
    Placed(Result<(), &'static str>),
    /// It is in the scratch buffer: its kind and length.
    Copied(u16, usize),
}

impl SharedMemory {
    /// Listens for peers. `terms`: what peers are let send before anything is consumed.
    pub fn new(shm: Shm, name: [u8; 48], terms: Terms, features: u16) -> SharedMemory {
        SharedMemory {
            shm,
            table: Vec::new(),
            by_peer: Vec::new(),
            up: 0,
            events: Vec::new(),
            scratch: Vec::new(),
            timers_at: Time::ZERO,
            why: Vec::new(),
            name,
            terms,
            features,
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

    /// What the rings carried.
    pub fn counters(&self) -> &weir_shm::ShmCounters {
        self.shm.counters()
    }

    /// Somebody is about to sleep: peers are to wake it. False: there is something to do first.
    pub fn prepare_sleep(&mut self) -> bool {
        self.shm.prepare_sleep()
    }

    /// Nobody sleeps any more.
    pub fn cancel_sleep(&mut self) {
        self.shm.cancel_sleep();
    }

    /// Why this peer is not reached by shared memory, if that was tried.
    pub fn why(&self, peer: u32) -> Option<Why> {
        self.why.get(peer as usize).copied().flatten()
    }

    /// Whether this peer's memory is read directly, and if not why.
    pub fn pull(&self, peer: u32) -> Option<Result<(), weir_shm::NoPull>> {
        self.shm.can_pull(self.by_peer.get(peer as usize).copied().flatten()?)
    }

    /// When to look although nothing wakes a sleeper.
    pub fn next_timeout(&self, st: &State, now: Time) -> Option<Time> {
        let wait_ns = |p: &Peer| if p.awaited { SETTLE_NS } else { TIMERS_NS };
        let settle = self.peers().filter(|p| !p.handed.is_empty()).map(wait_ns).min().map(|ns| now.plus_ns(ns));
        let sessions = st.proto().sessions();
        let of_session = |p: &Peer| sessions.get(p.peer?).filter(|s| s.carrier() == Carrier::Shm)?.deadline();
        let timers = self.peers().filter_map(of_session).min();
        [settle, timers, self.shm.next_timeout_ns().map(Time)].into_iter().flatten().min()
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.table.iter().flatten()
    }

    /// Nothing is left that a peer has not read.
    pub fn is_drained(&self, st: &State) -> bool {
        let sessions = st.proto().sessions();
        self.peers().filter_map(|p| sessions.get(p.peer?)).all(|s| s.down().is_some() || !s.has_open())
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
        self.up = 0;
    }

    // Peers.

    fn entry(&mut self, ix: PeerIx) -> &mut Peer {
        let slot = ix.slot();
        if self.table.len() <= slot {
            self.table.resize_with(slot + 1, || None);
        }
        let entry = &mut self.table[slot];
        if entry.as_ref().is_none_or(|p| p.ix != ix) {
            *entry = Some(Peer {
                ix,
                peer: None,
                up: false,
                pulls: false,
                bye: false,
                handed: VecDeque::new(),
                awaited: false,
            });
        }
        entry.as_mut().expect("just filled")
    }

    fn bind(&mut self, ix: PeerIx, peer: PeerId) {
        self.entry(ix).peer = Some(peer);
        let i = peer.0 as usize;
        if self.by_peer.len() <= i {
            self.by_peer.resize(i + 1, None);
            self.why.resize(i + 1, None);
        }
        self.by_peer[i] = Some(ix);
    }

    /// Forgets a peer of the transport, and returns what was known of it.
    fn unbind(&mut self, ix: PeerIx) -> Option<Peer> {
        let p = self.table.get_mut(ix.slot())?.take_if(|p| p.ix == ix)?;
        self.up -= usize::from(p.up);
        if let Some(peer) = p.peer
            && let Some(there) = self.by_peer.get_mut(peer.0 as usize)
            && *there == Some(ix)
        {
            *there = None;
        }
        self.shm.forget(ix);
        Some(p)
    }

    /// Ends what shared memory carries of a peer; false when that is nothing.
    pub fn drop_peer(&mut self, st: &mut State, now: Time, peer: PeerId) -> bool {
        if st.proto().sessions().get(peer).is_none_or(|s| s.carrier() != Carrier::Shm) {
            return false;
        }
        if let Some(ix) = self.by_peer.get(peer.0 as usize).copied().flatten() {
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
        let Some(p) = self.unbind(ix) else { return };
        let Some(peer) = p.peer else { return };
        if let Some(there) = self.why.get_mut(peer.0 as usize) {
            *there = Some(why);
        }
        st.messages.with_events(now, &[], |proto, events| {
            if proto.sessions().get(peer).is_some_and(|s| s.carrier() == Carrier::Shm) {
                if let Some((s, _)) = proto.sessions_mut().get_mut(peer) {
                    p.handed.iter().for_each(|(_, f)| s.lost(*f));
                }
                proto.carry(now, peer, events);
            }
        });
    }

    /// The peer is dead, or not to be spoken to any more.
    fn end(&mut self, st: &mut State, now: Time, ix: PeerIx, reason: DownReason) {
        let Some(peer) = self.unbind(ix).and_then(|p| p.peer) else { return };
        st.messages.with_events(now, &[], |proto, events| {
            let carried = proto.sessions().get(peer).is_some_and(|s| s.carrier() == Carrier::Shm);
            // One that went by packets has a verdict of its own, but for the death of its process.
            if carried || reason == DownReason::Unreachable {
                proto.sessions_mut().end(peer, reason, events);
            }
        });
    }

    fn happened(&mut self, st: &mut State, now: Time, event: weir_shm::Event) {
        match event {
            weir_shm::Event::Up { peer: ix, id } => {
                self.up += 1;
                self.entry(ix).up = true;
                if let Some(peer) = st.proto().peer_of(id) {
                    self.bind(ix, peer);
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
                // What it published before is still read, and no more than a ring holds: it may go on writing.
                self.read(st, now, ix, RING_RECORDS);
                let Some(p) = self.table.get(ix.slot()).and_then(Option::as_ref).filter(|p| p.ix == ix) else {
                    return self.shm.forget(ix);
                };
                match why {
                    _ if p.bye => self.end(st, now, ix, DownReason::Closed),
                    Why::Died if p.up => self.end(st, now, ix, DownReason::Unreachable),
                    Why::Corrupt => self.end(st, now, ix, DownReason::Violation),
                    _ => self.fall_back(st, now, ix, why),
                }
            }
        }
    }

    /// The peer has said who it is and what it lets us send.
    fn hello(&mut self, st: &mut State, now: Time, ix: PeerIx, bytes: &[u8]) -> Result<(), &'static str> {
        let name: &[u8; 48] = bytes.first_chunk().ok_or("short hello")?;
        let decoded = EndpointName::decode(name).map_err(|_| "hello without a name")?;
        if bytes.len() < HELLO_LEN || self.shm.peer_id(ix) != Some(decoded.endpoint_id) {
            return Err("hello of somebody else");
        }
        if bytes[66..68] != self.features.to_le_bytes() {
            return Err("hello with other features");
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let terms = Terms { credit_msgs: word(48), credit_bytes: word(56) };
        let peer = st.proto_mut().peer(&decoded).map_err(|_| "hello with a name of another job")?;
        self.bind(ix, peer);
        self.entry(ix).pulls = bytes[64] & 1 != 0;
        st.messages.with_events(now, &[], |proto, events| {
            let Some(s) = proto.sessions().get(peer) else { return Err("no session") };
            if s.down().is_some() {
                return Err("a peer that is down");
            }
            if s.carrier() == Carrier::Link && !s.is_up() && !s.has_open() {
                proto.sessions_mut().set_carrier(peer, Carrier::Shm);
            }
            let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return Err("no session") };
            if s.carrier() == Carrier::Shm {
                s.set_piece_max(SMALL_MAX);
                events.push(Event::Up { peer });
                if !s.begin(common, terms) {
                    proto.sessions_mut().end(peer, DownReason::NoRoom, events);
                }
                proto.sessions_mut().touch(peer);
            }
            Ok(())
        })
    }

    // What arrives.

    /// Takes what has come, looks after what was handed over, and hands over what waits. Returns the records read.
    pub fn progress(&mut self, st: &mut State, now: Time) -> usize {
        self.shm.poll(now.0, &mut self.events);
        if !self.events.is_empty() {
            for event in std::mem::take(&mut self.events) {
                self.happened(st, now, event);
            }
        }
        let mut read = 0;
        while read < TURN_RECORDS
            && let Some(ix) = self.shm.next_ready()
        {
            let n = self.read(st, now, ix, PEER_RECORDS);
            if n == 0 {
                break;
            }
            read += n;
        }
        let round = now >= self.timers_at;
        self.settle(st, now, read == 0, round);
        if round {
            self.timers_at = now.plus_ns(TIMERS_NS);
            self.timers(st, now);
        }
        read
    }

    fn timers(&mut self, st: &mut State, now: Time) {
        for peer in self.table.iter().flatten().filter_map(|p| p.peer) {
            let sessions = st.proto_mut().sessions_mut();
            if let Some((s, common)) = sessions.get_mut(peer)
                && s.carrier() == Carrier::Shm
                && s.deadline().is_some_and(|t| t <= now)
            {
                s.on_timeout(common, now);
                sessions.touch(peer);
            }
        }
    }

    /// Reads up to `most` records of a peer. Returns how many.
    fn read(&mut self, st: &mut State, now: Time, ix: PeerIx, most: usize) -> usize {
        let mut n = 0;
        while n < most {
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
        }
        n
    }

    /// Takes the next record: its payload to where it belongs, or all of it to the scratch buffer.
    #[inline]
    fn take(&mut self, st: &mut State, now: Time, ix: PeerIx) -> Taken {
        // An error's end is told as an event.
        let Ok(Some(record)) = self.shm.try_recv(ix) else { return Taken::Nothing };
        let (kind, len) = (record.kind(), record.len());
        if len >= DIRECT_MIN && kind::is_payload(kind) {
            let entry = self.table.get(ix.slot()).and_then(Option::as_ref).filter(|p| p.ix == ix);
            let Some(peer) = entry.and_then(|p| p.peer) else { return Taken::Placed(Err("a record before the hello")) };
            return Taken::Placed(place(st, now, peer, kind, &record.bytes()));
        }
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
        record.bytes().copy_to(0, &mut self.scratch[..len]);
        if kind::is_list(kind) {
            // It counts as read only when the payload has been: from then on the sender's memory is its program's again.
            std::mem::forget(record);
        }
        Taken::Copied(kind, len)
    }

    /// Acts on one record.
    fn record(&mut self, st: &mut State, now: Time, ix: PeerIx, kind: u16, bytes: &[u8]) -> Result<(), &'static str> {
        let Some(entry) = self.table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == ix) else {
            return Ok(());
        };
        if kind == kind::BYE {
            entry.bye = true;
            return Ok(());
        }
        let known = entry.peer;
        if kind == kind::HELLO {
            return self.hello(st, now, ix, bytes);
        }
        let peer = known.ok_or("a record before the hello")?;
        let u64_at = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
        const SHORT: &str = "a record whose head is none";
        match kind {
            kind::WHOLE | kind::MESSAGE | kind::MESSAGE_AT | kind::BODY | kind::BODY_AT => {
                let sessions = st.proto().sessions();
                let number = |low| sessions.get(peer).map_or(0, |s| s.message_number(low));
                let head = read_head(kind, bytes, bytes.len(), number).ok_or(SHORT)?;
                self.payload(st, now, ix, peer, kind, head, bytes)
            }
            kind::CONTROL => {
                let (low, rest) = bytes.split_first_chunk::<CONTROL_LEN>().ok_or(SHORT)?;
                let [a, b, c, d, e, f, _, _] = *low;
                let start = CONTROL_LEN + usize::from(u16::from_le_bytes([e, f]));
                if start - CONTROL_LEN > rest.len() {
                    return Err(SHORT);
                }
                st.messages.with_events(now, bytes, |proto, events| {
                    let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                    let low = u32::from_le_bytes([a, b, c, d]);
                    s.on_control(common, low, CONTROL_LEN..start, start..bytes.len(), events)
                })
            }
            kind::CREDIT | kind::GRANT | kind::ABORT => {
                let (a, b) = (u64_at(0).ok_or(SHORT)?, u64_at(8).ok_or(SHORT)?);
                st.messages.with_events(now, &[], |proto, events| {
                    let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                    match kind {
                        kind::CREDIT => s.on_credit(common, a as u32, b),
                        kind::GRANT => s.on_grant(common, a, b),
                        _ => s.on_abort(common, a, b as u16, events),
                    }
                    proto.sessions_mut().touch(peer);
                    Ok(())
                })
            }
            _ => Err("a record of an unknown kind"),
        }
    }

    /// A record with payload, or that says where it lies.
    #[expect(clippy::too_many_arguments, reason = "one place for all kinds of payload")]
    fn payload(
        &mut self,
        st: &mut State,
        now: Time,
        ix: PeerIx,
        peer: PeerId,
        kind: u16,
        head: Head,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        match head {
            Head::Message { fragment, envelope, start } => {
                let at = kind == kind::MESSAGE_AT;
                st.messages.with_events(now, bytes, |proto, events| {
                    let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                    if at {
                        return s.announce(common, &fragment, envelope..start, events);
                    }
                    s.on_message(common, &fragment, &(envelope..start), &(start..bytes.len()), events)
                })?;
                if !at {
                    return Ok(());
                }
                let len = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
                let part = (u64::from(fragment.offset), len, fragment.total_len);
                self.pull_in(st, now, ix, peer, BodyKey::Message(fragment.mseq), part, &bytes[start..])
            }
            Head::Body { handle, offset, start } if kind == kind::BODY => {
                st.messages.with_events(now, bytes, |proto, events| {
                    let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                    s.on_body(common, now, (handle, offset), &(start..bytes.len()), events).map(|_| ())
                })
            }
            Head::Body { handle, offset, start } => {
                let len = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes"));
                let end = offset.checked_add(u64::from(len));
                if !st.proto().sessions().get(peer).is_some_and(|s| end.is_some_and(|end| s.may_arrive(handle, end))) {
                    return Err("rendezvous data beyond its grant");
                }
                self.pull_in(st, now, ix, peer, BodyKey::Body(handle), (offset, len, 0), &bytes[start..])
            }
        }
    }

    /// Reads payload from where it lies in the peer's memory into its place. `part`: offset, length, and length of the whole message.
    #[expect(clippy::too_many_arguments, reason = "one place for both kinds of payload")]
    fn pull_in(
        &mut self,
        st: &mut State,
        now: Time,
        ix: PeerIx,
        peer: PeerId,
        key: BodyKey,
        (offset, len, total): (u64, u32, u32),
        list: &[u8],
    ) -> Result<(), &'static str> {
        let mut remote: SmallVec<[RemotePiece; PIECES_MAX]> = SmallVec::new();
        for piece in list.chunks_exact(16).take(PIECES_MAX) {
            let word = |at: usize| u64::from_le_bytes(piece[at..at + 8].try_into().expect("eight bytes"));
            remote.push(RemotePiece { address: word(0), len: word(8) });
        }
        let named = remote.iter().fold(0u64, |sum, p| sum.saturating_add(p.len));
        if named != u64::from(len) || u64::from(len) > PULL_MAX {
            return Err("a list of memory that does not fit its payload");
        }
        let mut local: SmallVec<[libc::iovec; 4]> = SmallVec::new();
        places_of(st.messages.room(peer.0, key, offset, len as usize), len as usize, &mut local);
        let wanted: usize = local.iter().map(|p| p.iov_len).sum();
        if wanted > 0 {
            // SAFETY: memory of a receive or region, which its face declared writable until the completion, and this is before; or a buffer of our own, of which nobody holds a reference.
            let n = unsafe { self.shm.pull_into(ix, &remote, &local) };
            if n.ok() != Some(wanted) {
                return Err("memory that cannot be read");
            }
        }
        st.messages.with_events(now, &[], |proto, events| {
            let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
            s.placed(common, now, key, total, offset, len, events).map(|_| ())
        })
    }

    // What leaves.

    /// What peers have read has arrived.
    fn settle(&mut self, st: &mut State, now: Time, idle: bool, all: bool) {
        for slot in 0..self.table.len() {
            let Some(p) = &mut self.table[slot] else { continue };
            let Some(peer) = p.peer else { continue };
            if p.handed.is_empty() || !(all || (idle && p.awaited) || p.handed.len() >= SETTLE_AT) {
                continue;
            }
            let Ok(read) = self.shm.read_there(p.ix) else { continue };
            if p.handed.front().is_none_or(|(end, _)| *end > read) {
                continue;
            }
            let handed = &mut p.handed;
            st.messages.with_events(now, &[], |proto, events| {
                let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return };
                while let Some((end, f)) = handed.front().copied()
                    && end <= read
                {
                    handed.pop_front();
                    if let Some(token) = s.arrived(common, &f) {
                        events.push(Event::Sent { peer, token });
                    }
                }
                // There may be room for more control messages now.
                if s.has_control() {
                    proto.sessions_mut().touch(peer);
                }
            });
            p.awaited &= !p.handed.is_empty();
        }
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
        let (down, wants) = (s.down().is_some(), s.carrier() == Carrier::Shm && s.has_open());
        let Some(ix) = self.by_peer.get(peer.0 as usize).copied().flatten() else {
            if wants && !down {
                self.connect(st, now, peer);
            }
            return false;
        };
        if down {
            self.unbind(ix);
            return false;
        }
        if !self.table.get(ix.slot()).and_then(Option::as_ref).is_some_and(|p| p.up) || !s.is_up() {
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
                self.bind(ix, peer);
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

    /// Puts a record into the ring: `head`, and `rest` behind it.
    fn put(&mut self, ix: PeerIx, kind: u16, head: &[u8], rest: &[IoSlice<'_>]) -> Result<u64, Given> {
        let len = rest.iter().fold(head.len(), |sum, piece| sum + piece.len());
        let mut room = match self.shm.reserve(ix, kind, len) {
            Ok(room) => room,
            Err(SendError::Full) => return Err(Given::NoRoom),
            Err(SendError::TooLong | SendError::NotUp | SendError::Over | SendError::Forked) => {
                return Err(Given::Over);
            }
        };
        room.write(0, head);
        let mut at = head.len();
        for piece in rest {
            room.write(at, piece);
            at += piece.len();
        }
        room.commit();
        self.shm.tail(ix).map_err(|_| Given::Over)
    }

    fn handed(&mut self, ix: PeerIx, end: u64, f: Fragment, awaited: bool) {
        if let Some(Some(p)) = self.table.get_mut(ix.slot()) {
            p.handed.push_back((end, f));
            p.awaited |= awaited;
        }
    }

    /// Hands over one thing of a session.
    fn give(&mut self, st: &mut State, ix: PeerIx, peer: PeerId) -> Given {
        let Some((s, common)) = st.proto_mut().sessions_mut().get_mut(peer) else { return Given::Nothing };
        if s.has_notices() {
            let (kind, f, a, b) = if let Some((msgs, bytes)) = s.take_credit(common) {
                (kind::CREDIT, Fragment::Credit, msgs, bytes)
            } else if let Some((handle, limit)) = s.take_grant(common) {
                (kind::GRANT, Fragment::Grant { handle }, handle, limit)
            } else if let Some((handle, code)) = s.take_abort() {
                (kind::ABORT, Fragment::Abort { handle, code }, handle, u64::from(code))
            } else {
                return self.give_message(st, ix, peer);
            };
            let mut head = [0; 16];
            head[..8].copy_from_slice(&a.to_le_bytes());
            head[8..].copy_from_slice(&b.to_le_bytes());
            return match self.put(ix, kind, &head, &[]) {
                Ok(end) => {
                    self.handed(ix, end, f, false);
                    Given::Record
                }
                Err(given) => {
                    // Nothing was put: it is to be told still.
                    if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
                        s.lost(f);
                    }
                    given
                }
            };
        }
        self.give_message(st, ix, peer)
    }

    fn give_message(&mut self, st: &mut State, ix: PeerIx, peer: PeerId) -> Given {
        let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) else { return Given::Nothing };
        let mut envelope = [0; 48];
        let given = if let Some((mseq, m, _)) = s.next_control() {
            let env = m.envelope().len();
            envelope[..env].copy_from_slice(m.envelope());
            let (token, len, patient) = (m.token, u64::from(m.len), m.patient || m.token == 0);
            let mut head = [0; CONTROL_LEN + 48];
            head[..4].copy_from_slice(&(mseq as u32).to_le_bytes());
            head[4..6].copy_from_slice(&(env as u16).to_le_bytes());
            head[CONTROL_LEN..CONTROL_LEN + env].copy_from_slice(&envelope[..env]);
            self.put_payload(st, ix, kind::CONTROL, &head[..CONTROL_LEN + env], (token, 0, len)).map(|end| {
                if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
                    s.took_control();
                }
                self.handed(ix, end, Fragment::Control { mseq }, !patient);
            })
        } else if let Some(piece) = s.next_small() {
            let Flow::Message(mseq) = piece.flow else { return Given::Nothing };
            let Some(m) = s.message(mseq) else { return Given::Nothing };
            let env = m.envelope().len();
            let (token, patient) = (m.token, m.patient || m.token == 0);
            let mut head = [0; WHOLE_LEN + 48];
            head[..2].copy_from_slice(&m.stream.to_le_bytes());
            head[2..4].copy_from_slice(&(env as u16).to_le_bytes());
            head[4..8].copy_from_slice(&m.sseq.to_le_bytes());
            head[8..12].copy_from_slice(&(mseq as u32).to_le_bytes());
            head[WHOLE_LEN..WHOLE_LEN + env].copy_from_slice(m.envelope());
            self.put_payload(st, ix, kind::WHOLE, &head[..WHOLE_LEN + env], (token, 0, piece.to)).map(|end| {
                if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
                    s.took_small(piece.to);
                }
                self.handed(ix, end, Fragment::of(piece.flow, 0, piece.to), !patient);
            })
        } else if let Some(piece) = s.next_lost() {
            self.give_piece(st, ix, peer, piece.flow, piece.from, piece.to, true)
        } else if let Some(piece) = s.next_flow(Line::Main) {
            self.give_piece(st, ix, peer, piece.flow, piece.from, piece.to, false)
        } else {
            return Given::Nothing;
        };
        match given {
            Ok(()) => Given::Record,
            Err(given) => given,
        }
    }

    fn put_payload(
        &mut self,
        st: &State,
        ix: PeerIx,
        kind: u16,
        head: &[u8],
        (token, offset, len): (u64, u64, u64),
    ) -> Result<u64, Given> {
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        if let Some(source) = st.messages.payload(token) {
            slices_of(source, offset, len as usize, &mut slices);
        }
        if slices.iter().map(|s| s.len() as u64).sum::<u64>() < len {
            // The operation was given up, and its memory is the caller's again: nobody looks at these bytes.
            static NOTHING: [u8; PIECE_MAX as usize] = [0; PIECE_MAX as usize];
            slices.clear();
            slices.push(IoSlice::new(&NOTHING[..(len as usize).min(NOTHING.len())]));
        }
        self.put(ix, kind, head, &slices)
    }

    /// Hands over the beginning of `[from, to)` of a flow: where it lies, or the bytes themselves.
    #[expect(clippy::too_many_arguments, reason = "one place for what is sent and what is sent again")]
    fn give_piece(
        &mut self,
        st: &mut State,
        ix: PeerIx,
        peer: PeerId,
        flow: Flow,
        from: u64,
        to: u64,
        again: bool,
    ) -> Result<(), Given> {
        let pulls = self.table.get(ix.slot()).and_then(Option::as_ref).is_some_and(|p| p.pulls);
        let Some(s) = st.proto().sessions().get(peer) else { return Err(Given::Nothing) };
        let token = match flow {
            Flow::Message(mseq) => s.message(mseq).map(|m| m.token),
            Flow::Body(slot, generation) => s.body(slot, generation).map(|b| b.token),
        };
        let Some(token) = token else { return Err(Given::Nothing) };
        let mut list: SmallVec<[u8; 64]> = SmallVec::new();
        let mut end = to.min(from + PIECE_MAX);
        if pulls && to - from >= PULL_MIN && st.messages.lends(token) {
            end = to.min(from + PULL_MAX);
            let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
            if let Some(source) = st.messages.payload(token) {
                slices_of(source, from, (end - from) as usize, &mut slices);
            }
            slices.truncate(PIECES_MAX);
            let named: u64 = slices.iter().map(|s| s.len() as u64).sum();
            if named > 0 {
                end = from + named;
                for s in &slices {
                    list.extend_from_slice(&(s.as_ptr().expose_provenance() as u64).to_le_bytes());
                    list.extend_from_slice(&(s.len() as u64).to_le_bytes());
                }
            } else {
                end = to.min(from + PIECE_MAX);
            }
        }
        let mut head: SmallVec<[u8; 96]> = SmallVec::new();
        let len = ((end - from) as u32).to_le_bytes();
        let patient = match flow {
            Flow::Message(mseq) => {
                let Some(m) = s.message(mseq) else { return Err(Given::Nothing) };
                head.extend_from_slice(&m.stream.to_le_bytes());
                head.extend_from_slice(&(m.envelope().len() as u16).to_le_bytes());
                head.extend_from_slice(&m.sseq.to_le_bytes());
                head.extend_from_slice(&mseq.to_le_bytes());
                head.extend_from_slice(&m.len.to_le_bytes());
                head.extend_from_slice(&(from as u32).to_le_bytes());
                head.extend_from_slice(&len);
                head.extend_from_slice(&[0; 4]);
                head.extend_from_slice(m.envelope());
                m.patient
            }
            Flow::Body(slot, generation) => {
                let Some(b) = s.body(slot, generation) else { return Err(Given::Nothing) };
                head.extend_from_slice(&b.handle.to_le_bytes());
                head.extend_from_slice(&from.to_le_bytes());
                head.extend_from_slice(&len);
                head.extend_from_slice(&[0; 4]);
                false
            }
        };
        let message = matches!(flow, Flow::Message(_));
        let tail = if list.is_empty() {
            let kind = if message { kind::MESSAGE } else { kind::BODY };
            self.put_payload(st, ix, kind, &head, (token, from, end - from))?
        } else {
            let kind = if message { kind::MESSAGE_AT } else { kind::BODY_AT };
            self.put(ix, kind, &head, &[IoSlice::new(&list)])?
        };
        if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
            if again {
                s.took_lost(end);
            } else if !s.took_flow(Line::Main, end) {
                // Others have their turn in between.
                s.end_turn(Line::Main);
            }
        }
        self.handed(ix, tail, Fragment::of(flow, from, end), !patient);
        Ok(())
    }
}

/// What is said at the head of a record that bears payload, and where that begins.
enum Head {
    Message { fragment: FragmentIn, envelope: usize, start: usize },
    Body { handle: u64, offset: u64, start: usize },
}

/// Reads the head of a record of `len` bytes, of which `bytes` are the first. `number` expands the low half of a message's number.
fn read_head(kind: u16, bytes: &[u8], len: usize, number: impl Fn(u32) -> u64) -> Option<Head> {
    let u16_at = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes(b.try_into().expect("two bytes")));
    let u32_at = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")));
    let u64_at = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    let (head, start) = match kind {
        kind::WHOLE => {
            let start = WHOLE_LEN + usize::from(u16_at(2)?);
            let total_len = u32::try_from(len.checked_sub(start)?).ok()?;
            let (stream, sseq, mseq) = (u16_at(0)?, u32_at(4)?, number(u32_at(8)?));
            let fragment = FragmentIn { stream, mseq, sseq, total_len, offset: 0 };
            (Head::Message { fragment, envelope: WHOLE_LEN, start }, start)
        }
        kind::MESSAGE | kind::MESSAGE_AT => {
            let start = MESSAGE_LEN + usize::from(u16_at(2)?);
            let (stream, sseq, mseq) = (u16_at(0)?, u32_at(4)?, u64_at(8)?);
            let (total_len, offset, part) = (u32_at(16)?, u32_at(20)?, u32_at(24)?);
            if offset.checked_add(part)? > total_len
                || (kind == kind::MESSAGE && len.checked_sub(start)? != part as usize)
            {
                return None;
            }
            let fragment = FragmentIn { stream, mseq, sseq, total_len, offset };
            (Head::Message { fragment, envelope: MESSAGE_LEN, start }, start)
        }
        _ => {
            let (handle, offset) = (u64_at(0)?, u64_at(8)?);
            (Head::Body { handle, offset, start: BODY_LEN }, BODY_LEN)
        }
    };
    (start <= bytes.len() && start <= len).then_some(head)
}

/// Copies the payload of a record from the ring to where it belongs.
fn place(
    st: &mut State,
    now: Time,
    peer: PeerId,
    kind: u16,
    bytes: &weir_shm::bytes::SharedBytes<'_>,
) -> Result<(), &'static str> {
    let mut head = [0; HEAD_MAX];
    let n = bytes.copy_to(0, &mut head);
    let sessions = st.proto().sessions();
    let number = |low| sessions.get(peer).map_or(0, |s| s.message_number(low));
    let head_of = read_head(kind, &head[..n], bytes.len(), number).ok_or("a record whose head is none")?;
    let (key, offset, total, start) = match head_of {
        Head::Message { fragment, envelope, start } => {
            st.messages.with_events(now, &head, |proto, events| {
                let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                s.announce(common, &fragment, envelope..start, events)
            })?;
            (BodyKey::Message(fragment.mseq), u64::from(fragment.offset), fragment.total_len, start)
        }
        Head::Body { handle, offset, start } => {
            let end = offset.checked_add((bytes.len() - start) as u64).ok_or("a record whose head is none")?;
            if !st.proto().sessions().get(peer).is_some_and(|s| s.may_arrive(handle, end)) {
                return Err("rendezvous data beyond its grant");
            }
            (BodyKey::Body(handle), offset, 0, start)
        }
    };
    let len = bytes.len() - start;
    let mut places: SmallVec<[libc::iovec; 4]> = SmallVec::new();
    places_of(st.messages.room(peer.0, key, offset, len), len, &mut places);
    let mut at = start;
    for p in &places {
        // SAFETY: memory of a receive or region, which its face declared writable until the completion, and this is before; or a buffer of our own. Nobody else holds a reference here.
        let to = unsafe { std::slice::from_raw_parts_mut(p.iov_base.cast::<u8>(), p.iov_len) };
        at += bytes.copy_to(at, to);
    }
    st.messages.with_events(now, &[], |proto, events| {
        let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
        s.placed(common, now, key, total, offset, len as u32, events).map(|_| ())
    })
}
