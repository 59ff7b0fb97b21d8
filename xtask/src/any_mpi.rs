//! One binary under every MPI: the crate `weir-mpi` by its example `every_call`, which makes each
//! of its calls and checks it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::e2e::Ended;
use crate::launch::{result_of, started, without_foreign};
use crate::mpi::Mpi;
use crate::paths::Paths;
use crate::process::{Outcome, run_limited, run_quiet};

/// Each takes a second or two alone; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(240);
/// The exit code of `every_call abort`.
const ABORTED: i32 = 7;
/// Where Debian's package `mpich` puts its launcher, also beside other MPIs.
const DEBIANS_MPICH: &str = "/usr/bin/mpiexec.mpich";

/// An MPI to run under.
pub struct Under {
    /// As people call it.
    pub name: &'static str,
    /// Whose launcher it is.
    pub kind: Mpi,
    /// Its `mpiexec`.
    pub launcher: PathBuf,
    /// The library to ask for instead of the launcher's first.
    library: Option<&'static str>,
    /// What `MPI_Get_library_version` has to say, and the ABI it has to be called by.
    version: &'static str,
    abi: &'static str,
    /// What it wants to be told.
    env: Vec<(&'static str, String)>,
}

/// Each MPI that this project is tried with, there or not.
pub fn all(paths: &Paths) -> [Under; 4] {
    let fetched = |kind: Mpi| kind.bin(paths, "mpiexec");
    let (mpich, open) = (Mpi::Mpich, Mpi::Openmpi);
    let under = |name, kind, launcher, library, version, abi| Under {
        name,
        kind,
        launcher,
        library,
        version,
        abi,
        env: Vec::new(),
    };
    [
        under("MPICH", mpich, fetched(mpich), None, "MPICH Version: 5.", "MPICH's ABI"),
        under(
            "MPICH's libmpi_abi",
            mpich,
            fetched(mpich),
            Some("libmpi_abi.so"),
            "MPICH Version: 5.",
            "the MPI standard's ABI",
        ),
        under("Open MPI", open, fetched(open), None, "Open MPI v5.", "Open MPI's ABI"),
        under("Debian's MPICH", mpich, DEBIANS_MPICH.into(), None, "MPICH Version: ", "MPICH's ABI"),
    ]
}

impl Under {
    fn run(&self, program: &Path, ranks: usize, mode: Option<&str>, library: Option<&Path>) -> Result<Outcome> {
        started(self.name, || {
            let mut command = self.launch(ranks);
            if let Some(library) = library {
                command.env("WEIR_MPI_LIBRARY", library);
            }
            run_limited(command.arg(program).args(mode), LIMIT)
        })
    }

    /// Intel MPI, if it was fetched.
    pub fn intel(paths: &Paths) -> Self {
        let folder = Mpi::Intel.folder(paths);
        Self {
            name: "Intel MPI",
            kind: Mpi::Intel,
            launcher: Mpi::Intel.bin(paths, "mpiexec"),
            library: None,
            version: "Intel(R) MPI Library",
            abi: "MPICH's ABI",
            // Between ranks of one host it needs no libfabric then.
            env: vec![("I_MPI_FABRICS", "shm".into()), ("LD_LIBRARY_PATH", folder.join("lib").display().to_string())],
        }
    }

    /// Why this MPI cannot be used here, if it cannot.
    pub fn missing(&self) -> Option<String> {
        let there = self.launcher.exists();
        let how = if self.kind == Mpi::Intel { "cargo xtask clusters fetches it" } else { "apt-get install mpich" };
        (!there).then(|| format!("{} is missing: {how}", self.launcher.display()))
    }

