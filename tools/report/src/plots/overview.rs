//! The overview: one small picture for each operation, all on the same axes within a family, so
//! that they can be compared at a glance. Of one run time above and bandwidth below, of two the
//! times of both above and their ratio below.

use super::against::area;
use crate::compare::{Comparison, Match, Pair, Verdict};
use crate::digest::{Digest, Point, Profile};
use crate::frame::{Frame, Margins, Mark, Panel, Plot, mark};
use crate::order::{Family, count_levels, drawn_levels, main_level};
use crate::scale::{Kind, Scale, Sizes};
use crate::svg::{Anchor, Canvas, Path};
use crate::units;

/// Size of a picture in user units; two fit beside each other on a phone.
const WIDE: f64 = 190.0;
const HIGH: f64 = 182.0;
const UPPER: Panel = Panel { left: 66.0, right: 176.0, top: 8.0, bottom: 90.0 };
const LOWER: Panel = Panel { left: 66.0, right: 176.0, top: 102.0, bottom: 160.0 };
/// The only panel where nothing in a family has anything for the lower one.
const WHOLE: Panel = Panel { bottom: LOWER.bottom, ..UPPER };
/// Pictures in a row of a sheet.
const COLUMNS: usize = 4;
/// Height of a picture's title on a sheet, and the gap between pictures.
const TITLE: f64 = 22.0;
const GAP: f64 = 14.0;
/// Most levels drawn beside the main one.
const BESIDE: usize = 4;
/// Most sizes of which each has a mark of its own.
const MARKED: usize = 12;

/// All small pictures.
#[derive(Debug, Default)]
pub struct Overview {
    /// Its name among other drawings.
    pub name: &'static str,
    /// What they are together.
    pub title: String,
    /// How they are read.
    pub explanation: &'static str,
    /// Pictures by family.
    pub groups: Vec<Group>,
}

/// The pictures of a family, on the same axes.
#[derive(Debug)]
pub struct Group {
    /// What its operations have in common.
    pub title: &'static str,
    /// Its pictures.
    pub tiles: Vec<Tile>,
}

/// One picture.
#[derive(Debug)]
pub struct Tile {
    /// Index of the operation.
    pub index: usize,
    /// The operation's title.
    pub title: String,
    /// What it shows, in few words.
    pub words: String,
    /// Its SVG elements.
    body: String,
}

impl Tile {
    /// The picture for a page.
    #[must_use]
    pub fn svg(&self) -> String {
        format!("<svg class=\"plot\" viewBox=\"0 0 {WIDE:.0} {HIGH:.0}\" aria-hidden=\"true\">\n{}</svg>\n", self.body)
    }
}

impl Overview {
    /// All pictures on one sheet, for files; nothing if there is none.
    #[must_use]
    pub fn sheet(&self) -> Option<Plot> {
        let rows: usize = self.groups.iter().map(|g| g.tiles.len().div_ceil(COLUMNS)).sum();
        if rows == 0 {
            return None;
        }
        let width = COLUMNS as f64 * (WIDE + GAP) + GAP;
        let margins = Margins { left: GAP, right: GAP };
        let mut frame = Frame::wide(width, &self.title, self.explanation, 0.0, margins);
        let mut y = frame.top + 8.0;
        for group in &self.groups {
            y += 18.0;
            frame.canvas.text("strong", GAP, y, Anchor::Start, group.title);
            for row in group.tiles.chunks(COLUMNS) {
                for (i, tile) in row.iter().enumerate() {
                    let x = GAP + i as f64 * (WIDE + GAP);
                    frame.canvas.open(&format!("transform=\"translate({x:.0} {:.0})\"", y + TITLE));
                    let title = crate::frame::fitting(&tile.title, (WIDE - 8.0) / 13.6);
                    frame.canvas.text("small strong", 8.0, 0.0, Anchor::Start, &title);
                    frame.canvas.raw(&tile.body);
                    frame.canvas.close();
                }
                y += TITLE + HIGH;
            }
        }
        frame.grow(y - frame.top - 30.0);
        let words = self.groups.iter().flat_map(|g| &g.tiles).map(|t| format!("{}: {}", t.title, t.words));
        Some(frame.finish(self.name, words.collect::<Vec<_>>().join("; "), ""))
    }
}

