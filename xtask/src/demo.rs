//! `cargo xtask demo`: a first look, in one table.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::measure::Spread;
use crate::bench::report::number;
use crate::lab::{self, Lab, Wire};
use crate::launch::{Job, result_of};
use crate::mpi::Mpi;
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
/// How long it is looked whether others use the machine, before and after each row.
const LOOK: Duration = Duration::from_millis(500);
/// The share of its processors from which on others are said to: on two cores, a fifth of one.
const MOST_BUSY: f64 = 0.1;

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

/// Builds the provider and fetches an MPI beside that, makes the network, runs the programs, prints
/// a line of the table as soon as it is known.
///
/// # Errors
/// If something cannot be built or no program runs at all.
pub fn run(paths: &Paths, no_build: bool) -> Result<()> {
    let world = lab::acquire();
    make_ready(paths, no_build)?;
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
    let (congestion, busiest) = show_rows(paths, world.is_ok(), &stacks)?;
    println!("Medians of {LAUNCHES} launches. TCP's congestion control is this system's own default, {congestion}.");
    if let Some(share) = busiest {
        println!("{}", come_back(share));
    }
    println!("\n{}", next(paths, std::env::var_os("PATH").as_deref()));
    Ok(())
}

/// Measures and prints row after row; returns TCP's congestion control, and the largest share of
/// the machine that others used beside a row, if any was too large.
fn show_rows(paths: &Paths, has_hosts: bool, stacks: &[Stack]) -> Result<(String, Option<f64>)> {
    let mut congestion: Option<String> = None;
    let bar = ProgressBar::new((SHOWS.len() * LOSSES.len() * stacks.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    // A cell takes up to a minute: the time that passes shows that something goes on.
    bar.enable_steady_tick(Duration::from_secs(1));
    let mut others = busy_share(LOOK);
    let mut busiest = None;
    for (show, loss) in SHOWS.iter().flat_map(|show| LOSSES.map(|loss| (show, loss))) {
        let lab = if has_hosts { Some(Lab::start(show.ranks, &Wire::shaped(1000, 100, loss))?) } else { None };
        if congestion.is_none() {
            let name = congestion_of(lab.as_ref()).unwrap_or_else(|| "unknown".to_owned());
            bar.suspend(|| println!("\n{}", head(stacks, title_width(), &name)));
            congestion = Some(name);
        }
        let mut cells = Vec::new();
        for stack in stacks {
            bar.set_message(format!("{} on {}, {} % loss", show.title, stack.name, loss * 100.0));
            cells.push(median_cell(paths, lab.as_ref(), show, stack, loss));
            bar.inc(1);
        }
        drop(lab);
        // Nothing of ours runs before and after a row.
        let before = std::mem::replace(&mut others, busy_share(LOOK));
        let busy = [before, others].into_iter().flatten().filter(|share| *share > MOST_BUSY).max_by(f64::total_cmp);
        busiest = busiest.into_iter().chain(busy).max_by(f64::total_cmp);
        bar.suspend(|| println!("{}", line(show, loss, &cells, busy.is_some())));
    }
    bar.finish_and_clear();
    Ok((congestion.unwrap_or_default(), busiest))
}

/// What the demo needs and no more: the provider, and MPICH with two programs, which come from the
/// network while the compiler works.
fn make_ready(paths: &Paths, no_build: bool) -> Result<()> {
    let begin = Instant::now();
    let fetch = || -> Result<f64> {
        mpi::set_up_one(paths, Mpi::Mpich)?;
        mpi::compile_these(paths, Mpi::Mpich, &SHOWS.map(|show| show.program))?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let (fetched, built) = std::thread::scope(|scope| {
        let fetching = scope.spawn(fetch);
        let built = if no_build { Ok(()) } else { dist::provider(paths) };
        let built = built.map(|()| begin.elapsed().as_secs_f64());
        (fetching.join().unwrap_or_else(|_| Err(anyhow!("what fetches MPICH crashed"))), built)
    });
    let (built, fetched) = (built?, fetched?);
    if !no_build {
        println!("Ready: the provider was built in {built:.0} s, MPICH and two programs there after {fetched:.0} s.");
    }
    Ok(())
}

/// What to do after the demo, to be typed as it stands but for the program's name. Who has no MPI
/// yet has the one the demo fetched.
fn next(paths: &Paths, search_path: Option<&OsStr>) -> String {
    let weir = paths.command();
    let has_mpi = search_path.is_some_and(|all| std::env::split_paths(all).any(|one| one.join("mpiexec").is_file()));
    let fetched = Mpi::Mpich.bin(paths, "");
    let path = if has_mpi { String::new() } else { format!("export PATH='{}':\"$PATH\"; ", fetched.display()) };
    let build = if weir.exists() { "" } else { "cargo xtask build; " };
    format!("Next, your own MPI program: {build}{path}eval $('{}' env); mpiexec -n 4 ./program", weir.display())
}

/// Which congestion control TCP has in these runs: none is set, so it is the system's default. On
/// loss one differs from another by more than most stacks do.
fn congestion_of(lab: Option<&Lab>) -> Option<String> {
    let name = match lab {
        Some(lab) => lab.congestion().ok()?,
        None => std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?,
    };
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// What share of this machine's processors others use for a while in which nothing of ours runs;
/// none where the system does not tell. Time that a hypervisor took away is others' too.
fn busy_share(span: Duration) -> Option<f64> {
    let read = || times(&std::fs::read_to_string("/proc/stat").ok()?);
    let before = read()?;
    std::thread::sleep(span);
    let after = read()?;
    let all = after.0.checked_sub(before.0).filter(|all| *all > 0)?;
    Some(1.0 - after.1.saturating_sub(before.1) as f64 / all as f64)
}

/// Ticks of all processors, and of these the idle ones, from the first line of `/proc/stat`
/// (proc(5): user, nice, system, idle, iowait, irq, softirq, steal).
fn times(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((ticks.iter().sum(), ticks.get(3)? + ticks.get(4)?))
}

fn come_back(share: f64) -> String {
    format!(
        "Others used {:.0} % of this machine's processors: no ratio is told of rows measured then. When it is quiet again (uptime, top): cargo xtask demo --no-build",
        share * 100.0
    )
}

/// The median of a few launches, or why there is none. A launch that fails is not repeated: the
/// cell would only hide it.
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

/// The table's first line. Of TCP it names the congestion control: a number beside it means little
/// without.
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

fn title_width() -> usize {
    SHOWS.iter().map(|show| show.title.len() + show.unit.len() + 2).max().unwrap_or(0)
}

/// A program at a loss, and what came out on each stack. A ratio of numbers that others disturbed
/// would be believed, so there is none.
fn line(show: &Show, loss: f64, cells: &[Result<f64, String>], busy: bool) -> String {
    let width = title_width();
    let mut line = format!("{:width$}  {:>4} %", format!("{}, {}", show.title, show.unit), loss * 100.0);
    for cell in cells {
        line += &format!("  {:>12}", cell.as_ref().map_or_else(Clone::clone, |value| number(*value)));
    }
    line + &format!("  {:>22}", if busy { "(machine busy)".to_owned() } else { ratio(show, cells) })
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
    fn a_busy_machine_gets_no_ratios_and_how_to_come_back() {
        let cells = [Ok(100.0), Ok(50.0), Ok(80.0)];
        let quiet = line(&SHOWS[0], 0.01, &cells, false);
        assert!(quiet.ends_with("1.25 x as fast") && quiet.contains("100"), "{quiet}");
        let busy = line(&SHOWS[0], 0.01, &cells, true);
        assert!(busy.ends_with("(machine busy)") && busy.contains("100") && !busy.contains("1.25"), "{busy}");
        let told = come_back(0.57);
        assert!(told.contains("57 %") && told.contains("cargo xtask demo --no-build"), "{told}");
    }

    #[test]
    fn time_that_is_not_idle_is_others() {
        let (all, idle) = times("cpu  100 10 50 800 40 5 5 20 7 7\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!((all, idle), (1030, 840));
        assert_eq!(times("cpu one two"), None);
        assert_eq!(times(""), None);
        // A loop that never rests is seen on any machine.
        let stop = std::sync::atomic::AtomicBool::new(false);
        let share = std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let share = busy_share(Duration::from_millis(300));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            share
        });
        assert!(share.is_none_or(|share| share > MOST_BUSY), "{share:?}");
    }

    #[test]
    fn the_last_line_is_one_to_be_typed() {
        let paths = Paths { root: "/src dir".into(), target: "/src dir/target".into(), made: Paths::BUILT };
        let folder = tempfile::tempdir().unwrap();
        let without = next(&paths, Some(folder.path().as_os_str()));
        assert!(
            without.contains(
                "program: cargo xtask build; export PATH='/src dir/target/mpi/mpich/bin/':\"$PATH\"; eval $("
            ),
            "{without}"
        );
        std::fs::write(folder.path().join("mpiexec"), "").unwrap();
        let with = next(&paths, Some(folder.path().as_os_str()));
        let line = "Next, your own MPI program: cargo xtask build; eval $('/src dir/target/weir/bin/weir' env); mpiexec -n 4 ./program";
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
