//! What an endpoint holds for others is bounded: copies of payloads, and messages nobody has asked
//! for; and within the bounds no program is stopped.

mod common;

use common::{LIMIT, Pair, counter, iov, open, pair_of, post, register, rma_op, send};
use std::time::{Duration, Instant};
use weir_engine::{Completion, Endpoint, EngineConfig, EngineError, Queue, RmaOp, SendMode};

fn config(settings: &[(&str, &str)]) -> EngineConfig {
    let get = |name: &str| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let config = EngineConfig::from_vars(&get).expect("valid");
    EngineConfig { addrs: common::config().addrs, ..config }
}

/// Progress of both until `ep` has completed `count` operations of `queue`; all well.
fn completions(ep: &Endpoint, other: &Endpoint, queue: Queue, count: usize) -> Vec<Completion> {
    let (start, mut out) = (Instant::now(), Vec::new());
    while out.len() < count {
        ep.poll(queue, &mut out, 64);
        other.progress();
        assert!(start.elapsed() < LIMIT, "{} of {count}; {} {}", out.len(), ep.counters_json(), other.counters_json());
    }
    assert!(out.iter().all(|c| c.result.is_ok()), "{:?}", out.iter().find(|c| c.result.is_err()));
    out
}

/// Progress of both for this time. What has come by then depends on the machine; only what must not
/// come may be judged.
fn progress_for(p: &Pair, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        p.a.progress();
        p.b.progress();
    }
}

/// Progress of both until something is so.
fn progress_until(p: &Pair, what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        progress_for(p, Duration::from_millis(1));
        assert!(start.elapsed() < LIMIT, "never {what}: {} {}", p.a.counters_json(), p.b.counters_json());
    }
}

/// Sends `count` messages of tag 1 and then one of tag 2, asks for that one first, then for all
/// others at once.
fn flood_then_ask_for_the_last(p: &Pair, count: usize, len: usize) {
    let (mut data, mut last) = (vec![1u8; len], vec![2u8; len]);
    let start = Instant::now();
    for i in 0..=count {
        let (tag, data) = if i == count { (2, &mut last) } else { (1, &mut data) };
        while let Err(e) = send(&p.a, p.to_b, tag, data, SendMode::Delivery) {
            assert!(matches!(e, EngineError::Again), "{e}");
            assert!(start.elapsed() < LIMIT, "message {i} is refused for ever");
            p.a.progress();
            p.b.progress();
        }
    }
    let mut buf = vec![0u8; len];
    post(&p.b, None, 2, &mut buf);
    completions(&p.b, &p.a, Queue::Recv, 1);
    assert_eq!(buf, last);
    for _ in 0..count {
        post(&p.b, None, 1, &mut buf);
    }
    completions(&p.b, &p.a, Queue::Recv, count);
    assert_eq!(buf, data);
    completions(&p.a, &p.b, Queue::Send, count + 1);
    assert_eq!(counter(&p.b, "unexpected_bytes"), 0);
}

#[test]
fn a_receive_finds_its_message_behind_thousands_that_nobody_has_asked_for() {
    let p = pair_of(config(&[]), config(&[]));
    flood_then_ask_for_the_last(&p, 6000, 8);
}

#[test]
fn so_it_does_behind_more_requests_than_the_window_holds_and_each_is_answered() {
    let p = pair_of(config(&[("WEIR_EAGER_BYTES", "0")]), config(&[]));
    flood_then_ask_for_the_last(&p, 10_000, 8);
}

// spec: P-5.8
#[test]
fn small_sends_before_the_peers_credit_is_known_do_not_outrun_it() {
    // The least credit there is.
    let p = pair_of(config(&[]), config(&[("WEIR_CREDIT_BYTES", "4096")]));
    flood_then_ask_for_the_last(&p, 100, 1000);
}

#[test]
fn beyond_the_memory_for_unexpected_messages_senders_wait_and_nothing_is_lost() {
    const COUNT: usize = 3000;
    let p = pair_of(config(&[]), config(&[("WEIR_UNEXPECTED_BYTES", "65536"), ("WEIR_CREDIT_MSGS", "16")]));
    let mut data = [1u8; 8];
    for _ in 0..COUNT {
        send(&p.a, p.to_b, 1, &mut data, SendMode::Delivery).expect("queued");
    }
    let waiting = || counter(&p.b, "credit_ahead") + counter(&p.b, "credit_withheld");
    progress_until(&p, "as many messages as 64 KiB hold", || waiting() >= 200);
    progress_for(&p, Duration::from_millis(200));
    assert!(waiting() < 300, "{} messages in 64 KiB", waiting());
    let mut bufs = vec![[0u8; 8]; COUNT];
    for buf in &mut bufs {
        post(&p.b, None, 1, buf);
    }
    completions(&p.b, &p.a, Queue::Recv, COUNT);
    completions(&p.a, &p.b, Queue::Send, COUNT);
    assert!(bufs.iter().all(|b| *b == data));
}

