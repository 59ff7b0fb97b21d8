//! Memory that a peer costs an endpoint, all layers together, once it is idle: on the heap, and
//! shared with it.

mod common;
#[path = "../../core/link/tests/counting/mod.rs"]
mod counting;

use common::{LIMIT, config, open, post, send};
use counting::held;
use std::time::{Duration, Instant};
use weir_engine::{BulkUse, CarrierUse, EngineConfig, Queue, SendMode};

const LARGE_BYTES: usize = 65_536;

/// A ring that is not used gives its pages back after a second (spec/shm.md 8).
const IDLE: Duration = Duration::from_millis(3500);

/// Bytes of rings that this process has touched. Both ends of each are here: what a page costs is
/// told half by each of its two mappings.
fn shared_bytes() -> i64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let (mut sum, mut of_ring) = (0, false);
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("Pss:") {
            let kib = kib.trim().trim_end_matches(" kB").parse::<i64>().expect("number");
            sum += if of_ring { kib * 1024 } else { 0 };
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            of_ring = line.contains("weir-shm");
        }
    }
    sum
}

/// Bytes on the heap, and shared, of `n` endpoints that all have spoken with each other, and are
/// idle, for each endpoint.
fn of_an_endpoint(n: usize, carrier: CarrierUse) -> (i64, i64) {
    let before = held();
    // (A bulk connection that is open has buffers of its own; few peers have one.)
    let cfg = EngineConfig { bulk_connections: BulkUse::Off, carrier, ..config() };
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
    std::thread::sleep(IDLE);
    drop((large, into, out));
    ((held() - before) / n as i64, shared_bytes() / n as i64)
}

// One test only: the counter is of the whole process.
#[test]
fn an_idle_peer_is_small() {
    const FEW: usize = 6;
    const MANY: usize = 26;
    for carrier in [CarrierUse::Network, CarrierUse::Shm] {
        let (many, few) = (of_an_endpoint(MANY, carrier), of_an_endpoint(FEW, carrier));
        // What an endpoint needs for itself is in both.
        let of_each = |many: i64, few: i64| (many - few) / (MANY - FEW) as i64;
        let (heap, shared) = (of_each(many.0, few.0), of_each(many.1, few.1));
        println!("{heap} bytes on the heap and {shared} shared for an idle peer ({carrier:?})");
        assert_eq!(shared > 0, carrier == CarrierUse::Shm, "rings were to be used there only");
        assert!((1..=16 << 10).contains(&(heap + shared)), "{heap} and {shared} ({carrier:?})");
    }
}
