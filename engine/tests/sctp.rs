//! Whole endpoints by SCTP (spec/sctp.md): what is sent goes by it, arrives once and whole, and
//! goes in packets where it does not. Without the library the tests are reported as ignored.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{
    LIMIT, Pair, config, counter, iov, open, pair_of, pattern, post, register, register_with, rma_op, send, send_op,
    send_when_accepted, wait,
};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use weir_engine::{
    Access, CarrierUse, Endpoint, EngineConfig, EngineError, Level, OpError, Queue, RmaOp, SctpControl, SendMode,
    sctp_available,
};

type Case = (&'static str, fn());

const CASES: [Case; 10] = [
    ("what_is_sent_goes_by_sctp_and_is_whole", all_lengths),
    ("order_and_content_hold_where_packets_are_lost_doubled_and_reordered", through_a_bad_network),
    ("long_messages_both_ways_by_one_tag_come_under_every_option", both_ways),
    ("a_short_message_does_not_wait_for_a_long_one_of_another_tag", short_beside_long),
    ("a_peer_that_is_not_set_to_sctp_is_reached_by_packets", peer_without),
    ("what_was_sent_before_the_end_arrives", closing),
    ("a_peer_that_is_gone_is_given_up_as_ever", gone),
    ("packets_of_nobody_are_dropped_and_counted", strangers),
    ("a_level_that_sctp_cannot_keep_is_refused", levels),
    ("remote_memory_is_told_of_truly_while_sctp_comes_up", remote_memory),
];

fn main() -> ExitCode {
    let absent = sctp_available().err();
    if let Some(why) = &absent {
        eprintln!("ignored: {why}");
    }
    let trials = CASES.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
        .with_ignored_flag(absent.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn sctp() -> EngineConfig {
    EngineConfig { carrier: CarrierUse::Sctp, sctp_rto_min_ms: 20, ..config() }
}

fn with_faults(faults: &str) -> EngineConfig {
    EngineConfig { faults: Some(faults.to_owned()), ..sctp() }
}

/// What carries what `ep` sends to its only peer, and why.
fn carrier(ep: &Endpoint) -> (String, String) {
    let document: Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
    let told = |name: &str| document["peers"][0][name].as_str().unwrap_or_default().to_owned();
    (told("carrier"), told("carrier_why"))
}

/// A counter of SCTP's.
fn of_sctp(ep: &Endpoint, name: &str) -> u64 {
    let document: Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
    document["sctp"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {document}"))
}

/// One message from `a` to `b`.
fn message(p: &Pair, tag: u64, len: usize, mode: SendMode) {
    let (mut data, mut buf) = (pattern(len, tag as u8), vec![0; len + 1]);
    post(&p.b, None, tag, &mut buf[..len]);
    send(&p.a, p.to_b, tag, &mut data, mode).expect("send");
    let c = wait(&p.b, &p.a, Queue::Recv);
    assert_eq!((c.result, c.len, c.tag), (Ok(()), len, tag));
    assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    assert!(buf[..len] == data[..], "message {tag} of {len} bytes");
    assert_eq!(buf[len], 0, "a byte behind the receive was written");
}

/// As many writes as are accepted, to memory of `b` that may be written and, each second one, to
/// memory that may not, and a read: all begun before anything is known of the peer. Whether SCTP
/// carried some of it.
fn first_writes(mode: SendMode, len: usize) -> bool {
    let p = pair_of(sctp(), sctp());
    let (mut memory, mut other, mut back) = (vec![0u8; len], vec![0u8; len], vec![1u8; len]);
    let mut data = pattern(len, 7);
    let read_only = Access { remote_read: true, remote_write: false };
    let keys = [register(&p.b, &mut memory), register_with(&p.b, &mut other, read_only)];
    let (source, into) = (iov(&mut data), iov(&mut back));
    // SAFETY: the buffers outlive their completions.
    unsafe { p.a.read(&RmaOp { context: usize::MAX, ..rma_op(p.to_b, keys[1], &into) }) }.expect("read");
    let begin = |context: usize| {
        let op = RmaOp { mode, context, ..rma_op(p.to_b, keys[context % 2], &source) };
        // SAFETY: as above.
        unsafe { p.a.write(&op) }
    };
    let accepted = (0..1000).take_while(|n| begin(*n).is_ok()).count();
    assert!(accepted > 10, "{accepted} accepted");
    for _ in 0..=accepted {
        let c = wait(&p.a, &p.b, Queue::Send);
        let is_refused = c.context != usize::MAX && c.context % 2 == 1;
        let wanted = if is_refused { Err(OpError::Access) } else { Ok(()) };
        assert_eq!(c.result, wanted, "{len} bytes, {mode:?}, {} of {accepted}", c.context);
    }
    assert!(memory == data && other == back && other.iter().all(|b| *b == 0));
    of_sctp(&p.b, "record_bytes_received") > 0
}

fn remote_memory() {
    let (mut by_sctp, start) = (0, Instant::now());
    for len in [1usize, 64, 1000, 5000, 20_000, 40_000] {
        for mode in [SendMode::Transmit, SendMode::Acknowledged, SendMode::Delivery] {
            by_sctp += u32::from(first_writes(mode, len));
        }
    }
    // On a busy machine it may come up after the burst.
    while by_sctp == 0 {
        assert!(start.elapsed() < LIMIT, "SCTP was never up in time");
        by_sctp += u32::from(first_writes(SendMode::Transmit, 40_000));
    }
}

/// Two endpoints between which SCTP is up.
fn pair_with(cfg: EngineConfig) -> Pair {
    let p = pair_of(cfg.clone(), cfg);
    message(&p, 1, 1, SendMode::Delivery);
    let start = Instant::now();
    while [&p.a, &p.b].iter().any(|ep| carrier(ep).0 != "sctp") {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT, "SCTP does not come up: {:?} {:?}", carrier(&p.a), carrier(&p.b));
    }
    p
}

fn all_lengths() {
    let p = pair_with(sctp());
    let before = of_sctp(&p.b, "record_bytes_received");
    let mut sum = 0;
    for (i, len) in [0, 1, 100, 1400, 16_000, 16_384, 16_385, 70_000, 200_000, 3 << 20].into_iter().enumerate() {
        for mode in [SendMode::Transmit, SendMode::Delivery, SendMode::Match] {
            message(&p, 10 + i as u64, len, mode);
            sum += len as u64;
        }
    }
    let came = of_sctp(&p.b, "record_bytes_received") - before;
    assert!(came >= sum, "{came} of {sum} bytes by SCTP");
    assert_eq!((carrier(&p.a).0.as_str(), of_sctp(&p.a, "over")), ("sctp", 0));
    assert!(carrier(&p.a).1.contains("11 streams"), "{:?}", carrier(&p.a));
}

fn through_a_bad_network() {
    const EACH: usize = 60;
    let p = pair_with(with_faults("loss=3%,dup=2%,corrupt=1%,jitter=200us"));
    let len = |i: usize| [8, 1000, 20_000, 150_000][i % 4];
    // Several messages of each of several tags, in order within their tags, and of some tags late.
    let mut bufs: Vec<Vec<u8>> = (0..EACH).map(|i| vec![0; len(i)]).collect();
    let mut data: Vec<Vec<u8>> = (0..EACH).map(|i| pattern(len(i), i as u8)).collect();
    let tag = |i: usize| 100 + (i as u64 % 5);
    for (i, buf) in bufs.iter_mut().enumerate().filter(|(i, _)| i % 5 < 3) {
        post(&p.b, None, tag(i), buf);
    }
    for (i, data) in data.iter_mut().enumerate() {
        let iov = iov(data);
        send_when_accepted(&p.a, &send_op(p.to_b, tag(i), &iov, SendMode::Delivery));
    }
    for (i, buf) in bufs.iter_mut().enumerate().filter(|(i, _)| i % 5 >= 3) {
        post(&p.b, None, tag(i), buf);
    }
    for _ in 0..EACH {
        assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
    }
    for _ in 0..EACH {
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
    assert!(bufs == data, "each receive has the message of its place");
    assert_eq!(carrier(&p.a).0, "sctp");
    assert!(counter(&p.a, "faults_injected") > 0);
}

fn both_ways() {
    for control in [SctpControl::A, SctpControl::B, SctpControl::C] {
        let p = pair_with(EngineConfig { sctp_control: control, ..with_faults("loss=1%") });
        for round in 0..6u8 {
            let len = 700_000;
            let mut data = [pattern(len, round), pattern(len, round + 100)];
            let mut bufs = [vec![0; len], vec![0; len]];
            let [to_b, to_a] = &mut data;
            let [in_a, in_b] = &mut bufs;
            // The same tag both ways: acknowledgements meet what is long in one stream.
            post(&p.a, None, 7, in_a);
            post(&p.b, None, 7, in_b);
            send(&p.a, p.to_b, 7, to_b, SendMode::Match).expect("send");
            send(&p.b, p.to_a, 7, to_a, SendMode::Match).expect("send");
            for (ep, other) in [(&p.a, &p.b), (&p.b, &p.a)] {
                assert_eq!(wait(ep, other, Queue::Recv).result, Ok(()));
                assert_eq!(wait(ep, other, Queue::Send).result, Ok(()));
            }
            assert!(bufs[1] == data[0] && bufs[0] == data[1], "{control:?}, round {round}");
        }
        assert_eq!((carrier(&p.a).0.as_str(), of_sctp(&p.a, "over")), ("sctp", 0), "{control:?}");
    }
}

fn short_beside_long() {
    let p = pair_with(sctp());
    let len = 64 << 20;
    let (mut long, mut long_in) = (pattern(len, 1), vec![0; len]);
    post(&p.b, None, 5, &mut long_in);
    send(&p.a, p.to_b, 5, &mut long, SendMode::Delivery).expect("send");
    let start = Instant::now();
    while of_sctp(&p.b, "record_bytes_received") < 1 << 20 {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT);
    }
    let (mut short, mut short_in) = ([3; 8], [0; 8]);
    post(&p.b, None, 6, &mut short_in);
    send(&p.a, p.to_b, 6, &mut short, SendMode::Transmit).expect("send");
    let first = wait(&p.b, &p.a, Queue::Recv);
    assert_eq!((first.tag, short_in), (6, [3; 8]), "the long one is still under way");
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).tag, 5);
    assert!(long_in == long);
    for _ in 0..2 {
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
}

fn peer_without() {
    for (a, b) in [(sctp(), common::packets()), (common::packets(), sctp())] {
        let is_set = [&a, &b].map(|cfg| cfg.carrier == CarrierUse::Sctp);
        let p = pair_of(a, b);
        message(&p, 2, 100_000, SendMode::Delivery);
        for (ep, is_set) in [&p.a, &p.b].into_iter().zip(is_set) {
            let (word, why) = carrier(ep);
            assert!(word.starts_with("udp"), "{word}");
            assert!(!is_set || why == "no SCTP: the peer does not take it", "{why}");
        }
    }
}

fn closing() {
    // As many of each length as are copied, and so complete at once: of long ones the first two.
    const EACH: usize = 122;
    let len = |i| if i < 2 { 50_000 } else { 16_000 };
    let p = pair_with(with_faults("loss=2%"));
    let mut bufs: Vec<Vec<u8>> = (0..EACH).map(|i| vec![0; len(i)]).collect();
    bufs.iter_mut().for_each(|buf| post(&p.b, None, 4, buf));
    let mut data: Vec<Vec<u8>> = (0..EACH).map(|i| pattern(len(i), i as u8)).collect();
    for data in &mut data {
        let iov = iov(data);
        send_when_accepted(&p.a, &send_op(p.to_b, 4, &iov, SendMode::Transmit));
    }
    let Pair { a, b, .. } = p;
    std::thread::scope(|scope| {
        scope.spawn(|| a.close());
        for _ in 0..EACH {
            assert_eq!(wait(&b, &b, Queue::Recv).result, Ok(()));
        }
    });
    assert!(bufs == data);
}

fn gone() {
    // Without its thread an endpoint that nobody polls is as dead.
    let p = pair_with(EngineConfig { peer_timeout: Duration::from_millis(500), watchdog_us: 0, ..sctp() });
    let (mut data, start) = (pattern(200_000, 1), Instant::now());
    send(&p.a, p.to_b, 5, &mut data, SendMode::Match).expect("send");
    let mut out = Vec::new();
    while p.a.poll(Queue::Send, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT, "{}", p.a.counters_json());
    }
    assert!(out[0].result.is_err(), "{:?}", out[0]);
}

fn strangers() {
    let p = pair_with(sctp());
    let port = u16::from_be_bytes([p.a.name()[2], p.a.name()[3]]);
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let before = of_sctp(&p.a, "packets_dropped");
    // Places without an association, a port that is none of the peer's, no more than a port.
    let mut packets = vec![vec![0xff; 4], vec![0xc0, 0, 0xff, 0xff, 0, 0, 0, 0], vec![0xc0, 0, 0x10, 0x10]];
    packets.extend((0..50u8).map(|n| [&[0xd0 + (n % 16), n, 0xc1 + (n % 8), n][..], &[n; 60]].concat()));
    for packet in &packets {
        socket.send_to(packet, to).expect("sent");
    }
    let start = Instant::now();
    while of_sctp(&p.a, "packets_dropped") < before + packets.len() as u64 {
        p.a.progress();
        assert!(start.elapsed() < LIMIT);
    }
    // With the right ports, from where the peer is not: SCTP does not see it.
    let forged = [&[0xc0, 0, 0xc0, 0][..], &[7; 8], &[0, 3, 0, 20], &[0; 16]].concat();
    for _ in 0..10 {
        socket.send_to(&forged, to).expect("sent");
    }
    while of_sctp(&p.a, "packets_dropped") < before + packets.len() as u64 + 10 {
        p.a.progress();
        assert!(start.elapsed() < LIMIT);
    }
    message(&p, 9, 100_000, SendMode::Delivery);
    assert_eq!((carrier(&p.a).0.as_str(), of_sctp(&p.a, "over")), ("sctp", 0));
}

fn levels() {
    let cfg = EngineConfig { level: Level::Auth, ..sctp() };
    let Err(EngineError::Config { variable, problem }) = Endpoint::open_with_key(cfg, common::KEY) else {
        panic!("it must be refused");
    };
    assert!(variable == "WEIR_CARRIER" && problem.contains("WEIR_LEVEL"), "{variable}: {problem}");
    drop(open(sctp()));
}
