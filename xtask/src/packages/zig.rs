//! Building for old systems: Zig's linker with the symbols of an old glibc, both from PyPI into a
//! virtual environment of ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::elf::Glibc;
use super::tree::SHIPPED;
use crate::mpi;
use crate::origin::Origin;
use crate::paths::Paths;
use crate::process::run_shown;

/// The oldest glibc that what is built runs on: that of RHEL 8, and of the platform
/// `manylinux_2_28`.
pub const OLDEST_GLIBC: Glibc = (2, 28);
/// The machine it is for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Folders of this machine that nothing shipped may name, with what stands there instead.
pub fn folders(paths: &Paths) -> Vec<(String, &'static str)> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let rustup = std::env::var_os("RUSTUP_HOME").map_or_else(|| home.join(".rustup"), PathBuf::from);
    let text = |path: &Path| path.display().to_string();
    // Of two that begin alike the later one is taken.
    vec![
        (text(&rustup), "/rust"),
        (text(&cargo), "/cargo"),
        (text(&paths.root), "/weir"),
        (text(&paths.target), "/weir/target"),
    ]
}

/// Builds the products for the oldest glibc; returns the folder they are in.
///
/// # Errors
/// If Zig cannot be had or they do not build.
pub fn build(paths: &Paths, origin: &Origin) -> Result<PathBuf> {
    let venv = paths.target.join("zig");
    mpi::environment(paths, "Zig and cargo-zigbuild", &venv, &paths.root.join("packaging/zig-requirements.txt"))?;
    let bin = venv.join("bin");
    let mut search = vec![bin.clone()];
    search.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let cargo = paths.cargo();
    let mut command = Command::new(bin.join("cargo-zigbuild"));
    command.current_dir(&paths.root).env("PATH", std::env::join_paths(search)?);
    for (name, value) in cargo.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("CARGO", cargo.get_program()).env("CARGO_INCREMENTAL", "0");
    command.env("WEIR_COMMIT", origin.commit_or_nothing()).env("SOURCE_DATE_EPOCH", origin.epoch.to_string());
    // Below the target folder, so that who removes that has removed all.
    for (name, folder) in
        [("ZIG_GLOBAL_CACHE_DIR", "cache"), ("ZIG_LOCAL_CACHE_DIR", "cache"), ("CARGO_ZIGBUILD_CACHE_DIR", "wrappers")]
    {
        command.env(name, venv.join(folder));
    }
    let folders = folders(paths);
    let rust: Vec<String> = folders.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    // Instead of all other flags: the user's own settings would make other bytes.
    command.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\x1f")).env_remove("RUSTFLAGS");
    let c: Vec<String> = folders.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    command.env("CFLAGS", c.join(" "));
    let (major, minor) = OLDEST_GLIBC;
    command.args(["zigbuild", "--locked", "--profile", SHIPPED, "--target", &format!("{TARGET}.{major}.{minor}")]);
    run_shown(command.args(["-p", "weir-fabric", "-p", "weir-bmi", "-p", "weir-bsp", "-p", "weir"]))
        .context("building for old systems failed")?;
    Ok(built(paths))
}

/// The folder that [`build`] leaves them in.
pub fn built(paths: &Paths) -> PathBuf {
    paths.target.join(TARGET).join(SHIPPED)
}
