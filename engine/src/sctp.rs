//! The SCTP carrier (spec/sctp.md): associations of SCTP beside those of packets, whose packets go
//! by the same socket.
//!
//! Each stream is in order: what the peer says to have read of it has arrived. SCTP itself knows no
//! peers; whose an association is, when it begins and when it ends the link says.

use crate::config::SctpControl;
use crate::device::Device;
use crate::state::State;
use records::Given;
use smallvec::SmallVec;
use std::net::SocketAddr;
use weir_link::{PeerId, Time};
use weir_net::Datagrams;
use weir_sctp::{Association, Config, Ended, Received, packet_ports, port_of};
use weir_session::{Carrier, Flow, Handed};

mod records;

/// SCTP's timers run at least so often while something is under way.
const TICK_NS: u64 = 5_000_000;
/// What is not done for each packet is looked after so often.
const ROUND_NS: u64 = 1_000_000;
/// After the last packet timers run for so long: a SACK may be due.
const AWAKE_NS: u64 = 50_000_000;
/// SCTP that has not come up after this time is given up.
const OPEN_NS: u64 = 10_000_000_000;
/// So is an association by which nothing was acknowledged for so long.
const UNTOLD_NS: u64 = 30_000_000_000;
/// SCTP that the other side ended counts as over if the association is there still after this time:
/// a peer that closes says so at once, behind SCTP's own end.
const FAREWELL_NS: u64 = 100_000_000;
/// After so long a silence the link is asked whether the path still carries packets, and again.
const ASK_NS: u64 = 200_000_000;
/// Longest packet, whatever the path takes, bytes.
const PACKET_MAX: u16 = 9000;
/// Packets handed to the device before it is to send them.
const FLUSH_PACKETS: usize = 44;

/// What was counted of all SCTP associations of an endpoint. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SctpCounters {
    /// Those that were begun, that came up with the right HELLO, and that ended otherwise than with
    /// the association that they belonged to, or because one of the two endpoints closed.
    pub opened: u64,
    /// The same.
    pub up: u64,
    /// The same.
    pub over: u64,
    /// HELLOs refused.
    pub hellos_refused: u64,
    /// Packets sent and received.
    pub packets_sent: u64,
    /// The same.
    pub packets_received: u64,
    /// Packets of no association, and those for which there was no way.
    pub packets_dropped: u64,
    /// Records sent and received, ACK not counted.
    pub records_sent: u64,
    /// The same.
    pub records_received: u64,
    /// Their bytes.
    pub record_bytes_sent: u64,
    /// The same.
    pub record_bytes_received: u64,
    /// ACK records sent.
    pub acks_sent: u64,
    /// Times that SCTP had no room for a record.
    pub buffer_full: u64,
    /// Records handed over and not acknowledged when their association ended: they went in packets.
    pub records_given_back: u64,
}

/// How far an association has come.
#[derive(Debug)]
enum Phase {
    /// Being made since then.
    Opening(Time),
    /// It carries the session.
    Up,
    /// It does no more, for this reason.
    Over(String),
}

impl Phase {
    /// Whether SCTP is given a packet. Without a verification tag it takes an INIT only, which
    /// anybody can write: usrsctp 0.9.5 gives an association that is up for one that is malformed.
    fn takes(&self, packet: &[u8]) -> bool {
        const INIT: u8 = 1;
        // RFC 9260, 3.3.2: least receiver window of an endpoint.
        const WINDOW_MIN: u32 = 1500;
        let word = |at: usize| packet.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
        match (word(4), self) {
            (None, _) | (Some(0), Phase::Up | Phase::Over(_)) => false,
            (Some(0), Phase::Opening(_)) => {
                let streams = word(24).is_some_and(|w| w >> 16 != 0 && w & 0xffff != 0);
                let tag = word(16).is_some_and(|tag| tag != 0);
                packet.get(12) == Some(&INIT) && tag && streams && word(20).is_some_and(|w| w >= WINDOW_MIN)
            }
            _ => true,
        }
    }
}

/// What goes by one stream.
#[derive(Debug, Default)]
struct Out {
    /// User messages handed to SCTP.
    sent: u64,
    /// Of these the peer has read.
    read: u64,
    handed: Handed,
}

/// What comes by one stream.
#[derive(Debug, Default, Clone, Copy)]
struct In {
    /// User messages read.
    read: u64,
    /// Of these the peer was told.
    told: u64,
}

/// A peer with which there is SCTP, or was.
struct Peer {
    peer: PeerId,
    /// The ids of the link's association, ours first, and the places that they name.
    ids: [(u64, u32); 2],
    association: Association,
    phase: Phase,
    /// Its HELLO was right.
    heard_hello: bool,
    /// Streams from here: stream 0 and those of data.
    streams: u16,
    out: Vec<Out>,
    inn: Vec<In>,
    /// Bytes read of which the peer was not told.
    untold_bytes: usize,
    /// It is to be told then.
    tell_at: Option<Time>,
    /// When a packet of it came last, when something was acknowledged, when the link was asked.
    heard_at: Time,
    acked_at: Time,
    asked_at: Time,
    /// SCTP had no room, and nothing has happened since.
    full: bool,
    /// SCTP has something that the peer's has not acknowledged, as of the last round.
    waits: bool,
    /// The other side ended it then, with so many records given back, and it may count as over.
    farewell: Option<(Time, u64)>,
    /// Long messages under way, with their streams: for options A and B.
    begun: SmallVec<[(Flow, u16); 2]>,
    packet_bytes: u16,
}

