//! `cargo xtask build`: the provider and the command, laid out as they are installed.

use std::fs;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::process::run_shown;

/// Builds the release provider and command into `target/weir/{bin,lib}`, and puts their manual pages into `share/man`, where
/// man(1) finds them beside a `bin` on the path.
///
/// # Errors
/// If they do not build.
pub fn build(paths: &Paths) -> Result<()> {
    eprintln!("building the provider and command (two to six minutes on two cores)...");
    // Not quietly: Cargo's own lines are the progress of these minutes.
    run_shown(paths.cargo().args(["build", "--release", "-p", "weir-fabric", "-p", "weir"]))?;
    let release = paths.target.join("release");
    for (from, to) in [("libweir_fi.so", paths.provider()), ("weir", paths.dist().join("bin/weir"))] {
        let from = release.join(from);
        let folder = to.parent().context("no folder")?;
        fs::create_dir_all(folder)?;
        // A new file under the old name: running programs keep the one they have mapped.
        let fresh = to.with_extension("new");
        fs::copy(&from, &fresh).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::rename(&fresh, &to)?;
    }
    let weir = paths.dist().join("bin/weir");
    run_shown(std::process::Command::new(weir).args(["man", "--dir"]).arg(paths.dist().join("share/man")))
}
