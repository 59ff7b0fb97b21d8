//! Two endpoints in this process: what becomes of peers that come and go while nobody looks.

use super::*;
use crate::inbox::{Body, Entry};
use crate::ops::Op;
use crate::tables::{Post, Posted};
use std::ffi::CString;

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// One of them, and what the library would keep for it.
struct Side {
    weir: Weir,
    t: Tables,
}

impl Side {
    /// What was taken from the inbox to be fetched is thrown away instead.
    fn give_up(&mut self, from: AddrKey, entry: Entry) {
        let Body::Claimed(context) = entry.body else { return };
        self.weir.discard_all(vec![entry]);
        self.t.inbox.arrived(0, from, context, None);
    }

    fn open(listens: bool) -> Side {
        Side::open_with_key(listens, [7; 32])
    }

    fn open_with_key(listens: bool, key: [u8; 32]) -> Side {
        let connect = ("WEIR_CONNECT_TIMEOUT_MS", "1000");
        // (Sends of a test that follow each other do so within this, busy as the machine may be.)
        let several = ("WEIR_COALESCE_NS", "1000000");
        let vars = [("WEIR_BMI_OPEN", "1"), ("WEIR_LINGER_MS", "10"), ("WEIR_CARRIER", "udp"), connect, several];
        let get = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let at = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let listen = listens.then_some((&at[..], false));
        let settings = Settings::read(&get).expect("valid");
        Side { weir: Weir::open_with_key(&settings, key, 0, listen).expect("open"), t: Tables::default() }
    }

    /// The address of a server.
    fn to(&mut self, server: &Side) -> AddrKey {
        let port = server.weir.port();
        let place = vec![SocketAddr::from(([127, 0, 0, 1], port))];
        self.t.addrs.at(0, CString::new(format!("weir://127.0.0.1:{port}")).expect("text"), place)
    }

    /// A send of no bytes.
    fn send(&mut self, addr: AddrKey, tag: i32, unexpected: Option<u8>) -> OpKey {
        self.send_bytes(addr, tag, unexpected, &[])
    }

    /// A send of bytes that live until it has ended.
    fn send_bytes(&mut self, addr: AddrKey, tag: i32, unexpected: Option<u8>, data: &[u8]) -> OpKey {
        self.post(addr, tag, unexpected, data, false)
    }

    /// A receive into bytes that live until it has ended.
    fn recv_bytes(&mut self, addr: AddrKey, tag: i32, data: &[u8]) -> OpKey {
        self.post(addr, tag, None, data, true)
    }

    fn post(&mut self, addr: AddrKey, tag: i32, unexpected: Option<u8>, data: &[u8], is_recv: bool) -> OpKey {
        let size = data.len() as u64;
        let key = self.t.ops.insert(Op {
            context: 0,
            addr,
            method: 0,
            is_recv,
            user_ptr: 0,
            size,
            done: None,
            instead: None,
            orphan: false,
            staging: None,
        });
        let pieces = [Iov { base: data.as_ptr().cast_mut(), len: data.len() }];
        let post = Post { key, addr, tag, unexpected, pieces: &pieces[..usize::from(size > 0)], size };
        match self.weir.post(&mut self.t, &post, is_recv) {
            Ok(Posted::Done(size)) => self.t.ops.end(key, Ok(size)),
            Ok(Posted::Begun) => {}
            Err(code) => self.t.ops.end(key, Err(code)),
        }
        key
    }

    /// How it ended, if it has.
    fn ended(&self, key: OpKey) -> Option<i32> {
        self.t.ops.get(key)?.done.map(|(code, _)| code)
    }

    /// Packets that it has sent.
    fn packets(&self) -> u64 {
        self.weir.ep.carried().packets_sent
    }

    /// Some message waits in the engine, whatever its tag.
    fn holds_any(&self) -> bool {
        let op = weir_engine::PeekOp { ignore: u64::MAX, ..look(0, None, None) };
        matches!(self.weir.ep.peek(&op), Ok(Some(_)))
    }
}

