//! Paths of one association: each remote address with its round trip, window, MTU and health (spec
//! 8).

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use crate::congestion::{self, Congestion, Pacer};
use crate::delivery::Delivery;
use crate::marks::MarksOut;
use crate::mtu::MtuSearch;
use crate::rtt::{OneWay, Rtt};
use crate::scale::mul_div;
use crate::{Config, Time};

/// A round trip from which on a path is long, nanoseconds: a peer is let in more, and sends more
/// unasked (`spec/protocol.md` 5).
pub const LONG_TRIP_NS: u64 = 1_000_000;
/// What must have come from a peer before it is let in more.
const LONG_FROM_BYTES: u64 = 64 << 10;

/// On short paths not every round trip has an RTT probe that asks: each costs the receiver a
/// packet.
const RTT_PROBE_EVERY_NS: u64 = 250_000;

/// Health of a path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PathState {
    /// Nothing came back from there yet.
    Unvalidated,
    /// Usable.
    Valid,
    /// It fell silent; probed until it answers again.
    Suspect,
}

/// One remote address.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) state: PathState,
    pub(crate) rtt: Rtt,
    pub(crate) one_way: OneWay,
    pub(crate) cc: Box<dyn Congestion>,
    pub(crate) pacer: Pacer,
    pub(crate) mtu: MtuSearch,
    /// What the peer tells of marks.
    pub(crate) marks: MarksOut,
    /// Bytes and packets in flight here.
    pub(crate) in_flight: u64,
    pub(crate) in_flight_packets: u32,
    /// Numbers of packets in flight on this path; `largest_acked` is 0 before the first
    /// acknowledgement.
    pub(crate) next_seq: u32,
    pub(crate) largest_acked: u32,
    /// The first packet of this round trip. Its own round trip tells what queue there was; those
    /// behind it also wait in the queue that the train itself makes.
    rtt_probe: Option<u32>,
    /// Round trip of the last RTT probe that was acknowledged.
    pub(crate) rtt_probe_rtt: u64,
    /// Nothing waits behind what is in flight.
    pub(crate) is_tail: bool,
    /// When an RTT probe last asked for its acknowledgement.
    rtt_probe_at: Time,
    /// Packets later acknowledged before one is lost.
    pub(crate) reorder: u32,
    /// Sequence number at which `reorder` was last changed.
    reorder_at: u32,
    /// When the earliest overtaken packet is lost by time.
    pub(crate) loss_time: Option<Time>,
    /// When the newest packet that was acknowledged had been sent.
    pub(crate) answered: Time,
    /// When the newest packet in flight was sent.
    pub(crate) last_sent: Time,
    /// When data first went into flight without an answer since.
    pub(crate) waiting_since: Time,
    /// Probe timeouts in a row.
    pub(crate) ptos: u32,
    /// The longest of them, nanoseconds.
    pub(crate) pto_max: u64,
    /// When that was asked for last (P-4.27).
    pub(crate) pto_max_at: Time,
    /// When something last came from there.
    pub(crate) heard: Time,
    /// PINGs it is to carry: a probe timeout fired while others were well.
    pub(crate) asks: u8,
    /// When the pacer lets waiting data go.
    pub(crate) held_until: Option<Time>,
    /// What it delivers.
    pub(crate) delivery: Delivery,
    /// It was chosen among several: what goes at once is as much as it delivers until the others
    /// are done, and its last packet is not late before that.
    pub(crate) is_shared: bool,
    /// Bytes of packets sent and received, all in all.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// Of these, what came while bulk data went to the peer.
    pub(crate) bytes_met: u64,
    /// A challenge that is to be answered.
    pub(crate) respond: Option<u64>,
    /// Our outstanding challenge, when it was sent, and when the next one is due.
    pub(crate) challenge: Option<(u64, Time)>,
    pub(crate) next_probe: Time,
    /// It challenged us, and our challenge goes once more, the same.
    pub(crate) asks_again: bool,
    pub(crate) probe_interval: u64,
    /// Challenges answered in a row.
    pub(crate) answers: u32,
    /// Challenges unanswered in a row.
    pub(crate) misses: u32,
    /// Loss measured on this path: exponentially weighted, parts per million.
    pub(crate) loss_ppm: u32,
    /// A train: what is sent from some moment on. When that was, how many of the bytes in flight
    /// then are still to be acknowledged before any of its own, bytes acknowledged of it.
    train_since: Time,
    train_skip: u64,
    train_bytes: u64,
    /// The best rate of trains, bytes per second, fading. Their first byte's way is in it, so that
    /// it is never above the path's rate, whereas what the controller counts in a round is when
    /// acknowledgements come in a heap; and it is also known where no window limits.
    train_rate: u64,
    /// Trains too short for that, one at a time: since when, how many bytes of them, and the rate
    /// of the last [`TURNS_BYTES`], with the silence between them, which the time of longer trains
    /// counts as. It does not fade: silence keeps it below the path's.
    turns_since: Time,
    turns_bytes: u64,
    turns_rate: u64,
}

