//! Bulk connections in the simulator: they are used, they fail, and nothing that went by one is
//! missed.

use weir_sim::Rng;
use weir_sim::run::{Report, Watch, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::*;
use weir_sim::work::Workload;
use weir_sim::work::traffic::{Planned, Traffic};

/// Two hosts on a gigabit; from 5 ms on, host 1 sends host 0 so many messages of 1 MB, which go as
/// rendezvous transfers.
fn scenario(count: u64, faults: &[(Ns, Fault)]) -> Scenario {
    let mut net = NetSpec::single(2, NetworkSpec::default());
    net.faults = faults.iter().map(|(at_ns, fault)| TimedFault { at_ns: *at_ns, fault: *fault }).collect();
    let message = |send_at_ns, tag, len| Planned { send_at_ns, tag, ..Planned::plain(1, 0, len) };
    // The first, too long to go before its receiver is known, gets to know the path; the second has
    // a bulk connection made.
    let first = [message(0, 1, 3000), message(MS, 2, 20_000)];
    let messages = first.into_iter().chain((0..count).map(|i| message(5 * MS, 3 + i, 1_000_000))).collect();
    let endpoint = EndpointSpec { bulk_connections: Some(BulkSpec::default()), ..EndpointSpec::default() };
    Scenario { seed: 1, net, endpoint, work: Workload::Traffic(Traffic { messages, ..Traffic::default() }) }
}

fn kept(s: &Scenario) -> Report {
    let r = run(s, Watch::default());
    assert_eq!(r.violation, None);
    r
}

#[test]
fn large_messages_go_by_a_bulk_connection_where_there_is_one() {
    let r = kept(&scenario(5, &[]));
    let [up, failed, records, bytes] = r.bulk_connections;
    assert_eq!((up, failed, r.message_ns.len()), (2, 0, 7));
    assert!(records >= 5 && bytes == 5_000_000, "{records} records, {bytes} bytes");
    let off = kept(&Scenario { endpoint: EndpointSpec::default(), ..scenario(5, &[]) });
    assert_eq!((off.bulk_connections, off.tcp.tried), ([0; 4], 0));
    assert!(
        r.net.sent * 10 < off.net.sent,
        "{} packets beside a bulk connection, {} without",
        r.net.sent,
        off.net.sent
    );
}

// spec: L-5.3
#[test]
fn what_a_bulk_connection_had_when_it_stalled_goes_in_packets_once_it_is_given_up() {
    // Too short for a verdict on the peer, too long for the bulk connection, on the second of two
    // networks' hosts nothing else happens.
    let direction = Direction::Both;
    let cut =
        [(8 * MS, Fault::Cut { host: 0, net: 0, direction }), (3 * SEC, Fault::Heal { host: 0, net: 0, direction })];
    let r = kept(&scenario(5, &cut));
    assert!(r.bulk_connections[1] >= 1 && r.message_ns.len() == 7, "{:?}", r.bulk_connections);
}

// spec: L-5.4
#[test]
fn a_bulk_connection_that_breaks_in_the_middle_of_a_record_is_made_up_for() {
    let mut broken = 0;
    for seed in 0..20 {
        let mut s = scenario(5, &[]);
        (s.seed, s.net.host.tcp.breaks) = (seed, 50_000);
        let r = kept(&s);
        assert_eq!(r.message_ns.len(), 7);
        broken += u64::from(r.tcp.broken > 0 && r.bulk_connections[1] > 0);
    }
    assert!(broken >= 5, "{broken} of 20 broke");
}

#[test]
fn a_host_that_dies_takes_its_bulk_connection_with_it_and_the_next_one_gets_another() {
    for seed in 0..10 {
        let mut s = scenario(5, &[(8 * MS, Fault::Crash { host: 0 }), (SEC, Fault::Restart { host: 0 })]);
        s.seed = seed;
        let Workload::Traffic(t) = &mut s.work else { unreachable!() };
        (t.phase_ns, t.forget_ns, t.crashing) = (9 * SEC, 9 * SEC, vec![0]);
        let second = t.messages.clone().into_iter();
        let at = 10 * SEC;
        let later = second.map(|m| Planned { send_at_ns: at + m.send_at_ns, receive_at_ns: at, phase: 1, ..m });
        t.messages.extend(later.collect::<Vec<_>>());
        let r = kept(&s);
        assert!(r.arrivals.iter().filter(|a| a.1 >= at).count() == 7, "seed {seed}");
        // The dead end of the first is not there to be counted.
        assert!(r.bulk_connections[0] >= 3, "{:?}", r.bulk_connections);
    }
}

#[test]
fn the_swarm_makes_bulk_connections_uses_them_and_has_them_fail() {
    let mut sum = [0; 4];
    let mut with = 0;
    for seed in 0..60 {
        let s = Scenario::draw(seed, Profile::All);
        let r = kept(&s);
        with += u64::from(s.endpoint.bulk_connections.is_some());
        assert!(s.endpoint.bulk_connections.is_some() || r.bulk_connections == [0; 4], "seed {seed}");
        sum.iter_mut().zip(r.bulk_connections).for_each(|(a, b)| *a += b);
    }
    assert!((20..=40).contains(&with), "{with} of 60 seeds take bulk connections");
    let [up, failed, records, bytes] = sum;
    assert!(up > 50 && failed > 20 && records > 500 && bytes > 1_000_000, "{sum:?}");
}

/// Two hosts on two networks of a gigabit, 50 us long. The messages, (from, when, bytes), begin
/// once there is a bulk connection; the first network's cable of a host is cut then, for so long.
fn cut_of_one_of_two(messages: &[(u32, Ns, u64)], cut: (u32, Direction, Ns), for_ns: Ns) -> Scenario {
    let mut s = scenario(0, &[]);
    let link = LinkSpec { delay_ns: 50 * US, ..LinkSpec::default() };
    let network = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    s.net.networks = vec![network.clone(), network];
    let (host, direction, at_ns) = cut;
    let (cut, heal) = (Fault::Cut { host, net: 0, direction }, Fault::Heal { host, net: 0, direction });
    let timed = |fault, at_ns| TimedFault { at_ns, fault };
    s.net.faults = vec![timed(cut, at_ns), timed(heal, at_ns + for_ns)];
    let Workload::Traffic(t) = &mut s.work else { unreachable!() };
    let first = t.messages[0];
    t.messages.extend((3..).zip(messages).map(|(tag, &(from, send_at_ns, len))| Planned {
        from,
        to: 1 - from,
        send_at_ns,
        tag,
        len,
        ..first
    }));
    s
}

/// How long the hosts needed from the cut on until all was sent and received, and each knew.
fn stall_ns(messages: &[(u32, Ns, u64)], cut: (u32, Direction, Ns)) -> Ns {
    let r = kept(&cut_of_one_of_two(messages, cut, 3 * SEC));
    assert_eq!(r.message_ns.len(), 2 + messages.len());
    r.finished_ns.saturating_sub(cut.2)
}

/// Host 0's message is all there, and it is told so by a packet that the cut swallows; host 1's is
/// on its way, so that host 1 gives the bulk connection up first. Host 0 has nothing in TCP that
/// could be lost, and TCP's end does not reach it: but what host 1 says of the bulk connection by
/// the path that is left does.
// spec: L-5.5
#[test]
fn who_gives_a_bulk_connection_up_says_so_by_the_path_that_is_left() {
    let messages = [(0, 5 * MS, 100_000), (1, 5 * MS, 2_000_000)];
    let cut = |at_ns| (0, Direction::Both, at_ns);
    let uncut = kept(&cut_of_one_of_two(&messages, cut(SEC), SEC));
    let there = uncut.arrivals.iter().find(|a| a.0 == 0 && a.2 == 100_000).expect("it arrives").1;
    for i in 0..150 {
        let cut_at = there + i * US;
        let stall = stall_ns(&messages, cut(cut_at));
        assert!(stall < 200 * MS, "cut {i} us after it was there: {} ms", stall / MS);
    }
}

#[test]
fn a_cut_of_one_of_two_links_never_stalls_anybody_for_long() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed, 1);
        let messages: Vec<_> =
            (0..8).map(|i| (i % 2, 5 * MS + rng.below(12 * MS), 20_000 + rng.below(500_000))).collect();
        let direction = rng.pick(&[Direction::Both, Direction::Up, Direction::Down]);
        let cut = (rng.below(2) as u32, direction, 5 * MS + rng.below(15 * MS));
        let stall = stall_ns(&messages, cut);
        assert!(stall < 200 * MS, "seed {seed}: {} ms", stall / MS);
    }
}

