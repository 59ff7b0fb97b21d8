//! Which MPI is meant: the one a program is linked with, or the one on the user's `PATH`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use weir_mpi::elf;
use weir_report::table::clean;

/// An MPI implementation that can use a libfabric provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// MPICH and those that keep its ABI.
    Mpich,
    /// Open MPI.
    Openmpi,
    /// Intel MPI, which keeps MPICH's ABI and has variables of its own.
    #[value(alias = "impi")]
    Intel,
}

impl Kind {
    /// Each.
    pub const ALL: [Self; 3] = [Self::Mpich, Self::Openmpi, Self::Intel];
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH",
            Self::Openmpi => "Open MPI",
            Self::Intel => "Intel MPI",
        })
    }
}

/// An MPI that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Which one.
    pub kind: Kind,
    /// What its launcher says its version is.
    pub version: Option<String>,
    /// Its `mpiexec`.
    pub launcher: Option<PathBuf>,
    /// Its library, where the question was about a program.
    pub library: Option<PathBuf>,
}

/// How long a tool may take to say its version.
const ASK_LIMIT: Duration = Duration::from_secs(20);
/// What a tool has said is in the pipe when it ends; how long reading it may take at least.
const PIPE_GRACE: Duration = Duration::from_secs(1);

/// Runs a command and returns what it prints, or an error when it fails or takes too long.
///
/// # Errors
/// If it cannot be started, does not end in `limit`, or ends with another code than 0.
pub fn ask(command: &mut Command, limit: Duration) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let drain = |stream: Option<Box<dyn Read + Send>>| {
        let (done, all) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(stream) = stream {
                let _ = stream.take(4 << 20).read_to_end(&mut text);
            }
            let _ = done.send(String::from_utf8_lossy(&text).into_owned());
        });
        all
    };
    let out = drain(child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let err = drain(child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let deadline = Instant::now() + limit;
    let late = || anyhow::anyhow!("{name} did not end within {} s", limit.as_secs());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(late());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // What it has left running may hold its output open.
    let rest =
        |all: Receiver<String>| all.recv_timeout(deadline.saturating_duration_since(Instant::now()).max(PIPE_GRACE));
    let (Ok(out), Ok(err)) = (rest(out), rest(err)) else { return Err(late()) };
    if !status.success() {
        let said = telling_line(&err).or_else(|| telling_line(&out));
        bail!("{name}: {status}{}", said.map(|line| format!(": {}", clean(line))).unwrap_or_default());
    }
    Ok(out + &err)
}

/// The line that says what was wrong: the first in words, but of a Python traceback, which begins
/// with where it was, the last.
fn telling_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim).filter(|line| line.contains(char::is_alphabetic));
    match lines.next() {
        Some(first) if first.starts_with("Traceback (most recent call last)") => {
            Some(lines.next_back().unwrap_or(first))
        }
        first => first,
    }
}

/// A program found on a `PATH`.
pub fn on_path(name: &str, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    elf::path_list(path).into_iter().map(|folder| folder.join(name)).find(|file| is_executable(file))
}

/// A file that may be started.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Asks a launcher whose it is.
///
/// # Errors
/// If it does not answer, or belongs to an MPI that is not known here.
pub fn of_launcher(launcher: &Path) -> Result<Found> {
    let said = ask(Command::new(launcher).arg("--version"), ASK_LIMIT)?;
    let Some((kind, version)) = read_version(&said) else {
        bail!("{}: neither MPICH's nor Intel MPI's nor Open MPI's launcher", launcher.display());
    };
    Ok(Found { kind, version, launcher: Some(in_real_folder(launcher)), library: None })
}

/// The launcher by its folder's real name. Open MPI takes its prefix from the name it was called
/// by, so that `/bin`, a link to `/usr/bin`, would make it `/`. The file itself may be a link that
/// must be called by its own name.
fn in_real_folder(launcher: &Path) -> PathBuf {
    let real = launcher.parent().and_then(|folder| folder.canonicalize().ok());
    real.zip(launcher.file_name()).map_or_else(|| launcher.to_owned(), |(folder, name)| folder.join(name))
}

