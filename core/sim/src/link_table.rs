//! Tables of several links between two hosts: what they carry together, against the best of them
//! alone.

use std::fmt::Write as _;

use crate::run::{Report, Watch, run};
use crate::scenario::{EndpointSpec, Scenario};
use crate::spec::{Direction, Fault, MS, NetId, Ns, TimedFault, US};
use crate::table::{Wire, size, time};
use crate::work::Workload;

/// Two hosts with several links between them.
#[derive(Clone, Debug)]
pub struct Links {
    /// First columns of the line.
    pub name: &'static str,
    /// One for each network, in the order of preference.
    pub wires: Vec<Wire>,
    /// The first link is cut this long after the start, in both directions, and stays so.
    pub cut_ns: Option<Ns>,
    /// Largest datagram that hosts try, if it is another than usual.
    pub max_datagram: Option<u16>,
}

/// What a line measures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Message after message, four under way: goodput counts.
    Stream,
    /// One message at a time, to and fro: the median of their times counts.
    PingPong,
}

/// One line: links, kind, length.
#[derive(Clone, Debug)]
pub struct Line {
    /// Between which hosts.
    pub links: Links,
    /// How.
    pub kind: Kind,
    /// Bytes of each message.
    pub len: u64,
    endpoint: EndpointSpec,
}

/// What a line came to.
#[derive(Clone, Debug)]
pub struct Measured {
    /// All links.
    pub all: Report,
    /// Each link alone, uncut.
    pub alone: Vec<Report>,
}

/// A gigabit, 100 us from host to host.
const GIGABIT: Wire = Wire { delay_ns: 100 * US, queue_packets: 256, ..Wire::GIGABIT };

impl Links {
    /// The rows of the table.
    #[must_use]
    pub fn all() -> Vec<Links> {
        let tenth = Wire { rate_bits_per_s: 100_000_000, ..GIGABIT };
        let (near, far) =
            (Wire { delay_ns: MS, ..GIGABIT }, Wire { delay_ns: 10 * MS, queue_packets: 1000, ..GIGABIT });
        let lossy = Wire { loss_ppm: 10_000, ..GIGABIT };
        let usual = Wire { mtu: 1472, ..GIGABIT };
        let links = |name, wires: &[Wire]| Links { name, wires: wires.to_vec(), cut_ns: None, max_datagram: None };
        vec![
            links("one", &[GIGABIT]),
            links("two", &[GIGABIT, GIGABIT]),
            links("two of 100M", &[tenth, tenth]),
            links("10:1", &[GIGABIT, tenth]),
            links("1:10", &[tenth, GIGABIT]),
            links("1 ms, 10 ms", &[near, far]),
            links("one with 1 %", &[GIGABIT, lossy]),
            Links { cut_ns: Some(30 * MS), ..links("cut at 30 ms", &[GIGABIT, GIGABIT]) },
            Links { max_datagram: Some(8972), ..links("1500, 9000", &[usual, GIGABIT]) },
            Links { max_datagram: Some(8972), ..links("9000, 1500", &[GIGABIT, usual]) },
        ]
    }
}

/// Links x kinds x lengths.
#[must_use]
pub fn lines(endpoint: &EndpointSpec, lens: &[u64]) -> Vec<Line> {
    let mut all = Vec::new();
    for links in Links::all() {
        for kind in [Kind::Stream, Kind::PingPong] {
            for &len in lens {
                let max_datagram = links.max_datagram.unwrap_or(endpoint.max_datagram);
                let endpoint = EndpointSpec { max_datagram, ..endpoint.clone() };
                all.push(Line { links: links.clone(), kind, len, endpoint });
            }
        }
    }
    all
}

impl Line {
    /// First columns of its line.
    #[must_use]
    pub fn name(&self) -> String {
        let kind = if self.kind == Kind::Stream { "stream" } else { "ping-pong" };
        format!("{:<13} {kind:<9} {:>6}", self.links.name, size(self.len))
    }

    fn work(&self) -> Workload {
        let (len, slowest) = (self.len, self.links.wires.iter().map(|w| w.rate_bits_per_s).max().unwrap_or(0));
        // What the best link carries in some 150 ms.
        let bytes = slowest / 8 * 15 / 100;
        match self.kind {
            Kind::Stream => {
                Workload::Stream { len: (len, len), count: (bytes / len).max(4) as u32, tags: 4, window: 4 }
            }
            Kind::PingPong => Workload::PingPong { len, rounds: (bytes / len / 2).clamp(4, 40) as u32 },
        }
    }

    fn scenario(&self, wires: &[Wire]) -> Scenario {
        let mut net = wires[0].spec(2);
        net.networks = wires.iter().flat_map(|w| w.spec(2).networks).collect();
        Scenario { seed: 1, net, endpoint: self.endpoint.clone(), work: self.work() }
    }

    /// What runs over all links.
    #[must_use]
    pub fn together(&self) -> Scenario {
        let mut together = self.scenario(&self.links.wires);
        if let Some(at_ns) = self.links.cut_ns {
            let fault = Fault::Cut { host: 0, net: 0 as NetId, direction: Direction::Both };
            together.net.faults.push(TimedFault { at_ns, fault });
        }
        together
    }

    /// Runs it, and each link alone.
    #[must_use]
    pub fn measure(&self) -> Measured {
        let alone = self.links.wires.iter().map(|w| run(&self.scenario(&[*w]), Watch::default())).collect();
        Measured { all: run(&self.together(), Watch::default()), alone }
    }

    /// Many times as fast as the best link alone.
    #[must_use]
    pub fn ratio(&self, m: &Measured) -> f64 {
        let speed = |r: &Report| match self.kind {
            Kind::Stream => r.goodput_bits_per_s(),
            Kind::PingPong => 1e9 / r.quantile_ns(0.5).max(1) as f64,
        };
        speed(&m.all) / m.alone.iter().map(speed).fold(0.0, f64::max)
    }
}

/// One line for each.
#[must_use]
pub fn table(lines: &[Line], measured: &[Measured]) -> String {
    let mut s = format!(
        "{:<13} {:<9} {:>6} {:>6} {:>8} {:>9} {:>9} {:>7} {:>6} {:>5}\n",
        "links", "", "bytes", "ratio", "Mbit/s", "median", "max", "resent", "spur", "pto"
    );
    for (l, m) in lines.iter().zip(measured) {
        let r = &m.all;
        let _ = write!(
            s,
            "{} {:>6.2} {:>8.1} {:>9} {:>9} {:>6.1}% {:>6} {:>5}",
            l.name(),
            l.ratio(m),
            r.goodput_bits_per_s() / 1e6,
            time(r.quantile_ns(0.5)),
            time(r.quantile_ns(1.0)),
            r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64,
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
