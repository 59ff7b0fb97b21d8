//! End-to-end tests: real MPI programs on real MPIs, across emulated hosts.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::lab::{Lab, Wire};
use crate::launch::{Job, result_of};
use crate::mpi;
use crate::paths::Paths;
use crate::process::Outcome;
use crate::stack::{Carrier, Stack};

/// A case that runs longer is ended. Alone on a machine each takes seconds; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(240);

/// One program on one network.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Ranks, one on each host.
    pub ranks: usize,
    /// The program in `tests/mpi`; or words for Python.
    pub program: &'static str,
    /// Its arguments.
    pub args: &'static str,
    /// Loss each way.
    pub loss: f64,
    /// Left out of the quick run.
    pub slow: bool,
}

const fn case(
    name: &'static str,
    ranks: usize,
    program: &'static str,
    args: &'static str,
    loss: f64,
    slow: bool,
) -> Case {
    Case { name, ranks, program, args, loss, slow }
}

/// What is run on every stack under test.
pub const CASES: [Case; 13] = [
    case("pingpong-8B", 2, "pingpong", "--size 8 --reps 2000 --seconds 5", 0.0, false),
    case("pingpong-1MiB", 2, "pingpong", "--size 1048576 --reps 200 --warmup 10 --seconds 5", 0.0, false),
    case("stream-64KiB", 2, "stream", "--size 65536 --windows 20 --seconds 5", 0.0, false),
    case("order", 2, "order", "--rounds 2", 0.0, false),
    case("order-4-ranks", 4, "order", "--rounds 1 --messages 100", 0.0, false),
    case("rma", 2, "rma", "--reps 3", 0.0, false),
    case("farm", 3, "farm", "--tasks 500 --seconds 60", 0.0, false),
    case("order-lossy", 2, "order", "--rounds 2 --seed 9", 0.02, false),
    case("farm-lossy", 3, "farm", "--tasks 500 --seconds 60", 0.02, false),
    case("rma-lossy", 2, "rma", "--reps 2 --count 2000", 0.02, true),
    case("rma-lossy-large", 3, "rma", "--reps 6 --count 6000", 0.02, true),
    case("pingpong-lossy", 2, "pingpong", "--size 300000 --reps 500 --warmup 10 --seconds 10", 0.02, true),
    case("overlap", 2, "overlap", "--reps 20 --seconds 5", 0.0, true),
];

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Passed,
    /// Otherwise; why.
    Failed(String),
    /// Not run, since something is not there; what.
    Skipped(String),
}

/// Runs the cases on Weir under both MPIs; `report` hears of each as it ends. None is begun after
/// `deadline`: those left have failed.
///
/// # Errors
/// If a network cannot be made.
pub fn run(paths: &Paths, quick: bool, deadline: Instant, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let stacks: Vec<Stack> = Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir).collect();
    for case in CASES.iter().filter(|case| !(quick && case.slow)) {
        let lab = Lab::start(case.ranks, &Wire::plain(case.loss))?;
        for stack in &stacks {
            let name = format!("{} on {}", case.name, stack.name);
            let late = Instant::now() >= deadline;
            let ended = if late { Ended::Failed("no time left".into()) } else { one(paths, &lab, stack, case) };
            report(&name, &ended);
        }
    }
    Ok(())
}

/// Runs what needs no namespaces: ranks on the loopback interface, with losses made inside Weir, as the demo does where
/// namespaces are refused.
///
/// # Errors
/// If there is no place for the counters.
pub fn run_on_loopback(paths: &Paths, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let program = "farm";
    let args: Vec<String> = "--tasks 300 --seconds 60".split(' ').map(str::to_owned).collect();
    for stack in Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir) {
        let stats = tempfile::tempdir()?;
        let counters = stats.path().join("%p").display().to_string();
        let env = [("WEIR_FAULTS".to_owned(), "loss=2%".to_owned()), ("WEIR_STATS".to_owned(), counters)];
        let program = mpi::program(paths, stack.mpi, program);
        let job = Job { stack: &stack, ranks: 3, program: &program, args: &args, limit: LIMIT, env: &env };
        let repaired = || if packets_lost(stats.path()) > 0 { Ok(()) } else { Err("Weir counted no losses".into()) };
        let ended = match judged(job.run(paths, None)).and_then(|()| repaired()) {
            Ok(()) => Ended::Passed,
            Err(cause) => Ended::Failed(cause),
        };
        report(&format!("farm on loopback with losses inside on {}", stack.name), &ended);
    }
    Ok(())
}

/// What the ranks that left their counters in this folder lost.
fn packets_lost(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let values = texts.filter_map(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    values.filter_map(|value| value.pointer("/protocol/packets_lost")?.as_u64()).sum()
}

/// Whether a job ended well and did its work.
fn judged(run: Result<Outcome>) -> Result<(), String> {
    match run {
        Err(error) => Err(format!("{error:#}")),
        Ok(outcome) if !outcome.ok() => Err(outcome.cause()),
        Ok(outcome) => match result_of(&outcome) {
            None => Err("the program reported nothing".into()),
            Some(value) if value.get("complete") == Some(&serde_json::Value::Bool(false)) => {
                Err("not complete in its time".into())
            }
            Some(_) => Ok(()),
        },
    }
}

fn one(paths: &Paths, lab: &Lab, stack: &Stack, case: &Case) -> Ended {
    let program = mpi::program(paths, stack.mpi, case.program);
    let args: Vec<String> = case.args.split_whitespace().map(str::to_owned).collect();
    let job = Job { stack, ranks: case.ranks, program: &program, args: &args, limit: LIMIT, env: &[] };
    // Counted on the wire, so that a job that went another way is not taken for ours.
    let used = || match lab.counts() {
        Ok(counts) if counts.sent > 0 => Ok(()),
        Ok(_) => Err("nothing went over the network".into()),
        Err(error) => Err(format!("{error:#}")),
    };
    match judged(job.run(paths, Some(lab))).and_then(|()| used()) {
        Ok(()) => Ended::Passed,
        Err(cause) => Ended::Failed(cause),
    }
}
