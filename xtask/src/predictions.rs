//! What `weir predict` and `weir record` say, held against real MPIs: whether programs end (`tests/mpi/deadlocks.txt`), and
//! whether models of recorded runs repeat larger ones.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::any_mpi::{self, Under};
use crate::e2e::Ended;
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::{Outcome, run_limited, run_quiet};

/// What ends takes a second; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(120);
/// What is to hang must not have ended after this; what is to end may take all of [`LIMIT`].
const HANGS: Duration = Duration::from_secs(3);
/// Cases that are run side by side: those that hang poll all the time.
const AT_ONCE: usize = 3;
/// `weir predict` found a deadlock.
const DEADLOCK: i32 = 4;
/// The machine of the verdicts: the limit of eager messages lies between the two sizes of the cases.
const MACHINE: &str = "[network]\nlatency_us = 10\nbandwidth_MB_per_s = 100\neager_bytes = 65536\n";

/// Runs the tests whose names contain `only` with this `weir`; `report` hears of each.
///
/// # Errors
/// If there is no place for files, or the cases cannot be read.
pub fn run(paths: &Paths, weir: &Path, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    for (name, ended) in deadlocks(paths, weir, only)? {
        report(&name, &ended);
    }
    for under in any_mpi::all(paths)
        .iter()
        .filter(|under| under.launcher.starts_with(paths.mpi()) && !under.name.contains("abi"))
    {
        let name = format!("models of recorded runs under {}", under.name);
        if name.contains(only) {
            let ended =
                recorded(paths, weir, under).map_or_else(|e| Ended::Failed(format!("{e:#}")), |()| Ended::Passed);
            report(&name, &ended);
        }
    }
    Ok(())
}

/// A program of the corpus.
struct Case {
    name: String,
    ranks: usize,
    hangs: bool,
    /// Steps by rank.
    steps: Vec<Vec<String>>,
}

fn cases(text: &str) -> Result<Vec<Case>> {
    let mut all: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("= ") {
            let words: Vec<&str> = head.split(' ').collect();
            let [name, ranks, verdict @ ("ends" | "hangs")] = words[..] else { bail!("no case: {line}") };
            let ranks = ranks.parse().with_context(|| line.to_owned())?;
            all.push(Case { name: name.into(), ranks, hangs: verdict == "hangs", steps: vec![Vec::new(); ranks] });
        } else {
            let (rank, steps) = line.split_once(':').with_context(|| line.to_owned())?;
            let case = all.last_mut().context("steps before the first case")?;
            let of = case.steps.get_mut(rank.parse::<usize>()?).with_context(|| format!("no such rank: {line}"))?;
            of.extend(steps.split(';').map(|step| step.trim().to_owned()));
        }
    }
    Ok(all)
}

/// A step as a directive.
fn directive(step: &str) -> Result<String> {
    let words: Vec<&str> = step.split(' ').collect();
    let any = |word: &str| if word == "*" { "ANY".to_owned() } else { word.to_owned() };
    let message = |kind: &str| format!("Message type = MPI_{kind}");
    Ok(match words[..] {
        ["sleep", ms] => format!("Serial time = {ms} ms"),
        ["send", to, size, tag] => format!("{} size = {size} to = {to} tag = {tag}", message("Send")),
        ["ssend", to, size, tag] => format!("{} size = {size} to = {to} tag = {tag}", message("Ssend")),
        ["isend", to, size, tag, r] => format!("{} size = {size} to = {to} tag = {tag} req = r[{r}]", message("Isend")),
        ["issend", to, size, tag, r] => {
            format!("{} size = {size} to = {to} tag = {tag} req = r[{r}]", message("Issend"))
        }
        ["recv", from, tag] => format!("{} from = {} tag = {}", message("Recv"), any(from), any(tag)),
        ["probe", from, tag] => format!("{} from = {} tag = {}", message("Probe"), any(from), any(tag)),
        ["irecv", from, tag, r] => format!("{} from = {} tag = {} req = r[{r}]", message("Irecv"), any(from), any(tag)),
        ["sendrecv", to, size, tag, from, recvtag] => format!(
            "{} size = {size} to = {to} tag = {tag} from = {} recvtag = {}",
            message("Sendrecv"),
            any(from),
            any(recvtag)
        ),
        ["wait", r] => format!("{} req = r[{r}]", message("Wait")),
        ["waitall", ref all @ ..] => {
            let list: Vec<String> = all.iter().map(|r| format!("r[{r}]")).collect();
            format!("{} req = {}", message("Waitall"), list.join(", "))
        }
        ["barrier"] => message("Barrier"),
        ["bcast", root, size] => format!("{} size = {size} root = {root}", message("Bcast")),
        ["allreduce", size] => format!("{} size = {size}", message("Allreduce")),
        _ => bail!("no step: {step}"),
    })
}

/// A case in the directive language.
fn model(case: &Case) -> Result<String> {
    let mut out = String::from("Serial time = 0\n");
    for (rank, steps) in case.steps.iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
        writeln!(out, "Runon c1 = procnum == {rank} {{")?;
        for step in steps {
            writeln!(out, "  {}", directive(step)?)?;
        }
        writeln!(out, "}}")?;
    }
    Ok(out)
}

