//! What is particular to shared memory. (The other suites run over it with `WEIR_TEST_CARRIER=shm`.)

mod common;

use common::{LIMIT, pair_with, post, send};
use std::time::Instant;
use weir_engine::{CarrierUse, EngineConfig, Queue, SendMode};

/// The peer reads long payload from the sender's memory: until it has, the send must not be complete.
#[test]
fn a_sender_may_change_its_memory_as_soon_as_its_send_is_complete() {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let p = pair_with(EngineConfig { addrs, carrier: CarrierUse::Shm, ..EngineConfig::default() });
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut data = vec![0u8; 200_000];
            for round in 0..300u32 {
                data.fill(round as u8);
                send(&p.a, p.to_b, 1, &mut data, SendMode::Delivery).expect("send");
                let (start, mut out) = (Instant::now(), Vec::new());
                while p.a.poll(Queue::Send, &mut out, 1) == 0 {
                    assert!(start.elapsed() < LIMIT);
                }
                data.fill(0xEE);
            }
        });
        let mut buf = vec![0u8; 200_000];
        for round in 0..300u32 {
            post(&p.b, Some(p.to_a), 1, &mut buf);
            let (start, mut out) = (Instant::now(), Vec::new());
            while p.b.poll(Queue::Recv, &mut out, 1) == 0 {
                assert!(start.elapsed() < LIMIT);
            }
            assert!(buf.iter().all(|b| *b == round as u8), "round {round}");
        }
    });
    assert!(p.a.counters_json().contains("\"carrier\":\"shm\""), "{}", p.a.counters_json());
}
