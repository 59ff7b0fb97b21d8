//! `weir record`: the command line, what is written where, what is said.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_annotations::Parsed;

use crate::error::Error;
use crate::log::{Recording, Room};
use crate::record::{self, Plan};
use crate::{check, lines, model, runs};

/// Arguments of `weir record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir record -n 2,4 -o model.txt -- ./jacobi --iterations 100
                               then: weir predict model.txt --machine run1 -n 8,16..128
  weir record -n 4 --keep runs -- ./jacobi          keeps what was recorded, in runs/4
  weir record --from runs -o model.txt              a model of what was kept
  weir record --from runs/8 --check model.txt       does the model repeat a run with another number of processes?
  weir record --library librecorder.so              only the recorder, to be used by hand:
  mpiexec -n 64 env LD_PRELOAD=$PWD/librecorder.so WEIR_RECORD_DIR=$PWD/runs/64 ./jacobi

The program is run once with each number of processes; it needs no change, but the shared library of its MPI. With the \
option -g of its compiler the model names lines of the source. Of the model is told whether it holds for other numbers \
of processes, and if not, which calls keep it from that. A model that does not repeat exactly what was recorded, call by \
call, is not written. MPI calls from Fortran are seen only where that MPI's Fortran library calls its C functions.

Exit codes:
  0  the model is written; standard error says what it holds for
  1  failed; one line on standard error says why
  2  the command line is wrong")]
pub struct RecordArgs {
    /// Numbers of processes, one run each
    #[arg(short = 'n', long = "ranks", value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: Vec<u32>,
    /// The model to write; else standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Keep the recordings in this folder, in one for each number of processes
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Run nothing: make the model of recordings that are there; may be given several times
    #[arg(long, value_name = "DIR", conflicts_with_all = ["keep", "command"])]
    pub from: Vec<PathBuf>,
    /// Make no model: compare this one with what is recorded, call by call; excludes -o
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "library"])]
    pub check: Option<PathBuf>,
    /// Only compile the recorder into this file, which is new or a library
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "keep", "command", "output"])]
    pub library: Option<PathBuf>,
    /// The compiler of the program's MPI
    #[arg(long, default_value = "mpicc", value_name = "FILE")]
    pub compiler: OsString,
    /// The launcher of the program's MPI
    #[arg(long, default_value = "mpiexec", value_name = "FILE")]
    pub launcher: OsString,
    /// An argument for the launcher; may be given several times
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub launcher_arg: Vec<OsString>,
    /// How long a run may take, in seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Runs `weir record`; gives its exit code.
///
/// # Errors
/// One line that says what failed.
pub fn run(args: &RecordArgs) -> Result<u8, Error> {
    if let Some(library) = &args.library {
        may_replace(library)?;
        record::build(&args.compiler, library)?;
        return Ok(0);
    }
    if let Some(output) = &args.output {
        let real = |path: &std::path::Path| path.canonicalize().ok();
        if args.from.iter().any(|from| real(output).zip(real(from)).is_some_and(|(file, from)| file.starts_with(from)))
        {
            return Err(Error::Usage(format!("{}: not overwritten: it is read", output.display())));
        }
    }
    // Told before the program runs: a recording takes long, and is gone with us.
    let checked = args.check.as_ref().map(|path| model_in(path).map(|model| (path, model))).transpose()?;
    if let Some(output) = &args.output {
        can_be_written(output).map_err(|source| Error::Write { path: output.clone(), source })?;
    }
    let (recorded, title) = if args.from.is_empty() {
        if args.command.is_empty() {
            return Err(Error::Usage("which program? weir record -n 2,4 -o model.txt -- ./program".into()));
        }
        let words: Vec<String> = args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        (record(args)?, words.join(" "))
    } else {
        let (mut all, mut room) = (Vec::new(), Room::default());
        for folder in &args.from {
            all.extend(record::read(folder, &mut room)?);
        }
        (all, args.from.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" "))
    };
    let title = title.replace(|c: char| c.is_control(), " ");
    if let Some((path, model)) = checked {
        let runs = gathered(recorded)?;
        check::agrees(&model, &runs.samples, runs.requests)?;
        weir_put::tell!("{}: does what was recorded, call by call", path.display());
        return Ok(0);
    }
    let made = of(recorded, &title)?;
    let failed = |path: &std::path::Path, source| Error::Write { path: path.to_owned(), source };
    weir_put::text(args.output.as_deref(), &made.text, failed)?;
    for note in &made.notes {
        weir_put::tell!("{note}");
    }
    Ok(0)
}

