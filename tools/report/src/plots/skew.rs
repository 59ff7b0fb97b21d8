//! How far apart the processes of a collective started: the histogram over repetitions, at some sizes.

use super::{Detail, name, setting, spread_out, title};
use crate::digest::{Point, Profile};
use crate::frame::{Frame, Margins, Panel, Plot};
use crate::reading::ENOUGH;
use crate::scale::{Kind, Scale};
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 14.0, right: 14.0 };
const BINS: usize = 40;

/// Histograms of last minus first start at some sizes of a level; nothing if none was recorded.
#[must_use]
pub fn skew(profile: &Profile, level: usize, detail: &Detail) -> Option<Plot> {
    let all: Vec<&Point> = profile.at_level(level).filter(|p| !p.skew.is_empty()).collect();
    let (n, missed) = (all.len(), all.iter().map(|p| p.missed).sum::<u64>());
    let points = spread_out(all, detail.panels.min(3));
    if points.is_empty() {
        return None;
    }
    let explanation = format!(
        "{} Histogram of how far the last process of a repetition started after the first.",
        setting(profile, level)
    );
    let mut frame = Frame::new(&title(profile, "skew of starts"), &explanation, 0.0, MARGINS);
    let (panels, used) = Panel::grid(&frame, points.len(), points.len(), 90.0, 0.0);
    for (point, panel) in points.iter().zip(&panels) {
        draw(&mut frame, point, panel);
    }
    frame.grow(used - 34.0);
    let description = points.iter().map(|p| words(p)).collect::<Vec<_>>().join("; ");
    let sizes = if points.len() < n { format!("{} of {n} sizes. ", points.len()) } else { String::new() };
    let left_out = match missed {
        0 => String::new(),
        m => format!(" {} whose agreed start was missed are left out.", units::plural(m, "repetition")),
    };
    let note = format!("{sizes}Up to the 99th percentile.{left_out}");
    Some(frame.finish(&name(profile, "skew", level), description, &note))
}

fn words(point: &Point) -> String {
    let largest = units::time(point.skew.quantile(1.0).unwrap_or(0.0));
    format!("{}: {}, largest {largest}", units::size(point.size_bytes), quantiles(point))
}

/// The median, and the 99th percentile where repetitions are enough for one.
fn quantiles(point: &Point) -> String {
    let at = |p: f64| units::time(point.skew.quantile(p).unwrap_or(0.0));
    let p99 = if point.skew.count() >= ENOUGH as f64 { format!(", p99 {}", at(0.99)) } else { String::new() };
    format!("median {}{p99}", at(0.5))
}

fn draw(frame: &mut Frame, point: &Point, panel: &Panel) {
    let at = |p: f64| point.skew.quantile(p).unwrap_or(0.0);
    panel.heading(&mut frame.canvas, &units::size(point.size_bytes), &quantiles(point));
    let scale = Scale::new(Kind::Linear, 0.0, at(0.99).max(1.0), panel.left, panel.right);
    let (low, high) = scale.range();
    let mut counts = point.skew.histogram(&scale, BINS);
    // What lies beyond the edge would stand there as a false peak.
    if let Some(last) = counts.last_mut() {
        *last = (*last - (point.skew.count() - point.skew.at_most(high))).max(0.0);
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
    frame.canvas.path("band f4", &outline);
    frame.canvas.path("thin c4", &outline);
    panel.x_ticks(&mut frame.canvas, &scale.ticks(3, units::time));
    frame.canvas.hint(f64::midpoint(panel.left, panel.right), f64::midpoint(panel.top, panel.bottom), &words(point));
}
