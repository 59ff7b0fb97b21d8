//! Members of the job that break rules: each ends its own association, within bounded memory, and
//! harms nobody else, but that some can slow the rendezvous transfers of others (spec 10). Inside
//! the crate, for no honest endpoint sends such packets.

extern crate std;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use weir_wire::bulk::{RecordHead, RecordKind};
use weir_wire::{Header, frame};

use crate::association::State;
use crate::build::PACKETS_MAX;
use crate::{
    BulkConfig, Config, DataKey, DownReason, Endpoint, Event, Message, PacketBuf, Payloads, PeerId, RxMeta, SendError,
    SessionConfig, Time,
};

pub(crate) const P: PeerId = PeerId(0);

/// The defaults, but for something of sessions.
fn with_session(change: impl FnOnce(&mut weir_session::Config)) -> Config {
    let mut cfg = Config::default();
    change(&mut cfg.session);
    cfg
}

struct Zeros;

impl Payloads for Zeros {
    fn read(&self, _: u64, _: u64, dst: &mut [u8]) {
        dst.fill(0);
    }
}

/// Two endpoints over a perfect wire of no length.
pub(crate) struct Two {
    pub(crate) ends: [Endpoint; 2],
    pub(crate) now: Time,
    pub(crate) events: [Vec<Event>; 2],
}

pub(crate) fn addr(i: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + i as u16))
}

pub(crate) fn meta(from: usize) -> RxMeta {
    RxMeta { remote: addr(from), local: None, receiver_delay_ns: 0, ecn: 0 }
}

impl Two {
    pub(crate) fn new(cfg: &Config) -> Two {
        let end = |i: usize| Endpoint::new(cfg.clone(), [7; 32], 100 + i as u64, &[addr(i)], [i as u8; 32]);
        let mut t = Two { ends: [end(0), end(1)], now: Time(1_000_000), events: [Vec::new(), Vec::new()] };
        let name = t.ends[1].name();
        assert_eq!(t.ends[0].peer(&name), Ok(P));
        t.send(0);
        t
    }

    /// The same, established and quiet.
    pub(crate) fn up(cfg: &Config) -> Two {
        let mut t = Two::new(cfg);
        t.steps(20);
        t.send(1);
        t.steps(20);
        assert!(t.ends.iter().all(|e| e.assocs[0].state == State::Up && e.assocs[0].rec.in_flight_packets == 0));
        t.events = [Vec::new(), Vec::new()];
        t
    }

    pub(crate) fn send(&mut self, from: usize) {
        let m = Message { control: false, stream: 0, envelope: b"e", len: 8, patient: false, token: 1 };
        let _ = self.ends[from].send(self.now, P, m);
    }

    /// Timers and packets of both sides, 100 us later each time.
    pub(crate) fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.now += Duration::from_micros(100);
            self.exchange([0, 1]);
        }
    }

    /// What each side sends now, one after the other, so that the second one's answer takes no
    /// time.
    pub(crate) fn exchange(&mut self, order: [usize; 2]) {
        for from in order {
            for mut p in self.poll(from) {
                self.ends[1 - from].handle(self.now, meta(from), &mut p, &mut self.events[1 - from]);
            }
        }
    }

    /// What one side sends now.
    pub(crate) fn poll(&mut self, from: usize) -> Vec<Vec<u8>> {
        let (mut out, mut packets) = (PacketBuf::new(), Vec::new());
        let end = &mut self.ends[from];
        if end.next_timeout().is_some_and(|t| t <= self.now) {
            end.handle_timeout(self.now, &mut self.events[from]);
        }
        while let Some(t) = end.poll_transmit(self.now, &Zeros, &mut out) {
            let mut p = out.head.clone();
            p.resize(p.len() + t.payload.map_or(0, |r| usize::from(r.len)), 0);
            packets.push(p);
        }
        packets
    }

    /// A packet of these frames from one side to the other.
    pub(crate) fn inject(&mut self, from: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let a = &mut self.ends[from].assocs[0];
        let (mut out, number) = (Vec::new(), a.rec.next());
        Header { level: a.level(), ack_now: true, path: 0, number: number as u32, association: a.remote_id }
            .write(&mut out);
        write(&mut out);
        a.crypt.as_ref().expect("up").keys.send.seal(number, &mut out);
        a.rec.push(self.now, out.len() as u16, 0, 0, 0, 0);
        self.ends[1 - from].handle(self.now, meta(from), &mut out, &mut self.events[1 - from]);
    }

    pub(crate) fn down(&self, side: usize) -> Option<DownReason> {
        match self.ends[side].assocs[0].state {
            State::Down(reason) => Some(reason),
            _ => None,
        }
    }
}

// spec: P-5.21, P-9.2
#[test]
fn a_rendezvous_sent_beyond_its_grant_ends_the_association_and_leaves_no_hole_in_the_budget() {
    let mut t = Two::up(&Config::default());
    let o = t.ends[1].open_rndv(t.now, P, 1 << 20).expect("open");
    assert!(o.granted < 1 << 20);
    t.inject(0, |out| {
        frame::write_rndv_head(o.handle, o.granted - 1, 2, out);
        out.extend([0; 2]);
    });
    assert_eq!(t.down(1), Some(DownReason::Violation));
    assert_eq!(t.ends[1].counters().last_violation, "rendezvous transfer fragment beyond its grant");
    assert_eq!(t.ends[1].sessions.common_mut().grants.outstanding(), 0);
}

