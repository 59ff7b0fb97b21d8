//! Delay that is not of this window's making: the network's jitter, a host that is late (spec 6.3).
//!
//! A gigabit whose delay varies by a millisecond carried 2 % of what it could while a window took
//! that for its own queue. What tells the two apart is what a window of two packets sees for a
//! while: the queue of one's own goes, the queue of others stays or swings with their windows, from
//! round to round by a little; jitter is another in each round. A delay that merely stays does not
//! count: flows that share a queue would each take the others' part for given, add their own, and
//! so fill it.

use crate::Time;

/// More loss than this, one packet of so many, is a queue that is full whatever this window does.
const LOSS_PART: u64 = 20;
/// Packets from whose losses a non-congestive delay is found out to be that of a full queue after
/// all: random loss of 2 % never takes one of 20 of so many.
const FULL_PACKETS: u64 = 512;
/// How long a delay is taken for others' before it is tried again: as long as the least round trip
/// of a path is believed, and so many times what it took to find it.
const NONCONGESTIVE_NS: u64 = 10_000_000_000;
const NONCONGESTIVE_TIMES: u64 = 8;
/// The first rounds of an experiment still see what was in flight before.
const ROUNDS_SKIPPED: u32 = 2;
/// After how many delays an experiment is judged, how much from one to the next, in hundredths of
/// their variance, is jitter (von Neumann's ratio: 200 +- 400/sqrt(n) where each is another, little
/// where they swing), and how much is none.
const JUDGED: [(u32, u64, u64); 4] = [(22, 190, 60), (30, 175, 80), (46, 155, 100), (61, 140, 140)];
/// Their variance is this part of the square of their mean at least.
const VARIANCE_PART: u64 = 8;
/// So many rounds in a row without a delay, of this part of the target at most, end it: the queue
/// was this window's.
const STILL_ROUNDS: u32 = 8;
const STILL_PART: u64 = 4;
/// Above this no numbers that know nothing of each other come: each second round is long.
const RATIO_MAX: u64 = 300;
/// Rounds after which it ends in any case: some bring no delay.
const ROUNDS_MAX: u32 = 96;
/// What is left of the window that an experiment began with when it found nothing.
const KEPT: (u64, u64) = (7, 8);
/// An experiment is worth it when of so many delays of full rounds the mean is above half of the
/// target, the ratio is this, in hundredths, and the variance this part of the square of the mean:
/// a queue that a window steers goes up and down slowly.
const SEEN: u32 = 24;
const SEEN_RATIO: u64 = 150;
const SEEN_VARIANCE_PART: u64 = 16;
/// An experiment is begun after so many full rounds; after one that found nothing so many times as
/// many as before it, and so many at most. So it never takes more than some fourth of the time.
const WAIT_ROUNDS: u32 = 96;
const WAIT_GROWS: u32 = 8;
const WAIT_ROUNDS_MAX: u32 = 4096;

/// A round that ended outside slow start.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) now: Time,
    /// Its queueing delay, nanoseconds, whoever made it, if one is known.
    pub(super) delay_ns: Option<u64>,
    /// The window was full.
    pub(super) is_full: bool,
    /// The target of a large window, nanoseconds.
    pub(super) target_ns: u64,
    /// The window it had, bytes.
    pub(super) window: u64,
}

/// What becomes of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// It is the least there is.
    Least,
    /// An experiment found nothing: back to this.
    Back(u64),
    /// The delay is others': back to this, and to look for the rate; or it still is, and the rate
    /// is known.
    Given { window: u64, is_known: bool },
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
    /// Delays of the last full rounds.
    seen: Delays,
    experiment: Option<Experiment>,
    /// Full rounds since the last, and how many there are between two; 0: `WAIT_ROUNDS`.
    waited: u32,
    wait: u32,
}

/// Delays of some rounds in a row, microseconds: how many, the last, the greatest, sums of them, of
/// their squares, and of the squares of the steps from one to the next.
#[derive(Clone, Debug, Default)]
struct Delays {
    n: u32,
    last: u64,
    most: u64,
    sum: u64,
    squares: u64,
    steps: u64,
}

impl Delays {
    fn add(&mut self, delay_ns: u64) {
        // Ten seconds at most: the squares of so few are far from the end of 64 bits.
        let us = (delay_ns / 1000).min(10_000_000);
        if self.n > 0 {
            self.steps += us.abs_diff(self.last).pow(2);
        }
        self.n += 1;
        (self.last, self.most) = (us, self.most.max(us));
        (self.sum, self.squares) = (self.sum + us, self.squares + us * us);
    }

