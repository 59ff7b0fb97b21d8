//! Peers and strangers that break the rules, over real sockets and real shared memory.

use crate::handshake::{
    Connector, HELLO_LEN, Keys, Listener, NONCE_LEN, Pair, Reason, SIGNED_LEN, Terms, VERSION, refuse,
};
use crate::mapped::{MEMORY_BYTES, RING_BYTES};
use crate::sys;
use crate::{Config, Event, NoPull, PeerIx, RecvError, SendError, Shm, State, Why};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const KEY: [u8; 32] = [3; 32];
const LIMIT: Duration = Duration::from_secs(20);

fn id() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_ne_bytes(bytes)
}

/// Polls until `done`; time goes by 30 us a poll, so that sockets are looked at each time.
fn until(all: &mut [&mut Shm], mut done: impl FnMut(&mut [&mut Shm], &[Event]) -> bool) {
    let (begin, mut now, mut events) = (Instant::now(), 1, Vec::new());
    loop {
        now += 30_000;
        all.iter_mut().for_each(|shm| {
            shm.poll(now, &mut events);
        });
        if done(all, &events) {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "nothing more happens: {events:?}");
    }
}

fn pair() -> (Shm, PeerIx, Shm, PeerIx) {
    let (ia, ib) = (id(), id());
    let mut a = Shm::open(ia, &KEY, Config::default()).expect("an endpoint");
    let mut b = Shm::open(ib, &KEY, Config::default()).expect("an endpoint");
    let ab = a.connect(ib, 0).expect("begun");
    until(&mut [&mut a, &mut b], |all, _| all.iter().all(|shm| shm.counters().peers_up == 1));
    let ba = b.peers()[0];
    (a, ab, b, ba)
}

/// A stranger's connection to an endpoint.
fn dial(listener: u64) -> OwnedFd {
    sys::connect(&Keys::derive(&KEY).socket_name(listener)).expect("a listener")
}

/// What the endpoint answers.
fn answer(shm: &mut Shm, socket: &OwnedFd) -> Vec<u8> {
    let mut got = Vec::new();
    until(&mut [shm], |_, _| {
        let mut bytes = [0; 200];
        match sys::recv_plain(socket, &mut bytes) {
            Ok(n) => {
                got = bytes[..n].to_vec();
                true
            }
            Err(_) => false,
        }
    });
    got
}

/// The reason in a REFUSE.
fn reason(message: &[u8]) -> Option<u8> {
    (message.len() == 32 && message[8] == 5).then(|| message[10])
}

fn terms() -> Terms {
    Terms { probe_address: 0, probe_value: 0, memory_bytes: MEMORY_BYTES as u64, ring_bytes: RING_BYTES as u64 }
}

/// Connects as a member of the job and passes `memory`; the endpoint's answer.
fn offer(shm: &mut Shm, listener: u64, terms: &Terms, memory: Option<&OwnedFd>) -> (OwnedFd, Vec<u8>) {
    let keys = Keys::derive(&KEY);
    let socket = dial(listener);
    let mut handshake = Connector::new(Pair { connector: id(), listener }, &[1; NONCE_LEN]);
    sys::send(&socket, handshake.hello(), None).expect("sent");
    let challenge = answer(shm, &socket);
    let proof = handshake.challenge(&keys, &challenge, terms).expect("a genuine listener");
    sys::send(&socket, &proof, memory).expect("sent");
    let last = answer(shm, &socket);
    (socket, last)
}

