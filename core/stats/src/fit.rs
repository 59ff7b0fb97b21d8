//! Maximum-likelihood fits of the families with location shift.
//!
//! The likelihood of a shifted family may grow without bound as the location nears the least value,
//! and may rise towards minus infinity for nearly symmetric data. So the location is searched for
//! within bounds: below the least value by at least half the mean spacing (median - min) / n, and
//! at most 100 standard deviations, nor below what is possible at all. Within them the likelihood's
//! profile over the location is scanned on a logarithmic grid and polished by golden sections; the
//! other parameters have closed forms or one Newton iteration for each location.

use crate::search::golden_section;
use crate::shape::{Inner, Points};
use crate::{Distribution, Error, Family, Sample};

/// Standard deviations the location may be below the least value. There a lognormal's skewness is
/// 0.03.
const REACH: f64 = 100.0;
/// Locations tried before polishing.
const GRID: usize = 28;
/// Steps of polishing: each narrows the place by 0.618, 24 to 1e-5 of a grid step.
const POLISH: usize = 24;

/// One family fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fit {
    /// With its parameters.
    pub distribution: Distribution,
    /// Natural logarithm of the likelihood of all values.
    pub log_likelihood: f64,
    /// Akaike's criterion: 2 parameters - 2 log likelihood.
    pub aic: f64,
    /// Schwarz's criterion: parameters ln n - 2 log likelihood.
    pub bic: f64,
    /// Values fitted.
    pub count: u64,
    /// True when the location ended at a bound of its search: nearer to or farther from the least
    /// value might fit better, and its standard error means nothing.
    pub at_bound: bool,
}

/// Fits `family` to `sample`. Beyond 4096 values the search looks at weighted groups of them (both
/// tails one by one); the likelihood given is that of all.
///
/// # Errors
/// [`Error::TooFew`] unless there are more values than parameters, [`Error::NoSpread`] when all are
/// equal, [`Error::NoFit`] when no finite likelihood was found.
pub fn fit(family: Family, sample: &Sample) -> Result<Fit, Error> {
    let points = prepare(family, sample)?;
    let (inner, below_min, at_bound) = match family {
        Family::Normal => (points.normal(), 0.0, false),
        Family::Exponential => (points.exponential(), 0.0, false),
        _ => search(family, &points, sample).ok_or(no_fit(family, sample))?,
    };
    finish(family, sample, &points, inner, below_min, at_bound)
}

/// Fits `family` with its location given; for the normal, which has none, as [`fit`].
///
/// # Errors
/// As [`fit`]; [`Error::Argument`] for a location that is not below the least value.
pub fn fit_at(family: Family, sample: &Sample, location: f64) -> Result<Fit, Error> {
    if family == Family::Normal {
        return fit(family, sample);
    }
    crate::error::argument(
        "location",
        location,
        location < sample.min() && location.is_finite(),
        "below the least value",
    )?;
    let points = prepare(family, sample)?;
    let below_min = (sample.min() - location) / points.unit;
    let inner = match family {
        Family::Exponential => Inner::scale(points.mean() + below_min),
        _ => points.work().inner(family, below_min).ok_or(no_fit(family, sample))?,
    };
    finish(family, sample, &points, inner, below_min, false)
}

fn no_fit(family: Family, sample: &Sample) -> Error {
    Error::NoFit { family: family.name(), count: sample.count() }
}

fn prepare(family: Family, sample: &Sample) -> Result<Points, Error> {
    let need = family.parameter_names().len() + 1;
    if sample.count() < need {
        return Err(Error::TooFew { have: sample.count(), need });
    }
    if sample.is_constant() {
        return Err(Error::NoSpread { count: sample.count(), value: sample.min() });
    }
    Points::of(sample.sorted()).ok_or(no_fit(family, sample))
}

/// The best location: (parameters, distance below the least value in the points' unit, whether at a
/// bound).
fn search(family: Family, points: &Points, sample: &Sample) -> Option<(Inner, f64, bool)> {
    let (nearest, farthest) = location_bounds(points, sample);
    let mut work = points.work();
    let mut best: Option<(Inner, f64)> = None;
    let mut value_at = |below_min: f64| -> f64 {
        let Some(inner) = work.inner(family, below_min) else { return f64::NEG_INFINITY };
        if best.as_ref().is_none_or(|(b, _)| inner.log_likelihood > b.log_likelihood) {
            best = Some((inner, below_min));
        }
        inner.log_likelihood
    };
    let (low, high) = (nearest.ln(), farthest.ln());
    let step = (high - low) / (GRID - 1) as f64;
    let at = |place: f64| (low + step * place).exp().clamp(nearest, farthest);
    let mut top = (0, f64::NEG_INFINITY);
    for place in 0..GRID {
        let value = value_at(at(place as f64));
        if value > top.1 {
            top = (place, value);
        }
    }
    let (left, right) = (top.0.saturating_sub(1) as f64, (top.0 + 1).min(GRID - 1) as f64);
    golden_section(left, right, POLISH, |place| value_at(at(place)));
    let (inner, below_min) = best?;
    let at_bound = below_min <= nearest * 1.01 || below_min >= farthest * 0.99;
    Some((inner, below_min, at_bound))
}

/// Least and greatest distance of the location below the least value, in the points' unit.
fn location_bounds(points: &Points, sample: &Sample) -> (f64, f64) {
    let n = sample.count() as f64;
    let to_median = (sample.median() - sample.min()) / points.unit;
    let spacing = if to_median > 0.0 { to_median } else { points.mean() } / n;
    // A location nearer than the resolution of floating-point numbers would be the least value
    // itself.
    let resolution = 8.0 * f64::EPSILON * sample.min().abs() / points.unit;
    let nearest = (spacing / 2.0).max(resolution).max(1e-12);
    let room = (sample.min() - sample.lowest_possible()) / points.unit;
    let farthest = room.min(REACH * points.sd());
    (nearest, farthest.max(nearest))
}

fn finish(
    family: Family,
    sample: &Sample,
    points: &Points,
    inner: Inner,
    below_min: f64,
    at_bound: bool,
) -> Result<Fit, Error> {
    let distribution = inner.distribution(family, sample.min() - below_min * points.unit, points.unit, sample.min());
    distribution.check().map_err(|_| no_fit(family, sample))?;
    let log_likelihood = distribution.log_likelihood(sample.sorted());
    if !log_likelihood.is_finite() {
        return Err(no_fit(family, sample));
    }
    let parameters = family.parameter_names().len() as f64;
    Ok(Fit {
        distribution,
        log_likelihood,
        aic: 2.0 * parameters - 2.0 * log_likelihood,
        bic: parameters * (sample.count() as f64).ln() - 2.0 * log_likelihood,
        count: sample.count() as u64,
        at_bound,
    })
}
