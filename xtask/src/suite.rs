//! `cargo xtask test`: everything that must hold, in the order in which it is cheap to know.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::e2e::{self, Ended};
use crate::paths::Paths;
use crate::process::run_limited;
use crate::{dist, floors, lab, mpi, readme};

/// The crates that must build without the standard library.
const NO_STD: [&str; 3] = ["weir-wire", "weir-proto", "weir-match"];
/// A target without a standard library, if it is installed.
const BARE_TARGET: &str = "x86_64-unknown-none";

/// What has been counted.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
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

    fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("skipped {name}: {why}");
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("        {line}\n")).collect()
}

fn cargo(paths: &Paths, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&paths.root).args(args).env("CARGO_TERM_COLOR", "never").env("CARGO_TARGET_DIR", &paths.target);
    command
}

fn must(command: &mut Command, limit: Duration) -> Result<(), String> {
    match run_limited(command, limit) {
        Ok(outcome) if outcome.ok() => Ok(()),
        Ok(outcome) if outcome.status.is_none() => Err(outcome.cause()),
        Ok(outcome) => Err(tail(&format!("{}{}", outcome.stdout, outcome.stderr), 60)),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs everything; returns whether nothing failed.
///
/// # Errors
/// Only if the tests themselves cannot be run.
pub fn run(paths: &Paths, quick: bool) -> Result<bool> {
    let world = lab::acquire();
    let mut tally = Tally::default();
    let long = Duration::from_secs(if quick { 420 } else { 1800 });
    tally.step("format", || must(&mut cargo(paths, &["fmt", "--all", "--check"]), long));
    tally.step("floors", || check_floors(paths));
    tally.step("readme", || check_readme(paths));
    tally.step("clippy", || {
        must(&mut cargo(paths, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]), long)
    });
    tally.step("core without std", || check_no_std(paths, long));
    cargo_tests(paths, quick, long, &mut tally);
    match world {
        Ok(_) => end_to_end(paths, quick, &mut tally),
        Err(error) => tally.skip("end-to-end tests", &format!("{error:#}")),
    }
    let skipped = if tally.skipped > 0 { format!(", {} skipped", tally.skipped) } else { String::new() };
    println!("{} passed, {} failed{skipped}", tally.passed, tally.failed);
    Ok(tally.failed == 0)
}

fn check_floors(paths: &Paths) -> Result<(), String> {
    let upward = floors::upward(&paths.root).map_err(|error| format!("{error:#}"))?;
    let lines: Vec<String> = upward
        .iter()
        .map(|u| format!("{} may not depend on {}: that is on the same or a higher floor", u.from, u.on))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

fn check_readme(paths: &Paths) -> Result<(), String> {
    let found = readme::disagreements(paths).map_err(|error| format!("{error:#}"))?;
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

/// Builds the pure core for a target that has no standard library. Where that target is not
/// installed, the sources must say `#![no_std]` and build as they are: then the compiler has no
/// `std` in scope either.
fn check_no_std(paths: &Paths, limit: Duration) -> Result<(), String> {
    let sysroot =
        run_limited(Command::new("rustc").args(["--print", "sysroot"]), limit).map_err(|e| format!("{e:#}"))?;
    let bare = std::path::Path::new(sysroot.stdout.trim()).join("lib/rustlib").join(BARE_TARGET).is_dir();
    for name in NO_STD {
        let file = paths.root.join("core").join(name.trim_start_matches("weir-")).join("src/lib.rs");
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        if let Some(cause) = brings_std(&text) {
            return Err(format!("{} {cause}", file.display()));
        }
        let mut args = vec!["build", "--quiet", "--lib", "-p", name];
        if bare {
            args.extend(["--target", BARE_TARGET]);
        }
        must(&mut cargo(paths, &args), limit)?;
    }
    Ok(())
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

/// Unit, property and simulation tests; each test counts.
fn cargo_tests(paths: &Paths, quick: bool, limit: Duration, tally: &mut Tally) {
    let begin = Instant::now();
    let mut command = cargo(paths, &["test", "--workspace", "--no-fail-fast"]);
    if !quick {
        // The simulations' long run, for those who ask for everything.
        command.env("WEIR_TEST_LONG", "1");
    }
    let outcome = match run_limited(&mut command, limit) {
        Ok(outcome) => outcome,
        Err(error) => return tally.note("cargo test", &Err(format!("{error:#}")), begin.elapsed()),
    };
    let (passed, failed, ignored) = count_results(&outcome.stdout);
    tally.passed += passed;
    tally.failed += failed;
    tally.skipped += ignored;
    println!(
        "cargo test: {passed} passed, {failed} failed, {ignored} skipped ({:.1} s)",
        begin.elapsed().as_secs_f64()
    );
    for line in outcome.stdout.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED")) {
        println!("FAILED  {}", line.trim_start_matches("test ").trim_end_matches(" ... FAILED"));
    }
    if !outcome.ok() && failed == 0 {
        tally.note(
            "cargo test",
            &Err(tail(&format!("{}{}", outcome.cause() + "\n", outcome.stderr), 60)),
            begin.elapsed(),
        );
    } else if failed > 0 {
        println!("{}", indent(&tail(&outcome.stdout, 80)));
    }
}

/// Adds up the lines `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn count_results(text: &str) -> (u64, u64, u64) {
    let number = |line: &str, word: &str| {
        let before = line.split_once(word).map_or("", |(before, _)| before);
        before.split_whitespace().last().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let lines = text.lines().filter(|line| line.starts_with("test result:"));
    lines.fold((0, 0, 0), |(p, f, i), line| {
        (p + number(line, " passed"), f + number(line, " failed"), i + number(line, " ignored"))
    })
}

fn end_to_end(paths: &Paths, quick: bool, tally: &mut Tally) {
    let ready = || -> Result<()> {
        dist::build(paths)?;
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
    let mut last = Instant::now();
    let ran = e2e::run(paths, quick, |name, ended| {
        let result = match ended {
            Ended::Passed => Ok(()),
            Ended::Failed(cause) => Err(cause.clone()),
        };
        tally.note(name, &result, last.elapsed());
        last = Instant::now();
    });
    if let Err(error) = ran {
        tally.note("end-to-end tests", &Err(format!("{error:#}")), last.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_added() {
        let text = "running 2 tests\ntest a ... ok\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 5 passed; 3 failed; 0 ignored; 0 measured\n";
        assert_eq!(count_results(text), (7, 3, 1));
        assert_eq!(count_results("error: could not compile"), (0, 0, 0));
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
