//! End-to-end tests of `weir bench`: real MPIs and Weir's own endpoints, a few repetitions of every
//! kind of operation, and what goes wrong in the middle.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use serde_json::Value;

use crate::any_mpi::{self, Under};
use crate::e2e::Ended;
use crate::launch::{started, without_foreign};
use crate::paths::Paths;
use crate::process::{Outcome, run_limited, run_signalled};

/// A run that takes longer is ended. Alone on a machine each takes seconds; the rest is for
/// machines that do much else.
const LIMIT: Duration = Duration::from_secs(240);
/// Every shape of loop once: pairs both ways of timing, windows, collectives with and without sums,
/// kernels.
const WORK: &str = "--quiet --reps 20 --start barrier -s 8,5k -t ping-pong,send,duplex-isend,message-rate,barrier,bcast,alltoall,allreduce,jacobi --iterations 3";
/// All other operations once, by each way in which a library is called.
const MORE: &str = "--quiet --reps 5 --start barrier -s 4k -t one-sided,ping-pong-filled,overlap,isend-irecv,persistent,stream,open-loop,gatherv,scatterv,allgatherv,alltoallv,reduce-scatter,scan,exscan,ibarrier,iallreduce,incast,farm --iterations 20 --window 4 --interval 200";
/// Cells of that: twelve on others' memory, six between pairs, four by lengths, three sums, two
/// begun and waited for, two of many to one.
const MORE_CELLS: usize = 12 + 6 + 4 + 3 + 2 + 2;
/// Of these Weir's own endpoints have no persistent requests, nothing that is begun and waited
/// for later, and no locks.
const LACKING: usize = 4 + 4;
/// Messages by their tags that receives take whatever they are, many tasks for each request.
const ANY_TAG: &str = "--quiet --reps 5 --start barrier -s 8,40k -t farm,open-loop --iterations 200 --interval 100 --receive any --fanout 10 --tags 7 --compute 20";
/// Pairs of threads: what tells them apart comes behind.
const THREADS: &str = "--quiet --reps 5 -s 8,20k -t ping-pong,ping-pong-filled,sendrecv,message-rate,stream --threads 1,2 --window 4 --threads-by";
/// Cells of that: five operations at two sizes, by two numbers of threads.
const THREADS_CELLS: usize = 5 * 2 * 2;
/// A pattern of two steps.
const PATTERN: &str = "weir-pattern 1\nranks 2..\nstep\n* -> +1 size\n* -> -1 size\nstep\ncompute 0 20us\n* -> 0 64\n";
/// Cells of that: seven operations at two sizes, a barrier, a kernel.
const CELLS: usize = 7 * 2 + 2;
/// Repetitions of that, at least.
const REPS: u64 = 20;
/// More cells than are ever finished before something happens to the run.
const ENDLESS: &str = "--reps 300 -t send,ping-pong,sendrecv -s 0-8-8000";

/// What a test needs.
struct Bench<'a> {
    weir: &'a Path,
    folder: &'a Path,
    only: &'a str,
    report: &'a mut dyn FnMut(&str, &Ended),
}

impl Bench<'_> {
    /// Runs a test whose name is wanted, in a folder of its own.
    fn test(&mut self, name: &str, test: impl FnOnce(&Path, &Path) -> Result<Ended>) {
        if !name.contains(self.only) {
            return;
        }
        let words: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let dir = self.folder.join(words);
        let ended = fs::create_dir(&dir).map_err(Into::into).and_then(|()| test(self.weir, &dir));
        (self.report)(name, &ended.unwrap_or_else(|error| Ended::Failed(format!("{error:#}"))));
    }
}