/// The model of recorded runs.
///
/// # Errors
/// If two have the same number of processes, or the calls make no model.
pub fn of(recorded: Vec<Vec<Recording>>, title: &str) -> Result<model::Model, Error> {
    model::model(&gathered(recorded)?, title)
}

/// The model that is to be checked.
fn model_in(path: &Path) -> Result<Parsed, Error> {
    let text = text_of(path)?;
    check::read(&text).map_err(|what| Error::NoModel { path: path.to_owned(), what })
}

/// Whether a file could be written: nothing of it is changed, and nothing is left.
fn can_be_written(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => fs::OpenOptions::new()
            .append(true)
            .open(path)
            .map(drop)
            .or_else(|_| tempfile::tempfile_in(folder).map(drop)),
        // A device, or a pipe whose reader comes later.
        Ok(_) => Ok(()),
        // Through a link that leads nowhere yet the file may be in another folder.
        Err(_) if fs::symlink_metadata(path).is_ok() => Ok(()),
        Err(_) => tempfile::tempfile_in(folder).map(drop),
    }
}

/// A compiler writes over whatever is there, and as root over devices too.
fn may_replace(library: &std::path::Path) -> Result<(), Error> {
    let Ok(found) = fs::metadata(library) else { return Ok(()) };
    let mut magic = [0; 4];
    let is_ours = found.is_file()
        && (found.len() == 0
            || fs::File::open(library).and_then(|mut f| f.read_exact(&mut magic)).is_ok_and(|()| magic == *b"\x7fELF"));
    if is_ours {
        Ok(())
    } else {
        Err(Error::Usage(format!("{}: not overwritten: it is no library", library.display())))
    }
}

/// The text of a model that is there.
fn text_of(path: &std::path::Path) -> Result<String, Error> {
    let bad = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(bad)?;
    file.take(weir_annotations::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(bad)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn gathered(mut recorded: Vec<Vec<Recording>>) -> Result<runs::Runs, Error> {
    recorded.sort_by_key(Vec::len);
    if let Some(twice) = recorded.windows(2).find(|pair| pair[0].len() == pair[1].len()) {
        return Err(Error::Usage(format!("two runs with {} processes: give one of them", twice[0].len())));
    }
    let sites: BTreeSet<_> = recorded.iter().flatten().flat_map(|r| r.sites.iter().cloned()).collect();
    let names = lines::names(&sites);
    runs::gather(&recorded, &mut |site| names.get(site).cloned().unwrap_or_default())
}

fn record(args: &RecordArgs) -> Result<Vec<Vec<Recording>>, Error> {
    let scratch = tempfile::tempdir().map_err(|e| Error::Run(format!("cannot make a folder for recordings: {e}")))?;
    let library = scratch.path().join("librecorder.so");
    record::build(&args.compiler, &library).map_err(|error| match error {
        Error::Run(said) => Error::Run(said.replace(&format!("{}/", scratch.path().display()), "")),
        other => other,
    })?;
    let plan = Plan {
        compiler: args.compiler.clone(),
        launcher: args.launcher.clone(),
        launcher_arguments: args.launcher_arg.clone(),
        command: args.command.clone(),
        limit: Duration::from_secs(args.limit),
    };
    let kept = match &args.keep {
        Some(folder) => std::path::absolute(folder).map_err(|source| Error::Write { path: folder.clone(), source })?,
        None => scratch.path().join("runs"),
    };
    let counts: BTreeSet<u32> = args.ranks.iter().copied().collect();
    let (mut all, mut room) = (Vec::new(), Room::default());
    for count in counts {
        let folder = kept.join(count.to_string());
        weir_put::tell!("recording a run with {count} processes");
        let mut one = || {
            fs::create_dir_all(&folder).map_err(|source| Error::Write { path: folder.clone(), source })?;
            record::forget(&folder)?;
            record::run(&plan, &library, count, &folder)?;
            record::read(&folder, &mut room)
        };
        // A folder that nobody knows is named to nobody.
        all.extend(one().map_err(|error| if args.keep.is_some() { error } else { error.of_run(count) })?);
    }
    Ok(all)
}
