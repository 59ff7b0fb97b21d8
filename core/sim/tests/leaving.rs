//! Ranks that end, are forgotten, and come back as new incarnations; connections that break in the
//! middle of messages.

use weir_sim::check::Tally;
use weir_sim::rank::READABLE_BYTES;
use weir_sim::run::{Report, Watch, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::*;
use weir_sim::work::Workload;
use weir_sim::work::traffic::{Kind, Planned, PlannedMany, Traffic};

fn kept(s: &Scenario) -> Report {
    let r = run(s, Watch::default());
    assert_eq!(r.violation, None, "seed {}", s.seed);
    r
}

/// What the swarm of a profile does to its ranks.
fn tally(profile: Profile) -> Tally {
    let mut sum = Tally::default();
    (0..60).for_each(|seed| sum.add(&kept(&Scenario::draw(seed, profile)).tally));
    sum
}

fn message(to: HostId, at_ns: Ns, len: u64) -> Planned {
    Planned { send_at_ns: at_ns, receive_at_ns: at_ns, ..Planned::plain(1 - to, to, len) }
}

fn two_hosts(messages: Vec<Planned>, faults: &[(Ns, Fault)]) -> Scenario {
    let link = LinkSpec { rate_bits_per_s: 1_000_000_000, delay_ns: 50 * US, ..LinkSpec::default() };
    let mut net = NetSpec::single(2, NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() });
    net.faults = faults.iter().map(|(at_ns, fault)| TimedFault { at_ns: *at_ns, fault: *fault }).collect();
    let crashing = if faults.is_empty() { Vec::new() } else { vec![1] };
    let traffic = Traffic { messages, crashing, phase_ns: 30 * SEC, forget_ns: 9 * SEC, ..Traffic::default() };
    Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work: Workload::Traffic(traffic) }
}

#[test]
fn the_swarm_leaves_in_order_and_late_and_drops_and_forgets() {
    let t = tally(Profile::Leave);
    assert!(t.left_in_order > 20 && t.dropped > 20 && t.forgotten > 60, "{t:?}");
    assert!(t.places_reused > 10, "{t:?}");
}

#[test]
fn the_swarm_fills_buffers_hands_them_back_and_cuts_what_does_not_fit() {
    let t = tally(Profile::All);
    assert!(t.parts > 300 && t.cut > 20 && t.handed_back > 200, "{t:?}");
}

#[test]
fn the_swarm_breaks_connections_in_the_middle_of_messages() {
    let mut severed = [0; 2];
    for seed in 0..60 {
        let r = kept(&Scenario::draw(seed, Profile::Carriers));
        severed.iter_mut().zip(r.tcp.severed).for_each(|(sum, n)| *sum += n);
    }
    assert!(severed[0] > 100 && severed[1] > 10, "{severed:?} broken, and while something was under way");
}

#[test]
fn the_place_of_one_that_left_is_given_to_its_next_life() {
    let mut messages = vec![message(0, 0, 100_000), message(1, 0, 100_000)];
    // The new life speaks first: who does nothing for long does not know how late it is.
    let next_life = |(to, at_s)| Planned { phase: 1, receive_at_ns: 33 * SEC, ..message(to, at_s * SEC, 100_000) };
    messages.extend([(0, 31), (1, 32)].map(next_life));
    let faults = [(500 * MS, Fault::Leave { host: 1 }), (SEC, Fault::Restart { host: 1 })];
    let r = kept(&two_hosts(messages, &faults));
    let t = r.tally;
    assert_eq!((t.left_in_order, t.forgotten, t.places_reused, r.message_ns.len()), (1, 1, 1, 4));
}

#[test]
fn what_was_under_way_to_one_that_leaves_fails_and_nothing_hangs() {
    // A long one for which the receive comes too late.
    let late = Planned { receive_at_ns: 200 * MS, ..message(1, 0, READABLE_BYTES) };
    let faults = [(100 * MS, Fault::Leave { host: 1 }), (SEC, Fault::Restart { host: 1 })];
    let r = kept(&two_hosts(vec![late, message(0, 0, 10)], &faults));
    assert_eq!((r.message_ns.len(), r.tally.left_in_order), (1, 1));
}

#[test]
fn a_buffer_takes_messages_until_too_little_is_free() {
    let many = Planned { kind: Kind::Many, ..message(0, 0, 300) };
    let mut s = two_hosts(vec![many; 7], &[]);
    let Workload::Traffic(t) = &mut s.work else { unreachable!() };
    let plan =
        PlannedMany { to: 0, phase: 0, kind: Kind::Many, from: None, at_ns: 0, room: 1000, min: 150, buffers: 2 };
    t.many.push(plan);
    // Three go into each and 100 are free then, and one into the third, which is withdrawn as the
    // fourth is.
    let all = kept(&s).tally;
    assert_eq!((all.parts, all.cut, all.handed_back), (7, 0, 4));
    let Workload::Traffic(t) = &mut s.work else { unreachable!() };
    t.many[0].min = 0;
    // The fourth of each is cut to 100.
    let all = kept(&s).tally;
    assert_eq!((all.parts, all.cut, all.handed_back), (7, 1, 3));
}
