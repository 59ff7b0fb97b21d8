//! A distribution as the inverse of its distribution function: straight lines between knots.
//!
//! Drawing needs additions, multiplications and divisions only, which IEEE 754 fixes to the last
//! bit. Logarithms and powers, which differ from one library to the next, occur only where a table
//! is made of a fitted family.

use weir_stats::Distribution;

/// Knots of a table at most; beyond, the middle is thinned and the ends are kept.
const MOST_KNOTS: usize = 2048;
/// Of these, greatest values that are kept one by one: a tail is what a prediction is about.
const TAIL: usize = 256;
/// Entries of the guide that finds the knot of a probability.
const GUIDE: usize = 256;
/// Values are rounded to this many nanoseconds where they come from functions that may differ in
/// their last bit.
const GRAIN_NS: f64 = 1e-6;

/// A distribution of durations in nanoseconds, never below the least that was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantiles {
    /// (probability, value), both rising; the first at 0, the last at 1.
    knots: Vec<(f64, f64)>,
    /// For each 1/GUIDE of probability the last knot at or below it.
    guide: Vec<u32>,
    mean: f64,
}

impl Quantiles {
    /// Always the same.
    #[must_use]
    pub fn constant(value_ns: f64) -> Self {
        Self::new(vec![(0.0, value_ns), (1.0, value_ns)], None)
    }

    /// From samples; `None` without any. What is negative (an error of clocks) counts as 0, what is
    /// no number not at all.
    #[must_use]
    pub fn of_samples(mut samples_ns: Vec<f64>) -> Option<Self> {
        samples_ns.retain(|v| v.is_finite());
        for value in &mut samples_ns {
            *value = value.max(0.0);
        }
        samples_ns.sort_unstable_by(f64::total_cmp);
        let n = samples_ns.len();
        match n {
            0 => return None,
            1 => return Some(Self::constant(samples_ns[0])),
            _ => {}
        }
        let mean = samples_ns.iter().map(|v| v / n as f64).sum::<f64>();
        let place = |i: usize| (i as f64 / (n - 1) as f64, samples_ns[i]);
        let knots = if n <= MOST_KNOTS {
            (0..n).map(place).collect()
        } else {
            let (body, kept) = (n - TAIL, MOST_KNOTS - TAIL);
            let spread = (0..kept).map(|k| (k as u128 * (body - 1) as u128 / (kept - 1) as u128) as usize);
            spread.chain(body..n).map(place).collect()
        };
        Some(Self::new(knots, Some(mean)))
    }

    /// From bins (low, high, weight) in rising order, evenly spread within each; `None` if none has
    /// a weight.
    #[must_use]
    pub fn of_bins(bins_ns: &[(f64, f64, f64)]) -> Option<Self> {
        let good =
            |b: &&(f64, f64, f64)| b.0.is_finite() && b.1.is_finite() && b.2.is_finite() && b.2 > 0.0 && b.1 >= b.0;
        let total: f64 = bins_ns.iter().filter(good).map(|b| b.2).sum();
        if total.is_nan() || total <= 0.0 || total.is_infinite() {
            return None;
        }
        let (mut knots, mut before) = (Vec::new(), 0.0);
        for (low, high, weight) in bins_ns.iter().filter(good) {
            knots.push((before / total, low.max(0.0)));
            before += weight;
            knots.push((before / total, high.max(0.0)));
        }
        let mean = bins_ns.iter().filter(good).map(|b| b.2 / total * (b.0.max(0.0) / 2.0 + b.1.max(0.0) / 2.0)).sum();
        Some(Self::new(knots, Some(mean)))
    }

    /// From known quantiles (probability, value), straight lines between; `None` with less than
    /// one.
    #[must_use]
    pub fn of_quantiles(points_ns: &[(f64, f64)], mean_ns: Option<f64>) -> Option<Self> {
        let good = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
        let knots: Vec<_> = points_ns.iter().filter(good).map(|p| (p.0.clamp(0.0, 1.0), p.1.max(0.0))).collect();
        if knots.is_empty() { None } else { Some(Self::new(knots, mean_ns.filter(|m| m.is_finite()))) }
    }

    /// From a fitted family, cut at its 1/20000 and 19999/20000 quantiles: what ten thousand
    /// samples would show. Not below `least_ns`.
    #[must_use]
    pub fn of_distribution(distribution: &Distribution, least_ns: f64) -> Option<Self> {
        let mut places: Vec<f64> = (0..=512).map(|i| f64::from(i) / 512.0).collect();
        for k in 0..40 {
            // Ever closer to both ends: by halves.
            let near = 1.0 / 512.0 * f64::powi(0.5, k / 4) * (1.0 - 0.125 * f64::from(k % 4));
            places.extend([near, 1.0 - near]);
        }
        places.sort_unstable_by(f64::total_cmp);
        let value = |p: f64| {
            let q = distribution.quantile(p.clamp(5e-5, 1.0 - 5e-5));
            ((q.max(least_ns) / GRAIN_NS).round() * GRAIN_NS).max(0.0)
        };
        let knots: Vec<_> = places.into_iter().map(|p| (p, value(p))).filter(|k| k.1.is_finite()).collect();
        if knots.is_empty() { None } else { Some(Self::new(knots, None)) }
    }