// spec: P-4.23
#[test]
fn grants_of_a_rendezvous_that_never_comes_are_repeated_for_ever() {
    let mut t = Two::up(&Config::default());
    assert!(t.ends[1].open_rndv(t.now, P, 1 << 20).is_ok());
    // Long enough for twice as many repeats as a byte counts.
    for _ in 0..4000 {
        t.now += Duration::from_millis(50);
        t.exchange([1, 0]);
    }
    assert_eq!(t.down(1), None);
    assert!(t.ends[1].counters().session.regrants_sent > 512, "{}", t.ends[1].counters().session.regrants_sent);
}

#[test]
fn parity_over_what_was_not_granted_restores_nothing() {
    let mut t = Two::up(&Config::default());
    let o = t.ends[1].open_rndv(t.now, P, 1 << 20).expect("open");
    let head = |base| frame::ParityHead { key: DataKey::Rndv(o.handle), count: 1, row: 0, frag: 1000, base };
    for base in [o.granted, o.granted - 1000] {
        t.inject(0, |out| {
            frame::write_parity_head(&head(base), out);
            out.extend([0; 1000]);
        });
    }
    let bases: Vec<u64> = t.events[1]
        .iter()
        .filter_map(|e| if let Event::Parity { hole, .. } = e { Some(hole.base) } else { None })
        .collect();
    assert_eq!(bases, [o.granted - 1000]);
}

// spec: P-5.22
#[test]
fn rendezvous_in_crumbs_end_the_association() {
    let cfg = with_session(|s| s.grant_budget = 4 << 20);
    let mut t = Two::up(&cfg);
    let o = t.ends[1].open_rndv(t.now, P, 1 << 20).expect("open");
    assert_eq!(o.granted, 1 << 20);
    let mut at = 0;
    while t.down(1).is_none() && at < 1 << 20 {
        t.inject(0, |out| {
            for _ in 0..50 {
                frame::write_rndv_head(o.handle, at, 1, out);
                out.push(0);
                at += 2;
            }
        });
    }
    assert_eq!(t.down(1), Some(DownReason::Violation));
    assert!((2 << 16..(2 << 16) + 200).contains(&at), "{at}");
}

// spec: P-5.22
#[test]
fn rendezvous_acknowledged_in_crumbs_end_the_association() {
    let cfg = with_session(|s| s.grant_budget = 4 << 20);
    let mut t = Two::up(&cfg);
    let o = t.ends[1].open_rndv(t.now, P, 1 << 20).expect("open");
    t.ends[0].send_rndv(t.now, P, o.handle, o.granted, 1 << 20, 5).expect("send");
    // As if all had been sent, and lost.
    assert!(t.ends[0].sessions.get_mut(P).expect("peer").0.took_flow(weir_session::Line::Main, 1 << 20));
    let mut at = 0;
    while t.down(0).is_none() && at < 1 << 20 {
        t.inject(1, |out| {
            for _ in 0..50 {
                frame::write_recovered(&frame::Recovered { key: DataKey::Rndv(o.handle), offset: at, len: 1 }, out);
                at += 2;
            }
        });
    }
    assert_eq!(t.down(0), Some(DownReason::Violation));
    assert_eq!(t.ends[0].counters().last_violation, "recovery of rendezvous transfers in too many pieces");
}

// spec: P-10.5
#[test]
fn a_peer_that_speaks_and_never_acknowledges_is_left_before_memory_is_full() {
    let cfg = Config { sent_packets_max: 1000, ..Config::default() };
    let mut t = Two::up(&cfg);
    t.send(0);
    let (mut pings, mut last) = (0, Vec::new());
    while t.down(0).is_none() && pings < 3000 {
        t.inject(1, frame::write_ping);
        // Acknowledgements, which nobody answers.
        last = t.poll(0);
        pings += 1;
    }
    assert_eq!(t.down(0), Some(DownReason::Unacknowledged));
    assert!((900..=1100).contains(&pings), "{pings}");
    assert!(t.events[0].iter().any(|e| matches!(e, Event::Failed { token: 1, .. })), "{:?}", t.events[0]);
    // It is told.
    for p in &mut last {
        t.ends[1].handle(t.now, meta(0), p, &mut t.events[1]);
    }
    assert_eq!(t.down(1), Some(DownReason::Closed));
}

// spec: P-2.14
#[test]
fn an_association_whose_packet_numbers_are_used_up_ends_and_says_so() {
    let mut t = Two::up(&Config::default());
    t.ends[0].assocs[0].rec.start_at(PACKETS_MAX - 50);
    t.ends[1].assocs[0].rx.start_at(PACKETS_MAX - 50);
    for _ in 0..100 {
        t.send(0);
        t.steps(1);
    }
    assert_eq!((t.down(0), t.down(1)), (Some(DownReason::Exhausted), Some(DownReason::Closed)));
    let count = |side: usize, f: fn(&Event) -> bool| t.events[side].iter().filter(|e| f(e)).count();
    let arrived = count(1, |e| matches!(e, Event::Message { .. }));
    let (sent, failed) =
        (count(0, |e| matches!(e, Event::Sent { .. })), count(0, |e| matches!(e, Event::Failed { .. })));
    assert!(arrived >= 40, "{arrived}");
    assert!(sent >= arrived - 1 && failed <= 2, "{sent} sent, {failed} failed of {arrived}");
    assert!(t.ends[0].assocs[0].rec.next() <= PACKETS_MAX);
}

