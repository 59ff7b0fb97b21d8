//! Bulk connections (spec/bulk.md): what goes by them arrives once and whole, whatever becomes of
//! the connection.

mod net;

use std::time::Duration;

use net::Net;
use weir_link::*;

const LONG: Duration = Duration::from_secs(60);

fn config() -> Config {
    // Virtual paths have no rate to speak of before much was sent.
    let bulk = BulkConfig { on: true, min_rate: 0, pause: Duration::from_millis(1), ..BulkConfig::default() };
    Config { bulk, ..Config::default() }
}

/// The same, changed.
fn with(change: impl FnOnce(&mut BulkConfig)) -> Config {
    let mut cfg = config();
    change(&mut cfg.bulk);
    cfg
}

fn both_know(net: &mut Net) {
    net.send(0, 1, false, 0, 0, 0, 10).expect("send");
    net.send(1, 0, false, 0, 0, 0, 10).expect("send");
    assert!(net.run(LONG, Net::quiet));
}

/// Runs network and bulk connections until nothing is open.
fn settle(net: &mut Net) -> bool {
    for _ in 0..200_000 {
        let moved = net.pump_bulk_connections();
        let stepped = net.step(net.now + Duration::from_millis(if moved { 0 } else { 5 }));
        if !moved && !stepped && net.quiet() {
            return true;
        }
    }
    net.quiet()
}

fn count(net: &Net, f: impl Fn(&Counters) -> u64) -> u64 {
    net.nodes.iter().map(|n| f(&n.ep.counters())).sum()
}

// spec: L-2.1, L-2.2, L-6.3
#[test]
fn large_messages_and_rendezvous_go_by_a_bulk_connection_both_ways_and_small_ones_do_not() {
    for wanter in 0..2 {
        let mut net = Net::new(2, 1, &config(), 7 + wanter as u64);
        both_know(&mut net);
        // The first only has the bulk connection made, by whichever side it is for to connect.
        net.send(wanter, 1 - wanter, false, 3, 0, 0, 100_000).expect("send");
        assert!(settle(&mut net));
        assert_eq!((net.bulk_connections.opened, count(&net, |c| c.bulk.opened)), (1, 2));
        let packets = count(&net, |c| c.bytes_sent);
        for i in 0..20 {
            net.send(0, 1, false, i % 3, 0, 0, 20_000 + u32::from(i) * 10_000).expect("send");
            net.send(1, 0, false, i % 3, 0, 0, 12 << 10).expect("send");
            net.send(1, 0, false, i % 3, 0, 0, 1000).expect("send");
        }
        net.offer(0, 1, 3 << 20);
        net.offer(1, 0, 100_000);
        assert!(settle(&mut net));
        assert!(count(&net, |c| c.bytes_sent) - packets < 60_000, "large payload went in packets");
        assert_eq!(count(&net, |c| c.bulk.records_sent), count(&net, |c| c.bulk.records_received));
        assert!(count(&net, |c| c.bulk.records_sent) > 40);
        assert_eq!(count(&net, |c| c.session.duplicate_bytes + c.bulk.failed + c.violations), 0);
        assert!(net.nodes.iter().all(|n| n.failed.is_empty() && n.messages.values().all(|m| m.complete)));
    }
}

// spec: L-4.3, L-5.3
#[test]
fn a_bulk_connection_that_breaks_loses_nothing() {
    let mut broke = 0;
    for seed in 0..24 {
        // On a network that loses packets as well: then the ways of a message meet everywhere.
        let mut net = Net::new(2, 1, &with(|bulk| bulk.loss_max_ppm = 1_000_000), seed);
        net.faults.loss = if seed % 2 == 0 { 0 } else { 20_000 };
        net.faults.jitter_ns = 20_000;
        both_know(&mut net);
        net.bulk_connections.breaks = 150_000;
        for round in 0..6u32 {
            for i in 0..4u16 {
                net.send(0, 1, false, i, 0, 0, 15_000 + round * 50_000).expect("send");
                net.send(1, 0, false, i, 0, 0, 200_000).expect("send");
                net.send(1, 0, false, i, 0, 0, 100).expect("send");
            }
            net.offer(0, 1, 1_200_000);
            assert!(settle(&mut net), "seed {seed}");
        }
        broke += net.bulk_connections.broke;
        assert_eq!(count(&net, |c| c.violations), 0);
        for n in &net.nodes {
            assert!(n.failed.is_empty());
            assert!(n.messages.values().all(|m| m.complete && m.bytes == m.total));
            assert!(n.rndvs.values().all(|m| m.complete));
        }
    }
    assert!(broke > 30, "{broke} bulk connections broke");
}

