//! Two endpoints of one process over loopback: messages of every kind, and what must fail.

mod common;

use common::{
    KEY, LIMIT, Pair, about_packets, config, iov, open_keeping, packets, pair, pair_with, pattern, recv_op, send,
    send_op, send_when_accepted, wait,
};
use std::time::{Duration, Instant};
use weir_engine::{
    BulkUse, Class, Endpoint, EngineConfig, EngineError, OpError, OpKind, PeekOp, Queue, RecvOp, SendMode, SendOp,
};

/// A message whose data is its tag plus one.
fn send_mode(ep: &Endpoint, peer: u32, tag: u64, data: &mut [u8], mode: SendMode, context: usize) {
    let iov = iov(data);
    send_when_accepted(ep, &SendOp { data: Some(tag + 1), context, user: 5, ..send_op(peer, tag, &iov, mode) });
}

fn post(ep: &Endpoint, source: Option<u32>, tag: u64, ignore: u64, buf: &mut [u8], context: usize) {
    let iov = iov(buf);
    let op = RecvOp { ignore, context, user: 6, ..recv_op(source, tag, &iov) };
    // SAFETY: every test keeps its buffers until the completion.
    unsafe { ep.recv(&op) }.expect("receive");
}

#[test]
fn messages_of_all_sizes_arrive_expected_and_unexpected() {
    let p = pair();
    for (i, len) in
        [0, 1, 8, 64, 255, 1400, 1500, 4096, 30_000, 65_536, 65_537, 300_000, 3 << 20].into_iter().enumerate()
    {
        for expected in [true, false] {
            for mode in [SendMode::Transmit, SendMode::Delivery, SendMode::Match] {
                let mut data = pattern(len, i as u8);
                let mut buf = vec![0; len];
                if expected {
                    post(&p.b, Some(p.to_a), 9, 0, &mut buf, 1);
                }
                send_mode(&p.a, p.to_b, 9, &mut data, mode, 2);
                if !expected {
                    let until = Instant::now() + Duration::from_millis(3);
                    while Instant::now() < until {
                        p.a.progress();
                        p.b.progress();
                    }
                    post(&p.b, None, 9, 0, &mut buf, 1);
                }
                let got = wait(&p.b, &p.a, Queue::Recv);
                assert_eq!(
                    (got.context, got.user, got.kind, got.len, got.tag, got.data, got.source),
                    (1, 6, OpKind::Recv, len, 9, Some(10), Some(p.to_a))
                );
                assert_eq!(got.result, Ok(()));
                assert!(buf == data, "payload of {len} bytes differs");
                let sent = wait(&p.a, &p.b, Queue::Send);
                assert_eq!((sent.context, sent.user, sent.kind, sent.result), (2, 5, OpKind::Send, Ok(())));
            }
        }
    }
}

/// Bytes that an endpoint has sent in packets.
fn bytes_sent(ep: &Endpoint) -> u64 {
    let document: serde_json::Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
    document["protocol"]["bytes_sent"].as_u64().expect("a number")
}

#[test]
fn of_a_message_beyond_the_eager_limit_no_payload_leaves_before_its_match() {
    let p = pair_with(EngineConfig { bulk_connections: BulkUse::Off, ..packets() });
    let limit = EngineConfig::default().eager_bytes as usize;
    for (len, asks) in [(8, false), (30_000, false), (limit + 65_536, true), (1 << 20, true)] {
        let (mut data, mut buf) = (pattern(len, 7), vec![0; len]);
        let before = bytes_sent(&p.a);
        send_mode(&p.a, p.to_b, 11, &mut data, SendMode::Match, 2);
        // Long after it is known there, nobody has received it.
        let peek =
            PeekOp { source: None, class: Class::Tagged, tag: 11, ignore: 0, claim: false, discard: false, context: 0 };
        let start = Instant::now();
        let mut rounds_after = 0;
        while rounds_after < 1000 {
            p.a.progress();
            p.b.progress();
            rounds_after += u32::from(p.b.peek(&peek).expect("peek").is_some());
            assert!(start.elapsed() < LIMIT);
        }
        let sent = bytes_sent(&p.a) - before;
        assert!(if asks { sent < 2000 } else { sent > len as u64 }, "{sent} bytes of {len} before the match");
        post(&p.b, None, 11, 0, &mut buf, 1);
        assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        assert!(buf == data && bytes_sent(&p.a) - before > len as u64);
    }
}

