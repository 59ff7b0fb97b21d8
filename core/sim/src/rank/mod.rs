//! A rank: one protocol endpoint and one matcher on a simulated host, with tagged sends and receives, eager and
//! rendezvous, as the engine has them, and every checker told of everything.

mod directory;
mod lanes;
mod receive;
mod send;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_match::{Class, Match, Matcher};
use weir_proto::{Config, DownReason, Endpoint, Event, PacketBuf, Payloads, PeerId, RxMeta, Time};

pub use directory::{Directory, Shared};
use lanes::Lanes;
use receive::{Body, Incoming, Receive};
use send::Outgoing;

use crate::check::{Program, memory::Memory, payload};
use crate::rng::mix;
use crate::spec::{HostId, NetId, Ns};
use crate::world::{Host, Node, Received};

/// The UDP port of every rank.
const PORT: u16 = 7000;
/// Runs of a host between two looks at what its endpoint reports about its memory.
const LOOK_EVERY: u32 = 64;

/// A rank's name for one of its sends; grows from send to send.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SendId(pub u64);
/// A rank's name for one of its receives; grows from receive to receive.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecvId(pub u64);

/// How an operation ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The send is complete.
    Sent(SendId),
    /// The receive is complete.
    Received {
        /// The receive.
        receive: RecvId,
        /// Who sent the message.
        from: HostId,
        /// Its tag.
        tag: u64,
        /// Bytes sent.
        len: u64,
    },
    /// The send will not complete: its peer is down.
    SendFailed(SendId),
    /// The receive will not complete: its peer is down, or it was cancelled.
    RecvFailed(RecvId),
}

/// What a program wants to send.
#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SendOp {
    /// To whom: the incarnation alive now, unless one is named ([`Io::send_to`]).
    pub to: HostId,
    /// Carries a tag.
    pub tagged: bool,
    /// The tag.
    pub tag: u64,
    /// Bytes.
    pub len: u64,
    /// Complete only when matched.
    pub sync: bool,
}

/// What a program wants to receive.
#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RecvOp {
    /// From whom: the incarnation alive now, unless one is named ([`Io::receive_from`]); `None` for anyone.
    pub from: Option<HostId>,
    /// Takes tagged messages.
    pub tagged: bool,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Bytes of the buffer; longer messages are cut.
    pub room: u64,
}

/// The program on a rank.
pub trait App {
    /// Begins.
    fn start(&mut self, io: &mut Io<'_, '_>);
    /// An operation has ended.
    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome);
    /// `next_wake` has passed.
    fn wake(&mut self, io: &mut Io<'_, '_>);
    /// When to wake next.
    fn next_wake(&self) -> Option<Ns>;
    /// All work is done.
    fn is_done(&self) -> bool;
    /// Where it stands, for people.
    fn state(&self) -> String;
}

/// What a program may do.
pub struct Io<'a, 'h> {
    rank: &'a mut Core,
    host: &'a mut Host<'h, Shared>,
}

impl Io<'_, '_> {
    /// Virtual time now.
    #[must_use]
    pub fn now(&self) -> Ns {
        self.host.now
    }
    /// Starts a send.
    pub fn send(&mut self, op: SendOp) -> SendId {
        self.send_to(op, self.current(op.to))
    }
    /// Starts a send to an incarnation, alive or not.
    pub fn send_to(&mut self, op: SendOp, to: Program) -> SendId {
        self.rank.start_send(self.host, op, to)
    }
    /// Posts a receive.
    pub fn receive(&mut self, op: RecvOp) -> RecvId {
        self.receive_from(op, op.from.map(|h| self.current(h)))
    }
    /// Posts a receive for an incarnation, alive or not.
    pub fn receive_from(&mut self, op: RecvOp, from: Option<Program>) -> RecvId {
        self.rank.start_receive(self.host, op, from)
    }
    /// The program that runs on a host now, or ran there last.
    #[must_use]
    pub fn current(&self, host: HostId) -> Program {
        self.host.shared.directory.current(host)
    }
    /// By now the death of `program` must be known here, if an association with it ever stood.
    pub fn must_know_dead(&mut self, program: Program) {
        let peer = self.rank.by_program.get(&program).and_then(|id| self.rank.peers.get(id));
        if peer.is_some_and(|p| p.was_up && p.down.is_none()) && self.host.shared.checks.liveness.is_dead(program) {
            let me = self.rank.program;
            self.host.violation("death-unnoticed", format!("{me} does not know that {program} is dead"));
        }
    }
    /// Withdraws a receive; false if it has taken a message already.
    pub fn cancel(&mut self, receive: RecvId) -> bool {
        self.rank.cancel(self.host, receive)
    }
}

