//! How far apart two instants of a repetition are: the last start from the first (skew), and the
//! last end from the first start (span), which is how long an operation of all ranks takes as a
//! whole.

use super::against::{Line, Sheet, lines};
use super::parts::{Detail, name, setting, title};
use crate::digest::{Between, Point, Profile};
use crate::frame::{Frame, Margins, Mark, Panel, Plot};
use crate::order::spread_out;
use crate::reading::ENOUGH;
use crate::scale::{Kind, Scale};
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 14.0, right: 14.0 };
const BINS: usize = 40;
/// Most panels: forms at more sizes tell nothing new.
const MOST: usize = 4;

/// Which two instants.
#[derive(Debug, Clone, Copy)]
pub struct What {
    name: &'static str,
    title: &'static str,
    explanation: &'static str,
    of: fn(&Point) -> &Between,
    colour: usize,
    /// Whether the axis begins at 0, which is what nothing between them would be.
    from_zero: bool,
}

/// Last start minus first.
pub const SKEW: What = What {
    name: "skew",
    title: "skew of starts",
    explanation: "Histogram of how far the last process of a repetition started after the first.",
    of: |point| &point.skew,
    colour: 4,
    from_zero: true,
};

/// Last end minus first start.
pub const SPAN: What = What {
    name: "span",
    title: "distribution of the span",
    explanation: "Histogram of how long a repetition took as a whole: from the first process' start to the last one's end.",
    of: |point| &point.span,
    colour: 2,
    from_zero: false,
};

/// Histograms at some sizes of a level; nothing if none was recorded.
#[must_use]
pub fn histograms(profile: &Profile, level: usize, what: What, detail: &Detail) -> Option<Plot> {
    let all: Vec<&Point> = profile.at_level(level).filter(|p| !(what.of)(p).curve.is_empty()).collect();
    let (n, missed) = (all.len(), all.iter().map(|p| p.missed).sum::<u64>());
    let points = spread_out(all, detail.panels.min(MOST));
    if points.is_empty() {
        return None;
    }
    let explanation = format!("{} {}", setting(profile, level), what.explanation);
    let mut frame = Frame::new(&title(profile, what.title), &explanation, 0.0, MARGINS);
    let (panels, used) = Panel::grid(&frame, points.len(), points.len().min(2), 90.0, 0.0);
    for (point, panel) in points.iter().zip(&panels) {
        draw(&mut frame, point, what, panel);
    }
    frame.grow(used - 34.0);
    let description = points.iter().map(|p| words(p, what)).collect::<Vec<_>>().join("; ");
    let sizes = if points.len() < n { format!("{} of {n} sizes. ", points.len()) } else { String::new() };
    let left_out = match missed {
        0 => String::new(),
        m => format!(" {} whose agreed start was missed are left out.", units::plural(m, "repetition")),
    };
    let note = format!("{sizes}Up to the 99th percentile.{left_out}");
    Some(frame.finish(&name(profile, what.name, level), description, &note))
}

fn words(point: &Point, what: What) -> String {
    let curve = &(what.of)(point).curve;
    let largest = units::time(curve.quantile(1.0).unwrap_or(0.0));
    format!("{}: {}, largest {largest}", units::size(point.size_bytes), quantiles(point, what))
}

/// The median, and the 99th percentile where repetitions are enough for one.
fn quantiles(point: &Point, what: What) -> String {
    let curve = &(what.of)(point).curve;
    let at = |p: f64| units::time(curve.quantile(p).unwrap_or(0.0));
    let p99 = if curve.count() >= ENOUGH as f64 { format!(", p99 {}", at(0.99)) } else { String::new() };
    format!("median {}{p99}", at(0.5))
}

