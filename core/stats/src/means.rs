//! Two groups by the difference of their centres: Welch's test where the groups are launches of a
//! program, and the difference of two estimates of which only intervals are known.

use crate::error::argument;
use crate::sample::check_finite;
use crate::special::{normal_quantile, student_two_sided, two_sided};
use crate::{Error, Interval};

/// How far the second is above the first, and how sure.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Difference {
    /// Second minus first.
    pub estimate: f64,
    /// Its confidence interval.
    pub interval: Interval,
    /// Two-sided probability of one at least as far from 0 if there were none.
    pub p: f64,
}

/// Difference of the means of two groups of independent values by Welch's t test (Biometrika 34,
/// 1947), which does not ask for equal variances. It assumes that means are normally distributed:
/// exact for normal values, and with few values only as good as they are near to it.
/// `least_variances` are what single values of the groups vary at least, known from elsewhere (the
/// resolution of a clock, the error of each value): two values that happen to be equal are not
/// known without error.
///
/// # Errors
/// [`Error::TooFew`] for a group of one, [`Error::NotFinite`], [`Error::Argument`] for a confidence
/// out of 0..1 or a least variance that is no number from 0 up.
pub fn welch(a: &[f64], b: &[f64], least_variances: (f64, f64), confidence: f64) -> Result<Difference, Error> {
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    for least in [least_variances.0, least_variances.1] {
        argument("least variance", least, (0.0..f64::INFINITY).contains(&least), "a number from 0 up")?;
    }
    let (mean_a, part_a, free_a) = part(a, least_variances.0)?;
    let (mean_b, part_b, free_b) = part(b, least_variances.1)?;
    let (estimate, spread) = (mean_b - mean_a, part_a + part_b);
    if spread <= 0.0 {
        let p = if estimate == 0.0 { 1.0 } else { 0.0 };
        return Ok(Difference {
            estimate,
            interval: Interval { low: estimate, high: estimate, coverage: confidence },
            p,
        });
    }
    let df = spread * spread / (part_a * part_a / free_a + part_b * part_b / free_b);
    let error = spread.sqrt();
    let reach = student_quantile(confidence, df) * error;
    let interval = Interval { low: estimate - reach, high: estimate + reach, coverage: confidence };
    Ok(Difference { estimate, interval, p: student_two_sided(estimate / error, df) })
}

/// Mean, variance of the mean, degrees of freedom.
fn part(values: &[f64], least_variance: f64) -> Result<(f64, f64, f64), Error> {
    check_finite(values)?;
    let n = values.len();
    if n < 2 {
        return Err(Error::TooFew { have: n, need: 2 });
    }
    let mean = crate::sample::mean(values);
    let free = (n - 1) as f64;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / free;
    Ok((mean, variance.max(least_variance) / n as f64, free))
}

/// The t beyond which, on both sides together, a share of 1 - `confidence` of Student's
/// distribution lies.
fn student_quantile(confidence: f64, df: f64) -> f64 {
    let tail = 1.0 - confidence;
    let (mut low, mut high) = (0.0, 1.0);
    while student_two_sided(high, df) > tail && high < 1e300 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if student_two_sided(middle, df) > tail { low = middle } else { high = middle }
    }
    high
}

/// An estimate and its interval; its coverage is between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Estimate {
    /// The estimate, within the interval.
    pub value: f64,
    /// The interval.
    pub interval: Interval,
}

impl Estimate {
    /// Standard errors to below and to above, if the estimate's distribution is nearly normal on
    /// each side.
    fn errors(&self) -> (f64, f64) {
        let z = normal_quantile(0.5 + self.interval.coverage / 2.0);
        ((self.value - self.interval.low) / z, (self.interval.high - self.value) / z)
    }
}

/// Mean of independent estimates: each weighs the same, errors add up by squares.
///
/// # Errors
/// [`Error::TooFew`] without any; [`Error::Argument`] for an interval without a coverage or without
/// its estimate.
pub fn mean_of(estimates: &[Estimate], confidence: f64) -> Result<Estimate, Error> {
    argument("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
    let n = estimates.len() as f64;
    if estimates.is_empty() {
        return Err(Error::TooFew { have: 0, need: 1 });
    }
    let (mut sum, mut below, mut above) = (0.0, 0.0, 0.0);
    for one in estimates {
        let coverage = one.interval.coverage;
        argument("coverage", coverage, coverage > 0.0 && coverage < 1.0, "between 0 and 1")?;
        argument("estimate", one.value, one.interval.contains(one.value), "within its interval")?;
        let (low, high) = one.errors();
        (sum, below, above) = (sum + one.value / n, below + low * low, above + high * high);
    }
    let z = normal_quantile(0.5 + confidence / 2.0);
    let interval = Interval { low: sum - z * below.sqrt() / n, high: sum + z * above.sqrt() / n, coverage: confidence };
    Ok(Estimate { value: sum, interval })
}

/// Difference of two independent estimates from their intervals, which need not be symmetric
/// (method of variance estimates recovery; Zou and Donner, Statistics in Medicine 27(10), 2008).
/// The p-value is the normal one at the distance at which the interval would end at 0.
/// `least_error` is added to the standard error by squares: what both estimates are not known to.
///
/// # Errors
/// [`Error::Argument`] for a confidence out of 0..1, an interval without a coverage or without its
/// estimate.
pub fn difference(a: &Estimate, b: &Estimate, least_error: f64, confidence: f64) -> Result<Difference, Error> {
    let (a, b) = (mean_of(&[*a], confidence)?, mean_of(&[*b], confidence)?);
    argument("least error", least_error, (0.0..f64::INFINITY).contains(&least_error), "a number from 0 up")?;
    let ((below_a, above_a), (below_b, above_b)) = (a.errors(), b.errors());
    let estimate = b.value - a.value;
    let (down, up) = (below_b.hypot(above_a).hypot(least_error), above_b.hypot(below_a).hypot(least_error));
    let z = normal_quantile(0.5 + confidence / 2.0);
    let interval = Interval { low: estimate - z * down, high: estimate + z * up, coverage: confidence };
    let toward = if estimate > 0.0 { down } else { up };
    let p = if estimate == 0.0 { 1.0 } else { two_sided(estimate / toward) };
    Ok(Difference { estimate, interval, p })
}
