//! What is under way in a run: how many messages are on each link, and until when nodes are busy sending and taking.

use weir_stats::{Distribution, Random, open_unit, seeded};

use crate::Time;
use crate::loss::Parts;
use crate::machine::{Beyond, Draw, Flight, Level, Machine, Path, Tail};
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
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// Messages within it.
    inside: u32,
    egress_free: Time,
    ingress_free: Time,
}

/// How much slower than usual a launch is: 1 but where chance decides, and launches are known to differ. Rounded, as libraries may
/// differ in the last digit.
fn launch_factor(machine: &Machine, options: &Options, seed: u64) -> f64 {
    let sd = machine.between_launches;
    if options.draw != Draw::Full || sd <= 0.0 || !sd.is_finite() {
        return 1.0;
    }
    let unit = open_unit(&mut seeded(seed ^ LAUNCH_STREAM));
    let log = Distribution::Normal { mean: 0.0, sd }.quantile(unit);
    (log.exp() * 1e9).round() / 1e9
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
        }
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

    /// A message sets out now: when it reaches its receiver's node (or memory, within a node), and its parts.
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
        let rate = self.machine.interface.ingress_bytes_per_s.filter(|_| self.options.node_limits);
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
        for &link in self.machine.fabric.route(a as u32, b as u32).links() {
            self.in_flight[link as usize] -= 1;
        }
    }

    /// Gives what is under way to a tour.
    pub fn tour(&mut self, tour: &mut Tour) {
        let Self { machine: _, options: _, node_of: _, in_flight, nodes, random: _, launch: _, beyond: _ } = self;
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
