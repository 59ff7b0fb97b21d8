//! One endpoint's heart, behind the lock: reads the socket, feeds the protocol, dispatches its events, writes what is due.
//!
//! The contract with the pure protocol: after each call that changes it, drain events, then transmit until it has nothing to say. Sends, receives and remote memory operations
//! are in `sending`, `receiving` and `remote`.

use crate::api::{Completion, Iov, OpError, OpKind};
use crate::budget::{Copies, Unexpected};
use crate::config::EngineConfig;
use crate::counters::{EngineCounters, Totals};
use crate::lanes::Lanes;
use crate::memory::{Gather, Pool, Source};
use crate::state::{
    BodyDest, CompletionQueue, MsgKey, PeerState, RecvKey, RecvState, Region, Role, RxMsg, SendKey, SendState, key,
};
use crate::trace::Trace;
use hashbrown::HashMap;
use slotmap::SlotMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::os::fd::RawFd;
use weir_match::{Match, Matcher};
use weir_proto::{DownReason, Event, PacketBuf, Payloads, PeerId, RxMeta, Time};
use weir_udp::UdpTransport;

/// Datagram batches read in one progress call before sends get their turn.
const RX_BATCHES: usize = 8;
/// Packets written in one progress call before arrivals get their turn: about 1 MiB.
const TX_PACKETS: usize = 768;
/// Packets built before they go out: what one segmentation-offload batch holds.
const FLUSH_PACKETS: usize = 44;
/// The first go out sooner, so that the peer has something to do while the next are built; a message of 64 KiB goes in two halves and not as 44 packets and 3. Each batch costs a system call.
const FIRST_FLUSH_PACKETS: usize = 24;
/// Failed reads of the socket in a row after which it is given up. What the system can lack for a moment (memory) comes back sooner.
const READ_FAILURES_MAX: u32 = 1000;

/// While the socket has no room, timers wait for it or for this long: without room they can do little.
const BLOCKED_NS: u64 = 1_000_000;

/// The state behind the endpoint's lock.
pub struct Core {
    pub udp: UdpTransport,
    /// Connections for large payload, if this endpoint takes them.
    pub lanes: Option<Lanes>,
    pub st: State,
    out: PacketBuf,
    /// Bytes queued that no transmit pass has seen, roughly.
    pub held_bytes: usize,
    /// Something was sent since the watchdog's last pass.
    pub sent: bool,
    /// Reads of the socket that failed, in a row.
    read_failures: u32,
    /// Closed to the end: nothing is read or written any more, for the payloads are the caller's again.
    pub finished: bool,
}

/// Everything but the socket: split off so that a datagram can be handled while the socket lends it.
pub struct State {
    pub cfg: EngineConfig,
    pub proto: weir_proto::Endpoint,
    pub matcher: Matcher,
    pub sends: SlotMap<SendKey, SendState>,
    pub recvs: SlotMap<RecvKey, RecvState>,
    pub msgs: SlotMap<MsgKey, RxMsg>,
    pub bodies: HashMap<(u32, u64), BodyDest, foldhash::fast::FixedState>,
    /// Posted receives and claims by context, for cancel and claim. Looked at only by those rare calls.
    pub claims: BTreeMap<usize, MsgKey>,
    pub regions: BTreeMap<u64, Region>,
    pub next_region: u64,
    pub peers: Vec<PeerState>,
    /// Peers that went down and whose places have not been given back.
    pub dead: Vec<u32>,
    /// The socket is unusable, and why.
    pub broken: Option<i32>,
    /// Notices of remote writes in `rx_done`.
    pub notices: usize,
    pub own_peer: Option<u32>,
    pub own_mseq: u64,
    pub own_sseq: Vec<u32>,
    pub tx_done: CompletionQueue,
    pub rx_done: CompletionQueue,
    pub pool: Pool,
    pub copies: Copies,
    pub unexpected: Unexpected,
    /// The user was told that sends have waited for room and get more.
    pub told_no_room: bool,
    /// Sends may be queued beyond [`crate::sending::QUEUE_MSGS`] for a peer: to wait for the queue did not help once.
    pub queues_on: bool,
    /// And that there is none left.
    pub told_no_end: bool,
    /// The user was told that unexpected messages have filled their budget.
    pub told_full: bool,
    pub counters: EngineCounters,
    pub totals: Totals,
    pub trace: Trace,
    pub events: Vec<Event>,
    pub matches: Vec<Match>,
    /// When the socket was last looked at.
    pub last_look: Time,
    pub own_name: [u8; 48],
    pub closed: bool,
    /// A control message was queued outside a progress pass.
    pub wants_transmit: bool,
}

