//! Packets of an association: what goes into the next one (spec 2, 4, 6).

use alloc::vec::Vec;

use rand_core::RngCore;
use weir_wire::frame::{
    self, ACK_ENTRY_LEN, ACK_HEAD_LEN, BULK_LEN, CREDIT_LEN, GRANT_LEN, MSG_HEAD_LEN, MsgHead, PARITY_HEAD_LEN,
    PING_LEN, RECOVERED_LEN, RNDV_ABORT_LEN, RNDV_HEAD_LEN,
};
use weir_wire::seal::SendKeys;
use weir_wire::{DataKey, Header, MAX_ACK_ENTRIES, MAX_ENVELOPE_LEN};

use weir_session::{Flow, Fragment, Line, OutMessage, Session};

use crate::association::{Association, Cx, State, carries};
use crate::counters::count;
use crate::paths::{Path, PathState};
use crate::recovery::{IN_FLIGHT, RTT_PROBE, SentFrame};
use crate::{Config, DownReason, Level, PacketBuf, PayloadRef, Payloads, Time, Transmit};

/// Fragments shorter than this are not begun in a packet that has something already, unless they
/// end their message.
const FRAGMENT_MIN: usize = 256;
/// What is left of a packet behind a gathered payload, at most, if more waits that could fill it.
const LEFT_OVER_MAX: usize = 100;
/// Frames in one packet; the rest waits for the next.
const FRAMES_MAX: u8 = 200;
/// Messages to a peer of so many bytes in all, with nothing longer behind them, go in no slot
/// (`spec/superstep.md` 7.3): those of a reduction.
const UNSLOTTED_BYTES: u64 = 256;
/// Packets of small messages in a row before a flow has its turn.
const SMALL_RUN_MAX: u32 = 16;
/// Packets by which control messages may exceed the window: they must not stand behind data.
const CONTROL_OVERDRAFT: u64 = 16;
/// A flow of so many packets, sent after silence, makes no queue that is worth asking about.
const PROBE_TRAIN: u64 = 4;
/// Entries of an acknowledgement where room is wanted for data.
pub(crate) const ACK_ENTRIES_FEW: usize = 8;
/// After this many packets the keys of a direction are spent (spec 2.1).
pub(crate) const PACKETS_MAX: u64 = 1 << 40;

/// Largest payload of a control message: fits the smallest packet with the longest envelope at any
/// level.
pub(crate) fn control_len_max(cfg: &Config) -> usize {
    usize::from(cfg.mtu_base.min(cfg.max_datagram))
        .saturating_sub(Level::Encrypt.overhead() + MSG_HEAD_LEN + MAX_ENVELOPE_LEN)
}

/// Payloads at least this long may be gathered.
#[inline]
pub(crate) fn gather_min(cfg: &Config, level: Level) -> usize {
    if cfg.gather && level == Level::Integrity { usize::from(cfg.gather_min.max(1)) } else { usize::MAX }
}

/// A CLOSE is sent so many times: nobody acknowledges it, and a peer that missed it would wait out
/// its linger time.
const CLOSES: u8 = 3;

/// A packet being written.
pub(crate) struct Packet {
    /// Bytes `head` may reach before the trailer.
    limit: usize,
    path: u8,
    /// Frames that have to be remembered.
    frames: u8,
    eliciting: bool,
    /// Fragments of flows are in it; fragments of small messages.
    flow: bool,
    /// How long the last of those flows is as a whole, bytes.
    flow_len: u64,
    pub(crate) small: bool,
    /// A row of parity is in it.
    parity: bool,
    /// A control message with payload is in it: a write, whose user waits for nothing else.
    write: bool,
    payload: Option<PayloadRef>,
}

impl Packet {
    fn space(&self, head: &[u8]) -> usize {
        if self.payload.is_some() || self.frames >= FRAMES_MAX { 0 } else { self.limit.saturating_sub(head.len()) }
    }
}

/// What the payload writers need besides the association.
pub(crate) struct Out<'a, P: Payloads> {
    pub(crate) payloads: &'a P,
    pub(crate) head: &'a mut Vec<u8>,
    /// Payloads at least this long may be gathered.
    pub(crate) gather_min: usize,
}

