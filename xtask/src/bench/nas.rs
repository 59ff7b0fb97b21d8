//! `cargo xtask bench nas`: the NAS kernels LU, BT, SP and MG in Fortran, over Weir and over TCP,
//! beside the same kernels with BSPlib over Weir: what of the time is computing and what is
//! waiting, what loss costs, and whether messages were expected.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};

use super::beside::{Common, Told, about_json, bar, failures, head, launches_json, spread, wanted};
use super::bsp;
use crate::e2e::{counters_in, judged};
use crate::lab::{self, Counts, Lab, Wire};
use crate::launch::Job;
use crate::mpi::{self, Mpi};
use crate::nas::{self, HOSTS, KERNELS, MPIS, QueueStatistics};
use crate::paths::Paths;
use crate::stack::{Carrier, Stack};

/// What to measure, and how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench nas
  cargo xtask bench nas --classes S --launches 3
  cargo xtask bench nas --classes W,A --only clean,loss --sides weir,openmpi41
  cargo xtask bench nas --list")]
pub struct Options {
    /// Only these groups: host (ranks of one host), clean (two hosts, 1 Gbit/s), loss (the same,
    /// one packet in a hundred lost each way), far (the same, 5 ms away); or only cells whose names
    /// start so: clean/lu/S/4
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these sides, by how their names start
    #[arg(long, value_delimiter = ',')]
    sides: Vec<String>,
    /// Sizes of the problem: S, W, A (seconds; half a minute; minutes, each launch)
    #[arg(long, value_delimiter = ',', default_value = "S,W", value_parser = ["S", "W", "A"])]
    classes: Vec<String>,
    /// Launches of each cell on each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    launches: u32,
    /// A word on the page about the conditions, such as how busy the machine was
    #[arg(long)]
    note: Option<String>,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "nas")]
    name: String,
    /// Only list the cells
    #[arg(long)]
    list: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write no report
    #[arg(long)]
    no_report: bool,
    /// Measure the libraries that are there, without building
    #[arg(long)]
    no_build: bool,
}

impl Options {
    fn common(&self) -> Common {
        let (json, no_report, no_build) = (self.json, self.no_report, self.no_build);
        // A kernel runs as long as its class takes.
        Common { launches: self.launches, seconds: 0.0, json, no_report, no_build }
    }
}

/// One kernel of one class on one network.
#[derive(Clone, Debug)]
struct Cell {
    id: String,
    group: &'static str,
    kernel: &'static str,
    class: String,
    ranks: usize,
    /// None: one host.
    wire: Option<Wire>,
}

impl Cell {
    /// The same on the network that loses nothing.
    fn without_loss(&self) -> String {
        self.id.replacen(self.group, CLEAN, 1)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(match self.class.as_str() {
            "S" => 60,
            "W" => 400,
            _ => 1800,
        })
    }

    fn network(&self) -> String {
        self.wire.as_ref().map_or_else(|| "one host".to_owned(), |wire| format!("{HOSTS} hosts, {}", wire.describe()))
    }
}

const CLEAN: &str = "clean";
const LOSS: &str = "loss";
const RATE_MBIT_PER_S: u32 = 1000;
const NEAR_US: u32 = 50;
const FAR_US: u32 = 5000;

fn cells(classes: &[String]) -> Vec<Cell> {
    let wire = |delay_us, loss| Some(Wire::shaped(RATE_MBIT_PER_S, delay_us, loss));
    let networks =
        [("host", None), (CLEAN, wire(NEAR_US, 0.0)), (LOSS, wire(NEAR_US, 0.01)), ("far", wire(FAR_US, 0.0))];
    let mut cells = Vec::new();
    for (group, wire) in networks {
        for class in classes {
            // BT and SP want a square number of processes.
            for (kernel, ranks) in [("lu", 2), ("lu", 4), ("bt", 4), ("sp", 4), ("mg", 4)] {
                let id = format!("{group}/{kernel}/{class}/{ranks}");
                cells.push(Cell { id, group, kernel, class: class.clone(), ranks, wire: wire.clone() });
            }
        }
    }
    cells
}

/// One way to run a kernel.
#[derive(Clone, Debug)]
struct Side {
    name: &'static str,
    stack: Stack,
    /// With BSPlib, not MPI.
    is_bsp: bool,
    /// Selective acknowledgements of the kernel's TCP.
    sack: bool,
    /// Only where packets are lost: elsewhere it is the same as another.
    with_loss_only: bool,
}

