//! Are successive samples independent? Intervals and tests of this crate assume it.

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
    /// Runs above and below the median, two-sided (Wald and Wolfowitz 1940); the statistic is z, negative for too few runs
    /// (neighbours alike). Values equal to the median are left out.
    pub runs: Test,
    /// Autocorrelation of the values' ranks at lags 1, 2, ..: ranks, so that one outlier does not hide everything else.
    pub autocorrelation: Vec<f64>,
    /// Are all of these 0? (Ljung and Box 1978)
    pub ljung_box: Test,
    /// How many independent samples the series is worth: n / (1 + 2 sum of autocorrelations up to the first pair that is not
    /// positive, Geyer 1992), at most n.
    pub effective_count: f64,
}

impl Independence {
    /// Looks at `series`.
    ///
    /// # Errors
    /// [`Error::TooFew`] below 10 values, [`Error::NotFinite`], [`Error::NoSpread`] when all are equal.
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
            effective_count: n / (1.0 + 2.0 * positive_sum(series.len(), at_lag)).max(1.0),
            autocorrelation,
        })
    }
}

/// Sum of autocorrelations in pairs while a pair is positive, at most a quarter of the series or 1000 lags far.
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
