//! Histograms for plots, and sampling from them.

use rand::Rng;

use crate::Error;
use crate::error::argument;
use crate::random::open_unit;
use crate::sample::Sample;

/// The most bins a plot gets, whatever is asked for: more than a screen has columns says nothing.
pub const MOST_BINS: usize = 2000;

/// MPIBench's fixed bin width: 0.05 ms, in nanoseconds.
pub const FIXED_WIDTH_NS: f64 = 50_000.0;

/// How wide bins are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Width {
    /// 2 IQR n^(-1/3) (Freedman and Diaconis 1981), between `least` and what [`MOST_BINS`] allows.
    Automatic {
        /// No narrower than this: the resolution of the clock, in the values' unit; 0 if unknown.
        least: f64,
    },
    /// This wide; wider by a whole factor where there would be more than [`MOST_BINS`].
    Fixed(f64),
}

/// Counts in bins of equal width. Bin i reaches from `start + i * width` to the next; the last one
/// holds its upper end too.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bins {
    /// Lower end of the first bin: a multiple of the width.
    pub start: f64,
    /// Width of a bin.
    pub width: f64,
    /// Values in each.
    pub counts: Vec<u64>,
    /// Least value recorded.
    pub min: f64,
    /// Greatest value recorded.
    pub max: f64,
}

impl Bins {
    /// Bins for the values of `sample` up to `limit` (infinite for all): a plot leaves out a far
    /// tail, whose size [`Bins::total`] against the sample's count tells.
    ///
    /// # Errors
    /// [`Error::Argument`] for a width that is not positive and finite; [`Error::TooFew`] when no
    /// value is within `limit`.
    pub fn of(sample: &Sample, width: Width, limit: f64) -> Result<Self, Error> {
        let within = sample.sorted().partition_point(|v| *v <= limit);
        let sorted = &sample.sorted()[..within];
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Err(Error::TooFew { have: 0, need: 1 });
        };
        let width = bounded_width(wanted_width(sorted, width)?, min, max);
        let start = (min / width).floor() * width;
        let start = if start.is_finite() && start <= min { start } else { min };
        let last = (((max - start) / width).floor().max(0.0) as usize).min(MOST_BINS);
        let mut counts = vec![0; last + 1];
        for &value in sorted {
            let bin = ((value - start) / width) as usize;
            counts[bin.min(last)] += 1;
        }
        Ok(Self { start, width, counts, min, max })
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The bins as (lower end, upper end, count).
    pub fn iter(&self) -> impl Iterator<Item = (f64, f64, u64)> + '_ {
        // Each end from its own number, so that a bin ends exactly where the next begins.
        let end = |i: usize| self.start + i as f64 * self.width;
        self.counts.iter().enumerate().map(move |(i, &n)| (end(i), end(i + 1), n))
    }

    /// A sampler of the histogram.
    ///
    /// # Errors
    /// [`Error::TooFew`] when all counts are 0.
    pub fn sampler(&self) -> Result<HistogramSampler, Error> {
        HistogramSampler::new(self.iter(), self.min, self.max)
    }
}

fn wanted_width(sorted: &[f64], width: Width) -> Result<f64, Error> {
    match width {
        Width::Fixed(width) => {
            argument("width", width, width > 0.0 && width.is_finite(), "above 0 and finite")?;
            Ok(width)
        }
        Width::Automatic { least } => {
            argument("least width", least, (0.0..f64::INFINITY).contains(&least), "0 or above, and finite")?;
            let quartile = |p| crate::sample::quantile_of_sorted(sorted, p);
            let width = 2.0 * (quartile(0.75) - quartile(0.25)) / (sorted.len() as f64).cbrt();
            // With half of all values equal the rule gives 0: Sturges' number of bins over the
            // range then.
            let range = sorted[sorted.len() - 1] - sorted[0];
            let width = if width > 0.0 { width } else { range / ((sorted.len() as f64).log2().ceil() + 1.0) };
            Ok(if width > least { width } else { least })
        }
    }
}

