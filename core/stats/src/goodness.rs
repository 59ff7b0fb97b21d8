//! Goodness of fit: chi-square, Kolmogorov-Smirnov and Anderson-Darling, with honest p-values.
//!
//! The tables of these tests hold for a distribution given beforehand. Fitted to the very values
//! that are tested it lies closer to them, so that the table's p-value is too large: a rejection by
//! it stands, an acceptance may not. Hence [`PMethod`]: with many values the fit of all is tested
//! on a small random subset (nearly given beforehand, table); with few the whole procedure is
//! repeated on values drawn from the fit (parametric bootstrap; Stute, Gonzalez Manteiga and
//! Presedo Quindimil, Metrika 40, 1993).

use crate::error::argument;
use crate::fit::fit;
use crate::random::{Random, choose_front};
use crate::special::chi_square_tail;
use crate::{Distribution, Error, Family, Sample};

/// How p-values were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum PMethod {
    /// From the statistic's distribution for parameters given beforehand: right for those, and for
    /// a subset that is a twentieth or less of what was fitted.
    Table,
    /// The same although the parameters were fitted to the tested values: an upper bound.
    TableUpperBound,
    /// Refitting this many samples drawn from the fit.
    Bootstrap(u32),
}

/// A statistic with its p-value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tested {
    /// The statistic.
    pub statistic: f64,
    /// Probability of a greater one if the values came from the family.
    pub p: f64,
    /// How that was found.
    pub method: PMethod,
}

/// The three tests of one fit on one set of values.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Goodness {
    /// Values tested.
    pub count: u64,
    /// Pearson's chi-square over bins of equal probability, 2 n^(2/5) of them (Moore 1986).
    pub chi_square: Tested,
    /// Kolmogorov-Smirnov: the greatest distance of the distribution functions. For near-normal
    /// shapes.
    pub kolmogorov_smirnov: Tested,
    /// Anderson-Darling: squared distance weighted to the tails. For heavy tails.
    pub anderson_darling: Tested,
}

impl Goodness {
    /// True when no test rejects at `significance`. The three are looked at together, each at a
    /// third of it (Bonferroni).
    pub fn passes(&self, significance: f64) -> bool {
        [self.chi_square, self.kolmogorov_smirnov, self.anderson_darling].iter().all(|t| t.p >= significance / 3.0)
    }
}

/// How goodness of fit is tested.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GoodnessOptions {
    /// Random values tested. With thousands, every family is rejected for differences that do not
    /// matter.
    pub subset: usize,
    /// A p-value below this rejects.
    pub significance: f64,
    /// Most samples drawn for a bootstrap p-value; fewer where the answer is clear earlier. A
    /// p-value is at least 1 / (replicates + 1), and each of three tests rejects below a third of
    /// the significance: there must be at least 3 / significance, or nothing could ever be
    /// rejected.
    pub replicates: u32,
}

impl Default for GoodnessOptions {
    /// MPIBench's 500 values at 0.01; 399 replicates.
    fn default() -> Self {
        Self { subset: 500, significance: 0.01, replicates: 399 }
    }
}

impl GoodnessOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        argument("subset", self.subset as f64, self.subset >= 10, "at least 10")?;
        let significance = self.significance;
        argument("significance", significance, significance > 0.0 && significance < 1.0, "between 0 and 1")?;
        let replicates = f64::from(self.replicates);
        argument("replicates", replicates, self.replicates <= 100_000, "at most 100000")?;
        // With room for rounding: 300 * 0.01 is 3, which rejects nothing.
        let can_reject = (replicates + 1.0) * significance > 3.0 * (1.0 + 1e-9);
        argument("replicates", replicates, can_reject, "at least 3 / significance, for a test to be able to reject")
    }
}

/// The three statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Statistics {
    /// Values tested.
    pub count: usize,
    /// Bins of the chi-square test.
    pub bins: usize,
    /// Pearson's chi-square.
    pub chi_square: f64,
    /// Kolmogorov-Smirnov's D.
    pub kolmogorov_smirnov: f64,
    /// Anderson-Darling's A squared.
    pub anderson_darling: f64,
}

