//! The world: hosts that run nodes, the networks between them, and the faults that befall both.

use std::collections::VecDeque;

use crate::log::{Drop, Log, Note};
use crate::net::{Net, NetCounters};
use crate::queue::{ECT_0, NOT_ECT, PacketIx, Packets, Queue, What};
use crate::spec::{Fault, HostId, NetId, NetSpec, Ns};
use crate::tcp::{Around, Arrived, Broken, Socket, Tcp, TcpCounters};

/// Runs of one host without a packet read or sent, one after another, before the node is called a
/// spinner.
const EMPTY_RUNS_MAX: u32 = 10_000;
/// Least time between two runs of a host: what its loop itself costs.
const LOOP_NS: Ns = 100;

/// A broken promise: what a checker found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which promise: one word, stable, by which two runs are compared.
    pub kind: &'static str,
    /// What happened.
    pub detail: String,
    /// When.
    pub at_ns: Ns,
}

/// Circumstances of a datagram that a node reads.
#[derive(Copy, Clone, Debug)]
pub struct Received {
    /// The network it came by.
    pub net: NetId,
    /// Who sent it.
    pub from: HostId,
    /// How long before this reading the host had last looked at its socket.
    pub receiver_delay_ns: Ns,
    /// ECN bits (RFC 3168).
    pub ecn: u8,
}

/// A program on a host.
pub trait Node {
    /// What all nodes of a world see: directories, checkers, results.
    type Shared;
    /// Takes a datagram from the socket.
    fn receive(&mut self, host: &mut Host<'_, Self::Shared>, meta: Received, data: &mut [u8]);
    /// Does what is due: timers, the application, sending.
    fn run(&mut self, host: &mut Host<'_, Self::Shared>);
    /// When to run next even if nothing arrives.
    fn next_wake(&self) -> Option<Ns>;
    /// The node is to end in order.
    fn leave(&mut self, _host: &mut Host<'_, Self::Shared>) {}
    /// It has ended: its host takes it off.
    fn has_left(&self) -> bool {
        false
    }
    /// The node dies: word to whoever keeps the books, not to the node's peers.
    fn crashed(&mut self, _shared: &mut Self::Shared, _now: Ns) {}
}

/// What a node may do with its host.
pub struct Host<'a, S> {
    /// Virtual time now.
    pub now: Ns,
    /// This host.
    pub id: HostId,
    /// Incarnations of this host before this one.
    pub incarnation: u32,
    /// What all nodes share.
    pub shared: &'a mut S,
    net: &'a mut Net,
    tcp: &'a mut Tcp,
    packets: &'a mut Packets,
    queue: &'a mut Queue,
    log: &'a mut Log,
    tx_cost_ns: Ns,
    spent_ns: Ns,
    sent: u32,
    violation: &'a mut Option<Violation>,
}

impl<S> Host<'_, S> {
    /// The interfaces take another packet. If not, the host runs again when they do.
    #[must_use]
    pub fn can_send(&self) -> bool {
        self.blocked_until(false).is_none()
    }

    /// What waits in its interfaces, at most.
    pub fn set_own_queue(&mut self, bytes: Option<u64>) {
        self.net.set_own_queue(self.id, bytes);
    }

    fn blocked_until(&self, half: bool) -> Option<Ns> {
        (0..self.net.networks())
            .filter_map(|n| self.net.nic_room_at(n as NetId, self.id, self.now + self.spent_ns, half))
            .max()
    }

    /// Sends a datagram to `to` by network `net`; `write` appends its bytes to an empty buffer.
    pub fn send(&mut self, net: NetId, to: HostId, write: impl FnOnce(&mut Vec<u8>)) {
        self.send_as(net, to, NOT_ECT, write);
    }

    /// The same, ECN-capable: switches that mark may mark it.
    pub fn send_ect(&mut self, net: NetId, to: HostId, write: impl FnOnce(&mut Vec<u8>)) {
        self.send_as(net, to, ECT_0, write);
    }

    fn send_as(&mut self, net: NetId, to: HostId, ecn: u8, write: impl FnOnce(&mut Vec<u8>)) {
        if usize::from(net) >= self.net.networks() {
            return;
        }
        let packet = self.packets.add(net, self.id, to);
        self.packets.get_mut(packet).ecn = ecn;
        write(&mut self.packets.get_mut(packet).data);
        self.spent_ns += self.tx_cost_ns;
        self.sent += 1;
        self.net.send(self.now + self.spent_ns, packet, self.packets, self.queue, self.log);
    }

    /// Makes a TCP connection to `to` by network `net`. The host runs when it stands or fails.
    pub fn connect(&mut self, net: NetId, to: HostId) -> Socket {
        let id = self.id;
        self.with_tcp(true, |tcp, around| tcp.connect(around, net, id, to))
    }

    /// [`Host::accept`] would have one.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.tcp.is_waited_for(self.id)
    }

