//! Two runs against each other, cell by cell: how far apart, how sure, and whether the clocks could have told at all.

use std::fmt;

use weir_stats::compare::{brunner_munzel, hodges_lehmann, holm, mann_whitney};
use weir_stats::{CONFIDENCE, Sample};

use crate::digest::{Digest, Key, Level, Point, Profile};
use crate::units;

/// Chance of any false difference among all cells (after Holm's correction).
pub const SIGNIFICANCE: f64 = 0.05;

/// Launches of each run from which on launches, not samples, are what is compared: five against five can differ with
/// p < 0.01, fewer hardly can.
pub const ENOUGH_LAUNCHES: usize = 5;

/// Samples of each point that comparing keeps: enough that the interval of a median is under 2 % of the spread.
pub const KEPT: usize = 8192;

/// What is said about a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The second run is faster.
    Faster,
    /// The second run is slower.
    Slower,
    /// The medians differ by less than the clocks may be off.
    WithinClockError,
    /// Launches of one run differ as much as the runs do.
    WithinLaunches,
    /// The test finds nothing.
    NoDifference,
    /// Too few samples to say.
    TooFew,
}

impl Verdict {
    /// One word for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::WithinClockError => "within-clock-error",
            Self::WithinLaunches => "within-launches",
            Self::NoDifference => "no-difference",
            Self::TooFew => "too-few",
        }
    }
}

/// One operation in one configuration in both runs.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Index of the level in [`Match::levels`].
    pub level: usize,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Medians of the first and the second run.
    pub medians_ns: (f64, f64),
    /// Time of the second run over that of the first: estimate, and its interval.
    pub ratio: f64,
    /// Lower and upper end of the interval, at [`CONFIDENCE`].
    pub interval: (f64, f64),
    /// Probability of such samples if neither were faster; as tested, and corrected for all tests made.
    pub p: f64,
    /// After Holm's correction.
    pub p_corrected: f64,
    /// What was compared: samples, or medians of launches.
    pub by_launches: bool,
    /// How much of a difference the clocks of both runs may have made.
    pub clock_error_ns: f64,
    /// What is said.
    pub verdict: Verdict,
}

impl Pair {
    /// Absolute difference of the medians.
    #[must_use]
    pub fn difference_ns(&self) -> f64 {
        (self.medians_ns.1 - self.medians_ns.0).abs()
    }
}

impl Pair {
    /// The verdict in a few words, for headings.
    #[must_use]
    pub fn short(&self) -> String {
        match self.verdict {
            Verdict::Faster | Verdict::Slower => self.to_string(),
            Verdict::WithinClockError => "within clock error".into(),
            Verdict::WithinLaunches => "within what launches differ".into(),
            Verdict::NoDifference => "no difference found".into(),
            Verdict::TooFew => "too few samples".into(),
        }
    }
}

impl fmt::Display for Pair {
    /// The line for people: `faster by 12 % (9–15)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval;
        match self.verdict {
            Verdict::Faster => by(f, "faster", 1.0 / self.ratio, 1.0 / high, 1.0 / low),
            Verdict::Slower => by(f, "slower", self.ratio, low, high),
            Verdict::WithinClockError => write!(
                f,
                "no difference beyond clock error ({} apart, clocks ±{})",
                units::time(self.difference_ns()),
                units::time(self.clock_error_ns)
            ),
            Verdict::WithinLaunches => {
                write!(f, "no difference beyond that between launches ({})", percent(self.ratio))
            }
            Verdict::NoDifference => write!(f, "no difference found ({})", percent(self.ratio)),
            Verdict::TooFew => f.write_str("too few samples to compare"),
        }
    }
}

/// `slower by 12 % (9–15)`, or `3.2 times slower (3–3.5)` where percents stop being readable. A run that takes half the
/// time is faster by 50 %: percents are of the first run's time.
fn by(f: &mut fmt::Formatter<'_>, word: &str, factor: f64, low: f64, high: f64) -> fmt::Result {
    if factor >= 2.5 {
        return write!(
            f,
            "{} times {word} ({}–{})",
            units::number(tenths(factor)),
            units::number(tenths(low)),
            units::number(tenths(high))
        );
    }
    let part = |factor: f64| if word == "faster" { (1.0 - 1.0 / factor) * 100.0 } else { (factor - 1.0) * 100.0 };
    let (low, high) = (part(low), part(high));
    // A digit more than the interval is wide says nothing.
    let decimals = usize::from(high - low < 2.0);
    write!(f, "{word} by {:.decimals$} % ({low:.decimals$}–{high:.decimals$})", part(factor))
}

fn percent(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    let sign = if change > 0.0 { "+" } else { "" };
    format!("{sign}{} %", short(change))
}

/// Percents as exact as they are worth: whole ones from 10 on, tenths below.
fn short(percent: f64) -> String {
    let rounded = if percent.abs() >= 10.0 { percent.round() } else { (percent * 10.0).round() / 10.0 };
    units::number(if rounded == 0.0 { 0.0 } else { rounded })
}