// spec: P-2.13
#[test]
fn a_packet_number_that_may_not_be_is_refused() {
    let mut t = Two::up(&Config::default());
    t.ends[0].assocs[0].rec.start_at(PACKETS_MAX);
    t.ends[1].assocs[0].rx.start_at(PACKETS_MAX - 1);
    t.inject(0, frame::write_ping);
    assert_eq!(t.ends[1].counters().dropped_malformed, 1);
    assert_eq!(t.ends[1].assocs[0].rx.expected(), PACKETS_MAX - 1);
}

// spec: P-10.2, P-10.3
#[test]
fn a_flood_of_forged_handshake_packets_does_not_stop_an_opening() {
    let cfg = Config { init_rate_per_s: 100, ..Config::default() };
    let mut t = Two::new(&cfg);
    let forged = |kind: u8, len| {
        let mut p = vec![0x77; len];
        p[0] = 0x10 | kind;
        p
    };
    for _ in 0..200 {
        // The opener hears all kinds; the responder, whose INIT has come by then, INITs.
        for (side, kinds) in [(0, 0..7u8), (1, 0..u8::from(t.ends[1].counters().packets_sent > 0))] {
            for kind in kinds {
                for len in [64, 160, 160, 160] {
                    t.ends[side].handle(t.now, meta(5), &mut forged(kind, len), &mut t.events[side]);
                }
            }
        }
        t.steps(1);
    }
    assert!(t.ends.iter().all(|e| e.assocs.len() == 1 && e.assocs[0].state == State::Up), "20 ms");
    assert!(t.ends[0].counters().dropped_rate_limit > 1000);
}

/// Found by fuzzing: a handle for nothing stayed open for good, and the peer's abort of it was told
/// although it had no events.
// spec: P-2.27
#[test]
fn a_rendezvous_of_no_bytes_is_not_opened() {
    let mut t = Two::up(&Config::default());
    assert_eq!(t.ends[1].open_rndv(t.now, P, 0).err(), Some(crate::SendError::TooLong));
    assert_eq!(t.ends[1].sessions.get(PeerId(0)).expect("peer").rndvs_open().1, 0);
}

/// The same with a bulk connection, and the side that has it connected.
pub(crate) fn with_bulk(cfg: &Config) -> (Two, u32) {
    let mut t = Two::up(&Config { bulk: BulkConfig { on: true, min_rate: 0, ..cfg.bulk.clone() }, ..cfg.clone() });
    let m = Message { control: false, stream: 0, envelope: b"e", len: 100_000, patient: false, token: 1 };
    for from in 0..2 {
        t.ends[from].send(t.now, P, m).expect("send");
        t.steps(50);
        if let Some(news) = t.ends[from].take_bulk_news() {
            let (bulk, greeting) = t.ends[from].bulk_greeting(news.peer).expect("greeting");
            let (_, _, answer) = t.ends[1 - from].bulk_greeted(t.now, &greeting).expect("good");
            assert!(t.ends[from].bulk_answered(t.now, P, bulk, &answer));
            t.steps(50);
            return (t, bulk);
        }
    }
    panic!("nobody wants a bulk connection");
}

/// The head of a record from side 0 is read by side 1; false: the association ended.
pub(crate) fn tell(t: &mut Two, bulk: u32, head: &RecordHead) -> bool {
    let mut bytes = Vec::new();
    let keys = &t.ends[0].assocs[0].crypt.as_ref().expect("up").keys;
    head.write(b"", |a, b| keys.send.record_crc(a, b), &mut bytes);
    let (end, events) = (&mut t.ends[1], &mut t.events[1]);
    end.record_tells(t.now, P, bulk, &bytes, events) && end.record_begins(t.now, P, &bytes, events).is_some()
}

pub(crate) fn part_of_message(mseq: u64, total_len: u64, len: u32) -> RecordHead {
    let kind = RecordKind::Message { stream: 0, sseq: 1 + mseq as u32, mseq, total_len };
    let credit = frame::Credit { msgs_limit: 0, bytes_limit: 0 };
    RecordHead { kind, offset: 0, len, credit, read: 0, tell: false }
}

// spec: L-3.4
#[test]
fn who_claims_to_have_read_more_of_a_bulk_connection_than_was_sent_is_found_out() {
    let (mut t, bulk) = with_bulk(&Config::default());
    let next = t.ends[1].sessions.get(PeerId(0)).expect("peer").announced();
    let honest = part_of_message(next, 10, 10);
    assert!(tell(&mut t, bulk, &honest));
    assert!(!tell(&mut t, bulk, &RecordHead { read: 1, ..part_of_message(next + 1, 10, 10) }));
    assert_eq!(t.ends[1].counters().last_violation, "more read of a bulk connection than was sent");

    let (mut t, bulk) = with_bulk(&Config::default());
    assert!(!tell(&mut t, bulk, &part_of_message(next, 10, 0)), "a record of no bytes");
    assert_eq!(t.ends[1].counters().last_violation, "malformed record on a bulk connection");
}

