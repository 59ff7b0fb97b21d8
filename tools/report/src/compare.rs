//! Two runs against each other, cell by cell: how far apart, how sure, and whether the clocks could
//! have told at all.

use std::fmt;

use weir_stats::CONFIDENCE;
use weir_stats::compare::holm;
use weir_stats::means::{Difference, Estimate, difference, mean_of, welch};

use crate::digest::{Digest, Key, Level, Point, Profile};
use crate::units;

/// Chance of any false difference among all cells (after Holm's correction).
pub const SIGNIFICANCE: f64 = 0.05;

/// Launches of each run from which on launches, not samples, are what is compared: two have a
/// variance.
pub const BY_LAUNCHES: usize = 2;

/// Launches of each run with which a difference of some tens of percent among many cells is found
/// in spite of the correction.
pub const ENOUGH_LAUNCHES: usize = 5;

/// Standard deviation of what rounding to whole nanoseconds does to a time.
const ROUNDING_NS: f64 = 0.288_675_134_594_812_9;

/// What is said about a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The second run is faster.
    Faster,
    /// The second run is slower.
    Slower,
    /// The launches differ, but a run has one only: whether the machines do cannot be told from it.
    LaunchesDiffer,
    /// The medians differ by less than the clocks may be off.
    WithinClockError,
    /// Launches of one run differ as much as the runs do.
    WithinLaunches,
    /// The test finds nothing.
    NoDifference,
    /// A median is not above zero, as clocks may make it: there is no ratio.
    NotPositive,
    /// Too few samples to say.
    TooFew,
}

impl Verdict {
    /// One word, for classes of the page and for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::LaunchesDiffer => "launches-differ",
            Self::WithinClockError => "within-clock-error",
            Self::WithinLaunches => "within-launches",
            Self::NoDifference => "no-difference",
            Self::NotPositive => "not-positive",
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
    /// What stands for the first and the second run: of one launch its median, of several the
    /// geometric mean of their medians (the arithmetic one where a median is not above zero).
    /// Everything said of the pair is made from these.
    pub centres_ns: (f64, f64),
    /// Launches of the first and of the second run.
    pub launches: (usize, usize),
    /// Time of the second run over that of the first: the quotient of the centres. No number
    /// ([`f64::NAN`]) where there are too few samples, or a median is not above zero.
    pub ratio: f64,
    /// Lower and upper end of its interval, at [`CONFIDENCE`]; no numbers where the ratio is none.
    pub interval: (f64, f64),
    /// Probability of such a difference if there were none, between the machines
    /// ([`Pair::by_launches`]) or between these launches.
    pub p: f64,
    /// The same, corrected for all tests made of that kind (Holm).
    pub p_corrected: f64,
    /// Whether medians of launches were compared. Else samples were, and nothing is said of the
    /// machines.
    pub by_launches: bool,
    /// How much of a difference the clocks of both runs may have made.
    pub clock_error_ns: f64,
    /// Medians of the spans of both runs, where both have one.
    pub spans_ns: Option<(f64, f64)>,
    /// Bytes a second of both runs, medians, where both have a bandwidth.
    pub bandwidths: Option<(f64, f64)>,
    /// What is said.
    pub verdict: Verdict,
}

impl Pair {
    /// Absolute difference of the centres.
    #[must_use]
    pub fn difference_ns(&self) -> f64 {
        (self.centres_ns.1 - self.centres_ns.0).abs()
    }

    /// The p-value that says something of the machines; none where a run has one launch only.
    #[must_use]
    pub fn p_of_machines(&self) -> Option<f64> {
        self.by_launches.then_some(self.p_corrected)
    }

    /// The verdict in a few words, for headings.
    #[must_use]
    pub fn short(&self) -> String {
        match self.verdict {
            Verdict::Faster | Verdict::Slower => self.to_string(),
            Verdict::LaunchesDiffer if is_far(self.ratio) => format!("{}, one launch", how_far(self.ratio)),
            Verdict::LaunchesDiffer => "undecided: launches differ".into(),
            Verdict::WithinClockError => "within clock error".into(),
            Verdict::WithinLaunches => "launches differ as much".into(),
            Verdict::NoDifference => "no difference found".into(),
            Verdict::NotPositive => "a median not above 0".into(),
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
            Verdict::LaunchesDiffer if is_far(self.ratio) => {
                write!(f, "{} in these launches; more launches say whether always", how_far(self.ratio))
            }
            Verdict::LaunchesDiffer => write!(f, "undecided: launches differ ({})", percent(self.ratio)),
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
            Verdict::NotPositive => f.write_str("not comparable: a median is not above zero"),
            Verdict::TooFew => f.write_str("too few samples to compare"),
        }
    }
}

