//! A checked, sorted set of values: what nearly everything else starts from.

use crate::Error;

/// Finite values in ascending order, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
    lowest_possible: f64,
}

impl Sample {
    /// Takes durations: finite and not negative. Sorts them.
    ///
    /// # Errors
    /// [`Error::TooFew`] when empty, [`Error::NotFinite`] and [`Error::Negative`] with the place of
    /// the first offender.
    pub fn durations(values: Vec<f64>) -> Result<Self, Error> {
        for (index, &value) in values.iter().enumerate() {
            check_duration(index, value)?;
        }
        Self::sort(values, 0.0)
    }

    /// Takes values that may be negative (clock skews, differences): finite. Sorts them.
    ///
    /// # Errors
    /// [`Error::TooFew`] when empty, [`Error::NotFinite`] with the place of the first offender.
    pub fn signed(values: Vec<f64>) -> Result<Self, Error> {
        if let Some((index, &value)) = values.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(Error::NotFinite { index, value });
        }
        Self::sort(values, f64::NEG_INFINITY)
    }

    fn sort(mut values: Vec<f64>, lowest_possible: f64) -> Result<Self, Error> {
        if values.is_empty() {
            return Err(Error::TooFew { have: 0, need: 1 });
        }
        for value in &mut values {
            *value += 0.0; // -0.0 becomes 0.0, so that equal values are equal bit by bit
        }
        values.sort_unstable_by(f64::total_cmp);
        Ok(Self { sorted: values, lowest_possible })
    }

    /// The same values with another least possible one.
    pub(crate) fn with_lowest_possible(mut self, lowest_possible: f64) -> Self {
        self.lowest_possible = lowest_possible;
        self
    }

    /// The values in ascending order.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// How many values there are; never 0.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The least value that is possible at all: 0 for durations, minus infinity for signed values.
    pub fn lowest_possible(&self) -> f64 {
        self.lowest_possible
    }

    /// The least value.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The greatest value.
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        mean(&self.sorted)
    }

    /// Standard deviation with divisor n - 1; 0 for one value.
    pub fn sd(&self) -> f64 {
        if self.sorted.len() < 2 || self.min() == self.max() {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|v| (v - mean) * (v - mean)).sum();
        (squares / (self.sorted.len() - 1) as f64).sqrt()
    }

    /// Quantile for `p` in 0..=1 (clamped), linear between order statistics: definition 7 of
    /// Hyndman and Fan (The American Statistician 50(4), 1996), the default of R and numpy.
    pub fn quantile(&self, p: f64) -> f64 {
        quantile_of_sorted(&self.sorted, p)
    }

    /// The middle value.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Median absolute deviation from the median, not scaled (times 1.4826 it estimates a normal's
    /// sd).
    pub fn mad(&self) -> f64 {
        mad_of_sorted(&self.sorted)
    }

    /// Share of values that are at most `value`.
    pub fn cdf(&self, value: f64) -> f64 {
        self.sorted.partition_point(|v| *v <= value) as f64 / self.sorted.len() as f64
    }

    /// True when all values are equal.
    pub fn is_constant(&self) -> bool {
        self.min() == self.max()
    }

    /// At most `limit` values, evenly spread over the order of all, the least and the greatest
    /// among them: for plots.
    pub fn thinned(&self, limit: usize) -> Vec<f64> {
        let n = self.sorted.len();
        if n <= limit {
            return self.sorted.clone();
        }
        match limit {
            0 => Vec::new(),
            1 => vec![self.median()],
            _ => {
                (0..limit).map(|i| self.sorted[(i as u128 * (n - 1) as u128 / (limit - 1) as u128) as usize]).collect()
            }
        }
    }
}

pub(crate) fn check_duration(index: usize, value: f64) -> Result<(), Error> {
    if !value.is_finite() {
        return Err(Error::NotFinite { index, value });
    }
    if value < 0.0 {
        return Err(Error::Negative { index, value });
    }
    Ok(())
}

/// Checks that every value is a finite number.
pub(crate) fn check_finite(values: &[f64]) -> Result<(), Error> {
    match values.iter().enumerate().find(|(_, v)| !v.is_finite()) {
        Some((index, &value)) => Err(Error::NotFinite { index, value }),
        None => Ok(()),
    }
}

/// Mean of a slice that is not empty, kept between its extremes whatever the rounding, and finite
/// whatever the sum.
pub(crate) fn mean(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let sum: f64 = values.iter().sum();
    let mean = if sum.is_finite() { sum / n } else { values.iter().map(|v| v / n).sum() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    mean.clamp(low, high)
}

/// [`Sample::quantile`] of a sorted slice that is not empty.
pub(crate) fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let last = sorted.len() - 1;
    let place = p.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    if below >= last {
        return sorted[last];
    }
    let (low, high) = (sorted[below], sorted[below + 1]);
    let fraction = place - below as f64;
    (low * (1.0 - fraction) + high * fraction).clamp(low, high)
}

fn mad_of_sorted(sorted: &[f64]) -> f64 {
    // The k nearest values to the median form a window of the sorted slice: merging outwards from
    // the median gives the deviations in ascending order without a second array.
    let median = quantile_of_sorted(sorted, 0.5);
    let n = sorted.len();
    let mut right = sorted.partition_point(|v| *v < median);
    let mut left = right;
    let (mut before, mut last) = (0.0, 0.0);
    for _ in 0..n / 2 + 1 {
        let down = if left > 0 { median - sorted[left - 1] } else { f64::INFINITY };
        let up = if right < n { sorted[right] - median } else { f64::INFINITY };
        before = last;
        if down <= up {
            last = down;
            left -= 1;
        } else {
            last = up;
            right += 1;
        }
    }
    if n % 2 == 1 { last } else { before / 2.0 + last / 2.0 }
}