/// What `ep` tells of the streams of its only peer, added up: messages and bytes out, messages and
/// bytes in; and how many were used.
fn streams(ep: &Endpoint) -> ([u64; 4], usize) {
    let document: serde_json::Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
    let used = document["peers"][0]["streams"].as_object().expect("streams");
    let sum = |name: &str| used.values().map(|s| s[name].as_u64().expect("a number")).sum();
    (["messages_out", "bytes_out", "messages_in", "bytes_in"].map(sum), used.len())
}

#[test]
fn each_stream_of_each_peer_is_counted() {
    let p = pair();
    let lens = [0, 100, 5000, 600_000];
    let total = lens.iter().sum::<usize>() as u64;
    for tag in [1, 2] {
        for len in lens {
            let (mut data, mut buf) = (pattern(len, 1), vec![0; len]);
            post(&p.b, None, tag, 0, &mut buf, 1);
            send_mode(&p.a, p.to_b, tag, &mut data, SendMode::Delivery, 2);
            wait(&p.b, &p.a, Queue::Recv);
            wait(&p.a, &p.b, Queue::Send);
        }
    }
    assert_eq!(streams(&p.a), ([8, 2 * total, 0, 0], 2));
    assert_eq!(streams(&p.b), ([0, 0, 8, 2 * total], 2));
}

#[test]
fn a_match_mode_send_completes_only_after_the_match() {
    let p = pair();
    let mut data = pattern(100, 1);
    send_mode(&p.a, p.to_b, 3, &mut data, SendMode::Match, 1);
    let until = Instant::now() + Duration::from_millis(50);
    let mut out = Vec::new();
    while Instant::now() < until {
        assert_eq!(p.a.poll(Queue::Send, &mut out, 1), 0, "completed without a match");
        p.b.progress();
    }
    let mut buf = [0; 100];
    post(&p.b, None, 3, 0, &mut buf, 2);
    assert_eq!(wait(&p.a, &p.b, Queue::Send).context, 1);
}

#[test]
fn a_short_receive_is_truncated_and_says_by_how_much() {
    let p = pair();
    for len in [1000, 200_000] {
        let mut data = pattern(len, 1);
        let mut buf = [0; 300];
        send_mode(&p.a, p.to_b, 3, &mut data, SendMode::Transmit, 1);
        post(&p.b, None, 3, 0, &mut buf, 2);
        let got = wait(&p.b, &p.a, Queue::Recv);
        assert_eq!(got.result, Err(OpError::Truncated { excess: len - 300 }));
        assert_eq!(got.len, 300);
        assert!(buf[..] == data[..300]);
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
}

#[test]
fn messages_to_self_behave_like_others() {
    let p = pair();
    let me = p.a.insert_peer(&p.a.name()).expect("own name");
    for len in [0, 10, 5000, 1 << 20] {
        for expected in [true, false] {
            let mut data = pattern(len, 2);
            let mut buf = vec![0; len];
            if expected {
                post(&p.a, Some(me), 4, 0, &mut buf, 1);
            }
            send_mode(&p.a, me, 4, &mut data, SendMode::Transmit, 2);
            if !expected {
                post(&p.a, None, 0, u64::MAX, &mut buf, 1);
            }
            let got = wait(&p.a, &p.b, Queue::Recv);
            assert_eq!((got.len, got.source, got.result), (len, Some(me), Ok(())));
            assert!(buf == data);
            assert_eq!(wait(&p.a, &p.b, Queue::Send).context, 2);
        }
    }
}

#[test]
fn peek_claim_and_discard() {
    let p = pair();
    let peek = |claim, discard| PeekOp {
        source: Some(p.to_a),
        class: Class::Tagged,
        tag: 5,
        ignore: 0,
        claim,
        discard,
        context: 77,
    };
    assert!(p.b.peek(&peek(false, false)).expect("peek").is_none());
    for len in [40, 150_000] {
        let mut data = pattern(len, 3);
        for discard in [false, true] {
            send_mode(&p.a, p.to_b, 5, &mut data, SendMode::Transmit, 1);
            let start = Instant::now();
            let seen = loop {
                p.a.progress();
                if let Some(c) = p.b.peek(&peek(false, false)).expect("peek") {
                    break c;
                }
                assert!(start.elapsed() < LIMIT);
            };
            assert_eq!((seen.len, seen.tag, seen.data, seen.source), (len, 5, Some(6), Some(p.to_a)));
            if discard {
                assert!(p.b.peek(&peek(false, true)).expect("peek").is_some());
            } else {
                assert!(p.b.peek(&peek(true, false)).expect("claim").is_some());
                assert!(p.b.peek(&peek(false, false)).expect("peek").is_none(), "a claimed message is hidden");
                let mut buf = vec![0; len];
                let iov = iov(&mut buf);
                let op = RecvOp { context: 77, ..recv_op(None, 0, &iov) };
                // SAFETY: `buf` outlives the completion.
                unsafe { p.b.recv_claimed(&op) }.expect("claimed");
                assert_eq!(wait(&p.b, &p.a, Queue::Recv).len, len);
                assert!(buf == data);
            }
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        }
    }
}

#[test]
fn a_cancelled_receive_completes_once_and_matches_nothing() {
    let p = pair();
    let (mut first, mut second) = ([0; 8], [0; 8]);
    post(&p.b, None, 5, 0, &mut first, 11);
    post(&p.b, None, 5, 0, &mut second, 12);
    assert!(p.b.cancel(11));
    assert!(!p.b.cancel(11));
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Err(OpError::Cancelled));
    send_mode(&p.a, p.to_b, 5, &mut [9; 8], SendMode::Inject, 1);
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).context, 12);
    assert_eq!((first, second), ([0; 8], [9; 8]));
}