// spec: L-3.5, L-6.4, L-7.2
#[test]
fn records_beyond_credit_or_grant_end_the_association() {
    let cfg = with_session(|s| s.initial_credit_msgs = 64);
    let (mut t, bulk) = with_bulk(&cfg);
    let next = t.ends[1].sessions.get(PeerId(0)).expect("peer").announced();
    let too_long = 2 * cfg.session.initial_credit_bytes + 100_001;
    assert!(!tell(&mut t, bulk, &part_of_message(next, too_long, 10)));
    assert_eq!(t.ends[1].counters().last_violation, "message bytes beyond the credit");

    let (mut t, bulk) = with_bulk(&cfg);
    let taken = (next..next + 1000).take_while(|mseq| tell(&mut t, bulk, &part_of_message(*mseq, 10, 10))).count();
    assert!(taken <= 64, "{taken} messages");
    assert_eq!(t.ends[1].counters().last_violation, "message beyond the credit");

    for beyond in [0, 1] {
        let (mut t, bulk) = with_bulk(&cfg);
        let o = t.ends[1].open_rndv(t.now, P, 1 << 30).expect("open");
        assert!(o.granted < 1 << 30);
        let rndv = RecordHead { kind: RecordKind::Rndv(o.handle), ..part_of_message(0, 0, 10) };
        let taken = tell(&mut t, bulk, &RecordHead { offset: o.granted - 10 + beyond, ..rndv });
        assert_eq!(taken, beyond == 0);
        let why = if beyond == 0 { "" } else { "rendezvous transfer fragment beyond its grant" };
        assert_eq!(t.ends[1].counters().last_violation, why);
    }
}

/// Of a message that comes whole the same rules hold.
// spec: L-3.1, L-3.4, P-5.2, P-2.43
#[test]
fn a_message_in_one_record_is_taken_once_and_within_the_rules() {
    let come = |t: &mut Two, bulk: u32, head: &RecordHead, payload: usize| {
        let mut bytes = Vec::new();
        let keys = &t.ends[0].assocs[0].crypt.as_ref().expect("up").keys;
        head.write(b"abc", |a, b| keys.send.record_crc(a, b), &mut bytes);
        let head_len = bytes.len();
        bytes.resize(head_len + payload, 7);
        let (end, mut events) = (&mut t.ends[1], Vec::new());
        assert!(end.record_tells(t.now, P, bulk, &bytes[..head_len], &mut events) && events.is_empty());
        (end.record_whole(t.now, P, (&bytes, head_len), &mut events), events)
    };
    let (mut t, bulk) = with_bulk(&Config::default());
    let next = t.ends[1].sessions.get(PeerId(0)).expect("peer").announced();
    let before = t.ends[1].counters().bulk.records_received;
    for is_first in [true, false] {
        let (good, events) = come(&mut t, bulk, &part_of_message(next, 10, 10), 10);
        assert!(good);
        let whole = |e: &Event| matches!(e, Event::Message { first: true, complete: true, envelope, payload, .. } if (envelope.len(), payload.len()) == (3, 10));
        assert_eq!((events.len(), events.iter().all(whole)), (usize::from(is_first), true));
    }
    let c = t.ends[1].counters();
    assert_eq!((c.bulk.records_received, c.violations), (before + 2, 0));
    let too_high = RecordKind::Message { stream: 64, sseq: 1 + next as u32, mseq: next, total_len: 10 };
    for (head, payload, why) in [
        (part_of_message(1 << 40, 10, 10), 10, "message beyond the credit"),
        (RecordHead { kind: too_high, ..part_of_message(next, 10, 10) }, 10, "stream number too high"),
        (part_of_message(next, 10, 10), 9, "malformed record on a bulk connection"),
        (part_of_message(next, 11, 10), 10, "malformed record on a bulk connection"),
    ] {
        let (mut t, bulk) = with_bulk(&Config::default());
        let (good, events) = come(&mut t, bulk, &head, payload);
        assert!(!good && !events.iter().any(|e| matches!(e, Event::Message { .. })), "{why}");
        assert_eq!(t.ends[1].counters().last_violation, why);
    }
}

/// A send is over when the peer has read all of it, not when it has begun to.
// spec: L-3.1, L-4.1
#[test]
fn a_record_is_told_when_its_last_byte_is_read() {
    let (mut t, bulk) = with_bulk(&Config::default());
    let m = Message { control: false, stream: 0, envelope: b"", len: 50_000, patient: false, token: 77 };
    t.ends[0].send(t.now, P, m).expect("send");
    let mut head = Vec::new();
    t.ends[0].bulk_next(t.now, P, bulk, &mut head).expect("record");
    assert!(t.ends[1].record_tells(t.now, P, bulk, &head, &mut Vec::new()));
    let record = t.ends[1].record_begins(t.now, P, &head, &mut Vec::new()).expect("good");
    let sent = |t: &Two| t.events[0].contains(&Event::Sent { peer: P, token: 77 });
    t.steps(20);
    assert!(!sent(&t));
    t.ends[1].record_ends(t.now, P, bulk, &record, &mut Vec::new());
    t.steps(20);
    assert!(sent(&t));
}

/// What is granted beyond the budget because there is a bulk connection is granted no more when
/// there is none.
#[test]
fn without_its_bulk_connection_a_rendezvous_gets_what_all_get() {
    let cfg = Config::default();
    let granted = |over: bool| {
        let (mut t, bulk) = with_bulk(&cfg);
        let o = t.ends[1].open_rndv(t.now, P, 1 << 30).expect("open");
        if over {
            t.ends[1].bulk_over(t.now, P, bulk);
        }
        // All of it comes, and no more than was granted before is outstanding.
        let id = t.ends[1].assocs[0].id;
        t.ends[1].sessions.common_mut().grants.arrived(t.now, id, o.granted);
        let mut sum = 0;
        let mut last = o.granted;
        while let Some((_, _, limit)) = t.ends[1].sessions.common_mut().grants.next(t.now) {
            sum += limit - last;
            last = limit;
        }
        sum
    };
    assert!(granted(false) >= cfg.session.grant_bulk_extra);
    assert!(granted(true) < cfg.session.grant_bulk_extra / 2, "{}", granted(true));
}

