//! What is particular to shared memory. (The other suites run over it with
//! `WEIR_TEST_CARRIER=shm`.)

mod common;

use common::{LIMIT, pair_of, pair_with, post, send, wait};
use std::time::Instant;
use weir_engine::{CarrierUse, EngineConfig, OpKind, Queue, SendMode};

/// The peer reads long payload from the sender's memory: until it has, the send must not be
/// complete.
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

/// Who only receives never finds out whether it shares memory with who sends. It tells all the same
/// that there is room for more.
#[test]
fn a_peer_that_is_never_sent_anything_may_send_on_in_packets() {
    let config = |carrier| EngineConfig {
        addrs: vec!["127.0.0.1".parse().expect("address")],
        carrier,
        credit_msgs: 64,
        ..EngineConfig::default()
    };
    let p = pair_of(config(CarrierUse::Auto), config(CarrierUse::Network));
    for n in 0..500u64 {
        let (mut data, mut buf) = (n.to_le_bytes(), [0u8; 8]);
        post(&p.a, Some(p.to_b), n, &mut buf);
        send(&p.b, p.to_a, n, &mut data, SendMode::Delivery).expect("send");
        assert_eq!(wait(&p.a, &p.b, Queue::Recv).result, Ok(()));
        assert_eq!(wait(&p.b, &p.a, Queue::Send).result, Ok(()));
        assert_eq!(u64::from_le_bytes(buf), n);
    }
}

/// A send that ends when the peer has read it ends before the peer's answer arrives, for whoever
/// reads one queue.
#[test]
fn a_question_that_waits_to_be_read_ends_before_its_answer() {
    let config = || EngineConfig { carrier: CarrierUse::Shm, ..EngineConfig::default() };
    let p = pair_of(config(), config());
    for n in 0..200u64 {
        let (mut question, mut answer) = ([1u8; 72], n.to_le_bytes());
        let (mut at_b, mut at_a) = ([0u8; 72], [0u8; 8]);
        post(&p.a, Some(p.to_b), 2 * n + 1, &mut at_a);
        post(&p.b, Some(p.to_a), 2 * n, &mut at_b);
        send(&p.a, p.to_b, 2 * n, &mut question, SendMode::Delivery).expect("send");
        let begin = Instant::now();
        let mut done = Vec::new();
        // (At first the rings are made, which takes both.)
        while done.is_empty() {
            assert!(begin.elapsed() < LIMIT, "{n}");
            p.b.poll(Queue::Recv, &mut done, 1);
            if n == 0 {
                p.a.progress();
            }
        }
        send(&p.b, p.to_a, 2 * n + 1, &mut answer, SendMode::Transmit).expect("send");
        done.clear();
        while done.len() < 2 {
            assert!(begin.elapsed() < LIMIT, "{n}: {done:?}");
            p.b.poll(Queue::Send, &mut Vec::new(), 8);
            p.a.poll(Queue::Both, &mut done, 8);
        }
        let got: Vec<_> = done.iter().map(|c| (c.kind, c.tag)).collect();
        assert_eq!(got.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [OpKind::Send, OpKind::Recv], "{n}: {got:?}");
        assert_eq!(at_a, answer);
    }
}

/// Where the rings of this process are mapped.
fn rings() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    let of_rings = maps.lines().filter(|line| line.contains("weir-shm"));
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    of_rings.filter_map(range).collect()
}

/// A message each way between `a` and another.
fn exchange(a: &weir_engine::Endpoint, to: u32, other: &weir_engine::Endpoint, back: u32, len: usize) {
    for (from, to, at, source) in [(a, to, other, back), (other, back, a, to)] {
        let (mut data, mut buf) = (common::pattern(len, 5), vec![0u8; len]);
        post(at, Some(source), 1, &mut buf);
        send(from, to, 1, &mut data, SendMode::Delivery).expect("send");
        assert_eq!(wait(at, from, Queue::Recv).result, Ok(()));
        assert_eq!(wait(from, at, Queue::Send).result, Ok(()));
        assert!(buf == data);
    }
}

