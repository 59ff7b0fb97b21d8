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
#[cfg(test)]
mod tests;

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
