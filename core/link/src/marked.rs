//! Tests of marks (ECN) between two endpoints: who is told, how often, and what a peer that lies or
//! knows nothing of it gets (spec 6.7).

use alloc::vec::Vec;

use weir_wire::frame::{self, Frame, Frames, Marked};

use crate::congestion::{Acked, Congestion, Reno, Target};
use crate::hostile::{Two, meta};
use crate::{Config, Level, RxMeta, Time};

fn with_ecn() -> Config {
    Config { ecn: true, mtu_probing: false, ..Config::default() }
}

/// One of each end's settings.
fn up(ecn: [bool; 2]) -> Two {
    let mut t = Two::new(&with_ecn());
    for (end, ecn) in t.ends.iter_mut().zip(ecn) {
        end.cfg.ecn = ecn;
    }
    for _ in 0..2 {
        t.send(1);
        t.steps(20);
    }
    assert!((0..2).all(|side| t.down(side).is_none() && t.ends[side].assocs[0].rec.in_flight_packets == 0));
    t
}

/// What is told of marks in these packets.
fn told(packets: &[Vec<u8>]) -> Vec<Marked> {
    let mut all = Vec::new();
    for p in packets {
        for f in &Frames::parse(p, Level::Integrity.frames_offset()..p.len()).expect("well-formed") {
            if let Frame::Marked(m) = f {
                all.push(m);
            }
        }
    }
    all
}

/// Side 0 sends a message that comes marked; what side 1 answers, which side 0 gets too.
fn marked_message(t: &mut Two) -> Vec<Vec<u8>> {
    t.send(0);
    for mut p in t.poll(0) {
        let meta = RxMeta { ecn: crate::marks::CE, ..meta(0) };
        t.ends[1].handle(t.now, meta, &mut p, &mut t.events[1]);
    }
    t.now = t.now.plus_ns(1_000_000);
    let answers = t.poll(1);
    for mut p in answers.clone() {
        t.ends[0].handle(t.now, meta(1), &mut p, &mut t.events[0]);
    }
    answers
}

// spec: P-6.25, P-6.26
#[test]
fn marks_are_told_with_acknowledgements_and_counted_at_both_ends() {
    let mut t = up([true, true]);
    let before = t.ends[1].counters().marks_received;
    assert_eq!(told(&marked_message(&mut t)), [Marked { path: 0, count: 1 }]);
    assert_eq!(told(&marked_message(&mut t)), [Marked { path: 0, count: 2 }]);
    assert_eq!((t.ends[1].counters().marks_received - before, t.ends[0].counters().marks_told), (2, 2));
    // What comes unmarked is acknowledged as ever, with what is still to be told.
    let mut more = 0;
    for _ in 0..8 {
        t.send(0);
        for mut p in t.poll(0) {
            t.ends[1].handle(t.now, meta(0), &mut p, &mut t.events[1]);
        }
        t.now = t.now.plus_ns(1_000_000);
        let answers = t.poll(1);
        more += told(&answers).len();
        for mut p in answers {
            t.ends[0].handle(t.now, meta(1), &mut p, &mut t.events[0]);
        }
    }
    assert_eq!((more, t.ends[0].counters().marks_told), (3, 2));
}

// spec: P-6.25
#[test]
fn marked_acknowledgements_are_not_told_for_no_window_counts_them() {
    let mut t = up([true, true]);
    t.inject(1, frame::write_ping);
    let mut answers = t.poll(0);
    assert_eq!(answers.len(), 1, "an acknowledgement alone");
    let before = t.ends[1].counters().marks_received;
    let meta = RxMeta { ecn: crate::marks::CE, ..meta(0) };
    t.ends[1].handle(t.now, meta, &mut answers[0], &mut t.events[1]);
    assert_eq!((t.ends[1].counters().marks_received - before, t.ends[1].assocs[0].marks_in.room()), (1, 0));
}

// spec: P-6.25, P-6.32
#[test]
fn who_did_not_ask_is_not_told() {
    let mut t = up([false, true]);
    assert!(told(&marked_message(&mut t)).is_empty());
    // And who is told without having asked does not care.
    t.inject(1, |out| frame::write_marked(&Marked { path: 0, count: 1 }, out));
    assert_eq!((t.down(0), t.ends[0].counters().marks_told, t.ends[0].counters().marks_refused), (None, 0, 0));
}

