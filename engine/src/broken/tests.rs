use super::*;
use crate::api::{Class, SendMode, SendOp};
use crate::{Endpoint, EngineConfig, Iov, Queue, RecvOp};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Who asks what is broken is told of all there is in the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn open(key: u8) -> Arc<Endpoint> {
    let cfg = EngineConfig {
        addrs: vec!["127.0.0.1".parse().expect("address")],
        linger: 2 * LIMIT,
        ..EngineConfig::default()
    };
    Endpoint::open_with_key(cfg, [key; 32]).expect("open")
}

fn send(ep: &Endpoint, peer: u32, data: &mut [u8]) -> Result<(), EngineError> {
    let iov = [Iov { base: data.as_mut_ptr(), len: data.len() }];
    let op = SendOp {
        peer,
        class: Class::Tagged,
        tag: 1,
        data: None,
        memory: &iov,
        mode: SendMode::Delivery,
        copy: false,
        report: true,
        context: 1,
        user: 0,
    };
    // SAFETY: the memory lives to the end of the test.
    unsafe { ep.send(&op) }
}

fn receive(ep: &Endpoint, data: &mut [u8]) -> Result<(), EngineError> {
    let iov = [Iov { base: data.as_mut_ptr(), len: data.len() }];
    let op = RecvOp {
        source: None,
        class: Class::Tagged,
        tag: 2,
        ignore: 0,
        memory: &iov,
        multi_min: None,
        report: true,
        context: 2,
        user: 0,
    };
    // SAFETY: the memory lives to the end of the test.
    unsafe { ep.recv(&op) }
}

/// Panics inside the endpoint, as a defect would, and catches it as a face does.
fn breaks(ep: &Endpoint) -> Vec<String> {
    let caught = catch_unwind(AssertUnwindSafe(|| ep.panic_inside()));
    after_panic(&*caught.expect_err("it panics"))
}

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "it never happens");
        std::thread::yield_now();
    }
}

#[test]
fn after_a_panic_every_operation_is_refused_nothing_hangs_and_it_is_said_once() {
    let _alone = alone();
    let (ep, other) = (open(61), open(61));
    let to = ep.insert_peer(&other.name()).expect("name");
    let (mut data, mut room) = ([7u8; 100_000], [0u8; 8]);
    receive(&ep, &mut room).expect("posted");
    send(&ep, to, &mut data).expect("accepted");
    assert!(ep.check().is_ok());
    let lines = breaks(&ep);
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    let place = ep.shared.place.clone();
    assert!(line.contains(&place) && line.contains("a defect, by order of a test"), "{line}");
    assert!(!line.contains('\n'));
    assert_eq!(after_panic(&"another").len(), 1, "of a call, not of an endpoint");
    assert!(matches!(ep.check(), Err(EngineError::Broken)));
    assert!(matches!(send(&ep, to, &mut data), Err(EngineError::Broken)));
    assert!(matches!(receive(&ep, &mut room), Err(EngineError::Broken)));
    assert!(matches!(ep.insert_peer(&other.name()), Err(EngineError::Broken)));
    let mut out = Vec::new();
    assert_eq!(ep.poll(Queue::Both, &mut out, 8), 0);
    ep.progress();
    assert!(!ep.cancel(2) && !ep.arm() && !ep.unregister(1) && ep.peer_name(to).is_none());
    assert!(ep.counters_json().contains("out_of_order"));
    let start = Instant::now();
    ep.close();
    assert!(start.elapsed() < LIMIT, "nothing can be waited for");
    assert!(other.check().is_ok(), "another endpoint of the process goes on");
}

#[test]
fn peers_find_out_that_nobody_is_there() {
    let _alone = alone();
    let (ep, other) = (open(62), open(62));
    let to = other.insert_peer(&ep.name()).expect("name");
    ep.insert_peer(&other.name()).expect("name");
    let _ = breaks(&ep);
    let (mut data, mut out) = ([7u8; 100], Vec::new());
    send(&other, to, &mut data).expect("accepted");
    until(|| other.poll(Queue::Send, &mut out, 1) > 0);
    assert!(matches!(out[0].result, Err(crate::OpError::PeerDown(_))), "{:?}", out[0]);
}

#[test]
fn a_thread_that_sleeps_until_something_comes_is_woken() {
    let _alone = alone();
    let ep = open(63);
    assert!(ep.arm());
    let mut fd = libc::pollfd { fd: ep.notify_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    assert_eq!(unsafe { libc::poll(&raw mut fd, 1, 0) }, 0, "asleep");
    let _ = breaks(&ep);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&raw mut fd, 1, 0) }, 1, "awake");
}

#[test]
fn a_panic_of_the_watchdog_breaks_its_endpoint_and_nothing_else() {
    let _alone = alone();
    let (ep, other) = (open(64), open(64));
    ep.shared.watchdog_panics.store(true, Ordering::Relaxed);
    assert!(ep.arm(), "the watchdog is to make the progress");
    until(|| ep.check().is_err());
    let mut fd = libc::pollfd { fd: ep.notify_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    assert_eq!(unsafe { libc::poll(&raw mut fd, 1, LIMIT.as_millis() as i32) }, 1, "who sleeps is woken");
    until(|| ep.shared.told_broken.load(Ordering::Acquire));
    assert!(after_panic(&"another")[0].starts_with("a call failed"), "it is told by then");
    ep.close();
    assert!(other.check().is_ok());
}

#[test]
fn what_a_panic_said_becomes_one_line() {
    assert_eq!(text_of(&"two\nlines"), "panicked: two\\nlines");
    assert_eq!(text_of(&String::from("text")), "panicked: text");
    assert_eq!(text_of(&7u8), "panicked: no text");
}