/// Reads what `mpiexec --version` says.
fn read_version(said: &str) -> Option<(Kind, Option<String>)> {
    let word_after = |text: &str, mark: &str| {
        let rest = text.split_once(mark)?.1.trim_start_matches([' ', ':', ')']);
        Some(rest.split(|c: char| c.is_whitespace() || c == ')').next()?.to_owned())
    };
    if said.contains("Intel(R) MPI Library") {
        let version =
            word_after(said, "Version").filter(|v| is_version(v) && v.starts_with(|c: char| c.is_ascii_digit()));
        return Some((Kind::Intel, version));
    }
    if said.contains("HYDRA") || said.contains("Hydra") {
        return Some((Kind::Mpich, word_after(said, "Version").filter(|v| is_version(v))));
    }
    // Open MPI 5 says "mpiexec (Open MPI) 5.0.11", 4 "mpiexec (OpenRTE) 4.1.4".
    let mark = ["(Open MPI)", "(OpenRTE)", "Open MPI", "OpenRTE"].into_iter().find(|mark| said.contains(mark));
    if mark.is_some() || said.contains("prterun") {
        let version = mark.and_then(|mark| word_after(said, mark));
        return Some((Kind::Openmpi, version.filter(|v| is_version(v) && v.starts_with(|c: char| c.is_ascii_digit()))));
    }
    None
}

/// A word that a version may be: a build between two releases has none that begins with a number.
fn is_version(word: &str) -> bool {
    (1..=40).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_graphic())
}

/// The MPI whose `mpiexec` comes first on the path; with `wanted`, the first of that kind.
///
/// # Errors
/// If there is none.
pub fn on_search_path(wanted: Option<Kind>, path: Option<&std::ffi::OsStr>) -> Result<Found> {
    let mut other = None;
    let names = wanted.map_or(&["mpiexec", "mpirun", "mpiexec.hydra"][..], launcher_names);
    for folder in elf::path_list(path) {
        for name in names {
            let launcher = folder.join(name);
            if !is_executable(&launcher) {
                continue;
            }
            match of_launcher(&launcher) {
                Ok(found) if wanted.is_none_or(|kind| kind == found.kind) => return Ok(found),
                Ok(found) => other = other.or(Some(found)),
                Err(_) => {}
            }
        }
    }
    match (wanted, other) {
        (Some(kind), Some(found)) => {
            bail!(
                "no {kind} on PATH, only {} ({}): load its module, or put its bin on PATH",
                found.kind,
                found.launcher.unwrap_or_default().display()
            )
        }
        _ => bail!("no mpiexec on PATH; install MPICH or Open MPI, for example: pip install mpich"),
    }
}

/// Of each MPI the launcher that comes first on the path.
pub fn all_on_path(path: Option<&std::ffi::OsStr>) -> Vec<Found> {
    Kind::ALL.into_iter().filter_map(|kind| on_search_path(Some(kind), path).ok()).collect()
}

/// The kind of a library: that of its name, or Intel MPI if a library of MPICH's ABI says so
/// itself.
fn kind_of(library: &elf::Library) -> Option<Kind> {
    let kind = kind_of_library(&library.name)?;
    let is_intels = || library.file.as_deref().is_some_and(|file| contains(file, INTELS_MARK));
    Some(if kind == Kind::Mpich && is_intels() { Kind::Intel } else { kind })
}

/// A variable that Intel MPI's library reads, and no other.
const INTELS_MARK: &[u8] = b"I_MPI_OFI_LIBRARY_INTERNAL";

/// Whether a file holds these bytes.
fn contains(file: &Path, what: &[u8]) -> bool {
    std::fs::read(file).is_ok_and(|bytes| bytes.windows(what.len()).any(|window| window == what))
}

/// The folder of the libfabric that Intel MPI brings along, by its launcher or its library: beside
/// the library in the packages of PyPI and conda, elsewhere below the prefix in Intel's own.
pub fn intels_libfabric(found: &Found) -> Option<PathBuf> {
    let starts = [found.library.as_deref(), found.launcher.as_deref()];
    let prefixes = starts.into_iter().flatten().flat_map(|file| file.ancestors().skip(2).take(2));
    let folders =
        prefixes.flat_map(|prefix| ["opt/mpi/libfabric/lib", "libfabric/lib", "lib"].map(|folder| prefix.join(folder)));
    folders.into_iter().find(|folder| folder.join("libfabric.so.1").is_file())
}

/// The kind that a library's name tells: MPICH's ABI is `libmpi.so.12`, Open MPI's `.40`.
pub fn kind_of_library(name: &str) -> Option<Kind> {
    let name = name.rsplit('/').next().unwrap_or(name);
    if name.starts_with("libmpich.so") || name.starts_with("libmpi.so.12") {
        Some(Kind::Mpich)
    } else if name.starts_with("libmpi.so.40") || name.starts_with("libmpi.so.20") || name.starts_with("libopen-pal") {
        Some(Kind::Openmpi)
    } else {
        None
    }
}

