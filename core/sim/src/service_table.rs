//! Tables of a service: from a client's request to its answer, over clients, queues and loss; and
//! the same with everything that can go wrong.

use std::fmt::Write as _;

use crate::rng::Rng;
use crate::run::{Report, Watch, run};
use crate::scenario::EndpointSpec;
use crate::spec::{Burst, Direction, Fault, LinkSpec, MS, NetSpec, Ns, SEC, TimedFault, US};
use crate::table::{Point, Wire, point, size, time};
use crate::work::Workload;
use crate::work::service::Service;

/// An endpoint as BMI has it (`spec/bmi.md` 7).
#[must_use]
pub fn endpoint() -> EndpointSpec {
    EndpointSpec { credit_bytes: 128 << 10, ..EndpointSpec::default() }
}

/// Clients that are released together, each of which asks and waits.
#[must_use]
pub fn clients(clients: u32, wire: Wire, answer_bytes: (u64, u64), requests: u32) -> Point {
    let service = Service {
        requests,
        ahead: 1,
        request_bytes: 200,
        answer_bytes,
        receives: 64,
        compute_ns: 2 * US,
        spread_ns: 0,
        serve_ns: 0,
        round_ns: 0,
    };
    let name = format!(
        "{clients:>5} clients {:>5} queue {:>4} loss {} %",
        size(answer_bytes.1),
        wire.queue_packets,
        f64::from(wire.loss_ppm) / 1e4
    );
    point(name, wire, clients + 1, &endpoint(), Workload::Service(service))
}

/// Fan-in x queue x loss.
#[must_use]
pub fn points(fan_in: &[u32], queues: &[u32], losses_ppm: &[u32], answer_bytes: u64, requests: u32) -> Vec<Point> {
    let mut all = Vec::new();
    for &n in fan_in {
        for &queue_packets in queues {
            for &loss_ppm in losses_ppm {
                let wire = Wire { queue_packets, loss_ppm, ..Wire::GIGABIT };
                all.push(clients(n, wire, (answer_bytes, answer_bytes), requests));
            }
        }
    }
    all
}

/// Everything at once: links that lose, double, delay, swap and damage packets, singly and in
/// bursts; clients that die, come again, are cut off, stop for a while, or leave; a server that is
/// cut off and stops, with little memory, of which clients ask ahead.
#[must_use]
pub fn all_faults(clients: u32, seed: u64) -> Point {
    let wire = Wire { delay_ns: 50 * US, ..Wire::GIGABIT };
    let service = Service {
        requests: 6,
        ahead: 3,
        request_bytes: 6000,
        answer_bytes: (1, 30_000),
        // Fewer would all be taken by requests of which only a part came of clients that have died,
        // until that is known: BMI claims 4096.
        receives: 512,
        compute_ns: 10 * US,
        spread_ns: 500 * MS,
        serve_ns: 12 * SEC,
        round_ns: 0,
    };
    let endpoint = EndpointSpec { credit_bytes: 16 << 10, unexpected_bytes: 1 << 20, ..endpoint() };
    let mut p =
        point(format!("{clients} clients, all faults"), wire, clients + 1, &endpoint, Workload::Service(service));
    p.scenario.seed = seed;
    p.scenario.endpoint.patience = 2;
    let net = &mut p.scenario.net;
    let bad = |link: &LinkSpec| LinkSpec {
        jitter_ns: 100 * US,
        loss: 5000,
        burst: Some(Burst { enter: 200, leave: 100_000, loss: 500_000 }),
        duplicate: 2000,
        duplicate_ns: MS,
        reorder: 5000,
        reorder_ns: 300 * US,
        corrupt: 1000,
        ..link.clone()
    };
    for network in &mut net.networks {
        (network.up, network.down) = (bad(&network.up), bad(&network.down));
    }
    net.faults = faults(net, seed);
    p
}

fn faults(net: &NetSpec, seed: u64) -> Vec<TimedFault> {
    let mut rng = Rng::new(seed, 0xfa17);
    let mut all = Vec::new();
    let mut add = |at_ns: Ns, fault: Fault| all.push(TimedFault { at_ns, fault });
    for host in 1..net.hosts {
        let at = rng.below(SEC);
        let direction = rng.pick(&[Direction::Up, Direction::Down, Direction::Both]);
        match host % 10 {
            1 => add(at, Fault::Crash { host }),
            2 => {
                add(at, Fault::Crash { host });
                add(at + rng.between(MS, SEC), Fault::Restart { host });
            }
            3 | 4 => {
                add(at, Fault::Cut { host, net: 0, direction });
                add(at + rng.between(MS, SEC), Fault::Heal { host, net: 0, direction });
            }
            5 => add(at, Fault::Stall { host, until_ns: at + rng.between(MS, SEC) }),
            6 => add(at, Fault::Leave { host }),
            _ => {}
        }
    }
    add(200 * MS, Fault::Stall { host: 0, until_ns: 400 * MS });
    add(600 * MS, Fault::Cut { host: 0, net: 0, direction: Direction::Both });
    add(900 * MS, Fault::Heal { host: 0, net: 0, direction: Direction::Both });
    all
}

