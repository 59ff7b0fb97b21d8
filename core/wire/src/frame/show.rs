//! Frames in short, for people: traces and tools that show packets.

use core::fmt;

use super::{Frame, Msg};
use crate::DataKey;

impl fmt::Display for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataKey::Message(mseq) => write!(f, "msg {mseq}"),
            DataKey::Rndv(handle) => write!(f, "rndv {handle:#x}"),
        }
    }
}

impl fmt::Display for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.head;
        if h.control {
            return write!(f, "control {} of {}", h.mseq, h.total_len);
        }
        write!(f, "msg {} stream {} {}+{} of {}", h.mseq, h.stream, h.offset, h.len, h.total_len)
    }
}

/// What it is, the number of what it is about, and, of payload, `offset+length`.
impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Padding => f.write_str("padding"),
            Frame::Ping => f.write_str("ping"),
            Frame::Ack(ack) => ack.fmt(f),
            Frame::Credit(c) => write!(f, "credit to {} messages, {} bytes", c.msgs_limit, c.bytes_limit),
            Frame::Grant(g) => write!(f, "grant rndv {:#x} to {}", g.handle, g.limit),
            Frame::Msg(m) => m.fmt(f),
            Frame::Rndv(b) => write!(f, "rndv {:#x} {}+{}", b.handle, b.offset, b.payload.len()),
            Frame::PathChallenge(_) => f.write_str("path-challenge"),
            Frame::PathResponse(_) => f.write_str("path-response"),
            Frame::Close(c) => write!(f, "close {}", c.code),
            Frame::RndvAbort(a) => write!(f, "abort rndv {:#x} {}", a.handle, a.code),
            Frame::Parity(p) => {
                let h = &p.head;
                write!(f, "parity {} {}+{}x{}", h.key, h.base, h.count, h.frag)?;
                if h.row > 0 { write!(f, " row {}", h.row) } else { Ok(()) }
            }
            Frame::Recovered(r) => write!(f, "recovered {} {}+{}", r.key, r.offset, r.len),
            Frame::Marked(m) => write!(f, "marked {} of path {}", m.count, m.path),
            Frame::Bulk(l) if l.bulk == 0 => f.write_str("bulk wanted"),
            Frame::Bulk(l) => {
                write!(f, "bulk {}{} read {}", l.bulk, if l.over { " over" } else { "" }, l.read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    use crate::frame::{self, Frames, MsgHead, ParityHead};
    use crate::{DataKey, Frame};

    fn shown(packet: &[u8]) -> Vec<String> {
        let frames = Frames::parse(packet, 0..packet.len()).expect("well formed");
        frames.iter().map(|f: Frame<'_>| f.to_string()).collect()
    }

    #[test]
    fn frames_are_shown_in_short() {
        let mut p = Vec::new();
        let _ = frame::write_ack([20..=29, 10..=14, 0..=0], frame::AckTimes::default(), 200, &mut p);
        let head = MsgHead { control: false, stream: 3, mseq: 41, sseq: 7, total_len: 9, offset: 4, len: 5 };
        frame::write_msg_head(&head, b"env", &mut p);
        p.extend_from_slice(b"hello");
        let control = MsgHead { control: true, stream: 0, mseq: 2, sseq: 0, total_len: 1, offset: 0, len: 1 };
        frame::write_msg_head(&control, b"", &mut p);
        p.push(9);
        frame::write_rndv_head(0x1_0000_0002, 1400, 2, &mut p);
        p.extend_from_slice(b"xy");
        frame::write_grant(&frame::Grant { handle: 0x10, limit: 4096 }, &mut p);
        let parity = ParityHead { key: DataKey::Message(41), count: 8, row: 0, frag: 1, base: 100 };
        frame::write_parity_head(&parity, &mut p);
        p.push(0);
        for over in [false, true] {
            frame::write_bulk(&frame::Bulk { bulk: 2, read: 77, over }, &mut p);
        }
        frame::write_bulk(&frame::Bulk::default(), &mut p);
        frame::write_ping(&mut p);
        let want = [
            "ack 20-29 and 2 more",
            "msg 41 stream 3 4+5 of 9",
            "control 2 of 1",
            "rndv 0x100000002 1400+2",
            "grant rndv 0x10 to 4096",
            "parity msg 41 100+8x1",
            "bulk 2 read 77",
            "bulk 2 over read 77",
            "bulk wanted",
            "ping",
        ];
        assert_eq!(shown(&p), want);
    }
}