/// Now, on the protocol's clock.
pub fn now() -> Time {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to fill; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    Time(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// The protocol reads payloads through this.
pub struct SendTable<'a>(pub &'a SlotMap<SendKey, SendState>);

impl Payloads for SendTable<'_> {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        match self.0.get(key::<SendKey>(token)) {
            Some(s) => s.source.read(offset, dst),
            // Only after a failure that the protocol has not seen yet; what is sent then is never used.
            None => dst.fill(0),
        }
    }

    fn crc(&self, token: u64, offset: u64, len: usize, crc: u32) -> u32 {
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        if let Some(s) = self.0.get(key::<SendKey>(token)) {
            s.source.slices(offset, len, &mut slices);
        }
        slices.iter().fold(crc, |crc, s| weir_wire::crc32c_append(crc, s))
    }
}

impl Core {
    pub fn new(udp: UdpTransport, lanes: Option<Lanes>, st: State) -> Core {
        Core {
            udp,
            lanes,
            st,
            out: PacketBuf::default(),
            held_bytes: 0,
            sent: false,
            read_failures: 0,
            finished: false,
        }
    }

    /// Reads what has arrived, runs timers, writes what is due. Returns the datagrams read.
    pub fn progress(&mut self, mut now: Time) -> usize {
        if self.finished || self.st.broken.is_some() {
            return 0;
        }
        let before = now;
        let st = &mut self.st;
        let slack_ns = u32::try_from(now.0.saturating_sub(st.last_look.0)).unwrap_or(u32::MAX);
        st.counters.polls += 1;
        let result = self.udp.recv(RX_BATCHES, |info, datagram| {
            // Between the reading of the clock and that of the socket this thread may have lost its core, and the datagram have arrived: with the old time it
            // would have come in less than a round trip.
            if info.fresh {
                now = self::now();
            }
            let meta = RxMeta { remote: info.remote, local: info.local, slack_ns, ecn: info.ecn };
            st.datagram(now, meta, datagram);
        });
        st.last_look = before;
        let mut read = match result {
            Ok(read) => {
                self.read_failures = 0;
                read
            }
            Err(e) => {
                self.read_failed(now, &e);
                0
            }
        };
        let st = &mut self.st;
        if self.udp.has_unreachable() {
            for u in self.udp.take_unreachable().filter(|u| u.kind == std::io::ErrorKind::ConnectionRefused) {
                st.proto.refused(now, u.remote);
            }
        }
        if st.proto.next_timeout().is_some_and(|t| t <= now) {
            st.timeouts(now);
        }
        if let Some(lanes) = &mut self.lanes
            && lanes.progress(st, now, read > 0) > 0
        {
            read += 1;
            // Megabytes may have been copied meanwhile.
            now = self::now();
        }
        self.transmit(now);
        read
    }

    /// The socket could not be read. Some errors say that it never will be again; others may pass.
    #[cold]
    fn read_failed(&mut self, now: Time, e: &std::io::Error) {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        self.read_failures += 1;
        let passing = matches!(errno, libc::ENOMEM | libc::ENOBUFS) && self.read_failures < READ_FAILURES_MAX;
        if passing {
            self.st.counters.socket_errors += 1;
        } else if self.st.broken.is_none() {
            self.st.socket_failed(now, errno);
            if let Some(lanes) = &mut self.lanes {
                lanes.close();
            }
        }
    }

