//! An endpoint asks to be woken for what is due, and for nothing that has been done meanwhile.

mod net;

use std::time::Duration;
use weir_link::{Config, Endpoint, Event, Message, PacketBuf, RxMeta, Time};

/// Delivers what both send until neither has more.
fn exchange(ends: &mut [Endpoint; 2], now: Time, events: &mut Vec<Event>) {
    let mut buf = PacketBuf::new();
    let mut sent = true;
    while std::mem::take(&mut sent) {
        for from in 0..2 {
            while ends[from].poll_transmit(now, &net::Pattern, &mut buf).is_some() {
                sent = true;
                let mut datagram = buf.head.clone();
                let meta = RxMeta { remote: net::addr(from, 0), local: None, receiver_delay_ns: 0, ecn: 0 };
                ends[1 - from].handle(now, meta, &mut datagram, events);
            }
        }
    }
}

#[test]
fn who_is_idle_after_much_traffic_is_not_woken_for_what_is_done() {
    let cfg = Config { mtu_probing: false, ..Config::default() };
    let end = |i: usize| Endpoint::new(cfg.clone(), [1; 32], i as u64 + 1, &[net::addr(i, 0)], [i as u8 + 1; 32]);
    let mut ends = [end(0), end(1)];
    let name = ends[1].name();
    let peer = ends[0].peer(&name).unwrap();
    let (mut now, mut events) = (Time(1_000_000), Vec::new());
    // A message each 100 us for a second: each acknowledgement waits a while for more, and is sent
    // by its timer.
    for _ in 0..10_000 {
        let m = Message { control: false, stream: 1, envelope: &[0; 20], len: 8, patient: false, token: 1 };
        ends[0].send(now, peer, m).unwrap();
        exchange(&mut ends, now, &mut events);
        for _ in 0..2 {
            now += Duration::from_micros(50);
            for e in &mut ends {
                if e.next_timeout().is_some_and(|t| t <= now) {
                    e.handle_timeout(now, &mut events);
                }
            }
            exchange(&mut ends, now, &mut events);
        }
        for e in std::mem::take(&mut events) {
            if let Event::Message { peer, control: false, total_len, .. } = e {
                ends[1].consume(peer, 1, u64::from(total_len));
            }
        }
    }
    // Two seconds of silence hold a few PINGs.
    let until = now + Duration::from_secs(2);
    for i in 0..2 {
        let mut wakes = 0;
        while let Some(at) = ends[i].next_timeout().filter(|t| *t <= until) {
            ends[i].handle_timeout(at.max(now), &mut events);
            exchange(&mut ends, at.max(now), &mut events);
            wakes += 1;
            assert!(wakes < 100, "side {i} was woken {wakes} times by {at:?}, the traffic ended at {now:?}");
        }
    }
}

/// Where much is lost a timeout soon lasts 250 ms, and one packet of which each has to get through
/// both ways took twice as long as two do.
// spec: P-4.19, P-4.16
#[test]
fn a_probe_timeout_that_repeats_sends_two_packets_also_for_one_message() {
    let cfg = Config { mtu_probing: false, ..Config::default() };
    let mut n = net::Net::new(2, 1, &cfg, 1);
    n.faults.loss = 300_000;
    for _ in 0..50 {
        n.send(0, 1, false, 1, 0, 0, 8).unwrap();
        n.run(Duration::from_millis(1), |_| false);
    }
    assert!(n.run(Duration::from_secs(9), net::Net::quiet));
    n.nodes[1].stopped = true;
    let counted = |n: &net::Net| (n.nodes[0].ep.counters().packets_sent, n.nodes[0].ep.counters().probe_timeouts);
    let (packets, timeouts) = counted(&n);
    n.send(0, 1, false, 1, 0, 0, 8).unwrap();
    n.run(Duration::from_millis(500), |_| false);
    let (packets, timeouts) = (counted(&n).0 - packets, counted(&n).1 - timeouts);
    assert!(timeouts >= 5, "{timeouts}");
    assert_eq!(packets, 1 + 1 + 2 * (timeouts - 1), "{timeouts} timeouts");
}

/// Two ends that know each other, and the time.
fn acquainted() -> ([Endpoint; 2], weir_link::PeerId, Time) {
    let cfg = Config { mtu_probing: false, ..Config::default() };
    let end = |i: usize| Endpoint::new(cfg.clone(), [1; 32], i as u64 + 1, &[net::addr(i, 0)], [i as u8 + 1; 32]);
    let mut ends = [end(0), end(1)];
    let name = ends[1].name();
    let peer = ends[0].peer(&name).unwrap();
    let m = Message { control: false, stream: 1, envelope: &[0; 20], len: 8, patient: false, token: 1 };
    let (mut now, mut events) = (Time(1_000_000), Vec::new());
    ends[0].send(now, peer, m).unwrap();
    for _ in 0..100 {
        exchange(&mut ends, now, &mut events);
        now += Duration::from_millis(1);
        for e in &mut ends {
            if e.next_timeout().is_some_and(|t| t <= now) {
                e.handle_timeout(now, &mut events);
            }
        }
    }
    (ends, peer, now)
}

/// Whether what was sent so is acknowledged before any time passes.
fn is_acknowledged_at_once(control: bool, len: u32, patient: bool) -> bool {
    let (mut ends, peer, now) = acquainted();
    let mut events = Vec::new();
    let stream = u16::from(!control);
    ends[0].send(now, peer, Message { control, stream, envelope: &[0; 20], len, patient, token: 7 }).unwrap();
    exchange(&mut ends, now, &mut events);
    events.iter().any(|e| matches!(e, Event::Sent { token: 7, .. }))
}

// spec: P-4.6
#[test]
fn a_write_that_only_its_acknowledgement_ends_is_acknowledged_at_once() {
    assert!(is_acknowledged_at_once(true, 8, false));
    assert!(!is_acknowledged_at_once(true, 8, true), "an answer comes, and brings it");
    assert!(!is_acknowledged_at_once(true, 0, false), "who tells something waits for nothing");
    assert!(!is_acknowledged_at_once(false, 8, false), "of messages only long ones ask");
}
