//! Bugs the swarm found, as the smallest scenarios that show them.

use weir_sim::check::liveness::patience;
use weir_sim::run::{Watch, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::*;
use weir_sim::table::{Wire, measure, point};
use weir_sim::work::Workload;
use weir_sim::work::traffic::{Planned, Traffic};

fn message(from: HostId, to: HostId, len: u64) -> Planned {
    Planned::plain(from, to, len)
}

// spec: P-3.13
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

// spec: P-8.14
#[test]
fn what_a_probe_timeout_queues_again_is_not_sent_for_ever() {
    // A PING was acknowledged at once and what stood behind it later than the next timeout:
    // thousands of packets between two that had nothing to say.
    for (seed, profile) in [(1641, Profile::Clean), (2962, Profile::Multihome), (2677, Profile::Carriers)] {
        assert_eq!(run(&Scenario::draw(seed, profile), Watch::default()).violation, None, "seed {seed}");
    }
}

// spec: P-3.2
#[test]
fn a_thousand_openers_do_not_knock_in_step() {
    let wire = Wire { queue_packets: 64, ..Wire::GIGABIT };
    let work = Workload::Incast { len: 1000, count: 1, window: 1 };
    let r = measure(&point("openers".into(), wire, 1001, &EndpointSpec::default(), work));
    assert_eq!(r.violation, None);
    assert!(r.finished_ns < 500 * MS, "1000 handshakes took {} ms; in step they took seconds", r.finished_ns / MS);
}

#[test]
fn many_starved_rendezvous_do_not_make_the_receiver_spin() {
    // More rendezvous transfers than the grant budget feeds, from peers that are cut off: their
    // turns pass unanswered.
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

// spec: P-5.20
#[test]
fn a_stopped_peer_takes_nothing_from_the_others() {
    // When host 2 had finished its 64 MiB, with 16 rendezvous transfers of host 1 open or without.
    let finished = |beside: u64, each: u64, stop: bool| {
        let mut net = NetSpec::single(3, NetworkSpec::default());
        if stop {
            net.faults.push(TimedFault { at_ns: MS, fault: Fault::Stall { host: 1, until_ns: 2 * SEC } });
        }
        let own = (0..64).map(|_| Planned { send_at_ns: 20 * MS, tag: 2, ..message(2, 0, 1 << 20) });
        let messages = (0..beside).map(|_| message(1, 0, each)).chain(own).collect();
        let work = Workload::Traffic(Traffic { messages, ..Traffic::default() });
        let r = run(&Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work }, Watch::default());
        assert_eq!(r.violation, None);
        assert_eq!(r.arrivals.len() as u64, 64 + beside);
        r.arrivals.iter().filter(|a| a.0 == 2).map(|a| a.1).max().expect("64 arrived") - 20 * MS
    };
    let alone = finished(0, 0, false);
    for each in [1 << 20, 100_000] {
        let beside = finished(16, each, true);
        assert!(alone * 10 >= beside * 8, "{} ms alone, {} ms beside 16 x {each}", alone / MS, beside / MS);
    }
}

// spec: P-2.35
#[test]
fn a_late_send_is_for_the_program_it_was_meant_for() {
    // Host 0 comes to its send only when host 1 is another incarnation, which will never post a
    // receive for it.
    let mut net = NetSpec::single(2, NetworkSpec::default());
    let faults = [
        (100 * US, Fault::Crash { host: 1 }),
        (200 * US, Fault::Stall { host: 0, until_ns: 5 * MS }),
        (MS, Fault::Restart { host: 1 }),
    ];
    net.faults = faults.map(|(at_ns, fault)| TimedFault { at_ns, fault }).to_vec();
    let first = Planned { send_at_ns: 500 * US, sync: true, ..message(0, 1, 1) };
    let second = Planned { send_at_ns: 10 * MS, receive_at_ns: 10 * MS, phase: 1, ..message(0, 1, 100_000) };
    let work = Traffic {
        messages: vec![first, second],
        crashing: vec![1],
        phase_ns: 10 * MS,
        forget_ns: 8 * SEC,
        ..Traffic::default()
    };
    let s = Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work: Workload::Traffic(work) };
    let r = run(&s, Watch::default());
    assert_eq!(r.violation, None);
    assert_eq!(r.message_ns.len(), 1, "only the second message has a receiver");
}