impl Peer {
    /// Something handed over was not acknowledged by the application.
    fn has_handed(&self) -> bool {
        self.out.iter().any(|o| !o.handed.is_empty())
    }
}

/// All of an endpoint.
pub struct Sctp {
    /// By the peer's index.
    table: Vec<Option<Box<Peer>>>,
    /// Those in the table.
    known: Vec<PeerId>,
    /// Those with which nothing could be begun: the next round tries again.
    refused: Vec<PeerId>,
    /// Peers looked at for something to begin.
    looks: u64,
    streams: u16,
    rto_min_ms: u32,
    control: SctpControl,
    counters: SctpCounters,
    /// A message that has come, and a record that is being written.
    message: Vec<u8>,
    record: Vec<u8>,
    round_at: Time,
    awake_until: Time,
}

impl Sctp {
    /// For endpoints whose messages use so many streams.
    pub fn new(streams: u16, rto_min_ms: u32, control: SctpControl) -> Sctp {
        Sctp {
            table: Vec::new(),
            known: Vec::new(),
            refused: Vec::new(),
            looks: 0,
            streams: streams + 1,
            rto_min_ms,
            control,
            counters: SctpCounters::default(),
            message: Vec::new(),
            record: Vec::new(),
            round_at: Time::ZERO,
            awake_until: Time::ZERO,
        }
    }

    /// What was counted.
    pub fn counters(&self) -> &SctpCounters {
        &self.counters
    }

    fn there(&self, peer: PeerId) -> Option<&Peer> {
        self.table.get(peer.0 as usize).and_then(Option::as_deref)
    }

