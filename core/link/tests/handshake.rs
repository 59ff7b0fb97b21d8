//! Openings that go wrong, or both ways at once (spec 3).

mod net;

use std::time::Duration;

use net::Net;
use weir_link::*;
use weir_wire::Handshake;

const KEY: [u8; 32] = [7; 32];
const S: Duration = Duration::from_secs(1);

/// Two endpoints whose ids are 1 and 2: an opening of the first wins over one of the second.
fn lesser_and_greater(seed: u64) -> Net {
    let mut n = Net::new(2, 1, &Config::default(), seed);
    for (i, node) in n.nodes.iter_mut().enumerate() {
        let mut s = [0; 32];
        s[..8].copy_from_slice(&seed.to_le_bytes());
        s[8] = i as u8;
        node.ep = Endpoint::new(Config::default(), KEY, 1 + i as u64, &[net::addr(i, 0)], s);
    }
    n
}

/// Byte 0 of the handshake packets.
const INIT: u8 = 0x10;
const CONFIRM: u8 = 0x12;
const PROTECTED: u8 = 0x15;

/// From now on what `from` sends of this kind gets lost.
fn lose(n: &mut Net, from: usize, kinds: &'static [u8]) {
    let from = net::addr(from, 0);
    n.lose = Box::new(move |source, _, bytes| source == from && kinds.contains(&bytes[0]));
}

// spec: P-3.11
#[test]
fn who_has_sent_no_confirm_accepts_the_others() {
    let mut n = lesser_and_greater(1);
    n.send(1, 0, false, 0, 0, 0, 8).unwrap();
    // The greater one's INIT has arrived (10 us a way), its COOKIE is under way, when the lesser
    // one begins.
    n.run(Duration::from_micros(15), |_| false);
    lose(&mut n, 0, &[INIT]);
    n.send(0, 1, false, 0, 0, 0, 8).unwrap();
    assert!(n.run(S / 100, Net::quiet), "the CONFIRM was ignored");
    for node in &n.nodes {
        assert_eq!((node.ups.len(), node.downs.len(), node.messages.len()), (1, 0, 1));
    }
}

// spec: P-3.12
#[test]
fn who_has_to_repeat_its_init_answers_the_others() {
    let mut n = lesser_and_greater(2);
    lose(&mut n, 0, &[INIT]);
    n.send(0, 1, false, 0, 0, 0, 8).unwrap();
    n.send(1, 0, false, 0, 0, 0, 8).unwrap();
    // Both repeat within 7.5 ms, and again within 15 ms.
    assert!(n.run(S / 40, Net::quiet), "the INITs were ignored");
    for node in &n.nodes {
        assert_eq!((node.ups.len(), node.downs.len(), node.messages.len()), (1, 0, 1));
    }
}

// spec: P-3.11, P-3.10
#[test]
fn who_may_have_been_accepted_accepts_nothing() {
    let mut n = lesser_and_greater(3);
    n.capture = true;
    n.send(1, 0, false, 0, 0, 0, 8).unwrap();
    n.run(Duration::from_micros(15), |_| false);
    // Both have a cookie; the greater one's CONFIRM stays on the way until the lesser one has sent
    // its own, which arrives.
    lose(&mut n, 1, &[CONFIRM]);
    n.send(0, 1, false, 0, 0, 0, 8).unwrap();
    n.run(Duration::from_micros(35), |_| false);
    let sent = |n: &Net, from: usize| {
        n.captured.iter().find(|c| c.0 == net::addr(from, 0) && c.2[0] == CONFIRM).map(|c| c.2.clone())
    };
    assert!(sent(&n, 0).is_some() && n.nodes[0].ups.is_empty());
    let late = sent(&n, 1).expect("CONFIRM");
    n.arrive(net::addr(1, 0), net::addr(0, 0), late);
    assert!(n.nodes[0].ups.is_empty(), "two associations");
    assert!(n.run(S / 100, Net::quiet));
    for node in &n.nodes {
        assert_eq!((node.ups.len(), node.downs.len(), node.messages.len()), (1, 0, 1));
    }
}