#[test]
fn multi_receive_takes_messages_until_full_and_says_so_last() {
    let p = pair();
    let mut buf = vec![0u8; 10_000];
    let base = buf.as_mut_ptr() as usize;
    let whole = iov(&mut buf);
    let op = RecvOp { class: Class::Untagged, context: 21, multi_min: Some(1000), ..recv_op(None, 0, &whole) };
    // SAFETY: `buf` outlives the completions.
    unsafe { p.b.recv(&op) }.expect("receive");
    let mut expected_at = 0;
    for i in 0..10u8 {
        let mut data = pattern(990, i);
        let iov = iov(&mut data);
        let op = SendOp { class: Class::Untagged, report: false, ..send_op(p.to_b, 0, &iov, SendMode::Inject) };
        // SAFETY: injected: copied before return.
        unsafe { p.a.send(&op) }.expect("send");
        let got = wait(&p.b, &p.a, Queue::Recv);
        assert_eq!((got.context, got.len, got.address - base), (21, 990, expected_at));
        expected_at += 990;
        let done = 10_000 - expected_at < 1000;
        assert_eq!(got.multi_done, done, "after {expected_at} bytes");
        if done {
            break;
        }
    }
    assert_eq!(expected_at, 9900);
}

#[test]
fn order_within_a_tag_holds_across_eager_and_rendezvous() {
    let p = pair();
    let sizes = [8, 100_000, 8, 40_000, 70_000, 8, 8, 300_000];
    let mut data: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| pattern(n, i as u8)).collect();
    for (i, d) in data.iter_mut().enumerate() {
        send_mode(&p.a, p.to_b, 1, d, SendMode::Transmit, i);
    }
    let mut bufs: Vec<Vec<u8>> = sizes.iter().map(|_| vec![0; 300_000]).collect();
    for (i, b) in bufs.iter_mut().enumerate() {
        post(&p.b, None, 0, u64::MAX, b, i);
    }
    for _ in &sizes {
        let got = wait(&p.b, &p.a, Queue::Recv);
        assert_eq!(got.len, sizes[got.context], "receive {} took the wrong message", got.context);
    }
    for (i, d) in data.iter().enumerate() {
        assert!(bufs[i][..d.len()] == d[..]);
    }
}

