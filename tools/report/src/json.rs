//! A run, or a comparison, as one JSON document for programs.

use serde_json::{Value, json};
use weir_distribution::Warning;

use crate::compare::{Comparison, Pair};
use crate::digest::{Digest, Level, Point, Profile};
use crate::warnings;

/// A run as one JSON document: all that the tables hold, times in ns.
///
/// * `machine`; `transport`: what carried its messages, as counted; `network`: as in the format,
///   where it was emulated, else `null`; `samples`: how many were read; `warnings`: all that the
///   text has, each with `code`, `message`, `advice`
/// * `operations`, each with `operation`, `locality`, `start`, `parameters`, and `points`, each
///   with
///   * `size_bytes`, and `level`: `pairs`, `ranks`, `nodes`, `ranks_per_node`, and between threads
///     `threads`
///   * `launches`: how many measured it; `launch_medians_ns`: the median of each
///   * `summary`: as in the format, of one launch; of several (`summary_of` is `launches`, else
///     `samples`) the medians of the launches' quantiles, means and deviations, the least `min_ns`,
///     the greatest `max_ns`, and from `median_low_ns` to `median_high_ns` what holds the interval
///     of each launch
///   * `bytes_per_s`: the median; `bandwidth`: `bytes`, `p1_bytes_per_s`, `p50_bytes_per_s`,
///     `p99_bytes_per_s`, `mean_bytes_per_s` as in the format, and `recorded`: whether the run has
///     them (of several launches the medians), or they are the size over the times
///   * `overlap`: `alone_ns`, `compute_ns`, `percent` as in the format (of several launches the
///     medians); `null` where none was recorded
///   * `skew`: `summary` of last minus first start; `span`: of last end minus first start of a
///     repetition; `waits`: of how long answers were waited for; `null` where none was recorded
///   * `moved`: ranks that changed their processor during a batch of repetitions, each with `rank`
///     and `batches` (of all launches)
///   * `clock_tick_ns`; `enough_for_p99`: whether 99th percentiles mean something
///   * `services`: how a server served its clients, as in the format, of each launch
///   * `outliers`, beyond `outlier_boundary_ns`; `clock_error_ns`: bound on a duration's error;
///     `effective_count`, `lag1_autocorrelation`; `fit`: the chosen one, of the first launch that
///     has one
#[must_use]
pub fn run_json(digest: &Digest) -> Value {
    let operations: Vec<Value> = digest.profiles.iter().map(profile_json).collect();
    let warnings: Vec<Value> = warnings::of_run(digest).iter().map(warning_json).collect();
    json!({"machine": digest.run.machine, "transport": weir_distribution::Label::of(&digest.run).told(), "network": digest.run.network, "samples": digest.samples, "warnings": warnings, "operations": operations})
}

fn warning_json(w: &Warning) -> Value {
    json!({"code": w.code, "message": w.message, "advice": w.advice})
}

/// The bandwidth, and whether the run records it or it follows from the times.
fn bandwidth_json(profile: &Profile, point: &Point) -> Option<Value> {
    let mut out = json!(profile.bandwidth_of(point)?);
    out["recorded"] = point.recorded_bandwidth.is_some().into();
    Some(out)
}

fn key_json(key: &crate::digest::Key) -> Value {
    json!({"operation": key.operation, "locality": key.locality, "start": key.start, "parameters": key.parameters})
}

fn level_json(level: &Level) -> Value {
    let mut all = json!({
        "pairs": level.pairs, "ranks": level.ranks, "nodes": level.nodes, "ranks_per_node": level.ranks_per_node
    });
    if level.threads > 0 {
        all["threads"] = level.threads.into();
    }
    all
}

fn profile_json(profile: &Profile) -> Value {
    let points = profile.points.iter().map(|((level, size), point)| {
        json!({
            "size_bytes": size, "level": profile.levels.get(*level).map(level_json), "launches": point.launches,
            "launch_medians_ns": point.launch_medians, "summary_of": if point.has_launches() { "launches" } else { "samples" },
            "summary": point.row, "bytes_per_s": profile.bandwidth_of(point).map(|b| b.p50_bytes_per_s), "bandwidth": bandwidth_json(profile, point),
            "overlap": point.overlap, "skew": point.skew.row, "span": point.span.row, "waits": point.waits.row, "moved": point.moved, "clock_tick_ns": (point.tick_ns > 0.0).then_some(point.tick_ns),
            "enough_for_p99": point.knows_p99(), "outliers": point.outliers.map(|o| o.1),
            "outlier_boundary_ns": point.outliers.map(|o| o.0), "clock_error_ns": point.clock_error_ns,
            "effective_count": point.effective, "lag1_autocorrelation": point.lag1, "fit": point.chosen_fit(),
            "services": point.services,
        })
    });
    let mut out = key_json(&profile.key);
    out["points"] = points.collect();
    out
}