    fn there_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.table.get_mut(peer.0 as usize).and_then(Option::as_deref_mut)
    }

    /// How it stands with a peer, for people: why SCTP does not carry its session, or by how many
    /// streams it does.
    pub fn told(&self, st: &State, peer: u32) -> String {
        match self.there(PeerId(peer)) {
            Some(Peer { phase: Phase::Up, streams, .. }) => format!("SCTP with {streams} streams each way"),
            Some(Peer { phase: Phase::Opening(_), .. }) => "SCTP is being opened".to_owned(),
            Some(Peer { phase: Phase::Over(why), .. }) => format!("no SCTP: {why}"),
            None if st.proto().way(PeerId(peer)).is_none() => "not used yet".to_owned(),
            None => "no SCTP: the peer does not take it".to_owned(),
        }
    }

    /// When to look although nothing wakes a sleeper.
    pub fn next_timeout(&self, st: &State, now: Time) -> Option<Time> {
        let peers = || self.known.iter().filter_map(|peer| self.there(*peer));
        let is_busy = |p: &Peer| p.waits || p.has_handed() || matches!(p.phase, Phase::Opening(_));
        let tick = (now < self.awake_until || peers().any(is_busy)).then(|| now.plus_ns(TICK_NS));
        let tell = peers().filter_map(|p| p.tell_at).min();
        let sessions = st.proto().sessions();
        let of_session = |p: &Peer| sessions.get(p.peer).filter(|s| s.carrier() == Carrier::Sctp)?.deadline();
        [tick, tell, peers().filter_map(of_session).min()].into_iter().flatten().min()
    }

    // What arrives.

    /// A datagram whose first byte says that it is an SCTP packet. False: it is none.
    #[inline]
    pub fn datagram(&mut self, st: &mut State, now: Time, remote: SocketAddr, datagram: &[u8]) -> bool {
        let Some((from, place)) = packet_ports(datagram) else { return false };
        self.packet(st, now, (remote, from, place), datagram);
        true
    }

    fn packet(
        &mut self,
        st: &mut State,
        now: Time,
        (remote, from, place): (SocketAddr, u16, Option<u32>),
        datagram: &[u8],
    ) {
        let peer = place.map(PeerId).filter(|peer| {
            let ids = st.proto().sctp_ids(*peer);
            ids.is_some_and(|[_, (_, there)]| port_of(there) == Some(from)) && st.proto().is_path(*peer, remote)
        });
        let Some(peer) = peer else {
            self.counters.packets_dropped += 1;
            return;
        };
        self.open(st, now, peer);
        let Some(p) = self.there_mut(peer) else { return };
        if !p.phase.takes(datagram) {
            self.counters.packets_dropped += 1;
            return;
        }
        p.association.packet(datagram);
        if p.full {
            p.tell_at = p.tell_at.map(|at| at.min(now));
        }
        (p.heard_at, p.full) = (now, false);
        self.counters.packets_received += 1;
        self.awake_until = now.plus_ns(AWAKE_NS);
        self.receive(st, now, peer);
        st.proto_mut().sessions_mut().touch(peer);
    }

    /// Begins an association with a peer that takes SCTP, if there is none.
    fn open(&mut self, st: &mut State, now: Time, peer: PeerId) {
        let Some(ids) = st.proto().sctp_ids(peer) else { return };
        if self.there(peer).is_some_and(|p| p.ids == ids) {
            return;
        }
        self.forget(st, peer);
        let (Some((_, _, bytes)), Some(here), Some(there)) =
            (st.proto().way(peer), port_of(ids[0].1), port_of(ids[1].1))
        else {
            return self.asks_again(peer);
        };
        let packet_bytes = bytes.min(PACKET_MAX);
        let config = Config { streams: self.streams, rto_min_ms: self.rto_min_ms, packet_bytes };
        let Ok(association) = Association::open(here, there, &config) else {
            // For want of memory.
            return self.asks_again(peer);
        };
        let i = peer.0 as usize;
        if self.table.len() <= i {
            self.table.resize_with(i + 1, || None);
        }
        self.table[i] = Some(Box::new(Peer {
            peer,
            ids,
            association,
            phase: Phase::Opening(now),
            heard_hello: false,
            streams: 0,
            out: Vec::new(),
            inn: Vec::new(),
            untold_bytes: 0,
            tell_at: None,
            heard_at: now,
            acked_at: now,
            asked_at: now,
            full: false,
            waits: true,
            farewell: None,
            begun: SmallVec::new(),
            packet_bytes,
        }));
        self.known.push(peer);
        self.counters.opened += 1;
        st.proto_mut().sessions_mut().hold(peer);
    }

    /// The next round begins it, or fails once more.
    fn asks_again(&mut self, peer: PeerId) {
        if !self.refused.contains(&peer) {
            self.refused.push(peer);
        }
    }

    /// Lets go of a peer, and of SCTP with it.
    fn forget(&mut self, st: &mut State, peer: PeerId) {
        let Some(p) = self.table.get_mut(peer.0 as usize).and_then(Option::take) else { return };
        self.known.retain(|other| *other != peer);
        if !matches!(p.phase, Phase::Over(_)) {
            st.proto_mut().sessions_mut().let_go(peer);
        }
    }

    /// SCTP with a peer is over, its association is not: packets carry the session from now on, and
    /// what was handed over and not acknowledged.
    fn fall_back(&mut self, st: &mut State, now: Time, peer: PeerId, why: &str) {
        self.ends(st, now, peer, (why, false));
    }

    /// The same; `by_peer`: the other side has ended it.
    fn ends(&mut self, st: &mut State, now: Time, peer: PeerId, (why, by_peer): (&str, bool)) {
        let Some(p) = self.there_mut(peer).filter(|p| !matches!(p.phase, Phase::Over(_))) else { return };
        p.phase = Phase::Over(why.to_owned());
        p.association.close();
        (p.tell_at, p.waits) = (None, false);
        let out = std::mem::take(&mut p.out);
        let given_back = out.iter().map(|o| o.handed.len() as u64).sum::<u64>();
        if by_peer || st.proto().is_closing(peer) {
            p.farewell = Some((now, given_back));
        } else {
            self.counters.over += 1;
            self.counters.records_given_back += given_back;
        }
        st.messages.with_events(now, &[], |proto, events| {
            proto.sessions_mut().let_go(peer);
            if let Some((s, _)) = proto.sessions_mut().get_mut(peer).filter(|(s, _)| s.carrier() == Carrier::Sctp) {
                out.iter().for_each(|o| o.handed.give_back(s));
                proto.carry(now, peer, events);
            }
        });
    }

    /// The peer broke a rule.
    fn violated(&mut self, st: &mut State, now: Time, peer: PeerId, why: &'static str) {
        self.fall_back(st, now, peer, why);
        st.messages.with_events(now, &[], |proto, events| proto.give_up(now, peer, why, events));
    }

    /// Takes what SCTP has to tell of a peer.
    fn receive(&mut self, st: &mut State, now: Time, peer: PeerId) {
        let mut message = std::mem::take(&mut self.message);
        while let Some(p) = self.there_mut(peer) {
            match p.association.receive(&mut message) {
                Received::Nothing => break,
                Received::Up { streams } => self.says_hello(st, now, peer, streams),
                Received::Message { stream, ppid } => self.message(st, now, peer, (stream, ppid), &message),
                Received::Over(why) => self.ends(st, now, peer, (&why.to_string(), why != Ended::TooLong)),
            }
        }
        self.message = message;
    }

    /// A user message came.
    pub fn message(&mut self, st: &mut State, now: Time, peer: PeerId, by: (u16, u32), bytes: &[u8]) {
        if let Err(why) = self.arrived(st, now, peer, by, bytes) {
            self.violated(st, now, peer, why);
        }
    }

    /// Both have read the other's HELLO: SCTP carries what is sent from now on.
    fn comes_up(&mut self, st: &mut State, peer: PeerId) {
        let Some(p) = self.there_mut(peer) else { return };
        p.phase = Phase::Up;
        self.counters.up += 1;
        let sessions = st.proto_mut().sessions_mut();
        if sessions.get(peer).is_some_and(|s| s.carrier() == Carrier::Link && s.is_up() && s.down().is_none()) {
            sessions.set_carrier(peer, Carrier::Sctp);
            if let Some((s, _)) = sessions.get_mut(peer) {
                s.set_piece_max(records::PIECE_MAX as usize);
            }
        }
    }

    /// Whether SCTP carries what goes to a peer.
    #[cfg(any(test, feature = "bare"))]
    pub fn is_up(&self, peer: PeerId) -> bool {
        self.there(peer).is_some_and(|p| matches!(p.phase, Phase::Up))
    }

    /// It stands with a peer as before its HELLO came.
    #[cfg(feature = "bare")]
    pub fn unhear(&mut self, peer: PeerId) {
        if let Some(p) = self.there_mut(peer) {
            p.heard_hello = false;
        }
    }

    // What is due.

    /// Runs what is due, and begins associations.
    pub fn progress(&mut self, st: &mut State, now: Time) {
        weir_sctp::tick(now.0);
        let round = now >= self.round_at;
        while let Some(peer) = st.proto_mut().next_for_sctp() {
            self.looks += 1;
            self.open(st, now, peer);
        }
        if round {
            self.round_at = now.plus_ns(ROUND_NS);
            for peer in std::mem::take(&mut self.refused) {
                self.looks += 1;
                self.open(st, now, peer);
            }
            for peer in self.known.clone() {
                self.look_after(st, now, peer);
            }
        }
    }

    /// What is due with one peer.
    fn look_after(&mut self, st: &mut State, now: Time, peer: PeerId) {
        let Some(p) = self.there(peer) else { return };
        let is_over = st.proto().sessions().get(peer).is_none_or(|s| s.down().is_some());
        if is_over || st.proto().sctp_ids(peer) != Some(p.ids) {
            return self.forget(st, peer);
        }
        self.receive(st, now, peer);
        let Some(p) = self.there_mut(peer) else { return };
        p.waits = p.association.waiting() > 0;
        p.full = false;
        match p.phase {
            Phase::Over(_) => {
                if let Some((since, given_back)) = p.farewell
                    && now.since_ns(since) >= FAREWELL_NS
                    && !st.proto().is_closing(peer)
                {
                    p.farewell = None;
                    self.counters.over += 1;
                    self.counters.records_given_back += given_back;
                }
                return;
            }
            Phase::Opening(since) if now.since_ns(since) >= OPEN_NS => {
                return self.fall_back(st, now, peer, "it did not come up");
            }
            Phase::Opening(_) => return,
            Phase::Up => {}
        }
        let has_handed = p.has_handed();
        if !has_handed {
            p.acked_at = now;
        }
        if now.since_ns(p.acked_at) >= UNTOLD_NS {
            return self.fall_back(st, now, peer, "nothing was acknowledged by it for too long");
        }
        if has_handed && now.since_ns(p.heard_at.max(p.asked_at)) >= ASK_NS {
            p.asked_at = now;
            if let Some((remote, ..)) = st.proto().way(peer) {
                st.proto_mut().ask_path(now, peer, remote.ip());
            }
        }
        if let Some((_, _, bytes)) = st.proto().way(peer)
            && p.packet_bytes != bytes.min(PACKET_MAX)
        {
            p.packet_bytes = bytes.min(PACKET_MAX);
            // (The former length goes on, if this one is refused.)
            let _ = p.association.set_packet_bytes(p.packet_bytes);
        }
        let (told, waits) = (p.tell_at.is_none(), p.waits);
        let sessions = st.proto_mut().sessions_mut();
        if let Some((s, common)) = sessions.get_mut(peer) {
            if s.deadline().is_some_and(|t| t <= now) {
                s.on_timeout(common, now);
            }
            let done = told && !waits && !s.has_open();
            // (Also for what the link found lost of what went in packets before.)
            sessions.touch(peer);
            if done && st.proto().is_closing(peer) {
                self.fall_back(st, now, peer, "the endpoint closes");
            }
        }
    }

    // What leaves.

    /// Hands over what sessions have to send, as far as there is room, and what peers are to be
    /// told.
    pub fn offer(&mut self, st: &mut State, now: Time) {
        if st.proto().sessions().common().grants.has_changed() {
            st.proto_mut().sessions_mut().run_grants(now);
        }
        let mut again: SmallVec<[PeerId; 4]> = SmallVec::new();
        while let Some(peer) = st.proto_mut().sessions_mut().next_touched(Carrier::Sctp) {
            if self.offer_to(st, now, peer) {
                again.push(peer);
            }
        }
        for peer in again {
            st.proto_mut().sessions_mut().touch(peer);
        }
        for i in 0..self.known.len() {
            let peer = self.known[i];
            if self.there(peer).is_some_and(|p| p.tell_at.is_some_and(|t| t <= now)) {
                self.tell(now, peer);
            }
        }
    }

    /// True if something is left that had no room.
    fn offer_to(&mut self, st: &mut State, now: Time, peer: PeerId) -> bool {
        let up = st.proto().sessions().get(peer).is_some_and(weir_session::Session::is_up);
        if !up || !self.there(peer).is_some_and(|p| matches!(p.phase, Phase::Up)) {
            return false;
        }
        loop {
            if self.there(peer).is_none_or(|p| p.full) {
                return true;
            }
            match self.give(st, peer) {
                Given::Nothing => return false,
                Given::Record => {}
                Given::NoRoom => {
                    self.counters.buffer_full += 1;
                    if let Some(p) = self.there_mut(peer) {
                        p.full = true;
                    }
                }
                Given::Over => {
                    self.fall_back(st, now, peer, "SCTP takes nothing any more");
                    return false;
                }
            }
        }
    }

    /// Puts the packets that SCTP wants sent into the device.
    pub fn flush(&mut self, st: &State, device: &mut Device, now: Time) {
        let mut pushed = 0;
        for i in 0..self.known.len() {
            let peer = self.known[i];
            let way = st.proto().way(peer);
            let Some(p) = self.there_mut(peer) else { continue };
            while device.blocked_at().is_none()
                && let Some(packet) = p.association.next_packet()
            {
                let Some((remote, local, _)) = way else {
                    self.counters.packets_dropped += 1;
                    break;
                };
                device.push::<&[u8]>(now.0, (remote, local), &packet, &[]);
                pushed += 1;
                if pushed % FLUSH_PACKETS == 0 {
                    device.flush(now.0);
                }
            }
        }
        if pushed > 0 {
            self.counters.packets_sent += pushed as u64;
            self.awake_until = now.plus_ns(AWAKE_NS);
            device.flush(now.0);
        }
    }

    /// Lets go of all associations, at once.
    pub fn close(&mut self) {
        self.table.clear();
        self.known.clear();
        self.refused.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::kind;
    use crate::{CarrierUse, Class, Endpoint, EngineConfig, Iov, Queue, RecvOp, SendMode, SendOp};
    use std::io::Write;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const PPID: u32 = 0x5745_0000;
    /// Nothing takes this long, however busy the machine, but what hangs.
    const LIMIT: Duration = Duration::from_secs(60);

    fn send(ep: &Endpoint, peer: u32, data: &mut [u8]) {
        let memory = &[Iov { base: data.as_mut_ptr(), len: data.len() }];
        let (class, mode) = (Class::Tagged, SendMode::Delivery);
        let op =
            SendOp { peer, class, tag: 1, data: None, memory, mode, copy: false, report: true, context: 1, user: 0 };
        // SAFETY: the caller keeps the memory until the completion.
        unsafe { ep.send(&op) }.expect("accepted");
    }

    fn post(ep: &Endpoint, buf: &mut [u8]) {
        let memory = &[Iov { base: buf.as_mut_ptr(), len: buf.len() }];
        let (source, class, multi_min) = (None, Class::Tagged, None);
        let op = RecvOp { source, class, tag: 1, ignore: 0, memory, multi_min, report: true, context: 2, user: 0 };
        // SAFETY: the same.
        unsafe { ep.recv(&op) }.expect("accepted");
    }

    fn until(ends: &[&Endpoint], mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            ends.iter().for_each(|ep| ep.progress());
            assert!(start.elapsed() < LIMIT, "{}", ends[0].counters_json());
        }
    }

    fn is_up(ep: &Endpoint) -> bool {
        let core = ep.shared.core.lock();
        core.sctp.as_ref().is_some_and(|s| s.is_up(PeerId(0)))
    }

    /// Two endpoints between which SCTP is up; none where there is no library.
    fn pair() -> Option<[Arc<Endpoint>; 2]> {
        if let Err(why) = crate::sctp_available() {
            let thread = std::thread::current();
            let line = format!("IGNORED, not passed: {}. {why}\n", thread.name().unwrap_or("a test"));
            // Not by a macro: of tests that pass that is not shown.
            let _ = std::io::stderr().write_all(line.as_bytes());
            return None;
        }
        let ends = [0, 1].map(|_| {
            let addrs = vec!["127.0.0.1".parse().expect("address")];
            let cfg = EngineConfig { addrs, carrier: CarrierUse::Sctp, watchdog_us: 0, ..EngineConfig::default() };
            Endpoint::open_with_key(cfg, [7; 32]).expect("open")
        });
        let [a, b] = &ends;
        a.insert_peer(&b.name()).expect("name");
        b.insert_peer(&a.name()).expect("name");
        let (mut one, mut buf) = ([1], [0]);
        post(b, &mut buf);
        send(a, 0, &mut one);
        let mut out = Vec::new();
        until(&[a, b], || b.poll(Queue::Recv, &mut out, 1) > 0);
        until(&[a, b], || a.poll(Queue::Send, &mut out, 1) > 0);
        until(&[a, b], || is_up(a) && is_up(b));
        Some(ends)
    }

    fn counters(ep: &Endpoint) -> SctpCounters {
        *ep.shared.core.lock().sctp.as_ref().expect("it has SCTP").counters()
    }

    /// Runs something in the middle of an endpoint.
    fn inside<T>(ep: &Endpoint, f: impl FnOnce(&mut Sctp, &mut State) -> T) -> T {
        let core = &mut *ep.shared.core.lock();
        f(core.sctp.as_mut().expect("it has SCTP"), &mut core.st)
    }

    /// Rules 2.6 and 2.9.
    #[test]
    fn an_init_that_anybody_can_write_is_no_end_of_what_is_up() {
        // Ports, no verification tag, checksum; INIT, 20 bytes; tag, window, streams out and in,
        // TSN.
        let init = |tag: u32, window: u32, streams: u32| {
            let head = [0xc000_c001, 0, 0, 0x0100_0014];
            [&head[..], &[tag, window, streams, 1]].concat().into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
        };
        let good = init(7, 1500, 0x0001_0001);
        let [opening, up, over] = [Phase::Opening(Time(1)), Phase::Up, Phase::Over("lost".into())];
        assert!(opening.takes(&good) && !up.takes(&good) && !over.takes(&good));
        for bad in [init(0, 1500, 0x0001_0001), init(7, 1499, 0x0001_0001), init(7, 1500, 1), init(7, 1500, 1 << 16)] {
            assert!(!opening.takes(&bad), "{bad:?}");
        }
        assert!(!opening.takes(&good[..27]) && !opening.takes(&good[..7]) && !up.takes(&good[..7]));
        let mut tagged = good.clone();
        tagged[7] = 1;
        assert!(opening.takes(&tagged) && up.takes(&tagged) && over.takes(&tagged));
    }

    /// Rules 2.6 and 2.9.
    #[test]
    fn a_packet_from_where_the_peer_is_not_does_not_reach_sctp() {
        let Some([a, b]) = pair() else { return };
        let dropped = counters(&a).packets_dropped;
        inside(&a, |sctp, st| {
            let [(_, _), (there, place)] = st.proto().sctp_ids(PeerId(0)).expect("it is up");
            let from = port_of(place).expect("a port");
            let mut packet = [0; 16];
            packet[..2].copy_from_slice(&from.to_be_bytes());
            packet[4..8].copy_from_slice(&(there as u32).to_be_bytes());
            let stranger = "127.0.0.1:9".parse().expect("an address");
            sctp.packet(st, crate::clock::now(), (stranger, from, Some(0)), &packet);
        });
        assert_eq!(counters(&a).packets_dropped, dropped + 1);
        assert!(is_up(&a) && is_up(&b));
    }

    #[test]
    fn what_sctp_had_when_it_was_lost_goes_in_packets() {
        let Some([a, b]) = pair() else { return };
        let len = 32 << 20;
        let (mut data, mut buf) = (vec![0x5a; len], vec![0; len]);
        post(&b, &mut buf);
        send(&a, 0, &mut data);
        until(&[&a, &b], || counters(&b).record_bytes_received > 1 << 20);
        inside(&a, |sctp, _| sctp.there_mut(PeerId(0)).expect("the peer").association.close());
        let mut out = Vec::new();
        until(&[&a, &b], || b.poll(Queue::Recv, &mut out, 1) > 0);
        until(&[&a, &b], || a.poll(Queue::Send, &mut out, 1) > 0);
        assert!(out.iter().all(|c| c.result.is_ok()) && buf == data);
        // The one by the ABORT of the other, which found out when it was to send.
        until(&[&a, &b], || counters(&a).over == 1 && counters(&b).over == 1);
        assert!(counters(&a).records_given_back > 0);
        assert!(!is_up(&b) && counters(&b).record_bytes_received < len as u64, "{:?}", counters(&b));
    }

    /// A packet of SCTP with a good checksum.
    fn packet_of(ports: [u16; 2], tag: u32, chunk: &[u8]) -> Vec<u8> {
        let mut packet: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
        packet.extend_from_slice(&tag.to_be_bytes());
        packet.extend_from_slice(&[0; 4]);
        packet.extend_from_slice(chunk);
        let crc = weir_link::crc32c_append(0, &packet);
        packet[8..12].copy_from_slice(&crc.to_le_bytes());
        packet
    }

    /// One message from the first to the second, by SCTP.
    fn message_by_sctp([a, b]: [&Endpoint; 2], len: usize) {
        let before = counters(b).record_bytes_received;
        let (mut data, mut buf, mut out) = (vec![0x3c; len], vec![0; len], Vec::new());
        post(b, &mut buf);
        send(a, 0, &mut data);
        until(&[a, b], || b.poll(Queue::Recv, &mut out, 1) > 0);
        until(&[a, b], || a.poll(Queue::Send, &mut out, 1) > 0);
        assert!(buf == data && counters(b).record_bytes_received >= before + len as u64);
    }

    /// Rule 2.9 and what SCTP does itself: as if from the peer's own address, with its ports.
    #[test]
    fn forged_packets_with_a_wrong_tag_deliver_nothing_and_end_nothing() {
        let Some([a, b]) = pair() else { return };
        // The tag that is right, by which the same packets do what they say.
        let genuine = inside(&b, |sctp, _| {
            let p = sctp.there_mut(PeerId(0)).expect("the peer");
            while p.association.next_packet().is_some() {}
            let record = [&[0; 16][..], &[0; 16]].concat();
            p.association.send(1, PPID | u32::from(kind::CREDIT), &record).expect("there is room");
            p.out[1].sent += 1;
            p.association.next_packet().expect("a packet")
        });
        let word = |at: usize| u32::from_be_bytes(genuine[at..at + 4].try_into().expect("four bytes"));
        // (Behind a SACK, perhaps.)
        let mut chunk = 12;
        while word(chunk) >> 24 != 0 {
            chunk += (word(chunk) as usize & 0xffff).next_multiple_of(4);
        }
        let (tag, tsn) = (word(4), word(chunk + 4));
        assert_ne!(tag, 0);
        let (ports, remote) = inside(&a, |_, st| {
            let [(_, here), (_, there)] = st.proto().sctp_ids(PeerId(0)).expect("it is up");
            let (remote, ..) = st.proto().way(PeerId(0)).expect("a way");
            ([there, here].map(|place| port_of(place).expect("a port")), remote)
        });
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
        // CREDIT in one chunk, by stream 1, as the first and as the next that is to come.
        let data =
            |tsn: u32| [words(&[0x0003_0030, tsn, 0x0001_0000, PPID | u32::from(kind::CREDIT)]), vec![0; 32]].concat();
        let init = words(&[0x0100_0014, 7, 1 << 16, 0x0009_0009, 1]);
        let (abort, reflected) = (words(&[0x0600_0004]), words(&[0x0601_0004]));
        let comes = |tag: u32, chunk: &[u8]| {
            let before = counters(&a);
            let packet = packet_of(ports, tag, chunk);
            assert!(inside(&a, |sctp, st| sctp.datagram(st, crate::clock::now(), remote, &packet)));
            let after = counters(&a);
            (after.packets_dropped - before.packets_dropped, after.packets_received - before.packets_received)
        };
        let before = counters(&a);
        for chunk in [&init, &data(tsn), &abort] {
            assert_eq!(comes(0, chunk), (1, 0), "SCTP does not see it");
        }
        for wrong in [tag ^ 1, 1, u32::MAX] {
            for chunk in [&init, &data(tsn), &data(tsn.wrapping_add(1)), &abort, &reflected] {
                assert_eq!(comes(wrong, chunk), (0, 1), "SCTP drops it itself");
            }
        }
        a.progress();
        let after = counters(&a);
        assert_eq!((after.records_received, after.over), (before.records_received, 0));
        assert!(is_up(&a) && is_up(&b));
        // What was genuine is taken still, once; and everything goes on.
        inside(&a, |sctp, st| sctp.datagram(st, crate::clock::now(), remote, &genuine));
        assert_eq!(counters(&a).records_received, before.records_received + 1);
        message_by_sctp([&a, &b], 100_000);
        message_by_sctp([&b, &a], 100_000);
        assert!(is_up(&a) && is_up(&b));
        assert_eq!(comes(tag, &abort), (0, 1));
        assert!(!is_up(&a), "these packets do what they say, if the tag is right");
    }

    #[test]
    fn a_full_buffer_keeps_no_sleeper_awake() {
        let Some([a, _b]) = pair() else { return };
        inside(&a, |sctp, st| {
            let now = crate::clock::now();
            let p = sctp.there_mut(PeerId(0)).expect("the peer");
            // (The other end reads nothing of it.)
            for len in [16 << 10, 1] {
                while p.association.send(1, PPID, &[0; 16 << 10][..len]).is_ok() {}
            }
            // Something was read that the peer is to be told at once, and something is to go.
            (p.tell_at, p.inn[0].read) = (Some(now), p.inn[0].read + 1);
            assert!(sctp.next_timeout(st, now).is_some_and(|t| t <= now), "it is due");
            sctp.offer(st, now);
            let p = sctp.there(PeerId(0)).expect("the peer");
            assert!(p.full && p.inn[0].told < p.inn[0].read, "there was no room");
            let next = sctp.next_timeout(st, now).expect("SCTP's timers run");
            assert!(next > now && next <= now.plus_ns(TICK_NS), "{next:?} at {now:?}");
            // The same in every pass until then.
            for i in 1..TICK_NS / ROUND_NS {
                let now = now.plus_ns(i * ROUND_NS);
                sctp.progress(st, now);
                sctp.offer(st, now);
                assert!(sctp.next_timeout(st, now).is_some_and(|t| t > now));
            }
        });
    }

    #[test]
    fn passes_do_not_look_at_peers_again_and_again() {
        let Some([a, b]) = pair() else { return };
        assert_eq!(inside(&a, |sctp, _| sctp.looks), 1);
        // One that takes no SCTP.
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, carrier: CarrierUse::Network, watchdog_us: 0, ..EngineConfig::default() };
        let other = Endpoint::open_with_key(cfg, [7; 32]).expect("open");
        a.insert_peer(&other.name()).expect("name");
        let (mut one, mut buf, mut out) = ([1], [0], Vec::new());
        other.insert_peer(&a.name()).expect("name");
        post(&other, &mut buf);
        send(&a, 1, &mut one);
        until(&[&a, &b, &other], || other.poll(Queue::Recv, &mut out, 1) > 0);
        until(&[&a, &b, &other], || a.poll(Queue::Send, &mut out, 1) > 0);
        let start = Instant::now();
        let passes = |n: u32| (0..n).for_each(|_| [&a, &b, &other].iter().for_each(|ep| ep.progress()));
        while start.elapsed() < Duration::from_millis(20) {
            passes(100);
        }
        assert_eq!(inside(&a, |sctp, _| sctp.looks), 1, "neither in a pass nor in a round");
        assert!(is_up(&a));
    }

    #[test]
    fn who_closes_leaves_no_count_of_sctp_that_was_lost() {
        let Some([a, b]) = pair() else { return };
        message_by_sctp([&a, &b], 100_000);
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| a.close());
            until(&[&b], || closing.is_finished());
        });
        let start = Instant::now();
        until(&[&b], || start.elapsed() > Duration::from_nanos(2 * FAREWELL_NS));
        for ep in [&a, &b] {
            let counted = counters(ep);
            assert_eq!((counted.up, counted.over, counted.records_given_back), (1, 0, 0));
        }
        assert!(!is_up(&b));
    }

    #[test]
    fn who_says_a_wrong_hello_is_not_listened_to() {
        let Some([a, b]) = pair() else { return };
        let hello = inside(&b, |_, st| st.proto().sctp_hello(PeerId(0))).expect("its own");
        let foreign = inside(&a, |_, st| st.proto().sctp_hello(PeerId(0))).expect("for the other direction");
        let mut damaged = hello;
        damaged[39] ^= 1;
        let wrong: [(u16, u16, &[u8]); 7] = [
            (0, kind::HELLO, &foreign),
            (0, kind::HELLO, &damaged),
            (0, kind::HELLO, b""),
            (7, kind::HELLO, &hello),
            (90, kind::HELLO, &hello),
            (0, 7, &hello),
            (0, kind::CREDIT, &[0; 32]),
        ];
        for (stream, kind, bytes) in wrong {
            inside(&a, |sctp, st| {
                let p = sctp.there_mut(PeerId(0)).expect("the peer");
                (p.heard_hello, p.phase) = (false, Phase::Opening(crate::clock::now()));
                let before = sctp.counters.hellos_refused;
                let ppid = PPID | u32::from(kind);
                assert_eq!(sctp.arrived(st, crate::clock::now(), PeerId(0), (stream, ppid), bytes), Ok(()));
                assert_eq!(sctp.counters.hellos_refused, before + 1);
                let p = sctp.there(PeerId(0)).expect("it is remembered");
                assert!(matches!(p.phase, Phase::Over(_)) && !p.heard_hello);
                // As it was, for the next.
                st.proto_mut().sessions_mut().hold(PeerId(0));
            });
        }
    }

    #[test]
    fn a_record_that_breaks_a_rule_is_a_violation() {
        let Some([a, _b]) = pair() else { return };
        let record = |read: u64, flags: u8, rest: &[u8]| {
            let mut bytes = vec![0; 16];
            bytes[..8].copy_from_slice(&read.to_le_bytes());
            bytes[8] = flags;
            bytes.extend_from_slice(rest);
            bytes
        };
        let of = |kind: u16| PPID | u32::from(kind);
        let mut reserved = record(0, 0, &[0; 16]);
        reserved[12] = 1;
        let entry = |stream: u64, read: u64| [stream.to_le_bytes(), read.to_le_bytes()].concat();
        let wrong: [(u16, u32, Vec<u8>); 12] = [
            (1, of(kind::CREDIT), vec![0; 15]),
            (1, of(kind::CREDIT), record(0, 0, &[0; 15])),
            (1, of(kind::CREDIT), record(0, 2, &[0; 16])),
            (1, of(kind::CREDIT), reserved),
            (1, of(kind::CREDIT), record(1 << 40, 0, &[0; 16])),
            (1, of(13), record(0, 0, &[0; 16])),
            (1, of(kind::MESSAGE_AT), record(0, 0, &[0; 64])),
            (1, 7, record(0, 0, &[0; 16])),
            (90, of(kind::CREDIT), record(0, 0, &[0; 16])),
            (0, of(kind::ACK), record(0, 0, &[0; 15])),
            (0, of(kind::ACK), record(0, 0, &entry(1, 1 << 40))),
            (0, of(kind::ACK), record(0, 0, &entry(1 << 20, 0))),
        ];
        for (i, (stream, ppid, bytes)) in wrong.into_iter().enumerate() {
            let said = inside(&a, |sctp, st| sctp.arrived(st, crate::clock::now(), PeerId(0), (stream, ppid), &bytes));
            assert!(said.is_err(), "case {i}");
        }
        let good = record(0, 0, &[0; 16]);
        let said =
            inside(&a, |sctp, st| sctp.arrived(st, crate::clock::now(), PeerId(0), (1, of(kind::CREDIT)), &good));
        assert_eq!(said, Ok(()));
    }
}
