//! One pass over a run: every sample is read once, cell by cell, and what remains is small enough to draw and to compare.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use weir_stats::independence::{Tally, effective_count};
use weir_stats::{CONFIDENCE, Interval};

use weir_distribution::{
    Cell, Configuration, FitRecord, HistogramRecord, Locality, Run, Sample, Service, SizeMode, StartSync,
    SummaryRecord, Warning,
};

use crate::curve::Curve;
use crate::reading::ENOUGH;
use crate::{notes, order, units};

/// Most outliers that are remembered of one point; the largest ones.
const STRAYS: usize = 400;

/// Reads the samples of a cell.
pub type Read<'a> = dyn Fn(&Cell) -> Result<Vec<Sample>, String> + Sync + 'a;

/// How much of something was in flight at once: the second axis beside size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level {
    /// Messages in flight; 0 for a collective.
    pub pairs: u32,
    /// Ranks that take part.
    pub ranks: u32,
    /// Nodes.
    pub nodes: u32,
    /// Ranks on each.
    pub ranks_per_node: u32,
}

impl Level {
    fn of(configuration: &Configuration) -> Self {
        let Configuration { pairs, ranks, nodes, ranks_per_node, .. } = *configuration;
        Self { pairs, ranks, nodes, ranks_per_node }
    }

    /// `8 pairs, 4 × 4` for point-to-point operations, `4 × 2` (nodes by ranks on each) for collectives.
    #[must_use]
    pub fn label(&self) -> String {
        let placement = format!("{} × {}", self.nodes, self.ranks_per_node);
        match self.pairs {
            0 => placement,
            1 => format!("1 pair, {placement}"),
            n => format!("{n} pairs, {placement}"),
        }
    }

    /// The same in few letters, for axes.
    #[must_use]
    pub fn short(&self) -> String {
        match self.pairs {
            0 => format!("{}×{}", self.nodes, self.ranks_per_node),
            n => format!("{n} ({}×{})", self.nodes, self.ranks_per_node),
        }
    }
}

/// Everything that tells operations apart but size and level.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Operation with its size mode, e.g. `gather-each`.
    pub operation: String,
    /// Where partners are.
    pub locality: Locality,
    /// How repetitions are started.
    pub start: StartSync,
    /// Other axes.
    pub parameters: BTreeMap<String, String>,
}

impl Key {
    fn of(configuration: &Configuration) -> Self {
        Self {
            operation: configuration.label(),
            locality: configuration.locality,
            start: configuration.start,
            parameters: configuration.parameters.clone(),
        }
    }

    /// What distinguishes it beside the operation: `within nodes, barrier start, window 64`.
    #[must_use]
    pub fn qualities(&self) -> String {
        let locality = match self.locality {
            Locality::Inter => "between nodes",
            Locality::Intra => "within nodes",
            Locality::Mixed => "between and within nodes",
        };
        let start = match self.start {
            StartSync::None => "free running",
            StartSync::Barrier => "started by barrier",
            StartSync::Window => "started by window",
        };
        let mut text = format!("{locality}, {start}");
        for (name, value) in &self.parameters {
            text += &format!(", {name} {value}");
        }
        text
    }
}

