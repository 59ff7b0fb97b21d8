//! The default controller: aims at a small queueing delay and tolerates random loss (spec 6).

use super::both_ways::BothWays;
use super::marks::Marks;
use super::noncongestive::{Next, NonCongestive, Round};
use super::{Acked, Congestion};
use crate::scale::mul_div;
use crate::{Config, Mechanisms, Time};

/// Rounds with fewer packets than this share their loss statistics with the next: one packet of ten
/// is not "10 % loss".
const LOSS_SAMPLE_PACKETS: u64 = 32;
/// ... unless this many were lost.
const LOSS_SAMPLE_LOST: u64 = 4;
/// Loss that counts beside a standing queue, and loss that counts alone: a switch of little memory
/// drops before a queue shows.
const LOSS_WITH_QUEUE_PERCENT: u64 = 2;
const LOSS_ALONE_PERCENT: u64 = 10;
/// What such a loss leaves of the window: as much as CUBIC leaves (RFC 9438 4.6).
const LOSS_KEEPS: (u64, u64) = (7, 10);
/// How strongly a delay above the target lowers the window, in 1/1024: x (1 - 0.8 (d - T)/d), as
/// Swift does (SIGCOMM 2020) ...
const DELAY_CUT: u64 = 819;
/// ... and what it leaves at least, half, as there.
const DELAY_KEEPS: u64 = 512;
/// Growth in a round without a queue, at most: this part of the window, so that what a loss took is
/// back in some six round trips.
const GROWTH_PART: u64 = 16;
/// Slow start is over when so many rounds in a row were no faster by this part: one may have been
/// held up by a host.
const FLAT_ROUNDS_MAX: u32 = 2;
const FASTER_PART: u64 = 4;
/// What a stalled round takes from the measured rate at most: one must not hide what the path can
/// do.
const RATE_FADES_PART: u64 = 8;
/// Loss in a round from which on bursts are taken for its cause: random loss seldom takes so much
/// of one.
const BURST_LOSS_PERCENT: u64 = 6;
/// Growth of the burst in a round with less.
const BURST_GROWTH_PART: u64 = 8;
/// Most packets that leave at once: 370 KB, so that a message of 300 KB may go in one train where
/// the path takes it.
const BURST_MAX: u64 = 256;
/// A delay of this part of the target is none: what is marked then is not marked for a queue.
const NO_QUEUE_PART: u64 = 16;
/// The target has this part of the least round trip.
const BASE_PART: u64 = 16;
/// A window of so many packets or fewer bears twice the queueing delay of a large one.
const SMALL_PACKETS: u64 = 4;

/// Where the receiver's grants bound the queue a window bears so many times the delay: 4 ms, what a
/// gigabit needs for twice the budget of grants. Less than half of it (2 ms, the time of a full
/// interface queue of Linux's default) costs a tenth of the rate where acknowledgements come back
/// behind the receiver's own data.
const GRANTED_TARGETS: u64 = 13;

/// State of one path.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    window: u64,
    slow_start: bool,
    /// A round ends when this path sequence number is acknowledged.
    round_end: u32,
    round_started: Time,
    round_bytes: u64,
    round_min_rtt: u64,
    /// Delay of the round before, nanoseconds.
    last_delay: Option<u64>,
    round_limited: bool,
    noncongestive: NonCongestive,
    /// Loss statistics, packets.
    acked: u64,
    lost: u64,
    /// Best delivery rate of the last rounds, bytes per second, and rounds without growth.
    rate: u64,
    best_rate: u64,
    flat_rounds: u32,
    /// Packets that may leave at once: an eighth more after each round without notable loss, up to
    /// [`BURST_MAX`]; half after a round with.
    burst: u64,
    burst_min: u64,
    /// When the first probe timeout of a row fired; window, slow start and best rate before they
    /// were taken back.
    timeout_at: Time,
    before_timeout: Option<(u64, bool, u64)>,
    marks: Marks,
    mtu: u64,
    target_ns: u64,
    /// The receiver's grants bound the queue.
    granted: bool,
    both_ways: BothWays,
    initial_packets: u64,
    min_packets: u64,
    /// While no queue shows: nanoseconds of round trip for one packet more than the least, and the
    /// most packets.
    quiet_every_ns: u64,
    quiet_max: u64,
    max: u64,
    mechanisms: Mechanisms,
}

