//! What `weir predict` and `weir record` say, held against real MPIs: whether programs end
//! (`tests/mpi/deadlocks.txt`), and whether models of recorded runs repeat larger ones.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
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
/// The machine of the verdicts: the limit of eager messages lies between the two sizes of the
/// cases.
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
        type Check = fn(&Real) -> Result<()>;
        let checks: [(&str, Check); 3] = [
            ("models of recorded runs", recorded),
            ("what the recorder sees and says", seen),
            ("annotated programs against recorded ones", annotated),
        ];
        for (what, check) in checks {
            let name = format!("{what} under {}", under.name);
            if name.contains(only) {
                let real = Real { paths, weir, under, folder: tempfile::tempdir()? };
                let ended = check(&real).map_or_else(|e| Ended::Failed(format!("{e:#}")), |()| Ended::Passed);
                report(&name, &ended);
            }
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
    let listed = |all: &[&str]| all.iter().map(|r| format!("r[{r}]")).collect::<Vec<_>>().join(", ");
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
        ["waitall", ref all @ ..] => format!("{} req = {}", message("Waitall"), listed(all)),
        ["waitsome", ref all @ ..] => format!("{} req = {}", message("Waitsome"), listed(all)),
        ["sendinit", to, size, tag, r] => {
            format!("{} size = {size} to = {to} tag = {tag} req = r[{r}]", message("Send_init"))
        }
        ["ssendinit", to, size, tag, r] => {
            format!("{} size = {size} to = {to} tag = {tag} req = r[{r}]", message("Ssend_init"))
        }
        ["recvinit", from, tag, r] => {
            format!("{} from = {} tag = {} req = r[{r}]", message("Recv_init"), any(from), any(tag))
        }
        ["start", r] => format!("{} req = r[{r}]", message("Start")),
        ["startall", ref all @ ..] => format!("{} req = {}", message("Startall"), listed(all)),
        ["free", r] => format!("{} req = r[{r}]", message("Request_free")),
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

/// Programs that are run for real under one MPI.
struct Real<'a> {
    paths: &'a Paths,
    weir: &'a Path,
    under: &'a Under,
    folder: tempfile::TempDir,
}

impl Real<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, source: &Path, name: &str) -> Result<PathBuf> {
        let program = self.at(name);
        let mut command = Command::new(self.under.kind.bin(self.paths, "mpicc"));
        command.args(["-O2", "-g"]).arg(source).arg("-o").arg(&program).args(["-lm", "-lpthread"]);
        run_quiet(&mut command)?;
        Ok(program)
    }

    /// `weir record` of a program with so many processes.
    fn record(&self, program: &Path, words: &[&str], ranks: &str, more: &[&OsStr]) -> Result<Outcome> {
        let mut command = Command::new(self.weir);
        crate::launch::without_foreign(&mut command);
        command.args(["record", "-n", ranks, "--compiler"]).arg(self.under.kind.bin(self.paths, "mpicc"));
        command.arg("--launcher").arg(&self.under.launcher);
        if self.under.kind == Mpi::Openmpi {
            let all = ["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"];
            command.args(all.map(|word| format!("--launcher-arg={word}")));
        }
        command.args(more).arg("--").arg(program).args(words);
        run_limited(&mut command, LIMIT)
    }

    fn predict(&self, model: &Path, more: &[String]) -> Result<Outcome> {
        let machine = self.at("machine.toml");
        fs::write(&machine, MACHINE)?;
        let mut command = Command::new(self.weir);
        command.arg("predict").arg(model).arg("--machine").arg(&machine).arg("--quiet").args(more);
        run_limited(&mut command, LIMIT)
    }
}

/// Records each example with 2 and 4 processes; the model must say what it holds for, and if for
/// any number, then do what is recorded with 8.
fn recorded(real: &Real) -> Result<()> {
    for (name, words, scales) in RECORDED {
        let source = real.paths.root.join("examples/predict/plain").join(name).with_extension("c");
        let (program, text) = (real.compile(&source, name)?, real.at(&format!("{name}.txt")));
        let words: Vec<&str> = words.split(' ').collect();
        let made = real.record(&program, &words, "2,4", &["-o".as_ref(), text.as_os_str()])?;
        if !made.ok() {
            bail!("{name}: {}\n{}", made.cause(), made.stderr);
        }
        let said = if scales { "with any number of processes" } else { "holds for 4 processes only" };
        let line = format!("{name}.c:");
        if !made.stderr.contains(said) || !fs::read_to_string(&text)?.contains(&line) {
            bail!("{name}: not told that it {said}, or no lines:\n{}", made.stderr);
        }
        if scales {
            let same = real.record(&program, &words, "8", &["--check".as_ref(), text.as_os_str()])?;
            if !same.ok() {
                bail!("{name} with 8 processes: {}\n{}", same.cause(), same.stderr);
            }
        }
        let predicted = real.predict(&text, &["-n", "4", "--runs", "5"].map(String::from))?;
        if !predicted.ok() {
            bail!("{name}: weir predict: {}\n{}", predicted.cause(), predicted.stderr);
        }
    }
    Ok(())
}