/// Rounds in each of which all clients ask at one instant, as `weir bench serverload` has them. The
/// server's own cable is the narrow place; its interface takes `nic_queue_bytes`.
#[must_use]
pub fn rounds(clients: u32, wire: Wire, bytes: u64, rounds: u32, nic_queue_bytes: u64) -> Point {
    let mut p = self::clients(clients, wire, (bytes, bytes), rounds);
    p.name = format!(
        "{clients:>3} clients {:>6} {:>4} Mbit/s queue {:>4}",
        size(bytes),
        wire.rate_bits_per_s / 1_000_000,
        wire.queue_packets
    );
    if let Workload::Service(service) = &mut p.scenario.work {
        // Twice what the wire needs, so that nobody is late for the next.
        let answers_ns = u64::from(clients) * bytes * 8 * 1_000_000_000 / wire.rate_bits_per_s;
        service.round_ns = 2 * answers_ns + 10 * MS;
    }
    for network in &mut p.scenario.net.networks {
        network.nic_queue_bytes = nic_queue_bytes;
    }
    p
}

/// Answers that leave by the server's own slow cable, whose interface has little room or much, and
/// by a fast one with short queues behind it.
#[must_use]
pub fn round_points() -> Vec<Point> {
    let slow = Wire { rate_bits_per_s: 100_000_000, queue_packets: 1000, ..Wire::GIGABIT };
    vec![
        rounds(64, slow, 100_000, 4, 208 << 10),
        rounds(64, slow, 100_000, 4, 2 << 20),
        rounds(32, Wire::GIGABIT, 65_536, 4, 208 << 10),
    ]
}

/// How alike clients were served in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Of the times from request to answer: the shortest, their mean, the longest.
    pub least_ns: Ns,
    /// See `least_ns`.
    pub mean_ns: Ns,
    /// See `least_ns`.
    pub most_ns: Ns,
    /// Jain's index of the clients' rates: 1 if all are served alike.
    pub jain: f64,
}

impl Shares {
    /// Longest over shortest.
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.most_ns as f64 / self.least_ns.max(1) as f64
    }
}

/// Of each round of [`rounds`].
#[must_use]
pub fn shares(p: &Point, r: &Report) -> Vec<Shares> {
    let Workload::Service(service) = p.scenario.work else { return Vec::new() };
    let mut times = vec![Vec::new(); service.requests as usize];
    for &(_, at_ns, _) in r.arrivals.iter().filter(|(from, ..)| *from == 0) {
        if let Some(round) = times.get_mut((at_ns / service.round_ns.max(1)) as usize) {
            round.push(at_ns % service.round_ns.max(1));
        }
    }
    times.iter().filter(|round| !round.is_empty()).map(|round| of_round(round)).collect()
}

fn of_round(times: &[Ns]) -> Shares {
    let (sum, squares) = times.iter().map(|&t| 1.0 / t.max(1) as f64).fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    Shares {
        least_ns: times.iter().copied().min().unwrap_or(0),
        mean_ns: times.iter().sum::<Ns>() / times.len().max(1) as u64,
        most_ns: times.iter().copied().max().unwrap_or(0),
        jain: sum * sum / (times.len() as f64 * squares),
    }
}

/// Writes one line for each round.
#[must_use]
pub fn round_table(points: &[Point], reports: &[Report]) -> String {
    let width = points.iter().map(|p| p.name.len()).max().unwrap_or(0).max(8);
    let mut s = format!(
        "{:<width$} {:>5} {:>10} {:>10} {:>10} {:>7} {:>6} {:>7} {:>6}\n",
        "rounds", "round", "least", "mean", "most", "max/min", "Jain", "dropped", "resent"
    );
    for (p, r) in points.iter().zip(reports) {
        for (round, of) in shares(p, r).iter().enumerate() {
            let _ = writeln!(
                s,
                "{:<width$} {:>5} {:>10} {:>10} {:>10} {:>7.2} {:>6.3} {:>7} {:>5.1}%",
                p.name,
                round,
                time(of.least_ns),
                time(of.mean_ns),
                time(of.most_ns),
                of.spread(),
                of.jain,
                r.net.switch_full + r.net.lost + r.net.socket_full,
                r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64,
            );
        }
    }
    s
}

/// Runs a point.
#[must_use]
pub fn measure(p: &Point) -> Report {
    run(&p.scenario, Watch::default())
}

/// A quantile of the times from request to answer (0 to 1).
#[must_use]
pub fn quantile_ns(r: &Report, q: f64) -> Ns {
    let n = r.answer_ns.len();
    let at = ((n as f64 * q).ceil() as usize).clamp(1, n.max(1)) - 1;
    r.answer_ns.get(at).copied().unwrap_or(0)
}

/// Writes one line for each. "held": the most bytes that the server kept of requests it had not
/// taken yet.
#[must_use]
pub fn table(points: &[Point], reports: &[Report]) -> String {
    let width = points.iter().map(|p| p.name.len()).max().unwrap_or(0).max(8);
    let mut s = format!(
        "{:<width$} {:>7} {:>10} {:>10} {:>10} {:>6} {:>7} {:>6} {:>5} {:>7}\n",
        "service", "answers", "median", "p99", "max", "% wire", "dropped", "resent", "pto", "held"
    );
    for (p, r) in points.iter().zip(reports) {
        let _ = write!(
            s,
            "{:<width$} {:>7} {:>10} {:>10} {:>10} {:>6.1} {:>7} {:>5.1}% {:>5} {:>7}",
            p.name,
            r.answer_ns.len(),
            time(quantile_ns(r, 0.5)),
            time(quantile_ns(r, 0.99)),
            time(quantile_ns(r, 1.0)),
            r.goodput_bits_per_s() * 100.0 / p.wire_bits_per_s,
            r.net.switch_full + r.net.lost + r.net.socket_full,
            r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64,
            r.probe_timeouts,
            r.held_bytes,
        );
        if let Some(v) = &r.violation {
            let _ = write!(s, "  VIOLATION {}: {}", v.kind, v.detail);
        }
        s.push('\n');
    }
    s
}
