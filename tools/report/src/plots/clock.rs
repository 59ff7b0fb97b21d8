//! How good the clocks were over the run, and how far apart processes started.

use crate::digest::{Digest, Period};
use crate::frame::{Entry, Frame, Margins, Mark, Plot};
use crate::plots::strays::TimeLine;
use crate::scale::{Kind, Scale};
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 74.0, right: 20.0 };
/// Most cells drawn one by one; of more, equal parts of the time line are.
const MOST: usize = 600;

/// Error bound of durations and skew of starts over time; nothing if no cell says when it ran.
#[must_use]
pub fn clock(digest: &Digest) -> Option<Plot> {
    if digest.periods.is_empty() {
        return None;
    }
    let line = TimeLine::new(&digest.periods, std::iter::empty());
    let title = "Clock error and skew of starts over the run";
    let explanation = "For each cell the largest bound on a duration's error that is due to the clocks; how far apart processes started (from the median to the 99th percentile over repetitions); and the error bound after each synchronisation of the clocks.";
    let mut frame = Frame::new(title, explanation, 220.0, MARGINS);
    let periods = thinned(&digest.periods);
    let resyncs: Vec<(u32, i64, f64)> = digest
        .run
        .launches
        .iter()
        .flat_map(|l| l.clock.iter().flat_map(move |c| c.resyncs.iter().map(move |r| (l.number, r.at_ns, r.error_ns))))
        .filter(|r| r.2.is_finite() && r.2 >= 0.0)
        .collect();
    frame.legend(&entries(&periods, !resyncs.is_empty()));
    let values = || {
        let errors = periods.iter().map(|s| s.error_ns.0).chain(resyncs.iter().map(|r| r.2));
        errors
            .chain(periods.iter().filter_map(|s| s.skew_ns).flat_map(|s| [Some(s.0), s.1]).flatten())
            .filter(|v| v.is_finite() && *v > 0.0)
    };
    // On a logarithmic axis nothing is at 0: what is exact lies on its lower edge, and the note
    // says so.
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let (low, high) = if low.is_finite() { (low, high) } else { (1.0, 1000.0) };
    let height = Scale::new(Kind::Log, low / 2.0, high * 1.5, frame.bottom, frame.top);
    let scale = line.scale(frame.left, frame.right);
    frame.x_axis(&scale.ticks(7, units::time), &line.label());
    frame.y_axis(&height.ticks(6, units::time), "bound, skew");
    line.borders(&mut frame, &scale);
    let (mut errors, mut skews) = (Path::new(), Path::new());
    for period in &periods {
        let (from, to) =
            (scale.at(line.at(period.launch, period.from_ns)), scale.at(line.at(period.launch, period.to_ns)));
        let y = height.at(period.error_ns.0);
        errors.to(from, y).across((to - from).max(1.5));
        if let Some((median, p99)) = period.skew_ns {
            let x = f64::midpoint(from, to);
            skews.to(x - 1.5, height.at(median)).across(3.0);
            if let Some(p99) = p99 {
                skews.to(x, height.at(median)).line(x, height.at(p99));
            }
        }
        let skew = period
            .skew_ns
            .map_or_else(String::new, |s| format!("; starts {} apart{}", units::time(s.0), p99_words(s.1)));
        let text = format!("clock error at most {}{skew}", units::time(period.error_ns.0));
        frame.canvas.hint(f64::midpoint(from, to), y, &text);
    }
    frame.canvas.path("thin c4", &skews);
    frame.canvas.path("line c0", &errors);
    let mut marks = Path::new();
    for &(launch, at, error) in &resyncs {
        crate::frame::mark(&mut marks, Mark::Triangle, scale.at(line.at(launch, at)), height.at(error));
    }
    frame.canvas.path("f1", &marks);
    let worst = periods.iter().map(|s| s.error_ns.0).fold(0.0, f64::max);
    let exact = if periods.iter().any(|s| s.error_ns.0 <= 0.0) {
        " Cells at the lower edge have no clock error: both ends were read from one clock."
    } else {
        ""
    };
    let description = if worst > 0.0 {
        format!(
            "{}; a sample is off by at most {}.",
            units::plural(digest.periods.len() as u64, "cell"),
            units::time(worst)
        )
    } else {
        format!(
            "{}; no sample depends on how well the clocks agree.",
            units::plural(digest.periods.len() as u64, "cell")
        )
    };
    let note = format!("{description}{exact}");
    Some(frame.finish("clock", description, &note))
}

fn p99_words(p99: Option<f64>) -> String {
    p99.map_or_else(String::new, |p99| format!(", p99 {}", units::time(p99)))
}

/// What the marks are; only those that are there.
fn entries(periods: &[Period], resyncs: bool) -> Vec<Entry> {
    let mut out = vec![Entry::line("line c0", "error bound of a cell")];
    let skews = || periods.iter().filter_map(|s| s.skew_ns);
    if skews().next().is_some() {
        let to = if skews().any(|s| s.1.is_some()) { ", median to p99" } else { ", median" };
        out.push(Entry::line("line c4", &format!("skew of starts{to}")));
    }
    if resyncs {
        out.push(Entry::mark(Mark::Triangle, "f1", "error bound after a synchronisation"));
    }
    out
}

/// At most [`MOST`] periods: neighbours of a launch are joined, the worst of each counts.
fn thinned(periods: &[Period]) -> Vec<Period> {
    let join = periods.len().div_ceil(MOST).max(1);
    let mut out: Vec<Period> = Vec::new();
    for (i, period) in periods.iter().enumerate() {
        match out.last_mut() {
            Some(last) if i % join != 0 && last.launch == period.launch => {
                last.to_ns = last.to_ns.max(period.to_ns);
                last.error_ns.0 = last.error_ns.0.max(period.error_ns.0);
                last.skew_ns = match (last.skew_ns, period.skew_ns) {
                    // An unknown percentile is less than any known one.
                    (Some(a), Some(b)) => Some((a.0.max(b.0), if a.1 > b.1 { a.1 } else { b.1 })),
                    (a, b) => a.or(b),
                };
            }
            _ => out.push(*period),
        }
    }
    out
}