impl<P: Payloads> Out<'_, P> {
    /// Payload bytes of `token` behind a frame's head: copied, or left to be gathered if nothing is
    /// to follow.
    fn payload(&mut self, pk: &mut Packet, token: u64, offset: u64, len: usize, more: bool) {
        let left = pk.limit - self.head.len() - len;
        if len >= self.gather_min && (left < LEFT_OVER_MAX || !more) {
            pk.payload = Some(PayloadRef { token, offset, len: len as u16 });
            return;
        }
        let at = self.head.len();
        self.head.resize(at + len, 0);
        self.payloads.read(token, offset, &mut self.head[at..]);
    }
}

/// What a path takes: its window, the bytes in flight, and the size of its packets.
#[derive(Copy, Clone, Default)]
struct Room {
    window: u64,
    in_flight: u64,
    mtu: u16,
}

impl Room {
    /// Another packet does not fit into the window.
    fn is_full(&self) -> bool {
        self.in_flight + u64::from(self.mtu) > self.window
    }
}

impl Association {
    /// Writes the next packet; `None` if nothing may be sent now.
    pub(crate) fn build(&mut self, cx: &mut Cx<'_>, payloads: &impl Payloads, out: &mut PacketBuf) -> Option<Transmit> {
        // The last that was to be told before the farewell may have just been.
        self.check_drained(cx.s);
        if self.close_pending.is_some() {
            return self.build_close(cx, out);
        }
        if self.rec.next() >= PACKETS_MAX - u64::from(CLOSES) {
            self.ending.get_or_insert(DownReason::Exhausted);
        } else if self.rec.is_full(cx.cfg.sent_packets_max) {
            self.ending.get_or_insert(DownReason::Unacknowledged);
        }
        if self.state != State::Up || self.ending.is_some() {
            return None;
        }
        self.follow_slots(cx.common.slots_ack_ns());
        for i in 0..self.paths.len() {
            let p = &self.paths[i];
            if (p.respond.is_some() || p.next_probe <= cx.now)
                && let Some(t) = self.build_path_probe(cx, i, out)
            {
                return Some(t);
            }
            let p = &self.paths[i];
            if p.state == PathState::Valid
                && p.mtu.due().is_some_and(|t| t <= cx.now)
                && let Some(t) = self.build_mtu_probe(cx, i, out)
            {
                return Some(t);
            }
        }
        if let Some(t) = self.build_data(cx, payloads, out) {
            return Some(t);
        }
        // Last, so that their acknowledgement tells of what was sent again before them: what is
        // told later than the next probe timeout is sent again for ever.
        let i = (0..self.paths.len()).find(|i| self.paths[*i].asks > 0)?;
        out.head.clear();
        self.build_ask(cx, i, out)
    }

    /// Acknowledgements wait so long since data goes in slots. What is still in flight may wait as
    /// long as it did before.
    #[inline]
    fn follow_slots(&mut self, wait_ns: u64) {
        if wait_ns > self.slots_ack_ns
            || wait_ns < self.slots_ack_ns && self.paths.iter().all(|p| p.in_flight_packets == 0)
        {
            self.slots_ack_ns = wait_ns;
        }
    }

    pub(crate) fn begin(&self, path: u8, size: u16, out: &mut PacketBuf) -> Packet {
        let level = self.level();
        Header { level, ack_now: false, path, number: self.rec.next() as u32, association: self.remote_id }
            .write(&mut out.head);
        Packet {
            limit: usize::from(size) - level.trailer_len(),
            path,
            frames: 0,
            eliciting: false,
            flow: false,
            flow_len: 0,
            small: false,
            parity: false,
            write: false,
            payload: None,
        }
    }