    /// The launcher with so many ranks; the program and its words come behind.
    pub fn launch(&self, ranks: usize) -> Command {
        let mut command = Command::new(&self.launcher);
        without_foreign(&mut command);
        command.args(["-n", &ranks.to_string()]).envs(self.env.iter().map(|(name, value)| (name, value)));
        if self.kind == Mpi::Openmpi {
            command.args(["--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]);
        }
        if let Some(library) = self.library {
            command.env("WEIR_MPI_LIBRARY", library);
        }
        command
    }

    /// Every call, with this many ranks.
    fn every_call(&self, program: &Path, ranks: usize) -> Result<(), String> {
        let outcome = self.run(program, ranks, None, None).map_err(|error| format!("{error:#}"))?;
        let result = result_of(&outcome).filter(|_| outcome.ok()).ok_or_else(|| outcome.cause())?;
        let text = |key: &str| result.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        if result["ranks"] != ranks || text("abi") != self.abi || !text("version").starts_with(self.version) {
            return Err(format!("not {ranks} ranks of {} by {}: {result}", self.version, self.abi));
        }
        Ok(())
    }

    /// Several threads of each rank at once.
    fn threads(&self, program: &Path) -> Result<(), String> {
        let outcome = self.run(program, 3, Some("threads"), None).map_err(|error| format!("{error:#}"))?;
        if outcome.ok() { Ok(()) } else { Err(outcome.cause()) }
    }

    /// A rank that ends early must end the others too, which wait for it.
    fn ends_early(&self, program: &Path, mode: &str, wanted: impl Fn(&Outcome) -> bool) -> Result<(), String> {
        let outcome = self.run(program, 3, Some(mode), None).map_err(|error| format!("{error:#}"))?;
        if outcome.status.is_none() || !wanted(&outcome) { Err(outcome.cause()) } else { Ok(()) }
    }

    /// A library that does not understand the launcher starts every rank alone, and that has to be
    /// said.
    fn says_alone(&self, program: &Path, foreign: &Path) -> Result<(), String> {
        let outcome = self.run(program, 2, Some("which"), Some(foreign)).map_err(|error| format!("{error:#}"))?;
        let said = outcome.stderr.contains("started 2 processes, but each is alone in MPI");
        if outcome.ok() || !said { Err(format!("not told that ranks are alone: {}", outcome.cause())) } else { Ok(()) }
    }
}

fn ended(result: Result<(), String>) -> Ended {
    result.map_or_else(Ended::Failed, |()| Ended::Passed)
}

/// Makes the program.
fn program(paths: &Paths) -> Result<PathBuf> {
    run_quiet(paths.cargo().args(["build", "--quiet", "-p", "weir-mpi", "--example", "every_call"]))?;
    Ok(paths.target.join("debug/examples/every_call"))
}

/// Runs the program under each MPI that was fetched, and under Debian's if it is installed.
///
/// # Errors
/// If the program does not build.
pub fn run(paths: &Paths, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let (program, all) = (program(paths)?, all(paths));
    all.iter().for_each(|under| each(under, &program, "", &mut report));
    let foreign = Mpi::Openmpi.folder(paths).join("lib/libmpi.so.40");
    report("Open MPI's library by MPICH's launcher", &ended(all[0].says_alone(&program, &foreign)));
    on_intel(paths, "", report)
}

/// The same under Intel MPI, which is fetched here; what contains `only` in its title.
///
/// # Errors
/// If the program does not build.
pub fn on_intel(paths: &Paths, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let under = Under::intel(paths);
    if !titles(&under).iter().any(|title| title.contains(only)) {
        return Ok(());
    }
    if let Err(why) = crate::mpi::set_up_one(paths, Mpi::Intel) {
        report("Intel MPI", &Ended::Skipped(format!("{why:#}")));
        return Ok(());
    }
    each(&under, &program(paths)?, only, &mut report);
    Ok(())
}

/// What is tried under one MPI: with one rank, with three, with several threads of each, and what
/// happens when a rank ends early.
fn titles(under: &Under) -> [String; 5] {
    ["every call, ranks: 1,", "every call, ranks: 3,", "threads of 3 ranks", "a rank that aborts", "a rank that leaves"]
        .map(|what| format!("{what} under {}", under.name))
}

/// All of that which contains `only` in its title.
fn each(under: &Under, program: &Path, only: &str, report: &mut impl FnMut(&str, &Ended)) {
    let aborted = |outcome: &Outcome| outcome.status.and_then(|status| status.code()) == Some(ABORTED);
    let failed = |outcome: &Outcome| !outcome.ok() && outcome.stderr.contains("left in the middle");
    let tests: [&dyn Fn() -> Result<(), String>; 5] = [
        &|| under.every_call(program, 1),
        &|| under.every_call(program, 3),
        &|| under.threads(program),
        &|| under.ends_early(program, "abort", aborted),
        &|| under.ends_early(program, "leave", failed),
    ];
    for (title, test) in titles(under).iter().zip(tests).filter(|(title, _)| title.contains(only)) {
        report(title, &under.missing().map_or_else(|| ended(test()), Ended::Skipped));
    }
}
