//! Every frame against fixed bytes, written and read.

mod common;

use common::hex;
use weir_wire::frame::{
    self, AckTimes, Close, Credit, Grant, Msg, MsgHead, Parity, ParityHead, Recovered, Rndv, RndvAbort,
};
use weir_wire::{DataKey, Frame, FrameError, Frames};

const NO_TIMES: AckTimes = AckTimes { delay_ns: 0, receiver_delay_us: 0, read_us: 0 };

/// The single frame in `bytes`, and whether it asks for an acknowledgement.
fn only(bytes: &[u8]) -> (Frame<'_>, bool) {
    let frames = Frames::parse(bytes, 0..bytes.len()).expect("well formed");
    let mut all = frames.iter();
    let first = all.next().expect("one frame");
    assert_eq!(all.next(), None);
    (first, frames.is_ack_eliciting())
}

fn check(write: impl Fn(&mut Vec<u8>), text: &str, expected: &Frame<'_>, ack_eliciting: bool) {
    let mut out = Vec::new();
    write(&mut out);
    assert_eq!(out, hex(text), "{expected:?}");
    assert_eq!(only(&out), (expected.clone(), ack_eliciting));
}

#[test]
fn padding_ping_paths() {
    check(|out| frame::write_padding(4, out), "00000000", &Frame::Padding, false);
    // What follows the type is ignored, even if it looks like a frame.
    assert_eq!(only(&[0, 1, 0xff]), (Frame::Padding, false));
    check(frame::write_ping, "01", &Frame::Ping, true);
    let data = 0x0102_0304_0506_0708;
    let text = "07 000000 00000000 0807060504030201";
    check(|out| frame::write_path_challenge(data, out), text, &Frame::PathChallenge(data), true);
    let text = "08 000000 00000000 0807060504030201";
    check(|out| frame::write_path_response(data, out), text, &Frame::PathResponse(data), false);
}

#[test]
fn credit_and_grant() {
    let credit = Credit { msgs_limit: 0x0102_0304, bytes_limit: 0x0506_0708 };
    check(|out| frame::write_credit(&credit, out), "03 000000 04030201 0807060500000000", &Frame::Credit(credit), true);
    let grant = Grant { handle: 0x0102, limit: 0x0304 };
    check(
        |out| frame::write_grant(&grant, out),
        "04 000000 00000000 0201000000000000 0403000000000000",
        &Frame::Grant(grant),
        true,
    );
}

#[test]
fn msg() {
    let head = MsgHead { control: false, stream: 0x0102, mseq: 3, sseq: 4, total_len: 0x100, offset: 0xfe, len: 2 };
    let text = "05 00 0201 03000000 04000000 00010000 fe000000 0200 03 00  e1e2e3  f1f2";
    check(
        |out| {
            frame::write_msg_head(&head, &[0xe1, 0xe2, 0xe3], out);
            out.extend_from_slice(&[0xf1, 0xf2]);
        },
        text,
        &Frame::Msg(Msg { head, envelope: 24..27, payload: 27..29 }),
        true,
    );
    let control = MsgHead { control: true, stream: 0, mseq: 3, sseq: 0, total_len: 0, offset: 0, len: 0 };
    check(
        |out| frame::write_msg_head(&control, &[], out),
        "05 01 0000 03000000 00000000 00000000 00000000 0000 00 00",
        &Frame::Msg(Msg { head: control, envelope: 24..24, payload: 24..24 }),
        true,
    );
}

#[test]
fn rndv_and_abort() {
    check(
        |out| {
            frame::write_rndv_head(0x0102, 0x0304, 2, out);
            out.extend_from_slice(&[0xf1, 0xf2]);
        },
        "06 00 0200 00000000 0201000000000000 0403000000000000 f1f2",
        &Frame::Rndv(Rndv { handle: 0x0102, offset: 0x0304, payload: 24..26 }),
        true,
    );
    let abort = RndvAbort { handle: 0x0102, code: 0x0304 };
    check(
        |out| frame::write_rndv_abort(&abort, out),
        "0b 00 0403 00000000 0201000000000000",
        &Frame::RndvAbort(abort),
        true,
    );
}

#[test]
fn parity_and_recovered() {
    for (key, parity_count, recovered_flags) in [(DataKey::Message(9), "83", "01"), (DataKey::Rndv(9), "03", "00")] {
        let head = ParityHead { key, count: 3, row: 2, frag: 2, base: 0x0304 };
        check(
            |out| {
                frame::write_parity_head(&head, out);
                out.extend_from_slice(&[0xf1, 0xf2]);
            },
            &format!("0c {parity_count} 0200 02000000 0900000000000000 0403000000000000 f1f2"),
            &Frame::Parity(Parity { head, payload: 24..26 }),
            true,
        );
        let recovered = Recovered { key, offset: 0x0304, len: 2 };
        check(
            |out| frame::write_recovered(&recovered, out),
            &format!("0d {recovered_flags} 0200 00000000 0900000000000000 0403000000000000"),
            &Frame::Recovered(recovered),
            true,
        );
    }
}

