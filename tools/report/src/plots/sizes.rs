//! Minimum, median and 99th percentile against size (or against level, where there is one size),
//! with all samples behind.

use super::parts::{Detail, name, setting, stretches, title, words};
use crate::curve::common_scale;
use crate::digest::{Point, Profile};
use crate::frame::{Frame, Margins, Mark, Plot, mark};
use crate::reading::ENOUGH;
use crate::scale::{Kind, Scale, Sizes, Tick};
use crate::style::SHADE_COUNT;
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 74.0, right: 76.0 };
const HEIGHT: f64 = 240.0;
/// Widest column of density.
const WIDEST: f64 = 24.0;

/// A point with its place along the horizontal axis.
struct Column<'a> {
    at: f64,
    label: String,
    point: &'a Point,
}

/// Time against size at one level.
#[must_use]
pub fn against_size(profile: &Profile, level: usize, kind: Kind, detail: &Detail) -> Plot {
    let points: Vec<&Point> = profile.at_level(level).collect();
    let sizes: Vec<u64> = points.iter().map(|p| p.size_bytes).collect();
    let axis = Sizes::new(&sizes, MARGINS.left + 16.0, crate::frame::WIDTH - MARGINS.right - 16.0);
    let columns: Vec<Column> =
        points.into_iter().map(|point| Column { at: axis.at(point.size_bytes), label: String::new(), point }).collect();
    let name = name(profile, &format!("time {}", kind.word()), level);
    let sheet = Sheet {
        name,
        title: title(profile, "time against size"),
        setting: setting(profile, level),
        label: "message size".to_owned(),
    };
    draw(&sheet, &columns, &axis.ticks(9), axis.pitch(), kind, detail)
}

/// Time against level, for operations of one size, such as a barrier.
#[must_use]
pub fn against_level(profile: &Profile, kind: Kind, detail: &Detail) -> Plot {
    let size = profile.sizes.first().copied().unwrap_or(0);
    let n = profile.levels.len().max(1) as f64;
    let (from, to) = (MARGINS.left, crate::frame::WIDTH - MARGINS.right);
    let columns: Vec<Column> = (0..profile.levels.len())
        .filter_map(|level| {
            let point = profile.points.get(&(level, size))?;
            let at = from + (level as f64 + 0.5) / n * (to - from);
            Some(Column { at, label: profile.levels[level].short(), point })
        })
        .collect();
    let ticks: Vec<Tick> = columns.iter().map(|c| Tick { at: c.at, text: c.label.clone() }).collect();
    let sheet = Sheet {
        name: format!("{} time {}", profile.title, kind.word()),
        title: title(profile, "time against contention"),
        setting: format!("{}; {}.", units::size(size), profile.key.qualities()),
        label: match profile.counted() {
            Some(counted) => format!("{counted} (nodes × ranks per node)"),
            None => "nodes × ranks per node".to_owned(),
        },
    };
    draw(&sheet, &columns, &ticks, (to - from) / n, kind, detail)
}

struct Sheet {
    name: String,
    title: String,
    setting: String,
    label: String,
}

