//! The NAS kernels LU, BT, SP and MG of `tests/mpi/nas`, in Fortran: made with Debian's Open MPI
//! 4.1, and over the C library of MPICH's wheel, which brings no Fortran. Between two emulated
//! hosts they have to give the published values over Weir.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::e2e::{Ended, carried, counters_in, judged, no_folder};
use crate::lab::{Lab, Wire};
use crate::launch::Job;
use crate::mpi::Mpi;
use crate::paths::Paths;
use crate::process::run_quiet;
use crate::stack::{Carrier, Stack};

/// The kernels, by file name without `.f90`.
pub const KERNELS: [&str; 4] = ["lu", "bt", "sp", "mg"];
/// The MPIs they are made with.
pub const MPIS: [Mpi; 2] = [Mpi::Debian, Mpi::Mpich];
/// Hosts, over which ranks are dealt out in turn.
pub const HOSTS: usize = 2;
/// A launch takes a second or two alone; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(120);
/// Names under which a compiler may be there: Debian's packages of a version bring no plain one.
const COMPILERS: [&str; 5] = ["gfortran", "gfortran-15", "gfortran-14", "gfortran-13", "gfortran-12"];

/// The Fortran compiler.
fn compiler() -> Result<&'static str, String> {
    let there = |name: &&str| run_quiet(Command::new(name).arg("--version")).is_ok();
    COMPILERS.into_iter().find(there).ok_or_else(|| "no Fortran compiler: apt-get install gfortran".to_owned())
}

/// Makes a kernel with one MPI.
///
/// # Errors
/// Why it cannot be made here.
pub fn compile(paths: &Paths, mpi: Mpi, kernel: &str) -> Result<PathBuf, String> {
    let gfortran = compiler()?;
    let wrapper = mpi.bin(paths, "mpifort");
    if mpi == Mpi::Debian && !wrapper.exists() {
        return Err(format!("no {}: apt-get install openmpi-bin libopenmpi-dev", wrapper.display()));
    }
    // A folder of its own: the compiler writes its modules there.
    let folder = paths.mpi().join("programs").join(mpi.name()).join("nas");
    let out = folder.join(kernel);
    let make = || -> Result<()> {
        fs::create_dir_all(&folder)?;
        let mut fortran = if mpi == Mpi::Debian { Command::new(&wrapper) } else { Command::new(gfortran) };
        fortran.env("OMPI_FC", gfortran).current_dir(&folder);
        fortran.args(["-O3", "-std=f2018", "-Wall", "-Wextra", "-Werror", "-J"]).arg(&folder);
        let source = |name: &str| paths.mpi_sources().join("nas").join(name).with_extension("f90");
        if mpi == Mpi::Mpich {
            fortran.arg(source("mpich"));
        }
        fortran.args(["cfd", "multi", kernel].map(source)).arg("-o").arg(&out);
        if mpi == Mpi::Mpich {
            let library = mpi.folder(paths).join("lib");
            fortran.arg("-L").arg(&library).arg("-lmpi").arg(format!("-Wl,-rpath,{}", library.display()));
        }
        run_quiet(&mut fortran).map(drop).with_context(|| format!("{kernel} does not compile with {}", mpi.name()))
    };
    make().map(|()| out.clone()).map_err(|error| format!("{error:#}"))
}

/// A kernel of class S between two hosts.
struct Case {
    kernel: &'static str,
    ranks: usize,
    mpi: Mpi,
}

const CASES: [Case; 6] = [
    Case { kernel: "lu", ranks: 2, mpi: Mpi::Debian },
    Case { kernel: "lu", ranks: 4, mpi: Mpi::Debian },
    Case { kernel: "bt", ranks: 4, mpi: Mpi::Debian },
    Case { kernel: "sp", ranks: 4, mpi: Mpi::Debian },
    Case { kernel: "mg", ranks: 4, mpi: Mpi::Debian },
    Case { kernel: "lu", ranks: 4, mpi: Mpi::Mpich },
];

impl Case {
    fn title(&self) -> String {
        let mpi = if self.mpi == Mpi::Debian { "Debian's Open MPI 4.1" } else { "MPICH" };
        format!("NAS {} of class S, {} ranks on {HOSTS} hosts, in Fortran with {mpi}", self.kernel, self.ranks)
    }
}

