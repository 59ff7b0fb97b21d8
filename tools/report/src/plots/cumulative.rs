//! Cumulative distributions, and their tails on logarithmic axes.

use super::parts::{Detail, MAX_LINES, name, pooled, pooled_value, setting, share_ticks, size_legend, title, words};
use crate::digest::{Point, Profile};
use crate::frame::{Frame, Margins, Plot};
use crate::order::spread_out;
use crate::plots::sizes::scale_of;
use crate::scale::{Kind, Scale};
use crate::svg::Path;
use crate::{style, units};

const MARGINS: Margins = Margins { left: 88.0, right: 84.0 };
const HEIGHT: f64 = 220.0;

/// The points of a level whose distribution is known, no more than can be told apart.
fn chosen(profile: &Profile, level: usize) -> (Vec<&Point>, usize) {
    let all: Vec<&Point> = profile.at_level(level).filter(|p| !p.curve.is_empty()).collect();
    let n = all.len();
    (spread_out(all, MAX_LINES), n)
}

/// What is said of how many sizes and samples a plot shows.
fn drawn(points: &[&Point], all: usize) -> String {
    let samples: u64 = points.iter().map(|p| p.drawn).sum();
    let sizes =
        if points.len() < all { format!("{} of {all} sizes", points.len()) } else { format!("All {all} sizes") };
    if all == 1 {
        format!("{} samples.", units::count(samples))
    } else {
        format!("{sizes} drawn, {} samples.", units::count(samples))
    }
}

/// Share of samples that took at most a time.
#[must_use]
pub fn cdf(profile: &Profile, level: usize, kind: Kind, detail: &Detail) -> Plot {
    let (points, all) = chosen(profile, level);
    let (title, name) =
        (title(profile, "cumulative distribution"), name(profile, &format!("cdf {}", kind.word()), level));
    if points.is_empty() {
        return Frame::empty(&name, &title, "No samples were kept.");
    }
    let explanation = format!(
        "{} Share of samples that took at most a time.{}",
        setting(profile, level),
        pooled(points.iter().copied())
    );
    let mut frame = Frame::new(&title, &explanation, HEIGHT, MARGINS);
    let upper = 0.99;
    let scale = scale_of(&points, kind, upper, frame.left, frame.right);
    let height = Scale::new(Kind::Linear, 0.0, 1.0, frame.bottom, frame.top);
    frame.x_axis(&scale.ticks(7, units::time), "time");
    frame.y_axis(&share_ticks(|s| height.at(s)), "share of samples");
    for (i, point) in points.iter().enumerate() {
        let curve = point.curve.cumulative(detail.curve);
        let start = curve.first().map(|p| (scale.at(p.0), frame.bottom));
        let inside = curve.iter().filter(|p| scale.holds(p.0)).map(|p| (scale.at(p.0), height.at(p.1)));
        let places: Vec<(f64, f64)> = start.into_iter().chain(inside).collect();
        frame.canvas.path(&format!("line q{}", style::step_of(i, points.len())), &Path::stairs(&places));
        for (label, p) in [("p1", 0.01), ("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p99", 0.99)] {
            let known = (0.1..0.9).contains(&p) || point.has_form();
            if let Some(value) = point.curve.quantile(p).filter(|v| known && scale.holds(*v)) {
                let text =
                    format!("{}: {label} {}{}", units::size(point.size_bytes), units::time(value), pooled_value(point));
                frame.canvas.hint(scale.at(value), height.at(p), &text);
            }
        }
    }
    legend(&mut frame, &points);
    let description = points.iter().map(|p| words(p)).collect::<Vec<_>>().join("; ");
    let note = format!("{} The slowest 1 % may be beyond the right edge: see the tail.", drawn(&points, all));
    frame.finish(&name, description, &note)
}

/// Share of samples that took at least a time, both logarithmic: stragglers as they are.
#[must_use]
pub fn tail(profile: &Profile, level: usize, detail: &Detail) -> Plot {
    let (points, all) = chosen(profile, level);
    let (title, name) = (title(profile, "tail"), name(profile, "tail", level));
    if points.is_empty() {
        return Frame::empty(&name, &title, "No samples were kept.");
    }
    let explanation = format!(
        "{} Share of samples that took at least a time; both axes logarithmic.{}",
        setting(profile, level),
        pooled(points.iter().copied())
    );
    let mut frame = Frame::new(&title, &explanation, HEIGHT, MARGINS);
    let scale = scale_of(&points, Kind::Log, 1.0, frame.left, frame.right);
    let most = points.iter().map(|p| p.curve.count()).fold(10.0, f64::max);
    let height = Scale::new(Kind::Log, 0.8 / most, 1.0, frame.bottom, frame.top);
    frame.x_axis(&scale.ticks(7, units::time), "time");
    frame.y_axis(&height.ticks(6, tail_words), "share that took longer");
    for (i, point) in points.iter().enumerate() {
        let places: Vec<(f64, f64)> = point
            .curve
            .tail(detail.curve)
            .iter()
            .filter(|p| p.0 > 0.0)
            .map(|p| (scale.at(p.0), height.at(p.1)))
            .collect();
        frame.canvas.path(&format!("line q{}", style::step_of(i, points.len())), &Path::through(&places));
        for (label, p) in [("p90", 0.1), ("p99", 0.01), ("p99.9", 0.001), ("p99.99", 1e-4), ("p99.999", 1e-5)] {
            let known = point.curve.count() * p >= 1.0;
            if let Some(value) = point.curve.quantile(1.0 - p).filter(|v| known && *v > 0.0) {
                let text =
                    format!("{}: {label} {}{}", units::size(point.size_bytes), units::time(value), pooled_value(point));
                frame.canvas.hint(scale.at(value), height.at(p), &text);
            }
        }
        let text = format!(
            "{}: maximum {}",
            units::size(point.size_bytes),
            units::time(point.curve.range().map_or(0.0, |r| r.1))
        );
        if let Some(&(x, y)) = places.last() {
            frame.canvas.hint(x, y, &text);
        }
    }
    legend(&mut frame, &points);
    let description = points.iter().map(|p| words(p)).collect::<Vec<_>>().join("; ");
    let note =
        format!("{} A straight line is a power law; each line ends at its one slowest sample.", drawn(&points, all));
    frame.finish(&name, description, &note)
}

fn tail_words(share: f64) -> String {
    if share >= 0.01 {
        format!("{} %", units::number(share * 100.0))
    } else {
        format!("1 in {}", units::count((1.0 / share).round() as u64))
    }
}

fn legend(frame: &mut Frame, points: &[&Point]) {
    let sizes: Vec<u64> = points.iter().map(|p| p.size_bytes).collect();
    let (x, top) = (frame.right + 12.0, frame.top);
    if sizes.len() > 1 {
        size_legend(&mut frame.canvas, x, top, &sizes);
    }
}
