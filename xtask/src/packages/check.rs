//! The packages where there is no compiler: installed into empty environments, with MPI programs
//! run over what is there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Packages, assemble, tree};
use crate::e2e::{Ended, carried, counters_in};
use crate::launch::without_foreign;
use crate::mpi::{self, Mpi};
use crate::origin::Origin;
use crate::paths::Paths;
use crate::process::run_limited;

/// A start of Python, MPI and four ranks takes seconds; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(240);
/// Ranks of each run.
const RANKS: usize = 4;
/// What scripts need that is in no package of ours: a shell, and what Hydra and shells look for. No
/// compiler, no Cargo, no Rust.
const TOOLS: [&str; 8] = ["sh", "env", "cat", "ls", "uname", "hostname", "dirname", "rm"];
/// What must not be there.
const COMPILERS: [&str; 7] = ["cargo", "rustc", "rustup", "gcc", "cc", "clang", "ld"];

/// An environment without a compiler: its own home, its own `PATH`.
struct Bare {
    folder: tempfile::TempDir,
    path: Vec<PathBuf>,
}

impl Bare {
    /// With the tools, and what is in `more` before them.
    fn new(more: &[PathBuf]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let tools = folder.path().join("tools");
        fs::create_dir(&tools)?;
        for name in TOOLS {
            let found =
                ["/usr/bin", "/bin"].map(|place| Path::new(place).join(name)).into_iter().find(|file| file.exists());
            if let Some(file) = found {
                symlink(file, tools.join(name))?;
            }
        }
        Ok(Self { path: more.iter().cloned().chain([tools]).collect(), folder })
    }

    /// Runs a line of shell; its output, or why it failed.
    fn run(&self, line: &str, env: &[(&str, String)]) -> Result<String, String> {
        let words = |error: anyhow::Error| format!("{error:#}");
        let path = std::env::join_paths(&self.path).map_err(|error| error.to_string())?;
        let mut command = Command::new("/bin/sh");
        without_foreign(&mut command);
        command.env_clear().env("PATH", path).env("HOME", self.folder.path()).env("LC_ALL", "C.UTF-8");
        command.args(["-ec", line]).current_dir(self.folder.path()).envs(env.iter().map(|(name, value)| (name, value)));
        let outcome = run_limited(&mut command, LIMIT).map_err(words)?;
        if outcome.ok() {
            Ok(outcome.stdout)
        } else {
            Err(format!("{line}\n{}\n{}", outcome.cause(), outcome.stderr.trim()))
        }
    }

    /// The command is there and no compiler is; it tells its version and finds the provider; an MPI
    /// program runs over it, and its counters say so.
    fn works(&self, origin: &Origin) -> Result<(), String> {
        for name in COMPILERS {
            if self.run(&format!("command -v {name}"), &[]).is_ok() {
                return Err(format!("there is a {name} here, so this shows nothing"));
            }
        }
        let version = self.run("weir --version", &[])?;
        if !version.contains(origin.version) {
            return Err(format!("weir --version says {version}, not {}", origin.version));
        }
        let info = self.run("weir info --json", &[])?;
        let info: serde_json::Value = serde_json::from_str(&info).map_err(|error| error.to_string())?;
        if info.pointer("/provider/facts/name").is_none_or(|name| name != "weir") {
            return Err(format!("weir info finds no provider: {}", info["provider"]));
        }
        // MPICH would keep messages of one host to itself, and Weir would carry them by shared
        // memory: packets are counted.
        let line = format!("eval $(weir env --no-shm); mpiexec -n {RANKS} python -m mpi4py.bench helloworld");
        self.greets(&line)?;
        self.greets(&format!("weir run --no-shm -n {RANKS} python -m mpi4py.bench helloworld"))
    }

    /// The ranks of this line greet, and each has sent packets of Weir's.
    fn greets(&self, line: &str) -> Result<(), String> {
        let stats = tempfile::tempdir().map_err(|error| error.to_string())?;
        let env = [("WEIR_STATS", stats.path().join("%p").display().to_string()), ("WEIR_CARRIER", "udp".to_owned())];
        let said = self.run(line, &env)?;
        let greetings = said.lines().filter(|line| line.contains("Hello, World!")).count();
        if greetings != RANKS {
            return Err(format!("{line}\n{greetings} of {RANKS} ranks greeted:\n{said}"));
        }
        carried(&counters_in(stats.path()), RANKS)
    }
}