#[test]
fn of_one_queue_for_both_the_question_is_done_before_its_answer() {
    let p = pair();
    let (mut question, mut answer) = (pattern(72, 1), pattern(32, 2));
    let (mut at_b, mut at_a) = (vec![0; 72], vec![0; 32]);
    post(&p.a, Some(p.to_b), 4, 0, &mut at_a, 3);
    post(&p.b, Some(p.to_a), 4, 0, &mut at_b, 2);
    send_mode(&p.a, p.to_b, 4, &mut question, SendMode::Transmit, 1);
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).context, 2);
    send_mode(&p.b, p.to_a, 4, &mut answer, SendMode::Transmit, 4);
    assert_eq!(wait(&p.b, &p.a, Queue::Send).context, 4);
    // The answer is there before anybody asks for what has completed.
    let begin = Instant::now();
    let came = |ep: &Endpoint| {
        let counters: serde_json::Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
        counters["engine"]["expected"].as_u64()
    };
    while came(&p.a) != Some(1) {
        assert!(begin.elapsed() < LIMIT, "the answer never came");
        p.a.progress();
        p.b.progress();
    }
    assert_eq!(at_a, answer);
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(begin.elapsed() < LIMIT, "{done:?}");
        // One at a time: a short list must not turn them around.
        p.a.poll(Queue::Both, &mut done, 1);
    }
    assert_eq!(done.iter().map(|c| (c.context, c.kind)).collect::<Vec<_>>(), [(1, OpKind::Send), (3, OpKind::Recv)]);
}

// spec: P-7.3
#[test]
fn another_job_key_is_refused_with_a_clear_word() {
    let a = Endpoint::open_with_key(config(), KEY).expect("open");
    let b = Endpoint::open_with_key(config(), [8; 32]).expect("open");
    let error = a.insert_peer(&b.name()).expect_err("must be refused").to_string();
    assert!(error.contains("job key") && error.contains("WEIR_KEY"), "{error}");
    assert!(a.insert_peer(&[0; 48]).is_err());
    assert!(a.insert_peer(&[1; 47]).is_err());
}

#[test]
fn a_dead_peer_fails_its_own_operations_and_no_others() {
    // The other two live: long enough for them to be stopped for a while.
    let cfg = EngineConfig {
        peer_timeout: Duration::from_secs(3),
        connect_timeout: Duration::from_secs(3),
        linger: Duration::from_millis(50),
        ..config()
    };
    let p = pair_with(cfg.clone());
    let dead = Endpoint::open_with_key(cfg, KEY).expect("open");
    let to_dead = p.a.insert_peer(&dead.name()).expect("name");
    drop(dead);
    let (mut data, mut buf, mut any) = (pattern(100_000, 1), [0; 8], [0; 8]);
    send_mode(&p.a, to_dead, 1, &mut data, SendMode::Transmit, 1);
    post(&p.a, Some(to_dead), 1, 0, &mut buf, 2);
    post(&p.a, None, 1, 0, &mut any, 3);
    let sent = wait(&p.a, &p.b, Queue::Send);
    assert!(matches!(sent.result, Err(OpError::PeerDown(_))), "{:?}", sent.result);
    let got = wait(&p.a, &p.b, Queue::Recv);
    assert_eq!(got.context, 2);
    assert!(matches!(got.result, Err(OpError::PeerDown(_))));
    send_mode(&p.b, p.to_a, 1, &mut [3; 8], SendMode::Inject, 4);
    assert_eq!(wait(&p.a, &p.b, Queue::Recv).context, 3);
    assert_eq!(any, [3; 8]);
    let op = SendOp { report: false, ..send_op(to_dead, 1, &[], SendMode::Inject) };
    // SAFETY: no memory.
    assert!(matches!(unsafe { p.a.send(&op) }, Err(EngineError::PeerDown(_))));
}

#[test]
fn injected_messages_survive_closing() {
    let p = pair();
    let mut buf = vec![0; 64 * 100];
    for (i, b) in buf.chunks_mut(64).enumerate() {
        post(&p.b, None, i as u64, 0, b, i);
    }
    for i in 0..100 {
        send_mode(&p.a, p.to_b, i, &mut pattern(64, i as u8), SendMode::Inject, 0);
    }
    let (a, b) = (p.a, p.b);
    let closer = std::thread::spawn(move || a.close());
    for i in 0..100 {
        let start = Instant::now();
        let mut out = Vec::new();
        while b.poll(Queue::Recv, &mut out, 1) == 0 {
            assert!(start.elapsed() < LIMIT, "message {i} is missing: {}", b.counters_json());
        }
        assert_eq!(out[0].result, Ok(()));
    }
    closer.join().expect("close");
    for (i, b) in buf.chunks(64).enumerate() {
        assert!(b == pattern(64, i as u8));
    }
}

