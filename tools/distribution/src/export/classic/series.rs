//! The samples of one size, split by the outlier rule.

use super::Options;
use crate::error::Result;
use crate::model::{Cell, Configuration, HistogramRecord, Sample};
use crate::reader::Reader;

/// Bins of a histogram at most: one outlier that the rule lets pass must not make a file of
/// millions of lines.
const MAX_BINS: usize = 10_000;

/// A bin: lower edge, upper edge, weight; times in ms.
pub(super) type Bin = (f64, f64, f64);

/// What the files say of one size; times in ms.
pub(super) struct Series {
    pub(super) size_bytes: u64,
    pub(super) min: f64,
    /// Without outliers.
    pub(super) mean: f64,
    /// With outliers.
    pub(super) mean_all: f64,
    pub(super) max: f64,
    pub(super) boundary: f64,
    /// Samples that count, whether or not the samples file holds them.
    pub(super) count: u64,
    /// Those that the samples file holds, chosen by chance where it does not hold all, and the
    /// outliers beside them.
    pub(super) kept: u64,
    /// Whether boundary and outliers are of the samples kept only.
    pub(super) rule_of_kept: bool,
    /// Multiplier and quantile of the outlier rule.
    pub(super) rule: (f64, f64),
    /// Outliers, whether or not the samples file holds them.
    pub(super) outlier_count: u64,
    pub(super) bins: Vec<Bin>,
    pub(super) outliers: Vec<Sample>,
    pub(super) subsamples: Vec<Sample>,
}

pub(super) fn ms(ns: f64) -> f64 {
    ns / 1e6
}

impl Series {
    /// All launches of a configuration.
    pub(super) fn read(reader: &Reader, size_bytes: u64, of: &Configuration, options: &Options) -> Result<Self> {
        let cells: Vec<&Cell> = reader.run().cells.iter().filter(|c| c.configuration == *of).collect();
        let recorded = Recorded::of(&cells, options);
        let (mut samples, mut beside) = (Vec::new(), Vec::new());
        for cell in &cells {
            if let Some(mut stream) = reader.samples(cell)? {
                let boundary_ns = recorded.as_ref().and(cell.outliers.as_ref()).map(|o| o.boundary_ns);
                let mut batch = Vec::new();
                while stream.next_batch(&mut batch)? {
                    if let Some(boundary_ns) = boundary_ns {
                        mark(&mut batch, boundary_ns);
                    }
                    beside.extend(batch.iter().filter(|s| s.is_beside()));
                    samples.extend(batch.drain(..).filter(Sample::counts));
                }
            }
        }
        if samples.is_empty() {
            return Ok(Self::of_record(size_bytes, &cells, options));
        }
        let by_run = recorded.is_some();
        let series = Self::of(size_bytes, samples, &beside, recorded, options);
        Ok(match Total::of(&cells).filter(|total| total.count > series.kept) {
            Some(total) => series.completed(&total, by_run),
            None => series,
        })
    }

    /// With what the cells' summaries know of the samples that were not kept: under the count of
    /// all stands what is so of all.
    fn completed(self, total: &Total, by_run: bool) -> Self {
        // Where each outlier is known by itself, the mean of the others follows; else it is that of
        // those kept, a choice by chance.
        let (listed, others) = (self.outliers.len() as u64, total.count.saturating_sub(self.outlier_count));
        let mean = if by_run && listed == self.outlier_count && others > 0 {
            let of_outliers: f64 = self.outliers.iter().map(|s| ms(s.duration_ns)).sum();
            (total.sum - of_outliers) / others as f64
        } else {
            self.mean
        };
        Self {
            min: self.min.min(total.min),
            max: self.max.max(total.max),
            mean,
            mean_all: total.sum / total.count as f64,
            count: total.count,
            rule_of_kept: !by_run,
            ..self
        }
    }