impl Target {
    pub(crate) fn new(cfg: &Config, mtu: u64) -> Self {
        Target {
            window: u64::from(cfg.initial_window_packets) * mtu,
            slow_start: true,
            round_end: 0,
            round_started: Time::ZERO,
            round_bytes: 0,
            round_min_rtt: u64::MAX,
            last_delay: None,
            round_limited: false,
            noncongestive: NonCongestive::default(),
            acked: 0,
            lost: 0,
            rate: 0,
            best_rate: 0,
            flat_rounds: 0,
            burst: u64::from(cfg.pacing_burst_packets),
            burst_min: u64::from(cfg.pacing_burst_packets),
            timeout_at: Time::ZERO,
            before_timeout: None,
            marks: Marks::default(),
            mtu,
            target_ns: cfg.delay_target.as_nanos() as u64,
            granted: false,
            both_ways: BothWays::default(),
            initial_packets: u64::from(cfg.initial_window_packets),
            min_packets: u64::from(cfg.min_window_packets),
            quiet_every_ns: (cfg.quiet_window_interval.as_nanos() as u64).max(1),
            quiet_max: u64::from(cfg.quiet_window_packets_max),
            max: cfg.max_window_bytes,
            mechanisms: cfg.mechanisms,
        }
    }

    fn clamp(&mut self) {
        self.window = self.window.clamp(self.min_packets * self.mtu, self.max);
    }

    /// Loss of the last rounds in percent, if enough packets were seen to speak of a rate; starts
    /// the next sample.
    fn take_loss_percent(&mut self) -> u64 {
        let all = self.acked + self.lost;
        if all < LOSS_SAMPLE_PACKETS && self.lost < LOSS_SAMPLE_LOST {
            return 0;
        }
        let percent = self.lost * 100 / all;
        self.acked = 0;
        self.lost = 0;
        percent
    }

    /// The queueing delay this window aims at: T (1 + sqrt(4 / packets)), 2 T at the most. Flows
    /// that share a queue see the same delay; were it the same target for all, whoever came late
    /// would stay small for ever (as Swift scales its target by the flow's window, SIGCOMM 2020).
    fn own_target(&self, base_ns: u64) -> u64 {
        let target = self.large_target(base_ns, self.granted || self.both_ways.is_on());
        if !self.mechanisms.small_window_targets {
            return target;
        }
        let packets = (self.window / self.mtu).max(SMALL_PACKETS);
        target + target * SMALL_PACKETS.isqrt() / packets.isqrt()
    }

    /// The queueing delay that a large window aims at; `bound`: something else bounds the queue.
    fn large_target(&self, base_ns: u64, bound: bool) -> u64 {
        let bears = if bound { self.target_ns * GRANTED_TARGETS } else { self.target_ns };
        bears + base_ns / BASE_PART
    }