    /// The next connection that another host has made to this one.
    pub fn accept(&mut self) -> Option<Socket> {
        let s = self.tcp.accept(self.id)?;
        self.sent += 1;
        Some(s)
    }

    /// Whether a connection stands.
    ///
    /// # Errors
    /// It was refused, or has broken.
    pub fn is_connected(&self, s: Socket) -> Result<bool, Broken> {
        self.tcp.is_connected(s)
    }

    /// Bytes that a write would take; if none, the host runs when there is room.
    ///
    /// # Errors
    /// The connection has broken.
    pub fn tcp_room(&mut self, s: Socket) -> Result<usize, Broken> {
        self.tcp.room(s)
    }

    /// Writes as much as there is room for and says how much; if that is not all, the host runs
    /// when there is room.
    ///
    /// # Errors
    /// The connection has broken.
    pub fn tcp_write(&mut self, s: Socket, bytes: &[u8]) -> Result<usize, Broken> {
        self.with_tcp(!bytes.is_empty(), |tcp, around| tcp.write(around, s, bytes))
    }

    /// Reads what has come. The host runs when there is more.
    ///
    /// # Errors
    /// The connection has broken, and what had come before was read.
    pub fn tcp_read(&mut self, s: Socket, dst: &mut [u8]) -> Result<Arrived, Broken> {
        let arrived = self.with_tcp(false, |tcp, around| tcp.read(around, s, dst))?;
        if arrived != Arrived::Bytes(0) {
            self.spent_ns += self.tx_cost_ns;
            self.sent += 1;
        }
        Ok(arrived)
    }

    /// Segments of what was written that had to be sent again.
    #[must_use]
    pub fn tcp_lost(&self, s: Socket) -> u32 {
        self.tcp.lost_segments(s)
    }

    /// The host at the other side of a connection, and the network between.
    pub fn tcp_remote(&self, s: Socket) -> Option<(HostId, NetId)> {
        self.tcp.remote(s)
    }

    /// Lets go of a connection: the other side reads what was written, then its end, or a reset if
    /// anything was left unread here.
    pub fn tcp_close(&mut self, s: Socket) {
        self.with_tcp(true, |tcp, around| tcp.close(around, s));
    }

