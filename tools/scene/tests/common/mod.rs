//! A scene as a prediction of Jacobi would give it, with a made-up run.

use weir_scene::{Arrow, Bar, Collector, Doing, LineLoss, Point, Scene, Timeline};

/// Names of causes as the predictor has them.
const CAUSES: [&str; 9] = [
    "computation",
    "imbalance",
    "synchronisation",
    "latency",
    "bandwidth",
    "contention",
    "retransmission",
    "serialisation",
    "overhead",
];

pub fn scene() -> Scene {
    let points = [1u32, 2, 4, 8, 16].map(point);
    Scene {
        title: "jacobi on cluster".into(),
        facts: vec![("Machine".into(), "run1".into()), ("Runs".into(), "40 for each number of processes".into())],
        notices: vec!["1 KiB lies between measured sizes 512 B and 2 KiB".into()],
        points: points.into(),
        failed: vec![(3, "program.c:7: deadlock <of> 3".into())],
        timeline: Some(timeline(8, 40)),
    }
}

fn point(numprocs: u32) -> Point {
    let n = f64::from(numprocs);
    let median_s = 3.0 / n + 0.05 * n.sqrt();
    let share = |i: usize| {
        if numprocs == 1 { f64::from(i == 0) } else { [0.5, 0.08, 0.06, 0.12, 0.1, 0.05, 0.02, 0.04, 0.03][i] }
    };
    Point {
        numprocs,
        median_s,
        low_s: median_s * 0.96,
        high_s: median_s * 1.07,
        times_s: (0..40).map(|i| median_s * (0.95 + 0.003 * f64::from(i * i % 37))).collect(),
        causes: CAUSES.iter().enumerate().map(|(i, name)| ((*name).to_owned(), share(i) * median_s * n)).collect(),
        lines: vec![
            LineLoss {
                place: "jacobi.c:41".into(),
                text: "  MPI_Recv(<row>)".into(),
                causes: vec![("latency".into(), 0.12 * n), ("bandwidth".into(), 0.1 * n)],
            },
            LineLoss {
                place: "jacobi.c:52".into(),
                text: "  MPI_Send(row)".into(),
                causes: vec![("overhead".into(), 0.03 * n)],
            },
        ],
    }
}

/// Each process computes, sends to the next and waits for the one before.
pub fn timeline(numprocs: u32, rounds: u32) -> Timeline {
    let mut collector = Collector::new(weir_scene::timeline::MOST_IN_A_PAGE);
    for round in 0..rounds {
        for process in 0..numprocs {
            let begin = f64::from(round) * 100_000.0;
            let work = 60_000.0 + f64::from(process) * 1500.0;
            let steps = [
                (work, Doing::Compute, 0),
                (4000.0, Doing::Send, 1),
                (30_000.0 - f64::from(process) * 1500.0, Doing::Wait, 2),
                (6000.0, Doing::Receive, 2),
            ];
            let mut at = begin;
            for (took, doing, place) in steps {
                collector.bar(Bar { process, start_ns: at, end_ns: at + took, doing, place });
                at += took;
            }
            let to = (process + 1) % numprocs;
            collector.arrow(Arrow {
                from: process,
                to,
                bytes: 1024,
                sent_ns: begin + work,
                received_ns: begin + 94_000.0,
                place: 1,
            });
        }
    }
    let places = ["jacobi.c:60", "jacobi.c:52", "jacobi.c:41"].map(str::to_owned);
    collector.finish(numprocs, f64::from(rounds) * 100_000.0, places.into())
}