/// The payload of every operation of one endpoint.
struct Content {
    endpoint_id: u64,
}

impl Payloads for Content {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        payload::fill(payload::key(self.endpoint_id, token_message(token)), offset, dst);
    }
}

/// What a token stands for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Part {
    Eager,
    Request,
    Body,
    Control,
}

fn token(part: Part, number: u64) -> u64 {
    number << 2 | part as u64
}

fn token_message(token: u64) -> u64 {
    token >> 2
}

fn token_part(token: u64) -> Part {
    match token & 3 {
        0 => Part::Eager,
        1 => Part::Request,
        2 => Part::Body,
        _ => Part::Control,
    }
}

fn class(tagged: bool) -> Class {
    if tagged { Class::Tagged } else { Class::Untagged }
}

/// What a rank knows about a peer of its endpoint.
#[derive(Clone, Debug)]
struct Peer {
    program: Program,
    endpoint_id: u64,
    down: Option<DownReason>,
    /// The association was established once.
    was_up: bool,
    /// Sends that the endpoint had no room for, in order.
    backlog: VecDeque<SendId>,
    /// The same for control messages.
    control_backlog: VecDeque<weir_match::envelope::Envelope>,
    /// Highest number of a lane that it greeted with.
    lane: u32,
}

/// Everything of a rank but its program.
pub struct Core {
    program: Program,
    endpoint_id: u64,
    eager_max: u64,
    streams: u16,
    level_gathers: bool,
    endpoint: Endpoint,
    matcher: Matcher,
    peers: BTreeMap<PeerId, Peer>,
    by_program: BTreeMap<Program, PeerId>,
    sends: BTreeMap<SendId, Outgoing>,
    receives: BTreeMap<RecvId, Receive>,
    incoming: BTreeMap<u64, Incoming>,
    by_number: BTreeMap<(PeerId, u64), u64>,
    bodies: BTreeMap<(PeerId, u64), Body>,
    next_send: u64,
    next_receive: u64,
    next_incoming: u64,
    next_control: u64,
    outcomes: VecDeque<Outcome>,
    events: Vec<Event>,
    matches: Vec<Match>,
    buffer: PacketBuf,
    lanes: Lanes,
    runs: u32,
    /// Some peer has a backlog.
    has_backlog: bool,
    closing: bool,
}

/// A rank and its program.
pub struct Rank {
    /// Everything but the program.
    pub core: Core,
    app: Box<dyn App>,
    started: bool,
    done: bool,
}

/// The address of a host on a network.
#[must_use]
pub fn address(host: HostId, net: NetId) -> SocketAddr {
    let ip = Ipv4Addr::new(10, net, (host >> 8) as u8, host as u8);
    SocketAddr::new(IpAddr::V4(ip), PORT)
}

/// The host and network of an address, if there can be one.
fn place(address: SocketAddr) -> Option<(HostId, NetId)> {
    let IpAddr::V4(ip) = address.ip() else {
        return None;
    };
    let [ten, net, high, low] = ip.octets();
    (ten == 10 && address.port() == PORT).then(|| (HostId::from(high) << 8 | HostId::from(low), net))
}

