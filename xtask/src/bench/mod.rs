//! `cargo xtask bench mpi`: Weir and its rivals side by side, written down in `docs/lab`.

pub mod cells;
pub mod measure;
pub mod report;

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::paths::Paths;
use crate::process::run_quiet;
use crate::stack::Stack;
use crate::{dist, lab, mpi};

/// What to measure, and how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench mpi --quick
  cargo xtask bench mpi --only latency,loss --launches 7
  cargo xtask bench mpi --only farm --stacks weir-mpich,mpich-tcp-cubic,openmpi-ob1-cubic --json")]
pub struct Options {
    /// Only these groups: latency, bandwidth, stream, loss, wan, farm, streams, incast, rate, overlap
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only stacks whose names start with one of these
    #[arg(long, value_delimiter = ',')]
    pub stacks: Vec<String>,
    /// Congestion controls of the kernel for stacks over TCP
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr")]
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
    /// A launch is ended after this many seconds
    #[arg(long, default_value_t = 90)]
    pub limit: u64,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "mpi")]
    pub name: String,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write no report
    #[arg(long)]
    pub no_report: bool,
    /// Measure the provider that is there, without building
    #[arg(long)]
    pub no_build: bool,
}

/// Measures and reports.
///
/// # Errors
/// If nothing can be measured, or the report cannot be written.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !cells::SECTIONS.contains(&name.as_str())) {
        bail!("no group '{unknown}'; there are: {}", cells::SECTIONS.join(", "));
    }
    let how = lab::acquire()?;
    if !options.no_build {
        dist::build(paths)?;
    }
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    let extent = cells::Extent {
        quick: options.quick,
        seconds: options.seconds.unwrap_or(if options.quick { 1.0 } else { 3.0 }).clamp(0.1, 600.0),
    };
    let wanted = cells::cells(&options.only, extent);
    let chosen = |stack: &Stack| {
        options.stacks.is_empty() || options.stacks.iter().any(|start| stack.name.starts_with(start.as_str()))
    };
    let stacks: Vec<Stack> = Stack::all(&options.congestion).into_iter().filter(chosen).collect();
    if stacks.is_empty() {
        bail!("no stack has such a name");
    }
    let launches = options.launches.unwrap_or(if options.quick { 3 } else { 5 }) as usize;
    let mut about = machine(paths);
    about.push(("hosts".into(), how.into()));
    about.push(("launches of each".into(), format!("{launches}, interleaved")));
    let results = measure::measure(paths, &wanted, &stacks, launches, Duration::from_secs(options.limit))?;
    let text = report::markdown(&results, &wanted, &stacks, &about);
    let json = report::to_json(&results, &wanted, &stacks, &about);
    if options.json {
        println!("{json:#}");
    } else {
        println!("{text}");
    }
    if !options.no_report {
        let folder = paths.root.join("docs/lab");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{}-{}", today(), options.name));
        std::fs::write(file.with_extension("md"), text)?;
        std::fs::write(file.with_extension("json"), format!("{json:#}\n"))?;
        eprintln!("written to {}", file.with_extension("md").display());
    }
    Ok(())
}

fn said(program: &str, args: &[&str]) -> String {
    run_quiet(Command::new(program).args(args)).map(|text| text.trim().to_owned()).unwrap_or_else(|_| "unknown".into())
}

/// The day, in UTC.
pub fn today() -> String {
    said("date", &["-u", "+%Y-%m-%d"])
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
        ("commit".into(), said("git", &["-C", &root, "rev-parse", "--short", "HEAD"])),
        ("processor".into(), format!("{cores} x {}", find(&read("/proc/cpuinfo"), "model name"))),
        ("memory".into(), find(&read("/proc/meminfo"), "MemTotal")),
        ("kernel".into(), read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("load before".into(), read("/proc/loadavg").split(' ').next().unwrap_or("?").to_owned()),
        (
            "kernel's default congestion control".into(),
            read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
        ),
        ("compiler".into(), said("rustc", &["--version"])),
        ("MPIs".into(), "MPICH 5.0.2, Open MPI 5.0.11 (PyPI wheels, libfabric 2.5.1 inside)".into()),
    ]
}
