//! What is printed: tables for people, JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_predict::{ByCause, Cause};

use crate::input::Text;
use crate::sweep::{Prediction, Row};
use crate::whatif::WhatIf;

/// A cause gets a column if it takes at least this share at some count.
const LEAST_SHARE: f64 = 0.0005;

/// A duration with six digits and a unit that fits.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => return "0 s".to_owned(),
        s if s >= 1.0 => (seconds, "s"),
        s if s >= 1e-3 => (seconds * 1e3, "ms"),
        s if s >= 1e-6 => (seconds * 1e6, "us"),
        _ => (seconds * 1e9, "ns"),
    };
    let before = if value.abs() >= 1.0 { value.abs().log10().floor() as i32 + 1 } else { 1 };
    let digits = usize::try_from((6 - before).max(0)).unwrap_or(0);
    format!("{value:.digits$} {unit}")
}

/// The computation that speed-ups are against: of the smallest count, in seconds.
fn work(all: &[&Prediction]) -> Option<(u32, f64)> {
    let least = all.iter().min_by_key(|p| p.numprocs)?;
    if least.numprocs == 1 {
        return Some((1, least.summary.median_s)).filter(|(_, s)| *s > 0.0);
    }
    let computed = least.median().losses.total().of(Cause::Computation).seconds();
    Some((least.numprocs, computed)).filter(|(_, s)| *s > 0.0)
}

/// The table of all counts, those without a prediction among them.
pub fn as_text(rows: &[Row]) -> String {
    let all: Vec<&Prediction> = rows.iter().flatten().collect();
    let shares: Vec<Vec<(Cause, f64)>> =
        all.iter().map(|p| Cause::ALL.into_iter().map(|cause| (cause, p.median().share(cause))).collect()).collect();
    let shown: Vec<usize> =
        (0..Cause::ALL.len()).filter(|at| shares.iter().any(|row| row[*at].1 >= LEAST_SHARE)).collect();
    let banded = all.iter().any(|p| p.outcomes.len() > 1);
    let base = work(&all);
    let mut head = vec!["processes".to_owned(), "median".to_owned()];
    if banded {
        head.extend(["low".to_owned(), "high".to_owned()]);
    }
    if base.is_some() {
        head.push("speed-up".to_owned());
    }
    head.extend(shown.iter().map(|at| Cause::ALL[*at].name().to_owned()));
    if let Some(first) = all.first() {
        head.extend(first.changed.iter().map(|(change, _)| change.to_string()));
    }
    let columns = head.len();
    let mut cells = vec![head];
    let mut shares = shares.iter();
    for row in rows {
        let prediction = match row {
            Ok(prediction) => prediction,
            Err(not) => {
                let mut row = vec![not.numprocs.to_string(), not.reason.name().to_owned()];
                row.resize(columns, "-".to_owned());
                cells.push(row);
                continue;
            }
        };
        let Some(shares) = shares.next() else { continue };
        let summary = &prediction.summary;
        let mut row = vec![prediction.numprocs.to_string(), duration(summary.median_s)];
        if banded {
            row.extend([duration(summary.band_s.0), duration(summary.band_s.1)]);
        }
        if let Some((_, work)) = base {
            row.push(if summary.median_s > 0.0 { format!("{:.2}", work / summary.median_s) } else { "-".to_owned() });
        }
        row.extend(shown.iter().map(|at| format!("{:.1} %", shares[*at].1 * 100.0)));
        row.extend(prediction.changed.iter().map(|(_, s)| if s.is_nan() { "no end".to_owned() } else { duration(*s) }));
        cells.push(row);
    }
    let mut out = aligned(&cells);
    if let Some((numprocs, _)) = base.filter(|(n, _)| *n > 1) {
        let _ = writeln!(out, "\nSpeed-up is against what the {numprocs} processes compute together.");
    }
    if shown.iter().any(|at| Cause::ALL[*at] == Cause::Contention) {
        let asked = all.first().is_some_and(|p| p.changed.iter().any(|(change, _)| *change == WhatIf::NoContention));
        let _ = writeln!(out, "\n{SCATTER}{}", if asked { " no-contention leaves the scatter." } else { "" });
    }
    out
}

/// What contention is where nobody else is there: the account knows no cause of scatter.
const SCATTER: &str = "Contention is what messages take longer than the fastest of their size alone: as others are under way, and as times scatter.";

/// Rows with their columns under each other, to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(out, "{}", cells.join("  "));
    }
    out
}

/// A line of the source: file and number.
pub type Line = (u32, u32);

/// What is lost at each line of the source in the median run, most first.
pub fn lost_by_line(prediction: &Prediction) -> Vec<(Line, ByCause)> {
    let mut by_line: BTreeMap<Line, ByCause> = BTreeMap::new();
    for (op, lost) in prediction.model.ops.iter().zip(&prediction.median().losses.by_op) {
        by_line.entry((op.place.file, op.place.line)).or_default().add(lost);
    }
    let mut all: Vec<(Line, ByCause)> = by_line.into_iter().filter(|(_, lost)| lost.lost().seconds() > 0.0).collect();
    all.sort_by_key(|(line, lost)| (std::cmp::Reverse(lost.lost()), *line));
    all
}

/// Where a line stands, and what it says.
pub fn line_text((file, line): Line, texts: &[Text]) -> (String, &str) {
    let text = texts.get(file as usize);
    let said = text.and_then(|t| t.text.lines().nth((line as usize).saturating_sub(1))).unwrap_or("");
    let said = said.trim().trim_start_matches("//").trim();
    (format!("{}:{line}", text.map_or("", |t| t.name.as_str())), said)
}

/// The source lines where most is lost, of the median run of one count.
pub fn lines(prediction: &Prediction, texts: &[Text], most: usize) -> String {
    let all = lost_by_line(prediction);
    let median = prediction.median();
    let whole = median.time.seconds() * f64::from(prediction.numprocs);
    if all.is_empty() || most == 0 || whole <= 0.0 {
        return String::new();
    }
    let mut rows = Vec::new();
    for (line, lost) in all.iter().take(most) {
        let (place, said) = line_text(*line, texts);
        let main = lost.iter().filter(|(cause, _)| *cause != Cause::Computation).max_by_key(|(_, time)| *time);
        let share = lost.lost().seconds() / whole * 100.0;
        rows.push(format!("{share:>6.1} %  {place}  {said} ({})", main.map_or("", |(cause, _)| cause.name())));
    }
    format!("\nMost is lost here, with {}:\n{}\n", weir_scene::processes(prediction.numprocs), rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_six_digits() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (1.0, "1.00000 s"),
            (12345.678, "12345.7 s"),
            (0.000_150_24, "150.240 us"),
            (0.0123, "12.3000 ms"),
            (5e-9, "5.00000 ns"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
