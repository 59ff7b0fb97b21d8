//! PROTECTED packets that came in (spec 2.1, 2.2).

use alloc::vec::Vec;

use smallvec::SmallVec;
use weir_session::{FragmentIn, Session};
use weir_wire::frame::{Frame, Frames, Marked, Msg, ParityHead};
use weir_wire::{DataKey, Header, expand};

use crate::association::{Association, Cx, State};
use crate::build::PACKETS_MAX;
use crate::counters::count;
use crate::endpoint::{Endpoint, INDEX_BITS, with_association};
use crate::marks::CE;
use crate::parity::HOLES_MAX;
use crate::paths::PathState;
use crate::{DownReason, Event, PeerId, RxMeta, Time};

/// A datagram above it may have waited for a slot (`spec/superstep.md` 7.7): that of a message
/// which needs none is shorter.
const SLOTTED_BYTES: u64 = 512;
/// So much in flight is more than an answer to a request: bulk data goes to the peer.
const BULK_IN_FLIGHT: u64 = 32 << 10;

impl Endpoint {
    pub(crate) fn handle_protected(&mut self, now: Time, meta: &RxMeta, datagram: &mut [u8], events: &mut Vec<Event>) {
        let Ok(header) = Header::parse(datagram) else {
            self.counters.dropped_malformed += 1;
            return;
        };
        let peer = PeerId(header.association as u32 & ((1 << INDEX_BITS) - 1));
        let known =
            with_association!(self, peer, now).filter(|(a, _)| a.local_id == header.association && a.local_id != 0);
        let Some((a, mut cx)) = known else {
            self.counters.dropped_unknown += 1;
            return self.send_reset(now, meta, header.association);
        };
        match a.accept_packet(&mut cx, meta, &header, datagram, events) {
            Accept::Done => {
                self.touch(peer);
                // A grant or credit in it is for whatever carries what we send, which may be
                // another carrier.
                self.sessions.touch(peer);
            }
            Accept::Dropped => {}
            Accept::Late { closed_here } => {
                self.counters.dropped_state += 1;
                if !closed_here {
                    self.send_reset(now, meta, header.association);
                } else if self.reset_limit.take(now) {
                    // Our CLOSE was lost.
                    if let Some(a) = self.assocs.get_mut(peer.0 as usize) {
                        a.close_pending = Some(0);
                    }
                    self.touch(peer);
                }
            }
        }
    }
}

/// What became of a packet.
enum Accept {
    /// Accepted.
    Done,
    /// Dropped and counted.
    Dropped,
    /// Good, but the association is over.
    Late { closed_here: bool },
}

/// What the frames of one packet add up to.
#[derive(Default)]
struct Seen {
    rndv_bytes: u64,
    parity: bool,
}

/// Whether it may have come by a path that carries nothing else: it only acknowledges, or asks
/// after a path (such a packet begins with that).
fn is_probe(frames: &Frames<'_>) -> bool {
    let asks = || matches!(frames.iter().next(), Some(Frame::PathChallenge(_) | Frame::PathResponse(_)));
    !frames.is_ack_eliciting() || asks()
}

