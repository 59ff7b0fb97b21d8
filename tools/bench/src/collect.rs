//! From what the ranks noted to a cell of the distribution format, at rank 0.

use std::collections::BTreeMap;

use weir_distribution::{
    Bandwidth, Cell, Configuration, Family as FamilyName, FitRecord, HdrHistogram, HistogramRecord,
    Independence as IndependenceRecord, Moved, Operation, Outliers, Overlap, Sample, Skew, StartSync, SummaryRecord,
    TestRecord, Warning, flags,
};
use weir_stats::choice::{Candidate, fit_all};
use weir_stats::goodness::{GoodnessOptions, PMethod, random_subset};
use weir_stats::independence::{Independence, Tally, effective_count};
use weir_stats::outliers::OutlierRule;
use weir_stats::{Family, Recorder, RecorderConfig, Slots, Summary, seeded};

use crate::cell::{Measured, Noted};
use crate::error::{BenchError, Result};
use crate::operation::{Kind, Timing};
use crate::plan::Spec;

/// How samples are judged.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Samples kept of a cell; and at most as many outliers beside them, and as many that do not
    /// count.
    pub keep: usize,
    /// Repetitions to leave out at the beginning; found from the samples if not given.
    pub warm_up: Option<u32>,
    /// Outliers are beyond `multiplier` times this quantile.
    pub percentile: f64,
    /// See `percentile`.
    pub multiplier: f64,
    /// Seed of what is kept by chance.
    pub seed: u64,
    /// So many repetitions count and no more: those made beyond, as more of them seemed to be
    /// warm-up or late, are left out.
    pub counted: Option<u64>,
}

/// What is known of pairs of ranks.
pub trait Relations {
    /// Whether they are on one node.
    fn same_node(&self, a: usize, b: usize) -> bool;
    /// Whether they read one counter, so that their clocks add no error.
    fn same_clock(&self, a: usize, b: usize) -> bool;
}

/// Digits of the histogram.
const DIGITS: u8 = 3;
/// Repetitions in which warm-up and dependence are looked for.
const LOOKED_AT: usize = 10_000;
/// The first batch makes connections: it is warm-up wherever there are so many repetitions.
const ENOUGH: usize = 10;
const SIGNIFICANCE: f64 = 0.01;

/// What the time between two readings of the clock is divided by for a sample: there and back, or
/// messages in a window.
#[must_use]
pub fn divisor(configuration: &Configuration) -> f64 {
    match configuration.operation.as_str() {
        Operation::PING_PONG | Operation::PING_PONG_FILLED => 2.0,
        Operation::MESSAGE_RATE | Operation::STREAM => {
            configuration.parameters.get("window").and_then(|w| w.parse().ok()).unwrap_or(1.0)
        }
        _ => 1.0,
    }
}

/// A cell's samples, from the ranks' notes: made anew on each walk, as there may be tens of
/// millions.
struct Samples<'a, R> {
    spec: &'a Spec,
    measured: &'a Measured,
    relations: &'a R,
    active: Vec<usize>,
    /// By repetition: flags that hold for all its samples.
    flags: Vec<u8>,
    divisor: f64,
}