/// A train of so many packets says something of the path's rate; one of so many bytes has said
/// enough.
const TRAIN_PACKETS: u64 = 5;
const TRAIN_BYTES_MAX: u64 = 1 << 20;
/// So many bytes of short trains, one at a time, have said enough: more than any token bucket on
/// the way lets through at once.
const TURNS_BYTES: u64 = 1 << 20;
/// A longer train is none of these, whatever a packet holds: it nearly fills the wire, and silence
/// is little of its time.
const TURN_BYTES_MAX: u64 = 8 << 10;
/// So few packets in flight do not queue behind each other: smoothed round trips of whole bursts
/// say nothing of them.
const TAIL_PACKETS: u32 = 4;

impl Path {
    pub(crate) fn new(cfg: &Config, now: Time, remote: SocketAddr, local: Option<IpAddr>, max_datagram: u16) -> Self {
        let mtu = MtuSearch::new(cfg, max_datagram);
        let size = u64::from(mtu.size());
        let mut p = Path {
            remote,
            local,
            state: PathState::Unvalidated,
            rtt: Rtt::new(cfg.initial_rtt.as_nanos() as u64),
            one_way: OneWay::default(),
            cc: congestion::make(cfg, size),
            pacer: Pacer::default(),
            mtu,
            marks: MarksOut::default(),
            in_flight: 0,
            in_flight_packets: 0,
            next_seq: 1,
            largest_acked: 0,
            rtt_probe: None,
            rtt_probe_rtt: 0,
            is_tail: false,
            rtt_probe_at: Time::ZERO,
            reorder: cfg.reorder_threshold,
            reorder_at: 0,
            loss_time: None,
            answered: Time::ZERO,
            last_sent: now,
            waiting_since: now,
            ptos: 0,
            pto_max: cfg.pto_max.as_nanos() as u64,
            pto_max_at: Time::ZERO,
            heard: now,
            asks: 0,
            held_until: None,
            delivery: Delivery::default(),
            is_shared: false,
            bytes_sent: 0,
            bytes_received: 0,
            bytes_met: 0,
            respond: None,
            challenge: None,
            next_probe: now,
            asks_again: false,
            probe_interval: cfg.path_probe_min.as_nanos() as u64,
            answers: 0,
            misses: 0,
            loss_ppm: 0,
            train_since: now,
            train_skip: u64::MAX,
            train_bytes: 0,
            train_rate: 0,
            turns_since: now,
            turns_bytes: 0,
            turns_rate: 0,
        };
        p.set_pace(cfg);
        p
    }

    /// Whether it leads to this address, however that is written.
    pub(crate) fn is_to(&self, remote: IpAddr) -> bool {
        self.remote.ip().to_canonical() == remote.to_canonical()
    }

    /// Computes the pace anew from window and round trip.
    pub(crate) fn set_pace(&mut self, cfg: &Config) {
        let burst_min = self.cc.burst_packets() * u64::from(self.mtu.size());
        // Longer queues are the controller's business, and acknowledgements hold the window back by
        // themselves; and a round trip in which the peer's process waited for a core must not make
        // everything slow that comes after.
        let base = self.rtt.base();
        let given = self.cc.noncongestive_ns();
        let aim = base.saturating_add(base / 4 + given).saturating_add(cfg.delay_target.as_nanos() as u64 / 4);
        let rtt = self.rtt.srtt.min(aim);
        self.pacer.set(self.cc.window(), self.cc.pacing_quarters(), rtt, burst_min, cfg.pacing_burst_bytes);
    }