#[test]
fn memory_that_is_not_sealed_or_of_another_size_is_refused() {
    let own = id();
    let mut shm = Shm::open(own, &KEY, Config::default()).expect("an endpoint");
    let memory = Some(Reason::Memory as u8);
    let short = sys::sealed_memory(MEMORY_BYTES / 2).expect("memory");
    assert_eq!(reason(&offer(&mut shm, own, &terms(), Some(&short)).1), memory);
    assert_eq!(reason(&offer(&mut shm, own, &terms(), None).1), memory);
    let other_terms = Terms { ring_bytes: 4096, ..terms() };
    let good = sys::sealed_memory(MEMORY_BYTES).expect("memory");
    assert_eq!(reason(&offer(&mut shm, own, &other_terms, Some(&good)).1), memory);
    let file = std::fs::File::open("/proc/self/exe").expect("this program").into();
    assert_eq!(reason(&offer(&mut shm, own, &terms(), Some(&file)).1), memory);
    // SAFETY: the name ends in zero.
    let bare = unsafe { libc::memfd_create(c"bare".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    // SAFETY: it was just made, for us alone.
    let bare: OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(bare) };
    let file = std::fs::File::from(bare);
    file.set_len(MEMORY_BYTES as u64).expect("memory");
    assert_eq!(reason(&offer(&mut shm, own, &terms(), Some(&file.into())).1), memory);
    assert_eq!((shm.peers(), shm.counters().refused_other), (vec![], 5));
    // The same with what is right comes up; its probe leads nowhere, so that its memory is not
    // read.
    let (_socket, ready) = offer(&mut shm, own, &terms(), Some(&good));
    assert_eq!(ready.len(), SIGNED_LEN);
    let peer = shm.peers()[0];
    assert_eq!((shm.state(peer), shm.can_pull(peer)), (Some(State::Up), Some(Err(NoPull::OtherProcess))));
}

#[test]
fn who_has_another_key_is_refused_by_both_sides() {
    let (right, wrong) = (Keys::derive(&KEY), Keys::derive(&[4; 32]));
    let pair = Pair { connector: 1, listener: 2 };
    let mut connector = Connector::new(pair, &[1; NONCE_LEN]);
    let stranger = Listener::new(&wrong, connector.hello(), 2, &[2; NONCE_LEN]).expect("well formed");
    assert_eq!(connector.challenge(&right, stranger.challenge(), &terms()), Err(Reason::Key));
    let own = Listener::new(&right, connector.hello(), 2, &[2; NONCE_LEN]).expect("well formed");
    let proof = connector.challenge(&right, own.challenge(), &terms()).expect("genuine");
    assert_eq!(stranger.proof(&wrong, &proof, &terms()).err(), Some(Reason::Key));
    let (told, ready) = own.proof(&right, &proof, &terms()).expect("genuine");
    assert_eq!((told, connector.ready(&right, &ready)), (terms(), Ok(terms())));
    // No bit of what is signed can be changed, and nothing is taken in another conversation.
    for bit in 0..SIGNED_LEN * 8 {
        let mut changed = proof;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(own.proof(&right, &changed, &terms()).is_err(), "bit {bit}");
    }
    let again = Listener::new(&right, connector.hello(), 2, &[3; NONCE_LEN]).expect("well formed");
    assert_eq!(again.proof(&right, &proof, &terms()).err(), Some(Reason::Key));
}

#[test]
fn a_listener_tells_why_it_refuses() {
    let own = id();
    let mut shm = Shm::open(own, &KEY, Config::default()).expect("an endpoint");
    let hello = Connector::new(Pair { connector: 5, listener: own }, &[0; NONCE_LEN]).hello().to_vec();
    let with = |at: usize, value: u8| {
        let mut hello = hello.clone();
        hello[at] = value;
        hello
    };
    let cases = [
        (with(9, VERSION + 1), Reason::Version),
        (with(0, 0), Reason::Malformed),
        (with(8, 3), Reason::Malformed),
        (with(24, hello[24] ^ 1), Reason::Malformed),
        (hello[..HELLO_LEN - 1].to_vec(), Reason::Malformed),
        ([&hello[..], &[0; 500]].concat(), Reason::Malformed),
        (b"x".to_vec(), Reason::Malformed),
    ];
    for (n, (bytes, why)) in cases.iter().enumerate() {
        let socket = dial(own);
        sys::send(&socket, bytes, None).expect("sent");
        assert_eq!(reason(&answer(&mut shm, &socket)), Some(*why as u8), "case {n}");
    }
    assert_eq!(shm.counters().refused_other, cases.len() as u64);
}

#[test]
fn a_refusal_says_why_to_who_connected() {
    let other = id();
    let listener = sys::listen(&Keys::derive(&KEY).socket_name(other), 4).expect("a listener");
    let mut shm = Shm::open(id(), &KEY, Config::default()).expect("an endpoint");
    let reasons = [
        (Reason::Version, Why::OtherVersion),
        (Reason::Key, Why::WrongKey),
        (Reason::Memory, Why::BadMemory),
        (Reason::Full, Why::TooManyPeers),
        (Reason::Already, Why::Already),
        (Reason::Malformed, Why::BadHandshake),
    ];
    for (reason, why) in reasons {
        let peer = shm.connect(other, 0).expect("begun");
        let socket = sys::accept(&listener).expect("connected");
        sys::send(&socket, &refuse(reason, other, 0), None).expect("sent");
        until(&mut [&mut shm], |_, events| events.contains(&Event::Over { peer, why }));
    }
}

#[test]
fn strangers_that_say_nothing_keep_nobody_out() {
    let own = id();
    let mut shm = Shm::open(own, &KEY, Config::default()).expect("an endpoint");
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(dial(own));
        shm.poll(u64::MAX / 4, &mut Vec::new());
        shm.service_at_ns = 0;
    }
    assert_eq!(shm.counters().strangers_expired, 300 - Config::default().max_strangers as u64);
    let mut friend = Shm::open(id(), &KEY, Config::default()).expect("an endpoint");
    friend.connect(own, 0).expect("begun");
    until(&mut [&mut shm, &mut friend], |all, _| all.iter().all(|shm| shm.counters().peers_up == 1));
}

