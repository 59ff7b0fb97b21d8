//! Many openings at once, peers that answer late, and endpoints that get no processor (spec 3.4).

mod net;

use std::time::Duration;

use net::Net;
use weir_link::*;

const S: Duration = Duration::from_secs(1);
/// Byte 0 of handshake packets.
const INIT: u8 = 0x10;
const COOKIE: u8 = 0x11;
const CONFIRM: u8 = 0x12;
const ACCEPT: u8 = 0x13;

/// INITs sent by node 0 so far, each peer once.
fn opened_to(n: &Net) -> usize {
    let to: std::collections::BTreeSet<_> =
        n.captured.iter().filter(|c| c.0 == net::addr(0, 0) && c.2[0] == INIT).map(|c| c.1).collect();
    to.len()
}

/// Node 0 sends to all others.
fn open_to_all(n: &mut Net) {
    for to in 1..n.nodes.len() {
        n.send(0, to, false, 0, 0, 0, 8).expect("accepted");
    }
}

// spec: P-3.18
#[test]
fn so_many_openings_at_a_time_and_the_next_when_one_is_over() {
    let mut n = Net::new(200, 1, &Config::default(), 1);
    n.capture = true;
    open_to_all(&mut n);
    n.drain();
    assert_eq!(opened_to(&n), 16);
    // All live: 199 are up within some round trips of 20 us, long before anything is repeated.
    assert!(n.run(S / 100, Net::quiet));
    assert_eq!(n.nodes[0].ups.len(), 199);
    assert_eq!(n.nodes[0].ep.counters().handshakes_repeated, 0);
}

// spec: P-3.19
#[test]
fn who_is_not_there_delays_the_others_by_one_interval() {
    let mut n = Net::new(101, 1, &Config::default(), 2);
    n.capture = true;
    n.nodes[1..100].iter_mut().for_each(|x| x.stopped = true);
    open_to_all(&mut n);
    // 100 openings: an interval of 100 ms, drawn from its half to three halves.
    n.run(S / 25, |_| false);
    assert_eq!(opened_to(&n), 16);
    assert!(n.run(6 * S / 10, |n| n.nodes[0].ups.len() == 1), "the last one, behind six times 16, waits");
    // They may start seconds later.
    n.run(3 * S, |_| false);
    n.nodes[1..100].iter_mut().for_each(|x| x.stopped = false);
    assert!(n.run(4 * S, Net::quiet));
    assert_eq!((n.nodes[0].ups.len(), n.nodes[0].downs.len()), (100, 0));
}

// spec: P-3.17
#[test]
fn whoever_opens_to_many_repeats_little() {
    for (absent, most_in_10_s) in [(20, 20 * 40), (255, 255 * 12)] {
        let mut n = Net::new(1 + absent, 1, &Config::default(), 3);
        n.capture = true;
        n.nodes[1..].iter_mut().for_each(|x| x.stopped = true);
        open_to_all(&mut n);
        n.run(10 * S, |_| false);
        assert!(n.captured.len() < most_in_10_s, "{} packets to {absent} who are not there", n.captured.len());
    }
}

// spec: P-3.20
#[test]
fn who_waits_for_a_place_answers_who_opens() {
    // Of both orders of the endpoint ids.
    for seed in 0..8 {
        let cfg = Config { openings_max: 1, ..Config::default() };
        let mut n = Net::new(4, 1, &cfg, seed);
        n.nodes[2].stopped = true;
        n.nodes[3].stopped = true;
        // Each has its only place taken by one that is not there, and waits to open to the other.
        for (from, absent) in [(0, 2), (1, 3)] {
            n.send(from, absent, false, 0, 0, 0, 8).expect("accepted");
            n.send(from, 1 - from, false, 0, 0, 0, 8).expect("accepted");
        }
        assert!(n.run(S / 50, |n| n.nodes[..2].iter().all(|x| x.messages.len() == 1)), "seed {seed}");
        assert!(n.nodes[..2].iter().all(|x| x.ups.len() == 1 && x.downs.is_empty()));
    }
}