// spec: P-6.13
#[test]
fn a_third_of_random_loss_on_a_long_path_does_not_starve_a_rendezvous() {
    // The window fell to two packets, and each needed round trips and probe timeouts of its own.
    let link = LinkSpec { rate_bits_per_s: 1_000_000_000, delay_ns: 5 * MS, loss: 180_000, ..LinkSpec::default() };
    let network = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    let work = Workload::Traffic(Traffic { messages: vec![message(0, 1, 1 << 20)], ..Traffic::default() });
    let s = Scenario { seed: 1, net: NetSpec::single(2, network), endpoint: EndpointSpec::default(), work };
    let r = run(&s, Watch::default());
    assert_eq!(r.violation, None);
    assert!(r.finished_ns < 4 * SEC, "1 MiB took {} ms", r.finished_ns / MS);
}

// spec: P-9.3
#[test]
fn idle_peers_behind_much_loss_are_not_given_up() {
    // Three of four questions go unanswered; a verdict after 20 of them falls on some of 66 peers
    // within minutes.
    let link = LinkSpec { rate_bits_per_s: 1_000_000_000, delay_ns: MS, loss: 280_000, ..LinkSpec::default() };
    let network = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    let pairs = (0..12).flat_map(|to| (to + 1..12).map(move |from| message(from, to, 8)));
    let last = Planned { send_at_ns: 180 * SEC, ..message(1, 0, 8) };
    let messages = pairs.chain([last]).collect();
    let work = Workload::Traffic(Traffic { messages, ..Traffic::default() });
    let s = Scenario { seed: 1, net: NetSpec::single(12, network), endpoint: EndpointSpec::default(), work };
    let r = run(&s, Watch::default());
    assert_eq!(r.violation, None);
}

#[test]
fn silence_by_chance_is_no_death() {
    // Four of five round trips fail: of 276 openers one or two had no answer to any of what they
    // sent in 10 s.
    let link = LinkSpec { rate_bits_per_s: 1_000_000_000, delay_ns: 100 * US, loss: 330_000, ..LinkSpec::default() };
    let network = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    for seed in 1..5 {
        let messages = (0..24).flat_map(|to| (to + 1..24).map(move |from| message(from, to, 8))).collect();
        let work = Workload::Traffic(Traffic { messages, ..Traffic::default() });
        let net = NetSpec::single(24, network.clone());
        let endpoint = EndpointSpec { patience: patience(&net), ..EndpointSpec::default() };
        let r = run(&Scenario { seed, net, endpoint, work }, Watch::default());
        assert_eq!(r.violation, None, "seed {seed}");
    }
}

#[test]
fn probes_to_a_host_that_is_cut_off_break_no_bound_on_what_is_in_flight() {
    // A window as large as the receiver's buffer allows is on the way; then two probes at each
    // timeout until it heals.
    let network = NetworkSpec { nic_queue_bytes: 16 << 10, ..NetworkSpec::default() };
    let mut net = NetSpec::single(2, network);
    net.host.rx_buffer_bytes = 64 << 10;
    for (at_ns, heal) in [(3 * MS, false), (4 * SEC + 500 * MS, true)] {
        let direction = Direction::Both;
        let fault =
            if heal { Fault::Heal { host: 1, net: 0, direction } } else { Fault::Cut { host: 1, net: 0, direction } };
        net.faults.push(TimedFault { at_ns, fault });
    }
    let work = Workload::Traffic(Traffic { messages: vec![message(0, 1, 16 << 20)], ..Traffic::default() });
    let r = run(&Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work }, Watch::default());
    assert_eq!(r.violation, None);
    assert!(r.probe_timeouts > 10, "{} probe timeouts show nothing", r.probe_timeouts);
}

#[test]
fn what_always_stood_in_a_queue_is_taken_for_wire() {
    // Both ways over a trunk of 100 Mb/s are full before the first round trip is measured.
    let s = Scenario::draw(3_183_871, Profile::All);
    let r = run(&s, Watch::default());
    assert_eq!(r.violation, None);
}
