//! Tables of goodput and message times, deterministic to the last digit, so that a change of
//! congestion control shows as a diff of numbers.

use std::fmt::Write as _;

use crate::run::{Report, Watch, run};
use crate::scenario::{EndpointSpec, Scenario};
use crate::spec::{LinkSpec, MS, NetSpec, NetworkSpec, Ns, SwitchSpec, US, WIRE_OVERHEAD_BYTES};
use crate::work::Workload;

/// Headers of a full packet of bulk data: packet 20, RNDV frame 24 (spec 1).
const BULK_HEADER_BYTES: u64 = 44;

/// A named point: network, work and what is measured.
#[derive(Clone, Debug)]
pub struct Point {
    /// First columns of the line.
    pub name: String,
    /// What runs.
    pub scenario: Scenario,
    /// The best possible payload rate, bits per second.
    pub wire_bits_per_s: f64,
}

/// One network, gigabit unless said.
#[derive(Copy, Clone, Debug)]
pub struct Wire {
    /// Each cable.
    pub rate_bits_per_s: u64,
    /// From the switch to each host, if that is slower: then a single sender fills the queue.
    pub down_bits_per_s: Option<u64>,
    /// One way, host to host, without serialisation.
    pub delay_ns: Ns,
    /// Loss from host to host, each way.
    pub loss_ppm: u32,
    /// Queue of each switch port.
    pub queue_packets: u32,
    /// Added delay from host to host, each way, uniform from 0 on; packets stay in order.
    pub jitter_ns: Ns,
    /// So many packets that wait at a port make it mark those that come.
    pub mark_packets: Option<u32>,
    /// Largest datagram that passes, in bytes.
    pub mtu: u32,
}

impl Wire {
    /// A gigabit, 10 us, no loss, 64 packets, no jitter.
    pub const GIGABIT: Wire = Wire {
        rate_bits_per_s: 1_000_000_000,
        down_bits_per_s: None,
        delay_ns: 10 * US,
        loss_ppm: 0,
        queue_packets: 64,
        jitter_ns: 0,
        mark_packets: None,
        mtu: 65_507,
    };

    pub(crate) fn spec(&self, hosts: u32) -> NetSpec {
        let up = LinkSpec {
            rate_bits_per_s: self.rate_bits_per_s,
            delay_ns: self.delay_ns / 2,
            loss: self.loss_ppm,
            jitter_ns: self.jitter_ns,
            mtu: self.mtu,
            ..LinkSpec::default()
        };
        let down = LinkSpec { loss: 0, jitter_ns: 0, rate_bits_per_s: self.slowest_bits_per_s(), ..up.clone() };
        let switch = SwitchSpec {
            port_packets: self.queue_packets,
            shared_bytes: 64 << 20,
            mark_packets: self.mark_packets,
            ..SwitchSpec::default()
        };
        NetSpec::single(hosts, NetworkSpec { up, down, switch, ..NetworkSpec::default() })
    }

    fn slowest_bits_per_s(&self) -> u64 {
        self.down_bits_per_s.map_or(self.rate_bits_per_s, |down| down.min(self.rate_bits_per_s))
    }

    /// Payload rate of back-to-back full packets.
    #[must_use]
    pub fn goodput_max(&self, datagram: u16) -> f64 {
        let d = u64::from(datagram);
        self.slowest_bits_per_s() as f64 * (d - BULK_HEADER_BYTES) as f64 / (d + WIRE_OVERHEAD_BYTES) as f64
    }
}

/// A point of `work` on `hosts` hosts.
#[must_use]
pub fn point(name: String, wire: Wire, hosts: u32, endpoint: &EndpointSpec, work: Workload) -> Point {
    let wire_bits_per_s = wire.goodput_max(endpoint.max_datagram);
    Point {
        name,
        scenario: Scenario { seed: 1, net: wire.spec(hosts), endpoint: endpoint.clone(), work },
        wire_bits_per_s,
    }
}

/// Bytes as people write them.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

pub(crate) fn time(ns: Ns) -> String {
    match ns {
        n if n >= 10 * MS => format!("{:.1} ms", n as f64 / 1e6),
        n if n >= MS => format!("{:.2} ms", n as f64 / 1e6),
        n => format!("{:.1} us", n as f64 / 1e3),
    }
}

