//! The carrier beside its peers in this process, and what strangers may say to it.

use super::*;
use crate::records::kind;
use crate::{CarrierUse, Class, Endpoint, EngineConfig, Iov, Queue, RecvOp, SendMode, SendOp};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PPID: u32 = 0x5745_0000;
/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn send(ep: &Endpoint, peer: u32, data: &mut [u8]) {
    let memory = &[Iov { base: data.as_mut_ptr(), len: data.len() }];
    let (class, mode) = (Class::Tagged, SendMode::Delivery);
    let op = SendOp { peer, class, tag: 1, data: None, memory, mode, copy: false, report: true, context: 1, user: 0 };
    // SAFETY: the caller keeps the memory until the completion.
    unsafe { ep.send(&op) }.expect("accepted");
}

fn post(ep: &Endpoint, buf: &mut [u8]) {
    let memory = &[Iov { base: buf.as_mut_ptr(), len: buf.len() }];
    let (source, class, multi_min) = (None, Class::Tagged, None);
    let op = RecvOp { source, class, tag: 1, ignore: 0, memory, multi_min, report: true, context: 2, user: 0 };
    // SAFETY: the same.
    unsafe { ep.recv(&op) }.expect("accepted");
}

fn until(ends: &[&Endpoint], mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        ends.iter().for_each(|ep| ep.progress());
        assert!(start.elapsed() < LIMIT, "{}", ends[0].counters_json());
    }
}

fn is_up(ep: &Endpoint) -> bool {
    let core = ep.shared.core.lock();
    core.sctp.as_ref().is_some_and(|s| s.is_up(PeerId(0)))
}

/// Two endpoints between which SCTP is up; none where there is no library.
fn pair() -> Option<[Arc<Endpoint>; 2]> {
    if let Err(why) = crate::sctp_available() {
        let thread = std::thread::current();
        let line = format!("IGNORED, not passed: {}. {why}\n", thread.name().unwrap_or("a test"));
        // Not by a macro: of tests that pass that is not shown.
        let _ = std::io::stderr().write_all(line.as_bytes());
        return None;
    }
    let ends = [0, 1].map(|_| {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, carrier: CarrierUse::Sctp, watchdog_us: 0, ..EngineConfig::default() };
        Endpoint::open_with_key(cfg, [7; 32]).expect("open")
    });
    let [a, b] = &ends;
    a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let (mut one, mut buf) = ([1], [0]);
    post(b, &mut buf);
    send(a, 0, &mut one);
    let mut out = Vec::new();
    until(&[a, b], || b.poll(Queue::Recv, &mut out, 1) > 0);
    until(&[a, b], || a.poll(Queue::Send, &mut out, 1) > 0);
    until(&[a, b], || is_up(a) && is_up(b));
    Some(ends)
}

fn counters(ep: &Endpoint) -> SctpCounters {
    *ep.shared.core.lock().sctp.as_ref().expect("it has SCTP").counters()
}

/// Runs something in the middle of an endpoint.
fn inside<T>(ep: &Endpoint, f: impl FnOnce(&mut Sctp, &mut State) -> T) -> T {
    let core = &mut *ep.shared.core.lock();
    f(core.sctp.as_mut().expect("it has SCTP"), &mut core.st)
}

/// Rules 2.6 and 2.9.
#[test]
fn an_init_that_anybody_can_write_is_no_end_of_what_is_up() {
    // Ports, no verification tag, checksum; INIT, 20 bytes; tag, window, streams out and in,
    // TSN.
    let init = |tag: u32, window: u32, streams: u32| {
        let head = [0xc000_c001, 0, 0, 0x0100_0014];
        [&head[..], &[tag, window, streams, 1]].concat().into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
    };
    let good = init(7, 1500, 0x0001_0001);
    let [opening, up, over] = [Phase::Opening(Time(1)), Phase::Up, Phase::Over("lost".into())];
    assert!(opening.takes(&good) && !up.takes(&good) && !over.takes(&good));
    for bad in [init(0, 1500, 0x0001_0001), init(7, 1499, 0x0001_0001), init(7, 1500, 1), init(7, 1500, 1 << 16)] {
        assert!(!opening.takes(&bad), "{bad:?}");
    }
    assert!(!opening.takes(&good[..27]) && !opening.takes(&good[..7]) && !up.takes(&good[..7]));
    let mut tagged = good.clone();
    tagged[7] = 1;
    assert!(opening.takes(&tagged) && up.takes(&tagged) && over.takes(&tagged));
}

