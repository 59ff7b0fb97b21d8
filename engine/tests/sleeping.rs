//! A thread that sleeps on the notify descriptor learns of completions that another thread's calls
//! make.

mod common;

use common::{LIMIT, config, counter, iov, open, post, recv_op, send, send_op};
use std::time::{Duration, Instant};
use weir_engine::{
    CarrierUse, Class, Completion, Endpoint, EngineConfig, PeekOp, Queue, SendMode, SendOp, SleepHere, Sleeper,
};

fn peek(ep: &Endpoint, tag: u64, claim: bool) -> Option<Completion> {
    let op =
        PeekOp { source: None, class: Class::Tagged, tag, ignore: 0, claim, discard: false, context: tag as usize };
    ep.peek(&op).expect("peek")
}

fn is_readable(ep: &Endpoint) -> bool {
    is_readable_for(ep, Queue::Both)
}

fn is_readable_for(ep: &Endpoint, queue: Queue) -> bool {
    let fd = ep.fd_for(queue).expect("descriptor");
    let mut set = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut set, 1, 0) == 1 }
}

/// Arms, and lets the watchdog thread fall asleep.
fn fall_asleep(ep: &Endpoint, name: &str) {
    let start = Instant::now();
    while !ep.arm() {
        ep.poll(Queue::Both, &mut Vec::new(), 16);
        assert!(start.elapsed() < LIMIT, "{name}: never idle");
    }
    std::thread::sleep(Duration::from_millis(30));
}