/// Makes progress of these until something is so.
#[track_caller]
fn until(sides: &mut [&mut Side], mut is_so: impl FnMut(&mut [&mut Side]) -> bool) {
    let begun = Instant::now();
    while !is_so(sides) {
        assert!(begun.elapsed() < LIMIT, "it does not happen");
        for side in sides.iter_mut() {
            side.weir.progress(&mut side.t);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// F2: nobody's first request is lost, whoever lets it in.
#[test]
fn what_the_librarys_thread_has_let_in_is_claimed_as_its_peers() {
    let (mut server, mut client) = (Side::open(true), Side::open(false));
    let to = client.to(&server);
    client.send(to, 5, Some(0));
    until(&mut [&mut client], |_| server.holds_any());
    server.weir.claim(&mut server.t);
    assert_eq!(server.t.inbox.len(), 1);
}

/// F6: a peer's messages are not kept for longer than it can be received from.
#[test]
fn what_nobody_received_of_a_peer_that_is_gone_is_thrown_away() {
    let (mut server, mut client) = (Side::open(true), Side::open(false));
    let to = client.to(&server);
    client.send(to, 5, None);
    client.send(to, 6, Some(9));
    until(&mut [&mut client, &mut server], |sides| sides[1].holds_any() && sides[1].weir.by_peer.len() == 1);
    client.weir.close();
    until(&mut [&mut server], |sides| sides[0].weir.by_peer.is_empty());
    assert!(!server.holds_any());
    // The same of one that is dropped here.
    let mut client = Side::open(false);
    let to = client.to(&server);
    client.send(to, 5, None);
    until(&mut [&mut client, &mut server], |sides| sides[1].holds_any() && sides[1].weir.by_peer.len() == 1);
    let from = server.t.addrs.arrived(0, None);
    let (&peer, _) = server.weir.by_peer.iter().next().expect("it came");
    server.weir.places.insert(from, Place { addrs: Vec::new(), state: State::Up(peer), kept: VecDeque::new() });
    server.weir.drop_connection(&mut server.t, from);
    assert!(!server.holds_any());
}

/// M2: what comes where a program takes requests is there at once, if none waits before it.
#[test]
fn requests_are_taken_as_they_come_where_none_waits() {
    let (mut server, mut client) = (Side::open(true), Side::open(false));
    let to = client.to(&server);
    client.send(to, 0, Some(0));
    until(&mut [&mut client, &mut server], |sides| !sides[1].t.inbox.is_empty());
    assert_eq!(server.weir.claims, 1, "nobody has asked for any");
    server.t.inbox.wanted = Some(0);
    for tag in 1..5 {
        client.send_bytes(to, tag, Some(0), &[tag as u8; 8]);
    }
    until(&mut [&mut client, &mut server], |sides| sides[1].t.inbox.len() == 5);
    assert_eq!(server.weir.claims, 5, "one waits");
    let pop = |server: &mut Side, tag: i32| {
        let (from, entry) = server.t.inbox.pop(0).expect("it is there");
        assert_eq!(entry.tag, tag);
        if let Body::Here(block) = &entry.body {
            assert_eq!((block.len(), server.t.addrs.get(from).map(|a| a.waiting > 0)), (8, Some(true)));
            return true;
        }
        server.give_up(from, entry);
        false
    };
    assert!(!(0..5).any(|tag| pop(&mut server, tag)));
    // (One that the library's thread has taken in meanwhile is claimed.)
    let begun = Instant::now();
    for tag in 5.. {
        client.send_bytes(to, tag, Some(0), &[tag as u8; 8]);
        until(&mut [&mut client, &mut server], |sides| !sides[1].t.inbox.is_empty());
        if pop(&mut server, tag) {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "none comes at once");
    }
    assert!(server.weir.claims == 0 && !server.holds_any());
}

/// F3: an operation with a server that was taken for dead ends, and one of the next is carried.
#[test]
fn a_server_that_was_taken_for_dead_and_lives_is_reached_again() {
    let (mut server, mut client) = (Side::open(true), Side::open(false));
    let to = client.to(&server);
    client.send(to, 5, Some(0));
    until(&mut [&mut client, &mut server], |sides| !sides[1].t.inbox.is_empty());
    // Something of the server's that is not fetched keeps its place in the client's engine.
    let (from, entry) = server.t.inbox.pop(0).expect("it is there");
    server.give_up(from, entry);
    server.send(from, 6, Some(0));
    until(&mut [&mut client, &mut server], |sides| !sides[0].t.inbox.is_empty());
    server.weir.drop_connection(&mut server.t, from);
    until(&mut [&mut client, &mut server], |sides| sides[0].weir.places[to].state == State::Unknown);
    let first = client.send(to, 7, Some(0));
    until(&mut [&mut client, &mut server], |sides| sides[0].ended(first).is_some());
    assert!(!client.weir.is_held_up());
    let entries = client.t.inbox.forget(to);
    client.weir.discard_all(entries);
    let begun = Instant::now();
    loop {
        let next = client.send(to, 8, Some(0));
        until(&mut [&mut client, &mut server], |sides| sides[0].ended(next).is_some());
        if client.ended(next) == Some(0) {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "it is never reached again");
    }
    until(&mut [&mut client, &mut server], |sides| !sides[1].t.inbox.is_empty());
}

/// H6, M3.
#[test]
fn tags_of_unexpected_messages_of_each_class_and_of_others_do_not_meet() {
    let mut seen = std::collections::HashSet::new();
    for tag in [i32::MIN, -1, 0, 1, i32::MAX] {
        assert!(seen.insert(engine_tag(tag, None).0));
        for class in [0, 1, 255] {
            let (engine, data) = engine_tag(tag, Some(class));
            assert_eq!((engine >> 40, engine as u32), (1, 0));
            assert_eq!(data.map(|d| (d as u32).cast_signed()), Some(tag));
        }
    }
    assert_ne!(engine_tag(0, Some(0)).0, engine_tag(0, Some(1)).0);
}

/// C2, H15: what the receiver has no room for is taken back at once, and its peer stays.
#[test]
fn sends_that_wait_for_credit_are_cancelled_at_once() {
    let (mut server, mut client) = (Side::open(true), Side::open(false));
    let to = client.to(&server);
    client.send(to, 5, Some(0));
    until(&mut [&mut client, &mut server], |sides| !sides[1].t.inbox.is_empty());
    let data = [1; 6000];
    let keys: Vec<OpKey> = (0..6000).map(|_| client.send_bytes(to, 9, None, &data)).collect();
    let waiting: Vec<OpKey> = keys.into_iter().filter(|key| client.ended(*key).is_none()).collect();
    assert!(waiting.len() > 1000, "{} wait", waiting.len());
    for &key in waiting.iter().rev() {
        client.weir.cancel(&mut client.t, key);
        assert!(client.ended(key).is_some(), "it waits for its peer");
    }
    assert_eq!(client.t.ops.next_limit(), None);
}

/// V5: who is asked and who asks say what they can know, each once.
#[test]
fn another_key_is_told_of_on_both_sides() {
    let mut server = Side::open(true);
    let mut client = Side::open_with_key(false, [8; 32]);
    let to = client.to(&server);
    let asked = client.send(to, 5, Some(0));
    until(&mut [&mut client, &mut server], |sides| sides[0].ended(asked).is_some() && sides[1].weir.told.refused);
    assert_eq!(client.ended(asked), Some(-Code::ETIMEDOUT.0));
    assert_eq!((client.weir.told.unanswered.len(), client.weir.told.refused), (1, false));
    let again = client.send(to, 5, Some(0));
    until(&mut [&mut client, &mut server], |sides| sides[0].ended(again).is_some());
    assert_eq!((client.weir.told.unanswered.len(), server.weir.told.unanswered.len()), (1, 0));
}

/// Who tests has the library's lock, for which others wait.
#[test]
fn who_tests_does_not_give_the_core_away_with_the_librarys_lock() {
    let mut server = Side::open(true);
    let begun = Instant::now();
    // (Longer than polls of other faces spin.)
    while begun.elapsed() < Duration::from_millis(5) {
        server.weir.progress(&mut server.t);
    }
    let counters = server.weir.ep.counters_json();
    assert!(counters.contains("\"yields\":0"), "{counters}");
}

/// W8: a receive that is posted between them, and a message that is fetched, let no sends go that
/// wait for each other: requests with their receives share packets, and so do answers.
#[test]
fn sends_wait_for_each_other_whatever_is_received_between_them() {
    let (mut server, mut client) = (Side::open(true), Side::open(false));
    let to = client.to(&server);
    client.send(to, 5, Some(0));
    until(&mut [&mut client, &mut server], |sides| !sides[1].t.inbox.is_empty());
    let (from, entry) = server.t.inbox.pop(0).expect("it is there");
    server.give_up(from, entry);
    let answers = vec![[0u8; 64]; 8];
    let begun = Instant::now();
    // (More than the time may lie between two on a busy machine: then some go alone.)
    let mut shared = [false; 2];
    for tag in 100.. {
        assert!(begun.elapsed() < LIMIT, "they share no packets: {shared:?}");
        // (Acknowledgements of what was before.)
        let mut rounds = 0..10;
        until(&mut [&mut client, &mut server], |_| rounds.next().is_none());
        let before = client.packets();
        client.weir.expect_several();
        let keys: Vec<OpKey> = answers
            .iter()
            .map(|place| {
                let key = client.recv_bytes(to, tag, place);
                client.send_bytes(to, tag, Some(0), &[9; 64]);
                key
            })
            .collect();
        client.weir.progress(&mut client.t);
        shared[0] |= client.packets() - before <= 2;
        until(&mut [&mut server], |sides| sides[0].t.inbox.len() == 8);
        let before = server.packets();
        server.weir.expect_several();
        for _ in 0..8 {
            server.send_bytes(from, tag, None, &[9; 64]);
            let (_, entry) = server.t.inbox.pop(0).expect("eight have come");
            let Body::Claimed(context) = entry.body else { panic!("it was not fetched yet") };
            server.weir.take(&mut server.t, 0, from, &entry, context);
            assert!(matches!(server.t.inbox.pop(0), Some((_, Entry { body: Body::Here(_), .. }))), "it was all there");
        }
        server.weir.progress(&mut server.t);
        shared[1] |= server.packets() - before <= 2;
        until(&mut [&mut client, &mut server], |sides| keys.iter().all(|key| sides[0].ended(*key) == Some(0)));
        if shared == [true; 2] {
            return;
        }
    }
}
