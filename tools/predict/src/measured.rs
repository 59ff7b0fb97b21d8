//! A machine from what `weir bench` measured (`spec/distribution-format.md`): its folder becomes
//! cells with distributions.

use std::collections::BTreeSet;
use std::path::Path;

use weir_distribution::{Cell, HistogramRecord, Locality, Operation, Reader, SizeMode, SummaryRecord};
use weir_predict::{CalibrationError, Wishes, calibrate};
use weir_predict::{Machine, Quantiles};
use weir_stats::Distribution;

use crate::error::Failure;

/// Reads a run's folder. Cells whose distribution is damaged are left out, and told in the
/// machine's notices.
pub fn machine(path: &Path, wishes: &Wishes) -> Result<Machine, Failure> {
    let reader = Reader::open(path).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut notices: Vec<String> = Vec::new();
    let (mut cells, mut between_threads) = (Vec::new(), 0);
    for cell in &reader.run().cells {
        if !is_of_use(&cell.configuration.operation, wishes) {
            continue;
        }
        if is_between_threads(cell) {
            between_threads += 1;
            continue;
        }
        match distribution(&reader, cell) {
            Ok(Some(times)) => cells.push(as_cell(cell, times)),
            Ok(None) => {}
            Err(why) => notices.push(format!("{} is left out: {why}", of(cell))),
        }
    }
    let name = Some(reader.run().machine.as_str()).filter(|name| !name.is_empty());
    let shown = path.display();
    let name = name.map_or_else(|| shown.to_string(), |name| format!("{name} ({shown})"));
    let mut machine =
        calibrate(&name, &cells, wishes).map_err(|error| without(path, &error, &notices, between_threads))?;
    notices.append(&mut machine.notices);
    machine.notices = notices;
    Ok(machine)
}

/// A cell in words: its operation, size, and how many ranks.
fn of(cell: &Cell) -> String {
    let of = &cell.configuration;
    format!("{} of {} bytes among {} ranks", of.label(), of.size_bytes, of.ranks)
}

/// Why there is no machine. What was measured and cannot be read is not told as what was not
/// measured.
fn without(path: &Path, error: &CalibrationError, left_out: &[String], between_threads: usize) -> Failure {
    let Some(first) = left_out.first() else {
        return match between_threads {
            0 => Failure::content(path, error),
            1 => Failure::content(path, format!("{error}, measured without --threads (1 cell is between threads)")),
            n => Failure::content(path, format!("{error}, measured without --threads ({n} cells are between threads)")),
        };
    };
    let more = match left_out.len() {
        1 => String::new(),
        n => format!(", and {} more", n - 1),
    };
    let what = match error {
        CalibrationError::NoMessages => "no times of single messages can be read".to_owned(),
        CalibrationError::NotMeasured(name) => format!("no times of {name} can be read"),
    };
    Failure::content(path, format!("{what}: {first}{more}"))
}

/// Whether an operation says something about messages, or about a collective that is wished.
fn is_of_use(operation: &Operation, wishes: &Wishes) -> bool {
    let name = operation.as_str();
    matches!(name, "isend" | "send" | "ping-pong" | "isendlocal")
        || weir_predict::machine::operation_of(name).is_some_and(|op| wishes.measured.contains(&op))
}

/// Whether a cell is of several threads of each rank (format 3.5): its messages are not those of
/// processes, which have one.
fn is_between_threads(cell: &Cell) -> bool {
    cell.configuration.parameters.contains_key("threads")
}

fn as_cell(cell: &Cell, times: Quantiles) -> weir_predict::Cell {
    let of = &cell.configuration;
    let shared = of.size_mode == SizeMode::Total;
    weir_predict::Cell {
        operation: of.operation.as_str().to_owned(),
        bytes: if shared { of.size_bytes / u64::from(of.ranks.max(1)) } else { of.size_bytes },
        ranks: of.ranks,
        nodes: of.nodes,
        ranks_per_node: of.ranks_per_node,
        pairs: of.pairs,
        intra: of.locality == Locality::Intra,
        launch: cell.launch,
        times,
    }
}

/// The distribution of a cell's times in nanoseconds: from the first that is there of samples,
/// histogram, chosen fit, summary.
fn distribution(reader: &Reader, cell: &Cell) -> Result<Option<Quantiles>, String> {
    if cell.samples.is_some() {
        let samples = reader.read_samples(cell).map_err(|error| error.to_string())?;
        let times = samples.iter().filter(|sample| sample.counts()).map(|sample| sample.duration_ns).collect();
        return Ok(Quantiles::of_samples(times));
    }
    if let Some(histogram) = &cell.histogram {
        return Ok(Quantiles::of_bins(&bins(histogram)?));
    }
    if let Some(fit) = cell.chosen_fit() {
        let known = Distribution::recorded(fit.family.as_str(), fit.location_ns, &fit.parameters);
        let known = known.ok_or_else(|| format!("the fit of {} cannot be drawn from", fit.family.as_str()))?;
        return Ok(Quantiles::of_distribution(&known, fit.location_ns.max(0.0)));
    }
    Ok(cell.summary.as_ref().and_then(summarised))
}

/// Bins of a histogram: from, to, count.
fn bins(histogram: &HistogramRecord) -> Result<Vec<(f64, f64, f64)>, String> {
    match histogram {
        HistogramRecord::Bins(bins) => Ok(bins.bins.iter().map(|b| (b.low_ns, b.high_ns, b.count)).collect()),
        HistogramRecord::Hdr(record) => {
            let found =
                weir_stats::histogram_from_base64(&record.v2_deflate_base64).map_err(|error| error.to_string())?;
            // Values are whole units, rounded: that of u reaches from u - 1/2 to u + 1/2, but not
            // below 0.
            let ends = |value: u64| (found.lowest_equivalent(value) as f64, found.highest_equivalent(value) as f64);
            let recorded = found.iter_recorded().map(|step| {
                let (low, high) = ends(step.value_iterated_to());
                let unit = record.unit_ns;
                ((low - 0.5).max(0.0) * unit, (high + 0.5) * unit, step.count_at_value() as f64)
            });
            Ok(recorded.collect())
        }
    }
}

/// Straight lines between the quantiles of a summary.
fn summarised(summary: &SummaryRecord) -> Option<Quantiles> {
    let points = [
        (0.0, summary.min_ns),
        (0.01, summary.p1_ns),
        (0.25, summary.p25_ns),
        (0.5, summary.p50_ns),
        (0.75, summary.p75_ns),
        (0.99, summary.p99_ns),
        (0.999, summary.p999_ns),
        (1.0, summary.max_ns),
    ];
    Quantiles::of_quantiles(&points, Some(summary.mean_ns))
}

/// The collectives of these names, to be drawn from what was measured.
pub fn collectives(names: &[String]) -> Result<BTreeSet<weir_annotations::program::CollectiveOp>, Failure> {
    let known = |name: &String| {
        weir_predict::machine::operation_of(name)
            .ok_or_else(|| Failure::Usage(format!("--measured: `{name}` is no collective")))
    };
    names.iter().map(known).collect()
}