    fn end_round(&mut self, a: &Acked) {
        let elapsed = a.now.since_ns(self.round_started).max(1);
        let rate = mul_div(self.round_bytes, 1_000_000_000, elapsed).min(1 << 50);
        let delay =
            if self.round_min_rtt == u64::MAX { None } else { Some(self.round_min_rtt.saturating_sub(a.base_ns)) };
        let loss = self.take_loss_percent();
        // A switch's buffer that a burst overflows drops a good part of it; random loss rarely
        // takes so much of one round.
        let burst =
            if loss >= BURST_LOSS_PERCENT { self.burst / 2 } else { self.burst + self.burst / BURST_GROWTH_PART };
        let most = if self.mechanisms.learnt_bursts { BURST_MAX } else { self.burst_min };
        let before = self.noncongestive.window_before();
        // A window of two packets tries no burst, and no rate.
        if before.is_none() {
            self.burst = burst.clamp(self.burst_min, most.max(self.burst_min));
        }
        if self.round_limited && before.is_none() {
            self.rate = rate.max(self.rate - self.rate / RATE_FADES_PART);
        }
        let target = self.own_target(a.base_ns);
        // A queue lasts; a sender that lost its core between reading the clock and sending makes
        // one round look long.
        if self.both_ways.is_on() {
            // The window bears it, and nobody tries whether it is still there.
            self.noncongestive.forget();
        }
        let whole = delay.map(|d| d.min(self.last_delay.unwrap_or(target / 2)));
        let lasting = whole.map(|d| d.saturating_sub(self.noncongestive.noncongestive_ns()));
        let (own, began) = (self.window, before.unwrap_or(self.window));
        if self.slow_start {
            self.end_slow_start_round(a, rate, lasting, loss, target);
        } else {
            if before.is_some() {
                self.end_experiment_if_lossy(loss);
            } else {
                self.adjust(lasting, loss, target);
            }
            if self.mechanisms.non_congestive_delay {
                // Both ways a window bears more than jitter, and an experiment would hold up the
                // other direction's acknowledgements.
                let is_full = self.round_limited && !self.both_ways.is_on();
                let target_ns = self.large_target(a.base_ns, self.granted);
                self.judge(&Round { now: a.now, delay_ns: delay, is_full, target_ns, window: began });
            }
        }
        let is_least = own <= self.min_packets * self.mtu;
        let no_queue = is_least && whole.is_some_and(|d| d <= target / NO_QUEUE_PART);
        if let Some(kept) = self.marks.end_round(a.now, no_queue) {
            // No growth after marks, and no more than they leave of what the round began with.
            self.slow_start = false;
            let window = self.noncongestive.end().unwrap_or(self.window);
            self.window = window.min((began * kept).div_ceil(Marks::ONE));
        } else if lasting.is_some_and(|d| d <= target / 2) && self.noncongestive.window_before().is_none() {
            // Loss without a queue is mostly not of this window's making: to shrink further helps
            // nobody and takes as many round trips as packets.
            let quiet = (self.min_packets + a.base_ns / self.quiet_every_ns).min(self.quiet_max);
            self.window = self.window.max(quiet * self.mtu);
        }
        self.last_delay = delay;
        self.clamp();
        self.round_end = a.sent_seq.wrapping_add(1);
        self.round_started = a.now;
        self.round_bytes = 0;
        self.round_min_rtt = u64::MAX;
        self.round_limited = false;
    }

    /// Ends an experiment that loses so much: what it began with is judged in its place.
    fn end_experiment_if_lossy(&mut self, loss: u64) {
        if loss > LOSS_ALONE_PERCENT
            && let Some(before) = self.noncongestive.end()
        {
            self.window = before * LOSS_KEEPS.0 / LOSS_KEEPS.1;
        }
    }

    /// Tries whether the delay is of this window's making; goes back to where it was, and if it is
    /// not, looks for the rate as at the beginning.
    fn judge(&mut self, round: &Round) {
        match self.noncongestive.on_round(round) {
            None => {}
            Some(Next::Least) => self.window = self.min_packets * self.mtu,
            Some(Next::Back(window) | Next::Given { window, is_known: true }) => self.window = window,
            Some(Next::Given { window, is_known: false }) => {
                (self.window, self.slow_start, self.best_rate, self.flat_rounds) = (window, true, 0, 0);
            }
        }
    }

    fn end_slow_start_round(&mut self, a: &Acked, rate: u64, delay: Option<u64>, loss: u64, target: u64) {
        // Only a round that moved the window it began with (half of what it has become) tells
        // whether more would be faster: others ended with the message.
        if self.round_limited && self.round_bytes >= self.window * 3 / 8 {
            if rate > self.best_rate + self.best_rate / FASTER_PART {
                self.best_rate = rate;
                self.flat_rounds = 0;
            } else {
                self.flat_rounds += 1;
            }
        }
        // The delay of a round that the window did not limit is of others' making.
        let queue = self.round_limited && delay.is_some_and(|d| d > target / 2);
        if queue || loss > LOSS_ALONE_PERCENT || self.flat_rounds >= FLAT_ROUNDS_MAX {
            self.slow_start = false;
            let best = self.best_rate.max(rate);
            if best > 0 {
                let round_trip = a.base_ns + self.noncongestive.noncongestive_ns() + target / 2;
                let bdp = mul_div(best, round_trip, 1_000_000_000);
                self.window = self.window.min(bdp.max(self.initial_packets * self.mtu));
            }
        }
    }

