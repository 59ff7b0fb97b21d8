//! Connections of lanes at times that the tests choose.

use super::*;
use crate::api::{Class, Iov, RecvOp, SendMode, SendOp};
use crate::config::{EngineConfig, LaneUse};
use crate::core::{Core, now};
use crate::{Endpoint, Queue};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_bulk::ROUND_NS;
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
    let cfg = EngineConfig { addrs, lanes: LaneUse::Always, ..EngineConfig::packets() };
    Endpoint::open_with_key(cfg, [1; 32]).expect("open")
}

/// Works on the lanes while nobody else does.
fn with<T>(ep: &Endpoint, act: impl FnOnce(&mut Lanes, &mut State) -> T) -> T {
    let mut core = ep.shared.core.lock();
    let Core { lanes, st, .. } = &mut *core;
    act(lanes.as_mut().expect("lanes"), st)
}

/// Somebody connects.
fn stranger(ep: &Endpoint) -> TcpStream {
    let port = u16::from_be_bytes([ep.name()[2], ep.name()[3]]);
    TcpStream::connect(("127.0.0.1", port)).expect("somebody listens")
}

/// Takes what connects until there are so many connections, at a time that is returned.
fn accepted(lanes: &mut Lanes, st: &mut State, count: usize) -> Time {
    let mut at = now();
    until(|| {
        at = at.plus_ns(2 * ROUND_NS);
        lanes.progress(st, at, true);
        lanes.driver.len() == count
    });
    at
}

#[test]
fn what_came_while_this_process_stood_still_is_read_before_anything_is_late() {
    let ep = open();
    let mut s = stranger(&ep);
    with(&ep, |lanes, st| {
        let at = accepted(lanes, st, 1);
        s.write_all(&[b'W'; GREETING_LEN]).expect("room");
        lanes.progress(st, at.plus_ns(3 * SECOND_NS), true);
        assert_eq!((lanes.driver.len(), st.proto().counters().lane.greetings_refused), (0, 1));
    });
}

/// As in a child of fork(2).
#[test]
fn a_connection_that_is_dropped_ends_whoever_has_a_copy_of_it() {
    let ep = open();
    let mut s = stranger(&ep);
    let copy = with(&ep, |lanes, st| {
        let at = accepted(lanes, st, 1);
        let copy = lanes.driver.streams().next().expect("one").as_fd().try_clone_to_owned().expect("copy");
        lanes.progress(st, at.plus_ns(3 * SECOND_NS), true);
        assert!(lanes.driver.is_empty());
        copy
    });
    s.set_nonblocking(true).expect("socket");
    until(|| s.read(&mut [0]).is_ok_and(|n| n == 0));
    drop(copy);
}

#[test]
fn a_connection_that_the_system_refused_is_taken_a_second_later() {
    let ep = open();
    with(&ep, |lanes, st| {
        let fd = lanes.sockets.listener.as_ref().expect("open").as_fd().as_raw_fd();
        let kept = lanes.sockets.listener.as_ref().expect("open").as_fd().try_clone_to_owned().expect("copy");
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let put = |other: RawFd| {
            // SAFETY: both are open; the listener still owns the number and closes it once.
            assert!(unsafe { libc::dup2(other, fd) } >= 0);
        };
        // (While a copy lives, the set would not forget it.)
        lanes.sockets.epoll.delete(lanes.sockets.listener.as_ref().expect("open")).expect("it was there");
        put(null.as_raw_fd());
        let at = now().plus_ns(SECOND_NS);
        lanes.progress(st, at, false);
        assert_eq!(st.counters.lane_accepts_failed, 1);
        put(kept.as_raw_fd());
        let _s = stranger(&ep);
        lanes.progress(st, at.plus_ns(SECOND_NS / 2), false);
        assert_eq!((lanes.driver.len(), st.counters.lane_accepts_failed), (0, 1));
        assert_eq!(lanes.next_timeout(st, at), Some(at.plus_ns(DEAF_NS)));
        let mut later = at.plus_ns(DEAF_NS);
        until(|| {
            later = later.plus_ns(2 * ROUND_NS);
            lanes.progress(st, later, false);
            lanes.driver.len() == 1
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

/// One with lanes to so many others, and what it calls them.
fn hub(others: usize) -> (Arc<Endpoint>, Vec<(Arc<Endpoint>, u32)>) {
    // What is received is kept as long as the endpoints: a receive may outlast the last send.
    let (hub, mut data) = (open(), vec![7; EAGER_BYTES]);
    let room: &'static mut [u8] = Box::leak(vec![0; EAGER_BYTES].into());
    let made = (0..others).map(|_| {
        let other = open();
        let peer = hub.insert_peer(&other.name()).expect("name");
        other.insert_peer(&hub.name()).expect("name");
        until(|| {
            if with(&hub, |_, st| st.proto().has_lane(PeerId(peer)) && st.messages.held()[0] == 0) {
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

/// How many lanes it has something under way by.
fn under_way(lanes: &Lanes, st: &State) -> usize {
    lanes.driver.up().filter(|(peer, lane)| st.proto().lane_waits(*peer, *lane).is_some()).count()
}

#[test]
fn one_turn_of_writing_is_for_all_lanes_together_and_the_next_goes_on_where_it_ended() {
    let mut data = vec![7; EAGER_BYTES];
    let (hub, others) = hub(3);
    with(&hub, |lanes, _| lanes.driver.set_turn_bytes(0));
    for (_, peer) in &others {
        send(&hub, *peer, &mut data);
        send(&hub, *peer, &mut data);
    }
    with(&hub, |lanes, st| {
        assert_eq!(under_way(lanes, st), 0);
        lanes.driver.set_turn_bytes(1);
        for turn in 1..=3 {
            let at = now();
            lanes.transmit(st, at);
            assert_eq!(under_way(lanes, st), turn);
            assert_eq!(lanes.next_timeout(st, at), Some(at), "something is left");
        }
        lanes.driver.set_turn_bytes(TURN_BYTES);
        let at = now();
        lanes.transmit(st, at);
        assert_ne!(lanes.next_timeout(st, at), Some(at));
    });
}

#[test]
fn a_lane_that_the_peer_has_given_up_is_dropped_though_the_connection_never_ends() {
    let (hub, others) = hub(1);
    let other = &others[0].0;
    // Its end stays open, and whatever is written lies there unread.
    let silent = {
        let mut core = other.shared.core.lock();
        let lanes = core.lanes.take().expect("lanes");
        for (peer, lane) in lanes.driver.up() {
            core.st.proto_mut().lane_over(now(), peer, lane);
        }
        lanes
    };
    until(|| {
        hub.progress();
        other.progress();
        with(&hub, |lanes, _| lanes.driver.is_empty())
    });
    assert!(with(&hub, |_, st| !st.proto().has_lane(PeerId(others[0].1))));
    drop(silent);
}
