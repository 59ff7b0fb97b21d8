//! When a cell has been measured long enough.

use crate::error::argument;
use crate::independence::{Tally, effective_count};
use crate::sample::check_finite;
use crate::special::binomial_interval_ranks;
use crate::summary::dependent_ranks;
use crate::{Error, Sample};

/// Limits of one cell's measurement. A limit of `None` does not apply.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Budget {
    /// Stop after this time, in nanoseconds, even below `least`.
    pub time_ns: Option<f64>,
    /// Stop when the confidence interval of `quantile` is narrower than this share of the quantile.
    pub relative_width: Option<f64>,
    /// Whose interval is looked at: 0.5 for the median.
    pub quantile: f64,
    /// Its confidence.
    pub confidence: f64,
    /// Never stop by width below this many samples: early intervals are too narrow too often
    /// because stopping looks again and again.
    pub least: u64,
    /// Stop at this many samples.
    pub most: u64,
}

impl Default for Budget {
    /// Median to 1 % with 95 % confidence, 100 to 1,000,000 samples, no limit of time.
    fn default() -> Self {
        Self {
            time_ns: None,
            relative_width: Some(0.01),
            quantile: 0.5,
            confidence: crate::CONFIDENCE,
            least: 100,
            most: 1_000_000,
        }
    }
}

/// Why a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Stop {
    /// The time is up.
    Time,
    /// The interval is narrow enough.
    Width,
    /// There are as many samples as wanted.
    Count,
}

/// To go on or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// Measure more. The number of samples by which the cell will probably be done, for a display
    /// of progress.
    Continue {
        /// Samples in all, those at hand included.
        expected: u64,
    },
    /// Done.
    Stop(Stop),
}

impl Budget {
    /// Checks the limits.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the first that makes no sense.
    pub fn check(&self) -> Result<(), Error> {
        let inside = |v: f64| v > 0.0 && v < 1.0;
        argument("quantile", self.quantile, inside(self.quantile), "between 0 and 1")?;
        argument("confidence", self.confidence, inside(self.confidence), "between 0 and 1")?;
        if let Some(time) = self.time_ns {
            argument("time_ns", time, time > 0.0, "above 0")?;
        }
        if let Some(width) = self.relative_width {
            argument("relative_width", width, width > 0.0 && width.is_finite(), "above 0 and finite")?;
        }
        argument("most", self.most as f64, self.most >= 1 && self.most >= self.least, "at least 1 and `least`")
    }

    /// Decides after `elapsed_ns` with the samples so far. Sorting is the caller's (in [`Sample`]):
    /// ask at counts that grow by a factor, not after every sample.
    ///
    /// # Errors
    /// As [`Budget::check`].
    pub fn decide(&self, sample: &Sample, elapsed_ns: f64) -> Result<Decision, Error> {
        self.check()?;
        let n = sample.count() as u64;
        if self.time_ns.is_some_and(|limit| elapsed_ns >= limit) {
            return Ok(Decision::Stop(Stop::Time));
        }
        if n >= self.most {
            return Ok(Decision::Stop(Stop::Count));
        }
        let mut expected = self.most as f64;
        if let Some(wanted) = self.relative_width {
            let width = relative_width(sample, self.quantile, self.confidence);
            if width <= wanted && n >= self.least {
                return Ok(Decision::Stop(Stop::Width));
            }
            // The width falls with the root of the count.
            expected = expected.min((n as f64 * (width / wanted).powi(2)).max(self.least as f64));
        }
        if let Some(limit) = self.time_ns.filter(|_| elapsed_ns > 0.0) {
            expected = expected.min(n as f64 * limit / elapsed_ns);
        }
        Ok(Decision::Continue { expected: (expected.ceil() as u64).max(n + 1) })
    }
}

/// Width of the quantile's interval over the quantile; infinite while there are too few samples for
/// the confidence, 0 when the interval has no width.
pub fn relative_width(sample: &Sample, quantile: f64, confidence: f64) -> f64 {
    let ranks = binomial_interval_ranks(sample.count(), quantile, confidence);
    let width = sample.sorted()[ranks.high] - sample.sorted()[ranks.low];
    if ranks.coverage < confidence {
        f64::INFINITY
    } else if width == 0.0 {
        0.0
    } else {
        width / sample.quantile(quantile).abs()
    }
}

/// Width of the median's interval over the median, of values in the order they were measured, which
/// may depend on each other: the interval is that of as many independent values as they are worth
/// ([`effective_count`]), so that who stops by it stops with the interval that a summary of the
/// same values has. Infinite while they are worth too few for the confidence.
///
/// Takes time in proportion to the number of values, and sorts none: still ask at counts that grow
/// by a factor.
///
/// # Errors
/// [`Error::TooFew`] without values, [`Error::NotFinite`], [`Error::Argument`] for a confidence out
/// of range.
pub fn relative_width_in_order(series: &[f64], confidence: f64) -> Result<f64, Error> {
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    check_finite(series)?;
    let n = series.len();
    if n == 0 {
        return Err(Error::TooFew { have: 0, need: 1 });
    }
    let mut values = series.to_vec();
    let mut at_rank = |rank: usize| *values.select_nth_unstable_by(rank, f64::total_cmp).1;
    let median = f64::midpoint(at_rank((n - 1) / 2), at_rank(n / 2));
    let tallies: Vec<Tally> = series.iter().map(|v| Tally { samples: 1, below: u32::from(*v <= median) }).collect();
    let ranks = dependent_ranks(n, effective_count(&tallies), 0.5, confidence);
    let width = at_rank(ranks.high) - at_rank(ranks.low);
    Ok(if ranks.coverage < confidence {
        f64::INFINITY
    } else if width == 0.0 {
        0.0
    } else {
        width / median.abs()
    })
}
