//! What an endpoint waits for: openings in progress (spec 3.4): how many may be unanswered at a
//! time, how far apart each is repeated; and how many peers are silent.
//!
//! In a start in which every rank opens to every other, the work in front of each answer is what
//! all have sent. An opener that repeats the sooner the later it is answered makes it more.

use alloc::collections::VecDeque;

use crate::alive::Alive;
use crate::{Config, PeerId, Time};

/// Openings in progress that change no interval: fewer are none that anybody waits behind.
const FEW: u64 = 8;
/// Of the time between two associations that come up among many openings so much counts as the
/// start's at the most.
const STEP_MAX_NS: u64 = 1_000_000_000;
/// So many openings in progress are those of a start of hundreds of ranks.
const HUNDREDS: u32 = 64;
/// After the last association of such a start came up, those of others may go on for so long.
const LATELY_NS: u64 = 60_000_000_000;
/// No first probe timeout is to be longer than twice this, whatever answers took.
const TOOK_MAX_NS: u64 = 500_000_000;

/// Openings of one endpoint.
#[derive(Default)]
pub(crate) struct Openings {
    /// Associations that are up or being opened.
    pub(crate) alive: Alive,
    /// Came up and take SCTP, as long as nobody has asked.
    pub(crate) for_sctp: VecDeque<PeerId>,
    /// Begun and not over, those that wait included.
    in_progress: u32,
    /// Of these, those that hold a place: a first answer may still come.
    unanswered: u32,
    /// Those that wait for a place: who has been answered, for that one is there, and who has sent
    /// nothing yet. In the order in which they came; and some that are over.
    known: VecDeque<PeerId>,
    waiting: VecDeque<PeerId>,
    /// What an answer took of late, smoothed, nanoseconds; 0 before the first.
    took_ns: u64,
    /// When the last association came up among many openings.
    came_up: Time,
    /// The same among those of a start of hundreds.
    hundreds_at: Time,
    /// The time in which they did, nanoseconds. Only grows.
    crowded_ns: u64,
    /// Peers that have left several probes in a row unanswered.
    silent: u32,
}

impl Openings {
    /// One more; whether it has a place, or is to wait.
    pub(crate) fn begin(&mut self, cfg: &Config, peer: PeerId) -> bool {
        self.in_progress += 1;
        let has_place = self.waiting.is_empty() && self.may_go_on(cfg);
        if !has_place {
            self.waiting.push_back(peer);
        }
        has_place
    }

    /// One that had given its place up, or has never had one, was answered; whether it has a place
    /// again, or is to wait.
    pub(crate) fn go_on(&mut self, cfg: &Config, peer: PeerId) -> bool {
        let has_place = self.known.is_empty() && self.may_go_on(cfg);
        if !has_place {
            self.known.push_back(peer);
        }
        has_place
    }

    /// Takes a place if there is one.
    fn may_go_on(&mut self, cfg: &Config) -> bool {
        let is_free = self.unanswered < cfg.openings_max;
        self.unanswered += u32::from(is_free);
        is_free
    }

    /// One is over.
    pub(crate) fn end(&mut self, had_place: bool) {
        self.in_progress = self.in_progress.saturating_sub(1);
        if had_place {
            self.leave_place();
        }
    }