fn family_title(family: Family) -> &'static str {
    match family {
        Family::PointToPoint => "Between pairs",
        Family::Collective => "All processes together",
        Family::Kernel => "Applications",
    }
}

/// A vertical axis and how its values are written.
type Lower = (Scale, fn(f64) -> String);

/// What the pictures of a family share.
struct Axes {
    sizes: Sizes,
    upper: Panel,
    time: Scale,
    /// The lower panel's, if any picture has something in it; and how its values are written.
    lower: Option<Lower>,
}

impl Axes {
    fn new(mut sizes: Vec<u64>, times: impl Iterator<Item = f64>, lower: Option<Lower>) -> Self {
        sizes.sort_unstable();
        sizes.dedup();
        let (low, high) = ends(times);
        let upper = if lower.is_some() { UPPER } else { WHOLE };
        let time = Scale::new(Kind::Log, low / 1.3, high * 1.3, upper.bottom, upper.top);
        Self { sizes: Sizes::new(&sizes, upper.left + 6.0, upper.right - 4.0), upper, time, lower }
    }

    /// The empty picture: axes of both panels; `why` is said where there is nothing below.
    fn canvas(&self, why: Option<&str>) -> Canvas {
        let mut canvas = Canvas::new();
        self.upper.y_ticks(&mut canvas, &self.time.ticks(3, units::time));
        let sizes = self.sizes.ticks(4);
        match (&self.lower, why) {
            (Some((scale, words)), None) => {
                self.upper.x_ticks(&mut canvas, &[]);
                LOWER.y_ticks(&mut canvas, &scale.ticks(2, *words));
                LOWER.x_ticks(&mut canvas, &sizes);
            }
            (lower, why) => {
                self.upper.x_ticks(&mut canvas, &sizes);
                if let Some(why) = why.filter(|_| lower.is_some()) {
                    let y = f64::midpoint(LOWER.top, LOWER.bottom) + 8.0;
                    canvas.text("small muted", f64::midpoint(LOWER.left, LOWER.right), y, Anchor::Middle, why);
                }
            }
        }
        canvas
    }
}

/// Least and greatest of what is more than nothing.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let known = values.filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = known.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
    if low.is_finite() { (low, high) } else { (1.0, 1000.0) }
}

/// Draws a line with marks where sizes are few.
fn line(canvas: &mut Canvas, class: &str, colour: usize, places: &[(f64, f64)]) {
    canvas.path(&format!("{class} c{colour}"), &Path::through(places));
    if places.len() > MARKED {
        return;
    }
    let mut marks = Path::new();
    places.iter().for_each(|&(x, y)| mark(&mut marks, Mark::Disc, x, y));
    canvas.path(&format!("f{colour}"), &marks);
}

/// The overview of a run.
#[must_use]
pub fn of_run(digest: &Digest) -> Overview {
    let mut groups: Vec<Group> = Vec::new();
    for family in [Family::PointToPoint, Family::Collective, Family::Kernel] {
        let all: Vec<(usize, &Profile)> =
            digest.profiles.iter().enumerate().filter(|(_, p)| p.family() == family).collect();
        if all.is_empty() {
            continue;
        }
        let axes = axes_of(&all.iter().map(|p| p.1).collect::<Vec<_>>());
        let tiles = all.into_iter().map(|(index, profile)| tile(index, profile, &axes)).collect();
        groups.push(Group { title: family_title(family), tiles });
    }
    Overview {
        name: "overview",
        title: format!("{}: overview", digest.run.machine),
        explanation: "Above the time (blue), below the bandwidth (orange), against message size. Lines: medians; areas: from the 1st to the 99th percentile; grey: other levels of contention or placements. Axes are logarithmic, and the same in all pictures of a group.",
        groups,
    }
}

/// From the 1st to the 99th percentile, where that means something and is on a logarithmic axis.
fn middle_of(point: &Point) -> Option<(f64, f64)> {
    (point.has_row() && point.knows_p99() && point.row.p1_ns > 0.0).then_some((point.row.p1_ns, point.row.p99_ns))
}

