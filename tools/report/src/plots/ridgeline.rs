//! The distribution at each size, one ridge above the other.

use super::parts::{Detail, name, setting, title, words};
use crate::digest::{Point, Profile};
use crate::frame::{Frame, Margins, Plot};
use crate::order::spread_out;
use crate::plots::sizes::scale_of;
use crate::reading::ENOUGH;
use crate::scale::{Kind, Scale};
use crate::svg::{Anchor, Path};
use crate::{style, units};

const MARGINS: Margins = Margins { left: 62.0, right: 72.0 };
/// Most ridges that still show a form.
const MOST: usize = 22;
/// How far a ridge may rise into the one above, in their distance.
const RISE: f64 = 1.7;

/// Ridges over absolute time (logarithmic), or each over times relative to its own median (linear),
/// which makes forms comparable.
#[must_use]
pub fn ridgeline(profile: &Profile, level: usize, kind: Kind, detail: &Detail) -> Plot {
    let few = profile.at_level(level).filter(|p| !p.curve.is_empty() && !p.has_form()).count() as u64;
    let all: Vec<&Point> = profile.at_level(level).filter(|p| p.has_form()).collect();
    let n = all.len();
    let points = spread_out(all, MOST);
    let (title, name) = (
        title(profile, if n > 1 { "distribution over sizes" } else { "distribution" }),
        name(profile, &format!("ridgeline {}", kind.word()), level),
    );
    if points.is_empty() {
        let why =
            if few > 0 { format!("Fewer than {ENOUGH} samples: no form.") } else { "No samples were kept.".to_owned() };
        return Frame::empty(&name, &title, &why);
    }
    let pitch = (340.0 / points.len() as f64).clamp(17.0, 60.0);
    let over = if kind == Kind::Log { "over time" } else { "over time relative to its median" };
    let explanation = format!(
        "{} Density {over}, each ridge with the same height at its peak.{}",
        setting(profile, level),
        if points.iter().any(|p| p.has_launches()) {
            " All launches' samples together; at the right the median of their medians."
        } else {
            ""
        }
    );
    let mut frame = Frame::new(&title, &explanation, pitch * (points.len() as f64 + RISE - 1.0), MARGINS);
    let scale = match kind {
        Kind::Log => scale_of(&points, kind, 0.99, frame.left, frame.right),
        Kind::Linear => relative_scale(&points, frame.left, frame.right),
    };
    match kind {
        Kind::Log => frame.x_axis(&scale.ticks(7, units::time), "time"),
        Kind::Linear => {
            frame.x_axis(&scale.ticks(7, |v| format!("{} ×", units::number(v))), "time relative to the median")
        }
    }
    let mut undrawn = 0;
    for (i, point) in points.iter().enumerate() {
        let base = frame.top + pitch * (i as f64 + RISE);
        let step = style::step_of(i, points.len());
        let drawn = ridge(&mut frame, point, kind, &scale, (base, pitch * RISE), step, detail.ridge);
        undrawn += u64::from(!drawn);
    }
    frame.canvas.text("small muted", frame.right + 10.0, frame.top - 2.0, Anchor::Start, "median");
    let description = points.iter().map(|p| words(p)).collect::<Vec<_>>().join("; ");
    let sizes = if points.len() < n { format!("{} of {n} sizes; t", points.len()) } else { "T".to_owned() };
    let mut note = format!("{sizes}he slowest 1 % of samples may be at the right edge or beyond.");
    for (count, what) in [
        (few, format!("with fewer than {ENOUGH} samples left out")),
        (
            profile.at_level(level).filter(|p| p.curve.is_empty()).count() as u64,
            "without a sample that counts left out".into(),
        ),
        (undrawn, "wholly beyond the axis".into()),
    ] {
        if count > 0 {
            note += &format!(" {} {what}.", units::plural(count, "size"));
        }
    }
    frame.finish(&name, description, &note)
}

fn relative_scale(points: &[&Point], from: f64, to: f64) -> Scale {
    let ratio = |p: &Point, q: f64| {
        let median = p.curve.quantile(0.5).filter(|m| *m > 0.0)?;
        p.curve.quantile(q).map(|v| v / median)
    };
    let low = points.iter().filter_map(|p| ratio(p, 0.0)).fold(1.0, f64::min).max(0.0);
    let high = points.iter().filter_map(|p| ratio(p, 0.99)).fold(1.0, f64::max).min(20.0);
    Scale::new(Kind::Linear, low * 0.97, high * 1.02, from, to)
}

/// Draws a ridge with its words; returns whether anything of it is on the axis.
fn ridge(
    frame: &mut Frame,
    point: &Point,
    kind: Kind,
    scale: &Scale,
    (base, rise): (f64, f64),
    step: usize,
    bins: usize,
) -> bool {
    let median = point.curve.quantile(0.5).unwrap_or(0.0);
    let (low, high) = scale.range();
    let own = match kind {
        Kind::Log => *scale,
        Kind::Linear if median > 0.0 => Scale::new(kind, low * median, high * median, frame.left, frame.right),
        Kind::Linear => *scale,
    };
    let mut counts = point.curve.histogram(&own, bins);
    // What lies beyond the edge would stand there as a false peak; what lies just before it is a
    // true one.
    if let Some(last) = counts.last_mut() {
        *last = (*last - (point.curve.count() - point.curve.at_most(own.range().1))).max(0.0);
    }
    let counts = smoothed(&counts);
    let most = counts.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let width = (frame.right - frame.left) / bins as f64;
    let ends = counts.iter().position(|c| *c > 0.0).zip(counts.iter().rposition(|c| *c > 0.0));
    if let Some((first, last)) = ends {
        let mut path = Path::new();
        path.to(frame.left + first as f64 * width, base);
        for (i, count) in counts.iter().enumerate().take(last + 1).skip(first) {
            path.line(frame.left + (i as f64 + 0.5) * width, base - count / most * rise);
        }
        path.line(frame.left + (last + 1) as f64 * width, base).close();
        frame.canvas.path(&format!("ridge qf{step}"), &path);
    }
    frame.canvas.text("small", frame.left - 8.0, base - 1.0, Anchor::End, &units::size(point.size_bytes));
    frame.canvas.text(
        "small muted",
        frame.right + 10.0,
        base - 1.0,
        Anchor::Start,
        &units::time_in_column(point.row.p50_ns),
    );
    let x = if kind == Kind::Log || median > 0.0 { own.at(median) } else { frame.left };
    frame.canvas.hint(x, base - 6.0, &words(point));
    ends.is_some()
}

/// Each bin with half its neighbours: quietens the steps between the points of a curve, moves
/// nothing.
fn smoothed(counts: &[f64]) -> Vec<f64> {
    let at = |i: usize| counts.get(i).copied().unwrap_or(0.0);
    (0..counts.len()).map(|i| 0.5 * at(i) + 0.25 * (at(i.wrapping_sub(1)) + at(i + 1))).collect()
}
