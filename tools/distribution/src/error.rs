//! What can be wrong with a run's folder, each in one line: which file, which field, what.

use std::io;
use std::path::{Path, PathBuf};

use crate::model::{State, VERSION, Version};

/// Result of reading or writing a run.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("{}: cannot {doing}: {}", path.display(), cause(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, e.g. `write`.
        doing: &'static str,
        /// Its reason.
        source: io::Error,
    },
    /// The disk is full.
    #[error("{}: cannot write: no space left on the device; {} kept", path.display(), finished(*cells))]
    Full {
        /// The file.
        path: PathBuf,
        /// Cells finished before.
        cells: usize,
    },
    /// There is no `run.json`.
    #[error("{}: not a run: there is no run.json in it; {advice}", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// What to name instead.
        advice: String,
    },
    /// It is no folder.
    #[error("{}: is {what}: a run is a folder with a run.json in it, as weir bench -o FOLDER writes{advice}", path.display())]
    NotAFolder {
        /// The file.
        path: PathBuf,
        /// What it is instead, with its article.
        what: &'static str,
        /// What to do with it, from a semicolon on; or nothing.
        advice: String,
    },
    /// The folder has a run already.
    #[error("{}: holds a run already ({state}, {cells} cell{}); name another folder, or say that it may be overwritten", path.display(), if *cells == 1 { "" } else { "s" })]
    Exists {
        /// The folder.
        path: PathBuf,
        /// Whether that run was complete.
        state: State,
        /// Its cells.
        cells: usize,
    },
    /// The folder has something else in it.
    #[error("{}: is not empty and not a run; name another folder", .0.display())]
    Foreign(PathBuf),
    /// Another process writes the run.
    #[error("{}: is being written by another process; wait for its end, or name another folder", .0.display())]
    Busy(PathBuf),
    /// Not this format.
    #[error("{}: {field}: {problem}", file.display())]
    Format {
        /// `run.json`.
        file: PathBuf,
        /// `format` or `version`.
        field: &'static str,
        /// What was found.
        problem: String,
    },
    /// A version of the format that this reader does not know.
    #[error("{}: version: written in format {found}, this program reads {}.x; use a newer weir", file.display(), VERSION.major)]
    Version {
        /// `run.json`.
        file: PathBuf,
        /// The version found.
        found: Version,
    },
    /// `run.json` is not JSON, or a field is missing or of another type.
    #[error("{}: {}{problem} (line {line}, column {column})", file.display(), named(field))]
    Json {
        /// `run.json`.
        file: PathBuf,
        /// The field, e.g. `cells[3].summary.p50_ns`; `.` for the file as a whole.
        field: String,
        /// What is wrong with it.
        problem: String,
        /// Line in the file, from 1.
        line: usize,
        /// Column in the line, from 1.
        column: usize,
    },
    /// A field has a value that makes no sense.
    #[error("{}: {field}: {problem}", file.display())]
    Field {
        /// `run.json`.
        file: PathBuf,
        /// The field, e.g. `cells[3].summary.p50_ns`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A samples file is missing, cut short or damaged.
    #[error("{}: {problem}", file.display())]
    Samples {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An option of an export makes no sense.
    #[error("{name}: {problem}")]
    Option {
        /// The option or variable.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A field before what is wrong with it; nothing for the file as a whole.
fn named(field: &str) -> String {
    if field == "." { String::new() } else { format!("{field}: ") }
}

/// Cells that are there, and the verb that goes with them.
fn finished(cells: usize) -> String {
    if cells == 1 { "the finished cell is".to_owned() } else { format!("the {cells} finished cells are") }
}

/// An I/O error in words without the number that the standard library appends.
#[must_use]
pub fn cause(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::StorageFull => "no space left on the device".to_owned(),
        io::ErrorKind::QuotaExceeded => "disk quota exceeded".to_owned(),
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        _ => {
            let text = e.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}

impl Error {
    /// For `map_err`: an error of the file system.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, doing, source }
    }

    /// For `map_err`: an error while writing a run of which so many cells are finished.
    pub(crate) fn write(path: impl Into<PathBuf>, cells: usize) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, cells },
            _ => Self::Io { path, doing: "write", source },
        }
    }

    pub(crate) fn samples(file: &Path, problem: impl Into<String>) -> Self {
        Self::Samples { file: file.to_owned(), problem: problem.into() }
    }
}
