//! What is under way in a run: how many messages are on each link, and until when nodes are busy
//! sending and taking.

use weir_stats::{Distribution, Random, open_unit, seeded};

use crate::Time;
use crate::flows::{Beginning, Flows};
use crate::loss::Parts;
use crate::machine::{Beyond, Draw, Flight, Level, MOST_HOPS, Machine, Path, Sharing, Tail};
use crate::options::Options;
use crate::tour::{Kind, Tour};

/// Mixed into the seed of the generator that says how this launch differs.
const LAUNCH_STREAM: u64 = 0x6c61_756e_6368;
/// Mixed into the seed of the generator that says what is lost.
const LOSS_STREAM: u64 = 0x6c6f_7373;

/// A message as the network sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cargo {
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
    /// Its luck, from 0 to 1.
    pub unit: f64,
    /// Its receiver was asked first, and that took so long already.
    pub asked: Option<Time>,
}

pub(crate) struct Network<'a> {
    machine: &'a Machine,
    options: &'a Options,
    node_of: Vec<u32>,
    /// On each link of the fabric.
    in_flight: Vec<u32>,
    nodes: Vec<Node>,
    random: Random,
    /// What all measured times of the run are multiplied by.
    launch: f64,
    pub beyond: Beyond,
    /// What is shared anew: the fabric's links, then each node's way out, then each node's way in.
    /// None: nothing is.
    flows: Option<Flows>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// Messages within it.
    inside: u32,
    egress_free: Time,
    ingress_free: Time,
}

/// How much slower than usual a launch is: 1 but where chance decides, and launches are known to
/// differ. Rounded, as libraries may differ in the last digit.
fn launch_factor(machine: &Machine, options: &Options, seed: u64) -> f64 {
    let sd = machine.between_launches;
    if options.draw != Draw::Full || sd <= 0.0 || !sd.is_finite() {
        return 1.0;
    }
    let unit = open_unit(&mut seeded(seed ^ LAUNCH_STREAM));
    let log = Distribution::Normal { mean: 0.0, sd }.quantile(unit);
    (log.exp() * 1e9).round() / 1e9
}

/// What each link carries at once: the fabric's, each node's way out, each node's way in.
fn limits(machine: &Machine, options: &Options, nodes: usize) -> impl Iterator<Item = Option<f64>> {
    let interface = machine.interface;
    let (contention, node_limits) = (options.contention, options.node_limits);
    let links = machine.fabric.links().iter().map(move |link| link.bytes_per_s.filter(|_| contention));
    let of_nodes = move |rate: Option<f64>| (0..nodes).map(move |_| rate.filter(|_| node_limits));
    links.chain(of_nodes(interface.egress_bytes_per_s)).chain(of_nodes(interface.ingress_bytes_per_s))
}

/// What becomes of a message that reaches its receiver's node.
pub(crate) enum Entry {
    /// It is there at this time.
    There(Time),
    /// It is lost.
    Lost,
}

impl<'a> Network<'a> {
    pub fn new(machine: &'a Machine, options: &'a Options, numprocs: u32, seed: u64) -> Self {
        let node_of: Vec<u32> = (0..numprocs).map(|r| machine.placement.node_of(r, numprocs)).collect();
        let nodes = node_of.iter().max().map_or(0, |n| *n as usize + 1);
        Self {
            machine,
            options,
            node_of,
            in_flight: vec![0; machine.fabric.links().len()],
            nodes: vec![Node::default(); nodes],
            random: seeded(seed ^ LOSS_STREAM),
            launch: launch_factor(machine, options, seed),
            beyond: Beyond::default(),
            flows: (machine.sharing == Sharing::Fair).then(|| Flows::new(limits(machine, options, nodes))),
        }
    }

    /// Whether what is between these two is shared anew when others come and go.
    pub fn is_shared(&self, from: u32, to: u32) -> bool {
        self.flows.is_some() && self.node_of[from as usize] != self.node_of[to as usize]
    }

    /// Bytes per second of a message that meets nobody, where rates are shared.
    fn alone(&self, a: usize, b: usize) -> f64 {
        let machine = self.machine;
        let own = if machine.links.is_empty() { machine.inter.rate() } else { None };
        let route = machine.fabric.route(a as u32, b as u32);
        let links = route.links().iter().filter_map(|link| machine.fabric.links()[*link as usize].bytes_per_s);
        let ends = [machine.interface.egress_bytes_per_s, machine.interface.ingress_bytes_per_s];
        let ends = ends.into_iter().flatten().filter(|_| self.options.node_limits);
        own.into_iter().chain(links).chain(ends).fold(f64::INFINITY, f64::min)
    }