fn draw(sheet: &Sheet, columns: &[Column], ticks: &[Tick], pitch: f64, kind: Kind, detail: &Detail) -> Plot {
    let drawn: u64 = columns.iter().map(|c| c.point.drawn).sum();
    let launches = columns.iter().map(|c| c.point.launch_medians.len()).max().unwrap_or(0);
    let p99 = columns.iter().any(|c| c.point.knows_p99());
    let what = match (launches, p99) {
        (0 | 1, true) => "Minimum, median and 99th percentile".to_owned(),
        (0 | 1, false) => format!("Minimum and median (fewer than {ENOUGH} samples have no 99th percentile)"),
        (n, _) => format!(
            "Least minimum of {n} launches, median of their medians{}; ticks right of a median are the launches' own medians",
            if p99 { " and of their 99th percentiles" } else { "" }
        ),
    };
    let explanation = format!("{} {what}; behind, every sample, darker where there are more.", sheet.setting);
    let mut frame = Frame::new(&sheet.title, &explanation, HEIGHT, MARGINS);
    let Some(scale) = time_scale(columns, kind, frame.bottom, frame.top) else {
        return Frame::empty(&sheet.name, &sheet.title, "Nothing was measured.");
    };
    frame.x_axis(ticks, &sheet.label);
    frame.y_axis(&scale.ticks(6, units::time), "time");
    let (marks, beyond, below) = density(&mut frame, columns, &scale, pitch, detail);
    lines(&mut frame, columns, &scale);
    launches_apart(&mut frame, columns, &scale, pitch);
    let mut note = format!(
        "{} samples in {} marks; each mark is a range of times, its shade the logarithm of their number.",
        units::count(drawn),
        units::count(marks)
    );
    if beyond > 0.5 {
        note += &format!(" {} above the plot.", lie(beyond));
    }
    if below > 0.5 {
        note += &format!(" {} below the plot, near nothing or less.", lie(below));
    }
    note += &moved(&mut frame, columns);
    let description = columns.iter().map(|c| words(c.point)).collect::<Vec<_>>().join("; ");
    frame.finish(&sheet.name, description, &note)
}

/// So many samples lie somewhere, in words.
fn lie(count: f64) -> String {
    let n = count.round() as u64;
    format!("{} {}", units::plural(n, "sample"), if n == 1 { "lies" } else { "lie" })
}

/// All of it on a logarithmic scale; up to the largest p99 and some more on a linear one, which
/// outliers would flatten.
fn time_scale(columns: &[Column], kind: Kind, from: f64, to: f64) -> Option<Scale> {
    let curves = columns.iter().map(|c| &c.point.curve);
    // What is known by its summary alone has no curve to say how far down the axis must reach.
    let least = |c: &Column| match kind {
        Kind::Log => c.point.curve.log_floor().or(Some(c.point.row.min_ns).filter(|v| *v > 0.0 && c.point.has_row())),
        Kind::Linear => c.point.curve.range().map(|r| r.0).or(c.point.has_row().then_some(c.point.row.min_ns)),
    };
    let low = columns.iter().filter_map(least).fold(f64::INFINITY, f64::min);
    let known = columns.iter().filter(|c| c.point.has_row());
    let p99 = known
        .map(|c| if c.point.knows_p99() { c.point.row.p99_ns } else { c.point.row.max_ns })
        .fold(f64::NEG_INFINITY, f64::max);
    let high = curves.filter_map(|c| c.range().map(|r| r.1)).fold(p99, f64::max);
    if !low.is_finite() || !high.is_finite() {
        return None;
    }
    Some(match kind {
        Kind::Log => Scale::new(kind, low / 1.1, high * 1.1, from, to),
        Kind::Linear => Scale::new(kind, low.min(0.0), (p99 * 1.2).min(high * 1.02).max(low), from, to),
    })
}

/// Draws the samples; returns the number of marks, and how many samples lie above and below the
/// scale.
fn density(frame: &mut Frame, columns: &[Column], scale: &Scale, pitch: f64, detail: &Detail) -> (u64, f64, f64) {
    let rows = detail.density;
    let row = (frame.bottom - frame.top) / rows as f64;
    let width = (pitch * 0.72).min(WIDEST);
    let (mut shades, mut marks, mut beyond, mut beneath) = (vec![Path::new(); SHADE_COUNT], 0, 0.0, 0.0);
    let (low, high) = scale.range();
    for column in columns {
        let curve = &column.point.curve;
        let above = curve.count() - curve.at_most(high);
        // Equal ones at the edge itself are on the scale.
        let below = if curve.range().is_some_and(|r| r.0 < low) { curve.at_most(low) } else { 0.0 };
        (beyond, beneath) = (beyond + above, beneath + below);
        let mut bins = curve.histogram(scale, rows);
        // What lies above would stand at the edge as if it belonged there.
        if let Some(last) = bins.last_mut() {
            *last = (*last - above).max(0.0);
        }
        if let Some(first) = bins.first_mut() {
            *first = (*first - below).max(0.0);
        }
        let most = bins.iter().copied().fold(1.0, f64::max);
        for (i, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0.01) {
            let part = if most > 1.0 { count.max(1.0).ln() / most.ln() } else { 0.0 };
            let shade = ((part * SHADE_COUNT as f64) as usize).min(SHADE_COUNT - 1);
            shades[shade].to(column.at - width / 2.0, frame.bottom - (i as f64 + 0.5) * row).across(width);
            marks += 1;
        }
    }
    frame.canvas.open(&format!("stroke-width=\"{row:.2}\""));
    for (i, path) in shades.iter().enumerate() {
        frame.canvas.path(&format!("density c6 d{i}"), path);
    }
    frame.canvas.close();
    (marks, beyond, beneath)
}

