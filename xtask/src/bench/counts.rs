//! `cargo xtask bench counts`: instructions of one `MPI_Send` and of one `MPI_Recv` that finds its
//! message, counted by Valgrind's callgrind. Counts are the same on a busy machine: what noise
//! hides in times shows here. (The program asks for an answer once it is there, so that no receive
//! counts polls in vain.)

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::launch::without_foreign;
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::{Outcome, run_limited};
use crate::stack::{Carrier, Stack};
use crate::{dist, launch};

/// What the provider is to need at most down to the device call, of 8 bytes under MPICH.
const GOALS: [(&str, f64); 2] = [("MPI_Send", 1500.0), ("MPI_Recv", 2000.0)];
/// One program under callgrind, with the start of an MPI.
const LIMIT: Duration = Duration::from_secs(120);

/// What to count.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench counts
  cargo xtask bench counts --size 1024 --only weir --json")]
pub struct Options {
    /// Bytes of a message
    #[arg(long, default_value_t = 8)]
    pub size: u32,
    /// Messages each way
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub reps: u32,
    /// Time between a send and its receive, microseconds, at least: of what is looked after each 5
    /// ms a receive bears its part
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pause_us: u32,
    /// Only stacks whose names start so
    #[arg(long)]
    pub only: Option<String>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Count the provider that is there, without building
    #[arg(long)]
    pub no_build: bool,
}

/// What one call costs, instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    /// With the MPI.
    whole: f64,
    /// Of that below the MPI: provider, C library.
    provider: f64,
}

/// A stack under a name of its own, and the carrier Weir is told to use.
fn stacks() -> [(&'static str, Stack, Option<&'static str>); 7] {
    let stack = |mpi, carrier| Stack { name: String::new(), mpi, carrier, congestion: None, env: Vec::new() };
    [
        ("weir-mpich-udp", stack(Mpi::Mpich, Carrier::Weir), Some("udp")),
        ("weir-mpich-shm", stack(Mpi::Mpich, Carrier::Weir), Some("shm")),
        ("weir-openmpi-udp", stack(Mpi::Openmpi, Carrier::Weir), Some("udp")),
        ("weir-openmpi-shm", stack(Mpi::Openmpi, Carrier::Weir), Some("shm")),
        ("mpich-ofi-tcp", stack(Mpi::Mpich, Carrier::OfiTcp), None),
        ("mpich-ofi-shm", stack(Mpi::Mpich, Carrier::OfiShm), None),
        ("openmpi-ofi-tcp", stack(Mpi::Openmpi, Carrier::OfiTcp), None),
    ]
}

/// Counts and prints.
///
/// # Errors
/// If there is no Valgrind, or a program does not end well.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bail!("valgrind is missing; Debian has it as package valgrind");
    }
    let is_chosen = |name: &str| options.only.as_ref().is_none_or(|start| name.starts_with(start.as_str()));
    if !stacks().iter().any(|(name, ..)| is_chosen(name)) {
        bail!("no stack has such a name; there are: {}", stacks().map(|(name, ..)| name).join(", "));
    }
    if !options.no_build {
        dist::build(paths)?;
    }
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    let mut rows = Vec::new();
    for (name, stack, carrier) in stacks() {
        if !is_chosen(name) {
            continue;
        }
        let mut costs = BTreeMap::new();
        for (call, _) in GOALS {
            eprintln!("{name}: {call}");
            costs.insert(call, count(paths, &stack, carrier, call, options).with_context(|| name.to_owned())?);
        }
        rows.push((name, costs));
    }
    if options.json {
        let value = |(name, costs): &(&str, BTreeMap<&str, Cost>)| {
            let calls: serde_json::Map<String, Value> = costs
                .iter()
                .map(|(call, c)| ((*call).into(), json!({"instructions": c.whole, "provider": c.provider})))
                .collect();
            json!({"stack": name, "size": options.size, "calls": calls})
        };
        println!("{:#}", Value::Array(rows.iter().map(value).collect()));
    } else {
        print!("{}", table(&rows, options.size));
    }
    Ok(())
}

fn table(rows: &[(&str, BTreeMap<&str, Cost>)], size: u32) -> String {
    let mut text = format!("Instructions of one call, {size} bytes; in brackets below the MPI.\n\n| stack |");
    for (call, goal) in GOALS {
        text += &format!(" {call} (goal {goal:.0}) |");
    }
    text += &format!("\n|---|{}\n", "---:|".repeat(GOALS.len()));
    for (name, costs) in rows {
        text += &format!("| {name} |");
        for (call, _) in GOALS {
            let cost = costs.get(call).map_or_else(|| "-".into(), |c| format!("{:.0} ({:.0})", c.whole, c.provider));
            text += &format!(" {cost} |");
        }
        text.push('\n');
    }
    text
}

/// Runs the program with rank 0 under callgrind, which looks at `call` only.
fn count(paths: &Paths, stack: &Stack, carrier: Option<&str>, call: &str, options: &Options) -> Result<Cost> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind");
    let program = mpi::program(paths, stack.mpi, "counts");
    let outcome = run_limited(&mut command(paths, stack, carrier, call, &program, &file, options)?, LIMIT)?;
    check(&outcome)?;
    let text = std::fs::read_to_string(&file).context("callgrind wrote nothing")?;
    let below = if stack.is_ours() { "libweir-fi" } else { "libfabric" };
    let (whole, provider) = costs(&text, below).context("callgrind's file is of another format")?;
    if whole == 0 {
        bail!("{call} was not seen");
    }
    let reps = f64::from(options.reps);
    Ok(Cost { whole: whole as f64 / reps, provider: provider as f64 / reps })
}

