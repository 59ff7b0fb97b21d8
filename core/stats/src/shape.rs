//! The inner step of a fit: shape and scale for a location given, on values counted from the least
//! one in units of their mean distance from it, so that no magnitude of input over- or underflows.

use crate::search::golden_section;
use crate::special::{digamma, ln_gamma, trigamma};
use crate::{Distribution, Family};

/// Beyond this many different values, the middle ones are taken in groups.
const MOST_POINTS: usize = 4096;
/// Values at each end that are never grouped.
const TAIL: usize = 512;

/// Standardised values with weights.
pub(crate) struct Points {
    values: Vec<f64>,
    weights: Vec<f64>,
    total: f64,
    /// The unit, in the sample's.
    pub unit: f64,
}

/// Parameters in the points' units, without location: shape and scale, or mu and sigma, and lambda.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inner {
    first: f64,
    second: f64,
    third: f64,
    pub log_likelihood: f64,
}

impl Inner {
    fn new(first: f64, second: f64, third: f64, log_likelihood: f64) -> Option<Self> {
        let good = first.is_finite() && second.is_finite() && second > 0.0 && log_likelihood.is_finite();
        good.then_some(Self { first, second, third, log_likelihood })
    }

    /// Of an exponential.
    pub fn scale(scale: f64) -> Self {
        Self { first: 0.0, second: scale, third: 0.0, log_likelihood: 0.0 }
    }

    /// In the sample's units. `min` is the sample's least value, from which the normal's mean is
    /// counted.
    pub fn distribution(&self, family: Family, location: f64, unit: f64, min: f64) -> Distribution {
        let (shape, scale) = (self.first, self.second * unit);
        match family {
            Family::Normal => Distribution::Normal { mean: min + self.first * unit, sd: scale },
            Family::Exponential => Distribution::Exponential { location, scale },
            Family::Gamma => Distribution::Gamma { location, shape, scale },
            Family::Erlang => Distribution::Erlang { location, shape: shape as u32, scale },
            Family::Weibull => Distribution::Weibull { location, shape, scale },
            Family::Pearson5 => Distribution::Pearson5 { location, shape, scale },
            Family::Lognormal => Distribution::Lognormal { location, mu: self.first + unit.ln(), sigma: self.second },
            Family::GeneralisedGamma => Distribution::GeneralisedGamma {
                location,
                mu: self.first + unit.ln(),
                sigma: self.second,
                lambda: self.third,
            },
        }
    }
}

impl Points {
    /// Of sorted values that are not all equal; `None` when their spread is no finite number.
    pub fn of(sorted: &[f64]) -> Option<Self> {
        let min = sorted[0];
        let unit = crate::sample::mean(sorted) - min;
        if !(unit > 0.0 && unit.is_finite() && (sorted[sorted.len() - 1] - min).is_finite()) {
            return None;
        }
        let (mut values, mut weights): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        let mut push = |group: &[f64]| {
            let value = group.iter().map(|v| (v - min) / unit).sum::<f64>() / group.len() as f64;
            if values.last() == Some(&value) {
                let last = weights.len() - 1;
                weights[last] += group.len() as f64;
            } else {
                values.push(value);
                weights.push(group.len() as f64);
            }
        };
        if sorted.len() <= MOST_POINTS {
            sorted.chunks(1).for_each(&mut push);
        } else {
            let (low, rest) = sorted.split_at(TAIL);
            let (middle, high) = rest.split_at(rest.len() - TAIL);
            low.chunks(1).for_each(&mut push);
            middle.chunks(middle.len().div_ceil(MOST_POINTS - 2 * TAIL)).for_each(&mut push);
            high.chunks(1).for_each(&mut push);
        }
        Some(Self { values, weights, total: sorted.len() as f64, unit })
    }

    fn average(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.values.iter().zip(&self.weights).map(|(v, w)| w * of(*v)).sum::<f64>() / self.total
    }

    /// Mean; 1 but for rounding.
    pub fn mean(&self) -> f64 {
        self.average(|v| v)
    }

    /// Standard deviation, divisor n.
    pub fn sd(&self) -> f64 {
        let mean = self.mean();
        self.average(|v| (v - mean) * (v - mean)).sqrt()
    }