#[test]
fn who_scribbles_loses_its_association_and_harms_no_other() {
    for what in 0..3 {
        let (mut a, ab, mut b, ba) = pair();
        let mut c = Shm::open(id(), &KEY, Config::default()).expect("an endpoint");
        let cb = c.connect(b.id, 0).expect("begun");
        until(&mut [&mut b, &mut c], |all, _| all[0].counters().peers_up == 2);
        let memory = a.peers.get(ab).and_then(|peer| peer.link.as_ref()).expect("up").mapping.at();
        // All of it, the control words of both directions too.
        let fill = [0xff, 0x5a, 0x80][what];
        // SAFETY: the mapping is of so many bytes; whoever reads it bears any contents.
        unsafe { memory.write_bytes(fill, MEMORY_BYTES) };
        assert_eq!(b.next_ready(), Some(ba));
        assert!(matches!(b.try_recv(ba), Err(RecvError::Corrupt(_))));
        assert_eq!(b.state(ba), Some(State::Over(Why::Corrupt)));
        assert_eq!(b.try_recv(ba).err(), Some(RecvError::NoAssociation));
        assert_eq!((b.send(ba, 0, &[]), b.next_ready()), (Err(SendError::Over), None));
        until(&mut [&mut a, &mut b], |all, _| !matches!(all[0].state(ab), Some(State::Up)));
        c.send(cb, 1, &[IoSlice::new(b"still here")]).expect("room");
        let bc = b.next_ready().expect("a record");
        assert_eq!(b.try_recv(bc).expect("whole").expect("there").bytes().to_vec(), b"still here");
    }
}

#[test]
fn a_reader_that_lies_about_its_position_loses_its_association() {
    let (a, ab, mut b, ba) = pair();
    let memory = a.peers.get(ab).and_then(|peer| peer.link.as_ref()).expect("up").mapping.at();
    // The second direction's head.
    // SAFETY: within the mapping; whoever reads it bears any contents.
    unsafe { memory.add(256).cast::<u64>().write_volatile(1 << 40) };
    let mut end = Ok(());
    for _ in 0..10_000 {
        end = b.send(ba, 0, &[]);
        if end.is_err() {
            break;
        }
    }
    assert_eq!((end, b.state(ba)), (Err(SendError::Over), Some(State::Over(Why::Corrupt))));
}

#[test]
fn a_peer_that_says_closed_and_stays_is_over_and_lets_others_sleep() {
    let (a, ab, mut b, ba) = pair();
    let memory = a.peers.get(ab).and_then(|peer| peer.link.as_ref()).expect("up").mapping.at();
    // SAFETY: within the mapping; whoever reads it bears any contents.
    unsafe { memory.add(128).cast::<u32>().write_volatile(1) };
    b.poll(u64::MAX / 2, &mut Vec::new());
    assert!(!b.prepare_sleep());
    let mut events = Vec::new();
    b.poll(u64::MAX / 2 + 1, &mut events);
    assert_eq!(events, [Event::Over { peer: ba, why: Why::Closed }]);
    assert!(b.prepare_sleep());
}

