//! The table of marks (ECN): many to one through a port that marks or does not, over fan-in,
//! message and queue.

use std::fmt::Write as _;

use crate::run::Report;
use crate::scenario::EndpointSpec;
use crate::spec::{MS, Ns, US};
use crate::table::{Point, Wire, longest_gap_ns, point, size, time};
use crate::work::Workload;

/// A port: packets that it takes, and how many that wait make it mark.
pub type Port = (u32, Option<u32>);

/// What `weir-sim table marks` shows. A mark is to be at a seventh of what the wires hold at least
/// (RFC 8257, 4): over 1 ms at 23 packets of full length.
#[must_use]
pub fn all(endpoint: &EndpointSpec) -> Vec<Point> {
    let (senders, lens) = (&[8, 16, 32][..], &[30_000, 64 << 10, 1 << 20]);
    let short = [(256, None), (128, None), (128, Some(32)), (64, None), (64, Some(20))];
    let long = [(256, None), (128, None), (128, Some(32))];
    let mut all = points(endpoint, (senders, &[10 * US]), lens, &short, 2 << 20);
    all.extend(points(endpoint, (senders, &[MS]), lens, &long, 2 << 20));
    all
}

/// `senders` to one, over delays one way, message sizes and ports.
#[must_use]
pub fn points(
    endpoint: &EndpointSpec,
    (senders, delays_ns): (&[u32], &[Ns]),
    lens: &[u64],
    ports: &[Port],
    bytes_each: u64,
) -> Vec<Point> {
    let mut points = Vec::new();
    for (&delay_ns, &n) in delays_ns.iter().flat_map(|d| senders.iter().map(move |n| (d, n))) {
        for &len in lens {
            for &(queue_packets, mark_packets) in ports {
                let wire = Wire { delay_ns, queue_packets, mark_packets, ..Wire::GIGABIT };
                let count = (bytes_each / len).max(1) as u32;
                let mark = mark_packets.map_or("no mark".into(), |k| format!("mark at {k}"));
                let us = delay_ns / US;
                let name = format!("{n:>2}:1 {:>5} {us:>4} us queue {queue_packets:>3} {mark}", size(len));
                points.push(point(name, wire, n + 1, endpoint, Workload::Incast { len, count, window: 2 }));
            }
        }
    }
    points
}

/// One line for each. "longest" is the queue in packets, "gap" the longest time without a message,
/// "told" the marks of which senders heard; "windows" and "grants" count what was made smaller for
/// them.
#[must_use]
pub fn table(points: &[Point], reports: &[Report]) -> String {
    let width = points.iter().map(|p| p.name.len()).max().unwrap_or(0).max(8);
    let mut s = format!(
        "{:<width$} {:>6} {:>10} {:>10} {:>10} {:>7} {:>7} {:>6} {:>7} {:>7} {:>7} {:>6} {:>5}\n",
        "point",
        "% wire",
        "median",
        "p99",
        "gap",
        "longest",
        "dropped",
        "resent",
        "marked",
        "told",
        "windows",
        "grants",
        "pto"
    );
    for (p, r) in points.iter().zip(reports) {
        let [told, windows, grants] = r.marks;
        let _ = write!(
            s,
            "{:<width$} {:>6.1} {:>10} {:>10} {:>10} {:>7} {:>7} {:>5.1}% {:>7} {:>7} {:>7} {:>6} {:>5}",
            p.name,
            r.goodput_bits_per_s() * 100.0 / p.wire_bits_per_s,
            time(r.quantile_ns(0.5)),
            time(r.quantile_ns(0.99)),
            time(longest_gap_ns(r)),
            r.net.deepest_queue,
            r.net.switch_full + r.net.lost + r.net.socket_full,
            r.bytes_resent as f64 * 100.0 / r.bytes.max(1) as f64,
            r.net.marked,
            told,
            windows,
            grants,
            r.probe_timeouts
        );
        if let Some(v) = &r.violation {
            let _ = write!(s, "  VIOLATION {}: {}", v.kind, v.detail);
        }
        s.push('\n');
    }
    s
}
