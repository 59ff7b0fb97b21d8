//! Stars of pipes, and buses: who is connected to whom, and the queue of events between them.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_net::{Collisions, Events, Harm, Medium, Offer, Passed, PipeSpec, Switch, TimeNs};

/// One direction of one link, with its generator.
pub type Pipe = weir_net::Pipe<Pcg64Mcg>;

/// A host's interface on one network, numbered by the caller from 0.
pub type PortId = usize;

/// The caller's name for a packet it holds; the fabric never looks into packets.
pub type Handle = u32;

/// Where a packet is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one port. A port of another network, or the sender itself, is unreachable.
    Port(PortId),
    /// To all other ports of the network.
    Flood,
}

/// Damage the data plane must do to a packet before it delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// Flip one bit; the number chooses which.
    FlipBit(u64),
    /// Exchange two aligned 16-bit words of the payload; the number chooses which.
    SwapWords(u64),
}

impl Corruption {
    fn draw(harm: Harm, rng: &mut Pcg64Mcg) -> Self {
        match harm {
            Harm::Seen => Corruption::FlipBit(rng.next_u64()),
            Harm::Hidden => Corruption::SwapWords(rng.next_u64()),
        }
    }
}

/// What the fabric asks of the owner of the packets. Every handle given to [`Fabric::ingress`]
/// counts one reference.
pub trait Sink {
    /// Take one more reference to the packet.
    fn retain(&mut self, handle: Handle);
    /// Drop one reference to the packet.
    fn release(&mut self, handle: Handle);
    /// Mark the packet, if it is ECN-capable: its queue is long. Returns the packet to go on with,
    /// for others may hold the unmarked one too, and whether it is one that bears the mark.
    fn mark(&mut self, handle: Handle) -> (Handle, bool);
    /// Hand the packet, due at `at_ns`, to the host at `port` and drop one reference.
    fn send(&mut self, at_ns: TimeNs, port: PortId, handle: Handle, corruption: Option<Corruption>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Comes to the sender's queue for the medium.
    Bus(Destination),
    /// Leaves the sender's wire, or the medium, and enters the switch.
    Switch(Destination),
    /// Leaves the receiver's wire.
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    port: PortId,
    stage: Stage,
    handle: Handle,
    len: u32,
    epoch: u32,
    corruption: Option<Corruption>,
}

/// What waits for a medium: whose it is and where it goes.
type Bus = Medium<Pcg64Mcg, (PortId, Destination, Handle)>;

/// What a host sends by.
#[derive(Debug)]
enum Up {
    Own(Box<Pipe>),
    /// The medium of its network, as this station.
    Shared(usize),
}

#[derive(Debug)]
struct Port {
    network: usize,
    up: Up,
    /// The number of its output among those of its network's switch.
    output: usize,
}

/// All networks, all ports, and every packet in flight.
#[derive(Debug, Default)]
pub struct Fabric {
    ports: Vec<Port>,
    /// By network.
    switches: Vec<Switch<Pcg64Mcg>>,
    /// By network, of those that have one.
    buses: BTreeMap<usize, Bus>,
    events: Events<Event>,
    /// For each event, when at the latest to look at it, and its own time; stale once that has
    /// passed.
    deadlines: BinaryHeap<Reverse<(TimeNs, TimeNs)>>,
    now_ns: TimeNs,
    unreachable: u64,
}

impl Fabric {
    /// A fabric without ports.
    pub fn new() -> Self {
        Fabric::default()
    }

    /// The ports that a network gets from now on share one medium: what one sends occupies it for
    /// all of them, and reaches the switch with no more than the delay of its pipe. Their queues
    /// for it are those of their pipes up.
    pub fn make_bus(&mut self, network: usize) {
        self.buses.entry(network).or_default();
    }

    /// The same where the ports collide and back off.
    pub fn make_colliding_bus(&mut self, network: usize) {
        self.buses.entry(network).or_insert_with(|| Bus::with_collisions(Collisions::default()));
    }

