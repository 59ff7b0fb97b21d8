//! `cargo xtask demo`: a first look, in one table.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::measure::Spread;
use crate::bench::report::number;
use crate::lab::{self, Lab, Wire};
use crate::launch::{Job, result_of};
use crate::paths::Paths;
use crate::stack::Stack;
use crate::{dist, mpi};

const LOSSES: [f64; 3] = [0.0, 0.01, 0.02];
/// Stands where nothing was measured.
const NOT_TRIED: &str = "-";
/// No cell may hold up the demo.
const LIMIT: Duration = Duration::from_secs(20);
/// Launches of one cell, of which the median is shown: one launch in some is an outlier.
const LAUNCHES: usize = 3;

/// One program of the demo.
struct Show {
    title: &'static str,
    program: &'static str,
    ranks: usize,
    args: &'static [&'static str],
    key: &'static str,
    unit: &'static str,
    more_is_better: bool,
}

const SHOWS: [Show; 2] = [
    Show {
        title: "ping-pong, 30 KB",
        program: "pingpong",
        ranks: 2,
        args: &["--size", "30000", "--warmup", "20", "--reps", "100000", "--seconds", "1"],
        key: "mb_per_s",
        unit: "MB/s",
        more_is_better: true,
    },
    Show {
        title: "task farm, 3 workers, 1000 tasks of 30 KB",
        program: "farm",
        ranks: 4,
        args: &["--tasks", "1000", "--size", "30000", "--seconds", "17"],
        key: "seconds",
        unit: "s",
        more_is_better: false,
    },
];

