//! A launch: all cells, shuffled, one after the other, each written when it is finished.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use weir_distribution::{
    Cell, ClockInfo, Configuration, Launch, MpiInfo, Network, Node, Overhead, Placement, RankClock, Resync, Run,
    StartSync, State, Tool, Transport, Warning,
};

use crate::append::{self, Begun};
use crate::book::{self, Book};
use crate::budget::{Budget, Shares};
use crate::cell::{Bench, Outcomes};
use crate::clock::{Clock, Quality};
use crate::collect::{self, Relations, Rules};
use crate::error::{BenchError, Result};
use crate::host::{self, Facts};
use crate::like;
use crate::machine::{Control, Machine};
use crate::options::{Args, Settings};
use crate::pairing::Layout;
use crate::plan::{self, Room, Spec};
use crate::warnings::{self, Launcher};
use crate::{carried, measure, pattern};

pub use crate::book::{Report, fit};

/// What is known of the machine that the machine itself does not tell.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Back end: `mpi`, `weir`, `sim`.
    pub backend: String,
    /// The MPI library.
    pub mpi: Option<MpiInfo>,
    /// What threads may do with it, as the format says it.
    pub thread_level: Option<String>,
    /// Variables that steer libraries and transports.
    pub environment: std::collections::BTreeMap<String, String>,
    /// The network, where it is emulated.
    pub network: Option<Network>,
    /// The command line.
    pub command: Vec<String>,
}

/// Whom rank 0 tells how it goes.
pub trait Watcher {
    /// The plan is made: this many cells.
    fn begin(&mut self, run: &Run, cells: usize);
    /// A cell is finished; so many seconds are left, as it seems.
    fn cell(&mut self, cell: &Cell, done: usize, cells: usize, left_s: f64);
    /// Something that people should know.
    fn warning(&mut self, warning: &Warning);
    /// Fitting distributions to what was measured; so many seconds are left, as it seems.
    fn fitting(&mut self, done: usize, cells: usize, left_s: f64);
    /// Nothing more comes.
    fn end(&mut self) {}
}

/// Says nothing.
pub struct Silent;

impl Watcher for Silent {
    fn begin(&mut self, _: &Run, _: usize) {}
    fn cell(&mut self, _: &Cell, _: usize, _: usize, _: f64) {}
    fn warning(&mut self, _: &Warning) {}
    fn fitting(&mut self, _: usize, _: usize, _: f64) {}
}

/// What rank 0 tells all before each cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Go {
    Measure {
        time_ns: f64,
        /// By barriers: at another size of the operation agreed starts did not work.
        barrier: bool,
    },
    /// Rank 0 cannot go on.
    Fail(String),
}

struct Pairs<'a> {
    layout: &'a Layout,
    clock: &'a Clock,
}

impl Relations for Pairs<'_> {
    fn same_node(&self, a: usize, b: usize) -> bool {
        self.layout.nodes[a] == self.layout.nodes[b]
    }

    fn same_clock(&self, a: usize, b: usize) -> bool {
        self.clock.same(a, b)
    }
}

/// Empty samples by which the overhead is measured.
const EMPTY: usize = 20_000;

/// Rank 0's books while cells are measured, where also who ends the program in spite of a call that
/// hangs finds them.
#[derive(Clone, Default)]
pub struct Desk(Arc<Mutex<Option<Book>>>);

/// How often who wants the books looks whether they are free.
const LOOK: Duration = Duration::from_millis(5);

impl Desk {
    fn books(&self) -> MutexGuard<'_, Option<Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the books; nothing if there are none here.
    fn with<T>(&self, work: impl FnOnce(&mut Book) -> T) -> Option<T> {
        self.books().as_mut().map(work)
    }