/// Jain's index of what senders got until the first of them was done: 1 is perfectly fair, 1/n is
/// one sender alone. `None` unless several senders sent the same amount.
#[must_use]
pub fn fairness(r: &Report) -> Option<f64> {
    // By sender: bytes in all, when the last came.
    let mut senders: std::collections::BTreeMap<u32, (u64, Ns)> = std::collections::BTreeMap::new();
    for (from, at, bytes) in &r.arrivals {
        let s = senders.entry(*from).or_default();
        *s = (s.0 + bytes, *at);
    }
    let first_done = senders.values().map(|s| s.1).min()?;
    let amount = senders.values().next()?.0;
    if senders.len() < 2 || senders.values().any(|s| s.0 != amount) {
        return None;
    }
    let mut got: std::collections::BTreeMap<u32, f64> = senders.keys().map(|k| (*k, 0.0)).collect();
    for (from, _, bytes) in r.arrivals.iter().filter(|a| a.1 <= first_done) {
        *got.entry(*from).or_default() += *bytes as f64;
    }
    let (sum, squares) = got.values().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (squares > 0.0).then(|| sum * sum / (got.len() as f64 * squares))
}

/// The longest time in which no message became complete at any receiver, from start to end.
#[must_use]
pub fn longest_gap_ns(r: &Report) -> Ns {
    let mut last = 0;
    let gaps = r.arrivals.iter().map(|a| a.1 - std::mem::replace(&mut last, a.1));
    gaps.max().unwrap_or(0)
}

/// Runs the points and writes one line for each. The column "stall" is [`longest_gap_ns`].
#[must_use]
pub fn table(points: &[Point], reports: &[Report]) -> String {
    let width = points.iter().map(|p| p.name.len()).max().unwrap_or(0).max(8);
    let mut s = format!(
        "{:<width$} {:>10} {:>6} {:>10} {:>10} {:>10} {:>10} {:>5} {:>7} {:>6} {:>6} {:>6} {:>5}\n",
        "point",
        "Mbit/s",
        "% wire",
        "median",
        "p99",
        "max",
        "stall",
        "fair",
        "dropped",
        "resent",
        "parity",
        "spur",
        "pto"
    );
    for (p, r) in points.iter().zip(reports) {
        let rate = r.goodput_bits_per_s();
        let resent = r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64;
        let _ = write!(
            s,
            "{:<width$} {:>10.1} {:>6.1} {:>10} {:>10} {:>10} {:>10} {:>5} {:>7} {:>5.1}% {:>6} {:>6} {:>5}",
            p.name,
            rate / 1e6,
            rate * 100.0 / p.wire_bits_per_s,
            time(r.quantile_ns(0.5)),
            time(r.quantile_ns(0.99)),
            time(r.quantile_ns(1.0)),
            time(longest_gap_ns(r)),
            fairness(r).map_or("-".into(), |f| format!("{f:.2}")),
            r.net.switch_full + r.net.lost + r.net.socket_full,
            resent,
            r.parity_used,
            r.losses_spurious,
            r.probe_timeouts
        );
        if let Some(v) = &r.violation {
            let _ = write!(s, "  VIOLATION {}: {}", v.kind, v.detail);
        }
        s.push('\n');
    }
    s
}

/// Runs one point.
#[must_use]
pub fn measure(p: &Point) -> Report {
    run(&p.scenario, Watch::default())
}

/// Fan-in: `senders` to one, over message sizes and queues.
#[must_use]
pub fn incast_points(
    endpoint: &EndpointSpec,
    senders: &[u32],
    lens: &[u64],
    queues: &[u32],
    bytes_each: u64,
) -> Vec<Point> {
    let mut points = Vec::new();
    for &n in senders {
        for &len in lens {
            for &queue_packets in queues {
                let wire = Wire { queue_packets, ..Wire::GIGABIT };
                let count = (bytes_each / len).max(1) as u32;
                let name = format!("incast {n}:1 {} queue {queue_packets}", size(len));
                points.push(point(name, wire, n + 1, endpoint, Workload::Incast { len, count, window: 2 }));
            }
        }
    }
    points
}

/// Fan-in where loss, delay and queue meet: `senders` to one, messages of `len` bytes, over all of
/// them.
#[must_use]
pub fn fan_in_points(
    endpoint: &EndpointSpec,
    senders: &[u32],
    delays_ns: &[Ns],
    losses_ppm: &[u32],
    queues: &[u32],
    (len, count): (u64, u32),
) -> Vec<Point> {
    let mut points = Vec::new();
    for &n in senders {
        for &delay_ns in delays_ns {
            for &queue_packets in queues {
                for &loss_ppm in losses_ppm {
                    let wire = Wire { delay_ns, loss_ppm, queue_packets, ..Wire::GIGABIT };
                    let name = format!(
                        "fan-in {n:>2}:1 {} {:>4} us queue {queue_packets:>3} {} %",
                        size(len),
                        delay_ns / US,
                        f64::from(loss_ppm) / 1e4
                    );
                    points.push(point(name, wire, n + 1, endpoint, Workload::Incast { len, count, window: 2 }));
                }
            }
        }
    }
    points
}