fn deadlocks(paths: &Paths, weir: &Path, only: &str) -> Result<Vec<(String, Ended)>> {
    let file = paths.mpi_sources().join("deadlocks.txt");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let all = cases(&text)?;
    let name = |case: &Case| {
        let verdict = if case.hangs { "hangs" } else { "ends" };
        format!("{} {verdict} under MPICH and as predicted", case.name)
    };
    let wanted: Vec<&Case> = all.iter().filter(|case| name(case).contains(only)).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = judged(paths, weir, &file, case).unwrap_or_else(|error| Err(format!("{error:#}")));
                    if let Ok(mut results) = results.lock() {
                        results.push((name(case), Ended::from(ended)));
                    }
                }
            });
        }
    });
    Ok(results.into_inner().unwrap_or_default())
}

/// Whether both the real run and the prediction are as the case says.
fn judged(paths: &Paths, weir: &Path, file: &Path, case: &Case) -> Result<Result<(), String>> {
    let folder = tempfile::tempdir()?;
    let (machine, program) = (folder.path().join("machine.toml"), folder.path().join("case.txt"));
    fs::write(&machine, MACHINE)?;
    fs::write(&program, model(case)?)?;
    let ranks = case.ranks.to_string();
    let mut command = Command::new(weir);
    command.arg("predict").arg(&program).arg("--machine").arg(&machine).args(["-n", &ranks, "--quiet"]);
    let predicted = run_limited(&mut command, LIMIT)?;
    let code = predicted.status.and_then(|status| status.code());
    if code != Some(if case.hangs { DEADLOCK } else { 0 }) {
        return Ok(Err(format!("weir predict: {}\n{}{}", predicted.cause(), predicted.stdout, predicted.stderr)));
    }
    let Some(under) = any_mpi::all(paths).into_iter().next() else { bail!("no MPI") };
    let mut command = under.launch(case.ranks);
    command.arg(mpi::program(paths, Mpi::Mpich, "script")).arg(file).arg(&case.name);
    let outcome = run_limited(&mut command, if case.hangs { HANGS } else { LIMIT })?;
    Ok(match (case.hangs, outcome.status) {
        (true, None) => Ok(()),
        (false, Some(status)) if status.success() => Ok(()),
        _ => Err(format!("MPICH: {}\n{}", outcome.cause(), outcome.stderr)),
    })
}

/// An example program, how it is called, and whether its model scales.
const RECORDED: [(&str, &str, bool); 3] = [
    ("jacobi", "--iterations 50 --columns 64 --rows 64", true),
    ("fft", "--transforms 10 --side 64", true),
    ("farm", "--jobs 30 --bytes 1000 --micros 100", false),
];

/// Records each example with 2 and 4 processes; the model must say what it holds for, and if for any number, then do what is
/// recorded with 8.
fn recorded(paths: &Paths, weir: &Path, under: &Under) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    for (name, words, scales) in RECORDED {
        let source = paths.root.join("examples/predict/plain").join(name).with_extension("c");
        let program = at.join(name);
        run_quiet(
            Command::new(under.kind.bin(paths, "mpicc"))
                .args(["-O2", "-g"])
                .arg(source)
                .arg("-o")
                .arg(&program)
                .arg("-lm"),
        )?;
        let text = at.join(format!("{name}.txt"));
        let record = |ranks: &str, more: &[&std::ffi::OsStr]| -> Result<Outcome> {
            let mut command = Command::new(weir);
            crate::launch::without_foreign(&mut command);
            command.args(["record", "-n", ranks, "--compiler"]).arg(under.kind.bin(paths, "mpicc"));
            command.arg("--launcher").arg(&under.launcher);
            if under.kind == Mpi::Openmpi {
                let all = ["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"];
                command.args(all.map(|word| format!("--launcher-arg={word}")));
            }
            command.args(more).arg("--").arg(&program).args(words.split(' '));
            run_limited(&mut command, LIMIT)
        };
        let made = record("2,4", &["-o".as_ref(), text.as_os_str()])?;
        if !made.ok() {
            bail!("{name}: {}\n{}", made.cause(), made.stderr);
        }
        let said = if scales { "with any number of processes" } else { "holds for 4 processes only" };
        let line = format!("{name}.c:");
        if !made.stderr.contains(said) || !fs::read_to_string(&text)?.contains(&line) {
            bail!("{name}: not told that it {said}, or no lines:\n{}", made.stderr);
        }
        if scales {
            let same = record("8", &["--check".as_ref(), text.as_os_str()])?;
            if !same.ok() {
                bail!("{name} with 8 processes: {}\n{}", same.cause(), same.stderr);
            }
        }
        let machine = at.join("machine.toml");
        fs::write(&machine, MACHINE)?;
        let mut command = Command::new(weir);
        command.arg("predict").arg(&text).arg("--machine").arg(&machine).args(["-n", "4", "--runs", "5", "--quiet"]);
        let predicted = run_limited(&mut command, LIMIT)?;
        if !predicted.ok() {
            bail!("{name}: weir predict: {}\n{}", predicted.cause(), predicted.stderr);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_program_of_the_language() {
        let text = fs::read_to_string(Paths::find().mpi_sources().join("deadlocks.txt")).unwrap();
        let all = cases(&text).unwrap();
        assert!(all.len() >= 30 && all.iter().filter(|case| case.hangs).count() > 10);
        for case in &all {
            assert!(model(case).unwrap().contains("Runon"), "{}", case.name);
        }
        assert!(cases("0: barrier").is_err() && cases("= a 2 perhaps").is_err());
    }
}