impl Rank {
    /// A rank for an incarnation of a host; its configuration and program come from `shared`.
    #[must_use]
    pub fn new(shared: &mut Shared, host: HostId, incarnation: u32) -> Self {
        let program = Program { host, incarnation };
        let config: Config = shared.config(host);
        // Never 0, which names whoever is at an address (spec 7).
        let endpoint_id = mix(shared.seed ^ mix(u64::from(host) << 32 | u64::from(incarnation) | 1 << 63)).max(1);
        let mut secret = [0; 32];
        for (i, chunk) in secret.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&mix(endpoint_id.wrapping_add(1 + i as u64)).to_le_bytes());
        }
        let addresses: Vec<SocketAddr> = (0..shared.networks).map(|n| address(host, n)).collect();
        let core = Core {
            program,
            endpoint_id,
            eager_max: shared.eager_max,
            streams: config.streams,
            level_gathers: config.gather,
            endpoint: Endpoint::new(config, shared.job_key, endpoint_id, &addresses, secret),
            matcher: Matcher::new(),
            peers: BTreeMap::new(),
            by_program: BTreeMap::new(),
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            incoming: BTreeMap::new(),
            by_number: BTreeMap::new(),
            bodies: BTreeMap::new(),
            next_send: 0,
            next_receive: 0,
            next_incoming: 0,
            next_control: 0,
            outcomes: VecDeque::new(),
            events: Vec::new(),
            matches: Vec::new(),
            buffer: PacketBuf::new(),
            lanes: Lanes::new(shared, endpoint_id),
            runs: 0,
            has_backlog: false,
            closing: false,
        };
        shared.directory.enter(program, endpoint_id, core.endpoint.name());
        shared.unfinished.insert(host);
        let app = shared.make_app(program);
        Rank { core, app, started: false, done: false }
    }

    /// Closes the endpoint; what was accepted is still delivered.
    pub fn close(&mut self, now: Ns) {
        self.core.closing = true;
        self.core.endpoint.close(Time(now));
    }

    /// Nothing unacknowledged is left after `close`.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.core.endpoint.is_drained()
    }

    /// Where the rank stands, for people.
    #[must_use]
    pub fn state(&self) -> String {
        let c = &self.core;
        let mut s = format!(
            "{}: {} | sends open {} receives open {} messages in {} bodies in {} next timeout {:?}",
            c.program,
            self.app.state(),
            c.sends.len(),
            c.receives.len(),
            c.incoming.len(),
            c.bodies.len(),
            c.endpoint.next_timeout()
        );
        for (id, p) in &c.peers {
            let stats = c.endpoint.peer_stats(*id);
            let quiet = stats.messages_open + stats.messages_waiting + stats.bodies_open + stats.bodies_in == 0;
            if quiet && stats.state == "up" {
                continue;
            }
            s += &format!(
                "\n    {} queued {} credit {:?} {stats:?}",
                p.program,
                c.endpoint.queued(*id),
                c.endpoint.credit(*id)
            );
        }
        s
    }

    /// The endpoint, to look at.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.core.endpoint
    }

    /// Checks that nothing is kept for peers that live once all work is done.
    ///
    /// # Errors
    /// What is left over.
    pub fn check_empty(&self, shared: &Shared) -> Result<(), String> {
        let c = &self.core;
        for (id, p) in c.peers.iter().filter(|(_, p)| p.down.is_none() && !shared.checks.liveness.is_dead(p.program)) {
            Memory::check_empty(c.program, p.program, &c.endpoint.peer_stats(*id))?;
        }
        let left = c.sends.len() + c.incoming.len() + c.bodies.len();
        if left > 0 {
            return Err(format!(
                "{} has done its work but keeps {} sends, {} messages, {} bodies",
                c.program,
                c.sends.len(),
                c.incoming.len(),
                c.bodies.len()
            ));
        }
        Ok(())
    }

    fn run_app(&mut self, host: &mut Host<'_, Shared>) {
        let mut io = Io { rank: &mut self.core, host };
        if !self.started {
            self.started = true;
            self.app.start(&mut io);
        }
        if self.app.next_wake().is_some_and(|t| t <= io.host.now) {
            self.app.wake(&mut io);
        }
        while let Some(o) = io.rank.outcomes.pop_front() {
            self.app.outcome(&mut io, o);
        }
        if !self.done && self.app.is_done() {
            self.done = true;
            let id = host.id;
            host.shared.unfinished.remove(&id);
            host.shared.finished_ns = host.now;
        }
    }
}

