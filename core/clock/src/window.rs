//! Starting together: agreed global instants, and what to do when one was missed.
//!
//! The leader [plans](Windows::plan) a run of windows of equal width and sends the [`Plan`] to all;
//! every rank then starts repetition `k` at [`Plan::start_ns`]`(k)` on the global clock, without
//! another message (window scheme of Worsch, Reussner & Augustin 2002). Windows must be so wide
//! that every rank is through with one repetition before the next starts.
//!
//! **Missed windows.** A rank that comes late to a start ([`Arrival::Missed`]) does not wait and
//! does not skip: it starts at once, so that a collective operation cannot hang, and flags the
//! repetition. A repetition flagged on any rank counts as missed on all, for all ranks' times
//! depend on the late one. After the plan the ranks' outcomes are [merged](Outcome::merge) and the
//! leader [learns](Windows::learn): when more starts were missed than may be
//! ([`WindowConfig::tolerated`]), the next plan's windows are wider.

use crate::number::ceil;

/// Limits and habits of [`Windows`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowConfig {
    /// From planning to the first start, ns: must cover sending the plan to all ranks. Grows like
    /// the width when first windows are missed.
    pub lead_ns: i64,
    /// First and least width, ns.
    pub width_min_ns: i64,
    /// Greatest width, and greatest lead unless that is longer from the beginning, ns. Missing
    /// windows of this width means that windows do not work here.
    pub width_max_ns: i64,
    /// The width is at least this times the longest repetition seen. Grove found 1 to 3
    /// retransmission timeouts.
    pub headroom: f64,
    /// What width or lead grow by after a miss, at least.
    pub growth: f64,
    /// Calm plans after which the width may shrink, by half at most.
    pub calm_plans: u32,
    /// Share of starts that may be missed. Times with a heavy tail have no longest: windows that
    /// hold all of them grow without end and measure ever less, while a few missed starts cost
    /// those repetitions only.
    pub tolerated: f64,
    /// So many more may be missed: of few starts a share says little.
    pub slack: u32,
}

impl Default for WindowConfig {
    /// Lead 2 ms; width 50 us to 2 s, 1.5 times the longest, doubled when more than 1 start in 20
    /// and 2 more are missed, halved after 8 calm plans.
    fn default() -> Self {
        WindowConfig {
            lead_ns: 2_000_000,
            width_min_ns: 50_000,
            width_max_ns: 2_000_000_000,
            headroom: 1.5,
            growth: 2.0,
            calm_plans: 8,
            tolerated: 0.05,
            slack: 2,
        }
    }
}

/// Agreed starts: `first + k * width` for `k` in `0..count`, global ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Global time of the first start, ns.
    pub first_ns: i64,
    /// From one start to the next, ns.
    pub width_ns: i64,
    /// How many windows.
    pub count: u32,
}

/// How a rank comes to a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// In time: start at this global time, ns.
    Wait {
        /// The agreed instant.
        until_ns: i64,
    },
    /// Too late: start at once and flag the repetition.
    Missed {
        /// By how much, ns.
        late_ns: i64,
    },
}

impl Plan {
    /// The start of repetition `k`, global ns.
    #[must_use]
    pub fn start_ns(&self, k: u32) -> i64 {
        self.first_ns.saturating_add(self.width_ns.saturating_mul(i64::from(k)))
    }

    /// What a rank ready for repetition `k` at global time `now_ns` does.
    #[must_use]
    pub fn arrive(&self, k: u32, now_ns: i64) -> Arrival {
        let until_ns = self.start_ns(k);
        if now_ns <= until_ns {
            Arrival::Wait { until_ns }
        } else {
            Arrival::Missed { late_ns: now_ns.saturating_sub(until_ns) }
        }
    }
}

/// What came of a plan, on one rank or on all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Starts in the plan.
    pub windows: u32,
    /// Was the very first start missed (the plan came too late)?
    pub missed_first: bool,
    /// Later starts missed.
    pub missed_later: u32,
    /// Greatest time from an agreed start to this rank being ready for the next repetition, over
    /// the repetitions that windows are to hold (all, or all but the longest few in a hundred), ns.
    pub longest_ns: i64,
    /// Greatest lateness at a missed start, ns.
    pub latest_ns: i64,
}

impl Outcome {
    /// Notes how the rank came to repetition `k`.
    pub fn arrived(&mut self, k: u32, arrival: Arrival) {
        self.windows = self.windows.max(k.saturating_add(1));
        if let Arrival::Missed { late_ns } = arrival {
            self.missed_first |= k == 0;
            self.missed_later = self.missed_later.saturating_add(u32::from(k > 0));
            self.latest_ns = self.latest_ns.max(late_ns);
        }
    }

