//! Short messages of another tag pass a large one that is under way. Judged by how much of the
//! large one comes between the sending of a short one and its arrival, not by time: the machine may
//! be busy.

mod common;

use common::{LIMIT, Pair, counter, packets, pair_with, post, send};
use std::time::Instant;
use weir_engine::{BulkUse, Completion, EngineConfig, Queue, SendMode};

const LEN: usize = 100 << 20;
const LARGE: u64 = 1;
const SHORT: u64 = 2;

/// Bytes that have arrived at `b`: those of the large message, and a little around them.
fn arrived(p: &Pair) -> u64 {
    counter(&p.b, "bytes_received") + counter(&p.b, "bulk_bytes_received")
}

/// Progress of both until `done`; what was received is added.
fn poll_until(p: &Pair, received: &mut Vec<Completion>, mut done: impl FnMut(&[Completion]) -> bool) {
    let start = Instant::now();
    while !done(received) {
        p.a.progress();
        p.b.poll(Queue::Recv, received, 1);
        assert!(start.elapsed() < LIMIT, "stuck: {} {}", p.a.counters_json(), p.b.counters_json());
    }
}

fn short_ones_pass(bulk_connections: BulkUse) {
    let p = pair_with(EngineConfig { bulk_connections, ..packets() });
    let (mut data, mut buf) = (vec![0xAA; LEN], vec![0u8; LEN]);
    post(&p.b, Some(p.to_a), LARGE, &mut buf);
    send(&p.a, p.to_b, LARGE, &mut data, SendMode::Transmit).expect("send");
    let mut received = Vec::new();
    poll_until(&p, &mut received, |_| arrived(&p) >= 1 << 20);
    let large_is_there = |received: &[Completion]| received.iter().any(|c| c.context == LARGE as usize);
    let mut between = Vec::new();
    for number in 0u64.. {
        let (mut out, mut into) = (number.to_le_bytes(), [0; 8]);
        post(&p.b, Some(p.to_a), SHORT, &mut into);
        let (before, had) = (arrived(&p), received.len());
        send(&p.a, p.to_b, SHORT, &mut out, SendMode::Inject).expect("send");
        let is_short = |r: &[Completion]| r[had..].iter().any(|c| c.context == SHORT as usize);
        poll_until(&p, &mut received, is_short);
        assert_eq!(into, out);
        if large_is_there(&received) {
            break;
        }
        between.push(arrived(&p) - before);
    }
    assert!(arrived(&p) >= LEN as u64);
    between.sort_unstable();
    let (count, middle) = (between.len(), between.get(between.len() / 2).copied().unwrap_or(u64::MAX));
    println!(
        "{bulk_connections:?}: {count} passed; {middle} bytes of the large one came meanwhile, {:?} at most",
        between.last()
    );
    assert!(count >= 16, "only {count} short messages passed: {between:?}");
    assert!(middle <= 8 << 20, "a short message waits for {middle} bytes of the large one");
    let mut sent = Vec::new();
    poll_until(&p, &mut received, |_| p.a.poll(Queue::Send, &mut sent, 8) > 0 && sent.iter().any(|c| c.tag == LARGE));
    assert!(buf == data);
}

#[test]
fn short_messages_pass_a_hundred_mebibytes_in_packets() {
    short_ones_pass(BulkUse::Off);
}

#[test]
fn short_messages_pass_a_hundred_mebibytes_on_a_bulk_connection() {
    short_ones_pass(BulkUse::Always);
}