fn axes_of(profiles: &[&Profile]) -> Axes {
    let points = || profiles.iter().flat_map(|p| p.points.values().map(move |point| (*p, point)));
    let sizes = profiles.iter().flat_map(|p| p.sizes.iter().copied()).collect();
    let range = |p: &Point| middle_of(p).map_or([p.row.p50_ns; 2], |(low, high)| [low, high]);
    let times = points().filter(|(_, p)| p.has_row()).flat_map(|(_, p)| range(p).into_iter().chain([p.row.p50_ns]));
    let (low, high) = ends(points().filter_map(|(profile, p)| Some(profile.bandwidth_of(p)?.p50_bytes_per_s)));
    let any = points().any(|(profile, p)| profile.bandwidth_of(p).is_some());
    let scale = Scale::new(Kind::Log, low / 1.3, high * 1.3, LOWER.bottom, LOWER.top);
    Axes::new(sizes, times, any.then_some((scale, units::rate as fn(f64) -> String)))
}

fn tile(index: usize, profile: &Profile, axes: &Axes) -> Tile {
    let bandwidths = |level: usize| {
        profile.at_level(level).filter_map(|p| Some((p.size_bytes, profile.bandwidth_of(p)?))).collect::<Vec<_>>()
    };
    let main = main_level(&profile.cells());
    let below = bandwidths(main);
    let mut canvas = axes.canvas(below.is_empty().then_some("no bytes"));
    let places = |level: usize| -> Vec<(f64, f64)> {
        let known = profile.at_level(level).filter(|p| p.has_row());
        known.map(|p| (axes.sizes.at(p.size_bytes), axes.time.at(p.row.p50_ns))).collect()
    };
    for level in drawn_levels(&profile.cells(), BESIDE).into_iter().filter(|l| *l != main) {
        line(&mut canvas, "thin d2", 6, &places(level));
    }
    let band: Vec<(u64, f64, f64)> =
        profile.at_level(main).filter_map(|p| middle_of(p).map(|(low, high)| (p.size_bytes, low, high))).collect();
    canvas.path("band f0", &area(&axes.sizes, &axes.time, &band));
    line(&mut canvas, "line", 0, &places(main));
    if let Some((scale, _)) = &axes.lower {
        let sure = profile.at_level(main).filter(|p| p.knows_p99()).map(|p| p.size_bytes).collect::<Vec<_>>();
        let band = below.iter().filter(|b| sure.contains(&b.0)).map(|(s, b)| (*s, b.p1_bytes_per_s, b.p99_bytes_per_s));
        canvas.path("band f1", &area(&axes.sizes, scale, &band.collect::<Vec<_>>()));
        let places: Vec<(f64, f64)> =
            below.iter().map(|(size, b)| (axes.sizes.at(*size), scale.at(b.p50_bytes_per_s))).collect();
        line(&mut canvas, "line", 1, &places);
    }
    Tile { index, title: profile.title.clone(), words: words_of(profile), body: canvas.into_body() }
}

/// An operation in few words: `8 B 2.3 µs, 1 MiB 180 µs, at best 5.8 GB/s`.
#[must_use]
pub fn words_of(profile: &Profile) -> String {
    let main = main_level(&profile.cells());
    let known: Vec<&Point> = profile.at_level(main).filter(|p| p.has_row()).collect();
    let one = |p: &&Point| format!("{} {}", units::size(p.size_bytes), units::time(p.row.p50_ns));
    let mut words: Vec<String> = match &known[..] {
        [] => return "nothing measured".to_owned(),
        [only] => vec![one(only)],
        [first, .., last] => vec![one(first), one(last)],
    };
    let rates = known.iter().filter_map(|p| Some(profile.bandwidth_of(p)?.p50_bytes_per_s));
    words.extend(rates.reduce(f64::max).map(|best| format!("at best {}", units::rate(best))));
    words.join(", ")
}

