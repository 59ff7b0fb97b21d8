//! `cargo xtask build`: the provider and the command, laid out as they are installed.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::process::run_shown;

/// Builds the release provider and command into `target/weir/{bin,lib}`.
///
/// # Errors
/// If they do not build.
pub fn build(paths: &Paths) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&paths.root).args(["build", "--release", "--quiet", "-p", "weir-fabric", "-p", "weir"]);
    run_shown(command.env("CARGO_TARGET_DIR", &paths.target))?;
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
    Ok(())
}
