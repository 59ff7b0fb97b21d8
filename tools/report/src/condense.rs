//! One pass over a run: every sample is read once, cell by cell, and what remains is small enough
//! to draw and to compare.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use weir_distribution::{
    Bandwidth, Cell, HistogramRecord, Moved, Overlap, Run, Sample, Skew, SummaryRecord, Warning, flags,
};
use weir_stats::independence::{Tally, effective_count};
use weir_stats::{CONFIDENCE, Interval};

use crate::curve::Curve;
use crate::digest::{Between, Digest, Key, Level, Period, Point, Profile, Stray};
use crate::reading::ENOUGH;
use crate::{notes, order, units};

/// Most outliers that are remembered of one point; the largest ones.
const STRAYS: usize = 400;

/// Reads the samples of a cell.
pub type Read<'a> = dyn Fn(&Cell) -> Result<Vec<Sample>, String> + Sync + 'a;

/// What one thread made of one point.
struct Made {
    point: Point,
    strays: Vec<Stray>,
    periods: Vec<Period>,
    warnings: Vec<Warning>,
    read: u64,
}

/// Reads all samples of a run once, on as many threads as there are processors.
#[must_use]
pub fn digest(run: Run, name: &str, read: &Read<'_>) -> Digest {
    let groups = group(&run);
    let made = make_all(&run, &groups, read);
    let mut warnings = notes::of_record(&run);
    let (mut periods, mut samples) = (Vec::new(), 0);
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
        profile.periods.extend_from_slice(&made.periods);
        periods.append(&mut made.periods);
        warnings.append(&mut made.warnings);
        samples += made.read;
    }
    profiles.iter_mut().for_each(Profile::put_in_order);
    name_profiles(&mut profiles);
    order::arrange(&run, &mut profiles);
    periods.sort_by_key(|s| (s.launch, s.from_ns));
    Digest { run, name: name.to_owned(), folder: None, profiles, periods, warnings, samples }
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
        periods: Vec::new(),
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
        made.periods.extend(period(cell, &samples));
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
    made.point.skew = between(cells.iter().filter_map(|c| c.skew.as_ref()));
    made.point.span = between(cells.iter().filter_map(|c| c.span.as_ref()));
    made.point.waits = between(cells.iter().filter_map(|c| c.waits.as_ref()));
    made.point.recorded_bandwidth = bandwidth(cells.iter().filter_map(|c| c.bandwidth.as_ref()));
    made.point.overlap = overlap(cells.iter().filter_map(|c| c.overlap.as_ref()));
    made.point.moved = moved(cells.iter().flat_map(|c| &c.moved));
    made.point.missed = cells.iter().map(|c| c.missed_windows).sum();
    made.point.launch_medians = summaries.iter().map(|s| s.p50_ns).collect();
    made.point.launch_intervals = summaries.iter().map(interval_of).collect();
    made.point.row = merged(&summaries);
    made.point.launches = cells.len() as u32;
    let bounds: Vec<f64> = cells.iter().filter_map(|c| c.outliers.as_ref()).map(|o| o.boundary_ns).collect();
    let outliers = cells.iter().filter_map(|c| c.outliers.as_ref()).map(|o| o.count).sum();
    made.point.outliers = bounds.first().map(|b| (*b, outliers));
    let errors = cells.iter().filter_map(|c| c.clock_error_ns).chain(made.periods.iter().map(|s| s.error_ns.0));
    made.point.clock_error_ns = errors.filter(|e| e.is_finite()).fold(0.0, f64::max);
    made.point.services = cells.iter().filter_map(|c| c.service).collect();
    made.point.fits = cells.iter().map(|c| &c.fits).find(|f| !f.is_empty()).cloned().unwrap_or_default();
    made.strays.sort_by(|a, b| b.duration_ns.total_cmp(&a.duration_ns));
    made.strays.truncate(STRAYS);
    made
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

/// What independent samples those of a cell are worth: by repetitions, of which some ranks may be
/// missing.
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

/// The cell's own summary, which knows what a reservoir left out; or that of its samples. And how
/// many independent samples they are worth.
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

/// The value in the middle; of an even number the mean of the two.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// How far apart two instants were, over all launches.
fn between<'a>(launches: impl Iterator<Item = &'a Skew> + Clone) -> Between {
    let known = |s: &&Skew| s.summary.count > 0 && s.summary.p50_ns.is_finite();
    let rows: Vec<SummaryRecord> = launches.clone().filter(known).map(|s| s.summary.clone()).collect();
    let curve = histogram_curve(launches.filter_map(|s| s.histogram.as_ref()));
    Between { row: (!rows.is_empty()).then(|| merged(&rows)), curve }
}

/// What is recorded of the bandwidth, over all launches.
fn bandwidth<'a>(launches: impl Iterator<Item = &'a Bandwidth> + Clone) -> Option<Bandwidth> {
    let middle = |of: fn(&Bandwidth) -> f64| middle(launches.clone().map(of));
    launches.clone().next()?;
    Some(Bandwidth {
        bytes: middle(|b| b.bytes),
        min_bytes_per_s: launches.clone().filter_map(|b| b.min_bytes_per_s).reduce(f64::min),
        p1_bytes_per_s: middle(|b| b.p1_bytes_per_s),
        p50_bytes_per_s: middle(|b| b.p50_bytes_per_s),
        p99_bytes_per_s: middle(|b| b.p99_bytes_per_s),
        mean_bytes_per_s: middle(|b| b.mean_bytes_per_s),
    })
}

/// How much of an exchange went on while its ranks computed, over all launches.
fn overlap<'a>(launches: impl Iterator<Item = &'a Overlap> + Clone) -> Option<Overlap> {
    let middle = |of: fn(&Overlap) -> f64| middle(launches.clone().map(of));
    launches.clone().next()?;
    Some(Overlap {
        alone_ns: middle(|o| o.alone_ns),
        compute_ns: middle(|o| o.compute_ns),
        percent: middle(|o| o.percent),
    })
}

/// Ranks that moved in any launch, ascending, with their batches in all.
fn moved<'a>(all: impl Iterator<Item = &'a Moved>) -> Vec<Moved> {
    let mut ranks: BTreeMap<u32, u64> = BTreeMap::new();
    all.for_each(|m| {
        let batches = ranks.entry(m.rank).or_default();
        *batches = batches.saturating_add(m.batches);
    });
    ranks.into_iter().map(|(rank, batches)| Moved { rank, batches }).collect()
}

/// Several launches in one row.
fn merged(launches: &[SummaryRecord]) -> SummaryRecord {
    let [first, _, ..] = launches else { return launches.first().cloned().unwrap_or_default() };
    let median = |of: fn(&SummaryRecord) -> f64| middle(launches.iter().map(of));
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
            moved: s.flags & flags::MOVED != 0,
        })
}

/// When a cell ran and how good its clocks were.
fn period(cell: &Cell, samples: &[Sample]) -> Option<Period> {
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
    Some(Period {
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
                // Values are whole units, rounded: that of u reaches from u - 1/2 to u + 1/2, but
                // not below 0.
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
