//! `cargo xtask build` and `install`: the provider and the command, for this machine.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::origin::Origin;
use crate::packages::tree;
use crate::paths::Paths;
use crate::process::{run_quiet, run_shown};

/// The profile of the command where it is used on this machine, not shipped: without optimising
/// across crates, which takes longer than all else.
const QUICK: &str = "quick";

/// Builds the release provider, the libraries of BMI and BSPlib and a command into
/// `target/weir/{bin,lib}`, and puts their manual pages into `share/man`, where man(1) finds them
/// beside a `bin` on the path. The provider is as it is shipped, since it is measured.
///
/// # Errors
/// If they do not build.
pub fn build(paths: &Paths) -> Result<()> {
    eprintln!("building the provider and command (four to eight minutes on two cores)...");
    libraries(paths)?;
    run_shown(paths.cargo().args(["build", "--profile", QUICK, "-p", "weir"]))?;
    command(paths, QUICK)
}

/// The same for the tests, into `target/tested`: the libraries are those that are shipped, the
/// command is the one that the workspace's tests were compiled with just before, which has checks
/// that the shipped one lacks and takes no minutes more.
///
/// # Errors
/// If they do not build, or there is no such command.
pub fn for_tests(paths: &Paths) -> Result<()> {
    libraries(paths)?;
    command(paths, "debug")
}

/// The libraries and what compilers need of them, into `target/weir`. In one run of Cargo, lest
/// what they share is compiled for each with features of its own. Not quietly: Cargo's own lines
/// are the progress of these minutes.
///
/// # Errors
/// If they do not build.
pub fn libraries(paths: &Paths) -> Result<()> {
    run_shown(paths.cargo().args(["build", "--release", "-p", "weir-fabric", "-p", "weir-bmi", "-p", "weir-bsp"]))?;
    put(&paths.target.join("release/libweir_fi.so"), &paths.provider())?;
    put(&paths.target.join("release/libweir_bmi.so"), &paths.bmi())?;
    for (from, to) in tree::for_bmi_programs() {
        put(&paths.root.join(from), &paths.dist().join(to))?;
    }
    put_bsp(paths)
}

fn command(paths: &Paths, profile: &str) -> Result<()> {
    let weir = paths.command();
    put(&paths.target.join(profile).join("weir"), &weir)?;
    run_shown(Command::new(weir).args(["man", "--dir"]).arg(paths.dist().join("share/man")))
}

/// Builds the release provider into `target/weir/lib`.
///
/// # Errors
/// If it does not build.
pub fn provider(paths: &Paths) -> Result<()> {
    run_shown(paths.cargo().args(["build", "--release", "-p", "weir-fabric"]))?;
    put(&paths.target.join("release/libweir_fi.so"), &paths.provider())
}

/// BSPlib and what compilers need of it.
fn put_bsp(paths: &Paths) -> Result<()> {
    put(&paths.target.join("release/libweir_bsp.so"), &paths.dist().join(tree::BSP))?;
    put(&paths.root.join("include/bsp.h"), &paths.dist().join(tree::BSP_HEADER))?;
    put(&paths.root.join("include/bsp.f90"), &paths.dist().join(tree::BSP_MODULE))?;
    tree::write(&paths.dist().join(tree::BSP_PKGCONFIG), &tree::pkgconfig(paths)?)
}

/// A new file under the old name: running programs keep the one they have mapped.
fn put(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("no folder")?)?;
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(fs::rename(&fresh, to)?)
}

/// What `cargo xtask install` is told.
#[derive(clap::Args)]
pub struct InstallOptions {
    /// Where the files shall be used: PREFIX/bin/weir, PREFIX/lib/weir/libweir-fi.so, PREFIX/share
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    pub prefix: PathBuf,
}

/// Builds both as they are shipped and puts them, with everything that goes with them, into
/// `$DESTDIR/PREFIX`.
///
/// # Errors
/// If they do not build or a file cannot be written.
pub fn install(paths: &Paths, options: &InstallOptions) -> Result<()> {
    let to = destination(std::env::var_os("DESTDIR").as_deref(), &options.prefix)?;
    // Before minutes of building.
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    let origin = Origin::find(paths);
    eprintln!("building the provider and command as they are shipped (five to eight minutes on two cores)...");
    let mut cargo = paths.cargo();
    cargo.args([
        "build",
        "--profile",
        tree::SHIPPED,
        "--locked",
        "-p",
        "weir-fabric",
        "-p",
        "weir-bmi",
        "-p",
        "weir-bsp",
        "-p",
        "weir",
    ]);
    run_shown(cargo.env("WEIR_COMMIT", origin.commit_or_nothing()))?;
    let built = paths.target.join(tree::SHIPPED);
    let staged = tempfile::tempdir().context("no folder for temporary files")?;
    tree::stage(paths, &origin, &built, staged.path())?;
    // Over what is there: a file under its old name is a new file. One run of install(1) a file,
    // with plain modes whatever the umask.
    for file in tree::files(staged.path())? {
        let mode = if tree::is_program(&file) { "-m755" } else { "-m644" };
        run_quiet(Command::new("install").args(["-D", mode]).arg(staged.path().join(&file)).arg(to.join(&file)))?;
    }
    println!("installed into {}; next: {}/bin/weir doctor", to.display(), options.prefix.display());
    Ok(())
}

/// `DESTDIR` before the prefix, as make's users know it.
fn destination(destdir: Option<&OsStr>, prefix: &Path) -> Result<PathBuf> {
    if !prefix.is_absolute() {
        bail!("--prefix {}: it must begin with /, as it is where the files shall be used", prefix.display());
    }
    Ok(match destdir.filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(dir).join(prefix.strip_prefix("/")?),
        None => prefix.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_goes_before_the_prefix() {
        let to = |destdir: Option<&str>, prefix: &str| destination(destdir.map(OsStr::new), Path::new(prefix));
        assert_eq!(to(Some("/stage"), "/usr").unwrap(), Path::new("/stage/usr"));
        assert_eq!(to(Some("stage"), "/opt/weir").unwrap(), Path::new("stage/opt/weir"));
        assert_eq!(to(Some(""), "/usr").unwrap(), Path::new("/usr"));
        assert_eq!(to(None, "/usr").unwrap(), Path::new("/usr"));
        assert!(to(None, "here").unwrap_err().to_string().contains("--prefix here"));
    }
}