// spec: L-5.9
#[test]
fn a_bulk_connection_that_cannot_be_had_is_asked_for_less_and_less_often() {
    let mut net = Net::new(2, 1, &with(|bulk| bulk.pause = Duration::from_millis(100)), 1);
    both_know(&mut net);
    net.bulk_connections.refuse = true;
    let mut failed = Vec::new();
    for _ in 0..100 {
        net.send(0, 1, false, 0, 0, 0, 100_000).expect("send");
        assert!(settle(&mut net));
        net.step(net.now + Duration::from_millis(100));
        failed.push(count(&net, |c| c.bulk.failed));
    }
    // Some 10 s: after 0, 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3.
    let (all, late) = (failed[99], failed[99] - failed[50]);
    assert!((5..=8).contains(&all) && late <= 2, "{failed:?}");
    assert_eq!(count(&net, |c| c.bulk.opened), 0);
}

// spec: L-1.3, L-6.1
#[test]
fn a_bulk_connection_is_only_for_paths_that_lose_nothing_and_are_short_and_fast() {
    let bad: [(&str, Config, u32, u64); 4] = [
        ("loss", config(), 30_000, 10_000),
        ("distance", config(), 0, 2_000_000),
        ("rate", with(|bulk| bulk.min_rate = u64::MAX), 0, 10_000),
        ("level", Config { level: Level::Auth, ..config() }, 0, 10_000),
    ];
    for (why, cfg, loss, delay_ns) in bad {
        let mut net = Net::new(2, 1, &cfg, 3);
        (net.faults.loss, net.faults.delay_ns) = (loss, delay_ns);
        // Enough for the loss to be known.
        for _ in 0..10 {
            net.send(0, 1, false, 0, 0, 0, 10_000).expect("send");
        }
        assert!(settle(&mut net));
        for _ in 0..10 {
            net.send(0, 1, false, 0, 0, 0, 200_000).expect("send");
            net.send(1, 0, false, 0, 0, 0, 200_000).expect("send");
            assert!(settle(&mut net));
        }
        assert_eq!(net.bulk_connections.opened, 0, "{why}");
    }
}

// spec: L-2.7, L-3.3, L-7.1
#[test]
fn nonsense_on_a_bulk_connection_ends_it_and_strangers_greet_in_vain() {
    let mut net = Net::new(3, 1, &config(), 5);
    both_know(&mut net);
    let connector = usize::from(net.nodes[0].ep.name().endpoint_id > net.nodes[1].ep.name().endpoint_id);
    let other = 1 - connector;
    net.send(connector, other, false, 0, 0, 0, 100_000).expect("send");
    let to = net.peer(connector, other);
    net.run(LONG, Net::quiet);
    let news = net.nodes[connector].ep.take_bulk_news().expect("a bulk connection is wanted");
    let (bulk, greeting) = net.nodes[connector].ep.bulk_greeting(news.peer).expect("greeting");
    // Changed anywhere, or brought to somebody else, it is good for nothing.
    for i in 0..GREETING_LEN {
        let mut bad = greeting;
        bad[i] ^= 1;
        assert!(net.nodes[other].ep.bulk_greeted(net.now, &bad).is_none(), "byte {i}");
    }
    assert!(net.nodes[2].ep.bulk_greeted(net.now, &greeting).is_none());
    let (peer, _, answer) = net.nodes[other].ep.bulk_greeted(net.now, &greeting).expect("good");
    assert!(!net.nodes[connector].ep.bulk_answered(net.now, news.peer, bulk + 1, &answer));
    assert!(net.nodes[connector].ep.bulk_answered(net.now, news.peer, bulk, &answer));
    assert!(net.nodes[connector].ep.has_bulk(to));

    let mut events = Vec::new();
    assert!(!net.nodes[other].ep.record_tells(net.now, peer, bulk, &[1; RECORD_HEAD_LEN], &mut events));
    // TCP's checksum lets through what a network damages now and then; the peer has done nothing.
    assert!(!net.nodes[other].ep.is_down(peer) && events.is_empty());
    let ends = [(other, peer), (connector, to)];
    for (node, peer) in ends {
        net.nodes[node].ep.bulk_over(net.now, peer, bulk);
    }
    net.send(connector, other, false, 0, 0, 0, 100_000).expect("send");
    assert!(net.run(LONG, Net::quiet));
    let c = net.nodes[other].ep.counters();
    assert_eq!((c.violations, c.bulk.heads_damaged, c.bulk.failed), (0, 1, 1));
}