/// All of these kinds get lost.
fn lose(n: &mut Net, kinds: &'static [u8]) {
    n.lose = Box::new(move |_, _, bytes| kinds.contains(&bytes[0]));
}

// spec: P-3.21
#[test]
fn whoever_answers_is_not_given_up_and_an_opening_ends_all_the_same() {
    let mut n = Net::new(2, 1, &Config::default(), 4);
    lose(&mut n, &[CONFIRM]);
    n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
    // COOKIEs come all the time.
    n.run(30 * S, |_| false);
    assert!(n.nodes[0].downs.is_empty());
    n.lose = Box::new(|_, _, _| false);
    assert!(n.run(S, Net::quiet));
    assert_eq!(n.nodes[0].ups.len(), 1);
    // And for ever.
    let mut n = Net::new(2, 1, &Config::default(), 5);
    lose(&mut n, &[CONFIRM]);
    n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
    let start = n.now;
    assert!(n.run(100 * S, |n| !n.nodes[0].downs.is_empty()));
    assert_eq!(n.nodes[0].downs[0].1, DownReason::ConnectTimeout);
    assert_eq!((n.now - start).as_secs(), 60);
}

// spec: P-3.21
#[test]
fn who_waits_for_a_place_has_not_begun_to_lose_patience() {
    let cfg = Config { openings_max: 1, connect_timeout: S, handshake_retry_max: 3 * S / 2, ..Config::default() };
    let cfg = Config { handshake_retry: 3 * S / 2, ..cfg };
    let mut n = Net::new(3, 1, &cfg, 6);
    n.nodes[1].stopped = true;
    n.nodes[2].stopped = true;
    open_to_all(&mut n);
    let start = n.now;
    assert!(n.run(10 * S, |n| n.nodes[0].downs.len() == 2));
    // The first gave its place up, or ended, 0.75 to 1 s after the start.
    assert!(n.now - start >= 7 * S / 4, "{:?}", n.now - start);
}

// spec: P-3.22
#[test]
fn who_got_no_processor_judges_nobody() {
    let mut n = Net::new(3, 1, &Config::default(), 7);
    n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
    assert!(n.run(S, Net::quiet));
    n.send(0, 2, false, 0, 0, 0, 8).expect("accepted");
    // One peer falls silent, the other was never there; and of each 5 s this endpoint gets a
    // twentieth of one.
    n.cut.insert(0);
    for _ in 0..4 {
        n.nodes[0].stopped = true;
        n.run(5 * S, |_| false);
        n.nodes[0].stopped = false;
        n.run(S / 20, |_| false);
    }
    assert_eq!(n.nodes[0].downs, []);
    // With a processor of its own it finds them dead: one 5 s after it was heard, the other after
    // 10 s.
    let start = n.now;
    assert!(n.run(10 * S, |n| n.nodes[0].downs.len() == 2));
    assert!(n.now - start > 5 * S);
    assert_eq!(
        n.nodes[0].downs.iter().map(|d| d.1).collect::<Vec<_>>(),
        [DownReason::Unreachable, DownReason::ConnectTimeout]
    );
}

/// The peer restarted, it was said, which had done no such thing: whoever had accepted an opening
/// gave the opener up while that one's CONFIRMs were late, answered a later one with the same
/// ACCEPT, and then knew nothing of the association.
// spec: P-9.12
#[test]
fn an_opener_that_is_late_is_not_given_up_while_it_may_still_open() {
    let mut n = Net::new(2, 1, &Config::default(), 8);
    n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
    // The first CONFIRM arrives, no answer comes back, and then nothing for 8 s either way.
    lose(&mut n, &[ACCEPT]);
    assert!(n.run(S, |n| n.nodes[1].ups.len() == 1));
    n.lose = Box::new(|_, _, bytes| [INIT, COOKIE, CONFIRM, ACCEPT].contains(&bytes[0]));
    n.run(8 * S, |_| false);
    assert_eq!(n.nodes[1].downs, []);
    n.lose = Box::new(|_, _, _| false);
    assert!(n.run(S, Net::quiet));
    n.run(S, |_| false);
    for node in &n.nodes {
        assert_eq!((node.ups.len(), node.downs.len()), (1, 0));
    }
}

