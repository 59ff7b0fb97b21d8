//! `cargo xtask test`: everything that must hold, in the order in which it is cheap to know.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::e2e::{self, Ended};
use crate::paths::Paths;
use crate::process::run_limited;
use crate::test_programs::{Programs, tail};
use crate::{
    any_mpi, bad_days, carriers, comments, disk, dist, interfaces, lab, layers, measured, mpi, nas, once, packages,
    predictions, readme, requirements, slurm, test_programs,
};

/// The crates that must build without the standard library.
const NO_STD: [&str; 10] = [
    "weir-wire",
    "weir-session",
    "weir-bulk",
    "weir-bulk-driver",
    "weir-link",
    "weir-match",
    "weir-message",
    "weir-net",
    "weir-collective",
    "weir-superstep",
];
/// The crates of which fuzz targets see more (feature `bare`).
const WITH_BARE: [&str; 2] = ["weir-engine", "weir-bmi"];
/// A target without a standard library, if it is installed.
const BARE_TARGET: &str = "x86_64-unknown-none";
/// Formatting and the like.
const SHORT: Duration = Duration::from_secs(300);
/// Compiling the workspace; the bound is for machines that do much else.
const COMPILING: Duration = Duration::from_secs(2400);
/// Running the tests that Cargo knows; a machine in a good mood needs a tenth.
const TESTING: Duration = Duration::from_secs(2400);
/// What no MPI program of the end-to-end tests is begun after.
const END_TO_END: Duration = Duration::from_secs(1200);
/// The same for each part of those on each carrier.
const BY_CARRIER: Duration = Duration::from_secs(600);

/// The engine's test programs that run over whatever carries messages.
const ON_ANY_CARRIER: [&str; 9] =
    ["bad_days", "bounds", "hostile", "large", "pair", "pressure", "remote_memory", "sleeping", "threads"];
/// A test program with a test that holds times against each other: that one is ignored but with
/// `--long`, and then nothing runs beside it, for others take the memory's time however low their
/// priority.
const TIMED: &str = "bsp_costs";
/// The exit code of a check that lacks a program it needs.
const NOTHING_TO_RUN_IT: i32 = 77;

/// What has been counted.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl fmt::Display for Tally {
    /// The closing line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

impl Tally {
    fn note(&mut self, name: &str, result: &Result<(), String>, took: Duration) {
        let seconds = took.as_secs_f64();
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {name} ({seconds:.1} s)");
            }
            Err(cause) => {
                self.failed += 1;
                println!("FAILED  {name} ({seconds:.1} s)\n{}", indent(cause));
            }
        }
    }

    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) {
        let begin = Instant::now();
        let result = work();
        self.note(name, &result, begin.elapsed());
    }

    fn end(&mut self, name: &str, ended: &Ended, took: Duration) {
        match ended {
            Ended::Passed => self.note(name, &Ok(()), took),
            Ended::Failed(cause) => self.note(name, &Err(cause.clone()), took),
            Ended::Skipped(why) => self.skip(name, why),
        }
    }

    /// Takes down what ends, each after the one before it.
    fn noting(&mut self) -> impl FnMut(&str, &Ended) {
        let mut last = Instant::now();
        move |name, ended| {
            self.end(name, ended, last.elapsed());
            last = Instant::now();
        }
    }

    /// Takes over what another has counted.
    const fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("skipped {name}: {why}");
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("        {line}\n")).collect()
}