/// Ping-pong over loss and delay.
#[must_use]
pub fn ping_pong_points(
    endpoint: &EndpointSpec,
    delays_ns: &[Ns],
    losses_ppm: &[u32],
    lens: &[u64],
    rounds: u32,
) -> Vec<Point> {
    let mut points = Vec::new();
    for &delay_ns in delays_ns {
        for &len in lens {
            for &loss_ppm in losses_ppm {
                let wire = Wire { delay_ns, loss_ppm, queue_packets: 1000, ..Wire::GIGABIT };
                let name =
                    format!("ping-pong {:>5} {:>5} us {:>4} %", size(len), delay_ns / US, f64::from(loss_ppm) / 1e4);
                points.push(point(name, wire, 2, endpoint, Workload::PingPong { len, rounds }));
            }
        }
    }
    points
}

/// One stream over loss, delay and queue, through a port of a quarter of the sender's rate: what is
/// sent too fast queues there. (Where all cables are equally fast one sender never queues, however
/// little room there is.)
#[must_use]
pub fn stream_points(
    endpoint: &EndpointSpec,
    delays_ns: &[Ns],
    losses_ppm: &[u32],
    queues: &[u32],
    bytes: u64,
) -> Vec<Point> {
    let mut points = Vec::new();
    for &delay_ns in delays_ns {
        for &queue_packets in queues {
            for &loss_ppm in losses_ppm {
                let down_bits_per_s = Some(Wire::GIGABIT.rate_bits_per_s / 4);
                let wire = Wire { delay_ns, loss_ppm, queue_packets, down_bits_per_s, ..Wire::GIGABIT };
                let name = format!(
                    "stream 256K to 1/4 {:>5} us {:>4} % queue {queue_packets:>4}",
                    delay_ns / US,
                    f64::from(loss_ppm) / 1e4
                );
                let count = (bytes >> 18).max(1) as u32;
                let work = Workload::Stream { len: (1 << 18, 1 << 18), count, tags: 8, window: 8 };
                points.push(point(name, wire, 2, endpoint, work));
            }
        }
    }
    points
}

/// Processes that send each other long messages at once, over their number, delay, length and loss:
/// acknowledgements and grants go the way of the other side's data. The best rate is that of all
/// their wires, of `megabits` a second each.
#[must_use]
pub fn exchange_points(
    endpoint: &EndpointSpec,
    megabits: u64,
    hosts: &[u32],
    delays_ns: &[Ns],
    lens: &[u64],
    losses_ppm: &[u32],
    steps: u32,
) -> Vec<Point> {
    let mut points = Vec::new();
    for &n in hosts {
        for &delay_ns in delays_ns {
            for &len in lens {
                for &loss_ppm in losses_ppm {
                    let rate_bits_per_s = megabits * 1_000_000;
                    let wire = Wire { delay_ns, loss_ppm, rate_bits_per_s, queue_packets: 1000, ..Wire::GIGABIT };
                    let (us, percent) = (delay_ns / US, f64::from(loss_ppm) / 1e4);
                    let name = format!("exchange {n} x {:>6} {megabits:>4}M {us:>5} us {percent:>4} %", size(len));
                    let work = Workload::Superstep { steps, len: (len, len), compute_ns: 200 * US };
                    let mut point = point(name, wire, n, endpoint, work);
                    point.wire_bits_per_s *= f64::from(n);
                    points.push(point);
                }
            }
        }
    }
    points
}

/// One stream of 256 KiB messages where the delay varies, over delay, jitter and loss.
#[must_use]
pub fn jitter_points(
    endpoint: &EndpointSpec,
    delays_ns: &[Ns],
    jitters_ns: &[Ns],
    losses_ppm: &[u32],
    bytes: u64,
) -> Vec<Point> {
    let mut points = Vec::new();
    for &delay_ns in delays_ns {
        for &jitter_ns in jitters_ns {
            for &loss_ppm in losses_ppm {
                let wire = Wire { delay_ns, jitter_ns, loss_ppm, queue_packets: 1000, ..Wire::GIGABIT };
                let (us, jitter_us) = (delay_ns / US, jitter_ns / US);
                let name = format!("stream 256K {us:>5} us + {jitter_us:>5} us {:>4} %", f64::from(loss_ppm) / 1e4);
                let work = Workload::Stream {
                    len: (1 << 18, 1 << 18),
                    count: (bytes >> 18).max(1) as u32,
                    tags: 8,
                    window: 8,
                };
                points.push(point(name, wire, 2, endpoint, work));
            }
        }
    }
    points
}
