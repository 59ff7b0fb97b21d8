//! Two endpoints of one process: what an owner sees of associations, records, sleep, ends and refusals.

use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};
use weir_shm::{Config, ConnectError, Event, NoPull, PeerIx, RecvError, RemotePiece, SendError, Shm, State, Why};

const KEY: [u8; 32] = [7; 32];
/// Far beyond what anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

fn id() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_ne_bytes(bytes)
}

fn open(id: u64) -> Shm {
    Shm::open(id, &KEY, Config::default()).expect("an endpoint")
}

/// Polls all until `done` of an endpoint's events; the time is what has passed since the call, so that handshakes can time out.
fn until(all: &mut [&mut Shm], mut done: impl FnMut(usize, &Event) -> bool) {
    let begin = Instant::now();
    let mut events = Vec::new();
    loop {
        for (i, shm) in all.iter_mut().enumerate() {
            shm.poll(u64::try_from(begin.elapsed().as_nanos()).expect("short"), &mut events);
            if events.drain(..).any(|event| done(i, &event)) {
                return;
            }
        }
        assert!(begin.elapsed() < LIMIT, "nothing more happens");
    }
}

/// Two endpoints that are up.
fn pair() -> (Shm, PeerIx, Shm, PeerIx) {
    let (ia, ib) = (id(), id());
    let (mut a, mut b) = (open(ia), open(ib));
    let ab = a.connect(ib, 0).expect("begun");
    let ba = meet(&mut a, &mut b);
    (a, ab, b, ba)
}

/// Waits until both are up; the second's handle of the first.
fn meet(a: &mut Shm, b: &mut Shm) -> PeerIx {
    let mut up = [None, None];
    until(&mut [a, b], |i, event| {
        match event {
            Event::Up { peer, .. } => up[i] = Some(*peer),
            Event::Over { why, .. } => panic!("{why}"),
        }
        up.iter().all(Option::is_some)
    });
    up[1].expect("up")
}

fn over(all: &mut [&mut Shm], of: usize) -> Why {
    let mut found = None;
    until(all, |i, event| {
        if let (true, Event::Over { why, .. }) = (i == of, event) {
            found = Some(*why);
        }
        found.is_some()
    });
    found.expect("over")
}

fn receive(shm: &mut Shm, peer: PeerIx) -> Option<(u16, Vec<u8>)> {
    shm.try_recv(peer).expect("an association").map(|record| (record.kind(), record.bytes().to_vec()))
}

#[test]
fn records_arrive_whole_and_in_order_both_ways() {
    let (mut a, ab, mut b, ba) = pair();
    for n in 0..2000usize {
        let payload: Vec<u8> = (0..n * 7 % 3000).map(|i| (i ^ n) as u8).collect();
        let (head, tail) = payload.split_at(payload.len() / 3);
        a.send(ab, n as u16, &[IoSlice::new(head), IoSlice::new(tail)]).expect("room");
        assert_eq!(b.next_ready(), Some(ba));
        assert_eq!(receive(&mut b, ba), Some((n as u16, payload.clone())));
        assert_eq!((receive(&mut b, ba), b.next_ready()), (None, None));
        b.send(ba, 3, &[IoSlice::new(&payload)]).expect("room");
        assert_eq!(receive(&mut a, ab), Some((3, payload)));
        // Says to the sender that there is room again.
        assert_eq!(receive(&mut a, ab), None);
    }
    assert_eq!((a.counters().tx_records, b.counters().rx_records), (2000, 2000));
    assert_eq!(a.counters().tx_wakes, 0, "nobody slept");
}

#[test]
fn a_full_ring_takes_nothing_until_it_is_read() {
    let (mut a, ab, mut b, ba) = pair();
    let mut sent = 0;
    while a.send(ab, 0, &[IoSlice::new(&[5; 5000])]).is_ok() {
        sent += 1;
    }
    assert_eq!(a.send(ab, 0, &[IoSlice::new(&[5; 5000])]), Err(SendError::Full));
    assert!(sent > 40, "{sent}");
    for _ in 0..sent {
        assert_eq!(receive(&mut b, ba), Some((0, vec![5; 5000])));
    }
    assert_eq!(a.send(ab, 0, &[IoSlice::new(&[5; 5000])]), Ok(()));
    assert_eq!(a.reserve(ab, 0, Shm::MAX_PAYLOAD + 1).err(), Some(SendError::TooLong));
}

