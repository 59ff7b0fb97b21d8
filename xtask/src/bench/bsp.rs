//! `cargo xtask bench bsp`: supersteps of BSPlib over Weir beside the same h-relations written with
//! MPI, in turns.
//!
//! Both sides are started by the same launcher (MPICH's, or Open MPI's for its own), on one host or
//! on the hosts of an emulated network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::beside::{Common, Told, about_json, bar, failures, head, launches_json, spread, wanted};
use super::measure::Spread;
use crate::lab::{self, Counts, Lab, Wire};
use crate::launch::{Job, result_of};
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::run_quiet;
use crate::stack::{Carrier, Stack};

/// What to measure, and how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench bsp
  cargo xtask bench bsp --only host --launches 7
  cargo xtask bench bsp --only star,loss --seconds 5 --json
  cargo xtask bench bsp --only bus --launches 2")]
pub struct Options {
    /// Only these groups: host (ranks of one host), star (hosts around a switch with short queues),
    /// loss (the same with one packet in a hundred lost), slow (the star at a tenth of the rate),
    /// bus (a cyclic shift of hosts that share one 10 Mbit/s medium), csma-cd (the same where they
    /// collide); or only cells whose names start so: host/2/puts
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "bsp")]
    name: String,
    /// Only list the cells
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    common: Common,
}

/// What is done in each superstep. The number is what `tests/mpi/relation.c` calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Sync = 0,
    Exchange = 1,
    Puts = 2,
    Shift = 3,
    Row = 4,
    Far = 5,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Exchange => "exchange",
            Self::Puts => "puts",
            Self::Row => "row",
            Self::Far => "far",
            Self::Shift => "shift",
        }
    }
}

/// One kind of superstep between so many processes on one network.
#[derive(Clone, Debug)]
struct Cell {
    id: String,
    operation: Operation,
    bytes: usize,
    /// Puts in a superstep, where they are the operation.
    count: usize,
    ranks: usize,
    /// None: one host.
    wire: Option<Wire>,
}

/// The puts of a superstep in which packing shows.
const MANY_PUTS: usize = 10_000;
/// The emulated switch: what the request for this benchmark names.
const STAR_RANKS: usize = 8;
const STAR_MBIT_PER_S: u32 = 1000;
const STAR_QUEUE_PACKETS: u32 = 64;
/// A star that two cores can fill: eight ranks and the switch that join at a gigabit each have too
/// little processor for it, and what is measured then is that.
const SLOW_MBIT_PER_S: u32 = 100;
/// The shared Ethernet on which the method was measured first (1999): processes, rate, and what
/// each puts to the next, 25,000 words.
const BUS_RANKS: [usize; 4] = [2, 4, 6, 8];
const BUS_MBIT_PER_S: u32 = 10;
const BUS_BYTES: usize = 25_000 * 4;
const BUS_DELAY_US: u32 = 5;
/// What names the slot of `weir-bsp-slots`.
const SLOT: &str = "WEIR_BSP_SLOT";
/// That slot: a full frame takes 1230 us.
const BUS_SLOT_US: u32 = 1250;
/// Where hosts collide, what a frame loses by it belongs to the slot; `weir tune --slots` finds
/// 1300 to 1500 us, simulation 1300 to 1400.
const COLLISIONS_SLOT_US: u32 = 1400;
/// Share of it that payload is to take there.
const BUS_GOAL: f64 = 0.72;

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |group: &str, operation: Operation, bytes, ranks, wire: Option<Wire>| {
        let id = match operation {
            Operation::Sync => format!("{group}/{ranks}/sync"),
            _ => format!("{group}/{ranks}/{}/{bytes}", operation.name()),
        };
        cells.push(Cell { id, operation, bytes, count: MANY_PUTS, ranks, wire });
    };
    for ranks in [2, 4] {
        add("host", Operation::Sync, 0, ranks, None);
        for puts in [Operation::Puts, Operation::Row, Operation::Far] {
            add("host", puts, 8, ranks, None);
        }
        for bytes in [1024, 65_536, 1 << 20] {
            add("host", Operation::Exchange, bytes, ranks, None);
        }
    }
    for (group, rate, loss) in
        [("star", STAR_MBIT_PER_S, 0.0), ("loss", STAR_MBIT_PER_S, 0.01), ("slow", SLOW_MBIT_PER_S, 0.0)]
    {
        let star = Wire {
            loss,
            rate_mbit_per_s: Some(rate),
            delay_us: 20,
            queue_packets: Some(STAR_QUEUE_PACKETS),
            ..Wire::default()
        };
        add(group, Operation::Sync, 0, STAR_RANKS, Some(star.clone()));
        for bytes in [16_384, 131_072, 1 << 20] {
            add(group, Operation::Exchange, bytes, STAR_RANKS, Some(star.clone()));
        }
        add(group, Operation::Shift, 100_000, STAR_RANKS, Some(star));
    }
    let queue_packets = Some(STAR_QUEUE_PACKETS);
    let bus = Wire { bus: true, queue_packets, ..Wire::shaped(BUS_MBIT_PER_S, BUS_DELAY_US, 0.0) };
    for ranks in BUS_RANKS {
        add("bus", Operation::Shift, BUS_BYTES, ranks, Some(bus.clone()));
    }
    let bus = Wire { collisions: true, ..bus };
    for ranks in BUS_RANKS {
        add("csma-cd", Operation::Shift, BUS_BYTES, ranks, Some(bus.clone()));
    }
    cells
}