    /// A machine written by hand has no samples; its summary and bins say what they can.
    fn of_record(size_bytes: u64, cells: &[&Cell], options: &Options) -> Self {
        let total = Total::of(cells);
        let all: Vec<_> = cells.iter().filter_map(|c| c.outliers.as_ref()).collect();
        let outlier_count = all.iter().map(|o| o.count).sum();
        let bins = cells.iter().find_map(|c| match &c.histogram {
            Some(HistogramRecord::Bins(b)) => Some(&b.bins),
            _ => None,
        });
        let value = |of: fn(&Total) -> f64| total.as_ref().map_or(f64::NAN, of);
        let mean_all = value(|t| t.sum / t.count as f64);
        Self {
            size_bytes,
            min: value(|t| t.min),
            // Of outliers nothing but their number is known.
            mean: if outlier_count == 0 { mean_all } else { f64::NAN },
            mean_all,
            max: value(|t| t.max),
            boundary: all.first().map_or(f64::NAN, |o| ms(o.boundary_ns)),
            count: total.map_or(0, |t| t.count),
            kept: 0,
            rule_of_kept: false,
            rule: all.first().map_or_else(|| options.rule(), |o| (o.multiplier, o.percentile)),
            outlier_count,
            bins: bins.into_iter().flatten().map(|b| (ms(b.low_ns), ms(b.high_ns), b.count)).collect(),
            outliers: Vec::new(),
            subsamples: Vec::new(),
        }
    }

    /// Of samples that stand for the distribution, and outliers kept beside these.
    fn of(
        size_bytes: u64,
        mut samples: Vec<Sample>,
        beside: &[Sample],
        recorded: Option<Recorded>,
        options: &Options,
    ) -> Self {
        let mut sorted: Vec<f64> = samples.iter().map(|s| ms(s.duration_ns)).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let rule = recorded.as_ref().map_or_else(|| options.rule(), |r| r.rule);
        let boundary = recorded.as_ref().map_or_else(|| rule.0 * quantile(&sorted, rule.1), |r| ms(r.boundary_ns));
        let by_run = recorded.is_some();
        if !by_run {
            samples.iter_mut().for_each(|s| s.set_outlier(ms(s.duration_ns) > boundary));
        }
        let mut kept: Vec<f64> = samples.iter().filter(|s| !s.is_outlier()).map(|s| ms(s.duration_ns)).collect();
        // A boundary below everything (negative times, where the clocks are worse than the machine)
        // says nothing.
        if kept.is_empty() {
            samples.iter_mut().for_each(|s| s.set_outlier(false));
            kept.clone_from(&sorted);
        }
        kept.sort_by(f64::total_cmp);
        let width = options.hist_bin_ms.unwrap_or_else(|| scott(&kept));
        let subsamples = subsamples(&samples, options.subsamples);
        let max = beside.iter().map(|s| ms(s.duration_ns)).fold(sorted[n - 1], f64::max);
        let mut outliers: Vec<Sample> = samples.into_iter().filter(Sample::is_outlier).collect();
        outliers.extend(beside.iter().filter(|s| if by_run { s.is_outlier() } else { ms(s.duration_ns) > boundary }));
        outliers.sort_by_key(|s| (s.repetition, s.rank));
        Self {
            size_bytes,
            min: sorted[0],
            mean: mean(&kept),
            mean_all: mean(&sorted),
            max,
            boundary,
            count: (n + beside.len()) as u64,
            kept: (n + beside.len()) as u64,
            rule_of_kept: false,
            rule,
            outlier_count: recorded.map_or(0, |r| r.count).max(outliers.len() as u64),
            bins: histogram(&kept, width),
            outliers,
            subsamples,
        }
    }
}