/// How long a rank could have run, and others ran in its place: what Weir's counters tell of all
/// its threads, from the start of the program to its end.
const NO_PROCESSOR: &str = "no_processor_s";

/// The side that others are compared with.
const OURS: &str = "weir-openmpi41";

fn sides(cell: &Cell, names: &[String]) -> Vec<Side> {
    let side = |name: &'static str, mpi, carrier| {
        // Congestion control is the same for all that use TCP, whatever the system's default is.
        let congestion = (carrier != Carrier::Weir && cell.wire.is_some()).then(|| "cubic".to_owned());
        let stack = Stack { name: name.into(), mpi, carrier, congestion, env: Vec::new() };
        Side { name, stack, is_bsp: false, sack: true, with_loss_only: false }
    };
    let without_sack = |side| Side { sack: false, with_loss_only: true, ..side };
    let mut with_nagle = side("openmpi41-ob1-nagle", Mpi::Debian, Carrier::Ob1Tcp);
    with_nagle.stack.env = vec![("OMPI_MCA_btl_tcp_use_nagle".into(), "1".into())];
    let all = [
        side(OURS, Mpi::Debian, Carrier::Weir),
        side("openmpi41-ob1", Mpi::Debian, Carrier::Ob1Tcp),
        without_sack(side("openmpi41-ob1-nosack", Mpi::Debian, Carrier::Ob1Tcp)),
        with_nagle,
        side("openmpi41-ofi-tcp", Mpi::Debian, Carrier::OfiTcp),
        without_sack(side("openmpi41-ofi-tcp-nosack", Mpi::Debian, Carrier::OfiTcp)),
        side("weir-mpich", Mpi::Mpich, Carrier::Weir),
        side("mpich-tcp", Mpi::Mpich, Carrier::OfiTcp),
        Side { is_bsp: true, ..side("weir-bsp", Mpi::Mpich, Carrier::Weir) },
    ];
    let over_a_wire = |side: &Side| cell.wire.is_some() || !side.name.ends_with("-nagle");
    let here = |side: &Side| over_a_wire(side) && (!side.with_loss_only || cell.group == LOSS);
    let named = |side: &Side| names.is_empty() || names.iter().any(|name| side.name.starts_with(name.as_str()));
    all.into_iter().filter(|side| here(side) && named(side)).collect()
}

/// Launches by cell and side.
type Results = BTreeMap<(String, &'static str), Vec<Told>>;

/// Measures and reports.
///
/// # Errors
/// If something cannot be built, or the report cannot be written. A launch that fails is told in
/// its row.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let cells: Vec<Cell> = cells(&options.classes).into_iter().filter(|cell| wanted(&options.only, &cell.id)).collect();
    if cells.iter().all(|cell| sides(cell, &options.sides).is_empty()) {
        bail!("no cell or no side has such a name; --list lists them");
    }
    if options.list {
        for cell in &cells {
            let names: Vec<&str> = sides(cell, &options.sides).iter().map(|side| side.name).collect();
            println!("{:14} {} ranks, {}: {}", cell.id, cell.ranks, cell.network(), names.join(", "));
        }
        return Ok(());
    }
    let how = lab::acquire()?;
    mpi::set_up(paths)?;
    let common = options.common();
    let programs = Programs::build(paths, &common)?;
    let mut about = common.about(paths, how);
    about.push(("Fortran".into(), "Debian's Open MPI 4.1 and gfortran -O3; BSPlib's kernels by cc -O2".into()));
    about.extend(options.note.iter().map(|note| ("note".to_owned(), note.clone())));
    // What ends a run early leaves what was measured.
    let save = |results: &Results, done: usize| -> Result<()> {
        let mut about = about.clone();
        about.push(("not complete".into(), format!("{done} of {} cells are measured", cells.len())));
        common.write(paths, &options.name, &page(results, &cells, options, &about)).map(drop)
    };
    let results = measure(paths, options, &cells, &programs, save)?;
    let page = page(&results, &cells, options, &about);
    common.publish(paths, &options.name, &page, &to_json(&results, &cells, options, &about))
}