/// The overview of a comparison.
#[must_use]
pub fn of_two((first, second): (&Digest, &Digest), comparison: &Comparison) -> Overview {
    let family = |m: &Match| first.profiles.get(m.profiles.0).map(Profile::family);
    let mut groups: Vec<Group> = Vec::new();
    for wanted in [Family::PointToPoint, Family::Collective, Family::Kernel] {
        let all: Vec<(usize, &Match)> =
            comparison.matches.iter().enumerate().filter(|(_, m)| family(m) == Some(wanted)).collect();
        if all.is_empty() {
            continue;
        }
        let pairs = || all.iter().flat_map(|(_, m)| &m.pairs);
        let times = pairs().flat_map(|p| [p.centres_ns.0, p.centres_ns.1]);
        // The axis holds 1 and has it in its middle: faster and slower look alike.
        let far = pairs().filter(|p| p.ratio > 0.0).map(|p| p.ratio.max(1.0 / p.ratio)).fold(1.25, f64::max) * 1.1;
        let scale = Scale::new(Kind::Log, 1.0 / far, far, LOWER.bottom, LOWER.top);
        let words: fn(f64) -> String = |v| format!("{} ×", units::number(v));
        let axes = Axes::new(pairs().map(|p| p.size_bytes).collect(), times, Some((scale, words)));
        let tiles = all.iter().map(|(index, matched)| tile_of_two(*index, matched, &axes)).collect();
        groups.push(Group { title: family_title(wanted), tiles });
    }
    Overview {
        name: "both overview",
        title: format!("{} against {}: overview", second.name, first.name),
        explanation: "Above the median times of the first run (blue) and the second (orange, dashed), below the time of the second over that of the first: green marks are faster, orange ones slower, hollow ones not shown to differ. Against message size; all axes logarithmic, and the same in all pictures of a group.",
        groups,
    }
}

fn tile_of_two(index: usize, matched: &Match, axes: &Axes) -> Tile {
    let cells = count_levels(&matched.levels, matched.pairs.iter().map(|p| p.level));
    let main = main_level(&cells);
    let pairs: Vec<&Pair> = matched.pairs.iter().filter(|p| p.level == main).collect();
    let mut canvas = axes.canvas(None);
    for (i, class) in ["line", "line dash"].into_iter().enumerate() {
        let centre = |p: &&Pair| if i == 0 { p.centres_ns.0 } else { p.centres_ns.1 };
        let known = pairs.iter().filter(|p| centre(p) > 0.0);
        let places: Vec<(f64, f64)> = known.map(|p| (axes.sizes.at(p.size_bytes), axes.time.at(centre(p)))).collect();
        line(&mut canvas, class, i, &places);
    }
    if let Some((scale, _)) = &axes.lower {
        canvas.line("axis", (LOWER.left, scale.at(1.0)), (LOWER.right, scale.at(1.0)));
        let (mut faster, mut slower, mut hollow, mut places) = (Path::new(), Path::new(), Path::new(), Vec::new());
        for pair in pairs.iter().filter(|p| p.ratio > 0.0) {
            let (x, y) = (axes.sizes.at(pair.size_bytes), scale.at(pair.ratio));
            let path = match pair.verdict {
                Verdict::Faster => &mut faster,
                Verdict::Slower => &mut slower,
                _ => &mut hollow,
            };
            mark(path, Mark::Disc, x, y);
            places.push((x, y));
        }
        canvas.path("thin d2 c6", &Path::through(&places));
        canvas.path("f2", &faster);
        canvas.path("f1", &slower);
        canvas.path("thin ground c6", &hollow);
    }
    Tile { index, title: matched.title.clone(), words: words_of_two(matched), body: canvas.into_body() }
}

/// What was found of an operation in few words: `faster in 3 of 22 cells, slower in 1`.
#[must_use]
pub fn words_of_two(matched: &Match) -> String {
    let count = |verdict: Verdict| matched.pairs.iter().filter(|p| p.verdict == verdict).count();
    let n = matched.pairs.len();
    let told =
        [(Verdict::Faster, "faster in"), (Verdict::Slower, "slower in"), (Verdict::LaunchesDiffer, "undecided in")];
    let found: Vec<String> =
        told.into_iter().filter(|t| count(t.0) > 0).map(|t| format!("{} {}", t.1, count(t.0))).collect();
    let of = units::plural(n as u64, "cell");
    if found.is_empty() { format!("no difference shown in {of}") } else { format!("{} of {of}", found.join(", ")) }
}