fn tenths(value: f64) -> f64 {
    if value < 100.0 { (value * 10.0).round() / 10.0 } else { value.round() }
}

/// One operation of both runs.
#[derive(Debug, Clone)]
pub struct Match {
    /// What it is.
    pub key: Key,
    /// Its title.
    pub title: String,
    /// Indices of the profiles in the first and the second digest.
    pub profiles: (usize, usize),
    /// Levels that both have.
    pub levels: Vec<Level>,
    /// Cells that both have, by level and size.
    pub pairs: Vec<Pair>,
}

/// The whole comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Operations of both runs.
    pub matches: Vec<Match>,
    /// Points of the first, and of the second run, that the other did not measure.
    pub unmatched: (usize, usize),
    /// Whether a cell is compared by samples of one or few launches: then what differs between launches of one machine
    /// is not told from what differs between the runs.
    pub few_launches: bool,
}

impl Comparison {
    /// How often each verdict was reached.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.pairs().filter(|p| p.verdict == verdict).count()
    }

    /// All cells.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.matches.iter().flat_map(|m| &m.pairs)
    }

    /// The comparison in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |verdict| self.count(verdict);
        let (n, faster, slower) = (self.pairs().count(), count(Verdict::Faster), count(Verdict::Slower));
        let clock = count(Verdict::WithinClockError);
        let rest = n - faster - slower - clock;
        format!(
            "of {n} cells the second run is faster in {faster}, slower in {slower}, no different beyond clock error in {clock}, and not shown to differ in {rest}"
        )
    }
}

/// Compares two digests made with [`KEPT`] samples of each point.
#[must_use]
pub fn compare(first: &Digest, second: &Digest) -> Comparison {
    let mut matches = Vec::new();
    for (a, one) in first.profiles.iter().enumerate() {
        let found = second.profiles.iter().enumerate().find(|(_, p)| p.key == one.key);
        if let Some((b, other)) = found {
            let matched = match_profiles(one, other, (a, b));
            if !matched.pairs.is_empty() {
                matches.push(matched);
            }
        }
    }
    let corrected = holm(&matches.iter().flat_map(|m| &m.pairs).map(|p| p.p).collect::<Vec<_>>());
    for (pair, p) in matches.iter_mut().flat_map(|m| &mut m.pairs).zip(corrected) {
        pair.p_corrected = p;
        if matches!(pair.verdict, Verdict::Faster | Verdict::Slower) && p >= SIGNIFICANCE {
            pair.verdict = Verdict::NoDifference;
        }
    }
    let matched: usize = matches.iter().map(|m| m.pairs.len()).sum();
    let points = |digest: &Digest| digest.profiles.iter().map(|p| p.points.len()).sum::<usize>() - matched;
    let few_launches = matches.iter().flat_map(|m| &m.pairs).any(|p| !p.by_launches);
    Comparison { matches, unmatched: (points(first), points(second)), few_launches }
}

fn match_profiles(one: &Profile, other: &Profile, profiles: (usize, usize)) -> Match {
    let mut out =
        Match { key: one.key.clone(), title: one.title.clone(), profiles, levels: Vec::new(), pairs: Vec::new() };
    for (a, level) in one.levels.iter().enumerate() {
        let Some(b) = other.levels.iter().position(|l| l == level) else { continue };
        for point in one.at_level(a) {
            let Some(partner) = other.points.get(&(b, point.size_bytes)) else { continue };
            if out.levels.last() != Some(level) {
                out.levels.push(*level);
            }
            out.pairs.push(judge(out.levels.len() - 1, point, partner));
        }
    }
    out
}

/// Compares one point, before the correction for many tests.
fn judge(level: usize, a: &Point, b: &Point) -> Pair {
    let mut pair = Pair {
        level,
        size_bytes: a.size_bytes,
        medians_ns: (a.row.p50_ns, b.row.p50_ns),
        ratio: 1.0,
        interval: (0.0, f64::INFINITY),
        p: 1.0,
        p_corrected: 1.0,
        by_launches: a.launch_medians.len() >= ENOUGH_LAUNCHES && b.launch_medians.len() >= ENOUGH_LAUNCHES,
        clock_error_ns: a.clock_error_ns + b.clock_error_ns,
        verdict: Verdict::TooFew,
    };
    let samples = if pair.by_launches { (&a.launch_medians, &b.launch_medians) } else { (&a.kept, &b.kept) };
    let Some((ratio, interval, p)) = estimate(samples.0, samples.1, pair.by_launches, a.row.p50_ns) else {
        return pair;
    };
    (pair.ratio, pair.interval, pair.p) = (ratio, interval, p);
    pair.verdict = if pair.clock_error_ns > 0.0 && pair.difference_ns() <= pair.clock_error_ns {
        Verdict::WithinClockError
    } else if interval.0 <= 1.0 && interval.1 >= 1.0 {
        Verdict::NoDifference
    } else if !pair.by_launches && launches_overlap(&a.launch_medians, &b.launch_medians) {
        Verdict::WithinLaunches
    } else if ratio < 1.0 {
        Verdict::Faster
    } else {
        Verdict::Slower
    };
    pair
}

