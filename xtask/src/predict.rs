//! `cargo xtask predict`: the example programs run for real on emulated hosts, and predicted from
//! what `weir bench` measured on the same hosts. Predictions are made and printed before the runs
//! they are compared with.
//!
//! Not part of the tests: it wants an idle machine, and says how busy it was.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lab::{self, Lab, Wire};
use crate::launch::{Job, result_of};
use crate::mpi;
use crate::paths::Paths;
use crate::process::{run_limited, run_quiet};
use crate::simgrid;
use crate::smpi::{Measured, Smpi};
use crate::stack::Stack;

/// What is run and predicted.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Only these programs
    #[arg(long, value_delimiter = ',', default_value = "jacobi,farm,fft")]
    pub only: Vec<String>,
    /// Compare with SimGrid's SMPI on a machine that exists nowhere, instead of real runs: needs
    /// smpicc and smpirun
    #[arg(long)]
    pub simgrid: bool,
    /// Predict the real runs by SMPI too, calibrated as its documentation says: needs smpicc and
    /// smpirun
    #[arg(long, conflicts_with = "simgrid")]
    smpi: bool,
    /// Use this `weir` instead of building one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Numbers of ranks
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2,4,8")]
    pub ranks: Vec<usize>,
    /// Hosts, over which the ranks are spread
    #[arg(long, default_value_t = 4)]
    hosts: usize,
    /// The stack: its MPI compiles the programs
    #[arg(long, default_value = "mpich-tcp-cubic")]
    stack: String,
    /// Rate of the hosts' links
    #[arg(long, default_value_t = 100)]
    pub rate_mbit: u32,
    /// Time of flight, one way
    #[arg(long, default_value_t = 500)]
    pub delay_us: u32,
    /// Queue of the switch's ports, packets: with few, an all-to-all overflows them
    #[arg(long)]
    queue: Option<u32>,
    /// Runs of each program with each number of ranks
    #[arg(long, default_value_t = 11)]
    runs: usize,
    /// Launches of each benchmark: what they differ by goes into the bands
    #[arg(long, default_value_t = 3)]
    launches: u32,
    /// Seconds for each benchmark, all its launches together
    #[arg(long, default_value_t = 60)]
    bench_seconds: u32,
    /// No run or benchmark takes longer than this, seconds
    #[arg(long, default_value_t = 300)]
    pub limit: u64,
    /// Keep benchmarks and predictions in this folder
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// A program with the arguments of its runs and the parameters of its model.
pub struct Program {
    pub name: &'static str,
    /// Arguments of the program.
    pub arguments: &'static [&'static str],
    /// Parameters of the model that say the same.
    pub parameters: &'static [&'static str],
    /// The parameter for a serial time, and what the run time of one rank is divided by to get its
    /// milliseconds.
    pub serial: Option<(&'static str, f64)>,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "jacobi",
        arguments: &["--iterations", "500"],
        parameters: &["iterations=500"],
        serial: Some(("relax_ms", 500.0)),
    },
    Program { name: "farm", arguments: &["--jobs", "200"], parameters: &[], serial: None },
    Program {
        name: "fft",
        arguments: &["--transforms", "50"],
        parameters: &["transforms=50"],
        serial: Some(("half_ms", 100.0)),
    },
];

/// The ways of evaluation that are compared, with their arguments for `weir predict`.
const WAYS: [(&str, &[&str]); 4] = [
    ("full", &[]),
    ("as measured", &["--measured", "alltoall"]),
    ("2x1 average", &["--mode", "2x1-avg"]),
    ("no node limits", &["--without", "node-limits"]),
];

/// What belongs to one measurement.
struct Setup<'a> {
    paths: &'a Paths,
    options: &'a Options,
    stack: Stack,
    weir: PathBuf,
    folder: PathBuf,
    smpi: OnceCell<Smpi>,
}

