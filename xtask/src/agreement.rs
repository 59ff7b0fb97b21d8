//! Whether `weir bench` agrees with the means of other benchmarks, under each MPI. Timed, so that
//! it is no test: on a machine that does much else it says that it cannot tell.

use std::time::Duration;

use anyhow::Result;

use crate::any_mpi;
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::{run_limited, run_quiet};

/// For all sizes together.
const SECONDS: u64 = 60;
/// Starting, and rounds that are begun before the time is over.
const LIMIT: Duration = Duration::from_secs(SECONDS + 120);

/// Runs the comparison on two ranks of each MPI; prints a line for each size, and returns whether
/// all passed.
///
/// # Errors
/// If the MPIs cannot be had, or the program does not build.
pub fn run(paths: &Paths) -> Result<bool> {
    mpi::set_up(paths)?;
    run_quiet(paths.cargo().args(["build", "--quiet", "--release", "-p", "weir-bench", "--example", "agreement"]))?;
    let program = paths.target.join("release/examples/agreement");
    let mut good = true;
    for under in any_mpi::all(paths) {
        if let Some(why) = under.missing() {
            println!("{}: skipped: {why}", under.name);
            continue;
        }
        let mut command = under.launch(2);
        // What moves between processors differs from itself by more than what is judged here.
        if under.kind == Mpi::Mpich {
            command.args(["-bind-to", "core"]);
        }
        let outcome = run_limited(command.arg(&program).arg(SECONDS.to_string()), LIMIT)?;
        println!("{}:\n{}", under.name, outcome.stdout.trim_end());
        if !outcome.ok() {
            good = false;
            println!("{}: FAILED: {}", under.name, outcome.cause());
        }
    }
    Ok(good)
}