/// Arms, lets the watchdog thread fall asleep (it would notice in the end, up to half a second
/// late), does `what`, and expects the descriptor readable at its return.
fn wakes(ep: &Endpoint, name: &str, what: impl FnOnce()) {
    fall_asleep(ep, name);
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
    // Less than a busy machine lets a program run without taking its core away: who comes back from
    // that was elsewhere too.
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
    let to_a = b.insert_peer(&a.name()).expect("name");
    let mut data = [1u8; 8];
    let start = Instant::now();
    loop {
        // Long enough for its watchdog to expect it back late.
        std::thread::sleep(Duration::from_secs(1));
        let before = counter(&a, "watchdog_steps");
        for tag in 0..MESSAGES {
            send(&a, to_b, tag, &mut data, SendMode::Inject).expect("sent");
            // (In memory that is shared nothing is acknowledged.)
            send(&b, to_a, tag, &mut data, SendMode::Inject).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        if counter(&a, "watchdog_steps") - before > MESSAGES / 4 {
            return;
        }
        assert!(start.elapsed() < LIMIT, "what comes is left lying");
    }
}

/// Sessions have timers, which shared memory looks at in rounds: between a timer and the next round
/// the watchdog sleeps. (It took some 500 steps each time, and the endpoint's lock with them. What
/// comes in packets wakes it for each, so this is of shared memory whatever the suite runs over.)
#[test]
fn the_watchdog_does_not_spin_for_a_timer_that_is_not_looked_at_yet() {
    const ROUNDS: u64 = 100;
    let memory = || open(EngineConfig { carrier: CarrierUse::Shm, ..config() });
    let (a, b) = (memory(), memory());
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let start = Instant::now();
    // Long enough to be granted: what is granted is watched over for a millisecond.
    let (mut long, mut long_buf) = (vec![1u8; 200_000], vec![0u8; 200_000]);
    let (mut short, mut short_buf) = ([1u8; 8], [0u8; 8]);
    let before = counter(&b, "watchdog_steps");
    for tag in 0..ROUNDS {
        post(&b, None, 2 * tag, &mut long_buf);
        post(&b, None, 2 * tag + 1, &mut short_buf);
        // Nobody polls: what comes is the watchdog's.
        std::thread::sleep(Duration::from_millis(5));
        send(&a, to_b, 2 * tag, &mut long, SendMode::Delivery).expect("sent");
        let mut sent = Vec::new();
        let posted = Instant::now();
        while sent.is_empty() || posted.elapsed() < Duration::from_micros(700) {
            a.poll(Queue::Send, &mut sent, 1);
            assert!(start.elapsed() < LIMIT, "message {tag} never came");
        }
        // A round of looks ends before the watch does.
        send(&a, to_b, 2 * tag + 1, &mut short, SendMode::Inject).expect("sent");
        std::thread::sleep(Duration::from_millis(5));
    }
    let steps = counter(&b, "watchdog_steps") - before;
    assert!(steps < ROUNDS * 20, "{steps} steps of the watchdog, {ROUNDS} times two messages");
}

/// What a busy machine may spoil now and then has to be so this often in a row: each time it is by
/// chance once in ten at most.
const IN_A_ROW: u32 = 8;

/// Lets `is_so` be asked until it was so [`IN_A_ROW`] times.
fn often_in_a_row(what: &str, mut is_so: impl FnMut() -> bool) {
    let (mut times, start) = (0, Instant::now());
    while times < IN_A_ROW {
        times = if is_so() { times + 1 } else { 0 };
        assert!(start.elapsed() < LIMIT / 2, "{what}");
    }
}

#[test]
fn the_watchdog_is_there_for_who_polls_and_computes_by_turns() {
    // Longer than it leaves one alone that does not poll, and shorter than half the time between
    // two looks, by which polls put the next one off.
    const COMPUTES: Duration = Duration::from_millis(2);
    const POLLS: Duration = Duration::from_millis(6);
    // A look in a few turns falls into what is computed; of those that are put off one in some
    // hundred does, if others have the processor meanwhile.
    const STEPS: u64 = 10;
    const TURNS: u32 = 500;
    let polls: fn(&Endpoint) = |ep| _ = ep.poll(Queue::Both, &mut Vec::new(), 1);
    for look in [polls, |ep| ep.progress()] {
        let ep = open(config());
        let before = counter(&ep, "watchdog_steps");
        for turn in 1.. {
            let begun = Instant::now();
            while begun.elapsed() < POLLS {
                look(&ep);
            }
            std::thread::sleep(COMPUTES);
            if counter(&ep, "watchdog_steps") - before >= STEPS {
                break;
            }
            assert!(turn < TURNS, "each look is put off by polls between two computations");
        }
    }
}

/// Less than a tenth of the time that a watchdog sleeps beside a program which is away for long,
/// and far more than it takes to look soon.
const SOON: Duration = Duration::from_millis(40);

#[test]
fn what_is_sent_while_the_watchdog_expects_nothing_is_looked_after_soon() {
    let (a, b) = (open(config()), open(EngineConfig { watchdog_us: 0, ..config() }));
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let mut data = [1u8; 8];
    // It never polls, so that every send but one is not the first since it did.
    let mut tag = 0;
    let mut send_and_be_answered = |answered_after: Duration| {
        tag += 1;
        let steps = counter(&a, "watchdog_steps");
        send(&a, to_b, tag, &mut data, SendMode::Inject).expect("sent");
        std::thread::sleep(answered_after);
        // Nobody has answered, and so nothing but time can have woken it.
        let looked = counter(&a, "watchdog_steps") > steps;
        let (acks, start) = (counter(&b, "watchdog_steps"), Instant::now());
        assert_eq!(acks, 0, "nobody but this test makes progress at the other end");
        while start.elapsed() < Duration::from_millis(60) {
            b.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
        looked
    };
    // Long enough for it to expect the program back late.
    std::thread::sleep(Duration::from_secs(1));
    send_and_be_answered(SOON);
    std::thread::sleep(Duration::from_secs(1));
    often_in_a_row("what was lost is sent again, what was held is sent, only when half a second is over", || {
        std::thread::sleep(Duration::from_millis(100));
        send_and_be_answered(SOON)
    });
}

#[test]
fn an_answer_to_what_another_thread_sent_wakes_the_sleeper_at_once() {
    // The watchdog looks of itself each half second alone.
    let (a, b) = (open(EngineConfig { watchdog_us: 0, ..config() }), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    let to_a = b.insert_peer(&a.name()).expect("name");
    let (mut question, mut answer, mut got, mut got_there) = ([1u8; 8], [2u8; 8], [0u8; 8], [0u8; 8]);
    let mut done = Vec::new();
    often_in_a_row("the answer lies unread", || {
        common::post(&a, None, 2, &mut got);
        common::post(&b, None, 1, &mut got_there);
        let start = Instant::now();
        fall_asleep(&a, "a");
        let iov = iov(&mut question);
        // Its own completion would wake the sleeper.
        let unreported = SendOp { report: false, ..send_op(to_b, 1, &iov, SendMode::Inject) };
        // SAFETY: what is injected is read before the call returns.
        unsafe { a.send(&unreported) }.expect("sent");
        done.clear();
        while b.poll(Queue::Recv, &mut done, 1) == 0 {
            assert!(start.elapsed() < LIMIT, "the question never came");
        }
        assert!(!is_readable(&a), "woken for nothing");
        send(&b, to_a, 2, &mut answer, SendMode::Inject).expect("sent");
        std::thread::sleep(SOON);
        let woken = is_readable(&a);
        done.clear();
        while a.poll(Queue::Recv, &mut done, 1) == 0 {
            assert!(start.elapsed() < LIMIT, "the answer never came");
        }
        woken
    });
}

#[test]
fn what_comes_wakes_the_sleeper_though_another_thread_has_looked_for_progress() {
    let (a, b) = (open(EngineConfig { watchdog_us: 0, ..config() }), open(config()));
    a.insert_peer(&b.name()).expect("name");
    let to_a = b.insert_peer(&a.name()).expect("name");
    let (mut message, mut got) = ([2u8; 8], [0u8; 8]);
    let mut done = Vec::new();
    often_in_a_row("what came lies unread", || {
        common::post(&a, None, 2, &mut got);
        let start = Instant::now();
        fall_asleep(&a, "a");
        // As another thread does that reads a counter.
        a.progress();
        send(&b, to_a, 2, &mut message, SendMode::Inject).expect("sent");
        std::thread::sleep(SOON);
        let woken = is_readable(&a);
        done.clear();
        while a.poll(Queue::Recv, &mut done, 1) == 0 {
            b.poll(Queue::Both, &mut Vec::new(), 1);
            assert!(start.elapsed() < LIMIT, "it never came");
        }
        woken
    });
}

/// Prepares a sleep on the sockets.
fn sleeper(ep: &Endpoint, most: Duration) -> Sleeper {
    let start = Instant::now();
    loop {
        match ep.sleep_here(most) {
            SleepHere::For(sleeper) => return sleeper,
            SleepHere::LookAgain => drop(ep.poll(Queue::Recv, &mut Vec::new(), 0)),
            SleepHere::Never => panic!("it has a watchdog"),
        }
        assert!(start.elapsed() < LIMIT, "never idle");
    }
}

#[test]
fn what_comes_wakes_who_sleeps_on_the_sockets_without_the_watchdog() {
    let (a, b) = (open(config()), open(config()));
    a.insert_peer(&b.name()).expect("name");
    let to_a = b.insert_peer(&a.name()).expect("name");
    let (mut message, mut got) = ([2u8; 8], [0u8; 8]);
    let (mut done, start) = (Vec::new(), Instant::now());
    let mut exchange = || {
        common::post(&a, None, 2, &mut got);
        let sent = std::thread::scope(|s| {
            let sender = s.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                send(&b, to_a, 2, &mut message, SendMode::Inject).expect("sent");
                Instant::now()
            });
            done.clear();
            while a.poll(Queue::Recv, &mut done, 1) == 0 {
                // (Or it has come since.)
                if let SleepHere::For(sleeper) = a.sleep_here(SOON) {
                    sleeper.sleep(a.notify_fd(), SOON);
                }
                assert!(start.elapsed() < LIMIT, "it never came");
            }
            sender.join().expect("sender")
        });
        b.poll(Queue::Send, &mut Vec::new(), 16);
        sent.elapsed() < SOON
    };
    // (Where others take the thread's core the watchdog steps in now and then. By its way it steps
    // at least once for each message.)
    loop {
        let steps = counter(&a, "watchdog_steps");
        if (0..IN_A_ROW).all(|_| exchange()) && counter(&a, "watchdog_steps") - steps < u64::from(IN_A_ROW) / 2 {
            return;
        }
        assert!(start.elapsed() < LIMIT / 2, "what came did not wake it, or the watchdog took it");
    }
}

#[test]
fn what_others_complete_wakes_who_sleeps_on_the_sockets() {
    let ep = open(config());
    let mut buf = [0u8; 8];
    let iov = iov(&mut buf);
    // SAFETY: `buf` lives to the end, and one receive uses it.
    unsafe { ep.recv(&recv_op(None, 4, &iov)) }.expect("receive");
    let asleep = sleeper(&ep, LIMIT);
    assert!(!is_readable(&ep), "woken for nothing");
    assert!(matches!(ep.sleep_here(LIMIT), SleepHere::Never), "one at a time");
    assert!(ep.arm(), "another may sleep beside it");
    assert!(ep.cancel(4));
    let start = Instant::now();
    asleep.sleep(ep.notify_fd(), LIMIT);
    assert!(start.elapsed() < LIMIT / 2, "not told of it");
    assert!(matches!(ep.sleep_here(LIMIT), SleepHere::LookAgain), "it is to be taken first");
}

#[test]
fn who_armed_before_another_slept_on_the_sockets_is_told_when_that_one_is_back() {
    let ep = open(config());
    ep.fd_for(Queue::Recv).expect("descriptor");
    let start = Instant::now();
    let asleep = loop {
        assert!(start.elapsed() < LIMIT, "never idle");
        // (A poll wakes who has armed.)
        ep.poll(Queue::Both, &mut Vec::new(), 0);
        if ep.arm_for(Queue::Recv)
            && let SleepHere::For(sleeper) = ep.sleep_here(LIMIT)
        {
            break sleeper;
        }
    };
    assert!(!is_readable_for(&ep, Queue::Recv), "woken for nothing");
    drop(asleep);
    assert!(is_readable_for(&ep, Queue::Recv), "nobody looks for what comes any more, and it sleeps");
}

#[test]
fn what_a_poll_for_something_else_finds_wakes_who_sleeps_on_the_sockets() {
    // The watchdog leaves all to this test.
    let (a, b) = (open(EngineConfig { watchdog_us: 10_000_000, ..config() }), open(config()));
    a.insert_peer(&b.name()).expect("name");
    let to_a = b.insert_peer(&a.name()).expect("name");
    let (mut message, mut got) = ([2u8; 8], [0u8; 8]);
    let (mut done, start) = (Vec::new(), Instant::now());
    for round in 1..=20 {
        common::post(&a, None, 2, &mut got);
        let asleep = sleeper(&a, LIMIT);
        send(&b, to_a, 2, &mut message, SendMode::Inject).expect("sent");
        while a.totals().recvs < round {
            // As another thread that waits for what it has sent.
            assert_eq!(a.poll(Queue::Send, &mut done, 1), 0);
            b.poll(Queue::Send, &mut Vec::new(), 1);
            assert!(start.elapsed() < LIMIT, "it never came");
        }
        assert!(is_readable(&a), "message {round} lies there, and it sleeps");
        drop(asleep);
        assert_eq!(a.poll(Queue::Recv, &mut done, 1), 1);
        done.clear();
    }
}

#[test]
fn what_another_thread_sends_beside_who_sleeps_on_the_sockets_is_sent_again() {
    if common::about_packets("No other carrier loses any.") {
        return;
    }
    let faults = Some("loss=50%,seed=5".to_owned());
    let (a, b) = (open(EngineConfig { faults, ..config() }), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let mut messages = [[1u8; 8]; 8];
    let _asleep = sleeper(&a, LIMIT);
    let start = Instant::now();
    for (tag, message) in (1..).zip(&mut messages) {
        // It polls no more than who sleeps.
        send(&a, to_b, tag, message, SendMode::Inject).expect("sent");
        while peek(&b, tag, true).is_none() {
            b.progress();
            assert!(start.elapsed() < LIMIT / 2, "message {tag} was lost and not sent again");
        }
        b.discard_claimed(&recv_op(None, tag, &[])).expect("claimed");
    }
}
