//! Properties: what is written reads back; what is damaged is refused; nothing panics.

mod common;

use common::{handshakes, job_key};
use core::ops::RangeInclusive;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use weir_wire::frame::{self, Ack, AckTimes, Credit, Grant, MsgHead, ParityHead, Recovered, RndvAbort};
use weir_wire::handshake::{Accept, Confirm, Cookie, Opening, Refuse, Reset};
use weir_wire::number::truncate;
use weir_wire::packet;
use weir_wire::seal::Role;
use weir_wire::{
    DataKey, EndpointName, Frame, Frames, Handshake, HandshakeKey, Header, Level, Params, RefuseCode, SessionKeys,
    crc32c_append, expand,
};

/// A frame as its writer takes it, with all its bytes.
#[derive(Clone, Debug)]
enum Model {
    Ping,
    Ack(Vec<RangeInclusive<u64>>, AckTimes),
    Credit(Credit),
    Grant(Grant),
    Msg(MsgHead, Vec<u8>, Vec<u8>),
    Rndv(u64, u64, Vec<u8>),
    PathChallenge(u64),
    PathResponse(u64),
    Close(u16, String),
    RndvAbort(RndvAbort),
    Parity(ParityHead, Vec<u8>),
    Recovered(Recovered),
    Bulk(frame::Bulk),
    Marked(frame::Marked),
}

fn len16(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("short")
}

impl Model {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Model::Ping => frame::write_ping(out),
            Model::Ack(ranges, times) => {
                frame::write_ack(ranges.iter().cloned(), *times, 1000, out);
            }
            Model::Credit(f) => frame::write_credit(f, out),
            Model::Grant(f) => frame::write_grant(f, out),
            Model::Msg(head, envelope, payload) => {
                frame::write_msg_head(head, envelope, out);
                out.extend_from_slice(payload);
            }
            Model::Rndv(handle, offset, payload) => {
                frame::write_rndv_head(*handle, *offset, len16(payload), out);
                out.extend_from_slice(payload);
            }
            Model::PathChallenge(data) => frame::write_path_challenge(*data, out),
            Model::PathResponse(data) => frame::write_path_response(*data, out),
            Model::Close(code, reason) => frame::write_close(*code, reason, out),
            Model::RndvAbort(f) => frame::write_rndv_abort(f, out),
            Model::Parity(head, payload) => {
                frame::write_parity_head(head, out);
                out.extend_from_slice(payload);
            }
            Model::Recovered(f) => frame::write_recovered(f, out),
            Model::Bulk(f) => frame::write_bulk(f, out),
            Model::Marked(f) => frame::write_marked(f, out),
        }
    }

    /// Whether `read`, parsed from `d`, says the same.
    fn same(&self, read: &Frame<'_>, d: &[u8]) -> bool {
        match (self, read) {
            (Model::Ping, Frame::Ping) => true,
            (Model::Ack(ranges, times), Frame::Ack(ack)) => ack.times == *times && same_ranges(ranges, ack),
            (Model::Credit(a), Frame::Credit(b)) => a == b,
            (Model::Grant(a), Frame::Grant(b)) => a == b,
            (Model::Msg(head, envelope, payload), Frame::Msg(m)) => {
                (head, envelope.as_slice(), payload.as_slice())
                    == (&m.head, &d[m.envelope.clone()], &d[m.payload.clone()])
            }
            (Model::Rndv(handle, offset, payload), Frame::Rndv(b)) => {
                (*handle, *offset, payload.as_slice()) == (b.handle, b.offset, &d[b.payload.clone()])
            }
            (Model::PathChallenge(a), Frame::PathChallenge(b)) | (Model::PathResponse(a), Frame::PathResponse(b)) => {
                a == b
            }
            (Model::Close(code, reason), Frame::Close(b)) => (*code, reason.as_str()) == (b.code, b.reason),
            (Model::RndvAbort(a), Frame::RndvAbort(b)) => a == b,
            (Model::Parity(head, payload), Frame::Parity(b)) => {
                *head == b.head && payload.as_slice() == &d[b.payload.clone()]
            }
            (Model::Recovered(a), Frame::Recovered(b)) => a == b,
            (Model::Bulk(a), Frame::Bulk(b)) => a == b,
            (Model::Marked(a), Frame::Marked(b)) => a == b,
            _ => false,
        }
    }
}