    /// Seals the packet and remembers it.
    pub(crate) fn finish(
        &mut self,
        cx: &mut Cx<'_>,
        pk: &Packet,
        payloads: Option<&impl Payloads>,
        out: &mut PacketBuf,
        in_flight: bool,
    ) -> Option<Transmit> {
        let number = self.rec.next();
        let crypt = self.crypt.as_ref()?;
        match (pk.payload, payloads) {
            (Some(r), Some(p)) => {
                let crc = crypt.keys.send.crc_begin(&mut out.head);
                let crc = p.crc(r.token, r.offset, usize::from(r.len), crc);
                SendKeys::crc_finish(&mut out.head, crc);
            }
            _ => crypt.keys.send.seal(number, &mut out.head),
        }
        let size = out.head.len() + pk.payload.map_or(0, |r| usize::from(r.len));
        let path = self.paths.get_mut(usize::from(pk.path))?;
        path.bytes_sent += size as u64;
        let (mut seq, mut flags) = (0, 0);
        if in_flight {
            seq = path.on_sent(cx.now, size as u64, self.peer.rx_buffer);
            flags = if path.is_rtt_probe(seq) { IN_FLIGHT | RTT_PROBE } else { IN_FLIGHT };
        }
        self.rec.push(cx.now, size as u16, pk.path, seq, pk.frames, flags);
        if pk.frames == 0 {
            self.rec.trim(cx.now, u64::MAX);
        }
        self.counts.packets_sent += 1;
        Some(Transmit { remote: path.remote, local: path.local, peer: self.id, payload: pk.payload })
    }

    pub(crate) fn remember(&mut self, pk: &mut Packet, f: SentFrame) {
        self.rec.push_frame(f);
        pk.frames += 1;
        pk.eliciting = true;
    }

    /// An ACK if one is owed and fits. `few`: room is wanted for data.
    pub(crate) fn put_ack(&mut self, cx: &mut Cx<'_>, pk: &Packet, out: &mut PacketBuf, few: bool) {
        let Some(way) = self.rx.next() else { return };
        let entries = if few { ACK_ENTRIES_FEW } else { MAX_ACK_ENTRIES };
        // What is told of marks takes the place of entries: a fragment beside it is no shorter for
        // it.
        let room = pk.space(&out.head).min(ACK_HEAD_LEN + entries * ACK_ENTRY_LEN);
        let marks = self.marks_in.room();
        let room = room.saturating_sub(marks);
        if marks > 0 && room >= ACK_HEAD_LEN {
            self.marks_in.tell(&mut out.head);
        }
        let times = self.rx.times(way, cx.now);
        let is_written = match self.rx.only_range(way) {
            Some(range) => frame::write_ack_of_one(range, times, room, &mut out.head),
            None => {
                let ranges = self.rx.ranges(way).map(|(lo, hi)| lo..=hi - 1);
                frame::write_ack(ranges, times, room, &mut out.head) > 0
            }
        };
        if is_written {
            self.rx.acknowledged(way);
            count!(self, cx, acks_sent);
        }
    }

    fn build_path_probe(&mut self, cx: &mut Cx<'_>, i: usize, out: &mut PacketBuf) -> Option<Transmit> {
        let respond = self.paths[i].respond.take();
        let challenge = self.take_challenge(cx, i);
        if respond.is_none() && challenge.is_none() {
            return None;
        }
        let mut pk = self.begin(i as u8, cx.cfg.mtu_base, out);
        if let Some(data) = respond {
            frame::write_path_response(data, &mut out.head);
        }
        if let Some(data) = challenge {
            frame::write_path_challenge(data, &mut out.head);
            self.remember(&mut pk, SentFrame::Once);
        }
        self.finish(cx, &pk, None::<&NoPayloads>, out, false)
    }

    /// A PING that asks whether a path still carries anything.
    fn build_ask(&mut self, cx: &mut Cx<'_>, i: usize, out: &mut PacketBuf) -> Option<Transmit> {
        self.paths[i].asks -= 1;
        let mut pk = self.begin(i as u8, cx.cfg.mtu_base, out);
        frame::write_ping(&mut out.head);
        self.remember(&mut pk, SentFrame::Once);
        Header::set_ack_now(&mut out.head);
        self.finish(cx, &pk, None::<&NoPayloads>, out, true)
    }

    fn build_mtu_probe(&mut self, cx: &mut Cx<'_>, i: usize, out: &mut PacketBuf) -> Option<Transmit> {
        let ack_delay = self.ack_delay_max();
        let p = &mut self.paths[i];
        // Three probe timeouts: the probe must not be repeated before its acknowledgement had time.
        let again = 3 * p.rtt.pto(cx.cfg.pto_var_min.as_nanos() as u64, ack_delay);
        let size = p.mtu.probe(cx.now, again)?;
        let mut pk = self.begin(i as u8, size, out);
        frame::write_ping(&mut out.head);
        self.remember(&mut pk, SentFrame::MtuProbe { size });
        frame::write_padding(pk.limit, &mut out.head);
        self.finish(cx, &pk, None::<&NoPayloads>, out, false)
    }