    /// Notes that repetition `k`, started in time, was over at global time `ready_ns`.
    pub fn finished(&mut self, plan: &Plan, k: u32, ready_ns: i64) {
        self.longest_ns = self.longest_ns.max(ready_ns.saturating_sub(plan.start_ns(k)));
    }

    /// Two ranks' outcomes as one: the worse of each. (Over MPI: a reduction with maximum.)
    #[must_use]
    pub fn merge(self, other: Outcome) -> Outcome {
        Outcome {
            windows: self.windows.max(other.windows),
            missed_first: self.missed_first || other.missed_first,
            missed_later: self.missed_later.max(other.missed_later),
            longest_ns: self.longest_ns.max(other.longest_ns),
            latest_ns: self.latest_ns.max(other.latest_ns),
        }
    }
}

/// The leader's state: how wide windows are.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    config: WindowConfig,
    width_ns: i64,
    lead_ns: i64,
    calm: u32,
    longest_calm_ns: i64,
    /// Starts since the width was last judged, and those of them that were missed.
    seen: u64,
    lost: u64,
    saturated: bool,
}

impl Windows {
    /// Windows of the least width, unless an operation's expected length asks for more:
    /// `expected_ns`, 0 if unknown.
    #[must_use]
    pub fn new(config: WindowConfig, expected_ns: i64) -> Windows {
        let mut windows = Windows {
            config,
            width_ns: 0,
            lead_ns: config.lead_ns.max(0),
            calm: 0,
            longest_calm_ns: 0,
            seen: 0,
            lost: 0,
            saturated: false,
        };
        windows.width_ns = windows.fitting_ns(expected_ns);
        windows
    }

    /// The next windows, planned at global time `now_ns`. `clock_error_ns` is the greatest error
    /// bound of all ranks' global clocks: a rank may start that much early or late, so both ends of
    /// a window give way by it.
    #[must_use]
    pub fn plan(&self, now_ns: i64, count: u32, clock_error_ns: f64) -> Plan {
        let error_ns = ceil(clock_error_ns.max(0.0));
        Plan {
            first_ns: now_ns.saturating_add(self.lead_ns).saturating_add(error_ns),
            width_ns: self.width_ns.saturating_add(error_ns.saturating_mul(2)),
            count,
        }
    }

    /// Takes the merged outcome of the last plan.
    pub fn learn(&mut self, outcome: &Outcome) {
        let wanted_ns = self.fitting_ns(outcome.longest_ns);
        let max_ns = self.config.width_max_ns.max(1);
        // A late plan alone says nothing about the width.
        if outcome.missed_first {
            let longer_ns = self.grown(self.lead_ns).max(self.lead_ns.saturating_add(outcome.latest_ns));
            // Narrow windows are no reason for a shorter lead than the one that was too short.
            self.lead_ns = longer_ns.min(max_ns).max(self.lead_ns);
        }
        self.seen = self.seen.saturating_add(outcome.windows.into());
        self.lost = self.lost.saturating_add(outcome.missed_later.into());
        let tolerated = self.config.tolerated.clamp(0.0, 1.0) * self.seen as f64;
        if self.lost as f64 > tolerated + f64::from(self.config.slack) {
            self.saturated |= self.width_ns >= max_ns;
            self.width_ns = self.grown(self.width_ns).max(wanted_ns).min(max_ns);
            self.forget();
            return;
        }
        self.calm = self.calm.saturating_add(1);
        self.longest_calm_ns = self.longest_calm_ns.max(outcome.longest_ns);
        self.width_ns = self.width_ns.max(wanted_ns);
        if self.calm >= self.config.calm_plans.max(1) {
            // Half the width would lose more: only what loses far less than it may is made
            // narrower.
            if 4.0 * self.lost as f64 <= tolerated {
                self.width_ns = self.fitting_ns(self.longest_calm_ns).max(self.width_ns / 2);
            }
            self.forget();
        }
    }

    /// Width of the next windows without the share of clock errors, ns.
    #[must_use]
    pub fn width_ns(&self) -> i64 {
        self.width_ns
    }

    /// Were windows missed even at the greatest width? Use a barrier then, and say so.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.saturated
    }

    fn forget(&mut self) {
        self.calm = 0;
        self.longest_calm_ns = 0;
        (self.seen, self.lost) = (0, 0);
    }

    fn grown(&self, ns: i64) -> i64 {
        ceil(ns.max(1) as f64 * self.config.growth.max(1.0)).max(ns.saturating_add(1))
    }

    fn fitting_ns(&self, longest_ns: i64) -> i64 {
        let least_ns = self.config.width_min_ns.max(1);
        let wanted_ns = ceil(longest_ns.max(0) as f64 * self.config.headroom.max(1.0));
        wanted_ns.clamp(least_ns, self.config.width_max_ns.max(least_ns))
    }
}