/// Measures, predicts, runs, and prints all side by side.
///
/// # Errors
/// If something cannot be built, measured or predicted. A run that fails is told in its row.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let kept = tempfile::tempdir()?;
    let folder = options.keep.clone().unwrap_or_else(|| kept.path().to_owned());
    fs::create_dir_all(&folder)?;
    let weir = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("no {}", program.display()))?,
        None => {
            run_quiet(paths.cargo().args(["build", "--release", "-p", "weir"])).context("weir does not build")?;
            paths.target.join("release/weir")
        }
    };
    if options.simgrid {
        return simgrid::run(paths, options, &weir, &folder);
    }
    mpi::set_up(paths)?;
    lab::acquire()?;
    let stacks = Stack::all(&["cubic".into(), "bbr".into()]);
    let names = || stacks.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let stack = stacks
        .iter()
        .find(|s| s.name == options.stack)
        .cloned()
        .with_context(|| format!("no such stack; there are: {}", names()))?;
    if stack.is_ours() && !paths.provider().exists() {
        bail!("there is no provider yet: cargo xtask build");
    }
    let setup = Setup { paths, options, stack, weir, folder: folder.canonicalize()?, smpi: OnceCell::new() };
    setup.compile()?;
    println!(
        "{}, {} hosts, {} Mbit/s, {} us one way; load average before: {}",
        setup.stack.name,
        options.hosts,
        options.rate_mbit,
        options.delay_us,
        load()
    );
    println!(
        "{:8} {:>5}  {:<15} {:>11} {:>25} {:>11} {:>11} {:>8}",
        "program", "ranks", "prediction", "median", "95 % of runs", "measured", "p95", "off by"
    );
    for &ranks in &options.ranks {
        setup.with_ranks(ranks)?;
    }
    println!("load average after: {}", load());
    Ok(())
}

/// The programs that are asked for.
pub fn wanted(options: &Options) -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(|p| options.only.iter().any(|o| o == p.name))
}

/// The median time that `weir predict --json` printed, seconds.
///
/// # Errors
/// If it is not what that prints.
pub fn predicted_median(json: &str) -> Result<f64> {
    let all: Value = serde_json::from_str(json).context("weir predict --json")?;
    all["predictions"][0]["median_s"].as_f64().context("weir predict says no median_s")
}

