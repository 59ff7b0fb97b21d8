//! Bulk connections at times that the tests choose.

use super::*;
use crate::api::{Class, Iov, RecvOp, SendMode, SendOp};
use crate::clock::now;
use crate::config::{BulkUse, EngineConfig};
use crate::core::Core;
use crate::{Endpoint, Queue};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_bulk_driver::ROUND_NS;
use weir_link::GREETING_LEN;

const SECOND_NS: u64 = 1_000_000_000;
/// Goes without being asked for, and in more than one datagram of loopback's.
const EAGER_BYTES: usize = 65_530;

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never happens");
        std::thread::yield_now();
    }
}

fn open() -> Arc<Endpoint> {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let cfg = EngineConfig { addrs, bulk_connections: BulkUse::Always, ..EngineConfig::packets() };
    Endpoint::open_with_key(cfg, [1; 32]).expect("open")
}

/// Works on the bulk connections while nobody else does.
fn with<T>(ep: &Endpoint, act: impl FnOnce(&mut BulkConnections, &mut State) -> T) -> T {
    let mut core = ep.shared.core.lock();
    let Core { bulk_connections, st, .. } = &mut *core;
    act(bulk_connections.as_mut().expect("bulk connections"), st)
}

/// Somebody connects.
fn stranger(ep: &Endpoint) -> TcpStream {
    let port = u16::from_be_bytes([ep.name()[2], ep.name()[3]]);
    TcpStream::connect(("127.0.0.1", port)).expect("somebody listens")
}

/// Takes what connects until there are so many connections, at a time that is returned.
fn accepted(bulk_connections: &mut BulkConnections, st: &mut State, count: usize) -> Time {
    let mut at = now();
    until(|| {
        at = at.plus_ns(2 * ROUND_NS);
        bulk_connections.progress(st, at, true);
        bulk_connections.driver.len() == count
    });
    at
}

#[test]
fn what_came_while_this_process_stood_still_is_read_before_anything_is_late() {
    let ep = open();
    let mut s = stranger(&ep);
    with(&ep, |bulk_connections, st| {
        let at = accepted(bulk_connections, st, 1);
        s.write_all(&[b'W'; GREETING_LEN]).expect("room");
        bulk_connections.progress(st, at.plus_ns(3 * SECOND_NS), true);
        assert_eq!((bulk_connections.driver.len(), st.proto().counters().bulk.greetings_refused), (0, 1));
    });
}

/// As in a child of fork(2).
#[test]
fn a_connection_that_is_dropped_ends_whoever_has_a_copy_of_it() {
    let ep = open();
    let mut s = stranger(&ep);
    let copy = with(&ep, |bulk_connections, st| {
        let at = accepted(bulk_connections, st, 1);
        let copy = bulk_connections.driver.streams().next().expect("one").as_fd().try_clone_to_owned().expect("copy");
        bulk_connections.progress(st, at.plus_ns(3 * SECOND_NS), true);
        assert!(bulk_connections.driver.is_empty());
        copy
    });
    s.set_nonblocking(true).expect("socket");
    until(|| s.read(&mut [0]).is_ok_and(|n| n == 0));
    drop(copy);
}

#[test]
fn a_connection_that_the_system_refused_is_taken_a_second_later() {
    let ep = open();
    with(&ep, |bulk_connections, st| {
        let fd = bulk_connections.sockets.listener.as_ref().expect("open").as_fd().as_raw_fd();
        let kept =
            bulk_connections.sockets.listener.as_ref().expect("open").as_fd().try_clone_to_owned().expect("copy");
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let put = |other: RawFd| {
            // SAFETY: both are open; the listener still owns the number and closes it once.
            assert!(unsafe { libc::dup2(other, fd) } >= 0);
        };
        // (While a copy lives, the set would not forget it.)
        bulk_connections
            .sockets
            .epoll
            .delete(bulk_connections.sockets.listener.as_ref().expect("open"))
            .expect("it was there");
        put(null.as_raw_fd());
        let at = now().plus_ns(SECOND_NS);
        bulk_connections.progress(st, at, false);
        assert_eq!(st.counters.bulk_accepts_failed, 1);
        put(kept.as_raw_fd());
        let _s = stranger(&ep);
        bulk_connections.progress(st, at.plus_ns(SECOND_NS / 2), false);
        assert_eq!((bulk_connections.driver.len(), st.counters.bulk_accepts_failed), (0, 1));
        assert_eq!(bulk_connections.next_timeout(st, at), Some(at.plus_ns(DEAF_NS)));
        let mut later = at.plus_ns(DEAF_NS);
        until(|| {
            later = later.plus_ns(2 * ROUND_NS);
            bulk_connections.progress(st, later, false);
            bulk_connections.driver.len() == 1
        });
    });
}