fn check(outcome: &Outcome) -> Result<()> {
    if !outcome.ok() || launch::result_of(outcome).is_none() {
        bail!("{}", outcome.cause());
    }
    Ok(())
}

fn command(
    paths: &Paths,
    stack: &Stack,
    carrier: Option<&str>,
    call: &str,
    program: &Path,
    file: &Path,
    options: &Options,
) -> Result<Command> {
    let settings = stack.settings(paths, "lo")?;
    let mut command = Command::new(stack.mpi.bin(paths, "mpiexec"));
    without_foreign(&mut command);
    command.envs(settings.env);
    // What is given on the command line holds for the first program only.
    for words in settings.args.chunks(3) {
        if let [_, name, value] = words {
            command.env(format!("OMPI_MCA_{name}"), value);
        }
    }
    match stack.mpi {
        // It keeps no messages from its provider where it is told `ofi`.
        Mpi::Intel => &mut command,
        Mpi::Mpich => command.env("MPIR_CVAR_NOLOCAL", "1"),
        Mpi::Openmpi | Mpi::Debian => command.args(["--allow-run-as-root", "--bind-to", "none"]),
    };
    if let Some(carrier) = carrier {
        // All is done by the thread that is looked at; and nobody is given up because the counter
        // is slow.
        command.env("WEIR_CARRIER", carrier).env("WEIR_IFACE", "lo");
        command.env("WEIR_WATCHDOG_US", "0").env("WEIR_PEER_TIMEOUT_MS", "60000");
    }
    let given = [("--size", options.size), ("--reps", options.reps), ("--pause-us", options.pause_us)];
    let args = given.map(|(name, value)| [name.to_owned(), value.to_string()]).concat();
    command.args(["-n", "1", "valgrind", "-q", "--tool=callgrind"]);
    command.arg(format!("--toggle-collect=*{call}")).arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).args(&args).args([":", "-n", "1"]).arg(program).args(&args);
    Ok(command)
}

/// All that callgrind collected, and of that what was called from outside of `below` into it;
/// instructions.
fn costs(text: &str, below: &str) -> Option<(u64, u64)> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut object, mut callee, mut call, mut inside) = ("", None, false, 0);
    let mut whole = None;
    for line in text.lines() {
        if let Some(total) = line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")) {
            whole = whole.max(total.trim().parse::<u64>().ok());
        } else if let Some(value) = line.strip_prefix("ob=") {
            object = named(&mut names, value)?;
        } else if let Some(value) = line.strip_prefix("cob=") {
            callee = Some(named(&mut names, value)?);
        } else if line.starts_with("calls=") {
            call = true;
        } else if call {
            // The line after says where the call was made, and what it cost with all below.
            let cost: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            let to = callee.take().unwrap_or(object);
            if to.contains(below) && !object.contains(below) {
                inside += cost;
            }
            call = false;
        }
    }
    Some((whole?, inside))
}

/// The name behind `(number) name`, which is given only the first time.
fn named<'a>(names: &mut BTreeMap<&'a str, &'a str>, value: &'a str) -> Option<&'a str> {
    let (number, name) = value.split_once(' ').map_or((value, None), |(number, name)| (number, Some(name)));
    match name {
        Some(name) => {
            names.insert(number, name);
            Some(name)
        }
        None => names.get(number).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "version: 1\nevents: Ir\n\nob=(1) /x/libmpi.so.12\nfl=(1) ???\nfn=(1) PMPI_Send\n0 10\ncob=(2) /x/libweir-fi.so\n\
                        cfi=(2) a.rs\ncfn=(2) send\ncalls=2 0\n0 70\ncfn=(3) own\ncalls=1 0\n0 5\n\nob=(2)\nfn=(2)\n3 40\ncob=(3) /libc.so\n\
                        cfn=(4) sendto\ncalls=2 0\n4 30\n\nob=(3)\nfn=(4)\n0 30\n\nob=(1)\nfn=(3)\n0 5\n\ntotals: 85\n";

    #[test]
    fn what_the_provider_and_all_it_calls_cost_is_counted_once() {
        assert_eq!(costs(FILE, "libweir-fi"), Some((85, 70)));
        assert_eq!(costs(FILE, "libfabric"), Some((85, 0)));
    }

    #[test]
    fn another_format_is_no_number() {
        assert_eq!(costs("", "x"), None);
        assert_eq!(costs("ob=(7)\ntotals: 3\n", "x"), None);
        assert_eq!(costs("ob=(1) a\ncalls=1 0\n0\ntotals: 3\n", "x"), None);
    }

    #[test]
    fn a_table_names_the_goals() {
        let cost = Cost { whole: 1234.4, provider: 1000.0 };
        let text = table(&[("weir", BTreeMap::from([("MPI_Send", cost)]))], 8);
        assert!(text.contains("MPI_Send (goal 1500)") && text.contains("| weir | 1234 (1000) | - |"), "{text}");
    }
}