#[test]
fn bulk() {
    for (over, flags) in [(false, "00"), (true, "01")] {
        let bulk = frame::Bulk { bulk: 0x0102, read: 0x0304, over };
        let bytes = format!("0e {flags} 0000 02010000 0403000000000000");
        check(|out| frame::write_bulk(&bulk, out), &bytes, &Frame::Bulk(bulk), true);
    }
}

// spec: P-6.26
#[test]
fn marked() {
    let marked = frame::Marked { path: 7, count: 0x0304 };
    check(|out| frame::write_marked(&marked, out), "0f 07 0000 04030000", &Frame::Marked(marked), false);
}

#[test]
fn close() {
    let frame = Frame::Close(Close { code: 0x0102, reason: "bye" });
    check(|out| frame::write_close(0x0102, "bye", out), "0a 00 0201 03 627965", &frame, false);

    // 254 + a character of two bytes: the character goes entirely.
    let long = "x".repeat(254) + "ä";
    let mut out = Vec::new();
    frame::write_close(0, &long, &mut out);
    assert_eq!(out.len(), frame::close_len(&long));
    assert_eq!(only(&out).0, Frame::Close(Close { code: 0, reason: &long[..254] }));
}

// spec: P-2.20
#[test]
fn ack() {
    let mut out = Vec::new();
    let times = AckTimes { delay_ns: 0x0102, receiver_delay_us: 0x0304, read_us: 0x0506_0708 };
    let written = frame::write_ack([95..=99, 90..=92, 1..=1], times, 1000, &mut out);
    assert_eq!(written, 3);
    let text = "02 02 0403 63000000 02010000 08070605 05000000  0200 0300  5800 0100";
    assert_eq!(out, hex(text));
    let (Frame::Ack(ack), false) = only(&out) else { panic!("an ACK frame") };
    assert_eq!((ack.largest, ack.times, ack.first_len), (99, times, 5));
    let ranges: Vec<_> = ack.ranges(100).expect("sent").collect();
    assert_eq!(ranges, [95..=99, 90..=92, 1..=1]);
    assert!(ack.ranges(99).is_none(), "99 was not sent");
    // The same frame, when numbers have passed 2^32 several times.
    let epoch = 5u64 << 32;
    let ranges: Vec<_> = ack.ranges(epoch + 120).expect("sent").collect();
    assert_eq!(ranges, [epoch + 95..=epoch + 99, epoch + 90..=epoch + 92, epoch + 1..=epoch + 1]);
}

// spec: P-2.24
#[test]
fn ack_below_zero_is_a_violation() {
    let mut out = Vec::new();
    frame::write_ack([5..=9, 2..=3], NO_TIMES, 1000, &mut out);
    for (at, value) in [(16, 11u8), (20, 4), (22, 5)] {
        let mut bad = out.clone();
        bad[at] = value;
        let (Frame::Ack(ack), _) = only(&bad) else { panic!("an ACK frame") };
        assert!(ack.ranges(10).is_none(), "byte {at}");
    }
}

// spec: P-2.22
#[test]
fn ack_splits_long_gaps_and_ranges() {
    let ranges = [500_000..=500_000, 200_000..=400_000, 0..=1];
    let mut out = Vec::new();
    assert_eq!(frame::write_ack(ranges.clone(), NO_TIMES, 1000, &mut out), 3);
    let (Frame::Ack(ack), _) = only(&out) else { panic!("an ACK frame") };
    // Joins what the entries split.
    let mut joined: Vec<core::ops::RangeInclusive<u64>> = Vec::new();
    for r in ack.ranges(500_001).expect("sent") {
        match joined.last_mut() {
            Some(last) if *last.start() == r.end() + 1 => *last = *r.start()..=*last.end(),
            _ => joined.push(r),
        }
    }
    assert_eq!(joined, ranges);
}

// spec: P-2.21
#[test]
fn ack_stops_at_the_room_given_and_at_32_entries() {
    let ranges = || (0u64..100).rev().map(|i| 10 * i..=10 * i + 1);
    let mut out = Vec::new();
    assert_eq!(frame::write_ack(ranges(), NO_TIMES, frame::ACK_HEAD_LEN - 1, &mut out), 0);
    assert_eq!(frame::write_ack(core::iter::empty(), NO_TIMES, 1000, &mut out), 0);
    assert!(out.is_empty());
    assert_eq!(frame::write_ack(ranges(), NO_TIMES, frame::ACK_HEAD_LEN + 9, &mut out), 3);
    assert_eq!(out.len(), frame::ACK_HEAD_LEN + 8);
    out.clear();
    assert_eq!(frame::write_ack(ranges(), NO_TIMES, 1000, &mut out), 33);
    let (Frame::Ack(ack), _) = only(&out) else { panic!("an ACK frame") };
    assert_eq!(ack.ranges(1000).expect("sent").count(), 33);
}