/// Runs those tests whose names contain `only` with this `weir`; `report` hears of each as it ends.
///
/// # Errors
/// If there is no place for the results.
pub fn run(paths: &Paths, weir: &Path, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut bench = Bench { weir, folder: folder.path(), only, report: &mut report };
    for under in any_mpi::all(paths) {
        let name = |what: &str| format!("weir bench {what} under {}", under.name);
        if let Some(why) = under.missing() {
            (bench.report)(&name("everything"), &Ended::Skipped(why));
            continue;
        }
        for ranks in [2, 4] {
            bench.test(&name(&format!("on {ranks} ranks")), |weir, dir| {
                Ok(judged(&launched(&under, ranks, weir, WORK, Some(dir))?, &dir.join("run"), ranks))
            });
        }
        for ranks in [2, 4] {
            bench.test(&name(&format!("of everything else on {ranks} ranks")), |weir, dir| {
                let outcome = launched(&under, ranks, weir, MORE, Some(dir))?;
                Ok(more(&outcome, &dir.join("run"), ranks, MORE_CELLS))
            });
        }
        bench.test(&name("of messages by any tag on 4 ranks"), |weir, dir| {
            Ok(more(&launched(&under, 4, weir, ANY_TAG, Some(dir))?, &dir.join("run"), 4, 4))
        });
        bench.test(&name("of a pattern on 3 ranks"), |weir, dir| {
            let words = pattern(dir)?;
            Ok(more(&launched(&under, 3, weir, &words, Some(dir))?, &dir.join("run"), 3, 2))
        });
        for by in ["communicator", "tag"] {
            bench.test(&name(&format!("of pairs of threads by {by} on 2 ranks")), |weir, dir| {
                let outcome = launched(&under, 2, weir, &format!("{THREADS} {by}"), Some(dir))?;
                Ok(more(&outcome, &dir.join("run"), 2, THREADS_CELLS))
            });
        }
        bench.test(&name("refuses 3 ranks in one line"), |weir, _| {
            Ok(refused(&launched(&under, 3, weir, "-t send", None)?, "3 is odd"))
        });
        bench.test(&name("without its library says so once"), |weir, _| without_library(&under, weir));
        bench.test(&name("begun by the clock"), |weir, dir| by_the_clock(&under, weir, dir));
        bench.test(&name("with a rank killed"), |weir, dir| killed(&under, weir, dir));
        bench.test(&name("hung and asked to stop"), |weir, dir| hung(&under, weir, dir));
        bench.test(&name("interrupted"), |weir, dir| interrupted(&under, weir, dir));
        bench.test(&name("on a full disk"), |weir, dir| full_disk(&under, weir, dir));
    }
    let (intel, title) = (Under::intel(paths), "weir bench on 2 ranks under Intel MPI");
    match intel.missing() {
        Some(why) if title.contains(only) => (bench.report)(title, &Ended::Skipped(why)),
        Some(_) => {}
        None => {
            bench.test(title, |weir, dir| Ok(judged(&launched(&intel, 2, weir, WORK, Some(dir))?, &dir.join("run"), 2)))
        }
    }
    bench.test("weir bench on 2 ranks without MPI", |weir, dir| {
        let outcome = run_limited(&mut alone(weir, WORK, dir), LIMIT)?;
        Ok(judged(&outcome, &dir.join("run"), 2))
    });
    bench.test("weir bench of everything else on 2 ranks without MPI", |weir, dir| {
        let outcome = run_limited(&mut alone(weir, MORE, dir), LIMIT)?;
        if !outcome.stderr.contains("persistent is not measured") {
            return Ok(Ended::Failed(format!("no word about what there is not:\n{}", outcome.stderr)));
        }
        Ok(more(&outcome, &dir.join("run"), 2, MORE_CELLS - LACKING))
    });
    bench.test("weir bench of messages by any tag on 2 ranks without MPI", |weir, dir| {
        Ok(more(&run_limited(&mut alone(weir, ANY_TAG, dir), LIMIT)?, &dir.join("run"), 2, 4))
    });
    bench.test("weir bench of a pattern on 2 ranks without MPI", |weir, dir| {
        let words = pattern(dir)?;
        Ok(more(&run_limited(&mut alone(weir, &words, dir), LIMIT)?, &dir.join("run"), 2, 2))
    });
    bench.test("weir bench of pairs of threads without MPI is refused in one line", |weir, dir| {
        let outcome = run_limited(&mut alone(weir, "--threads 2 -t ping-pong", dir), LIMIT)?;
        Ok(refused(&outcome, "--threads: a rank over Weir's own endpoints has one thread here"))
    });
    bench.test("weir bench --launches without MPI answers with one document", |weir, dir| {
        let outcome = run_limited(&mut alone(weir, "--launches 2 --json --reps 20 -t barrier", dir), LIMIT)?;
        Ok(one_document(&outcome))
    });
    bench.test("weir bench interrupted without MPI", |weir, dir| {
        let mut command = alone(weir, ENDLESS, dir);
        let outcome = run_signalled(&mut command, LIMIT, Signal::INT, || has_samples(&dir.join("run")))?;
        Ok(stopped(&outcome, &dir.join("run"), true))
    });
    Ok(())
}

