//! What Cargo says of a workspace's test programs: which there are, what of their tests passed,
//! failed and was left out, and which took long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths::Paths;
use crate::process::run_limited;

/// How the line of a test begins that says it was left out: its name and a full stop follow.
const LEFT_OUT: &str = "IGNORED, not passed: ";

/// Test programs named as the slowest.
const SLOWEST: usize = 8;
/// Cargo lists packages in a second.
const LIMIT: Duration = Duration::from_secs(120);
/// Lines of a report of what failed.
const TOLD: usize = 60;

/// Test programs in folders `tests`, by name: `--test` names all of that name, whatever their
/// packages.
#[derive(Debug, Default)]
pub struct Programs {
    /// Those that only packages in `core/` have.
    pub core: BTreeSet<String>,
    /// All others.
    pub others: BTreeSet<String>,
}

impl Programs {
    /// Those of the workspace.
    ///
    /// # Errors
    /// If Cargo cannot say which there are.
    pub fn of(paths: &Paths) -> Result<Self> {
        let mut command = paths.cargo();
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let outcome = run_limited(&mut command, LIMIT).context("cargo metadata")?;
        if !outcome.ok() {
            bail!("cargo metadata: {}\n{}", outcome.cause(), outcome.stderr.trim());
        }
        Self::from_metadata(&serde_json::from_str(&outcome.stdout)?)
    }

    fn from_metadata(metadata: &Value) -> Result<Self> {
        let root = metadata["workspace_root"].as_str().context("cargo metadata names no root")?;
        let mut all = Self::default();
        for package in metadata["packages"].as_array().context("cargo metadata names no packages")? {
            let manifest = package["manifest_path"].as_str().context("a package is nowhere")?;
            let core = manifest.strip_prefix(root).is_some_and(|folder| folder.starts_with("/core/"));
            let targets = package["targets"].as_array().into_iter().flatten();
            let tests = targets.filter(|target| target["kind"][0] == "test").filter_map(|t| t["name"].as_str());
            (if core { &mut all.core } else { &mut all.others }).extend(tests.map(str::to_owned));
        }
        all.core = &all.core - &all.others;
        Ok(all)
    }
}

/// The tests that were ignored; then the reasons, which test programs give on standard error where
/// a machine lacks something.
pub fn what_was_ignored<'a>(stdout: &'a str, stderr: &'a str) -> Vec<&'a str> {
    let test = |line: &'a str| line.strip_prefix("test ").filter(|rest| rest.contains(" ... ignored"));
    let reasons = stderr.lines().filter(|line| line.starts_with("IGNORED"));
    stdout.lines().filter_map(test).chain(reasons).collect()
}

/// The test programs that took longest, with their times: where to look when all takes too long.
pub fn slowest(stdout: &str, stderr: &str) -> Vec<String> {
    let names = stderr.lines().filter_map(|line| match line.trim_start().split_once(' ')? {
        ("Running", rest) => Some(rest.rsplit_once('/').map_or(rest, |(_, file)| file.trim_end_matches(')'))),
        ("Doc-tests", name) => Some(name),
        _ => None,
    });
    let times = stdout.lines().filter_map(|line| line.strip_prefix("test result:"));
    let seconds = times.map(|line| line.rsplit_once("finished in ")?.1.trim_end_matches('s').parse::<f64>().ok());
    let mut all: Vec<(f64, &str)> = seconds.map(|s| s.unwrap_or(0.0)).zip(names).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.iter().take(SLOWEST).map(|(seconds, name)| format!("{name} {seconds:.0} s")).collect()
}