/// One operation in one configuration, over all launches.
#[derive(Debug, Clone)]
pub struct Point {
    /// Size in bytes.
    pub size_bytes: u64,
    /// What the size counts.
    pub size_mode: SizeMode,
    /// Launches that measured it.
    pub launches: u32,
    /// Statistics: of one launch its summary; of several the medians of their statistics, with the least minimum, the
    /// greatest maximum, and an interval that holds those of all launches.
    pub row: SummaryRecord,
    /// Median of each launch.
    pub launch_medians: Vec<f64>,
    /// Its confidence interval, where known.
    pub launch_intervals: Vec<Option<Interval>>,
    /// How many independent samples all are worth for their medians, where known.
    pub effective: Option<f64>,
    /// The greatest autocorrelation of one repetition with the next, of all launches, where known.
    pub lag1: Option<f64>,
    /// Outliers: boundary (of the first launch) and number.
    pub outliers: Option<(f64, u64)>,
    /// Largest bound on a duration's error due to clocks.
    pub clock_error_ns: f64,
    /// Samples read that count, and those set apart as warm-up or missed window.
    pub drawn: u64,
    /// Samples set apart.
    pub excluded: u64,
    /// Their distribution.
    pub curve: Curve,
    /// How far apart processes started, over the repetitions that count.
    pub skew: Curve,
    /// Repetitions left out because a process came after the agreed start.
    pub missed: u64,
    /// Fits of the first launch that has some.
    pub fits: Vec<FitRecord>,
    /// Smallest step of a duration that the clock can tell; 0 if not known.
    pub tick_ns: f64,
    /// How a server served its clients, of each launch that tells it.
    pub services: Vec<Service>,
}

/// A sample far beyond the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stray {
    /// Launch.
    pub launch: u32,
    /// Start on the launch's clock.
    pub start_ns: i64,
    /// Who timed it.
    pub rank: u32,
    /// How long it took.
    pub duration_ns: f64,
    /// How many times the median of its point that is.
    pub factor: f64,
}

/// One operation at all its sizes and levels.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What it is.
    pub key: Key,
    /// Title: the operation, with what is needed to tell it from others of the run.
    pub title: String,
    /// Levels, from least to most in flight.
    pub levels: Vec<Level>,
    /// Sizes of all levels, ascending.
    pub sizes: Vec<u64>,
    /// What was measured, by (index of level, size).
    pub points: BTreeMap<(usize, u64), Point>,
    /// Samples far beyond the others, the largest where there are too many.
    pub strays: Vec<Stray>,
    /// How many there were in all.
    pub stray_count: u64,
    /// Its cells on the time line.
    pub spans: Vec<Span>,
}

impl Profile {
    /// The points of a level, by size.
    pub fn at_level(&self, level: usize) -> impl Iterator<Item = &Point> + Clone {
        self.points.range((level, 0)..=(level, u64::MAX)).map(|(_, point)| point)
    }
}

/// When a cell ran, how good the clocks were meanwhile, and how far apart processes started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Launch.
    pub launch: u32,
    /// Begin and end on the launch's clock.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Largest and median bound on the error of a duration.
    pub error_ns: (f64, f64),
    /// Median of the skew of starts, and its 99th percentile where repetitions are enough for one.
    pub skew_ns: Option<(f64, Option<f64>)>,
}

/// A run without its samples.
#[derive(Debug, Clone)]
pub struct Digest {
    /// The metadata as read.
    pub run: Run,
    /// A name for the run: its folder's.
    pub name: String,
    /// Where it lies, as it was named, if it was read from a folder.
    pub folder: Option<PathBuf>,
    /// Operations by family, then by name ([`order`]).
    pub profiles: Vec<Profile>,
    /// Cells on the time line.
    pub spans: Vec<Span>,
    /// All warnings: of the run, its launches, its cells, and what this pass found.
    pub warnings: Vec<Warning>,
    /// Samples read.
    pub samples: u64,
}

/// What one thread made of one point.
struct Made {
    point: Point,
    strays: Vec<Stray>,
    spans: Vec<Span>,
    warnings: Vec<Warning>,
    read: u64,
}