// spec: P-3.23
#[test]
fn while_a_start_of_many_goes_on_nobody_is_given_up() {
    const LATE: usize = 20;
    let mut n = Net::new(LATE + 3, 1, &Config::default(), 9);
    n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
    assert!(n.run(S, Net::quiet));
    // One peer falls silent, one is not there, and of the others one comes each 0.9 s: all of them
    // wait for an answer until then.
    n.nodes[1].stopped = true;
    (2..LATE + 3).for_each(|to| n.nodes[to].stopped = true);
    for to in 2..LATE + 3 {
        n.send(0, to, false, 0, 0, 0, 8).expect("accepted");
    }
    let start = n.now;
    for to in 3..LATE + 3 {
        n.run(9 * S / 10, |_| false);
        n.nodes[to].stopped = false;
        // Until eight are left that is a start of many.
        if to < LATE - 6 {
            assert_eq!(n.nodes[0].downs, [], "{:?}", n.now - start);
        }
    }
    assert!(n.now - start > 15 * S);
    assert!(n.run(30 * S, |n| n.nodes[0].downs.len() == 2));
    let who: Vec<_> = n.nodes[0].downs.iter().map(|d| d.1).collect();
    assert!(who.contains(&DownReason::Unreachable) && who.contains(&DownReason::ConnectTimeout), "{who:?}");
}

// spec: P-9.13
#[test]
fn where_answers_take_seconds_several_are_waited_for() {
    let given_up_after = |way: Duration| {
        let mut n = Net::new(2, 1, &Config::default(), 10);
        n.faults.delay_ns = way.as_nanos() as u64;
        for _ in 0..20 {
            n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
            assert!(n.run(60 * S, Net::quiet));
        }
        n.nodes[1].stopped = true;
        let start = n.now;
        n.send(0, 1, false, 0, 0, 0, 8).expect("accepted");
        assert!(n.run(100 * S, |n| !n.nodes[0].downs.is_empty()));
        n.now - start
    };
    assert!(given_up_after(S / 1000) < 6 * S);
    let slow = given_up_after(S / 2);
    assert!(slow > 7 * S && slow < 20 * S, "{slow:?}");
    let slower = given_up_after(2 * S);
    assert!(slower > 30 * S && slower < 75 * S, "{slower:?}");
}

// spec: P-4.16, P-4.27
#[test]
fn probes_of_many_silent_peers_are_bounded_together() {
    let sent_to = |peers: usize| {
        let cfg = Config { peer_timeout: 60 * S, ..Config::default() };
        let mut n = Net::new(peers + 1, 1, &cfg, 11);
        for to in 1..=peers {
            n.send(0, to, false, 0, 0, 0, 8).expect("accepted");
        }
        assert!(n.run(5 * S, Net::quiet));
        for to in 1..=peers {
            n.nodes[to].stopped = true;
            n.send(0, to, false, 0, 0, 0, 8).expect("accepted");
            n.run(S / 97, |_| false);
        }
        n.run(5 * S, |_| false);
        let before = n.nodes[0].ep.counters().packets_sent;
        n.run(10 * S, |_| false);
        let sent = (n.nodes[0].ep.counters().packets_sent - before) / 10;
        // They are there again: with each answer fewer are silent, and the last need not wait as
        // long as all had to (2 s for 200).
        (1..=peers).for_each(|to| n.nodes[to].stopped = false);
        assert!(n.run(S, Net::quiet), "{peers}");
        sent
    };
    // One packet waits for each: one repeats it every 250 ms.
    let (few, many) = (sent_to(10), sent_to(200));
    assert!((35..=50).contains(&few), "{few} packets a second");
    assert!(many <= 130, "{many} packets a second");
}