// spec: P-1.2, P-2.18, P-2.21, P-2.22, P-2.25, P-2.26, P-2.28, P-2.29, P-2.30
#[test]
fn malformed_frames() {
    use FrameError::{Field, Truncated, Type};
    let zero16 = "0000000000000000 0000000000000000";
    let max8 = "ffffffffffffffff";
    let cases: Vec<(String, FrameError)> = vec![
        ("0e".into(), Truncated(0x0e)),
        ("0e 02 0000 02010000 0403000000000000".into(), Field(0x0e, "flags")),
        ("0e 01 0000 00000000 0000000000000000".into(), Field(0x0e, "flags")),
        ("0f".into(), Truncated(0x0f)),
        ("0f 07 0000 040300".into(), Truncated(0x0f)),
        ("0f 08 0000 04030000".into(), Field(0x0f, "path")),
        ("10".into(), Type(0x10)),
        ("ff".into(), Type(0xff)),
        ("01 10".into(), Type(0x10)),
        ("02 00".into(), Truncated(2)),
        ("02 21 00 00 63000000 00000000 00000000 05000000".into(), Field(2, "count")),
        ("02 01 00 00 63000000 00000000 00000000 05000000 0100".into(), Truncated(2)),
        ("02 01 00 00 63000000 00000000 00000000 05000000 0000 0000".into(), Field(2, "entry")),
        ("02 00 00 00 63000000 00000000 00000000 00000000".into(), Field(2, "first_len")),
        ("03 000000 04030201 08070605000000".into(), Truncated(3)),
        ("04 000000 00000000 0201000000000000 04030000000000".into(), Truncated(4)),
        ("05 02 0000 00000000 00000000 00000000 00000000 0000 00 00".into(), Field(5, "flags")),
        (format!("05 00 0000 00000000 00000000 00000000 00000000 0000 31 00 {}", "00".repeat(49)), Field(5, "env_len")),
        ("05 00 0000 00000000 00000000 01000000 00000000 0200 00 00 0000".into(), Field(5, "offset")),
        ("05 00 0000 00000000 00000000 ffffffff ffffffff 0100 00 00 00".into(), Field(5, "offset")),
        ("05 00 0000 00000000 00000000 01000000 00000000 0000 00 00".into(), Field(5, "len")),
        ("05 01 0100 00000000 00000000 00000000 00000000 0000 00 00".into(), Field(5, "control")),
        ("05 01 0000 00000000 01000000 00000000 00000000 0000 00 00".into(), Field(5, "control")),
        ("05 01 0000 00000000 00000000 02000000 00000000 0100 00 00 00".into(), Field(5, "control")),
        ("05 00 0000 00000000 00000000 01000000 00000000 0100 00 00".into(), Truncated(5)),
        ("05 00 0000 00000000 00000000 00000000 00000000 0000 01 00".into(), Truncated(5)),
        (format!("06 01 0000 00000000 {zero16}"), Field(6, "flags")),
        (format!("06 00 0100 00000000 0000000000000000 {max8} 00"), Field(6, "offset")),
        (format!("06 00 0100 00000000 {zero16}"), Truncated(6)),
        ("07 000000 00000000 08070605040302".into(), Truncated(7)),
        ("09 00 0000 07000000".into(), Type(9)),
        ("0a 00 0000 01".into(), Truncated(0x0a)),
        ("0a 00 0000 01 ff".into(), Field(0x0a, "reason")),
        ("0b 00 0000 00000000 02010000000000".into(), Truncated(0x0b)),
        (format!("0c 00 0100 00000000 {zero16} 00"), Field(0x0c, "count")),
        (format!("0c b1 0100 00000000 {zero16} 00"), Field(0x0c, "count")),
        (format!("0c 01 0100 03000000 {zero16} 00"), Field(0x0c, "row")),
        (format!("0c 01 0000 00000000 {zero16}"), Field(0x0c, "frag")),
        ("0c 02 0100 00000000 0000000000000000 feffffffffffffff 00".into(), Field(0x0c, "base")),
        (format!("0c 01 0200 00000000 {zero16} 00"), Truncated(0x0c)),
        (format!("0d 02 0100 00000000 {zero16}"), Field(0x0d, "flags")),
        (format!("0d 00 0000 00000000 {zero16}"), Field(0x0d, "len")),
        (format!("0d 00 0100 00000000 0000000000000000 {max8}"), Field(0x0d, "offset")),
    ];
    for (text, error) in cases {
        let bytes = hex(&text);
        assert_eq!(Frames::parse(&bytes, 0..bytes.len()).map(|_| ()), Err(error), "{text}");
    }
}