/// `weir bench` on two ranks of Weir's own.
fn alone(weir: &Path, words: &str, dir: &Path) -> Command {
    let mut command = Command::new(weir);
    without_foreign(&mut command);
    command.arg("bench").args(words.split(' ')).args(["--transport", "weir", "-n", "2", "-o"]).arg(dir.join("run"));
    command
}

/// Appends `weir bench` with these words to a launcher, or to what runs before it.
fn bench_words(command: &mut Command, weir: &Path, words: &str, dir: Option<&Path>) {
    command.arg(weir).arg("bench").args(words.split(' '));
    if let Some(dir) = dir {
        command.arg("-o").arg(dir.join("run"));
    }
}

fn launched(under: &Under, ranks: usize, weir: &Path, words: &str, dir: Option<&Path>) -> Result<Outcome> {
    started(under.name, || {
        let mut command = under.launch(ranks);
        bench_words(&mut command, weir, words, dir);
        run_limited(&mut command, LIMIT)
    })
}

/// Whether a run ended well and its folder holds what was asked for.
fn judged(outcome: &Outcome, dir: &Path, ranks: usize) -> Ended {
    if !outcome.ok() {
        return Ended::Failed(format!("{}\n{}", outcome.cause(), outcome.stderr));
    }
    if !outcome.stdout.contains("ping-pong, 1x") {
        return Ended::Failed(format!("no table was printed:\n{}", outcome.stdout));
    }
    ended(whole(dir, ranks))
}

/// The words that measure a pattern, whose file is written there.
fn pattern(dir: &Path) -> Result<String> {
    let file = dir.join("two.pattern");
    fs::write(&file, PATTERN)?;
    Ok(format!("--quiet --reps 20 --start barrier -s 8,5k --pattern {}", file.display()))
}

/// Whether a run ended well and holds so many cells, each with what was asked for at every rank.
fn more(outcome: &Outcome, dir: &Path, ranks: usize, wanted: usize) -> Ended {
    if !outcome.ok() {
        return Ended::Failed(format!("{}\n{}", outcome.cause(), outcome.stderr));
    }
    let judge = || -> Result<(), String> {
        let run = read(dir)?;
        let cells = cells(&run, dir)?;
        if cells.len() != wanted {
            return Err(format!("{} cells instead of {wanted}", cells.len()));
        }
        for cell in &cells {
            counted(cell, ranks, 5)?;
            let name = cell["configuration"]["operation"].as_str().unwrap_or_default();
            if ["stream", "message-rate", "incast", "farm"].contains(&name)
                != cell["bandwidth"]["p50_bytes_per_s"].is_number()
            {
                return Err(format!("{name}: bandwidth {}", cell["bandwidth"]));
            }
            if (cell["configuration"]["pairs"] == 0) != cell["span"]["summary"]["p50_ns"].is_number() {
                return Err(format!("{name}: span {}", cell["span"]));
            }
        }
        Ok(())
    };
    ended(judge())
}

fn ended(result: Result<(), String>) -> Ended {
    result.map_or_else(Ended::Failed, |()| Ended::Passed)
}

