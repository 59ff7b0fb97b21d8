//! What is counted of each peer and each stream agrees with what the endpoint counts.

mod common;

use common::{LIMIT, iov, open, packets, recv_op, send_op, send_when_accepted};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use weir_engine::{BulkUse, Endpoint, EngineConfig, Queue, RecvOp, SendMode, SendOp};

/// 64 KiB is short in the queue statistics, and long is one byte more.
const SIZES: [usize; 5] = [8, 3000, 64 << 10, (64 << 10) + 1, 200_000];
/// Counters of a peer of which the endpoint's are the sum.
const SUMS: [&str; 15] = [
    "acks_sent",
    "acks_received",
    "packets_lost",
    "losses_spurious",
    "repairs_sent",
    "bytes_resent",
    "marks_received",
    "marks_told",
    "marks_windows",
    "grants_sent",
    "grants_received",
    "stalls_credit",
    "stalls_window",
    "stalls_pacing",
    "failovers",
];

fn document(ep: &Endpoint) -> Value {
    serde_json::from_str(&ep.counters_json()).expect("JSON")
}

/// The sum of a counter over the peers.
fn of_peers(document: &Value, name: &str) -> u64 {
    let peers = document["peers"].as_array().expect("peers");
    peers.iter().map(|p| p[name].as_u64().unwrap_or_else(|| panic!("no {name} in {p}"))).sum()
}

/// The sum of a counter over all streams of all peers.
fn of_streams(document: &Value, name: &str) -> u64 {
    let peers = document["peers"].as_array().expect("peers").iter();
    let streams = peers.flat_map(|p| p["streams"].as_object().expect("streams").values());
    streams.map(|s| s[name].as_u64().unwrap_or_else(|| panic!("no {name} in {s}"))).sum()
}

/// Each of three sends `count` messages to both others; half of the receives are posted before
/// anything is sent.
fn all_to_all(eps: &[Arc<Endpoint>; 3], peers: &[[u32; 3]; 3], count: usize) {
    let mut data: Vec<Vec<u8>> = SIZES.iter().map(|n| vec![7; *n]).collect();
    let mut bufs = vec![vec![0u8; SIZES[4]]; 3 * 2 * count];
    let mut post = |from: usize| {
        for (i, buf) in bufs.iter_mut().enumerate().skip(from).step_by(2) {
            let (iov, tag) = (iov(buf), (i / 6 % 4) as u64);
            // SAFETY: the buffers outlive their completions, which are awaited below.
            unsafe { eps[i % 3].recv(&RecvOp { context: i, ..recv_op(None, tag, &iov) }) }.expect("receive");
        }
    };
    post(0);
    for i in 0..count {
        for (me, ep) in eps.iter().enumerate() {
            for other in (0..3).filter(|o| *o != me) {
                let iov = iov(&mut data[i % SIZES.len()]);
                let op = send_op(peers[me][other], (i % 4) as u64, &iov, SendMode::Delivery);
                send_when_accepted(ep, &SendOp { context: i, ..op });
            }
        }
    }
    post(1);
    let (mut ended, start) = (0, Instant::now());
    while ended < 2 * 3 * 2 * count {
        for ep in eps {
            for queue in [Queue::Send, Queue::Recv] {
                let mut out = Vec::new();
                ended += ep.poll(queue, &mut out, 64);
                assert!(out.iter().all(|c| c.result.is_ok()));
            }
        }
        assert!(start.elapsed() < LIMIT, "{ended}: {}", eps[0].counters_json());
    }
}

fn three(cfg: &EngineConfig) -> ([Arc<Endpoint>; 3], [[u32; 3]; 3]) {
    let eps = [0; 3].map(|_| open(cfg.clone()));
    let names = [0, 1, 2].map(|i: usize| eps[i].name());
    let peers = [0, 1, 2].map(|me: usize| names.map(|name| eps[me].insert_peer(&name).expect("name")));
    (eps, peers)
}

#[test]
fn what_is_counted_of_peers_adds_up_to_the_endpoints_counters_under_loss() {
    let faults = Some("loss=5%,jitter=100us,seed=7".into());
    let (eps, peers) = three(&EngineConfig { faults, bulk_connections: BulkUse::Off, ..packets() });
    all_to_all(&eps, &peers, 60);
    for ep in &eps {
        let document = document(ep);
        for name in SUMS {
            let endpoint = document["protocol"][name].as_u64().expect("number");
            assert_eq!(of_peers(&document, name), endpoint, "{name}: {document}");
        }
        for name in ["packets_sent", "packets_received"] {
            let endpoint = document["protocol"][name].as_u64().expect("number");
            let of_peers = of_peers(&document, name);
            // Handshakes are of no peer yet, and what was dropped is of none.
            assert!(of_peers > 0 && of_peers <= endpoint, "{name}: {of_peers} of {endpoint}");
        }
        for name in ["acks_sent", "acks_received", "packets_lost", "repairs_sent", "bytes_resent", "grants_sent"] {
            assert!(of_peers(&document, name) > 0, "{name}: {document}");
        }
    }
}

#[test]
fn the_queue_statistics_of_streams_add_up_to_the_endpoints() {
    let (eps, peers) = three(&packets());
    all_to_all(&eps, &peers, 40);
    for ep in &eps {
        let document = document(ep);
        let kinds = ["expected_short", "expected_long", "unexpected_short", "unexpected_long"];
        let of_kinds = kinds.map(|name| of_streams(&document, name));
        for (name, streams) in kinds.into_iter().zip(of_kinds) {
            assert_eq!(Some(streams), document["queue_statistics"][name].as_u64(), "{name}: {document}");
        }
        assert_eq!(of_kinds.iter().sum::<u64>(), of_streams(&document, "messages_in"));
        assert_eq!(of_kinds[1] + of_kinds[3], 2 * 40 * 2 / 5, "long: {document}");
    }
}

#[test]
fn the_counters_tell_how_long_the_process_had_a_processor() {
    let ep = open(packets());
    let ran = |ep: &Endpoint| document(ep)["processor"]["ran_ms"].as_u64();
    let Some(before) = ran(&ep) else {
        // A kernel that does not count.
        return assert!(document(&ep)["processor"].is_null());
    };
    let start = Instant::now();
    while ran(&ep) < Some(before + 20) {
        assert!(start.elapsed() < LIMIT, "{}", ep.counters_json());
    }
    assert!(document(&ep)["processor"]["waited_ms"].is_u64());
}

#[test]
fn a_peer_with_a_bulk_connection_is_told_apart() {
    let (eps, peers) = three(&EngineConfig { bulk_connections: BulkUse::Always, ..packets() });
    let start = Instant::now();
    assert_eq!(of_peers(&document(&eps[0]), "bulk_connections_open"), 0);
    while of_peers(&document(&eps[0]), "bulk_connections_open") < 2 {
        all_to_all(&eps, &peers, 10);
        assert!(start.elapsed() < LIMIT, "{}", eps[0].counters_json());
    }
}
