//! Counter ticks to nanoseconds.

use crate::feasible::{Range, Strip, slopes, values};
use crate::fit::{MAX_POINTS, Point, robust_line};
use crate::number::{ceil, gap, in_limit, round};
use alloc::vec::Vec;

/// Pairs without which a counter is not judged.
const LEAST_PAIRS: usize = 8;

/// Rates between one tick a microsecond and 100 ticks a nanosecond.
const PLAUSIBLE_NS_PER_TICK: Range = Range { low: 0.01, high: 1000.0 };

/// Counters whose rate is known worse than this are refused: clock drift itself is of this order.
const WORST_RATE_ERROR: f64 = 100e-6;

/// Granularity of the monotonic clock, ns.
const MONOTONIC_RESOLUTION_NS: f64 = 1.0;

/// A reading of the monotonic clock between two readings of the counter (fenced, on one core).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickPair {
    /// Counter before.
    pub before: u64,
    /// Monotonic clock (`CLOCK_MONOTONIC_RAW`, which nobody slews), ns.
    pub monotonic_ns: i64,
    /// Counter after.
    pub after: u64,
}

/// Why a counter is not used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TickError {
    /// Too few pairs, or too many.
    #[error("tick calibration: {0} pairs; 8 to 256 are needed")]
    Count(usize),
    /// A reading of the counter or the clock was earlier than the one before it.
    #[error("tick calibration: pair {0} goes back in time; the counter differs between cores or was reset")]
    Backwards(usize),
    /// No plausible rate (a counter that stands, or a clock that does).
    #[error("tick calibration: {0} ns per tick is not plausible")]
    Implausible(f64),
    /// No single rate agrees with all pairs.
    #[error("tick calibration: counter is up to {off_ns} ns off any steady rate; it is not invariant")]
    Unstable {
        /// Greatest distance of a pair from the fitted line beyond what its reading explains, ns.
        off_ns: f64,
    },
    /// The pairs are too close or too coarse.
    #[error("tick calibration: rate known to {rate_error} only, 1e-4 is needed; take pairs over a longer span")]
    Imprecise {
        /// How far the rate may be wrong (ratio).
        rate_error: f64,
    },
}

/// A calibrated counter: the local clock that all models speak of.
///
/// Its zero is the monotonic clock's. What the calibration has wrong in its rate is one more drift
/// to the models; on the root it scales all global durations (by [`Ticks::rate_error`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticks {
    anchor_tick: u64,
    anchor_ns: i64,
    ns_per_tick: f64,
    rate_error: f64,
    error_ns: f64,
}

impl Ticks {
    /// Fits a rate through pairs taken in order over some time (tens of milliseconds at least).
    ///
    /// # Errors
    /// See [`TickError`]: a counter that no steady rate explains is refused, and the caller uses
    /// the monotonic clock.
    pub fn calibrate(pairs: &[TickPair]) -> Result<Ticks, TickError> {
        if !(LEAST_PAIRS..=MAX_POINTS).contains(&pairs.len()) {
            return Err(TickError::Count(pairs.len()));
        }
        check_order(pairs)?;
        let (first, last) = (pairs[0], pairs[pairs.len() - 1]);
        let anchor = pairs[pairs.len() / 2];
        let span = ticks_between(middle(&last), middle(&first));
        let rough = gap(last.monotonic_ns, first.monotonic_ns) / span;
        if !(PLAUSIBLE_NS_PER_TICK.low..=PLAUSIBLE_NS_PER_TICK.high).contains(&rough) {
            return Err(TickError::Implausible(rough));
        }
        let anchor_tick = middle(&anchor);
        // A counter that reads n stands anywhere from n to n + 1, so the clock was read between
        // `before` and `after + 1`.
        let half = |p: &TickPair| 0.5 * ((p.after - p.before) as f64 + 1.0);
        // How far the true rate may be from the rough one (ratio): half widths above are of the
        // rough one.
        let ends = half(&first) + half(&last) + 1.0;
        let rough_error = if span > ends { ends / (span - ends) } else { f64::INFINITY };
        // x is time by the rough rate, y what the rough rate has wrong: numbers stay small.
        let point = |p: &TickPair| {
            let x = (ticks_between(p.before, anchor_tick) + half(p)) * rough;
            let error = half(p) * rough * (1.0 + rough_error) + MONOTONIC_RESOLUTION_NS;
            Point { x, y: gap(p.monotonic_ns, anchor.monotonic_ns) - x, error }
        };
        let points: Vec<Point> = pairs.iter().map(point).collect();
        let line = robust_line(&points);
        let off = |p: &Point| p.y - line.at(p.x);
        let strips: Vec<Strip> =
            points.iter().map(|p| Strip { x: p.x, low: off(p) - p.error, high: off(p) + p.error }).collect();
        let Some(range) = slopes(&strips, Range { low: -1.0, high: 1.0 }) else {
            let off_ns = points.iter().map(|p| off(p).abs() - p.error).fold(0.0, f64::max);
            return Err(TickError::Unstable { off_ns });
        };
        let rate_error = range.magnitude();
        if rate_error > WORST_RATE_ERROR {
            return Err(TickError::Imprecise { rate_error });
        }
        let ends = [strips[0].x, strips[strips.len() - 1].x];
        Ok(Ticks {
            anchor_tick,
            anchor_ns: anchor.monotonic_ns.saturating_add(round(line.intercept)),
            ns_per_tick: rough * (1.0 + line.slope),
            rate_error,
            error_ns: ends.map(|x| values(&strips, range, x).magnitude()).into_iter().fold(0.0, f64::max) + 1.0,
        })
    }

    /// Local time of a counter value, ns on the monotonic clock's scale.
    #[must_use]
    #[inline]
    pub fn to_ns(&self, tick: u64) -> i64 {
        self.anchor_ns.saturating_add(round(ticks_between(tick, self.anchor_tick) * self.ns_per_tick))
    }

    /// The first counter value whose local time is not before `local_ns`: what to spin for.
    #[must_use]
    pub fn from_ns(&self, local_ns: i64) -> u64 {
        let ticks = ceil(gap(local_ns, self.anchor_ns) / self.ns_per_tick);
        self.anchor_tick.wrapping_add_signed(ticks)
    }

    /// Length of a number of ticks, ns.
    #[must_use]
    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Length of a tick, ns.
    #[must_use]
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Ticks a second.
    #[must_use]
    pub fn frequency_hz(&self) -> f64 {
        1e9 / self.ns_per_tick
    }

    /// How far the rate may be from the monotonic clock's (ratio).
    #[must_use]
    pub fn rate_error(&self) -> f64 {
        self.rate_error
    }

    /// Bound on the distance from the monotonic clock during the calibration, ns.
    #[must_use]
    pub fn error_ns(&self) -> f64 {
        self.error_ns
    }
}

fn check_order(pairs: &[TickPair]) -> Result<(), TickError> {
    for (i, pair) in pairs.iter().enumerate() {
        let follows = i == 0 || {
            let last = pairs[i - 1];
            last.after <= pair.before && last.monotonic_ns <= pair.monotonic_ns
        };
        if pair.before > pair.after || !follows || !in_limit(pair.monotonic_ns) {
            return Err(TickError::Backwards(i));
        }
    }
    Ok(())
}

fn middle(pair: &TickPair) -> u64 {
    pair.before + (pair.after - pair.before) / 2
}

/// `later - earlier`, either way round; right as long as they are less than 2^63 apart.
#[inline]
fn ticks_between(later: u64, earlier: u64) -> f64 {
    later.wrapping_sub(earlier).cast_signed() as f64
}
