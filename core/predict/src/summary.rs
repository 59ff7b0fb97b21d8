//! Replicas of a run put together.

use crate::outcome::{Outcome, Verdict};

/// What replicas of a run say together. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Replicas that came to their end, by run time: indices into what was given.
    pub by_time: Vec<usize>,
    /// Replicas that did not.
    pub unfinished: usize,
    /// The time of the middle replica (the lower of two).
    pub median_s: f64,
    /// Which of those given that is: its losses sum to its time.
    pub median_run: usize,
    /// The arithmetic mean.
    pub mean_s: f64,
    /// The least and the greatest.
    pub range_s: (f64, f64),
    /// Between these are 95 % of the replicas: their 2.5 % and 97.5 % quantiles (Hyndman and Fan's type 7).
    pub band_s: (f64, f64),
    /// 95 % are at most this, by the same rule.
    pub p95_s: f64,
}

/// What replicas say together; `None` if none came to its end.
#[must_use]
pub fn summarise(outcomes: &[Outcome]) -> Option<Summary> {
    let finished = |i: &usize| outcomes[*i].verdict == Verdict::Finished;
    let mut by_time: Vec<usize> = (0..outcomes.len()).filter(finished).collect();
    by_time.sort_by_key(|i| (outcomes[*i].time, *i));
    let n = by_time.len();
    let seconds: Vec<f64> = by_time.iter().map(|i| outcomes[*i].time.seconds()).collect();
    let median_run = *by_time.get(n.checked_sub(1)? / 2)?;
    let quantile = |p: f64| {
        let place = p * (n - 1) as f64;
        let below = place.floor() as usize;
        let above = (below + 1).min(n - 1);
        seconds[below] + (seconds[above] - seconds[below]) * (place - below as f64)
    };
    Some(Summary {
        unfinished: outcomes.len() - n,
        median_s: outcomes[median_run].time.seconds(),
        median_run,
        mean_s: seconds.iter().map(|s| s / n as f64).sum(),
        range_s: (seconds[0], seconds[n - 1]),
        band_s: (quantile(0.025), quantile(0.975)),
        p95_s: quantile(0.95),
        by_time,
    })
}