    /// Writes what the protocol has to say.
    pub fn transmit(&mut self, now: Time) {
        if self.finished || self.st.broken.is_some() {
            return;
        }
        self.held_bytes = 0;
        self.st.wants_transmit = false;
        if self.udp.blocked() {
            // Errors of single datagrams are losses to the protocol; the transport counts them.
            let _ = self.udp.flush();
            if self.udp.blocked() {
                // What the protocol has to say waits there, where it is still the newest, until there is room (`blocked_at`).
                return self.transmit_lanes(now);
            }
        }
        for n in 1..=TX_PACKETS {
            let table = SendTable(&self.st.sends);
            let Some(t) = self.st.proto.poll_transmit(now, &table, &mut self.out) else {
                break;
            };
            if self.st.trace.on(2) {
                self.st.trace_packet_out(&t, &self.out.head);
            }
            let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
            if let Some(p) = &t.payload
                && let Some(s) = self.st.sends.get(key::<SendKey>(p.token))
            {
                s.source.slices(p.offset, usize::from(p.len), &mut slices);
            }
            self.udp.push(t.remote, t.local, &self.out.head, &slices);
            // The peer can begin with these while the next are built.
            if n % FLUSH_PACKETS == FIRST_FLUSH_PACKETS {
                let _ = self.udp.flush();
            }
            if self.udp.blocked() {
                break;
            }
        }
        // As above.
        let _ = self.udp.flush();
        self.transmit_lanes(now);
    }

    fn transmit_lanes(&mut self, now: Time) {
        if let Some(lanes) = &mut self.lanes {
            lanes.transmit(&mut self.st, now);
        }
    }

    /// The socket that has no room: who waits for it waits for room too.
    pub fn blocked_at(&self) -> Option<RawFd> {
        self.udp.blocked_at().filter(|_| !self.finished)
    }

    /// When the endpoint wants to be called again although nothing arrives. What is only to be sent does not count while there is no room for it.
    pub fn next_timeout(&self) -> Option<Time> {
        let mut due = self.st.proto.next_timeout();
        if let Some(t) = self.lanes.as_ref().and_then(|l| l.next_timeout(now())) {
            due = Some(due.map_or(t, |d| d.min(t)));
        }
        if self.blocked_at().is_some() { due.map(|t| t.max(now().plus_ns(BLOCKED_NS))) } else { due }
    }
}

/// Acts on the events of one datagram: first on what does not end sends, then on what does, as it came.
///
/// A target's refusal may stand behind the acknowledgement of the same write and must be seen first. But what a peer acknowledged before its farewell in the same datagram has succeeded.
fn in_order(events: &mut Vec<Event>, mut act: impl FnMut(Event)) {
    if events.len() == 1 {
        return events.drain(..).for_each(act);
    }
    let ends = |e: &Event| matches!(e, Event::Sent { .. } | Event::Down { .. } | Event::Failed { .. });
    for event in events.extract_if(.., |e| !ends(e)) {
        act(event);
    }
    for event in events.drain(..) {
        act(event);
    }
}

impl State {
    pub fn datagram(&mut self, now: Time, meta: RxMeta, datagram: &mut [u8]) {
        let mut events = std::mem::take(&mut self.events);
        if self.trace.on(2) {
            self.handle_traced(now, meta, datagram, &mut events);
        } else {
            self.proto.handle(now, meta, datagram, &mut events);
        }
        in_order(&mut events, |event| self.event(now, event, datagram));
        self.events = events;
    }

    /// Calls the protocol and acts on the events, whose ranges index `bytes`.
    pub fn with_events<T>(
        &mut self,
        now: Time,
        bytes: &[u8],
        call: impl FnOnce(&mut weir_proto::Endpoint, &mut Vec<Event>) -> T,
    ) -> T {
        let mut events = std::mem::take(&mut self.events);
        let result = call(&mut self.proto, &mut events);
        in_order(&mut events, |event| self.event(now, event, bytes));
        self.events = events;
        result
    }

