//! Fitted families over what was measured, and their parameters against size and level.

use weir_distribution::FitRecord;

use super::parts::{Detail, drawn_levels, name, sentence, setting, title};
use crate::digest::{Point, Profile};
use crate::families::{curve_of, parameter, shape_parameter, words as parameter_words};
use crate::frame::{Entry, Frame, MARKS, Margins, Panel, Plot, mark};
use crate::goodness;
use crate::order::spread_out;
use crate::scale::{Kind, Scale, Sizes, Tick};
use crate::style::CATEGORY_COUNT;
use crate::svg::{Anchor, Path};
use crate::units;

const MARGINS: Margins = Margins { left: 14.0, right: 14.0 };
const BINS: usize = 60;
/// Families drawn beside the chosen one: more curves cannot be told apart.
const NEXT: usize = 2;
/// Most levels in a plot of parameters.
const MOST_LEVELS: usize = 6;

/// Histogram and fits at some sizes of a level; nothing if nothing was fitted to enough samples.
#[must_use]
pub fn overlay(profile: &Profile, level: usize, detail: &Detail) -> Option<Plot> {
    let points: Vec<&Point> =
        profile.at_level(level).filter(|p| p.has_form() && p.sound_fits().next().is_some()).collect();
    let n = points.len();
    let points = spread_out(points, detail.panels);
    if points.is_empty() {
        return None;
    }
    let families = families_of(&points);
    let explanation = format!(
        "{} Histogram of the samples (grey) under the density of the chosen family (thick) and of the two next best (thin); what tests reject is grey and dashed.",
        setting(profile, level)
    );
    let columns = points.len().min(2);
    let mut frame = Frame::new(&title(profile, "fits"), &explanation, 0.0, MARGINS);
    let entry =
        |(i, f): (usize, &String)| Entry::line(&format!("line c{}", i % CATEGORY_COUNT), crate::families::name(f));
    let rejected = points.iter().flat_map(|p| drawn_fits(p)).any(|f| !goodness::rejected_by(f).is_empty());
    let grey = rejected.then(|| Entry::line("line dash d3 c6", "rejected"));
    frame.legend(&families.iter().enumerate().map(entry).chain(grey).collect::<Vec<_>>());
    let (panels, used) = Panel::grid(&frame, points.len(), columns, 110.0, 0.0);
    for (point, panel) in points.iter().zip(&panels) {
        draw_panel(&mut frame, point, panel, &families);
    }
    frame.grow(used - 34.0);
    let described = points.iter().filter_map(|p| {
        let fit = p.sound_choice()?;
        Some(format!("{}: {}, {}", units::size(p.size_bytes), parameter_words(fit), goodness::verdict(p, fit)))
    });
    let description = described.collect::<Vec<_>>().join("; ");
    let sizes = if points.len() < n { format!("{} of {n} fitted sizes. ", points.len()) } else { String::new() };
    let launches = if points.iter().any(|p| p.has_launches()) {
        "Histograms of all launches' samples, fits of the first launch that has some. "
    } else {
        ""
    };
    let note = format!(
        "{sizes}{launches}The axis holds the body of the samples; which part of them lies beyond it stands in each panel."
    );
    Some(frame.finish(&name(profile, "fits", level), description, &note))
}

/// The chosen fit and those that come next.
fn drawn_fits(point: &Point) -> Vec<&FitRecord> {
    // The chosen one comes last, over the others.
    goodness::next_best(point, NEXT).into_iter().chain(point.sound_choice()).collect()
}

