//! An empirical distribution in a bounded number of points: what plots are drawn from, whatever the
//! number of samples.

use crate::scale::{Kind, Scale};

/// Points on both ends that are kept one by one.
const TOP: usize = 64;
const BOTTOM: usize = 16;
/// Evenly spread ranks between them.
const EVEN: usize = 512;
/// Ranks of each tail at even ratios of the distance from its end.
const TAIL: usize = 64;

/// Ascending (value, number of samples up to and with it); samples between two points lie between
/// their values.
///
/// The first, the last and every extreme sample are points of their own, so that range and tail are
/// exact; in between no point is further from the next than one 512th of the samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    points: Vec<(f64, f64)>,
    /// The last of the samples up to a point is at its value; in a histogram samples are anywhere
    /// in their bin.
    discrete: bool,
}

impl Curve {
    /// The curve of finite values in ascending order.
    #[must_use]
    pub fn of(sorted: &[f64]) -> Self {
        let ranks = chosen_ranks(sorted.len());
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(ranks.len());
        for rank in ranks {
            let point = (sorted[rank], (rank + 1) as f64);
            // Of a row of equal values only its ends matter.
            if let [.., (before, _), (last, _)] = points[..]
                && before == point.0
                && last == point.0
            {
                points.pop();
            }
            points.push(point);
        }
        Self { points, discrete: true }
    }

    /// The curve of a histogram: (low, high, count) in ascending order.
    #[must_use]
    pub fn of_bins(bins: impl Iterator<Item = (f64, f64, f64)>) -> Self {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut sum = 0.0;
        for (low, high, count) in bins.filter(|(low, high, count)| low.is_finite() && high >= low && *count > 0.0) {
            if points.last().is_none_or(|last| last.0 < low) {
                points.push((low, sum));
            }
            sum += count;
            points.push((high, sum));
        }
        Self { points, discrete: false }
    }

    /// Number of samples, or sum of weights.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.points.last().map_or(0.0, |p| p.1)
    }

    /// Whether it has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Least and largest value.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        Some((self.points.first()?.0, self.points.last()?.0))
    }

    /// The least value above 0.
    #[must_use]
    pub fn least_positive(&self) -> Option<f64> {
        self.points.iter().map(|p| p.0).find(|v| *v > 0.0)
    }

    /// Where a logarithmic axis may begin: at the least value above 0, but no more than a decade
    /// below the 1st percentile. What a clock made nearly nothing of would take decades else, and
    /// leave all others a rest of the axis.
    #[must_use]
    pub fn log_floor(&self) -> Option<f64> {
        let least = self.least_positive()?;
        Some(self.quantile(0.01).filter(|p| *p > 0.0).map_or(least, |p1| least.max(p1 / 10.0)))
    }

    /// The value below which the share `p` (0..=1) of samples lies, between points by
    /// interpolation.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let wanted = p.clamp(0.0, 1.0) * self.count();
        let next = self.points.partition_point(|point| point.1 < wanted);
        let (value, rank) = *self.points.get(next)?;
        let Some(&(before, below)) = next.checked_sub(1).and_then(|i| self.points.get(i)) else { return Some(value) };
        let part = if rank > below { (wanted - below) / (rank - below) } else { 1.0 };
        Some(before + (value - before) * part)
    }

    /// How many samples are at most `value`, between points by interpolation.
    #[must_use]
    pub fn at_most(&self, value: f64) -> f64 {
        let next = self.points.partition_point(|point| point.0 <= value);
        let Some(&(before, below)) = next.checked_sub(1).and_then(|i| self.points.get(i)) else { return 0.0 };
        match self.points.get(next) {
            Some(&(after, rank)) => {
                let between = rank - below - self.at_point(rank - below);
                below + between * ((value - before) / (after - before))
            }
            None => below,
        }
    }

    /// How many samples fall into each of `bins` equal parts of a scale; what lies beyond it counts
    /// at its ends.
    #[must_use]
    pub fn histogram(&self, scale: &Scale, bins: usize) -> Vec<f64> {
        let mut out = vec![0.0; bins];
        let place = |value: f64| scale.part(value).clamp(0.0, 1.0) * bins as f64;
        let mut last: Option<(f64, f64)> = None;
        for &(value, rank) in &self.points {
            let (from, below) = last.unwrap_or((value, 0.0));
            // A sample far from all others must not be smeared over the gap before it.
            let here = self.at_point(rank - below);
            spread(&mut out, place(value), place(value), here);
            spread(&mut out, place(from), place(value), rank - below - here);
            last = Some((value, rank));
        }
        out
    }

    /// How many of the samples since the point before lie at a point itself.
    fn at_point(&self, since: f64) -> f64 {
        if self.discrete { since.min(1.0) } else { 0.0 }
    }

    /// At most about `limit` points (value, share of samples at most as large), for a cumulative
    /// curve.
    #[must_use]
    pub fn cumulative(&self, limit: usize) -> Vec<(f64, f64)> {
        let total = self.count();
        let points: Vec<(f64, f64)> = self.points.iter().map(|(v, r)| (*v, r / total)).collect();
        thin(points, limit, |p| p.1)
    }

    /// At most about `limit` points (value, share of samples at least as large), for a tail on
    /// logarithmic axes: they lie at even ratios of the share. The largest sample has the share
    /// 1/n.
    #[must_use]
    pub fn tail(&self, limit: usize) -> Vec<(f64, f64)> {
        let total = self.count();
        let mut below = 0.0;
        let mut points = Vec::with_capacity(self.points.len());
        for &(value, rank) in &self.points {
            // As large as this value are all but those before it; between points the last sample is
            // as good as any.
            let share = (total - (rank - 1.0).max(below)) / total;
            points.push((value, share.clamp(f64::MIN_POSITIVE, 1.0)));
            below = rank.min(total - 1.0).max(0.0);
        }
        let decades = points.last().map_or(1.0, |p| -p.1.log10()).max(1e-9);
        thin(points, limit, |p| -p.1.log10() / decades)
    }
}

