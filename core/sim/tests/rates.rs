//! What statistics say that a path delivers, while its link is cut and after it has healed.

use weir_link::PeerId;
use weir_sim::run::{Watch, build};
use weir_sim::scenario::EndpointSpec;
use weir_sim::spec::{Direction, Fault, MS, NetId, Ns, SEC, TimedFault, US};
use weir_sim::table::{Wire, point};
use weir_sim::work::Workload;

/// Each of two links, bytes per second.
const RATE: u64 = 6_250_000;
const CUT_NS: Ns = 2 * SEC;
/// Until a suspect path is probed again, and its probes and a train of it have been answered.
const BACK_NS: Ns = 3 * SEC;
const LOOK_NS: Ns = 10 * MS;

/// Host 0 streams to host 1 by two links of 50 Mbit/s; some of them are cut, and heal. When they
/// were looked at, and the state and rate of each then.
fn looks(nets: &[NetId], cut_ns: Ns) -> Vec<(Ns, [(&'static str, u64); 2])> {
    let wire = Wire { rate_bits_per_s: RATE * 8, delay_ns: 100 * US, queue_packets: 256, ..Wire::GIGABIT };
    let len = 300_000;
    let work = Workload::Stream { len: (len, len), count: 1000, tags: 4, window: 4 };
    let mut scenario = point("rates".into(), wire, 2, &EndpointSpec::default(), work).scenario;
    let net = &mut scenario.net;
    net.networks.push(net.networks[0].clone());
    for &net_id in nets {
        let (host, direction) = (0, Direction::Both);
        net.faults.push(TimedFault { at_ns: CUT_NS, fault: Fault::Cut { host, net: net_id, direction } });
        net.faults.push(TimedFault { at_ns: CUT_NS + cut_ns, fault: Fault::Heal { host, net: net_id, direction } });
    }
    let mut w = build(&scenario, Watch::default());
    let mut looks = Vec::new();
    while w.now() < CUT_NS + cut_ns + 2 * BACK_NS {
        w.run_until((looks.len() as u64 + 1) * LOOK_NS, |_| false);
        assert_eq!(w.violation(), None);
        let paths = w.node(0).expect("it lives").endpoint().peer_stats(PeerId(0)).paths;
        if let [a, b] = &paths[..] {
            looks.push((w.now(), [a, b].map(|p| (p.state, p.rate_bytes_per_s))));
        } else {
            looks.push((w.now(), [("", 0); 2]));
        }
    }
    looks
}

/// Headers and acknowledgements take some of a link, and nothing adds to it.
fn is_right(rate: u64) -> bool {
    (RATE * 8 / 10..=RATE * 11 / 10).contains(&rate)
}

// spec: P-8.24
#[test]
fn a_path_that_is_cut_has_no_rate_and_is_measured_anew_when_it_is_back() {
    for net in [0, 1] {
        let (cut_ns, i) = (4 * SEC, usize::from(net));
        let looks = looks(&[net], cut_ns);
        let healed = CUT_NS + cut_ns;
        for (at, paths) in looks.iter().filter(|l| l.0 >= SEC) {
            let (state, rate) = paths[i];
            let (ms, said) = (at / MS, format!("{paths:?}"));
            // 100 ms, by the specification, and some time until it is looked at.
            if (CUT_NS + 200 * MS..healed).contains(at) {
                assert_eq!((state, rate), ("suspect", 0), "net {net}, {ms} ms: {said}");
            } else if *at < CUT_NS || *at > healed + BACK_NS {
                assert!(state == "valid" && is_right(rate), "net {net}, {ms} ms: {said}");
            } else {
                assert!(rate == 0 || is_right(rate), "net {net}, {ms} ms: {said}");
            }
            assert!(is_right(paths[1 - i].1), "the other, net {net}, {ms} ms: {said}");
        }
    }
}

// spec: P-8.24
#[test]
fn what_two_links_deliver_is_not_what_they_did_while_both_were_cut() {
    for cut_ns in [30 * MS, 300 * MS, 4 * SEC] {
        let healed = CUT_NS + cut_ns;
        for (at, paths) in looks(&[0, 1], cut_ns).iter().filter(|l| l.0 >= SEC) {
            let said = format!("cut for {} ms, at {} ms: {paths:?}", cut_ns / MS, at / MS);
            assert!(paths.iter().all(|(_, rate)| *rate == 0 || is_right(*rate)), "{said}");
            if *at > healed + BACK_NS {
                assert!(paths.iter().all(|(state, rate)| *state == "valid" && is_right(*rate)), "{said}");
            }
        }
    }
}
