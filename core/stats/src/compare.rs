//! Two runs against each other, by ranks: no family of distributions is assumed anywhere.

use crate::error::argument;
use crate::special::{normal_quantile, student_two_sided, two_sided};
use crate::{Error, Interval, Sample, goodness};

/// A test's statistic and its p-value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Test {
    /// The statistic.
    pub statistic: f64,
    /// Probability of one at least as extreme under the null hypothesis.
    pub p: f64,
}

/// Everything said about two samples, `a` the base and `b` the new one.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Comparison {
    /// Median of a.
    pub median_a: f64,
    /// Median of b.
    pub median_b: f64,
    /// Hodges-Lehmann estimate of the shift b - a: the median of all differences.
    pub shift: f64,
    /// Its confidence interval.
    pub shift_interval: Interval,
    /// P(b > a) + P(b = a) / 2: 0.5 when neither tends to be greater.
    pub b_greater: f64,
    /// Mann-Whitney: are the two distributions the same (sensitive to shift)?
    pub mann_whitney: Test,
    /// Brunner-Munzel: is `b_greater` 0.5, even if the spreads differ?
    pub brunner_munzel: Test,
    /// Kolmogorov-Smirnov for two samples: the same distribution?
    pub kolmogorov_smirnov: Test,
    /// Anderson-Darling for two samples: the same, with weight on the tails.
    pub anderson_darling: Test,
}

impl Comparison {
    /// Compares `b` with `a`.
    ///
    /// # Errors
    /// [`Error::TooFew`] for a sample of one value; [`Error::Argument`] for a confidence out of
    /// 0..1.
    pub fn of(a: &Sample, b: &Sample, confidence: f64) -> Result<Self, Error> {
        let (shift, shift_interval) = hodges_lehmann(a, b, confidence)?;
        let mann_whitney = mann_whitney(a, b)?;
        Ok(Self {
            median_a: a.median(),
            median_b: b.median(),
            shift,
            shift_interval,
            b_greater: mann_whitney.statistic / (a.count() as f64 * b.count() as f64),
            mann_whitney,
            brunner_munzel: brunner_munzel(a, b)?,
            kolmogorov_smirnov: kolmogorov_smirnov(a, b),
            anderson_darling: anderson_darling(a, b)?,
        })
    }

    /// True when `p` is below `significance` and the whole interval of the shift is further from 0
    /// than `error`, the bound of what the clocks may have added.
    pub fn is_shift(&self, significance: f64, error: f64) -> bool {
        let beyond = self.shift_interval.low > error || self.shift_interval.high < -error;
        self.brunner_munzel.p < significance && beyond
    }
}

fn need_two(a: &Sample, b: &Sample) -> Result<(), Error> {
    let have = a.count().min(b.count());
    if have < 2 { Err(Error::TooFew { have, need: 2 }) } else { Ok(()) }
}

/// Values equal to each other in the two samples together: how many of each.
struct Ties<'a> {
    a: &'a [f64],
    b: &'a [f64],
}

impl Iterator for Ties<'_> {
    /// (of a, of b); their sum is at least 1.
    type Item = (usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let value = match (self.a.first(), self.b.first()) {
            (Some(x), Some(y)) => x.min(*y),
            (Some(x), None) | (None, Some(x)) => *x,
            (None, None) => return None,
        };
        let from_a = self.a.iter().take_while(|v| **v == value).count();
        let from_b = self.b.iter().take_while(|v| **v == value).count();
        self.a = &self.a[from_a..];
        self.b = &self.b[from_b..];
        Some((from_a, from_b))
    }
}

fn ties<'a>(a: &'a Sample, b: &'a Sample) -> Ties<'a> {
    Ties { a: a.sorted(), b: b.sorted() }
}

/// Below this many values in each sample, and without ties, the Mann-Whitney distribution is
/// counted out.
const EXACT_LIMIT: usize = 20;

