//! Bandwidth against size: the median, and between which bandwidths nearly all samples lie.

use weir_distribution::Bandwidth;

use super::against::{Band, Line, Sheet, lines};
use super::parts::{name, setting, title};
use crate::digest::{Point, Profile};
use crate::frame::{Mark, Plot};
use crate::scale::Kind;
use crate::units;

/// Bytes a second at the sizes of a level; nothing where fewer than two sizes have a bandwidth.
#[must_use]
pub fn against_size(profile: &Profile, level: usize, kind: Kind) -> Option<Plot> {
    let known: Vec<(&Point, Bandwidth)> =
        profile.at_level(level).filter_map(|p| Some((p, profile.bandwidth_of(p)?))).collect();
    if known.len() < 2 {
        return None;
    }
    let recorded = known.iter().any(|(p, _)| p.recorded_bandwidth.is_some());
    let what = if recorded {
        "Bytes a second as measured: the median, and the area from the 1st to the 99th percentile"
    } else {
        "Size (of one message, or of one process' buffer) over its time: at the median, and the area between the 99th and the 1st percentile"
    };
    let few = if known.iter().all(|(p, _)| p.knows_p99()) { "" } else { ", where samples are enough for them" };
    let explanation = format!("{} {what}{few}.", setting(profile, level));
    let values = known.iter().map(|(p, b)| (p.size_bytes, Some((b.p50_bytes_per_s, words(p, b)))));
    let line =
        Line { label: "median".into(), class: "line", colour: 0, mark: Some(Mark::Disc), values: values.collect() };
    let sure = known.iter().filter(|(p, _)| p.knows_p99());
    let band =
        Band { colour: 0, values: sure.map(|(p, b)| (p.size_bytes, b.p1_bytes_per_s, b.p99_bytes_per_s)).collect() };
    let title = title(profile, "bandwidth against size");
    let sheet = Sheet { title: &title, explanation: &explanation, axis: ("bandwidth", units::rate), kind, right: 64.0 };
    let frame = lines(&sheet, &[line], &[band])?;
    let note = best(&known);
    Some(frame.finish(&name(profile, &format!("bandwidth {}", kind.word()), level), note.clone(), &note))
}

/// The highest median, and from which size on half of it is reached.
fn best(known: &[(&Point, Bandwidth)]) -> String {
    let median = |k: &(&Point, Bandwidth)| k.1.p50_bytes_per_s;
    let Some(best) = known.iter().max_by(|a, b| median(a).total_cmp(&median(b))) else { return String::new() };
    let half = known.iter().find(|k| median(k) >= 0.5 * median(best)).unwrap_or(best);
    format!(
        "The highest median is {} at {}; half of it is reached at {}.",
        units::rate(median(best)),
        units::size(best.0.size_bytes),
        units::size(half.0.size_bytes)
    )
}

/// All that is known of a bandwidth:
/// `64 KiB: 118 MB/s, from 80 MB/s (p1) to 121 MB/s (p99), 110 MB/s over all`.
fn words(point: &Point, b: &Bandwidth) -> String {
    let range = if point.knows_p99() {
        format!(", from {} (p1) to {} (p99)", units::rate(b.p1_bytes_per_s), units::rate(b.p99_bytes_per_s))
    } else {
        String::new()
    };
    format!(
        "{}: median {}{range}, {} over all",
        units::size(point.size_bytes),
        units::rate(b.p50_bytes_per_s),
        units::rate(b.mean_bytes_per_s)
    )
}