/// One way of doing a superstep.
#[derive(Clone, Debug)]
struct Side {
    name: &'static str,
    /// The MPI whose launcher starts it; and, for a rival, what carries its messages.
    stack: Stack,
    /// None: BSPlib over Weir.
    how: Option<u8>,
}

/// `tests/mpi/relation.c`'s names of its two ways.
const ALLTOALLV: u8 = 0;
const FENCE: u8 = 1;

fn sides(cell: &Cell) -> Vec<Side> {
    let stack = |mpi, carrier, congestion: Option<&str>| Stack {
        name: String::new(),
        mpi,
        carrier,
        congestion: congestion.map(str::to_owned),
        env: Vec::new(),
    };
    let (mpich, openmpi) = if cell.wire.is_none() {
        (stack(Mpi::Mpich, Carrier::Own, None), stack(Mpi::Openmpi, Carrier::Own, None))
    } else {
        let tcp = Some("cubic");
        (stack(Mpi::Mpich, Carrier::OfiTcp, tcp), stack(Mpi::Openmpi, Carrier::Ob1Tcp, tcp))
    };
    let side =
        |name, stack: &Stack, how| Side { name, stack: Stack { name: String::from(name), ..stack.clone() }, how };
    let ours = stack(Mpi::Mpich, Carrier::Weir, None);
    let mut sides = vec![
        side("weir-bsp", &ours, None),
        side("mpich-alltoallv", &mpich, Some(ALLTOALLV)),
        side("mpich-fence", &mpich, Some(FENCE)),
        side("openmpi-alltoallv", &openmpi, Some(ALLTOALLV)),
        side("openmpi-fence", &openmpi, Some(FENCE)),
    ];
    if is_bus(cell) {
        let env = vec![(SLOT.to_owned(), slot_us(cell).to_string())];
        sides.insert(1, side("weir-bsp-slots", &Stack { env, ..ours }, None));
    }
    sides
}

