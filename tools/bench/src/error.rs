//! What goes wrong, each in one line with its cause.

use std::path::PathBuf;

/// Why a benchmark did not run, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The machine (MPI, the endpoint, another rank) failed.
    #[error("{doing}: {cause}")]
    Machine {
        /// What was being done.
        doing: String,
        /// What the machine said.
        cause: String,
    },
    /// A file could not be written or read.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system or the format's reader said.
        cause: String,
    },
    /// Rank 0 found something wrong and said so to all.
    #[error("{0}")]
    Told(String),
    /// Another rank found something wrong and said so.
    #[error("rank {rank}: {cause}")]
    Elsewhere {
        /// The rank.
        rank: usize,
        /// What it said.
        cause: String,
    },
}

/// What every fallible part of this crate returns.
pub type Result<T> = std::result::Result<T, BenchError>;

impl BenchError {
    /// An error of the machine.
    #[must_use]
    pub fn machine(doing: impl Into<String>, cause: impl std::fmt::Display) -> BenchError {
        BenchError::Machine { doing: doing.into(), cause: cause.to_string() }
    }

    /// An error about a file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>, cause: impl std::fmt::Display) -> BenchError {
        BenchError::File { path: path.into(), cause: cause.to_string() }
    }
}
