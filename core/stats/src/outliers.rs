//! Outliers by the rule of MPIBench: flagged, never dropped; and what they have in common, for
//! delays by time-outs come in bursts and on certain ranks, not independently.

use crate::Error;
use crate::error::argument;
use crate::sample::Sample;
use crate::special::{chi_square_tail, two_sided};

/// A value above `multiplier` times the quantile `percentile` is an outlier. Where more than 1 -
/// `percentile` of all are delayed the rule is blind: they raise the boundary itself (look at the
/// tail's plot).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OutlierRule {
    percentile: f64,
    multiplier: f64,
}

impl Default for OutlierRule {
    /// MPIBench's: percentile 0.99, multiplier 5.
    fn default() -> Self {
        Self { percentile: 0.99, multiplier: 5.0 }
    }
}

impl OutlierRule {
    /// A rule of one's own.
    ///
    /// # Errors
    /// [`Error::Argument`] unless 0 < `percentile` <= 1 and `multiplier` >= 1, both finite.
    pub fn new(percentile: f64, multiplier: f64) -> Result<Self, Error> {
        argument("percentile", percentile, percentile > 0.0 && percentile <= 1.0, "above 0 and at most 1")?;
        argument("multiplier", multiplier, (1.0..f64::INFINITY).contains(&multiplier), "at least 1")?;
        Ok(Self { percentile, multiplier })
    }

    /// The percentile n, in 0..=1.
    pub fn percentile(&self) -> f64 {
        self.percentile
    }

    /// The multiplier m.
    pub fn multiplier(&self) -> f64 {
        self.multiplier
    }

    /// Values above this are outliers; infinite when the quantile is 0 (nothing can be told then).
    pub fn boundary(&self, sample: &Sample) -> f64 {
        self.boundary_at(sample.quantile(self.percentile))
    }

    /// [`OutlierRule::boundary`] for a quantile known from elsewhere, such as a
    /// [`crate::Recorder`]'s histogram.
    pub fn boundary_at(&self, quantile: f64) -> f64 {
        if quantile > 0.0 { self.multiplier * quantile } else { f64::INFINITY }
    }
}

/// One sample with where it came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// Which launch.
    pub launch: u32,
    /// Which rank measured it.
    pub rank: u32,
    /// Which repetition, from 0: the same number on different ranks means the same operation.
    pub repetition: u32,
    /// Its duration.
    pub value: f64,
}

/// How many outliers a rank or a launch had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Share {
    /// The rank's or launch's number.
    pub number: u32,
    /// Samples it gave.
    pub samples: u64,
    /// Outliers among them.
    pub outliers: u64,
}

/// Outliers that followed each other without a break on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bursts {
    /// How many bursts, single outliers included.
    pub count: u64,
    /// Length of the longest.
    pub longest: u64,
    /// Mean length; 0 without outliers.
    pub mean_length: f64,
    /// Mean length if outliers fell independently: 1 / (1 - share of outliers).
    pub independent_mean_length: f64,
    /// Probability that as few bursts or fewer hold as many outliers if they fell independently
    /// (runs test, one-sided, ranks' sequences one after the other); `None` when there are fewer
    /// than 2 outliers.
    pub independent_p: Option<f64>,
}

/// What the outliers of one cell have in common.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OutlierReport {
    /// Values above this are outliers.
    pub boundary: f64,
    /// Samples looked at.
    pub samples: u64,
    /// Outliers among them.
    pub outliers: u64,
    /// By rank, ascending.
    pub by_rank: Vec<Share>,
    /// By launch, ascending.
    pub by_launch: Vec<Share>,
    /// Probability of so uneven a spread over ranks if all were alike (chi-square against the
    /// ranks' shares of samples); `None` for one rank or when fewer than 5 outliers a rank are
    /// expected on average, where the test means nothing.
    pub equal_ranks_p: Option<f64>,
    /// Runs of outliers on one rank.
    pub bursts: Bursts,
    /// Share of operations (launch and repetition) that hit an outlier on at least one rank.
    pub operations_hit: f64,
    /// The same if outliers fell independently: mean over operations of 1 - (1 - share)^ranks.
    pub independent_operations_hit: f64,
    /// Outliers by the number of time-outs they look like, see [`TimeoutModes`].
    pub timeouts: Vec<u64>,
}