/// The MPI that `program` is linked with, or that its Python uses, and the launcher that goes with
/// it.
///
/// # Errors
/// If the program is linked with an MPI whose launcher cannot be found, or with two MPIs.
pub fn of_program(program: &Path, env: &weir_job::Env) -> Result<Found> {
    let path = env.get("PATH").map(std::ffi::OsString::as_os_str);
    if let Some((kind, library)) = linked(program, env)? {
        return with_launcher(kind, &library, path);
    }
    if let Some(python) = python_of(program, path) {
        return of_python(&python, path);
    }
    // A shell script, say: whatever it starts is most likely built for the MPI in use.
    on_search_path(None, path)
}

/// The MPI that `program` is linked with, and its library; none if that is not to be seen: it is a
/// script, loads an MPI when it runs, starts another program, or has nothing to do with MPI.
///
/// # Errors
/// If it is linked with two MPIs.
pub fn linked(program: &Path, env: &weir_job::Env) -> Result<Option<(Kind, elf::Library)>> {
    if !elf::is_elf(program) {
        return Ok(None);
    }
    let search = elf::path_list(env.get("LD_LIBRARY_PATH").map(std::ffi::OsString::as_os_str));
    let libraries = elf::libraries(program, &search);
    let mut mpis: Vec<(Kind, elf::Library)> =
        libraries.into_iter().filter_map(|library| Some((kind_of(&library)?, library))).collect();
    mpis.sort_by_key(|(_, library)| library.name.contains("pal"));
    if let Some((kind, library)) = mpis.first()
        && let Some((_, second)) = mpis.iter().find(|(other, _)| other != kind)
    {
        bail!("{} needs two MPIs: {} and {}", program.display(), library.name, second.name);
    }
    Ok(mpis.into_iter().next())
}

/// Whether `program` is a Python, or a script for one.
pub fn is_for_python(program: &Path, env: &weir_job::Env) -> bool {
    python_of(program, env.get("PATH").map(std::ffi::OsString::as_os_str)).is_some()
}

/// What an MPI's launcher may be called; Debian adds the MPI's name where several are installed.
fn launcher_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Mpich => &["mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich"],
        Kind::Openmpi => &["mpiexec", "mpirun", "mpiexec.openmpi"],
        Kind::Intel => &["mpiexec", "mpiexec.hydra"],
    }
}

/// The launcher of the MPI that has this library: of those on the path and those beside the
/// library, one whose prefix the library is below, the nearest first; else any of that kind on the
/// path.
fn with_launcher(kind: Kind, library: &elf::Library, path: Option<&std::ffi::OsStr>) -> Result<Found> {
    let real = library.file.as_deref().and_then(|file| file.canonicalize().ok());
    let found = match real.as_deref().and_then(|real| launcher_of_library(kind, real, path)) {
        Some(found) => found,
        // Of a library of this name that is found only when the program starts nobody knows yet
        // whose it is.
        None if kind == Kind::Mpich && library.file.is_none() => on_search_path(Some(kind), path)
            .or_else(|error| on_search_path(Some(Kind::Intel), path).map_err(|_| error))
            .with_context(|| format!("the program is linked with {kind} ({})", library.name))?,
        None => on_search_path(Some(kind), path)
            .with_context(|| format!("the program is linked with {kind} ({})", library.name))?,
    };
    Ok(Found { library: library.file.clone(), ..found })
}

fn launcher_of_library(kind: Kind, library: &Path, path: Option<&std::ffi::OsStr>) -> Option<Found> {
    let beside = library.ancestors().skip(2).map(|folder| folder.join("bin"));
    let mut folders: Vec<PathBuf> =
        elf::path_list(path).into_iter().chain(beside).filter_map(|folder| folder.canonicalize().ok()).collect();
    // A launcher that lies in `/` has no prefix, and everything would be below it.
    folders.retain(|bin| bin.parent().is_some_and(|prefix| prefix.parent().is_some() && library.starts_with(prefix)));
    // Stable: of equally near ones, that of the path which comes first.
    folders.sort_by_key(|bin| std::cmp::Reverse(bin.components().count()));
    folders.dedup();
    let names = folders.iter().flat_map(|folder| launcher_names(kind).iter().map(|name| folder.join(name)));
    names.filter(|file| is_executable(file)).find_map(|file| of_launcher(&file).ok().filter(|found| found.kind == kind))
}