    /// One has to repeat: the next may begin.
    pub(crate) fn leave_place(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Somebody waits, and there is a place.
    pub(crate) fn can_admit(&self, cfg: &Config) -> bool {
        !(self.waiting.is_empty() && self.known.is_empty()) && self.unanswered < cfg.openings_max
    }

    /// Who has waited longest, if there is a place; it is to be taken ([`Openings::take_place`])
    /// unless that one's opening is over.
    pub(crate) fn next(&mut self, cfg: &Config) -> Option<PeerId> {
        if !self.can_admit(cfg) {
            return None;
        }
        self.known.pop_front().or_else(|| self.waiting.pop_front())
    }

    pub(crate) fn take_place(&mut self) {
        self.unanswered += 1;
    }

    /// A first INIT or CONFIRM was answered after so long, perhaps with repetitions in between.
    pub(crate) fn answered(&mut self, took_ns: u64) {
        self.took_ns = if self.took_ns == 0 { took_ns } else { (7 * self.took_ns + took_ns) / 8 };
    }

    /// A peer leaves its probes unanswered, or does so no longer.
    pub(crate) fn silent(&mut self, is_one_more: bool) {
        self.silent = if is_one_more { self.silent + 1 } else { self.silent.saturating_sub(1) };
    }

    /// The longest probe timeout: where many peers are silent at a time, their probes together are
    /// to leave the processor, theirs and this one's, for something else.
    pub(crate) fn pto_max_ns(&self, cfg: &Config) -> u64 {
        let all = u64::from(self.silent) * cfg.pto_each.as_nanos() as u64;
        all.min(cfg.peer_timeout.as_nanos() as u64 / 4).max(cfg.pto_max.as_nanos() as u64)
    }

    /// An association came up. One of many openings: the start goes on, and the time since the last
    /// one says nothing against a peer that was not heard meanwhile.
    pub(crate) fn comes_up(&mut self, now: Time) {
        if u64::from(self.in_progress) > FEW {
            if self.came_up != Time::ZERO {
                self.crowded_ns += now.since_ns(self.came_up).min(STEP_MAX_NS);
            }
            self.came_up = now;
        }
        if self.in_progress >= HUNDREDS {
            self.hundreds_at = now;
        }
    }

    /// The time in which many openings went on, all in all.
    pub(crate) fn crowded_ns(&self) -> u64 {
        self.crowded_ns
    }

    /// Whether this endpoint is, or was a short while ago, in a start of hundreds.
    pub(crate) fn were_hundreds(&self, now: Time) -> bool {
        self.hundreds_at != Time::ZERO && now.since_ns(self.hundreds_at) < LATELY_NS
    }

    /// What an answer takes where many openings are in progress.
    pub(crate) fn crowd_took_ns(&self) -> Option<u64> {
        (u64::from(self.in_progress) > FEW).then_some(self.took_ns.min(TOOK_MAX_NS))
    }

    /// The interval between two repetitions that has come to `ns` by doubling, where `more` askings
    /// are in progress too.
    pub(crate) fn interval_ns(&self, cfg: &Config, ns: u64, more: usize, is_confirmed: bool) -> u64 {
        let most = if is_confirmed { cfg.handshake_retry_answered } else { cfg.handshake_retry_max };
        let (retry, most) = (cfg.handshake_retry_max.as_nanos() as u64, most.as_nanos() as u64);
        let n = u64::from(self.in_progress) + more as u64;
        if n <= FEW {
            return ns.min(most);
        }
        let of = |each: core::time::Duration| (each.as_nanos() as u64).saturating_mul(n);
        let crowd = cfg.handshake_retry_crowd.as_nanos() as u64;
        let most = most.max(of(cfg.handshake_retry_each_max).min(if is_confirmed { crowd / 2 } else { crowd }));
        ns.max(of(cfg.handshake_retry_each).min(retry)).max(2 * self.took_ns).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // spec: P-3.23
    #[test]
    fn time_in_which_many_openings_go_on_is_counted_and_no_other() {
        let cfg = Config::default();
        let mut all = Openings::default();
        let s = |n: u64| Time(n * 1000 * MS);
        for i in 0..=FEW as u32 {
            all.begin(&cfg, PeerId(i));
        }
        all.comes_up(s(100));
        assert_eq!(all.crowded_ns(), 0);
        all.comes_up(Time(s(100).0 + 300 * MS));
        assert_eq!(all.crowded_ns(), 300 * MS);
        // Five seconds without one: nothing goes on.
        all.comes_up(s(106));
        assert_eq!(all.crowded_ns(), STEP_MAX_NS + 300 * MS);
        all.end(true);
        all.comes_up(s(107));
        assert_eq!(all.crowded_ns(), STEP_MAX_NS + 300 * MS);
        assert!(!all.were_hundreds(s(107)));
        for i in 9..100 {
            all.begin(&cfg, PeerId(i));
        }
        all.comes_up(s(200));
        assert!(all.were_hundreds(s(259)) && !all.were_hundreds(s(260)));
    }

    // spec: P-3.18
    #[test]
    fn places_go_to_those_who_wait_in_their_order() {
        let cfg = Config { openings_max: 2, ..Config::default() };
        let mut all = Openings::default();
        assert_eq!([1, 2, 3, 4].map(|i| all.begin(&cfg, PeerId(i))), [true, true, false, false]);
        assert_eq!(all.next(&cfg), None);
        all.leave_place();
        assert!(all.can_admit(&cfg));
        // Who begins now stands behind those who wait.
        assert!(!all.begin(&cfg, PeerId(5)));
        assert_eq!(all.next(&cfg), Some(PeerId(3)));
        all.take_place();
        assert_eq!(all.next(&cfg), None);
        all.end(true);
        assert_eq!(all.next(&cfg), Some(PeerId(4)));
    }

    // spec: P-3.17
    #[test]
    fn intervals_grow_with_the_openings_in_progress() {
        let cfg = Config { openings_max: 1000, ..Config::default() };
        let mut all = Openings::default();
        let mut with = |n: u32| {
            while all.in_progress < n {
                all.begin(&cfg, PeerId(all.in_progress));
            }
            [(5, false), (10_000, false), (5, true), (10_000, true)]
                .map(|(ms, confirmed)| all.interval_ns(&cfg, ms * MS, 0, confirmed) / MS)
        };
        assert_eq!(with(1), [5, 500, 5, 100]);
        assert_eq!(with(5), [5, 500, 5, 100]);
        assert_eq!(with(8), [5, 500, 5, 100]);
        assert_eq!(with(33), [33, 660, 33, 660]);
        assert_eq!(with(64), [64, 1280, 64, 1000]);
        assert_eq!(with(255), [255, 2000, 255, 1000]);
        assert_eq!(with(1000), [500, 2000, 500, 1000]);
        // Answers take long: nobody repeats before two could have come.
        all.answered(700 * MS);
        assert_eq!(all.interval_ns(&cfg, 5 * MS, 0, false), 1400 * MS);
        assert_eq!(all.interval_ns(&cfg, 5 * MS, 0, true), 1000 * MS);
        (0..999).for_each(|_| all.end(false));
        assert_eq!(all.interval_ns(&cfg, 5 * MS, 0, false), 5 * MS);
        all.took_ns = MS;
        assert_eq!(all.interval_ns(&cfg, 5 * MS, 99, false), 100 * MS, "askings count as well");
    }
}