/// A member of the job writes anything into all that it shares with another: what that one has with
/// it ends, and what it has with a third goes on. In a process of its own, for no other test's
/// rings are to be met.
#[test]
fn who_scribbles_into_what_it_shares_ends_that_and_nothing_else() {
    if std::env::var_os(ALONE).is_some() {
        (0..12).for_each(scribble);
        return;
    }
    let name = "who_scribbles_into_what_it_shares_ends_that_and_nothing_else";
    let mut command = std::process::Command::new(std::env::current_exe().expect("own path"));
    let output = command.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().expect("spawn");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const ALONE: &str = "WEIR_TEST_ALONE";

fn scribble(round: u64) {
    assert_eq!(rings(), [], "of the round before");
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    // Without watchdogs nobody looks, and so unmaps, while this thread still writes.
    let config = EngineConfig { addrs, carrier: CarrierUse::Shm, watchdog_us: 0, ..EngineConfig::default() };
    let p = pair_with(config.clone());
    exchange(&p.a, p.to_b, &p.b, p.to_a, 20_000);
    let shared_with_b = rings();
    assert_eq!(shared_with_b.len(), 2, "each side's");
    let c = common::open(config);
    let to_c = p.a.insert_peer(&c.name()).expect("name");
    let to_a = c.insert_peer(&p.a.name()).expect("name");
    exchange(&p.a, to_c, &c, to_a, 20_000);
    let mut buf = [0u8; 8];
    post(&p.a, Some(p.to_b), 2, &mut buf);
    let (from, to) = shared_with_b[0];
    let mut random = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    // All of it, or the rings alone: in the control words much is taken for a waiting peer.
    let from = [from, from + 4096][(round % 2) as usize];
    for word in (from..to).step_by(8) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // SAFETY: memory that both sides read and write as atomic words at any time, mapped until
        // this thread looks at it through an endpoint.
        let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(word as *mut u64) };
        word.store(random | 1, std::sync::atomic::Ordering::Relaxed);
    }
    let end = wait(&p.a, &p.a, Queue::Recv);
    assert!(matches!(end.result, Err(weir_engine::OpError::PeerDown(_))), "round {round}: {:?}", end.result);
    exchange(&p.a, to_c, &c, to_a, 200_000);
    assert!(matches!(send(&p.a, p.to_b, 1, &mut buf, SendMode::Inject), Err(weir_engine::EngineError::PeerDown(_))));
    // Nothing is left of it.
    for ep in [&p.b, &p.a, &c] {
        ep.close();
    }
}

/// Short messages that go straight into the ring, and others that take their way through the
/// tables, come in the order in which they were sent: also when the ring is full, and when the
/// sender closes as soon as it has sent the last.
#[test]
fn short_messages_keep_their_order_among_long_ones_and_arrive_though_their_sender_closes() {
    const MESSAGES: usize = 20_000;
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let p = pair_with(EngineConfig { addrs, carrier: CarrierUse::Shm, ..EngineConfig::default() });
    exchange(&p.a, p.to_b, &p.b, p.to_a, 8);
    // Some fit one record, some several, and some are asked for.
    let len_of = |i: usize| if i.is_multiple_of(97) { 300_000 } else { [8, 0, 40, 700, 8, 5000, 8][i % 7] };
    std::thread::scope(|s| {
        s.spawn(|| {
            let start = Instant::now();
            for i in 0..MESSAGES {
                let mut data = vec![i as u8; len_of(i)];
                let mode = if data.len() <= 64 { SendMode::Inject } else { SendMode::Delivery };
                while let Err(e) = send(&p.a, p.to_b, 1, &mut data, mode) {
                    assert!(matches!(e, weir_engine::EngineError::Again) && start.elapsed() < LIMIT, "{e}");
                    p.a.progress();
                }
                if mode == SendMode::Delivery {
                    let mut out = Vec::new();
                    while !out.iter().any(|c: &weir_engine::Completion| c.len == data.len()) {
                        assert!(start.elapsed() < LIMIT);
                        p.a.poll(Queue::Send, &mut out, 1);
                    }
                }
            }
            p.a.close();
        });
        let start = Instant::now();
        let mut buf = vec![0u8; 300_000];
        for i in 0..MESSAGES {
            if (i + 1).is_multiple_of(5000) {
                // The ring fills meanwhile.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            post(&p.b, Some(p.to_a), 1, &mut buf);
            let mut out = Vec::new();
            while p.b.poll(Queue::Recv, &mut out, 1) == 0 {
                assert!(start.elapsed() < LIMIT, "message {i}");
            }
            assert_eq!((out[0].len, out[0].result), (len_of(i), Ok(())), "message {i}");
            assert!(buf[..out[0].len].iter().all(|b| *b == i as u8), "message {i}");
        }
    });
}

/// A sender that closes waits until its peer has taken what went straight into the ring.
#[test]
fn who_closes_waits_for_what_the_peer_has_not_read() {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let p = pair_with(EngineConfig { addrs, carrier: CarrierUse::Shm, watchdog_us: 0, ..EngineConfig::default() });
    exchange(&p.a, p.to_b, &p.b, p.to_a, 8);
    let pause = std::time::Duration::from_millis(200);
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 0..100u8 {
                send(&p.a, p.to_b, 1, &mut [i; 8], SendMode::Inject).expect("send");
            }
            let start = Instant::now();
            p.a.close();
            assert!(start.elapsed() >= pause / 2, "it did not wait: {:?}", start.elapsed());
        });
        std::thread::sleep(pause);
        for i in 0..100u8 {
            let mut buf = [0u8; 8];
            post(&p.b, Some(p.to_a), 1, &mut buf);
            let (start, mut out) = (Instant::now(), Vec::new());
            while p.b.poll(Queue::Recv, &mut out, 1) == 0 {
                assert!(start.elapsed() < LIMIT, "message {i}");
            }
            assert_eq!((out[0].result, buf), (Ok(()), [i; 8]));
        }
    });
}