    fn build_close(&mut self, cx: &mut Cx<'_>, out: &mut PacketBuf) -> Option<Transmit> {
        let code = self.close_pending?;
        self.closes_sent = self.closes_sent.saturating_add(1);
        if self.closes_sent >= CLOSES {
            self.close_pending = None;
        }
        let spent = self.rec.next() >= PACKETS_MAX;
        if spent || self.state == State::Opening || self.crypt.is_none() || self.paths.is_empty() {
            self.close_pending = None;
            return None;
        }
        // Each says what has arrived: the peer's last operations must not fail for want of an
        // acknowledgement.
        self.rx.repeat();
        let pk = self.begin(self.primary, cx.cfg.mtu_base, out);
        self.put_ack(cx, &pk, out, true);
        if let Some(f) = self.last_bulk_frame() {
            frame::write_bulk(&f, &mut out.head);
        }
        frame::write_close(code, "", &mut out.head);
        let t = self.finish(cx, &pk, None::<&NoPayloads>, out, false);
        // Everything was settled before: nothing is left to report.
        self.go_down(cx, DownReason::LocalClose, &mut Vec::new());
        t
    }

    fn build_data(&mut self, cx: &mut Cx<'_>, payloads: &impl Payloads, out: &mut PacketBuf) -> Option<Transmit> {
        let probing = self.probes > 0;
        let data_waits = self.has_data(cx.s);
        let is_asked =
            probing && self.paths.get(usize::from(self.probe_path)).is_some_and(|p| p.state == PathState::Valid);
        let lead = if is_asked { self.probe_path } else { self.lead(cx.cfg) };
        let carrier = if probing || !data_waits { Some(lead) } else { self.carrier(cx, lead) };
        let (ix, room, (control, data, frames)) = self.what_goes(cx, (lead, carrier), data_waits, probing);
        let apart = data && !control && self.goes_apart(cx.s);
        let data = data && !(apart && self.rx.due(cx.now));
        if !(control || data || frames || self.rx.due(cx.now)) {
            self.probes = 0;
            return None;
        }
        // An acknowledgement alone goes back the way the newest packet came: our primary may be
        // cut.
        let only_ack = !(control || data || frames);
        let back = self.rx.next().map(|way| self.rx.back(way)).filter(|i| usize::from(*i) < self.paths.len());
        let ix = if only_ack { back.unwrap_or(ix) } else { ix };
        self.paths.get(usize::from(ix))?;
        let room = if only_ack { self.room(ix) } else { room };
        let slot = slot(cx);
        let mut pk = self.begin(ix, room.mtu, out);
        if !(apart && data) {
            self.put_ack(cx, &pk, out, control || data);
        }
        if frames {
            self.put_control_frames(cx, &mut pk, out);
        }
        let empty = out.head.len() == self.level().frames_offset();
        let mut w = Out { payloads, head: &mut out.head, gather_min: gather_min(cx.cfg, self.level()) };
        if (control || data)
            && let Some(bulk) = self.bulk.as_mut()
        {
            bulk.answers(cx.now);
        }
        if control {
            self.put_control_messages(cx, &mut pk, &mut w);
        }
        if data {
            self.put_lost(cx, &mut pk, &mut w);
            self.put_parity(cx, &mut pk, &mut w);
            self.put_fresh(cx, &mut pk, &mut w, ix == lead);
        }
        if pk.frames == 0 && !only_ack && out.head.len() <= self.level().frames_offset() {
            // What seemed to wait was settled meanwhile.
            self.probes = 0;
            return None;
        }
        if pk.eliciting {
            self.probes = self.probes.saturating_sub(1);
            let total = out.head.len() as u64 + pk.payload.map_or(0, |p| u64::from(p.len));
            let full = Room { in_flight: room.in_flight + total, ..room }.is_full();
            let at_an_end = (pk.flow || pk.parity) && self.ends_or_probes(cx, &pk);
            let last_write = pk.write && !cx.s.has_control();
            if probing || full || at_an_end || last_write {
                Header::set_ack_now(&mut out.head);
            }
        }
        if pk.eliciting && data && (pk.flow || !pk.small) {
            self.stripe.took(ix);
        }
        self.count_turn(cx, &pk);
        let is_tail = !self.has_data(cx.s);
        if let Some(p) = self.paths.get_mut(usize::from(pk.path)) {
            p.is_tail = is_tail;
        }
        // Alone in its packet, with more of its flow behind it and nothing else that waits: the
        // next ones can be of its kind.
        let alone = empty && pk.flow && pk.frames == 1 && pk.payload.is_some();
        self.template_path = ix;
        self.has_template = alone
            && cx.s.lost_waiting() + cx.s.small_waiting() == 0
            && !(control || probing || self.parity.active || cx.common.slot().is_some());
        if data && pk.eliciting && slot.is_some() {
            let rng = &mut *cx.rng;
            self.slotted_at = cx.now;
            cx.common.slot_used(cx.now, || rng.next_u32());
        }
        let eliciting = pk.eliciting;
        self.finish(cx, &pk, Some(payloads), out, eliciting)
    }