impl<'a, R: Relations> Samples<'a, R> {
    fn new(spec: &'a Spec, measured: &'a Measured, relations: &'a R) -> Samples<'a, R> {
        let mut flags = vec![0; measured.repetitions];
        for &k in measured.ranks.iter().flat_map(|noted| &noted.missed) {
            if let Some(flag) = flags.get_mut(k as usize) {
                *flag |= flags::MISSED_WINDOW;
            }
        }
        let divisor = divisor(&spec.configuration());
        Samples { spec, measured, relations, active: spec.active(), flags, divisor }
    }

    /// Repetitions that are kept.
    fn repetitions(&self) -> usize {
        self.flags.len()
    }

    /// Leaves out the repetitions after the `counted`th that counts; returns how many count.
    fn keep(&mut self, counted: Option<u64>) -> u64 {
        let fair = |flag: &u8| flag & flags::EXCLUDED == 0;
        let last = counted.and_then(|n| {
            let places = self.flags.iter().enumerate().filter(|(_, flag)| fair(flag));
            places.map(|(k, _)| k).nth(usize::try_from(n).ok()?.checked_sub(1)?)
        });
        self.flags.truncate(last.map_or(self.flags.len(), |last| last + 1));
        self.flags.iter().filter(|flag| fair(flag)).count() as u64
    }

    /// The sample of a rank in a repetition.
    fn get(&self, rank: usize, k: usize) -> Sample {
        let noted: &Noted = &self.measured.ranks[rank];
        let peer = self.spec.part(rank).map(|(peer, _)| peer);
        let same_node = peer.is_some_and(|peer| self.relations.same_node(rank, peer));
        let moved = moved_in(noted, k) || peer.is_some_and(|peer| moved_in(&self.measured.ranks[peer], k));
        let more = if same_node { flags::SAME_NODE } else { 0 } | if moved { flags::MOVED } else { 0 };
        let flags = self.flags[k] | more;
        let (start_ns, duration_ns, error_ns) = match (self.spec.operation.kind.timing(), peer) {
            (Timing::OneWay, Some(peer)) => {
                let sender = &self.measured.ranks[peer];
                let error = match self.relations.same_clock(rank, peer) {
                    // They do not read it at one instant.
                    true => sender.least_ns.max(noted.least_ns),
                    false => sender.error_ns + noted.error_ns,
                };
                let start = sender.begin_ns[k];
                (start, (noted.end_ns[k] - start) as f64, error)
            }
            // From the start that all agreed on: the rank's own reading of it says how late it was,
            // which is part of the time.
            _ => match self.agreed_ns(k) {
                Some(start) => (start, (noted.end_ns[k] - start) as f64, noted.error_ns),
                None => (noted.begin_ns[k], noted.length_ns[k] / self.divisor, 0.0),
            },
        };
        Sample {
            rank: rank as u32,
            peer: peer.map_or(-1, |peer| peer as i32),
            repetition: k as u32,
            start_ns,
            duration_ns,
            error_ns,
            flags,
        }
    }

    /// The start that all ranks agreed on and came to in time.
    fn agreed_ns(&self, k: usize) -> Option<i64> {
        let agreed = self.measured.agreed_ns.get(k).copied().flatten();
        agreed.filter(|_| self.flags[k] & flags::MISSED_WINDOW == 0)
    }

    fn each(&self, mut f: impl FnMut(Sample)) {
        for k in 0..self.repetitions() {
            for &rank in &self.active {
                f(self.get(rank, k));
            }
        }
    }

    /// The mean over ranks of the first repetitions from `from` on that have no flag, and which
    /// these are.
    fn series(&self, from: usize) -> (Vec<usize>, Vec<f64>) {
        let fair: Vec<usize> = (from..self.repetitions()).filter(|&k| self.flags[k] == 0).take(LOOKED_AT).collect();
        let mean = |k: usize| {
            let sum: f64 = self.active.iter().map(|&rank| self.get(rank, k).duration_ns).sum();
            sum / self.active.len() as f64
        };
        let series = fair.iter().map(|&k| mean(k)).collect();
        (fair, series)
    }

    /// By repetition that counts: samples, and those at most `value`.
    fn tallies(&self, value: f64) -> Vec<Tally> {
        let fair = (0..self.repetitions()).filter(|&k| self.flags[k] & flags::EXCLUDED == 0);
        let below = |k: usize| self.active.iter().filter(|&&rank| self.get(rank, k).duration_ns <= value).count();
        fair.map(|k| Tally { samples: self.active.len() as u32, below: below(k) as u32 }).collect()
    }

    /// Repetitions of warm-up, from the mean over ranks of each of the first; and whether times had
    /// settled after it.
    fn warm_up(&self, rules: &Rules) -> (usize, bool) {
        // Where starts are agreed, the first batch still begins by a barrier: it never counts.
        let least = if self.measured.start == StartSync::Window { self.measured.pilot } else { 0 };
        if let Some(given) = rules.warm_up {
            return ((given as usize).max(least).min(self.measured.repetitions.saturating_sub(1)), true);
        }
        let (fair, series) = self.series(0);
        let found = weir_stats::warmup::detect(&series, SIGNIFICANCE, &mut seeded(rules.seed));
        let (cut, settled) = found.map_or((0, true), |found| (found.samples, found.settled));
        // At most half of the series is cut, so that there is a repetition after it.
        let cut = if cut == 0 { 0 } else { fair.get(cut).copied().unwrap_or(0) };
        let pilot = if self.measured.repetitions >= ENOUGH { self.measured.pilot } else { least };
        // Where it did not settle in what was looked at, but went on for longer, later repetitions
        // may well have.
        (cut.max(pilot), settled || self.measured.repetitions > 2 * LOOKED_AT)
    }
}

/// Whether a rank changed its processor in the batch of this repetition.
fn moved_in(noted: &Noted, k: usize) -> bool {
    let before = noted.moved.partition_point(|&(first, _)| first as usize <= k);
    let batch = before.checked_sub(1).and_then(|place| noted.moved.get(place));
    batch.is_some_and(|&(first, count)| k - (first as usize) < count as usize)
}

/// Nothing is known of pairs of ranks: enough to tell which repetitions count.
struct Unknown;

impl Relations for Unknown {
    fn same_node(&self, _: usize, _: usize) -> bool {
        false
    }

