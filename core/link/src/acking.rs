//! Acknowledgements that came in, loss detection, probe timeouts, and what becomes of lost frames
//! (spec 4).

use alloc::vec::Vec;
use core::ops::Range;

use smallvec::SmallVec;
use weir_wire::frame::AckTimes;

use crate::association::{Association, Cx, State};
use crate::congestion::{Acked, Came};
use crate::counters::count;
use crate::paths::{Path, PathState};
use crate::recovery::{IN_FLIGHT, LOST, REQUEUED, RTT_PROBE, Sent, SentFrame};
use crate::rtt::clock_us;
use crate::{DataKey, Event, Time};

/// Packets a probe timeout sends.
const PROBES: u8 = 2;
/// A peer is silent that left so many in a row unanswered.
const SILENT_PTOS: u32 = 6;

/// What one acknowledgement did to one path.
#[derive(Copy, Clone, Default)]
struct Sum {
    bytes: u64,
    packets: u32,
    /// Newest packet: path number, when sent, whether it is the frame's largest.
    seq: u32,
    at: Time,
    /// When the oldest was sent.
    oldest_at: Time,
    largest: bool,
    /// The first of a round trip is among them.
    rtt_probe: bool,
    touched: bool,
}

/// What a round trip says for certain, when the processes of both sides may have been late by
/// `late_ns` together: all of it if that is little, or if even with what was late there is hardly a
/// queue. All in nanoseconds.
fn certain_rtt(base: u64, rtt: u64, late_ns: u64, target: u64) -> Option<u64> {
    (late_ns <= target / 4 || rtt <= base.saturating_add(target / 2)).then_some(rtt)
}

impl Association {
    /// An ACK frame: `ranges` `[lo, hi)` from the highest down.
    #[inline]
    pub(crate) fn on_ack(
        &mut self,
        cx: &mut Cx<'_>,
        mut ranges: impl Iterator<Item = (u64, u64)> + Clone,
        times: AckTimes,
        own_receiver_delay_ns: u32,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        let all = ranges.clone();
        if let (Some((lo, hi)), None) = (ranges.next(), ranges.next())
            && self.rec.is_in_order(lo, hi)
            && let Some((oldest, path)) = self.rec.oldest()
            && (hi == oldest + 1 || self.paths.len() == 1)
            && !cx.is_plain()
        {
            self.on_ack_in_order(cx, oldest..hi, path, (times, own_receiver_delay_ns), events);
            return Ok(());
        }
        self.on_any_ack(cx, all, times, own_receiver_delay_ns, events)
    }

    /// As nearly always: acknowledged is what was sent by one path, up to some packet. Nothing was
    /// overtaken, and nothing else is to be forgotten. Does what [`Self::on_any_ack`] would.
    #[inline(never)]
    fn on_ack_in_order(
        &mut self,
        cx: &mut Cx<'_>,
        packets: Range<u64>,
        path: u8,
        (times, own_receiver_delay_ns): (AckTimes, u32),
        events: &mut Vec<Event>,
    ) {
        #[cfg(test)]
        {
            self.acks_in_order += 1;
        }
        count!(self, cx, acks_received);
        let mut sum = Sum::default();
        let end = packets.end;
        for pn in packets {
            let Some(s) = self.rec.take_oldest() else { break };
            self.add_acked(cx, &s, pn + 1 == end, &mut sum);
            for _ in 0..s.frames {
                match self.rec.oldest_frame() {
                    Some(SentFrame::Session(f)) => {
                        if let Some(token) = cx.s.arrived(cx.common, f) {
                            events.push(Event::Sent { peer: self.id, token });
                        }
                    }
                    Some(&f) => self.frame_acked(cx, s.path, f, events),
                    None => {}
                }
                self.rec.forget_frame();
            }
        }
        if sum.touched {
            self.path_acked(cx, usize::from(path), &sum, times, own_receiver_delay_ns);
        }
        if self.is_silent {
            self.note_silence(cx);
        }
        for p in &mut self.paths {
            p.loss_time = None;
        }
        if !self.rec.took_all(end) {
            self.trim(cx);
        }
    }

