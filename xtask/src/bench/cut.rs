//! `cargo xtask bench cut`: a ping-pong between two hosts that two links join, of which the one in
//! use is cut in the middle: Weir beside what else is said to use several links.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::beside::{Common, Told, about_json, bar, failures, head, launches_json, spread, wanted};
use crate::e2e::judged;
use crate::lab::{self, DATA_IFACE, Lab, SECOND_IFACE, Wire};
use crate::launch::Job;
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::{run_limited, run_quiet};
use crate::stack::{Carrier, Stack};

/// What to measure, and how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench cut
  cargo xtask bench cut --only healed --launches 5 --json")]
pub struct Options {
    /// Only these: silent (a cable cut, and nobody told), pulled (a cable pulled at one host),
    /// healed (each link cut for three seconds, one after the other)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How long the ping-pong goes on; the cut comes a second after its beginning
    #[arg(long, default_value_t = 12.0)]
    seconds: f64,
    /// Launches of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    launches: u32,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "cut")]
    name: String,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write no report
    #[arg(long)]
    no_report: bool,
    /// Measure the provider that is there, without building
    #[arg(long)]
    no_build: bool,
}

/// What happens to the link.
struct Cell {
    id: &'static str,
    told: &'static str,
    wire: fn() -> Wire,
    during: fn(&Lab) -> Result<()>,
}

/// How long a link that heals stays cut.
const CUT: Duration = Duration::from_secs(3);
/// How long both are whole between two cuts.
const WHOLE: Duration = Duration::from_secs(2);
/// A job is given so much longer than its program was asked to run.
const PATIENCE: Duration = Duration::from_secs(12);

fn cables() -> Wire {
    Wire { two_cables: true, ..Wire::plain(0.0) }
}

const CELLS: [Cell; 3] = [
    Cell {
        id: "silent",
        told: "two cables (veth); what arrives by the first is dropped from then on, at both hosts, and nobody is told",
        wire: cables,
        during: |lab| lab.mute(0..2),
    },
    Cell {
        id: "pulled",
        told: "two cables (veth); the first is pulled at the first host for good: its interface has no carrier",
        wire: cables,
        during: |lab| lab.pull(0),
    },
    Cell {
        id: "healed",
        told: "two networks of 1 Gbit/s with a switch each; the first host's link to the first is cut for 3 s, and two seconds later that to the second, and nobody is told: whichever is in use is cut",
        wire: || Wire { two_networks: true, ..Wire::shaped(1000, 50, 0.0) },
        during: |lab| {
            lab.cut(DATA_IFACE)?;
            thread::sleep(CUT);
            lab.heal(DATA_IFACE)?;
            thread::sleep(WHOLE);
            lab.cut(SECOND_IFACE)?;
            thread::sleep(CUT);
            lab.heal(SECOND_IFACE)
        },
    },
];

/// The stacks, ours first. `shim` makes TCP sockets those of Multipath TCP.
fn stacks(shim: Option<&Path>) -> Vec<Stack> {
    let stack = |name: &str, mpi, carrier| Stack { name: name.into(), mpi, carrier, congestion: None, env: Vec::new() };
    let mut all = vec![
        stack("weir-mpich", Mpi::Mpich, Carrier::Weir),
        stack("weir-openmpi", Mpi::Openmpi, Carrier::Weir),
        stack("openmpi-ob1, both links", Mpi::Openmpi, Carrier::Ob1Tcp),
        stack("mpich-tcp", Mpi::Mpich, Carrier::OfiTcp),
        stack("mpich-ucx, both links", Mpi::Mpich, Carrier::UcxTcp),
    ];
    if let Some(shim) = shim {
        let env = vec![("LD_PRELOAD".to_owned(), shim.display().to_string())];
        all.push(Stack { env, ..stack(MULTIPATH, Mpi::Openmpi, Carrier::Ob1Tcp) });
    }
    all
}

const MULTIPATH: &str = "openmpi-ob1 over Multipath TCP";

/// Launches by cell and stack.
type Results = BTreeMap<(&'static str, String), Vec<Told>>;

/// Measures and reports.
///
/// # Errors
/// If something cannot be built, or the report cannot be written. A launch that fails is told in
/// its row.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| wanted(&options.only, cell.id)).collect();
    if cells.is_empty() {
        bail!("none of: {}", CELLS.map(|cell| cell.id).join(", "));
    }
    let how = lab::acquire()?;
    if !options.no_build {
        crate::dist::provider(paths)?;
    }
    mpi::set_up(paths)?;
    Mpi::ALL.into_iter().try_for_each(|mpi| mpi::compile_these(paths, mpi, &["pingpong"]))?;
    let (json, no_report, no_build) = (options.json, options.no_report, options.no_build);
    let common = Common { launches: options.launches, seconds: options.seconds, json, no_report, no_build };
    let mut about = common.about(paths, how);
    let shim = multipath(paths);
    if let Err(why) = &shim {
        about.push(("not run".into(), format!("{MULTIPATH}: {why:#}")));
    }
    let stacks = stacks(shim.as_deref().ok());
    let results = measure(paths, options, &cells, &stacks)?;
    let page = page(&results, &cells, &stacks, options, &about);
    common.publish(paths, &options.name, &page, &to_json(&results, &cells, &stacks, &about))
}