    /// What the next packet may hold, and by which path it goes: its path, that one's room, and
    /// (control messages, data, control frames). `lead` is for what is short, `carrier` for data.
    fn what_goes(
        &mut self,
        cx: &mut Cx<'_>,
        (lead, carrier): (u8, Option<u8>),
        data_waits: bool,
        probing: bool,
    ) -> (u8, Room, (bool, bool, bool)) {
        let room = self.room(lead);
        let control_open = probing || room.in_flight <= room.window + CONTROL_OVERDRAFT * u64::from(room.mtu);
        let control = control_open && carries(cx.s) && cx.s.has_control();
        let is_other = carrier.is_some_and(|i| i != lead);
        let mut frames = self.has_control_frames(cx.s, cx.now);
        // What is short does not go by the way that the long found free.
        let data = data_waits && carrier.is_some() && !(is_other && (control || frames));
        let ix = carrier.filter(|_| data).unwrap_or(lead);
        let room = if ix == lead { room } else { self.room(ix) };
        let is_held = data_waits && !(data && (probing || self.is_open(cx, ix, room)));
        let data = data && !is_held;
        if is_held {
            if room.is_full() {
                count!(self, cx, stalls_window);
            } else {
                count!(self, cx, stalls_pacing);
            }
        }
        frames |= (control || data) && self.bulk_due().is_some();
        frames |= data && carries(cx.s) && cx.s.credit_waits();
        (ix, room, (control, data, frames))
    }

    fn room(&self, path: u8) -> Room {
        let p = self.paths.get(usize::from(path));
        p.map_or(Room::default(), |p| Room {
            window: self.window_of(usize::from(path)),
            in_flight: p.in_flight,
            mtu: p.mtu.size_for(p.ptos),
        })
    }

    /// Whether window and pacer of a path let data out; notes when the pacer is worth asking again.
    pub(crate) fn lets_out(&mut self, cx: &mut Cx<'_>, path: u8) -> bool {
        let room = self.room(path);
        self.is_open(cx, path, room)
    }

    /// The same, of a path whose [`Self::room`] is known.
    fn is_open(&mut self, cx: &mut Cx<'_>, path: u8, room: Room) -> bool {
        if room.is_full() {
            return false;
        }
        // Once closed it stays so for a part of a burst: polled all the time, it would let out
        // packets one by one, each for a system call.
        let slot = slot(cx);
        let Some(p) = self.paths.get_mut(usize::from(path)) else { return false };
        let is_open = p.held_until.is_none_or(|t| t <= cx.now) && p.pacer.open(cx.now);
        if is_open && slot.is_none_or(|at| at <= cx.now) {
            return true;
        }
        let opens_at = slot.map_or(p.pacer.opens_at(), |at| at.max(p.pacer.opens_at()));
        p.held_until = Some(opens_at);
        false
    }