/// What `recorded.c` does for each word, and what comes of it: what the model has in it and must
/// repeat with 5 processes (with how many it was recorded: those that show the rule), or what is
/// said.
const SEEN: [(&str, &str, Result<&str, &str>); 8] = [
    ("uneven", "3,4", Ok("MPI_Alltoallv")),
    ("persistent", "3,4", Ok("MPI_Issend")),
    ("given-up", "2,4", Ok("MPI_Request_free")),
    ("many", "2,3", Ok("Loop iterations = 20000")),
    ("some", "4", Err("goes on with whichever request is complete first")),
    ("threads", "2", Err("MPI calls of several threads of one process")),
    ("abort", "2", Err("the program failed with 2 processes")),
    ("unfinished", "2", Err("with 2 processes")),
];

/// The recorder in front of a real MPI.
fn seen(real: &Real) -> Result<()> {
    let program = real.compile(&real.paths.mpi_sources().join("recorded.c"), "recorded")?;
    for (word, ranks, wanted) in SEEN {
        let text = real.at("model.txt");
        let made = real.record(&program, &[word], ranks, &["-o".as_ref(), text.as_os_str()])?;
        match wanted {
            Ok(part) => {
                if !made.ok() || !fs::read_to_string(&text)?.contains(part) {
                    bail!("{word}: {}, or no {part} in the model\n{}", made.cause(), made.stderr);
                }
                let same = real.record(&program, &[word], "5", &["--check".as_ref(), text.as_os_str()])?;
                if !same.ok() {
                    bail!("{word} with 5 processes: {}\n{}", same.cause(), same.stderr);
                }
            }
            Err(said) => {
                let ours: Vec<&str> = made.stderr.lines().filter(|line| line.contains(said)).collect();
                if ours.is_empty() || made.stderr.contains("/runs/") {
                    bail!("{word}: not told that {said}, or a folder of ours is named\n{}", made.stderr);
                }
            }
        }
    }
    Ok(())
}

/// Programs as people write them (`tools/annotate/tests/programs`), and what must be given to a
/// prediction of their models.
const ANNOTATED: [(&str, &str); 11] = [
    ("doubling", ""),
    ("levels", ""),
    ("oddeven", ""),
    ("persistent", "n_26=0"),
    ("pipeline", ""),
    ("ring", ""),
    ("shift", ""),
    ("some", ""),
    ("structs", "size_count_39=8192"),
    ("transpose", "pair_bytes=16"),
    ("tree", ""),
];

/// The model that `weir annotate` makes of a program takes exactly as long as the one of its
/// recorded run, where computing takes no time: the same messages, of the same sizes, in the same
/// order.
fn annotated(real: &Real) -> Result<()> {
    let programs = real.paths.root.join("tools/annotate/tests/programs");
    for (name, given) in ANNOTATED {
        let source = programs.join(name).with_extension("c");
        let program = real.compile(&source, name)?;
        let (model, text) = (real.at(&format!("{name}.model.c")), real.at(&format!("{name}.txt")));
        let annotated = run_limited(Command::new(real.weir).arg("annotate").arg(&source).arg("-o").arg(&model), LIMIT)?;
        if !annotated.ok() {
            bail!("{name}: {}\n{}", annotated.cause(), annotated.stderr);
        }
        for ranks in ["2", "4"] {
            let made = real.record(&program, &[], ranks, &["-o".as_ref(), text.as_os_str()])?;
            if !made.ok() {
                bail!("{name} with {ranks}: {}\n{}", made.cause(), made.stderr);
            }
            let timeless = fs::read_to_string(&text)?;
            let timeless: Vec<&str> = timeless.lines().filter(|l| !l.trim_start().starts_with("Serial ")).collect();
            fs::write(&text, timeless.join("\n"))?;
            let times: Vec<String> =
                annotated.stderr.split("-p ").skip(1).filter_map(|w| w.split('=').next()).map(str::to_owned).collect();
            let zero = times.iter().filter(|n| n.starts_with("serial_")).map(|n| format!("{n}=0"));
            let parameters: Vec<String> = zero.chain(given.split_whitespace().map(str::to_owned)).collect();
            let mut words = vec!["--json".to_owned(), "-n".into(), ranks.into()];
            let of_run = seconds(&real.predict(&text, &words)?).with_context(|| format!("{name}, recorded"))?;
            words.extend(parameters.iter().flat_map(|p| ["-p".to_owned(), p.clone()]));
            let of_text = seconds(&real.predict(&model, &words)?).with_context(|| format!("{name}, annotated"))?;
            if (of_run - of_text).abs() > 1e-12 {
                bail!("{name} with {ranks}: {of_text} s by its text, {of_run} s by its run");
            }
        }
    }
    Ok(())
}

/// The time that is predicted.
fn seconds(predicted: &Outcome) -> Result<f64> {
    if !predicted.ok() {
        bail!("weir predict: {}\n{}{}", predicted.cause(), predicted.stdout, predicted.stderr);
    }
    crate::predict::predicted_median(&predicted.stdout)
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