impl Association {
    fn accept_packet(
        &mut self,
        cx: &mut Cx<'_>,
        meta: &RxMeta,
        header: &Header,
        datagram: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Accept {
        let Some(crypt) = self.crypt.as_ref() else {
            // Still opening: the ACCEPT was overtaken or lost.
            cx.counters.dropped_state += 1;
            return Accept::Dropped;
        };
        let number = expand(header.number, self.rx.expected());
        if number >= PACKETS_MAX {
            cx.counters.dropped_malformed += 1;
            return Accept::Dropped;
        }
        let Ok(range) = crypt.keys.recv.open(header.level, number, datagram) else {
            cx.counters.dropped_check += 1;
            return Accept::Dropped;
        };
        if self.rx.is_replay(number) {
            cx.counters.dropped_replay += 1;
            return Accept::Dropped;
        }
        if self.state != State::Up {
            return Accept::Late { closed_here: self.state == State::Down(DownReason::LocalClose) };
        }
        let mut frames = Frames::none();
        if frames.read(datagram, range).is_err() {
            cx.counters.dropped_malformed += 1;
            return Accept::Dropped;
        }
        self.counts.packets_received += 1;
        let path = self.path_to(cx, meta.remote, meta.local, false);
        let is_probe = self.rx.has_several(header.path) && is_probe(&frames);
        let missing = self.rx.accept(cx.now, (header.path, is_probe), number, meta.receiver_delay_ns);
        let is_marked = meta.ecn == CE;
        if is_marked {
            count!(self, cx, marks_received);
            // Those that its windows count.
            if self.peer.ecn && frames.is_ack_eliciting() {
                self.marks_in.note(header.path);
            }
        }
        self.note_heard(cx.now, path.unwrap_or(u8::MAX));
        if let Some(p) = path.and_then(|i| self.paths.get_mut(usize::from(i))) {
            p.bytes_received += datagram.len() as u64;
            if p.in_flight >= BULK_IN_FLIGHT || cx.s.rndvs_open().0 > 0 && !cx.s.is_ample() {
                p.bytes_met += datagram.len() as u64;
            }
        }
        if frames.is_ack_eliciting() {
            let back = path.unwrap_or(self.primary);
            let delay = self.paths.get(usize::from(back)).map_or(0, |p| p.rtt.ack_delay(cx.cfg.ack_delay_max));
            // What may have gone without a slot is short, and is acknowledged as ever: its sender
            // may be in no slots.
            let in_slot = datagram.len() as u64 > SLOTTED_BYTES;
            let delay = if in_slot { delay.max(cx.common.slots_ack_ns()) } else { delay };
            let size = (datagram.len(), header.ack_now);
            self.rx.eliciting(cx.now, (header.path, back), missing, size, delay, cx.cfg);
        }
        let mut seen = Seen::default();
        frames.each(|f| {
            if let Err(why) = self.on_frame(cx, meta, f, &mut seen, events) {
                self.violated(cx, why, events);
            }
            self.state == State::Up
        });
        if seen.parity && self.state == State::Up {
            // Last, so that what it tells to restore is lacking after everything else in the packet
            // was reported.
            for f in &frames {
                if let Frame::Parity(p) = f {
                    let row = datagram.get(p.payload.clone()).unwrap_or(&[]);
                    self.on_parity(cx.s, &p.head, row, events);
                }
            }
        }
        if seen.rndv_bytes > 0 || cx.s.rndvs_open().1 > 0 {
            let base = self.longest_trip(cx.now);
            let is_marked = is_marked && cx.cfg.mechanisms.marked_grants;
            cx.common.grants.measure(cx.now, self.id, (seen.rndv_bytes, is_marked), missing, base);
            cx.common.grants.set_both_ways(self.id, self.paths.iter().any(|p| p.is_well() && p.cc.is_both_ways()));
            cx.counters.marks_grants = cx.common.grants.marked_intervals();
        }
        Accept::Done
    }

    /// The peer broke a rule: the association ends, and the peer is told.
    pub(crate) fn violated(&mut self, cx: &mut Cx<'_>, why: &'static str, events: &mut Vec<Event>) {
        cx.counters.violations += 1;
        cx.counters.last_violation = why;
        self.go_down(cx, DownReason::Violation, events);
        self.close_pending = Some(2);
    }

    #[inline]
    fn on_frame(
        &mut self,
        cx: &mut Cx<'_>,
        meta: &RxMeta,
        f: &Frame<'_>,
        seen: &mut Seen,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        match f {
            Frame::Msg(m) => self.on_message(cx, m, events),
            Frame::Ack(a) => {
                let ranges = a.ranges(self.rec.next()).ok_or("acknowledgement of a packet never sent")?;
                self.on_ack(cx, ranges.map(|r| (*r.start(), *r.end() + 1)), a.times, meta.receiver_delay_ns, events)
            }
            Frame::Rndv(b) => {
                seen.rndv_bytes += cx.s.on_rndv(cx.common, cx.now, (b.handle, b.offset), &b.payload, events)?;
                Ok(())
            }
            Frame::Padding | Frame::Ping => Ok(()),
            Frame::Credit(c) => {
                cx.s.on_credit(cx.common, c.msgs_limit, c.bytes_limit);
                Ok(())
            }
            Frame::Grant(g) => {
                cx.s.on_grant(cx.common, g.handle, g.limit);
                Ok(())
            }
            // Not before everything else in the packet was reported.
            Frame::Parity(_) => {
                seen.parity = true;
                Ok(())
            }
            _ => self.on_rare_frame(cx, meta, f, events),
        }
    }

    fn on_rare_frame(
        &mut self,
        cx: &mut Cx<'_>,
        meta: &RxMeta,
        f: &Frame<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        match *f {
            Frame::PathChallenge(data) => {
                let path = self.path_to(cx, meta.remote, meta.local, true);
                if let Some(p) = path.and_then(|i| self.paths.get_mut(usize::from(i))) {
                    p.respond = Some(data);
                    p.local = p.local.or(meta.local);
                    if p.state == PathState::Unvalidated {
                        // Our own challenge may have gone before the peer was up.
                        (p.next_probe, p.asks_again) = (cx.now, true);
                    }
                }
            }
            Frame::PathResponse(data) => self.on_path_response(cx, data),
            Frame::Close(_) => self.go_down(cx, DownReason::Closed, events),
            Frame::RndvAbort(a) => cx.s.on_abort(cx.common, a.handle, a.code, events),
            Frame::Marked(m) => self.on_marked(cx, m),
            Frame::Bulk(l) => self.on_bulk_frame(cx, l, events)?,
            Frame::Recovered(r) => {
                let (message, key) = match r.key {
                    DataKey::Message(m) => (true, m),
                    DataKey::Rndv(h) => (false, h),
                };
                self.on_recovered(cx, message, key, r.offset, r.len, events)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The peer tells how many packets of a path of ours came to it marked.
    pub(crate) fn on_marked(&mut self, cx: &mut Cx<'_>, m: Marked) {
        let sent = self.rec.next();
        let Some(path) = self.paths.get_mut(usize::from(m.path)).filter(|_| cx.cfg.ecn) else { return };
        match path.marks.told(m.count, sent) {
            Some(news) => {
                count!(self, cx, marks_told, u64::from(news));
            }
            None => cx.counters.marks_refused += 1,
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, m: &Msg, events: &mut Vec<Event>) -> Result<(), &'static str> {
        let h = &m.head;
        if h.control {
            return cx.s.on_control(cx.common, h.mseq, m.envelope.clone(), m.payload.clone(), events);
        }
        let mseq = cx.s.message_number(h.mseq);
        let fragment = FragmentIn { stream: h.stream, mseq, sseq: h.sseq, total_len: h.total_len, offset: h.offset };
        cx.s.on_message(cx.common, &fragment, &m.envelope, &m.payload, events)
    }

    /// A PARITY frame: if no more fragments of its group lack bytes than rows of it have come,
    /// those can be restored.
    pub(crate) fn on_parity(&mut self, s: &Session, h: &ParityHead, row: &[u8], events: &mut Vec<Event>) {
        let (lo, hi) = (h.base, h.base + u64::from(h.count) * u64::from(h.frag));
        let mut lacking: SmallVec<[(u64, u64); HOLES_MAX]> = SmallVec::new();
        let collect = |a, b| {
            lacking.push((a, b));
            lacking.len() <= HOLES_MAX
        };
        if s.holes(h.key, lo, hi, collect).is_none() {
            return;
        }
        for (hole, parity) in self.parity_in.take(h, row, &lacking) {
            events.push(Event::Parity { peer: self.id, key: h.key, hole, parity });
        }
    }

    /// The upper layer restored a range: it has arrived, and the sender is told.
    pub(crate) fn restored(&mut self, cx: &mut Cx<'_>, key: DataKey, offset: u64, len: u32, events: &mut Vec<Event>) {
        let Ok(len16) = u16::try_from(len) else { return };
        let Some(total) = cx.s.holes(key, 0, 0, |_, _| true) else { return };
        if offset + u64::from(len) > total {
            return;
        }
        let (message, number) = match key {
            DataKey::Message(mseq) => (true, mseq),
            DataKey::Rndv(handle) => (false, handle),
        };
        if cx.s.placed(cx.common, cx.now, key, total as u32, offset, len, events).is_ok() {
            self.recovered.push_back((message, number, offset, len16));
        }
        cx.counters.parity_used += 1;
    }
}
