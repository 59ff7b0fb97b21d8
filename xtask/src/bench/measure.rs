//! Runs cells on stacks: several launches of each, the stacks in turn, so that a change of the
//! machine's mood hits all stacks alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::cells::{Cell, Metric, WEIR_BENCH};
use super::told;
use crate::lab::{Counts, Lab};
use crate::launch::{Job, result_of};
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::stack::Stack;

/// One launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What the program reported, or why there is nothing.
    pub result: Result<Value, String>,
    /// The time limit it was ended by, if it was.
    pub ended_by_limit: Option<Duration>,
    /// How long it took, with what starting and ending it took.
    pub took: Duration,
    /// What the network counted.
    pub counts: Counts,
}

/// All launches, by cell and stack.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// How many launches of each there are to be.
    pub wanted: usize,
    /// Launches in the order they were made.
    pub launches: BTreeMap<(String, String), Vec<Launch>>,
    /// The congestion control that connections really had, by the one asked for.
    pub congestion: BTreeMap<String, String>,
}

/// A stack that did not end by itself so often in a cell is not launched there again.
const GIVE_UP_AFTER: usize = 2;

/// A median with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median of the launches.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many launches.
    pub n: usize,
}

impl Spread {
    /// Of these values; none if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Self { median, min, max, n: values.len() })
    }
}

impl Results {
    /// A number over the launches that ended well.
    pub fn spread(&self, cell: &str, stack: &str, metric: Metric) -> Option<Spread> {
        let launches = self.launches.get(&(cell.to_owned(), stack.to_owned()))?;
        let good = launches.iter().filter_map(|launch| launch.result.as_ref().ok());
        Spread::of(good.filter_map(|value| value.get(metric.key)?.as_f64()).collect())
    }

