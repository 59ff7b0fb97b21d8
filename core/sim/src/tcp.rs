//! TCP connections between hosts: an ordered row of bytes each way, at the pace of the links
//! roughly. They can be refused, stall where packets are lost or cables cut, break at any byte, and
//! end with their host. They share rate with one another, not with the packets.

use std::collections::{BTreeMap, VecDeque};

pub use weir_bulk_driver::Broken;
use weir_net::Server;

use crate::log::Log;
use crate::net::{Net, Way};
use crate::queue::{Queue, What};
use crate::rng::Rng;
use crate::spec::{HostId, MS, NetId, Ns, SEC, TcpSpec, US};

/// What one packet of a segment carries, and what it costs on the wire besides.
const PACKET_BYTES: u64 = 1448;
const PACKET_OVERHEAD_BYTES: u64 = 78;
/// Linux's least retransmission time-out; it doubles up to 16 times this.
const RTO_NS: Ns = 200 * MS;
/// The same for the first packet of a connection.
const SYN_RTO_NS: Ns = SEC;
/// Part of the losses that wait for the time-out; the others are mended in a round trip.
const RTO_PPM: u32 = 125_000;

/// One end of a connection, as the program that holds it names it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Socket {
    conn: u64,
    side: usize,
}

/// What a read found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// So many bytes; 0: none yet.
    Bytes(usize),
    /// The other side has ended its direction, and everything was read.
    End,
}

/// What connections came to.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct TcpCounters {
    /// Tried.
    pub tried: u64,
    /// Refused or let wait by chance.
    pub refused: u64,
    /// Broken by chance.
    pub broken: u64,
    /// Broken by a fault, and those of them that had bytes under way.
    pub severed: [u64; 2],
    /// Segments that had to be sent again.
    pub lost: u64,
    /// Payload bytes that reached a host.
    pub bytes: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// The first packet arrives then.
    Knocks(Ns),
    /// The second one does.
    Answers(Ns),
    Open,
}

#[derive(Debug)]
struct End {
    host: HostId,
    /// A program has it; a host's kernel holds it for a program that has not accepted it yet.
    held: bool,
    /// Its host lost power: nobody answers, not even to say that nobody is there.
    mute: bool,
    broken: bool,
    /// What had come before the reset can still be read.
    keeps: bool,
    /// A reset is under way to it.
    reset_at: Option<Ns>,
    /// The program wrote more than fitted.
    wants_room: bool,
}

#[derive(Debug)]
struct Segment {
    at: Ns,
    len: usize,
    /// The last: the writer has ended.
    fin: bool,
}

/// What one side writes.
#[derive(Debug, Default)]
struct Flow {
    /// Written and not arrived; the first `flying` of them are under way.
    bytes: VecDeque<u8>,
    flying: usize,
    segments: VecDeque<Segment>,
    /// How often the first segment was lost.
    tries: u32,
    /// Arrived, but the writer does not know; when it will.
    unacked: usize,
    acks: VecDeque<(Ns, usize)>,
    /// Arrived and not read.
    arrived: VecDeque<u8>,
    /// The receiver's buffer was full.
    starved: bool,
    /// The writer ends after what it wrote; that is under way; it has arrived.
    ends: bool,
    end_sent: bool,
    ended: bool,
    lost: u32,
}

impl Flow {
    fn forget_unarrived(&mut self) {
        self.bytes.clear();
        self.segments.clear();
        self.acks.clear();
        self.flying = 0;
    }
}

#[derive(Debug)]
struct Conn {
    net: NetId,
    /// Who connects, who accepts.
    ends: [End; 2],
    flows: [Flow; 2],
    phase: Phase,
    rng: Rng,
    timer: Option<Ns>,
    /// Chance that a segment is the last.
    breaks: u32,
    /// It has broken: nothing passes any more.
    severed: bool,
}