    /// Bytes that may be in flight: the window, and no more than half the receiver's buffer besides
    /// what the wire itself holds.
    pub(crate) fn window(&self, rx_buffer: u64) -> u64 {
        self.cc.window().min(rx_buffer / 2 + self.wire()).max(2 * u64::from(self.mtu.size()))
    }

    /// Whether the window is smaller than that. No window is smaller than two packets, so that of
    /// few bytes nobody need ask.
    #[inline]
    pub(crate) fn leaves_no_room(&self, bytes: u64, rx_buffer: u64) -> bool {
        bytes > 2 * u64::from(self.mtu.size()) && bytes > self.window(rx_buffer)
    }

    /// Bytes that the wire itself holds.
    pub(crate) fn wire(&self) -> u64 {
        mul_div(self.cc.rate(), self.trip_ns(), 1_000_000_000)
    }

    /// Round trip without queues, nanoseconds: the least, and what is there beside it whatever is
    /// sent.
    pub(crate) fn trip_ns(&self) -> u64 {
        self.rtt.base().saturating_add(self.cc.noncongestive_ns())
    }

    /// What it takes to ask the peer, nanoseconds: the round trip without queues, or where bulk
    /// data goes both ways that of what is sent with nothing else in flight.
    pub(crate) fn asking_ns(&self) -> u64 {
        self.trip_ns().max(self.rtt.base().saturating_add(self.cc.alone_ns()))
    }

    /// To ask takes so long that the peer is let in more (P-5.27), and that is known by more than
    /// the first packets, which a host that starts is late with.
    pub(crate) fn is_long(&self) -> bool {
        self.rtt.sampled && self.bytes_received >= LONG_FROM_BYTES && self.asking_ns() >= LONG_TRIP_NS
    }

    /// Probe timeout with back-off.
    pub(crate) fn pto_ns(&self, cfg: &Config, ack_delay_max: u64) -> u64 {
        let var_min = cfg.pto_var_min.as_nanos() as u64;
        let mut one = self.rtt.pto(var_min, ack_delay_max);
        if self.ptos == 0 && self.is_tail && self.loss_ppm > cfg.lossy_ppm {
            let trip = if self.in_flight_packets <= TAIL_PACKETS {
                self.rtt_probe_rtt.max(self.rtt.base())
            } else {
                self.rtt.srtt.max(self.rtt.latest)
            };
            one = one.min(2 * trip + var_min + ack_delay_max);
        }
        (one << self.ptos.min(16)).min(self.pto_max.max(one))
    }

    /// Age at which a packet is lost when a later one was acknowledged (spec 4).
    pub(crate) fn loss_delay(&self, cfg: &Config) -> u64 {
        // Where packets are lost for sure and were not seen to overtake one another, the round trip
        // of what was just acknowledged is what the lost one would have needed.
        let sure = self.loss_ppm > cfg.lossy_ppm && self.reorder <= cfg.reorder_threshold;
        let m = if sure { self.rtt.latest } else { self.rtt.srtt.max(self.rtt.latest) };
        m + m / 8 + cfg.loss_time_extra.as_nanos() as u64
    }

    /// When the probe timeout fires.
    pub(crate) fn pto_at(&self, cfg: &Config, ack_delay_max: u64) -> Option<Time> {
        let drained = if self.is_shared { self.delivery.drained() } else { Time::ZERO };
        (self.in_flight_packets > 0).then(|| self.last_sent.max(drained).plus_ns(self.pto_ns(cfg, ack_delay_max)))
    }

    /// When the probe timeout fires, or it is to be seen whether it does: where it is longer than
    /// usual, because many peers were silent, it is not when they are so no longer.
    #[inline]
    pub(crate) fn pto_due(&self, cfg: &Config, ack_delay_max: u64) -> Option<Time> {
        let at = self.pto_at(cfg, ack_delay_max)?;
        let usual = cfg.pto_max.as_nanos() as u64;
        Some(if self.pto_max > usual { at.min(self.last_sent.max(self.pto_max_at).plus_ns(usual)) } else { at })
    }

