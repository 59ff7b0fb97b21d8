//! Messages of 100 MiB, by both ways that payload goes; what lies beyond 4 GiB is counted in
//! `core/link/tests/beyond.rs`, which needs no memory for it.

mod common;

use common::{LIMIT, about_packets, config, counter, pair_with, post, send};
use std::time::Instant;
use weir_engine::{BulkUse, EngineConfig, Queue, SendMode};

const LEN: usize = 100 << 20;

/// Each word differs from every other, so that no piece can lie in another's place unseen.
fn word(i: usize) -> [u8; 8] {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn whole(bulk_connections: BulkUse) {
    // Somewhat more than a round number, and not on a boundary of anything.
    const ODD: usize = 13;
    let p = pair_with(EngineConfig { bulk_connections, ..config() });
    let mut data = vec![0xAA; LEN + ODD];
    data.chunks_exact_mut(8).enumerate().for_each(|(i, w)| w.copy_from_slice(&word(i)));
    let mut buf = vec![0u8; data.len() + 1];
    let len = data.len();
    post(&p.b, Some(p.to_a), 1, &mut buf[..len]);
    send(&p.a, p.to_b, 1, &mut data, SendMode::Delivery).expect("send");
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while sent.is_empty() || received.is_empty() {
        p.a.poll(Queue::Send, &mut sent, 1);
        p.b.poll(Queue::Recv, &mut received, 1);
        assert!(start.elapsed() < LIMIT, "stuck: {} {}", p.a.counters_json(), p.b.counters_json());
    }
    assert_eq!((sent[0].result, received[0].result, received[0].len), (Ok(()), Ok(()), len));
    assert!(buf[..len] == data[..], "payload differs");
    assert_eq!(buf[len], 0, "written behind the receive");
    let by_bulk = counter(&p.b, "bulk_bytes_received");
    match bulk_connections {
        BulkUse::Off => assert_eq!(by_bulk, 0),
        _ => assert!(by_bulk > 0, "no bulk connection: {}", p.a.counters_json()),
    }
}

#[test]
fn a_hundred_mebibytes_go_in_packets() {
    whole(BulkUse::Off);
}

#[test]
fn a_hundred_mebibytes_go_by_a_bulk_connection() {
    if about_packets("Over shared memory no bulk connection is made") {
        return;
    }
    whole(BulkUse::Always);
}
