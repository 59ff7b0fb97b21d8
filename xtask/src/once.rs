//! That the chores and the tests of the whole workspace share what is compiled. Cargo compiles a
//! package once for each set of features, and a package alone asks for fewer than the workspace
//! does: a minute on two cores, for the same code twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::process::run_limited;

/// Resolving takes a second.
const LIMIT: Duration = Duration::from_secs(120);

/// Packages by name and version, with the sets of features they are compiled with.
type Packages = BTreeMap<String, BTreeSet<String>>;

/// What is compiled for the chores alone, since `xtask/Cargo.toml` does not ask for all that the
/// tests need of it.
///
/// # Errors
/// If Cargo cannot say what depends on what.
pub fn compiled_twice(paths: &Paths) -> Result<Vec<String>> {
    let chores = tree(paths, &["-p", "xtask", "-e", "normal,build"])?;
    let tests = tree(paths, &["--workspace", "-e", "normal,build,dev"])?;
    Ok(differences(&chores, &tests))
}

fn tree(paths: &Paths, of: &[&str]) -> Result<Packages> {
    let mut command = paths.cargo();
    command.args(["tree", "--prefix", "none", "-f", "{p}|{f}"]).args(of);
    let outcome = run_limited(&mut command, LIMIT).context("cargo tree")?;
    if !outcome.ok() {
        bail!("cargo tree: {}\n{}", outcome.cause(), outcome.stderr.trim());
    }
    Ok(packages(&outcome.stdout))
}

/// Reads lines such as `nix v0.31.3|event,fs`; ` (*)` follows where the package was told before.
fn packages(text: &str) -> Packages {
    let mut all = Packages::new();
    for (package, features) in text.lines().filter_map(|line| line.split_once('|')) {
        let name: Vec<&str> = package.split_whitespace().take(2).collect();
        all.entry(name.join(" ")).or_default().insert(features.trim_end_matches("(*)").trim().to_owned());
    }
    all
}

/// The chores' packages of which the tests need one with other features.
fn differences(chores: &Packages, tests: &Packages) -> Vec<String> {
    let mut found = Vec::new();
    for (name, sets) in chores {
        let Some(others) = tests.get(name) else { continue };
        for set in sets.difference(others) {
            let others: Vec<String> = others.iter().map(|other| format!("[{other}]")).collect();
            found.push(format!(
                "{name} is compiled with [{set}] for the chores, with {} for the tests",
                others.join(", ")
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_features_are_another_compilation() {
        let chores = packages("nix v0.31.3|event,fs\nclap v4.5.0 (proc-macro)|derive (*)\nonly v1.0.0|\n");
        let tests = packages("nix v0.31.3|event,fs,net\nnix v0.31.3|fs\nclap v4.5.0|derive\n");
        let found = differences(&chores, &tests);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("nix v0.31.3 is compiled with [event,fs]"), "{found:?}");
        assert!(differences(&tests, &tests).is_empty());
    }
}