/// Bulk connections after messages of 60 KB to and fro over a path of so many bytes per second.
fn bulk_connections_of_an_exchange(rate: u64) -> u64 {
    let defaults = Config { bulk: BulkConfig { on: true, ..BulkConfig::default() }, ..Config::default() };
    let mut net = Net::new(2, 1, &defaults, 5);
    // At first somebody else keeps the processors busy, while the window grows beyond such
    // messages.
    net.faults = net::Faults { rate, queue: 1 << 20, delay_ns: 400_000, ..net.faults };
    for round in 0..100 {
        if round == 20 {
            assert_eq!(net.bulk_connections.opened, 0);
            net.faults.delay_ns = 5_000;
        }
        net.send(round % 2, 1 - round % 2, false, 0, 0, 0, 60_000).expect("send");
        assert!(settle(&mut net));
    }
    net.bulk_connections.opened
}

// spec: L-6.2
#[test]
fn messages_that_fill_no_window_show_the_rate_of_a_path() {
    assert_eq!(bulk_connections_of_an_exchange(3_000_000_000), 1);
    for slow in [12_500_000, 125_000_000, 312_500_000] {
        assert_eq!(bulk_connections_of_an_exchange(slow), 0, "{slow} B/s");
    }
}

/// Bulk connections after messages of 4 KB that answer each other over a path of so many bytes per
/// second.
fn bulk_connections_of_turns(rate: u64) -> u64 {
    let defaults = Config { bulk: BulkConfig { on: true, ..BulkConfig::default() }, ..Config::default() };
    let mut net = Net::new(2, 1, &defaults, 5);
    net.faults = net::Faults { rate, queue: 1 << 20, delay_ns: 2_000, ..net.faults };
    both_know(&mut net);
    for turn in 0..1000 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        let come = |net: &Net| net.nodes[to].messages.values().filter(|m| m.complete).count();
        let before = come(&net);
        net.send(from, to, false, 0, 0, 0, 4000).expect("send");
        let start = net.now;
        while come(&net) == before {
            assert!(net.now.since_ns(start) < 1_000_000_000, "turn {turn} of {rate} B/s");
            net.step(net.now + Duration::from_micros(1));
            pump(&mut net);
        }
    }
    assert!(count(&net, |c| c.bulk.records_sent) > 100 || net.bulk_connections.opened == 0);
    net.bulk_connections.opened
}

// spec: L-6.1, L-6.2, L-6.3
#[test]
fn short_messages_by_turns_show_the_rate_of_a_path_too_and_then_go_by_it() {
    assert_eq!(bulk_connections_of_turns(3_000_000_000), 1);
    for slow in [125_000_000, 312_500_000] {
        assert_eq!(bulk_connections_of_turns(slow), 0, "{slow} B/s");
    }
}

/// Moves the bulk connections' bytes, at once.
fn pump(net: &mut Net) {
    while net.pump_bulk_connections() {}
}

/// How long node 1 lets node 0 wait to hear that a message was read.
fn told_after(net: &mut Net) -> Duration {
    let start = net.now;
    while !net.nodes[0].open_tokens.is_empty() {
        assert!(net.now.since_ns(start) < 1_000_000, "never told");
        net.step(net.now + Duration::from_micros(1));
        pump(net);
    }
    Duration::from_nanos(net.now.since_ns(start))
}

// spec: L-4.6, L-4.7
#[test]
fn what_was_read_is_told_at_once_unless_answers_used_to_come_at_once() {
    let mut net = Net::new(2, 1, &config(), 3);
    both_know(&mut net);
    net.send(0, 1, false, 0, 0, 0, 100_000).expect("send");
    assert!(settle(&mut net));
    assert_eq!(net.bulk_connections.opened, 1);
    let flight = Duration::from_nanos(net.faults.delay_ns + net.faults.jitter_ns);
    let soon = flight + Duration::from_micros(5);
    let one_way = |net: &mut Net| {
        net.send(0, 1, false, 0, 0, 0, 20_000).expect("send");
        pump(net);
        told_after(net)
    };
    let exchange = |net: &mut Net| {
        net.send(0, 1, false, 0, 0, 0, 20_000).expect("send");
        pump(net);
        assert_eq!(net.nodes[0].open_tokens.len(), 1, "told by a packet, which is under way");
        net.send(1, 0, false, 0, 0, 0, 20_000).expect("send");
        pump(net);
        assert!(net.nodes[0].open_tokens.is_empty(), "the answer tells it");
        assert!(settle(net));
    };
    for round in 0..3 {
        assert!(one_way(&mut net) <= soon, "round {round}");
        for _ in 0..6 {
            exchange(&mut net);
        }
        let waited = one_way(&mut net);
        assert!(waited > soon && waited <= soon + Duration::from_micros(100), "round {round}: {waited:?}");
        assert!(one_way(&mut net) <= soon, "round {round}: the last was not answered");
    }
    // Of several in a row only the last is urgent.
    let told = count(&net, |c| c.packets_sent);
    for _ in 0..10 {
        net.send(0, 1, false, 0, 0, 0, 20_000).expect("send");
    }
    pump(&mut net);
    assert!(told_after(&mut net) <= soon);
    assert!(count(&net, |c| c.packets_sent) - told <= 2, "one BULK frame and its acknowledgement");
}