/// A peer that closes while its ring is full has no room for its farewell: what it put there still
/// comes, and then it is closed, at once and not after packets have been tried in vain.
#[test]
fn a_peer_that_closes_with_a_full_ring_is_closed() {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let quiet = EngineConfig { addrs, carrier: CarrierUse::Shm, watchdog_us: 0, ..EngineConfig::default() };
    let p = pair_with(EngineConfig { linger: std::time::Duration::from_millis(50), ..quiet });
    exchange(&p.a, p.to_b, &p.b, p.to_a, 8);
    // More than a ring holds, in records of a line each, so that not a line is left.
    for i in 0..5000u32 {
        send(&p.a, p.to_b, 1, &mut [i as u8; 8], SendMode::Inject).expect("send");
    }
    p.a.close();
    let (start, mut buf, mut came) = (Instant::now(), [0u8; 8], 0);
    let reason = loop {
        if let Err(e) = common::try_post(&p.b, Some(p.to_a), 1, &mut buf) {
            let weir_engine::EngineError::PeerDown(reason) = e else { panic!("{e}") };
            break reason;
        }
        let mut out = Vec::new();
        while p.b.poll(Queue::Recv, &mut out, 1) == 0 {
            assert!(start.elapsed().as_millis() < 1000, "after {came} messages nothing says that it is closed");
        }
        match out[0].result {
            Ok(()) => came += 1,
            Err(weir_engine::OpError::PeerDown(reason)) => break reason,
            Err(e) => panic!("{e:?}"),
        }
    };
    assert!((1000..5000).contains(&came), "{came} of 5000");
    assert_eq!(reason, weir_engine::DownReason::Closed);
}

/// A sender that has not looked since hears of the peer's end and of what it had read in one go:
/// what was read has arrived.
#[test]
fn what_a_peer_has_read_before_it_closed_has_arrived() {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let p = pair_with(EngineConfig { addrs, carrier: CarrierUse::Shm, watchdog_us: 0, ..EngineConfig::default() });
    exchange(&p.a, p.to_b, &p.b, p.to_a, 8);
    let (mut data, mut buf) = ([7u8; 1024], [0u8; 1024]);
    post(&p.b, Some(p.to_a), 1, &mut buf);
    send(&p.a, p.to_b, 1, &mut data, SendMode::Delivery).expect("send");
    let (start, mut out) = (Instant::now(), Vec::new());
    while p.b.poll(Queue::Recv, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT);
    }
    p.b.close();
    // So long that its next look is one at sockets too, which tell of the end first.
    std::thread::sleep(std::time::Duration::from_millis(100));
    out.clear();
    while p.a.poll(Queue::Send, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT);
    }
    assert_eq!(out[0].result, Ok(()));
}

/// One that was here before, left, and comes again may be slow between the handshake and its first
/// record, as on a busy machine.
#[test]
fn who_comes_again_may_take_its_time_to_say_hello() {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let p = pair_with(EngineConfig { addrs, carrier: CarrierUse::Shm, watchdog_us: 0, ..EngineConfig::default() });
    exchange(&p.a, p.to_b, &p.b, p.to_a, 8);
    let (mut data, mut buf) = ([7u8; 8], [0u8; 8]);
    post(&p.b, Some(p.to_a), 2, &mut buf);
    p.a.drop_peer(p.to_b);
    assert!(wait(&p.b, &p.a, Queue::Recv).result.is_err(), "it has left");
    p.b.remove_peer(p.to_a);
    let to_a = p.b.insert_peer(&p.a.name()).expect("name");
    let start = Instant::now();
    send(&p.b, to_a, 1, &mut data, SendMode::Delivery).expect("send");
    while common::counter(&p.a, "peers_up") < 2 {
        p.b.progress();
        (0..1000).for_each(|_| p.a.progress());
        assert!(start.elapsed() < LIMIT);
    }
    // It has said nothing yet.
    std::thread::sleep(std::time::Duration::from_millis(10));
    p.a.progress();
    assert_eq!(common::counter(&p.a, "peers_over"), 1, "the first");
    post(&p.a, None, 1, &mut buf);
    assert_eq!(wait(&p.a, &p.b, Queue::Recv).result, Ok(()));
    assert_eq!(wait(&p.b, &p.a, Queue::Send).result, Ok(()));
    assert_eq!((buf, common::counter(&p.a, "packets_received")), (data, 0));
}