/// Reads all samples of a run once, on as many threads as there are processors.
#[must_use]
pub fn digest(run: Run, name: &str, read: &Read<'_>) -> Digest {
    let groups = group(&run);
    let made = make_all(&run, &groups, read);
    let mut warnings = notes::of_record(&run);
    let (mut spans, mut samples) = (Vec::new(), 0);
    let mut profiles: Vec<Profile> = Vec::new();
    for ((key, level, size), mut made) in groups.iter().map(|g| g.0.clone()).zip(made) {
        let index = profiles.iter().position(|p| p.key == key).unwrap_or_else(|| {
            profiles.push(Profile::empty(key));
            profiles.len() - 1
        });
        let profile = &mut profiles[index];
        // Indices of levels are given out in order of appearance and put in order below.
        let level = profile.levels.iter().position(|l| *l == level).unwrap_or_else(|| {
            profile.levels.push(level);
            profile.levels.len() - 1
        });
        profile.stray_count += made.point.outliers.map_or(made.strays.len() as u64, |o| o.1);
        profile.strays.append(&mut made.strays);
        profile.points.insert((level, size), made.point);
        profile.spans.extend_from_slice(&made.spans);
        spans.append(&mut made.spans);
        warnings.append(&mut made.warnings);
        samples += made.read;
    }
    profiles.iter_mut().for_each(Profile::put_in_order);
    name_profiles(&mut profiles);
    order::arrange(&run, &mut profiles);
    spans.sort_by_key(|s| (s.launch, s.from_ns));
    Digest { run, name: name.to_owned(), folder: None, profiles, spans, warnings, samples }
}

type Group = ((Key, Level, u64), Vec<usize>);

/// Cells with equal configurations, in the order of the first of each.
fn group(run: &Run) -> Vec<Group> {
    let mut places: BTreeMap<(Key, Level, u64), usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (index, cell) in run.cells.iter().enumerate() {
        let c = &cell.configuration;
        let key = (Key::of(c), Level::of(c), c.size_bytes);
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[place].1.push(index);
    }
    groups
}

fn make_all(run: &Run, groups: &[Group], read: &Read<'_>) -> Vec<Made> {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Made>> = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, cells)) = groups.get(index) else { break };
            let cells: Vec<&Cell> = cells.iter().map(|i| &run.cells[*i]).collect();
            let made = make(&cells, read);
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(index, made);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8).min(groups.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Reads and condenses the cells of one point.
fn make(cells: &[&Cell], read: &Read<'_>) -> Made {
    let configuration = &cells[0].configuration;
    let mut made = Made {
        point: Point::empty(configuration),
        strays: Vec::new(),
        spans: Vec::new(),
        warnings: Vec::new(),
        read: 0,
    };
    let (mut durations, mut summaries, mut worth) = (Vec::new(), Vec::new(), Some(0.0));
    for cell in cells {
        let samples = match cell.samples.as_ref().map(|_| read(cell)) {
            Some(Ok(samples)) => samples,
            None => Vec::new(),
            Some(Err(error)) => {
                made.warnings.push(unreadable(cell, error));
                Vec::new()
            }
        };
        made.read += samples.len() as u64;
        let from = durations.len();
        durations.extend(samples.iter().filter(|s| s.counts() && s.duration_ns.is_finite()).map(|s| s.duration_ns));
        let own = &durations[from..];
        made.point.excluded += samples.iter().filter(|s| !s.counts() && !s.is_beside()).count() as u64;
        made.spans.extend(span(cell, &samples));
        if let Some((summary, effective)) = summary_of(cell, own, &samples) {
            made.strays.extend(strays(cell, &summary, &samples));
            summaries.push(summary);
            worth = worth.zip(effective).map(|(sum, own)| sum + own);
        }
    }
    made.point.effective = worth.filter(|_| !summaries.is_empty());
    durations.sort_unstable_by(f64::total_cmp);
    made.point.drawn = durations.len() as u64;
    made.point.curve = if durations.is_empty() {
        histogram_curve(cells.iter().filter_map(|c| c.histogram.as_ref()))
    } else {
        Curve::of(&durations)
    };
    let lags = cells.iter().filter_map(|c| c.independence.as_ref()?.autocorrelation.first().copied());
    made.point.lag1 = lags.reduce(f64::max);
    let skews = cells.iter().filter_map(|c| c.skew.as_ref()?.histogram.as_ref());
    made.point.skew = histogram_curve(skews);
    made.point.missed = cells.iter().map(|c| c.missed_windows).sum();
    made.point.launch_medians = summaries.iter().map(|s| s.p50_ns).collect();
    made.point.launch_intervals = summaries.iter().map(interval_of).collect();
    made.point.row = merged(&summaries);
    made.point.launches = cells.len() as u32;
    let bounds: Vec<f64> = cells.iter().filter_map(|c| c.outliers.as_ref()).map(|o| o.boundary_ns).collect();
    let outliers = cells.iter().filter_map(|c| c.outliers.as_ref()).map(|o| o.count).sum();
    made.point.outliers = bounds.first().map(|b| (*b, outliers));
    let errors = cells.iter().filter_map(|c| c.clock_error_ns).chain(made.spans.iter().map(|s| s.error_ns.0));
    made.point.clock_error_ns = errors.filter(|e| e.is_finite()).fold(0.0, f64::max);
    made.point.services = cells.iter().filter_map(|c| c.service).collect();
    made.point.fits = cells.iter().map(|c| &c.fits).find(|f| !f.is_empty()).cloned().unwrap_or_default();
    made.strays.sort_by(|a, b| b.duration_ns.total_cmp(&a.duration_ns));
    made.strays.truncate(STRAYS);
    made
}

impl Point {
    fn empty(configuration: &Configuration) -> Self {
        Self {
            size_bytes: configuration.size_bytes,
            size_mode: configuration.size_mode,
            launches: 0,
            row: SummaryRecord::default(),
            launch_medians: Vec::new(),
            launch_intervals: Vec::new(),
            effective: None,
            lag1: None,
            outliers: None,
            clock_error_ns: 0.0,
            drawn: 0,
            excluded: 0,
            curve: Curve::default(),
            skew: Curve::default(),
            missed: 0,
            fits: Vec::new(),
            tick_ns: 0.0,
            services: Vec::new(),
        }
    }

    /// Whether anything is known of it.
    #[must_use]
    pub fn has_row(&self) -> bool {
        self.row.count > 0
    }

    /// Bytes a second at the median time: size over time, of one message (or one process' buffer).
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.size_bytes > 0 && self.row.p50_ns > 0.0).then(|| self.size_bytes as f64 / self.row.p50_ns * 1e9)
    }

    /// Whether its samples are worth less than half of their number.
    #[must_use]
    pub fn is_dependent(&self) -> bool {
        self.effective.is_some_and(|e| e < 0.5 * self.row.count as f64)
    }

    /// The chosen fit.
    #[must_use]
    pub fn chosen_fit(&self) -> Option<&FitRecord> {
        self.fits.iter().find(|f| f.chosen)
    }
}

