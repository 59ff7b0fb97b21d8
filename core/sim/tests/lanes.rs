//! Lanes in the simulator: they are used, they fail, and nothing that went by one is missed.

use weir_sim::run::{Report, Watch, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::*;
use weir_sim::work::Workload;
use weir_sim::work::traffic::{Kind, Planned, Traffic};

/// Two hosts on a gigabit; from 5 ms on, host 1 sends host 0 so many messages of 1 MB, which go as bodies.
fn scenario(count: u64, faults: &[(Ns, Fault)]) -> Scenario {
    let mut net = NetSpec::single(2, NetworkSpec::default());
    net.faults = faults.iter().map(|(at_ns, fault)| TimedFault { at_ns: *at_ns, fault: *fault }).collect();
    let message = |send_at_ns, tag, len| Planned {
        from: 1,
        to: 0,
        send_at_ns,
        receive_at_ns: 0,
        kind: Kind::Exact,
        tag,
        len,
        sync: false,
        room: u64::MAX,
        phase: 0,
    };
    // The first gets to know the path, the second has a lane made.
    let first = [message(0, 1, 1000), message(MS, 2, 20_000)];
    let messages = first.into_iter().chain((0..count).map(|i| message(5 * MS, 3 + i, 1_000_000))).collect();
    let endpoint = EndpointSpec { lanes: Some(LaneSpec::default()), ..EndpointSpec::default() };
    Scenario { seed: 1, net, endpoint, work: Workload::Traffic(Traffic { messages, ..Traffic::default() }) }
}

fn kept(s: &Scenario) -> Report {
    let r = run(s, Watch::default());
    assert_eq!(r.violation, None);
    r
}

#[test]
fn large_messages_go_by_a_lane_where_there_is_one() {
    let r = kept(&scenario(5, &[]));
    let [up, failed, units, bytes] = r.lanes;
    assert_eq!((up, failed, r.message_ns.len()), (2, 0, 7));
    assert!(units >= 5 && bytes == 5_000_000, "{units} units, {bytes} bytes");
    let off = kept(&Scenario { endpoint: EndpointSpec::default(), ..scenario(5, &[]) });
    assert_eq!((off.lanes, off.tcp.tried), ([0; 4], 0));
    assert!(r.net.sent * 10 < off.net.sent, "{} packets beside a lane, {} without", r.net.sent, off.net.sent);
}

#[test]
fn what_a_lane_had_when_it_stalled_goes_in_packets_once_it_is_given_up() {
    // Too short for a verdict on the peer, too long for the lane, on the second of two networks' hosts nothing else happens.
    let direction = Direction::Both;
    let cut =
        [(8 * MS, Fault::Cut { host: 0, net: 0, direction }), (3 * SEC, Fault::Heal { host: 0, net: 0, direction })];
    let r = kept(&scenario(5, &cut));
    assert!(r.lanes[1] >= 1 && r.message_ns.len() == 7, "{:?}", r.lanes);
}

#[test]
fn a_lane_that_breaks_in_the_middle_of_a_unit_is_made_up_for() {
    let mut broken = 0;
    for seed in 0..20 {
        let mut s = scenario(5, &[]);
        (s.seed, s.net.host.tcp.breaks) = (seed, 50_000);
        let r = kept(&s);
        assert_eq!(r.message_ns.len(), 7);
        broken += u64::from(r.tcp.broken > 0 && r.lanes[1] > 0);
    }
    assert!(broken >= 5, "{broken} of 20 broke");
}

#[test]
fn a_host_that_dies_takes_its_lane_with_it_and_the_next_one_gets_another() {
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
        assert!(r.lanes[0] >= 3, "{:?}", r.lanes);
    }
}

#[test]
fn the_swarm_makes_lanes_uses_them_and_has_them_fail() {
    let mut sum = [0; 4];
    let mut with = 0;
    for seed in 0..60 {
        let s = Scenario::draw(seed, Profile::All);
        let r = kept(&s);
        with += u64::from(s.endpoint.lanes.is_some());
        assert!(s.endpoint.lanes.is_some() || r.lanes == [0; 4], "seed {seed}");
        sum.iter_mut().zip(r.lanes).for_each(|(a, b)| *a += b);
    }
    assert!((20..=40).contains(&with), "{with} of 60 seeds take lanes");
    let [up, failed, units, bytes] = sum;
    assert!(up > 50 && failed > 20 && units > 500 && bytes > 1_000_000, "{sum:?}");
}