/// What an MPICH library was built to send through: its device, such as `ch4:ofi` or `ch4:ucx ofi`.
///
/// The library keeps it as a text for `MPI_Get_library_version`; asking the library itself would
/// mean to load it.
pub fn mpich_device(library: &Path) -> Option<String> {
    let bytes = std::fs::read(library).ok()?;
    [&b"\0ch4:"[..], b"\0ch3:"].iter().find_map(|mark| {
        bytes.windows(mark.len()).enumerate().filter(|(_, window)| window == mark).find_map(|(at, _)| {
            let text = bytes[at + 1..].split(|byte| *byte == 0).next()?;
            let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b" :,".contains(b);
            (text.len() < 64 && text.iter().all(plain)).then(|| String::from_utf8_lossy(text).into_owned())
        })
    })
}

/// Why this MPI cannot use a libfabric provider at all; none if it can, or if nothing is known
/// against it.
pub fn cannot_use_libfabric(found: &Found) -> Option<String> {
    let library = found.library.as_deref().filter(|_| found.kind == Kind::Mpich)?;
    let device = mpich_device(library)?;
    let without = !device.contains("ofi");
    without.then(|| {
        format!(
            "{} is an MPICH built for {device}, without libfabric; build the program with one that has it, for example: pip install mpich",
            library.display()
        )
    })
}

/// The Python that will run `program`, if it is one or is a script for one.
fn python_of(program: &Path, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let is_python = |name: &str| name.starts_with("python");
    if program.file_name()?.to_str().is_some_and(is_python) {
        return Some(program.to_owned());
    }
    let mut start = [0; 256];
    let length = std::fs::File::open(program).ok()?.read(&mut start).ok()?;
    let line = String::from_utf8_lossy(&start[..length]).lines().next()?.strip_prefix("#!")?.trim().to_owned();
    let mut words = line.split_whitespace().filter(|word| !word.ends_with("/env"));
    let interpreter = words.next()?;
    let name = interpreter.rsplit('/').next()?;
    if !is_python(name) {
        return None;
    }
    if interpreter.contains('/') { Some(interpreter.into()) } else { on_path(name, path) }
}

fn of_python(python: &Path, path: Option<&std::ffi::OsStr>) -> Result<Found> {
    let question =
        "import mpi4py\nmpi4py.rc.initialize = False\nfrom mpi4py import MPI\nprint(MPI.Get_library_version())";
    let said =
        ask(Command::new(python).args(["-c", question]), ASK_LIMIT).context("this Python has no usable mpi4py")?;
    let kind = match &said {
        said if said.contains("Open MPI") => Kind::Openmpi,
        said if said.contains("Intel(R) MPI") => Kind::Intel,
        _ => Kind::Mpich,
    };
    let beside = python.parent().map(|folder| folder.join("mpiexec"));
    match beside.filter(|launcher| is_executable(launcher)).map(|launcher| of_launcher(&launcher)) {
        Some(Ok(found)) if found.kind == kind => Ok(found),
        _ => on_search_path(Some(kind), path).with_context(|| format!("mpi4py uses {kind}")),
    }
}

/// Whether Open MPI's launcher starts nothing because this is root, which it wants to be told twice
/// to do.
pub fn refuses_root(found: &Found, env: &weir_job::Env, is_root: bool) -> bool {
    let is_allowed = |name: &str| env.get(name).is_some_and(|value| value == "1");
    found.kind == Kind::Openmpi && is_root && !ROOT_ALLOWED.iter().all(|name| is_allowed(name))
}

