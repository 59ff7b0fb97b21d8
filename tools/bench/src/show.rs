//! What people see: progress while it runs, tables at the end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_distribution::{Cell, Configuration, Locality, Run, Service, StartSync, SummaryRecord, Warning};

use crate::operation::Kind;
use crate::options;
use crate::plan::many;
use crate::run::Watcher;

/// Where nothing rubs out what was shown, as behind a launcher, the progress is a line at most so
/// often.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Progress on standard error: a bar on a terminal, else lines, one for each cell unless cells are
/// so short that they would be too many.
pub struct Progress {
    /// What the bar will be drawn on: before it is known how many cells there are, there is none.
    target: Option<ProgressDrawTarget>,
    bar: Option<ProgressBar>,
    lines: Lines,
    begun: Instant,
    /// What comes when all cells are measured.
    then: &'static str,
}

/// Which of many lines are said.
#[derive(Default)]
struct Lines {
    /// When one was, since the beginning.
    said: Option<Duration>,
}

impl Lines {
    /// Whether to say one now; the last of all always.
    fn is_time(&mut self, now: Duration, last: bool) -> bool {
        let time = last || self.said.is_none_or(|said| now >= said + LINE_EVERY);
        if time {
            self.said = Some(now);
        }
        time
    }
}

impl Progress {
    /// For this process's standard error. `fits`: when all cells are measured, distributions are
    /// fitted to them.
    #[must_use]
    pub fn new(fits: bool) -> Progress {
        let progress = Progress::on(std::io::stderr().is_terminal().then(ProgressDrawTarget::stderr));
        Progress { then: if fits { ", then fitting" } else { "" }, ..progress }
    }

    /// With a bar on this target, or with lines.
    fn on(target: Option<ProgressDrawTarget>) -> Progress {
        Progress { target, bar: None, lines: Lines::default(), begun: Instant::now(), then: "" }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| weir_put::tell!("{text}")),
            None => weir_put::tell!("{text}"),
        }
    }
}

/// Warnings on standard error, and nothing else.
pub struct Warnings;

impl Watcher for Warnings {
    fn begin(&mut self, _: &Run, _: usize) {}
    fn cell(&mut self, _: &Cell, _: usize, _: usize, _: f64) {}
    fn warning(&mut self, warning: &Warning) {
        weir_put::tell!("{}", warning_line(warning));
    }
    fn fitting(&mut self, _: usize, _: usize, _: f64) {}
}