    #[inline(never)]
    fn on_any_ack(
        &mut self,
        cx: &mut Cx<'_>,
        ranges: impl Iterator<Item = (u64, u64)>,
        times: AckTimes,
        own_receiver_delay_ns: u32,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        let mut fresh: SmallVec<[(u64, u64); 8]> = SmallVec::new();
        let mut largest_end = 0;
        for (lo, hi) in ranges {
            largest_end = largest_end.max(hi);
            if !self.rec.acknowledge(lo, hi, &mut fresh) {
                return Err("acknowledgement of a packet never sent");
            }
        }
        count!(self, cx, acks_received);
        if fresh.is_empty() {
            return Ok(());
        }
        let mut sums = [Sum::default(); crate::config::PATHS_MAX];
        for (lo, hi) in fresh {
            for pn in lo..hi {
                self.packet_acked(cx, pn, pn + 1 == largest_end, &mut sums, events);
            }
        }
        for (i, s) in sums.iter().enumerate().take(self.paths.len()) {
            if s.touched {
                self.path_acked(cx, i, s, times, own_receiver_delay_ns);
            }
        }
        if self.is_silent {
            self.note_silence(cx);
        }
        self.detect_loss(cx);
        self.trim(cx);
        Ok(())
    }

    /// Forgets what was settled, and what is lost so long that nobody acknowledges it any more.
    fn trim(&mut self, cx: &Cx<'_>) {
        let pto = |p: &Path| p.rtt.pto(cx.cfg.pto_var_min.as_nanos() as u64, self.ack_delay_max());
        let keep = 2 * self.paths.iter().map(pto).max().unwrap_or(0);
        self.rec.trim(cx.now, keep);
    }

    fn packet_acked(&mut self, cx: &mut Cx<'_>, pn: u64, largest: bool, sums: &mut [Sum], events: &mut Vec<Event>) {
        let Some(s) = self.rec.settle(pn, 0) else { return };
        let Some(sum) = sums.get_mut(usize::from(s.path)) else { return };
        self.add_acked(cx, &s, largest, sum);
        for i in 0..s.frames {
            if let Some(f) = self.rec.frame(&s, i) {
                self.frame_acked(cx, s.path, f, events);
            }
        }
    }

    /// A packet was acknowledged: it leaves flight, and is added to what the acknowledgement did to
    /// its path.
    #[inline(always)]
    fn add_acked(&mut self, cx: &mut Cx<'_>, s: &Sent, largest: bool, sum: &mut Sum) {
        let Some(path) = self.paths.get_mut(usize::from(s.path)) else { return };
        if s.flags & LOST != 0 {
            count!(self, cx, losses_spurious);
            path.on_spurious(cx.cfg, s.seq, u64::from(s.size));
        }
        if s.flags & (IN_FLIGHT | LOST) != 0 {
            if s.flags & IN_FLIGHT != 0 {
                path.out_of_flight(u64::from(s.size));
            }
            path.mtu.on_acked(s.size);
            sum.bytes += u64::from(s.size);
            sum.packets += 1;
            sum.rtt_probe |= s.flags & RTT_PROBE != 0;
            sum.oldest_at = if sum.touched { sum.oldest_at.min(s.at) } else { s.at };
            if !sum.touched || s.seq.wrapping_sub(sum.seq) as i32 > 0 {
                sum.seq = s.seq;
                sum.at = s.at;
                sum.largest = largest;
            }
            sum.touched = true;
        }
    }

    fn frame_acked(&mut self, cx: &mut Cx<'_>, path: u8, f: SentFrame, events: &mut Vec<Event>) {
        let done = match f {
            SentFrame::Session(f) => cx.s.arrived(cx.common, &f),
            SentFrame::MtuProbe { size } => {
                if let Some(p) = self.paths.get_mut(usize::from(path))
                    && p.mtu.on_probe_acked(size)
                {
                    p.cc.on_mtu(u64::from(size));
                    p.set_pace(cx.cfg);
                }
                self.set_piece_max(cx.s);
                None
            }
            SentFrame::Bulk | SentFrame::Once | SentFrame::Recovered { .. } => None,
        };
        if let Some(token) = done {
            events.push(Event::Sent { peer: self.id, token });
        }
    }