/// How busy the machine is: what was measured beside other work says little.
fn load() -> String {
    fs::read_to_string("/proc/loadavg")
        .map_or_else(|_| "unknown".into(), |text| text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

impl Setup<'_> {
    fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Compiles the programs, and puts their sources where their models' data is.
    fn compile(&self) -> Result<()> {
        let sources = self.paths.root.join("examples/predict");
        for program in wanted(self.options) {
            let source = sources.join(program.name).with_extension("c");
            fs::copy(&source, self.folder.join(program.name).with_extension("c"))
                .with_context(|| format!("cannot copy {}", source.display()))?;
            let mut cc = Command::new(self.stack.mpi.bin(self.paths, "mpicc"));
            cc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"])
                .arg(&source)
                .arg("-o")
                .arg(self.program(program.name))
                .arg("-lm");
            run_quiet(&mut cc).with_context(|| format!("{} does not compile", source.display()))?;
            if self.options.smpi {
                Smpi::compile(&source, &self.program(program.name).with_extension("smpi"))?;
            }
        }
        if wanted(self.options).any(|p| p.name == "farm") {
            let jobs = run_quiet(Command::new(self.program("farm")).arg("--list").args(PROGRAMS[1].arguments))?;
            fs::write(self.folder.join("farm-jobs.csv"), jobs)?;
        }
        Ok(())
    }

    fn with_ranks(&self, ranks: usize) -> Result<()> {
        let wire = Wire {
            rate_mbit_per_s: Some(self.options.rate_mbit),
            delay_us: self.options.delay_us,
            queue_packets: self.options.queue,
            ..Wire::default()
        };
        let lab = Lab::start(self.options.hosts.min(ranks), &wire)?;
        lab.set_congestion(self.stack.congestion.as_deref())?;
        let begin = Instant::now();
        let machine = self.benchmark(&lab, ranks)?;
        println!("{ranks:>14}  the benchmark took {:.1} s", begin.elapsed().as_secs_f64());
        if self.options.smpi && self.smpi.get().is_none() {
            let smpi = self.calibrate(&lab)?;
            println!("{:>14}  SMPI's calibration took {:.1} s: {}", 2, smpi.took.as_secs_f64(), smpi.shown());
            let _ = self.smpi.set(smpi);
        }
        for program in wanted(self.options) {
            let serial = program.serial.map(|(name, parts)| {
                Ok::<_, anyhow::Error>(format!("{name}={}", self.alone(program)? * 1000.0 / parts))
            });
            let serial = serial.transpose()?;
            let mut predicted = Vec::new();
            for (way, arguments) in WAYS {
                predicted.push((way, self.predict(program, &machine, ranks, serial.as_deref(), arguments)?));
            }
            if let Some(smpi) = self.smpi.get() {
                let (path, limit) =
                    (self.program(program.name).with_extension("smpi"), Duration::from_secs(self.options.limit));
                let (median_s, took) = smpi.predict(&path, program.arguments, ranks, &self.folder, limit)?;
                predicted.push(("SMPI", Predicted { median_s, low_s: median_s, high_s: median_s, took }));
            }
            for (way, p) in &predicted {
                println!(
                    "{:8} {ranks:>5}  {way:<15} {:>9.4} s {:>10.4} s to {:>8.4} s   in {:.2} s",
                    program.name,
                    p.median_s,
                    p.low_s,
                    p.high_s,
                    p.took.as_secs_f64()
                );
            }
            self.compare(program, ranks, &lab, &predicted)?;
        }
        Ok(())
    }

    fn job<'b>(&'b self, ranks: usize, program: &'b Path, args: &'b [String]) -> Job<'b> {
        Job { stack: &self.stack, ranks, program, args, limit: Duration::from_secs(self.options.limit), env: &[] }
    }

    /// SMPI as its documentation calibrates it: between two hosts, and within one.
    fn calibrate(&self, lab: &Lab) -> Result<Smpi> {
        let begin = Instant::now();
        let (source, program) = (self.paths.root.join("examples/predict/calibrate.c"), self.program("calibrate"));
        let mut cc = Command::new(self.stack.mpi.bin(self.paths, "mpicc"));
        cc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]).arg(&source).arg("-o").arg(&program).arg("-lm");
        run_quiet(&mut cc).with_context(|| format!("{} does not compile", source.display()))?;
        let measured = |lab: Option<&Lab>| {
            let outcome = self.job(2, &program, &[]).run(self.paths, lab)?;
            if !outcome.ok() {
                bail!("calibrate: {}\n{}", outcome.cause(), outcome.stderr);
            }
            Measured::read(&outcome.stdout)
        };
        let (between, within) = (measured(Some(lab))?, measured(None)?);
        let (latency_s, bytes_per_s) =
            (f64::from(self.options.delay_us) * 1e-6, f64::from(self.options.rate_mbit) * 1e6 / 8.0);
        Smpi::calibrated(&between, &within, self.options.hosts, latency_s, bytes_per_s, begin.elapsed())
    }

    /// What the machine's messages take with so many ranks.
    fn benchmark(&self, lab: &Lab, ranks: usize) -> Result<PathBuf> {
        let out = self.folder.join(format!("machine-{ranks}"));
        let text = format!(
            "bench --quiet --time {} -t send,isendlocal,alltoall-each -s 0,8,64,512,1k,4k,8k,16k,32k,64k,128k -o",
            (self.options.bench_seconds / self.options.launches.max(1)).max(1)
        );
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        words.push(out.display().to_string());
        for number in 0..self.options.launches.max(1) {
            if number == 1 {
                words.push("--append".to_owned());
            }
            let outcome = self.job(ranks, &self.weir, &words).run(self.paths, Some(lab))?;
            if !outcome.ok() {
                bail!("weir bench with {ranks} ranks: {}\n{}", outcome.cause(), outcome.stderr);
            }
        }
        Ok(out)
    }

    fn predict(
        &self,
        program: &Program,
        machine: &Path,
        ranks: usize,
        serial: Option<&str>,
        more: &[&str],
    ) -> Result<Predicted> {
        let mut command = Command::new(&self.weir);
        command.arg("predict").arg(self.folder.join(program.name).with_extension("c")).arg("--machine").arg(machine);
        command.args(["-n", &ranks.to_string(), "--json", "--quiet", "--runs", "101"]).args(more);
        for parameter in program.parameters.iter().copied().chain(serial) {
            command.args(["-p", parameter]);
        }
        let begin = Instant::now();
        let outcome = run_limited(&mut command, Duration::from_secs(self.options.limit))?;
        if !outcome.ok() {
            bail!("weir predict {}: {}\n{}", program.name, outcome.cause(), outcome.stderr);
        }
        let all: Value = serde_json::from_str(&outcome.stdout).context("weir predict --json")?;
        let number =
            |key: &str| all["predictions"][0][key].as_f64().with_context(|| format!("weir predict says no {key}"));
        let (median_s, low_s, high_s) = (number("median_s")?, number("low_s")?, number("high_s")?);
        Ok(Predicted { median_s, low_s, high_s, took: begin.elapsed() })
    }

    /// The run time of one rank, which sends nothing, in seconds: the least of three.
    fn alone(&self, program: &Program) -> Result<f64> {
        let args: Vec<String> = program.arguments.iter().map(|a| (*a).to_owned()).collect();
        let path = self.program(program.name);
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            let outcome = self.job(1, &path, &args).run(self.paths, None)?;
            let seconds = result_of(&outcome).and_then(|r| r["seconds"].as_f64());
            least = least.min(seconds.with_context(|| format!("{} alone: {}", program.name, outcome.cause()))?);
        }
        Ok(least)
    }

    fn compare(&self, program: &Program, ranks: usize, lab: &Lab, predicted: &[(&str, Predicted)]) -> Result<()> {
        let args: Vec<String> = program.arguments.iter().map(|a| (*a).to_owned()).collect();
        let path = self.program(program.name);
        let mut times = Vec::new();
        for _ in 0..self.options.runs.max(1) {
            let outcome = self.job(ranks, &path, &args).run(self.paths, Some(lab))?;
            match result_of(&outcome).filter(|_| outcome.ok()).and_then(|r| r["slowest_s"].as_f64()) {
                Some(seconds) => times.push(seconds),
                None => println!("{:8} {ranks:>5}  a run failed: {}", program.name, outcome.cause()),
            }
        }
        times.sort_by(f64::total_cmp);
        if times.is_empty() {
            return Ok(());
        }
        let (median, high) = (quantile(&times, 0.5), quantile(&times, 0.95));
        for (way, p) in predicted {
            println!(
                "{:8} {ranks:>5}  {way:<15} {:>9.4} s {:>10.4} s to {:>8.4} s {median:>9.4} s {high:>9.4} s {:>+7.1} %",
                program.name,
                p.median_s,
                p.low_s,
                p.high_s,
                (p.median_s / median - 1.0) * 100.0
            );
        }
        Ok(())
    }
}

/// What was predicted, seconds, and how long that took.
struct Predicted {
    median_s: f64,
    low_s: f64,
    high_s: f64,
    took: Duration,
}

/// Quantile of sorted numbers (nearest rank).
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = (q * (sorted.len() - 1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_runs() {
        assert_eq!((quantile(&[1.0, 2.0, 3.0], 0.5), quantile(&[1.0, 2.0, 3.0], 0.95)), (2.0, 3.0));
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
    }
}
