//! A thread that sleeps on the notify descriptor learns of completions that another thread's calls make.

mod common;

use common::{LIMIT, config, counter, iov, open, recv_op, send};
use std::time::{Duration, Instant};
use weir_engine::{Class, Completion, Endpoint, EngineConfig, PeekOp, Queue, SendMode};

fn peek(ep: &Endpoint, tag: u64, claim: bool) -> Option<Completion> {
    let op =
        PeekOp { source: None, class: Class::Tagged, tag, ignore: 0, claim, discard: false, context: tag as usize };
    ep.peek(&op).expect("peek")
}

fn is_readable(ep: &Endpoint) -> bool {
    let mut set = libc::pollfd { fd: ep.notify_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut set, 1, 0) == 1 }
}

/// Arms, lets the watchdog thread fall asleep (it would notice in the end, up to half a second late), does `what`, and expects the descriptor readable at its return.
fn wakes(ep: &Endpoint, name: &str, what: impl FnOnce()) {
    let start = Instant::now();
    while !ep.arm() {
        ep.poll(Queue::Both, &mut Vec::new(), 16);
        assert!(start.elapsed() < LIMIT, "{name}: never idle");
    }
    std::thread::sleep(Duration::from_millis(30));
    assert!(!is_readable(ep), "{name}: woken for nothing");
    what();
    assert!(is_readable(ep), "{name} completed something and woke nobody");
    ep.poll(Queue::Both, &mut Vec::new(), 16);
}

#[test]
fn every_call_that_completes_something_wakes_the_sleeper() {
    let (a, b) = (open(config()), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let (mut data, mut buf) = ([1u8; 8], [0u8; 8]);
    let start = Instant::now();
    for tag in 1..=3 {
        send(&a, to_b, tag, &mut data, SendMode::Delivery).expect("sent");
        while peek(&b, tag, tag > 1).is_none() {
            a.progress();
            b.progress();
            assert!(start.elapsed() < LIMIT, "message {tag} never came");
        }
    }
    let iov = iov(&mut buf);
    // SAFETY: `buf` lives to the end, and one receive at a time uses it.
    wakes(&b, "recv", || unsafe { b.recv(&recv_op(None, 1, &iov)) }.expect("receive"));
    // SAFETY: as above.
    wakes(&b, "recv_claimed", || unsafe { b.recv_claimed(&recv_op(None, 2, &iov)) }.expect("claimed"));
    wakes(&b, "discard_claimed", || b.discard_claimed(&recv_op(None, 3, &[])).expect("claimed"));
    // SAFETY: as above.
    unsafe { b.recv(&recv_op(None, 4, &iov)) }.expect("receive");
    wakes(&b, "cancel", || assert!(b.cancel(4)));
}

#[test]
fn a_program_that_was_elsewhere_is_as_patient_as_one_that_begins_to_wait() {
    // Less than a busy machine lets a program run without taking its core away: who comes back from that was elsewhere too.
    let ep = open(EngineConfig { spin_us: 1000, ..config() });
    let yields = || counter(&ep, "yields");
    let mut none = Vec::new();
    let start = Instant::now();
    let mut patient = 0;
    while patient < 3 {
        // Longer than it spins, and it did not wait meanwhile.
        std::thread::sleep(Duration::from_millis(30));
        let before = yields();
        ep.poll(Queue::Both, &mut none, 16);
        // Somebody else may have had its core just now.
        patient += u32::from(yields() == before);
        assert!(start.elapsed() < LIMIT, "gives its core away at the first empty poll");
    }
    // Waiting in earnest it does yield in the end.
    let (before, start) = (yields(), Instant::now());
    while yields() == before {
        // To read the counters takes long enough to count as something else.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            ep.poll(Queue::Both, &mut none, 16);
        }
        assert!(start.elapsed() < LIMIT, "never yields");
    }
}

#[test]
fn what_comes_to_a_program_that_only_sends_is_looked_at() {
    const MESSAGES: u64 = 200;
    let (a, b) = (open(config()), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let mut data = [1u8; 8];
    let start = Instant::now();
    loop {
        // Long enough for its watchdog to expect it back late.
        std::thread::sleep(Duration::from_secs(1));
        let before = counter(&a, "watchdog_steps");
        for tag in 0..MESSAGES {
            send(&a, to_b, tag, &mut data, SendMode::Inject).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Each second message at least is acknowledged alone.
        if counter(&a, "watchdog_steps") - before > MESSAGES / 4 {
            return;
        }
        assert!(start.elapsed() < LIMIT, "what comes is left lying");
    }
}