    /// n times the sum of the squares of their distances from the mean.
    fn spread(&self) -> u64 {
        u64::from(self.n) * self.squares - self.sum * self.sum
    }

    /// Whether the variance is such a part of the square of the mean, or more.
    fn vary(&self, part: u64) -> bool {
        self.spread() >= self.sum * self.sum / part
    }

    /// Von Neumann's ratio of the mean square of the steps to the variance, in hundredths.
    fn ratio(&self) -> u64 {
        let ratio = u128::from(self.steps) * 100 * u128::from(self.n) / u128::from(self.spread().max(1));
        u64::try_from(ratio).unwrap_or(u64::MAX)
    }

    fn mean_ns(&self) -> u64 {
        1000 * self.sum / u64::from(self.n.max(1))
    }
}

/// The window is the least there is for a while.
#[derive(Clone, Debug)]
struct Experiment {
    began: Time,
    /// The window before; a delay was believed, which is tried again.
    window: u64,
    is_known: bool,
    rounds: u32,
    still: u32,
    delays: Delays,
    /// Packets.
    acked: u64,
    lost: u64,
}

/// What an experiment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Unknown,
    Jitter,
    Nothing,
}

impl Experiment {
    fn new(r: &Round, is_known: bool) -> Self {
        Experiment {
            began: r.now,
            window: r.window,
            is_known,
            rounds: 0,
            still: 0,
            delays: Delays::default(),
            acked: 0,
            lost: 0,
        }
    }

    fn on_round(&mut self, r: &Round) -> Verdict {
        self.rounds += 1;
        if self.rounds <= ROUNDS_SKIPPED {
            return Verdict::Unknown;
        }
        if self.rounds >= ROUNDS_MAX {
            return Verdict::Nothing;
        }
        let Some(delay_ns) = r.delay_ns else { return Verdict::Unknown };
        self.still = if delay_ns <= r.target_ns / STILL_PART { self.still + 1 } else { 0 };
        self.delays.add(delay_ns);
        if self.still >= STILL_ROUNDS { Verdict::Nothing } else { self.judge(r) }
    }

    fn judge(&self, r: &Round) -> Verdict {
        let d = &self.delays;
        let Some(&(n, jitter, none)) = JUDGED.iter().find(|j| j.0 == d.n) else { return Verdict::Unknown };
        let (ratio, matters) = (d.ratio(), d.most * 1000 >= r.target_ns * 3 / 4);
        let is_noise = (jitter..=RATIO_MAX).contains(&ratio);
        if is_noise && d.vary(VARIANCE_PART) && matters && self.lost * LOSS_PART <= self.acked {
            Verdict::Jitter
        } else if ratio < none || n == JUDGED[JUDGED.len() - 1].0 {
            Verdict::Nothing
        } else {
            Verdict::Unknown
        }
    }

    /// The delay of others' making, nanoseconds: a quarter more than so few rounds have shown
    /// covers most; a host that was late once does not make a mean.
    fn delay_ns(&self) -> u64 {
        (self.delays.most * 1250).min(self.delays.mean_ns() * 5 / 2)
    }
}

impl NonCongestive {
    /// The delay of others' making that is believed, nanoseconds; until it is tried again.
    pub(super) fn noncongestive_ns(&self) -> u64 {
        self.noncongestive_ns
    }

    /// No delay of others' making is believed any more; an experiment goes on.
    pub(super) fn forget(&mut self) {
        self.noncongestive_ns = 0;
    }

    pub(super) fn on_ack(&mut self, packets: u32) {
        self.acked += u64::from(packets);
        if let Some(e) = &mut self.experiment {
            e.acked += u64::from(packets);
        }
    }

    pub(super) fn on_loss(&mut self, packets: u32) {
        self.lost += u64::from(packets);
        if let Some(e) = &mut self.experiment {
            e.lost += u64::from(packets);
        }
    }

    /// A packet was not lost after all.
    pub(super) fn on_spurious(&mut self) {
        self.lost = self.lost.saturating_sub(1);
        if let Some(e) = &mut self.experiment {
            e.lost = e.lost.saturating_sub(1);
        }
    }

    /// The window is to change for a reason that is no delay: an experiment is over. Returns the
    /// window it began with.
    pub(super) fn end(&mut self) -> Option<u64> {
        self.experiment.take().map(|e| e.window)
    }

