//! Packets in short, and the pieces of requests that are found in them.

use crate::lives::OutKey;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_link::{Counters, DataKey, PeerId, RxMeta, Time, Transmit};
use weir_wire::packet::{Kind, kind};
use weir_wire::{Frame, Frames, Header};

use core::fmt::Write;

impl<M: Memory, S: Sink> Messages<M, S> {
    /// A packet is about to leave: `head`, and behind it the payload that `t` names.
    #[cold]
    pub(crate) fn trace_packet_out(&mut self, t: &Transmit, head: &[u8]) {
        let gathered = t.payload.map_or(0, |p| usize::from(p.len));
        let mut packet = head.to_vec();
        packet.resize(head.len() + gathered, 0);
        let frames =
            self.sessions.endpoint().reveal(t.peer, &mut packet).and_then(|range| Frames::parse(&packet, range).ok());
        if self.trace.on(3) {
            let text = shown(&packet, frames.clone());
            self.trace.line(format_args!("packet out to={} {}", address(t.peer, &t.remote), text));
        }
        for f in frames.iter().flat_map(Frames::iter) {
            let (key, offset, len) = match f {
                Frame::Msg(m) if m.head.control => (OutKey::Control(m.head.mseq), 0, u64::from(m.head.len)),
                Frame::Msg(m) => (OutKey::Message(m.head.mseq), u64::from(m.head.offset), u64::from(m.head.len)),
                Frame::Rndv(b) => (OutKey::Rndv(b.handle), b.offset, b.payload.len() as u64),
                _ => continue,
            };
            self.trace.piece_out(t.peer.0, key, offset, len);
        }
    }

    /// A datagram came and the protocol has looked at it; what it did before says whether it was
    /// dropped.
    #[cold]
    pub(crate) fn trace_packet_in(&mut self, meta: &RxMeta, datagram: &[u8], before: &Counters) {
        let dropped = dropped(before, &self.sessions.endpoint().counters());
        let header = Header::parse(datagram).ok();
        let peer = header.and_then(|h| self.sessions.endpoint().peer_of_association(h.association));
        // Opened in place by the protocol.
        let range = header.map(|h| h.level.frames_offset()..datagram.len() - h.level.trailer_len());
        let frames = range.filter(|_| dropped.is_none()).and_then(|range| Frames::parse(datagram, range).ok());
        if self.trace.on(3) {
            let mut text = shown(datagram, frames.clone());
            if let Some(why) = dropped {
                let _ = write!(text, " dropped ({why})");
            }
            let from = address(peer.unwrap_or(PeerId(u32::MAX)), &meta.remote);
            self.trace.line(format_args!("packet in from={from} {text}"));
        }
        let Some(peer) = peer else { return };
        for f in frames.iter().flat_map(Frames::iter) {
            if let Frame::Rndv(b) = f {
                self.trace.rndv_piece_in(peer.0, b.handle, b.payload.len() as u64, false);
            }
        }
    }

    /// A datagram, with the trace on.
    #[cold]
    pub(crate) fn handle_traced(
        &mut self,
        now: Time,
        meta: RxMeta,
        datagram: &mut [u8],
        events: &mut Vec<weir_link::Event>,
    ) {
        let before = self.sessions.endpoint().counters().clone();
        self.sessions.endpoint_mut().handle(now, meta, datagram, events);
        self.trace_packet_in(&meta, datagram, &before);
    }

    /// A record of a bulk connection begins to come.
    #[cold]
    pub(crate) fn trace_record_in(&mut self, peer: u32, record: &weir_link::RecordIn) {
        if let DataKey::Rndv(handle) = record.key {
            self.trace.rndv_piece_in(peer, handle, u64::from(record.len), true);
        }
    }
}

fn address(peer: PeerId, remote: &core::net::SocketAddr) -> String {
    if peer.0 == u32::MAX { format!("- {remote}") } else { format!("{} {remote}", peer.0) }
}

fn shown(packet: &[u8], frames: Option<Frames<'_>>) -> String {
    let (mut text, len) = (String::new(), packet.len());
    match (kind(packet), Header::parse(packet)) {
        (Ok(Kind::Protected), Ok(h)) => {
            let _ = write!(text, "number={} path={} bytes={len}:", h.number, h.path);
        }
        (Ok(other), _) => {
            let _ = write!(text, "bytes={len}: {other:?}");
        }
        (Err(e), _) => {
            let _ = write!(text, "bytes={len}: {e}");
        }
    }
    for (i, f) in frames.iter().flat_map(Frames::iter).enumerate() {
        let _ = write!(text, "{} {f}", if i > 0 { ";" } else { "" });
    }
    text
}

/// Why the datagram between the two counts was dropped.
fn dropped(before: &Counters, after: &Counters) -> Option<&'static str> {
    type Count = fn(&Counters) -> u64;
    let counts: [(&str, Count); 6] = [
        ("malformed", |c| c.dropped_malformed),
        ("integrity check failed", |c| c.dropped_check),
        ("replayed", |c| c.dropped_replay),
        ("unknown association", |c| c.dropped_unknown),
        ("not in this state", |c| c.dropped_state),
        ("too many of its kind", |c| c.dropped_rate_limit),
    ];
    counts.into_iter().find(|(_, count)| count(after) > count(before)).map(|(why, _)| why)
}
