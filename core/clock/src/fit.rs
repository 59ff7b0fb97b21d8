//! A line through repeated offset measurements, and the farthest the truth can be from it.

use crate::feasible::{Range, Strip, slopes, values};
use crate::model::{Bound, Model, ModelError};
use crate::number::{gap, in_limit, median, middle, round};
use crate::probe::{Assumptions, Estimate, Probe, Rate};
use alloc::vec::Vec;

/// Measurements a fit takes at most: the exact bound looks at all pairs, and again for each
/// outlier.
pub(crate) const MAX_POINTS: usize = 256;

/// Passes over the batches; each knows the drift better than the one before, the fourth hardly so.
const PASSES: usize = 4;

/// Rounds of reweighting; the weights settle in a few.
const REWEIGHTINGS: usize = 12;

/// Why no line was fitted.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// No usable measurement: all probes lost or contradicting each other.
    #[error("clock fit: no usable offset measurement")]
    Empty,
    /// More measurements than the limit.
    #[error("clock fit: {0} measurements, at most 256 are taken")]
    TooMany(usize),
    /// No line within the drift limit agrees with three quarters of the measurements: a clock was
    /// stepped, or drifts more or less steadily than assumed.
    #[error("clock fit: {discarded} of {points} measurements contradict a steady drift; was a clock stepped?")]
    Unsteady {
        /// Measurements in all.
        points: usize,
        /// How many had been set aside when it was given up.
        discarded: usize,
    },
    /// The result is out of range.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// A model of the remote clock and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Prober's time to remote time.
    pub model: Model,
    /// Measurements used.
    pub points: usize,
    /// Measurements set aside because they contradict the others.
    pub discarded: usize,
    /// Least width (about the least round trip), ns.
    pub width_min_ns: f64,
    /// The error bound at the anchor without the assumption about asymmetry, ns.
    pub hard_error_ns: f64,
}

impl Fit {
    /// Fits a line by robust regression: Huber weights over inverse squares of each measurement's
    /// own error, from a start that a quarter of wild measurements cannot move (median of slopes
    /// over half the span). The bound comes from all lines that agree with the measurements.
    ///
    /// One measurement suffices; the drift is then unknown up to [`Assumptions::max_drift`].
    ///
    /// # Errors
    /// See [`FitError`].
    pub fn new(estimates: &[Estimate], assumptions: &Assumptions) -> Result<Fit, FitError> {
        // Each estimate's floors are lower bounds by themselves; the narrowest's are the most to
        // the point.
        let best = estimates.iter().min_by(|a, b| a.width_ns.total_cmp(&b.width_ns)).ok_or(FitError::Empty)?;
        Fit::over_floors(estimates, best.width_ns - best.slack_ns, assumptions)
    }

    /// The fit, given a lower bound of the sum of the two floors.
    fn over_floors(estimates: &[Estimate], floors_ns: f64, assumptions: &Assumptions) -> Result<Fit, FitError> {
        if estimates.len() > MAX_POINTS {
            return Err(FitError::TooMany(estimates.len()));
        }
        let floors_ns = floors_ns.max(2.0 * assumptions.floor_ns).max(0.0);
        let mut cloud = Cloud::new(estimates, floors_ns).ok_or(FitError::Empty)?;
        let points = cloud.points.len();
        let most_discarded = points / 4;
        let prior =
            |line: Line| Range { low: -assumptions.max_drift - line.slope, high: assumptions.max_drift - line.slope };
        loop {
            let line = robust_line(&cloud.points);
            let strips = cloud.strips(line, assumptions.wander_per_ns());
            if let Some(range) = slopes(&strips, prior(line)) {
                let discarded = points - cloud.points.len();
                return cloud.finish(line, &strips, range, discarded, assumptions);
            }
            let discarded = points - cloud.points.len();
            if discarded >= most_discarded {
                return Err(FitError::Unsteady { points, discarded });
            }
            cloud.drop_worst(line);
        }
    }

    /// The fit over batches of probes, each an [`Estimate::envelope`]: first without knowledge of
    /// the drift, then again with what that told, so that far probes of a batch prove as much as
    /// near ones. Batches that give no estimate are left out.
    ///
    /// # Errors
    /// See [`FitError`].
    pub fn from_batches(batches: &[Vec<Probe>], assumptions: &Assumptions) -> Result<Fit, FitError> {
        let pass = |rate: Rate| {
            let estimates = Estimate::of_batches(batches, rate, assumptions);
            // At least one batch is no further above its floors than its slack, and nobody knows
            // which.
            let floors = estimates.iter().map(|e| e.width_ns - e.slack_ns).fold(f64::INFINITY, f64::min);
            Fit::over_floors(&estimates, floors, assumptions)
        };
        let mut best = pass(Rate::unknown(assumptions))?;
        for _ in 1..PASSES {
            match pass(best.rate()) {
                Ok(next) if next.rate().error < best.rate().error => best = next,
                _ => break,
            }
        }
        Ok(best)
    }

    /// What this fit knows of the drift, to judge its own batches a second time with.
    #[must_use]
    pub fn rate(&self) -> Rate {
        let bound = self.model.bound();
        let bend = bound.wander_per_ns * bound.half_span_ns;
        Rate { slope: self.model.slope(), error: bound.slope_error + bend }
    }
}

/// A measurement relative to the cloud's anchor and base: `y` at `x`, wrong by `error` at most
/// (asymmetry apart).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub x: f64,
    pub y: f64,
    pub error: f64,
}

/// `y = intercept + slope * x`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub intercept: f64,
    pub slope: f64,
}

