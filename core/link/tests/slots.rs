//! Data in slots of a medium that all share: what is acknowledged when (`spec/superstep.md` 7).

mod net;

use std::time::Duration;

use net::{Faults, Net};
use weir_link::*;
use weir_superstep::{OwnQueue, Slots};
use weir_wire::Header;

const S: Duration = Duration::from_secs(1);
const BYTES: u64 = 100_000;
/// Packets that so many bytes take at least.
const PACKETS: u64 = BYTES.div_ceil(1472);
/// 10 Mbit/s, one packet in each cycle of two.
const SLOTS: Slots = Slots { slots: 2, slot_ns: 1_300_000 };

/// Two that know each other, on 10 Mbit/s.
fn two() -> Net {
    let mut n = Net::new(2, 1, &Config::default(), 1);
    n.faults = Faults { rate: 1_250_000, ..Faults::default() };
    for (from, to) in [(0, 1), (1, 0)] {
        n.send(from, to, false, 0, 0, 0, 8).unwrap();
    }
    assert!(n.run(S, Net::quiet));
    n
}

/// The first sends to the second in slots, and a little more time passes.
fn superstep(n: &mut Net) {
    for (end, sends, receives) in [(0, BYTES, 0), (1, 0, BYTES)] {
        let (peer, now) = (n.peer(end, 1 - end), n.now);
        n.nodes[end].ep.superstep(now, &[(peer, sends)], &[(peer, receives)], Some(SLOTS), OwnQueue::System);
    }
    n.captured.clear();
    n.capture = true;
    n.offer(0, 1, BYTES);
    assert!(n.run(S, Net::quiet));
}

/// (packets of an end, those of them that ask for an acknowledgement at once)
fn sent(n: &Net, end: usize) -> (u64, u64) {
    let of_end = n.captured.iter().filter(|(from, ..)| *from == net::addr(end, 0));
    of_end.fold((0, 0), |(all, asking), (_, _, bytes)| {
        (all + 1, asking + u64::from(Header::parse(bytes).is_ok_and(|h| h.ack_now)))
    })
}

#[test]
fn packets_in_slots_are_acknowledged_eight_at_a_time() {
    let mut n = two();
    superstep(&mut n);
    let ((data, asking), (answers, _)) = (sent(&n, 0), sent(&n, 1));
    assert!((PACKETS..PACKETS + 5).contains(&data), "{data}");
    // The request to send, the last fragment, and what goes beside them.
    assert!(asking <= 5, "{asking} of {data} ask");
    assert!(answers <= data / 8 + 8, "{answers} answers to {data}");
    let stats = n.nodes[0].ep.counters();
    assert_eq!((stats.packets_lost, stats.losses_spurious), (0, 0));
    // Nobody thinks that what was not acknowledged for so long was lost.
    assert_eq!(stats.probe_timeouts, 0);
}

/// What is lost is missed when the next packet of the peer comes, as ever.
#[test]
fn a_gap_is_told_at_once() {
    let mut n = two();
    let mut data = 0;
    n.lose = Box::new(move |from, _, bytes| {
        data += u64::from(from == net::addr(0, 0) && bytes.len() > 1000);
        data == 20 && bytes.len() > 1000 && from == net::addr(0, 0)
    });
    let begun = n.now;
    superstep(&mut n);
    let stats = n.nodes[0].ep.counters();
    assert!(stats.packets_lost >= 1, "{stats:?}");
    let least = SLOTS.expected_ns(BYTES, 1418);
    assert!((n.now - begun).as_nanos() as u64 - least < 8 * SLOTS.cycle_ns(), "{:?}", n.now - begun);
}

/// When slots end, acknowledgements come as they did before.
#[test]
fn without_slots_nothing_waits() {
    let mut n = two();
    superstep(&mut n);
    for end in [0, 1] {
        let (peer, now) = (n.peer(end, 1 - end), n.now);
        n.nodes[end].ep.superstep(now, &[(peer, BYTES)], &[], None, OwnQueue::System);
    }
    n.captured.clear();
    n.offer(0, 1, BYTES);
    let begun = n.now;
    assert!(n.run(S, Net::quiet));
    assert!(n.now - begun < Duration::from_millis(100), "{:?}", n.now - begun);
    assert!(sent(&n, 0).1 > 5, "{:?}", sent(&n, 0));
}
