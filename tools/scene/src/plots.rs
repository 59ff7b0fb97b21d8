//! Drawings of a page: speed-up with its band, distributions of run times, processor time by cause.

use weir_report::frame::{Entry, Frame, MARKS, Margins, Mark, Panel, Plot, mark};
use weir_report::scale::{Kind, Scale, Tick};
use weir_report::svg::Path;
use weir_report::units;

use crate::{Point, Scene};

const MARGINS: Margins = Margins { left: 68.0, right: 20.0 };
const HEIGHT: f64 = 220.0;

fn time(seconds: f64) -> String {
    units::time(seconds * 1e9)
}

/// `1 process`, `2 processes`.
#[must_use]
pub fn processes(n: u32) -> String {
    if n == 1 { "1 process".into() } else { format!("{n} processes") }
}

/// Ticks at the numbers of processes that were predicted.
fn counts(points: &[Point], scale: &Scale) -> Vec<Tick> {
    points.iter().map(|p| Tick { at: scale.at(f64::from(p.numprocs)), text: p.numprocs.to_string() }).collect()
}

/// Many doublings are drawn as such.
fn kind(points: &[Point]) -> Kind {
    let (first, last) = (points.first().map_or(1, |p| p.numprocs), points.last().map_or(1, |p| p.numprocs));
    if last / first.max(1) > 4 { Kind::Log } else { Kind::Linear }
}

fn across(points: &[Point], frame: &Frame) -> Scale {
    let (first, last) = (points.first().map_or(1, |p| p.numprocs), points.last().map_or(1, |p| p.numprocs));
    Scale::new(kind(points), f64::from(first), f64::from(last), frame.left + 20.0, frame.right - 20.0)
}

/// A line with a band around it and a mark at each point: values as (median, low, high).
fn banded(
    frame: &mut Frame,
    x: &Scale,
    y: &Scale,
    points: &[Point],
    values: &[(f64, f64, f64)],
    words: &dyn Fn(f64) -> String,
) {
    let at = |p: &Point| x.at(f64::from(p.numprocs));
    let upper = points.iter().zip(values).map(|(p, v)| (at(p), y.at(v.2)));
    let lower = points.iter().zip(values).rev().map(|(p, v)| (at(p), y.at(v.1)));
    let mut band = Path::through(&upper.chain(lower).collect::<Vec<_>>());
    band.close();
    frame.canvas.path("band f0", &band);
    let line: Vec<(f64, f64)> = points.iter().zip(values).map(|(p, v)| (at(p), y.at(v.0))).collect();
    frame.canvas.path("line c0", &Path::through(&line));
    for ((point, value), &(px, py)) in points.iter().zip(values).zip(&line) {
        let mut sign = Path::new();
        mark(&mut sign, Mark::Disc, px, py);
        frame.canvas.path("f0", &sign);
        let (low, high) = (y.at(value.1), y.at(value.2));
        frame.canvas.line("thin c0", (px, low), (px, high));
        let text =
            format!("{}: {} ({} to {})", processes(point.numprocs), words(value.0), words(value.1), words(value.2));
        frame.canvas.hint(px, py, &text);
    }
}

/// How much faster more processes are.
pub fn speedup(scene: &Scene) -> Option<Plot> {
    let points = &scene.points;
    let (least, work_s) = scene.work().filter(|_| points.len() > 1)?;
    let by = |seconds: f64| if seconds > 0.0 && seconds.is_finite() { work_s / seconds } else { 0.0 };
    let values: Vec<(f64, f64, f64)> = points.iter().map(|p| (by(p.median_s), by(p.high_s), by(p.low_s))).collect();
    let explanation = if least == 1 {
        "Median run time of one process divided by that of more, with the 95 % band of runs. The dashed line is a program that loses nothing.".to_owned()
    } else {
        format!(
            "What {least} processes compute together, divided by the median run time, with the 95 % band of runs. The dashed line is a program that loses nothing."
        )
    };
    let mut frame = Frame::new("Speed-up", &explanation, HEIGHT, MARGINS);
    let x = across(points, &frame);
    let (first, last) = (f64::from(points.first()?.numprocs), f64::from(points.last()?.numprocs));
    let most = values.iter().map(|v| v.2).fold(first, f64::max) * 1.1;
    let least = values.iter().map(|v| v.1).filter(|v| *v > 0.0).fold(first, f64::min) / 1.1;
    // Both axes alike: a program that loses nothing is a straight line.
    let y =
        Scale::new(kind(points), if kind(points) == Kind::Log { least } else { 0.0 }, most, frame.bottom, frame.top);
    frame.x_axis(&counts(points, &x), "processes");
    frame.y_axis(&y.ticks(6, units::number), "speed-up");
    let last = last.min(most);
    frame.canvas.line("line c6 dash", (x.at(first), y.at(first)), (x.at(last), y.at(last)));
    banded(&mut frame, &x, &y, points, &values, &units::number);
    let description =
        points.iter().zip(&values).map(|(p, v)| format!("{}: {}", processes(p.numprocs), units::number(v.0)));
    Some(frame.finish("speed-up", description.collect::<Vec<_>>().join("; "), ""))
}

