//! Delay that is not of this window's making: the network's jitter, a host that is late (spec 6).
//!
//! A gigabit whose delay varies by a millisecond carried 2 % of what it could while a window took
//! that for its own queue. What tells the two apart is that a queue neither comes nor goes within a
//! few rounds of a small window, whoever made it. A delay that merely stays does not count: flows
//! that share a queue would each take the others' part for given, add their own, and so fill it.

use crate::Time;

/// How often the delay must have been short and then long again with half of the window or less.
const SWINGS_MIN: u32 = 3;
/// A short delay is this part of the longest at most, a long one that part at least.
const SHORT_PART: u64 = 4;
const LONG_PART: u64 = 2;
/// What is older says nothing of now. Longer than a delay that is a little above the target takes
/// to halve the window (some 18 rounds), and than three swings.
const ROUNDS_MAX: u32 = 64;
/// More loss than this, one packet of so many, is a queue that is full whatever this window does.
const LOSS_PART: u64 = 20;
/// Packets from whose losses a non-congestive delay is found out to be that of a full queue after
/// all: random loss of 2 % never takes one of 20 of so many.
const FULL_PACKETS: u64 = 512;
/// How long a delay is taken for others' before it is tried again: as long as the least round trip
/// of a path is believed.
const NONCONGESTIVE_NS: u64 = 10_000_000_000;

/// A round that the window limited.
#[derive(Copy, Clone, Debug)]
pub(super) struct Round {
    pub(super) now: Time,
    /// Its queueing delay, nanoseconds, whoever made it.
    pub(super) delay_ns: u64,
    /// A shorter delay counts only where one does already: trains of packets make such ones.
    pub(super) least_ns: u64,
    /// The window it had, and the least there is, bytes.
    pub(super) window: u64,
    pub(super) floor: u64,
}

/// What one path knows of it.
#[derive(Clone, Debug, Default)]
pub(super) struct NonCongestive {
    /// Delay of others' making, nanoseconds, and until when that is believed.
    noncongestive_ns: u64,
    noncongestive_until: Time,
    /// Packets since it counts, or since they were judged last.
    acked: u64,
    lost: u64,
    trial: Trial,
}

/// The greatest window of the last rounds, and what came after it.
#[derive(Clone, Debug, Default)]
struct Trial {
    peak: u64,
    rounds: u32,
    /// The longest delay, and the longest with half of the window or less, nanoseconds.
    most_ns: u64,
    small_ns: u64,
    /// With half of the window or less: the delay has been short and not long since, and how often
    /// it became long again.
    short: bool,
    swings: u32,
    /// Packets since the peak.
    acked: u64,
    lost: u64,
}

impl NonCongestive {
    /// The delay of others' making that is believed now, nanoseconds.
    pub(super) fn noncongestive_ns(&self, now: Time) -> u64 {
        if now < self.noncongestive_until { self.noncongestive_ns } else { 0 }
    }

    pub(super) fn on_ack(&mut self, packets: u32) {
        self.acked += u64::from(packets);
        self.trial.acked += u64::from(packets);
    }

    pub(super) fn on_loss(&mut self, packets: u32) {
        self.lost += u64::from(packets);
        self.trial.lost += u64::from(packets);
    }

    /// A packet was not lost after all.
    pub(super) fn on_spurious(&mut self) {
        self.lost = self.lost.saturating_sub(1);
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
        self.look_for_full_queue();
        let is_known = self.noncongestive_ns(r.now) > 0;
        let t = &mut self.trial;
        t.rounds += 1;
        t.most_ns = t.most_ns.max(r.delay_ns);
        if r.window > (t.peak / 2).max(r.floor) {
            (t.small_ns, t.short, t.swings) = (0, false, 0);
            return None;
        }
        t.small_ns = t.small_ns.max(r.delay_ns);
        if r.delay_ns <= t.most_ns / SHORT_PART {
            t.short = true;
        } else if t.short && r.delay_ns >= t.most_ns / LONG_PART {
            (t.short, t.swings) = (false, t.swings + 1);
        }
        let varies = t.swings >= SWINGS_MIN && (is_known || t.small_ns >= r.least_ns);
        if !varies || t.lost * LOSS_PART > t.acked {
            return None;
        }
        // A quarter more than so few rounds have shown covers most.
        (self.noncongestive_ns, self.noncongestive_until) =
            (t.small_ns + t.small_ns / 4, r.now.plus_ns(NONCONGESTIVE_NS));
        (self.acked, self.lost) = (0, 0);
        let back = self.trial.peak.max(r.window);
        self.begin(back);
        Some(back)
    }