    /// Takes the books of a launch that does not come to its end: says in them that it was stopped,
    /// or takes it back if no cell is finished, and gives up the run's folder. Returns the run with
    /// all finished cells, and the launch's number; nothing if there are no books, as before the
    /// first cell and once the launch itself closes them, or if somebody writes in them for longer
    /// than `patience`. The launch ends as soon as it can and has no report then.
    #[must_use]
    pub fn take_over(&self, patience: Duration) -> Option<(Run, u32)> {
        let deadline = Instant::now() + patience;
        let mut book = loop {
            match self.0.try_lock() {
                Ok(mut books) => break books.take()?,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner().take()?,
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        };
        book.stop();
        Some((book.run, book.launch))
    }
}

/// Measures everything once; all ranks call it. Rank 0 gets the report.
///
/// # Errors
/// What this machine cannot do, the machine's failures, or rank 0's with its files.
pub fn launch<M: Machine>(
    m: &M,
    settings: &Settings,
    about: &About,
    own: &Facts,
    stop: &AtomicBool,
    watcher: &mut dyn Watcher,
) -> Result<Option<Report>> {
    launch_at(m, settings, about, own, stop, watcher, &Desk::default())
}

/// The same, with rank 0's books at a desk that others know, too; no report if somebody has taken
/// them.
///
/// # Errors
/// As [`launch`].
pub fn launch_at<M: Machine>(
    m: &M,
    settings: &Settings,
    about: &About,
    own: &Facts,
    stop: &AtomicBool,
    watcher: &mut dyn Watcher,
    desk: &Desk,
) -> Result<Option<Report>> {
    let facts = m.everybody(own)?;
    if let Some(rank) = facts.iter().position(|f| f.version != facts[0].version) {
        let text = format!("rank {rank} is weir {}, rank 0 is {}", facts[rank].version, facts[0].version);
        return Err(BenchError::Usage(text));
    }
    let identities: Vec<String> = facts.iter().map(|f| f.identity.clone()).collect();
    let layout = Layout::of_names(&identities);
    let (settings, lacking) = &whole(m, settings)?;
    // What cannot be done is refused before time is spent on clocks.
    let like = like(m, settings)?;
    let cells = match &like {
        Some(wanted) => like::cells(settings, wanted, &layout)?,
        None => plan::cells(settings, &layout, StartSync::Barrier)?,
    };
    plan::check_memory(&cells, &layout, &rooms(&facts, &layout), m.most_bytes())?;
    let earlier = if m.rank() == 0 { append::earlier(settings) } else { Ok(None) };
    let earlier = m.agree(earlier)?;
    let mut clock = Clock::start(m, &own.kernel, own.shared_counter)?;
    let mut cells = begun(m, settings, cells, earlier.as_ref(), best_start(&facts, &layout, clock.worst_ns()))?;
    let seed = m.share(&settings.args.seed.unwrap_or_else(fresh_seed))?;
    plan::shuffle(&mut cells, seed);
    let mut head = head(m, settings, about, &facts, &layout, &clock)?;
    if let Some((_, launch)) = head.as_mut().filter(|_| like.is_none()) {
        launch.warnings.extend(warnings::of_plan(&plan::left_out(settings, &layout)));
        launch.warnings.extend(warnings::of_transport(lacking));
    }
    let output = settings.args.output.as_deref();
    let opened = head.map(|(run, launch)| book::open(output, settings.args.append, run, launch)).transpose();
    if let Some(mut book) = m.agree(opened)? {
        watcher.begin(&book.run, cells.len());
        book.launch().warnings.clone().iter().for_each(|w| watcher.warning(w));
        *desk.books() = Some(book);
    }
    let measured = measure_all(m, settings, &cells, &mut clock, &layout, seed, stop, desk, watcher);
    if measured.is_err()
        && let Some(mut book) = desk.books().take()
    {
        // What is finished is in the folder whatever comes of this.
        book.stop();
    }
    let complete = measured?;
    let qualities = m.gather_values(&clock.quality())?;
    let book = desk.books().take();
    let closed = book.map(|book| close(book, complete, settings, (&clock, &qualities), &facts, watcher)).transpose();
    m.agree(closed)
}

pub(crate) fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

fn rooms(facts: &[Facts], layout: &Layout) -> Vec<Room> {
    let first = |node| layout.nodes.iter().position(|n| *n == node);
    let nodes = (0..layout.count()).filter_map(first);
    nodes.map(|r| Room { name: facts[r].node.name.clone(), available_bytes: facts[r].available_bytes }).collect()
}

/// What suits this machine: who spins for an instant keeps others from a shared processor, and a
/// bad clock starts worse than a barrier.
fn best_start(facts: &[Facts], layout: &Layout, worst_ns: f64) -> StartSync {
    match warnings::is_crowded(facts, layout) || worst_ns > warnings::CLOCK_LIMIT_NS {
        true => StartSync::Barrier,
        false => StartSync::Window,
    }
}

/// The settings with the pattern that rank 0 has read, and without what the machine has not; with a
/// line for each of the latter. All ranks call it.
fn whole<M: Machine>(m: &M, settings: &Settings) -> Result<(Settings, Vec<String>)> {
    let mut settings = settings.clone();
    if let Some(file) = &settings.args.pattern {
        let text = m.agree(if m.rank() == 0 { pattern_text(file) } else { Ok(String::new()) })?;
        let parsed = pattern::parse(&m.share(&text)?);
        settings.pattern = Some(Arc::new(parsed.map_err(|fault| BenchError::Usage(fault.of(file)))?));
    }
    if let Some(why) = m.lacks_threads().filter(|_| !settings.args.threads.is_empty()) {
        return Err(BenchError::Usage(format!("--threads: {why}")));
    }
    let mut lacking = Vec::new();
    let why = |op: &crate::operation::Operation| Some(format!("{op} is not measured: {}", m.lacks(op.kind)?));
    settings.operations.retain(|op| {
        let line = why(op);
        lacking.extend(line.clone());
        line.is_none()
    });
    match lacking.first() {
        Some(first) if settings.operations.is_empty() => Err(BenchError::Usage(first.clone())),
        _ => Ok((settings, lacking)),
    }
}

fn pattern_text(file: &Path) -> Result<String> {
    let failed = |what: String| BenchError::Usage(format!("--pattern {}: {what}", file.display()));
    let mut text = String::new();
    // One byte more than there may be, so that what is longer is told.
    let read = std::fs::File::open(file).and_then(|open| open.take(pattern::MOST_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(failed(format!("cannot read: {error}"))),
    }
}

/// The configurations of the run that is to be measured again, if one is named; all ranks call it,
/// rank 0 reads it.
fn like<M: Machine>(m: &M, settings: &Settings) -> Result<Option<Vec<Configuration>>> {
    if settings.args.like.is_none() {
        return Ok(None);
    }
    let read = if m.rank() == 0 { like::wanted(settings) } else { Ok(None) };
    m.share(&m.agree(read)?)
}

/// The cells, each with the way in which its repetitions are begun; all ranks call it, rank 0
/// decides.
fn begun<M: Machine>(
    m: &M,
    settings: &Settings,
    cells: Vec<Spec>,
    earlier: Option<&Run>,
    best: StartSync,
) -> Result<Vec<(Spec, Begun)>> {
    let decided = match m.rank() {
        0 => append::starts(settings, &cells, earlier, best),
        _ => Ok(Vec::new()),
    };
    let decided = m.share(&m.agree(decided)?)?;
    let one = |(spec, begun): (Spec, Begun)| (Spec { start: begun.start, ..spec }, begun);
    Ok(cells.into_iter().zip(decided).map(one).collect())
}

/// The head of the run and of its launch, at rank 0; all ranks take part.
fn head<M: Machine>(
    m: &M,
    settings: &Settings,
    about: &About,
    facts: &[Facts],
    layout: &Layout,
    clock: &Clock,
) -> Result<Option<(Run, Launch)>> {
    let qualities = m.gather_values(&clock.quality())?;
    let empty = measure::nothing(m, EMPTY);
    if m.rank() != 0 {
        return Ok(None);
    }
    let lengths = empty.begin.iter().zip(&empty.end).map(|(&b, &e)| clock.length_ns(b, e).max(0.0));
    let per_sample = weir_stats::Sample::durations(lengths.collect());
    let per_sample = per_sample.map(|s| collect::record_of(&weir_stats::Summary::of(&s)));
    let per_sample = per_sample.map_err(|error| BenchError::machine("overhead", error))?;
    let name = settings.args.telling.machine.clone().unwrap_or_else(|| facts[0].node.name.clone());
    let mut run = Run::new(&name);
    run.tool = Tool { name: "weir bench".into(), version: env!("CARGO_PKG_VERSION").into() };
    run.title.clone_from(&settings.args.telling.title);
    run.created_utc = Some(now_utc());
    run.command.clone_from(&about.command);
    run.nodes = nodes(facts, layout, &qualities);
    run.mpi.clone_from(&about.mpi);
    run.environment.clone_from(&about.environment);
    run.network.clone_from(&about.network);
    run.transport = transport(about);
    let (threads, launcher) = (most_threads(settings), launcher(&run));
    let mut told = warnings::of_placement(facts, layout, threads, launcher);
    told.extend(warnings::of_threads(facts, layout, threads, launcher));
    told.extend(warnings::of_clock(clock.worst_ns(), m.clock_source()));
    let launch = Launch {
        number: 0,
        origin_utc: run.created_utc.clone(),
        state: State::Running,
        placement: placement(facts, layout),
        clock: Some(clock_info(m.clock_source(), clock, &qualities)),
        overhead: Some(Overhead { clock_read_ns: Some(per_sample.p50_ns), per_sample }),
        thread_level: about.thread_level.clone(),
        warnings: told,
    };
    Ok(Some((run, launch)))
}

/// Where each process runs.
pub(crate) fn placement(facts: &[Facts], layout: &Layout) -> Vec<Placement> {
    let of = |(rank, f): (usize, &Facts)| Placement {
        rank: rank as u32,
        node: layout.nodes[rank] as u32,
        processors: f.processors.clone(),
        pinned: f.processors.len() == 1,
    };
    facts.iter().enumerate().map(of).collect()
}

pub(crate) fn now_utc() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

pub(crate) fn nodes(facts: &[Facts], layout: &Layout, qualities: &[Quality]) -> Vec<Node> {
    let first = |node| layout.nodes.iter().position(|n| *n == node);
    let describe = |rank: usize| {
        let mut node = facts[rank].node.clone();
        if let Some(tsc) = &mut node.tsc {
            tsc.frequency_hz = qualities.get(rank).map(|q| q.frequency_hz);
        }
        node
    };
    (0..layout.count()).filter_map(first).map(describe).collect()
}

/// What is to carry the messages, as the environment says.
fn transport(about: &About) -> Transport {
    let prefixes = ["FI_", "OMPI_MCA_", "UCX_", "MPIR_CVAR_", "WEIR_"];
    let steers = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let settings = about.environment.iter().filter(|(name, _)| steers(name));
    let provider = match about.backend.as_str() {
        "weir" => Some("weir".to_owned()),
        _ => about.environment.get("FI_PROVIDER").cloned(),
    };
    Transport {
        backend: about.backend.clone(),
        provider,
        settings: settings.map(|(name, value)| (name.clone(), value.clone())).collect(),
    }
}

fn clock_info(source: &str, clock: &Clock, qualities: &[Quality]) -> ClockInfo {
    let rank = |(rank, q): (usize, &Quality)| RankClock {
        rank: rank as u32,
        error_ns: q.error_ns,
        drift_ppm: clock.is_distributed().then_some(q.drift_ppm),
    };
    ClockInfo {
        source: source.to_owned(),
        frequency_hz: qualities.first().map(|q| q.frequency_hz),
        resolution_ns: qualities.first().map(|q| q.resolution_ns),
        algorithm: if clock.is_distributed() { "hca3" } else { "none" }.into(),
        ranks: qualities.iter().enumerate().map(rank).collect(),
        resyncs: clock.resyncs().iter().map(|&(at_ns, error_ns)| Resync { at_ns, error_ns }).collect(),
    }
}

#[allow(clippy::too_many_arguments)]
fn measure_all<M: Machine>(
    m: &M,
    settings: &Settings,
    cells: &[(Spec, Begun)],
    clock: &mut Clock,
    layout: &Layout,
    seed: u64,
    stop: &AtomicBool,
    desk: &Desk,
    watcher: &mut dyn Watcher,
) -> Result<bool> {
    let begun_ns = clock.now_ns(m);
    let mut round = Round {
        m,
        settings,
        cells,
        clock,
        layout,
        seed,
        stop,
        desk,
        watcher,
        shares: Shares::new(settings.args.time * 1e9, cells.len()),
        begun_ns,
        ended_ns: begun_ns,
        entered: vec![None; cells.len()],
        done: 0,
        planned: cells.len(),
        failed: None,
    };
    for place in 0..cells.len() {
        if !round.measure(place)? {
            return Ok(false);
        }
    }
    let again = m.share(&round.begun_otherwise())?;
    round.planned += again.len();
    for place in again {
        if !round.measure(place)? {
            return Ok(false);
        }
    }
    match m.share(&round.failed)? {
        Some(cause) => Err(BenchError::Told(cause)),
        None => Ok(true),
    }
}

/// The cells of a launch, one after the other. What says nothing else is rank 0's.
struct Round<'a, M: Machine> {
    m: &'a M,
    settings: &'a Settings,
    cells: &'a [(Spec, Begun)],
    clock: &'a mut Clock,
    layout: &'a Layout,
    seed: u64,
    stop: &'a AtomicBool,
    desk: &'a Desk,
    watcher: &'a mut dyn Watcher,
    shares: Shares,
    begun_ns: i64,
    ended_ns: i64,
    /// By place: the id of the cell that was entered, and how its repetitions were begun.
    entered: Vec<Option<(u32, StartSync)>>,
    done: usize,
    planned: usize,
    failed: Option<String>,
}

impl<M: Machine> Round<'_, M> {
    /// Measures the cell at this place; false if somebody asked to stop. All ranks call it.
    fn measure(&mut self, place: usize) -> Result<bool> {
        let args = &self.settings.args;
        let (planned, begun) = &self.cells[place];
        let go = match self.failed.take() {
            Some(cause) => Go::Fail(cause),
            None => Go::Measure { time_ns: self.shares.next_ns(), barrier: self.needs_barrier(place) },
        };
        let (time_ns, barrier) = match self.m.share(&go)? {
            Go::Measure { time_ns, barrier } => (time_ns, barrier),
            Go::Fail(cause) => return Err(BenchError::Told(cause)),
        };
        let spec = &Spec { start: if barrier { StartSync::Barrier } else { planned.start }, ..planned.clone() };
        let budget = Budget {
            repetitions: args.reps.map(u64::from),
            time_ns,
            relative_width: args.ci.map(|percent| percent / 100.0),
            most: plan::MOST_SAMPLES / spec.active().len() as u64 + uncounted(args),
            // A loop each way.
            unbroken_ns: spec
                .tagged
                .filter(|_| spec.operation.kind.is_unbroken())
                .map(|of| 2.0 * of.interval_ns as f64),
        };
        let rules = Rules {
            keep: args.keep as usize,
            warm_up: args.warm_up,
            percentile: args.outlier_percentile,
            multiplier: args.outlier_multiplier,
            seed: self.seed ^ place as u64,
            counted: args.reps.map(u64::from),
        };
        let may_fall_back = !begun.fixed;
        let mut bench = Bench { m: self.m, clock: &mut *self.clock, stop: self.stop, may_fall_back, rules: &rules };
        let Outcomes::Done(measured) = bench.cell(spec, &budget)? else { return Ok(false) };
        // Shares, the progress and the books are rank 0's.
        if let Some(measured) = measured {
            self.enter(place, spec, &measured, &rules, time_ns);
        }
        Ok(true)
    }