/// A packet of its own is for those who wait: not for a send that was copied, nor while more is in
/// line.
// spec: L-3.7
#[test]
fn a_record_asks_to_be_told_if_somebody_waits_and_nothing_follows() {
    let (mut t, bulk) = with_bulk(&Config::default());
    let mut asks = |sends: &[bool]| {
        for patient in sends {
            let m = Message { control: false, stream: 0, envelope: b"", len: 50_000, patient: *patient, token: 9 };
            t.ends[0].send(t.now, P, m).expect("send");
        }
        let mut told = Vec::new();
        let mut head = Vec::new();
        while t.ends[0].bulk_next(t.now, P, bulk, &mut head).is_some() {
            let keys = &t.ends[0].assocs[0].crypt.as_ref().expect("up").keys;
            told.push(RecordHead::read(&head, |a, b| keys.send.record_crc(a, b)).expect("good").tell);
            head.clear();
        }
        told
    };
    assert_eq!(asks(&[true]), [false]);
    assert_eq!(asks(&[false]), [true]);
    assert_eq!(asks(&[false, false, false]), [false, false, true]);
    // The last one says it for who waits for one before it.
    assert_eq!(asks(&[false, true]), [false, true]);
    assert_eq!(asks(&[true, false, true, true]), [false, false, false, true]);
    assert_eq!(asks(&[true]), [false]);
}

// spec: L-3.7
#[test]
fn a_record_asks_to_be_told_though_something_stands_behind_it_that_is_over() {
    let (mut t, bulk) = with_bulk(&Config::default());
    let m = Message { control: false, stream: 0, envelope: b"", len: 50_000, patient: false, token: 9 };
    t.ends[0].send(t.now, P, m).expect("send");
    t.ends[0].send_rndv(t.now, P, 77, 100_000, 100_000, 10).expect("rndv");
    assert_eq!(t.ends[0].abort_rndv(t.now, P, 77, 0), Some(10));
    let mut head = Vec::new();
    assert!(t.ends[0].bulk_next(t.now, P, bulk, &mut head).is_some());
    let keys = &t.ends[0].assocs[0].crypt.as_ref().expect("up").keys;
    assert!(RecordHead::read(&head, |a, b| keys.send.record_crc(a, b)).expect("good").tell);
    assert!(t.ends[0].bulk_next(t.now, P, bulk, &mut head).is_none());
}

/// With a bulk connection a peer is let in once more, so that messages longer than half of its
/// initial credit need not be asked for; and told of more when a quarter of all that is consumed.
// spec: L-6.8, L-6.9, P-5.6, P-5.7
#[test]
fn a_peer_with_a_bulk_connection_is_let_in_once_more() {
    let credit = SessionConfig::default().initial_credit_bytes;
    let long = u32::try_from(credit / 4 * 3).expect("short");
    let m = Message { control: false, stream: 0, envelope: b"", len: long, patient: false, token: 77 };
    let mut without = Two::up(&Config::default());
    assert_eq!(without.ends[0].send(without.now, P, m), Err(SendError::TooLong));
    let (mut t, bulk) = with_bulk(&Config::default());
    // Of the two messages before.
    let taken = 100_008;
    let left = |t: &Two| t.ends[0].sessions.get(P).expect("peer").credit().bytes;
    assert_eq!(left(&t), 2 * credit - taken);
    assert_eq!(t.ends[0].send(t.now, P, m), Ok(()));
    let mut head = Vec::new();
    let record = t.ends[0].bulk_next(t.now, P, bulk, &mut head).expect("record");
    assert_eq!((record.token, record.len), (77, long), "with its bytes, unasked");
    assert_eq!(left(&t), 2 * credit - taken - u64::from(long));
    let record = t.ends[1].record_begins(t.now, P, &head, &mut Vec::new()).expect("within the credit");
    t.ends[1].record_ends(t.now, P, bulk, &record, &mut Vec::new());
    t.ends[1].consume(P, 3, taken + u64::from(long));
    t.steps(50);
    assert_eq!(left(&t), 2 * credit, "all of it again");
    // Without the connection it would go in packets.
    t.ends[0].bulk_over(t.now, P, bulk);
    assert_eq!(left(&t), 2 * credit, "it keeps it");
    assert_eq!(t.ends[0].send(t.now, P, m), Err(SendError::TooLong));
}

/// The program frees what records brought before anything else happens: the peer hears of it after
/// the usual wait, not at once; and while it has half of its credit left, after a longer one.
// spec: L-6.5
#[test]
fn a_record_sets_the_clock() {
    let (mut t, bulk) = with_bulk(&with_session(|s| s.initial_credit_bytes = 400_000));
    let len = 200_000;
    let later = t.now.plus_ns(5_000_000);
    let mut record = |before: Option<u64>| {
        let m = Message { control: false, stream: 0, envelope: b"", len, patient: false, token: 77 };
        t.ends[0].send(t.now, P, m).expect("send");
        let mut head = Vec::new();
        t.ends[0].bulk_next(t.now, P, bulk, &mut head).expect("record");
        let record = t.ends[1].record_begins(later, P, &head, &mut Vec::new()).expect("good");
        t.ends[1].record_ends(later, P, bulk, &record, &mut Vec::new());
        let deadline = |t: &Two| t.ends[1].sessions.get(P).expect("peer").deadline().map(|at| at.since_ns(later));
        assert_eq!(deadline(&t), before);
        t.ends[1].consume(P, 1, u64::from(len));
        deadline(&t)
    };
    assert_eq!(record(None), Some(250_000));
    assert_eq!(record(Some(250_000)), Some(50_000), "less than half is left");
    // What the program sends in packets takes it along.
    t.now = later;
    t.send(1);
    t.exchange([1, 0]);
    assert_eq!(t.ends[1].sessions.get(P).expect("peer").deadline(), None);
}

