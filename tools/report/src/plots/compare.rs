//! Plots of two runs against each other.

use super::against::{Line, Sheet, lines};
use super::parts::{Detail, pooled, pooled_value};
use crate::compare::{Match, Pair};
use crate::curve::common_scale;
use crate::digest::{Digest, Point};
use crate::frame::{Entry, Frame, Margins, Mark, Panel, Plot};
use crate::order::spread_out;
use crate::reading::ENOUGH;
use crate::scale::{Kind, Scale};
use crate::svg::Path;
use crate::units;

/// Classes of the lines of the first and the second run: they differ in dash, not in colour alone.
const RUNS: [&str; 2] = ["line c0", "line dash c1"];
/// Marks of the first and the second run.
const SHAPES: [Mark; 2] = [Mark::Disc, Mark::Square];

/// The points behind a pair.
fn points<'a>(digests: (&'a Digest, &'a Digest), matched: &Match, pair: &Pair) -> Option<(&'a Point, &'a Point)> {
    let of = |digest: &'a Digest, profile: usize| {
        let profile = digest.profiles.get(profile)?;
        let level = profile.levels.iter().position(|l| Some(l) == matched.levels.get(pair.level))?;
        profile.points.get(&(level, pair.size_bytes))
    };
    Some((of(digests.0, matched.profiles.0)?, of(digests.1, matched.profiles.1)?))
}

/// Cumulative distributions of both runs over each other, at some sizes of a level.
#[must_use]
pub fn cdfs(digests: (&Digest, &Digest), matched: &Match, level: usize, detail: &Detail) -> Option<Plot> {
    let all: Vec<(&Pair, (&Point, &Point))> = matched
        .pairs
        .iter()
        .filter(|p| p.level == level)
        .filter_map(|p| Some((p, points(digests, matched, p)?)))
        .filter(|(_, (a, b))| !a.curve.is_empty() && !b.curve.is_empty())
        .collect();
    let n = all.len();
    let chosen = spread_out(all, detail.panels.max(3));
    if chosen.is_empty() {
        return None;
    }
    let label = matched.levels.get(level).map(crate::digest::Level::label).unwrap_or_default();
    let title = format!("{}: cumulative distributions", matched.title);
    let explanation = format!(
        "{label}; {}. Share of samples that took at most a time; the further left, the faster.{}",
        matched.key.qualities(),
        pooled(chosen.iter().flat_map(|c| [c.1.0, c.1.1]))
    );
    let mut frame = Frame::new(&title, &explanation, 0.0, Margins { left: 14.0, right: 14.0 });
    let names = [format!("first: {}", digests.0.name), format!("second: {}", digests.1.name)];
    frame.legend(&RUNS.iter().zip(&names).map(|(class, name)| Entry::line(class, name)).collect::<Vec<_>>());
    let (panels, used) = Panel::grid(&frame, chosen.len(), chosen.len().min(2), 110.0, 36.0);
    for ((pair, points), panel) in chosen.iter().zip(&panels) {
        panel.heading(&mut frame.canvas, &units::size(pair.size_bytes), &pair.short());
        let curves = [&points.0.curve, &points.1.curve];
        let scale = common_scale(curves.into_iter(), Kind::Log, 0.995, panel.left, panel.right);
        let height = Scale::new(Kind::Linear, 0.0, 1.0, panel.bottom, panel.top);
        panel.y_ticks(&mut frame.canvas, &[crate::scale::Tick { at: height.at(0.5), text: "50 %".into() }]);
        panel.x_ticks(&mut frame.canvas, &scale.ticks(3, units::time));
        for ((point, class), which) in [points.0, points.1].into_iter().zip(RUNS).zip(["first", "second"]) {
            let curve = &point.curve;
            let steps = curve.cumulative(detail.curve / 2);
            let places: Vec<(f64, f64)> = std::iter::once((scale.at(steps[0].0), panel.bottom))
                .chain(steps.iter().filter(|p| scale.holds(p.0)).map(|p| (scale.at(p.0), height.at(p.1))))
                .collect();
            frame.canvas.path(class, &Path::stairs(&places));
            for (word, p) in [("median", 0.5), ("p99", 0.99)] {
                let enough = p < 0.9 || point.has_form();
                if let Some(value) = curve.quantile(p).filter(|_| enough) {
                    let text = format!(
                        "{}, {which}: {word} {}{}",
                        units::size(pair.size_bytes),
                        units::time(value),
                        pooled_value(point)
                    );
                    frame.canvas.hint(scale.at(value), height.at(p), &text);
                }
            }
        }
    }
    frame.grow(used - 34.0);
    let description =
        chosen.iter().map(|(p, _)| format!("{}: {p}", units::size(p.size_bytes))).collect::<Vec<_>>().join("; ");
    let note = if chosen.len() < n { format!("{} of {n} sizes; u", chosen.len()) } else { "U".to_owned() };
    Some(frame.finish(
        &format!("{} both cdf log {label}", matched.title),
        description,
        &format!("{note}p to the 99.5th percentile."),
    ))
}

/// A size, and of both runs the centre and the 99th percentile where it means something.
type BySize = (u64, [(f64, Option<f64>); 2]);