// spec: P-3.10, P-3.11
#[test]
fn both_open_through_heavy_loss_and_agree() {
    // With every INIT and CONFIRM of the greater one ignored, a tenth of these took more than 2 s.
    let mut times = Vec::new();
    for seed in 0..300 {
        let mut n = lesser_and_greater(seed);
        n.faults = net::Faults { loss: 500_000, dup: 100_000, jitter_ns: 20_000, ..net::Faults::default() };
        let start = n.now;
        n.send(0, 1, false, 0, 0, 0, 8).unwrap();
        n.send(1, 0, false, 0, 0, 0, 8).unwrap();
        assert!(n.run(20 * S, |n| n.nodes.iter().all(|x| x.ups.len() == 1)), "seed {seed}");
        times.push(n.now - start);
        n.faults.loss = 0;
        assert!(n.run(10 * S, Net::quiet), "seed {seed}");
        for node in &n.nodes {
            assert_eq!((node.ups.len(), node.downs.len(), node.messages.len()), (1, 0, 1), "seed {seed}");
        }
    }
    times.sort();
    assert!(times[270] < 3 * S / 2, "one in ten took more than {:?}", times[270]);
}

/// Ranks start seconds apart: what is sent to one that is not there waits at its sender, and
/// nothing but INITs leaves for it.
// spec: P-3.1
#[test]
fn one_who_starts_five_seconds_late_gets_everything() {
    let mut n = Net::new(3, 1, &Config::default(), 61);
    n.capture = true;
    n.nodes[2].stopped = true;
    for from in [0, 1] {
        for _ in 0..20 {
            n.send(from, 2, false, 3, 0, 0, 5000).unwrap();
            n.send(from, 1 - from, false, 3, 0, 0, 5000).unwrap();
        }
        n.offer(from, 2, 300_000);
    }
    n.run(5 * S, |_| false);
    assert!(n.nodes.iter().all(|x| x.failed.is_empty() && x.downs.is_empty()));
    assert_eq!([n.nodes[0].messages.len(), n.nodes[1].messages.len()], [20, 20], "the others wait for nobody");
    let late = net::addr(2, 0);
    assert!(n.captured.iter().all(|c| c.1 != late || c.2[0] == INIT), "traffic before the association is up");
    n.nodes[2].stopped = false;
    let start = n.now;
    assert!(n.run(2 * S, Net::quiet), "{:?}", n.nodes[0].open_tokens);
    println!("all there {:?} after the start", n.now - start);
    // Both senders' 20 messages and offers, the rendezvous transfers of these, all whole and none
    // twice (`net` looks at each byte).
    let node = &n.nodes[2];
    assert_eq!((node.messages.len(), node.rndvs.len()), (42, 2));
    assert!(node.messages.values().chain(node.rndvs.values()).all(|r| r.complete));
}

fn with_features(seed: u64, features: [u16; 2]) -> Net {
    let mut n = lesser_and_greater(seed);
    for (i, features) in features.into_iter().enumerate() {
        let cfg = Config { features, ..Config::default() };
        n.nodes[i].ep = Endpoint::new(cfg, KEY, 1 + i as u64, &[net::addr(i, 0)], [i as u8; 32]);
    }
    n
}

// spec: P-2.39, P-2.40, P-2.34
#[test]
fn builds_with_other_rules_are_told_on_both_sides() {
    for (opener, features) in [(0, [0, 1]), (1, [0, 1]), (0, [1, 0]), (1, [1, 0]), (0, [1, 3]), (0, [3, 1])] {
        let mut n = with_features(4, features);
        // Both know each other, one sends, the other only waits.
        n.peer(1 - opener, opener);
        n.send(opener, 1 - opener, false, 0, 0, 0, 8).unwrap();
        let start = n.now;
        assert!(n.run(S, |n| n.nodes.iter().all(|x| x.downs.len() == 1)), "{features:?}");
        assert!(n.now - start < Duration::from_millis(1), "{:?}", n.now - start);
        for node in &n.nodes {
            assert_eq!((node.downs[0].1, node.ups.len()), (DownReason::Version, 0));
        }
        assert_eq!(n.nodes[opener].failed.len(), 1);
    }
    let mut n = with_features(5, [3, 3]);
    n.send(0, 1, false, 0, 0, 0, 8).unwrap();
    assert!(n.run(S, Net::quiet) && n.nodes.iter().all(|x| x.downs.is_empty() && x.ups.len() == 1));
}

