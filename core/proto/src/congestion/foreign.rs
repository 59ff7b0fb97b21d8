//! Delay that is not of this window's making: the network's jitter, a host that is late, other people's queues (spec 6).
//!
//! A window that shrinks because of a delay takes its own share of the queue with it. When it has come down to a half and the delay is as long as before, to shrink further would only
//! leave the path to others: without this, a gigabit whose delay varies by a millisecond carried 2 % of what it could.

use crate::Time;

/// A window has shrunk when it is a half of what it was, so many rounds ago at least: the delay of a round is known at the end of the next.
const ROUNDS_MIN: u32 = 4;
/// More loss than this, one packet of so many, is a queue that is full whatever this window does.
const LOSS_PART: u64 = 20;
/// How long a delay is taken for others' before it is tried again: as long as the least round trip of a path is believed.
const BORNE_NS: u64 = 10_000_000_000;

/// What one path knows of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign {
    /// Delay of others' making, nanoseconds, and until when that is believed.
    borne_ns: u64,
    borne_until: Time,
    /// Delay of the last rounds, smoothed, nanoseconds.
    mean_ns: u64,
    /// The greatest window since the last trial, bytes, and since it: rounds, the greatest smoothed delay, packets acknowledged and lost.
    peak: u64,
    rounds: u32,
    most_ns: u64,
    acked: u64,
    lost: u64,
}

impl Foreign {
    /// What of a delay the window may have made itself.
    pub(super) fn own(&mut self, now: Time, delay_ns: u64) -> u64 {
        if self.borne_until <= now {
            self.borne_ns = 0;
        }
        delay_ns.saturating_sub(self.borne_ns)
    }

    pub(super) fn on_ack(&mut self, packets: u32) {
        self.acked += u64::from(packets);
    }

    pub(super) fn on_loss(&mut self, packets: u32) {
        self.lost += u64::from(packets);
    }

    /// A round ended that the window limited, with this delay; the window was `before`, and is `now_window` for the next. A delay of less than `least_ns` is borne only where one is borne
    /// already: trains of packets make such ones. Returns the window to go back to, if the delay turns out to be others'.
    pub(super) fn on_round(
        &mut self,
        now: Time,
        delay_ns: u64,
        least_ns: u64,
        before: u64,
        now_window: u64,
    ) -> Option<u64> {
        self.mean_ns = (3 * self.mean_ns + delay_ns) / 4;
        if before >= self.peak {
            self.begin(before);
        }
        self.rounds += 1;
        self.most_ns = self.most_ns.max(self.mean_ns);
        if self.rounds < ROUNDS_MIN || now_window > self.peak / 2 {
            return None;
        }
        let stayed = delay_ns >= self.most_ns / 4 * 3 && (self.borne_ns > 0 || self.most_ns >= least_ns);
        let back = (stayed && self.lost * LOSS_PART <= self.acked).then_some(self.peak);
        if back.is_some() {
            // It varies; a quarter more than it has been covers most rounds.
            self.borne_ns = self.most_ns + self.most_ns / 4;
            self.borne_until = now.plus_ns(BORNE_NS);
        }
        self.begin(back.unwrap_or(now_window));
        back
    }

    fn begin(&mut self, window: u64) {
        (self.peak, self.rounds, self.most_ns, self.acked, self.lost) = (window, 0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST_NS: u64 = 450_000;

    /// Rounds of a window that halves as long as the delay that it sees as its own is above 300 us, from 64 packets on; `delay` of the window in packets. Returns the least window and the last.
    fn rounds(f: &mut Foreign, from_ns: u64, lost: u32, delay: impl Fn(u64) -> u64) -> (u64, u64) {
        let (mut window, mut least) = (64, 64);
        for i in 0..40 {
            let now = Time(from_ns + i * 10_000_000);
            f.on_ack(100);
            f.on_loss(lost);
            let (d, before) = (delay(window), window);
            if f.own(now, d) > 300_000 {
                window = (window / 2).max(2);
            }
            window = f.on_round(now, d, LEAST_NS, before, window).unwrap_or(window);
            least = least.min(window);
        }
        (least, window)
    }

    #[test]
    fn a_delay_that_stays_is_borne_and_one_that_follows_the_window_is_not() {
        let (_, jitter) = rounds(&mut Foreign::default(), 0, 0, |_| 2_000_000);
        assert_eq!(jitter, 64);
        // 60 us a packet.
        let (_, queue) = rounds(&mut Foreign::default(), 0, 0, |window| window * 60_000);
        assert_eq!(queue, 4);
        // As long as this has no means to tell it from a train's own.
        assert_eq!(rounds(&mut Foreign::default(), 0, 0, |_| 400_000).1, 2);
    }

    #[test]
    fn a_full_queue_is_not_borne() {
        assert_eq!(rounds(&mut Foreign::default(), 0, 6, |_| 2_000_000).1, 2);
        assert_eq!(rounds(&mut Foreign::default(), 0, 2, |_| 2_000_000).1, 64);
    }

    #[test]
    fn what_was_borne_is_tried_again() {
        let mut f = Foreign::default();
        rounds(&mut f, 0, 0, |_| 2_000_000);
        // Within the time nothing shrinks because of it; then the window goes down once, to a quarter at the most before it is judged.
        assert_eq!(rounds(&mut f, 1_000_000_000, 0, |_| 2_000_000), (64, 64));
        let (least, last) = rounds(&mut f, 11_000_000_000, 0, |_| 2_000_000);
        assert!(least < 64, "{least}");
        assert_eq!(last, 64);
        // The delay has become this window's own meanwhile.
        assert_eq!(rounds(&mut f, 30_000_000_000, 0, |window| window * 60_000).1, 4);
    }
}