/// What acting on a connection needs besides.
pub(crate) struct Around<'a> {
    pub(crate) now: Ns,
    pub(crate) net: &'a Net,
    pub(crate) queue: &'a mut Queue,
    pub(crate) log: &'a mut Log,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum HostState {
    Up,
    /// Its program is dead; its kernel says so.
    NoProgram,
    /// It has no power.
    Mute,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Tcp {
    spec: TcpSpec,
    seed: u64,
    conns: BTreeMap<u64, Conn>,
    hosts: Vec<HostState>,
    rng: Rng,
    /// Made by the kernel and not accepted, by host.
    backlog: Vec<VecDeque<Socket>>,
    /// Each host's interfaces by network: what sends, what takes.
    interfaces: Vec<[Server; 2]>,
    networks: usize,
    /// Hosts that have something to do now.
    pub(crate) wakes: Vec<HostId>,
    pub(crate) counters: TcpCounters,
}

impl Tcp {
    pub(crate) fn new(spec: &TcpSpec, hosts: u32, networks: usize, seed: u64) -> Self {
        Tcp {
            spec: spec.clone(),
            seed,
            conns: BTreeMap::new(),
            hosts: vec![HostState::Up; hosts as usize],
            rng: Rng::new(seed, u64::MAX - 2),
            backlog: vec![VecDeque::new(); hosts as usize],
            interfaces: vec![[Server::default(); 2]; hosts as usize * networks],
            networks,
            wakes: Vec::new(),
            counters: TcpCounters::default(),
        }
    }

    /// Connections of which a program still holds an end.
    pub(crate) fn live(&self) -> usize {
        self.conns.len()
    }

    pub(crate) fn connect(&mut self, a: &mut Around<'_>, net: NetId, from: HostId, to: HostId) -> Socket {
        self.counters.tried += 1;
        let id = self.counters.tried;
        let mut rng = Rng::new(self.seed, 1 << 63 | id);
        let end = |host| End {
            host,
            held: false,
            mute: false,
            broken: false,
            keeps: rng.chance(500_000),
            reset_at: None,
            wants_room: false,
        };
        let mut ends = [from, to].map(end);
        ends[0].held = true;
        let at = a.now + a.net.way(net, from, to).delay_ns;
        let breaks = if rng.chance(500_000) { self.spec.breaks } else { 0 };
        let flows = [Flow::default(), Flow::default()];
        let c = Conn { net, ends, flows, phase: Phase::Knocks(at), rng, timer: None, breaks, severed: false };
        self.conns.insert(id, c);
        a.log.note(a.now, 40 ^ id << 8, || format!("tcp connect     #{id} {from} -> {to}"));
        self.set_timer(a, id);
        Socket { conn: id, side: 0 }
    }

    pub(crate) fn accept(&mut self, host: HostId) -> Option<Socket> {
        self.backlog.get_mut(host as usize)?.pop_front()
    }

    /// Somebody has connected to a host, which has not taken that connection yet.
    pub(crate) fn is_waited_for(&self, host: HostId) -> bool {
        self.backlog.get(host as usize).is_some_and(|b| !b.is_empty())
    }

    pub(crate) fn is_connected(&self, s: Socket) -> Result<bool, Broken> {
        let c = self.held(s)?;
        Ok(c.phase == Phase::Open || s.side == 1)
    }

    /// Segments of what this side wrote that had to be sent again.
    pub(crate) fn lost_segments(&self, s: Socket) -> u32 {
        self.conns.get(&s.conn).map_or(0, |c| c.flows[s.side].lost)
    }

    /// The host at the other side, and the network between.
    pub(crate) fn remote(&self, s: Socket) -> Option<(HostId, NetId)> {
        self.conns.get(&s.conn).map(|c| (c.ends[1 - s.side].host, c.net))
    }

    fn held(&self, s: Socket) -> Result<&Conn, Broken> {
        self.conns.get(&s.conn).filter(|c| c.ends[s.side].held && !c.ends[s.side].broken).ok_or(Broken)
    }