impl Line {
    pub fn at(self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

struct Cloud {
    anchor_ns: i64,
    base_ns: i64,
    half_span_ns: f64,
    width_min_ns: f64,
    points: Vec<Point>,
}

impl Cloud {
    fn new(estimates: &[Estimate], floors_ns: f64) -> Option<Cloud> {
        let sane = || {
            let fits = |e: &&Estimate| in_limit(e.at_ns) && in_limit(e.offset_ns) && e.width_ns.is_finite();
            estimates.iter().filter(fits)
        };
        let best = sane().min_by(|a, b| a.width_ns.total_cmp(&b.width_ns))?;
        let first_ns = sane().map(|e| e.at_ns).min()?;
        let last_ns = sane().map(|e| e.at_ns).max()?;
        let anchor_ns = middle(first_ns, last_ns);
        let point = |e: &Estimate| Point {
            x: gap(e.at_ns, anchor_ns),
            y: gap(e.offset_ns, best.offset_ns),
            error: (0.5 * (e.width_ns - floors_ns)).max(0.5),
        };
        Some(Cloud {
            anchor_ns,
            base_ns: best.offset_ns,
            half_span_ns: gap(last_ns, anchor_ns).max(gap(anchor_ns, first_ns)),
            width_min_ns: best.width_ns,
            points: sane().map(point).collect(),
        })
    }

    /// Where truth minus `line` can be. Truth bends away from its tangent at the anchor by
    /// `wander/2 x^2` at most.
    fn strips(&self, line: Line, wander_per_ns: f64) -> Vec<Strip> {
        let strip = |p: &Point| {
            let reach = p.error + 0.5 * wander_per_ns * p.x * p.x;
            let off = p.y - line.at(p.x);
            Strip { x: p.x, low: off - reach, high: off + reach }
        };
        self.points.iter().map(strip).collect()
    }

    fn drop_worst(&mut self, line: Line) {
        let excess = |p: &Point| (p.y - line.at(p.x)).abs() - p.error;
        let worst = (0..self.points.len())
            .max_by(|a, b| excess(&self.points[*a]).total_cmp(&excess(&self.points[*b])))
            .unwrap_or(0);
        self.points.remove(worst);
    }

    fn finish(
        &self,
        line: Line,
        strips: &[Strip],
        range: Range,
        discarded: usize,
        assumptions: &Assumptions,
    ) -> Result<Fit, FitError> {
        let h = self.half_span_ns;
        // The greatest distance of a line in a strip is convex in x: between the ends it is below
        // the ends' greater.
        let inner = values(strips, range, -h).magnitude().max(values(strips, range, h).magnitude());
        let bound = Bound {
            fixed_ns: assumptions.fixed_ns(self.width_min_ns),
            inner_ns: inner + 0.5,
            tilt: 0.0,
            half_span_ns: h,
            slope_error: range.magnitude(),
            wander_per_ns: assumptions.wander_per_ns(),
        };
        let offset_ns = self.base_ns.saturating_add(round(line.intercept));
        Ok(Fit {
            model: Model::new(self.anchor_ns, offset_ns, line.slope, bound)?,
            points: self.points.len(),
            discarded,
            width_min_ns: self.width_min_ns,
            hard_error_ns: assumptions.hard_ns(self.width_min_ns) + bound.inner_ns,
        })
    }
}

/// The regression line: robust start, then Huber weights (1 within a point's error, falling beyond)
/// over the inverse squares of the errors.
pub(crate) fn robust_line(points: &[Point]) -> Line {
    let mut line = start_line(points);
    for _ in 0..REWEIGHTINGS {
        let weigh = |p: &Point| {
            let off = (p.y - line.at(p.x)).abs();
            1.0 / (p.error * p.error.max(off))
        };
        let Some(next) = weighted_line(points, weigh) else { return line };
        line = next;
    }
    line
}

/// Slope: the median over pairs half the points apart. Intercept: the median of what is left.
fn start_line(points: &[Point]) -> Line {
    let mut order: Vec<Point> = points.to_vec();
    order.sort_unstable_by(|a, b| a.x.total_cmp(&b.x));
    let half = order.len().div_ceil(2);
    let pairs = order.iter().zip(order.iter().skip(half));
    let mut rises: Vec<f64> = pairs.filter(|(a, b)| b.x > a.x).map(|(a, b)| (b.y - a.y) / (b.x - a.x)).collect();
    let slope = median(&mut rises);
    let mut rests: Vec<f64> = order.iter().map(|p| p.y - slope * p.x).collect();
    Line { intercept: median(&mut rests), slope }
}

/// Weighted least squares; `None` if all points share one `x`.
fn weighted_line(points: &[Point], weigh: impl Fn(&Point) -> f64) -> Option<Line> {
    let (mut w_sum, mut x_sum, mut y_sum) = (0.0, 0.0, 0.0);
    for p in points {
        let w = weigh(p);
        w_sum += w;
        x_sum += w * p.x;
        y_sum += w * p.y;
    }
    let (x_mean, y_mean) = (x_sum / w_sum, y_sum / w_sum);
    let (mut xx, mut xy) = (0.0, 0.0);
    for p in points {
        let w = weigh(p);
        xx += w * (p.x - x_mean) * (p.x - x_mean);
        xy += w * (p.x - x_mean) * (p.y - y_mean);
    }
    let slope = xy / xx;
    let line = Line { intercept: y_mean - slope * x_mean, slope };
    (xx > 0.0 && line.intercept.is_finite() && slope.is_finite()).then_some(line)
}