    /// Enters a cell into the books, in the place of one that was begun in another way.
    fn enter(&mut self, place: usize, spec: &Spec, measured: &crate::cell::Measured, rules: &Rules, time_ns: f64) {
        let (m, layout, clock) = (self.m, self.layout, &*self.clock);
        let (begun_ns, shares, ended_ns) = (self.begun_ns, &mut self.shares, &mut self.ended_ns);
        let before = self.entered[place].take();
        let entered = self.desk.with(|book| -> Result<Option<Cell>> {
            enter(book, spec, measured, rules, &Pairs { layout, clock })?;
            if let Some((id, _)) = before {
                book.remove(id)?;
            }
            let begun_cell_ns = std::mem::replace(ended_ns, clock.now_ns(m));
            let took_ns = (*ended_ns - begun_cell_ns) as f64;
            shares.took(time_ns, took_ns);
            match before {
                Some(_) => book.lost.anew_ns += took_ns,
                None => book.lost.add(&measured.lost.of_cell(time_ns, measured.elapsed_ns, took_ns)),
            }
            book.took_ns = (*ended_ns - begun_ns) as f64;
            Ok(book.run.cells.last().cloned())
        });
        match entered {
            Some(Ok(Some(cell))) => {
                self.done += 1;
                self.entered[place] = Some((cell.id, cell.configuration.start));
                let elapsed_s = (self.ended_ns - self.begun_ns) as f64 / 1e9;
                let left = left_s(&self.settings.args, &self.shares, elapsed_s, self.done, self.planned);
                self.watcher.cell(&cell, self.done, self.planned, left);
            }
            // Who has taken the books ends the program.
            Some(Ok(None)) | None => {}
            // The others wait for word before the next cell.
            Some(Err(error)) => self.failed = Some(error.to_string()),
        }
    }