fn send(ep: &Endpoint, peer: u32, data: &mut [u8]) {
    let iov = [Iov { base: data.as_mut_ptr(), len: data.len() }];
    let (class, mode) = (Class::Tagged, SendMode::Delivery);
    let op =
        SendOp { peer, class, tag: 1, data: None, memory: &iov, mode, copy: false, report: true, context: 1, user: 0 };
    // SAFETY: the caller's memory lives to the end of the test.
    unsafe { ep.send(&op) }.expect("accepted");
}

fn post(ep: &Endpoint, data: &mut [u8]) {
    let iov = [Iov { base: data.as_mut_ptr(), len: data.len() }];
    let class = Class::Tagged;
    let op = RecvOp {
        source: None,
        class,
        tag: 1,
        ignore: 0,
        memory: &iov,
        multi_min: None,
        report: true,
        context: 1,
        user: 0,
    };
    // SAFETY: the caller's memory lives to the end of the test.
    unsafe { ep.recv(&op) }.expect("posted");
}

/// One with bulk connections to so many others, and what it calls them.
fn hub(others: usize) -> (Arc<Endpoint>, Vec<(Arc<Endpoint>, u32)>) {
    // What is received is kept as long as the endpoints: a receive may outlast the last send.
    let (hub, mut data) = (open(), vec![7; EAGER_BYTES]);
    let room: &'static mut [u8] = Box::leak(vec![0; EAGER_BYTES].into());
    let made = (0..others).map(|_| {
        let other = open();
        let peer = hub.insert_peer(&other.name()).expect("name");
        other.insert_peer(&hub.name()).expect("name");
        until(|| {
            if with(&hub, |_, st| st.proto().has_bulk(PeerId(peer)) && st.messages.held()[0] == 0) {
                return true;
            }
            if with(&hub, |_, st| st.messages.held()[0] == 0) {
                // Received, for what nobody takes uses up the credit.
                post(&other, room);
                send(&hub, peer, &mut data);
            }
            for ep in [&hub, &other] {
                ep.progress();
                ep.poll(Queue::Both, &mut Vec::new(), 8);
            }
            false
        });
        (other, peer)
    });
    let made = made.collect();
    (hub, made)
}

/// How many bulk connections it has something under way by.
fn under_way(bulk_connections: &BulkConnections, st: &State) -> usize {
    bulk_connections.driver.up().filter(|(peer, bulk)| st.proto().bulk_waits(*peer, *bulk).is_some()).count()
}

#[test]
fn one_turn_of_writing_is_for_all_bulk_connections_together_and_the_next_goes_on_where_it_ended() {
    let mut data = vec![7; EAGER_BYTES];
    let (hub, others) = hub(3);
    with(&hub, |bulk_connections, _| bulk_connections.driver.set_turn_bytes(0));
    for (_, peer) in &others {
        send(&hub, *peer, &mut data);
        send(&hub, *peer, &mut data);
    }
    with(&hub, |bulk_connections, st| {
        assert_eq!(under_way(bulk_connections, st), 0);
        bulk_connections.driver.set_turn_bytes(1);
        for turn in 1..=3 {
            let at = now();
            bulk_connections.transmit(st, at);
            assert_eq!(under_way(bulk_connections, st), turn);
            assert_eq!(bulk_connections.next_timeout(st, at), Some(at), "something is left");
        }
        bulk_connections.driver.set_turn_bytes(TURN_BYTES);
        let at = now();
        bulk_connections.transmit(st, at);
        assert_ne!(bulk_connections.next_timeout(st, at), Some(at));
    });
}

#[test]
fn a_bulk_connection_that_the_peer_has_given_up_is_dropped_though_the_connection_never_ends() {
    let (hub, others) = hub(1);
    let other = &others[0].0;
    // Its end stays open, and whatever is written lies there unread.
    let silent = {
        let mut core = other.shared.core.lock();
        let bulk_connections = core.bulk_connections.take().expect("bulk connections");
        for (peer, bulk) in bulk_connections.driver.up() {
            core.st.proto_mut().bulk_over(now(), peer, bulk);
        }
        bulk_connections
    };
    until(|| {
        hub.progress();
        other.progress();
        with(&hub, |bulk_connections, _| bulk_connections.driver.is_empty())
    });
    assert!(with(&hub, |_, st| !st.proto().has_bulk(PeerId(others[0].1))));
    drop(silent);
}