/// The variables by which it is told.
pub const ROOT_ALLOWED: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn open_mpi_wants_to_be_told_twice_that_root_may() {
        let found = |kind| Found { kind, version: None, launcher: None, library: None };
        let told = |names: &[&'static str]| weir_job::Env::from_pairs(names.iter().map(|name| (*name, "1")));
        let open = found(Kind::Openmpi);
        assert!(refuses_root(&open, &told(&[]), true) && refuses_root(&open, &told(&ROOT_ALLOWED[..1]), true));
        assert!(!refuses_root(&open, &told(&ROOT_ALLOWED), true) && !refuses_root(&open, &told(&[]), false));
        assert!(!refuses_root(&found(Kind::Mpich), &told(&[]), true));
    }

    #[test]
    fn of_a_traceback_the_last_line_is_told_and_else_the_first() {
        let traceback = "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    import mpi4py\nModuleNotFoundError: No module named 'mpi4py'\n";
        assert_eq!(telling_line(traceback), Some("ModuleNotFoundError: No module named 'mpi4py'"));
        assert_eq!(telling_line("\n---\nfirst: this\nthen that\n"), Some("first: this"));
        assert_eq!(telling_line("Traceback (most recent call last):"), Some("Traceback (most recent call last):"));
        assert_eq!(telling_line("\n123\n"), None);
    }

    #[test]
    fn launchers_tell_who_they_are() {
        let hydra = "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: x";
        assert_eq!(read_version(hydra), Some((Kind::Mpich, Some("5.0.2".into()))));
        let open = "mpiexec (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n";
        assert_eq!(read_version(open), Some((Kind::Openmpi, Some("5.0.11".into()))));
        assert_eq!(read_version("mpiexec (OpenRTE) 4.1.4\n"), Some((Kind::Openmpi, Some("4.1.4".into()))));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\nCopyright 2003-2026, Intel Corporation.\n";
        assert_eq!(read_version(intel), Some((Kind::Intel, Some("2021.18.1".into()))));
        assert_eq!(read_version("lamexec 7"), None);
    }

    /// An installed MPI that answers `--version` with these words.
    fn install(prefix: &Path, names: &[&str], says: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        for name in names {
            let file = prefix.join("bin").join(name);
            std::fs::write(&file, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn library(file: &Path) -> elf::Library {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"").unwrap();
        elf::Library { name: "libmpi.so.40".into(), file: Some(file.to_owned()) }
    }

    #[test]
    fn the_launcher_is_called_by_its_folders_real_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        install(&root.join("usr"), &["mpiexec"], "mpiexec (OpenRTE) 4.1.4");
        for link in ["bin", "lib"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
        }
        std::fs::create_dir_all(root.join("usr/lib/openmpi")).unwrap();
        // As found by a search of /lib on a system where that is /usr/lib.
        let library = library(&root.join("lib/openmpi/libmpi.so.40"));
        for path in ["bin", "usr/bin", "nowhere"] {
            let path = root.join(path);
            let found = with_launcher(Kind::Openmpi, &library, Some(path.as_os_str())).unwrap();
            assert_eq!(found.launcher, Some(root.join("usr/bin/mpiexec")));
            assert_eq!(found.version.as_deref(), Some("4.1.4"));
        }
    }

    #[test]
    fn of_several_installed_mpis_the_librarys_own_launcher_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        install(&root.join("usr"), &["mpiexec", "mpiexec.openmpi"], "mpiexec (OpenRTE) 4.1.4");
        install(&root.join("usr"), &["mpiexec.mpich"], "HYDRA build details:  Version: 4.0.2");
        install(&root.join("usr/local/own"), &["mpiexec"], "mpiexec (Open MPI) 5.0.11");
        install(&root.join("venv"), &["mpiexec"], "HYDRA build details:  Version: 5.0.2");
        let path = std::env::join_paths(["venv", "usr", "usr/local/own"].map(|p| root.join(p).join("bin"))).unwrap();
        let of =
            |kind, file: &str| with_launcher(kind, &library(&root.join(file)), Some(&path)).unwrap().launcher.unwrap();
        assert_eq!(of(Kind::Openmpi, "usr/lib/x/libmpi.so.40"), root.join("usr/bin/mpiexec"));
        assert_eq!(of(Kind::Openmpi, "usr/local/own/lib/libmpi.so.40"), root.join("usr/local/own/bin/mpiexec"));
        assert_eq!(of(Kind::Mpich, "usr/lib/x/libmpich.so.12"), root.join("usr/bin/mpiexec.mpich"));
        assert_eq!(of(Kind::Mpich, "elsewhere/libmpi.so.12"), root.join("venv/bin/mpiexec"));
    }

    #[test]
    fn an_mpich_without_libfabric_is_known_by_its_device() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libmpich.so.12");
        let found = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            Found { kind: Kind::Mpich, version: None, launcher: None, library: Some(file.clone()) }
        };
        let why = cannot_use_libfabric(&found(b"x\0ch4:%s\0ch4:ucx\0y")).unwrap();
        assert!(why.contains("built for ch4:ucx, without libfabric"), "{why}");
        assert_eq!(cannot_use_libfabric(&found(b"x\0ch4:ucx ofi\0y")), None);
        assert_eq!(cannot_use_libfabric(&found(b"nothing to see")), None);
    }

    #[test]
    fn intels_library_is_known_by_what_it_reads_and_its_libfabric_by_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mpich = elf::Library { name: "libmpi.so.12".into(), ..library(&root.join("m/lib/libmpi.so.12")) };
        let intel = elf::Library { name: "libmpi.so.12".into(), ..library(&root.join("i/lib/libmpi.so.12")) };
        std::fs::write(intel.file.as_ref().unwrap(), b"x\0I_MPI_OFI_LIBRARY_INTERNAL\0y").unwrap();
        let nowhere = elf::Library { name: "libmpi.so.12".into(), file: None };
        assert_eq!([&mpich, &intel, &nowhere].map(kind_of), [Some(Kind::Mpich), Some(Kind::Intel), Some(Kind::Mpich)]);
        let found = |launcher: &str, library: Option<&str>| {
            let of = |name: &str| Some(root.join(name));
            let found =
                Found { kind: Kind::Intel, version: None, launcher: of(launcher), library: library.and_then(of) };
            intels_libfabric(&found)
        };
        assert_eq!(found("i/bin/mpiexec", None), None);
        std::fs::write(root.join("i/lib/libfabric.so.1"), "").unwrap();
        assert_eq!(found("i/bin/mpiexec", None), Some(root.join("i/lib")));
        assert_eq!(found("elsewhere/mpiexec", Some("i/lib/libmpi.so.12")), Some(root.join("i/lib")));
        std::fs::create_dir_all(root.join("i/opt/mpi/libfabric/lib")).unwrap();
        std::fs::write(root.join("i/opt/mpi/libfabric/lib/libfabric.so.1"), "").unwrap();
        assert_eq!(found("x", Some("i/lib/release/libmpi.so.12")), Some(root.join("i/opt/mpi/libfabric/lib")));
        install(&root.join("i"), &["mpiexec"], "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 7");
        let path = root.join("i/bin");
        for library in [&intel, &nowhere] {
            let kind = kind_of(library).unwrap();
            assert_eq!(with_launcher(kind, library, Some(path.as_os_str())).unwrap().kind, Kind::Intel);
        }
        assert!(with_launcher(Kind::Mpich, &mpich, Some(path.as_os_str())).is_err());
    }

    #[test]
    fn library_names_tell_the_abi() {
        assert_eq!(kind_of_library("libmpi.so.12"), Some(Kind::Mpich));
        assert_eq!(kind_of_library("/x/libmpi.so.40"), Some(Kind::Openmpi));
        assert_eq!(kind_of_library("libmpi_cxx.so.1"), None);
    }

    #[test]
    fn a_slow_tool_is_given_up() {
        let begin = Instant::now();
        let error = ask(Command::new("sleep").arg("120"), Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_tool_that_leaves_something_running_is_not_waited_for() {
        let error = ask(Command::new("sh").args(["-c", "sleep 5 & echo 1"]), Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn what_is_no_version_is_none() {
        assert_eq!(read_version("HYDRA build details:\n    Version:"), Some((Kind::Mpich, None)));
        assert_eq!(read_version("HYDRA Version: \u{1b}[2J5.0"), Some((Kind::Mpich, None)));
    }

    proptest! {
        #[test]
        fn any_answer_is_a_launchers_with_one_plain_word_or_none(
            parts in proptest::collection::vec(
                prop_oneof!["(?s).{0,8}", "(HYDRA|Hydra|Version|\\(Open MPI\\)|OpenRTE|prterun|[0-9.]{1,5})[: )\n\u{1b}]{0,3}"], 0..8),
        ) {
            if let Some((_, Some(version))) = read_version(&parts.concat()) {
                prop_assert!((1..=40).contains(&version.len()) && version.bytes().all(|b| b.is_ascii_graphic()), "{version:?}");
            }
        }

        #[test]
        fn a_launchers_own_words_tell_its_version(
            version in "[0-9]{1,2}(\\.[0-9]{1,3}){1,2}((a|b|rc)[0-9])?", before in "([a-z ]{0,9}\n)?", after in "(\n[a-zA-Z :]{0,9})?", blanks in 1usize..40,
        ) {
            let hydra = format!("{before}HYDRA build details:\n    Version:{:blanks$}{version}{after}", "");
            prop_assert_eq!(read_version(&hydra), Some((Kind::Mpich, Some(version.clone()))));
            for name in ["Open MPI", "OpenRTE"] {
                let open = format!("{before}mpiexec ({name}) {version}{after}");
                prop_assert_eq!(read_version(&open), Some((Kind::Openmpi, Some(version.clone()))));
            }
        }
    }
}