/// With a bulk connection, the side that connected it first.
pub(crate) fn with_bulk_and_sides() -> (Two, u32, [usize; 2]) {
    let (t, bulk) = with_bulk(&Config {
        bulk: BulkConfig { pause: Duration::from_millis(1), ..BulkConfig::default() },
        ..Config::default()
    });
    let connects = usize::from(t.ends[1].assocs[0].peer.connects);
    (t, bulk, [connects, 1 - connects])
}

fn say_over(t: &mut Two, from: usize, bulk: u32, read: u64) {
    t.inject(from, |out| frame::write_bulk(&frame::Bulk { bulk, read, over: true }, out));
}

/// A record of a send of this side, handed to the bulk connection.
fn hand_out(t: &mut Two, side: usize, bulk: u32) -> Vec<u8> {
    let m = Message { control: false, stream: 0, envelope: b"", len: 50_000, patient: false, token: 77 };
    t.ends[side].send(t.now, P, m).expect("send");
    let mut head = Vec::new();
    t.ends[side].bulk_next(t.now, P, bulk, &mut head).expect("record");
    head
}

/// The next bulk connection, if it is to be had.
pub(crate) fn greet_again(t: &mut Two, [connects, accepts]: [usize; 2]) -> Option<u32> {
    t.steps(50);
    t.send(connects);
    let m = Message { control: false, stream: 0, envelope: b"e", len: 100_000, patient: false, token: 1 };
    t.ends[connects].send(t.now, P, m).expect("send");
    t.ends[connects].take_bulk_news()?;
    let (bulk, greeting) = t.ends[connects].bulk_greeting(P).expect("greeting");
    let Some((.., answer)) = t.ends[accepts].bulk_greeted(t.now, &greeting) else {
        t.ends[connects].bulk_over(t.now, P, bulk);
        return None;
    };
    assert!(t.ends[connects].bulk_answered(t.now, P, bulk, &answer));
    Some(bulk)
}

// spec: L-5.1, L-5.3, L-5.6, L-4.5
#[test]
fn a_bulk_connection_that_the_peer_says_is_over_is_given_up_at_once_and_what_was_not_read_goes_by_packets() {
    for (side, whole) in [(0, false), (1, false), (0, true), (1, true)] {
        let (mut t, bulk, _) = with_bulk_and_sides();
        let head = hand_out(&mut t, side, bulk);
        let size = head.len() as u64 + 50_000;
        let (sent, before) = (t.ends[side].counters().bytes_sent, t.now);
        say_over(&mut t, 1 - side, bulk, if whole { size } else { 0 });
        assert!(!t.ends[side].bulk_is_up(P, bulk));
        assert_eq!(t.ends[side].counters().bulk.failed, 1);
        let done = |t: &Two| t.events[side].contains(&Event::Sent { peer: P, token: 77 });
        assert_eq!(done(&t), whole);
        // It says so itself.
        t.steps(3);
        assert!(!t.ends[1 - side].bulk_is_up(P, bulk));
        t.steps(200);
        assert!(done(&t), "{} ns later", t.now.since_ns(before));
        let by_packets = t.ends[side].counters().bytes_sent - sent;
        assert!(if whole { by_packets < 1000 } else { by_packets > 50_000 }, "{by_packets} bytes");
        assert_eq!((t.down(0), t.down(1)), (None, None));
        assert_eq!(t.ends[1 - side].counters().bulk.failed, 1, "each counts it once");
    }
}

// spec: L-5.6
#[test]
fn who_says_over_what_it_cannot_know_is_found_out() {
    for side in 0..2 {
        let (mut t, bulk, [connects, _]) = with_bulk_and_sides();
        let size = hand_out(&mut t, side, bulk).len() as u64 + 50_000;
        say_over(&mut t, 1 - side, bulk, size + 1);
        assert_eq!(t.ends[side].counters().last_violation, "more read of a bulk connection than was sent");

        let (mut t, bulk, _) = with_bulk_and_sides();
        say_over(&mut t, 1 - side, bulk + 1, 1);
        assert_eq!(t.ends[side].counters().last_violation, "more read of a bulk connection than was sent");

        let (mut t, _, [was, accepts]) = with_bulk_and_sides();
        assert_eq!(connects, was);
        say_over(&mut t, 1 - side, u32::MAX, 0);
        if side == connects {
            assert_eq!(t.ends[side].counters().last_violation, "over is a bulk connection that never was");
        } else {
            // It has no bulk connection any more, and never gets another: its own affair.
            assert_eq!(t.down(side), None);
            assert!(!t.ends[side].has_bulk(P));
            t.steps(50);
            assert!((0..5).all(|_| greet_again(&mut t, [connects, accepts]).is_none()));
        }
    }
}

// spec: L-5.6, L-4.2
#[test]
fn what_is_said_late_or_again_of_a_former_bulk_connection_does_nothing_to_the_next() {
    for side in 0..2 {
        let (mut t, former, sides) = with_bulk_and_sides();
        t.ends[side].bulk_over(t.now, P, former);
        let bulk = greet_again(&mut t, sides).expect("another");
        assert!(bulk > former);
        for from in [0, 1, 0, 1] {
            say_over(&mut t, from, former, 0);
            t.steps(5);
        }
        assert!(t.ends.iter().all(|e| e.bulk_is_up(P, bulk) && e.counters().bulk.failed == 1));
    }
}