/// Mann-Whitney U test, two-sided. The statistic is U of b: pairs with b > a, ties half. Exact up
/// to 20 values each without ties, else normal with tie and continuity correction.
///
/// # Errors
/// [`Error::TooFew`] for a sample of one value.
pub fn mann_whitney(a: &Sample, b: &Sample) -> Result<Test, Error> {
    need_two(a, b)?;
    let (n, m) = (a.count() as f64, b.count() as f64);
    let (mut below, mut u, mut tie_sum) = (0.0, 0.0, 0.0);
    for (from_a, from_b) in ties(a, b) {
        let (x, y) = (from_a as f64, from_b as f64);
        u += y * (below + x / 2.0);
        below += x;
        let t = x + y;
        tie_sum += t * t * t - t;
    }
    if tie_sum == 0.0 && a.count() <= EXACT_LIMIT && b.count() <= EXACT_LIMIT {
        return Ok(Test { statistic: u, p: exact_u(a.count(), b.count(), u) });
    }
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - tie_sum / (total * (total - 1.0)));
    let apart = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    let p = if variance > 0.0 { two_sided(apart / variance.sqrt()) } else { 1.0 };
    Ok(Test { statistic: u, p })
}

/// Two-sided exact probability.
fn exact_u(n: usize, m: usize, u: f64) -> f64 {
    let below = below_or_at(n, m);
    let u = (u as usize).min(n * m - u as usize);
    (2.0 * below[u]).min(1.0)
}

/// P(U <= u) for u from 0 on: the numbers of arrangements with each U are the coefficients of a
/// Gaussian binomial.
fn below_or_at(n: usize, m: usize) -> Vec<f64> {
    let mut ways = vec![0.0; n * m + 1];
    ways[0] = 1.0;
    for i in 1..=m {
        for k in (n + i..ways.len()).rev() {
            ways[k] -= ways[k - n - i];
        }
        for k in i..ways.len() {
            ways[k] += ways[k - i];
        }
    }
    let total: f64 = ways.iter().sum();
    let mut sum = 0.0;
    ways.iter_mut().for_each(|way| {
        sum += *way;
        *way = sum / total;
    });
    ways
}

/// Brunner-Munzel test, two-sided (Biometrical Journal 42(1), 2000): like Mann-Whitney, valid for
/// unequal spreads. Where the samples do not overlap its variance is 0 and Mann-Whitney's p-value
/// stands in.
///
/// # Errors
/// [`Error::TooFew`] for a sample of one value.
pub fn brunner_munzel(a: &Sample, b: &Sample) -> Result<Test, Error> {
    need_two(a, b)?;
    let (n, m) = (a.count() as f64, b.count() as f64);
    // A value's place among the others: a's value has `below_b` of b under it, ties half, and the
    // other way round.
    let (mut below_a, mut below_b) = (0.0, 0.0);
    let (mut sum_a, mut squares_a, mut sum_b, mut squares_b) = (0.0, 0.0, 0.0, 0.0);
    for (from_a, from_b) in ties(a, b) {
        let (x, y) = (from_a as f64, from_b as f64);
        let (place_a, place_b) = (below_b + y / 2.0, below_a + x / 2.0);
        sum_a += x * place_a;
        squares_a += x * place_a * place_a;
        sum_b += y * place_b;
        squares_b += y * place_b * place_b;
        below_a += x;
        below_b += y;
    }
    let variance_a = ((squares_a - sum_a * sum_a / n) / (n - 1.0)).max(0.0);
    let variance_b = ((squares_b - sum_b * sum_b / m) / (m - 1.0)).max(0.0);
    // Difference of mean ranks: the ranks within the own sample add (m - n) / 2.
    let apart = sum_b / m + (m + 1.0) / 2.0 - sum_a / n - (n + 1.0) / 2.0;
    let (part_a, part_b) = (n * variance_a, m * variance_b);
    let spread = part_a + part_b;
    if spread <= 0.0 {
        return Ok(Test {
            statistic: if apart == 0.0 { 0.0 } else { f64::MAX.copysign(apart) },
            ..mann_whitney(a, b)?
        });
    }
    let statistic = n * m * apart / ((n + m) * spread.sqrt());
    let df = spread * spread / (part_a * part_a / (n - 1.0) + part_b * part_b / (m - 1.0));
    Ok(Test { statistic, p: student_two_sided(statistic, df) })
}