    pub fn timeouts(&mut self, now: Time) {
        self.with_events(now, &[], |proto, events| proto.handle_timeout(now, events));
    }

    /// Acts on one event of the protocol.
    pub fn event(&mut self, now: Time, event: Event, datagram: &[u8]) {
        match event {
            Event::Message {
                peer,
                control,
                stream,
                mseq,
                sseq,
                total_len,
                offset,
                envelope,
                payload,
                first,
                complete,
            } => {
                let Some(bytes) = datagram.get(payload) else {
                    return;
                };
                if control {
                    let envelope = datagram.get(envelope).unwrap_or(&[]);
                    self.control(now, peer.0, envelope, bytes);
                } else {
                    let piece = crate::receiving::Fragment {
                        peer: peer.0,
                        stream,
                        mseq,
                        sseq,
                        total_len,
                        offset,
                        first,
                        complete,
                    };
                    let envelope = datagram.get(envelope).unwrap_or(&[]);
                    self.fragment(now, piece, envelope, bytes);
                }
            }
            Event::Body { peer, handle, offset, payload, complete } => {
                let bytes = datagram.get(payload).unwrap_or(&[]);
                self.body(now, peer.0, handle, offset, bytes, complete);
            }
            Event::Sent { token, .. } => self.sent(token),
            Event::Up { peer } => {
                self.peer_slot(peer.0);
                let slot = &mut self.peers[peer.0 as usize];
                if slot.down.is_some() {
                    // The protocol gave the place of a forgotten peer to this one.
                    *slot = PeerState::new();
                }
                slot.up = true;
                if self.trace.on(1) {
                    self.trace_peer_up(peer);
                }
                self.release_dead(now);
            }
            Event::Down { peer, reason } => {
                self.peer_down(now, peer, reason);
                self.dead.push(peer.0);
                self.release_dead(now);
            }
            Event::Failed { peer, token, reason } => self.send_failed(peer, token, reason),
            Event::BodyAborted { peer, handle, .. } => self.body_aborted(now, peer.0, handle),
            Event::Parity { peer, key, hole, payload } => {
                self.parity(now, peer, key, &hole, datagram.get(payload).unwrap_or(&[]));
            }
        }
    }

    /// Makes sure the table has a slot for a peer the protocol knows (it may be one that was never inserted).
    pub fn peer_slot(&mut self, peer: u32) {
        while self.peers.len() <= peer as usize {
            self.peers.push(PeerState::new());
        }
    }

    /// The peer as completions may name it.
    pub fn source(&self, peer: u32) -> Option<u32> {
        self.peers.get(peer as usize).filter(|p| p.inserted).map(|_| peer)
    }

    fn send_failed(&mut self, _peer: PeerId, token: u64, reason: DownReason) {
        let k = key::<SendKey>(token);
        if let Some(s) = self.sends.remove(k) {
            self.finish_send(s, Err(OpError::PeerDown(reason)));
        }
    }

    /// Where a peer is, for people: the address that carries its data, else the first of its name.
    pub fn address_of(&self, peer: PeerId) -> String {
        let stats = self.proto.peer_stats(peer);
        let path = stats.paths.get(usize::from(stats.primary_path)).or(stats.paths.first());
        if let Some(path) = path {
            return path.remote.clone();
        }
        let name = self.peers.get(peer.0 as usize).and_then(|p| weir_wire::EndpointName::decode(&p.name).ok());
        let address = name.and_then(|name| Some(std::net::SocketAddr::new(*name.addresses.first()?, name.port)));
        address.map_or_else(|| format!("number {}", peer.0), |address| address.to_string())
    }

