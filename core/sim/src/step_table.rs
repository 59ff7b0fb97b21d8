//! Tables of supersteps: how long each took, how much that varies, and how it compares with h g +
//! l.

use std::fmt::Write as _;

use crate::run::{Report, Watch, run};
use crate::scenario::EndpointSpec;
use crate::spec::{LinkSpec, NetSpec, NetworkSpec, Ns, SwitchSpec, Topology, US};
use crate::table::{Wire, point, time};
use crate::work::Workload;
use crate::work::supersteps::{Bsp, Relation, Uses};

pub use crate::table::Point;

/// Supersteps that are not looked at: associations are made in the first, and paths are learnt.
pub const WARM_UP: usize = 2;

/// What the supersteps of a run took.
#[derive(Clone, PartialEq, Debug)]
pub struct Steps {
    /// Each after the first ones: from the end of the one before at the last process to its end at
    /// the last.
    pub took_ns: Vec<Ns>,
    /// The h of each, bytes.
    pub h: Vec<u64>,
}

impl Steps {
    /// Of a run of such work.
    #[must_use]
    pub fn of(p: &Point, r: &Report) -> Steps {
        let Workload::Bsp(b) = p.scenario.work else { return Steps { took_ns: Vec::new(), h: Vec::new() } };
        let ends = &r.superstep_ends;
        let took_ns = ends.windows(2).map(|w| w[1].1 - w[0].1).skip(WARM_UP).collect();
        let hosts = p.scenario.net.hosts;
        let h = (1..b.steps).map(|s| b.h(s, hosts, p.scenario.seed)).skip(WARM_UP).collect();
        Steps { took_ns, h }
    }

    /// The `q` quantile.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Ns {
        let mut all = self.took_ns.clone();
        all.sort_unstable();
        let at = ((all.len() as f64 * q).ceil() as usize).clamp(1, all.len().max(1)) - 1;
        all.get(at).copied().unwrap_or(0)
    }

    /// Mean, nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.took_ns.iter().sum::<Ns>() as f64 / self.took_ns.len().max(1) as f64
    }

    /// Standard deviation over mean.
    #[must_use]
    pub fn variation(&self) -> f64 {
        let mean = self.mean_ns();
        let squares: f64 = self.took_ns.iter().map(|t| (*t as f64 - mean).powi(2)).sum();
        (squares / self.took_ns.len().saturating_sub(1).max(1) as f64).sqrt() / mean.max(1.0)
    }

    /// Time over h g + l, on average; g from the wire, nanoseconds a byte.
    #[must_use]
    pub fn over_model(&self, g: f64, l_ns: f64) -> f64 {
        let model: f64 = self.h.iter().map(|h| *h as f64 * g + l_ns).sum();
        self.took_ns.iter().sum::<Ns>() as f64 / model.max(1.0)
    }

    /// Share of the wire of the busiest process that is payload.
    #[must_use]
    pub fn of_wire(&self, wire_bits_per_s: f64) -> f64 {
        let bytes: u64 = self.h.iter().sum();
        bytes as f64 * 8e9 / self.took_ns.iter().sum::<Ns>().max(1) as f64 / wire_bits_per_s
    }
}

/// A point of supersteps on a star.
#[must_use]
pub fn star(name: &str, wire: Wire, hosts: u32, endpoint: &EndpointSpec, bsp: Bsp) -> Point {
    point(name.into(), wire, hosts, endpoint, Workload::Bsp(bsp))
}

/// A point of supersteps on a bus of 10 Mbit/s that all hosts share: one packet at a time, the
/// hosts in turn. Each has a queue of so many packets for it, and what finds that full is lost.
/// With `collisions` they have no turns, collide and back off.
#[must_use]
pub fn bus(name: &str, hosts: u32, queue_packets: u32, collisions: bool, endpoint: &EndpointSpec, bsp: Bsp) -> Point {
    let wire = Wire { rate_bits_per_s: 10_000_000, ..Wire::GIGABIT };
    let up = LinkSpec { rate_bits_per_s: wire.rate_bits_per_s, delay_ns: 0, ..LinkSpec::default() };
    let down = LinkSpec { rate_bits_per_s: 0, delay_ns: 5 * US, ..LinkSpec::default() };
    let switch = SwitchSpec { port_packets: queue_packets, ..SwitchSpec::default() };
    let topology = if collisions { Topology::CollidingBus } else { Topology::Bus };
    let net = NetworkSpec { topology, up, down, switch, ..NetworkSpec::default() };
    let mut p = point(name.into(), wire, hosts, endpoint, Workload::Bsp(bsp));
    p.scenario.net = NetSpec::single(hosts, net);
    // All share it.
    p.wire_bits_per_s /= f64::from(hosts);
    p
}