// spec: L-5.6
#[test]
fn both_may_give_a_bulk_connection_up_at_once() {
    let (mut t, bulk, sides) = with_bulk_and_sides();
    for side in 0..2 {
        hand_out(&mut t, side, bulk);
        t.ends[side].bulk_over(t.now, P, bulk);
    }
    t.steps(200);
    assert!((0..2).all(|i| t.events[i].contains(&Event::Sent { peer: P, token: 77 })));
    assert!(t.ends.iter().all(|e| e.counters().bulk.failed == 1 && e.counters().violations == 0));
    assert!(greet_again(&mut t, sides).is_some());
}

// spec: L-5.7, L-5.4
#[test]
fn of_a_bulk_connection_that_is_over_nothing_more_is_read() {
    let (mut t, bulk, _) = with_bulk_and_sides();
    let first = hand_out(&mut t, 0, bulk);
    assert!(t.ends[1].record_tells(t.now, P, bulk, &first, &mut Vec::new()));
    let record = t.ends[1].record_begins(t.now, P, &first, &mut Vec::new()).expect("good");
    let second = hand_out(&mut t, 0, bulk);
    say_over(&mut t, 0, bulk, 0);
    // The bytes of both records were still in the connection.
    let mut events = Vec::new();
    t.ends[1].record_ends(t.now, P, bulk, &record, &mut events);
    assert!(!t.ends[1].record_tells(t.now, P, bulk, &second, &mut events));
    assert!(events.is_empty() && t.ends[1].counters().bulk.records_received == 0);
    assert_eq!(t.down(1), None);
}

// spec: L-5.7
#[test]
fn over_may_overtake_the_greeting_or_its_answer() {
    // The greeting: it is refused when it comes.
    let (mut t, bulk, [connects, accepts]) = with_bulk_and_sides();
    t.ends[connects].bulk_over(t.now, P, bulk);
    t.steps(50);
    let m = Message { control: false, stream: 0, envelope: b"e", len: 100_000, patient: false, token: 1 };
    let ask = |t: &mut Two| {
        t.ends[connects].send(t.now, P, m).expect("send");
        t.ends[connects].take_bulk_news().expect("wanted");
        t.ends[connects].bulk_greeting(P).expect("greeting")
    };
    let (next, greeting) = ask(&mut t);
    t.ends[connects].bulk_over(t.now, P, next);
    t.steps(50);
    assert!(t.ends[accepts].bulk_greeted(t.now, &greeting).is_none());
    // The answer: so is it, although another bulk connection has been asked for meanwhile.
    let (next, greeting) = ask(&mut t);
    let (.., answer) = t.ends[accepts].bulk_greeted(t.now, &greeting).expect("good");
    t.ends[accepts].bulk_over(t.now, P, next);
    t.steps(50);
    t.ends[connects].send(t.now, P, m).expect("send");
    assert!(t.ends[connects].take_bulk_news().is_some());
    assert!(!t.ends[connects].bulk_answered(t.now, P, next, &answer));
    assert!(t.ends.iter().all(|e| !e.has_bulk(P) && e.counters().violations == 0));
}

/// A receiver (0), an honest sender (1) and another member of the job (2), over cables of 1 Gbit/s
/// into the receiver.
struct Three {
    ends: Vec<Endpoint>,
    now: Time,
    way_ns: u64,
    flying: Vec<(Time, usize, usize, Vec<u8>)>,
    free: Time,
    events: Vec<Event>,
}

/// What the other member does.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Other {
    Nothing,
    /// Skips packet numbers, in 5 packets a millisecond, with one rendezvous transfer open.
    Skips,
    /// Sends what 16 rendezvous transfers were granted as slowly as it takes not to be silent.
    Trickles,
}

impl Three {
    fn up(way_ns: u64) -> Three {
        let end = |i: usize| Endpoint::new(Config::default(), [7; 32], 100 + i as u64, &[addr(i)], [i as u8; 32]);
        let ends: Vec<Endpoint> = (0..3).map(end).collect();
        let now = Time(1_000_000);
        let mut t = Three { ends, now, way_ns, flying: Vec::new(), free: now, events: Vec::new() };
        let name = t.ends[0].name();
        for from in [1, 2] {
            assert_eq!(t.ends[from].peer(&name), Ok(P));
            let m = Message { control: false, stream: 0, envelope: b"e", len: 8, patient: false, token: 1 };
            t.ends[from].send(t.now, P, m).expect("send");
            t.until(20 * way_ns + 10_000_000, |_| false);
        }
        assert!(t.ends[0].assocs.iter().all(|a| a.state == State::Up) && t.ends[0].assocs.len() == 2);
        t
    }

    /// Sends what an end has, at most so many packets.
    fn poll(&mut self, from: usize, most: usize) {
        let mut out = PacketBuf::new();
        let mut ignored = Vec::new();
        let events = if from == 0 { &mut self.events } else { &mut ignored };
        if self.ends[from].next_timeout().is_some_and(|t| t <= self.now) {
            self.ends[from].handle_timeout(self.now, events);
        }
        for _ in 0..most {
            let Some(t) = self.ends[from].poll_transmit(self.now, &Zeros, &mut out) else { break };
            let mut p = out.head.clone();
            p.resize(p.len() + t.payload.map_or(0, |r| usize::from(r.len)), 0);
            let mut at = self.now.plus_ns(self.way_ns);
            if from != 0 {
                self.free = self.free.max(self.now).plus_ns(8 * (p.len() as u64 + 66));
                at = self.free.plus_ns(self.way_ns);
            }
            let to = usize::from(t.remote.port() - 7000);
            self.flying.push((at, from, to, p));
        }
    }