    /// Fails everything that waits for this peer and nothing else.
    fn peer_down(&mut self, now: Time, peer: PeerId, reason: DownReason) {
        self.peer_slot(peer.0);
        self.peers[peer.0 as usize].down = Some(reason);
        self.peers[peer.0 as usize].partial.clear();
        let who = self.address_of(peer);
        if self.trace.on(1) {
            self.trace_peer_down(peer, &who, reason);
        }
        crate::obituary::note(&who, reason, &self.cfg);
        let error = OpError::PeerDown(reason);
        let sends: Vec<SendKey> =
            self.sends.iter().filter(|(_, s)| s.peer == peer.0 && s.role != Role::ToSelf).map(|(k, _)| k).collect();
        for k in sends {
            if let Some(s) = self.sends.remove(k) {
                self.finish_send(s, Err(error));
            }
        }
        let (mut ops, mut held) = (Vec::new(), Vec::new());
        self.matcher.remove_peer(peer.0, &mut ops, &mut held);
        for op in ops {
            self.fail_recv(key(op), error);
        }
        for msg in held {
            self.drop_msg(key(msg));
        }
        // Among them receives whose rendezvous was under way: neither the matcher nor `broken` below knows of them.
        let mut handles: Vec<u64> = self.bodies.keys().filter(|&&(p, _)| p == peer.0).map(|&(_, h)| h).collect();
        handles.sort_unstable();
        for h in handles {
            if let Some(b) = self.take_body(peer.0, h) {
                self.body_failed(now, b.owner, error);
            }
        }
        // What had begun to arrive and cannot be completed; complete unexpected messages stay receivable.
        let broken: Vec<MsgKey> =
            self.msgs.iter().filter(|(_, m)| m.peer == peer.0 && !m.complete).map(|(k, _)| k).collect();
        for k in broken {
            self.break_msg(now, k, error);
        }
    }

    /// Gives back the places of peers that are down, that the caller does not know, and that nothing here refers to.
    pub fn release_dead(&mut self, now: Time) {
        if self.dead.is_empty() {
            return;
        }
        let mut dead = std::mem::take(&mut self.dead);
        dead.retain(|&p| self.peers.get(p as usize).is_some_and(|s| s.down.is_some() && !s.inserted));
        // Messages that came in full before the peer died are still receivable, and completions name it.
        let mut used: Vec<u32> = self.msgs.values().map(|m| m.peer).collect();
        used.extend(self.sends.values().map(|s| s.peer));
        used.extend(self.rx_done.iter().filter_map(|c| c.source));
        used.sort_unstable();
        dead.retain(|p| used.binary_search(p).is_ok() || !self.proto.forget(now, PeerId(*p)));
        self.dead = dead;
    }

    /// The socket cannot be read any more: no peer can be reached, and nothing more will come from any.
    fn socket_failed(&mut self, now: Time, errno: i32) {
        self.broken = Some(errno);
        self.counters.socket_errors += 1;
        self.trace.socket_failed(errno);
        let error = OpError::Socket(errno);
        let sends: Vec<SendKey> = self.sends.iter().filter(|(_, s)| s.role != Role::ToSelf).map(|(k, _)| k).collect();
        for k in sends {
            if let Some(s) = self.sends.remove(k) {
                self.finish_send(s, Err(error));
            }
        }
        let mut bodies: Vec<(u32, u64)> = self.bodies.keys().copied().collect();
        bodies.sort_unstable();
        for key in bodies {
            if let Some(b) = self.take_body(key.0, key.1) {
                self.body_failed(now, b.owner, error);
            }
        }
        let unfinished: Vec<MsgKey> = self.msgs.iter().filter(|(_, m)| !m.complete).map(|(k, _)| k).collect();
        for k in unfinished {
            self.break_msg(now, k, error);
        }
        let posted: Vec<RecvKey> = self.recvs.keys().collect();
        for k in posted {
            self.take_back(now, k, error);
        }
    }