    fn same_clock(&self, _: usize, _: usize) -> bool {
        false
    }
}

/// Repetitions that count: neither warm-up nor begun late.
#[must_use]
pub fn counted(spec: &Spec, measured: &Measured, rules: &Rules) -> u64 {
    let samples = Samples::new(spec, measured, &Unknown);
    let (warm_up, _) = samples.warm_up(rules);
    samples.flags.iter().skip(warm_up).filter(|flag| **flag & flags::MISSED_WINDOW == 0).count() as u64
}

/// Repetitions that will not count, whatever is measured, if `asked` shall.
#[must_use]
pub fn certain_warm_up(start: StartSync, rules: &Rules, asked: u64) -> u64 {
    let pilot = crate::budget::PILOT;
    let least = if start == StartSync::Window { pilot } else { 0 };
    match rules.warm_up {
        Some(given) => u64::from(given).max(least),
        None if asked + pilot >= ENOUGH as u64 => pilot,
        None => least,
    }
}

/// Makes the cell's record and the samples that are kept.
///
/// # Errors
/// [`BenchError::Usage`] if the rules make no sense.
pub fn cell(
    spec: &Spec,
    measured: &Measured,
    rules: &Rules,
    relations: &impl Relations,
) -> Result<(Cell, Vec<Sample>)> {
    let mut samples = Samples::new(spec, measured, relations);
    let (warm_up, settled) = samples.warm_up(rules);
    samples.flags[..warm_up].iter_mut().for_each(|flag| *flag |= flags::WARM_UP);
    let counted = samples.keep(rules.counted);
    let repetitions = samples.repetitions();
    let missed = samples.flags.iter().filter(|flag| **flag & flags::MISSED_WINDOW != 0).count();
    let (recorder, mut kept, mut excluded, worst) = record(&samples, rules)?;
    let mut configuration = spec.configuration();
    configuration.start = measured.start;
    let mut cell = Cell::new(0, 0, configuration);
    cell.started_ns = Some(measured.span_ns.0);
    cell.elapsed_ns = Some(measured.span_ns.1 - measured.span_ns.0);
    cell.repetitions = repetitions as u64;
    cell.warm_up = warm_up as u64;
    cell.missed_windows = missed as u64;
    cell.window_ns = measured.window_ns;
    cell.stopped_by = Some(measured.why.clone());
    cell.measured = (repetitions * samples.active.len()) as u64;
    cell.clock_error_ns = Some(f64::from(worst));
    cell.carried = measured.ranks.iter().filter_map(|noted| noted.carried).reduce(|mut sum, one| {
        sum.add(&one);
        sum
    });
    // Who takes no part has no notes.
    let of_active = samples.active.iter().map(|&rank| measured.ranks[rank].cpu_ns);
    cell.cpu_ns = of_active.sum::<Option<u64>>().map(|ns| ns as f64);
    if let Some(mut outliers) = boundary(&recorder, rules)? {
        kept.iter_mut().filter(|s| s.duration_ns > outliers.boundary_ns).for_each(|s| s.flags |= flags::OUTLIER);
        let (count, mut beside) = outliers_beside(&samples, &kept, outliers.boundary_ns, rules);
        outliers.count = count;
        cell.outliers = Some(outliers);
        excluded.append(&mut beside);
    }
    if let Ok(summary) = recorder.summary() {
        let worth = effective_count(&samples.tallies(summary.p50));
        cell.summary = Some(record_of(&dependent(summary, &recorder, worth)));
        cell.independence = independence(&samples.series(warm_up).1, worth);
    }
    cell.histogram = (recorder.count() > 0).then(|| histogram_of(&recorder));
    cell.skew = between(spec, &samples, rules, &|k| (ends_of(&samples, k).0, ends_of(&samples, k).1))?;
    cell.span = between(spec, &samples, rules, &|k| (ends_of(&samples, k).0, ends_of(&samples, k).2))?;
    cell.bandwidth = bandwidth(spec, &samples, cell.summary.as_ref());
    cell.waits = waits(&samples, rules)?;
    // All of a cell compute as long.
    let alone_ns = samples.active.iter().find_map(|&rank| measured.ranks[rank].alone_ns);
    cell.overlap = alone_ns.zip(cell.summary.as_ref()).map(|(ns, summary)| Overlap::of(ns, ns, summary.p50_ns));
    let moved = measured.ranks.iter().zip(0..).filter(|(noted, _)| !noted.moved.is_empty());
    cell.moved = moved.map(|(noted, rank)| Moved { rank, batches: noted.moved.len() as u64 }).collect();
    cell.warnings.extend(measured.warnings(spec.start));
    if !settled {
        cell.warnings.push(Warning {
            code: "not-settled".into(),
            message: format!(
                "times still changed in the second half of its {repetitions} repetitions; what was left out as warm-up may not be all"
            ),
            advice: Some("measure for longer: --time, or more repetitions (--reps, --rounds)".into()),
        });
    }
    if rules.counted.is_some_and(|asked| counted < asked) {
        cell.warnings.push(Warning {
            code: "few-repetitions".into(),
            message: "fewer repetitions count than were asked for (--reps): starts were missed again and again".into(),
            advice: Some("weir bench --start barrier, or fewer ranks than processors".into()),
        });
    }
    kept.append(&mut excluded);
    kept.sort_by_key(|s| (s.repetition, s.rank));
    Ok((cell, kept))
}

/// Walks over all samples: the recorder of those that count, a choice of these, some of the others,
/// and the largest error bound.
fn record<R: Relations>(samples: &Samples<'_, R>, rules: &Rules) -> Result<(Recorder, Vec<Sample>, Vec<Sample>, f32)> {
    let config = RecorderConfig { reservoir: rules.keep, digits: DIGITS, seed: rules.seed };
    let mut recorder = Recorder::new(config).map_err(|error| BenchError::Usage(error.to_string()))?;
    let (mut kept, mut excluded, mut worst): (Vec<Sample>, Vec<Sample>, f32) = (Vec::new(), Vec::new(), 0.0);
    samples.each(|sample| {
        worst = worst.max(sample.error_ns);
        if !sample.counts() {
            if excluded.len() < rules.keep {
                excluded.push(sample);
            }
            return;
        }
        // Clocks may make a short message shorter than nothing; the sample says so, the histogram
        // begins at 0.
        match recorder.record(sample.duration_ns.max(0.0)) {
            Ok(Some(place)) if place < kept.len() => kept[place] = sample,
            Ok(Some(_)) => kept.push(sample),
            _ => {}
        }
    });
    Ok((recorder, kept, excluded, worst))
}

/// The summary with an interval of the median for samples that are worth `worth` independent ones.
fn dependent(summary: Summary, recorder: &Recorder, worth: f64) -> Summary {
    let interval = recorder.median_interval(worth.max(1.0));
    Summary { median_interval: interval.unwrap_or(summary.median_interval), ..summary }
}

/// How repetitions depend on each other; nothing if there are too few to tell, or all equal.
fn independence(series: &[f64], worth: f64) -> Option<IndependenceRecord> {
    let found = Independence::of(series).ok()?;
    Some(IndependenceRecord {
        repetitions: series.len() as u64,
        autocorrelation: found.autocorrelation.iter().map(|r| (r * 1e4).round() / 1e4).collect(),
        runs_p: found.runs.p,
        ljung_box_p: found.ljung_box.p,
        effective_count: worth.round().max(1.0),
    })
}

/// The rule of outliers with its boundary, none counted yet.
fn boundary(recorder: &Recorder, rules: &Rules) -> Result<Option<Outliers>> {
    let rule = OutlierRule::new(rules.percentile, rules.multiplier);
    let rule = rule.map_err(|error| BenchError::Usage(error.to_string()))?;
    let quantile = match recorder.keeps_all() {
        true => recorder.sample().ok().map(|sample| sample.quantile(rules.percentile)),
        false => recorder.quantile(rules.percentile),
    };
    let Some(boundary_ns) = quantile.map(|q| rule.boundary_at(q)).filter(|b| b.is_finite()) else { return Ok(None) };
    Ok(Some(Outliers { percentile: rules.percentile, multiplier: rules.multiplier, boundary_ns, count: 0 }))
}

/// How many outliers there are, and those that are not among `kept`: all of them, or a uniform
/// choice where they are more than samples are to be kept.
fn outliers_beside<R: Relations>(
    samples: &Samples<'_, R>,
    kept: &[Sample],
    boundary_ns: f64,
    rules: &Rules,
) -> (u64, Vec<Sample>) {
    let key = |s: &Sample| (s.repetition, s.rank);
    let mut there: Vec<(u32, u32)> = kept.iter().filter(|s| s.is_outlier()).map(key).collect();
    there.sort_unstable();
    let mut random = seeded(rules.seed);
    let mut slots = Slots::new(rules.keep, &mut random);
    let (mut count, mut beside): (u64, Vec<Sample>) = (0, Vec::new());
    samples.each(|mut sample| {
        if !sample.counts() || sample.duration_ns <= boundary_ns {
            return;
        }
        count += 1;
        if there.binary_search(&key(&sample)).is_ok() {
            return;
        }
        sample.flags |= flags::OUTLIER | flags::BESIDE;
        match slots.offer(&mut random) {
            Some(place) if place < beside.len() => beside[place] = sample,
            Some(_) => beside.push(sample),
            None => {}
        }
    });
    (count, beside)
}

/// Of a repetition: the first start of all ranks, the last start, and the last end, on the global
/// clock.
fn ends_of<R: Relations>(samples: &Samples<'_, R>, k: usize) -> (i64, i64, i64) {
    let all = samples.active.iter().map(|&rank| &samples.measured.ranks[rank]);
    all.fold((i64::MAX, i64::MIN, i64::MIN), |(first, last, end), noted| {
        (first.min(noted.begin_ns[k]), last.max(noted.begin_ns[k]), end.max(noted.end_ns[k]))
    })
}

/// What lies between two instants of each repetition that counts, of an operation of all: how far
/// apart its members began, or how long it took from the first start to the last end. A start that
/// was missed is not one of the starts that were agreed.
fn between<R: Relations>(
    spec: &Spec,
    samples: &Samples<'_, R>,
    rules: &Rules,
    instants: &dyn Fn(usize) -> (i64, i64),
) -> Result<Option<Skew>> {
    if spec.pairing.is_some() {
        return Ok(None);
    }
    let config = RecorderConfig { reservoir: rules.keep, digits: DIGITS, seed: rules.seed };
    let mut recorder = Recorder::new(config).map_err(|error| BenchError::Usage(error.to_string()))?;
    let fair: Vec<usize> = (0..samples.flags.len()).filter(|&k| samples.flags[k] & flags::EXCLUDED == 0).collect();
    let apart = |k: usize| {
        let (first, last) = instants(k);
        (last - first) as f64
    };
    for &k in &fair {
        // Both are in order but for what clocks are apart, so that nothing is refused that took any
        // time.
        let _ = recorder.record(apart(k).max(0.0));
    }
    let Ok(summary) = recorder.summary() else { return Ok(None) };
    let tally = |&k: &usize| Tally { samples: 1, below: u32::from(apart(k) <= summary.p50) };
    let worth = effective_count(&fair.iter().map(tally).collect::<Vec<_>>());
    let summary = record_of(&dependent(summary, &recorder, worth));
    Ok(Some(Skew { summary, histogram: Some(histogram_of(&recorder)) }))
}

/// How long answers were waited for in the repetitions that count, at all ranks that wait for some.
fn waits<R: Relations>(samples: &Samples<'_, R>, rules: &Rules) -> Result<Option<Skew>> {
    let config = RecorderConfig { reservoir: rules.keep, digits: DIGITS, seed: rules.seed };
    let mut recorder = Recorder::new(config).map_err(|error| BenchError::Usage(error.to_string()))?;
    let fair = |of: u32| samples.flags.get(of as usize).is_some_and(|flag| flag & flags::EXCLUDED == 0);
    let all = samples.active.iter().flat_map(|&rank| &samples.measured.ranks[rank].waits);
    for &(_, ns) in all.filter(|(of, _)| fair(*of)) {
        // Nothing takes less time than none, which is all that could be refused.
        let _ = recorder.record(f64::from(ns.max(0.0)));
    }
    let summary = recorder.summary().ok().map(|summary| record_of(&summary));
    Ok(summary.map(|summary| Skew { summary, histogram: Some(histogram_of(&recorder)) }))
}

/// Bytes a second, of operations that are measured for it: of each pair, or of what comes to the
/// first rank or is handed out by it.
fn bandwidth<R: Relations>(
    spec: &Spec,
    samples: &Samples<'_, R>,
    summary: Option<&SummaryRecord>,
) -> Option<Bandwidth> {
    let kind = spec.operation.kind;
    let record = |bytes: f64, s: &SummaryRecord| {
        let rate = |ns: f64| if ns > 0.0 { Some(bytes / ns * 1e9) } else { None };
        Some(Bandwidth {
            bytes,
            min_bytes_per_s: rate(s.max_ns),
            // The slowest time is the least bandwidth.
            p1_bytes_per_s: rate(s.p99_ns)?,
            p50_bytes_per_s: rate(s.p50_ns)?,
            p99_bytes_per_s: rate(s.p1_ns)?,
            mean_bytes_per_s: rate(s.mean_ns)?,
        })
    };
    if spec.size == 0 {
        return None;
    }
    if kind.has_window() {
        return record(spec.size as f64, summary?);
    }
    // What comes to the first rank, or what it hands out.
    let messages = match kind {
        Kind::Incast => samples.active.len() as u64 - 1,
        Kind::Farm => spec.count.into(),
        _ => return None,
    };
    let first = *samples.active.first()?;
    let fair = (0..samples.repetitions()).filter(|&k| samples.flags[k] & flags::EXCLUDED == 0);
    let times: Vec<f64> = fair.map(|k| samples.get(first, k).duration_ns.max(0.0)).collect();
    let times = weir_stats::Sample::durations(times).ok()?;
    record((spec.size * messages) as f64, &record_of(&Summary::of(&times)))
}

/// The summary as the format has it.
#[must_use]
pub fn record_of(s: &Summary) -> SummaryRecord {
    SummaryRecord {
        count: s.count,
        min_ns: s.min,
        p1_ns: s.p1,
        p25_ns: s.p25,
        p50_ns: s.p50,
        p75_ns: s.p75,
        p99_ns: s.p99,
        p999_ns: s.p99_9,
        max_ns: s.max,
        mean_ns: s.mean,
        stddev_ns: s.sd,
        median_low_ns: Some(s.median_interval.low),
        median_high_ns: Some(s.median_interval.high),
        median_level: Some(s.median_interval.coverage),
    }
}

fn histogram_of(recorder: &Recorder) -> HistogramRecord {
    HistogramRecord::Hdr(HdrHistogram {
        count: recorder.count(),
        unit_ns: 1.0,
        significant_digits: DIGITS,
        v2_deflate_base64: recorder.to_base64(),
    })
}

/// Durations by which families are fitted: twenty times as many as tests look at, so that these
/// need no simulation.
pub const FITTED: usize = 10_000;

/// Those durations of a cell's kept samples by which families are fitted: [`FITTED`] at random, or
/// all if there are no more. Not every n-th of them: they lie in the order of repetitions and
/// ranks, so that the n-th may always be the same rank's.
#[must_use]
pub fn to_fit(samples: &[Sample], seed: u64) -> Vec<f64> {
    let fair: Vec<f64> = samples.iter().filter(|s| s.counts()).map(|s| s.duration_ns.max(0.0)).collect();
    let Ok(all) = weir_stats::Sample::durations(fair) else { return Vec::new() };
    random_subset(&all, FITTED, &mut seeded(seed)).sorted().to_vec()
}

/// Fits the families to durations of a cell that count.
#[must_use]
pub fn fits(durations: Vec<f64>, seed: u64) -> Vec<FitRecord> {
    let families: Vec<Family> = Family::ALL.into_iter().filter(|f| FamilyName::KNOWN.contains(&f.name())).collect();
    let Ok(sample) = weir_stats::Sample::durations(durations) else { return Vec::new() };
    let options = GoodnessOptions::default();
    let Ok(report) = fit_all(&sample, &families, &options, &mut seeded(seed)) else { return Vec::new() };
    let reason = |i: usize| (report.chosen == Some(i)).then(|| report.reason.clone());
    report.candidates.iter().enumerate().map(|(i, c)| fit_record(c, reason(i))).collect()
}

/// The record of a fit; of the chosen one, with the reason.
fn fit_record(c: &Candidate, reason: Option<String>) -> FitRecord {
    let distribution = &c.fit.distribution;
    let unit = |name: &str| match name {
        "scale" => "scale_ns".to_owned(),
        "mean" => "mean_ns".to_owned(),
        "sd" => "stddev_ns".to_owned(),
        other => other.to_owned(),
    };
    let named = distribution.family().parameter_names().iter().zip(distribution.parameters());
    let parameters: BTreeMap<String, f64> =
        named.filter(|(name, _)| **name != "location").map(|(name, value)| (unit(name), value)).collect();
    let test = |name: &str, tested: &weir_stats::goodness::Tested| TestRecord {
        test: name.to_owned(),
        statistic: tested.statistic,
        p_value: Some(tested.p),
        samples: Some(c.subset.count),
        method: Some(method(tested.method).to_owned()),
        replicates: if let PMethod::Bootstrap(replicates) = tested.method { Some(replicates) } else { None },
    };
    FitRecord {
        family: FamilyName::from(distribution.family().name()),
        location_ns: if distribution.family() == Family::Normal { 0.0 } else { distribution.location() },
        parameters,
        samples: Some(c.fit.count),
        log_likelihood: Some(c.fit.log_likelihood),
        tests: vec![
            test("ks", &c.subset.kolmogorov_smirnov),
            test("ad", &c.subset.anderson_darling),
            test("chi2", &c.subset.chi_square),
        ],
        at_bound: c.fit.at_bound,
        chosen: reason.is_some(),
        reason,
    }
}

/// The format's word for how a p-value was found.
fn method(of: PMethod) -> &'static str {
    match of {
        PMethod::Table => "table",
        PMethod::TableUpperBound => "upper-bound",
        PMethod::Bootstrap(_) => "bootstrap",
    }
}