/// Launches by cell and side.
type Results = BTreeMap<(String, &'static str), Vec<Told>>;

/// Measures and reports.
///
/// # Errors
/// If something cannot be built, or the report cannot be written. A launch that fails is told in
/// its row.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let cells: Vec<Cell> = cells().into_iter().filter(|cell| wanted(&options.only, &cell.id)).collect();
    if cells.is_empty() {
        bail!("no group or cell has such a name; --list lists them");
    }
    if options.list {
        for cell in &cells {
            println!("{:24} {} ranks, {}", cell.id, cell.ranks, network(cell));
        }
        return Ok(());
    }
    let how = lab::acquire()?;
    mpi::set_up(paths)?;
    let programs = Programs::build(paths, &options.common)?;
    let about = options.common.about(paths, how);
    let results = measure(paths, options, &cells, &programs)?;
    let page = page(&results, &cells, &about);
    options.common.publish(paths, &options.name, &page, &to_json(&results, &cells, &about))
}

/// The compiled programs.
struct Programs {
    bsp: PathBuf,
}

impl Programs {
    fn build(paths: &Paths, common: &Common) -> Result<Self> {
        let folder = common.library(paths, "bsp")?;
        let bsp = compile(paths, &folder, "tests/bsp/relation.c", "relation")?;
        for mpi in Mpi::ALL {
            mpi::compile_these(paths, mpi, &["relation"])?;
        }
        Ok(Self { bsp })
    }

    fn of(&self, paths: &Paths, side: &Side) -> PathBuf {
        if side.how.is_none() { self.bsp.clone() } else { mpi::program(paths, side.stack.mpi, "relation") }
    }
}

/// Makes a program of BSPlib into the library's folder.
///
/// # Errors
/// If it does not compile.
pub fn compile(paths: &Paths, folder: &Path, source: &str, name: &str) -> Result<PathBuf> {
    let (source, out) = (paths.root.join(source), folder.join(name));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(paths.root.join("include")).arg(&source);
    cc.arg("-o").arg(&out).arg("-L").arg(folder).args(["-lweir-bsp", "-lm"]);
    cc.arg(format!("-Wl,-rpath,{}", folder.display()));
    run_quiet(&mut cc).with_context(|| format!("{} does not compile", source.display()))?;
    Ok(out)
}

fn arguments(cell: &Cell, side: &Side, seconds: f64) -> Vec<String> {
    let operation = match side.how {
        None => cell.operation.name().to_owned(),
        Some(_) => (cell.operation as u8).to_string(),
    };
    let mut words = vec!["--op".to_owned(), operation, "--bytes".to_owned(), cell.bytes.to_string()];
    words.extend(["--count".to_owned(), cell.count.to_string(), "--seconds".to_owned(), seconds.to_string()]);
    if let Some(how) = side.how {
        words.extend(["--how".to_owned(), how.to_string()]);
    }
    words
}