impl Watcher for Progress {
    fn begin(&mut self, run: &Run, cells: usize) {
        let mpi = run.mpi.as_ref().map_or(run.transport.backend.as_str(), |mpi| mpi.library_version.as_str());
        let ranks = run.launches.last().map_or(0, |launch| launch.placement.len());
        let nodes = many(run.nodes.len(), "node");
        self.say(&format!("{ranks} ranks on {nodes}, {mpi}: {}", many(cells, "cell")));
        self.bar = self.target.take().map(|target| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        if let Some(bar) = &self.bar {
            bar.tick();
        }
    }

    fn cell(&mut self, cell: &Cell, done: usize, cells: usize, left_s: f64) {
        let summary = cell.summary.as_ref();
        let median = summary.map_or_else(|| "no samples".into(), |s| format!("median {}", time(s.p50_ns)));
        let what = format!("{}, {median}", name(&cell.configuration));
        let left = format!("{} s left{}", left_s.ceil(), self.then);
        match &self.bar {
            Some(bar) => {
                bar.set_position(done as u64);
                bar.set_message(format!("{left}; {what}"));
            }
            None if self.lines.is_time(self.begun.elapsed(), done == cells) => {
                weir_put::tell!("{done}/{cells} {what}; {left}");
            }
            None => {}
        }
    }

    fn warning(&mut self, warning: &Warning) {
        self.say(&warning_line(warning));
    }

    fn fitting(&mut self, done: usize, cells: usize, left_s: f64) {
        let left = if done == 0 { String::new() } else { format!("; {} s left", left_s.ceil()) };
        if let Some(bar) = &self.bar {
            if done == 0 {
                bar.reset();
                bar.set_length(cells as u64);
            }
            bar.set_position(done as u64);
            bar.set_message(format!("fitting distributions{left}"));
        } else if done == 0 {
            self.lines.is_time(self.begun.elapsed(), true);
            weir_put::tell!("fitting distributions to {}", many(cells, "cell"));
        } else if self.lines.is_time(self.begun.elapsed(), false) {
            weir_put::tell!("fitted {done}/{cells}{left}");
        }
    }

    fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A warning in one line, with what to do.
#[must_use]
pub fn warning_line(warning: &Warning) -> String {
    let advice = warning.advice.as_ref().map_or_else(String::new, |advice| format!("; try: {advice}"));
    format!("warning: {}{advice}", warning.message)
}

/// A cell's name for people.
#[must_use]
pub fn name(c: &Configuration) -> String {
    let mut text = format!("{} {} B", c.label(), c.size_bytes);
    if c.pairs > 0 {
        let _ = write!(text, ", {}", many(c.pairs as usize, "pair"));
    }
    if threads(c) > 0 {
        let _ = write!(text, " of {}", many(threads(c), "thread"));
    }
    let _ = write!(text, ", {}x{}", c.nodes, c.ranks_per_node);
    if c.pairs > 0 {
        let _ = write!(text, " {}", place(c.locality));
    }
    text
}

/// Threads of each rank; none if it was not measured between threads.
fn threads(c: &Configuration) -> usize {
    c.parameters.get("threads").and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn place(locality: Locality) -> &'static str {
    match locality {
        Locality::Inter => "between nodes",
        Locality::Intra => "within nodes",
        Locality::Mixed => "within and between nodes",
    }
}

/// A time for people, three digits.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        n if n < 1e3 => (ns, "ns"),
        n if n < 1e6 => (ns / 1e3, "us"),
        n if n < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = match value.abs() {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// What tells tables apart: operation, n x p, where, how begun.
type Heading = (String, u32, u32, Locality, StartSync);

/// A table for each operation of a launch: times in microseconds.
#[must_use]
pub fn tables(run: &Run, launch: u32) -> String {
    let mut groups: BTreeMap<Heading, Vec<&Cell>> = BTreeMap::new();
    for cell in run.cells.iter().filter(|cell| cell.launch == launch) {
        let c = &cell.configuration;
        let by = c.parameters.get("threads_by").map_or_else(String::new, |by| format!(", threads by {by}"));
        groups.entry((c.label() + &by, c.nodes, c.ranks_per_node, c.locality, c.start)).or_default().push(cell);
    }
    let step_ns = step_ns(run);
    let mut text = String::new();
    for ((label, n, p, locality, start), mut cells) in groups {
        cells.sort_by_key(|cell| {
            let c = &cell.configuration;
            (c.pairs, threads(c), c.size_bytes)
        });
        let start = match start {
            StartSync::None => "",
            StartSync::Barrier => ", begun by a barrier",
            StartSync::Window => ", begun by the clock",
        };
        let _ = writeln!(text, "\n{label}, {n}x{p} {}{start} (us)", place(locality));
        let more = More {
            threads: cells.iter().any(|c| threads(&c.configuration) > 0),
            span: cells.iter().any(|c| c.span.is_some()),
            rate: cells.iter().any(|c| c.bandwidth.is_some()),
            overlap: cells.iter().any(|c| c.overlap.is_some()),
            waits: cells.iter().any(|c| c.waits.is_some()),
        };
        let _ = writeln!(
            text,
            "{:>10} {:>6}{} {:>9} {:>11} {:>11} {:>15} {:>11} {:>11} {:>11} {:>8}{}{}{}{}",
            "bytes",
            "pairs",
            if more.threads { " threads" } else { "" },
            "samples",
            "min",
            "median",
            "+-",
            "mean",
            "p99",
            "max",
            "outliers",
            if more.span { format!(" {:>11}", "span") } else { String::new() },
            if more.rate { format!(" {:>11}", "MB/s") } else { String::new() },
            if more.overlap { format!(" {:>11}", "overlap %") } else { String::new() },
            if more.waits { format!(" {:>11} {:>11}", "wait", "wait p99") } else { String::new() }
        );
        cells.iter().for_each(|cell| row(cell, step_ns, more, &mut text));
    }
    if !text.is_empty() {
        text += &service(run, launch);
        let _ = writeln!(text, "\n{}", options::COLUMNS);
    }
    text
}

/// How even servers served their clients in a launch, and at what cost; nothing if it had none.
fn service(run: &Run, launch: u32) -> String {
    let mut cells: Vec<(&Configuration, Service)> = run
        .cells
        .iter()
        .filter(|cell| cell.launch == launch)
        .filter_map(|cell| Some((&cell.configuration, cell.service?)))
        .collect();
    if cells.is_empty() {
        return String::new();
    }
    cells.sort_by_key(|(c, _)| (c.pairs, c.size_bytes));
    let titles =
        ["bytes", "clients", "rounds", "max/min", "worst", "Jain", "least", "of all", "answers/s", "cpu us", "MiB"];
    let line = |words: [String; 11]| {
        let widths = [10, 7, 7, 8, 8, 6, 6, 6, 10, 8, 8];
        let one = |(word, width): (&String, usize)| format!("{word:>width$}");
        words.iter().zip(widths).map(one).collect::<Vec<_>>().join(" ") + "\n"
    };
    let number =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"));
    let mut text = format!("\nhow the clients were served\n{}", line(titles.map(str::to_owned)));
    for (c, s) in cells {
        text += &line([
            c.size_bytes.to_string(),
            c.pairs.to_string(),
            if s.rounds > 0 { s.rounds.to_string() } else { "-".into() },
            number(s.spread_p50, 2),
            number(s.spread_max, 2),
            number(s.jain_p50, 3),
            number(s.jain_min, 3),
            number(s.jain_clients, 3),
            format!("{:.0}", s.answers_per_s),
            number(s.server_cpu_ns.map(|ns| ns / 1e3), 1),
            number(s.server_peak_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)), 1),
        ]);
    }
    text + "max/min: the longest time of a round over the shortest, median and worst round. Jain: of the clients' rates in a round, median and least; of all: of\n\
        their mean times over the cell. cpu, MiB: the server's processor time for each request, and the most of its memory that was resident.\n"
}

/// Samples from which on the 99th percentile is another one than the largest.
const ENOUGH: u64 = 100;

/// The coarsest step of the clocks of a run, ns; 0 if not known.
fn step_ns(run: &Run) -> f64 {
    let clocks = run.launches.iter().filter_map(|launch| launch.clock.as_ref());
    clocks.filter_map(|clock| clock.resolution_ns).filter(|step| step.is_finite()).fold(0.0, f64::max)
}

/// Half the width of the interval of the median, ns, as `weir report` shows it: no narrower than a
/// step of the clock.
fn half_width_ns(c: &Configuration, s: &SummaryRecord, step_ns: f64) -> Option<f64> {
    let (low, high) = s.median_low_ns.zip(s.median_high_ns)?;
    // Of what is halved, the step is too.
    let halved = [Kind::PingPong, Kind::PingPongFilled].iter().any(|kind| c.operation == kind.name());
    let step_ns = if halved { step_ns / 2.0 } else { step_ns };
    if high - low >= step_ns {
        return Some((high - low) / 2.0);
    }
    let middle = f64::midpoint(low, high);
    // Nothing takes less time than none.
    let low = (middle - step_ns / 2.0).max(low.min(0.0));
    Some((middle + step_ns / 2.0 - low) / 2.0)
}

/// Columns that some operations have.
#[derive(Clone, Copy)]
struct More {
    /// Threads of each rank.
    threads: bool,
    /// The median of the spans.
    span: bool,
    /// The median of the bandwidth.
    rate: bool,
    /// How much of an exchange went on while its ranks computed.
    overlap: bool,
    /// How long answers were waited for.
    waits: bool,
}

fn row(cell: &Cell, step_ns: f64, more: More, text: &mut String) {
    let c = &cell.configuration;
    let us = |ns: f64| {
        let digits = if ns.abs() < 1e6 { 3 } else { 1 };
        format!("{:.digits$}", ns / 1000.0)
    };
    let summary = cell.summary.as_ref();
    let of = |get: &dyn Fn(&SummaryRecord) -> Option<f64>| summary.and_then(get).map_or_else(|| "-".into(), us);
    let outliers = summary.map(|_| cell.outliers.as_ref().map_or(0, |o| o.count));
    let span = cell.span.as_ref().map_or_else(|| "-".into(), |span| us(span.summary.p50_ns));
    let rate = cell.bandwidth.map_or_else(|| "-".into(), |b| format!("{:.1}", b.p50_bytes_per_s / 1e6));
    let overlap = cell.overlap.map_or_else(|| "-".into(), |o| format!("{:.1}", o.percent));
    let wait = |get: fn(&SummaryRecord) -> f64| cell.waits.as_ref().map_or_else(|| "-".into(), |w| us(get(&w.summary)));
    let _ = writeln!(
        text,
        "{:>10} {:>6}{} {:>9} {:>11} {:>11} {:>15} {:>11} {:>11} {:>11} {:>8}{}{}{}{}",
        c.size_bytes,
        if c.pairs > 0 { c.pairs.to_string() } else { "-".into() },
        if more.threads { format!(" {:>7}", threads(c)) } else { String::new() },
        summary.map_or(0, |s| s.count),
        of(&|s| Some(s.min_ns)),
        of(&|s| Some(s.p50_ns)),
        of(&|s| half_width_ns(c, s, step_ns)),
        of(&|s| Some(s.mean_ns)),
        of(&|s| Some(s.p99_ns).filter(|_| s.count >= ENOUGH)),
        of(&|s| Some(s.max_ns)),
        outliers.map_or_else(|| "-".into(), |count| count.to_string()),
        if more.span { format!(" {span:>11}") } else { String::new() },
        if more.rate { format!(" {rate:>11}") } else { String::new() },
        if more.overlap { format!(" {overlap:>11}") } else { String::new() },
        if more.waits { format!(" {:>11} {:>11}", wait(|s| s.p50_ns), wait(|s| s.p99_ns)) } else { String::new() }
    );
}

/// Launches whose medians differ by more than this factor saw two states of the machine, or one of
/// them was disturbed: what lies between stands for neither.
pub const APART: f64 = 2.0;

/// What all launches of a run say of each configuration: the median of the launches' medians, and
/// how far these lie apart, with a word where that is by more than [`APART`].
#[must_use]
pub fn launches(run: &Run) -> String {
    let mut groups: BTreeMap<&Configuration, Vec<f64>> = BTreeMap::new();
    for cell in &run.cells {
        let Some(summary) = &cell.summary else { continue };
        groups.entry(&cell.configuration).or_default().push(summary.p50_ns);
    }
    let title = "medians of launches";
    let mut text = format!("\n{title:<60} {:>9} {:>11} {:>11} {:>11}\n", "launches", "least", "median", "greatest");
    let (all, mut apart) = (groups.len(), 0);
    for (configuration, medians) in groups {
        let Ok(sample) = weir_stats::Sample::durations(medians) else { continue };
        let factor = sample.max() / sample.min();
        // A least median that is not above zero has no factor.
        let mark =
            if sample.min() > 0.0 && factor > APART { format!("  ! {factor:.1} times apart") } else { String::new() };
        apart += usize::from(!mark.is_empty());
        let _ = writeln!(
            text,
            "{:<60} {:>9} {:>11} {:>11} {:>11}{mark}",
            name(configuration),
            sample.count(),
            time(sample.min()),
            time(sample.median()),
            time(sample.max())
        );
    }
    if apart > 0 {
        let _ = writeln!(
            text,
            "\n! In {apart} of {} the launches' medians are more than {APART} times apart: the median between them stands for none of them. More launches tell what is usual (weir bench --append).",
            many(all, "cell")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal that remembers all that was ever drawn.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl indicatif::TermLike for Paper {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bar_is_not_drawn_before_it_is_known_how_many_cells_there_are() {
        let paper = Paper::default();
        let mut progress = Progress::on(Some(ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 255)));
        progress.warning(&Warning { code: "x".into(), message: "early".into(), advice: None });
        progress.begin(&Run::new("m"), 7);
        progress.warning(&Warning { code: "x".into(), message: "later".into(), advice: None });
        let drawn = paper.0.lock().unwrap().clone();
        assert!(drawn.contains("0/7") && !drawn.contains("0/0"), "{drawn:?}");
    }

    #[test]
    fn fitting_shows_how_far_it_is_and_what_is_left() {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 255);
        let mut progress = Progress { then: ", then fitting", ..Progress::on(Some(target)) };
        progress.begin(&Run::new("m"), 40);
        progress.cell(&Cell::new(0, 0, Configuration::pair("send", 8)), 40, 40, 0.0);
        progress.end();
        progress.fitting(0, 37, 0.0);
        progress.bar.as_ref().unwrap().tick();
        progress.fitting(12, 37, 3.4);
        progress.bar.as_ref().unwrap().tick();
        let (message, place) = progress.bar.as_ref().map(|bar| (bar.message(), bar.position())).unwrap();
        assert_eq!((message.as_str(), place), ("fitting distributions; 4 s left", 12));
        assert!(paper.0.lock().unwrap().contains("/37 fitting distributions"));
    }

    #[test]
    fn of_many_short_cells_not_each_has_a_line_but_the_last_has() {
        let mut lines = Lines::default();
        let said =
            (1..=2000).filter(|n| lines.is_time(Duration::from_millis(10 * n), *n == 2000)).collect::<Vec<u64>>();
        assert_eq!((said[0], said[1], said.len(), said.last().copied()), (1, 101, 21, Some(2000)));
    }

    #[test]
    fn launches_are_brought_together_by_configuration() {
        let mut run = Run::new("m");
        for (launch, median) in [(0, 1000.0), (1, 3000.0), (2, 1100.0)] {
            let mut cell = Cell::new(launch, launch, Configuration::pair("send", 8));
            let summary = weir_distribution::SummaryRecord { p50_ns: median, ..Default::default() };
            cell.summary = Some(summary);
            run.cells.push(cell);
        }
        let text = launches(&run);
        let words: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words.join(" "), "send 8 B, 1 pair, 2x1 between nodes 3 1.00 us 1.10 us 3.00 us ! 3.0 times apart");
    }

    #[test]
    fn launches_far_apart_are_marked_and_the_mark_is_explained() {
        let of = |medians: [f64; 2]| {
            let mut run = Run::new("m");
            for (launch, p50_ns) in (0..).zip(medians) {
                let mut cell = Cell::new(launch, launch, Configuration::pair("send", 8));
                cell.summary = Some(weir_distribution::SummaryRecord { p50_ns, ..Default::default() });
                run.cells.push(cell);
            }
            launches(&run)
        };
        let text = of([1e3, 4e6]);
        assert!(text.contains("4.00 ms  ! 4000.0 times apart"), "{text}");
        assert!(
            text.lines()
                .last()
                .unwrap()
                .starts_with("! In 1 of 1 cell the launches' medians are more than 2 times apart")
        );
        // Alike, and where clocks made a median that has no factor.
        for medians in [[1e3, 1.9e3], [-1.0, 1e3]] {
            assert!(!of(medians).contains('!'), "{}", of(medians));
        }
    }

    /// The words of the only row of a table of one cell.
    fn row_of(cell: Cell, step_ns: Option<f64>) -> Vec<String> {
        let mut run = Run::new("m");
        let clock = weir_distribution::ClockInfo { resolution_ns: step_ns, ..Default::default() };
        run.launches.push(weir_distribution::Launch { clock: Some(clock), ..Default::default() });
        run.cells.push(cell);
        tables(&run, 0).lines().nth(3).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_cell_without_samples_has_a_whole_row() {
        let bcast = Configuration { pairs: 0, ..Configuration::pair("bcast", 64) };
        let row = row_of(Cell::new(0, 0, bcast), None);
        assert_eq!(row.join(" "), "64 - 0 - - - - - - -");
        assert_eq!(row_of(Cell::new(0, 0, Configuration::pair("send", 8)), None).join(" "), "8 1 0 - - - - - - -");
    }

    #[test]
    fn a_99th_percentile_is_shown_from_100_samples_on() {
        let p99 = |count| {
            let mut cell = Cell::new(0, 0, Configuration::pair("send", 8));
            cell.summary = Some(SummaryRecord { count, p99_ns: 7000.0, ..Default::default() });
            row_of(cell, None)[7].clone()
        };
        assert_eq!((p99(99).as_str(), p99(100).as_str()), ("-", "7.000"));
    }

    #[test]
    fn threads_have_a_column_where_there_are_any() {
        let mut run = Run::new("m");
        for (id, threads) in [(0, "16"), (1, "2")] {
            let mut pair = Configuration::pair("ping-pong", 8);
            pair.parameters = [("threads", threads), ("threads_by", "tag")].map(|(n, v)| (n.into(), v.into())).into();
            run.cells.push(Cell::new(id, 0, pair));
        }
        let text = tables(&run, 0);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1).join(" "), "ping-pong, threads by tag, 2x1 between nodes (us)");
        assert_eq!((words(2)[2], &words(3)[..4], words(4)[2]), ("threads", &["8", "1", "2", "0"][..], "16"));
        assert_eq!(name(&run.cells[1].configuration), "ping-pong 8 B, 1 pair of 2 threads, 2x1 between nodes");
    }

