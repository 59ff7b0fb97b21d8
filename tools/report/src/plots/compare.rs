//! Plots of two runs against each other.

use super::{Detail, pooled, pooled_value, spread_out, stretches};
use crate::compare::{Match, Pair, Verdict};
use crate::curve::common_scale;
use crate::digest::{Digest, Point};
use crate::frame::{Entry, Frame, MARKS, Margins, Mark, Panel, Plot, mark};
use crate::reading::ENOUGH;
use crate::scale::{Kind, Scale, Sizes};
use crate::style::CATEGORY_COUNT;
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 76.0, right: 30.0 };

/// Classes of the lines of the first and the second run: they differ in dash, not in colour alone.
const RUNS: [&str; 2] = ["line c0", "line dash c1"];

/// Ratio of times, second over first, with its interval against size; a line for each level.
#[must_use]
pub fn ratios(matched: &Match) -> Plot {
    let title = format!("{}: time of the second run over the first", matched.title);
    let explanation = "Below 1 the second is faster. Bars are 95 % intervals; the pale band is what the clocks of both runs may account for; hollow marks are cells without a difference.";
    let mut frame = Frame::new(&title, explanation, 240.0, MARGINS);
    let levels: Vec<usize> = spread_out((0..matched.levels.len()).collect(), 6);
    let entries = levels.iter().enumerate().map(|(i, l)| {
        let c = i % CATEGORY_COUNT;
        Entry::marked(&format!("line d2 c{c}"), MARKS[i % 3], &format!("f{c}"), &matched.levels[*l].label())
    });
    frame.legend(&entries.collect::<Vec<_>>());
    let pairs = |level: usize| {
        matched.pairs.iter().filter(move |p| p.level == level && p.ratio > 0.0 && p.interval.1.is_finite())
    };
    let mut sizes: Vec<u64> = matched.pairs.iter().map(|p| p.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let drawn: Vec<&Pair> = levels.iter().flat_map(|l| pairs(*l)).collect();
    let (low, high) = span(&drawn);
    let height = Scale::new(Kind::Log, low, high, frame.bottom, frame.top);
    let axis = Sizes::new(&sizes, frame.left + 24.0, frame.right - 24.0);
    frame.x_axis(&axis.ticks(9), "message size");
    frame.y_axis(&height.ticks(6, |v| format!("{} ×", units::number(v))), "second / first");
    // One band at each size, that of the level with the largest error: bands over each other would look like more.
    let width = (axis.pitch() * 0.8).min(34.0);
    for size in &sizes {
        let parts = drawn.iter().filter(|p| p.size_bytes == *size && p.clock_error_ns > 0.0 && p.centres_ns.0 > 0.0);
        let part = parts.map(|p| p.clock_error_ns / p.centres_ns.0).fold(0.0, f64::max);
        if part > 0.0 {
            let (y, x) = (height.at(1.0 + part), axis.at(*size));
            frame.canvas.rect("band f6", x - width / 2.0, y, width, height.at((1.0 - part).max(1e-6)) - y);
        }
    }
    frame.canvas.line("axis", (frame.left, height.at(1.0)), (frame.right, height.at(1.0)));
    for (i, level) in levels.iter().enumerate() {
        draw_ratios(&mut frame, &pairs(*level).collect::<Vec<_>>(), (&axis, &height), (i, levels.len()));
    }
    let description =
        matched.pairs.iter().map(|p| format!("{}: {p}", units::size(p.size_bytes))).collect::<Vec<_>>().join("; ");
    let beyond = drawn.iter().filter(|p| p.interval.0 < low || p.interval.1 > high).count();
    let note = match beyond {
        0 => String::new(),
        n => format!(
            "{} beyond the axis, where an arrow is.",
            units::plural(n as u64, "interval") + units::verb(n, " goes on", " go on")
        ),
    };
    frame.finish(&format!("{} ratio", matched.title), description, &note)
}

/// How many times farther than the estimates an axis of ratios reaches for the sake of their intervals.
const REACH: f64 = 10.0;

/// Both ends of an axis of ratios: it holds 1, the estimates and their intervals; but two launches that differ may leave a ratio open by powers of ten,
/// which would squeeze all others into a line.
fn span(pairs: &[&Pair]) -> (f64, f64) {
    let held = |low: f64, high: f64, p: &Pair| (low.min(p.ratio), high.max(p.ratio));
    let (low, high) = pairs.iter().fold((1.0, 1.0), |(low, high), p| held(low, high, p));
    let reach = |(least, most): (f64, f64), p: &&Pair| {
        (least.min(p.interval.0.max(low / REACH)), most.max(p.interval.1.min(high * REACH)))
    };
    let (low, high) = pairs.iter().fold((low, high), reach);
    // Room at the ends, so that no mark lies on the edge, and for 1 where all is equal.
    let room = (high / low).powf(0.06).max(1.03);
    (low / room, high * room)
}

/// An arrow's head at the end of a bar that goes on beyond the axis.
fn arrow(path: &mut Path, x: f64, y: f64, down: f64) {
    path.to(x - 3.5, y - 6.0 * down).line(x, y).line(x + 3.5, y - 6.0 * down);
}

fn draw_ratios(frame: &mut Frame, pairs: &[&Pair], (axis, height): (&Sizes, &Scale), (i, n): (usize, usize)) {
    // Levels stand side by side, so that their bars do not hide each other.
    let shift = (i as f64 - (n - 1) as f64 / 2.0) * (axis.pitch() * 0.7 / n as f64).min(7.0);
    let colour = i % CATEGORY_COUNT;
    let (mut bars, mut full, mut hollow, mut places) = (Path::new(), Path::new(), Path::new(), Vec::new());
    for pair in pairs {
        let (x, y) = (axis.at(pair.size_bytes) + shift, height.at(pair.ratio));
        let ends = (height.at(pair.interval.0), height.at(pair.interval.1));
        bars.to(x, ends.0).line(x, ends.1);
        let (low, high) = height.range();
        if pair.interval.0 < low {
            arrow(&mut bars, x, ends.0, 1.0);
        }
        if pair.interval.1 > high {
            arrow(&mut bars, x, ends.1, -1.0);
        }
        let shape = MARKS[i % 3];
        let differs = matches!(pair.verdict, Verdict::Faster | Verdict::Slower);
        mark(if differs { &mut full } else { &mut hollow }, shape, x, y);
        places.push((x, y));
    }
    frame.canvas.path(&format!("thin d2 c{colour}"), &Path::through(&places));
    frame.canvas.path(&format!("thin c{colour}"), &bars);
    frame.canvas.path(&format!("f{colour}"), &full);
    frame.canvas.path(&format!("thin ground c{colour}"), &hollow);
    for (pair, (x, y)) in pairs.iter().zip(places) {
        let ratio = |r: f64| if r < 1e-3 { "0".to_owned() } else { units::number(r) };
        let interval = format!("{} × ({} – {})", ratio(pair.ratio), ratio(pair.interval.0), ratio(pair.interval.1));
        frame.canvas.hint(x, y, &format!("{}: {interval}, {pair}", units::size(pair.size_bytes)));
    }
}

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
    let (panels, used) = Panel::grid(&frame, chosen.len(), chosen.len().min(3), 130.0, 36.0);
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
    let mut frame = Frame::new(&title, &explanation, 260.0, Margins { left: 76.0, right: 130.0 });
    let sizes: Vec<u64> = both.iter().map(|p| p.0).collect();
    let axis = Sizes::new(&sizes, frame.left + 14.0, frame.right - 14.0);
    let rows = || both.iter().flat_map(|p| p.1).flat_map(|r| [Some(r.0), r.1]).flatten();
    let low = rows().filter(|v| *v > 0.0 || kind == Kind::Linear).fold(f64::INFINITY, f64::min);
    let high = rows().fold(f64::NEG_INFINITY, f64::max);
    let scale = match kind {
        Kind::Log => Scale::new(kind, low / 1.2, high * 1.2, frame.bottom, frame.top),
        Kind::Linear => Scale::new(kind, low.min(0.0), high * 1.05, frame.bottom, frame.top),
    };
    frame.x_axis(&axis.ticks(8), "message size");
    frame.y_axis(&scale.ticks(6, units::time), "time");
    let mut labels = Vec::new();
    for (i, (run, shape)) in ["first", "second"].into_iter().zip([Mark::Disc, Mark::Square]).enumerate() {
        for (thick, word) in [(false, "p99"), (true, "median")] {
            let value = |p: &BySize| if thick { Some(p.1[i].0) } else { p.1[i].1 };
            let places: Vec<Option<(f64, f64)>> =
                both.iter().map(|p| value(p).map(|v| (axis.at(p.0), scale.at(v)))).collect();
            let class =
                if thick { RUNS[i].to_owned() } else { format!("thin {}c{i}", if i == 1 { "dash " } else { "" }) };
            stretches(&mut frame.canvas, &class, &places);
            labels.extend(places.iter().flatten().last().map(|p| (p.1, format!("f{i}"), format!("{run}, {word}"))));
            let mut marks = Path::new();
            for (p, (x, y)) in both.iter().zip(&places).filter_map(|(p, place)| Some((p, (*place)?))) {
                if thick {
                    mark(&mut marks, shape, x, y);
                }
                let time = value(p).map_or_else(String::new, units::time);
                frame.canvas.hint(x, y, &format!("{}, {run}: {word} {time}", units::size(p.0)));
            }
            frame.canvas.path(&format!("f{i}"), &marks);
        }
    }
    frame.end_labels(labels);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(size_bytes: u64, ratio: f64, interval: (f64, f64)) -> Pair {
        Pair {
            level: 0,
            size_bytes,
            centres_ns: (1000.0, 1000.0 * ratio),
            launches: (5, 5),
            ratio,
            interval,
            p: 0.5,
            p_corrected: 1.0,
            by_launches: true,
            clock_error_ns: 0.0,
            verdict: Verdict::NoDifference,
        }
    }

    #[test]
    fn an_axis_of_ratios_holds_the_intervals() {
        for interval in [(0.743, 1.078), (0.199, 1.105), (0.9, 4.0), (1.1, 1.3), (0.99, 1.01)] {
            let ratio = f64::sqrt(interval.0 * interval.1);
            let (low, high) = span(&[&pair(8, ratio, interval), &pair(64, 1.02, (1.0, 1.04))]);
            assert!(low < interval.0.min(1.0) && high > interval.1.max(1.0), "{interval:?} in {low} to {high}");
            assert!(
                low > 0.85 * interval.0.min(1.0) && high < 1.2 * interval.1.max(1.04),
                "{interval:?} in {low} to {high}"
            );
        }
        assert!(span(&[]).0 < 1.0 && span(&[]).1 > 1.0);
    }

    #[test]
    fn an_interval_that_goes_on_beyond_the_axis_ends_in_an_arrow_and_is_told() {
        let drawn = |pairs: Vec<Pair>| {
            let key = crate::digest::Key {
                operation: "send".into(),
                locality: weir_distribution::Locality::Inter,
                start: weir_distribution::StartSync::None,
                parameters: Default::default(),
            };
            let level = crate::digest::Level { pairs: 1, ranks: 2, nodes: 2, ranks_per_node: 1 };
            ratios(&Match { key, title: "send".into(), profiles: (0, 0), levels: vec![level], pairs })
        };
        let wide = pair(8, 1.2, (1e-6, 1e6));
        let (low, high) = span(&[&wide, &pair(64, 0.8, (0.7, 0.9))]);
        assert!(low > 0.05 && low < 0.08 && high > 12.0 && high < 20.0, "{low} to {high}");
        let plain = drawn(vec![pair(8, 1.2, (1.1, 1.3)), pair(64, 0.8, (0.7, 0.9))]);
        let cut = drawn(vec![wide, pair(64, 0.8, (0.7, 0.9))]);
        assert_eq!(plain.note, "");
        assert_eq!(cut.note, "1 interval goes on beyond the axis, where an arrow is.");
        let bars = |plot: &Plot| {
            let at = plot.body.find("class=\"thin c0\"").expect("bars");
            plot.body[at..].split("/>").next().unwrap_or_default().len()
        };
        assert!(bars(&cut) > bars(&plain) + 20, "two arrows' heads: {}", cut.body);
        assert!(cut.body.contains("8 B: 1.2 × (0 – 1.00e6)"), "and the interval can be read: {}", cut.body);
    }
}