    /// A packet goes into flight; returns its number on the path.
    pub(crate) fn on_sent(&mut self, now: Time, size: u64, rx_buffer: u64) -> u32 {
        let was_idle = self.in_flight_packets == 0;
        if was_idle {
            self.waiting_since = now;
            self.rtt_probe = Some(self.next_seq);
            (self.train_since, self.train_skip, self.train_bytes) = (now, 0, 0);
        }
        self.in_flight += size;
        self.in_flight_packets += 1;
        self.last_sent = now;
        self.pacer.on_sent(now, size);
        let limited = self.leaves_no_room(self.in_flight + u64::from(self.mtu.size()), rx_buffer);
        self.cc.on_sent(now, size, limited, was_idle);
        self.delivery.on_sent(now, size, self.in_flight, limited);
        self.next_seq = self.next_seq.wrapping_add(1);
        self.next_seq.wrapping_sub(1)
    }

    /// Whether this packet is the first of its round trip.
    pub(crate) fn is_rtt_probe(&self, seq: u32) -> bool {
        self.rtt_probe == Some(seq)
    }

    /// Whether the packet about to be sent is the first of its round trip, to be acknowledged at
    /// once. After silence a short train does not ask: an answer brings the acknowledgement, and
    /// one that goes before it alone makes the program wait for two packets.
    pub(crate) fn take_rtt_probe(&mut self, now: Time, is_short: bool) -> bool {
        let outstanding = self.rtt_probe.is_some_and(|seq| (self.largest_acked.wrapping_sub(seq) as i32) < 0);
        let asks_nothing = is_short && self.in_flight_packets == 0;
        if outstanding || asks_nothing || now.since_ns(self.rtt_probe_at) < RTT_PROBE_EVERY_NS {
            return false;
        }
        self.rtt_probe = Some(self.next_seq);
        self.rtt_probe_at = now;
        true
    }

    /// A packet left flight.
    pub(crate) fn out_of_flight(&mut self, size: u64) {
        self.in_flight = self.in_flight.saturating_sub(size);
        self.in_flight_packets = self.in_flight_packets.saturating_sub(1);
    }

    /// These bytes arrived.
    pub(crate) fn train_acked(&mut self, now: Time, bytes: u64) {
        let skipped = bytes.min(self.train_skip);
        self.train_skip -= skipped;
        self.train_bytes += bytes - skipped;
        let is_over = self.in_flight_packets == 0 || self.train_bytes >= TRAIN_BYTES_MAX;
        if !is_over {
            return;
        }
        if self.train_bytes >= TRAIN_PACKETS * u64::from(self.mtu.size()) {
            let elapsed = now.since_ns(self.train_since).max(1);
            let rate = mul_div(self.train_bytes, 1_000_000_000, elapsed).min(1 << 50);
            self.train_rate = rate.max(self.train_rate - self.train_rate / 8);
            // With nothing in flight the next begins when something is sent.
            let skip = if self.in_flight_packets == 0 { u64::MAX } else { self.in_flight };
            (self.train_since, self.train_skip, self.train_bytes) = (now, skip, 0);
            return;
        }
        let turn = core::mem::take(&mut self.train_bytes);
        if turn > TURN_BYTES_MAX {
            return;
        }
        self.turns_bytes += turn;
        if self.turns_bytes >= TURNS_BYTES {
            let elapsed = now.since_ns(self.turns_since).max(1);
            self.turns_rate = mul_div(self.turns_bytes, 1_000_000_000, elapsed).min(1 << 50);
            (self.turns_since, self.turns_bytes) = (now, 0);
        }
    }

    /// What the path has been seen to carry of late, whoever limited it, bytes per second; 0 if
    /// unknown.
    pub(crate) fn seen_rate(&self) -> u64 {
        self.train_rate
    }

    /// The same as far as short messages by turns have shown it, and silence between them.
    pub(crate) fn turns_rate(&self) -> u64 {
        self.turns_rate
    }