/// Median and 99th percentile of both runs against size.
#[must_use]
pub fn sizes(digests: (&Digest, &Digest), matched: &Match, level: usize, kind: Kind) -> Option<Plot> {
    let p99 = |p: &Point| p.knows_p99().then_some(p.row.p99_ns);
    let both: Vec<BySize> = matched
        .pairs
        .iter()
        .filter(|p| p.level == level)
        .filter_map(|p| Some((p, points(digests, matched, p)?)))
        .filter(|(_, (a, b))| a.has_row() && b.has_row())
        .map(|(p, (a, b))| (p.size_bytes, [(p.centres_ns.0, p99(a)), (p.centres_ns.1, p99(b))]))
        .collect();
    if both.len() < 2 {
        return None;
    }
    let label = matched.levels.get(level).map(crate::digest::Level::label).unwrap_or_default();
    let title = format!("{}: time against size", matched.title);
    let several = matched.pairs.iter().any(|p| p.launches.0 > 1 || p.launches.1 > 1);
    let centre = if several { "Geometric means of the launches' medians" } else { "Medians" };
    let p99s = match (both.iter().flat_map(|p| p.1).any(|r| r.1.is_some()), several) {
        (false, _) => "",
        (true, true) => " thick, medians of the launches' 99th percentiles thin",
        (true, false) => " thick, 99th percentiles thin",
    };
    let explanation = format!("{label}; {}. {centre}{p99s}.", matched.key.qualities());
    let line = |i: usize, thick: bool| {
        let (run, word) = (["first", "second"][i], if thick { "median" } else { "p99" });
        let class = match (thick, i) {
            (true, 0) => "line",
            (true, _) => "line dash",
            (false, 0) => "thin",
            (false, _) => "thin dash",
        };
        let value = |p: &BySize| {
            let value = if thick { Some(p.1[i].0) } else { p.1[i].1 };
            (p.0, value.map(|v| (v, format!("{}, {run}: {word} {}", units::size(p.0), units::time(v)))))
        };
        let mark = thick.then_some(SHAPES[i]);
        Line { label: format!("{run}, {word}"), class, colour: i, mark, values: both.iter().map(value).collect() }
    };
    let all = [line(0, false), line(0, true), line(1, false), line(1, true)];
    let sheet = Sheet { title: &title, explanation: &explanation, axis: ("time", units::time), kind, right: 122.0 };
    let frame = lines(&sheet, &all, &[])?;
    let left_out = both.iter().flat_map(|p| p.1).filter(|r| r.1.is_none()).count();
    let few = match left_out {
        0 => String::new(),
        n => format!(
            "{} left out: fewer than {ENOUGH} samples (in each launch).",
            units::plural(n as u64, "99th percentile")
        ),
    };
    Some(frame.finish(
        &format!("{} both time {} {label}", matched.title, kind.word()),
        "Medians and 99th percentiles of both runs.".into(),
        &few,
    ))
}

/// A quantity of both runs against size at one level, from their pairs; nothing where fewer than
/// two sizes have it.
struct Quantity {
    name: String,
    title: &'static str,
    explanation: &'static str,
    axis: (&'static str, fn(f64) -> String),
    of: fn(&Pair) -> Option<(f64, f64)>,
}

impl Quantity {
    fn draw(&self, matched: &Match, level: usize, kind: Kind) -> Option<Plot> {
        let pairs = matched.pairs.iter().filter(|p| p.level == level);
        let known: Vec<(u64, (f64, f64))> = pairs.filter_map(|p| Some((p.size_bytes, (self.of)(p)?))).collect();
        if known.len() < 2 {
            return None;
        }
        let label = matched.levels.get(level).map(crate::digest::Level::label).unwrap_or_default();
        let title = format!("{}: {}", matched.title, self.title);
        let explanation = format!("{label}; {}. {}", matched.key.qualities(), self.explanation);
        let of = |pair: &(f64, f64), i: usize| if i == 0 { pair.0 } else { pair.1 };
        let line = |i: usize| {
            let run = ["first", "second"][i];
            let words = |size: u64, v: f64| format!("{}, {run}: median {}", units::size(size), (self.axis.1)(v));
            let values = known.iter().map(|(size, pair)| (*size, Some((of(pair, i), words(*size, of(pair, i))))));
            let class = ["line", "line dash"][i];
            Line { label: run.to_owned(), class, colour: i, mark: Some(SHAPES[i]), values: values.collect() }
        };
        let sheet = Sheet { title: &title, explanation: &explanation, axis: self.axis, kind, right: 64.0 };
        let frame = lines(&sheet, &[line(0), line(1)], &[])?;
        let told = known.iter().map(|(size, pair)| {
            format!("{}: {} and {}", units::size(*size), (self.axis.1)(pair.0), (self.axis.1)(pair.1))
        });
        let description = told.collect::<Vec<_>>().join("; ");
        Some(frame.finish(&format!("{} both {} {label}", matched.title, self.name), description, ""))
    }
}

/// Bandwidths of both runs against size.
#[must_use]
pub fn bandwidths(matched: &Match, level: usize, kind: Kind) -> Option<Plot> {
    let quantity = Quantity {
        name: format!("bandwidth {}", kind.word()),
        title: "bandwidth against size",
        explanation: "Medians of bytes a second, as measured or else the size over the median time; the higher, the faster.",
        axis: ("bandwidth", units::rate),
        of: |pair| pair.bandwidths,
    };
    quantity.draw(matched, level, kind)
}

/// Spans of both runs against size.
#[must_use]
pub fn spans(matched: &Match, level: usize, kind: Kind) -> Option<Plot> {
    let quantity = Quantity {
        name: format!("span {}", kind.word()),
        title: "span against size",
        explanation: "Medians of how long the operation takes as a whole, from the first process' start to the last one's end.",
        axis: ("time", units::time),
        of: |pair| pair.spans_ns,
    };
    quantity.draw(matched, level, kind)
}