    /// The other side restored a range by itself.
    pub(crate) fn on_recovered(
        &mut self,
        cx: &mut Cx<'_>,
        message: bool,
        key: u64,
        offset: u64,
        len: u16,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        let key = if message { DataKey::Message(key) } else { DataKey::Rndv(key) };
        if let Some(token) = cx.s.on_restored(cx.common, key, offset, u32::from(len))? {
            events.push(Event::Sent { peer: self.id, token });
        }
        Ok(())
    }

    fn path_acked(&mut self, cx: &mut Cx<'_>, i: usize, s: &Sum, times: AckTimes, own_receiver_delay_ns: u32) {
        // Of one path nobody asks what it delivers.
        let has_several = self.paths.len() > 1;
        let came = Came {
            met: self.paths[i].bytes_met,
            peer: self.paths.iter().map(|p| p.bytes_received).sum(),
            all: cx.counters.bytes_received,
        };
        let path = &mut self.paths[i];
        let (mut certain, mut whole_ns) = (None, 0);
        if s.largest {
            let raw = cx.now.since_ns(s.at);
            path.rtt.sample(cx.now, raw, u64::from(times.delay_ns));
            let there_ns = path.one_way.sample(cx.now, clock_us(s.at), times.read_us);
            let target = cx.cfg.delay_target.as_nanos() as u64 + path.rtt.base() / 16;
            if s.rtt_probe {
                path.rtt_probe_rtt = raw;
            }
            let late_ns = u64::from(times.receiver_delay_us) * 1000 + u64::from(own_receiver_delay_ns);
            whole_ns = raw.saturating_sub(late_ns);
            let on = cx.cfg.mechanisms;
            if s.rtt_probe || !on.rtt_probes {
                let base = path.rtt.base();
                let there = if on.one_way_delay { base.saturating_add(there_ns) } else { u64::MAX };
                certain = certain_rtt(base, path.rtt.latest.min(there), late_ns, target);
            }
        }
        if path.largest_acked == 0 || s.seq.wrapping_sub(path.largest_acked) as i32 > 0 {
            path.largest_acked = s.seq;
        }
        path.answered = path.answered.max(s.at);
        path.ptos = 0;
        path.waiting_since = cx.now;
        path.note_loss(0, s.packets);
        path.train_acked(cx.now, s.bytes);
        cx.outflow.on_acked(cx.now, u64::from(own_receiver_delay_ns), s.bytes);
        let cuts = path.cc.marked_rounds();
        if has_several {
            let is_idle = path.in_flight_packets == 0;
            path.delivery.on_ack(s.bytes, s.largest.then_some(times.read_us), u64::from(path.mtu.size()), is_idle);
        }
        path.cc.on_ack(&Acked {
            now: cx.now,
            bytes: s.bytes,
            packets: s.packets,
            marked: path.marks.take_fresh(),
            rtt_ns: certain,
            whole_rtt_ns: whole_ns,
            base_ns: path.rtt.base(),
            newest_seq: s.seq,
            sent_seq: path.next_seq.wrapping_sub(1),
            sent_at: s.at,
            oldest_sent_at: s.oldest_at,
            mtu: u64::from(path.mtu.size()),
            came,
        });
        let cuts = path.cc.marked_rounds() - cuts;
        path.decay_reorder(cx.cfg);
        path.set_pace(cx.cfg);
        count!(self, cx, marks_windows, cuts);
        let ack_delay = self.ack_delay_max();
        let path = &mut self.paths[i];
        if i == usize::from(self.primary) {
            let min_rtt = cx.cfg.parity_min_rtt.as_nanos() as u64;
            self.parity
                .set_active(cx.cfg.parity && path.loss_ppm > cx.cfg.parity_min_loss_ppm && path.rtt.base() > min_rtt);
        }
        let settle = |path: &Path| 2 * path.rtt.pto(cx.cfg.pto_var_min.as_nanos() as u64, ack_delay);
        if path.mtu.is_suspect() && path.mtu.test(cx.now, settle(path), cx.cfg) {
            cx.counters.mtu_black_holes += 1;
            path.cc.on_mtu(u64::from(path.mtu.size()));
            path.set_pace(cx.cfg);
            self.set_piece_max(cx.s);
        }
        self.set_round_trip(cx.s);
        if self.path().is_some_and(Path::is_long) {
            cx.s.path_is_long(cx.common);
        }
    }

