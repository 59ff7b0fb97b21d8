//! What was measured of a machine.

use weir_report::frame::{Entry, Frame, MARKS, Panel, Plot, mark};
use weir_report::scale::{Kind, Scale, Tick};
use weir_report::svg::Path;
use weir_report::units;

use super::{HEIGHT, MARGINS, Margins, SERIES_MAX, area_class, line_class};
use crate::estimate::{Spread, bins};
use crate::params::{By, Machine, Params, Pattern, Relation};
use crate::params_text::Prediction;

/// Panels of a drawing.
const PANELS_MAX: usize = 24;
/// Bins of a histogram.
const BINS: usize = 30;
/// Steps of a curve that are drawn.
const STEPS_MAX: usize = 400;

fn gap(ns_per_byte: f64) -> String {
    format!("{} ns/B", units::number(ns_per_byte))
}

/// The machines that a drawing has room for, evenly taken.
pub fn shown(params: &Params) -> Vec<&Machine> {
    weir_report::order::spread_out(params.machines.iter().collect(), SERIES_MAX)
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// A value with its spread.
struct Point {
    x: f64,
    mean: f64,
    sd: f64,
    words: String,
}

/// Points in a row; `nth` decides over colour and mark.
struct Series {
    nth: usize,
    name: String,
    points: Vec<Point>,
}

/// How a drawing of series is laid out.
struct Layout<'a> {
    name: String,
    title: String,
    explanation: &'a str,
    /// Words of an axis, and of its ticks.
    x: (&'a str, fn(f64) -> String),
    y: (&'a str, fn(f64) -> String),
    kind: Kind,
    /// A dashed line besides.
    model: Option<&'a dyn Fn(f64) -> f64>,
}

/// Series with one standard deviation each way, over an axis that is logarithmic and has a tick at
/// each place.
fn chart(layout: &Layout<'_>, all: &[Series]) -> Plot {
    let points = || all.iter().flat_map(|series| &series.points);
    let mut frame = Frame::new(&layout.title, layout.explanation, HEIGHT, MARGINS);
    let entries =
        all.iter().map(|s| Entry::marked(&line_class(s.nth), MARKS[s.nth % MARKS.len()], &area_class(s.nth), &s.name));
    frame.legend(&entries.collect::<Vec<_>>());
    let (low, high) = bounds(points().map(|point| point.x));
    let x = Scale::new(Kind::Log, low, high, frame.left + 14.0, frame.right - 14.0);
    let ends = layout.model.into_iter().flat_map(|model| [model(low), model(high)]);
    let (least, most) = bounds(points().flat_map(|p| [p.mean, p.mean + p.sd]).chain(ends));
    let least = if layout.kind == Kind::Log { least / 1.3 } else { 0.0 };
    let y = Scale::new(layout.kind, least, most * 1.1, frame.bottom, frame.top);
    let mut places: Vec<f64> = points().map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let ticks: Vec<Tick> = places.iter().map(|place| Tick { at: x.at(*place), text: (layout.x.1)(*place) }).collect();
    frame.x_axis(&ticks, layout.x.0);
    frame.y_axis(&y.ticks(6, layout.y.1), layout.y.0);
    if let Some(model) = layout.model {
        let places = (0..=40).map(|part| x.value_at(f64::from(part) / 40.0));
        let line: Vec<(f64, f64)> = places.map(|place| (x.at(place), y.at(model(place)))).collect();
        frame.canvas.path("line c6 dash", &Path::through(&line));
    }
    all.iter().for_each(|one| draw(&mut frame, (&x, &y), one));
    frame.finish(&layout.name, points().map(|point| point.words.as_str()).collect::<Vec<_>>().join("; "), "")
}

fn draw(frame: &mut Frame, (x, y): (&Scale, &Scale), series: &Series) {
    let at = |point: &Point| (x.at(point.x), y.at(point.mean));
    let line: Vec<(f64, f64)> = series.points.iter().map(at).collect();
    frame.canvas.path(&line_class(series.nth), &Path::through(&line));
    for point in &series.points {
        let (left, top) = at(point);
        let mut sign = Path::new();
        mark(&mut sign, MARKS[series.nth % MARKS.len()], left, top);
        frame.canvas.path(&area_class(series.nth), &sign);
        let ends = (y.at(point.mean - point.sd), y.at(point.mean + point.sd));
        let class = line_class(series.nth).replacen("line", "thin", 1);
        frame.canvas.line(&class, (left, ends.0), (left, ends.1));
        frame.canvas.hint(left, top, &point.words);
    }
}

/// A series for each primitive and pattern, of what `points` makes of its relations.
fn by_pattern(machine: &Machine, points: impl Fn(Vec<&Relation>) -> Vec<Point>) -> Vec<Series> {
    let kinds = By::ALL.into_iter().flat_map(|by| Pattern::ALL.map(|pattern| (by, pattern)));
    let series = kinds.enumerate().map(|(nth, (by, pattern))| {
        let of = machine.relations.iter().filter(|relation| (relation.by, relation.pattern) == (by, pattern));
        Series { nth, name: format!("{}, {}", pattern.words(), by.name()), points: points(of.collect()) }
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

fn size(bytes: f64) -> String {
    units::size(bytes.round() as u64)
}

/// What a relation is, for people.
fn told(relation: &Relation) -> String {
    let (h, block) = (units::size(relation.wanted_bytes), units::size(relation.block_bytes));
    format!("{} of {h}, {} of {block}", relation.pattern.words(), relation.by.name())
}

/// Times of supersteps against h, by pattern, in the largest blocks.
pub fn times(machine: &Machine) -> Plot {
    let all = by_pattern(machine, |mut relations| {
        relations.sort_by_key(|relation| (relation.wanted_bytes, std::cmp::Reverse(relation.block_bytes)));
        relations.dedup_by_key(|relation| relation.wanted_bytes);
        let point = |relation: &Relation| {
            let t = Spread::of(&relation.samples.iter().map(|sample| sample.1).collect::<Vec<_>>());
            let words = format!("{}: {} ± {}", told(relation), units::time(t.mean), units::time(t.sd));
            Point { x: relation.wanted_bytes as f64, mean: t.mean, sd: t.sd, words }
        };
        relations.into_iter().map(point).collect()
    });
    let costs = machine.costs();
    let model = |h| costs.superstep_ns(0, h as u64);
    let layout = Layout {
        name: format!("times-{}", machine.p),
        title: format!("Time against h, p = {}", machine.p),
        explanation: "Mean times of supersteps with one standard deviation each way, in the largest blocks. The dashed line is h g + l.",
        x: ("h", size),
        y: ("time", units::time),
        kind: Kind::Log,
        model: Some(&model),
    };
    chart(&layout, &all)
}

/// g against the length of puts, by pattern, with the largest h.
pub fn blocks(machine: &Machine) -> Plot {
    let wanted = machine.relations.iter().map(|relation| relation.wanted_bytes).max().unwrap_or(0);
    let all = by_pattern(machine, |mut relations| {
        relations.retain(|relation| relation.wanted_bytes == wanted);
        relations.sort_by_key(|relation| relation.block_bytes);
        let point = |relation: &Relation| {
            let g = Spread::of(&machine.gaps(relation));
            let words = format!("{}: {}", told(relation), gap(g.mean));
            Point { x: relation.block_bytes as f64, mean: g.mean, sd: g.sd, words }
        };
        // Below l there is no place on a logarithmic axis.
        relations.into_iter().map(point).filter(|point| point.mean > 0.0).collect()
    });
    let title = format!("g against the length of puts and messages, p = {}", machine.p);
    if all.is_empty() {
        return Frame::empty("blocks", &title, "No superstep took longer than l.");
    }
    let layout = Layout {
        name: format!("blocks-{}", machine.p),
        title,
        explanation: "Mean of (time - l) / h with the largest h, with one standard deviation each way.",
        x: ("bytes of a put or message", size),
        y: ("g, ns a byte", units::number),
        kind: Kind::Log,
        model: None,
    };
    chart(&layout, &all)
}

/// Histograms of l, g and s, a row for each number of processes.
pub fn histograms(params: &Params) -> Plot {
    let explanation = "How often which value was measured: of each superstep (l, g), of each process and repetition (s). The greatest hundredth is left out.";
    let mut frame = Frame::new("Spread of the parameters", explanation, 0.0, Margins { left: 14.0, right: 14.0 });
    let machines: Vec<&Machine> = shown(params).into_iter().take(PANELS_MAX / 3).collect();
    let (panels, taken) = Panel::grid(&frame, machines.len() * 3, 3, 90.0, 8.0);
    frame.grow(taken);
    let mut told = Vec::new();
    for (machine, row) in machines.iter().zip(panels.chunks(3)) {
        let words: [fn(f64) -> String; 3] = [units::time, gap, |ops| format!("{} Mop/s", units::number(ops / 1e6))];
        for (((name, values), words), panel) in machine.spreads().into_iter().zip(words).zip(row) {
            let name = name.split('_').next().unwrap_or(name);
            let spread = Spread::of(&values);
            panel.heading(
                &mut frame.canvas,
                &format!("{name}, p = {}", machine.p),
                &format!("{} ± {:.0} %", words(spread.mean), spread.sd_percent()),
            );
            histogram(&mut frame, panel, &values, words);
            told.push(format!("{name}, p = {}: {}", machine.p, words(spread.mean)));
        }
    }
    frame.finish("histograms", told.join("; "), "")
}

fn histogram(frame: &mut Frame, panel: &Panel, values: &[f64], words: fn(f64) -> String) {
    let Some(bins) = bins(values, BINS) else { return };
    let end = bins.start + bins.width * bins.counts.len() as f64;
    let x = Scale::new(Kind::Linear, bins.start, end, panel.left, panel.right);
    panel.x_ticks(&mut frame.canvas, &x.ticks(2, words));
    let most = bins.counts.iter().copied().max().unwrap_or(1).max(1);
    for (from, to, count) in bins.iter().filter(|bin| bin.2 > 0) {
        let tall = count as f64 / most as f64 * (panel.bottom - panel.top - 4.0);
        let (left, right) = (x.at(from), x.at(to));
        frame.canvas.rect("f0", left + 0.5, panel.bottom - tall, (right - left - 1.0).max(0.5), tall);
        let text = format!("{count} of {} from {} on", values.len(), words(from));
        frame.canvas.hint(f64::midpoint(left, right), panel.bottom - tall, &text);
    }
}

/// Edge curves of all numbers of processes, one over the other.
pub fn edges(params: &Params) -> Plot {
    let explanation = "The distribution of g of one edge: the p-th root of the measured one (total exchange, largest h). Curves that coincide: processes do not disturb each other. Curves that drift to the right: they do.";
    let mut frame = Frame::new("Edges", explanation, HEIGHT + 40.0, MARGINS);
    let machines = shown(params);
    let edges: Vec<_> = machines.iter().map(|machine| (machine.p, machine.edge())).collect();
    let entries = edges.iter().enumerate().map(|(nth, (p, _))| Entry::line(&line_class(nth), &format!("p = {p}")));
    frame.legend(&entries.collect::<Vec<_>>());
    // Up to where the slowest twentieth of what was measured begins: what lies beyond would leave
    // no room for the rest.
    let ends = machines.iter().zip(&edges).filter_map(|(machine, (_, edge))| {
        let far = weir_superstep::variance::edge_from_slowest(0.95, machine.p);
        edge.steps().find(|step| step.1 >= far).map(|step| step.0)
    });
    let least = edges.iter().filter_map(|(_, edge)| edge.steps().next()).map(|step| step.0);
    let (low, high) = bounds(least.chain(ends));
    let x = Scale::new(Kind::Linear, low, high, frame.left, frame.right);
    let y = Scale::new(Kind::Linear, 0.0, 1.0, frame.bottom, frame.top);
    frame.x_axis(&x.ticks(6, units::number), "g, ns a byte");
    frame.y_axis(&y.ticks(5, units::number), "part of edges");
    let mut told = Vec::new();
    for (nth, (p, edge)) in edges.iter().enumerate() {
        let steps: Vec<(f64, f64)> = edge.steps().filter(|step| step.0 <= high).collect();
        let kept = weir_report::order::spread_out(steps, STEPS_MAX);
        let line: Vec<(f64, f64)> = kept.iter().map(|(value, part)| (x.at(*value), y.at(*part))).collect();
        frame.canvas.path(&line_class(nth), &Path::stairs(&line));
        let spread = edge.spread();
        told.push(format!("p = {p}: mean {}, sd {}", gap(spread.mean), gap(spread.sd)));
        if let Some((left, top)) = line.get(line.len() / 2) {
            frame.canvas.hint(*left, *top, told.last().map_or("", String::as_str));
        }
    }
    let distances =
        edges.windows(2).map(|two| format!("p = {} and {}: {:.2}", two[0].0, two[1].0, two[0].1.distance(&two[1].1)));
    let distances: Vec<String> = distances.collect();
    let note = if distances.is_empty() {
        String::new()
    } else {
        format!("Greatest difference of two curves (Kolmogorov, Smirnov): {}.", distances.join("; "))
    };
    frame.finish("edges", told.join("; "), &note)
}

/// g against p: measured, and predicted from the edges of the smallest p.
pub fn growth(params: &Params, predictions: &[Prediction]) -> Option<Plot> {
    let first = params.machines.first()?.p;
    let is_shown = |one: &&Prediction| one.from == first || params.of(one.costs.p).is_none();
    let predicted = predictions.iter().filter(is_shown).map(|one| {
        let (p, g) = (one.costs.p, one.costs.g_ns_per_byte);
        let words = format!("p = {p}: predicted {} from p = {}", gap(g), one.from);
        Point { x: f64::from(p), mean: g, sd: 0.0, words }
    });
    let mut predicted: Vec<Point> = predicted.collect();
    if predicted.is_empty() {
        return None;
    }
    predicted.sort_by(|a, b| a.x.total_cmp(&b.x));
    let measured = params.machines.iter().map(|machine| {
        let g = machine.g_ns_per_byte();
        let words = format!("p = {}: measured {}", machine.p, gap(g.mean));
        Point { x: f64::from(machine.p), mean: g.mean, sd: g.sd, words }
    });
    let measured = Series { nth: 0, name: "measured".into(), points: measured.collect() };
    let layout = Layout {
        name: "growth".into(),
        title: "g of larger machines".into(),
        explanation: "g as measured, with one standard deviation each way, and as the edges of smaller p predict it.",
        x: ("processes", units::number),
        y: ("g, ns a byte", units::number),
        kind: Kind::Linear,
        model: None,
    };
    Some(chart(&layout, &[measured, Series { nth: 1, name: "predicted".into(), points: predicted }]))
}
