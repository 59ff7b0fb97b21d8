//! A rank: the messages of one endpoint (`core/message`) on a simulated host, driven as the engine
//! drives them, and every checker told of everything.

mod bulk_connections;
mod directory;
mod leaving;
mod many;
mod operations;
mod pattern;
mod remote;
mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_link::{DownReason, Endpoint, PacketBuf, PeerId, RxMeta, Time, Transmit};
use weir_message::{Messages, MultiOrder};
use weir_superstep::OwnQueue;

use bulk_connections::BulkConnections;
pub use directory::{Directory, Shared};
use leaving::Parting;
use many::Manies;
use operations::{Outgoing, Receive};
pub use pattern::Pattern;
pub use remote::{COUNTERS, READABLE_BYTES, WRITABLE_BYTES};
use told::{Pieces, Steps};

use crate::check::{Program, idle, memory::Memory};
use crate::planted::Defect;
use crate::queue::{CE, NOT_ECT};
use crate::rng::mix;
use crate::spec::{HostId, MS, NetId, Ns};
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

/// A rank's name for one of its remote writes and reads; grows from each to the next.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RemoteId(pub u64);

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
    /// A message is over that went into a buffer for several, well or not.
    Part {
        /// The receive.
        receive: RecvId,
        /// Who sent the message.
        from: HostId,
    },
    /// A buffer for several messages is handed back.
    Back {
        /// The receive.
        receive: RecvId,
        /// The only one it takes from has died, and nothing waits that had come before.
        empty: bool,
    },
    /// The remote write or read is over, well or not.
    Remote(RemoteId),
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
    /// From whom: the incarnation alive now, unless one is named ([`Io::receive_from`]); `None` for
    /// anyone.
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

/// What a program wants to do to the memory of another.
#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RemoteOp {
    /// Whose memory.
    pub to: HostId,
    /// Read it, or else write.
    pub read: bool,
    /// Where: in the region that is read, or in the one that is written, where no other write goes.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// The target is told of the write.
    pub notice: bool,
    /// It names a region that nobody has.
    pub wrong: bool,
    /// One is added to each of the counters that lie there, and what they held is read or not.
    #[serde(default)]
    pub add: bool,
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
    /// Looks for a message of an incarnation, alive or not, until there is one; claims it, and
    /// receives it then.
    pub fn look_from(&mut self, op: RecvOp, from: Option<Program>) -> RecvId {
        self.rank.start_look(self.host, op, from)
    }
    /// Posts a buffer that takes message after message, of an incarnation, alive or not, until less
    /// than `min` bytes are free.
    pub fn receive_many(&mut self, op: RecvOp, from: Option<Program>, min: u64) -> RecvId {
        self.rank.start_many(self.host, op, from, min)
    }
    /// Starts a remote write or read, at an incarnation, alive or not.
    pub fn remote(&mut self, op: RemoteOp, to: Program) -> RemoteId {
        self.rank.start_remote(self.host, op, to)
    }
    /// The program that runs on a host now, or ran there last.
    #[must_use]
    pub fn current(&self, host: HostId) -> Program {
        self.host.shared.directory.current(host)
    }
    /// A receive was waiting for `program`: by now its death must be known here, if an association
    /// with it ever stood; and had it been known, the receive would not have waited.
    pub fn must_know_dead(&mut self, program: Program) {
        let me = self.rank.program;
        let peer = self.rank.by_program.get(&program).and_then(|id| self.rank.peers.get(id));
        if peer.is_some_and(|p| p.was_up && p.down.is_none()) && self.host.shared.checks.liveness.is_dead(program) {
            self.host.violation("death-unnoticed", format!("{me} does not know that {program} is dead"));
        }
        if peer.is_some_and(|p| p.down.is_some()) {
            self.host.violation("hang", format!("{me} waits for what is to come of {program}, and knows it is dead"));
        }
    }
    /// Has done with `program`, which is dead, and lets go of what is known of it.
    pub fn forget(&mut self, program: Program) {
        self.rank.forget(self.host, program);
    }
    /// Has done with `program`, whether it lives or not: what is under way with it fails, on both
    /// sides.
    pub fn drop_peer(&mut self, program: Program) {
        self.rank.drop_peer(self.host, program);
    }
    /// The endpoint is told what it sends and gets in this superstep.
    pub fn superstep(&mut self, plan: &weir_superstep::Plan, slots: Option<weir_superstep::Slots>, own: OwnQueue) {
        self.rank.superstep(self.host, plan, slots, own);
    }
    /// Least round trip to a host's rank of late; 0: none was measured.
    pub fn least_round_trip(&mut self, to: HostId) -> Ns {
        self.rank.least_round_trip(self.host, to)
    }
    /// This rank has got all of a superstep.
    pub fn superstep_ends(&mut self, step: u32) {
        let (now, ends) = (self.host.now, &mut self.host.shared.superstep_ends);
        ends.resize(ends.len().max(step as usize + 1), (Ns::MAX, 0));
        let (first, last) = ends[step as usize];
        ends[step as usize] = (first.min(now), last.max(now));
    }
    /// What was asked for then is answered.
    pub fn answered(&mut self, asked_ns: Ns) {
        self.host.shared.answer_ns.push(self.host.now - asked_ns);
    }
    /// Withdraws a receive; false if it has taken a message already.
    pub fn cancel(&mut self, receive: RecvId) -> bool {
        self.rank.cancel(self.host, receive)
    }
}