impl Profile {
    fn empty(key: Key) -> Self {
        Self {
            key,
            title: String::new(),
            levels: Vec::new(),
            sizes: Vec::new(),
            points: BTreeMap::new(),
            strays: Vec::new(),
            stray_count: 0,
            spans: Vec::new(),
        }
    }

    /// Puts levels, which were numbered as they appeared, in order.
    fn put_in_order(&mut self) {
        let mut levels = self.levels.clone();
        levels.sort_unstable();
        let place = |old: usize| levels.iter().position(|l| *l == self.levels[old]).unwrap_or(old);
        self.points = std::mem::take(&mut self.points).into_iter().map(|((l, s), p)| ((place(l), s), p)).collect();
        self.levels = levels;
        self.sizes = self.points.keys().map(|(_, size)| *size).collect();
        self.sizes.sort_unstable();
        self.sizes.dedup();
        self.strays.sort_by(|a, b| b.duration_ns.total_cmp(&a.duration_ns));
    }
}

/// Titles: the operation alone where that is enough.
fn name_profiles(profiles: &mut [Profile]) {
    let operations: Vec<String> = profiles.iter().map(|p| p.key.operation.clone()).collect();
    for profile in profiles {
        let alone = operations.iter().filter(|o| **o == profile.key.operation).count() == 1;
        let operation = profile.key.operation.clone();
        profile.title = if alone { operation } else { format!("{operation}, {}", profile.key.qualities()) };
    }
}