fn must(command: &mut Command, limit: Duration) -> Result<(), String> {
    match run_limited(command, limit) {
        Ok(outcome) if outcome.ok() => Ok(()),
        Ok(outcome) if outcome.status.is_none() => Err(outcome.cause()),
        Ok(outcome) => Err(tail(&format!("{}{}", outcome.stdout, outcome.stderr), 60)),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Runs everything; returns whether nothing failed.
///
/// # Errors
/// Only if the tests themselves cannot be run.
pub fn run(paths: &Paths, quick: bool, long: bool) -> Result<bool> {
    let world = lab::acquire();
    let begin = Instant::now();
    let mut tally = Tally::default();
    println!("{}", disk::room_for_all(&paths.target));
    tally.step("format", || must(paths.cargo().args(["fmt", "--all", "--check"]), SHORT));
    tally.step("layers", || check_layers(paths));
    tally.step("comments", || check_comments(paths));
    tally.step("readme", || check_readme(paths));
    tally.step("requirements", || check_requirements(paths));
    tally.step("licences of what is shipped", || check_licences(paths));
    tally.step("chores and tests share what is compiled", || check_once(paths));
    clippy(paths, &mut tally);
    core_without_std(paths, &mut tally);
    let built = Instant::now();
    let result = must(paths.cargo().args(["test", "--workspace", "--no-run", "--quiet"]), COMPILING);
    let builds = result.is_ok();
    println!("{}", disk::room(&paths.target, 0));
    tally.note("build the tests", &result, built.elapsed());
    let mut launched = false;
    let seeds = seeds(quick, long);
    let programs = Programs::of(paths).unwrap_or_else(|error| {
        tally.note("which test programs there are", &Err(format!("{error:#}")), Duration::ZERO);
        Programs::default()
    });
    let split = !quick && !programs.core.is_empty();
    std::thread::scope(|scope| {
        let beside = (!quick).then(|| {
            scope.spawn(|| {
                let mut tally = compiled_beside(paths, long);
                if builds && split {
                    core_tests(paths, &programs, (seeds, long), &mut tally);
                }
                tally
            })
        });
        if builds {
            // Launchers are tested against the real ones, which come with the MPIs. Why they cannot
            // be had is told further down.
            launched = mpi::set_up(paths).is_ok();
            cargo_tests(paths, &programs, split, seeds, &mut tally);
            over_another(paths, &mut tally, ("engine over shared memory", "shm"));
            match weir_sctp::available() {
                Ok(()) => over_another(paths, &mut tally, ("engine over SCTP", "sctp")),
                Err(why) => tally.skip("engine over SCTP", &why.to_string()),
            }
        }
        dissector(paths, &mut tally);
        match beside.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(other)) => tally.add(&other),
            Some(Err(_)) => tally.note("what is compiled beside the tests", &Err("panicked".into()), Duration::ZERO),
            None => {}
        }
    });
    if builds && long {
        timed_tests(paths, &mut tally);
    }
    if builds {
        end_to_end(paths, (quick, launched), world.map(drop), &mut tally);
    } else {
        let cause = "not run: the command they try is the one of the tests, which do not all build";
        tally.note("end-to-end tests", &Err(cause.into()), Duration::ZERO);
    }
    println!("{}", disk::room(&paths.target, 0));
    println!("{:.0} s in all", begin.elapsed().as_secs_f64());
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// What is compiled once more, in ways of its own, and what is run of it. It goes beside the tests,
/// which leave the processors idle for a third of their time, and takes no time from them.
fn compiled_beside(paths: &Paths, long: bool) -> Tally {
    let mut tally = Tally::default();
    oldest_compiler(paths, long, &mut tally);
    model_checked(paths, &mut tally);
    tally
}

/// The same command, which gives way to whatever else wants a processor.
fn giving_way(command: &Command) -> Command {
    let mut low = Command::new("nice");
    low.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        low.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => low.env(name, value),
            None => low.env_remove(name),
        };
    }
    low
}

/// Lints all there is. The fuzz targets need a compiler for C++, since libFuzzer is linked into
/// them: where there is none, they count as skipped.
fn clippy(paths: &Paths, tally: &mut Tally) {
    let cpp = run_limited(Command::new("c++").arg("--version"), SHORT).is_ok_and(|outcome| outcome.ok());
    let mut command = paths.cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--quiet", "--keep-going"]);
    command.args(cpp.then_some(["--features", "weir-fuzz/fuzzer"]).iter().flatten());
    tally.step("clippy", || must(command.args(["--", "-D", "warnings"]), COMPILING));
    if !cpp {
        tally.skip("fuzz targets compile", "not installed: c++");
    }
    // Of the whole workspace the fuzz targets switch on what only they need: what is shipped is
    // without.
    let mut command = paths.cargo();
    command.args(["clippy", "--all-targets", "--quiet", "--keep-going"]);
    command.args(WITH_BARE.iter().flat_map(|name| ["-p", name]));
    tally.step("clippy, as shipped", || must(command.args(["--", "-D", "warnings"]), COMPILING));
}