/// Hodges-Lehmann shift: the median of all b - a, and its interval from the distribution of U
/// (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., 4.2-4.3). Takes
/// O((n + m) 64) time, not n m.
///
/// The interval's coverage is the one it has: exact up to 20 values each (more where values are
/// tied), else by the normal approximation. Few values cannot have what is asked for: two against
/// two give their whole range, which covers the shift in 2 of 3 cases.
///
/// # Errors
/// [`Error::TooFew`] for a sample of one value; [`Error::Argument`] for a confidence out of 0..1.
pub fn hodges_lehmann(a: &Sample, b: &Sample, confidence: f64) -> Result<(f64, Interval), Error> {
    need_two(a, b)?;
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    let pairs = a.count() as u128 * b.count() as u128;
    let shift = {
        let low = difference_at(a, b, (pairs - 1) / 2);
        let high = difference_at(a, b, pairs / 2);
        low / 2.0 + high / 2.0
    };
    let (rank, coverage) = shift_rank(a.count(), b.count(), confidence);
    let rank = rank.min((pairs - 1) / 2);
    let interval = Interval { low: difference_at(a, b, rank), high: difference_at(a, b, pairs - 1 - rank), coverage };
    Ok((shift, interval))
}

/// The greatest rank (from 0) such that the differences of that rank from both ends cover the shift
/// with the confidence, or 0; and their coverage, 1 - 2 P(U <= rank).
fn shift_rank(n: usize, m: usize, confidence: f64) -> (u128, f64) {
    if n <= EXACT_LIMIT && m <= EXACT_LIMIT {
        let below = below_or_at(n, m);
        let enough = |p: &f64| 1.0 - 2.0 * p >= confidence;
        let rank = below.iter().take_while(|p| enough(p)).count().saturating_sub(1);
        return (rank as u128, 1.0 - 2.0 * below[rank]);
    }
    let (n, m) = (n as f64, m as f64);
    let sd = (n * m * (n + m + 1.0) / 12.0).sqrt();
    // With the usual half for a whole number.
    let cut = n * m / 2.0 - 0.5 - normal_quantile(0.5 + confidence / 2.0) * sd;
    let rank = cut.floor().max(0.0);
    (rank as u128, 1.0 - two_sided((n * m / 2.0 - 0.5 - rank).max(0.0) / sd))
}

/// The difference b - a with `rank` differences below it (from 0), by bisection over the numbers
/// themselves.
fn difference_at(a: &Sample, b: &Sample, rank: u128) -> f64 {
    let low = ordered_bits(b.min() - a.max());
    let high = ordered_bits(b.max() - a.min());
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = (i128::from(low) + i128::from(high)).div_euclid(2) as i64;
        if count_at_most(a, b, from_ordered_bits(middle)) > rank {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    from_ordered_bits(low)
}

/// Pairs with b - a <= `difference`. The difference is formed as by whoever subtracts, so that ties
/// are ties; it rises with b and falls with a, rounding included.
fn count_at_most(a: &Sample, b: &Sample, difference: f64) -> u128 {
    let b = b.sorted();
    let mut upto = 0;
    let mut count = 0u128;
    for x in a.sorted() {
        while upto < b.len() && b[upto] - x <= difference {
            upto += 1;
        }
        count += upto as u128;
    }
    count
}

/// A whole number that orders as the float does.
fn ordered_bits(value: f64) -> i64 {
    let bits = (value + 0.0).to_bits() as i64;
    if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
}

fn from_ordered_bits(bits: i64) -> f64 {
    f64::from_bits(if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits } as u64)
}

/// Kolmogorov-Smirnov test for two samples. The p-value is asymptotic with Stephens' correction,
/// and too large (never too small) when values are tied.
pub fn kolmogorov_smirnov(a: &Sample, b: &Sample) -> Test {
    let (n, m) = (a.count() as f64, b.count() as f64);
    let (mut below_a, mut below_b, mut statistic) = (0.0, 0.0, 0.0_f64);
    for (from_a, from_b) in ties(a, b) {
        below_a += from_a as f64;
        below_b += from_b as f64;
        statistic = statistic.max((below_a / n - below_b / m).abs());
    }
    Test { statistic, p: goodness::kolmogorov_tail(n * m / (n + m), statistic) }
}

