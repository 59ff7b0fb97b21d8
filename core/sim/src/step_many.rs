//! Supersteps of many processes: whether h g + l still says how long they take, with l and g as
//! they are measured among as many.

use std::fmt::Write as _;

use weir_superstep::cost;

use crate::run::{Report, Watch, run};
use crate::scenario::EndpointSpec;
use crate::step_table::{Steps, star};
use crate::table::{Point, Wire, time};
use crate::work::supersteps::{Bsp, Relation, Uses};

/// Supersteps of one kind among as many processes, in several lengths.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// How many processes.
    pub processes: u32,
    /// The same without payload, then in ascending lengths.
    pub points: Vec<Point>,
}

/// What came of one.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Of each point.
    pub reports: Vec<Report>,
    /// Of each point: the mean h, bytes, and the mean time, nanoseconds.
    pub means: Vec<(f64, f64)>,
    /// l, nanoseconds, measured without payload.
    pub l_ns: f64,
    /// g, nanoseconds a byte: a line through the lengths, from l on.
    pub g_ns: f64,
}

/// Supersteps of each length; the first two of them are not looked at.
const STEPS: u32 = 5;

impl Series {
    /// Such supersteps on a star of 1 Gbit/s whose queues hold 64 packets.
    #[must_use]
    pub fn new(name: &str, processes: u32, relations: &[Relation]) -> Series {
        let endpoint = EndpointSpec::default();
        let point = |relation: Relation| {
            let bsp = Bsp { steps: STEPS, relation, compute_ns: 0, uses: Uses::ALL };
            star(name, Wire::GIGABIT, processes, &endpoint, bsp)
        };
        let points = std::iter::once(Relation::Total(0)).chain(relations.iter().copied()).map(point).collect();
        Series { name: name.into(), processes, points }
    }

    /// Runs them.
    #[must_use]
    pub fn measure(&self) -> Measured {
        let reports: Vec<Report> = self.points.iter().map(|p| run(&p.scenario, Watch::default())).collect();
        let means: Vec<(f64, f64)> = self.points.iter().zip(&reports).map(|(p, r)| means(p, r)).collect();
        let l_ns = means.first().map_or(0.0, |m| m.1);
        let g_ns = cost::fit(&means).map_or(0.0, |(_, g)| g);
        Measured { reports, means, l_ns, g_ns }
    }
}

fn means(p: &Point, r: &Report) -> (f64, f64) {
    let steps = Steps::of(p, r);
    let h = steps.h.iter().sum::<u64>() as f64 / steps.h.len().max(1) as f64;
    (h, steps.mean_ns())
}

impl Measured {
    /// The mean time of a length over h g + l.
    #[must_use]
    pub fn over_model(&self, nth: usize) -> f64 {
        self.means.get(nth).map_or(0.0, |(h, t)| t / (h * self.g_ns + self.l_ns))
    }
}

/// The series of `weir-sim table many`: total exchanges and random sparse relations. `big`: of 1024
/// processes too where each sends to each.
#[must_use]
pub fn series(big: bool) -> Vec<Series> {
    let total = |p: u32, lens: &[u64]| {
        Series::new(&format!("total x {p}"), p, &lens.iter().map(|len| Relation::Total(*len)).collect::<Vec<_>>())
    };
    let sparse = |p: u32, degree: u32, most: &[u64]| {
        let of = |most: &u64| Relation::Sparse { degree, bytes: (most / 16, *most) };
        Series::new(&format!("sparse x {p}, {degree} each"), p, &most.iter().map(of).collect::<Vec<_>>())
    };
    let mut all = vec![total(64, &[1 << 10, 4 << 10]), sparse(1024, 4, &[8 << 10, 32 << 10])];
    if big {
        all.push(total(256, &[1 << 10, 4 << 10]));
        all.push(total(1024, &[1 << 10, 2 << 10]));
    }
    all
}

/// Writes a line for each length.
#[must_use]
pub fn table(series: &[Series], measured: &[Measured]) -> String {
    let width = series.iter().map(|s| s.name.len()).max().unwrap_or(0).max(8);
    let mut s = format!(
        "{:<width$} {:>10} {:>10} {:>7} {:>10} {:>8} {:>10} {:>6} {:>7} {:>6} {:>6}\n",
        "supersteps", "mean h", "mean", "sd/mean", "l", "g, ns/B", "over model", "% wire", "dropped", "resent", "pto"
    );
    for (one, m) in series.iter().zip(measured) {
        for (nth, (p, r)) in one.points.iter().zip(&m.reports).enumerate() {
            let steps = Steps::of(p, r);
            let (h, mean) = m.means[nth];
            let over = if nth == 0 { String::new() } else { format!("{:.3}", m.over_model(nth)) };
            let _ = write!(
                s,
                "{:<width$} {:>10} {:>10} {:>6.1}% {:>10} {:>8.3} {over:>10} {:>6.1} {:>7} {:>5.1}% {:>6}",
                one.name,
                format!("{h:.0}"),
                time(mean as u64),
                steps.variation() * 100.0,
                time(m.l_ns as u64),
                m.g_ns,
                steps.of_wire(p.wire_bits_per_s) * 100.0,
                r.net.switch_full + r.net.lost + r.net.socket_full,
                r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64,
                r.probe_timeouts,
            );
            if let Some(v) = &r.violation {
                let _ = write!(s, "  VIOLATION {}: {}", v.kind, v.detail);
            }
            s.push('\n');
        }
    }
    s
}
