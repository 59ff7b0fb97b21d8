//! The program that measures: all processes run it.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::hint::black_box;
use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_report::units;

use crate::args::ParamsArgs;
use crate::params::{By, FILE_MAX_BYTES, Machine, Pattern, RELATIONS_MAX, Relation};
use crate::relation::{self, PUTS_MAX, Part};
use crate::sys::{Area, Program};

/// Supersteps of each kind before any is counted.
const WARM_UP: usize = 5;
/// Fewest of each kind that are counted.
const LEAST: usize = 5;
/// As many times more of those that l and g are taken from.
const MORE: usize = 5;
/// Vectors that speed is measured with: both stay in the cache nearest to a core.
const VECTOR: usize = 1024;
/// How long one measurement of speed takes.
const SPEED_TIME: Duration = Duration::from_millis(2);
/// Where nothing rubs out what was shown, progress is a line at most so often.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Supersteps of one kind that are to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    by: By,
    pattern: Pattern,
    wanted_bytes: u64,
    block_bytes: u64,
}

/// What is to be measured with p processes. Blocks are no longer than what two processes exchange;
/// what would be the same twice is measured once.
fn plan(args: &ParamsArgs, p: usize) -> Vec<Cell> {
    let mut cells = BTreeSet::new();
    for &wanted_bytes in &args.h {
        // g is taken from total exchanges, whatever else is asked for.
        let asked = args.patterns.iter().flat_map(|pattern| args.by.iter().map(|by| (*pattern, *by)));
        for (pattern, by) in asked.chain([(Pattern::Total, By::Hpput)]) {
            let share = relation::share(pattern, p, wanted_bytes);
            let blocks = args.blocks.iter().map(|block| (*block).min(share));
            let puts = |block: &u64| wanted_bytes.div_ceil(*block);
            let mut blocks: Vec<u64> = blocks.filter(|block| puts(block) <= PUTS_MAX).collect();
            if blocks.is_empty() {
                blocks.push(share);
            }
            cells.extend(blocks.into_iter().map(|block_bytes| Cell { by, pattern, wanted_bytes, block_bytes }));
        }
    }
    cells.into_iter().collect()
}

/// Whether a file can hold what is to be measured.
fn fits(cells: usize, samples: usize) -> Result<(), String> {
    // As many digits as a time has, and its comma.
    const SAMPLE_BYTES: u64 = 24;
    let all = (cells + 2 * MORE) as u64 * samples as u64;
    if cells <= RELATIONS_MAX && all.saturating_mul(SAMPLE_BYTES) <= FILE_MAX_BYTES {
        return Ok(());
    }
    Err(format!(
        "{cells} kinds of supersteps with {samples} samples of each are more than a file holds: fewer --samples, --h or --blocks"
    ))
}

/// What a ledger of the measuring program calls supersteps.
fn place(pattern: Option<Pattern>) -> &'static CStr {
    match pattern {
        None => c"params:barrier",
        Some(Pattern::Total) => c"params:total",
        Some(Pattern::Shift) => c"params:shift",
        Some(Pattern::Gather) => c"params:gather",
        Some(Pattern::Scatter) => c"params:scatter",
        Some(Pattern::Random) => c"params:random",
    }
}

/// Measures. What came of it is process 0's, and whoever was started as another number of processes
/// than can be measured gets a word.
pub fn run(args: &ParamsArgs) -> Result<Option<Machine>, String> {
    let program = Program::begin();
    if program.p() < 2 {
        program.end();
        return Err("one process alone has no communication to measure; start at least 2, as with -n 2".into());
    }
    let cells = plan(args, program.p());
    if let Err(too_much) = fits(cells.len(), args.samples as usize) {
        program.end();
        return Err(too_much);
    }
    let progress = Progress::new((args.quiet, args.bar), program.pid() == 0, program.p(), cells.len() + 2);
    let mut at = Measuring { time_s: args.time, ..Measuring::new(program, args.samples, progress) };
    let hosts = at.hosts();
    let speed_ops_per_s = at.speed();
    let most = cells.iter().map(|cell| cell.wanted_bytes).max().unwrap_or(8);
    let bytes = usize::try_from(relation::area_bytes(at.program.p(), most)).unwrap_or(usize::MAX);
    let area = at.program.area(bytes);
    at.program.sync(place(None));
    let wanted = args.samples as usize;
    at.progress.begin("supersteps without communication");
    let barrier: Vec<f64> = at.times(&area, &[Part::default()], wanted * MORE, None).into_iter().map(|s| s.1).collect();
    let headline = cells.iter().filter(|cell| cell.pattern == Pattern::Total && cell.by == By::Hpput);
    let headline = headline.max_by_key(|cell| (cell.wanted_bytes, cell.block_bytes)).copied();
    let mut relations = Vec::with_capacity(cells.len());
    for cell in cells {
        let (pattern, size) = (cell.pattern.words(), units::size(cell.wanted_bytes));
        at.progress.begin(&format!("{pattern} of {size}, {} of {}", cell.by.name(), units::size(cell.block_bytes)));
        let (p, pid) = (at.program.p(), at.program.pid());
        let parts = relation::parts(cell.pattern, p, pid, cell.wanted_bytes, cell.block_bytes);
        let wanted = if Some(cell) == headline { wanted * MORE } else { wanted };
        let samples = at.times(&area, &parts, wanted, Some((cell.pattern, cell.by)));
        let Cell { by, pattern, wanted_bytes, block_bytes } = cell;
        relations.push(Relation { by, pattern, block_bytes, wanted_bytes, samples });
    }
    at.progress.end();
    let (p, is_first) = (at.program.p() as u32, at.program.pid() == 0);
    at.program.end();
    let measured_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let machine = Machine { p, hosts, measured_unix_s, speed_ops_per_s, barrier_ns: barrier, relations };
    Ok(is_first.then_some(machine))
}