/// What TCP would send again finds no way out of the host (its cable was pulled), and is not
/// counted as lost.
// spec: L-5.15, L-5.16
#[test]
fn a_cut_that_tcp_does_not_tell_of_never_stalls_anybody_for_long() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed, 2);
        let messages: Vec<_> =
            (0..8).map(|i| (i % 2, 5 * MS + rng.below(12 * MS), 20_000 + rng.below(500_000))).collect();
        let direction = rng.pick(&[Direction::Both, Direction::Up, Direction::Down]);
        let cut = (rng.below(2) as u32, direction, 5 * MS + rng.below(15 * MS));
        let mut s = cut_of_one_of_two(&messages, cut, 3 * SEC);
        s.endpoint.bulk_connections = Some(BulkSpec { sees_losses: false, ..BulkSpec::default() });
        let r = kept(&s);
        assert_eq!(r.message_ns.len(), 2 + messages.len());
        let stall = r.finished_ns.saturating_sub(cut.2);
        assert!(stall < 200 * MS, "seed {seed}: {} ms", stall / MS);
    }
}

#[test]
fn a_link_that_was_cut_and_healed_has_a_bulk_connection_again() {
    let messages = [(0, 5 * MS, 1_000_000), (1, 3 * SEC, 20_000), (0, 3 * SEC, 20_000), (0, 4 * SEC, 1_000_000)];
    let r = kept(&cut_of_one_of_two(&messages, (0, Direction::Both, 6 * MS), SEC));
    let [up, failed, _, bytes] = r.bulk_connections;
    assert!(up == 4 && failed == 2 && bytes >= 1_000_000, "{:?}", r.bulk_connections);
}
