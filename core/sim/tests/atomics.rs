//! Atomic operations in the simulator: counters to which each addition counts once, whatever is
//! lost, doubled, cut or gone.

use weir_sim::planted::Defect;
use weir_sim::rank::RemoteOp;
use weir_sim::run::{Report, Watch, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::*;
use weir_sim::work::Workload;
use weir_sim::work::traffic::{PlannedRemote, Traffic};

const ADD: RemoteOp = RemoteOp { to: 0, read: true, at: 0, len: 8, notice: false, wrong: false, add: true };

/// The hosts 1 and up of `hosts` add to counters of host 0, `each` times at intervals of a tenth of
/// a millisecond, over two networks where much is lost, doubled and late.
fn scenario(seed: u64, hosts: u32, each: u64, faults: &[(Ns, Fault)]) -> Scenario {
    let link = LinkSpec {
        rate_bits_per_s: 1_000_000_000,
        delay_ns: 50 * US,
        loss: 50_000,
        duplicate: 50_000,
        duplicate_ns: 2 * MS,
        reorder: 50_000,
        reorder_ns: MS,
        ..LinkSpec::default()
    };
    let network = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    let mut net = NetSpec::single(hosts, network.clone());
    net.networks.push(network);
    net.faults = faults.iter().map(|(at_ns, fault)| TimedFault { at_ns: *at_ns, fault: *fault }).collect();
    let planned = |i: u64| PlannedRemote {
        from: 1 + (i % u64::from(hosts - 1)) as u32,
        at_ns: i * 100 * US,
        phase: 0,
        op: RemoteOp { at: 8 * (i % 3), read: !i.is_multiple_of(4), ..ADD },
    };
    let remote = (0..each * u64::from(hosts - 1)).map(planned).collect();
    let work = Workload::Traffic(Traffic { remote, ..Traffic::default() });
    Scenario { seed, net, endpoint: EndpointSpec::default(), work }
}

fn kept(s: &Scenario) -> Report {
    let r = run(s, Watch::default());
    assert_eq!(r.violation, None, "seed {}", s.seed);
    r
}

#[test]
fn whatever_is_lost_doubled_or_late_each_addition_counts_once() {
    for seed in 0..10 {
        let r = kept(&scenario(seed, 4, 200, &[]));
        assert_eq!(r.atomics, 600);
        assert!(r.packets_lost > 10, "{}", r.packets_lost);
    }
}

#[test]
fn each_counts_once_when_paths_are_cut_and_mended() {
    let cut = |host, net| Fault::Cut { host, net, direction: Direction::Both };
    let heal = |host, net| Fault::Heal { host, net, direction: Direction::Both };
    for seed in 0..10 {
        let faults = [
            (5 * MS, cut(0, 0)),
            (30 * MS, heal(0, 0)),
            (31 * MS, cut(0, 1)),
            (40 * MS, cut(1, 0)),
            (60 * MS, heal(0, 1)),
            (61 * MS, heal(1, 0)),
        ];
        assert_eq!(kept(&scenario(seed, 3, 300, &faults)).atomics, 600);
    }
}

#[test]
fn of_a_host_that_died_it_is_not_known_but_none_counts_twice() {
    for seed in 0..10 {
        let faults = [(10 * MS, Fault::Crash { host: 0 }), (SEC, Fault::Restart { host: 0 })];
        let mut s = scenario(seed, 3, 200, &faults);
        let Workload::Traffic(t) = &mut s.work else { unreachable!() };
        (t.phase_ns, t.forget_ns, t.crashing) = (9 * SEC, 9 * SEC, vec![0]);
        // What was executed died with its memory; those who asked are told that it failed, or that
        // it was done.
        kept(&s);
    }
}

#[test]
fn those_that_name_no_region_are_refused_and_count_nowhere() {
    let mut s = scenario(1, 2, 50, &[]);
    let Workload::Traffic(t) = &mut s.work else { unreachable!() };
    t.remote.iter_mut().step_by(2).for_each(|r| r.op.wrong = true);
    assert_eq!(kept(&s).atomics, 25);
}

#[test]
fn the_swarm_adds_beside_its_messages() {
    let (mut executed, mut with) = (0, 0);
    for seed in 0..60 {
        let s = Scenario::draw(seed, Profile::All);
        let planned = if let Workload::Traffic(t) = &s.work { t.remote.iter().filter(|r| r.op.add).count() } else { 0 };
        with += u64::from(planned > 0);
        executed += kept(&s).atomics;
    }
    assert!((15..=40).contains(&with), "{with} of 60 seeds add");
    assert!(executed > 1000, "{executed}");
}

fn with(defect: Defect) -> Option<&'static str> {
    let watch = Watch { planted: Some(defect), ..Watch::default() };
    run(&scenario(1, 4, 200, &[]), watch).violation.map(|v| v.kind)
}

#[test]
fn an_addition_that_is_executed_twice_is_found() {
    assert_eq!(with(Defect::AddedTwice), Some("exactly-once"));
}

#[test]
fn an_answer_that_never_comes_is_found() {
    assert_eq!(with(Defect::AnswerDropped), Some("liveness"));
}