fn read(dir: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(dir.join("run.json")).map_err(|error| format!("run.json: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("run.json: {error}"))
}

/// The cells of a run, each of which must have its samples.
fn cells(run: &Value, dir: &Path) -> Result<Vec<Value>, String> {
    let cells = run["cells"].as_array().cloned().unwrap_or_default();
    for cell in &cells {
        let samples = cell["samples"]["path"].as_str().map(|path| dir.join(path));
        if !samples.is_some_and(|path| path.is_file()) {
            return Err(format!("{}: no file of samples", cell["configuration"]["operation"]));
        }
    }
    Ok(cells)
}

fn whole(dir: &Path, ranks: usize) -> Result<(), String> {
    let run = read(dir)?;
    if run["state"] != "complete" {
        return Err(format!("the run is {}", run["state"]));
    }
    let cells = cells(&run, dir)?;
    if cells.len() != CELLS {
        return Err(format!("{} cells instead of {CELLS}", cells.len()));
    }
    for cell in &cells {
        let name = cell["configuration"]["operation"].to_string();
        let median = cell["summary"]["p50_ns"].as_f64();
        counted(cell, ranks, REPS)?;
        if !median.is_some_and(|median| (10.0..1e9).contains(&median)) {
            return Err(format!("{name}: median {median:?} ns"));
        }
    }
    Ok(())
}

/// At least so many repetitions that count, at every rank, but not many times what was asked for.
fn counted(cell: &Value, ranks: usize, reps: u64) -> Result<(), String> {
    let count = cell["summary"]["count"].as_u64().unwrap_or(0);
    let wanted = reps * ranks as u64;
    if (wanted..=4 * wanted).contains(&count) {
        return Ok(());
    }
    Err(format!("{}: {count} samples count, {wanted} were asked for", cell["configuration"]["operation"]))
}

/// Whether a run was refused by one line with this text.
fn refused(outcome: &Outcome, expected: &str) -> Ended {
    let own: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("weir bench:")).collect();
    match own[..] {
        [line] if line.contains(expected) && !outcome.ok() => Ended::Passed,
        _ => Ended::Failed(format!("it said, ending with {:?}:\n{}", outcome.status, outcome.stderr)),
    }
}

fn without_library(under: &Under, weir: &Path) -> Result<Ended> {
    let missing = "/nonexistent/libmpi.so";
    let words = format!("-t barrier --mpi-library {missing}");
    Ok(refused(&launched(under, 3, weir, &words, None)?, missing))
}

/// What a cell may be that says it has too few: starts were missed, but not so many that barriers
/// had to take over (half), and at most half of the rest is warm-up.
fn few(cell: &Value, ranks: usize, reps: u64) -> Result<(), String> {
    let (count, missed) = (cell["summary"]["count"].as_u64(), cell["missed_windows"].as_u64());
    let wanted = reps * ranks as u64;
    if missed.is_some_and(|missed| missed > 0) && count.is_some_and(|count| (wanted / 4..wanted).contains(&count)) {
        return Ok(());
    }
    Err(format!("said to have too few: {count:?} of {wanted}, {missed:?} starts missed"))
}

/// Agreed starts: on a machine that does much else some are missed, too many of them, or all are
/// given up, which has to be said.
fn by_the_clock(under: &Under, weir: &Path, dir: &Path) -> Result<Ended> {
    const REPS: u64 = 200;
    let words = format!("--quiet --reps {REPS} --start window -s 8 -t barrier,bcast,allreduce");
    let outcome = launched(under, 2, weir, &words, Some(dir))?;
    if !outcome.ok() {
        return Ok(Ended::Failed(format!("{}\n{}", outcome.cause(), outcome.stderr)));
    }
    let judge = || -> Result<(), String> {
        let run = read(&dir.join("run"))?;
        let cells = cells(&run, &dir.join("run"))?;
        if cells.len() != 3 {
            return Err(format!("{} cells instead of 3", cells.len()));
        }
        for cell in &cells {
            let told =
                |code: &str| cell["warnings"].as_array().is_some_and(|all| all.iter().any(|w| w["code"] == code));
            match cell["configuration"]["start"].as_str() {
                Some("window") if cell["window_ns"].as_f64().is_some_and(|width| width >= 50_000.0) => {
                    if told("few-repetitions") { few(cell, 2, REPS)? } else { counted(cell, 2, REPS)? }
                }
                Some("barrier") if told("windows-missed") => {}
                other => return Err(format!("begun by {other:?} without a word about it")),
            }
        }
        Ok(())
    };
    Ok(ended(judge()))
}

/// Whether a cell has been written.
fn has_samples(dir: &Path) -> bool {
    let is_samples = |entry: fs::DirEntry| entry.path().extension() == Some(OsStr::new("parquet"));
    let there = fs::read_dir(dir.join("samples")).is_ok_and(|entries| entries.flatten().any(is_samples));
    there && read(dir).is_ok_and(|run| run["cells"].as_array().is_some_and(|cells| !cells.is_empty()))
}

/// A shell in the place of each rank, which waits beside it until a cell has been written.
const BESIDE: &str = "R=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}; P=$$; \
    written() { until ls \"$WEIR_TEST_DIR\"/samples/*.parquet; do sleep 0.1; done >/dev/null 2>&1; sleep 1; }; ";
/// Rank 1 is killed.
const KILLED: &str = "[ \"$R\" = 1 ] && (written; kill -KILL $P) & exec \"$0\" \"$@\"";
/// Rank 1 does nothing for a long time, and rank 0, which waits for it in MPI, is asked to stop.
/// (Not for ever: some launchers ask the others to end before they force them, and who is stopped
/// hears nothing.)
const HUNG: &str = "[ \"$R\" = 1 ] && (written; kill -STOP $P; sleep 20; kill -CONT $P) & \
    [ \"$R\" = 0 ] && (written; sleep 1; kill -TERM $P) & exec \"$0\" \"$@\"";

fn beside(under: &Under, weir: &Path, dir: &Path, script: &str) -> Result<Outcome> {
    let script = format!("{BESIDE}{script}");
    started(under.name, || {
        let mut command = under.launch(2);
        command.env("WEIR_TEST_DIR", dir.join("run")).args(["sh", "-c", &script]);
        bench_words(&mut command, weir, ENDLESS, Some(dir));
        run_limited(&mut command, LIMIT)
    })
}

fn killed(under: &Under, weir: &Path, dir: &Path) -> Result<Ended> {
    let outcome = beside(under, weir, dir, KILLED)?;
    Ok(ended_badly(&outcome, &dir.join("run")))
}

fn hung(under: &Under, weir: &Path, dir: &Path) -> Result<Ended> {
    let outcome = beside(under, weir, dir, HUNG)?;
    // Rank 0 alone was asked, and says its words without waiting for its call: no launcher takes
    // them away.
    Ok(stopped(&outcome, &dir.join("run"), true))
}

/// Whether a run ended in time, not as a success, and kept its finished cells.
fn ended_badly(outcome: &Outcome, run: &Path) -> Ended {
    match outcome.status {
        None => Ended::Failed(format!("it hangs: {}", outcome.cause())),
        Some(status) if status.success() => Ended::Failed("it ended as if all were well".into()),
        Some(_) => kept(run),
    }
}

/// Whether finished cells are there and can be read.
fn kept(run: &Path) -> Ended {
    ended(read(run).and_then(|json| cells(&json, run)).and_then(|cells| match cells.len() {
        0 => Err("no finished cell was kept".into()),
        _ => Ok(()),
    }))
}

fn interrupted(under: &Under, weir: &Path, dir: &Path) -> Result<Ended> {
    let run = dir.join("run");
    let outcome = started(under.name, || {
        let mut command = under.launch(2);
        bench_words(&mut command, weir, ENDLESS, Some(dir));
        run_signalled(&mut command, LIMIT, Signal::INT, || has_samples(&run))
    })?;
    // MPICH's launcher passes the wish on and waits; Open MPI's kills half a second later, and
    // passes on no more of what is said.
    Ok(stopped(&outcome, &run, under.kind == crate::mpi::Mpi::Mpich))
}

/// Whether a run ended as it should when somebody asked it to: finished cells kept, the end not
/// taken for a success, and, where the launcher gives it the time, a table and a word in
/// `run.json`.
fn stopped(outcome: &Outcome, run: &Path, table: bool) -> Ended {
    let said = || format!("{:?}: {}\n{}", outcome.status, outcome.stdout, outcome.stderr);
    match outcome.status {
        None => return Ended::Failed(format!("it hangs: {}", outcome.cause())),
        // MPICH 4.0's launcher sometimes loses its ranks' exit codes when it is interrupted itself:
        // what they say then tells.
        Some(status) if status.success() && !outcome.stderr.contains("interrupted; finished cells are in") => {
            return Ended::Failed(format!("it ended as if nobody had asked; {}", said()));
        }
        Some(_) => {}
    }
    if table && !(outcome.stdout.contains("(us)") && outcome.stderr.contains("interrupted; finished cells are in")) {
        return Ended::Failed(format!("no table, or no word about it; {}", said()));
    }
    match read(run) {
        Ok(json) if table && json["state"] != "stopped" => {
            Ended::Failed(format!("the run is {}; {}", json["state"], said()))
        }
        _ => kept(run),
    }
}

/// Mounts a small file system for the run alone, and brings out what was written to it.
const SMALL_DISK: &str = "mount -t tmpfs -o size=300k none \"$WEIR_TEST_DIR/disk\" || exit 99; \
    \"$@\"; S=$?; cp -r \"$WEIR_TEST_DIR/disk/run\" \"$WEIR_TEST_DIR/run\"; exit $S";

fn full_disk(under: &Under, weir: &Path, dir: &Path) -> Result<Ended> {
    let namespaces = ["--user", "--map-root-user", "--mount"];
    let probe =
        run_limited(Command::new("unshare").args(namespaces).args(["mount", "-t", "tmpfs", "none", "/mnt"]), LIMIT);
    if !probe.is_ok_and(|outcome| outcome.ok()) {
        return Ok(Ended::Skipped("no file system may be mounted in a namespace of one's own".into()));
    }
    let disk: PathBuf = dir.join("disk");
    fs::create_dir(&disk)?;
    let outcome = started(under.name, || {
        let launch = under.launch(2);
        let mut command = Command::new("unshare");
        without_foreign(&mut command);
        command.args(namespaces).args(["sh", "-c", SMALL_DISK, "sh"]).env("WEIR_TEST_DIR", dir);
        command.envs(launch.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.arg(launch.get_program()).args(launch.get_args());
        bench_words(&mut command, weir, ENDLESS, Some(&disk));
        run_limited(&mut command, LIMIT)
    })?;
    let own: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("weir bench:")).collect();
    Ok(match own[..] {
        _ if outcome.status.is_none() => Ended::Failed(format!("it hangs: {}", outcome.cause())),
        _ if outcome.ok() => Ended::Failed("it ended as if all were well".into()),
        [line] if line.contains("no space left on") && line.contains("disk/run") => kept(&dir.join("run")),
        _ => Ended::Failed(format!("it said:\n{}", outcome.stderr)),
    })
}

/// Whether standard output is one document of two launches.
fn one_document(outcome: &Outcome) -> Ended {
    if !outcome.ok() {
        return Ended::Failed(format!("{}\n{}", outcome.cause(), outcome.stderr));
    }
    match serde_json::from_str::<Value>(&outcome.stdout) {
        Ok(run) if run["launches"].as_array().is_some_and(|launches| launches.len() == 2) => Ended::Passed,
        Ok(run) => Ended::Failed(format!("launches: {}", run["launches"])),
        Err(error) => Ended::Failed(format!("{error}: {}", outcome.stdout)),
    }
}