/// The width, widened by a whole factor so that there are few enough bins; never 0.
fn bounded_width(width: f64, min: f64, max: f64) -> f64 {
    // Below the spacing of floating-point numbers bins cannot be told apart.
    let resolution = max.abs().max(min.abs()).max(f64::MIN_POSITIVE / f64::EPSILON) * 4.0 * f64::EPSILON;
    let width = if width.is_finite() { width.max(resolution) } else { f64::MAX / 4.0 };
    let bins = max / width - min / width;
    let most = (MOST_BINS - 2) as f64;
    if bins > most { width * (bins / most).ceil() } else { width }
}

/// Draws values from a histogram by inverting its distribution function: uniform within a bin, and
/// never below the least or above the greatest value recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSampler {
    /// (lower end, upper end, values up to and with this bin), bins with values only.
    bins: Vec<(f64, f64, u64)>,
}

impl HistogramSampler {
    /// From bins (lower end, upper end, count) in ascending order, cut to `min..=max`. Takes an
    /// HdrHistogram's too.
    ///
    /// # Errors
    /// [`Error::TooFew`] when all counts are 0, [`Error::NotFinite`] or [`Error::Argument`] for
    /// ends that make no bin.
    pub fn new(bins: impl IntoIterator<Item = (f64, f64, u64)>, min: f64, max: f64) -> Result<Self, Error> {
        argument("max", max, min.is_finite() && max.is_finite() && min <= max, "finite and not below the least value")?;
        let mut total = 0u64;
        let mut kept: Vec<(f64, f64, u64)> = Vec::new();
        for (index, (low, high, count)) in bins.into_iter().enumerate() {
            for value in [low, high] {
                if !value.is_finite() {
                    return Err(Error::NotFinite { index, value });
                }
            }
            argument("upper end of a bin", high, low <= high, "at or above its lower end")?;
            if let Some(&(_, before, _)) = kept.last() {
                let (low, high) = (low.clamp(min, max), high.clamp(min, max));
                argument("lower end of a bin", low, low >= before && high >= before, "at or above the bin before")?;
            }
            if count > 0 {
                total = total.saturating_add(count);
                kept.push((low.clamp(min, max), high.clamp(min, max), total));
            }
        }
        if kept.is_empty() {
            return Err(Error::TooFew { have: 0, need: 1 });
        }
        Ok(Self { bins: kept })
    }

    /// From a recorder's histogram.
    ///
    /// # Errors
    /// [`Error::TooFew`] when empty.
    pub fn of_recorder(recorder: &crate::Recorder) -> Result<Self, Error> {
        let (Some(min), Some(max)) = (recorder.min(), recorder.max()) else {
            return Err(Error::TooFew { have: 0, need: 1 });
        };
        let histogram = recorder.histogram();
        let bins = histogram.iter_recorded().map(|step| {
            let value = step.value_iterated_to();
            // Values are rounded to whole units: the bin of unit u reaches from u - 1/2 to u + 1/2.
            let low = histogram.lowest_equivalent(value) as f64 - 0.5;
            (low, histogram.highest_equivalent(value) as f64 + 0.5, step.count_at_value())
        });
        Self::new(bins, min, max)
    }

    /// The value below which the share `p` (clamped to 0..=1) of the histogram lies.
    pub fn quantile(&self, p: f64) -> f64 {
        let total = self.bins[self.bins.len() - 1].2 as f64;
        let place = p.clamp(0.0, 1.0) * total;
        let bin = self.bins.partition_point(|b| (b.2 as f64) < place).min(self.bins.len() - 1);
        let before = if bin == 0 { 0 } else { self.bins[bin - 1].2 };
        let (low, high, upto) = self.bins[bin];
        let share = ((place - before as f64) / (upto - before) as f64).clamp(0.0, 1.0);
        (low + (high - low) * share).clamp(low, high)
    }

    /// A random value.
    pub fn sample<R: Rng + ?Sized>(&self, random: &mut R) -> f64 {
        self.quantile(open_unit(random))
    }
}