/// Names of the families that are drawn in colour, in alphabetical order, so that each has one
/// colour in a plot.
fn families_of(points: &[&Point]) -> Vec<String> {
    let sound = points.iter().flat_map(|p| drawn_fits(p)).filter(|f| goodness::rejected_by(f).is_empty());
    let mut all: Vec<String> = sound.map(|f| f.family.0.clone()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn draw_panel(frame: &mut Frame, point: &Point, panel: &Panel, families: &[String]) {
    let chosen = point.sound_choice();
    // Short enough for half of the sheet; the parameters are in the table and beside the pointer.
    let family = chosen.map_or("no family chosen", |fit| crate::families::name(fit.family.as_str()));
    let heading = format!("{}: {family}", units::size(point.size_bytes));
    let verdict = chosen.map_or_else(String::new, |fit| goodness::verdict(point, fit));
    panel.heading(&mut frame.canvas, &heading, &verdict);
    let (low, high, beyond) = goodness::body(point);
    let (scale, bins) = goodness::binned(low, high, point.tick_ns, BINS);
    let (low, high) = scale.range();
    let scale = Scale::new(Kind::Linear, low, high, panel.left, panel.right);
    let width = (high - low) / bins as f64;
    let most = draw_histogram(frame, point, panel, (&scale, bins));
    let height = Scale::new(Kind::Linear, 0.0, most, panel.bottom, panel.top);
    panel.x_ticks(&mut frame.canvas, &scale.ticks(3, units::time));
    for fit in drawn_fits(point) {
        let Some(curve) = curve_of(fit, low, high, 2 * BINS) else { continue };
        let colour = families.iter().position(|f| *f == fit.family.0).unwrap_or(0) % CATEGORY_COUNT;
        let places: Vec<(f64, f64)> = curve.iter().map(|(x, d)| (scale.at(*x), height.at(*d))).collect();
        let class = match (fit.chosen, goodness::rejected_by(fit).is_empty()) {
            (true, true) => format!("line thick c{colour}"),
            // It is the best of those that were tried, and no description of the samples.
            (true, false) => "line thick dash d3 c6".to_owned(),
            (false, true) => format!("thin d3 c{colour}"),
            (false, false) => "thin dash d1 c6".to_owned(),
        };
        frame.canvas.path(&class, &Path::through(&places));
    }
    if beyond * point.curve.count() >= 0.5 {
        let text = format!("{} % beyond", units::number((beyond * 1000.0).round() / 10.0));
        frame.canvas.text("small muted", panel.right, panel.top + 10.0, Anchor::End, &text);
    }
    if let Some(fit) = chosen {
        let tests = goodness::TESTS.map(|(name, word)| format!("{word} {}", goodness::test_words(fit, name)));
        let why = fit.reason.as_ref().map_or_else(String::new, |r| format!("; {r}"));
        let bound = if fit.at_bound { "; its location is at a bound of the search" } else { "" };
        let text = format!(
            "{}: {}; {}{bound}{why}; bins of {}",
            units::size(point.size_bytes),
            parameter_words(fit),
            tests.join(", "),
            units::time(width)
        );
        frame.canvas.hint(f64::midpoint(panel.left, panel.right), f64::midpoint(panel.top, panel.bottom), &text);
    }
}

/// Draws the samples as an area; returns the density at the panel's upper edge.
fn draw_histogram(frame: &mut Frame, point: &Point, panel: &Panel, (scale, bins): (&Scale, usize)) -> f64 {
    let (low, high) = scale.range();
    let width = (high - low) / bins as f64;
    let mut counts = point.curve.histogram(scale, bins);
    // What lies beyond would stand at the edges as if it belonged there.
    if let Some(first) = counts.first_mut() {
        *first = (*first - point.curve.at_most(low)).max(0.0);
    }
    if let Some(last) = counts.last_mut() {
        *last = (*last - (point.curve.count() - point.curve.at_most(high))).max(0.0);
    }
    let densities: Vec<f64> = counts.iter().map(|c| c / point.curve.count() / width).collect();
    // A density may go to infinity at its location: the histogram says how high the panel is.
    let most = densities.iter().copied().fold(f64::MIN_POSITIVE, f64::max) * 1.25;
    let height = Scale::new(Kind::Linear, 0.0, most, panel.bottom, panel.top);
    let mut outline = Path::new();
    outline.to(panel.left, panel.bottom);
    for (i, density) in densities.iter().enumerate() {
        let (x0, x1) = (scale.at(low + i as f64 * width), scale.at(low + (i + 1) as f64 * width));
        outline.line(x0, height.at(*density)).line(x1, height.at(*density));
    }
    outline.line(panel.right, panel.bottom).close();
    frame.canvas.path("band f6", &outline);
    frame.canvas.path("thin c6 d2", &outline);
    most
}

/// What is drawn of a fit: its name, its value, how that is written, and the least that is told
/// apart from nothing.
type Parameter = (&'static str, fn(&FitRecord) -> Option<f64>, fn(f64) -> String, f64);

/// Times below a nanosecond are nothing: on a logarithmic axis they would take decades, and all
/// others lie in the rest.
const LEAST_NS: f64 = 1.0;

/// Location, scale and shape of one family against size, a line for each level; nothing unless the
/// family was fitted at two points at least.
#[must_use]
pub fn parameters(profile: &Profile, detail: &Detail) -> Option<Plot> {
    let family = commonest(profile)?;
    let levels = spread_out(drawn_levels(profile, detail), MOST_LEVELS);
    let fits = |level: usize| -> Vec<(&Point, &FitRecord)> {
        profile.at_level(level).filter_map(|p| Some((p, p.sound_choice().filter(|f| f.family.0 == family)?))).collect()
    };
    if levels.iter().map(|l| fits(*l).len()).sum::<usize>() < 2 || profile.sizes.len() < 2 {
        return None;
    }
    let columns: [Parameter; 3] = [
        ("location (the floor)", |f| Some(f.location_ns), units::time, LEAST_NS),
        ("scale", |f| parameter(f, "scale_ns").or_else(|| parameter(f, "mu").map(f64::exp)), units::time, LEAST_NS),
        ("shape", shape_parameter, units::number, f64::MIN_POSITIVE),
    ];
    let explanation = format!(
        "{}. The family chosen most often here is {}; a line for each level of contention, through the sizes where it was chosen. A falling shape of Pearson 5 means a longer tail.",
        sentence(&profile.key.qualities()),
        crate::families::name(&family)
    );
    let mut frame = Frame::new(&title(profile, "parameters of the fits"), &explanation, 0.0, MARGINS);
    let entry = |(i, level): (usize, &usize)| {
        let c = i % CATEGORY_COUNT;
        let label = profile.levels[*level].label();
        Entry::marked(&format!("thin c{c}"), MARKS[i % 3], &format!("f{c}"), &label)
    };
    frame.legend(&levels.iter().enumerate().map(entry).collect::<Vec<_>>());
    let (panels, used) = Panel::grid(&frame, columns.len(), 2, 120.0, 48.0);
    let (mut description, mut hollow, mut nothing) = (Vec::new(), 0, 0);
    for ((what, value, words, least), panel) in columns.into_iter().zip(&panels) {
        let one = |(p, f): (&Point, &FitRecord)| {
            let rejected = !goodness::rejected_by(f).is_empty();
            Some(Value { size: p.size_bytes, value: value(f).filter(|v| v.is_finite())?, rejected })
        };
        let lines: Vec<Vec<Value>> = levels.iter().map(|l| fits(*l).into_iter().filter_map(one).collect()).collect();
        hollow += lines.iter().flatten().filter(|v| v.rejected).count();
        nothing += lines.iter().flatten().filter(|v| v.value < least).count();
        description.push(draw_parameter(&mut frame, panel, &profile.sizes, (what, words, least), &lines));
    }
    frame.grow(used - 34.0);
    let mut note = String::new();
    if hollow > 0 {
        note += " Hollow marks: tests reject the fit.";
    }
    if nothing > 0 {
        note += " What is less than a nanosecond stands at the lower edge of a logarithmic axis.";
    }
    Some(frame.finish(&format!("{} parameters", profile.title), description.join("; "), note.trim_start()))
}

/// A parameter at a size.
struct Value {
    size: u64,
    value: f64,
    rejected: bool,
}

fn draw_parameter(
    frame: &mut Frame,
    panel: &Panel,
    sizes: &[u64],
    (what, words, least): (&str, fn(f64) -> String, f64),
    lines: &[Vec<Value>],
) -> String {
    panel.heading(&mut frame.canvas, what, "against message size");
    let values = || lines.iter().flatten().map(|v| v.value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if !low.is_finite() {
        return format!("{what}: none");
    }
    let (kind, from) = axis_of(values(), least);
    let room = if kind == Kind::Log { 0.0 } else { 0.08 * (high - low) };
    let height = Scale::new(kind, from - room, high + room, panel.bottom, panel.top + 12.0);
    let axis = Sizes::new(sizes, panel.left + 10.0, panel.right - 10.0);
    panel.y_ticks(&mut frame.canvas, &height.ticks(4, words));
    let ticks: Vec<Tick> = axis.ticks(4);
    panel.x_ticks(&mut frame.canvas, &ticks);
    for (i, line) in lines.iter().enumerate() {
        let places: Vec<(f64, f64)> = line.iter().map(|v| (axis.at(v.size), height.at(v.value.max(from)))).collect();
        let colour = i % CATEGORY_COUNT;
        frame.canvas.path(&format!("thin c{colour}"), &Path::through(&places));
        let (mut full, mut hollow) = (Path::new(), Path::new());
        for ((x, y), v) in places.into_iter().zip(line) {
            mark(if v.rejected { &mut hollow } else { &mut full }, MARKS[i % 3], x, y);
            let rejected = if v.rejected { ", of a fit that tests reject" } else { "" };
            frame.canvas.hint(x, y, &format!("{}: {what} {}{rejected}", units::size(v.size), words(v.value)));
        }
        frame.canvas.path(&format!("f{colour}"), &full);
        frame.canvas.path(&format!("thin ground c{colour}"), &hollow);
    }
    format!("{what} from {} to {}", words(low), words(high))
}

/// The axis for these values, and where it begins: logarithmic where those that are more than
/// nothing differ much; those that are nothing stand at its lower edge then.
fn axis_of(values: impl Iterator<Item = f64> + Clone, least: f64) -> (Kind, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let something = values.filter(|v| *v >= least).fold(f64::INFINITY, f64::min);
    if high > 8.0 * something {
        // A decade below, so that nothing is seen to be less.
        (Kind::Log, if low < least { something / 10.0 } else { something })
    } else {
        (Kind::Linear, low)
    }
}

/// The family chosen most often that has a shape; of several the first by name.
fn commonest(profile: &Profile) -> Option<String> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for fit in profile.points.values().filter_map(Point::sound_choice).filter(|f| shape_parameter(f).is_some()) {
        *counts.entry(fit.family.as_str()).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts.into_iter().find(|c| c.1 == most).map(|c| c.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_near_nothing_does_not_stretch_a_logarithmic_axis() {
        let axis = |values: &[f64]| axis_of(values.iter().copied(), LEAST_NS);
        assert_eq!(axis(&[1000.0, 2000.0, 90_000.0]), (Kind::Log, 1000.0));
        assert_eq!(axis(&[1e-6, 1000.0, 90_000.0]), (Kind::Log, 100.0));
        assert_eq!(axis(&[-3.0, 1000.0, 90_000.0]), (Kind::Log, 100.0));
        assert_eq!(axis(&[1000.0, 2000.0]), (Kind::Linear, 1000.0));
        assert_eq!(axis(&[0.2, 0.9]), (Kind::Linear, 0.2));
    }
}