/// One step of a program that only sends to `to`, as an MPI does inside a send: whether the message
/// was accepted.
fn is_sent(ep: &Endpoint, to: u32, data: &mut [u8], mode: SendMode) -> bool {
    match send(ep, to, 1, data, mode) {
        Ok(()) => true,
        Err(EngineError::Again) => {
            ep.progress();
            false
        }
        Err(e) => panic!("{e}"),
    }
}

/// Both send `count` messages of `len` bytes to each other, and neither asks for one before it has
/// sent all; then they do.
fn both_flood_before_they_receive(p: &Pair, count: usize, len: usize, mode: SendMode) {
    let (mut data, start) = (vec![7u8; len], Instant::now());
    let (mut of_a, mut of_b) = (0, 0);
    while of_a + of_b < 2 * count {
        of_a += usize::from(of_a < count && is_sent(&p.a, p.to_b, &mut data, mode));
        of_b += usize::from(of_b < count && is_sent(&p.b, p.to_a, &mut data, mode));
        assert!(start.elapsed() < LIMIT, "stuck after {of_a} and {of_b} of {count}: {}", p.a.counters_json());
    }
    let mut bufs = vec![vec![0u8; len]; 2 * count];
    for (i, buf) in bufs.iter_mut().enumerate() {
        post(if i < count { &p.a } else { &p.b }, None, 1, buf);
    }
    completions(&p.a, &p.b, Queue::Recv, count);
    completions(&p.b, &p.a, Queue::Recv, count);
    assert!(bufs.iter().all(|b| *b == data));
    progress_until(p, "without copies", || counter(&p.a, "copied_bytes") + counter(&p.b, "copied_bytes") == 0);
}

#[test]
fn two_that_inject_more_than_the_copies_hold_before_they_receive_get_more_room() {
    let small = [("WEIR_COPIED_BYTES", "1048576")];
    let p = pair_of(config(&small), config(&small));
    both_flood_before_they_receive(&p, 300, 16 << 10, SendMode::Inject);
    // 300 of 16 KiB and an entry, less what was received of them before anybody asked: the credit
    // of 1 MiB.
    assert!((1..=3).contains(&counter(&p.a, "copied_bytes_raised")), "{}", p.a.counters_json());
    assert!(counter(&p.a, "copied_bytes_peak") <= 8 << 20);
}

#[test]
fn two_that_send_more_than_credit_and_queue_hold_before_they_receive_are_not_stuck() {
    let narrow = [("WEIR_CREDIT_MSGS", "16"), ("WEIR_UNEXPECTED_BYTES", "65536")];
    for mode in [SendMode::Inject, SendMode::Delivery] {
        let p = pair_of(config(&narrow), config(&narrow));
        both_flood_before_they_receive(&p, 10_000, 8, mode);
        assert!(counter(&p.a, "copied_bytes_peak") > 1 << 20, "what waits beyond the queue's depth is counted");
    }
}