/// What a rank knows about a peer of its endpoint.
#[derive(Clone, Debug)]
struct Peer {
    program: Program,
    endpoint_id: u64,
    /// The messages know it by name.
    inserted: bool,
    down: Option<DownReason>,
    /// This rank has done with it.
    forgotten: bool,
    /// The association was established once.
    was_up: bool,
    /// Sends that there was no room for, in order.
    backlog: VecDeque<SendId>,
    /// Highest number of a bulk connection that it greeted with.
    bulk: u32,
}

impl Peer {
    fn new(program: Program, endpoint_id: u64) -> Peer {
        Peer {
            program,
            endpoint_id,
            inserted: false,
            down: None,
            forgotten: false,
            was_up: false,
            backlog: VecDeque::new(),
            bulk: 0,
        }
    }
}

/// Everything of a rank but its program.
pub struct Core {
    program: Program,
    endpoint_id: u64,
    level_gathers: bool,
    /// What it sends is ECN-capable.
    is_ect: bool,
    /// Sends up to so long may be complete before they have arrived.
    copy_bytes: u64,
    messages: Messages<Pattern, Steps>,
    peers: BTreeMap<PeerId, Peer>,
    by_program: BTreeMap<Program, PeerId>,
    sends: BTreeMap<SendId, Outgoing>,
    receives: BTreeMap<RecvId, Receive>,
    /// Of these, those that look and have not begun to receive.
    looks: BTreeSet<RecvId>,
    /// Those that take several messages, which are not among the receives.
    manies: Manies,
    parting: Parting,
    remote: BTreeMap<RemoteId, remote::Remote>,
    /// Remote operations that there was no room for.
    remote_backlog: VecDeque<RemoteId>,
    pieces: Pieces,
    next_remote: u64,
    next_send: u64,
    next_receive: u64,
    outcomes: VecDeque<Outcome>,
    buffer: PacketBuf,
    bulk_connections: BulkConnections,
    runs: u32,
    /// Some peer has a backlog.
    has_backlog: bool,
    closing: bool,
    /// When it chatters next, if it does.
    chatter_at: Option<Ns>,
    /// The packet before came marked.
    was_marked: bool,
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
        let mut config = shared.config.clone();
        if shared.has(Defect::HastyVerdict) {
            config.peer_timeout = std::time::Duration::from_millis(300);
        }
        // Never 0, which names whoever is at an address (spec 7).
        let life = if shared.has(Defect::LifeReused) { 0 } else { u64::from(incarnation) };
        let endpoint_id = mix(shared.seed ^ mix(u64::from(host) << 32 | life | 1 << 63)).max(1);
        let mut secret = [0; 32];
        for (i, chunk) in secret.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&mix(endpoint_id.wrapping_add(1 + i as u64)).to_le_bytes());
        }
        let addresses: Vec<SocketAddr> = (0..shared.networks).map(|n| address(host, n)).collect();
        let (level_gathers, is_ect) = (config.gather, config.ecn);
        let endpoint = Endpoint::new(config, shared.job_key, endpoint_id, &addresses, secret);
        shared.directory.enter(program, endpoint_id, endpoint.name());
        let mut settings = shared.messages.clone();
        if shared.has(Defect::PartsOutOfOrder) {
            settings.multi_order = MultiOrder::AsCompleted;
        }
        let mut messages = Messages::new(settings, endpoint, Steps::default());
        remote::register(shared, program, endpoint_id, &mut messages);
        let core = Core {
            program,
            endpoint_id,
            level_gathers,
            is_ect,
            copy_bytes: shared.messages.copy_bytes as u64,
            messages,
            peers: BTreeMap::new(),
            by_program: BTreeMap::new(),
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            looks: BTreeSet::new(),
            manies: Manies::new(shared.messages.multi_order == MultiOrder::AsSent),
            parting: Parting::default(),
            remote: BTreeMap::new(),
            remote_backlog: VecDeque::new(),
            pieces: Pieces::new(),
            next_remote: 0,
            next_send: 0,
            next_receive: 0,
            outcomes: VecDeque::new(),
            buffer: PacketBuf::new(),
            bulk_connections: BulkConnections::new(shared, endpoint_id),
            runs: 0,
            has_backlog: false,
            closing: false,
            chatter_at: None,
            was_marked: false,
        };
        shared.unfinished.insert(host);
        let app = shared.make_app(program);
        Rank { core, app, started: false, done: false }
    }

    /// Closes the endpoint; what was accepted is still delivered.
    pub fn close(&mut self, now: Ns) {
        self.core.closing = true;
        self.core.messages.endpoint_mut().close(Time(now));
    }

    /// Once more has done with those it has done with.
    pub fn forget_again(&mut self, now: Ns, shared: &Shared) {
        self.core.forget_again(now, shared);
    }

    /// Nothing unacknowledged is left after `close`.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.endpoint().is_drained()
    }

    /// Where the rank stands, for people.
    #[must_use]
    pub fn state(&self) -> String {
        let (c, endpoint) = (&self.core, self.endpoint());
        let [sends, receives, messages, rndvs] = c.messages.held();
        let mut s = format!(
            "{}: {} | sends open {sends} receives open {receives} messages in {messages} rendezvous transfers in {rndvs} next timeout {:?}",
            c.program,
            self.app.state(),
            endpoint.next_timeout()
        );
        for (id, p) in &c.peers {
            let stats = endpoint.peer_stats(*id);
            let quiet = stats.messages_open + stats.messages_waiting + stats.rndvs_open + stats.rndvs_in == 0;
            if quiet && stats.state == "up" {
                continue;
            }
            s += &format!(
                "\n    {} queued {} credit {:?} {stats:?}",
                p.program,
                endpoint.queued(*id),
                endpoint.credit(*id)
            );
        }
        s
    }

    /// The endpoint, to look at.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.core.messages.endpoint()
    }

    /// What its messages counted.
    #[must_use]
    pub fn counters(&self) -> &weir_message::Counters {
        self.core.messages.counters()
    }

    /// Checks that nothing is kept for peers that live once all work is done.
    ///
    /// # Errors
    /// What is left over.
    pub fn check_empty(&self, shared: &Shared) -> Result<(), String> {
        let c = &self.core;
        for (id, p) in c.peers.iter().filter(|(_, p)| p.down.is_none() && !shared.checks.liveness.is_dead(p.program)) {
            Memory::check_empty(c.program, p.program, &self.endpoint().peer_stats(*id))?;
        }
        let [sends, _, messages, rndvs] = c.messages.held();
        if sends + c.sends.len() + messages + rndvs + c.pieces.len() > 0 || c.messages.owes() {
            return Err(format!(
                "{} has done its work but keeps {sends} sends ({} not ended), {messages} messages, {rndvs} rendezvous transfers, {} half there; owes: {}",
                c.program,
                c.sends.len(),
                c.pieces.len(),
                c.messages.owes()
            ));
        }
        if let Some(program) = c.keeps_forgotten() {
            return Err(format!("{} has done with {program} and keeps its place", c.program));
        }
        let counters = c.messages.counters();
        let refused = if shared.checks.remote.wrong == 0 { counters.access_errors } else { 0 };
        let wrongs = (counters.malformed, counters.overruns, refused);
        if wrongs != (0, 0, 0) {
            return Err(format!("{} was told {wrongs:?} things that nobody says who keeps to the rules", c.program));
        }
        Ok(())
    }

    /// Packets sent to each peer that lives.
    #[must_use]
    pub fn packets_sent(&self, shared: &Shared) -> idle::Sent {
        let c = &self.core;
        let lives = |p: &Peer| p.down.is_none() && !p.forgotten && !shared.checks.liveness.is_dead(p.program);
        let sent = |id: PeerId| self.endpoint().peer_stats(id).counts.packets_sent;
        c.peers.iter().filter(|(_, p)| lives(p)).map(|(id, p)| ((c.program, p.program), sent(*id))).collect()
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
    fn transmit(&mut self, host: &mut Host<'_, Shared>) {
        self.messages.begin_transmit();
        let endpoint = self.messages.endpoint_mut();
        if endpoint.own_queue_follows() {
            endpoint.take_up(Time(host.now));
            host.set_own_queue(endpoint.own_queue_bytes(Time(host.now)));
        }
        while host.can_send() {
            let Some(t) = self.messages.poll_transmit(Time(host.now), &mut self.buffer) else {
                break;
            };
            self.put_on_wire(host, &t);
        }
    }

    /// Sends the packet in the buffer.
    fn put_on_wire(&mut self, host: &mut Host<'_, Shared>, t: &Transmit) {
        if t.payload.is_some() && !self.level_gathers {
            host.violation("gather", "a payload to gather although gathering is off");
        }
        let head = &self.buffer.head;
        let Some((to, net)) = place(t.remote).filter(|(to, _)| host.shared.directory.exists(*to)) else {
            host.note(12, || format!("no such address {}", t.remote));
            return;
        };
        let size = head.len() + t.payload.map_or(0, |p| usize::from(p.len));
        if size > host.shared.max_datagram {
            let limit = host.shared.max_datagram;
            host.violation("size", format!("{} sends a datagram of {size} bytes; the limit is {limit}", self.program));
        }
        let messages = &self.messages;
        let write = |b: &mut Vec<u8>| {
            b.extend_from_slice(head);
            if let Some(p) = t.payload {
                let at = b.len();
                b.resize(at + usize::from(p.len), 0);
                // What was given up meanwhile is never used.
                if let Some(source) = messages.payload(p.token) {
                    source.read(p.offset, &mut b[at..]);
                }
            }
        };
        if self.is_ect { host.send_ect(net, to, write) } else { host.send(net, to, write) }
    }

    /// Asks every peer whether it is there 200 times a second, if that is the planted defect.
    fn chatter(&mut self, host: &Host<'_, Shared>) {
        if !host.shared.has(Defect::NeverQuiet) || self.chatter_at.is_some_and(|at| host.now < at) {
            return;
        }
        self.chatter_at = Some(host.now + 5 * MS);
        for (id, p) in &self.peers {
            self.messages.endpoint_mut().ask_path(Time(host.now), *id, address(p.program.host, 0).ip());
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
                self.messages.endpoint().queued(*id),
                &self.messages.endpoint().peer_stats(*id),
            )
        {
            host.violation("memory", e);
        }
    }
}

