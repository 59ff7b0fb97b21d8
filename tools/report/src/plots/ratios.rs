//! The ratio of two runs' times against size.

use crate::compare::{Match, Pair, Verdict};
use crate::frame::{Entry, Frame, MARKS, Margins, Plot, mark};
use crate::order::spread_out;
use crate::scale::{Kind, Scale, Sizes};
use crate::style::CATEGORY_COUNT;
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 74.0, right: 24.0 };

/// Ratio of times, second over first, with its interval against size; a line for each level.
#[must_use]
pub fn ratios(matched: &Match) -> Plot {
    let title = format!("{}: time of the second run over the first", matched.title);
    let explanation = "Below 1 the second is faster. Bars are 95 % intervals; the pale band is what the clocks of both runs may account for; hollow marks are cells without a difference.";
    let mut frame = Frame::new(&title, explanation, 220.0, MARGINS);
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
    let axis = Sizes::new(&sizes, frame.left + 16.0, frame.right - 16.0);
    frame.x_axis(&axis.ticks(9), "message size");
    frame.y_axis(&height.ticks(6, |v| format!("{} ×", units::number(v))), "second / first");
    // One band at each size, that of the level with the largest error: bands over each other would
    // look like more.
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

/// How many times farther than the estimates an axis of ratios reaches for the sake of their
/// intervals.
const REACH: f64 = 10.0;

/// Both ends of an axis of ratios: it holds 1, the estimates and their intervals; but two launches
/// that differ may leave a ratio open by powers of ten, which would squeeze all others into a line.
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
            spans_ns: None,
            bandwidths: None,
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
            let level = crate::digest::Level { pairs: 1, ranks: 2, nodes: 2, ranks_per_node: 1, threads: 0 };
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