/// Splitting and cutting by the writer aside, the same numbers from the top down, without a hole.
fn same_ranges(written: &[RangeInclusive<u64>], ack: &Ack<'_>) -> bool {
    let next = written[0].end() + 1;
    let Some(read) = ack.ranges(next) else {
        return false;
    };
    let mut joined: Vec<RangeInclusive<u64>> = Vec::new();
    for r in read {
        match joined.last_mut() {
            Some(last) if *last.start() == r.end() + 1 => *last = *r.start()..=*last.end(),
            _ => joined.push(r),
        }
    }
    let Some((last, whole)) = joined.split_last() else {
        return false;
    };
    let Some(last_written) = written.get(whole.len()) else {
        return false;
    };
    whole == &written[..whole.len()] && last.end() == last_written.end() && last.start() >= last_written.start()
}

fn ack_ranges() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
    // Steps from the top down: mostly short, now and then beyond 16 bits.
    let step = prop_oneof![4 => 1u64..20, 1 => 1u64..200_000];
    (vec((step.clone(), step), 1..50), 0u64..1 << 40).prop_map(|(steps, base)| {
        let total: u64 = steps.iter().map(|(gap, len)| gap + len).sum();
        let mut below = base + total;
        steps
            .into_iter()
            .map(|(gap, len)| {
                let end = below - gap;
                below = end - len + 1;
                let range = below..=end;
                below -= 1;
                range
            })
            .collect()
    })
}

fn addr() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn key() -> impl Strategy<Value = DataKey> {
    prop_oneof![any::<u64>().prop_map(DataKey::Message), any::<u64>().prop_map(DataKey::Rndv)]
}

fn msg() -> impl Strategy<Value = Model> {
    let payload = vec(any::<u8>(), 0..100);
    (any::<bool>(), any::<(u16, u32, u32, u32, u32)>(), vec(any::<u8>(), 0..=48), payload).prop_map(
        |(control, (stream, mseq, sseq, offset, more), envelope, payload)| {
            let len = len16(&payload);
            let head = if control {
                MsgHead { control, stream: 0, mseq, sseq: 0, total_len: len.into(), offset: 0, len }
            } else if len == 0 {
                MsgHead { control, stream, mseq, sseq, total_len: 0, offset: 0, len }
            } else {
                let offset = offset.min(u32::MAX - u32::from(len));
                let total_len = (offset + u32::from(len)).saturating_add(more);
                MsgHead { control, stream, mseq, sseq, total_len, offset, len }
            };
            Model::Msg(head, envelope, payload)
        },
    )
}

fn model() -> impl Strategy<Value = Model> {
    let payload = || vec(any::<u8>(), 1..100);
    prop_oneof![
        Just(Model::Ping),
        (ack_ranges(), any::<u32>(), any::<u16>(), any::<u32>()).prop_map(
            |(ranges, delay_ns, receiver_delay_us, read_us)| {
                Model::Ack(ranges, AckTimes { delay_ns, receiver_delay_us, read_us })
            }
        ),
        any::<(u32, u64)>().prop_map(|(m, b)| Model::Credit(Credit { msgs_limit: m, bytes_limit: b })),
        any::<(u64, u64)>().prop_map(|(handle, limit)| Model::Grant(Grant { handle, limit })),
        msg(),
        (any::<u64>(), 0..u64::MAX - 100, vec(any::<u8>(), 0..100)).prop_map(|(h, o, p)| Model::Rndv(h, o, p)),
        any::<u64>().prop_map(Model::PathChallenge),
        any::<u64>().prop_map(Model::PathResponse),
        (any::<u16>(), "\\PC{0,60}").prop_map(|(code, reason)| Model::Close(code, reason)),
        any::<(u64, u16)>().prop_map(|(handle, code)| Model::RndvAbort(RndvAbort { handle, code })),
        (key(), 1..=48u8, 0..3u8, 0..u64::MAX - 5000, payload()).prop_map(|(key, count, row, base, p)| {
            Model::Parity(ParityHead { key, count, row, frag: len16(&p), base }, p)
        }),
        (key(), 0..=u64::MAX - 65535, 1u16..).prop_map(|(key, offset, len)| Model::Recovered(Recovered {
            key,
            offset,
            len
        })),
        (0..=7u8, any::<u32>()).prop_map(|(path, count)| Model::Marked(frame::Marked { path, count })),
        any::<(u32, u64, bool)>().prop_map(|(bulk, read, over)| Model::Bulk(frame::Bulk {
            bulk,
            read,
            over: over && bulk != 0
        })),
    ]
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Integrity), Just(Level::Auth), Just(Level::Encrypt)]
}