#[test]
fn both_connecting_at_once_gives_one_association() {
    for _ in 0..20 {
        let (ia, ib) = (id(), id());
        let (mut a, mut b) = (open(ia), open(ib));
        let (ab, ba) = (a.connect(ib, 0).expect("begun"), b.connect(ia, 0).expect("begun"));
        assert_eq!(meet(&mut a, &mut b), ba);
        assert_eq!((a.state(ab), b.state(ba)), (Some(State::Up), Some(State::Up)));
        assert_eq!((a.peers(), b.peers()), (vec![ab], vec![ba]));
        a.send(ab, 1, &[IoSlice::new(b"x")]).expect("room");
        assert_eq!(receive(&mut b, ba), Some((1, b"x".to_vec())));
    }
}

#[test]
fn who_sleeps_is_woken_once() {
    let (mut a, ab, mut b, ba) = pair();
    let quiet = |b: &Shm| readable(b, 0);
    b.poll(u64::MAX / 2, &mut Vec::new());
    assert!(b.prepare_sleep());
    assert!(!quiet(&b));
    a.send(ab, 1, &[]).expect("room");
    a.send(ab, 2, &[]).expect("room");
    assert!(readable(&b, 5000));
    assert_eq!(a.counters().tx_wakes, 1);
    b.cancel_sleep();
    b.poll(u64::MAX / 2 + 1, &mut Vec::new());
    assert!(!quiet(&b), "the waking was taken");
    assert!(!b.prepare_sleep(), "there is something to read");
    assert_eq!(receive(&mut b, ba), Some((1, vec![])));
    assert_eq!(receive(&mut b, ba), Some((2, vec![])));
    assert_eq!(receive(&mut b, ba), None);
}

#[test]
fn who_sleeps_for_want_of_room_is_woken_when_there_is_some() {
    let (mut a, ab, mut b, ba) = pair();
    a.poll(u64::MAX / 2, &mut Vec::new());
    while a.send(ab, 0, &[IoSlice::new(&[0; 9000])]).is_ok() {}
    assert!(a.prepare_sleep());
    assert!(!readable(&a, 0));
    while receive(&mut b, ba).is_some() {}
    assert!(readable(&a, 5000));
    a.cancel_sleep();
    assert_eq!(a.send(ab, 0, &[IoSlice::new(&[0; 9000])]), Ok(()));
    assert_eq!(b.counters().tx_wakes, 1);
}