    /// Whether a cell is to be begun by barriers because another one of its operation had to be.
    fn needs_barrier(&self, place: usize) -> bool {
        let (spec, begun) = &self.cells[place];
        !begun.fixed
            && spec.start == StartSync::Window
            && self.fell_back().any(|other| other.operation == spec.operation)
    }

    /// The cells for which agreed starts did not work.
    fn fell_back(&self) -> impl Iterator<Item = &Spec> {
        let fell = |(cell, entered): &(&(Spec, Begun), &Option<(u32, StartSync)>)| {
            cell.0.start == StartSync::Window && matches!(entered, Some((_, StartSync::Barrier)))
        };
        self.cells.iter().zip(&self.entered).filter(fell).map(|(cell, _)| &cell.0)
    }

    /// Cells begun at agreed starts before another one of their operation had to be begun by
    /// barriers: an operation of a launch is begun in one way, else its sizes are no one curve.
    fn begun_otherwise(&self) -> Vec<usize> {
        let begun_by_windows = |place: &usize| matches!(self.entered[*place], Some((_, StartSync::Window)));
        (0..self.cells.len()).filter(begun_by_windows).filter(|place| self.needs_barrier(*place)).collect()
    }
}

/// Repetitions that do not count come on top of those asked for, as far as a tenth of them.
fn uncounted(args: &Args) -> u64 {
    /// The first batch, and some missed starts, of few repetitions.
    const SOME: u64 = 64;
    args.reps.map_or(0, |reps| u64::from(reps) / 10 + u64::from(args.warm_up.unwrap_or(0)) + SOME)
}