fn unreadable(cell: &Cell, error: String) -> Warning {
    Warning {
        code: notes::UNREADABLE.into(),
        message: format!(
            "{error}; its summary is shown, its distribution {}",
            if cell.histogram.is_some() { "as its histogram holds it" } else { "is not" }
        ),
        advice: Some(format!(
            "measure {} at {} again",
            cell.configuration.label(),
            units::size(cell.configuration.size_bytes)
        )),
    }
}

/// What independent samples those of a cell are worth: by repetitions, of which some ranks may be missing.
fn worth(samples: &[Sample], median: f64) -> f64 {
    let fair = samples.iter().filter(|s| s.counts() && s.duration_ns.is_finite());
    let mut fair: Vec<(u32, f64)> = fair.map(|s| (s.repetition, s.duration_ns)).collect();
    fair.sort_unstable_by_key(|s| s.0);
    let tally = |of: &[(u32, f64)]| Tally {
        samples: of.len() as u32,
        below: of.iter().filter(|s| s.1 <= median).count() as u32,
    };
    effective_count(&fair.chunk_by(|a, b| a.0 == b.0).map(tally).collect::<Vec<_>>())
}

/// The interval of a summary's median.
fn interval_of(summary: &SummaryRecord) -> Option<Interval> {
    let (low, high) = summary.median_low_ns.zip(summary.median_high_ns)?;
    Some(Interval { low, high, coverage: summary.median_level.unwrap_or(CONFIDENCE) })
}

/// The cell's own summary, which knows what a reservoir left out; or that of its samples. And how many independent samples they
/// are worth.
fn summary_of(cell: &Cell, durations: &[f64], samples: &[Sample]) -> Option<(SummaryRecord, Option<f64>)> {
    if let Some(summary) = cell.summary.as_ref().filter(|s| s.count > 0 && s.p50_ns.is_finite()) {
        let effective = cell.independence.as_ref().map(|i| i.effective_count).filter(|e| e.is_finite());
        return Some((summary.clone(), effective));
    }
    let sample = weir_stats::Sample::signed(durations.to_vec()).ok()?;
    let effective = worth(samples, sample.median());
    Some((summary_record(&sample, effective), Some(effective)))
}

/// What the format tells of these samples, which are worth `effective` independent ones.
#[must_use]
pub fn summary_record(sample: &weir_stats::Sample, effective: f64) -> SummaryRecord {
    let interval = weir_stats::dependent_quantile_interval(sample, 0.5, CONFIDENCE, effective).ok();
    SummaryRecord {
        count: sample.count() as u64,
        min_ns: sample.min(),
        p1_ns: sample.quantile(0.01),
        p25_ns: sample.quantile(0.25),
        p50_ns: sample.median(),
        p75_ns: sample.quantile(0.75),
        p99_ns: sample.quantile(0.99),
        p999_ns: sample.quantile(0.999),
        max_ns: sample.max(),
        mean_ns: sample.mean(),
        stddev_ns: sample.sd(),
        median_low_ns: interval.map(|i| i.low),
        median_high_ns: interval.map(|i| i.high),
        median_level: interval.map(|i| i.coverage),
    }
}

/// Several launches in one row.
fn merged(launches: &[SummaryRecord]) -> SummaryRecord {
    let [first, _, ..] = launches else { return launches.first().cloned().unwrap_or_default() };
    let median = |of: fn(&SummaryRecord) -> f64| {
        let mut values: Vec<f64> = launches.iter().map(of).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        match values.len() {
            0 => 0.0,
            n if n % 2 == 1 => values[n / 2],
            n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
        }
    };
    let low = launches.iter().filter_map(|s| s.median_low_ns).reduce(f64::min);
    let high = launches.iter().filter_map(|s| s.median_high_ns).reduce(f64::max);
    SummaryRecord {
        count: launches.iter().map(|s| s.count).sum(),
        min_ns: launches.iter().map(|s| s.min_ns).fold(f64::INFINITY, f64::min),
        max_ns: launches.iter().map(|s| s.max_ns).fold(f64::NEG_INFINITY, f64::max),
        p1_ns: median(|s| s.p1_ns),
        p25_ns: median(|s| s.p25_ns),
        p50_ns: median(|s| s.p50_ns),
        p75_ns: median(|s| s.p75_ns),
        p99_ns: median(|s| s.p99_ns),
        p999_ns: median(|s| s.p999_ns),
        mean_ns: median(|s| s.mean_ns),
        stddev_ns: median(|s| s.stddev_ns),
        median_low_ns: low,
        median_high_ns: high,
        median_level: first.median_level,
    }
}

