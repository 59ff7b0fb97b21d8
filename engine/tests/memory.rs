//! Heap memory that a peer costs an endpoint, protocol and engine together, once it is idle.

mod common;
#[path = "../../core/link/tests/counting/mod.rs"]
mod counting;

use common::{LIMIT, config, open, post, send};
use counting::held;
use std::time::{Duration, Instant};
use weir_engine::{EngineConfig, LaneUse, Queue, SendMode};

const LARGE_BYTES: usize = 65_536;

/// Bytes on the heap of `n` endpoints that all have spoken with each other, and are idle, for each endpoint.
fn of_an_endpoint(n: usize) -> i64 {
    let before = held();
    // (A lane that is open has buffers of its own; few peers have one.)
    let cfg = EngineConfig { lanes: LaneUse::Off, ..config() };
    let all: Vec<_> = (0..n).map(|_| open(cfg.clone())).collect();
    let mut small = [1u8; 100];
    let mut large = vec![2u8; LARGE_BYTES];
    let mut into = vec![0u8; LARGE_BYTES];
    let mut out = Vec::new();
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate().filter(|(j, _)| *j != i) {
            let to = a.insert_peer(&b.name()).expect("name");
            let pair = (i * n + j) as u64 * 2;
            post(b, None, pair, &mut into);
            send(a, to, pair, &mut small, SendMode::Delivery).expect("sent");
            post(b, None, pair + 1, &mut into);
            send(a, to, pair + 1, &mut large, SendMode::Delivery).expect("sent");
            let (start, mut left) = (Instant::now(), 4);
            while left > 0 {
                left -= a.poll(Queue::Both, &mut out, 4) + b.poll(Queue::Both, &mut out, 4);
                assert!(start.elapsed() < LIMIT, "{left} completions are missing");
            }
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    drop((large, into, out));
    (held() - before) / n as i64
}

// One test only: the counter is of the whole process.
#[test]
fn an_idle_peer_is_small() {
    const FEW: usize = 6;
    const MANY: usize = 26;
    // What an endpoint needs for itself is in both.
    let each = (of_an_endpoint(MANY) - of_an_endpoint(FEW)) / (MANY - FEW) as i64;
    println!("{each} bytes for an idle peer");
    assert!((1..=16 << 10).contains(&each), "{each}");
}
