//! Which of several values is best, from times of supersteps with each of them
//! (`spec/superstep.md` 11). Pure.
//!
//! The seed's rule: not the value of the best mean but the smallest one at which times scatter
//! little. A mean can be had by luck; a superstep waits for the slowest of all processes, so what
//! scatters grows with their number.

use serde::Serialize;

/// Slower than the fastest of the steady ones by this much is as fast.
pub const AS_FAST: f64 = 1.05;
/// Scatter that is little, whatever the others have; else up to [`AS_STEADY`] times the least.
pub const LITTLE_SCATTER: f64 = 0.05;
/// See [`LITTLE_SCATTER`].
pub const AS_STEADY: f64 = 1.5;
/// Gained less than this over the default, a setting is not worth having.
pub const WORTH: f64 = 0.97;

/// Times of supersteps with one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub count: usize,
    /// Nanoseconds.
    pub median_ns: f64,
    /// Nanoseconds.
    pub mean_ns: f64,
    /// Standard deviation, nanoseconds.
    pub sd_ns: f64,
    /// From the tenth to the nine tenths quantile, over the median: one superstep that the machine
    /// held up does not count.
    pub scatter: f64,
}

impl Times {
    /// Of these; nothing of none.
    #[must_use]
    pub fn of(times_ns: &[f64]) -> Times {
        let mut all: Vec<f64> = times_ns.iter().copied().filter(|t| t.is_finite() && *t > 0.0).collect();
        if all.is_empty() {
            return Times::default();
        }
        all.sort_by(f64::total_cmp);
        let quantile = |q: f64| all[((all.len() as f64 * q).ceil() as usize).clamp(1, all.len()) - 1];
        let count = all.len();
        let mean_ns = all.iter().sum::<f64>() / count as f64;
        let squares: f64 = all.iter().map(|t| (t - mean_ns).powi(2)).sum();
        let (median_ns, sd_ns) = (quantile(0.5), (squares / (count.max(2) - 1) as f64).sqrt());
        Times { count, median_ns, mean_ns, sd_ns, scatter: (quantile(0.9) - quantile(0.1)) / median_ns }
    }
}

/// Which of them, by its place, from values in ascending order; `default` is the place of what is
/// used if nothing is set. `None` of nothing that was measured.
#[must_use]
pub fn choose(ascending: &[Times], default: Option<usize>) -> Option<usize> {
    let measured = || ascending.iter().enumerate().filter(|(_, t)| t.count > 0);
    let least = measured().map(|(_, t)| t.scatter).min_by(f64::total_cmp)?;
    let is_steady = |t: &Times| t.scatter <= LITTLE_SCATTER.max(least * AS_STEADY);
    // (The median of what scatters may be low by luck.)
    let steady = measured().filter(|(_, t)| is_steady(t));
    let fastest = steady.map(|(_, t)| t.median_ns).min_by(f64::total_cmp)?;
    let is_fast = |t: &Times| t.median_ns <= fastest * AS_FAST;
    let spoilt = |t: &Times| t.median_ns * (1.0 + t.scatter);
    let (nth, found) = measured().find(|(_, t)| is_fast(t) && is_steady(t))?;
    let usual = default.and_then(|nth| Some((nth, ascending.get(nth).filter(|t| t.count > 0)?)));
    match usual {
        Some((usual, t)) if spoilt(found) >= spoilt(t) * WORTH => Some(usual),
        _ => Some(nth),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_stats::{open_unit, seeded};

    /// Times around a middle, which scatter by this share of it, and now and then one that was held
    /// up.
    fn noisy(middle_ns: f64, scatter: f64, seed: u64) -> Times {
        let mut chance = seeded(seed);
        let one = |chance: &mut _| middle_ns * (1.0 + scatter * (open_unit(chance) + open_unit(chance) - 1.0));
        let mut times: Vec<f64> = (0..60).map(|_| one(&mut chance)).collect();
        times[7] = middle_ns * 20.0;
        Times::of(&times)
    }

    #[test]
    fn the_smallest_that_is_as_fast_and_as_steady_and_not_the_best_mean() {
        // The collapse below, the best mean at the fourth, which scatters, and the plateau. (The
        // quantiles of such times are apart by 1.1 times the second number.)
        let middles = [(9e6, 0.6), (5.3e6, 0.5), (5.1e6, 0.03), (4.95e6, 0.6), (5.0e6, 0.03), (5.05e6, 0.025)];
        for seed in 0..50 {
            let times: Vec<Times> = middles.iter().zip(0..).map(|((m, s), n)| noisy(*m, *s, seed * 100 + n)).collect();
            assert_eq!(choose(&times, None), Some(2), "{times:?}");
        }
    }

    #[test]
    fn what_is_gained_over_the_default_must_be_worth_a_setting() {
        for seed in 0..50 {
            let times = [noisy(1.00e6, 0.04, seed), noisy(1.01e6, 0.04, seed + 1000), noisy(1.3e6, 0.3, seed + 2000)];
            assert_eq!(choose(&times, Some(1)), Some(1));
            assert_eq!(choose(&times, Some(2)), Some(0));
        }
    }

    #[test]
    fn where_all_scatter_the_fastest_of_the_steadier_is_taken() {
        let times = [noisy(2e6, 0.9, 1), noisy(1e6, 1.4, 2), noisy(1e6, 0.8, 3)];
        assert_eq!(choose(&times, None), Some(2));
        assert_eq!(choose(&[], None), None);
        assert_eq!(choose(&[Times::default()], Some(0)), None);
        assert_eq!(Times::of(&[f64::NAN, -1.0]).count, 0);
    }

    proptest! {
        #[test]
        fn what_is_chosen_was_measured_and_is_never_much_slower_than_the_best_of_the_steady(
            all in prop::collection::vec(prop::collection::vec(1.0f64..1e9, 0..20), 0..8),
            default in prop::option::of(0usize..9),
        ) {
            let times: Vec<Times> = all.iter().map(|t| Times::of(t)).collect();
            match choose(&times, default) {
                None => prop_assert!(times.iter().all(|t| t.count == 0)),
                Some(nth) => {
                    prop_assert!(times[nth].count > 0);
                    let measured = || times.iter().filter(|t| t.count > 0);
                    let least = measured().map(|t| t.scatter).fold(f64::MAX, f64::min);
                    let is_steady = |t: &&Times| t.scatter <= LITTLE_SCATTER.max(least * AS_STEADY);
                    let fastest = measured().filter(is_steady).map(|t| t.median_ns).fold(f64::MAX, f64::min);
                    let is_good = is_steady(&&times[nth]) && times[nth].median_ns <= fastest * AS_FAST;
                    prop_assert!(is_good || default == Some(nth));
                }
            }
        }
    }
}
