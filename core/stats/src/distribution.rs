//! Families of distributions with a location shift: densities, distribution functions, quantiles,
//! random values.

use std::collections::BTreeMap;

use rand::Rng;
use rand_distr::{Distribution as _, Gamma, StandardNormal};

use crate::Error;
use crate::error::argument;
use crate::random::open_unit;
use crate::special::{gamma_inverse, gamma_pq, ln_gamma, normal_cdf, normal_quantile};

/// Below this |lambda| a generalised gamma is taken for the lognormal it tends to; the densities
/// differ by about as much.
const LAMBDA_ZERO: f64 = 1e-4;

/// A family of distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Family {
    /// Normal.
    Normal,
    /// Lognormal.
    Lognormal,
    /// Gamma (Pearson 3).
    Gamma,
    /// Weibull.
    Weibull,
    /// Pearson 5, also called inverse gamma.
    Pearson5,
    /// Exponential.
    Exponential,
    /// Gamma with a whole-numbered shape.
    Erlang,
    /// Generalised gamma in Prentice's parameters.
    GeneralisedGamma,
}

impl Family {
    /// All families, simplest first.
    pub const ALL: [Self; 8] = [
        Self::Exponential,
        Self::Normal,
        Self::Lognormal,
        Self::Gamma,
        Self::Weibull,
        Self::Pearson5,
        Self::Erlang,
        Self::GeneralisedGamma,
    ];

    /// The name used in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Lognormal => "lognormal",
            Self::Gamma => "gamma",
            Self::Weibull => "weibull",
            Self::Pearson5 => "pearson5",
            Self::Exponential => "exponential",
            Self::Erlang => "erlang",
            Self::GeneralisedGamma => "generalised-gamma",
        }
    }

    /// The family with this [`Family::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Names of the parameters in the order of [`Distribution::parameters`].
    pub fn parameter_names(self) -> &'static [&'static str] {
        match self {
            Self::Normal => &["mean", "sd"],
            Self::Lognormal => &["location", "mu", "sigma"],
            Self::Gamma | Self::Weibull | Self::Pearson5 | Self::Erlang => &["location", "shape", "scale"],
            Self::Exponential => &["location", "scale"],
            Self::GeneralisedGamma => &["location", "mu", "sigma", "lambda"],
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One distribution of a family. `location`, `scale`, `mean` and `sd` have the unit of the values;
/// t = x - location.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "family", rename_all = "kebab-case")
)]
#[allow(missing_docs)] // the fields are the textbook's
pub enum Distribution {
    /// Density of the textbook; its mean is its location.
    Normal { mean: f64, sd: f64 },
    /// ln t is normal with mean `mu` and sd `sigma`.
    Lognormal { location: f64, mu: f64, sigma: f64 },
    /// f = t^(shape-1) e^(-t/scale) / (Gamma(shape) scale^shape).
    Gamma { location: f64, shape: f64, scale: f64 },
    /// F = 1 - e^(-(t/scale)^shape).
    Weibull { location: f64, shape: f64, scale: f64 },
    /// f = scale^shape / Gamma(shape) t^(-shape-1) e^(-scale/t): 1/t is gamma.
    Pearson5 { location: f64, shape: f64, scale: f64 },
    /// F = 1 - e^(-t/scale).
    Exponential { location: f64, scale: f64 },
    /// Gamma with whole `shape`.
    Erlang { location: f64, shape: u32, scale: f64 },
    /// With w = (ln t - mu)/sigma: f = |lambda| / (sigma t Gamma(lambda^-2)) exp((lambda w - 2
    /// ln|lambda| - e^(lambda w)) / lambda^2) (Prentice, Biometrika 61(3), 1974). lambda 0 is
    /// lognormal, 1 Weibull, sigma gamma, -1 Frechet.
    GeneralisedGamma { location: f64, mu: f64, sigma: f64, lambda: f64 },
}