    fn adjust(&mut self, delay: Option<u64>, loss: u64, target: u64) {
        let d = delay.unwrap_or(target / 2);
        let before = self.window;
        // One loss in a sample of a small window says little of the rate; its delay will tell.
        let judged = self.window > self.initial_packets * self.mtu;
        if loss > LOSS_ALONE_PERCENT || (loss >= LOSS_WITH_QUEUE_PERCENT && d > target / 2 && judged) {
            self.window = self.window * LOSS_KEEPS.0 / LOSS_KEEPS.1;
        } else if d > target {
            let cut = mul_div(DELAY_CUT, d - target, d);
            self.window = self.window * (1024 - cut).max(DELAY_KEEPS) / 1024;
        } else if self.round_limited && delay.is_some() {
            let grow = mul_div(self.window / GROWTH_PART, target - d, target.max(1));
            self.window += grow.max(self.mtu);
        }
        if !self.round_limited {
            // The delay is not of this window's making: it comes down to what a newcomer may send,
            // no further.
            self.window = self.window.max(before.min(self.initial_packets * self.mtu));
        }
    }
}

impl Congestion for Target {
    fn on_sent(&mut self, now: Time, _bytes: u64, limited: bool, was_idle: bool) {
        self.round_limited |= limited;
        if was_idle {
            self.both_ways.on_sent_alone(now);
            // Idle time is no part of a round.
            self.round_started = now;
            self.round_bytes = 0;
        }
    }

    fn on_ack(&mut self, a: &Acked) {
        if let Some(before) = self.before_timeout.take()
            && a.oldest_sent_at <= self.timeout_at
        {
            // What was sent before the timeouts arrived: the peer was late, not the network
            // congested (RFC 5682).
            (self.window, self.slow_start, self.best_rate) = before;
        }
        self.round_bytes += a.bytes;
        self.acked += u64::from(a.packets);
        if self.both_ways.on_ack(a.bytes, a.came) && self.noncongestive.window_before().is_none() {
            // What was found of the rate before was bound by a queue that is none.
            (self.slow_start, self.best_rate, self.flat_rounds) = (true, 0, 0);
        }
        self.noncongestive.on_ack(a.packets);
        if self.mechanisms.marked_windows {
            self.marks.on_ack(a.packets, a.marked);
        }
        if let Some(r) = a.rtt_ns {
            self.both_ways.on_round_trip(a.sent_at, a.packets, a.whole_rtt_ns.saturating_sub(a.base_ns));
            self.round_min_rtt = self.round_min_rtt.min(r);
        }
        if self.slow_start && self.round_limited {
            self.window += a.bytes;
            self.clamp();
        }
        if a.newest_seq.wrapping_sub(self.round_end) as i32 >= 0 {
            self.end_round(a);
        }
    }

    fn on_loss(&mut self, _now: Time, _bytes: u64, packets: u32, _sent_at: Time) {
        self.lost += u64::from(packets);
        self.noncongestive.on_loss(packets);
    }

    fn on_spurious(&mut self, _bytes: u64) {
        self.lost = self.lost.saturating_sub(1);
        self.noncongestive.on_spurious();
    }

    fn on_timeout(&mut self, now: Time, count: u32) {
        if count == 1 {
            self.timeout_at = now;
        }
        if count >= 2 {
            if self.before_timeout.is_none() {
                let before = self.noncongestive.end().unwrap_or(self.window);
                self.before_timeout = Some((before, self.slow_start, self.best_rate));
            }
            self.window = self.min_packets * self.mtu;
            self.slow_start = true;
            self.best_rate = 0;
            self.flat_rounds = 0;
        }
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_quarters(&self) -> u64 {
        if self.slow_start { 8 } else { 5 }
    }

    fn burst_packets(&self) -> u64 {
        self.burst
    }

    fn rate(&self) -> u64 {
        self.rate
    }

    fn noncongestive_ns(&self) -> u64 {
        self.noncongestive.noncongestive_ns()
    }

    fn alone_ns(&self) -> u64 {
        self.both_ways.alone_ns()
    }

    fn is_both_ways(&self) -> bool {
        self.both_ways.is_on()
    }

    fn marked_rounds(&self) -> u64 {
        self.marks.cuts
    }

    fn on_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
        self.clamp();
    }

    fn set_granted(&mut self, on: bool) {
        self.granted = on;
    }

