//! Delay that is not of this window's making: the network's jitter, a host that is late, other people's queues (spec 6).
//!
//! A window that shrinks because of a delay takes its own share of the queue with it. When it has come down to a half and the delay is as long as before, to shrink further would only
//! leave the path to others: without this, a gigabit whose delay varies by a millisecond carried 2 % of what it could.

use crate::Time;

/// Rounds that began with half of the window, before the delay is judged: that of the first is still the larger window's.
const HALVED_ROUNDS: u32 = 2;
/// What is older says nothing of now. Longer than a delay that is a little above the target takes to halve the window (some 18 rounds).
const ROUNDS_MAX: u32 = 64;
/// Rounds of a window that cannot shrink any more, after which a delay that is still too long is taken for others'.
const FLOOR_ROUNDS: u32 = 16;
/// More loss than this, one packet of so many, is a queue that is full whatever this window does.
const LOSS_PART: u64 = 20;
/// How long a delay is taken for others' before it is tried again: as long as the least round trip of a path is believed.
const BORNE_NS: u64 = 10_000_000_000;

/// A round that the window limited.
#[derive(Copy, Clone, Debug)]
pub(super) struct Round {
    pub(super) now: Time,
    /// Its queueing delay, nanoseconds, whoever made it.
    pub(super) delay_ns: u64,
    /// A shorter delay is borne only where one is borne already: trains of packets make such ones.
    pub(super) least_ns: u64,
    /// What the window may have made itself is longer than it should be.
    pub(super) too_long: bool,
    /// The window it had, and the least there is, bytes.
    pub(super) window: u64,
    pub(super) floor: u64,
}

/// What one path knows of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign {
    /// Delay of others' making, nanoseconds, and until when that is believed.
    borne_ns: u64,
    borne_until: Time,
    trial: Trial,
}

/// The greatest window of the last rounds, and what came after it.
#[derive(Clone, Debug)]
struct Trial {
    peak: u64,
    rounds: u32,
    /// Rounds in a row with half of it or less, and with the least window there is.
    halved: u32,
    floored: u32,
    /// The greatest delay before it was halved, and the least since, nanoseconds.
    most_ns: u64,
    least_ns: u64,
    /// Packets since the peak.
    acked: u64,
    lost: u64,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { peak: 0, rounds: 0, halved: 0, floored: 0, most_ns: 0, least_ns: u64::MAX, acked: 0, lost: 0 }
    }
}

impl Foreign {
    /// The delay of others' making that is believed now, nanoseconds.
    pub(super) fn borne_ns(&self, now: Time) -> u64 {
        if now < self.borne_until { self.borne_ns } else { 0 }
    }

    pub(super) fn on_ack(&mut self, packets: u32) {
        self.trial.acked += u64::from(packets);
    }

    pub(super) fn on_loss(&mut self, packets: u32) {
        self.trial.lost += u64::from(packets);
    }

    /// A packet was not lost after all.
    pub(super) fn on_spurious(&mut self) {
        self.trial.lost = self.trial.lost.saturating_sub(1);
    }

    /// The window is another for a reason that is no delay: what is known of it says nothing.
    pub(super) fn begin(&mut self, window: u64) {
        self.trial = Trial { peak: window, ..Trial::default() };
    }

