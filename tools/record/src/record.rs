//! Running a program with the recorder in front of its MPI, and reading what it wrote.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::Error;
use crate::log::{Recording, Room};

/// The recorder, which the program's own MPI compiles: MPIs differ in their binary interfaces, not
/// in their sources.
const RECORDER: [(&str, &str); 2] =
    [("recorder.c", include_str!("recorder.c")), ("requests.c", include_str!("requests.c"))];

/// What files are called: `rank-0.weirrec` and so on.
const SUFFIX: &str = ".weirrec";

/// How a program is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The compiler of the program's MPI.
    pub compiler: OsString,
    /// Its launcher.
    pub launcher: OsString,
    /// What the launcher is given besides `-n COUNT`.
    pub launcher_arguments: Vec<OsString>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// How long a run may take.
    pub limit: Duration,
}

/// Compiles the recorder into a shared library.
///
/// # Errors
/// If there is no compiler, or it fails.
pub fn build(compiler: &OsStr, library: &Path) -> Result<(), Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::Run(format!("cannot make a folder for the recorder: {e}")))?;
    for (name, text) in RECORDER {
        let file = folder.path().join(name);
        fs::write(file, text).map_err(|e| Error::Run(format!("cannot write the recorder's source: {e}")))?;
    }
    let source = folder.path().join("recorder.c");
    let mut command = Command::new(compiler);
    command.args(["-O2", "-shared", "-fPIC"]).arg(&source).arg("-o").arg(library).args(["-ldl", "-lpthread"]);
    let name = compiler.to_string_lossy();
    let output = command.stdin(Stdio::null()).output().map_err(|e| {
        Error::Run(format!("{name} cannot be started: {e}; name the mpicc of the program's MPI by --compiler"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    // Nobody knows our folder.
    let words = String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", folder.path().display()), "");
    let words: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    Err(Error::Run(format!("{name} cannot compile the recorder ({}): {}", output.status, words.join(" | "))))
}

/// Runs the program with so many processes; their recordings go into a folder.
///
/// # Errors
/// If it cannot be started, fails, or takes longer than it may.
pub fn run(plan: &Plan, library: &Path, count: u32, folder: &Path) -> Result<(), Error> {
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut into = OsString::from("WEIR_RECORD_DIR=");
    into.push(folder);
    let mut command = Command::new(&plan.launcher);
    command.args(&plan.launcher_arguments).arg("-n").arg(count.to_string());
    // By env and not by our own environment: the launcher is to have no recorder in it.
    command.arg("env").arg(preload).arg(into).args(&plan.command);
    let name = plan.launcher.to_string_lossy().into_owned();
    // What the program prints is no part of the model.
    let out = std::io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut child = command.stdin(Stdio::null()).stdout(out).spawn().map_err(|e| {
        Error::Run(format!("{name} cannot be started: {e}; name the launcher of the program's MPI by --launcher"))
    })?;
    match weir_mpi::ended(&mut child, plan.limit) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(Error::Run(format!("the program failed with {count} processes ({name}: {status})"))),
        Ok(None) => Err(Error::Run(format!(
            "the program was still running with {count} processes after {} s; give it less to do, or more by --limit",
            plan.limit.as_secs()
        ))),
        Err(e) => Err(Error::Run(format!("{name} cannot be waited for: {e}"))),
    }
}

/// Reads the recordings of a folder: of one run, or of several in folders within it. All that are
/// read together share a room.
///
/// # Errors
/// If there are none, one is missing or is no recording, or there is no room.
pub fn read(folder: &Path, room: &mut Room) -> Result<Vec<Vec<Recording>>, Error> {
    let (files, folders) = listed(folder)?;
    let mut runs = Vec::new();
    if !files.is_empty() {
        runs.push(one_run(folder, &files, room)?);
    }
    for inner in folders {
        let (files, _) = listed(&inner)?;
        if !files.is_empty() {
            runs.push(one_run(&inner, &files, room)?);
        }
    }
    if runs.is_empty() {
        return Err(Error::Empty { folder: folder.to_owned() });
    }
    Ok(runs)
}

/// Removes the recordings of an earlier run from a folder: a program that records nothing must not
/// be taken for that one.
///
/// # Errors
/// Those of the file system.
pub fn forget(folder: &Path) -> Result<(), Error> {
    for file in listed(folder)?.0 {
        fs::remove_file(&file).map_err(|source| Error::Write { path: file.clone(), source })?;
    }
    Ok(())
}

/// Recordings and folders in a folder, in order.
fn listed(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let bad = |source| Error::Read { path: folder.to_owned(), source };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(bad)? {
        let path = entry.map_err(bad)?.path();
        if path.is_dir() {
            folders.push(path);
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)) {
            files.push(path);
        }
    }
    files.sort();
    folders.sort();
    Ok((files, folders))
}

fn one_run(folder: &Path, files: &[PathBuf], room: &mut Room) -> Result<Vec<Recording>, Error> {
    let mut all = Vec::new();
    for path in files {
        let bad = |source| Error::Read { path: path.clone(), source };
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(bad)?;
        file.take(room.of_a_file() as u64 + 1).read_to_end(&mut bytes).map_err(bad)?;
        let recording =
            Recording::read_within(&bytes, room).map_err(|source| Error::Log { path: path.clone(), source })?;
        all.push(recording);
    }
    whole(all).map_err(|what| Error::Incomplete { folder: folder.to_owned(), what })
}

/// The recordings of one run in order, if they are all there.
///
/// # Errors
/// What is missing or there twice.
pub fn whole(mut all: Vec<Recording>) -> Result<Vec<Recording>, String> {
    all.sort_by_key(|r| r.rank);
    let size = all.first().map_or(0, |r| r.size);
    if let Some(other) = all.iter().find(|r| r.size != size) {
        return Err(format!("recordings of different runs: one of {size} processes and one of {}", other.size));
    }
    if let Some(pair) = all.windows(2).find(|pair| pair[0].run != pair[1].run && pair[0].rank != pair[1].rank) {
        return Err(format!("recordings of different runs: those of processes {} and {}", pair[0].rank, pair[1].rank));
    }
    for (at, recording) in all.iter().enumerate() {
        match recording.rank.cmp(&(at as u64)) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => return Err(format!("two recordings of process {}", recording.rank)),
            std::cmp::Ordering::Greater => return Err(format!("no recording of process {at} of {size}")),
        }
    }
    if (all.len() as u64) < size {
        return Err(format!("no recording of process {} of {size}", all.len()));
    }
    Ok(all)
}