impl Core {
    /// The slot for a peer of the endpoint, made when first seen.
    fn peer_slot(&mut self, host: &mut Host<'_, Shared>, id: PeerId) -> &mut Peer {
        let endpoint = &self.endpoint;
        let by_program = &mut self.by_program;
        self.peers.entry(id).or_insert_with(|| {
            let endpoint_id = endpoint.peer_endpoint_id(id);
            let program = host.shared.directory.program(endpoint_id).unwrap_or_else(|| {
                host.violation("identity", format!("peer {id:?} has endpoint id {endpoint_id:#x}, which nobody has"));
                Program { host: HostId::MAX, incarnation: 0 }
            });
            by_program.insert(program, id);
            Peer {
                program,
                endpoint_id,
                down: None,
                was_up: false,
                backlog: VecDeque::new(),
                control_backlog: VecDeque::new(),
                lane: 0,
            }
        })
    }

    /// The endpoint's peer for a program.
    fn peer_of(&mut self, host: &mut Host<'_, Shared>, program: Program) -> PeerId {
        if let Some(id) = self.by_program.get(&program) {
            return *id;
        }
        let Some(name) = host.shared.directory.name(program) else {
            host.violation("scenario", format!("{program} has no name yet"));
            return PeerId(u32::MAX);
        };
        match self.endpoint.peer(&name) {
            Ok(id) => {
                self.peer_slot(host, id);
                id
            }
            Err(e) => {
                host.violation("name", format!("{} refuses the name of {program}: {e}", self.program));
                PeerId(u32::MAX)
            }
        }
    }

    /// Handles all events; `datagram` is what they index.
    fn drain_events(&mut self, host: &mut Host<'_, Shared>, datagram: &[u8]) {
        let mut events = std::mem::take(&mut self.events);
        for e in events.drain(..) {
            self.event(host, e, datagram);
        }
        // Handling may have produced more (restored fragments); those index nothing.
        let more = std::mem::replace(&mut self.events, events);
        for e in more {
            self.event(host, e, &[]);
        }
    }

    fn event(&mut self, host: &mut Host<'_, Shared>, event: Event, datagram: &[u8]) {
        match event {
            Event::Up { peer } => {
                self.peer_slot(host, peer).was_up = true;
                let program = self.program;
                let other = self.peers[&peer].program;
                host.note(10, || format!("up              {program} with {other}"));
            }
            Event::Down { peer, reason } => self.down(host, peer, reason),
            Event::Sent { peer, token } => self.token_ended(host, peer, token, None),
            Event::Failed { peer, token, reason } => self.token_ended(host, peer, token, Some(reason)),
            Event::Message { .. } => self.message_event(host, &event, datagram),
            Event::Body { peer, handle, offset, ref payload, complete } => {
                let bytes = slice(host, datagram, payload);
                self.body_bytes(host, peer, handle, offset, bytes, complete);
            }
            Event::BodyAborted { peer, handle, .. } => {
                if !self.closing {
                    host.violation(
                        "abort",
                        format!("{} saw body {handle:#x} of {peer:?} aborted; nobody aborts", self.program),
                    );
                }
            }
            Event::Parity { .. } => self.parity(host, &event, datagram),
        }
    }

    fn down(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, reason: DownReason) {
        let program = self.program;
        let p = self.peer_slot(host, peer);
        let other = p.program;
        if p.down.replace(reason).is_some() {
            host.violation("down-twice", format!("{program} was told twice that {other} is down"));
        }
        host.note(11, || format!("down            {program} loses {other}: {reason}"));
        let in_order = self.closing || (reason == DownReason::Closed && host.shared.closing);
        if !in_order && let Err(e) = host.shared.checks.liveness.verdict(program, other, &reason.to_string()) {
            host.violation("false-death", e);
        }
        host.shared.checks.memory.parted(other, program);
        self.fail_peer(host, peer);
    }