/// Two with a bulk connection; what node 0 sent by it last was read by node 1, which has not told
/// so. `used_to_answer`: it would in 100 us, for an answer used to do it.
fn with_a_message_untold(used_to_answer: bool) -> Net {
    let mut net = Net::new(2, 1, &config(), 3);
    both_know(&mut net);
    net.send(0, 1, false, 0, 0, 0, 100_000).expect("send");
    assert!(settle(&mut net));
    assert_eq!(net.bulk_connections.opened, 1);
    for _ in 0..if used_to_answer { 6 } else { 0 } {
        for (from, to) in [(0, 1), (1, 0)] {
            net.send(from, to, false, 0, 0, 0, 20_000).expect("send");
            pump(&mut net);
        }
        assert!(settle(&mut net));
    }
    net.send(0, 1, false, 0, 0, 0, 20_000).expect("send");
    pump(&mut net);
    let all_is_there = |m: &net::Received| m.complete;
    assert!(net.nodes[0].open_tokens.len() == 1 && net.nodes[1].messages.values().all(all_is_there));
    net
}

/// Node 0's last send did not fail, though node 1 is gone.
fn assert_told(net: &mut Net, why: &str) {
    assert!(net.run(LONG, |n| !n.nodes[0].downs.is_empty()), "{why}");
    assert_eq!(net.nodes[0].downs[0].1, DownReason::Closed, "{why}");
    assert!(net.nodes[0].failed.is_empty() && net.nodes[0].open_tokens.is_empty(), "{why}: {:?}", net.nodes[0].failed);
}

/// Loses the next so many datagrams of node 1.
fn lose_of_node_1(net: &mut Net, count: usize) {
    let (from, mut left) = (net::addr(1, 0), count);
    net.lose = Box::new(move |f, _, _| {
        let loses = f == from && left > 0;
        left -= usize::from(loses);
        loses
    });
}

// spec: L-4.4, P-9.9
#[test]
fn who_closes_tells_what_it_read_of_the_bulk_connection() {
    for used_to_answer in [false, true] {
        let mut net = with_a_message_untold(used_to_answer);
        net.nodes[1].ep.close(net.now);
        assert_told(&mut net, "nothing is lost");
        // What tells it in time is lost, and each CLOSE but one.
        for lost in 1..=3 {
            let mut net = with_a_message_untold(used_to_answer);
            lose_of_node_1(&mut net, lost);
            net.nodes[1].ep.close(net.now);
            assert_told(&mut net, "losses");
        }
    }
}

// spec: L-4.5
#[test]
fn who_sees_the_bulk_connection_end_before_the_farewell_still_learns_what_was_read_of_it() {
    for lost in [0, 1, 4, 5] {
        let mut net = with_a_message_untold(false);
        lose_of_node_1(&mut net, lost);
        net.nodes[1].ep.close(net.now);
        // The connection's end has overtaken the packets, and what is not told goes in packets from
        // now on, in vain.
        let bulk = u32::try_from(net.bulk_connections.opened).expect("few");
        let peer = net.peer(0, 1);
        assert!(net.nodes[0].ep.bulk_is_up(peer, bulk));
        net.bulk_connections.conns.clear();
        net.nodes[0].ep.bulk_over(net.now, peer, bulk);
        assert_told(&mut net, &format!("{lost} packets lost"));
    }
}

// spec: L-5.5, P-4.22
#[test]
fn that_a_bulk_connection_is_over_is_said_until_it_arrives() {
    for lost in [0, 1, 2, 5] {
        let mut net = with_a_message_untold(true);
        lose_of_node_1(&mut net, lost);
        let bulk = u32::try_from(net.bulk_connections.opened).expect("few");
        // The connection's end never comes: its network has failed.
        let peer = net.peer(1, 0);
        net.nodes[1].ep.bulk_over(net.now, peer, bulk);
        let resent = count(&net, |c| c.session.duplicate_bytes);
        assert!(net.run(Duration::from_millis(500), |n| n.nodes[0].open_tokens.is_empty()), "{lost} lost");
        assert_eq!(count(&net, |c| c.session.duplicate_bytes), resent, "it was read, and is not sent again");
        let peer = net.peer(0, 1);
        assert!(!net.nodes[0].ep.bulk_is_up(peer, bulk), "{lost} lost");
        assert_eq!(count(&net, |c| c.bulk.failed), 2);
    }
}