/// Run times themselves.
pub fn run_time(scene: &Scene) -> Option<Plot> {
    let points = &scene.points;
    if points.is_empty() {
        return None;
    }
    let values: Vec<(f64, f64, f64)> = points.iter().map(|p| (p.median_s, p.low_s, p.high_s)).collect();
    let mut frame = Frame::new("Run time", "Median of the predicted runs with their 95 % band.", HEIGHT, MARGINS);
    let x = across(points, &frame);
    let most = values.iter().map(|v| v.2).fold(0.0, f64::max) * 1.1e9;
    let y = Scale::new(Kind::Linear, 0.0, most, frame.bottom, frame.top);
    frame.x_axis(&counts(points, &x), "processes");
    frame.y_axis(&y.ticks(6, units::time), "time");
    let in_ns: Vec<(f64, f64, f64)> = values.iter().map(|v| (v.0 * 1e9, v.1 * 1e9, v.2 * 1e9)).collect();
    banded(&mut frame, &x, &y, points, &in_ns, &units::time);
    let description = points.iter().map(|p| format!("{}: {}", processes(p.numprocs), time(p.median_s)));
    Some(frame.finish("run-time", description.collect::<Vec<_>>().join("; "), ""))
}

/// Bars of a histogram that tells something: none for fewer runs.
const LEAST_RUNS: usize = 5;
/// Panels that fit a page.
const MOST_PANELS: usize = 12;

/// How run times are spread, a panel for each number of processes.
pub fn distribution(scene: &Scene) -> Option<Plot> {
    let all: Vec<&Point> = scene.points.iter().filter(|p| p.times_s.len() >= LEAST_RUNS).collect();
    let points: Vec<&Point> = all.iter().copied().take(MOST_PANELS).collect();
    if points.is_empty() {
        return None;
    }
    let explanation =
        "How often which run time was predicted, by number of processes; each panel has its own axis of times.";
    let mut frame = Frame::new("Distribution of run times", explanation, 0.0, Margins { left: 14.0, right: 14.0 });
    let (panels, taken) = Panel::grid(&frame, points.len(), 2.min(points.len()), 90.0, 8.0);
    frame.grow(taken);
    for (panel, point) in panels.iter().zip(&points) {
        let heading = processes(point.numprocs);
        let more = format!("{}, 95 %: {}", time(point.median_s), units::range(point.low_s * 1e9, point.high_s * 1e9));
        panel.heading(&mut frame.canvas, &heading, &more);
        histogram(&mut frame, panel, point);
    }
    let note = if points.len() < all.len() {
        format!("The first {} of {} numbers of processes.", points.len(), all.len())
    } else {
        String::new()
    };
    let description = points
        .iter()
        .map(|p| format!("{}: {} runs, median {}", processes(p.numprocs), p.times_s.len(), time(p.median_s)));
    let description = description.collect::<Vec<_>>().join("; ");
    Some(frame.finish("distribution", description, &note))
}

