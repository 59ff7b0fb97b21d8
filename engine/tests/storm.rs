//! A start in which every rank opens to every other at once, of endpoints that get little of a
//! processor: real sockets, one thread for all of them.

mod common;

use common::{open_keeping, packets, send};
use std::time::{Duration, Instant};
use weir_engine::{Endpoint, EngineConfig, SendMode};

const RANKS: usize = 48;
/// What each turn of an endpoint takes besides its own work: the others on its core have theirs.
const TURN: Duration = Duration::from_millis(5);
/// Bounds the test, many times what it takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Of the document of an endpoint's counters.
fn counted(ep: &Endpoint, name: &str) -> u64 {
    let document: serde_json::Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
    document["protocol"][name].as_u64().expect("a number")
}

/// A turn of each takes a quarter of a second, and an opening several: a peer has to answer within
/// three seconds, and sockets hold the packets of 40 openings.
#[test]
fn all_open_to_all_though_none_has_a_processor_to_itself() {
    if common::about_packets("openings are made by packets") {
        return;
    }
    let cfg = EngineConfig {
        watchdog_us: 0,
        connect_timeout: Duration::from_secs(3),
        peer_timeout: Duration::from_secs(6),
        rcvbuf_bytes: 16 << 10,
        ..packets()
    };
    let (all, deaths): (Vec<_>, Vec<_>) = (0..RANKS).map(|_| open_keeping(cfg.clone())).unzip();
    let names: Vec<_> = all.iter().map(|ep| ep.name()).collect();
    let mut data = [7; 8];
    for (me, ep) in all.iter().enumerate() {
        for by in 1..RANKS {
            let to = ep.insert_peer(&names[(me + by) % RANKS]).expect("name");
            send(ep, to, 1, &mut data, SendMode::Transmit).expect("accepted");
        }
    }
    let start = Instant::now();
    let pairs = (RANKS * (RANKS - 1)) as u64;
    let sum = |name: &str| all.iter().map(|ep| counted(ep, name)).sum::<u64>();
    let mut arrived = 0;
    while arrived < pairs && start.elapsed() < LIMIT {
        for ep in &all {
            ep.progress();
            std::thread::sleep(TURN);
        }
        arrived = sum("messages_received");
    }
    let dead: Vec<_> = deaths.iter().flat_map(|d| d.lock().expect("kept").clone()).collect();
    assert!(dead.is_empty(), "{} peers were given up that live, the first: {}", dead.len(), dead[0]);
    assert_eq!(arrived, pairs, "messages after {:?}", start.elapsed());
    let (packets, repeated) = (sum("packets_sent"), sum("handshakes_repeated"));
    eprintln!(
        "{:?}, {:.1} packets a pair, {:.2} repeated",
        start.elapsed(),
        packets as f64 / pairs as f64,
        repeated as f64 / pairs as f64
    );
    // (Most others are first messages whose acknowledgements come after a turn of everybody, and
    // what keeps alive.)
    assert!(repeated < 8 * pairs, "{repeated} repetitions for {pairs} pairs, {packets} packets");
}