    /// A loss proved spurious: the packet was overtaken by this many later ones.
    pub(crate) fn on_spurious(&mut self, cfg: &Config, seq: u32, size: u64) {
        let overtaken = self.largest_acked.wrapping_sub(seq) as i32;
        if self.largest_acked > 0 && overtaken > 0 {
            self.reorder = self.reorder.max((overtaken as u32).saturating_add(1).min(cfg.reorder_threshold_max));
        }
        self.reorder_at = self.next_seq;
        self.cc.on_spurious(size);
    }

    /// Every 1024 packets without a spurious loss the threshold comes down by a quarter.
    pub(crate) fn decay_reorder(&mut self, cfg: &Config) {
        if self.reorder > cfg.reorder_threshold && self.next_seq.wrapping_sub(self.reorder_at) > 1024 {
            self.reorder_at = self.next_seq;
            self.reorder = (self.reorder - self.reorder.div_ceil(4)).max(cfg.reorder_threshold);
        }
    }

    /// Updates the measured loss.
    pub(crate) fn note_loss(&mut self, lost: u32, acked: u32) {
        // Weight 1/512 a packet: a window of some hundred packets.
        for _ in 0..lost.min(64) {
            self.loss_ppm += (1_000_000 - self.loss_ppm) / 512;
        }
        let keep = 512u32.saturating_sub(acked.min(256));
        self.loss_ppm = (u64::from(self.loss_ppm) * u64::from(keep) / 512) as u32;
    }

    /// The path works (again).
    pub(crate) fn make_valid(&mut self, cfg: &Config, now: Time) {
        if self.state == PathState::Suspect {
            self.cc.reset();
            self.set_pace(cfg);
        }
        self.state = PathState::Valid;
        self.ptos = 0;
        self.answers = 0;
        self.misses = 0;
        self.probe_interval = cfg.path_probe_max.as_nanos() as u64;
        self.next_probe = now.plus_ns(self.probe_interval);
        self.heard = now;
    }

