//! End-to-end tests of `weir bench`: real MPIs and Weir's own endpoints, a few repetitions of every kind of operation.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::e2e::Ended;
use crate::launch::{started, without_foreign};
use crate::mpi::Mpi;
use crate::paths::Paths;
use crate::process::{Outcome, run_limited};

/// A run that takes longer is ended.
const LIMIT: Duration = Duration::from_secs(90);
/// Every shape of loop once: pairs both ways of timing, windows, collectives with and without sums, kernels.
const WORK: &str = "bench --quiet --reps 20 --start barrier -s 8,5k -t ping-pong,send,duplex-isend,message-rate,barrier,bcast,alltoall,allreduce,jacobi --iterations 3";
/// Cells of that: seven operations at two sizes, a barrier, a kernel.
const CELLS: usize = 7 * 2 + 2;

/// Runs all with this `weir`; `report` hears of each as it ends.
///
/// # Errors
/// If there is no place for the results.
pub fn run(paths: &Paths, weir: &Path, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for mpi in Mpi::ALL {
        for ranks in [2, 4] {
            let dir = folder.path().join(format!("{}-{ranks}", mpi.name()));
            let start = || run_limited(&mut under(paths, mpi, ranks, weir, WORK, Some(&dir)), LIMIT);
            let ended = judged(started(mpi.name(), start), &dir, ranks);
            report(&format!("weir bench on {ranks} ranks of {}", mpi.name()), &ended);
        }
        let start = || run_limited(&mut under(paths, mpi, 3, weir, "bench -t send", None), LIMIT);
        let odd = started(mpi.name(), start);
        report(&format!("weir bench refuses 3 ranks of {} in one line", mpi.name()), &refused(odd, "3 is odd"));
    }
    let dir = folder.path().join("weir-2");
    let mut command = Command::new(weir);
    without_foreign(&mut command);
    command.args(WORK.split(' ')).args(["--transport", "weir", "-n", "2", "-o"]).arg(&dir);
    report("weir bench on 2 ranks without MPI", &judged(run_limited(&mut command, LIMIT), &dir, 2));
    Ok(())
}

fn under(paths: &Paths, mpi: Mpi, ranks: usize, weir: &Path, words: &str, dir: Option<&Path>) -> Command {
    let mut command = Command::new(mpi.bin(paths, "mpiexec"));
    without_foreign(&mut command);
    if mpi == Mpi::Openmpi {
        command.args(["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]);
    }
    command.args(["-n", &ranks.to_string()]).arg(weir).args(words.split(' '));
    if let Some(dir) = dir {
        command.arg("-o").arg(dir);
    }
    command
}

/// Whether a run ended well and its folder holds what was asked for.
fn judged(run: Result<Outcome>, dir: &Path, ranks: usize) -> Ended {
    let outcome = match run {
        Err(error) => return Ended::Failed(format!("{error:#}")),
        Ok(outcome) if !outcome.ok() => return Ended::Failed(format!("{}\n{}", outcome.cause(), outcome.stderr)),
        Ok(outcome) => outcome,
    };
    if !outcome.stdout.contains("ping-pong, 1x") {
        return Ended::Failed(format!("no table was printed:\n{}", outcome.stdout));
    }
    match whole(dir, ranks) {
        Ok(()) => Ended::Passed,
        Err(cause) => Ended::Failed(cause),
    }
}

fn whole(dir: &Path, ranks: usize) -> Result<(), String> {
    let text = fs::read_to_string(dir.join("run.json")).map_err(|error| format!("run.json: {error}"))?;
    let run: Value = serde_json::from_str(&text).map_err(|error| format!("run.json: {error}"))?;
    if run["state"] != "complete" {
        return Err(format!("the run is {}", run["state"]));
    }
    let cells = run["cells"].as_array().cloned().unwrap_or_default();
    if cells.len() != CELLS {
        return Err(format!("{} cells instead of {CELLS}", cells.len()));
    }
    for cell in &cells {
        let name = cell["configuration"]["operation"].to_string();
        let (measured, median) = (cell["measured"].as_u64(), cell["summary"]["p50_ns"].as_f64());
        // 20 repetitions at every rank.
        if measured != Some(20 * ranks as u64) {
            return Err(format!("{name}: {measured:?} samples"));
        }
        if !median.is_some_and(|median| (10.0..1e9).contains(&median)) {
            return Err(format!("{name}: median {median:?} ns"));
        }
        let samples = cell["samples"]["path"].as_str().map(|path| dir.join(path));
        if !samples.is_some_and(|path| path.is_file()) {
            return Err(format!("{name}: no file of samples"));
        }
    }
    Ok(())
}

/// Whether a run was refused as a wrong command line, by one line with this text.
fn refused(run: Result<Outcome>, expected: &str) -> Ended {
    let outcome = match run {
        Err(error) => return Ended::Failed(format!("{error:#}")),
        Ok(outcome) => outcome,
    };
    let own: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("weir bench:")).collect();
    match own[..] {
        [line] if line.contains(expected) && !outcome.ok() => Ended::Passed,
        _ => Ended::Failed(format!("it said, ending with {:?}:\n{}", outcome.status, outcome.stderr)),
    }
}