/// Rules 2.6 and 2.9.
#[test]
fn a_packet_from_where_the_peer_is_not_does_not_reach_sctp() {
    let Some([a, b]) = pair() else { return };
    let dropped = counters(&a).packets_dropped;
    inside(&a, |sctp, st| {
        let [(_, _), (there, place)] = st.proto().sctp_ids(PeerId(0)).expect("it is up");
        let from = port_of(place).expect("a port");
        let mut packet = [0; 16];
        packet[..2].copy_from_slice(&from.to_be_bytes());
        packet[4..8].copy_from_slice(&(there as u32).to_be_bytes());
        let stranger = "127.0.0.1:9".parse().expect("an address");
        sctp.packet(st, crate::clock::now(), (stranger, from, Some(0)), &packet);
    });
    assert_eq!(counters(&a).packets_dropped, dropped + 1);
    assert!(is_up(&a) && is_up(&b));
}

#[test]
fn what_sctp_had_when_it_was_lost_goes_in_packets() {
    let Some([a, b]) = pair() else { return };
    let len = 32 << 20;
    let (mut data, mut buf) = (vec![0x5a; len], vec![0; len]);
    post(&b, &mut buf);
    send(&a, 0, &mut data);
    until(&[&a, &b], || counters(&b).record_bytes_received > 1 << 20);
    inside(&a, |sctp, _| sctp.there_mut(PeerId(0)).expect("the peer").association.close());
    let mut out = Vec::new();
    until(&[&a, &b], || b.poll(Queue::Recv, &mut out, 1) > 0);
    until(&[&a, &b], || a.poll(Queue::Send, &mut out, 1) > 0);
    assert!(out.iter().all(|c| c.result.is_ok()) && buf == data);
    // The one by the ABORT of the other, which found out when it was to send.
    until(&[&a, &b], || counters(&a).over == 1 && counters(&b).over == 1);
    assert!(counters(&a).records_given_back > 0);
    assert!(!is_up(&b) && counters(&b).record_bytes_received < len as u64, "{:?}", counters(&b));
}