    /// Counts the end of an operation and queues its completion if somebody wants it.
    pub fn complete(&mut self, c: Completion) {
        self.totals.count(c.kind, c.result.is_ok());
        if !c.report && c.result.is_ok() && !c.multi_done {
            return;
        }
        match c.kind {
            OpKind::Send | OpKind::Write | OpKind::Read => self.tx_done.push_back(c),
            OpKind::Recv | OpKind::MultiRecvReleased | OpKind::Peek | OpKind::RemoteWrite => self.rx_done.push_back(c),
        }
    }

    /// Whether something that was reported as complete has not reached its peer: what closing must wait for.
    pub fn owes(&self) -> bool {
        self.sends.values().any(|s| s.announced && s.role != Role::ToSelf)
    }

    /// After closing: no byte of the caller's memory is read or written any more.
    pub fn forget_user_memory(&mut self) {
        self.bodies.clear();
        self.regions.clear();
        self.claims.clear();
        self.msgs.clear();
        self.recvs.clear();
        self.sends.clear();
        self.matcher = Matcher::new();
    }

    /// A source for `iov`: copied, or the caller's memory.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::send`].
    pub unsafe fn source_of(&mut self, iov: &[Iov], len: usize, copy: bool) -> Source {
        if copy {
            // SAFETY: passed on from the caller.
            unsafe { Source::copied(iov, len, &mut self.pool) }
        } else {
            // SAFETY: passed on from the caller.
            Source::User(unsafe { Gather::new(iov) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Carriage, Place};
    use weir_proto::{BodyKey, Hole};

    #[test]
    fn what_a_farewell_acknowledges_has_succeeded_and_a_refusal_comes_before_its_acknowledgement() {
        let peer = PeerId(0);
        let reason = DownReason::Closed;
        let sent = |token| Event::Sent { peer, token };
        let aborted = Event::BodyAborted { peer, handle: 1, code: 0 };
        let down = Event::Down { peer, reason };
        let mut events = vec![sent(1), sent(2), aborted, down, Event::Failed { peer, token: 3, reason }];
        let mut seen = String::new();
        in_order(&mut events, |e| {
            seen.push(match e {
                Event::Sent { .. } => 's',
                Event::Down { .. } => 'd',
                Event::Failed { .. } => 'f',
                _ => 'o',
            });
        });
        assert_eq!(seen, "ossdf");
        assert!(events.is_empty());
    }

    /// A message of three fragments of 100 bytes of which 60 bytes in the middle one are missing: the piece before them was sent again alone.
    #[test]
    fn a_hole_that_begins_inside_a_fragment_is_restored_from_parity() {
        let cfg = EngineConfig { addrs: vec!["127.0.0.1".parse().expect("address")], ..EngineConfig::default() };
        let ep = crate::Endpoint::open_with_key(cfg, [1; 32]).expect("open");
        let mut core = ep.shared.core.lock();
        let st = &mut core.st;
        st.peer_slot(0);
        let want: Vec<u8> = (0..300u32).map(|i| (i * i + 3) as u8).collect();
        let mut have = want.clone();
        have[140..200].fill(0);
        let k = st.msgs.insert(RxMsg {
            peer: 0,
            tag: 1,
            data: None,
            stream: 0,
            len: 300,
            complete: false,
            waits_in_line: false,
            carriage: Carriage::Eager,
            sync: None,
            place: Place::Buffer(have),
            held: false,
            number: 0,
        });
        st.peers[0].partial.push((5, k));
        let parity: Vec<u8> = (0..100).map(|j| want[j] ^ want[100 + j] ^ want[200 + j]).collect();
        let hole = Hole { base: 0, frag: 100, count: 3, offset: 140, len: 60 };
        st.parity(now(), PeerId(0), BodyKey::Message(5), &hole, &parity);
        let Some(RxMsg { place: Place::Buffer(got), .. }) = st.msgs.get(k) else { panic!("the message is gone") };
        assert_eq!(got, &want);
    }
}