/// The points of `weir-sim table supersteps`: what the plan is worth on a star of 1 Gbit/s with
/// queues of 64 packets, at no loss and 1 %, and on a bus of 10 Mbit/s, without collisions and
/// with, with slots and without.
#[must_use]
pub fn points(endpoint: &EndpointSpec, steps: u32) -> Vec<Point> {
    let bsp = |relation, uses| Bsp { steps, relation, compute_ns: 0, uses };
    let untold = Uses { told: false, ..Uses::ALL };
    let mut points = Vec::new();
    for (name, relation) in [
        ("total 8 x 64K", Relation::Total(64 << 10)),
        ("total 8 x 256K", Relation::Total(256 << 10)),
        ("total 8 x 1M", Relation::Total(1 << 20)),
        ("shift 8 x 1M", Relation::Shift(1 << 20)),
        ("sparse 8 x 3 x 1..100K", Relation::Sparse { degree: 3, bytes: (1 << 10, 100 << 10) }),
        ("to one 8 x 256K", Relation::ToOne(256 << 10)),
    ] {
        for (what, uses) in [("told", Uses::ALL), ("untold", untold)] {
            for loss_ppm in [0, 10_000] {
                let wire = Wire { loss_ppm, ..Wire::GIGABIT };
                let name = format!("{name:<22} {what:<6} {} %", loss_ppm / 10_000);
                points.push(star(&name, wire, 8, endpoint, bsp(relation, uses)));
            }
        }
    }
    for p in [2, 4, 6, 8] {
        for slot_us in [0, 1250] {
            let uses = Uses { slot_ns: slot_us * US, ..Uses::ALL };
            let name = format!("bus, shift {p} x 100000   slot {slot_us:>4} us");
            points.push(bus(&name, p, 64, false, endpoint, bsp(Relation::Shift(100_000), uses)));
        }
    }
    for p in [2, 4, 6, 8] {
        for slot_us in [0, 1250, 1500] {
            let uses = Uses { slot_ns: slot_us * US, ..Uses::ALL };
            let name = format!("csma-cd, shift {p} x 100K slot {slot_us:>4} us");
            points.push(bus(&name, p, 64, true, endpoint, bsp(Relation::Shift(100_000), uses)));
        }
    }
    points
}

/// Runs a point, and the same without payload for l.
#[must_use]
pub fn measure(p: &Point) -> (Report, f64) {
    let mut empty = p.clone();
    if let Workload::Bsp(b) = &mut empty.scenario.work {
        (b.relation, b.steps) = (Relation::Total(0), b.steps.min(6));
    }
    let l = Steps::of(p, &run(&empty.scenario, Watch::default())).mean_ns();
    (run(&p.scenario, Watch::default()), l)
}

/// Writes one line for each.
#[must_use]
pub fn table(points: &[Point], measured: &[(Report, f64)]) -> String {
    let width = points.iter().map(|p| p.name.len()).max().unwrap_or(0).max(8);
    let mut s = format!(
        "{:<width$} {:>6} {:>10} {:>10} {:>7} {:>10} {:>10} {:>6} {:>7} {:>6} {:>5}\n",
        "supersteps", "% wire", "median", "max", "sd/mean", "l", "over model", "spread", "dropped", "resent", "pto"
    );
    for (p, (r, l)) in points.iter().zip(measured) {
        let steps = Steps::of(p, r);
        let g = 8e9 / p.wire_bits_per_s;
        let spread = r.superstep_ends.iter().skip(WARM_UP + 1).map(|(first, last)| last - first).max().unwrap_or(0);
        let _ = write!(
            s,
            "{:<width$} {:>6.1} {:>10} {:>10} {:>6.1}% {:>10} {:>10.3} {:>6} {:>7} {:>5.1}% {:>5}",
            p.name,
            steps.of_wire(p.wire_bits_per_s) * 100.0,
            time(steps.quantile_ns(0.5)),
            time(steps.quantile_ns(1.0)),
            steps.variation() * 100.0,
            time(*l as Ns),
            steps.over_model(g, *l),
            time(spread),
            r.net.switch_full + r.net.lost + r.net.socket_full + r.net.given_up,
            r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64,
            r.probe_timeouts,
        );
        if r.net.collisions > 0 {
            let _ = write!(s, "  {} collisions, {} given up", r.net.collisions, r.net.given_up);
        }
        if let Some(v) = &r.violation {
            let _ = write!(s, "  VIOLATION {}: {}", v.kind, v.detail);
        }
        s.push('\n');
    }
    s
}