    /// The window is the least there is whatever the delay, and this one waits until it is over.
    pub(super) fn window_before(&self) -> Option<u64> {
        self.experiment.as_ref().map(|e| e.window)
    }

    /// A round ended.
    pub(super) fn on_round(&mut self, r: &Round) -> Option<Next> {
        self.look_for_full_queue();
        let Some(e) = &mut self.experiment else { return self.begin(r) };
        let verdict = e.on_round(r);
        if verdict == Verdict::Unknown {
            return Some(Next::Least);
        }
        let e = self.experiment.take()?;
        if verdict == Verdict::Jitter {
            let believed_ns = NONCONGESTIVE_NS.max(NONCONGESTIVE_TIMES * r.now.since_ns(e.began));
            (self.noncongestive_ns, self.noncongestive_until) = (e.delay_ns(), r.now.plus_ns(believed_ns));
            (self.acked, self.lost, self.wait) = (0, 0, 0);
            return Some(Next::Given { window: e.window, is_known: e.is_known });
        }
        self.wait = (self.wait.max(WAIT_ROUNDS) * WAIT_GROWS).min(WAIT_ROUNDS_MAX);
        Some(Next::Back(e.window * KEPT.0 / KEPT.1))
    }

    /// Begins an experiment if it is time for one.
    fn begin(&mut self, r: &Round) -> Option<Next> {
        let is_known = self.noncongestive_ns > 0;
        if !r.is_full || is_known && r.now < self.noncongestive_until {
            return None;
        }
        if !is_known && !self.looks_like_jitter(r) {
            return None;
        }
        (self.noncongestive_ns, self.waited) = (0, 0);
        self.experiment = Some(Experiment::new(r, is_known));
        Some(Next::Least)
    }

    /// Looks at the delays of the last full rounds once there are enough, and begins anew.
    fn looks_like_jitter(&mut self, r: &Round) -> bool {
        let Some(delay_ns) = r.delay_ns else { return false };
        self.waited = self.waited.saturating_add(1);
        self.seen.add(delay_ns);
        if self.seen.n < SEEN {
            return false;
        }
        let d = core::mem::take(&mut self.seen);
        self.waited >= self.wait.max(WAIT_ROUNDS)
            && d.mean_ns() > r.target_ns / 2
            && (SEEN_RATIO..=RATIO_MAX).contains(&d.ratio())
            && d.vary(SEEN_VARIANCE_PART)
    }