/// Retransmission time-outs show as secondary populations: a time-out of T that doubles on each
/// repetition delays by T, 3 T, 7 T... (200, 600, 1400 ms with TCP's usual 200 ms).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimeoutModes {
    timeout: f64,
    tolerance: f64,
}

impl Default for TimeoutModes {
    /// 200 ms in nanoseconds, within -5 % and +25 % (the delay of the lost message itself and
    /// coarse timers come on top).
    fn default() -> Self {
        Self { timeout: 200e6, tolerance: 0.25 }
    }
}

impl TimeoutModes {
    /// Time-outs repeated at most this often are told apart.
    pub const LIMIT: usize = 6;

    /// For a least time-out, in the samples' unit; a delay may be 5 % shorter and `tolerance` (a
    /// share, up to 0.5) longer.
    ///
    /// # Errors
    /// [`Error::Argument`] for a time-out or tolerance out of range.
    pub fn new(timeout: f64, tolerance: f64) -> Result<Self, Error> {
        argument("timeout", timeout, timeout > 0.0 && timeout.is_finite(), "above 0 and finite")?;
        argument("tolerance", tolerance, (0.0..=0.5).contains(&tolerance), "0 to 0.5")?;
        Ok(Self { timeout, tolerance })
    }

    /// How many time-outs in a row a delay of `excess` over the usual duration looks like, 1 to
    /// [`TimeoutModes::LIMIT`].
    pub fn classify(&self, excess: f64) -> Option<usize> {
        (1..=Self::LIMIT).find(|&k| {
            let delay = self.timeout * ((1u64 << k) - 1) as f64;
            (delay * 0.95..=delay * (1.0 + self.tolerance)).contains(&excess)
        })
    }
}

/// Reports on the outliers among `marks` above `boundary`. `usual` is the duration without delay
/// (the median), against which time-outs are counted.
///
/// # Errors
/// [`Error::TooFew`] without samples, [`Error::NotFinite`] for a value that is no number;
/// `boundary` may be infinite.
pub fn outlier_report(marks: &[Mark], boundary: f64, usual: f64, modes: TimeoutModes) -> Result<OutlierReport, Error> {
    if marks.is_empty() {
        return Err(Error::TooFew { have: 0, need: 1 });
    }
    if let Some((index, mark)) = marks.iter().enumerate().find(|(_, m)| !m.value.is_finite()) {
        return Err(Error::NotFinite { index, value: mark.value });
    }
    let is_outlier = |mark: &Mark| mark.value > boundary;
    let samples = marks.len() as u64;
    let outliers = marks.iter().filter(|m| is_outlier(m)).count() as u64;
    let share = outliers as f64 / samples as f64;

    let mut ordered: Vec<&Mark> = marks.iter().collect();
    ordered.sort_by_key(|m| (m.launch, m.rank, m.repetition));
    let bursts = bursts(&ordered, is_outlier, share);
    let by_launch = shares(ordered.iter().map(|m| (m.launch, is_outlier(m))));
    ordered.sort_by_key(|m| (m.launch, m.repetition, m.rank));
    let (operations_hit, independent_operations_hit) = operations(&ordered, is_outlier, share);
    ordered.sort_by_key(|m| m.rank);
    let by_rank = shares(ordered.iter().map(|m| (m.rank, is_outlier(m))));

    let mut timeouts = vec![0; TimeoutModes::LIMIT];
    for mark in marks.iter().filter(|m| is_outlier(m)) {
        if let Some(k) = modes.classify(mark.value - usual) {
            timeouts[k - 1] += 1;
        }
    }
    Ok(OutlierReport {
        boundary,
        samples,
        outliers,
        equal_ranks_p: equal_shares(&by_rank, share),
        by_rank,
        by_launch,
        bursts,
        operations_hit,
        independent_operations_hit,
        timeouts,
    })
}

