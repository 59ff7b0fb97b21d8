//! Tables: of a run, and of a comparison; as text for a terminal, and as HTML.

use weir_distribution::{Bandwidth, Service, SummaryRecord};

use crate::compare::Match;
use crate::digest::{Level, Point, Profile};
use crate::notes::{self, has_few};
use crate::order::{count_levels, is_halved, level_order};
use crate::reading::{APART, ENOUGH};
use crate::svg::{escape, width_em};
use crate::{families, goodness, units};

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// A table with rows in groups; each group belongs to a level.
#[derive(Debug)]
pub struct Table {
    caption: String,
    head: Vec<(&'static str, Side)>,
    rows: Vec<(usize, Vec<String>, &'static str)>,
    levels: Vec<Level>,
    /// Indices of levels, in the order in which they are shown.
    order: Vec<usize>,
    /// What must be known to read it.
    notes: Vec<String>,
}

impl Table {
    /// The table of an operation.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Self {
        let any = |has: &dyn Fn(&Point) -> bool| profile.points.values().any(has);
        let launches = any(&Point::has_launches);
        let shown = Columns {
            bandwidth: any(&|p| profile.bandwidth_of(p).is_some()),
            recorded: any(&|p| p.recorded_bandwidth.is_some()),
            overlap: any(&|p| p.overlap.is_some()),
            span: any(&|p| p.span.row.is_some()),
            waits: any(&|p| p.waits.row.is_some()),
            worth: any(&Point::is_dependent),
            errors: any(&|p| p.clock_error_ns > 0.0),
            moved: any(&|p| !p.moved.is_empty()),
            launches,
        };
        let mut head = vec![
            ("size", Side::Right),
            ("minimum", Side::Right),
            (if launches { "median of medians" } else { "median" }, Side::Right),
            ("95 % interval", Side::Right),
            (if launches { "median of p99s" } else { "p99" }, Side::Right),
            ("maximum", Side::Right),
        ];
        for (is_shown, name) in [
            (shown.bandwidth, "bandwidth"),
            (shown.recorded, "its p1 – p99"),
            (shown.overlap, "overlap"),
            (shown.span, "span"),
            (shown.waits, "waits, p50 – p99"),
            (true, "samples"),
            (shown.worth, "worth"),
            (true, "outliers"),
            (shown.errors, "clock error"),
            (shown.moved, "moved"),
            (launches, "launches"),
            (launches, "their medians"),
        ] {
            if is_shown {
                head.push((name, Side::Right));
            }
        }
        let rows = profile.points.iter().map(|((level, _), point)| (*level, cells_of(profile, point, &shown), ""));
        Self {
            caption: profile.title.clone(),
            head,
            rows: rows.collect(),
            levels: profile.levels.clone(),
            order: level_order(&profile.cells()),
            notes: notes_of(profile),
        }
    }

    /// The table of an operation of two runs.
    #[must_use]
    pub fn of_match(matched: &Match) -> Self {
        // The ratio is made of what stands here, and nothing else.
        let several = matched.pairs.iter().any(|p| p.launches.0 > 1 || p.launches.1 > 1);
        let (first, second) = match several {
            true => ("first, geo. mean of medians", "second, geo. mean of medians"),
            false => ("first median", "second median"),
        };
        let mut head = vec![
            ("size", Side::Right),
            (first, Side::Right),
            (second, Side::Right),
            ("ratio", Side::Right),
            ("95 % interval", Side::Right),
            ("p corrected", Side::Right),
        ];
        let (bandwidths, spans) =
            (matched.pairs.iter().any(|p| p.bandwidths.is_some()), matched.pairs.iter().any(|p| p.spans_ns.is_some()));
        for (shown, names) in
            [(bandwidths, ["first bandwidth", "second bandwidth"]), (spans, ["first span", "second span"])]
        {
            head.extend(names.into_iter().filter(|_| shown).map(|name| (name, Side::Right)));
        }
        head.push(("the second is", Side::Left));
        let rows = matched.pairs.iter().map(|pair| {
            let ratio = |r: f64| if r.is_finite() { format!("{r:.3}") } else { "–".into() };
            let mut cells = vec![
                units::size(pair.size_bytes),
                units::time_in_column(pair.centres_ns.0),
                units::time_in_column(pair.centres_ns.1),
                ratio(pair.ratio),
                format!("{} – {}", ratio(pair.interval.0), ratio(pair.interval.1)),
                pair.p_of_machines().map_or_else(|| "–".into(), units::p_value),
            ];
            for (shown, both, words) in [
                (bandwidths, pair.bandwidths, units::rate as fn(f64) -> String),
                (spans, pair.spans_ns, units::time_in_column),
            ] {
                let both = both.map_or(["–".to_owned(), "–".to_owned()], |(a, b)| [words(a), words(b)]);
                cells.extend(both.into_iter().filter(|_| shown));
            }
            cells.push(pair.to_string());
            (pair.level, cells, pair.verdict.word())
        });
        Self {
            caption: matched.title.clone(),
            head,
            rows: rows.collect(),
            levels: matched.levels.clone(),
            order: level_order(&count_levels(&matched.levels, matched.pairs.iter().map(|p| p.level))),
            notes: [
                (several && (bandwidths || spans)).then_some("Bandwidths and spans are the median of the launches' own, times the geometric mean: where launches lie far apart, one does not follow from the other."),
                matched.pairs.iter().any(|p| !p.by_launches).then_some("Where a run has one launch there is no p-value: the interval is between these launches, and cannot tell a machine's difference from a launch's."),
            ].into_iter().flatten().map(str::to_owned).collect(),
        }
    }

    /// How a server served its clients; none of an operation without one.
    #[must_use]
    pub fn of_service(profile: &Profile) -> Option<Self> {
        let names = ["size", "rounds", "max/min", "worst", "Jain", "least", "of all", "answers/s", "CPU", "memory"];
        let middle = |values: &mut dyn Iterator<Item = Option<f64>>| {
            let values: Vec<f64> = values.flatten().collect();
            weir_stats::Sample::durations(values).ok().map(|sample| sample.median())
        };
        let shown = |value: Option<f64>, words: &dyn Fn(f64) -> String| value.map_or_else(|| "–".to_owned(), words);
        let rows =
            profile.points.iter().filter(|(_, point)| !point.services.is_empty()).map(|((level, size), point)| {
                let all = &point.services;
                let of = |get: &dyn Fn(&Service) -> Option<f64>| middle(&mut all.iter().map(get));
                let most = |get: &dyn Fn(&Service) -> Option<f64>| all.iter().filter_map(get).reduce(f64::max);
                let number = |digits: usize| move |value: f64| format!("{value:.digits$}");
                let rounds: u64 = all.iter().map(|s| s.rounds).sum();
                let cells = vec![
                    units::size(*size),
                    if rounds > 0 { units::count(rounds) } else { "–".into() },
                    shown(of(&|s| s.spread_p50), &number(2)),
                    shown(most(&|s| s.spread_max), &number(2)),
                    shown(of(&|s| s.jain_p50), &number(3)),
                    shown(all.iter().filter_map(|s| s.jain_min).reduce(f64::min), &number(3)),
                    shown(of(&|s| s.jain_clients), &number(3)),
                    shown(of(&|s| Some(s.answers_per_s)), &number(0)),
                    shown(of(&|s| s.server_cpu_ns), &units::time),
                    shown(most(&|s| s.server_peak_bytes.map(|b| b as f64)), &|b| {
                        format!("{:.1} MiB", b / f64::from(1 << 20))
                    }),
                ];
                (*level, cells, "")
            });
        let rows: Vec<_> = rows.collect();
        let mut order = level_order(&profile.cells());
        order.retain(|level| rows.iter().any(|r| r.0 == *level));
        let notes = vec![
            "max/min: the longest time of a round over the shortest; median and worst round. Jain: the index of the clients' rates in a round, 1 if all are equal and 1/n if one of n has everything; median and least; of all: of their mean times over the cell. CPU: of the server's process, for each request; memory: the most of it that was resident. Of several launches medians and extremes.".to_owned(),
        ];
        let caption = format!("{}: how the clients were served", profile.title);
        let head = names.map(|name| (name, Side::Right)).to_vec();
        (!rows.is_empty()).then(|| Self { caption, head, rows, levels: profile.levels.clone(), order, notes })
    }

    /// How well the chosen families fit an operation's samples; none if nothing was fitted to
    /// enough of them.
    #[must_use]
    pub fn of_fits(profile: &Profile) -> Option<Self> {
        let mut head = vec![("size", Side::Right), ("chosen family", Side::Left), ("verdict", Side::Left)];
        head.extend(goodness::TESTS.map(|t| (t.1, Side::Right)));
        head.push(("next best", Side::Left));
        let rows = profile.points.iter().filter_map(|((level, size), point)| {
            let fit = point.sound_choice()?;
            let mut cells = vec![units::size(*size), families::short_words(fit), goodness::verdict(point, fit)];
            cells.extend(goodness::TESTS.map(|t| goodness::test_words(fit, t.0)));
            let next = goodness::next_best(point, 1).first().map_or_else(
                || "–".to_owned(),
                |f| {
                    format!(
                        "{}, {} {}",
                        families::name(f.family.as_str()),
                        goodness::TESTS[0].1,
                        goodness::test_words(f, goodness::TESTS[0].0)
                    )
                },
            );
            cells.push(next);
            let rejected = if goodness::rejected_by(fit).is_empty() { "" } else { "rejected" };
            Some((*level, cells, rejected))
        });
        let rows: Vec<_> = rows.collect();
        let mut order = level_order(&profile.cells());
        order.retain(|level| rows.iter().any(|r| r.0 == *level));
        let mut notes = vec![format!(
            "AD: Anderson and Darling, KS: Kolmogorov and Smirnov, χ²: Pearson. A fit is rejected where one of its tests has a p-value below {} over the number of tests; a distribution with several humps follows none of the families.",
            goodness::SIGNIFICANCE
        )];
        if profile.points.values().any(Point::has_launches) {
            notes.push("Of several launches the fits are those of the first that has some.".to_owned());
        }
        let caption = format!("{}: fits", profile.title);
        (!rows.is_empty()).then(|| Self { caption, head, rows, levels: profile.levels.clone(), order, notes })
    }

    /// For a terminal: a heading, and under it columns that are as wide as they must be.
    #[must_use]
    pub fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|i| {
                let cells = self.rows.iter().map(|r| clean(&r.1[i]).chars().count());
                cells.chain([self.head[i].0.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: &mut dyn Iterator<Item = String>| {
            let mut out = String::new();
            for ((cell, width), (_, side)) in cells.zip(&widths).zip(&self.head) {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                out += &if *side == Side::Right { format!("  {pad}{cell}") } else { format!("  {cell}{pad}") };
            }
            out.trim_end().to_owned() + "\n"
        };
        let mut out = String::new();
        for (level, label) in self.in_order() {
            out += &format!("{}, {label}\n", clean(&self.caption));
            out += &line(&mut self.head.iter().map(|h| h.0.to_owned()));
            for (_, cells, _) in self.rows.iter().filter(|r| r.0 == level) {
                out += &line(&mut cells.iter().map(|c| clean(c)));
            }
            out.push('\n');
        }
        if !self.notes.is_empty() {
            out.pop();
            out += &self.notes.iter().map(|n| format!("  {}\n", clean(n))).collect::<String>();
            out.push('\n');
        }
        out
    }

    /// Levels with their labels, as they are shown.
    fn in_order(&self) -> impl Iterator<Item = (usize, String)> {
        self.order.iter().filter_map(|l| Some((*l, self.levels.get(*l)?.label())))
    }

    /// Columns as a page has them: words, which are what is looked for, come second, where a narrow
    /// window shows them too.
    fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..self.head.len()).collect();
        columns.sort_by_key(|i| (*i > 0, self.head[*i].1 != Side::Left));
        columns
    }

    /// About how wide the table is on a page, in the page's letters: where there is less room, each
    /// row becomes lines of its own.
    fn width_rem(&self) -> f64 {
        const LETTER: f64 = 0.92;
        const PADDING: f64 = 1.1;
        let width = |i: usize| {
            let words = self.head[i].0.split(' ').map(width_em);
            let cells = self.rows.iter().map(|r| width_em(&r.1[i]));
            words.chain(cells).fold(0.0, f64::max) * LETTER + PADDING
        };
        (0..self.head.len()).map(width).sum()
    }

    /// For a page: a table of its own for each level, which the page's script shows and hides.
    #[must_use]
    pub fn html(&self) -> String {
        let mut out = String::new();
        let columns = self.columns();
        let width = self.width_rem();
        let room = ROOM_REM.into_iter().find(|r| f64::from(*r) >= width).unwrap_or(ROOM_REM[ROOM_REM.len() - 1]);
        for (level, label) in self.in_order() {
            out += &format!(
                "<div class=\"scroll\" data-level=\"{level}\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {0}, {1}\"><table class=\"at-{room}\"><caption>{0}, {1}</caption>\n<thead><tr>",
                escape(&self.caption),
                escape(&label)
            );
            for (name, side) in columns.iter().map(|i| &self.head[*i]) {
                out += &format!("<th scope=\"col\"{}>{name}</th>", class(*side, ""));
            }
            out += "</tr></thead>\n<tbody>\n";
            for (_, cells, verdict) in self.rows.iter().filter(|r| r.0 == level) {
                out += "<tr>";
                for &i in &columns {
                    let side = &self.head[i].1;
                    // A number keeps its unit where a line ends; a list may break.
                    let cell = match (side, cells[i].chars().count()) {
                        (Side::Right, 0..UNBROKEN) => escape(&cells[i]).replace(' ', "\u{a0}"),
                        _ => escape(&cells[i]),
                    };
                    out += &match i {
                        0 => format!("<th scope=\"row\"{}>{cell}</th>", class(*side, "")),
                        // Where there is no room for columns each value has its name before it.
                        _ => format!("<td data-head=\"{}\"{}>{cell}</td>", self.head[i].0, class(*side, verdict)),
                    };
                }
                out += "</tr>\n";
            }
            out += "</tbody></table></div>\n";
        }
        out + &self.notes.iter().map(|n| format!("<p class=\"muted\">{}</p>\n", escape(n))).collect::<String>()
    }
}

fn class(side: Side, verdict: &str) -> String {
    match side {
        Side::Right => String::new(),
        Side::Left => format!(" class=\"left {verdict}\""),
    }
}

/// Cells of numbers with fewer letters are not broken.
const UNBROKEN: usize = 24;

/// Widths at which the page's style turns tables into lines, in its letters.
const ROOM_REM: [u32; 9] = [40, 48, 56, 64, 72, 80, 88, 96, 104];

/// What a reader of an operation's tables must know.
fn notes_of(profile: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    if is_halved(&profile.key) {
        out.push(
            "Times are half of a round trip. What is sent and what is received lie in buffers of their own.".to_owned(),
        );
    }
    if profile.points.values().any(Point::has_launches) {
        out.push("Of several launches: the least minimum, the medians of their medians and of their 99th percentiles, an interval that holds that of each launch, the greatest maximum, all samples and outliers; and from the least to the greatest of the launches' own medians.".to_owned());
    }
    if let Some(most) = profile.points.values().filter_map(Point::apart).reduce(f64::max) {
        out.push(format!(
            "{FAR_APART}The launches' medians are more than {} times apart (here up to {}): the median between them stands for none of them.",
            units::number(APART),
            units::number(most)
        ));
    }
    if profile.points.values().any(Point::is_dependent) {
        out.push("Worth: so many independent samples would tell as much of the median; repetitions depend on those before, and processes of one repetition on each other. Intervals are made with this number.".to_owned());
    }
    let tick = profile.points.values().filter(|p| p.interval().is_some_and(|i| i.by_tick)).map(|p| p.tick_ns);
    if let Some(tick) = tick.reduce(f64::max) {
        out.push(format!(
            "{BY_TICK}The interval is as wide as a step of the clock, {} here: the samples alone would leave less open than the clock can tell.",
            units::time(tick)
        ));
    }
    if profile.points.values().any(|p| p.span.row.is_some()) {
        out.push("Span: how long a repetition took as a whole, from the first process' start to the last one's end; the median.".to_owned());
    }
    if profile.points.values().any(|p| p.waits.row.is_some()) {
        out.push(
            "Waits: how long the answer to a request was waited for, median and 99th percentile of all requests."
                .to_owned(),
        );
    }
    if profile.points.values().any(|p| p.recorded_bandwidth.is_some()) {
        out.push("Bandwidth: bytes a second as measured; the lowest percentile is of the longest times.".to_owned());
    }
    if profile.points.values().any(|p| p.overlap.is_some()) {
        out.push("Overlap: how much of the exchange went on while its ranks computed for as long as it takes alone; 0 % where both add up, less where they disturb each other.".to_owned());
    }
    if profile.points.values().any(|p| !p.moved.is_empty()) {
        out.push("Moved: ranks whose processor was another one after a batch of repetitions than before it. Their times may be of two processors, and of cold caches.".to_owned());
    }
    if has_few(profile) {
        out.push(format!("No p99 where there are fewer than {ENOUGH} samples (in each launch)."));
    }
    out
}

/// Marks medians between launches that are far apart.
const FAR_APART: &str = "‡ ";

/// Marks intervals that are as wide as the clock's tick.
const BY_TICK: &str = "† ";

/// Columns that not every table has.
struct Columns {
    bandwidth: bool,
    recorded: bool,
    overlap: bool,
    span: bool,
    waits: bool,
    worth: bool,
    errors: bool,
    moved: bool,
    launches: bool,
}

fn cells_of(profile: &Profile, point: &Point, shown: &Columns) -> Vec<String> {
    let row = &point.row;
    let time = |value: f64| if point.has_row() { units::time_in_column(value) } else { "–".into() };
    let interval = match point.interval() {
        Some(shown) if point.has_row() => format!("{}{}", if shown.by_tick { BY_TICK } else { "" }, shown.words()),
        _ => "–".into(),
    };
    let mut cells = vec![
        units::size(point.size_bytes),
        time(row.min_ns),
        format!("{}{}", if point.apart().is_some() { FAR_APART } else { "" }, time(row.p50_ns)),
        interval,
        if point.knows_p99() { time(row.p99_ns) } else { "–".into() },
        time(row.max_ns),
    ];
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    if shown.bandwidth {
        cells.push(or_none(profile.bandwidth_of(point).map(|b| units::rate(b.p50_bytes_per_s))));
    }
    if shown.recorded {
        let known = point.recorded_bandwidth.filter(|_| point.knows_p99());
        let range = |b: Bandwidth| format!("{} – {}", units::rate(b.p1_bytes_per_s), units::rate(b.p99_bytes_per_s));
        cells.push(or_none(known.map(range)));
    }
    if shown.overlap {
        cells.push(or_none(point.overlap.map(|o| format!("{:.1} %", o.percent))));
    }
    if shown.span {
        cells.push(or_none(point.span.row.as_ref().map(|r| units::time_in_column(r.p50_ns))));
    }
    if shown.waits {
        let range = |r: &SummaryRecord| format!("{} – {}", units::time(r.p50_ns), units::time(r.p99_ns));
        cells.push(or_none(point.waits.row.as_ref().map(range)));
    }
    cells.push(units::count(row.count));
    if shown.worth {
        cells.push(point.effective.map_or_else(|| "–".into(), |e| units::count(e as u64)));
    }
    cells.push(point.outliers.map_or_else(|| "–".into(), |o| units::count(o.1)));
    if shown.errors {
        // The error of no sample is none.
        let known = point.has_row() || point.drawn > 0;
        cells.push(if known { format!("±{}", units::time(point.clock_error_ns)) } else { "–".into() });
    }
    if shown.moved {
        cells.push(or_none(notes::moved_ranks(point)));
    }
    if shown.launches {
        cells.push(point.launches.to_string());
        cells.push(point.launch_range().map_or_else(|| "–".into(), |(low, high)| units::range(low, high)));
    }
    cells
}

/// A text without anything that could steer a terminal.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_hostile_captions_do_nothing() {
        let level = Level { pairs: 1, ranks: 2, nodes: 2, ranks_per_node: 1, threads: 0 };
        let table = Table {
            caption: "a<b>\u{1b}[31m".into(),
            head: vec![("size", Side::Right), ("verdict", Side::Left)],
            rows: vec![(0, vec!["8 B".into(), "µ".into()], ""), (0, vec!["64 KiB".into(), "longer".into()], "")],
            levels: vec![level],
            order: vec![0],
            notes: vec!["half\u{1b} <b>".into()],
        };
        let text = table.text();
        assert_eq!(
            text,
            "a<b>\u{fffd}[31m, 1 pair, 2 × 1\n    size  verdict\n     8 B  µ\n  64 KiB  longer\n  half\u{fffd} <b>\n\n"
        );
        let html = table.html();
        assert!(html.contains("<td data-head=\"verdict\" class=\"left \">µ</td>"), "{html}");
        assert!(html.contains("a&lt;b&gt;") && !html.contains('\u{1b}') && html.matches("<tr>").count() == 3);
        assert!(html.contains("half\u{fffd} &lt;b&gt;"));
    }
}