impl Node for Rank {
    type Shared = Shared;

    fn receive(&mut self, host: &mut Host<'_, Shared>, meta: Received, data: &mut [u8]) {
        let core = &mut self.core;
        let mut ecn = meta.ecn;
        if host.shared.has(Defect::MarkTwice) && core.was_marked && ecn != NOT_ECT {
            ecn = CE;
        }
        core.was_marked = meta.ecn == CE;
        let meta = RxMeta {
            remote: address(meta.from, meta.net),
            local: Some(address(host.id, meta.net).ip()),
            receiver_delay_ns: u32::try_from(meta.receiver_delay_ns).unwrap_or(u32::MAX),
            ecn,
        };
        core.messages.datagram(Time(host.now), meta, data);
        core.settle(host);
    }

    fn run(&mut self, host: &mut Host<'_, Shared>) {
        let now = Time(host.now);
        self.core.read_bulk_connections(host);
        let forgets = host.shared.has(Defect::TimersForgotten);
        if self.core.messages.next_timeout().is_some_and(|t| t <= now) && !forgets {
            self.core.messages.timeouts(now);
            self.core.settle(host);
        }
        self.core.push_backlog(host);
        self.core.push_remote_backlog(host);
        self.core.push_looks(host);
        if self.core.parting.is_leaving() {
            self.core.outcomes.clear();
            self.core.push_leaving(host);
        } else {
            self.core.push_heirs(host);
            self.run_app(host);
        }
        self.core.push_dropped(host);
        self.core.chatter(host);
        self.core.transmit(host);
        self.core.write_bulk_connections(host);
        self.core.look_at_memory(host);
    }

    fn next_wake(&self) -> Option<Ns> {
        let protocol = self.core.messages.next_timeout().map(|t| t.0);
        // Who had nothing left to do for a moment, as a server has, may be asked again.
        let app = if self.core.parting.is_leaving() { None } else { self.app.next_wake() };
        let queued = (!self.core.outcomes.is_empty() || self.core.has_claims()).then_some(0);
        let leaving = self.core.parting.next_wake();
        [
            protocol,
            app,
            queued,
            leaving,
            self.core.bulk_connections.next_wake(self.core.messages.endpoint()),
            self.core.chatter_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn leave(&mut self, host: &mut Host<'_, Shared>) {
        self.core.leave(host);
    }

    fn has_left(&self) -> bool {
        self.core.parting.has_left()
    }

    fn crashed(&mut self, shared: &mut Shared, now: Ns) {
        shared.crashed(self.core.program, now);
    }
}
