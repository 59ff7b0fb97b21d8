//! Are successive samples independent? Intervals and tests of this crate assume it, and measured
//! times often are not: a phase of the machine lasts for many repetitions, and the processes of one
//! repetition wait for each other. What dependent samples are worth is what an interval must be
//! made with.

use crate::Error;
use crate::compare::Test;
use crate::sample::{check_finite, quantile_of_sorted};
use crate::special::{chi_square_tail, two_sided};

/// Lags looked at, unless the series is too short for them.
const LAGS: usize = 20;

/// What a series, in the order it was measured, says about its independence.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Independence {
    /// Runs above and below the median, two-sided (Wald and Wolfowitz 1940); the statistic is z,
    /// negative for too few runs (neighbours alike). Values equal to the median are left out.
    pub runs: Test,
    /// Autocorrelation of the values' ranks at lags 1, 2, ..: ranks, so that one outlier does not
    /// hide everything else.
    pub autocorrelation: Vec<f64>,
    /// Are all of these 0? (Ljung and Box 1978)
    pub ljung_box: Test,
}

impl Independence {
    /// Looks at `series`.
    ///
    /// # Errors
    /// [`Error::TooFew`] below 10 values, [`Error::NotFinite`], [`Error::NoSpread`] when all are
    /// equal.
    pub fn of(series: &[f64]) -> Result<Self, Error> {
        check_finite(series)?;
        if series.len() < 10 {
            return Err(Error::TooFew { have: series.len(), need: 10 });
        }
        let ranks = mid_ranks(series);
        let n = series.len() as f64;
        let centre = (n + 1.0) / 2.0;
        let centred: Vec<f64> = ranks.iter().map(|r| r - centre).collect();
        let variance: f64 = centred.iter().map(|c| c * c).sum();
        if variance == 0.0 {
            return Err(Error::NoSpread { count: series.len(), value: series[0] });
        }
        let lags = LAGS.min(series.len() / 4).max(1);
        let at_lag = |lag: usize| centred.iter().zip(&centred[lag..]).map(|(x, y)| x * y).sum::<f64>() / variance;
        let autocorrelation: Vec<f64> = (1..=lags).map(at_lag).collect();
        let q =
            n * (n + 2.0) * autocorrelation.iter().enumerate().map(|(i, r)| r * r / (n - i as f64 - 1.0)).sum::<f64>();
        Ok(Self {
            runs: runs_test(series),
            ljung_box: Test { statistic: q, p: chi_square_tail(lags as f64, q) },
            autocorrelation,
        })
    }
}

/// Of one repetition of an operation: the samples that its processes took, and those of them that
/// are at most the value in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Samples.
    pub samples: u32,
    /// Those at most the value.
    pub below: u32,
}

/// Most terms of the series whose autocorrelation is summed; of longer ones neighbours are added up
/// first.
const TERMS: usize = 8192;
/// With fewer repetitions nothing can be said of how they depend on each other.
const FEWEST: usize = 10;

/// How many independent samples all samples are worth, when asked which share of them is at most a
/// value: for its quantile that is the median, the width of the median's interval follows from it.
/// `repetitions` are in the order measured.
///
/// The repetition is the unit (a cluster, Kish 1965), so that it does not matter how the processes
/// of one depend on each other, and the variance of a sum over repetitions counts their
/// autocovariances up to the first pair that is not positive (initial positive sequence, Geyer,
/// Statistical Science 7(4), 1992). The count is n^2 p (1 - p) over that variance, with p the
/// share: what a binomial distribution of the same variance has. It is at most the number of
/// samples, for what seems better than independent may be chance, and at most the number of
/// repetitions where there are fewer than 10 of them or all samples are on one side. 0 without
/// samples.
///
/// It may be all of them although repetitions resemble each other
/// ([`Independence::autocorrelation`] is of their means): where in each repetition some processes
/// are below the value and as many above, as with a broadcast's root and the others, every
/// repetition says the same of the share, whatever the phase of the machine.
pub fn effective_count(repetitions: &[Tally]) -> f64 {
    let (n, below) =
        repetitions.iter().fold((0.0, 0.0), |(n, b), t| (n + f64::from(t.samples), b + f64::from(t.below)));
    let some = repetitions.iter().filter(|t| t.samples > 0).count();
    let share = if n > 0.0 { below / n } else { 0.0 };
    let single = n * share * (1.0 - share);
    if some < FEWEST || single <= 0.0 {
        return n.min(some as f64);
    }
    let together = repetitions.len().div_ceil(TERMS);
    let excess = |t: &Tally| f64::from(t.below) - share * f64::from(t.samples);
    let terms: Vec<f64> = repetitions.chunks(together).map(|of| of.iter().map(excess).sum()).collect();
    let squares: f64 = terms.iter().map(|t| t * t).sum();
    if squares <= 0.0 {
        return n;
    }
    let at_lag = |lag: usize| terms.iter().zip(&terms[lag..]).map(|(x, y)| x * y).sum::<f64>() / squares;
    let variance = squares * (1.0 + 2.0 * positive_sum(terms.len(), at_lag));
    (n * single / variance).clamp(1.0, n)
}

/// Sum of autocorrelations in pairs while a pair is positive, at most a quarter of the series or
/// 1000 lags far.
fn positive_sum(n: usize, at_lag: impl Fn(usize) -> f64) -> f64 {
    let most = (n / 4).min(1000);
    let mut sum = 0.0;
    let mut lag = 1;
    while lag < most {
        let pair = at_lag(lag) + at_lag(lag + 1);
        if pair <= 0.0 {
            break;
        }
        sum += pair;
        lag += 2;
    }
    sum
}

/// Ranks from 1, ties sharing their mean.
fn mid_ranks(series: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_unstable_by(|&i, &j| series[i].total_cmp(&series[j]).then(i.cmp(&j)));
    let mut ranks = vec![0.0; series.len()];
    let mut below = 0.0;
    for tied in order.chunk_by(|&i, &j| series[i] == series[j]) {
        let t = tied.len() as f64;
        tied.iter().for_each(|&i| ranks[i] = below + (t + 1.0) / 2.0);
        below += t;
    }
    ranks
}

fn runs_test(series: &[f64]) -> Test {
    let mut sorted = series.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = quantile_of_sorted(&sorted, 0.5);
    let sides: Vec<bool> = series.iter().filter(|v| **v != median).map(|v| *v > median).collect();
    let above = sides.iter().filter(|s| **s).count() as f64;
    let below = sides.len() as f64 - above;
    let total = above + below;
    if above == 0.0 || below == 0.0 || total < 3.0 {
        return Test { statistic: 0.0, p: 1.0 };
    }
    let runs = 1.0 + sides.windows(2).filter(|w| w[0] != w[1]).count() as f64;
    let mean = 1.0 + 2.0 * above * below / total;
    let variance = (mean - 1.0) * (mean - 2.0) / (total - 1.0);
    if variance <= 0.0 {
        return Test { statistic: 0.0, p: 1.0 };
    }
    let z = (runs - mean) / variance.sqrt();
    Test { statistic: z, p: two_sided(z) }
}