/// A packet of SCTP with a good checksum.
fn packet_of(ports: [u16; 2], tag: u32, chunk: &[u8]) -> Vec<u8> {
    let mut packet: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
    packet.extend_from_slice(&tag.to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(chunk);
    let crc = weir_link::crc32c_append(0, &packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    packet
}

/// One message from the first to the second, by SCTP.
fn message_by_sctp([a, b]: [&Endpoint; 2], len: usize) {
    let before = counters(b).record_bytes_received;
    let (mut data, mut buf, mut out) = (vec![0x3c; len], vec![0; len], Vec::new());
    post(b, &mut buf);
    send(a, 0, &mut data);
    until(&[a, b], || b.poll(Queue::Recv, &mut out, 1) > 0);
    until(&[a, b], || a.poll(Queue::Send, &mut out, 1) > 0);
    assert!(buf == data && counters(b).record_bytes_received >= before + len as u64);
}

/// Rule 2.9 and what SCTP does itself: as if from the peer's own address, with its ports.
#[test]
fn forged_packets_with_a_wrong_tag_deliver_nothing_and_end_nothing() {
    let Some([a, b]) = pair() else { return };
    // The tag that is right, by which the same packets do what they say.
    let genuine = inside(&b, |sctp, _| {
        let p = sctp.there_mut(PeerId(0)).expect("the peer");
        while p.association.next_packet().is_some() {}
        let record = [&[0; 16][..], &[0; 16]].concat();
        p.association.send(1, PPID | u32::from(kind::CREDIT), &record).expect("there is room");
        p.out[1].sent += 1;
        p.association.next_packet().expect("a packet")
    });
    let word = |at: usize| u32::from_be_bytes(genuine[at..at + 4].try_into().expect("four bytes"));
    // (Behind a SACK, perhaps.)
    let mut chunk = 12;
    while word(chunk) >> 24 != 0 {
        chunk += (word(chunk) as usize & 0xffff).next_multiple_of(4);
    }
    let (tag, tsn) = (word(4), word(chunk + 4));
    assert_ne!(tag, 0);
    let (ports, remote) = inside(&a, |_, st| {
        let [(_, here), (_, there)] = st.proto().sctp_ids(PeerId(0)).expect("it is up");
        let (remote, ..) = st.proto().way(PeerId(0)).expect("a way");
        ([there, here].map(|place| port_of(place).expect("a port")), remote)
    });
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    // CREDIT in one chunk, by stream 1, as the first and as the next that is to come.
    let data =
        |tsn: u32| [words(&[0x0003_0030, tsn, 0x0001_0000, PPID | u32::from(kind::CREDIT)]), vec![0; 32]].concat();
    let init = words(&[0x0100_0014, 7, 1 << 16, 0x0009_0009, 1]);
    let (abort, reflected) = (words(&[0x0600_0004]), words(&[0x0601_0004]));
    let comes = |tag: u32, chunk: &[u8]| {
        let before = counters(&a);
        let packet = packet_of(ports, tag, chunk);
        assert!(inside(&a, |sctp, st| sctp.datagram(st, crate::clock::now(), remote, &packet)));
        let after = counters(&a);
        (after.packets_dropped - before.packets_dropped, after.packets_received - before.packets_received)
    };
    let before = counters(&a);
    for chunk in [&init, &data(tsn), &abort] {
        assert_eq!(comes(0, chunk), (1, 0), "SCTP does not see it");
    }
    for wrong in [tag ^ 1, 1, u32::MAX] {
        for chunk in [&init, &data(tsn), &data(tsn.wrapping_add(1)), &abort, &reflected] {
            assert_eq!(comes(wrong, chunk), (0, 1), "SCTP drops it itself");
        }
    }
    a.progress();
    let after = counters(&a);
    assert_eq!((after.records_received, after.over), (before.records_received, 0));
    assert!(is_up(&a) && is_up(&b));
    // What was genuine is taken still, once; and everything goes on.
    inside(&a, |sctp, st| sctp.datagram(st, crate::clock::now(), remote, &genuine));
    assert_eq!(counters(&a).records_received, before.records_received + 1);
    message_by_sctp([&a, &b], 100_000);
    message_by_sctp([&b, &a], 100_000);
    assert!(is_up(&a) && is_up(&b));
    assert_eq!(comes(tag, &abort), (0, 1));
    assert!(!is_up(&a), "these packets do what they say, if the tag is right");
}

#[test]
fn a_full_buffer_keeps_no_sleeper_awake() {
    let Some([a, _b]) = pair() else { return };
    inside(&a, |sctp, st| {
        let now = crate::clock::now();
        let p = sctp.there_mut(PeerId(0)).expect("the peer");
        // (The other end reads nothing of it.)
        for len in [16 << 10, 1] {
            while p.association.send(1, PPID, &[0; 16 << 10][..len]).is_ok() {}
        }
        // Something was read that the peer is to be told at once, and something is to go.
        (p.tell_at, p.inn[0].read) = (Some(now), p.inn[0].read + 1);
        assert!(sctp.next_timeout(st, now).is_some_and(|t| t <= now), "it is due");
        sctp.offer(st, now);
        let p = sctp.there(PeerId(0)).expect("the peer");
        assert!(p.full && p.inn[0].told < p.inn[0].read, "there was no room");
        let next = sctp.next_timeout(st, now).expect("SCTP's timers run");
        assert!(next > now && next <= now.plus_ns(TICK_NS), "{next:?} at {now:?}");
        // The same in every pass until then.
        for i in 1..TICK_NS / ROUND_NS {
            let now = now.plus_ns(i * ROUND_NS);
            sctp.progress(st, now);
            sctp.offer(st, now);
            assert!(sctp.next_timeout(st, now).is_some_and(|t| t > now));
        }
    });
}

#[test]
fn passes_do_not_look_at_peers_again_and_again() {
    let Some([a, b]) = pair() else { return };
    assert_eq!(inside(&a, |sctp, _| sctp.looks), 1);
    // One that takes no SCTP.
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    let cfg = EngineConfig { addrs, carrier: CarrierUse::Network, watchdog_us: 0, ..EngineConfig::default() };
    let other = Endpoint::open_with_key(cfg, [7; 32]).expect("open");
    a.insert_peer(&other.name()).expect("name");
    let (mut one, mut buf, mut out) = ([1], [0], Vec::new());
    other.insert_peer(&a.name()).expect("name");
    post(&other, &mut buf);
    send(&a, 1, &mut one);
    until(&[&a, &b, &other], || other.poll(Queue::Recv, &mut out, 1) > 0);
    until(&[&a, &b, &other], || a.poll(Queue::Send, &mut out, 1) > 0);
    let start = Instant::now();
    let passes = |n: u32| (0..n).for_each(|_| [&a, &b, &other].iter().for_each(|ep| ep.progress()));
    while start.elapsed() < Duration::from_millis(20) {
        passes(100);
    }
    assert_eq!(inside(&a, |sctp, _| sctp.looks), 1, "neither in a pass nor in a round");
    assert!(is_up(&a));
}

#[test]
fn who_closes_leaves_no_count_of_sctp_that_was_lost() {
    let Some([a, b]) = pair() else { return };
    message_by_sctp([&a, &b], 100_000);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| a.close());
        until(&[&b], || closing.is_finished());
    });
    let start = Instant::now();
    until(&[&b], || start.elapsed() > Duration::from_nanos(2 * FAREWELL_NS));
    for ep in [&a, &b] {
        let counted = counters(ep);
        assert_eq!((counted.up, counted.over, counted.records_given_back), (1, 0, 0));
    }
    assert!(!is_up(&b));
}

