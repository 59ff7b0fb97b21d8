//! What is particular to shared memory. (The other suites run over it with `WEIR_TEST_CARRIER=shm`.)

mod common;

use common::{LIMIT, pair_of, pair_with, post, send, wait};
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

/// Nobody listens for shared memory at the other side: everything goes by packets, whoever begins.
#[test]
fn a_peer_that_shares_no_memory_is_reached_by_packets() {
    let config = |carrier| EngineConfig {
        addrs: vec!["127.0.0.1".parse().expect("address")],
        carrier,
        ..EngineConfig::default()
    };
    for first in [true, false] {
        let p = pair_of(config(CarrierUse::Auto), config(CarrierUse::Network));
        for len in [8, 5000, 300_000] {
            let (from, to, at, source) =
                if first { (&p.a, p.to_b, &p.b, p.to_a) } else { (&p.b, p.to_a, &p.a, p.to_b) };
            let (mut data, mut buf) = (vec![7u8; len], vec![0u8; len]);
            post(at, Some(source), 1, &mut buf);
            send(from, to, 1, &mut data, SendMode::Delivery).expect("send");
            assert_eq!(wait(at, from, Queue::Recv).result, Ok(()));
            assert_eq!(wait(from, at, Queue::Send).result, Ok(()));
            assert_eq!(buf, data);
        }
        assert!(p.a.counters_json().contains("\"carrier\":\"udp"), "{}", p.a.counters_json());
    }
}
