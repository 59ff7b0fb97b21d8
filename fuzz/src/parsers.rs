//! Every parser on arbitrary bytes: no panic, ranges within the datagram, and what was read writes
//! back to something that reads the same.

use std::ops::Range;

use weir_match::envelope::{Envelope, MAX_BYTES};
use weir_wire::frame::{self, Ack};
use weir_wire::seal::Role;
use weir_wire::{EndpointName, Frame, Frames, Handshake, HandshakeKey, Header, Level, SessionKeys};

/// Head and frames of a PROTECTED packet; also any bytes as frames; also a packet made genuine.
pub fn packet(data: &[u8]) {
    frames(data, 0..data.len());
    let Ok(header) = Header::parse(data) else { return };
    let mut again = Vec::new();
    header.write(&mut again);
    assert_eq!(Header::parse(&[again.as_slice(), &[0; 16]].concat()), Ok(header));
    let level = header.level;
    frames(data, level.frames_offset()..data.len() - level.trailer_len());
    let session = |role| SessionKeys::derive(&[1; 32], level, role, &[2; 16], &[3; 16], 4, 5);
    let mut damaged = data.to_vec();
    let _ = session(Role::Responder).recv.open(level, header.number.into(), &mut damaged);

    let mut genuine = data[..data.len() - level.trailer_len()].to_vec();
    let plain = genuine.clone();
    session(Role::Opener).send.seal(header.number.into(), &mut genuine);
    let range = session(Role::Responder).recv.open(level, header.number.into(), &mut genuine).expect("sealed alike");
    assert_eq!(genuine[range.clone()], plain[level.frames_offset()..]);
    assert_eq!(level, Header::parse(&genuine).map_or(Level::Integrity, |h| h.level));
    frames(&genuine, range);
}

fn frames(d: &[u8], range: Range<usize>) {
    let Ok(parsed) = Frames::parse(d, range.clone()) else { return };
    let mut all = parsed.iter();
    parsed.each(|f| {
        assert_eq!(Some(f), all.next().as_ref());
        true
    });
    assert!(all.next().is_none());
    let all: Vec<Frame<'_>> = parsed.iter().collect();
    let mut copy = Vec::new();
    for f in &all {
        write(f, d, range.end, &mut copy);
    }
    let again = Frames::parse(&copy, 0..copy.len()).expect("written by us");
    assert_eq!(again.is_ack_eliciting(), parsed.is_ack_eliciting());
    let rewritten: Vec<Frame<'_>> = again.iter().collect();
    assert_eq!(all.len(), rewritten.len());
    for (a, b) in all.iter().zip(&rewritten) {
        assert!(same(a, d, b, &copy), "{a:?} became {b:?}");
    }
}

fn write(f: &Frame<'_>, d: &[u8], end: usize, out: &mut Vec<u8>) {
    match f {
        // Only as the last frame, so its length does not matter.
        Frame::Padding => frame::write_padding(out.len() + 1, out),
        Frame::Ping => frame::write_ping(out),
        Frame::Ack(a) => {
            let ranges = joined(a);
            frame::write_ack(ranges, a.times, usize::MAX, out);
        }
        Frame::Credit(c) => frame::write_credit(c, out),
        Frame::Grant(g) => frame::write_grant(g, out),
        Frame::Msg(m) => {
            assert!(m.payload.end <= end);
            frame::write_msg_head(&m.head, &d[m.envelope.clone()], out);
            out.extend_from_slice(&d[m.payload.clone()]);
        }
        Frame::Rndv(b) => {
            assert!(b.payload.end <= end);
            let len = u16::try_from(b.payload.len()).expect("its field has 16 bits");
            frame::write_rndv_head(b.handle, b.offset, len, out);
            out.extend_from_slice(&d[b.payload.clone()]);
        }
        Frame::PathChallenge(data) => frame::write_path_challenge(*data, out),
        Frame::PathResponse(data) => frame::write_path_response(*data, out),
        Frame::Close(c) => frame::write_close(c.code, c.reason, out),
        Frame::RndvAbort(b) => frame::write_rndv_abort(b, out),
        Frame::Parity(p) => {
            assert!(p.payload.end <= end);
            frame::write_parity_head(&p.head, out);
            out.extend_from_slice(&d[p.payload.clone()]);
        }
        Frame::Recovered(r) => frame::write_recovered(r, out),
        Frame::Bulk(l) => frame::write_bulk(l, out),
        Frame::Marked(m) => frame::write_marked(m, out),
    }
}

/// The ranges of an ACK, touching ones joined; they never overlap or rise.
fn joined(ack: &Ack<'_>) -> Vec<std::ops::RangeInclusive<u64>> {
    // The largest was just sent, and numbers are so high that no ACK can reach below 0.
    let ranges = ack.ranges((1 << 40) + u64::from(ack.largest) + 1);
    let mut out: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
    for r in ranges.expect("neither beyond the next number nor below 0") {
        assert!(r.start() <= r.end());
        match out.last_mut() {
            Some(last) if *last.start() == r.end() + 1 => *last = *r.start()..=*last.end(),
            Some(last) => {
                assert!(*last.start() > r.end() + 1);
                out.push(r);
            }
            None => out.push(r),
        }
    }
    out
}

fn same(a: &Frame<'_>, d: &[u8], b: &Frame<'_>, e: &[u8]) -> bool {
    match (a, b) {
        (Frame::Msg(a), Frame::Msg(b)) => {
            a.head == b.head
                && d[a.envelope.clone()] == e[b.envelope.clone()]
                && d[a.payload.clone()] == e[b.payload.clone()]
        }
        (Frame::Rndv(a), Frame::Rndv(b)) => {
            (a.handle, a.offset) == (b.handle, b.offset) && d[a.payload.clone()] == e[b.payload.clone()]
        }
        (Frame::Parity(a), Frame::Parity(b)) => a.head == b.head && d[a.payload.clone()] == e[b.payload.clone()],
        (Frame::Ack(a), Frame::Ack(b)) => {
            let (a_ranges, b_ranges) = (joined(a), joined(b));
            // Odd but valid entries (runs of zeros) may take more room when we write them: then the
            // tail is cut.
            (a.largest, a.times) == (b.largest, b.times)
                && b_ranges.len() <= a_ranges.len()
                && a_ranges.iter().zip(&b_ranges).all(|(x, y)| x.end() == y.end() && x.start() <= y.start())
        }
        (a, b) => a == b,
    }
}

/// Handshake packets, with and without a MAC that fits.
pub fn handshake(data: &[u8]) {
    let key = HandshakeKey::derive(&[1; 32]);
    let _ = Handshake::parse(data, &key);
    let Ok(packet) = Handshake::parse_unverified(data) else { return };
    let mut out = Vec::new();
    packet.write(&key, &mut out);
    assert_eq!(out.len(), data.len());
    assert_eq!(Handshake::parse(&out, &key), Ok(packet));
}

/// Endpoint names: those that decode are canonical.
pub fn name(data: &[u8]) {
    if let Ok(name) = EndpointName::decode(data) {
        assert_eq!(name.encode(), data);
    }
}

/// Envelopes: what decodes encodes to something that decodes the same.
pub fn envelope(data: &[u8]) {
    let Ok(envelope) = Envelope::decode(data) else { return };
    let mut out = [0; MAX_BYTES];
    let len = envelope.encode(&mut out);
    assert_eq!(Envelope::decode(&out[..len]), Ok(envelope));
}