    /// How many bytes a write would take now.
    pub(crate) fn room(&mut self, s: Socket) -> Result<usize, Broken> {
        self.held(s)?;
        let most = self.spec.send_buffer_bytes as usize;
        let c = self.conns.get_mut(&s.conn).ok_or(Broken)?;
        let f = &c.flows[s.side];
        let room = if f.ends { 0 } else { most.saturating_sub(f.bytes.len() + f.unacked) };
        c.ends[s.side].wants_room |= room == 0;
        Ok(room)
    }

    /// Takes as much as there is room for.
    pub(crate) fn write(&mut self, a: &mut Around<'_>, s: Socket, bytes: &[u8]) -> Result<usize, Broken> {
        let n = self.room(s)?.min(bytes.len());
        if let Some(c) = self.conns.get_mut(&s.conn) {
            c.ends[s.side].wants_room |= n < bytes.len();
            c.flows[s.side].bytes.extend(&bytes[..n]);
        }
        self.pump(a, s.conn, s.side);
        self.set_timer(a, s.conn);
        Ok(n)
    }

    pub(crate) fn read(&mut self, a: &mut Around<'_>, s: Socket, dst: &mut [u8]) -> Result<Arrived, Broken> {
        let c = self.conns.get_mut(&s.conn).filter(|c| c.ends[s.side].held).ok_or(Broken)?;
        let f = &mut c.flows[1 - s.side];
        if f.arrived.is_empty() {
            return match (c.ends[s.side].broken, f.ended) {
                (true, _) => Err(Broken),
                (false, true) => Ok(Arrived::End),
                (false, false) => Ok(Arrived::Bytes(0)),
            };
        }
        let n = dst.len().min(f.arrived.len());
        let (front, back) = f.arrived.as_slices();
        let k = n.min(front.len());
        dst[..k].copy_from_slice(&front[..k]);
        dst[k..n].copy_from_slice(&back[..n - k]);
        f.arrived.drain(..n);
        if std::mem::take(&mut f.starved) {
            let (from, to) = (c.ends[s.side].host, c.ends[1 - s.side].host);
            f.acks.push_back((a.now + a.net.way(c.net, from, to).delay_ns, 0));
            self.set_timer(a, s.conn);
        }
        Ok(Arrived::Bytes(n))
    }

    /// The program lets go of its end: what it wrote still goes, unless it left something unread.
    pub(crate) fn close(&mut self, a: &mut Around<'_>, s: Socket) {
        let Some(c) = self.conns.get_mut(&s.conn).filter(|c| c.ends[s.side].held) else { return };
        c.ends[s.side].held = false;
        let unread = !c.flows[1 - s.side].arrived.is_empty();
        if unread || matches!(c.phase, Phase::Answers(_)) {
            c.flows[s.side].forget_unarrived();
            c.reset(a, 1 - s.side);
        } else {
            c.flows[s.side].ends = true;
        }
        a.log.note(a.now, 41 ^ s.conn << 8 ^ (s.side as u64) << 7, || {
            format!("tcp close       #{} by {}{}", s.conn, c.ends[s.side].host, if unread { ", unread" } else { "" })
        });
        self.pump(a, s.conn, s.side);
        self.settle(a, s.conn);
    }