impl Distribution {
    /// The distribution of `family` with `parameters` in the order of [`Family::parameter_names`].
    ///
    /// # Errors
    /// [`Error::TooFew`] for a wrong number of them, [`Error::Argument`] for one out of its range.
    pub fn new(family: Family, parameters: &[f64]) -> Result<Self, Error> {
        let need = family.parameter_names().len();
        if parameters.len() != need {
            return Err(Error::TooFew { have: parameters.len(), need });
        }
        let p = |i: usize| parameters[i];
        let made = match family {
            Family::Normal => Self::Normal { mean: p(0), sd: p(1) },
            Family::Lognormal => Self::Lognormal { location: p(0), mu: p(1), sigma: p(2) },
            Family::Gamma => Self::Gamma { location: p(0), shape: p(1), scale: p(2) },
            Family::Weibull => Self::Weibull { location: p(0), shape: p(1), scale: p(2) },
            Family::Pearson5 => Self::Pearson5 { location: p(0), shape: p(1), scale: p(2) },
            Family::Exponential => Self::Exponential { location: p(0), scale: p(1) },
            Family::Erlang => {
                let whole = p(1).fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&p(1));
                argument("shape", p(1), whole, "a whole number from 1")?;
                Self::Erlang { location: p(0), shape: p(1) as u32, scale: p(2) }
            }
            Family::GeneralisedGamma => Self::GeneralisedGamma { location: p(0), mu: p(1), sigma: p(2), lambda: p(3) },
        };
        made.check()?;
        Ok(made)
    }

    /// The distribution that a file records by its family's name, what is subtracted from the
    /// durations first, and parameters by name, durations with the ending `_ns`
    /// (`spec/distribution-format.md`, families). None: a family that is not known, a parameter
    /// that is not there, or one out of its range.
    pub fn recorded(family: &str, location_ns: f64, parameters: &BTreeMap<String, f64>) -> Option<Self> {
        let family = Family::from_name(family)?;
        let get = |name: &str| parameters.get(name).copied();
        let listed = family.parameter_names().iter().map(|name| match *name {
            "mean" => get("mean_ns").map(|mean| location_ns + mean),
            "sd" => get("stddev_ns"),
            "location" => Some(location_ns),
            "scale" => get("scale_ns"),
            other => get(other),
        });
        Self::new(family, &listed.collect::<Option<Vec<f64>>>()?).ok()
    }

    /// Checks that the parameters are in range, as [`Distribution::new`] does.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the first parameter out of its range.
    pub fn check(&self) -> Result<(), Error> {
        for (name, value) in self.family().parameter_names().iter().zip(self.parameters()) {
            match *name {
                "shape" | "scale" | "sd" | "sigma" => {
                    argument(name, value, value > 0.0 && value.is_finite(), "above 0 and finite")?;
                }
                _ => argument(name, value, value.is_finite(), "finite")?,
            }
        }
        Ok(())
    }

    /// The family.
    pub fn family(&self) -> Family {
        match self {
            Self::Normal { .. } => Family::Normal,
            Self::Lognormal { .. } => Family::Lognormal,
            Self::Gamma { .. } => Family::Gamma,
            Self::Weibull { .. } => Family::Weibull,
            Self::Pearson5 { .. } => Family::Pearson5,
            Self::Exponential { .. } => Family::Exponential,
            Self::Erlang { .. } => Family::Erlang,
            Self::GeneralisedGamma { .. } => Family::GeneralisedGamma,
        }
    }

    /// The parameters in the order of [`Family::parameter_names`].
    pub fn parameters(&self) -> Vec<f64> {
        match *self {
            Self::Normal { mean, sd } => vec![mean, sd],
            Self::Lognormal { location, mu, sigma } => vec![location, mu, sigma],
            Self::Gamma { location, shape, scale }
            | Self::Weibull { location, shape, scale }
            | Self::Pearson5 { location, shape, scale } => vec![location, shape, scale],
            Self::Exponential { location, scale } => vec![location, scale],
            Self::Erlang { location, shape, scale } => vec![location, f64::from(shape), scale],
            Self::GeneralisedGamma { location, mu, sigma, lambda } => vec![location, mu, sigma, lambda],
        }
    }

    /// Where the distribution begins; minus infinity for the normal.
    pub fn location(&self) -> f64 {
        match *self {
            Self::Normal { .. } => f64::NEG_INFINITY,
            Self::Lognormal { location, .. }
            | Self::Gamma { location, .. }
            | Self::Weibull { location, .. }
            | Self::Pearson5 { location, .. }
            | Self::Exponential { location, .. }
            | Self::Erlang { location, .. }
            | Self::GeneralisedGamma { location, .. } => location,
        }
    }

    /// Density at `x`, per unit of the values.
    pub fn pdf(&self, x: f64) -> f64 {
        self.ln_pdf(x).exp()
    }

    /// Natural logarithm of the density; minus infinity outside the support.
    pub fn ln_pdf(&self, x: f64) -> f64 {
        self.ln_kernel(x) + self.ln_norm()
    }

    /// Sum of [`Distribution::ln_pdf`] over `values`, with what does not depend on the value
    /// computed once.
    pub fn log_likelihood(&self, values: &[f64]) -> f64 {
        let sum: f64 = values.iter().map(|&x| self.ln_kernel(x)).sum();
        sum + self.ln_norm() * values.len() as f64
    }

    /// The part of the log density that does not depend on x.
    fn ln_norm(&self) -> f64 {
        const LN_ROOT_2_PI: f64 = 0.918_938_533_204_672_8;
        match *self {
            Self::Normal { sd, .. } => -sd.ln() - LN_ROOT_2_PI,
            Self::Lognormal { sigma, .. } => -sigma.ln() - LN_ROOT_2_PI,
            Self::Gamma { shape, scale, .. } => -ln_gamma(shape) - scale.ln(),
            Self::Erlang { shape, scale, .. } => -ln_gamma(f64::from(shape)) - scale.ln(),
            Self::Weibull { shape, scale, .. } => shape.ln() - scale.ln(),
            Self::Pearson5 { shape, scale, .. } => -ln_gamma(shape) - scale.ln(),
            Self::Exponential { scale, .. } => -scale.ln(),
            Self::GeneralisedGamma { sigma, lambda, .. } if lambda.abs() < LAMBDA_ZERO => -sigma.ln() - LN_ROOT_2_PI,
            Self::GeneralisedGamma { sigma, lambda, .. } => {
                let k = 1.0 / (lambda * lambda);
                // k ln k - k - ln Gamma(k) by Stirling's series where the terms would cancel.
                let stirling =
                    if k > 1e3 { 0.5 * k.ln() - LN_ROOT_2_PI - 1.0 / (12.0 * k) } else { k * k.ln() - k - ln_gamma(k) };
                lambda.abs().ln() - sigma.ln() + stirling
            }
        }
    }

    /// The part of the log density that depends on x.
    fn ln_kernel(&self, x: f64) -> f64 {
        if let Self::Normal { mean, sd } = *self {
            let z = (x - mean) / sd;
            return -0.5 * z * z;
        }
        let t = x - self.location();
        if t.is_nan() || t < 0.0 {
            return f64::NEG_INFINITY;
        }
        // At the location itself densities are 0, finite or infinite; the least positive number
        // stands for it.
        let t = t.max(f64::MIN_POSITIVE);
        // Far out the quotient overflows, close in it is 0: its logarithm stays finite, as two
        // infinities that oppose each other leave no number.
        let ln_in_scales = |scale: f64| (t / scale).clamp(f64::MIN_POSITIVE, f64::MAX).ln();
        let gamma = |shape: f64, scale: f64| (shape - 1.0) * ln_in_scales(scale) - t / scale;
        match *self {
            Self::Normal { .. } => f64::NEG_INFINITY, // answered above
            Self::Lognormal { mu, sigma, .. } => lognormal_kernel(t, mu, sigma),
            Self::Gamma { shape, scale, .. } => gamma(shape, scale),
            Self::Erlang { shape, scale, .. } => gamma(f64::from(shape), scale),
            Self::Weibull { shape, scale, .. } => {
                let z = ln_in_scales(scale);
                (shape - 1.0) * z - (shape * z).exp()
            }
            Self::Pearson5 { shape, scale, .. } => -(shape + 1.0) * ln_in_scales(scale) - scale / t,
            Self::Exponential { scale, .. } => -t / scale,
            Self::GeneralisedGamma { mu, sigma, lambda, .. } if lambda.abs() < LAMBDA_ZERO => {
                lognormal_kernel(t, mu, sigma)
            }
            Self::GeneralisedGamma { mu, sigma, lambda, .. } => {
                let ln_t = t.ln();
                let lw = (lambda * (ln_t - mu) / sigma).clamp(f64::MIN, f64::MAX);
                (lw - lw.exp_m1()) / (lambda * lambda) - ln_t
            }
        }
    }

    /// Probability of a value up to `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        self.tails(x).0
    }

    /// Probability of a value above `x`, precise where it is small.
    pub fn survival(&self, x: f64) -> f64 {
        self.tails(x).1
    }

    /// (cdf, survival) at `x`, each precise where it is small.
    pub fn tails(&self, x: f64) -> (f64, f64) {
        if let Self::Normal { mean, sd } = *self {
            let z = (x - mean) / sd;
            return (normal_cdf(z), normal_cdf(-z));
        }
        let t = x - self.location();
        if t.is_nan() || t <= 0.0 {
            return (0.0, 1.0);
        }
        let normal = |mu: f64, sigma: f64| {
            let z = (t.ln() - mu) / sigma;
            (normal_cdf(z), normal_cdf(-z))
        };
        let by_hazard = |h: f64| (-(-h).exp_m1(), (-h).exp());
        match *self {
            Self::Normal { .. } => (0.0, 1.0),
            Self::Lognormal { mu, sigma, .. } => normal(mu, sigma),
            Self::Gamma { shape, scale, .. } => gamma_pq(shape, t / scale),
            Self::Erlang { shape, scale, .. } => gamma_pq(f64::from(shape), t / scale),
            Self::Weibull { shape, scale, .. } => by_hazard((t / scale).powf(shape)),
            Self::Pearson5 { shape, scale, .. } => swap(gamma_pq(shape, scale / t)),
            Self::Exponential { scale, .. } => by_hazard(t / scale),
            Self::GeneralisedGamma { mu, sigma, lambda, .. } if lambda.abs() < LAMBDA_ZERO => normal(mu, sigma),
            Self::GeneralisedGamma { mu, sigma, lambda, .. } => {
                let k = 1.0 / (lambda * lambda);
                let tails = gamma_pq(k, k * (lambda * (t.ln() - mu) / sigma).exp());
                if lambda > 0.0 { tails } else { swap(tails) }
            }
        }
    }

    /// The value below which the share `p` lies; `p` is clamped to 0..=1 (NaN counts as 0), the
    /// ends giving the support's.
    pub fn quantile(&self, p: f64) -> f64 {
        let p = if p.is_nan() { 0.0 } else { p.clamp(0.0, 1.0) };
        let q = 1.0 - p;
        if let Self::Normal { mean, sd } = *self {
            return mean + sd * normal_quantile(p);
        }
        if p == 0.0 {
            return self.location();
        }
        if q == 0.0 {
            return f64::INFINITY;
        }
        let hazard = -(-p).ln_1p();
        let t = match *self {
            Self::Normal { .. } => 0.0,
            Self::Lognormal { mu, sigma, .. } => (mu + sigma * normal_quantile(p)).exp(),
            Self::Gamma { shape, scale, .. } => scale * gamma_inverse(shape, p, q),
            Self::Erlang { shape, scale, .. } => scale * gamma_inverse(f64::from(shape), p, q),
            Self::Weibull { shape, scale, .. } => scale * hazard.powf(1.0 / shape),
            Self::Pearson5 { shape, scale, .. } => scale / gamma_inverse(shape, q, p),
            Self::Exponential { scale, .. } => scale * hazard,
            Self::GeneralisedGamma { mu, sigma, lambda, .. } if lambda.abs() < LAMBDA_ZERO => {
                (mu + sigma * normal_quantile(p)).exp()
            }
            Self::GeneralisedGamma { mu, sigma, lambda, .. } => {
                let k = 1.0 / (lambda * lambda);
                let g = if lambda > 0.0 { gamma_inverse(k, p, q) } else { gamma_inverse(k, q, p) };
                (mu + sigma / lambda * (g / k).ln()).exp()
            }
        };
        self.location() + t
    }

    /// A random value.
    pub fn sample<R: Rng + ?Sized>(&self, random: &mut R) -> f64 {
        // `check` admits no shape for which Gamma::new fails; 1 in its place keeps the value
        // finite.
        let gamma = |shape: f64, random: &mut R| Gamma::new(shape, 1.0).map_or(1.0, |g| g.sample(random));
        let normal = |random: &mut R| -> f64 { StandardNormal.sample(random) };
        match *self {
            Self::Normal { mean, sd } => mean + sd * normal(random),
            Self::Lognormal { location, mu, sigma } => location + (mu + sigma * normal(random)).exp(),
            Self::Gamma { location, shape, scale } => location + scale * gamma(shape, random),
            Self::Erlang { location, shape, scale } => location + scale * gamma(f64::from(shape), random),
            Self::Weibull { location, shape, scale } => location + scale * (-open_unit(random).ln()).powf(1.0 / shape),
            Self::Pearson5 { location, shape, scale } => location + scale / gamma(shape, random),
            Self::Exponential { location, scale } => location - scale * open_unit(random).ln(),
            Self::GeneralisedGamma { location, mu, sigma, lambda } if lambda.abs() < LAMBDA_ZERO => {
                location + (mu + sigma * normal(random)).exp()
            }
            Self::GeneralisedGamma { location, mu, sigma, lambda } => {
                let k = 1.0 / (lambda * lambda);
                location + (mu + sigma / lambda * (gamma(k, random) / k).ln()).exp()
            }
        }
    }

    /// The mean; `None` where it is infinite.
    pub fn mean(&self) -> Option<f64> {
        match *self {
            Self::Normal { mean, .. } => Some(mean),
            Self::Lognormal { location, mu, sigma } => Some(location + (mu + sigma * sigma / 2.0).exp()),
            Self::Gamma { location, shape, scale } => Some(location + shape * scale),
            Self::Erlang { location, shape, scale } => Some(location + f64::from(shape) * scale),
            Self::Weibull { location, shape, scale } => Some(location + scale * ln_gamma(1.0 + 1.0 / shape).exp()),
            Self::Pearson5 { location, shape, scale } => (shape > 1.0).then(|| location + scale / (shape - 1.0)),
            Self::Exponential { location, scale } => Some(location + scale),
            Self::GeneralisedGamma { location, mu, sigma, lambda } if lambda.abs() < LAMBDA_ZERO => {
                Some(location + (mu + sigma * sigma / 2.0).exp())
            }
            Self::GeneralisedGamma { location, mu, sigma, lambda } => {
                let (k, power) = (1.0 / (lambda * lambda), sigma / lambda);
                (k + power > 0.0).then(|| location + (mu - power * k.ln() + ln_gamma(k + power) - ln_gamma(k)).exp())
            }
        }
    }
}

fn lognormal_kernel(t: f64, mu: f64, sigma: f64) -> f64 {
    let ln_t = t.ln();
    let w = (ln_t - mu) / sigma;
    -0.5 * w * w - ln_t
}

fn swap((a, b): (f64, f64)) -> (f64, f64) {
    (b, a)
}