fn draw(frame: &mut Frame, point: &Point, what: What, panel: &Panel) {
    let curve = &(what.of)(point).curve;
    let at = |p: f64| curve.quantile(p).unwrap_or(0.0);
    panel.heading(&mut frame.canvas, &units::size(point.size_bytes), &quantiles(point, what));
    let low = if what.from_zero { 0.0 } else { at(0.0) };
    let scale = Scale::new(Kind::Linear, low, at(0.99).max(low + 1.0), panel.left, panel.right);
    let (low, high) = scale.range();
    let mut counts = curve.histogram(&scale, BINS);
    // What lies beyond the edge would stand there as a false peak.
    if let Some(last) = counts.last_mut() {
        *last = (*last - (curve.count() - curve.at_most(high))).max(0.0);
    }
    let most = counts.iter().copied().fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let height = Scale::new(Kind::Linear, 0.0, most, panel.bottom, panel.top);
    let width = (high - low) / BINS as f64;
    let mut outline = Path::new();
    outline.to(panel.left, panel.bottom);
    for (i, count) in counts.iter().enumerate() {
        let (x0, x1) = (scale.at(low + i as f64 * width), scale.at(low + (i + 1) as f64 * width));
        outline.line(x0, height.at(*count)).line(x1, height.at(*count));
    }
    outline.line(panel.right, panel.bottom).close();
    frame.canvas.path(&format!("band f{}", what.colour), &outline);
    frame.canvas.path(&format!("thin c{}", what.colour), &outline);
    panel.x_ticks(&mut frame.canvas, &scale.ticks(3, units::time));
    let middle = (f64::midpoint(panel.left, panel.right), f64::midpoint(panel.top, panel.bottom));
    frame.canvas.hint(middle.0, middle.1, &words(point, what));
}

/// The span's median and 99th percentile against size, beside the median of the time at one rank;
/// nothing where fewer than two sizes have one.
#[must_use]
pub fn span_against_size(profile: &Profile, level: usize, kind: Kind) -> Option<Plot> {
    let known: Vec<&Point> = profile.at_level(level).filter(|p| p.span.row.is_some()).collect();
    if known.len() < 2 {
        return None;
    }
    let line = |label: &str, class, colour, mark, of: fn(&Point) -> Option<f64>| {
        let value = |p: &&Point| {
            let words = |v: f64| format!("{}: {label} {}", units::size(p.size_bytes), units::time(v));
            (p.size_bytes, of(p).map(|v| (v, words(v))))
        };
        Line { label: label.to_owned(), class, colour, mark: Some(mark), values: known.iter().map(value).collect() }
    };
    let all = [
        line("at a rank", "line dash", 0, Mark::Square, |p| p.has_row().then_some(p.row.p50_ns)),
        line("span p99", "line dot", 1, Mark::Triangle, Point::span_p99),
        line("span", "line", 2, Mark::Disc, |p| p.span.row.as_ref().map(|r| r.p50_ns)),
    ];
    let explanation = format!(
        "{} How long the operation takes as a whole, from the first process' start to the last one's end: median and 99th percentile over repetitions; and the median of the time at one process.",
        setting(profile, level)
    );
    let title = title(profile, "span against size");
    let sheet = Sheet { title: &title, explanation: &explanation, axis: ("time", units::time), kind, right: 74.0 };
    let frame = lines(&sheet, &all, &[])?;
    let told = known.iter().filter_map(|p| {
        let row = p.span.row.as_ref()?;
        Some(format!("{}: span {}", units::size(p.size_bytes), units::time(row.p50_ns)))
    });
    let description = told.collect::<Vec<_>>().join("; ");
    let name = name(profile, &format!("span {}", kind.word()), level);
    Some(frame.finish(&name, description, &few(&known)))
}

/// That some sizes have no 99th percentile.
fn few(known: &[&Point]) -> String {
    match known.iter().filter(|p| p.span_p99().is_none()).count() {
        0 => String::new(),
        n => format!(
            "{} with fewer than {ENOUGH} repetitions {} no 99th percentile.",
            units::plural(n as u64, "size"),
            units::verb(n, "has", "have")
        ),
    }
}
