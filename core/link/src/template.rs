//! Packet templates: for packets of one flow in a row that differ in their numbers and bytes only.
//!
//! A message of a megabyte is some seven hundred packets, and for nearly all of them the questions
//! that [`Association::build`] asks - what waits, what fits, what is due - have the answers they
//! had for the one before. A template keeps those answers for as long as nothing else happens. It
//! is an optimisation and no rule: what it writes is what `build` would have written, and where it
//! is not sure (the end of the message, the end of the window, the turn of another) it ends.

use weir_wire::Header;
use weir_wire::packet::HEADER_LEN;
use weir_wire::seal::SendKeys;

use weir_session::{Flow, Fragment, Line, Session};

use crate::association::{Association, Cx};
use crate::build::PACKETS_MAX;
use crate::recovery::{IN_FLIGHT, RTT_PROBE, SentFrame};
use crate::{Level, PacketBuf, PayloadRef, Payloads, PeerId, Time, Transmit};

/// Room for the longest head: packet head, CRC, the fixed part of a frame, the longest envelope.
const HEAD_MAX: usize = 96;
/// Where the offset stands in a MSG and in an RNDV frame (spec 2.2).
const OFFSET_AT: usize = 16;

/// What the next packet has in common with the last one.
#[derive(Debug)]
pub(crate) struct Template {
    /// Whose it is, and when: it does not outlive the moment.
    pub(crate) peer: PeerId,
    pub(crate) now: Time,
    flow: Flow,
    transmit: Transmit,
    /// The payload of the next packet, and where the flow ends for now.
    next: PayloadRef,
    end: u64,
    /// Bytes of a packet, and how many may be in flight.
    size: u16,
    window: u64,
    path: u8,
    head: [u8; HEAD_MAX],
    head_len: u8,
}

impl Association {
    /// What goes on after the packet just built, `out` and `transmit`;
    /// [`Association::has_template`] says that there can be one.
    pub(crate) fn begin_template(
        &self,
        s: &mut Session,
        now: Time,
        out: &PacketBuf,
        transmit: &Transmit,
    ) -> Option<Template> {
        let last = transmit.payload?;
        let piece = s.next_flow(Line::Main)?;
        let (flow, sent, end) = (piece.flow, piece.from, piece.to);
        let token = match flow {
            Flow::Message(mseq) => s.message(mseq)?.token,
            Flow::Rndv(slot, generation) => s.rndv(slot, generation)?.token,
        };
        let next = PayloadRef { offset: last.offset + u64::from(last.len), ..last };
        if token != next.token || sent != next.offset {
            return None;
        }
        let mut head = [0; HEAD_MAX];
        head.get_mut(..out.head.len())?.copy_from_slice(&out.head);
        let at = self.template_path;
        Some(Template {
            peer: self.id,
            now,
            flow,
            transmit: *transmit,
            next,
            end,
            size: out.head.len() as u16 + last.len,
            window: self.window_of(usize::from(at)),
            path: at,
            head,
            head_len: out.head.len() as u8,
        })
    }

    /// Whether the template's next packet is one that needs no thought: not the last of its flow,
    /// not the one that fills the window, not the last of its turn.
    fn goes_on(&self, cx: &Cx<'_>, template: &Template) -> bool {
        let Some(path) = self.paths.get(usize::from(template.path)) else { return false };
        template.end > template.next.offset + u64::from(template.next.len)
            && path.in_flight + u64::from(template.size) + u64::from(path.mtu.size()) <= template.window
            && path.pacer.open(template.now)
            && self.stripe.goes_on(template.path)
            && self.flow_run + 1 < cx.cfg.flow_batch_packets
            && self.rec.next() < PACKETS_MAX / 2
            && !self.rec.is_full(cx.cfg.sent_packets_max)
    }

    /// Writes the next packet by the template; `None`: it is over, and `build` decides what comes.
    pub(crate) fn build_from_template(
        &mut self,
        cx: &mut Cx<'_>,
        template: &mut Template,
        payloads: &impl Payloads,
        out: &mut PacketBuf,
    ) -> Option<Transmit> {
        if !self.goes_on(cx, template) {
            return None;
        }
        let r = template.next;
        let to = r.offset + u64::from(r.len);
        out.head.clear();
        out.head.extend_from_slice(&template.head[..usize::from(template.head_len)]);
        let id = self.remote_id;
        let header = Header {
            level: Level::Integrity,
            ack_now: false,
            path: template.path,
            number: self.rec.next() as u32,
            association: id,
        };
        out.head[..HEADER_LEN].copy_from_slice(&header.encode());
        let at = Level::Integrity.frames_offset() + OFFSET_AT;
        match template.flow {
            Flow::Message(_) => {
                out.head[at..at + 4].copy_from_slice(&(r.offset as u32).to_le_bytes());
            }
            Flow::Rndv(..) => out.head[at..at + 8].copy_from_slice(&r.offset.to_le_bytes()),
        }
        cx.s.took_flow(Line::Main, to);
        let crc = self.crypt.as_ref()?.keys.send.crc_begin(&mut out.head);
        SendKeys::crc_finish(&mut out.head, payloads.crc(r.token, r.offset, usize::from(r.len), crc));
        let path = self.paths.get_mut(usize::from(template.path))?;
        let seq = path.on_sent(template.now, u64::from(template.size), self.peer.rx_buffer);
        let flags = if path.is_rtt_probe(seq) { IN_FLIGHT | RTT_PROBE } else { IN_FLIGHT };
        path.bytes_sent += u64::from(template.size);
        self.stripe.took(template.path);
        self.rec.push_frame(SentFrame::Session(Fragment::of(template.flow, r.offset, to)));
        self.rec.push(template.now, template.size, template.path, seq, 1, flags);
        self.counts.packets_sent += 1;
        self.flow_run += 1;
        template.next.offset = to;
        Some(Transmit { payload: Some(r), ..template.transmit })
    }
}