/// The library that makes sockets those of Multipath TCP, where the kernel has it.
fn multipath(paths: &Paths) -> Result<PathBuf> {
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled").context("the kernel has no Multipath TCP")?;
    if enabled.trim() != "1" {
        bail!("Multipath TCP is off (net.mptcp.enabled)");
    }
    let out = paths.mpi().join("programs/over_mptcp.so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]);
    cc.arg(paths.mpi_sources().join("over_mptcp.c")).arg("-o").arg(&out).arg("-ldl");
    run_quiet(&mut cc)?;
    Ok(out)
}

/// Each host tells the other its second address, and takes what it is told: a connection gets a
/// second way.
fn prepare_multipath(lab: &Lab) -> Result<()> {
    let line = format!(
        "ip mptcp limits set subflow 4 add_addr_accepted 4 && ip mptcp endpoint add \
         $(ip -4 -o addr show dev {SECOND_IFACE} | sed 's|.* inet \\([0-9.]*\\)/.*|\\1|') dev {SECOND_IFACE} signal"
    );
    for host in 0..lab.hosts.len() {
        let outcome = run_limited(&mut lab.on(host, &line)?, Duration::from_secs(10))?;
        if !outcome.ok() {
            bail!("{}", outcome.cause());
        }
    }
    Ok(())
}

fn measure(paths: &Paths, options: &Options, cells: &[&Cell], stacks: &[Stack]) -> Result<Results> {
    let mut results = Results::new();
    let bar = bar(cells.len() * stacks.len() * options.launches as usize)?;
    for cell in cells {
        for _ in 0..options.launches {
            for stack in stacks {
                bar.set_message(format!("{} {}", cell.id, stack.name));
                let told = launch(paths, options, cell, stack).unwrap_or_else(|error| Err(format!("{error:#}")));
                results.entry((cell.id, stack.name.clone())).or_default().push(told);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

/// One launch, in a network of its own: what was done to the last stays with it.
fn launch(paths: &Paths, options: &Options, cell: &Cell, stack: &Stack) -> Result<Told> {
    let lab = Lab::start(2, &(cell.wire)())?;
    if stack.name == MULTIPATH
        && let Err(why) = prepare_multipath(&lab)
    {
        return Ok(Err(format!("{why:#}")));
    }
    let folder = tempfile::tempdir()?;
    let begun = folder.path().join("begun");
    let env = [("TEST_BEGUN".to_owned(), begun.display().to_string())];
    let words = format!("--size 30000 --reps 100000000 --warmup 10 --seconds {}", options.seconds);
    let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let program = mpi::program(paths, stack.mpi, "pingpong");
    let limit = Duration::from_secs_f64(options.seconds) + PATIENCE;
    let job = Job { stack, ranks: 2, program: &program, args: &args, limit, env: &env };
    Ok(judged(job.run_beside(paths, &lab, &begun, || {
        thread::sleep(Duration::from_secs(1));
        (cell.during)(&lab)
    })))
}

fn page(results: &Results, cells: &[&Cell], stacks: &[Stack], options: &Options, about: &[(String, String)]) -> String {
    let intro = format!(
        "A ping-pong of 30 000 bytes between two hosts goes on for {} s; a second after its beginning the first of two links is cut, which is the one that all use who use one. Who is told of both (`both links`) may have used the\n\
         other, and then noticed nothing: the last table cuts one after the other. The stall is the longest exchange of messages of all. A job that has not ended {} s after its time is ended, and its row says so: it stood still\n\
         for the rest of its time.\n",
        options.seconds,
        PATIENCE.as_secs()
    );
    let mut text = head("One of two links is cut: Weir beside others", &intro, about);
    for cell in cells {
        let _ = writeln!(text, "\n## {}\n\n{}.\n", cell.id, cell.told);
        text += "| | jobs that ended well | longest stall, ms, median (least to most) |\n|---|---|---|\n";
        for stack in stacks {
            let launches = results.get(&(cell.id, stack.name.clone()));
            let stall = spread(launches, "longest_ms").map_or_else(
                || "-".to_owned(),
                |stall| format!("{:.0} ({:.0} to {:.0})", stall.median, stall.min, stall.max),
            );
            let all = launches.map_or(0, Vec::len);
            let well = launches.map_or(0, |l| l.iter().filter(|told| told.is_ok()).count());
            let _ = writeln!(text, "| {}{} | {well} of {all} | {stall} |", stack.name, failures(launches));
        }
    }
    text
}

fn to_json(results: &Results, cells: &[&Cell], stacks: &[Stack], about: &[(String, String)]) -> Value {
    let of = |cell: &Cell, stack: &Stack| launches_json(results.get(&(cell.id, stack.name.clone())));
    let cells: Vec<Value> = cells
        .iter()
        .map(|cell| {
            let launches: serde_json::Map<String, Value> =
                stacks.iter().map(|stack| (stack.name.clone(), of(cell, stack))).collect();
            json!({ "cell": cell.id, "what": cell.told, "launches": launches })
        })
        .collect();
    json!({ "about": about_json(about), "cells": cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_stands_still_has_a_row_that_says_so() {
        let stacks = stacks(None);
        let mut results = Results::new();
        results.insert(("silent", stacks[0].name.clone()), vec![Ok(json!({ "longest_ms": 120.0 }))]);
        results.insert(("silent", stacks[2].name.clone()), vec![Err("timeout after 20 s".into())]);
        let options = Options {
            only: Vec::new(),
            seconds: 8.0,
            launches: 1,
            name: "cut".into(),
            json: false,
            no_report: true,
            no_build: true,
        };
        let text = page(&results, &[&CELLS[0]], &stacks, &options, &[]);
        assert!(text.contains("| weir-mpich | 1 of 1 | 120 (120 to 120) |"), "{text}");
        assert!(text.contains("both links (1 of 1 failed: timeout after 20 s) | 0 of 1 | - |"), "{text}");
    }

    #[test]
    fn multipath_is_one_more() {
        let with = stacks(Some(Path::new("/shim.so")));
        assert_eq!(with.len(), stacks(None).len() + 1);
        assert!(with.iter().any(|stack| stack.env.iter().any(|(name, _)| name == "LD_PRELOAD")));
    }
}