/// What the summaries of all launches say together; times in ms.
struct Total {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Total {
    /// `None`: there is no summary, or samples of a launch without one.
    fn of(cells: &[&Cell]) -> Option<Self> {
        let measured = cells.iter().filter(|c| c.summary.is_some() || c.samples.as_ref().is_some_and(|s| s.count > 0));
        let all: Vec<_> = measured.map(|c| c.summary.as_ref().filter(|s| s.count > 0)).collect::<Option<_>>()?;
        (!all.is_empty()).then(|| Self {
            count: all.iter().map(|s| s.count).sum(),
            sum: all.iter().map(|s| ms(s.mean_ns) * s.count as f64).sum(),
            min: all.iter().map(|s| ms(s.min_ns)).fold(f64::INFINITY, f64::min),
            max: all.iter().map(|s| ms(s.max_ns)).fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// What the run says of its outliers: the report and whoever reads the samples' flags go by it, and
/// so does an export, unless another rule is asked for.
struct Recorded {
    /// Multiplier and quantile of the first launch.
    rule: (f64, f64),
    /// Of the first launch; each launch's samples are judged by their own.
    boundary_ns: f64,
    /// Of all launches.
    count: u64,
}

impl Recorded {
    /// `None`: a launch without, or an option that says otherwise.
    fn of(cells: &[&Cell], options: &Options) -> Option<Self> {
        if options.outlier_percentile.is_some() || options.outlier_multiplier.is_some() {
            return None;
        }
        let all: Vec<_> = cells.iter().map(|c| c.outliers.as_ref()).collect::<Option<_>>()?;
        let first = all.first()?;
        let count = all.iter().map(|o| o.count).sum();
        Some(Self { rule: (first.multiplier, first.percentile), boundary_ns: first.boundary_ns, count })
    }
}

fn mark(samples: &mut [Sample], boundary_ns: f64) {
    samples.iter_mut().for_each(|s| s.set_outlier(s.duration_ns > boundary_ns));
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The smallest value that at least this part of the values does not exceed.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Width of bins by Scott's rule (Biometrika 66, 1979): 3.49 standard deviations over the third
/// root of the count.
fn scott(values: &[f64]) -> f64 {
    let (n, m) = (values.len() as f64, mean(values));
    let variance = values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (n - 1.0).max(1.0);
    let width = 3.49 * variance.sqrt() / n.cbrt();
    if width > 0.0 && width.is_finite() { width } else { 1e-6 }
}

/// Bins at multiples of the width; empty ones are left out.
fn histogram(sorted: &[f64], width: f64) -> Vec<Bin> {
    let span = sorted[sorted.len() - 1] - sorted[0];
    // Not below a femtosecond, so that an index stays a number.
    let width = width.max(span / MAX_BINS as f64).max(1e-12);
    let mut bins: Vec<(f64, f64)> = Vec::new();
    for &t in sorted {
        let index = (t / width).floor();
        match bins.last_mut() {
            Some((last, count)) if *last == index => *count += 1.0,
            _ => bins.push((index, 1.0)),
        }
    }
    bins.into_iter().map(|(index, count)| (index * width, (index + 1.0) * width, count)).collect()
}

/// Up to `each` samples of every rank, spread evenly over the run.
fn subsamples(samples: &[Sample], each: usize) -> Vec<Sample> {
    let mut by_rank: Vec<&Sample> = samples.iter().collect();
    by_rank.sort_by_key(|s| s.rank);
    let ranks = by_rank.chunk_by(|a, b| a.rank == b.rank);
    ranks.flat_map(|of| spread(of, each).map(|s| **s)).collect()
}

fn spread<T>(of: &[T], each: usize) -> impl Iterator<Item = &T> {
    let take = each.min(of.len());
    (0..take).map(move |i| &of[i * of.len() / take])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::flags;

    #[test]
    fn outliers_beside_the_choice_are_listed_and_shift_no_statistic() {
        let sample = |repetition: u32, duration_ns: f64, flags: u8| Sample {
            repetition,
            duration_ns,
            flags,
            ..Sample::default()
        };
        let mut all: Vec<Sample> = (0..200).map(|k| sample(k, 1e6, 0)).collect();
        all.push(sample(77, 2e9, flags::OUTLIER));
        let beside = [201, 11].map(|k| sample(k, 3e9, flags::OUTLIER | flags::BESIDE));
        assert!(beside.iter().all(|s| s.is_beside() && !s.counts()));
        let series = Series::of(8, all, &beside, None, &Options::default());
        assert_eq!(series.outliers.iter().map(|s| s.repetition).collect::<Vec<_>>(), [11, 77, 201]);
        assert_eq!((series.count, series.max, series.mean), (203, 3000.0, 1.0));
        assert!((series.mean_all - (200.0 + 2000.0) / 201.0).abs() < 1e-9);
        assert_eq!(series.bins.iter().map(|b| b.2).sum::<f64>(), 200.0);
    }
}
