//! Requirements of `spec/protocol.md` and `spec/bulk.md` that no other test shows: each is one
//! small exchange between two endpoints, or one call.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use weir_wire::frame::{self, Frame, Frames};
use weir_wire::handshake::{Accept, Refuse, Reset};
use weir_wire::{DataKey, Handshake, Header, Kind, Params, RefuseCode, packet};

use crate::association::State;
use crate::congestion::{Acked, Congestion, Target};
use crate::hostile::{P, Two, addr, greet_again, meta, part_of_message, tell, with_bulk, with_bulk_and_sides};
use crate::paths::{Path, PathState};
use crate::received::Received;
use crate::rtt::Rtt;
use crate::{BulkConfig, Config, DownReason, Endpoint, Event, Level, Message, PeerId, RxMeta, SessionConfig, Time};

const MS: u64 = 1_000_000;

/// A quiet wire: no probes of the path MTU in between.
pub(crate) fn quiet() -> Config {
    Config { mtu_probing: false, ..Config::default() }
}

fn kind(p: &[u8]) -> Kind {
    packet::kind(p).expect("a packet")
}

fn number(p: &[u8]) -> u32 {
    Header::parse(p).expect("PROTECTED").number
}

/// The frames of a packet at level integrity.
fn frames_of(p: &[u8], f: impl FnMut(Frame<'_>)) {
    let all = Frames::parse(p, Level::Integrity.frames_offset()..p.len()).expect("well-formed");
    all.iter().for_each(f);
}

pub(crate) fn has(p: &[u8], mut what: impl FnMut(&Frame<'_>) -> bool) -> bool {
    let mut found = false;
    frames_of(p, |f| found |= what(&f));
    found
}

// The handshake.

/// Two that open: what the opener sends up to the answer that it is to get.
struct Opening {
    t: Two,
    confirm: Vec<u8>,
    accept: Vec<u8>,
}

fn opening(cfg: &Config) -> Opening {
    let mut t = Two::new(cfg);
    let mut out = Vec::new();
    for _ in 0..2 {
        for from in [0, 1] {
            let sent = t.poll(from);
            for mut p in sent {
                if kind(&p) == Kind::Accept {
                    return Opening { t, confirm: out, accept: p };
                }
                if kind(&p) == Kind::Confirm {
                    out.clone_from(&p);
                }
                let (now, events) = (t.now, &mut t.events[1 - from]);
                t.ends[1 - from].handle(now, meta(from), &mut p, events);
            }
        }
    }
    panic!("no ACCEPT");
}

impl Opening {
    /// The opener gets this instead of the ACCEPT. True if the association is up then.
    fn gets(&mut self, change: impl FnOnce(&mut Accept)) -> bool {
        let key = &self.t.ends[0].handshake.key;
        let Ok(Handshake::Accept(mut accept)) = Handshake::parse(&self.accept, key) else { panic!("an ACCEPT") };
        change(&mut accept);
        let mut bytes = Vec::new();
        Handshake::Accept(accept).write(key, &mut bytes);
        let (now, events) = (self.t.now, &mut self.t.events[0]);
        self.t.ends[0].handle(now, meta(1), &mut bytes, events);
        self.t.ends[0].assocs[0].state == State::Up
    }
}

// spec: P-2.41, P-3.9
#[test]
fn an_accept_of_other_features_or_a_lower_level_is_dropped() {
    let mut o = opening(&Config { level: Level::Auth, features: 1, ..quiet() });
    assert!(!o.gets(|a| a.features = 3));
    assert!(!o.gets(|a| a.level = Level::Integrity));
    assert!(o.gets(|_| ()));
}

// spec: P-2.47
#[test]
fn who_says_nothing_of_parity_takes_one_row() {
    for (says, takes) in [(0, 1), (1, 1), (2, 2), (3, 3), (200, 3)] {
        let mut o = opening(&quiet());
        assert!(o.gets(|a| a.params.parity_rows = says));
        assert_eq!(o.t.ends[0].assocs[0].peer.parity_rows, takes);
    }
}

// spec: P-2.42
#[test]
fn an_accept_that_takes_datagrams_too_small_is_dropped() {
    let o = opening(&quiet());
    let key = &o.t.ends[0].handshake.key;
    let read = |max_datagram: u16, streams: u16| {
        // `max_datagram` and `streams` are the first two of the parameters, which begin at
        // offset 48.
        let mut bytes = o.accept[..o.accept.len() - 16].to_vec();
        bytes[48..50].copy_from_slice(&max_datagram.to_le_bytes());
        bytes[50..52].copy_from_slice(&streams.to_le_bytes());
        let mac = key.mac(&bytes);
        bytes.extend_from_slice(&mac);
        Handshake::parse(&bytes, key).is_ok()
    };
    assert!(read(1200, 1));
    assert!(!read(1199, 1) && !read(1200, 0));
}

// spec: P-2.44
#[test]
fn of_what_a_peer_says_of_its_delay_and_buffer_only_so_much_is_believed() {
    let mut o = opening(&quiet());
    assert!(o.gets(|a| {
        let Params { ack_delay_max_us, rx_buffer_bytes, .. } = &mut a.params;
        (*ack_delay_max_us, *rx_buffer_bytes) = (u32::MAX, 0);
    }));
    let peer = &o.t.ends[0].assocs[0].peer;
    assert_eq!((peer.ack_delay_max_ns, peer.rx_buffer), (100 * MS, 64 << 10));
}

// spec: P-3.6
#[test]
fn a_confirm_that_repeats_gets_the_same_accept() {
    let mut o = opening(&quiet());
    for _ in 0..2 {
        let (now, events) = (o.t.now, &mut o.t.events[1]);
        o.t.ends[1].handle(now, meta(0), &mut o.confirm.clone(), events);
        assert_eq!(o.t.poll(1).iter().filter(|p| kind(p) == Kind::Accept).collect::<Vec<_>>(), [&o.accept]);
    }
    assert_eq!(o.t.ends[1].assocs.len(), 1);
}

// spec: P-3.7
#[test]
fn another_opening_of_an_endpoint_that_is_known_is_refused() {
    let mut t = Two::up(&quiet());
    // The same endpoint id, another nonce.
    let mut twin = Two::new(&quiet());
    twin.ends[0] = Endpoint::new(quiet(), [7; 32], 100, &[addr(0)], [77; 32]);
    let name = t.ends[1].name();
    assert_eq!(twin.ends[0].peer(&name), Ok(P));
    twin.send(0);
    let mut answers = Vec::new();
    for _ in 0..2 {
        for mut p in twin.poll(0) {
            let (now, events) = (t.now, &mut t.events[1]);
            t.ends[1].handle(now, meta(0), &mut p, events);
            for mut answer in t.poll(1) {
                answers.push(answer.clone());
                let (now, events) = (twin.now, &mut twin.events[0]);
                twin.ends[0].handle(now, meta(1), &mut answer, events);
            }
        }
    }
    let refusal = answers.iter().find(|p| kind(p) == Kind::Refuse).expect("refused");
    match Handshake::parse(refusal, &t.ends[1].handshake.key) {
        Ok(Handshake::Refuse(Refuse { code: RefuseCode::NoRoom, .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(t.ends[1].assocs[0].state, State::Up);
}

// spec: P-3.3
#[test]
fn a_cookie_that_brings_nothing_is_given_up_after_six_confirms() {
    let mut t = Two::new(&quiet());
    let mut kinds = Vec::new();
    for _ in 0..200 {
        t.now += Duration::from_millis(10);
        for mut p in t.poll(0) {
            kinds.push(kind(&p));
            // Of the opener's CONFIRMs none arrives.
            if kind(&p) == Kind::Init && kinds.len() == 1 {
                let (now, events) = (t.now, &mut t.events[1]);
                t.ends[1].handle(now, meta(0), &mut p, events);
            }
        }
        t.exchange([1, 1]);
    }
    let confirms = kinds.iter().skip(1).take_while(|k| **k == Kind::Confirm).count();
    assert_eq!(confirms, 6, "{kinds:?}");
    assert_eq!(kinds[7], Kind::Init, "{kinds:?}");
}

// spec: P-3.14
#[test]
fn association_ids_are_never_zero_and_never_alike() {
    let ids: Vec<u64> = (0..20).map(|_| Two::up(&quiet()).ends[0].assocs[0].local_id).collect();
    assert!(ids.iter().all(|id| *id != 0));
    let of = |seed: u8| {
        let mut e = Endpoint::new(quiet(), [7; 32], 5, &[addr(0)], [seed; 32]);
        let other = Endpoint::new(quiet(), [7; 32], 6, &[addr(1)], [9; 32]).name();
        e.peer(&other).expect("usable");
        e.open(Time(1), P);
        e.assocs[0].local_id
    };
    assert_ne!(of(1), of(2));
}

// spec: P-2.37
#[test]
fn a_reset_of_the_peer_itself_ends_the_association() {
    let mut t = Two::up(&quiet());
    let association = t.ends[0].assocs[0].remote_id;
    for (endpoint_id, from, ends) in [(4711, 5, false), (101, 5, true)] {
        let mut reset = t.ends[1].handshake.write(&Handshake::Reset(Reset { association, endpoint_id }));
        let (now, events) = (t.now, &mut t.events[0]);
        t.ends[0].handle(now, meta(from), &mut reset, events);
        assert_eq!(t.down(0), ends.then_some(DownReason::GivenUp), "of {endpoint_id}");
    }
}

// Packets and frames.

// spec: P-2.4, P-2.17
#[test]
fn reserved_and_pad_bytes_are_sent_as_zero_and_ignored() {
    let mut t = Two::up(&quiet());
    t.send(0);
    let sent = t.poll(0);
    assert!(sent.iter().all(|p| p[3] == 0));
    let before = t.ends[1].assocs[0].rx.expected();
    // Sealed with a reserved byte and pads that are not 0.
    let a = &mut t.ends[0].assocs[0];
    let (mut out, number) = (Vec::new(), a.rec.next());
    Header { level: Level::Integrity, ack_now: false, path: 0, number: number as u32, association: a.remote_id }
        .write(&mut out);
    out[3] = 0xff;
    frame::write_credit(&frame::Credit { msgs_limit: 0, bytes_limit: 0 }, &mut out);
    let at = out.len() - 15;
    out[at..at + 3].fill(0xff);
    a.crypt.as_ref().expect("up").keys.send.seal(number, &mut out);
    let (now, events) = (t.now, &mut t.events[1]);
    t.ends[1].handle(now, meta(0), &mut out, events);
    assert_eq!(t.ends[1].assocs[0].rx.expected(), before + 2, "one was sent before and is missing");
}

// spec: P-2.2, P-2.15
#[test]
fn a_packet_may_be_empty_and_has_a_datagram_for_itself() {
    let mut t = Two::up(&quiet());
    let before = t.ends[1].assocs[0].rx.expected();
    t.inject(0, |_| ());
    assert_eq!(t.ends[1].assocs[0].rx.expected(), before + 1);
    assert!(t.ends[1].assocs[0].rx.due_at().is_none(), "nobody waits for it");
    t.send(0);
    let mut two = t.poll(0).concat();
    two.extend_from_slice(&two.clone());
    let (now, events) = (t.now, &mut t.events[1]);
    t.ends[1].handle(now, meta(0), &mut two, events);
    assert_eq!(t.ends[1].assocs[0].rx.expected(), before + 1, "two in one are none");
}

// spec: P-2.6
#[test]
fn no_packet_number_is_used_twice() {
    let mut t = Two::up(&quiet());
    let mut last = [None, None];
    for round in 0..400u64 {
        t.send(0);
        t.now += Duration::from_micros(100);
        for from in [0, 1] {
            for mut p in t.poll(from) {
                let n = number(&p);
                assert!(last[from].is_none_or(|before| n > before), "{n} after {:?}", last[from]);
                last[from] = Some(n);
                // A third is lost: probes and repetitions have numbers of their own.
                if (u64::from(n) + round) % 3 != 0 {
                    let (now, events) = (t.now, &mut t.events[1 - from]);
                    t.ends[1 - from].handle(now, meta(from), &mut p, events);
                }
            }
        }
    }
    assert!(t.ends[0].counters().packets_lost > 20);
}

// spec: P-2.23
#[test]
fn ranges_without_room_are_told_again() {
    let mut r = Received::default();
    for n in 0..20 {
        r.accept(Time(1), (0, false), 2 * n, 0);
    }
    r.acknowledged(0);
    assert_eq!(r.ranges(0).count(), 20);
}

// spec: P-4.2, P-4.4
#[test]
fn an_acknowledgement_goes_with_what_is_sent_anyway() {
    let mut t = Two::up(&quiet());
    t.send(0);
    t.exchange([0, 0]);
    assert!(t.poll(1).is_empty(), "it waits");
    t.send(1);
    let answer = t.poll(1);
    assert_eq!(answer.len(), 1);
    let mut kinds = (false, false);
    frames_of(&answer[0], |f| match f {
        Frame::Ack(_) => kinds.0 = true,
        Frame::Msg(_) => kinds.1 = true,
        _ => {}
    });
    assert_eq!(kinds, (true, true));
}

// spec: P-4.8, P-4.9, P-4.10
#[test]
fn an_acknowledgement_tells_when_it_was_read_and_how_long_that_may_have_waited() {
    let mut r = Received::default();
    r.accept(Time(1_000_000), (0, false), 0, 1500);
    let times = r.times(0, Time(1_018_000));
    assert_eq!((times.delay_ns, times.receiver_delay_us, times.read_us), (18_000, 2, 1000));
    r.accept(Time(2_000_000 + (1 << 32) * 1000), (0, false), 1, u32::MAX);
    let times = r.times(0, Time(2_000_000 + (1 << 32) * 1000));
    assert_eq!((times.delay_ns, times.receiver_delay_us, times.read_us), (0, u16::MAX, 2000));
}

// spec: P-4.11
#[test]
fn round_trips_are_smoothed_as_rfc_9002_has_it() {
    let mut r = Rtt::new(MS);
    r.sample(Time(1), 800_000, 0);
    assert_eq!((r.srtt, r.var), (800_000, 400_000));
    r.sample(Time(2), 1_000_000, 100_000);
    assert_eq!((r.srtt, r.var), ((7 * 800_000 + 900_000) / 8, (3 * 400_000 + 100_000) / 4));
    // A delay that would make it less than the least is not believed.
    r.sample(Time(3), 810_000, 100_000);
    assert_eq!((r.latest, r.base()), (810_000, 800_000));
}

// spec: P-4.15
#[test]
fn a_probe_timeout_has_no_other_minimum() {
    let mut r = Rtt::new(MS);
    for i in 0..100 {
        r.sample(Time(i), 10_000, 0);
    }
    assert_eq!(r.pto(100_000, 50_000), 10_000 + 100_000 + 50_000);
}

/// One message in each of so many packets, the first of which does not arrive; what the sender then
/// counts as lost.
fn lost_after(later: usize) -> (Two, Vec<u8>) {
    let mut t = Two::up(&quiet());
    let mut first = Vec::new();
    for i in 0..=later {
        t.send(0);
        for mut p in t.poll(0) {
            if i == 0 {
                first = p;
            } else {
                let (now, events) = (t.now, &mut t.events[1]);
                t.ends[1].handle(now, meta(0), &mut p, events);
            }
        }
    }
    t.exchange([1, 1]);
    (t, first)
}

// spec: P-4.13, P-4.3
#[test]
fn a_packet_is_lost_when_three_later_ones_arrived_or_it_is_old() {
    assert_eq!(lost_after(2).0.ends[0].counters().packets_lost, 0);
    assert_eq!(lost_after(3).0.ends[0].counters().packets_lost, 1);
    let (mut t, _) = lost_after(1);
    t.poll(0);
    let delay_ns = t.ends[0].assocs[0].paths[0].loss_delay(&quiet());
    let at = t.ends[0].next_timeout().expect("a timer");
    assert!(at <= t.now.plus_ns(delay_ns));
    t.now = t.now.plus_ns(delay_ns);
    t.poll(0);
    assert_eq!(t.ends[0].counters().packets_lost, 1);
}

// spec: P-4.14, P-4.24
#[test]
fn a_loss_that_was_none_raises_the_threshold_and_counts_as_arrived() {
    let (mut t, mut first) = lost_after(3);
    let sent = |t: &Two| t.events[0].iter().filter(|e| matches!(e, Event::Sent { .. })).count();
    assert_eq!(sent(&t), 3);
    let (now, events) = (t.now, &mut t.events[1]);
    t.ends[1].handle(now, meta(0), &mut first, events);
    t.exchange([1, 1]);
    assert_eq!((t.ends[0].counters().losses_spurious, sent(&t)), (1, 4));
    let raised = t.ends[0].assocs[0].paths[0].reorder;
    assert!(raised > quiet().reorder_threshold, "{raised}");
    // It comes down when nothing of the kind happens for long.
    let p = &mut t.ends[0].assocs[0].paths[0];
    for _ in 0..40 {
        p.next_seq += 1025;
        p.decay_reorder(&quiet());
    }
    assert_eq!(p.reorder, quiet().reorder_threshold);
    p.next_seq += 1000;
    p.largest_acked = p.next_seq;
    p.on_spurious(&quiet(), p.next_seq - 900, 100);
    assert_eq!(p.reorder, quiet().reorder_threshold_max);
}

// spec: P-4.7, P-8.8
#[test]
fn a_probe_asks_for_its_acknowledgement_and_a_lone_path_for_nothing_else() {
    let mut t = Two::up(&quiet());
    t.send(0);
    let asks = |p: &Vec<u8>| Header::parse(p).expect("PROTECTED").ack_now;
    assert!(t.poll(0).iter().all(|p| !asks(p)), "lost");
    t.now += Duration::from_millis(20);
    let probes = t.poll(0);
    assert!(!probes.is_empty() && probes.iter().all(asks));
    assert!(probes.iter().all(|p| !has(p, |f| matches!(f, Frame::PathChallenge(_)))));
}

// Flow control.

// spec: P-5.9
#[test]
fn what_the_peers_credit_never_lets_out_ends_the_association() {
    let small = SessionConfig { initial_credit_bytes: 20_000, ..SessionConfig::default() };
    for (len, ends) in [(15_000, false), (15_001, true)] {
        let mut t = Two::new(&quiet());
        t.ends[1] = Endpoint::new(Config { session: small.clone(), ..quiet() }, [7; 32], 101, &[addr(1)], [1; 32]);
        let m = Message { control: false, stream: 0, envelope: b"e", len, patient: false, token: 2 };
        t.ends[0].send(t.now, P, m).expect("its own credit would let it out");
        t.steps(20);
        assert_eq!(t.down(0), ends.then_some(DownReason::NoRoom), "{len}");
        assert_eq!(t.down(1), ends.then_some(DownReason::Closed), "{len}");
    }
}

// spec: P-5.23, P-12.2
#[test]
fn a_grant_that_overtakes_its_request_is_kept() {
    let mut t = Two::up(&quiet());
    for handle in 1..=64 {
        t.inject(1, |out| frame::write_grant(&frame::Grant { handle, limit: 1000 + handle }, out));
    }
    for handle in 1..=64 {
        t.ends[0].send_rndv(t.now, P, handle, 0, 100_000, handle).expect("accepted");
    }
    let mut most = vec![0; 65];
    for p in t.poll(0) {
        frames_of(&p, |f| {
            if let Frame::Rndv(b) = f {
                let end = b.offset + b.payload.len() as u64;
                most[b.handle as usize] = end.max(most[b.handle as usize]);
            }
        });
    }
    // The window has not let out all of them yet.
    assert!(most[1] == 1001 && most[20] == 1020, "{most:?}");
    assert!(most.iter().enumerate().all(|(handle, end)| *end <= 1000 + handle as u64));
}

// spec: P-6.23
#[test]
fn restored_bytes_that_were_never_sent_are_a_violation() {
    for message in [false, true] {
        let mut t = Two::up(&quiet());
        t.ends[0].send_rndv(t.now, P, 7, 100, 1000, 1).expect("accepted");
        let m = Message { control: false, stream: 0, envelope: b"e", len: 500_000, patient: false, token: 2 };
        t.ends[0].send(t.now, P, m).expect("accepted");
        let last = t.ends[0].sessions.get(P).expect("peer").last_message(false).expect("sent");
        let (key, offset) = if message { (DataKey::Message(last), 400_000) } else { (DataKey::Rndv(7), 100) };
        t.poll(0);
        t.inject(1, |out| frame::write_recovered(&frame::Recovered { key, offset, len: 1 }, out));
        assert_eq!(t.down(0), Some(DownReason::Violation), "message: {message}");
    }
}

// Congestion control.

fn acked(now: u64, delay_ns: u64, packets: u32, seq: u32) -> Acked {
    Acked {
        now: Time(now),
        bytes: 1472 * u64::from(packets),
        packets,
        marked: 0,
        whole_rtt_ns: 0,
        rtt_ns: Some(100_000 + delay_ns),
        base_ns: 100_000,
        newest_seq: seq,
        sent_seq: seq,
        sent_at: Time(now - 1),
        oldest_sent_at: Time(now - 1),
        mtu: 1472,
        came: crate::Came::default(),
    }
}

/// A path in use, at its first round of congestion avoidance, with a window of 64 packets.
fn steady() -> Target {
    let mut c = Target::new(&Config { initial_window_packets: 64, ..Config::default() }, 1472);
    // Two rounds that are no faster end slow start.
    let mut now = MS;
    for seq in 1..20 {
        c.on_sent(Time(now), 1472, true, false);
        now += MS;
        c.on_ack(&acked(now, 400_000, 100, seq));
    }
    assert_eq!(c.pacing_quarters(), 5, "slow start is over");
    c
}

/// What rounds of so many packets, so many of them lost, leave of the window.
fn after_rounds(mut c: Target, rounds: u64, packets: u32, lost: u32, delay_ns: u64, limited: bool) -> (u64, u64) {
    let before = c.window();
    for i in 0..rounds {
        let (now, seq) = (100 * MS + i * MS, 100 + i as u32);
        c.on_sent(Time(now), 1472, limited, false);
        if lost > 0 {
            c.on_loss(Time(now), u64::from(lost) * 1472, lost, Time(now));
        }
        c.on_ack(&acked(now + MS, delay_ns, packets - lost, seq));
    }
    (before, c.window())
}

// spec: P-6.5, P-6.7
#[test]
fn little_loss_and_the_loss_of_one_in_few_lower_nothing() {
    // A queue of a little less than the target, so that loss counts at all.
    let delay_ns = 300_000;
    let (before, after) = after_rounds(steady(), 20, 200, 3, delay_ns, true);
    assert!(after >= before, "1.5 %: {after} of {before}");
    let (before, after) = after_rounds(steady(), 20, 200, 6, delay_ns, true);
    assert!(after < before, "3 %: {after} of {before}");
    let (before, after) = after_rounds(steady(), 1, 8, 1, delay_ns, true);
    assert!(after >= before, "one of 8: {after} of {before}");
}

// spec: P-6.16
#[test]
fn a_sender_that_the_application_limits_keeps_its_window() {
    let (before, after) = after_rounds(steady(), 50, 2, 0, 0, false);
    assert_eq!(after, before);
}

// spec: P-6.15
#[test]
fn half_of_the_receivers_buffer_and_what_the_wire_holds_bound_what_is_in_flight() {
    let cfg = Config { initial_window_packets: 4096, ..Config::default() };
    let p = Path::new(&cfg, Time(1), addr(1), None, 1472);
    assert!(p.cc.window() > 1 << 20);
    assert_eq!((p.cc.rate(), p.window(1 << 20)), (0, 1 << 19));
    assert_eq!(p.window(0), 2 * 1200, "two packets, whatever it says");
}

// spec: P-6.17
#[test]
fn the_controller_of_a_path_that_comes_back_begins_anew() {
    let cfg = Config::default();
    let mut p = Path::new(&cfg, Time(1), addr(1), None, 1472);
    let first = p.cc.window();
    p.make_valid(&cfg, Time(2));
    p.cc.on_timeout(Time(3), 2);
    assert!(p.cc.window() < first);
    p.make_suspect(&cfg, Time(4));
    assert_eq!(p.state, PathState::Suspect);
    p.make_valid(&cfg, Time(5));
    assert_eq!(p.cc.window(), first);
}

// spec: P-6.1, P-6.2
#[test]
fn one_packet_of_a_round_trip_steers_and_asks_now_and_then() {
    let mut p = Path::new(&Config::default(), Time(1), addr(1), None, 1472);
    let mut now = 10 * MS;
    let first = p.on_sent(Time(now), 1472, 1 << 20);
    assert!(p.is_rtt_probe(first), "the first after silence");
    let second = p.on_sent(Time(now), 1472, 1 << 20);
    assert!(!p.is_rtt_probe(second) && !p.take_rtt_probe(Time(now), false), "the first is under way");
    p.largest_acked = first;
    assert!(p.take_rtt_probe(Time(now), false), "the next begins");
    let third = p.on_sent(Time(now), 1472, 1 << 20);
    assert!(p.is_rtt_probe(third));
    p.largest_acked = third;
    now += 249_999;
    assert!(!p.take_rtt_probe(Time(now), false), "each costs the receiver a packet");
    assert!(p.take_rtt_probe(Time(now + 1), true), "among others a short train asks too");
    let fourth = p.on_sent(Time(now), 1472, 1 << 20);
    p.largest_acked = fourth;
    (0..4).for_each(|_| p.out_of_flight(1472));
    now += 10 * MS;
    assert!(!p.take_rtt_probe(Time(now), true), "an answer will acknowledge a short train after silence");
    assert!(p.take_rtt_probe(Time(now), false), "a long one is not to wait for its end");
}

// spec: P-9.7
#[test]
fn round_trips_of_a_busy_time_do_not_make_a_doubt_long() {
    let mut t = Two::up(&Config { doubt_interval: Duration::from_millis(20), ..quiet() });
    let rtt = &mut t.ends[0].assocs[0].paths[0].rtt;
    [1, 40, 2, 60].into_iter().for_each(|ms| rtt.sample(Time(1_000_000_000), ms * MS, 0));
    assert!(rtt.pto(0, 0) > 50 * MS);
    let begun = t.now;
    // Its host answers whatever is sent to it.
    while t.ends[0].assocs[0].state == State::Up {
        t.now += Duration::from_millis(1);
        t.ends[0].refused(t.now, addr(1));
        t.poll(0);
        assert!(t.now.since_ns(begun) < 100 * MS, "three questions of 30 ms and two least round trips");
    }
    assert!(t.now.since_ns(begun) > 60 * MS, "three of the least interval");
}

// Paths.

/// What side 0 sends when this frame comes from that address.
pub(crate) fn answer_to(
    t: &mut Two,
    from: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Vec<(core::net::SocketAddr, Vec<u8>)> {
    let a = &mut t.ends[1].assocs[0];
    let (mut out, number) = (Vec::new(), a.rec.next());
    Header { level: a.level(), ack_now: false, path: 0, number: number as u32, association: a.remote_id }
        .write(&mut out);
    write(&mut out);
    a.crypt.as_ref().expect("up").keys.send.seal(number, &mut out);
    a.rec.push(t.now, out.len() as u16, 0, 0, 0, 0);
    let (now, events) = (t.now, &mut t.events[0]);
    t.ends[0].handle(now, RxMeta { remote: addr(from), ..meta(1) }, &mut out, events);
    let mut buf = crate::PacketBuf::new();
    let mut sent = Vec::new();
    while let Some(to) = t.ends[0].poll_transmit(now, &crate::build::NoPayloads, &mut buf) {
        sent.push((to.remote, buf.head.clone()));
    }
    sent
}

// spec: P-8.4
#[test]
fn a_challenge_is_answered_the_way_it_came() {
    let mut t = Two::up(&quiet());
    for from in [1, 5] {
        let sent = answer_to(&mut t, from, |out| frame::write_path_challenge(0x77 + from as u64, out));
        let answers = |p: &[u8]| has(p, |f| matches!(f, Frame::PathResponse(data) if *data == 0x77 + from as u64));
        let to: Vec<_> = sent.iter().filter(|(_, p)| answers(p)).map(|(to, _)| *to).collect();
        assert_eq!(to, [addr(from)]);
    }
    assert_eq!(t.ends[0].assocs[0].paths.len(), 2, "an unknown address is a path from then on");
}

/// Ten milliseconds in which the primary path works. Returns what side 0 sent to the other address,
/// where nobody is.
fn ten_ms(t: &mut Two) -> Vec<Vec<u8>> {
    t.now += Duration::from_millis(10);
    let now = t.now;
    t.send(0);
    if t.ends[0].next_timeout().is_some_and(|at| at <= now) {
        let events = &mut t.events[0];
        t.ends[0].handle_timeout(now, events);
    }
    let (mut buf, mut elsewhere) = (crate::PacketBuf::new(), Vec::new());
    while let Some(to) = t.ends[0].poll_transmit(now, &crate::build::NoPayloads, &mut buf) {
        if to.remote == addr(1) {
            let events = &mut t.events[1];
            t.ends[1].handle(now, meta(0), &mut buf.head.clone(), events);
        } else {
            elsewhere.push(buf.head.clone());
        }
    }
    for mut p in t.poll(1) {
        let events = &mut t.events[0];
        t.ends[0].handle(now, meta(1), &mut p, events);
    }
    t.ends[1].consume(P, 1, 8);
    elsewhere
}

// spec: P-8.3
#[test]
fn an_address_that_has_not_answered_carries_no_data() {
    let mut t = Two::up(&quiet());
    answer_to(&mut t, 5, |out| frame::write_path_challenge(1, out));
    assert_eq!(t.ends[0].assocs[0].paths[1].state, PathState::Unvalidated);
    let mut challenged = 0;
    for _ in 0..100 {
        for p in ten_ms(&mut t) {
            challenged += usize::from(has(&p, |f| matches!(f, Frame::PathChallenge(_))));
            assert!(!has(&p, |f| matches!(f, Frame::Msg(_))));
        }
    }
    assert!(challenged > 3, "{challenged}");
}

// spec: P-8.3
#[test]
fn who_is_asked_by_a_path_asks_at_once_the_same_again() {
    let mut t = Two::up(&quiet());
    answer_to(&mut t, 5, |out| frame::write_path_challenge(1, out));
    let (first, _) = t.ends[0].assocs[0].paths[1].challenge.expect("asked");
    // Nothing answered it, and no 50 ms have passed.
    let sent = answer_to(&mut t, 5, |out| frame::write_path_challenge(2, out));
    assert!(sent.iter().any(|(_, p)| has(p, |f| matches!(f, Frame::PathChallenge(d) if *d == first))));
    answer_to(&mut t, 5, |out| frame::write_path_response(first, out));
    assert_eq!(t.ends[0].assocs[0].paths[1].state, PathState::Valid);
}

// spec: P-8.6
#[test]
fn a_standby_path_is_asked_each_second_and_suspect_after_two_silences() {
    // The acknowledgements of this exchange come so late that fragments would go by the other path.
    let mut t = Two::up(&Config { stripe: false, ..quiet() });
    answer_to(&mut t, 5, |out| frame::write_path_challenge(1, out));
    let a = &mut t.ends[0].assocs[0];
    let (data, _) = a.paths[1].challenge.expect("asked at once");
    answer_to(&mut t, 5, |out| frame::write_path_response(data, out));
    let state = |t: &Two| t.ends[0].assocs[0].paths[1].state;
    assert_eq!(state(&t), PathState::Valid);
    let start = t.now;
    while state(&t) == PathState::Valid {
        ten_ms(&mut t);
        assert!(t.now - start < Duration::from_secs(10), "never");
    }
    let took = t.now - start;
    assert!(took >= Duration::from_secs(3) && took < Duration::from_millis(3100), "{took:?}");
}

// spec: P-8.9
#[test]
fn a_probe_of_the_mtu_that_is_lost_is_no_loss_of_the_path() {
    let mut t = Two::up(&Config { max_datagram: 8972, ..quiet() });
    t.ends[0].assocs[0].paths[0].mtu = crate::mtu::MtuSearch::new(&Config::default(), 8972);
    let mut probes = 0;
    for _ in 0..200 {
        t.now += Duration::from_millis(2);
        t.send(0);
        for mut p in t.poll(0) {
            if p.len() > 1472 {
                probes += 1;
                continue;
            }
            let (now, events) = (t.now, &mut t.events[1]);
            t.ends[1].handle(now, meta(0), &mut p, events);
        }
        t.exchange([1, 1]);
    }
    assert!(probes >= 3, "{probes}");
    assert_eq!(t.ends[0].counters().packets_lost, 0);
    assert_eq!(t.ends[0].assocs[0].paths[0].mtu.size(), 1472);
}

// Bulk TCP connections.

// spec: L-2.4, L-2.6
#[test]
fn a_greeting_with_a_higher_number_takes_the_place_of_what_is_up() {
    let (mut t, former, sides) = with_bulk_and_sides();
    let [connects, accepts] = sides;
    // Of its end the acceptor hears nothing before the next greeting.
    t.ends[connects].bulk_over(t.now, P, former);
    let at = t.now;
    t.now += Duration::from_millis(5);
    let m = Message { control: false, stream: 0, envelope: b"e", len: 100_000, patient: false, token: 1 };
    t.ends[connects].send(t.now, P, m).expect("send");
    let said = t.poll(connects);
    t.ends[connects].take_bulk_news().expect("wanted again");
    let (bulk, greeting) = t.ends[connects].bulk_greeting(P).expect("greeting");
    assert!(bulk > former && t.ends[accepts].bulk_is_up(P, former));
    let (.., answer) = t.ends[accepts].bulk_greeted(t.now, &greeting).expect("good");
    assert!(!t.ends[accepts].bulk_is_up(P, former) && t.ends[accepts].bulk_is_up(P, bulk));
    assert!(t.ends[connects].bulk_answered(t.now, P, bulk, &answer));
    assert!(t.ends[accepts].bulk_greeted(t.now, &greeting).is_none(), "its number is used");
    assert!(!said.is_empty() && at < t.now);
    assert!(greet_again(&mut t, sides).is_none_or(|next| next > bulk));
}

// spec: L-3.6
#[test]
fn a_head_tells_of_credit_as_a_frame_does() {
    let (mut t, bulk) = with_bulk(&quiet());
    let next = t.ends[1].sessions.get(P).expect("peer").announced();
    let before = t.ends[1].credit(P);
    let mut head = part_of_message(next, 10, 10);
    head.credit = frame::Credit { msgs_limit: 50_000, bytes_limit: 1 << 33 };
    assert!(tell(&mut t, bulk, &head));
    let after = t.ends[1].credit(P);
    assert!(after.msgs > before.msgs && after.bytes > 1 << 32, "{before:?} {after:?}");
}

// spec: L-5.11
#[test]
fn a_connection_that_was_asked_for_and_never_came_is_given_up_after_three_seconds() {
    let cfg = Config { bulk: BulkConfig { on: true, min_rate: 0, ..BulkConfig::default() }, ..quiet() };
    let mut t = Two::up(&cfg);
    let m = Message { control: false, stream: 0, envelope: b"e", len: 100_000, patient: false, token: 1 };
    let mut asked = None;
    for _ in 0..100 {
        for side in [0, 1] {
            t.ends[side].send(t.now, P, m).expect("send");
            t.steps(50);
            t.ends[1 - side].consume(P, 1, u64::from(m.len));
            // Whoever is to connect never does.
            asked = asked.or(t.ends[side].take_bulk_news().map(|_| t.now));
        }
        let failed = t.ends[0].counters().bulk.failed + t.ends[1].counters().bulk.failed;
        if let Some(at) = asked
            && failed > 0
        {
            assert!(t.now - at >= Duration::from_secs(3), "after {:?}", t.now - at);
            return;
        }
        t.now += Duration::from_millis(100);
    }
    panic!("never");
}

// spec: L-6.7
#[test]
fn a_record_is_no_longer_than_a_mebibyte() {
    let (mut t, bulk) = with_bulk(&quiet());
    t.ends[0].send_rndv(t.now, PeerId(0), 7, 5 << 20, 5 << 20, 3).expect("accepted");
    let (mut sizes, mut head) = (Vec::new(), Vec::new());
    while let Some(record) = t.ends[0].bulk_next(t.now, P, bulk, &mut head) {
        sizes.push(record.len);
    }
    assert_eq!(sizes, [1 << 20; 5]);
}