/// Anderson-Darling test for two samples, with mid-ranks for ties (Scholz and Stephens, JASA
/// 82(399), 1987, A^2_akN for k = 2). The p-value is that of the limiting distribution, which is
/// the one-sample statistic's, after standardising by the exact variance.
///
/// # Errors
/// [`Error::TooFew`] for a sample of one value.
pub fn anderson_darling(a: &Sample, b: &Sample) -> Result<Test, Error> {
    need_two(a, b)?;
    let (n, m) = (a.count() as f64, b.count() as f64);
    let total = n + m;
    let (mut below_a, mut below_b) = (0.0, 0.0);
    let (mut sum_a, mut sum_b) = (0.0, 0.0);
    for (from_a, from_b) in ties(a, b) {
        let (x, y) = (from_a as f64, from_b as f64);
        let tied = x + y;
        let (mid_a, mid_b) = (below_a + x / 2.0, below_b + y / 2.0);
        let mid = mid_a + mid_b;
        let weight = mid * (total - mid) - total * tied / 4.0;
        if weight > 0.0 {
            sum_a += tied * (total * mid_a - n * mid).powi(2) / weight;
            sum_b += tied * (total * mid_b - m * mid).powi(2) / weight;
        }
        below_a += x;
        below_b += y;
    }
    let statistic = (total - 1.0) / (total * total) * (sum_a / n + sum_b / m);
    let standard = (statistic - 1.0) / two_sample_variance(n, m).sqrt();
    // sd of the limiting distribution: sqrt(2 (pi^2 - 9) / 3).
    let limit = 1.0 + standard * (2.0 * (std::f64::consts::PI.powi(2) - 9.0) / 3.0).sqrt();
    Ok(Test { statistic, p: 1.0 - goodness::anderson_darling_cdf(limit.max(0.0)) })
}

/// Variance of A^2_akN under the null for k = 2 (Scholz and Stephens, equation 4).
fn two_sample_variance(n: f64, m: f64) -> f64 {
    let total = n + m;
    if total < 4.0 {
        return 0.5797; // the limit: the formula divides by N - 3
    }
    let k = 2.0;
    let inverse = 1.0 / n + 1.0 / m;
    // h = sum 1/i, g = sum over i < j of 1 / ((N - i) j). Beyond the first thousands g is pi^2/6
    // and h its logarithm.
    let last = total as u64 - 1;
    let (mut h, mut g) = (0.0, 0.0);
    if last < 20_000 {
        for j in 1..=last {
            // Terms of g with this j: sum over i < j of 1 / (N - i), built from the previous j's.
            h += 1.0 / j as f64;
        }
        let mut inner = 0.0;
        for j in 2..=last {
            inner += 1.0 / (total - (j - 1) as f64);
            g += inner / j as f64;
        }
    } else {
        h = total.ln() + 0.577_215_664_901_532_9;
        g = std::f64::consts::PI.powi(2) / 6.0;
    }
    let a = (4.0 * g - 6.0) * (k - 1.0) + (10.0 - 6.0 * g) * inverse;
    let b = (2.0 * g - 4.0) * k * k + 8.0 * h * k + (2.0 * g - 14.0 * h - 4.0) * inverse - 8.0 * h + 4.0 * g - 6.0;
    let c = (6.0 * h + 2.0 * g - 2.0) * k * k + (4.0 * h - 4.0 * g + 6.0) * k + (2.0 * h - 6.0) * inverse + 4.0 * h;
    let d = (2.0 * h + 6.0) * k * k - 4.0 * h * k;
    let value = (((a * total + b) * total + c) * total + d) / ((total - 1.0) * (total - 2.0) * (total - 3.0));
    value.max(0.1)
}

/// p-values adjusted for being many (Holm 1979), in the order given: reject where the adjusted one
/// is below the significance, and the chance of any false rejection stays below it. NaN counts
/// as 1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let clean: Vec<f64> = p_values.iter().map(|p| if p.is_nan() { 1.0 } else { p.clamp(0.0, 1.0) }).collect();
    let mut order: Vec<usize> = (0..clean.len()).collect();
    order.sort_by(|&i, &j| clean[i].total_cmp(&clean[j]));
    let mut adjusted = vec![1.0; clean.len()];
    let mut greatest = 0.0_f64;
    for (place, &index) in order.iter().enumerate() {
        greatest = greatest.max((clean[index] * (clean.len() - place) as f64).min(1.0));
        adjusted[index] = greatest;
    }
    adjusted
}