    /// `knots` is not empty; made rising, and to reach from 0 to 1.
    fn new(mut knots: Vec<(f64, f64)>, mean: Option<f64>) -> Self {
        knots.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut least = f64::NEG_INFINITY;
        for knot in &mut knots {
            least = least.max(knot.1);
            knot.1 = least;
        }
        let last = knots.len() - 1;
        let (first, end) = (knots[0].1, knots[last].1);
        if knots[last].0 < 1.0 {
            knots.push((1.0, end));
        }
        if knots[0].0 > 0.0 {
            knots.insert(0, (0.0, first));
        }
        let between: f64 = knots.windows(2).map(|w| (w[1].0 - w[0].0) * (w[0].1 / 2.0 + w[1].1 / 2.0)).sum();
        let mean = mean.unwrap_or(between).clamp(first, end);
        let mut guide = Vec::with_capacity(GUIDE);
        let mut at = 0;
        for slot in 0..GUIDE {
            let p = slot as f64 / GUIDE as f64;
            while at + 2 < knots.len() && knots[at + 1].0 <= p {
                at += 1;
            }
            guide.push(at as u32);
        }
        Self { knots, guide, mean }
    }

    /// The value below which the share `p` lies; `p` is clamped to 0..=1.
    #[must_use]
    pub fn at(&self, p: f64) -> f64 {
        let p = if p > 0.0 { p.min(1.0) } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=GUIDE")]
        let slot = ((p * GUIDE as f64) as usize).min(GUIDE - 1);
        let mut i = self.guide[slot] as usize;
        while i + 2 < self.knots.len() && self.knots[i + 1].0 < p {
            i += 1;
        }
        let ((p0, v0), (p1, v1)) = (self.knots[i], self.knots[i + 1]);
        if p1 <= p0 {
            return v1;
        }
        let share = ((p - p0) / (p1 - p0)).clamp(0.0, 1.0);
        v0 + (v1 - v0) * share
    }

    /// The least.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.knots[0].1
    }

    /// The greatest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.knots[self.knots.len() - 1].1
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Whether it is always the same.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.min() >= self.max()
    }

    /// The same times `factor`, which is 0 or more and finite.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let factor = if factor.is_finite() { factor.max(0.0) } else { 1.0 };
        Self::new(self.knots.iter().map(|k| (k.0, k.1 * factor)).collect(), Some(self.mean * factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_stats::{Sample, open_unit, seeded};

    #[test]
    fn few_samples_are_the_quantiles_of_statistics() {
        let values = vec![5.0, 1.0, 9.0, 2.5, 2.5, 7.0];
        let (table, sample) = (Quantiles::of_samples(values.clone()).unwrap(), Sample::durations(values).unwrap());
        for i in 0..=1000 {
            let p = f64::from(i) / 1000.0;
            assert!((table.at(p) - sample.quantile(p)).abs() < 1e-12, "{p}");
        }
        assert!((table.mean() - sample.mean()).abs() < 1e-12);
    }

    #[test]
    fn many_samples_keep_their_ends_and_their_shape() {
        let mut random = seeded(5);
        let heavy = Distribution::Pearson5 { location: 900.0, shape: 2.5, scale: 600.0 };
        let values: Vec<f64> = (0..50_000).map(|_| heavy.sample(&mut random)).collect();
        let (table, sample) = (Quantiles::of_samples(values.clone()).unwrap(), Sample::durations(values).unwrap());
        assert!(table.min() == sample.min() && table.max() == sample.max());
        // Kolmogorov's distance between drawn values and the samples; 1.63 / sqrt(n) is the 1 %
        // bound.
        let n = 20_000;
        let drawn = Sample::durations((0..n).map(|_| table.at(open_unit(&mut random))).collect()).unwrap();
        let far = drawn.sorted().iter().map(|v| (drawn.cdf(*v) - sample.cdf(*v)).abs()).fold(0.0, f64::max);
        assert!(far < 1.63 * (1.0 / f64::from(n) + 1.0 / 50_000.0).sqrt(), "{far}");
        assert!(drawn.min() >= sample.min());
    }

    #[test]
    fn a_fit_is_drawn_from_as_it_is() {
        let fit = Distribution::Pearson5 { location: 900.0, shape: 3.5, scale: 600.0 };
        let table = Quantiles::of_distribution(&fit, 0.0).unwrap();
        for p in [0.001, 0.01, 0.3, 0.5, 0.77, 0.99, 0.999] {
            assert!((table.at(p) / fit.quantile(p) - 1.0).abs() < 1e-3, "{p}");
        }
        assert!(table.min() >= 900.0);
    }

    #[test]
    fn bins_are_even_inside_and_have_gaps_between() {
        let table = Quantiles::of_bins(&[(6000.0, 6500.0, 70.0), (6500.0, 9000.0, 29.0), (2e5, 2.01e5, 1.0)]).unwrap();
        assert!((table.at(0.35) - 6250.0).abs() < 1e-9);
        assert!((table.at(0.995) - 200_500.0).abs() < 1e-6);
        assert!((table.at(0.9899) - 9000.0).abs() < 10.0);
        assert!(table.min() == 6000.0 && table.max() == 201_000.0);
    }

    #[test]
    fn what_is_no_distribution_is_refused_and_odd_ends_are_mended() {
        assert!(Quantiles::of_samples(vec![f64::NAN]).is_none());
        assert!(Quantiles::of_bins(&[(1.0, 0.0, 1.0)]).is_none());
        assert!(Quantiles::of_quantiles(&[], None).is_none());
        let falling = Quantiles::of_quantiles(&[(0.5, 3.0), (0.9, 1.0), (2.0, -1.0)], None).unwrap();
        assert!(falling.at(f64::NAN) == 3.0 && falling.at(1.0) == 3.0 && falling.at(-4.0) == 3.0);
        assert!(Quantiles::of_samples(vec![-3.0, 1.0]).unwrap().min() == 0.0);
    }
}