/// A process that measures.
pub struct Measuring {
    pub program: Program,
    /// Measurements of speed.
    speeds: u32,
    /// Longest time for supersteps of one kind, seconds.
    time_s: f64,
    pub progress: Progress,
}

impl Measuring {
    /// For supersteps whose number the caller says.
    pub fn new(program: Program, speeds: u32, progress: Progress) -> Measuring {
        Measuring { program, speeds, time_s: f64::MAX, progress }
    }

    /// All send numbers to process 0, which gets them by process; the others get nothing.
    fn gather(&mut self, own: &[f64]) -> Vec<Vec<f64>> {
        self.program.send(0, own);
        self.program.sync(c"params:gathering");
        self.program.received()
    }

    /// Process 0 tells all a number.
    pub fn tell(&mut self, value: f64) -> f64 {
        if self.program.pid() == 0 {
            (0..self.program.p()).for_each(|to| self.program.send(to, &[value]));
        }
        self.program.sync(c"params:telling");
        self.program.received().first().and_then(|one| one.first()).copied().unwrap_or(value)
    }

    /// On how many hosts the processes are: by what each says of its own.
    pub fn hosts(&mut self) -> u32 {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let said: Vec<f64> = boot.iter().chain(space.as_os_str().as_encoded_bytes()).map(|b| f64::from(*b)).collect();
        let all: BTreeSet<Vec<u64>> =
            self.gather(&said).iter().map(|one| one.iter().map(|byte| byte.to_bits()).collect()).collect();
        (all.len() as u32).max(1)
    }

    /// Speed of all processes while all compute, operations a second.
    fn speed(&mut self) -> Vec<f64> {
        self.progress.begin("computing");
        let (x, mut y) = (vec![1.0f64; VECTOR], vec![0.5f64; VECTOR]);
        let mut sweeps = 1u64;
        while time_of(&x, &mut y, sweeps) < SPEED_TIME && sweeps < 1 << 24 {
            sweeps *= 2;
        }
        self.program.sync(c"params:computing");
        let operations = (2 * VECTOR as u64 * sweeps) as f64;
        let own: Vec<f64> = (0..self.speeds.min(100))
            .map(|_| operations / time_of(&x, &mut y, sweeps).as_secs_f64().max(1e-9))
            .collect();
        self.gather(&own).concat()
    }

    /// Times of supersteps: process 0 gets h and nanoseconds of each, of the slowest process.
    fn times(&mut self, area: &Area, parts: &[Part], wanted: usize, kind: Option<(Pattern, By)>) -> Vec<(u64, f64)> {
        let (place, by) = (place(kind.map(|kind| kind.0)), kind.map_or(By::Hpput, |kind| kind.1));
        let warm = self.supersteps(area, (parts, by), WARM_UP, place);
        // The last ones are as those that are counted.
        let one_s = warm.iter().rev().take(2).fold(0.0, |most: f64, ns| most.max(*ns)) * 1e-9;
        let slowest_s = self.gather(&[one_s]).iter().flatten().fold(0.0f64, |most, s| most.max(*s));
        let fit = (self.time_s / slowest_s.max(1e-9)) as usize;
        let count = self.tell(wanted.min(fit.max(LEAST)) as f64) as usize;
        self.program.sync(place);
        let own = self.supersteps(area, (parts, by), count, place);
        let slowest = self.slowest_of(&own);
        slowest.into_iter().enumerate().map(|(nth, ns)| (parts[nth % parts.len()].h_bytes, ns.max(1.0))).collect()
    }

    /// Process 0 gets the sum of what all say, the others nothing.
    pub fn sum_of(&mut self, own: f64) -> f64 {
        self.gather(&[own]).iter().flatten().sum()
    }

    /// All say as many numbers: process 0 gets the greatest of each place, the others nothing.
    pub fn slowest_of(&mut self, own: &[f64]) -> Vec<f64> {
        let all = self.gather(own);
        let slowest = |nth: usize| all.iter().filter_map(|one| one.get(nth)).fold(0.0f64, |most, ns| most.max(*ns));
        let counted = if all.is_empty() { 0 } else { own.len() };
        (0..counted).map(slowest).collect()
    }

