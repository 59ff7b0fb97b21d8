//! The row of a table: one cell's samples in a dozen numbers, and intervals that assume no distribution.

use crate::error::argument;
use crate::random::{Random, below};
use crate::sample::{Sample, median_in_place};
use crate::special::binomial_interval_ranks;
use crate::{Error, sample};

/// A confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The coverage that is certain for independent samples: at least what was asked for, or less where there are too few
    /// values for it (then the interval reaches from the least to the greatest). For bootstrap intervals the nominal one.
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

/// Confidence interval of the quantile `p` from order statistics: valid for any distribution (David and Nagaraja, Order
/// Statistics, 3rd ed., 7.1). `p` and `confidence` in 0..1, both exclusive.
///
/// # Errors
/// [`Error::Argument`] for `p` or `confidence` out of range.
pub fn quantile_interval(sample: &Sample, p: f64, confidence: f64) -> Result<Interval, Error> {
    argument("p", p, p > 0.0 && p < 1.0, "between 0 and 1")?;
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    Ok(order_interval(sample, p, confidence))
}

fn order_interval(sample: &Sample, p: f64, confidence: f64) -> Interval {
    let sorted = sample.sorted();
    let ranks = binomial_interval_ranks(sorted.len(), p, confidence);
    Interval { low: sorted[ranks.low], high: sorted[ranks.high], coverage: ranks.coverage }
}

/// Bootstrap confidence interval (percentiles of `replicates` resamplings, Efron 1979) of any statistic of the values, for
/// those without a closed form (mean of a heavy tail, ratio of quantiles). The statistic gets values in no order.
///
/// # Errors
/// [`Error::Argument`] for fewer than 20 or more than 100,000 replicates or a confidence out of 0..1;
/// [`Error::NotFinite`] when the statistic gives a value that is no number.
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

/// Medians over separate launches of a program. Samples of one launch share its memory layout, its connections and its
/// neighbours, so that the launch, not the sample, is the independent unit (Hunold and Carpen-Amarie, IEEE TPDS 27(12), 2016).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Launches {
    /// Median of each launch, in the order given.
    pub medians: Vec<f64>,
    /// Median of the medians.
    pub median: f64,
    /// Interval of the median of medians from order statistics; below 6 launches its coverage is under 95 %, see there.
    pub interval: Interval,
    /// (greatest - least median) / median of medians; 0 when the latter is 0.
    pub spread: f64,
    /// Probability of such differences among launches if all samples came from one distribution (Kruskal-Wallis); `None`
    /// for one launch or when all samples are equal.
    pub equal_p: Option<f64>,
}

impl Launches {
    /// Combines the launches of one cell.
    ///
    /// # Errors
    /// [`Error::TooFew`] without any launch.
    pub fn of(launches: &[Sample]) -> Result<Self, Error> {
        let medians: Vec<f64> = launches.iter().map(Sample::median).collect();
        if medians.is_empty() {
            return Err(Error::TooFew { have: 0, need: 1 });
        }
        let as_sample = Sample::signed(medians.clone())?;
        let median = median_in_place(&mut medians.clone());
        let spread = if median == 0.0 { 0.0 } else { (as_sample.max() - as_sample.min()) / median.abs() };
        let equal_p = crate::compare::kruskal_wallis(launches);
        Ok(Self { medians, median, interval: order_interval(&as_sample, 0.5, CONFIDENCE), spread, equal_p })
    }
}
