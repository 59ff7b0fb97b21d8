//! The supersteps of a run.

use weir_report::frame::{Entry, Frame, MARKS, Mark, Plot, mark};
use weir_report::scale::{Kind, Scale, Tick};
use weir_report::svg::{Anchor, Path};
use weir_report::units;

use super::{HEIGHT, MARGINS, SERIES_MAX, area_class};
use crate::estimate::Costs;
use crate::ledger::{Profile, Step};
use crate::summary::Summary;

/// Bars of a profile: more are not seen on a page; supersteps that follow each other then share
/// one.
const BARS_MAX: usize = 1500;
/// Points of a drawing that compares.
const POINTS_MAX: usize = 2000;
/// Rows of a drawing by line of the program.
const ROWS_MAX: usize = 24;

/// Supersteps that follow each other, drawn as one. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Bar {
    first: usize,
    count: usize,
    place: u32,
    work_ns: f64,
    work_mean_ns: f64,
    cost_ns: f64,
    out_bytes: u64,
    in_bytes: u64,
}

fn bars(profile: &Profile) -> Vec<Bar> {
    let each = profile.steps.len().div_ceil(BARS_MAX).max(1);
    let joined = profile.steps.chunks(each).enumerate().map(|(nth, steps)| {
        // Named after the one that took longest.
        let costliest = steps.iter().max_by_key(|step| step.span_max_ns).copied().unwrap_or_default();
        let sum = |of: &dyn Fn(&Step) -> u64| steps.iter().map(|step| of(step) as f64).sum::<f64>();
        Bar {
            first: nth * each,
            count: steps.len(),
            place: costliest.place,
            work_ns: sum(&|step| step.work_max_ns),
            work_mean_ns: sum(&|step| step.work_sum_ns) / f64::from(profile.processes.max(1)),
            cost_ns: sum(&Step::cost_ns),
            out_bytes: steps.iter().map(|step| step.out_max_bytes).max().unwrap_or(0),
            in_bytes: steps.iter().map(|step| step.in_max_bytes).max().unwrap_or(0),
        }
    });
    joined.collect()
}

/// Places by their time, the most first, with the series that each is drawn as; beyond the greatest
/// they share the last one.
fn series(profile: &Profile) -> Vec<usize> {
    let mut spans = vec![0u64; profile.places.len()];
    for step in &profile.steps {
        if let Some(sum) = spans.get_mut(step.place as usize) {
            *sum = sum.saturating_add(step.span_max_ns);
        }
    }
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|place| (std::cmp::Reverse(spans[*place]), *place));
    let mut out = vec![0; spans.len()];
    order.into_iter().enumerate().for_each(|(nth, place)| out[place] = nth.min(SERIES_MAX - 2));
    out
}