/// `slower by 12 % (9–15)`, or `3.2 times slower (3–3.5)` where percents stop being readable. A run
/// that takes half the time is faster by 50 %: percents are of the first run's time.
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

/// Whether a factor is one that launches of one machine hardly make.
fn is_far(ratio: f64) -> bool {
    ratio >= 2.5 || ratio <= 0.4
}

/// `+12 %`, or `898 times as long` where percents stop being readable.
fn how_far(ratio: f64) -> String {
    match ratio {
        r if r >= 2.5 => format!("{} times as long", units::number(tenths(r))),
        r if r <= 0.4 => format!("{} times shorter", units::number(tenths(1.0 / r))),
        r => percent(r),
    }
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
    /// Cells of which a run has one launch only: what differs between launches of one machine is
    /// not told there from what differs between the runs.
    pub single: usize,
    /// Cells compared by launches of which a run has fewer than [`ENOUGH_LAUNCHES`].
    pub few: usize,
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
        let differ = count(Verdict::LaunchesDiffer);
        let (cells, rest) = (units::plural(n as u64, "cell"), n - faster - slower - clock - differ);
        let rest = format!("no different beyond clock error in {clock}, and not shown to differ in {rest}");
        if self.single == n && n > 0 {
            // Nothing that was found is about the machines: it must not read as if.
            let longer = self.pairs().filter(|p| p.verdict == Verdict::LaunchesDiffer && p.ratio > 1.0).count();
            return format!(
                "undecided, as one launch cannot tell a machine's difference from a launch's: of {cells} that both runs measured the launches differ in {differ} (the second's took longer in {longer}), are {rest}"
            );
        }
        let undecided = match differ {
            0 => String::new(),
            _ => format!("undecided in {differ} where launches differ but a run has only one, "),
        };
        format!(
            "of {cells} that both runs measured the second is faster in {faster} and slower in {slower}, {undecided}{rest}"
        )
    }
}

/// Compares two digests.
///
/// Where both runs measured a cell in at least [`BY_LAUNCHES`] launches, the launch is the unit, as
/// samples of one launch share its memory layout, connections and neighbours (Kalibera and Jones,
/// ISMM 2013; Hunold and Carpen-Amarie, IEEE TPDS 27(12), 2016): Welch's t test on the logarithms
/// of the launches' medians, each of which weighs the same. It assumes that these logarithms are
/// nearly normal. A test by ranks would assume nothing, but with five launches each its p-value is
/// never below 2/252, which no correction for some tens of cells leaves significant, whatever the
/// difference.
///
/// With one launch in either run the launches' variance is not known, and of the machines nothing
/// can be said. The medians' own intervals, which know how samples depend on each other, are
/// compared, and tell whether these launches differ ([`Verdict::LaunchesDiffer`]).
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
    correct(&mut matches);
    let matched: usize = matches.iter().map(|m| m.pairs.len()).sum();
    let points = |digest: &Digest| digest.profiles.iter().map(|p| p.points.len()).sum::<usize>() - matched;
    let pairs = || matches.iter().flat_map(|m| &m.pairs);
    let single = pairs().filter(|p| !p.by_launches).count();
    let few = pairs().filter(|p| p.by_launches && p.launches.0.min(p.launches.1) < ENOUGH_LAUNCHES).count();
    Comparison { unmatched: (points(first), points(second)), single, few, matches }
}

/// Corrects the p-values of what was tested for being many: those about machines among themselves,
/// and those about launches.
fn correct(matches: &mut [Match]) {
    for by_launches in [true, false] {
        let tested = |pair: &&mut Pair| {
            pair.by_launches == by_launches && !matches!(pair.verdict, Verdict::TooFew | Verdict::NotPositive)
        };
        let mut pairs: Vec<&mut Pair> = matches.iter_mut().flat_map(|m| &mut m.pairs).filter(tested).collect();
        let corrected = holm(&pairs.iter().map(|p| p.p).collect::<Vec<_>>());
        for (pair, p) in pairs.iter_mut().zip(corrected) {
            pair.p_corrected = p;
            let differs = matches!(pair.verdict, Verdict::Faster | Verdict::Slower | Verdict::LaunchesDiffer);
            if differs && p >= SIGNIFICANCE {
                pair.verdict = Verdict::NoDifference;
            }
        }
    }
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
            let mut pair = judge(out.levels.len() - 1, point, partner);
            let both = one.bandwidth_of(point).zip(other.bandwidth_of(partner));
            pair.bandwidths = both.map(|(a, b)| (a.p50_bytes_per_s, b.p50_bytes_per_s));
            out.pairs.push(pair);
        }
    }
    out
}