    /// A message that shares its way sets out: how long until its bytes do, and its parts as far as
    /// they are known.
    pub fn lead(&self, cargo: Cargo) -> (Time, Parts) {
        let (a, b) = self.ends(cargo.from, cargo.to);
        let (bytes, alone) = (self.timed(cargo.bytes), self.alone(a, b));
        let of = |path: &Path| path.lead(bytes, cargo.asked.is_some(), alone, self.options.draw, cargo.unit);
        let machine = self.machine;
        let (lead, flight) = if machine.links.is_empty() {
            of(&machine.inter)
        } else {
            let route = machine.fabric.route(a as u32, b as u32);
            let all = route.links().iter().filter_map(|link| machine.links.get(*link as usize)).map(of);
            all.max_by_key(|(lead, _)| *lead).unwrap_or_default()
        };
        let asked = cargo.asked.unwrap_or(Time::ZERO).min(flight.latency);
        (lead - asked, Parts { flight, ..Parts::default() })
    }

    /// The bytes of a message that shares its way set out. `key`: its place among events of one
    /// time.
    pub fn begin_flow(&mut self, now: Time, cargo: Cargo, message: u32, key: u64) {
        let (a, b) = self.ends(cargo.from, cargo.to);
        let (bytes, alone, nodes) = (self.timed(cargo.bytes), self.alone(a, b), self.nodes.len());
        let fabric = &self.machine.fabric;
        let mut links = [0; MOST_HOPS + 2];
        let route = fabric.route(a as u32, b as u32);
        let len = route.links().len();
        links[..len].copy_from_slice(route.links());
        links[len] = (fabric.links().len() + a) as u32;
        links[len + 1] = (fabric.links().len() + nodes + b) as u32;
        if let Some(flows) = &mut self.flows {
            flows.begin(now, Beginning { message, key, bytes, alone, links: &links[..len + 2] });
        }
    }

    /// When the next flow ends, and its place among events of that time.
    #[inline]
    pub fn next_flow(&self) -> Option<(Time, u64)> {
        self.flows.as_ref().and_then(Flows::first)
    }

    /// Sets shared rates, if anything began or ended since they were set and nothing else ends now.
    #[inline]
    pub fn settle(&mut self, now: Time) {
        if let Some(flows) = &mut self.flows
            && flows.is_unsettled()
            && flows.first().is_none_or(|(end, _)| end > now)
        {
            flows.settle(now);
        }
    }

    /// That flow ends now: its message, and how long it took.
    pub fn end_flow(&mut self, now: Time) -> Option<(u32, Time)> {
        let (message, began) = self.flows.as_mut()?.end()?;
        Some((message, now - began))
    }

    /// How many flows there are, and when the last of them ends as things are.
    pub fn flowing(&self) -> (u64, Time) {
        self.flows.as_ref().map_or((0, Time::ZERO), |flows| (flows.live() as u64, flows.last_end()))
    }

    /// Work that flows were.
    #[inline]
    pub fn looked(&self) -> u64 {
        self.flows.as_ref().map_or(0, |flows| flows.looked)
    }

    fn ends(&self, from: u32, to: u32) -> (usize, usize) {
        (self.node_of[from as usize] as usize, self.node_of[to as usize] as usize)
    }