fn check_layers(paths: &Paths) -> Result<(), String> {
    let upward = layers::upward(&paths.root).map_err(|error| format!("{error:#}"))?;
    let lines: Vec<String> = upward
        .iter()
        .map(|u| format!("{} may not depend on {}: that is on the same or a higher layer", u.from, u.on))
        .collect();
    let circles = layers::circles(&paths.root).map_err(|error| format!("{error:#}"))?;
    let circles = circles.iter().map(|circle| format!("modules form a circle: {circle}"));
    let missing = layers::without_reason(&paths.root).map_err(|error| format!("{error:#}"))?;
    let missing = missing.iter().map(|name| format!("ARCHITECTURE.md gives no reason for the dependency {name}"));
    let lines: Vec<String> = lines.into_iter().chain(circles).chain(missing).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

fn check_comments(paths: &Paths) -> Result<(), String> {
    let found = comments::too_long(&paths.root).map_err(|error| format!("{error:#}"))?;
    if found.is_empty() { Ok(()) } else { Err(format!("comments wrap at 100 columns: {}", found.join(", "))) }
}

fn check_readme(paths: &Paths) -> Result<(), String> {
    let found = readme::disagreements(paths).map_err(|error| format!("{error:#}"))?;
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

fn check_requirements(paths: &Paths) -> Result<(), String> {
    let found = requirements::troubles(&paths.root).map_err(|error| format!("{error:#}"))?;
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

fn check_licences(paths: &Paths) -> Result<(), String> {
    let crates = packages::crates::all(paths).map_err(|error| format!("{error:#}"))?;
    let found = packages::crates::complaints(&crates);
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

fn check_once(paths: &Paths) -> Result<(), String> {
    let found = once::compiled_twice(paths).map_err(|error| format!("{error:#}"))?;
    if found.is_empty() { Ok(()) } else { Err(format!("say in xtask/Cargo.toml:\n{}", found.join("\n"))) }
}

/// Checks the pure core on a target that has no standard library. Where that target is not
/// installed, all that is known is that each crate says `#![no_std]` and builds: the crates below
/// it could still bring `std`, so the check on the target counts as skipped.
fn core_without_std(paths: &Paths, tally: &mut Tally) {
    let sysroot = run_limited(paths.rustc().args(["--print", "sysroot"]), SHORT);
    let sysroot = sysroot.map(|outcome| outcome.stdout.trim().to_owned()).unwrap_or_default();
    let bare = Path::new(&sysroot).join("lib/rustlib").join(BARE_TARGET).join("lib").is_dir();
    for name in NO_STD {
        tally.step(&format!("{name} says no_std and builds alone"), || says_no_std(paths, name));
        let title = format!("{name} on {BARE_TARGET}");
        if bare {
            tally.step(&title, || must(&mut bare_check(paths, name), COMPILING));
        } else {
            tally.skip(&title, &format!("not installed: rustup target add {BARE_TARGET}"));
        }
    }
}

/// The compiler the README promises must take every library and program; with `long` all tests,
/// too, which are a third of the work. It counts as skipped where rustup does not have it.
fn oldest_compiler(paths: &Paths, long: bool, tally: &mut Tally) {
    let version = match readme::oldest_compiler(paths) {
        Ok(version) => version,
        Err(error) => return tally.note("oldest compiler", &Err(format!("{error:#}")), Duration::ZERO),
    };
    let title = format!("builds with Rust {version}");
    let there = run_limited(Command::new("rustup").args(["run", &version, "rustc", "--version"]), SHORT);
    if !there.is_ok_and(|outcome| outcome.ok()) {
        return tally.skip(&title, &format!("not installed: rustup toolchain install {version}"));
    }
    // The workspace's own Cargo would use its own compiler; rustup chooses both.
    let mut command = Command::new("rustup");
    command.args(["run", &version, "cargo", "check", "--workspace", "--quiet"]);
    command.args(long.then_some("--all-targets"));
    command.current_dir(&paths.root).env("CARGO_TARGET_DIR", paths.target.join("oldest"));
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTDOC"] {
        command.env_remove(name);
    }
    tally.step(&title, || must(&mut giving_way(&command), COMPILING));
    disk::done_with(&paths.target.join("oldest"));
}

/// Type-checks only: a kernel's target passes no numbers in vector registers, and code for that is
/// not made there. Ring wants the vector instructions named all the same.
fn bare_check(paths: &Paths, name: &str) -> Command {
    let mut command = paths.cargo();
    command.args(["check", "--quiet", "--lib", "-p", name, "--no-default-features", "--target", BARE_TARGET]);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_NONE_RUSTFLAGS", "-Ctarget-feature=+sse,+sse2");
    command
}

fn says_no_std(paths: &Paths, name: &str) -> Result<(), String> {
    let file = paths.root.join("core").join(name.trim_start_matches("weir-")).join("src/lib.rs");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    if let Some(cause) = brings_std(&text) {
        return Err(format!("{} {cause}", file.display()));
    }
    must(paths.cargo().args(["check", "--quiet", "--lib", "-p", name, "--no-default-features"]), COMPILING)
}

/// Why a crate root may use `std`, if it may. Behind `#[cfg(test)]` or a feature it is allowed:
/// the plain build has none of these.
fn brings_std(text: &str) -> Option<&'static str> {
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect();
    if !lines.contains(&"#![no_std]") {
        return Some("does not say #![no_std]");
    }
    let brings = |line: &&str| line.starts_with("extern crate std") || line.starts_with("pub extern crate std");
    let brought = lines.iter().position(brings)?;
    let guarded = brought > 0 && lines[brought - 1].starts_with("#[cfg(");
    (!guarded).then_some("brings std back")
}

/// Packets and TCP connections written by hand from the specification, and its examples, decoded by
/// Wireshark with our dissector.
fn dissector(paths: &Paths, tally: &mut Tally) {
    let title = "Wireshark decodes packets by tools/wireshark/weir.lua";
    let begin = Instant::now();
    let result = match run_limited(Command::new("python3").arg(paths.root.join("tools/wireshark/check.py")), SHORT) {
        Ok(outcome) if outcome.status.and_then(|status| status.code()) == Some(NOTHING_TO_RUN_IT) => {
            return tally.skip(title, "not installed: tshark");
        }
        Ok(outcome) if outcome.ok() => Ok(()),
        Ok(outcome) if outcome.status.is_none() => Err(outcome.cause()),
        Ok(outcome) => Err(tail(&format!("{}{}", outcome.stdout, outcome.stderr), 60)),
        Err(error) => Err(format!("{error:#}")),
    };
    tally.note(title, &result, begin.elapsed());
}

/// The rings of shared memory in every order that the memory model permits. The atomics are other
/// ones, so that everything is compiled once more.
fn model_checked(paths: &Paths, tally: &mut Tally) {
    let mut command = paths.cargo();
    command.args(["test", "--release", "--quiet", "-p", "weir-shm", "--test", "loom"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", paths.target.join("loom"));
    tally.step("shared memory's rings under the model checker", || must(&mut giving_way(&command), COMPILING));
    disk::done_with(&paths.target.join("loom"));
}

/// Simulated networks of each profile: seconds, a quarter of a minute, and a quarter of an hour on
/// two cores.
const fn seeds(quick: bool, long: bool) -> u32 {
    match (quick, long) {
        (true, _) => 60,
        (false, false) => 300,
        (false, true) => 20_000,
    }
}

/// Unit, property and simulation tests; each test counts. `beside`: what is of the pure core runs
/// beside these (`core_tests`).
fn cargo_tests(paths: &Paths, programs: &Programs, beside: bool, seeds: u32, tally: &mut Tally) {
    let mut command = tests(paths, seeds);
    if !beside {
        return counted(&mut command, "cargo test", TESTING, tally);
    }
    command.args(["--lib", "--bins"]).args(programs.others.iter().flat_map(|name| ["--test", name]));
    counted(&mut command, "cargo test", TESTING, tally);
    counted(tests(paths, seeds).arg("--doc"), "examples in the documentation", TESTING, tally);
}

/// What holds times against each other, when nothing else runs any more.
fn timed_tests(paths: &Paths, tally: &mut Tally) {
    let mut command = tests(paths, 0);
    command.env_remove("WEIR_TEST_SEEDS").args(["--test", TIMED, "--", "--ignored"]);
    counted(&mut command, "cargo test of what is timed, alone", TESTING, tally);
}

/// The test programs of the pure core: without sockets and clocks, so that they may wait as long as
/// they like for a processor. They go beside the others, which wait for a third of their time.
fn core_tests(paths: &Paths, programs: &Programs, (seeds, long): (u32, bool), tally: &mut Tally) {
    let mut command = tests(paths, seeds);
    command.args(programs.core.iter().flat_map(|name| ["--test", name]));
    let limit = TESTING * if long { 8 } else { 1 };
    counted(&mut giving_way(&command), "cargo test of the core", limit, tally);
}

/// With the whole workspace always, lest the same programs are compiled once more with other
/// features.
fn tests(paths: &Paths, seeds: u32) -> Command {
    let mut command = paths.cargo();
    // A failed assertion says where it is; call stacks would push the causes out of the report.
    command.args(["test", "--workspace", "--no-fail-fast"]).env("RUST_BACKTRACE", "0");
    command.env("WEIR_TEST_SEEDS", seeds.to_string());
    command
}

/// Runs test programs by Cargo; each test counts.
fn counted(command: &mut Command, name: &str, limit: Duration, tally: &mut Tally) {
    let begin = Instant::now();
    let outcome = match run_limited(command, limit) {
        Ok(outcome) => outcome,
        Err(error) => return tally.note(name, &Err(format!("{error:#}")), begin.elapsed()),
    };
    let (passed, failed, skipped) = test_programs::count_tests(&outcome.stdout, &outcome.stderr);
    (tally.passed, tally.failed) = (tally.passed + passed, tally.failed + failed);
    tally.skipped += skipped;
    let seconds = begin.elapsed().as_secs_f64();
    // In one piece: another run's lines may come beside it.
    let mut lines = vec![format!("{name}: {passed} passed, {failed} failed, {skipped} skipped ({seconds:.1} s)")];
    lines.push(format!("the slowest: {}", test_programs::slowest(&outcome.stdout, &outcome.stderr).join(", ")));
    lines.extend(
        test_programs::what_was_ignored(&outcome.stdout, &outcome.stderr).iter().map(|line| format!("skipped {line}")),
    );
    lines.extend(test_programs::failed(&outcome.stdout).map(|test| format!("FAILED  {test}")));
    if failed > 0 {
        lines.push(indent(&test_programs::what_failed(&outcome.stdout)));
    }
    println!("{}", lines.join("\n"));
    // Beyond tests that failed: a program that did not build, died, or did not end.
    if outcome.status.is_none() || (!outcome.ok() && failed == 0) || passed == 0 {
        let mut programs = outcome.stderr.lines().filter(|line| line.trim_start().starts_with("Running "));
        let last = programs.next_back().map_or("", str::trim);
        let cause = format!("{}; at last: {last}\n{}", outcome.cause(), tail(&outcome.stderr, 60));
        tally.note(name, &Err(cause), begin.elapsed());
    }
}

/// The engine's tests once more, over shared memory or SCTP. Those that are about packets say so
/// themselves, in a line each, and count as skipped. Left out are the programs of which all tests
/// are about packets (`bulk_connections`, `levels`, `lossy`, `counted`, `overtaking`,
/// `slow_socket`, `trace`), and those that choose their carriers themselves.
fn over_another(paths: &Paths, tally: &mut Tally, (name, carrier): (&str, &str)) {
    let mut command = tests(paths, 0);
    command.env_remove("WEIR_TEST_SEEDS").env("WEIR_TEST_CARRIER", carrier);
    counted(command.args(ON_ANY_CARRIER.iter().flat_map(|name| ["--test", name])), name, TESTING, tally);
}

/// `launched`: the launchers were there when all tests ran, and so were tested. `world`: whether
/// there can be networks of hosts.
fn end_to_end(paths: &Paths, (quick, launched): (bool, bool), world: Result<()>, tally: &mut Tally) {
    let paths = &paths.tested();
    let ready = || -> Result<()> {
        dist::for_tests(paths)?;
        mpi::set_up(paths)?;
        mpi::compile(paths)
    };
    let begin = Instant::now();
    let result = ready().map_err(|error| format!("{error:#}"));
    let usable = result.is_ok();
    tally.note("build and fetch for the end-to-end tests", &result, begin.elapsed());
    if !usable {
        return;
    }
    if let Err(error) = &world {
        tally.skip("end-to-end tests across hosts", &format!("{error:#}"));
    }
    if !launched {
        launchers(paths, tally);
    }
    let mut note = tally.noting();
    let mut ran = any_mpi::run(paths, &mut note)
        .and_then(|()| measured::run(paths, &paths.command(), "", &mut note))
        .and_then(|()| predictions::run(paths, &paths.command(), "", &mut note))
        .and_then(|()| e2e::run_on_loopback(paths, &mut note))
        .and_then(|()| packages::check::of_this_machine(paths, &mut note));
    if world.is_ok() && ran.is_ok() {
        ran = e2e::run(paths, quick, "", Instant::now() + END_TO_END, &mut note);
    }
    if world.is_ok() && ran.is_ok() {
        ran = interfaces::run(paths, "", &mut note)
            .and_then(|()| nas::run(paths, "", &mut note))
            .and_then(|()| slurm::run(paths, "", &mut note));
    }
    carriers::on_one_host(paths, quick, "", Instant::now() + BY_CARRIER, &mut note);
    carriers::memory(paths, "", &mut note);
    if !quick && world.is_ok() && ran.is_ok() {
        ran = carriers::mixed(paths, "", Instant::now() + BY_CARRIER, &mut note);
    }
    if !quick && world.is_ok() && ran.is_ok() {
        ran = bad_days::run(paths, "", Instant::now() + END_TO_END, &mut note);
    }
    if let Err(error) = ran {
        note("end-to-end tests", &Ended::Failed(format!("{error:#}")));
    }
}

/// Real launchers start ranks.
fn launchers(paths: &Paths, tally: &mut Tally) {
    let begin = Instant::now();
    let mut command = paths.cargo();
    command.args(["test", "--workspace", "--test", "launchers"]).env("RUST_BACKTRACE", "0");
    let outcome = match run_limited(&mut command, TESTING) {
        Ok(outcome) => outcome,
        Err(error) => return tally.note("launchers", &Err(format!("{error:#}")), begin.elapsed()),
    };
    let (passed, _, skipped) = test_programs::count_tests(&outcome.stdout, &outcome.stderr);
    test_programs::what_was_ignored(&outcome.stdout, &outcome.stderr)
        .iter()
        .for_each(|line| println!("skipped {line}"));
    tally.skipped += skipped;
    let result = if outcome.ok() { Ok(()) } else { Err(format!("{}\n{}", outcome.cause(), tail(&outcome.stdout, 60))) };
    tally.note(&format!("launchers: {passed} tests"), &result, begin.elapsed());
}

/// Runs the tests of launchers alone; returns whether nothing failed.
///
/// # Errors
/// If the MPIs cannot be had.
pub fn launchers_alone(paths: &Paths) -> Result<bool> {
    mpi::set_up(paths)?;
    let mut tally = Tally::default();
    launchers(paths, &mut tally);
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// Runs one set of end-to-end tests, which tell `note` of each as it ends; returns whether nothing
/// failed.
fn alone(run: impl FnOnce(&mut dyn FnMut(&str, &Ended)) -> Result<()>) -> Result<bool> {
    let mut tally = Tally::default();
    run(&mut tally.noting())?;
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// Runs the tests of one binary under every MPI alone; returns whether nothing failed.
///
/// # Errors
/// If the MPIs cannot be had or the program does not build.
pub fn any_mpi(paths: &Paths) -> Result<bool> {
    mpi::set_up(paths)?;
    alone(|note| any_mpi::run(paths, note))
}

/// Runs the tests of `weir bench` alone, of them those whose names contain `only`, of this program
/// if one is named; returns whether nothing failed.
///
/// # Errors
/// If the MPIs cannot be had or the program does not build.
pub fn measured(paths: &Paths, program: Option<PathBuf>, only: &str) -> Result<bool> {
    mpi::set_up(paths)?;
    let program = weir_or(paths, program)?;
    alone(|note| measured::run(paths, &program, only, note))
}

/// The program that is named, or the one that is built.
fn weir_or(paths: &Paths, program: Option<PathBuf>) -> Result<PathBuf> {
    match program {
        Some(program) => Ok(program.canonicalize()?),
        None => {
            dist::build(paths)?;
            Ok(paths.command())
        }
    }
}

/// Runs the tests of predictions against real MPIs alone, of them those whose names contain `only`,
/// of this program if one is named; returns whether nothing failed.
///
/// # Errors
/// If the MPIs cannot be had or a program does not build.
pub fn predictions(paths: &Paths, program: Option<PathBuf>, only: &str) -> Result<bool> {
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    let program = weir_or(paths, program)?;
    alone(|note| predictions::run(paths, &program, only, note))
}

/// Runs the tests of packages alone, of what was built before; returns whether nothing failed.
///
/// # Errors
/// If there is nothing to pack, or the MPI cannot be had.
pub fn packaged(paths: &Paths) -> Result<bool> {
    alone(|note| packages::check::of_this_machine(paths, note))
}

/// Runs the MPI programs across hosts alone, of the cases those whose names contain `only`; returns
/// whether nothing failed.
///
/// # Errors
/// If no network can be made, or the provider or the MPIs cannot be had.
pub fn e2e(paths: &Paths, only: &str) -> Result<bool> {
    lab::acquire()?;
    dist::build(paths)?;
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    alone(|note| e2e::run(paths, false, only, Instant::now() + END_TO_END, note))
}

/// Runs what is of clusters alone, of that those tests whose titles contain `only`; returns whether
/// nothing failed.
///
/// # Errors
/// If no network can be made, or the provider or the MPIs cannot be had.
pub fn clusters(paths: &Paths, only: &str, build: bool) -> Result<bool> {
    lab::acquire()?;
    if build {
        dist::build(paths)?;
    }
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    alone(|note| {
        any_mpi::on_intel(paths, only, &mut *note)?;
        e2e::on_intel(paths, only, &mut *note)?;
        interfaces::run(paths, only, &mut *note)?;
        nas::run(paths, only, &mut *note)?;
        slurm::run(paths, only, note)
    })
}

/// Runs the MPI programs on each carrier alone, of the cases those whose titles contain `only`;
/// returns whether nothing failed.
///
/// # Errors
/// If no network can be made, or the provider or the MPIs cannot be had.
pub fn by_carrier(paths: &Paths, only: &str) -> Result<bool> {
    lab::acquire()?;
    dist::build(paths)?;
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    alone(|note| {
        carriers::on_one_host(paths, false, only, Instant::now() + BY_CARRIER, &mut *note);
        carriers::memory(paths, only, &mut *note);
        carriers::mixed(paths, only, Instant::now() + BY_CARRIER, note)
    })
}

/// Runs the bad days alone, of them those whose names contain `only`; returns whether nothing
/// failed.
///
/// # Errors
/// If no network can be made, or the provider or the MPIs cannot be had.
pub fn bad_days(paths: &Paths, only: &str) -> Result<bool> {
    lab::acquire()?;
    dist::build(paths)?;
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    alone(|note| bad_days::run(paths, only, Instant::now() + END_TO_END, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_gives_way_is_the_same_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $GIVEN ${TAKEN-none} $(nice) $(pwd)"]).current_dir("/").env("GIVEN", "one two");
        command.env_remove("TAKEN");
        let outcome = run_limited(&mut giving_way(&command), SHORT).expect("sh");
        assert_eq!(outcome.stdout.trim(), "one two none 19 /");
    }

    #[test]
    fn what_another_counted_is_added() {
        let mut tally = Tally { passed: 3, failed: 0, skipped: 1 };
        tally.add(&Tally { passed: 2, failed: 1, skipped: 4 });
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 5 skipped");
    }

    #[test]
    fn the_closing_line_tells_what_was_skipped() {
        let mut tally = Tally { passed: 3, failed: 0, skipped: 0 };
        assert_eq!(tally.to_string(), "3 passed, 0 failed");
        tally.skip("something", "no reason");
        assert_eq!(tally.to_string(), "3 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn std_is_found_where_it_is_brought() {
        assert_eq!(brings_std("#![no_std]\n// extern crate std;\n#[cfg(test)]\nextern crate std;"), None);
        assert_eq!(brings_std("#![no_std]\nextern crate std;"), Some("brings std back"));
        assert_eq!(brings_std("//! #![no_std]\nuse std::io;"), Some("does not say #![no_std]"));
    }

    #[test]
    fn the_tail_is_the_end() {
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
    }
}