impl Statistics {
    /// Of `distribution` against values sorted in ascending order, as [`Sample::sorted`] gives
    /// them.
    pub fn of(distribution: &Distribution, sorted: &[f64]) -> Self {
        const LEAST: f64 = 1e-300; // a value that the distribution excludes counts as nearly impossible, not as infinite
        let n = sorted.len();
        let bins = ((2.0 * (n as f64).powf(0.4)).round() as usize).clamp(2, (n / 5).max(2));
        let tails: Vec<(f64, f64)> = sorted.iter().map(|&x| distribution.tails(x)).collect();
        let mut counts = vec![0u64; bins];
        let (mut distance, mut sum) = (0.0_f64, 0.0);
        for (i, &(cdf, _)) in tails.iter().enumerate() {
            let opposite = tails[n - 1 - i].1;
            counts[((cdf * bins as f64) as usize).min(bins - 1)] += 1;
            distance = distance.max((i + 1) as f64 / n as f64 - cdf).max(cdf - i as f64 / n as f64);
            sum += (2 * i + 1) as f64 * (cdf.max(LEAST).ln() + opposite.max(LEAST).ln());
        }
        let expected = n as f64 / bins as f64;
        Self {
            count: n,
            bins,
            chi_square: counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum(),
            kolmogorov_smirnov: distance,
            anderson_darling: (-(n as f64) - sum / n as f64).max(0.0),
        }
    }

    fn as_array(&self) -> [f64; 3] {
        [self.chi_square, self.kolmogorov_smirnov, self.anderson_darling]
    }

    /// p-values for parameters given beforehand, in the order chi-square, KS, AD.
    pub fn table_p(&self) -> [f64; 3] {
        let n = self.count as f64;
        let limit = anderson_darling_cdf(self.anderson_darling);
        let cdf = (limit + anderson_darling_correction(n, limit)).clamp(0.0, 1.0);
        [
            chi_square_tail((self.bins - 1) as f64, self.chi_square),
            kolmogorov_tail(n, self.kolmogorov_smirnov),
            1.0 - cdf,
        ]
    }

    fn with_p(&self, p: [f64; 3], methods: [PMethod; 3]) -> Goodness {
        let statistics = self.as_array();
        let tested = |i: usize| Tested { statistic: statistics[i], p: p[i], method: methods[i] };
        Goodness {
            count: self.count as u64,
            chi_square: tested(0),
            kolmogorov_smirnov: tested(1),
            anderson_darling: tested(2),
        }
    }
}

/// Tests a distribution given beforehand.
pub fn test_given(distribution: &Distribution, sample: &Sample) -> Goodness {
    let statistics = Statistics::of(distribution, sample.sorted());
    statistics.with_p(statistics.table_p(), [PMethod::Table; 3])
}

/// Tests a distribution fitted to this very sample, by table: the p-values are upper bounds.
pub fn test_fitted(distribution: &Distribution, sample: &Sample) -> Goodness {
    let statistics = Statistics::of(distribution, sample.sorted());
    statistics.with_p(statistics.table_p(), [PMethod::TableUpperBound; 3])
}

/// Tests whether `sample` comes from `family`, by parametric bootstrap: the fit to the sample is
/// compared with fits to samples of the same size drawn from it. Statistics that the table rejects
/// already keep that p-value, which is an upper bound. Stops early once ten replicates exceed each
/// of the other statistics (Besag and Clifford 1991).
///
/// # Errors
/// Those of [`fit`]; [`Error::Argument`] for options out of range.
pub fn test_family(
    family: Family,
    sample: &Sample,
    options: &GoodnessOptions,
    random: &mut Random,
) -> Result<Goodness, Error> {
    const ENOUGH: u32 = 10;
    options.check()?;
    let fitted = fit(family, sample)?.distribution;
    let observed = Statistics::of(&fitted, sample.sorted());
    let table = observed.table_p();
    let rejected = table.map(|p| p < options.significance / 3.0);
    let mut exceeded = [0u32; 3];
    let mut p = table;
    let mut methods = [PMethod::TableUpperBound; 3];
    let mut done = 0;
    let mut attempts = 0;
    while done < options.replicates && attempts < 2 * options.replicates {
        if (0..3).all(|i| rejected[i] || exceeded[i] >= ENOUGH) {
            break;
        }
        attempts += 1;
        let drawn: Vec<f64> = (0..sample.count()).map(|_| fitted.sample(random)).collect();
        // A draw that overflows or that cannot be fitted says nothing.
        let Ok(drawn) = Sample::signed(drawn) else { continue };
        let drawn = drawn.with_lowest_possible(sample.lowest_possible());
        let Ok(refitted) = fit(family, &drawn) else { continue };
        done += 1;
        let replicate = Statistics::of(&refitted.distribution, drawn.sorted()).as_array();
        for (i, statistic) in observed.as_array().into_iter().enumerate() {
            if exceeded[i] < ENOUGH && !rejected[i] {
                exceeded[i] += u32::from(replicate[i] >= statistic);
                p[i] = f64::from(exceeded[i] + u32::from(exceeded[i] < ENOUGH))
                    / f64::from(done + u32::from(exceeded[i] < ENOUGH));
                methods[i] = PMethod::Bootstrap(done);
            }
        }
    }
    Ok(observed.with_p(p, methods))
}