fn strays<'a>(cell: &'a Cell, summary: &SummaryRecord, samples: &'a [Sample]) -> impl Iterator<Item = Stray> + use<'a> {
    let boundary = cell.outliers.as_ref().map_or(f64::INFINITY, |o| o.boundary_ns);
    let median = summary.p50_ns.max(1.0);
    samples
        .iter()
        .filter(|s| (s.counts() || s.is_beside()) && s.duration_ns.is_finite())
        .filter(move |s| s.is_outlier() || s.duration_ns > boundary)
        .map(move |s| Stray {
            launch: cell.launch,
            start_ns: s.start_ns,
            rank: s.rank,
            duration_ns: s.duration_ns,
            factor: s.duration_ns / median,
        })
}

/// When a cell ran and how good its clocks were.
fn span(cell: &Cell, samples: &[Sample]) -> Option<Span> {
    let from = cell.started_ns.or_else(|| samples.iter().map(|s| s.start_ns).min())?;
    let end = |s: &Sample| s.start_ns.saturating_add(s.duration_ns.clamp(0.0, 9e18) as i64);
    let to = cell.elapsed_ns.map(|e| from.saturating_add(e)).or_else(|| samples.iter().map(end).max());
    let mut errors: Vec<f32> = samples.iter().map(|s| s.error_ns).filter(|e| e.is_finite()).collect();
    let middle = errors.len() / 2;
    let median = if errors.is_empty() {
        None
    } else {
        Some(f64::from(*errors.select_nth_unstable_by(middle, f32::total_cmp).1))
    };
    let largest = cell.clock_error_ns.or_else(|| errors.iter().copied().reduce(f32::max).map(f64::from)).unwrap_or(0.0);
    let p99 = |s: &SummaryRecord| (s.count >= ENOUGH && s.p99_ns.is_finite()).then_some(s.p99_ns);
    let skew = cell.skew.as_ref().map(|s| (s.summary.p50_ns, p99(&s.summary)));
    Some(Span {
        launch: cell.launch,
        from_ns: from,
        to_ns: to.unwrap_or(from).max(from),
        error_ns: (largest, median.unwrap_or(largest)),
        skew_ns: skew.filter(|s| s.0.is_finite()),
    })
}

/// The distribution of several histograms together.
fn histogram_curve<'a>(histograms: impl Iterator<Item = &'a HistogramRecord>) -> Curve {
    let mut all: Vec<(f64, f64, f64)> = Vec::new();
    for histogram in histograms {
        match histogram {
            HistogramRecord::Bins(bins) => all.extend(bins.bins.iter().map(|b| (b.low_ns, b.high_ns, b.count))),
            HistogramRecord::Hdr(record) => {
                let Ok(found) = weir_stats::histogram_from_base64(&record.v2_deflate_base64) else { continue };
                // Values are whole units, rounded: that of u reaches from u - 1/2 to u + 1/2, but not below 0.
                let ends = |value: u64| (found.lowest_equivalent(value) as f64, found.highest_equivalent(value) as f64);
                all.extend(found.iter_recorded().map(|step| {
                    let (low, high) = ends(step.value_iterated_to());
                    let unit = record.unit_ns;
                    ((low - 0.5).max(0.0) * unit, (high + 0.5) * unit, step.count_at_value() as f64)
                }));
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve::of_bins(all.into_iter())
}