/// Time that is left, as it seems: that of the cells' shares, or, if repetitions are counted, what
/// the other cells take if they are like those measured. Cells are shuffled, so that these tell
/// well.
fn left_s(args: &Args, shares: &Shares, elapsed_s: f64, done: usize, cells: usize) -> f64 {
    match args.reps {
        None => shares.left_ns() / 1e9,
        Some(_) => elapsed_s / done.max(1) as f64 * cells.saturating_sub(done) as f64,
    }
}

/// Enters a cell into the books.
fn enter(
    book: &mut Book,
    spec: &Spec,
    measured: &crate::cell::Measured,
    rules: &Rules,
    relations: &impl Relations,
) -> Result<()> {
    let (cell, samples) = collect::cell(spec, measured, rules, relations)?;
    book.add(cell, &samples, rules.seed)
}

/// The most threads that a rank has.
fn most_threads(settings: &Settings) -> usize {
    settings.args.threads.iter().max().map_or(1, |&most| most as usize)
}

/// Who started the ranks of a run.
fn launcher(run: &Run) -> Launcher {
    match &run.mpi {
        None => Launcher::Own,
        Some(mpi) if !mpi.launcher_command.is_empty() => {
            Launcher::WeirRun { open_mpi: mpi.abi.as_deref() == Some("open-mpi") }
        }
        Some(mpi) if mpi.abi.as_deref() == Some("open-mpi") => Launcher::OpenMpi,
        Some(_) => Launcher::Mpich,
    }
}