#[test]
fn a_sleeper_is_woken_by_the_notify_descriptor() {
    let p = pair();
    let mut buf = [0; 8];
    post(&p.b, None, 1, 0, &mut buf, 1);
    assert!(p.b.arm());
    send_mode(&p.a, p.to_b, 1, &mut [4; 8], SendMode::Inject, 0);
    let mut fd = libc::pollfd { fd: p.b.notify_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    let ready = unsafe { libc::poll(&raw mut fd, 1, LIMIT.as_millis() as i32) };
    assert_eq!(ready, 1, "not woken");
    assert!(!p.b.arm(), "a completion is there");
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).context, 1);
}

#[test]
fn the_watchdog_answers_for_a_program_that_does_not_poll() {
    let p = pair();
    let mut data = pattern(500_000, 1);
    let mut buf = vec![0; 500_000];
    post(&p.b, None, 1, 0, &mut buf, 1);
    send_mode(&p.a, p.to_b, 1, &mut data, SendMode::Delivery, 2);
    // Only `a` polls; `b` computes. The rendezvous must be answered all the same.
    let start = Instant::now();
    let mut out = Vec::new();
    while p.a.poll(Queue::Send, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT, "the rendezvous was not answered");
    }
    assert!(buf == data);
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_rendezvous_fails_its_receive() {
    let cfg = EngineConfig {
        peer_timeout: Duration::from_secs(3),
        linger: Duration::from_millis(1),
        eager_bytes: 1000,
        ..config()
    };
    let p = pair_with(cfg);
    // Far more than the first grant: with nobody polling on either side it cannot be through when
    // the sender closes.
    let (mut data, mut buf) = (vec![1; 200 << 20], vec![0; 200 << 20]);
    post(&p.b, Some(p.to_a), 1, 0, &mut buf, 2);
    send_mode(&p.a, p.to_b, 1, &mut data, SendMode::Transmit, 1);
    let start = Instant::now();
    // SAFETY: reads one byte of a live buffer, which the endpoint writes.
    while unsafe { buf.as_ptr().read_volatile() } == 0 {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT);
    }
    drop(p.a);
    let (start, mut out) = (Instant::now(), Vec::new());
    while p.b.poll(Queue::Recv, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT, "the receive hangs: {}", p.b.counters_json());
    }
    assert_eq!(out[0].context, 2);
    assert!(matches!(out[0].result, Err(OpError::PeerDown(_))), "{:?}", out[0].result);
}

/// Not a test of its own: run as a process by the next one, which kills it.
#[test]
fn victim() {
    if std::env::var_os("WEIR_TEST_VICTIM").is_none() {
        return;
    }
    let ep = Endpoint::open_with_key(config(), KEY).expect("open");
    println!("\nname {}", ep.name().iter().map(|b| format!("{b:02x}")).collect::<String>());
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        ep.progress();
    }
}