/// The compiled kernels, by MPI (none: BSPlib) and name.
struct Programs(BTreeMap<(Option<Mpi>, &'static str), PathBuf>);

impl Programs {
    fn build(paths: &Paths, common: &Common) -> Result<Self> {
        let folder = common.library(paths, "bsp")?;
        if !paths.provider().exists() {
            bail!("there is no {}: leave out --no-build", paths.provider().display());
        }
        let mut all = BTreeMap::new();
        for kernel in KERNELS {
            for mpi in MPIS {
                let program = nas::compile(paths, mpi, kernel).map_err(|why| anyhow!(why))?;
                all.insert((Some(mpi), kernel), program);
            }
            let source = format!("examples/bsp/nas/{kernel}.c");
            all.insert((None, kernel), bsp::compile(paths, &folder, &source, &format!("nas-{kernel}"))?);
        }
        Ok(Self(all))
    }

    fn of(&self, cell: &Cell, side: &Side) -> Result<&PathBuf> {
        let mpi = (!side.is_bsp).then_some(side.stack.mpi);
        self.0.get(&(mpi, cell.kernel)).ok_or_else(|| anyhow!("{} was not made for {}", cell.kernel, side.name))
    }
}

fn measure(
    paths: &Paths,
    options: &Options,
    cells: &[Cell],
    programs: &Programs,
    save: impl Fn(&Results, usize) -> Result<()>,
) -> Result<Results> {
    let mut results = Results::new();
    let all: usize = cells.iter().map(|cell| sides(cell, &options.sides).len() * options.launches as usize).sum();
    let bar = bar(all)?;
    for (done, cell) in cells.iter().enumerate() {
        let lab = cell.wire.as_ref().map(|wire| Lab::start(HOSTS, wire)).transpose()?;
        for _ in 0..options.launches {
            for side in sides(cell, &options.sides) {
                bar.set_message(format!("{} {}", cell.id, side.name));
                let program = programs.of(cell, &side)?;
                // A machine that is so busy that a network cannot be set spoils a launch, not the
                // run.
                let told = launch(paths, cell, &side, program, lab.as_ref());
                let told = told.unwrap_or_else(|error| Err(format!("{error:#}")));
                results.entry((cell.id.clone(), side.name)).or_default().push(told);
                bar.inc(1);
            }
        }
        save(&results, done + 1)?;
    }
    bar.finish_and_clear();
    Ok(results)
}

/// One launch: what the kernel told, with the messages Weir counted and the packets the network
/// lost.
fn launch(paths: &Paths, cell: &Cell, side: &Side, program: &PathBuf, lab: Option<&Lab>) -> Result<Told> {
    if let Some(lab) = lab {
        lab.set_congestion(side.stack.congestion.as_deref())?;
        lab.set_sack(side.sack)?;
    }
    let folder = tempfile::tempdir()?;
    let env = [("WEIR_STATS".to_owned(), folder.path().join("%p").display().to_string())];
    let args = ["--class".to_owned(), cell.class.clone()];
    let job = Job { stack: &side.stack, ranks: cell.ranks, program, args: &args, limit: cell.limit(), env: &env };
    let counted = || lab.map_or_else(|| Ok(Counts::default()), Lab::counts);
    let before = counted()?;
    let told = judged(job.run(paths, lab));
    let counts = counted()?.since(before);
    Ok(told.and_then(|said| {
        if let Some(why) = counts.spoilt() {
            return Err(why);
        }
        if said.get("verified") != Some(&Value::Bool(true)) {
            return Err("not the published values".to_owned());
        }
        let mut said = if side.is_bsp { as_the_others(&said) } else { said };
        (said["sent"], said["lost"]) = (counts.sent.into(), counts.lost.into());
        let documents = counters_in(folder.path());
        if !documents.is_empty() && !side.is_bsp {
            let queue_statistics = QueueStatistics::of(&documents);
            let each = |all: f64| json!(all / cell.ranks as f64);
            said["expected_short"] = each(queue_statistics.expected_short);
            said["expected_long"] = each(queue_statistics.expected_long);
            said["unexpected_short"] = each(queue_statistics.unexpected_short);
            said["unexpected_long"] = each(queue_statistics.unexpected_long);
            if let Some(ms) = waited_ms(&documents) {
                said[NO_PROCESSOR] = each(ms as f64 / 1e3);
            }
        }
        Ok(said)
    }))
}

/// How long the processes together could have run, and did not. There is a document of each
/// endpoint, which tells it of its process; none tells it where the kernel does not count.
fn waited_ms(documents: &[Value]) -> Option<u64> {
    let mut processes: BTreeMap<u64, u64> = BTreeMap::new();
    for document in documents {
        let ms = document.pointer("/processor/waited_ms")?.as_u64()?;
        let last = processes.entry(document.get("pid")?.as_u64()?).or_default();
        *last = ms.max(*last);
    }
    Some(processes.values().sum())
}

/// What a kernel of BSPlib tells, by the names of the others: it gives the rate of the time that is
/// not spent in `bsp_sync`.
fn as_the_others(said: &Value) -> Value {
    let number = |key: &str| said.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let (seconds, computation) = (number("time_s"), number("operations") / number("operations_per_s"));
    json!({ "verified": true, "seconds": seconds, "computation_s": computation, "communication_s": seconds - computation })
}

fn of(results: &Results, cell: &str, side: &'static str, key: &str) -> Option<f64> {
    spread(results.get(&(cell.to_owned(), side)), key).map(|spread| spread.median)
}

fn page(results: &Results, cells: &[Cell], options: &Options, about: &[(String, String)]) -> String {
    let intro = "LU (a pipeline of short messages that somebody waits for), BT and SP (few messages, long from class A on, none blocking) and MG (planes exchanged on each level of a multigrid) of the NAS Parallel Benchmarks, written anew in Fortran for MPI\n\
        (`tests/mpi/nas`) and in C for BSPlib (`examples/bsp/nas`, another distribution of the same arithmetic: planes of z, supersteps). Each launch gave the published values, or its row says so. Two ranks of a host speak by shared\n\
        memory, except over libfabric's tcp. `nosack`: selective acknowledgements of the kernel's TCP off. `nagle`: `btl_tcp_use_nagle 1`. Computation and waiting are the means of all ranks (of BSPlib: those of\n\
        process 0, with waiting in `bsp_sync`), medians of the launches; time is that of the slowest rank. The last column but one (MPI over Weir, whose counters tell it) is how long a rank's threads could have run and others ran in\n\
        their place, from start to end, mean of the ranks, median of the launches and the most: where it is more than computing, the machine was busy, and the times are not the network's. The last is what the network dropped on purpose, both ways.\n";
    let mut text = head("NAS kernels LU, BT, SP and MG: Weir beside TCP, MPI beside BSPlib", intro, about);
    for cell in cells.iter().filter(|cell| results.keys().any(|(id, _)| *id == cell.id)) {
        let _ = writeln!(text, "\n## {}: {} ranks, {}\n", cell.id, cell.ranks, cell.network());
        text += "| | s, median of launches (least to most) | computing, s | communicating, s | share of time | times Weir's | waiting for a processor, s | packets lost |\n|---|---|---|---|---|---|---|---|\n";
        for side in sides(cell, &options.sides) {
            text += &row(results, cell, &side);
        }
    }
    text += &what_loss_costs(results, cells, options);
    text += &messages(results, cells);
    text
}

fn row(results: &Results, cell: &Cell, side: &Side) -> String {
    let launches = results.get(&(cell.id.clone(), side.name));
    let failed = failures(launches);
    let Some(seconds) = spread(launches, "seconds") else {
        return format!("| {}{failed} | - | - | - | - | - | - | - |\n", side.name);
    };
    let middle = |key| of(results, &cell.id, side.name, key).unwrap_or(f64::NAN);
    let (computing, communicating) = (middle("computation_s"), middle("communication_s"));
    let ours = of(results, &cell.id, OURS, "seconds");
    let no_processor = spread(launches, NO_PROCESSOR)
        .map_or_else(|| "-".to_owned(), |waited| format!("{:.3} (at most {:.3})", waited.median, waited.max));
    let ratio = ours.map_or_else(|| "-".to_owned(), |ours| format!("{:.2}", seconds.median / ours));
    format!(
        "| {}{failed} | {:.3} ({:.3} to {:.3}) | {computing:.3} | {communicating:.3} | {:.0} % | {ratio} | {no_processor} | {:.0} |\n",
        side.name,
        seconds.median,
        seconds.min,
        seconds.max,
        100.0 * communicating / (computing + communicating),
        middle("lost")
    )
}

/// For each kernel and side: how much longer it takes where packets are lost, and how long one lost
/// packet holds the job up.
fn what_loss_costs(results: &Results, cells: &[Cell], options: &Options) -> String {
    let mut text = String::new();
    for cell in cells.iter().filter(|cell| cell.group == LOSS) {
        for side in sides(cell, &options.sides) {
            // Without losses it is the same whether they would be acknowledged selectively.
            let plain: &'static str = side.name.strip_suffix("-nosack").unwrap_or(side.name);
            let before = of(results, &cell.without_loss(), plain, "seconds");
            let after = of(results, &cell.id, side.name, "seconds");
            let (Some(before), Some(after)) = (before, after) else { continue };
            let lost = of(results, &cell.id, side.name, "lost").filter(|lost| *lost > 0.0);
            let each = lost.map_or_else(|| "-".to_owned(), |lost| format!("{:.2}", (after - before) * 1e3 / lost));
            let name = cell.id.trim_start_matches(LOSS).trim_start_matches('/');
            let _ = writeln!(
                text,
                "| {name} | {} | {before:.3} | {after:.3} | {:.2} | {each} |",
                side.name,
                after / before
            );
        }
    }
    if text.is_empty() {
        return text;
    }
    let title = "\n## What loss costs\n\nMedians. The job's delay by a lost packet: the difference of both times, divided by the packets lost.\n\n";
    format!(
        "{title}| | | clean, s | one in a hundred lost, s | times | ms by a lost packet |\n|---|---|---|---|---|---|\n{text}"
    )
}

/// The thesis's table for LU and SP of one class: expected long and short, unexpected long. (There
/// were no unexpected short ones.)
fn in_the_thesis(kernel: &str, class: &str) -> Option<[u32; 3]> {
    Some(match (kernel, class) {
        ("lu", "S") => [0, 1097, 0],
        ("lu", "W") => [0, 18_978, 0],
        ("lu", "A") => [300, 31_145, 208],
        ("sp", "S") => [0, 1216, 0],
        ("sp", "W") => [0, 4422, 0],
        ("sp", "A") => [2807, 9, 2011],
        _ => return None,
    })
}

/// Messages that a rank got over Weir, by whether it waited for them already, beside the thesis's.
/// Long: more than 64 KiB.
fn messages(results: &Results, cells: &[Cell]) -> String {
    let mut text = "\n## Messages: expected or not, short or long\n\nWhat each rank got over Weir (mean of the ranks, median of launches; with those of the start and the end); long: more than 64 KiB. In brackets what the thesis that this project began with\n\
        (H. Kamal, UBC 2005, on 4 nodes of a 100 Mbit/s network, LAM's TCP, its slower nodes) counted; it had no unexpected short ones.\n\n\
        | | | expected short | expected long | unexpected short | unexpected long | unexpected |\n|---|---|---|---|---|---|---|\n".to_owned();
    for cell in cells {
        let theirs = in_the_thesis(cell.kernel, &cell.class).filter(|_| cell.ranks == 4);
        let bracket = |at: usize| theirs.map_or_else(String::new, |numbers| format!(" ({})", numbers[at]));
        for side in [OURS, "weir-mpich"] {
            let number = |key| of(results, &cell.id, side, key);
            let (Some(es), Some(el), Some(us), Some(ul)) = (
                number("expected_short"),
                number("expected_long"),
                number("unexpected_short"),
                number("unexpected_long"),
            ) else {
                continue;
            };
            let share = 100.0 * (us + ul) / (es + el + us + ul);
            let _ = writeln!(
                text,
                "| {} | {side} | {es:.0}{} | {el:.0}{} | {us:.0}{} | {ul:.0}{} | {share:.0} % |",
                cell.id,
                bracket(1),
                bracket(0),
                if theirs.is_some() { " (0)" } else { "" },
                bracket(2)
            );
        }
    }
    text
}

fn to_json(results: &Results, cells: &[Cell], options: &Options, about: &[(String, String)]) -> Value {
    let launches = |cell: &Cell, side: &Side| launches_json(results.get(&(cell.id.clone(), side.name)));
    let cells: Vec<Value> = cells
        .iter()
        .map(|cell| {
            let sides: serde_json::Map<String, Value> =
                sides(cell, &options.sides).iter().map(|side| (side.name.to_owned(), launches(cell, side))).collect();
            json!({ "cell": cell.id, "ranks": cell.ranks, "network": cell.network(), "launches": sides })
        })
        .collect();
    json!({ "about": about_json(about), "cells": cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Cell> {
        cells(&["S", "W", "A"].map(str::to_owned))
    }

    fn options() -> Options {
        let (only, sides, classes) = (Vec::new(), Vec::new(), vec!["S".to_owned()]);
        let (list, json, no_report, no_build) = (false, false, true, true);
        Options { only, sides, classes, launches: 1, note: None, name: "nas".into(), list, json, no_report, no_build }
    }

    #[test]
    fn each_cell_has_its_own_name_and_those_with_loss_their_clean_ones() {
        let names: std::collections::BTreeSet<String> = all().into_iter().map(|cell| cell.id).collect();
        assert_eq!(names.len(), all().len());
        assert!(all().iter().filter(|cell| cell.group == LOSS).all(|cell| names.contains(&cell.without_loss())));
        assert!(
            all()
                .iter()
                .all(|cell| in_the_thesis(cell.kernel, &cell.class).is_some() == ["lu", "sp"].contains(&cell.kernel))
        );
    }

    #[test]
    fn what_tcp_is_told_for_loss_stands_only_where_there_is_loss() {
        for cell in all() {
            let names: Vec<&str> = sides(&cell, &[]).iter().map(|side| side.name).collect();
            assert_eq!(names.iter().any(|name| name.ends_with("-nosack")), cell.group == LOSS, "{names:?}");
            assert_eq!(names.contains(&"openmpi41-ob1-nagle"), cell.wire.is_some(), "{names:?}");
            assert_eq!(names[0], OURS);
        }
        assert_eq!(sides(&all()[0], &["weir".to_owned()]).len(), 3);
    }

    #[test]
    fn the_page_tells_times_what_loss_costs_and_messages() {
        let cells: Vec<Cell> = all().into_iter().filter(|cell| cell.id.ends_with("/lu/S/4")).collect();
        let told = |seconds: f64, lost: u64| {
            Ok(
                json!({ "seconds": seconds, "computation_s": 0.75, "communication_s": 0.25, "lost": lost, "expected_short": 900.0,
                "expected_long": 0.0, "unexpected_short": 100.0, "unexpected_long": 0.0, NO_PROCESSOR: seconds / 2.0 }),
            )
        };
        let mut results = Results::new();
        results.insert(("clean/lu/S/4".into(), OURS), vec![told(1.0, 0)]);
        results.insert(("loss/lu/S/4".into(), OURS), vec![told(1.5, 100)]);
        let theirs = json!({ "seconds": 2.0, "computation_s": 1.0, "communication_s": 1.0, "lost": 0 });
        results.insert(("clean/lu/S/4".into(), "openmpi41-ob1"), vec![Ok(theirs)]);
        results.insert(("loss/lu/S/4".into(), "openmpi41-ob1"), vec![Err("it | broke".into())]);
        let text = page(&results, &cells, &options(), &[]);
        assert!(
            text.contains(
                "| weir-openmpi41 | 1.000 (1.000 to 1.000) | 0.750 | 0.250 | 25 % | 1.00 | 0.500 (at most 0.500) | 0 |"
            ),
            "{text}"
        );
        assert!(text.contains("| 1.000 | 1.000 | 50 % | 2.00 | - | 0 |"), "of others nobody knows: {text}");
        assert!(text.contains("| lu/S/4 | weir-openmpi41 | 1.000 | 1.500 | 1.50 | 5.00 |"), "{text}");
        assert!(
            text.contains("| clean/lu/S/4 | weir-openmpi41 | 900 (1097) | 0 (0) | 100 (0) | 0 (0) | 10 % |"),
            "{text}"
        );
        assert!(text.contains("it / broke"), "{text}");
    }

    #[test]
    fn a_process_of_several_endpoints_waits_for_its_processor_once() {
        let of = |pid: u64, waited_ms: u64| json!({ "pid": pid, "processor": { "ran_ms": 9, "waited_ms": waited_ms } });
        assert_eq!(waited_ms(&[of(7, 300), of(8, 20), of(7, 310)]), Some(330));
        assert_eq!(waited_ms(&[of(7, 300), json!({ "pid": 8, "processor": null })]), None);
    }

    #[test]
    fn a_superstep_program_tells_its_time_as_the_others_do() {
        let said = as_the_others(&json!({ "time_s": 2.0, "operations": 3e6, "operations_per_s": 2e6 }));
        assert_eq!((said["computation_s"].as_f64(), said["communication_s"].as_f64()), (Some(1.5), Some(0.5)));
    }
}