/// Marks columns of which ranks moved at the upper edge; returns what is said of them.
fn moved(frame: &mut Frame, columns: &[Column]) -> String {
    let mut marks = Path::new();
    let some: Vec<&Column> = columns.iter().filter(|c| !c.point.moved.is_empty()).collect();
    for column in &some {
        mark(&mut marks, Mark::Triangle, column.at, frame.top + 5.0);
    }
    frame.canvas.path("f3", &marks);
    match some.len() {
        0 => String::new(),
        n => format!(
            " Triangles at the upper edge: {} in which ranks changed their processor.",
            units::plural(n as u64, "cell")
        ),
    }
}

/// Median of each launch as a tick right of the median of them all: how much launches differ.
fn launches_apart(frame: &mut Frame, columns: &[Column], scale: &Scale, pitch: f64) {
    let length = (0.3 * pitch).clamp(2.0, 8.0);
    let mut ticks = Path::new();
    for column in columns.iter().filter(|c| c.point.has_launches()) {
        for median in column.point.launch_medians.iter().filter(|m| scale.holds(**m)) {
            ticks.to(column.at + 4.0, scale.at(*median)).across(length);
        }
    }
    frame.canvas.path("thin c0", &ticks);
}

fn lines(frame: &mut Frame, columns: &[Column], scale: &Scale) {
    let known: Vec<&Column> = columns.iter().filter(|c| c.point.has_row()).collect();
    type Series = (&'static str, &'static str, &'static str, Mark, fn(&Point) -> Option<f64>);
    let series: [Series; 3] = [
        ("minimum", "line dash", "2", Mark::Square, |p| Some(p.row.min_ns)),
        ("p99", "line dot", "1", Mark::Triangle, |p| p.knows_p99().then_some(p.row.p99_ns)),
        ("median", "line", "0", Mark::Disc, |p| Some(p.row.p50_ns)),
    ];
    let mut whiskers = Path::new();
    for column in &known {
        if let Some(shown) = column.point.interval() {
            whiskers.to(column.at, scale.at(shown.low_ns)).line(column.at, scale.at(shown.high_ns));
        }
    }
    frame.canvas.path("thin c0", &whiskers);
    let mut labels = Vec::new();
    for (label, class, colour, shape, value) in series {
        let points: Vec<Option<(f64, f64)>> =
            known.iter().map(|c| value(c.point).map(|v| (c.at, scale.at(v)))).collect();
        stretches(&mut frame.canvas, &format!("{class} c{colour}"), &points);
        let mut marks = Path::new();
        for &(x, y) in points.iter().flatten() {
            mark(&mut marks, shape, x, y);
        }
        frame.canvas.path(&format!("f{colour}"), &marks);
        labels.extend(points.iter().flatten().last().map(|p| (p.1, format!("f{colour}"), label.to_owned())));
        for (column, (x, y)) in known.iter().zip(points).filter_map(|(c, p)| Some((c, p?))) {
            let prefix = if column.label.is_empty() { String::new() } else { format!("{}, ", column.label) };
            frame.canvas.hint(x, y, &format!("{prefix}{}", words(column.point)));
        }
    }
    frame.end_labels(labels);
}

/// The scale of several curves up to a quantile, for others that draw times.
#[must_use]
pub fn scale_of(points: &[&Point], kind: Kind, upper: f64, from: f64, to: f64) -> Scale {
    common_scale(points.iter().map(|p| &p.curve), kind, upper, from, to)
}
