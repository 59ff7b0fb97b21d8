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
    /// Between these are 95 % of the replicas: their 2.5 % and 97.5 % quantiles (Hyndman and Fan's
    /// type 7). Of two replicas the median is the lower one and the quantile lies above: then the
    /// band begins at the median.
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
    let median_s = outcomes[median_run].time.seconds();
    let range_s = (seconds[0], seconds[n - 1]);
    // Rounding does not lead out of what was found either.
    let within = |s: f64| s.clamp(range_s.0, range_s.1);
    Some(Summary {
        unfinished: outcomes.len() - n,
        median_s,
        median_run,
        mean_s: seconds.iter().map(|s| s / n as f64).sum(),
        range_s,
        band_s: (within(quantile(0.025)).min(median_s), within(quantile(0.975)).max(median_s)),
        p95_s: within(quantile(0.95)),
        by_time,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Time;

    /// Runs that ended after so many units.
    fn outcomes(times: &[u64]) -> Vec<Outcome> {
        let one = |units: &u64| Outcome {
            verdict: Verdict::Finished,
            time: Time::from_yoctoseconds(i128::from(*units)),
            ends: Vec::new(),
            messages: 0,
            bytes: 0,
            lost: 0,
            steps: 0,
            looked: 0,
            skipped: Vec::new(),
            losses: Default::default(),
            unreceived: Vec::new(),
            unreceived_count: 0,
            notices: Vec::new(),
        };
        times.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn the_median_lies_in_its_band_and_the_band_in_the_range(times in proptest::collection::vec(any::<u64>(), 1..8)) {
            let found = summarise(&outcomes(&times)).unwrap();
            let (min, max) = found.range_s;
            let (low, high) = found.band_s;
            prop_assert!(min <= low && low <= found.median_s && found.median_s <= high && high <= max, "{found:?}");
            prop_assert!((min..=max).contains(&found.p95_s));
        }
    }
}