    /// Whether a packet of a flow is the last that somebody waits for, or the first of a train:
    /// that tells what queue was there before it, while those behind wait in the queue that the
    /// train itself makes. In slots each packet would be the first of a train
    /// (`spec/superstep.md` 7.8).
    #[inline]
    fn ends_or_probes(&mut self, cx: &Cx<'_>, pk: &Packet) -> bool {
        let ends = !self.has_data(cx.s) && core::mem::take(&mut self.ack_wanted);
        let is_short = cx.s.flows_waiting() <= 1 && pk.flow_len <= PROBE_TRAIN * pk.limit as u64;
        let probes = |p: &mut Path| p.take_rtt_probe(cx.now, is_short);
        ends || cx.common.slot().is_none() && self.paths.get_mut(usize::from(pk.path)).is_some_and(probes)
    }

    /// Keeps the interleaving of small messages and flows.
    pub(crate) fn count_turn(&mut self, cx: &mut Cx<'_>, pk: &Packet) {
        if pk.flow {
            self.small_run = 0;
            self.flow_run += 1;
            if self.flow_run >= cx.cfg.flow_batch_packets {
                self.flow_run = 0;
                cx.s.end_turn(Line::Main);
            }
        } else if pk.small {
            self.small_run += 1;
        }
    }

    fn put_control_frames(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, out: &mut PacketBuf) {
        let head = &mut out.head;
        if self.ping && pk.space(head) >= PING_LEN {
            // On a lossy path both packets of a probe timeout that repeats have one, also if the
            // first takes all there is to send again.
            let lossy = |p: &Path| p.ptos > 1 && p.loss_ppm > cx.cfg.lossy_ppm;
            self.ping = self.probes > 1 && self.path().is_some_and(lossy);
            frame::write_ping(head);
            self.remember(pk, SentFrame::Once);
        }
        if !carries(cx.s) {
            return self.put_own_frames(pk, head);
        }
        if pk.space(head) >= CREDIT_LEN
            && let Some((msgs, bytes_limit)) = cx.s.take_credit(cx.common)
        {
            frame::write_credit(&frame::Credit { msgs_limit: msgs as u32, bytes_limit }, head);
            self.remember(pk, SentFrame::Session(Fragment::Credit));
        }
        while pk.space(head) >= GRANT_LEN
            && let Some((handle, limit)) = cx.s.take_grant(cx.common)
        {
            frame::write_grant(&frame::Grant { handle, limit }, head);
            self.remember(pk, SentFrame::Session(Fragment::Grant { handle }));
        }
        while pk.space(head) >= RNDV_ABORT_LEN
            && let Some((handle, code)) = cx.s.take_abort()
        {
            frame::write_rndv_abort(&frame::RndvAbort { handle, code }, head);
            self.remember(pk, SentFrame::Session(Fragment::Abort { handle, code }));
        }
        self.put_own_frames(pk, head);
    }

    /// Control frames that no session asks for.
    fn put_own_frames(&mut self, pk: &mut Packet, head: &mut Vec<u8>) {
        if pk.space(head) >= BULK_LEN
            && let Some(f) = self.bulk.as_mut().and_then(|bulk| bulk.frame())
        {
            frame::write_bulk(&f, head);
            self.remember(pk, SentFrame::Bulk);
        }
        while pk.space(head) >= RECOVERED_LEN
            && let Some((message, key, offset, len)) = self.recovered.pop_front()
        {
            let k = if message { DataKey::Message(key) } else { DataKey::Rndv(key) };
            frame::write_recovered(&frame::Recovered { key: k, offset, len }, head);
            self.remember(pk, SentFrame::Recovered { message, key, offset, len });
        }
    }

    fn put_control_messages<P: Payloads>(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, w: &mut Out<'_, P>) {
        while let Some((mseq, m, again)) = cx.s.next_control() {
            let len = m.len;
            if pk.space(w.head) < MSG_HEAD_LEN + m.envelope().len() + len as usize {
                return;
            }
            pk.write |= len > 0 && !m.patient;
            write_message(w, pk, mseq, true, m, 0, len, true);
            cx.s.took_control();
            self.remember(pk, SentFrame::Session(Fragment::Control { mseq }));
            if again {
                count!(self, cx, repairs_sent);
                count!(self, cx, bytes_resent, u64::from(len));
            }
        }
    }

    /// What was lost, oldest first.
    fn put_lost<P: Payloads>(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, w: &mut Out<'_, P>) {
        while let Some(piece) = cx.s.next_lost() {
            let more = cx.s.lost_waiting() > 1 || cx.s.small_waiting() > 0;
            let Some(to) = self.put(cx.s, pk, w, piece.flow, piece.from, piece.to, more, false) else { return };
            count!(self, cx, repairs_sent);
            count!(self, cx, bytes_resent, to - piece.from);
            cx.s.took_lost(to);
        }
    }