    /// A PING that says 100 packets are missing before it.
    fn skip(&mut self) {
        let a = &mut self.ends[2].assocs[0];
        let number = a.rec.next() + 100;
        a.rec.start_at(number);
        let mut out = Vec::new();
        Header { level: a.level(), ack_now: false, path: 0, number: number as u32, association: a.remote_id }
            .write(&mut out);
        frame::write_ping(&mut out);
        a.crypt.as_ref().expect("up").keys.send.seal(number, &mut out);
        a.rec.push(self.now, out.len() as u16, 0, 0, 0, 0);
        self.flying.push((self.now.plus_ns(self.way_ns), 2, 0, out));
    }

    /// One step of 20 us, with the other member's packets bounded to so many.
    fn step(&mut self, others: usize) {
        self.now += Duration::from_micros(20);
        let now = self.now;
        let (due, flying) = core::mem::take(&mut self.flying).into_iter().partition(|f| f.0 <= now);
        self.flying = flying;
        for (_, from, to, mut p) in due {
            let mut ignored = Vec::new();
            let events = if to == 0 { &mut self.events } else { &mut ignored };
            self.ends[to].handle(now, meta(from), &mut p, events);
        }
        for (from, most) in [(0, usize::MAX), (1, usize::MAX), (2, others)] {
            self.poll(from, most);
        }
    }

    fn until(&mut self, limit_ns: u64, mut done: impl FnMut(&Three) -> bool) -> bool {
        let end = self.now.plus_ns(limit_ns);
        while self.now < end && !done(self) {
            self.step(usize::MAX);
        }
        done(self)
    }

    /// How long a rendezvous transfer of the honest sender takes beside the other, and the longest
    /// time without a byte of it, nanoseconds.
    fn takes_ns(&mut self, len: u64, other: Other) -> (u64, u64) {
        let rndvs = match other {
            Other::Nothing => 0,
            Other::Skips => 1,
            Other::Trickles => 16,
        };
        for _ in 0..rndvs {
            let o = self.ends[0].open_rndv(self.now, PeerId(1), 4 << 20).expect("open");
            self.ends[2].send_rndv(self.now, P, o.handle, o.granted, 4 << 20, 6).expect("rndv");
        }
        let (mut start, mut last, mut gap_ns, mut handle) = (self.now, self.now, 0, None);
        for tick in 0..5_000_000 {
            if tick == 5000 {
                // The other has been at it for 100 ms.
                let o = self.ends[0].open_rndv(self.now, PeerId(0), len).expect("open");
                self.ends[1].send_rndv(self.now, P, o.handle, o.granted, len, 5).expect("rndv");
                (start, last, handle) = (self.now, self.now, Some(o.handle));
            }
            if other == Other::Skips && tick % 10 == 0 {
                self.skip();
            }
            // 13 packets in 7 ms are a step, and often enough.
            self.step(usize::from(other == Other::Trickles && tick % 350 < 13));
            for e in self.events.drain(..) {
                let Event::Rndv { handle: h, complete, .. } = e else { continue };
                if Some(h) == handle {
                    gap_ns = gap_ns.max(self.now.since_ns(core::mem::replace(&mut last, self.now)));
                    if complete {
                        return (self.now.since_ns(start), gap_ns);
                    }
                }
            }
        }
        panic!("no end after {} ms", self.now.since_ns(start) / 1_000_000);
    }
}

/// The budget of grants is one for all, so a member can hold most of it: SECURITY.md and spec 10
/// say how slow the rendezvous transfers of others get by that, and that they go on. Loss that it
/// only claims makes the budget no smaller.
// spec: P-10.6, P-10.7
#[test]
fn a_member_that_skips_numbers_slows_nobody_and_one_that_trickles_stops_nobody() {
    const LEN: u64 = 4 << 20;
    const MS: u64 = 1_000_000;
    let cfg = Config::default();
    let (patience_ns, step) = (cfg.session.grant_patience.as_nanos() as u64, cfg.session.grant_step);
    for way_ns in [MS / 100, MS / 2, 5 * MS] {
        let alone = Three::up(way_ns).takes_ns(LEN, Other::Nothing).0;
        let (beside, _) = Three::up(way_ns).takes_ns(LEN, Other::Skips);
        assert!(beside * 10 <= alone * 11, "{beside} ns beside one that skips numbers, {alone} ns alone");
        let (took, gap) = Three::up(way_ns).takes_ns(LEN, Other::Trickles);
        std::println!(
            "{way_ns} ns: {took} ns, {beside} beside one that skips, {alone} alone, at most {gap} without a byte"
        );
        // At worst a step in each time of patience; a grant takes a round trip to have its effect,
        // and the timers a little.
        assert!(took <= LEN / step * (patience_ns + MS / 10) + alone, "{took} ns");
        assert!(gap <= patience_ns + 2 * way_ns + MS, "{gap} ns without a byte");
        // Should this fail because they are slowed less, say so there.
        assert!(took > 5 * alone, "{took} ns, {alone} ns alone");
    }
}