/// The superstep profile: bars of communication in the order of time, gaps of computation between
/// them.
pub fn profile(profile: &Profile) -> Plot {
    const NAME: &str = "superstep-profile";
    const TITLE: &str = "Superstep profile";
    let bars = bars(profile);
    let end: f64 = bars.iter().map(|bar| bar.work_ns + bar.cost_ns).sum();
    if !(end > 0.0 && end.is_finite()) {
        return Frame::empty(NAME, TITLE, "No superstep took any time.");
    }
    let explanation = "Communication in the order of time: each bar is as wide as a superstep communicated, and as high as the most bytes that a process sent (above) and got (below). Gaps are as wide as the longest computation. Colours are lines of the program.";
    let mut frame = Frame::new(TITLE, explanation, HEIGHT, MARGINS);
    let series = series(profile);
    frame.legend(&legend(profile, &series));
    let x = Scale::new(Kind::Linear, 0.0, end, frame.left, frame.right);
    let most = bars.iter().map(|bar| bar.out_bytes.max(bar.in_bytes)).max().unwrap_or(0).max(1) as f64;
    let middle = f64::midpoint(frame.top, frame.bottom);
    let up = Scale::new(Kind::Linear, 0.0, most, middle, frame.top);
    let down = Scale::new(Kind::Linear, 0.0, most, middle, frame.bottom);
    frame.x_axis(&x.ticks(6, units::time), "time");
    let mut ticks: Vec<Tick> = up.ticks(3, bytes);
    ticks.extend(down.ticks(3, bytes).into_iter().filter(|tick| tick.at > middle + 1.0));
    frame.y_axis(&ticks, "bytes in | out");
    let mut begun = 0.0;
    for bar in &bars {
        begun += bar.work_ns;
        let (left, right) = (x.at(begun), x.at(begun + bar.cost_ns));
        let class = area_class(series.get(bar.place as usize).copied().unwrap_or(0));
        // What is without bytes is seen all the same: all meet.
        let (top, bottom) =
            (up.at(bar.out_bytes as f64).min(middle - 1.0), down.at(bar.in_bytes as f64).max(middle + 1.0));
        frame.canvas.rect(&class, left, top, (right - left).max(0.4), bottom - top);
        frame.canvas.hint(f64::midpoint(left, right), top, &words(profile, bar));
        begun += bar.cost_ns;
    }
    frame.canvas.line("axis", (frame.left, middle), (frame.right, middle));
    let each = bars.first().map_or(1, |bar| bar.count);
    let note = if each > 1 {
        format!("Each bar is {each} supersteps, as high as the highest of them.")
    } else {
        String::new()
    };
    let description = format!(
        "{} supersteps in {}, at most {} sent and got by a process",
        profile.steps.len(),
        units::time(end),
        units::size(most as u64)
    );
    frame.finish(NAME, description, &note)
}

/// Bytes on an axis, whose ticks are round in decimal units.
fn bytes(value: f64) -> String {
    units::rate(value).trim_end_matches("/s").to_owned()
}

fn place(profile: &Profile, number: u32) -> String {
    let text = profile.places.get(number as usize).map_or("?", String::as_str);
    if text.is_empty() { "?".into() } else { text.to_owned() }
}

fn words(profile: &Profile, bar: &Bar) -> String {
    let numbers = match bar.count {
        1 => format!("superstep {}", bar.first),
        count => format!("supersteps {} to {}", bar.first, bar.first + count - 1),
    };
    let balance = if bar.work_ns > 0.0 { 100.0 * bar.work_mean_ns / bar.work_ns } else { 100.0 };
    format!(
        "{}, {numbers}: computing {} (balance {balance:.0} %), communicating {}, {} out, {} in",
        place(profile, bar.place),
        units::time(bar.work_ns),
        units::time(bar.cost_ns),
        units::size(bar.out_bytes),
        units::size(bar.in_bytes)
    )
}

fn legend(profile: &Profile, series: &[usize]) -> Vec<Entry> {
    let mut used = vec![false; profile.places.len()];
    for step in &profile.steps {
        if let Some(used) = used.get_mut(step.place as usize) {
            *used = true;
        }
    }
    let mut named: Vec<(usize, String)> = Vec::new();
    for (number, nth) in series.iter().enumerate().filter(|(number, _)| used[*number]) {
        match named.iter_mut().find(|(known, _)| known == nth) {
            Some((_, text)) => "others".clone_into(text),
            None => named.push((*nth, place(profile, number as u32))),
        }
    }
    named.sort();
    named.into_iter().map(|(nth, text)| Entry::mark(MARKS[1], &area_class(nth), &text)).collect()
}

