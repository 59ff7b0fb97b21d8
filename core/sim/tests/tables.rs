//! Small tables, kept as snapshots: a change of the protocol's timing or congestion control shows as a diff of numbers.
//! `cargo insta review`, or `INSTA_UPDATE=always cargo test -p weir-sim --test tables`, accepts new ones.

use weir_sim::scenario::EndpointSpec;
use weir_sim::spec::{MS, US};
use weir_sim::table::{self, Point, Wire, table};
use weir_sim::work::Workload;
use weir_sim::work::farm::Farm;

fn snapshot(name: &str, points: &[Point]) {
    let reports: Vec<_> = points.iter().map(table::measure).collect();
    for (p, r) in points.iter().zip(&reports) {
        assert_eq!(r.violation, None, "{}", p.name);
    }
    insta::assert_snapshot!(name, table(points, &reports));
}

#[test]
fn incast() {
    let e = EndpointSpec::default();
    snapshot("incast", &table::incast_points(&e, &[8, 32], &[64 << 10, 1 << 20], &[64], 2 << 20));
}

#[test]
fn ping_pong() {
    let e = EndpointSpec::default();
    let losses = [0, 10_000];
    snapshot("ping_pong", &table::ping_pong_points(&e, &[10 * US, MS, 10 * MS], &losses, &[8, 30_000, 300_000], 50));
}

#[test]
fn stream() {
    let e = EndpointSpec::default();
    snapshot("stream", &table::stream_points(&e, &[10 * US, MS], &[0, 10_000], &[64, 1000], 16 << 20));
}

#[test]
fn reno_beside() {
    let e = EndpointSpec { reno: true, ..EndpointSpec::default() };
    let mut points = table::incast_points(&e, &[8], &[64 << 10], &[64], 2 << 20);
    points.extend(table::ping_pong_points(&e, &[MS], &[0, 10_000], &[30_000], 50));
    snapshot("reno", &points);
}

#[test]
fn collective_work() {
    let e = EndpointSpec::default();
    let mut points = Vec::new();
    for loss_ppm in [0, 20_000] {
        let wire = Wire { loss_ppm, queue_packets: 64, ..Wire::GIGABIT };
        let percent = f64::from(loss_ppm) / 1e4;
        let exchange = Workload::AllToAll { len: 30_000, rounds: 4 };
        points.push(table::point(format!("all-to-all 8 x 30000, {percent} %"), wire, 8, &e, exchange));
        let supersteps = Workload::Superstep { steps: 8, len: (100, 100_000), compute_ns: 200 * US };
        points.push(table::point(format!("superstep 8 x 100..100000, {percent} %"), wire, 8, &e, supersteps));
        for tags in [1, 10] {
            let farm = Farm {
                tasks: 210,
                task_bytes: 30_000,
                result_bytes: 100,
                fan_out: 2,
                tags,
                compute_ns: 300 * US,
                named: false,
            };
            points.push(table::point(
                format!("farm of 7, {tags} tags, {percent} %"),
                wire,
                8,
                &e,
                Workload::Farm(farm),
            ));
        }
    }
    snapshot("collective", &points);
}

/// What streams are worth: one for all tagged messages against ten.
#[test]
fn streams() {
    let mut points = Vec::new();
    for (delay_ns, loss_ppm) in [(50 * US, 0), (50 * US, 20_000), (MS, 0), (MS, 20_000)] {
        let wire = Wire { delay_ns, loss_ppm, ..Wire::GIGABIT };
        for named in [false, true] {
            for streams in [1, 10] {
                let e = EndpointSpec { streams, ..EndpointSpec::default() };
                let farm = Farm {
                    tasks: 2000,
                    task_bytes: 30_000,
                    result_bytes: 64,
                    fan_out: 10,
                    tags: 10,
                    compute_ns: 300 * US,
                    named,
                };
                let name = format!(
                    "farm of 3, {} tags, {streams:>2} streams, {:>4} us, {} %",
                    if named { "named" } else { "any  " },
                    delay_ns / US,
                    f64::from(loss_ppm) / 1e4
                );
                points.push(table::point(name, wire, 4, &e, Workload::Farm(farm)));
            }
        }
        for streams in [1, 10] {
            let e = EndpointSpec { streams, ..EndpointSpec::default() };
            let name =
                format!("stream 1000, {streams:>2} streams, {:>4} us, {} %", delay_ns / US, f64::from(loss_ppm) / 1e4);
            let work = Workload::Stream { len: (1000, 1000), count: 5000, tags: 10, window: 64 };
            points.push(table::point(name, wire, 2, &e, work));
        }
    }
    snapshot("streams", &points);
}