    /// A round ended. Returns the window to go back to, if the delay turns out to be others'.
    pub(super) fn on_round(&mut self, r: Round) -> Option<u64> {
        if r.window >= self.trial.peak && r.window > r.floor || self.trial.rounds >= ROUNDS_MAX {
            self.begin(r.window);
        }
        let t = &mut self.trial;
        t.rounds += 1;
        t.floored = if r.window <= r.floor && r.too_long { t.floored + 1 } else { 0 };
        if r.window <= t.peak / 2 || t.floored > 0 {
            t.halved += 1;
            t.least_ns = t.least_ns.min(r.delay_ns);
        } else {
            (t.halved, t.least_ns) = (0, u64::MAX);
            t.most_ns = t.most_ns.max(r.delay_ns);
        }
        let bore = r.now < self.borne_until && self.borne_ns > 0;
        let stayed = t.halved == HALVED_ROUNDS && t.least_ns >= t.most_ns / 4 * 3 && (bore || t.least_ns >= r.least_ns);
        if !(stayed && r.window < t.peak || t.floored == FLOOR_ROUNDS) || t.lost * LOSS_PART > t.acked {
            return None;
        }
        // No more than what was there with the small window: others who bear it as well must not add to it in turn.
        (self.borne_ns, self.borne_until) = (t.least_ns, r.now.plus_ns(BORNE_NS));
        let back = if stayed { t.peak } else { r.window };
        self.begin(back);
        Some(back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST_NS: u64 = 450_000;
    const FLOOR: u64 = 2;

    /// Rounds of a window that halves as long as the delay that it sees as its own is above 300 us, and else stays, from `from` packets on; `delay` of the window in packets. Returns the
    /// least window and the last.
    fn rounds(f: &mut Foreign, start_ns: u64, from: u64, lost: u32, delay: impl Fn(u64) -> u64) -> (u64, u64) {
        let (mut window, mut least) = (from, from);
        for i in 0..60 {
            let now = Time(start_ns + i * 10_000_000);
            f.on_ack(100);
            f.on_loss(lost);
            let (delay_ns, before) = (delay(window), window);
            let too_long = delay_ns.saturating_sub(f.borne_ns(now)) > 300_000;
            if too_long {
                window = (window / 2).max(FLOOR);
            }
            let round = Round { now, delay_ns, least_ns: LEAST_NS, too_long, window: before, floor: FLOOR };
            window = f.on_round(round).unwrap_or(window);
            least = least.min(window);
        }
        (least, window)
    }

    #[test]
    fn a_delay_that_stays_is_borne_and_one_that_follows_the_window_is_not() {
        let (_, jitter) = rounds(&mut Foreign::default(), 0, 64, 0, |_| 2_000_000);
        assert_eq!(jitter, 64);
        // 60 us a packet.
        let (_, queue) = rounds(&mut Foreign::default(), 0, 64, 0, |window| window * 60_000);
        assert_eq!(queue, 4);
    }

    #[test]
    fn a_queue_that_comes_after_a_long_time_without_is_not_borne() {
        let mut f = Foreign::default();
        rounds(&mut f, 0, 64, 0, |_| 100_000);
        // The port became slower.
        assert_eq!(rounds(&mut f, 1_000_000_000, 64, 0, |window| window * 100_000).1, 2);
    }

    #[test]
    fn a_full_queue_is_not_borne() {
        assert_eq!(rounds(&mut Foreign::default(), 0, 64, 6, |_| 2_000_000).1, 2);
        assert_eq!(rounds(&mut Foreign::default(), 0, 64, 2, |_| 2_000_000).1, 64);
    }

    #[test]
    fn who_cannot_shrink_any_more_bears_what_is_left() {
        let mut f = Foreign::default();
        assert_eq!(rounds(&mut f, 0, FLOOR, 0, |_| 2_000_000).1, FLOOR);
        assert_eq!(f.borne_ns(Time(600_000_000)), 2_000_000);
        let mut f = Foreign::default();
        rounds(&mut f, 0, FLOOR, 6, |_| 2_000_000);
        assert_eq!(f.borne_ns(Time(600_000_000)), 0, "the queue is full");
    }

    #[test]
    fn what_was_borne_is_tried_again() {
        let mut f = Foreign::default();
        rounds(&mut f, 0, 64, 0, |_| 2_000_000);
        // Within the time nothing shrinks because of it; then the window goes down once.
        assert_eq!(rounds(&mut f, 1_000_000_000, 64, 0, |_| 2_000_000), (64, 64));
        let (least, last) = rounds(&mut f, 11_000_000_000, 64, 0, |_| 2_000_000);
        assert!(least < 64, "{least}");
        assert_eq!(last, 64);
        // The delay has become this window's own meanwhile.
        assert_eq!(rounds(&mut f, 30_000_000_000, 64, 0, |window| window * 60_000).1, 4);
    }
}