/// Ranks (from 0) to keep of `n`.
fn chosen_ranks(n: usize) -> Vec<usize> {
    if n <= EVEN + TOP + BOTTOM + 2 * TAIL {
        return (0..n).collect();
    }
    let last = n - 1;
    let mut ranks: Vec<usize> = (0..BOTTOM).chain(n - TOP..n).collect();
    ranks.extend((0..=EVEN).map(|i| (i as u128 * last as u128 / EVEN as u128) as usize));
    let step = (n as f64 / EVEN as f64).max(2.0);
    for i in 0..TAIL {
        let distance = step.powf((i + 1) as f64 / TAIL as f64 * (n as f64 / 4.0).ln() / step.ln());
        let distance = (distance as usize).min(last);
        ranks.extend([distance, last - distance]);
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Adds `mass` evenly over the places `from..to` (in bins).
fn spread(out: &mut [f64], from: f64, to: f64, mass: f64) {
    let bins = out.len();
    if bins == 0 || mass <= 0.0 {
        return;
    }
    let (first, last) = ((from as usize).min(bins - 1), (to as usize).min(bins - 1));
    if first >= last || to - from < 1e-9 {
        out[last] += mass;
        return;
    }
    for (bin, slot) in out.iter_mut().enumerate().take(last + 1).skip(first) {
        let overlap = (to.min((bin + 1) as f64) - from.max(bin as f64)).max(0.0);
        *slot += mass * overlap / (to - from);
    }
}

/// Leaves out points that are nearer than 1/limit to the one before, along `place` (0..=1); keeps
/// both ends.
fn thin(points: Vec<(f64, f64)>, limit: usize, place: impl Fn(&(f64, f64)) -> f64) -> Vec<(f64, f64)> {
    if points.len() <= limit {
        return points;
    }
    let least = 1.0 / limit.max(1) as f64;
    let last = points.len() - 1;
    let mut out: Vec<(f64, f64)> = Vec::with_capacity(limit + 2);
    for (i, point) in points.iter().enumerate() {
        if i == 0 || i == last || out.last().is_none_or(|before| (place(point) - place(before)).abs() >= least) {
            out.push(*point);
        }
    }
    out
}

/// The scale that holds all of some curves between two quantiles, on which nothing of theirs has no
/// place.
#[must_use]
pub fn common_scale<'a>(
    curves: impl Iterator<Item = &'a Curve> + Clone,
    kind: Kind,
    upper: f64,
    from: f64,
    to: f64,
) -> Scale {
    let least = |curve: &Curve| if kind == Kind::Log { curve.log_floor() } else { curve.range().map(|r| r.0) };
    let low = curves.clone().filter_map(least).fold(f64::INFINITY, f64::min);
    let high = curves.filter_map(|c| c.quantile(upper)).fold(f64::NEG_INFINITY, f64::max);
    let room = if kind == Kind::Log { 1.0 } else { 0.02 * (high - low).max(0.0) };
    match kind {
        Kind::Log => Scale::new(kind, low / 1.06, high * 1.06, from, to),
        Kind::Linear => Scale::new(kind, low - room, high + room, from, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(n: usize) -> Vec<f64> {
        (1..=n).map(|i| i as f64).collect()
    }

    #[test]
    fn a_long_ramp_keeps_its_ends_and_quantiles_in_few_points() {
        let curve = Curve::of(&ramp(1_000_000));
        assert!(curve.points.len() < 800, "{}", curve.points.len());
        assert_eq!((curve.count(), curve.range()), (1e6, Some((1.0, 1e6))));
        for p in [0.0, 0.01, 0.5, 0.9, 0.999, 1.0] {
            let got = curve.quantile(p).unwrap();
            assert!((got - p * 1e6).abs() <= 2000.0 + 1.0, "{p}: {got}");
        }
    }

    #[test]
    fn no_sample_is_lost_in_a_histogram() {
        for n in [1, 2, 3, 1000, 100_000] {
            let curve = Curve::of(&ramp(n));
            for kind in [Kind::Linear, Kind::Log] {
                let scale = common_scale([&curve].into_iter(), kind, 1.0, 0.0, 300.0);
                let bins = curve.histogram(&scale, 37);
                assert!((bins.iter().sum::<f64>() - n as f64).abs() < 1e-6 * n as f64);
            }
        }
        let uniform = Curve::of(&ramp(100_000)).histogram(&Scale::new(Kind::Linear, 0.0, 1e5, 0.0, 1.0), 10);
        assert!(uniform.iter().all(|b| (b - 1e4).abs() < 20.0), "{uniform:?}");
    }

    #[test]
    fn ranks_of_values_are_those_of_the_samples() {
        let curve = Curve::of(&ramp(100_000));
        for (value, rank) in [(0.5, 0.0), (1.0, 1.0), (25_000.0, 25_000.0), (1e5, 1e5), (1e9, 1e5)] {
            assert!((curve.at_most(value) - rank).abs() < 1.0, "{value}");
        }
        assert_eq!(Curve::of(&[7.0; 50]).at_most(7.0), 50.0);
    }

    #[test]
    fn equal_samples_are_one_peak() {
        let curve = Curve::of(&[7.0; 5000]);
        assert_eq!(curve.points, [(7.0, 1.0), (7.0, 5000.0)]);
        let bins = curve.histogram(&Scale::new(Kind::Linear, 0.0, 14.0, 0.0, 1.0), 7);
        assert_eq!(bins[3], 5000.0);
        assert_eq!(curve.quantile(0.3), Some(7.0));
    }

    #[test]
    fn the_tail_ends_at_one_sample() {
        let tail = Curve::of(&ramp(10_000)).tail(60);
        assert!(tail.len() < 80);
        let last = tail.last().unwrap();
        assert_eq!(last.0, 10_000.0);
        assert!((last.1 - 1e-4).abs() < 1e-12, "{last:?}");
        assert_eq!(tail[0].1, 1.0);
        assert!(tail.windows(2).all(|w| w[1].1 <= w[0].1 && w[1].0 >= w[0].0));
        assert_eq!(Curve::of(&[5.0]).tail(10), [(5.0, 1.0)]);
    }

    #[test]
    fn the_extremes_of_a_planted_tail_are_kept() {
        let mut values = ramp(50_000);
        values.extend([1e7, 2e7, 3e7]);
        let tail = Curve::of(&values).tail(100);
        for planted in [1e7, 3e7] {
            assert!(tail.iter().any(|p| p.0 == planted), "{planted}");
        }
    }

    #[test]
    fn a_gap_before_an_outlier_stays_empty() {
        let mut values = ramp(5000);
        values.extend([1e6, 2e6]);
        let curve = Curve::of(&values);
        let bins = curve.histogram(&Scale::new(Kind::Linear, 0.0, 2e6, 0.0, 1.0), 200);
        assert_eq!(bins.iter().filter(|b| **b > 0.0).count(), 3);
        assert_eq!((bins[100], bins[199]), (1.0, 1.0));
        assert_eq!(curve.at_most(500_000.0), 5000.0);
    }

    #[test]
    fn bins_become_a_curve() {
        let curve = Curve::of_bins([(10.0, 20.0, 30.0), (20.0, 30.0, 10.0), (50.0, 60.0, 10.0)].into_iter());
        assert_eq!((curve.count(), curve.range()), (50.0, Some((10.0, 60.0))));
        assert_eq!(curve.quantile(0.3), Some(15.0));
        let bins = curve.histogram(&Scale::new(Kind::Linear, 0.0, 60.0, 0.0, 1.0), 6);
        assert_eq!(bins, [0.0, 30.0, 10.0, 0.0, 0.0, 10.0]);
    }

    #[test]
    fn a_value_near_nothing_does_not_stretch_a_logarithmic_axis() {
        let mut values = ramp(1000).into_iter().map(|v| 5000.0 + v).collect::<Vec<f64>>();
        assert_eq!(Curve::of(&values).log_floor(), Some(5001.0));
        values.insert(0, 1e-3);
        let floor = Curve::of(&values).log_floor().unwrap();
        assert!((500.0..502.0).contains(&floor), "a decade below the 1st percentile: {floor}");
        values[0] = -3.0;
        assert_eq!(Curve::of(&values).log_floor(), Some(5001.0), "what is below nothing has no place at all");
        assert_eq!(Curve::of(&[2.0, 3.0]).log_floor(), Some(2.0));
        let scale = common_scale([&Curve::of(&[1e-3; 1]), &Curve::of(&values)].into_iter(), Kind::Log, 1.0, 0.0, 1.0);
        assert!(scale.range().0 < 1e-3, "a size of which all is near nothing is held");
    }

    #[test]
    fn nothing_has_no_points() {
        let curve = Curve::of(&[]);
        assert!(curve.is_empty() && curve.range().is_none() && curve.quantile(0.5).is_none());
        assert!(curve.tail(9).is_empty() && curve.cumulative(9).is_empty());
        let scale = common_scale([&curve].into_iter(), Kind::Log, 1.0, 0.0, 1.0);
        assert_eq!(curve.histogram(&scale, 3), [0.0; 3]);
    }
}
