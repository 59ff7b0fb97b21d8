//! `cargo xtask predict --simgrid`: the example programs on a machine that exists nowhere, run by
//! SimGrid's SMPI and predicted by `weir predict`. Both are deterministic, so a busy machine only
//! blurs how long each took.
//!
//! SMPI runs the programs themselves, with its plain model of flows (CM02): each message takes the
//! latency and then its share of the links. Its factors for Ethernet, its cross traffic and its
//! window are off, computation takes no time but what the farm's workers sleep, and small messages
//! set out before their receive is posted. What is left is what `latency_us` and
//! `bandwidth_MB_per_s` say.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths::Paths;
use crate::predict::{Options, Program, predicted_median, wanted};
use crate::process::{run_limited, run_quiet};

/// Options of `smpirun` for the plain model. A look at the clock takes 1 us, else waiting awake
/// would never end.
const PLAIN: [&str; 11] = [
    "network/model:CM02",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/crosstraffic:no",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "smpi/simulate-computation:no",
    "smpi/async-small-thresh:65536",
    "smpi/send-is-detached-thresh:65536",
    "smpi/wtime:1e-6",
    "smpi/host-speed:1e9",
];

/// Compares both on a star of as many hosts as there are ranks.
///
/// # Errors
/// If SimGrid is not installed, or something cannot be built or run.
pub fn run(paths: &Paths, options: &Options, weir: &Path, folder: &Path) -> Result<()> {
    if run_quiet(Command::new("smpirun").arg("--version")).is_err() {
        bail!("there is no smpirun: install SimGrid (Debian: libsimgrid-dev)");
    }
    let most = options.ranks.iter().max().context("no number of ranks")?;
    describe(options, folder, *most)?;
    println!("a star of {most} hosts, {} Mbit/s, {} us one way", options.rate_mbit, options.delay_us);
    println!(
        "{:8} {:>5} {:>13} {:>13} {:>9} {:>12} {:>12}",
        "program", "ranks", "weir predict", "SMPI", "off by", "weir took", "SMPI took"
    );
    for program in wanted(options) {
        compile(paths, program, folder)?;
        for ranks in &options.ranks {
            let begin = Instant::now();
            let ours = ours(weir, options, program, *ranks, folder)?;
            let (ours_took, begin) = (begin.elapsed(), Instant::now());
            let theirs = theirs(options, program, *ranks, folder)?;
            println!(
                "{:8} {ranks:>5} {ours:>11.4} s {theirs:>11.4} s {:>+7.1} % {:>10.2} s {:>10.2} s",
                program.name,
                (ours / theirs - 1.0) * 100.0,
                ours_took.as_secs_f64(),
                begin.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}

/// The machine in both languages. A host's link has half of the way.
fn describe(options: &Options, folder: &Path, hosts: usize) -> Result<()> {
    let rate = f64::from(options.rate_mbit) / 8.0;
    let half = f64::from(options.delay_us) / 2.0;
    let platform = format!(
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n\
         <zone id=\"all\" routing=\"Full\">\n<cluster id=\"star\" prefix=\"host-\" suffix=\"\" radical=\"0-{}\" speed=\"1Gf\" \
         bw=\"{rate}MBps\" lat=\"{half}us\"/>\n</zone>\n</platform>\n",
        hosts - 1
    );
    fs::write(folder.join("star.xml"), platform)?;
    let names: Vec<String> = (0..hosts).map(|host| format!("host-{host}\n")).collect();
    fs::write(folder.join("star.hosts"), names.concat())?;
    let machine = format!(
        "[network]\nlatency_us = {}\nbandwidth_MB_per_s = {rate}\neager_bytes = 65536\n[nodes]\ningress_MB_per_s = {rate}\n\
         egress_MB_per_s = {rate}\n[fabric]\nsharing = \"fair\"\n",
        options.delay_us
    );
    fs::write(folder.join("star.toml"), machine).context("cannot describe the machine")
}

fn compile(paths: &Paths, program: &Program, folder: &Path) -> Result<()> {
    let source = paths.root.join("examples/predict").join(program.name).with_extension("c");
    fs::copy(&source, folder.join(program.name).with_extension("c"))?;
    let mut cc = Command::new("smpicc");
    cc.args(["-O2", "-std=gnu11"])
        .arg(&source)
        .arg("-o")
        .arg(folder.join(program.name).with_extension("smpi"))
        .arg("-lm");
    run_quiet(&mut cc).with_context(|| format!("smpicc: {} does not compile", source.display()))?;
    if program.name == "farm" {
        let arguments: Vec<&str> = ["--list"].into_iter().chain(program.arguments.iter().copied()).collect();
        fs::write(folder.join("farm-jobs.csv"), smpirun(program, 1, &arguments, folder, Duration::from_secs(60))?)?;
    }
    Ok(())
}

fn smpirun(program: &Program, ranks: usize, arguments: &[&str], folder: &Path, limit: Duration) -> Result<String> {
    let mut command = Command::new("smpirun");
    command.args(["-np", &ranks.to_string(), "-hostfile", "star.hosts", "-platform", "star.xml"]);
    command.arg("--log=root.thres:error").args(PLAIN.iter().map(|option| format!("--cfg={option}")));
    command.arg(format!("./{}.smpi", program.name)).args(arguments).current_dir(folder);
    let outcome = run_limited(&mut command, limit)?;
    if !outcome.ok() {
        bail!("smpirun {} with {ranks} ranks: {}\n{}", program.name, outcome.cause(), outcome.stderr);
    }
    Ok(outcome.stdout)
}

fn theirs(options: &Options, program: &Program, ranks: usize, folder: &Path) -> Result<f64> {
    let text = smpirun(program, ranks, program.arguments, folder, Duration::from_secs(options.limit))?;
    let line = text.lines().find(|line| line.starts_with('{')).context("the program printed no result")?;
    let result: Value = serde_json::from_str(line)?;
    result["slowest_s"].as_f64().context("the result has no time")
}

fn ours(weir: &Path, options: &Options, program: &Program, ranks: usize, folder: &Path) -> Result<f64> {
    let mut command = Command::new(weir);
    command.arg("predict").arg(folder.join(program.name).with_extension("c"));
    command.arg("--machine").arg(folder.join("star.toml")).args(["-n", &ranks.to_string(), "--json", "--quiet"]);
    for parameter in program.parameters {
        command.args(["-p", parameter]);
    }
    if let Some((serial, _)) = program.serial {
        command.args(["-p", &format!("{serial}=0")]);
    }
    let outcome = run_limited(&mut command, Duration::from_secs(options.limit))?;
    if !outcome.ok() {
        bail!("weir predict {}: {}\n{}", program.name, outcome.cause(), outcome.stderr);
    }
    predicted_median(&outcome.stdout)
}