    /// Parity over what was sent before.
    fn put_parity<P: Payloads>(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, w: &mut Out<'_, P>) {
        while let Some(g) = self.parity.next() {
            let Some((token, total)) = g.source(cx.s) else {
                self.parity.drop_next();
                continue;
            };
            if pk.space(w.head) < PARITY_HEAD_LEN + g.frag() {
                if w.head.len() <= self.level().frames_offset() {
                    // The packet size shrank meanwhile.
                    self.parity.drop_next();
                    continue;
                }
                return;
            }
            g.write(w.payloads, token, total, w.head);
            self.parity.drop_next();
            self.remember(pk, SentFrame::Once);
            pk.parity = true;
            cx.counters.parity_sent += 1;
        }
    }

    /// While parity is on, fragments keep one length, and acknowledgements do not travel with them:
    /// room for one in each packet would take more of the wire than one that goes alone now and
    /// then.
    fn goes_apart(&self, s: &Session) -> bool {
        let has_long = s.flows_waiting() > 0 || s.lost_waiting() > 0 || self.parity.is_due();
        self.parity.active && has_long && s.small_waiting() == 0
    }

    /// While parity is on, the length of a fragment behind a head of so many bytes: a row of parity
    /// of such fragments fits into a packet too.
    fn fragment_max(&self, pk: &Packet, head: usize) -> usize {
        if self.parity.active {
            pk.limit.saturating_sub(self.level().frames_offset() + head.max(PARITY_HEAD_LEN) + PING_LEN)
        } else {
            usize::from(u16::MAX)
        }
    }

    /// Fresh data: small messages first, unless they had their turn and flows wait.
    fn put_fresh<P: Payloads>(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, w: &mut Out<'_, P>, smalls: bool) {
        let flows_first = self.small_run >= SMALL_RUN_MAX && cx.s.flows_waiting() > 0;
        if flows_first {
            self.put_flows(cx, pk, w);
        }
        if smalls {
            self.put_small(cx, pk, w);
        }
        if !flows_first {
            self.put_flows(cx, pk, w);
        }
    }

    fn put_small<P: Payloads>(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, w: &mut Out<'_, P>) {
        while let Some(piece) = cx.s.next_small() {
            let more = cx.s.small_waiting() > 1 || cx.s.flows_waiting() > 0;
            let Some(to) = self.put(cx.s, pk, w, piece.flow, piece.from, piece.to, more, true) else { return };
            pk.small = true;
            cx.s.took_small(to);
            if to < piece.to {
                return;
            }
        }
    }

    fn put_flows<P: Payloads>(&mut self, cx: &mut Cx<'_>, pk: &mut Packet, w: &mut Out<'_, P>) {
        while let Some(piece) = cx.s.next_flow(Line::Main) {
            let more = cx.s.flows_waiting() > 1;
            let (key, len, patient) = match piece.flow {
                Flow::Message(mseq) => {
                    let Some(m) = cx.s.message(mseq) else { return };
                    (DataKey::Message(mseq), u64::from(m.len), m.patient)
                }
                Flow::Rndv(slot, generation) => {
                    let Some(b) = cx.s.rndv(slot, generation) else { return };
                    (DataKey::Rndv(b.handle), b.len, false)
                }
            };
            self.ack_wanted |= !patient;
            let Some(to) = self.put(cx.s, pk, w, piece.flow, piece.from, piece.to, more, false) else { return };
            self.parity.note(cx.cfg, self.peer.parity_rows, key, (piece.from, to - piece.from), len);
            (pk.flow, pk.flow_len) = (true, len);
            if cx.s.took_flow(Line::Main, to) {
                self.flow_run = 0;
            }
        }
    }