    fn transmit(&mut self, host: &mut Host<'_, Shared>) {
        let content = Content { endpoint_id: self.endpoint_id };
        while host.can_send() {
            let Some(t) = self.endpoint.poll_transmit(Time(host.now), &content, &mut self.buffer) else {
                break;
            };
            if t.payload.is_some() && !self.level_gathers {
                host.violation("gather", "a payload to gather although gathering is off");
            }
            let head = &self.buffer.head;
            let Some((to, net)) = place(t.remote).filter(|(to, _)| host.shared.directory.exists(*to)) else {
                host.note(12, || format!("no such address {}", t.remote));
                continue;
            };
            let size = head.len() + t.payload.map_or(0, |p| usize::from(p.len));
            if size > host.shared.max_datagram {
                let limit = host.shared.max_datagram;
                host.violation(
                    "size",
                    format!("{} sends a datagram of {size} bytes; the limit is {limit}", self.program),
                );
            }
            host.send(net, to, |b| {
                b.extend_from_slice(head);
                if let Some(p) = t.payload {
                    let at = b.len();
                    b.resize(at + usize::from(p.len), 0);
                    content.read(p.token, p.offset, &mut b[at..]);
                }
            });
        }
    }

    fn look_at_memory(&mut self, host: &mut Host<'_, Shared>) {
        self.runs += 1;
        if !self.runs.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let turn = (self.runs / LOOK_EVERY) as usize % self.peers.len().max(1);
        if let Some(id) = self.peers.keys().nth(turn)
            && let Err(e) = host.shared.checks.memory.check_peer(
                self.program,
                self.endpoint.queued(*id),
                &self.endpoint.peer_stats(*id),
            )
        {
            host.violation("memory", e);
        }
    }
}

/// The bytes of an event, which must lie in its datagram.
fn slice<'d>(host: &mut Host<'_, Shared>, datagram: &'d [u8], range: &std::ops::Range<usize>) -> &'d [u8] {
    match datagram.get(range.clone()) {
        Some(bytes) => bytes,
        None => {
            host.violation("range", format!("an event points to {range:?} of a datagram of {} bytes", datagram.len()));
            &[]
        }
    }
}

impl Node for Rank {
    type Shared = Shared;

    fn receive(&mut self, host: &mut Host<'_, Shared>, meta: Received, data: &mut [u8]) {
        let core = &mut self.core;
        let meta = RxMeta {
            remote: address(meta.from, meta.net),
            local: Some(address(host.id, meta.net).ip()),
            slack_ns: u32::try_from(meta.slack_ns).unwrap_or(u32::MAX),
            ecn: 0,
        };
        core.endpoint.handle(Time(host.now), meta, data, &mut core.events);
        core.drain_events(host, data);
    }

    fn run(&mut self, host: &mut Host<'_, Shared>) {
        let now = Time(host.now);
        self.core.read_lanes(host);
        if self.core.endpoint.next_timeout().is_some_and(|t| t <= now) {
            self.core.endpoint.handle_timeout(now, &mut self.core.events);
            self.core.drain_events(host, &[]);
        }
        self.core.push_backlog(host);
        self.run_app(host);
        self.core.transmit(host);
        self.core.write_lanes(host);
        self.core.look_at_memory(host);
    }

    fn next_wake(&self) -> Option<Ns> {
        let protocol = self.core.endpoint.next_timeout().map(|t| t.0);
        let app = if self.done { None } else { self.app.next_wake() };
        let queued = (!self.core.outcomes.is_empty()).then_some(0);
        [protocol, app, queued, self.core.lanes.next_wake()].into_iter().flatten().min()
    }

    fn crashed(&mut self, shared: &mut Shared, now: Ns) {
        shared.crashed(self.core.program, now);
    }
}