/// Of the output of all test programs, the parts in which those that failed tell why.
pub fn what_failed(text: &str) -> String {
    let reports = text.split("\nfailures:\n").skip(1).step_by(2);
    reports.map(|report| tail(report, TOLD)).collect::<Vec<_>>().join("\n")
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

/// How many tests passed, failed and were skipped. A test that found when it ran that the machine
/// lacks something is a passed one to its program; its line on standard error says otherwise. Such
/// a line of a test that its program knows to be ignored says no more than why.
pub fn count_tests(stdout: &str, stderr: &str) -> (u64, u64, u64) {
    let (passed, failed, ignored) = count_results(stdout);
    let mut said: BTreeMap<&str, u64> = BTreeMap::new();
    for line in stderr.lines().filter_map(|line| line.strip_prefix(LEFT_OUT)) {
        *said.entry(line.split_once(". ").map_or(line, |(name, _)| name)).or_default() += 1;
    }
    let tests = || stdout.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"));
    // (A line may leave out the module, and a test may say it twice.)
    let of = |name: &str| tests().filter(|test| *test == name || test.ends_with(&format!("::{name}"))).count() as u64;
    let left_out: u64 = said.iter().map(|(name, lines)| of(name).min(*lines)).sum();
    (passed.saturating_sub(left_out), failed, ignored + left_out)
}

/// The names of the tests that failed.
pub fn failed(stdout: &str) -> impl Iterator<Item = &str> {
    stdout.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_others_have_too_is_not_the_cores() {
        let package = |folder: &str, tests: &[&str]| {
            let targets = tests.iter().map(|name| serde_json::json!({ "kind": ["test"], "name": name }));
            let library = serde_json::json!({ "kind": ["lib"], "name": "lib" });
            let targets: Vec<Value> = targets.chain([library]).collect();
            serde_json::json!({ "manifest_path": format!("/weir/{folder}/Cargo.toml"), "targets": targets })
        };
        let packages = [package("core/link", &["two", "bulk"]), package("engine", &["bulk", "pair"])];
        let all = Programs::from_metadata(&serde_json::json!({ "workspace_root": "/weir", "packages": packages }));
        let all = all.unwrap();
        let names = |of: &BTreeSet<String>| of.iter().cloned().collect::<Vec<_>>();
        assert_eq!((names(&all.core), names(&all.others)), (vec!["two".into()], vec!["bulk".into(), "pair".into()]));
    }

    #[test]
    fn results_of_all_test_programs_are_added() {
        let text = "running 2 tests\ntest a ... ok\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 5 passed; 3 failed; 0 ignored; 0 measured\n";
        assert_eq!(count_results(text), (7, 3, 1));
        assert_eq!(count_results("error: could not compile"), (0, 0, 0));
    }

    #[test]
    fn what_was_ignored_is_named_with_its_reason() {
        let stdout = "test a ... ok\ntest slow ... ignored\ntest b ... ignored, too long\nnothing ... ignored\n";
        let stderr = "   Compiling x\nIGNORED, not passed: slow. There is no tc\n";
        let lines = what_was_ignored(stdout, stderr);
        assert_eq!(lines, ["slow ... ignored", "b ... ignored, too long", "IGNORED, not passed: slow. There is no tc"]);
    }

    #[test]
    fn the_slowest_programs_are_named() {
        let stderr = "   Compiling x\n     Running tests/a.rs (target/debug/deps/a-1)\n     Running unittests src/lib.rs (target/debug/deps/b-2)\n   Doc-tests c\n";
        let stdout = "test result: ok. 1 passed; finished in 0.50s\ntest x ... ok\n\
                      test result: ok. 1 passed; finished in 12.40s\ntest result: ok. 0 passed; finished in 3.00s\n";
        assert_eq!(slowest(stdout, stderr), ["b-2 12 s", "c 3 s", "a-1 0 s"]);
    }

    #[test]
    fn who_says_that_it_was_left_out_has_not_passed() {
        let stdout = "test sctp::tests::up ... ok\ntest sctp::tests::over ... ok\ntest order ... ok\n\
                      test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                      test key::tests::folder ... ok\ntest between ... ignored\ntest order ... ok\n\
                      test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let counted = |stderr: &str| count_tests(stdout, stderr);
        assert_eq!(counted("   Compiling x\n"), (5, 0, 1));
        assert_eq!(counted("IGNORED, not passed: sctp::tests::up. no SCTP: no library. None\n"), (4, 0, 2));
        assert_eq!(
            counted(&"IGNORED, not passed: sctp::tests::up. no SCTP\n".repeat(2)),
            (4, 0, 2),
            "it said so twice"
        );
        assert_eq!(counted("\nIGNORED, not passed: folder. Root may\n"), (4, 0, 2), "without its module");
        // Of two programs that have a test of this name, one or both.
        assert_eq!(counted("IGNORED, not passed: order. It is about packets\n"), (4, 0, 2));
        assert_eq!(counted(&"IGNORED, not passed: order. It is about packets\n".repeat(2)), (3, 0, 3));
        // Known to be ignored by their programs, or no tests.
        assert_eq!(counted("IGNORED, not passed: between. No tc\n"), (5, 0, 1));
        assert_eq!(counted("IGNORED, not passed: all 4 tests between hosts. No namespaces\n"), (5, 0, 1));
        assert_eq!(counted("IGNORED, not passed: up2. x\nIGNORED, not passed: p. x\n"), (5, 0, 1));
    }

    #[test]
    fn failures_are_shown_with_their_reasons() {
        let text =
            "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwrong\n\nfailures:\n    a\n\ntest result: FAILED.\n";
        let one = what_failed(text);
        assert!(one.contains("wrong") && !one.contains("test result"), "{one}");
        let two = what_failed(&text.repeat(2));
        assert_eq!(two.matches("wrong").count(), 2);
    }
}