    /// The path fell silent.
    pub(crate) fn make_suspect(&mut self, cfg: &Config, now: Time) {
        self.state = PathState::Suspect;
        // What it delivered is over; what it will is seen when it is back.
        self.delivery = Delivery::default();
        self.answers = 0;
        self.asks = 0;
        self.held_until = None;
        self.challenge = None;
        self.probe_interval = cfg.path_probe_min.as_nanos() as u64;
        self.next_probe = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-4.17
    #[test]
    fn the_end_of_a_message_on_a_lossy_path_does_not_wait_for_what_a_whole_burst_would_take() {
        let cfg = Config::default();
        let mut p = Path::new(&cfg, Time(1), "10.0.0.1:7".parse().unwrap(), None, 1472);
        for us in [20, 900, 100, 900] {
            p.rtt.sample(Time(1), us * 1000, 0);
        }
        let after_bursts = p.rtt.pto(100_000, 50_000);
        assert!(after_bursts > 1_000_000);
        (p.rtt_probe_rtt, p.is_tail) = (30_000, true);
        p.on_sent(Time(2), 1472, 1 << 20);
        assert_eq!(p.pto_ns(&cfg, 50_000), after_bursts, "no loss seen: nobody hurries");
        p.loss_ppm = 5000;
        assert_eq!(p.pto_ns(&cfg, 50_000), 2 * 30_000 + 150_000);
        p.is_tail = false;
        assert_eq!(p.pto_ns(&cfg, 50_000), after_bursts, "the window is shut: what is in flight queues");
        p.is_tail = true;
        (0..4).for_each(|_| _ = p.on_sent(Time(2), 1472, 1 << 20));
        assert_eq!(p.pto_ns(&cfg, 50_000), after_bursts);
    }

    /// A path of 125 MB/s whose sender hears of what arrived each 3 ms, of all of it at once.
    // spec: L-6.2
    #[test]
    fn acknowledgements_in_a_heap_do_not_make_a_path_fast() {
        const WIRE_NS: u64 = 11_776;
        const HEAP_NS: u64 = 3_000_000;
        for heaps_in_flight in [1, 2] {
            let mut p = Path::new(&Config::default(), Time(0), "10.0.0.1:7".parse().unwrap(), None, 1472);
            let mut sent = alloc::collections::VecDeque::new();
            let mut wire_free = 0;
            for heap in 0..200 {
                let now = Time(heap * HEAP_NS);
                let arrived = sent.iter().filter(|at| **at <= now.0).count();
                for _ in 0..arrived {
                    sent.pop_front();
                    p.out_of_flight(1472);
                    p.train_acked(now, 1472);
                }
                // What was taken for lost and comes after all tells nothing.
                (0..10).for_each(|_| p.train_acked(now, if sent.is_empty() { 1472 } else { 0 }));
                while sent.len() < 250 * heaps_in_flight {
                    p.on_sent(now, 1472, 1 << 24);
                    wire_free = (wire_free + WIRE_NS).max(now.0 + WIRE_NS);
                    sent.push_back(wire_free);
                }
                assert!(p.seen_rate() <= 125_000_000, "{heaps_in_flight} {heap}: {}", p.seen_rate());
            }
            assert!(p.seen_rate() > 80_000_000, "{heaps_in_flight}: {}", p.seen_rate());
        }
    }

    // spec: L-6.2
    #[test]
    fn short_trains_by_turns_tell_a_rate_and_long_ones_another() {
        const PACKET: u64 = 1472;
        let mut p = Path::new(&Config::default(), Time(0), "10.0.0.1:7".parse().unwrap(), None, 1472);
        let mut now = Time(0);
        let mut train = |p: &mut Path, packets: u64, ns| {
            (0..packets).for_each(|_| _ = p.on_sent(now, PACKET, 1 << 20));
            now = now.plus_ns(ns);
            for _ in 0..packets {
                p.out_of_flight(PACKET);
                p.train_acked(now, PACKET);
            }
        };
        // Less than a megabyte says nothing.
        (0..237).for_each(|_| train(&mut p, 3, 15_000));
        assert_eq!((p.turns_rate(), p.seen_rate()), (0, 0));
        train(&mut p, 3, 15_000);
        assert!(p.turns_rate().abs_diff(3 * PACKET * 1_000_000 / 15) < 1_000_000, "{}", p.turns_rate());
        // Silence counts, and long trains are no turns.
        (0..238).for_each(|_| train(&mut p, 3, 30_000));
        (0..100).for_each(|_| train(&mut p, 30, 20_000));
        assert!(p.turns_rate().abs_diff(3 * PACKET * 1_000_000 / 30) < 1_000_000, "{}", p.turns_rate());
        assert_eq!(p.seen_rate(), 30 * PACKET * 1_000_000 / 20);
    }

    // spec: L-6.2
    #[test]
    fn a_few_large_packets_are_no_short_train() {
        let mut p = Path::new(&Config::default(), Time(0), "10.0.0.1:7".parse().unwrap(), None, 8972);
        assert!(p.mtu.on_probe_acked(8972));
        for (bytes, tells) in [(8 << 10, true), ((8 << 10) + 1, false)] {
            p.turns_rate = 0;
            for turn in 0..200 {
                p.on_sent(Time(turn * 20_000), bytes, 1 << 20);
                p.out_of_flight(bytes);
                p.train_acked(Time(turn * 20_000 + 10_000), bytes);
            }
            assert_eq!(p.turns_rate() > 0, tells, "{bytes} bytes");
        }
    }

    // spec: P-4.18
    #[test]
    fn loss_by_time_goes_by_the_latest_round_trip_where_nothing_overtakes() {
        let cfg = Config::default();
        let mut p = Path::new(&cfg, Time(1), "10.0.0.1:7".parse().unwrap(), None, 1472);
        for us in [900, 900, 80] {
            p.rtt.sample(Time(1), us * 1000, 0);
        }
        let by_srtt = p.rtt.srtt * 9 / 8 + 50_000;
        assert_eq!(p.loss_delay(&cfg), by_srtt);
        p.loss_ppm = 5000;
        assert_eq!(p.loss_delay(&cfg), 80_000 * 9 / 8 + 50_000);
        p.reorder += 1;
        assert_eq!(p.loss_delay(&cfg), by_srtt);
    }
}