    fn with_tcp<R>(&mut self, moves: bool, act: impl FnOnce(&mut Tcp, &mut Around<'_>) -> R) -> R {
        if moves {
            self.spent_ns += self.tx_cost_ns;
            self.sent += 1;
        }
        let now = self.now + self.spent_ns;
        act(self.tcp, &mut Around { now, net: self.net, queue: self.queue, log: self.log })
    }

    /// Notes an event in the log: `word` goes into the hash of the run, `text` is made only if
    /// someone looks.
    pub fn note(&mut self, word: u64, text: impl FnOnce() -> String) {
        self.log.note(self.now, word, text);
    }

    /// Reports a broken promise; the run ends after this event. Only the first is kept.
    pub fn violation(&mut self, kind: &'static str, detail: impl Into<String>) {
        self.violation.get_or_insert_with(|| Violation { kind, detail: detail.into(), at_ns: self.now });
    }
}

/// State of one host.
#[derive(Debug)]
struct Seat<N> {
    /// Boxed: it moves out and in at each run.
    node: Option<Box<N>>,
    incarnation: u32,
    /// Arrival times go with the packets, for the receiver delay.
    socket: VecDeque<(Ns, PacketIx)>,
    socket_bytes: u64,
    last_look: Ns,
    /// The socket was empty at the last look and the host waits.
    waiting: bool,
    busy_until: Ns,
    stalled_until: Ns,
    /// The earliest run scheduled.
    run_at: Option<Ns>,
    empty_runs: u32,
    /// It has been asked to end.
    leaving: bool,
}

/// A network of hosts in virtual time.
pub struct World<N: Node> {
    spec: NetSpec,
    now: Ns,
    queue: Queue,
    packets: Packets,
    net: Net,
    tcp: Tcp,
    seats: Vec<Seat<N>>,
    /// What all nodes see.
    pub shared: N::Shared,
    /// What happened.
    pub log: Log,
    violation: Option<Violation>,
    make: fn(&mut N::Shared, HostId, u32) -> N,
}

impl<N: Node> World<N> {
    /// Builds the network and starts a node on each host; `make` makes one for a host and its
    /// incarnation.
    pub fn new(
        spec: NetSpec,
        seed: u64,
        mut shared: N::Shared,
        log: Log,
        make: fn(&mut N::Shared, HostId, u32) -> N,
    ) -> Self {
        let net = Net::new(&spec, seed);
        let mut queue = Queue::default();
        for (i, f) in spec.faults.iter().enumerate() {
            queue.push(f.at_ns, What::Fault { index: i as u32 });
        }
        let seats = (0..spec.hosts)
            .map(|host| {
                queue.push(0, What::Run { host });
                Seat {
                    node: Some(Box::new(make(&mut shared, host, 0))),
                    incarnation: 0,
                    socket: VecDeque::new(),
                    socket_bytes: 0,
                    last_look: 0,
                    waiting: true,
                    busy_until: 0,
                    stalled_until: 0,
                    run_at: Some(0),
                    empty_runs: 0,
                    leaving: false,
                }
            })
            .collect();
        let tcp = Tcp::new(&spec.host.tcp, spec.hosts, spec.networks.len(), seed);
        World { spec, now: 0, queue, packets: Packets::default(), net, tcp, seats, shared, log, violation: None, make }
    }

    /// Virtual time now.
    #[must_use]
    pub fn now(&self) -> Ns {
        self.now
    }

    /// What the network did so far.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        self.net.counters()
    }

    /// The longest any output queue of a switch has been in each second so far, packets.
    #[must_use]
    pub fn deepest_queues(&self) -> &[u64] {
        &self.net.deepest
    }

    /// What TCP connections came to so far.
    #[must_use]
    pub fn tcp_counters(&self) -> TcpCounters {
        self.tcp.counters
    }

