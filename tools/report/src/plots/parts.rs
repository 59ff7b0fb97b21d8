//! What plots share: how fine they are, their titles, names and words.

use crate::digest::{Point, Profile};
use crate::notes::moved_ranks;
use crate::scale::Tick;
use crate::svg::{Anchor, Canvas, Path};
use crate::{order, style, units};

/// How fine plots are drawn: bounds the size of a page, whatever the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// Points of a cumulative curve.
    pub curve: usize,
    /// Places along a ridge.
    pub ridge: usize,
    /// Rows of the density behind lines.
    pub density: usize,
    /// Panels of fits.
    pub panels: usize,
    /// Levels that get plots of their own.
    pub levels: usize,
    /// Marks on a time line.
    pub strays: usize,
}

impl Detail {
    /// From the finest to the coarsest.
    pub const STEPS: [Self; 4] = [
        Self { curve: 110, ridge: 130, density: 120, panels: 6, levels: 12, strays: 1500 },
        Self { curve: 70, ridge: 80, density: 80, panels: 6, levels: 4, strays: 600 },
        Self { curve: 45, ridge: 50, density: 50, panels: 3, levels: 2, strays: 200 },
        Self { curve: 30, ridge: 32, density: 30, panels: 3, levels: 1, strays: 60 },
    ];
}

/// Most lines in one plot of curves: more cannot be told apart.
pub const MAX_LINES: usize = 9;

/// Which levels get plots of their own: all, or the lowest and the highest and some between, and
/// the one shown first.
#[must_use]
pub fn drawn_levels(profile: &Profile, detail: &Detail) -> Vec<usize> {
    order::drawn_levels(&profile.cells(), detail.levels)
}

/// Title of a plot of one level.
pub fn title(profile: &Profile, what: &str) -> String {
    format!("{}: {what}", profile.title)
}

/// What is said under the title of a plot of one level.
pub fn setting(profile: &Profile, level: usize) -> String {
    let label = profile.levels.get(level).map(crate::digest::Level::label).unwrap_or_default();
    format!("{label}; {}.", profile.key.qualities())
}

/// Name of a plot of one level: the operation, what is shown, its scale where there are several,
/// the level. Those of comparisons are named so too, with `both` before what is shown.
pub fn name(profile: &Profile, what: &str, level: usize) -> String {
    let label = profile.levels.get(level).map(crate::digest::Level::label).unwrap_or_default();
    format!("{} {what} {label}", profile.title)
}

/// A text with a capital letter at its beginning.
#[must_use]
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The words that tell all about a point, for hovering and for screen readers.
#[must_use]
pub fn words(point: &Point) -> String {
    let row = &point.row;
    let interval = point.interval().map_or_else(String::new, |i| format!(" ({})", i.words()));
    let p99 = if point.knows_p99() { format!("p99 {}, ", units::time(row.p99_ns)) } else { String::new() };
    let launches = point.launch_range().map_or_else(String::new, |(low, high)| {
        let n = point.launch_medians.len();
        format!("; over {n} launches, whose medians are {}", units::range(low, high))
    });
    let moved = match moved_ranks(point) {
        Some(ranks) => format!("; changed the processor meanwhile: {ranks}"),
        None => String::new(),
    };
    format!(
        "{}: minimum {}, median {}{interval}, {p99}maximum {}, {} samples{launches}{moved}",
        units::size(point.size_bytes),
        units::time(row.min_ns),
        units::time(row.p50_ns),
        units::time(row.max_ns),
        units::count(row.count)
    )
}

/// What is said of a curve that holds the samples of several launches, whose quantiles are not
/// those of the tables.
pub fn pooled<'a>(mut points: impl Iterator<Item = &'a Point>) -> &'static str {
    if points.any(Point::has_launches) { " All launches' samples together." } else { "" }
}

/// The same of one value.
pub fn pooled_value(point: &Point) -> &'static str {
    if point.has_launches() { " of all launches' samples" } else { "" }
}

/// Draws a line through places; where one is not known it has a gap.
pub fn stretches(canvas: &mut Canvas, class: &str, places: &[Option<(f64, f64)>]) {
    for stretch in places.split(Option::is_none) {
        let stretch: Vec<(f64, f64)> = stretch.iter().flatten().copied().collect();
        if stretch.len() > 1 {
            canvas.path(class, &Path::through(&stretch));
        }
    }
}

/// Sizes in order of their colours, right of the area.
pub fn size_legend(canvas: &mut Canvas, x: f64, top: f64, sizes: &[u64]) {
    for (i, size) in sizes.iter().enumerate() {
        let y = top + 10.0 + i as f64 * 17.0;
        let step = style::step_of(i, sizes.len());
        canvas.line(&format!("line q{step}"), (x, y - 4.0), (x + 16.0, y - 4.0));
        canvas.text("small", x + 21.0, y, Anchor::Start, &units::size(*size));
    }
}

/// Ticks for shares from 0 to 1.
pub fn share_ticks(at: impl Fn(f64) -> f64) -> Vec<Tick> {
    [0.0, 0.25, 0.5, 0.75, 1.0].map(|s| Tick { at: at(s), text: format!("{:.0} %", s * 100.0) }).to_vec()
}
