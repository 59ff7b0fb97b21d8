//! The row of a table: one cell's samples in a dozen numbers, and intervals that assume no
//! distribution.

use crate::error::argument;
use crate::random::{Random, below};
use crate::sample::Sample;
use crate::special::{Ranks, binomial_interval_ranks};
use crate::{Error, sample};

/// A confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The coverage that is certain for independent samples: at least what was asked for, or less
    /// where there are too few values for it (then the interval reaches from the least to the
    /// greatest). For bootstrap intervals the nominal one.
    pub coverage: f64,
}

impl Interval {
    /// `high - low`.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// True when `value` is inside, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// One cell's samples in short. All values have the unit of the samples (nanoseconds in Weir).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Summary {
    /// How many samples.
    pub count: u64,
    /// Least value.
    pub min: f64,
    /// Quantile 0.01.
    pub p1: f64,
    /// Quantile 0.05.
    pub p5: f64,
    /// Quantile 0.25.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// Quantile 0.75.
    pub p75: f64,
    /// Quantile 0.90.
    pub p90: f64,
    /// Quantile 0.99.
    pub p99: f64,
    /// Quantile 0.999.
    pub p99_9: f64,
    /// Greatest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, divisor n - 1; 0 for one value.
    pub sd: f64,
    /// Median absolute deviation from the median, not scaled.
    pub mad: f64,
    /// 95 % confidence interval of the median, from order statistics.
    pub median_interval: Interval,
}

/// Confidence used where none is asked for.
pub const CONFIDENCE: f64 = 0.95;

impl Summary {
    /// Summary of a sample.
    pub fn of(sample: &Sample) -> Self {
        Self {
            count: sample.count() as u64,
            min: sample.min(),
            p1: sample.quantile(0.01),
            p5: sample.quantile(0.05),
            p25: sample.quantile(0.25),
            p50: sample.quantile(0.5),
            p75: sample.quantile(0.75),
            p90: sample.quantile(0.9),
            p99: sample.quantile(0.99),
            p99_9: sample.quantile(0.999),
            max: sample.max(),
            mean: sample.mean(),
            sd: sample.sd(),
            mad: sample.mad(),
            median_interval: order_interval(sample, 0.5, CONFIDENCE),
        }
    }
}

/// Confidence interval of the quantile `p` from order statistics: valid for any distribution (David
/// and Nagaraja, Order Statistics, 3rd ed., 7.1). `p` and `confidence` in 0..1, both exclusive.
///
/// # Errors
/// [`Error::Argument`] for `p` or `confidence` out of range.
pub fn quantile_interval(sample: &Sample, p: f64, confidence: f64) -> Result<Interval, Error> {
    argument("p", p, p > 0.0 && p < 1.0, "between 0 and 1")?;
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    Ok(order_interval(sample, p, confidence))
}

/// [`quantile_interval`] of samples that depend on each other and are worth only `effective`
/// independent ones ([`crate::independence::effective_count`]): the order statistics at those
/// places that the interval of so few would have.
///
/// # Errors
/// As [`quantile_interval`]; [`Error::Argument`] for an effective count that is no number above 0.
pub fn dependent_quantile_interval(
    sample: &Sample,
    p: f64,
    confidence: f64,
    effective: f64,
) -> Result<Interval, Error> {
    argument("p", p, p > 0.0 && p < 1.0, "between 0 and 1")?;
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    argument("effective count", effective, effective > 0.0, "above 0")?;
    let sorted = sample.sorted();
    let ranks = dependent_ranks(sorted.len(), effective, p, confidence);
    Ok(Interval { low: sorted[ranks.low], high: sorted[ranks.high], coverage: ranks.coverage })
}

/// Places among `n` values of the order statistics that enclose a quantile, if these are worth
/// `effective` independent ones: the k-th of m independent values lies at the share k / (m + 1) of
/// the distribution on average.
pub(crate) fn dependent_ranks(n: usize, effective: f64, p: f64, confidence: f64) -> Ranks {
    let m = (effective as usize).clamp(1, n);
    let few = binomial_interval_ranks(m, p, confidence);
    if m == n {
        return few;
    }
    let place = |rank: usize| (rank + 1) as f64 / (m + 1) as f64 * (n + 1) as f64 - 1.0;
    let within = |place: f64| (place.max(0.0) as usize).min(n - 1);
    Ranks { low: within(place(few.low).floor()), high: within(place(few.high).ceil()), coverage: few.coverage }
}

fn order_interval(sample: &Sample, p: f64, confidence: f64) -> Interval {
    let sorted = sample.sorted();
    let ranks = binomial_interval_ranks(sorted.len(), p, confidence);
    Interval { low: sorted[ranks.low], high: sorted[ranks.high], coverage: ranks.coverage }
}

/// Bootstrap confidence interval (percentiles of `replicates` resamplings, Efron 1979) of any
/// statistic of the values, for those without a closed form (mean of a heavy tail, ratio of
/// quantiles). The statistic gets values in no order.
///
/// # Errors
/// [`Error::Argument`] for fewer than 20 or more than 100,000 replicates or a confidence out of
/// 0..1; [`Error::NotFinite`] when the statistic gives a value that is no number.
pub fn bootstrap_interval(
    sample: &Sample,
    statistic: impl Fn(&[f64]) -> f64,
    confidence: f64,
    replicates: usize,
    random: &mut Random,
) -> Result<Interval, Error> {
    argument("replicates", replicates as f64, (20..=100_000).contains(&replicates), "20 to 100000")?;
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    let values = sample.sorted();
    let mut resampled = vec![0.0; values.len()];
    let mut results = Vec::with_capacity(replicates);
    for index in 0..replicates {
        for slot in &mut resampled {
            *slot = values[below(random, values.len())];
        }
        let value = statistic(&resampled);
        if !value.is_finite() {
            return Err(Error::NotFinite { index, value });
        }
        results.push(value);
    }
    results.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Ok(Interval {
        low: sample::quantile_of_sorted(&results, tail),
        high: sample::quantile_of_sorted(&results, 1.0 - tail),
        coverage: confidence,
    })
}