    /// With a non-congestive delay the window does not shrink before it loses one packet of ten:
    /// others may have come, to a port whose whole queue is no longer than that delay.
    fn look_for_full_queue(&mut self) {
        if self.acked + self.lost < FULL_PACKETS {
            return;
        }
        if self.lost * LOSS_PART > self.acked {
            self.noncongestive_until = Time(0);
        }
        (self.acked, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST_NS: u64 = 450_000;
    const FLOOR: u64 = 2;

    /// Rounds of a window that halves as long as the delay that it sees as its own is above 300 us,
    /// and else stays, from 64 packets on; `delay` of the round's number and the window in packets.
    /// Returns the least window and the last.
    fn rounds(f: &mut NonCongestive, start_ns: u64, lost: u32, delay: impl Fn(u64, u64) -> u64) -> (u64, u64) {
        let (mut window, mut least) = (64, 64);
        for i in 0..60 {
            let now = Time(start_ns + i * 10_000_000);
            f.on_ack(100);
            f.on_loss(lost);
            let (delay_ns, before) = (delay(i, window), window);
            if delay_ns.saturating_sub(f.noncongestive_ns(now)) > 300_000 {
                window = (window / 2).max(FLOOR);
            }
            let round = Round { now, delay_ns, least_ns: LEAST_NS, window: before, floor: FLOOR };
            window = f.on_round(round).unwrap_or(window);
            least = least.min(window);
        }
        (least, window)
    }

    /// Long, but for every fourth round.
    fn jitter(round: u64, _: u64) -> u64 {
        if round % 4 == 3 { 100_000 } else { 2_000_000 }
    }

    // spec: P-6.10
    #[test]
    fn a_delay_that_varies_is_noncongestive_and_one_that_follows_the_window_is_not() {
        assert_eq!(rounds(&mut NonCongestive::default(), 0, 0, jitter).1, 64);
        // 60 us a packet.
        assert_eq!(rounds(&mut NonCongestive::default(), 0, 0, |_, window| window * 60_000).1, 4);
    }

    // spec: P-6.11
    #[test]
    fn a_queue_that_stays_is_congestion() {
        let mut f = NonCongestive::default();
        rounds(&mut f, 0, 0, |_, window| 2_000_000 + window * 12_000);
        assert_eq!(f.noncongestive_ns(Time(600_000_000)), 0);
    }

    // spec: P-6.11
    #[test]
    fn a_queue_that_comes_or_goes_is_congestion() {
        for is_there in [|round| round < 30, |round| round >= 30] {
            let mut f = NonCongestive::default();
            rounds(&mut f, 0, 0, |round, _| if is_there(round) { 2_000_000 } else { 100_000 });
            assert_eq!(f.noncongestive_ns(Time(600_000_000)), 0);
        }
    }

    // spec: P-6.10
    #[test]
    fn a_full_queue_is_congestion() {
        assert_eq!(rounds(&mut NonCongestive::default(), 0, 6, jitter).1, 2);
        assert_eq!(rounds(&mut NonCongestive::default(), 0, 2, jitter).1, 64);
    }

    // spec: P-6.12
    #[test]
    fn a_noncongestive_delay_is_given_up_when_the_queue_is_full() {
        for (lost, is_kept) in [(2, true), (8, false)] {
            let mut f = NonCongestive::default();
            rounds(&mut f, 0, 0, jitter);
            assert!(f.noncongestive_ns(Time(600_000_000)) > 0);
            rounds(&mut f, 600_000_000, lost, |_, _| 700_000);
            assert_eq!(f.noncongestive_ns(Time(1_200_000_000)) > 0, is_kept, "{lost} of 100 lost");
        }
    }

    // spec: P-6.10
    #[test]
    fn a_noncongestive_delay_is_tried_again() {
        let mut f = NonCongestive::default();
        rounds(&mut f, 0, 0, jitter);
        // Within the time nothing shrinks because of it; then the window goes down once.
        assert_eq!(rounds(&mut f, 1_000_000_000, 0, jitter), (64, 64));
        let (least, last) = rounds(&mut f, 11_000_000_000, 0, jitter);
        assert!(least < 64, "{least}");
        assert_eq!(last, 64);
        // The delay has become this window's own meanwhile.
        assert_eq!(rounds(&mut f, 30_000_000_000, 0, |_, window| window * 60_000).1, 4);
    }
}