    /// Declares lost what was overtaken by enough later packets, or long enough ago (spec 4).
    pub(crate) fn detect_loss(&mut self, cx: &mut Cx<'_>) {
        for p in &mut self.paths {
            p.loss_time = None;
        }
        let mut lost: SmallVec<[u64; 32]> = SmallVec::new();
        let (paths, cfg) = (&mut self.paths, cx.cfg);
        self.rec.overtaken(|pn, s| {
            let Some(p) = paths.get_mut(usize::from(s.path)) else { return };
            let over = p.largest_acked.wrapping_sub(s.seq) as i32;
            if p.largest_acked == 0 || over <= 0 {
                return;
            }
            let at = s.at.plus_ns(p.loss_delay(cfg));
            if over as u32 >= p.reorder || at <= cx.now {
                lost.push(pn);
            } else {
                p.loss_time = Some(p.loss_time.map_or(at, |t| t.min(at)));
            }
        });
        if !lost.is_empty() {
            self.lose(cx, &lost, true);
        }
    }

    /// These packets are lost: out of flight, and what they carried is queued again.
    pub(crate) fn lose(&mut self, cx: &mut Cx<'_>, lost: &[u64], congestion: bool) {
        let mut per_path = [(0u64, 0u32, Time::ZERO); crate::config::PATHS_MAX];
        for &pn in lost {
            let Some(s) = self.rec.settle(pn, LOST | REQUEUED) else { continue };
            let i = usize::from(s.path);
            let Some(p) = self.paths.get_mut(i) else { continue };
            p.out_of_flight(u64::from(s.size));
            if p.in_flight_packets == 0 {
                p.delivery.breaks_off();
            }
            per_path[i].0 += u64::from(s.size);
            per_path[i].1 += 1;
            per_path[i].2 = per_path[i].2.max(s.at);
            count!(self, cx, packets_lost);
            if congestion {
                p.mtu.on_lost(cx.now, s.size);
            }
            if s.flags & REQUEUED == 0 {
                for k in 0..s.frames {
                    if let Some(f) = self.rec.frame(&s, k) {
                        self.requeue(cx, f);
                    }
                }
            }
        }
        if congestion {
            for (p, (bytes, packets, at)) in self.paths.iter_mut().zip(per_path) {
                if packets > 0 {
                    p.note_loss(packets, 0);
                    p.cc.on_loss(cx.now, bytes, packets, at);
                    p.set_pace(cx.cfg);
                }
            }
        }
    }

    /// What a lost packet carried is to be sent again, as far as it still matters.
    fn requeue(&mut self, cx: &mut Cx<'_>, f: SentFrame) {
        match f {
            SentFrame::Session(f) => cx.s.lost(f),
            SentFrame::Bulk => {
                if let Some(bulk) = self.bulk.as_mut() {
                    bulk.say_again(cx.now, self.peer.connects);
                }
            }
            SentFrame::Recovered { message, key, offset, len } => self.recovered.push_back((message, key, offset, len)),
            SentFrame::Once | SentFrame::MtuProbe { .. } => {}
        }
    }

    /// Timers of loss and probe timeout.
    pub(crate) fn on_loss_timers(&mut self, cx: &mut Cx<'_>) {
        if self.paths.iter().any(|p| p.loss_time.is_some_and(|t| t <= cx.now)) {
            self.detect_loss(cx);
        }
        let ack_delay = self.ack_delay_max();
        for i in 0..self.paths.len() {
            let p = &mut self.paths[i];
            if p.pto_max > cx.cfg.pto_max.as_nanos() as u64 {
                (p.pto_max, p.pto_max_at) = (cx.openings.pto_max_ns(cx.cfg), cx.now);
            }
            let (sent, fired) = (p.last_sent, p.pto_at(cx.cfg, ack_delay).is_some_and(|t| t <= cx.now));
            if fired {
                p.ptos += 1;
                (p.pto_max, p.pto_max_at) = (cx.openings.pto_max_ns(cx.cfg), cx.now);
                cx.counters.probe_timeouts += 1;
                p.cc.on_timeout(cx.now, p.ptos);
                if p.ptos >= cx.cfg.path_suspect_ptos {
                    // (One may be that of a slow path whose first train is under way.)
                    p.delivery.breaks_off();
                }
                p.set_pace(cx.cfg);
                p.last_sent = cx.now;
            }
            let waited = cx.now.since_ns(p.waiting_since);
            let many = p.ptos >= cx.cfg.path_suspect_ptos && waited >= cx.cfg.path_suspect_min.as_nanos() as u64;
            let silent = p.in_flight_packets > 0 && (many || waited >= cx.cfg.path_suspect_after.as_nanos() as u64);
            if silent {
                p.waiting_since = cx.now;
                if p.state == PathState::Valid && self.fail_over(cx, i) {
                    continue;
                }
            }
            if fired {
                self.note_silence(cx);
                self.probe(cx, i as u8, sent);
            }
        }
    }