#[test]
fn who_says_a_wrong_hello_is_not_listened_to() {
    let Some([a, b]) = pair() else { return };
    let hello = inside(&b, |_, st| st.proto().sctp_hello(PeerId(0))).expect("its own");
    let foreign = inside(&a, |_, st| st.proto().sctp_hello(PeerId(0))).expect("for the other direction");
    let mut damaged = hello;
    damaged[39] ^= 1;
    let wrong: [(u16, u16, &[u8]); 7] = [
        (0, kind::HELLO, &foreign),
        (0, kind::HELLO, &damaged),
        (0, kind::HELLO, b""),
        (7, kind::HELLO, &hello),
        (90, kind::HELLO, &hello),
        (0, 7, &hello),
        (0, kind::CREDIT, &[0; 32]),
    ];
    for (stream, kind, bytes) in wrong {
        inside(&a, |sctp, st| {
            let p = sctp.there_mut(PeerId(0)).expect("the peer");
            (p.heard_hello, p.phase) = (false, Phase::Opening(crate::clock::now()));
            let before = sctp.counters.hellos_refused;
            let ppid = PPID | u32::from(kind);
            assert_eq!(sctp.arrived(st, crate::clock::now(), PeerId(0), (stream, ppid), bytes), Ok(()));
            assert_eq!(sctp.counters.hellos_refused, before + 1);
            let p = sctp.there(PeerId(0)).expect("it is remembered");
            assert!(matches!(p.phase, Phase::Over(_)) && !p.heard_hello);
            // As it was, for the next.
            st.proto_mut().sessions_mut().hold(PeerId(0));
        });
    }
}

#[test]
fn a_record_that_breaks_a_rule_is_a_violation() {
    let Some([a, _b]) = pair() else { return };
    let record = |read: u64, flags: u8, rest: &[u8]| {
        let mut bytes = vec![0; 16];
        bytes[..8].copy_from_slice(&read.to_le_bytes());
        bytes[8] = flags;
        bytes.extend_from_slice(rest);
        bytes
    };
    let of = |kind: u16| PPID | u32::from(kind);
    let mut reserved = record(0, 0, &[0; 16]);
    reserved[12] = 1;
    let entry = |stream: u64, read: u64| [stream.to_le_bytes(), read.to_le_bytes()].concat();
    let wrong: [(u16, u32, Vec<u8>); 12] = [
        (1, of(kind::CREDIT), vec![0; 15]),
        (1, of(kind::CREDIT), record(0, 0, &[0; 15])),
        (1, of(kind::CREDIT), record(0, 2, &[0; 16])),
        (1, of(kind::CREDIT), reserved),
        (1, of(kind::CREDIT), record(1 << 40, 0, &[0; 16])),
        (1, of(13), record(0, 0, &[0; 16])),
        (1, of(kind::MESSAGE_AT), record(0, 0, &[0; 64])),
        (1, 7, record(0, 0, &[0; 16])),
        (90, of(kind::CREDIT), record(0, 0, &[0; 16])),
        (0, of(kind::ACK), record(0, 0, &[0; 15])),
        (0, of(kind::ACK), record(0, 0, &entry(1, 1 << 40))),
        (0, of(kind::ACK), record(0, 0, &entry(1 << 20, 0))),
    ];
    for (i, (stream, ppid, bytes)) in wrong.into_iter().enumerate() {
        let said = inside(&a, |sctp, st| sctp.arrived(st, crate::clock::now(), PeerId(0), (stream, ppid), &bytes));
        assert!(said.is_err(), "case {i}");
    }
    let good = record(0, 0, &[0; 16]);
    let said = inside(&a, |sctp, st| sctp.arrived(st, crate::clock::now(), PeerId(0), (1, of(kind::CREDIT)), &good));
    assert_eq!(said, Ok(()));
}