/// Sends that lend their memory ask for room for their entries only, whatever their length: those
/// of a receiver that takes its time are refused for moments, and that is no wait that does not
/// end.
#[test]
fn a_slow_receiver_that_lives_does_not_cost_its_sender_more_room() {
    let narrow = [("WEIR_CREDIT_MSGS", "16"), ("WEIR_UNEXPECTED_BYTES", "65536"), ("WEIR_COPIED_BYTES", "1048576")];
    let p = pair_of(config(&narrow), config(&narrow));
    let (mut data, mut bufs) = (vec![7u8; 1000], vec![vec![0u8; 1000]; 10_000]);
    let fill = |data: &mut [u8]| {
        let (start, mut refused_at) = (Instant::now(), None);
        while refused_at.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(20)) {
            let sent = is_sent(&p.a, p.to_b, data, SendMode::Delivery);
            refused_at = if sent { None } else { refused_at.or(Some(Instant::now())) };
            assert!(start.elapsed() < LIMIT, "never full: {}", p.a.counters_json());
        }
    };
    // The queue alone, until to wait for it has not helped; then 2048 beyond its depth, which take
    // room. What is received first took none.
    let start = Instant::now();
    while counter(&p.a, "copied_bytes") == 0 {
        fill(&mut data);
        assert!(start.elapsed() < LIMIT, "the queue never grows: {}", p.a.counters_json());
    }
    let (taken, next) = bufs.split_at_mut(4500);
    taken.iter_mut().for_each(|buf| post(&p.b, None, 1, buf));
    completions(&p.b, &p.a, Queue::Recv, taken.len());
    fill(&mut data);
    let before = counter(&p.a, "copied_bytes_raised");
    let (flow, mut received) = (Instant::now(), 0);
    while flow.elapsed() < Duration::from_millis(2500) {
        post(&p.b, None, 1, &mut next[received]);
        completions(&p.b, &p.a, Queue::Recv, 1);
        received += 1;
        let step = Instant::now();
        while step.elapsed() < Duration::from_millis(2) {
            is_sent(&p.a, p.to_b, &mut data, SendMode::Delivery);
        }
    }
    assert!(received > 100, "{received} are received");
    // One: a machine that stands still for half a second is not this test's business.
    assert!(counter(&p.a, "copied_bytes_raised") <= before + 1, "{}", p.a.counters_json());
}

/// Not a test of its own: run as a process by the next one, which reads what it says.
#[test]
fn flooded() {
    if std::env::var_os("WEIR_TEST_FLOODED").is_none() {
        return;
    }
    let p = pair_of(config(&[]), config(&[("WEIR_UNEXPECTED_BYTES", "65536"), ("WEIR_CREDIT_MSGS", "16")]));
    let (mut data, mut buf) = ([1u8; 8], [0u8; 8]);
    for _ in 0..1000 {
        send(&p.a, p.to_b, 1, &mut data, SendMode::Delivery).expect("queued");
    }
    progress_until(&p, "full", || counter(&p.b, "credit_withheld") > 0);
    eprintln!("asks");
    for tag in 2..5 {
        post(&p.b, None, tag, &mut buf);
    }
    progress_for(&p, Duration::from_millis(100));
    // The other way round, from who may copy little and tries again and again.
    let p = pair_of(config(&[("WEIR_COPIED_BYTES", "65536")]), config(&[("WEIR_CREDIT_BYTES", "4096")]));
    eprintln!("injects");
    let mut large = vec![1u8; 16 << 10];
    // It is told of after a second in which all were refused.
    let (mut accepted, mut is_over) = (Instant::now(), false);
    while !is_over {
        is_over = accepted.elapsed() > Duration::from_millis(2500);
        if send(&p.a, p.to_b, 1, &mut large, SendMode::Inject).is_ok() {
            (accepted, is_over) = (Instant::now(), false);
        }
        p.a.progress();
        p.b.progress();
    }
}

#[test]
fn a_program_that_waits_because_memory_is_full_is_told_once() {
    let out = std::process::Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "flooded", "--nocapture"])
        .env("WEIR_TEST_FLOODED", "1")
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&out.stderr);
    let (before, after) = said.split_once("asks").unwrap_or_else(|| panic!("{said}"));
    let (after, last) = after.split_once("injects").unwrap_or_else(|| panic!("{said}"));
    assert!(!before.contains("weir:"), "nobody had asked: {before}");
    assert_eq!(after.matches("weir: ").count(), 1, "{after}");
    assert!(after.contains("65536 bytes") && after.contains("WEIR_UNEXPECTED_BYTES"), "{after}");
    assert_eq!(last.matches("weir: ").count(), 1, "{last}");
    assert!(last.contains("65536 bytes") && last.contains("WEIR_COPIED_BYTES"), "{last}");
}