    fn reset(&mut self) {
        self.window = self.initial_packets * self.mtu;
        self.slow_start = true;
        self.best_rate = 0;
        self.rate = 0;
        self.flat_rounds = 0;
        self.acked = 0;
        self.lost = 0;
        self.round_bytes = 0;
        self.round_min_rtt = u64::MAX;
        self.last_delay = None;
        self.noncongestive = NonCongestive::default();
        self.both_ways = BothWays::default();
        self.marks.reset();
        self.round_started = Time::ZERO;
        self.before_timeout = None;
        self.burst = self.burst_min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(now: u64, sent_at: u64, rtt_ns: u64, seq: u32) -> Acked {
        Acked {
            now: Time(now),
            bytes: 1472,
            packets: 1,
            marked: 0,
            rtt_ns: Some(rtt_ns),
            whole_rtt_ns: rtt_ns,
            base_ns: 30_000,
            newest_seq: seq,
            sent_seq: seq,
            sent_at: Time(sent_at),
            oldest_sent_at: Time(sent_at),
            mtu: 1472,
            came: crate::Came::default(),
        }
    }

    // spec: P-6.8
    #[test]
    fn timeouts_that_lost_nothing_are_taken_back() {
        let mut c = Target::new(&Config::default(), 1472);
        let before = c.window();
        for (sent_at, want) in [(900, before), (2500, 2 * 1472)] {
            c.on_sent(Time(1000), 1472, false, true);
            c.on_timeout(Time(2000), 1);
            c.on_timeout(Time(3000), 2);
            c.on_timeout(Time(4000), 3);
            assert_eq!(c.window(), 2 * 1472);
            // First the packet of before the timeouts, then only a probe is acknowledged.
            c.on_ack(&acked(5000, sent_at, 30_000, 1));
            assert_eq!(c.window(), want, "acknowledged was a packet sent at {sent_at}");
        }
    }

    // spec: P-6.9
    #[test]
    fn a_round_that_was_not_full_leaves_what_a_newcomer_may_send() {
        let mut c = Target::new(&Config::default(), 1472);
        c.slow_start = false;
        for (limited, packets) in [(false, 32..=32), (true, 2..=6)] {
            for i in 1..100u32 {
                c.on_sent(Time(u64::from(i) * 100_000_000), 1472, limited, false);
                // The delay follows the window.
                let delay = 200_000 * c.window() / 1472;
                let t = u64::from(i) * 100_000_000 + delay;
                c.on_ack(&acked(t, t - delay, delay, i + if limited { 100 } else { 0 }));
            }
            assert!(packets.contains(&(c.window() / 1472)), "limited: {limited}, {}", c.window());
        }
    }

    // spec: P-6.10
    #[test]
    fn a_delay_that_varies_whatever_the_window_is_noncongestive() {
        let mut c = Target::new(&Config::default(), 1472);
        let mut x = 1u64;
        for i in 1..400u32 {
            let t = u64::from(i) * 10_000_000;
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let delay = 30_000 + (x >> 40) % 2_000_000;
            c.on_sent(Time(t), 1472, true, false);
            c.on_ack(&acked(t + delay, t, delay, i));
        }
        assert!(c.window() >= 32 * 1472, "{}", c.window());
    }

    /// A window in an experiment: after jitter of 2 ms. Returns it, the next round's number and the
    /// window it began with.
    fn in_an_experiment() -> (Target, u32, u64) {
        let mut c = Target::new(&Config::default(), 1472);
        c.slow_start = false;
        let mut x = 1u64;
        for i in 1..400u32 {
            let t = u64::from(i) * 10_000_000;
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            c.on_sent(Time(t), 1472, true, false);
            c.on_ack(&acked(t + 1, t, 30_000 + (x >> 40) % 2_000_000, i));
            if let Some(before) = c.noncongestive.window_before() {
                assert_eq!(c.window(), 2 * 1472);
                assert!(before > 2 * 1472);
                return (c, i + 1, before);
            }
        }
        panic!("no experiment");
    }

    // spec: P-6.10
    #[test]
    fn an_experiment_ends_where_no_round_brings_a_delay() {
        let (mut c, from, before) = in_an_experiment();
        let rate = c.rate();
        for i in from..from + 96 {
            let t = u64::from(i) * 10_000_000;
            c.on_sent(Time(t), 1472, true, false);
            c.on_ack(&Acked { rtt_ns: None, ..acked(t + 1, t, 0, i) });
        }
        assert_eq!(c.window(), before * 7 / 8);
        assert_eq!(c.rate(), rate, "two packets a round say nothing of it");
    }

    // spec: P-6.8, P-6.10, P-6.17, P-6.28
    #[test]
    fn what_ends_an_experiment_judges_the_window_of_before() {
        let t = Time(9_000_000_000);
        let round = |c: &mut Target, i: u32, lost: u32, marked: u32| {
            c.on_sent(t, 1472, true, false);
            if lost > 0 {
                c.on_loss(t, 1472, lost, t);
            }
            c.on_ack(&Acked { packets: 8, marked, ..acked(t.0 + 1, t.0, 1_000_000, i) });
        };
        let (mut c, i, before) = in_an_experiment();
        round(&mut c, i, 8, 0);
        assert_eq!(c.window(), before * 7 / 10, "loss");
        let (mut c, i, before) = in_an_experiment();
        round(&mut c, i, 0, 1);
        assert!(c.window() >= before / 2 && c.window() < before, "marks: {} of {before}", c.window());
        let (mut c, i, before) = in_an_experiment();
        round(&mut c, i, 8, 1);
        assert!(c.window() >= before / 3 && c.window() < before, "both: {} of {before}", c.window());
        let (mut c, i, before) = in_an_experiment();
        c.on_timeout(t, 1);
        c.on_timeout(t, 2);
        assert_eq!((c.window(), c.noncongestive.window_before()), (2 * 1472, None), "timeouts");
        c.on_ack(&acked(t.0 + 1, t.0 - 1, 30_000, i));
        assert!(c.window() >= before, "taken back: {} of {before}", c.window());
        let (mut c, _, _) = in_an_experiment();
        c.reset();
        assert_eq!((c.window(), c.noncongestive.window_before()), (32 * 1472, None), "a path that is back");
    }

    // spec: P-6.46
    #[test]
    fn where_bulk_data_goes_both_ways_a_window_bears_the_queue_that_grants_make() {
        for (is_met, is_kept) in [(true, true), (false, false)] {
            let mut c = Target::new(&Config::default(), 1472);
            let mut came = crate::Came::default();
            let (mut x, mut least) = (1u64, u64::MAX);
            for i in 1..2000u32 {
                let t = u64::from(i) * 10_000_000;
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Two milliseconds of queue and some jitter, whatever the window.
                let delay = 2_030_000 + (x >> 40) % 500_000;
                came.met += if is_met { 64 << 10 } else { 0 };
                (came.peer, came.all) = (came.peer + (64 << 10), came.all + (64 << 10));
                c.on_sent(Time(t), 1472, true, false);
                c.on_ack(&Acked { bytes: 64 << 10, packets: 44, came, ..acked(t + delay, t, delay, i) });
                least = if i > 100 { least.min(c.window() / 1472) } else { least };
            }
            assert_eq!(least >= 200, is_kept, "met: {is_met}, {least}");
            assert_eq!(c.is_both_ways(), is_met);
            c.reset();
            assert!(!c.is_both_ways());
        }
    }

    // spec: P-6.6, P-6.13
    #[test]
    fn loss_without_delay_leaves_a_window_that_grows_with_the_round_trip() {
        // Every third packet is lost; (round trip, queueing delay, least window in packets).
        for (base_ns, delay_ns, least) in [
            (30_000, 0, 2),
            (20_000_000, 0, 12),
            (200_000_000, 0, 16),
            (30_000, 1_000_000, 2),
            (20_000_000, 9_000_000, 2),
        ] {
            let mut c = Target::new(&Config::default(), 1472);
            for i in 1..3000u32 {
                let t = u64::from(i) * (base_ns + delay_ns);
                c.on_sent(Time(t), 1472, true, false);
                c.on_loss(Time(t), 16 * 1472, 16, Time(t));
                c.on_ack(&Acked { base_ns, packets: 32, ..acked(t, t - base_ns - delay_ns, base_ns + delay_ns, i) });
            }
            assert_eq!(c.window(), least * 1472, "round trip {base_ns} ns, delay {delay_ns} ns");
        }
    }
}
