//! Two endpoints of one process: what an owner sees of associations, records, sleep, ends and
//! refusals.

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

/// Polls all until `done` of an endpoint's events; the time is what has passed since the call, so
/// that handshakes can time out.
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

/// One that leaves all quiet rings but so many to their sockets at once, and peers that share
/// memory with it; each one's handle of it.
fn hub(peers: usize, awake: usize) -> (Shm, Vec<(Shm, PeerIx, PeerIx)>) {
    let ih = id();
    let mut hub = Shm::open(ih, &KEY, Config { awake, doze_ns: 1, ..Config::default() }).expect("an endpoint");
    let mut others = Vec::new();
    for _ in 0..peers {
        let mut other = open(id());
        let there = other.connect(ih, 0).expect("begun");
        let here = meet(&mut other, &mut hub);
        others.push((other, there, here));
    }
    (hub, others)
}

/// Sleeps so often that what is quiet is left to its socket.
fn doze(hub: &mut Shm, now_ns: &mut u64) {
    for _ in 0..4 {
        assert!(hub.prepare_sleep());
        hub.cancel_sleep();
        *now_ns += 10;
        hub.poll(*now_ns, &mut Vec::new());
    }
}

#[test]
fn a_quiet_peer_wakes_who_does_not_look_at_its_ring_and_is_looked_at_from_then_on() {
    let (mut h, mut others) = hub(5, 1);
    let mut now_ns = u64::MAX / 2;
    doze(&mut h, &mut now_ns);
    let wakes: u64 = others
        .iter_mut()
        .map(|(other, hub, _)| {
            other.send(*hub, 1, &[]).expect("room");
            other.counters().tx_wakes
        })
        .sum();
    assert_eq!(wakes, 4, "one of them is looked at anyway");
    assert!(readable(&h, 5000));
    now_ns += 10;
    h.poll(now_ns, &mut Vec::new());
    let mut met = Vec::new();
    while let Some(peer) = h.next_ready() {
        met.push(peer);
        assert_eq!(receive(&mut h, peer), Some((1, vec![])));
        assert_eq!(receive(&mut h, peer), None);
    }
    met.sort_unstable();
    assert_eq!(met, others.iter().map(|(.., here)| *here).collect::<Vec<_>>());
    for (other, hub, _) in &mut others {
        let before = other.counters().tx_wakes;
        other.send(*hub, 2, &[]).expect("room");
        assert_eq!(other.counters().tx_wakes, before, "it is awake, and so are we");
    }
}

#[test]
fn a_quiet_peer_that_is_sent_something_answers_without_a_system_call() {
    let (mut h, mut others) = hub(3, 0);
    let mut now_ns = u64::MAX / 2;
    doze(&mut h, &mut now_ns);
    let (other, hub, here) = &mut others[1];
    h.send(*here, 1, &[]).expect("room");
    assert!(receive(other, *hub).is_some());
    other.send(*hub, 2, &[]).expect("room");
    assert_eq!((other.counters().tx_wakes, h.next_ready()), (0, Some(*here)));
}

#[test]
fn who_waits_for_room_in_a_quiet_peers_ring_is_woken() {
    let (mut h, mut others) = hub(3, 0);
    let mut now_ns = u64::MAX / 2;
    let (other, hub, here) = &mut others[2];
    while h.send(*here, 0, &[IoSlice::new(&[0; 9000])]).is_ok() {}
    // (It waits for room, and is not left to its socket.)
    doze(&mut h, &mut now_ns);
    assert!(h.prepare_sleep());
    while receive(other, *hub).is_some() {}
    assert!(readable(&h, 5000), "there is room");
}

#[test]
fn a_peer_that_clears_the_word_that_says_to_wake_us_is_found_by_looks() {
    let (mut h, mut others) = hub(6, 0);
    let mut now_ns = u64::MAX / 2;
    doze(&mut h, &mut now_ns);
    // The packet stays in the socket unread, as if there were none.
    let (other, hub, here) = &mut others[3];
    other.send(*hub, 7, &[]).expect("room");
    let found = (0..6).find_map(|_| h.next_ready());
    assert_eq!(found, Some(*here));
    assert_eq!(receive(&mut h, *here), Some((7, vec![])));
}

/// Whatever is done in whatever order: nobody sleeps on records, and all are read.
#[test]
fn nothing_is_lost_and_nobody_sleeps_on_it_whichever_rings_are_looked_at() {
    for seed in 1..=30u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as usize % n
        };
        let (mut h, mut others) = hub(6, below(3));
        let (mut sent, mut got, mut now_ns) = ([0u16; 6], [0u16; 6], u64::MAX / 2);
        let drain = |h: &mut Shm, got: &mut [u16; 6], others: &[(Shm, PeerIx, PeerIx)]| {
            while let Some(peer) = h.next_ready() {
                let who = others.iter().position(|(.., here)| *here == peer).expect("known");
                let (kind, _) = receive(h, peer).expect("it is ready");
                assert_eq!(kind, got[who]);
                got[who] += 1;
            }
        };
        for _ in 0..400 {
            match below(8) {
                0 | 1 => {
                    let who = below(6);
                    let (other, hub, _) = &mut others[who];
                    if sent[who] < 2000 && other.send(*hub, sent[who], &[]).is_ok() {
                        sent[who] += 1;
                    }
                }
                2 => {
                    let who = below(6);
                    let (other, hub, here) = &mut others[who];
                    let _ = h.send(*here, 1, &[]);
                    while receive(other, *hub).is_some() {}
                }
                3 => drain(&mut h, &mut got, &others),
                _ => {
                    now_ns += 10;
                    h.poll(now_ns, &mut Vec::new());
                    if h.prepare_sleep() {
                        let quiet = sent == got;
                        assert!(quiet || readable(&h, 0), "seed {seed}: {sent:?} {got:?}");
                        h.cancel_sleep();
                    } else {
                        drain(&mut h, &mut got, &others);
                    }
                }
            }
        }
        now_ns += 10;
        h.poll(now_ns, &mut Vec::new());
        drain(&mut h, &mut got, &others);
        assert_eq!(sent, got, "seed {seed}");
        // One after the other goes, and the rest stays where it is found.
        while let Some((other, _, here)) = others.pop() {
            drop(other);
            h.forget(here);
            for (other, hub, _) in &mut others {
                other.send(*hub, 9, &[]).expect("room");
            }
            now_ns += 10;
            h.poll(now_ns, &mut Vec::new());
            let mut read = 0;
            while let Some(peer) = h.next_ready() {
                assert_eq!(receive(&mut h, peer), Some((9, vec![])));
                read += 1;
            }
            assert_eq!(read, others.len());
        }
    }
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