    /// The launches of one cell on one stack.
    pub fn of(&self, cell: &str, stack: &str) -> &[Launch] {
        self.launches.get(&(cell.to_owned(), stack.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Whether anything of this cell was measured.
    pub fn has(&self, cell: &str) -> bool {
        self.launches.iter().any(|((id, _), launches)| id == cell && !launches.is_empty())
    }

    /// Whether a stack need not be launched in a cell any more.
    pub fn is_done(&self, cell: &str, stack: &str) -> bool {
        self.of(cell, stack).len() >= self.wanted || self.is_given_up(cell, stack)
    }

    fn is_given_up(&self, cell: &str, stack: &str) -> bool {
        self.of(cell, stack).iter().filter(|launch| launch.ended_by_limit.is_some()).count() >= GIVE_UP_AFTER
    }

    /// Why a cell has no number on a stack, or how many of its launches failed.
    pub fn trouble(&self, cell: &str, stack: &str) -> Option<String> {
        let launches = self.of(cell, stack);
        let n = launches.len();
        let mut parts = Vec::new();
        let limits: Vec<Duration> = launches.iter().filter_map(|launch| launch.ended_by_limit).collect();
        if let Some(limit) = limits.iter().max() {
            let whose = if limits.len() == 1 { "its" } else { "their" };
            parts.push(format!(
                "{} of {n} launches ended by {whose} time limit of {} s",
                limits.len(),
                limit.as_secs()
            ));
        }
        let others = launches.iter().filter(|launch| launch.ended_by_limit.is_none());
        let causes: Vec<&String> = others.filter_map(|launch| launch.result.as_ref().err()).collect();
        if let Some(first) = causes.first() {
            parts.push(format!("{} of {n}: {first}", causes.len()));
        }
        if self.is_given_up(cell, stack) && n < self.wanted {
            parts.push("not launched again".into());
        } else if n < self.wanted {
            parts.push(format!("{n} of {} launches so far", self.wanted));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The share of packets the network really lost on purpose, over all launches of a cell.
    pub fn loss_seen(&self, cell: &str) -> Option<f64> {
        let all = self.launches.iter().filter(|((id, _), _)| id == cell).flat_map(|(_, launches)| launches);
        let sum = all.fold(Counts::default(), |sum, launch| Counts {
            sent: sum.sent + launch.counts.sent,
            lost: sum.lost + launch.counts.lost,
            ..sum
        });
        sum.loss()
    }
}

/// Which stacks a cell runs on.
pub fn stacks_of(cell: &Cell, stacks: &[Stack]) -> Vec<Stack> {
    if cell.one_host {
        let before = stacks.iter().filter(|stack| stack.is_before().is_some());
        return Stack::of_one_host().into_iter().chain(before.cloned()).collect();
    }
    let runs = |stack: &&Stack| {
        let by_intel = stack.mpi != Mpi::Intel || cell.section == "latency";
        by_intel && (stack.is_ours() || (cell.rivals && (cell.may_lose() || !stack.is_tuned())))
    };
    let mut all: Vec<Stack> = stacks.iter().filter(runs).cloned().collect();
    if cell.ablate_streams && stacks.iter().any(|stack| stack.name == "weir-mpich") {
        all.push(Stack::one_stream());
    }
    all
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cells.
    pub cells: Vec<Cell>,
    /// The stacks each is measured on.
    pub stacks: Vec<Stack>,
    /// Launches of each.
    pub launches: usize,
    /// When a launch is ended; by default each cell says how long it may take.
    pub limit: Option<Duration>,
}

impl Plan {
    /// When a launch of this cell is ended.
    pub fn limit(&self, cell: &Cell) -> Duration {
        self.limit.unwrap_or_else(|| cell.limit())
    }

    /// How long one launch in each round of a cell is likely to take, in seconds.
    pub fn round_seconds(&self, cell: &Cell) -> f64 {
        stacks_of(cell, &self.stacks).iter().map(|stack| cell.likely_seconds(stack)).sum()
    }

    /// How many launches are left to make, and about how many seconds they take.
    fn left(&self, results: &Results) -> (usize, f64) {
        let (mut launches, mut seconds) = (0, 0.0);
        for cell in &self.cells {
            for stack in stacks_of(cell, &self.stacks) {
                if !results.is_done(&cell.id, &stack.name) {
                    let n = self.launches.saturating_sub(results.of(&cell.id, &stack.name).len());
                    launches += n;
                    seconds += n as f64 * cell.likely_seconds(&stack);
                }
            }
        }
        (launches, seconds)
    }

    /// Whether a cell has all its launches.
    pub fn is_finished(&self, cell: &Cell, results: &Results) -> bool {
        stacks_of(cell, &self.stacks).iter().all(|stack| results.is_done(&cell.id, &stack.name))
    }
}

/// Measures all cells that `results` does not hold yet, one cell after the other; a network serves
/// all cells that follow each other and share it. `save` gets the results after each round of
/// launches, so that whatever ends the measurement leaves what was measured.
///
/// # Errors
/// If a network cannot be made, or what was measured cannot be saved. A stack that fails is in the
/// results.
pub fn measure(
    paths: &Paths,
    plan: &Plan,
    results: &mut Results,
    mut save: impl FnMut(&Results) -> Result<()>,
) -> Result<()> {
    results.wanted = plan.launches;
    let (total, _) = plan.left(results);
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    let begin = Instant::now();
    // What was expected of the launches made so far: the time left is corrected by what they took.
    let mut expected = 0.0;
    let mut lab: Option<(&Cell, Lab)> = None;
    for (index, cell) in plan.cells.iter().enumerate() {
        if plan.is_finished(cell, results) {
            continue;
        }
        if cell.one_host || lab.as_ref().is_none_or(|(of, _)| of.wire != cell.wire || of.ranks != cell.ranks) {
            // The old network ends before the new one starts.
            drop(lab.take());
        }
        if lab.is_none() && !cell.one_host {
            lab = Some((cell, Lab::start(cell.ranks, &cell.wire)?));
        }
        let lab = lab.as_ref().map(|(_, lab)| lab);
        for _ in 0..plan.launches {
            for stack in &stacks_of(cell, &plan.stacks) {
                if results.is_done(&cell.id, &stack.name) {
                    continue;
                }
                bar.set_message(format!("{} on {}", cell.id, stack.name));
                let launch = launch(paths, lab, cell, stack, plan.limit(cell), &mut results.congestion)?;
                results.launches.entry((cell.id.clone(), stack.name.clone())).or_default().push(launch);
                expected += cell.likely_seconds(stack);
                bar.inc(1);
            }
            save(results)?;
        }
        let (_, left) = plan.left(results);
        let pace = begin.elapsed().as_secs_f64() / f64::max(expected, 0.1);
        let line = progress(index + 1, plan.cells.len(), &cell.id, begin.elapsed(), left * pace);
        bar.suspend(|| eprintln!("{line}"));
    }
    bar.finish_and_clear();
    Ok(())
}

fn progress(done: usize, cells: usize, id: &str, elapsed: Duration, left_seconds: f64) -> String {
    let minutes = |seconds: f64| format!("{}:{:02}", seconds as u64 / 60, seconds as u64 % 60);
    let (passed, left) = (minutes(elapsed.as_secs_f64()), minutes(left_seconds));
    format!("{done}/{cells} cells, {passed} passed, about {left} left: {id} is measured")
}

fn launch(
    paths: &Paths,
    lab: Option<&Lab>,
    cell: &Cell,
    stack: &Stack,
    limit: Duration,
    seen: &mut BTreeMap<String, String>,
) -> Result<Launch> {
    let begin = Instant::now();
    if let Some(lab) = lab {
        // Also for a stack that asks for none: what the one before asked for must not stay.
        let effective = lab.set_congestion(stack.congestion.as_deref())?;
        if let Some(name) = &stack.congestion {
            seen.insert(name.clone(), effective);
        }
    }
    let (program, args) = program(paths, cell, stack);
    let job = Job { stack, ranks: cell.ranks, program: &program, args: &args, limit, env: &[] };
    let counted = || lab.map_or_else(|| Ok(Counts::default()), Lab::counts);
    let before = counted()?;
    let mut ended_by_limit = None;
    let loops = BusyLoops::start(cell.busy);
    let outcome = job.run(paths, lab);
    drop(loops);
    let result = match outcome {
        Err(error) => Err(format!("{error:#}")),
        Ok(outcome) => {
            ended_by_limit = outcome.status.is_none().then_some(limit);
            match result_of(&outcome).filter(|_| outcome.ok()) {
                Some(run) if cell.program == WEIR_BENCH => {
                    told::numbers(&run, cell, stack.carrier).map_err(|error| format!("{error:#}"))
                }
                Some(value) => Ok(value),
                None if outcome.ok() => Err(format!("no result: {}", outcome.cause())),
                None => Err(outcome.cause()),
            }
        }
    };
    let counts = counted()?.since(before);
    let result = counts.spoilt().map_or(result, Err);
    Ok(Launch { result, ended_by_limit, took: begin.elapsed(), counts })
}

/// The program of a cell under a stack's MPI, and its arguments.
fn program(paths: &Paths, cell: &Cell, stack: &Stack) -> (PathBuf, Vec<String>) {
    if cell.program != WEIR_BENCH {
        return (mpi::program(paths, stack.mpi, cell.program), cell.args.clone());
    }
    // One document, and no fits, which no table has.
    let around = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let args = [around(&["bench"]), cell.args.clone(), around(&["--no-fits", "--json"])].concat();
    (paths.command(), args)
}

/// Threads that want a core each until this is dropped.
struct BusyLoops {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl BusyLoops {
    fn start(loops: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let spin = || {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..loops).map(|_| spin()).collect();
        Self { over, threads }
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A loop cannot fail.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::Extent;
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0, n: 3 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of(vec![]), None);
    }

    fn good(value: Value) -> Launch {
        Launch { result: Ok(value), ended_by_limit: None, took: Duration::from_secs(1), counts: Counts::default() }
    }

    fn hung() -> Launch {
        let limit = Duration::from_secs(12);
        let result = Err("timeout after 12 s".to_owned());
        Launch { result, ended_by_limit: Some(limit), took: limit, counts: Counts::default() }
    }

    fn of(launches: Vec<Launch>) -> Results {
        let launches = BTreeMap::from([(("c".to_owned(), "s".to_owned()), launches)]);
        Results { wanted: 3, launches, ..Results::default() }
    }

    #[test]
    fn one_hung_launch_is_noted_and_the_others_count() {
        let ok = || good(serde_json::json!({"seconds": 5.0}));
        let results = of(vec![ok(), hung(), ok()]);
        assert_eq!(results.trouble("c", "s").as_deref(), Some("1 of 3 launches ended by its time limit of 12 s"));
        let metric = Metric { key: "seconds", label: "s", better: super::super::cells::Better::Less };
        assert_eq!(results.spread("c", "s", metric).map(|s| s.n), Some(2));
        assert!(!of(vec![hung()]).is_done("c", "s"));
        assert!(results.is_done("c", "s"));
    }

    #[test]
    fn a_stack_that_hung_twice_is_not_launched_again() {
        let results = of(vec![hung(), hung()]);
        assert!(results.is_done("c", "s"));
        assert_eq!(
            results.trouble("c", "s").as_deref(),
            Some("2 of 2 launches ended by their time limit of 12 s; not launched again")
        );
    }

    #[test]
    fn a_measurement_under_way_says_how_far_it_is() {
        let results = of(vec![good(serde_json::json!({"seconds": 5.0}))]);
        assert_eq!(results.trouble("c", "s").as_deref(), Some("1 of 3 launches so far"));
        let line = progress(3, 9, "loss/30000/1%", Duration::from_secs(65), 125.4);
        assert_eq!(line, "3/9 cells, 1:05 passed, about 2:05 left: loss/30000/1% is measured");
    }

    #[test]
    fn what_is_left_shrinks_with_each_launch_and_ends_at_nothing() {
        let cells = super::super::cells::cells(&["latency".into()], Extent { quick: true, seconds: 1.0 });
        let plan = Plan { cells, stacks: Stack::all(&["cubic".into()]), launches: 2, limit: None };
        let mut results = Results { wanted: 2, ..Results::default() };
        let (mut launches, mut seconds) = plan.left(&results);
        assert_eq!(launches, plan.stacks.len() * 2);
        for stack in &plan.stacks {
            for _ in 0..2 {
                assert!(!plan.is_finished(&plan.cells[0], &results));
                let key = (plan.cells[0].id.clone(), stack.name.clone());
                results.launches.entry(key).or_default().push(good(Value::Null));
                let (n, s) = plan.left(&results);
                assert!(n < launches && s < seconds);
                (launches, seconds) = (n, s);
            }
        }
        assert_eq!(launches, 0);
        assert!(plan.is_finished(&plan.cells[0], &results));
    }
}