/// Compares one point, before the correction for many tests.
fn judge(level: usize, a: &Point, b: &Point) -> Pair {
    let launches = (a.launch_medians.len(), b.launch_medians.len());
    let mut pair = Pair {
        level,
        size_bytes: a.size_bytes,
        centres_ns: (centre(a), centre(b)),
        launches,
        ratio: f64::NAN,
        interval: (f64::NAN, f64::NAN),
        p: 1.0,
        p_corrected: 1.0,
        by_launches: launches.0.min(launches.1) >= BY_LAUNCHES,
        clock_error_ns: a.clock_error_ns + b.clock_error_ns,
        spans_ns: a.span.row.as_ref().zip(b.span.row.as_ref()).map(|(a, b)| (a.p50_ns, b.p50_ns)),
        bandwidths: None,
        verdict: Verdict::TooFew,
    };
    if launches.0.min(launches.1) == 0 {
        return pair;
    }
    let within_clocks = pair.clock_error_ns > 0.0 && pair.difference_ns() <= pair.clock_error_ns;
    if !positive(a) || !positive(b) {
        pair.verdict = if within_clocks { Verdict::WithinClockError } else { Verdict::NotPositive };
        return pair;
    }
    let found = if pair.by_launches { by_launches(a, b) } else { by_samples(a, b) };
    let Some(found) = found else { return pair };
    // From the very numbers that are shown; the estimate is their logarithm but for rounding.
    pair.ratio = pair.centres_ns.1 / pair.centres_ns.0;
    pair.interval = (found.interval.low.exp().min(pair.ratio), found.interval.high.exp().max(pair.ratio));
    pair.p = if found.p.is_nan() { 1.0 } else { found.p };
    pair.verdict = if within_clocks {
        Verdict::WithinClockError
    } else if pair.interval.0 <= 1.0 && pair.interval.1 >= 1.0 {
        Verdict::NoDifference
    } else if !pair.by_launches && launches_overlap(&a.launch_medians, &b.launch_medians) {
        Verdict::WithinLaunches
    } else if !pair.by_launches {
        Verdict::LaunchesDiffer
    } else if pair.ratio < 1.0 {
        Verdict::Faster
    } else {
        Verdict::Slower
    };
    pair
}

fn positive(point: &Point) -> bool {
    point.launch_medians.iter().all(|m| *m > 0.0)
}

/// What stands for a run: see [`Pair::centres_ns`].
fn centre(point: &Point) -> f64 {
    match &point.launch_medians[..] {
        [] => point.row.p50_ns,
        [one] => *one,
        all if positive(point) => (all.iter().map(|m| m.ln()).sum::<f64>() / all.len() as f64).exp(),
        all => all.iter().sum::<f64>() / all.len() as f64,
    }
}

/// Difference of the means of the launches' logarithms of medians, by Welch's test.
fn by_launches(a: &Point, b: &Point) -> Option<Difference> {
    let logarithms = |p: &Point| p.launch_medians.iter().map(|m| m.ln()).collect::<Vec<_>>();
    welch(&logarithms(a), &logarithms(b), (least_variance(a), least_variance(b)), CONFIDENCE).ok()
}

/// What the logarithm of a launch's median varies at least: two launches that agree by chance
/// better than each knows its own median, or than the clock tells times apart, do not make it known
/// without error.
fn least_variance(point: &Point) -> f64 {
    let own = |e: &Estimate| {
        let z_width = mean_of(&[*e], CONFIDENCE).map_or(0.0, |e| e.interval.width());
        (z_width / (2.0 * Z)).powi(2)
    };
    let medians = medians(point);
    let known: Vec<f64> = medians.iter().flatten().map(own).collect();
    let sampling = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    sampling + rounding(point).powi(2)
}

/// Standard errors between an estimate and an end of its interval at [`CONFIDENCE`].
const Z: f64 = 1.959_963_984_540_054;

