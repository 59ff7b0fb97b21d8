//! A server and its clients (`spec/bmi.md`), the small table kept as a snapshot.
//! `INSTA_UPDATE=always cargo test -p weir-sim --test service` accepts a new one;
//! `weir-sim table service` prints the large one.

use weir_sim::service_table::{all_faults, measure, points, quantile_ns, round_points, round_table, shares, table};
use weir_sim::spec::{Fault, MS, SEC};
use weir_sim::work::Workload;

/// p99 over fan-in x queue x loss.
#[test]
fn service() {
    let points = points(&[16, 64, 256], &[32, 64, 256], &[0, 10_000], 10_000, 4);
    let reports: Vec<_> = points.iter().map(measure).collect();
    for (p, r) in points.iter().zip(&reports) {
        assert_eq!(r.violation, None, "{}", p.name);
        let Workload::Service(s) = p.scenario.work else { panic!("it is one") };
        let hosts = p.scenario.net.hosts - 1;
        assert_eq!(r.answer_ns.len() as u32, hosts * s.requests, "{}", p.name);
        // No round of answers takes what one of TCP's timers would: the wire needs 0.1 ms for each
        // client.
        let limit = u64::from(hosts) * MS + 200 * MS;
        assert!(quantile_ns(r, 0.99) < limit, "{}: p99 {} ns", p.name, quantile_ns(r, 0.99));
    }
    insta::assert_snapshot!("service", table(&points, &reports));
}

/// 1 000 clients and everything that can go wrong: each operation ends once (the checkers of every
/// run say so), the server lives and answers all who live, and holds no more than its budget.
#[test]
fn a_thousand_clients_and_all_faults() {
    let p = all_faults(1000, 1);
    let r = measure(&p);
    assert_eq!(r.violation, None, "{:#?}", r.story);
    let Workload::Service(s) = p.scenario.work else { panic!("it is one") };
    let unharmed = (1..=1000u32).filter(|host| {
        let ends = |f: &Fault| matches!(*f, Fault::Crash { host: h } | Fault::Leave { host: h } if h == *host);
        !p.scenario.net.faults.iter().any(|f| ends(&f.fault))
    });
    assert!(r.answer_ns.len() >= unharmed.count() * s.requests as usize, "{} answers", r.answer_ns.len());
    // Those who die harm nobody else: nearly all are answered before anybody is known to be dead.
    assert!(quantile_ns(&r, 0.99) < 5 * SEC, "p99 {} ns", quantile_ns(&r, 0.99));
    let e = &p.scenario.endpoint;
    assert!(r.held_bytes > 0 && r.held_bytes <= e.unexpected_bytes + 1000 * e.credit_bytes, "{} bytes", r.held_bytes);
}

/// The same work and faults from another seed end as well, and the run repeats bit by bit.
#[test]
fn all_faults_of_other_seeds() {
    for seed in 2..6 {
        let p = all_faults(60, seed);
        let (r, again) = (measure(&p), measure(&p));
        assert_eq!(r.violation, None, "seed {seed}: {:#?}", r.story);
        assert_eq!((r.hash, r.answer_ns), (again.hash, again.answer_ns), "seed {seed}");
    }
}

/// All are served alike in each round, whoever asked first; the server's interface drops nothing.
#[test]
fn rounds_of_many() {
    let points = round_points();
    let reports: Vec<_> = points.iter().map(measure).collect();
    for (p, r) in points.iter().zip(&reports) {
        assert_eq!(r.violation, None, "{}", p.name);
        let all = shares(p, r);
        assert_eq!(all.len(), 4, "{}", p.name);
        for of in all {
            assert!(of.spread() < 1.5 && of.jain > 0.98, "{}: {of:?}", p.name);
        }
    }
    insta::assert_snapshot!("rounds", round_table(&points, &reports));
}
