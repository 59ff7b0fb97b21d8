//! How many of the first samples of a series are warm-up.

use crate::Error;
use crate::error::argument;
use crate::random::{Random, choose_front};
use crate::sample::{check_finite, quantile_of_sorted};

/// Samples in a batch: the 5 of MSER-5.
const BATCH: usize = 5;
/// Values further from the median than this many interquartile ranges count as that far: a single
/// delay of a second would else outweigh everything.
const FENCE: f64 = 20.0;

/// Significance that suits most uses: a false alarm costs a few good samples only, and a single
/// slow batch at the beginning of n batches can never have a p-value below about 1 / n. Series too
/// short for that should leave out a fixed number of first samples (MPIBench: 10) whatever is
/// found.
pub const SIGNIFICANCE: f64 = 0.05;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WarmUp {
    /// Samples at the beginning to leave out; 0 when there is no warm-up.
    pub samples: usize,
    /// Probability of so great an improvement by cutting if the order of the samples meant nothing,
    /// from permutations.
    pub p: f64,
    /// False when the best cut is at half the series: it had probably not settled by its end.
    /// Measure longer.
    pub settled: bool,
}

/// Looks for warm-up in `series`, in the order measured, of one rank. The cut is MSER-5's (White,
/// Cobb and Spratt, Winter Simulation Conference 2000): the one that makes the standard error of
/// the mean of the rest least, over means of 5, within the first half. As that rule always cuts
/// somewhere, the cut counts only if a random order would allow as great an improvement with
/// probability at most `significance`.
///
/// # Errors
/// [`Error::NotFinite`]; [`Error::TooFew`] below 20 values; [`Error::Argument`] for a significance
/// outside 0.001..=0.5.
pub fn detect(series: &[f64], significance: f64, random: &mut Random) -> Result<WarmUp, Error> {
    check_finite(series)?;
    argument("significance", significance, (0.001..=0.5).contains(&significance), "0.001 to 0.5")?;
    if series.len() < 4 * BATCH {
        return Err(Error::TooFew { have: series.len(), need: 4 * BATCH });
    }
    let means = batch_means(series);
    let none = WarmUp { samples: 0, p: 1.0, settled: true };
    let Some((cut, ratio)) = best_cut(&means) else { return Ok(none) };
    if cut == 0 {
        return Ok(none);
    }
    let p = permutation_p(&means, ratio, significance, random);
    if p > significance {
        return Ok(WarmUp { p, ..none });
    }
    Ok(WarmUp { samples: cut * BATCH, p, settled: cut < means.len() / 2 })
}

fn batch_means(series: &[f64]) -> Vec<f64> {
    let mut sorted = series.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let q = |p| quantile_of_sorted(&sorted, p);
    let reach = FENCE * (q(0.75) - q(0.25));
    let (low, high) = if reach > 0.0 { (q(0.5) - reach, q(0.5) + reach) } else { (f64::MIN, f64::MAX) };
    // In units of the greatest value, so that no sum or square overflows.
    let unit = sorted[0].abs().max(sorted[sorted.len() - 1].abs()).max(f64::MIN_POSITIVE);
    series
        .chunks_exact(BATCH)
        .map(|c| c.iter().map(|v| v.clamp(low, high) / unit).sum::<f64>() / BATCH as f64)
        .collect()
}

/// The cut in 0..=half that minimises MSER, and MSER there over MSER without a cut. `None` when all
/// batches are equal.
fn best_cut(means: &[f64]) -> Option<(usize, f64)> {
    let whole = means.len();
    let half = whole / 2;
    // From the end backwards, so that each cut's mean and squares come from the next one's.
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    let (mut best, mut uncut) = ((0, f64::INFINITY), 0.0);
    for (place, &value) in means.iter().enumerate().rev() {
        count += 1.0;
        let before = value - mean;
        mean += before / count;
        squares += before * (value - mean);
        if place <= half {
            uncut = squares / (count * count);
            if uncut <= best.1 {
                best = (place, uncut);
            }
        }
    }
    (uncut > 1e-24).then(|| (best.0, best.1 / uncut))
}

/// Share of random orders that allow at least as great an improvement, the observed order counted
/// among them. Stops early when the answer is clear (Besag and Clifford, Biometrika 78(2), 1991).
fn permutation_p(means: &[f64], ratio: f64, significance: f64, random: &mut Random) -> f64 {
    let permutations = (4.0 / significance).ceil() as usize;
    let enough = 8;
    let mut shuffled = means.to_vec();
    let mut as_good = 0;
    for done in 1..=permutations {
        let n = shuffled.len();
        choose_front(&mut shuffled, n, random);
        if best_cut(&shuffled).is_some_and(|(_, r)| r <= ratio) {
            as_good += 1;
            if as_good == enough {
                return as_good as f64 / done as f64;
            }
        }
    }
    (as_good + 1) as f64 / (permutations + 1) as f64
}
