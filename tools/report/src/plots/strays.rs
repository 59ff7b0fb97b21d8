//! Outliers where and when they happened: a time line with a row for each rank.

use super::parts::{Detail, title};
use crate::digest::{Digest, Period, Profile, Stray};
use crate::frame::{Frame, Margins, Plot};
use crate::scale::{Kind, Scale, Tick};
use crate::svg::Path;
use crate::units;

const MARGINS: Margins = Margins { left: 52.0, right: 20.0 };

/// Launches one after the other on one axis of time, since each has a clock that begins at its
/// origin.
#[derive(Debug, Clone)]
pub struct TimeLine {
    /// (launch, its first instant on its clock, where that lies on the common axis), by launch.
    offsets: Vec<(u32, i64, f64)>,
    /// End of the axis in ns.
    end_ns: f64,
}

impl TimeLine {
    /// The axis that holds all periods and strays.
    #[must_use]
    pub fn new<'a>(periods: &[Period], strays: impl Iterator<Item = &'a Stray>) -> Self {
        let mut ranges: Vec<(u32, i64, i64)> = Vec::new();
        let seen = periods
            .iter()
            .map(|s| (s.launch, s.from_ns, s.to_ns))
            .chain(strays.map(|s| (s.launch, s.start_ns, s.start_ns)));
        for (launch, from, to) in seen {
            match ranges.iter_mut().find(|r| r.0 == launch) {
                Some(range) => *range = (launch, range.1.min(from), range.2.max(to)),
                None => ranges.push((launch, from, to)),
            }
        }
        ranges.sort_unstable();
        let total: f64 = ranges.iter().map(|r| length(r.1, r.2)).sum();
        let gap = 0.02 * total.max(1.0);
        let (mut offsets, mut at) = (Vec::new(), 0.0);
        for (launch, from, to) in ranges {
            offsets.push((launch, from, at));
            at += length(from, to) + gap;
        }
        Self { offsets, end_ns: (at - gap).max(1.0) }
    }

    /// Where an instant of a launch lies on the axis, in ns.
    #[must_use]
    pub fn at(&self, launch: u32, instant_ns: i64) -> f64 {
        self.offsets.iter().find(|o| o.0 == launch).map_or(0.0, |o| o.2 + length(o.1, instant_ns))
    }

    /// The scale of the axis.
    #[must_use]
    pub fn scale(&self, from: f64, to: f64) -> Scale {
        Scale::new(Kind::Linear, 0.0, self.end_ns, from, to)
    }

    /// What the axis is called.
    #[must_use]
    pub fn label(&self) -> String {
        match self.offsets.len() {
            0 | 1 => "time since the first sample".into(),
            n => format!("time measured, {n} launches one after the other"),
        }
    }

    /// Draws where each further launch begins.
    pub fn borders(&self, frame: &mut Frame, scale: &Scale) {
        for offset in self.offsets.iter().skip(1) {
            let x = scale.at(offset.2);
            frame.canvas.line("thin c6 dash", (x, frame.top), (x, frame.bottom));
        }
    }
}

/// Nanoseconds between two instants, whatever they are: a hostile file may hold any.
fn length(from: i64, to: i64) -> f64 {
    (to as f64 - from as f64).max(0.0)
}

/// Outliers of the whole run.
#[must_use]
pub fn of_run(digest: &Digest, detail: &Detail) -> Option<Plot> {
    let strays: Vec<Stray> = digest.profiles.iter().flat_map(|p| p.strays.iter().copied()).collect();
    let all = digest.profiles.iter().map(|p| p.stray_count).sum();
    draw("outliers", "Outliers on the time line, all operations", &digest.periods, strays, all, detail)
}

/// Outliers of one operation.
#[must_use]
pub fn of_profile(profile: &Profile, detail: &Detail) -> Option<Plot> {
    let name = format!("{} outliers", profile.title);
    draw(
        &name,
        &title(profile, "outliers on the time line"),
        &profile.periods,
        profile.strays.clone(),
        profile.stray_count,
        detail,
    )
}