    pub fn path(&self, from: u32, to: u32) -> &'a Path {
        let (a, b) = self.ends(from, to);
        if a == b {
            return &self.machine.intra;
        }
        // Of links that differ the first says what its sender's end is.
        let first = || self.machine.fabric.route(a as u32, b as u32).links().first().copied();
        let own = if self.machine.links.is_empty() { None } else { first() };
        own.and_then(|link| self.machine.links.get(link as usize)).unwrap_or(&self.machine.inter)
    }

    fn timed(&self, bytes: u64) -> u64 {
        if self.options.infinite_bandwidth { 0 } else { bytes }
    }

    /// A measured time, as it is in this launch.
    pub fn in_this_launch(&self, time: Time) -> Time {
        if self.launch == 1.0 { time } else { time.scaled(self.launch) }
    }

    /// How long the announcement of a message that is not eager is under way.
    pub fn announcement(&self, from: u32, to: u32) -> Time {
        self.in_this_launch(self.path(from, to).announcement())
    }

    /// A message sets out now: when it reaches its receiver's node (or memory, within a node), and
    /// its parts.
    pub fn launch(&mut self, now: Time, cargo: Cargo) -> (Time, Parts) {
        let (a, b) = self.ends(cargo.from, cargo.to);
        let level = self.level(a, b);
        let bytes = self.timed(cargo.bytes);
        let draw = self.options.draw;
        let mut flight = if a == b || self.machine.links.is_empty() {
            let path = self.path(cargo.from, cargo.to);
            path.flight(bytes, cargo.asked.is_some(), level, draw, cargo.unit, &mut self.beyond)
        } else {
            self.longest(a, b, bytes, &cargo)
        };
        if self.launch != 1.0 {
            for part in [&mut flight.latency, &mut flight.bandwidth, &mut flight.contention] {
                *part = part.scaled(self.launch);
            }
        }
        // What asking took is behind it; for the account it stays in the latency.
        let asked = cargo.asked.unwrap_or(Time::ZERO).min(flight.latency);
        if a == b || !self.options.node_limits {
            return (now + flight.total() - asked, Parts { flight, ..Parts::default() });
        }
        let limits = &self.machine.interface;
        let slowest = [limits.egress_bytes_per_s, limits.ingress_bytes_per_s].into_iter().flatten();
        let through = slowest.map(|rate| Time::of_bytes(bytes, rate)).max().unwrap_or(Time::ZERO);
        if through > flight.bandwidth {
            flight.contention = (flight.contention - (through - flight.bandwidth)).or_zero();
            flight.bandwidth = through;
        }
        let drawn = now + flight.total() - asked;
        let mut reach = drawn;
        if let Some(rate) = limits.egress_bytes_per_s {
            let start = now.max(self.nodes[a].egress_free);
            self.nodes[a].egress_free = start + Time::of_bytes(bytes, rate);
            reach = drawn.max(start + flight.least() - asked);
        }
        (reach, Parts { flight, retransmission: Time::ZERO, serialisation: reach - drawn })
    }

    /// The flight on that link of a route on which it takes longest.
    fn longest(&mut self, a: usize, b: usize, bytes: u64, cargo: &Cargo) -> Flight {
        let mut longest = Flight::default();
        for &link in self.machine.fabric.route(a as u32, b as u32).links() {
            let Some(path) = self.machine.links.get(link as usize) else { continue };
            let messages = if self.options.contention { self.in_flight[link as usize] } else { 1 };
            let level = Level { messages, ..Level::ALONE };
            let asked = cargo.asked.is_some();
            let flight = path.flight(bytes, asked, level, self.options.draw, cargo.unit, &mut self.beyond);
            if flight.total() > longest.total() {
                longest = flight;
            }
        }
        longest
    }

    /// Enters a message on its links and says what it meets there.
    fn level(&mut self, a: usize, b: usize) -> Level {
        let mut level = if a == b {
            self.nodes[a].inside += 1;
            Level { messages: self.nodes[a].inside, ..Level::ALONE }
        } else {
            let route = self.machine.fabric.route(a as u32, b as u32);
            for &link in route.links() {
                self.in_flight[link as usize] += 1;
            }
            self.machine.fabric.level(&route, &self.in_flight)
        };
        if !self.options.contention {
            level = Level { messages: 1, share_bytes_per_s: level.alone_bytes_per_s, ..level };
        }
        level
    }

    /// A message reaches its receiver's node now.
    pub fn enter(&mut self, now: Time, cargo: Cargo) -> Entry {
        let (a, b) = self.ends(cargo.from, cargo.to);
        if a == b {
            return Entry::There(now);
        }
        let bytes = self.timed(cargo.bytes);
        let queues = self.options.node_limits && self.flows.is_none();
        let rate = self.machine.interface.ingress_bytes_per_s.filter(|_| queues);
        if let Some(tail) = self.machine.tail.filter(|_| self.options.losses) {
            let waiting = self.nodes[b].ingress_free - now;
            let full = match (self.machine.interface.buffer_bytes, rate) {
                (Some(buffer), Some(rate)) => waiting.seconds() * rate > buffer,
                _ => false,
            };
            let chance = if full { tail.chance.max(tail.overflow_chance) } else { tail.chance };
            if chance > 0.0 && open_unit(&mut self.random) < chance {
                return Entry::Lost;
            }
        }
        let Some(rate) = rate else { return Entry::There(now) };
        let there = now.max(self.nodes[b].ingress_free + Time::of_bytes(bytes, rate));
        self.nodes[b].ingress_free = there;
        Entry::There(there)
    }

    /// A message is there, or lost: its links are free of it.
    pub fn leave(&mut self, from: u32, to: u32) {
        let (a, b) = self.ends(from, to);
        if a == b {
            self.nodes[a].inside -= 1;
            return;
        }
        if self.flows.is_some() {
            return;
        }
        for &link in self.machine.fabric.route(a as u32, b as u32).links() {
            self.in_flight[link as usize] -= 1;
        }
    }

    /// Gives what is under way to a tour.
    pub fn tour(&mut self, tour: &mut Tour) {
        let Self { machine: _, options: _, node_of: _, in_flight, nodes, random: _, launch: _, beyond: _, flows } =
            self;
        if let Some(flows) = flows {
            flows.tour(tour);
        }
        in_flight.iter().for_each(|n| tour.word((*n).into()));
        for (number, node) in (0u32..).zip(nodes) {
            let Node { inside, egress_free, ingress_free } = node;
            tour.word((*inside).into());
            tour.future(egress_free);
            // When a node was free to take decides something even when it is past.
            tour.moment(ingress_free, Kind::Lies, number);
        }
    }

    /// How long a message that was lost `before` times already waits for its timer.
    pub fn timeout(&self, before: u32) -> Time {
        let tail: Option<Tail> = self.machine.tail;
        let Some(tail) = tail else { return Time::ZERO };
        let doublings = before.min(tail.doublings).min(30);
        Time::from_yoctoseconds(tail.timeout.yoctoseconds().saturating_mul(1 << doublings))
    }
}