/// What rounding does to the logarithm of a launch's median.
fn rounding(point: &Point) -> f64 {
    ROUNDING_NS / point.launch_medians.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Logarithms of the launches' medians with their intervals; nothing where a launch has too few
/// samples for one.
fn medians(point: &Point) -> Vec<Option<Estimate>> {
    let one = |(median, interval): (&f64, &Option<weir_stats::Interval>)| {
        let interval =
            interval.filter(|i| i.coverage >= CONFIDENCE - 1e-9 && i.coverage < 1.0 && i.contains(*median))?;
        // A lower end that is not above zero: as far below, by its logarithm, as the upper end is
        // above.
        let low = if interval.low > 0.0 { interval.low } else { median * median / interval.high };
        let (low, high) = (low.ln(), interval.high.ln());
        Some(Estimate { value: median.ln(), interval: weir_stats::Interval { low, high, ..interval } })
    };
    point.launch_medians.iter().zip(&point.launch_intervals).map(one).collect()
}

/// Difference of the means of the launches' logarithms of medians, by the medians' own intervals:
/// for these launches.
fn by_samples(a: &Point, b: &Point) -> Option<Difference> {
    let mean = |p: &Point| {
        let medians: Option<Vec<Estimate>> = medians(p).into_iter().collect();
        mean_of(&medians?, CONFIDENCE).ok()
    };
    difference(&mean(a)?, &mean(b)?, rounding(a).hypot(rounding(b)), CONFIDENCE).ok()
}

/// Whether medians of several launches of one run lie among those of the other.
fn launches_overlap(a: &[f64], b: &[f64]) -> bool {
    let range =
        |values: &[f64]| values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |r, v| (r.0.min(*v), r.1.max(*v)));
    let (a_range, b_range) = (range(a), range(b));
    a.len() + b.len() > 2 && a_range.0 <= b_range.1 && b_range.0 <= a_range.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(verdict: Verdict, ratio: f64, interval: (f64, f64), by_launches: bool) -> Pair {
        Pair {
            level: 0,
            size_bytes: 8,
            centres_ns: (1000.0, 1000.0 * ratio),
            launches: (1, 1),
            ratio,
            interval,
            p: 0.0,
            p_corrected: 0.0,
            by_launches,
            clock_error_ns: 60.0,
            spans_ns: None,
            bandwidths: None,
            verdict,
        }
    }

    #[test]
    fn verdicts_read_as_people_say_them() {
        let cases = [
            (pair(Verdict::Faster, 0.88, (0.85, 0.91), true), "faster by 12 % (9–15)"),
            (pair(Verdict::LaunchesDiffer, 0.88, (0.85, 0.91), false), "undecided: launches differ (-12 %)"),
            (pair(Verdict::Slower, 1.034, (1.031, 1.04), true), "slower by 3.4 % (3.1–4.0)"),
            (
                pair(Verdict::LaunchesDiffer, 898.4, (664.0, 5521.0), false),
                "898 times as long in these launches; more launches say whether always",
            ),
            (
                pair(Verdict::LaunchesDiffer, 0.1, (0.08, 0.125), false),
                "10 times shorter in these launches; more launches say whether always",
            ),
            (pair(Verdict::Slower, 3.24, (3.0, 3.51), true), "3.2 times slower (3–3.5)"),
            (pair(Verdict::Faster, 0.1, (0.08, 0.125), true), "10 times faster (8–12.5)"),
            (
                pair(Verdict::WithinClockError, 1.04, (1.0, 1.1), true),
                "no difference beyond clock error (40 ns apart, clocks ±60 ns)",
            ),
            (pair(Verdict::NoDifference, 0.999, (0.9, 1.1), false), "no difference found (-0.1 %)"),
        ];
        for (pair, text) in cases {
            assert_eq!(pair.to_string(), text);
        }
        assert_eq!(pair(Verdict::LaunchesDiffer, 0.1, (0.08, 0.125), false).short(), "10 times shorter, one launch");
        assert_eq!(pair(Verdict::Slower, 1.034, (1.031, 1.04), true).short(), "slower by 3.4 % (3.1–4.0)");
        assert_eq!(pair(Verdict::LaunchesDiffer, 0.5, (0.4, 0.6), false).p_of_machines(), None);
        assert_eq!(pair(Verdict::Faster, 0.5, (0.4, 0.6), true).p_of_machines(), Some(0.0));
    }

    #[test]
    fn launches_that_overlap_are_seen() {
        assert!(launches_overlap(&[10.0, 12.0], &[11.0]));
        assert!(!launches_overlap(&[10.0, 12.0], &[13.0]));
        assert!(!launches_overlap(&[10.0], &[10.0]), "one against one tells nothing of launches");
    }
}