fn histogram(frame: &mut Frame, panel: &Panel, point: &Point) {
    let low = point.times_s.iter().copied().fold(f64::INFINITY, f64::min) * 1e9;
    let high = point.times_s.iter().copied().fold(0.0, f64::max) * 1e9;
    let x = Scale::new(Kind::Linear, low, high, panel.left, panel.right);
    panel.x_ticks(&mut frame.canvas, &x.ticks(3, units::time));
    let bins = (point.times_s.len() as f64).sqrt().ceil().clamp(5.0, 30.0) as usize;
    let mut heights = vec![0u32; bins];
    for t in &point.times_s {
        let bin = (x.part(t * 1e9) * bins as f64) as usize;
        heights[bin.min(bins - 1)] += 1;
    }
    let most = heights.iter().copied().max().unwrap_or(1).max(1);
    let width = (panel.right - panel.left) / bins as f64;
    for (i, height) in heights.iter().enumerate().filter(|(_, h)| **h > 0) {
        let tall = f64::from(*height) / f64::from(most) * (panel.bottom - panel.top - 4.0);
        let left = panel.left + i as f64 * width;
        frame.canvas.rect("f0", left + 0.5, panel.bottom - tall, (width - 1.0).max(0.5), tall);
        let from = x.value_at(i as f64 / bins as f64);
        let text = format!(
            "{}: {height} of {} runs from {} on",
            processes(point.numprocs),
            point.times_s.len(),
            units::time(from)
        );
        frame.canvas.hint(left + width / 2.0, panel.bottom - tall, &text);
    }
}

/// The class of a cause's area: computation stands out, the others take colours in turn.
pub fn colour(cause: usize) -> String {
    format!("f{}", CAUSE_COLOURS.get(cause).copied().unwrap_or(6))
}

/// Colours 7 and 8 are the page's own.
const CAUSE_COLOURS: [usize; 9] = [6, 4, 3, 0, 2, 1, 7, 5, 8];

/// Where the processors' time goes, stacked.
pub fn causes(scene: &Scene) -> Option<Plot> {
    let points: Vec<&Point> = scene.points.iter().filter(|p| p.causes.iter().map(|c| c.1).sum::<f64>() > 0.0).collect();
    let names: Vec<&str> = points.first()?.causes.iter().map(|(name, _)| name.as_str()).collect();
    let explanation =
        "Share of all processes' time by what it went to, on average over the runs. What is not computation is lost.";
    let mut frame = Frame::new("Where the time goes", explanation, HEIGHT, Margins { left: 68.0, right: 20.0 });
    let shares: Vec<Vec<f64>> = points.iter().map(|p| shares(p, &names)).collect();
    let used = |i: usize| shares.iter().any(|s| s[i] > 0.0);
    let entries: Vec<Entry> =
        (0..names.len()).filter(|i| used(*i)).map(|i| Entry::mark(MARKS[1], &colour(i), names[i])).collect();
    frame.legend(&entries);
    let y = Scale::new(Kind::Linear, 0.0, 100.0, frame.bottom, frame.top);
    frame.y_axis(&y.ticks(5, |v| format!("{v:.0} %")), "processor time");
    let pitch = (frame.right - frame.left) / points.len() as f64;
    let width = (pitch * 0.7).min(60.0);
    let middle = |i: usize| frame.left + (i as f64 + 0.5) * pitch;
    let middles: Vec<f64> = (0..points.len()).map(middle).collect();
    let ticks = points.iter().zip(&middles).map(|(p, at)| Tick { at: *at, text: p.numprocs.to_string() });
    frame.x_axis(&ticks.collect::<Vec<_>>(), "processes");
    for ((point, shares), &middle) in points.iter().zip(&shares).zip(&middles) {
        let mut from = 0.0;
        for (cause, share) in shares.iter().enumerate().filter(|(_, s)| **s > 0.0) {
            let (bottom, top) = (y.at(from * 100.0), y.at((from + share) * 100.0));
            frame.canvas.rect(&colour(cause), middle - width / 2.0, top, width, bottom - top);
            let text = format!("{}: {} {:.1} %", processes(point.numprocs), names[cause], share * 100.0);
            frame.canvas.hint(middle, f64::midpoint(top, bottom), &text);
            from += share;
        }
    }
    let description = points.iter().zip(&shares).map(|(p, s)| {
        let parts = names.iter().zip(s).filter(|(_, s)| **s > 0.0).map(|(n, s)| format!("{n} {:.1} %", s * 100.0));
        format!("{}: {}", processes(p.numprocs), parts.collect::<Vec<_>>().join(", "))
    });
    Some(frame.finish("causes", description.collect::<Vec<_>>().join("; "), ""))
}

/// Shares of the named causes, 0 where a point has none of that name.
fn shares(point: &Point, names: &[&str]) -> Vec<f64> {
    let of = |name: &str| point.causes.iter().find(|(n, _)| n == name).map_or(0.0, |(_, s)| s.max(0.0));
    let all: f64 = names.iter().map(|n| of(n)).sum();
    names.iter().map(|n| if all > 0.0 { of(n) / all } else { 0.0 }).collect()
}