/// Builds all, makes the network, runs the programs, prints the table.
///
/// # Errors
/// If something cannot be built or no program runs at all.
pub fn run(paths: &Paths, no_build: bool) -> Result<()> {
    let world = lab::acquire();
    if !no_build {
        dist::build(paths)?;
    }
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    match &world {
        Ok(how) => println!("Hosts are {how}; 1 Gbit/s, 0.1 ms one way, losses on the wire."),
        Err(error) => {
            println!("No emulated network here: {error:#}.");
            println!(
                "All ranks run on this machine over its loopback interface instead, as fast as that is; losses are made \
                 inside Weir. Nobody makes any for the rivals, so they are shown without loss only."
            );
        }
    }
    let stacks: Vec<Stack> = Stack::all(&[])
        .into_iter()
        .filter(|s| ["weir-mpich", "mpich-tcp", "mpich-rxd"].contains(&s.name.as_str()))
        .collect();
    say_if_busy();
    let mut rows = Vec::new();
    let mut congestion = None;
    let bar = ProgressBar::new((SHOWS.len() * LOSSES.len() * stacks.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    // A cell takes up to a minute: the time that passes shows that something goes on.
    bar.enable_steady_tick(Duration::from_secs(1));
    for show in &SHOWS {
        for loss in LOSSES {
            let lab = if world.is_ok() { Some(Lab::start(show.ranks, &Wire::shaped(1000, 100, loss))?) } else { None };
            congestion = congestion.or_else(|| congestion_of(lab.as_ref()));
            let mut cells = Vec::new();
            for stack in &stacks {
                bar.set_message(format!("{} on {}, {} % loss", show.title, stack.name, loss * 100.0));
                cells.push(median_cell(paths, lab.as_ref(), show, stack, loss));
                bar.inc(1);
            }
            rows.push((show, loss, cells));
        }
    }
    bar.finish_and_clear();
    let congestion = congestion.as_deref().unwrap_or("unknown");
    print_table(&stacks, &rows, congestion);
    println!("Medians of {LAUNCHES} launches. TCP's congestion control is this system's own default, {congestion}.");
    println!("\n{}", next(paths, std::env::var_os("PATH").as_deref()));
    Ok(())
}

/// What to do after the demo, to be typed as it stands but for the program's name. Who has no MPI yet has the one the demo fetched.
fn next(paths: &Paths, search_path: Option<&OsStr>) -> String {
    let weir = paths.dist().join("bin/weir");
    let has_mpi = search_path.is_some_and(|all| std::env::split_paths(all).any(|one| one.join("mpiexec").is_file()));
    let fetched = mpi::Mpi::Mpich.bin(paths, "");
    let path = if has_mpi { String::new() } else { format!("export PATH='{}':\"$PATH\"; ", fetched.display()) };
    format!("Next, your own MPI program: {path}eval $('{}' env); mpiexec -n 4 ./program", weir.display())
}

/// Which congestion control TCP has in these runs: none is set, so it is the system's default. On loss one differs from another
/// by more than most stacks do.
fn congestion_of(lab: Option<&Lab>) -> Option<String> {
    let name = match lab {
        Some(lab) => lab.congestion().ok()?,
        None => std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?,
    };
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Warns when others want this machine's cores too. Looked at before anything runs: the demo makes load of its own.
fn say_if_busy() {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if let Some(warning) = busy(load, cores) {
        println!("{warning}");
    }
}

fn busy(load: f64, cores: usize) -> Option<String> {
    (load > cores as f64)
        .then(|| format!("This machine is busy (load {load:.0} on {cores} cores): numbers mean little."))
}

/// The median of a few launches, or why there is none. A launch that fails is not repeated: the cell would only hide it.
fn median_cell(paths: &Paths, lab: Option<&Lab>, show: &Show, stack: &Stack, loss: f64) -> Result<f64, String> {
    let values = (0..LAUNCHES).map(|_| cell(paths, lab, show, stack, loss)).collect::<Result<Vec<f64>, String>>()?;
    Spread::of(values).map(|spread| spread.median).ok_or_else(|| "no number".into())
}

/// A number, or in a few words why there is none.
fn cell(paths: &Paths, lab: Option<&Lab>, show: &Show, stack: &Stack, loss: f64) -> Result<f64, String> {
    let mut env = Vec::new();
    if lab.is_none() && loss > 0.0 {
        if !stack.is_ours() {
            return Err(NOT_TRIED.into());
        }
        env.push(("WEIR_FAULTS".to_owned(), format!("loss={}%", loss * 100.0)));
    }
    let program = mpi::program(paths, stack.mpi, show.program);
    let args: Vec<String> = show.args.iter().map(|word| (*word).to_owned()).collect();
    let job = Job { stack, ranks: show.ranks, program: &program, args: &args, limit: LIMIT, env: &env };
    let outcome = job.run(paths, lab).map_err(|error| format!("{error:#}"))?;
    if outcome.status.is_none() {
        return Err(format!("over {} s", LIMIT.as_secs()));
    }
    let value = result_of(&outcome).filter(|_| outcome.ok()).ok_or_else(|| {
        eprintln!("{} on {}: {}", show.title, stack.name, outcome.cause());
        "failed".to_owned()
    })?;
    if value.get("complete") == Some(&serde_json::Value::Bool(false)) {
        return Err("over 17 s".into());
    }
    value.get(show.key).and_then(serde_json::Value::as_f64).ok_or_else(|| "no number".into())
}

/// A program at a loss, and what came out on each stack.
type Row<'a> = (&'a Show, f64, Vec<Result<f64, String>>);

/// The table's first line. Of TCP it names the congestion control: a number beside it means little without.
fn head(stacks: &[Stack], width: usize, congestion: &str) -> String {
    let mut line = format!("{:width$}  {:>6}", "MPICH over", "loss");
    for stack in stacks {
        let name = match stack.name.as_str() {
            "weir-mpich" => "weir".to_owned(),
            "mpich-tcp" => format!("tcp, {congestion}"),
            _ => "udp;ofi_rxd".to_owned(),
        };
        line += &format!("  {name:>12}");
    }
    line + &format!("  {:>22}", "weir beside the best")
}

fn print_table(stacks: &[Stack], rows: &[Row<'_>], congestion: &str) {
    let width = SHOWS.iter().map(|show| show.title.len() + show.unit.len() + 2).max().unwrap_or(0);
    println!("\n{}", head(stacks, width, congestion));
    for (show, loss, cells) in rows {
        print!("{:width$}  {:>4} %", format!("{}, {}", show.title, show.unit), loss * 100.0);
        for cell in cells {
            print!("  {:>12}", cell.as_ref().map_or_else(Clone::clone, |value| number(*value)));
        }
        println!("  {:>22}", ratio(show, cells));
    }
}

fn ratio(show: &Show, cells: &[Result<f64, String>]) -> String {
    let Some((Ok(ours), rivals)) = cells.split_first() else { return "-".into() };
    let speeds = rivals.iter().flatten().map(|theirs| if show.more_is_better { ours / theirs } else { theirs / ours });
    if rivals.iter().all(|theirs| theirs.as_ref().is_err_and(|cause| cause == NOT_TRIED)) {
        return NOT_TRIED.into();
    }
    speeds.min_by(f64::total_cmp).map_or_else(|| "no rival got through".into(), |least| format!("{least:.2} x as fast"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told() {
        assert_eq!(busy(1.9, 2), None);
        let warning = busy(13.2, 2).unwrap();
        assert!(warning.contains("load 13 on 2 cores"), "{warning}");
    }

    #[test]
    fn the_last_line_is_one_to_be_typed() {
        let paths = Paths { root: "/src dir".into(), target: "/src dir/target".into() };
        let folder = tempfile::tempdir().unwrap();
        let without = next(&paths, Some(folder.path().as_os_str()));
        assert!(
            without.contains("program: export PATH='/src dir/target/mpi/mpich/bin/':\"$PATH\"; eval $("),
            "{without}"
        );
        std::fs::write(folder.path().join("mpiexec"), "").unwrap();
        let with = next(&paths, Some(folder.path().as_os_str()));
        let line = "Next, your own MPI program: eval $('/src dir/target/weir/bin/weir' env); mpiexec -n 4 ./program";
        assert_eq!(with, line);
    }

    #[test]
    fn the_table_names_the_congestion_control_of_tcp() {
        let shown = |s: &Stack| ["weir-mpich", "mpich-tcp", "mpich-rxd"].contains(&s.name.as_str());
        let stacks: Vec<Stack> = Stack::all(&[]).into_iter().filter(shown).collect();
        let line = head(&stacks, 10, "cubic");
        assert!(line.contains("  weir    tcp, cubic   udp;ofi_rxd  "), "{line}");
        assert!(congestion_of(None).is_some_and(|name| !name.contains('\n')));
    }

    #[test]
    fn the_ratio_is_to_the_best_rival() {
        let cells = [Ok(100.0), Ok(50.0), Ok(80.0)];
        assert_eq!(ratio(&SHOWS[0], &cells), "1.25 x as fast");
        let cells = [Ok(2.0), Ok(3.0), Err("over 20 s".into())];
        assert_eq!(ratio(&SHOWS[1], &cells), "1.50 x as fast");
        assert_eq!(ratio(&SHOWS[0], &[Err("failed".into()), Ok(1.0)]), "-");
        assert_eq!(ratio(&SHOWS[0], &[Ok(1.0), Err("failed".into())]), "no rival got through");
        assert_eq!(ratio(&SHOWS[0], &[Ok(1.0), Err(NOT_TRIED.into()), Err(NOT_TRIED.into())]), "-");
    }
}