#[test]
fn a_peer_that_talks_at_its_socket_is_read_a_little_at_a_time() {
    let (mut a, ab, mut b, ba) = pair();
    let link = a.peers.get(ab).and_then(|peer| peer.link.as_ref()).expect("up");
    let mut sent = 0;
    while sys::send(&link.socket, &[9; 100], None).is_ok() {
        sent += 1;
    }
    assert!(sent > 8);
    b.cancel_sleep();
    b.poll(u64::MAX / 2, &mut Vec::new());
    assert!(b.counters().rx_wakes <= 64);
    a.send(ab, 1, &[]).expect("room");
    assert!(b.try_recv(ba).expect("whole").is_some());
}

/// Sleeps, and looks `looks` at the sockets after it.
fn sleeps(shm: &mut Shm, now: u64, looks: u64) {
    let before = shm.counters().socket_checks;
    assert!(shm.prepare_sleep());
    shm.cancel_sleep();
    shm.poll(now, &mut Vec::new());
    assert_eq!(shm.counters().socket_checks - before, looks);
}

#[test]
fn sockets_are_looked_at_after_a_sleep_if_anybody_is_there_or_nothing_else_was_found() {
    let own = id();
    let mut shm = Shm::open(own, &KEY, Config::default()).expect("an endpoint");
    shm.poll(1, &mut Vec::new());
    sleeps(&mut shm, 2, 0);
    let stranger = dial(own);
    sleeps(&mut shm, 3, 0);
    shm.looks_soon();
    sleeps(&mut shm, 4, 1);
    assert_eq!(shm.strangers.len(), 1, "it had connected");
    sleeps(&mut shm, 5, 1);
    drop(stranger);
    let (_a, _, mut b, _) = pair();
    b.poll(u64::MAX / 2, &mut Vec::new());
    sleeps(&mut b, u64::MAX / 2 + 1, 1);
}

#[test]
fn an_older_seal_or_none_is_told_from_what_must_be() {
    let good = sys::sealed_memory(4096).expect("memory");
    assert!(sys::is_sealed_memory(&good, 4096) && !sys::is_sealed_memory(&good, 8192));
    let file = std::fs::File::from(good);
    assert!(file.set_len(0).is_err(), "nobody can take the memory away");
}

/// How often an endpoint that is polled all the time looks at its sockets in a second that begins
/// here.
fn looks_of_a_second(shm: &mut Shm, from: u64) -> u64 {
    let before = shm.counters().socket_checks;
    (0..10_000).for_each(|n| {
        shm.poll(from + n * 100_000, &mut Vec::new());
    });
    shm.counters().socket_checks - before
}

#[test]
fn who_shares_no_memory_looks_less_and_less_often_and_sees_who_comes() {
    let own = id();
    let mut alone = Shm::open(own, &KEY, Config::default()).expect("an endpoint");
    // Where a program begins its processes meet: the first looks are as frequent as later ones that
    // somebody waits for.
    let begins = (0..1000).map(|n| 1 + n * 100_000);
    begins.for_each(|at| {
        alone.poll(at, &mut Vec::new());
    });
    let looks = alone.counters().socket_checks;
    assert!((50..=100).contains(&looks), "{looks} in a tenth of a second");
    looks_of_a_second(&mut alone, 100_000_000);
    let looks = looks_of_a_second(&mut alone, 1_100_000_000);
    assert!((100..150).contains(&looks), "{looks}");
    let stranger = dial(own);
    let mut at = 2_100_000_000;
    while alone.strangers.len() == 0 {
        at += 100_000;
        alone.poll(at, &mut Vec::new());
    }
    assert!(at <= 2_108_100_000, "{at}");
    drop(stranger);
    let (_a, _, mut b, _) = pair();
    let looks = looks_of_a_second(&mut b, u64::MAX / 2);
    assert!(looks >= 900, "{looks}: the end of a peer is to be known at once");
}