    pub fn normal(&self) -> Inner {
        Inner { first: self.mean(), second: self.sd(), third: 0.0, log_likelihood: 0.0 }
    }

    pub fn exponential(&self) -> Inner {
        Inner::scale(self.mean())
    }

    pub fn work(&self) -> Work<'_> {
        Work { points: self, logs: vec![0.0; self.values.len()], mean_log: 0.0, below_min: 0.0 }
    }
}

/// The points seen from a location, and the logarithms of that.
pub(crate) struct Work<'a> {
    points: &'a Points,
    logs: Vec<f64>,
    mean_log: f64,
    below_min: f64,
}

impl Work<'_> {
    /// Parameters of greatest likelihood for a location that is `below_min` under the least value.
    pub fn inner(&mut self, family: Family, below_min: f64) -> Option<Inner> {
        self.below_min = below_min;
        for (log, value) in self.logs.iter_mut().zip(&self.points.values) {
            *log = (value + below_min).ln();
        }
        self.mean_log = self.average_of_logs(|l| l);
        match family {
            Family::Lognormal => self.lognormal(),
            Family::Gamma => self.gamma(),
            Family::Erlang => self.erlang(),
            Family::Weibull => self.weibull(),
            Family::Pearson5 => self.pearson5(),
            Family::GeneralisedGamma => self.generalised_gamma(),
            Family::Normal | Family::Exponential => None, // have closed forms, location and all
        }
    }

    fn average_of_logs(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.logs.iter().zip(&self.points.weights).map(|(l, w)| w * of(*l)).sum::<f64>() / self.points.total
    }

    fn sd_of_logs(&self) -> f64 {
        self.average_of_logs(|l| (l - self.mean_log) * (l - self.mean_log)).sqrt()
    }

    fn lognormal(&self) -> Option<Inner> {
        let sigma = self.sd_of_logs();
        let each = -sigma.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln() - 0.5 - self.mean_log;
        Inner::new(self.mean_log, sigma, 0.0, each * self.points.total)
    }

    fn gamma(&self) -> Option<Inner> {
        let mean = self.points.mean() + self.below_min;
        let shape = gamma_shape(mean.ln() - self.mean_log)?;
        self.gamma_of(shape, mean)
    }

    fn gamma_of(&self, shape: f64, mean: f64) -> Option<Inner> {
        let scale = mean / shape;
        let each = (shape - 1.0) * self.mean_log - shape - ln_gamma(shape) - shape * scale.ln();
        Inner::new(shape, scale, 0.0, each * self.points.total)
    }

    fn erlang(&self) -> Option<Inner> {
        let mean = self.points.mean() + self.below_min;
        let shape = gamma_shape(mean.ln() - self.mean_log)?.clamp(1.0, 1e9);
        let (low, high) = (self.gamma_of(shape.floor(), mean)?, self.gamma_of(shape.ceil(), mean)?);
        Some(if low.log_likelihood >= high.log_likelihood { low } else { high })
    }

    fn pearson5(&self) -> Option<Inner> {
        let inverse = self.average_of_logs(|l| (-l).exp());
        let shape = gamma_shape(inverse.ln() + self.mean_log)?;
        let scale = shape / inverse;
        let each = shape * scale.ln() - ln_gamma(shape) - (shape + 1.0) * self.mean_log - shape;
        Inner::new(shape, scale, 0.0, each * self.points.total)
    }

    /// Solves 1/k = sum z^k ln z / sum z^k - mean ln z by Newton's method within a bracket: the
    /// difference rises with k.
    fn weibull(&self) -> Option<Inner> {
        let top = self.logs[self.logs.len() - 1];
        let sums = |k: f64| {
            let (mut s0, mut s1, mut s2) = (0.0, 0.0, 0.0);
            for (log, w) in self.logs.iter().zip(&self.points.weights) {
                let l = log - top;
                let power = w * (k * l).exp();
                s0 += power;
                s1 += power * l;
                s2 += power * l * l;
            }
            (s0, s1 / s0, s2 / s0)
        };
        let centre = self.mean_log - top;
        let mut k = 1.28 / self.sd_of_logs();
        let (mut low, mut high) = (0.0, f64::INFINITY);
        for _ in 0..60 {
            if !(k > 0.0 && k.is_finite()) {
                return None;
            }
            let (_, first, second) = sums(k);
            let error = first - centre - 1.0 / k;
            if error < 0.0 {
                low = k
            } else {
                high = k
            }
            let slope = second - first * first + 1.0 / (k * k);
            let mut next = k - error / slope;
            if !(next > low && next < high) {
                next = if high.is_finite() { (low + high) / 2.0 } else { low * 2.0 };
            }
            let near = (next - k).abs() <= 1e-10 * k;
            k = next;
            if near {
                break;
            }
        }
        let ln_scale = (sums(k).0 / self.points.total).ln() / k + top;
        let each = k.ln() - k * ln_scale + (k - 1.0) * self.mean_log - 1.0;
        Inner::new(k, ln_scale.exp(), 0.0, each * self.points.total)
    }

    /// For a given q = lambda / sigma, z^q is gamma distributed; so one search over q in units of 1
    /// / sd(ln z). At q = 0 the family is lognormal.
    fn generalised_gamma(&self) -> Option<Inner> {
        const MOST: f64 = 10.0;
        const STEPS: usize = 17;
        let sd = self.sd_of_logs();
        let mut best = self.lognormal()?;
        let mut value_at = |r: f64| match self.generalised_gamma_at(r, sd) {
            Some(inner) => {
                if inner.log_likelihood > best.log_likelihood {
                    best = inner;
                }
                inner.log_likelihood
            }
            None => f64::NEG_INFINITY,
        };
        // Finer near 0, where the familiar members are.
        let at = |place: f64| {
            let x = 2.0 * place / (STEPS - 1) as f64 - 1.0;
            MOST * x * x.abs()
        };
        let mut top = (0, f64::NEG_INFINITY);
        for place in 0..STEPS {
            let value = value_at(at(place as f64));
            if value > top.1 {
                top = (place, value);
            }
        }
        let (left, right) = (top.0.saturating_sub(1) as f64, (top.0 + 1).min(STEPS - 1) as f64);
        golden_section(left, right, 18, |place| value_at(at(place)));
        Some(best)
    }

    fn generalised_gamma_at(&self, r: f64, sd: f64) -> Option<Inner> {
        if r.abs() < 1e-3 {
            return self.lognormal();
        }
        let q = r / sd;
        // The mean of (z / its geometric mean)^q, with its greatest term taken out.
        let top = (q * (self.logs[0] - self.mean_log)).max(q * (self.logs[self.logs.len() - 1] - self.mean_log));
        let ln_mean = self.average_of_logs(|l| (q * (l - self.mean_log) - top).exp()).ln() + top;
        let k = gamma_shape(ln_mean)?;
        let lambda = r.signum() / k.sqrt();
        let sigma = lambda / q;
        let mu = self.mean_log + ln_mean / q;
        let each = k * k.ln() - k - ln_gamma(k) - k * ln_mean + q.abs().ln() - self.mean_log;
        Inner::new(mu, sigma, lambda, each * self.points.total)
    }
}

/// The shape k of greatest gamma likelihood: ln k - digamma(k) = `s`, the log of the mean less the
/// mean of the logs. Start and iteration by Minka, Estimating a Gamma distribution, 2002.
pub(crate) fn gamma_shape(s: f64) -> Option<f64> {
    if s.is_nan() || s <= 0.0 {
        return None;
    }
    if s < 1e-5 {
        // ln k - digamma(k) = 1/(2k) + 1/(12 k^2) + ..; the difference itself would cancel.
        return Some((1.0 + (1.0 + 4.0 * s / 3.0).sqrt()) / (4.0 * s));
    }
    let mut k = (3.0 - s + ((s - 3.0) * (s - 3.0) + 24.0 * s).sqrt()) / (12.0 * s);
    for _ in 0..50 {
        let next = 1.0 / (1.0 / k + (k.ln() - digamma(k) - s) / (k * k * (1.0 / k - trigamma(k))));
        if !(next > 0.0 && next.is_finite()) {
            return None;
        }
        let near = (next - k).abs() <= 1e-11 * k;
        k = next;
        if near {
            break;
        }
    }
    Some(k)
}