/// Installs each package where there is no compiler and tries it; packs `built` once more and
/// compares; tells `report` of each.
///
/// # Errors
/// If the MPI cannot be had.
pub fn run(
    paths: &Paths,
    origin: &Origin,
    packages: &Packages,
    built: &Path,
    report: &mut dyn FnMut(&str, &Ended),
) -> Result<()> {
    let venv = tempfile::tempdir().context("no folder for temporary files")?;
    let python = venv.path().join("venv");
    let pip = mpi::make_environment(paths, &python)?;
    mpi::install(&pip, &mpi::pins(paths, Mpi::Mpich)?.0).context("pip could not install MPICH and mpi4py")?;
    let mut note = |name: &str, result: Result<(), String>| report(name, &result.into());
    note("the wheel, in an empty environment without a compiler", wheel(origin, packages, &python, &pip));
    match &packages.deb {
        Some(deb) => note(
            "the Debian package, unpacked, without a compiler",
            unpacked(origin, &python, "usr", |to| debian(deb, to)),
        ),
        None => report("the Debian package", &Ended::Skipped("not installed: dpkg-deb".into())),
    }
    let archive = |to: &Path| unpack_archive(&packages.archive, to);
    let name =
        packages.archive.file_name().map(|name| name.to_string_lossy().replace(".tar.gz", "")).unwrap_or_default();
    let mut note = |name: &str, result: Result<(), String>| report(name, &result.into());
    note("the archive, unpacked and moved, without a compiler", unpacked(origin, &python, &name, archive));
    note("packed once more, the same bytes", the_same_again(paths, origin, packages, built));
    Ok(())
}

fn wheel(origin: &Origin, packages: &Packages, python: &Path, pip: &[PathBuf]) -> Result<(), String> {
    let words = |error: anyhow::Error| format!("{error:#}");
    let run = |words_of_pip: &[&std::ffi::OsStr]| {
        let mut command = Command::new(&pip[0]);
        command.args(&pip[1..]).args(words_of_pip).arg("--disable-pip-version-check");
        crate::process::run_quiet(&mut command).map_err(words)
    };
    run(&["install".as_ref(), "--no-index".as_ref(), packages.wheel.as_os_str()])?;
    let bare = Bare::new(&[python.join("bin")]).map_err(words)?;
    bare.works(origin)?;
    let pages = ["share/man/man1/weir-run.1", "share/man/man7/fi_weir.7", tree::COMPLETIONS[0].1, tree::DISSECTOR];
    if let Some(missing) = pages.iter().find(|page| !python.join(page).is_file()) {
        return Err(format!("the wheel installs no {missing}"));
    }
    bare.run("! python -c 'import weir_hpc' 2>/dev/null", &[])
        .map_err(|_| "something of it can be imported".to_owned())?;
    run(&["uninstall".as_ref(), "--yes".as_ref(), "weir-hpc".as_ref()])?;
    let left = [tree::PROGRAM, tree::PROVIDER].iter().find(|file| python.join(file).exists());
    left.map_or(Ok(()), |file| Err(format!("after pip uninstall there is still {file}")))
}

/// Unpacks a package by `unpack`, moves the folder elsewhere, and tries what is in `prefix` of it.
fn unpacked(
    origin: &Origin,
    python: &Path,
    prefix: &str,
    unpack: impl FnOnce(&Path) -> Result<()>,
) -> Result<(), String> {
    let words = |error: anyhow::Error| format!("{error:#}");
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (first, moved) = (folder.path().join("first"), folder.path().join("moved there"));
    fs::create_dir(&first).map_err(|error| error.to_string())?;
    unpack(&first).map_err(words)?;
    fs::rename(&first, &moved).map_err(|error| error.to_string())?;
    Bare::new(&[moved.join(prefix).join("bin"), python.join("bin")]).map_err(words)?.works(origin)
}

fn debian(deb: &Path, to: &Path) -> Result<()> {
    crate::process::run_quiet(Command::new("dpkg-deb").arg("-x").arg(deb).arg(to)).map(drop)
}

fn unpack_archive(archive: &Path, to: &Path) -> Result<()> {
    crate::process::run_quiet(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to)).map(drop)
}

fn the_same_again(paths: &Paths, origin: &Origin, packages: &Packages, built: &Path) -> Result<(), String> {
    let again = tempfile::tempdir().map_err(|error| error.to_string())?;
    let other = assemble(paths, origin, built, &again.path().join("packages")).map_err(|error| format!("{error:#}"))?;
    for (one, other) in packages.files().into_iter().zip(other.files()) {
        let read = |file: &Path| fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
        if read(one)? != read(other)? {
            return Err(format!("{} has other bytes", one.display()));
        }
    }
    Ok(())
}

/// The same with what `cargo xtask build` or the tests made for this machine instead of what is
/// shipped, which takes minutes to build: for the tests.
///
/// # Errors
/// As [`run`], and if it cannot be packed.
pub fn of_this_machine(paths: &Paths, report: &mut dyn FnMut(&str, &Ended)) -> Result<()> {
    let folder = tempfile::tempdir_in(&paths.target)?;
    let built = folder.path().join("built");
    for (from, to) in [
        (paths.dist().join(tree::PROGRAM), "weir"),
        (paths.provider(), "libweir_fi.so"),
        (paths.bmi(), "libweir_bmi.so"),
        (paths.dist().join(tree::BSP), "libweir_bsp.so"),
    ] {
        let to = built.join(to);
        tree::copy(&from, &to)?;
        // As what is shipped is: half of the time would go into packing what debuggers read.
        crate::process::run_quiet(Command::new("strip").arg("--strip-unneeded").arg(&to))?;
    }
    let origin = Origin::find(paths);
    let packages = assemble(paths, &origin, &built, &folder.path().join("packages"))?;
    run(paths, &origin, &packages, &built, report)
}