fn measure(paths: &Paths, options: &Options, cells: &[Cell], programs: &Programs) -> Result<Results> {
    let mut results = Results::new();
    let all: usize = cells.iter().map(|cell| sides(cell).len() * options.common.launches as usize).sum();
    let bar = bar(all)?;
    let limit = Duration::from_secs_f64(options.common.seconds * 4.0 + 60.0);
    for cell in cells {
        let lab = cell.wire.as_ref().map(|wire| Lab::start(cell.ranks, wire)).transpose()?;
        for _ in 0..options.common.launches {
            for side in sides(cell) {
                bar.set_message(format!("{} {}", cell.id, side.name));
                if let Some(lab) = &lab {
                    lab.set_congestion(side.stack.congestion.as_deref())?;
                }
                let (program, args) = (programs.of(paths, &side), arguments(cell, &side, options.common.seconds));
                let job =
                    Job { stack: &side.stack, ranks: cell.ranks, program: &program, args: &args, limit, env: &[] };
                let told = told(&job, paths, lab.as_ref())?;
                results.entry((cell.id.clone(), side.name)).or_default().push(told);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

fn told(job: &Job<'_>, paths: &Paths, lab: Option<&Lab>) -> Result<Told> {
    let counted = || lab.map(Lab::counts).transpose();
    let before = counted()?;
    let outcome = job.run(paths, lab)?;
    let told = result_of(&outcome).filter(|_| outcome.ok()).ok_or_else(|| outcome.cause());
    let (Some(before), Some(after)) = (before, counted()?) else { return Ok(told) };
    Ok(told.and_then(|value| with_counts(value, after.since(before))))
}

/// What a launch told, and what the network counted meanwhile: its start and end included.
fn with_counts(mut value: Value, counts: Counts) -> Told {
    if let Some(why) = counts.spoilt() {
        return Err(why);
    }
    value["packets_sent"] = counts.sent.into();
    value["dropped_percent"] = (counts.queue_full as f64 * 100.0 / counts.sent.max(1) as f64).into();
    if let (Some(deviation), Some(mean)) = (value["sd_us"].as_f64(), value["mean_us"].as_f64()) {
        value["variation"] = (deviation / mean).into();
    }
    Ok(value)
}

fn network(cell: &Cell) -> String {
    cell.wire.as_ref().map_or_else(|| "one host".to_owned(), Wire::describe)
}

fn of(results: &Results, cell: &Cell, side: &'static str, key: &str) -> Option<Spread> {
    spread(results.get(&(cell.id.clone(), side)), key)
}

/// Payload that arrives at each process, as a share of what its link carries meanwhile; on a bus,
/// that of all together.
fn share_of_wire(cell: &Cell, took_us: f64) -> Option<f64> {
    let wire = cell.wire.as_ref()?;
    let rate = wire.rate_mbit_per_s?;
    let bytes = match cell.operation {
        Operation::Exchange => cell.bytes * (cell.ranks - 1),
        Operation::Shift => cell.bytes,
        Operation::Sync | Operation::Puts | Operation::Row | Operation::Far => return None,
    };
    let bytes = if wire.bus { bytes * cell.ranks } else { bytes };
    Some(bytes as f64 * 8.0 / (f64::from(rate) * took_us))
}

fn page(results: &Results, cells: &[Cell], about: &[(String, String)]) -> String {
    let intro = format!(
        "Each program does the same superstep again and again and checks what comes. `alltoallv`: MPI_Alltoallv of sizes that all know, and MPI_Barrier\n\
        (10 000 puts are packed and unpacked by the program: `puts` in no order to all places of the memory, `row` one behind the other, `far` by chance to sixteen times as much). `fence`: MPI_Put between two MPI_Win_fence. Times are those of process 0.\n\
        A launch during which the emulated network itself lost packets, because this machine did not keep up, counts as failed in every row.\n\
        On a bus, payload is what all processes get in a superstep as a share of what the medium carries in its mean time; `weir-bsp-slots` has {SLOT}={BUS_SLOT_US}, with collisions {COLLISIONS_SLOT_US}.\n"
    );
    let mut text = head("Supersteps: BSPlib over Weir beside MPI", &intro, about);
    for cell in cells {
        let _ = writeln!(text, "\n## {}: {} ranks, {}\n", cell.id, cell.ranks, network(cell));
        if is_bus(cell) {
            text += &bus_table(results, cell);
            continue;
        }
        text += "| | median of launches (least to most), us | p99, us | deviation / mean | of the wire | times Weir's |\n|---|---|---|---|---|---|\n";
        let ours = of(results, cell, "weir-bsp", "median_us");
        for side in sides(cell) {
            text += &row(results, cell, &side, ours);
        }
    }
    text
}

fn is_bus(cell: &Cell) -> bool {
    cell.wire.as_ref().is_some_and(|wire| wire.bus)
}

fn slot_us(cell: &Cell) -> u32 {
    if cell.wire.as_ref().is_some_and(|wire| wire.collisions) { COLLISIONS_SLOT_US } else { BUS_SLOT_US }
}

/// Means here, as the claim is one of means and their scatter.
fn bus_table(results: &Results, cell: &Cell) -> String {
    let mut text = String::from(
        "| | mean of launches (least to most), ms | deviation / mean (least to most) | longest, ms | payload of the bus | packets in 100 dropped | times Weir's |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let ours = of(results, cell, "weir-bsp", "mean_us");
    for side in sides(cell) {
        let failed = failures(results.get(&(cell.id.clone(), side.name)));
        let of = |key| of(results, cell, side.name, key);
        let (Some(mean), Some(variation)) = (of("mean_us"), of("variation")) else {
            let _ = writeln!(text, "| {}{failed} | - | - | - | - | - | - |", side.name);
            continue;
        };
        let longest_us = of("most_us").map_or(f64::NAN, |s| s.max);
        let share = share_of_wire(cell, mean.median).unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "| {}{failed} | {:.1} ({:.1} to {:.1}) | {:.3} ({:.3} to {:.3}) | {:.1} | {:.1} % | {:.2} | {:.2} |",
            side.name,
            mean.median / 1e3,
            mean.min / 1e3,
            mean.max / 1e3,
            variation.median,
            variation.min,
            variation.max,
            longest_us / 1e3,
            share * 100.0,
            of("dropped_percent").map_or(f64::NAN, |s| s.median),
            mean.median / ours.map_or(f64::NAN, |s| s.median)
        );
    }
    if let Some(share) = ours.and_then(|ours| share_of_wire(cell, ours.median)) {
        let verdict = if share >= BUS_GOAL { "reached" } else { "**not reached**" };
        let _ = writeln!(text, "\nGoal, {:.0} % of the bus: {:.1} %, {verdict}.", BUS_GOAL * 100.0, share * 100.0);
    }
    text
}

fn row(results: &Results, cell: &Cell, side: &Side, ours: Option<Spread>) -> String {
    let failed = failures(results.get(&(cell.id.clone(), side.name)));
    let Some(median) = of(results, cell, side.name, "median_us") else {
        return format!("| {}{failed} | - | - | - | - | - |\n", side.name);
    };
    let middle = |key| of(results, cell, side.name, key).map_or(f64::NAN, |s| s.median);
    let wire =
        share_of_wire(cell, median.median).map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    format!(
        "| {}{failed} | {:.2} ({:.2} to {:.2}) | {:.2} | {:.3} | {wire} | {:.2} |\n",
        side.name,
        median.median,
        median.min,
        median.max,
        middle("p99_us"),
        middle("sd_us") / middle("mean_us"),
        median.median / ours.map_or(f64::NAN, |s| s.median)
    )
}

fn to_json(results: &Results, cells: &[Cell], about: &[(String, String)]) -> Value {
    let launches = |cell: &Cell, side: &Side| launches_json(results.get(&(cell.id.clone(), side.name)));
    let cells: Vec<Value> = cells
        .iter()
        .map(|cell| {
            let sides: serde_json::Map<String, Value> =
                sides(cell).iter().map(|side| (side.name.to_owned(), launches(cell, side))).collect();
            json!({ "cell": cell.id, "ranks": cell.ranks, "network": network(cell), "launches": sides })
        })
        .collect();
    json!({ "about": about_json(about), "cells": cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_are_there_and_each_cell_has_its_own_name() {
        let paths = Paths::find();
        assert!(["bsp", "mpi"].iter().all(|of| paths.root.join("tests").join(of).join("relation.c").is_file()));
        let names: std::collections::BTreeSet<String> = cells().into_iter().map(|cell| cell.id).collect();
        assert_eq!(names.len(), cells().len());
    }

    #[test]
    fn a_link_that_is_full_all_the_time_is_one() {
        let cell = cells().into_iter().find(|cell| cell.id == "star/8/exchange/131072").unwrap();
        let share = share_of_wire(&cell, 131_072.0 * 7.0 * 8.0 / 1000.0).unwrap();
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        assert!(share_of_wire(&cells()[0], 1.0).is_none(), "one host has no wire");
    }

    #[test]
    fn a_bus_carries_what_all_send_and_means_count() {
        let cell = cells().into_iter().find(|cell| cell.id == "bus/8/shift/100000").unwrap();
        let share = share_of_wire(&cell, 640_000.0).unwrap();
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        let told = |mean_us: f64| {
            let value = json!({ "mean_us": mean_us, "sd_us": mean_us / 10.0, "most_us": mean_us * 2.0 });
            with_counts(value, Counts { sent: 1000, queue_full: 5, ..Counts::default() })
        };
        for (mean_us, end) in [(800_000.0, "80.0 %, reached"), (1_000_000.0, "64.0 %, **not reached**")] {
            let mut results = Results::new();
            results.insert((cell.id.clone(), "weir-bsp"), vec![told(mean_us)]);
            results.insert((cell.id.clone(), "mpich-fence"), vec![told(mean_us * 2.0), Err("it broke".into())]);
            let text = page(&results, std::slice::from_ref(&cell), &[]);
            assert!(text.contains(&format!("Goal, 72 % of the bus: {end}.")), "{text}");
            assert!(text.contains("| 0.100 (0.100 to 0.100) |") && text.contains("| 0.50 | 2.00 |"), "{text}");
            assert!(text.contains("mpich-fence (1 of 2 failed: it broke)"), "{text}");
            assert!(text.contains("| mpich-alltoallv | - | - | - | - | - | - |"), "{text}");
        }
    }

    #[test]
    fn a_launch_counts_nowhere_where_the_emulator_lost_packets_and_the_page_says_so() {
        let overrun = || with_counts(json!({ "median_us": 2.0 }), Counts { sent: 10, overrun: 3, ..Counts::default() });
        for id in ["star/8/sync", "loss/8/sync", "slow/8/sync", "bus/8/shift/100000"] {
            let cell = cells().into_iter().find(|cell| cell.id == id).unwrap();
            let results = Results::from([((id.to_owned(), "weir-bsp"), vec![overrun()])]);
            let text = page(&results, std::slice::from_ref(&cell), &[]);
            assert!(text.contains("weir-bsp (1 of 1 failed: 3 packets lost by an overloaded machine)"), "{text}");
            assert!(text.contains("did not keep up, counts as failed in every row"), "{text}");
        }
    }

    #[test]
    fn the_page_names_the_slot_that_a_side_is_given() {
        let slot_in = |group: &str| {
            let cell = cells().into_iter().find(|cell| is_bus(cell) && cell.id.starts_with(group)).unwrap();
            let given: Vec<_> = sides(&cell).into_iter().flat_map(|side| side.stack.env).collect();
            let [(name, slot)] = &given[..] else { panic!("{given:?}") };
            assert_eq!(name, "WEIR_BSP_SLOT");
            (page(&Results::new(), &[cell], &[]), slot.clone())
        };
        let ((text, ideal), (_, colliding)) = (slot_in("bus/"), slot_in("csma-cd/"));
        let told = format!("`weir-bsp-slots` has WEIR_BSP_SLOT={ideal}, with collisions {colliding}.");
        assert!(ideal != colliding && text.contains(&told), "{text}");
    }

    #[test]
    fn a_side_that_failed_says_why_in_its_row() {
        let cell = &cells()[0];
        let sides = sides(cell);
        let mut results = Results::new();
        results.insert(
            (cell.id.clone(), sides[0].name),
            vec![Ok(json!({ "median_us": 2.0, "p99_us": 3.0, "mean_us": 2.0, "sd_us": 0.5 }))],
        );
        results.insert((cell.id.clone(), sides[1].name), vec![Err("it | broke".to_owned())]);
        let text = page(&results, &cells()[..1], &[]);
        assert!(text.contains("| weir-bsp | 2.00 (2.00 to 2.00) | 3.00 | 0.250 | - | 1.00 |"), "{text}");
        assert!(text.contains("it / broke"), "{text}");
    }
}