/// Counts for items that come grouped by number.
fn shares(items: impl Iterator<Item = (u32, bool)>) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for (number, outlier) in items {
        match shares.last_mut() {
            Some(last) if last.number == number => {
                last.samples += 1;
                last.outliers += u64::from(outlier);
            }
            _ => shares.push(Share { number, samples: 1, outliers: u64::from(outlier) }),
        }
    }
    shares
}

fn equal_shares(shares: &[Share], share: f64) -> Option<f64> {
    let outliers: u64 = shares.iter().map(|s| s.outliers).sum();
    if shares.len() < 2 || outliers < 5 * shares.len() as u64 || share >= 1.0 {
        return None;
    }
    let statistic: f64 = shares
        .iter()
        .map(|s| {
            let expected = s.samples as f64 * share;
            (s.outliers as f64 - expected).powi(2) / (expected * (1.0 - share))
        })
        .sum();
    Some(chi_square_tail((shares.len() - 1) as f64, statistic))
}

fn bursts(ordered: &[&Mark], is_outlier: impl Fn(&Mark) -> bool, share: f64) -> Bursts {
    let (mut count, mut longest, mut length, mut outliers) = (0u64, 0u64, 0u64, 0u64);
    let mut before: Option<(u32, u32)> = None;
    for mark in ordered {
        let place = (mark.launch, mark.rank);
        if before != Some(place) {
            length = 0;
        }
        before = Some(place);
        if is_outlier(mark) {
            outliers += 1;
            length += 1;
            count += u64::from(length == 1);
            longest = longest.max(length);
        } else {
            length = 0;
        }
    }
    Bursts {
        count,
        longest,
        mean_length: if count == 0 { 0.0 } else { outliers as f64 / count as f64 },
        independent_mean_length: if share < 1.0 { 1.0 / (1.0 - share) } else { ordered.len() as f64 },
        independent_p: burst_probability(outliers as f64, ordered.len() as f64, count as f64),
    }
}

/// One-sided probability of at most `bursts` runs when `outliers` of `samples` places are chosen at
/// random. Number of runs of one kind: mean a(b + 1)/n, variance a(a - 1)(b + 1)b / (n^2 (n - 1))
/// with b = n - a (Wald and Wolfowitz 1940).
fn burst_probability(outliers: f64, samples: f64, bursts: f64) -> Option<f64> {
    let usual = samples - outliers;
    if outliers < 2.0 || usual < 1.0 {
        return None;
    }
    let mean = outliers * (usual + 1.0) / samples;
    let variance = outliers * (outliers - 1.0) * (usual + 1.0) * usual / (samples * samples * (samples - 1.0));
    if variance < 0.25 {
        // Few outliers in many samples: the number of neighbours among them is nearly Poisson with
        // this mean.
        return Some(poisson_tail(outliers - bursts, outliers - mean));
    }
    let z = (bursts + 0.5 - mean) / variance.sqrt();
    Some(if z < 0.0 { two_sided(z) / 2.0 } else { 1.0 - two_sided(z) / 2.0 })
}

/// P(X >= k) for a Poisson variable.
fn poisson_tail(k: f64, mean: f64) -> f64 {
    if k <= 0.0 { 1.0 } else { crate::special::gamma_pq(k, mean).0 }
}

fn operations(ordered: &[&Mark], is_outlier: impl Fn(&Mark) -> bool, share: f64) -> (f64, f64) {
    let (mut operations, mut hit, mut expected) = (0.0, 0.0, 0.0);
    for group in ordered.chunk_by(|a, b| (a.launch, a.repetition) == (b.launch, b.repetition)) {
        operations += 1.0;
        hit += f64::from(u8::from(group.iter().any(|m| is_outlier(m))));
        expected += 1.0 - (1.0 - share).powf(group.len() as f64);
    }
    (hit / operations, expected / operations)
}