    /// Puts `[from, to)` of a flow, or its beginning, into the packet; returns where it ends.
    #[allow(clippy::too_many_arguments, reason = "one place for all kinds of fragments")]
    fn put<P: Payloads>(
        &mut self,
        s: &Session,
        pk: &mut Packet,
        w: &mut Out<'_, P>,
        flow: Flow,
        from: u64,
        to: u64,
        more: bool,
        whole: bool,
    ) -> Option<u64> {
        match flow {
            Flow::Message(mseq) => {
                let m = s.message(mseq)?;
                self.put_message(pk, w, mseq, m, from as u32, to as u32, more, whole).map(u64::from)
            }
            Flow::Rndv(slot, generation) => {
                let b = s.rndv(slot, generation)?;
                self.put_rndv(pk, w, flow, (b.handle, b.token), from, to, more)
            }
        }
    }

    /// Puts `[from, to)` of a matched message, or its beginning, into the packet; returns where it
    /// ends.
    #[allow(clippy::too_many_arguments, reason = "one place for all kinds of fragments")]
    fn put_message<P: Payloads>(
        &mut self,
        pk: &mut Packet,
        w: &mut Out<'_, P>,
        mseq: u64,
        m: &OutMessage,
        from: u32,
        to: u32,
        more: bool,
        whole: bool,
    ) -> Option<u32> {
        let over = MSG_HEAD_LEN + m.envelope().len();
        let space = pk.space(w.head).checked_sub(over)?;
        let want = (to - from) as usize;
        let max = if whole { usize::from(u16::MAX) } else { self.fragment_max(pk, over) };
        let n = want.min(space).min(max);
        let empty = w.head.len() <= self.level().frames_offset();
        if n < want && (n == 0 || (!empty && (whole || n < FRAGMENT_MIN))) {
            return None;
        }
        write_message(w, pk, mseq, false, m, from, n as u32, more);
        self.remember(pk, SentFrame::Session(Fragment::Message { mseq, offset: from, len: n as u32 }));
        Some(from + n as u32)
    }

    /// The same for rendezvous data.
    #[allow(clippy::too_many_arguments, reason = "as above")]
    fn put_rndv<P: Payloads>(
        &mut self,
        pk: &mut Packet,
        w: &mut Out<'_, P>,
        flow: Flow,
        (handle, token): (u64, u64),
        from: u64,
        to: u64,
        more: bool,
    ) -> Option<u64> {
        let space = pk.space(w.head).checked_sub(RNDV_HEAD_LEN)?;
        let want = usize::try_from(to - from).unwrap_or(usize::MAX);
        let n = want.min(space).min(self.fragment_max(pk, RNDV_HEAD_LEN));
        let empty = w.head.len() <= self.level().frames_offset();
        if n < want && (n == 0 || (!empty && n < FRAGMENT_MIN)) {
            return None;
        }
        frame::write_rndv_head(handle, from, n as u16, w.head);
        w.payload(pk, token, from, n, more);
        let to = from + n as u64;
        self.remember(pk, SentFrame::Session(Fragment::of(flow, from, to)));
        Some(to)
    }
}

/// The slot that the next packet with data to this peer is to wait for. What is short takes no more
/// of a medium than an acknowledgement, and all wait for it: it waits for none.
fn slot(cx: &Cx<'_>) -> Option<Time> {
    cx.common.slot().filter(|_| !cx.s.waits_short(UNSLOTTED_BYTES))
}

/// One MSG frame with its payload.
#[allow(clippy::too_many_arguments, reason = "the fields of a frame")]
pub(crate) fn write_message<P: Payloads>(
    w: &mut Out<'_, P>,
    pk: &mut Packet,
    mseq: u64,
    control: bool,
    m: &OutMessage,
    offset: u32,
    len: u32,
    more: bool,
) {
    let head = MsgHead {
        control,
        stream: if control { 0 } else { m.stream },
        mseq: mseq as u32,
        sseq: m.sseq,
        total_len: m.len,
        offset,
        len: len as u16,
    };
    frame::write_msg_head(&head, m.envelope(), w.head);
    match m.kept().and_then(|kept| kept.get(offset as usize..(offset + len) as usize)) {
        Some(bytes) => w.head.extend_from_slice(bytes),
        None => w.payload(pk, m.token, u64::from(offset), len as usize, more),
    }
}

/// For packets without payload, or whose payload the session keeps.
pub(crate) struct NoPayloads;

impl Payloads for NoPayloads {
    fn read(&self, _token: u64, _offset: u64, _dst: &mut [u8]) {}
}