    /// With a non-congestive delay the window shrinks too late where a queue is full after all:
    /// others may have come, to a port whose whole queue is no longer than that delay.
    fn look_for_full_queue(&mut self) {
        if self.acked + self.lost < FULL_PACKETS {
            return;
        }
        if self.noncongestive_ns > 0 && self.lost * LOSS_PART > self.acked {
            self.noncongestive_ns = 0;
            self.wait = WAIT_ROUNDS_MAX;
        }
        (self.acked, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET_NS: u64 = 300_000;
    const LEAST: u64 = 2;
    /// Rounds within which jitter is found whatever the numbers of the day.
    const LONG: u64 = 2000;

    /// Numbers that know nothing of each other, below `most`.
    fn noise(i: u64, most: u64) -> u64 {
        let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % most
    }

    /// Jitter of up to 2 ms: full windows wait for the latest of many packets.
    fn jitter(round: u64, window: u64) -> u64 {
        (0..(window / 2).clamp(1, 4)).map(|k| noise(4 * round + k, 2_000_000)).max().unwrap_or(0)
    }

    /// The queue of 8 flows, who heed it in turn: up and down within 12 rounds.
    fn crowd(round: u64, window: u64) -> u64 {
        1_200_000 + 12_000 * window + [0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1][(round % 12) as usize] * 150_000
    }

    /// What a window of 64 packets does that keeps it but for experiments. The last, how many of
    /// the rounds it was the least, and how many were past when a delay was found to be others'.
    struct Seen {
        window: u64,
        least: u64,
        found_at: Option<u64>,
    }

    fn rounds(f: &mut NonCongestive, start_ns: u64, lost: u32, delay: impl Fn(u64, u64) -> u64) -> Seen {
        let mut s = Seen { window: 64, least: 0, found_at: None };
        for i in 0..LONG {
            let now = Time(start_ns + i * 1_000_000);
            f.on_ack(100);
            f.on_loss(lost);
            let r = Round {
                now,
                delay_ns: Some(delay(i, s.window)),
                is_full: true,
                target_ns: TARGET_NS,
                window: s.window,
            };
            match f.on_round(&r) {
                None => {}
                Some(Next::Least) => s.window = LEAST,
                Some(Next::Back(window)) => s.window = window,
                Some(Next::Given { window, .. }) => (s.window, s.found_at) = (window, s.found_at.or(Some(i))),
            }
            s.least += u64::from(s.window == LEAST);
        }
        s
    }

    // spec: P-6.10
    #[test]
    fn a_delay_that_varies_is_noncongestive() {
        let mut f = NonCongestive::default();
        let s = rounds(&mut f, 0, 0, jitter);
        assert!(s.found_at.is_some_and(|at| at < 500), "{:?}", s.found_at);
        assert_eq!(s.window, 64, "as it was");
        let given = f.noncongestive_ns();
        assert!((1_800_000..=2_500_000).contains(&given), "{given}");
    }

    // spec: P-6.11
    #[test]
    fn a_queue_is_congestion_whoever_made_it() {
        let own = |_: u64, window: u64| 12_000 * window.saturating_sub(4);
        let others = |_: u64, window: u64| 2_000_000 + 12_000 * window;
        let comes = |round: u64, _: u64| if round < LONG / 2 { 100_000 } else { 2_000_000 };
        let each_second = |round: u64, _: u64| if round.is_multiple_of(2) { 200_000 } else { 2_000_000 };
        let kinds: [&dyn Fn(u64, u64) -> u64; 5] = [&own, &others, &comes, &crowd, &each_second];
        for (k, delay) in kinds.iter().enumerate() {
            let mut f = NonCongestive::default();
            let s = rounds(&mut f, 0, 0, delay);
            assert_eq!(s.found_at, None, "{k}");
            assert!(s.window > LEAST && s.least < LONG / 16, "{k}: {} rounds of the least window", s.least);
        }
    }

    /// A queue of this window's own that looks like jitter while it is full goes with the window.
    // spec: P-6.11
    #[test]
    fn an_experiment_that_finds_no_delay_is_over_soon() {
        let mut f = NonCongestive::default();
        let s = rounds(&mut f, 0, 0, |round, window| if window > 4 { jitter(round, 4) } else { 20_000 });
        assert_eq!(s.found_at, None);
        assert!((1..=4).contains(&(s.least / u64::from(STILL_ROUNDS + ROUNDS_SKIPPED))), "{}", s.least);
    }

    // spec: P-6.10
    #[test]
    fn a_full_queue_is_congestion() {
        assert_eq!(rounds(&mut NonCongestive::default(), 0, 6, jitter).found_at, None);
        assert!(rounds(&mut NonCongestive::default(), 0, 2, jitter).found_at.is_some());
    }

    // spec: P-6.12
    #[test]
    fn a_noncongestive_delay_is_given_up_when_the_queue_is_full() {
        for (lost, is_kept) in [(2, true), (8, false)] {
            let mut f = NonCongestive::default();
            rounds(&mut f, 0, 0, jitter);
            let after = LONG * 1_000_000;
            assert!(f.noncongestive_ns() > 0);
            rounds(&mut f, after, lost, |_, _| 700_000);
            assert_eq!(f.noncongestive_ns() > 0, is_kept, "{lost} of 100 lost");
        }
    }

    // spec: P-6.10
    #[test]
    fn a_noncongestive_delay_is_tried_again() {
        let mut f = NonCongestive::default();
        rounds(&mut f, 0, 0, jitter);
        // Within the time nothing shrinks because of it; then one experiment.
        assert_eq!(rounds(&mut f, 2_000_000_000, 0, jitter).least, 0);
        let s = rounds(&mut f, 13_000_000_000, 0, jitter);
        assert!(s.found_at.is_some_and(|at| at <= u64::from(ROUNDS_MAX)), "{:?}", s.found_at);
        assert_eq!(s.window, 64);
        // The delay has become this window's own meanwhile.
        let s = rounds(&mut f, 30_000_000_000, 0, |_, window| 12_000 * window.saturating_sub(4));
        assert_eq!((s.found_at, s.least), (None, u64::from(STILL_ROUNDS + ROUNDS_SKIPPED)));
        assert_eq!(f.noncongestive_ns(), 0);
    }

    #[test]
    fn ten_seconds_of_delay_in_each_round_are_no_overflow() {
        let mut f = NonCongestive::default();
        for delay in [u64::MAX, 0, 20_000_000_000] {
            rounds(&mut f, 0, 0, |round, _| if round.is_multiple_of(2) { delay } else { 0 });
        }
    }
}
