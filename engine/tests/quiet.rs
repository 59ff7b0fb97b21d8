//! An endpoint that talks to nobody costs who polls it next to nothing, and is found by who comes.

mod common;

use common::{LIMIT, counter, iov, open, packets, recv_op, send};
use std::time::Instant;
use weir_engine::{Endpoint, EngineConfig, Group, Queue, SendMode};

/// Between two looks at the sockets of a quiet endpoint, microseconds.
const GAP_US: u64 = 30;

/// Polls of `polled`: how many looks at the sockets of `quiet` they cost beyond what their time
/// allows.
fn looks_too_many(quiet: &Endpoint, polled: &Endpoint) -> i64 {
    let mut none = Vec::new();
    let mut poll = |times| {
        for _ in 0..times {
            polled.poll(Queue::Both, &mut none, 1);
        }
    };
    // The first find out that it is quiet.
    poll(100);
    let (before, start) = (counter(quiet, "rx_empty_calls"), Instant::now());
    poll(20_000);
    let allowed = start.elapsed().as_micros() as u64 / GAP_US + 2;
    (counter(quiet, "rx_empty_calls") - before) as i64 - allowed as i64
}

#[test]
fn an_endpoint_that_talks_to_nobody_is_seldom_looked_at_and_found_all_the_same() {
    let cfg = EngineConfig { watchdog_us: 0, spin_us: 1_000_000, ..packets() };
    let [polled, beside, peer] = [0, 1, 2].map(|_| open(cfg.clone()));
    assert!(looks_too_many(&polled, &polled) <= 0);
    let group = Group::new();
    [&polled, &beside].iter().for_each(|ep| ep.join(&group));
    assert!(looks_too_many(&beside, &polled) <= 0, "turns look as seldom");
    let start = Instant::now();
    for quiet in [&polled, &beside] {
        let to = peer.insert_peer(&quiet.name()).expect("name");
        let (mut data, mut buf) = ([5u8; 8], [0u8; 8]);
        let into = iov(&mut buf);
        // SAFETY: `buf` lives until the receive is over.
        unsafe { quiet.recv(&recv_op(None, 1, &into)) }.expect("posted");
        send(&peer, to, 1, &mut data, SendMode::Inject).expect("sent");
        while quiet.totals().recvs == 0 {
            peer.progress();
            polled.progress();
            assert!(start.elapsed() < LIMIT, "nobody looks at it");
        }
        assert_eq!(buf, data);
    }
    assert!(looks_too_many(&polled, &polled) > 0, "now it talks");
}