// spec: P-6.27
#[test]
fn what_a_peer_claims_of_marks_that_cannot_be_is_refused_and_nothing_else_happens() {
    let mut t = up([true, true]);
    let window = t.ends[0].peer_stats(crate::PeerId(0)).paths[0].window_bytes;
    let mut tell = |path, count| {
        t.inject(1, |out| frame::write_marked(&Marked { path, count }, out));
        assert_eq!(t.down(0), None);
        let c = t.ends[0].counters();
        (c.marks_told, c.marks_refused)
    };
    assert_eq!(tell(0, 1), (1, 0));
    assert_eq!(tell(0, 0), (1, 0), "one that goes back was overtaken");
    assert_eq!(tell(7, 5), (1, 0), "no such path");
    assert_eq!(tell(0, 1_000_000), (1, 1));
    assert_eq!(tell(0, 2), (1, 1), "and is believed no more");
    t.send(0);
    t.steps(20);
    assert_eq!(t.ends[0].counters().violations, 0);
    assert!(t.ends[0].peer_stats(crate::PeerId(0)).paths[0].window_bytes >= window / 2);
}

/// One round of a window that was full: one packet acknowledged, marked or not.
fn round(c: &mut impl Congestion, seq: u32, marked: u32) -> u64 {
    c.on_sent(Time(u64::from(seq) * 1_000_000), 1472, true, false);
    c.on_ack(&Acked { marked, ..acked(seq) });
    c.window()
}

/// The acknowledgement of one packet, sent in its own millisecond.
fn acked(seq: u32) -> Acked {
    let at = Time(u64::from(seq) * 1_000_000);
    Acked {
        now: at.plus_ns(30_000),
        bytes: 1472,
        packets: 1,
        marked: 0,
        whole_rtt_ns: 0,
        rtt_ns: Some(30_000),
        base_ns: 30_000,
        newest_seq: seq,
        sent_seq: seq,
        sent_at: at,
        oldest_sent_at: at,
        mtu: 1472,
        came: crate::Came::default(),
    }
}

// spec: P-6.28
#[test]
fn marks_end_slow_start_and_lower_the_window_and_without_them_it_grows() {
    let mut c = Target::new(&with_ecn(), 1472);
    let grown = round(&mut c, 1, 0);
    assert_eq!(grown, 33 * 1472);
    let halved = round(&mut c, 2, 1);
    assert!(halved <= grown * 3 / 5, "{halved}");
    assert!((3..20).all(|seq| round(&mut c, seq, 1) <= halved));
    assert_eq!(round(&mut c, 20, 1), 2 * 1472, "never below two packets");
    assert_eq!(c.marked_rounds(), 19);
    let before = round(&mut c, 21, 0);
    assert!(round(&mut c, 22, 0) > before);
    let mut deaf = Config { ecn: true, ..Config::default() };
    deaf.mechanisms.marked_windows = false;
    let mut c = Target::new(&deaf, 1472);
    assert!(round(&mut c, 1, 0) < round(&mut c, 2, 1));
}

// spec: P-6.33
#[test]
fn who_says_that_it_is_ecn_capable_heeds_marks_whatever_its_congestion_control() {
    let mut c = Reno::new(&with_ecn(), 1472);
    let grown = round(&mut c, 1, 0);
    assert_eq!((round(&mut c, 2, 1), c.marked_rounds()), (grown / 2, 1));
    // What was sent before that says no more.
    c.on_ack(&Acked { sent_at: Time(2_000_000), marked: 1, ..acked(3) });
    assert_eq!((c.window(), c.marked_rounds()), (grown / 2, 1));
}

// spec: P-6.31
#[test]
fn beside_data_it_takes_the_place_of_ranges() {
    let mut t = up([true, true]);
    t.inject(0, frame::write_ping);
    let with = |t: &mut Two, ecn| {
        let mut out = Vec::new();
        let (mut ev, now) = (Vec::new(), t.now);
        // Many gaps, so that the ranges fill their room.
        for _ in 0..40 {
            let a = &mut t.ends[0].assocs[0];
            let number = a.rec.next() + 1;
            a.rec.start_at(number);
            out.clear();
            weir_wire::Header {
                level: a.level(),
                ack_now: true,
                path: 0,
                number: number as u32,
                association: a.remote_id,
            }
            .write(&mut out);
            frame::write_ping(&mut out);
            a.crypt.as_ref().expect("up").keys.send.seal(number, &mut out);
            a.rec.push(now, out.len() as u16, 0, 0, 0, 0);
            t.ends[1].handle(now, RxMeta { ecn, ..meta(0) }, &mut out, &mut ev);
        }
        t.send(1);
        let packets = t.poll(1);
        packets.into_iter().map(|p| p.len()).max()
    };
    let plain = with(&mut t, 0);
    assert_eq!(with(&mut t, crate::marks::CE), plain);
}