#[test]
fn a_killed_process_is_noticed_long_before_the_timeout() {
    use std::io::BufRead;
    for closing in [false, true] {
        let mut child = std::process::Command::new(std::env::current_exe().expect("own path"))
            .args(["--exact", "victim", "--nocapture"])
            .env("WEIR_TEST_VICTIM", "1")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("spawn");
        let out = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let line = out.lines().map_while(Result::ok).find_map(|l| l.strip_prefix("name ").map(str::to_owned));
        let hex = line.expect("the name of the other process");
        let name: Vec<u8> =
            (0..48).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect();
        // Who waited for these would wait for longer than the test does.
        let (peer_timeout, linger) = (10 * LIMIT, 10 * LIMIT);
        let mut p = pair_with(EngineConfig { peer_timeout, linger, ..config() });
        let (a, deaths) = open_keeping(EngineConfig { peer_timeout, linger, ..config() });
        p.a = a;
        let to = p.a.insert_peer(&name).expect("name");
        let (mut data, mut buf) = (pattern(8, 1), [0; 8]);
        send_mode(&p.a, to, 1, &mut data, SendMode::Delivery, 2);
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        post(&p.a, Some(to), 9, 0, &mut buf, 3);
        child.kill().expect("kill");
        child.wait().expect("wait");
        // Over shared memory its end may be known by now.
        let sent = send(&p.a, to, 1, &mut data, SendMode::Inject);
        assert!(matches!(sent, Ok(()) | Err(EngineError::PeerDown(_))), "{sent:?}");
        let start = Instant::now();
        if closing {
            p.a.close();
        } else {
            let got = wait(&p.a, &p.b, Queue::Recv);
            assert_eq!(got.context, 3);
            assert!(matches!(got.result, Err(OpError::PeerDown(_))), "{:?}", got.result);
            // What users are told names the very process. Other tests lose peers too.
            let port = weir_wire::EndpointName::decode(&name).expect("name").port;
            let gone = format!("peer 127.0.0.1:{port}");
            let deaths = deaths.lock().expect("kept");
            // Over shared memory the system tells; else its port is nobody's.
            let ends = ["its program is gone; taken for dead", ": its program has ended; taken for dead"];
            let told = |line: &String| line.starts_with(&gone) && ends.iter().any(|end| line.ends_with(end));
            assert_eq!(deaths.iter().filter(|line| told(line)).count(), 1, "{gone}: {deaths:?}");
        }
        assert!(start.elapsed() < LIMIT, "{:?} (closing: {closing})", start.elapsed());
    }
}

#[test]
fn thousands_of_receives_for_waiting_rendezvous_are_all_answered() {
    const N: usize = 3000;
    let p = pair_with(EngineConfig { eager_bytes: 16, watchdog_us: 0, ..config() });
    let mut data = pattern(100, 1);
    for i in 0..N {
        send_mode(&p.a, p.to_b, 1, &mut data, SendMode::Transmit, i);
    }
    let start = Instant::now();
    while !p.b.counters_json().contains(&format!("\"unexpected\":{N}")) {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT, "{}", p.b.counters_json());
    }
    // All at once, without a poll: more answers than the control window holds.
    let mut bufs = vec![0; 100 * N];
    for (i, b) in bufs.chunks_mut(100).enumerate() {
        post(&p.b, None, 1, 0, b, i);
    }
    for _ in 0..N {
        assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
    }
    assert!(bufs.chunks(100).all(|b| b == data));
}