    #[test]
    fn span_and_bandwidth_stand_behind_where_there_are_any() {
        let mut cell = Cell::new(0, 0, Configuration { pairs: 0, ..Configuration::pair("incast", 64) });
        cell.span = Some(weir_distribution::Skew {
            summary: SummaryRecord { p50_ns: 12_345.0, ..Default::default() },
            histogram: None,
        });
        cell.bandwidth = Some(weir_distribution::Bandwidth { p50_bytes_per_s: 98.76e6, ..Default::default() });
        assert_eq!(row_of(cell.clone(), None)[10..], ["12.345", "98.8"]);
        cell.span = None;
        assert_eq!(row_of(cell.clone(), None)[10..], ["98.8"]);
        cell.overlap = Some(weir_distribution::Overlap::of(400.0, 400.0, 500.0));
        assert_eq!(row_of(cell.clone(), None)[10..], ["98.8", "75.0"]);
        let summary = SummaryRecord { p50_ns: 2500.0, p99_ns: 9000.0, ..Default::default() };
        cell.waits = Some(weir_distribution::Skew { summary, histogram: None });
        assert_eq!(row_of(cell, None)[10..], ["98.8", "75.0", "2.500", "9.000"]);
    }

    #[test]
    fn the_tables_say_what_their_columns_are() {
        let mut run = Run::new("m");
        assert_eq!(tables(&run, 0), "");
        run.cells.push(Cell::new(0, 0, Configuration::pair("send", 8)));
        let text = tables(&run, 0);
        assert!(text.contains(" +- ") && text.trim_end().ends_with(options::COLUMNS), "{text}");
    }

    #[test]
    fn times_have_three_digits() {
        let cases = [(0.5, "0.50 ns"), (12.34, "12.3 ns"), (123.4, "123 ns"), (4567.0, "4.57 us"), (2.5e9, "2.50 s")];
        for (ns, expected) in cases {
            assert_eq!(time(ns), expected);
        }
    }
}