fn readable(shm: &Shm, timeout_ms: i32) -> bool {
    use std::os::fd::AsRawFd;
    let mut fd = libc::pollfd { fd: shm.wait_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is to one pollfd.
    unsafe { libc::poll(&raw mut fd, 1, timeout_ms) == 1 }
}

#[test]
fn what_was_sent_before_an_orderly_end_is_read_after_it() {
    let (mut a, ab, mut b, ba) = pair();
    a.send(ab, 9, &[IoSlice::new(b"last words")]).expect("room");
    drop(a);
    assert_eq!(over(&mut [&mut b], 0), Why::Closed);
    assert_eq!(b.send(ba, 0, &[]), Err(SendError::Over));
    assert_eq!(receive(&mut b, ba), Some((9, b"last words".to_vec())));
    assert_eq!(receive(&mut b, ba), None);
    b.forget(ba);
    assert_eq!((b.state(ba), b.try_recv(ba).err()), (None, Some(RecvError::NoAssociation)));
}

#[test]
fn an_end_wakes_who_sleeps() {
    let (a, _, mut b, _) = pair();
    b.poll(u64::MAX / 2, &mut Vec::new());
    assert!(b.prepare_sleep());
    drop(a);
    assert!(readable(&b, 5000));
}

#[test]
fn another_key_finds_nobody() {
    // The name follows from the key: an endpoint of another job is not even found.
    let (ia, ib) = (id(), id());
    let mut a = open(ia);
    let _b = Shm::open(ib, &[8; 32], Config::default()).expect("an endpoint");
    let ab = a.connect(ib, 0).expect("begun");
    assert_eq!(a.state(ab), Some(State::Over(Why::Elsewhere)));
    assert_eq!(over(&mut [&mut a], 0), Why::Elsewhere);
}

#[test]
fn a_listener_that_never_answers_is_given_up() {
    let (ia, ib) = (id(), id());
    let (mut a, b) = (open(ia), open(ib));
    a.connect(ib, 0).expect("begun");
    let mut events = Vec::new();
    a.poll(Config::default().handshake_ns - 1, &mut events);
    assert_eq!(events, []);
    a.poll(Config::default().handshake_ns + 1_000_000, &mut events);
    assert!(matches!(events[..], [Event::Over { why: Why::TimedOut, .. }]), "{events:?}");
    // Tried again it may be there.
    let mut b = b;
    a.connect(ib, 0).expect("begun");
    meet(&mut a, &mut b);
}

#[test]
fn an_endpoint_has_no_more_peers_than_it_may() {
    let config = Config { max_peers: 1, ..Config::default() };
    let ia = id();
    let mut a = Shm::open(ia, &KEY, config).expect("an endpoint");
    let (mut b, mut c) = (open(id()), open(id()));
    b.connect(ia, 0).expect("begun");
    meet(&mut b, &mut a);
    c.connect(ia, 0).expect("begun");
    assert_eq!(over(&mut [&mut a, &mut c], 1), Why::TooManyPeers);
    assert_eq!(a.connect(id(), 0), Err(ConnectError::TooManyPeers));
    assert_eq!(a.connect(ia, 0), Err(ConnectError::Own));
}

#[test]
fn memory_is_pulled_in_one_copy_from_many_pieces_to_many() {
    let (mut a, ab, _b, _) = pair();
    if a.can_pull(ab) != Some(Ok(())) {
        // Told, not passed over: without the permission the call says so.
        let e = a.pull(ab, &[], &mut []).expect_err("no permission");
        assert_eq!(e.kind(), std::io::ErrorKind::Unsupported);
        return;
    }
    let source: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let at = source.as_ptr() as u64;
    let remote = [RemotePiece { address: at, len: 10 }, RemotePiece { address: at + 10, len: 2_999_990 }];
    let (mut first, mut second) = (vec![0; 7], vec![0; 2_999_993]);
    let n = a.pull(ab, &remote, &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).expect("read");
    assert_eq!((n, &first[..], &second[..]), (3_000_000, &source[..7], &source[7..]));
    // An address that leads nowhere is an error, and the association goes on.
    let nowhere = [RemotePiece { address: 8, len: 64 }];
    assert!(a.pull(ab, &nowhere, &mut [IoSliceMut::new(&mut first)]).is_err());
    assert_eq!(a.state(ab), Some(State::Up));
}

#[test]
fn pulling_can_be_switched_off() {
    let (ia, ib) = (id(), id());
    let mut a = Shm::open(ia, &KEY, Config { pull: false, ..Config::default() }).expect("an endpoint");
    let mut b = open(ib);
    let ab = a.connect(ib, 0).expect("begun");
    meet(&mut a, &mut b);
    assert_eq!(a.can_pull(ab), Some(Err(NoPull::Off)));
}

#[test]
fn an_idle_ring_gives_its_pages_back_and_goes_on() {
    let (mut a, ab, mut b, ba) = pair();
    let mut now = 1;
    for round in 0..3u8 {
        for n in 0..300u32 {
            a.send(ab, n as u16, &[IoSlice::new(&[round; 4000])]).expect("room");
            assert_eq!(receive(&mut b, ba), Some((n as u16, vec![round; 4000])));
        }
        let before = a.counters().trims;
        for _ in 0..3 {
            now += 1_100_000_000;
            a.poll(now, &mut Vec::new());
        }
        assert_eq!(a.counters().trims, before + 1);
    }
}

#[test]
fn an_id_used_twice_is_refused() {
    let ia = id();
    let _a = open(ia);
    assert!(matches!(Shm::open(ia, &KEY, Config::default()), Err(weir_shm::OpenError::NameTaken)));
}

#[test]
fn a_name_is_free_again_after_its_endpoint() {
    let ia = id();
    for _ in 0..3 {
        drop(open(ia));
    }
}