    /// Times of this process, nanoseconds: from the end of a superstep to that of the next.
    pub fn supersteps(
        &mut self,
        area: &Area,
        (parts, by): (&[Part], By),
        count: usize,
        place: &'static CStr,
    ) -> Vec<f64> {
        let mut times = Vec::with_capacity(count);
        self.program.sync(place);
        let mut last = Instant::now();
        for nth in 0..count {
            for put in &parts[nth % parts.len()].puts {
                self.program.bring(by, area, put.to, put.offset as usize, put.bytes as usize);
            }
            self.program.sync(place);
            let now = Instant::now();
            times.push((now - last).as_nanos() as f64);
            last = now;
        }
        times
    }
}

/// The time of sweeps over both vectors, each a multiplication and an addition an element.
fn time_of(x: &[f64], y: &mut [f64], sweeps: u64) -> Duration {
    let begun = Instant::now();
    for _ in 0..sweeps {
        for (y, x) in y.iter_mut().zip(x) {
            *y = *y * 0.5 + *x;
        }
        black_box(&mut *y);
    }
    begun.elapsed()
}

/// Progress on standard error: a bar on a terminal, else lines.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    p: usize,
    cells: usize,
    done: usize,
    begun: Instant,
    said: Option<Instant>,
}

impl Progress {
    /// Shown by the first process, unless it is to be quiet; `bar`: on the terminal of who started
    /// it.
    pub fn new((quiet, bar): (bool, bool), is_first: bool, p: usize, cells: usize) -> Progress {
        let shown = is_first && !quiet;
        let bar = shown.then(|| target(bar)).flatten().map(|target| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let lines = shown && bar.is_none();
        Progress { bar, lines, p, cells, done: 0, begun: Instant::now(), said: None }
    }

    /// What is measured next.
    pub fn begin(&mut self, what: &str) {
        let left = match self.done {
            0 => String::new(),
            done => {
                let each = self.begun.elapsed().as_secs_f64() / done as f64;
                format!("{} s left; ", (each * (self.cells - done.min(self.cells)) as f64).ceil())
            }
        };
        if let Some(bar) = &self.bar {
            bar.set_position(self.done as u64);
            bar.set_message(format!("p = {}, {left}{what}", self.p));
        } else if self.lines && self.said.is_none_or(|said| said.elapsed() >= LINE_EVERY) {
            self.said = Some(Instant::now());
            weir_put::tell!("weir: p = {}, {}/{}: {left}{what}", self.p, self.done, self.cells);
        }
        self.done += 1;
    }

    /// What is about to be done, before anything is counted.
    pub fn say(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.println(format!("weir: {what}"));
        } else if self.lines {
            weir_put::tell!("weir: {what}");
        }
    }

    pub fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Where a bar is drawn: on standard error; or on the terminal, where whoever started this process
/// has one and this one has not.
fn target(asked: bool) -> Option<ProgressDrawTarget> {
    if std::io::stderr().is_terminal() {
        return Some(ProgressDrawTarget::stderr());
    }
    let open = || std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
    let (read, write) = asked.then(|| open().zip(open())).flatten()?;
    Some(ProgressDrawTarget::term(Term::read_write_pair(read, write), 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ParamsArgs,
    }

    fn planned(words: &[&str], p: usize) -> Vec<Cell> {
        plan(&Line::parse_from([&["params"], words].concat()).args, p)
    }

    #[test]
    fn blocks_are_no_longer_than_what_two_processes_exchange_and_g_is_always_measured() {
        let cells = planned(&["--h", "4K", "--blocks", "8,1M,2M", "--patterns", "shift"], 5);
        let of = |pattern, block_bytes| Cell { by: By::Hpput, pattern, wanted_bytes: 4096, block_bytes };
        assert_eq!(
            cells,
            [of(Pattern::Total, 8), of(Pattern::Total, 1024), of(Pattern::Shift, 8), of(Pattern::Shift, 4096)]
        );
    }

    #[test]
    fn what_no_file_holds_is_refused_before_it_is_measured() {
        assert_eq!(fits(65, 200), Ok(()));
        assert!(fits(65, 100_000).is_err_and(|what| what.contains("--samples")));
        assert!(fits(RELATIONS_MAX + 1, 1).is_err());
    }

    #[test]
    fn each_primitive_that_is_asked_for_is_measured() {
        let cells = planned(&["--h", "4K", "--blocks", "1", "--patterns", "gather", "--by", "send,put"], 2);
        let kinds: Vec<_> = cells.iter().map(|cell| (cell.by, cell.pattern)).collect();
        assert_eq!(kinds, [(By::Hpput, Pattern::Total), (By::Put, Pattern::Gather), (By::Send, Pattern::Gather)]);
    }

    #[test]
    fn blocks_that_would_be_too_many_puts_are_left_out() {
        let cells = planned(&["--h", "1G", "--blocks", "8", "--patterns", "total"], 2);
        assert_eq!(
            cells,
            [Cell { by: By::Hpput, pattern: Pattern::Total, wanted_bytes: 1 << 30, block_bytes: 1 << 30 }]
        );
    }
}