    /// Tells the endpoint whether this peer leaves several probes in a row unanswered, if that has
    /// changed.
    pub(crate) fn note_silence(&mut self, cx: &mut Cx<'_>) {
        // Who has a path that answers is not.
        let leaves_probes = self.paths.iter().any(|p| p.ptos >= SILENT_PTOS);
        let is_silent = self.state == State::Up && leaves_probes && !self.paths.iter().any(Path::is_well);
        if is_silent != self.is_silent {
            self.is_silent = is_silent;
            cx.openings.silent(is_silent);
        }
    }

    /// Sends the oldest unacknowledged data of a path again, whatever the window says; all of it,
    /// if another path brought an answer to something sent after the newest here, at `sent`.
    fn probe(&mut self, cx: &mut Cx<'_>, path: u8, sent: Time) {
        let other = self.paths.iter().enumerate().any(|(k, p)| k != usize::from(path) && p.answered > sent);
        let most = if other && self.has_other(cx.cfg, usize::from(path)) { usize::MAX } else { usize::from(PROBES) };
        let mut oldest: SmallVec<[u64; 2]> = SmallVec::new();
        self.rec.in_flight(|pn, s| {
            if s.path == path && s.flags & REQUEUED == 0 {
                oldest.push(pn);
            }
            oldest.len() < most
        });
        for pn in oldest {
            let Some(s) = self.rec.get(pn).copied() else { continue };
            self.rec.mark(pn, REQUEUED);
            for k in 0..s.frames {
                if let Some(f) = self.rec.frame(&s, k) {
                    self.requeue(cx, f);
                }
            }
        }
        if self.has_other(cx.cfg, usize::from(path)) {
            // What it was to carry goes by the others, and it is asked whether it carries anything.
            if let Some(p) = self.paths.get_mut(usize::from(path)) {
                p.asks = PROBES;
            }
            return;
        }
        // Something must elicit an acknowledgement even if all of that was settled meanwhile.
        self.ping = true;
        self.probes = PROBES;
        self.probe_path = path;
    }

    /// Moves everything from path `i` to the next valid one, if there is one.
    pub(crate) fn fail_over(&mut self, cx: &mut Cx<'_>, i: usize) -> bool {
        let other = self.paths.iter().enumerate().find(|(k, p)| *k != i && p.state == PathState::Valid).map(|(k, _)| k);
        let Some(other) = other else { return false };
        self.paths[i].make_suspect(cx.cfg, cx.now);
        let mut all = Vec::new();
        self.rec.in_flight(|pn, s| {
            if usize::from(s.path) == i {
                all.push(pn);
            }
            true
        });
        self.lose(cx, &all, false);
        self.stripe = Default::default();
        if usize::from(self.primary) == i {
            self.primary = other as u8;
            self.set_piece_max(cx.s);
            self.set_round_trip(cx.s);
            count!(self, cx, failovers);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-4.12
    #[test]
    fn a_round_trip_of_late_processes_says_what_is_certain_of_it() {
        // Least 100 us, target 300 us; in us: the round trip, how late they were, what is certain.
        for (rtt, late, certain) in
            [(900, 75, Some(900)), (250, 200, Some(250)), (250, 2000, Some(250)), (260, 200, None), (900, 600, None)]
        {
            let got = certain_rtt(100_000, rtt * 1000, late * 1000, 300_000);
            assert_eq!(got.map(|ns| ns / 1000), certain, "{rtt} us, late by {late}");
        }
    }
}