    /// Adds a port to a network. `seed` is spread over the two pipes, and over ports by their
    /// number.
    pub fn add_port(&mut self, network: usize, up: PipeSpec, down: PipeSpec, seed: u64) -> PortId {
        let port = self.ports.len();
        let base = seed ^ (port as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pipe = |spec, seed| Pipe::new(spec, Pcg64Mcg::seed_from_u64(seed));
        while self.switches.len() <= network {
            self.switches.push(Switch::new(Vec::new(), None));
        }
        let outputs = self.switches[network].ports_mut();
        let up = pipe(up, base);
        let up = match self.buses.get_mut(&network) {
            Some(bus) => Up::Shared(bus.add(up)),
            None => Up::Own(Box::new(up)),
        };
        self.ports.push(Port { network, up, output: outputs.len() });
        outputs.push(pipe(down, base.rotate_left(32) ^ 0x5851_f42d_4c95_7f2d));
        port
    }

    /// The pipe from the host to the switch. Panics if there is no such port.
    pub fn up(&mut self, port: PortId) -> &mut Pipe {
        let Port { network, up, .. } = &mut self.ports[port];
        Self::pipe_up(&mut self.buses, *network, up)
    }

    fn pipe_up<'a>(buses: &'a mut BTreeMap<usize, Bus>, network: usize, up: &'a mut Up) -> &'a mut Pipe {
        match up {
            Up::Own(pipe) => pipe,
            // A port shares only what its network has.
            Up::Shared(station) => buses.entry(network).or_default().pipe_mut(*station),
        }
    }

    /// The pipe from the switch to the host. Panics if there is no such port.
    pub fn down(&mut self, port: PortId) -> &mut Pipe {
        let Port { network, output, .. } = self.ports[port];
        &mut self.switches[network].ports_mut()[output]
    }

    /// Packets for nobody: an unknown address, another network, or the sender itself.
    pub fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// Counts a packet for an address that no port has.
    pub fn count_unreachable(&mut self) {
        self.unreachable += 1;
    }

    /// Packets in flight or queued.
    pub fn in_flight(&self) -> usize {
        self.events.len() + self.buses.values().map(Bus::len).sum::<usize>()
    }

    /// The time of the next event, if any.
    pub fn next_ns(&self) -> Option<TimeNs> {
        let medium_ns = self.next_free().map(|next| next.0);
        self.events.next_ns().into_iter().chain(medium_ns).min()
    }

    /// When the next packet leaves a medium, and of which network.
    fn next_free(&self) -> Option<(TimeNs, usize)> {
        self.buses.iter().filter_map(|(network, bus)| Some((bus.next_ns()?, *network))).min()
    }

    /// When [`Fabric::advance`] must be called next so that nothing is sent late. Later than
    /// [`Fabric::next_ns`] if the next events only move packets from one pipe to another.
    pub fn deadline_ns(&self) -> Option<TimeNs> {
        let medium_ns = self.next_free().map(|next| next.0);
        self.deadlines.peek().map(|deadline| deadline.0.0).into_iter().chain(medium_ns).min()
    }

    /// The least time that any packet takes from host to host.
    pub fn least_transit_ns(&self) -> TimeNs {
        const SMALLEST_BYTES: u64 = 42;
        let least = |pipe: &Pipe| pipe.spec().least_ns(SMALLEST_BYTES);
        let pipe_up = |p: &Port| match &p.up {
            Up::Own(pipe) => least(pipe),
            Up::Shared(station) => self.buses.get(&p.network).map_or(0, |bus| least(bus.pipe(*station))),
        };
        let up = self.ports.iter().map(pipe_up).min().unwrap_or(0);
        up.saturating_add(self.switches.iter().flat_map(|s| s.ports()).map(least).min().unwrap_or(0))
    }

    /// A host sends a packet. A time before that of the last call is taken as that time.
    pub fn ingress<S: Sink>(
        &mut self,
        at_ns: TimeNs,
        port: PortId,
        to: Destination,
        len: u32,
        handle: Handle,
        sink: &mut S,
    ) {
        self.now_ns = self.now_ns.max(at_ns);
        let now_ns = self.now_ns;
        if matches!(self.ports[port].up, Up::Shared(_)) {
            // The medium must have come to this time before.
            let stage = Stage::Bus(to);
            return self.schedule(now_ns, Event { port, stage, handle, len, epoch: 0, corruption: None });
        }
        let up = self.up(port);
        let (epoch, offer) = (up.epoch(), up.offer(now_ns, len, Corruption::draw));
        let intact = Event { port, stage: Stage::Switch(to), handle, len, epoch, corruption: None };
        self.follow(offer, intact, sink);
    }

    /// Lets everything happen that is due at or before `now_ns`, in order of time.
    pub fn advance<S: Sink>(&mut self, now_ns: TimeNs, sink: &mut S) {
        loop {
            if let Some((at_ns, network)) = self.next_free().filter(|next| next.0 <= now_ns)
                && self.events.next_ns().is_none_or(|event_ns| at_ns <= event_ns)
            {
                self.leave_bus(at_ns, network, sink);
                continue;
            }
            let Some((at_ns, event)) = self.events.pop(now_ns) else { break };
            match event.stage {
                Stage::Bus(to) => self.at_bus(at_ns, event, to, sink),
                Stage::Switch(to) => self.at_switch(at_ns, event, to, sink),
                Stage::Host => {
                    if self.down(event.port).arrive(event.epoch, event.len) {
                        sink.send(at_ns, event.port, event.handle, event.corruption);
                    } else {
                        sink.release(event.handle);
                    }
                }
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
        while self.deadlines.peek().is_some_and(|deadline| deadline.0.1 <= self.now_ns) {
            self.deadlines.pop();
        }
    }

    /// Gives every packet in flight back to its owner.
    pub fn clear<S: Sink>(&mut self, sink: &mut S) {
        self.deadlines.clear();
        for event in self.events.drain() {
            sink.release(event.handle);
        }
        for (_, _, handle) in self.buses.values_mut().flat_map(Bus::drain) {
            sink.release(handle);
        }
    }

    /// A packet comes to its sender's queue for the medium.
    fn at_bus<S: Sink>(&mut self, at_ns: TimeNs, event: Event, to: Destination, sink: &mut S) {
        let Port { network, up: Up::Shared(station), .. } = self.ports[event.port] else { return };
        let item = (event.port, to, event.handle);
        let refused = self.buses.get_mut(&network).and_then(|bus| bus.offer(at_ns, station, event.len, item).err());
        if refused.is_some() {
            sink.release(event.handle);
        }
    }

    /// A packet leaves the medium of a network.
    fn leave_bus<S: Sink>(&mut self, now_ns: TimeNs, network: usize, sink: &mut S) {
        let Some(bus) = self.buses.get_mut(&network) else { return };
        // Of a medium with collisions it may be a collision, which gives nothing yet.
        let Some(Passed { item: (port, to, handle), bytes: len, offer, station }) =
            bus.pop(now_ns, |harm, _, rng| Corruption::draw(harm, rng))
        else {
            return;
        };
        let epoch = bus.pipe(station).epoch();
        let intact = Event { port, stage: Stage::Switch(to), handle, len, epoch, corruption: None };
        self.follow(offer, intact, sink);
    }

    fn at_switch<S: Sink>(&mut self, at_ns: TimeNs, event: Event, to: Destination, sink: &mut S) {
        if !self.up(event.port).arrive(event.epoch, event.len) {
            sink.release(event.handle);
            return;
        }
        let network = self.ports[event.port].network;
        match to {
            Destination::Port(out) => {
                if out == event.port || self.ports.get(out).is_none_or(|p| p.network != network) {
                    self.unreachable += 1;
                    sink.release(event.handle);
                } else {
                    self.leave_switch(at_ns, out, event, sink);
                }
            }
            Destination::Flood => {
                for out in 0..self.ports.len() {
                    if out != event.port && self.ports[out].network == network {
                        sink.retain(event.handle);
                        self.leave_switch(at_ns, out, event, sink);
                    }
                }
                sink.release(event.handle);
            }
        }
    }

    /// Offers a packet to the pipe from the switch to the host at `out`, and schedules what comes
    /// out of it; `event` is the packet as it came to the switch.
    fn leave_switch<S: Sink>(&mut self, now_ns: TimeNs, out: PortId, event: Event, sink: &mut S) {
        let Port { network, output, .. } = self.ports[out];
        let switch = &mut self.switches[network];
        let epoch = switch.ports()[output].epoch();
        let offer = switch.offer(output, now_ns, event.len, Corruption::draw);
        self.follow(offer, Event { port: out, stage: Stage::Host, epoch, ..event }, sink);
    }

    /// Schedules what comes out of a pipe; `event` is the packet as it went in.
    fn follow<S: Sink>(&mut self, offer: Offer<Corruption>, event: Event, sink: &mut S) {
        let Event { port, stage, handle, corruption: before, .. } = event;
        let Offer::Deliver { at_ns, copy_at_ns, damage, marked, .. } = offer else { return sink.release(handle) };
        let handle = if marked { self.mark(port, stage, handle, sink) } else { handle };
        let intact = Event { handle, ..event };
        if let Some(copy_at_ns) = copy_at_ns {
            sink.retain(handle);
            self.schedule(copy_at_ns, intact);
        }
        self.schedule(at_ns, Event { corruption: damage.or(before), ..intact });
    }

    fn mark<S: Sink>(&mut self, port: PortId, stage: Stage, handle: Handle, sink: &mut S) -> Handle {
        let (handle, is_marked) = sink.mark(handle);
        if is_marked {
            let pipe = if stage == Stage::Host { self.down(port) } else { self.up(port) };
            pipe.count_marked();
        }
        handle
    }

    fn schedule(&mut self, at_ns: TimeNs, event: Event) {
        let onwards_ns = match event.stage {
            Stage::Switch(Destination::Port(out)) => {
                let out = self.ports.get(out).map(|p| &self.switches[p.network].ports()[p.output]);
                out.map_or(0, |pipe| pipe.spec().least_ns(u64::from(event.len)))
            }
            Stage::Bus(_) | Stage::Switch(Destination::Flood) | Stage::Host => 0,
        };
        self.deadlines.push(Reverse((at_ns.saturating_add(onwards_ns), at_ns)));
        self.events.push(at_ns, event);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Chance, Loss, Mark, QueueLimit, Reorder};
    use super::*;
    use proptest::prelude::*;

    /// Holds reference counts and what was sent, and fails on a count below zero.
    #[derive(Default, PartialEq, Debug)]
    struct Books {
        references: Vec<i64>,
        sent: Vec<(PortId, Handle, Option<Corruption>)>,
        marked: Vec<Handle>,
    }

    impl Books {
        fn packet(&mut self) -> Handle {
            self.references.push(1);
            self.references.len() as Handle - 1
        }
    }

    impl Sink for Books {
        fn retain(&mut self, handle: Handle) {
            self.references[handle as usize] += 1;
        }
        fn release(&mut self, handle: Handle) {
            self.references[handle as usize] -= 1;
            assert!(self.references[handle as usize] >= 0);
        }
        fn mark(&mut self, handle: Handle) -> (Handle, bool) {
            // Every second packet is ECN-capable.
            let capable = handle.is_multiple_of(2);
            self.marked.extend(capable.then_some(handle));
            (handle, capable)
        }
        fn send(&mut self, _: TimeNs, port: PortId, handle: Handle, corruption: Option<Corruption>) {
            self.sent.push((port, handle, corruption));
            self.release(handle);
        }
    }

    fn star(ports: usize, up: PipeSpec, down: PipeSpec, seed: u64) -> Fabric {
        let mut fabric = Fabric::new();
        for _ in 0..ports {
            fabric.add_port(0, up, down, seed);
        }
        fabric
    }

    #[test]
    fn incast_shares_one_output_queue() {
        let down = PipeSpec {
            rate_bytes_per_s: 1_000_000_000 / 8,
            queue: QueueLimit { packets: Some(64), ..Default::default() },
            ..Default::default()
        };
        let mut fabric = star(9, PipeSpec::default(), down, 1);
        let mut books = Books::default();
        for sender in 1..9 {
            for _ in 0..50 {
                let handle = books.packet();
                fabric.ingress(0, sender, Destination::Port(0), 1500, handle, &mut books);
            }
        }
        fabric.advance(u64::MAX - 1, &mut books);
        assert_eq!(books.sent.len(), 65, "64 waiting and one being sent, whoever sent them");
        assert_eq!(fabric.down(0).counters().dropped_queue, 400 - 65);
        assert!(books.references.iter().all(|count| *count == 0));
    }

    fn bus(ports: usize, up: PipeSpec, down: PipeSpec) -> Fabric {
        let mut fabric = Fabric::new();
        fabric.make_bus(0);
        for _ in 0..ports {
            fabric.add_port(0, up, down, 1);
        }
        fabric
    }

    /// Three ports of a star, a bus, or a bus with collisions.
    fn of_kind(kind: u8, up: PipeSpec, down: PipeSpec, seed: u64) -> Fabric {
        match kind {
            0 => star(3, up, down, seed),
            1 => bus(3, up, down),
            _ => {
                let mut fabric = Fabric::new();
                fabric.make_colliding_bus(0);
                (0..3).for_each(|_| _ = fabric.add_port(0, up, down, seed));
                fabric
            }
        }
    }

    fn ten_megabit(queue_packets: u32) -> PipeSpec {
        let queue = QueueLimit { packets: Some(queue_packets), ..Default::default() };
        PipeSpec { rate_bytes_per_s: 10_000_000 / 8, wire_overhead_bytes: 24, queue, ..Default::default() }
    }

    #[test]
    fn hosts_of_a_bus_collide_and_every_packet_comes_or_is_counted() {
        let mut fabric = Fabric::new();
        fabric.make_colliding_bus(0);
        for port in 0..8 {
            fabric.add_port(0, ten_megabit(64), PipeSpec::default(), 5 + port);
        }
        let mut books = Books::default();
        for number in 0..400 {
            let handle = books.packet();
            fabric.ingress(0, number % 8, Destination::Port((number + 1) % 8), 1514, handle, &mut books);
        }
        fabric.advance(5_000_000_000, &mut books);
        let sum = |counter: fn(&weir_net::Counters) -> u64, fabric: &mut Fabric| -> u64 {
            (0..8).map(|port| counter(fabric.up(port).counters())).sum()
        };
        assert!(sum(|c| c.collisions, &mut fabric) > 100);
        let given_up = sum(|c| c.dropped_collisions, &mut fabric);
        assert_eq!(books.sent.len() as u64 + given_up, 400);
        assert!(books.references.iter().all(|count| *count == 0));
        assert_eq!((fabric.in_flight(), fabric.next_ns()), (0, None));
        let last_ns = fabric.now_ns;
        assert!(last_ns > 0);
    }

    #[test]
    fn hosts_of_a_bus_share_its_rate_in_both_directions() {
        let mut fabric = bus(3, ten_megabit(64), PipeSpec::default());
        // A second network beside it, which has nothing to do with it.
        let [a, b] = [0; 2].map(|_| fabric.add_port(1, PipeSpec::default(), PipeSpec::default(), 1));
        let mut books = Books::default();
        for i in 0..30 {
            let handle = books.packet();
            fabric.ingress(0, i % 2, Destination::Port(1 - i % 2), 1226, handle, &mut books);
        }
        let beside = books.packet();
        fabric.ingress(0, a, Destination::Port(b), 1226, beside, &mut books);
        fabric.advance(10_000_000, &mut books);
        assert_eq!(books.sent.len(), 11, "a millisecond each, and one beside");
        fabric.advance(29_999_999, &mut books);
        assert_eq!((books.sent.len(), fabric.in_flight()), (30, 1));
        fabric.advance(30_000_000, &mut books);
        let to = |port| books.sent.iter().filter(|s| s.0 == port).count();
        assert_eq!((to(0), to(1), to(2), to(b)), (15, 15, 0, 1));
        assert_eq!(fabric.least_transit_ns(), 0, "the network beside it");
        assert!(books.references.iter().all(|count| *count == 0));
    }

    #[test]
    fn what_does_not_fit_a_hosts_queue_for_the_bus_is_dropped_there() {
        let mut fabric = bus(3, ten_megabit(4), PipeSpec::default());
        let mut books = Books::default();
        for i in 0..20 {
            let handle = books.packet();
            fabric.ingress(0, usize::from(i == 19), Destination::Flood, 1226, handle, &mut books);
        }
        fabric.advance(u64::MAX - 1, &mut books);
        let dropped = |fabric: &mut Fabric, port| fabric.up(port).counters().dropped_queue;
        assert_eq!((dropped(&mut fabric, 0), dropped(&mut fabric, 1)), (14, 0));
        assert_eq!(books.sent.len(), (5 + 1) * 2, "each to the two others, and each once");
        assert!(books.references.iter().all(|count| *count == 0));
    }

    #[test]
    fn a_bus_that_is_cleared_gives_back_what_waits() {
        let mut fabric = bus(2, ten_megabit(64), PipeSpec::default());
        let mut books = Books::default();
        for i in 0..20 {
            let handle = books.packet();
            fabric.ingress(i * 100_000, i as usize % 2, Destination::Flood, 1226, handle, &mut books);
            fabric.advance(i * 50_000, &mut books);
        }
        assert!(fabric.next_ns().is_some() && fabric.deadline_ns().is_some());
        fabric.clear(&mut books);
        assert_eq!((fabric.in_flight(), fabric.next_ns()), (0, None));
        assert!(books.references.iter().all(|count| *count == 0));
    }

    #[test]
    fn what_finds_a_long_queue_is_marked_if_it_is_capable() {
        let down = PipeSpec {
            rate_bytes_per_s: 1_000_000_000 / 8,
            queue: QueueLimit { packets: Some(64), ..Default::default() },
            mark: Mark { packets: Some(20), bytes: None },
            ..Default::default()
        };
        let mut fabric = star(2, PipeSpec::default(), down, 1);
        let mut books = Books::default();
        for _ in 0..50 {
            let handle = books.packet();
            fabric.ingress(0, 1, Destination::Port(0), 1500, handle, &mut books);
        }
        fabric.advance(u64::MAX - 1, &mut books);
        // One is being sent, twenty wait and see fewer.
        assert_eq!(books.marked, (21..50).filter(|i| i % 2 == 0).collect::<Vec<Handle>>());
        assert_eq!((fabric.down(0).counters().marked, fabric.down(1).counters().marked), (14, 0));
        assert_eq!(books.sent.len(), 50);
    }

    #[test]
    fn flood_reaches_all_others_of_its_network_only() {
        let mut fabric = star(4, PipeSpec::default(), PipeSpec::default(), 1);
        fabric.add_port(1, PipeSpec::default(), PipeSpec::default(), 1);
        let mut books = Books::default();
        let handle = books.packet();
        fabric.ingress(5, 1, Destination::Flood, 60, handle, &mut books);
        let other = books.packet();
        fabric.ingress(5, 1, Destination::Port(4), 60, other, &mut books);
        fabric.advance(5, &mut books);
        let ports: Vec<_> = books.sent.iter().map(|s| s.0).collect();
        assert_eq!(ports, [0, 2, 3]);
        assert_eq!(fabric.unreachable(), 1);
        assert!(books.references.iter().all(|count| *count == 0));
    }

    #[test]
    fn being_late_changes_nothing() {
        let up = PipeSpec { rate_bytes_per_s: 500_000_000 / 8, jitter_ns: 3000, ..Default::default() };
        let down = PipeSpec {
            rate_bytes_per_s: 100_000_000 / 8,
            queue: QueueLimit { packets: Some(5), ..Default::default() },
            loss: Loss::independent(Chance::of(0.1)),
            ..Default::default()
        };
        let run = |kind: u8, step_ns: u64| {
            let mut fabric = of_kind(kind, up, down, 42);
            let mut books = Books::default();
            for i in 0..500u64 {
                let handle = books.packet();
                fabric.ingress(i * 20_000, (i % 2) as usize, Destination::Port(2), 1000, handle, &mut books);
                if (i * 20_000) % step_ns == 0 {
                    fabric.advance(i * 20_000, &mut books);
                }
            }
            fabric.advance(u64::MAX - 1, &mut books);
            books
        };
        for kind in 0..3 {
            assert_eq!(run(kind, 20_000), run(kind, 2_000_000));
        }
    }

    #[test]
    fn looking_only_at_deadlines_is_early_enough() {
        let up = PipeSpec { rate_bytes_per_s: 100_000_000 / 8, ..Default::default() };
        let down = PipeSpec { rate_bytes_per_s: 50_000_000 / 8, delay_ns: 40_000, ..Default::default() };
        let mut fabric = star(2, up, down, 3);
        let mut books = Books::default();
        for _ in 0..20 {
            let handle = books.packet();
            fabric.ingress(0, 0, Destination::Port(1), 1000, handle, &mut books);
        }
        let mut looks = 0;
        while let Some(deadline_ns) = fabric.deadline_ns() {
            let sent = books.sent.len();
            fabric.advance(deadline_ns - 1, &mut books);
            assert_eq!(books.sent.len(), sent, "nothing was due before the deadline");
            fabric.advance(deadline_ns, &mut books);
            looks += 1;
        }
        assert_eq!(books.sent.len(), 20);
        assert!(looks < 40, "{looks} looks: fewer than the 40 events");
        assert_eq!(fabric.least_transit_ns(), 42 * 80 + 42 * 160 + 40_000);
    }

    proptest! {
        /// Whatever the faults, no packet leaks, none is freed twice, and the counters add up.
        #[test]
        fn the_books_balance(
            seed: u64,
            loss in 0.0f64..1.0,
            duplicate in 0.0f64..1.0,
            reorder in 0.0f64..1.0,
            rate in proptest::option::of(125u64..1_250_000_000),
            limit in proptest::option::of(0u32..50),
            offers in proptest::collection::vec((0u64..50_000, 0usize..3, 0usize..4, 14u32..1514, 0u8..20), 1..300),
            kind in 0u8..3,
        ) {
            let params = PipeSpec {
                rate_bytes_per_s: rate.unwrap_or(0),
                queue: QueueLimit { packets: limit, ..Default::default() },
                loss: Loss::independent(Chance::of(loss)),
                duplicate: Chance::of(duplicate),
                reorder: Reorder { chance: Chance::of(reorder), least_ns: 70_000, most_ns: 70_000 },
                delay_ns: 10_000,
                ..Default::default()
            };
            let mut fabric = of_kind(kind, params, params, seed);
            let mut books = Books::default();
            let mut now_ns = 0;
            for (gap_ns, from, to, len, action) in offers {
                now_ns += gap_ns;
                let to = if to == 3 { Destination::Flood } else { Destination::Port(to) };
                let handle = books.packet();
                fabric.ingress(now_ns, from, to, len, handle, &mut books);
                if action < 2 {
                    fabric.down(from).set_cut(action == 0);
                } else if action < 4 {
                    fabric.up(from).set_cut(action == 2);
                }
                fabric.advance(now_ns, &mut books);
            }
            fabric.advance(u64::MAX, &mut books);
            prop_assert_eq!(fabric.in_flight(), 0);
            prop_assert!(books.references.iter().all(|count| *count == 0));
            let mut delivered = 0;
            for port in 0..3 {
                for pipe in [fabric.up(port).clone(), fabric.down(port).clone()] {
                    let c = pipe.counters();
                    let dropped = c.dropped_queue + c.dropped_loss + c.dropped_cut + c.dropped_collisions;
                    let gone = dropped + c.forwarded_packets;
                    prop_assert_eq!(c.offered_packets + c.duplicated, gone);
                    prop_assert!(limit.is_none_or(|most| c.queue_peak_packets <= u64::from(most)));
                }
                delivered += fabric.down(port).counters().forwarded_packets;
            }
            prop_assert_eq!(delivered, books.sent.len() as u64);
        }
    }
}
