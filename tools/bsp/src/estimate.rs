//! From times to parameters: mean and spread, the edges behind a superstep, what they say of larger
//! machines (seed 3.7, 3.8).

use serde::Serialize;
use weir_stats::Sample;
use weir_stats::bins::{Bins, Width};
use weir_superstep::{cost, variance};

/// Mean and spread of a sample, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub sd: f64,
    /// The least.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of these values; all zero of none, or where one is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Spread {
        let Ok(sample) = Sample::signed(values.to_vec()) else { return Spread::default() };
        Spread {
            count: sample.count(),
            mean: sample.mean(),
            sd: sample.sd(),
            min: sample.min(),
            median: sample.median(),
            max: sample.max(),
        }
    }

    /// The standard deviation in percent of the mean; 0 of a mean of 0.
    #[must_use]
    pub fn sd_percent(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.sd / self.mean.abs() }
    }
}

/// The share of values that a histogram shows: the far tail would leave no room for the rest.
pub const SHOWN: f64 = 0.99;

/// A histogram of the least [`SHOWN`] of these values, in about `most` bins; none of no values.
#[must_use]
pub fn bins(values: &[f64], most: usize) -> Option<Bins> {
    let sample = Sample::signed(values.to_vec()).ok()?;
    let limit = sample.quantile(SHOWN);
    let width = (limit - sample.min()) / most.max(1) as f64;
    let fixed = width.is_finite() && width > 0.0;
    Bins::of(&sample, if fixed { Width::Fixed(width) } else { Width::Automatic { least: 0.0 } }, limit).ok()
}

/// What a superstep costs with p processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Processes.
    pub p: u32,
    /// Nanoseconds of a superstep in which nothing is sent.
    pub l_ns: f64,
    /// Nanoseconds of a byte of h.
    pub g_ns_per_byte: f64,
}

impl Costs {
    /// Nanoseconds of a superstep: w + h g + l.
    #[must_use]
    pub fn superstep_ns(&self, work_ns: u64, h_bytes: u64) -> f64 {
        // With an operation a nanosecond and words of a byte.
        let machine = cost::Machine { p: self.p, l: self.l_ns, g: self.g_ns_per_byte, s: 1e9 };
        machine.operations(work_ns as f64, h_bytes as f64)
    }
}

/// A line through points by least squares, as (value at 0, slope); none for fewer than two places.
#[must_use]
pub fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    cost::fit(points)
}

/// The distribution of one edge: its values ascending, each with the probability that an edge has
/// at most that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    values: Vec<f64>,
    below: Vec<f64>,
}

impl Edge {
    /// From measured values, ascending, each of them that of the slowest of `n` edges.
    #[must_use]
    pub fn of(values: Vec<f64>, n: u32) -> Edge {
        let count = values.len() as f64;
        let below = (1..=values.len()).map(|nth| variance::edge_from_slowest(nth as f64 / count, n)).collect();
        Edge { values, below }
    }

    /// The steps of its distribution function: value, probability.
    pub fn steps(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.values.iter().copied().zip(self.below.iter().copied())
    }

    /// The probability that an edge has at most this.
    #[must_use]
    pub fn at_most(&self, value: f64) -> f64 {
        let count = self.values.partition_point(|own| *own <= value);
        count.checked_sub(1).map_or(0.0, |last| self.below[last])
    }

    /// Mean and spread of one edge.
    #[must_use]
    pub fn spread(&self) -> Spread {
        self.slowest_of(1)
    }

    /// Mean and spread of the slowest of `n` edges.
    #[must_use]
    pub fn slowest_of(&self, n: u32) -> Spread {
        let (Some(min), Some(max)) = (self.values.first(), self.values.last()) else { return Spread::default() };
        let (mut before, mut mean, mut square, mut median) = (0.0, 0.0, 0.0, *min);
        for (value, below) in self.steps() {
            let now = variance::slowest_from_edge(below, n);
            mean += value * (now - before);
            square += value * value * (now - before);
            if before < 0.5 {
                median = value;
            }
            before = now;
        }
        let sd = (square - mean * mean).max(0.0).sqrt();
        Spread { count: self.values.len(), mean, sd, min: *min, median, max: *max }
    }

    /// How far apart two of them are: the greatest difference of their distribution functions
    /// (Kolmogorov and Smirnov).
    #[must_use]
    pub fn distance(&self, other: &Edge) -> f64 {
        let at = self.values.iter().chain(&other.values);
        at.map(|value| (self.at_most(*value) - other.at_most(*value)).abs()).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn costs_are_those_of_the_model() {
        let costs = Costs { p: 4, l_ns: 1000.0, g_ns_per_byte: 0.5 };
        assert!((costs.superstep_ns(200, 4000) - 3200.0).abs() < 1e-9);
    }

    #[test]
    fn spread_of_nothing_is_nothing() {
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[f64::NAN]), Spread::default());
        let spread = Spread::of(&[1.0, 3.0]);
        assert!((spread.mean - 2.0).abs() < 1e-12 && (spread.sd - 2f64.sqrt()).abs() < 1e-12, "{spread:?}");
    }

    #[test]
    fn a_histogram_shows_all_but_the_far_tail() {
        let values: Vec<f64> = (0..200).map(f64::from).chain([1e9]).collect();
        let bins = bins(&values, 20).unwrap();
        assert!((20..=21).contains(&bins.counts.len()) && bins.max < 200.0, "{bins:?}");
        assert!((198..=200).contains(&bins.total()), "{bins:?}");
        assert_eq!(super::bins(&[7.0, 7.0], 20).unwrap().counts, [2]);
        assert_eq!(super::bins(&[], 20), None);
    }

    /// Quantiles of a uniform edge on [0, 1]: the slowest of n has the mean n / (n + 1).
    #[test]
    fn the_slowest_of_uniform_edges_lies_where_it_should() {
        let edge = Edge::of((1..=10_000).map(|nth| f64::from(nth) / 10_000.0).collect(), 1);
        for n in [1, 2, 4, 8] {
            let wanted = f64::from(n) / f64::from(n + 1);
            assert!((edge.slowest_of(n).mean - wanted).abs() < 1e-3, "{n}: {:?}", edge.slowest_of(n));
        }
        // What is measured of two of them has that root.
        let two = Edge::of((1..=10_000).map(|nth| (f64::from(nth) / 10_000.0).sqrt()).collect(), 2);
        // Below its least value, a hundredth, it knows nothing.
        assert!(edge.distance(&two) < 0.0101, "{}", edge.distance(&two));
        assert!((two.slowest_of(4).mean - 0.8).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn more_edges_are_slower_and_their_own_number_gives_the_sample_back(
            mut values in prop::collection::vec(0.0f64..1e6, 1..200),
            n in 1u32..64,
        ) {
            values.sort_by(f64::total_cmp);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let edge = Edge::of(values, n);
            prop_assert!((edge.slowest_of(n).mean - mean).abs() <= 1e-6 * mean.max(1.0));
            prop_assert!(edge.slowest_of(n + 1).mean >= edge.slowest_of(n).mean - 1e-6 * mean.max(1.0));
            prop_assert_eq!(edge.distance(&edge), 0.0);
        }
    }
}