/// Classes of how far out: least factor, colour, words.
const CLASSES: [(f64, &str, f64, &str); 3] = [
    (100.0, "f1", 4.2, "at 100 times the median or more (largest marks)"),
    (10.0, "f4", 3.0, "at 10 to 100 times"),
    (0.0, "f0", 2.0, "below"),
];

fn draw(
    name: &str,
    title: &str,
    periods: &[Period],
    mut strays: Vec<Stray>,
    all: u64,
    detail: &Detail,
) -> Option<Plot> {
    if strays.is_empty() {
        return None;
    }
    strays.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    strays.truncate(detail.strays);
    let line = TimeLine::new(periods, strays.iter());
    let mut ranks: Vec<u32> = strays.iter().map(|s| s.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let inner = (ranks.len() as f64 * 18.0).clamp(90.0, 260.0);
    let explanation = "Samples beyond the outlier boundary, at the rank that timed them. Columns are events that hit many ranks at once, rows a rank that is slow.";
    let mut frame = Frame::new(title, explanation, inner, MARGINS);
    let scale = line.scale(frame.left, frame.right);
    let pitch = inner / ranks.len() as f64;
    let rank_at = |rank: u32| frame_row(&ranks, rank, pitch);
    frame.x_axis(&scale.ticks(7, units::time), &line.label());
    let skip = ranks.len().div_ceil(16);
    let ticks: Vec<Tick> =
        ranks.iter().step_by(skip.max(1)).map(|r| Tick { at: frame.top + rank_at(*r), text: format!("{r}") }).collect();
    frame.y_axis(&ticks, "rank");
    line.borders(&mut frame, &scale);
    let mut counts = [0u32; CLASSES.len()];
    for (i, class) in CLASSES.iter().enumerate().rev() {
        let mut path = Path::new();
        for stray in strays.iter().filter(|s| class_of(s.factor) == i) {
            let (x, y) = (scale.at(line.at(stray.launch, stray.start_ns)), frame.top + rank_at(stray.rank));
            let r = class.2;
            path.to(x, y - r).line(x + r, y).line(x, y + r).line(x - r, y).close();
            counts[i] += 1;
        }
        frame.canvas.path(class.1, &path);
    }
    let mut rings = Path::new();
    for stray in strays.iter().filter(|s| s.moved) {
        let (x, y) = (scale.at(line.at(stray.launch, stray.start_ns)), frame.top + rank_at(stray.rank));
        rings.to(x - 5.0, y - 5.0).across(10.0).down(10.0).across(-10.0).close();
    }
    frame.canvas.path("ring c3", &rings);
    for stray in strays.iter().take(120) {
        let (x, y) = (scale.at(line.at(stray.launch, stray.start_ns)), frame.top + rank_at(stray.rank));
        let text = format!(
            "rank {}: {}, {} × the median{}",
            stray.rank,
            units::time(stray.duration_ns),
            units::number(stray.factor),
            if stray.moved { "; it or its partner changed the processor then" } else { "" }
        );
        frame.canvas.hint(x, y, &text);
    }
    let legend: Vec<String> = CLASSES.iter().zip(counts).map(|(c, n)| format!("{n} {}", c.3)).collect();
    let shown = strays.len() as u64;
    let left_out = if shown < all {
        format!(" The {} largest of {} are drawn.", units::count(shown), units::count(all))
    } else {
        String::new()
    };
    let moved = match strays.iter().filter(|s| s.moved).count() {
        0 => String::new(),
        n => format!(" In a box: {n} in a batch in which the rank or its partner changed the processor."),
    };
    let note = format!("{}, {}, {}.{moved}{left_out}", legend[0], legend[1], legend[2]);
    Some(frame.finish(name, note.clone(), &note))
}

fn class_of(factor: f64) -> usize {
    CLASSES.iter().position(|c| factor >= c.0).unwrap_or(CLASSES.len() - 1)
}

/// Middle of the row of a rank, from the upper edge.
fn frame_row(ranks: &[u32], rank: u32, pitch: f64) -> f64 {
    (ranks.binary_search(&rank).unwrap_or(0) as f64 + 0.5) * pitch
}