/// A comparison as one JSON document. Times are in ns.
///
/// * `first`, `second`: `name`, `machine`, `transport` and `network` of the runs; `unmatched`:
///   cells that the other run does not have
/// * `significance`: a corrected p-value below it counts; `summary`: all in a sentence
/// * `warnings`: all that the text has, each with `code`, `message`, `advice`, and `run`: which it
///   is about, `first`, `second` or `both`; `null` where it is about the comparison
/// * `operations`, each with `operation`, `locality`, `start`, `parameters`, and `cells`, each with
///   * `size_bytes`, and `level`: `pairs`, `ranks`, `nodes`, `ranks_per_node`, and between threads
///     `threads`
///   * `first_ns`, `second_ns`: what stands for a run: of one launch its median, of several
///     (`first_launches`, `second_launches`) the geometric mean of their medians (arithmetic where
///     a median is not above 0)
///   * `ratio`: `second_ns` over `first_ns`, null where a centre is not above 0 or samples are too
///     few; `ratio_low`, `ratio_high`: its 95 % interval, `null` where nothing could be compared
///   * `unit`: `launch` if launches were compared (Welch's test on logarithms), `sample` if the
///     medians' own intervals were, as a run has one launch only: nothing is said of the machines
///     then
///   * `p`, `p_corrected`: of the test; after Holm's correction for all cells; `null` where `unit`
///     is `sample`
///   * `first_span_ns`, `second_span_ns`: medians of the spans; `first_bytes_per_s`,
///     `second_bytes_per_s`: medians of the bandwidths; `null` where not both runs have one
///   * `clock_error_ns`: by how much the clocks of both runs may be off together
///   * `verdict`: `faster`, `slower`, `launches-differ` (but a run has one only, which cannot
///     tell), `within-clock-error`, `within-launches`, `no-difference`, `not-positive`, `too-few`;
///     `text`: the same for people
#[must_use]
pub fn comparison_json(first: &Digest, second: &Digest, comparison: &Comparison) -> Value {
    let operations: Vec<Value> = comparison
        .matches
        .iter()
        .map(|m| {
            let mut out = key_json(&m.key);
            out["cells"] = m.pairs.iter().map(|pair| pair_json(pair, &m.levels)).collect();
            out
        })
        .collect();
    let warnings = warnings::of_two((first, second), comparison).into_iter().map(|told| {
        let mut out = warning_json(&told.warning);
        out["run"] = told.run.into();
        out
    });
    json!({
        "first": {"name": first.name, "machine": first.run.machine, "transport": weir_distribution::Label::of(&first.run).told(), "network": first.run.network},
        "second": {"name": second.name, "machine": second.run.machine, "transport": weir_distribution::Label::of(&second.run).told(), "network": second.run.network},
        "significance": crate::compare::SIGNIFICANCE,
        "unmatched": {"first": comparison.unmatched.0, "second": comparison.unmatched.1},
        "summary": comparison.summary(),
        "warnings": warnings.collect::<Vec<_>>(),
        "operations": operations,
    })
}

fn pair_json(pair: &Pair, levels: &[Level]) -> Value {
    json!({
        "size_bytes": pair.size_bytes, "level": levels.get(pair.level).map(level_json),
        "first_ns": pair.centres_ns.0, "second_ns": pair.centres_ns.1,
        "first_launches": pair.launches.0, "second_launches": pair.launches.1,
        "ratio": pair.ratio, "ratio_low": pair.interval.0, "ratio_high": pair.interval.1,
        "p": pair.by_launches.then_some(pair.p), "p_corrected": pair.p_of_machines(), "unit": if pair.by_launches { "launch" } else { "sample" },
        "first_span_ns": pair.spans_ns.map(|s| s.0), "second_span_ns": pair.spans_ns.map(|s| s.1),
        "first_bytes_per_s": pair.bandwidths.map(|b| b.0), "second_bytes_per_s": pair.bandwidths.map(|b| b.1),
        "clock_error_ns": pair.clock_error_ns, "verdict": pair.verdict.word(), "text": pair.to_string(),
    })
}
