//! Bugs the swarm found, as the smallest scenarios that show them.

use weir_sim::run::{Watch, run};
use weir_sim::scenario::{EndpointSpec, Scenario};
use weir_sim::spec::*;
use weir_sim::table::{Wire, measure, point};
use weir_sim::work::Workload;
use weir_sim::work::traffic::{Kind, Planned, Traffic};

fn message(from: HostId, to: HostId, len: u64) -> Planned {
    Planned {
        from,
        to,
        send_at_ns: 0,
        receive_at_ns: 0,
        kind: Kind::Exact,
        tag: 1,
        len,
        sync: false,
        room: u64::MAX,
        phase: 0,
    }
}

#[test]
fn an_opener_that_never_sees_accept_is_not_declared_dead() {
    let mut net = NetSpec::single(2, NetworkSpec::default());
    // After COOKIE (17 us) and before ACCEPT (35 us), for longer than the peer timeout.
    let cut = |at_ns, fault| TimedFault { at_ns, fault };
    net.faults.push(cut(20 * US, Fault::Cut { host: 1, net: 0, direction: Direction::Down }));
    net.faults.push(cut(6500 * MS, Fault::Heal { host: 1, net: 0, direction: Direction::Down }));
    let work = Workload::Traffic(Traffic { messages: vec![message(1, 0, 1000)], ..Traffic::default() });
    let mut s = Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work };
    assert!(s.silence_kills(), "the checker would excuse any verdict");
    // Split the cut in the checker's eyes: the opener is heard all the time.
    s.net.faults.insert(1, cut(4 * SEC, Fault::Heal { host: 1, net: 0, direction: Direction::Up }));
    assert!(!s.silence_kills());
    let r = run(&s, Watch::default());
    assert_eq!(r.violation, None);
    assert_eq!(r.message_ns.len(), 1);
    assert!(r.finished_ns > 6500 * MS, "the cut came too late to matter: done at {} ns", r.finished_ns);
}

#[test]
fn a_thousand_openers_do_not_knock_in_step() {
    let wire = Wire { queue_packets: 64, ..Wire::GIGABIT };
    let work = Workload::Incast { len: 1000, count: 1, window: 1 };
    let r = measure(&point("openers".into(), wire, 1001, &EndpointSpec::default(), work));
    assert_eq!(r.violation, None);
    assert!(r.finished_ns < 500 * MS, "1000 handshakes took {} ms; in step they took seconds", r.finished_ns / MS);
}

#[test]
fn many_starved_bodies_do_not_make_the_receiver_spin() {
    // More bodies than the grant budget feeds, from peers that are cut off: their turns pass unanswered.
    let mut net = NetSpec::single(6, NetworkSpec::default());
    for host in 1..6 {
        net.faults.push(TimedFault { at_ns: MS, fault: Fault::Cut { host, net: 0, direction: Direction::Up } });
        net.faults.push(TimedFault { at_ns: 200 * MS, fault: Fault::Heal { host, net: 0, direction: Direction::Up } });
    }
    let messages = (1..6).flat_map(|h| (0..4).map(move |i| message(h, 0, (i + 1) << 18))).collect();
    let endpoint = EndpointSpec { grant_budget: 64 << 10, ..EndpointSpec::default() };
    let s = Scenario { seed: 1, net, endpoint, work: Workload::Traffic(Traffic { messages, ..Traffic::default() }) };
    let r = run(&s, Watch::default());
    assert_eq!(r.violation, None);
    assert_eq!(r.message_ns.len(), 20);
}
