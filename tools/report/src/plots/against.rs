//! Lines against message size, which several plots consist of.

use super::parts::stretches;
use crate::frame::{Frame, Margins, Mark, mark};
use crate::scale::{Kind, Scale, Sizes};
use crate::style::LETTER;
use crate::svg::{Path, width_em};

/// What is on the sheet beside its lines.
pub struct Sheet<'a> {
    /// Its title.
    pub title: &'a str,
    /// What is said under the title.
    pub explanation: &'a str,
    /// The vertical axis: what it is of, and how its values are written.
    pub axis: (&'a str, fn(f64) -> String),
    /// How values are spread over it.
    pub kind: Kind,
    /// Room for the labels at the lines' ends.
    pub right: f64,
}

/// A line.
pub struct Line {
    /// What stands at its end.
    pub label: String,
    /// Its class without colour.
    pub class: &'static str,
    /// Its colour among the categories.
    pub colour: usize,
    /// The shape of its marks, if it has some.
    pub mark: Option<Mark>,
    /// Its value at each size, with what is said of it; nothing where it is not known.
    pub values: Vec<(u64, Option<(f64, String)>)>,
}

/// A pale area between two values at each size.
pub struct Band {
    /// Its colour among the categories.
    pub colour: usize,
    /// Size, lower and upper end.
    pub values: Vec<(u64, f64, f64)>,
}

/// The sheet with axes that hold all lines, drawn in their order, the bands behind them; nothing if
/// no line has a value.
pub fn lines(sheet: &Sheet<'_>, lines: &[Line], bands: &[Band]) -> Option<Frame> {
    let values = || lines.iter().flat_map(|l| &l.values);
    let numbers = || {
        let ends = bands.iter().flat_map(|b| &b.values).flat_map(|v| [v.1, v.2]);
        values().filter_map(|v| v.1.as_ref()).map(|v| v.0).chain(ends).filter(|v| v.is_finite())
    };
    values().find(|v| v.1.is_some())?;
    let mut sizes: Vec<u64> = values().map(|v| v.0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let low = numbers().filter(|v| *v > 0.0 || sheet.kind == Kind::Linear).fold(f64::INFINITY, f64::min);
    let high = numbers().fold(f64::NEG_INFINITY, f64::max);
    let scale_of = |from: f64, to: f64| match sheet.kind {
        Kind::Log => Scale::new(Kind::Log, low / 1.2, high * 1.2, from, to),
        Kind::Linear => Scale::new(Kind::Linear, low.min(0.0), high * 1.05, from, to),
    };
    // Room for the ticks' words beside the axis' own.
    let widest = scale_of(0.0, 1.0).ticks(6, sheet.axis.1).iter().map(|t| width_em(&t.text)).fold(0.0, f64::max);
    let margins = Margins { left: 34.0 + widest * LETTER * 1.06, right: sheet.right };
    let mut frame = Frame::new(sheet.title, sheet.explanation, 220.0, margins);
    let scale = scale_of(frame.bottom, frame.top);
    let axis = Sizes::new(&sizes, frame.left + 14.0, frame.right - 14.0);
    frame.x_axis(&axis.ticks(8), "message size");
    frame.y_axis(&scale.ticks(6, sheet.axis.1), sheet.axis.0);
    for band in bands {
        frame.canvas.path(&format!("band f{}", band.colour), &area(&axis, &scale, &band.values));
    }
    let mut labels = Vec::new();
    for line in lines {
        labels.extend(draw(&mut frame, line, &axis, &scale));
    }
    frame.end_labels(labels);
    Some(frame)
}

/// The outline of an area between two values at each size.
pub fn area(axis: &Sizes, scale: &Scale, values: &[(u64, f64, f64)]) -> Path {
    let upper = values.iter().map(|v| (axis.at(v.0), scale.at(v.2)));
    let lower = values.iter().rev().map(|v| (axis.at(v.0), scale.at(v.1)));
    let mut path = Path::through(&upper.chain(lower).collect::<Vec<_>>());
    if values.len() > 1 {
        path.close();
    }
    path
}

/// Draws a line; returns its label with its height.
fn draw(frame: &mut Frame, line: &Line, axis: &Sizes, scale: &Scale) -> Option<(f64, String, String)> {
    let place = |(size, value): &(u64, Option<(f64, String)>)| Some((axis.at(*size), scale.at(value.as_ref()?.0)));
    let places: Vec<Option<(f64, f64)>> = line.values.iter().map(place).collect();
    stretches(&mut frame.canvas, &format!("{} c{}", line.class, line.colour), &places);
    let mut marks = Path::new();
    for ((_, value), (x, y)) in line.values.iter().zip(&places).filter_map(|(v, p)| Some((v, (*p)?))) {
        // What is alone has no line to be seen by.
        if let Some(shape) = line.mark.or((places.len() == 1).then_some(Mark::Disc)) {
            mark(&mut marks, shape, x, y);
        }
        if let Some((_, words)) = value {
            frame.canvas.hint(x, y, words);
        }
    }
    frame.canvas.path(&format!("f{}", line.colour), &marks);
    let last = places.iter().flatten().last()?;
    Some((last.1, format!("f{}", line.colour), line.label.clone()))
}