    /// TCP connections that a program holds.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.tcp.live()
    }

    /// Datagrams on the wire or in socket buffers.
    #[must_use]
    pub fn packets_live(&self) -> usize {
        self.packets.live()
    }

    /// The node on a host, `None` while it is down.
    #[must_use]
    pub fn node(&self, host: HostId) -> Option<&N> {
        self.seats[host as usize].node.as_deref()
    }

    /// Takes a node off its host, as a crash does.
    pub fn take_node(&mut self, host: HostId) -> Option<N> {
        self.crash(host);
        self.seats[host as usize].node.take().map(|n| *n)
    }

    /// The first broken promise.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Reports a broken promise found from outside.
    pub fn violate(&mut self, kind: &'static str, detail: String) {
        let at_ns = self.now;
        self.violation.get_or_insert(Violation { kind, detail, at_ns });
    }

    /// Runs until `done` says so (asked after each run of a host), a promise is broken, or `until`
    /// has come. True if `done`.
    pub fn run_until(&mut self, until: Ns, mut done: impl FnMut(&N::Shared) -> bool) -> bool {
        while let Some((at, what)) = self.queue.pop(until) {
            debug_assert!(at >= self.now, "time runs backwards");
            self.now = at;
            match what {
                What::AtMedium { packet } => {
                    self.net.at_medium(at, packet, &mut self.packets, &mut self.queue, &mut self.log);
                }
                What::Medium { net } => {
                    self.net.leave_medium(at, net, &mut self.packets, &mut self.queue, &mut self.log);
                }
                What::AtSwitch { packet, switch } => {
                    self.net.at_switch(at, packet, switch, &mut self.packets, &mut self.queue, &mut self.log);
                }
                What::AtHost { packet } => self.at_host(packet),
                What::Tcp { conn } => {
                    let World { tcp, net, queue, log, .. } = self;
                    tcp.fire(&mut Around { now: at, net, queue, log }, conn);
                    self.wake_for_tcp();
                }
                What::Fault { index } => self.befall(self.spec.faults[index as usize].fault),
                What::Run { host } => {
                    self.run_host(host);
                    if self.violation.is_some() {
                        return false;
                    }
                    if done(&self.shared) {
                        return true;
                    }
                }
            }
        }
        self.now = self.now.max(until.min(self.queue.next_ns().unwrap_or(until)));
        false
    }

    /// Lets a node act as if its host ran, for tests and for orders from outside.
    pub fn with_node<R>(&mut self, host: HostId, f: impl FnOnce(&mut N, &mut Host<'_, N::Shared>) -> R) -> Option<R> {
        let mut node = self.seats[host as usize].node.take()?;
        let r = f(&mut node, &mut self.host(host, self.now));
        self.seats[host as usize].node = Some(node);
        self.schedule(host, self.now);
        Some(r)
    }

    fn host(&mut self, id: HostId, now: Ns) -> Host<'_, N::Shared> {
        Host {
            now,
            id,
            incarnation: self.seats[id as usize].incarnation,
            shared: &mut self.shared,
            net: &mut self.net,
            tcp: &mut self.tcp,
            packets: &mut self.packets,
            queue: &mut self.queue,
            log: &mut self.log,
            tx_cost_ns: self.spec.host.tx_cost_ns,
            spent_ns: 0,
            sent: 0,
            violation: &mut self.violation,
        }
    }

    fn at_host(&mut self, packet: PacketIx) {
        let (to, len) = {
            let p = self.packets.get(packet);
            (p.to, p.data.len() as u64)
        };
        let size = len + self.spec.host.rx_overhead_bytes;
        let seat = &mut self.seats[to as usize];
        let drop = if !self.net.arrive(self.packets.get(packet)) {
            Some(Drop::Cut)
        } else if seat.node.is_none() {
            self.net.counters.nobody += 1;
            Some(Drop::Nobody)
        } else if seat.socket_bytes + size > self.spec.host.rx_buffer_bytes {
            self.net.counters.socket_full += 1;
            Some(Drop::SocketFull)
        } else {
            None
        };
        let note = drop.map_or(Note::Arrive, Note::Dropped);
        self.log.packet(self.now, note, self.packets.get(packet));
        if drop.is_some() {
            self.packets.release(packet);
            return;
        }
        self.net.counters.delivered += 1;
        seat.socket.push_back((self.now, packet));
        seat.socket_bytes += size;
        if seat.waiting {
            // The host looked all the time until something came.
            seat.waiting = false;
            seat.last_look = self.now;
        }
        self.schedule(to, self.now + self.spec.host.wake_ns);
    }

    /// Makes sure that the host runs at `at` at the latest, or as soon after that as it can.
    fn schedule(&mut self, host: HostId, at: Ns) {
        let seat = &mut self.seats[host as usize];
        let at = at.max(seat.busy_until).max(seat.stalled_until).max(self.now);
        if seat.run_at.is_none_or(|r| r > at) {
            seat.run_at = Some(at);
            self.queue.push(at, What::Run { host });
        }
    }

    fn run_host(&mut self, id: HostId) {
        let seat = &mut self.seats[id as usize];
        // An event that an earlier one has overtaken: the host has run meanwhile, and has a later
        // one if it needs it.
        if seat.run_at != Some(self.now) {
            return;
        }
        seat.run_at = None;
        if seat.node.is_none() {
            return;
        }
        let free = seat.busy_until.max(seat.stalled_until);
        if free > self.now {
            return self.schedule(id, free);
        }
        let Some(mut node) = seat.node.take() else {
            return;
        };
        let now = self.now;
        let (read, spent, sent, blocked) = self.serve(id, &mut node, now);
        let wake = node.next_wake();
        let has_left = node.has_left();
        let seat = &mut self.seats[id as usize];
        seat.node = Some(node);
        if has_left {
            return self.end_node(id, true);
        }
        seat.busy_until = now + spent + LOOP_NS;
        let more = !seat.socket.is_empty();
        seat.waiting = !more;
        seat.empty_runs = if read > 0 || sent > 0 { 0 } else { seat.empty_runs + 1 };
        if seat.empty_runs > EMPTY_RUNS_MAX {
            let detail = format!(
                "host {id} asked to run {EMPTY_RUNS_MAX} times and neither read nor sent a packet; it wants to run at {wake:?}"
            );
            return self.violate("spin", detail);
        }
        if more {
            self.schedule(id, now);
        }
        // Who waits for a full interface has work due at once, but nothing to gain by trying before
        // there is room.
        let wake = wake.filter(|at| blocked.is_none() || *at > now);
        if let Some(at) = [wake, blocked].into_iter().flatten().min() {
            self.schedule(id, at);
        }
    }

    /// Reads and runs once. Returns datagrams read, time spent, datagrams sent, and when a full
    /// interface has room.
    fn serve(&mut self, id: HostId, node: &mut N, now: Ns) -> (u32, Ns, u32, Option<Ns>) {
        let host_spec = self.spec.host.clone();
        let mut read = 0;
        let last_look = std::mem::replace(&mut self.seats[id as usize].last_look, now);
        let mut sent = 0;
        while read < host_spec.batch {
            let seat = &mut self.seats[id as usize];
            let Some((_, packet)) = seat.socket.pop_front() else {
                break;
            };
            let p = self.packets.get_mut(packet);
            seat.socket_bytes -= p.data.len() as u64 + host_spec.rx_overhead_bytes;
            let mut data = std::mem::take(&mut p.data);
            let meta =
                Received { net: p.net, from: p.from, receiver_delay_ns: now.saturating_sub(last_look), ecn: p.ecn };
            read += 1;
            let mut host = self.host(id, now);
            node.receive(&mut host, meta, &mut data);
            sent += host.sent;
            self.packets.get_mut(packet).data = data;
            self.packets.release(packet);
        }
        let mut host = self.host(id, now);
        host.spent_ns = u64::from(read) * host_spec.rx_cost_ns;
        node.run(&mut host);
        sent += host.sent;
        let blocked = if host.can_send() { None } else { host.blocked_until(true) };
        (read, host.spent_ns, sent, blocked)
    }

    fn crash(&mut self, host: HostId) {
        let seat = &mut self.seats[host as usize];
        for (_, packet) in seat.socket.drain(..) {
            self.packets.release(packet);
        }
        seat.socket_bytes = 0;
    }

    /// A host's node is no more; `quiet`: its host goes on.
    fn end_node(&mut self, host: HostId, quiet: bool) {
        self.crash(host);
        self.seats[host as usize].leaving = false;
        if let Some(mut node) = self.seats[host as usize].node.take() {
            node.crashed(&mut self.shared, self.now);
            let World { tcp, net, queue, log, now, .. } = self;
            tcp.crash(&mut Around { now: *now, net, queue, log }, host, quiet);
            self.wake_for_tcp();
        }
    }

    /// Wakes those for whom something of a connection has come.
    fn wake_for_tcp(&mut self) {
        while let Some(host) = self.tcp.wakes.pop() {
            self.schedule(host, self.now + self.spec.host.wake_ns);
        }
    }

    fn befall(&mut self, fault: Fault) {
        self.log.fault(self.now, fault);
        let known = |h: HostId| (h as usize) < self.seats.len();
        match fault {
            Fault::Cut { host, net, direction } => self.net.set_cut(net, host, direction, true),
            Fault::Heal { host, net, direction } => self.net.set_cut(net, host, direction, false),
            Fault::Mtu { net, bytes } => self.net.set_mtu(net, bytes),
            Fault::Stall { host, until_ns } if known(host) => {
                let seat = &mut self.seats[host as usize];
                seat.stalled_until = seat.stalled_until.max(until_ns);
            }
            Fault::Dark { host, net, until_ns } => self.net.set_dark(net, host, until_ns),
            Fault::Sever { host } => {
                let World { tcp, net, queue, log, now, .. } = self;
                tcp.sever(&mut Around { now: *now, net, queue, log }, host);
                self.wake_for_tcp();
            }
            Fault::Crash { host } if known(host) => self.end_node(host, false),
            Fault::Leave { host } if known(host) => {
                self.with_node(host, |node, host| node.leave(host));
                self.seats[host as usize].leaving = true;
            }
            Fault::Restart { host }
                if known(host) && (self.seats[host as usize].leaving || self.seats[host as usize].node.is_none()) =>
            {
                self.end_node(host, true);
                let seat = &mut self.seats[host as usize];
                seat.incarnation += 1;
                seat.waiting = true;
                seat.last_look = self.now;
                self.tcp.restart(host);
                seat.node = Some(Box::new((self.make)(&mut self.shared, host, seat.incarnation)));
                self.schedule(host, self.now);
            }
            Fault::Stall { .. } | Fault::Crash { .. } | Fault::Leave { .. } | Fault::Restart { .. } => {}
        }
    }
}