#[test]
fn copies_for_a_peer_that_does_not_receive_stay_within_their_budget() {
    const COUNT: usize = 600;
    const LEN: usize = 64 << 10;
    let small = [("WEIR_COPIED_BYTES", "4194304"), ("WEIR_COPIED_PEER_BYTES", "2097152")];
    let p = pair_of(config(&small), config(&[]));
    let mut data: Vec<Vec<u8>> = (0..COUNT).map(|i| vec![i as u8; LEN]).collect();
    for d in &mut data {
        send(&p.a, p.to_b, 1, d, SendMode::Transmit).expect("accepted: beyond the copies the memory is lent");
    }
    progress_for(&p, Duration::from_millis(100));
    let mut done = Vec::new();
    p.a.poll(Queue::Send, &mut done, COUNT);
    // 128 KiB of copies, for they are long, and what the receiver's credit of 1 MiB lets through.
    assert!(done.len() <= 2 + 16, "{} of {COUNT} sends ended although nobody receives", done.len());
    assert!(counter(&p.a, "copied_bytes_peak") <= 2 << 20);
    // What must be copied has the rest, and is then refused.
    let mut injected = vec![7u8; 16 << 10];
    let more = (0..COUNT).take_while(|_| send(&p.a, p.to_b, 2, &mut injected, SendMode::Inject).is_ok()).count();
    assert!((200..256).contains(&more), "{more} injected");
    assert!(counter(&p.a, "copied_bytes_peak") <= 4 << 20);
    let mut bufs = vec![vec![0u8; LEN]; COUNT];
    for buf in &mut bufs {
        post(&p.b, None, 1, buf);
    }
    completions(&p.b, &p.a, Queue::Recv, COUNT);
    completions(&p.a, &p.b, Queue::Send, COUNT - done.len() + more);
    assert!(bufs == data);
    for _ in 0..more {
        post(&p.b, None, 2, &mut injected);
    }
    completions(&p.b, &p.a, Queue::Recv, more);
    progress_until(&p, "without copies", || counter(&p.a, "copied_bytes") == 0);
    send(&p.a, p.to_b, 2, &mut injected, SendMode::Inject).expect("there is room again");
}

#[test]
fn injected_writes_share_the_budget_of_copies() {
    // Without its watchdog nothing is acknowledged while the test does not poll.
    let small = [("WEIR_COPIED_BYTES", "65536"), ("WEIR_WATCHDOG_US", "0")];
    let a = open(config(&small));
    let b = open(config(&[]));
    let to = a.insert_peer(&b.name()).expect("name");
    let mut memory = vec![0u8; 16 << 10];
    let key = register(&b, &mut memory);
    let write = |value: u8| {
        let mut data = vec![value; 16 << 10];
        let iov = iov(&mut data);
        let op = RmaOp { mode: SendMode::Inject, copy: true, ..rma_op(to, key, &iov) };
        // SAFETY: injected: the memory is copied.
        unsafe { a.write(&op) }
    };
    let begun = (0..10).take_while(|_| write(1).is_ok()).count();
    assert_eq!(begun, 4, "of 16 KiB in 64 KiB");
    assert!(matches!(write(1), Err(EngineError::Again)));
    completions(&a, &b, Queue::Send, begun);
    assert_eq!(counter(&a, "copied_bytes"), 0);
    write(2).expect("there is room again");
    completions(&a, &b, Queue::Send, 1);
    assert!(memory.iter().all(|m| *m == 2));
}

#[test]
fn messages_to_self_stay_within_the_credit_and_the_budget_of_copies_as_others_do() {
    const COUNT: usize = 200;
    const LEN: usize = 64 << 10;
    // The credit of a peer lets in 1 MiB of payload; half of the copies may be of what could be
    // lent.
    const DONE_MAX: usize = (1 << 20) / LEN + (2 << 20) / LEN;
    let a = open(config(&[("WEIR_COPIED_BYTES", "4194304")]));
    let to = a.insert_peer(&a.name()).expect("name");
    let mut data: Vec<Vec<u8>> = (0..COUNT).map(|i| vec![i as u8; LEN]).collect();
    for d in &mut data {
        send(&a, to, 1, d, SendMode::Transmit).expect("accepted");
    }
    let mut done = Vec::new();
    a.poll(Queue::Send, &mut done, COUNT);
    assert!(done.len() <= DONE_MAX, "{} of {COUNT} are here or copied", done.len());
    // What must be copied is refused, whether or not a receive waits for it.
    let (mut injected, mut buf) = (vec![7u8; 16 << 10], vec![0u8; 16 << 10]);
    while send(&a, to, 3, &mut [1u8; 8], SendMode::Inject).is_ok() {}
    post(&a, None, 2, &mut buf);
    assert!(matches!(send(&a, to, 2, &mut injected, SendMode::Inject), Err(EngineError::Again)));
    let mut bufs = vec![vec![0u8; LEN]; COUNT];
    for buf in &mut bufs {
        post(&a, None, 1, buf);
    }
    assert!(bufs == data);
    let mut tiny = [0u8; 8];
    while counter(&a, "copied_bytes") > 0 {
        post(&a, None, 3, &mut tiny);
    }
    send(&a, to, 2, &mut injected, SendMode::Inject).expect("there is room again");
    injected.fill(0);
    assert!(buf.iter().all(|b| *b == 7));
}