#[test]
fn every_match_is_told_however_many_come_at_once() {
    // More than an answer queue of 65536 holds.
    const N: usize = 70_000;
    let p = pair_with(EngineConfig { watchdog_us: 0, credit_msgs: N as u32 + 100, ..config() });
    send_mode(&p.a, p.to_b, 2, &mut [], SendMode::Delivery, 0);
    assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    post(&p.b, None, 2, 0, &mut [], 0);
    for i in 0..N {
        send_mode(&p.a, p.to_b, 1, &mut [], SendMode::Match, i);
        if i % 100 == 0 {
            p.b.progress();
        }
    }
    let start = Instant::now();
    while !p.b.counters_json().contains(&format!("\"unexpected\":{N}")) {
        for _ in 0..100 {
            p.a.progress();
            p.b.progress();
        }
        assert!(start.elapsed() < LIMIT, "{}", p.b.counters_json());
    }
    for i in 0..N {
        post(&p.b, None, 1, 0, &mut [], i);
    }
    for _ in 0..N {
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
}

#[test]
fn a_closed_endpoint_says_nothing_more() {
    let p = pair_with(EngineConfig { linger: Duration::ZERO, watchdog_us: 0, ..config() });
    let mut data = pattern(60_000, 3);
    for i in 0..20 {
        send_mode(&p.a, p.to_b, 1, &mut data, SendMode::Transmit, i);
    }
    p.a.close();
    data.fill(0);
    let mut bufs = vec![7; 20 * 60_000];
    for (i, b) in bufs.chunks_mut(60_000).enumerate() {
        post(&p.b, None, 1, 0, b, i);
    }
    let start = Instant::now();
    let mut out = Vec::new();
    while start.elapsed() < Duration::from_millis(300) {
        p.a.poll(Queue::Both, &mut out, 64);
        p.b.poll(Queue::Recv, &mut out, 64);
    }
    let want = pattern(60_000, 3);
    for c in out.iter().filter(|c| c.kind == OpKind::Recv && c.result.is_ok()) {
        assert!(bufs[c.context * 60_000..][..60_000] == want[..], "delivered what was no longer there");
    }
}

// spec: P-5.7, P-5.16
#[test]
fn an_eager_limit_above_half_of_the_credit_refuses_nothing() {
    let p = pair_with(EngineConfig { eager_bytes: 1 << 20, credit_bytes: 1 << 20, ..config() });
    for len in [600_000, 1 << 20] {
        // The second time the peer is up and its credit known.
        for context in 0..2 {
            let (mut data, mut buf) = (pattern(len, 4), vec![0; len]);
            post(&p.b, None, 1, 0, &mut buf, context);
            send_mode(&p.a, p.to_b, 1, &mut data, SendMode::Transmit, context);
            assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
            assert!(buf == data);
        }
    }
}

/// Datagrams that hold what `count` small sends in a row brought, nobody polling at the sender.
fn datagrams_of_a_burst(cfg: EngineConfig, count: u64) -> u64 {
    datagrams_of(cfg, count, false)
}

/// The same, with sends that were announced or were not.
fn datagrams_of(cfg: EngineConfig, count: u64, expected: bool) -> u64 {
    let p = pair_with(cfg);
    let mut byte = [7; 8];
    let mut bufs = vec![[0; 8]; count as usize + 1];
    for (i, buf) in bufs.iter_mut().enumerate() {
        post(&p.b, Some(p.to_a), 5, 0, buf, i);
    }
    // The handshake, and a first message that is acknowledged.
    send_mode(&p.a, p.to_b, 5, &mut byte, SendMode::Transmit, 0);
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).context, 0);
    wait(&p.a, &p.b, Queue::Send);
    // The first message belongs to no burst.
    std::thread::sleep(Duration::from_millis(5));
    let before = sent_datagrams(&p);
    if expected {
        p.a.expect_several();
    }
    for _ in 0..count {
        send_mode(&p.a, p.to_b, 5, &mut byte, SendMode::Transmit, 0);
    }
    let (start, mut out) = (Instant::now(), Vec::new());
    while out.len() < count as usize {
        p.b.poll(Queue::Recv, &mut out, 16);
        assert!(start.elapsed() < LIMIT, "{} of {count} came", out.len());
    }
    sent_datagrams(&p) - before
}

fn sent_datagrams(p: &Pair) -> u64 {
    let json: serde_json::Value = serde_json::from_str(&p.a.counters_json()).expect("JSON");
    json["transport"]["tx_datagrams"].as_u64().expect("a number")
}

#[test]
fn small_sends_in_a_burst_share_packets_and_leave_although_nobody_polls() {
    if about_packets("In shared memory each message is a record of its own") {
        return;
    }
    // Two sends that the machine lets happen a millisecond apart share no packet; where none ever
    // does, each has its own each time.
    let start = Instant::now();
    loop {
        let shared = datagrams_of_a_burst(EngineConfig { coalesce_ns: 1_000_000, ..config() }, 100);
        if shared < 60 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{shared} datagrams");
    }
    // Without a thread that looks after them none may be held back.
    let alone = datagrams_of_a_burst(EngineConfig { coalesce_ns: 1_000_000, watchdog_us: 0, ..config() }, 100);
    assert!(alone >= 100, "{alone} datagrams");
}

/// Sends six of 1000 bytes in a row. How many datagrams have left by then.
fn six_in_a_row(p: &Pair) -> u64 {
    let before = sent_datagrams(p);
    for _ in 0..6 {
        send_mode(&p.a, p.to_b, 5, &mut [7; 1000], SendMode::Inject, 0);
    }
    sent_datagrams(p) - before
}