// spec: P-2.39
#[test]
fn a_stranger_with_other_rules_is_refused_and_makes_no_peer() {
    let mut n = with_features(6, [0, 1]);
    n.send(0, 1, false, 0, 0, 0, 8).unwrap();
    assert!(n.run(S, Net::quiet));
    assert_eq!(n.nodes[0].downs[0].1, DownReason::Version);
    assert_eq!((n.nodes[1].ep.peers().count(), n.nodes[1].downs.len()), (0, 0));
}

// spec: P-2.46
#[test]
fn an_init_of_another_version_is_refused_and_nothing_else_of_it_answered() {
    let mut n = lesser_and_greater(7);
    n.capture = true;
    n.send(0, 1, false, 0, 0, 0, 8).unwrap();
    assert!(n.run(S, Net::quiet));
    let (from, to) = (net::addr(0, 0), net::addr(1, 0));
    let of_version_2 = |n: &Net, kind: u8| {
        let mut p = n.captured.iter().find(|c| c.0 == from && c.2[0] == kind).expect("sent").2.clone();
        p[0] = 0x20 | (kind & 0xf);
        p.truncate(p.len() - weir_wire::seal::MAC_LEN);
        p.extend_from_slice(&weir_wire::HandshakeKey::derive(&KEY).mac(&p.clone()));
        p
    };
    let (init, confirm) = (of_version_2(&n, INIT), of_version_2(&n, CONFIRM));
    let mut forged = init.clone();
    forged[9] ^= 1;
    n.captured.clear();
    for p in [confirm, forged] {
        n.arrive(from, to, p);
        n.run(S / 100, |_| false);
    }
    assert_eq!((n.captured.len(), n.nodes[1].ep.counters().dropped_malformed), (0, 2));
    n.arrive(from, to, init.clone());
    n.run(S / 100, |_| false);
    let refused = n.captured.iter().find(|c| c.0 == to).expect("an answer").2.clone();
    match Handshake::parse(&refused, &weir_wire::HandshakeKey::derive(&KEY)) {
        Ok(Handshake::Refuse(r)) => {
            assert_eq!((r.code, r.endpoint_id), (weir_wire::RefuseCode::Features, 2));
            assert_eq!(r.opener_association.to_le_bytes(), init[24..32]);
        }
        other => panic!("{other:?}"),
    }
}

// spec: P-9.16
#[test]
fn who_drops_a_peer_and_opens_again_at_once_waits_until_it_is_forgotten() {
    for farewell_is_lost in [false, true] {
        let mut n = Net::new(2, 1, &Config { dead_may_return: true, ..Config::default() }, 46);
        n.send(0, 1, false, 0, 0, 0, 8).unwrap();
        assert!(n.run(S, Net::quiet));
        let (there, here) = (n.nodes[1].ups[0], n.peer(0, 1));
        if farewell_is_lost {
            lose(&mut n, 0, &[PROTECTED]);
        }
        let now = n.now;
        n.nodes[0].ep.close_peer(now, here, &mut Vec::new());
        n.drain();
        assert!(n.nodes[0].ep.forget(now, here));
        n.run(Duration::from_millis(1), |_| false);
        n.lose = Box::new(|_, _, _| false);
        n.send(0, 1, false, 0, 0, 0, 8).unwrap();
        let is_down = |n: &Net| n.nodes[1].ep.is_down(there);
        assert_eq!(is_down(&n), !farewell_is_lost);
        // The other's program is slow to forget.
        n.run(Duration::from_millis(500), |_| false);
        assert!(is_down(&n), "its farewell was lost, and it lives: one who asks is told");
        assert_eq!((n.nodes[0].downs.len(), n.nodes[1].ups.len()), (0, 1));
        let now = n.now;
        n.nodes[1].mseqs.clear();
        assert!(n.nodes[1].ep.forget(now, there));
        assert!(n.run(S, |n| n.nodes[1].messages.len() == 2));
        assert_eq!(n.nodes[0].downs, []);
    }
}