/// Ends the launch in the books.
fn close(
    mut book: Book,
    complete: bool,
    settings: &Settings,
    (clock, qualities): (&Clock, &[Quality]),
    facts: &[Facts],
    watcher: &mut dyn Watcher,
) -> Result<Report> {
    let (launch, overhead_ns) = (book.launch, book.overhead_ns);
    if !complete && book.finished() == 0 {
        return book.finish(complete, Vec::new());
    }
    let name = |cell: &Cell| format!("{} {} B", cell.configuration.label(), cell.configuration.size_bytes);
    let empty: Vec<String> = book.cells().filter(|cell| cell.summary.is_none()).map(name).collect();
    let of_empty = warnings::of_empty(&empty, book.finished());
    // What the overhead is part of is what lies between two readings of the clock, whatever is made
    // of it later.
    let medians = book.cells().filter_map(|c| {
        let divisor = collect::divisor(&c.configuration);
        Some((c.configuration.label(), c.summary.as_ref()?.p50_ns * divisor))
    });
    let smallest = medians.filter(|(_, median)| *median > 0.0).min_by(|a, b| a.1.total_cmp(&b.1));
    let of_overhead =
        warnings::of_overhead(overhead_ns, smallest.as_ref().map(|(name, median)| (name.as_str(), *median)));
    // Of a number of repetitions nobody said how long they may take.
    let asked_s = settings.args.reps.is_none().then_some(settings.args.time);
    let of_time = asked_s.and_then(|asked_s| warnings::of_time(asked_s, book.took_ns / 1e9, &book.lost));
    let of_carriers = carried::warning(&book.run, launch);
    let of_network = host::are_of_one_machine(facts).then(|| carried::past_the_network(&book.run, launch)).flatten();
    let of_moved = warnings::of_moved(&book.cells().collect::<Vec<_>>(), most_threads(settings), launcher(&book.run));
    let told: Vec<Warning> = of_carriers
        .into_iter()
        .chain(of_network)
        .chain(of_moved)
        .chain(of_overhead)
        .chain(of_time)
        .chain(of_empty)
        .collect();
    told.iter().for_each(|w| watcher.warning(w));
    let entry = book.launch();
    let source = entry.clock.as_ref().map_or_else(String::new, |c| c.source.clone());
    entry.clock = Some(clock_info(&source, clock, qualities));
    book.finish(complete, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;

    #[test]
    fn time_left_is_that_of_the_shares_or_of_the_cells_to_come() {
        let by_time = args(&["--time", "55"]);
        let mut shares = Shares::new(55e9, 2);
        shares.took(27.5e9, 20e9);
        assert_eq!(left_s(&by_time, &shares, 20.0, 1, 2), 35.0);
        shares.took(35e9, 40e9);
        assert_eq!(left_s(&by_time, &shares, 60.0, 2, 2), 0.0);
        let by_count = args(&["--reps", "100"]);
        let left = |elapsed_s, done| left_s(&by_count, &shares, elapsed_s, done, 10);
        assert_eq!((left(60.0, 6), left(60.0, 10)), (40.0, 0.0));
    }
}