/// `count` values of the sample chosen at random, all of them when it has no more.
pub fn random_subset(sample: &Sample, count: usize, random: &mut Random) -> Sample {
    if sample.count() <= count || count == 0 {
        return sample.clone();
    }
    let mut values = sample.sorted().to_vec();
    choose_front(&mut values, count, random);
    values.truncate(count);
    Sample::signed(values).map_or_else(|_| sample.clone(), |s| s.with_lowest_possible(sample.lowest_possible()))
}

/// P(D > d) for `n` values: Kolmogorov's limit with Stephens' correction for finite n (JASA
/// 69(347), 1974).
pub(crate) fn kolmogorov_tail(n: f64, d: f64) -> f64 {
    let root = n.sqrt();
    let x = (root + 0.12 + 0.11 / root) * d;
    if x < 0.2 {
        return 1.0;
    }
    if x < 1.0 {
        // The other series of the same function, which converges fast here.
        let step = std::f64::consts::PI * std::f64::consts::PI / (8.0 * x * x);
        let sum: f64 = (0..6).map(|k| (-step * f64::from((2 * k + 1) * (2 * k + 1))).exp()).sum();
        return (1.0 - (2.0 * std::f64::consts::PI).sqrt() / x * sum).clamp(0.0, 1.0);
    }
    let sum: f64 = (1..8).map(|k| f64::from(k % 2 * 2 - 1) * (-2.0 * f64::from(k * k) * x * x).exp()).sum();
    (2.0 * sum).clamp(0.0, 1.0)
}

/// P(A^2 < z) in the limit of many values, to about 2e-6 (Marsaglia and Marsaglia, J. Statistical
/// Software 9(2), 2004).
pub(crate) fn anderson_darling_cdf(z: f64) -> f64 {
    if z <= 0.0 {
        return 0.0;
    }
    if z < 2.0 {
        let poly = horner(z, &[2.00012, 0.247105, -0.0649821, 0.0347962, -0.0116720, 0.00168691]);
        return ((-1.2337141 / z).exp() / z.sqrt() * poly).clamp(0.0, 1.0);
    }
    if z > 150.0 {
        return 1.0;
    }
    let exponent = horner(z, &[1.0776, -2.30695, 0.43424, -0.082433, 0.008056, -0.0003146]);
    (-exponent.exp()).exp()
}

/// What finite `n` adds to the limit's probability `x` (same source).
fn anderson_darling_correction(n: f64, x: f64) -> f64 {
    if x > 0.8 {
        return horner(x, &[-130.2137, 745.2337, -1705.091, 1950.646, -1116.360, 255.7844]) / n;
    }
    let c = 0.01265 + 0.1757 / n;
    if x < c {
        let t = (x / c).max(0.0);
        let shape = t.sqrt() * (1.0 - t) * (49.0 * t - 102.0);
        return shape * (0.0037 / (n * n) + 0.00078 / n + 0.00006) / n;
    }
    let t = (x - c) / (0.8 - c);
    let shape = horner(t, &[-0.00022633, 6.54034, -14.6538, 14.458, -8.259, 1.91864]);
    shape * (0.04213 + 0.01365 / n) / n
}

fn horner(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_tests_have_the_published_critical_values() {
        // Anderson-Darling, parameters given: 2.492 at 5 %, 1.248 at 25 % (Stephens 1974); his
        // 3.857 at 1 % has 0.0102 by this function.
        for (z, p) in [(2.492, 0.05), (3.857, 0.0102), (1.248, 0.25)] {
            let got = 1.0 - anderson_darling_cdf(z);
            assert!((got - p).abs() < 1e-4, "{z}: {got}");
        }
        // Kolmogorov: 1.358 at 5 %, 1.628 at 1 %, 0.828 at 50 %.
        for (x, p) in [(1.3581, 0.05), (1.6276, 0.01), (0.8276, 0.5)] {
            let n = 1e12_f64;
            assert!((kolmogorov_tail(n, x / n.sqrt()) - p).abs() < 1e-4, "{x}");
        }
    }

    #[test]
    fn both_series_of_kolmogorov_meet() {
        let n = 1e12_f64;
        let at = |x: f64| kolmogorov_tail(n, x / n.sqrt());
        assert!((at(0.999_999_9) - at(1.000_000_1)).abs() < 1e-6);
        assert!((at(0.199) - at(0.201)).abs() < 1e-9);
    }

    #[test]
    fn the_limit_of_anderson_darling_rises_from_0_to_1() {
        let values: Vec<f64> = (0..2000).map(|i| anderson_darling_cdf(f64::from(i) * 0.1)).collect();
        assert!(values.is_sorted() && values[0] == 0.0 && values[1999] == 1.0);
    }
}