    /// All connections of a host break, each in the middle of what is under way.
    pub(crate) fn sever(&mut self, a: &mut Around<'_>, host: HostId) {
        let of_host = |c: &Conn| c.ends.iter().any(|e| e.host == host) && !c.severed && c.phase == Phase::Open;
        for id in self.conns.iter().filter(|(_, c)| of_host(c)).map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(c) = self.conns.get_mut(&id) else { continue };
            self.counters.severed[0] += 1;
            self.counters.severed[1] += u64::from(c.flows.iter().any(|f| f.flying > 0));
            let mut way = a.net.way(c.net, c.ends[0].host, c.ends[1].host);
            for side in 0..2 {
                let (from, to) = (c.ends[side].host, c.ends[1 - side].host);
                way = a.net.way(c.net, from, to);
                if let Some(len) = c.flows[side].segments.front().map(|s| s.len).filter(|_| !way.is_cut) {
                    let some = c.rng.below(len as u64 + 1) as usize;
                    c.arrive(a, side, some, &way);
                    self.wakes.push(to);
                }
            }
            c.break_off(a, &way);
            self.set_timer(a, id);
        }
    }

    /// A host's program dies; if it is not `quiet`, perhaps with the host.
    pub(crate) fn crash(&mut self, a: &mut Around<'_>, host: HostId, quiet: bool) {
        let mute = !quiet && self.rng.chance(500_000);
        self.hosts[host as usize] = if mute { HostState::Mute } else { HostState::NoProgram };
        self.backlog[host as usize].clear();
        let ends = |(id, c): (&u64, &Conn)| {
            let side = c.ends.iter().position(|e| e.host == host && e.held);
            side.map(|side| Socket { conn: *id, side })
        };
        for s in self.conns.iter().filter_map(ends).collect::<Vec<_>>() {
            match self.conns.get_mut(&s.conn) {
                Some(c) if mute => {
                    (c.ends[s.side].held, c.ends[s.side].mute) = (false, true);
                    c.flows[s.side].forget_unarrived();
                    self.settle(a, s.conn);
                }
                _ => self.close(a, s),
            }
        }
    }

    /// A host is up again: it knows nothing of what was.
    pub(crate) fn restart(&mut self, host: HostId) {
        self.hosts[host as usize] = HostState::Up;
        for e in self.conns.values_mut().flat_map(|c| &mut c.ends).filter(|e| e.host == host) {
            e.mute = false;
        }
    }

    /// Something of a connection is due.
    pub(crate) fn fire(&mut self, a: &mut Around<'_>, id: u64) {
        let Some(c) = self.conns.get_mut(&id).filter(|c| c.timer == Some(a.now)) else { return };
        c.timer = None;
        match c.phase {
            Phase::Knocks(at) if at <= a.now => self.knock(a, id),
            Phase::Answers(at) if at <= a.now => {
                let way = a.net.way(c.net, c.ends[1].host, c.ends[0].host);
                if way.is_cut || c.rng.chance(way.loss) {
                    c.phase = Phase::Answers(a.now + SYN_RTO_NS);
                } else {
                    c.phase = Phase::Open;
                    self.wakes.push(c.ends[0].host);
                }
            }
            _ => {}
        }
        for side in 0..2 {
            self.take_reset(a, id, side);
            self.take_acks(a, id, side);
            self.take_segments(a, id, side);
        }
        for side in 0..2 {
            self.pump(a, id, side);
        }
        self.settle(a, id);
    }

    /// The first packet is at the other's.
    fn knock(&mut self, a: &mut Around<'_>, id: u64) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        let to = c.ends[1].host;
        let (way, state) = (a.net.way(c.net, c.ends[0].host, to), self.hosts[to as usize]);
        let refused = c.rng.chance(self.spec.refuses);
        self.counters.refused += u64::from(refused);
        let silent = refused && c.rng.chance(500_000);
        if way.is_cut || state == HostState::Mute || silent || c.rng.chance(way.loss) {
            c.phase = Phase::Knocks(a.now + SYN_RTO_NS);
        } else if refused || state == HostState::NoProgram {
            c.phase = Phase::Knocks(Ns::MAX);
            c.reset(a, 0);
        } else {
            c.phase = Phase::Answers(a.now + way.delay_ns);
            c.ends[1].held = true;
            self.backlog[to as usize].push_back(Socket { conn: id, side: 1 });
            self.wakes.push(to);
        }
    }

    fn take_reset(&mut self, a: &mut Around<'_>, id: u64, side: usize) {
        let Some(c) = self.conns.get_mut(&id).filter(|c| c.ends[side].reset_at.is_some_and(|at| at <= a.now)) else {
            return;
        };
        c.ends[side].reset_at = c.severed.then_some(a.now + RTO_NS);
        if a.net.way(c.net, c.ends[1 - side].host, c.ends[side].host).is_cut {
            return;
        }
        c.ends[side].reset_at = None;
        c.ends[side].broken = true;
        c.flows[side].forget_unarrived();
        if !c.ends[side].keeps {
            c.flows[1 - side].arrived.clear();
        }
        a.log.note(a.now, 42 ^ id << 8 ^ (side as u64) << 7, || {
            format!("tcp reset       #{id} at {}", c.ends[side].host)
        });
        self.wakes.push(c.ends[side].host);
    }

    /// Word of what arrived comes back to `side`.
    fn take_acks(&mut self, a: &mut Around<'_>, id: u64, side: usize) {
        let most = self.spec.send_buffer_bytes as usize;
        let Some(c) = self.conns.get_mut(&id) else { return };
        let (f, way) = (&mut c.flows[side], a.net.way(c.net, c.ends[1 - side].host, c.ends[side].host));
        while let Some(&(_, len)) = f.acks.front().filter(|k| k.0 <= a.now) {
            if way.is_cut || c.ends[1 - side].mute {
                // The writer sends again until an answer comes.
                f.lost += 1;
                for k in &mut f.acks {
                    k.0 = k.0.max(a.now + RTO_NS);
                }
                return;
            }
            f.acks.pop_front();
            f.unacked -= len.min(f.unacked);
            // As Linux does: a writer is woken when a third is free, or it would write a byte for
            // each byte that went.
            let free = most.saturating_sub(f.bytes.len() + f.unacked);
            if free * 3 >= most && std::mem::take(&mut c.ends[side].wants_room) {
                self.wakes.push(c.ends[side].host);
            }
        }
    }

    /// Segments that `side` wrote reach the other's host, or do not.
    fn take_segments(&mut self, a: &mut Around<'_>, id: u64, side: usize) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        let (from, to) = (c.ends[side].host, c.ends[1 - side].host);
        let way = a.net.way(c.net, from, to);
        while let Some(&Segment { at, len, fin }) = c.flows[side].segments.front() {
            if at > a.now {
                return;
            }
            let f = &mut c.flows[side];
            let silent = way.is_cut || c.ends[1 - side].mute;
            let packets = (len as u64).div_ceil(PACKET_BYTES).max(1);
            let tries = if f.tries == 0 { packets } else { 1 };
            if silent || (0..tries).any(|_| c.rng.chance(way.loss)) {
                let time_out = silent || c.rng.chance(RTO_PPM);
                let wait = if time_out { RTO_NS << f.tries.min(4) } else { 2 * way.delay_ns + way.jitter_ns + US };
                (f.tries, f.lost) = (f.tries + 1, f.lost + 1);
                self.counters.lost += 1;
                for s in &mut f.segments {
                    s.at = s.at.max(a.now + wait);
                }
                return;
            }
            f.tries = 0;
            if !c.ends[1 - side].held || c.ends[1 - side].broken {
                // Nobody is there, and somebody says so.
                f.forget_unarrived();
                return c.reset(a, side);
            }
            if c.rng.chance(c.breaks) {
                self.counters.broken += 1;
                let some = c.rng.below(len as u64 + 1) as usize;
                c.arrive(a, side, some, &way);
                c.break_off(a, &way);
                return self.wakes.push(to);
            }
            c.flows[side].segments.pop_front();
            c.arrive(a, side, len, &way);
            c.flows[side].ended |= fin;
            self.counters.bytes += len as u64;
            self.wakes.push(to);
        }
    }

    /// What was written goes on its way, as far as the receiver's buffer allows.
    fn pump(&mut self, a: &mut Around<'_>, id: u64, side: usize) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        let (from, to) = (c.ends[side].host, c.ends[1 - side].host);
        if c.severed || c.ends[side].broken || matches!(c.phase, Phase::Knocks(_)) {
            return;
        }
        let f = &mut c.flows[side];
        if f.bytes.len() == f.flying && (!f.ends || f.end_sent) {
            return;
        }
        let way = a.net.way(c.net, from, to);
        let index = |host: HostId| host as usize * self.networks + usize::from(c.net);
        loop {
            let rest = f.bytes.len() - f.flying;
            let fin = rest == 0 && f.ends && !f.end_sent;
            if rest == 0 && !fin {
                return;
            }
            let window = (self.spec.receive_buffer_bytes as usize).saturating_sub(f.arrived.len() + f.flying);
            // No slivers (RFC 9293 3.8.6.2).
            if window < rest.min(self.spec.receive_buffer_bytes as usize / 2).min(PACKET_BYTES as usize) {
                f.starved = true;
                return;
            }
            let most = 1 + c.rng.below(u64::from(self.spec.segment_bytes.max(1))) as usize;
            let len = rest.min(window).min(most);
            let takes =
                way.serialise_ns(len as u64 + PACKET_OVERHEAD_BYTES * (len as u64).div_ceil(PACKET_BYTES).max(1));
            let left = self.interfaces[index(from)][0].serve(a.now, takes);
            let jitter = c.rng.below(way.jitter_ns + 1);
            let at = self.interfaces[index(to)][1].serve(left - takes + way.delay_ns + jitter, takes);
            let at = f.segments.back().map_or(at, |s| at.max(s.at));
            f.segments.push_back(Segment { at, len, fin });
            f.flying += len;
            f.end_sent |= fin;
        }
    }

    /// Forgets a connection that nobody holds, or sees to what comes next of it.
    fn settle(&mut self, a: &mut Around<'_>, id: u64) {
        if self.conns.get(&id).is_some_and(|c| c.ends.iter().all(|e| !e.held)) {
            self.conns.remove(&id);
            self.backlog.iter_mut().for_each(|b| b.retain(|s| s.conn != id));
        }
        self.set_timer(a, id);
    }

    fn set_timer(&mut self, a: &mut Around<'_>, id: u64) {
        let Some(c) = self.conns.get_mut(&id) else { return };
        let phase = match c.phase {
            Phase::Knocks(at) | Phase::Answers(at) => (at < Ns::MAX).then_some(at),
            Phase::Open => None,
        };
        let resets = c.ends.iter().filter_map(|e| e.reset_at);
        let acks = c.flows.iter().filter_map(|f| f.acks.front().map(|k| k.0));
        let segments = c.flows.iter().filter_map(|f| f.segments.front().map(|s| s.at));
        let next = phase.into_iter().chain(resets).chain(acks).chain(segments).min().map(|at| at.max(a.now));
        if let Some(at) = next.filter(|at| c.timer.is_none_or(|t| *at < t)) {
            c.timer = Some(at);
            a.queue.push(at, What::Tcp { conn: id });
        }
    }
}