fn header() -> impl Strategy<Value = Header> {
    (level(), any::<bool>(), 0..=7u8, any::<u32>(), any::<u64>())
        .prop_map(|(level, ack_now, path, number, association)| Header { level, ack_now, path, number, association })
}

fn session(level: Level, role: Role) -> SessionKeys {
    SessionKeys::derive(&job_key(), level, role, &[1; 16], &[2; 16], 3, 4)
}

/// A sealed packet.
fn sealed(header: &Header, number: u64, models: &[Model]) -> Vec<u8> {
    let mut packet = Vec::new();
    header.write(&mut packet);
    for m in models {
        m.write(&mut packet);
    }
    session(header.level, Role::Opener).send.seal(number, &mut packet);
    packet
}

fn params() -> impl Strategy<Value = Params> {
    (1200u16.., 1u16.., any::<(u32, u64, u64, u32, u32)>(), vec(addr(), 0..=8)).prop_map(
        |(max_datagram, streams, (msgs, bytes, rx, delay, timeout), list)| Params {
            max_datagram,
            streams,
            initial_credit_msgs: msgs,
            initial_credit_bytes: bytes,
            rx_buffer_bytes: rx,
            ack_delay_max_us: delay,
            peer_timeout_ms: timeout,
            bulk_connections: (timeout % 3) as u8,
            ecn: timeout % 2 == 1,
            sctp: (delay % 3) as u8,
            parity_rows: (timeout % 5) as u8,
            addresses: list.into_iter().collect(),
        },
    )
}

fn handshake() -> impl Strategy<Value = Handshake> {
    let opening = || {
        (level(), any::<(u16, u64, u64, u64, [u8; 16])>()).prop_map(|(level, (features, o, r, a, nonce))| Opening {
            level,
            features,
            opener_id: o,
            responder_id: r,
            opener_association: a,
            nonce,
        })
    };
    prop_oneof![
        opening().prop_map(Handshake::Init),
        any::<(u64, [u8; 32])>().prop_map(|(a, cookie)| Handshake::Cookie(Cookie { opener_association: a, cookie })),
        (opening(), any::<[u8; 32]>(), params())
            .prop_map(|(opening, cookie, params)| { Handshake::Confirm(Confirm { opening, cookie, params }) }),
        (level(), any::<(u16, u64, u64, u64, [u8; 16])>(), params()).prop_map(
            |(level, (features, o, i, r, nonce), params)| Handshake::Accept(Accept {
                level,
                features,
                opener_association: o,
                responder_id: i,
                responder_association: r,
                nonce,
                params
            })
        ),
        any::<(u8, u64, u64)>().prop_map(|(code, a, id)| Handshake::Refuse(Refuse {
            code: RefuseCode::from_wire(code),
            opener_association: a,
            endpoint_id: id
        })),
        any::<(u64, u64)>().prop_map(|(association, endpoint_id)| Handshake::Reset(Reset { association, endpoint_id })),
    ]
}

/// Everything a stranger's bytes can reach.
fn parse_all(bytes: &[u8]) {
    let _ = packet::kind(bytes);
    let _ = Handshake::parse_unverified(bytes);
    let _ = EndpointName::decode(bytes);
    if let Ok(h) = Header::parse(bytes) {
        let _ = session(h.level, Role::Responder).recv.open(h.level, h.number.into(), &mut bytes.to_vec());
        let range = h.level.frames_offset()..bytes.len() - h.level.trailer_len();
        walk(bytes, range);
    }
    walk(bytes, 0..bytes.len());
}

/// What was kept when the frames were checked is what is read again, as far as somebody wants to
/// see it.
fn shown_as_read(frames: &Frames<'_>) {
    let read: Vec<_> = frames.iter().collect();
    for wanted in [1, 2, 3, usize::MAX] {
        let mut shown = Vec::new();
        frames.each(|f| {
            shown.push(f.clone());
            shown.len() < wanted
        });
        assert_eq!(shown, read[..read.len().min(wanted)]);
    }
}

