//! What can go wrong, as one line for people.

use std::path::PathBuf;

use crate::log::LogError;

const WHY_NONE: &str =
    "did the program call MPI_Init, and is it linked with the MPI of the compiler by a shared library?";

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no recording.
    #[error("{} {source}", path.display())]
    Log {
        /// Which.
        path: PathBuf,
        /// Why.
        source: LogError,
    },
    /// A folder holds no recordings.
    #[error("{} holds no recordings (rank-0.weirrec, ...): {}", folder.display(), WHY_NONE)]
    Empty {
        /// Which.
        folder: PathBuf,
    },
    /// The recordings of a folder are not those of one run.
    #[error("{}: {what}", folder.display())]
    Incomplete {
        /// Which.
        folder: PathBuf,
        /// What is missing, or too many.
        what: String,
    },
    /// A compiler, launcher or program failed.
    #[error("{0}")]
    Run(String),
    /// What was recorded makes no model.
    #[error("{0}")]
    Refused(String),
    /// The model does not say what was recorded: a fault of ours.
    #[error("the model does not repeat what was recorded: {0}")]
    Differs(String),
    /// A file that is to be checked is no model.
    #[error("{} is no model: {what}", path.display())]
    NoModel {
        /// Which.
        path: PathBuf,
        /// What is wrong with it first.
        what: String,
    },
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The same about recordings whose folder goes away with us: in the words of who asked for a
    /// run.
    #[must_use]
    pub fn of_run(self, count: u32) -> Self {
        let name = |path: PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let what = match self {
            Self::Read { path, source } => format!("{} cannot be read: {source}", name(path)),
            Self::Write { path, source } => format!("{} cannot be written: {source}", name(path)),
            Self::Log { path, source } => format!("{} {source}", name(path)),
            Self::Empty { .. } => format!("nothing was recorded: {WHY_NONE}"),
            Self::Incomplete { what, .. } => what,
            other => return other,
        };
        Self::Run(format!("with {count} processes: {what}"))
    }
}