impl Conn {
    /// A reset is sent to an end.
    fn reset(&mut self, a: &Around<'_>, side: usize) {
        let delay = a.net.way(self.net, self.ends[1 - side].host, self.ends[side].host).delay_ns;
        if self.ends[side].held && !self.ends[side].broken {
            self.ends[side].reset_at.get_or_insert(a.now + delay);
        }
    }

    /// Something between breaks the connection: each end hears of it in its time.
    fn break_off(&mut self, a: &Around<'_>, way: &Way) {
        self.severed = true;
        for side in 0..2 {
            self.flows[side].forget_unarrived();
            let at = a.now + self.rng.below(4 * way.delay_ns + 1);
            self.ends[side].reset_at.get_or_insert(at);
        }
    }

    /// So many bytes of `side` are in the other host's buffer.
    fn arrive(&mut self, a: &mut Around<'_>, side: usize, len: usize, way: &Way) {
        let f = &mut self.flows[side];
        f.arrived.extend(f.bytes.drain(..len));
        f.flying -= len;
        f.unacked += len;
        f.acks.push_back((a.now + way.delay_ns, len));
        a.log.note(a.now, 43 ^ (len as u64) << 8 ^ (side as u64) << 7, || {
            format!("tcp arrive      {} -> {} {len} B", self.ends[side].host, self.ends[1 - side].host)
        });
    }
}
