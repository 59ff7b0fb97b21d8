//! Maximum-likelihood fits of the families with location shift, and the choice among them.
//!
//! The likelihood of a shifted family may grow without bound as the location nears the least value, and may rise towards minus
//! infinity for nearly symmetric data. So the location is searched for within bounds: below the least value by at least half
//! the mean spacing (median - min) / n, and at most 100 standard deviations, nor below what is possible at all. Within them
//! the likelihood's profile over the location is scanned on a logarithmic grid and polished by golden sections; the other
//! parameters have closed forms or one Newton iteration for each location.

use crate::goodness::{Goodness, GoodnessOptions, PMethod, random_subset, test_family, test_fitted, test_given};
use crate::random::Random;
use crate::shape::{Inner, Points};
use crate::{Distribution, Error, Family, Sample};

/// Standard deviations the location may be below the least value. There a lognormal's skewness is 0.03.
const REACH: f64 = 100.0;
/// Locations tried before polishing.
const GRID: usize = 28;
/// Steps of polishing: each narrows the place by 0.618, 24 to 1e-5 of a grid step.
const POLISH: usize = 24;
/// A subset that is at most so small a part of what was fitted is tested as if the fit had been given beforehand.
const SMALL_PART: usize = 20;

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
    /// True when the location ended at a bound of its search: nearer to or farther from the least value might fit better, and
    /// its standard error means nothing.
    pub at_bound: bool,
}

/// Fits `family` to `sample`. Beyond 4096 values the search looks at weighted groups of them (both tails one by one); the
/// likelihood given is that of all.
///
/// # Errors
/// [`Error::TooFew`] unless there are more values than parameters, [`Error::NoSpread`] when all are equal, [`Error::NoFit`]
/// when no finite likelihood was found.
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

/// The best location: (parameters, distance below the least value in the points' unit, whether at a bound).
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
    // A location nearer than the resolution of floating-point numbers would be the least value itself.
    let resolution = 8.0 * f64::EPSILON * sample.min().abs() / points.unit;
    let nearest = (spacing / 2.0).max(resolution).max(1e-12);
    let room = (sample.min() - sample.lowest_possible()) / points.unit;
    let farthest = room.min(REACH * points.sd());
    (nearest, farthest.max(nearest))
}

/// Maximises by golden sections; the function itself remembers its best.
pub(crate) fn golden_section(mut low: f64, mut high: f64, steps: usize, mut value_at: impl FnMut(f64) -> f64) {
    const SHARE: f64 = 0.618_033_988_749_894_8;
    let (mut x, mut y) = (high - SHARE * (high - low), low + SHARE * (high - low));
    let (mut at_x, mut at_y) = (value_at(x), value_at(y));
    for _ in 0..steps {
        if at_x >= at_y {
            (high, y, at_y) = (y, x, at_x);
            x = high - SHARE * (high - low);
            at_x = value_at(x);
        } else {
            (low, x, at_x) = (x, y, at_y);
            y = low + SHARE * (high - low);
            at_y = value_at(y);
        }
    }
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

/// A family's fit with its tests.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Candidate {
    /// The fit to all values.
    pub fit: Fit,
    /// Tests on a random subset. Where that is more than a twentieth of all, the family is fitted to the subset anew and the
    /// p-values come from a parametric bootstrap, for those that the choice depends on: families of greater BIC than the
    /// chosen one, and those that the table rejects already, keep the table's p-values, which are upper bounds.
    pub subset: Goodness,
}

/// All families tried on one cell.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FitReport {
    /// Those that could be fitted, best BIC first.
    pub candidates: Vec<Candidate>,
    /// Those that could not, with the reason.
    pub failed: Vec<(Family, String)>,
    /// Place of the chosen one in `candidates`.
    pub chosen: Option<usize>,
    /// Why, in a sentence for people.
    pub reason: String,
}

impl FitReport {
    /// The chosen candidate.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.get(self.chosen?)
    }
}

/// Fits `families` and chooses: the least BIC among those that no test on the subset rejects, or, when all are rejected, the
/// least BIC of all, which the reason says then.
///
/// # Errors
/// [`Error::Argument`] for options out of range. Families that do not fit are in [`FitReport::failed`], not an error.
pub fn fit_all(
    sample: &Sample,
    families: &[Family],
    options: &GoodnessOptions,
    random: &mut Random,
) -> Result<FitReport, Error> {
    options.check()?;
    let subset = random_subset(sample, options.subset, random);
    let by_table = sample.count() >= SMALL_PART * subset.count();
    let test = if by_table { test_given } else { test_fitted };
    let mut candidates = Vec::new();
    let mut failed = Vec::new();
    for &family in families {
        match fit(family, sample) {
            Ok(fit) => candidates.push(Candidate { fit, subset: test(&fit.distribution, &subset) }),
            Err(error) => failed.push((family, error.to_string())),
        }
    }
    candidates.sort_by(|a, b| a.fit.bic.total_cmp(&b.fit.bic));
    let mut passing = None;
    let mut place = 0;
    while passing.is_none() && place < candidates.len() {
        let candidate = &mut candidates[place];
        // A rejection by an upper bound stands; an acceptance by it says nothing.
        if !by_table && candidate.subset.passes(options.significance) {
            match test_family(candidate.fit.distribution.family(), &subset, options, random) {
                Ok(tested) => candidate.subset = tested,
                Err(error) => {
                    let candidate = candidates.remove(place);
                    failed.push((candidate.fit.distribution.family(), error.to_string()));
                    continue;
                }
            }
        }
        passing = candidate.subset.passes(options.significance).then_some(place);
        place += 1;
    }
    let chosen = passing.or((!candidates.is_empty()).then_some(0));
    let reason = reason(&candidates, chosen, passing.is_some(), options.significance);
    Ok(FitReport { candidates, failed, chosen, reason })
}

fn reason(candidates: &[Candidate], chosen: Option<usize>, passes: bool, significance: f64) -> String {
    let Some(place) = chosen else { return "no family could be fitted".into() };
    let best = &candidates[place];
    let method = match best.subset.anderson_darling.method {
        PMethod::Table => "by table".to_owned(),
        PMethod::TableUpperBound => "at most, by table".to_owned(),
        PMethod::Bootstrap(replicates) => format!("by {replicates} replicates"),
    };
    let tests = format!(
        "on {} values KS p {:.3}, AD p {:.3}, chi-square p {:.3} {method}",
        best.subset.count, best.subset.kolmogorov_smirnov.p, best.subset.anderson_darling.p, best.subset.chi_square.p
    );
    let name = best.fit.distribution.family();
    if !passes {
        return format!("{name}: least BIC, but every family is rejected at {significance} ({tests})");
    }
    let ahead = match place {
        0 => String::new(),
        _ => {
            let names: Vec<&str> = candidates[..place].iter().map(|c| c.fit.distribution.family().name()).collect();
            format!("; rejected although of less BIC: {}", names.join(", "))
        }
    };
    let next = candidates[place + 1..].iter().find(|c| c.subset.passes(significance));
    let margin = match next {
        Some(next) => {
            let apart = next.fit.bic - best.fit.bic;
            let told = if apart < 2.0 { " (hardly to be told apart)" } else { "" };
            format!(
                "least BIC of the families not rejected, {apart:.1} before {}{told}",
                next.fit.distribution.family()
            )
        }
        None => "the only family not rejected".into(),
    };
    format!("{name}: {margin}; {tests}{ahead}")
}