#[test]
fn short_sends_in_a_burst_share_system_calls_until_some_have_waited_long() {
    if about_packets("In shared memory each message is a record of its own") {
        return;
    }
    // (What the machine lets happen late proves nothing.)
    let start = Instant::now();
    loop {
        let p = pair_with(EngineConfig { coalesce_ns: 1_000_000, ..config() });
        let mut byte = [7; 8];
        post(&p.b, Some(p.to_a), 5, 0, &mut [0; 8], 0);
        send_mode(&p.a, p.to_b, 5, &mut byte, SendMode::Transmit, 0);
        wait(&p.b, &p.a, Queue::Recv);
        wait(&p.a, &p.b, Queue::Send);
        std::thread::sleep(Duration::from_millis(5));
        let together = six_in_a_row(&p);
        // Who does not poll has them sent by the watchdog.
        std::thread::sleep(Duration::from_millis(50));
        let apart = six_in_a_row(&p);
        if together == 1 && apart > 2 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{together}, {apart} datagrams");
    }
}

/// What is announced is as small as a small message, however long it is itself.
#[test]
fn announcements_in_a_burst_share_packets() {
    if about_packets("In shared memory each message is a record of its own") {
        return;
    }
    const COUNT: usize = 60;
    let start = Instant::now();
    loop {
        let p = pair_with(EngineConfig { eager_bytes: 0, coalesce_ns: 1_000_000, ..config() });
        let mut long = pattern(8 << 10, 1);
        let mut bufs = vec![vec![0; long.len()]; COUNT + 1];
        post(&p.b, Some(p.to_a), 5, 0, &mut bufs[COUNT], COUNT);
        send_mode(&p.a, p.to_b, 5, &mut long, SendMode::Transmit, COUNT);
        wait(&p.b, &p.a, Queue::Recv);
        wait(&p.a, &p.b, Queue::Send);
        let before = sent_datagrams(&p);
        for i in 0..COUNT {
            send_mode(&p.a, p.to_b, 5, &mut long, SendMode::Transmit, i);
        }
        let took = sent_datagrams(&p) - before;
        for (i, buf) in bufs[..COUNT].iter_mut().enumerate() {
            post(&p.b, Some(p.to_a), 5, 0, buf, i);
            assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
        }
        assert!(bufs.iter().all(|buf| *buf == long));
        if took < COUNT as u64 / 2 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{took} datagrams");
    }
}

#[test]
fn sends_that_are_expected_wait_for_each_other_the_first_too() {
    if about_packets("In shared memory each message is a record of its own") {
        return;
    }
    let cfg = || EngineConfig { coalesce_ns: 1_000_000, ..config() };
    assert!(datagrams_of(cfg(), 2, false) > 1);
    let start = Instant::now();
    while datagrams_of(cfg(), 2, true) > 1 {
        assert!(start.elapsed() < LIMIT, "they never share a packet");
    }
    let alone = EngineConfig { watchdog_us: 0, ..cfg() };
    assert!(datagrams_of(alone, 2, true) > 1, "without a thread that looks after them none may be held back");
}

/// Whoever drops it has its memory back: nothing of what the endpoint had with itself is carried
/// any more.
#[test]
fn what_an_endpoint_has_with_itself_ends_when_it_drops_itself() {
    let (ep, _) = open_keeping(config());
    let me = ep.insert_peer(&ep.name()).expect("own name");
    let (mut first, mut long) = ([0; 8], vec![1; 1 << 20]);
    post(&ep, Some(me), 1, 0, &mut first, 1);
    send_mode(&ep, me, 2, &mut long, SendMode::Transmit, 2);
    ep.drop_peer(me);
    for (queue, context) in [(Queue::Recv, 1), (Queue::Send, 2)] {
        let ended = wait(&ep, &ep, queue);
        assert_eq!(ended.context, context);
        assert!(matches!(ended.result, Err(OpError::PeerDown(_))), "{ended:?}");
    }
    // It may begin again, with other memory, once what had arrived is gone too.
    let rest = PeekOp {
        source: Some(me),
        class: Class::Tagged,
        tag: 0,
        ignore: u64::MAX,
        claim: false,
        discard: true,
        context: 0,
    };
    while let Ok(Some(_)) = ep.peek(&rest) {}
    ep.remove_peer(me);
    let me = ep.insert_peer(&ep.name()).expect("own name");
    let mut second = [0; 8];
    post(&ep, Some(me), 1, 0, &mut second, 3);
    send_mode(&ep, me, 1, &mut [7; 8], SendMode::Inject, 4);
    let got = wait(&ep, &ep, Queue::Recv);
    assert_eq!((got.context, got.result, first, second), (3, Ok(()), [0; 8], [7; 8]));
}