/// Where the time of supersteps goes, by line of the program.
pub fn shares(summary: &Summary) -> Plot {
    let explanation = "Time of the supersteps that a line of the program ended: what processes computed on average, what more the slowest computed (imbalance), and the rest, communication and synchronisation.";
    let rows: Vec<_> = summary.rows.iter().take(ROWS_MAX).collect();
    let mut frame = Frame::new(
        "Where the time goes",
        explanation,
        24.0 * rows.len().max(1) as f64,
        super::Margins { left: 140.0, right: 20.0 },
    );
    let kinds = [("computing", 0), ("imbalance", 4), ("communicating", 1)];
    frame.legend(&kinds.map(|(name, class)| Entry::mark(MARKS[1], &area_class(class), name)));
    let most = rows.iter().map(|row| row.span_ns as f64).fold(1.0, f64::max);
    let x = Scale::new(Kind::Linear, 0.0, most, frame.left, frame.right);
    frame.x_axis(&x.ticks(5, units::time), "time");
    let mut told = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        let top = frame.top + 24.0 * nth as f64 + 4.0;
        let work_ns = row.work_mean_ns.min(row.work_ns as f64);
        let parts = [work_ns, row.work_ns as f64 - work_ns, row.cost_ns as f64];
        frame.canvas.text("small", frame.left - 7.0, top + 12.0, Anchor::End, &row.place);
        let mut from = 0.0;
        for ((name, class), part) in kinds.iter().zip(parts).filter(|(_, part)| *part > 0.0) {
            let (left, right) = (x.at(from), x.at(from + part));
            frame.canvas.rect(&area_class(*class), left, top, (right - left).max(0.3), 16.0);
            frame.canvas.hint(
                f64::midpoint(left, right),
                top + 8.0,
                &format!("{}: {name} {}", row.place, units::time(part)),
            );
            from += part;
        }
        told.push(format!("{}: {}", row.place, units::time(row.span_ns as f64)));
    }
    let left_out = summary.rows.len() - rows.len();
    let note = if left_out > 0 { format!("{left_out} lines with less time are left out.") } else { String::new() };
    frame.finish("shares", told.join("; "), &note)
}

/// What the parameters predict of each superstep, against what it took.
pub fn predicted(profile: &Profile, costs: &Costs) -> Plot {
    let explanation = "Each superstep: w + h g + l against the time it took. On the line both are the same; above it a superstep took longer than predicted.";
    let mut frame = Frame::new("Predicted and measured", explanation, HEIGHT + 60.0, MARGINS);
    let series = series(profile);
    frame.legend(&legend(profile, &series));
    let every = profile.steps.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<(usize, f64, f64)> = profile
        .steps
        .iter()
        .enumerate()
        .step_by(every)
        .map(|(nth, step)| (nth, costs.superstep_ns(step.work_max_ns, step.h_bytes()), step.span_max_ns as f64))
        .filter(|(_, predicted, measured)| *predicted > 0.0 && *measured > 0.0)
        .collect();
    let values = || points.iter().flat_map(|point| [point.1, point.2]);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let x = Scale::new(Kind::Log, low, high, frame.left, frame.right);
    let y = Scale::new(Kind::Log, low, high, frame.bottom, frame.top);
    frame.x_axis(&x.ticks(6, units::time), "predicted");
    frame.y_axis(&y.ticks(6, units::time), "measured");
    let (from, to) = x.range();
    frame.canvas.line("line c6 dash", (x.at(from), y.at(from)), (x.at(to), y.at(to)));
    for (nth, predicted, measured) in &points {
        let step = &profile.steps[*nth];
        let class = series.get(step.place as usize).copied().unwrap_or(0);
        let mut sign = Path::new();
        mark(&mut sign, Mark::Disc, x.at(*predicted), y.at(*measured));
        frame.canvas.path(&area_class(class), &sign);
        let text = format!(
            "{}, superstep {nth}: predicted {}, measured {}",
            profile.place(step),
            units::time(*predicted),
            units::time(*measured)
        );
        frame.canvas.hint(x.at(*predicted), y.at(*measured), &text);
    }
    let note = if every > 1 { format!("Every {every}th superstep.") } else { String::new() };
    frame.finish("predicted", format!("{} supersteps", points.len()), &note)
}