fn walk(bytes: &[u8], range: core::ops::Range<usize>) {
    let Ok(frames) = Frames::parse(bytes, range) else {
        return;
    };
    shown_as_read(&frames);
    for f in &frames {
        match f {
            Frame::Ack(ack) => {
                let n = ack.ranges(1 << 33).map_or(0, Iterator::count);
                assert!(n <= 33);
            }
            Frame::Msg(m) => {
                assert!(m.payload.end <= bytes.len() && m.envelope.end == m.payload.start)
            }
            Frame::Rndv(b) => assert!(b.payload.end <= bytes.len()),
            Frame::Parity(p) => assert!(p.payload.end <= bytes.len()),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn packets_read_back(h in header(), number in any::<u64>(), models in vec(model(), 0..6)) {
        let mut packet = sealed(&h, number, &models);
        prop_assert_eq!(Header::parse(&packet), Ok(h));
        let range = session(h.level, Role::Responder).recv.open(h.level, number, &mut packet).expect("genuine");
        let frames = Frames::parse(&packet, range).expect("well formed");
        let read: Vec<_> = frames.iter().collect();
        prop_assert_eq!(read.len(), models.len());
        for (m, f) in models.iter().zip(&read) {
            prop_assert!(m.same(f, &packet), "{:?} read as {:?}", m, f);
        }
        prop_assert_eq!(frames.is_ack_eliciting(), read.iter().any(Frame::is_ack_eliciting));
        shown_as_read(&frames);
    }

    // spec: P-2.8, P-2.9, P-2.10, P-2.12
    #[test]
    fn damaged_or_misdirected_packets_fail(
        h in header(), number in any::<u64>(), models in vec(model(), 0..4), at in any::<prop::sample::Index>(),
        mask in 1u8..,
    ) {
        let packet = sealed(&h, number, &models);
        let open = |number, role, mut bytes: Vec<u8>| session(h.level, role).recv.open(h.level, number, &mut bytes);
        prop_assert!(open(number, Role::Responder, packet.clone()).is_ok());
        prop_assert!(open(number, Role::Opener, packet.clone()).is_err(), "the other direction");
        if h.level != Level::Integrity {
            prop_assert!(open(number ^ 1, Role::Responder, packet.clone()).is_err(), "another number");
        }
        let mut damaged = packet.clone();
        damaged[at.index(packet.len())] ^= mask;
        prop_assert!(open(number, Role::Responder, damaged).is_err());
        let mut cut = packet;
        cut.truncate(at.index(cut.len()));
        prop_assert!(open(number, Role::Responder, cut).is_err());
    }

    #[test]
    fn gathered_payload_gives_the_same_packet(h in header(), head in vec(any::<u8>(), 0..100), tail in vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>()) {
        let h = Header { level: Level::Integrity, ..h };
        let keys = session(Level::Integrity, Role::Opener);
        let mut gathered = Vec::new();
        h.write(&mut gathered);
        gathered.extend_from_slice(&head);
        let mut whole = gathered.clone();
        whole.extend_from_slice(&tail);
        keys.send.seal(0, &mut whole);
        let (a, b) = tail.split_at(cut.index(tail.len() + 1));
        let crc = crc32c_append(crc32c_append(keys.send.crc_begin(&mut gathered), a), b);
        weir_wire::seal::SendKeys::crc_finish(&mut gathered, crc);
        gathered.extend_from_slice(&tail);
        prop_assert_eq!(gathered, whole);
    }

    #[test]
    fn crc_agrees_with_another_implementation(seed in any::<u32>(), bytes in vec(any::<u8>(), 0..5000)) {
        prop_assert_eq!(crc32c_append(seed, &bytes), crc32c::crc32c_append(seed, &bytes));
    }

    // spec: P-2.16
    #[test]
    fn truncated_frames_are_refused_or_end_between_frames(models in vec(model(), 1..5), at in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for m in &models {
            m.write(&mut bytes);
            ends.push(bytes.len());
        }
        let cut = at.index(bytes.len());
        prop_assert_eq!(Frames::parse(&bytes, 0..cut).is_ok(), ends.contains(&cut));
    }

    // spec: P-2.31
    #[test]
    fn handshakes_read_back_and_damage_shows(p in handshake(), at in any::<prop::sample::Index>(), mask in 1u8..) {
        let key = HandshakeKey::derive(&job_key());
        let mut out = Vec::new();
        p.write(&key, &mut out);
        prop_assert!(out.len() <= weir_wire::handshake::MAX_HANDSHAKE_LEN);
        let read = Handshake::parse(&out, &key);
        prop_assert_eq!(read, Ok(p));
        prop_assert!(Handshake::parse(&out, &HandshakeKey::derive(&[9; 32])).is_err(), "another job");
        let i = at.index(out.len());
        prop_assert!(Handshake::parse(&out[..i], &key).is_err());
        out[i] ^= mask;
        prop_assert!(Handshake::parse(&out, &key).is_err());
        out[i] ^= mask;
        out.push(0);
        prop_assert!(Handshake::parse(&out, &key).is_err());
    }

    #[test]
    fn names_read_back(port in any::<u16>(), fp in any::<[u8; 4]>(), id in any::<u64>(), ips in vec(any::<IpAddr>(), 0..8)) {
        let mut name = EndpointName::new(port, fp, id);
        for ip in ips {
            name.push(ip);
        }
        let bytes = name.encode();
        let read = EndpointName::decode(&bytes).expect("our own");
        prop_assert_eq!(read.encode(), bytes);
        prop_assert_eq!(read, name);
    }

    // spec: P-7.2
    #[test]
    fn a_name_that_decodes_is_canonical(mut bytes in any::<[u8; 48]>(), families in any::<[bool; 6]>(), count in 0..7u8) {
        bytes[0] = 1;
        bytes[1] = count;
        let mut at = 16;
        for v4 in families {
            if at < 48 {
                bytes[at] = if v4 { 4 } else { 6 };
            }
            at += if v4 { 5 } else { 17 };
        }
        if let Ok(name) = EndpointName::decode(&bytes) {
            prop_assert_eq!(name.encode(), bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..400), first in 0x10u8..0x18) {
        parse_all(&bytes);
        if let Some(b) = bytes.first_mut() {
            *b = first;
        }
        parse_all(&bytes);
    }

    #[test]
    fn mutated_packets_never_panic(
        h in header(), models in vec(model(), 0..5), hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut packet = Vec::new();
        h.write(&mut packet);
        for m in &models {
            m.write(&mut packet);
        }
        for (at, value) in hits {
            let i = at.index(packet.len());
            packet[i] = value;
        }
        parse_all(&packet);
        for cut in 0..packet.len().min(200) {
            parse_all(&packet[..cut]);
        }
    }

    // spec: P-2.5, P-2.19
    #[test]
    fn numbers_expand_to_what_was_truncated(expected in any::<u64>(), distance in -(1i64 << 31) + 1..1 << 31) {
        if let Some(full) = expected.checked_add_signed(distance) {
            prop_assert_eq!(expand(truncate(full), expected), full);
        }
    }

    // spec: P-2.5
    #[test]
    fn no_number_with_those_bits_is_closer(low in any::<u32>(), expected in any::<u64>()) {
        let full = expand(low, expected);
        prop_assert_eq!(truncate(full), low);
        for other in [full.checked_add(1 << 32), full.checked_sub(1 << 32)].into_iter().flatten() {
            prop_assert!(full.abs_diff(expected) <= other.abs_diff(expected));
        }
    }
}

#[test]
fn expansion_at_the_ends() {
    assert_eq!(expand(0, 0), 0);
    assert_eq!(expand(u32::MAX, 0), u64::from(u32::MAX), "no negative numbers");
    assert_eq!(expand(0, u64::from(u32::MAX)), 1 << 32);
    assert_eq!(expand(0, u64::MAX), u64::MAX - u64::from(u32::MAX), "nothing above");
    assert_eq!(expand(u32::MAX, 1 << 32), u64::from(u32::MAX));
    // The example of RFC 9000 A.3, with 32 bits in place of 16.
    assert_eq!(expand(0x9b32_0000, 0xa82f_30eb_0000), 0xa82f_9b32_0000);
}

// spec: P-2.31, P-2.32
#[test]
fn every_prefix_and_bit_of_the_sample_handshakes() {
    let key = HandshakeKey::derive(&job_key());
    let mut out = Vec::new();
    for p in handshakes() {
        p.write(&key, &mut out);
        for cut in 0..out.len() {
            assert!(Handshake::parse(&out[..cut], &key).is_err());
        }
        for bit in 0..out.len() * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            assert!(Handshake::parse(&out, &key).is_err(), "{p:?} bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
