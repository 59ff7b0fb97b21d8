//! How many descriptors an endpoint holds. One test only: they are counted for the whole process.

mod common;

use common::{LIMIT, counter, open, packets, pattern, post, send};
use std::sync::Arc;
use std::time::Instant;
use weir_engine::{BulkUse, Endpoint, EngineConfig, Queue, SendMode};

const OTHERS: usize = 50;
/// Without peers: sockets, epoll, timers and what wakes threads. No endpoint needs more, on a host
/// with one address.
const ALONE_MAX: usize = 16;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// A large message each way between `hub` and one other, and their memory until both have gone
/// through.
fn exchange(hub: &Endpoint, to_other: u32, other: &Endpoint, to_hub: u32, len: usize) {
    let (mut there, mut back) = (pattern(len, 1), pattern(len, 2));
    let (mut got, mut got_back) = (vec![0; len], vec![0; len]);
    post(other, Some(to_hub), 1, &mut got);
    post(hub, Some(to_other), 1, &mut got_back);
    send(hub, to_other, 1, &mut there, SendMode::Delivery).expect("send");
    send(other, to_hub, 1, &mut back, SendMode::Delivery).expect("send");
    let (mut ended, mut ended_there, start) = (Vec::new(), Vec::new(), Instant::now());
    while ended.len() < 2 || ended_there.len() < 2 {
        hub.poll(Queue::Both, &mut ended, 2);
        other.poll(Queue::Both, &mut ended_there, 2);
        assert!(start.elapsed() < LIMIT, "stuck: {}", hub.counters_json());
    }
    assert!(got == there && got_back == back);
}

/// An endpoint and its peers, each with the number by which it knows the other.
fn with_peers(hub: &Endpoint, cfg: &EngineConfig) -> Vec<(Arc<Endpoint>, u32, u32)> {
    let other = |_| {
        let other = open(cfg.clone());
        let to_hub = other.insert_peer(&hub.name()).expect("name");
        let to_other = hub.insert_peer(&other.name()).expect("name");
        (other, to_hub, to_other)
    };
    (0..OTHERS).map(other).collect()
}

/// Without bulk connections a peer costs no descriptor: one socket is for all, and a second one for
/// one of them.
fn without_bulk_connections_a_peer_takes_none() {
    let cfg = EngineConfig { bulk_connections: BulkUse::Off, ..packets() };
    let before = descriptors();
    let hub = open(cfg.clone());
    let alone = descriptors() - before;
    let others = with_peers(&hub, &cfg);
    for (other, to_hub, to_other) in &others {
        exchange(&hub, *to_other, other, *to_hub, 300_000);
    }
    let most = before + alone * (1 + OTHERS) + (1 + OTHERS);
    assert!(descriptors() <= most, "{} descriptors, not {most}", descriptors());
    // The hub alone: what its peers hold goes with them.
    for (other, ..) in others {
        other.close();
        drop(other);
    }
    let held = descriptors() - before;
    assert!(held <= alone + 1, "{held} descriptors for an endpoint that had {OTHERS} peers, {alone} without");
    hub.close();
}

#[test]
fn an_endpoint_holds_one_descriptor_a_peer_at_most_and_none_after_its_end() {
    // What a process has once, whatever becomes of its endpoints, is there from now on.
    drop(open(packets()));
    without_bulk_connections_a_peer_takes_none();
    let cfg = EngineConfig { bulk_connections: BulkUse::Always, ..packets() };
    // What a process has once, whatever becomes of its endpoints, is there from now on.
    drop(open(cfg.clone()));
    let before = descriptors();
    let hub = open(cfg.clone());
    let alone = descriptors() - before;
    assert!(alone <= ALONE_MAX, "{alone} descriptors for an endpoint without peers");
    let others = with_peers(&hub, &cfg);
    assert_eq!(descriptors() - before, alone * (1 + OTHERS), "each like the first");
    let start = Instant::now();
    // Until each has a bulk connection: the first message of some size only has it made.
    while others.iter().any(|(other, ..)| counter(other, "bulk_connections_opened") == 0) {
        for (other, to_hub, to_other) in &others {
            exchange(&hub, *to_other, other, *to_hub, 150_000);
        }
        assert!(start.elapsed() < LIMIT, "no bulk connections: {}", hub.counters_json());
    }
    for (other, to_hub, to_other) in &others {
        exchange(&hub, *to_other, other, *to_hub, 300_000);
    }
    // Both ends of each bulk connection are in this process, and each endpoint may have a second
    // socket, for one peer of all.
    let most = before + alone * (1 + OTHERS) + 2 * OTHERS + (1 + OTHERS);
    assert!(descriptors() <= most, "{} descriptors, not {most}", descriptors());
    let bulk_connections = counter(&hub, "bulk_connections_opened");
    assert!(bulk_connections >= OTHERS as u64, "{bulk_connections} bulk connections");
    for (other, ..) in others {
        other.close();
        drop(other);
    }
    // Of peers that are gone nothing is left with who stays, once it has been told.
    let start = Instant::now();
    while descriptors() > before + alone + 1 {
        hub.progress();
        assert!(start.elapsed() < LIMIT, "{} descriptors of an endpoint that has no peers left", descriptors());
    }
    hub.close();
    drop(hub);
    assert_eq!(descriptors(), before, "after the end");
}