/// Ratio of the second to the first with its interval, and a p-value; none for fewer than two values.
///
/// The ratio is the Hodges-Lehmann shift of the logarithms: the median of all ratios of a value of the one to a value
/// of the other. Where a duration is not positive (clocks), it is one plus the shift over the first median.
fn estimate(a: &[f64], b: &[f64], by_launches: bool, median: f64) -> Option<(f64, (f64, f64), f64)> {
    let positive = a.iter().chain(b).all(|v| *v > 0.0);
    let sample =
        |values: &[f64]| Sample::signed(values.iter().map(|v| if positive { v.ln() } else { *v }).collect()).ok();
    let (a, b) = (sample(a)?, sample(b)?);
    let (shift, interval) = hodges_lehmann(&a, &b, CONFIDENCE).ok()?;
    // Launch medians are few and an exact test exists; samples are many and their spreads differ.
    let p = if by_launches { mann_whitney(&a, &b) } else { brunner_munzel(&a, &b) }.ok()?.p;
    let ratio = |shift: f64| if positive { shift.exp() } else { (1.0 + shift / median.abs().max(1.0)).max(0.0) };
    let (low, high) = (ratio(interval.low), ratio(interval.high));
    [ratio(shift), low, high].iter().all(|v| v.is_finite()).then_some((
        ratio(shift),
        (low, high),
        if p.is_nan() { 1.0 } else { p },
    ))
}

/// Whether medians of several launches of one run lie among those of the other.
fn launches_overlap(a: &[f64], b: &[f64]) -> bool {
    let range =
        |values: &[f64]| values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |r, v| (r.0.min(*v), r.1.max(*v)));
    let (a_range, b_range) = (range(a), range(b));
    a.len() > 1 && b.len() > 1 && a_range.0 <= b_range.1 && b_range.0 <= a_range.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(verdict: Verdict, ratio: f64, interval: (f64, f64)) -> Pair {
        Pair {
            level: 0,
            size_bytes: 8,
            medians_ns: (1000.0, 1000.0 * ratio),
            ratio,
            interval,
            p: 0.0,
            p_corrected: 0.0,
            by_launches: false,
            clock_error_ns: 60.0,
            verdict,
        }
    }

    #[test]
    fn verdicts_read_as_people_say_them() {
        let cases = [
            (pair(Verdict::Faster, 0.88, (0.85, 0.91)), "faster by 12 % (9–15)"),
            (pair(Verdict::Slower, 1.034, (1.031, 1.04)), "slower by 3.4 % (3.1–4.0)"),
            (pair(Verdict::Slower, 3.24, (3.0, 3.51)), "3.2 times slower (3–3.5)"),
            (pair(Verdict::Faster, 0.1, (0.08, 0.125)), "10 times faster (8–12.5)"),
            (
                pair(Verdict::WithinClockError, 1.04, (1.0, 1.1)),
                "no difference beyond clock error (40 ns apart, clocks ±60 ns)",
            ),
            (pair(Verdict::NoDifference, 0.999, (0.9, 1.1)), "no difference found (-0.1 %)"),
        ];
        for (pair, text) in cases {
            assert_eq!(pair.to_string(), text);
        }
    }

    #[test]
    fn planted_ratios_are_found() {
        let base: Vec<f64> = (0..2000).map(|i| 1000.0 + f64::from(i % 97)).collect();
        let faster: Vec<f64> = base.iter().map(|v| v * 0.8).collect();
        let (ratio, interval, p) = estimate(&base, &faster, false, 1048.0).unwrap();
        assert!(
            (ratio - 0.8).abs() < 0.005 && interval.0 <= 0.8 && interval.1 >= 0.8 && p < 1e-9,
            "{ratio} {interval:?} {p}"
        );
        let (ratio, interval, p) = estimate(&base, &base, false, 1048.0).unwrap();
        assert!((ratio - 1.0).abs() < 1e-9 && interval.0 <= 1.0 && interval.1 >= 1.0 && p > 0.9);
    }

    #[test]
    fn durations_below_zero_do_not_end_in_nan() {
        let a = [-20.0, 10.0, 30.0, 40.0];
        let b = [10.0, 40.0, 60.0, 70.0];
        let (ratio, interval, p) = estimate(&a, &b, false, 20.0).unwrap();
        assert!((ratio - 2.5).abs() < 1e-9 && interval.0.is_finite() && interval.1.is_finite() && p.is_finite());
        assert!(estimate(&[], &b, false, 0.0).is_none() && estimate(&[1.0], &[2.0], false, 1.0).is_none());
    }

    #[test]
    fn launches_that_overlap_are_seen() {
        assert!(launches_overlap(&[10.0, 12.0], &[11.0, 15.0]));
        assert!(!launches_overlap(&[10.0, 12.0], &[13.0, 15.0]));
        assert!(!launches_overlap(&[10.0], &[10.0]));
    }
}