/// Runs what contains `only` in its title; `report` hears of each as it ends.
///
/// # Errors
/// If there can be no network of hosts.
pub fn run(paths: &Paths, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.title().contains(only)).collect();
    if cases.is_empty() {
        return Ok(());
    }
    let lab = Lab::start(HOSTS, &Wire::plain(0.0))?;
    for case in cases {
        let ended = match compile(paths, case.mpi, case.kernel) {
            // A source that does not compile is no lack of a compiler.
            Err(why) if why.contains("does not compile") => Ended::Failed(why),
            Err(why) => Ended::Skipped(why),
            Ok(program) => verified(paths, &lab, case, &program).into(),
        };
        report(&case.title(), &ended);
    }
    Ok(())
}

/// Weir under an MPI that the kernels are made with.
pub fn weir_under(mpi: Mpi) -> Stack {
    let name = if mpi == Mpi::Debian { "weir-openmpi41" } else { "weir-mpich" };
    Stack { name: name.into(), mpi, carrier: Carrier::Weir, congestion: None, env: Vec::new() }
}

fn verified(paths: &Paths, lab: &Lab, case: &Case, program: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let env = [("WEIR_STATS".to_owned(), folder.path().join("%p").display().to_string())];
    let args = ["--class", "S"].map(str::to_owned);
    let stack = weir_under(case.mpi);
    let job = Job { stack: &stack, ranks: case.ranks, program, args: &args, limit: LIMIT, env: &env };
    let said = judged(job.run(paths, Some(lab)))?;
    if said.get("verified") != Some(&Value::Bool(true)) || said["ranks"] != case.ranks {
        return Err(format!("not {} ranks with the published values: {said}", case.ranks));
    }
    let documents = counters_in(folder.path());
    carried(&documents, case.ranks)?;
    all_counted(&QueueStatistics::of(&documents), &said)
}

/// Messages by whether somebody waited for them already and whether they were longer than 64 KiB:
/// of all ranks together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueStatistics {
    /// Somebody waited; at most 64 KiB.
    pub expected_short: f64,
    /// Somebody waited; more.
    pub expected_long: f64,
    /// Nobody waited; at most 64 KiB.
    pub unexpected_short: f64,
    /// Nobody waited; more.
    pub unexpected_long: f64,
}

impl QueueStatistics {
    /// The sum of what the ranks' counters say.
    pub fn of(documents: &[Value]) -> Self {
        let sum = |name: &str| crate::e2e::sum_of(documents, &format!("/queue_statistics/{name}")) as f64;
        Self {
            expected_short: sum("expected_short"),
            expected_long: sum("expected_long"),
            unexpected_short: sum("unexpected_short"),
            unexpected_long: sum("unexpected_long"),
        }
    }

    fn all(&self) -> f64 {
        self.expected_short + self.expected_long + self.unexpected_short + self.unexpected_long
    }
}

/// All messages that the program got went by Weir, and hardly any others (the start, sums at the
/// end).
fn all_counted(queue_statistics: &QueueStatistics, said: &Value) -> Result<(), String> {
    let number = |key: &str| said.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let program = number("short") + number("long");
    let right = program > 0.0 && (program..program * 1.5 + 100.0).contains(&queue_statistics.all());
    if right { Ok(()) } else { Err(format!("the program got {program} messages, Weir counted {queue_statistics:?}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_case_has_its_source_and_its_own_title() {
        let paths = Paths::find();
        let files: Vec<&str> = KERNELS.into_iter().chain(["cfd", "multi", "mpich"]).collect();
        assert!(files.iter().all(|name| paths.mpi_sources().join("nas").join(name).with_extension("f90").is_file()));
        let titles: std::collections::BTreeSet<String> = CASES.iter().map(Case::title).collect();
        assert_eq!(titles.len(), CASES.len());
        assert!(CASES.iter().all(|case| KERNELS.contains(&case.kernel) && MPIS.contains(&case.mpi)));
        assert!(MPIS.into_iter().all(|mpi| weir_under(mpi).is_ours()));
    }

    #[test]
    fn messages_that_went_elsewhere_are_noticed() {
        let rank = |short: u64| json!({"queue_statistics": {"expected_short": short, "unexpected_short": 3, "expected_long": 1}});
        let queue_statistics = QueueStatistics::of(&[rank(500), rank(600)]);
        assert_eq!(queue_statistics.all(), 1108.0);
        assert_eq!(all_counted(&queue_statistics, &json!({"short": 1.0e3, "long": 2.0})), Ok(()));
        for said in [json!({"short": 2000.0, "long": 0.0}), json!({"short": 300.0, "long": 0.0}), json!({})] {
            assert!(all_counted(&queue_statistics, &said).is_err(), "{said}");
        }
    }
}
